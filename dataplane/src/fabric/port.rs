//! An egress port of the simulation: its queue, its transmitter, and the utilization meter of its link.

use std::collections::VecDeque;

use super::topology::Wire;

/// One end of a link, for the direction away from its node.
#[derive(Debug)]
pub(crate) struct Port {
    /// Index of its node.
    pub(crate) node: usize,
    /// Interface number on that node, from 1; also the queue's id.
    pub(crate) number: u16,
    /// True if packets that enter here are compared with the watchlist (INT source).
    pub(crate) source: bool,
    /// True if packets that leave here lose their INT (INT sink).
    pub(crate) sink: bool,
    /// Whether the link is up.
    pub(crate) up: bool,
    /// Rate, delay and depth.
    pub(crate) wire: Wire,
    /// Frames that the link loses in this direction, per million.
    pub(crate) loss: u32,
    /// Number of times the link was cut; distinguishes transmissions before and after a cut.
    pub(crate) epoch: u32,
    /// True while a frame is being transmitted.
    pub(crate) busy: bool,
    pub(crate) meter: Meter,
    /// Queued frames: slot, and size in bytes.
    waiting: VecDeque<(u32, u32)>,
    occupancy: u32,
}

/// Error: the frame does not fit into the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// Occupancy of the queue when the frame arrived.
    pub(crate) occupancy: u32,
}

impl Port {
    /// Creates an idle port of node `node`, whose queue is bounded by `wire.depth`. `edge` makes it source and sink.
    pub(crate) fn new(node: usize, number: u16, edge: bool, wire: Wire) -> Self {
        Self {
            node,
            number,
            source: edge,
            sink: edge,
            up: true,
            wire,
            loss: 0,
            epoch: 0,
            busy: false,
            meter: Meter::new(wire.rate),
            waiting: VecDeque::new(),
            occupancy: 0,
        }
    }

    /// Appends packet `slot` of `size` queue units to the queue, and returns the occupancy before it. The frame being
    /// transmitted is not in the queue. A frame that would exceed the depth is refused (tail drop); one that can be transmitted
    /// at once is always accepted.
    pub(crate) fn offer(&mut self, slot: u32, size: u32) -> Result<u32, Full> {
        let occupancy = self.occupancy;
        let after = occupancy.saturating_add(size);
        if after > self.wire.depth && (self.busy || occupancy > 0) {
            return Err(Full { occupancy });
        }
        self.waiting.push_back((slot, size));
        self.occupancy = after;
        Ok(occupancy)
    }

    /// Removes and returns the first queued packet.
    pub(crate) fn dequeue(&mut self) -> Option<u32> {
        let (slot, size) = self.waiting.pop_front()?;
        self.occupancy -= size;
        Some(slot)
    }

    /// Returns the time to transmit `bytes`, ns, rounded up.
    pub(crate) fn duration(&self, bytes: usize) -> u64 {
        (bytes as u64 * 8_000_000_000).div_ceil(self.wire.rate)
    }
}

/// Utilization meter: an exponential moving average over windows of 1 ms with weight 1/4, in integer arithmetic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    /// Capacity of one window, bits.
    full: u64,
    window: u64,
    bits: u64,
    /// The moving average of the utilization, in units of 2^-16 of a hundredth of a percent.
    average: u64,
}

impl Meter {
    /// Length of a window, ns.
    const WINDOW: u64 = 1_000_000;

    pub(crate) fn new(rate: u64) -> Self {
        Self {
            full: (rate / (1_000_000_000 / Self::WINDOW)).max(1),
            window: 0,
            bits: 0,
            average: 0,
        }
    }

    /// Counts a frame whose transmission starts at `now`.
    pub(crate) fn count(&mut self, now: u64, bytes: usize) {
        self.roll(now);
        self.bits += bytes as u64 * 8;
    }

    /// Returns the average at `now` without the current window, in hundredths of a percent, at most 10,000.
    pub(crate) fn read(&mut self, now: u64) -> u32 {
        self.roll(now);
        (self.average >> 16).min(10_000) as u32
    }

    fn roll(&mut self, now: u64) {
        let window = now / Self::WINDOW;
        let passed = window.saturating_sub(self.window);
        if passed == 0 {
            return;
        }
        let sample = (((u128::from(self.bits) * 10_000) << 16) / u128::from(self.full)) as u64;
        self.average = (self.average * 3 + sample) / 4;
        for _ in 1..passed.min(128) {
            self.average = self.average * 3 / 4;
        }
        if passed >= 128 {
            self.average = 0;
        }
        self.window = window;
        self.bits = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_filled_to_its_depth_and_no_further() {
        let wire = Wire {
            rate: 8_000,
            delay: 0,
            depth: 300,
        };
        let mut port = Port::new(0, 1, false, wire);
        assert_eq!(port.offer(0, 400), Ok(0), "an idle port takes any frame");
        assert_eq!(port.dequeue(), Some(0));
        port.busy = true;
        let found: Vec<_> = [(1, 100), (2, 150), (3, 100), (4, 50), (5, 1)]
            .into_iter()
            .map(|(slot, size)| port.offer(slot, size).map_err(|full| full.occupancy))
            .collect();
        assert_eq!(found, [Ok(0), Ok(100), Err(250), Ok(250), Err(300)]);
        assert_eq!(
            std::iter::from_fn(|| port.dequeue()).collect::<Vec<_>>(),
            [1, 2, 4]
        );
        assert_eq!(port.occupancy, 0);
        assert_eq!(
            (port.duration(1), port.duration(1500)),
            (1_000_000, 1_500_000_000)
        );
    }

    #[test]
    fn durations_round_up() {
        let port = Port::new(
            0,
            1,
            false,
            Wire {
                rate: 3_000_000_000,
                ..Wire::default()
            },
        );
        assert_eq!((port.duration(1), port.duration(3), port.duration(0)), (3, 8, 0));
    }

    #[test]
    fn the_meter_follows_the_load_and_decays() {
        let mut meter = Meter::new(1_000_000_000);
        let mut read = Vec::new();
        for window in 0..12u64 {
            read.push(meter.read(window * 1_000_000));
            if window < 8 {
                meter.count(window * 1_000_000 + 5, 62_500); // half of 1 Mbit per ms
            }
        }
        assert_eq!(
            read,
            [
                0, 1250, 2187, 2890, 3417, 3813, 4110, 4332, 4499, 3374, 2530, 1898
            ]
        );
        assert_eq!(meter.read(1_000_000_000), 0);
        meter.count(1_000_000_000, 10_000_000);
        assert_eq!(meter.read(1_001_000_000), 10_000, "never above full");
    }
}
