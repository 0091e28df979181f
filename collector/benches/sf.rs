//! Benchmark of SF-INT joining: from frames or payloads in memory to paths, on one core. Prints the minimum and the median of
//! several short runs, ns per report, first for frames, then for payloads without outer headers. Run `cargo bench -p
//! hopwise-collector --bench sf`, with case names after `--` to select cases.

use std::time::Instant;

use collector::{Batch, Collector};
use testkit::workload::collector::{Feed, Input, SF_CASES, SfCase};

/// Number of runs per case.
const RUNS: usize = 101;

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    // `cargo test --benches` also runs this binary; one run is then enough.
    let runs = if std::env::args().any(|word| word == "--bench") {
        RUNS
    } else {
        1
    };
    println!(
        "{:<16} {:>9} {:>8} {:>8} {:>12}",
        "case", "input", "min", "median", "sets/report"
    );
    for case in SF_CASES {
        if wanted.is_empty() || wanted.iter().any(|name| name == case.name) {
            measure(&case, Input::Frames, runs);
            measure(&case, Input::Payloads, runs);
        }
    }
}

fn measure(case: &SfCase, input: Input, runs: usize) {
    let mut collector = case.collector();
    let mut feed = case.feed();
    let mut batch = Batch::with_capacity(8192);
    // The first rounds confirm every path; then one second of traffic time lets sampling adapt to the rate.
    let warm = if runs == 1 {
        feed.frames() * 2
    } else {
        (feed.frames() * 2).max(11_000_000)
    };
    run(&mut feed, &mut collector, &mut batch, input, warm);
    let whole = |collector: &Collector| collector.stats().sf.complete.sets;
    let before = (whole(&collector), collector.stats().reports);
    // Whole rounds, so that each flow completes its sets; short, so that some run is free of interference from other processes.
    let reports = feed.frames();
    let mut times: Vec<f64> = (0..runs)
        .map(|_| run(&mut feed, &mut collector, &mut batch, input, reports))
        .collect();
    times.sort_by(f64::total_cmp);
    let stats = collector.stats();
    let sets = (whole(&collector) - before.0) as f64 / (stats.reports - before.1) as f64;
    let input = if input == Input::Frames {
        "frames"
    } else {
        "payloads"
    };
    println!(
        "{:<16} {input:>9} {:>8.1} {:>8.1} {sets:>12.3}",
        case.name,
        times[0],
        times[times.len() / 2]
    );
    assert!(
        stats.reports == stats.sf.reports && stats.sf.balance().is_balanced(),
        "{stats:?}"
    );
}

/// Processes at least `reports` reports, and returns the time per report in ns.
fn run(feed: &mut Feed, collector: &mut Collector, batch: &mut Batch, input: Input, reports: usize) -> f64 {
    let start = Instant::now();
    let mut done = 0;
    while done < reports {
        done += feed.burst(input, collector, batch);
        if batch.len() > 4096 {
            batch.clear();
        }
    }
    let elapsed = start.elapsed().as_nanos() as f64 / done as f64;
    batch.clear();
    elapsed
}
