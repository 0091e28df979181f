//! Benchmark of the collector's fast path: from frames or payloads in memory to state, on one core. Prints the minimum and the
//! median of several short runs, ns per report. Run `cargo bench -p hopwise-collector`, with case names after `--` to select
//! cases.

use std::time::Instant;

use collector::{Batch, Collector};
use testkit::workload::collector::{CASES, Case, Feed, Input};

/// Number of runs per case.
const RUNS: usize = 31;

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
    let only =
        |input: &str| std::env::args().all(|word| !word.starts_with("--input=") || word.contains(input));
    println!(
        "{:<24} {:>9} {:>8} {:>8} {:>12}",
        "case", "input", "min", "median", "events/report"
    );
    for case in CASES {
        if wanted.is_empty() || wanted.iter().any(|name| name == case.name) {
            for (input, name) in [(Input::Frames, "=frames"), (Input::Payloads, "=payloads")] {
                if only(&name[..2]) {
                    measure(&case, input, runs);
                }
            }
        }
    }
}

fn measure(case: &Case, input: Input, runs: usize) {
    let mut collector = case.collector();
    let mut feed = case.feed();
    let mut batch = Batch::with_capacity(8192);
    // Two rounds create every flow and key; then one second of traffic time lets sampling adapt to the rate.
    let warm = if runs == 1 {
        feed.frames() * 2
    } else {
        (feed.frames() * 2).max(11_000_000)
    };
    run(&mut feed, &mut collector, &mut batch, input, warm);
    let count_events = |collector: &Collector| collector.stats().events.iter().sum::<u64>();
    let before = (count_events(&collector), collector.stats().reports);
    let given = std::env::args().find_map(|word| word.strip_prefix("--reports=")?.parse().ok());
    let reports = given.unwrap_or_else(|| feed.frames().max(50_000));
    let mut times: Vec<f64> = (0..runs)
        .map(|_| run(&mut feed, &mut collector, &mut batch, input, reports))
        .collect();
    times.sort_by(f64::total_cmp);
    let events = (count_events(&collector) - before.0) as f64 / (collector.stats().reports - before.1) as f64;
    let input = if input == Input::Frames {
        "frames"
    } else {
        "payloads"
    };
    println!(
        "{:<24} {input:>9} {:>8.1} {:>8.1} {events:>12.3}",
        case.name,
        times[0],
        times[times.len() / 2]
    );
    let stats = collector.stats();
    if given.is_some() {
        println!("reports= {}", stats.reports);
    }
    assert_eq!(
        stats.reports,
        stats.flow_reports + stats.unadmitted_total(),
        "every report reaches its flow or is counted"
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
