//! Cases `fanout-…`: the reports of one reporter distributed over two workers, compared with one worker, and with two threads that
//! share nothing, which is the limit of the machine. The input's thread and the workers' threads run as in `hopwise run`, fed from
//! memory.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use nic::source::Packet;
use testkit::workload::collector::{BURST, CASES, Case};

use super::harness::{Conditions, Failure, Outcome, Plan, median, median_of, panicked};
use super::workers::{self, Processed};
use experiments::machine::on_core;
use terminal::CliError;

/// Bursts between two readings of the clock.
const BURSTS: usize = 64;

/// CPU times of one run, ns per report.
#[derive(Clone, Copy, Default, Debug)]
struct Costs {
    input: f64,
    /// CPU time of the busiest worker.
    worker: f64,
    workers: f64,
}

impl Costs {
    /// Returns the CPU time of the busiest thread, which limits the rate if each thread has a core.
    fn busiest(&self) -> f64 {
        self.input.max(self.worker)
    }
}

/// Measures two workers, and compares them with one worker and with the machine's limit (`fanout-2…`).
pub(super) fn run(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let runs = Runs::measure(name, plan)?;
    let conditions = runs
        .describe(Conditions::of(
            "one report, CPU time of the busiest thread",
            INCLUDED,
        ))
        .ratio("one_worker_ns", median_of(&runs.one_worker, Costs::busiest))
        .ratio("input_ns", median_of(&runs.two_workers, |two| two.input))
        .ratio(
            "busiest_worker_ns",
            median_of(&runs.two_workers, |two| two.worker),
        )
        .ratio(
            "all_threads_ns",
            median_of(&runs.two_workers, |two| two.input + two.workers),
        )
        .ratio("limit_ns", median_of(&runs.limit, Costs::busiest))
        .ratio("speedup", runs.ratio_to_two_workers(&runs.one_worker))
        .ratio("of_limit", runs.ratio_to_two_workers(&runs.limit));
    let times = runs.two_workers.iter().map(Costs::busiest).collect();
    Ok(Outcome::new(name, times, conditions))
}

/// Measures two threads that share nothing, and compares two workers of one input with them in the same run (`fanout-limit`).
pub(super) fn limit(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let runs = Runs::measure(name, plan)?;
    let operation =
        "one report, CPU time of the busier of two threads that share nothing, each with half of the flows";
    let conditions = runs
        .describe(Conditions::of(operation, INCLUDED))
        .ratio("two_workers_ns", median_of(&runs.two_workers, Costs::busiest))
        .ratio("of_limit", runs.ratio_to_two_workers(&runs.limit));
    let times = runs.limit.iter().map(Costs::busiest).collect();
    Ok(Outcome::new(name, times, conditions))
}

const INCLUDED: &str = "the thread of the input from packets in memory: inner flow, loss accounting, copy; the busiest of it and of \
                        two workers: decoding, state, thresholds; threads that share nothing do both";

/// The costs of one worker, of two, and of two threads that share nothing, in each run. All are measured in each run, so that a
/// change of the machine's speed affects all.
struct Runs {
    flows: u32,
    hops: u8,
    one_worker: Vec<Costs>,
    two_workers: Vec<Costs>,
    limit: Vec<Costs>,
    /// Datagrams to two workers, and how many of them were dropped.
    datagrams: u64,
    dropped: u64,
}

impl Runs {
    fn measure(name: &str, plan: &Plan) -> Result<Self, Failure> {
        let flows = if name.ends_with("100k") { 100_000 } else { 1_000 };
        let case = Case {
            flows: plan.flows(flows),
            ..CASES[0]
        };
        let feed = case.feed();
        let payloads: Vec<&[u8]> = feed.payloads().collect();
        let mut runs = Self {
            flows: case.flows,
            hops: case.hops,
            one_worker: Vec::new(),
            two_workers: Vec::new(),
            limit: Vec::new(),
            datagrams: 0,
            dropped: 0,
        };
        for run in 0..plan.runs + plan.warm_ups() {
            let one = measure(plan, |span| process(1, &case, &payloads, span))?;
            let two = measure(plan, |span| process(2, &case, &payloads, span))?;
            let limit = measure(plan, |span| process_independently(&case, &payloads, span))?;
            if run < plan.warm_ups() {
                continue;
            }
            runs.one_worker.push(one.costs);
            runs.two_workers.push(two.costs);
            runs.limit.push(limit.costs);
            runs.datagrams += two.sent;
            runs.dropped += two.dropped;
        }
        Ok(runs)
    }

    fn describe(&self, conditions: Conditions) -> Conditions {
        conditions
            .number("flows", self.flows)
            .number("hops", self.hops)
            .number("datagrams", self.datagrams)
            .number("dropped", self.dropped)
    }

    /// Returns the median ratio of `others` to two workers: the rate of two workers as a multiple of that of `others`.
    fn ratio_to_two_workers(&self, others: &[Costs]) -> f64 {
        let pairs = others.iter().zip(&self.two_workers);
        median(
            pairs
                .map(|(other, two)| other.busiest() / two.busiest())
                .collect(),
        )
    }
}

/// Maximum number of times that a run is repeated, each twice as long, if its costs are not above those of the first one: on a busy
/// machine, a short run can be below the noise.
const MAX_REPEATS: u32 = 6;

/// The costs of one run, the number of datagrams, and how many of them were dropped.
struct Measurement {
    costs: Costs,
    sent: u64,
    dropped: u64,
}

/// Measures `process`, which handles each report twice and then reports for a span.
fn measure(plan: &Plan, process: impl Fn(Duration) -> Result<Run, Failure>) -> Result<Measurement, Failure> {
    // The first of two runs only creates the state of all flows; its costs are subtracted.
    let first = process(Duration::ZERO)?;
    let mut second = process(plan.each)?;
    for repeat in 1..=MAX_REPEATS {
        // Without workers, the thread of the input does their work.
        let has_workers = second.busiest_ns > 0;
        if second.input_ns > first.input_ns && (second.busiest_ns > first.busiest_ns || !has_workers) {
            break;
        }
        second = process(plan.each * 2_u32.pow(repeat))?;
    }
    let sent = second.sent - first.sent;
    let dropped = second.dropped - first.dropped;
    let [input, worker, workers] = [
        second.input_ns.saturating_sub(first.input_ns),
        second.busiest_ns.saturating_sub(first.busiest_ns),
        second.workers_ns.saturating_sub(first.workers_ns),
    ]
    .map(|ns| ns as f64 / sent.max(1) as f64);
    Ok(Measurement {
        costs: Costs {
            input,
            worker,
            workers,
        },
        sent,
        dropped,
    })
}

/// Counters and CPU time of one run.
#[derive(Clone, Copy, Default, Debug)]
struct Run {
    sent: u64,
    dropped: u64,
    input_ns: u64,
    busiest_ns: u64,
    workers_ns: u64,
}

/// Processes the reports in two threads that share nothing, each with a worker and half of the flows. The CPU time is that of the
/// busier one, for the reports of both.
fn process_independently(case: &Case, payloads: &[&[u8]], span: Duration) -> Result<Run, Failure> {
    let (one_half, other_half) = payloads.split_at(payloads.len() / 2);
    let (first, joined) = thread::scope(|scope| {
        let other = scope.spawn(|| process(1, case, other_half, span));
        let first = process(1, case, one_half, span);
        (first, other.join())
    });
    let first = first?;
    let second = joined.map_err(panicked)??;
    Ok(Run {
        sent: first.sent + second.sent,
        dropped: first.dropped + second.dropped,
        input_ns: first.input_ns.max(second.input_ns),
        ..Run::default()
    })
}

/// Processes each report twice, then reports for `span`.
fn process(workers: usize, case: &Case, payloads: &[&[u8]], span: Duration) -> Result<Run, Failure> {
    let mut sent = 0;
    let mut input_ns = 0;
    let collectors = (0..workers).map(|_| case.collector()).collect();
    let processed = workers::process(collectors, &mut |deliver| {
        let ((), ns) = on_core(|| {
            for payloads in payloads.chunks(BURST).chain(payloads.chunks(BURST)) {
                sent += deliver_burst(payloads, deliver);
            }
            let started = Instant::now();
            let mut bursts = payloads.chunks(BURST).cycle();
            while started.elapsed() < span {
                for payloads in bursts.by_ref().take(BURSTS) {
                    sent += deliver_burst(payloads, deliver);
                }
            }
        });
        input_ns = ns;
    });
    let Processed {
        handled,
        dropped,
        workers_ns,
    } = processed?;
    if sent != handled + dropped {
        let message = format!("{sent} datagrams in, {handled} handled, {dropped} dropped");
        return Err(CliError::new(message).into());
    }
    let busiest_ns = workers_ns.iter().copied().max().unwrap_or(0);
    Ok(Run {
        sent,
        dropped,
        input_ns,
        busiest_ns,
        workers_ns: workers_ns.iter().sum(),
    })
}

/// Delivers the payloads as packets that have just arrived from one reporter.
fn deliver_burst(payloads: &[&[u8]], deliver: &mut dyn FnMut(&[Packet<'_>])) -> u64 {
    let source = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 5000);
    let received = nic::time::now();
    let empty = Packet {
        data: &[],
        source,
        port: 32766,
        received,
        truncated: false,
    };
    let mut packets = [empty; BURST];
    for (packet, data) in packets.iter_mut().zip(payloads) {
        packet.data = data;
    }
    deliver(&packets[..payloads.len()]);
    payloads.len() as u64
}
