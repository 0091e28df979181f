//! Expressions. BMv2 computes with integers of any size, and the compiler masks each result to its width: modulo 2^128 is the same, as
//! no operand of these programs is wider.

use crate::field::{Field, VALID};
use crate::packet::Phv;

#[derive(Clone, Debug)]
pub(crate) enum Expression {
    Constant(u128),
    Field(Field),
    /// A parameter of the action.
    Parameter(usize),
    /// `!`, `~`, and conversions between a bit and a truth value, which change nothing.
    Unary(Unary, Box<Expression>),
    Binary(Binary, Box<[Expression; 2]>),
    /// The condition, and the values if it is true and if it is false.
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
    Both,
    Either,
}

impl Binary {
    pub(crate) fn of(op: &str) -> Option<Self> {
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
        let shift = |by: u128| u32::try_from(by).unwrap_or(u32::MAX);
        match self {
            Self::Add => a.wrapping_add(b),
            Self::Subtract => a.wrapping_sub(b),
            Self::Multiply => a.wrapping_mul(b),
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
            Self::ShiftLeft => a.checked_shl(shift(b)).unwrap_or(0),
            Self::ShiftRight => a.checked_shr(shift(b)).unwrap_or(0),
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
    /// The value, with the parameters of the action.
    pub(crate) fn value(&self, phv: &Phv, parameters: &[u128]) -> u128 {
        let of = |expression: &Expression| expression.value(phv, parameters);
        match self {
            Self::Constant(value) => *value,
            Self::Field(Field { header, field: VALID }) => u128::from(phv.is_valid(*header)),
            Self::Field(field) => phv.get(*field),
            Self::Parameter(number) => parameters.get(*number).copied().unwrap_or(0),
            Self::Unary(Unary::Not, a) => u128::from(of(a) == 0),
            Self::Unary(Unary::Complement, a) => !of(a),
            Self::Unary(Unary::Same, a) => of(a),
            Self::Binary(op, sides) => op.apply(of(&sides[0]), of(&sides[1])),
            Self::Choice(parts) => of(&parts[if of(&parts[0]) != 0 { 1 } else { 2 }]),
        }
    }
}
