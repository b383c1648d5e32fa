//! `squall doctor`: what was found on this machine, and what to install.

use std::fmt::Write as _;

use squall_core::Registry;

use crate::output;

pub(crate) fn doctor(registry: &Registry) -> u8 {
    let mut text = format!("squall {}\n", env!("CARGO_PKG_VERSION"));
    for backend in registry.backends() {
        let _ = writeln!(text, "\n{}", backend.kind());
        for finding in backend.findings() {
            let _ = writeln!(text, "    {finding}");
        }
        let devices = match backend.count() {
            Ok(None) => "any number of devices".to_string(),
            Ok(Some(count)) => format!("{count} devices"),
            Err(error) => error.to_string(),
        };
        let _ = writeln!(text, "    {devices}");
    }
    if registry.backend("cuda").is_none() {
        text += "\ncuda\n    this build has no CUDA backend, and looks for no GPU\n";
        text += "    nothing to install: manifests run on host devices, as with `--devices host:0..4`\n";
    }
    output::result(&text);
    0
}
