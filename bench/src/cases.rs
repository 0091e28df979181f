//! The command `hopwise bench`: measures the published performance figures on the user's machine.
//!
//! A case is a name and a function that returns the time per operation of several runs (`harness`), with the conditions under
//! which it was measured. Each module below holds the cases of one part of hopwise.

mod aggregate;
mod aggregator;
mod child;
mod dta;
mod dta_live;
mod encode;
mod export;
mod fanout;
mod fastpath;
mod grid;
mod harness;
mod instructions;
mod join;
mod kernel;
mod live;
mod manager;
mod peers;
mod rdma_kernel;
mod rx;
mod sink;
mod store;
mod switch;
mod switching;
mod udp;
mod workers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use self::harness::{Failure, LoadMeter, Outcome, Plan};
pub(crate) use self::instructions::run as run_for_instruction_counts;
use crate::page;
use clap::Parser;
use terminal::CliError;
use terminal::progress::Waiting;
use terminal::units;

/// Measure the published figures on this machine
///
/// Each case warms up, runs several times and reports the median. A case that this machine or user cannot run is skipped, with
/// the reason.
#[derive(Parser, Debug)]
#[command(
    name = "hopwise-bench",
    bin_name = "hopwise bench",
    version,
    after_help = "Examples:
  hopwise bench --list
  hopwise bench fastpath-6x8-1k fastpath-6x8-100k
  hopwise bench --all --json > figures.jsonl
  hopwise bench --page figures.jsonl > figures.md
  hopwise bench --bars figures.jsonl                    which bars the figures meet and miss, and why
  hopwise bench peers collector.o --port 54321          another project's XDP program on the same reports
  hopwise bench store-insert --runs 3 --seconds 5"
)]
pub(crate) struct Args {
    /// Cases to run; or `peers` and the files of other projects' XDP programs, to compare them with hopwise on the same reports
    #[arg(value_name = "NAME", required_unless_present_any = ["list", "all", "page", "bars"])]
    names: Vec<String>,

    /// Run every case
    #[arg(long, conflicts_with = "names")]
    all: bool,

    /// List the cases
    #[arg(long)]
    list: bool,

    /// Measure nothing: make the page of the outcomes in this file (of --json), with ratios and bars
    #[arg(long, value_name = "FILE", conflicts_with_all = ["names", "all", "list", "json"])]
    page: Option<PathBuf>,

    /// Measure nothing: compare the outcomes in this file (of --json) with the bars; exit code 1 if one is missed without a known
    /// reason
    #[arg(long, value_name = "FILE", conflicts_with_all = ["names", "all", "list", "json", "page"])]
    bars: Option<PathBuf>,

    /// With `peers`: the UDP port on which their programs expect reports
    #[arg(long, value_name = "PORT", default_value_t = 32_766)]
    port: u16,

    /// One JSON object per case
    #[arg(long)]
    json: bool,

    /// Runs per case; the median is reported
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,

    /// Duration of each run in seconds
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_string())?;
    if (0.001..=600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("between 0.001 and 600 seconds".into())
    }
}

/// A case, with its name on the command line and a description.
struct Case {
    name: &'static str,
    about: &'static str,
    run: fn(&'static str, &Plan) -> Result<Outcome, Failure>,
}

macro_rules! cases {
    ($($run:path, $name:literal, $about:literal;)+) => {
        &[$(Case { name: $name, about: $about, run: $run }),+]
    };
}

const CASES: &[Case] = cases! {
    fastpath::collect, "fastpath-6x8-1k", "6 hops of 8 items, 1,000 flows in random order: per report";
    fastpath::collect, "fastpath-6x8-100k-shuffled", "the same, 100,000 flows";
    fastpath::collect, "fastpath-6x8-1m-shuffled", "the same, 1,000,000 flows";
    fastpath::collect, "fastpath-6x8-4m-shuffled", "the same, 4,000,000 flows (4 GB of memory)";
    fastpath::collect, "fastpath-6x8-100k", "100,000 flows in the order in which their state was created";
    fastpath::collect, "fastpath-6x8-1m", "the same, 1,000,000 flows";
    fastpath::collect, "fastpath-1x1-1k", "1 hop of 1 item, 1,000 flows";
    fastpath::collect, "fastpath-3x3-1k", "3 hops of 3 items: node, hop latency, queue";
    fastpath::collect, "fastpath-6x4-1k", "6 hops of 4 items";
    fastpath::collect, "fastpath-8x8-1k", "8 hops of 8 items";
    fastpath::collect, "fastpath-12x8-1k", "12 hops of 8 items";
    fastpath::collect, "fastpath-16x8-1k", "16 hops of 8 items";
    grid::run, "fastpath-grid", "1 to 16 hops of 1 to 8 items: the shape furthest above a line through the smallest and the largest";
    fastpath::collect, "fastpath-6x8-change", "a change event with every report";
    fastpath::collect, "fastpath-6x8-1k-jitter", "values that vary below every threshold";
    fastpath::collect, "fastpath-6x8-1k-rule", "one rule, never true";
    fastpath::collect, "fastpath-6x8-1k-rule-history", "one rule that depends on earlier reports";
    fastpath::collect, "fastpath-6x8-1k-rules10", "ten rules over all metrics";
    fastpath::collect, "fastpath-6x8-100k-shuffled-rule", "100,000 flows in random order, one rule";
    fastpath::collect, "fastpath-md21-6x8-1k", "Telemetry Report 2.0, INT-MD 2.1";
    fastpath::collect, "fastpath-tr20-md10-6x8-1k", "Telemetry Report 2.0, INT 1.0";
    fastpath::collect, "fastpath-tr05-6x8-1k", "Telemetry Report 0.5, INT 0.5";
    fastpath::collect, "fastpath-mx21-6x8-1k", "INT-MX 2.1, one report per node, joined into paths";
    fastpath::collect, "fastpath-postcard-6x3-1k", "postcards of 3 items, one per node, joined into paths";
    fanout::run, "fanout-2", "one reporter over two workers, 1,000 flows, compared with one worker and with two threads that share nothing: CPU time per report";
    fanout::run, "fanout-2-100k", "the same, 100,000 flows in random order";
    fanout::limit, "fanout-limit", "the limit of the machine for fanout-2: two threads that share nothing, with a worker each";
    join::run, "sf-join", "SF-INT reports joined into paths of 5 nodes, 1,000 flows: per report";
    join::run, "sf-join-100k", "the same, 100,000 flows";
    switch::run, "switch-transit", "an INT-MD 2.1 transit switch adds its record, in process: per packet";
    switch::run, "switch-sf-transit", "an SF-INT transit switch swaps records";
    switch::run, "switch-sink", "a sink reports a path of 5 nodes and strips INT";
    aggregator::run, "aggregator-agg25", "aggregator: 25 postcards of any node together, per postcard";
    aggregator::run, "aggregator-agg-nf-100k", "the same by node and flow, 100,000 flows";
    aggregator::run, "aggregator-cor-nf-100k", "aggregator: summaries by node and flow, 100,000 flows, per postcard";
    aggregate::unfold, "aggregate-unfold", "Agg(25) of postcards unpacked, 1,000 flows: per postcard";
    aggregate::unfold, "aggregate-unfold-72", "the same, Agg(72)";
    aggregate::unfold, "aggregate-unfold-join", "Agg(25), postcards joined into paths by their timestamps";
    fastpath::decode, "decode-only", "6 hops of 8 items, decoding only";
    fastpath::record, "flight-recorder", "6 hops of 8 items: what the flight recorder adds to a report, a copy into its ring";
    fastpath::replay, "replay", "a capture file through the whole collector, per report";
    udp::veth, "udp-one-sender", "one 5-tuple over veth, compared with a loop that discards (root)";
    udp::flood, "udp-one-sender-flood", "the same, sender above receive capacity (root)";
    udp::loopback, "udp-loopback", "udp-one-sender over loopback, without root";
    rx::run, "rx-xdp-native", "AF_XDP, driver mode, over veth, compared with a loop that discards (root)";
    rx::run, "rx-xdp-generic", "the same, generic mode (root)";
    rx::run, "rx-packet", "the same with an AF_PACKET ring (root)";
    rx::run, "rx-udp", "the same with a UDP socket (root)";
    kernel::detect, "xdp-detect-1k", "detection in the kernel, 6 hops of 8 items, 1,000 flows, no change (root)";
    kernel::detect, "xdp-detect-100k", "the same, 100,000 flows (root)";
    kernel::detect, "xdp-detect-1k-event", "the same, 1,000 flows, each report an event (root)";
    switching::live, "switch-live", "a switch on one core, over veth, compared with a loop that copies frames (root)";
    sink::filter, "switch-filter", "a packet at a sink with a per-hop filter, compared with none";
    dta::translate, "dta-key-write", "DTA translator: a path of 20 bytes, N = 2, payload in, two RoCEv2 frames out";
    dta::translate, "dta-append", "DTA translator: entries of 4 bytes, B = 16, one in each report; per entry";
    dta::translate, "dta-append-16", "the same, sixteen in each report";
    dta::translate, "dta-sketch-merge", "DTA translator: 64 columns of a Count-Min sketch merged, compared with a copy";
    dta::respond, "rdma-key-write", "RoCEv2 responder: random slots in 4 GiB, compared with a plain loop";
    dta::respond, "rdma-append", "RoCEv2 responder: blocks of 304 bytes in order, compared with a plain loop";
    dta::respond, "rdma-append-80", "the same, blocks of 80 bytes";
    rdma_kernel::respond, "rdma-xdp-key-write", "RoCEv2 responder in the kernel: a slot of 24 bytes (root)";
    rdma_kernel::respond, "rdma-xdp-append", "the same: a block of 304 bytes (root)";
    dta::query, "dta-query", "keys of a 4 GiB store, N = 2, in batches";
    dta::query, "dta-query-cold", "the same, one key at a time";
    dta::follow, "dta-follow", "entries of a list read and checked, 16 of 4 bytes in a block, compared with a copy";
    dta::follow, "dta-follow-4", "the same, 4 entries in a block";
    dta_live::live, "dta-live", "DTA over veth: reporter, translator, responder; Key-Write, N = 2 (root)";
    store::insert, "store-insert", "events into the store, committed, per event";
    store::query, "store-query", "the events of one flow in a time range, out of 2 M";
    store::query_20m, "store-query-20m", "the same out of 20 M (filling takes a minute)";
    store::follow, "store-follow", "records read in the order of their commits, as exports do, out of 1 M";
    manager::plan_all, "manager-plan", "1,000 switches of 64 ports and 10,000 intents compiled and planned from nothing";
    manager::plan_one, "manager-one-more", "one intent more or less, of two hosts: compiled and planned";
    manager::plan_one, "manager-one-more-everywhere", "the same, at all 640 switches with hosts";
    manager::apply, "manager-apply-200", "200 devices filled, which answer after 10 ms each way of simulated time";
    encode::run, "export-protobuf", "records to protobuf, and in messages of Kafka, plain and with LZ4";
    encode::run, "export-json", "the same as JSON, compared with serde_json";
    encode::native, "export-native", "records to a block of ClickHouse's format Native";
    encode::hops, "export-hop", "hops of reports to the queue of an export that sends them";
    export::clickhouse, "export-clickhouse", "1 M stored events into ClickHouse's engine, compared with its own load (scripts/sink-servers)";
    export::kafka, "export-kafka", "1 M stored events to a broker, compared with Kafka's ProducerPerformance (scripts/sink-servers)";
    export::outlet, "outlet", "1 M records from Kafka into ClickHouse's engine, compared with its own load (scripts/sink-servers)";
    export::catch_up, "export-catch-up", "1 M stored events exported while 10,000 reports/s arrive; how many of these are lost";
    live::run, "live-change-0", "hopwise with its store, 1,000 flows, no change: highest rate without loss, per report";
    live::run, "live-change-1", "the same, a change in 1 % of the reports";
    live::run, "live-change-10", "the same, in 10 %";
    live::run, "live-change-100", "the same, in every report";
    live::run, "live-new-flows", "the same, a new flow with every report";
    live::run, "live-asked-1m", "1,000,000 known flows, no change, while pages of 50 flows are requested";
};

/// The name that selects the comparison with other projects' programs.
const PEERS: &str = "peers";

/// Runs the command. Fails if a name is unknown or a case fails.
pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    if args.list {
        return print(
            &CASES
                .iter()
                .map(|case| format!("{:<33}{}\n", case.name, case.about))
                .collect::<String>(),
        )
        .map(|()| ExitCode::SUCCESS);
    }
    if let Some(path) = &args.page {
        return print(&page_of(path)?).map(|()| ExitCode::SUCCESS);
    }
    if let Some(path) = &args.bars {
        let report = page::report(&outcomes_in(path)?).map_err(|error| unusable(path, &error))?;
        print(&report.text)?;
        return Ok(ExitCode::from(u8::from(report.unexplained > 0)));
    }
    let plan = Plan {
        runs: args.runs,
        each: Duration::from_secs_f64(args.seconds),
    };
    let mut skipped = 0;
    if let Some((PEERS, paths)) = args
        .names
        .split_first()
        .map(|(first, rest)| (first.as_str(), rest))
    {
        peers::run(paths, args.port, &plan, &mut |name, outcome| {
            show(name, outcome, args.json, &mut skipped)
        })?;
    } else {
        let cases: Vec<&Case> = if args.all {
            CASES.iter().collect()
        } else {
            chosen(&args.names)?
        };
        for (done, case) in cases.iter().enumerate() {
            let waiting = Waiting::part(case.name, done as u64, cases.len() as u64);
            let load = LoadMeter::start();
            let outcome = (case.run)(case.name, &plan).map(|outcome| outcome.under(&load));
            drop(waiting);
            show(case.name, outcome, args.json, &mut skipped)?;
        }
    }
    if skipped > 0 {
        eprintln!("hopwise: {} skipped", units::counted(skipped, "case"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the names and descriptions of all cases, with the comparisons with other projects' programs at the end.
fn described() -> Vec<(&'static str, &'static str)> {
    CASES
        .iter()
        .map(|case| (case.name, case.about))
        .chain(peers::described())
        .collect()
}

fn page_of(path: &Path) -> Result<String, CliError> {
    page::page(&outcomes_in(path)?, &described()).map_err(|error| unusable(path, &error))
}

/// Reads a file of outcomes.
fn outcomes_in(path: &Path) -> Result<String, CliError> {
    fs::read_to_string(path).map_err(|error| {
        CliError::io(
            format!("cannot read {}", path.display()),
            error,
            "make it: hopwise bench --all --json > FILE",
        )
    })
}

fn unusable(path: &Path, error: &str) -> CliError {
    CliError::new(format!("{}: {error}", path.display()))
}

/// Finds the cases with these names, in the given order.
fn chosen(names: &[String]) -> Result<Vec<&'static Case>, CliError> {
    let mut cases = Vec::new();
    for name in names {
        let case = CASES.iter().find(|case| case.name == name);
        cases.push(case.ok_or_else(|| {
            CliError::new(format!(
                "there is no case `{name}`; `hopwise bench --list` names them"
            ))
        })?);
    }
    Ok(cases)
}

/// Prints the outcome of a case, or the reason for which it was skipped.
fn show(
    name: &str,
    outcome: Result<Outcome, Failure>,
    json: bool,
    skipped: &mut u64,
) -> Result<(), CliError> {
    match outcome {
        Ok(outcome) if json => print(&format!("{}\n", outcome.json())),
        Ok(outcome) => print(&text(&outcome)),
        Err(Failure::Failed(error)) => Err(error),
        Err(Failure::Skipped(reason)) => {
            *skipped += 1;
            eprintln!("hopwise: skipped {name}: {reason}");
            Ok(())
        }
    }
}

fn print(text: &str) -> Result<(), CliError> {
    terminal::print(text)
}

/// Formats an outcome as two lines of text.
fn text(outcome: &Outcome) -> String {
    let (min, max) = outcome.range();
    let rate = units::short(1e9 / outcome.median());
    let warning = outcome
        .warning()
        .map_or_else(String::new, |warning| format!("; {warning}"));
    format!(
        "{:<32} {:>10.1} ns/op  {rate:>7}/s   {min:.1} to {max:.1} in {}, spread {:.0} %{warning}\n{:<32} {}\n",
        outcome.name,
        outcome.median(),
        units::counted(outcome.ns_per_op.len() as u64, "run"),
        outcome.spread() * 100.0,
        "",
        outcome.conditions.sentence()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_is_of_a_case() {
        let known: Vec<_> = described().into_iter().map(|(name, _)| name).collect();
        page::bar_names().for_each(|name| assert!(known.contains(&name), "{name}"));
    }

    #[test]
    fn the_reference_page_of_figures_is_what_its_outcomes_say() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
        let page = page_of(&dir.join("performance.jsonl")).unwrap();
        let path = dir.join("performance-figures.md");
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            fs::write(&path, &page).unwrap();
        }
        let there = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == page,
            "run `make docs`: {} differs from what performance.jsonl says",
            path.display()
        );
    }
}
