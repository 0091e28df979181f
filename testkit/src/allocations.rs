//! A counting global allocator. Counts are per thread, because other threads of the test runner allocate at any time.
#![allow(unsafe_code, reason = "a global allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator with counters per thread. A test installs it with `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    // Bytes in use, and their maximum. Negative if a thread frees memory that another one allocated.
    static BYTES: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// Number of allocations and reallocations of this thread so far.
pub fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// Runs `work`. Returns its result, the growth of this thread's memory in bytes, and the largest growth while it ran.
pub fn bytes_of<R>(work: impl FnOnce() -> R) -> (R, i64, i64) {
    let before = BYTES.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let result = work();
    (
        result,
        BYTES.with(Cell::get) - before,
        PEAK.with(Cell::get) - before,
    )
}

fn count() {
    // The counter no longer exists while a thread exits.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

fn grow(by: i64) {
    let _ = BYTES.try_with(|bytes| {
        bytes.set(bytes.get() + by);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(bytes.get())));
    });
}

// SAFETY: every call is passed unchanged to the system's allocator; counting does not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        grow(layout.size() as i64);
        // SAFETY: the caller's promises are passed on unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        grow(-(layout.size() as i64));
        // SAFETY: the caller's promises are passed on unchanged.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // Both blocks exist while the content is moved, so the peak counts both.
        grow(size as i64);
        grow(-(layout.size() as i64));
        // SAFETY: the caller's promises are passed on unchanged.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
