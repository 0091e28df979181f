//! TCP headers with options (RFC 9293), without connection state: a checked view, and the fields for writers.

use crate::bytes::{put_u16, put_u32, u16_at, u32_at};
use crate::checksum;
use crate::refusal::Refusal;

/// Length of the header without options, bytes.
pub const HEADER_LEN: usize = 20;
/// Maximum length of options, bytes.
pub const MAX_OPTIONS: usize = 40;

mod field {
    pub(super) const SRC_PORT: usize = 0;
    pub(super) const DST_PORT: usize = 2;
    pub(super) const SEQ: usize = 4;
    pub(super) const ACK: usize = 8;
    pub(super) const OFFSET_FLAGS: usize = 12;
    pub(super) const WINDOW: usize = 14;
    pub(super) const CHECKSUM: usize = 16;
    pub(super) const URGENT: usize = 18;
    pub(super) const OPTIONS: usize = 20;
}

/// A view of a TCP segment, possibly truncated after its header.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    /// Creates a view of `buffer`.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] if the header is incomplete, [`Refusal::BadLength`] if its length field is below 20 bytes.
    pub fn new_checked(buffer: T) -> Result<Self, Refusal> {
        let bytes = buffer.as_ref();
        if bytes.len() < HEADER_LEN {
            return Err(Refusal::Truncated);
        }
        let len = usize::from(bytes[field::OFFSET_FLAGS] >> 4) * 4;
        if len < HEADER_LEN {
            return Err(Refusal::BadLength);
        }
        if bytes.len() < len {
            Err(Refusal::Truncated)
        } else {
            Ok(Self(buffer))
        }
    }

    fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// Returns the header length including options, bytes.
    pub fn header_len(&self) -> usize {
        usize::from(self.bytes()[field::OFFSET_FLAGS] >> 4) * 4
    }

    /// Returns the source port.
    pub fn src_port(&self) -> u16 {
        u16_at(self.bytes(), field::SRC_PORT)
    }

    /// Returns the destination port.
    pub fn dst_port(&self) -> u16 {
        u16_at(self.bytes(), field::DST_PORT)
    }

    /// Returns the sequence number.
    pub fn seq(&self) -> u32 {
        u32_at(self.bytes(), field::SEQ)
    }

    /// Returns the acknowledgment number.
    pub fn ack(&self) -> u32 {
        u32_at(self.bytes(), field::ACK)
    }

    /// Returns the reserved bits and flags, twelve bits.
    pub fn flags(&self) -> u16 {
        u16_at(self.bytes(), field::OFFSET_FLAGS) & 0x0fff
    }

    /// Returns the window field.
    pub fn window(&self) -> u16 {
        u16_at(self.bytes(), field::WINDOW)
    }

    /// Returns the checksum field.
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes(), field::CHECKSUM)
    }

    /// Returns the urgent pointer field.
    pub fn urgent(&self) -> u16 {
        u16_at(self.bytes(), field::URGENT)
    }
}

impl<'a> Packet<&'a [u8]> {
    /// Returns the bytes of the options.
    pub fn options(&self) -> &'a [u8] {
        &self.0[field::OPTIONS..self.header_len()]
    }

    /// Returns the bytes after the header.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[self.header_len()..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets the destination port.
    pub fn set_dst_port(&mut self, port: u16) {
        put_u16(self.0.as_mut(), field::DST_PORT, port);
    }

    /// Sets the checksum field.
    pub fn set_checksum(&mut self, checksum: u16) {
        put_u16(self.0.as_mut(), field::CHECKSUM, checksum);
    }

    /// Computes and sets the checksum over all bytes. `addresses` is as in [`checksum::transport`].
    pub fn fill_checksum(&mut self, addresses: &[u8]) {
        self.set_checksum(0);
        let sum = checksum::transport(addresses, 6, self.0.as_ref());
        self.set_checksum(sum);
    }
}

/// The fields of a TCP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repr<'a> {
    /// Source port of the segment.
    pub src_port: u16,
    /// Destination port of the segment.
    pub dst_port: u16,
    /// Sequence number of the first data byte.
    pub seq: u32,
    /// Acknowledgment number: next byte expected.
    pub ack: u32,
    /// Reserved bits and flags, twelve bits.
    pub flags: u16,
    /// Receive window, without its scale.
    pub window: u16,
    /// Checksum, as in the header.
    pub checksum: u16,
    /// Urgent pointer, as in the header.
    pub urgent: u16,
    /// Options, a whole number of words of at most [`MAX_OPTIONS`] bytes.
    pub options: &'a [u8],
}

impl<'a> Repr<'a> {
    /// Reads the fields of a segment's header.
    pub fn parse(packet: &Packet<&'a [u8]>) -> Self {
        Self {
            src_port: packet.src_port(),
            dst_port: packet.dst_port(),
            seq: packet.seq(),
            ack: packet.ack(),
            flags: packet.flags(),
            window: packet.window(),
            checksum: packet.checksum(),
            urgent: packet.urgent(),
            options: packet.options(),
        }
    }

    /// Returns the length of the header, bytes.
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Writes the header.
    ///
    /// # Panics
    /// If `out` is shorter than [`header_len`](Self::header_len), or the options are too long or not whole words.
    pub fn emit(&self, out: &mut [u8]) {
        assert!(self.options.len() <= MAX_OPTIONS && self.options.len().is_multiple_of(4));
        let len = self.header_len();
        let out = &mut out[..len];
        put_u16(out, field::SRC_PORT, self.src_port);
        put_u16(out, field::DST_PORT, self.dst_port);
        put_u32(out, field::SEQ, self.seq);
        put_u32(out, field::ACK, self.ack);
        put_u16(
            out,
            field::OFFSET_FLAGS,
            (len as u16 / 4) << 12 | self.flags & 0x0fff,
        );
        put_u16(out, field::WINDOW, self.window);
        put_u16(out, field::CHECKSUM, self.checksum);
        put_u16(out, field::URGENT, self.urgent);
        out[field::OPTIONS..].copy_from_slice(self.options);
    }
}
