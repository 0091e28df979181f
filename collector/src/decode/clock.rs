//! Device clocks: 32-bit and 64-bit timestamps, the valid differences between them, and implausible hop latencies.
//!
//! Rules (wire-formats 2.4; no negative or wrapped latency is ever reported without an annotation):
//!
//! - A 32-bit timestamp is a time modulo 2^32.
//! - The difference of two 32-bit timestamps is taken modulo 2^32 and is valid below 2^31. From 2^31 on, the second timestamp
//!   is earlier than the first, and the result is [`Difference::Backwards`].
//! - Timestamps of one node come from one clock and may always be compared. Timestamps of two nodes may be compared only if the
//!   profile states that clocks are synchronised; even then, a total shorter than the time spent inside the hops is not used.
//!
//! # Implausible hop latencies
//!
//! A device computes its hop latency as egress minus ingress timestamp. A packet that the device generated itself, such as a
//! clone, has no ingress time; if 0 is written instead, the latency is the uptime of the device, often modulo 2^32. So a hop
//! latency is implausible, and not used, if
//!
//! - its record has both timestamps, and the ingress timestamp is 0 but the egress timestamp is not, or
//! - it is longer than the profile's `max_hop_latency`, or
//! - it is computed from timestamps of which the egress lies before the ingress.
//!
//! With `max_hop_latency` disabled only the last rule applies: such a difference is not a latency in any unit.
//!
//! The end-to-end latency of a flow has no such limit. It includes links, whose length no setting gives, and an impossible
//! value shows that the profile is wrong to call the clocks synchronised. From 32-bit timestamps it is below 2^31 units.

use super::NO_VALUE;
use crate::config::Units;

/// Latencies from here on are not used: implausible ones, and [`NO_VALUE`]. No product of two 32-bit numbers is as large. The
/// low 24 bits encode the implausible value as a small float: 6 bits of exponent, 18 bits of mantissa.
pub(crate) const IMPLAUSIBLE: u64 = 0xffff_ffff_ff00_0000;

/// Bits of the mantissa of an implausible value.
const MANTISSA: u32 = 18;

/// Returns true if this can be the time that a packet spent in a node; false for [`NO_VALUE`].
#[inline(always)]
pub(crate) fn is_plausible(latency: u64) -> bool {
    latency < IMPLAUSIBLE
}

/// Marks a latency as implausible, and keeps its value with 18 bits of precision.
fn implausible(latency: u64) -> u64 {
    let exponent = (u64::BITS - MANTISSA).saturating_sub(latency.leading_zeros());
    IMPLAUSIBLE | u64::from(exponent) << MANTISSA | latency >> exponent
}

/// Decodes an implausible latency (ns) from its low 32 bits; `None` if they contain a plausible latency or no value.
pub(crate) fn implausible_value(low: u32) -> Option<u64> {
    let code = low & !(IMPLAUSIBLE as u32);
    let marked = low >= IMPLAUSIBLE as u32 && low != u32::MAX;
    marked.then(|| u64::from(code & ((1 << MANTISSA) - 1)) << (code >> MANTISSA))
}

/// Returns true if the record has an egress timestamp, but 0 as its ingress timestamp.
#[inline]
pub(crate) fn lacks_ingress(ingress: u64, egress: u64, units: Units) -> bool {
    ingress == 0 && egress != 0 && egress != NO_VALUE && units.max_latency != Units::UNLIMITED
}

/// Reduces a timestamp to its lower 32 bits, to compare it with a 32-bit one; keeps [`NO_VALUE`].
pub(crate) fn narrow(stamp: u64) -> u64 {
    if stamp == NO_VALUE {
        NO_VALUE
    } else {
        stamp & 0xffff_ffff
    }
}

/// Returns the hop latency of a record with these timestamps, ns, marked if it is implausible.
#[inline]
pub(crate) fn mark_implausible(latency: u64, ingress: u64, egress: u64, units: Units) -> u64 {
    let odd = latency > units.max_latency || lacks_ingress(ingress, egress, units);
    if odd && latency != NO_VALUE {
        implausible(latency)
    } else {
        latency
    }
}

/// Computes the hop latency from the timestamps of a node, ns, marked if it is implausible.
pub(crate) fn between(ingress: u64, egress: u64, wide: bool, units: Units) -> u64 {
    if ingress == NO_VALUE || egress == NO_VALUE {
        return NO_VALUE;
    }
    let (latency, is_latency) = elapsed(ingress, egress, wide, units);
    if is_latency {
        mark_implausible(latency, ingress, egress, units)
    } else {
        implausible(latency)
    }
}

/// Returns the time between two timestamps in ns, and whether it can be a latency in any unit.
#[inline(always)]
fn elapsed(ingress: u64, egress: u64, wide: bool, units: Units) -> (u64, bool) {
    let (later, is_later) = match difference(ingress, egress, wide) {
        Difference::Later(later) => (later, true),
        // The value that a device would report without checking the sign.
        Difference::Backwards if wide => (egress.wrapping_sub(ingress), false),
        Difference::Backwards => ((egress as u32).wrapping_sub(ingress as u32).into(), false),
    };
    let latency = later.saturating_mul(u64::from(units.stamp_ns));
    (latency, is_later && latency < IMPLAUSIBLE)
}

/// Returns the hop latency of a record in ns, if it is implausible; exact, unlike the marked value. `reported` is the latency
/// from the device; without it, the latency is computed from the timestamps.
pub(crate) fn exact_implausible(
    reported: Option<u64>,
    ingress: u64,
    egress: u64,
    wide: bool,
    units: Units,
) -> Option<u64> {
    let has_stamps = ingress != NO_VALUE && egress != NO_VALUE;
    let (latency, is_latency) = match reported {
        Some(latency) => (latency, true),
        None if has_stamps => elapsed(ingress, egress, wide, units),
        None => return None,
    };
    let odd = !is_latency || latency > units.max_latency || lacks_ingress(ingress, egress, units);
    odd.then_some(latency)
}

/// The difference of two timestamps of a device, in the device's unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Difference {
    /// The second timestamp is this much later, or equal (0).
    Later(u64),
    /// The second timestamp is earlier than the first.
    Backwards,
}

/// Returns the difference from `first` to `second`, both with 32 bits, or 64 if `wide`.
#[inline]
pub(crate) fn difference(first: u64, second: u64, wide: bool) -> Difference {
    if wide {
        return second
            .checked_sub(first)
            .map_or(Difference::Backwards, Difference::Later);
    }
    let modulo = (second as u32).wrapping_sub(first as u32);
    if modulo >> 31 == 0 {
        Difference::Later(u64::from(modulo))
    } else {
        Difference::Backwards
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Difference, NO_VALUE, Units, between, difference, exact_implausible, implausible, implausible_value,
        is_plausible, mark_implausible,
    };

    #[test]
    fn a_difference_wraps_and_knows_when_it_is_backwards() {
        let cases = [
            (10, 25, false, Difference::Later(15)),
            (25, 25, false, Difference::Later(0)),
            (0xffff_fff0, 0x10, false, Difference::Later(0x20)),
            (25, 10, false, Difference::Backwards),
            (0, 0x7fff_ffff, false, Difference::Later(0x7fff_ffff)),
            (0, 0x8000_0000, false, Difference::Backwards),
            (
                0x1_0000_0000,
                0x3_0000_0000,
                true,
                Difference::Later(0x2_0000_0000),
            ),
            (25, 10, true, Difference::Backwards),
        ];
        for (first, second, wide, expected) in cases {
            assert_eq!(
                difference(first, second, wide),
                expected,
                "{first:#x} to {second:#x}, wide: {wide}"
            );
        }
    }

    #[test]
    fn an_implausible_latency_keeps_its_value() {
        for latency in [
            0,
            1,
            999,
            (1 << 18) - 1,
            1 << 18,
            5_000_000_000,
            86_400_000_000_000,
            u64::MAX - 1,
            u64::MAX,
        ] {
            let marked = implausible(latency);
            assert!(!is_plausible(marked) && marked != NO_VALUE, "{latency}");
            let value = implausible_value(marked as u32).unwrap();
            assert!(
                value <= latency && latency - value <= latency >> 17,
                "{latency} became {value}"
            );
        }
        assert_eq!(implausible_value(0xfeff_ffff), None);
        assert_eq!(implausible_value(u32::MAX), None, "not reported");
    }

    /// Shorthand for tests: a marked value as `Err`.
    fn read(latency: u64) -> Result<u64, Option<u64>> {
        if is_plausible(latency) {
            Ok(latency)
        } else {
            Err(implausible_value(latency as u32))
        }
    }

    #[test]
    fn a_latency_is_judged_by_its_length_and_its_stamps() {
        let units = Units {
            max_latency: 1_000_000,
            ..Units::NONE
        };
        let cases = [
            (1_000_000, (5, 1_000_005), Ok(1_000_000)),
            (1_000_001, (5, 1_000_006), Err(Some(1_000_000))),
            (700, (0, 700), Err(Some(700))),
            (0, (0, 0), Ok(0)),
            (700, (0, 0), Ok(700)),
            (700, (0, NO_VALUE), Ok(700)),
            (700, (NO_VALUE, 700), Ok(700)),
            (NO_VALUE, (0, 700), Err(None)),
        ];
        for (latency, (ingress, egress), expected) in cases {
            assert_eq!(
                read(mark_implausible(latency, ingress, egress, units)),
                expected,
                "{latency}, {ingress} to {egress}"
            );
        }
        let off = Units::NONE;
        assert_eq!(
            read(mark_implausible(u64::MAX >> 8, 0, u64::MAX >> 8, off)),
            Ok(u64::MAX >> 8)
        );
    }

    #[test]
    fn an_implausible_latency_is_exact_where_it_is_shown_once() {
        let units = Units {
            stamp_ns: 4,
            max_latency: 1_000_000,
            ..Units::NONE
        };
        let cases = [
            (None, (1000, 960, false), Some((u64::from(u32::MAX) - 39) * 4)),
            (None, (1000, 960, true), Some(u64::MAX)),
            (None, (0, 300_003, false), Some(1_200_012)),
            (None, (100, 200, false), None),
            (None, (NO_VALUE, 200, false), None),
            (Some(1_234_567), (5, 6, false), Some(1_234_567)),
            (Some(700), (0, 700, true), Some(700)),
            (Some(700), (NO_VALUE, NO_VALUE, false), None),
        ];
        for (reported, stamps, expected) in cases {
            let (ingress, egress, wide) = stamps;
            let exact = exact_implausible(reported, ingress, egress, wide, units);
            assert_eq!(exact, expected, "{reported:?}, {stamps:?}");
            let marked = match reported {
                Some(latency) => mark_implausible(latency, ingress, egress, units),
                None => between(ingress, egress, wide, units),
            };
            assert_eq!(
                exact.is_some(),
                !is_plausible(marked) && marked != NO_VALUE,
                "{reported:?}, {stamps:?}"
            );
        }
        let nanoseconds = Units {
            max_latency: 1_000_000,
            ..Units::NONE
        };
        assert_eq!(
            exact_implausible(None, 1040, 1000, false, nanoseconds),
            Some(4_294_967_256)
        );
    }

    #[test]
    fn stamps_give_a_latency_an_implausible_one_or_none() {
        let units = Units {
            stamp_ns: 4,
            max_latency: 1_000_000,
            ..Units::NONE
        };
        let cases = [
            (100, 200, false, Ok(400)),
            (0xffff_ff00, 0x100, false, Ok(0x800)),
            (100, 300_000, false, Err(Some(1_199_600))),
            (0, 200, true, Err(Some(800))),
            (
                200,
                100,
                false,
                Err(Some((((u64::from(u32::MAX) - 99) * 4) >> 16) << 16)),
            ),
            (NO_VALUE, 100, true, Err(None)),
            (100, NO_VALUE, false, Err(None)),
        ];
        for (ingress, egress, wide, expected) in cases {
            assert_eq!(
                read(between(ingress, egress, wide, units)),
                expected,
                "{ingress} to {egress}"
            );
        }
        assert!(matches!(read(between(200, 100, true, units)), Err(Some(value)) if value > 1 << 63));
        // Without a limit, but not a latency in any unit.
        assert_eq!(read(between(0, 200, true, Units::NONE)), Ok(200));
        assert!(matches!(
            read(between(200, 100, false, Units::NONE)),
            Err(Some(_))
        ));
    }
}
