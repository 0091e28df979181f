//! Direct Telemetry Access (DTA) reports: UDP datagrams to port [`REPORT_PORT`] that each request one operation on a
//! collector's memory, which a translator turns into RDMA (Langlet et al., "Direct Telemetry Access";
//! `docs/reference/wire-formats.md`, section 5).
//!
//! [`Report`] is version 1, this project's format. [`artifact`] has the layouts of the code published with the paper.
//! [`Control`] messages go back to reporters. [`hash`] maps keys to slots, and [`layout`] describes collector memory.
//!
//! ```
//! use wire::dta::{Base, Operation, Report};
//!
//! // Key-Write: 20 bytes of data under the key of a flow, in two slots of store 1.
//! let operation = Operation::KeyWrite { copies: 2, store: 1, key: b"a flow", data: &[5; 20] };
//! let report = Report { base: Base { reporter: 7, ..Base::default() }, operation };
//! let mut payload = [0; 64];
//! let len = report.emit(&mut payload)?;
//!
//! assert_eq!(Report::parse(&payload[..len])?, report);
//! assert_eq!(Report::parse(&payload[..len - 1]), Err(wire::Refusal::BadDtaLength));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod artifact;
pub mod control;
pub mod hash;
pub mod layout;
pub mod sketch;

pub use crate::refusal::EmitError;
pub use control::Control;
pub use layout::MergeOp;

use crate::bytes::{flag, put_u16, put_u32, put_u64, u16_at, u32_at};
use crate::refusal::Refusal;

/// UDP port to which reports are sent.
pub const REPORT_PORT: u16 = 40040;
/// UDP port on which reporters receive control messages.
pub const CONTROL_PORT: u16 = 40044;
/// Length of the base header, bytes.
pub const BASE_LEN: usize = 8;
/// Length of the headers of a Key-Write, bytes; its key and data follow.
pub const KEY_WRITE_HEADER_LEN: usize = BASE_LEN + field::key_write::LEN;
/// Length of the headers of an Append, bytes; its entries follow.
pub const APPEND_HEADER_LEN: usize = BASE_LEN + field::append::LEN;
/// Length of the headers of a Key-Increment, bytes; its key follows.
pub const KEY_INCREMENT_HEADER_LEN: usize = BASE_LEN + field::key_increment::LEN;
/// Length of the headers of a postcard, bytes; its key follows.
pub const POSTCARD_HEADER_LEN: usize = BASE_LEN + field::postcard::LEN;
/// Length of the headers of a Sketch-Merge, bytes; its counters follow.
pub const SKETCH_MERGE_HEADER_LEN: usize = BASE_LEN + field::sketch::LEN;
/// Maximum data in a Key-Write, bytes.
pub const MAX_DATA: usize = 1024;
/// Maximum number of rows in a sketch.
pub const MAX_DEPTH: u8 = 16;

const VERSION: u8 = 1;
const IMMEDIATE: u8 = 0x80;
const ESSENTIAL: u8 = 0x40;

mod field {
    // Offsets in the base header.
    pub(super) const VERSION_OPCODE: usize = 0;
    pub(super) const FLAGS: usize = 1;
    pub(super) const SEQUENCE: usize = 2;
    pub(super) const REPORTER: usize = 4;

    /// Offsets in the operations' sub-headers, relative to the end of the base header.
    pub(super) mod key_write {
        pub(in super::super) const COPIES: usize = 0;
        pub(in super::super) const KEY_LEN: usize = 1;
        pub(in super::super) const DATA_LEN: usize = 2;
        pub(in super::super) const STORE: usize = 4;
        pub(in super::super) const LEN: usize = 8;
    }
    pub(super) mod append {
        pub(in super::super) const LIST: usize = 0;
        pub(in super::super) const ENTRY_LEN: usize = 4;
        pub(in super::super) const COUNT: usize = 6;
        pub(in super::super) const LEN: usize = 8;
    }
    pub(super) mod key_increment {
        pub(in super::super) const COPIES: usize = 0;
        pub(in super::super) const KEY_LEN: usize = 1;
        pub(in super::super) const STORE: usize = 2;
        pub(in super::super) const DELTA: usize = 8;
        pub(in super::super) const LEN: usize = 16;
    }
    pub(super) mod postcard {
        pub(in super::super) const HOP: usize = 0;
        pub(in super::super) const PATH_LEN: usize = 1;
        pub(in super::super) const KEY_LEN: usize = 2;
        pub(in super::super) const STORE: usize = 4;
        pub(in super::super) const VALUE: usize = 8;
        pub(in super::super) const LEN: usize = 12;
    }
    pub(super) mod sketch {
        pub(in super::super) const SKETCH: usize = 0;
        pub(in super::super) const EPOCH: usize = 2;
        pub(in super::super) const FIRST_COLUMN: usize = 4;
        pub(in super::super) const DEPTH: usize = 8;
        pub(in super::super) const WIDTH: usize = 9;
        pub(in super::super) const OP: usize = 10;
        pub(in super::super) const COLUMNS: usize = 11;
        pub(in super::super) const LEN: usize = 12;
    }
}

crate::named! {
    /// The operation of a datagram. The discriminants are the numbers on the wire, in both layouts.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    #[repr(u8)]
    pub enum Opcode, name {
        /// Stores a value under a key.
        KeyWrite = 1 => "key_write",
        /// Appends entries to a list.
        Append = 2 => "append",
        /// Adds to the counters of a key.
        KeyIncrement = 3 => "key_increment",
        /// Stores the value of one hop on a key's path.
        Postcard = 4 => "postcard",
        /// Merges columns of a sketch with those of other reporters.
        SketchMerge = 5 => "sketch_merge",
        /// Control message from a translator, see [`Control`].
        Control = 15 => "control",
    }
}

impl Opcode {
    /// The operations of reports, in numerical order.
    pub const REPORTS: [Self; 5] = [
        Self::KeyWrite,
        Self::Append,
        Self::KeyIncrement,
        Self::Postcard,
        Self::SketchMerge,
    ];

    /// Returns the opcode with this number, or `None` for an unknown one.
    #[inline]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::KeyWrite),
            2 => Some(Self::Append),
            3 => Some(Self::KeyIncrement),
            4 => Some(Self::Postcard),
            5 => Some(Self::SketchMerge),
            15 => Some(Self::Control),
            _ => None,
        }
    }
}

crate::named! {
    /// The priority of a report under congestion.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
    #[repr(u8)]
    pub enum Priority, name {
        /// Dropped from congestion level 1 on.
        Low = 0 => "low",
        /// Dropped from congestion level 2 on.
        #[default]
        Medium = 1 => "medium",
        /// Not dropped under congestion: at level 3 it waits in the translator's local memory.
        High = 2 => "high",
    }
}

impl Priority {
    /// Returns the priority with this number, or `None` for other numbers.
    #[inline]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Low),
            1 => Some(Self::Medium),
            2 => Some(Self::High),
            _ => None,
        }
    }
}

/// The fields of the base header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Base {
    /// The collector's CPU must be notified of this report.
    pub immediate: bool,
    /// The translator tracks the sequence number and requests missing reports.
    pub essential: bool,
    /// Priority of the report under congestion.
    pub priority: Priority,
    /// Number of this essential report from the reporter to its destination, modulo 2^16 (artifact: 2^8). Always 0 without
    /// `essential`: it is neither parsed nor written.
    pub sequence: u16,
    /// ID of the reporter. In the artifact's layouts, the ID that the caller assigns to the sender.
    pub reporter: u32,
}

impl Base {
    #[inline]
    fn parse(header: &[u8; BASE_LEN]) -> Result<(Self, Opcode), Refusal> {
        let first = header[field::VERSION_OPCODE];
        let flags = header[field::FLAGS];
        if first >> 4 != VERSION {
            return Err(Refusal::UnknownVersion);
        }
        let opcode = Opcode::from_number(first & 0x0f).ok_or(Refusal::BadDtaOpcode)?;
        let priority = Priority::from_number(flags >> 4 & 3).ok_or(Refusal::BadDtaPriority)?;
        let essential = flags & ESSENTIAL != 0;
        let tracked = essential || matches!(opcode, Opcode::Control);
        let sequence = if tracked {
            u16_at(header, field::SEQUENCE)
        } else {
            0
        };
        let immediate = flags & IMMEDIATE != 0;
        let reporter = u32_at(header, field::REPORTER);
        Ok((
            Self {
                immediate,
                essential,
                priority,
                sequence,
                reporter,
            },
            opcode,
        ))
    }

    #[inline]
    fn emit(&self, opcode: Opcode, out: &mut [u8; BASE_LEN]) {
        let tracked = self.essential || matches!(opcode, Opcode::Control);
        out[field::VERSION_OPCODE] = VERSION << 4 | opcode as u8;
        out[field::FLAGS] =
            flag(self.immediate, IMMEDIATE) | flag(self.essential, ESSENTIAL) | (self.priority as u8) << 4;
        put_u16(out, field::SEQUENCE, if tracked { self.sequence } else { 0 });
        put_u32(out, field::REPORTER, self.reporter);
    }
}

/// The operation that a report requests. Slices have the lengths given in its sub-header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation<'a> {
    /// Stores data under a key, in several slots.
    KeyWrite {
        /// Number of slots, 1 to 4.
        copies: u8,
        /// ID of the store.
        store: u16,
        /// Key, 1 to 64 bytes.
        key: &'a [u8],
        /// Data, 1 to 1024 bytes.
        data: &'a [u8],
    },
    /// Appends entries to a list.
    Append {
        /// ID of the list.
        list: u32,
        /// Length of an entry in bytes, at least 1.
        entry_len: u16,
        /// Concatenated entries, 1 to 255 of them.
        entries: &'a [u8],
    },
    /// Adds to the counters of a key.
    KeyIncrement {
        /// Number of counters, 1 to 4.
        copies: u8,
        /// ID of the store.
        store: u16,
        /// Amount to add, modulo 2^64.
        delta: u64,
        /// Key, 1 to 64 bytes.
        key: &'a [u8],
    },
    /// Stores the value of one hop on a key's path.
    Postcard {
        /// Position of the hop on the path, from 1.
        hop: u8,
        /// Number of hops on the path; 0: unknown.
        path_len: u8,
        /// ID of the store.
        store: u16,
        /// Value of the hop; all-ones is not allowed.
        value: u32,
        /// Key, 1 to 64 bytes.
        key: &'a [u8],
    },
    /// Merges columns of a sketch.
    SketchMerge {
        /// ID of the sketch.
        sketch: u16,
        /// Epoch of the columns.
        epoch: u16,
        /// Number of the first column.
        first_column: u32,
        /// Number of rows, 1 to 16.
        depth: u8,
        /// Counter width, 4 or 8 bytes.
        width: u8,
        /// Operation that merges two counters.
        op: MergeOp,
        /// Number of columns in the report, at least 1.
        columns: u8,
        /// Big-endian counters, column by column.
        counters: &'a [u8],
    },
}

impl<'a> Operation<'a> {
    /// Returns the opcode of the operation.
    #[inline]
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::KeyWrite { .. } => Opcode::KeyWrite,
            Self::Append { .. } => Opcode::Append,
            Self::KeyIncrement { .. } => Opcode::KeyIncrement,
            Self::Postcard { .. } => Opcode::Postcard,
            Self::SketchMerge { .. } => Opcode::SketchMerge,
        }
    }

    /// Returns the key of the operation, or `None` if it has none.
    #[inline]
    pub const fn key(&self) -> Option<&'a [u8]> {
        match self {
            Self::KeyWrite { key, .. } | Self::KeyIncrement { key, .. } | Self::Postcard { key, .. } => {
                Some(key)
            }
            Self::Append { .. } | Self::SketchMerge { .. } => None,
        }
    }

    /// Returns the immediate value that notifies the collector: the opcode in the top 4 bits, and the ID of the store, list
    /// or sketch.
    #[inline]
    pub const fn immediate_value(&self) -> u32 {
        let id = match *self {
            Self::KeyWrite { store, .. }
            | Self::KeyIncrement { store, .. }
            | Self::Postcard { store, .. } => store as u32,
            Self::Append { list, .. } => list,
            Self::SketchMerge { sketch, .. } => sketch as u32,
        };
        (self.opcode() as u32) << 28 | id & 0x0fff_ffff
    }

    /// Returns the length of the operation after the base header, bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        match *self {
            Self::KeyWrite { key, data, .. } => field::key_write::LEN + key.len() + data.len(),
            Self::Append { entries, .. } => field::append::LEN + entries.len(),
            Self::KeyIncrement { key, .. } => field::key_increment::LEN + key.len(),
            Self::Postcard { key, .. } => field::postcard::LEN + key.len(),
            Self::SketchMerge { counters, .. } => field::sketch::LEN + counters.len(),
        }
    }

    /// Returns `false`: an operation has at least a sub-header.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Checks the operation against the limits of DTA. Operations from [`Report::parse`] satisfy them.
    ///
    /// # Errors
    /// The first limit that is violated.
    #[inline(always)]
    pub fn check(&self) -> Result<(), Refusal> {
        match *self {
            Self::KeyWrite {
                copies, key, data, ..
            } => {
                copies_and_key(copies, key)?;
                ensure((1..=MAX_DATA).contains(&data.len()), Refusal::BadDataLength)
            }
            Self::Append {
                entry_len, entries, ..
            } => {
                let len = usize::from(entry_len);
                ensure(len > 0 && !entries.is_empty(), Refusal::BadEntries)?;
                let count = entries.len() / len;
                ensure(
                    count * len == entries.len() && count <= 255,
                    Refusal::BadDtaLength,
                )
            }
            Self::KeyIncrement { copies, key, .. } => copies_and_key(copies, key),
            Self::Postcard {
                hop,
                path_len,
                value,
                key,
                ..
            } => {
                ensure((1..=hash::MAX_KEY).contains(&key.len()), Refusal::BadKeyLength)?;
                ensure(hop > 0 && (path_len == 0 || hop <= path_len), Refusal::BadHop)?;
                ensure(value != layout::NO_HOP, Refusal::BadHopValue)
            }
            Self::SketchMerge {
                depth,
                width,
                op,
                columns,
                counters,
                ..
            } => {
                let wide_enough = width == 8 || width == 4 && op != MergeOp::Sample;
                let shaped = (1..=MAX_DEPTH).contains(&depth) && wide_enough && columns > 0;
                ensure(shaped, Refusal::BadSketch)?;
                let len = usize::from(columns) * usize::from(depth) * usize::from(width);
                ensure(counters.len() == len, Refusal::BadDtaLength)
            }
        }
    }
}

#[inline(always)]
fn ensure(good: bool, or: Refusal) -> Result<(), Refusal> {
    if good { Ok(()) } else { Err(or) }
}

#[inline(always)]
fn copies_and_key(copies: u8, key: &[u8]) -> Result<(), Refusal> {
    ensure(
        (1..=hash::MAX_COPIES).contains(&usize::from(copies)),
        Refusal::BadCopies,
    )?;
    ensure((1..=hash::MAX_KEY).contains(&key.len()), Refusal::BadKeyLength)
}

/// A DTA report: the payload of a datagram to [`REPORT_PORT`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Report<'a> {
    /// Flags, priority, sequence number and reporter.
    pub base: Base,
    /// The operation that the reporter requests.
    pub operation: Operation<'a>,
}

impl<'a> Report<'a> {
    /// Parses a datagram's payload.
    ///
    /// # Errors
    /// [`Refusal`] for every defect that does not depend on a store.
    #[inline]
    pub fn parse(payload: &'a [u8]) -> Result<Self, Refusal> {
        let (header, body) = payload
            .split_first_chunk::<BASE_LEN>()
            .ok_or(Refusal::Truncated)?;
        let (base, opcode) = Base::parse(header)?;
        let operation = match opcode {
            Opcode::KeyWrite => key_write(body),
            Opcode::Append => append(body),
            Opcode::KeyIncrement => key_increment(body),
            Opcode::Postcard => postcard(body),
            Opcode::SketchMerge => sketch_merge(body),
            Opcode::Control => Err(Refusal::BadDtaOpcode),
        }?;
        // A parsed Append satisfies all limits, and the check would divide by the entry length, which is slow.
        if opcode != Opcode::Append {
            operation.check()?;
        }
        Ok(Self { base, operation })
    }

    /// Returns the length of the report, bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        BASE_LEN + self.operation.len()
    }

    /// Returns `false`: a report has at least a base header.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the report and returns its length.
    ///
    /// # Errors
    /// [`EmitError`] if `out` is too short, or the operation exceeds a limit; nothing is written.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        self.operation.check().map_err(EmitError::Invalid)?;
        let len = self.len();
        let short = EmitError::Short(len);
        let out = out.get_mut(..len).ok_or(short)?;
        let (header, body) = out.split_first_chunk_mut::<BASE_LEN>().ok_or(short)?;
        self.base.emit(self.operation.opcode(), header);
        emit_operation(&self.operation, body);
        Ok(len)
    }
}

/// An Append that is neither essential nor immediate, the most common report at a busy translator, parsed in a few
/// instructions. [`PlainAppend::parse`] accepts exactly the reports that [`Report::parse`] returns as such an Append.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PlainAppend<'a> {
    /// ID of the list.
    pub list: u32,
    /// Length of an entry in bytes, at least 1.
    pub entry_len: u16,
    /// Concatenated entries, 1 to 255 of them.
    pub entries: &'a [u8],
}

impl<'a> PlainAppend<'a> {
    /// Parses a datagram's payload, or returns `None` if it is another report or malformed.
    #[inline(always)]
    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        const FIRST: u16 = (VERSION as u16) << 12 | (Opcode::Append as u16) << 8;
        const WISHES: u16 = (IMMEDIATE | ESSENTIAL) as u16;
        const NO_PRIORITY: u16 = 3 << 4;
        let (header, body) = payload.split_first_chunk::<BASE_LEN>()?;
        let first = u16_at(header, field::VERSION_OPCODE);
        if first & (0xff00 | WISHES) != FIRST || first & NO_PRIORITY == NO_PRIORITY {
            return None;
        }
        match append(body) {
            Ok(Operation::Append {
                list,
                entry_len,
                entries,
            }) => Some(Self {
                list,
                entry_len,
                entries,
            }),
            _ => None,
        }
    }
}

/// Splits off a sub-header of `N` bytes.
#[inline(always)]
fn split<const N: usize>(body: &[u8]) -> Result<(&[u8; N], &[u8]), Refusal> {
    body.split_first_chunk::<N>().ok_or(Refusal::Truncated)
}

#[inline]
fn key_write(body: &[u8]) -> Result<Operation<'_>, Refusal> {
    use field::key_write as at;
    let (header, rest) = split::<{ at::LEN }>(body)?;
    let key_len = usize::from(header[at::KEY_LEN]);
    let data_len = usize::from(u16_at(header, at::DATA_LEN));
    ensure(rest.len() == key_len + data_len, Refusal::BadDtaLength)?;
    let (key, data) = rest.split_at(key_len);
    Ok(Operation::KeyWrite {
        copies: header[at::COPIES],
        store: u16_at(header, at::STORE),
        key,
        data,
    })
}

#[inline(always)]
fn append(body: &[u8]) -> Result<Operation<'_>, Refusal> {
    use field::append as at;
    let (header, entries) = split::<{ at::LEN }>(body)?;
    let entry_len = u16_at(header, at::ENTRY_LEN);
    let count = usize::from(header[at::COUNT]);
    ensure(entry_len > 0 && count > 0, Refusal::BadEntries)?;
    ensure(
        entries.len() == usize::from(entry_len) * count,
        Refusal::BadDtaLength,
    )?;
    Ok(Operation::Append {
        list: u32_at(header, at::LIST),
        entry_len,
        entries,
    })
}

#[inline]
fn key_increment(body: &[u8]) -> Result<Operation<'_>, Refusal> {
    use field::key_increment as at;
    let (header, key) = split::<{ at::LEN }>(body)?;
    ensure(
        key.len() == usize::from(header[at::KEY_LEN]),
        Refusal::BadDtaLength,
    )?;
    let delta = u64::from(u32_at(header, at::DELTA)) << 32 | u64::from(u32_at(header, at::DELTA + 4));
    Ok(Operation::KeyIncrement {
        copies: header[at::COPIES],
        store: u16_at(header, at::STORE),
        delta,
        key,
    })
}

#[inline]
fn postcard(body: &[u8]) -> Result<Operation<'_>, Refusal> {
    use field::postcard as at;
    let (header, key) = split::<{ at::LEN }>(body)?;
    ensure(
        key.len() == usize::from(header[at::KEY_LEN]),
        Refusal::BadDtaLength,
    )?;
    Ok(Operation::Postcard {
        hop: header[at::HOP],
        path_len: header[at::PATH_LEN],
        store: u16_at(header, at::STORE),
        value: u32_at(header, at::VALUE),
        key,
    })
}

#[inline]
fn sketch_merge(body: &[u8]) -> Result<Operation<'_>, Refusal> {
    use field::sketch as at;
    let (header, counters) = split::<{ at::LEN }>(body)?;
    Ok(Operation::SketchMerge {
        sketch: u16_at(header, at::SKETCH),
        epoch: u16_at(header, at::EPOCH),
        first_column: u32_at(header, at::FIRST_COLUMN),
        depth: header[at::DEPTH],
        width: header[at::WIDTH],
        op: MergeOp::from_number(header[at::OP]).ok_or(Refusal::BadMergeOp)?,
        columns: header[at::COLUMNS],
        counters,
    })
}

/// Writes a validated operation; `out` has its length.
#[inline]
fn emit_operation(operation: &Operation<'_>, out: &mut [u8]) {
    match *operation {
        Operation::KeyWrite {
            copies,
            store,
            key,
            data,
        } => {
            use field::key_write as at;
            out[..at::LEN].fill(0);
            out[at::COPIES] = copies;
            out[at::KEY_LEN] = key.len() as u8;
            put_u16(out, at::DATA_LEN, data.len() as u16);
            put_u16(out, at::STORE, store);
            out[at::LEN..][..key.len()].copy_from_slice(key);
            out[at::LEN + key.len()..].copy_from_slice(data);
        }
        Operation::Append {
            list,
            entry_len,
            entries,
        } => {
            use field::append as at;
            out[..at::LEN].fill(0);
            put_u32(out, at::LIST, list);
            put_u16(out, at::ENTRY_LEN, entry_len);
            out[at::COUNT] = (entries.len() / usize::from(entry_len)) as u8;
            out[at::LEN..].copy_from_slice(entries);
        }
        Operation::KeyIncrement {
            copies,
            store,
            delta,
            key,
        } => {
            use field::key_increment as at;
            out[..at::LEN].fill(0);
            out[at::COPIES] = copies;
            out[at::KEY_LEN] = key.len() as u8;
            put_u16(out, at::STORE, store);
            put_u64(out, at::DELTA, delta);
            out[at::LEN..].copy_from_slice(key);
        }
        Operation::Postcard {
            hop,
            path_len,
            store,
            value,
            key,
        } => {
            use field::postcard as at;
            out[..at::LEN].fill(0);
            out[at::HOP] = hop;
            out[at::PATH_LEN] = path_len;
            out[at::KEY_LEN] = key.len() as u8;
            put_u16(out, at::STORE, store);
            put_u32(out, at::VALUE, value);
            out[at::LEN..].copy_from_slice(key);
        }
        Operation::SketchMerge {
            sketch,
            epoch,
            first_column,
            depth,
            width,
            op,
            columns,
            counters,
        } => {
            use field::sketch as at;
            put_u16(out, at::SKETCH, sketch);
            put_u16(out, at::EPOCH, epoch);
            put_u32(out, at::FIRST_COLUMN, first_column);
            out[at::DEPTH] = depth;
            out[at::WIDTH] = width;
            out[at::OP] = op as u8;
            out[at::COLUMNS] = columns;
            out[at::LEN..].copy_from_slice(counters);
        }
    }
}
