//! The fields of a report apart from its hops, and the identity from which record ids are computed.

use wire::FlowKey;

use super::ABSENT;
use crate::event::{Basis, Nanos};
use crate::hash::fold;

/// Identity of a report. Two collectors that received the same report compute the same record ids from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// Node id, or a hash of the source address if the format has none.
    pub(crate) reporter: u64,
    pub(crate) seq: u32,
    pub(crate) stamp: u32,
    pub(crate) index: u16,
    pub(crate) hw_id: u8,
    pub(crate) version: u8,
    /// Hash of the source address, 0 if there is none. Not part of the identity.
    pub(crate) sender: u32,
}

impl Origin {
    /// Origin of events that do not come from a report.
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
    /// Valid only if `has_flow`. Not an `Option`, which would cost an extra copy: most reports are about a flow.
    pub(crate) key: FlowKey,
    pub(crate) has_flow: bool,
    /// Index of the profile that read the report.
    pub(crate) profile: u8,
}

impl EventContext {
    pub(crate) fn flow(&self) -> Option<FlowKey> {
        self.has_flow.then_some(self.key)
    }

    /// Returns a hash of the report's identity and its flow, for events without a flow. Devices without a clock reuse
    /// identities after a restart, but rarely for the same flow. The Flow ID is the same whether or not the rest of the flow is
    /// known.
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
    /// True if the hops are the flow's path.
    pub(crate) whole_path: bool,
    /// E and M bits, and whether hops may be missing.
    pub(crate) signals: Signals,
    /// The basis of the order of the hops.
    pub(crate) basis: Basis,
    /// Remaining hop count of the packet's INT-MD header, less the hops that are not records of the packet, or
    /// [`Head::UNKNOWN`].
    pub(crate) remaining: i16,
    /// True for the intermediate report of a node that removed the records from a packet.
    pub(crate) is_intermediate: bool,
    /// True if the packet's TTL or hop limit is used up; other packets may go further.
    pub(crate) expires: bool,
}

impl Head {
    /// Null value of a remaining hop count.
    pub(crate) const UNKNOWN: i16 = i16::MIN;

    /// Returns the initial hop count at the packet's source, if no other hops than these `hops` have added a record.
    pub(crate) fn initial(&self, hops: usize) -> Option<u16> {
        let remaining = Some(self.remaining).filter(|remaining| *remaining != Self::UNKNOWN)?;
        u16::try_from(i32::from(remaining) + hops as i32).ok()
    }

    /// Returns true if a packet with this TTL or hop limit goes no further than the next router.
    #[inline(always)]
    pub(crate) const fn is_last_hop(limit: u8) -> bool {
        limit <= 1
    }

    /// Returns the signals of the report. Hops may also be missing because the packet expired.
    #[inline(always)]
    pub(crate) const fn all_signals(&self) -> Signals {
        self.signals.or_incomplete(self.expires)
    }

    /// Returns true if `node` sent the report.
    pub(crate) fn is_reporter(&self, node: u32) -> bool {
        node != ABSENT && self.about.origin.reporter == u64::from(node)
    }

    /// Returns a head that belongs to no report.
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
            is_intermediate: false,
            expires: false,
        }
    }
}

/// The E and M bits of an INT header, and whether the hops of a report may be fewer than the path has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Signals(u8);

impl Signals {
    /// E: a hop could not add data because the hop count was exceeded.
    pub(crate) const HOP_LIMIT: Self = Self(1 | Self::INCOMPLETE.0);
    /// Hops may be missing: E, M, or Q (a node in the middle of the path may report its queue).
    pub(crate) const INCOMPLETE: Self = Self(0x80);

    /// Returns the bits: 1 for E, 2 for M, 0x80 if hops may be missing.
    #[inline(always)]
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// Returns true if hops may be missing.
    #[inline(always)]
    pub(crate) const fn is_incomplete(self) -> bool {
        self.0 & Self::INCOMPLETE.0 != 0
    }

    /// Returns true if E or M is set.
    pub(crate) const fn exceeded(self) -> bool {
        self.0 & !Self::INCOMPLETE.0 != 0
    }

    /// Returns these signals, with hops possibly missing if `incomplete`.
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
