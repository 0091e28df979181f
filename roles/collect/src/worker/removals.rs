//! Entries that the collector removed, for each input that must delete them too.

use std::collections::VecDeque;

use collector::{Collector, Removed};

/// Removals that an input, or the collector, stores until they are requested.
const MAX_REMOVALS: usize = 16_384;

/// A queue per input.
#[derive(Debug, Default)]
pub struct Removals {
    /// `None`: of an input that has ended; the next one replaces it.
    queues: Vec<Option<VecDeque<Removed>>>,
}

impl Removals {
    /// A queue for another input; returns its number.
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

    /// Whether an input tracks removals.
    pub fn is_tracked(&self) -> bool {
        self.queues.iter().any(Option::is_some)
    }

    /// An input has ended.
    pub fn end(&mut self, input: usize) {
        if let Some(queue) = self.queues.get_mut(input) {
            *queue = None;
        }
    }

    /// Passes what was removed since the last call of this input to `visit`.
    pub fn update(&mut self, collector: &mut Collector, input: usize, visit: &mut dyn FnMut(Removed)) {
        collector.drain_removed(|removed| {
            for queue in self.queues.iter_mut().flatten() {
                // A full queue is replaced by `Overflow`: the input must then compare all of its entries.
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
