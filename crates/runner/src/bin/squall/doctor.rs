//! `squall doctor`: what was found on this machine, and what to install.

use std::fmt::Write as _;

use squall_core::Registry;

use crate::output;

pub(crate) fn doctor(registry: &Registry) -> u8 {
    let mut text = format!("squall {}\n", env!("CARGO_PKG_VERSION"));
    for backend in registry.backends() {
        let _ = writeln!(text, "\n{}", backend.kind());
        let libraries = registry.libraries().filter(|library| library.device() == backend.kind());
        for finding in backend.findings().into_iter().chain(libraries.flat_map(|library| library.findings()))
        {
            let _ = writeln!(text, "    {finding}");
        }
        match backend.count() {
            Ok(None) => text += "    any number of devices\n",
            Ok(Some(1)) => text += "    1 device\n",
            Ok(Some(count)) => {
                let _ = writeln!(text, "    {count} devices");
            }
            Err(error) => {
                error.to_string().lines().for_each(|line| {
                    let _ = writeln!(text, "    {line}");
                });
                text += "    without a GPU, manifests run on host devices, as with `--devices host:0..4`\n";
            }
        }
    }
    if registry.backend("cuda").is_none() {
        text += "\ncuda\n    this build has no CUDA backend, and looks for no GPU\n";
        text += "    nothing to install: manifests run on host devices, as with `--devices host:0..4`\n";
    }
    output::result(&text);
    0
}
