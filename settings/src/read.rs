//! Reads a configuration file into checked settings. Each problem is reported with line, column, caret and remedy.

use std::{
    collections::BTreeSet,
    fmt,
    fs::{self, File},
    io::{self, Read},
    ops::Range,
    os::unix::fs::FileTypeExt as _,
    path::Path,
};

use detect::rule::names::distance;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::quote;
pub use crate::tree::{Node, Value};

/// The maximum length of a file, in bytes.
const MAX_FILE: u64 = 4 << 20;
/// Maximum number of characters of a line that are shown before a problem.
const MAX_CONTEXT_CHARS: usize = 60;
/// Maximum number of characters that are shown of the problem itself.
const MAX_PROBLEM_CHARS: usize = 100;

/// All problems of a configuration file. `Display` formats the message for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: String,
    problems: Vec<Problem>,
}

/// One problem and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    line: usize,
    column: usize,
    width: usize,
    source: String,
    message: String,
}

/// A table of the file: its heading, such as `[api]`, and its keys.
#[derive(Clone, Debug)]
pub struct Table {
    /// The heading in the file.
    pub heading: String,
    /// The names of the keys.
    pub keys: Vec<&'static str>,
}

/// Returns the words in the headings and keys of `tables`.
fn known_words(tables: &[Table]) -> BTreeSet<String> {
    let headings = tables
        .iter()
        .flat_map(|table| table.heading.split(['[', ']', '.']));
    let keys = tables.iter().flat_map(|table| table.keys.iter().copied());
    let all = headings.chain(keys).filter(|name| !name.is_empty());
    all.map(str::to_owned).collect()
}

/// Collects problems while the settings read themselves from the parsed file.
#[derive(Debug)]
pub struct Reader<'i> {
    text: &'i str,
    problems: Vec<(Range<usize>, String)>,
    /// The tables that the file may have, to suggest where a misplaced key belongs.
    tables: fn() -> Vec<Table>,
    /// Positions in tables with unreadable values. Further problems there may be consequences and are not reported.
    unreadable_tables: Vec<Range<usize>>,
    /// Positions of values that are or may be secrets; messages do not quote them.
    hidden: Vec<Range<usize>>,
    /// Set if the text is not TOML, so the positions of values are unknown: the only words that messages may quote.
    quotable: Option<BTreeSet<String>>,
}

/// Reads the text of a file of settings.
///
/// # Errors
/// The file cannot be read, is not UTF-8, or exceeds the limit, which also stops endless reads from a device.
pub fn file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        let message = format!("it is longer than {} MiB", MAX_FILE >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

/// Opens a file that a setting names.
///
/// # Errors
/// The file cannot be read, or is a socket or a FIFO, whose opening blocks until a program writes to it. A pipe of the shell,
/// `<(command)`, is accepted.
pub fn open(path: &Path) -> io::Result<File> {
    let kind = fs::metadata(path)?.file_type();
    let is_shell_pipe = ["/dev/fd", "/dev/stdin", "/proc/self/fd"]
        .iter()
        .any(|pipes| path.starts_with(pipes));
    if kind.is_socket() || kind.is_fifo() && !is_shell_pipe {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a FIFO or a socket, not a file",
        ));
    }
    File::open(path)
}

impl<'i> Reader<'i> {
    /// Creates a reader; `text` is the text to which the spans of nodes refer.
    pub fn new(text: &'i str) -> Self {
        Self {
            text,
            problems: Vec::new(),
            unreadable_tables: Vec::new(),
            hidden: Vec::new(),
            quotable: None,
            tables: Vec::new,
        }
    }

    /// Sets the tables that are suggested for misplaced keys.
    #[must_use]
    pub fn with_tables(mut self, tables: fn() -> Vec<Table>) -> Self {
        self.tables = tables;
        self
    }

    /// Parses the file. Returns `None` after a syntax error, which is then the only problem. Its message quotes only words that
    /// occur in `tables`, because the positions of secrets are unknown then.
    pub fn parse(&mut self, tables: fn() -> Vec<Table>) -> Option<Node<'i>> {
        self.tables = tables;
        match DeTable::parse(self.text) {
            Ok(table) => {
                let span = table.span();
                Some(Spanned::new(span, DeValue::Table(table.into_inner()).into()))
            }
            Err(error) => {
                let message = format!(
                    "this is not TOML: {}; see https://toml.io",
                    error.message().trim_end()
                );
                self.quotable = Some(known_words(&tables()));
                self.refuse(error.span().unwrap_or(0..0), message);
                None
            }
        }
    }

    /// Marks the end of reading values. From now on, problems in tables with unreadable values are suppressed: a key that was
    /// written and refused is not missing.
    pub fn end_values(&mut self, root: &Node<'_>) {
        let mut spans = Vec::new();
        collect_unreadable(root, &self.problems, &mut spans);
        // The root contains every problem and must not suppress all.
        spans.retain(|span| *span != root.span());
        self.unreadable_tables = spans;
    }

    /// Records a problem at bytes `span` of the file.
    pub fn refuse(&mut self, span: Range<usize>, message: impl Into<String>) {
        let is_consequence = self.unreadable_tables.iter().any(|table| is_inside(&span, table));
        if !is_consequence {
            self.problems.push((span, message.into()));
        }
    }

    /// Records that `node` has the wrong type; `what` is the expected one.
    pub fn expected(&mut self, node: &Node<'_>, what: &str) {
        let found = match node.get_ref() {
            Value::String(text) => format!("the text {text:?}"),
            Value::Integer(number) => format!("the number {}", number.as_str()),
            Value::Float(number) => format!("the number {}", number.as_str()),
            Value::Boolean(value) => format!("{value}"),
            _ => type_of(node).to_owned(),
        };
        // It was not read, so any value in it may be a secret.
        if matches!(node.get_ref(), Value::Array(_) | Value::Table(_)) {
            self.hide(node);
        }
        self.refuse(node.span(), format!("found {found}; write {what}"));
    }

    /// Like [`Reader::expected`], but without quoting the value, which is or contains a secret.
    pub fn expected_secret(&mut self, node: &Node<'_>, what: &str) {
        self.hide(node);
        self.refuse(node.span(), format!("found {}; write {what}", type_of(node)));
    }

    /// Excludes a value, and every key and value in it, from all messages.
    pub fn hide(&mut self, node: &Node<'_>) {
        match node.get_ref() {
            Value::Array(list) => list.iter().for_each(|element| self.hide(element)),
            Value::Table(table) => {
                for (key, value) in table {
                    self.hidden.push(key.span());
                    self.hide(value);
                }
            }
            _ => self.hidden.push(node.span()),
        }
    }

    /// Records an unknown key, with the nearest of the `known` ones. Its value is not quoted: the key may be the misspelt name
    /// of a secret.
    pub fn unknown(&mut self, span: Range<usize>, key: &str, value: &Node<'_>, place: &str, known: &[&str]) {
        self.hide(value);
        let advice = match nearest(key, known) {
            Some(name) => format!("did you mean `{name}`?"),
            None => match (self.tables)()
                .into_iter()
                .find(|table| table.keys.contains(&key))
            {
                Some(table) => format!("{} has one; move it there, or remove it", table.heading),
                None => format!("remove it, or use one of: {}", known.join(", ")),
            },
        };
        self.refuse(span, format!("there is no key `{key}` in {place}; {advice}"));
    }

    /// Returns the messages of the problems so far.
    pub fn messages(&self) -> Vec<String> {
        self.problems
            .iter()
            .map(|(_, message)| quote::redact_url_secrets(message))
            .collect()
    }

    /// Returns the messages of the problems so far, each with the path of keys from `root` to the value concerned.
    pub fn messages_by_key(&self, root: &Node<'_>) -> Vec<(Vec<String>, String)> {
        self.problems
            .iter()
            .map(|(span, message)| (keys_of(root, span), quote::redact_url_secrets(message)))
            .collect()
    }

    /// Returns true if there are no problems so far.
    pub fn has_no_problems(&self) -> bool {
        self.problems.is_empty()
    }

    /// Finishes reading. Returns the problems, if any, in file order.
    pub fn finish(mut self, file: &str) -> Result<(), ConfigError> {
        if self.problems.is_empty() {
            return Ok(());
        }
        self.problems.sort_by_key(|(span, _)| span.start);
        let problems = self
            .problems
            .iter()
            .map(|(span, message)| self.locate(span, message))
            .collect();
        Err(ConfigError {
            file: file.to_owned(),
            problems,
        })
    }
}

/// Adds the spans of each table below `node` that directly has a problem: the table itself, its keys and its plain values.
fn collect_unreadable(node: &Node<'_>, problems: &[(Range<usize>, String)], spans: &mut Vec<Range<usize>>) {
    let Value::Table(entries) = node.get_ref() else {
        return;
    };
    let mut values = Vec::new();
    let mut tables = Vec::new();
    let mut keys = Vec::new();
    for (key, value) in entries {
        match value.get_ref() {
            Value::Table(_) => tables.push(value),
            Value::Array(list) if list.iter().any(is_table) => tables.extend(list.iter()),
            _ => values.push(value.span()),
        }
        keys.push(key.span());
    }
    let has_problem = problems.iter().any(|(problem, _)| {
        // Problems inside a nested table do not count here.
        values.iter().chain(&keys).any(|span| is_inside(problem, span))
            || tables.iter().any(|table| *problem == table.span())
    });
    if has_problem {
        spans.extend(values.into_iter().chain(keys));
        spans.push(node.span());
    }
    tables
        .into_iter()
        .for_each(|table| collect_unreadable(table, problems, spans));
}

fn is_table(node: &Node<'_>) -> bool {
    matches!(node.get_ref(), Value::Table(_))
}

fn is_inside(inner: &Range<usize>, outer: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

impl Reader<'_> {
    /// Converts a byte range of the file to line, column and the redacted source line.
    fn locate(&self, span: &Range<usize>, message: &str) -> Problem {
        let text = self.text;
        let start = span.start.min(text.len());
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let source = text[line_start..].lines().next().unwrap_or("");
        let end = span
            .end
            .clamp(start, line_start + source.len().max(start - line_start));
        let quoted = match &self.quotable {
            Some(names) => quote::redact_unknown_words(source, |word| names.contains(word)),
            None => quote::redact_ranges(source, line_start, &self.hidden),
        };
        Problem {
            line: before.matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            width: text[start..end].chars().count().max(1),
            source: quote::redact_url_secrets(&quoted),
            message: quote::redact_url_secrets(message),
        }
    }
}

/// Returns the type of a value, in words.
fn type_of(node: &Node<'_>) -> &'static str {
    match node.get_ref() {
        Value::String(_) => "a text",
        Value::Integer(_) | Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}

/// Returns the span of the value at `path`, or of its nearest existing ancestor. List elements are named by their index in
/// digits.
pub fn span_of(root: &Node<'_>, path: &[&str]) -> Range<usize> {
    walk(root, path).0.span()
}

/// Returns the value at `path`, or its nearest existing ancestor, like [`span_of`].
pub fn node_at<'n, 'i>(root: &'n Node<'i>, path: &[&str]) -> &'n Node<'i> {
    walk(root, path).0
}

/// Returns the keys that lead to the value at `span`, skipping list indexes.
fn keys_of(root: &Node<'_>, span: &Range<usize>) -> Vec<String> {
    let mut node = root;
    let mut keys = Vec::new();
    loop {
        let child = match node.get_ref() {
            Value::Table(table) => table.iter().find(|(_, child)| is_inside(span, &child.span())),
            Value::Array(list) => match list.iter().find(|child| is_inside(span, &child.span())) {
                Some(child) => {
                    node = child;
                    continue;
                }
                None => None,
            },
            _ => None,
        };
        let Some((key, child)) = child else { return keys };
        keys.push(key.get_ref().to_string());
        node = child;
    }
}

/// Returns true if there is a value at `path`, valid or not.
pub fn is_written(root: &Node<'_>, path: &[&str]) -> bool {
    walk(root, path).1 == path.len()
}

/// Returns the last existing value along `path`, and the number of steps to it.
fn walk<'n, 'i>(root: &'n Node<'i>, path: &[&str]) -> (&'n Node<'i>, usize) {
    let mut node = root;
    for (depth, step) in path.iter().enumerate() {
        let child = match node.get_ref() {
            Value::Table(_) => node.get_ref().get(step),
            Value::Array(list) => step.parse().ok().and_then(|index: usize| list.get(index)),
            _ => None,
        };
        match child {
            Some(found) => node = found,
            None => return (node, depth),
        }
    }
    (node, path.len())
}

/// Returns the name nearest to `key`, if they differ by at most two letters or a third of the length of
/// `key`.
pub fn nearest<'n>(key: &str, names: &[&'n str]) -> Option<&'n str> {
    let bound = (key.chars().count() / 3).max(2);
    names
        .iter()
        .map(|name| (distance(key, name), *name))
        .filter(|(d, _)| *d <= bound)
        .min()
        .map(|(_, name)| name)
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            let separator = if i == 0 { "" } else { "\n" };
            let Problem {
                line,
                column,
                width,
                source,
                message,
            } = problem;
            let margin = line.to_string().len();
            writeln!(f, "{separator}{}:{line}:{column}: {message}", self.file)?;
            writeln!(f, "{:margin$} |", "")?;
            // Show only the surroundings of the problem in a very long line.
            let skipped = if source.chars().count() > MAX_CONTEXT_CHARS + MAX_PROBLEM_CHARS {
                (column - 1).saturating_sub(MAX_CONTEXT_CHARS)
            } else {
                0
            };
            let part: String = source
                .chars()
                .skip(skipped)
                .take(MAX_CONTEXT_CHARS + MAX_PROBLEM_CHARS)
                .collect();
            let indent = column - 1 - skipped;
            let width = (*width).min(MAX_PROBLEM_CHARS);
            writeln!(f, "{line} | {part}")?;
            write!(f, "{:margin$} | {:indent$}{}", "", "", "^".repeat(width))?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = file(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.to_string(), "it is longer than 4 MiB");
    }

    #[test]
    fn suggestions_differ_by_at_most_a_few_letters() {
        let names = ["listen", "workers", "max_flows"];
        assert_eq!(nearest("listne", &names), Some("listen"));
        assert_eq!(nearest("max_flow", &names), Some("max_flows"));
        assert_eq!(nearest("colour", &names), None);
    }

    #[test]
    fn long_lines_are_cut_around_the_problem() {
        let text = format!("when = \"{}?{}\"", "a".repeat(100_000), "b".repeat(100_000));
        let shown = |span| {
            let problems = vec![Reader::new(&text).locate(&span, "no")];
            ConfigError {
                file: "h.toml".to_owned(),
                problems,
            }
            .to_string()
        };
        let before = "a".repeat(60);
        let after = "b".repeat(99);
        assert_eq!(
            shown(100_008..100_009),
            format!("h.toml:1:100009: no\n  |\n1 | {before}?{after}\n  | {:60}^", "")
        );
        let start = format!("when = \"{}", "a".repeat(152));
        assert_eq!(
            shown(7..text.len()),
            format!(
                "h.toml:1:8: no\n  |\n1 | {start}\n  | {:7}{}",
                "",
                "^".repeat(100)
            )
        );
    }

    #[test]
    fn a_span_over_several_lines_underlines_the_first() {
        let problem = Reader::new("a = 1\nb = [1,\n 2]\n").locate(&(10..16), "no");
        assert_eq!((problem.line, problem.column, problem.width), (2, 5, 3));
    }
}
