//! The layouts of the paper's artifact (5.2): base headers of 2 or 3 bytes, keys, data and entries of 4 bytes. Which of the two a
//! datagram has follows from opcode and length.
//!
//! There is no reporter, store or priority on the wire: the reporter is what the caller says of the sender, the store is 0, the
//! priority medium. Sequences have 8 bits.

use super::{Base, Operation, Priority, Report, Unwritten, ensure};
use crate::bytes::{put_u16, put_u32, put_u64, u32_at};
use crate::refusal::Refusal;

/// Bytes of the longest report.
pub const MAX_LEN: usize = 16;
/// Hops of a path.
pub const HOPS: u8 = 5;
/// Bytes of keys, data and entries.
pub const WORD: usize = 4;

/// Which base header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// Two bytes: opcode, flags.
    Plain,
    /// Three bytes: opcode, sequence, flags; the translator can ask for what is missing.
    Tracked,
}

impl Form {
    /// Bytes of the base header.
    #[inline]
    pub const fn base_len(self) -> usize {
        match self {
            Self::Plain => 2,
            Self::Tracked => 3,
        }
    }
}

const IMMEDIATE: u8 = 0x80;
const ESSENTIAL: u8 = 0x40;
const NACK: u8 = 0x80;

/// Is this the artifact's layout rather than version 1? The first byte tells: there it is the opcode, 1 to 4.
#[inline]
pub fn is_artifact(payload: &[u8]) -> bool {
    matches!(payload.first(), Some(1..=4))
}

/// Bytes behind the base header, by opcode.
#[inline]
const fn body_len(opcode: u8) -> Option<usize> {
    match opcode {
        1 | 4 => Some(9),
        2 => Some(8),
        3 => Some(13),
        _ => None,
    }
}

/// Reads the payload of a datagram of `reporter`, whole. Also gives the form it had.
///
/// # Errors
/// What has no opcode or length of 5.2, no copies or more than four, or a hop beyond the fifth.
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
            Base { immediate: flags & IMMEDIATE != 0, essential, sequence, ..medium(reporter) }
        }
        _ => Base { immediate: payload[1] & IMMEDIATE != 0, ..medium(reporter) },
    };
    let operation = operation(opcode, body)?;
    operation.check()?;
    Ok((Report { base, operation }, form))
}

#[inline]
fn medium(reporter: u32) -> Base {
    Base { priority: Priority::Medium, reporter, ..Base::default() }
}

/// `body` is as long as [`body_len`] says.
#[inline]
fn operation(opcode: u8, body: &[u8]) -> Result<Operation<'_>, Refusal> {
    Ok(match opcode {
        1 => Operation::KeyWrite { copies: body[0], store: 0, key: &body[1..5], data: &body[5..9] },
        2 => Operation::Append { list: u32_at(body, 0), entry_len: WORD as u16, entries: &body[4..8] },
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

/// Writes a report in the artifact's layout and gives its length, at most [`MAX_LEN`]. Reporter, store, priority and path length
/// are not written; nor is, in the plain form, that a report is essential.
///
/// # Errors
/// If `out` is too short, or the operation breaks a rule or has no such layout; then nothing is written.
pub fn emit(report: &Report<'_>, form: Form, out: &mut [u8]) -> Result<usize, Unwritten> {
    report.operation.check().map_err(Unwritten::Invalid)?;
    let mut body = [0; MAX_LEN];
    let len = emit_body(&report.operation, &mut body).map_err(Unwritten::Invalid)?;
    let base_len = form.base_len();
    let out = out.get_mut(..base_len + len).ok_or(Unwritten::Short(base_len + len))?;
    let Base { immediate, essential, sequence, .. } = report.base;
    let flag = |set, bit| if set { bit } else { 0 };
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

fn emit_body(operation: &Operation<'_>, out: &mut [u8; MAX_LEN]) -> Result<usize, Refusal> {
    let word = |bytes: &[u8], or| bytes.try_into().map(u32::from_be_bytes).map_err(|_| or);
    match *operation {
        Operation::KeyWrite { copies, key, data, .. } => {
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
        Operation::KeyIncrement { copies, delta, key, .. } => {
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

/// The artifact's one control message: the last sequence that was accepted in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Nack {
    /// The last sequence in order.
    pub last: u8,
}

impl Nack {
    /// Reads the payload of a datagram, whole.
    ///
    /// # Errors
    /// If it is not two bytes with the NACK bit.
    pub fn parse(payload: &[u8]) -> Result<Self, Refusal> {
        match *payload {
            [last, flags] if flags & NACK != 0 => Ok(Self { last }),
            [_, _] => Err(Refusal::BadControl),
            [] | [_] => Err(Refusal::Truncated),
            _ => Err(Refusal::BadDtaLength),
        }
    }

    /// The payload of a datagram.
    pub fn emit(self) -> [u8; 2] {
        let mut out = [0; 2];
        put_u16(&mut out, 0, u16::from_be_bytes([self.last, NACK]));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of 5.2, and two by hand.
    const EXAMPLES: [(&[u8], Form); 6] = [
        (&[1, 0, 2, 10, 0, 0, 1, 0, 0, 2, 0x9a], Form::Plain),
        (&[1, 0x2a, 0x40, 2, 10, 0, 0, 1, 0, 0, 2, 0x9a], Form::Tracked),
        (&[2, 0, 0, 0, 0, 3, 0xde, 0xad, 0xbe, 0xef], Form::Plain),
        (&[3, 0, 2, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5], Form::Plain),
        (&[4, 0, 10, 0, 0, 1, 2, 0, 0, 0, 0xc8], Form::Plain),
        (&[2, 0xff, 0xc0, 0, 0, 0, 3, 1, 2, 3, 4], Form::Tracked),
    ];

    fn base(immediate: bool, essential: bool, sequence: u16) -> Base {
        Base { immediate, essential, sequence, priority: Priority::Medium, reporter: 9 }
    }

    #[test]
    fn the_examples_of_section_5_2() {
        let key = &[10, 0, 0, 1][..];
        let write = Operation::KeyWrite { copies: 2, store: 0, key, data: &[0, 0, 2, 0x9a] };
        let operations = [
            (base(false, false, 0), write),
            (base(false, true, 0x2a), write),
            (
                base(false, false, 0),
                Operation::Append { list: 3, entry_len: 4, entries: &[0xde, 0xad, 0xbe, 0xef] },
            ),
            (base(false, false, 0), Operation::KeyIncrement { copies: 2, store: 0, delta: 5, key }),
            (base(false, false, 0), Operation::Postcard { hop: 2, path_len: 0, store: 0, value: 200, key }),
            (base(true, true, 0xff), Operation::Append { list: 3, entry_len: 4, entries: &[1, 2, 3, 4] }),
        ];
        for ((bytes, form), (base, operation)) in EXAMPLES.into_iter().zip(operations) {
            let report = Report { base, operation };
            assert!(is_artifact(bytes));
            assert_eq!(parse(bytes, 9), Ok((report, form)));
            let mut out = [0xa5; MAX_LEN];
            assert_eq!(emit(&report, form, &mut out), Ok(bytes.len()));
            assert_eq!(out[..bytes.len()], *bytes);
            assert_eq!(emit(&report, form, &mut out[..bytes.len() - 1]), Err(Unwritten::Short(bytes.len())));
            assert!(Report::parse(bytes).is_err(), "version 1 is something else");
        }
        assert_eq!(
            (Nack::parse(&[0x29, 0x80]), Nack { last: 0x29 }.emit()),
            (Ok(Nack { last: 0x29 }), [0x29, 0x80])
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
    fn limits_hold_here_too() {
        assert_eq!(parse(&[1, 0, 0, 10, 0, 0, 1, 0, 0, 2, 1], 0), Err(Refusal::BadCopies));
        assert_eq!(parse(&[3, 0, 5, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5], 0), Err(Refusal::BadCopies));
        assert_eq!(parse(&[4, 0, 10, 0, 0, 1, 0, 0, 0, 0, 1], 0), Err(Refusal::BadHop));
        assert_eq!(parse(&[4, 0, 10, 0, 0, 1, 6, 0, 0, 0, 1], 0), Err(Refusal::BadHop));
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
    fn what_has_no_such_layout_is_not_written() {
        let report = |operation| Report { base: Base::default(), operation };
        let key = &[1, 2, 3, 4][..];
        let cases = [
            (
                Operation::KeyWrite { copies: 1, store: 0, key: &[1; 13], data: &[0; 4] },
                Refusal::BadKeyLength,
            ),
            (Operation::KeyWrite { copies: 1, store: 0, key, data: &[0; 20] }, Refusal::BadDataLength),
            (Operation::Append { list: 0, entry_len: 4, entries: &[0; 8] }, Refusal::BadEntries),
            (Operation::Postcard { hop: 6, path_len: 0, store: 0, value: 0, key }, Refusal::BadHop),
            (Operation::KeyIncrement { copies: 1, store: 0, delta: 1, key: &[1] }, Refusal::BadKeyLength),
        ];
        for (operation, refusal) in cases {
            let got = emit(&report(operation), Form::Plain, &mut [0; MAX_LEN]);
            assert_eq!(got, Err(Unwritten::Invalid(refusal)), "{operation:?}");
        }
    }
}
