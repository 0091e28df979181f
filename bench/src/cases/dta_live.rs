//! Case `dta-live`: DTA end to end over veth, with each stage in a network namespace.
//!
//! ```text
//! reporter ── UDP ──► translator ── RoCEv2 over AF_PACKET ──► responder ──► Key-Write store
//! core 0              core 1                                  core 1
//! ```

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use experiments::figures::reports::{Reports, key_write_store};
use nic::frames::{self, Options, PollFds};
use nic::netns::{Namespace, Pair};
use nic::time;
use nic::udp::{Burst, Receiver, Sender};
use wire::dta::REPORT_PORT;
use wire::roce::Path;

use super::harness::{Conditions, Failure, Outcome, Plan, panicked, processor_time, sum_of};
use super::rx::THREAD;
use experiments::figures::pipeline::{CollectorHalf, Pipeline, TranslatorHalf};
use experiments::figures::{failed, unwritten};
use terminal::CliError;

/// Slots of the store: 32 bytes each for a path of five nodes, 128 MiB together.
const SLOTS: u64 = 1 << 22;
const PATH: usize = 20;
/// Devices at both ends of the link from the translator to the collector, and their MAC addresses.
const OUT: &str = "out";
const IN: &str = "in";
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 3], [2, 0, 0, 0, 0, 4]];
/// Maximum time to wait for a frame.
const POLL_TIMEOUT: Duration = Duration::from_millis(5);
/// Cores: one for the reporter, which generates the load, and one for translator and collector.
const CORES: [usize; 2] = [0, 1];

/// Three network namespaces with links between them.
struct Testbed {
    /// The namespaces of reporter and translator.
    pair: Pair,
    collector: Namespace,
}

impl Testbed {
    fn new() -> Result<Self, nic::Error> {
        let pair = Pair::create()?;
        let collector = Namespace::create()?;
        let [out, inside] = MACS.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
        let near = ["link", "add", OUT, "address", &out, "mtu", "4400", "type", "veth"];
        let far = [
            "peer",
            "name",
            IN,
            "address",
            &inside,
            "mtu",
            "4400",
            "netns",
            collector.name(),
        ];
        pair.far.ip(&[&near[..], &far].concat())?;
        for (side, device) in [(&pair.far, OUT), (&collector, IN)] {
            // The kernel must not send frames of its own, such as neighbour discovery.
            side.run(|| frames::silence(device))?;
            side.ip(&["link", "set", device, "up"])?;
        }
        Ok(Self { pair, collector })
    }

    /// Returns the frames dropped so far on the link from the reporter, and on the link to the collector.
    fn link_drops(&self) -> Result<[u64; 2], nic::Error> {
        let out = self.pair.far.run(|| drops(OUT))?;
        let inside = self.collector.run(|| drops(IN))?;
        Ok([self.pair.link_drops()?, out + inside])
    }
}

/// Returns the frames that a device of this thread's namespace has dropped, in both directions.
fn drops(device: &str) -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let line = table
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'));
    let fields = line
        .unwrap_or("")
        .split_whitespace()
        .filter_map(|text| text.parse::<u64>().ok());
    // Eight columns for receive, eight for transmit; the fourth of each is `drop`.
    fields.skip(3).step_by(8).sum()
}

/// Counters of one run.
#[derive(Clone, Copy, Default, Debug)]
struct Measurement {
    reported: u64,
    received: u64,
    socket_drops: u64,
    /// Frames dropped on the link from the reporter, and on the link to the collector.
    link_drops: [u64; 2],
    frames: u64,
    tx_dropped: u64,
    ring_full: u64,
    written: u64,
    refused: u64,
    /// CPU time of reporter, translator and collector: seconds in user and in system mode.
    cpu_time: [(f64, f64); 3],
    seconds: f64,
}

impl Measurement {
    /// Returns the reports per second that are stored with both copies.
    fn per_second(&self) -> f64 {
        self.written as f64 / 2.0 / self.seconds
    }
}

pub(super) fn live(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let testbed = Testbed::new().map_err(|error| Failure::needs("network namespaces", error))?;
    let mut runs = Vec::new();
    for run in 0..=plan.runs {
        let measurement = measure(&testbed, plan)?;
        // The first run is the warm-up.
        if run > 0 {
            runs.push(measurement);
        }
    }
    let reports = (sum_of(&runs, |run| run.written) as f64 / 2.0).max(1.0);
    // User and system time of reporter, translator and collector, ns per report.
    let [reporter, translator, collector] = [0, 1, 2].map(|role| {
        let user: f64 = runs.iter().map(|run| run.cpu_time[role].0).sum();
        let system: f64 = runs.iter().map(|run| run.cpu_time[role].1).sum();
        (user * 1e9 / reports, system * 1e9 / reports)
    });
    let kernel = translator.1 + collector.1;
    let all = translator.0 + collector.0 + kernel;
    // Every report and every frame must be counted somewhere; the difference is published.
    let unaccounted = sum_of(&runs, |run| {
        let sent = run.received + run.socket_drops + run.link_drops[0];
        let delivered = run.tx_dropped + run.link_drops[1] + run.ring_full + run.written + run.refused;
        run.reported.abs_diff(sent) + run.frames.abs_diff(delivered)
    });
    let included =
        "reporter to translator by a UDP socket, translator to collector by AF_PACKET, two copies in memory";
    let conditions = Conditions::of("one Key-Write report of 20 bytes, N = 2, in memory", included)
        .text("link", "veth between network namespaces, one queue")
        .text(
            "sender",
            "sendmmsg at maximum rate, not on the core of translator and collector",
        )
        .ratio("kernel_share", kernel / all)
        .ratio("reporter_ns", reporter.0 + reporter.1)
        .ratio("translator_user_ns", translator.0)
        .ratio("translator_system_ns", translator.1)
        .ratio("collector_user_ns", collector.0)
        .ratio("collector_system_ns", collector.1)
        .number("reported", sum_of(&runs, |run| run.reported))
        .number("received", sum_of(&runs, |run| run.received))
        .number("socket_drops", sum_of(&runs, |run| run.socket_drops))
        .number("frames", sum_of(&runs, |run| run.frames))
        .number("tx_dropped", sum_of(&runs, |run| run.tx_dropped))
        .number("ring_full", sum_of(&runs, |run| run.ring_full))
        .number("written", sum_of(&runs, |run| run.written))
        .number("refused", sum_of(&runs, |run| run.refused))
        .number("link_drops", sum_of(&runs, |run| run.link_drops.iter().sum()))
        .number("unaccounted", unaccounted);
    let times = runs.iter().map(|run| 1e9 / run.per_second().max(1.0)).collect();
    Ok(Outcome::new(name, times, conditions))
}

fn measure(testbed: &Testbed, plan: &Plan) -> Result<Measurement, Failure> {
    let path = Path {
        source_mac: MACS[0],
        destination_mac: MACS[1],
        ..Path::new([10, 98, 0, 1].into(), [10, 98, 0, 2].into(), 0xc001)
    };
    let (sending, receiving) = Pipeline::with_path(path, &[key_write_store(SLOTS, PATH as u16)])?.split();
    let to = SocketAddr::new(Pair::FAR[0], REPORT_PORT);
    let socket = testbed
        .pair
        .far
        .run(|| Receiver::bind(to, &nic::udp::Options::default()));
    let socket = socket.and_then(|bound| bound).map_err(failed)?;
    let options = Options {
        bypass: true,
        ..Options::default()
    };
    let [out, inside] = [(&testbed.pair.far, OUT), (&testbed.collector, IN)].map(|(namespace, device)| {
        let opened = namespace.run(|| frames::Port::open(device, &options));
        opened.and_then(|opened| opened).map_err(failed)
    });
    let out = out?;
    let inside = inside?;
    let sender = testbed
        .pair
        .near
        .run(|| Sender::connect(SocketAddr::new(Pair::NEAR[0], 0), to));
    let sender = sender.and_then(|connected| connected).map_err(failed)?;
    let before = testbed.link_drops().map_err(failed)?;
    // Each stage ends when the stage before it has ended and its input is empty.
    let ends = [const { AtomicBool::new(false) }; 3];
    let begun = time::monotonic();
    let (reported, translated, collected) = thread::scope(|scope| {
        let reporter = scope.spawn(|| report(sender, &ends[0]));
        let translator = scope.spawn(|| translate(sending, socket, out, &ends[1]));
        let collector = scope.spawn(|| collect(receiving, inside, &ends[2]));
        thread::sleep(plan.each);

        // Release pairs with the acquire in each stage: a stage that sees its flag also sees everything that was sent before.
        ends[0].store(true, Ordering::Release);
        let reported = reporter.join().map_err(panicked);
        ends[1].store(true, Ordering::Release);
        let translated = translator.join().map_err(panicked);
        ends[2].store(true, Ordering::Release);
        let collected = collector.join().map_err(panicked);
        Ok::<_, CliError>((reported??, translated??, collected??))
    })?;
    let after = testbed.link_drops().map_err(failed)?;
    Ok(Measurement {
        link_drops: [after[0] - before[0], after[1] - before[1]],
        reported: reported.reported,
        received: translated.received,
        socket_drops: translated.socket_drops,
        frames: translated.frames,
        tx_dropped: translated.tx_dropped,
        cpu_time: [
            reported.cpu_time[0],
            translated.cpu_time[1],
            collected.cpu_time[2],
        ],
        seconds: (time::monotonic() - begun) as f64 / 1e9,
        ..collected
    })
}

/// Sends reports until `end` is set.
fn report(mut sender: Sender, end: &AtomicBool) -> Result<Measurement, CliError> {
    // Without pinning, the rates are lower but still valid.
    let _ = time::pin(CORES[0]);
    let mut reports = Reports::key_write(2, &[7; PATH]).map_err(unwritten)?;
    let mut measurement = Measurement::default();
    while !end.load(Ordering::Acquire) {
        let burst: Vec<&[u8]> = reports.burst().collect();
        measurement.reported += sender.send_burst(&burst).map_err(failed)? as u64;
    }
    measurement.cpu_time[0] = processor_time(THREAD);
    Ok(measurement)
}

/// Translates reports until `end` is set and the socket is empty.
fn translate(
    mut sending: TranslatorHalf,
    mut socket: Receiver,
    mut out: frames::Port,
    end: &AtomicBool,
) -> Result<Measurement, CliError> {
    let _ = time::pin(CORES[1]);
    let (mut burst, mut staged, mut measurement) =
        (Burst::default(), Vec::<Vec<u8>>::new(), Measurement::default());
    loop {
        let ending = end.load(Ordering::Acquire);
        let count = socket
            .recv(&mut burst, if ending { 0 } else { 20 })
            .map_err(failed)?;
        if count == 0 && ending {
            break;
        }
        sending.translate(burst.iter().take(count).map(|packet| packet.data));
        let frames = sending.frames().len();
        staged.resize_with(staged.len().max(frames), Vec::new);
        for (to, frame) in staged.iter_mut().zip(sending.frames()) {
            to.clear();
            to.extend_from_slice(frame);
        }
        sending.sent();
        measurement.frames += frames as u64;
        measurement.tx_dropped += out.send(&staged[..frames]) as u64;
    }
    measurement.received = sending.translated().reports.received;
    measurement.socket_drops = socket.stats().kernel_drops;
    measurement.cpu_time[1] = processor_time(THREAD);
    Ok(measurement)
}

/// Executes the writes until `end` is set and the ring is empty.
fn collect(
    mut receiving: CollectorHalf,
    mut port: frames::Port,
    end: &AtomicBool,
) -> Result<Measurement, CliError> {
    use std::os::fd::AsFd;
    let _ = time::pin(CORES[1]);
    let mut poll_fds = PollFds::default();
    let mut measurement = Measurement::default();
    loop {
        let ending = end.load(Ordering::Acquire);
        let count = port.receive(64, &mut |frame| receiving.receive([frame.data]));
        if count == 0 {
            if ending {
                break;
            }
            let _ = frames::wait([port.as_fd()].into_iter(), &mut poll_fds, POLL_TIMEOUT);
        }
    }
    let stats = receiving.responded();
    measurement.written = stats.messages;
    measurement.refused = stats.refused.iter().chain(&stats.dropped).sum();
    measurement.ring_full = port.stats().ring_full;
    measurement.cpu_time[2] = processor_time(THREAD);
    Ok(measurement)
}
