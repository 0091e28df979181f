//! One direction of a port: a queue, a transmitter with a rate, and a link with delay, loss and reordering.

use std::collections::VecDeque;

use crate::fabric::port::Meter;

use super::stats::QueueStats;

/// Configuration of one direction of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Transmission rate, bit/s; `None` means unlimited, so that no frame is queued.
    pub rate: Option<u64>,
    /// Maximum length of the queue, bytes.
    pub depth: u32,
    /// Propagation delay from the transmitter to the other end, ns.
    pub delay: u64,
    /// Frames lost on the link, per million.
    pub loss: u32,
    /// Frames that take [`reorder_delay`](Self::reorder_delay) longer, per million.
    pub reorder: u32,
    /// Additional delay of reordered frames, ns.
    pub reorder_delay: u64,
}

impl Default for LinkConfig {
    /// Returns an unlimited link without loss, delay or reordering; the queue has 256 KiB if the link gets a rate.
    fn default() -> Self {
        Self {
            rate: None,
            depth: 256 << 10,
            delay: 0,
            loss: 0,
            reorder: 0,
            reorder_delay: 1_000_000,
        }
    }
}

/// State of one direction of a port. The frame being transmitted is not in the queue.
#[derive(Debug)]
pub(super) struct LinkQueue {
    link: LinkConfig,
    /// Queued frames: slot, and size in bytes.
    waiting: VecDeque<(u32, u32)>,
    occupancy: u32,
    max_occupancy: u32,
    /// Time at which the transmitter is free, ns.
    free_at: u64,
    /// Whether an event is scheduled for that time.
    scheduled: bool,
    meter: Meter,
    /// Number of times the link went down. A frame in flight keeps the value from its departure; if it differs on arrival, the
    /// frame is lost.
    epoch: u32,
}

impl LinkQueue {
    pub(super) fn new(link: LinkConfig) -> Self {
        Self {
            link,
            waiting: VecDeque::new(),
            occupancy: 0,
            max_occupancy: 0,
            free_at: 0,
            scheduled: false,
            meter: Meter::new(link.rate.unwrap_or(1)),
            epoch: 0,
        }
    }

    pub(super) fn link(&self) -> &LinkConfig {
        &self.link
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) fn free_at(&self) -> u64 {
        self.free_at
    }

    pub(super) fn occupancy(&self) -> u32 {
        self.occupancy
    }

    /// Returns whether frames pass unchanged and without delay.
    pub(super) fn is_plain(&self) -> bool {
        let LinkConfig {
            rate,
            delay,
            loss,
            reorder,
            ..
        } = self.link;
        rate.is_none() && delay == 0 && loss == 0 && reorder == 0 && self.waiting.is_empty()
    }

    /// Returns whether no frame is ever queued.
    pub(super) fn is_unlimited(&self) -> bool {
        self.link.rate.is_none() && self.waiting.is_empty()
    }

    /// Appends a frame to the queue, and returns the bytes queued before it. A frame that can be transmitted at once is always
    /// accepted.
    ///
    /// # Errors
    /// Returns the bytes queued if the frame would exceed the depth.
    pub(super) fn offer(&mut self, now: u64, slot: u32, size: u32) -> Result<u32, u32> {
        let found = self.occupancy;
        let after = found.saturating_add(size);
        if after > self.link.depth && (self.free_at > now || found > 0) {
            return Err(found);
        }
        self.waiting.push_back((slot, size));
        self.occupancy = after;
        // A frame that is transmitted at once does not count as queued.
        if self.free_at > now || found > 0 {
            self.max_occupancy = self.max_occupancy.max(after);
        }
        Ok(found)
    }

    /// Removes the first queued frame if the transmitter is free.
    pub(super) fn dequeue(&mut self, now: u64) -> Option<u32> {
        if self.free_at > now {
            return None;
        }
        let (slot, size) = self.waiting.pop_front()?;
        self.occupancy -= size;
        Some(slot)
    }

    /// Starts the transmission of a frame of `len` bytes, and returns the time of its end, ns.
    pub(super) fn occupy(&mut self, now: u64, len: usize) -> u64 {
        let Some(rate) = self.link.rate else { return now };
        self.meter.count(now, len);
        self.free_at = now.saturating_add((len as u64 * 8_000_000_000).div_ceil(rate));
        self.free_at
    }

    /// Returns whether an event must be scheduled for the time when the transmitter is free, and if so, marks it as scheduled.
    pub(super) fn schedule(&mut self) -> bool {
        let needed = !self.scheduled && !self.waiting.is_empty();
        self.scheduled |= needed;
        needed
    }

    /// Marks the scheduled event as executed.
    pub(super) fn freed(&mut self) {
        self.scheduled = false;
    }

    /// Returns the utilization in the last milliseconds, millionths; all-ones (unavailable) without a rate.
    pub(super) fn utilization(&mut self, now: u64) -> u32 {
        if self.link.rate.is_none() {
            u32::MAX
        } else {
            self.meter.read(now) * 100
        }
    }

    /// Changes the properties of the link. Queued frames stay queued; frames in flight are unaffected.
    pub(super) fn change(&mut self, link: LinkConfig) {
        if link.rate != self.link.rate {
            self.meter = Meter::new(link.rate.unwrap_or(1));
        }
        self.link = link;
    }

    /// Takes the link down, and returns the queued frames. Frames in flight are lost.
    pub(super) fn cut(&mut self) -> Vec<u32> {
        self.epoch = self.epoch.wrapping_add(1);
        self.occupancy = 0;
        self.waiting.drain(..).map(|(slot, _)| slot).collect()
    }

    pub(super) fn stats(&self) -> QueueStats {
        QueueStats {
            bytes: self.occupancy,
            frames: self.waiting.len() as u32,
            max_bytes: self.max_occupancy,
        }
    }
}
