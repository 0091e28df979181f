//! The classic pcap format: a header of 24 bytes, then packets, each after a header of 16 bytes.

use std::io::Read;

use super::buffer::Buffer;
use super::error::{Error, Fault};
use super::{LinkType, MAX_PACKET, Order, PacketRef};

const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
pub(super) const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;

mod field {
    //! The file header, then the packet header.
    pub(super) const LINK_TYPE: usize = 20;
    pub(super) const FILE_HEADER_LEN: usize = 24;

    pub(super) const SECONDS: usize = 0;
    pub(super) const FRACTION: usize = 4;
    pub(super) const CAPTURED: usize = 8;
    pub(super) const LENGTH: usize = 12;
    pub(super) const PACKET_HEADER_LEN: usize = 16;
}

/// Contents of the file header.
#[derive(Debug)]
pub(super) struct Pcap {
    order: Order,
    /// Nanoseconds per unit of the timestamps' fraction.
    fraction_ns: u64,
    link: LinkType,
}

impl Pcap {
    /// Reads the file header if the file begins with one; consumes nothing otherwise.
    pub(super) fn open<R: Read>(buffer: &mut Buffer<R>) -> Result<Option<Self>, Error> {
        let Some((order, fraction_ns)) = recognise(buffer.bytes()) else {
            return Ok(None);
        };
        buffer.require(field::FILE_HEADER_LEN)?;
        // The upper bits describe a frame check sequence, which a parser that follows IP lengths ignores.
        let link = LinkType::from_code(order.u32(buffer.bytes(), field::LINK_TYPE) as u16);
        buffer.consume(field::FILE_HEADER_LEN);
        Ok(Some(Self {
            order,
            fraction_ns,
            link,
        }))
    }

    #[inline]
    pub(super) fn next<R: Read>(&self, buffer: &mut Buffer<R>) -> Result<Option<PacketRef>, Error> {
        if !buffer.require_unless_at_end(field::PACKET_HEADER_LEN)? {
            return Ok(None);
        }
        let header = buffer.bytes();
        let seconds = u64::from(self.order.u32(header, field::SECONDS));
        let fraction = u64::from(self.order.u32(header, field::FRACTION));
        let length = self.order.u32(header, field::LENGTH);
        let len = self.order.u32(header, field::CAPTURED) as usize;
        if len > MAX_PACKET {
            let fault = Fault::TooLong {
                what: "packet",
                length: len as u64,
                limit: MAX_PACKET as u64,
            };
            return Err(Error::new(buffer.offset(), fault));
        }
        buffer.require(field::PACKET_HEADER_LEN + len)?;
        let start = buffer.consume(field::PACKET_HEADER_LEN + len) + field::PACKET_HEADER_LEN;
        let ts = seconds * 1_000_000_000 + fraction * self.fraction_ns;
        Ok(Some(PacketRef {
            ts,
            start,
            len,
            link: self.link,
            length,
            interface: 0,
        }))
    }
}

/// Returns the byte order of a file and its nanoseconds per timestamp fraction, by the magic number.
fn recognise(bytes: &[u8]) -> Option<(Order, u64)> {
    let magic = bytes.get(..4)?;
    [Order::Little, Order::Big]
        .into_iter()
        .find_map(|order| match order.u32(magic, 0) {
            MAGIC_MICROSECONDS => Some((order, 1_000)),
            MAGIC_NANOSECONDS => Some((order, 1)),
            _ => None,
        })
}
