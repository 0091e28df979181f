//! The fields of a report other than its hops, and its identity.

use wire::FlowKey;

use super::ABSENT;
use crate::event::{Basis, Nanos};
use crate::hash::fold;

/// Identity of a report, from which record ids are computed: they are equal in two collectors that received the same report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// The node id, or a hash of the address if the format carries none.
    pub(crate) reporter: u64,
    pub(crate) seq: u32,
    pub(crate) stamp: u32,
    pub(crate) index: u16,
    pub(crate) hw_id: u8,
    pub(crate) version: u8,
    /// A hash of the source address; 0 if there is none. Not part of the identity.
    pub(crate) sender: u32,
}

impl Origin {
    /// The origin of events that are not from a report.
    pub(crate) const NONE: Self = Self {
        reporter: 0,
        seq: 0,
        stamp: 0,
        index: 0,
        hw_id: 0,
        version: 0,
        sender: 0,
    };

    pub(crate) fn hash(&self) -> u64 {
        let small = u64::from(self.index) << 16 | u64::from(self.hw_id) << 8 | u64::from(self.version);
        fold(
            self.reporter ^ small << 32,
            u64::from(self.seq) << 32 | u64::from(self.stamp),
        )
    }
}

/// The context of an event: a report, or a flow at a given time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventContext {
    pub(crate) ts: Nanos,
    pub(crate) origin: Origin,
    /// Valid only if `has_flow`. Not an `Option`, which would cost a second copy: most reports are about a flow.
    pub(crate) key: FlowKey,
    pub(crate) has_flow: bool,
    /// Index of the profile that read the report.
    pub(crate) profile: u8,
}

impl EventContext {
    pub(crate) fn flow(&self) -> Option<FlowKey> {
        self.has_flow.then_some(self.key)
    }

    /// A hash of the report's identity and its flow, for events that name no flow. Devices without a clock use the same identities again
    /// after a restart, but rarely for the same flow. The Flow ID is the same whether or not the rest of the flow is known.
    pub(crate) fn identity(&self) -> u64 {
        let flow = if self.has_flow {
            u64::from(self.key.flow_id()) | 1 << 32
        } else {
            0
        };
        fold(self.origin.hash(), flow)
    }
}

/// The fields of a report apart from its hops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) about: EventContext,
    /// The flow's hash under the collector's seed.
    pub(crate) hash: u64,
    /// Whether the flow's path can be read from the hops.
    pub(crate) whole_path: bool,
    /// E and M, and whether hops may be missing.
    pub(crate) signals: Signals,
    /// The basis of the order of the hops.
    pub(crate) basis: Basis,
    /// Remaining hop count of the packet's INT-MD header, less the hops that are no records of the packet, or [`Head::UNKNOWN`].
    pub(crate) remaining: i16,
    /// Whether it is the intermediate report of a node that has removed the records of a packet.
    pub(crate) relieves: bool,
    /// Whether the packet's hop limit is used up: others may go further.
    pub(crate) expires: bool,
}

impl Head {
    /// A remaining hop count that is not known.
    pub(crate) const UNKNOWN: i16 = i16::MIN;

    /// The hop count with which the source of the packet began, if its `hops` hops are all that have added a record.
    pub(crate) fn initial(&self, hops: usize) -> Option<u16> {
        let remaining = Some(self.remaining).filter(|remaining| *remaining != Self::UNKNOWN)?;
        u16::try_from(i32::from(remaining) + hops as i32).ok()
    }

    /// Whether a packet with this hop limit goes no further than to the next router.
    #[inline(always)]
    pub(crate) const fn is_last_hop(limit: u8) -> bool {
        limit <= 1
    }

    /// The signals of the report, which may lack hops also because the packet expired.
    #[inline(always)]
    pub(crate) const fn all_signals(&self) -> Signals {
        self.signals.or_incomplete(self.expires)
    }

    /// Whether `node` is the one that has sent the report.
    pub(crate) fn is_reporter(&self, node: u32) -> bool {
        node != ABSENT && self.about.origin.reporter == u64::from(node)
    }

    /// A head without a report.
    pub(crate) fn none() -> Self {
        Self {
            about: EventContext {
                ts: 0,
                origin: Origin::NONE,
                key: FlowKey::default(),
                has_flow: false,
                profile: 0,
            },
            hash: 0,
            whole_path: false,
            signals: Signals::default(),
            basis: Basis::Measured,
            remaining: Self::UNKNOWN,
            relieves: false,
            expires: false,
        }
    }
}

/// The E and M bits of an INT header, and whether the hops of a report may be fewer than those of the path.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Signals(u8);

impl Signals {
    /// E: a hop could not add data because the hop limit was reached.
    pub(crate) const HOP_LIMIT: Self = Self(1 | Self::INCOMPLETE.0);
    /// Hops may be missing: E, M, or Q, as a node in the middle of the path may report its queue.
    pub(crate) const INCOMPLETE: Self = Self(0x80);

    /// The bits: E is 1, M is 2, hops may be missing is 0x80.
    #[inline(always)]
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// Whether hops may be missing.
    #[inline(always)]
    pub(crate) const fn is_incomplete(self) -> bool {
        self.0 & Self::INCOMPLETE.0 != 0
    }

    /// Whether E or M is set.
    pub(crate) const fn exceeded(self) -> bool {
        self.0 & !Self::INCOMPLETE.0 != 0
    }

    /// The same, of a report whose hops may be too few for another reason.
    #[inline(always)]
    pub(crate) const fn or_incomplete(self, incomplete: bool) -> Self {
        Self(self.0 | (incomplete as u8) << 7)
    }
}

impl From<wire::int::Flags> for Signals {
    #[inline(always)]
    fn from(flags: wire::int::Flags) -> Self {
        let hops_exceeded = u8::from(flags.contains(wire::int::Flags::HOPS_EXCEEDED));
        let exceeded = hops_exceeded | u8::from(flags.contains(wire::int::Flags::MTU_EXCEEDED)) << 1;
        Self(exceeded).or_incomplete(exceeded != 0)
    }
}
