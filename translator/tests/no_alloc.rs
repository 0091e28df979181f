//! Nothing is allocated per postcard, aggregate or tick: counted by the allocator itself, of one test and one thread.
#![allow(unsafe_code, reason = "a global allocator cannot be had without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use translator::workload::{CASES, LEN};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is handed to the system's allocator as it came; counting touches nothing of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on unchanged.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on unchanged.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Nowhere(u64);

impl translator::Out for Nowhere {
    fn send(&mut self, _: usize, payload: &[u8]) {
        self.0 += payload.len() as u64;
    }
}

#[test]
fn a_stage_at_work_allocates_nothing() {
    for case in CASES {
        let datagrams = case.datagrams();
        let mut stage = translator::FirstStage::new(case.config()).expect("good settings");
        let mut out = Nowhere(0);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        // The same with postcards that only the whole decoder reads.
        let mut odd = [0; LEN];
        odd.copy_from_slice(&datagrams[..LEN]);
        odd[17] |= 1;
        for (now, burst) in datagrams.chunks(64 * LEN).enumerate() {
            stage.take(now as u64, burst.chunks_exact(LEN).chain([odd.as_slice()]), &mut out);
        }
        stage.tick(u64::MAX, &mut out);
        stage.finish(&mut out);
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0, "{}", case.name);
        assert!(out.0 > 0);
    }
}
