//! A program, with all names resolved.

use std::collections::BTreeMap;

use crate::expression::Expression;
use crate::field::{Field, VALID};
use crate::packet::Header;
use crate::table::Table;

#[derive(Clone, Debug)]
pub(crate) enum ParserOp {
    Extract(usize),
    ExtractNext(usize),
    ExtractVariable(usize, Expression),
    Set(Field, Value),
    SetLookahead(Field, u32, u32),
}

/// An operand of the parser.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Expression(Expression),
    /// A field of the last element of a stack that was extracted.
    LastOf(usize, usize),
}

#[derive(Clone, Debug)]
pub(crate) struct Transition {
    /// Value and mask to match; `None` matches always.
    pub(crate) value: Option<(u128, u128)>,
    pub(crate) next: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct ParseState {
    pub(crate) ops: Vec<ParserOp>,
    /// With their widths, which concatenate to the key.
    pub(crate) key: Vec<(Value, u32)>,
    pub(crate) transitions: Vec<Transition>,
}

#[derive(Clone, Debug)]
pub(crate) enum Primitive {
    Assign(Field, Expression),
    AssignVariable(Field, Field),
    AssignHeader(usize, usize),
    SetValid(usize, bool),
    Jump(usize),
    JumpIfZero(Expression, usize),
    RegisterRead(Field, usize, Expression),
    RegisterWrite(usize, Expression, Expression),
    Truncate(Expression),
    Hash {
        target: Field,
        base: Expression,
        calculation: usize,
        size: Expression,
    },
    Count(usize, Expression),
    CloneIngress {
        session: Expression,
        fields: usize,
    },
    CloneEgress {
        session: Expression,
        fields: usize,
    },
    /// The field list to preserve.
    Recirculate(usize),
    MarkToDrop,
}

#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) name: String,
    pub(crate) parameters: Vec<u32>,
    pub(crate) primitives: Vec<Primitive>,
}

/// A node of a pipeline.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Table(usize),
    If {
        condition: Expression,
        yes: Option<usize>,
        no: Option<usize>,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    pub(crate) first: Option<usize>,
    pub(crate) nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// The internet checksum (RFC 1071).
    Csum16,
    /// CRC-32, as in Ethernet.
    Crc32,
}

#[derive(Clone, Debug)]
pub(crate) enum Input {
    Field(Field),
    /// All fields of a header.
    Header(usize),
    Constant(u128, u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Calculation {
    pub(crate) algorithm: Algorithm,
    pub(crate) input: Vec<Input>,
}

#[derive(Clone, Debug)]
pub(crate) struct Checksum {
    pub(crate) target: Field,
    pub(crate) calculation: usize,
    pub(crate) verify: bool,
    pub(crate) update: bool,
    pub(crate) condition: Option<Expression>,
}

/// The fields of `standard_metadata` that the target reads and writes.
#[derive(Clone, Debug)]
pub(crate) struct Standard {
    pub(crate) ingress_port: Field,
    pub(crate) egress_spec: Field,
    pub(crate) egress_port: Field,
    pub(crate) mcast_grp: Field,
    pub(crate) egress_rid: Field,
    pub(crate) instance_type: Field,
    pub(crate) packet_length: Field,
    pub(crate) enq_qdepth: Field,
    pub(crate) deq_qdepth: Field,
    pub(crate) deq_timedelta: Field,
    pub(crate) ingress_ts: Field,
    pub(crate) egress_ts: Field,
    pub(crate) checksum_error: Field,
    pub(crate) parser_error: Field,
}

/// A program that was compiled for BMv2.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) headers: Vec<Header>,
    pub(crate) stacks: Vec<Vec<usize>>,
    pub(crate) states: Vec<ParseState>,
    pub(crate) first_state: Option<usize>,
    pub(crate) deparser: Vec<usize>,
    pub(crate) actions: Vec<Action>,
    pub(crate) tables: Vec<Table>,
    pub(crate) ingress: Pipeline,
    pub(crate) egress: Pipeline,
    pub(crate) calculations: Vec<Calculation>,
    pub(crate) checksums: Vec<Checksum>,
    pub(crate) field_lists: BTreeMap<u128, Vec<Field>>,
    pub(crate) registers: Vec<(String, usize, u32)>,
    pub(crate) counters: Vec<(String, usize)>,
    /// Numbers of parser errors: too short, and stack out of bounds.
    pub(crate) errors: [u128; 2],
    pub(crate) standard: Standard,
}

impl Program {
    pub(crate) fn width(&self, at: Field) -> Option<u32> {
        if at.field == VALID {
            Some(1)
        } else {
            self.headers[at.header].widths[at.field]
        }
    }
}
