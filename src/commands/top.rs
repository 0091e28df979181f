//! `hopwise top`: the busiest flows, nodes and links of a running hopwise, drawn again every second.

use std::io::{self, Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use super::client::{Client, escape};
use super::remote::{self, Api, fetch};
use crate::view::{Evidence, Flows, Links, Names, NodeView, Nodes, StatusView};
use terminal::CliError;
use terminal::Tone;
use terminal::{Align, Table, Terminal, plot, units};

/// Watch the busiest flows, nodes and links of a running hopwise
///
/// Keys: f flows, n nodes, l links, s change the order, q quit.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise top                                live, every second
  hopwise top --view nodes --sort queue      nodes with the fullest queues first
  hopwise top --filter 'src in 10.0.1.0/24'  only flows that a condition matches
  hopwise top --once --json                  one JSON object, for a script")]
pub(crate) struct Args {
    /// Print once and exit (the default if the output is not a terminal)
    #[arg(long)]
    pub(crate) once: bool,

    /// Print one JSON object with the responses of /status, /flows, /nodes and /links
    #[arg(long)]
    pub(crate) json: bool,

    /// Initial table
    #[arg(long, value_enum, default_value_t = View::Flows)]
    pub(crate) view: View,

    /// Initial order
    #[arg(long, value_enum, default_value_t = Order::Latency)]
    pub(crate) sort: Order,

    /// Only flows that this matches, for example "src in 10.0.1.0/24 and path ~ 101>*>103"
    #[arg(long, value_name = "CONDITION")]
    pub(crate) filter: Option<String>,

    /// Refresh interval, seconds
    #[arg(long, default_value_t = 1.0, value_parser = interval)]
    pub(crate) interval: f64,

    #[command(flatten)]
    pub(crate) api: Api,
}

/// One of the tables.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum View {
    /// Flows
    Flows,
    /// Nodes and their queues
    Nodes,
    /// Links between nodes
    Links,
}

/// The order of the rows.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// The slowest
    Latency,
    /// The fullest queue
    Queue,
    /// The most reports (links: the highest utilization)
    Rate,
}

/// The responses from which one screen is made.
#[derive(Serialize, Debug)]
struct Snapshot {
    status: StatusView,
    flows: Flows,
    nodes: Nodes,
    links: Links,
    #[serde(skip)]
    names: Names,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_string())?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("between 0.1 and 3600 seconds".into()) }
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let client = args.api.client()?;
    let terminal = Terminal::stdout();
    let filter = args.filter.as_deref().unwrap_or_default();
    if args.json {
        let snapshot = Snapshot::take(&client, args.sort, filter)?;
        let text = serde_json::to_string(&snapshot).map_err(|error| CliError::new(error.to_string()))?;
        return print(&format!("{text}\n"));
    }
    let (mut view, mut order) = (args.view, args.sort);
    if args.once || !terminal.interactive {
        return print(&Snapshot::take(&client, order, filter)?.picture(view, order, &client, terminal));
    }
    let mut snapshot = Snapshot::take(&client, order, filter)?;
    let screen = Screen::enter();
    let keys = screen.keys();
    loop {
        let terminal = Terminal::stdout();
        // The server may be restarting: the old tables stay, with the error above them.
        let trouble = match Snapshot::take(&client, order, filter) {
            Ok(fresh) => {
                snapshot = fresh;
                String::new()
            }
            Err(error) => terminal.paint(Tone::Bad, &format!("{error}\n")),
        };
        draw(&(trouble + &snapshot.picture(view, order, &client, terminal)), terminal)?;
        match keys.recv_timeout(Duration::from_secs_f64(args.interval)) {
            Ok(b'q' | b'Q' | 3 | 4) => return Ok(ExitCode::SUCCESS),
            Ok(b'f') => view = View::Flows,
            Ok(b'n') => view = View::Nodes,
            Ok(b'l') => view = View::Links,
            Ok(b's') => order = order.next(),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => thread::sleep(Duration::from_secs_f64(args.interval)),
        }
    }
}

fn print(text: &str) -> Result<ExitCode, CliError> {
    io::stdout().write_all(text.as_bytes()).map_err(CliError::output)?;
    Ok(ExitCode::SUCCESS)
}

/// Overwrites the previous screen line by line, which avoids flicker.
fn draw(picture: &str, terminal: Terminal) -> Result<(), CliError> {
    let mut out = String::from("\x1b[H");
    for line in picture.lines().take(terminal.height.saturating_sub(1)) {
        out.push_str(cut(line, terminal.width));
        out.push_str("\x1b[0m\x1b[K\r\n");
    }
    out.push_str("\x1b[J");
    let mut stdout = io::stdout();
    stdout.write_all(out.as_bytes()).and_then(|()| stdout.flush()).map_err(CliError::output)
}

/// As much of a line as fits, colours not counted: a line that wraps would push the others down.
fn cut(line: &str, width: usize) -> &str {
    let (mut columns, mut in_escape) = (0, false);
    for (at, c) in line.char_indices() {
        match c {
            '\x1b' => in_escape = true,
            'm' if in_escape => in_escape = false,
            _ if in_escape => {}
            _ if columns == width => return &line[..at],
            _ => columns += 1,
        }
    }
    line
}

impl Order {
    fn next(self) -> Self {
        match self {
            Self::Latency => Self::Queue,
            Self::Queue => Self::Rate,
            Self::Rate => Self::Latency,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Queue => "queue",
            Self::Rate => "rate",
        }
    }
}

impl Snapshot {
    fn take(client: &Client, order: Order, filter: &str) -> Result<Self, CliError> {
        let sort = if order == Order::Rate { "reports" } else { "latency" };
        let filter = escape(filter);
        Ok(Self {
            status: fetch(client, "/status")?,
            flows: fetch(client, &format!("/flows?limit=100&sort={sort}&filter={filter}"))?,
            nodes: fetch(client, "/nodes")?,
            links: fetch(client, "/links")?,
            names: remote::names(client),
        })
    }

    fn picture(&self, view: View, order: Order, client: &Client, terminal: Terminal) -> String {
        let table = match view {
            View::Flows => self.flow_table(terminal),
            View::Nodes => self.node_table(order),
            View::Links => self.link_table(order),
        };
        let body = if table.is_empty() { format!("{}\n", self.nothing(view)) } else { table.render() };
        format!("{}\n{body}", self.head(view, order, client, terminal))
    }

    fn nothing(&self, view: View) -> &'static str {
        match view {
            View::Flows if self.status.rates.reports > 0.0 || !self.nodes.nodes.is_empty() => {
                "no flow matches"
            }
            _ => "nothing yet: no report has arrived",
        }
    }

    fn head(&self, view: View, order: Order, client: &Client, terminal: Terminal) -> String {
        let StatusView { version, uptime_s, rates, .. } = &self.status;
        let uptime = units::clock(Duration::from_secs_f64(uptime_s.clamp(0.0, 1e9)));
        let first = terminal.paint(Tone::Strong, &format!("hopwise {version}"));
        let (reports, events) = (units::short(rates.reports), units::short(rates.events));
        let tabs = [(View::Flows, "f flows"), (View::Nodes, "n nodes"), (View::Links, "l links")]
            .map(|(tab, name)| if tab == view { terminal.paint(Tone::Strong, name) } else { name.into() });
        format!(
            "{first}  {}  up {uptime}  {reports} reports/s  {events} events/s\n{}{}\n{}   s order: {}   q quit\n",
            client.url(),
            self.inputs(terminal),
            self.losses(terminal),
            tabs.join("  "),
            order.name()
        )
    }

    /// The receive method of each interface, and inputs that fail; working sockets are omitted: `in: xdp://eth1 by
    /// xdp-native · …`.
    fn inputs(&self, terminal: Terminal) -> String {
        let listed =
            self.status.inputs.iter().filter(|input| input.interface.is_some() || input.message.is_some());
        let shown: Vec<_> = listed
            .map(|input| match &input.message {
                Some(why) => terminal.paint(Tone::Bad, &format!("{} is down: {why}", input.listen)),
                None => format!("{} by {}", input.listen, input.kind),
            })
            .collect();
        if shown.is_empty() { String::new() } else { format!("in: {}\n", shown.join(" · ")) }
    }

    /// Lost per stage, with the greatest reason: `lost: network 12 (lost), unconfirmed 3 · kernel 0 · …`.
    fn losses(&self, terminal: Terminal) -> String {
        let stages = self.status.loss_budget.iter().map(|stage| {
            let total: u64 = stage.drops.values().sum();
            let text = format!("{} {}", stage.stage, units::count(total));
            let text = match stage.drops.iter().max_by_key(|(_, count)| **count) {
                Some((reason, count)) if *count > 0 => {
                    terminal.paint(Tone::Bad, &format!("{text} ({reason})"))
                }
                _ => text,
            };
            match stage.evidence {
                Some(Evidence { unconfirmed: more @ 1.., .. }) => {
                    format!("{text}, unconfirmed {}", units::count(more))
                }
                _ => text,
            }
        });
        format!("lost: {}", stages.collect::<Vec<_>>().join(" · "))
    }

    fn flow_table(&self, terminal: Terminal) -> Table {
        use Align::{Left, Right};
        let slowest = self.flows.flows.iter().filter_map(|flow| flow.flow_latency).max().unwrap_or(0);
        let mut table =
            Table::new([("LATENCY", Right), ("", Left), ("REPORTS", Right), ("FLOW", Left), ("PATH", Left)]);
        for flow in self.flows.flows.iter().take(terminal.height.saturating_sub(6)) {
            table.row([
                flow.flow_latency.map_or("-".into(), units::nanos),
                plot::bar(flow.flow_latency.unwrap_or(0) as f64, slowest as f64, 12),
                units::count(flow.reports),
                flow.text.clone(),
                self.names.path(&flow.path),
            ]);
        }
        table
    }

    fn node_table(&self, order: Order) -> Table {
        use Align::{Left, Right};
        let fullest = |node: &NodeView| {
            node.queues
                .iter()
                .max_by_key(|queue| queue.occupancy)
                .map(|queue| (queue.occupancy, queue.clone()))
        };
        let mut nodes: Vec<_> = self.nodes.nodes.iter().collect();
        nodes.sort_by_key(|node| {
            std::cmp::Reverse(match order {
                Order::Latency => node.hop_latency.p99.or(node.hop_latency.latest).unwrap_or(0),
                Order::Queue => fullest(node).and_then(|(occupancy, _)| occupancy).unwrap_or(0),
                Order::Rate => node.reports,
            })
        });
        let heads = [("NODE", Right), ("NAME", Left), ("LATENCY", Right), ("P50", Right), ("P99", Right)];
        let more = [("MAX", Right), ("QUEUE", Right), ("NOW", Right), ("MAX", Right), ("UNIT", Left)];
        let last = [("DROPS", Right), ("REPORTS", Right)];
        // A column that concerns few networks.
        let implausible = nodes.iter().any(|node| node.implausible_latencies > 0);
        let odd = implausible.then_some(("IMPLAUSIBLE", Right));
        let mut table = Table::new(heads.into_iter().chain(more).chain(last).chain(odd));
        for node in nodes {
            let latency = node.hop_latency;
            let span = |value: Option<u64>| value.map_or("-".into(), units::nanos);
            let queue = fullest(node).map(|(_, queue)| queue);
            let number = |value: Option<u64>| value.map_or("-".into(), units::count);
            let row = [
                node.node.to_string(),
                node.name.clone().unwrap_or_default(),
                span(latency.latest),
                span(latency.p50),
                span(latency.p99),
                span(latency.max),
                queue
                    .as_ref()
                    .map_or("-".into(), |queue| queue.queue.map_or("all".into(), |id| id.to_string())),
                number(queue.as_ref().and_then(|queue| queue.occupancy)),
                number(queue.as_ref().and_then(|queue| queue.max)),
                queue.map(|queue| queue.unit).unwrap_or_default(),
                units::count(node.drops),
                units::count(node.reports),
            ];
            let odd = odd.map(|_| units::count(node.implausible_latencies));
            table.row(row.into_iter().chain(odd));
        }
        table
    }

    fn link_table(&self, order: Order) -> Table {
        use Align::{Left, Right};
        let mut links: Vec<_> = self.links.links.iter().collect();
        links.sort_by(|a, b| {
            match order {
                Order::Latency => a.hop_latency.cmp(&b.hop_latency),
                Order::Queue => a.queue_occupancy.cmp(&b.queue_occupancy),
                Order::Rate => a.utilization.unwrap_or(0.0).total_cmp(&b.utilization.unwrap_or(0.0)),
            }
            .reverse()
        });
        let heads = [("LINK", Left), ("IF", Right), ("UTILIZATION", Right), ("", Left), ("QUEUE", Right)];
        let mut table = Table::new(heads.into_iter().chain([("NODE LATENCY", Right), ("FLOWS", Right)]));
        for link in links {
            table.row([
                format!("{} > {}", self.names.node(link.from), self.names.node(link.to)),
                link.egress_if
                    .map_or("-".into(), |interface| self.names.interface(Some(link.from), interface)),
                link.utilization.map_or("-".into(), |share| format!("{:.1} %", share * 100.0)),
                plot::bar(link.utilization.unwrap_or(0.0), 1.0, 12),
                link.queue_occupancy.map_or("-".into(), units::count),
                link.hop_latency.map_or("-".into(), units::nanos),
                units::count(link.flows),
            ]);
        }
        table
    }
}

/// The alternate screen, with keys read one by one. Dropping it restores the terminal.
///
/// The terminal's mode is changed by `stty`, which every system with a terminal has: doing it here would need unsafe code.
struct Screen {
    mode: Option<String>,
}

impl Screen {
    fn enter() -> Self {
        let mode = stty(&["-g"]).map(|mode| mode.trim().to_string());
        if mode.is_some() {
            // Without isig Ctrl-C comes as a key, so that it is handled like `q`.
            stty(&["-icanon", "-echo", "-isig", "min", "1"]);
        }
        print!("\x1b[?1049h\x1b[?25l\x1b[2J");
        Self { mode }
    }

    /// Keys as they are pressed. The reading thread ends with the process.
    fn keys(&self) -> Receiver<u8> {
        let (sender, receiver) = mpsc::channel();
        if self.mode.is_some() {
            thread::spawn(move || {
                for byte in io::stdin().lock().bytes() {
                    let Ok(byte) = byte else { break };
                    if sender.send(byte).is_err() {
                        break;
                    }
                }
            });
        }
        receiver
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        print!("\x1b[?25h\x1b[?1049l");
        // No error handling: the terminal may be gone.
        let _ = io::stdout().flush();
        if let Some(mode) = &self.mode {
            stty(&[mode]);
        }
    }
}

fn stty(args: &[&str]) -> Option<String> {
    let output =
        Command::new("stty").args(args).stdin(Stdio::inherit()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot() -> Snapshot {
        let status = json!({"version": "0.1.0", "uptime_s": 192, "now": 5,
            "rates": {"reports": 12_300.0, "events": 40.0, "datagrams": 12_300.0},
            "loss_budget": [
                {"stage": "network", "in": 112, "out": 100, "drops": {"lost": 12}, "evidence": {"unconfirmed": 3, "datagrams": 100}},
                {"stage": "kernel", "in": 100, "out": 100, "drops": {"receive_buffer": 0}}]});
        let flow = json!({"id": "00", "flow": {"src": "10.0.0.1", "dst": "10.0.0.2", "sport": 1, "dport": 2, "proto": 6},
            "text": "10.0.0.1:1>10.0.0.2:2/6", "path": [1, null, 3], "flow_latency": 1_500_000, "basis": "hop_sum",
            "reports": 1_000, "first_seen": 1, "last_seen": 2});
        let nodes = json!({"nodes": [
            {"node": 1, "name": null, "reports": 9, "last_seen": 2, "hop_latency": {"latest": 5}, "queues": [], "drops": 0},
            {"node": 3, "name": "leaf3", "reports": 5, "last_seen": 2, "hop_latency": {"latest": 900, "p50": 800, "p99": 990,
             "min": 1, "max": 1_000}, "queues": [{"queue": 0, "occupancy": 64, "max": 200, "unit": "packets"}], "drops": 2}]});
        let links = json!({"links": [{"from": 1, "to": 3, "egress_if": 2, "ingress_if": null, "utilization": 0.5,
            "queue_occupancy": 64, "hop_latency": 900, "flows": 4, "last_seen": 2}]});
        Snapshot {
            status: serde_json::from_value(status).unwrap(),
            flows: serde_json::from_value(json!({"flows": [flow], "total": 1})).unwrap(),
            nodes: serde_json::from_value(nodes).unwrap(),
            links: serde_json::from_value(links).unwrap(),
            names: Names::default(),
        }
    }

    fn picture(view: View, order: Order) -> String {
        snapshot().picture(view, order, &Client::new("127.0.0.1:1", None).unwrap(), Terminal::plain())
    }

    #[test]
    fn flows_show_latency_and_path_under_the_loss_budget() {
        assert_eq!(
            picture(View::Flows, Order::Latency),
            "hopwise 0.1.0  http://127.0.0.1:1  up 3:12  12.3 k reports/s  40.0 events/s
lost: network 12 (lost), unconfirmed 3 · kernel 0
f flows  n nodes  l links   s order: latency   q quit

LATENCY                REPORTS  FLOW                     PATH
1.50 ms  ████████████    1,000  10.0.0.1:1>10.0.0.2:2/6  1>?>3
"
        );
    }

    #[test]
    fn interfaces_are_shown_with_their_receive_path() {
        let input = |listen: &str, interface: Option<&str>, message: Option<&str>| crate::view::InputView {
            listen: listen.to_owned(),
            kind: "xdp-native".into(),
            interface: interface.map(str::to_owned),
            message: message.map(str::to_owned),
            ..Default::default()
        };
        let mut shown = snapshot();
        assert_eq!(shown.inputs(Terminal::plain()), "");
        shown.status.inputs = vec![
            input("udp://0.0.0.0:1", None, None),
            input("xdp://eth1", Some("eth1"), None),
            input("xdp://eth2", Some("eth2"), Some("the interface is gone")),
        ];
        let expected = "in: xdp://eth1 by xdp-native · xdp://eth2 is down: the interface is gone\n";
        assert_eq!(shown.inputs(Terminal::plain()), expected);
    }

    #[test]
    fn nodes_are_in_the_requested_order() {
        let rows =
            |order| picture(View::Nodes, order).lines().skip(5).map(str::to_string).collect::<Vec<_>>();
        let slow = "   3  leaf3   900 ns  800 ns  990 ns  1.00 us      0   64  200  packets      2        5";
        let busy = "   1            5 ns       -       -        -      -    -    -               0        9";
        assert_eq!(rows(Order::Latency), [slow, busy]);
        assert_eq!(rows(Order::Rate), [busy, slow]);
    }

    #[test]
    fn a_line_is_cut_where_the_screen_ends() {
        assert_eq!(cut("\x1b[1mab\x1b[0mcd", 3), "\x1b[1mab\x1b[0mc");
        assert_eq!([cut("äbc", 1), cut("abc", 3), cut("", 3)], ["ä", "abc", ""]);
    }

    #[test]
    fn links_show_their_utilization() {
        let shown = picture(View::Links, Order::Rate);
        assert_eq!(
            shown.lines().skip(4).collect::<Vec<_>>(),
            [
                "LINK   IF  UTILIZATION          QUEUE  NODE LATENCY  FLOWS",
                "1 > 3   2       50.0 %  ██████     64        900 ns      4"
            ]
        );
    }
}
