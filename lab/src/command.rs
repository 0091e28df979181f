//! `hopwise lab`: a network on this machine, to look at and to break.

mod show;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use crate::program::Program;
use crate::remote::Lab;
use crate::traffic::{Ends, Pattern, Traffic};
use crate::{capture, down, exec, fault, state, traffic, up};
use settings::values::{Rate, nanoseconds};
use terminal::CliError;

/// A network on this machine: hosts, links and INT switches in namespaces, made from one file
///
/// Real packets, real sockets, real queues: what runs in a host needs to know nothing of it. Every switch is a process of this
/// program, with INT or postcards on whatever passes; the reports go to a collector of this program, with its pages. Needs
/// root and iproute2, and nothing else.
#[derive(clap::Args, Debug)]
#[command(arg_required_else_help = true, subcommand_required = true, after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples (as root):
  hopwise lab up examples/lab/three-switches.toml    make the network, then open the address that it prints
  hopwise lab exec h1 -- ping -c 3 10.0.3.1          run a program in a host
  hopwise lab traffic flow h1 h3 --rate 20Mbit/s     a flow, with what became of it
  hopwise lab traffic burst h1,h2 h3                 microbursts: watch the queue of s2
  hopwise lab mode sf                                measure by SF-INT from now on; md, md10, mx, postcard, off
  hopwise lab fault loss s1-s2 2%                    break something; `hopwise lab fault clear` mends it
  hopwise lab down                                   remove it all
The topology file: docs/reference/lab.md";

#[derive(Subcommand, Debug)]
enum Command {
    /// Make the network of a topology file, and wait until everything in it answers
    Up(UpArgs),
    /// Say what there is, and whether it is well
    Status(StatusArgs),
    /// Name the labs of this machine
    List(ListArgs),
    /// Remove a lab, or what is left of one
    Down(DownArgs),
    /// Run a program in a host (or in the namespace of a switch)
    Exec(ExecArgs),
    /// Choose how the switches measure, while packets pass
    Mode(ModeArgs),
    /// Make flows or microbursts, and say what became of them
    Traffic(TrafficArgs),
    /// Break the network, and mend it
    Fault(FaultArgs),
    /// Write what passes a link into a capture file
    Capture(CaptureArgs),
}

#[derive(clap::Args, Debug)]
struct UpArgs {
    /// Topology file, such as examples/lab/three-switches.toml
    file: PathBuf,

    /// Serve the pages and the API of the collector here; when the port is taken, on another one
    #[arg(long, value_name = "ADDRESS")]
    api: Option<SocketAddr>,
}

/// Which lab is meant.
#[derive(clap::Args, Debug)]
struct Which {
    /// Which lab; not needed when there is one
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
}

#[derive(clap::Args, Debug)]
struct StatusArgs {
    /// Which lab; not needed when there is one
    lab: Option<String>,

    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct ListArgs {
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct DownArgs {
    /// Which lab; not needed when there is one
    lab: Option<String>,
}

#[derive(clap::Args, Debug)]
struct ExecArgs {
    /// The host
    host: String,

    #[command(flatten)]
    which: Which,

    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<std::ffi::OsString>,
}

#[derive(clap::Args, Debug)]
struct ModeArgs {
    /// How flows are measured
    mode: Mode,

    #[command(flatten)]
    which: Which,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// INT-MD 2.1: packets collect records, the sink reports them
    Md,
    /// INT 1.0, likewise
    Md10,
    /// INT-MX 2.1: packets carry instructions, every node reports
    Mx,
    /// SF-INT: one record per packet, of the node with the most news
    Sf,
    /// Packets stay as they are, every node sends postcards
    Postcard,
    /// Not at all
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
  hopwise lab traffic burst h1,h2 h3 --packets 300 --every 1s    both at once: their packets meet in a queue
Packets are UDP with numbers and time stamps in them, sent and received by sockets inside the hosts."
)]
struct TrafficArgs {
    #[command(subcommand)]
    pattern: TrafficCommand,
}

#[derive(Subcommand, Debug)]
enum TrafficCommand {
    /// Packets at an even pace
    Flow {
        #[command(flatten)]
        common: TrafficCommon,

        /// Of each flow
        #[arg(long, default_value = "10Mbit/s")]
        rate: Rate,
    },
    /// Many packets at once, again and again
    Burst {
        #[command(flatten)]
        common: TrafficCommon,

        /// In one burst of one flow
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        packets: u32,

        /// From one burst to the next
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

    /// Bytes of a packet, from its IP header on
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(80..=9000))]
    size: u32,

    /// How many seconds
    #[arg(long = "for", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    span: Duration,

    /// Over IPv6
    #[arg(short = '6', long)]
    ipv6: bool,

    /// UDP port that they are sent to
    #[arg(long, default_value_t = 9000, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// As JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    which: Which,
}

#[derive(clap::Args, Debug)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples (as root):
  hopwise lab fault cut s1-s2             nothing passes any more
  hopwise lab fault loss s1-s2 2%         of every hundred packets two get lost, each way
  hopwise lab fault slow s2-s3 5Mbit/s    the queue before it fills
  hopwise lab fault clear                 everything as the topology file says
A link is called by its two ends, as `hopwise lab status` lists them."
)]
struct FaultArgs {
    #[command(subcommand)]
    fault: FaultCommand,
}

#[derive(Subcommand, Debug)]
enum FaultCommand {
    /// Nothing passes a link; after 200 ms routes go round it, where there is a way
    Cut {
        /// The link, such as s1-s2
        link: String,
        /// Routes stay as they are
        #[arg(long)]
        keep_routes: bool,
        #[command(flatten)]
        which: Which,
    },
    /// A link that was cut passes packets again
    Mend {
        /// The link, such as s1-s2
        link: String,
        #[command(flatten)]
        which: Which,
    },
    /// Packets get lost on a link
    Loss {
        /// The link, such as s1-s2
        link: String,
        /// How many: 2%, or 0.02
        #[arg(value_parser = fraction)]
        share: f64,
        #[command(flatten)]
        which: Which,
    },
    /// A link takes longer
    Delay {
        /// The link, such as s1-s2
        link: String,
        /// How long, each way: 5ms
        #[arg(value_parser = delay)]
        time: u64,
        #[command(flatten)]
        which: Which,
    },
    /// Packets overtake each other on a link
    Reorder {
        /// The link, such as s1-s2
        link: String,
        /// How many are held back: 5%, or 0.05
        #[arg(value_parser = fraction)]
        share: f64,
        #[command(flatten)]
        which: Which,
    },
    /// A link is slower: packets wait before it
    Slow {
        /// The link, such as s1-s2
        link: String,
        /// How slow: 5Mbit/s
        rate: Rate,
        #[command(flatten)]
        which: Which,
    },
    /// The SF-INT registers of a switch forget everything, as after a restart
    Wipe {
        /// The switch; all of them when none is named
        switch: Option<String>,
        #[command(flatten)]
        which: Which,
    },
    /// Everything is again as the topology file says
    Clear {
        #[command(flatten)]
        which: Which,
    },
}

#[derive(clap::Args, Debug)]
struct CaptureArgs {
    /// The link, such as s1-s2: packets as they are at its first end
    link: String,

    /// Where to: a pcap file with nanoseconds
    file: PathBuf,

    /// How many seconds
    #[arg(long = "for", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    span: Duration,

    /// End after so many packets
    #[arg(long, value_name = "NUMBER")]
    packets: Option<u64>,

    #[command(flatten)]
    which: Which,
}

fn duration(text: &str) -> Result<Duration, String> {
    nanoseconds(text)
        .map(Duration::from_nanos)
        .ok_or_else(|| "write a duration, such as 5ms or 1s".to_owned())
}

/// Nanoseconds, as long as a switch may take.
fn delay(text: &str) -> Result<u64, String> {
    let read = nanoseconds(text).filter(|time| *time < 10_000_000_000);
    read.ok_or_else(|| "write a duration below 10s, such as 5ms".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|seconds| (0.01..=86_400.0).contains(seconds));
    number.map(Duration::from_secs_f64).ok_or_else(|| "write a number of seconds, such as 10".to_owned())
}

fn fraction(text: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().ok().map(|percent| percent / 100.0),
        None => text.parse().ok(),
    };
    number
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "write a share of the packets, such as 2% or 0.02".to_owned())
}

/// Runs the command.
///
/// # Errors
/// What is wrong, or what cannot be done.
pub fn run(args: Args, program: &'static dyn Program) -> Result<ExitCode, CliError> {
    match args.command {
        Command::Up(args) => show::made(&up::up(&args.file, args.api, program)?, program.has_web_page())?,
        Command::Status(args) => return show::status(args.lab.as_deref(), args.json, program),
        Command::List(args) => show::list(&state::labs(), args.json)?,
        Command::Down(args) => {
            let directory = state::chosen(args.lab.as_deref())?;
            show::removed(directory.lab(), &down::down(&directory)?)?;
        }
        Command::Exec(args) => {
            let lab = Lab::open(args.which.lab.as_deref(), program)?;
            return Err(exec::exec(&lab, &args.host, &args.command));
        }
        Command::Mode(args) => {
            let mut lab = Lab::open(args.which.lab.as_deref(), program)?;
            let word =
                args.mode.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
            fault::set_mode(&mut lab, (word != "file").then_some(word.as_str()))?;
            show::line(&format!(
                "The switches of {} now measure: {}.",
                lab.topology.name,
                lab.state.conditions.measuring()
            ))?;
        }
        Command::Traffic(args) => return make_traffic(args.pattern, program),
        Command::Fault(args) => make_fault(args.fault, program)?,
        Command::Capture(args) => {
            let lab = Lab::open(args.which.lab.as_deref(), program)?;
            let (kept, lost) = capture::capture(&lab, &args.link, &args.file, args.span, args.packets)?;
            let more = if lost > 0 { format!(" {lost} more came too fast.") } else { String::new() };
            show::line(&format!("{kept} packets in {}.{more}", args.file.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn make_traffic(command: TrafficCommand, program: &'static dyn Program) -> Result<ExitCode, CliError> {
    let (common, pattern) = match command {
        TrafficCommand::Flow { common, rate } => (common, Pattern::Even { rate }),
        TrafficCommand::Burst { common, packets, every } => (common, Pattern::Burst { packets, every }),
    };
    let lab = Lab::open(common.which.lab.as_deref(), program)?;
    let traffic = Traffic {
        ends: Ends::find(&lab.topology, &common.from, &common.to, common.ipv6)?,
        flows: common.flows,
        size: common.size,
        span: common.span,
        port: common.port,
        pattern,
    };
    show::traffic(&traffic::run(&lab, &traffic)?, common.json)
}

fn make_fault(command: FaultCommand, program: &'static dyn Program) -> Result<(), CliError> {
    use crate::conditions::Fault;
    let (which, link, fault) = match command {
        FaultCommand::Cut { link, keep_routes, which } => (which, link, Fault::Cut { reroute: !keep_routes }),
        FaultCommand::Loss { link, share, which } => (which, link, Fault::Loss(share)),
        FaultCommand::Delay { link, time, which } => (which, link, Fault::Delay(time)),
        FaultCommand::Reorder { link, share, which } => (which, link, Fault::Reorder(share)),
        FaultCommand::Slow { link, rate, which } => (which, link, Fault::Slow(rate.0)),
        FaultCommand::Mend { link, which } => {
            let mut lab = Lab::open(which.lab.as_deref(), program)?;
            let link = fault::mend(&mut lab, &link)?;
            return show::line(&format!("{link} passes packets."));
        }
        FaultCommand::Wipe { switch, which } => {
            let lab = Lab::open(which.lab.as_deref(), program)?;
            let wiped = fault::wipe(&lab, switch.as_deref())?;
            return show::line(&format!("The SF-INT registers of {} are empty.", wiped.join(", ")));
        }
        FaultCommand::Clear { which } => {
            let mut lab = Lab::open(which.lab.as_deref(), program)?;
            fault::clear(&mut lab)?;
            return show::line(&format!("The links of {} are as its file says.", lab.topology.name));
        }
    };
    let mut lab = Lab::open(which.lab.as_deref(), program)?;
    let told = fault::make(&mut lab, &link, fault)?;
    show::line(&format!("{told}. `hopwise lab fault clear` undoes it."))
}
