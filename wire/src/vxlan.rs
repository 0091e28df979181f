//! VXLAN (RFC 7348) and VXLAN-GPE (draft-ietf-nvo3-vxlan-gpe) headers. INT can follow a VXLAN-GPE header.

use crate::bytes::{put_u24, u24_at};
use crate::refusal::Refusal;

/// Length of the header, bytes.
pub const HEADER_LEN: usize = 8;
/// UDP port of VXLAN.
pub const PORT: u16 = 4789;
/// UDP port of VXLAN-GPE.
pub const GPE_PORT: u16 = 4790;
/// UDP port that Linux uses for VXLAN by default; IANA assigned it to OTV.
pub const LINUX_PORT: u16 = 8472;

/// Next-protocol codes of VXLAN-GPE.
pub mod next {
    /// An IPv4 packet follows.
    pub const IPV4: u8 = 1;
    /// An IPv6 packet follows.
    pub const IPV6: u8 = 2;
    /// An Ethernet frame follows.
    pub const ETHERNET: u8 = 3;
    /// An INT 0.5 shim follows.
    pub const INT_05: u8 = 0x05;
    /// An INT 1.0 shim follows.
    pub const INT_10: u8 = 0x08;
    /// An INT 2.0 shim follows.
    pub const INT_20: u8 = 0x80;
    /// An INT 2.1 shim follows.
    pub const INT_21: u8 = 0x82;
}

mod field {
    pub(super) const FLAGS: usize = 0;
    pub(super) const NEXT: usize = 3;
    pub(super) const VNI: usize = 4;
    pub(super) const INSTANCE: u8 = 0x08;
    pub(super) const NEXT_VALID: u8 = 0x04;
}

/// The fields of a VXLAN header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repr {
    /// VXLAN network identifier (VNI), 24 bits, if the I bit is set.
    pub vni: Option<u32>,
    /// Next protocol, if the P bit is set (VXLAN-GPE only).
    pub next: Option<u8>,
}

impl Repr {
    /// Parses a header.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] if the header is incomplete.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let header = bytes.get(..HEADER_LEN).ok_or(Refusal::Truncated)?;
        let flags = header[field::FLAGS];
        Ok(Self {
            vni: (flags & field::INSTANCE != 0).then(|| u24_at(header, field::VNI)),
            next: (flags & field::NEXT_VALID != 0).then_some(header[field::NEXT]),
        })
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
        out[..HEADER_LEN].fill(0);
        if let Some(vni) = self.vni {
            out[field::FLAGS] |= field::INSTANCE;
            put_u24(out, field::VNI, vni);
        }
        if let Some(next) = self.next {
            out[field::FLAGS] |= field::NEXT_VALID;
            out[field::NEXT] = next;
        }
    }
}
