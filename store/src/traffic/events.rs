//! Counts events row by row, for files without blocks or with a damaged block, and for filters that may change at every value.
//! A column's rows are first grouped by their stored values, so that filters and group lookups run once per distinct event.

use std::collections::HashMap;

use collector::event::Kind;
use detect::Metric;
use rusqlite::Row;

use super::names::Names;
use super::{Budget, ColumnReader, ColumnSpan, EventGroup, EventParts, MAX_CACHED, Read, Tally};
use crate::intern::parse_path;
use crate::rows::{int, kinds};
use crate::schema::Features;
use crate::spans::SpanSum;
use crate::summary::ABSENT;

/// Cost of reading an event row, relative to counting an event in a block.
pub(super) const ROW_COST: usize = 16;

/// Reader of the event rows in one file.
pub(super) struct EventReader<'a> {
    names: Names<'a>,
    parts: EventParts,
    sql: String,
    /// Event kinds by their ID in this file.
    kinds: HashMap<i64, Kind>,
    /// Cache of the tally's numbers.
    numbers: HashMap<RawEvent, u32>,
}

/// The needed parts of an event as stored; 0 or [`ABSENT`] for an absent part.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct RawEvent {
    kind: i64,
    metric: i64,
    flow: i64,
    path: i64,
    node: i64,
    interface: i64,
    queue: i64,
    rule: i64,
    reason: i64,
    value: Option<i64>,
    /// First flow latency (ns) and first hop latencies (text) of a new flow.
    first: Option<(Option<i64>, Option<String>)>,
}

impl<'a> EventReader<'a> {
    pub(super) fn new(names: Names<'a>, features: Features, parts: EventParts) -> rusqlite::Result<Self> {
        let kinds = kinds(names.conn)?;
        let sql = select_sql(parts, features.first_values);
        Ok(Self {
            names,
            parts,
            sql,
            kinds,
            numbers: HashMap::new(),
        })
    }

    /// Returns the tally's number of an event: resolves its IDs and applies the filter, or takes it from the cache.
    fn number(&mut self, event: RawEvent, tally: &mut dyn Tally) -> rusqlite::Result<u32> {
        if let Some(number) = self.numbers.get(&event) {
            return Ok(*number);
        }
        let first = event.first.as_ref().map(|(flow, hops)| {
            let hops = hops.as_deref().filter(|text| !text.is_empty());
            (flow.map(unsigned), hops.map(parse_path).unwrap_or_default())
        });
        let metric = usize::try_from(event.metric).ok();
        let group = EventGroup {
            kind: self.kinds.get(&event.kind).copied(),
            metric: metric.and_then(|metric| Metric::ALL.get(metric).copied()),
            flow: self.names.flow(event.flow)?,
            path: self.names.path(event.path)?.to_vec(),
            node: u32::try_from(event.node).ok(),
            interface: u32::try_from(event.interface).ok(),
            queue: u8::try_from(event.queue).ok(),
            rule: self.names.rule(event.rule)?,
            reason: u8::try_from(event.reason).ok(),
            value: event.value.map(unsigned),
            first,
        };
        let number = tally.event(&group);
        if self.numbers.len() < MAX_CACHED {
            self.numbers.insert(event, number);
        }
        Ok(number)
    }
}

impl ColumnReader for EventReader<'_> {
    fn column(
        &mut self,
        column: ColumnSpan,
        budget: &mut Budget,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<Read> {
        let mut counts: HashMap<RawEvent, u64> = HashMap::new();
        let mut is_complete = true;
        let mut select = self.names.conn.prepare_cached(&self.sql)?;
        let mut rows = select.query([int(column.from), int(column.to)])?;
        while let Some(row) = rows.next()? {
            *counts.entry(read_raw(row, self.parts)?).or_default() += 1;
            if !budget.spend(ROW_COST) {
                is_complete = false;
                break;
            }
        }
        drop(rows);
        for (event, count) in counts {
            let number = self.number(event, tally)?;
            tally.seen(column.index);
            tally.add(number, column.index, &SpanSum::counted(count));
        }
        Ok(Read::from_whole(is_complete))
    }
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Returns the query for the needed parts of events, with NULL for other columns.
fn select_sql(parts: EventParts, has_first_values: bool) -> String {
    let has_first = parts.values && has_first_values;
    let columns = [
        ("e.kind", true),
        ("e.metric", parts.metric || parts.values),
        ("e.flow", parts.flow),
        ("e.path", parts.path),
        ("e.node", parts.location),
        ("e.interface", parts.location),
        ("e.queue", parts.location),
        ("e.rule", parts.cause),
        ("e.reason", parts.cause),
        ("e.value", parts.values),
        ("x.seq", has_first),
        ("x.flow_latency", has_first),
        ("x.hop_latencies", has_first),
    ]
    .map(|(name, is_needed)| if is_needed { name } else { "NULL" });
    let first = if has_first {
        "LEFT JOIN f0.first_data x ON x.ts = e.ts AND x.seq = e.seq"
    } else {
        ""
    };
    format!(
        "SELECT {} FROM f0.event_data e {first} WHERE e.ts >= ?1 AND e.ts < ?2",
        columns.join(", ")
    )
}

/// Reads the needed parts of a row. Parts that are not needed stay equal, so that they do not split groups.
fn read_raw(row: &Row<'_>, parts: EventParts) -> rusqlite::Result<RawEvent> {
    let kind = if parts.any_kind { ABSENT } else { row.get(0)? };
    let mut event = RawEvent {
        kind,
        metric: ABSENT,
        node: ABSENT,
        interface: ABSENT,
        queue: ABSENT,
        reason: ABSENT,
        ..RawEvent::default()
    };
    if parts.metric || parts.values {
        event.metric = number_or(row, 1, ABSENT)?;
    }
    if parts.flow {
        event.flow = number_or(row, 2, 0)?;
    }
    if parts.path {
        event.path = number_or(row, 3, 0)?;
    }
    if parts.location {
        event.node = number_or(row, 4, ABSENT)?;
        event.interface = number_or(row, 5, ABSENT)?;
        event.queue = number_or(row, 6, ABSENT)?;
    }
    if parts.cause {
        event.rule = number_or(row, 7, 0)?;
        event.reason = number_or(row, 8, ABSENT)?;
    }
    if parts.values {
        event.value = row.get(9)?;
        if row.get::<_, Option<i64>>(10)?.is_some() {
            event.first = Some((row.get(11)?, row.get(12)?));
        }
    }
    Ok(event)
}

fn number_or(row: &Row<'_>, i: usize, none: i64) -> rusqlite::Result<i64> {
    Ok(row.get::<_, Option<i64>>(i)?.unwrap_or(none))
}
