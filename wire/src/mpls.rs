//! MPLS label stack entries (RFC 3032), as they appear between Ethernet and IP.

use crate::bytes::{put_u32, try_u32};
use crate::refusal::Refusal;

/// Length of an entry, bytes.
pub const LEN: usize = 4;

/// The fields of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repr {
    /// Label of the entry, twenty bits.
    pub label: u32,
    /// Traffic class, three bits.
    pub class: u8,
    /// Bottom of stack: this is the last entry.
    pub bottom: bool,
    /// Time to live, in hops.
    pub ttl: u8,
}

impl Repr {
    /// Parses an entry.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] if the entry is incomplete.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let word = try_u32(bytes, 0).ok_or(Refusal::Truncated)?;
        Ok(Self {
            label: word >> 12,
            class: (word >> 9 & 7) as u8,
            bottom: word & 0x100 != 0,
            ttl: word as u8,
        })
    }

    /// Writes the entry.
    ///
    /// # Panics
    /// If `out` is shorter than [`LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let word = self.label << 12
            | (u32::from(self.class) & 7) << 9
            | u32::from(self.bottom) << 8
            | u32::from(self.ttl);
        put_u32(out, 0, word);
    }
}
