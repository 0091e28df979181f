//! A model of the filter, without a kernel: a second collector that receives every datagram decides whether one contains a change.
//! Others are suppressed and reported by runs and suppressed values; both collectors must then have reported the same.

#![allow(clippy::unwrap_used, reason = "a helper of tests may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use collector::event::{Basis, Nanos};
use collector::{
    Collector, Config, Datagram, Event, FlowRow, FlowView, HopView, Kind, Removed, Rollup, Run, SeriesView,
    StreamId, SuppressedFlow, SuppressedHop, SuppressedKey,
};
use detect::{Detection, Metric, Thresholds};
use testkit::network::{Network, Random, detection};
use testkit::reports::{Bench, Log, SECOND, START, Sent, config, node, stream};
use wire::{Decoder, FlowKey, Report};

/// The counters that the filter keeps for suppressed datagrams.
type Counters = [u64; 5];

fn counters(collector: &Collector) -> Counters {
    let stats = collector.stats();
    let refused = stats.refused_datagrams.iter().sum();
    [
        stats.datagrams,
        stats.accepted,
        refused,
        stats.flow_reports,
        stats.node_reports,
    ]
}

/// Both collectors, and the filter between them.
struct Model {
    /// Receives every datagram.
    all: Collector,
    /// Receives the datagrams that the filter passes.
    few: Collector,
    collected: Log,
    reported: Log,
    streams: BTreeMap<StreamId, Run>,
    /// Suppressed reports of each flow, and their nodes.
    suppressed: BTreeMap<FlowKey, (u64, Vec<Option<u32>>)>,
    /// Number of values of each key, and of suppressed ones.
    values: BTreeMap<(Metric, u32, u32), u64>,
    keys: BTreeMap<(Metric, u32, u32), SuppressedKey>,
    /// Flows of which no report with INT has come since a postcard.
    postcards: BTreeSet<FlowKey>,
    counted: Counters,
    given_up: u64,
    /// How long the filter's values may wait; 0: until just before the second ends.
    round: Nanos,
    synced: Nanos,
    now: Nanos,
}

impl Model {
    fn new(config: &Config, round: Nanos) -> Self {
        let mut few = Collector::new(config.clone());
        few.track_removals(64);
        Self {
            all: Collector::new(config.clone()),
            few,
            collected: Log::default(),
            reported: Log::default(),
            streams: BTreeMap::new(),
            suppressed: BTreeMap::new(),
            values: BTreeMap::new(),
            keys: BTreeMap::new(),
            postcards: BTreeSet::new(),
            counted: Counters::default(),
            given_up: 0,
            round,
            synced: START,
            now: START,
        }
    }

    fn set_detection(&mut self, detection: &Arc<Detection>) {
        self.all.set_detection(Arc::clone(detection));
        self.few.set_detection(Arc::clone(detection));
    }

    /// Advances time, after the filter has applied suppressed values before the end of a second.
    fn pass(&mut self, now: Nanos) {
        let due = match self.round {
            0 => now / SECOND != self.now / SECOND,
            round => now - self.synced >= round,
        };
        if due {
            self.sync();
            self.synced = now;
        }
        self.now = now;
        self.all.tick(now, &mut self.collected);
        self.few.tick(now, &mut self.reported);
    }

    fn deliver(&mut self, payload: &[u8], source: [u8; 4]) {
        let source = Ipv4Addr::from(source).to_ipv6_mapped().octets();
        let datagram = Datagram {
            payload,
            source,
            src_port: 5000,
            listener: 0,
            received: self.now,
        };
        let flows = read(payload);
        let (before, state) = (counters(&self.all), hidden(&self.all, &flows));
        let reported = self.collected.events.len();
        self.all.handle(&[datagram], &mut self.collected);
        // Postcards of one node are joined with those of others, whether or not their values changed.
        let mut change = has_postcard(payload);
        change |= self.collected.events.len() > reported || hidden(&self.all, &flows) != state;
        change |= self.continues_after_postcards(payload) || self.lacks_path_by_int(&flows);
        change |= self.all.stats().unadmitted_total() > 0;
        let keys = kept_keys(&self.all, &mut self.values);
        let suppressed_seq = self.number(&datagram, change);
        if change || !suppressed_seq {
            self.given_up += 1;
            self.few.handle(&[datagram], &mut self.reported);
            return;
        }
        self.keys.extend(
            keys.into_iter()
                .map(|key| ((key.metric, key.node, key.part), key)),
        );
        let after = counters(&self.all);
        (0..after.len()).for_each(|at| self.counted[at] += after[at] - before[at]);
        for (key, nodes) in flows.into_iter().filter(|(key, _)| self.all.flow(key).is_some()) {
            let (reports, collected) = self.suppressed.entry(key).or_default();
            *reports += 1;
            collected.extend(nodes);
        }
    }

    /// Whether the datagram has the first report with INT of a flow after postcards.
    fn continues_after_postcards(&mut self, payload: &[u8]) -> bool {
        let mut continues = false;
        for (flow, is_postcard) in whole_reports(payload) {
            if is_postcard {
                self.postcards.insert(flow);
            } else {
                continues |= self.postcards.remove(&flow);
            }
        }
        continues
    }

    /// Whether one of these flows with hops is known, and its path is not by INT.
    fn lacks_path_by_int(&self, flows: &[(FlowKey, Vec<Option<u32>>)]) -> bool {
        let lacks = |flow: FlowView<'_>| flow.path_length == 0 || flow.path_basis != Basis::Measured;
        flows
            .iter()
            .any(|(key, nodes)| !nodes.is_empty() && self.all.flow(key).is_some_and(lacks))
    }

    /// The filter's step for the datagram's sequence number. `true`: it is the expected one.
    fn number(&mut self, datagram: &Datagram<'_>, change: bool) -> bool {
        let Some((id, number, refused)) = stream(datagram, &wire::Profile::default()) else {
            return true;
        };
        let mask = if id.version == 20 { (1 << 22) - 1 } else { u32::MAX };
        if refused && !self.streams.contains_key(&id) {
            return true;
        }
        let Some(run) = self.streams.get_mut(&id) else {
            self.streams.insert(
                id,
                Run {
                    last: number,
                    count: 0,
                    same: false,
                },
            );
            return false;
        };
        let expected = if run.same {
            run.last
        } else {
            run.last.wrapping_add(1) & mask
        } == number;
        if expected && !change && !refused {
            (run.last, run.count) = (number, run.count + 1);
            return true;
        }
        // The run ends here: the collector accounts for it before this datagram.
        self.few
            .receive_run(&id, *run, datagram.received, &mut self.reported);
        let same = if expected { run.same } else { run.last == number };
        *run = Run {
            last: number,
            count: 0,
            same,
        };
        expected && !refused
    }

    /// Applies suppressed runs and values.
    fn sync(&mut self) {
        for (id, stream) in &mut self.streams {
            let run = Run {
                count: std::mem::take(&mut stream.count),
                ..*stream
            };
            let seen = self
                .all
                .streams()
                .find(|view| is(&view.id, id))
                .map_or(0, |view| view.last_seen);
            self.few.receive_run(id, run, seen, &mut self.reported);
        }
        for (key, (reports, collected)) in std::mem::take(&mut self.suppressed) {
            let Some(flow) = self.all.flow(&key) else { continue };
            let hop = |hop: HopView| suppressed_hop(hop, collected.contains(&hop.node));
            let hops: Vec<SuppressedHop> = flow.hops().map(hop).collect();
            let (latency, last_seen) = (flow.row.flow_latency, flow.row.last_seen);
            let suppressed = SuppressedFlow {
                key,
                reports,
                latency,
                basis: Some(flow.row.basis),
                hops: &hops,
                last_seen,
            };
            self.few.apply_suppressed(&suppressed, &mut self.reported);
        }
        for key in std::mem::take(&mut self.keys).values() {
            self.few.apply_suppressed_key(key);
        }
    }

    fn finish(&mut self) {
        self.sync();
        self.all.finish(self.now, &mut self.collected);
        self.few.finish(self.now, &mut self.reported);
        let few = counters(&self.few);
        let sum: Counters = std::array::from_fn(|at| few[at] + self.counted[at]);
        assert_eq!(sum, counters(&self.all), "every datagram is counted once");
        let streams = |collector: &Collector| collector.streams().collect::<Vec<_>>();
        assert_eq!(streams(&self.few), streams(&self.all));
        let rows = |collector: &Collector| {
            let mut rows: Vec<(FlowRow, u64, Vec<u32>)> = collector
                .flows()
                .map(|flow| (flow.row, flow.rules, flow.path().collect()))
                .collect();
            rows.sort_by_key(|(row, ..)| row.flow.to_string());
            rows
        };
        assert_same(&rows(&self.few), &rows(&self.all), "flows");
        assert_eq!(self.reported.drops, self.collected.drops);
    }
}

fn is(ours: &StreamId, theirs: &StreamId) -> bool {
    let id = |id: &StreamId| (id.version, id.hw_id, id.listener, id.node);
    id(ours) == id(theirs) && (ours.node.is_some() || ours.source == theirs.source)
}

/// The flows of a datagram's good reports, and the nodes of each.
fn read(payload: &[u8]) -> Vec<(FlowKey, Vec<Option<u32>>)> {
    let (mut decoder, mut report) = (Decoder::new(wire::Profile::default()), Report::EMPTY);
    let (mut reports, mut flows) = (decoder.reports(payload), Vec::new());
    while let Some(read) = reports.read(&mut report) {
        if let (Ok(()), Some(flow)) = (read, report.flow) {
            flows.push((flow, report.hops().map(|hop| hop.node_id).collect()));
        }
    }
    flows
}

/// Whether one of the datagram's valid reports has the reporter's own metadata and nothing else.
fn has_postcard(payload: &[u8]) -> bool {
    let (mut decoder, mut report) = (Decoder::new(wire::Profile::default()), Report::EMPTY);
    let mut reports = decoder.reports(payload);
    while let Some(read) = reports.read(&mut report) {
        if read.is_ok() && is_postcard(&report) {
            return true;
        }
    }
    false
}

fn is_postcard(report: &Report<'_>) -> bool {
    report.has_metadata() && report.int.is_none() && report.hop_count() == 1
}

/// The flows of the datagram's valid reports of whole paths and of postcards, and whether they are postcards.
fn whole_reports(payload: &[u8]) -> Vec<(FlowKey, bool)> {
    let (mut decoder, mut report) = (Decoder::new(wire::Profile::default()), Report::EMPTY);
    let (mut reports, mut found) = (decoder.reports(payload), Vec::new());
    while let Some(read) = reports.read(&mut report) {
        let partial = report.flags.contains(wire::Flags::DROP)
            || report.flags.contains(wire::Flags::INTERMEDIATE)
            || report.flags.contains(wire::Flags::QUEUE) && !report.flags.contains(wire::Flags::FLOW);
        if let (Ok(()), Some(flow), false) = (read, report.flow, partial)
            && report.hop_count() > 0
        {
            found.push((flow, is_postcard(&report)));
        }
    }
    found
}

/// State of a flow that affects later events but does not itself cause an event when it changes.
type Hidden = ([bool; 4], u16, Vec<Option<u32>>);

fn hidden(collector: &Collector, flows: &[(FlowKey, Vec<Option<u32>>)]) -> Vec<Option<Hidden>> {
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
    flows.iter().map(|(key, _)| collector.flow(key).map(of)).collect()
}

/// Latest values of a flow, as the filter stores them. Those of queues and links are stored by key.
fn suppressed_hop(hop: HopView, collected: bool) -> SuppressedHop {
    let half = |port: Option<u32>| port.map_or(0xffff, |port| port & 0xffff);
    SuppressedHop {
        node: hop.node.unwrap_or(u32::MAX),
        link: half(hop.ingress_if.map(u32::from)) << 16 | half(hop.egress_if),
        latency: hop.hop_latency.filter(|_| collected).unwrap_or(u64::MAX),
        ..SuppressedHop::NOTHING
    }
}

/// Keys of nodes with values since the last time, as the filter stores them.
fn kept_keys(collector: &Collector, known: &mut BTreeMap<(Metric, u32, u32), u64>) -> Vec<SuppressedKey> {
    let of = |metric, views: Vec<SeriesView>| views.into_iter().map(move |view| (metric, view));
    of(Metric::HopLatency, collector.nodes().collect())
        .chain(of(Metric::QueueOccupancy, collector.queues().collect()))
        .chain(of(Metric::QueueCongestion, collector.congestion().collect()))
        .chain(of(Metric::LinkUtilization, collector.links().collect()))
        .filter(|(metric, view)| {
            known.insert((*metric, view.node, view.part), view.values) != Some(view.values)
        })
        .map(|(metric, view)| SuppressedKey {
            metric,
            node: view.node,
            part: view.part,
            value: view.latest,
        })
        .collect()
}

/// Passes `count` datagrams over some minutes to a model, and changes thresholds and rules in between.
fn run(model: &mut Model, seed: u64, count: usize, gap: impl Fn(&mut Random) -> Nanos) {
    let mut network = Network::new(seed);
    let rules = [
        "max(hop_latency) > 1300 and hops > 2",
        "queue_occupancy > 25 or loop",
    ];
    let changes = [
        (count / 3, detection(200, &rules, 2)),
        (count / 2, detection(400, &rules[1..], 3)),
        (count * 3 / 4, detection(300, &[], 4)),
    ];
    for at in 0..count {
        let gap = gap(&mut network.random);
        if gap > SECOND {
            // Until the sweep has visited all flows: before that, a flow may have expired in one collector only.
            (0..2 * (gap / SECOND) + 40).for_each(|_| model.pass(model.now + SECOND / 2));
        }
        model.pass(model.now + gap % SECOND);
        if let Some((_, detection)) = changes.iter().find(|(when, _)| *when == at) {
            model.set_detection(detection);
        }
        let (bytes, source) = network.datagram();
        model.deliver(&bytes, source);
    }
}

fn start() -> Config {
    Config {
        push_interval: 10 * SECOND,
        detection: detection(300, &[], 1),
        ..config()
    }
}

fn assert_same<T: PartialEq + std::fmt::Debug>(ours: &[T], theirs: &[T], what: &str) {
    for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(ours, theirs, "{what}, event {at}");
    }
    assert_eq!(ours.len(), theirs.len(), "{what}");
}

/// The events without the pushed state and the last values of expired keys, which are those of the filter's last round.
fn change(events: &[Event]) -> Vec<Event> {
    let without_value = |event: &Event| match (event.kind, event.metric) {
        (Kind::Expired, Some(Metric::FlowPath)) => *event,
        (Kind::Expired, _) => Event {
            value: None,
            id: 0,
            ..*event
        },
        _ => *event,
    };
    events
        .iter()
        .filter(|event| event.kind != Kind::Latest)
        .map(without_value)
        .collect()
}

#[test]
fn events_totals_and_flows_are_those_of_a_collector_that_sees_every_datagram() {
    for seed in 1..=12 {
        // All values are applied before a second ends, so even the times are the same.
        let mut model = Model::new(&start(), 0);
        run(&mut model, seed * 7919, 12_000, |random| {
            match random.below(2000) {
                0 => random.below(90) * SECOND,
                1..20 => random.below(SECOND),
                _ => random.below(4_000_000),
            }
        });
        model.finish();
        assert_same(
            &change(&model.reported.events),
            &change(&model.collected.events),
            &format!("seed {seed}"),
        );
        assert_eq!(model.reported.losses, model.collected.losses, "seed {seed}");
        let datagrams = model.all.stats().datagrams;
        assert!(
            model.given_up < datagrams * 9 / 10,
            "{} of {datagrams} were given up",
            model.given_up
        );
        let silent = Kind::ALL
            .iter()
            .filter(|&&kind| !model.reported.events.iter().any(|e| e.kind == kind));
        assert_eq!(
            silent.collect::<Vec<_>>(),
            [&Kind::Mtu, &Kind::PacketLoss],
            "each kind was reported"
        );
    }
}

/// Without the parts that depend on the time of the filter's values: times, and the distribution of losses over seconds.
fn timeless(events: &[Event]) -> Vec<Event> {
    let by_clock = |event: &&Event| matches!(event.kind, Kind::Latest | Kind::Loss | Kind::Expired);
    events.iter().filter(|event| !by_clock(event)).copied().collect()
}

fn sums(log: &Log) -> BTreeMap<(Option<u32>, [u8; 16], u8), [u64; 3]> {
    let mut sums = BTreeMap::new();
    for loss in &log.losses {
        let source = if loss.node.is_some() { [0; 16] } else { loss.source };
        let sum: &mut [u64; 3] = sums.entry((loss.node, source, loss.hw_id)).or_default();
        let counted = [loss.lost, loss.reordered, loss.duplicated];
        (0..3).for_each(|at| sum[at] += counted[at]);
    }
    sums
}

#[test]
fn a_round_of_a_second_changes_only_the_times_of_clock_driven_results() {
    for seed in 1..=12 {
        let mut model = Model::new(&start(), SECOND);
        // Four seconds of traffic, so that nothing expires in the meantime; then silence.
        run(&mut model, seed * 104_729, 12_000, |random| random.below(700_000));
        (0..140).for_each(|_| model.pass(model.now + SECOND / 2));
        model.finish();
        assert_same(
            &timeless(&model.reported.events),
            &timeless(&model.collected.events),
            &format!("seed {seed}"),
        );
        assert_eq!(sums(&model.reported), sums(&model.collected), "seed {seed}");
        let expired = |log: &Log| {
            let mut all: Vec<String> = log
                .events
                .iter()
                .filter(|event| event.kind == Kind::Expired)
                .map(|e| format!("{:?}", (e.metric, e.flow, e.node, e.interface, e.queue)))
                .collect();
            all.sort();
            all
        };
        assert_eq!(expired(&model.reported), expired(&model.collected), "seed {seed}");
    }
}

#[test]
fn rollups_are_within_twice_the_threshold_of_the_true_ones() {
    for seed in 1..=6 {
        let mut model = Model::new(&start(), 0);
        // One set of thresholds for all flows, and nothing expires.
        let thresholds = Thresholds::new([0, 300, 300, 30, 30, 300], Vec::new()).unwrap();
        model.set_detection(&Arc::new(Detection {
            thresholds,
            ..Detection::default()
        }));
        let mut network = Network::new(seed * 31);
        for _ in 0..12_000 {
            model.pass(model.now + network.random.below(700_000));
            let (bytes, source) = network.datagram();
            model.deliver(&bytes, source);
        }
        model.finish();
        let key = |r: &Rollup| (r.ts, r.interval, r.metric, r.node, r.interface, r.queue);
        let of = |log: &Log| -> Vec<Rollup> {
            let per_key = |r: &&Rollup| r.flow.is_none() && r.metric != Metric::HopLatency;
            let mut all: Vec<Rollup> = log.rollups.iter().filter(per_key).copied().collect();
            all.sort_by_key(|rollup| format!("{:?}", key(rollup)));
            all
        };
        let (few, all) = (of(&model.reported), of(&model.collected));
        assert_eq!(
            few.iter().map(key).collect::<Vec<_>>(),
            all.iter().map(key).collect::<Vec<_>>()
        );
        let threshold = |metric| {
            if metric == Metric::LinkUtilization {
                300
            } else {
                30
            }
        };
        let mut fewer = 0;
        for (few, all) in few.iter().zip(&all) {
            let within = 2 * threshold(few.metric);
            assert!(
                all.min <= few.min && few.min <= all.min + within,
                "{few:?} of {all:?}"
            );
            assert!(
                few.max <= all.max && all.max <= few.max + within,
                "{few:?} of {all:?}"
            );
            assert!(few.count <= all.count, "{few:?} of {all:?}");
            fewer += usize::from(few.count < all.count);
        }
        assert!(fewer * 2 > few.len(), "{fewer} of {}", few.len());
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, from start to end")]
fn suppressed_state_of_unknown_flows_is_not_applied_and_removed_flows_are_listed() {
    let mut bench = Bench::new(Config {
        flow_timeout: 10 * SECOND,
        ..config()
    });
    bench.collector.track_removals(4);
    let hops = [SuppressedHop {
        node: 1,
        latency: 1010,
        ..SuppressedHop::NOTHING
    }];
    let suppressed = |number: u16, last_seen| SuppressedFlow {
        key: testkit::reports::flow(number, false),
        reports: 3,
        latency: Some(1010),
        basis: None,
        hops: &hops,
        last_seen,
    };
    let sent = |flow| Sent {
        flow,
        hops: vec![node(1)],
        ..Sent::default()
    };
    bench.send(&sent(1)).send(&sent(2));
    assert!(
        !bench
            .collector
            .apply_suppressed(&suppressed(3, START), &mut bench.log)
    );
    let queue_part = bench
        .collector
        .queues()
        .map(|queue| queue.part)
        .next()
        .expect("a queue");
    let key = SuppressedKey {
        metric: Metric::QueueOccupancy,
        node: 1,
        part: queue_part,
        value: 12,
    };
    assert!(bench.collector.apply_suppressed_key(&key));
    assert!(!bench.collector.apply_suppressed_key(&SuppressedKey {
        part: 9 + queue_part,
        ..key
    }));
    bench.collected();
    // The first flow continues, suppressed by the filter.
    for _ in 0..20 {
        bench.pass(SECOND);
        assert!(
            bench
                .collector
                .apply_suppressed(&suppressed(1, bench.now), &mut bench.log)
        );
    }
    let view = bench.collector.flow(&testkit::reports::flow(1, false)).unwrap();
    assert_eq!(
        (view.row.reports, view.row.last_seen, view.row.flow_latency),
        (61, bench.now, Some(1010))
    );
    assert_eq!(view.hops().next().unwrap().hop_latency, Some(1010));
    let minutes: Vec<_> = bench
        .log
        .rollups
        .iter()
        .filter(|rollup| rollup.flow.is_some())
        .collect();
    assert_eq!(
        minutes
            .iter()
            .map(|minute| (minute.count, minute.sum))
            .collect::<Vec<_>>(),
        [(1, 1000)]
    );
    let mut removed = Vec::new();
    bench.collector.drain_removed(|one| removed.push(one));
    let gone = |metric, part| Removed::Key {
        metric,
        node: 1,
        part,
    };
    assert_eq!(
        removed,
        [
            Removed::Flow(testkit::reports::flow(2, false)),
            gone(Metric::QueueOccupancy, queue_part),
            gone(Metric::LinkUtilization, 2)
        ]
    );
    let collected = bench.collected();
    let lines: Vec<&str> = collected.lines().collect();
    assert_eq!(
        lines,
        [
            "expired flow_path flow=2 1 path=1",
            "expired queue_occupancy node=1 if=2 queue=0 12",
            "expired link_utilization node=1 if=2 500"
        ]
    );
    // More removals than fit: a user that keeps a copy must compare everything.
    for flow in 10..20 {
        bench.send(&sent(flow));
    }
    bench.pass(20 * SECOND);
    let mut removed = Vec::new();
    bench.collector.drain_removed(|one| removed.push(one));
    assert_eq!((removed.len(), removed.last()), (5, Some(&Removed::Overflow)));
    bench
        .collector
        .drain_removed(|one| panic!("{one:?} was named before"));
}
