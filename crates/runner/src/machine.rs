//! What of a kind of device is on this machine, in the words of `squall doctor`; a run that finds no device gives them too.

use squall_core::{Backend, Registry};

use crate::render::count;

/// What there is of a backend's devices, and what was found and is missing: a headline, and below it lines to be indented. Opens
/// the libraries that the devices need.
pub fn report(registry: &Registry, backend: &dyn Backend) -> (String, Vec<String>) {
    let kind = backend.kind();
    let libraries = registry.libraries().filter(|library| library.device() == kind);
    let found = backend.findings().into_iter().chain(libraries.flat_map(|library| library.findings()));
    let (install, mut lines): (Vec<String>, Vec<String>) =
        found.partition(|line| line.starts_with("install "));
    let wheels: Vec<&str> = install.iter().filter_map(|line| wheel(line)).collect();
    let together =
        (wheels.len() > 1).then(|| format!("the wheels in one command: `pip install {}`", wheels.join(" ")));
    lines.extend(install.iter().cloned().chain(together));
    let devices = match backend.count() {
        Ok(None) => "any number of devices".to_string(),
        Ok(Some(devices)) => count(devices, "device"),
        Err(_) => {
            lines.push(ON_THE_HOST.to_string());
            "no device is usable".to_string()
        }
    };
    (format!("{kind}: {devices}"), lines)
}

/// What needs no GPU.
pub const ON_THE_HOST: &str =
    "manifests run on host devices without any of this, as with `--devices host:0..4`";

/// The Python wheel that a line tells to install.
fn wheel(line: &str) -> Option<&str> {
    line.split('`').find_map(|part| part.strip_prefix("pip install "))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use squall_core::registry::Item;
    use squall_core::{Connect, Device, DeviceError, Library, Session};

    use super::*;

    struct Absent;

    impl Backend for Absent {
        fn kind(&self) -> &'static str {
            "absent"
        }

        fn default_library(&self) -> &'static str {
            "absent"
        }

        fn count(&self) -> Result<Option<u32>, DeviceError> {
            Err(DeviceError::Unsupported("there is no driver:\n  a place".to_string()))
        }

        fn repeats(&self) -> bool {
            false
        }

        fn captures(&self) -> bool {
            false
        }

        fn open(&self, _: u32) -> Result<Arc<dyn Device>, DeviceError> {
            Err(DeviceError::Unsupported(String::new()))
        }

        fn findings(&self) -> Vec<String> {
            let lines = ["there is no driver:", "  a place", "install a driver", "a compiler"];
            lines.map(str::to_string).into()
        }
    }

    /// A library of another kind of device is not asked.
    struct Missing(&'static str);

    impl Library for Missing {
        fn name(&self) -> &'static str {
            self.0
        }

        fn device(&self) -> &'static str {
            if self.0 == "other" { "other" } else { "absent" }
        }

        fn connect(&self, _: &Connect<'_>) -> Result<Vec<Session>, DeviceError> {
            Err(DeviceError::Unsupported(String::new()))
        }

        fn findings(&self) -> Vec<String> {
            vec![
                format!("there is no {}", self.0),
                format!("install {0}: `pip install wheel-{0}`, or its package", self.0),
            ]
        }
    }

    #[test]
    fn what_to_install_comes_last_and_wheels_in_one_command() {
        let mut registry = Registry::default();
        for library in [&Missing("x"), &Missing("y"), &Missing("other")] {
            registry.add(&Item::Library(library), "test").unwrap();
        }
        let (headline, lines) = report(&registry, &Absent);
        assert_eq!(headline, "absent: no device is usable");
        assert_eq!(
            lines,
            [
                "there is no driver:",
                "  a place",
                "a compiler",
                "there is no x",
                "there is no y",
                "install a driver",
                "install x: `pip install wheel-x`, or its package",
                "install y: `pip install wheel-y`, or its package",
                "the wheels in one command: `pip install wheel-x wheel-y`",
                ON_THE_HOST,
            ]
        );
    }
}
