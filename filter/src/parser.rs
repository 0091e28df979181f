//! The recursive-descent parser of the filter language: text in, an [`Expression`] or the first [`Fault`] out. Depth, tests
//! and values are bounded.

use detect::{Prefix, rule::names::distance};

use crate::fault::Fault;
use crate::field::{Field, Form, Operator, View};
use crate::lexer::{Scanner, ValueToken};
use crate::names::Names;
use crate::path::{MAX_STEPS, Pattern, Step};
use crate::test::{Expression, Test};

/// Units of time, ns. A number without a unit is in ns.
const TIME_UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("", 1),
];
/// Factors of counts.
const COUNT_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("k", 1_000),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
];
/// Protocols by name, with their IP protocol numbers.
const PROTOCOLS: [(&str, u64); 5] = [
    ("icmp", 1),
    ("tcp", 6),
    ("udp", 17),
    ("icmpv6", 58),
    ("sctp", 132),
];
/// Maximum length of a filter, bytes.
const MAX_LEN: usize = 4_096;
/// Maximum number of tests and values in a filter.
const MAX_TESTS: usize = 256;
/// Maximum nesting of parentheses and `not`.
const MAX_DEPTH: usize = 32;

/// Parses a filter of `view`; `names` resolves the names of nodes and drop reasons. An empty filter matches everything.
pub(crate) fn parse(text: &str, view: View, names: &dyn Names) -> Result<Expression, Fault> {
    if text.len() > MAX_LEN {
        let end = text.floor_char_boundary(MAX_LEN);
        return Err(Fault::new(end, 0, format!("a filter has up to {MAX_LEN} bytes")));
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
    let value = scanner.read_value().ok()?;
    let has_operator = Operator::ALL.into_iter().any(|operator| {
        operator != Operator::In && operator != Operator::Greater && value.text.contains(operator.text())
    });
    // In the text of a flow, `>` separates source and destination.
    let is_flow = value.text.starts_with(|c: char| c.is_ascii_digit() || c == '[');
    let is_comparison = has_operator || (value.text.contains('>') && !is_flow);
    (scanner.is_at_end() && (value.is_quoted || !is_comparison)).then_some(value.text)
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
        let mut operands = vec![self.parse_and(depth)?];
        while self.scanner.skip_word("or") {
            operands.push(self.parse_and(depth)?);
        }
        Ok(combine(operands, Expression::Or))
    }

    fn parse_and(&mut self, depth: usize) -> Result<Expression, Fault> {
        let mut operands = vec![self.parse_unary(depth)?];
        while self.scanner.skip_word("and") {
            operands.push(self.parse_unary(depth)?);
        }
        Ok(combine(operands, Expression::And))
    }

    /// Parses `not`, a parenthesis or a test. `depth` is the current nesting, which bounds the recursion.
    fn parse_unary(&mut self, depth: usize) -> Result<Expression, Fault> {
        if depth >= MAX_DEPTH {
            return Err(self.fault_here(0, format!("parentheses and `not` go up to {MAX_DEPTH} deep")));
        }
        if self.scanner.skip_word("not") {
            return Ok(Expression::Not(Box::new(self.parse_unary(depth + 1)?)));
        }
        if self.scanner.skip_symbol("(") {
            let inner = self.parse_or(depth + 1)?;
            if !self.scanner.skip_symbol(")") {
                return Err(self.expected("close the parenthesis with `)`"));
            }
            return Ok(inner);
        }
        self.parse_test()
    }

    /// Parses a test: a field, an operator and its values.
    fn parse_test(&mut self) -> Result<Expression, Fault> {
        self.tests += 1;
        if self.tests > MAX_TESTS {
            return Err(self.fault_here(0, format!("a filter has up to {MAX_TESTS} tests and values")));
        }
        let name = self.scanner.peek_name();
        let offset = self.scanner.offset();
        let length = name.len();
        if matches!(name, "and" | "or" | "in") {
            let message = format!("before `{name}`, a test is missing, such as src in 10.0.0.0/8");
            return Err(Fault::new(offset, length, message));
        }
        if name.is_empty() {
            return self.parse_flow_text();
        }
        let Some(field) = Field::from_name(name, self.view) else {
            return Err(Fault::new(offset, length, self.unknown_field_message(name)));
        };
        self.scanner.skip(length);
        let Some(operator) = self.scanner.read_operator() else {
            let operator = field.operators().first().map_or("==", |operator| operator.text());
            return Err(self.expected(&format!(
                "after {name}, write an operator, such as {name} {operator} …"
            )));
        };
        if !field.operators().contains(&operator) {
            let operators: Vec<&str> = field.operators().iter().map(|operator| operator.text()).collect();
            let offset = self.scanner.offset() - operator.text().len();
            let message = format!("{name} is compared by {}", operators.join(" "));
            return Err(Fault::new(offset, operator.text().len(), message));
        }
        let values = self.parse_values(operator)?;
        self.build_test(field, operator, &values)
    }

    /// Parses a value without a field, to be searched in the text of the flow.
    fn parse_flow_text(&mut self) -> Result<Expression, Fault> {
        let offset = self.scanner.offset();
        let Ok(value) = self.scanner.read_value() else {
            return Err(self.expected("write a test here, such as src in 10.0.0.0/8"));
        };
        let is_part = value
            .text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "[]:./>-".contains(c));
        if !value.is_quoted && !is_part {
            let message = format!(
                "{:?} is not a test; write a field, an operator and a value",
                value.text
            );
            return Err(Fault::new(offset, value.length(), message));
        }
        Ok(search(value.text))
    }

    /// Returns the error message for an unknown field name.
    fn unknown_field_message(&self, name: &str) -> String {
        let view = self.view.name();
        if Field::ALL.into_iter().any(|field| field.name() == name) {
            let other_view = if self.view == View::Flows {
                "events"
            } else {
                "flows"
            };
            return format!("{name} is a field of {other_view}, not of {view}");
        }
        let fields = Field::ALL.into_iter().filter(|field| field.is_of(self.view));
        let names: Vec<&str> = fields.map(Field::name).collect();
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
    fn parse_values(&mut self, operator: Operator) -> Result<Vec<ValueToken<'a>>, Fault> {
        let is_list = operator == Operator::In && self.scanner.skip_symbol("(");
        let mut values = Vec::new();
        loop {
            let start = self.scanner;
            let value = self.scanner.read_value();
            values.push(
                value.map_err(|message| Fault::new(start.offset() + blank_len(start.rest()), 0, message))?,
            );
            self.tests += 1;
            if self.tests > MAX_TESTS {
                return Err(self.fault_here(0, format!("a filter has up to {MAX_TESTS} tests and values")));
            }
            if !is_list {
                return Ok(values);
            }
            if self.scanner.skip_symbol(")") {
                return Ok(values);
            }
            if !self.scanner.skip_symbol(",") {
                return Err(self.expected("separate values by commas, and close the list with `)`"));
            }
        }
    }

    /// Builds the test of `field` from the parsed values.
    fn build_test(
        &self,
        field: Field,
        operator: Operator,
        values: &[ValueToken<'a>],
    ) -> Result<Expression, Fault> {
        let test = match field.form() {
            Form::Address => Test::Address(field, self.convert_each(values, parse_prefix)?),
            Form::Path => Test::Path(self.convert_each(values, |text| self.parse_pattern(text))?),
            Form::Word(known) => {
                Test::Text(field, self.convert_each(values, |text| check_word(text, known))?)
            }
            Form::Text if operator == Operator::Contains => Test::Contains(
                field,
                values
                    .first()
                    .map_or_else(String::new, |value| value.text.to_owned()),
            ),
            Form::Text => Test::Text(field, values.iter().map(|value| value.text.to_owned()).collect()),
            Form::Node => {
                let nodes = self.convert_each(values, |text| self.parse_node(text))?;
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
                let ranges = self.convert_each(values, |text| self.parse_reason(text, operator))?;
                Test::Number(field, matching_ranges(operator, ranges.concat()))
            }
            form @ (Form::Port | Form::Proto | Form::Number(_) | Form::Time | Form::Share) => {
                let ranges = self.convert_each(values, |text| parse_range(text, form))?;
                Test::Number(field, matching_ranges(operator, ranges))
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
    fn convert_each<T>(
        &self,
        values: &[ValueToken<'a>],
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, Fault> {
        values
            .iter()
            .map(|value| read(value.text).map_err(|message| Fault::new(value.start, value.length(), message)))
            .collect()
    }

    /// Parses a node ID, or looks up the name of a node.
    fn parse_node(&self, text: &str) -> Result<u32, String> {
        parse_number(text, Form::Number(u32::MAX.into()))
            .ok()
            .and_then(|id| u32::try_from(id).ok())
            .or_else(|| self.names.node(text))
            .ok_or_else(|| {
                format!("no node has the name {text:?}; write an id such as 101, or a name of the inventory")
            })
    }

    /// Parses the code of a drop reason or a range of codes, or looks up a name. Several codes can have the same name.
    fn parse_reason(&self, text: &str, operator: Operator) -> Result<Vec<(u64, u64)>, String> {
        let codes = Form::Number(u8::MAX.into());
        if text.starts_with(|c: char| c.is_ascii_digit())
            && let Ok(range) = parse_range(text, codes)
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
    fn parse_pattern(&self, text: &str) -> Result<Pattern, String> {
        let steps: Vec<Step> = text
            .split('>')
            .take(MAX_STEPS + 1)
            .map(|part| self.parse_step(part.trim()))
            .collect::<Result<_, _>>()?;
        if steps.len() > MAX_STEPS {
            return Err(format!("a pattern has up to {MAX_STEPS} parts"));
        }
        Ok(Pattern::new(steps))
    }

    fn parse_step(&self, part: &str) -> Result<Step, String> {
        match part {
            "*" => Ok(Step::Any),
            "?" => Ok(Step::One),
            "" => Err("write nodes, ? or * between >, such as 101>*>103".to_owned()),
            node => self.parse_node(node).map(Step::Node),
        }
    }

    /// Builds a fault that marks the next `length` bytes.
    fn fault_here(&self, length: usize, message: String) -> Fault {
        Fault::new(self.scanner.offset(), length, message)
    }

    /// Builds a fault at the current position. If an operator of another language is found there, the message names the
    /// word to use; otherwise it is `advice`.
    fn expected(&mut self, advice: &str) -> Fault {
        self.scanner.skip_blanks();
        let rest = self.scanner.rest();
        let foreign_operators = [
            ("&&", "and"),
            ("||", "or"),
            ("!", "not"),
            ("=", "=="),
            ("|", "or"),
            ("&", "and"),
        ];
        if let Some((symbol, word)) = foreign_operators
            .into_iter()
            .find(|(symbol, _)| rest.starts_with(symbol))
        {
            return self.fault_here(symbol.len(), format!("in place of {symbol}, write {word}"));
        }
        let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
        self.fault_here(length, advice.to_owned())
    }
}

/// Combines the operands of `and` or `or`; a single operand stays as it is.
fn combine(mut operands: Vec<Expression>, operation: fn(Vec<Expression>) -> Expression) -> Expression {
    if operands.len() == 1 {
        operands.remove(0)
    } else {
        operation(operands)
    }
}

/// Returns the name of which `name` is most likely a misspelling, or `None` if none is close.
fn closest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    names
        .iter()
        .copied()
        .filter(|other| other.contains(name) || name.contains(other) || edit_distance(name, other) <= 2)
        .min_by_key(|other| edit_distance(name, other))
}

fn edit_distance(name: &str, other: &str) -> usize {
    // A longer word is not a misspelled field, and the distance would be expensive.
    if name.len() <= 40 {
        distance(name, other)
    } else {
        usize::MAX
    }
}

/// Returns the length of the leading white space, bytes.
fn blank_len(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

fn parse_prefix(text: &str) -> Result<Prefix, String> {
    text.parse()
        .map_err(|error: detect::prefix::PrefixError| error.to_string())
}

fn check_word(text: &str, known: &[&str]) -> Result<String, String> {
    if known.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not one of {}", known.join(", ")))
    }
}

/// Returns the ranges in which the comparison is true; for `!=`, the ranges in which it is false. Only `==`, `!=` and `in`
/// can have more than one value.
fn matching_ranges(operator: Operator, ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
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
fn parse_range(text: &str, form: Form) -> Result<(u64, u64), String> {
    let ends = if form == Form::Proto {
        None
    } else {
        text.split_once('-')
    };
    let Some((first, last)) = ends else {
        return parse_number(text, form).map(|number| (number, number));
    };
    let first = parse_number(first, form)?;
    let last = parse_number(last, form)?;
    if first > last {
        return Err(format!("{text} ends before it begins"));
    }
    Ok((first, last))
}

/// The way in which the numbers of a form are written.
struct NumberForm {
    /// Units with their factors.
    units: &'static [(&'static str, u64)],
    /// Largest value.
    max: u64,
    /// Description for error messages.
    description: &'static str,
}

impl NumberForm {
    fn new(units: &'static [(&'static str, u64)], max: u64, description: &'static str) -> Self {
        Self {
            units,
            max,
            description,
        }
    }
}

/// Parses a number with a unit of its form, up to the largest value of that form.
fn parse_number(text: &str, form: Form) -> Result<u64, String> {
    let NumberForm {
        units,
        max,
        description,
    } = match form {
        Form::Time => NumberForm::new(TIME_UNITS, u64::MAX, "a time, such as 5ms"),
        // Shares are in millionths.
        Form::Share => NumberForm::new(&[("%", 10_000)], u64::MAX, "a share, such as 80%"),
        Form::Port => NumberForm::new(&[("", 1)], u16::MAX.into(), "a port, such as 443 or 8000-8999"),
        Form::Proto => {
            let named = PROTOCOLS.iter().find(|(name, _)| *name == text);
            if let Some((_, number)) = named {
                return Ok(*number);
            }
            NumberForm::new(
                &[("", 1)],
                u8::MAX.into(),
                "a protocol: tcp, udp, icmp, sctp, or a number",
            )
        }
        Form::Number(max) => NumberForm::new(COUNT_UNITS, max, "a number, such as 50 or 10k"),
        _ => NumberForm::new(COUNT_UNITS, u64::MAX, "a number"),
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
            factor.and_then(|factor| parse_decimal(&text[..end], factor)),
            &text[end..],
        )
    };
    if unit.is_empty() && !units.iter().any(|(unit, _)| unit.is_empty()) {
        return Err(format!("{text:?} is not {description}: write its unit"));
    }
    let value = value.ok_or_else(|| format!("{text:?} is not {description}"))?;
    u64::try_from(value)
        .ok()
        .filter(|value| *value <= max)
        .ok_or_else(|| format!("{text} is more than {max}"))
}

/// Parses a decimal number and multiplies it by `factor`. Returns `None` if the product is not a whole number.
fn parse_decimal(text: &str, factor: u64) -> Option<u128> {
    let digits = text.replace('_', "");
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    if whole.is_empty() || fraction.len() > 12 || digits.ends_with('.') || fraction.contains('.') {
        return None;
    }
    let digits_value: u128 = format!("{whole}{fraction}").parse().ok()?;
    let scaled = digits_value.checked_mul(factor.into())?;
    let divisor = 10_u128.pow(fraction.len() as u32);
    scaled.is_multiple_of(divisor).then(|| scaled / divisor)
}
