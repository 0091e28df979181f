//! Device clocks: 32-bit stamps, and what a difference between two of them is worth.
//!
//! Rules (wire-formats 2.4 and the promise that no latency is ever negative or wrapped without a mark):
//!
//! - A 32-bit stamp is a remainder modulo 2^32. Beside a reference it is extended to the nearest time ([`extend`]).
//! - A difference of two 32-bit stamps is taken modulo 2^32 and is believed below 2^31; from there on the later stamp
//!   lies before the earlier one, and the answer is [`Difference::Backwards`].
//! - Stamps of one node come from one clock and may always be compared. Stamps of two nodes may only where the profile
//!   says that clocks are synchronised; and even then a total shorter than the time spent inside the hops is not
//!   believed.

/// What lies between two stamps of a device, in the device's unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Difference {
    /// The second is this much later, or equal (0).
    Later(u64),
    /// The second lies before the first.
    Backwards,
}

/// The time nearest to `reference` whose low 32 bits are `stamp`. Both in one unit, and `reference` in the device's
/// clock domain; a result that would lie before time zero is moved up by one turn.
pub fn extend(stamp: u32, reference: u64) -> u64 {
    const TURN: u64 = 1 << 32;
    let near = (reference & !(TURN - 1)) | u64::from(stamp);
    if near > reference && near - reference > TURN / 2 && near >= TURN {
        near - TURN
    } else if near < reference && reference - near > TURN / 2 {
        near.saturating_add(TURN)
    } else {
        near
    }
}

/// From `first` to `second`, stamps of 32 bits, or of 64 when `wide`.
#[inline]
pub fn difference(first: u64, second: u64, wide: bool) -> Difference {
    if wide {
        return second.checked_sub(first).map_or(Difference::Backwards, Difference::Later);
    }
    let modulo = (second as u32).wrapping_sub(first as u32);
    if modulo >> 31 == 0 { Difference::Later(u64::from(modulo)) } else { Difference::Backwards }
}

#[cfg(test)]
mod tests {
    use super::{Difference, difference, extend};

    #[test]
    fn a_stamp_is_extended_to_the_nearest_time() {
        const R: u64 = 0x17a3_b2c1_d0e0_f000;
        let cases = [
            (0xd0e0_f000, R, R),
            (0xd0e0_f5dc, R, R + 1500),
            (0xd0e0_ea24, R, R - 1500),
            (0x0000_0005, 0x1_ffff_fff0, 0x2_0000_0005),
            (0xffff_fff0, 0x2_0000_0005, 0x1_ffff_fff0),
            (0xffff_fff0, 0x5, 0xffff_fff0),
            (0x8000_0000, 0x1_0000_0000, 0x1_8000_0000),
            (5, u64::MAX - 1, u64::MAX),
        ];
        for (stamp, reference, expected) in cases {
            assert_eq!(extend(stamp, reference), expected, "{stamp:#x} near {reference:#x}");
        }
    }

    #[test]
    fn a_difference_wraps_and_knows_when_it_is_backwards() {
        let cases = [
            (10, 25, false, Difference::Later(15)),
            (25, 25, false, Difference::Later(0)),
            (0xffff_fff0, 0x10, false, Difference::Later(0x20)),
            (25, 10, false, Difference::Backwards),
            (0, 0x7fff_ffff, false, Difference::Later(0x7fff_ffff)),
            (0, 0x8000_0000, false, Difference::Backwards),
            (0x1_0000_0000, 0x3_0000_0000, true, Difference::Later(0x2_0000_0000)),
            (25, 10, true, Difference::Backwards),
        ];
        for (first, second, wide, expected) in cases {
            assert_eq!(difference(first, second, wide), expected, "{first:#x} to {second:#x}, wide: {wide}");
        }
    }
}
