//! Estimates how long a stored value of a flow holds, that is, when the flow fell silent.
//!
//! Only significant changes are stored, so an unchanged flow and a silent flow leave the same records. Two kinds of evidence
//! tell them apart:
//! - while reports arrive, the latest value is stored at intervals; if it is missing for longer, the flow was silent;
//! - rollups have the greatest hop latency of all flows per node and second. If the flow's latency at a node is well above
//!   that maximum, none of its packets passed in that second. A flow that reports every few seconds has such seconds between its
//!   reports, so they show a silence only if they last for many times the mean interval of its reports, which rollups have by
//!   the minute.

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

use detect::Metric;
use store::{FlowHistory, FlowPoint, RollupFilter};
use wire::FlowKey;

use super::refusal::Refusal;
use history::{History, Permit};

const SECOND: u64 = 1_000_000_000;
const MINUTE_SECONDS: u64 = 60;
const MINUTE: u64 = MINUTE_SECONDS * SECOND;
/// Maximum time between two stored latest values of a flow that sends reports, in intervals of storing. A value is stored with
/// the time of its report: it may be up to one and a half intervals old when it is stored, and the next one may be as old as its
/// storing, an interval later, give or take the half of an interval.
pub(super) const INTERVALS: u32 = 3;
/// Minimum number of consecutive seconds that prove a silence. One is not enough: a queued report may count in the next second,
/// and changes detected in the kernel reach rollups once a second.
const SILENT_SECONDS: u64 = 2;
/// Minimum length of a silence, in mean intervals between the flow's reports: if they arrive at random, an interval is as long
/// once in 22,000 times.
const SILENT_INTERVALS: u64 = 10;
/// Margin between a stored value and the maximum of a rollup, in thresholds: one for unstored changes, and two for changes
/// detected in the kernel.
const MARGIN_THRESHOLDS: u64 = 3;
/// Time, ns, for which the last value before a silence of unknown length holds: visible in a chart of 15 minutes.
const VISIBLE_HOLD: u64 = 3 * SECOND;
/// Maximum number of nodes whose rollups are read for one response.
const MAX_NODES: usize = 16;
/// Maximum number of rollups per node for one response, the latest.
const MAX_ROLLUPS: usize = 10_000;

/// Evidence for the silence of a flow.
#[derive(Default, Debug)]
pub(super) struct SilenceEvidence {
    /// Maximum interval between stored latest values while reports arrive, ns; 0 if they are not stored.
    storing_interval: u64,
    /// Maximum difference between an unstored latency and the stored one, ns.
    margin: u64,
    /// Greatest hop latency of all flows, ns, by (node, second).
    max_latencies: BTreeMap<(u32, u64), u64>,
    /// Number of the flow's reports with a latency, by minute since the epoch. Minutes without a rollup are absent: the flow was
    /// silent, or the minute has not ended.
    reports: BTreeMap<u64, u64>,
}

/// Time span, ns, for which the rollups of each node are needed.
type RollupSpans = BTreeMap<u32, Range<u64>>;

impl SilenceEvidence {
    /// Reads the rollups for `flow` with this history, whose last value may hold until `end`. `push_interval` is
    /// `[collector] push_interval`.
    ///
    /// # Errors
    /// The history cannot be read.
    pub(super) async fn read(
        history: &dyn History,
        permit: &Permit,
        flow: FlowKey,
        values: &FlowHistory,
        push_interval: Duration,
        end: u64,
    ) -> Result<Self, Refusal> {
        let storing_interval = nanos(push_interval.saturating_mul(INTERVALS));
        let margin = values.threshold.saturating_mul(MARGIN_THRESHOLDS);
        let mut silences = Self {
            storing_interval,
            margin,
            ..Self::default()
        };
        if let (Some(first), 1..) = (values.series.first(), margin) {
            let minutes = RollupFilter {
                from: Some(first.ts - first.ts % MINUTE),
                to: Some(end),
                metric: Some(Metric::FlowLatency),
                flow: Some(flow),
                interval: Some(MINUTE_SECONDS as u32),
                limit: MAX_ROLLUPS,
                ..RollupFilter::default()
            };
            for rollup in history.rollups(minutes, Arc::clone(permit)).await? {
                silences.add_reports(rollup.ts, rollup.count);
            }
        }
        for (node, span) in silences
            .rollup_spans(&values.series, end)
            .into_iter()
            .take(MAX_NODES)
        {
            let filter = RollupFilter {
                from: Some(span.start),
                to: Some(span.end),
                metric: Some(Metric::HopLatency),
                node: Some(node),
                interval: Some(1),
                limit: MAX_ROLLUPS,
                ..RollupFilter::default()
            };
            for rollup in history.rollups(filter, Arc::clone(permit)).await? {
                silences.add(node, rollup.ts, rollup.max);
            }
        }
        Ok(silences)
    }

    /// Creates evidence without rollups: the latest value is stored at least every `storing_interval` ns, or never if 0.
    #[cfg(test)]
    pub(super) fn stored_every(storing_interval: u64) -> Self {
        Self {
            storing_interval,
            ..Self::default()
        }
    }

    /// Adds a one-second rollup. Every worker has its own, so the greatest counts.
    fn add(&mut self, node: u32, ts: u64, max: u64) {
        let latency = self.max_latencies.entry((node, ts / SECOND)).or_default();
        *latency = max.max(*latency);
    }

    /// Adds the number of the flow's reports in the minute that begins at `ts`. Every worker has counted a part.
    fn add_reports(&mut self, ts: u64, count: u64) {
        let reports = self.reports.entry(ts / MINUTE).or_default();
        *reports = reports.saturating_add(count);
    }

    /// Returns the number of consecutive seconds that prove a silence after this point, or `None` if it is not known how often
    /// the flow reported.
    fn silent_seconds(&self, point: &FlowPoint) -> Option<u64> {
        let reports = self.reports.get(&(point.ts / MINUTE)).copied()?;
        let seconds = (SILENT_INTERVALS * MINUTE_SECONDS).div_ceil(reports.max(1));
        Some(seconds.max(SILENT_SECONDS))
    }

    /// Returns the nodes and spans whose rollups could show that a value did not hold until the next one.
    fn rollup_spans(&self, series: &[FlowPoint], end: u64) -> RollupSpans {
        let mut spans = RollupSpans::new();
        for (point, next) in with_next(series, end) {
            let next = self.end_by_interval(point, next);
            let seconds = whole_seconds(point.ts, next);
            let required = self.silent_seconds(point);
            if required.is_none_or(|required| seconds.end < seconds.start.saturating_add(required)) {
                continue;
            }
            let span = seconds.start * SECOND..seconds.end * SECOND;
            for (node, _) in self.slow_hops(point) {
                spans.entry(node).or_insert_with(|| span.clone()).end = span.end;
            }
        }
        spans
    }

    /// Returns (node, minimum latency of another packet of the flow) of the hops with a latency that shows in rollups.
    fn slow_hops(&self, point: &FlowPoint) -> impl Iterator<Item = (u32, u64)> {
        // Without a threshold, nothing is known about unstored values.
        let margin = (self.margin > 0).then_some(self.margin);
        point
            .hops
            .iter()
            .filter_map(move |(node, latency)| Some((*node, latency.checked_sub(margin?)?)))
            .filter(|(_, min_latency)| *min_latency > 0)
    }

    /// Returns the time until which each value holds; for the last one, at most `end`.
    pub(super) fn ends(&self, series: &[FlowPoint], end: u64) -> Vec<u64> {
        with_next(series, end)
            .map(|(point, next)| self.end_by_rollups(point, self.end_by_interval(point, next)))
            .collect()
    }

    /// Returns the time until which a point holds according to the storing interval: `next`, or shortly after the point if
    /// nothing was stored for longer than the interval.
    fn end_by_interval(&self, point: &FlowPoint, next: u64) -> u64 {
        match self.storing_interval {
            1.. if next.saturating_sub(point.ts) > self.storing_interval => {
                point.ts.saturating_add(VISIBLE_HOLD)
            }
            _ => next,
        }
    }

    /// Returns the start of the first seconds that prove a silence, because no packet was as slow at a node of the path; `next`
    /// if there are none.
    fn end_by_rollups(&self, point: &FlowPoint, next: u64) -> u64 {
        let seconds = whole_seconds(point.ts, next);
        let Some(required) = self.silent_seconds(point).filter(|_| !seconds.is_empty()) else {
            return next;
        };
        let silent = self.slow_hops(point).filter_map(|(node, min_latency)| {
            let mut silent_seconds = 0;
            let mut expected = seconds.start;
            for ((_, second), max_latencies) in self
                .max_latencies
                .range((node, seconds.start)..(node, seconds.end))
            {
                silent_seconds = if *max_latencies >= min_latency {
                    0
                } else if *second == expected {
                    silent_seconds + 1
                } else {
                    1
                };
                expected = second + 1;
                if silent_seconds == required {
                    return Some((expected - required) * SECOND);
                }
            }
            None
        });
        silent.min().unwrap_or(next)
    }
}

/// Returns the whole seconds within a time span.
fn whole_seconds(from: u64, to: u64) -> Range<u64> {
    from / SECOND + 1..to / SECOND
}

/// Pairs each point with the time of the next one; the last with `end`.
fn with_next(series: &[FlowPoint], end: u64) -> impl Iterator<Item = (&FlowPoint, u64)> {
    let nexts = series.iter().skip(1).map(|point| point.ts).chain([end]);
    series.iter().zip(nexts)
}

/// Converts a duration to ns, saturating.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

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

    fn silences(storing_interval: u64, margin: u64, max_latencies: &[(u32, u64, u64)]) -> SilenceEvidence {
        let mut silences = SilenceEvidence {
            storing_interval: storing_interval * SECOND,
            margin,
            ..SilenceEvidence::default()
        };
        // In the first minute, as many reports that two seconds prove a silence.
        silences.add_reports(0, 100);
        silences.add_reports(0, 200);
        for (node, second, max) in max_latencies {
            silences.add(*node, second * SECOND, *max);
        }
        silences
    }

    fn ends(silences: &SilenceEvidence, series: &[FlowPoint], end: u64) -> Vec<u64> {
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
        let mut max_latencies: Vec<_> = fast.chain([(201, 10, 9_900), (201, 30, 9_900)]).collect();
        assert_eq!(
            ends(&silences(90, 300, &max_latencies), &series, 40),
            [10_508, 11_000, 40_000]
        );
        // Another worker has seen a packet that was as slow in this second, and not in the others.
        max_latencies.push((201, 12, 9_600));
        max_latencies.retain(|(node, ..)| *node == 201);
        assert_eq!(
            ends(&silences(90, 300, &max_latencies), &series, 40),
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
        for (margin, max_latencies) in [(300, &within[..]), (300, &[]), (0, fast), (5_000, fast)] {
            assert_eq!(
                ends(&silences(0, margin, max_latencies), &series, 30),
                [30_000],
                "{margin} {max_latencies:?}"
            );
        }
        // One second alone, or two with an unknown one between them, may be those of a late report.
        for seconds in [&[14][..], &[14, 16, 18]] {
            let max_latencies: Vec<_> = seconds.iter().map(|second| (1, *second, 10)).collect();
            assert_eq!(
                ends(&silences(0, 300, &max_latencies), &series, 30),
                [30_000],
                "{seconds:?}"
            );
        }
        let max_latencies = [(1, 14, 10), (1, 16, 10), (1, 17, 10)];
        assert_eq!(ends(&silences(0, 300, &max_latencies), &series, 30), [16_000]);
    }

    /// Whether a maximum latency, by node and second, is of the flow of node 1 after its report at 30 s.
    fn is_after_stop(key: (u32, u64)) -> bool {
        key.0 == 1 && key.1 > 30
    }

    #[test]
    fn seconds_between_the_reports_of_a_slow_flow_are_no_silence() {
        // The flow reports every four seconds; between its reports only fast packets pass.
        let series = [point(10_500, &[(1, 5_000)])];
        let reports = (14..60).step_by(4).map(|second| (1, second, 5_000));
        let fast = (11..60).map(|second| (1, second, 90));
        let max_latencies: Vec<_> = reports.chain(fast).collect();
        let mut silences = silences(0, 300, &max_latencies);
        silences.reports.clear();
        assert_eq!(ends(&silences, &series, 60), [60_000], "reports not counted yet");
        assert_eq!(silences.rollup_spans(&series, 60 * SECOND), RollupSpans::new());
        silences.add_reports(0, 15);
        assert_eq!(ends(&silences, &series, 60), [60_000]);
        // It stops after the report at 30 s: the following 40 s are ten times as long as the mean interval.
        silences.max_latencies.retain(|key, _| !is_after_stop(*key));
        (31..71).for_each(|second| silences.add(1, second * SECOND, 90));
        assert_eq!(ends(&silences, &series, 80), [31_000]);
        silences.max_latencies.remove(&(1, 70));
        assert_eq!(ends(&silences, &series, 80), [80_000]);
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
        let spans = silences(0, 300, &[]).rollup_spans(&series, 40 * SECOND);
        let expected = [(1, 3 * SECOND..20 * SECOND), (3, 21 * SECOND..30 * SECOND)];
        assert_eq!(spans, RollupSpans::from(expected));
        assert_eq!(
            silences(0, 0, &[]).rollup_spans(&series, 40 * SECOND),
            RollupSpans::new()
        );
        // Extreme times.
        let late = [FlowPoint {
            ts: u64::MAX,
            hops: vec![(1, u64::MAX)],
            ..FlowPoint::default()
        }];
        assert_eq!(silences(90, 300, &[]).ends(&late, 0), [0]);
    }
}
