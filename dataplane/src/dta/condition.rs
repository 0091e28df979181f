//! Conditions of mappings and tables: comparisons of a number with a constant, written as text such as `hop_latency > 500us`.

use std::fmt;
use std::str::FromStr;

use super::context::Context;
use super::field::{Field, FieldError, ReportedHop, parse_number};

/// Operators, longer ones before their prefixes: `<=` begins with `<`.
const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("<", Operator::Less),
    (">", Operator::More),
];
/// Suffixes of constants: bytes in powers of 1024, times in ns, percent in millionths.
const UNITS: [(&str, u64); 8] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("%", 10_000),
    ("", 1),
];

/// A comparison of a number with a constant. It is false for an unknown number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    field: Field,
    operator: Operator,
    value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    AtMost,
    More,
    AtLeast,
}

impl Condition {
    /// Returns the field that is compared.
    pub fn field(&self) -> &Field {
        &self.field
    }

    pub(super) fn is_met(&self, context: &Context<'_>, subject: &ReportedHop, now: u64) -> bool {
        let Some(value) = self.field.number(context, subject, now) else {
            return false;
        };
        match self.operator {
            Operator::Equal => value == self.value,
            Operator::NotEqual => value != self.value,
            Operator::Less => value < self.value,
            Operator::AtMost => value <= self.value,
            Operator::More => value > self.value,
            Operator::AtLeast => value >= self.value,
        }
    }
}

impl FromStr for Condition {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, FieldError> {
        let invalid = FieldError::Condition(text.to_owned());
        let Some((at, word, operator)) = OPERATORS
            .iter()
            .find_map(|(word, operator)| text.find(word).map(|at| (at, *word, *operator)))
        else {
            return Err(invalid);
        };
        let field: Field = text[..at].parse()?;
        let written = text[at + word.len()..].trim();
        let value = UNITS
            .iter()
            .find_map(|(unit, factor)| written.strip_suffix(unit).map(|number| (number.trim(), *factor)))
            .and_then(|(number, factor)| parse_number(number)?.checked_mul(factor));
        match value {
            Some(value) if field.is_number() => Ok(Self {
                field,
                operator,
                value,
            }),
            _ => Err(invalid),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = OPERATORS.iter().find(|(_, operator)| *operator == self.operator);
        write!(
            f,
            "{} {} {}",
            self.field,
            operator.map_or("", |(word, _)| *word),
            self.value
        )
    }
}
