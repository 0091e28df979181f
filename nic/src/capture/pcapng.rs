//! The pcapng format: a file of sections, each a sequence of blocks that describe interfaces before their packets.

use std::collections::HashMap;
use std::io::Read;

use super::buffer::{self, Buffer};
use super::error::{Error, Fault};
use super::{LinkType, MAX_PACKET, Order, PacketRef};

/// Maximum number of interfaces in a section, and of different ones in a file; a file with more is malformed.
const MAX_INTERFACES: usize = 4096;
/// A name of an interface is compared up to this length, bytes.
const MAX_NAME: usize = 256;

mod block {
    //! Block types, and the layout of every block: type, length, body, length again.
    // Block types.
    pub(super) const SECTION: u32 = 0x0a0d_0d0a;
    pub(super) const INTERFACE: u32 = 1;
    pub(super) const OLD_PACKET: u32 = 2;
    pub(super) const SIMPLE_PACKET: u32 = 3;
    pub(super) const ENHANCED_PACKET: u32 = 6;

    pub(super) const LENGTH: usize = 4;
    // Offset of the body.
    pub(super) const BODY: usize = 8;
    pub(super) const TRAILER_LEN: usize = 4;
    pub(super) const MIN_LEN: usize = BODY + TRAILER_LEN;
}

mod section {
    pub(super) const ORDER: usize = 0;
    pub(super) const MAJOR: usize = 4;
    pub(super) const BODY_LEN: usize = 16;
    pub(super) const ORDER_MAGIC: u32 = 0x1a2b_3c4d;
}

mod interface {
    pub(super) const LINK_TYPE: usize = 0;
    pub(super) const SNAP_LEN: usize = 4;
    pub(super) const OPTIONS: usize = 8;
    pub(super) const OPTION_END: u16 = 0;
    pub(super) const OPTION_NAME: u16 = 2;
    pub(super) const OPTION_RESOLUTION: u16 = 9;
    pub(super) const OPTION_OFFSET: u16 = 14;
}

mod enhanced {
    pub(super) const INTERFACE: usize = 0;
    pub(super) const TIME_HIGH: usize = 4;
    pub(super) const TIME_LOW: usize = 8;
    pub(super) const CAPTURED: usize = 12;
    pub(super) const LENGTH: usize = 16;
    pub(super) const DATA: usize = 20;
}

/// State of the current section.
#[derive(Debug)]
pub(super) struct Pcapng {
    order: Order,
    interfaces: Vec<Interface>,
    /// The numbers in the file of all interfaces so far: sections number their interfaces anew.
    numbers: HashMap<InterfaceId, u16>,
}

/// Identifies an interface in all sections of a file, and in all files of a ring.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum InterfaceId {
    /// The name in the description.
    Name(Box<[u8]>),
    /// The number in the section, for an interface without a name.
    Number(u16),
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    /// The interface's number in the file.
    number: u16,
    link: LinkType,
    /// Maximum captured length; 0 if packets are not truncated.
    snap_len: u32,
    resolution: Resolution,
    /// Seconds to add to every timestamp (option `if_tsoffset`).
    offset: i64,
}

impl Pcapng {
    /// Recognises a file by its section header; consumes nothing.
    pub(super) fn open(bytes: &[u8]) -> Option<Self> {
        let begins = bytes.starts_with(&block::SECTION.to_be_bytes());
        begins.then(|| Self {
            order: Order::Little,
            interfaces: Vec::new(),
            numbers: HashMap::new(),
        })
    }

    /// Returns what identifies the interface with a number in the file, or `None` if it was not described yet.
    pub(super) fn interface_id(&self, number: u16) -> Option<&InterfaceId> {
        let mut ids = self.numbers.iter();
        ids.find_map(|(id, known)| (*known == number).then_some(id))
    }

    /// Returns the number of interfaces described so far in the current section.
    pub(super) fn interfaces(&self) -> usize {
        self.interfaces.len()
    }

    /// Returns the next packet. Reads or skips other kinds of blocks on the way.
    #[inline]
    pub(super) fn next<R: Read>(&mut self, buffer: &mut Buffer<R>) -> Result<Option<PacketRef>, Error> {
        loop {
            let offset = buffer.offset();
            if !buffer.require_unless_at_end(block::MIN_LEN)? {
                return Ok(None);
            }
            let kind = self
                .begin(buffer.bytes())
                .map_err(|fault| Error::new(offset, fault))?;
            let len = self.order.u32(buffer.bytes(), block::LENGTH) as usize;
            if len < block::MIN_LEN || !len.is_multiple_of(4) {
                return Err(Error::new(
                    offset,
                    Fault::Malformed("a block's length is not possible"),
                ));
            }
            if len > buffer::MAX_READ {
                if !buffer.may_read() {
                    return Ok(None);
                }
                self.skip(buffer, kind, len)?;
                continue;
            }
            buffer.require(len)?;
            let start = buffer.consume(len);
            let bytes = buffer.consumed(start, len);
            let (body, trailer) = bytes[block::BODY..].split_at(len - block::MIN_LEN);
            if self.order.u32(trailer, 0) as usize != len {
                return Err(Error::new(
                    offset,
                    Fault::Malformed("a block's two lengths differ"),
                ));
            }
            let packet = self.body(kind, body).map_err(|fault| Error::new(offset, fault))?;
            if let Some(mut packet) = packet {
                packet.start += start + block::BODY;
                return Ok(Some(packet));
            }
        }
    }

    /// Returns the type of the block at the start of `bytes`. A section header also sets the byte order, which already applies
    /// to its own length.
    fn begin(&mut self, bytes: &[u8]) -> Result<u32, Fault> {
        let kind = self.order.u32(bytes, 0);
        if kind == block::SECTION {
            let magic = &bytes[block::BODY + section::ORDER..];
            self.order = [Order::Little, Order::Big]
                .into_iter()
                .find(|order| order.u32(magic, 0) == section::ORDER_MAGIC)
                .ok_or(Fault::Malformed("a section's byte order is unknown"))?;
        }
        Ok(kind)
    }

    /// Skips a block that is longer than the window.
    fn skip<R: Read>(&self, buffer: &mut Buffer<R>, kind: u32, len: usize) -> Result<(), Error> {
        let offset = buffer.offset();
        if matches!(
            kind,
            block::SECTION
                | block::INTERFACE
                | block::OLD_PACKET
                | block::SIMPLE_PACKET
                | block::ENHANCED_PACKET
        ) {
            let fault = Fault::TooLong {
                what: "block",
                length: len as u64,
                limit: buffer::MAX_READ as u64,
            };
            return Err(Error::new(offset, fault));
        }
        let is_whole = buffer.skip((len - block::TRAILER_LEN) as u64)?;
        if !is_whole || !buffer.need(block::TRAILER_LEN)? {
            return Err(Error::new(offset, Fault::Cut));
        }
        if self.order.u32(buffer.bytes(), 0) as usize != len {
            return Err(Error::new(
                offset,
                Fault::Malformed("a block's two lengths differ"),
            ));
        }
        buffer.consume(block::TRAILER_LEN);
        Ok(())
    }

    /// Processes the body of a block. The offset of a returned packet is relative to the body.
    #[inline]
    fn body(&mut self, kind: u32, body: &[u8]) -> Result<Option<PacketRef>, Fault> {
        match kind {
            block::ENHANCED_PACKET => self.enhanced(body).map(Some),
            block::OLD_PACKET => self.old(body).map(Some),
            block::SIMPLE_PACKET => self.simple(body).map(Some),
            block::INTERFACE => self.interface(body).map(|()| None),
            block::SECTION => self.section(body).map(|()| None),
            _ => Ok(None),
        }
    }

    fn section(&mut self, body: &[u8]) -> Result<(), Fault> {
        if body.len() < section::BODY_LEN {
            return Err(Fault::Malformed("a section header is too short"));
        }
        if self.order.u16(body, section::MAJOR) != 1 {
            return Err(Fault::Malformed("the version of pcapng is not 1"));
        }
        self.interfaces.clear();
        Ok(())
    }

    fn interface(&mut self, body: &[u8]) -> Result<(), Fault> {
        if body.len() < interface::OPTIONS {
            return Err(Fault::Malformed("the description of an interface is too short"));
        }
        const TOO_MANY: Fault = Fault::Malformed("more interfaces are described than a capture has");
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(TOO_MANY);
        }
        let mut id = InterfaceId::Number(self.interfaces.len() as u16);
        let mut described = Interface {
            number: 0,
            link: LinkType::from_code(self.order.u16(body, interface::LINK_TYPE)),
            snap_len: self.order.u32(body, interface::SNAP_LEN),
            resolution: Resolution::Multiply(1_000),
            offset: 0,
        };
        let mut options = &body[interface::OPTIONS..];
        while options.len() >= 4 {
            let code = self.order.u16(options, 0);
            let len = usize::from(self.order.u16(options, 2));
            if code == interface::OPTION_END {
                break;
            }
            let value = options
                .get(4..4 + len)
                .ok_or(Fault::Malformed("an option is longer than its block"))?;
            match (code, value) {
                (interface::OPTION_NAME, name) if !name.is_empty() => {
                    id = InterfaceId::Name(name[..len.min(MAX_NAME)].into());
                }
                (interface::OPTION_RESOLUTION, &[code]) => described.resolution = Resolution::of(code)?,
                (interface::OPTION_OFFSET, value) if len == 8 => {
                    // A 64-bit number: its two words are in the same order as the bytes of a word.
                    let first = u64::from(self.order.u32(value, 0));
                    let second = u64::from(self.order.u32(value, 4));
                    let bits = if self.order == Order::Little {
                        second << 32 | first
                    } else {
                        first << 32 | second
                    };
                    described.offset = bits as i64;
                }
                _ => {}
            }
            options = options.get(4 + len.next_multiple_of(4)..).unwrap_or(&[]);
        }
        let next = self.numbers.len();
        described.number = match self.numbers.get(&id) {
            Some(number) => *number,
            None if next < MAX_INTERFACES => *self.numbers.entry(id).or_insert(next as u16),
            None => return Err(TOO_MANY),
        };
        self.interfaces.push(described);
        Ok(())
    }

    #[inline]
    fn enhanced(&self, body: &[u8]) -> Result<PacketRef, Fault> {
        if body.len() < enhanced::DATA {
            return Err(Fault::Malformed("a packet's block is too short"));
        }
        self.packet(body, self.order.u32(body, enhanced::INTERFACE))
    }

    /// Reads the obsolete packet block: like the enhanced packet block, with a shorter interface number and a drop count.
    fn old(&self, body: &[u8]) -> Result<PacketRef, Fault> {
        if body.len() < enhanced::DATA {
            return Err(Fault::Malformed("a packet's block is too short"));
        }
        self.packet(body, self.order.u16(body, enhanced::INTERFACE).into())
    }

    /// Reads the simple packet block: a length and the packet. It belongs to the first interface, and is truncated to its snap
    /// length.
    fn simple(&self, body: &[u8]) -> Result<PacketRef, Fault> {
        const DATA: usize = 4;
        if body.len() < DATA {
            return Err(Fault::Malformed("a packet's block is too short"));
        }
        let interface = self.interface_of(0)?;
        let length = self.order.u32(body, 0);
        let snap_len = if interface.snap_len == 0 {
            u32::MAX
        } else {
            interface.snap_len
        };
        let len = checked_len(length.min(snap_len), body.len() - DATA)?;
        Ok(PacketRef {
            ts: 0,
            start: DATA,
            len,
            link: interface.link,
            length,
            interface: interface.number,
        })
    }

    #[inline]
    fn packet(&self, body: &[u8], number: u32) -> Result<PacketRef, Fault> {
        let interface = self.interface_of(number)?;
        let len = checked_len(
            self.order.u32(body, enhanced::CAPTURED),
            body.len() - enhanced::DATA,
        )?;
        let high = u64::from(self.order.u32(body, enhanced::TIME_HIGH));
        let stamp = high << 32 | u64::from(self.order.u32(body, enhanced::TIME_LOW));
        let ts = interface.resolution.nanoseconds(stamp);
        let ts = if interface.offset == 0 {
            ts
        } else {
            shift(ts, interface.offset)
        };
        let length = self.order.u32(body, enhanced::LENGTH);
        Ok(PacketRef {
            ts,
            start: enhanced::DATA,
            len,
            link: interface.link,
            length,
            interface: interface.number,
        })
    }

    #[inline]
    fn interface_of(&self, index: u32) -> Result<&Interface, Fault> {
        self.interfaces.get(index as usize).ok_or(Fault::Malformed(
            "a packet is of an interface that was not described",
        ))
    }
}

/// Checks a packet's length against the `room` in its block and the limit.
#[inline]
fn checked_len(len: u32, room: usize) -> Result<usize, Fault> {
    let len = len as usize;
    if len > MAX_PACKET {
        return Err(Fault::TooLong {
            what: "packet",
            length: len as u64,
            limit: MAX_PACKET as u64,
        });
    }
    if len > room {
        Err(Fault::Malformed("a packet is longer than its block"))
    } else {
        Ok(len)
    }
}

/// Adds seconds to `ts`, saturating.
fn shift(ts: u64, seconds: i64) -> u64 {
    let moved = i128::from(ts) + i128::from(seconds) * 1_000_000_000;
    u64::try_from(moved.max(0)).unwrap_or(u64::MAX)
}

/// The unit of an interface's timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Resolution {
    /// Number of nanoseconds per unit.
    Multiply(u64),
    /// Number of units per nanosecond.
    Divide(u64),
    /// A second has `1 << n` units.
    Binary(u32),
}

impl Resolution {
    /// Decodes the option: the highest bit selects powers of two or of ten; the others are the (negative) exponent.
    fn of(code: u8) -> Result<Self, Fault> {
        const FINER: Fault = Fault::Malformed("the timestamp resolution is implausible");
        let exponent = u32::from(code & 0x7f);
        match code >> 7 {
            1 if exponent <= 63 => Ok(Self::Binary(exponent)),
            0 if exponent <= 9 => Ok(Self::Multiply(10u64.pow(9 - exponent))),
            0 if exponent <= 28 => Ok(Self::Divide(10u64.pow(exponent - 9))),
            _ => Err(FINER),
        }
    }

    #[inline]
    fn nanoseconds(self, stamp: u64) -> u64 {
        match self {
            Self::Multiply(factor) => stamp.saturating_mul(factor),
            Self::Divide(divisor) => stamp / divisor,
            Self::Binary(bits) => {
                u64::try_from((u128::from(stamp) * 1_000_000_000) >> bits).unwrap_or(u64::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolutions() {
        let ns = |code, stamp| {
            Resolution::of(code)
                .map(|resolution| resolution.nanoseconds(stamp))
                .ok()
        };
        assert_eq!(ns(6, 7), Some(7_000));
        assert_eq!(ns(9, 7), Some(7));
        assert_eq!(ns(0, 7), Some(7_000_000_000));
        assert_eq!(ns(12, 7_999), Some(7));
        assert_eq!(ns(0x80 | 10, 1536), Some(1_500_000_000));
        assert_eq!(ns(0x80 | 63, 1 << 63), Some(1_000_000_000));
        assert_eq!(ns(0, u64::MAX), Some(u64::MAX));
        assert_eq!(ns(0x80, u64::MAX), Some(u64::MAX));
        assert_eq!(ns(28, u64::MAX), Some(1));
        for code in [29, 0x7f, 0x80 | 64, 0xff] {
            assert_eq!(ns(code, 1), None, "{code}");
        }
        assert_eq!(
            (shift(5, -1), shift(5_000_000_000, -3), shift(u64::MAX, 1)),
            (0, 2_000_000_000, u64::MAX)
        );
    }
}
