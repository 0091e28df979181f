//! `hopwise bench`: measures the published figures on the user's machine.

mod aggregate;
mod aggregator;
mod child;
mod dta;
mod dta_live;
mod encode;
mod export;
mod fanout;
mod fastpath;
mod harness;
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

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

pub use self::harness::core_time;
use self::harness::{Failure, LoadMeter, Outcome, Plan};
pub(crate) use self::harness::{load, machine};
use crate::page;
use crate::program::Program;
use terminal::CliError;
use terminal::progress::Waiting;
use terminal::units;

/// Measure the published figures on this machine
///
/// Each case warms up, runs several times and reports the median. A case that this machine or user cannot run is skipped, with
/// the reason.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise bench --list
  hopwise bench fastpath-6x8-1k fastpath-6x8-100k
  hopwise bench --all --json > figures.jsonl
  hopwise bench --page figures.jsonl > figures.md
  hopwise bench peers collector.o --port 54321          another project's XDP program on the same reports
  hopwise bench store-insert --runs 3 --seconds 5")]
pub struct Args {
    /// Cases to run; or `peers` and the files of other projects' XDP programs, to compare them with hopwise on the same reports
    #[arg(value_name = "NAME", required_unless_present_any = ["list", "all", "page"])]
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

/// A case: its name, what it measures, and the function that runs it.
struct Case {
    name: &'static str,
    about: &'static str,
    run: fn(&'static str, &Plan<'_>) -> Result<Outcome, Failure>,
}

const CASES: &[Case] = &[
    Case {
        name: "fastpath-6x8-1k",
        about: "6 hops of 8 items, 1,000 flows in random order: per report",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-6x8-100k-shuffled",
        about: "the same, 100,000 flows",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-6x8-1m-shuffled",
        about: "the same, 1,000,000 flows",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-6x8-4m-shuffled",
        about: "the same, 4,000,000 flows (4 GB of memory)",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-6x8-100k",
        about: "100,000 flows in the order in which their state was created",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-6x8-1m",
        about: "the same, 1,000,000 flows",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-1x1-1k",
        about: "1 hop of 1 item, 1,000 flows",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-6x4-1k",
        about: "6 hops of 4 items",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-8x8-1k",
        about: "8 hops of 8 items",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-12x8-1k",
        about: "12 hops of 8 items",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-16x8-1k",
        about: "16 hops of 8 items",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-6x8-change",
        about: "a change event with every report",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-6x8-1k-jitter",
        about: "values that vary below every threshold",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-6x8-1k-rule",
        about: "one rule, never true",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-6x8-1k-rule-history",
        about: "one rule that depends on earlier reports",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-6x8-1k-rules10",
        about: "ten rules over all metrics",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-6x8-100k-shuffled-rule",
        about: "100,000 flows in random order, one rule",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-md21-6x8-1k",
        about: "Telemetry Report 2.0, INT-MD 2.1",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-tr20-md10-6x8-1k",
        about: "Telemetry Report 2.0, INT 1.0",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-tr05-6x8-1k",
        about: "Telemetry Report 0.5, INT 0.5",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-mx21-6x8-1k",
        about: "INT-MX 2.1, one report per node, joined into paths",
        run: fastpath::collect,
    },
    Case {
        name: "fastpath-postcard-6x3-1k",
        about: "postcards of 3 items, one per node, joined into paths",
        run: fastpath::collect,
    },
    Case {
        name: "fanout-2",
        about: "one reporter over two workers, 1,000 flows, compared with one worker: CPU time per report",
        run: fanout::run,
    },
    Case {
        name: "fanout-2-100k",
        about: "the same, 100,000 flows in random order",
        run: fanout::run,
    },
    Case {
        name: "sf-join",
        about: "SF-INT reports joined into paths of 5 nodes, 1,000 flows: per report",
        run: join::run,
    },
    Case {
        name: "sf-join-100k",
        about: "the same, 100,000 flows",
        run: join::run,
    },
    Case {
        name: "switch-transit",
        about: "an INT-MD 2.1 transit switch adds its record, in process: per packet",
        run: switch::run,
    },
    Case {
        name: "switch-sf-transit",
        about: "an SF-INT transit switch swaps records",
        run: switch::run,
    },
    Case {
        name: "switch-sink",
        about: "a sink reports a path of 5 nodes and strips INT",
        run: switch::run,
    },
    Case {
        name: "aggregator-agg25",
        about: "aggregator: 25 postcards of any node together, per postcard",
        run: aggregator::run,
    },
    Case {
        name: "aggregator-agg-nf-100k",
        about: "the same by node and flow, 100,000 flows",
        run: aggregator::run,
    },
    Case {
        name: "aggregator-cor-nf-100k",
        about: "aggregator: summaries by node and flow, 100,000 flows, per postcard",
        run: aggregator::run,
    },
    Case {
        name: "aggregate-unfold",
        about: "Agg(25) of postcards unpacked, 1,000 flows: per postcard",
        run: aggregate::unfold,
    },
    Case {
        name: "aggregate-unfold-72",
        about: "the same, Agg(72)",
        run: aggregate::unfold,
    },
    Case {
        name: "aggregate-unfold-join",
        about: "Agg(25), postcards joined into paths by their timestamps",
        run: aggregate::unfold,
    },
    Case {
        name: "decode-only",
        about: "6 hops of 8 items, decoding only",
        run: fastpath::decode,
    },
    Case {
        name: "flight-recorder",
        about: "6 hops of 8 items: what the flight recorder adds to a report, a copy into its ring",
        run: fastpath::record,
    },
    Case {
        name: "replay",
        about: "a capture file through the whole collector, per report",
        run: fastpath::replay,
    },
    Case {
        name: "udp-one-sender",
        about: "one 5-tuple over veth, compared with a loop that discards (root)",
        run: udp::veth,
    },
    Case {
        name: "udp-one-sender-flood",
        about: "the same, sender above receive capacity (root)",
        run: udp::flood,
    },
    Case {
        name: "udp-loopback",
        about: "udp-one-sender over loopback, without root",
        run: udp::loopback,
    },
    Case {
        name: "rx-xdp-native",
        about: "AF_XDP, driver mode, over veth, compared with a loop that discards (root)",
        run: rx::run,
    },
    Case {
        name: "rx-xdp-generic",
        about: "the same, generic mode (root)",
        run: rx::run,
    },
    Case {
        name: "rx-packet",
        about: "the same with an AF_PACKET ring (root)",
        run: rx::run,
    },
    Case {
        name: "rx-udp",
        about: "the same with a UDP socket (root)",
        run: rx::run,
    },
    Case {
        name: "xdp-detect-1k",
        about: "detection in the kernel, 6 hops of 8 items, 1,000 flows, no change (root)",
        run: kernel::detect,
    },
    Case {
        name: "xdp-detect-100k",
        about: "the same, 100,000 flows (root)",
        run: kernel::detect,
    },
    Case {
        name: "xdp-detect-1k-event",
        about: "the same, 1,000 flows, each report an event (root)",
        run: kernel::detect,
    },
    Case {
        name: "switch-live",
        about: "a switch on one core, over veth, compared with a loop that copies frames (root)",
        run: switching::live,
    },
    Case {
        name: "switch-filter",
        about: "a packet at a sink with a per-hop filter, compared with none",
        run: sink::filter,
    },
    Case {
        name: "dta-key-write",
        about: "DTA translator: a path of 20 bytes, N = 2, payload in, two RoCEv2 frames out",
        run: dta::translate,
    },
    Case {
        name: "dta-append",
        about: "DTA translator: entries of 4 bytes, B = 16, one in each report; per entry",
        run: dta::translate,
    },
    Case {
        name: "dta-append-16",
        about: "the same, sixteen in each report",
        run: dta::translate,
    },
    Case {
        name: "dta-sketch-merge",
        about: "DTA translator: 64 columns of a Count-Min sketch merged, compared with a copy",
        run: dta::translate,
    },
    Case {
        name: "rdma-key-write",
        about: "RoCEv2 responder: random slots in 4 GiB, compared with a plain loop",
        run: dta::respond,
    },
    Case {
        name: "rdma-append",
        about: "RoCEv2 responder: blocks in order, compared with a plain loop",
        run: dta::respond,
    },
    Case {
        name: "rdma-xdp-key-write",
        about: "RoCEv2 responder in the kernel: a slot of 24 bytes (root)",
        run: rdma_kernel::respond,
    },
    Case {
        name: "rdma-xdp-append",
        about: "the same: a block of 304 bytes (root)",
        run: rdma_kernel::respond,
    },
    Case {
        name: "dta-query",
        about: "keys of a 4 GiB store, N = 2, in batches",
        run: dta::query,
    },
    Case {
        name: "dta-query-cold",
        about: "the same, one key at a time",
        run: dta::query,
    },
    Case {
        name: "dta-follow",
        about: "entries of a list read and checked, compared with a copy",
        run: dta::follow,
    },
    Case {
        name: "dta-live",
        about: "DTA over veth: reporter, translator, responder; Key-Write, N = 2 (root)",
        run: dta_live::live,
    },
    Case {
        name: "store-insert",
        about: "events into the store, committed, per event",
        run: store::insert,
    },
    Case {
        name: "store-query",
        about: "the events of one flow in a time range, out of 2 M",
        run: store::query,
    },
    Case {
        name: "store-query-20m",
        about: "the same out of 20 M (filling takes a minute)",
        run: store::query_20m,
    },
    Case {
        name: "store-follow",
        about: "records read in the order of their commits, as exports do, out of 1 M",
        run: store::follow,
    },
    Case {
        name: "manager-plan",
        about: "1,000 switches of 64 ports and 10,000 intents compiled and planned from nothing",
        run: manager::plan_all,
    },
    Case {
        name: "manager-one-more",
        about: "one intent more or less, of two hosts: compiled and planned",
        run: manager::plan_one,
    },
    Case {
        name: "manager-one-more-everywhere",
        about: "the same, at all 640 switches with hosts",
        run: manager::plan_one,
    },
    Case {
        name: "manager-apply-200",
        about: "200 devices filled, which answer after 10 ms each way of simulated time",
        run: manager::apply,
    },
    Case {
        name: "export-protobuf",
        about: "records to protobuf, and in messages of Kafka, plain and with LZ4",
        run: encode::run,
    },
    Case {
        name: "export-json",
        about: "the same as JSON, compared with serde_json",
        run: encode::run,
    },
    Case {
        name: "export-native",
        about: "records to a block of ClickHouse's format Native",
        run: encode::native,
    },
    Case {
        name: "export-hop",
        about: "hops of reports to the queue of an export that sends them",
        run: encode::hops,
    },
    Case {
        name: "export-clickhouse",
        about: "1 M stored events into ClickHouse's engine, compared with its own load (scripts/sink-servers)",
        run: export::clickhouse,
    },
    Case {
        name: "export-kafka",
        about: "1 M stored events to a broker, compared with Kafka's ProducerPerformance (scripts/sink-servers)",
        run: export::kafka,
    },
    Case {
        name: "outlet",
        about: "1 M records from Kafka into ClickHouse's engine, compared with its own load (scripts/sink-servers)",
        run: export::outlet,
    },
    Case {
        name: "export-catch-up",
        about: "1 M stored events exported while 10,000 reports/s arrive; how many of these are lost",
        run: export::catch_up,
    },
    Case {
        name: "live-change-0",
        about: "hopwise with its store, 1,000 flows, no change: highest rate without loss, per report",
        run: live::run,
    },
    Case {
        name: "live-change-1",
        about: "the same, a change in 1 % of the reports",
        run: live::run,
    },
    Case {
        name: "live-change-10",
        about: "the same, in 10 %",
        run: live::run,
    },
    Case {
        name: "live-change-100",
        about: "the same, in every report",
        run: live::run,
    },
    Case {
        name: "live-new-flows",
        about: "the same, a new flow with every report",
        run: live::run,
    },
    Case {
        name: "live-asked-1m",
        about: "1,000,000 known flows, no change, while pages of 50 flows are requested",
        run: live::run,
    },
];

/// The name that stands for other projects' programs.
const PEERS: &str = "peers";

/// Runs the command.
///
/// # Errors
/// A name is unknown, or a case failed.
pub fn run(args: Args, program: &dyn Program) -> Result<ExitCode, CliError> {
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
    let plan = Plan {
        runs: args.runs,
        each: Duration::from_secs_f64(args.seconds),
        program,
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

/// Names and descriptions of all cases.
fn described() -> Vec<(&'static str, &'static str)> {
    CASES.iter().map(|case| (case.name, case.about)).collect()
}

fn page_of(path: &Path) -> Result<String, CliError> {
    let named = path.display();
    let outcomes = fs::read_to_string(path).map_err(|error| {
        CliError::io(
            format!("cannot read {named}"),
            error,
            "make it: hopwise bench --all --json > FILE",
        )
    })?;
    page::page(&outcomes, &described()).map_err(|error| CliError::new(format!("{named}: {error}")))
}

/// The cases with these names, in the given order.
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

/// Prints the outcome of a case.
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

/// The text form of an outcome.
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
