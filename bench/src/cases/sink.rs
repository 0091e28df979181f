//! Cost of the sink's filter, in process: INT-MD packets through a sink, with and without it.

use dataplane::filter::{Filter, Units};
use dataplane::report::Outbox;
use dataplane::switch::{Config, Visit};
use dataplane::{Filters, Switch, Watch};
use detect::{Algorithm, Detector, Match, Metric};
use wire::{ethernet, ipv4, udp};

use super::harness::{Conditions, Failure, Measured, Outcome, Plan, measure, median};
use terminal::CliError;

/// Flows, with one packet each, which is sent repeatedly.
const FLOWS: u16 = 1000;
/// Nodes of the path, including the sink.
const NODES: u32 = 5;
/// Bytes of UDP payload.
const PAYLOAD: usize = 200;

/// `switch-filter`: a packet at the sink, always reported, with a per-hop filter that checks it.
pub(super) fn filter(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let packets = packets()?;
    let filter = |threshold| Filter {
        flows: Match::default(),
        detector: Detector { algorithm: Algorithm::PerHop, metric: Metric::QueueOccupancy, threshold },
    };
    let without = run(plan, &packets, None)?;
    let filtered = run(plan, &packets, Some(filter(0)))?;
    let suppressed = run(plan, &packets, Some(filter(1_000_000)))?;
    let median = |measured: &Measured| median(measured.ns_per_op.clone());
    let included = "frame parsing, the filter, the report, stripping INT, a copy of the frame; no I/O";
    let conditions = Conditions::of("one packet at the sink, filtered and reported", included)
        .number("hops", NODES)
        .number("items_per_hop", Watch::USUAL.count_ones())
        .number("flows", FLOWS)
        .number("frame_bytes", packets.first().map_or(0, Vec::len))
        .ratio("ns_without_filter", median(&without))
        .ratio("ns_added_by_filter", median(&filtered) - median(&without))
        .ratio("ns_when_hidden", median(&suppressed))
        .on_core(&filtered);
    Ok(Outcome::new(name, filtered.ns_per_op, conditions))
}

fn run(plan: &Plan, packets: &[Vec<u8>], filter: Option<Filter>) -> Result<Measured, Failure> {
    let mut sink = switch(NODES)?;
    let refused = |error: dataplane::filter::FilterError| CliError::new(error.to_string());
    let filters = Filters::new(filter.into_iter().collect(), 4096, Units::default()).map_err(refused)?;
    sink.set_filters(filters);
    let (mut outbox, mut frame) = (Outbox::default(), Vec::with_capacity(2048));
    let mut now = 0;
    measure(plan, || {
        for packet in packets {
            frame.clear();
            frame.extend_from_slice(packet);
            outbox.clear();
            now += 1000;
            sink.forward(&mut frame, &visit(NODES, now), &mut outbox);
        }
        Ok(packets.len() as u64)
    })
}

fn switch(node: u32) -> Result<Switch, CliError> {
    let watch = Watch::new(Match::default());
    Switch::new(node, Config::default(), watch.into()).map_err(|error| CliError::new(error.to_string()))
}

/// The sink's queue differs from packet to packet.
fn visit(node: u32, now: u64) -> Visit {
    Visit {
        ingress_if: 1,
        egress_if: 2,
        ingress_ts: now,
        egress_ts: now + 700,
        queue_id: 1,
        queue_occupancy: 100 + (now / 1000 % 2) as u32,
        tx_utilization: 5000,
        buffer_occupancy: 0,
        l2_interfaces: [0; 2],
        mtu: 1500,
        from_edge: node == 1,
        to_edge: node == NODES,
    }
}

/// One packet of each flow, as it reaches the sink.
fn packets() -> Result<Vec<Vec<u8>>, CliError> {
    let mut nodes = (1..NODES).map(switch).collect::<Result<Vec<_>, _>>()?;
    let mut outbox = Outbox::default();
    let mut packet = |flow: u16| {
        let mut frame = plain(flow);
        for (switch, node) in nodes.iter_mut().zip(1..) {
            switch.forward(&mut frame, &visit(node, u64::from(flow) * 2000), &mut outbox);
        }
        frame
    };
    Ok((0..FLOWS).map(&mut packet).collect())
}

fn plain(flow: u16) -> Vec<u8> {
    let len = (udp::HEADER_LEN + PAYLOAD) as u16;
    let l4 = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
    let mut frame = vec![0; l4 + usize::from(len)];
    let (dst, src) = ([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
    ethernet::Repr { dst, src, ethertype: ethernet::ethertype::IPV4 }.emit(&mut frame);
    let total_len = len + ipv4::HEADER_LEN as u16;
    ipv4::Repr {
        src: [10, 0, 0, 1],
        dst: [10, 0, 1, 1],
        proto: 17,
        tos: 0,
        total_len,
        ident: 0,
        fragment: 0,
        ttl: 64,
        options: &[],
    }
    .emit(&mut frame[ethernet::HEADER_LEN..]);
    udp::Repr { src_port: 10_000 + flow, dst_port: 80, len, checksum: 0 }.emit(&mut frame[l4..]);
    frame
}
