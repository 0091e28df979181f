//! What the API answers about the past: from the store of this process, or in a console from ClickHouse. A back end gives rows; the API
//! makes its responses of them.

use std::{fmt, pin::Pin, sync::Arc};

use collector::event::{Drop, Rollup};
use store::{
    EventFilter, EventRow, FlowFilter, FlowHistory, FlowSelector, FlowSpans, Heat, HeatFilter, Losses,
    NodeSpans, PassageRow, PathChanges, PathSpan, PathUses, QueueFilter, RateSpan, RecordingRow,
    RollupFilter, Span, Traffic, TrafficQuestion,
};
use tokio::sync::OwnedSemaphorePermit;
use wire::FlowKey;

use crate::{
    alerts::{Hearer, RuleEvent},
    sql::{Failure, QueryFailure, Request},
};

/// A place among the questions that are answered at the same time: held until the question is answered, even if nobody waits for it.
pub type Place = Arc<OwnedSemaphorePermit>;

/// A span of time, flows, and a maximum number of rows.
pub type PathQuestion = (Span, FlowSelector, usize);

/// An answer that is being made. When it is no longer awaited, the question ends.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// Answers questions about the past. Each answer is bounded in rows, bytes and time.
pub trait History: fmt::Debug + Send + Sync {
    /// Events, newest first.
    fn events(&self, question: EventQuestion, place: Place) -> Answer<'_, FoundEvents>;

    /// Events of rules, newest first, each with those who say so.
    fn rule_events(&self, question: EventQuestion, place: Place) -> Answer<'_, Vec<RuleEvent>> {
        let events = self.events(question, place);
        Box::pin(async move {
            let rows = events.await?.rows.into_iter();
            Ok(rows
                .map(|row| RuleEvent {
                    row,
                    by: vec![Hearer::default()],
                })
                .collect())
        })
    }

    /// Rollups in ascending order of time: the latest that match.
    fn rollups(&self, filter: RollupFilter, place: Place) -> Answer<'_, Vec<Rollup>>;

    /// A flow's latencies and paths over time.
    fn flow(&self, question: FlowQuestion, place: Place) -> Answer<'_, FlowHistory>;

    /// How full queues were over time.
    fn heat(&self, filter: HeatFilter, place: Place) -> Answer<'_, Heat>;

    /// What the flight recorder recorded, newest first.
    fn recordings(&self, question: RecordingQuestion, place: Place) -> Answer<'_, Vec<RecordingRow>> {
        let (_, _) = (question, place);
        let message =
            "recordings are only in the store of a collector; ask the one that receives the node's reports";
        Box::pin(std::future::ready(Err(Failure::Query(QueryFailure::from(
            message.to_owned(),
        )))))
    }

    /// What is known of one queue.
    fn queue(&self, question: QueueQuestion, place: Place) -> Answer<'_, QueueRecords>;

    /// Flows of a span of time, also those that have expired.
    fn flows(&self, question: FlowsQuestion, place: Place) -> Answer<'_, FlowSpans>;

    /// Nodes, queues and links in a span of time.
    fn nodes(&self, span: Span, place: Place) -> Answer<'_, NodeSpans>;

    /// The paths of a span of time, the most used first, and whether it has more flows than are considered.
    fn paths(&self, span: Span, place: Place) -> Answer<'_, (Vec<PathSpan>, bool)>;

    /// The changes of paths in a span of time; at most so many one by one, and as many together.
    fn path_changes(&self, question: PathQuestion, place: Place) -> Answer<'_, PathChanges>;

    /// Which paths flows used in a span of time; at most so many.
    fn path_uses(&self, question: PathQuestion, place: Place) -> Answer<'_, PathUses>;

    /// What was lost in a span of time. With a time, each report is stored, and those received until then are counted.
    fn losses(&self, question: (Span, Option<u64>), place: Place) -> Answer<'_, Losses>;

    /// The interfaces at the ends of links, as far as the past has them; a collector knows those of now.
    /// Also whether there is more than is considered.
    fn ends(&self, span: Span, place: Place) -> Answer<'_, (Vec<LinkEnds>, bool)> {
        let (_, _) = (span, place);
        Box::pin(std::future::ready(Ok((Vec::new(), false))))
    }

    /// Counts over time, in parts of so many ns; reports before this time alone.
    fn rates(&self, parts: (Span, u64, u64), place: Place) -> Answer<'_, RateSpan>;

    /// Values over time, by groups.
    fn traffic(&self, question: Arc<TrafficQuestion>, place: Place) -> Answer<'_, Traffic>;

    /// SQL of a user, which can only read. The answer is [`crate::sql::Rows`] as JSON.
    fn query(&self, request: Request) -> Answer<'_, Vec<u8>>;

    /// Frees what is not in use. Called about once a minute.
    fn tidy(&self);
}

/// A question about events.
#[derive(Clone, Debug)]
pub struct EventQuestion {
    /// Which, and how many.
    pub filter: EventFilter,
    /// Only those that it matches.
    pub condition: Option<Arc<filter::Filter>>,
}

/// Events that were found.
#[derive(Clone, Debug)]
pub struct FoundEvents {
    /// Newest first.
    pub rows: Vec<EventRow>,
    /// Events before this time were not looked at, although more are wanted.
    pub stopped: Option<u64>,
}

/// A question about the flows of a span of time.
#[derive(Clone, Debug)]
pub struct FlowsQuestion {
    /// Which, and how many.
    pub filter: FlowFilter,
    /// Only those that it matches.
    pub condition: Option<Arc<filter::Filter>>,
}

/// A question about recordings.
#[derive(Clone, Copy, Debug)]
pub struct RecordingQuestion {
    /// Of this time.
    pub span: (u64, u64),
    /// Of this node.
    pub node: Option<u32>,
    /// At most so many: the latest.
    pub limit: usize,
}

/// A question about one queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueQuestion {
    /// The queue, the time, and the maximum number of reports.
    pub queue: QueueFilter,
    /// At most so many recordings: the latest.
    pub recordings: usize,
    /// At most so many drops, and as many changes: the latest.
    pub events: usize,
}

/// What is known of one queue.
#[derive(Clone, Debug)]
pub struct QueueRecords {
    /// Why reports were recorded.
    pub recordings: Vec<RecordingRow>,
    /// The recordings of all subjects: since, until, and of how many reports one was stored.
    pub windows: Vec<(u64, u64, u64)>,
    /// The packets of its reports, in order of time.
    pub passages: Vec<PassageRow>,
    /// Whether there are more.
    pub truncated: bool,
    /// Dropped packets at its node.
    pub drops: Vec<Drop>,
    /// Without packets: changes of hop latencies at its node.
    pub changes: Vec<EventRow>,
    /// Set in a console.
    pub exported: Option<Exported>,
}

/// In a console: what there is of a queue.
#[derive(Clone, Debug)]
pub struct Exported {
    /// Collectors that heard the node in this time.
    pub collectors: Vec<String>,
    /// Whether there are more of them.
    pub more: bool,
    /// Whether hops are exported. Then the packets are those of these hops, and their values are in nanoseconds.
    pub hops: bool,
}

/// The interfaces at the ends of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkEnds {
    /// The sending node.
    pub from: u32,
    /// The receiving node.
    pub to: u32,
    /// The interface of the sending one.
    pub egress_if: Option<u32>,
    /// The interface of the receiving one.
    pub ingress_if: Option<u32>,
}

/// A question about one flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowQuestion {
    /// The flow.
    pub flow: FlowKey,
    /// At or after.
    pub from: Option<u64>,
    /// At or before.
    pub to: Option<u64>,
    /// At most so many points: the latest.
    pub limit: usize,
}
