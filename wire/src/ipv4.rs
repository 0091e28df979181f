//! IPv4 headers with options (RFC 791): a checked view, and the fields for writers.

use crate::bytes::{array_at, put_u16, u16_at};
use crate::checksum;
use crate::refusal::Refusal;

/// Length of the header without options, bytes.
pub const HEADER_LEN: usize = 20;
/// Maximum length of options, bytes.
pub const MAX_OPTIONS: usize = 40;

mod field {
    pub(super) const VERSION_IHL: usize = 0;
    pub(super) const TOS: usize = 1;
    pub(super) const TOTAL_LEN: usize = 2;
    pub(super) const IDENT: usize = 4;
    pub(super) const FRAGMENT: usize = 6;
    pub(super) const TTL: usize = 8;
    pub(super) const PROTO: usize = 9;
    pub(super) const CHECKSUM: usize = 10;
    pub(super) const SRC: usize = 12;
    pub(super) const DST: usize = 16;
    pub(super) const OPTIONS: usize = 20;
}

/// A view of an IPv4 packet, possibly truncated after its header.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    /// Creates a view of `buffer`.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] if the header is incomplete, [`Refusal::BadIpHeader`] if it is not an IPv4 header.
    pub fn new_checked(buffer: T) -> Result<Self, Refusal> {
        let bytes = buffer.as_ref();
        let first = *bytes.first().ok_or(Refusal::Truncated)?;
        let len = usize::from(first & 0x0f) * 4;
        if first >> 4 != 4 || len < HEADER_LEN {
            return Err(Refusal::BadIpHeader);
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
        usize::from(self.bytes()[field::VERSION_IHL] & 0x0f) * 4
    }

    /// Returns the type of service: DSCP in the top six bits, ECN in the low two.
    pub fn tos(&self) -> u8 {
        self.bytes()[field::TOS]
    }

    /// Returns the value of the total length field.
    pub fn total_len(&self) -> u16 {
        u16_at(self.bytes(), field::TOTAL_LEN)
    }

    /// Returns the identification field.
    pub fn ident(&self) -> u16 {
        u16_at(self.bytes(), field::IDENT)
    }

    /// Returns the flags in the top three bits and the fragment offset in the others.
    pub fn fragment(&self) -> u16 {
        u16_at(self.bytes(), field::FRAGMENT)
    }

    /// Returns the time to live.
    pub fn ttl(&self) -> u8 {
        self.bytes()[field::TTL]
    }

    /// Returns the protocol number of the payload.
    pub fn proto(&self) -> u8 {
        self.bytes()[field::PROTO]
    }

    /// Returns the header checksum field.
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes(), field::CHECKSUM)
    }

    /// Returns the source IPv4 address.
    pub fn src(&self) -> [u8; 4] {
        array_at(self.bytes(), field::SRC)
    }

    /// Returns the destination IPv4 address.
    pub fn dst(&self) -> [u8; 4] {
        array_at(self.bytes(), field::DST)
    }

    /// Returns whether the header checksum is correct.
    pub fn verify_checksum(&self) -> bool {
        checksum::of(&self.bytes()[..self.header_len()]) == 0
    }
}

impl<'a> Packet<&'a [u8]> {
    /// Returns the bytes of the options.
    pub fn options(&self) -> &'a [u8] {
        &self.0[field::OPTIONS..self.header_len()]
    }

    /// Returns the payload up to the end of the packet, or of the buffer if it is shorter.
    pub fn payload(&self) -> &'a [u8] {
        let end = usize::from(self.total_len()).clamp(self.header_len(), self.0.len());
        &self.0[self.header_len()..end]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets DSCP and ECN.
    pub fn set_tos(&mut self, tos: u8) {
        self.0.as_mut()[field::TOS] = tos;
    }

    /// Sets the length of the whole packet.
    pub fn set_total_len(&mut self, len: u16) {
        put_u16(self.0.as_mut(), field::TOTAL_LEN, len);
    }

    /// Sets the time to live.
    pub fn set_ttl(&mut self, ttl: u8) {
        self.0.as_mut()[field::TTL] = ttl;
    }

    /// Sets the protocol number.
    pub fn set_proto(&mut self, proto: u8) {
        self.0.as_mut()[field::PROTO] = proto;
    }

    /// Sets the header checksum, for example to the result of [`crate::checksum::update`].
    pub fn set_checksum(&mut self, checksum: u16) {
        put_u16(self.0.as_mut(), field::CHECKSUM, checksum);
    }

    /// Computes and sets the header checksum.
    pub fn fill_checksum(&mut self) {
        let len = self.header_len();
        let bytes = self.0.as_mut();
        put_u16(bytes, field::CHECKSUM, 0);
        let sum = checksum::of(&bytes[..len]);
        put_u16(bytes, field::CHECKSUM, sum);
    }
}

/// The header's fields except for the checksum, which is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repr<'a> {
    /// Source IPv4 address of the packet.
    pub src: [u8; 4],
    /// Destination IPv4 address of the packet.
    pub dst: [u8; 4],
    /// Protocol number of the payload.
    pub proto: u8,
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Length of the whole packet.
    pub total_len: u16,
    /// Identification field, for fragments.
    pub ident: u16,
    /// Flags in the top three bits, fragment offset in the others.
    pub fragment: u16,
    /// Time to live, in hops.
    pub ttl: u8,
    /// Options, a whole number of words of at most [`MAX_OPTIONS`] bytes.
    pub options: &'a [u8],
}

impl<'a> Repr<'a> {
    /// Reads the fields of a packet's header.
    pub fn parse(packet: &Packet<&'a [u8]>) -> Self {
        Self {
            src: packet.src(),
            dst: packet.dst(),
            proto: packet.proto(),
            tos: packet.tos(),
            total_len: packet.total_len(),
            ident: packet.ident(),
            fragment: packet.fragment(),
            ttl: packet.ttl(),
            options: packet.options(),
        }
    }

    /// Returns the length of the header, bytes.
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Writes the header with its checksum.
    ///
    /// # Panics
    /// If `out` is shorter than [`header_len`](Self::header_len), or the options are too long or not whole words.
    pub fn emit(&self, out: &mut [u8]) {
        assert!(self.options.len() <= MAX_OPTIONS && self.options.len().is_multiple_of(4));
        let len = self.header_len();
        let out = &mut out[..len];
        out[field::VERSION_IHL] = 4 << 4 | (len / 4) as u8;
        out[field::TOS] = self.tos;
        put_u16(out, field::TOTAL_LEN, self.total_len);
        put_u16(out, field::IDENT, self.ident);
        put_u16(out, field::FRAGMENT, self.fragment);
        out[field::TTL] = self.ttl;
        out[field::PROTO] = self.proto;
        out[field::SRC..field::DST].copy_from_slice(&self.src);
        out[field::DST..field::OPTIONS].copy_from_slice(&self.dst);
        out[field::OPTIONS..].copy_from_slice(self.options);
        Packet(out).fill_checksum();
    }
}
