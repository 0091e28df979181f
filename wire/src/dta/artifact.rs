//! DTA in the layouts of the *artifact*, the code published with the DTA paper (`docs/reference/wire-formats.md`, section
//! 5.2): base headers of 2 or 3 bytes, and 4-byte keys, data and entries.
//!
//! Opcode and length tell which base header a datagram has. Reporter, store and priority are not on the wire: the caller
//! passes the reporter, the store is 0, and the priority is medium. Sequence numbers have 8 bits. The module also has the
//! artifact's memory slot of a path: five words, each masked with a CRC of the key.

use super::layout::NO_HOP;
use super::{Base, EmitError, Operation, Priority, Report, ensure, hash};
use crate::bytes::{flag, put_u16, put_u32, put_u64, u32_at};
use crate::refusal::Refusal;

/// Maximum length of a report, bytes.
pub const MAX_LEN: usize = 16;
/// Number of hops of a path.
pub const HOPS: u8 = 5;
/// Length of keys, data and entries, bytes.
pub const WORD: usize = 4;
const IMMEDIATE: u8 = 0x80;
const ESSENTIAL: u8 = 0x40;
const NACK: u8 = 0x80;
/// Length of a path's slot in bytes: a word per hop, without a checksum. Slots are 32 bytes apart.
pub const PATH_LEN: usize = WORD * HOPS as usize;
/// Polynomials of the hops' masks, most significant bit first. The first and the last lack low terms, a defect of the
/// artifact.
pub const POLYNOMIALS: [u32; HOPS as usize] =
    [0x1e12_a700, 0x65b9_6595, 0x49cf_878b, 0x3651_8f0d, 0x7a40_a908];
static MASKS: [[u32; 256]; HOPS as usize] = mask_tables();

/// The two variants of the base header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// Two bytes: opcode, flags.
    Plain,
    /// Three bytes: opcode, sequence number, flags. The translator can request missing reports.
    Tracked,
}

impl Form {
    /// Returns the length of the base header, bytes.
    #[inline]
    pub const fn base_len(self) -> usize {
        match self {
            Self::Plain => 2,
            Self::Tracked => 3,
        }
    }
}

/// Returns whether a payload has the artifact's layout rather than DTA v1: its first byte is an opcode from 1 to 4.
#[inline]
pub fn is_artifact(payload: &[u8]) -> bool {
    matches!(payload.first(), Some(1..=4))
}

/// Returns the length after the base header by opcode, bytes, or `None` for an unknown opcode.
#[inline]
const fn body_len(opcode: u8) -> Option<usize> {
    match opcode {
        1 | 4 => Some(9),
        2 => Some(8),
        3 => Some(13),
        _ => None,
    }
}

/// Parses a datagram's payload from `reporter`, and returns the report and the variant of its base header.
///
/// # Errors
/// [`Refusal`] for an unknown opcode or wrong length, a number of copies outside 1 to 4, or a hop outside 1 to 5.
#[inline]
pub fn parse(payload: &[u8], reporter: u32) -> Result<(Report<'_>, Form), Refusal> {
    let opcode = *payload.first().ok_or(Refusal::Truncated)?;
    let body_len = body_len(opcode).ok_or(Refusal::BadDtaOpcode)?;
    let form = match payload.len().checked_sub(body_len) {
        Some(2) => Form::Plain,
        Some(3) => Form::Tracked,
        _ => return Err(Refusal::BadDtaLength),
    };
    let (base, body) = payload.split_at(form.base_len());
    let base = match *base {
        [_, sequence, flags] => {
            let essential = flags & ESSENTIAL != 0;
            let sequence = if essential { u16::from(sequence) } else { 0 };
            Base {
                immediate: flags & IMMEDIATE != 0,
                essential,
                sequence,
                ..medium(reporter)
            }
        }
        _ => Base {
            immediate: payload[1] & IMMEDIATE != 0,
            ..medium(reporter)
        },
    };
    let operation = operation(opcode, body)?;
    operation.check()?;
    Ok((Report { base, operation }, form))
}

#[inline]
fn medium(reporter: u32) -> Base {
    Base {
        priority: Priority::Medium,
        reporter,
        ..Base::default()
    }
}

/// Parses an operation; `body` has the length of [`body_len`].
#[inline]
fn operation(opcode: u8, body: &[u8]) -> Result<Operation<'_>, Refusal> {
    Ok(match opcode {
        1 => Operation::KeyWrite {
            copies: body[0],
            store: 0,
            key: &body[1..5],
            data: &body[5..9],
        },
        2 => Operation::Append {
            list: u32_at(body, 0),
            entry_len: WORD as u16,
            entries: &body[4..8],
        },
        3 => Operation::KeyIncrement {
            copies: body[0],
            store: 0,
            delta: u64::from(u32_at(body, 5)) << 32 | u64::from(u32_at(body, 9)),
            key: &body[1..5],
        },
        _ => {
            ensure((1..=HOPS).contains(&body[4]), Refusal::BadHop)?;
            Operation::Postcard {
                hop: body[4],
                path_len: 0,
                store: 0,
                value: u32_at(body, 5),
                key: &body[..4],
            }
        }
    })
}

/// Writes a report in the artifact's layout and returns its length, at most [`MAX_LEN`]. Reporter, store, priority and path
/// length are not written, nor is the essential flag in the plain form.
///
/// # Errors
/// [`EmitError`] if `out` is too short, or if the operation is invalid or has no such layout; nothing is written.
pub fn emit(report: &Report<'_>, form: Form, out: &mut [u8]) -> Result<usize, EmitError> {
    report.operation.check().map_err(EmitError::Invalid)?;
    let mut body = [0; MAX_LEN];
    let len = emit_body(&report.operation, &mut body).map_err(EmitError::Invalid)?;
    let base_len = form.base_len();
    let out = out
        .get_mut(..base_len + len)
        .ok_or(EmitError::Short(base_len + len))?;
    let Base {
        immediate,
        essential,
        sequence,
        ..
    } = report.base;
    out[0] = report.operation.opcode() as u8;
    let immediate = flag(immediate, IMMEDIATE);
    match form {
        Form::Plain => out[1] = immediate,
        Form::Tracked => {
            out[1] = if essential { sequence as u8 } else { 0 };
            out[2] = immediate | flag(essential, ESSENTIAL);
        }
    }
    out[base_len..].copy_from_slice(&body[..len]);
    Ok(base_len + len)
}

/// Returns four bytes as a big-endian word, or `refusal` for any other number of bytes.
fn word(bytes: &[u8], refusal: Refusal) -> Result<u32, Refusal> {
    bytes.try_into().map(u32::from_be_bytes).map_err(|_| refusal)
}

fn emit_body(operation: &Operation<'_>, out: &mut [u8; MAX_LEN]) -> Result<usize, Refusal> {
    match *operation {
        Operation::KeyWrite {
            copies, key, data, ..
        } => {
            out[0] = copies;
            put_u32(out, 1, word(key, Refusal::BadKeyLength)?);
            put_u32(out, 5, word(data, Refusal::BadDataLength)?);
            Ok(9)
        }
        Operation::Append { list, entries, .. } => {
            put_u32(out, 0, list);
            put_u32(out, 4, word(entries, Refusal::BadEntries)?);
            Ok(8)
        }
        Operation::KeyIncrement {
            copies, delta, key, ..
        } => {
            out[0] = copies;
            put_u32(out, 1, word(key, Refusal::BadKeyLength)?);
            put_u64(out, 5, delta);
            Ok(13)
        }
        Operation::Postcard { hop, value, key, .. } => {
            ensure(hop <= HOPS, Refusal::BadHop)?;
            put_u32(out, 0, word(key, Refusal::BadKeyLength)?);
            out[4] = hop;
            put_u32(out, 5, value);
            Ok(9)
        }
        Operation::SketchMerge { .. } => Err(Refusal::BadDtaOpcode),
    }
}

/// The artifact's only control message, which names the last sequence number accepted in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Nack {
    /// Last sequence number in order.
    pub last: u8,
}

impl Nack {
    /// Parses a datagram's payload.
    ///
    /// # Errors
    /// [`Refusal`] unless it is two bytes with the NACK bit.
    pub fn parse(payload: &[u8]) -> Result<Self, Refusal> {
        match *payload {
            [last, flags] if flags & NACK != 0 => Ok(Self { last }),
            [_, _] => Err(Refusal::BadControl),
            [] | [_] => Err(Refusal::Truncated),
            _ => Err(Refusal::BadDtaLength),
        }
    }

    /// Returns the payload of a datagram.
    pub fn emit(self) -> [u8; 2] {
        let mut out = [0; 2];
        put_u16(&mut out, 0, u16::from_be_bytes([self.last, NACK]));
        out
    }
}

const fn mask_tables() -> [[u32; 256]; HOPS as usize] {
    let mut tables = [[0; 256]; HOPS as usize];
    let mut hop = 0;
    while hop < POLYNOMIALS.len() {
        let polynomial = POLYNOMIALS[hop].reverse_bits();
        let mut byte = 0;
        while byte < 256 {
            let mut crc = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 {
                    crc >> 1 ^ polynomial
                } else {
                    crc >> 1
                };
                bit += 1;
            }
            tables[hop][byte] = crc;
            byte += 1;
        }
        hop += 1;
    }
    tables
}

/// Returns the mask of a hop's value: a CRC of the key (reflected, all ones before and after) with the hop's polynomial.
fn mask(table: &[u32; 256], key: &[u8]) -> u32 {
    !key.iter().fold(u32::MAX, |crc, byte| {
        crc >> 8 ^ table[usize::from(crc as u8 ^ byte)]
    })
}

/// Returns the slot of a key's path in a store of `slots`, a power of two: selected by the plain CRC-32 of the key, without
/// reversal or copy number.
#[inline]
pub fn path_slot(key: &[u8], slots: u64) -> u64 {
    hash::slot(hash::hashes(key).checksum, slots)
}

/// Writes the slot of a path: each value masked, or 0 if it is [`NO_HOP`] or missing in `values`. Returns the length
/// [`PATH_LEN`], or `None` with nothing written if `out` is shorter.
pub fn put_path(out: &mut [u8], key: &[u8], values: &[u32]) -> Option<usize> {
    let words = out.first_chunk_mut::<PATH_LEN>()?.as_chunks_mut::<WORD>().0;
    let values = values.iter().copied().chain(core::iter::repeat(NO_HOP));
    for ((word, value), table) in words.iter_mut().zip(values).zip(&MASKS) {
        *word = if value == NO_HOP {
            [0; WORD]
        } else {
            (value ^ mask(table, key)).to_be_bytes()
        };
    }
    Some(PATH_LEN)
}

/// Decodes a path's slot **under the assumption that it belongs to this key**: a slot does not identify its key, and
/// another key's values decode to random numbers. A zero word gives `None`: the hop is missing, or its value equals the
/// mask (probability 2^-32).
pub fn path_of(slot: &[u8; PATH_LEN], key: &[u8]) -> [Option<u32>; HOPS as usize] {
    let words = slot.as_chunks::<WORD>().0;
    core::array::from_fn(|hop| {
        let word = u32::from_be_bytes(words[hop]);
        Some(word)
            .filter(|word| *word != 0)
            .map(|word| word ^ mask(&MASKS[hop], key))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of `docs/reference/wire-formats.md`, section 5.2, and two written for this test.
    const EXAMPLES: [(&[u8], Form); 6] = [
        (&[1, 0, 2, 10, 0, 0, 1, 0, 0, 2, 0x9a], Form::Plain),
        (&[1, 0x2a, 0x40, 2, 10, 0, 0, 1, 0, 0, 2, 0x9a], Form::Tracked),
        (&[2, 0, 0, 0, 0, 3, 0xde, 0xad, 0xbe, 0xef], Form::Plain),
        (&[3, 0, 2, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5], Form::Plain),
        (&[4, 0, 10, 0, 0, 1, 2, 0, 0, 0, 0xc8], Form::Plain),
        (&[2, 0xff, 0xc0, 0, 0, 0, 3, 1, 2, 3, 4], Form::Tracked),
    ];

    fn base(immediate: bool, essential: bool, sequence: u16) -> Base {
        Base {
            immediate,
            essential,
            sequence,
            priority: Priority::Medium,
            reporter: 9,
        }
    }

    #[test]
    fn the_examples_of_section_5_2() {
        let key = &[10, 0, 0, 1][..];
        let write = Operation::KeyWrite {
            copies: 2,
            store: 0,
            key,
            data: &[0, 0, 2, 0x9a],
        };
        let operations = [
            (base(false, false, 0), write),
            (base(false, true, 0x2a), write),
            (
                base(false, false, 0),
                Operation::Append {
                    list: 3,
                    entry_len: 4,
                    entries: &[0xde, 0xad, 0xbe, 0xef],
                },
            ),
            (
                base(false, false, 0),
                Operation::KeyIncrement {
                    copies: 2,
                    store: 0,
                    delta: 5,
                    key,
                },
            ),
            (
                base(false, false, 0),
                Operation::Postcard {
                    hop: 2,
                    path_len: 0,
                    store: 0,
                    value: 200,
                    key,
                },
            ),
            (
                base(true, true, 0xff),
                Operation::Append {
                    list: 3,
                    entry_len: 4,
                    entries: &[1, 2, 3, 4],
                },
            ),
        ];
        for ((bytes, form), (base, operation)) in EXAMPLES.into_iter().zip(operations) {
            let report = Report { base, operation };
            assert!(is_artifact(bytes));
            assert_eq!(parse(bytes, 9), Ok((report, form)));
            let mut out = [0xa5; MAX_LEN];
            assert_eq!(emit(&report, form, &mut out), Ok(bytes.len()));
            assert_eq!(out[..bytes.len()], *bytes);
            assert_eq!(
                emit(&report, form, &mut out[..bytes.len() - 1]),
                Err(EmitError::Short(bytes.len()))
            );
            assert!(Report::parse(bytes).is_err(), "version 1 is something else");
        }
        assert_eq!(
            (Nack::parse(&[0x29, 0x80]), Nack { last: 0x29 }.emit()),
            (Ok(Nack { last: 0x29 }), [0x29, 0x80])
        );
    }

    /// The postcard of the wire formats' section 5.2 (key 10.0.0.1, hop 2, value 200) as stored in memory. `PATH` below is
    /// the whole path 11, 200, 13, 14, 15 of the same key. A bitwise CRC gave the five masks: ff08a50c ed1fb692 58b45875
    /// 2d2a23da e0d4b8db.
    const ONE_HOP: [u8; PATH_LEN] = [
        0, 0, 0, 0, 0xed, 0x1f, 0xb6, 0x5a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    const PATH: [u8; PATH_LEN] = [
        0xff, 0x08, 0xa5, 0x07, 0xed, 0x1f, 0xb6, 0x5a, 0x58, 0xb4, 0x58, 0x78, 0x2d, 0x2a, 0x23, 0xd4, 0xe0,
        0xd4, 0xb8, 0xd4,
    ];

    #[test]
    fn paths_are_masked_words_and_come_back() {
        let key = [10, 0, 0, 1];
        let hop_2 = [NO_HOP, 200, NO_HOP, NO_HOP, NO_HOP];
        for (values, slot) in [
            (&hop_2[..], ONE_HOP),
            (&hop_2[..2], ONE_HOP),
            (&[11, 200, 13, 14, 15], PATH),
        ] {
            let mut out = [0xa5; PATH_LEN + 4];
            assert_eq!(put_path(&mut out, &key, values), Some(PATH_LEN));
            assert_eq!((&out[..PATH_LEN], &out[PATH_LEN..]), (&slot[..], &[0xa5; 4][..]));
            let read = path_of(&slot, &key);
            let wanted = values
                .iter()
                .map(|value| Some(*value).filter(|value| *value != NO_HOP));
            assert!(wanted.eq(read.into_iter().take(values.len())), "{read:x?}");
        }
        assert_eq!(put_path(&mut [0; PATH_LEN - 1], &key, &[1]), None);
        // The CRC-32 of the key is 0x39fe0fee; the slot is its low bits.
        assert_eq!(
            (path_slot(&key, 1 << 16), path_slot(&key, 1 << 31)),
            (0x0fee, 0x39fe_0fee)
        );
        // Unmasked with another key, a path reads as random numbers.
        assert!(
            path_of(&PATH, &[10, 0, 0, 2])
                .iter()
                .flatten()
                .all(|value| *value > 1000)
        );
    }

    #[test]
    fn no_other_length_is_a_report() {
        for (bytes, form) in EXAMPLES {
            for len in 0..MAX_LEN + 8 {
                let mut cut = [0; MAX_LEN + 8];
                cut[..bytes.len()].copy_from_slice(bytes);
                let body = bytes.len() - form.base_len();
                match (len, parse(&cut[..len], 0)) {
                    (0, got) => assert_eq!(got, Err(Refusal::Truncated)),
                    (len, got) if len == body + 2 || len == body + 3 => {
                        assert!(!matches!(got, Err(Refusal::BadDtaLength)), "{got:?}");
                    }
                    (_, got) => assert_eq!(got, Err(Refusal::BadDtaLength), "{len} of {bytes:02x?}"),
                }
            }
        }
        for opcode in [0, 5, 15, 16, 0x11, 255] {
            assert_eq!(parse(&[opcode; 11], 0), Err(Refusal::BadDtaOpcode));
            assert!(!is_artifact(&[opcode]));
        }
    }

    #[test]
    fn limits_also_apply_here() {
        assert_eq!(
            parse(&[1, 0, 0, 10, 0, 0, 1, 0, 0, 2, 1], 0),
            Err(Refusal::BadCopies)
        );
        assert_eq!(
            parse(&[3, 0, 5, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5], 0),
            Err(Refusal::BadCopies)
        );
        assert_eq!(
            parse(&[4, 0, 10, 0, 0, 1, 0, 0, 0, 0, 1], 0),
            Err(Refusal::BadHop)
        );
        assert_eq!(
            parse(&[4, 0, 10, 0, 0, 1, 6, 0, 0, 0, 1], 0),
            Err(Refusal::BadHop)
        );
        let nacks: [(&[u8], _); 4] = [
            (&[], Refusal::Truncated),
            (&[1], Refusal::Truncated),
            (&[1, 0x7f], Refusal::BadControl),
            (&[1, 0x80, 0], Refusal::BadDtaLength),
        ];
        for (bytes, refusal) in nacks {
            assert_eq!(Nack::parse(bytes), Err(refusal));
        }
    }

    #[test]
    fn operations_without_an_artifact_layout_are_not_written() {
        let report = |operation| Report {
            base: Base::default(),
            operation,
        };
        let key = &[1, 2, 3, 4][..];
        let cases = [
            (
                Operation::KeyWrite {
                    copies: 1,
                    store: 0,
                    key: &[1; 13],
                    data: &[0; 4],
                },
                Refusal::BadKeyLength,
            ),
            (
                Operation::KeyWrite {
                    copies: 1,
                    store: 0,
                    key,
                    data: &[0; 20],
                },
                Refusal::BadDataLength,
            ),
            (
                Operation::Append {
                    list: 0,
                    entry_len: 4,
                    entries: &[0; 8],
                },
                Refusal::BadEntries,
            ),
            (
                Operation::Postcard {
                    hop: 6,
                    path_len: 0,
                    store: 0,
                    value: 0,
                    key,
                },
                Refusal::BadHop,
            ),
            (
                Operation::KeyIncrement {
                    copies: 1,
                    store: 0,
                    delta: 1,
                    key: &[1],
                },
                Refusal::BadKeyLength,
            ),
        ];
        for (operation, refusal) in cases {
            let got = emit(&report(operation), Form::Plain, &mut [0; MAX_LEN]);
            assert_eq!(got, Err(EmitError::Invalid(refusal)), "{operation:?}");
        }
    }
}
