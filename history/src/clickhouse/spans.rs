//! Summaries over a time span from ClickHouse, from one-minute rollups: flows with their paths, node series, and counts over
//! time. Rows are selected and sorted by the same code as in the store, so both back ends give equal results.

use collector::{FlowOrder, FlowRank, event::Kind};
use detect::Metric;
use export::record::Stream;
use serde::Deserialize;
use store::{
    FlowSpan, FlowSpans, NodeSpans, RateSpan, RateTally, SeriesKey, Span, SpanSum, facts, unknown_paths_note,
};
use tokio::time::Instant;
use wire::FlowKey;

use super::{
    Remote,
    rows::{basis, flow, queue},
    statement::present,
};
use crate::notes;
use crate::query::{FlowsQuery, RateQuery};
use crate::sql::Failure;

/// Maximum number of flows or series of a span; others are on no page. About 200 bytes of a response each.
const MAX_LINES: usize = 50_000;
const MINUTE: u64 = 60_000_000_000;

/// Aggregated rollups; the statement's column `sums` is an array in the order of these fields.
#[derive(Deserialize, Clone, Copy, Debug)]
pub(super) struct SumColumns {
    count: u64,
    min: u64,
    max: u64,
    sum: u64,
    /// Start of the first rollup, ns.
    first: u64,
    /// End of the last rollup, ns.
    last: u64,
}

impl SumColumns {
    fn span(self) -> SpanSum {
        SpanSum {
            count: self.count,
            min: self.min,
            max: self.max,
            sum: self.sum,
            first: self.first,
            last: self.last,
        }
    }
}

#[derive(Deserialize, Debug)]
struct FlowLine {
    flow: String,
    sums: SumColumns,
    path: Vec<u32>,
    basis: String,
}

#[derive(Deserialize, Debug)]
struct SeriesLine {
    metric: String,
    node: u32,
    interface: u32,
    queue: u32,
    sums: SumColumns,
}

/// A count for a key: a node or the start of a time column, ns.
#[derive(Deserialize, Debug)]
pub(super) struct KeyedCount {
    pub(super) key: u64,
    #[serde(default)]
    kind: String,
    pub(super) amount: u64,
}

/// The aggregated latency rollups of a flow.
#[derive(Deserialize, Debug)]
pub(super) struct FlowSum {
    flow: String,
    sums: SumColumns,
}

impl FlowSum {
    /// Returns the flow and its sums, or `None` if the text is not a flow.
    pub(super) fn sum(self) -> Option<(FlowKey, SpanSum)> {
        Some((flow(&self.flow)?, self.sums.span()))
    }
}

impl Remote {
    /// Reads flows with sums and paths. The page (`after`, `limit`) is cut here, because ranks are computed here.
    pub(super) async fn flow_spans(&self, query: FlowsQuery) -> Result<FlowSpans, Failure> {
        let FlowsQuery { filter, condition } = query;
        let until = Instant::now() + self.limit;
        let exact = filter
            .id
            .and(filter.text.as_deref())
            .and_then(|text| text.parse::<FlowKey>().ok());
        // Columns of `SUM`: `last` is the end of the last rollup, `largest` the largest latency, `value_count` the reports.
        let order = match filter.order {
            FlowOrder::LastSeen => "last",
            FlowOrder::Latency => "largest",
            FlowOrder::Reports => "value_count",
        };
        let statement = self.about(Stream::Rollups).flows(
            filter.span,
            exact.as_ref(),
            &self.path_tables(),
            order,
            MAX_LINES,
        );
        let mut lines: Vec<FlowLine> = self.rows(statement, until).await?;
        let truncated = lines.len() > MAX_LINES;
        lines.truncate(MAX_LINES);
        let spans = lines.into_iter().filter_map(FlowLine::span).filter(|span| {
            let by_name = match (filter.id, filter.text.as_deref()) {
                (Some(id), _) => span.flow.id() == id,
                (None, Some(text)) => span.flow.to_string().contains(text),
                (None, None) => true,
            };
            by_name
                && condition
                    .as_ref()
                    .is_none_or(|condition| condition.matches(&facts::from_span(span)))
        });
        let mut flows: Vec<(FlowRank, FlowSpan)> = spans
            .map(|span| (filter.rank(&span.flow, &span.sum), span))
            .collect();
        let total = flows.len() as u64;
        flows.retain(|(rank, _)| filter.after.is_none_or(|after| *rank < after));
        flows.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        let more = flows.len() > filter.limit;
        flows.truncate(filter.limit);
        let unknown = flows.iter().filter(|(_, span)| span.path.is_empty()).count();
        notes::add(unknown_paths_note(unknown as u64, "flow"));
        Ok(FlowSpans {
            flows,
            more,
            total,
            truncated,
        })
    }

    pub(super) async fn node_spans(&self, span: Span) -> Result<NodeSpans, Failure> {
        let until = Instant::now() + self.limit;
        let statement = self.about(Stream::Rollups).nodes(span, MAX_LINES);
        let lines: Vec<SeriesLine> = self.rows(statement, until).await?;
        let drops: Vec<KeyedCount> = self
            .rows(self.about(Stream::Drops).drops(span, MAX_LINES), until)
            .await?;
        let truncated = lines.len() > MAX_LINES || drops.len() > MAX_LINES;
        let drops = drops.iter().take(MAX_LINES);
        let drops = drops.filter_map(|count| Some((u32::try_from(count.key).ok()?, count.amount)));
        let series = lines.into_iter().take(MAX_LINES).filter_map(SeriesLine::series);
        Ok(NodeSpans {
            series: series.collect(),
            drops: drops.collect(),
            truncated,
        })
    }

    /// Counts reports, events and lost reports per time column. Reports after `known_to` are incomplete and not counted.
    pub(super) async fn rate_span(&self, query: RateQuery) -> Result<RateSpan, Failure> {
        let RateQuery {
            span,
            column,
            known_to,
        } = query;
        let until = Instant::now() + self.limit;
        let known = Span::new(span.from(), known_to.clamp(span.from(), span.to()));
        let statement = self.about(Stream::Rollups).reports(known, column.max(MINUTE));
        let reports: Vec<KeyedCount> = self.rows(statement, until).await?;
        let events: Vec<KeyedCount> = self
            .rows(self.about(Stream::Events).counts(span, column), until)
            .await?;
        let lost = self.about(Stream::Losses).losses(span, column);
        let losses: Vec<KeyedCount> = self.rows(lost, until).await?;
        let mut tally = RateTally::new(span, column, known_to);
        for count in &reports {
            tally.add_reports(count.key, count.amount);
        }
        for count in &events {
            tally.add_events(count.key, count.amount);
            if let Some(kind) = Kind::from_name(&count.kind) {
                tally.add_kind(kind, count.amount);
            }
        }
        for count in &losses {
            tally.add_lost(count.key, count.amount);
        }
        Ok(tally.finish())
    }
}

impl FlowLine {
    /// Converts the line, or returns `None` if the text is not a flow.
    fn span(self) -> Option<FlowSpan> {
        Some(FlowSpan {
            flow: flow(&self.flow)?,
            sum: self.sums.span(),
            path: self.path,
            basis: basis(&self.basis),
        })
    }
}

impl SeriesLine {
    /// Returns the series and its sums, or `None` for an unknown metric of a newer version.
    fn series(self) -> Option<(SeriesKey, SpanSum)> {
        let key = SeriesKey {
            metric: Metric::from_name(&self.metric)? as u8,
            node: self.node,
            interface: present(self.interface),
            queue: queue(self.queue),
        };
        Some((key, self.sums.span()))
    }
}
