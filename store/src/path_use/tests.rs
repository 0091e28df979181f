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
        batch.rollup(&Rollup {
            ts: START + at * MINUTE,
            interval: 60,
            metric: Metric::FlowLatency,
            flow: key,
            node: None,
            interface: None,
            queue: None,
            count: 10,
            min: 1,
            max: 9,
            sum: 50,
            p50: None,
            p99: None,
        });
    }
    store.submit(batch);
    store.close();
    let reader = Reader::open(dir.path()).unwrap();
    let span = Span::new(START, START + 5 * MINUTE);
    // Five minutes, and one path that was taken; without room for that, none.
    for (room_left, reports, truncated) in [(6, 50, false), (5, 0, true), (3, 0, true)] {
        let found = reader
            .uses_within(span, room_left, &FlowSelector::default(), 10)
            .unwrap();
        let sum: u64 = found.uses.iter().map(|used| used.reports).sum();
        assert_eq!((sum, found.truncated), (reports, truncated), "{room_left}");
    }
}
