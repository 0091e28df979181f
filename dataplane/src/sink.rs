//! INT sink: reports the INT of a packet, removes it, and restores the packet as it was before the source (wire-formats 1.2,
//! "sink repair").

mod direct;

use wire::FlowKey;
use wire::int::Mode;
use wire::packet::Mark;

pub(crate) use self::direct::process as process_direct;

use crate::dta::Trigger;
use crate::export;
use crate::node::{IntOutcome, Node, PacketResult, verdict};
use crate::packet::{CarriedInt, OPTION_HEAD, ParsedPacket};
use crate::report::{Outbox, ReportedPacket};
use crate::sf::{self, Form};
use crate::transit::{self, PushResult};
use crate::visit::Visit;

/// Processes a packet with INT that leaves the domain, and returns its outcome.
pub(crate) fn process(
    node: &mut Node,
    frame: &mut Vec<u8>,
    flow: Option<&FlowKey>,
    carried: &CarriedInt,
    visit: &Visit,
    out: &mut Outbox,
) -> PacketResult {
    let verdict = verdict(carried.flags, visit);
    if let Some(sf) = carried.sf.filter(|sf| !sf.urgent) {
        if flow.is_none() {
            return PacketResult::forward(IntOutcome::Refused);
        }
        report_sf(node, frame, flow, carried, visit, out);
        return PacketResult {
            outcome: IntOutcome::Reported,
            verdict,
            sf: Some(sf),
        };
    }
    if carried.mode == Mode::Mx {
        let outcome = export::mx(node, frame, flow, carried, visit, out);
        strip(frame, carried);
        return PacketResult {
            outcome,
            verdict,
            sf: None,
        };
    }
    if suppresses(node, frame, flow, carried, visit) {
        strip(frame, carried);
        return PacketResult {
            outcome: IntOutcome::Filtered,
            verdict,
            sf: None,
        };
    }
    let bits = carried.bitmap & node.config.available;
    if node.report_dta(frame, flow, Some(carried), Trigger::Path, bits, visit) {
        strip(frame, carried);
        return PacketResult {
            outcome: IntOutcome::Reported,
            verdict,
            sf: carried.sf,
        };
    }
    if !node.config.format.metadata_on_stack {
        report_apart(node, frame, carried, visit, out);
        strip(frame, carried);
        return PacketResult {
            outcome: IntOutcome::Reported,
            verdict,
            sf: carried.sf,
        };
    }
    let (outcome, after) = report_on_stack(node, frame, carried, visit, out);
    strip(frame, &after);
    PacketResult {
        outcome,
        verdict: self::verdict(after.flags, visit),
        sf: after.sf,
    }
}

/// Reports the record that an SF-INT packet carries, with the sink's own record, and strips INT.
fn report_sf(
    node: &mut Node,
    frame: &mut Vec<u8>,
    flow: Option<&FlowKey>,
    carried: &CarriedInt,
    visit: &Visit,
    out: &mut Outbox,
) {
    let bits = carried.bitmap & node.config.available;
    if node.report_dta(frame, flow, Some(carried), Trigger::Sample, bits, visit) {
        return strip(frame, carried);
    }
    let metadata = visit.hop(node.id, u16::MAX);
    match node.config.sf.form {
        Form::Full => report_apart(node, frame, carried, visit, out),
        Form::Compact => node.exporter.compact_report(frame, carried, bits, &metadata, out),
        Form::Stack => {
            let mut record = [0; sf::MAX_RECORD];
            let record = &mut record[..usize::from(carried.hop_ml) * 4];
            visit.write_record(node.id, carried.bitmap, node.config.available, record);
            let after = transit::prepend(frame, carried, record);
            node.exporter.flow_report(frame, &after, None, &metadata, out);
            return strip(frame, &after);
        }
    }
    strip(frame, carried);
}

/// Reports a packet unchanged, with the switch's own record in the metadata of the report.
#[inline]
fn report_apart(node: &mut Node, frame: &[u8], carried: &CarriedInt, visit: &Visit, out: &mut Outbox) {
    let bits = carried.bitmap & node.config.available;
    let id = node.id;
    let packet = ReportedPacket::new(frame, carried);
    if !node.exporter.flow_report_direct(frame, &packet, bits, visit, out) {
        node.exporter
            .flow_report(frame, carried, Some(bits), &visit.hop(id, u16::MAX), out);
    }
}

/// Reports a packet with the switch's own record on its stack. Returns the outcome, and INT at its new position.
fn report_on_stack(
    node: &mut Node,
    frame: &mut Vec<u8>,
    carried: &CarriedInt,
    visit: &Visit,
    out: &mut Outbox,
) -> (IntOutcome, CarriedInt) {
    let metadata = visit.hop(node.id, u16::MAX);
    // This stack is only reported and never sent on a link, so the MTU does not matter.
    let pushed = transit::push(frame, carried, usize::MAX, |record| {
        node.write_record(carried, visit, record)
    });
    let after = ParsedPacket::parse(frame, &node.profile)
        .ok()
        .and_then(|parsed| parsed.carried)
        .unwrap_or(*carried);
    node.exporter.flow_report(frame, &after, None, &metadata, out);
    let outcome = match pushed {
        PushResult::Added => IntOutcome::Reported,
        PushResult::HopsExceeded => IntOutcome::HopsExceeded,
        PushResult::MtuExceeded => IntOutcome::MtuExceeded,
    };
    (outcome, after)
}

/// Returns whether the filters suppress the report of a packet.
#[inline]
fn suppresses(
    node: &mut Node,
    frame: &[u8],
    flow: Option<&FlowKey>,
    carried: &CarriedInt,
    visit: &Visit,
) -> bool {
    // A packet of SF-INT that reaches this point is urgent.
    if node.filters.is_empty() || carried.sf.is_some() {
        return false;
    }
    let Some(flow) = flow else { return false };
    let room = carried.remaining > 0 && carried.has_space(usize::from(carried.record_words()) * 4);
    if node.config.format.metadata_on_stack && !room {
        return false;
    }
    node.suppresses_path(
        flow,
        carried.flags,
        &carried.records(frame),
        carried.bitmap,
        visit,
    )
}

/// Removes INT from a packet and restores what the source changed: lengths, checksums, port, DSCP, protocol.
pub(crate) fn strip(frame: &mut Vec<u8>, carried: &CarriedInt) {
    let headers = &carried.headers;
    if headers.has_option() {
        return headers.remove_option(frame, carried.shim - OPTION_HEAD);
    }
    match (carried.mark, carried.original.proto) {
        // With NPT 2, the source inserted the UDP header together with INT.
        (Mark::Port, Some(proto)) => headers.remove_udp(frame, carried.end, proto),
        (Mark::Port, None) => {
            headers.splice(frame, carried.shim..carried.end, &[]);
            if let Some(port) = carried.original.port {
                headers.set_dst_port(frame, port);
            }
        }
        _ => {
            headers.splice(frame, carried.shim..carried.end, &[]);
            if let Some(dscp) = carried.original.dscp {
                headers.set_dscp(frame, dscp);
            }
        }
    }
}
