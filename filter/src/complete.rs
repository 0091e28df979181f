//! What can follow a text.

use crate::field::{Field, Form, Operator, View};
use crate::lexer::Scanner;

/// A text that can stand from a byte of the filter on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The first byte that it replaces; up to the end of the text.
    pub from: usize,
    /// What to write.
    pub text: String,
    /// What it is, in a line.
    pub about: String,
}

/// What can follow `text`: it ends where the cursor is. `names` are those of nodes.
pub fn complete(text: &str, view: View, names: &[&str]) -> Vec<Completion> {
    if text.len() > MOST {
        return Vec::new();
    }
    let mut scanner = Scanner::new(text);
    let mut place = Place::Test;
    loop {
        let at = scanner.at();
        let next = match place {
            Place::Test => after_test(&mut scanner, view),
            Place::Operator(field) => scanner.operator().map(|operator| Place::Value(field, operator)),
            Place::Value(field, operator) => after_value(&mut scanner, field, operator),
            Place::End => after_end(&mut scanner),
        };
        // A word that ends at the cursor may not be complete.
        let is_partial = scanner.rest().is_empty() && !text.ends_with([' ', '(', ')']) && at < scanner.at();
        match next {
            Some(next) if !is_partial => place = next,
            _ => return proposals(text, at, place, (view, names)),
        }
    }
}

/// What is expected.
#[derive(Clone, Copy)]
enum Place {
    Test,
    Operator(Field),
    Value(Field, Operator),
    /// `and`, `or`, or nothing.
    End,
}

fn after_test(scanner: &mut Scanner<'_>, view: View) -> Option<Place> {
    if scanner.is_at_end() {
        return None;
    }
    if scanner.symbol("(") || scanner.word("not") {
        return Some(Place::Test);
    }
    let name = scanner.name();
    if let Some(field) = Field::from_name(name, view) {
        scanner.skip(name.len());
        return Some(Place::Operator(field));
    }
    scanner.value().ok().map(|_| Place::End)
}

fn after_value(scanner: &mut Scanner<'_>, field: Field, operator: Operator) -> Option<Place> {
    if scanner.is_at_end() {
        return None;
    }
    if operator == Operator::In && (scanner.symbol("(") || scanner.symbol(",")) {
        return Some(Place::Value(field, operator));
    }
    scanner.value().ok()?;
    Some(if scanner.symbol(",") {
        Place::Value(field, operator)
    } else {
        Place::End
    })
}

fn after_end(scanner: &mut Scanner<'_>) -> Option<Place> {
    if scanner.is_at_end() {
        return None;
    }
    if scanner.symbol(")") {
        return Some(Place::End);
    }
    (scanner.word("and") || scanner.word("or")).then_some(Place::Test)
}

fn proposals(text: &str, at: usize, place: Place, (view, names): (View, &[&str])) -> Vec<Completion> {
    let rest = &text[at..];
    let mut from = at + rest.len() - rest.trim_start().len();
    let mut found = Vec::new();
    if let Place::Value(Field::Path, _) = place {
        // The last node of a pattern.
        from = text.rfind('>').map_or(from, |arrow| from.max(arrow + 1));
    }
    let begun = text[from..].to_owned();
    let mut offer = |text: String, about: &str| {
        if text.starts_with(&begun) && text != begun && found.len() < MOST_PROPOSALS {
            found.push(Completion {
                from,
                text,
                about: about.to_owned(),
            });
        }
    };
    match place {
        Place::Test => {
            let fields = Field::ALL.into_iter().filter(|field| field.is_of(view));
            fields.for_each(|field| offer(field.name().to_owned(), field.about(view)));
            offer("not ".to_owned(), "the opposite of what follows");
        }
        Place::Operator(field) => {
            field
                .operators()
                .iter()
                .for_each(|operator| offer(format!("{} ", operator.text()), about(*operator)));
        }
        Place::Value(field, _) => match field.form() {
            Form::Word(words) => words.iter().for_each(|word| offer((*word).to_owned(), "")),
            Form::Proto => ["tcp", "udp", "icmp", "icmpv6", "sctp"]
                .iter()
                .for_each(|name| offer((*name).to_owned(), "")),
            Form::Node => names.iter().for_each(|name| offer(quoted(name), "node")),
            Form::Path => names
                .iter()
                .filter(|name| is_plain(name))
                .for_each(|name| offer((*name).to_owned(), "node")),
            _ => {}
        },
        Place::End => {
            offer("and ".to_owned(), "both");
            offer("or ".to_owned(), "one of both");
        }
    }
    found
}

fn about(operator: Operator) -> &'static str {
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

/// Bytes of a text that is completed.
const MOST: usize = 4_096;
const MOST_PROPOSALS: usize = 50;
