//! Memory that all partitions of an outlet share. Requests wait in FIFO order until others have released enough, so that all
//! partitions together stay within the limit.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of one permit.
const UNIT: usize = 1024;

/// A memory limit, in units of [`UNIT`] bytes. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Space {
    free: Arc<Semaphore>,
    size: u32,
}

/// Reserved memory, which is released on drop.
#[derive(Debug)]
pub(super) struct Reservation(OwnedSemaphorePermit);

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

impl Space {
    pub(super) fn new(bytes: usize) -> Self {
        let size = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
        Self {
            free: Arc::new(Semaphore::new(size as usize)),
            size,
        }
    }

    /// Reserves `bytes` bytes, or everything if the limit is lower.
    pub(super) async fn get(&self, bytes: usize) -> Result<Reservation, String> {
        let got = Arc::clone(&self.free)
            .acquire_many_owned(units(bytes).min(self.size))
            .await;
        got.map(Reservation).map_err(|_| "the outlet stops".to_owned())
    }
}

impl Reservation {
    pub(super) fn bytes(&self) -> usize {
        self.0.num_permits() * UNIT
    }

    /// Releases everything above `bytes` bytes.
    pub(super) fn shrink(&mut self, bytes: usize) {
        let more = self.0.num_permits().saturating_sub(units(bytes) as usize);
        drop(self.0.split(more));
    }

    /// Adds another reservation of the same memory.
    pub(super) fn add(&mut self, other: Self) {
        self.0.merge(other.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_needs_memory_waits_until_it_is_given_back() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (space, other) = (Space::new(10 << 10), Space::new(1 << 10));
        let is_free = |bytes: usize| space.free.available_permits() == bytes / UNIT;
        runtime.block_on(async {
            let mut held = space.get(4 << 10).await.unwrap();
            held.add(space.get((3 << 10) - 1).await.unwrap());
            assert!(held.bytes() == 7 << 10 && is_free(3 << 10));
            let waiting = space.get(4 << 10);
            tokio::pin!(waiting);
            tokio::select! { biased; _ = &mut waiting => panic!("too much"), () = tokio::task::yield_now() => {} }
            held.shrink((5 << 10) + 1);
            assert_eq!(held.bytes(), 6 << 10, "a part of a unit is one");
            let second = waiting.await.unwrap();
            assert!(is_free(0) && second.bytes() == 4 << 10);
            drop((held, second));
            // What is larger than all of it gets all of it.
            assert_eq!(space.get(usize::MAX).await.unwrap().bytes(), 10 << 10);
            assert!(is_free(10 << 10) && other.free.available_permits() == 1);
        });
    }
}
