//! Compiled kernels on disk, so that a second run need not compile, nor even have the compiler.
//!
//! One file a kernel, named by the hash of its text, options and architecture. A file is written whole under another name and then
//! renamed, and what it holds is checked by a hash: one that was cut off or changed is as if it were not there. What it holds is
//! run, so that a folder or a file of another user, or that others may write, is not read. A cache that cannot be written is no
//! error: the kernel is compiled again next time.

use std::fs::{DirBuilder, File, Metadata};
use std::hash::Hasher as _;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use siphasher::sip128::{Hasher128 as _, SipHasher13};

/// What a file begins with: its kind and the version of its layout.
const MAGIC: &[u8; 8] = b"squallk1";

/// A hash of what makes a compiled kernel what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(u128);

impl Key {
    pub(crate) fn new(parts: &[&str]) -> Key {
        let mut hasher = SipHasher13::new();
        for part in parts {
            hasher.write_u64(part.len() as u64);
            hasher.write(part.as_bytes());
        }
        Key(hasher.finish128().as_u128())
    }

    fn of_bytes(bytes: &[u8]) -> Key {
        let mut hasher = SipHasher13::new();
        hasher.write(bytes);
        Key(hasher.finish128().as_u128())
    }
}

/// Where the cache is: `SQUALL_CACHE` (empty: nowhere), or `squall` in the user's folder of caches.
pub(crate) fn folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if std::env::var_os("SQUALL_CACHE").is_some() {
        return set("SQUALL_CACHE");
    }
    // Relative ones would mean another folder wherever a program is started, and are not to count.
    let absolute = |name: &str| set(name).filter(|folder| folder.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(caches.join("squall"))
}

fn file(folder: &Path, key: Key) -> PathBuf {
    folder.join(format!("{:032x}.cubin", key.0))
}

/// Whether only this user can have written it.
fn is_own(metadata: &Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0
}

/// The kernel, if it is there and whole.
pub(crate) fn read(folder: &Path, key: Key) -> Option<Vec<u8>> {
    let file = file(folder, key);
    // Before it is opened: to open what is no file, as a pipe, may take for ever.
    let safe = |path: &Path| std::fs::metadata(path).is_ok_and(|metadata| is_own(&metadata));
    if !safe(folder) || !safe(&file) || !file.is_file() {
        return None;
    }
    let mut file = File::open(file).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    let (magic, rest) = bytes.split_first_chunk::<8>()?;
    let (sum, code) = rest.split_first_chunk::<16>()?;
    let whole = magic == MAGIC && u128::from_le_bytes(*sum) == Key::of_bytes(code).0 && !code.is_empty();
    whole.then(|| code.to_vec())
}

/// Keeps a kernel, if it can.
pub(crate) fn write(folder: &Path, key: Key, code: &[u8]) {
    let kept = || -> std::io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut new = tempfile::Builder::new().prefix(".").suffix(".tmp").tempfile_in(folder)?;
        new.write_all(MAGIC)?;
        new.write_all(&Key::of_bytes(code).0.to_le_bytes())?;
        new.write_all(code)?;
        new.persist(file(folder, key)).map_err(|error| error.error)?;
        Ok(())
    };
    // A full disk, a folder of another user: the kernel in hand is good all the same.
    let _ = kept();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_was_kept_is_found_and_what_was_damaged_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (key, other) = (Key::new(&["text", "sm_90"]), Key::new(&["texts", "m_90"]));
        assert_ne!(key, other);
        let place = folder.path().join("deeper");
        write(&place, key, b"code");
        assert_eq!(read(&place, key).as_deref(), Some(&b"code"[..]));
        assert_eq!(read(&place, other), None);

        let whole = std::fs::read(file(&place, key)).unwrap();
        for damaged in [&whole[..0], &whole[..7], &whole[..20], &whole[..whole.len() - 1]] {
            std::fs::write(file(&place, key), damaged).unwrap();
            assert_eq!(read(&place, key), None, "{} bytes", damaged.len());
        }
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() ^= 1;
        std::fs::write(file(&place, key), changed).unwrap();
        assert_eq!(read(&place, key), None);

        write(&place, key, b"code");
        assert_eq!(read(&place, key).as_deref(), Some(&b"code"[..]));
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn what_others_may_write_is_not_read() {
        let (folder, key) = (tempfile::tempdir().unwrap(), Key::new(&[]));
        write(folder.path(), key, b"code");
        let file = file(folder.path(), key);
        for (path, mode) in [(file.as_path(), 0o666), (folder.path(), 0o777)] {
            let own = std::fs::metadata(path).unwrap().permissions();
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(read(folder.path(), key), None, "{}", path.display());
            std::fs::set_permissions(path, own).unwrap();
            assert!(read(folder.path(), key).is_some());
        }
    }

    #[test]
    fn a_folder_that_cannot_be_is_no_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write(file.path(), Key::new(&[]), b"code");
        assert_eq!(read(file.path(), Key::new(&[])), None);
    }
}
