//! What detection in the kernel costs per report, by `BPF_PROG_TEST_RUN`:
//! `cargo run --release -p hopwise-bpf --example detect-bench [PART OF A NAME]`. Needs CAP_BPF and CAP_NET_ADMIN.
//!
//! The program changes the frame itself before it decides it (`src/cost.bpf.c`); what that takes is measured alone and
//! subtracted. Reports are those of `hopwise bench fastpath-6x8-1k`: Report 1.0, 6 hops of 8 items, 304 bytes.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bpf::{Sizes, Tables, Units};
use detect::{Detection, Thresholds};
use nic::bpf::{Object, Ring};
use wire::{Dialect, Profile};

/// Reports per measurement, and measurements of which the median is taken.
const REPORTS: u32 = 1_000_000;
const RUNS: usize = 7;

/// The reader sleeps so long when little is there, as who reads in bursts does; the ring holds some milliseconds.
const PAUSE: Duration = Duration::from_micros(200);

/// One case.
struct Case {
    name: &'static str,
    flows: u32,
    jitter: u32,
    /// One of so many reports is told; 0: none.
    change: u32,
    /// Behind a VLAN tag, and so decoded whole.
    tagged: bool,
}

const CASES: [Case; 7] = [
    Case { name: "6x8, 1,000 flows, the same values", flows: 1000, jitter: 0, change: 0, tagged: false },
    Case { name: "6x8, 1,000 flows, values that vary", flows: 1000, jitter: 512, change: 0, tagged: false },
    Case { name: "6x8, 10,000 flows", flows: 10_000, jitter: 512, change: 0, tagged: false },
    Case { name: "6x8, 100,000 flows", flows: 100_000, jitter: 512, change: 0, tagged: false },
    Case { name: "6x8, 1,000 flows, behind a VLAN tag", flows: 1000, jitter: 512, change: 0, tagged: true },
    Case { name: "6x8, 1,000 flows, one of 16 told", flows: 1000, jitter: 512, change: 16, tagged: false },
    Case { name: "6x8, 1,000 flows, each told", flows: 1000, jitter: 512, change: 1, tagged: false },
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{:<40} {:>8} {:>8} {:>8} {:>10}",
        "ns per report (medians)", "all", "changes", "net", "told"
    )?;
    let wanted = std::env::args().nth(1).unwrap_or_default();
    for case in CASES.iter().filter(|case| case.name.contains(&wanted)) {
        let [all, only, told] = measure(case)?;
        let net = all - only;
        writeln!(out, "{:<40} {all:>8.1} {only:>8.1} {net:>8.1} {told:>10.4}", case.name)?;
    }
    Ok(())
}

fn stride(flows: u32) -> u32 {
    let gcd = |mut a: u32, mut b: u32| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (flows * 618 / 1000..).find(|candidate| gcd(*candidate, flows) == 1).unwrap_or(1)
}

fn measure(case: &Case) -> Result<[f64; 3], Box<dyn Error>> {
    let sizes =
        Sizes { flows: case.flows * 5 / 4, queues: 1024, links: 1024, streams: 64, ring: 8 << 20, seed: 7 };
    let mut options = sizes.options();
    options.constants.extend([
        ("cost_flows", case.flows),
        ("cost_stride", stride(case.flows)),
        ("cost_jitter", case.jitter),
        ("cost_change", case.change),
        ("cost_tag", if case.tagged { 4 } else { 0 }),
    ]);
    let mut object = Object::load(bpf::COST, &options)?;
    let tables = Tables::open(&object, sizes)?;
    prepare(&tables)?;
    let mut ring = object.ring("told")?;
    let mut frame = frame();
    if case.tagged {
        frame.splice(12..12, [0x81, 0, 0, 5]);
    }
    // Every flow is made known, in steps for which the ring has room.
    for _ in 0..case.flows.div_ceil(5000) * 2 + 2 {
        object.test_run("hopwise_cost", &frame, 5000)?;
        ring.consume(usize::MAX, |_| {});
    }
    let before = tables.counters()?;
    let all = median(&object, "hopwise_cost", &frame, Some(&mut ring))?;
    let only = median(&object, "hopwise_cost_only", &frame, None)?;
    let after = tables.counters()?;
    let told = (after.told - before.told) as f64 / (f64::from(REPORTS) * RUNS as f64);
    let lost = (after.ring_full - before.ring_full) as f64 / (f64::from(REPORTS) * RUNS as f64);
    if case.change == 0 && told > 0.0 || lost > 0.0 {
        println!("  {}: {told:.4} of the reports were told, {lost:.4} found the ring full", case.name);
    }
    Ok([all, only, told])
}

fn prepare(tables: &Tables) -> Result<(), Box<dyn Error>> {
    tables.set_ports(&[(32_766, 0)]);
    tables.set_sequence(true);
    tables.set_profiles((&Profile::new(Dialect::IntCollectorGen), Units::default()), &[])?;
    let thresholds = Thresholds::new([0, 100_000, 10_000, 1000, 1000, 100_000], Vec::new())?;
    tables.set_detection(&Detection { thresholds, ..Detection::default() })?;
    Ok(())
}

/// The median of several runs; a reader takes what is told meanwhile.
fn median(
    object: &Object,
    program: &str,
    frame: &[u8],
    ring: Option<&mut Ring>,
) -> Result<f64, Box<dyn Error>> {
    let stop = AtomicBool::new(false);
    let read = AtomicU64::new(0);
    let mut times = std::thread::scope(|scope| {
        if let Some(ring) = ring {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let count = ring.consume(4096, |_| {}) as u64;
                    read.fetch_add(count, Ordering::Relaxed);
                    if count < 64 {
                        std::thread::sleep(PAUSE);
                    }
                }
            });
        }
        let times: Result<Vec<u32>, nic::Error> =
            (0..RUNS).map(|_| Ok(object.test_run(program, frame, REPORTS)?.duration_ns)).collect();
        stop.store(true, Ordering::Relaxed);
        times
    })?;
    times.sort_unstable();
    Ok(f64::from(times[RUNS / 2]))
}

/// A report 1.0 of 6 hops with all items of INT 1.0, as INTCollector's generator sends it; the program fills in the rest.
fn frame() -> Vec<u8> {
    let mut frame = Vec::new();
    packet(&mut frame, ([192, 0, 2, 1], [192, 0, 2, 100]), (40_000, 32_766), (0, 262));
    let report: [u32; 4] = [0x1400_0041, 600, 0, 0];
    report.iter().for_each(|word| frame.extend(word.to_be_bytes()));
    packet(&mut frame, ([10, 0, 0, 0], [10, 255, 0, 1]), (1024, 80), (0x17, 204));
    frame.extend([1, 0, 51, 0]);
    frame.extend([0x10, 0, 8, 8, 0xff, 0, 0, 0]);
    for hop in 0..6_u32 {
        let record: [u32; 8] = [0, 0, 0, 0, hop, hop + 1000, 0x0001_0002, 40_000];
        record.iter().for_each(|word| frame.extend(word.to_be_bytes()));
    }
    frame
}

/// Ethernet, IPv4 and UDP around `len` more bytes.
fn packet(
    out: &mut Vec<u8>,
    (src, dst): ([u8; 4], [u8; 4]),
    (sport, dport): (u16, u16),
    (dscp, len): (u8, u16),
) {
    out.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, dscp << 2]);
    out.extend((28 + len).to_be_bytes());
    out.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    out.extend(src);
    out.extend(dst);
    for number in [sport, dport, 8 + len, 0] {
        out.extend(number.to_be_bytes());
    }
}
