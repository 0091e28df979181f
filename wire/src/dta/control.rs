//! DTA control messages from a translator to a reporter, to UDP port [`CONTROL_PORT`](super::CONTROL_PORT): ACK, NACK,
//! sketch NACK and congestion notice (`docs/reference/wire-formats.md`, section 5.8).

use super::{BASE_LEN, Base, EmitError, Opcode};
use crate::bytes::{put_u16, put_u32, u16_at, u32_at};
use crate::refusal::Refusal;

/// Maximum length of a control message, bytes.
pub const MAX_LEN: usize = BASE_LEN + 12;

const ACK: u8 = 1;
const NACK: u8 = 2;
const SKETCH_NACK: u8 = 3;
const CONGESTION: u8 = 4;

mod field {
    pub(super) const TYPE: usize = 0;
    pub(super) const CODE: usize = 1;
    // Offsets in ACK and NACK.
    pub(super) const LAST: usize = 2;
    pub(super) const TRIGGER: usize = 4;
    // Offsets in SKETCH-NACK.
    pub(super) const SKETCH: usize = 4;
    pub(super) const EPOCH: usize = 6;
    pub(super) const COLUMN: usize = 8;
    // Offsets in CONGESTION.
    pub(super) const HOLD: usize = 4;
    pub(super) const DROPPED: usize = 8;
}

/// The reason in a NACK why a report was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// Reports between the last accepted one and this one are missing.
    Gap,
    /// The report is malformed.
    Malformed,
    /// The store, list or sketch does not exist.
    Unknown,
    /// The translator or the collector is overloaded.
    Overload,
    /// A code that is not defined.
    Other(u8),
}

impl Cause {
    /// Returns the cause with this code.
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Gap,
            2 => Self::Malformed,
            3 => Self::Unknown,
            4 => Self::Overload,
            other => Self::Other(other),
        }
    }

    /// Returns the code on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::Gap => 1,
            Self::Malformed => 2,
            Self::Unknown => 3,
            Self::Overload => 4,
            Self::Other(other) => other,
        }
    }

    /// Returns the cause as a word, for counters and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::Malformed => "malformed",
            Self::Unknown => "unknown",
            Self::Overload => "overload",
            Self::Other(_) => "other",
        }
    }
}

/// The body of a control message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Body {
    /// All essential reports up to `last` were accepted.
    Ack {
        /// Last sequence number in order.
        last: u16,
    },
    /// A report was not accepted.
    Nack {
        /// Reason of the refusal.
        cause: Cause,
        /// Last sequence number in order. After a gap, the reporter retransmits from the next one.
        last: u16,
        /// Sequence number of the refused report.
        trigger: u16,
    },
    /// A sketch column arrived out of order.
    SketchNack {
        /// ID of the sketch.
        sketch: u16,
        /// The epoch of the sketch.
        epoch: u16,
        /// Column that the translator expects.
        column: u32,
    },
    /// Congestion: the reporter must reduce its rate.
    Congestion {
        /// Congestion level 0 to 3; 0 ends the congestion.
        level: u8,
        /// Validity of the level, microseconds.
        hold_us: u32,
        /// Reports dropped since the previous notice.
        dropped: u32,
    },
}

/// A control message to a reporter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Control {
    /// Sequence number of the translator's control messages.
    pub sequence: u16,
    /// ID of the addressed reporter.
    pub reporter: u32,
    /// Contents by message type.
    pub body: Body,
}

impl Control {
    /// Parses a datagram's payload.
    ///
    /// # Errors
    /// [`Refusal`] if it is not a valid control message.
    pub fn parse(payload: &[u8]) -> Result<Self, Refusal> {
        let (header, body) = payload
            .split_first_chunk::<BASE_LEN>()
            .ok_or(Refusal::Truncated)?;
        let (base, opcode) = Base::parse(header)?;
        if opcode != Opcode::Control {
            return Err(Refusal::BadDtaOpcode);
        }
        let kind = *body.first().ok_or(Refusal::Truncated)?;
        let len = match kind {
            ACK | NACK => 8,
            SKETCH_NACK | CONGESTION => 12,
            _ => return Err(Refusal::BadControl),
        };
        if body.len() != len {
            return Err(if body.len() < len {
                Refusal::Truncated
            } else {
                Refusal::BadDtaLength
            });
        }
        let body = match kind {
            ACK => Body::Ack {
                last: u16_at(body, field::LAST),
            },
            NACK => Body::Nack {
                cause: Cause::from_number(body[field::CODE]),
                last: u16_at(body, field::LAST),
                trigger: u16_at(body, field::TRIGGER),
            },
            SKETCH_NACK => Body::SketchNack {
                sketch: u16_at(body, field::SKETCH),
                epoch: u16_at(body, field::EPOCH),
                column: u32_at(body, field::COLUMN),
            },
            _ if body[field::CODE] > 3 => return Err(Refusal::BadControl),
            _ => Body::Congestion {
                level: body[field::CODE],
                hold_us: u32_at(body, field::HOLD),
                dropped: u32_at(body, field::DROPPED),
            },
        };
        Ok(Self {
            sequence: base.sequence,
            reporter: base.reporter,
            body,
        })
    }

    /// Returns the length of the message, bytes.
    pub const fn len(&self) -> usize {
        match self.body {
            Body::Ack { .. } | Body::Nack { .. } => BASE_LEN + 8,
            Body::SketchNack { .. } | Body::Congestion { .. } => BASE_LEN + 12,
        }
    }

    /// Returns `false`: a message has at least a header.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the message and returns its length, at most [`MAX_LEN`].
    ///
    /// # Errors
    /// [`EmitError`] if `out` is too short or the congestion level invalid; nothing is written.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        if matches!(self.body, Body::Congestion { level: 4.., .. }) {
            return Err(EmitError::Invalid(Refusal::BadControl));
        }
        let len = self.len();
        let short = EmitError::Short(len);
        let (header, out) = out
            .get_mut(..len)
            .and_then(|out| out.split_first_chunk_mut::<BASE_LEN>())
            .ok_or(short)?;
        let base = Base {
            sequence: self.sequence,
            reporter: self.reporter,
            ..Base::default()
        };
        base.emit(Opcode::Control, header);
        // No flags are set, and the priority bits are 0.
        header[1] = 0;
        out.fill(0);
        match self.body {
            Body::Ack { last } => {
                out[field::TYPE] = ACK;
                put_u16(out, field::LAST, last);
            }
            Body::Nack { cause, last, trigger } => {
                out[field::TYPE] = NACK;
                out[field::CODE] = cause.number();
                put_u16(out, field::LAST, last);
                put_u16(out, field::TRIGGER, trigger);
            }
            Body::SketchNack {
                sketch,
                epoch,
                column,
            } => {
                out[field::TYPE] = SKETCH_NACK;
                out[field::CODE] = 1;
                put_u16(out, field::SKETCH, sketch);
                put_u16(out, field::EPOCH, epoch);
                put_u32(out, field::COLUMN, column);
            }
            Body::Congestion {
                level,
                hold_us,
                dropped,
            } => {
                out[field::TYPE] = CONGESTION;
                out[field::CODE] = level;
                put_u32(out, field::HOLD, hold_us);
                put_u32(out, field::DROPPED, dropped);
            }
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of `docs/reference/wire-formats.md`, section 5.8, and an ACK written for this test.
    const EXAMPLES: [(&[u8], Control); 4] = [
        (
            &[0x1f, 0, 0, 1, 0, 0, 0, 7, 2, 1, 0, 0xff, 1, 2, 0, 0],
            Control {
                sequence: 1,
                reporter: 7,
                body: Body::Nack {
                    cause: Cause::Gap,
                    last: 0xff,
                    trigger: 0x102,
                },
            },
        ),
        (
            &[
                0x1f, 0, 0, 2, 0, 0, 0, 7, 4, 2, 0, 0, 0, 0, 1, 0xf4, 0, 1, 0xe2, 0x40,
            ],
            Control {
                sequence: 2,
                reporter: 7,
                body: Body::Congestion {
                    level: 2,
                    hold_us: 500,
                    dropped: 123_456,
                },
            },
        ),
        (
            &[0x1f, 0, 0, 3, 0, 0, 0, 7, 3, 1, 0, 0, 0, 4, 0, 0x11, 0, 0, 0, 6],
            Control {
                sequence: 3,
                reporter: 7,
                body: Body::SketchNack {
                    sketch: 4,
                    epoch: 17,
                    column: 6,
                },
            },
        ),
        (
            &[0x1f, 0, 0, 4, 0, 0, 0, 7, 1, 0, 1, 0, 0, 0, 0, 0],
            Control {
                sequence: 4,
                reporter: 7,
                body: Body::Ack { last: 0x100 },
            },
        ),
    ];

    #[test]
    fn the_examples_of_section_5_8() {
        for (bytes, control) in EXAMPLES {
            assert_eq!(Control::parse(bytes), Ok(control));
            let mut out = [0xa5; MAX_LEN];
            assert_eq!(control.emit(&mut out), Ok(bytes.len()));
            assert_eq!(out[..bytes.len()], *bytes);
            assert_eq!(
                control.emit(&mut out[..bytes.len() - 1]),
                Err(EmitError::Short(bytes.len()))
            );
        }
    }

    #[test]
    fn other_messages_are_refused_as_control_messages() {
        for (bytes, _) in EXAMPLES {
            for len in 0..bytes.len() {
                assert_eq!(
                    Control::parse(&bytes[..len]),
                    Err(Refusal::Truncated),
                    "{len} of {bytes:02x?}"
                );
            }
            let mut long = [0; MAX_LEN + 1];
            long[..bytes.len()].copy_from_slice(bytes);
            assert_eq!(Control::parse(&long[..=bytes.len()]), Err(Refusal::BadDtaLength));
            for (at, value, refusal) in [
                (0, 0x2f, Refusal::UnknownVersion),
                (0, 0x11, Refusal::BadDtaOpcode),
                (0, 0x1e, Refusal::BadDtaOpcode),
                (1, 0x30, Refusal::BadDtaPriority),
                (8, 0, Refusal::BadControl),
                (8, 5, Refusal::BadControl),
            ] {
                let mut corrupted = [0; MAX_LEN];
                corrupted[..bytes.len()].copy_from_slice(bytes);
                corrupted[at] = value;
                assert_eq!(
                    Control::parse(&corrupted[..bytes.len()]),
                    Err(refusal),
                    "{at} is {value:#x}"
                );
            }
        }
        let mut level = [0; 20];
        level.copy_from_slice(EXAMPLES[1].0);
        level[9] = 4;
        assert_eq!(Control::parse(&level), Err(Refusal::BadControl));
        let body = Body::Congestion {
            level: 4,
            hold_us: 0,
            dropped: 0,
        };
        let control = Control {
            sequence: 0,
            reporter: 0,
            body,
        };
        assert_eq!(
            control.emit(&mut level),
            Err(EmitError::Invalid(Refusal::BadControl))
        );
    }

    #[test]
    fn causes_are_kept_even_unknown_ones() {
        for number in 0..=255 {
            assert_eq!(Cause::from_number(number).number(), number);
        }
    }
}
