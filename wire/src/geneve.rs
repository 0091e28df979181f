//! The Geneve encapsulation (RFC 8926): base header and option headers. INT can be carried in a Geneve option.

use crate::bytes::{put_u16, put_u24, u16_at, u24_at};
use crate::refusal::Refusal;

/// Length of the base header, bytes.
pub const HEADER_LEN: usize = 8;
/// Length of an option's header, bytes.
pub const OPTION_LEN: usize = 4;
/// UDP destination port of Geneve.
pub const PORT: u16 = 6081;
/// Option class of INT 2.1.
pub const CLASS_INT_2: u16 = 0x0103;
/// Option class in the examples of INT 1.0 and 2.0.
pub const CLASS_INT_1: u16 = 0x00ab;

mod field {
    pub(super) const VERSION_LEN: usize = 0;
    pub(super) const FLAGS: usize = 1;
    pub(super) const PROTOCOL: usize = 2;
    pub(super) const VNI: usize = 4;
    // Offsets in an option.
    pub(super) const CLASS: usize = 0;
    pub(super) const KIND: usize = 2;
    pub(super) const OPTION_LENGTH: usize = 3;
}

/// The base header's fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repr {
    /// Length of all options including their headers, in 4-byte words, at most 63.
    pub options_len: u8,
    /// O bit: this is a control packet.
    pub control: bool,
    /// C bit: critical options are present.
    pub critical: bool,
    /// EtherType of the data after the options.
    pub protocol: u16,
    /// Virtual network identifier, 24 bits.
    pub vni: u32,
}

impl Repr {
    /// Parses a base header.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] if header or options are incomplete; [`Refusal::BadGeneve`] if the version is not 0.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let header = bytes.get(..HEADER_LEN).ok_or(Refusal::Truncated)?;
        if header[field::VERSION_LEN] >> 6 != 0 {
            return Err(Refusal::BadGeneve);
        }
        let options_len = header[field::VERSION_LEN] & 0x3f;
        if bytes.len() < HEADER_LEN + usize::from(options_len) * 4 {
            return Err(Refusal::Truncated);
        }
        Ok(Self {
            options_len,
            control: header[field::FLAGS] & 0x80 != 0,
            critical: header[field::FLAGS] & 0x40 != 0,
            protocol: u16_at(header, field::PROTOCOL),
            vni: u24_at(header, field::VNI),
        })
    }

    /// Returns the length of base header and options, bytes.
    pub const fn header_len(&self) -> usize {
        HEADER_LEN + self.options_len as usize * 4
    }

    /// Writes the base header; the caller writes the options.
    ///
    /// # Panics
    /// If `out` is shorter than [`HEADER_LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        out[field::VERSION_LEN] = self.options_len & 0x3f;
        out[field::FLAGS] = u8::from(self.control) << 7 | u8::from(self.critical) << 6;
        put_u16(out, field::PROTOCOL, self.protocol);
        put_u24(out, field::VNI, self.vni);
        out[field::VNI + 3] = 0;
    }
}

/// The header fields of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OptionRepr {
    /// Option class, the namespace of the option type.
    pub class: u16,
    /// Option type within its class.
    pub kind: u8,
    /// Length of the option's data, in 4-byte words, at most 31.
    pub len: u8,
}

impl OptionRepr {
    /// Parses the header of an option and checks that its data fits `bytes`.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] if the header is incomplete; [`Refusal::BadGeneve`] if the data exceeds `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let header = bytes.get(..OPTION_LEN).ok_or(Refusal::Truncated)?;
        let len = header[field::OPTION_LENGTH] & 0x1f;
        if bytes.len() < OPTION_LEN + usize::from(len) * 4 {
            return Err(Refusal::BadGeneve);
        }
        Ok(Self {
            class: u16_at(header, field::CLASS),
            kind: header[field::KIND],
            len,
        })
    }

    /// Writes the header.
    ///
    /// # Panics
    /// If `out` is shorter than [`OPTION_LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        put_u16(out, field::CLASS, self.class);
        out[field::KIND] = self.kind;
        out[field::OPTION_LENGTH] = self.len & 0x1f;
    }
}
