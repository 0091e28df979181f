//! Postcards joined into paths: the postcards that several nodes send of one packet contain, in order, what one INT report
//! contains.
//!
//! The values of a postcard's node are applied when it comes. Beside that it is **pending**, with its flow, until the others
//! of its packet have come:
//!
//! - postcards with the packet's head in them are of one packet when their signatures are equal (see [`wire::report::PacketDigest`]),
//!   unless a node has several with the same hop limit: then several packets look alike, as those of a sender that repeats itself do;
//! - postcards with timestamps of clocks that agree are of one packet when each begins where the one before ends, give or take
//!   a link ([`PostcardConfig::proximity`]); several packets in one such cluster are distinguished only if each postcard of a node lies
//!   between its packet's postcard of the node before and that of the next packet;
//! - of others the latest of each node within [`PostcardConfig::timeout`] stand for the flow, not for a packet, as long as all of
//!   them agree on the way.
//!
//! A set is **joined** when it is proved that no node is missing ([`order`]). The path that the flow already has is confirmed at
//! once; another one must occur several times in a row, [`PostcardConfig::confirmations`]. What is not joined is counted by
//! reason, and gives no path.

mod conclude;
mod joiner;
mod order;
mod packets;

use crate::state::pending::Postcard;

pub(crate) use joiner::Postcards;

/// How the postcards of a packet are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MatchedBy {
    Signature,
    Time,
    /// The latest of each node.
    Flow,
}

impl MatchedBy {
    /// How the others of the packet of `postcard` can be found. `None`: nothing gives their order.
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
