//! `hopwise replay`: runs the collector over a capture and prints the results.

mod clocks;
mod findings;
mod json;
mod summary;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use collector::{Collector, Datagram};

use self::clocks::{Clocks, Difference, Time};
use self::findings::{Findings, Outlet};
use super::capture::{self, Account};
use super::store_writer::StoreWriter;
use collect_role::datagram::{AggregatePorts, Contents, octets};
use collect_role::settings::receive_on;
use config::{Settings, build};
use nic::capture::{BURST, Frames};
use terminal::CliError;
use terminal::progress::Progress;
use view::Names;

/// Replay a capture through the collector
///
/// Prints the paths of flows, latencies and queues, drops, and reports lost before the collector, with the names that the
/// configuration has (tables `nodes` and `inventory`) in place of ids and addresses; --json keeps ids. The collector runs on the capture's time. Exit code 2 if a file cannot be read completely; what was found before is printed.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise replay reports.pcap
  hopwise replay --profile onos --json capture.pcap.gz
  hopwise replay --explain-loss reports.pcap             list every gap in the sequence numbers
  hopwise replay --store /tmp/found reports.pcap && hopwise query --dir /tmp/found \"SELECT * FROM events\"
  hopwise replay --speed realtime reports.pcap           at the captured speed")]
pub(crate) struct Args {
    /// Captures: pcap or pcapng, optionally gzipped; read in order
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

    /// Number of flows to list, by reports
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

/// How fast the capture's time passes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Speed {
    /// As fast as this machine can.
    Max,
    /// This many times faster than captured.
    Times(f64),
}

fn speed(text: &str) -> Result<Speed, String> {
    match text {
        "max" => Ok(Speed::Max),
        "realtime" => Ok(Speed::Times(1.0)),
        _ => match text.trim_end_matches('x').parse::<f64>() {
            Ok(times) if times > 0.0 && times.is_finite() => Ok(Speed::Times(times)),
            _ => Err("`max`, `realtime`, or a number such as 10".into()),
        },
    }
}

/// Capture time between two ticks, ns: as often as a running collector ticks.
const TICK: u64 = 20_000_000;
const SECOND: u64 = 1_000_000_000;
/// Maximum number of ticks in a pause.
const MAX_TICKS: u64 = 10_000;
/// The longest timer besides the flow timeout, with much to spare: the end of a minute, and rounds through all flows.
const OTHER_TIMERS: u64 = 300 * SECOND;

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
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
        Outlet {
            findings,
            store_writer,
        },
        args.speed,
    );
    replay.aggregate_ports = AggregatePorts(args.aggregate_ports.as_slice().into());
    replay.ports = args.all_ports();
    let mut account = Account::default();
    let mut progress = Progress::new("replaying", "frames", capture::total_bytes(&args.files));
    let started = Instant::now();
    let mut failed = None;
    for file in &args.files {
        replay.clocks.begin(file);
        let read = capture::bursts(file, &mut account, &mut progress, |account, frames| {
            replay.add(frames, account);
        });
        // One broken file must not hide the others.
        if let Err(error) = read
            && let Some(earlier) = failed.replace(error)
        {
            terminal::note(earlier);
        }
    }
    let differences = replay.clocks.differences();
    let Replayed {
        collector,
        findings,
        stored,
    } = replay.finish();
    progress.finish();
    let result = Summary {
        files: &args.files,
        account: &account,
        differences: &differences,
        collector: &collector,
        findings: &findings,
        stored,
        elapsed: started.elapsed(),
        limit: args.limit,
        names: build::names(&settings),
    };
    let text = if args.json {
        json::write(&result)
    } else {
        text::write(&result)
    };
    terminal::print(&text)?;
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn configure(args: &Args, settings: &Settings) -> Result<collector::Config, CliError> {
    let mut config = settings.collect().collector_config(1, 0).map_err(CliError::new)?;
    if let Some(name) = &args.profile {
        config.default_profile = super::profile::named(name, settings)?;
        config.profiles.clear();
    }
    receive_on(&mut config.default_profile.wire, &args.ports);
    for (_, profile) in &mut config.profiles {
        receive_on(&mut profile.wire, &args.ports);
    }
    config.access = Arc::new(settings.collect().access_by_port(&args.all_ports()));
    // The same capture always gives the same results.
    config.seed = collector::Config::default().seed;
    Ok(config)
}

/// Replays one file at full speed and returns the number of its reports: the work that the benchmark measures.
pub(super) fn once(file: &std::path::Path, config: collector::Config) -> Result<u64, CliError> {
    let findings = Findings::new(&config, false);
    let mut replay = Replay::new(
        config,
        Outlet {
            findings,
            store_writer: None,
        },
        Speed::Max,
    );
    let mut progress = Progress::new("", "frames", None).silenced(true);
    replay.ports = vec![32_766];
    replay.clocks.begin(file);
    capture::bursts(file, &mut Account::default(), &mut progress, |account, frames| {
        replay.add(frames, account);
    })?;
    Ok(replay.finish().collector.stats().reports)
}

/// The results to print, as text or as JSON.
struct Summary<'a> {
    files: &'a [PathBuf],
    account: &'a Account,
    differences: &'a [Difference],
    collector: &'a Collector,
    findings: &'a Findings,
    stored: Option<store::Stats>,
    elapsed: Duration,
    limit: usize,
    names: Names,
}

/// The replay of a capture through a collector.
struct Replay {
    collector: Collector,
    outlet: Outlet,
    /// Datagrams since the last call of [`Replay::tick`].
    since_tick: usize,
    pace: Pace,
    ticked: u64,
    /// Time after which nothing is due any more if nothing arrives, ns.
    longest_timer: u64,
    /// Latest receive time, since the capture's clock was set back.
    last: u64,
    clocks: Clocks,
    aggregate_ports: AggregatePorts,
    /// The ports of reports and aggregates; the index of a port is the number of its listener.
    ports: Vec<u16>,
}

struct Replayed {
    collector: Collector,
    findings: Findings,
    stored: Option<store::Stats>,
}

/// Datagrams of one kind to process together.
struct Burst<'a> {
    datagrams: [Datagram<'a>; BURST],
    len: usize,
    contents: Contents,
}

impl Burst<'_> {
    fn new() -> Self {
        let none = Datagram {
            payload: &[],
            source: [0; 16],
            src_port: 0,
            listener: 0,
            received: 0,
        };
        Self {
            datagrams: [none; BURST],
            len: 0,
            contents: Contents::Reports,
        }
    }
}

impl Replay {
    fn new(config: collector::Config, outlet: Outlet, speed: Speed) -> Self {
        let pace = Pace { speed, begin: None };
        let longest_timer = config.flow_timeout.saturating_add(OTHER_TIMERS);
        Self {
            collector: Collector::new(config),
            outlet,
            since_tick: 0,
            pace,
            ticked: 0,
            longest_timer,
            last: 0,
            clocks: Clocks::new(),
            aggregate_ports: AggregatePorts::default(),
            ports: Vec::new(),
        }
    }

    /// Processes the datagrams of frames that are lent together.
    fn add(&mut self, frames: Frames<'_>, account: &mut Account) {
        let mut burst = Burst::new();
        for frame in frames {
            account.frames += 1;
            // A frame with broken headers is in the account already.
            let Ok((datagram, listener)) = capture::telemetry(&frame, &self.ports, account) else {
                continue;
            };
            let ts = match self.clocks.time(&frame, self.last) {
                Time::At(ts) => ts,
                Time::SetBack(ts) => {
                    self.handle(&mut burst);
                    self.set_back(ts);
                    ts
                }
            };
            if self.pace.is_early(ts) {
                self.handle(&mut burst);
                self.tick();
                self.pace.wait(ts);
            }
            if self.last > 0 && ts.saturating_sub(self.last) > TICK {
                self.handle(&mut burst);
                self.pass(ts);
            }
            let contents = self.aggregate_ports.contents(datagram.dst_port);
            if contents != burst.contents {
                self.handle(&mut burst);
                burst.contents = contents;
            }
            burst.datagrams[burst.len] = Datagram {
                payload: datagram.payload,
                source: octets(datagram.src),
                src_port: datagram.src_port,
                listener: listener as u16,
                received: ts,
            };
            burst.len += 1;
            self.last = self.last.max(ts);
            self.since_tick += 1;
            if self.since_tick == BURST {
                self.handle(&mut burst);
                self.tick();
            }
        }
        self.handle(&mut burst);
    }

    /// Processes the waiting datagrams.
    fn handle(&mut self, burst: &mut Burst<'_>) {
        let these = &burst.datagrams[..std::mem::take(&mut burst.len)];
        match burst.contents {
            _ if these.is_empty() => {}
            Contents::Reports => self.collector.handle(these, &mut self.outlet),
            Contents::Aggregates => self.collector.handle_aggregates(these, &mut self.outlet),
        }
    }

    /// Runs a tick if it is due. Called after a number of datagrams that does not depend on how many frames are lent together, so
    /// that a capture always gives the same results, however it is stored.
    fn tick(&mut self) {
        if std::mem::take(&mut self.since_tick) == 0 {
            return;
        }
        self.tick_at(self.last);
    }

    /// Sets the time back to `ts`, as that of a running collector: by a tick.
    fn set_back(&mut self, ts: u64) {
        self.last = ts;
        self.since_tick = 0;
        self.pace.begin = None;
        self.tick_at(ts);
    }

    /// Lets the time from the latest datagram to `ts` pass as for a running collector, which ticks while nothing arrives. In a long pause
    /// everything expires at some time; the rest of it is skipped.
    fn pass(&mut self, ts: u64) {
        self.since_tick = 0;
        let span = ts.saturating_sub(self.last).min(self.longest_timer);
        let step = if span > SECOND {
            (SECOND / 10).max(span / MAX_TICKS)
        } else {
            TICK
        };
        for count in 0..=span / step {
            self.tick_at(self.last.saturating_add(count * step));
        }
    }

    fn tick_at(&mut self, now: u64) {
        if now.abs_diff(self.ticked) >= TICK {
            if now / SECOND != self.ticked / SECOND {
                self.outlet.findings.note_profiles(&self.collector);
            }
            self.ticked = now;
            self.collector.tick(now, &mut self.outlet);
            if let Some(store_writer) = &mut self.outlet.store_writer {
                store_writer.look(&self.collector, now);
            }
        }
    }

    fn finish(mut self) -> Replayed {
        self.tick();
        self.outlet.findings.note_profiles(&self.collector);
        self.collector.finish(self.last, &mut self.outlet);
        let Outlet {
            findings,
            store_writer,
        } = self.outlet;
        Replayed {
            collector: self.collector,
            findings,
            stored: store_writer.map(StoreWriter::close),
        }
    }
}

/// Paces the capture's time by the wall clock.
struct Pace {
    speed: Speed,
    /// The first timestamp, and the wall-clock time at which it was read.
    begin: Option<(u64, Instant)>,
}

impl Pace {
    /// Time from now until `ts` is due.
    fn due(&mut self, ts: u64) -> Option<Duration> {
        let Speed::Times(times) = self.speed else {
            return None;
        };
        let (first, met) = *self.begin.get_or_insert((ts, Instant::now()));
        let after = Duration::from_nanos(ts.saturating_sub(first)).div_f64(times);
        after.checked_sub(met.elapsed()).filter(|wait| !wait.is_zero())
    }

    fn is_early(&mut self, ts: u64) -> bool {
        self.due(ts).is_some()
    }

    fn wait(&mut self, ts: u64) {
        if let Some(wait) = self.due(ts) {
            std::thread::sleep(wait);
        }
    }
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
            ["0", "-1", "fast", "nan", "inf", ""]
                .iter()
                .all(|wrong| speed(wrong).is_err())
        );
    }

    #[test]
    fn at_full_speed_nothing_waits_and_at_tenfold_a_tenth() {
        let mut pace = Pace {
            speed: Speed::Max,
            begin: None,
        };
        assert!(!pace.is_early(0) && !pace.is_early(u64::MAX));
        let mut pace = Pace {
            speed: Speed::Times(10.0),
            begin: None,
        };
        assert!(!pace.is_early(5_000_000_000));
        let due = pace.due(605_000_000_000);
        assert!(
            due > Some(Duration::from_secs(50)) && due <= Some(Duration::from_secs(60)),
            "{due:?}"
        );
    }
}
