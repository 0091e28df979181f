//! Entries that the collector has removed, queued for each input with kernel detection, which deletes them in the kernel too.

use std::collections::VecDeque;

use collector::{Collector, Removed};

/// Capacity of a queue of removals, in the collector and for each input.
const MAX_REMOVALS: usize = 16_384;

/// One queue per input.
#[derive(Debug, Default)]
pub struct Removals {
    /// The queues by input; `None` is a free slot.
    queues: Vec<Option<VecDeque<Removed>>>,
}

impl Removals {
    /// Adds a queue for another input; returns its index.
    pub fn add(&mut self, collector: &mut Collector) -> usize {
        if self.queues.is_empty() {
            collector.track_removals(MAX_REMOVALS);
        }
        let free = self.queues.iter().position(Option::is_none);
        let input = free.unwrap_or_else(|| {
            self.queues.push(None);
            self.queues.len() - 1
        });
        self.queues[input] = Some(VecDeque::new());
        input
    }

    /// Returns whether any input tracks removals.
    pub fn is_tracked(&self) -> bool {
        self.queues.iter().any(Option::is_some)
    }

    /// Removes the queue of an input.
    pub fn end(&mut self, input: usize) {
        if let Some(queue) = self.queues.get_mut(input) {
            *queue = None;
        }
    }

    /// Distributes new removals to all queues, and passes those of this input to `visit`.
    pub fn update(&mut self, collector: &mut Collector, input: usize, visit: &mut dyn FnMut(Removed)) {
        collector.drain_removed(|removed| {
            for queue in self.queues.iter_mut().flatten() {
                // On overflow the input must compare all of its entries.
                if queue.len() < MAX_REMOVALS {
                    queue.push_back(removed);
                } else {
                    queue.clear();
                    queue.push_back(Removed::Overflow);
                }
            }
        });
        if let Some(Some(queue)) = self.queues.get_mut(input) {
            queue.drain(..).for_each(visit);
        }
    }
}

#[cfg(test)]
impl Removals {
    /// Adds a queue that has overflowed.
    pub fn add_full(&mut self) {
        self.queues.push(Some([Removed::Overflow].into()));
    }
}
