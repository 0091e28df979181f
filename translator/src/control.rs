//! Control messages from the DTA translator to reporters: NACK, ACK, sketch NACK and congestion notice
//! (`docs/reference/wire-formats.md`, section 5.8), and the one-byte NACK of the published DTA code (section 5.2).

use core::net::SocketAddr;

use wire::dta::control::{Body, MAX_LEN};
use wire::dta::{BASE_LEN, Base, Control, Operation, artifact};

use crate::received::Received;
use crate::reporters::Notice;
use crate::stats::Controls;

pub(super) use wire::dta::control::Cause;

/// Flag of essential reports in the second byte of the base header.
pub(super) const ESSENTIAL: u8 = 0x40;
/// First byte of an Append report: version 1, opcode 2.
pub(super) const APPEND: u8 = 0x12;

/// Decodes the base header of an essential report whose remainder is malformed; returns `None` if it is not essential or
/// its header is invalid.
pub(super) fn essential_base(payload: &[u8]) -> Option<Base> {
    let header = payload.first_chunk::<BASE_LEN>()?;
    let [first, flags, a, b, c, d, e, f] = *header;
    let is_report = (0x11..=0x15).contains(&first) && flags & ESSENTIAL != 0 && flags & 0x30 != 0x30;
    is_report.then(|| Base {
        immediate: false,
        essential: true,
        priority: wire::dta::Priority::Low,
        sequence: u16::from_be_bytes([a, b]),
        reporter: u32::from_be_bytes([c, d, e, f]),
    })
}

/// Receives the translator's control messages.
pub trait Output {
    /// Sends the UDP payload of a message to a report's sender: to the control port at `to`'s address, or to `to` itself if
    /// several reporters share an address. The source is the address that receives this collector's reports.
    fn control(&mut self, to: SocketAddr, collector: u8, payload: &[u8]);
}

/// Encodes, sends and counts control messages.
#[derive(Debug, Default)]
pub(super) struct Emitter {
    sequence: u16,
    pub(super) counts: Controls,
}

impl Emitter {
    fn send(&mut self, received: &Received<'_>, body: Body, out: &mut impl Output) {
        let control = Control {
            sequence: self.sequence,
            reporter: received.report.base.reporter,
            body,
        };
        self.sequence = self.sequence.wrapping_add(1);
        let mut bytes = [0; MAX_LEN];
        if let Ok(len) = control.emit(&mut bytes) {
            out.control(received.origin.sender, received.origin.collector, &bytes[..len]);
        }
    }

    #[cold]
    pub(super) fn nack(&mut self, received: &Received<'_>, cause: Cause, last: u16, out: &mut impl Output) {
        self.counts.nacks[usize::from(cause.number().clamp(1, 4) - 1)] += 1;
        if received.artifact {
            let nack = artifact::Nack { last: last as u8 }.emit();
            out.control(received.origin.sender, received.origin.collector, &nack);
            return;
        }
        self.send(
            received,
            Body::Nack {
                cause,
                last,
                trigger: received.report.base.sequence,
            },
            out,
        );
    }

    /// Acknowledges all reports up to `last`. The published DTA code has no such message.
    pub(super) fn ack(&mut self, received: &Received<'_>, last: u16, out: &mut impl Output) {
        if !received.artifact {
            self.counts.acks += 1;
            self.send(received, Body::Ack { last }, out);
        }
    }

    /// Sends a sketch NACK that names the first missing column.
    #[cold]
    pub(super) fn sketch_nack(&mut self, received: &Received<'_>, column: u32, out: &mut impl Output) {
        if let Operation::SketchMerge { sketch, epoch, .. } = received.report.operation {
            self.counts.sketch_nacks += 1;
            self.send(
                received,
                Body::SketchNack {
                    sketch,
                    epoch,
                    column,
                },
                out,
            );
        }
    }

    /// Sends a congestion notice. The published DTA code has no such message.
    #[cold]
    pub(super) fn notify(
        &mut self,
        received: &Received<'_>,
        notice: Notice,
        hold: u64,
        out: &mut impl Output,
    ) {
        if !received.artifact {
            self.counts.notices += 1;
            let hold_us = (hold / 1_000).min(u64::from(u32::MAX)) as u32;
            let body = Body::Congestion {
                level: notice.level,
                hold_us,
                dropped: notice.dropped,
            };
            self.send(received, body, out);
        }
    }
}
