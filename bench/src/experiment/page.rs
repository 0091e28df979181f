//! What an experiment found, and how it is written down.

use std::fmt::Write;

use super::Scale;
use crate::svg::{Axis, Plot, Series, Style};

/// What an experiment found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// What was done, in a paragraph.
    pub(super) method: String,
    /// Under what conditions.
    pub(super) conditions: Vec<String>,
    /// Figures that the paper has too.
    pub(super) beside: Vec<Beside>,
    /// Differences and observations.
    pub(super) remarks: Vec<String>,
    /// The tables with their plots.
    pub(super) sheets: Vec<Sheet>,
}

/// One figure of the paper and ours.
#[derive(Debug)]
pub(super) struct Beside {
    pub(super) what: String,
    pub(super) paper: String,
    pub(super) ours: String,
}

impl Beside {
    pub(super) fn new(what: impl Into<String>, paper: impl Into<String>, ours: impl Into<String>) -> Self {
        Self { what: what.into(), paper: paper.into(), ours: ours.into() }
    }
}

/// A table, a file of its own, with plots of it.
#[derive(Debug)]
pub(super) struct Sheet {
    /// Part of the files' names.
    pub(super) name: &'static str,
    /// What a row is.
    pub(super) about: String,
    /// Names with units, as `delay_ns`.
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Vec<Cell>>,
    pub(super) plots: Vec<Plot>,
}

/// What a cell holds.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Cell {
    /// A name.
    Text(String),
    /// A count.
    Count(u64),
    /// A figure with this many decimals.
    Figure(f64, usize),
    /// No value, such as the delay of a packet that never arrived.
    Empty,
}

impl Cell {
    fn plain(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Figure(figure, decimals) => format!("{figure:.decimals$}"),
            Self::Empty => String::new(),
        }
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Rows of a page; the whole table is in the CSV file.
const ROWS_SHOWN: usize = 60;

impl Sheet {
    /// The table as a file (RFC 4180; no cell needs quotes).
    pub(super) fn csv(&self) -> String {
        let mut out = self.columns.join(",") + "\n";
        for row in &self.rows {
            out += &row.iter().map(Cell::plain).collect::<Vec<_>>().join(",");
            out.push('\n');
        }
        out
    }

    fn markdown(&self, out: &mut String, experiment: &str) {
        let _ = writeln!(out, "\n## {}\n", self.about);
        for (at, plot) in self.plots.iter().enumerate() {
            let _ = writeln!(out, "![{}]({})\n", plot.title, plot_file(experiment, self, at));
        }
        let _ = writeln!(out, "| {} |", self.columns.join(" | "));
        let _ = writeln!(out, "|{}", " --- |".repeat(self.columns.len()));
        for row in self.rows.iter().take(ROWS_SHOWN) {
            let _ = writeln!(out, "| {} |", row.iter().map(Cell::plain).collect::<Vec<_>>().join(" | "));
        }
        let file = format!("{experiment}-{}.csv", self.name);
        let shown = self.rows.len().min(ROWS_SHOWN);
        let _ = writeln!(out, "\n{shown} of {} rows; all of them: [{file}]({file})", self.rows.len());
    }
}

/// An axis with equal steps; what it measures, with the unit in brackets.
pub(super) fn linear(label: &str) -> Axis {
    match label.strip_suffix(')').and_then(|label| label.split_once(" (")) {
        Some((name, unit)) => Axis::new(name, unit),
        None => Axis::new(label, ""),
    }
}

/// An axis with equal factors.
pub(super) fn log(label: &str) -> Axis {
    linear(label).log()
}

/// What we found.
pub(super) fn ours(name: &str, points: Vec<(f64, f64)>) -> Series {
    Series::new(name, Style::Line, points)
}

/// What somebody else published.
pub(super) fn theirs(name: &str, points: Vec<(f64, f64)>) -> Series {
    Series::new(name, Style::Marks, points)
}

/// The file of a sheet's plot.
pub(super) fn plot_file(experiment: &str, sheet: &Sheet, at: usize) -> String {
    let number = if sheet.plots.len() > 1 { format!("-{}", at + 1) } else { String::new() };
    format!("{experiment}-{}{number}.svg", sheet.name)
}

impl Findings {
    /// The page.
    pub(super) fn markdown(&self, (name, title, paper): (&str, &str, &str), scale: Scale) -> String {
        let mut out = format!("# {title}\n\nPaper: {paper}. Made by `hopwise experiment {name}`.\n");
        if scale == Scale::Quick {
            out += "\n**A quick run (`--quick`) with a tenth of the work. Do not quote its figures.**\n";
        }
        let _ = writeln!(out, "\n{}", self.method);
        if !self.beside.is_empty() {
            out += "\n| | the paper | hopwise |\n| --- | --- | --- |\n";
            for Beside { what, paper, ours } in &self.beside {
                let _ = writeln!(out, "| {what} | {paper} | {ours} |");
            }
        }
        list(&mut out, "Differences and observations", &self.remarks);
        list(&mut out, "Conditions", &self.conditions);
        self.sheets.iter().for_each(|sheet| sheet.markdown(&mut out, name));
        out
    }
}

fn list(out: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n## {title}\n");
    for item in items {
        let _ = writeln!(out, "- {item}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_the_same_in_both_forms() {
        let sheet = Sheet {
            name: "t",
            about: "Rows".into(),
            columns: vec!["n", "share", "delay_ns"],
            rows: vec![
                vec![3.into(), Cell::Figure(0.5, 2), Cell::Empty],
                vec!["x".into(), 1.into(), 2.into()],
            ],
            plots: Vec::new(),
        };
        assert_eq!(sheet.csv(), "n,share,delay_ns\n3,0.50,\nx,1,2\n");
        let findings = Findings { method: "So.".into(), sheets: vec![sheet], ..Findings::default() };
        let page = findings.markdown(("e", "Title", "A paper, 3.1"), Scale::Full);
        assert_eq!(
            page,
            "# Title\n\nPaper: A paper, 3.1. Made by `hopwise experiment e`.\n\nSo.\n\n## Rows\n\n\
             | n | share | delay_ns |\n| --- | --- | --- |\n| 3 | 0.50 |  |\n| x | 1 | 2 |\n\n\
             2 of 2 rows; all of them: [e-t.csv](e-t.csv)\n"
        );
    }
}
