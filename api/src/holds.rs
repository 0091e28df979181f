//! The time until which a stored value of a flow holds. Only significant changes are stored, so a flow that
//! goes on unchanged and a flow that is silent leave the same records. Two things show the difference: the
//! latest value, which is stored at intervals while reports come; and the rollups of nodes, which have the
//! greatest hop latency of all flows for each second. A flow whose packets take longer than any packet of
//! that second sent none.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use detect::Metric;
use store::{FlowHistory, FlowPoint, RollupFilter};

use super::refusal::Refusal;
use history::{History, Permit};

/// Evidence that a flow was silent.
#[derive(Default, Debug)]
pub(super) struct Silences {
    /// While the flow sends reports, its latest value is stored at least this often, ns; 0 if it is not.
    longest: u64,
    /// A latency that is not stored is at most this far from the stored one, ns.
    margin: u64,
    /// The greatest hop latency of all flows, ns, by node and second.
    greatest: BTreeMap<(u32, u64), u64>,
}

/// The span of time, ns, in which the rollups of a node are needed.
type Needed = BTreeMap<u32, (u64, u64)>;

impl Silences {
    /// Reads the rollups that concern `flow`, whose last value may hold until `end`. `push` is `[collector]
    /// push_interval`.
    ///
    /// # Errors
    /// The history is not readable.
    pub(super) async fn read(
        history: &dyn History,
        permit: &Permit,
        flow: &FlowHistory,
        push: Duration,
        end: u64,
    ) -> Result<Self, Refusal> {
        let longest = nanos(push).saturating_add(nanos(push) / 2);
        let margin = flow.threshold.saturating_mul(THRESHOLDS);
        let mut silences = Self {
            longest,
            margin,
            ..Self::default()
        };
        for (node, (from, to)) in silences.needed(&flow.series, end).into_iter().take(MAX_NODES) {
            let filter = RollupFilter {
                from: Some(from),
                to: Some(to),
                metric: Some(Metric::HopLatency),
                node: Some(node),
                interval: Some(1),
                limit: MAX_SECONDS,
                ..RollupFilter::default()
            };
            for rollup in history.rollups(filter, Arc::clone(permit)).await? {
                silences.add(node, rollup.ts, rollup.max);
            }
        }
        Ok(silences)
    }

    /// Creates the evidence for a flow whose latest value is stored at least every `longest` ns, or never if
    /// it is 0.
    #[cfg(test)]
    pub(super) fn stored_every(longest: u64) -> Self {
        Self {
            longest,
            ..Self::default()
        }
    }

    /// Adds a rollup of one second. Each worker has one of its own.
    fn add(&mut self, node: u32, ts: u64, max: u64) {
        let greatest = self.greatest.entry((node, ts / SECOND)).or_default();
        *greatest = max.max(*greatest);
    }

    /// Returns the nodes whose rollups may show that one of these values did not hold for as long as it
    /// might.
    fn needed(&self, series: &[FlowPoint], end: u64) -> Needed {
        let mut needed = Needed::new();
        for (point, next) in with_next(series, end) {
            let next = self.pushed_until(point, next);
            let (first, last) = whole_seconds(point.ts, next);
            if last < first.saturating_add(SECONDS) {
                continue;
            }
            let from = first * SECOND;
            let to = last * SECOND;
            for (node, _) in self.high(point) {
                needed
                    .entry(node)
                    .and_modify(|span| span.1 = to)
                    .or_insert((from, to));
            }
        }
        needed
    }

    /// Returns the hops of a point that took so long that another packet of the flow would be seen in the
    /// rollups, with the least latency of such a packet.
    fn high(&self, point: &FlowPoint) -> impl Iterator<Item = (u32, u64)> {
        // Without a threshold, nothing is known of what is not stored.
        let margin = (self.margin > 0).then_some(self.margin);
        point
            .hops
            .iter()
            .filter_map(move |(node, latency)| Some((*node, latency.checked_sub(margin?)?)))
            .filter(|(_, least)| *least > 0)
    }

    /// Returns until when each value of `series` holds; the last one until `end` at the most.
    pub(super) fn ends(&self, series: &[FlowPoint], end: u64) -> Vec<u64> {
        with_next(series, end)
            .map(|(point, next)| self.seen_until(point, self.pushed_until(point, next)))
            .collect()
    }

    /// Returns the time until which a point holds by the interval at which values are stored: if none was
    /// stored for longer than that, there was no report after the point.
    fn pushed_until(&self, point: &FlowPoint, next: u64) -> u64 {
        match self.longest {
            1.. if next.saturating_sub(point.ts) > self.longest => point.ts.saturating_add(VISIBLE),
            _ => next,
        }
    }

    /// Returns the beginning of the first seconds in which no packet took as long at a node of the path, or
    /// `next` if there are none.
    fn seen_until(&self, point: &FlowPoint, next: u64) -> u64 {
        let (first, last) = whole_seconds(point.ts, next);
        if last <= first {
            return next;
        }
        let silent = self.high(point).filter_map(|(node, least)| {
            let mut run = 0;
            let mut expected = first;
            for ((_, second), greatest) in self.greatest.range((node, first)..(node, last)) {
                run = if *greatest >= least {
                    0
                } else if *second == expected {
                    run + 1
                } else {
                    1
                };
                expected = second + 1;
                if run == SECONDS {
                    return Some((expected - SECONDS) * SECOND);
                }
            }
            None
        });
        silent.min().unwrap_or(next)
    }
}

/// Returns the seconds that lie in a span of time as a whole: the first one, and the one after the last.
fn whole_seconds(from: u64, to: u64) -> (u64, u64) {
    (from / SECOND + 1, to / SECOND)
}

/// Pairs each point with the time of the next one, and the last with `end`.
fn with_next(series: &[FlowPoint], end: u64) -> impl Iterator<Item = (&FlowPoint, u64)> {
    let nexts = series.iter().skip(1).map(|point| point.ts).chain([end]);
    series.iter().zip(nexts)
}

/// Converts a duration to ns.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

const SECOND: u64 = 1_000_000_000;
/// So many seconds in a row show a silence. A report that waited may count in the second after its own, and changes that are detected in the
/// kernel reach the rollups once a second.
const SECONDS: u64 = 2;
/// Thresholds between a stored value and the greatest one of a rollup: one for what is not stored, and two for changes that are detected
/// in the kernel.
const THRESHOLDS: u64 = 3;
/// The last value before a silence of unknown length is drawn for so long, ns: long enough to be visible in a chart of 15 minutes.
const VISIBLE: u64 = 3 * SECOND;
/// Nodes whose rollups are read for one answer.
const MAX_NODES: usize = 16;
/// Rollups of a node that are read for one answer: the latest.
const MAX_SECONDS: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn point(ms: u64, hops: &[(u32, u64)]) -> FlowPoint {
        FlowPoint {
            ts: ms * 1_000_000,
            hops: hops.to_vec(),
            ..FlowPoint::default()
        }
    }

    fn silences(longest: u64, margin: u64, greatest: &[(u32, u64, u64)]) -> Silences {
        let mut silences = Silences {
            longest: longest * SECOND,
            margin,
            ..Silences::default()
        };
        for (node, second, max) in greatest {
            silences.add(*node, second * SECOND, *max);
        }
        silences
    }

    fn ends(silences: &Silences, series: &[FlowPoint], end: u64) -> Vec<u64> {
        silences
            .ends(series, end * SECOND)
            .into_iter()
            .map(|end| end / 1_000_000)
            .collect()
    }

    #[test]
    fn a_burst_ends_in_the_first_seconds_in_which_no_packet_took_as_long() {
        // Two bursts, 20 s apart; other flows are fast all the time.
        let series = [
            point(10_485, &[(102, 300), (201, 90)]),
            point(10_508, &[(102, 5_000), (201, 9_800)]),
        ];
        let series = [&series[..], &[point(30_490, &[(102, 300), (201, 90)])]].concat();
        let fast = (11..40).flat_map(|second| [(102, second, 90), (201, second, 120)]);
        let mut greatest: Vec<_> = fast.chain([(201, 10, 9_900), (201, 30, 9_900)]).collect();
        assert_eq!(
            ends(&silences(90, 300, &greatest), &series, 40),
            [10_508, 11_000, 40_000]
        );
        // Another worker has seen a packet that was as slow in this second, and not in the others.
        greatest.push((201, 12, 9_600));
        greatest.retain(|(node, ..)| *node == 201);
        assert_eq!(
            ends(&silences(90, 300, &greatest), &series, 40),
            [10_508, 13_000, 40_000]
        );
    }

    #[test]
    fn a_value_holds_while_nothing_shows_a_silence() {
        let series = [point(10_500, &[(1, 5_000)])];
        let all = [10, 4_699, 4_700].map(|max| (11..30).map(|second| (1, second, max)).collect::<Vec<_>>());
        let [fast, below, within] = &all[..] else {
            unreachable!()
        };
        assert_eq!(ends(&silences(0, 300, below), &series, 30), [11_000]);
        // Some packet took as long, within the margin; no rollups; no threshold; a value that is not above the margin.
        for (margin, greatest) in [(300, &within[..]), (300, &[]), (0, fast), (5_000, fast)] {
            assert_eq!(
                ends(&silences(0, margin, greatest), &series, 30),
                [30_000],
                "{margin} {greatest:?}"
            );
        }
        // One second alone, or two with an unknown one between them, may be those of a late report.
        for seconds in [&[14][..], &[14, 16, 18]] {
            let greatest: Vec<_> = seconds.iter().map(|second| (1, *second, 10)).collect();
            assert_eq!(
                ends(&silences(0, 300, &greatest), &series, 30),
                [30_000],
                "{seconds:?}"
            );
        }
        let greatest = [(1, 14, 10), (1, 16, 10), (1, 17, 10)];
        assert_eq!(ends(&silences(0, 300, &greatest), &series, 30), [16_000]);
    }

    #[test]
    fn a_flow_that_is_not_stored_at_intervals_is_silent() {
        let series = [0, 1, 15, 16, 40].map(|at| point(at * 1_000, &[(1, 5)]));
        let expected = [1_000, 15_000, 16_000, 19_000, 43_000];
        assert_eq!(ends(&silences(15, 0, &[]), &series, 60), expected);
        assert_eq!(
            ends(&silences(0, 0, &[]), &series, 60),
            [1_000, 15_000, 16_000, 40_000, 60_000]
        );
        assert_eq!(ends(&silences(15, 0, &[]), &series, 50)[4], 50_000);
        assert_eq!(ends(&silences(15, 0, &[]), &[], 50), [] as [u64; 0]);
    }

    #[test]
    fn rollups_are_read_of_nodes_that_can_show_a_silence_only() {
        let series = [
            point(1_000, &[(1, 900), (2, 200)]),
            point(2_900, &[(1, 900), (2, 200)]),
            point(20_500, &[(1, 100), (2, 200), (3, 301)]),
            point(30_000, &[(1, 200)]),
        ];
        let needed = silences(0, 300, &[]).needed(&series, 40 * SECOND);
        let expected = [(1, (3 * SECOND, 20 * SECOND)), (3, (21 * SECOND, 30 * SECOND))];
        assert_eq!(needed, Needed::from(expected));
        assert_eq!(silences(0, 0, &[]).needed(&series, 40 * SECOND), Needed::new());
        // Extreme times.
        let late = [FlowPoint {
            ts: u64::MAX,
            hops: vec![(1, u64::MAX)],
            ..FlowPoint::default()
        }];
        assert_eq!(silences(90, 300, &[]).ends(&late, 0), [0]);
    }
}
