//! Hops on their way from the workers to an export: a spool that both use. Who receives never waits for it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use export::spool::Spool;
use tokio::sync::Notify;

use crate::lock::lock;

/// See the module.
#[derive(Debug)]
pub(crate) struct HopQueue {
    spool: Mutex<Spool>,
    /// Hops of chunks that came while somebody else was in the spool for too long.
    refused: AtomicU64,
    filled: Notify,
}

impl HopQueue {
    /// Around a spool.
    pub(crate) fn new(spool: Spool) -> Arc<Self> {
        Arc::new(Self { spool: Mutex::new(spool), refused: AtomicU64::new(0), filled: Notify::new() })
    }

    /// Takes a chunk over, and empties it. If the spool is in use just now, the chunk stays as it is, unless it is `urgent`: then it is lost,
    /// and counted.
    pub(crate) fn offer(&self, chunk: &mut Vec<u8>, hops: &mut u64, urgent: bool) {
        let Ok(mut spool) = self.spool.try_lock() else {
            if urgent {
                self.refused.fetch_add(*hops, Relaxed);
                chunk.clear();
                *hops = 0;
            }
            return;
        };
        let is_due = spool.offer(chunk, *hops);
        drop(spool);
        chunk.clear();
        *hops = 0;
        if is_due {
            self.filled.notify_one();
        }
    }

    /// Works on the spool.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Spool) -> T) -> T {
        let mut spool = lock(&self.spool);
        spool.refuse(self.refused.swap(0, Relaxed));
        work(&mut spool)
    }

    /// Waits until somebody should look at the spool.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }
}
