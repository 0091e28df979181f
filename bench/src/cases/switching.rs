//! Case `switch-live`: forwarding rate of hopwise's switch on one core. Frames arrive over one veth link and leave over
//! another. The baseline is a loop that only copies frames from one port to the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nic::frames::{self, Options, PollFds};
use nic::netns::Namespace;
use nic::time;

use super::harness::{Conditions, Failure, Outcome, Plan, median_of, panicked, sum_of};
use config::Settings;
use experiments::figures::{failed, packets};
use experiments::machine::on_core;
use switch_role::role::Forwarder as Switch;
use terminal::CliError;

/// Bytes of the UDP payload.
const PAYLOAD: usize = 200;
const FLOWS: u16 = 256;
/// Cores of the sender (with the kernel's work until a frame is in the switch's ring) and of the switch.
const CORES: [usize; 2] = [0, 1];

pub(super) fn live(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let testbed = Testbed::new().map_err(|error| Failure::needs("network namespaces", error))?;
    let mut runs = Vec::new();
    for run in 0..plan.warm_ups() + plan.runs {
        let copied = testbed.measure(plan, &Setup::CopyLoop)?;
        let routed = testbed.measure(plan, &Setup::Switch(""))?;
        let int = testbed.measure(
            plan,
            &Setup::Switch("rate = \"10Gbit/s\"\ndepth = \"1MB\"\n[[switch.watch]]\n"),
        )?;
        if run >= plan.warm_ups() {
            runs.push([copied, routed, int]);
        }
    }
    let [copied, routed, switched] = [0, 1, 2].map(|setup| median_of(&runs, |run| run[setup].per_second()));
    let core_ns = [0, 1, 2].map(|setup| median_of(&runs, |run| run[setup].core_ns()).round());
    let included = "from one veth to the other: receiving, forwarding, an egress queue with a rate, insertion of INT-MD, sending";
    let conditions = Conditions::of("one frame switched", included)
        .text("link", "veth between network namespaces, one queue")
        .text("sender", "AF_PACKET at maximum rate, not on the switch's core")
        .text(
            "baseline",
            "the same ports, and a loop that copies each frame from one to the other",
        )
        .ratio("baseline_per_s", copied.round())
        .ratio("of_baseline", switched / copied)
        .ratio("without_int_per_s", routed.round())
        .ratio("core_ns", core_ns[2])
        .ratio("baseline_core_ns", core_ns[0])
        .ratio("without_int_core_ns", core_ns[1])
        .number("payload_bytes", PAYLOAD)
        .number("flows", FLOWS)
        .number("received", sum_of(&runs, |[.., int]| int.received))
        .number("sent", sum_of(&runs, |[.., int]| int.sent))
        .number("dropped", sum_of(&runs, |[.., int]| int.dropped))
        .number("unaccounted", sum_of(&runs, |[.., int]| int.unaccounted))
        .number("ring_full", sum_of(&runs, |[.., int]| int.ring_full));
    let times = runs
        .iter()
        .map(|run| 1e9 / run[2].per_second().max(1.0))
        .collect();
    Ok(Outcome::new(name, times, conditions))
}

/// The configuration under test, which forwards frames between the ports.
enum Setup {
    CopyLoop,
    /// The switch, with these additional configuration lines.
    Switch(&'static str),
}

/// Counters of one run.
#[derive(Clone, Copy, Debug, Default)]
struct Measurement {
    received: u64,
    sent: u64,
    dropped: u64,
    unaccounted: u64,
    ring_full: u64,
    /// Time of the run, ns.
    elapsed: u64,
    /// CPU time of the switch's thread, ns.
    core: u64,
}

impl Measurement {
    fn per_second(&self) -> f64 {
        self.sent as f64 * 1e9 / self.elapsed.max(1) as f64
    }

    /// Returns the CPU time per frame in ns, which is meaningful even on a busy machine.
    fn core_ns(&self) -> f64 {
        self.core as f64 / self.sent.max(1) as f64
    }
}

/// Network namespaces of a sender, a switch and a receiver.
struct Testbed {
    near: Namespace,
    switch: Namespace,
    _far: Namespace,
    frames: Vec<Vec<u8>>,
}

impl Testbed {
    fn new() -> Result<Self, nic::Error> {
        let near = Namespace::create()?;
        let switch = Namespace::create()?;
        let far = Namespace::create()?;
        for (side, name) in [(&near, "left"), (&far, "right")] {
            let peer = ["peer", "name", name, "mtu", "2000", "netns", switch.name()];
            side.ip(&[&["link", "add", "eth0", "mtu", "2000", "type", "veth"], &peer[..]].concat())?;
            // The kernel must not send frames of its own.
            side.run(|| frames::silence("eth0"))?;
            switch.run(|| frames::silence(name))?;
            side.ip(&["link", "set", "eth0", "up"])?;
            switch.ip(&["link", "set", name, "up"])?;
        }
        Ok(Self {
            near,
            switch,
            _far: far,
            frames: (0..FLOWS).map(frame).collect(),
        })
    }

    fn measure(&self, plan: &Plan, setup: &Setup) -> Result<Measurement, Failure> {
        let stop = AtomicBool::new(false);
        let done = AtomicBool::new(false);
        let mut forwarder: Box<dyn Forwarder> = match setup {
            Setup::CopyLoop => Box::new(CopyLoop::open(&self.switch)?),
            Setup::Switch(more) => Box::new(SwitchUnderTest::open(&self.switch, more)?),
        };
        let near = self.near.run(|| {
            frames::Port::open(
                "eth0",
                &Options {
                    bypass: true,
                    ..Options::default()
                },
            )
        });
        let mut near = near.and_then(|opened| opened).map_err(failed)?;
        let measured = thread::scope(|scope| {
            let switching = scope.spawn(|| {
                let _ = time::pin(CORES[1]);
                time::wake_precisely();
                on_core(|| forwarder.run(&done)).1
            });
            let sending = scope.spawn(|| {
                // Without pinning, the rates are lower but still valid.
                let _ = time::pin(CORES[0]);
                // Relaxed: no other data depends on the flag.
                while !stop.load(Ordering::Relaxed) {
                    near.send(&self.frames);
                }
            });
            let start = time::monotonic();
            thread::sleep(plan.each);
            stop.store(true, Ordering::Relaxed);
            let sent = sending.join();
            done.store(true, Ordering::Release);
            let elapsed = time::monotonic() - start;
            sent.and(switching.join()).map(|core| (elapsed, core))
        });
        let (elapsed, core) = measured.map_err(panicked)?;
        Ok(Measurement {
            elapsed,
            core,
            ..forwarder.measurement()
        })
    }
}

trait Forwarder: Send {
    /// Runs until `done` is set and no frame is left.
    fn run(&mut self, done: &AtomicBool);
    fn measurement(&mut self) -> Measurement;
}

/// A loop that copies each frame from one port to the other.
struct CopyLoop {
    ports: [frames::Port; 2],
    staged: Vec<Vec<u8>>,
}

impl CopyLoop {
    fn open(namespace: &Namespace) -> Result<Self, CliError> {
        let options = Options {
            frame_len: 2064,
            ..Options::default()
        };
        let [left, right] = ["left", "right"].map(|name| {
            let opened = namespace.run(|| frames::Port::open(name, &options));
            opened.and_then(|opened| opened).map_err(failed)
        });
        Ok(Self {
            ports: [left?, right?],
            staged: vec![Vec::new(); 64],
        })
    }
}

impl Forwarder for CopyLoop {
    fn run(&mut self, done: &AtomicBool) {
        use std::os::fd::AsFd;
        let (mut poll_fds, [left, right]) = (PollFds::default(), &mut self.ports);
        loop {
            let ending = done.load(Ordering::Acquire);
            let mut used = 0;
            let staged = &mut self.staged;
            left.receive(64, &mut |arrived| {
                staged[used].clear();
                staged[used].extend_from_slice(arrived.data);
                used += 1;
            });
            right.send(&staged[..used]);
            if used == 0 {
                if ending {
                    return;
                }
                let _ = frames::wait([left.as_fd()].into_iter(), &mut poll_fds, POLL_TIMEOUT);
            }
        }
    }

    fn measurement(&mut self) -> Measurement {
        let [left, right] = &mut self.ports;
        let left = left.stats();
        let right = right.stats();
        Measurement {
            received: left.received,
            sent: right.sent,
            dropped: right.failed,
            unaccounted: left.received.abs_diff(right.sent + right.failed),
            ring_full: left.ring_full,
            ..Measurement::default()
        }
    }
}

struct SwitchUnderTest(Switch);

impl SwitchUnderTest {
    fn open(namespace: &Namespace, more: &str) -> Result<Self, CliError> {
        let config = format!(
            "[switch]\nnode = 1\n[[switch.routes]]\nto = \"10.0.2.0/24\"\nport = 2\n\
             [[switch.ports]]\nnumber = 1\ninterface = \"left\"\nedge = true\n\
             [[switch.ports]]\nnumber = 2\ninterface = \"right\"\n{more}"
        );
        let settings = Settings::parse(&config, "the switch").map_err(failed)?;
        let settings = settings.switch.ok_or_else(|| CliError::new("no switch"))?;
        let opened = namespace.run(|| Switch::open(settings, None)).map_err(failed)?;
        Ok(Self(opened?))
    }
}

impl Forwarder for SwitchUnderTest {
    fn run(&mut self, done: &AtomicBool) {
        let mut poll_fds = PollFds::default();
        loop {
            let ending = done.load(Ordering::Acquire);
            if !self.0.poll() && !self.0.sleep(None, &mut poll_fds) && ending && self.0.is_empty() {
                return;
            }
        }
    }

    fn measurement(&mut self) -> Measurement {
        let (stats, queued) = self.0.totals();
        let received = stats.received();
        let sent = stats.sent();
        let dropped = stats.drops();
        let unaccounted = (received + stats.originated).abs_diff(sent + stats.consumed + dropped + queued);
        Measurement {
            received,
            sent,
            dropped,
            unaccounted,
            ring_full: self.0.ring_full(),
            ..Measurement::default()
        }
    }
}

/// Returns a UDP packet of one flow, addressed to the MAC of port 1 of the switch (node 1).
fn frame(flow: u16) -> Vec<u8> {
    let mac = dataplane::router::Port::mac_for(1, 1);
    let source = ([10, 0, 1, 5], 1000 + flow);
    packets::udp(mac, source, ([10, 0, 2, 6], 2000), PAYLOAD)
}

/// Maximum time to wait for a frame.
const POLL_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(5);
