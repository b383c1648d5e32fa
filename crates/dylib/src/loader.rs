//! The system's loader: opening one file, and what is mapped into this process.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use libloading::Library;

/// Opens what `place` names: a path, or a bare name that the loader looks up. Gives the library and its real file, or the
/// loader's words.
pub(crate) fn load(place: &OsStr) -> Result<(&'static Library, PathBuf), String> {
    // SAFETY: the libraries that are asked for (NCCL, NVRTC, a driver) may be initialised on any thread at any time, and are
    // never unloaded.
    let (library, file) = unsafe { imp::open(place) }.map_err(|error| reason(place, &error))?;
    let path = file.unwrap_or_else(|| PathBuf::from(place));
    let path = path.canonicalize().unwrap_or(path);
    Ok((Box::leak(Box::new(library)), path))
}

/// What the loader says, without the name that a message has already.
fn reason(place: &OsStr, error: &libloading::Error) -> String {
    let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    let rest = text.strip_prefix(&*place.to_string_lossy()).and_then(|rest| rest.strip_prefix(": "));
    rest.map(str::to_string).unwrap_or(text)
}

/// The files mapped into this process whose name begins with `name`, symlinks resolved, in order: more than one copy of a
/// library that keeps state shows here. Empty where the system does not tell.
pub fn mapped(name: &str) -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    mapped_in(&maps, name)
}

fn mapped_in(maps: &str, name: &str) -> Vec<PathBuf> {
    // address, permissions, offset, device, inode, path; paths may have spaces.
    let paths = maps.lines().filter_map(|line| line.find('/').and_then(|at| line.get(at..)));
    let named = |path: &&Path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name));
    let files: BTreeSet<&Path> = paths.map(Path::new).filter(named).collect();
    files.into_iter().map(Path::to_path_buf).collect()
}

#[cfg(target_os = "linux")]
mod imp {
    use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::PathBuf;

    use libloading::os::unix::{Library as UnixLibrary, RTLD_LOCAL, RTLD_NOW};
    use libloading::{Error, Library};

    /// The head of what the loader keeps for each library, the same in glibc and musl.
    #[repr(C)]
    struct LinkMap {
        address: usize,
        name: *const c_char,
    }

    const RTLD_DI_LINKMAP: c_int = 2;

    unsafe extern "C" {
        fn dlinfo(handle: *mut c_void, request: c_int, info: *mut c_void) -> c_int;
    }

    /// Opens it, and tells the file that the loader took. Binds all symbols at once: a library whose own needs are not met is
    /// refused here, and does not end the process later.
    pub(super) unsafe fn open(place: &OsStr) -> Result<(Library, Option<PathBuf>), Error> {
        // SAFETY: the caller's.
        let handle = unsafe { UnixLibrary::open(Some(place), RTLD_NOW | RTLD_LOCAL) }?.into_raw();
        let mut map: *const LinkMap = std::ptr::null();
        // SAFETY: the handle is open, and the request writes one pointer.
        let outcome = unsafe { dlinfo(handle, RTLD_DI_LINKMAP, (&raw mut map).cast()) };
        let file = (outcome == 0 && !map.is_null()).then(|| {
            // SAFETY: the loader keeps the map, and in it the name, a C string, as long as the library is open.
            let name = unsafe { CStr::from_ptr((*map).name) };
            PathBuf::from(OsStr::from_bytes(name.to_bytes()))
        });
        // SAFETY: the handle is open, and owned by nobody since `into_raw`.
        let library = unsafe { UnixLibrary::from_raw(handle) };
        Ok((library.into(), file))
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::ffi::OsStr;
    use std::path::PathBuf;

    use libloading::{Error, Library};

    /// Opens it. Which file the loader took is not told here.
    pub(super) unsafe fn open(place: &OsStr) -> Result<(Library, Option<PathBuf>), Error> {
        // SAFETY: the caller's.
        Ok((unsafe { Library::new(place) }?, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_copy_is_listed_once() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/libnccl.so.2.28.9\n\
                    7f01-7f02 rw-p 00001000 08:01 1 /usr/lib/libnccl.so.2.28.9\n\
                    7f02-7f03 r-xp 00000000 08:01 2 /home/a b/libnccl.so.2\n\
                    7f03-7f04 r-xp 00000000 08:01 3 /usr/lib/libnccl-net.so\n\
                    7f04-7f05 rw-p 00000000 00:00 0 \n";
        let want = ["/home/a b/libnccl.so.2", "/usr/lib/libnccl.so.2.28.9"].map(PathBuf::from);
        assert_eq!(mapped_in(maps, "libnccl.so"), want);
    }
}
