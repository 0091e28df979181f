//! Helpers for the text and the JSON output of a replay.

use std::net::Ipv6Addr;

use collector::event::SequenceEventKind;
use collector::{Collector, StreamId, StreamView};
use wire::Refusal;

use super::Summary;

/// Returns the number of frames and reports refused for this reason: frames by the capture reader, reports by the collector.
pub(super) fn refusal_count(summary: &Summary<'_>, refusal: Refusal, stats: &collector::Stats) -> u64 {
    let frames = summary.account.refused.get(refusal.name()).copied().unwrap_or(0);
    frames + stats.refused[refusal.index()]
}

/// Sorts streams by source and node.
pub(super) fn sorted_streams(streams: impl Iterator<Item = StreamView>) -> Vec<StreamView> {
    let mut streams: Vec<StreamView> = streams.collect();
    streams.sort_by_key(|stream| {
        (
            stream.id.source,
            stream.id.node,
            stream.id.hw_id,
            stream.id.version,
        )
    });
    streams
}

/// Returns the name of a report version: `0.5`, `1.0`, `2.0` or `aggregate`.
pub(super) fn version_text(id: &StreamId) -> &'static str {
    collect_role::monitor::version_name(id.version)
}

/// The sources that left the table because others needed the room, which the list of sources lacks.
pub(super) struct EvictedSources {
    pub(super) count: u64,
    pub(super) lost: u64,
    pub(super) unconfirmed: u64,
}

/// Returns the sources that left the table, if there are any.
pub(super) fn evicted_sources(collector: &Collector) -> Option<EvictedSources> {
    let count = collector.tables().streams.evicted;
    let losses = collector.evicted_losses();
    (count > 0).then_some(EvictedSources {
        count,
        lost: losses.lost,
        unconfirmed: losses.unconfirmed,
    })
}

/// Formats the source address; IPv4-mapped addresses appear as IPv4.
pub(super) fn source_text(id: &StreamId) -> String {
    Ipv6Addr::from(id.source).to_canonical().to_string()
}

/// Anomaly of sequence numbers.
pub(super) struct Anomaly {
    pub(super) name: &'static str,
    /// First sequence number concerned.
    pub(super) first: u32,
    /// Number of sequence numbers.
    pub(super) count: u32,
}

pub(super) fn anomaly(kind: &SequenceEventKind) -> Anomaly {
    let (name, first, count) = match *kind {
        SequenceEventKind::Gap { first, count } => ("gap", first, count),
        SequenceEventKind::Lost { first, count } => ("lost", first, count),
        SequenceEventKind::Late(number) => ("reordered", number, 1),
        SequenceEventKind::Recovered { first, count } => ("recovered", first, count),
        SequenceEventKind::Duplicate(number) => ("duplicate", number, 1),
        SequenceEventKind::Stray(number) => ("stray", number, 1),
        SequenceEventKind::Restart(number) => ("restart", number, 1),
    };
    Anomaly { name, first, count }
}
