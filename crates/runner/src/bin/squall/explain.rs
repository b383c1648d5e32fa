//! `squall explain`: what a code means.

use squall_runner::explain::{codes, page};

use crate::args::ExplainArgs;
use crate::output;

pub(crate) fn explain(args: &ExplainArgs) -> u8 {
    if args.codes.is_empty() {
        let line = |(code, meaning): (_, &str)| format!("{code}  {meaning}\n");
        return output::result(&codes().into_iter().map(line).collect::<String>());
    }
    let mut pages = Vec::with_capacity(args.codes.len());
    for code in &args.codes {
        match page(code) {
            Some(page) => pages.push(page),
            None => {
                let text = format!("there is no code `{code}`; `squall explain` lists all, such as `E0227`");
                return output::fail(2, &text);
            }
        }
    }
    output::result(&pages.join("\n"))
}
