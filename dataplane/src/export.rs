//! Nodes that report only their own record: postcards (INT-XD), and INT-MX, in which the packet carries the instructions.

use wire::FlowKey;

use crate::dta::Trigger;
use crate::node::{IntOutcome, Node, PacketResult};
use crate::packet::{CarriedInt, Headers};
use crate::report::{Outbox, PostcardSubject};
use crate::visit::Visit;
use crate::watchlist::Watch;

/// Sends a postcard about a packet. The packet itself is not changed.
pub(crate) fn postcard(
    node: &mut Node,
    frame: &[u8],
    flow: &FlowKey,
    headers: &Headers,
    watch: &Watch,
    visit: &Visit,
    out: &mut Outbox,
) -> PacketResult {
    let bits = watch.bitmap & node.config.available;
    if node.suppresses_record(Some(flow), bits, visit) {
        return PacketResult::forward(IntOutcome::Filtered);
    }
    if !node.report_dta(frame, Some(flow), None, Trigger::Hop, bits, visit) {
        let postcard = PostcardSubject {
            frame,
            bits,
            metadata: &visit.hop(node.id, u16::MAX),
            from_edge: visit.from_edge,
            to_edge: visit.to_edge,
        };
        node.exporter.postcard(flow, headers, &postcard, out);
    }
    PacketResult::forward(IntOutcome::Reported)
}

/// Reports this node's record of a packet with INT-MX.
pub(crate) fn mx(
    node: &mut Node,
    frame: &[u8],
    flow: Option<&FlowKey>,
    carried: &CarriedInt,
    visit: &Visit,
    out: &mut Outbox,
) -> IntOutcome {
    let bits = carried.bitmap & node.config.available;
    if node.suppresses_record(flow, bits, visit) {
        return IntOutcome::Filtered;
    }
    if !node.report_dta(frame, flow, Some(carried), Trigger::Hop, bits, visit) {
        let postcard = PostcardSubject {
            frame,
            bits,
            metadata: &visit.hop(node.id, u16::MAX),
            from_edge: visit.from_edge,
            to_edge: visit.to_edge,
        };
        node.exporter.postcard_of_mx(carried, &postcard, out);
    }
    IntOutcome::Reported
}
