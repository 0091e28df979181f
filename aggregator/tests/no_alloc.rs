//! The aggregator does not allocate per postcard or aggregate. A counting allocator checks this, in one test on one thread.

use testkit::allocations::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

use testkit::workload::aggregator::{CASES, LEN};

struct CountingOutput(u64);

impl aggregator::Output for CountingOutput {
    fn send(&mut self, _: usize, payload: &[u8]) {
        self.0 += payload.len() as u64;
    }
}

#[test]
fn processing_postcards_does_not_allocate() {
    for case in CASES {
        let datagrams = case.datagrams();
        let mut aggregator = aggregator::Aggregator::new(case.config()).expect("valid settings");
        let mut out = CountingOutput(0);
        let before = allocations();
        // One postcard of each burst needs the full decoder.
        let mut irregular = [0; LEN];
        irregular.copy_from_slice(&datagrams[..LEN]);
        irregular[17] |= 1;
        for (now, burst) in datagrams.chunks(64 * LEN).enumerate() {
            aggregator.ingest(
                now as u64,
                burst.chunks_exact(LEN).chain([irregular.as_slice()]),
                &mut out,
            );
        }
        aggregator.tick(u64::MAX, &mut out);
        aggregator.finish(&mut out);
        assert_eq!(allocations() - before, 0, "{}", case.name);
        assert!(out.0 > 0);
    }
}
