//! What filters are about: of stored and live events, and of flows.

use collector::{Event, event::FirstValues};
use detect::Metric;
use filter::Facts;
use store::{EventRow, FirstRow, FlowSpan};

/// Of a stored event.
pub(crate) fn of_row(row: &EventRow) -> Facts<'_> {
    of_event(&row.event, row.rule.as_deref(), (&row.path, row.first.as_ref().map(FirstRow::values)))
}

/// Of an event with the name of its rule, its path, and the first values of its flow.
pub(crate) fn of_event<'a>(
    event: &'a Event,
    rule: Option<&'a str>,
    (path, first): (&'a [u32], Option<FirstValues<'_>>),
) -> Facts<'a> {
    let mut values = [None; Metric::COUNT];
    if let Some(first) = first {
        let latencies = first.hop_latencies.iter().filter(|latency| **latency != u32::MAX);
        values[Metric::HopLatency as usize] = latencies.max().map(|latency| u64::from(*latency));
        values[Metric::FlowLatency as usize] = first.flow_latency;
    }
    if let Some(metric) = event.metric {
        values[metric as usize] = event.value;
    }
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
        values,
    }
}

/// Of a flow in a span of time: its latency is the largest. What its packets saw of nodes is not known.
pub(crate) fn of_span(span: &FlowSpan) -> Facts<'_> {
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
