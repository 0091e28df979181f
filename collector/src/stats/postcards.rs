//! Outcomes of postcards, and why some were not joined into paths.

use super::Balance;

/// The reason for which pending postcards were not joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Partial {
    /// The hop limit decreases by more than one, or a link leads to another node: the postcard of a node is missing.
    MissingHop,
    /// Neither timestamps, hop limits nor links give an order.
    NoOrder,
    /// Timestamps, or hop limit and order, contradict each other.
    Contradiction,
    /// Several packets whose postcards cannot be distinguished.
    Indistinct,
    /// The path differs from the known one, and has not occurred often enough to be confirmed.
    Unconfirmed,
    /// Neither hop limits, links nor the nodes themselves prove that no node is missing.
    Unproven,
    /// INT reports the flow's path.
    Int,
    /// The path has more hops than a flow's path can have.
    TooLong,
    /// The flow expired meanwhile.
    FlowGone,
    /// The packet's hop limit was used up inside the known path.
    Expired,
}

impl Partial {
    /// The number of reasons.
    pub const COUNT: usize = 10;
    /// All, in numeric order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::MissingHop,
        Self::NoOrder,
        Self::Contradiction,
        Self::Indistinct,
        Self::Unconfirmed,
        Self::Unproven,
        Self::Int,
        Self::TooLong,
        Self::FlowGone,
        Self::Expired,
    ];

    /// The name in the API and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MissingHop => "missing_hop",
            Self::NoOrder => "no_order",
            Self::Contradiction => "contradiction",
            Self::Indistinct => "indistinct",
            Self::Unconfirmed => "unconfirmed",
            Self::Unproven => "unproven",
            Self::Int => "path_by_int",
            Self::TooLong => "too_long",
            Self::FlowGone => "flow_gone",
            Self::Expired => "expired",
        }
    }
}

/// The reason for which a postcard was never pending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Unjoinable {
    /// Nothing in it gives an order: no timestamps that can be compared, no hop limit, no links.
    NoOrder,
    /// INT reports the flow's path.
    Int,
    /// It names no flow, or its flow did not fit into the table.
    NoFlow,
    /// It names no node.
    NoNode,
    /// A duplicate of an earlier postcard.
    Duplicate,
    /// The table of pending postcards was full.
    NoRoom,
}

impl Unjoinable {
    /// The number of reasons.
    pub const COUNT: usize = 6;
    /// All, in numeric order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::NoOrder,
        Self::Int,
        Self::NoFlow,
        Self::NoNode,
        Self::Duplicate,
        Self::NoRoom,
    ];

    /// The name in the API and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoOrder => "no_order",
            Self::Int => "path_by_int",
            Self::NoFlow => "no_flow",
            Self::NoNode => "no_node",
            Self::Duplicate => "duplicate",
            Self::NoRoom => "no_room",
        }
    }
}

/// Outcomes of postcards. Each is counted once, when its outcome is known: see [`PostcardStats::balance`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PostcardStats {
    /// Number of postcards received.
    pub received: u64,
    /// Postcards of sets that gave a path or confirmed a known one.
    pub joined: u64,
    /// Sets of postcards that gave a path or confirmed a known one.
    pub sets: u64,
    /// Postcards that were pending and not joined, by reason.
    pub partial: [u64; Partial::COUNT],
    /// Postcards that were never pending, by reason.
    pub unjoinable: [u64; Unjoinable::COUNT],
    /// Postcards that have been pending since the start.
    pub accepted: u64,
    /// Those of `accepted` that are no longer pending.
    pub released: u64,
    /// Postcards whose Flow ID identified one known flow.
    pub resolved: u64,
    /// Postcards whose Flow ID several known flows have.
    pub ambiguous: u64,
}

impl PostcardStats {
    /// Postcards in; joined and pending postcards out; the others by reason.
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
        self.partial
            .iter_mut()
            .zip(other.partial)
            .for_each(|(one, other)| with(one, other));
        self.unjoinable
            .iter_mut()
            .zip(other.unjoinable)
            .for_each(|(one, other)| with(one, other));
    }
}
