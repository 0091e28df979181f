//! Read-only views of the latest state of a flow and its hops, as plain values for the API and for rules.

use super::State;
use super::flows::{Flags, StoredFlow};
use super::hops::{HopState, PacketValues};
use super::node_metrics::SATURATED;
use super::series::{Key, LatestView, Series};
use crate::decode::{egress, implausible_value, present};
use crate::event::{Basis, FlowRow};

/// One hop of a flow: the values from the flow's latest packet, and newer values from other packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HopView {
    /// The node; `None` if it does not report its id.
    pub node: Option<u32>,
    /// Ingress interface of the flow at the node.
    pub ingress_if: Option<u16>,
    /// Egress interface of the flow at the node.
    pub egress_if: Option<u32>,
    /// Egress queue of the flow at the node.
    pub queue: Option<u8>,
    /// Time inside the node, ns (saturated at 4.28 s).
    pub hop_latency: Option<u64>,
    /// An implausible value in place of `hop_latency`, ns, to five digits: longer than
    /// [`Profile::max_hop_latency`](crate::Profile::max_hop_latency), or from timestamps of which the ingress is 0 or after the
    /// egress. It only counts in [`Stats::implausible_latencies`](crate::Stats::implausible_latencies).
    pub implausible_latency: Option<u64>,
    /// Occupancy of the queue, from this flow's packet.
    pub queue_occupancy: Option<u64>,
    /// Congestion status of the queue, from this flow's packet.
    pub queue_congestion: Option<u64>,
    /// Utilization of the egress link, millionths, from this flow's packet.
    pub link_utilization: Option<u64>,
    /// Latest occupancy of the queue, from any flow's packet.
    pub queue_latest: Option<LatestView>,
    /// Latest utilization of the link, millionths, from any flow's packet.
    pub link_latest: Option<LatestView>,
}

/// The latest state of a flow; borrows the collector.
#[derive(Clone, Copy, Debug)]
pub struct FlowView<'a> {
    /// The flow's row, as at the periodic push.
    pub row: FlowRow,
    /// Number of nodes of its path; more than [`FlowView::hops`] if not all could be stored.
    pub path_length: u16,
    /// True if the path is truncated because the memory for hops was full.
    pub truncated: bool,
    /// True if the path visits a node twice.
    pub looped: bool,
    /// The E bit of its latest report: the hop count was exceeded.
    pub hop_limit: bool,
    /// The M bit of its latest report: the MTU was exceeded.
    pub mtu: bool,
    /// True if the path is from a report that may lack hops: with the E or M bit, or from a node in the middle of the path.
    pub incomplete: bool,
    /// Basis of the order of its path: [`Basis::Measured`] if a packet carried it, otherwise the basis of joined postcards.
    pub path_basis: Basis,
    /// Bit i: rule i of the rule set is true.
    pub rules: u64,
    state: &'a State,
    states: &'a [HopState],
    values: &'a [PacketValues],
}

impl<'a> FlowView<'a> {
    /// Returns the nodes of the path in forwarding order, `u32::MAX` for one that does not report its id. Empty if only
    /// unjoined postcards arrived: these name nodes, but not their order.
    pub fn path(&self) -> impl ExactSizeIterator<Item = u32> + use<'a> {
        let on_path = if self.path_length == 0 { &[] } else { self.states };
        on_path.iter().map(|state| state.node)
    }

    /// Returns the hops in forwarding order or, without a path, in the order of their first reports.
    pub fn hops(&self) -> impl ExactSizeIterator<Item = HopView> + use<'a> {
        let state = self.state;
        self.states
            .iter()
            .zip(self.values)
            .map(move |(hop, values)| state.hop_view(hop, *values))
    }

    /// Returns the basis of the flow latency.
    pub fn basis(&self) -> Basis {
        self.row.basis
    }
}

/// Returns the latest value in a slot, or `None` if the slot was reassigned to another key since the flow's last report.
fn latest_in(series: &Series, slot: u32, expected: Key) -> Option<LatestView> {
    let (key, latest) = series.latest(slot)?;
    (key == expected).then_some(latest)
}

impl State {
    fn hop_view(&self, hop: &HopState, values: PacketValues) -> HopView {
        let egress = egress(hop.link, values.level_2());
        let ingress = (hop.link >> 16) as u16;
        let queue = present(hop.queue);
        HopView {
            node: present(hop.node),
            ingress_if: (!values.level_2() && ingress != u16::MAX).then_some(ingress),
            egress_if: present(egress),
            queue: queue.map(|queue| (queue >> 24) as u8),
            hop_latency: present(hop.latest)
                .filter(|latest| *latest <= SATURATED)
                .map(u64::from),
            implausible_latency: implausible_value(hop.latest),
            queue_occupancy: queue.map(|queue| u64::from(queue & 0x00ff_ffff)),
            queue_congestion: values.congestion(),
            link_utilization: values.utilization(),
            queue_latest: latest_in(
                &self.metrics.queues,
                hop.queue_slot,
                Key::of_queue(hop.node, hop.queue >> 24, egress),
            ),
            link_latest: latest_in(&self.metrics.links, hop.link_slot, Key::new(hop.node, egress)),
        }
    }

    pub(crate) fn view(&self, slot: u32) -> Option<FlowView<'_>> {
        let StoredFlow { flow, cold, states } = self.flows.get(slot)?;
        Some(FlowView {
            row: flow.row(cold),
            path_length: flow.path_length(),
            truncated: flow.flags.has(Flags::TRUNCATED),
            looped: flow.flags.has(Flags::LOOP),
            hop_limit: flow.flags.has(Flags::HOP_LIMIT),
            mtu: flow.flags.has(Flags::MTU),
            incomplete: flow.flags.has(Flags::INCOMPLETE),
            path_basis: flow.flags.order(),
            rules: self.detection.carried(cold.generation, flow.rules),
            state: self,
            states,
            values: self.flows.packet_values(slot),
        })
    }
}
