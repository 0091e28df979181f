//! Numbers in a file are input like any other: whatever they are, nothing panics, and a row that makes no sense does not keep others
//! from being read.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use collector::event::Stream;
use collector::{Batch, FlowOrder, Kind, Output as _, Rollup};
use detect::Metric;
use rusqlite::Connection;
use store::{
    Columns, Config, EventFilter, EventGroup, EventParts, FlowFilter, FlowSelector, Follower, HeatFilter,
    QueryOptions, Reader, RecordFilter, RollupFilter, SeriesKey, Span, SpanSum, Store, StreamPosition, Tally,
};
use testkit::records::{Dir, SECOND, START, bare, change, drop_report, flow, flow_row, loss, rollup};
use wire::FlowKey;

const FILE: &str = "hopwise-2026-11-21.db";
const MINUTE: u64 = 60 * SECOND;

/// Some records of every kind, with sums of minutes, over an hour.
fn filled(dir: &Dir) {
    let store = Store::open(Config::new(dir.path())).unwrap();
    let mut batch = Batch::with_capacity(4096);
    for minute in 0..70_u64 {
        let ts = START + minute * MINUTE;
        let n = (minute % 5) as u32;
        batch.event(&change(ts, flow(n), 1 + n, 100 * minute), &[]);
        let kind = if minute < 5 { Kind::New } else { Kind::PathChange };
        let event = collector::Event {
            kind,
            metric: Some(Metric::FlowPath),
            flow: Some(flow(n)),
            ..bare(ts + 1)
        };
        batch.event(&event, &[1, 2 + n, 9]);
        batch.rollup(&Rollup {
            interval: 60,
            ..rollup(ts, 1 + n)
        });
        let of_flow = Rollup {
            metric: Metric::FlowLatency,
            flow: Some(flow(n)),
            queue: None,
            node: None,
            ..rollup(ts, 1)
        };
        batch.rollup(&Rollup {
            interval: 60,
            ..of_flow
        });
        batch.flow(&flow_row(flow(n), ts), &[1, 2 + n, 9]);
        batch.drop_report(&drop_report(ts, 1 + n));
        batch.loss(&loss(ts, Some(1 + n)));
    }
    store.submit(batch);
    assert_eq!(store.close().lost(), 0);
}

#[derive(Default)]
struct Numbers(u32);

impl Tally for Numbers {
    fn reset(&mut self) {}
    fn seen(&mut self, _: usize) {}
    fn flow(&mut self, _: &FlowKey, _: &[u32]) -> u32 {
        0
    }
    fn event(&mut self, _: &EventGroup) -> u32 {
        0
    }
    fn series(&mut self, _: &SeriesKey) -> u32 {
        0
    }
    fn add(&mut self, number: u32, _: usize, _: &SpanSum) {
        self.0 = self.0.max(number);
    }
}

/// Asks everything; answers and errors are both fine. Returns the number of events, if they could be read.
fn ask(dir: &Dir) -> Option<usize> {
    let reader = Reader::open(dir.path()).unwrap();
    let from = START;
    let to = START + 3 * 3600 * SECOND;
    let span = Span::new(from, to);
    let _ = reader.rollups(&RollupFilter::default());
    let _ = reader.drops(&RecordFilter::default());
    let _ = reader.losses(&RecordFilter::default());
    let _ = reader.flows(None, 100);
    let _ = reader.history(&flow(1), None, None, 100);
    let _ = reader.totals();
    let order = FlowOrder::Reports;
    let filter = FlowFilter {
        span,
        order,
        text: None,
        id: None,
        after: None,
        limit: 10,
    };
    let _ = reader.flow_spans(&filter);
    let _ = reader.flow_sums(span);
    let _ = reader.path_spans(span);
    let _ = reader.node_spans(span);
    let _ = reader.path_changes(span, &FlowSelector::default(), 10);
    let _ = reader.path_uses(span, &FlowSelector::default(), 10);
    let _ = reader.losses_in(span, Some(u64::MAX));
    let _ = reader.rate_span(span, MINUTE);
    let _ = reader.heat(&HeatFilter {
        metric: Metric::QueueOccupancy,
        from,
        to,
        column: MINUTE,
        interval: 60,
        location: collector::Location::default(),
        limit: 10,
    });
    let columns = Columns::new(from, to, MINUTE);
    let parts = EventParts {
        flow: true,
        path: true,
        location: true,
        metric: true,
        cause: true,
        values: true,
        any_kind: true,
    };
    let _ = reader.flow_traffic(&columns, true, &mut Numbers::default());
    let _ = reader.event_traffic(&columns, parts, &mut Numbers::default());
    let _ = reader.series_traffic(&columns, Metric::QueueOccupancy, &mut Numbers::default());
    for view in ["events", "rollups", "flows", "drops", "losses"] {
        let _ = reader.query(&format!("SELECT * FROM {view}"), &QueryOptions::default());
    }
    let mut follower = Follower::new(dir.path());
    for stream in Stream::ALL {
        let mut at = StreamPosition::default();
        for _ in 0..10 {
            match follower.read(stream, at, None, 1000, 1 << 20) {
                Ok(chunk) if chunk.end != at => at = chunk.end,
                _ => break,
            }
        }
        let _ = (follower.end(stream), follower.since(stream, START));
    }
    reader
        .events(&EventFilter {
            limit: 1000,
            ..EventFilter::default()
        })
        .ok()
        .map(|events| events.len())
}

fn goes_on(dir: &Dir) {
    let store = Store::open(Config::new(dir.path())).unwrap();
    let mut batch = Batch::with_capacity(4096);
    for n in 0..20 {
        let ts = START + 100 * MINUTE + u64::from(n);
        batch.event(&change(ts, flow(n), 1, 5), &[]);
        batch.rollup(&Rollup {
            interval: 60,
            ..rollup(START + 69 * MINUTE, 1 + n % 5)
        });
        batch.flow(&flow_row(flow(n), ts), &[1, 2, 9]);
    }
    let records = batch.len() as u64;
    store.submit(batch);
    let stats = store.close();
    assert_eq!(stats.committed + stats.failed, records, "{stats:?}");
    assert!(
        !stats.message.unwrap_or_default().contains("has died"),
        "the writer panicked"
    );
}

#[test]
fn no_number_in_a_file_makes_anything_panic() {
    let dir = Dir::new("extreme-numbers");
    filled(&dir);
    let good = dir.path().join("good");
    let path = dir.path().join(FILE);
    std::fs::rename(&path, &good).unwrap();
    let columns: Vec<(String, String)> = {
        let conn = Connection::open(&good).unwrap();
        let sql = "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c
                   WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND c.type IN ('INTEGER', '')";
        let mut select = conn.prepare(sql).unwrap();
        select
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap()
    };
    assert!(columns.len() > 80, "{columns:?}");
    let mut failed = Vec::new();
    for (table, column) in &columns {
        for value in ["9223372036854775807", "-9223372036854775808"] {
            std::fs::copy(&good, &path).unwrap();
            let conn = Connection::open(&path).unwrap();
            let sql = format!("UPDATE OR IGNORE {table} SET {column} = {value}");
            conn.execute_batch(&sql).unwrap();
            conn.close().unwrap();
            let asked = std::panic::catch_unwind(|| {
                let events = ask(&dir);
                // The damage of an event leaves the answer as it is.
                assert!(table != "event_data" || events == Some(140), "{events:?}");
                goes_on(&dir);
            });
            if asked.is_err() {
                failed.push(sql);
            }
            for name in dir.names() {
                if name != "good" {
                    std::fs::remove_file(dir.path().join(name)).unwrap();
                }
            }
        }
    }
    assert_eq!(failed, [] as [String; 0]);
}
