//! Retention that changes while the store is open.
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use collector::{Batch, Output as _};
use store::{Config, Store};
use testkit::records::{Dir, SECOND, START, bare};

#[test]
fn a_new_bound_deletes_the_oldest_files_at_once() {
    let dir = Dir::new("retention");
    let store = Store::open(Config::new(dir.path())).unwrap();
    for day in 0..3 {
        let mut batch = Batch::with_capacity(4);
        batch.event(&bare(START + day * 86_400 * SECOND), &[]);
        store.submit(batch);
    }
    store.flush();
    assert_eq!(store.stats().deleted, 0);
    store.set_retention(None, Some(1));
    store.flush();
    assert_eq!(store.close().deleted, 2);
    assert_eq!(dir.names(), ["hopwise-2026-11-23.db"]);
}
