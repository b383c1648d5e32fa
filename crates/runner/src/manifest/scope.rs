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
    /// The variables of the loops around.
    pub(crate) variables: &'v [&'v str],
}

impl Scope<'_> {
    /// Whether a mention may stand here.
    pub(crate) fn allows(&self, mention: Mention<'_>, names: &Names) -> bool {
        match mention {
            Mention::Place | Mention::Name("rank" | "world") => true,
            Mention::Name("i") => self.element,
            Mention::Name(name) if self.variables.contains(&name) => true,
            Mention::Name(name) | Mention::CommRank(name) | Mention::CommSize(name) | Mention::Len(name) => {
                names.get(name).is_some_and(|declared| self.kinds(mention).contains(&declared.kind))
            }
        }
    }

    /// The kinds of declared names that such a mention may name.
    fn kinds(&self, mention: Mention<'_>) -> &'static [NameKind] {
        use NameKind::{Buffer, Communicator, Param};
        match mention {
            Mention::Place => &[],
            Mention::Name(_) if self.buffers => &[Param, Buffer],
            Mention::Name(_) => &[Param],
            Mention::CommRank(_) | Mention::CommSize(_) => &[Communicator],
            Mention::Len(_) => &[Buffer, Param],
        }
    }

    /// What is wrong with a mention that is not allowed here.
    pub(crate) fn describe(&self, mention: Mention<'_>, span: Span, names: &Names) -> Diagnostic {
        match mention {
            Mention::Place | Mention::Name("i") => element_index(span),
            Mention::Name(name) | Mention::CommRank(name) | Mention::CommSize(name) | Mention::Len(name) => {
                match names.get(name) {
                    Some(declared) => wrong_kind(mention, name, declared, span),
                    None => self.unknown(mention, name, span, names),
                }
            }
        }
    }

    fn unknown(&self, mention: Mention<'_>, name: &str, span: Span, names: &Names) -> Diagnostic {
        let what = match mention {
            Mention::CommRank(_) | Mention::CommSize(_) => "no communicator",
            Mention::Len(_) => "no buffer and no list",
            Mention::Name(_) | Mention::Place => "nothing",
        };
        let message = format!("{what} is named `{name}`");
        let diagnostic = Diagnostic::error(codes::UNKNOWN_NAME, message, Label::at(span, "unknown"));
        if name == "world" && matches!(mention, Mention::CommRank(_) | Mention::CommSize(_)) {
            return diagnostic.with_help("of the whole job they are `rank` and `world`");
        }
        let numbers: &[&str] = if matches!(mention, Mention::Name(_)) { &["rank", "world"] } else { &[] };
        let declared = self.kinds(mention).iter().flat_map(|kind| names.of_kind(*kind));
        let candidates = declared.chain(numbers.iter().copied()).chain(self.variables.iter().copied());
        match name_habit(name).or_else(|| nearest(name, candidates)) {
            Some(near) => diagnostic.with_help(format!("did you mean `{near}`?")),
            None => diagnostic,
        }
    }
}

fn element_index(span: Span) -> Diagnostic {
    Diagnostic::error(codes::UNKNOWN_NAME, "`i` has no meaning here", Label::at(span, ""))
        .with_help("`i` is the index of an element, in `fill` alone")
}

/// That a declared name is of another kind than a mention of it needs.
pub(crate) fn wrong_kind(mention: Mention<'_>, name: &str, declared: Declared, span: Span) -> Diagnostic {
    let wanted = match mention {
        Mention::CommRank(_) | Mention::CommSize(_) => "a communicator",
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
        (Mention::Name(_), NameKind::Communicator) => {
            diagnostic.with_help(format!("this rank's place in it is `{name}.rank`, its size `{name}.size`"))
        }
        _ => diagnostic,
    }
}
