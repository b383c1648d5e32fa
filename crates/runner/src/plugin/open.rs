//! Opening a file that was looked at, and greeting the plugin in it.

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;

use libloading::Library;
use squall_core::registry::Item;
use squall_plugin::abi::{self, ABI_MAJOR, ENTRY, Header, MAGIC, status};
use squall_plugin::convert::{Malformed, read_line, text};
use squall_plugin::field;

use super::fault::Fault;
use super::file::Looked;
use super::{Plugin, guarded, tables};

/// A plugin with what it brings.
#[derive(Clone, Copy)]
pub(super) struct Opened {
    pub(super) plugin: &'static Plugin,
    pub(super) items: &'static [Item],
}

/// What squall offers to all plugins.
struct TheHost(abi::Host);

// SAFETY: it points to text of this program, and its function may be called from any thread.
unsafe impl Sync for TheHost {}

static HOST: TheHost = TheHost(abi::Host {
    header: Header::of::<abi::Host>(),
    version: VERSION.as_ptr(),
    feature: Some(no_feature),
});

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"",
};

/// There are none yet.
unsafe extern "C" fn no_feature(_: *const c_char) -> *const c_void {
    std::ptr::null()
}

/// Opens a library, and keeps it open for good.
pub(super) fn library(looked: &Looked, named: &Path) -> Result<&'static Library, Fault> {
    // SAFETY: whoever names a plugin wants its code to run, its initialisers included.
    let library = unsafe { load(&looked.path) }.map_err(|error| Fault::loader(named, &error))?;
    // Nothing tells when the last pointer into it is gone.
    Ok(Box::leak(Box::new(library)))
}

/// The plugin in a library that was opened just now.
pub(super) fn greeted(library: &'static Library, looked: &Looked, named: &Path) -> Result<Opened, Fault> {
    if !looked.is_same() {
        return Err(Fault::changed(named));
    }
    // SAFETY: the ABI: a symbol of this name is a function of this type.
    let entry = unsafe { library.get::<abi::Entry>(ENTRY.as_bytes()) };
    let entry = *entry.map_err(|error| Fault::loader(named, &error))?;
    // SAFETY: as above.
    unsafe { greet(entry, &HOST.0, &looked.path) }.map_err(|unfit| unfit.of(named))
}

/// All symbols are bound at once, so that a missing one is told now; and none is seen by others.
#[cfg(unix)]
unsafe fn load(path: &Path) -> Result<Library, libloading::Error> {
    use libloading::os::unix;
    // SAFETY: the caller's.
    unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_LOCAL) }.map(Library::from)
}

#[cfg(not(unix))]
unsafe fn load(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: the caller's.
    unsafe { Library::new(path) }
}

/// Why a plugin that was opened is refused.
pub(super) enum Unfit {
    /// It has no table, or one of another ABI.
    Abi(String),
    /// Its tables are not as the ABI says.
    Tables(Malformed),
    /// It says itself that it cannot work here.
    Init { name: String, text: String, help: String },
}

impl Unfit {
    fn of(self, named: &Path) -> Fault {
        match self {
            Unfit::Abi(text) => Fault::other_abi(named, text),
            Unfit::Tables(malformed) => Fault::tables(named, &malformed),
            Unfit::Init { name, text, help } => Fault::init(named, &name, &text, &help),
        }
    }
}

impl From<Malformed> for Unfit {
    fn from(malformed: Malformed) -> Unfit {
        Unfit::Tables(malformed)
    }
}

/// Shakes hands with a plugin and reads what it brings.
///
/// # Safety
/// `entry` is a plugin's entry as of the ABI, and `host` a table that stays for good.
pub(super) unsafe fn greet(
    entry: abi::Entry,
    host: &'static abi::Host,
    path: &Path,
) -> Result<Opened, Unfit> {
    // SAFETY: the caller's.
    let table = unsafe { entry(host) };
    if table.is_null() {
        return Err(Unfit::Abi(format!(
            "it has no table for a host of version {ABI_MAJOR} of the interface"
        )));
    }
    // SAFETY: the caller's: every table has a header.
    let header = unsafe { table.cast::<Header>().read() };
    if header.magic != MAGIC {
        let (is, wanted) = (header.magic, MAGIC);
        return Err(Unfit::Abi(format!("its table begins with {is:#010x} and not with {wanted:#010x}")));
    }
    if header.abi_major != ABI_MAJOR {
        let theirs = header.abi_major;
        let older = if theirs < ABI_MAJOR { "the plugin" } else { "squall" };
        let text = format!(
            "it is of version {theirs} of the interface, and this squall of {ABI_MAJOR}: {older} is the older one"
        );
        return Err(Unfit::Abi(text));
    }
    // SAFETY: the caller's; `feature` is the last field of the first version.
    if unsafe { field!(Plugin, table, feature) }.is_none() {
        let (is, least) = (header.struct_size, size_of::<abi::Plugin>());
        return Err(Unfit::Abi(format!(
            "its table has {is} bytes, and the first version of the interface {least}"
        )));
    }
    // SAFETY: as just seen, all of the first version is there.
    let of_plugin = unsafe { &*table };
    // SAFETY: the caller's: text that stays for good.
    let (name, version) = unsafe {
        (text(of_plugin.name, "its name")?.to_string(), text(of_plugin.version, "its version")?.to_string())
    };
    if let Some(init) = of_plugin.init {
        let mut error = abi::Error::EMPTY;
        // SAFETY: the caller's; called once, before all else.
        let status = unsafe { init(host, &raw mut error) };
        if status != status::OK {
            let text = match read_line(&error.text) {
                text if text.is_empty() => format!("it fails to begin, with status {status} and no word"),
                text => text,
            };
            return Err(Unfit::Init { name, text, help: read_line(&error.help) });
        }
    }
    let plugin: &'static Plugin = Box::leak(Box::new(Plugin {
        name,
        version,
        path: path.to_path_buf(),
        ops: Default::default(),
        kernels: Default::default(),
    }));
    // SAFETY: the caller's.
    let items = guarded(|| unsafe { tables::items(table, plugin) });
    let items = items.unwrap_or_else(|| Err(Malformed("its tables cannot be read".to_string())))?;
    Ok(Opened { plugin, items: items.leak() })
}
