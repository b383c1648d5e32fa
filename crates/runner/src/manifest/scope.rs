//! Which names an expression may use, by where it stands.

use squall_core::{Diagnostic, Label, Span};

use super::names::{Declared, NameKind, Names};
use crate::codes;
use crate::expr::{Mention, name_habit};
use crate::suggest::nearest;

/// The names that exist at a place besides params, `rank` and `world`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scope<'v> {
    /// `i`, the index of the element that is filled.
    pub(crate) element: bool,
    /// Buffers of one element, whose name stands for it.
    pub(crate) buffers: bool,
    /// A loop's variable.
    pub(crate) variable: Option<&'v str>,
}

impl Scope<'_> {
    /// What is wrong with a mention, if anything.
    pub(crate) fn check(&self, mention: Mention<'_>, span: Span, names: &Names) -> Option<Diagnostic> {
        use NameKind::{Buffer, Communicator, Param};
        let (name, wanted): (&str, &[NameKind]) = match mention {
            Mention::Place | Mention::Name("rank" | "world") => return None,
            Mention::Name("i") => return (!self.element).then(|| element_index(span)),
            Mention::Name(name) if self.variable == Some(name) => return None,
            Mention::Name(name) => (name, if self.buffers { &[Param, Buffer] } else { &[Param] }),
            Mention::Communicator(name) => (name, &[Communicator]),
            Mention::Len(name) => (name, &[Buffer, Param]),
        };
        match names.get(name) {
            Some(declared) if wanted.contains(&declared.kind) => None,
            Some(declared) => Some(wrong_kind(mention, name, declared, span)),
            None => Some(unknown(mention, name, wanted, self.variable, span, names)),
        }
    }
}

fn element_index(span: Span) -> Diagnostic {
    Diagnostic::error(codes::UNKNOWN_NAME, "`i` has no meaning here", Label::at(span, ""))
        .with_help("`i` is the index of an element, in `fill` alone")
}

fn wrong_kind(mention: Mention<'_>, name: &str, declared: Declared, span: Span) -> Diagnostic {
    let wanted = match mention {
        Mention::Communicator(_) => "a communicator",
        Mention::Len(_) => "a buffer or a list",
        Mention::Name(_) | Mention::Place => "a number",
    };
    let is = declared.kind.words();
    let message = format!("`{name}` is {is}, and {wanted} is needed here");
    let diagnostic = Diagnostic::error(codes::WRONG_NAME, message, Label::at(span, is))
        .with_related(Label::at(declared.span, "declared here"));
    match (mention, declared.kind) {
        (Mention::Name(_), NameKind::Buffer) => {
            diagnostic.with_help(format!("its number of elements is `len({name})`"))
        }
        (Mention::Name(_), NameKind::Communicator) => diagnostic
            .with_help(format!("this rank's place in it is `rank({name})`, its size `size({name})`")),
        _ => diagnostic,
    }
}

fn unknown(
    mention: Mention<'_>,
    name: &str,
    wanted: &[NameKind],
    variable: Option<&str>,
    span: Span,
    names: &Names,
) -> Diagnostic {
    let what = match mention {
        Mention::Communicator(_) => "no communicator",
        Mention::Len(_) => "no buffer and no list",
        Mention::Name(_) | Mention::Place => "nothing",
    };
    let diagnostic = Diagnostic::error(
        codes::UNKNOWN_NAME,
        format!("{what} is named `{name}`"),
        Label::at(span, "unknown"),
    );
    if name == "world" && matches!(mention, Mention::Communicator(_)) {
        return diagnostic.with_help("of the whole job they are `rank` and `world`");
    }
    let numbers: &[&str] = if matches!(mention, Mention::Name(_)) { &["rank", "world"] } else { &[] };
    let candidates = wanted.iter().flat_map(|kind| names.of_kind(*kind));
    let candidates = candidates.chain(numbers.iter().copied()).chain(variable);
    match name_habit(name).or_else(|| nearest(name, candidates)) {
        Some(near) => diagnostic.with_help(format!("did you mean `{near}`?")),
        None => diagnostic,
    }
}
