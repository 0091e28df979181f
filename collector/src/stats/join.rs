//! Counters of SF-INT joining. Every received record is in exactly one of them; [`JoinStats::balance`] checks that.

use super::{Balance, Unadmitted, each};

wire::named! {
    /// The reason why a set was closed before it was complete, or not accepted when it was.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum Reason, name {
        /// Later sets of the flow evicted it: one of its reports was lost or never sent.
        NextId => "next_id",
        /// The set was not complete before its timeout.
        Timeout => "timeout",
        /// The packet ID was reused, or is 2^15 or more behind.
        Wrapped => "wrapped",
        /// Another flow or set needed its memory.
        Evicted => "evicted",
        /// The collector stopped before the set was complete.
        Ended => "ended",
        /// The report that opens a set was lost: the record of state Medium, or the sink's record, is missing.
        NoOpening => "no_opening",
        /// The initial hop count of sources is unknown, so the number of nodes that the packet passed is, too.
        NoLength => "no_length",
        /// The packet passed more nodes than a set can store, or more than is possible.
        TooLong => "too_long",
        /// A node on the path could not add data because the hop count was exceeded (E).
        HopLimit => "hop_limit",
        /// It has a node twice with different values, or more nodes than the hop count implies.
        Contradicted => "contradicted",
        /// All nodes are present, but nothing proves their order.
        Disordered => "disordered",
        /// All nodes are present in a proven order, but the path is not confirmed yet.
        Unconfirmed => "unconfirmed",
    }
}

/// Number of sets, and of the records in them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Count {
    /// Number of sets counted.
    pub sets: u64,
    /// Records in these sets.
    pub records: u64,
}

impl Count {
    pub(crate) fn add(&mut self, records: usize) {
        self.sets += 1;
        self.records += records as u64;
    }
}

/// Counters of SF-INT joining since the collector's start. A report has one or two records: the one that the packet carried,
/// and the sink's own.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct JoinStats {
    /// SF-INT reports that were not urgent.
    pub reports: u64,
    /// Records in these reports.
    pub records: u64,
    /// Sets that contain the whole path of a packet.
    pub complete: Count,
    /// Sets that were closed, by [`Reason`]. Their records updated their nodes only.
    pub partial: [Count; Reason::ALL.len()],
    /// Sink's own records in reports whose packet carried another packet's record: samples of the sink, in no set.
    pub sink_samples: u64,
    /// Records of state Low, whose set can never be complete; samples of their node.
    pub low_samples: u64,
    /// Duplicate records, from reports that arrived twice.
    pub repeated: u64,
    /// Records that contradict the set with their packet ID; samples of their node.
    pub stray: u64,
    /// Records of flows without an entry in the table, by [`Unadmitted`]; samples of their node.
    pub unadmitted: [u64; Unadmitted::ALL.len()],
    /// Records in reports that nodes before the sink sent about queues or dropped packets; samples of their node.
    pub transit_samples: u64,
    /// Number of records in open sets now.
    pub pending: u64,
}

impl JoinStats {
    /// Returns the sets closed before they were complete, with their records.
    pub fn partial(&self) -> Count {
        self.partial.iter().fold(Count::default(), |sum, one| Count {
            sets: sum.sets + one.sets,
            records: sum.records + one.records,
        })
    }

    /// Returns the balance. In: all records. Out: records in complete and open sets, and samples. Drops: all others by reason.
    pub fn balance(&self) -> Balance {
        let partial = Reason::ALL
            .iter()
            .zip(&self.partial)
            .map(|(reason, count)| (reason.name(), count.records));
        let others = [("repeated", self.repeated), ("stray", self.stray)];
        let unadmitted = Unadmitted::ALL
            .iter()
            .zip(&self.unadmitted)
            .map(|(reason, count)| (reason.name(), *count));
        Balance {
            input: self.records,
            output: self.complete.records + self.pending + self.samples(),
            drops: partial
                .chain(others)
                .chain(unadmitted)
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }

    /// Returns the number of records that cannot be part of a path and updated node metrics only.
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
            (&mut self.transit_samples, other.transit_samples),
        ] {
            with(one, other);
        }
        each(&mut self.unadmitted, &other.unadmitted, &mut with);
        for (one, other) in self.partial.iter_mut().zip(&other.partial) {
            with(&mut one.sets, other.sets);
            with(&mut one.records, other.records);
        }
    }
}
