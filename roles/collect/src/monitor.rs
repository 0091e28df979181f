//! Combines the counters of all stages (inputs, fan-out, workers, queues, store) for `/status` and Prometheus, and queries the
//! workers' tables for the API and the manager. In the loss budget, each stage has its input, output, drops and queued items.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    mem,
    net::Ipv6Addr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use collector::{
    Collector, FlowSummary, LinkUse, Losses, NetworkEntry, Output, SourceView, Stats, StreamView,
    stats::Table, stats::Tables,
};
use detect::Match;
use tokio::{
    sync::{mpsc, oneshot},
    task, time,
};

use crate::{
    fanout::FanoutGauge,
    flight_recorder::{FlightCounts, FlightGauge},
    flow_index::{FlowIndex, LatestIndex, touched},
    input::InputGauge,
    live::Hub,
    pipeline::Gauge,
    record_queue::Account,
    topology::{NetworkMerge, Slice, Topology},
    worker::{Entries, WorkerHandle, copy_flows, visit_network},
};
use model::SourceSettings;
use runtime::{
    lock::lock,
    monitor::{Busy, CollectorMonitor, RuleOn, StreamMessage},
    save,
};
use view::{
    self, Evidence, FileProblemView, InputView, NamedCounts, Rates, RatesThen, Stage, StatusView, StoreView,
    TableView, TriedView, WorkerView,
};

/// Beginning of the kinds of inputs for which the kernel detects changes.
const KERNEL_KIND: &str = "kernel";

/// Read access to the running collector.
#[derive(Debug)]
pub struct Monitor {
    workers: Vec<WorkerHandle>,
    inputs: Vec<Arc<InputGauge>>,
    fanouts: Vec<Arc<FanoutGauge>>,
    pipeline: Gauge,
    flight_recorder: Option<FlightGauge>,
    hub: Arc<Hub>,
    started: Instant,
    samples: Mutex<VecDeque<Sample>>,
    topology: tokio::sync::Mutex<Option<(Instant, Arc<Topology>)>>,
    flow_index: tokio::sync::Mutex<LatestIndex>,
}

/// Totals at one moment, from which rates are computed.
#[derive(Clone, Copy, Debug)]
struct Sample {
    time: Instant,
    /// The same moment by the wall clock, ns since the epoch.
    ts: u64,
    reports: u64,
    events: u64,
    datagrams: u64,
}

/// Streams, losses and tables of all workers together.
#[derive(Clone, Debug, Default)]
pub struct Detail {
    /// Streams of numbered datagrams, one per reporter.
    pub streams: Vec<StreamView>,
    /// Losses of these streams and of evicted ones.
    pub losses: Losses,
    /// Table occupancy by name, summed over all workers.
    pub tables: Vec<(&'static str, Table)>,
    /// Table entries, by worker.
    pub entries: Vec<Arc<Entries>>,
}

impl Monitor {
    /// Creates a monitor of these parts. `fanouts` has one entry per input with several workers, and is empty with one.
    pub fn new(
        workers: Vec<WorkerHandle>,
        inputs: Vec<Arc<InputGauge>>,
        fanouts: Vec<Arc<FanoutGauge>>,
        pipeline: Gauge,
        hub: Arc<Hub>,
    ) -> Self {
        let started = Instant::now();
        let samples = Mutex::default();
        Self {
            workers,
            inputs,
            fanouts,
            pipeline,
            flight_recorder: None,
            hub,
            started,
            samples,
            topology: tokio::sync::Mutex::default(),
            flow_index: tokio::sync::Mutex::default(),
        }
    }

    /// Adds the flight recorder's counters.
    #[must_use]
    pub fn with_flight_recorder(mut self, gauge: Option<FlightGauge>) -> Self {
        self.flight_recorder = gauge;
        self
    }

    /// Returns the counters of the flight recorder, if there is one.
    pub fn flight_recorder(&self) -> Option<FlightCounts> {
        self.flight_recorder.as_ref().map(FlightGauge::counts)
    }

    /// Samples the totals and frees the flow index if it is unused. Called once a second.
    pub fn sample(&self) {
        if let Ok(mut latest) = self.flow_index.try_lock() {
            latest.expire(Instant::now());
        }
        let stats: Vec<Stats> = self.workers.iter().map(WorkerHandle::stats).collect();
        let sample = Sample {
            time: Instant::now(),
            ts: nic::time::now(),
            reports: stats.iter().map(|stats| stats.reports).sum(),
            events: self.pipeline.events(),
            datagrams: self.inputs.iter().map(|input| input.stats().datagrams).sum(),
        };
        let mut samples = lock(&self.samples);
        samples.push_back(sample);
        if samples.len() > HISTORY_SECONDS + 1 {
            samples.pop_front();
        }
    }

    /// Returns the mean rates over the last five seconds.
    pub fn rates(&self) -> Rates {
        let samples = lock(&self.samples);
        let first = samples.len().saturating_sub(RATE_SECONDS + 1);
        match (samples.get(first), samples.back()) {
            (Some(first), Some(last)) => rates(first, last),
            _ => Rates::default(),
        }
    }

    /// Returns the rates for every second of the last 15 minutes, oldest first.
    pub fn rate_history(&self) -> Vec<RatesThen> {
        history(&lock(&self.samples))
    }

    /// Runs a query on all workers and waits for the responses.
    ///
    /// # Errors
    /// A worker did not answer in time; a partial response would look complete.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl Fn(&Collector) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Busy> {
        let asked: Vec<_> = self
            .workers
            .iter()
            .map(|worker| worker.ask(question.clone()))
            .collect();
        let mut answers = Vec::new();
        for answer in asked {
            answers.push(in_time(answer).await?);
        }
        Ok(answers)
    }

    /// Like [`Monitor::ask`], but the query may emit results to the worker's output.
    ///
    /// # Errors
    /// A worker did not answer in time; others may have emitted their results.
    pub async fn emit<T: Send + 'static>(
        &self,
        work: impl Fn(&Collector, &mut dyn Output) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Busy> {
        let asked: Vec<_> = self
            .workers
            .iter()
            .map(|worker| worker.emit(work.clone()))
            .collect();
        let mut answers = Vec::new();
        for answer in asked {
            answers.push(in_time(answer).await?);
        }
        Ok(answers)
    }

    /// Queries all workers in steps, so that no query holds a worker up for long. `step` covers the table slots from an index
    /// on and returns the next index. `process` receives each response with its worker's index, in order for each worker.
    ///
    /// # Errors
    /// A worker did not answer in time.
    pub async fn walk<T: Send + 'static>(
        &self,
        step: impl Fn(&Collector, u32) -> (T, Option<u32>) + Clone + Send + 'static,
        mut process: impl FnMut(usize, T),
    ) -> Result<(), Busy> {
        let mut next: Vec<Option<u32>> = vec![Some(0); self.workers.len()];
        // All workers run their steps concurrently.
        while next.iter().any(Option::is_some) {
            let asked = self.workers.iter().zip(&next).map(|(worker, first)| {
                let step = step.clone();
                let first = (*first)?;
                Some(worker.ask(move |collector| step(collector, first)))
            });
            let asked: Vec<_> = asked.collect();
            for (index, asked) in asked.into_iter().enumerate() {
                let Some(asked) = asked else { continue };
                let (answer, further) = in_time(asked).await?;
                process(index, answer);
                next[index] = further;
            }
        }
        Ok(())
    }

    /// Returns nodes, links and paths. The result is at most a second old.
    pub async fn topology(&self) -> Result<Arc<Topology>, Busy> {
        // Locked to the end, so that concurrent requests share one result.
        let mut cached = self.topology.lock().await;
        if let Some((at, topology)) = &*cached
            && at.elapsed() < Duration::from_secs(1)
        {
            return Ok(Arc::clone(topology));
        }
        let mut merge = NetworkMerge::default();
        self.walk(
            |collector, first| Slice::read(collector, first, nic::time::now()),
            |worker, slice| merge.add(worker, slice),
        )
        .await?;
        let merged = Arc::new(
            task::spawn_blocking(|| merge.topology())
                .await
                .map_err(|_| Busy)?,
        );
        *cached = Some((Instant::now(), Arc::clone(&merged)));
        Ok(merged)
    }

    /// Returns the links that the workers have seen.
    ///
    /// # Errors
    /// A worker did not answer in time.
    pub async fn links(&self) -> Result<Vec<LinkUse>, Busy> {
        let mut links = Vec::new();
        self.walk(links_from, |_, part| links.extend(part)).await?;
        Ok(links)
    }

    /// Returns a copy of all flows for a request that arrived at `arrival`. If it must be `current`, its copying began after
    /// that; otherwise it may be a little older.
    ///
    /// # Errors
    /// A worker did not answer in time.
    pub async fn flow_index(&self, arrival: Instant, current: bool) -> Result<Arc<FlowIndex>, Busy> {
        // Locked to the end, so that concurrent requests share one copy.
        let mut latest = self.flow_index.lock().await;
        if let Some(index) = latest.get(arrival, current) {
            return Ok(index);
        }
        let mut memory = latest.reclaim_memory();
        memory.resize_with(self.workers.len(), Vec::new);
        let flows = self
            .workers
            .iter()
            .map(|worker| worker.snapshot().tables.flows.used as usize);
        let capacities: Vec<usize> = flows.collect();
        let mut copies: Vec<_> = task::spawn_blocking(move || {
            memory
                .into_iter()
                .zip(capacities)
                .map(|(memory, capacity)| touched(memory, capacity))
                .collect()
        })
        .await
        .map_err(|_| Busy)?;
        let begun = Instant::now();
        let as_of = nic::time::now();
        let mut next = vec![Some(0); copies.len()];
        while next.iter().any(Option::is_some) {
            // Each worker copies one slice into the memory that travels with the query.
            let asked: Vec<_> = self
                .workers
                .iter()
                .zip(copies.iter_mut().zip(&mut next))
                .map(|(worker, (copies, next))| {
                    let first = next.take()?;
                    Some(ask_for_flows(worker, mem::take(copies), first))
                })
                .collect();
            for (index, asked) in asked.into_iter().enumerate() {
                let Some(asked) = asked else { continue };
                (copies[index], next[index]) = in_time(asked).await?;
            }
        }
        Ok(latest.set(FlowIndex::new(copies, begun, as_of)))
    }

    /// Returns streams, losses and tables as last published by the workers and the fan-outs. Never waits.
    pub fn detail(&self) -> Detail {
        let mut detail = Detail::default();
        for worker in &self.workers {
            let snapshot = worker.snapshot();
            detail.losses += snapshot.losses;
            detail.add_tables(&snapshot.tables);
            detail.entries.push(snapshot.entries);
        }
        for fanout in &self.fanouts {
            let (streams, table, before) = &*lock(&fanout.streams);
            detail.streams.extend(streams);
            detail.losses += *before;
            detail.losses += streams.iter().map(StreamView::losses).sum();
            detail.add_table("streams", *table);
        }
        for entries in &detail.entries {
            detail.streams.extend(&entries.streams);
        }
        detail
    }

    /// Returns the stages of the loss budget, in order. `missing` is [`Detail::losses`].
    pub fn stages(&self, missing: Losses) -> Vec<Stage> {
        // Read later stages first, so that a stage never seems to have more output than input.
        let later = self.pipeline.stages();
        let workers: Vec<Stats> = self.workers.iter().map(WorkerHandle::stats).collect();
        let state = balance("state", "reports", workers.iter().map(Stats::state_balance));
        let decode = balance("decode", "datagrams", workers.iter().map(Stats::decode_balance));
        let mut stages = vec![decode, state];
        if workers.iter().any(|stats| stats.sf.records > 0) {
            let mut join = balance("join", "records", workers.iter().map(|stats| stats.sf.balance()));
            join.queued = workers.iter().map(|stats| stats.sf.pending).sum();
            join.out -= join.queued;
            stages.insert(1, join);
        }
        if !self.fanouts.is_empty() {
            let out: u64 = workers.iter().map(|stats| stats.datagrams).sum();
            let mut into = 0;
            let mut ended = 0;
            for fanout in &self.fanouts {
                let stats = *lock(&fanout.stats);
                into += stats.datagrams;
                ended += stats.ended;
            }
            let mut fanout = datagram_stage("fanout", into, out, [("worker_ended", ended)].into());
            fanout.queued = into.saturating_sub(out + ended);
            stages.insert(0, fanout);
        }
        let mut all = self.arrival(missing);
        all.extend(stages);
        all.extend(later);
        all
    }

    /// Returns the stages before this process: `network`, `nic` if there are interfaces, and `kernel`.
    fn arrival(&self, missing: Losses) -> Vec<Stage> {
        let mut received = 0;
        let mut missed = 0;
        let mut by_device = 0;
        let mut interfaces = false;
        let mut drops: NamedCounts = [("socket_buffer_full", 0)].into();
        for input in &self.inputs {
            let stats = input.stats();
            received += stats.datagrams;
            by_device += input.counters().device_dropped;
            interfaces |= input.setup().interface.is_some();
            // Sequence numbers of events that the kernel could not pass to user space are accounted, so these leave no gap.
            let numbered = input.setup().kind.starts_with(KERNEL_KIND);
            // A datagram with a wrong checksum explains no gap in a sequence: anyone can forge one.
            let explaining = stats.lost() - stats.bad_checksum;
            missed += if numbered { 0 } else { explaining };
            for (reason, count) in drops_of(&stats) {
                drops.add(reason, count);
            }
        }
        let dropped: u64 = drops.values().sum();
        let arrived = received + dropped;
        let kernel = datagram_stage("kernel", arrived, received, drops);
        let at_device = arrived + by_device;
        // Datagrams dropped here leave gaps in the sequences, too; do not count them as network losses again.
        let explained = missed + by_device;
        let lost = missing.lost.saturating_sub(explained);
        let unconfirmed = missing
            .unconfirmed
            .saturating_sub(explained.saturating_sub(missing.lost));
        let mut network = datagram_stage("network", at_device + lost, at_device, [("lost", lost)].into());
        network.evidence = Some(Evidence {
            unconfirmed,
            datagrams: missing.datagrams,
        });
        let mut stages = vec![network];
        if interfaces {
            stages.push(datagram_stage(
                "nic",
                at_device,
                arrived,
                [("device", by_device)].into(),
            ));
        }
        stages.push(kernel);
        stages
    }

    /// Returns the outcomes of postcards, summed over all workers.
    pub fn postcards(&self) -> view::PostcardsView {
        let mut all = collector::Stats::default();
        self.workers.iter().for_each(|worker| all += &worker.stats());
        view::PostcardsView::from(&all)
    }

    /// Builds the response of `/status`. A console has no collector, and reports on its process only.
    pub fn status(&self, sources: &[SourceSettings], is_console: bool) -> StatusView {
        let program = StatusView {
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            now: nic::time::now(),
            replaced_files: save::replaced(),
            ..StatusView::default()
        };
        if is_console {
            return StatusView {
                console: Some(true),
                ..program
            };
        }
        let detail = self.detail();
        let (sources_total, sources) = source_views(&detail, sources);
        StatusView {
            rates: self.rates(),
            loss_budget: self.stages(detail.losses),
            refused: self.refused(),
            inputs: self.inputs.iter().map(|input| input_view(input)).collect(),
            sources,
            sources_total,
            tables: detail
                .tables
                .iter()
                .map(|(name, table)| table_view(name, table))
                .collect(),
            store: self
                .pipeline
                .store()
                .map(|stats| store_view(stats, &self.pipeline.store_queue())),
            workers: self
                .workers
                .iter()
                .enumerate()
                .map(|(index, worker)| worker_view(index, worker))
                .collect(),
            streams: self.hub.stats(),
            postcards: self.postcards(),
            implausible_latencies: self.total(|stats| stats.implausible_latencies),
            ..program
        }
    }

    /// Returns the refused reports by reason, including those inside accepted datagrams.
    pub fn refused(&self) -> NamedCounts {
        let mut reasons = NamedCounts::default();
        for worker in &self.workers {
            add_refused(&mut reasons, &worker.stats().refused);
        }
        reasons
    }

    /// Returns the sum of `count` over all workers.
    pub fn total(&self, count: impl Fn(&Stats) -> u64) -> u64 {
        self.workers.iter().map(|worker| count(&worker.stats())).sum()
    }

    /// Returns the status of all inputs.
    pub fn inputs(&self) -> Vec<InputView> {
        self.inputs.iter().map(|input| input_view(input)).collect()
    }

    /// Returns whether the kernel detects changes for an input, so that most of its reports do not reach user space.
    pub fn detects_in_kernel(&self) -> bool {
        self.inputs
            .iter()
            .any(|input| input.setup().kind.starts_with(KERNEL_KIND))
    }

    /// Returns the counters of the result queues and the store.
    pub fn pipeline(&self) -> &Gauge {
        &self.pipeline
    }

    /// Returns the hub of the live streams.
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Returns the time since the start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Detail {
    /// Returns one entry per source address, summed over the workers that received from it.
    fn sources(&self) -> HashMap<[u8; 16], SourceView> {
        let mut all: HashMap<[u8; 16], SourceView> = HashMap::new();
        for source in self.entries.iter().flat_map(|entries| &entries.sources) {
            let Some(known) = all.get_mut(&source.source) else {
                all.insert(source.source, *source);
                continue;
            };
            known.datagrams += source.datagrams;
            known.last_seen = known.last_seen.max(source.last_seen);
            for (sum, more) in known.refused.iter_mut().zip(source.refused) {
                *sum += more;
            }
        }
        all
    }

    fn add_tables(&mut self, tables: &Tables) {
        for (name, table) in tables.named() {
            self.add_table(name, table);
        }
    }

    fn add_table(&mut self, name: &'static str, table: Table) {
        match self.tables.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => {
                sum.used += table.used;
                sum.capacity += table.capacity;
                sum.evicted += table.evicted;
                sum.refused += table.refused;
            }
            None => self.tables.push((name, table)),
        }
    }
}

fn balance(
    stage: &'static str,
    unit: &'static str,
    balances: impl Iterator<Item = collector::stats::Balance>,
) -> Stage {
    let mut sum = Stage {
        stage: stage.into(),
        unit: unit.into(),
        ..Stage::default()
    };
    for balance in balances {
        sum.into += balance.input;
        sum.out += balance.output;
        for (reason, count) in balance.drops {
            sum.drops.add(reason, count);
        }
    }
    sum
}

fn add_refused(reasons: &mut NamedCounts, counts: &wire::RefusalCounts) {
    for (refusal, count) in wire::Refusal::ALL
        .iter()
        .zip(counts)
        .filter(|(_, count)| **count > 0)
    {
        reasons.add(refusal.name(), *count);
    }
}

fn input_view(input: &InputGauge) -> InputView {
    let stats = input.stats();
    let counters = input.counters();
    let setup = input.setup();
    let (message, reopened) = input.failure_state();
    let interface = setup.interface.unwrap_or_default();
    let tried = interface.tried.into_iter().map(|(rx_path, reason)| TriedView {
        rx_path: rx_path.into(),
        reason,
    });
    let passed = [
        ("fragment", counters.passed_fragment),
        ("too_long", counters.passed_too_long),
        ("unusual", counters.passed_unusual),
        ("no_socket", counters.passed_no_socket),
    ];
    InputView {
        listen: setup.listen,
        kind: setup.kind.into(),
        up: message.is_none(),
        message,
        checksums_verified: !setup.kind.starts_with("xdp"),
        interface: Some(interface.name).filter(|name| !name.is_empty()),
        queues: interface.queues,
        tried: tried.collect(),
        reopened,
        drops: drops_of(&stats),
        passed: NamedCounts::nonzero(passed),
        device_drops: counters.device_dropped,
        datagrams: stats.datagrams,
        handled_in_kernel: stats.handled_in_kernel,
        bytes: stats.bytes,
        kernel_drops: stats.kernel_drops,
        truncated: stats.truncated,
        receive_buffer: setup.receive_buffer,
    }
}

/// Returns the datagrams dropped in front of this process, by reason, without zero counts.
fn drops_of(stats: &nic::source::Stats) -> NamedCounts {
    let reasons = [
        ("socket_buffer_full", stats.kernel_drops),
        ("bad_checksum", stats.bad_checksum),
        ("ring_full", stats.ring_full),
        ("fill_empty", stats.fill_empty),
        ("frame_refused", stats.refused.iter().sum()),
    ];
    NamedCounts::nonzero(reasons)
}

fn table_view(name: &'static str, table: &Table) -> TableView {
    let Table {
        used,
        capacity,
        evicted,
        refused,
    } = *table;
    TableView {
        name: name.into(),
        used,
        capacity,
        evicted,
        refused,
    }
}

fn store_view(stats: store::Stats, queue: &Account) -> StoreView {
    StoreView {
        state: stats.state.name().into(),
        message: stats.message,
        written: stats.written,
        committed: stats.committed,
        queue: queue.queued() + stats.queued,
        shed: queue.shed.sum() + stats.shed,
        failed: stats.failed,
        last_commit: stats.last_commit,
        bytes: stats.bytes,
        files: stats.files,
        indexed_later: stats.indexed_later,
        index_failures: stats.index_failures,
        set_aside: stats.set_aside,
        moved_files: stats.moved_files,
        removed: stats.removed,
        problems: stats.problems.list().iter().map(problem_view).collect(),
        more_problems: stats.problems.more() as u64,
    }
}

fn problem_view(problem: &store::FileProblem) -> FileProblemView {
    FileProblemView {
        file: problem.file.clone(),
        kind: problem.kind.name().into(),
        message: problem.message.clone(),
        found: problem.found,
        records: problem.records,
    }
}

fn worker_view(index: usize, worker: &WorkerHandle) -> WorkerView {
    let stats = worker.stats();
    WorkerView {
        worker: index,
        datagrams: stats.datagrams,
        reports: stats.reports,
    }
}

/// Builds a stage that counts datagrams and queues none.
fn datagram_stage(stage: &'static str, into: u64, out: u64, drops: NamedCounts) -> Stage {
    Stage {
        stage: stage.into(),
        unit: "datagrams".into(),
        into,
        out,
        queued: 0,
        drops,
        evidence: None,
    }
}

/// Collects the links of one step from slot `first` on. Returns the slot of the next step.
fn links_from(collector: &Collector, first: u32) -> (Vec<LinkUse>, Option<u32>) {
    let mut links = Vec::new();
    let next = visit_network(collector, first, |entry| {
        if let NetworkEntry::Link(link) = entry {
            links.push(link);
        }
    });
    (links, next)
}

/// A stream or an address, before its view is made.
struct SourceEntry<'a> {
    stream: Option<&'a StreamView>,
    /// The address, of which one entry has the refusals.
    address: Option<&'a SourceView>,
    datagrams: u64,
    /// Lost datagrams and refused reports.
    troubles: u64,
}

impl<'a> SourceEntry<'a> {
    fn new(stream: Option<&'a StreamView>, address: Option<&'a SourceView>) -> Self {
        let lost = stream.map_or(0, |stream| stream.lost + stream.unconfirmed);
        let refused: u64 = address.map_or(0, |address| address.refused.iter().sum());
        let datagrams = stream.map(|stream| stream.datagrams);
        Self {
            stream,
            address,
            datagrams: datagrams
                .or(address.map(|address| address.datagrams))
                .unwrap_or(0),
            troubles: lost + refused,
        }
    }
}

/// The number of sources, and the views of at most [`SHOWN_SOURCES`]: those with the most losses and refusals, then the busiest. The
/// busiest streams come first; the first stream of an address has the refusals of the address. Then addresses without a readable report.
fn source_views(detail: &Detail, named: &[SourceSettings]) -> (u64, Vec<view::SourceView>) {
    let sources = detail.sources();
    let mut streams: Vec<_> = detail.streams.iter().collect();
    streams.sort_by_key(|stream| Reverse(stream.datagrams));
    let mut numbered = HashSet::new();
    let mut entries: Vec<_> = streams
        .into_iter()
        .map(|stream| {
            let is_first = numbered.insert(stream.id.source);
            SourceEntry::new(Some(stream), sources.get(&stream.id.source).filter(|_| is_first))
        })
        .collect();
    let mut silent: Vec<_> = sources
        .values()
        .filter(|known| !numbered.contains(&known.source))
        .collect();
    silent.sort_by_key(|known| (Reverse(known.datagrams), known.source));
    entries.extend(
        silent
            .into_iter()
            .map(|known| SourceEntry::new(None, Some(known))),
    );
    let total = entries.len() as u64;
    if entries.len() > SHOWN_SOURCES {
        entries.sort_by_key(|entry| Reverse((entry.troubles, entry.datagrams)));
        entries.truncate(SHOWN_SOURCES);
        entries.sort_by_key(|entry| (entry.stream.is_none(), Reverse(entry.datagrams)));
    }
    let views = entries.iter().map(|entry| source_view(entry, named));
    (total, views.collect())
}

fn source_view(entry: &SourceEntry<'_>, named: &[SourceSettings]) -> view::SourceView {
    let refused = entry
        .address
        .map_or_else(NamedCounts::default, |known| refused_counts(&known.refused));
    let Some(stream) = entry.stream else {
        let source = entry.address.map_or([0; 16], |known| known.source);
        return view::SourceView {
            source: address(&source),
            name: source_name(named, &source),
            last_seen: entry.address.map_or(0, |known| known.last_seen),
            refused,
            ..view::SourceView::default()
        };
    };
    view::SourceView {
        source: address(&stream.id.source),
        name: source_name(named, &stream.id.source),
        node: stream.id.node,
        hw_id: Some(stream.id.hw_id),
        version: version_name(stream.id.version).to_owned(),
        reports: stream.datagrams,
        lost: stream.lost,
        unconfirmed: stream.unconfirmed,
        reordered: stream.reordered,
        duplicated: stream.duplicated,
        restarts: stream.restarts,
        countable: stream.countable,
        mixed: stream.mixed,
        last_seen: stream.last_seen,
        refused,
    }
}

/// Returns the name of the longest prefix that contains the address.
fn source_name(named: &[SourceSettings], source: &[u8; 16]) -> Option<String> {
    let named = named
        .iter()
        .filter(|known| known.prefix.is_some_and(|prefix| prefix.contains_octets(source)));
    let longest = named.max_by_key(|known| known.prefix.map(|prefix| prefix.len()))?;
    longest.name.clone()
}

fn refused_counts(refused: &wire::RefusalCounts) -> NamedCounts {
    let mut counts = NamedCounts::default();
    add_refused(&mut counts, refused);
    counts
}

/// Returns the name of a report version, given [`collector::StreamId::version`].
pub fn version_name(code: u8) -> &'static str {
    match code {
        5 => "0.5",
        10 => "1.0",
        20 => "2.0",
        collector::AGGREGATE_VERSION => "aggregate",
        _ => "",
    }
}

/// Formats an address; IPv4 addresses are stored as mapped IPv6.
fn address(octets: &[u8; 16]) -> String {
    Ipv6Addr::from(*octets).to_canonical().to_string()
}

/// Returns the rates at every sample but the first.
fn history(samples: &VecDeque<Sample>) -> Vec<RatesThen> {
    let rates = (1..samples.len()).map(|index| {
        let first = &samples[index.saturating_sub(RATE_SECONDS)];
        let last = &samples[index];
        RatesThen {
            ts: last.ts,
            rates: rates(first, last),
        }
    });
    rates.collect()
}

/// Returns the mean rates between two samples.
fn rates(first: &Sample, last: &Sample) -> Rates {
    let seconds = (last.time - first.time).as_secs_f64();
    let [reports, events, datagrams] = [
        (first.reports, last.reports),
        (first.events, last.events),
        (first.datagrams, last.datagrams),
    ]
    .map(|(first, last)| {
        if seconds > 0.0 {
            last.saturating_sub(first) as f64 / seconds
        } else {
            0.0
        }
    });
    Rates {
        reports,
        events,
        datagrams,
    }
}

impl CollectorMonitor for Monitor {
    async fn ask<T: Send + 'static>(
        &self,
        question: impl Fn(&Collector) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Busy> {
        Self::ask(self, question).await
    }

    async fn walk<T: Send + 'static>(
        &self,
        step: impl Fn(&Collector, u32) -> (T, Option<u32>) + Clone + Send + 'static,
        process: impl FnMut(usize, T) + Send,
    ) -> Result<(), Busy> {
        Self::walk(self, step, process).await
    }

    fn streams(&self) -> Vec<StreamView> {
        self.detail().streams
    }

    fn total(&self, count: fn(&Stats) -> u64) -> u64 {
        Self::total(self, count)
    }

    fn follow_rules(&self, queue: usize) -> mpsc::Receiver<RuleOn> {
        self.hub.follow_rules(queue)
    }

    fn set_followed(&self, rules: BTreeSet<String>) {
        self.hub.set_followed(rules);
    }

    fn drain_missed_rules(&self) -> u64 {
        self.hub.drain_missed_rules()
    }

    fn counted_events<'a>(
        &self,
        wanted: impl Iterator<Item = (&'a str, &'a [Match])>,
    ) -> BTreeMap<String, u64> {
        self.hub.counted_events(wanted)
    }

    fn stream_clients(&self) -> Option<u64> {
        self.hub.manager_clients()
    }

    fn publish_change(&self, message: &StreamMessage) {
        self.hub.publish_change(message);
    }
}

/// Copied flows, and the slot at which the next slice begins, if any.
type FlowSlice = (Vec<FlowSummary>, Option<u32>);

/// Asks a worker for a slice of its flows from slot `first` on, appended to `copies`.
fn ask_for_flows(
    worker: &WorkerHandle,
    mut copies: Vec<FlowSummary>,
    first: u32,
) -> oneshot::Receiver<FlowSlice> {
    worker.ask(move |collector| {
        let next = copy_flows(collector, first, &mut copies);
        (copies, next)
    })
}

async fn in_time<T>(answer: oneshot::Receiver<T>) -> Result<T, Busy> {
    time::timeout(RESPONSE_TIMEOUT, answer)
        .await
        .map_err(|_| Busy)?
        .map_err(|_| Busy)
}

/// Longest wait for a worker's answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Window over which rates are averaged, s.
const RATE_SECONDS: usize = 5;
/// Length of the rate history, s.
const HISTORY_SECONDS: usize = 900;
/// Maximum number of sources in `/status`.
const SHOWN_SOURCES: usize = 512;

#[cfg(test)]
mod tests {
    use collector::StreamId;

    use super::*;

    #[test]
    fn a_source_with_a_loss_is_listed_although_hundreds_are_busier() {
        let stream = |number: u32, datagrams, lost| StreamView {
            id: StreamId {
                version: 20,
                hw_id: 0,
                listener: 0,
                node: Some(number),
                source: u128::from(number).to_be_bytes(),
            },
            datagrams,
            lost,
            recovered: 0,
            unconfirmed: 0,
            reordered: 0,
            duplicated: 0,
            restarts: 0,
            countable: true,
            mixed: false,
            missing: 0,
            last_seen: 0,
        };
        let mut detail = Detail {
            streams: (0..600)
                .map(|number| stream(number, 1000 + u64::from(number), 0))
                .collect(),
            ..Detail::default()
        };
        detail.streams.push(stream(700, 2, 1));
        let (total, views) = source_views(&detail, &[]);
        assert_eq!((total, views.len()), (601, SHOWN_SOURCES));
        let nodes: Vec<_> = views.iter().map(|view| (view.node, view.lost)).collect();
        let most = SHOWN_SOURCES as u32 - 1;
        let expected: Vec<_> = (600 - most..600)
            .rev()
            .map(|node| (Some(node), 0))
            .chain([(Some(700), 1)])
            .collect();
        assert_eq!(nodes, expected, "the busiest first");
        detail.streams.truncate(3);
        let (total, views) = source_views(&detail, &[]);
        assert_eq!((total, views.len()), (3, 3));
    }

    #[test]
    fn rates_are_reported_for_every_second_over_those_before_it() {
        let begun = Instant::now();
        let sample = |second: u64| Sample {
            time: begun + Duration::from_secs(second),
            ts: second * 1_000_000_000,
            // 10 in the first second, 20 in the second, ...
            reports: 5 * second * (second + 1),
            events: 0,
            datagrams: second,
        };
        let rates = history(&(0..=7).map(sample).collect());
        let rates: Vec<_> = rates
            .iter()
            .map(|then| (then.ts / 1_000_000_000, then.rates.reports))
            .collect();
        assert_eq!(
            rates,
            [
                (1, 10.),
                (2, 15.),
                (3, 20.),
                (4, 25.),
                (5, 30.),
                (6, 40.),
                (7, 50.)
            ]
        );
        assert_eq!(history(&[sample(3)].into()), []);
        assert_eq!(history(&(0..2).map(sample).collect())[0].rates.datagrams, 1.0);
    }
}
