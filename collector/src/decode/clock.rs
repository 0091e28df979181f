//! Device clocks: 32-bit timestamps, and which differences between two of them are valid.
//!
//! Rules (wire-formats 2.4 and the promise that no negative or wrapped latency is ever reported without an annotation):
//!
//! - A 32-bit stamp is a remainder modulo 2^32.
//! - A difference of two 32-bit stamps is taken modulo 2^32 and is valid below 2^31; from there on the later stamp
//!   lies before the earlier one, and the result is [`Difference::Backwards`].
//! - Stamps of one node come from one clock and may always be compared. Stamps of two nodes may only where the profile
//!   says that clocks are synchronised; and even then a total shorter than the time spent inside the hops is not
//!   used.

/// What lies between two stamps of a device, in the device's unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Difference {
    /// The second is this much later, or equal (0).
    Later(u64),
    /// The second lies before the first.
    Backwards,
}

/// From `first` to `second`, stamps of 32 bits, or of 64 when `wide`.
#[inline]
pub(crate) fn difference(first: u64, second: u64, wide: bool) -> Difference {
    if wide {
        return second.checked_sub(first).map_or(Difference::Backwards, Difference::Later);
    }
    let modulo = (second as u32).wrapping_sub(first as u32);
    if modulo >> 31 == 0 { Difference::Later(u64::from(modulo)) } else { Difference::Backwards }
}

#[cfg(test)]
mod tests {
    use super::{Difference, difference};

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
