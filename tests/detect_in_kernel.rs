//! Detection in the kernel against a collector that sees every datagram: exactly those go up in which the collector found
//! news, or that changed what it compares later ones with, or whose number was not the next. And a second collector, which
//! is given only what went up, tells the same events.

#![allow(clippy::unwrap_used, reason = "a helper of tests may panic")]

#[path = "../wire/tests/support/dice.rs"]
mod dice;
#[path = "../dataplane/bpf/tests/support/random.rs"]
mod random;
#[path = "../collector/tests/support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::Ipv4Addr;
use std::sync::Arc;

use bpf::{Counters, Sizes, Tables, Told, Units, Why};
use collector::config::Clocks;
use collector::{Collector, Config, Datagram, Event, FlowView, Profile, Run, StreamId};
use detect::{Detection, Match, Prefix, RuleSet, Thresholds};
use dice::Dice;
use nic::bpf::{Object, Ring};
use support::{Log, Node, START, Sent, config, node};
use wire::{Decoder, Flags, FlowKey, Report};

const SIZES: Sizes =
    Sizes { flows: 2048, queues: 1024, links: 1024, streams: 256, ring: 1 << 20, seed: 0x1234_5678 };

/// `XDP_DROP`: a datagram that was decided or told.
const DROP: u32 = 1;

/// The program, its tables and its ring.
struct Kernel {
    object: Object,
    tables: Tables,
    ring: Ring,
}

impl Kernel {
    /// The program, or nothing (said aloud) where this process may not load one.
    fn new(test: &str, sizes: Sizes) -> Option<Self> {
        /// EPERM.
        const FORBIDDEN: i32 = 1;
        let mut object = match Object::load(bpf::DETECT, &sizes.options()) {
            Ok(object) => object,
            Err(error) if error.errno() == Some(FORBIDDEN) => {
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED {test}: loading BPF programs needs CAP_BPF and CAP_NET_ADMIN"
                );
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let tables = Tables::open(&object, sizes).unwrap();
        let ring = object.ring("told").unwrap();
        tables.set_ports(&[(32_766, 0)]);
        tables.set_sequence(true);
        Some(Self { object, tables, ring })
    }

    fn configure(&self, config: &Config) {
        let listed: Vec<(Prefix, &wire::Profile, Units)> = config
            .profiles
            .iter()
            .map(|(prefix, profile)| (*prefix, &profile.wire, units(profile)))
            .collect();
        let default = &config.default_profile;
        self.tables.set_profiles((&default.wire, units(default)), &listed).unwrap();
        self.tables.set_detection(&config.detection).unwrap();
    }

    /// What went up for a frame: why, the count and the last of the numbers swallowed before it, and the payload.
    fn give(&mut self, frame: &[u8]) -> Option<(Why, u32, u32, Vec<u8>)> {
        let run = self.object.test_run("hopwise_detect", frame, 1).unwrap();
        assert_eq!(run.verdict, DROP);
        let mut told = Vec::new();
        self.ring.consume(usize::MAX, |record| {
            let record = Told::read(record).unwrap();
            assert_eq!(record.frame, frame);
            told.push((record.why, record.stream_count, record.stream_latest, record.payload.to_vec()));
        });
        assert!(told.len() <= 1);
        told.pop()
    }
}

fn units(profile: &Profile) -> Units {
    Units {
        stamp_ns: profile.timestamp_unit_ns.max(1),
        latency_ns: profile.latency_unit_ns.max(1),
        utilization: (profile.utilization_scale * 1e6).round().clamp(1.0, 1e6) as u32,
        synchronised: profile.clocks == Clocks::Synchronised,
    }
}

/// Ethernet, IPv4 and UDP around a payload, sometimes behind a VLAN tag.
fn frame(payload: &[u8], source: [u8; 4], tagged: bool) -> Vec<u8> {
    let (total, length) = (28 + payload.len() as u16, 8 + payload.len() as u16);
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if tagged {
        frame.extend([0x81, 0, 0, 5]);
    }
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(source);
    frame.extend([192, 0, 2, 100]);
    for number in [40_000, 32_766, length, 0] {
        frame.extend(u16::to_be_bytes(number));
    }
    frame.extend(payload);
    frame
}

/// What of a flow decides later events, beside what tells an event whenever it changes.
type Hidden = ([bool; 3], u16, Vec<Option<u32>>);

/// The kernel, a collector that sees all, and one that sees what goes up.
struct Model {
    kernel: Kernel,
    all: Collector,
    few: Collector,
    heard: Log,
    told: Log,
    config: Config,
    streams: BTreeMap<StreamId, Run>,
    applied: BTreeMap<StreamId, u32>,
    /// Flows that had a path of more hops than the kernel holds: all their reports go up.
    long: BTreeSet<String>,
    up: u64,
    spare: u64,
    now: u64,
}

impl Model {
    fn new(test: &str, config: Config, sizes: Sizes) -> Option<Self> {
        let kernel = Kernel::new(test, sizes)?;
        kernel.configure(&config);
        Some(Self {
            kernel,
            all: Collector::new(config.clone()),
            few: Collector::new(config.clone()),
            heard: Log::default(),
            told: Log::default(),
            config,
            streams: BTreeMap::new(),
            applied: BTreeMap::new(),
            long: BTreeSet::new(),
            up: 0,
            spare: 0,
            now: START,
        })
    }

    fn set_detection(&mut self, detection: &Arc<Detection>) {
        self.all.set_detection(Arc::clone(detection));
        self.few.set_detection(Arc::clone(detection));
        self.kernel.tables.set_detection(detection).unwrap();
    }

    fn profile(&self, source: [u8; 4]) -> wire::Profile {
        let address = std::net::IpAddr::from(source);
        let mut listed: Vec<_> = self.config.profiles.iter().collect();
        listed.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        let found = listed.iter().find(|(prefix, _)| prefix.contains(address));
        found.map_or(self.config.default_profile.wire, |(_, profile)| profile.wire)
    }

    fn give(&mut self, payload: &[u8], source: [u8; 4], tagged: bool) {
        self.now += 1000;
        let mapped = Ipv4Addr::from(source).to_ipv6_mapped().octets();
        let datagram = Datagram { payload, source: mapped, sport: 40_000, listener: 0, received: self.now };
        let profile = self.profile(source);
        let flows = flows(payload, &profile);
        let state = hidden(&self.all, &flows);
        let before = self.heard.events.len();
        self.all.handle(&[datagram], &mut self.heard);
        let news = self.heard.events.len() > before || hidden(&self.all, &flows) != state;
        let odd = self.number(&datagram, &profile);
        let spare = flows.iter().any(|(key, hops)| {
            if *hops > 16 {
                self.long.insert(key.to_string());
            }
            self.long.contains(&key.to_string())
        });
        let up = self.kernel.give(&frame(payload, source, tagged));
        if up.is_some() != (news || odd) && !(spare && up.is_some()) {
            let events: Vec<_> = self.heard.events[before..].iter().collect();
            panic!(
                "datagram {}: news {news}, odd {odd}, but up {up:?}; {events:?} {:?} -> {:?}\n{payload:02x?}",
                self.all.stats().datagrams,
                state,
                hidden(&self.all, &flows)
            );
        }
        let Some((why, count, latest, payload)) = up else { return };
        self.up += 1;
        self.spare += u64::from(!(news || odd));
        self.catch_up(&datagram, &profile, (why, count, latest));
        self.few.handle(&[Datagram { payload: &payload, ..datagram }], &mut self.told);
    }

    /// Tells the second collector of the numbers before a datagram that went up.
    fn catch_up(
        &mut self,
        datagram: &Datagram<'_>,
        profile: &wire::Profile,
        (why, count, latest): (Why, u32, u32),
    ) {
        let Some((id, _)) = stream(datagram, profile) else { return };
        let applied = self.applied.entry(id).or_default();
        let swallowed = count.wrapping_sub(*applied) & 0x7fff_ffff;
        *applied = count;
        let run = Run { last: latest, count: swallowed.into(), same: why.has(Why::SAME) };
        if swallowed > 0 {
            self.few.receive_run(&id, run, datagram.received, &mut self.told);
        }
    }

    /// Is the datagram's number another than the next of its stream?
    fn number(&mut self, datagram: &Datagram<'_>, profile: &wire::Profile) -> bool {
        let Some((id, number)) = stream(datagram, profile) else { return false };
        let Some(run) = self.streams.get_mut(&id) else {
            self.streams.insert(id, Run { last: number, count: 0, same: false });
            return true;
        };
        let circle = if id.version == 20 { (1 << 22) - 1 } else { u32::MAX };
        let next = if run.same { run.last } else { run.last.wrapping_add(1) & circle } == number;
        let same = if next { run.same } else { run.last == number };
        *run = Run { last: number, count: 0, same };
        !next
    }

    /// Every datagram is counted once, in the kernel or in the collector that saw what went up; and both told the same.
    fn finish(&self) {
        let events = |log: &Log| log.events.clone();
        same_events(&events(&self.told), &events(&self.heard));
        let (few, all) = (self.few.stats(), self.all.stats());
        let kernel = self.kernel.tables.counters().unwrap();
        let sum = |at: fn(&Counters) -> u64, few: u64| at(&kernel) + few;
        assert_eq!(sum(|c| c.datagrams, few.datagrams), all.datagrams);
        assert_eq!(sum(|c| c.accepted, few.accepted), all.accepted);
        assert_eq!(sum(|c| c.reports, few.reports), all.reports);
        assert_eq!(sum(|c| c.flow_reports, few.flow_reports), all.flow_reports);
        assert_eq!(sum(|c| c.node_reports, few.node_reports), all.node_reports);
        let both = |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<_>>();
        assert_eq!(both(&kernel.refused, &few.refused), all.refused);
        assert_eq!(both(&kernel.refused_datagrams, &few.refused_datagrams), all.refused_datagrams);
        assert_eq!(kernel.told, self.up);
        assert_eq!((kernel.ring_full, kernel.contended), (0, 0));
    }
}

fn same_events(ours: &[Event], theirs: &[Event]) {
    for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(ours, theirs, "event {at}");
    }
    assert_eq!(ours.len(), theirs.len());
}

/// The stream that a datagram counts in, and its number.
fn stream(datagram: &Datagram<'_>, profile: &wire::Profile) -> Option<(StreamId, u32)> {
    let peek = wire::peek(datagram.payload, profile).ok()?;
    let version = match peek.version {
        wire::Version::V05 => 5,
        wire::Version::V10 => 10,
        wire::Version::V20 => 20,
    };
    let node = peek.node_id.filter(|_| version != 5);
    let source = if node.is_some() { [0; 16] } else { datagram.source };
    Some((StreamId { version, hw_id: peek.hw_id, listener: datagram.listener, node, source }, peek.seq))
}

/// The flows of a datagram's good reports, and how many hops each tells of.
fn flows(payload: &[u8], profile: &wire::Profile) -> Vec<(FlowKey, usize)> {
    let (mut decoder, mut report) = (Decoder::new(*profile), Report::EMPTY);
    let (mut reports, mut flows) = (decoder.reports(payload), Vec::new());
    while let Some(read) = reports.read(&mut report) {
        if let (Ok(()), Some(flow)) = (read, report.flow) {
            flows.push((flow, report.hop_count()));
        }
    }
    flows
}

fn hidden(collector: &Collector, flows: &[(FlowKey, usize)]) -> Vec<Option<Hidden>> {
    let of = |flow: FlowView<'_>| {
        let nodes = flow.hops().map(|hop| hop.node).collect();
        ([flow.hop_limit, flow.mtu, flow.lone], flow.path_length, nodes)
    };
    flows.iter().map(|(key, _)| collector.flow(key).map(of)).collect()
}

/// Reporters of every kind, and the flows they tell of.
struct Network {
    dice: Dice,
    seq: [u32; 6],
    routes: Vec<Vec<Node>>,
    longest: usize,
    bitmaps: Vec<u16>,
}

impl Network {
    fn new(seed: u64, longest: usize) -> Self {
        let bitmaps = vec![0xfd00, 0xf900, 0xfd00, 0x8000, 0xf100, 0xd000, 0xcc00];
        let mut network = Self { dice: Dice(seed), seq: [0; 6], routes: Vec::new(), longest, bitmaps };
        network.seq = [0, u32::MAX - 200, (1 << 22) - 300, 5, 0, 77];
        for _ in 0..40 {
            let route = network.route();
            network.routes.push(route);
        }
        network
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.dice.below(count) == 0
    }

    fn route(&mut self) -> Vec<Node> {
        let first = self.dice.below(4) as u32;
        let count = 1 + self.dice.below(self.longest) as u32;
        let mut route: Vec<Node> =
            (0..count).map(|hop| node(10 * hop + first + self.dice.below(2) as u32)).collect();
        if count > 2 && self.one_in(10) {
            route.push(route[0]);
        }
        route
    }

    /// Values wander, mostly inside their thresholds.
    fn wander(&mut self, flow: usize) {
        let dice = &mut self.dice;
        for hop in &mut self.routes[flow] {
            let step = if dice.below(60) == 0 { 300 } else { 8 };
            let mut up = |value: u32, by: usize| {
                value.saturating_add(dice.below(2 * by + 1) as u32).saturating_sub(by as u32)
            };
            hop.latency = hop.latency.map(|value| up(value, step));
            hop.utilization = hop.utilization.map(|value| up(value, step));
            let occupancy = hop.queue.map(|(_, value)| up(value, step / 8));
            if let (Some(queue), Some(occupancy)) = (&mut hop.queue, occupancy) {
                let id = if dice.below(80) == 0 { dice.below(3) as u8 } else { queue.0 };
                *queue = (id, occupancy);
            }
            if dice.below(400) == 0 {
                hop.latency = if hop.latency.is_some() { None } else { Some(900) };
            }
        }
    }

    fn sent(&mut self, reporter: usize) -> Sent {
        let flow = self.dice.below(self.routes.len());
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
            sent.flags = Flags::QUEUE;
        }
        if self.one_in(40) {
            sent.int_flags = wire::int::Flags::HOPS_EXCEEDED;
        }
        if self.one_in(100) {
            (sent.flags, sent.metadata, sent.reason) = (Flags::DROP, 0x20, Some(7));
        }
        if self.one_in(20) {
            sent.metadata = 0x20;
        }
        sent
    }

    fn next(&mut self, reporter: usize) -> u32 {
        let mask = if reporter == 2 { (1 << 22) - 1 } else { u32::MAX };
        let step = match self.dice.below(300) {
            0 => self.dice.below(6) as u32 + 2,
            1 => self.dice.below(400) as u32,
            2 => 0,
            _ => 1,
        };
        let seq = &mut self.seq[reporter];
        *seq = seq.wrapping_add(step) & mask;
        if reporter == 4 { 0 } else { self.seq[reporter] }
    }

    /// A datagram and its sender.
    fn datagram(&mut self) -> (Vec<u8>, [u8; 4]) {
        let reporter = self.dice.below(6);
        let seq = self.next(reporter);
        let sent = Sent { seq, ..self.sent(reporter) };
        let plain = |sent: Sent| Sent { metadata: 0, reason: None, ..sent };
        let mut bytes = match reporter {
            2 => {
                let others: Vec<Sent> = (0..self.dice.below(3)).map(|_| plain(self.sent(2))).collect();
                Sent::v20(&[vec![plain(sent)], others].concat())
            }
            3 => Sent { hops: sent.hops[..1].to_vec(), ..plain(sent) }.postcard(),
            5 => plain(sent).v05(),
            _ => sent.v10(),
        };
        if self.one_in(300) {
            bytes.truncate(self.dice.below(bytes.len()));
        }
        (bytes, [192, 0, 2, reporter as u8])
    }
}

fn detection(threshold: u64, rules: &[&str], generation: u32) -> Arc<Detection> {
    let rules: Vec<_> = rules.iter().map(|text| ((*text).to_owned(), (*text).to_owned())).collect();
    let some = Match { sport: "1000-1012".parse().unwrap(), ..Match::default() };
    let v6 = Match { src: Some("2001:db8::/32".parse().unwrap()), ..Match::default() };
    let less = [None, Some(threshold / 3), Some(threshold / 3), None, None, Some(threshold / 2)];
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
    Config { detection: detection(threshold, &[], 1), ..config() }
}

#[test]
fn what_goes_up_is_what_the_collector_finds_news_in() {
    for seed in 1..=6 {
        let test = "what_goes_up_is_what_the_collector_finds_news_in";
        let Some(mut model) = Model::new(test, start(300), SIZES) else { return };
        run(&mut model, &mut Network::new(seed * 7919, 5), 6000, &[]);
        assert!(model.up < 6000 * 3 / 4, "{} of 6000 went up", model.up);
        assert_eq!(model.spare, 0);
    }
}
