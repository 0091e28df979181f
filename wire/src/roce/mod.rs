//! RoCEv2: RDMA in UDP datagrams to port [`PORT`] (InfiniBand Architecture Specification, volume 1, chapter 9 and annex
//! A17; `docs/reference/wire-formats.md`, section 6). Supports what a DTA translator and a collector's memory need: writes,
//! sends, fetch-and-add and their acknowledgements, on reliable (RC) and unreliable (UC) connections.
//!
//! [`Packet`] parses and validates received packets; [`Writer`] builds packets. Neither tracks connection state.
//!
//! ```
//! use wire::roce::{Head, Packet, Path, Psn, Reth, Transport, Writer};
//!
//! // One write of 24 bytes into the region with rkey 8002, on queue pair 18.
//! let path = Path::new([198, 51, 100, 1].into(), [198, 51, 100, 2].into(), 0xc001);
//! let mut writer = Writer::new(path, Transport::Rc, 18)?;
//! let reth = Reth { address: 0x7f00_0000_1000, rkey: 8002, len: 24 };
//! let mut frame = [0; 256];
//! let len = writer.write_only(&mut frame, Head::new(Psn::new(256)), reth, &[7; 24])?;
//!
//! let packet = Packet::parse(&frame[..len])?; // checks the invariant CRC
//! assert_eq!((packet.bth.queue_pair, packet.bth.psn), (18, Psn::new(256)));
//! assert_eq!((packet.reth, packet.payload), (Some(reth), &[7; 24][..]));
//!
//! frame[len - 10] ^= 1;
//! assert_eq!(Packet::parse(&frame[..len]), Err(wire::Refusal::BadIcrc));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod brief;
mod icrc;
mod packet;
mod write;

pub use brief::{Brief, HeaderTemplate, HeaderTemplates, UncheckedWrite};
pub use packet::{Endpoints, Packet, seal};
pub use write::{Head, MixedFamilies, Path, Segment, Segments, Writer};

use crate::bytes::{array_at, put_u24, put_u32, put_u64, u16_at, u24_at, u32_at};

/// UDP port of RoCEv2.
pub const PORT: u16 = 4791;
/// Length of the base transport header (BTH), bytes.
pub const BTH_LEN: usize = 12;
/// Length of a [`Reth`], bytes.
pub const RETH_LEN: usize = 16;
/// Length of an [`AtomicEth`], bytes.
pub const ATOMIC_LEN: usize = 28;
/// Length of immediate data, bytes.
pub const IMMEDIATE_LEN: usize = 4;
/// Length of an [`Aeth`], bytes.
pub const AETH_LEN: usize = 4;
/// Length of the original value in an atomic acknowledgement, bytes.
pub const ATOMIC_ACK_LEN: usize = 8;
/// Length of the invariant CRC (ICRC), bytes.
pub const ICRC_LEN: usize = 4;
/// Length of a congestion notification's payload, bytes.
pub const CNP_LEN: usize = 16;
/// Path MTUs defined by InfiniBand, bytes of payload.
pub const PMTUS: [u16; 5] = [256, 512, 1024, 2048, 4096];
/// Maximum payload of a packet, bytes.
pub const MAX_PAYLOAD: usize = 4096;
/// Length of the longest frame, bytes: Ethernet, VLAN tag, IPv6, UDP, all headers that occur together, payload, ICRC.
pub const MAX_FRAME: usize = 14 + 4 + 40 + 8 + BTH_LEN + RETH_LEN + IMMEDIATE_LEN + MAX_PAYLOAD + ICRC_LEN;

crate::named! {
    /// The transport service of a queue pair.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    pub enum Transport, name {
        /// Reliable connection: acknowledged, retransmitted, in order.
        Rc => "rc",
        /// Unreliable connection: no acknowledgements.
        Uc => "uc",
    }
}

/// The operation of a packet, whatever its transport service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Opcode {
    /// SEND ONLY: a message for the receive queue.
    SendOnly,
    /// WRITE FIRST: the first of several packets.
    WriteFirst,
    /// WRITE MIDDLE: a packet between the first and the last.
    WriteMiddle,
    /// WRITE LAST: the last packet.
    WriteLast,
    /// WRITE LAST with immediate data, which notifies the CPU.
    WriteLastImmediate,
    /// WRITE ONLY: a write in one packet.
    WriteOnly,
    /// WRITE ONLY with immediate data, which notifies the CPU.
    WriteOnlyImmediate,
    /// ACKNOWLEDGE: an acknowledgement or a NAK.
    Acknowledge,
    /// ATOMIC ACKNOWLEDGE, with the original value.
    AtomicAcknowledge,
    /// FETCH AND ADD on eight bytes.
    FetchAdd,
    /// Congestion notification packet (CNP).
    Cnp,
    /// An unsupported opcode, as on the wire.
    Other(u8),
}

impl Opcode {
    /// Returns the transport service and operation of an opcode. The service is `None` unless it is RC or UC.
    #[inline(always)]
    pub const fn from_number(number: u8) -> (Option<Transport>, Self) {
        let transport = match number >> 5 {
            0 => Some(Transport::Rc),
            1 => Some(Transport::Uc),
            _ => None,
        };
        let operation = match number {
            0x04 | 0x24 => Self::SendOnly,
            0x06 | 0x26 => Self::WriteFirst,
            0x07 | 0x27 => Self::WriteMiddle,
            0x08 | 0x28 => Self::WriteLast,
            0x09 | 0x29 => Self::WriteLastImmediate,
            0x0a | 0x2a => Self::WriteOnly,
            0x0b | 0x2b => Self::WriteOnlyImmediate,
            0x11 => Self::Acknowledge,
            0x12 => Self::AtomicAcknowledge,
            0x14 => Self::FetchAdd,
            0x81 => Self::Cnp,
            other => Self::Other(other),
        };
        (transport, operation)
    }

    /// Returns the opcode on the wire, or `None` if the transport service does not have the operation. Congestion
    /// notifications and unsupported opcodes are the same on every service.
    #[inline(always)]
    pub const fn number(self, transport: Transport) -> Option<u8> {
        let low = match self {
            Self::SendOnly => 0x04,
            Self::WriteFirst => 0x06,
            Self::WriteMiddle => 0x07,
            Self::WriteLast => 0x08,
            Self::WriteLastImmediate => 0x09,
            Self::WriteOnly => 0x0a,
            Self::WriteOnlyImmediate => 0x0b,
            Self::Cnp => return Some(0x81),
            Self::Other(number) => return Some(number),
            Self::Acknowledge | Self::AtomicAcknowledge | Self::FetchAdd => {
                return match (transport, self) {
                    (Transport::Uc, _) => None,
                    (_, Self::Acknowledge) => Some(0x11),
                    (_, Self::AtomicAcknowledge) => Some(0x12),
                    _ => Some(0x14),
                };
            }
        };
        Some(match transport {
            Transport::Rc => low,
            Transport::Uc => 0x20 | low,
        })
    }

    /// Returns the operation as a word, for counters and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SendOnly => "send_only",
            Self::WriteFirst => "write_first",
            Self::WriteMiddle => "write_middle",
            Self::WriteLast => "write_last",
            Self::WriteLastImmediate => "write_last_with_immediate",
            Self::WriteOnly => "write_only",
            Self::WriteOnlyImmediate => "write_only_with_immediate",
            Self::Acknowledge => "acknowledge",
            Self::AtomicAcknowledge => "atomic_acknowledge",
            Self::FetchAdd => "fetch_add",
            Self::Cnp => "cnp",
            Self::Other(_) => "other",
        }
    }

    /// Returns whether the operation has a [`Reth`].
    #[inline]
    pub const fn has_reth(self) -> bool {
        matches!(
            self,
            Self::WriteFirst | Self::WriteOnly | Self::WriteOnlyImmediate
        )
    }

    /// Returns whether the operation has immediate data.
    #[inline]
    pub const fn has_immediate(self) -> bool {
        matches!(self, Self::WriteLastImmediate | Self::WriteOnlyImmediate)
    }

    /// Returns the length of the headers between BTH and payload, bytes.
    #[inline]
    pub const fn extension_len(self) -> usize {
        match self {
            Self::WriteFirst | Self::WriteOnly => RETH_LEN,
            Self::WriteOnlyImmediate => RETH_LEN + IMMEDIATE_LEN,
            Self::WriteLastImmediate => IMMEDIATE_LEN,
            Self::Acknowledge => AETH_LEN,
            Self::AtomicAcknowledge => AETH_LEN + ATOMIC_ACK_LEN,
            Self::FetchAdd => ATOMIC_LEN,
            Self::SendOnly | Self::WriteMiddle | Self::WriteLast | Self::Cnp | Self::Other(_) => 0,
        }
    }
}

/// A 24-bit packet sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Psn(u32);

impl Psn {
    const MASK: u32 = 0x00ff_ffff;

    /// Creates a PSN from a number's low 24 bits.
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number & Self::MASK)
    }

    /// Returns the number, 24 bits.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the next PSN, modulo 2^24.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// Returns the PSN `more` packets later.
    #[inline]
    #[must_use]
    pub const fn plus(self, more: u32) -> Self {
        Self::new(self.0.wrapping_add(more))
    }

    /// Returns by how much this PSN is ahead of `from`, from -2^23 to 2^23 - 1; negative if it is behind.
    #[inline]
    pub const fn distance(self, from: Self) -> i32 {
        (self.0.wrapping_sub(from.0) << 8) as i32 >> 8
    }
}

impl core::fmt::Display for Psn {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// The fields of the base transport header (BTH).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bth {
    /// Transport service of the opcode, if it is supported.
    pub transport: Option<Transport>,
    /// Opcode: transport service and operation.
    pub opcode: Opcode,
    /// SE bit: solicited event, which wakes the receiver.
    pub solicited: bool,
    /// Number of pad bytes after the payload, 0 to 3.
    pub pad: u8,
    /// FECN bit: congestion on the forward path.
    pub fecn: bool,
    /// BECN bit: congestion on the backward path.
    pub becn: bool,
    /// Destination queue pair, 24 bits.
    pub queue_pair: u32,
    /// A bit: an acknowledgement is requested.
    pub ack_request: bool,
    /// Packet sequence number (PSN).
    pub psn: Psn,
}

impl Bth {
    /// Parses the header. The caller checks version and partition key.
    #[inline(always)]
    fn parse(bytes: &[u8; BTH_LEN]) -> Self {
        let (transport, opcode) = Opcode::from_number(bytes[field::OPCODE]);
        let flags = bytes[field::FLAGS];
        Self {
            transport,
            opcode,
            solicited: flags & field::SOLICITED != 0,
            pad: flags >> 4 & 3,
            fecn: bytes[field::CONGESTION] & field::FECN != 0,
            becn: bytes[field::CONGESTION] & field::BECN != 0,
            queue_pair: u24_at(bytes, field::QUEUE_PAIR),
            ack_request: bytes[field::ACK] & field::ACK_REQUEST != 0,
            psn: Psn(u24_at(bytes, field::PSN)),
        }
    }
}

mod field {
    // Offsets in the base transport header.
    pub(super) const OPCODE: usize = 0;
    pub(super) const FLAGS: usize = 1;
    pub(super) const PARTITION: usize = 2;
    pub(super) const CONGESTION: usize = 4;
    pub(super) const QUEUE_PAIR: usize = 5;
    pub(super) const ACK: usize = 8;
    pub(super) const PSN: usize = 9;
    pub(super) const SOLICITED: u8 = 0x80;
    pub(super) const MIGRATED: u8 = 0x40;
    pub(super) const VERSION: u8 = 0x0f;
    pub(super) const FECN: u8 = 0x80;
    pub(super) const BECN: u8 = 0x40;
    pub(super) const ACK_REQUEST: u8 = 0x80;
}

/// The RDMA extended transport header (RETH): the destination of a write, in the first packet of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Reth {
    /// Virtual address of the message's first byte.
    pub address: u64,
    /// R_Key of the memory region.
    pub rkey: u32,
    /// Length of the whole message, bytes.
    pub len: u32,
}

impl Reth {
    #[inline]
    fn parse(bytes: &[u8; RETH_LEN]) -> Self {
        Self {
            address: u64::from_be_bytes(array_at(bytes, 0)),
            rkey: u32_at(bytes, 8),
            len: u32_at(bytes, 12),
        }
    }

    #[inline]
    fn emit(self, out: &mut [u8]) {
        put_u64(out, 0, self.address);
        put_u32(out, 8, self.rkey);
        put_u32(out, 12, self.len);
    }
}

/// The atomic extended transport header: address and operands of an atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AtomicEth {
    /// Virtual address of the value, a multiple of 8.
    pub address: u64,
    /// R_Key of the memory region.
    pub rkey: u32,
    /// The value to add.
    pub add: u64,
    /// Value to compare with; 0 for fetch-and-add.
    pub compare: u64,
}

impl AtomicEth {
    #[inline]
    fn parse(bytes: &[u8; ATOMIC_LEN]) -> Self {
        Self {
            address: u64::from_be_bytes(array_at(bytes, 0)),
            rkey: u32_at(bytes, 8),
            add: u64::from_be_bytes(array_at(bytes, 12)),
            compare: u64::from_be_bytes(array_at(bytes, 20)),
        }
    }

    #[inline]
    fn emit(self, out: &mut [u8]) {
        put_u64(out, 0, self.address);
        put_u32(out, 8, self.rkey);
        put_u64(out, 12, self.add);
        put_u64(out, 20, self.compare);
    }
}

/// The NAK code of a refused request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Nak {
    /// PSN sequence error: packets are missing; the NAK's PSN is the expected one.
    SequenceError,
    /// Invalid request, which ends the connection.
    InvalidRequest,
    /// Remote access error, which ends the connection.
    RemoteAccess,
    /// Remote operational error: the responder failed, which ends the connection.
    RemoteOperational,
    /// An unknown code, 4 to 31.
    Other(u8),
}

/// The syndrome of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// ACK: all requests up to the PSN are done. Contains the credit code; 31 means no credits.
    Ack(u8),
    /// RNR NAK: the receiver is not ready; retry after [`rnr_nanoseconds`] of this code.
    Rnr(u8),
    /// NAK with its code.
    Nak(Nak),
    /// A reserved syndrome, as on the wire.
    Reserved(u8),
}

impl Syndrome {
    /// An ACK without credits.
    pub const ACK: Self = Self::Ack(31);

    /// Decodes a syndrome from its byte.
    #[inline]
    pub const fn from_number(number: u8) -> Self {
        let value = number & 0x1f;
        match number >> 5 {
            0 => Self::Ack(value),
            1 => Self::Rnr(value),
            3 => Self::Nak(match value {
                0 => Nak::SequenceError,
                1 => Nak::InvalidRequest,
                2 => Nak::RemoteAccess,
                3 => Nak::RemoteOperational,
                other => Nak::Other(other),
            }),
            _ => Self::Reserved(number),
        }
    }

    /// Encodes the syndrome as a byte.
    #[inline]
    pub const fn number(self) -> u8 {
        match self {
            Self::Ack(value) => value & 0x1f,
            Self::Rnr(value) => 0x20 | value & 0x1f,
            Self::Nak(nak) => {
                0x60 | match nak {
                    Nak::SequenceError => 0,
                    Nak::InvalidRequest => 1,
                    Nak::RemoteAccess => 2,
                    Nak::RemoteOperational => 3,
                    Nak::Other(other) => other & 0x1f,
                }
            }
            Self::Reserved(number) => number,
        }
    }
}

/// The ACK extended transport header (AETH).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// Syndrome: ACK, RNR NAK or NAK.
    pub syndrome: Syndrome,
    /// MSN: number of completed messages, 24 bits.
    pub msn: u32,
}

impl Aeth {
    #[inline]
    fn parse(bytes: &[u8; AETH_LEN]) -> Self {
        Self {
            syndrome: Syndrome::from_number(bytes[0]),
            msn: u24_at(bytes, 1),
        }
    }

    #[inline]
    fn emit(self, out: &mut [u8]) {
        out[0] = self.syndrome.number();
        put_u24(out, 1, self.msn);
    }
}

/// Returns how long a requester waits after an RNR NAK with this timer code, ns.
pub const fn rnr_nanoseconds(code: u8) -> u64 {
    const HUNDREDTHS_OF_MS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
        3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    HUNDREDTHS_OF_MS[(code & 31) as usize] as u64 * 10_000
}

/// Returns whether the partition key is the default: its low 15 bits are all ones. The top bit is the membership type.
#[inline]
fn is_default_partition(bytes: &[u8; BTH_LEN]) -> bool {
    u16_at(bytes, field::PARTITION) | 0x8000 == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_at_24_bits() {
        let psn = Psn::new;
        assert_eq!(psn(0x0100_0005), psn(5));
        assert_eq!((psn(0xff_ffff).next(), psn(0xff_fffe).plus(5)), (psn(0), psn(3)));
        assert_eq!(
            (psn(2).distance(psn(0xff_ffff)), psn(0xff_ffff).distance(psn(2))),
            (3, -3)
        );
        assert_eq!(
            (psn(7).distance(psn(7)), psn(0x80_0000).distance(psn(0))),
            (0, -0x80_0000)
        );
        assert_eq!(psn(0x7f_ffff).distance(psn(0)), 0x7f_ffff);
    }

    #[test]
    fn opcodes_are_those_of_the_table() {
        for number in 0..=255_u8 {
            let (transport, opcode) = Opcode::from_number(number);
            let any = transport.unwrap_or(Transport::Rc);
            assert_eq!(opcode.number(any), Some(number), "{opcode:?}");
            assert_eq!(transport.is_some(), number < 0x40);
        }
        assert_eq!(
            Opcode::from_number(0x34),
            (Some(Transport::Uc), Opcode::Other(0x34)),
            "UC has no atomics"
        );
        assert_eq!(Opcode::FetchAdd.number(Transport::Uc), None);
        assert_eq!(Opcode::Acknowledge.number(Transport::Uc), None);
    }

    #[test]
    fn syndromes_and_timers() {
        for number in 0..=255 {
            assert_eq!(Syndrome::from_number(number).number(), number);
        }
        assert_eq!(Syndrome::from_number(0x1f), Syndrome::ACK);
        assert_eq!(Syndrome::from_number(0x2e), Syndrome::Rnr(14));
        assert_eq!(Syndrome::from_number(0x60), Syndrome::Nak(Nak::SequenceError));
        assert_eq!(Syndrome::from_number(0x45), Syndrome::Reserved(0x45));
        assert_eq!(
            [0, 1, 14, 31].map(rnr_nanoseconds),
            [655_360_000, 10_000, 1_280_000, 491_520_000]
        );
    }
}
