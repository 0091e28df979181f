//! Limits of how much is read.

use collector::{Batch, Event, Kind, Output as _, Rollup};
use testkit::records::{Dir, START, bare, flow};

use super::*;
use crate::{Config, Store};

#[test]
fn more_parts_of_time_than_there_is_room_for_are_left_out_and_said() {
    let dir = Dir::new("most-parts");
    let store = Store::open(Config::new(dir.path())).unwrap();
    let mut batch = Batch::with_capacity(16);
    let (metric, node, interface, queue) = (Metric::FlowLatency, None, None, None);
    let key = Some(flow(1));
    batch.event(
        &Event {
            kind: Kind::New,
            metric: Some(Metric::FlowPath),
            flow: key,
            ..bare(START)
        },
        &[1, 2],
    );
    for at in 0..5 {
        let (ts, interval, flow) = (START + at * MINUTE, 60, key);
        let (count, min, max, sum, p50, p99) = (10, 1, 9, 50, None, None);
        let rollup = Rollup {
            ts,
            interval,
            metric,
            flow,
            node,
            interface,
            queue,
            count,
            min,
            max,
            sum,
            p50,
            p99,
        };
        batch.rollup(&rollup);
    }
    store.submit(batch).unwrap();
    store.close();
    let reader = Reader::open(dir.path()).unwrap();
    let span = Span::of(START, START + 5 * MINUTE);
    // Five minutes, and one path that was taken; without room for that, none.
    for (room, reports, truncated) in [(6, 50, false), (5, 0, true), (3, 0, true)] {
        let found = reader.uses_within((span, room), &FlowsOf::default(), 10).unwrap();
        let sum: u64 = found.uses.iter().map(|used| used.reports).sum();
        assert_eq!((sum, found.truncated), (reports, truncated), "{room}");
    }
}
