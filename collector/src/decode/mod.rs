//! Decoding: from the bytes of a datagram to the context of its reports and the values of each hop in the collector's units.

pub(crate) mod clock;
mod datagram;
mod head;
mod node_units;
mod reading;
mod shapes;
mod stack;

use wire::Hop;

use crate::config::{Profile, Units};

/// All ones: a value that is absent or unavailable.
pub(crate) const NO_VALUE: u64 = u64::MAX;

/// Returns the exact hop latency of `hop`, ns, if it is implausible under `profile`: see
/// [`HopView::implausible_latency`](crate::HopView::implausible_latency).
pub fn implausible_latency(hop: &Hop, profile: &Profile) -> Option<u64> {
    let units = Units::from(profile);
    let reported = hop
        .hop_latency
        .map(|latency| u64::from(latency) * u64::from(units.of_latency(hop)));
    let ingress = hop.ingress_ts.unwrap_or(NO_VALUE);
    let egress = hop.egress_ts.unwrap_or(NO_VALUE);
    clock::exact_implausible(reported, ingress, egress, hop.wide_ts, units)
}

/// Returns the time that a packet spent in a node, ns, as the collector reads it under `profile`: the reported hop latency, or
/// the egress less the ingress timestamp. `None` if it is unknown or implausible.
pub fn hop_latency(hop: &Hop, profile: &Profile) -> Option<u64> {
    let latency = Reading::of(hop, Units::from(profile)).latency;
    is_plausible(latency).then_some(latency)
}

pub(crate) use clock::{
    IMPLAUSIBLE, between, implausible_value, is_plausible, lacks_ingress, mark_implausible, narrow,
};
pub use datagram::Datagram;
pub(crate) use datagram::{DatagramContext, StreamSeq, is_stacked, is_whole_path, version};
pub(crate) use head::{EventContext, Head, Origin, Signals};
pub(crate) use node_units::NodeUnits;
pub(crate) use reading::{
    ABSENT, EndTimestamps, Hops, MAX_HOPS, ReadHops, Reading, egress, join_interfaces, present,
};
pub(crate) use shapes::Shapes;
pub(crate) use stack::{
    All, Fixed, ItemOffsets, LatestPlan, Plan, Plans, RecordKind, StackReport, Stacked, fixed_records,
};
