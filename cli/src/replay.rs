//! `hopwise replay`: runs the collector over captures, on the captures' clock, and prints the results: paths, latencies,
//! queues, drops and lost reports. Several files are merged by time, unless one is a pipe.

mod findings;
mod json;
mod summary;
mod text;

use std::time::{Duration, Instant};
use std::{path::PathBuf, process::ExitCode, sync::Arc};

use collector::Collector;

use self::findings::{Findings, ReplaySender};
use super::store_writer::StoreWriter;
use collect_role::capture::{self, Account, Merged, RingClocks, UnknownClock};
use collect_role::replay::{Difference, IgnoredTimes, Options, Replay, Replayed, Speed};
use collect_role::{datagram::AggregatePorts, settings::receive_on};
use config::{Settings, build};
use terminal::{CliError, progress::Progress};
use view::Names;

/// Replay a capture through the collector
///
/// Prints the paths of flows, latencies and queues, drops, and reports lost before the collector, with the names that the
/// configuration has (tables `nodes` and `inventory`) in place of ids and addresses; --json keeps ids. The collector runs on the capture's time. Several captures are merged by time: the files of a ring (tcpdump -C, -G) may come in any order, and reports that were captured at two points count as duplicated. Exit code 2 if a file cannot be read completely; what was found before is printed.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise replay reports.pcap
  hopwise replay --profile onos --json capture.pcap.gz
  hopwise replay ring.pcap*                              the files of a ring, merged by time
  hopwise replay --explain-loss reports.pcap             list every gap in the sequence numbers
  hopwise replay --store /tmp/found reports.pcap && hopwise query --dir /tmp/found \"SELECT * FROM events\"
  hopwise replay --speed realtime reports.pcap           at the captured speed")]
pub struct Args {
    /// Captures: pcap or pcapng, optionally gzipped; merged by time, or read in this order if one of them is a pipe
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Profile: strict, geant, hostint, intcollector-gen, onos, p4int, or one of the configuration (default: as configured)
    #[arg(long)]
    pub(crate) profile: Option<String>,

    /// UDP port of reports; may be repeated
    #[arg(long = "port", value_name = "PORT", default_value = "32766")]
    pub(crate) ports: Vec<u16>,

    /// UDP port of postcard aggregates; may be repeated
    #[arg(long = "aggregate-port", value_name = "PORT", default_value = "32767")]
    pub(crate) aggregate_ports: Vec<u16>,

    /// Configuration file: profiles, thresholds, rules, sizes, who may report
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Write the results to this store
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,

    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// List anomalies of sequence numbers: gaps, losses, reordered and duplicated reports, restarts
    #[arg(long)]
    pub(crate) explain_loss: bool,

    /// Number of flows and paths to list, by reports; likewise of nodes, by values, and of places of drops
    #[arg(long, default_value_t = 100)]
    pub(crate) limit: usize,

    /// `max`, `realtime`, or a factor of the captured speed
    #[arg(long, default_value = "max", value_parser = speed)]
    pub(crate) speed: Speed,
}

impl Args {
    fn all_ports(&self) -> Vec<u16> {
        [&self.ports[..], &self.aggregate_ports].concat()
    }
}

fn speed(text: &str) -> Result<Speed, String> {
    match text {
        "max" => Ok(Speed::Max),
        "realtime" => Ok(Speed::Times(1.0)),
        _ => match text.trim_end_matches('x').parse::<f64>() {
            Ok(times) if (1e-6..=1e12).contains(&times) => Ok(Speed::Times(times)),
            _ => Err("`max`, `realtime`, or a number from 0.000001 to 1000000000000, such as 10".into()),
        },
    }
}

/// Runs the replay. Exit code 2 if a file cannot be read completely; results from before the error are printed.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let settings = Settings::load(args.config.as_deref())?;
    let config = configure(&args, &settings)?;
    let store_writer = args
        .store
        .as_ref()
        .map(|dir| StoreWriter::open(dir, &settings))
        .transpose()?;
    let findings = Findings::new(&config, args.explain_loss);
    let mut replay = Replay::new(
        config,
        ReplaySender {
            findings,
            store_writer,
        },
        Options {
            speed: args.speed,
            ports: args.all_ports(),
            aggregate_ports: AggregatePorts(args.aggregate_ports.as_slice().into()),
        },
    );
    let mut account = Account::default();
    let is_merged = args.files.len() > 1 && !args.files.iter().any(|file| capture::is_live(file));
    let mut total_bytes = capture::total_bytes(&args.files);
    if is_merged {
        total_bytes = total_bytes.map(|bytes| bytes + RingClocks::bytes_to_measure(&args.files));
    }
    let mut progress = Progress::new("replaying", "frames", total_bytes);
    let start = Instant::now();
    let mut last_error = None;
    let mut merged = Merged::default();
    let mut unknown_clocks = Vec::new();
    if is_merged {
        let RingClocks { offsets, unknown } = RingClocks::measure(&args.files, &mut progress);
        unknown_clocks = unknown;
        for (file, offsets) in args.files.iter().zip(&offsets) {
            replay.begin_with_offsets(file, offsets.clone());
        }
        merged = capture::merged(
            &args.files,
            &offsets,
            &mut account,
            &mut progress,
            |file, account, run| {
                replay.resume(file);
                replay.add(run.frames(), account);
            },
        );
    } else {
        for file in &args.files {
            replay.begin(file);
            let read = capture::bursts(file, &mut account, &mut progress, |account, frames| {
                replay.add(frames, account);
            });
            merged.errors.extend(read.err());
        }
    }
    // One broken file must not hide the others; the last error is returned, the earlier ones are printed.
    for error in merged.errors {
        if let Some(earlier) = last_error.replace(error) {
            terminal::note(earlier);
        }
    }
    let Replayed {
        collector,
        output,
        differences,
        ignored_times,
        has_unconfirmed_end,
    } = replay.finish();
    let findings = output.findings;
    let store_stats = output.store_writer.map(StoreWriter::close);
    progress.finish();
    if let Some(sentence) = text::unknown_clocks(&unknown_clocks) {
        terminal::note(sentence);
    }
    let result = Summary {
        files: &args.files,
        account: &account,
        differences: &differences,
        unknown_clocks: &unknown_clocks,
        overlapping: &merged.overlapping,
        ignored_times,
        has_unconfirmed_end,
        collector: &collector,
        findings: &findings,
        store_stats,
        elapsed: start.elapsed(),
        limit: args.limit,
        names: build::names(&settings),
    };
    let text = if args.json {
        json::write(&result)
    } else {
        text::write(&result)
    };
    terminal::print(&text)?;
    last_error.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn configure(args: &Args, settings: &Settings) -> Result<collector::Config, CliError> {
    let mut config = settings.collect().collector_config(1, 0).map_err(CliError::new)?;
    if let Some(name) = &args.profile {
        config.default_profile = super::profile::named(name, settings)?;
        config.profiles.clear();
    }
    receive_on(&mut config.default_profile.wire, &args.ports).map_err(CliError::new)?;
    for (_, profile) in &mut config.profiles {
        receive_on(&mut profile.wire, &args.ports).map_err(CliError::new)?;
    }
    config.access = Arc::new(settings.collect().access_by_port(&args.all_ports()));
    // A fixed seed: the same capture always gives the same results.
    config.seed = collector::Config::default().seed;
    Ok(config)
}

/// Results of a replay, for the text and the JSON form.
struct Summary<'a> {
    files: &'a [PathBuf],
    account: &'a Account,
    differences: &'a [Difference],
    unknown_clocks: &'a [UnknownClock],
    overlapping: &'a [PathBuf],
    ignored_times: IgnoredTimes,
    has_unconfirmed_end: bool,
    collector: &'a Collector,
    findings: &'a Findings,
    store_stats: Option<store::Stats>,
    elapsed: Duration,
    limit: usize,
    names: Names,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_a_word_or_a_number() {
        assert_eq!(speed("max"), Ok(Speed::Max));
        assert_eq!(speed("realtime"), Ok(Speed::Times(1.0)));
        assert_eq!(speed("10x"), Ok(Speed::Times(10.0)));
        assert!(
            ["0", "-1", "fast", "nan", "inf", "1e-300", ""]
                .iter()
                .all(|wrong| speed(wrong).is_err())
        );
    }
}
