//! Events one by one: of files without blocks, or with one that cannot be read, and where each value is asked for.

use std::collections::HashMap;

use collector::event::{Kind, Nanos};
use detect::Metric;
use rusqlite::Row;

use super::names::Names;
use super::{Budget, ColumnReader, EventGroup, EventParts, MOST_KNOWN, NO_VALUES, Read, Tally};
use crate::intern::parse_path;
use crate::rows::kinds;
use crate::schema::Features;
use crate::spans::SpanSum;
use crate::summary::NOTHING;
use crate::taken::int;

/// Reads the events of one file.
pub(super) struct EventReader<'a> {
    names: Names<'a>,
    parts: EventParts,
    sql: String,
    kinds: HashMap<i64, Kind>,
    numbers: HashMap<RawEvent, u32>,
}

/// What was asked of an event, as it is stored; 0 or `NOTHING`: nothing.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct RawEvent {
    kind: i64,
    metric: i64,
    flow: i64,
    path: i64,
    place: [i64; 3],
    rule: i64,
    reason: i64,
    value: Option<i64>,
    first: Option<(Option<i64>, Option<String>)>,
}

impl<'a> EventReader<'a> {
    pub(super) fn new(names: Names<'a>, features: Features, parts: EventParts) -> rusqlite::Result<Self> {
        let kinds = kinds(names.conn)?;
        let sql = sql_of(parts, features.first_values);
        Ok(Self {
            names,
            parts,
            sql,
            kinds,
            numbers: HashMap::new(),
        })
    }

    fn number(&mut self, event: RawEvent, tally: &mut dyn Tally) -> rusqlite::Result<u32> {
        if let Some(number) = self.numbers.get(&event) {
            return Ok(*number);
        }
        let [node, interface, queue] = event.place;
        let number = |value: i64| u32::try_from(value).ok();
        let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
        let latencies = |text: &str| {
            if text.is_empty() {
                Vec::new()
            } else {
                parse_path(text)
            }
        };
        let first = event.first.as_ref().map(|(flow, hops)| {
            (
                flow.map(unsigned),
                hops.as_deref().map(latencies).unwrap_or_default(),
            )
        });
        let group = EventGroup {
            kind: self.kinds.get(&event.kind).copied(),
            metric: usize::try_from(event.metric)
                .ok()
                .and_then(|metric| Metric::ALL.get(metric).copied()),
            flow: self.names.flow(event.flow)?,
            path: self.names.path(event.path)?.to_vec(),
            node: number(node),
            interface: number(interface),
            queue: u8::try_from(queue).ok(),
            rule: self.names.rule(event.rule)?,
            reason: u8::try_from(event.reason).ok(),
            value: event.value.map(unsigned),
            first,
        };
        let number = tally.event(&group);
        if self.numbers.len() < MOST_KNOWN {
            self.numbers.insert(event, number);
        }
        Ok(number)
    }
}

impl ColumnReader for EventReader<'_> {
    fn column(
        &mut self,
        (column, from, to): (usize, Nanos, Nanos),
        budget: &mut Budget,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<Read> {
        let mut counts: HashMap<RawEvent, u64> = HashMap::new();
        let (mut select, mut whole) = (self.names.conn.prepare_cached(&self.sql)?, true);
        let mut rows = select.query([int(from), int(to)])?;
        while let Some(row) = rows.next()? {
            *counts.entry(raw(row, self.parts)?).or_default() += 1;
            if !budget.spend(COST) {
                whole = false;
                break;
            }
        }
        drop(rows);
        for (event, count) in counts {
            let number = self.number(event, tally)?;
            tally.seen(column);
            tally.add(number, column, &SpanSum { count, ..NO_VALUES });
        }
        Ok(Read::of(whole))
    }
}

/// What is asked of events; 11 columns, of which those that are not asked are null.
fn sql_of(parts: EventParts, has_first_values: bool) -> String {
    let column = |name: &'static str, is_asked: bool| if is_asked { name } else { "NULL" };
    let has_first = parts.values && has_first_values;
    let columns = [
        "e.kind",
        column("e.metric", parts.metric || parts.values),
        column("e.flow", parts.flow),
        column("e.path", parts.path),
        column("e.node", parts.place),
        column("e.interface", parts.place),
        column("e.queue", parts.place),
        column("e.rule", parts.cause),
        column("e.reason", parts.cause),
        column("e.value", parts.values),
        column("x.seq", has_first),
        column("x.flow_latency", has_first),
        column("x.hop_latencies", has_first),
    ];
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

fn raw(row: &Row<'_>, parts: EventParts) -> rusqlite::Result<RawEvent> {
    let part = |i: usize, none: i64| row.get::<_, Option<i64>>(i).map(|part| part.unwrap_or(none));
    let kind = if parts.any_kind { NOTHING } else { row.get(0)? };
    let mut event = RawEvent {
        kind,
        metric: NOTHING,
        reason: NOTHING,
        ..RawEvent::default()
    };
    event.place = [NOTHING; 3];
    if parts.metric || parts.values {
        event.metric = part(1, NOTHING)?;
    }
    if parts.flow {
        event.flow = part(2, 0)?;
    }
    if parts.path {
        event.path = part(3, 0)?;
    }
    if parts.place {
        event.place = [part(4, NOTHING)?, part(5, NOTHING)?, part(6, NOTHING)?];
    }
    if parts.cause {
        (event.rule, event.reason) = (part(7, 0)?, part(8, NOTHING)?);
    }
    if parts.values {
        event.value = row.get(9)?;
        if row.get::<_, Option<i64>>(10)?.is_some() {
            event.first = Some((row.get(11)?, row.get(12)?));
        }
    }
    Ok(event)
}

/// What reading an event costs, compared with counting one of a block.
pub(super) const COST: usize = 16;
