//! What `squall explain` says: a page for every code, and all codes with their meanings.

use squall_core::Code;

macro_rules! pages {
    ($($code:literal)*) => {
        &[$(($code, include_str!(concat!("explain/", $code, ".md")))),*]
    };
}

/// A page a code, in Markdown: what it means, why it is refused, and mostly a manifest that is refused with it and the same one mended.
const PAGES: &[(&str, &str)] = pages! {
    "E0227"
};

/// The page of a code, which may be written in small letters: a heading of the code and its meaning, then text and fenced manifests.
pub fn page(code: &str) -> Option<&'static str> {
    PAGES.iter().find(|(known, _)| known.eq_ignore_ascii_case(code)).map(|(_, page)| *page)
}

/// All codes with their meanings, errors first, ascending.
pub fn codes() -> Vec<(Code, &'static str)> {
    let mut all = [squall_core::codes::ALL, crate::codes::ALL].concat();
    all.sort_unstable();
    all
}
