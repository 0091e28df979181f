//! Joins postcards (INT-XD reports of a single hop) into paths. The postcards of one packet, in forwarding order, have the same
//! content as one INT-MD report.
//!
//! The values of a postcard are applied to its node on arrival. The postcard then stays **pending** with its flow until the
//! others of its packet arrive. Postcards of one packet are matched in one of three ways ([`MatchedBy`]):
//!
//! - By signature: postcards that include the packet's first bytes match if their signatures are equal (see
//!   [`wire::report::PacketDigest`]). If a node has two of them with the same hop limit, several packets are identical, for
//!   example because a sender repeats itself.
//! - By time: with synchronised clocks, a packet enters a node when it leaves the previous one, plus the delay of a link
//!   ([`PostcardConfig::proximity`]). Packets in close succession are told apart only if no other assignment of their postcards
//!   is possible.
//! - By flow: otherwise the latest postcard of each node within [`PostcardConfig::timeout`] represents the flow, not a packet,
//!   if all postcards of a node agree on its interfaces.
//!
//! A set of postcards is **settled** when it is complete or its timeout is over: it is either **joined** or discarded. It is
//! joined if it is proven that no node is missing ([`order`]). The flow's current path is confirmed at once; a new path must
//! occur several times in a row ([`PostcardConfig::confirmations`]). Discarded postcards give no path, and are counted by
//! reason.

mod conclude;
mod joiner;
mod order;
mod packets;

use crate::state::pending::Postcard;

pub(crate) use joiner::Postcards;

/// The property by which the postcards of one packet are matched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MatchedBy {
    Signature,
    Time,
    /// The latest postcard of each node represents the flow.
    Flow,
}

impl MatchedBy {
    /// Returns what [`MatchedBy::of`] returns, or [`MatchedBy::Flow`] if nothing gives the order.
    fn of_one(postcard: &Postcard, linked: bool) -> Self {
        Self::of(postcard, linked).unwrap_or(Self::Flow)
    }

    /// Returns the property by which the other postcards of the packet can be matched, or `None` if nothing gives their order.
    fn of(postcard: &Postcard, linked: bool) -> Option<Self> {
        let has_time = postcard.has_time();
        match (postcard.signature, has_time) {
            (0, true) => Some(Self::Time),
            _ if postcard.shared => Some(Self::Time),
            (0, false) if postcard.hop_limit.is_some() || linked => Some(Self::Flow),
            (0, false) => None,
            _ if has_time || postcard.hop_limit.is_some() || linked => Some(Self::Signature),
            _ => None,
        }
    }
}
