//! Runs the threads of an input and its workers as `hopwise run` does, but with packets from the caller (cases `fanout-…`).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    thread,
};

use collector::Collector;
use nic::{source::Packet, time};
use terminal::CliError;
use wire::Dialect;

use collect_role::{
    datagram::{AggregatePorts, Profiles, each_chunk},
    fanout::{self, Ledger, Plan, Spreader, load_queue},
    live::Hub,
    pipeline::{Config, Pipeline, QueueSender, RuleNames},
    settings::{CollectorSettings, Policy},
    worker::{Worker, WorkerHandle},
};
use runtime::{control::Control, lock::lock};

use experiments::machine::on_core;

/// A function in place of a socket: it passes bursts of packets to the function that it gets.
pub(super) type Receive<'r> = &'r mut (dyn FnMut(&mut dyn FnMut(&[Packet<'_>])) + Send);

/// Counters and CPU times that [`process`] returns.
#[derive(Clone, Default, Debug)]
pub(super) struct Processed {
    /// Datagrams that the workers handled.
    pub(super) handled: u64,
    /// Datagrams that were dropped before they reached a worker.
    pub(super) dropped: u64,
    /// CPU time of each worker's thread, ns; empty if the input's thread does the work.
    pub(super) workers_ns: Vec<u64>,
}

/// Processes the datagrams of one input with one worker for each of `collectors`. `receive` runs as the thread of the input.
pub(super) fn process(mut collectors: Vec<Collector>, receive: Receive<'_>) -> Result<Processed, CliError> {
    // Nothing reads the results, and a worker waits at its end until all of them are queued, so the queue must never fill.
    let queue = 1 << 30;
    let config = Config {
        batch: 4096,
        queue,
        store_queue: queue,
        policy: Policy::Shed,
        store: None,
    };
    let pipeline = Pipeline::new(
        config,
        Arc::new(Hub::new(1, 1, BTreeMap::new())),
        Control::new().0,
    );
    match collectors.pop() {
        Some(collector) if collectors.is_empty() => run_alone(collector, &pipeline, receive),
        last => distributed(collectors.into_iter().chain(last).collect(), &pipeline, receive),
    }
}

fn worker(collector: Collector, pipeline: &Pipeline) -> Result<(Worker, WorkerHandle), CliError> {
    Ok(Worker::new(
        collector,
        outlet(pipeline)?,
        RuleNames::from([]),
        None,
    ))
}

fn outlet(pipeline: &Pipeline) -> Result<QueueSender, CliError> {
    pipeline
        .outlet()
        .ok_or_else(|| CliError::new("the pipeline has stopped"))
}

/// Runs a single worker in the thread of the input, as [`collect_role::input`] does.
fn run_alone(collector: Collector, pipeline: &Pipeline, receive: Receive<'_>) -> Result<Processed, CliError> {
    let (worker, handle) = worker(collector, pipeline)?;
    let worker = Mutex::new(worker);
    receive(&mut |packets: &[Packet<'_>]| {
        let mut worker = lock(&worker);
        let ports = worker.aggregate_ports();
        each_chunk(packets, 0, &ports, |contents, chunk| {
            worker.process(contents, chunk)
        });
        let now = time::now();
        worker.poll(now, now);
    });
    lock(&worker).finish(time::now());
    Ok(Processed {
        handled: handle.stats().datagrams,
        ..Processed::default()
    })
}

/// Runs several workers, each with a thread and a queue, and distributes packets to them.
fn distributed(
    collectors: Vec<Collector>,
    pipeline: &Pipeline,
    receive: Receive<'_>,
) -> Result<Processed, CliError> {
    let ledger = Arc::new(Ledger::new(outlet(pipeline)?, 64, 1));
    let gauge = ledger.gauge();
    let limit = usize::try_from(CollectorSettings::default().worker_queue.0).unwrap_or(usize::MAX);
    let mut senders = Vec::new();
    let mut workers = Vec::new();
    let mut handles = Vec::new();
    for collector in collectors {
        let (worker, handle) = worker(collector, pipeline)?;
        let (sender, queue) = load_queue(limit);
        senders.push(sender);
        handles.push(handle);
        workers.push((queue, worker));
    }
    let default = wire::Profile::new(Dialect::IntCollectorGen);
    let plan = Plan {
        workers: senders,
        profiles: Arc::new(Profiles {
            default,
            by_source: Vec::new(),
        }),
        access: Arc::default(),
        seed: 1,
        listener: 0,
        ledger,
        aggregate_ports: AggregatePorts::default(),
        watermarks: Arc::default(),
    };
    let workers_ns = thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .map(|(queue, worker)| scope.spawn(move || on_core(|| fanout::work(&queue, worker)).1))
            .collect();
        let mut spreader = Spreader::new(plan);
        receive(&mut |packets: &[Packet<'_>]| {
            spreader.distribute(packets);
            let now = time::now();
            spreader.poll(now, now);
        });
        // The workers end when their last sender is dropped.
        drop(spreader);
        threads
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect::<Result<Vec<_>, _>>()
    });
    let workers_ns = workers_ns.map_err(|_| CliError::new("a worker panicked"))?;
    let handled = handles.iter().map(|handle| handle.stats().datagrams).sum();
    let dropped = lock(&gauge.stats).ended;
    Ok(Processed {
        handled,
        dropped,
        workers_ns,
    })
}
