//! Words that several messages share.

/// So many of something: `1 rank`, `2 ranks`. For nouns whose plural ends with an s.
pub fn count(count: impl Into<u128>, noun: &str) -> String {
    match count.into() {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_nothing_else_is() {
        assert_eq!([0u32, 1, 2].map(|n| count(n, "step")), ["0 steps", "1 step", "2 steps"]);
    }
}
