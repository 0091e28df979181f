//! Cases `fanout-2…`: the reports of one reporter distributed over two workers, compared with one worker. The input's thread
//! and the workers' threads run as in `hopwise run`, fed from memory.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use nic::source::Packet;
use testkit::workload::collector::{BURST, CASES, Case};

use super::harness::{Conditions, Failure, Outcome, Plan, median, median_of};
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

pub(super) fn run(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let flows = if name.ends_with("100k") { 100_000 } else { 1_000 };
    let case = Case {
        flows: plan.flows(flows),
        ..CASES[0]
    };
    let feed = case.feed();
    let payloads: Vec<&[u8]> = feed.payloads().collect();
    let mut ones = Vec::new();
    let mut twos = Vec::new();
    let mut speedups = Vec::new();
    let mut datagrams = 0;
    let mut dropped = 0;
    // Both are measured in each run, so that a change of the machine's speed affects both.
    for run in 0..plan.runs + plan.warm_ups() {
        let one = measure(plan, 1, &case, &payloads)?.costs;
        let Measurement {
            costs: two,
            sent,
            dropped: run_dropped,
        } = measure(plan, 2, &case, &payloads)?;
        if run < plan.warm_ups() {
            continue;
        }
        speedups.push(one.busiest() / two.busiest());
        ones.push(one.busiest());
        twos.push(two);
        datagrams += sent;
        dropped += run_dropped;
    }

    let included = "the thread of the input from packets in memory: inner flow, loss accounting, copy; the busiest of it \
                    and of two workers: decoding, state, thresholds";
    let conditions = Conditions::of("one report, CPU time of the busiest thread", included)
        .number("flows", case.flows)
        .number("hops", case.hops)
        .ratio("one_worker_ns", median(ones))
        .ratio("input_ns", median_of(&twos, |two| two.input))
        .ratio("busiest_worker_ns", median_of(&twos, |two| two.worker))
        .ratio("all_threads_ns", median_of(&twos, |two| two.input + two.workers))
        .ratio("speedup", median(speedups))
        .number("datagrams", datagrams)
        .number("dropped", dropped);
    Ok(Outcome::new(
        name,
        twos.iter().map(Costs::busiest).collect(),
        conditions,
    ))
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

fn measure(plan: &Plan, workers: usize, case: &Case, payloads: &[&[u8]]) -> Result<Measurement, Failure> {
    // The first of two runs only creates the state of all flows; its costs are subtracted.
    let first = process(workers, case, payloads, Duration::ZERO)?;
    let mut second = process(workers, case, payloads, plan.each)?;
    for repeat in 1..=MAX_REPEATS {
        if second.input_ns > first.input_ns && second.busiest_ns > first.busiest_ns {
            break;
        }
        second = process(workers, case, payloads, plan.each * 2_u32.pow(repeat))?;
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
