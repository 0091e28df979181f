//! Nothing is allocated per postcard or aggregate: counted by the allocator itself, of one test and one thread.

use testkit::allocations::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

use aggregator::workload::{CASES, LEN};

struct Nowhere(u64);

impl aggregator::Out for Nowhere {
    fn send(&mut self, _: usize, payload: &[u8]) {
        self.0 += payload.len() as u64;
    }
}

#[test]
fn an_aggregator_at_work_allocates_nothing() {
    for case in CASES {
        let datagrams = case.datagrams();
        let mut stage = aggregator::Aggregator::new(case.config()).expect("good settings");
        let mut out = Nowhere(0);
        let before = allocations();
        // The same with postcards that only the whole decoder reads.
        let mut odd = [0; LEN];
        odd.copy_from_slice(&datagrams[..LEN]);
        odd[17] |= 1;
        for (now, burst) in datagrams.chunks(64 * LEN).enumerate() {
            stage.ingest(now as u64, burst.chunks_exact(LEN).chain([odd.as_slice()]), &mut out);
        }
        stage.tick(u64::MAX, &mut out);
        stage.finish(&mut out);
        assert_eq!(allocations() - before, 0, "{}", case.name);
        assert!(out.0 > 0);
    }
}
