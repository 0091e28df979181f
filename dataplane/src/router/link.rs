//! One direction of a port: a queue, a transmitter, and a link with delay, loss and reordering.

use std::collections::VecDeque;

use crate::fabric::port::Meter;

use super::stats::QueueStats;

/// How one direction of a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Bits per second of the transmitter; `None`: as fast as it goes, and nothing ever waits.
    pub rate: Option<u64>,
    /// Bytes that may wait for the transmitter.
    pub depth: u32,
    /// From the transmitter to the other end, ns.
    pub delay: u64,
    /// Frames lost on the link, per million.
    pub loss: u32,
    /// Frames that take [`reorder_delay`](Self::reorder_delay) longer, per million.
    pub reorder: u32,
    /// How much longer, ns.
    pub reorder_delay: u64,
}

impl Default for Link {
    /// As fast as it goes, perfect; a depth of 256 KiB should it get a rate.
    fn default() -> Self {
        Self { rate: None, depth: 256 << 10, delay: 0, loss: 0, reorder: 0, reorder_delay: 1_000_000 }
    }
}

/// A link at work. The frame being transmitted is not in the queue.
#[derive(Debug)]
pub(super) struct LinkQueue {
    link: Link,
    waiting: VecDeque<(u32, u32)>,
    occupancy: u32,
    most: u32,
    /// When the transmitter has sent what it has.
    free_at: u64,
    /// An event waits for that.
    scheduled: bool,
    meter: Meter,
    /// Counts cuts, and so identifies what was on the link then.
    epoch: u32,
}

impl LinkQueue {
    pub(super) fn new(link: Link) -> Self {
        Self {
            link,
            waiting: VecDeque::new(),
            occupancy: 0,
            most: 0,
            free_at: 0,
            scheduled: false,
            meter: Meter::new(link.rate.unwrap_or(1)),
            epoch: 0,
        }
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) fn free_at(&self) -> u64 {
        self.free_at
    }

    /// Nothing happens to a frame here.
    pub(super) fn is_plain(&self) -> bool {
        let Link { rate, delay, loss, reorder, .. } = self.link;
        rate.is_none() && delay == 0 && loss == 0 && reorder == 0 && self.waiting.is_empty()
    }

    /// No frame ever waits.
    pub(super) fn is_unlimited(&self) -> bool {
        self.link.rate.is_none() && self.waiting.is_empty()
    }

    /// Puts a frame at the end of the queue and returns what waits before it, bytes. A frame that can be transmitted at once is
    /// always taken.
    ///
    /// # Errors
    /// It would exceed the depth; the same number.
    pub(super) fn offer(&mut self, now: u64, slot: u32, size: u32) -> Result<u32, u32> {
        let found = self.occupancy;
        let after = found.saturating_add(size);
        if after > self.link.depth && (self.free_at > now || found > 0) {
            return Err(found);
        }
        self.waiting.push_back((slot, size));
        self.occupancy = after;
        // What is taken at once has not waited.
        if self.free_at > now || found > 0 {
            self.most = self.most.max(after);
        }
        Ok(found)
    }

    /// Takes the first waiting frame if the transmitter is free.
    pub(super) fn take(&mut self, now: u64) -> Option<u32> {
        if self.free_at > now {
            return None;
        }
        let (slot, size) = self.waiting.pop_front()?;
        self.occupancy -= size;
        Some(slot)
    }

    /// A frame of `len` bytes begins to be sent. Returns when it is sent.
    pub(super) fn occupy(&mut self, now: u64, len: usize) -> u64 {
        let Some(rate) = self.link.rate else { return now };
        self.meter.count(now, len);
        self.free_at = now.saturating_add((len as u64 * 8_000_000_000).div_ceil(rate));
        self.free_at
    }

    /// Must an event be made for when the transmitter is free? Then it counts as made.
    pub(super) fn schedule(&mut self) -> bool {
        let needed = !self.scheduled && !self.waiting.is_empty();
        self.scheduled |= needed;
        needed
    }

    /// That event has come.
    pub(super) fn freed(&mut self) {
        self.scheduled = false;
    }

    /// Utilisation of the last milliseconds, millionths; all-ones, which means unavailable, without a rate.
    pub(super) fn utilization(&mut self, now: u64) -> u32 {
        if self.link.rate.is_none() { u32::MAX } else { self.meter.read(now) * 100 }
    }

    /// Replaces the link's properties. Queued frames stay queued; frames in flight are unaffected.
    pub(super) fn change(&mut self, link: Link) {
        if link.rate != self.link.rate {
            self.meter = Meter::new(link.rate.unwrap_or(1));
        }
        self.link = link;
    }

    /// Cuts it: what waits is returned, what is in flight will not arrive.
    pub(super) fn cut(&mut self) -> Vec<u32> {
        self.epoch = self.epoch.wrapping_add(1);
        self.occupancy = 0;
        self.waiting.drain(..).map(|(slot, _)| slot).collect()
    }

    pub(super) fn stats(&self) -> QueueStats {
        let (bytes, frames) = (self.occupancy, self.waiting.len() as u32);
        QueueStats { bytes, frames, most_bytes: self.most }
    }
}
