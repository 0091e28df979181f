//! Time-weighted distributions of a flow's hop latencies, for `/flows/{id}/latencies`. A stored value holds until the next
//! one or until the flow is silent (see `holds`), and counts for as long as it held.

use std::collections::BTreeMap;

use store::{FlowHistory, FlowPoint};

use super::holds::SilenceEvidence;
use view::{HopLatencies, LatencySpread, node};

/// Maximum number of time bins, and of nodes with a distribution each, in a response.
const MAX_BINS: usize = 200;
const MAX_HOPS: usize = 16;
/// Maximum number of latency classes, so that a chart can draw a row for each.
const MAX_CLASSES: usize = 20;

/// Time span, divided into bins of `step` ns; times are ns since the epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeGrid {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) step: u64,
}

/// Value that held during a part of one bin.
#[derive(Clone, Copy, Debug)]
struct WeightedValue {
    bin: usize,
    value: u64,
    /// Time for which the value held in this bin, ns.
    duration: u64,
}

/// Values of one node, or of the flow as a whole.
#[derive(Default, Debug)]
struct Samples {
    weighted: Vec<WeightedValue>,
    /// Number of values stored within the span.
    count: u64,
}

/// Percentiles of a latency, ns, weighted by time.
#[derive(Clone, Copy, Default, Debug)]
struct Quantiles {
    p50: u64,
    p90: u64,
    p99: u64,
}

impl TimeGrid {
    fn bins(self) -> usize {
        let bins = self.to.saturating_sub(self.from).div_ceil(self.step.max(1));
        usize::try_from(bins).unwrap_or(MAX_BINS).min(MAX_BINS)
    }

    /// Adds a value to every bin that it overlaps, weighted by the overlap.
    fn add(self, samples: &mut Samples, value: u64, start: u64, end: u64) {
        let end = end.min(self.to);
        samples.count += u64::from(start >= self.from && start < self.to);
        let mut ts = start.max(self.from);
        while ts < end {
            let number = (ts - self.from) / self.step.max(1);
            let bin_end = end.min(self.from.saturating_add((number + 1).saturating_mul(self.step)));
            let Ok(bin) = usize::try_from(number) else {
                return;
            };
            if bin >= self.bins() || bin_end <= ts {
                return;
            }
            samples.weighted.push(WeightedValue {
                bin,
                value,
                duration: bin_end - ts,
            });
            ts = bin_end;
        }
    }
}

/// Computes the latency distributions of a flow and of its hops.
pub(super) fn latencies(history: &FlowHistory, silences: &SilenceEvidence, grid: TimeGrid) -> HopLatencies {
    let mut hops: BTreeMap<u32, Samples> = BTreeMap::new();
    let mut flow = Samples::default();
    for (point, end) in history.series.iter().zip(silences.ends(&history.series, grid.to)) {
        if let Some(latency) = point.flow_latency {
            grid.add(&mut flow, latency, point.ts, end);
        }
        for (node, latency) in &point.hops {
            grid.add(hops.entry(*node).or_default(), *latency, point.ts, end);
        }
    }
    hops.retain(|_, samples| !samples.weighted.is_empty());
    let values = hops
        .values()
        .chain([&flow])
        .flat_map(|samples| &samples.weighted)
        .map(|sample| sample.value);
    let bounds = class_bounds(values);
    let nodes = node_order(history.series.last(), &hops);
    let spreads = nodes
        .iter()
        .take(MAX_HOPS)
        .filter_map(|id| {
            Some(LatencySpread {
                node: node(*id),
                ..spread(hops.get(id)?, grid, &bounds)
            })
        })
        .collect();
    HopLatencies {
        from: grid.from,
        to: grid.to,
        column: grid.step,
        hops: spreads,
        flow: (!flow.weighted.is_empty()).then(|| spread(&flow, grid, &bounds)),
        left_out: nodes.len().saturating_sub(MAX_HOPS),
        truncated: history.truncated,
        bounds,
    }
}

/// Returns the nodes in the order of the latest path, then the nodes of earlier paths.
fn node_order(last: Option<&FlowPoint>, hops: &BTreeMap<u32, Samples>) -> Vec<u32> {
    let mut order: Vec<u32> = Vec::with_capacity(hops.len());
    let latest = last
        .into_iter()
        .flat_map(|point| &point.hops)
        .map(|(node, _)| node);
    for node in latest.chain(hops.keys()) {
        if hops.contains_key(node) && !order.contains(node) {
            order.push(*node);
        }
    }
    order
}

/// Returns the time-weighted quantiles and means of one node, overall and per bin of the grid, and the class shares per bin.
fn spread(samples: &Samples, grid: TimeGrid, bounds: &[u64]) -> LatencySpread {
    let mut bins: Vec<Vec<WeightedValue>> = vec![Vec::new(); grid.bins()];
    for sample in &samples.weighted {
        if let Some(bin) = bins.get_mut(sample.bin) {
            bin.push(*sample);
        }
    }
    let mut sorted = samples.weighted.clone();
    let overall = quantiles(&mut sorted).unwrap_or_default();
    let by_bin: Vec<Option<Quantiles>> = bins.iter_mut().map(|bin| quantiles(bin)).collect();
    LatencySpread {
        node: None,
        values: samples.count,
        time: samples.weighted.iter().map(|sample| sample.duration).sum(),
        p50: overall.p50,
        p90: overall.p90,
        p99: overall.p99,
        max: sorted.last().map_or(0, |sample| sample.value),
        mean: mean(&sorted).unwrap_or(0),
        means: bins.iter().map(|bin| mean(bin)).collect(),
        medians: by_bin.iter().map(|bin| bin.map(|bin| bin.p50)).collect(),
        p90s: by_bin.iter().map(|bin| bin.map(|bin| bin.p90)).collect(),
        p99s: by_bin.iter().map(|bin| bin.map(|bin| bin.p99)).collect(),
        classes: bins.iter().map(|bin| class_shares(bin, bounds)).collect(),
    }
}

/// Returns the percentiles, weighted by time; `None` without values. Sorts `samples` by value.
fn quantiles(samples: &mut [WeightedValue]) -> Option<Quantiles> {
    samples.sort_unstable_by_key(|sample| sample.value);
    Some(Quantiles {
        p50: quantile(samples, 50)?,
        p90: quantile(samples, 90)?,
        p99: quantile(samples, 99)?,
    })
}

/// Returns the lowest value below or at which the flow was for `percent` of the time (nearest rank, as the sketches of the live
/// state have it): of two values that each held for half of the time, the lower one. `samples` are sorted by value.
fn quantile(samples: &[WeightedValue], percent: u128) -> Option<u64> {
    let total = total_duration(samples);
    let mut passed = 0;
    let sample_at_percentile = samples.iter().find(|sample| {
        passed += u128::from(sample.duration) * 100;
        passed >= total * percent
    });
    sample_at_percentile.map(|sample| sample.value)
}

fn total_duration(samples: &[WeightedValue]) -> u128 {
    samples.iter().map(|sample| u128::from(sample.duration)).sum()
}

fn mean(samples: &[WeightedValue]) -> Option<u64> {
    let sum: u128 = samples
        .iter()
        .map(|sample| u128::from(sample.duration) * u128::from(sample.value))
        .sum();
    let mean = sum.checked_div(total_duration(samples))?;
    Some(u64::try_from(mean).unwrap_or(u64::MAX))
}

/// Returns the share of time in each class in 1/1000, rounded up so that a rare value stays visible.
fn class_shares(samples: &[WeightedValue], bounds: &[u64]) -> Vec<u16> {
    let total = total_duration(samples);
    if total == 0 {
        return Vec::new();
    }
    let mut durations = vec![0_u128; bounds.len()];
    for sample in samples {
        let class = bounds
            .partition_point(|bound| *bound < sample.value)
            .min(bounds.len().saturating_sub(1));
        if let Some(duration) = durations.get_mut(class) {
            *duration += u128::from(sample.duration);
        }
    }
    durations
        .into_iter()
        .map(|duration| u16::try_from((duration * 1000).div_ceil(total)).unwrap_or(1000))
        .collect()
}

/// Returns upper bounds of classes (1, 2, 5, 10, … ns) for all values: at most [`MAX_CLASSES`], the smallest merged.
fn class_bounds(values: impl Iterator<Item = u64> + Clone) -> Vec<u64> {
    let (Some(min), Some(max)) = (values.clone().min(), values.max()) else {
        return Vec::new();
    };
    let mut bounds: Vec<u64> = Vec::new();
    let mut decade = 1_u64;
    'all: loop {
        for step in [1, 2, 5] {
            let bound = decade.saturating_mul(step);
            if bound >= min {
                bounds.push(bound);
            }
            if bound >= max {
                break 'all;
            }
        }
        decade = decade.saturating_mul(10);
    }
    bounds.drain(..bounds.len().saturating_sub(MAX_CLASSES));
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn point(at: u64, flow: u64, hops: &[(u32, u64)]) -> FlowPoint {
        FlowPoint {
            ts: at * SECOND,
            flow_latency: Some(flow),
            hops: hops.to_vec(),
            ..FlowPoint::default()
        }
    }

    fn latencies(history: &FlowHistory) -> HopLatencies {
        let grid = TimeGrid {
            from: 10 * SECOND,
            to: 30 * SECOND,
            step: 10 * SECOND,
        };
        super::latencies(history, &SilenceEvidence::default(), grid)
    }

    #[test]
    fn a_value_counts_for_the_time_that_it_held() {
        // Node 1 takes 100 ns, but 900 ns from 15 s to 16 s; node 2 is on the path from 20 s on.
        let series = vec![
            point(5, 1_000, &[(1, 100)]),
            point(15, 3_000, &[(1, 900)]),
            point(16, 1_000, &[(1, 100)]),
            point(20, 1_000, &[(2, 40), (1, 100)]),
        ];
        let history = FlowHistory {
            series,
            ..FlowHistory::default()
        };
        let found = latencies(&history);
        assert_eq!(found.bounds, [50, 100, 200, 500, 1_000, 2_000, 5_000]);
        let nodes: Vec<_> = found
            .hops
            .iter()
            .map(|hop| (hop.node, hop.values, hop.time / SECOND))
            .collect();
        assert_eq!(nodes, [(Some(2), 1, 10), (Some(1), 3, 20)]);
        let one = &found.hops[1];
        assert_eq!(
            (one.p50, one.p90, one.p99, one.max, one.mean),
            (100, 100, 900, 900, 140)
        );
        assert_eq!(one.medians, [Some(100), Some(100)]);
        assert_eq!(one.p99s, [Some(900), Some(100)]);
        assert_eq!(one.means, [Some(180), Some(100)]);
        assert_eq!(
            one.classes,
            [vec![0, 900, 0, 0, 100, 0, 0], vec![0, 1000, 0, 0, 0, 0, 0]]
        );
        assert_eq!(found.hops[0].classes[0], [] as [u16; 0]);
        assert_eq!(found.hops[0].means, [None, Some(40)]);
        assert_eq!(found.flow.map(|flow| (flow.max, flow.p50)), Some((3_000, 1_000)));
    }

    #[test]
    fn of_two_values_for_half_of_the_time_each_the_median_is_the_lower() {
        for halves in [[400, 900], [900, 400]] {
            let history = FlowHistory {
                series: vec![point(10, halves[0], &[]), point(20, halves[1], &[])],
                ..FlowHistory::default()
            };
            let flow = latencies(&history).flow.unwrap();
            assert_eq!((flow.p50, flow.p90), (400, 900));
        }
    }

    #[test]
    fn a_silent_flow_has_no_latency() {
        let history = FlowHistory {
            series: vec![point(11, 7, &[(1, 5)])],
            truncated: true,
            ..FlowHistory::default()
        };
        let grid = TimeGrid {
            from: 10 * SECOND,
            to: 30 * SECOND,
            step: 10 * SECOND,
        };
        let found = super::latencies(&history, &SilenceEvidence::stored_every(10 * SECOND), grid);
        assert_eq!(found.hops[0].time, 3 * SECOND);
        assert_eq!(found.hops[0].means, [Some(5), None]);
        assert!(found.truncated);
        let nothing = latencies(&FlowHistory::default());
        assert_eq!(
            (nothing.bounds.len(), nothing.hops.len(), nothing.flow),
            (0, 0, None)
        );
    }

    #[test]
    fn there_are_few_classes_and_few_hops_whatever_was_reported() {
        let hops: Vec<(u32, u64)> = (0..60).map(|node| (node, 1_u64 << node)).collect();
        let history = FlowHistory {
            series: vec![point(11, u64::MAX, &hops)],
            ..FlowHistory::default()
        };
        let found = latencies(&history);
        assert_eq!(
            (found.bounds.len(), found.hops.len(), found.left_out),
            (MAX_CLASSES, MAX_HOPS, 44)
        );
        assert!(
            found
                .hops
                .iter()
                .all(|hop| hop.classes[0].iter().map(|part| u32::from(*part)).sum::<u32>() >= 1000)
        );
    }
}
