//! "Did you mean": the nearest of some words.

/// The known word that `word` most likely stands for, if one is near enough to be a slip of the pen.
/// Case, `-` and `_` count for nothing. Of equally near words the first wins.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    // The distance costs the product of both lengths; nothing of such length is a slip.
    if word.len() > 64 {
        return None;
    }
    let word = plain(word);
    let tolerated = (word.chars().count() / 3).max(1);
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let distance = strsim::osa_distance(&word, &plain(candidate));
        if distance <= tolerated && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    // A word of one or two letters is near to any other; only the case may differ.
    best.filter(|(distance, _)| word.len() > 2 || *distance == 0).map(|(_, candidate)| candidate)
}

fn plain(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn slips_are_found_and_other_words_are_not() {
        let known = ["grads", "step_timeout", "n", "all_reduce"];
        assert_eq!(nearest("grad", known), Some("grads"));
        assert_eq!(nearest("steptimeout", known), Some("step_timeout"));
        assert_eq!(nearest("Step-Timeot", known), Some("step_timeout"));
        assert_eq!(nearest("AllReduce", known), Some("all_reduce"));
        assert_eq!(nearest("N", known), Some("n"));
        assert_eq!(nearest("m", known), None);
        assert_eq!(nearest("weights", known), None);
        assert_eq!(nearest(&"grads".repeat(100), known), None);
    }
}
