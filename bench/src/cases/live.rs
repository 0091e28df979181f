//! Cases `live-…`: the whole program. A sender passes reports over loopback to `hopwise run` in its own process, with its store
//! on disk, at rising rates, until reports are lost. The result is the highest rate without loss.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use nic::udp::Sender;
use testkit::workload::collector::{Case, Values};

use super::child::{Program, Usage};
use super::harness::{Conditions, Failure, Outcome, Plan, panicked};
use experiments::figures::failed;
use experiments::machine::Scratch;
use terminal::CliError;

/// Number of flows of the cases in which values change.
const FLOWS: u32 = 1000;
/// Datagrams per call of the sender.
const PER_CALL: usize = 64;
/// The lowest rate of most cases, reports per second.
const FIRST: u64 = 12_500;
/// Maximum rates tried by doubling.
const STEPS: u32 = 8;
/// Maximum rates tried between the highest rate without loss and the lowest rate with loss.
const HALVINGS: u32 = 3;
/// Time limit for records to reach the disk after the last report.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two requests to the API.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Offset of the flow's source address in a payload: report header (16), Ethernet (14), and 12 bytes of the IPv4 header.
const SOURCE: usize = 42;

#[derive(Clone, Copy, Debug)]
enum Traffic {
    /// One of this many reports has a changed hop latency; 0 for none.
    ChangeEvery(u32),
    /// Every report is about a new flow.
    NewFlows,
    /// Reports are about this number of flows in turn, and values do not change.
    Known(u32),
}

impl Traffic {
    /// Returns the lowest rate, reports per second. It is doubled until reports are lost or the sender cannot keep up.
    fn first_rate(self) -> u64 {
        if matches!(self, Self::Known(_)) {
            8 * FIRST
        } else {
            FIRST
        }
    }

    /// Returns the number of flows that are known before the measurement.
    fn flows(self) -> u32 {
        match self {
            Self::ChangeEvery(_) => FLOWS,
            Self::NewFlows => 0,
            Self::Known(flows) => flows,
        }
    }
}

pub(super) fn run(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let traffic = match name {
        "live-change-0" => Traffic::ChangeEvery(0),
        "live-change-1" => Traffic::ChangeEvery(100),
        "live-change-10" => Traffic::ChangeEvery(10),
        "live-change-100" => Traffic::ChangeEvery(1),
        "live-asked-1m" => Traffic::Known(plan.flows(1_000_000)),
        _ => Traffic::NewFlows,
    };
    let mut reports = Reports::new(traffic);
    // At each rate, it takes half a minute until a million flows are known, so there is only one run.
    let runs = if matches!(traffic, Traffic::Known(_)) {
        1
    } else {
        plan.runs
    };
    let runs = (0..runs)
        .map(|_| highest(name, plan, &mut reports))
        .collect::<Result<Vec<_>, _>>()?;
    let Some(best) = runs.iter().max_by(|a, b| a.rate().total_cmp(&b.rate())) else {
        return Err(CliError::new("no run").into());
    };
    let conditions = Conditions::of(
        "one report at the highest rate without loss",
        "UDP socket on loopback, state, queues, live stream, store with commits every second, indexes, API",
    )
    .number("flows", traffic.flows())
    .text("asked", "a page of 50 flows every 100 ms")
    .ratio(
        "changes",
        match traffic {
            Traffic::ChangeEvery(0) | Traffic::NewFlows | Traffic::Known(_) => 0.0,
            Traffic::ChangeEvery(every) => 1.0 / f64::from(every),
        },
    )
    .number("lost_at_per_s", best.lost_at.unwrap_or(0))
    .text("limit", best.limit());
    let conditions = best.step.describe(conditions);
    Ok(Outcome::new(
        name,
        runs.iter().map(|run| 1e9 / run.rate().max(1.0)).collect(),
        conditions,
    ))
}

/// The highest rate without loss, or the lowest rate even if it has losses.
#[derive(Debug)]
struct Highest {
    step: Step,
    /// The lowest rate at which reports were lost.
    lost_at: Option<u64>,
}

impl Highest {
    fn rate(&self) -> f64 {
        self.step.sent as f64 / self.step.seconds
    }

    /// Returns the reason why there is no higher rate.
    fn limit(&self) -> &'static str {
        match self.lost_at {
            _ if self.step.lost() > 0 || !self.step.settled => "the lowest rate already loses reports",
            Some(_) => "a higher rate loses reports",
            None => "the sender",
        }
    }
}

#[derive(Clone, Debug)]
struct Step {
    sent: u64,
    seconds: f64,
    /// Counters and resources that the program used until everything was on disk.
    usage: Usage,
    /// Resident memory at the end, bytes.
    resident: u64,
    /// Response times of the API, sorted, and requests without a response.
    answers: Vec<Duration>,
    unanswered: u64,
    /// True if the queues were empty at the end.
    settled: bool,
}

impl Step {
    fn lost(&self) -> u64 {
        self.sent.abs_diff(self.usage.received) + self.usage.dropped
    }

    /// Returns whether the sender kept to the rate, within a tenth.
    fn has_kept(&self, rate: u64) -> bool {
        self.sent as f64 >= 0.9 * rate as f64 * self.seconds
    }

    fn describe(&self, conditions: Conditions) -> Conditions {
        let reports = self.usage.received.max(1) as f64;
        let slowest = self.answers.len().saturating_sub(1);
        let [median, greatest] = [(self.answers.len() / 2).min(slowest), slowest].map(|at| {
            self.answers
                .get(at)
                .map_or(0.0, |answer| answer.as_secs_f64() * 1e3)
        });
        let Usage {
            user,
            system,
            records,
            bytes,
            ..
        } = self.usage;
        conditions
            .number("sent", self.sent)
            .number("lost", self.lost())
            .number("records", records)
            .ratio("user_ns_per_report", user * 1e9 / reports)
            .ratio("system_ns_per_report", system * 1e9 / reports)
            .number("resident_bytes", self.resident)
            .ratio("store_bytes_per_record", bytes as f64 / records.max(1) as f64)
            .ratio("api_ms_median", median)
            .ratio("api_ms_greatest", greatest)
            .number("api_unanswered", self.unanswered)
    }
}

/// Searches for the highest rate without loss: doubles the rate until reports are lost, then bisects the interval. Each rate
/// gets a new process with an empty store, so that earlier rates do not affect it.
fn highest(name: &str, plan: &Plan, reports: &mut Reports) -> Result<Highest, Failure> {
    let first = reports.traffic.first_rate();
    let (mut best, mut lost_at, mut rate): (Option<(u64, Step)>, Option<u64>, u64) = (None, None, first);
    let tries = if plan.is_trial() { 1 } else { STEPS + HALVINGS };
    for _ in 0..tries {
        let step = at_rate(name, plan, reports, rate)?;
        let kept = step.has_kept(rate);
        let lost = step.lost() > 0 || !step.settled;
        if lost && rate > first {
            lost_at = Some(rate);
        } else {
            best = Some((rate, step));
        }
        let reached = best.as_ref().map_or(first, |(rate, _)| *rate);
        match lost_at {
            Some(lost_at) if lost_at - reached > reached / 8 => rate = reached.midpoint(lost_at),
            None if kept && !lost => rate *= 2,
            _ => break,
        }
    }
    best.map(|(_, step)| Highest { step, lost_at })
        .ok_or_else(|| CliError::new("nothing was measured").into())
}

/// Measures one run at `rate` reports per second.
fn at_rate(name: &str, plan: &Plan, reports: &mut Reports, rate: u64) -> Result<Step, Failure> {
    let scratch = Scratch::new(name)?;
    let program = Program::start(scratch.path(), "")?;
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut sender = Sender::connect(any, program.input()?).map_err(failed)?;
    // Warm-up: all flows must be known, and their first records on disk. 2.1 passes over the flows.
    let flows = reports.traffic.flows();
    let first = reports.traffic.first_rate();
    if flows > 0 {
        send(
            &mut sender,
            reports,
            first,
            Duration::from_secs_f64(2.1 * f64::from(flows) / first as f64),
        )?;
        program.settle(PATIENCE);
    }
    let before = program.usage()?;
    let begun = Instant::now();
    let ((sent, seconds), (answers, unanswered)) = thread::scope(|scope| {
        let asking = scope.spawn(|| program.ask_until(begun + plan.each, ASK_EVERY));
        let sent = send(&mut sender, reports, rate, plan.each);
        Ok::<_, CliError>((sent?, asking.join().map_err(panicked)?))
    })?;
    let settled = program.settle(PATIENCE);
    let after = program.usage()?;
    Ok(Step {
        sent,
        seconds,
        usage: after.since(&before),
        resident: program.resident(),
        answers,
        unanswered,
        settled,
    })
}

/// Sends bursts, evenly spaced as far as the rate allows. Returns the number of reports and the duration in seconds.
fn send(
    sender: &mut Sender,
    reports: &mut Reports,
    rate: u64,
    span: Duration,
) -> Result<(u64, f64), CliError> {
    let begun = Instant::now();
    let mut sent = 0;
    while begun.elapsed() < span {
        let burst = reports.next();
        sent += sender.send_burst(&burst).map_err(failed)? as u64;
        let due = Duration::from_secs_f64(sent as f64 / rate as f64);
        if let Some(rest) = due.checked_sub(begun.elapsed()) {
            thread::sleep(rest);
        }
    }
    Ok((sent, begun.elapsed().as_secs_f64()))
}

/// A sender at a fixed rate; 1 % of its reports contain a change.
pub(super) struct Steady {
    sender: Sender,
    reports: Reports,
    rate: u64,
    begun: Instant,
    sent: u64,
}

impl Steady {
    pub(super) fn to(input: SocketAddr, rate: u64) -> Result<Self, CliError> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let sender = Sender::connect(any, input).map_err(failed)?;
        let reports = Reports::new(Traffic::ChangeEvery(100));
        Ok(Self {
            sender,
            reports,
            rate,
            begun: Instant::now(),
            sent: 0,
        })
    }

    /// Sends for `span`, and catches up with the rate before it returns.
    pub(super) fn send_for(&mut self, span: Duration) -> Result<(), CliError> {
        let end = Instant::now() + span;
        loop {
            let due = (self.rate as f64 * self.begun.elapsed().as_secs_f64()) as u64;
            while self.sent < due {
                self.sent += self.sender.send_burst(&self.reports.next()).map_err(failed)? as u64;
            }
            if Instant::now() >= end {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent
    }
}

/// An endless sequence of reports.
struct Reports {
    traffic: Traffic,
    /// One report of each flow with its first values, then one of each flow with a changed value.
    payloads: Vec<Vec<u8>>,
    next: u32,
}

impl Reports {
    fn new(traffic: Traffic) -> Self {
        let values = Values::Change;
        let case = Case {
            name: "live",
            flows: FLOWS,
            hops: 6,
            bitmap: 0xff00,
            values,
            ..Case::PLAIN
        };
        Self {
            traffic,
            payloads: case.feed().payloads().map(<[u8]>::to_vec).collect(),
            next: 0,
        }
    }

    fn next(&mut self) -> Vec<&[u8]> {
        let first = self.next;
        self.next = first.wrapping_add(PER_CALL as u32);
        let numbers = (0..PER_CALL as u32).map(|i| first.wrapping_add(i));
        match self.traffic {
            Traffic::ChangeEvery(every) => {
                let at = numbers.map(|number| place(number, every));
                at.map(|at| self.payloads[at].as_slice()).collect()
            }
            Traffic::NewFlows | Traffic::Known(_) => {
                let numbers = numbers.map(|number| match self.traffic {
                    Traffic::Known(flows) => number % flows,
                    _ => number,
                });
                for (payload, number) in self.payloads.iter_mut().zip(numbers) {
                    // Addresses within 10.0.0.0/8.
                    payload[SOURCE + 1..SOURCE + 4].copy_from_slice(&number.to_be_bytes()[1..]);
                }
                self.payloads[..PER_CALL].iter().map(Vec::as_slice).collect()
            }
        }
    }
}

/// Returns the index of a report's payload: flows take turns, and each changes its values after `every` of its reports.
fn place(number: u32, every: u32) -> usize {
    let flow = number % FLOWS;
    let pass = number / FLOWS;
    let other = every > 0 && (pass + flow) / every % 2 == 1;
    (flow + if other { FLOWS } else { 0 }) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_reports_differ_from_the_flows_last() {
        for every in [1, 10, 100] {
            let mut last = vec![usize::MAX; FLOWS as usize];
            let mut changed = 0;
            for number in 0..201 * FLOWS {
                let place = place(number, every);
                let before = std::mem::replace(&mut last[place % FLOWS as usize], place);
                changed += u32::from(before != usize::MAX && before != place);
            }
            assert_eq!(changed, 200 * FLOWS / every);
        }
        assert!((0..10 * FLOWS).all(|number| place(number, 0) == (number % FLOWS) as usize));
    }

    #[test]
    fn new_flows_are_new() {
        let mut reports = Reports::new(Traffic::NewFlows);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..100 {
            seen.extend(
                reports
                    .next()
                    .iter()
                    .map(|payload| payload[SOURCE..SOURCE + 4].to_vec()),
            );
        }
        assert_eq!(seen.len(), 100 * PER_CALL);
        assert!(seen.iter().all(|source| source[0] == 10));
    }
}
