//! File names with the rank in them.

use super::place::{Place, Text, TextError};

/// A file name in which `{rank}` stands for the rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The text around each `{rank}`: one piece more than there are ranks.
    pieces: Vec<String>,
    /// Where the name stands.
    pub place: Place,
}

const RANK: &str = "{rank}";

impl Template {
    pub(crate) fn parse(text: Text) -> Result<Template, TextError> {
        if text.value.trim().is_empty() {
            let message = "the name is empty";
            return Err(TextError { range: 0..text.value.len(), message: message.to_owned(), help: None });
        }
        let mut at = 0;
        for piece in text.value.split(RANK) {
            if let Some(brace) = piece.find(['{', '}']) {
                let from = at + brace;
                let rest = &text.value[from..];
                let end = rest.find('}').map_or(from + 1, |end| from + end + 1);
                return Err(TextError::new(
                    from..end,
                    format!("`{}` stands for nothing in a name", &text.value[from..end]),
                    "only `{rank}` is replaced",
                ));
            }
            at += piece.len() + RANK.len();
        }
        Ok(Template { pieces: text.value.split(RANK).map(str::to_owned).collect(), place: text.place })
    }

    /// The name as it was written, `{rank}` and all.
    pub fn written(&self) -> String {
        self.pieces.join(RANK)
    }

    /// The name for one rank.
    pub fn for_rank(&self, rank: u32) -> String {
        self.pieces.join(&rank.to_string())
    }

    /// Whether two ranks have different names.
    pub fn depends_on_rank(&self) -> bool {
        self.pieces.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use squall_core::Span;

    use super::*;

    fn parse(text: &str) -> Result<Template, TextError> {
        Template::parse(Text { value: text.to_owned(), place: Place::of_value(Span { start: 0, end: 0 }) })
    }

    #[test]
    fn the_rank_is_put_in_wherever_it_is_named() {
        let name = parse("out/{rank}/u-{rank}.npy").unwrap();
        assert_eq!(name.for_rank(12), "out/12/u-12.npy");
        assert_eq!(name.written(), "out/{rank}/u-{rank}.npy");
        assert!(name.depends_on_rank());
        assert!(!parse("w.npy").unwrap().depends_on_rank());
    }

    #[test]
    fn other_braces_are_refused_with_their_place() {
        assert_eq!(parse("é-{rank}-{world}.npy").unwrap_err().range, 10..17);
        assert_eq!(parse("a}").unwrap_err().range, 1..2);
        assert_eq!(parse("a{").unwrap_err().range, 1..2);
        assert!(parse("  ").is_err());
    }
}
