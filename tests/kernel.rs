//! Detection in the kernel against a collector that receives every datagram. Exactly those datagrams are passed to user space
//! in which the collector found a change, which changed its stored values, or whose sequence number was not the next. A second
//! collector, which receives only the datagrams passed to user space, emits the same events.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

mod kernel {
    pub(crate) mod model;
    mod modes;
}

use kernel::model::*;

use collector::config::Clocks;
use collector::{Collector, Config, Datagram, Event, FlowView, Kind, Profile, Removed, Run, StreamId};
use detect::threshold::MAX_OVERRIDES;
use detect::{Detection, Match, Metric, Prefix, RuleSet, Thresholds};
use nic::bpf::{LoadOptions, Object, Ring};
use testkit::datagrams::{self, pick};
use testkit::reports::{Log, Node, START, Sent, config, node, stream};
use testkit::rng::Rng;
use wire::int::Mode;
use wire::{Annotations, Decoder, Dialect, Flags, FlowKey, Report};
use xdp::{Counters, Reason, Record, Sizes, Tables, Units};

const SIZES: Sizes = Sizes {
    flows: 2048,
    queues: 2048,
    links: 1024,
    streams: 256,
    ring: 1 << 20,
    seed: 0x1234_5678,
};

/// `XDP_DROP`: a datagram that was suppressed or passed to user space.
const DROP: u32 = 1;

fn same_events(ours: &[Event], theirs: &[Event]) {
    for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(ours, theirs, "event {at}");
    }
    assert_eq!(ours.len(), theirs.len());
}

/// The flows of a datagram's valid reports, the number of hops in each, and whether it is one record of SF-INT.
fn reports(payload: &[u8], profile: &wire::Profile) -> Vec<(Option<FlowKey>, usize, bool)> {
    let (mut decoder, mut report) = (Decoder::new(*profile), Report::EMPTY);
    let (mut reports, mut found) = (decoder.reports(payload), Vec::new());
    while let Some(read) = reports.read(&mut report) {
        if read.is_ok() {
            let is_sf = report.int.is_some_and(|int| int.sf.is_some());
            found.push((report.flow, report.hop_count(), is_sf));
        }
    }
    found
}

fn has_report(payload: &[u8], profile: &wire::Profile, is_such: fn(&Report<'_>) -> bool) -> bool {
    let (mut decoder, mut report) = (Decoder::new(*profile), Report::EMPTY);
    let mut reports = decoder.reports(payload);
    while let Some(read) = reports.read(&mut report) {
        // Some declare that they are the postcard of one node.
        let declared =
            report.version == wire::Version::V05 || report.ds_id == wire::report::v20::POSTCARD_DOMAIN;
        if read.is_ok() && (declared || is_such(&report)) {
            return true;
        }
    }
    false
}

/// Whether hops of its path may be missing in a report.
fn may_lack_hops(report: &Report<'_>) -> bool {
    let exceeded = wire::int::Flags::HOPS_EXCEEDED.0 | wire::int::Flags::MTU_EXCEEDED.0;
    report.flags.contains(Flags::QUEUE)
        || report.int.is_some_and(|int| int.flags.0 & exceeded != 0)
        || report.hop_limit.is_some_and(|limit| limit <= 1)
}

/// Whether a report has one node's own record only, which is not the whole path of a packet with INT.
fn is_postcard(report: &Report<'_>) -> bool {
    let is_path = report.int.is_some_and(|int| {
        let exceeded = wire::int::Flags::HOPS_EXCEEDED.0 | wire::int::Flags::MTU_EXCEEDED.0;
        int.mode == Mode::Md && int.flags.0 & exceeded == 0
    });
    report.has_metadata()
        && report.hop_count() == 1
        && (!is_path || report.is_postcard())
        && !report.annotations.contains(Annotations::MERGED)
}

fn flows(payload: &[u8], profile: &wire::Profile) -> Vec<FlowKey> {
    reports(payload, profile)
        .into_iter()
        .filter_map(|(flow, ..)| flow)
        .collect()
}

fn hidden(collector: &Collector, flows: &[FlowKey]) -> Vec<Option<Hidden>> {
    let of = |flow: FlowView<'_>| {
        let nodes = flow.hops().map(|hop| hop.node).collect();
        (
            [
                flow.hop_limit,
                flow.mtu,
                flow.incomplete,
                flow.path_basis != collector::event::Basis::Measured,
            ],
            flow.path_length,
            nodes,
        )
    };
    flows.iter().map(|key| collector.flow(key).map(of)).collect()
}

/// Reporters of every kind, and the flows in their reports.
struct Network {
    rng: Rng,
    seq: [u32; 6],
    routes: Vec<Vec<Node>>,
    longest: usize,
    bitmaps: Vec<u16>,
}

impl Network {
    fn new(seed: u64, longest: usize) -> Self {
        let bitmaps = vec![0xfd00, 0xf900, 0xfd00, 0x8000, 0xf100, 0xd000, 0xcc00];
        let mut network = Self {
            rng: Rng(seed),
            seq: [0; 6],
            routes: Vec::new(),
            longest,
            bitmaps,
        };
        network.seq = [0, u32::MAX - 200, (1 << 22) - 300, 5, 0, 77];
        for _ in 0..40 {
            let route = network.route();
            network.routes.push(route);
        }
        network
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.rng.below(count) == 0
    }

    fn route(&mut self) -> Vec<Node> {
        let first = self.rng.below(4) as u32;
        let count = 1 + self.rng.below(self.longest) as u32;
        let mut route: Vec<Node> = (0..count)
            .map(|hop| node(10 * hop + first + self.rng.below(2) as u32))
            .collect();
        if count > 2 && route.len() < self.longest && self.one_in(10) {
            route.push(route[0]);
        }
        route
    }

    /// Changes the values randomly, mostly within their thresholds.
    fn wander(&mut self, flow: usize) {
        let rng = &mut self.rng;
        for hop in &mut self.routes[flow] {
            let step = if rng.below(60) == 0 { 300 } else { 8 };
            let mut up = |value: u32, by: usize| {
                value
                    .saturating_add(rng.below(2 * by + 1) as u32)
                    .saturating_sub(by as u32)
            };
            hop.latency = hop.latency.map(|value| up(value, step));
            hop.utilization = hop.utilization.map(|value| up(value, step));
            let occupancy = hop.queue.map(|(_, value)| up(value, step / 8));
            if let (Some(queue), Some(occupancy)) = (&mut hop.queue, occupancy) {
                let id = if rng.below(80) == 0 {
                    rng.below(3) as u8
                } else {
                    queue.0
                };
                *queue = (id, occupancy);
            }
            if rng.below(400) == 0 {
                hop.latency = if hop.latency.is_some() { None } else { Some(900) };
            }
        }
    }

    fn sent(&mut self, reporter: usize) -> Sent {
        let flow = self.rng.below(self.routes.len());
        if self.one_in(80) {
            self.routes[flow] = self.route();
        }
        self.wander(flow);
        let mut sent = Sent {
            flow: flow as u16,
            v6: flow.is_multiple_of(7),
            hops: self.routes[flow].clone(),
            reporter: 100 + reporter as u32,
            bitmap: self.bitmaps[flow % self.bitmaps.len()],
            ..Sent::default()
        };
        if self.one_in(80) {
            sent.flags = Flags::QUEUE.with(Flags::FLOW, self.one_in(2));
        }
        if self.one_in(40) {
            sent.int_flags = wire::int::Flags::HOPS_EXCEEDED;
        }
        // Some nodes did not add their data, or are still ahead.
        let lacks_hops = sent.flags.contains(Flags::QUEUE) || sent.int_flags.0 != 0;
        if lacks_hops && sent.hops.len() > 1 && self.one_in(2) {
            let at = self.rng.below(sent.hops.len());
            sent.hops.remove(at);
        }
        // The packet may have expired before its destination.
        if self.one_in(40) {
            sent.ttl = self.rng.below(3) as u8;
            let passed = 1 + self.rng.below(sent.hops.len());
            sent.hops.truncate(passed);
        }
        if self.one_in(100) {
            (sent.flags, sent.metadata, sent.reason) = (Flags::DROP, 0x20, Some(7));
        }
        if self.one_in(20) {
            sent.metadata = 0x20;
        }
        if self.one_in(60) {
            let at = self.rng.below(sent.hops.len());
            match self.one_in(2) {
                true => sent.hops[at].latency = Some(3_000_000_000),
                // As of a cloned packet, which has no ingress timestamp.
                false => sent.hops[at].stamps = Some((0, 900)),
            }
        }
        sent
    }

    fn next(&mut self, reporter: usize) -> u32 {
        let mask = if reporter == 2 { (1 << 22) - 1 } else { u32::MAX };
        let step = match self.rng.below(300) {
            0 => self.rng.below(6) as u32 + 2,
            1 => self.rng.below(400) as u32,
            2 => 0,
            _ => 1,
        };
        let seq = &mut self.seq[reporter];
        *seq = seq.wrapping_add(step) & mask;
        if reporter == 4 { 0 } else { self.seq[reporter] }
    }

    /// A datagram and its sender.
    fn datagram(&mut self) -> (Vec<u8>, [u8; 4]) {
        let reporter = self.rng.below(6);
        let seq = self.next(reporter);
        let sent = Sent {
            seq,
            ..self.sent(reporter)
        };
        let plain = |sent: Sent| Sent {
            metadata: 0,
            reason: None,
            ..sent
        };
        let mut bytes = match reporter {
            2 => {
                let others: Vec<Sent> = (0..self.rng.below(3)).map(|_| plain(self.sent(2))).collect();
                Sent::v20(&[vec![plain(sent)], others].concat())
            }
            3 => Sent {
                hops: sent.hops[..1].to_vec(),
                ..plain(sent)
            }
            .postcard(),
            5 => plain(sent).v05(),
            1 => sent.v10(),
            _ => over_ethernet(&sent),
        };
        if self.one_in(300) {
            bytes.truncate(self.rng.below(bytes.len()));
        }
        (bytes, [192, 0, 2, reporter as u8])
    }
}

/// A report 1.0 of a packet over Ethernet, if it has no metadata of its own: the common one.
fn over_ethernet(sent: &Sent) -> Vec<u8> {
    let mut bytes = sent.v10();
    if sent.metadata == 0 {
        let inner = if sent.v6 { [0x86, 0xdd] } else { [8, 0] };
        // Next protocol.
        bytes[1] &= 0x1f;
        bytes.splice(
            16..16,
            [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2].into_iter().chain(inner),
        );
    }
    bytes
}

fn detection(threshold: u64, rules: &[&str], generation: u32) -> Arc<Detection> {
    let rules = rules.iter().enumerate();
    let rules: Vec<_> = rules
        .map(|(number, text)| (format!("rule {number}"), (*text).to_owned()))
        .collect();
    let some = Match {
        src_port: "1000-1012".parse().unwrap(),
        ..Match::default()
    };
    let v6 = Match {
        src: Some("2001:db8::/32".parse().unwrap()),
        ..Match::default()
    };
    let less = [
        None,
        Some(threshold / 3),
        Some(threshold / 3),
        None,
        None,
        Some(threshold / 2),
    ];
    let set = [0, threshold, threshold, threshold / 10, threshold / 10, threshold];
    Arc::new(Detection {
        thresholds: Thresholds::new(
            set,
            vec![(some, less), (v6, [None, None, Some(10), Some(3), None, None])],
        )
        .unwrap(),
        rules: RuleSet::compile(&rules).unwrap(),
        generation,
    })
}

fn run(model: &mut Model, network: &mut Network, count: usize, changes: &[(usize, Arc<Detection>)]) {
    for at in 0..count {
        if let Some((_, detection)) = changes.iter().find(|(when, _)| *when == at) {
            model.set_detection(detection);
        }
        let (bytes, source) = network.datagram();
        let tagged = network.one_in(5);
        model.give(&bytes, source, tagged);
    }
    model.finish();
}

fn start(threshold: u64) -> Config {
    Config {
        detection: detection(threshold, &[], 1),
        ..config()
    }
}

#[test]
fn packets_passed_to_user_space_are_those_with_changes() {
    for seed in 1..=6 {
        let test = "packets_passed_to_user_space_are_those_with_changes";
        let Some(mut model) = Model::new(test, start(300), SIZES) else {
            return;
        };
        run(&mut model, &mut Network::new(seed * 7919, 5), 6000, &[]);
        assert!(model.up < 6000 * 4 / 5, "{} of 6000 passed", model.up);
        assert_eq!(model.spare, 0);
    }
}

#[test]
fn thresholds_and_rules_change_while_it_runs() {
    let rules = [
        "max(hop_latency) > 1300 and hops > 2",
        "queue_occupancy > 25 or loop",
        "avg(hop_latency@20) < 1010",
    ];
    for seed in 1..=4 {
        let Some(mut model) = Model::new("thresholds_and_rules_change_while_it_runs", start(0), SIZES) else {
            return;
        };
        let changes = [
            (1000, detection(300, &[], 2)),
            (2000, detection(200, &rules, 3)),
            (3500, detection(400, &rules[1..], 4)),
            (5000, detection(u64::MAX, &[], 5)),
        ];
        // A rule that stays keeps its state in user space; the kernel begins anew, and passes its flows on once more.
        model.spare_allowed = true;
        run(&mut model, &mut Network::new(seed * 104_729, 5), 6000, &changes);
        assert!(model.spare < 300, "{} datagrams too many", model.spare);
    }
}

#[test]
fn paths_of_sixteen_hops_are_stored_and_longer_ones_always_passed_to_user_space() {
    for (seed, longest) in [(1, 16), (2, 16), (3, 20), (4, 20)] {
        let test = "paths_of_sixteen_hops_are_stored_and_longer_ones_always_passed_to_user_space";
        let Some(mut model) = Model::new(test, start(2000), SIZES) else {
            return;
        };
        run(
            &mut model,
            &mut Network::new(seed * 15_485_863, longest),
            4000,
            &[],
        );
        assert_eq!(model.spare > 0, longest > 16);
    }
}

#[test]
fn thresholds_are_exact_beyond_what_a_flow_holds_of_them() {
    for (seed, threshold) in (1..).zip([
        u64::from(u32::MAX) - 1,
        u64::from(u32::MAX),
        1 << 32,
        1 << 33,
        3 << 34,
    ]) {
        let test = "thresholds_are_exact_beyond_what_a_flow_holds_of_them";
        // Most steps are below 2^32 ns and millionths, a few are some billions.
        let wide = Profile {
            latency_unit_ns: 20_000_000,
            utilization_scale: 20.0,
            max_hop_latency: 0,
            ..Profile::new("wide", wire::Profile::default())
        };
        let config = Config {
            default_profile: wide,
            ..start(threshold)
        };
        let Some(mut model) = Model::new(test, config, SIZES) else {
            return;
        };
        run(&mut model, &mut Network::new(seed * 32_452_843, 8), 4000, &[]);
        assert_eq!(model.spare, 0, "{threshold}");
    }
}

/// Random units of a profile's values.
fn random_units(rng: &mut Rng) -> Units {
    Units {
        stamp_ns: pick(rng, &[1, 1, 8, u32::MAX]),
        latency_ns: pick(rng, &[1, 1, 100, u32::MAX]),
        utilization: pick(rng, &[1, 10_000, 1_000_000]),
        synchronised: rng.below(2) == 0,
        max_latency: pick(rng, &[u64::MAX, 1_000_000_000, 2_000, 300]),
    }
}

#[test]
fn every_dialect_and_unit_is_decided_as_the_collector_decides_it() {
    for seed in 0..16_u64 {
        let test = "every_dialect_and_unit_is_decided_as_the_collector_decides_it";
        let mut rng = Rng(seed);
        let units = random_units(&mut rng);
        let profile = Profile {
            timestamp_unit_ns: units.stamp_ns,
            latency_unit_ns: units.latency_ns,
            utilization_scale: f64::from(units.utilization) * 1e-6,
            clocks: if units.synchronised {
                Clocks::Synchronised
            } else {
                Clocks::Free
            },
            max_hop_latency: if units.max_latency == u64::MAX {
                0
            } else {
                units.max_latency
            },
            ..Profile::new("random", datagrams::profile(&mut rng))
        };
        let config = Config {
            default_profile: profile,
            ..start(40)
        };
        let Some(mut model) = Model::new(test, config, SIZES) else {
            return;
        };
        // Some are postcards: flows reported by single nodes are passed to user space more often than they change.
        model.spare_allowed = true;
        // Few different ones, so that most of them recur.
        let pool: Vec<Vec<u8>> = (0..60).map(|_| datagrams::datagram(&mut rng)).collect();
        for _ in 0..1000 {
            let mut datagram = pool[rng.below(pool.len())].clone();
            if rng.below(4) == 0 && !datagram.is_empty() {
                let at = rng.below(datagram.len());
                datagram[at] = datagram[at].wrapping_add(rng.below(3) as u8);
            }
            model.give(&datagram, [192, 0, 2, rng.below(3) as u8], false);
        }
        model.finish();
    }
}

/// A configuration for the reports of the generator.
fn generator_config() -> Config {
    let thresholds = Thresholds::new([0, 100_000, 10_000, 1000, 1000, 100_000], Vec::new()).unwrap();
    Config {
        default_profile: Profile::new("generator", wire::Profile::new(Dialect::IntCollectorGen)),
        detection: Arc::new(Detection {
            thresholds,
            ..Detection::default()
        }),
        // Changed bytes make many queues, interfaces and nodes.
        max_queues: 1024,
        ..config()
    }
}

#[test]
fn the_common_report_is_decided_at_once_and_as_any_other() {
    use testkit::workload::collector::{CASES, Values};
    for case in CASES
        .iter()
        .filter(|case| case.flows == 1000 && case.values != Values::Constant)
    {
        let test = "the_common_report_is_decided_at_once_and_as_any_other";
        let Some(mut model) = Model::new(test, generator_config(), SIZES) else {
            return;
        };
        let mut rng = Rng(9);
        let feed = case.feed();
        for (at, frame) in feed
            .whole()
            .filter(|frame| frame[87] < 40)
            .cycle()
            .take(3000)
            .enumerate()
        {
            let mut frame = frame.to_vec();
            frame[50..54].copy_from_slice(&(at as u32).to_be_bytes());
            // Sometimes with a changed byte in the report, the packet, the stack or its header.
            if rng.below(3) == 0 {
                let at = 42 + rng.below(frame.len() - 42);
                frame[at] = if rng.below(2) == 0 {
                    rng.roll() as u8
                } else {
                    frame[at] ^ 1 << rng.below(8)
                };
            }
            model.give_frame(&frame);
        }
        model.finish();
        let quick = model.kernel.tables.counters().unwrap().fast_path;
        assert!(
            quick > 1000 || case.values == Values::Change,
            "{quick} of 3000 were"
        );
    }
}

/// Reports of one flow with different items, as after a change of the switches' configuration.
#[test]
fn reports_with_any_items_are_decided_at_once_and_as_any_other() {
    use testkit::workload::collector::{CASES, Case, Values};
    let test = "reports_with_any_items_are_decided_at_once_and_as_any_other";
    let Some(mut model) = Model::new(test, generator_config(), SIZES) else {
        return;
    };
    // Without an interface in the report, the kernel knows the queue by the node alone, the collector by the flow's interface.
    model.spare_allowed = true;
    let bitmaps = (0x80..=0xff).map(|first: u16| first << 8);
    let feeds: Vec<Vec<Vec<u8>>> = bitmaps
        .map(|bitmap| {
            let case = Case {
                bitmap,
                hops: 3,
                flows: 20,
                values: Values::Jitter,
                ..CASES[0]
            };
            case.feed().whole().map(<[u8]>::to_vec).collect()
        })
        .collect();
    let mut rng = Rng(10);
    for at in 0..6000 {
        let feed = &feeds[rng.below(feeds.len())];
        let mut frame = feed[rng.below(feed.len())].clone();
        frame[50..54].copy_from_slice(&(at as u32).to_be_bytes());
        // A changed bit in the stack, but not in a node ID: flows with many paths are passed.
        let at = 112 + rng.below(frame.len() - 112);
        let record = usize::from(frame[106] & 31) * 4;
        if rng.below(8) == 0 && (at - 112) % record >= 4 {
            frame[at] ^= 1 << rng.below(8);
        }
        model.give_frame(&frame);
    }
    model.finish();
    let quick = model.kernel.tables.counters().unwrap().fast_path;
    assert!(quick > 3000, "{quick} of 6000 were");
}

#[test]
fn rules_that_no_table_holds_see_every_report_they_need() {
    let test = "rules_that_no_table_holds_see_every_report_they_need";
    // More comparisons than the table can hold; the last rules run in user space.
    let texts: Vec<String> = (0..40)
        .map(|at| {
            let node = at % 4 + 10 * (at % 3);
            format!(
                "hop_latency@{node} > {} and queue_occupancy@{node} > {} and hops > 1 or flow_latency < {at}",
                990 + at,
                4 + at % 9
            )
        })
        .collect();
    let rules: Vec<&str> = texts.iter().map(String::as_str).collect();
    let split = detect::Table::split(&detection(200, &rules, 2).rules);
    assert!(!split.user.is_empty() && split.kernel != 0);
    let Some(mut model) = Model::new(test, start(200), SIZES) else {
        return;
    };
    let mut network = Network::new(77, 4);
    for at in 0..3000 {
        if at == 500 {
            model.set_detection(&detection(200, &rules, 2));
            // A difference in a metric of those rules is passed even when no rule changes.
            model.spare_allowed = true;
        }
        let (bytes, source) = network.datagram();
        model.give(&bytes, source, false);
    }
    model.finish();
    assert!(
        model
            .reported
            .events
            .iter()
            .any(|event| event.rule.is_some_and(|rule| split.kernel >> rule & 1 == 0))
    );
}

#[test]
fn rules_that_remember_see_every_report_of_their_flow() {
    let test = "rules_that_remember_see_every_report_of_their_flow";
    let rules = [
        "change(max(queue_occupancy)) > 20",
        "max(hop_latency) > 1000 for 3",
        "hops > 2",
        "previous(flow_latency) > 4000 and average(sum(hop_latency), 0.5) < 5000",
    ];
    let Some(mut model) = Model::new(test, start(200), SIZES) else {
        return;
    };
    let mut network = Network::new(78, 4);
    for at in 0..4000 {
        match at {
            500 => {
                model.set_detection(&detection(200, &rules, 2));
                model.spare_allowed = true;
            }
            2500 => model.set_detection(&detection(300, &rules[1..], 3)),
            _ => {}
        }
        let (bytes, source) = network.datagram();
        model.give(&bytes, source, false);
    }
    model.finish();
    for rule in 0..4 {
        assert!(
            model.reported.events.iter().any(|event| event.rule == Some(rule)),
            "{rule}"
        );
    }
}

#[test]
fn each_source_is_read_as_its_prefix_says() {
    let listed = |dialect, latency_unit_ns| Profile {
        latency_unit_ns,
        ..Profile::new("listed", wire::Profile::new(dialect))
    };
    let profiles = vec![
        ("192.0.2.0/24".parse().unwrap(), listed(Dialect::Strict, 7)),
        ("192.0.2.1/32".parse().unwrap(), listed(Dialect::Strict, 3)),
        ("192.0.2.4/31".parse().unwrap(), listed(Dialect::Geant, 1)),
        // An IPv4 address never matches an IPv6 prefix.
        ("::/0".parse().unwrap(), listed(Dialect::Onos, 1000)),
    ];
    let config = Config {
        profiles,
        ..start(300)
    };
    let Some(mut model) = Model::new("each_source_is_read_as_its_prefix_says", config, SIZES) else {
        return;
    };
    run(&mut model, &mut Network::new(5, 5), 3000, &[]);
    assert!(model.up < 3000 && model.spare == 0);
}

#[test]
fn full_tables_lose_no_reports() {
    let test = "full_tables_lose_no_reports";
    let sizes = Sizes {
        flows: 10,
        queues: 4,
        links: 4,
        streams: 4,
        ..SIZES
    };
    let Some(mut model) = Model::new(test, start(300), sizes) else {
        return;
    };
    let mut network = Network::new(3, 5);
    for _ in 0..2000 {
        let (bytes, source) = network.datagram();
        let before = model.collected.events.len();
        model
            .all
            .handle(&[datagram(&bytes, source)], &mut model.collected);
        let reported = model.kernel.give(&frame(&bytes, source, false)).is_some();
        // Values that do not fit into the tables are not tracked, as in the collector; tracked values are reported as before,
        // and reports of flows that do not fit are always passed.
        let paths = model.collected.events[before..]
            .iter()
            .filter(|event| event.metric == Some(Metric::FlowPath));
        assert!(reported || paths.count() == 0);
    }
    let counters = model.kernel.tables.counters().unwrap();
    assert!(
        counters.flows_full > 0 && counters.node_metrics_full > 0,
        "{counters:?}"
    );
}

fn datagram(payload: &[u8], source: [u8; 4]) -> Datagram<'_> {
    let source = Ipv4Addr::from(source).to_ipv6_mapped().octets();
    Datagram {
        payload,
        source,
        src_port: 40_000,
        listener: 0,
        received: START,
    }
}

#[test]
fn a_full_ring_is_counted_and_changes_stay_pending() {
    let sizes = Sizes { ring: 4096, ..SIZES };
    let Some(mut model) = Model::new(
        "a_full_ring_is_counted_and_changes_stay_pending",
        start(300),
        sizes,
    ) else {
        return;
    };
    let sent = |seq: u32, flow: u16| {
        Sent {
            seq,
            flow,
            ..Sent::default()
        }
        .v10()
    };
    for seq in 0..64 {
        model
            .kernel
            .object
            .test_run(
                "hopwise_detect",
                &frame(&sent(seq, seq as u16), [192, 0, 2, 1], false),
                1,
            )
            .unwrap();
    }
    let counters = model.kernel.tables.counters().unwrap();
    assert_eq!(counters.to_user + counters.ring_full, 64);
    assert!(counters.ring_full > 32, "{counters:?}");
    let mut count = 0;
    model.kernel.ring.consume(usize::MAX, |_| count += 1);
    assert_eq!(count, counters.to_user);
    // The first flows are known, the last are still new; the sequence number was expected, and the earlier ones count as received.
    assert_eq!(
        model.kernel.give(&frame(&sent(64, 0), [192, 0, 2, 1], false)),
        None
    );
    let (why, count, latest, _) = model
        .kernel
        .give(&frame(&sent(65, 63), [192, 0, 2, 1], false))
        .unwrap();
    assert_eq!(
        (why.has(Reason::CHANGE), why.has(Reason::SEQUENCE), latest),
        (true, false, 64)
    );
    assert_eq!(u64::from(count), counters.ring_full + 1);
}

#[test]
fn packets_that_expire_leave_the_path_in_the_kernel() {
    let test = "packets_that_expire_leave_the_path_in_the_kernel";
    let Some(mut model) = Model::new(test, start(300), SIZES) else {
        return;
    };
    let mut seq = 0;
    let mut give = |model: &mut Model, ttl: u8, nodes: &[u32]| {
        seq += 1;
        let sent = Sent {
            seq,
            ttl,
            hops: nodes.iter().map(|id| node(*id)).collect(),
            ..Sent::default()
        };
        let up = model.up;
        model.give(&over_ethernet(&sent), [192, 0, 2, 1], false);
        model.up > up
    };
    let paths = |model: &Model| {
        let tables = &model.kernel.tables;
        let flows = (0..tables.flow_slots()).filter_map(|place| tables.flow(place));
        flows
            .map(|flow| {
                flow.hops[..usize::from(flow.path_length)]
                    .iter()
                    .map(|hop| hop.node)
                    .collect()
            })
            .collect::<Vec<Vec<u32>>>()
    };
    // A path of such packets is completed without a change.
    for nodes in [&[1][..], &[1, 2], &[1], &[1, 2, 3, 4]] {
        let ttl = if nodes.len() == 4 { 60 } else { 1 };
        assert!(give(&mut model, ttl, nodes), "{nodes:?}");
    }
    assert!(!give(&mut model, 60, &[1, 2, 3, 4]));
    // The whole path is one of packets that expire, too.
    assert!(!give(&mut model, 1, &[1, 2, 3, 4]));
    for nodes in [&[1][..], &[1, 2, 3], &[1, 2]] {
        assert!(
            give(&mut model, 1, nodes) && give(&mut model, 0, nodes),
            "{nodes:?}"
        );
        assert_eq!(paths(&model), [[1, 2, 3, 4]]);
        // The collector counts how long only they come.
        assert!(give(&mut model, 60, &[1, 2, 3, 4]));
        assert!(!give(&mut model, 60, &[1, 2, 3, 4]));
    }
    // Of more packets, or on another path, they show a change.
    assert!(give(&mut model, 2, &[1, 2]) && give(&mut model, 1, &[1, 3]));
    assert_eq!(paths(&model), [[1, 3]]);
    assert!(give(&mut model, 60, &[1, 2, 3, 4]));
    let changes = model.collected.events.iter();
    let changes = changes.filter(|event| event.kind == Kind::PathChange).count();
    assert_eq!(changes, 2);
    // For a long time alone, they show that the path may have changed.
    for _ in 0..80 {
        assert!(give(&mut model, 1, &[1, 2]) || paths(&model) == [[1, 2]]);
        model.pass(200_000_000);
    }
    model.finish();
}

#[test]
fn an_expired_flow_is_new_again() {
    let Some(mut model) = Model::new("an_expired_flow_is_new_again", start(300), SIZES) else {
        return;
    };
    let source = [192, 0, 2, 1];
    let mut seq = 0;
    let mut up = |model: &mut Model| {
        seq += 1;
        let bytes = Sent {
            seq,
            ..Sent::default()
        }
        .v10();
        model
            .kernel
            .give(&frame(&bytes, source, false))
            .map(|(why, ..)| why.0 & !Reason::STREAM.0)
    };
    let new = Some(Reason::CHANGE.0);
    assert_eq!(
        (up(&mut model), up(&mut model)),
        (Some(Reason::CHANGE.0 | Reason::SEQUENCE.0), None)
    );
    let flow = testkit::reports::flow(1, false);
    assert!(model.kernel.tables.forget_flow(&flow) && !model.kernel.tables.forget_flow(&flow));
    assert_eq!((up(&mut model), up(&mut model)), (new, None));
    assert!(
        model
            .kernel
            .tables
            .forget_metric(Metric::QueueOccupancy, 2, queue_part(0, Some(2)))
    );
    assert_eq!((up(&mut model), up(&mut model)), (new, None));
    assert!(model.kernel.tables.forget_metric(Metric::LinkUtilization, 3, 2));
    assert!(!model.kernel.tables.forget_metric(Metric::LinkUtilization, 3, 2));
    assert_eq!((up(&mut model), up(&mut model)), (new, None));
    let tables = &model.kernel.tables;
    let streams: Vec<_> = (0..tables.stream_slots())
        .filter_map(|place| Some((place, tables.stream(place)?)))
        .collect();
    let [(place, stream)] = streams[..] else {
        panic!("{streams:?}")
    };
    assert_eq!(
        (stream.node, stream.latest, stream.count, stream.same),
        (Some(3), 8, 4, false)
    );
    assert_eq!(tables.stream_slot(&stream), Some(place));
    tables.forget_stream(place);
    assert_eq!((up(&mut model), up(&mut model)), (Some(Reason::SEQUENCE.0), None));
    let tables = &model.kernel.tables;
    let flows: Vec<_> = (0..tables.flow_slots())
        .filter_map(|place| tables.flow(place))
        .collect();
    let [entry] = flows[..] else { panic!("{flows:?}") };
    let nodes: Vec<u32> = entry.hops[..3].iter().map(|hop| hop.node).collect();
    assert_eq!(
        (entry.key, entry.reports, entry.latency, nodes),
        (flow, 4, 3000, vec![1, 2, 3])
    );
}

/// Two processors evaluate reports of the same flows and queues concurrently, thousands with changes; the kernel's reported values
/// must equal those that a collector reading the ring reported last. Otherwise a later value could be suppressed.
#[test]
fn two_processors_report_what_the_collector_reported_last() {
    let test = "two_processors_report_what_the_collector_reported_last";
    let sizes = Sizes {
        ring: 8 << 20,
        ..SIZES
    };
    let mut options = sizes.options();
    options
        .constants
        .extend([("cost_flows", 16), ("cost_stride", 5), ("cost_jitter", 512)]);
    let Some(mut kernel) = Kernel::load(test, xdp::COST, &options, sizes) else {
        return;
    };
    let thresholds = Thresholds::new([0, 500, 300, 100, 100, 100], Vec::new()).unwrap();
    let detection = Arc::new(Detection {
        thresholds,
        ..Detection::default()
    });
    let default_profile = Profile::new("generator", wire::Profile::new(Dialect::IntCollectorGen));
    let config = Config {
        default_profile,
        detection,
        ..config()
    };
    kernel.configure(&config);
    kernel.tables.set_sequence(false);
    let frame = testkit::workload::collector::CASES[0]
        .feed()
        .whole()
        .next()
        .unwrap()
        .to_vec();
    let (mut few, mut log, mut reported) = (Collector::new(config), Log::default(), LastReported::new());
    // The last reported values are compared after each of many short runs: later reports would correct an error.
    for round in 1..=ROUNDS {
        let (object, gate) = (&kernel.object, std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    gate.wait();
                    object.test_run("hopwise_cost", &frame, REPORTS).unwrap();
                });
            }
        });
        kernel.ring.consume(usize::MAX, |record| {
            let reported = Record::read(record).unwrap();
            few.handle(&[datagram(reported.payload, [192, 0, 2, 1])], &mut log);
        });
        last_reported(&mut reported, &log.events);
        log = Log::default();
        assert_eq!(stored_as_reported(&kernel.tables), reported, "round {round}");
    }
    let counters = kernel.tables.counters().unwrap();
    // A datagram that waits too long for the lock is counted: rare, unless the holder is preempted.
    let all = counters.datagrams + counters.to_user + counters.contended;
    assert_eq!(all, u64::from(2 * ROUNDS * REPORTS), "{counters:?}");
    assert!(counters.to_user > 5000, "{counters:?}");
}

const ROUNDS: u32 = 100;
const REPORTS: u32 = 300;

/// The last reported value of each flow, hop, queue and link, by readable names.
type LastReported = BTreeMap<(u8, String, Option<u32>, Option<u32>), u64>;

fn last_reported(reported: &mut LastReported, events: &[Event]) {
    for event in events {
        let (Some(metric), Some(value)) = (event.metric, event.value) else {
            continue;
        };
        let flow = event.flow.map(|flow| flow.to_string()).unwrap_or_default();
        let part = match event.queue {
            Some(queue) => Some(queue_part(queue, event.interface)),
            None => event.interface,
        };
        if metric != Metric::FlowPath {
            reported.insert((metric as u8, flow, event.node, part), value);
        }
    }
}

/// A queue's part of its key: see `Key::of_queue` of the collector.
fn queue_part(queue: u8, egress: Option<u32>) -> u32 {
    u32::from(queue) | egress.map_or(0, |egress| egress + 1) << 9
}

fn stored_as_reported(tables: &Tables) -> LastReported {
    let mut kept = BTreeMap::new();
    for metric in [
        Metric::QueueOccupancy,
        Metric::QueueCongestion,
        Metric::LinkUtilization,
    ] {
        for entry in (0..tables.metric_slots(metric)).filter_map(|place| tables.metric_entry(metric, place)) {
            kept.insert(
                (metric as u8, String::new(), Some(entry.node), Some(entry.part)),
                entry.reported,
            );
        }
    }
    for flow in (0..tables.flow_slots()).filter_map(|place| tables.flow(place)) {
        let key = flow.key.to_string();
        for hop in &flow.hops[..usize::from(flow.states)] {
            kept.insert(
                (Metric::HopLatency as u8, key.clone(), Some(hop.node), None),
                hop.reported.into(),
            );
        }
        kept.insert((Metric::FlowLatency as u8, key, None, None), flow.reported);
    }
    kept
}

/// The time of the program for one datagram, during which its CPU does nothing else. The most expensive are many reports in one
/// datagram, about flows that must be compared with every override, or under all rules that a table can hold.
#[test]
fn the_most_expensive_datagrams_take_a_bounded_time() {
    /// Far above the measured time (0.7 ms), far below a delay that would affect the network stack.
    const MAX_NS: u32 = 20_000_000;
    let Some(kernel) = Kernel::new("the_most_expensive_datagrams_take_a_bounded_time", SIZES) else {
        return;
    };
    let flows = Match {
        dst: Some("10.0.0.0/8".parse().unwrap()),
        ..Match::default()
    };
    let overrides = vec![(flows, [None, None, Some(4_000_000_000), None, None, None]); MAX_OVERRIDES];
    let rule = "max(hop_latency) > 4000000000 and avg(queue_occupancy) > 4000000";
    let rules: Vec<_> = (0..64)
        .map(|at| (format!("rule {at}"), format!("{rule} and hops > {at}")))
        .collect();
    let mut config = start(300);
    let mut base = 0;
    // Different flows each time.
    let mut many = |count: u16, hops: u32, flags: Flags| {
        base += count;
        let hops: Vec<Node> = (1..=hops).map(node).collect();
        let one = |flow| Sent {
            flow,
            hops: hops.clone(),
            flags,
            ..Sent::default()
        };
        Sent::v20(&(base - count..base).map(one).collect::<Vec<_>>())
    };
    let group = many(1, 1, Flags::FLOW)[..8].to_vec();
    let mut payload_of = |what| match what {
        "new flows" => many(150, 0, Flags::FLOW),
        "parts" => many(90, 1, Flags::QUEUE),
        "long paths" => many(12, 16, Flags::FLOW),
        "reports of nothing" => [&group[..], &[0; 15_900]].concat(),
        _ => [&group[..], &[0x10; 15_900]].concat(),
    };
    for (overrides, rules) in [(&overrides[..], &[][..]), (&[], &rules[..]), (&overrides, &rules)] {
        config.detection = Arc::new(Detection {
            thresholds: Thresholds::new([0, 300, 300, 30, 30, 300], overrides.to_vec()).unwrap(),
            rules: RuleSet::compile(rules).unwrap(),
            ..Detection::default()
        });
        kernel.configure(&config);
        for what in [
            "new flows",
            "parts",
            "long paths",
            "reports of nothing",
            "refused reports",
        ] {
            // The shortest of several: other programs may use the processor in between.
            let run = |_| {
                let frame = frame(&payload_of(what), [192, 0, 2, 1], false);
                kernel
                    .object
                    .test_run("hopwise_detect", &frame, 1)
                    .unwrap()
                    .duration_ns
            };
            let least = (0..4).map(run).min().unwrap();
            assert!(least < MAX_NS, "{what}: {least} ns");
        }
    }
}
