//! Ranks side by side: what each comes to, a column of text a rank.

/// What one rank comes to, or several that come to the same.
pub(super) struct Column {
    pub(super) head: String,
    pub(super) lines: Vec<String>,
}

/// The most characters of a cell: three columns fit a terminal.
const WIDEST: usize = 34;

/// Draws columns beside each other, without a line's end behind the last line.
pub(super) fn draw(columns: &[Column]) -> String {
    let height = columns.iter().map(|column| 1 + column.lines.len()).max().unwrap_or(0);
    let cells: Vec<Vec<String>> = columns
        .iter()
        .map(|column| std::iter::once(&column.head).chain(&column.lines).map(|text| cut(text)).collect())
        .collect();
    let width = |cells: &Vec<String>| cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
    let lines = (0..height).map(|row| {
        let line = cells.iter().fold(String::new(), |line, cells| {
            let cell = cells.get(row).map_or("", String::as_str);
            format!("{line}{cell:<width$}   ", width = width(cells))
        });
        line.trim_end().to_string()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn cut(text: &str) -> String {
    if text.chars().count() <= WIDEST {
        return text.to_string();
    }
    text.chars().take(WIDEST - 2).chain("..".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_beside_each_other() {
        let column = |head: &str, lines: &[&str]| Column {
            head: head.to_string(),
            lines: lines.iter().map(ToString::to_string).collect(),
        };
        let long = "a name of many more characters than a column is wide";
        let drawn =
            draw(&[column("", &["0", "1"]), column("rank 0", &["é", long]), column("ranks 1 and 2", &["b"])]);
        assert_eq!(
            drawn,
            "    rank 0                               ranks 1 and 2\n\
             0   é                                    b\n\
             1   a name of many more characters t.."
        );
        assert_eq!(draw(&[]), "");
    }
}
