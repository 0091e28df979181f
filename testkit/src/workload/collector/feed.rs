//! A feed for benchmarks: frames in memory, passed to a collector in bursts, again and again, with a simulated clock.

use std::net::{IpAddr, Ipv4Addr};

use super::{BURST, OUTER, TICK};
use crate::rng::Rng;
use collector::Collector;
use collector::Datagram;
use collector::Output;

/// Simulated time between two reports, ns: ten million per second.
const GAP: u64 = 100;

/// The input of a benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// Whole frames from the Ethernet header on: parsing them is part of the measurement.
    Frames,
    /// UDP payloads, as from sockets.
    Payloads,
}

/// Frames in memory, passed to a collector in bursts, repeatedly.
#[derive(Debug)]
pub struct Feed {
    bytes: Vec<u8>,
    /// Bytes of one frame.
    length: usize,
    next: usize,
    now: u64,
    ticked: u64,
    /// The shuffle that is due when every frame has been delivered once.
    shuffle: Option<Shuffle>,
}

/// The layout of the frames, as the shuffle needs it.
#[derive(Debug)]
struct Shuffle {
    /// Bytes of the frames about one packet, which stay together.
    packet: usize,
    /// Bytes of a round, which has one packet of each flow. Every round is shuffled in the same way.
    round: usize,
    /// Offset of the sequence number in a frame. Sequence numbers are not shuffled, so they stay in order.
    seq_at: usize,
}

impl Feed {
    /// Creates a feed of frames of `length` bytes each.
    pub(super) fn new(bytes: Vec<u8>, length: usize) -> Self {
        Self {
            bytes,
            length,
            next: 0,
            now: 1_700_000_000_000_000_000,
            ticked: 0,
            shuffle: None,
        }
    }

    /// Shuffles the frames once every frame has been delivered, so that flows are visited in another order than the one in
    /// which their state was created. `packet` bytes stay together, and `flows` packets are a round.
    pub(super) fn shuffled_after_first_round(
        mut self,
        (packet, flows): (usize, usize),
        seq_at: usize,
    ) -> Self {
        self.shuffle = Some(Shuffle {
            packet,
            round: packet * flows,
            seq_at,
        });
        self
    }

    /// Returns the bytes of one frame.
    pub fn frame_len(&self) -> usize {
        self.length
    }

    /// Returns the bytes of all frames together.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the number of different frames.
    pub fn frames(&self) -> usize {
        self.bytes.len() / self.length
    }

    /// Returns all frames, in order of delivery.
    pub fn whole(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        self.bytes.chunks_exact(self.length)
    }

    /// Returns the UDP payloads of all frames, in order of delivery.
    pub fn payloads(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.length).map(|frame| &frame[OUTER..])
    }

    /// Delivers the next burst to a collector, with a tick when one is due. Returns how many reports it holds.
    pub fn burst(&mut self, input: Input, collector: &mut Collector, out: &mut impl Output) -> usize {
        let none = Datagram {
            payload: &[],
            source: [0; 16],
            src_port: 0,
            listener: 0,
            received: 0,
        };
        let mut burst = [none; BURST];
        let left = &self.bytes[self.next..];
        let mut count = 0;
        for (slot, frame) in burst.iter_mut().zip(left.chunks_exact(self.length)) {
            // Prefetches four frames ahead, as the receive loop over a ring does.
            left.get(count * self.length + 4 * self.length)
                .map(memory::prefetch);
            self.now += GAP;
            *slot = match input {
                Input::Payloads => Datagram {
                    payload: &frame[OUTER..],
                    source: Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets(),
                    src_port: 40_000,
                    listener: 0,
                    received: self.now,
                },
                Input::Frames => match wire::datagram(frame) {
                    Ok(wire::Datagram {
                        src: IpAddr::V4(src),
                        src_port,
                        payload,
                        ..
                    }) => Datagram {
                        payload,
                        // As one number, so that a later wide load does not wait for narrow stores.
                        source: (0xffff_0000_0000 | u128::from(src.to_bits())).to_be_bytes(),
                        src_port,
                        listener: 0,
                        received: self.now,
                    },
                    Ok(wire::Datagram {
                        src: IpAddr::V6(src),
                        src_port,
                        payload,
                        ..
                    }) => Datagram {
                        payload,
                        source: src.octets(),
                        src_port,
                        listener: 0,
                        received: self.now,
                    },
                    Err(_) => continue,
                },
            };
            count += 1;
        }
        collector.handle(&burst[..count], out);
        self.next += count.max(1) * self.length;
        if self.next >= self.bytes.len() {
            self.next = 0;
            if let Some(shuffle) = self.shuffle.take() {
                self.bytes
                    .chunks_exact_mut(shuffle.round)
                    .for_each(|round| shuffle.apply(round, self.length));
            }
        }
        if self.now - self.ticked >= TICK {
            self.ticked = self.now;
            collector.tick(self.now, out);
        }
        count
    }
}

impl Shuffle {
    /// Shuffles the packets of one round (Fisher-Yates).
    fn apply(&self, round: &mut [u8], frame: usize) {
        for at in (1..round.len() / self.packet).rev() {
            let other = Rng(at as u64).below(at + 1);
            if other == at {
                continue;
            }
            let (head, tail) = round.split_at_mut(at * self.packet);
            let one = &mut head[other * self.packet..][..self.packet];
            let two = &mut tail[..self.packet];
            one.swap_with_slice(two);
            for (one, two) in one.chunks_exact_mut(frame).zip(two.chunks_exact_mut(frame)) {
                one[self.seq_at..][..4].swap_with_slice(&mut two[self.seq_at..][..4]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CASES, Case, Feed, Input};
    use collector::Batch;

    fn sorted<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
        let mut values: Vec<T> = values.collect();
        values.sort_unstable();
        values
    }

    /// Sequence number and address of the flow, of each frame.
    fn frames(feed: &Feed) -> Vec<([u8; 4], [u8; 4])> {
        let four = |frame: &[u8], at: usize| frame[at..].first_chunk().copied().unwrap();
        feed.whole()
            .map(|frame| (four(frame, 42 + 8), four(frame, 42 + 42)))
            .collect()
    }

    #[test]
    fn flows_are_shuffled_after_the_first_round_and_sequence_numbers_are_not() {
        let case = Case {
            flows: 400,
            ..CASES[0]
        };
        let (mut feed, mut collector, mut batch) =
            (case.feed(), case.collector(), Batch::with_capacity(1 << 16));
        let before = frames(&feed);
        let mut delivered = 0;
        while delivered < feed.frames() {
            assert_eq!(frames(&feed), before);
            delivered += feed.burst(Input::Frames, &mut collector, &mut batch);
        }
        let after = frames(&feed);
        assert!(
            after
                .iter()
                .zip(&before)
                .all(|(after, before)| after.0 == before.0),
            "sequence numbers"
        );
        let moved = after
            .iter()
            .zip(&before)
            .filter(|(after, before)| after.1 != before.1)
            .count();
        assert!(moved > 350, "{moved}");
        assert_eq!(
            sorted(after.iter().map(|frame| frame.1)),
            sorted(before.iter().map(|frame| frame.1))
        );
    }

    #[test]
    fn every_case_is_read_without_refusals_and_counts_every_report() {
        for case in CASES {
            let case = Case { flows: 200, ..case };
            let mut feed = case.feed();
            let mut collector = case.collector();
            let mut batch = Batch::with_capacity(1 << 16);
            let mut delivered = 0;
            while delivered < 3 * feed.frames() {
                delivered += feed.burst(Input::Frames, &mut collector, &mut batch);
                batch.clear();
            }
            let stats = collector.stats();
            assert_eq!(
                (stats.reports, stats.refused_datagrams.iter().sum::<u64>()),
                (delivered as u64, 0),
                "{}",
                case.name
            );
            assert_eq!(
                (stats.flow_reports, collector.flows().count()),
                (stats.reports, 200),
                "{}",
                case.name
            );
            let hops = collector.flows().map(|flow| flow.path().len()).min();
            assert_eq!(hops, Some(case.hops.into()), "{}", case.name);
        }
    }
}
