//! Cases `xdp-detect-…`: cost per report of the XDP program that detects changes in the kernel, by `BPF_PROG_TEST_RUN`.
//!
//! A test run passes the same frame to the program each time, so the program turns it into another report before detection
//! (`xdp/src/detect/detect_cost.bpf.c`). The time of this change alone is measured separately and subtracted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use detect::{Detection, Thresholds};
use nic::bpf::{Object, Ring};
use nic::time;
use testkit::workload::collector::{self as traffic, coprime};
use wire::{Dialect, Profile};
use xdp::{Sizes, Tables, Units};

use super::harness::{Conditions, Failure, Outcome, Plan, panicked, workload};
use experiments::figures::failed;
use terminal::CliError;

/// The records of a report, as the program that generates reports writes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stack {
    /// Number of records to write; 0 keeps those of the frame.
    hops: u32,
    /// Items in a record, of four bytes each.
    words: u32,
    /// The ports are the second item. The node ID is the first one; hop latency and queue follow.
    has_ports: bool,
}

impl Stack {
    /// Returns the records of a case. Those of a single hop stay as they are, because they lack latency and queue.
    pub(super) fn of(case: &traffic::Case) -> Self {
        Self {
            hops: if case.hops == 1 { 0 } else { case.hops.into() },
            words: case.bitmap.count_ones(),
            has_ports: case.bitmap & 0x4000 != 0,
        }
    }
}

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    flows: u32,
    /// One of this many reports is an event; 0 for none.
    events: u32,
}

const CASES: [Case; 3] = [
    case("xdp-detect-1k", 1000, 0),
    case("xdp-detect-100k", 100_000, 0),
    case("xdp-detect-1k-event", 1000, 1),
];

const fn case(name: &'static str, flows: u32, events: u32) -> Case {
    Case { name, flows, events }
}

/// The records in a report of the cases.
const STACK: Stack = Stack {
    hops: 6,
    words: 8,
    has_ports: true,
};
/// Upper bound of the variation of values, below every threshold.
const JITTER: u32 = 512;
/// Minimum number of reports per run, because each run has a fixed overhead of some milliseconds.
const MIN_REPORTS: u32 = 200_000;
/// Interval between two reads of the ring, which has room for about forty times the events of one interval.
const PAUSE: Duration = Duration::from_micros(200);

pub(super) fn detect(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let case = workload(CASES, name, |case| case.name)?;
    let reports_of_one = traffic::Case {
        flows: 1,
        ..traffic::CASES[0]
    };
    // The program turns this frame into the reports of all flows.
    let frame = reports_of_one.feed().whole().next().unwrap_or_default().to_vec();
    // Estimates 120 ns per report.
    let reports = u32::try_from(plan.each.as_nanos() / 120)
        .unwrap_or(u32::MAX)
        .max(MIN_REPORTS);
    let mut times = Vec::new();
    let mut changes = Vec::new();
    let mut events = 0;
    let mut full = 0;
    for _ in 0..plan.runs {
        // The kernel chooses the addresses of the tables, and they affect the result, so each run creates new tables.
        let mut setup = Setup::new(&case, STACK, &frame)?;
        let before = setup.tables.counters().map_err(failed)?;
        let all = run(
            &setup.object,
            "hopwise_cost",
            &frame,
            reports,
            Some(&mut setup.ring),
        )?;
        let after = setup.tables.counters().map_err(failed)?;
        let alone = run(&setup.object, "hopwise_cost_only", &frame, reports, None)?;
        changes.push(alone);
        times.push(all - alone);
        events += after.to_user - before.to_user;
        full += after.ring_full - before.ring_full;
    }
    let all_reports = f64::from(reports) * f64::from(plan.runs);
    let included = "XDP program from the frame to the verdict: parsing, state, thresholds, sequence numbers; event: the frame in the ring, a reader on another core";
    let conditions = Conditions::of("one report, by BPF_PROG_TEST_RUN", included)
        .number("flows", case.flows)
        .number("hops", STACK.hops)
        .number("items_per_hop", STACK.words)
        .number("frame_bytes", frame.len())
        .ratio("events_per_report", events as f64 / all_reports)
        .ratio("ring_full_per_report", full as f64 / all_reports)
        .ratio("subtracted_ns", super::harness::median(changes));
    Ok(Outcome::new(name, times, conditions))
}

/// A loaded program whose tables already contain all flows.
pub(super) struct Setup {
    /// The BPF object; its other programs only generate reports.
    pub(super) object: Object,
    tables: Tables,
    ring: Ring,
}

impl Setup {
    fn new(case: &Case, stack: Stack, frame: &[u8]) -> Result<Self, Failure> {
        let sizes = Sizes {
            flows: case.flows * 5 / 4,
            queues: 1024,
            links: 1024,
            streams: 64,
            ring: 8 << 20,
            seed: 7,
        };
        let mut options = sizes.options();
        options
            .constants
            .extend(constants(case.flows, stack, case.events));
        let mut object = Object::load(xdp::COST, &options).map_err(not_loaded)?;
        let tables = Tables::open(&object, sizes).map_err(failed)?;
        prepare(&tables)?;
        let mut ring = object.ring("to_user").map_err(failed)?;
        // Adds every flow to the tables, in steps that fit the ring.
        for _ in 0..case.flows.div_ceil(5000) * 2 + 2 {
            object.test_run("hopwise_cost", frame, 5000).map_err(failed)?;
            ring.consume(usize::MAX, |_| {});
        }
        Ok(Self { object, tables, ring })
    }

    /// Loads the program for reports like `frame` of `flows` flows, whose values vary in `stack` without an event.
    pub(super) fn unchanging(flows: u32, stack: Stack, frame: &[u8]) -> Result<Self, Failure> {
        let case = Case {
            name: "",
            flows,
            events: 0,
        };
        Self::new(&case, stack, frame)
    }

    /// Returns the time per report of hopwise's program (ns), and the share of reports that it passes to user space.
    pub(super) fn detect(&self, frame: &[u8], reports: u32) -> Result<(f64, f64), Failure> {
        let before = self.tables.counters().map_err(failed)?;
        let all = run(&self.object, "hopwise_cost", frame, reports, None)?;
        let after = self.tables.counters().map_err(failed)?;
        let changing = run(&self.object, "hopwise_cost_only", frame, reports, None)?;
        let passed = after.to_user + after.ring_full - before.to_user - before.ring_full;
        Ok((all - changing, passed as f64 / f64::from(reports)))
    }
}

/// Returns the program's constants, which determine the generated reports. One of `changes` reports is an event; 0 for none.
fn constants(flows: u32, stack: Stack, changes: u32) -> [(&'static str, u32); 7] {
    [
        ("cost_flows", flows),
        // A coprime stride visits all flows and defeats prefetching.
        ("cost_stride", coprime(flows)),
        ("cost_jitter", JITTER),
        ("cost_hops", stack.hops),
        ("cost_words", stack.words),
        ("cost_ports", stack.has_ports.into()),
        ("cost_change", changes),
    ]
}

fn not_loaded(error: nic::Error) -> Failure {
    Failure::needs("permission to load BPF programs", error)
}

/// Loads the programs that generate reports of many flows from one frame, for use in front of another project's program.
pub(super) fn reports(flows: u32, stack: Stack, changes: u32) -> Result<Object, Failure> {
    let sizes = Sizes {
        flows: 1024,
        queues: 1024,
        links: 1024,
        streams: 64,
        ring: 1 << 20,
        seed: 7,
    };
    let mut options = sizes.options();
    options.constants.extend(constants(flows, stack, changes));
    Object::load(xdp::COST, &options).map_err(not_loaded)
}

fn prepare(tables: &Tables) -> Result<(), CliError> {
    tables.set_ports(&[(32_766, 0)]);
    tables.set_sequence(true);
    tables
        .set_profiles((&Profile::new(Dialect::IntCollectorGen), Units::default()), &[])
        .map_err(failed)?;
    let thresholds = Thresholds::new([0, 100_000, 10_000, 1000, 1000, 100_000], Vec::new());
    let thresholds = thresholds.map_err(failed)?;
    tables
        .set_detection(&Detection {
            thresholds,
            ..Detection::default()
        })
        .map(drop)
        .map_err(failed)
}

/// Runs a program `reports` times, and returns the time of one run in ns. The threads are new ones, because later cases must
/// not be pinned. With `ring`, a reader on another core reads the events.
pub(super) fn run(
    object: &Object,
    program: &str,
    frame: &[u8],
    reports: u32,
    ring: Option<&mut Ring>,
) -> Result<f64, CliError> {
    let stop = AtomicBool::new(false);
    let ran = thread::scope(|scope| {
        if let Some(ring) = ring {
            let stop = &stop;
            scope.spawn(move || {
                // Without pinning, the times are longer but still valid.
                let _ = time::pin(1);
                // Relaxed: no other data depends on the flag.
                while !stop.load(Ordering::Relaxed) {
                    if ring.consume(4096, |_| {}) < 64 {
                        thread::sleep(PAUSE);
                    }
                }
                ring.consume(usize::MAX, |_| {});
            });
        }
        let running = scope.spawn(|| {
            let _ = time::pin(0);
            object.test_run(program, frame, reports)
        });
        let ran = running.join();
        stop.store(true, Ordering::Relaxed);
        ran
    });
    let ran = ran.map_err(panicked)?;
    ran.map(|run| f64::from(run.duration_ns)).map_err(failed)
}
