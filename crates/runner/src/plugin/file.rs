//! What is looked at before a file is opened as a library: opening runs its code, and a file that is cut short would end the process.

use std::fmt::Write as _;
use std::fs::{self, File, Metadata};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use object::{Architecture, BinaryFormat, File as Object, Object as _, ObjectKind, ObjectSegment as _};
use sha2::{Digest as _, Sha256};
use squall_plugin::abi::ENTRY;

use super::{fault::Fault, segments};

/// A plugin is some megabytes; what is much larger is something else.
const LARGEST: u64 = 4 << 30;

/// A file that can be opened.
pub(super) struct Looked {
    /// Of its bytes, in hexadecimal digits.
    pub(super) sha256: String,
    pub(super) path: PathBuf,
    pub(super) seen: Seen,
}

/// What tells one state of a file from another.
#[derive(Clone, PartialEq)]
pub(super) struct Seen {
    /// The device and the number of the file on it: one file may have several names.
    #[cfg(unix)]
    place: (u64, u64),
    bytes: u64,
    changed: Option<std::time::SystemTime>,
}

impl Seen {
    /// Whether it is the same file, as far as the system tells, perhaps with other contents.
    #[cfg(unix)]
    pub(super) fn is_of_one_file(&self, other: &Seen) -> bool {
        self.place == other.place
    }

    #[cfg(not(unix))]
    pub(super) fn is_of_one_file(&self, _: &Seen) -> bool {
        false
    }

    fn of(metadata: &Metadata) -> Seen {
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt as _;
        Seen {
            #[cfg(unix)]
            place: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            changed: metadata.modified().ok(),
        }
    }
}

/// Looks at a file: that it is there, that it is the one that was pinned, and a plugin for this machine.
pub(super) fn look(path: &Path, sha256: Option<&[u8; 32]>) -> Result<Looked, Fault> {
    let missing = |error: std::io::Error| Fault::missing(path, &error);
    let full = path.canonicalize().map_err(missing)?;
    // A pipe would be waited for.
    let metadata = fs::metadata(&full).map_err(missing)?;
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "a folder" } else { "no regular file" };
        return Err(Fault::not_a_plugin(path, what.to_string()));
    }
    if metadata.len() > LARGEST {
        return Err(Fault::not_a_plugin(
            path,
            format!("{} bytes long, more than any plugin", metadata.len()),
        ));
    }
    let mut bytes = Vec::new();
    let mut file = File::open(&full).map_err(missing)?;
    file.read_to_end(&mut bytes).map_err(missing)?;
    let seen = Seen::of(&file.metadata().map_err(missing)?);
    let is: [u8; 32] = Sha256::digest(&bytes).into();
    if let Some(pinned) = sha256.filter(|pinned| **pinned != is) {
        return Err(Fault::other_bytes(path, &hex(&is), &hex(pinned)));
    }
    is_library(&bytes).map_err(|what| Fault::not_a_plugin(path, what))?;
    exports_entry(&bytes).map_err(|_| Fault::no_entry(path))?;
    Ok(Looked { path: full, seen, sha256: hex(&is) })
}

impl Looked {
    /// Whether the file is still the one that was looked at.
    pub(super) fn is_same(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|metadata| Seen::of(&metadata) == self.seen)
    }
}

/// Whether these bytes are a dynamic library for this machine, and all of it; else what they are.
fn is_library(bytes: &[u8]) -> Result<(), String> {
    if bytes.is_empty() {
        return Err("empty".to_string());
    }
    if bytes.starts_with(b"!<arch>") {
        return Err("a static library, which is linked and not loaded".to_string());
    }
    let object =
        Object::parse(bytes).map_err(|error| match std::str::from_utf8(&bytes[..bytes.len().min(512)]) {
            Ok(text) if !text.contains('\0') => "a text".to_string(),
            _ => format!("no library that this system knows: {error}"),
        })?;
    if object.format() != BinaryFormat::native_object() {
        return Err(format!("a file of another system: {:?}", object.format()));
    }
    let native = match std::env::consts::ARCH {
        "x86_64" => Some(Architecture::X86_64),
        "aarch64" => Some(Architecture::Aarch64),
        "riscv64" => Some(Architecture::Riscv64),
        "powerpc64" => Some(Architecture::PowerPc64),
        // The loader says so.
        _ => None,
    };
    if native.is_some_and(|native| object.architecture() != native) {
        return Err(format!(
            "a library for another machine: {:?}, not {}",
            object.architecture(),
            std::env::consts::ARCH
        ));
    }
    match object.kind() {
        ObjectKind::Dynamic => {}
        ObjectKind::Executable => return Err("a program".to_string()),
        ObjectKind::Relocatable => return Err("an object file, which is not linked yet".to_string()),
        kind => return Err(format!("no dynamic library: {kind:?}")),
    }
    // The system maps what is not there, too, and ends the process when that is touched.
    let beyond = |segment: object::Segment<'_, '_>| {
        let (start, size) = segment.file_range();
        start.checked_add(size).is_none_or(|end| end > bytes.len() as u64)
    };
    if object.segments().any(beyond) {
        return Err("cut short: parts of it lie beyond its end".to_string());
    }
    segments::fault(bytes).map_or(Ok(()), |fault| Err(format!("a damaged library: {fault}")))
}

/// Whether a library exports the entry of a plugin.
fn exports_entry(bytes: &[u8]) -> Result<(), ()> {
    let object = Object::parse(bytes).map_err(|_| ())?;
    let exports = object.exports().map_err(|_| ())?;
    // On some systems names begin with `_`.
    let is_entry =
        |name: &[u8]| name == ENTRY.as_bytes() || name.strip_prefix(b"_") == Some(ENTRY.as_bytes());
    if exports.iter().any(|export| is_entry(export.name())) { Ok(()) } else { Err(()) }
}

/// Reads 64 hexadecimal digits.
pub(super) fn parse_sha256(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    let mut hash = [0; 32];
    if digits.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}

fn hex(hash: &[u8; 32]) -> String {
    hash.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
