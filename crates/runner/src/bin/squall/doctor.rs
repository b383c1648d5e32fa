//! `squall doctor`: what was found on this machine, and what to install.

use std::fmt::Write as _;

use squall_core::Registry;
use squall_runner::machine::{self, ON_THE_HOST};

use crate::output;
use crate::processes;

pub(crate) fn doctor(registry: &Registry) -> u8 {
    let mut text = format!("squall {}\n", env!("CARGO_PKG_VERSION"));
    for backend in registry.backends() {
        let (headline, lines) = machine::report(registry, backend);
        let _ = writeln!(text, "\n{headline}");
        for line in lines {
            let _ = writeln!(text, "    {line}");
        }
    }
    let (headline, lines) = processes::findings();
    let _ = writeln!(text, "\n{headline}");
    for line in lines {
        let _ = writeln!(text, "    {line}");
    }
    if registry.backend("cuda").is_none() {
        let _ = writeln!(text, "\ncuda: this build has no backend for it\n    {ON_THE_HOST}");
    }
    output::result(&text)
}
