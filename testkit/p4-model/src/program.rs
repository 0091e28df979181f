//! A loaded P4 program, with all names resolved.
//!
//! A `usize` refers to an object by its index in a list of [`Program`]: a header in `headers`, a stack in `stacks`, and so on.
//! The next node or parser state is an `Option<usize>`; `None` ends the pipeline or accepts the packet.

use std::collections::BTreeMap;

use crate::expression::Expression;
use crate::field::{Field, VALID};
use crate::packet::Header;
use crate::table::Table;

/// An operation of a parser state.
#[derive(Clone, Debug)]
pub(crate) enum ParserOp {
    Extract(usize),
    /// Extracts the next element of a stack.
    ExtractNext(usize),
    /// Extracts a header whose field of variable length has this many bits.
    ExtractVariable(usize, Expression),
    Set(Field, Value),
    /// Sets a field to bits that are not extracted.
    SetLookahead(Field, Lookahead),
}

/// Bits behind the last extracted header: offset and width in bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookahead {
    pub(crate) offset: usize,
    pub(crate) width: u32,
}

/// An operand of the parser, in an assignment or in a transition key.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Expression(Expression),
    /// A field of the stack's element that was extracted last: stack, index of the field.
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
    /// The parts of the transition key, concatenated, with their widths in bits.
    pub(crate) key: Vec<(Value, u32)>,
    pub(crate) transitions: Vec<Transition>,
}

/// One step of an action.
#[derive(Clone, Debug)]
pub(crate) enum Primitive {
    Assign(Field, Expression),
    AssignVariable(Field, Field),
    AssignHeader(usize, usize),
    SetValid(usize, bool),
    /// Continues at this primitive of the action; `p4c` compiles conditions in actions to jumps.
    Jump(usize),
    JumpIfZero(Expression, usize),
    /// Target, register array, index.
    RegisterRead(Field, usize, Expression),
    /// Register array, index, value.
    RegisterWrite(usize, Expression, Expression),
    Truncate(Expression),
    /// Sets `target` to `base` plus the hash modulo `size`.
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
    /// Recirculates the packet with the metadata of this field list.
    Recirculate(usize),
    MarkToDrop,
}

#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) name: String,
    /// Widths of the parameters in bits.
    pub(crate) parameters: Vec<u32>,
    pub(crate) primitives: Vec<Primitive>,
}

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
    /// A value, and its width in bits.
    Constant(u128, u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Calculation {
    pub(crate) algorithm: Algorithm,
    pub(crate) input: Vec<Input>,
}

/// A field that holds a checksum: verified after the parser, updated before the deparser.
#[derive(Clone, Debug)]
pub(crate) struct Checksum {
    pub(crate) target: Field,
    pub(crate) calculation: usize,
    pub(crate) verify: bool,
    pub(crate) update: bool,
    pub(crate) condition: Option<Expression>,
}

/// The fields of v1model's `standard_metadata` that the target reads and writes.
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
    pub(crate) registers: Vec<RegisterArray>,
    pub(crate) counters: Vec<CounterArray>,
    pub(crate) errors: ParserErrors,
    pub(crate) standard: Standard,
}

/// A register array of the program.
#[derive(Clone, Debug)]
pub(crate) struct RegisterArray {
    pub(crate) name: String,
    /// Number of cells.
    pub(crate) size: usize,
    /// Width of a cell in bits.
    pub(crate) width: u32,
}

/// A counter array of the program.
#[derive(Clone, Debug)]
pub(crate) struct CounterArray {
    pub(crate) name: String,
    /// Number of cells.
    pub(crate) size: usize,
}

/// The program's codes of parser errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParserErrors {
    pub(crate) packet_too_short: u128,
    pub(crate) stack_out_of_bounds: u128,
}

impl Program {
    /// Returns the width of a field in bits, or `None` for a field of variable length.
    pub(crate) fn width(&self, field: Field) -> Option<u32> {
        if field.field == VALID {
            Some(1)
        } else {
            self.headers[field.header].widths[field.field]
        }
    }
}
