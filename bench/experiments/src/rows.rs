//! Reads an experiment's tables from CSV, and helps to compute comparisons and remarks from their rows.
//!
//! A remark computed from the rows cannot contradict them, and a page's text can be generated again from the stored CSV files
//! without measuring. Numbers keep the decimals of the file. Remarks that do not follow from rows are marked as judgements.

use super::{
    page::{Comparison, Table},
    timing::Spread,
};
use crate::svg::separated;
use terminal::units;

/// The text of a page that follows from its rows: comparisons with the paper, and remarks in whole sentences.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Observations {
    /// Replaces the page's comparisons, if present.
    pub(super) comparisons: Option<Vec<Comparison>>,
    pub(super) remarks: Vec<String>,
}

impl Observations {
    pub(super) fn new(comparisons: impl Into<Vec<Comparison>>, remarks: Vec<String>) -> Self {
        Self {
            comparisons: Some(comparisons.into()),
            remarks,
        }
    }

    /// Creates remarks only, and keeps the comparisons of the findings.
    pub(super) fn remarks(remarks: Vec<String>) -> Self {
        Self {
            comparisons: None,
            remarks,
        }
    }
}

/// Marks a remark that does not follow from the rows.
pub(super) fn judgement(text: &str) -> String {
    format!("Judgement: {text}")
}

/// Replaces `{}` in a template by the items, joined with `; `. `None` if there are no items.
pub(super) fn listed(template: &str, items: impl IntoIterator<Item = String>) -> Option<String> {
    let items: Vec<String> = items.into_iter().collect();
    (!items.is_empty()).then(|| template.replace("{}", &items.join("; ")))
}

/// The tables of an experiment, by name.
#[derive(Default)]
pub(super) struct Results(Vec<(String, Rows)>);

impl Results {
    pub(super) fn new(tables: &[Table]) -> Self {
        Self(
            tables
                .iter()
                .map(|table| (table.name.to_owned(), Rows::parse(&table.csv())))
                .collect(),
        )
    }

    /// Parses tables from pairs of name and CSV text.
    #[cfg(test)]
    pub(super) fn parse<'a>(tables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(
            tables
                .into_iter()
                .map(|(name, csv)| (name.to_owned(), Rows::parse(csv)))
                .collect(),
        )
    }

    /// Returns the table with this name, or one without rows.
    pub(super) fn table(&self, name: &str) -> Rows {
        self.0
            .iter()
            .find(|table| table.0 == name)
            .map_or_else(Rows::default, |table| table.1.clone())
    }
}

/// Splits a line of CSV; a cell with a comma is in quotes.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    for character in line.chars() {
        match (character, cells.last_mut()) {
            ('"', _) => is_quoted = !is_quoted,
            (',', _) if !is_quoted => cells.push(String::new()),
            (_, Some(cell)) => cell.push(character),
            (_, None) => {}
        }
    }
    cells
}

/// Rows of a table, with the names of its columns.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Row<'a> {
    columns: &'a [String],
    cells: &'a [String],
}

impl Rows {
    fn parse(csv: &str) -> Self {
        let mut lines = csv.lines();
        let columns = lines.next().map(cells).unwrap_or_default();
        Self {
            columns,
            rows: lines.map(cells).collect(),
        }
    }

    /// Fills a template ([`Row::fill`]) from the first row whose cells have these texts, if there is one.
    pub(super) fn fill(&self, wanted: &[(&str, &str)], template: &str) -> Option<String> {
        self.find(wanted).map(|row| row.fill(template))
    }

    /// Returns the ratio of a column in two rows. `dividend` and `divisor` select the first row whose cells have these texts.
    pub(super) fn ratio(
        &self,
        column: &str,
        dividend: &[(&str, &str)],
        divisor: &[(&str, &str)],
    ) -> Option<String> {
        let [dividend, divisor] = [self.find(dividend)?, self.find(divisor)?].map(|row| row.spread(column));
        Some(dividend.over(divisor).ratio_text(2))
    }

    /// Returns the spread of a column in the first row whose cells have these texts; NaN without such a row.
    pub(super) fn spread(&self, wanted: &[(&str, &str)], column: &str) -> Spread {
        self.find(wanted)
            .map_or_else(|| Spread::of(Vec::new()), |row| row.spread(column))
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Row<'_>> + Clone {
        self.rows.iter().map(|cells| Row {
            columns: &self.columns,
            cells,
        })
    }

    /// Returns the rows whose cells have these texts.
    pub(super) fn with(&self, wanted: &[(&str, &str)]) -> Vec<Row<'_>> {
        self.iter()
            .filter(|row| wanted.iter().all(|(column, text)| row.text(column) == *text))
            .collect()
    }

    /// Returns the first row whose cells have these texts.
    pub(super) fn find(&self, wanted: &[(&str, &str)]) -> Option<Row<'_>> {
        self.with(wanted).into_iter().next()
    }

    /// Returns the distinct texts of a column, in order of appearance.
    pub(super) fn values(&self, column: &str) -> Vec<&str> {
        let mut values = Vec::new();
        for (at, name) in self.columns.iter().enumerate() {
            if name == column {
                values.extend(self.rows.iter().filter_map(|row| row.get(at)).map(String::as_str));
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        values.retain(|value| seen.insert(*value));
        values
    }
}

impl<'a> Row<'a> {
    /// Returns the text of a cell, or an empty one if there is no such column.
    pub(super) fn text(&self, column: &str) -> &'a str {
        let at = self.columns.iter().position(|name| name == column);
        at.and_then(|at| self.cells.get(at)).map_or("", String::as_str)
    }

    /// Returns the number in a cell, or NaN.
    pub(super) fn number(&self, column: &str) -> f64 {
        self.text(column).parse().unwrap_or(f64::NAN)
    }
}

impl Row<'_> {
    /// Returns the number in a cell with its spread from the columns `…_min` and `…_max`, which is NaN without them.
    pub(super) fn spread(&self, column: &str) -> Spread {
        let [min, max] = ["min", "max"].map(|end| self.number(&format!("{column}_{end}")));
        Spread {
            median: self.number(column),
            min,
            max,
        }
    }

    /// Fills a template: `{column}` is a cell's text, `{column~}` a number with its spread, and `{column:noun}` a count, as in
    /// `1 list` or `255 lists`. Numbers get thousands separators.
    pub(super) fn fill(&self, template: &str) -> String {
        let mut parts = template.split('{');
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (field, rest) = part.split_once('}').unwrap_or((part, ""));
            if let Some((column, noun)) = field.split_once(':') {
                out += &units::counted(self.number(column) as u64, noun);
            } else if let Some(column) = field.strip_suffix('~') {
                let [min, max] = ["min", "max"].map(|end| separated(self.text(&format!("{column}_{end}"))));
                let ends = if min.is_empty() {
                    "spread unknown".into()
                } else {
                    format!("{min} to {max}")
                };
                out += &format!("{} ({ends})", separated(self.text(column)));
            } else {
                out += &separated(self.text(field));
            }
            out += rest;
        }
        out
    }
}

/// Returns the rows with the smallest and the largest number in a column.
pub(super) fn extremes<'a>(rows: &[Row<'a>], column: &str) -> Option<(Row<'a>, Row<'a>)> {
    let least = rows
        .iter()
        .min_by(|a, b| a.number(column).total_cmp(&b.number(column)))?;
    let greatest = rows
        .iter()
        .max_by(|a, b| a.number(column).total_cmp(&b.number(column)))?;
    Some((*least, *greatest))
}

/// Replaces the comparisons and remarks of a page by those computed from its rows.
#[cfg(test)]
pub(super) fn replace(page: &str, observations: &Observations) -> String {
    const HEAD: &str = "| | the paper | hopwise |";
    let mut out = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if line == HEAD
            && let Some(comparisons) = &observations.comparisons
        {
            while lines.next_if(|line| line.starts_with('|')).is_some() {}
            out.extend([HEAD.to_owned(), "| --- | --- | --- |".to_owned()]);
            out.extend(comparisons.iter().map(Comparison::line));
        } else if line.starts_with("## Differences and observations") {
            out.extend([line.to_owned(), String::new()]);
            while lines.next_if(|line| !line.starts_with("## ")).is_some() {}
            out.extend(observations.remarks.iter().map(|remark| format!("- {remark}")));
            out.push(String::new());
        } else {
            out.push(line.to_owned());
        }
    }
    out.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_keeps_everything_but_its_comparisons_and_remarks() {
        let page = "# T\n\nSo.\n\n| | the paper | hopwise |\n| --- | --- | --- |\n| a | 1 | 2 |\n\n\
                    ## Differences and observations\n\n- old\n\n## Conditions\n\n- c\n";
        let observations = Observations {
            comparisons: Some(vec![Comparison::new("a", "1", "3")]),
            remarks: vec!["new".into(), judgement("so.")],
        };
        assert_eq!(
            replace(page, &observations),
            "# T\n\nSo.\n\n| | the paper | hopwise |\n| --- | --- | --- |\n| a | 1 | 3 |\n\n\
             ## Differences and observations\n\n- new\n- Judgement: so.\n\n## Conditions\n\n- c\n"
        );
    }

    #[test]
    fn rows_are_found_by_their_cells() {
        let results = Results::parse([("t", "n,ns\n1,2.5\n2,1.5\n2,\n")]);
        let rows = results.table("t");
        assert_eq!(rows.find(&[("n", "2")]).unwrap().number("ns"), 1.5);
        assert_eq!(rows.values("n"), ["1", "2"]);
        assert!(
            rows.find(&[("n", "3")]).is_none() && rows.find(&[("n", "1")]).unwrap().number("us").is_nan()
        );
        let (low, high) = extremes(&rows.with(&[])[..2], "ns").unwrap();
        assert_eq!((low.text("n"), high.text("n")), ("2", "1"));
        assert_eq!(results.table("other").iter().count(), 0);
    }

    #[test]
    fn a_template_is_filled_with_spreads_counts_and_separators() {
        let results = Results::parse([(
            "t",
            "kind,n,ns,ns_min,ns_max,us\n\"a,b\",1,2500.5,2400.0,2600.0,-1234\n",
        )]);
        let rows = results.table("t");
        assert_eq!(
            rows.fill(
                &[("kind", "a,b")],
                "{kind}: {ns~} ns for {n:list}, {us} and {us~}"
            )
            .as_deref(),
            Some("a,b: 2,500.5 (2,400.0 to 2,600.0) ns for 1 list, -1,234 and -1,234 (spread unknown)")
        );
        assert_eq!(rows.fill(&[("n", "2")], "{n:list}"), None);
        assert_eq!(
            listed("Falls at {}.", ["a".into(), "b".into()]).as_deref(),
            Some("Falls at a; b.")
        );
        assert_eq!(listed("Falls at {}.", Vec::new()), None);
    }
}
