//! Declarations that nothing uses.

use std::collections::BTreeSet;

use squall_core::{Diagnostic, Label};

use super::model::{Buffer, Param};
use crate::codes;

/// A warning for each buffer and param that no expression and no argument mentions.
pub(crate) fn check<'m>(
    params: &'m [Param],
    buffers: &'m [Buffer],
    used: &BTreeSet<String>,
) -> impl Iterator<Item = Diagnostic> {
    let params = params.iter().filter(|param| !used.contains(&param.name.value)).map(|param| {
        let message = format!("nothing uses the param `{}`", param.name.value);
        Diagnostic::warning(codes::UNUSED_PARAM, message, Label::at(param.name.span, "unused"))
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
    params.chain(buffers)
}
