//! Distributions of a flow's hop latencies over time. A stored value holds until the next one, or until the
//! flow is silent, so values are weighted by time.

use std::collections::BTreeMap;

use store::{FlowHistory, FlowPoint};

use super::holds::Silences;
use view::{HopLatencies, LatencySpread, node};

/// A span of time in columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) column: u64,
}

/// A value that held in one bin.
#[derive(Clone, Copy, Debug)]
struct HeldValue {
    column: usize,
    value: u64,
    time: u64,
}

/// The values of one node, or of the flow.
#[derive(Default, Debug)]
struct Values {
    held: Vec<HeldValue>,
    count: u64,
}

impl Columns {
    fn count(self) -> usize {
        let count = self.to.saturating_sub(self.from).div_ceil(self.column.max(1));
        usize::try_from(count).unwrap_or(MOST_COLUMNS).min(MOST_COLUMNS)
    }

    /// Adds a value to every bin that it overlaps, weighted by the overlap.
    fn hold(self, values: &mut Values, value: u64, time: (u64, u64)) {
        let (since, until) = time;
        let until = until.min(self.to);
        values.count += u64::from(since >= self.from && since < self.to);
        let mut at = since.max(self.from);
        while at < until {
            let column = (at - self.from) / self.column.max(1);
            let end = until.min(self.from.saturating_add((column + 1).saturating_mul(self.column)));
            let Ok(place) = usize::try_from(column) else {
                return;
            };
            if place >= self.count() || end <= at {
                return;
            }
            values.held.push(HeldValue {
                column: place,
                value,
                time: end - at,
            });
            at = end;
        }
    }
}

/// Computes the distribution of a flow's latencies.
pub(super) fn latencies(history: &FlowHistory, silences: &Silences, columns: Columns) -> HopLatencies {
    let (mut hops, mut flow): (BTreeMap<u32, Values>, Values) = Default::default();
    for (point, end) in history
        .series
        .iter()
        .zip(silences.ends(&history.series, columns.to))
    {
        let time = (point.ts, end);
        if let Some(latency) = point.flow_latency {
            columns.hold(&mut flow, latency, time);
        }
        for (node, latency) in &point.hops {
            columns.hold(hops.entry(*node).or_default(), *latency, time);
        }
    }
    hops.retain(|_, values| !values.held.is_empty());
    let all = hops
        .values()
        .chain([&flow])
        .flat_map(|values| &values.held)
        .map(|held| held.value);
    let bounds = bounds(all);
    let order = order(history.series.last(), &hops);
    let shown = order.iter().take(MOST_HOPS);
    let spreads = shown
        .filter_map(|id| {
            Some(LatencySpread {
                node: node(*id),
                ..spread(hops.get(id)?, columns, &bounds)
            })
        })
        .collect();
    HopLatencies {
        from: columns.from,
        to: columns.to,
        column: columns.column,
        hops: spreads,
        flow: (!flow.held.is_empty()).then(|| spread(&flow, columns, &bounds)),
        left_out: order.len().saturating_sub(MOST_HOPS),
        truncated: history.truncated,
        bounds,
    }
}

/// Returns the nodes in the order of the latest path, then those of earlier ones.
fn order(last: Option<&FlowPoint>, hops: &BTreeMap<u32, Values>) -> Vec<u32> {
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

fn spread(values: &Values, columns: Columns, bounds: &[u64]) -> LatencySpread {
    let mut parts: Vec<Vec<HeldValue>> = vec![Vec::new(); columns.count()];
    for held in &values.held {
        if let Some(part) = parts.get_mut(held.column) {
            part.push(*held);
        }
    }
    let mut all = values.held.clone();
    let [p50, p90, p99] = quantiles(&mut all).unwrap_or_default();
    let by_column: Vec<Option<[u64; 3]>> = parts.iter_mut().map(|part| quantiles(part)).collect();
    LatencySpread {
        node: None,
        values: values.count,
        time: values.held.iter().map(|held| held.time).sum(),
        p50,
        p90,
        p99,
        max: all.last().map_or(0, |held| held.value),
        mean: mean(&all).unwrap_or(0),
        means: parts.iter().map(|part| mean(part)).collect(),
        medians: by_column
            .iter()
            .map(|quantiles| quantiles.map(|all| all[0]))
            .collect(),
        p90s: by_column
            .iter()
            .map(|quantiles| quantiles.map(|all| all[1]))
            .collect(),
        p99s: by_column
            .iter()
            .map(|quantiles| quantiles.map(|all| all[2]))
            .collect(),
        classes: parts.iter().map(|part| classes(part, bounds)).collect(),
    }
}

/// Returns the 50th, 90th and 99th percentile, weighted by time. Sorts the values.
fn quantiles(held: &mut [HeldValue]) -> Option<[u64; 3]> {
    held.sort_unstable_by_key(|held| held.value);
    let all: u128 = held.iter().map(|held| u128::from(held.time)).sum();
    Some([
        quantile(held, all * 50)?,
        quantile(held, all * 90)?,
        quantile(held, all * 99)?,
    ])
}

/// Returns the value below which `percent` of the time lies.
fn quantile(held: &[HeldValue], hundredths: u128) -> Option<u64> {
    let mut passed = 0;
    let found = held.iter().find(|held| {
        passed += u128::from(held.time) * 100;
        passed >= hundredths
    });
    found.map(|held| held.value)
}

fn mean(held: &[HeldValue]) -> Option<u64> {
    let time: u128 = held.iter().map(|held| u128::from(held.time)).sum();
    let sum: u128 = held
        .iter()
        .map(|held| u128::from(held.time) * u128::from(held.value))
        .sum();
    let mean = sum.checked_div(time)?;
    Some(u64::try_from(mean).unwrap_or(u64::MAX))
}

/// Returns the share of time in each class, in thousandths, rounded up so that a rare value stays visible.
fn classes(held: &[HeldValue], bounds: &[u64]) -> Vec<u16> {
    let all: u128 = held.iter().map(|held| u128::from(held.time)).sum();
    if all == 0 {
        return Vec::new();
    }
    let mut times = vec![0_u128; bounds.len()];
    for held in held {
        let class = bounds
            .partition_point(|bound| *bound < held.value)
            .min(bounds.len().saturating_sub(1));
        if let Some(time) = times.get_mut(class) {
            *time += u128::from(held.time);
        }
    }
    // What there is, is seen: rounded up.
    times
        .into_iter()
        .map(|time| u16::try_from((time * 1000).div_ceil(all)).unwrap_or(1000))
        .collect()
}

/// Returns upper bounds 1, 2, 5, 10, … ns that cover all values, at most `MAX_CLASSES`. The smallest are
/// merged.
fn bounds(values: impl Iterator<Item = u64> + Clone) -> Vec<u64> {
    let (Some(least), Some(most)) = (values.clone().min(), values.max()) else {
        return Vec::new();
    };
    let mut bounds: Vec<u64> = Vec::new();
    let mut decade = 1_u64;
    'all: loop {
        for step in [1, 2, 5] {
            let bound = decade.saturating_mul(step);
            if bound >= least {
                bounds.push(bound);
            }
            if bound >= most {
                break 'all;
            }
        }
        decade = decade.saturating_mul(10);
    }
    // The smallest ones together, if there are too many.
    bounds.drain(..bounds.len().saturating_sub(MOST_CLASSES));
    bounds
}

const MOST_COLUMNS: usize = 200;
const MOST_HOPS: usize = 16;
const MOST_CLASSES: usize = 20;

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
        let columns = Columns {
            from: 10 * SECOND,
            to: 30 * SECOND,
            column: 10 * SECOND,
        };
        super::latencies(history, &Silences::default(), columns)
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
    fn a_silent_flow_has_no_latency() {
        let history = FlowHistory {
            series: vec![point(11, 7, &[(1, 5)])],
            truncated: true,
            ..FlowHistory::default()
        };
        let columns = Columns {
            from: 10 * SECOND,
            to: 30 * SECOND,
            column: 10 * SECOND,
        };
        let found = super::latencies(&history, &Silences::stored_every(10 * SECOND), columns);
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
            (MOST_CLASSES, MOST_HOPS, 44)
        );
        assert!(
            found
                .hops
                .iter()
                .all(|hop| hop.classes[0].iter().map(|part| u32::from(*part)).sum::<u32>() >= 1000)
        );
    }
}
