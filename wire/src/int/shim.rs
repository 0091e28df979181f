//! The 4-byte INT shims between an encapsulation and the INT metadata header, for INT 0.5 to 2.1
//! (`docs/reference/wire-formats.md`, section 1.2).

use super::{Mode, Version};
use crate::bytes::{put_u16, u16_at};
use crate::refusal::Refusal;

/// Length of every shim, bytes.
pub const LEN: usize = 4;
/// Length of the INT 0.5 tail header, bytes.
pub const TAIL_LEN: usize = 4;

/// The encapsulations that have a shim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// After the UDP or TCP header.
    L4,
    /// After the VXLAN-GPE header.
    Gpe,
    /// After the GRE header.
    Gre,
    /// In an IPv6 hop-by-hop option.
    Option,
}

/// The packet's original fields, stored in a 2.0/2.1 shim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Next {
    /// L4, NPT 0: the original DSCP (six bits), if the source stored it.
    Dscp(u8),
    /// L4, NPT 1: the original UDP destination port.
    Port(u16),
    /// L4, NPT 2: the source inserted the UDP header; the original packet continues with this IP protocol.
    Protocol(u8),
    /// GRE: the original EtherType, and whether the source inserted the GRE header.
    Gre {
        /// EtherType of the data after INT.
        ethertype: u16,
        /// G bit: the source inserted the GRE header.
        inserted: bool,
    },
    /// VXLAN-GPE: the original next protocol, and whether the packet was plain VXLAN.
    Gpe {
        /// 1 IPv4, 2 IPv6, 3 Ethernet, 4 NSH, 0x80 or 0x82 another INT header.
        protocol: u8,
        /// G bit: the packet was plain VXLAN.
        inserted: bool,
    },
    /// IPv6 option: no field was changed.
    Nothing,
}

/// The fields of an INT 2.0/2.1 shim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shim2 {
    /// Type: 1 MD, 2 destination, 3 MX, 4 SF-INT.
    pub kind: u8,
    /// Length of the INT header and stack that follow, in words.
    pub length: u8,
    /// Original fields of the packet.
    pub next: Next,
}

impl Shim2 {
    /// Shim type of INT-MD.
    pub const MD: u8 = 1;
    /// Shim type of an INT header for the destination.
    pub const DESTINATION: u8 = 2;
    /// Shim type of INT-MX.
    pub const MX: u8 = 3;
    /// Shim type of SF-INT, an extension of this project, in the IPv6 hop-by-hop option and after TCP and UDP.
    pub const SF: u8 = 4;

    /// Parses the shim that follows an encapsulation of `kind`.
    ///
    /// # Errors
    /// [`Refusal::IntTruncated`] if the shim is incomplete; [`Refusal::BadNextProtocolType`] if NPT is 3.
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

    /// Writes the shim, 4 bytes.
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

/// The fields of an INT 0.5 or 1.0 shim. Its length includes the shim itself, and in 0.5 the tail.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shim1 {
    /// Type: 1 hop-by-hop, 2 destination, 3 host-int's private type.
    pub kind: u8,
    /// Length in words, including this shim.
    pub length: u8,
    /// After L4: 0 in 0.5; in 1.0, the original DSCP in the top six bits. After VXLAN-GPE: its original next protocol.
    pub last: u8,
}

impl Shim1 {
    /// Parses the shim.
    ///
    /// # Errors
    /// [`Refusal::IntTruncated`] if the shim is incomplete.
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

    /// Writes the shim, 4 bytes.
    ///
    /// # Panics
    /// If `out` is shorter than [`LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        out[..LEN].copy_from_slice(&[self.kind, 0, self.length, self.last]);
    }
}

/// The INT 0.5 tail header over TCP and UDP, which stores the packet's original fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tail {
    /// Original IP protocol of the packet.
    pub proto: u8,
    /// Original L4 destination port.
    pub port: u16,
    /// Original DSCP, as an unshifted byte.
    pub dscp: u8,
}

impl Tail {
    /// Parses the tail.
    ///
    /// # Errors
    /// [`Refusal::IntTruncated`] if the tail is incomplete.
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

    /// Writes the tail, 4 bytes.
    ///
    /// # Panics
    /// If `out` is shorter than [`TAIL_LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        out[0] = self.proto;
        put_u16(out, 1, self.port);
        out[3] = self.dscp;
    }
}

/// The kind of INT announced by a shim's first byte and the version of the next header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Detected {
    Int(Version, Mode),
    /// SF-INT, where the position allows it.
    Sf,
    /// Private INT type of host-int.
    Private,
    /// INT for the destination, which is skipped.
    Destination(Version),
}

/// Properties of a shim's position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShimContext {
    /// host-int's private type is recognized here.
    pub(crate) hostint: bool,
    /// SF-INT is allowed here.
    pub(crate) sf: bool,
}

/// Detects the kind of INT from a shim's first byte and the metadata header's version nibble, by the table of section 1.2.
/// `zero_is_10` tells that a version nibble of 0 means INT 1.0 (section 9, ruling a).
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
