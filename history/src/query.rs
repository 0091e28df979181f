//! The trait [`History`] with its queries and results. A back end returns rows; the API builds responses from them.

use std::{fmt, pin::Pin, sync::Arc};

use collector::{
    Kind, Location,
    event::{Drop, Rollup},
};
use detect::Metric;
use serde::Deserialize;
use store::{
    EventFilter, EventRank, EventRow, FlowFilter, FlowHistory, FlowSelector, FlowSpans, Heat, HeatFilter,
    Losses, NodeSpans, PassageRow, PathChanges, PathSpans, PathUses, QueueFilter, RateSpan, RecordingRow,
    RecordingWindow, RollupFilter, Span, Traffic, TrafficQuery,
};
use tokio::sync::OwnedSemaphorePermit;
use wire::FlowKey;

use crate::{
    alerts::{AlertSource, RuleEvent},
    sql::{Failure, QueryFailure, Request},
};

/// Permit to run one query, which bounds concurrency. It is held until the query ends, even if nobody waits for the result any
/// more.
pub type Permit = Arc<OwnedSemaphorePermit>;

/// A pending result. Dropping it ends the query.
pub type ResponseFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// A back end for history queries. Each result is bounded in rows, bytes and time.
pub trait History: fmt::Debug + Send + Sync {
    /// Returns events, newest first.
    fn events(&self, query: EventQuery, permit: Permit) -> ResponseFuture<'_, FoundEvents>;

    /// Returns rule events, newest first, each with the collectors that stored it.
    fn rule_events(&self, query: EventQuery, permit: Permit) -> ResponseFuture<'_, Vec<RuleEvent>> {
        let events = self.events(query, permit);
        Box::pin(async move {
            let rows = events.await?.rows.into_iter();
            Ok(rows
                .map(|row| RuleEvent {
                    row,
                    sources: vec![AlertSource::default()],
                })
                .collect())
        })
    }

    /// Returns the latest rollups that match, in ascending order of time.
    fn rollups(&self, filter: RollupFilter, permit: Permit) -> ResponseFuture<'_, Vec<Rollup>>;

    /// Returns a flow's latencies and paths over time.
    fn flow(&self, query: FlowQuery, permit: Permit) -> ResponseFuture<'_, FlowHistory>;

    /// Returns the occupancy of queues, or another metric, over time.
    fn heat(&self, filter: HeatFilter, permit: Permit) -> ResponseFuture<'_, Heat>;

    /// Returns recordings of the flight recorder, newest first.
    fn recordings(&self, _: RecordingQuery, _: Permit) -> ResponseFuture<'_, Vec<RecordingRow>> {
        let message =
            "recordings are only in the store of a collector; ask the one that receives the node's reports";
        Box::pin(std::future::ready(Err(Failure::Query(QueryFailure::from(
            message.to_owned(),
        )))))
    }

    /// Returns the records of one queue.
    fn queue(&self, query: QueueQuery, permit: Permit) -> ResponseFuture<'_, QueueRecords>;

    /// Returns the flows of a time span, including expired ones.
    fn flows(&self, query: FlowsQuery, permit: Permit) -> ResponseFuture<'_, FlowSpans>;

    /// Returns the nodes, queues and links of a span of time.
    fn nodes(&self, span: Span, permit: Permit) -> ResponseFuture<'_, NodeSpans>;

    /// Returns the paths of a time span, most used first, and whether there are more flows than the limit.
    fn paths(&self, span: Span, permit: Permit) -> ResponseFuture<'_, PathSpans>;

    /// Returns the path changes in a time span, at most `limit` changes and as many groups.
    fn path_changes(&self, query: PathQuery, permit: Permit) -> ResponseFuture<'_, PathChanges>;

    /// Returns the paths that flows used in a span of time.
    fn path_uses(&self, query: PathQuery, permit: Permit) -> ResponseFuture<'_, PathUses>;

    /// Returns the losses of a span of time.
    fn losses(&self, query: LossQuery, permit: Permit) -> ResponseFuture<'_, Losses>;

    /// Returns the stored interfaces at the ends of links, and whether there are more than the limit. A collector knows the
    /// current ones itself, so the default is an empty list.
    fn ends(&self, _: Span, _: Permit) -> ResponseFuture<'_, (Vec<LinkEnds>, bool)> {
        Box::pin(std::future::ready(Ok((Vec::new(), false))))
    }

    /// Returns counts of reports, events and lost reports over time.
    fn rates(&self, query: RateQuery, permit: Permit) -> ResponseFuture<'_, RateSpan>;

    /// Returns grouped time series.
    fn traffic(&self, query: Arc<TrafficQuery>, permit: Permit) -> ResponseFuture<'_, Traffic>;

    /// Runs a user's read-only SQL. The result is [`crate::sql::Rows`] as JSON.
    fn query(&self, request: Request) -> ResponseFuture<'_, Vec<u8>>;

    /// Frees idle resources. Called about once a minute.
    fn tidy(&self);
}

/// A query about events.
#[derive(Clone, Debug)]
pub struct EventQuery {
    /// The events to return, and their maximum number.
    pub filter: EventFilter,
    /// A filter expression that events must match.
    pub condition: Option<Arc<filter::Filter>>,
}

/// The events that match, and how far the search went.
#[derive(Clone, Debug)]
pub struct FoundEvents {
    /// The events, newest first.
    pub rows: Vec<EventRow>,
    /// If the search ended early, the position of the last event examined.
    pub stopped: Option<EventRank>,
}

/// A query about the flows of a span of time.
#[derive(Clone, Debug)]
pub struct FlowsQuery {
    /// The flows to return, their order, and their maximum number.
    pub filter: FlowFilter,
    /// A filter expression that flows must match.
    pub condition: Option<Arc<filter::Filter>>,
}

/// A query about the paths of flows.
#[derive(Clone, Debug)]
pub struct PathQuery {
    /// The span of time.
    pub span: Span,
    /// The flows whose paths are returned.
    pub flows: FlowSelector,
    /// Maximum number of rows.
    pub limit: usize,
}

/// A query about losses.
#[derive(Clone, Copy, Debug)]
pub struct LossQuery {
    /// The span of time.
    pub span: Span,
    /// If all reports are stored: the receive time (ns since 1970) before which packets are counted per link.
    pub count_until: Option<u64>,
}

/// A query about counts over time.
#[derive(Clone, Copy, Debug)]
pub struct RateQuery {
    /// The span of time.
    pub span: Span,
    /// Length of the columns in which reports and events are counted, ns.
    pub column: u64,
    /// Time before which all reports are stored, ns since 1970; later ones are not counted.
    pub known_to: u64,
}

/// A query about recordings.
#[derive(Clone, Copy, Debug)]
pub struct RecordingQuery {
    /// The beginning and the end, ns since the Unix epoch.
    pub span: (u64, u64),
    /// Only recordings that may be about this.
    pub location: Location,
    /// Maximum number of recordings; the latest are returned.
    pub limit: usize,
}

/// A query about one queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueQuery {
    /// The queue, the time, and the maximum number of reports.
    pub queue: QueueFilter,
    /// Maximum number of recordings; the latest are returned.
    pub recordings: usize,
    /// Maximum number of drops, and of changes; the latest are returned.
    pub events: usize,
}

impl QueueQuery {
    /// Selects the changes of hop latencies at the queue's node.
    pub(crate) fn latency_changes(&self) -> EventFilter {
        EventFilter {
            from: Some(self.queue.from),
            before: Some(self.queue.to),
            kind: Some(Kind::Change),
            metric: Some(Metric::HopLatency),
            node: Some(self.queue.node),
            limit: self.events,
            ..EventFilter::default()
        }
    }
}

/// The records of one queue.
#[derive(Clone, Debug)]
pub struct QueueRecords {
    /// The recordings of its reports, with their reasons.
    pub recordings: Vec<RecordingRow>,
    /// Time ranges of all recordings, whatever their subject, ordered by start.
    pub windows: Vec<RecordingWindow>,
    /// The packets of its reports, in order of time.
    pub passages: Vec<PassageRow>,
    /// True if there are more passages.
    pub truncated: bool,
    /// Dropped packets at its node.
    pub drops: Vec<Drop>,
    /// Hop latency changes at its node; only read if there are no passages.
    pub changes: Vec<EventRow>,
    /// The exported data on which the result is based; set only in a console.
    pub exported: Option<Exported>,
}

/// The exported data of a queue, in a console.
#[derive(Clone, Debug)]
pub struct Exported {
    /// Collectors that received reports of the node in this time.
    pub collectors: Vec<String>,
    /// True if there are more collectors.
    pub more: bool,
    /// True if hops are exported. Passages then come from hops, with values in ns.
    pub hops: bool,
}

/// The interfaces at the ends of a link.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct LinkEnds {
    /// ID of the sending node.
    #[serde(rename = "sender")]
    pub from: u32,
    /// ID of the receiving node.
    #[serde(rename = "receiver")]
    pub to: u32,
    /// Egress interface of the sending node.
    pub egress_if: Option<u32>,
    /// Ingress interface of the receiving node.
    pub ingress_if: Option<u32>,
}

/// A query about one flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowQuery {
    /// The flow whose history is returned.
    pub flow: FlowKey,
    /// Only records at or after this time, ns since the Unix epoch.
    pub from: Option<u64>,
    /// Only records at or before this time, ns since the Unix epoch.
    pub to: Option<u64>,
    /// Maximum number of points; the latest are returned.
    pub limit: usize,
}
