//! Cases `udp-…`: the UDP receive path at full rate with one sender and one 5-tuple, compared with a loop that discards.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use collector::{Batch, Collector};
use nic::load::{Discard, Load};
use nic::netns::{Namespace, Pair};
use nic::udp::{DEFAULT_SLOT_SIZE, DEFAULT_SLOTS, Options, Receiver, Sender};
use testkit::workload::collector::{CASES, Case};

use super::harness::{Conditions, Failure, Outcome, Plan, median_of, panicked, sum_of};
use experiments::figures::{each_chunk, failed};
use experiments::machine::on_core;
use terminal::CliError;

/// Bytes of each report's payload.
const PAYLOAD: usize = 220;
/// Number of flows, each with a different report.
const FLOWS: u32 = 10_000;
/// Interval of the collector's timers, ns.
const TICK: u64 = 20_000_000;

/// The location of sender and receiver, and the way in which the sender sends.
struct Testbed {
    /// The two ends of a link between two namespaces; `None` on loopback.
    pair: Option<Pair>,
    /// True for UDP segmentation offload, which floods any receiver; false for separate datagrams, as from a network.
    segmented: bool,
}

impl Testbed {
    fn address(&self) -> SocketAddr {
        let address = if self.pair.is_some() {
            Pair::FAR[0]
        } else {
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        };
        SocketAddr::new(address, 0)
    }

    fn at_receiver<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, nic::Error> + Send,
    ) -> Result<T, CliError> {
        in_namespace(self.pair.as_ref().map(|pair| &pair.far), work)
    }

    fn at_sender<T: Send>(&self, work: impl FnOnce() -> Result<T, nic::Error> + Send) -> Result<T, CliError> {
        in_namespace(self.pair.as_ref().map(|pair| &pair.near), work)
    }

    fn link_drops(&self) -> Result<u64, CliError> {
        self.pair
            .as_ref()
            .map_or(Ok(0), |pair| pair.link_drops().map_err(failed))
    }
}

fn in_namespace<T: Send>(
    namespace: Option<&Namespace>,
    work: impl FnOnce() -> Result<T, nic::Error> + Send,
) -> Result<T, CliError> {
    match namespace {
        Some(namespace) => namespace.run(work).and_then(|result| result).map_err(failed),
        None => work().map_err(failed),
    }
}

/// Measures over a veth link between two network namespaces, which needs root (`udp-one-sender`).
pub(super) fn veth(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    compare(name, plan, Some(namespaces()?), false)
}

/// Measures over veth with a sender faster than any receiver (`udp-one-sender-flood`).
pub(super) fn flood(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    compare(name, plan, Some(namespaces()?), true)
}

/// Measures over the loopback interface (`udp-loopback`).
pub(super) fn loopback(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    compare(name, plan, None, false)
}

fn namespaces() -> Result<Pair, Failure> {
    Pair::create().map_err(|error| {
        Failure::Skipped(format!(
            "needs network namespaces, so run it as root ({error}); udp-loopback does not"
        ))
    })
}

/// Counters of one run of either receiver.
#[derive(Clone, Copy, Default, Debug)]
struct Measurement {
    sent: u64,
    received: u64,
    kernel_drops: u64,
    link_drops: u64,
    per_second: f64,
    /// CPU time of the receiving thread per datagram, ns.
    on_core: f64,
    /// True if the kernel merged datagrams (UDP GRO).
    merged: bool,
}

fn compare(name: &'static str, plan: &Plan, pair: Option<Pair>, segmented: bool) -> Result<Outcome, Failure> {
    let testbed = &Testbed { pair, segmented };
    let case = Case {
        name: "udp",
        flows: FLOWS,
        hops: 6,
        bitmap: 0xfc00,
        ..CASES[0]
    };
    let payloads: Vec<Vec<u8>> = case.feed().payloads().map(padded).collect();
    let mut collector = case.collector();
    let mut batch = Batch::with_capacity(8192);
    let mut runs = Vec::new();
    let mut handled = 0;
    for run in 0..=plan.runs {
        // Two variants of a plain receive loop; the faster one is the baseline.
        let blocking = discarded(plan, testbed, &payloads, Duration::ZERO)?;
        let waiting = discarded(plan, testbed, &payloads, Duration::from_micros(50))?;
        let plain = Measurement {
            per_second: blocking.per_second.max(waiting.per_second),
            on_core: blocking.on_core.min(waiting.on_core),
            ..blocking
        };
        let collected = collected(plan, testbed, &payloads, &mut collector, &mut batch)?;
        if run == 0 {
            // The first run is the warm-up, after which every flow is known.
            handled = collector.stats().datagrams;
        } else {
            runs.push([plain, collected]);
        }
    }
    let sent = sum_of(&runs, |[_, run]| run.sent);
    let received = sum_of(&runs, |[_, run]| run.received);
    let kernel_drops = sum_of(&runs, |[_, run]| run.kernel_drops);
    let link_drops = sum_of(&runs, |[_, run]| run.link_drops);
    let merges = runs.iter().any(|[_, run]| run.merged);
    let merging = if merges {
        "UDP GRO"
    } else {
        "none, which needs CAP_BPF"
    };
    let stats = collector.stats();
    let link = if testbed.pair.is_some() {
        "veth between two network namespaces"
    } else {
        "loopback"
    };
    let sender = if testbed.segmented {
        "one socket, UDP segmentation offload"
    } else {
        "one socket, sendmmsg of 64"
    };
    let included = "recvmmsg with kernel timestamps, drop counters and UDP GRO, decoding, state, thresholds, loss accounting";
    let conditions = Conditions::of("one report received and handled", included)
        .text("link", link)
        .text("sender", sender)
        .text(
            "baseline",
            "recvmmsg loop that discards the data, in the same run; the faster of blocking and 50 us waits",
        )
        .ratio(
            "baseline_per_s",
            median_of(&runs, |[plain, _]| plain.per_second).round(),
        )
        .ratio(
            "of_baseline",
            median_of(&runs, |[plain, run]| run.per_second / plain.per_second),
        )
        .ratio("ns_on_core", median_of(&runs, |[_, run]| run.on_core))
        .ratio(
            "baseline_ns_on_core",
            median_of(&runs, |[plain, _]| plain.on_core),
        )
        .text("merging", merging)
        .number("payload_bytes", PAYLOAD)
        .number("flows", FLOWS)
        .number("sent", sent)
        .number("received", received)
        .number("handled", stats.datagrams - handled)
        .number("refused", stats.datagrams - stats.accepted)
        .number("kernel_drops", kernel_drops)
        .number("link_drops", link_drops)
        .number("unaccounted", sent.abs_diff(received + kernel_drops + link_drops));
    let times = runs.iter().map(|[_, run]| 1e9 / run.per_second).collect();
    Ok(Outcome::new(name, times, conditions))
}

fn padded(payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    // The padding stands for the truncated packet that a real report contains.
    payload.resize(PAYLOAD, 0);
    payload
}

/// Sends for one run while `receive` runs on another thread, until its flag is set and the socket is empty. Returns the number
/// of datagrams sent, the result of `receive`, and the CPU time of its thread (ns).
fn send_while<T: Send>(
    plan: &Plan,
    testbed: &Testbed,
    payloads: &[Vec<u8>],
    to: SocketAddr,
    receive: impl FnOnce(&AtomicBool) -> Result<T, nic::Error> + Send,
) -> Result<(u64, (T, u64)), CliError> {
    let from = SocketAddr::new(
        if testbed.pair.is_some() {
            Pair::NEAR[0]
        } else {
            to.ip()
        },
        0,
    );
    let mut sender = testbed.at_sender(|| Sender::connect(from, to))?;
    let stop = AtomicBool::new(false);
    let done = AtomicBool::new(false);
    let load = Load {
        segmented: testbed.segmented,
        ..Load::default()
    };
    let (sent, received) = thread::scope(|scope| {
        let receiving = scope.spawn(|| on_core(|| receive(&done)));
        let sending = scope.spawn(|| load.send(&mut sender, payloads, &stop));
        thread::sleep(plan.each);
        // Relaxed: no other data depends on the flag; joining orders the rest.
        stop.store(true, Ordering::Relaxed);
        let sent = sending.join();
        // Release pairs with the acquire in the receiver: when it sees the flag, everything that was sent is in the socket.
        done.store(true, Ordering::Release);
        (sent, receiving.join())
    });
    let (received, ns) = received.map_err(panicked)?;
    Ok((
        sent.map_err(panicked)?.map_err(failed)?,
        (received.map_err(failed)?, ns),
    ))
}

fn discarded(
    plan: &Plan,
    testbed: &Testbed,
    payloads: &[Vec<u8>],
    wait: Duration,
) -> Result<Measurement, CliError> {
    let address = testbed.address();
    let mut discard = testbed.at_receiver(|| Discard::bind(address, &Options::default()))?;
    let to = discard.local_addr();
    let (sent, (counters, on_core)) =
        send_while(plan, testbed, payloads, to, |done| discard.run(wait, done))?;
    Ok(Measurement {
        merged: false,
        on_core: on_core as f64 / counters.datagrams.max(1) as f64,
        sent,
        received: counters.datagrams,
        kernel_drops: counters.kernel_drops,
        link_drops: 0,
        per_second: counters.per_second(),
    })
}

fn collected(
    plan: &Plan,
    testbed: &Testbed,
    payloads: &[Vec<u8>],
    collector: &mut Collector,
    batch: &mut Batch,
) -> Result<Measurement, CliError> {
    let address = testbed.address();
    let options = Options {
        merge: true,
        ..Options::default()
    };
    let mut receiver = testbed.at_receiver(|| Receiver::bind(address, &options))?;
    let to = receiver.local_addr();
    let drops_before = testbed.link_drops()?;
    let (sent, (elapsed, on_core)) = send_while(plan, testbed, payloads, to, |done| {
        collect(&mut receiver, collector, batch, done)
    })?;
    let stats = receiver.stats();
    Ok(Measurement {
        merged: receiver.merges(),
        on_core: on_core as f64 / stats.datagrams.max(1) as f64,
        sent,
        received: stats.datagrams,
        kernel_drops: stats.kernel_drops,
        link_drops: testbed.link_drops()? - drops_before,
        per_second: stats.datagrams as f64 * 1e9 / elapsed.as_nanos().max(1) as f64,
    })
}

/// Handles datagrams until `done` is set and the socket is empty. Returns the time from the first to the last datagram.
fn collect(
    receiver: &mut Receiver,
    collector: &mut Collector,
    batch: &mut Batch,
    done: &AtomicBool,
) -> Result<Duration, nic::Error> {
    let mut burst = receiver.burst(DEFAULT_SLOTS, DEFAULT_SLOT_SIZE);
    let mut first = None;
    let mut last = Instant::now();
    let mut ticked = 0;
    loop {
        let ending = done.load(Ordering::Acquire);
        let count = receiver.recv(&mut burst, if ending { 0 } else { 50 })?;
        if count == 0 {
            if ending {
                return Ok(first.map_or(Duration::ZERO, |first| last - first));
            }
            continue;
        }
        last = Instant::now();
        first = first.or(Some(last));
        let mut now = 0_u64;
        each_chunk(&burst, |datagrams| {
            now = datagrams.last().map_or(now, |last| last.received);
            collector.handle(datagrams, batch);
        });
        if now.saturating_sub(ticked) >= TICK {
            ticked = now;
            collector.tick(now, batch);
        }
        // `hopwise run` passes the batch to the store's queue here.
        if batch.len() > 4096 {
            batch.clear();
        }
    }
}
