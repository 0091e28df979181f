//! Aligned text tables, and CSV lines.

use crate::clean::printable;

/// Alignment of a column's cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// To the left, for text.
    Left,
    /// To the right, for numbers.
    Right,
}

/// Table with a heading. Control characters in cells are shown as `·`, since data is untrusted and could contain escape
/// sequences.
///
/// ```
/// use terminal::{Align, Table};
///
/// let mut table = Table::new([("flow", Align::Left), ("reports", Align::Right)]).indented(2);
/// assert!(table.is_empty());
/// table.row(["10.0.0.1>10.0.0.2\x1b[2J".to_owned(), "7".to_owned()]); // a hostile cell clears no screen
/// assert_eq!(table.render(), "  flow                   reports\n  10.0.0.1>10.0.0.2·[2J        7\n");
/// ```
#[derive(Debug)]
pub struct Table {
    heads: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    indent: usize,
}

impl Table {
    /// Creates a table with these columns and no rows.
    pub fn new<T: Into<String>>(columns: impl IntoIterator<Item = (T, Align)>) -> Self {
        let heads = columns
            .into_iter()
            .map(|(name, align)| (name.into(), align))
            .collect();
        Self {
            heads,
            rows: Vec::new(),
            indent: 0,
        }
    }

    /// Indents each line by this number of spaces.
    pub fn indented(mut self, spaces: usize) -> Self {
        self.indent = spaces;
        self
    }

    /// Adds a row; missing cells stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(
            cells
                .into_iter()
                .map(|cell| printable(&cell).into_owned())
                .collect(),
        );
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders the table as text, with two spaces between columns and no trailing spaces.
    pub fn render(&self) -> String {
        let widths = self.widths();
        let mut out = String::new();
        let heads: Vec<String> = self.heads.iter().map(|(name, _)| name.clone()).collect();
        self.line(&mut out, &heads, &widths);
        for row in &self.rows {
            self.line(&mut out, row, &widths);
        }
        out
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.heads.iter().map(|(name, _)| columns(name)).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(columns(cell));
            }
        }
        widths
    }

    fn line(&self, out: &mut String, cells: &[String], widths: &[usize]) {
        let start = out.len();
        out.extend(std::iter::repeat_n(' ', self.indent));
        for (index, ((_, align), width)) in self.heads.iter().zip(widths).enumerate() {
            let cell = cells.get(index).map_or("", String::as_str);
            let padding = std::iter::repeat_n(' ', width.saturating_sub(columns(cell)));
            if index > 0 {
                out.push_str("  ");
            }
            if *align == Align::Right {
                out.extend(padding);
                out.push_str(cell);
            } else {
                out.push_str(cell);
                out.extend(padding);
            }
        }
        let end = start + out[start..].trim_end().len();
        out.truncate(end);
        out.push('\n');
    }
}

/// Returns the width of a text in columns; wide characters do not occur in the output.
fn columns(text: &str) -> usize {
    text.chars().count()
}

/// Formats one line of CSV (RFC 4180) with CRLF; cells are quoted only if necessary.
pub fn csv_line<'a>(cells: impl IntoIterator<Item = &'a str>) -> String {
    let mut out = String::new();
    for (index, cell) in cells.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        if cell.contains([',', '"', '\n', '\r']) {
            out.push('"');
            out.push_str(&cell.replace('"', "\"\""));
            out.push('"');
        } else {
            out.push_str(cell);
        }
    }
    out.push_str("\r\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_at_their_last_cell() {
        let mut table = Table::new([
            ("node", Align::Right),
            ("state", Align::Left),
            ("note", Align::Left),
        ])
        .indented(2);
        table.row(["7".into(), "ok".into()]);
        table.row(["1024".into(), "late".into(), "é".into()]);
        assert_eq!(
            table.render(),
            "  node  state  note\n     7  ok\n  1024  late   é\n"
        );
    }

    #[test]
    fn control_characters_in_cells_are_replaced() {
        let mut table = Table::new([("x", Align::Left)]);
        table.row(["a\x07b\nc".into()]);
        table.row(["\x1b]0;title\x07".into()]);
        assert_eq!(table.render(), "x\na·b·c\n·]0;title·\n");
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        assert_eq!(csv_line(["a", "b,c", "d\"e", ""]), "a,\"b,c\",\"d\"\"e\",\r\n");
    }
}
