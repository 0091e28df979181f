//! Completion for filters in the web UI and the commands: proposes the fields, operators and values that can follow at the
//! cursor.

use crate::field::{Field, Form, Operator, View};
use crate::lexer::Scanner;

/// Maximum length of a text to complete, bytes.
const MOST: usize = 4_096;
const MAX_PROPOSALS: usize = 50;

/// A proposal that replaces the end of the filter's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Byte offset from which the text is replaced, up to its end.
    pub from: usize,
    /// Text that replaces these bytes.
    pub text: String,
    /// Description of the proposal in one line.
    pub about: String,
}

/// Returns proposals for the text before the cursor. `nodes` and `reasons` are the known names of nodes and
/// of drop reasons.
pub fn complete(text: &str, view: View, nodes: &[&str], reasons: &[&str]) -> Vec<Completion> {
    if text.len() > MOST {
        return Vec::new();
    }
    let mut scanner = Scanner::new(text);
    let mut expected = Expected::Test;
    loop {
        let start = scanner.offset();
        let next = match expected {
            Expected::Test => after_test(&mut scanner, view),
            Expected::Operator(field) => scanner
                .read_operator()
                .map(|operator| Expected::Value(field, operator)),
            Expected::Value(field, operator) => after_value(&mut scanner, field, operator),
            Expected::End => after_end(&mut scanner),
        };
        // A word that ends at the cursor may be incomplete, so it is completed rather than skipped.
        let is_partial =
            scanner.rest().is_empty() && !text.ends_with([' ', '(', ')']) && start < scanner.offset();
        match next {
            Some(next) if !is_partial => expected = next,
            _ => return proposals(text, start, expected, view, (nodes, reasons)),
        }
    }
}

/// The known names of nodes and of drop reasons.
type KnownNames<'a> = (&'a [&'a str], &'a [&'a str]);

/// The part of a filter that is expected next.
#[derive(Clone, Copy)]
enum Expected {
    Test,
    Operator(Field),
    Value(Field, Operator),
    /// `and`, `or`, or nothing.
    End,
}

fn after_test(scanner: &mut Scanner<'_>, view: View) -> Option<Expected> {
    if scanner.is_at_end() {
        return None;
    }
    if scanner.skip_symbol("(") || scanner.skip_word("not") {
        return Some(Expected::Test);
    }
    let name = scanner.peek_name();
    if let Some(field) = Field::from_name(name, view) {
        scanner.skip(name.len());
        return Some(Expected::Operator(field));
    }
    scanner.read_value().ok().map(|_| Expected::End)
}

fn after_value(scanner: &mut Scanner<'_>, field: Field, operator: Operator) -> Option<Expected> {
    if scanner.is_at_end() {
        return None;
    }
    if operator == Operator::In && (scanner.skip_symbol("(") || scanner.skip_symbol(",")) {
        return Some(Expected::Value(field, operator));
    }
    scanner.read_value().ok()?;
    Some(if scanner.skip_symbol(",") {
        Expected::Value(field, operator)
    } else {
        Expected::End
    })
}

fn after_end(scanner: &mut Scanner<'_>) -> Option<Expected> {
    if scanner.is_at_end() {
        return None;
    }
    if scanner.skip_symbol(")") {
        return Some(Expected::End);
    }
    (scanner.skip_word("and") || scanner.skip_word("or")).then_some(Expected::Test)
}

fn proposals(
    text: &str,
    at: usize,
    expected: Expected,
    view: View,
    names: KnownNames<'_>,
) -> Vec<Completion> {
    let rest = &text[at..];
    let mut from = at + rest.len() - rest.trim_start().len();
    if let Expected::Value(Field::Path, _) = expected {
        // In a path pattern, complete the last node.
        from = text.rfind('>').map_or(from, |arrow| from.max(arrow + 1));
    }
    let begun = &text[from..];
    words(expected, view, names)
        .into_iter()
        .filter(|(word, _)| word.starts_with(begun) && word != begun)
        .take(MAX_PROPOSALS)
        .map(|(text, about)| Completion {
            from,
            text,
            about: about.to_owned(),
        })
        .collect()
}

/// Returns the words that are possible here, each with a description.
fn words(expected: Expected, view: View, (nodes, reasons): KnownNames<'_>) -> Vec<(String, &'static str)> {
    match expected {
        Expected::Test => Field::ALL
            .into_iter()
            .filter(|field| field.is_of(view))
            .map(|field| (field.name().to_owned(), field.about(view)))
            .chain([("not ".to_owned(), "the opposite of what follows")])
            .collect(),
        Expected::Operator(field) => field
            .operators()
            .iter()
            .map(|operator| (format!("{} ", operator.text()), describe(*operator)))
            .collect(),
        Expected::Value(field, _) => match field.form() {
            Form::Word(words) => words.iter().map(|word| ((*word).to_owned(), "")).collect(),
            Form::Proto => ["tcp", "udp", "icmp", "icmpv6", "sctp"]
                .map(|name| (name.to_owned(), ""))
                .to_vec(),
            Form::Reason => reasons.iter().map(|name| (quoted(name), "drop reason")).collect(),
            Form::Node => nodes.iter().map(|name| (quoted(name), "node")).collect(),
            Form::Path => nodes
                .iter()
                .filter(|name| is_plain(name))
                .map(|name| ((*name).to_owned(), "node"))
                .collect(),
            _ => Vec::new(),
        },
        Expected::End => vec![("and ".to_owned(), "both"), ("or ".to_owned(), "one of both")],
    }
}

fn describe(operator: Operator) -> &'static str {
    match operator {
        Operator::Equal => "is",
        Operator::Unequal => "is not",
        Operator::Less => "less than",
        Operator::AtMost => "at most",
        Operator::Greater => "more than",
        Operator::AtLeast => "at least",
        Operator::In => "one of: in (a, b)",
        Operator::Contains => "contains",
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && !name.contains(|c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')' | '"' | '>'))
}

fn quoted(name: &str) -> String {
    if is_plain(name) {
        name.to_owned()
    } else {
        format!("\"{name}\"")
    }
}
