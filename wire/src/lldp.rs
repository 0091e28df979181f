//! LLDP (IEEE 802.1AB): the LLDPDU by which a switch port announces itself to its neighbor; the manager discovers links
//! with it.
//!
//! An LLDPDU is a sequence of TLVs: a 7-bit type, a 9-bit length, and the value. Chassis ID, Port ID and Time To Live come
//! first, once each in this order. End Of LLDPDU comes last, and tells a complete LLDPDU from a truncated one.

use crate::bytes::{put_u16, try_u16, u16_at};
use crate::refusal::{EmitError, Refusal};

/// EtherType of LLDP frames.
pub const ETHERTYPE: u16 = 0x88cc;
/// Destination address "nearest bridge", which no bridge forwards.
pub const NEAREST_BRIDGE: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e];
/// Maximum length of a Chassis ID or Port ID without its subtype, bytes.
pub const MAX_ID_LEN: usize = 255;
/// Maximum length of a Port Description or System Name, bytes.
pub const MAX_TEXT_LEN: usize = 255;

/// Length of a TLV's type and length field, bytes.
const TLV_HEADER_LEN: usize = 2;

mod tlv {
    pub(super) const END: u8 = 0;
    pub(super) const CHASSIS_ID: u8 = 1;
    pub(super) const PORT_ID: u8 = 2;
    pub(super) const TIME_TO_LIVE: u8 = 3;
    pub(super) const PORT_DESCRIPTION: u8 = 4;
    pub(super) const SYSTEM_NAME: u8 = 5;
}

/// Subtypes of a Chassis ID that this project uses.
pub mod chassis {
    /// The chassis ID is a MAC address.
    pub const MAC: u8 = 4;
    /// The chassis ID is a locally assigned name.
    pub const LOCAL: u8 = 7;
}

/// Subtypes of a Port ID that this project uses.
pub mod port {
    /// The port ID is a MAC address.
    pub const MAC: u8 = 3;
    /// The port ID is an interface name.
    pub const INTERFACE_NAME: u8 = 5;
    /// The port ID is a locally assigned name.
    pub const LOCAL: u8 = 7;
}

/// A Chassis ID or Port ID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Id<'a> {
    /// Subtype, which determines the meaning of `bytes`: see [`chassis`] and [`port`].
    pub subtype: u8,
    /// The ID itself, 1 to 255 bytes.
    pub bytes: &'a [u8],
}

impl<'a> Id<'a> {
    fn parse(value: &'a [u8]) -> Result<Self, Refusal> {
        match value.split_first() {
            Some((&subtype, bytes)) if (1..=MAX_ID_LEN).contains(&bytes.len()) => Ok(Self { subtype, bytes }),
            _ => Err(Refusal::BadLldp),
        }
    }
}

/// An LLDP data unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lldpdu<'a> {
    /// Chassis ID of the system that sent it.
    pub chassis: Id<'a>,
    /// Port ID of the sending port.
    pub port: Id<'a>,
    /// Validity in seconds; 0: the port is shutting down.
    pub ttl: u16,
    /// Port Description, if the TLV is present.
    pub port_description: Option<&'a [u8]>,
    /// System Name, if the TLV is present.
    pub system_name: Option<&'a [u8]>,
}

impl<'a> Lldpdu<'a> {
    /// Parses the payload of a frame. Skips TLVs of other types; of several descriptions or names, the first counts. Data
    /// after the end is padding.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] if the bytes end before End Of LLDPDU; [`Refusal::BadLldp`] if one of the first three TLVs is
    /// missing, misplaced or repeated, or if a TLV has an invalid length.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let mut tlvs = Tlvs(bytes);
        let chassis = Id::parse(tlvs.expect(tlv::CHASSIS_ID)?)?;
        let port = Id::parse(tlvs.expect(tlv::PORT_ID)?)?;
        let ttl = try_u16(tlvs.expect(tlv::TIME_TO_LIVE)?, 0).ok_or(Refusal::BadLldp)?;
        let mut lldpdu = Self {
            chassis,
            port,
            ttl,
            port_description: None,
            system_name: None,
        };
        loop {
            let (kind, value) = tlvs.next()?;
            let text = match kind {
                tlv::END if value.is_empty() => return Ok(lldpdu),
                tlv::END | tlv::CHASSIS_ID | tlv::PORT_ID | tlv::TIME_TO_LIVE => {
                    return Err(Refusal::BadLldp);
                }
                tlv::PORT_DESCRIPTION => &mut lldpdu.port_description,
                tlv::SYSTEM_NAME => &mut lldpdu.system_name,
                _ => continue,
            };
            if value.len() > MAX_TEXT_LEN {
                return Err(Refusal::BadLldp);
            }
            text.get_or_insert(value);
        }
    }

    /// Returns the length of the LLDPDU, bytes.
    pub fn len(&self) -> usize {
        let texts = [self.port_description, self.system_name];
        let texts = texts
            .into_iter()
            .flatten()
            .map(|text| TLV_HEADER_LEN + text.len())
            .sum::<usize>();
        let ids = [self.chassis, self.port].map(|id| TLV_HEADER_LEN + 1 + id.bytes.len());
        ids[0] + ids[1] + TLV_HEADER_LEN + 2 + texts + TLV_HEADER_LEN
    }

    /// Returns `false`: three TLVs are mandatory.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the LLDPDU and returns its length.
    ///
    /// # Errors
    /// [`EmitError`] if `out` is too short, an ID is empty, or an ID or text is too long.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let ids = [self.chassis, self.port];
        let mut texts = [self.port_description, self.system_name].into_iter().flatten();
        if ids.iter().any(|id| !(1..=MAX_ID_LEN).contains(&id.bytes.len()))
            || texts.any(|text| text.len() > MAX_TEXT_LEN)
        {
            return Err(EmitError::Invalid(Refusal::BadLldp));
        }
        let len = self.len();
        let out = out.get_mut(..len).ok_or(EmitError::Short(len))?;
        let ttl = self.ttl.to_be_bytes();
        let values: [(u8, Option<[&[u8]; 2]>); 6] = [
            (
                tlv::CHASSIS_ID,
                Some([&[self.chassis.subtype], self.chassis.bytes]),
            ),
            (tlv::PORT_ID, Some([&[self.port.subtype], self.port.bytes])),
            (tlv::TIME_TO_LIVE, Some([&ttl, &[]])),
            (
                tlv::PORT_DESCRIPTION,
                self.port_description.map(|text| [text, &[]]),
            ),
            (tlv::SYSTEM_NAME, self.system_name.map(|text| [text, &[]])),
            (tlv::END, Some([&[], &[]])),
        ];
        let mut at = 0;
        for (kind, parts) in values {
            let Some(parts) = parts else { continue };
            let len = parts[0].len() + parts[1].len();
            put_u16(out, at, u16::from(kind) << 9 | len as u16);
            at += TLV_HEADER_LEN;
            for part in parts {
                out[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
        }
        Ok(len)
    }
}

/// The TLVs that are not parsed yet.
struct Tlvs<'a>(&'a [u8]);

impl<'a> Tlvs<'a> {
    fn next(&mut self) -> Result<(u8, &'a [u8]), Refusal> {
        let (header, rest) = self
            .0
            .split_at_checked(TLV_HEADER_LEN)
            .ok_or(Refusal::Truncated)?;
        let word = u16_at(header, 0);
        let (value, rest) = rest
            .split_at_checked(usize::from(word & 0x1ff))
            .ok_or(Refusal::Truncated)?;
        self.0 = rest;
        Ok(((word >> 9) as u8, value))
    }

    /// Returns the value of the next TLV, which must have this type.
    fn expect(&mut self, kind: u8) -> Result<&'a [u8], Refusal> {
        let (found, value) = self.next()?;
        if found == kind {
            Ok(value)
        } else {
            Err(Refusal::BadLldp)
        }
    }
}
