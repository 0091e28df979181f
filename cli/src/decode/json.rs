//! JSON output of `hopwise decode`: an object per report or data packet. `docs/reference/cli-json.md` documents the fields.

use std::net::IpAddr;

use wire::ioam::{Ioam, Node, OptionList, Trace};
use wire::report::{Annotations, Flags, Report};
use wire::{FlowKey, Hop, Items};
use wire::{int::Sf, packet::Contents};

use super::{RefusedReport, plausibility::SourcePlausibility};
use terminal::json::{self, Object, Text};

/// Appends a report as a line of JSON.
pub(super) fn report(
    out: &mut String,
    ts: u64,
    source: IpAddr,
    report: &Report<'_>,
    plausibility: SourcePlausibility<'_>,
) {
    json::object(out, |o| {
        o.field("ts", ts)
            .field("source", Text(source))
            .field("version", report.version.name());
        if report.has_node_id() {
            o.field("node_id", report.node_id);
        }
        o.field("hw_id", report.hw_id).field("seq", report.seq);
        o.field("flags", flags(report.flags))
            .present("report_type", report.report_type);
        flow(o, "flow", report.flow.as_ref());
        flow(o, "tunnel", report.tunnel.as_ref());
        o.present("flow_id", report.flow_id);
        o.present("int_version", report.int.map(|int| int.version.name()));
        sf(o, report.int.and_then(|int| int.sf));
        hops(
            o,
            report.ioam.filter(|_| report.is_traced()),
            || report.hops(),
            plausibility,
        );
        if report.is_single_record() && report.has_metadata() {
            o.object("reporter_metadata", |o| {
                items(o, &report.metadata_hop(), plausibility)
            });
        }
        if report.has_drop_reason() {
            o.field("drop_reason", report.drop_reason);
        }
        if let Some(gap) = report.gap {
            o.object("gap", |o| {
                o.field("source", gap.source)
                    .field("ts", gap.ts)
                    .field("seq", gap.seq)
                    .field("count", gap.count);
            });
        }
        ioam(o, report.ioam, report.ioam_options);
        o.present("int_refused", report.int_refused.map(|refusal| refusal.name()));
        let tunnel_refused = report.tunnel_refused.map(|refusal| refusal.name());
        o.present("tunnel_refused", tunnel_refused);
        annotations(o, report.annotations);
    });
    out.push('\n');
}

/// Writes the INT or IOAM of one data packet.
pub(super) fn packet(
    out: &mut String,
    ts: u64,
    contents: &Contents<'_>,
    plausibility: SourcePlausibility<'_>,
) {
    json::object(out, |o| {
        o.field("ts", ts);
        flow(o, "flow", contents.flow.as_ref());
        flow(o, "tunnel", contents.tunnel.as_ref());
        o.present("int_version", contents.int.map(|int| int.version.name()));
        sf(o, contents.int.and_then(|int| int.sf));
        let packet_hops = super::hops(contents);
        hops(
            o,
            contents.ioam.filter(|_| contents.is_traced()),
            || packet_hops.iter().copied(),
            plausibility,
        );
        ioam(o, contents.ioam, contents.ioam_options);
        let packet_annotations = Annotations::default()
            .with(Annotations::DESTINATION, contents.destination)
            .with(Annotations::INCOMPLETE, contents.is_incomplete())
            .with(Annotations::SEVERAL_TRACES, contents.several_traces)
            .with(
                Annotations::REPLICA,
                contents.int.is_some_and(|int| int.is_replica()),
            );
        annotations(o, packet_annotations);
    });
    out.push('\n');
}

/// Writes a refused frame or report.
pub(super) fn refused(out: &mut String, refused: &RefusedReport) {
    json::object(out, |o| {
        o.field("ts", refused.ts)
            .present("source", refused.source.map(Text));
        if let Some(peeked) = &refused.peeked {
            o.field("version", peeked.version.name())
                .present("node_id", peeked.node_id);
            o.field("hw_id", peeked.hw_id).field("seq", peeked.seq);
            flow(o, "flow", peeked.flow.as_ref());
        }
        o.field("error", refused.refusal.name());
    });
    out.push('\n');
}

fn flags(flags: Flags) -> Vec<&'static str> {
    Flags::NAMES
        .iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .map(|(_, name)| *name)
        .collect()
}

/// Writes the annotations, if there are any.
fn annotations(object: &mut Object<'_>, annotations: Annotations) {
    let set = Annotations::NAMES
        .iter()
        .filter(|(mark, _)| annotations.contains(*mark));
    let names: Vec<&str> = set.map(|(_, name)| *name).collect();
    if !names.is_empty() {
        object.field("annotations", names);
    }
}

/// Writes the fields of SF-INT, and nothing for other INT.
fn sf(object: &mut Object<'_>, sf: Option<Sf>) {
    let Some(Sf {
        urgent,
        state,
        packet_id,
    }) = sf
    else {
        return;
    };
    object.object("sf", |o| {
        o.field("state", state.name())
            .field("urgent", urgent)
            .field("packet_id", packet_id);
    });
}

/// Writes the IOAM option that gives the path, and all options if there are several.
fn ioam(object: &mut Object<'_>, ioam: Option<Ioam<'_>>, all: Option<OptionList<'_>>) {
    let Some(ioam) = ioam else { return };
    object.object("ioam", |o| ioam_option(o, &ioam));
    if let Some(all) = all {
        object.objects("ioam_options", all.iter(), |option, o| ioam_option(o, &option));
    }
}

fn ioam_option(o: &mut Object<'_>, ioam: &Ioam<'_>) {
    match ioam {
        Ioam::Trace(trace) => {
            o.field("namespace", trace.namespace)
                .field("trace_type", trace.trace_type);
            o.field("nodes", trace.nodes().count());
            trace_data(o, trace);
        }
        Ioam::Export(export) => {
            o.field("namespace", export.namespace)
                .field("trace_type", export.trace_type);
            o.present("flow_id", export.flow_id).present("seq", export.seq);
        }
    }
}

/// Writes the flags of a trace, and the node data that a [`Hop`] has no field for, in forwarding order. Bit numbers are those
/// of the IOAM trace type (RFC 9197).
fn trace_data(o: &mut Object<'_>, trace: &Trace<'_>) {
    let flags: Vec<&str> = trace.flag_names().collect();
    if !flags.is_empty() {
        o.field("flags", flags);
    }
    let mut nodes: Vec<Node<'_>> = trace.nodes().filter(Node::has_more_than_items).collect();
    nodes.reverse();
    if nodes.is_empty() {
        return;
    }
    o.objects("data", nodes, |node, o| {
        if node.has_wide_node_id() {
            o.field("node_id", node.node_id());
        }
        for (name, value) in [
            (
                "hop_limit",
                (node.has(0) || node.has(8)).then_some(node.hop_limit().map(u64::from)),
            ),
            ("seconds", node.has(2).then_some(node.seconds().map(u64::from))),
            ("fraction", node.has(3).then_some(node.fraction().map(u64::from))),
            (
                "namespace_data",
                node.has(5).then_some(node.namespace_data().map(u64::from)),
            ),
            (
                "namespace_data_wide",
                node.has(10).then_some(node.wide_namespace_data()),
            ),
        ] {
            o.present(name, value);
        }
        if let Some((schema, data)) = node.opaque() {
            o.field("schema", schema);
            o.field(
                "opaque",
                data.iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect::<String>()
                    .as_str(),
            );
        }
    });
}

fn flow(object: &mut Object<'_>, name: &str, key: Option<&FlowKey>) {
    let Some(key) = key else { return };
    object.object(name, |o| {
        let (src, dst) = view::ends(key);
        o.field("src", src).field("dst", dst);
        o.present("sport", key.src_port())
            .present("dport", key.dst_port())
            .field("proto", key.proto());
    });
}

/// Writes `path` and `hops` in forwarding order. `path` is empty for an IOAM trace without node ids.
fn hops<I: Iterator<Item = Hop>>(
    object: &mut Object<'_>,
    ioam: Option<Ioam<'_>>,
    hops: impl Fn() -> I,
    plausibility: SourcePlausibility<'_>,
) {
    let has_node_ids = ioam.is_none_or(|ioam| ioam.has_node_ids());
    object.field(
        "path",
        hops()
            .filter(|_| has_node_ids)
            .map(|hop| hop.node_id)
            .collect::<Vec<_>>(),
    );
    object.objects("hops", hops(), |hop, o| items(o, &hop, plausibility));
}

/// Writes the metadata of a hop. An item that is present but unavailable is `null`; an item outside the bitmap is left out.
fn items(o: &mut Object<'_>, hop: &Hop, plausibility: SourcePlausibility<'_>) {
    if hop.carried.contains(Items::NODE_ID) {
        o.field("node_id", hop.node_id);
    }
    if hop.carried.contains(Items::INTERFACES) {
        o.field("ingress_if", hop.ingress_if)
            .field("egress_if", hop.egress_if);
    }
    if hop.carried.contains(Items::HOP_LATENCY) {
        o.field("hop_latency", hop.hop_latency);
    }
    o.present("implausible_latency", plausibility.implausible(hop));
    if hop.carried.contains(Items::QUEUE)
        || hop.carried.contains(Items::QUEUE_CONGESTION)
        || hop.carried.contains(Items::QUEUE_ID)
    {
        o.field("queue_id", hop.queue_id);
    }
    if hop.carried.contains(Items::QUEUE) {
        o.field("queue_occupancy", hop.queue_occupancy);
    }
    if hop.carried.contains(Items::QUEUE_CONGESTION) {
        o.field("queue_congestion", hop.queue_congestion);
    }
    o.present("congestion_queue_id", hop.other_queue(hop.congestion_queue_id));
    o.present("drop_queue_id", hop.other_queue(hop.drop_queue_id));
    if hop.carried.contains(Items::INGRESS_TS) {
        o.field("ingress_ts", hop.ingress_ts);
    }
    if hop.carried.contains(Items::EGRESS_TS) {
        o.field("egress_ts", hop.egress_ts);
    }
    if hop.carried.contains(Items::L2_INTERFACES) {
        o.field("l2_ingress_if", hop.l2_ingress_if)
            .field("l2_egress_if", hop.l2_egress_if);
    }
    if hop.carried.contains(Items::TX_UTILIZATION) {
        o.field("tx_utilization", hop.tx_utilization);
    }
    if hop.carried.contains(Items::BUFFER) {
        o.field("buffer_id", hop.buffer_id)
            .field("buffer_occupancy", hop.buffer_occupancy);
    }
    if hop.carried.contains(Items::CHECKSUM_COMPLEMENT) {
        o.field("checksum_complement", hop.checksum_complement);
    }
}
