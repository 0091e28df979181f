//! Encoder for ClickHouse's `Native` format: a block stores each column contiguously, as the server does. The server ingests it
//! twice as fast as `RowBinary`, which must be split into columns first (ClickHouse documentation, *Formats*: `Native`; *Native
//! protocol*: columns).

use std::collections::HashMap;

use wire::FlowKey;

use super::{ABSENT, Column, FLOW_COLUMNS, Kind};
use crate::record::{FieldKind, Fields, Value};
use crate::text;

/// Initial capacity for a text, bytes.
const TEXT_BYTES: usize = 40;

/// A block under construction.
#[derive(Debug)]
pub(super) struct Block {
    columns: Vec<(Column, Values)>,
    rows: usize,
}

/// The values of a column so far.
#[derive(Debug)]
enum Values {
    /// Numbers and addresses, or texts with their lengths.
    Plain(Vec<u8>),
    /// Null map (one byte per value, 1 if absent), and the numbers.
    Optional(Vec<u8>, Vec<u8>),
    /// End offset of each list, and the numbers of all lists.
    Lists(Vec<u8>, Vec<u8>),
    Words(Words),
}

/// Values of a `LowCardinality` column: a dictionary, and the index of each row.
#[derive(Default, Debug)]
struct Words {
    numbers: HashMap<String, u32>,
    texts: Vec<u8>,
    rows: Vec<u32>,
    /// Text of the previous row, to skip the lookup for repeats.
    last: String,
}

impl Values {
    fn new(kind: Kind, rows: usize) -> Self {
        match kind {
            Kind::MaybeU64 => Self::Optional(Vec::with_capacity(rows), Vec::with_capacity(8 * rows)),
            Kind::Numbers => Self::Lists(Vec::with_capacity(8 * rows), Vec::new()),
            Kind::Word => Self::Words(Words {
                rows: Vec::with_capacity(rows),
                ..Words::default()
            }),
            kind => Self::Plain(Vec::with_capacity(rows * kind.width().unwrap_or(TEXT_BYTES))),
        }
    }

    /// Returns the size of the values, bytes.
    fn size(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            Self::Optional(first, second) | Self::Lists(first, second) => first.len() + second.len(),
            Self::Words(words) => words.texts.len() + 4 * words.rows.len() + 32,
        }
    }
}

impl Block {
    /// Returns a block without rows, with capacity for `rows`.
    pub(super) fn new(columns: Vec<Column>, rows: usize) -> Self {
        let columns = columns
            .into_iter()
            .map(|column| (column, Values::new(column.kind, rows)))
            .collect();
        Self { columns, rows: 0 }
    }

    /// Appends a record. Its fields must be in the order of the columns.
    pub(super) fn push(&mut self, record: &impl Fields) {
        let mut columns = self.columns.iter_mut();
        record.visit_fields(|field, value| {
            let count = if field.kind == FieldKind::Flow {
                FLOW_COLUMNS.len()
            } else {
                1
            };
            let mut next = columns.by_ref().take(count);
            match value {
                Value::Flow(flow) => put_flow(flow, &mut next),
                value => next.for_each(|(column, values)| put(column.kind, value, values)),
            }
        });
        self.rows += 1;
    }

    /// Returns the encoded block. Each column is freed once it is written, so that two copies of the block are never in memory.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        let size = self.columns.iter().map(|(_, values)| values.size() + 64).sum();
        let mut body = Vec::with_capacity(size);
        length(self.columns.len(), &mut body);
        length(self.rows, &mut body);
        for (column, values) in self.columns {
            text(column.name, &mut body);
            text(column.kind.name(), &mut body);
            match values {
                Values::Plain(bytes) => body.extend_from_slice(&bytes),
                Values::Optional(first, second) | Values::Lists(first, second) => {
                    body.extend_from_slice(&first);
                    body.extend_from_slice(&second);
                }
                Values::Words(words) => words.write(&mut body),
            }
        }
        body
    }
}

/// Appends the value of a field, or the column's default if it is absent.
fn put(kind: Kind, value: Value<'_>, values: &mut Values) {
    let number = match value {
        Value::Number(number) | Value::Id(number) => Some(number),
        _ => None,
    };
    match values {
        Values::Plain(bytes) => match (kind, value) {
            (Kind::Address, Value::Address(address)) => bytes.extend_from_slice(address),
            (Kind::Address, _) => bytes.extend_from_slice(&[0; 16]),
            (Kind::Text, Value::Text(value)) => text(value, bytes),
            (Kind::Text, _) => text("", bytes),
            // `DateTime64(9)` is signed and ends in the year 2262.
            (Kind::Time, _) => {
                let time = number.unwrap_or(0).min(i64::MAX.cast_unsigned());
                bytes.extend_from_slice(&time.to_le_bytes());
            }
            (Kind::U32, _) => {
                let number = number.map_or(ABSENT, |number| u32::try_from(number).unwrap_or(u32::MAX));
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            _ => {
                // Too large numbers saturate.
                let width = kind.width().unwrap_or(size_of::<u64>());
                let number = number
                    .unwrap_or(0)
                    .min(u64::MAX >> (u64::BITS as usize - 8 * width));
                bytes.extend_from_slice(&number.to_le_bytes()[..width]);
            }
        },
        Values::Optional(absent, numbers) => {
            absent.push(u8::from(number.is_none()));
            numbers.extend_from_slice(&number.unwrap_or(0).to_le_bytes());
        }
        Values::Lists(ends, numbers) => {
            if let Value::Numbers(list) = value {
                list.iter()
                    .for_each(|number| numbers.extend_from_slice(&number.to_le_bytes()));
            }
            ends.extend_from_slice(&((numbers.len() / size_of::<u32>()) as u64).to_le_bytes());
        }
        Values::Words(words) => words.push(if let Value::Text(text) = value { text } else { "" }),
    }
}

/// Appends a flow to its six columns: text, two addresses, two ports, protocol. All but the text and protocol are 0 for a flow
/// known only by its Flow ID.
fn put_flow<'c>(flow: &FlowKey, columns: &mut impl Iterator<Item = &'c mut (Column, Values)>) {
    let (sport, dport) = flow.ports().unwrap_or((0, 0));
    let [src, dst] = match flow.known_id() {
        Some(_) => [&[0; 16]; 2],
        None => [flow.src_octets(), flow.dst_octets()],
    };
    if let Some((_, Values::Plain(bytes))) = columns.next() {
        let start = bytes.len();
        bytes.push(0);
        text::flow(flow, bytes);
        // The text is shorter than 128 bytes, so its length takes one byte.
        bytes[start] = (bytes.len() - start - 1).min(0x7f) as u8;
    }
    let numbers = [sport.into(), dport.into(), flow.proto().into()].map(Value::Number);
    let rest = [Value::Address(src), Value::Address(dst)]
        .into_iter()
        .chain(numbers);
    columns
        .zip(rest)
        .for_each(|((column, values), value)| put(column.kind, value, values));
}

impl Words {
    fn push(&mut self, word: &str) {
        if let Some(last) = self.rows.last().copied()
            && is_same(&self.last, word)
        {
            return self.rows.push(last);
        }
        let number = match self.numbers.get(word) {
            Some(number) => *number,
            None => {
                let number = self.numbers.len() as u32;
                text(word, &mut self.texts);
                self.numbers.insert(word.to_owned(), number);
                number
            }
        };
        self.rows.push(number);
        word.clone_into(&mut self.last);
    }

    /// Writes a `LowCardinality` column: serialization version, flags, dictionary, and the rows' indexes in the narrowest type.
    fn write(self, body: &mut Vec<u8>) {
        const VERSION: u64 = 1;
        /// Flags: the block has its own dictionary, and no shared one.
        const HAS_ADDITIONAL_KEYS: u64 = 1 << 9 | 1 << 10;
        let width = match self.numbers.len() {
            0..=0x100 => 0,
            0x101..=0x1_0000 => 1,
            _ => 2,
        };
        for number in [VERSION, HAS_ADDITIONAL_KEYS | width, self.numbers.len() as u64] {
            body.extend_from_slice(&number.to_le_bytes());
        }
        // Frees the keys, which are copies of all texts.
        drop(self.numbers);
        body.extend_from_slice(&self.texts);
        body.extend_from_slice(&(self.rows.len() as u64).to_le_bytes());
        match width {
            0 => body.extend(self.rows.iter().map(|row| *row as u8)),
            1 => self
                .rows
                .iter()
                .for_each(|row| body.extend_from_slice(&(*row as u16).to_le_bytes())),
            _ => self
                .rows
                .iter()
                .for_each(|row| body.extend_from_slice(&row.to_le_bytes())),
        }
    }
}

/// Returns true if two short texts are equal. Calling `memcmp` for each text was half of the cost of encoding events.
fn is_same(text: &str, other: &str) -> bool {
    text.len() == other.len() && text.bytes().zip(other.bytes()).all(|(text, other)| text == other)
}

fn text(text: &str, body: &mut Vec<u8>) {
    length(text.len(), body);
    body.extend_from_slice(text.as_bytes());
}

/// Appends a length as LEB128.
fn length(mut length: usize, body: &mut Vec<u8>) {
    while length >= 0x80 {
        body.push(length as u8 | 0x80);
        length >>= 7;
    }
    body.push(length as u8);
}
