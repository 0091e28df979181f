//! Describes decoded packets as the test vectors expect it: a line of JSON per report or packet, with keys in a fixed order.
//!
//! A field that was not on the wire has no key; one that was carried as unavailable (all ones) is `null`.

use crate::object::{Object, error};
use crate::vectors::{Kind, Vector};
use crate::{dta, lldp};
use wire::aggregate::{Aggregate, PacketFields, Postcard, Summary, SummaryMetric};
use wire::int::{Flags as IntFlags, Int, Mode, Sf};
use wire::ioam::{Node, OptionList, Trace};
use wire::packet::{Contents, Encapsulation, Mark, Original};
use wire::report::{Annotations, Flags};
use wire::{Decoder, Hop, Ioam, Items, Profile, Report, ethernet, ipv4, udp};

/// Decodes a vector and returns its lines, to compare with the vector's `expect`.
pub fn of(vector: &Vector) -> Vec<String> {
    meaning(vector.kind, &vector.bytes, &vector.profile)
}

/// Decodes bytes and returns one line per report or packet; a refusal is a line with `error`.
pub fn meaning(kind: Kind, bytes: &[u8], profile: &Profile) -> Vec<String> {
    match kind {
        Kind::Frame => match wire::datagram(bytes) {
            Ok(datagram) => payload(datagram.payload, profile),
            Err(refusal) => vec![error(refusal)],
        },
        Kind::Payload => payload(bytes, profile),
        Kind::Packet => {
            vec![wire::packet::contents(bytes, profile).map_or_else(error, |found| packet(&found))]
        }
        Kind::Shim => vec![shim(bytes, profile)],
        Kind::Aggregate => vec![aggregate(bytes)],
        Kind::AggregateFrame => match wire::datagram(bytes) {
            Ok(datagram) => vec![aggregate(datagram.payload)],
            Err(refusal) => vec![error(refusal)],
        },
        Kind::Dta => vec![dta::report(bytes)],
        Kind::DtaControl => vec![dta::control(bytes)],
        Kind::Roce => vec![dta::roce(bytes)],
        Kind::Lldp => vec![lldp::frame(bytes)],
    }
}

fn payload(bytes: &[u8], profile: &Profile) -> Vec<String> {
    let mut decoder = Decoder::new(*profile);
    decoder
        .reports(bytes)
        .map(|result| result.map_or_else(error, |found| report(&found)))
        .collect()
}

fn shim(bytes: &[u8], profile: &Profile) -> String {
    let frame = around_shim(bytes);
    match wire::packet::contents(&frame, profile) {
        Ok(Contents {
            int: Some(int),
            location: Some(location),
            ..
        }) => {
            let mut out = Object::new();
            out.int(&int);
            out.original(&location.original);
            // The stack has the last hop first; lines list hops in forwarding order.
            out.hops((0..int.stack.len()).rev().map(|i| int.stack.hop(i)));
            out.source_only(&int);
            out.finish()
        }
        Ok(_) => String::from("{}"),
        Err(refusal) => error(refusal),
    }
}

/// Builds an Ethernet frame with UDP around an INT shim, marked so that decoders find it.
pub fn around_shim(bytes: &[u8]) -> Vec<u8> {
    // A shim of 2.x whose NPT is not 0 is found by the UDP port; all others by the DSCP.
    let by_port = bytes
        .first()
        .is_some_and(|first| first >> 2 & 3 != 0 && first >> 4 != 0);
    let mut frame = vec![0; 42];
    ethernet::Repr {
        ethertype: 0x0800,
        ..ethernet::Repr::default()
    }
    .emit(&mut frame);
    let ip = ipv4::Repr {
        proto: 17,
        tos: if by_port { 0 } else { Profile::DSCP << 2 },
        total_len: 28 + bytes.len() as u16,
        ttl: 64,
        ..ipv4::Repr::default()
    };
    ip.emit(&mut frame[14..]);
    let dst_port = if by_port { Profile::INT_UDP_PORT } else { 9 };
    udp::Repr {
        src_port: 9,
        dst_port,
        len: 8 + bytes.len() as u16,
        checksum: 0,
    }
    .emit(&mut frame[34..]);
    frame.extend_from_slice(bytes);
    frame
}

/// Describes a telemetry report as one line.
pub fn report(report: &Report<'_>) -> String {
    let mut out = Object::new();
    out.text("version", report.version.name());
    if report.has_node_id() {
        out.nullable("node_id", report.node_id);
    }
    out.number("hw_id", report.hw_id);
    out.number("seq", report.seq);
    let set = |(flag, _): &(Flags, &str)| report.flags.contains(*flag);
    out.list(
        "flags",
        Flags::NAMES
            .iter()
            .filter(|flag| set(flag))
            .map(|(_, name)| format!("\"{name}\"")),
    );
    if let Some(kind) = report.report_type {
        out.number("report_type", kind);
    }
    out.flow("flow", report.flow);
    out.flow("tunnel", report.tunnel);
    if let Some(id) = report.flow_id {
        out.number("flow_id", id);
    }
    if let Some(int) = &report.int {
        out.text("int_version", int.version.name());
        out.sf(int);
    }
    if report.is_traced() && report.ioam.is_some_and(|ioam| !ioam.has_node_ids()) {
        out.hops_without_path(report.hops());
    } else {
        out.hops(report.hops());
    }
    if report.is_single_record() && report.has_metadata() {
        out.raw("reporter_metadata", &hop(&report.metadata_hop()));
    }
    if report.has_drop_reason() {
        out.nullable("drop_reason", report.drop_reason);
    }
    if let Some(gap) = report.gap {
        let inner = format!(
            "{{\"source\":{},\"ts\":{},\"seq\":{},\"count\":{}}}",
            gap.source, gap.ts, gap.seq, gap.count
        );
        out.raw("gap", &inner);
    }
    out.ioam(report.ioam, report.ioam_options);
    if let Some(refusal) = report.int_refused {
        out.text("int_refused", refusal.name());
    }
    if let Some(refusal) = report.tunnel_refused {
        out.text("tunnel_refused", refusal.name());
    }
    let set = |(mark, _): &(Annotations, &str)| report.annotations.contains(*mark);
    let annotations: Vec<_> = Annotations::NAMES.iter().filter(|mark| set(mark)).collect();
    if !annotations.is_empty() {
        out.list(
            "annotations",
            annotations.iter().map(|(_, name)| format!("\"{name}\"")),
        );
    }
    out.finish()
}

/// Describes an aggregate of postcards as one line.
pub fn aggregate(payload: &[u8]) -> String {
    let aggregate = match Aggregate::parse(payload) {
        Ok(aggregate) => aggregate,
        Err(refusal) => return error(refusal),
    };
    let header = aggregate.header();
    let mut out = Object::new();
    out.text("aggregate", header.kind.name());
    out.raw("by_timer", &header.by_timer.to_string());
    out.number("aggregator", header.aggregator);
    out.number("seq", header.sequence);
    for (key, scope) in [("node_id", header.node_scope), ("flow_id", header.flow_scope)] {
        if let Some(scope) = scope {
            out.number(key, scope);
        }
    }
    if header.kind.is_correlated() {
        out.list(
            "summaries",
            aggregate.summaries().map(|summary| summary_object(&summary)),
        );
    } else {
        let postcards = aggregate.postcards_with_packets();
        out.list(
            "postcards",
            postcards.map(|(postcard, packet)| postcard_object(&postcard, packet)),
        );
    }
    out.finish()
}

fn postcard_object(postcard: &Postcard, packet: Option<PacketFields>) -> String {
    let mut out = Object::new();
    out.nullable("node_id", postcard.node());
    out.nullable("flow_id", postcard.flow_id());
    out.nullable("ingress_ts", postcard.ingress_ts());
    out.nullable("egress_ts", postcard.egress_ts());
    out.nullable("queue_id", postcard.queue().map(|(id, _)| id));
    out.nullable("queue_occupancy", postcard.queue().map(|(_, length)| length));
    if let Some(packet) = packet {
        out.nullable("ingress_if", packet.ingress_if);
        out.nullable("egress_if", packet.egress_if);
        out.nullable("hop_limit", packet.hop_limit);
        out.raw("entered", &packet.entered.to_string());
        out.raw("left", &packet.left.to_string());
        out.nullable("digest", Some(packet.digest).filter(|digest| *digest != 0));
    }
    out.finish()
}

fn summary_object(summary: &Summary) -> String {
    let mut out = Object::new();
    match summary.metric {
        SummaryMetric::HopLatency => out.text("metric", "hop_latency"),
        SummaryMetric::QueueLength => out.text("metric", "queue_occupancy"),
        SummaryMetric::Other(number) => out.number("metric", number),
    }
    out.number("min", summary.min);
    out.number("max", summary.max);
    out.number("sum", summary.sum);
    out.number("count", summary.count);
    out.number("avg", summary.average());
    out.finish()
}

/// Describes a packet of the data plane as one line.
pub fn packet(contents: &Contents<'_>) -> String {
    let mut out = Object::new();
    out.flow("flow", contents.flow);
    out.flow("tunnel", contents.tunnel);
    if let (Some(int), Some(location)) = (&contents.int, &contents.location) {
        out.int(int);
        out.text("encapsulation", encapsulation(location.encapsulation));
        out.text("recognised", mark(location.mark));
        out.list(
            "offsets",
            [location.start, location.header, location.stack, location.end].iter(),
        );
        out.original(&location.original);
    }
    match (&contents.int, contents.ioam.filter(|_| contents.is_traced())) {
        (_, Some(ioam)) if !ioam.has_node_ids() => {
            out.hops_without_path((0..ioam.hop_count()).map(|i| ioam.hop(i)));
        }
        (_, Some(ioam)) => out.hops((0..ioam.hop_count()).map(|i| ioam.hop(i))),
        (Some(int), None) => out.hops((0..int.stack.len()).rev().map(|i| int.stack.hop(i))),
        (None, None) => out.hops(std::iter::empty()),
    }
    if let Some(int) = &contents.int {
        out.source_only(int);
    }
    out.ioam(contents.ioam, contents.ioam_options);
    let odd = [
        (contents.destination, "\"destination\""),
        (contents.is_incomplete(), "\"incomplete\""),
        (contents.several_traces, "\"several_traces\""),
        (contents.int.is_some_and(|int| int.is_replica()), "\"replica\""),
    ];
    if odd.iter().any(|(set, _)| *set) {
        out.list(
            "annotations",
            odd.iter().filter(|(set, _)| *set).map(|(_, name)| name),
        );
    }
    out.finish()
}

fn encapsulation(encapsulation: Encapsulation) -> &'static str {
    match encapsulation {
        Encapsulation::Tcp => "tcp",
        Encapsulation::Udp => "udp",
        Encapsulation::Gpe => "gpe",
        Encapsulation::Geneve => "geneve",
        Encapsulation::Gre => "gre",
        Encapsulation::HopByHop => "hop_by_hop",
    }
}

fn mark(mark: Mark) -> &'static str {
    match mark {
        Mark::Port => "port",
        Mark::Dscp => "dscp",
        Mark::Probe => "probe",
        Mark::Tunnel => "tunnel",
        Mark::Option => "option",
    }
}

impl Object {
    fn int(&mut self, int: &Int<'_>) {
        const NAMES: [(IntFlags, &str); 3] = [
            (IntFlags::DISCARD, "\"discard\""),
            (IntFlags::HOPS_EXCEEDED, "\"hops_exceeded\""),
            (IntFlags::MTU_EXCEEDED, "\"mtu_exceeded\""),
        ];
        self.text("int_version", int.version.name());
        self.sf(int);
        self.text("mode", if int.mode == Mode::Md { "md" } else { "mx" });
        self.list(
            "int_flags",
            NAMES
                .iter()
                .filter(|(flag, _)| int.flags.contains(*flag))
                .map(|x| x.1),
        );
        self.number("hop_ml", int.hop_ml);
        self.number("remaining", int.remaining);
        self.number("bitmap", int.bitmap);
    }

    fn sf(&mut self, int: &Int<'_>) {
        let Some(Sf {
            urgent,
            state,
            packet_id,
        }) = int.sf
        else {
            return;
        };
        let name = state.name();
        self.raw(
            "sf",
            &format!("{{\"state\":\"{name}\",\"urgent\":{urgent},\"packet_id\":{packet_id}}}"),
        );
    }

    fn original(&mut self, original: &Original) {
        let mut inner = Self::new();
        let values = [
            ("port", original.port.map(u64::from)),
            ("proto", original.proto.map(u64::from)),
            ("dscp", original.dscp.map(u64::from)),
        ];
        for (key, value) in values {
            if let Some(value) = value {
                inner.number(key, value);
            }
        }
        if original.tunnel_inserted {
            inner.raw("tunnel_inserted", "true");
        }
        if !inner.is_empty() {
            self.raw("original", &inner.finish());
        }
    }

    fn source_only(&mut self, int: &Int<'_>) {
        if !int.source_only.is_empty() {
            let hex: String = int.source_only.iter().map(|byte| format!("{byte:02x}")).collect();
            self.text("source_only", &hex);
        }
    }

    /// Adds the IOAM option that the path comes from, and all options if there are several.
    fn ioam(&mut self, ioam: Option<Ioam<'_>>, all: Option<OptionList<'_>>) {
        let Some(ioam) = ioam else { return };
        self.raw("ioam", &ioam_option(&ioam));
        if let Some(all) = all {
            self.list("ioam_options", all.iter().map(|option| ioam_option(&option)));
        }
    }

    /// Adds the flags of a trace, and the node data that a hop has no items for, in forwarding order.
    fn trace_data(&mut self, trace: &Trace<'_>) {
        let flags: Vec<_> = trace.flag_names().map(|name| format!("\"{name}\"")).collect();
        if !flags.is_empty() {
            self.list("flags", flags.iter());
        }
        let nodes: Vec<_> = trace
            .nodes()
            .filter(Node::has_more_than_items)
            .map(|node| data(&node))
            .collect();
        if !nodes.is_empty() {
            self.list("data", nodes.iter().rev());
        }
    }

    /// Adds the path (node IDs) and the hops, in forwarding order.
    fn hops(&mut self, hops: impl Iterator<Item = Hop>) {
        let hops: Vec<_> = hops.collect();
        self.list(
            "path",
            hops.iter()
                .map(|hop| hop.node_id.map_or("null".to_owned(), |id| id.to_string())),
        );
        self.list("hops", hops.iter().map(hop));
    }

    /// Adds hops that carry no node IDs, with an empty path.
    fn hops_without_path(&mut self, hops: impl Iterator<Item = Hop>) {
        self.raw("path", "[]");
        self.list("hops", hops.map(|each| hop(&each)));
    }
}

/// Describes the data of a trace's node that a hop has no items for.
fn data(node: &Node<'_>) -> String {
    let mut out = Object::new();
    let mut put = |key: &str, carried: bool, value: Option<u64>| {
        if carried {
            out.nullable(key, value);
        }
    };
    put("node_id", node.has_wide_node_id(), node.node_id());
    put(
        "hop_limit",
        node.has(0) || node.has(8),
        node.hop_limit().map(u64::from),
    );
    put("seconds", node.has(2), node.seconds().map(u64::from));
    put("fraction", node.has(3), node.fraction().map(u64::from));
    put(
        "namespace_data",
        node.has(5),
        node.namespace_data().map(u64::from),
    );
    put("namespace_data_wide", node.has(10), node.wide_namespace_data());
    if let Some((schema, data)) = node.opaque() {
        put("schema", true, schema.map(u64::from));
        out.text(
            "opaque",
            &data.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        );
    }
    out.finish()
}

/// Describes each hop of a report as a JSON object.
pub fn hops(report: &Report<'_>) -> Vec<String> {
    report.hops().map(|each| hop(&each)).collect()
}

/// Describes a hop as a JSON object: the items that it carried, `null` for unavailable ones.
pub fn hop(hop: &Hop) -> String {
    let mut out = Object::new();
    let has = |item| hop.carried.contains(item);
    if has(Items::NODE_ID) {
        out.nullable("node_id", hop.node_id);
    }
    if has(Items::INTERFACES) {
        out.nullable("ingress_if", hop.ingress_if);
        out.nullable("egress_if", hop.egress_if);
    }
    if has(Items::HOP_LATENCY) {
        out.nullable("hop_latency", hop.hop_latency);
    }
    if has(Items::QUEUE) || has(Items::QUEUE_ID) || has(Items::QUEUE_CONGESTION) {
        out.nullable("queue_id", hop.queue_id);
    }
    if has(Items::QUEUE) {
        out.nullable("queue_occupancy", hop.queue_occupancy);
    }
    if has(Items::QUEUE_CONGESTION) {
        out.nullable("queue_congestion", hop.queue_congestion);
    }
    for (name, queue) in [
        ("congestion_queue_id", hop.congestion_queue_id),
        ("drop_queue_id", hop.drop_queue_id),
    ] {
        if let Some(queue) = hop.other_queue(queue) {
            out.number(name, queue);
        }
    }
    if has(Items::INGRESS_TS) {
        out.nullable("ingress_ts", hop.ingress_ts);
    }
    if has(Items::EGRESS_TS) {
        out.nullable("egress_ts", hop.egress_ts);
    }
    if has(Items::L2_INTERFACES) {
        out.nullable("l2_ingress_if", hop.l2_ingress_if);
        out.nullable("l2_egress_if", hop.l2_egress_if);
    }
    if has(Items::TX_UTILIZATION) {
        out.nullable("tx_utilization", hop.tx_utilization);
    }
    if has(Items::BUFFER) {
        out.nullable("buffer_id", hop.buffer_id);
        out.nullable("buffer_occupancy", hop.buffer_occupancy);
    }
    if has(Items::CHECKSUM_COMPLEMENT) {
        out.nullable("checksum_complement", hop.checksum_complement);
    }
    out.finish()
}

/// Describes one IOAM option as a JSON object.
fn ioam_option(ioam: &Ioam<'_>) -> String {
    let mut inner = Object::new();
    match ioam {
        Ioam::Trace(trace) => {
            inner.number("namespace", trace.namespace);
            inner.number("trace_type", trace.trace_type);
            inner.number("nodes", trace.nodes().count() as u64);
            inner.trace_data(trace);
        }
        Ioam::Export(export) => {
            inner.number("namespace", export.namespace);
            inner.number("trace_type", export.trace_type);
            for (key, value) in [("flow_id", export.flow_id), ("seq", export.seq)] {
                if let Some(value) = value {
                    inner.number(key, value);
                }
            }
        }
    }
    inner.finish()
}
