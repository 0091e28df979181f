//! Aggregates of an aggregator: postcards are processed as if each had arrived alone, summaries are merged.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use collector::config::PostcardConfig;
use collector::event::Basis;
use collector::stats::{Partial, Unjoinable};
use collector::{Clocks, Collector, Config, Datagram, Output, Profile, Removed, Rollup};
use testkit::reports::{Log, START, Sent, config, flow};
use wire::aggregate::{
    HEADER_LEN, Header, Kind, LONG_POSTCARD_LEN, PacketFields, Postcard, Summary, SummaryMetric,
};
use wire::{FlowKey, Refusal};

const MS: u64 = 1_000_000;

struct Server {
    collector: Collector,
    log: Log,
    now: u64,
    sequence: u32,
}

impl Server {
    fn new(clocks: Clocks, settings: PostcardConfig) -> Self {
        let default_profile = Profile {
            clocks,
            ..Profile::default()
        };
        let config = Config {
            postcards: settings,
            default_profile,
            ..config()
        };
        Self {
            collector: Collector::new(config),
            log: Log::default(),
            now: START,
            sequence: 0,
        }
    }

    fn free() -> Self {
        Self::new(Clocks::Free, PostcardConfig::default())
    }

    fn datagram<'a>(&self, payload: &'a [u8]) -> Datagram<'a> {
        Datagram {
            payload,
            source: [7; 16],
            src_port: 1,
            listener: 0,
            received: self.now,
        }
    }

    fn deliver(&mut self, payload: &[u8]) {
        self.now += 1000;
        let datagram = self.datagram(payload);
        self.collector.handle_aggregates(&[datagram], &mut self.log);
        assert!(self.collector.stats().decode_balance().is_balanced());
        assert!(self.collector.stats().state_balance().is_balanced());
        assert!(self.collector.stats().postcards.balance().is_balanced());
    }

    fn report(&mut self, payload: &[u8]) {
        self.now += 1000;
        let datagram = self.datagram(payload);
        self.collector.handle(&[datagram], &mut self.log);
    }

    fn postcards(&mut self, kind: Kind, postcards: &[Postcard]) {
        self.sequence += 1;
        let bytes = agg(kind, self.sequence, postcards);
        self.deliver(&bytes);
    }

    /// The same, with the fields of the packets.
    fn long_postcards(&mut self, kind: Kind, postcards: &[(Postcard, PacketFields)]) {
        self.sequence += 1;
        let short: Vec<_> = postcards.iter().map(|(postcard, _)| *postcard).collect();
        let mut header = Header::parse(&agg(kind, self.sequence, &short)).unwrap();
        (header.packet_fields, header.record_len) = (true, LONG_POSTCARD_LEN as u16);
        let mut bytes = vec![0; HEADER_LEN + postcards.len() * LONG_POSTCARD_LEN];
        header.emit(&mut bytes);
        for ((postcard, packet), record) in postcards
            .iter()
            .zip(bytes[HEADER_LEN..].chunks_exact_mut(LONG_POSTCARD_LEN))
        {
            postcard.emit(record);
            packet.emit(record);
        }
        self.deliver(&bytes);
    }

    fn summaries(&mut self, scope: (Kind, Option<u32>, Option<u32>), summaries: &[Summary]) {
        self.sequence += 1;
        let bytes = cor(scope, self.sequence, summaries);
        self.deliver(&bytes);
    }

    fn pass(&mut self, nanos: u64) {
        let end = self.now + nanos;
        while self.now < end {
            self.now = (self.now + 10 * MS).min(end);
            self.collector.tick(self.now, &mut self.log);
        }
    }

    fn collected(&mut self) -> String {
        std::mem::take(&mut self.log.text)
    }
}

fn agg(kind: Kind, sequence: u32, postcards: &[Postcard]) -> Vec<u8> {
    let header = Header {
        kind,
        by_timer: false,
        packet_fields: false,
        count: postcards.len() as u16,
        record_len: 20,
        aggregator: 99,
        sequence,
        node_scope: kind.node_scope().then(|| postcards[0].node),
        flow_scope: kind.flow_scope().then(|| postcards[0].flow_id),
    };
    let mut bytes = vec![0; HEADER_LEN + postcards.len() * 20];
    header.emit(&mut bytes);
    for (postcard, record) in postcards.iter().zip(bytes[HEADER_LEN..].chunks_exact_mut(20)) {
        postcard.emit(record);
    }
    bytes
}

fn cor(
    (kind, node_scope, flow_scope): (Kind, Option<u32>, Option<u32>),
    sequence: u32,
    all: &[Summary],
) -> Vec<u8> {
    let count = all.len() as u16;
    let header = Header {
        kind,
        by_timer: true,
        packet_fields: false,
        count,
        record_len: 24,
        aggregator: 99,
        sequence,
        node_scope,
        flow_scope,
    };
    let mut bytes = vec![0; HEADER_LEN + all.len() * 24];
    header.emit(&mut bytes);
    for (summary, record) in all.iter().zip(bytes[HEADER_LEN..].chunks_exact_mut(24)) {
        summary.emit(record);
    }
    bytes
}

fn postcard(node: u32, flow_id: u32, ingress: u64, latency: u32) -> Postcard {
    let ingress_ts = ingress as u32;
    let egress_ts = ingress_ts.wrapping_add(latency);
    Postcard {
        node,
        flow_id,
        ingress_ts,
        egress_ts,
        queue_id: 1,
        queue_length: 42,
    }
}

fn summary(metric: SummaryMetric, min: u32, max: u32, sum: u64, count: u32) -> Summary {
    Summary {
        metric,
        min,
        max,
        sum,
        count,
    }
}

/// The example of the design (4.3): three postcards of three nodes.
#[test]
fn an_aggregate_updates_the_same_state_as_its_postcards() {
    let mut server = Server::free();
    let postcards = [
        postcard(21, 0xf10a, 0xd0e0_f000, 1500),
        postcard(22, 0xf10a, 0xd0e1_0388, 800),
        postcard(21, 0xf10b, 5, 700),
    ];
    server.postcards(Kind::Agg, &postcards);
    let view = server.collector.flow(&FlowKey::of_id(0xf10a)).unwrap();
    let hops: Vec<_> = view
        .hops()
        .map(|hop| (hop.node, hop.hop_latency, hop.queue_occupancy))
        .collect();
    assert_eq!(
        hops,
        [(Some(21), Some(1500), Some(42)), (Some(22), Some(800), Some(42))]
    );
    assert_eq!(
        (view.path().count(), view.row.reports),
        (0, 2),
        "free clocks give no order"
    );
    assert!(server.collector.flow(&FlowKey::of_id(0xf10b)).is_some());
    let stats = server.collector.stats();
    assert_eq!(
        (stats.aggregates, stats.aggregate_postcards, stats.flow_reports),
        (1, 3, 3)
    );
    assert_eq!(stats.postcards.unjoinable[Unjoinable::NoOrder as usize], 3);
}

#[test]
fn postcards_of_an_aggregate_count_in_the_units_of_their_nodes() {
    let micro = Profile {
        timestamp_unit_ns: 1000,
        ..Profile::default()
    };
    let mut server = Server::free();
    server.collector = Collector::new(Config {
        node_profiles: vec![(22, micro)],
        ..config()
    });
    server.postcards(
        Kind::Agg,
        &[postcard(21, 0xf10a, 5, 1500), postcard(22, 0xf10a, 9, 800)],
    );
    let view = server.collector.flow(&FlowKey::of_id(0xf10a)).unwrap();
    let hops: Vec<_> = view.hops().map(|hop| (hop.node, hop.hop_latency)).collect();
    assert_eq!(hops, [(Some(21), Some(1500)), (Some(22), Some(800_000))]);
}

#[test]
fn postcards_of_clocks_that_agree_are_joined_over_a_wrap_of_the_stamps() {
    let mut server = Server::new(Clocks::Synchronised, PostcardConfig::default());
    for packet in 0..3_u64 {
        let t = 0xffff_f000 + packet * 2_000_000;
        // As in Agg_{N,F}: the postcards of each node separately, not in the order of the path.
        for (node, from, latency) in [(9, 6000, 500), (7, 0, 1000), (8, 3000, 2000)] {
            let packet = PacketFields {
                hop_limit: Some(64 - (from / 3000) as u8),
                entered: node == 7,
                left: node == 9,
                ..PacketFields::default()
            };
            server.long_postcards(
                Kind::AggNodeFlow,
                &[(postcard(node, 5, t + from, latency), packet)],
            );
        }
    }
    server.pass(300 * MS);
    let view = server.collector.flow(&FlowKey::of_id(5)).unwrap();
    assert_eq!(view.path().collect::<Vec<_>>(), [7, 8, 9]);
    assert_eq!(
        (view.row.flow_latency, view.row.basis),
        (Some(6500), Basis::Measured)
    );
    assert_eq!(view.path_basis, Basis::HopLimit);
}

#[test]
fn a_digest_joins_postcards_of_clocks_that_do_not_agree() {
    let mut server = Server::free();
    for digest in [1, 3] {
        for (node, hop) in [(9, 2), (7, 0), (8, 1)] {
            let ports = (Some(hop * 2 + 1), Some(hop * 2 + 2));
            let packet = PacketFields {
                ingress_if: ports.0,
                egress_if: ports.1,
                hop_limit: Some(64 - hop as u8),
                entered: node == 7,
                left: node == 9,
                digest,
            };
            server.long_postcards(
                Kind::Agg,
                &[(postcard(node, 5, 77 * u64::from(node), 100), packet)],
            );
        }
    }
    let view = server.collector.flow(&FlowKey::of_id(5)).unwrap();
    assert_eq!(view.path().collect::<Vec<_>>(), [7, 8, 9], "at once");
    assert_eq!(
        (view.row.flow_latency, view.row.basis),
        (Some(300), Basis::HopSum)
    );
    let ports: Vec<_> = view.hops().map(|hop| (hop.ingress_if, hop.egress_if)).collect();
    assert_eq!(
        ports,
        [(Some(1), Some(2)), (Some(3), Some(4)), (Some(5), Some(6))]
    );
}

#[test]
fn postcards_without_their_packets_prove_no_path() {
    let mut server = Server::new(Clocks::Synchronised, PostcardConfig::default());
    for packet in 0..8_u64 {
        let t = packet * 2_000_000;
        // The first node's postcard arrives too late; the others are consecutive.
        for (node, from) in [(8, 3000), (9, 6000)] {
            server.postcards(Kind::AggNodeFlow, &[postcard(node, 5, t + from, 1000)]);
        }
        server.pass(200 * MS);
    }
    let view = server.collector.flow(&FlowKey::of_id(5)).unwrap();
    assert_eq!((view.path().count(), view.hops().count()), (0, 2));
    let counts = server.collector.stats().postcards;
    assert_eq!(
        (counts.partial[Partial::Unproven as usize], counts.received),
        (16, 16)
    );
}

#[test]
fn an_id_stands_for_the_flow_that_is_known_to_have_it() {
    let mut server = Server::free();
    let key = flow(1, false);
    let id = key.flow_id();
    server.postcards(Kind::Agg, &[postcard(4, id, 0, 10)]);
    assert!(
        server.collector.flow(&FlowKey::of_id(id)).is_some(),
        "not known yet"
    );
    server.report(&Sent::default().v10());
    let reports = server.collector.flow(&key).unwrap().row.reports;
    server.postcards(Kind::Agg, &[postcard(4, id, 0, 10), postcard(4, id, 0, 11)]);
    assert_eq!(server.collector.flow(&key).unwrap().row.reports, reports + 2);
    assert_eq!(server.collector.stats().postcards.resolved, 2);
}

/// A filter of reports does not see aggregates: it must pass on the next report with INT.
#[test]
fn the_first_postcard_in_an_aggregate_after_int_makes_a_filter_forget_the_path() {
    let (mut server, key) = (Server::free(), flow(1, false));
    server.collector.track_removals(4);
    let mut removed = Vec::new();
    let packet = PacketFields {
        hop_limit: Some(64),
        ..PacketFields::default()
    };
    for _ in 0..2 {
        server.report(&Sent::default().v10());
        for _ in 0..2 {
            server.long_postcards(Kind::Agg, &[(postcard(4, key.flow_id(), 0, 10), packet)]);
        }
        server.collector.drain_removed(|one| removed.push(one));
    }
    assert_eq!(removed, [Removed::Path(key), Removed::Path(key)]);
}

#[test]
fn an_id_of_two_flows_stands_for_neither() {
    let mut server = Server::free();
    // A CRC is linear: some bits of an address compensate the change of a port.
    let key = flow(1, false);
    let of = |src_port: u16, dst: [u8; 4]| FlowKey::v4([10, 0, 0, 1], dst, Some((src_port, 80)), 17);
    let zero = of(0, [0; 4]).flow_id();
    let change = of(1001, [10, 0, 0, 2]).flow_id() ^ of(2002, [10, 0, 0, 2]).flow_id();
    let mut columns: Vec<(u32, u32)> = (0..32)
        .map(|bit| (of(0, (1_u32 << bit).to_be_bytes()).flow_id() ^ zero, 1 << bit))
        .collect();
    let (mut left, mut address) = (change, u32::from_be_bytes([10, 0, 0, 2]));
    for bit in (0..32).rev() {
        let Some(at) = columns.iter().position(|(sum, _)| sum >> bit == 1) else {
            continue;
        };
        let (sum, bits) = columns.swap_remove(at);
        for other in columns.iter_mut().filter(|(other, _)| other >> bit & 1 == 1) {
            *other = (other.0 ^ sum, other.1 ^ bits);
        }
        if left >> bit & 1 == 1 {
            (left, address) = (left ^ sum, address ^ bits);
        }
    }
    let twin = of(2002, address.to_be_bytes());
    assert_eq!((left, twin.flow_id()), (0, key.flow_id()));
    for key in [key, twin] {
        let node = testkit::reports::node(1);
        let mut bytes = Sent {
            hops: vec![node],
            ..Sent::default()
        }
        .v10();
        let dst = bytes.windows(4).position(|bytes| bytes == [10, 0, 0, 2]).unwrap();
        let std::net::IpAddr::V4(address) = key.dst() else {
            unreachable!()
        };
        bytes[dst..dst + 4].copy_from_slice(&address.octets());
        bytes[dst + 4..dst + 6].copy_from_slice(&key.src_port().unwrap().to_be_bytes());
        server.report(&bytes);
        assert!(server.collector.flow(&key).is_some(), "{key}");
    }
    server.postcards(Kind::Agg, &[postcard(4, key.flow_id(), 0, 10)]);
    assert_eq!(server.collector.stats().postcards.ambiguous, 1);
    assert!(server.collector.flow(&FlowKey::of_id(key.flow_id())).is_some());
}

#[test]
fn the_configuration_names_flows() {
    let key = flow(3, true);
    let settings = PostcardConfig {
        flow_ids: vec![(77, key)],
        ..PostcardConfig::default()
    };
    let mut server = Server::new(Clocks::Free, settings);
    server.postcards(Kind::Agg, &[postcard(4, 77, 0, 10)]);
    assert!(server.collector.flow(&key).is_some());
}

#[derive(Default)]
struct Rollups(Vec<Rollup>);

impl Output for Rollups {
    fn rollup(&mut self, rollup: &Rollup) {
        self.0.push(*rollup);
    }
}

#[test]
fn summaries_are_merged_exactly() {
    let mut server = Server::free();
    let scope = (Kind::CorNode, Some(21), None);
    server.summaries(
        scope,
        &[
            summary(SummaryMetric::HopLatency, 700, 1500, 3000, 3),
            summary(SummaryMetric::QueueLength, 3, 42, 52, 3),
            summary(SummaryMetric::Other(9), 3, 42, 52, 3),
        ],
    );
    server.postcards(Kind::Agg, &[postcard(21, 1, 1000, 100)]);
    server.summaries(scope, &[summary(SummaryMetric::HopLatency, 50, 60, 110, 2)]);
    let mut rollups = Rollups::default();
    server.collector.finish(server.now, &mut rollups);
    let reported: Vec<_> = rollups
        .0
        .iter()
        .filter(|rollup| rollup.interval == 1)
        .map(|r| {
            (
                r.metric.name(),
                r.node,
                r.queue,
                (r.count, r.min, r.max, r.sum),
                r.p50.is_some(),
            )
        })
        .collect();
    assert_eq!(
        reported,
        [
            ("hop_latency", Some(21), None, (6, 50, 1500, 3210), false),
            ("queue_occupancy", Some(21), None, (3, 3, 42, 52), false),
            ("queue_occupancy", Some(21), Some(1), (1, 42, 42, 42), true),
        ]
    );
    let stats = server.collector.stats();
    assert_eq!((stats.summaries, stats.node_reports), (4, 4));
}

#[test]
fn implausible_latencies_of_aggregates_are_counted_and_in_no_other_number() {
    let mut server = Server::free();
    server.postcards(
        Kind::Agg,
        &[postcard(21, 5, 0, 700), postcard(22, 5, 9, 2_000_000_000)],
    );
    let shown = |server: &Server| -> Vec<_> {
        let view = server.collector.flow(&FlowKey::of_id(5)).unwrap();
        view.hops()
            .map(|hop| (hop.node.unwrap(), hop.hop_latency, hop.implausible_latency))
            .collect()
    };
    let about_2_s = 2_000_000_000 >> 13 << 13; // 18 bits are kept
    assert_eq!(
        shown(&server),
        [(21, None, Some(700)), (22, None, Some(about_2_s))]
    );
    // A summary counts once: the other latencies cannot be separated from the implausible one.
    let latency = SummaryMetric::HopLatency;
    server.summaries(
        (Kind::CorNode, Some(21), None),
        &[
            summary(latency, 100, 3_000_000_000, 3_000_000_100, 2),
            summary(SummaryMetric::QueueLength, 3, 42, 45, 2),
        ],
    );
    server.summaries(
        (Kind::CorNodeFlow, Some(22), Some(5)),
        &[summary(latency, 100, 3_000_000_000, 3_000_000_100, 2)],
    );
    assert!(!server.collected().contains("hop_latency"));
    let counts = |server: &Server| -> Vec<_> {
        let nodes = server
            .collector
            .nodes()
            .map(|node| (node.node, node.values, node.implausible));
        nodes
            .chain([(0, 0, server.collector.stats().implausible_latencies)])
            .collect()
    };
    assert_eq!(counts(&server), [(21, 0, 2), (22, 0, 2), (0, 0, 4)]);
    // A plausible one is merged as ever.
    server.summaries(
        (Kind::CorNode, Some(21), None),
        &[summary(latency, 100, 200, 300, 2)],
    );
    assert_eq!(counts(&server), [(21, 2, 2), (22, 0, 2), (0, 0, 4)]);
}

#[test]
fn least_and_greatest_are_compared_with_the_last_reported() {
    // Thresholds: hop latency 100, queue 5 (tests/support).
    let mut server = Server::free();
    let deliver = |server: &mut Server, scope, metric, min, max| {
        server.summaries(
            scope,
            &[summary(metric, min, max, u64::from(min) + u64::from(max), 2)],
        );
        let collected = server.collected();
        collected
            .lines()
            .filter(|line| !line.contains("loss"))
            .collect::<Vec<_>>()
            .join("; ")
    };
    let node = (Kind::CorNode, Some(21), None);
    let queue = SummaryMetric::QueueLength;
    assert_eq!(
        deliver(&mut server, node, queue, 3, 42),
        "new queue_occupancy node=21 42"
    );
    assert_eq!(
        deliver(&mut server, node, queue, 37, 47),
        "",
        "each within 5 of 42"
    );
    assert_eq!(
        deliver(&mut server, node, queue, 36, 48),
        "change queue_occupancy node=21 42->48"
    );
    assert_eq!(
        deliver(&mut server, node, queue, 10, 50),
        "change queue_occupancy node=21 48->10"
    );
    let latency = SummaryMetric::HopLatency;
    assert_eq!(
        deliver(&mut server, node, latency, 500, 1000),
        "new hop_latency node=21 1000"
    );
    assert_eq!(deliver(&mut server, node, latency, 900, 1100), "");
    assert_eq!(
        deliver(&mut server, node, latency, 899, 1000),
        "change hop_latency node=21 1000->899"
    );
    let flow = (Kind::CorNodeFlow, Some(21), Some(5));
    let collected = deliver(&mut server, flow, latency, 500, 1000);
    assert!(
        collected.starts_with("new hop_latency flow=") && collected.ends_with("node=21 1000"),
        "{collected}"
    );
    assert_eq!(deliver(&mut server, flow, latency, 950, 1100), "");
    let anywhere = (Kind::Cor, None, None);
    assert_eq!(
        deliver(&mut server, anywhere, queue, 3, 42),
        "new queue_occupancy 42"
    );
}

#[test]
fn numbers_are_accounted_for_per_aggregator() {
    let mut server = Server::free();
    for sequence in [1, 2, 3, 5, 4, 4, 9, 10] {
        server.deliver(&agg(Kind::Agg, sequence, &[postcard(1, 1, 0, 1)]));
    }
    let stream = server.collector.streams().next().unwrap();
    assert_eq!(
        (stream.id.version, stream.id.node),
        (collector::AGGREGATE_VERSION, Some(99))
    );
    server.collector.finish(server.now + 10_000 * MS, &mut server.log);
    let stream = server.collector.streams().next().unwrap();
    assert_eq!((stream.lost, stream.reordered, stream.duplicated), (3, 1, 1));
}

#[test]
fn inconsistent_aggregates_are_refused_by_reason_and_advance_their_stream() {
    let good = agg(Kind::AggNode, 1, &[postcard(1, 1, 0, 1), postcard(1, 2, 0, 1)]);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let scope = (Kind::Cor, None, None);
    let lie = |min, max, sum, count| {
        cor(
            scope,
            1,
            &[summary(SummaryMetric::HopLatency, min, max, sum, count)],
        )
    };
    let cases = [
        (with(3, 3), Refusal::BadRecordLength),
        (with(3, 0), Refusal::EmptyAggregate),
        (with(0, 0x14), Refusal::BadAggregateKind),
        (with(0, 0x22), Refusal::UnknownVersion),
        (with(HEADER_LEN + 3, 9), Refusal::BadScope),
        (good[..20].to_vec(), Refusal::Truncated),
        (lie(9, 8, 17, 2), Refusal::BadSummary),
        (lie(1, 2, 3, 0), Refusal::BadSummary),
        (lie(5, 9, 9, 2), Refusal::BadSummary),
    ];
    for (bytes, refusal) in cases {
        let mut server = Server::free();
        server.deliver(&bytes);
        let stats = server.collector.stats();
        assert_eq!(
            (stats.accepted, stats.refused_datagrams[refusal.index()]),
            (0, 1),
            "{refusal:?}"
        );
        assert_eq!(server.collector.flow_slots(), 0, "{refusal:?}");
    }
}

#[test]
fn a_flood_of_flow_ids_stays_bounded() {
    let mut server = Server::new(
        Clocks::Synchronised,
        PostcardConfig {
            max_pending: 2048,
            ..PostcardConfig::default()
        },
    );
    let before = server.collector.bytes();
    let mut id = 1_u32;
    for _ in 0..2000 {
        let postcards: Vec<_> = (0..25)
            .map(|at| {
                id = id.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                postcard(id >> 24, id, u64::from(id), at)
            })
            .collect();
        server.postcards(Kind::Agg, &postcards);
    }
    let stats = server.collector.stats();
    assert_eq!(
        (stats.aggregate_postcards, stats.postcards.received),
        (50_000, 50_000)
    );
    assert!(server.collector.tables().flows.used <= 1024);
    assert!(server.collector.bytes() < before + 2_000_000);
    server.collector.finish(server.now, &mut server.log);
    let counts = server.collector.stats().postcards;
    assert_eq!(counts.accepted, counts.released);
    assert!(counts.balance().is_balanced());
}

#[test]
fn a_postcard_without_a_flow_or_a_node_makes_none() {
    let mut server = Server::free();
    let postcard = Postcard {
        node: 21,
        ingress_ts: 100,
        egress_ts: 700,
        queue_id: 3,
        queue_length: 40,
        ..Postcard::EMPTY
    };
    server.postcards(Kind::Agg, &[postcard, postcard]);
    assert_eq!(server.collector.flows().count(), 0);
    assert_eq!(server.collector.stats().node_reports, 2);
    assert_eq!(server.collected(), "new queue_occupancy node=21 queue=3 40\n");
    let nameless = Postcard {
        node: u32::MAX,
        flow_id: 7,
        ..postcard
    };
    server.postcards(Kind::Agg, &[nameless]);
    let view = server.collector.flow(&FlowKey::of_id(7)).unwrap();
    assert_eq!((view.hops().count(), view.path().count()), (0, 0));
}
