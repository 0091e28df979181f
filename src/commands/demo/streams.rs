//! Ground truth about the simulated switches' report datagrams: how many were sent, lost and duplicated per sequence space.
//!
//! A collector detects losses as gaps in the sequence numbers of a stream (node and hardware subsystem). Losses before the
//! first or after the last datagram that arrived leave no gap; they are counted as `without_gap`.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use dataplane::fabric::{DatagramOutcome, GroundTruth};

/// Totals of sent, lost and duplicated datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct DatagramTotals {
    /// Datagrams sent by the switches.
    pub(super) sent: u64,
    /// Datagrams out of `sent` that the simulated network lost: they were not passed to the socket.
    pub(super) lost: u64,
    /// Datagrams out of `lost` at the start or end of a stream, where they leave no gap in the sequence numbers.
    pub(super) without_gap: u64,
    /// Datagrams passed to the socket twice.
    pub(super) duplicated: u64,
    /// Duration of the simulation.
    pub(super) span: Duration,
}

impl DatagramTotals {
    /// Returns the number of datagrams passed to the socket; its kernel may have dropped some.
    pub(super) fn arrived(&self) -> u64 {
        self.sent - self.lost + self.duplicated
    }
}

/// Streams of all switches, by (node, hardware id of the subsystem).
#[derive(Default, Debug)]
pub(super) struct Streams(BTreeMap<(u32, u8), Stream>);

/// Datagrams of one switch's subsystem. A loss is visible as a gap between the sequence number of the first datagram that
/// arrived, which is not always the lowest because datagrams are reordered, and the highest one.
#[derive(Default, Debug)]
struct Stream {
    sent: u64,
    duplicated: u64,
    /// Sequence numbers of the lost datagrams.
    lost: Vec<u32>,
    /// Sequence numbers of the first datagram that arrived, and of the highest.
    arrived: Option<RangeInclusive<u32>>,
    /// Number of copies that have not arrived yet, by sequence number.
    in_flight: BTreeMap<u32, u8>,
}

impl Stream {
    fn send(&mut self, seq: u32, outcome: DatagramOutcome) {
        self.sent += 1;
        self.duplicated += u64::from(outcome == DatagramOutcome::Duplicated);
        match outcome {
            DatagramOutcome::Lost => self.lost.push(seq),
            DatagramOutcome::Duplicated => *self.in_flight.entry(seq).or_default() += 2,
            _ => *self.in_flight.entry(seq).or_default() += 1,
        }
    }

    fn arrive(&mut self, seq: u32) {
        let range = self.arrived.get_or_insert(seq..=seq);
        *range = *range.start()..=seq.max(*range.end());
        if let Some(copies) = self.in_flight.get_mut(&seq) {
            *copies -= 1;
            if *copies == 0 {
                self.in_flight.remove(&seq);
            }
        }
    }

    /// Counts the losses that leave no gap.
    fn losses_without_gap(&self) -> u64 {
        let Some(arrived) = &self.arrived else {
            return self.lost.len() as u64;
        };
        let visible = *arrived.start()..*arrived.end();
        let gaps = self.lost.iter().filter(|seq| visible.contains(*seq));
        (self.lost.len() - gaps.count()) as u64
    }

    /// Returns what a collector starting now would see of this stream: datagrams in flight, and losses after the first.
    fn in_flight_only(self) -> Self {
        let first = self
            .in_flight
            .first_key_value()
            .map_or(u32::MAX, |(first, _)| *first);
        let lost: Vec<u32> = self.lost.into_iter().filter(|seq| *seq > first).collect();
        let copies: u64 = self.in_flight.values().map(|copies| u64::from(*copies)).sum();
        let sent = (self.in_flight.len() + lost.len()) as u64;
        let duplicated = copies - self.in_flight.len() as u64;
        Self {
            sent,
            duplicated,
            lost,
            arrived: None,
            in_flight: self.in_flight,
        }
    }
}

impl Streams {
    /// Records a sent or arrived datagram of the fabric.
    pub(super) fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
        match truth {
            GroundTruth::Datagram(sent) => {
                self.0
                    .entry((sent.node, sent.hw_id))
                    .or_default()
                    .send(sent.seq, sent.outcome);
            }
            GroundTruth::Arrival(arrival) => {
                self.0
                    .entry((arrival.node, arrival.hw_id))
                    .or_default()
                    .arrive(arrival.seq);
            }
            _ => {}
        }
    }

    /// Sums the outcomes of all datagrams.
    pub(super) fn account(&self, span: Duration) -> DatagramTotals {
        let mut sent = DatagramTotals {
            span,
            ..DatagramTotals::default()
        };
        for stream in self.0.values() {
            sent.sent += stream.sent;
            sent.lost += stream.lost.len() as u64;
            sent.without_gap += stream.losses_without_gap();
            sent.duplicated += stream.duplicated;
        }
        sent
    }

    /// Returns the streams as a collector that starts now would see them: only datagrams in flight.
    pub(super) fn in_flight_only(self) -> Self {
        Self(
            self.0
                .into_iter()
                .map(|(key, stream)| (key, stream.in_flight_only()))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DatagramOutcome::{Delayed, Delivered, Duplicated, Lost};

    #[test]
    fn losses_that_no_gap_shows_are_counted_apart() {
        let mut streams = Streams::default();
        let stream = streams.0.entry((101, 0)).or_default();
        let outcomes = [Lost, Delivered, Lost, Lost, Duplicated, Delayed, Lost];
        outcomes
            .into_iter()
            .zip(0..)
            .for_each(|(outcome, seq)| stream.send(seq, outcome));
        [1, 4, 4, 5].into_iter().for_each(|seq| stream.arrive(seq));
        let span = Duration::from_secs(1);
        assert_eq!(
            streams.account(span),
            DatagramTotals {
                sent: 7,
                lost: 4,
                without_gap: 2,
                duplicated: 1,
                span
            }
        );
        // The first datagram arrives after the third: counting begins with that one.
        let stream = streams.0.entry((102, 0)).or_default();
        let outcomes = [Delayed, Lost, Delivered];
        outcomes
            .into_iter()
            .zip(0..)
            .for_each(|(outcome, seq)| stream.send(seq, outcome));
        [2, 0].into_iter().for_each(|seq| stream.arrive(seq));
        assert_eq!(stream.losses_without_gap(), 1);
    }

    #[test]
    fn a_collector_that_begins_later_gets_what_is_in_flight() {
        let mut streams = Streams::default();
        let stream = streams.0.entry((101, 0)).or_default();
        let outcomes = [Lost, Delivered, Delayed, Lost, Duplicated, Delivered];
        outcomes
            .into_iter()
            .zip(0..)
            .for_each(|(outcome, seq)| stream.send(seq, outcome));
        [1, 5, 4].into_iter().for_each(|seq| stream.arrive(seq));
        let mut streams = streams.in_flight_only();
        let span = Duration::ZERO;
        // 2, 4 again, and the loss of 3 between them; nothing shows it yet.
        assert_eq!(
            streams.account(span),
            DatagramTotals {
                sent: 3,
                lost: 1,
                without_gap: 1,
                duplicated: 0,
                span
            }
        );
        let stream = streams.0.entry((101, 0)).or_default();
        [2, 4].into_iter().for_each(|seq| stream.arrive(seq));
        assert_eq!(
            streams.account(span),
            DatagramTotals {
                sent: 3,
                lost: 1,
                without_gap: 0,
                duplicated: 0,
                span
            }
        );
    }
}
