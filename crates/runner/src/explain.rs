//! What `squall explain` says: a page for every code, and all codes with their meanings.

use squall_core::Code;

macro_rules! pages {
    ($($code:literal)*) => {
        &[$(($code, include_str!(concat!("explain/", $code, ".md")))),*]
    };
}

/// A page a code, in Markdown: what it means, why it is refused, and mostly a manifest that is refused with it and the same one mended.
const PAGES: &[(&str, &str)] = pages! {
    "E0001" "E0002" "E0003" "E0004" "E0005" "E0101" "E0102" "E0103"
    "E0104" "E0105" "E0106" "E0107" "E0109" "E0110" "E0111" "E0120"
    "E0121" "E0122" "E0123" "E0124" "E0125" "E0126" "E0127" "E0128"
    "E0129" "E0140" "E0141" "E0142" "E0143" "E0144" "E0145" "E0146"
    "E0147" "E0148" "E0149" "E0150" "E0151" "E0152" "E0153" "E0154"
    "E0157" "E0158" "E0159" "E0164" "E0165" "E0166" "E0167" "E0168" "E0170" "E0171" "E0172"
    "E0173" "E0174" "E0175" "E0176" "E0177" "E0201" "E0202" "E0203"
    "E0204" "E0205" "E0206" "E0207" "E0208" "E0209" "E0210" "E0211"
    "E0212" "E0213" "E0214" "E0215" "E0216" "E0220" "E0221" "E0222"
    "E0223" "E0224" "E0225" "E0226" "E0227" "E0228" "E0229" "E0230"
    "E0231" "E0232" "E0233" "E0234" "E0301" "E0302" "E0303" "E0304"
    "E0305" "E0310" "E0311" "E0312" "E0313" "E0314" "E0315" "E0316"
    "E0317" "E0318" "E0401" "E0402" "E0403" "E0404" "E0405" "E0406" "W0001"
    "W0101" "W0102" "W0103" "W0104" "W0105" "W0106" "W0107" "W0108"
    "W0109" "W0201"
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
