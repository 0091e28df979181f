//! SF-INT, stateful INT (Xiong et al., APNet 2024): a packet carries the record of one node whatever its path's length, and
//! each node swaps a stored record with the arriving one (`docs/reference/wire-formats.md`, section 3).
//!
//! Three fields use reserved bits of the INT-MD 2.x header, and the Domain Specific ID holds the ID of the packet to which
//! the record belongs. Everything else is INT-MD 2.x.

use crate::hop::Items;
use crate::refusal::Refusal;

/// IPv6 hop-by-hop option type for INT: experimental (RFC 4727), skipped by nodes that do not know it, mutable en route.
/// Its data is a 4-byte shim, then INT header and stack.
pub const OPTION: u8 = 0x3e;
/// Domain Specific ID "SF" of a compact report, whose inner contents are INT header and record without a shim.
pub const REPORT_DOMAIN: u16 = 0x5346;
/// Bit positions of SF, U and State in the header's first two bytes.
const FLAG: u16 = 0x0100;
const URGENT: u16 = 0x0080;
const STATE: u32 = 5;
/// Bit 0: node ID, which every record must have.
const NODE_BIT: u16 = 0x8000;
/// Bit 15: checksum complement, which is valid only in the packet for which it was computed.
const CHECKSUM_BIT: u16 = 0x0001;

crate::named! {
    /// The state of a record, which tells how complete its packet's set of records is. Nodes prefer records with a higher
    /// state.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    #[repr(u8)]
    pub enum State, name {
        /// Some node skipped this packet ID, so its set can never be complete.
        Low = 1 => "low",
        /// The set is growing: every node so far has added its record.
        Medium = 2 => "medium",
        /// The set has the records of all nodes before this record's node.
        High = 3 => "high",
    }
}

impl State {
    /// Returns the state encoded in the low two bits, or `None` for 0, which is invalid.
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
    /// U flag: the packet is processed as plain INT-MD. Its stack grows, and nodes leave their stored records alone.
    pub urgent: bool,
    /// State of the carried record.
    pub state: State,
    /// ID of the packet to which the carried record belongs, modulo 2^16, assigned by the source. An urgent packet carries
    /// its own.
    pub packet_id: u16,
}

impl Sf {
    /// Returns whether the packet carries only its own records. If so, they and the sink's own record form one path.
    #[inline]
    pub const fn is_of_one_packet(self) -> bool {
        self.urgent || matches!(self.state, State::Medium)
    }
}

/// Encodes SF, U and State for the first two bytes of a header.
pub(super) const fn bits(sf: Option<(bool, State)>) -> u16 {
    match sf {
        Some((urgent, state)) => FLAG | if urgent { URGENT } else { 0 } | (state as u16) << STATE,
        None => 0,
    }
}

/// Decodes SF, U and State from the first two bytes of a header. Returns `None` if SF is not set.
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

/// Returns whether SF is set in the first two bytes of a header.
#[inline]
pub(crate) const fn is_set(first: u16) -> bool {
    first & FLAG != 0
}

/// Checks the fields of an SF-INT header that plain INT does not restrict.
#[inline]
pub(crate) const fn check(bitmap: u16, ds_instruction: u16, ds_flags: u16) -> Result<(), Refusal> {
    let good = bitmap & (NODE_BIT | CHECKSUM_BIT) == NODE_BIT && ds_instruction == 0 && ds_flags == 0;
    if good { Ok(()) } else { Err(Refusal::BadSfHeader) }
}

/// Returns whether SF-INT may request these items: the node ID must be included, a checksum complement must not.
pub const fn may_request(carried: Items) -> bool {
    carried.0 & (Items::NODE_ID.0 | Items::CHECKSUM_COMPLEMENT.0) == Items::NODE_ID.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserved_field_is_laid_out_as_said() {
        // SF << 11 | U << 10 | State << 8 in the reserved 12-bit field, whose first bit is bit 7 of the header word.
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
