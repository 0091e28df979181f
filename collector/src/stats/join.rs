//! Counters. Every received record is in exactly one of them; [`JoinStats::balance`] adds them up.

use super::Balance;

/// Why a set of records was closed before it was complete, or not accepted when it was.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// Later sets of the flow evicted it: one of its reports was lost, or never sent.
    NextId,
    /// Nothing completed it in time.
    Timeout,
    /// Its packet ID was reused, or is 2^15 or more behind.
    Wrapped,
    /// Another flow or set needed the room.
    Evicted,
    /// The collector ended.
    Ended,
    /// It has no record of state Medium, or one without the sink's: the report that opens a set is lost.
    NoOpening,
    /// It is not known what sources write into the hop count, and so not how many nodes the packet passed.
    NoLength,
    /// The packet passed more nodes than a set has room for, or more than it can have passed.
    TooLong,
    /// A node on the way found the hop count used up (E).
    HopLimit,
    /// A node twice with different values, or more nodes than the hop count implies.
    Contradicted,
    /// All nodes are there, but nothing proves their order.
    Disordered,
    /// All nodes are there in an order that nothing contradicts, of a path that is still to be confirmed.
    Unconfirmed,
}

impl Reason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::NextId,
        Self::Timeout,
        Self::Wrapped,
        Self::Evicted,
        Self::Ended,
        Self::NoOpening,
        Self::NoLength,
        Self::TooLong,
        Self::HopLimit,
        Self::Contradicted,
        Self::Disordered,
        Self::Unconfirmed,
    ];

    /// Its name in counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NextId => "next_id",
            Self::Timeout => "timeout",
            Self::Wrapped => "wrapped",
            Self::Evicted => "evicted",
            Self::Ended => "ended",
            Self::NoOpening => "no_opening",
            Self::NoLength => "no_length",
            Self::TooLong => "too_long",
            Self::HopLimit => "hop_limit",
            Self::Contradicted => "contradicted",
            Self::Disordered => "disordered",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

/// Sets and the records in them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Count {
    /// Sets.
    pub sets: u64,
    /// Records in them.
    pub records: u64,
}

impl Count {
    pub(crate) fn add(&mut self, records: usize) {
        self.sets += 1;
        self.records += records as u64;
    }
}

/// Counters of the joining of SF-INT reports, since the collector's start. A report holds one or two records: the one that
/// the packet carried, and the sink's own.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct JoinStats {
    /// SF-INT reports that were not urgent.
    pub reports: u64,
    /// Records in them.
    pub records: u64,
    /// Sets that are the whole path of a packet.
    pub complete: Count,
    /// Sets that were closed, by [`Reason`]. Their records updated their nodes only.
    pub partial: [Count; Reason::ALL.len()],
    /// The sink's own records of packets that carried another packet's record: samples of the sink, of no set.
    pub sink_samples: u64,
    /// Records of state Low: their set can never be complete. Samples of their node.
    pub low_samples: u64,
    /// Duplicate records: the report arrived twice.
    pub repeated: u64,
    /// Records that do not fit into the set with their packet ID. Samples of their node.
    pub stray: u64,
    /// Records of flows for which there was no room. Samples of their node.
    pub unadmitted: u64,
    /// Records in reports of nodes before the sink, about queues or dropped packets. Samples of their node.
    pub transit_samples: u64,
    /// Records in open sets, now.
    pub pending: u64,
}

impl JoinStats {
    /// Sets closed before they were complete, and their records.
    pub fn partial(&self) -> Count {
        self.partial.iter().fold(Count::default(), |sum, one| Count {
            sets: sum.sets + one.sets,
            records: sum.records + one.records,
        })
    }

    /// Records in; records in complete sets, in sets that are still open, and samples of nodes that cannot be more, out.
    pub fn balance(&self) -> Balance {
        let partial =
            Reason::ALL.iter().zip(&self.partial).map(|(reason, count)| (reason.name(), count.records));
        let others = [("repeated", self.repeated), ("stray", self.stray), ("unadmitted", self.unadmitted)];
        Balance {
            input: self.records,
            output: self.complete.records + self.pending + self.samples(),
            drops: partial.chain(others).filter(|(_, count)| *count > 0).collect(),
        }
    }

    /// Records that can be no part of a path, and updated their nodes.
    pub fn samples(&self) -> u64 {
        self.sink_samples + self.low_samples + self.transit_samples
    }

    pub(super) fn combine(&mut self, other: &Self, mut with: impl FnMut(&mut u64, u64)) {
        for (one, other) in [
            (&mut self.reports, other.reports),
            (&mut self.records, other.records),
            (&mut self.complete.sets, other.complete.sets),
            (&mut self.complete.records, other.complete.records),
            (&mut self.sink_samples, other.sink_samples),
            (&mut self.low_samples, other.low_samples),
            (&mut self.repeated, other.repeated),
            (&mut self.stray, other.stray),
            (&mut self.unadmitted, other.unadmitted),
            (&mut self.transit_samples, other.transit_samples),
        ] {
            with(one, other);
        }
        for (one, other) in self.partial.iter_mut().zip(&other.partial) {
            with(&mut one.sets, other.sets);
            with(&mut one.records, other.records);
        }
    }
}
