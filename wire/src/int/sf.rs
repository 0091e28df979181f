//! SF-INT, stateful INT (Xiong et al., APNet 2024): a packet carries the record of one node, regardless of the path's length, and
//! each node stores a record that it swaps with the arriving one. Wire-formats section 3.
//!
//! Three fields lie in reserved bits of the INT-MD 2.x header, and the Domain Specific ID is the number of the packet whose
//! record is carried. Everything else is INT-MD 2.x.

use crate::hop::Items;
use crate::refusal::Refusal;

/// Type of the IPv6 hop-by-hop option that holds INT: experimental (RFC 4727), skipped by nodes that do not know it, may change
/// on the path. Its data are a shim of four bytes, then INT header and stack.
pub const OPTION: u8 = 0x3e;
/// Domain Specific ID of a compact report, "SF": its inner contents are INT header and record, without a shim.
pub const REPORT_DOMAIN: u16 = 0x5346;

crate::named! {
    /// Priority of a record, by the completeness of its set.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    #[repr(u8)]
    pub enum State, name {
        /// Some node has skipped this packet ID: its set can never be complete.
        Low = 1 => "low",
        /// The set of this packet is still growing: every node so far has added its record.
        Medium = 2 => "medium",
        /// The set has the records of all nodes before the node of this record.
        High = 3 => "high",
    }
}

impl State {
    /// Returns the state of a two-bit field, or `None` for 0, which is no state.
    #[inline]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits & 3 {
            1 => Some(Self::Low),
            2 => Some(Self::Medium),
            3 => Some(Self::High),
            _ => None,
        }
    }
}

/// The SF-INT fields of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sf {
    /// U: this packet is processed as plain INT-MD: its stack grows, and registers are not changed.
    pub urgent: bool,
    /// State of the record carried.
    pub state: State,
    /// Number of the packet to which the carried record belongs, modulo 2^16, counted by the source. An urgent packet has its own.
    pub packet_id: u16,
}

impl Sf {
    /// Returns whether the packet carries only its own records. If so, they form one path, together with the
    /// sink's own record.
    #[inline]
    pub const fn is_of_one_packet(self) -> bool {
        self.urgent || matches!(self.state, State::Medium)
    }
}

/// SF, U and State as they lie in the header's first two bytes.
const FLAG: u16 = 0x0100;
const URGENT: u16 = 0x0080;
const STATE: u32 = 5;

/// Returns the bits of SF, U and State in the first 16 bits of a header.
pub(super) const fn bits(sf: Option<(bool, State)>) -> u16 {
    match sf {
        Some((urgent, state)) => FLAG | if urgent { URGENT } else { 0 } | (state as u16) << STATE,
        None => 0,
    }
}

/// Reads SF, U and State from the first 16 bits of a header. Returns `None` without SF.
///
/// # Errors
/// [`Refusal::BadSfHeader`] if State is 0.
#[inline]
pub(super) fn of_bits(first: u16) -> Result<Option<(bool, State)>, Refusal> {
    if first & FLAG == 0 {
        return Ok(None);
    }
    let state = State::from_bits((first >> STATE) as u8).ok_or(Refusal::BadSfHeader)?;
    Ok(Some((first & URGENT != 0, state)))
}

/// Returns whether SF is set in the first 16 bits of a header.
#[inline]
pub(crate) const fn is_set(first: u16) -> bool {
    first & FLAG != 0
}

/// Bit 0 of the bitmap: every record has a node id.
const NODE_BIT: u16 = 0x8000;
/// Bit 15: a checksum complement is valid only in the packet for which it was computed.
const CHECKSUM_BIT: u16 = 0x0001;

/// Checks the fields of an SF header that plain INT leaves free: wire-formats section 3.2.
#[inline]
pub(crate) const fn check(bitmap: u16, ds_instruction: u16, ds_flags: u16) -> Result<(), Refusal> {
    let good = bitmap & (NODE_BIT | CHECKSUM_BIT) == NODE_BIT && ds_instruction == 0 && ds_flags == 0;
    if good { Ok(()) } else { Err(Refusal::BadSfHeader) }
}

/// Returns whether SF-INT may request records of these items. The node id must be among them, a checksum
/// complement must not.
pub const fn may_request(carried: Items) -> bool {
    carried.0 & (Items::NODE_ID.0 | Items::CHECKSUM_COMPLEMENT.0) == Items::NODE_ID.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserved_field_is_laid_out_as_said() {
        // SF << 11 | U << 10 | State << 8 in a reserved field of 12 bits that begins at bit 7.
        assert_eq!(bits(Some((false, State::High))), 0x0160);
        assert_eq!(bits(Some((true, State::Low))), 0x01a0);
        for state in State::ALL {
            assert_eq!(
                of_bits(0x2000 | bits(Some((true, state)))),
                Ok(Some((true, state)))
            );
            assert_eq!(State::from_name(state.name()), Some(state));
        }
        assert_eq!(of_bits(0x20e0), Ok(None));
        assert_eq!(of_bits(0x2180), Err(Refusal::BadSfHeader));
    }
}
