//! Postcards joined into paths: the cards that several nodes send of one packet, put together and in order, say what one INT
//! report says.
//!
//! What a card says of its node is taken when it comes. Beside that it is **held**, with its flow, until the others of its
//! packet have come:
//!
//! - cards with the packet's head in them are of one packet when their signatures are equal (see [`identity`]), unless a node
//!   has several with the same hop limit: then several packets look alike, as those of a sender that repeats itself do;
//! - cards with time stamps of clocks that agree are of one packet when each begins where the one before ends, give or take
//!   a link ([`Settings::proximity`]); several packets in one such cluster are told apart only if each card of a node lies
//!   between its packet's card of the node before and that of the next packet;
//! - of others the latest of each node within [`Settings::timeout`] stand for the flow, not for a packet.
//!
//! A set is **joined** when its order is known ([`order`]) and its path is believed. The path that the flow already has is
//! believed at once. Another one must be met several times in a row: [`Settings::confirmations`], or
//! [`Settings::confirmations_after_loss`] while numbers are missing in the streams of the senders, and always when the path
//! is part of the known one, which is what a lost card looks like; and then not while the numbers of a node that it lacks
//! have a gap. What is not joined is counted by reason, and concludes nothing.

mod conclude;
pub(crate) mod directory;
mod held;
pub(crate) mod identity;
pub(crate) mod order;

use wire::FlowKey;

use crate::config::Units;
use crate::event::Nanos;
use crate::reading::Reading;
use crate::tell::Origin;

pub(crate) use held::Held;
pub use order::Link;

/// How postcards are joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How long a card waits for the others of its packet, ns: longer than an aggregator keeps a card.
    pub timeout: Nanos,
    /// Cards held at a time, about 150 bytes each; 0: none are joined.
    pub cards: usize,
    /// The longest time from one node to the next, ns, for cards that are joined by their time stamps.
    pub proximity: Nanos,
    /// Sets in a row that must agree on a path before it is believed.
    pub confirmations: u8,
    /// The same where cards may have been lost.
    pub confirmations_after_loss: u8,
    /// Links between nodes, where neither stamps nor hop limits give an order.
    pub links: Vec<Link>,
    /// Flow IDs that are not the CRC-32C of the flow's 5-tuple.
    pub flow_ids: Vec<(u32, FlowKey)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout: 100_000_000,
            cards: 65_536,
            proximity: 1_000_000,
            confirmations: 2,
            confirmations_after_loss: 4,
            links: Vec::new(),
            flow_ids: Vec::new(),
        }
    }
}

/// Why cards that were held were not joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Partial {
    /// A hop limit that falls by more than one, or a link that leads elsewhere: the card of a node is missing.
    MissingHop,
    /// Neither stamps, hop limits nor links give an order.
    NoOrder,
    /// The stamps, or hop limit and order, contradict each other.
    Contradiction,
    /// Several packets whose cards cannot be told apart.
    Indistinct,
    /// Another path than the known one, met too seldom to be believed.
    Unconfirmed,
    /// Nodes of the known path are missing, and so are numbers of theirs.
    Lost,
    /// The flow's path is told by INT.
    Int,
    /// More hops than a flow's path has room for.
    TooLong,
    /// The flow was forgotten meanwhile.
    FlowGone,
}

impl Partial {
    /// How many there are.
    pub const COUNT: usize = 9;
    /// All, in numeric order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::MissingHop,
        Self::NoOrder,
        Self::Contradiction,
        Self::Indistinct,
        Self::Unconfirmed,
        Self::Lost,
        Self::Int,
        Self::TooLong,
        Self::FlowGone,
    ];

    /// The name in the API and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MissingHop => "missing_hop",
            Self::NoOrder => "no_order",
            Self::Contradiction => "contradiction",
            Self::Indistinct => "indistinct",
            Self::Unconfirmed => "unconfirmed",
            Self::Lost => "lost",
            Self::Int => "path_by_int",
            Self::TooLong => "too_long",
            Self::FlowGone => "flow_gone",
        }
    }
}

/// Why a card was not held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Unjoinable {
    /// Nothing in it tells an order: no stamps that can be compared, no hop limit, no links.
    NoOrder,
    /// The flow's path is told by INT.
    Int,
    /// It names no flow, or its flow found no room.
    NoFlow,
    /// It names no node.
    NoNode,
    /// The same card came before.
    Duplicate,
    /// There was no room for it.
    NoRoom,
}

impl Unjoinable {
    /// How many there are.
    pub const COUNT: usize = 6;
    /// All, in numeric order.
    pub const ALL: [Self; Self::COUNT] =
        [Self::NoOrder, Self::Int, Self::NoFlow, Self::NoNode, Self::Duplicate, Self::NoRoom];

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

/// What became of postcards. Each is counted once, when that is known: see [`Counts::balance`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Cards that came.
    pub cards: u64,
    /// Cards of sets that made a path, or told of one that was known.
    pub joined: u64,
    /// Those sets.
    pub sets: u64,
    /// Cards that were held and not joined, by reason.
    pub partial: [u64; Partial::COUNT],
    /// Cards that were not held, by reason.
    pub unjoinable: [u64; Unjoinable::COUNT],
    /// Cards that were held so far, and those of them that no longer are.
    pub held: u64,
    /// See `held`.
    pub released: u64,
    /// Cards of a Flow ID that stood for one flow which is known.
    pub resolved: u64,
    /// Cards of a Flow ID that stands for several.
    pub ambiguous: u64,
}

impl Counts {
    /// Cards in; joined cards and those still held out; the others by reason.
    pub fn balance(&self) -> crate::stats::Balance {
        let partial = Partial::ALL.iter().map(|reason| (reason.name(), self.partial[*reason as usize]));
        let unjoinable =
            Unjoinable::ALL.iter().map(|reason| (reason.name(), self.unjoinable[*reason as usize]));
        crate::stats::Balance {
            input: self.cards,
            output: self.joined + self.held - self.released,
            drops: partial.chain(unjoinable).filter(|(_, count)| *count > 0).collect(),
        }
    }

    pub(crate) fn combine(&mut self, other: &Self, mut with: impl FnMut(&mut u64, u64)) {
        for (one, other) in [
            (&mut self.cards, other.cards),
            (&mut self.joined, other.joined),
            (&mut self.sets, other.sets),
            (&mut self.held, other.held),
            (&mut self.released, other.released),
            (&mut self.resolved, other.resolved),
            (&mut self.ambiguous, other.ambiguous),
        ] {
            with(one, other);
        }
        self.partial.iter_mut().zip(other.partial).for_each(|(one, other)| with(one, other));
        self.unjoinable.iter_mut().zip(other.unjoinable).for_each(|(one, other)| with(one, other));
    }
}

/// A card that waits for the others of its packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Card {
    pub(crate) reading: Reading,
    pub(crate) units: Units,
    pub(crate) hop_limit: Option<u8>,
    /// 0: it has none.
    pub(crate) signature: u64,
    /// Found, while a flow's cards are looked at: other packets of it have this signature, too.
    pub(crate) shared: bool,
    /// Stamps, device units; [`crate::reading::NO_VALUE`] where there is none.
    pub(crate) ingress: u64,
    pub(crate) egress: u64,
    pub(crate) wide: bool,
    pub(crate) profile: u8,
    pub(crate) received: Nanos,
    pub(crate) origin: Origin,
}

/// By what the cards of a packet were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Signature,
    Time,
    /// The latest of each node.
    Flow,
}

impl Card {
    /// By what the others of its packet can be found. `None`: nothing tells their order.
    pub(crate) fn way(&self, linked: bool) -> Option<Way> {
        match (self.signature, self.has_time()) {
            (0, true) => Some(Way::Time),
            _ if self.shared => Some(Way::Time),
            (0, false) if self.hop_limit.is_some() || linked => Some(Way::Flow),
            (0, false) => None,
            _ if self.has_time() || self.hop_limit.is_some() || linked => Some(Way::Signature),
            _ => None,
        }
    }

    /// Did one report bring both?
    fn is_again(&self, other: &Self) -> bool {
        self.origin == other.origin && self.ingress == other.ingress && self.egress == other.egress
    }
}
