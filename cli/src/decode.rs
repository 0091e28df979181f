//! `hopwise decode`: prints the contents of captures (pcap, pcapng) one by one, without state between them: telemetry
//! reports, postcard aggregates, DTA and RoCEv2 messages, or, with `--packets`, the INT and IOAM in data packets.
//!
//! The UDP destination port selects the decoder. Reports go to standard output, the summary and hints to standard error.

mod aggregate;
mod dta;
mod hint;
mod json;
mod plausibility;
mod text;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, net::IpAddr, process::ExitCode};

use nic::capture::Layer;
use wire::report::{Decoder, Peek, peek};
use wire::{Aggregate, Hop, Refusal};
use wire::{frame::Datagram, packet::Contents};

use self::{hint::ProfileHint, plausibility::PlausibilityCheck};
use collect_role::capture::{self, Account, CapturedFrame};
use collect_role::datagram::{Profiles, octets};
use collect_role::settings::receive_on;
use config::Settings;
use terminal::progress::Progress;
use terminal::{CliError, Terminal, units};

/// Print the reports in a capture
///
/// Prints one block per report, or with --json one object per line, and a summary by version and refusal reason on
/// standard error. Exit code 2 if a file cannot be read completely; what was read before is printed.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise decode reports.pcap
  hopwise decode --profile onos --json capture.pcapng.gz | head
  hopwise decode --port 32766 --port 5000 reports.pcap
  hopwise decode --aggregate-port 5001 server.pcap
  hopwise decode --roce-port 4791 --roce-port 14791 rdma.pcap
  hopwise decode --packets link.pcap         print the INT in data packets
  tcpdump -i eth1 -U -w - udp | hopwise decode -

DTA is decoded on UDP ports 40040 (reports, including the artifact's) and 40044 (control messages).
The ICRC of RoCEv2 covers the UDP destination port. hopwise computes it for port 4791 on every port, and so does this command:
it fits an RDMA device behind a port translation; other analysers find it wrong on other ports.")]
pub struct Args {
    /// Captures: pcap or pcapng, optionally gzipped; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// One JSON object per report
    #[arg(long)]
    pub(crate) json: bool,

    /// Profile: strict, geant, hostint, intcollector-gen, onos, p4int, or one of the configuration (default: as configured per
    /// source, otherwise strict)
    #[arg(long)]
    pub(crate) profile: Option<String>,

    /// UDP port of reports; may be repeated
    #[arg(
        long = "port",
        value_name = "PORT",
        default_value = "32766",
        conflicts_with = "packets"
    )]
    pub(crate) ports: Vec<u16>,

    /// UDP port of postcard aggregates; may be repeated
    #[arg(
        long = "aggregate-port",
        value_name = "PORT",
        default_value = "32767",
        conflicts_with = "packets"
    )]
    pub(crate) aggregate_ports: Vec<u16>,

    /// UDP port of RoCEv2; may be repeated. With --config also the port of `[collector.memory] listen` and `[translator] source_port`
    #[arg(
        long = "roce-port",
        value_name = "PORT",
        default_value = "4791",
        conflicts_with = "packets"
    )]
    pub(crate) roce_ports: Vec<u16>,

    /// Print the INT in data packets instead of reports
    #[arg(long)]
    pub(crate) packets: bool,

    /// Configuration file: profiles and sources
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Runs `hopwise decode`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let settings = Settings::load(args.config.as_deref())?;
    let mut profiles = settings.collect().wire_profiles();
    let (default, by_source) = settings.collect().resolve_profiles();
    let mut plausibility = PlausibilityCheck {
        default,
        by_source,
        nodes: settings.collect().node_profiles(),
    };
    if let Some(name) = &args.profile {
        plausibility.default = super::profile::named(name, &settings)?;
        plausibility.by_source.clear();
        profiles = Profiles {
            default: plausibility.default.wire,
            by_source: Vec::new(),
        };
    }
    receive_on(&mut profiles.default, &args.ports).map_err(CliError::new)?;
    for (_, profile) in &mut profiles.by_source {
        receive_on(profile, &args.ports).map_err(CliError::new)?;
    }
    let mut printer = Printer {
        decoder: Decoder::new(profiles.default),
        profiles,
        plausibility,
        aggregate_ports: args.aggregate_ports,
        roce_ports: [args.roce_ports, roce_ports(&settings)].concat(),
        json: args.json,
        out: BufWriter::with_capacity(1 << 16, terminal::stdout()),
        is_live: false,
        line: String::new(),
        summary: Summary::default(),
        hint: ProfileHint::default(),
    };
    // On a terminal the reports are printed as they are decoded; a progress bar would interleave with them.
    let progress = Progress::new("decoding", "frames", capture::total_bytes(&args.files));
    let progress = progress.silenced(Terminal::stdout().interactive);
    let mut read_progress = ReadProgress {
        account: Account::default(),
        progress,
    };
    let mut last_error = None;
    for file in &args.files {
        printer.is_live = capture::is_live(file);
        let result = if args.packets {
            printer.packets(file, &mut read_progress)
        } else {
            printer.reports(file, &args.ports, &mut read_progress)
        };
        match result {
            Err(error) if error.is_closed_output() => return Err(error),
            // A broken file must not hide the others: print the earlier error now, return the last one at the end.
            Err(error) => {
                if let Some(earlier) = last_error.replace(error) {
                    terminal::note(earlier);
                }
            }
            Ok(()) => {}
        }
    }
    printer.out.flush().map_err(CliError::output)?;
    read_progress.progress.finish();
    let noun = if args.packets { "INT packet" } else { "report" };
    let text = format!(
        "{}{}",
        printer.summary.text(&read_progress.account, noun),
        printer.hint.text()
    );
    let _ = terminal::stderr().write_all(text.as_bytes());
    last_error.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Returns the UDP ports of RoCEv2 in the configuration; port 0 is chosen at run time and unknown here.
fn roce_ports(settings: &Settings) -> Vec<u16> {
    let memory = settings
        .collector
        .memory
        .as_ref()
        .map(|memory| memory.listen.port());
    let translator = settings
        .translator
        .as_ref()
        .map(|translator| translator.source_port);
    memory
        .into_iter()
        .chain(translator)
        .filter(|port| *port != 0)
        .collect()
}

/// Frame counters of the captures, and the progress bar.
struct ReadProgress {
    account: Account,
    progress: Progress,
}

/// Decodes, prints and counts the contents of captures.
struct Printer {
    decoder: Decoder,
    profiles: Profiles,
    plausibility: PlausibilityCheck,
    aggregate_ports: Vec<u16>,
    roce_ports: Vec<u16>,
    json: bool,
    out: BufWriter<terminal::Output<io::Stdout>>,
    /// True if frames arrive while they are captured; then each is flushed at once.
    is_live: bool,
    line: String,
    summary: Summary,
    hint: ProfileHint,
}

impl Printer {
    fn reports(
        &mut self,
        file: &Path,
        ports: &[u16],
        read_progress: &mut ReadProgress,
    ) -> Result<(), CliError> {
        let ReadProgress { account, progress } = read_progress;
        let roce_ports = self.roce_ports.clone();
        let read_ports = [ports, &self.aggregate_ports, &dta::PORTS, &roce_ports].concat();
        let dta_ports = dta::Ports {
            reports: ports,
            roce: &roce_ports,
        };
        capture::read(file, &read_ports, account, progress, |ts, frame| match frame {
            CapturedFrame::Datagram(datagram, _) if self.aggregate_ports.contains(&datagram.dst_port) => {
                self.aggregate(ts, &datagram)
            }
            CapturedFrame::Datagram(datagram, layer) => {
                match dta::parse(dta_ports, &datagram, layer, &mut Vec::new()) {
                    Some(message) => self.dta(ts, datagram.src, &message),
                    None => self.datagram(ts, &datagram),
                }
            }
            CapturedFrame::Refused(refusal, source) => self.refused(ts, source, refusal),
        })
    }

    fn packets(&mut self, file: &Path, read_progress: &mut ReadProgress) -> Result<(), CliError> {
        let ReadProgress { account, progress } = read_progress;
        capture::frames(file, account, progress, |account, frame| {
            let ts = frame.ts;
            let Layer::Ethernet(bytes) = frame.layer() else {
                *account.skipped.entry("not_ethernet").or_default() += 1;
                return Ok(());
            };
            let contents = match wire::packet::contents(bytes, &self.profiles.default) {
                Ok(contents) if contents.int.is_some() || contents.ioam.is_some() => contents,
                Ok(_) => {
                    *account.skipped.entry("no_int").or_default() += 1;
                    return Ok(());
                }
                Err(refusal @ (Refusal::NotIp | Refusal::NotUdp | Refusal::Fragment)) => {
                    *account.skipped.entry(refusal.name()).or_default() += 1;
                    return Ok(());
                }
                Err(refusal) => {
                    *account.refused.entry(refusal.name()).or_default() += 1;
                    return self.refused(ts, None, refusal);
                }
            };
            let version = contents.int.map_or("ioam", |int| int.version.name());
            self.summary.count(Ok(version));
            account.datagrams += 1;
            self.line.clear();
            if self.json {
                json::packet(&mut self.line, ts, &contents, self.plausibility.for_packets());
            } else {
                text::packet(&mut self.line, ts, &contents, self.plausibility.for_packets());
            }
            self.print()
        })
    }

    fn datagram(&mut self, ts: u64, datagram: &Datagram<'_>) -> Result<(), CliError> {
        let plausibility = self.plausibility.for_source(&octets(datagram.src));
        let profile = self.profiles.of_source(&octets(datagram.src));
        if self.decoder.profile() != profile {
            self.decoder = Decoder::new(*profile);
        }
        let mut is_refused = true;
        // Read once, and only if a report is refused: a datagram may have thousands of refused reports.
        let mut peeked = None;
        for (index, report) in self.decoder.reports(datagram.payload).enumerate() {
            is_refused &= report.is_err();
            self.line.clear();
            match &report {
                Ok(report) if self.json => {
                    json::report(&mut self.line, ts, datagram.src, report, plausibility)
                }
                Ok(report) => text::report(&mut self.line, ts, datagram.src, report, plausibility),
                Err(refusal) => {
                    // `peek` gives the flow of the datagram's first report only.
                    let peeked = *peeked.get_or_insert_with(|| peek(datagram.payload, profile).ok());
                    let peeked = peeked.map(|peeked| Peek {
                        flow: peeked.flow.filter(|_| index == 0),
                        ..peeked
                    });
                    let context = RefusedReport {
                        ts,
                        source: Some(datagram.src),
                        peeked,
                        refusal: *refusal,
                    };
                    context.write(&mut self.line, self.json);
                }
            }
            self.summary.count(report.map(|report| report.version.name()));
            self.out
                .write_all(self.line.as_bytes())
                .map_err(CliError::output)?;
        }
        if is_refused {
            self.hint.try_others(datagram.payload, profile);
        }
        self.flush_if_live()
    }

    /// Prints an aggregate. Only the port identifies it: its first bytes could be a Report 1.0.
    fn aggregate(&mut self, ts: u64, datagram: &Datagram<'_>) -> Result<(), CliError> {
        match Aggregate::parse(datagram.payload) {
            Ok(aggregate) => {
                *self
                    .summary
                    .aggregates
                    .entry(aggregate.header().kind.name())
                    .or_default() += 1;
                self.line.clear();
                aggregate::write(&mut self.line, ts, datagram.src, &aggregate, self.json);
                self.print()
            }
            Err(refusal) => {
                self.summary.count(Err(refusal));
                self.refused(ts, Some(datagram.src), refusal)
            }
        }
    }

    /// Prints a message of DTA or RoCEv2, identified by its port.
    fn dta(
        &mut self,
        ts: u64,
        source: IpAddr,
        message: &Result<dta::Message<'_>, Refusal>,
    ) -> Result<(), CliError> {
        match message {
            Ok(message) => {
                *self.summary.dta.entry(message.name()).or_default() += 1;
                self.line.clear();
                dta::write(&mut self.line, ts, source, message, self.json);
                self.print()
            }
            Err(refusal) => {
                self.summary.count(Err(*refusal));
                self.refused(ts, Some(source), *refusal)
            }
        }
    }

    fn refused(&mut self, ts: u64, source: Option<IpAddr>, refusal: Refusal) -> Result<(), CliError> {
        self.line.clear();
        RefusedReport {
            ts,
            source,
            peeked: None,
            refusal,
        }
        .write(&mut self.line, self.json);
        self.print()
    }

    fn print(&mut self) -> Result<(), CliError> {
        self.out
            .write_all(self.line.as_bytes())
            .map_err(CliError::output)?;
        self.flush_if_live()
    }

    fn flush_if_live(&mut self) -> Result<(), CliError> {
        if self.is_live {
            self.out.flush().map_err(CliError::output)
        } else {
            Ok(())
        }
    }
}

/// Returns the hops of a data packet in forwarding order. An INT stack has the latest hop first; `Ioam::hop` reorders a trace.
fn hops(contents: &Contents<'_>) -> Vec<Hop> {
    match (&contents.int, &contents.ioam) {
        (_, Some(ioam)) if contents.is_traced() => {
            (0..ioam.hop_count()).map(|index| ioam.hop(index)).collect()
        }
        (Some(int), _) => (0..int.stack.len())
            .rev()
            .map(|index| int.stack.hop(index))
            .collect(),
        (None, _) => Vec::new(),
    }
}

/// Refused frame or report with the fields that could be read.
#[derive(Debug)]
struct RefusedReport {
    ts: u64,
    source: Option<IpAddr>,
    peeked: Option<Peek>,
    refusal: Refusal,
}

impl RefusedReport {
    fn write(&self, out: &mut String, json: bool) {
        if json {
            json::refused(out, self)
        } else {
            text::refused(out, self)
        }
    }
}

/// Counts of the printed contents, for the summary.
#[derive(Default, Debug)]
struct Summary {
    reports: BTreeMap<&'static str, u64>,
    aggregates: BTreeMap<&'static str, u64>,
    dta: BTreeMap<&'static str, u64>,
    refused: BTreeMap<&'static str, u64>,
}

impl Summary {
    fn count(&mut self, outcome: Result<&'static str, Refusal>) {
        let slot = match outcome {
            Ok(version) => self.reports.entry(version),
            Err(refusal) => self.refused.entry(refusal.name()),
        };
        *slot.or_default() += 1;
    }

    /// Formats a line by version and kind and, if there are any, a line by reason of refusal and one of skipped frames.
    fn text(&self, account: &Account, noun: &str) -> String {
        let mut refused = self.refused.clone();
        for (reason, count) in &account.refused {
            *refused.entry(reason).or_default() += count;
        }
        let frames = units::counted(account.frames, "frame");
        let total = units::counted(self.reports.values().sum(), noun);
        let mut out = format!("{frames}, {total}{}", parts(&self.reports, "version "));
        if !self.aggregates.is_empty() {
            let total = units::counted(self.aggregates.values().sum(), "aggregate");
            out.push_str(&format!(", {total}{}", parts(&self.aggregates, "")));
        }
        if !self.dta.is_empty() {
            let total = units::counted(self.dta.values().sum(), "message");
            out.push_str(&format!(", {total} of DTA{}", parts(&self.dta, "")));
        }
        out.push('\n');
        if !refused.is_empty() {
            let total = units::count(refused.values().sum());
            out.push_str(&format!("refused: {total}{}\n", parts(&refused, "")));
        }
        if account.skipped_total() > 0 {
            let total = units::count(account.skipped_total());
            out.push_str(&format!(
                "skipped, not telemetry: {total}{}\n",
                parts(&account.skipped, "")
            ));
        }
        let nothing = self.reports.is_empty() && self.aggregates.is_empty() && self.dta.is_empty();
        if nothing && refused.is_empty() && account.skipped.contains_key("other_port") {
            out.push_str(
                "`--packets` prints the INT in data packets; `--port` names another port of reports\n",
            );
        }
        out
    }
}

/// Formats counts as ` (version 1.0: 12, version 2.0: 3)`, or as an empty string if there are none.
fn parts(counts: &BTreeMap<&'static str, u64>, prefix: &str) -> String {
    if counts.is_empty() {
        return String::new();
    }
    let parts: Vec<String> = counts
        .iter()
        .map(|(name, count)| format!("{prefix}{name}: {}", units::count(*count)))
        .collect();
    format!(" ({})", parts.join(", "))
}
