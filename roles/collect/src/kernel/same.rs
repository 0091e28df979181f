//! Test of the equivalence of all receive paths: a replayed capture, a UDP socket, native AF_XDP, and the kernel detection
//! program (with `BPF_PROG_TEST_RUN` and on an interface of two network namespaces) give the same results for the same frames.
//!
//! Compared are events with their record IDs and paths, drops, counters, stream totals and the latest state of each flow.
//! Excluded are times, and the events that depend on the clock (losses, expiry, `latest`).

use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use collector::{
    Collector, Config, Datagram, Drop, Event, FlowRow, Kind, Output, Profile, Stats, StreamView,
};
use detect::Detection;
use nic::netns::{Pair, send_frames};
use nic::receive::{self, Options, RxPath};
use testkit::{datagrams, network, rng, vectors};
use xdp::Sizes;

use super::KernelSync;
use super::live::{Live, PROGRAM, Reading};
use crate::datagram::octets;

const PORT: u16 = 32_766;
const SECOND: u64 = 1_000_000_000;
/// Number of frames sent before the input is drained; they fit into any ring.
const BURST: usize = 256;

/// Results of a collector for some traffic.
#[derive(Debug, Default)]
struct Answer {
    events: Vec<(Event, Vec<u32>)>,
    drops: Vec<Drop>,
    stats: Option<Stats>,
    streams: Vec<StreamView>,
    flows: Vec<(FlowRow, u64, Vec<u32>)>,
    /// Datagrams passed to user space, and datagrams that the kernel program processed.
    passed: Option<(u64, u64)>,
}

impl Output for Answer {
    fn event(&mut self, event: &Event, path: &[u32]) {
        if !matches!(event.kind, Kind::Loss | Kind::Expired | Kind::Latest) {
            self.events.push((Event { ts: 0, ..*event }, path.to_vec()));
        }
    }

    fn drop_report(&mut self, drop: &Drop) {
        self.drops.push(Drop { ts: 0, ..*drop });
    }
}

/// A collector and its results.
type Bench = super::tests::Bench<Answer>;

impl Bench {
    fn of(config: &Config) -> Self {
        let mut bench = Self::new(Collector::new(config.clone()));
        bench.slow_from = Some(nic::time::now());
        bench
    }

    fn now(&self) -> u64 {
        self.time(nic::time::now())
    }

    fn give(&mut self, payload: &[u8], (source, src_port): (IpAddr, u16), received: u64) {
        let (source, received) = (octets(source), self.time(received));
        self.collector.handle(
            &[Datagram {
                payload,
                source,
                src_port,
                listener: 0,
                received,
            }],
            &mut self.collected,
        );
    }

    fn answer(mut self) -> Answer {
        self.collector.finish(self.now(), &mut self.collected);
        let mut stats = self.collector.stats();
        stats += &self.external_stats;
        for kind in [Kind::Loss, Kind::Expired, Kind::Latest] {
            stats.events[kind as usize] = 0;
        }
        let mut streams: Vec<StreamView> = self.collector.streams().collect();
        for stream in &mut streams {
            stream.last_seen = 0;
            if stream.mixed {
                // Mixed streams have meaningless counts, which depend on the numbers that the kernel passes.
                (stream.reordered, stream.duplicated) = (0, 0);
            }
            if stream.id.node.is_some() {
                stream.id.source = [0; 16];
            }
        }
        streams.sort_by_key(|stream| stream.id);
        let timeless = |row| FlowRow {
            first_seen: 0,
            last_seen: 0,
            ..row
        };
        let flow = |flow: collector::FlowView<'_>| (timeless(flow.row), flow.rules, flow.path().collect());
        let mut flows: Vec<_> = self.collector.flows().map(flow).collect();
        flows.sort_by_key(|(row, ..)| row.flow.to_string());
        Answer {
            stats: Some(stats),
            streams,
            flows,
            ..self.collected
        }
    }
}

/// Frames and the configuration of the collector. `changes` activates other settings before the frame with that index.
struct Traffic {
    config: Config,
    frames: Vec<Vec<u8>>,
    changes: Vec<(usize, Arc<Detection>)>,
}

impl Traffic {
    fn new(profile: Profile, frames: Vec<Vec<u8>>) -> Self {
        let config = Config {
            max_flows: 4096,
            push_interval: 0,
            flow_timeout: 3600 * SECOND,
            detection: network::detection(300, &[], 1),
            default_profile: profile,
            ..Config::default()
        };
        Self {
            config,
            frames,
            changes: Vec::new(),
        }
    }

    /// Splits the frames at the changes; returns each piece with the detection that becomes active before it.
    fn pieces(&self) -> impl Iterator<Item = (Option<&Arc<Detection>>, &[Vec<u8>])> {
        let starts: Vec<usize> = std::iter::once(0)
            .chain(self.changes.iter().map(|(at, _)| *at))
            .chain([self.frames.len()])
            .collect();
        let detections =
            std::iter::once(None).chain(self.changes.iter().map(|(_, detection)| Some(detection)));
        detections.zip(
            (0..starts.len() - 1)
                .map(move |at| &self.frames[starts[at]..starts[at + 1]])
                .collect::<Vec<_>>(),
        )
    }
}

/// Reads the traffic from a capture, like `hopwise replay`. Its results are the reference.
fn by_capture(traffic: &Traffic) -> Answer {
    let file = std::env::temp_dir().join(format!("hopwise-same-{}-{:p}.pcap", std::process::id(), traffic));
    let mut writer = nic::capture::Writer::create(&file, nic::capture::LinkType::Ethernet).unwrap();
    let start = nic::time::now();
    for (at, frame) in traffic.frames.iter().enumerate() {
        writer.write(start + at as u64 * 1000, frame).unwrap();
    }
    writer.finish().unwrap();
    let mut bench = Bench::of(&traffic.config);
    let mut reader = nic::capture::Reader::open(&file).unwrap();
    for (detection, frames) in traffic.pieces() {
        if let Some(detection) = detection {
            bench.collector.set_detection(Arc::clone(detection));
        }
        for _ in frames {
            let frame = reader.next().unwrap().unwrap();
            let nic::capture::Layer::Ethernet(bytes) = frame.layer() else {
                panic!("{frame:?}")
            };
            if let Ok(datagram) = wire::datagram(bytes) {
                bench.give(datagram.payload, (datagram.src, datagram.src_port), frame.ts);
            }
        }
    }
    std::fs::remove_file(&file).unwrap();
    bench.answer()
}

/// Receives the traffic by one receive path of an interface, over a veth pair between namespaces.
fn by_rx_path(traffic: &Traffic, pair: &Pair, rx_path: RxPath) -> Answer {
    let options = Options {
        ports: vec![PORT],
        best: rx_path,
        worst: rx_path,
        program: Some(xdp::STEER),
        ..Options::default()
    };
    let mut opened = pair
        .far
        .run(|| receive::open(Pair::DEVICE, &options))
        .unwrap()
        .unwrap();
    let mut bench = Bench::of(&traffic.config);
    for (detection, frames) in traffic.pieces() {
        if let Some(detection) = detection {
            bench.collector.set_detection(Arc::clone(detection));
        }
        for frames in frames.chunks(BURST) {
            pair.near
                .run(|| send_frames(Pair::DEVICE, frames))
                .unwrap()
                .unwrap();
            let mut missing = frames.len();
            while missing > 0 {
                let count = opened.sources[0].receive(1000, &mut |packets| {
                    for packet in packets {
                        let sender = (packet.source.ip(), packet.source.port());
                        bench.give(packet.data, sender, packet.received);
                    }
                });
                let count = count.unwrap();
                assert!(count > 0, "{rx_path}: {missing} did not come");
                missing -= count;
            }
        }
    }
    assert_eq!(opened.sources[0].stats().lost(), 0);
    bench.answer()
}

fn load(traffic: &Traffic) -> Result<Live, nic::Error> {
    let sizes = Sizes {
        flows: 5120,
        queues: 4096,
        links: 4096,
        streams: 1024,
        ring: 1 << 22,
        seed: 7,
    };
    let Config {
        default_profile: default,
        profiles,
        detection,
        ..
    } = &traffic.config;
    Live::load(
        sizes,
        &Reading {
            ports: &[(PORT, 0)],
            default,
            profiles,
            detection,
        },
    )
}

/// Processes the traffic with the kernel program, to which `send` passes frames.
fn by_kernel(traffic: &Traffic, live: Live, mut send: impl FnMut(&KernelSync<Live>, &[Vec<u8>])) -> Answer {
    let mut sync = KernelSync::new(live, 3600 * SECOND);
    let mut bench = Bench::of(&traffic.config);
    sync.set_clock(nic::time::now(), nic::time::monotonic());
    sync.poll(bench.now(), &mut bench).unwrap();
    for (detection, frames) in traffic.pieces() {
        if let Some(detection) = detection {
            // Records under the old thresholds are still in the ring.
            bench.coming = Some(Arc::clone(detection));
            sync.poll(bench.now(), &mut bench).unwrap();
        }
        for frames in frames.chunks(BURST) {
            while sync.drain(&mut bench) > 0 {}
            sync.poll(bench.now(), &mut bench).unwrap();
            send(&sync, frames);
        }
    }
    sync.end(bench.now(), &mut bench).unwrap();
    let stats = sync.stats();
    let passed = bench.collector.stats().datagrams;
    assert_eq!(
        stats.datagrams,
        passed + bench.external_stats.datagrams,
        "each is counted once"
    );
    assert_eq!(stats.ring_full, 0);
    assert_eq!(
        stats.datagrams + stats.refused.iter().sum::<u64>(),
        traffic.frames.len() as u64
    );
    Answer {
        passed: Some((passed, stats.datagrams)),
        ..bench.answer()
    }
}

fn by_test_run(traffic: &Traffic, live: Live) -> Answer {
    by_kernel(traffic, live, |sync, frames| {
        for frame in frames {
            sync.kernel().object().test_run(PROGRAM, frame, 1).unwrap();
        }
    })
}

fn by_interface(traffic: &Traffic, live: Live, pair: &Pair) -> Answer {
    let options = Options {
        ports: vec![PORT],
        ..Options::default()
    };
    let filter = pair
        .far
        .run(|| receive::filter(Pair::DEVICE, live.object(), PROGRAM, &options));
    let filter = filter.unwrap().unwrap();
    assert_eq!(filter.rx_path, RxPath::Native, "{:?}", filter.tried);
    *runtime::lock::lock(&live.attachment()) = Some(filter.attached);
    let mut sent = 0;
    by_kernel(traffic, live, |sync, frames| {
        pair.near
            .run(|| send_frames(Pair::DEVICE, frames))
            .unwrap()
            .unwrap();
        sent += frames.len() as u64;
        // The far end receives the frames asynchronously.
        for _ in 0..20_000 {
            let counted = sync.kernel().seen().unwrap();
            if counted >= sent {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("not all came");
    })
}

fn assert_same(what: &str, ours: &Answer, theirs: &Answer) {
    for (at, (ours, theirs)) in ours.events.iter().zip(&theirs.events).enumerate() {
        assert_eq!(ours, theirs, "{what}, event {at}");
    }
    assert_eq!(ours.events.len(), theirs.events.len(), "{what}");
    assert_eq!(ours.drops, theirs.drops, "{what}");
    assert_eq!(ours.stats, theirs.stats, "{what}");
    assert_eq!(ours.streams, theirs.streams, "{what}");
    for (ours, theirs) in ours.flows.iter().zip(&theirs.flows) {
        assert_eq!(ours, theirs, "{what}");
    }
    assert_eq!(ours.flows.len(), theirs.flows.len(), "{what}");
}

/// Skips a case, with a message, if the process lacks the capabilities for it.
fn unless_forbidden<T>(what: &str, tried: Result<T, nic::Error>) -> Option<T> {
    /// EPERM, EACCES.
    const FORBIDDEN: [i32; 2] = [1, 13];
    match tried {
        Ok(done) => Some(done),
        Err(error) if error.errno().is_some_and(|errno| FORBIDDEN.contains(&errno)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED {what}: {error}");
            None
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Creates two namespaces and a link between them. Needs root and `ip`.
fn pair(what: &str) -> Option<Pair> {
    let pair = Pair::create();
    if let Err(error) = &pair {
        let _ = writeln!(std::io::stderr(), "SKIPPED {what}, over a link: {error}");
    }
    pair.ok()
}

/// Compares all receive paths, and reports those as skipped that this process may not use. Returns how many datagrams the
/// kernel program passed to user space, and how many it processed.
fn compare(what: &str, traffic: &Traffic) -> Option<(u64, u64)> {
    let expected = by_capture(traffic);
    let live = unless_forbidden(what, load(traffic))?;
    let kernel = by_test_run(traffic, live);
    assert_same(&format!("{what}: kernel"), &kernel, &expected);
    let passed = kernel.passed;
    let Some(pair) = pair(what) else { return passed };
    for rx_path in [RxPath::Udp, RxPath::Native] {
        assert_same(
            &format!("{what}: {rx_path}"),
            &by_rx_path(traffic, &pair, rx_path),
            &expected,
        );
    }
    let live = load(traffic).unwrap();
    assert_same(
        &format!("{what}: interface"),
        &by_interface(traffic, live, &pair),
        &expected,
    );
    passed
}

/// Builds a frame that a network stack accepts, from one of the near end's addresses to the far end of a pair.
fn frame(payload: &[u8], host: u8) -> Vec<u8> {
    use wire::{ethernet, ipv4, udp};
    let mut frame = vec![0; 42];
    let far = [2, 0, 0, 0, 0, 2];
    ethernet::Repr {
        dst: far,
        ethertype: 0x0800,
        ..ethernet::Repr::default()
    }
    .emit(&mut frame);
    let len = u16::try_from(payload.len()).unwrap();
    let [IpAddr::V4(dst), _] = Pair::FAR else {
        panic!("IPv4 comes first")
    };
    let ip = ipv4::Repr {
        proto: 17,
        total_len: 28 + len,
        ttl: 64,
        src: [10, 97, 0, 10 + host],
        dst: dst.octets(),
        ..ipv4::Repr::default()
    };
    ip.emit(&mut frame[14..]);
    udp::Repr {
        src_port: 0x4000,
        dst_port: PORT,
        len: 8 + len,
        checksum: 0,
    }
    .emit(&mut frame[34..]);
    frame.extend_from_slice(payload);
    frame
}

#[test]
fn traffic_with_everything_in_it() {
    let rules = [
        "max(hop_latency) > 1300 and hops > 2",
        "queue_occupancy > 25 or loop",
    ];
    for seed in 1..=2 {
        let mut network = network::Network::new(seed * 7919);
        let datagrams: Vec<_> = (0..6000).map(|_| network.datagram()).collect();
        let frames: Vec<_> = datagrams
            .iter()
            .map(|(payload, source)| frame(payload, source[3]))
            .collect();
        let mut traffic = Traffic::new(Profile::default(), frames);
        let many = (0..70).map(|n| format!("hops != {}", n + 20)).collect::<Vec<_>>();
        let too_long = [
            many[..40].join(" and "),
            format!("{} and queue_occupancy > 20", many[40..].join(" and ")),
        ];
        traffic.changes = vec![
            (1500, network::detection(200, &rules, 2)),
            (3000, network::detection(400, &rules[1..], 3)),
            (4000, network::detection(300, &[], 4)),
            (5000, network::detection(300, &[&too_long[0], &too_long[1]], 5)),
        ];
        if let Some((passed, all)) = compare(&format!("traffic {seed}"), &traffic) {
            assert!(passed < all * 9 / 10, "{passed} of {all} were passed");
        }
    }
}

/// Wraps payloads that fit the link's MTU into frames from three hosts.
fn frames<'p>(payloads: impl IntoIterator<Item = &'p [u8]>) -> Vec<Vec<u8>> {
    let short = payloads.into_iter().filter(|payload| payload.len() <= 1400);
    short
        .enumerate()
        .map(|(at, payload)| frame(payload, (at % 3) as u8))
        .collect()
}

/// Builds a report about a packet in each version of the format.
fn reports_about(packet: &[u8]) -> [Vec<u8>; 3] {
    let v05 = [0x00, 0x20, 0, 1, 0, 0, 0, 7, 0, 0, 3, 0xe8];
    let v10 = [0x14, 0, 0, 0x41, 0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 3, 0xe8];
    let padded = packet.len().next_multiple_of(4);
    let words = (padded / 4).min(255) as u8;
    let v20 = [0x20, 0x40, 0x0a, 0xbd, 0, 0, 0, 3, 0x03, words, 0, 0x20];
    let tail = vec![0; padded - packet.len()];
    [
        [&v05[..], packet].concat(),
        [&v10[..], packet].concat(),
        [&v20[..], packet, &tail].concat(),
    ]
}

/// Returns the telemetry datagrams of a test vector.
fn payloads(vector: &vectors::Vector) -> Vec<Vec<u8>> {
    match vector.kind {
        vectors::Kind::Payload => vec![vector.bytes.clone()],
        vectors::Kind::Frame => wire::datagram(&vector.bytes)
            .map(|datagram| datagram.payload.to_vec())
            .into_iter()
            .collect(),
        vectors::Kind::Packet => reports_about(&vector.bytes).into(),
        _ => Vec::new(),
    }
}

#[test]
fn every_vector() {
    let mut by_profile: Vec<(wire::Profile, Vec<Vec<u8>>)> = Vec::new();
    for vector in vectors::all() {
        let at = by_profile
            .iter()
            .position(|(profile, _)| *profile == vector.profile);
        let at = at.unwrap_or_else(|| {
            by_profile.push((vector.profile, Vec::new()));
            by_profile.len() - 1
        });
        by_profile[at].1.extend(payloads(&vector));
    }
    let mut count = 0;
    for (at, (profile, payloads)) in by_profile.iter().enumerate() {
        // The second pass has no changes; the third is in reverse order, so that paths and values change.
        let again = payloads.iter().chain(payloads).chain(payloads.iter().rev());
        let traffic = Traffic::new(
            Profile::new("vectors", *profile),
            frames(again.map(Vec::as_slice)),
        );
        count += traffic.frames.len();
        if compare(&format!("vectors {at}"), &traffic).is_none() {
            return;
        }
    }
    assert!(count > 600, "{count}");
}

#[test]
fn random_datagrams() {
    let mut rng = rng::Rng(0x5a3e);
    for at in 0..3 {
        // A small pool, so that flows, nodes and sequence numbers repeat.
        let mut pool: Vec<Vec<u8>> = (0..400).map(|_| datagrams::datagram(&mut rng)).collect();
        let some = (0..5000).map(|_| rng.below(pool.len())).collect::<Vec<_>>();
        let mut payloads = Vec::new();
        for choice in some {
            if rng.below(8) == 0 && !pool[choice].is_empty() {
                let place = rng.below(pool[choice].len());
                pool[choice][place] = rng.roll() as u8;
            }
            payloads.push(pool[choice].clone());
        }
        let profile = Profile::new("random", datagrams::profile(&mut rng));
        let mut traffic = Traffic::new(profile, frames(payloads.iter().map(Vec::as_slice)));
        // One of the hosts has different units and clocks.
        let other = Profile {
            timestamp_unit_ns: 8,
            latency_unit_ns: 100,
            utilization_scale: 0.01,
            clocks: collector::config::Clocks::Synchronised,
            ..Profile::new("other", datagrams::profile(&mut rng))
        };
        traffic.config.profiles = vec![("10.97.0.11".parse().unwrap(), other)];
        let rules = [
            "max(hop_latency) > 3 or link_utilization > 0.000004",
            "hops > 2 and not loop",
        ];
        traffic.changes = vec![(2500, network::detection(3, &rules, 2))];
        if compare(&format!("random {at}"), &traffic).is_none() {
            return;
        }
    }
}

#[test]
fn the_common_report() {
    for name in ["fastpath-6x8-change", "fastpath-6x8-1k-jitter"] {
        let case = testkit::workload::collector::CASES
            .iter()
            .find(|case| case.name == name)
            .unwrap();
        let case = testkit::workload::collector::Case { flows: 200, ..*case };
        let feed = case.feed();
        let payloads: Vec<&[u8]> = feed.payloads().collect();
        let profile = Profile::new("generator", wire::Profile::new(wire::Dialect::IntCollectorGen));
        let repeated = std::iter::repeat_n(&payloads, 6).flatten().copied();
        let mut traffic = Traffic::new(profile, frames(repeated));
        traffic.changes = vec![(700, network::detection(100_000, &["flow_latency > 24us"], 2))];
        let Some((passed, all)) = compare(name, &traffic) else {
            return;
        };
        let most = if name == "fastpath-6x8-change" {
            all
        } else {
            all / 2
        };
        assert!(passed <= most, "{name}: {passed} of {all} were passed");
    }
}

#[test]
fn reports_of_switches() {
    use dataplane::fabric::{Family, FlowSpec, Wire};
    use dataplane::{
        Config, Fabric, FabricSink, Pattern, Reporter, Topology, Watch, report, switch, watchlist::Mode,
    };

    struct Reports(Vec<Vec<u8>>);
    impl FabricSink for Reports {
        fn report(&mut self, _: u64, _: &Reporter, payload: &[u8]) {
            self.0.push(payload.to_vec());
        }
    }
    for (at, mode) in [Mode::Md21, Mode::Md10, Mode::Mx21, Mode::Postcard]
        .into_iter()
        .enumerate()
    {
        let wire = Wire {
            rate: 10_000_000,
            delay: 1_000,
            depth: 3_000,
        };
        let version = if mode == Mode::Md10 {
            report::Version::V10
        } else {
            report::Version::V20
        };
        let format = report::Format {
            version,
            group: 1,
            ..report::Format::default()
        };
        let congestion = Some(switch::Congestion {
            rise: 2_000,
            fall: 1_000,
            quota: 0,
        });
        let switch = switch::Config {
            available: 0xff80,
            format,
            congestion,
            ..switch::Config::default()
        };
        let watch = Watch {
            mode,
            ..Watch::new(detect::Match::default())
        };
        let config = Config {
            switch,
            watchlist: watch.into(),
            ..Config::default()
        };
        let mut fabric = Fabric::new(Topology::line(3, wire).unwrap(), config, 1).unwrap();
        for (at, family) in [Family::V4, Family::V6].into_iter().enumerate() {
            let spec = FlowSpec::new(10_001, 10_002, 4000 + at as u16, 80);
            fabric
                .add_flow(&FlowSpec {
                    family,
                    pattern: Pattern::poisson(3_000),
                    ..spec
                })
                .unwrap();
        }
        let mut reports = Reports(Vec::new());
        fabric.run_until(200_000_000, &mut reports);
        let some = reports.0.iter().take(2000).map(Vec::as_slice);
        let mut traffic = Traffic::new(Profile::default(), frames(some));
        assert!(traffic.frames.len() > 300, "{}", traffic.frames.len());
        let rules = ["queue_occupancy > 1000", "flow_latency > 3ms"];
        traffic.changes = vec![(100, network::detection(100_000, &rules, 2))];
        if compare(&format!("switches {at}"), &traffic).is_none() {
            return;
        }
    }
}
