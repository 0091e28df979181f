use std::sync::{Arc, Mutex, MutexGuard};

use collector::event::Basis;
use collector::{
    Collector, Config, Datagram, Event, Kind, Output, Removed, Run, Stats, StreamId, SuppressedFlow,
    SuppressedHop, SuppressedKey,
};
use detect::{Detection, Metric};
use testkit::workload::collector as workload;
use wire::FlowKey;

use super::*;
use crate::worker::Removals;

const SECOND: Nanos = 1_000_000_000;
const START: Nanos = 1_700_000_000 * SECOND;
/// The kernel's clock at the start.
const BOOT: Nanos = 5 * SECOND;

/// Time, slot of the stream, the run before it, the frame.
type Record = (Nanos, Option<u32>, Option<Run>, Vec<u8>);

/// The tables of a simulated kernel.
#[derive(Default)]
struct Tables {
    ring: Vec<Record>,
    /// More records arrive than are drained.
    floods: bool,
    streams: Vec<Option<(StreamId, Run)>>,
    flows: Vec<Option<FlowCopy>>,
    queues: Vec<Option<(SuppressedKey, u32)>>,
    counters: Counters,
    generations: Vec<u32>,
    detached: bool,
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Tables>>);

impl Fake {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap()
    }
}

impl Kernel for Fake {
    fn drain(&mut self, most: usize, take: &mut dyn FnMut(&KernelRecord<'_>)) -> usize {
        let records: Vec<_> = {
            let mut tables = self.tables();
            if tables.floods {
                let more = tables.ring[0].clone();
                tables.ring.resize(most + 1, more);
            }
            let count = tables.ring.len().min(most);
            tables.ring.drain(..count).collect()
        };
        for (at, slot, before, frame) in &records {
            let stream = slot.and_then(|slot| Some((slot, self.stream(slot)?.0)));
            take(&KernelRecord {
                at: *at,
                stream,
                before: *before,
                listener: 0,
                generation: 0,
                frame,
            });
        }
        records.len()
    }

    fn wait(&mut self, _: u32) -> Result<(), nic::Error> {
        Ok(())
    }

    fn detach(&mut self) {
        self.tables().detached = true;
    }

    fn streams(&self) -> u32 {
        8
    }

    fn stream(&self, slot: u32) -> Option<(StreamId, Run)> {
        self.tables().streams.get(slot as usize).copied().flatten()
    }

    fn forget_stream(&mut self, slot: u32) {
        self.tables().streams[slot as usize] = None;
    }

    fn flows(&self) -> u32 {
        64
    }

    fn flow_reports(&self, slot: u32) -> Option<u32> {
        Some(self.tables().flows.get(slot as usize)?.as_ref()?.reports)
    }

    fn flow(&self, slot: u32, copy: &mut FlowCopy) -> bool {
        let tables = self.tables();
        let flow = tables.flows.get(slot as usize).and_then(Option::as_ref);
        flow.is_some_and(|flow| {
            copy.clone_from(flow);
            true
        })
    }

    fn forget_flow(&mut self, key: &FlowKey) {
        for flow in &mut self.tables().flows {
            flow.take_if(|flow| flow.key == *key);
        }
    }

    fn forget_path(&mut self, key: &FlowKey) {
        for flow in self
            .tables()
            .flows
            .iter_mut()
            .flatten()
            .filter(|flow| flow.key == *key)
        {
            flow.hops.clear();
        }
    }

    fn keys(&self, metric: Metric) -> u32 {
        if metric == Metric::QueueOccupancy { 4 } else { 0 }
    }

    fn key(&self, _: Metric, slot: u32) -> Option<(SuppressedKey, u32)> {
        self.tables().queues.get(slot as usize).copied().flatten()
    }

    fn forget_key(&mut self, metric: Metric, node: u32, part: u32) {
        for key in &mut self.tables().queues {
            key.take_if(|(key, _)| (key.metric, key.node, key.part) == (metric, node, part));
        }
    }

    fn set_detection(&mut self, detection: &Detection) -> Result<u32, nic::Error> {
        let mut tables = self.tables();
        tables.generations.push(detection.generation);
        Ok(tables.generations.len() as u32)
    }

    fn records(&self) -> usize {
        8192
    }

    fn counters(&mut self) -> Result<Counters, nic::Error> {
        Ok(self.tables().counters)
    }
}

/// A collector and its events.
pub(super) struct Bench<S> {
    pub(super) collector: Collector,
    pub(super) collected: S,
    pub(super) external_stats: Stats,
    removals: Removals,
    pub(super) coming: Option<Arc<Detection>>,
    /// Time from which the collector's clock runs a thousand times slower, if set: on a busy machine no stream must look silent.
    pub(super) slow_from: Option<Nanos>,
}

impl<S: Default> Bench<S> {
    pub(super) fn new(collector: Collector) -> Self {
        let (external_stats, removals) = (Stats::default(), Removals::default());
        Self {
            collector,
            collected: S::default(),
            external_stats,
            removals,
            coming: None,
            slow_from: None,
        }
    }

    /// The collector's time at this time of the clock.
    pub(super) fn time(&self, now: Nanos) -> Nanos {
        self.slow_from
            .map_or(now, |start| start + now.saturating_sub(start) / 1000)
    }
}

#[derive(Default)]
struct Collected(Vec<Event>);

impl Output for Collected {
    fn event(&mut self, event: &Event, _: &[u32]) {
        self.0.push(*event);
    }
}

impl<S: Output + Default> CollectorHost for Bench<S> {
    fn process(&mut self, datagrams: &[Datagram<'_>]) {
        if self.slow_from.is_none() {
            return self.collector.handle(datagrams, &mut self.collected);
        }
        for datagram in datagrams {
            let received = self.time(datagram.received);
            self.collector.handle(
                &[Datagram {
                    received,
                    ..*datagram
                }],
                &mut self.collected,
            );
        }
    }

    fn with<T>(&mut self, work: impl FnOnce(&mut Collector, &mut dyn Output) -> T) -> T {
        work(&mut self.collector, &mut self.collected)
    }

    fn pending_detection(&self) -> Option<Arc<Detection>> {
        self.coming.clone()
    }

    fn apply_detection(&mut self) {
        if let Some(detection) = self.coming.take() {
            self.collector.set_detection(detection);
        }
    }

    fn count(&mut self, more: &Stats) {
        self.external_stats += more;
    }

    fn drain_removed(&mut self, input: usize, visit: &mut dyn FnMut(Removed)) {
        self.removals.update(&mut self.collector, input, visit);
    }

    fn track_removals(&mut self) -> usize {
        self.removals.add(&mut self.collector)
    }

    fn end_removals(&mut self, input: usize) {
        self.removals.end(input);
    }
}

/// A [`KernelSync`] of a simulated kernel, with the frames of a workload of eight flows.
struct Setup {
    sync: KernelSync<Fake>,
    kernel: Fake,
    bench: Bench<Collected>,
    frames: Vec<Vec<u8>>,
}

impl Setup {
    fn new() -> Self {
        let case = workload::Case {
            flows: 8,
            ..workload::CASES[0]
        };
        let frames = case.feed().whole().map(<[u8]>::to_vec).collect();
        let profile =
            collector::Profile::new("generator", wire::Profile::new(wire::Dialect::IntCollectorGen));
        let config = Config {
            max_flows: 64,
            flow_timeout: 10 * SECOND,
            push_interval: 0,
            default_profile: profile,
            ..Config::default()
        };
        let bench = Bench::new(Collector::new(config));
        let kernel = Fake::default();
        let mut sync = KernelSync::new(kernel.clone(), 10 * SECOND);
        sync.set_clock(START, BOOT);
        Self {
            sync,
            kernel,
            bench,
            frames,
        }
    }

    /// Passes frame `at` to user space, after the run `before`.
    fn pass(&mut self, at: usize, before: Option<Run>) {
        self.kernel
            .tables()
            .ring
            .push((BOOT + at as u64, Some(0), before, self.frames[at].clone()));
    }

    fn poll(&mut self, now: Nanos) {
        self.sync.drain(&mut self.bench);
        self.sync.poll(now, &mut self.bench).unwrap();
        self.bench.collector.tick(now, &mut self.bench.collected);
    }

    fn flow(&self, at: usize) -> FlowKey {
        let (mut decoder, mut report) = (
            wire::Decoder::new(wire::Profile::new(wire::Dialect::IntCollectorGen)),
            wire::Report::EMPTY,
        );
        let datagram = wire::datagram(&self.frames[at]).unwrap();
        decoder
            .reports(datagram.payload)
            .read(&mut report)
            .unwrap()
            .unwrap();
        report.flow.unwrap()
    }

    /// The stream's totals: datagrams, lost, reordered.
    fn stream(&self) -> (u64, u64, u64) {
        let view = self.bench.collector.streams().next().unwrap();
        (
            view.datagrams,
            view.lost + u64::from(view.missing),
            view.reordered,
        )
    }
}

fn stream() -> StreamId {
    StreamId {
        version: 10,
        hw_id: 1,
        listener: 0,
        node: Some(600),
        source: [0; 16],
    }
}

fn run(last: u32, count: u64) -> Run {
    Run {
        last,
        count,
        same: false,
    }
}

#[test]
fn suppressed_numbers_come_before_the_record_after_them() {
    let mut setup = Setup::new();
    setup.kernel.tables().streams = vec![Some((stream(), run(0, 0)))];
    setup.pass(0, None);
    // Numbers 1 to 3 were suppressed, 4 was passed; 5 and 6 were suppressed; 7 was out of order.
    setup.pass(4, Some(run(3, 3)));
    setup.pass(7, Some(run(6, 5)));
    setup.poll(START);
    assert_eq!(setup.stream(), (8, 0, 0));
    assert_eq!(setup.bench.collector.stats().datagrams, 3);
    assert_eq!(
        setup.bench.collected.0[0].ts, START,
        "the kernel's time is put on our scale"
    );
    // The round applies the rest of a run, once; a count that was read before a record is not applied again.
    setup.kernel.tables().streams = vec![Some((stream(), run(57, 55)))];
    setup.poll(START + 2 * SECOND);
    setup.poll(START + 4 * SECOND);
    assert_eq!(setup.stream(), (58, 0, 0));
    setup.kernel.tables().streams = vec![Some((stream(), run(57, 50)))];
    setup.poll(START + 6 * SECOND);
    assert_eq!(setup.stream(), (58, 0, 0));
}

#[test]
fn counts_of_a_stream_wrap_and_an_idle_one_frees_its_slot() {
    let mut setup = Setup::new();
    let near = (1 << 31) - 2;
    setup.kernel.tables().streams = vec![Some((stream(), run(0, near)))];
    setup.pass(0, None);
    setup.poll(START);
    // More than a round can suppress: it is an old count.
    assert_eq!(setup.stream(), (1, 0, 0));
    setup.sync.drain(&mut setup.bench);
    for (count, datagrams) in [
        (1 << 29, 1 << 29),
        (1 << 30, 1 << 30),
        (3 << 29, 3 << 29),
        (near, near),
        (3, near + 5),
    ] {
        setup.kernel.tables().streams = vec![Some((stream(), run(datagrams as u32, count)))];
        let now = setup.bench.collector.streams().next().unwrap().last_seen + 3 * SECOND;
        setup.poll(now);
        assert_eq!(setup.stream(), (datagrams + 1, 0, 0), "{count}");
    }
    for second in 0..700 {
        setup.poll(START + (100 + second) * SECOND);
    }
    assert!(setup.kernel.tables().streams[0].is_none());
}

#[test]
fn flows_are_kept_alive_in_rounds_and_forgotten_in_both() {
    let mut setup = Setup::new();
    (0..4).for_each(|at| setup.pass(at, None));
    setup.poll(START);
    let keys: Vec<FlowKey> = (0..6).map(|at| setup.flow(at)).collect();
    let hops: Vec<SuppressedHop> = Vec::new();
    let copy = |key: FlowKey| FlowCopy {
        key,
        reports: 0,
        latency: Some(777),
        basis: Some(Basis::HopSum),
        hops: hops.clone(),
    };
    // The collector knows the first four; the sixth is known in the kernel alone.
    setup.kernel.tables().flows = [0, 1, 2, 3, 5].map(|at| Some(copy(keys[at]))).into();
    for step in 1..=150 {
        for at in [0, 1, 4] {
            if let Some(flow) = &mut setup.kernel.tables().flows[at] {
                flow.reports += 3;
            }
        }
        setup.poll(START + step * SECOND / 10);
    }
    let known: Vec<bool> = setup.kernel.tables().flows.iter().map(Option::is_some).collect();
    assert_eq!(known, [true, true, false, false, false]);
    let view = setup.bench.collector.flow(&keys[0]).unwrap();
    assert_eq!(
        (view.row.flow_latency, view.row.basis),
        (Some(777), Basis::HopSum)
    );
    assert!(
        START + 13 * SECOND < view.row.last_seen && (400..=451).contains(&view.row.reports),
        "{view:?}"
    );
    assert!(setup.bench.collector.flow(&keys[2]).is_none() && setup.bench.collector.flow(&keys[5]).is_none());
    let expired = setup
        .bench
        .collected
        .0
        .iter()
        .filter(|e| e.kind == Kind::Expired && e.flow.is_some());
    assert_eq!(expired.count(), 2);
    // Another flow in a slot starts from zero.
    setup.kernel.tables().flows[0] = Some(FlowCopy {
        reports: 2,
        ..copy(keys[1])
    });
    let before = setup.bench.collector.flow(&keys[1]).unwrap().row.reports;
    setup.kernel.tables().flows[1] = None;
    setup.poll(START + 17 * SECOND);
    setup.poll(START + 19 * SECOND);
    let more = setup.bench.collector.flow(&keys[1]).unwrap().row.reports - before;
    assert!((2..=5).contains(&more), "{more}");
}

#[test]
fn keys_are_aggregated_in_the_kernel_and_expire() {
    let mut setup = Setup::new();
    setup.pass(0, None);
    setup.poll(START);
    let queue = setup.bench.collector.queues().next().unwrap();
    let key = |node| SuppressedKey {
        metric: Metric::QueueOccupancy,
        node,
        part: queue.part,
        value: queue.latest + 1,
    };
    setup.kernel.tables().queues = vec![
        Some((key(queue.node), 9)),
        Some((key(4444), 9)),
        Some((key(5555), 0)),
    ];
    setup.poll(START + 2 * SECOND);
    setup.poll(START + 4 * SECOND);
    let known: Vec<bool> = setup.kernel.tables().queues.iter().map(Option::is_some).collect();
    assert_eq!(known, [true, false, true], "the third had no values to report");
    let latest = setup
        .bench
        .collector
        .queues()
        .find(|view| view.node == queue.node)
        .unwrap()
        .latest;
    assert_eq!(latest, queue.latest + 1);
    // It expires, and is forgotten in both.
    for second in 4..30 {
        setup.poll(START + second * SECOND);
    }
    assert!(setup.kernel.tables().queues[0].is_none());
}

#[test]
fn thresholds_and_rules_follow_the_collectors() {
    let mut setup = Setup::new();
    setup.poll(START);
    setup.poll(START + SECOND / 50);
    setup.bench.collector.set_detection(Arc::new(Detection {
        generation: 7,
        ..Detection::default()
    }));
    setup.poll(START + 2 * SECOND / 50);
    assert_eq!(setup.kernel.tables().generations, [0, 7]);
}

#[test]
fn a_flow_that_was_forgotten_and_comes_back_to_its_place_is_counted_from_the_start() {
    let mut setup = Setup::new();
    setup.pass(0, None);
    setup.poll(START);
    let key = setup.flow(0);
    let mut second = 0;
    let mut reports = |setup: &mut Setup, reports| {
        setup.kernel.tables().flows = vec![Some(FlowCopy {
            key,
            reports,
            ..FlowCopy::default()
        })];
        second += 2;
        setup.poll(START + second * SECOND);
        setup.poll(START + second * SECOND + SECOND / 2);
        setup.poll(START + second * SECOND + SECOND);
        setup.bench.collector.flow(&key).unwrap().row.reports
    };
    assert_eq!([reports(&mut setup, 1000), reports(&mut setup, 5)], [1001, 1006]);
}

#[test]
fn thresholds_change_after_the_last_record_under_the_old_ones() {
    let mut setup = Setup::new();
    setup.poll(START);
    (0..3).for_each(|at| setup.pass(at, None));
    let coming = Arc::new(Detection {
        generation: 9,
        ..Detection::default()
    });
    setup.bench.coming = Some(Arc::clone(&coming));
    setup.sync.poll(START + 1, &mut setup.bench).unwrap();
    assert_eq!(setup.kernel.tables().generations, [0, 9]);
    assert!(setup.bench.coming.is_none() && Arc::ptr_eq(setup.bench.collector.detection(), &coming));
    assert_eq!(
        setup.sync.stats().datagrams,
        3,
        "they were taken before the change"
    );
}

#[test]
fn every_datagram_is_counted_once_and_the_end_leaves_nothing() {
    let mut setup = Setup::new();
    setup.poll(START);
    let mut counters = Counters {
        ring_full: 5,
        ..Counters::default()
    };
    counters.refused_frames[wire::Refusal::Truncated.index()] = 2;
    counters.suppressed.datagrams = 100;
    counters.suppressed.accepted = 97;
    counters.suppressed.refused_datagrams[wire::Refusal::Truncated.index()] = 3;
    (counters.suppressed.reports, counters.suppressed.flow_reports) = (98, 98);
    setup.kernel.tables().counters = counters;
    (0..8).for_each(|at| setup.pass(at, None));
    setup.kernel.tables().ring.push((BOOT, None, None, vec![1, 2, 3]));
    setup.kernel.tables().streams = vec![Some((stream(), run(40, 33)))];
    let key = setup.flow(0);
    setup.kernel.tables().flows = vec![Some(FlowCopy {
        key,
        reports: 12,
        ..FlowCopy::default()
    })];
    // In the middle of a round, which has met the flow already.
    setup.poll(START + SECOND / 2);
    if let Some(flow) = &mut setup.kernel.tables().flows[0] {
        flow.reports += 7;
    }
    setup.sync.end(START + SECOND / 2, &mut setup.bench).unwrap();
    assert!(setup.kernel.tables().detached);
    let stats = setup.sync.stats();
    assert_eq!(
        (
            stats.datagrams,
            stats.ring_full,
            stats.refused.iter().sum::<u64>()
        ),
        (108, 5, 3)
    );
    let mut all = setup.bench.collector.stats();
    all += &setup.bench.external_stats;
    assert_eq!((all.datagrams, all.reports, all.flow_reports), (108, 106, 106));
    assert!(
        all.decode_balance().is_balanced() && all.state_balance().is_balanced(),
        "{all:?}"
    );
    assert_eq!(stats.datagrams, all.datagrams);
    assert_eq!(setup.bench.collector.flow(&key).unwrap().row.reports, 20);
    assert_eq!(setup.stream().0, 8 + 33);
}

#[test]
fn too_much_forgotten_at_once_compares_everything() {
    let mut setup = Setup::new();
    (0..8).for_each(|at| setup.pass(at, None));
    setup.poll(START);
    let keys: Vec<FlowKey> = (0..8).map(|at| setup.flow(at)).collect();
    setup.kernel.tables().flows = keys
        .iter()
        .map(|&key| {
            Some(FlowCopy {
                key,
                ..FlowCopy::default()
            })
        })
        .collect();
    setup.poll(START + SECOND);
    // Removed without a notification.
    let config = Config {
        max_flows: 64,
        ..Config::default()
    };
    setup.bench.collector = Collector::new(config);
    setup.poll(START + 3 * SECOND);
    setup.poll(START + 5 * SECOND);
    assert_eq!(setup.kernel.tables().flows.iter().flatten().count(), 8);
    setup.bench.removals = Removals::default();
    setup.bench.collector.track_removals(0);
    let suppressed = SuppressedFlow {
        key: keys[0],
        reports: 1,
        latency: None,
        basis: None,
        hops: &[],
        last_seen: START,
    };
    assert!(
        !setup
            .bench
            .collector
            .apply_suppressed(&suppressed, &mut setup.bench.collected)
    );
    setup.bench.removals.add_full();
    setup.poll(START + 7 * SECOND);
    setup.poll(START + 9 * SECOND);
    setup.poll(START + 11 * SECOND);
    assert_eq!(setup.kernel.tables().flows.iter().flatten().count(), 0);
}

#[test]
fn the_path_of_a_flow_whose_int_has_ended_is_forgotten_but_not_its_reports() {
    use testkit::reports::{Sent, flow, node};
    let mut setup = Setup::new();
    setup.poll(START);
    let (key, int) = (flow(1, false), Sent::default());
    let postcard = Sent {
        hops: vec![node(2)],
        ..Sent::default()
    };
    let mut give = |payload: &[u8], received| {
        let datagram = Datagram {
            payload,
            source: [1; 16],
            src_port: 1,
            listener: 0,
            received,
        };
        setup
            .bench
            .collector
            .handle(&[datagram], &mut setup.bench.collected);
    };
    give(&int.v10(), START);
    let mut copy = FlowCopy {
        key,
        reports: 5,
        hops: vec![SuppressedHop::NOTHING; 3],
        ..FlowCopy::default()
    };
    setup.kernel.tables().flows = vec![Some(copy.clone())];
    (1..=70).for_each(|at| give(&postcard.postcard(), START + at * SECOND / 5));
    setup.poll(START + 14 * SECOND);
    copy.hops.clear();
    let tables = setup.kernel.tables();
    let kept = tables.flows[0]
        .as_ref()
        .map(|flow| (flow.key, flow.reports, &flow.hops));
    assert_eq!(kept, Some((copy.key, copy.reports, &copy.hops)));
    drop(tables);
    assert_eq!(
        setup.bench.collector.flow(&key).map(|flow| flow.path_length),
        Some(0)
    );
}

#[test]
fn rules_that_do_not_fit_are_named_with_the_reason_and_the_price() {
    let all = |count: u32| {
        (0..count)
            .map(|n| format!("hops != {n}"))
            .collect::<Vec<_>>()
            .join(" and ")
    };
    let rules: Vec<_> = [
        ("long", all(60)),
        ("longer", all(64).replace("hops", "queue_occupancy")),
        ("loop", "loop".into()),
    ]
    .map(|(name, text)| (name.to_owned(), text))
    .into();
    let text = explain_rules(&RuleSet::compile(&rules).unwrap());
    let expected = "\
rules in the kernel: 2 of 3
rule `longer` runs in user space: it needs 64 clauses in conjunctive normal form, and of the table's 64 the rules before it leave 4
so each report whose queue_occupancy differs from the previous report of its flow is passed to user space
";
    assert_eq!(text, expected);
    assert_eq!(explain_rules(&RuleSet::default()), "");
    let remembers = [("jump".to_owned(), "change(hops) > 2".to_owned())];
    let expected = "\
rules in the kernel: 0 of 1
rule `jump` runs in user space: it uses history, which the kernel program does not store
so every report of a path is passed to user space: mode = \"user\" gives the same events faster
";
    assert_eq!(explain_rules(&RuleSet::compile(&remembers).unwrap()), expected);
}

#[test]
fn an_input_that_ends_leaves_its_place_to_the_next() {
    let mut setup = Setup::new();
    let mut other = Removals::default();
    let slots = [
        other.add(&mut setup.bench.collector),
        other.add(&mut setup.bench.collector),
    ];
    other.end(slots[0]);
    assert_eq!((slots, other.add(&mut setup.bench.collector)), ([0, 1], 0));
    // Both are notified of each removal, once.
    setup.pass(0, None);
    setup.sync.drain(&mut setup.bench);
    setup.bench.collector.tick(START, &mut setup.bench.collected);
    for second in 0..40 {
        setup
            .bench
            .collector
            .tick(START + second * SECOND, &mut setup.bench.collected);
    }
    let mut collected = [0, 0, 0];
    for (at, input) in [0, 1, 1].into_iter().enumerate() {
        other.update(&mut setup.bench.collector, input, &mut |_| collected[at] += 1);
    }
    assert!(
        collected[0] > 5 && collected[1] == collected[0] && collected[2] == 0,
        "{collected:?}"
    );
}

#[test]
fn a_round_takes_a_burst_of_records_at_a_time() {
    let mut setup = Setup::new();
    setup.poll(START);
    setup.kernel.tables().streams = vec![Some((stream(), run(9, 10)))];
    setup.kernel.tables().floods = true;
    setup.pass(0, None);
    let before = setup.sync.stats().datagrams;
    // As a receive does: a burst, then due work, which begins a round.
    setup.poll(START + 2 * SECOND);
    assert_eq!(setup.sync.stats().datagrams - before, 2 * 1024);
    // Until the records before it have been processed, the run is not.
    assert_eq!(setup.stream().0, 2 * 1024);
    let until = setup.sync.until(START + 2 * SECOND);
    assert_eq!(until, START, "the time of the latest record");
    for receives in 1..=8 {
        setup.poll(START + 2 * SECOND + receives);
    }
    // The ring has room for 8,192 records: the rest was written later.
    assert_eq!(setup.stream().0, 10 * 1024 + 10);
}

#[test]
fn time_does_not_pass_while_a_round_is_late() {
    let mut setup = Setup::new();
    setup.poll(START);
    let until = |setup: &Setup, now| setup.sync.until(now) - START;
    assert_eq!(until(&setup, START + SECOND), SECOND);
    // Stopped for ten seconds: suppressed numbers of that time have not been read.
    assert_eq!(until(&setup, START + 10 * SECOND), SECOND + SECOND / 2);
    setup.poll(START + 10 * SECOND);
    assert_eq!(until(&setup, START + 10 * SECOND), 10 * SECOND);
}
