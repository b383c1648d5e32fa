//! What habits from other languages mean in this one.

use super::functions::Function;
use crate::suggest::nearest;

/// The mend for a symbol of another language, which stands behind a value or where one is wanted.
pub(super) fn symbol(symbol: &str, behind_value: bool) -> Option<&'static str> {
    Some(match symbol {
        "&&" | "&" => "write `and`",
        "||" | "|" => "write `or`",
        "!" => "write `not`",
        "=" | "===" => "equality is written `==`",
        "!==" | "<>" => "inequality is written `!=`",
        "//" => "write `/`: between integers it rounds down",
        "**" | "^" => "there is no power; multiply",
        "?" => "a choice is written `a if condition else b`",
        "." if behind_value => "only a communicator's name has a dot behind it: `dp.rank`, `dp.size`",
        "." => "a fraction begins with a digit: `0.5`",
        "<<" | ">>" => "there are no shifts; multiply or divide",
        "\"" | "'" => "an expression holds no strings",
        "{" | "}" => "braces belong in file names only",
        _ => return None,
    })
}

/// The mend for a call of a function that does not exist.
pub(super) fn function(word: &str) -> String {
    let names: Vec<&str> =
        Function::ALL.iter().map(|function| function.name()).chain(["rank", "size"]).collect();
    match word {
        "floor" | "int" => "between integers `/` rounds down".to_owned(),
        "ceil" => "round up with `(a + b - 1) / b`".to_owned(),
        "zip" => "the rows and columns of a list change places with `transpose(m)`".to_owned(),
        "range" => "a loop is written `for = \"m in 4\"`".to_owned(),
        _ => match nearest(word, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the functions are {}", names.join(", ")),
        },
    }
}

/// The name that another system's name for the same thing has here.
pub(crate) fn name(word: &str) -> Option<&'static str> {
    Some(match word {
        "world_size" | "WORLD_SIZE" | "nranks" | "num_ranks" | "size" | "n_ranks" => "world",
        "rank_id" | "RANK" | "global_rank" | "my_rank" => "rank",
        "True" | "TRUE" => "true",
        "False" | "FALSE" => "false",
        "AND" | "And" => "and",
        "OR" | "Or" => "or",
        "NOT" | "Not" => "not",
        _ => return None,
    })
}
