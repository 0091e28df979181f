//! The command line of `hopwise-lab`, which `hopwise lab` executes: a network of namespaces on this machine, to
//! observe and to break.
//!
//! Declares the arguments of all subcommands and dispatches each to its module; `show` prints the results.

mod show;

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use crate::remote::Lab;
use crate::traffic::{HostPairs, Pattern, Traffic};
use crate::{capture, down, exec, fault, restart, state, traffic, up};
use settings::values::{Rate, nanoseconds};
use terminal::{CliError, generate};

/// Upper limit of a delay that a switch accepts, ns.
const MAX_DELAY: u64 = 10_000_000_000;
const EXAMPLES: &str = "\
Examples (as root):
  hopwise lab up examples/lab/three-switches.toml    create the network, then open the address it prints
  hopwise lab exec h1 -- ping -c 3 10.0.3.1          run a program in a host
  hopwise lab traffic flow h1 h3 --rate 20Mbit/s     a flow, with loss and latency
  hopwise lab traffic burst h1,h2 h3                 microbursts: watch the queue of s2
  hopwise lab mode sf                                measure with SF-INT; also md, mx, postcard, off
  hopwise lab fault loss s1-s2 2%                    inject a fault; `hopwise lab fault clear` removes it
  hopwise lab down                                   remove everything
The topology file: docs/reference/lab.md";

/// Run a network on this machine: hosts, links and INT switches in namespaces, from one file
///
/// Real packets, real sockets, real queues: programs in a host need no change. Every switch is a process of hopwise that
/// adds INT to the packets it forwards, or sends postcards about them. The reports go to a collector of hopwise, with its
/// web page. Needs root and iproute2, nothing else.
#[derive(Parser, Debug)]
#[command(
    name = "hopwise-lab",
    bin_name = "hopwise lab",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    subcommand_required = true,
    after_help = EXAMPLES
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Create the network of a topology file, and wait until every process answers
    Up(UpArgs),
    /// Show the nodes, the mode, the faults and the health of a lab
    Status(StatusArgs),
    /// List the labs on this machine
    List(ListArgs),
    /// Remove a lab, or its remains
    Down(DownArgs),
    /// Run a program in a host (or in the namespace of a switch)
    Exec(ExecArgs),
    /// Change how the switches measure, without interrupting traffic
    Mode(ModeArgs),
    /// Generate flows or microbursts, and report loss and latency
    Traffic(TrafficArgs),
    /// Inject faults and remove them
    Fault(FaultArgs),
    /// Capture the packets of a link into a file
    Capture(CaptureArgs),
    /// Write man pages and shell completions (for packagers)
    #[command(hide = true)]
    Generate {
        /// Directory to write into; created if missing
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

#[derive(clap::Args, Debug)]
struct UpArgs {
    /// Topology file, such as examples/lab/three-switches.toml
    file: PathBuf,

    /// Address of the collector's web page and API; falls back to a free port
    #[arg(long, value_name = "ADDRESS")]
    api: Option<SocketAddr>,
}

/// Lab that a command works on.
#[derive(clap::Args, Debug)]
struct LabSelector {
    /// Name of the lab; optional if there is only one
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
}

impl LabSelector {
    fn open(&self) -> Result<Lab, CliError> {
        Lab::open(self.lab.as_deref())
    }
}

#[derive(clap::Args, Debug)]
struct StatusArgs {
    /// Name of the lab; optional if there is only one
    lab: Option<String>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct ListArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct DownArgs {
    /// Name of the lab; optional if there is only one
    lab: Option<String>,
}

#[derive(clap::Args, Debug)]
struct ExecArgs {
    /// The host
    host: String,

    #[command(flatten)]
    lab: LabSelector,

    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<std::ffi::OsString>,
}

#[derive(clap::Args, Debug)]
struct ModeArgs {
    /// Method of measuring flows
    mode: Mode,

    #[command(flatten)]
    lab: LabSelector,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// INT-MD 2.1: packets collect metadata, the sink reports it
    Md,
    /// INT-MD by INT 1.0; only in a lab without a manager
    Md10,
    /// INT-MX 2.1: packets carry instructions, every node reports
    Mx,
    /// SF-INT: each packet carries the metadata of one node
    Sf,
    /// Packets are not changed, every node sends postcards
    Postcard,
    /// Flows are not measured
    Off,
    /// As the topology file says
    File,
}

#[derive(clap::Args, Debug)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples (as root):
  hopwise lab traffic flow h1 h3 --rate 20Mbit/s --for 30
  hopwise lab traffic flow all all --flows 5 --rate 1Mbit/s      every host to every other, five flows each
  hopwise lab traffic burst h1,h2 h3 --packets 300 --every 1s    both at once: their packets share a queue
Packets are UDP with sequence numbers and timestamps, sent and received by sockets inside the hosts."
)]
struct TrafficArgs {
    #[command(subcommand)]
    pattern: TrafficCommand,
}

#[derive(Subcommand, Debug)]
enum TrafficCommand {
    /// Packets at a constant rate
    Flow {
        #[command(flatten)]
        common: TrafficCommon,

        /// Rate of each flow
        #[arg(long, default_value = "10Mbit/s")]
        rate: Rate,
    },
    /// Periodic bursts of packets
    Burst {
        #[command(flatten)]
        common: TrafficCommon,

        /// Packets per burst and flow
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        packets: u32,

        /// Interval between bursts
        #[arg(long, default_value = "1s", value_parser = duration)]
        every: Duration,
    },
}

#[derive(clap::Args, Debug)]
struct TrafficCommon {
    /// Sending hosts, separated by commas, or `all`
    from: String,

    /// Receiving hosts, separated by commas, or `all`
    to: String,

    /// Flows from each sender to each receiver
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    flows: u32,

    /// Packet size in bytes, including the IP header
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(80..=9000))]
    size: u32,

    /// Duration of the traffic, seconds
    #[arg(long = "for", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    span: Duration,

    /// Send over IPv6
    #[arg(short = '6', long)]
    ipv6: bool,

    /// UDP destination port
    #[arg(long, default_value_t = 9000, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    lab: LabSelector,
}

#[derive(clap::Args, Debug)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples (as root):
  hopwise lab fault cut s1-s2             all packets are lost
  hopwise lab fault loss s1-s2 2%         2 of 100 packets are lost, in each direction
  hopwise lab fault slow s2-s3 5Mbit/s    the queue in front of it fills
  hopwise lab fault restart s2            s2 crashes, starts again, and gets its rules from the manager
  hopwise lab fault clear                 remove all faults
A link is named by its two ends, as `hopwise lab status` lists them."
)]
struct FaultArgs {
    #[command(subcommand)]
    fault: FaultCommand,
}

#[derive(Subcommand, Debug)]
enum FaultCommand {
    /// Drop all packets on a link; after 200 ms, routes avoid it if there is another path
    ///
    /// Only packets on this link are lost. A switch at one end of it that has another shortest path uses it at once; packets that a
    /// switch can send over this link alone are lost until routes change, or until `hopwise lab fault restore` if there is no other path.
    Cut {
        /// The link, such as s1-s2
        link: String,
        /// Do not change routes
        #[arg(long)]
        keep_routes: bool,
        #[command(flatten)]
        lab: LabSelector,
    },
    /// Restore a link that was cut
    Restore {
        /// The link, such as s1-s2
        link: String,
        #[command(flatten)]
        lab: LabSelector,
    },
    /// Lose packets on a link
    Loss {
        /// The link, such as s1-s2
        link: String,
        /// Share of the packets: 2%, or 0.02
        #[arg(value_parser = fraction)]
        share: f64,
        #[command(flatten)]
        lab: LabSelector,
    },
    /// Add delay to a link
    Delay {
        /// The link, such as s1-s2
        link: String,
        /// Delay in each direction: 5ms
        #[arg(value_parser = delay)]
        time: u64,
        #[command(flatten)]
        lab: LabSelector,
    },
    /// Reorder packets on a link
    Reorder {
        /// The link, such as s1-s2
        link: String,
        /// Share of the packets that are held back: 5%, or 0.05
        #[arg(value_parser = fraction)]
        share: f64,
        #[command(flatten)]
        lab: LabSelector,
    },
    /// Reduce the rate of a link, so that packets queue in front of it
    Slow {
        /// The link, such as s1-s2
        link: String,
        /// Rate: 5Mbit/s
        rate: Rate,
        #[command(flatten)]
        lab: LabSelector,
    },
    /// Kill a switch and start it again: its manager configures it
    Restart {
        /// The switch
        switch: String,
        /// Time that the switch stays down
        #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = delay)]
        after: u64,
        #[command(flatten)]
        lab: LabSelector,
    },
    /// Clear the SF-INT registers of a switch, as a restart does
    Wipe {
        /// The switch; default: all
        switch: Option<String>,
        #[command(flatten)]
        lab: LabSelector,
    },
    /// Remove all faults of the lab
    Clear {
        #[command(flatten)]
        lab: LabSelector,
    },
}

#[derive(clap::Args, Debug)]
struct CaptureArgs {
    /// The link, such as s1-s2; packets are captured at its first end
    link: String,

    /// Output file: pcap with nanosecond timestamps
    file: PathBuf,

    /// Duration of the capture, seconds
    #[arg(long = "for", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    span: Duration,

    /// Stop after this number of packets
    #[arg(long, value_name = "NUMBER")]
    packets: Option<u64>,

    #[command(flatten)]
    lab: LabSelector,
}

fn duration(text: &str) -> Result<Duration, String> {
    nanoseconds(text)
        .map(Duration::from_nanos)
        .ok_or_else(|| "write a duration, such as 5ms or 1s".to_owned())
}

/// Parses a duration as nanoseconds; a switch accepts delays below 10 s.
fn delay(text: &str) -> Result<u64, String> {
    let nanos = nanoseconds(text).filter(|time| *time < MAX_DELAY);
    nanos.ok_or_else(|| "write a duration below 10s, such as 5ms".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text
        .parse::<f64>()
        .ok()
        .filter(|seconds| (0.01..=86_400.0).contains(seconds));
    number
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "write a number of seconds, such as 10".to_owned())
}

fn fraction(text: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent
            .trim_end()
            .parse::<f64>()
            .ok()
            .map(|percent| percent / 100.0),
        None => text.parse().ok(),
    };
    number
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "write a share of the packets, such as 2% or 0.02".to_owned())
}

/// Runs the subcommand and returns the process's exit code.
///
/// # Errors
/// The arguments are invalid, or the command failed.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    match args.command {
        Command::Up(args) => show::print_created(&up::up(&args.file, args.api)?)?,
        Command::Status(args) => return show::status(args.lab.as_deref(), args.json),
        Command::List(args) => show::list(&state::labs(), args.json)?,
        Command::Down(args) => {
            let directory = state::select(args.lab.as_deref())?;
            show::print_removed(directory.lab(), &down::down(&directory)?)?;
        }
        Command::Exec(args) => {
            let lab = args.lab.open()?;
            return Err(exec::exec(&lab, &args.host, &args.command));
        }
        Command::Mode(args) => {
            let mut lab = args.lab.open()?;
            let mode_name = args
                .mode
                .to_possible_value()
                .map_or_else(String::new, |value| value.get_name().to_owned());
            fault::set_mode(&mut lab, (mode_name != "file").then_some(mode_name.as_str()))?;
            show::line(&format!(
                "The switches of {} now measure: {}.",
                lab.topology.name,
                lab.state.conditions.mode_text()
            ))?;
        }
        Command::Traffic(args) => return run_traffic(args.pattern),
        Command::Fault(args) => run_fault(args.fault)?,
        Command::Capture(args) => {
            let lab = args.lab.open()?;
            let counts = capture::capture(&lab, &args.link, &args.file, args.span, args.packets)?;
            let loss_note = if counts.dropped > 0 {
                format!(" {} more were dropped under overload.", counts.dropped)
            } else {
                String::new()
            };
            show::line(&format!(
                "{} packets in {}.{loss_note}",
                counts.captured,
                args.file.display()
            ))?;
        }
        Command::Generate { directory } => {
            generate::man_pages(Args::command(), &directory)?;
            generate::completions("hopwise-lab", Args::command(), &directory)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run_traffic(command: TrafficCommand) -> Result<ExitCode, CliError> {
    let (common, pattern) = match command {
        TrafficCommand::Flow { common, rate } => (common, Pattern::Even { rate }),
        TrafficCommand::Burst {
            common,
            packets,
            every,
        } => (common, Pattern::Burst { packets, every }),
    };
    let lab = common.lab.open()?;
    let traffic = Traffic {
        hosts: HostPairs::find(&lab.topology, &common.from, &common.to, common.ipv6)?,
        flows: common.flows,
        size: common.size,
        span: common.span,
        port: common.port,
        pattern,
    };
    show::traffic(&traffic::run(&lab, &traffic)?, common.json)
}

/// Injects a fault, or executes one of the subcommands that are not conditions of a link (restart, wipe, clear).
fn run_fault(command: FaultCommand) -> Result<(), CliError> {
    use crate::conditions::Fault;
    let (lab, link, fault) = match command {
        FaultCommand::Cut {
            link,
            keep_routes,
            lab,
        } => (
            lab,
            link,
            Fault::Cut {
                reroute: !keep_routes,
            },
        ),
        FaultCommand::Loss { link, share, lab } => (lab, link, Fault::Loss(share)),
        FaultCommand::Delay { link, time, lab } => (lab, link, Fault::Delay(time)),
        FaultCommand::Reorder { link, share, lab } => (lab, link, Fault::Reorder(share)),
        FaultCommand::Slow { link, rate, lab } => (lab, link, Fault::Slow(rate.0)),
        FaultCommand::Restore { link, lab } => {
            let mut lab = lab.open()?;
            let link = fault::restore(&mut lab, &link)?;
            return show::line(&format!("{link}: link restored."));
        }
        FaultCommand::Restart { switch, after, lab } => {
            let lab = lab.open()?;
            let times = restart::restart(&lab, &switch, Duration::from_nanos(after))?;
            return show::print_restarted(&switch, times);
        }
        FaultCommand::Wipe { switch, lab } => {
            let lab = lab.open()?;
            let wiped = fault::wipe(&lab, switch.as_deref())?;
            return show::line(&format!(
                "The SF-INT registers of {} are empty.",
                wiped.join(", ")
            ));
        }
        FaultCommand::Clear { lab } => {
            let mut lab = lab.open()?;
            fault::clear(&mut lab)?;
            return show::line(&format!("All faults of {} are removed.", lab.topology.name));
        }
    };
    let mut lab = lab.open()?;
    let fault = fault::inject(&mut lab, &link, fault)?;
    show::line(&format!("{fault}. `hopwise lab fault clear` removes it."))
}
