//! Conversion of stored events, live events and flows into [`Facts`], the fields that filter expressions test.

use collector::{Event, Kind, event::FirstValues};
use detect::Metric;
use filter::Facts;

use crate::rows::{EventRow, FirstRow, greatest};
use crate::spans::FlowSpan;
use crate::traffic::EventGroup;

/// Returns the facts of a stored event.
pub fn from_row(row: &EventRow) -> Facts<'_> {
    let first = row.first.as_ref().map(FirstRow::values);
    from_event(&row.event, row.rule.as_deref(), &row.path, first)
}

/// Returns the facts of an event, given the name of its rule, its path and the first values of its flow.
pub fn from_event<'a>(
    event: &'a Event,
    rule: Option<&'a str>,
    path: &'a [u32],
    first: Option<FirstValues<'_>>,
) -> Facts<'a> {
    let first = first.map(|first| (first.flow_latency, first.hop_latencies));
    Facts {
        flow: event.flow.as_ref(),
        flow_text: None,
        path,
        node: event.node,
        interface: event.interface,
        queue: event.queue,
        kind: Some(event.kind.name()),
        metric: event.metric.map(Metric::name),
        rule,
        reason: event.reason,
        reports: None,
        values: values(first, event.metric, event.value),
    }
}

/// Returns the facts that all events of a group have in common.
pub fn from_group(group: &EventGroup) -> Facts<'_> {
    let first = group
        .first
        .as_ref()
        .map(|(flow_latency, hop_latencies)| (*flow_latency, &**hop_latencies));
    Facts {
        flow: group.flow.as_ref(),
        flow_text: None,
        path: &group.path,
        node: group.node,
        interface: group.interface,
        queue: group.queue,
        kind: group.kind.map(Kind::name),
        metric: group.metric.map(Metric::name),
        rule: group.rule.as_deref(),
        reason: group.reason,
        reports: None,
        values: values(first, group.metric, group.value),
    }
}

/// Returns values indexed by [`Metric`]: a flow's first flow latency and largest first hop latency, and `value` of
/// `metric`.
pub fn values(
    first: Option<(Option<u64>, &[u32])>,
    metric: Option<Metric>,
    value: Option<u64>,
) -> [Option<u64>; Metric::COUNT] {
    let mut values = [None; Metric::COUNT];
    if let Some((flow_latency, hop_latencies)) = first {
        values[Metric::HopLatency as usize] = greatest(hop_latencies);
        values[Metric::FlowLatency as usize] = flow_latency;
    }
    if let Some(metric) = metric {
        values[metric as usize] = value;
    }
    values
}

/// Returns the facts of a flow in a time span. Its flow latency is the maximum; node metrics are unknown.
pub fn from_span(span: &FlowSpan) -> Facts<'_> {
    let mut values = [None; Metric::COUNT];
    values[Metric::FlowLatency as usize] = span.sum.has_values().then_some(span.sum.max);
    Facts {
        flow: Some(&span.flow),
        path: &span.path,
        reports: Some(span.sum.count),
        values,
        ..Facts::default()
    }
}

#[cfg(test)]
mod tests {
    use filter::{View, complete};

    use super::*;

    #[test]
    fn a_filter_knows_every_kind_and_metric() {
        let offered = |text: &str| -> Vec<String> {
            let found = complete(text, View::Events, &[], &[]);
            found.into_iter().map(|one| one.text.trim().to_owned()).collect()
        };
        assert_eq!(offered("kind == "), Kind::ALL.map(Kind::name));
        assert_eq!(offered("metric == "), Metric::ALL.map(Metric::name));
    }
}
