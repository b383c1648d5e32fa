//! Whatever stands in a file, parsing it and drawing what is wrong with it neither panics nor leaves the text.

use proptest::prelude::*;
use squall_runner::manifest;
use squall_runner::render::{Color, render};

const VALID: &str = include_str!("diagnostics/valid.toml");

fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    let diagnostics = match manifest::parse_bytes(bytes) {
        Ok((_, warnings)) => warnings,
        Err(errors) => {
            prop_assert!(!errors.is_empty());
            errors
        }
    };
    for diagnostic in &diagnostics {
        for label in std::iter::once(&diagnostic.primary).chain(&diagnostic.related) {
            if let Some(span) = label.span {
                prop_assert!(span.start <= span.end && span.end as usize <= bytes.len(), "{:?}", diagnostic);
            }
        }
    }
    let text = String::from_utf8_lossy(bytes);
    for color in [Color::Always, Color::Never] {
        prop_assert_eq!(render(&diagnostics, "m.toml", &text, color).is_empty(), diagnostics.is_empty());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes)?;
    }

    #[test]
    fn any_text(text in "\\PC{0,200}") {
        check(text.as_bytes())?;
    }

    /// Parts of a valid manifest cut out, repeated or replaced.
    #[test]
    fn mutated_manifests(edits in prop::collection::vec((any::<prop::sample::Index>(), 0..60_usize, "[\\PC\\n]{0,8}"), 1..6)) {
        let mut text = VALID.to_owned();
        for (at, len, replacement) in edits {
            let at = at.index(text.len() + 1);
            let (start, end) = (boundary(&text, at), boundary(&text, at + len));
            text.replace_range(start..end, &replacement);
        }
        check(text.as_bytes())?;
    }

    /// Values of a valid manifest exchanged for values of other types.
    #[test]
    fn exchanged_values(line in any::<prop::sample::Index>(), value in prop::sample::select(vec![
        "1", "-1", "1.5", "inf", "true", "\"\"", "\"n\"", "\"1 / 0\"", "'''\n\\'''", "[]", "[[[]]]", "{}", "{ a.b = 1 }",
        "1979-05-27", "99999999999999999999", "\"\\u00e9 + 1\"",
    ])) {
        let lines: Vec<&str> = VALID.lines().collect();
        let at = line.index(lines.len());
        let changed: Vec<String> = lines.iter().enumerate().map(|(number, line)| match line.split_once(" = ") {
            Some((key, _)) if number == at => format!("{key} = {value}"),
            _ => (*line).to_owned(),
        }).collect();
        check(changed.join("\n").as_bytes())?;
    }
}

fn boundary(text: &str, at: usize) -> usize {
    (at.min(text.len())..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}
