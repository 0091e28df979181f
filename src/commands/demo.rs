//! `hopwise demo`: simulates a leaf-spine network whose switches send INT reports over loopback UDP to a collector here.
//!
//! At the end, it compares the datagrams that were sent with the collector's counters and prints the loss budget: every
//! datagram must be accounted for as received, lost in the network (a gap in sequence numbers), or dropped by the kernel.

mod devices;
mod dta;
mod network;
mod past;
mod streams;

use model::{NodeEntry, ProfileSettings, RuleSettings};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io::ErrorKind, os::unix::fs::DirBuilderExt, sync::Arc, thread};

use dataplane::{demo, fabric::Kind};
use detect::Metric;
use settings::listen::Listen;
use settings::values::{Clocks, LatencyThreshold, QueueThreshold, UtilizationThreshold};

use self::dta::{DtaCounters, DtaTotals};
use self::{network::Network, streams::DatagramTotals};
use crate::{lifecycle::Server, log::Log};
use api::pages;
use cli::remote::fetch;
use config::Settings;
use config::sections::{Level, LogFormat};
use net::client::Client;
use switch_role::settings::dta::DtaSettings;
use terminal::{Align, CliError, Table, Terminal, Tone, units};
use view::{Stage, StatusView};

/// Length of a minute, ns.
const MINUTE: u64 = 60_000_000_000;
/// Maximum wait for the counters to settle at the end: a report counts as lost once its stream has been silent for two
/// seconds, and a busy machine needs more.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Text of the verdict if the sums agree.
const ALL_ACCOUNTED: &str = "every one is accounted for.";

/// Run a simulated network with a real collector
///
/// Four leaf switches, two spines and eight hosts send about ten thousand reports per second over loopback. They report by DTA as
/// well, through a translator into the collector's memory, which answers `get`, `count`, `sketch` and `tail`. Every minute
/// there are microbursts, and a link that fails and is restored. Needs no root, no hardware, no configuration. Ctrl-C ends it
/// and prints whether every report is accounted for.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise demo                          then open the address that it prints
  hopwise demo --seed 7 --for 90        a different random seed, for 90 seconds
  hopwise demo --past 30                with half an hour of stored history; takes a minute or two to start
  hopwise demo --store /tmp/demo        keep the store, for `hopwise query --dir /tmp/demo`")]
pub(crate) struct Args {
    /// Seed of the simulation
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Serve the pages and the API here; falls back to a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,

    /// Stop after this number of seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: Option<u64>,

    /// Open the pages in the browser
    #[arg(long)]
    pub(crate) open: bool,

    /// Directory of the store; by default a temporary directory, deleted at the end
    #[arg(long, value_name = "DIR", conflicts_with = "no_store")]
    pub(crate) store: Option<PathBuf>,

    /// Start with this many minutes of stored history, simulated as fast as this machine can
    #[arg(long, value_name = "MINUTES", conflicts_with = "no_store", value_parser = clap::value_parser!(u64).range(1..=1_320))]
    pub(crate) past: Option<u64>,

    /// Store nothing on disk, except the collector's memory (under 1 MiB) if there is no /dev/shm
    #[arg(long)]
    pub(crate) no_store: bool,
}

/// Runs the demo until Ctrl-C or the end of `--for`, and prints the loss budget.
pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let scratch = (!args.no_store && args.store.is_none()).then(|| Scratch::new(&std::env::temp_dir()));
    let scratch = scratch.transpose()?;
    let dir = args
        .store
        .as_deref()
        .or(scratch.as_ref().map(|scratch| scratch.0.as_path()));
    let memory = Scratch::in_memory()?;
    let past = Duration::from_secs(60 * args.past.unwrap_or(0));
    let (mut network, names) = Network::new(args.seed, past)?;
    let (mut settings, reporters) = settings(args.listen, dir, names)?;
    dta::set_runtime_values(&mut settings, &memory.0, network.open_control_sockets()?);
    settings.check_protection().map_err(CliError::new)?;
    devices::add_manager_settings(&mut settings, network.fabric())?;
    if let (Some(dir), Some(_)) = (dir, args.past)
        && !past::simulate(&mut network, &settings, dir, past)?
    {
        return Ok(ExitCode::SUCCESS);
    }
    // Only now: the simulation of the past may have taken minutes, and another program the port.
    let listen = free_address(args.listen);
    settings.api.listen = listen;
    let mut server =
        Server::new(settings, None, Log::start(Level::Warn, LogFormat::Text)).with_devices(network.manage()?);
    let addresses = server.start()?;
    let (Some(input), Some(translator)) = (addresses.inputs.first(), addresses.dta.first()) else {
        return Err(CliError::new(
            "the collector has no listener; this is a fault of this build",
        ));
    };
    let input = *input;
    let url = format!("http://{}", addresses.api);
    // No token: the demo configures none.
    let client = Client::new(&url, None)?;
    dta::wait_until_connected(&client)?;
    network.attach_reporters(*translator, &reporters)?;
    devices::add_intents(&client, || network.execute_commands())?;
    introduce(
        &url,
        input,
        *translator,
        (listen != args.listen).then_some(args.listen),
        &network,
        dir,
    )?;
    if args.open {
        open(&url);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let running = start(network, input, &server, &args, &stop)?;
    let wait_result = server.wait();
    // Relaxed: no other data depends on the flag, and `join` below synchronizes the rest.
    stop.store(true, Ordering::Relaxed);
    let (sent, reported) = running
        .join()
        .map_err(|_| CliError::new("the simulation panicked"))??;
    let conclusion = conclude(&client, &sent, &reported);
    server.stop();
    wait_result.and(conclusion).map(|()| ExitCode::SUCCESS)
}

/// Thread that runs the network. It returns the totals of INT datagrams and of DTA reports.
type Running = thread::JoinHandle<Result<(DatagramTotals, DtaTotals), CliError>>;

/// Runs the network on its own thread, which stops the server when the time is over or the network fails.
fn start(
    network: Network,
    input: SocketAddr,
    server: &Server,
    args: &Args,
    stop: &Arc<AtomicBool>,
) -> Result<Running, CliError> {
    let control = server.control();
    let stop = Arc::clone(stop);
    let span = args.seconds.map(Duration::from_secs);
    thread::Builder::new()
        .name("network".to_owned())
        .spawn(move || {
            let sent = network.run(input, span, &stop);
            control.stop();
            sent
        })
        .map_err(|error| CliError::io("cannot start a thread", error, "raise the limit on threads"))
}

/// Builds the settings of the demo's collector and of the switches' DTA reporters.
fn settings(
    listen: SocketAddr,
    store: Option<&Path>,
    names: Vec<(u32, String)>,
) -> Result<(Settings, DtaSettings), CliError> {
    let (mut settings, reporters) = dta::settings()?;
    settings.api.listen = listen;
    settings.store.enabled = store.is_some();
    settings.store.dir = store.map(Path::to_path_buf);
    settings.collector.listen = vec![Listen::Udp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))];
    settings.nodes = names
        .into_iter()
        .map(|(id, name)| (id, NodeEntry::named(name)))
        .collect();
    let profile = ProfileSettings {
        queue_unit: demo::QUEUE_UNIT.to_owned(),
        utilization_scale: demo::UTILIZATION_SCALE,
        clocks: Clocks::Synchronised,
        drop_reasons: demo::drop_reasons()
            .map(|(code, name)| (code, name.to_owned()))
            .collect(),
        ..ProfileSettings::default()
    };
    settings.profiles.insert("default".to_owned(), profile);
    settings.thresholds.flow_latency = LatencyThreshold(demo::THRESHOLDS[Metric::FlowLatency as usize]);
    settings.thresholds.hop_latency = LatencyThreshold(demo::THRESHOLDS[Metric::HopLatency as usize]);
    settings.thresholds.queue_occupancy = QueueThreshold(demo::THRESHOLDS[Metric::QueueOccupancy as usize]);
    settings.thresholds.queue_congestion = QueueThreshold(demo::THRESHOLDS[Metric::QueueCongestion as usize]);
    settings.thresholds.link_utilization =
        UtilizationThreshold(demo::THRESHOLDS[Metric::LinkUtilization as usize]);
    settings.rules = vec![
        rule("deep queue", "max(queue_occupancy) > 64k"),
        rule("slow flow", "flow_latency > 5ms"),
    ];
    Ok((settings, reporters))
}

fn rule(name: &str, when: &str) -> RuleSettings {
    RuleSettings {
        name: name.to_owned(),
        when: when.to_owned(),
    }
}

/// Returns `listen`, or its address with port 0, chosen by the kernel, if the port is in use.
fn free_address(listen: SocketAddr) -> SocketAddr {
    match TcpListener::bind(listen) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => SocketAddr::new(listen.ip(), 0),
        // The server reports all other errors.
        _ => listen,
    }
}

/// Prints the addresses, example queries, and the schedule of events in each minute.
fn introduce(
    url: &str,
    input: SocketAddr,
    translator: SocketAddr,
    port_in_use: Option<SocketAddr>,
    network: &Network,
    dir: Option<&Path>,
) -> Result<(), CliError> {
    let terminal = Terminal::stdout();
    let mut out = String::new();
    let heading = if pages::are_built_in() {
        "The pages are at"
    } else {
        "This build has no pages; the API is at"
    };
    out.push_str(&format!(
        "{heading} {}\n",
        terminal.paint(Tone::Strong, &format!("{url}/"))
    ));
    if let Some(address) = port_in_use {
        out.push_str(&format!(
            "({address} is in use by another program; --listen chooses another address.)\n"
        ));
    }
    let program = program();
    out.push_str(&format!("Or in another terminal: {program} top --api {url}\n"));
    out.push_str(&format!(
        "                        {program} events --follow --api {url}\n\n"
    ));
    out.push_str(&format!(
        "{}; reports go to udp://{input}, by DTA to udp://{translator}.\n",
        network.describe()
    ));
    match dir {
        Some(dir) => out.push_str(&format!("The store is in {}.\n\n", dir.display())),
        None => out.push_str("Nothing is stored on disk.\n\n"),
    }
    out.push_str(&example_queries(url, network));
    out.push_str("Schedule of each minute:\n");
    for line in network.script().iter().take_while(|line| line.at < MINUTE) {
        let at = units::clock(Duration::from_nanos(line.at));
        out.push_str(&format!(
            "  {at}  {}\n        {}\n",
            line.text,
            network::look_hint(&line.text)
        ));
    }
    out.push_str(
        "About a dozen reports a minute are lost in transit, on purpose: the loss budget (Overview) counts them.\n",
    );
    out.push_str("\nCtrl-C ends it.\n\n");
    terminal::print(&out)
}

/// Returns the name by which this program was started: a path if it was one, because it may not be on `PATH`.
fn program() -> String {
    let path = std::env::args().next().filter(|name| name.contains('/'));
    path.unwrap_or_else(|| "hopwise".to_owned())
}

/// Formats example queries of the collector's memory, with a flow of this network.
fn example_queries(url: &str, network: &Network) -> String {
    let Some(flow) = network.example_flow() else {
        return String::new();
    };
    let queries = [
        (format!("get paths '{flow}'"), "its last path and latency, ns"),
        (format!("get hop-latency '{flow}'"), "what each hop took, ns"),
        (
            format!("count host-packets {}", flow.src()),
            "packets that this host sent",
        ),
        (
            format!("sketch flow-packets '{flow}'"),
            "packets of this flow in two seconds",
        ),
        ("tail 1 --follow".to_owned(), "one packet in a thousand"),
        ("tail 2 --follow".to_owned(), "long queues, when there are any"),
        ("tail 3 --follow".to_owned(), "lost packets, likewise"),
    ];
    let mut out =
        "The collector's memory contains what the switches report by DTA. Query it, or see DTA stores and DTA lists:\n"
            .to_owned();
    for (query, description) in queries {
        out.push_str(&format!(
            "  {} {query} --api {url}\n        {description}\n",
            program()
        ));
    }
    out.push('\n');
    out
}

/// Opens the pages in the default browser; if there is no opener, prints their address.
fn open(url: &str) {
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let child = Command::new(opener)
        .arg(url)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if child.is_err() {
        terminal::note(format_args!(
            "`{opener}` is not installed; open {url}/ in a browser"
        ));
    }
}

/// Waits for reports in flight, compares the sent datagrams with the collector's counters, and prints the loss budgets.
fn conclude(client: &Client, sent: &DatagramTotals, reported: &DtaTotals) -> Result<(), CliError> {
    let start = Instant::now();
    let (status, counters) = loop {
        let status: StatusView = fetch(client, "/status")?;
        let counters = DtaCounters::query(client)?;
        let is_settled = Verdict::new(&status, sent) == Verdict::Accounted
            && status.loss_budget.iter().all(|stage| stage.queued == 0)
            && counters.is_settled(reported);
        if is_settled || start.elapsed() > SETTLE_TIMEOUT {
            break (status, counters);
        }
        thread::sleep(Duration::from_millis(50));
    };
    let text = budget(&status, sent) + &counters.budget(reported, dta::count_stored_paths(client, reported)?);
    terminal::print(&text)
}

fn drops(status: &StatusView, stage: &str) -> u64 {
    let stage = status.loss_budget.iter().find(|view| view.stage == stage);
    stage.map_or(0, |stage| stage.drops.values().sum())
}

/// Returns the number of datagrams that were read from the sockets.
fn received(status: &StatusView) -> u64 {
    status
        .loss_budget
        .iter()
        .find(|stage| stage.stage == "kernel")
        .map_or(0, |stage| stage.out)
}

/// Formats the loss budget, one line per stage, and the verdict.
fn budget(status: &StatusView, sent: &DatagramTotals) -> String {
    let mut out = format!(
        "\nAfter {}: the switches sent {}; the simulated network lost {} of them and duplicated {}.\n\n",
        units::clock(sent.span),
        units::counted(sent.sent, "datagram"),
        units::count(sent.lost),
        units::count(sent.duplicated)
    );
    out.push_str(&table("LOST", &status.loss_budget));
    let counted_lost = drops(status, "network");
    let kernel_drops = drops(status, "kernel");
    let received = received(status);
    let verdict = Verdict::new(status, sent);
    let without_gap = sent.lost.saturating_sub(counted_lost);
    if verdict == Verdict::Accounted && without_gap > 0 {
        // Rare; without this line the numbers would seem inconsistent.
        let without_gap = units::count(without_gap);
        out.push_str(&format!(
            "\n{without_gap} of the lost datagrams were the first or last of their stream: they leave no gap in the sequence numbers.\n"
        ));
    }
    let counts = format!(
        "hopwise counted {} as lost in the network, and {} as received",
        units::count(counted_lost),
        units::counted(received, "datagram")
    );
    let verdict = match verdict {
        Verdict::Accounted => format!("{counts}: {ALL_ACCOUNTED}"),
        Verdict::Hidden => format!(
            "{counts}. The kernel dropped {} more. If a datagram is missing at the end of a stream, its sequence number cannot show whether the network or the kernel dropped it.",
            units::count(kernel_drops)
        ),
        Verdict::Unexplained => format!(
            "{counts}, and {} as dropped by the kernel; {} were lost and {} arrived: the difference is unexplained.",
            units::count(kernel_drops),
            units::count(sent.lost),
            units::count(sent.arrived())
        ),
    };
    format!("{out}\n{verdict}\n")
}

/// Comparison of the collector's counts with the simulated network's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// All datagrams are counted as arrived or lost, except losses at the ends of streams, which leave no gap.
    Accounted,
    /// The kernel dropped datagrams at the ends of streams, where sequence numbers cannot tell its drops from the network's.
    Hidden,
    /// A datagram is missing, or counted twice.
    Unexplained,
}

impl Verdict {
    fn new(status: &StatusView, sent: &DatagramTotals) -> Self {
        let counted_lost = drops(status, "network");
        let kernel_drops = drops(status, "kernel");
        let arrivals_match = received(status) + kernel_drops == sent.arrived();
        // A loss at the end of a stream leaves a gap only if a later datagram was sent after the count of `without_gap`, so this
        // is a lower bound.
        let min_counted = sent.lost.saturating_sub(sent.without_gap);
        match arrivals_match {
            true if (min_counted..=sent.lost).contains(&counted_lost) => Self::Accounted,
            true if kernel_drops > 0 && counted_lost.abs_diff(sent.lost) <= kernel_drops => Self::Hidden,
            _ => Self::Unexplained,
        }
    }
}

/// Returns the number of units that a stage dropped, for all reasons.
fn dropped(stage: &Stage) -> u64 {
    stage.drops.values().sum()
}

/// Formats stages as a table; `lost` is the heading of the drops.
fn table(lost: &str, stages: &[Stage]) -> String {
    let mut table = Table::new([
        ("STAGE", Align::Left),
        ("IN", Align::Right),
        ("OUT", Align::Right),
        (lost, Align::Right),
        ("", Align::Left),
    ]);
    for stage in stages {
        let reasons: Vec<String> = stage
            .drops
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(reason, count)| format!("{reason} {}", units::count(*count)))
            .collect();
        table.row([
            stage.stage.to_string(),
            units::count(stage.into),
            units::count(stage.out),
            units::count(dropped(stage)),
            format!(
                "{}{}{}",
                stage.unit,
                if reasons.is_empty() { "" } else { ": " },
                reasons.join(", ")
            ),
        ]);
    }
    table.render()
}

/// Directory for the duration of the demo, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(parent: &Path) -> Result<Self, CliError> {
        let name = format!("hopwise-demo-{}", std::process::id());
        let mut path = parent.join(&name);
        // A new directory with mode 0700: an existing one may belong to another user.
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700);
        let mut result = builder.create(&path);
        for number in 1..10 {
            if !matches!(&result, Err(error) if error.kind() == ErrorKind::AlreadyExists) {
                break;
            }
            path = parent.join(format!("{name}-{number}"));
            result = builder.create(&path);
        }
        result.map_err(|error| {
            let remedy = "set TMPDIR to a writable directory, or use --no-store";
            CliError::io(format!("cannot make {}", path.display()), error, remedy)
        })?;
        Ok(Self(path))
    }

    /// Creates a directory on tmpfs, or in the temporary directory if there is no `/dev/shm`.
    fn in_memory() -> Result<Self, CliError> {
        let shared = Path::new("/dev/shm");
        if shared.is_dir()
            && let Ok(directory) = Self::new(shared)
        {
            return Ok(directory);
        }
        Self::new(&std::env::temp_dir())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that cannot be removed stays in the temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns whether a node is a switch. Hosts send no reports.
fn is_switch(kind: &Kind) -> bool {
    matches!(kind, Kind::Switch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &'static str, into: u64, out: u64) -> Stage {
        let drops = [("lost", into - out)].into();
        Stage {
            stage: name.into(),
            unit: "datagrams".into(),
            into,
            out,
            queued: 0,
            drops,
            evidence: None,
        }
    }

    /// Of 1,000 datagrams, of which 7 are lost and 2 duplicated. `counted_lost`: lost, by hopwise.
    fn status(counted_lost: u64, received: u64, kernel_drops: u64) -> StatusView {
        let arrived = received + kernel_drops;
        StatusView {
            loss_budget: vec![
                stage("network", arrived + counted_lost, arrived),
                stage("kernel", arrived, received),
            ],
            ..StatusView::default()
        }
    }

    fn sent(without_gap: u64) -> DatagramTotals {
        DatagramTotals {
            sent: 1_000,
            lost: 7,
            without_gap,
            duplicated: 2,
            span: Duration::from_secs(61),
        }
    }

    #[test]
    fn a_loss_at_the_end_of_a_stream_is_explained_counted_or_not() {
        use Verdict::{Accounted, Hidden, Unexplained};
        for ((counted_lost, received, kernel_drops, without_gap), expected) in [
            ((7, 995, 0, 0), Accounted),
            // As many are counted as were lost: nothing is unexplained.
            ((7, 995, 0, 4), Accounted),
            ((5, 995, 0, 4), Accounted),
            ((3, 995, 0, 4), Accounted),
            ((2, 995, 0, 4), Unexplained),
            ((8, 995, 0, 4), Unexplained),
            ((7, 994, 0, 0), Unexplained),
            ((7, 985, 10, 0), Accounted),
            ((5, 985, 10, 0), Hidden),
            ((9, 985, 10, 0), Hidden),
            ((18, 985, 10, 0), Unexplained),
            ((7, 985, 9, 0), Unexplained),
        ] {
            let found = Verdict::new(&status(counted_lost, received, kernel_drops), &sent(without_gap));
            assert_eq!(
                found, expected,
                "{counted_lost} {received} {kernel_drops} {without_gap}"
            );
        }
    }

    fn verdict(received: u64) -> String {
        budget(&status(7, received, 0), &sent(0))
    }

    #[test]
    fn the_account_says_whether_it_balances() {
        assert_eq!(
            verdict(995),
            "
After 1:01: the switches sent 1,000 datagrams; the simulated network lost 7 of them and duplicated 2.

STAGE       IN  OUT  LOST
network  1,002  995     7  datagrams: lost 7
kernel     995  995     0  datagrams

hopwise counted 7 as lost in the network, and 995 datagrams as received: every one is accounted for.
"
        );
        assert!(verdict(994).ends_with(
            "counted 7 as lost in the network, and 994 datagrams as received, and 0 as dropped by the kernel; 7 were lost and 995 arrived: the \
             difference is unexplained.\n"
        ));
    }

    #[test]
    fn a_port_in_use_is_replaced_by_a_free_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(free_address(address), SocketAddr::new(address.ip(), 0));
    }

    #[test]
    fn the_settings_of_the_demo_are_valid() {
        let (mut settings, _) =
            settings("127.0.0.1:0".parse().unwrap(), None, vec![(101, "leaf1".into())]).unwrap();
        dta::set_runtime_values(&mut settings, Path::new("/dev/shm/demo"), 40_044);
        let read = Settings::parse(&settings.to_toml(), "demo.toml").map_err(|error| error.to_string());
        assert_eq!(read.map(|read| read.to_toml()), Ok(settings.to_toml()));
    }
}
