//! The 4-byte shims between a carrier and the INT metadata header: wire-formats section 1.2.

use super::{Mode, Version};
use crate::bytes::{put_u16, u16_at};
use crate::refusal::Refusal;

/// Bytes of every shim.
pub const LEN: usize = 4;
/// Bytes of the tail header of INT 0.5.
pub const TAIL_LEN: usize = 4;

/// The carriers that have a shim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// After UDP or TCP.
    L4,
    /// The shim after VXLAN-GPE.
    Gpe,
    /// The shim after GRE.
    Gre,
    /// In an IPv6 hop-by-hop option.
    Option,
}

/// The original fields that a shim of 2.0/2.1 stores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Next {
    /// L4, NPT 0: the original DSCP (six bits), if the source kept it.
    Dscp(u8),
    /// L4, NPT 1: the original UDP destination port.
    Port(u16),
    /// L4, NPT 2: the UDP header was inserted; this IP protocol follows.
    Protocol(u8),
    /// GRE: the EtherType of what follows, and whether the source inserted the GRE header.
    Gre {
        /// EtherType of what follows.
        ethertype: u16,
        /// The source inserted the GRE header (G).
        inserted: bool,
    },
    /// VXLAN-GPE: its next protocol, and whether the packet was plain VXLAN.
    Gpe {
        /// 1 IPv4, 2 IPv6, 3 Ethernet, 4 NSH, 0x80 or 0x82 a further INT header.
        protocol: u8,
        /// The packet was plain VXLAN (G).
        inserted: bool,
    },
    /// IPv6 option: nothing was changed.
    Nothing,
}

/// The shim of INT 2.0/2.1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shim2 {
    /// 1 MD, 2 destination, 3 MX, 4 SF.
    pub kind: u8,
    /// Words of INT header and stack that follow.
    pub length: u8,
    /// The packet's fields before INT was inserted.
    pub next: Next,
}

impl Shim2 {
    /// Shim type of INT-MD.
    pub const MD: u8 = 1;
    /// Type of a header for the destination.
    pub const DESTINATION: u8 = 2;
    /// Shim type of INT-MX.
    pub const MX: u8 = 3;
    /// Type of SF-INT: our extension, in the IPv6 hop-by-hop option and after TCP and UDP.
    pub const SF: u8 = 4;

    /// Reads the shim that follows a carrier of `kind`.
    ///
    /// # Errors
    /// [`Refusal::IntTruncated`] if it is not whole; [`Refusal::BadNextProtocolType`] if NPT is 3.
    pub fn parse(kind: Kind, bytes: &[u8]) -> Result<Self, Refusal> {
        let Some(shim) = bytes.get(..LEN) else {
            return Err(Refusal::IntTruncated);
        };
        let next = match kind {
            Kind::Option => Next::Nothing,
            Kind::L4 => match shim[0] >> 2 & 3 {
                0 => Next::Dscp(shim[3] >> 2),
                1 => Next::Port(u16_at(shim, 2)),
                2 => Next::Protocol(shim[3]),
                _ => return Err(Refusal::BadNextProtocolType),
            },
            Kind::Gre => Next::Gre {
                ethertype: u16_at(shim, 2),
                inserted: shim[0] & 0x08 != 0,
            },
            Kind::Gpe => Next::Gpe {
                protocol: shim[3],
                inserted: shim[2] & 0x80 != 0,
            },
        };
        Ok(Self {
            kind: shim[0] >> 4,
            length: shim[1],
            next,
        })
    }

    /// Writes the 4 bytes of the shim.
    ///
    /// # Panics
    /// If `out` is shorter than [`LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        out[0] = self.kind << 4;
        out[1] = self.length;
        put_u16(out, 2, 0);
        match self.next {
            Next::Nothing => {}
            Next::Dscp(dscp) => out[3] = dscp << 2,
            Next::Port(port) => {
                out[0] |= 1 << 2;
                put_u16(out, 2, port);
            }
            Next::Protocol(protocol) => {
                out[0] |= 2 << 2;
                out[3] = protocol;
            }
            Next::Gre { ethertype, inserted } => {
                out[0] |= u8::from(inserted) << 3;
                put_u16(out, 2, ethertype);
            }
            Next::Gpe { protocol, inserted } => {
                out[2] = u8::from(inserted) << 7;
                out[3] = protocol;
            }
        }
    }
}

/// The shim of INT 0.5 and 1.0. Its length counts the shim itself, and in 0.5 the tail.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shim1 {
    /// 1 hop-by-hop, 2 destination, 3 host-int's private type.
    pub kind: u8,
    /// Words, this shim included.
    pub length: u8,
    /// After L4: 0 in 0.5, the original DSCP in the top six bits in 1.0. After VXLAN-GPE: its next protocol.
    pub last: u8,
}

impl Shim1 {
    /// Reads the shim.
    ///
    /// # Errors
    /// [`Refusal::IntTruncated`] if it is not whole.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let Some(shim) = bytes.get(..LEN) else {
            return Err(Refusal::IntTruncated);
        };
        Ok(Self {
            kind: shim[0],
            length: shim[2],
            last: shim[3],
        })
    }

    /// Writes the 4 bytes of the shim.
    ///
    /// # Panics
    /// If `out` is shorter than [`LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        out[..LEN].copy_from_slice(&[self.kind, 0, self.length, self.last]);
    }
}

/// The tail header of INT 0.5 over TCP and UDP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tail {
    /// IP protocol of the packet before INT was inserted.
    pub proto: u8,
    /// Original L4 destination port.
    pub port: u16,
    /// Byte of the original DSCP, unshifted.
    pub dscp: u8,
}

impl Tail {
    /// Reads the tail.
    ///
    /// # Errors
    /// [`Refusal::IntTruncated`] if it is not whole.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let Some(tail) = bytes.get(..TAIL_LEN) else {
            return Err(Refusal::IntTruncated);
        };
        Ok(Self {
            proto: tail[0],
            port: u16_at(tail, 1),
            dscp: tail[3],
        })
    }

    /// Writes the 4 bytes of the tail.
    ///
    /// # Panics
    /// If `out` is shorter than [`TAIL_LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        out[0] = self.proto;
        put_u16(out, 1, self.port);
        out[3] = self.dscp;
    }
}

/// The kind of INT that the first shim byte and the version nibble of the following header announce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Detected {
    Int(Version, Mode),
    /// SF-INT, where it is allowed.
    Sf,
    /// The private type of host-int.
    Private,
    /// INT for the destination, which is skipped.
    Destination(Version),
}

/// Properties that depend on the position of a shim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShimContext {
    /// host-int's private type is recognised here.
    pub(crate) hostint: bool,
    /// SF-INT is allowed here.
    pub(crate) sf: bool,
}

/// Detects INT by a shim and the table of section 1.2. `version` is the high nibble of the metadata header,
/// and `zero_is_10` is true if ruling (a) applies to this header.
#[inline]
pub(crate) fn detect(
    first: u8,
    version: u8,
    context: ShimContext,
    zero_is_10: bool,
) -> Result<Detected, Refusal> {
    match (first, version) {
        (0x01, 1) => Ok(Detected::Int(Version::V10, Mode::Md)),
        (0x01, 0) if zero_is_10 => Ok(Detected::Int(Version::V10, Mode::Md)),
        (0x01, 0) => Ok(Detected::Int(Version::V05, Mode::Md)),
        (0x03, 0) if context.hostint => Ok(Detected::Private),
        (0x02, _) => Ok(Detected::Destination(Version::V10)),
        (0x10..=0x1f, 2) => Ok(Detected::Int(Version::V2, Mode::Md)),
        (0x30..=0x3f, 2) => Ok(Detected::Int(Version::V2, Mode::Mx)),
        (0x20..=0x2f, _) => Ok(Detected::Destination(Version::V2)),
        (0x40..=0x4f, 2) if context.sf => Ok(Detected::Sf),
        (0x40..=0x4f, _) if context.sf => Err(Refusal::BadIntVersion),
        (0x01 | 0x10..=0x1f | 0x30..=0x3f, _) => Err(Refusal::BadIntVersion),
        _ => Err(Refusal::BadShim),
    }
}
