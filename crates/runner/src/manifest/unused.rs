//! Declarations that nothing uses.

use std::collections::BTreeSet;

use squall_core::{Diagnostic, Label};

use super::model::{Buffer, Communicator, Param};
use crate::codes;

/// A warning for each param, communicator and buffer that no expression and no argument mentions.
pub(crate) fn check<'m>(
    params: &'m [Param],
    communicators: &'m [Communicator],
    buffers: &'m [Buffer],
    used: &BTreeSet<String>,
) -> impl Iterator<Item = Diagnostic> {
    let params = params.iter().filter(|param| !used.contains(&param.name.value)).map(|param| {
        let message = format!("nothing uses the param `{}`", param.name.value);
        Diagnostic::warning(codes::UNUSED_PARAM, message, Label::at(param.name.span, "unused"))
    });
    let communicators = communicators.iter().filter(|comm| !used.contains(&comm.name.value)).map(|comm| {
        let message = format!("nothing uses the communicator `{}`", comm.name.value);
        let label = Label::at(comm.name.span, "unused");
        Diagnostic::warning(codes::UNUSED_COMMUNICATOR, message, label)
            .with_help(format!("a task takes part in it with `args = {{ comm = \"{}\" }}`", comm.name.value))
    });
    let buffers = buffers.iter().filter(|buffer| !used.contains(&buffer.name.value)).map(|buffer| {
        let message = format!("no task names the buffer `{}`", buffer.name.value);
        let diagnostic =
            Diagnostic::warning(codes::UNUSED_BUFFER, message, Label::at(buffer.name.span, "unused"));
        match &buffer.save {
            Some(_) => diagnostic
                .with_help("a rank has only the buffers that its tasks name, so that nothing is saved"),
            None => diagnostic,
        }
    });
    params.chain(communicators).chain(buffers)
}
