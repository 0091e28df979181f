//! Nothing is allocated per report, event, rollup or tick. A counting allocator checks this, in one test on one thread.

use testkit::allocations::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

use collector::{Batch, Collector};
use testkit::workload::collector::{CASES, Feed, Input, SF_CASES};

#[test]
fn a_warm_collector_allocates_nothing() {
    unfolding_and_joining_allocate_nothing();
    let small = CASES.iter().filter(|case| case.flows <= 1000);
    let plain = small.map(|case| (case.name, case.collector(), case.feed()));
    let joined = SF_CASES.iter().filter(|case| case.flows <= 1000);
    for (name, collector, feed) in plain.chain(joined.map(|case| (case.name, case.collector(), case.feed())))
    {
        allocates_nothing(name, collector, feed);
    }
}

fn allocates_nothing(name: &str, mut collector: Collector, mut feed: Feed) {
    let mut batch = Batch::with_capacity(1 << 16);
    let mut deliver = |reports: usize, collector: &mut collector::Collector, batch: &mut Batch| {
        let mut given = 0;
        while given < reports {
            given += feed.burst(Input::Frames, collector, batch);
        }
        batch.clear();
    };
    deliver(20_000, &mut collector, &mut batch);
    let before = allocations();
    deliver(10_000, &mut collector, &mut batch);
    // A tick, the end of seconds and of a minute, and traffic after it.
    let later = 1_700_000_100_000_000_000;
    for step in 0..200 {
        collector.tick(later + step * 500_000_000, &mut batch);
    }
    batch.clear();
    assert_eq!(allocations() - before, 0, "{name}");
}

/// Postcards of aggregates, unfolded and joined.
fn unfolding_and_joining_allocate_nothing() {
    for case in testkit::workload::collector::aggregate::CASES {
        let (mut collector, mut feed) = (case.collector(), case.feed());
        let mut batch = Batch::with_capacity(1 << 16);
        let mut deliver = |postcards: u64, batch: &mut Batch| {
            let mut given = 0;
            while given < postcards {
                given += feed.deliver(&mut collector, batch);
                batch.clear();
            }
        };
        deliver(600_000, &mut batch);
        let before = allocations();
        deliver(300_000, &mut batch);
        assert_eq!(allocations() - before, 0, "{}", case.name);
    }
}
