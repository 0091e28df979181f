//! The channel that carries report datagrams to the collector: delay, loss, duplication and reordering, with ground-truth
//! accounting.

use std::collections::BTreeMap;

use super::ground_truth::{Arrival, DatagramOutcome};
use super::random::Random;

/// Properties of the channel to the collector. The default has no faults and a delay of 50 µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Delay from the node to the collector, ns.
    pub delay: u64,
    /// Datagrams lost, per million.
    pub loss: u32,
    /// Datagrams that arrive twice, per million.
    pub duplication: u32,
    /// Datagrams delayed by `extra`, per million.
    pub reordering: u32,
    /// Extra delay of a delayed datagram, or of the second copy of a duplicated one, ns.
    pub extra: u64,
}

impl Default for Channel {
    fn default() -> Self {
        Self {
            delay: 50_000,
            loss: 0,
            duplication: 0,
            reordering: 0,
            extra: 200_000,
        }
    }
}

impl Channel {
    /// Draws the outcome of one datagram. The three faults exclude each other.
    pub(crate) fn outcome(&self, random: &mut Random) -> DatagramOutcome {
        if random.chance(self.loss) {
            DatagramOutcome::Lost
        } else if random.chance(self.duplication) {
            DatagramOutcome::Duplicated
        } else if random.chance(self.reordering) {
            DatagramOutcome::Delayed
        } else {
            DatagramOutcome::Delivered
        }
    }
}

/// Totals of the datagrams that one subsystem of a node sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelTotals {
    /// Id of the node that sent them.
    pub node: u32,
    /// Number of the subsystem.
    pub hw_id: u8,
    /// Datagrams that were sent.
    pub sent: u64,
    /// Datagrams that were lost.
    pub lost: u64,
    /// Arrivals of datagrams that had already arrived.
    pub duplicated: u64,
    /// First arrivals after the arrival of a later datagram.
    pub reordered: u64,
    /// Datagrams that arrived, without repetitions.
    pub arrived: u64,
}

/// Counts sent and arrived datagrams for each (node, subsystem).
#[derive(Debug, Default)]
pub(crate) struct ChannelAccounting {
    entries: BTreeMap<(u32, u8), Entry>,
}

#[derive(Debug, Default)]
struct Entry {
    totals: ChannelTotals,
    /// Order number of the latest datagram that has arrived, plus one.
    latest: u64,
}

impl ChannelAccounting {
    /// Records a sent datagram. Returns its order number within its (node, hw_id), from 0.
    pub(crate) fn sent(&mut self, node: u32, hw_id: u8, outcome: DatagramOutcome) -> u64 {
        let entry = self.entry(node, hw_id);
        entry.totals.sent += 1;
        entry.totals.lost += u64::from(outcome == DatagramOutcome::Lost);
        entry.totals.sent - 1
    }

    /// Records an arrival of the datagram with number `order`, and marks whether a later one overtook it.
    pub(crate) fn arrived(&mut self, order: u64, mut arrival: Arrival) -> Arrival {
        let entry = self.entry(arrival.node, arrival.hw_id);
        arrival.overtaken = order + 1 < entry.latest;
        entry.latest = entry.latest.max(order + 1);
        if arrival.duplicate {
            entry.totals.duplicated += 1;
        } else {
            entry.totals.arrived += 1;
            entry.totals.reordered += u64::from(arrival.overtaken);
        }
        arrival
    }

    /// Returns the totals, ordered by node and subsystem.
    pub(crate) fn totals(&self) -> Vec<ChannelTotals> {
        let entries = self.entries.iter();
        entries
            .map(|(&(node, hw_id), entry)| ChannelTotals {
                node,
                hw_id,
                ..entry.totals
            })
            .collect()
    }

    fn entry(&mut self, node: u32, hw_id: u8) -> &mut Entry {
        self.entries.entry((node, hw_id)).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(seq: u32, duplicate: bool) -> Arrival {
        Arrival {
            at: 0,
            node: 5,
            hw_id: 1,
            seq,
            duplicate,
            overtaken: false,
        }
    }

    #[test]
    fn the_counters_balance() {
        let mut accounting = ChannelAccounting::default();
        let fates = [
            DatagramOutcome::Delivered,
            DatagramOutcome::Delayed,
            DatagramOutcome::Lost,
            DatagramOutcome::Duplicated,
        ];
        let orders: Vec<u64> = fates
            .iter()
            .map(|&outcome| accounting.sent(5, 1, outcome))
            .collect();
        assert_eq!(orders, [0, 1, 2, 3]);
        let overtaken = |a: Arrival| a.overtaken;
        assert!(!overtaken(accounting.arrived(0, arrival(10, false))));
        assert!(!overtaken(accounting.arrived(3, arrival(13, false))));
        assert!(!overtaken(accounting.arrived(3, arrival(13, true))));
        assert!(overtaken(accounting.arrived(1, arrival(11, false))));
        let totals = ChannelTotals {
            node: 5,
            hw_id: 1,
            sent: 4,
            lost: 1,
            duplicated: 1,
            reordered: 1,
            arrived: 3,
        };
        assert_eq!(accounting.totals(), [totals]);
    }

    #[test]
    fn channel_faults_occur_at_the_configured_rates() {
        let channel = Channel {
            loss: 100_000,
            duplication: 50_000,
            reordering: 20_000,
            ..Channel::default()
        };
        let mut random = Random::new(9);
        let mut counts = [0u32; 4];
        (0..100_000).for_each(|_| counts[channel.outcome(&mut random) as usize] += 1);
        let near = |count: u32, wanted: u32| count.abs_diff(wanted) < wanted / 10;
        assert!(
            near(counts[1], 10_000) && near(counts[2], 4_500) && near(counts[3], 1_710),
            "{counts:?}"
        );
    }
}
