//! GRE headers (RFC 2784 with the key and sequence number of RFC 2890). The routing field of RFC 1701 is refused.

use crate::bytes::{put_u16, put_u32, try_u32, u16_at};
use crate::refusal::Refusal;

/// Length of the header without optional fields, bytes.
pub const HEADER_LEN: usize = 4;

mod field {
    pub(super) const FLAGS: usize = 0;
    pub(super) const VERSION: usize = 1;
    pub(super) const PROTOCOL: usize = 2;
    pub(super) const OPTIONAL: usize = 4;
    pub(super) const CHECKSUM_BIT: u8 = 0x80;
    pub(super) const ROUTING_BIT: u8 = 0x40;
    pub(super) const KEY_BIT: u8 = 0x20;
    pub(super) const SEQ_BIT: u8 = 0x10;
}

/// The fields of a GRE header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repr {
    /// EtherType of the payload.
    pub protocol: u16,
    /// Checksum (high half) and offset (low half), if present.
    pub checksum: Option<u32>,
    /// Key of the tunnel, if present.
    pub key: Option<u32>,
    /// Sequence number, if it is present.
    pub seq: Option<u32>,
}

impl Repr {
    /// Parses a header of version 0.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] if the header is incomplete; [`Refusal::BadGre`] for another version or a routing field.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let header = bytes.get(..HEADER_LEN).ok_or(Refusal::Truncated)?;
        let flags = header[field::FLAGS];
        if flags & field::ROUTING_BIT != 0 || header[field::VERSION] & 7 != 0 {
            return Err(Refusal::BadGre);
        }
        let mut at = field::OPTIONAL;
        let mut optional = [None; 3];
        for (value, bit) in optional
            .iter_mut()
            .zip([field::CHECKSUM_BIT, field::KEY_BIT, field::SEQ_BIT])
        {
            if flags & bit != 0 {
                *value = Some(try_u32(bytes, at).ok_or(Refusal::Truncated)?);
                at += 4;
            }
        }
        let [checksum, key, seq] = optional;
        Ok(Self {
            protocol: u16_at(header, field::PROTOCOL),
            checksum,
            key,
            seq,
        })
    }

    /// Returns the length of the header, bytes.
    pub fn header_len(&self) -> usize {
        HEADER_LEN + [self.checksum, self.key, self.seq].iter().flatten().count() * 4
    }

    /// Writes the header.
    ///
    /// # Panics
    /// If `out` is shorter than [`header_len`](Self::header_len).
    pub fn emit(&self, out: &mut [u8]) {
        let fields = [
            (field::CHECKSUM_BIT, self.checksum),
            (field::KEY_BIT, self.key),
            (field::SEQ_BIT, self.seq),
        ];
        let mut at = field::OPTIONAL;
        (out[field::FLAGS], out[field::VERSION]) = (0, 0);
        put_u16(out, field::PROTOCOL, self.protocol);
        for (bit, value) in fields {
            if let Some(value) = value {
                out[field::FLAGS] |= bit;
                put_u32(out, at, value);
                at += 4;
            }
        }
    }
}
