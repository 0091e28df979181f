//! Postcards joined into paths: the cards that several nodes send of one packet, put together and in order, say what one INT
//! report says.
//!
//! What a card says of its node is taken when it comes. Beside that it is **held**, with its flow, until the others of its
//! packet have come:
//!
//! - cards with the packet's head in them are of one packet when their signatures are equal (see [`identity`]), unless a node
//!   has several with the same hop limit: then several packets look alike, as those of a sender that repeats itself do;
//! - cards with time stamps of clocks that agree are of one packet when each begins where the one before ends, give or take
//!   a link ([`PostcardConfig::proximity`]); several packets in one such cluster are told apart only if each card of a node lies
//!   between its packet's card of the node before and that of the next packet;
//! - of others the latest of each node within [`PostcardConfig::timeout`] stand for the flow, not for a packet.
//!
//! A set is **joined** when its order is known ([`order`]) and its path is believed. The path that the flow already has is
//! believed at once. Another one must be met several times in a row: [`PostcardConfig::confirmations`], or
//! [`PostcardConfig::confirmations_after_loss`] while numbers are missing in the streams of the senders, and always when the path
//! is part of the known one, which is what a lost card looks like; and then not while the numbers of a node that it lacks
//! have a gap. What is not joined is counted by reason, and concludes nothing.

mod conclude;
pub(crate) mod directory;
mod held;
pub(crate) mod identity;
pub(crate) mod order;

use crate::config::Units;
use crate::event::Nanos;
use crate::reading::Reading;
use crate::tell::Origin;

pub(crate) use held::Held;

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
