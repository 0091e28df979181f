//! Derives how many nodes wrote into a packet from the remaining hop count in its INT header.
//!
//! Only a node that writes its own record decrements the hop count. In SF-INT, state Medium means that every node wrote into
//! the packet, so that
//!
//! ```text
//! nodes before the sink = initial hop count - remaining hop count of the report
//! ```
//!
//! holds for exactly this packet, independent of all others. If the initial count is configured, this is a proof.
//!
//! Otherwise the initial count is learned. Every packet that is not of state Medium passed a node that did not write into it;
//! for half of these packets that was the first node after the source. So the largest hop count among them is the initial
//! count minus one. Errors in the learned count:
//!
//! - Too large (sources have different initial counts): no set is ever complete.
//! - Too small: sets would be complete without their first node. To avoid this, the count is learned from all flows of a
//!   profile together, is used only after [`MIN_REPORTS`] reports, and is not used while packets of state Medium have larger
//!   counts (as when all paths have two nodes, or other flows always overwrite the registers). It remains too small only if
//!   no flow ever delivers the record of its source.

use crate::event::{Nanos, follow_clock};

/// Number of reports after which the learned count is used.
const MIN_REPORTS: u32 = 64;

/// The count is learned again after this time (ns) and at least [`MIN_PERIOD_REPORTS`] reports.
const PERIOD: Nanos = 60_000_000_000;
const MIN_PERIOD_REPORTS: u32 = 4096;

/// The hop counts learned from one profile.
#[derive(Clone, Copy, Debug, Default)]
struct Learned {
    began: Nanos,
    reports: u32,
    /// Largest hop counts of packets of state Medium and of all others in this period.
    largest: [u8; 2],
    /// Those of the previous period.
    previous_largest: [u8; 2],
    /// A previous period exists, or this one has [`MIN_REPORTS`] reports.
    is_ready: bool,
}

/// Initial hop counts by profile; see the module documentation.
#[derive(Debug)]
pub(crate) struct HopCounts {
    configured: Option<u8>,
    learned: Vec<Learned>,
}

impl HopCounts {
    pub(crate) fn new(configured: Option<u8>) -> Self {
        Self {
            configured,
            learned: vec![Learned::default(); 256],
        }
    }

    /// Records the hop count of a report from a source of this profile. `is_medium`: the report is of state Medium.
    #[inline]
    pub(crate) fn learn(&mut self, profile: u8, remaining: u8, is_medium: bool, now: Nanos) {
        let learned = &mut self.learned[usize::from(profile)];
        learned.reports = learned.reports.saturating_add(1);
        let largest = &mut learned.largest[usize::from(!is_medium)];
        *largest = remaining.max(*largest);
        learned.is_ready |= learned.reports >= MIN_REPORTS;
        if learned.reports < MIN_PERIOD_REPORTS {
            return;
        }
        follow_clock(&mut learned.began, 0, now);
        if now.saturating_sub(learned.began) >= PERIOD {
            let previous_largest = learned.largest;
            *learned = Learned {
                began: now,
                reports: 0,
                largest: [0; 2],
                previous_largest,
                is_ready: true,
            };
        }
    }

    /// Returns the initial hop count of sources of this profile, or `None` if it is not known yet. Ignores a configured count
    /// that reports contradict.
    #[inline]
    pub(crate) fn initial(&self, profile: u8) -> Option<u16> {
        let learned = &self.learned[usize::from(profile)];
        let [medium, other] = [0, 1].map(|state| learned.largest[state].max(learned.previous_largest[state]));
        match self.configured {
            // The source has already decremented the count, so it must be larger than every observed one.
            Some(configured) if configured > medium.max(other) => Some(configured.into()),
            _ => (learned.is_ready && other >= medium).then_some(u16::from(other) + 1),
        }
    }
}

/// Returns the number of nodes that wrote into the packet that came `later` packets after the one that opened a set, if no
/// packet was lost or reordered: the largest power of two that divides `later`. The register of the node after the source
/// alternates between write and read; each following node writes half as often, into every second packet, every fourth and so
/// on. Consecutive packets always have different numbers, so reordering is visible.
pub(crate) fn expected_writers(later: usize) -> u16 {
    (later as u16) & (later as u16).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::{HopCounts, MIN_PERIOD_REPORTS, MIN_REPORTS, PERIOD, expected_writers};

    #[test]
    fn the_initial_hop_count_is_learned_from_enough_reports() {
        let mut lengths = HopCounts::new(None);
        for at in 0..MIN_REPORTS {
            assert_eq!(lengths.initial(0), None, "after {at}");
            lengths.learn(0, 5 + (at % 3) as u8, at % 3 == 0, 1);
        }
        assert_eq!((lengths.initial(0), lengths.initial(1)), (Some(8), None));
    }

    #[test]
    fn a_source_that_begins_with_less_is_believed_after_two_periods() {
        let mut lengths = HopCounts::new(None);
        let mut give = |remaining, at: u64, reports: u32| {
            for _ in 0..reports {
                lengths.learn(0, remaining, false, at * PERIOD);
            }
            lengths.initial(0)
        };
        assert_eq!(give(200, 1, MIN_PERIOD_REPORTS), Some(201));
        assert_eq!(
            give(7, 2, MIN_PERIOD_REPORTS - 1),
            Some(201),
            "the period before counts"
        );
        assert_eq!(give(7, 2, 1), Some(8));
    }

    #[test]
    fn nothing_is_learned_where_all_nodes_always_write() {
        let mut lengths = HopCounts::new(None);
        for _ in 0..10 * MIN_REPORTS {
            lengths.learn(0, 7, true, 1);
        }
        assert_eq!(lengths.initial(0), None);
        lengths.learn(0, 6, false, 1);
        assert_eq!(lengths.initial(0), None);
        lengths.learn(0, 7, false, 1);
        assert_eq!(lengths.initial(0), Some(8));
    }

    #[test]
    fn a_configured_count_holds_until_reports_contradict_it() {
        let mut lengths = HopCounts::new(Some(8));
        assert_eq!(lengths.initial(0), Some(8));
        lengths.learn(0, 7, true, 1);
        assert_eq!(lengths.initial(0), Some(8));
        lengths.learn(0, 8, false, 1);
        assert_eq!(lengths.initial(0), None, "a source has always counted itself");
    }

    #[test]
    fn expected_writers_follow_the_ruler_sequence() {
        let got: Vec<u16> = (1..=8).map(expected_writers).collect();
        assert_eq!(got, [1, 2, 1, 4, 1, 2, 1, 8]);
    }
}
