//! The queries that the UI's pages send for a time span, timed over spans from 10 minutes to the whole store.
//!
//! [`super::insert`] fills the store; [`run_queries`] returns one timing per query and span.

use std::path::Path;
use std::sync::Arc;

use collector::{FlowOrder, Kind};
use detect::Metric;
use filter::{Filter, View};

use store::{
    Dimension, EventFilter, FlowFilter, FlowSelector, HeatFilter, Measure, Prefixes, QueryError, Reader,
    Source, Span, TrafficQuery, facts,
};

use super::{MINUTE, SECOND, START, flow};
use crate::insert::{Failure, QueryTiming, timed};

/// Times each query over spans of 10 min, 53 min, 3 h 8 min and all of the `minutes` that [`super::insert`] stored.
///
/// # Errors
/// A query fails, or takes longer than ten seconds.
pub(crate) fn run_queries(dir: &Path, minutes: u64) -> Result<Vec<QueryTiming>, Failure> {
    let reader = Reader::open(dir)?;
    let end = START + minutes * MINUTE;
    let spans = [
        ("10 min", 10),
        ("53 min", 53),
        ("3 h 8 min", 188),
        ("all", minutes),
    ];
    let mut timings = Vec::new();
    for (name, length) in spans {
        // Short spans end at an odd time, so that they do not line up with the buckets of rollups.
        let to = if length < minutes { end - 187 * SECOND } else { end };
        let span = Span::new(to - (length * MINUTE).min(to - START), to);
        for (what, question) in QUESTIONS {
            timings.push(timed(&format!("{what}: {name}"), &|| question(&reader, span))?);
        }
        for (measure, by, text) in TRAFFIC {
            let condition = if text.is_empty() {
                String::new()
            } else {
                format!(" where {text}")
            };
            let dimensions: Vec<&str> = by.iter().map(|dimension| dimension.name()).collect();
            let what = format!(
                "{} by {}{condition}: {name}",
                measure.name(),
                dimensions.join(", ")
            );
            let question = traffic(span, *measure, by, text);
            timings.push(timed(&what, &|| {
                let traffic = reader.traffic(&question)?;
                Ok(usize::from(traffic.other_groups > 0) + traffic.groups.len())
            })?);
        }
    }
    Ok(timings)
}

type Question = fn(&Reader, Span) -> Result<usize, QueryError>;

/// The queries of all pages except *Traffic*, by name. Each returns the number of rows in its answer.
const QUESTIONS: [(&str, Question); 15] = [
    ("flows, slowest 100", |reader, span| {
        let filter = slowest(span);
        reader.flow_spans(&filter).map(|flows| flows.flows.len())
    }),
    ("flows, slowest 100 of one node", |reader, span| {
        let condition = condition("node == 7", View::Flows);
        reader
            .flow_spans_where(&slowest(span), true, &|flow| {
                condition.matches(&facts::from_span(flow))
            })
            .map(|flows| flows.flows.len())
    }),
    ("one flow", |reader, span| {
        let filter = FlowFilter {
            order: FlowOrder::LastSeen,
            text: Some(flow(77).to_string()),
            id: Some(flow(77).id()),
            limit: 1,
            ..slowest(span)
        };
        reader.flow_spans(&filter).map(|flows| flows.flows.len())
    }),
    ("nodes", |reader, span| {
        reader.node_spans(span).map(|nodes| nodes.series.len())
    }),
    ("paths", |reader, span| {
        reader.path_spans(span).map(|spans| spans.paths.len())
    }),
    ("path changes", |reader, span| {
        reader
            .path_changes(span, &FlowSelector::default(), 100)
            .map(|changes| changes.groups.len())
    }),
    ("paths of one host", |reader, span| {
        let flows = FlowSelector {
            src: Some(flow(77).src().to_string()),
            ..FlowSelector::default()
        };
        reader.path_uses(span, &flows, 100).map(|uses| uses.uses.len())
    }),
    ("paths to 40 flows' host", |reader, span| {
        let flows = FlowSelector {
            dst: Some(flow(77).dst().to_string()),
            ..FlowSelector::default()
        };
        reader.path_uses(span, &flows, 100).map(|uses| uses.uses.len())
    }),
    ("losses", |reader, span| {
        reader.losses_in(span, None).map(|losses| losses.drops.len())
    }),
    ("rates", |reader, span| {
        let column = if span.length() <= 30 * MINUTE {
            5 * SECOND
        } else {
            8 * MINUTE
        };
        reader.rate_span(span, column).map(|rates| rates.points.len())
    }),
    ("heat map", |reader, span| {
        let (interval, column) = match span.length() / MINUTE {
            0..=30 => (1, 5 * SECOND),
            31..=600 => (60, MINUTE),
            _ => (60, 8 * MINUTE),
        };
        let filter = HeatFilter {
            metric: Metric::QueueOccupancy,
            from: span.from() / column * column,
            to: span.to(),
            column,
            interval,
            location: collector::Location::default(),
            limit: 50,
        };
        reader.heat(&filter).map(|heat| heat.rows.len())
    }),
    ("events, latest 200", |reader, span| {
        reader.events(&latest(span)).map(|events| events.len())
    }),
    ("events, latest 200 drops", |reader, span| {
        let filter = EventFilter {
            kind: Some(Kind::Drop),
            ..latest(span)
        };
        reader.events(&filter).map(|events| events.len())
    }),
    ("events, latest 200 of a network", |reader, span| {
        let condition = condition("src in 10.0.1.0/24", View::Events);
        reader
            .events_where(&latest(span), |row| condition.matches(&facts::from_row(row)))
            .map(|(events, _)| events.len())
    }),
    ("events, latest 200 of a rare host", |reader, span| {
        let condition = condition("host == 10.0.0.77", View::Events);
        reader
            .events_where(&latest(span), |row| condition.matches(&facts::from_row(row)))
            .map(|(events, _)| events.len())
    }),
];

/// The queries of the page *Traffic*: measure, dimensions to group by, and filter text.
const TRAFFIC: &[(Measure, &[Dimension], &str)] = &[
    (Measure::Reports, &[Dimension::Src], ""),
    (Measure::Reports, &[Dimension::Port], ""),
    (Measure::Reports, &[Dimension::Path], ""),
    (Measure::Reports, &[Dimension::Node], ""),
    (Measure::Reports, &[Dimension::Src], "src in 10.0.1.0/24"),
    (Measure::Reports, &[Dimension::Link], "path ~ 7>*"),
    (Measure::FlowLatency, &[Dimension::SrcPrefix], ""),
    (Measure::FlowLatency, &[Dimension::Flow], "reports > 100"),
    (Measure::Events, &[Dimension::Kind], ""),
    (Measure::Events, &[Dimension::Node], ""),
    (Measure::Events, &[Dimension::Src], ""),
    (Measure::Events, &[Dimension::Port], ""),
    (Measure::Events, &[Dimension::SrcPrefix], ""),
    (Measure::Events, &[Dimension::Path], ""),
    (Measure::Events, &[Dimension::Src], "kind == drop"),
    (Measure::Events, &[Dimension::Node], "src in 10.0.1.0/24"),
    (Measure::Events, &[Dimension::Src], "node == 7"),
    (Measure::Events, &[Dimension::SrcPrefix, Dimension::Node], ""),
    (Measure::Events, &[Dimension::Node], "hop_latency > 500us"),
    (Measure::Of(Metric::HopLatency), &[Dimension::Node], ""),
    (Measure::Of(Metric::QueueOccupancy), &[Dimension::Queue], ""),
    (
        Measure::Of(Metric::QueueOccupancy),
        &[Dimension::Queue],
        "node == 7",
    ),
];

fn slowest(span: Span) -> FlowFilter {
    FlowFilter {
        span,
        order: FlowOrder::Latency,
        text: None,
        id: None,
        after: None,
        limit: 100,
    }
}

fn latest(span: Span) -> EventFilter {
    EventFilter {
        from: Some(span.from()),
        before: Some(span.to()),
        ..EventFilter::default()
    }
}

fn traffic(span: Span, measure: Measure, by: &[Dimension], text: &str) -> Arc<TrafficQuery> {
    let view = if measure.source() == Source::Flows {
        View::Flows
    } else {
        View::Events
    };
    let condition = match text {
        "" => None,
        text => Some(Arc::new(condition(text, view))),
    };
    Arc::new(TrafficQuery {
        span: (span.from(), span.to()),
        now: span.to() + 10 * MINUTE,
        columns: 180,
        measure,
        by: by.to_vec(),
        prefixes: Prefixes { v4: 24, v6: 64 },
        top: 8,
        condition,
        labels: Arc::default(),
    })
}

fn condition(text: &str, view: View) -> Filter {
    Filter::parse(text, view, &filter::no_names).unwrap()
}
