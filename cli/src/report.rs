//! `hopwise report`: acts as a DTA reporter. Sends one report (Key-Write, Append, Key-Increment, Postcard, Sketch-Merge) or a
//! load of them to a translator, and waits for acknowledgements of essential reports.

mod load;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::{path::PathBuf, process::ExitCode, time::Duration};

use ::dta::report_text;
use clap::{Subcommand, ValueEnum};
use dataplane::dta::{self, MAX_COLLECTORS, Outbox, Reporter, SendError, SendOptions, Spread};
use nic::time;
use wire::dta::{CONTROL_PORT, MergeOp, Operation, Priority};

use runtime::{
    collector_map,
    reporter::{Sockets, first_sequence},
};
use terminal::{CliError, units};

/// Maximum length of a report that is retransmitted, bytes.
const MAX_ESSENTIAL_LEN: usize = 1400;

/// Send DTA reports to a translator: a single one, or many at a rate
///
/// Direct Telemetry Access: a report names an operation on collector memory, and the translator on the path converts it
/// to RDMA. With --essential the report is numbered and retransmitted on request; the command then waits until translators acknowledge it.
/// Exit code 1 when a report was refused, could not be sent, or was not acknowledged in time.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise report --to 10.0.0.9:40040 key-write --store 1 --key '10.0.0.1:1234>10.0.0.2:80/6' --data 0000000b0000000c
  hopwise report append --list 5 --entry a0a1a2a3 --entry b0b1b2b3 --immediate
  hopwise report --essential --priority high key-increment --store 2 --key 10.0.0.1 --by 5
  hopwise report postcard --store 3 --key '10.0.0.1:1234>10.0.0.2:80/6' --hop 2 --path-len 3 --value 12
  hopwise report --map map.json key-write --store 1 --key 10.0.0.1 --data 0000000b   to the collector that has the key
  hopwise report sketch --sketch 4 --epoch 17 --depth 2 --counters 1,2,3,4
  hopwise report load key-write --store 1 --rate 100000 --count 1000000 --keys 50000")]
pub struct Args {
    /// Address of a collector, for which its translator receives reports; keys are distributed over several, in the given order
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:40040",
        global = true
    )]
    to: Vec<SocketAddr>,

    /// Send to the collectors of this map (see `hopwise map`) instead of --to
    #[arg(long, value_name = "FILE", conflicts_with = "to", global = true)]
    map: Option<PathBuf>,

    /// ID of this reporter
    #[arg(long, value_name = "ID", default_value_t = 1, global = true)]
    reporter: u32,

    /// Priority under congestion: `low` is dropped first
    #[arg(long, value_enum, default_value_t = PriorityArg::Medium, global = true)]
    priority: PriorityArg,

    /// Deliver reliably: repeat a report until it is acknowledged
    #[arg(long, global = true)]
    essential: bool,

    /// Notify the collector's CPU immediately
    #[arg(long, global = true)]
    immediate: bool,

    /// Address that receives responses of translators; default: port 40044 of every address with --essential or load, otherwise none
    #[arg(long, value_name = "ADDRESS", global = true)]
    control: Option<SocketAddr>,

    /// Time to wait for an acknowledgement after the last essential report or response, ms; 0: do not wait
    #[arg(long, value_name = "MS", default_value_t = 5000, global = true)]
    wait: u64,

    /// Print the counters as one JSON object
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    request: RequestKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PriorityArg {
    Low,
    Medium,
    High,
}

#[derive(Subcommand, Debug)]
enum RequestKind {
    /// Write a value for a key
    KeyWrite(KeyWrite),
    /// Append entries to a list
    Append(Append),
    /// Add to the counter of a key
    KeyIncrement(KeyIncrement),
    /// Report one hop of the path of a key
    Postcard(Postcard),
    /// Send columns of a sketch
    Sketch(Sketch),
    /// Send many reports at a rate
    Load(load::Args),
}

#[derive(clap::Args, Debug)]
struct KeyWrite {
    /// ID of the store
    #[arg(long)]
    store: u16,
    /// A flow as SRC:PORT>DST:PORT/PROTO, an address, a number (4 bytes), or bytes as 0x0a000001
    #[arg(long, value_parser = report_text::key)]
    key: report_text::Bytes,
    /// The value, as hexadecimal digits
    #[arg(long, value_name = "HEX", value_parser = report_text::hex)]
    data: report_text::Bytes,
    /// Number of copies, 1 to 4
    #[arg(long, default_value_t = 2)]
    copies: u8,
}

#[derive(clap::Args, Debug)]
struct Append {
    /// ID of the list
    #[arg(long)]
    list: u32,
    /// An entry, as hexadecimal digits; several entries have the same length and share a report
    #[arg(long, value_name = "HEX", required = true, value_parser = report_text::hex)]
    entry: Vec<report_text::Bytes>,
}

#[derive(clap::Args, Debug)]
struct KeyIncrement {
    /// ID of the store
    #[arg(long)]
    store: u16,
    /// A flow as SRC:PORT>DST:PORT/PROTO, an address, a number (4 bytes), or bytes as 0x0a000001
    #[arg(long, value_parser = report_text::key)]
    key: report_text::Bytes,
    /// Number to add to the counter
    #[arg(long, default_value_t = 1)]
    by: u64,
    /// Number of counters, 1 to 4
    #[arg(long, default_value_t = 2)]
    copies: u8,
}

#[derive(clap::Args, Debug)]
struct Postcard {
    /// ID of the store
    #[arg(long)]
    store: u16,
    /// A flow as SRC:PORT>DST:PORT/PROTO, an address, a number (4 bytes), or bytes as 0x0a000001
    #[arg(long, value_parser = report_text::key)]
    key: report_text::Bytes,
    /// Number of the hop, from 1
    #[arg(long)]
    hop: u8,
    /// Number of hops of the path; 0: unknown
    #[arg(long, default_value_t = 0)]
    path_len: u8,
    /// Value of the hop, such as its node id
    #[arg(long)]
    value: u32,
}

#[derive(clap::Args, Debug)]
struct Sketch {
    /// ID of the sketch
    #[arg(long)]
    sketch: u16,
    /// Epoch of the sketch
    #[arg(long, default_value_t = 0)]
    epoch: u16,
    /// Index of the first column
    #[arg(long, default_value_t = 0)]
    first: u32,
    /// Number of rows of the sketch
    #[arg(long, default_value_t = 1)]
    depth: u8,
    /// Bytes of a counter, 4 or 8
    #[arg(long, default_value_t = 4)]
    width: u8,
    /// Operation that merges counters: sum, max, min or sample
    #[arg(long, default_value = "sum", value_parser = report_text::merge_op)]
    op: MergeOp,
    /// Counters, column by column
    #[arg(long, value_delimiter = ',', required = true)]
    counters: Vec<u64>,
}

/// Reporter with its sockets, options and counters.
pub(super) struct ReportSender {
    pub(super) reporter: Reporter,
    pub(super) outbox: Outbox,
    pub(super) sockets: Sockets,
    pub(super) options: SendOptions,
    json: bool,
    /// Number of reports suppressed because of congestion.
    pub(super) suppressed: u64,
    pub(super) queue_full: u64,
    /// Number of collectors whose translator did not acknowledge all essential reports in time.
    unacknowledged: u64,
}

/// Runs `hopwise report`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let mut sender = ReportSender::open(&args)?;
    match &args.request {
        RequestKind::Load(load) => load::run(load, &mut sender)?,
        label => {
            let mut scratch = Vec::new();
            let operation = label.operation(&mut scratch)?;
            operation
                .check()
                .map_err(|refusal| CliError::new(format!("no such report: {refusal}")))?;
            sender.send(&operation);
            sender.poll(0);
        }
    }
    if args.essential && args.wait > 0 {
        sender.settle(Duration::from_millis(args.wait));
    }
    sender.summarize()
}

impl RequestKind {
    fn operation<'a>(&'a self, scratch: &'a mut Vec<u8>) -> Result<Operation<'a>, CliError> {
        Ok(match self {
            Self::KeyWrite(KeyWrite {
                store,
                key,
                data,
                copies,
            }) => Operation::KeyWrite {
                copies: *copies,
                store: *store,
                key: &key.0,
                data: &data.0,
            },
            Self::Append(Append { list, entry }) => {
                let len = entry.first().map_or(0, |entry| entry.0.len());
                if entry.iter().any(|entry| entry.0.len() != len) {
                    return Err(CliError::new(
                        "the entries differ in length; a list has entries of one length",
                    ));
                }
                entry.iter().for_each(|entry| scratch.extend_from_slice(&entry.0));
                let entry_len = u16::try_from(len).unwrap_or(u16::MAX);
                Operation::Append {
                    list: *list,
                    entry_len,
                    entries: scratch,
                }
            }
            Self::KeyIncrement(KeyIncrement {
                store,
                key,
                by,
                copies,
            }) => Operation::KeyIncrement {
                copies: *copies,
                store: *store,
                delta: *by,
                key: &key.0,
            },
            Self::Postcard(Postcard {
                store,
                key,
                hop,
                path_len,
                value,
            }) => Operation::Postcard {
                hop: *hop,
                path_len: *path_len,
                store: *store,
                value: *value,
                key: &key.0,
            },
            Self::Sketch(sketch) => sketch.operation(scratch)?,
            Self::Load(_) => return Err(CliError::new("a load is not a single report")),
        })
    }
}

impl Sketch {
    fn operation<'a>(&self, scratch: &'a mut Vec<u8>) -> Result<Operation<'a>, CliError> {
        let columns = self.counters.len() / usize::from(self.depth).max(1);
        if columns * usize::from(self.depth) != self.counters.len()
            || columns > 255
            || !matches!(self.width, 4 | 8)
        {
            let text = "counters must fill 1 to 255 columns of --depth rows; --width is 4 or 8 bytes";
            return Err(CliError::new(text));
        }
        let max = if self.width == 4 {
            u64::from(u32::MAX)
        } else {
            u64::MAX
        };
        if let Some(counter) = self.counters.iter().find(|counter| **counter > max) {
            return Err(CliError::new(format!(
                "{counter} does not fit into {} bytes; use --width 8",
                self.width
            )));
        }
        for counter in &self.counters {
            scratch.extend_from_slice(&counter.to_be_bytes()[8 - usize::from(self.width)..]);
        }
        Ok(Operation::SketchMerge {
            sketch: self.sketch,
            epoch: self.epoch,
            first_column: self.first,
            depth: self.depth,
            width: self.width,
            op: self.op,
            columns: columns as u8,
            counters: scratch,
        })
    }
}

impl Args {
    /// Returns the addresses for reports, and the assignment of keys to them.
    fn collectors(&self) -> Result<(Vec<SocketAddr>, Spread), CliError> {
        let Some(file) = &self.map else {
            return Ok((self.to.clone(), Spread::even(self.to.len())));
        };
        let map = collector_map::load(file)?;
        map.reports()
            .and_then(|reports| Ok((reports, map.spread()?)))
            .map_err(|error| CliError::new(format!("{}: {error}", file.display())))
    }
}

impl ReportSender {
    /// Opens the sockets, all of one IP version, and creates the reporter.
    fn open(args: &Args) -> Result<Self, CliError> {
        let (to, spread) = args.collectors()?;
        let is_ipv6 = to.iter().any(SocketAddr::is_ipv6);
        let is_too_many = to.len() > MAX_COLLECTORS;
        if is_too_many || is_ipv6 != to.iter().all(SocketAddr::is_ipv6) {
            let text = format!("name 1 to {MAX_COLLECTORS} collectors, all by IPv4 or all by IPv6");
            return Err(CliError::new(text));
        }
        let wildcard = if is_ipv6 {
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            Ipv4Addr::UNSPECIFIED.into()
        };
        let expects_answers = args.essential || matches!(args.request, RequestKind::Load(_));
        let control = args.control.unwrap_or(SocketAddr::new(
            wildcard,
            if expects_answers { CONTROL_PORT } else { 0 },
        ));
        let sockets = Sockets::open(&to, control).map_err(|error| {
            CliError::new(format!(
                "{error} (if a reporter runs here already, choose another address with --control)"
            ))
        })?;
        let priority = match args.priority {
            PriorityArg::Low => Priority::Low,
            PriorityArg::Medium => Priority::Medium,
            PriorityArg::High => Priority::High,
        };
        let options = SendOptions {
            priority,
            essential: args.essential,
            immediate: args.immediate,
        };
        let config = dta::Config {
            reporter: args.reporter,
            spread,
            max_essential_len: if args.essential { MAX_ESSENTIAL_LEN } else { 0 },
            first_sequence: first_sequence(time::now()),
            ..dta::Config::default()
        };
        let reporter = Reporter::new(config).map_err(|error| CliError::new(error.to_string()))?;
        let outbox = Outbox::default();
        let json = args.json;
        Ok(Self {
            reporter,
            outbox,
            sockets,
            options,
            json,
            suppressed: 0,
            queue_full: 0,
            unacknowledged: 0,
        })
    }

    /// Queues a report, or counts it if congestion suppresses it or the queue is full.
    pub(super) fn send(&mut self, operation: &Operation<'_>) {
        match self
            .reporter
            .send(operation, self.options, time::monotonic(), &mut self.outbox)
        {
            Ok(()) => {}
            Err(SendError::Suppressed) => self.suppressed += 1,
            Err(SendError::NoRoom) => self.queue_full += 1,
        }
    }

    /// Sends queued reports and processes responses; waits at most `timeout` ms for the first response.
    pub(super) fn poll(&mut self, timeout: u32) {
        let Self {
            reporter,
            outbox,
            sockets,
            ..
        } = self;
        sockets.send(outbox);
        sockets.receive(timeout, |collector, payload| {
            reporter.control(collector, payload, time::monotonic(), outbox);
        });
        reporter.tick(time::monotonic(), outbox);
        sockets.send(outbox);
    }

    /// Processes responses until all essential reports are acknowledged, or no response arrived for `timeout`.
    fn settle(&mut self, timeout: Duration) {
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let mut last = self.reporter.stats().controls;
        let mut until = time::monotonic().saturating_add(timeout);
        loop {
            let now = time::monotonic();
            let destinations = self.reporter.destinations(now);
            self.unacknowledged = destinations
                .filter(|destination| !destination.acknowledged && destination.stats.refused == 0)
                .count() as u64;
            if self.unacknowledged == 0 {
                return;
            }
            // Poll before the timeout is checked: after a time without CPU, responses may be waiting in the socket.
            self.poll(5);
            let controls = self.reporter.stats().controls;
            if controls != last {
                last = controls;
                until = time::monotonic().saturating_add(timeout);
            } else if now >= until {
                return;
            }
        }
    }

    /// Prints the counters. Exit code 1 if no report was sent, or if one was lost, refused or not acknowledged.
    fn summarize(&self) -> Result<ExitCode, CliError> {
        let stats = self.reporter.stats();
        let sockets = self.sockets.stats;
        let mut total = dta::DestinationStats::default();
        for destination in self.reporter.destinations(time::monotonic()) {
            total.retransmitted += destination.stats.retransmitted;
            total.probes += destination.stats.probes;
            total.nacks += destination.stats.nacks;
            total.refused += destination.stats.refused;
            total.congestions += destination.stats.congestions;
            total.unavailable += destination.stats.unavailable + destination.stats.overwritten;
        }
        let summary = serde_json::json!({
            "reports": stats.reports,
            "sent": sockets.sent,
            "retransmitted": total.retransmitted,
            "probes": total.probes,
            "nacks": total.nacks,
            "refused": total.refused,
            "congestions": total.congestions,
            "unavailable": total.unavailable,
            "suppressed": self.suppressed,
            "queue_full": self.queue_full,
            "unsent": sockets.lost,
            "unacknowledged": self.unacknowledged,
        });
        let text = if self.json {
            format!("{summary}\n")
        } else {
            self.summary_text(&total)
        };
        terminal::print(&text)?;
        let failures =
            total.refused + total.unavailable + sockets.lost + self.queue_full + self.unacknowledged;
        Ok(if failures == 0 && stats.reports > 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(1)
        })
    }

    fn summary_text(&self, total: &dta::DestinationStats) -> String {
        let mut parts = vec![format!(
            "{} sent",
            units::counted(self.reporter.stats().reports, "report")
        )];
        let lost = self.sockets.stats.lost;
        for (count, label) in [
            (total.retransmitted, "retransmitted"),
            (total.nacks, "NACK(s)"),
            (
                total.refused,
                "refused: check that the store or list exists (`hopwise stores`)",
            ),
            (total.congestions, "congestion notice(s)"),
            (self.suppressed, "suppressed because of congestion"),
            (total.unavailable, "requested too late to retransmit"),
            (self.queue_full, "dropped: the send queue was full"),
            (
                self.unacknowledged,
                "translator(s) did not acknowledge in time: the last reports may be missing; see --wait",
            ),
            (
                lost,
                "could not be sent: check the route to the collector (`ip route get ADDRESS`)",
            ),
        ] {
            if count > 0 {
                parts.push(format!("{} {label}", units::count(count)));
            }
        }
        parts.join(", ") + "\n"
    }
}
