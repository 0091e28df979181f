//! Counters of postcard joining: outcomes, and the reasons why postcards were not joined into paths.

use super::{Balance, each};

wire::named! {
    /// The reason why pending postcards were not joined.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u8)]
    pub enum Partial, name {
        /// The hop limit decreases by more than one, or a link leads to another node: the postcard of a node is missing.
        MissingHop => "missing_hop",
        /// Neither timestamps, hop limits nor links give an order.
        NoOrder => "no_order",
        /// Timestamps contradict the order, or hop limits do.
        Contradiction => "contradiction",
        /// The postcards of several packets cannot be told apart.
        Indistinct => "indistinct",
        /// The path differs from the known one, and has not occurred often enough to be confirmed.
        Unconfirmed => "unconfirmed",
        /// Neither hop limits, links nor the nodes themselves prove that no node is missing.
        Unproven => "unproven",
        /// The flow's path comes from INT.
        Int => "path_by_int",
        /// The path has more hops than a flow's path can have.
        TooLong => "too_long",
        /// The flow expired or was evicted in the meantime.
        FlowGone => "flow_gone",
        /// The packet's hop limit was used up inside the known path.
        Expired => "expired",
    }
}

wire::named! {
    /// The reason why a postcard was never pending.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u8)]
    pub enum Unjoinable, name {
        /// Nothing in it gives an order: no timestamps that can be compared, no hop limit, no links.
        NoOrder => "no_order",
        /// The flow's path comes from INT.
        Int => "path_by_int",
        /// It has no flow, or its flow did not fit into the table.
        NoFlow => "no_flow",
        /// It has no node id.
        NoNode => "no_node",
        /// It is a duplicate of an earlier postcard.
        Duplicate => "duplicate",
        /// The table of pending postcards was full.
        NoRoom => "no_room",
    }
}

/// Counters of postcards. Each postcard is counted when its outcome is known: see [`PostcardStats::balance`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PostcardStats {
    /// Number of postcards received.
    pub received: u64,
    /// Postcards of sets that gave a path or confirmed a known one.
    pub joined: u64,
    /// Sets of postcards that gave a path or confirmed a known one.
    pub sets: u64,
    /// Postcards that were pending and not joined, by reason.
    pub partial: [u64; Partial::ALL.len()],
    /// Postcards that were never pending, by reason.
    pub unjoinable: [u64; Unjoinable::ALL.len()],
    /// Postcards that were accepted as pending since the start.
    pub accepted: u64,
    /// Accepted postcards that are no longer pending.
    pub released: u64,
    /// Postcards whose Flow ID identified one known flow.
    pub resolved: u64,
    /// Postcards whose Flow ID several known flows have.
    pub ambiguous: u64,
}

impl PostcardStats {
    /// Returns the balance. In: postcards. Out: joined and pending postcards. Drops: all others by reason.
    pub fn balance(&self) -> Balance {
        let partial = Partial::ALL
            .iter()
            .map(|reason| (reason.name(), self.partial[*reason as usize]));
        let unjoinable = Unjoinable::ALL
            .iter()
            .map(|reason| (reason.name(), self.unjoinable[*reason as usize]));
        Balance {
            input: self.received,
            output: self.joined + self.accepted - self.released,
            drops: partial
                .chain(unjoinable)
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }

    pub(super) fn combine(&mut self, other: &Self, mut with: impl FnMut(&mut u64, u64)) {
        for (one, other) in [
            (&mut self.received, other.received),
            (&mut self.joined, other.joined),
            (&mut self.sets, other.sets),
            (&mut self.accepted, other.accepted),
            (&mut self.released, other.released),
            (&mut self.resolved, other.resolved),
            (&mut self.ambiguous, other.ambiguous),
        ] {
            with(one, other);
        }
        each(&mut self.partial, &other.partial, &mut with);
        each(&mut self.unjoinable, &other.unjoinable, with);
    }
}
