//! A Parquet column chunk: definition and repetition levels, values, dictionary and RLE encodings, and the column's metadata.

use std::collections::HashMap;

use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::thrift::{BINARY, I32, Writer};
use super::{OPTIONAL, REQUIRED};
use crate::protobuf::varint;

/// Maximum number of distinct numbers in a dictionary.
const MAX_DICTIONARY: usize = 1 << 14;
const PLAIN: u32 = 0;
const RLE: u32 = 3;
const DICTIONARY: u32 = 8;
const ZSTD: u32 = 6;

/// The values of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Time,
    Text,
}

/// A column of a row group under construction.
#[derive(Debug)]
pub(super) struct Column {
    path: Vec<&'static str>,
    kind: Kind,
    /// Maximum definition level: the level of a present value.
    max_level: u8,
    /// Definition level of each value: how many optional parts of its path are present.
    definitions: Vec<u32>,
    /// Repetition level of each list element: 0 starts a new list, 1 continues it. `None` if the column is not a list.
    repetitions: Option<Vec<u32>>,
    numbers: Vec<u64>,
    texts: Texts,
}

/// Text values: a dictionary, and the dictionary index of each value.
#[derive(Default, Debug)]
struct Texts {
    known: HashMap<Box<[u8]>, u32>,
    order: Vec<Box<[u8]>>,
    values: Vec<u32>,
}

/// A column's distinct values.
struct Dictionary {
    /// The values in plain encoding.
    plain: Vec<u8>,
    /// Number of values in the column.
    len: usize,
    /// Index in the dictionary of each value of the column.
    indexes: Vec<u32>,
}

/// Location of a written column in the file: byte offsets of its dictionary page, if any, and its data page.
#[derive(Debug)]
pub(super) struct Chunk {
    dictionary: Option<usize>,
    data: usize,
    /// Compressed size with page headers, bytes.
    len: usize,
    /// Uncompressed size with page headers, bytes.
    pub(super) raw: usize,
}

impl Column {
    /// Creates an empty column. `max_level` is the number of optional or repeated parts of its path.
    pub(super) fn new(path: &[&'static str], kind: Kind, max_level: u8) -> Self {
        Self {
            path: path.to_vec(),
            kind,
            max_level,
            definitions: Vec::new(),
            repetitions: None,
            numbers: Vec::new(),
            texts: Texts::default(),
        }
    }

    /// Creates an empty column of lists of 32-bit numbers.
    pub(super) fn list(path: &[&'static str]) -> Self {
        Self {
            repetitions: Some(Vec::new()),
            ..Self::new(path, Kind::Uint32, 3)
        }
    }

    /// Appends null: no optional part of the path is present.
    pub(super) fn push_null(&mut self) {
        self.push_absent(0);
    }

    /// Appends an absent value with this many optional parts of the path present.
    pub(super) fn push_absent(&mut self, present_parts: u8) {
        self.definitions.push(present_parts.into());
        self.repetitions.iter_mut().for_each(|list| list.push(0));
    }

    pub(super) fn push_number(&mut self, number: u64) {
        self.definitions.push(self.max_level.into());
        self.numbers.push(number);
    }

    pub(super) fn push_text(&mut self, text: &[u8]) {
        self.definitions.push(self.max_level.into());
        let Texts { known, order, values } = &mut self.texts;
        let number = match known.get(text) {
            Some(number) => *number,
            None => {
                let number = order.len() as u32;
                order.push(text.into());
                known.insert(text.into(), number);
                number
            }
        };
        values.push(number);
    }

    /// Appends a list. An empty list is null, as in JSON; `u32::MAX` is a null element.
    pub(super) fn push_list(&mut self, numbers: &[u32]) {
        if numbers.is_empty() {
            return self.push_null();
        }
        for (index, number) in numbers.iter().enumerate() {
            let is_present = *number != u32::MAX;
            self.definitions
                .push(u32::from(self.max_level) - u32::from(!is_present));
            self.repetitions
                .iter_mut()
                .for_each(|list| list.push(u32::from(index > 0)));
            if is_present {
                self.numbers.push((*number).into());
            }
        }
    }

    fn is_text(&self) -> bool {
        self.kind == Kind::Text
    }

    /// Returns the code of the physical type: INT32, INT64 or BYTE_ARRAY.
    fn stored_as(&self) -> u32 {
        match self.kind {
            Kind::Uint8 | Kind::Uint16 | Kind::Uint32 => 1,
            Kind::Uint64 | Kind::Time => 2,
            Kind::Text => 6,
        }
    }

    fn plain_number(&self, number: u64, out: &mut Vec<u8>) {
        match self.kind {
            // Timestamps are signed and end in 2262.
            Kind::Time => out.extend(i64::try_from(number).unwrap_or(i64::MAX).to_le_bytes()),
            Kind::Uint64 => out.extend(number.to_le_bytes()),
            _ => out.extend((number as u32).to_le_bytes()),
        }
    }

    /// Returns `None` if a dictionary does not pay off.
    fn dictionary(&self) -> Option<Dictionary> {
        let mut plain = Vec::new();
        if self.is_text() {
            let Texts { order, values, .. } = &self.texts;
            if order.is_empty() || order.len() > values.len() / 2 {
                return None;
            }
            order.iter().for_each(|text| plain_text(text, &mut plain));
            return Some(Dictionary {
                plain,
                len: order.len(),
                indexes: values.clone(),
            });
        }
        let max_entries = (self.numbers.len() / 2).min(MAX_DICTIONARY);
        let mut known = HashMap::new();
        let mut indexes = Vec::with_capacity(self.numbers.len());
        for number in &self.numbers {
            let next = known.len() as u32;
            let index = *known.entry(*number).or_insert(next);
            if index == next {
                self.plain_number(*number, &mut plain);
            }
            if known.len() > max_entries {
                return None;
            }
            indexes.push(index);
        }
        (!indexes.is_empty()).then_some(Dictionary {
            plain,
            len: known.len(),
            indexes,
        })
    }

    /// Appends the column's pages to the file.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Chunk {
        let start = out.len();
        let mut data = Vec::new();
        if let Some(repetitions) = &self.repetitions {
            levels(repetitions, 1, &mut data);
        }
        if self.max_level > 0 {
            levels(&self.definitions, bits(self.max_level.into()), &mut data);
        }
        let mut raw = 0;
        let mut dictionary = None;
        match self.dictionary() {
            Some(Dictionary { plain, len, indexes }) => {
                raw += write_page(out, &plain, Page::Dictionary(len));
                dictionary = Some(start);
                let width = bits(len as u32 - 1).max(1);
                data.push(width as u8);
                hybrid(&indexes, width, &mut data);
            }
            None if self.is_text() => {
                let Texts { order, values, .. } = &self.texts;
                values
                    .iter()
                    .for_each(|number| plain_text(&order[*number as usize], &mut data));
            }
            None => self
                .numbers
                .iter()
                .for_each(|number| self.plain_number(*number, &mut data)),
        }
        let page_offset = out.len();
        let encoding = if dictionary.is_some() { DICTIONARY } else { PLAIN };
        raw += write_page(out, &data, Page::Data(self.definitions.len(), encoding));
        Chunk {
            dictionary,
            data: page_offset,
            len: out.len() - start,
            raw,
        }
    }

    /// Writes the column's `SchemaElement`.
    pub(super) fn declare(&self, thrift: &mut Writer<'_>) {
        let name = self.path.last().copied().unwrap_or_default();
        let own_level = self.max_level - u8::from(self.path.len() == 2) - 2 * u8::from(self.path.len() == 3);
        thrift.begin();
        thrift.i32(1, self.stored_as());
        thrift.i32(3, if own_level > 0 { OPTIONAL } else { REQUIRED });
        thrift.bytes(4, name.as_bytes());
        // `converted_type`, for readers that predate logical types.
        let converted = match self.kind {
            Kind::Text => Some(0),
            Kind::Uint8 => Some(11),
            Kind::Uint16 => Some(12),
            Kind::Uint32 => Some(13),
            Kind::Uint64 => Some(14),
            Kind::Time => None,
        };
        converted.into_iter().for_each(|code| thrift.i32(6, code));
        thrift.begin_field(10);
        let width = match self.kind {
            Kind::Text => {
                thrift.begin_field(1);
                None
            }
            Kind::Time => {
                thrift.begin_field(8);
                thrift.bool(1, true);
                thrift.begin_field(2);
                thrift.begin_field(3);
                thrift.end();
                thrift.end();
                None
            }
            Kind::Uint8 => Some(8),
            Kind::Uint16 => Some(16),
            Kind::Uint32 => Some(32),
            Kind::Uint64 => Some(64),
        };
        if let Some(width) = width {
            thrift.begin_field(10);
            thrift.byte(1, width);
            thrift.bool(2, false);
        }
        thrift.end();
        thrift.end();
        thrift.end();
    }

    /// Writes the column's `ColumnChunk` with its metadata.
    pub(super) fn describe(&self, chunk: &Chunk, thrift: &mut Writer<'_>) {
        thrift.begin();
        thrift.i64(2, chunk.dictionary.unwrap_or(chunk.data) as u64);
        thrift.begin_field(3);
        thrift.i32(1, self.stored_as());
        let encodings: &[u32] = if chunk.dictionary.is_some() {
            &[PLAIN, RLE, DICTIONARY]
        } else {
            &[PLAIN, RLE]
        };
        thrift.list(2, I32, encodings.len());
        encodings.iter().for_each(|code| thrift.number((*code).into()));
        thrift.list(3, BINARY, self.path.len());
        self.path.iter().for_each(|part| thrift.element(part.as_bytes()));
        thrift.i32(4, ZSTD);
        thrift.i64(5, self.definitions.len() as u64);
        thrift.i64(6, chunk.raw as u64);
        thrift.i64(7, chunk.len as u64);
        thrift.i64(9, chunk.data as u64);
        chunk
            .dictionary
            .into_iter()
            .for_each(|at| thrift.i64(11, at as u64));
        // Time statistics let a reader skip the file.
        if let (Kind::Time, Some(first), Some(last)) =
            (self.kind, self.numbers.iter().min(), self.numbers.iter().max())
        {
            thrift.begin_field(12);
            thrift.i64(3, (self.definitions.len() - self.numbers.len()) as u64);
            for (field, number) in [(5, *last), (6, *first)] {
                let mut bytes = Vec::new();
                self.plain_number(number, &mut bytes);
                thrift.bytes(field, &bytes);
            }
            thrift.end();
        }
        thrift.end();
        thrift.end();
    }
}

fn plain_text(text: &[u8], out: &mut Vec<u8>) {
    out.extend((text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
}

/// The type of a page.
#[derive(Clone, Copy, Debug)]
enum Page {
    /// A dictionary page with this many values.
    Dictionary(usize),
    /// A data page: number of values including nulls, and their encoding.
    Data(usize, u32),
}

/// Appends a compressed page. Returns its uncompressed size with the header, bytes.
fn write_page(out: &mut Vec<u8>, content: &[u8], kind: Page) -> usize {
    let packed = compress_to_vec(content, CompressionLevel::Fastest);
    let start = out.len();
    let mut thrift = Writer::new(out);
    thrift.i32(1, if let Page::Dictionary(_) = kind { 2 } else { 0 });
    thrift.i32(2, content.len() as u32);
    thrift.i32(3, packed.len() as u32);
    match kind {
        Page::Dictionary(len) => {
            thrift.begin_field(7);
            thrift.i32(1, len as u32);
            thrift.i32(2, PLAIN);
        }
        Page::Data(count, encoding) => {
            thrift.begin_field(5);
            thrift.i32(1, count as u32);
            thrift.i32(2, encoding);
            thrift.i32(3, RLE);
            thrift.i32(4, RLE);
        }
    }
    thrift.end();
    thrift.end();
    let header = out.len() - start;
    out.extend(packed);
    header + content.len()
}

/// Returns the bit width of numbers up to `max`.
fn bits(max: u32) -> u32 {
    u32::BITS - max.leading_zeros()
}

/// Appends levels, prefixed by their length in bytes.
fn levels(levels: &[u32], width: u32, out: &mut Vec<u8>) {
    let length_offset = out.len();
    out.extend([0; 4]);
    hybrid(levels, width, out);
    let len = (out.len() - length_offset - 4) as u32;
    out[length_offset..length_offset + 4].copy_from_slice(&len.to_le_bytes());
}

/// Appends numbers in the RLE/bit-packing hybrid encoding: runs of a repeated number, and groups of eight numbers with `width`
/// bits each.
fn hybrid(numbers: &[u32], width: u32, out: &mut Vec<u8>) {
    let mut literal = 0;
    let mut index = 0;
    while index < numbers.len() {
        let run = numbers[index..]
            .iter()
            .take_while(|number| **number == numbers[index])
            .count();
        // The first `fills` numbers of the run complete the last literal group.
        let fills = (8 - (index - literal) % 8) % 8;
        if run < fills + 8 {
            index += run;
            continue;
        }
        pack(&numbers[literal..index + fills], width, out);
        varint((run as u64 - fills as u64) << 1, out);
        out.extend_from_slice(&numbers[index].to_le_bytes()[..width.div_ceil(8) as usize]);
        index += run;
        literal = index;
    }
    pack(&numbers[literal..], width, out);
}

/// Appends a bit-packed run, padded with zeros to a multiple of eight numbers.
fn pack(numbers: &[u32], width: u32, out: &mut Vec<u8>) {
    if numbers.is_empty() {
        return;
    }
    let groups = numbers.len().div_ceil(8);
    varint((groups as u64) << 1 | 1, out);
    let mut bytes = 0_u64;
    let mut filled = 0;
    let padded = numbers
        .iter()
        .copied()
        .chain(std::iter::repeat(0))
        .take(groups * 8);
    for number in padded {
        bytes |= u64::from(number) << filled;
        filled += width;
        while filled >= 8 {
            out.push(bytes as u8);
            (bytes, filled) = (bytes >> 8, filled - 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::rng::Rng;

    /// Decodes RLE and bit-packed runs, as a Parquet reader does.
    fn read(mut bytes: &[u8], width: u32) -> Vec<u32> {
        let mut numbers = Vec::new();
        while !bytes.is_empty() {
            let mut head = 0_u64;
            let mut shift = 0;
            loop {
                let (first, rest) = bytes.split_first().unwrap();
                bytes = rest;
                head |= u64::from(first & 0x7f) << shift;
                shift += 7;
                if first & 0x80 == 0 {
                    break;
                }
            }
            if head & 1 == 0 {
                let (value, rest) = bytes.split_at(width.div_ceil(8) as usize);
                let number = value
                    .iter()
                    .rev()
                    .fold(0, |number, byte| number << 8 | u32::from(*byte));
                numbers.extend(std::iter::repeat_n(number, (head >> 1) as usize));
                bytes = rest;
                continue;
            }
            let (packed, rest) = bytes.split_at((head >> 1) as usize * width as usize);
            for at in 0..(head >> 1) as usize * 8 {
                let bit = |bit: usize| u32::from(packed[bit / 8] >> (bit % 8) & 1);
                let from = at * width as usize;
                numbers.push((0..width as usize).map(|place| bit(from + place) << place).sum());
            }
            bytes = rest;
        }
        numbers
    }

    #[test]
    fn runs_and_groups_are_read_back() {
        for seed in 0..2_000 {
            let mut rng = Rng(seed);
            let width = 1 + rng.below(17) as u32;
            let mut numbers = Vec::new();
            for _ in 0..rng.below(8) {
                let long = rng.below(2) == 0;
                let number = rng.roll() as u32 & ((1 << width) - 1);
                let count = if long { rng.below(40) } else { 1 };
                numbers.extend(std::iter::repeat_n(number, count));
            }
            let mut bytes = Vec::new();
            hybrid(&numbers, width, &mut bytes);
            let found = read(&bytes, width);
            // Only the last group is filled up.
            assert_eq!(&found[..numbers.len()], numbers, "{seed} {width}");
            assert!(found.len() < numbers.len() + 8 && found[numbers.len()..].iter().all(|more| *more == 0));
        }
    }

    #[test]
    fn a_run_is_short() {
        let mut bytes = Vec::new();
        hybrid(&[5; 100_000], 3, &mut bytes);
        assert_eq!(bytes, [0xc0, 0x9a, 0x0c, 5]);
    }

    #[test]
    fn compressed_pages_are_what_they_were() {
        use std::io::Read as _;
        for seed in 0..300 {
            let mut rng = Rng(seed);
            let kinds = 1 + rng.below(255) as u64;
            let len = rng.below(300_000) * rng.below(2) + rng.below(500);
            let content: Vec<u8> = (0..len)
                .map(|at| (rng.roll() % kinds) as u8 ^ (at / 1000) as u8)
                .collect();
            let mut out = Vec::new();
            let raw = write_page(&mut out, &content, Page::Dictionary(3));
            let header = raw - content.len();
            let mut decoder = ruzstd::decoding::StreamingDecoder::new(&out[header..]).unwrap();
            let mut read = Vec::new();
            decoder.read_to_end(&mut read).unwrap();
            assert!(read == content, "{seed}");
        }
    }
}
