//! The counters of a collector, as plain numbers. The metrics and API modules add names and labels.
//!
//! The counters balance: [`Stats::decode_balance`] and [`Stats::state_balance`] return input, output and drops by reason, and
//! the tests check that they add up.

mod join;
mod postcards;

use std::ops::AddAssign;

use wire::{Refusal, RefusalCounts};

use crate::event::Kind;

pub use join::{Count, JoinStats, Reason};
pub use postcards::{Partial, PostcardStats, Unjoinable};

/// Usage of a bounded table.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Table {
    /// Number of entries in use.
    pub used: u64,
    /// Maximum number of entries.
    pub capacity: u64,
    /// Entries evicted by new ones.
    pub evicted: u64,
    /// New entries refused because the table was full.
    pub refused: u64,
}

/// Usage of all tables of a collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tables {
    /// Flows with their state.
    pub flows: Table,
    /// Hops of all flows' paths: `used` and `capacity` in hops; `evicted` counts flows evicted to make room for another's path,
    /// `refused` counts truncated paths.
    pub hops: Table,
    /// Nodes with a hop latency.
    pub nodes: Table,
    /// Queues with an occupancy.
    pub queues: Table,
    /// Queues with a congestion.
    pub congestion: Table,
    /// Links with a utilization.
    pub links: Table,
    /// Sketches for the quantiles of rollups.
    pub sketches: Table,
    /// Source addresses of reports.
    pub sources: Table,
    /// Nodes on the paths of flows.
    pub path_nodes: Table,
    /// Links on the paths of flows.
    pub path_links: Table,
    /// Different paths of flows.
    pub paths: Table,
    /// Numbered streams of reports.
    pub streams: Table,
    /// Flows that send SF-INT reports.
    pub sf_flows: Table,
    /// Sets of records of one packet.
    pub sf_sets: Table,
}

impl Tables {
    /// Returns all tables with their names.
    pub fn named(&self) -> [(&'static str, Table); 14] {
        [
            ("flows", self.flows),
            ("hops", self.hops),
            ("nodes", self.nodes),
            ("queues", self.queues),
            ("congestion", self.congestion),
            ("links", self.links),
            ("sketches", self.sketches),
            ("path_nodes", self.path_nodes),
            ("path_links", self.path_links),
            ("paths", self.paths),
            ("sources", self.sources),
            ("streams", self.streams),
            ("sf_flows", self.sf_flows),
            ("sf_sets", self.sf_sets),
        ]
    }
}

wire::named! {
    /// The reason why a report's flow has no entry in the table.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Unadmitted, name {
        /// The table is full, and the flow was not seen before.
        FirstSight => "first_sight",
        /// The flow was seen before, but all flows that could make room for it are established and not idle.
        TableFull => "flow_table_full",
    }
}

/// Counters of a collector, since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Number of datagrams received.
    pub datagrams: u64,
    /// Datagrams with at least one good report, or a good aggregate.
    pub accepted: u64,
    /// Datagrams without a good report, by the first reason ([`Refusal::index`]).
    pub refused_datagrams: RefusalCounts,
    /// Good reports, that is, decoded and accepted.
    pub reports: u64,
    /// Reports (or remaining parts of datagrams) refused, by reason, including those inside accepted datagrams.
    pub refused: RefusalCounts,
    /// Good reports whose INT or IOAM was left out because it cannot be read, by reason.
    pub int_refused: RefusalCounts,
    /// Good reports about a tunnel whose contents could not be read, by reason. The flow is that of the packet around them.
    pub tunnel_refused: RefusalCounts,
    /// Aggregates of postcards, among the datagrams accepted.
    pub aggregates: u64,
    /// Postcards in aggregates. Each counts as a good report below.
    pub aggregate_postcards: u64,
    /// Summaries in aggregates. Each counts as a good report below.
    pub summaries: u64,
    /// Good reports that updated a flow, with the values of its nodes.
    pub flow_reports: u64,
    /// Good reports that only updated node-level state: they name no flow, or do not have the path of an unknown flow, or have
    /// one record of an incomplete set (SF-INT).
    pub node_reports: u64,
    /// Good reports whose flow has no entry in the table, by [`Unadmitted`]; node-level state was updated.
    pub unadmitted: [u64; Unadmitted::ALL.len()],
    /// Good reports of dropped packets (among those above).
    pub drop_reports: u64,
    /// Implausible hop latencies, which no other counter includes: see
    /// [`HopView::implausible_latency`](crate::HopView::implausible_latency). A summary of latencies counts once.
    pub implausible_latencies: u64,
    /// Flows and keys that expired.
    pub expired: u64,
    /// Paths that were truncated because not every hop could be stored.
    pub truncated_paths: u64,
    /// Flows whose path is truncated now.
    pub truncated_flows: u64,
    /// Counts of postcards by outcome.
    pub postcards: PostcardStats,
    /// Events emitted, by kind.
    pub events: [u64; Kind::ALL.len()],
    /// Outcomes of SF-INT records.
    pub sf: JoinStats,
}

/// A balance of counters: input = output + sum of drops.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Balance {
    /// Number of units that entered.
    pub input: u64,
    /// Number of units that left.
    pub output: u64,
    /// Drops by reason; reasons with a count of zero are absent.
    pub drops: Vec<(&'static str, u64)>,
}

impl Balance {
    /// Returns true if `input = output + drops`.
    pub fn is_balanced(&self) -> bool {
        self.input == self.output + self.drops.iter().map(|(_, count)| count).sum::<u64>()
    }
}

/// Applies `with` to each pair of counters of two arrays.
fn each(ones: &mut [u64], others: &[u64], mut with: impl FnMut(&mut u64, u64)) {
    ones.iter_mut()
        .zip(others)
        .for_each(|(one, other)| with(one, *other));
}

impl AddAssign<&Self> for Stats {
    fn add_assign(&mut self, other: &Self) {
        self.combine(other, |one, other| *one += other);
        self.sf.pending += other.sf.pending;
        self.truncated_flows += other.truncated_flows;
    }
}

impl Stats {
    /// Returns the counts since `before`, an earlier snapshot.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = *self;
        since.combine(before, |now, before| *now = now.saturating_sub(before));
        since
    }

    fn combine(&mut self, other: &Self, mut with: impl FnMut(&mut u64, u64)) {
        for (one, other) in [
            (&mut self.datagrams, other.datagrams),
            (&mut self.accepted, other.accepted),
            (&mut self.reports, other.reports),
            (&mut self.aggregates, other.aggregates),
            (&mut self.aggregate_postcards, other.aggregate_postcards),
            (&mut self.summaries, other.summaries),
            (&mut self.flow_reports, other.flow_reports),
            (&mut self.node_reports, other.node_reports),
            (&mut self.drop_reports, other.drop_reports),
            (&mut self.implausible_latencies, other.implausible_latencies),
            (&mut self.expired, other.expired),
            (&mut self.truncated_paths, other.truncated_paths),
        ] {
            with(one, other);
        }
        self.sf.combine(&other.sf, &mut with);
        self.postcards.combine(&other.postcards, &mut with);
        each(&mut *self.refused, &*other.refused, &mut with);
        each(&mut *self.int_refused, &*other.int_refused, &mut with);
        each(&mut *self.tunnel_refused, &*other.tunnel_refused, &mut with);
        each(&mut self.events, &other.events, &mut with);
        each(&mut self.unadmitted, &other.unadmitted, &mut with);
        each(&mut *self.refused_datagrams, &*other.refused_datagrams, &mut with);
    }

    /// Returns the number of good reports whose flow has no entry in the table.
    pub fn unadmitted_total(&self) -> u64 {
        self.unadmitted.iter().sum()
    }

    /// Returns the balance of decoding: datagrams in, datagrams with reports out.
    pub fn decode_balance(&self) -> Balance {
        let named = Refusal::ALL
            .iter()
            .map(|refusal| (refusal.name(), self.refused_datagrams[refusal.index()]));
        Balance {
            input: self.datagrams,
            output: self.accepted,
            drops: named.filter(|(_, count)| *count > 0).collect(),
        }
    }

    /// Returns the balance of the state. In: reports, and the postcards and summaries of aggregates. Out: those that updated
    /// the state.
    pub fn state_balance(&self) -> Balance {
        let drops = Unadmitted::ALL.map(|reason| (reason.name(), self.unadmitted[reason as usize]));
        Balance {
            input: self.reports + self.aggregate_postcards + self.summaries,
            output: self.flow_reports + self.node_reports,
            drops: drops.into_iter().filter(|(_, count)| *count > 0).collect(),
        }
    }
}
