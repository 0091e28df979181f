//! Filters and result rows of the typed queries ([`crate::Reader::events`] and others), and the conversion of SQLite rows into
//! records.
//!
//! Conversions tolerate damage: an out-of-range number is read as absent, so that one bad row does not hide the others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use collector::event::{Basis, Drop, Event, FirstValues, FlowRow, Kind, Loss, Nanos, Rollup};
use detect::Metric;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use wire::FlowKey;

/// Returns the maximum latency, ignoring unavailable ones (`u32::MAX`).
pub(crate) fn greatest(latencies: &[u32]) -> Option<u64> {
    latencies
        .iter()
        .filter(|latency| **latency != u32::MAX)
        .max()
        .map(|latency| u64::from(*latency))
}

/// Sort position of an event; answers are in descending order. Events with equal time and ID are the same event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EventRank {
    /// Time of the event, ns since 1970.
    pub ts: Nanos,
    /// The id of the event.
    pub id: u64,
}

impl EventRank {
    /// Returns the rank of an event.
    pub fn of_event(event: &Event) -> Self {
        Self {
            ts: event.ts,
            id: event.id,
        }
    }
}

/// Selects events. An absent condition matches everything.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EventFilter {
    /// Events at or after this time.
    pub from: Option<Nanos>,
    /// Events strictly before this time.
    pub before: Option<Nanos>,
    /// Events that follow this position: pass the rank of the last row to get the next page.
    pub after: Option<EventRank>,
    /// Events of this kind.
    pub kind: Option<Kind>,
    /// Events about this node.
    pub node: Option<u32>,
    /// Events about this metric.
    pub metric: Option<Metric>,
    /// Events about this flow.
    pub flow: Option<FlowKey>,
    /// Maximum number of events.
    pub limit: usize,
}

impl Default for EventFilter {
    /// Selects the latest 200 events.
    fn default() -> Self {
        Self {
            from: None,
            before: None,
            after: None,
            kind: None,
            node: None,
            metric: None,
            flow: None,
            limit: 200,
        }
    }
}

/// A stored event with its resolved names.
#[derive(Clone, PartialEq, Debug)]
pub struct EventRow {
    /// The event. Its `rule` is `None`, because an index is valid only in the rule set that was active.
    pub event: Event,
    /// The name of the rule that reported the event.
    pub rule: Option<String>,
    /// The path in forwarding order (`u32::MAX` = unavailable); empty if the event has none.
    pub path: Vec<u32>,
    /// The flow's first values, for a new path.
    pub first: Option<FirstRow>,
}

/// Stored first values of a flow; see [`FirstValues`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FirstRow {
    /// The flow's latency, ns.
    pub flow_latency: Option<u64>,
    /// The source of the flow latency.
    pub basis: Basis,
    /// Hop latencies, ns, in the order of the path; `u32::MAX` = unavailable.
    pub hop_latencies: Vec<u32>,
}

impl FirstRow {
    /// Returns the values as the collector's type.
    pub fn values(&self) -> FirstValues<'_> {
        FirstValues {
            flow_latency: self.flow_latency,
            basis: self.basis,
            hop_latencies: &self.hop_latencies,
        }
    }
}

/// Selects rollups. An absent condition matches everything.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RollupFilter {
    /// Intervals that start at or after this time.
    pub from: Option<Nanos>,
    /// Intervals that start at or before this time.
    pub to: Option<Nanos>,
    /// Rollups of this metric.
    pub metric: Option<Metric>,
    /// Rollups of this node.
    pub node: Option<u32>,
    /// Rollups of this queue.
    pub queue: Option<u8>,
    /// Rollups of this egress interface.
    pub interface: Option<u32>,
    /// Rollups of this flow.
    pub flow: Option<FlowKey>,
    /// Intervals of this length, seconds.
    pub interval: Option<u32>,
    /// Maximum number of rollups: the latest, in ascending order of time.
    pub limit: usize,
}

impl Default for RollupFilter {
    /// Selects the latest 10,000 rollups.
    fn default() -> Self {
        Self {
            from: None,
            to: None,
            metric: None,
            node: None,
            queue: None,
            interface: None,
            flow: None,
            interval: None,
            limit: 10_000,
        }
    }
}

/// Selects drops or losses. An absent condition matches everything.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RecordFilter {
    /// Records at or after this time.
    pub from: Option<Nanos>,
    /// Records strictly before this time.
    pub before: Option<Nanos>,
    /// Records about this node.
    pub node: Option<u32>,
    /// Records about this flow (drops only).
    pub flow: Option<FlowKey>,
    /// Maximum number of records: the latest, newest first.
    pub limit: usize,
}

impl Default for RecordFilter {
    /// Selects the latest 200 records.
    fn default() -> Self {
        Self {
            from: None,
            before: None,
            node: None,
            flow: None,
            limit: 200,
        }
    }
}

/// The latest state of a flow.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowState {
    /// The flow's latency, times and number of reports.
    pub row: FlowRow,
    /// The nodes in forwarding order (`u32::MAX` = unavailable).
    pub path: Vec<u32>,
}

/// A flow over time.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct FlowHistory {
    /// The values before the series: those that held when it began.
    pub before: Option<FlowPoint>,
    /// Latencies, in ascending order of time.
    pub series: Vec<FlowPoint>,
    /// The flow's paths with their start times, in ascending order of time. If the start of the first one is not stored, its
    /// time is that of the first stored event that showed it.
    pub paths: Vec<(Nanos, Vec<u32>)>,
    /// Largest threshold of the hop latency changes, ns: an unreported latency may differ from the series by up to this. 0 if
    /// no hop latency changed.
    pub threshold: u64,
    /// True if there were more points than requested; the oldest are missing.
    pub truncated: bool,
}

/// A flow's latencies at one time. Values that were not reported at this time are carried forward.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct FlowPoint {
    /// Time of the point, ns since 1970.
    pub ts: Nanos,
    /// Time from the first node's ingress to the last node's egress, ns.
    pub flow_latency: Option<u64>,
    /// The basis (measurement method) of `flow_latency`.
    pub basis: Basis,
    /// Hop latencies as `(node, ns)`, in path order.
    pub hops: Vec<(u32, u64)>,
}

/// Totals over all files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// The number of files of the store.
    pub files: u64,
    /// Size of the files and their WALs, bytes.
    pub bytes: u64,
    /// Time of the oldest record.
    pub from: Option<Nanos>,
    /// Time of the newest record.
    pub to: Option<Nanos>,
    /// The number of stored events.
    pub events: u64,
    /// The number of stored rollups.
    pub rollups: u64,
    /// Number of flows, counted once per file.
    pub flows: u64,
    /// Number of drop reports.
    pub drops: u64,
    /// Number of loss records.
    pub losses: u64,
}

/// Returns the basis with this name, or the default for an unknown name of a newer version. Files of version 0.1.0 say `stamps`
/// for `timestamps`.
pub(crate) fn basis_named(name: &str) -> Basis {
    let name = if name == "stamps" { "timestamps" } else { name };
    Basis::ALL
        .into_iter()
        .find(|basis| basis.name() == name)
        .unwrap_or_default()
}

/// The fields of an event that a reader resolves from IDs or names.
pub(crate) struct EventNames {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    pub(crate) metric: Option<Metric>,
    pub(crate) flow: Option<FlowKey>,
    pub(crate) basis: Basis,
}

/// Reads an event. From `column` on, the columns are time, kind, metric, …, reason.
pub(crate) fn event_at(row: &Row<'_>, column: usize, names: EventNames) -> rusqlite::Result<Event> {
    let EventNames {
        id,
        kind,
        metric,
        flow,
        basis,
    } = names;
    Ok(Event {
        ts: unsigned(row, column)?,
        id,
        kind,
        metric,
        flow,
        node: optional(row, column + 3)?,
        interface: optional(row, column + 4)?,
        queue: optional(row, column + 5)?,
        value: optional(row, column + 6)?,
        previous: optional(row, column + 7)?,
        threshold: optional(row, column + 8)?,
        rule: None,
        reason: optional(row, column + 9)?,
        basis,
    })
}

/// Reads a rollup. From `column` on, the columns are start, interval, metric, …, p99.
pub(crate) fn rollup_at(
    row: &Row<'_>,
    column: usize,
    flow: Option<FlowKey>,
    metric: Option<Metric>,
) -> rusqlite::Result<Rollup> {
    Ok(Rollup {
        flow,
        ts: unsigned(row, column)?,
        interval: optional(row, column + 1)?.unwrap_or(0),
        // A newer version may have stored an unknown metric.
        metric: metric.unwrap_or(Metric::FlowPath),
        node: optional(row, column + 3)?,
        interface: optional(row, column + 4)?,
        queue: optional(row, column + 5)?,
        count: unsigned(row, column + 6)?,
        min: unsigned(row, column + 7)?,
        max: unsigned(row, column + 8)?,
        sum: unsigned(row, column + 9)?,
        p50: optional(row, column + 10)?,
        p99: optional(row, column + 11)?,
    })
}

/// Reads a drop report. From `column` on, the columns are time, ID, node, …, reason.
pub(crate) fn drop_at(
    row: &Row<'_>,
    column: usize,
    [flow, tunnel]: [Option<FlowKey>; 2],
    id: u64,
) -> rusqlite::Result<Drop> {
    Ok(Drop {
        flow,
        tunnel,
        ts: unsigned(row, column)?,
        id,
        node: optional(row, column + 2)?,
        ingress_if: optional(row, column + 3)?,
        egress_if: optional(row, column + 4)?,
        queue: optional(row, column + 5)?,
        reason: optional(row, column + 6)?,
    })
}

/// Reads a flow's state. From `column` on, the columns are latency, basis, first and last time, and reports.
pub(crate) fn flow_at(
    row: &Row<'_>,
    column: usize,
    flow: Option<FlowKey>,
    basis: Basis,
) -> rusqlite::Result<FlowRow> {
    Ok(FlowRow {
        flow: flow.unwrap_or_default(),
        flow_latency: optional(row, column)?,
        basis,
        first_seen: unsigned(row, column + 2)?,
        last_seen: unsigned(row, column + 3)?,
        reports: unsigned(row, column + 4)?,
    })
}

/// Reads a loss record. The columns are time, node, source, …, number of duplicates.
pub(crate) fn loss(row: &Row<'_>) -> rusqlite::Result<Loss> {
    Ok(Loss {
        ts: unsigned(row, 0)?,
        node: optional(row, 1)?,
        source: parse_address(&text(row, 2)?.unwrap_or_default()),
        hw_id: optional(row, 3)?.unwrap_or(0),
        lost: unsigned(row, 4)?,
        reordered: unsigned(row, 5)?,
        duplicated: unsigned(row, 6)?,
    })
}

/// Returns the kind with this name, or the most general one for an unknown name of a newer version.
pub(crate) fn kind_named(name: &str) -> Kind {
    Kind::ALL
        .into_iter()
        .find(|kind| kind.name() == name)
        .unwrap_or(Kind::Latest)
}

/// Reads the event kinds by their IDs in the file that is attached as `f0`.
pub(crate) fn kinds(conn: &Connection) -> rusqlite::Result<HashMap<i64, Kind>> {
    let mut kinds = HashMap::new();
    let mut select = conn.prepare_cached("SELECT id, kind FROM f0.kind_name")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        kinds.insert(row.get(0)?, kind_named(row.get_ref(1)?.as_str()?));
    }
    Ok(kinds)
}

/// Parses a stored address into 16 bytes, with IPv4 mapped into IPv6. An invalid address becomes `::ffff:0.0.0.0`.
fn parse_address(text: &str) -> [u8; 16] {
    match text.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)) {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Converts to SQLite's signed integers, clamped to the maximum.
#[inline]
pub(crate) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Reads a non-negative number. A missing or damaged one is read as 0.
pub(crate) fn unsigned(row: &Row<'_>, i: usize) -> rusqlite::Result<u64> {
    Ok(optional(row, i)?.unwrap_or(0))
}

/// Reads an optional number. One that is out of range was damaged and counts as absent, so that it does not make other rows
/// unreadable.
pub(crate) fn optional<T: TryFrom<i64>>(row: &Row<'_>, i: usize) -> rusqlite::Result<Option<T>> {
    Ok(match row.get_ref(i)? {
        ValueRef::Integer(number) => T::try_from(number).ok(),
        _ => None,
    })
}

/// Reads an optional text.
pub(crate) fn text(row: &Row<'_>, i: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(i)? {
        ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_basis_is_read_by_its_name_also_by_that_of_earlier_files() {
        assert_eq!(Basis::ALL.map(|basis| basis_named(basis.name())), Basis::ALL);
        assert_eq!(basis_named("stamps"), Basis::Timestamps);
    }
}
