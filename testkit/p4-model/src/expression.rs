//! Expressions of actions, conditions and parser states, and their evaluation.
//!
//! BMv2 computes with integers of any size, and the compiler masks each result to its width. The model computes modulo 2^128,
//! which gives the same results because no operand of these programs is wider.

use crate::field::{Field, VALID};
use crate::packet::Phv;

/// A tree of operators. Truth values are 0 and 1.
#[derive(Clone, Debug)]
pub(crate) enum Expression {
    Constant(u128),
    Field(Field),
    /// A parameter of the action, by position.
    Parameter(usize),
    /// `!`, `~`, and the conversions `b2d` and `d2b` between a bit and a truth value, which change nothing.
    Unary(Unary, Box<Expression>),
    Binary(Binary, Box<[Expression; 2]>),
    /// The operator `?:`: condition, value if it is true, value if it is false.
    Choice(Box<[Expression; 3]>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Unary {
    Not,
    Complement,
    Same,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Binary {
    Add,
    Subtract,
    Multiply,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    Equal,
    Different,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// Logical `and` of truth values; `Either` is the logical `or`.
    Both,
    Either,
}

impl Binary {
    pub(crate) fn parse(op: &str) -> Option<Self> {
        Some(match op {
            "+" => Self::Add,
            "-" => Self::Subtract,
            "*" => Self::Multiply,
            "&" => Self::And,
            "|" => Self::Or,
            "^" => Self::Xor,
            "<<" => Self::ShiftLeft,
            ">>" => Self::ShiftRight,
            "==" => Self::Equal,
            "!=" => Self::Different,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            "and" => Self::Both,
            "or" => Self::Either,
            _ => return None,
        })
    }

    fn apply(self, a: u128, b: u128) -> u128 {
        match self {
            Self::Add => a.wrapping_add(b),
            Self::Subtract => a.wrapping_sub(b),
            Self::Multiply => a.wrapping_mul(b),
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
            Self::ShiftLeft => u32::try_from(b).map_or(0, |by| a.checked_shl(by).unwrap_or(0)),
            Self::ShiftRight => u32::try_from(b).map_or(0, |by| a.checked_shr(by).unwrap_or(0)),
            Self::Equal => u128::from(a == b),
            Self::Different => u128::from(a != b),
            Self::Less => u128::from(a < b),
            Self::LessOrEqual => u128::from(a <= b),
            Self::Greater => u128::from(a > b),
            Self::GreaterOrEqual => u128::from(a >= b),
            Self::Both => u128::from(a != 0 && b != 0),
            Self::Either => u128::from(a != 0 || b != 0),
        }
    }
}

impl Expression {
    /// Evaluates the expression with the current headers and the parameters of the running action.
    pub(crate) fn value(&self, phv: &Phv, parameters: &[u128]) -> u128 {
        match self {
            Self::Constant(value) => *value,
            Self::Field(Field { header, field: VALID }) => u128::from(phv.is_valid(*header)),
            Self::Field(field) => phv.get(*field),
            Self::Parameter(number) => parameters.get(*number).copied().unwrap_or(0),
            Self::Unary(Unary::Not, a) => u128::from(a.value(phv, parameters) == 0),
            Self::Unary(Unary::Complement, a) => !a.value(phv, parameters),
            Self::Unary(Unary::Same, a) => a.value(phv, parameters),
            Self::Binary(op, sides) => {
                op.apply(sides[0].value(phv, parameters), sides[1].value(phv, parameters))
            }
            Self::Choice(parts) => {
                let chosen = if parts[0].value(phv, parameters) != 0 {
                    1
                } else {
                    2
                };
                parts[chosen].value(phv, parameters)
            }
        }
    }
}
