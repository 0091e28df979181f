//! UDP headers (RFC 768): a checked view, and the fields for writers.

use crate::bytes::{put_u16, u16_at};
use crate::checksum;
use crate::refusal::Refusal;

/// Length of the header, bytes.
pub const HEADER_LEN: usize = 8;

mod field {
    pub(super) const SRC_PORT: usize = 0;
    pub(super) const DST_PORT: usize = 2;
    pub(super) const LEN: usize = 4;
    pub(super) const CHECKSUM: usize = 6;
}

/// A view of a UDP datagram, possibly truncated after its header.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    /// Creates a view of `buffer`.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] if the header is incomplete.
    pub fn new_checked(buffer: T) -> Result<Self, Refusal> {
        if buffer.as_ref().len() < HEADER_LEN {
            Err(Refusal::Truncated)
        } else {
            Ok(Self(buffer))
        }
    }

    /// Returns the source port.
    pub fn src_port(&self) -> u16 {
        u16_at(self.0.as_ref(), field::SRC_PORT)
    }

    /// Returns the destination port.
    pub fn dst_port(&self) -> u16 {
        u16_at(self.0.as_ref(), field::DST_PORT)
    }

    /// Returns the length field: header and payload, bytes.
    pub fn len(&self) -> u16 {
        u16_at(self.0.as_ref(), field::LEN)
    }

    /// Returns whether there is no payload.
    pub fn is_empty(&self) -> bool {
        usize::from(self.len()) <= HEADER_LEN
    }

    /// Returns the checksum, or 0 for none.
    pub fn checksum(&self) -> u16 {
        u16_at(self.0.as_ref(), field::CHECKSUM)
    }
}

impl<'a> Packet<&'a [u8]> {
    /// Returns the payload up to the end of the datagram, or of the buffer if it is shorter.
    pub fn payload(&self) -> &'a [u8] {
        let end = usize::from(self.len()).clamp(HEADER_LEN, self.0.len());
        &self.0[HEADER_LEN..end]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets the source port.
    pub fn set_src_port(&mut self, port: u16) {
        put_u16(self.0.as_mut(), field::SRC_PORT, port);
    }

    /// Sets the destination port.
    pub fn set_dst_port(&mut self, port: u16) {
        put_u16(self.0.as_mut(), field::DST_PORT, port);
    }

    /// Sets the length of header and payload.
    pub fn set_len(&mut self, len: u16) {
        put_u16(self.0.as_mut(), field::LEN, len);
    }

    /// Sets the checksum field.
    pub fn set_checksum(&mut self, checksum: u16) {
        put_u16(self.0.as_mut(), field::CHECKSUM, checksum);
    }

    /// Computes and sets the checksum over the datagram's length. `addresses` is as in [`checksum::transport`].
    ///
    /// # Panics
    /// If the buffer is shorter than the datagram.
    pub fn fill_checksum(&mut self, addresses: &[u8]) {
        let len = usize::from(self.len());
        self.set_checksum(0);
        let sum = checksum::udp(addresses, &self.0.as_ref()[..len]);
        self.set_checksum(sum);
    }
}

/// The fields of a UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repr {
    /// Source port of the datagram.
    pub src_port: u16,
    /// Destination port of the datagram.
    pub dst_port: u16,
    /// Length of header and payload, bytes.
    pub len: u16,
    /// Checksum; 0 is none.
    pub checksum: u16,
}

impl Repr {
    /// Reads the fields of a datagram's header.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Self {
            src_port: packet.src_port(),
            dst_port: packet.dst_port(),
            len: packet.len(),
            checksum: packet.checksum(),
        }
    }

    /// Returns the length of the header, bytes.
    pub const fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header.
    ///
    /// # Panics
    /// If `out` is shorter than [`HEADER_LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        put_u16(out, field::SRC_PORT, self.src_port);
        put_u16(out, field::DST_PORT, self.dst_port);
        put_u16(out, field::LEN, self.len);
        put_u16(out, field::CHECKSUM, self.checksum);
    }
}
