//! Cases `rx-…`: receive rate of each receive path of an interface (AF_XDP, AF_PACKET, UDP socket).
//!
//! The kernel generates frames faster than any receiver can take them, and sends them over veth: first to a reader that
//! discards them, then to the whole collector, in the same run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use collector::{Batch, Collector};
use nic::load::{LiveFrames, Word};
use nic::netns::Pair;
use nic::receive::{self, OpenInterface, RxPath};
use nic::source::{Packet, Source};
use nic::{device, time};
use testkit::workload::collector::{CASES, Case};

use super::harness::{Conditions, Failure, Outcome, Plan, median_of, panicked, processor_time, sum_of};
use collect_role::datagram::{AggregatePorts, each_chunk};
use experiments::figures::failed;
use terminal::CliError;

/// Number of flows in the reports.
const FLOWS: u32 = 10_000;
/// Bytes of each report's payload.
const PAYLOAD: usize = 220;
const PORT: u16 = 32766;
/// Interval of the collector's timers, ns.
const TICK: u64 = 20_000_000;
/// File with the CPU time of the calling thread.
pub(super) const THREAD: &str = "/proc/thread-self/stat";
/// Cores of the generator (with the kernel's work for each frame) and of the reader.
const CORES: [usize; 2] = [0, 1];

pub(super) fn run(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let rx_path = name.strip_prefix("rx-").and_then(RxPath::from_name);
    let rx_path =
        rx_path.ok_or_else(|| CliError::new(format!("`{name}` is not the name of a receive path")))?;
    let testbed = Testbed::new()?;
    let mut collecting = Collecting::new(testbed.case);
    let mut runs = Vec::new();
    for run in 0..plan.warm_ups() + plan.runs {
        let discarded = testbed.measure(rx_path, plan, &mut Discarding::default())?;
        let collected = testbed.measure(rx_path, plan, &mut collecting)?;
        // A UDP socket on the same traffic, for comparison.
        let socket = if rx_path == RxPath::Udp {
            collected
        } else {
            testbed.measure(RxPath::Udp, plan, &mut collecting)?
        };
        // After the warm-up, every flow is known to the collector.
        if run >= plan.warm_ups() {
            runs.push([discarded, collected, socket]);
        }
    }

    let included = "everything from the link to the collector's state: receiving, decoding, thresholds, loss accounting, rollups";
    let conditions = Conditions::of("one report received and handled", included)
        .text("rx_path", rx_path.name())
        .text("link", "veth between two network namespaces, one queue")
        .text(
            "sender",
            "frames generated in the kernel at maximum rate, not on the reader's core",
        )
        .text(
            "baseline",
            "the same receive path, read by a loop that discards the frames, in the same run",
        )
        .ratio(
            "baseline_per_s",
            median_of(&runs, |[discarded, ..]| discarded.per_second()).round(),
        )
        .ratio(
            "of_baseline",
            median_of(&runs, |[discarded, collected, _]| {
                collected.per_second() / discarded.per_second()
            }),
        )
        .ratio(
            "udp_per_s",
            median_of(&runs, |[.., socket]| socket.per_second()).round(),
        )
        .ratio(
            "of_udp",
            median_of(&runs, |[_, collected, socket]| {
                collected.per_second() / socket.per_second()
            }),
        )
        .ratio(
            "user_ns",
            median_of(&runs, |[_, collected, _]| collected.user_ns()),
        )
        .ratio(
            "system_ns",
            median_of(&runs, |[_, collected, _]| collected.system_ns()),
        )
        .number("payload_bytes", PAYLOAD)
        .number("flows", FLOWS)
        .number("sent", sum_of(&runs, |[_, collected, _]| collected.sent))
        .number("received", sum_of(&runs, |[_, collected, _]| collected.received))
        .number("dropped", sum_of(&runs, |[_, collected, _]| collected.dropped))
        .number(
            "unaccounted",
            sum_of(&runs, |[_, collected, _]| {
                collected.sent.abs_diff(collected.received + collected.dropped)
            }),
        );
    let times = runs
        .iter()
        .map(|[_, collected, _]| 1e9 / collected.per_second())
        .collect();
    Ok(Outcome::new(name, times, conditions))
}

/// Counters of one run.
#[derive(Clone, Copy, Default, Debug)]
struct Measurement {
    sent: u64,
    received: u64,
    /// Drops at all stages, for all reasons.
    dropped: u64,
    /// Time from the first burst to the last, ns.
    elapsed: u64,
    /// CPU time of the reader's thread: seconds in user and in system mode.
    cpu_time: (f64, f64),
}

impl Measurement {
    fn per_second(&self) -> f64 {
        self.received as f64 * 1e9 / self.elapsed.max(1) as f64
    }

    fn user_ns(&self) -> f64 {
        self.cpu_time.0 * 1e9 / self.received.max(1) as f64
    }

    fn system_ns(&self) -> f64 {
        self.cpu_time.1 * 1e9 / self.received.max(1) as f64
    }
}

/// A consumer of received packets.
trait Reader: Send {
    fn process(&mut self, packets: &[Packet<'_>]);
    /// Called after each burst.
    fn tick(&mut self, _now: u64) {}
}

/// Reads one byte of each packet and discards it.
#[derive(Default)]
struct Discarding(u64);

impl Reader for Discarding {
    fn process(&mut self, packets: &[Packet<'_>]) {
        self.0 += packets
            .iter()
            .map(|packet| u64::from(packet.data.first().copied().unwrap_or(0)))
            .sum::<u64>();
    }
}

/// Passes received packets to the whole collector.
struct Collecting {
    aggregate_ports: AggregatePorts,
    collector: Collector,
    batch: Batch,
    ticked: u64,
}

impl Collecting {
    fn new(case: Case) -> Self {
        Self {
            aggregate_ports: AggregatePorts::default(),
            collector: case.collector(),
            batch: Batch::with_capacity(8192),
            ticked: 0,
        }
    }
}

impl Reader for Collecting {
    fn process(&mut self, packets: &[Packet<'_>]) {
        let Self {
            aggregate_ports,
            collector,
            batch,
            ..
        } = self;
        each_chunk(packets, 0, aggregate_ports, |_, chunk| {
            collector.handle(chunk, batch)
        });
        // `hopwise run` passes the batch to the store's queue here.
        if self.batch.len() > 4096 {
            self.batch.clear();
        }
    }

    fn tick(&mut self, now: u64) {
        if now.saturating_sub(self.ticked) >= TICK {
            self.ticked = now;
            self.collector.tick(now, &mut self.batch);
        }
    }
}

/// Two network namespaces with a veth link, and the frame that the generator sends.
struct Testbed {
    pair: Pair,
    case: Case,
    frame: Vec<u8>,
}

impl Testbed {
    fn new() -> Result<Self, Failure> {
        let pair = Pair::create().map_err(skipped)?;
        // A veth device without XDP accepts the generator's frames only with NAPI, which GRO enables.
        pair.far
            .run(|| device::set_offload(Pair::DEVICE, "rx-gro", true))
            .and_then(|set| set)
            .map_err(skipped)?;
        let case = Case {
            name: "rx",
            flows: FLOWS,
            hops: 6,
            bitmap: 0xfc00,
            ..CASES[0]
        };
        let mut frame = case.feed().whole().next().map(<[u8]>::to_vec).unwrap_or_default();
        address(&mut frame);
        Ok(Self { pair, case, frame })
    }

    fn measure(&self, rx_path: RxPath, plan: &Plan, reader: &mut dyn Reader) -> Result<Measurement, Failure> {
        let options = receive::Options {
            ports: vec![PORT],
            best: rx_path,
            worst: rx_path,
            program: Some(xdp::STEER),
            ..receive::Options::default()
        };
        let opened = self
            .pair
            .far
            .run(|| receive::open(Pair::DEVICE, &options))
            .map_err(failed)?;
        let mut opened = opened.map_err(|refused| Failure::Skipped(refused.to_string()))?;
        // The generator counts up the inner source port (offset 90) and the sequence number of the report (offset 50).
        let ports = word(&self.frame, 90) & 0xffff_0000;
        let words = [
            Word {
                at: 90,
                base: ports,
                each: 1,
                of: FLOWS,
            },
            Word {
                at: 50,
                base: 0,
                each: 1,
                of: u32::MAX,
            },
        ];
        let generator = self
            .pair
            .near
            .run(|| LiveFrames::open(xdp::BENCH, Pair::DEVICE, &words, None))
            .and_then(|opened| opened)
            .map_err(failed)?;
        self.run(&mut opened, &generator, plan.each, reader)
    }

    fn run(
        &self,
        opened: &mut OpenInterface,
        generator: &LiveFrames,
        span: Duration,
        reader: &mut dyn Reader,
    ) -> Result<Measurement, Failure> {
        let stop = AtomicBool::new(false);
        let done = AtomicBool::new(false);
        // One queue means one source; with UDP sockets the first source is the IPv4 one.
        let source = opened
            .sources
            .first_mut()
            .ok_or_else(|| CliError::new("the interface has no queue"))?;
        let (sent, measurement) = thread::scope(|scope| {
            let receiving = scope.spawn(|| read(source.as_mut(), reader, &done));
            let sending = scope.spawn(|| {
                self.pair.near.run(|| {
                    // Without pinning, the rates are lower but still valid.
                    let _ = time::pin(CORES[0]);
                    generator.send(&self.frame, u64::MAX, &stop)
                })
            });
            thread::sleep(span);
            // Relaxed: no other data depends on the flag; joining orders the rest.
            stop.store(true, Ordering::Relaxed);
            let sent = sending.join();
            // Release pairs with the acquire in the reader: when it sees the flag, everything that was sent is in the ring.
            done.store(true, Ordering::Release);
            (sent, receiving.join())
        });
        let sent = sent.map_err(panicked)?.and_then(|sent| sent).map_err(failed)?;
        let mut measurement = measurement.map_err(panicked)?.map_err(failed)?;
        let stats = opened
            .sources
            .first_mut()
            .map(|source| source.stats())
            .unwrap_or_default();
        let counters = opened.watch.counters().map_err(failed)?;
        measurement.sent = sent;
        measurement.received = stats.datagrams;
        measurement.dropped = stats.lost() + counters.device_dropped;
        Ok(measurement)
    }
}

/// Reads until `done` is set and no packet is left.
fn read(
    source: &mut dyn Source,
    reader: &mut dyn Reader,
    done: &AtomicBool,
) -> Result<Measurement, nic::Error> {
    let _ = time::pin(CORES[1]);
    let mut first = 0;
    let mut last = 0;
    let mut before = (0.0, 0.0);
    loop {
        let ending = done.load(Ordering::Acquire);
        let count = source.receive(if ending { 0 } else { 20 }, &mut |packets| {
            reader.process(packets)
        })?;
        if count > 0 {
            last = time::monotonic();
            if first == 0 {
                (first, before) = (last, processor_time(THREAD));
            }
            reader.tick(time::now());
        } else if ending {
            let now = processor_time(THREAD);
            let cpu_time = (now.0 - before.0, now.1 - before.1);
            return Ok(Measurement {
                elapsed: last - first,
                cpu_time,
                ..Measurement::default()
            });
        }
    }
}

/// Writes the link's addresses and ports into a frame of the workload, and sets the payload length to [`PAYLOAD`].
fn address(frame: &mut Vec<u8>) {
    frame.resize(42 + PAYLOAD, 0);
    let total = (PAYLOAD + 28) as u16;
    let udp = (PAYLOAD + 8) as u16;
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[24..34].copy_from_slice(&[0, 0, 10, 97, 0, 1, 10, 97, 0, 2]);
    frame[36..38].copy_from_slice(&PORT.to_be_bytes());
    frame[38..40].copy_from_slice(&udp.to_be_bytes());
    // No UDP checksum: the generator changes the payload.
    frame[40..42].fill(0);
    let checksum = wire::checksum::of(&frame[14..34]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
}

fn word(frame: &[u8], at: usize) -> u32 {
    frame
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn skipped(error: nic::Error) -> Failure {
    Failure::needs("network namespaces and BPF", error)
}
