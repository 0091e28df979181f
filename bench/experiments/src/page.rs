//! The result of an experiment ([`Findings`]), and its output as a page (Markdown) and as tables (CSV).

use std::borrow::Cow;
use std::fmt::Write;

use super::settings::{Scale, Settings};
use crate::svg::{Axis, Plot, Point, Series, Style};

/// The result of an experiment, as its `run` returns it.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The method, in a paragraph.
    pub(super) method: String,
    pub(super) conditions: Vec<String>,
    /// Figures of hopwise beside those that the paper states.
    pub(super) comparisons: Vec<Comparison>,
    /// Differences and observations, from the experiment's `observe`.
    pub(super) remarks: Vec<String>,
    pub(super) tables: Vec<Table>,
}

/// A quantity with the paper's value and with hopwise's.
#[derive(Debug, PartialEq)]
pub(super) struct Comparison {
    pub(super) quantity: String,
    pub(super) paper: String,
    pub(super) hopwise: String,
}

/// Text of a comparison that has no rows.
const NOT_RUN: &str = "not run";

/// A result in words; `None` without rows becomes [`NOT_RUN`].
pub(super) trait Outcome {
    fn text(self) -> String;
}

impl Outcome for String {
    fn text(self) -> String {
        self
    }
}

impl Outcome for &str {
    fn text(self) -> String {
        self.to_owned()
    }
}

impl Outcome for Option<String> {
    fn text(self) -> String {
        self.unwrap_or_else(|| NOT_RUN.to_owned())
    }
}

impl Comparison {
    pub(super) fn new(quantity: impl Into<String>, paper: impl Into<String>, hopwise: impl Outcome) -> Self {
        Self {
            quantity: quantity.into(),
            paper: paper.into(),
            hopwise: hopwise.text(),
        }
    }

    /// Returns the comparison as a row of a Markdown table.
    pub(super) fn line(&self) -> String {
        format!("| {} | {} | {} |", self.quantity, self.paper, self.hopwise)
    }
}

/// A table, written to a separate CSV file, with its plots.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Part of the file names.
    pub(super) name: &'static str,
    /// Heading of the table.
    pub(super) about: String,
    /// Column names with units, such as `delay_ns`, separated by commas.
    pub(super) columns: Cow<'static, str>,
    pub(super) rows: Vec<Vec<Cell>>,
    pub(super) plots: Vec<Plot>,
}

/// Value of a cell.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Cell {
    Text(String),
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

    fn csv(&self) -> String {
        let plain = self.plain();
        if plain.contains(',') {
            format!("\"{plain}\"")
        } else {
            plain
        }
    }

    /// Returns the number in the cell, or `None` if it holds a text or nothing.
    fn number(&self) -> Option<f64> {
        match self {
            Self::Count(count) => Some(*count as f64),
            Self::Figure(figure, _) => Some(*figure),
            Self::Text(_) | Self::Empty => None,
        }
    }
}

/// Makes a cell that shows this many decimals.
pub(super) fn fixed(figure: f64, decimals: usize) -> Cell {
    Cell::Figure(figure, decimals)
}

/// A value that becomes one or more cells of a row; see [`row!`].
pub(super) trait Cells {
    fn add_to(self, row: &mut Vec<Cell>);
}

impl Cells for Cell {
    fn add_to(self, row: &mut Vec<Cell>) {
        row.push(self);
    }
}

impl Cells for Option<Cell> {
    fn add_to(self, row: &mut Vec<Cell>) {
        row.push(self.unwrap_or(Cell::Empty));
    }
}

impl<const N: usize> Cells for [Cell; N] {
    fn add_to(self, row: &mut Vec<Cell>) {
        row.extend(self);
    }
}

impl Cells for &str {
    fn add_to(self, row: &mut Vec<Cell>) {
        row.push(Cell::Text(self.to_owned()));
    }
}

macro_rules! counts {
    ($($count:ty)+) => {$(
        impl Cells for $count {
            fn add_to(self, row: &mut Vec<Cell>) {
                row.push(Cell::Count(self as u64));
            }
        }
    )+};
}

counts! { u8 u16 u32 u64 usize }

/// Makes a row of a table from counts, texts, cells, and arrays of cells.
macro_rules! row {
    ($($cells:expr),+ $(,)?) => {{
        let mut row = Vec::new();
        $($crate::page::Cells::add_to($cells, &mut row);)+
        row
    }};
}

pub(super) use row;

/// Mean of independent runs, its 95 % confidence interval (Student's t), and the smallest and largest run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Interval {
    pub(super) mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) smallest: f64,
    pub(super) largest: f64,
}

impl Interval {
    /// Computes the interval. With a single run, both ends are the mean.
    pub(super) fn of(runs: &[f64]) -> Self {
        /// 97.5 % quantiles of Student's t, by degrees of freedom from 1.
        const QUANTILES: [f64; 30] = [
            12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
            2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052,
            2.048, 2.045, 2.042,
        ];
        let count = runs.len().max(1) as f64;
        let mean = runs.iter().sum::<f64>() / count;
        let squares: f64 = runs.iter().map(|run| (run - mean).powi(2)).sum();
        // With more than 31 runs, the quantile for 30 degrees of freedom is used: slightly too wide.
        let quantile = QUANTILES
            .get(runs.len().saturating_sub(2))
            .copied()
            .unwrap_or(QUANTILES[29]);
        let half = if runs.len() > 1 {
            quantile * (squares / (count - 1.0) / count).sqrt()
        } else {
            0.0
        };
        let smallest = runs.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = runs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self {
            mean,
            low: mean - half,
            high: mean + half,
            smallest,
            largest,
        }
    }
}

/// Maximum number of rows on a page; the CSV file contains the full table.
const MAX_ROWS: usize = 60;

impl Table {
    pub(super) fn new(
        name: &'static str,
        about: impl Into<String>,
        columns: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            name,
            about: about.into(),
            columns: columns.into(),
            rows: Vec::new(),
            plots: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// Adds a plot; `axes` are x and y.
    pub(super) fn plot(
        &mut self,
        title: impl Into<String>,
        note: &str,
        axes: [Axis; 2],
        series: Vec<Series>,
    ) {
        let [x, y] = axes;
        self.plots.push(Plot {
            title: title.into(),
            note: note.to_owned(),
            x,
            y,
            series,
        });
    }

    /// Returns the cell of a column; `None` if there is no such column.
    fn cell<'a>(&self, row: &'a [Cell], column: &str) -> Option<&'a Cell> {
        let at = self.columns.split(',').position(|name| name == column)?;
        row.get(at)
    }

    fn number(&self, row: &[Cell], column: &str) -> Option<f64> {
        self.cell(row, column)?.number()
    }

    /// Returns the distinct texts of a column, in order of appearance.
    pub(super) fn texts(&self, column: &str) -> Vec<String> {
        let mut texts = Vec::new();
        for text in self
            .rows
            .iter()
            .filter_map(|row| self.cell(row, column))
            .map(Cell::plain)
        {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        texts
    }

    fn matches(&self, row: &[Cell], wanted: &[(&str, &str)]) -> bool {
        wanted
            .iter()
            .all(|(column, text)| self.cell(row, column).is_some_and(|cell| cell.plain() == *text))
    }

    /// Returns the number of a column in the first row whose cells have these texts; NaN if there is none.
    pub(super) fn value(&self, wanted: &[(&str, &str)], column: &str) -> f64 {
        let row = self.rows.iter().find(|row| self.matches(row, wanted));
        row.and_then(|row| self.number(row, column)).unwrap_or(f64::NAN)
    }

    /// Makes a point from the number of column `y`, with a spread if the table has columns `…_min` and `…_max`.
    fn point(&self, row: &[Cell], x: f64, y: &str) -> Option<Point> {
        let [min, max] = ["min", "max"].map(|end| self.number(row, &format!("{y}_{end}")));
        Some(Point {
            x,
            y: self.number(row, y)?,
            spread: min.zip(max),
        })
    }

    /// Makes a line through the numbers of two columns, from the rows whose cells have these texts.
    pub(super) fn line(&self, name: &str, wanted: &[(&str, &str)], x: &str, y: &str) -> Series {
        let rows = self.rows.iter().filter(|row| self.matches(row, wanted));
        Series {
            name: name.to_owned(),
            style: Style::Line,
            points: rows
                .filter_map(|row| self.point(row, self.number(row, x)?, y))
                .collect(),
        }
    }

    /// Returns a line for every text of the column `by`; `{}` in `name` is the text.
    pub(super) fn lines(&self, by: &str, name: &str, x: &str, y: &str) -> Vec<Series> {
        self.texts(by)
            .iter()
            .map(|text| self.line(&name.replace("{}", text), &[(by, text)], x, y))
            .collect()
    }

    /// Makes a series of bars in the order of the rows.
    pub(super) fn bars(&self, name: &str, y: &str) -> Series {
        Series {
            name: name.to_owned(),
            style: Style::Bars,
            points: (0_u32..)
                .zip(&self.rows)
                .filter_map(|(at, row)| self.point(row, at.into(), y))
                .collect(),
        }
    }

    /// Returns the table as CSV (RFC 4180). Cells must not contain quotes or line breaks.
    pub(super) fn csv(&self) -> String {
        let mut out = format!("{}\n", self.columns);
        for row in &self.rows {
            out += &row.iter().map(Cell::csv).collect::<Vec<_>>().join(",");
            out.push('\n');
        }
        out
    }

    fn markdown(&self, out: &mut String, experiment: &str) {
        let _ = writeln!(out, "\n## {}\n", self.about);
        for (at, plot) in self.plots.iter().enumerate() {
            let _ = writeln!(out, "![{}]({})\n", plot.title, plot_file(experiment, self, at));
        }
        let _ = writeln!(out, "| {} |", self.columns.replace(',', " | "));
        let _ = writeln!(out, "|{}", " --- |".repeat(self.columns.split(',').count()));
        for row in self.rows.iter().take(MAX_ROWS) {
            let _ = writeln!(
                out,
                "| {} |",
                row.iter().map(Cell::plain).collect::<Vec<_>>().join(" | ")
            );
        }
        let file = format!("{experiment}-{}.csv", self.name);
        let shown = self.rows.len().min(MAX_ROWS);
        let _ = writeln!(
            out,
            "\n{shown} of {} rows; full table: [{file}]({file})",
            self.rows.len()
        );
    }
}

/// Makes a linear axis. The label contains the quantity and, in brackets, the unit.
pub(super) fn linear(label: &str) -> Axis {
    match label.strip_suffix(')').and_then(|label| label.split_once(" (")) {
        Some((name, unit)) => Axis::new(name, unit),
        None => Axis::new(label, ""),
    }
}

pub(super) fn log(label: &str) -> Axis {
    linear(label).log()
}

/// Makes a series drawn as a line, for measurements of hopwise.
pub(super) fn line_series(name: &str, points: Vec<(f64, f64)>) -> Series {
    Series::new(name, Style::Line, points)
}

/// Makes a series drawn as marks, for published figures or a formula.
pub(super) fn mark_series(name: &str, points: Vec<(f64, f64)>) -> Series {
    Series::new(name, Style::Marks, points)
}

/// Returns the file name of a table's plot; plots are numbered if there are several.
pub(super) fn plot_file(experiment: &str, table: &Table, at: usize) -> String {
    let number = if table.plots.len() > 1 {
        format!("-{}", at + 1)
    } else {
        String::new()
    };
    format!("{experiment}-{}{number}.svg", table.name)
}

/// Makes an axis with names in place of numbers.
pub(super) fn named<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Axis {
    Axis {
        categories: names.into_iter().map(T::into).collect(),
        ..linear("")
    }
}

impl Findings {
    /// Creates findings without comparisons.
    pub(super) fn new(
        method: impl Into<String>,
        conditions: impl IntoIterator<Item = String>,
        tables: impl Into<Vec<Table>>,
    ) -> Self {
        Self {
            method: method.into(),
            conditions: conditions.into_iter().collect(),
            tables: tables.into(),
            ..Self::default()
        }
    }

    /// Renders the page as Markdown. `title` is the experiment's name, subject and paper.
    pub(super) fn markdown(&self, title: (&str, &str, &str), settings: &Settings, is_busy: bool) -> String {
        let (name, title, paper) = title;
        let options = settings.options();
        let mut out =
            format!("# {title}\n\nPaper: {paper}. Generated by `hopwise experiment {name}{options}`.\n");
        if settings.scale != Scale::Full {
            out += "\n**A quick run (`--quick`) with a tenth of the work. Do not quote its figures.**\n";
        }
        if is_busy {
            out +=
                "\n**Measured on a busy machine: see the load average below. Do not quote these figures.**\n";
        }
        let _ = writeln!(out, "\n{}", self.method);
        if !self.comparisons.is_empty() {
            out += "\n| | the paper | hopwise |\n| --- | --- | --- |\n";
            for comparison in &self.comparisons {
                let _ = writeln!(out, "{}", comparison.line());
            }
        }
        let title = if options.is_empty() {
            "Differences and observations"
        } else {
            // The remarks are written for the defaults.
            "Differences and observations, with the default parameters"
        };
        list(&mut out, title, &self.remarks);
        list(&mut out, "Conditions", &self.conditions);
        self.tables
            .iter()
            .for_each(|table| table.markdown(&mut out, name));
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
    fn an_interval_is_that_of_the_mean() {
        let runs: Vec<f64> = (0..20).map(f64::from).collect();
        let interval = Interval::of(&runs);
        assert_eq!(
            (interval.mean, interval.smallest, interval.largest),
            (9.5, 0.0, 19.0)
        );
        // Standard deviation 5.916, of the mean 1.323.
        assert!(
            (interval.high - 12.269).abs() < 0.001 && (interval.low - 6.731).abs() < 0.001,
            "{interval:?}"
        );
        // The interval of two runs is wide.
        let two = Interval::of(&[1.0, 2.0]);
        assert!((two.high - 7.853).abs() < 0.001, "{two:?}");
    }

    #[test]
    fn lines_and_bars_are_those_of_the_rows() {
        let mut table = Table::new("t", "Rows", "kind,n,ns,ns_min,ns_max,us");
        table.push(row![
            "a",
            1_u32,
            fixed(2.0, 0),
            fixed(1.0, 0),
            fixed(3.0, 0),
            None
        ]);
        table.push(row!["b", 1_u32, [const { Cell::Empty }; 3], fixed(0.5, 1)]);
        table.push(row!["a", 2_u32, fixed(4.0, 0), None, None, fixed(0.25, 1)]);
        let lines = table.lines("kind", "of {}", "n", "ns");
        let names: Vec<_> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["of a", "of b"]);
        let first = Point {
            x: 1.0,
            y: 2.0,
            spread: Some((1.0, 3.0)),
        };
        assert_eq!(lines[0].points, [first, (2.0, 4.0).into()]);
        assert_eq!(lines[1].points, []);
        assert_eq!(
            table.bars("", "us").points,
            [(1.0, 0.5).into(), (2.0, 0.25).into()]
        );
        let halved = Point {
            x: 1.0,
            y: -1.0,
            spread: Some((-1.5, -0.5)),
        };
        assert_eq!(lines[0].clone().map(|ns| -ns / 2.0).points[0], halved);
    }

    #[test]
    fn a_table_is_the_same_in_both_forms() {
        let mut table = Table::new("t", "Rows", "n,share,delay_ns");
        table.push(row![3_u32, fixed(0.5, 2), None]);
        table.push(row!["x,y", 1_u32, 2_u32]);
        assert_eq!(table.csv(), "n,share,delay_ns\n3,0.50,\n\"x,y\",1,2\n");
        let findings = Findings::new("So.", [], [table]);
        let page = findings.markdown(
            ("e", "Title", "A paper, 3.1"),
            &Settings::new(Scale::Full, &[]),
            false,
        );
        assert_eq!(
            page,
            "# Title\n\nPaper: A paper, 3.1. Generated by `hopwise experiment e`.\n\nSo.\n\n## Rows\n\n\
             | n | share | delay_ns |\n| --- | --- | --- |\n| 3 | 0.50 |  |\n| x,y | 1 | 2 |\n\n\
             2 of 2 rows; full table: [e-t.csv](e-t.csv)\n"
        );
    }
}
