//! The recursive-descent parser of the filter language: text in, an [`Expression`] or the first [`Fault`] out. Depth, tests
//! and values are bounded.

use detect::{Prefix, rule::names::distance};

use crate::fault::Fault;
use crate::field::{Field, Form, Operator, View};
use crate::lexer::{Piece, Scanner};
use crate::names::Names;
use crate::path::{MAX_STEPS, Pattern, Step};
use crate::test::{Expression, Test};

/// Units of time, ns. A number without a unit is in ns.
const TIMES: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("", 1),
];
const COUNTS: &[(&str, u64)] = &[
    ("", 1),
    ("k", 1_000),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
];
const PROTOCOLS: [(&str, u64); 5] = [
    ("icmp", 1),
    ("tcp", 6),
    ("udp", 17),
    ("icmpv6", 58),
    ("sctp", 132),
];
/// Maximum length of a filter, bytes.
const LONGEST: usize = 4_096;
/// Maximum number of tests and values in a filter.
const MAX_TESTS: usize = 256;
/// Maximum nesting of parentheses and `not`.
const DEEPEST: usize = 32;

/// Parses a filter of `view`; `names` resolves the names of nodes and drop reasons. An empty filter matches everything.
pub(crate) fn parse(text: &str, view: View, names: &dyn Names) -> Result<Expression, Fault> {
    if text.len() > LONGEST {
        let at = text.floor_char_boundary(LONGEST);
        return Err(Fault::new(at, 0, format!("a filter has up to {LONGEST} bytes")));
    }
    let mut scanner = Scanner::new(text);
    if scanner.is_at_end() {
        return Ok(Expression::And(Vec::new()));
    }
    if let Some(word) = only_word(text) {
        return Ok(search(word));
    }
    let mut parser = Parser {
        scanner,
        view,
        names,
        tests: 0,
    };
    let root = parser.parse_or(0)?;
    if !parser.scanner.is_at_end() {
        return Err(parser.expected("write `and` or `or` between two tests"));
    }
    Ok(root)
}

/// Returns the word to search for if `text` is a single word rather than a comparison.
fn only_word(text: &str) -> Option<&str> {
    let mut scanner = Scanner::new(text);
    let piece = scanner.value().ok()?;
    let has_operator = Operator::ALL.into_iter().any(|operator| {
        operator != Operator::In && operator != Operator::Greater && piece.text.contains(operator.text())
    });
    // In the text of a flow, `>` separates source and destination.
    let is_flow = piece.text.starts_with(|c: char| c.is_ascii_digit() || c == '[');
    let compares = has_operator || (piece.text.contains('>') && !is_flow);
    (scanner.is_at_end() && (piece.is_quoted || !compares)).then_some(piece.text)
}

/// Returns the test that searches for `text` in the flow's text.
fn search(text: &str) -> Expression {
    Expression::Test(Test::Contains(Field::Flow, text.to_owned()))
}

struct Parser<'a> {
    scanner: Scanner<'a>,
    view: View,
    names: &'a dyn Names,
    tests: usize,
}

impl<'a> Parser<'a> {
    fn parse_or(&mut self, depth: usize) -> Result<Expression, Fault> {
        let mut parts = vec![self.parse_and(depth)?];
        while self.scanner.word("or") {
            parts.push(self.parse_and(depth)?);
        }
        Ok(combine(parts, Expression::Or))
    }

    fn parse_and(&mut self, depth: usize) -> Result<Expression, Fault> {
        let mut parts = vec![self.negated(depth)?];
        while self.scanner.word("and") {
            parts.push(self.negated(depth)?);
        }
        Ok(combine(parts, Expression::And))
    }

    /// Parses `not`, a parenthesis or a test. `depth` is the current nesting, which bounds the recursion.
    fn negated(&mut self, depth: usize) -> Result<Expression, Fault> {
        if depth >= DEEPEST {
            return Err(self.here(0, format!("parentheses and `not` go up to {DEEPEST} deep")));
        }
        if self.scanner.word("not") {
            return Ok(Expression::Not(Box::new(self.negated(depth + 1)?)));
        }
        if self.scanner.symbol("(") {
            let inner = self.parse_or(depth + 1)?;
            if !self.scanner.symbol(")") {
                return Err(self.expected("close the parenthesis with `)`"));
            }
            return Ok(inner);
        }
        self.test()
    }

    /// Parses a test: a field, an operator and its values.
    fn test(&mut self) -> Result<Expression, Fault> {
        self.tests += 1;
        if self.tests > MAX_TESTS {
            return Err(self.here(0, format!("a filter has up to {MAX_TESTS} tests and values")));
        }
        let name = self.scanner.name();
        let at = self.scanner.at();
        let length = name.len();
        if matches!(name, "and" | "or" | "in") {
            let message = format!("before `{name}`, a test is missing, such as src in 10.0.0.0/8");
            return Err(Fault::new(at, length, message));
        }
        if name.is_empty() {
            return self.flow_text();
        }
        let Some(field) = Field::from_name(name, self.view) else {
            return Err(Fault::new(at, length, self.unknown(name)));
        };
        self.scanner.skip(length);
        let Some(operator) = self.scanner.operator() else {
            let written = field.operators().first().map_or("==", |operator| operator.text());
            return Err(self.expected(&format!(
                "after {name}, write an operator, such as {name} {written} …"
            )));
        };
        if !field.operators().contains(&operator) {
            let known: Vec<&str> = field.operators().iter().map(|operator| operator.text()).collect();
            let at = self.scanner.at() - operator.text().len();
            let message = format!("{name} is compared by {}", known.join(" "));
            return Err(Fault::new(at, operator.text().len(), message));
        }
        let values = self.values(operator)?;
        self.meaning(field, operator, &values)
    }

    /// Parses a value without a field, to be searched in the text of the flow.
    fn flow_text(&mut self) -> Result<Expression, Fault> {
        let at = self.scanner.at();
        let Ok(piece) = self.scanner.value() else {
            return Err(self.expected("write a test here, such as src in 10.0.0.0/8"));
        };
        let is_part = piece
            .text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "[]:./>-".contains(c));
        if !piece.is_quoted && !is_part {
            let message = format!(
                "{:?} is not a test; write a field, an operator and a value",
                piece.text
            );
            return Err(Fault::new(at, piece.length(), message));
        }
        Ok(search(piece.text))
    }

    /// Returns the error message for an unknown field name.
    fn unknown(&self, name: &str) -> String {
        let view = self.view.name();
        if Field::ALL.into_iter().any(|field| field.name() == name) {
            let other = if self.view == View::Flows {
                "events"
            } else {
                "flows"
            };
            return format!("{name} is a field of {other}, not of {view}");
        }
        let of_view = Field::ALL.into_iter().filter(|field| field.is_of(self.view));
        let names: Vec<&str> = of_view.map(Field::name).collect();
        match closest(name, &names) {
            Some(field) => format!("{view} have no field {name}; did you mean {field}?"),
            None => {
                format!(
                    "{view} have no field {name}; to search for it in the text of flows, write \"{name}\""
                )
            }
        }
    }

    /// Parses the value of a test, or the list of values after `in`.
    fn values(&mut self, operator: Operator) -> Result<Vec<Piece<'a>>, Fault> {
        let is_list = operator == Operator::In && self.scanner.symbol("(");
        let mut values = Vec::new();
        loop {
            let start = self.scanner;
            let piece = self.scanner.value();
            values.push(piece.map_err(|message| Fault::new(start.at() + blanks(start.rest()), 0, message))?);
            self.tests += 1;
            if self.tests > MAX_TESTS {
                return Err(self.here(0, format!("a filter has up to {MAX_TESTS} tests and values")));
            }
            if !is_list {
                return Ok(values);
            }
            if self.scanner.symbol(")") {
                return Ok(values);
            }
            if !self.scanner.symbol(",") {
                return Err(self.expected("separate values by commas, and close the list with `)`"));
            }
        }
    }

    /// Builds the test of `field` from the parsed values.
    fn meaning(&self, field: Field, operator: Operator, values: &[Piece<'a>]) -> Result<Expression, Fault> {
        let test = match field.form() {
            Form::Address => Test::Address(field, self.each(values, address)?),
            Form::Path => Test::Path(self.each(values, |text| self.pattern(text))?),
            Form::Word(known) => Test::Text(field, self.each(values, |text| word(text, known))?),
            Form::Text if operator == Operator::Contains => Test::Contains(
                field,
                values
                    .first()
                    .map_or_else(String::new, |piece| piece.text.to_owned()),
            ),
            Form::Text => Test::Text(field, values.iter().map(|piece| piece.text.to_owned()).collect()),
            Form::Node => {
                let nodes = self.each(values, |text| self.node(text))?;
                match self.view {
                    View::Flows => Test::Path(
                        nodes
                            .into_iter()
                            .map(|node| Pattern::new(vec![Step::Node(node)]))
                            .collect(),
                    ),
                    View::Events => Test::Number(
                        field,
                        nodes.into_iter().map(|node| (node.into(), node.into())).collect(),
                    ),
                }
            }
            Form::Reason => {
                let ranges = self.each(values, |text| self.reason(text, operator))?;
                Test::Number(field, compared(operator, ranges.concat()))
            }
            form @ (Form::Port | Form::Proto | Form::Number(_) | Form::Time | Form::Share) => {
                let ranges = self.each(values, |text| range(text, form))?;
                Test::Number(field, compared(operator, ranges))
            }
        };
        let test = Expression::Test(test);
        Ok(if operator == Operator::Unequal {
            Expression::Not(Box::new(test))
        } else {
            test
        })
    }

    /// Converts each value with `read`; an error gets the position of its value.
    fn each<T>(
        &self,
        values: &[Piece<'a>],
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, Fault> {
        values
            .iter()
            .map(|piece| read(piece.text).map_err(|message| Fault::new(piece.start, piece.length(), message)))
            .collect()
    }

    /// Parses a node ID, or looks up the name of a node.
    fn node(&self, text: &str) -> Result<u32, String> {
        number(text, Form::Number(u32::MAX.into()))
            .ok()
            .and_then(|id| u32::try_from(id).ok())
            .or_else(|| self.names.node(text))
            .ok_or_else(|| {
                format!("no node has the name {text:?}; write an id such as 101, or a name of the inventory")
            })
    }

    /// Parses the code of a drop reason or a range of codes, or looks up a name. Several codes can have the same name.
    fn reason(&self, text: &str, operator: Operator) -> Result<Vec<(u64, u64)>, String> {
        let codes = Form::Number(u8::MAX.into());
        if text.starts_with(|c: char| c.is_ascii_digit())
            && let Ok(range) = range(text, codes)
        {
            return Ok(vec![range]);
        }
        let found = self.names.reason_codes(text);
        if found.is_empty() {
            let known = self.names.reason_names().join(", ");
            return Err(match &*known {
                "" => format!(
                    "no drop reason has the name {text:?}; write a code from 0 to 255, or a name of `drop_reasons` of a profile"
                ),
                known => format!(
                    "no drop reason has the name {text:?}; write a code from 0 to 255, or one of {known}"
                ),
            });
        }
        if !matches!(operator, Operator::Equal | Operator::Unequal | Operator::In) {
            return Err("the name of a drop reason is compared by == != in".to_owned());
        }
        Ok(found.into_iter().map(|code| (code.into(), code.into())).collect())
    }

    /// Parses a path pattern such as `101>*>103`.
    fn pattern(&self, text: &str) -> Result<Pattern, String> {
        let steps: Vec<Step> = text
            .split('>')
            .take(MAX_STEPS + 1)
            .map(|part| self.step(part.trim()))
            .collect::<Result<_, _>>()?;
        if steps.len() > MAX_STEPS {
            return Err(format!("a pattern has up to {MAX_STEPS} parts"));
        }
        Ok(Pattern::new(steps))
    }

    fn step(&self, part: &str) -> Result<Step, String> {
        match part {
            "*" => Ok(Step::Any),
            "?" => Ok(Step::One),
            "" => Err("write nodes, ? or * between >, such as 101>*>103".to_owned()),
            node => self.node(node).map(Step::Node),
        }
    }

    /// Builds a fault that marks the next `length` bytes.
    fn here(&self, length: usize, message: String) -> Fault {
        Fault::new(self.scanner.at(), length, message)
    }

    /// Builds a fault at the current position. If an operator of another language is found there, the message names the
    /// word to use; otherwise it is `advice`.
    fn expected(&mut self, advice: &str) -> Fault {
        self.scanner.blanks();
        let rest = self.scanner.rest();
        let others = [
            ("&&", "and"),
            ("||", "or"),
            ("!", "not"),
            ("=", "=="),
            ("|", "or"),
            ("&", "and"),
        ];
        if let Some((symbol, word)) = others.into_iter().find(|(symbol, _)| rest.starts_with(symbol)) {
            return self.here(symbol.len(), format!("in place of {symbol}, write {word}"));
        }
        let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
        self.here(length, advice.to_owned())
    }
}

/// Combines the parts with `combined`; a single part stays as it is.
fn combine(mut parts: Vec<Expression>, combined: fn(Vec<Expression>) -> Expression) -> Expression {
    if parts.len() == 1 {
        parts.remove(0)
    } else {
        combined(parts)
    }
}

/// Returns the name of which `name` is most likely a misspelling, or `None` if none is close.
fn closest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    names
        .iter()
        .copied()
        .filter(|other| other.contains(name) || name.contains(other) || letters_between(name, other) <= 2)
        .min_by_key(|other| letters_between(name, other))
}

fn letters_between(name: &str, other: &str) -> usize {
    // A longer word is not a misspelled field, and the distance would be expensive.
    if name.len() <= 40 {
        distance(name, other)
    } else {
        usize::MAX
    }
}

/// Returns the length of the leading white space, bytes.
fn blanks(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

fn address(text: &str) -> Result<Prefix, String> {
    text.parse()
        .map_err(|error: detect::prefix::PrefixError| error.to_string())
}

fn word(text: &str, known: &[&str]) -> Result<String, String> {
    if known.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not one of {}", known.join(", ")))
    }
}

/// Returns the ranges in which the comparison is true; for `!=`, the ranges in which it is false. Only `==`, `!=` and `in`
/// can have more than one value.
fn compared(operator: Operator, ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let (first, last) = ranges.first().copied().unwrap_or((1, 0));
    let range = match operator {
        Operator::Less => first.checked_sub(1).map(|last| (0, last)),
        Operator::AtMost => Some((0, last)),
        Operator::Greater => last.checked_add(1).map(|first| (first, u64::MAX)),
        Operator::AtLeast => Some((first, u64::MAX)),
        _ => return ranges,
    };
    range.into_iter().collect()
}

/// Parses a number or a range, and returns its first and last number.
fn range(text: &str, form: Form) -> Result<(u64, u64), String> {
    let ends = if form == Form::Proto {
        None
    } else {
        text.split_once('-')
    };
    let Some((first, last)) = ends else {
        return number(text, form).map(|number| (number, number));
    };
    let first = number(first, form)?;
    let last = number(last, form)?;
    if first > last {
        return Err(format!("{text} ends before it begins"));
    }
    Ok((first, last))
}

/// Parses a number with a unit of its form, up to the largest value of that form.
fn number(text: &str, form: Form) -> Result<u64, String> {
    // Units with their factors, the largest value, and a description for error messages. Shares are in millionths.
    let (units, most, what): (&[(&str, u64)], u64, &str) = match form {
        Form::Time => (TIMES, u64::MAX, "a time, such as 5ms"),
        Form::Share => (&[("%", 10_000)], u64::MAX, "a share, such as 80%"),
        Form::Port => (&[("", 1)], u16::MAX.into(), "a port, such as 443 or 8000-8999"),
        Form::Proto => {
            let named = PROTOCOLS.iter().find(|(name, _)| *name == text);
            if let Some((_, number)) = named {
                return Ok(*number);
            }
            (
                &[("", 1)],
                u8::MAX.into(),
                "a protocol: tcp, udp, icmp, sctp, or a number",
            )
        }
        Form::Number(most) => (COUNTS, most, "a number, such as 50 or 10k"),
        _ => (COUNTS, u64::MAX, "a number"),
    };
    let (value, unit) = if let Some(digits) = text.strip_prefix("0x") {
        let value = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        (
            value
                .and_then(|digits| u64::from_str_radix(digits, 16).ok())
                .map(u128::from),
            "",
        )
    } else {
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
            .unwrap_or(text.len());
        let factor = units
            .iter()
            .find(|(unit, _)| *unit == &text[end..])
            .map(|(_, factor)| *factor);
        (
            factor.and_then(|factor| decimal(&text[..end], factor)),
            &text[end..],
        )
    };
    if unit.is_empty() && !units.iter().any(|(unit, _)| unit.is_empty()) {
        return Err(format!("{text:?} is not {what}: write its unit"));
    }
    let value = value.ok_or_else(|| format!("{text:?} is not {what}"))?;
    u64::try_from(value)
        .ok()
        .filter(|value| *value <= most)
        .ok_or_else(|| format!("{text} is more than {most}"))
}

/// Parses a decimal number and multiplies it by `factor`. Returns `None` if the product is not a whole number.
fn decimal(text: &str, factor: u64) -> Option<u128> {
    let digits = text.replace('_', "");
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    if whole.is_empty() || fraction.len() > 12 || digits.ends_with('.') || fraction.contains('.') {
        return None;
    }
    let all: u128 = format!("{whole}{fraction}").parse().ok()?;
    let scaled = all.checked_mul(factor.into())?;
    let parts = 10_u128.pow(fraction.len() as u32);
    scaled.is_multiple_of(parts).then(|| scaled / parts)
}
