//! Benchmark of the DTA translator on one core, in process: report payloads go in; RDMA operations, or complete RoCEv2
//! frames with ICRC, come out.
//!
//! Usage: `cargo bench -p hopwise-translator --bench dta -- [CASE…]`. Prints the minimum and median of many short runs in
//! ns per report, and millions of reports and entries per second. For sketches it also prints GB of counters merged per
//! second, next to the machine's copy rate in the same run.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use rdma::requester::{self, Connection, Links, RemoteRegion};
use rdma::transport::Transport;
use testkit::workload::translator::{CASES, Case, Load, NullTransport, Reports};
use translator::{Output, Translator};

const RUNS: usize = 31;
/// Reports per burst, as a driver delivers them.
const BURST: usize = 64;
/// Reports per short run, few enough that other processes leave some runs undisturbed.
const SHORT: usize = 2048;

struct NullOutput;

impl Output for NullOutput {
    fn control(&mut self, _: SocketAddr, _: u8, _: &[u8]) {}
}

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    // `cargo test --benches` also runs this program, without `--bench`; one run is enough there.
    let runs = if std::env::args().any(|word| word == "--bench") {
        RUNS
    } else {
        1
    };
    println!(
        "{:<28} {:>8} {:>8} {:>8} {:>10} {:>12}",
        "case", "to", "min", "median", "Mreports/s", "Mentries/s"
    );
    for case in CASES {
        if wanted.is_empty() || wanted.iter().any(|name| name == case.name) {
            measure(&case, runs);
        }
    }
}

fn measure(case: &Case, runs: usize) {
    let mut reports = case.reports();
    report(
        case,
        "nowhere",
        &times(case, &mut reports, runs, &mut NullTransport::default(), |_| ()),
    );
    // Fetch-and-adds, sketches and essential writes would fill the retransmit buffer, because this collector never
    // acknowledges.
    let answered = matches!(case.load, Load::KeyIncrement { .. } | Load::Sketch)
        || matches!(case.load, Load::KeyWrite { essential: true, .. });
    if !answered {
        let mut links = links(case);
        let times = times(case, &mut reports, runs, &mut links, |links| {
            links.flush(0);
            black_box(links.frames().len());
            links.sent();
        });
        let frames = links.stats(0).map_or(0, |stats| stats.frames);
        assert!(frames > 0, "no frames");
        report(case, "frames", &times);
    }
    if case.load == Load::Sketch {
        copies(runs);
    }
}

/// Returns the time per report in ns of each short run, sorted.
fn times<W: Transport>(
    case: &Case,
    reports: &mut Reports,
    runs: usize,
    transport: &mut W,
    sent: impl Fn(&mut W),
) -> Vec<f64> {
    let mut translator = Translator::new(case.config()).expect("good settings");
    let sender = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 40_040);
    let mut now = 1;
    let mut times = Vec::new();
    for round in 0..=runs as u16 {
        case.renumber(reports, round);
        let mut payloads = reports.iter();
        while payloads.len() > 0 {
            let count = payloads.len().min(SHORT);
            let start = Instant::now();
            for _ in 0..count.div_ceil(BURST) {
                now += 1_000;
                let burst = payloads.by_ref().take(BURST).map(|payload| (sender, payload));
                translator.process_burst(now, 0, burst, transport, &mut NullOutput);
                sent(transport);
            }
            // The first round warms up tables and caches.
            if round > 0 {
                times.push(start.elapsed().as_nanos() as f64 / count as f64);
            }
        }
    }
    let stats = translator.stats();
    assert_eq!(
        stats.reports.dropped.iter().sum::<u64>(),
        0,
        "{:?}",
        stats.reports.dropped
    );
    assert!(stats.is_balanced());
    times.sort_by(f64::total_cmp);
    times
}

fn report(case: &Case, to: &str, times: &[f64]) {
    let (min, median) = (times[0], times[times.len() / 2]);
    let entries = if matches!(case.load, Load::Append { .. }) {
        case.items() as f64 * 1e3 / median
    } else {
        0.0
    };
    print!(
        "{:<28} {to:>8} {min:>8.1} {median:>8.1} {:>10.1} {entries:>12.1}",
        case.name,
        1e3 / median
    );
    if case.load == Load::Sketch {
        print!("  {:.1} GB/s merged (median)", case.items() as f64 / median);
    }
    println!();
}

/// Prints the machine's copy rate over 64 MiB, about the size of a sketch.
fn copies(runs: usize) {
    let from = vec![1u8; 64 << 20];
    let mut to = vec![0u8; 64 << 20];
    let mut rates: Vec<f64> = (0..=runs)
        .map(|_| {
            let start = Instant::now();
            black_box(&mut to).copy_from_slice(black_box(&from));
            from.len() as f64 / start.elapsed().as_nanos() as f64
        })
        .skip(1)
        .collect();
    rates.sort_by(f64::total_cmp);
    println!(
        "{:<28} {:>8} {:>45.1} GB/s copied (median)",
        "",
        "memory",
        rates[rates.len() / 2]
    );
}

/// Returns a requester with one collector that never answers and has the case's region.
fn links(case: &Case) -> Links {
    let mut links = Links::new(requester::Config::default()).expect("good settings");
    let address = |host| IpAddr::V4(Ipv4Addr::new(10, 0, 0, host));
    let path = wire::roce::Path::new(address(1), address(2), 0xc001);
    let len = case.geometry().body_len();
    let regions = [RemoteRegion {
        region: 0,
        address: 0x7f00_0000_0000,
        len,
        rkey: 7,
    }];
    links.offer(0).expect("a collector");
    let connection = Connection {
        path,
        mtu: 4096,
        unreliable: Some(0x11),
        reliable: Some(0x12),
        atomic_depth: 16,
        regions: &regions,
        executed: None,
    };
    links.connect(0, &connection, 0).expect("connected");
    links
}
