//! Drives the simulated network in real time, in steps of 5 ms. After each, the reports that it produced are sent through UDP sockets,
//! one socket and loopback address per switch.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{collections::BTreeMap, thread};

use dataplane::demo::{self, Line};
use dataplane::fabric::{Action, Fabric, FabricSink, GroundTruth, Reporter};
use nic::udp::Sender;
use wire::FlowKey;

use super::devices::{Devices, switches_of};
use super::dta::{ControlSockets, DtaTotals, Reporters};
use super::is_switch;
use super::streams::{DatagramTotals, Streams};
use manage_role::role::Local;
use switch_role::settings::dta::DtaSettings;
use terminal::{CliError, Terminal, Tone, units};

/// Simulated time per step. Shorter steps are smoother, longer ones cost less CPU time.
const STEP: Duration = Duration::from_millis(5);
/// Lag behind real time above which the simulated clock stops for that time; the command says so once.
const MAX_LAG: Duration = Duration::from_secs(2);
/// Simulated time after which no packet is in flight any more.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Simulated network with its schedule of bursts and failures.
#[derive(Debug)]
pub(super) struct Network {
    fabric: Fabric,
    script: Vec<Line>,
    start: u64,
    /// Datagrams of the simulated past that the collector has not received yet.
    streams: Streams,
    sockets: Option<ControlSockets>,
    reporters: Reporters,
    devices: Option<Devices>,
}

impl Network {
    /// Creates a network that started `past` ago. The second element has (node id, name) of its switches.
    pub(super) fn new(seed: u64, past: Duration) -> Result<(Self, Vec<(u32, String)>), CliError> {
        let start = nic::time::now() - past.as_nanos() as u64;
        let (fabric, script) = demo::scenario_at(seed, start)
            .map_err(|error| CliError::new(format!("the demo's network: {error}")))?;
        let switches = fabric
            .topology()
            .nodes()
            .iter()
            .filter(|node| is_switch(&node.kind));
        let names = switches.map(|node| (node.id, node.name.clone())).collect();
        Ok((
            Self {
                fabric,
                script,
                start,
                streams: Streams::default(),
                sockets: None,
                reporters: Reporters::default(),
                devices: None,
            },
            names,
        ))
    }

    /// Returns the start of the simulation, ns since the epoch.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Simulates up to `until`, ns since the epoch.
    pub(super) fn run_until(&mut self, until: u64, sink: &mut impl FabricSink) {
        self.fabric.run_until(until, sink);
    }

    /// Continues in real time from the simulated time reached so far. `streams` counts the datagrams in flight.
    pub(super) fn continue_from(&mut self, streams: Streams) {
        let past = self.fabric.now() - self.start;
        self.start = self.fabric.now();
        self.streams = streams;
        self.script.retain(|line| line.at >= past);
        self.script.iter_mut().for_each(|line| line.at -= past);
    }

    /// Leaves the configuration of the switches to a manager. Returns the channel for its commands.
    pub(super) fn manage(&mut self) -> Result<Local, CliError> {
        let (devices, commands) = Devices::new(&mut self.fabric)?;
        self.devices = Some(devices);
        Ok(commands)
    }

    /// Executes the manager's pending commands.
    pub(super) fn execute_commands(&mut self) {
        if let Some(devices) = &mut self.devices {
            devices.poll(&mut self.fabric);
        }
    }

    pub(super) fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Opens the sockets on which the switches receive the translator's control messages. Returns their common port.
    pub(super) fn open_control_sockets(&mut self) -> Result<u16, CliError> {
        let nodes = switches_of(&self.fabric);
        let sockets = self.sockets.insert(ControlSockets::open(&nodes)?);
        Ok(sockets.port)
    }

    /// Makes the switches report by DTA as well, to the translator at `to`.
    pub(super) fn attach_reporters(
        &mut self,
        to: SocketAddr,
        settings: &DtaSettings,
    ) -> Result<(), CliError> {
        if let Some(sockets) = self.sockets.take() {
            self.reporters = Reporters::attach(sockets, settings, to, &mut self.fabric)?;
        }
        Ok(())
    }

    /// Returns a flow for the example queries: IPv4, between two leaves.
    pub(super) fn example_flow(&self) -> Option<FlowKey> {
        let mut flows = self.fabric.flows().map(|totals| totals.flow);
        flows.find(|flow| match (flow.src(), flow.dst()) {
            // The third octet of a host's address identifies its leaf.
            (IpAddr::V4(src), IpAddr::V4(dst)) => src.octets()[2] != dst.octets()[2],
            _ => false,
        })
    }

    /// Returns the schedule; times are ns since the start.
    pub(super) fn script(&self) -> &[Line] {
        &self.script
    }

    /// Describes the size of the network: `6 switches, 8 hosts, 60 flows`.
    pub(super) fn describe(&self) -> String {
        let nodes = self.fabric.topology().nodes();
        let switches = nodes.iter().filter(|node| is_switch(&node.kind)).count();
        format!(
            "{}, {}, {}",
            format_args!("{switches} switches"),
            units::counted((nodes.len() - switches) as u64, "host"),
            units::counted(self.fabric.flow_ids().count() as u64, "flow")
        )
    }

    /// Runs in real time until `stop` is set, or for `span`, and prints each line of the schedule when it is due.
    pub(super) fn run(
        mut self,
        to: SocketAddr,
        span: Option<Duration>,
        stop: &AtomicBool,
    ) -> Result<(DatagramTotals, DtaTotals), CliError> {
        let begin = Instant::now();
        let mut outbox = Outbox::new(to, std::mem::take(&mut self.streams));
        let mut script = std::mem::take(&mut self.script).into_iter().peekable();
        let mut pauses = Duration::ZERO;
        // Relaxed: no other data depends on the flag.
        while !stop.load(Ordering::Relaxed) && span.is_none_or(|span| begin.elapsed() < span) {
            // Between any two steps, so that a slow machine delays the manager's commands no more than the traffic.
            self.execute_commands();
            let due = self.start + (begin.elapsed() - pauses).as_nanos() as u64;
            let lag = Duration::from_nanos(due.saturating_sub(self.fabric.now()));
            if lag > MAX_LAG {
                if pauses.is_zero() {
                    terminal::note(format_args!(
                        "this machine is too busy to simulate in real time; the network pauses now and then"
                    ));
                }
                pauses += lag;
            }
            if lag < STEP {
                thread::sleep(STEP - lag);
                continue;
            }
            self.advance(self.fabric.now() + STEP.as_nanos() as u64, &mut outbox)?;
            let simulated = self.fabric.now() - self.start;
            while let Some(line) = script.next_if(|line| line.at <= simulated) {
                announce(&line)?;
            }
        }
        self.drain(&mut outbox)?;
        Ok((
            outbox.streams.account(begin.elapsed()),
            self.reporters.account(&self.fabric),
        ))
    }

    /// Simulates until `until` in steps and sends the reports after each: a switch's queue of DTA reports is bounded.
    fn advance(&mut self, until: u64, outbox: &mut Outbox) -> Result<(), CliError> {
        while self.fabric.now() < until {
            let next = self.fabric.now() + STEP.as_nanos() as u64;
            self.fabric.run_until(next.min(until), outbox);
            outbox.send()?;
            self.reporters.poll(&mut self.fabric);
        }
        Ok(())
    }

    /// Stops all traffic and lets packets in flight arrive.
    fn drain(&mut self, outbox: &mut Outbox) -> Result<(), CliError> {
        let now = self.fabric.now();
        for flow in self.fabric.flow_ids() {
            let stopped = self.fabric.schedule(now, Action::StopFlow(flow));
            stopped.map_err(|error| CliError::new(format!("the demo's network: {error}")))?;
        }
        self.advance(now + DRAIN_TIME.as_nanos() as u64, outbox)
    }
}

/// Returns a hint on where the effect of a line of the schedule is visible in the web UI.
pub(super) fn look_hint(text: &str) -> &'static str {
    if text.contains("microburst") {
        "look at: Topology coloured by queue; Events: queue_occupancy, the rule \"deep queue\", drops; DTA lists: congestion, losses"
    } else if text.contains("fails") {
        "look at: Events: drops, then path_change; Flow: the path of a flow over that link moves"
    } else {
        "look at: Events: path_change; Flow: the paths come back"
    }
}

/// Prints a line of the schedule when it is due.
fn announce(line: &Line) -> Result<(), CliError> {
    let terminal = Terminal::stdout();
    let at = terminal.paint(Tone::Dim, &units::clock(Duration::from_nanos(line.at)));
    let text = format!("{at}  {}\n", line.text);
    match terminal::stdout().write_all(text.as_bytes()) {
        // Standard output is closed; the pages still work.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(CliError::output),
    }
}

struct QueuedReport {
    /// Node id of the sending switch.
    node: u32,
    /// End of the payload in `Outbox::bytes`.
    end: usize,
}

/// Reports queued for sending. Each switch has its own socket with its own loopback address.
struct Outbox {
    to: SocketAddr,
    senders: BTreeMap<u32, Sender>,
    queued: Vec<QueuedReport>,
    bytes: Vec<u8>,
    streams: Streams,
}

impl FabricSink for Outbox {
    fn report(&mut self, _: u64, from: &Reporter, payload: &[u8]) {
        self.bytes.extend_from_slice(payload);
        self.queued.push(QueuedReport {
            node: from.node,
            end: self.bytes.len(),
        });
    }

    fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
        self.streams.ground_truth(truth);
    }
}

impl Outbox {
    fn new(to: SocketAddr, streams: Streams) -> Self {
        Self {
            to,
            senders: BTreeMap::new(),
            queued: Vec::new(),
            bytes: Vec::new(),
            streams,
        }
    }

    /// Sends all queued reports, in order. Consecutive reports of one switch share a system call.
    fn send(&mut self) -> Result<(), CliError> {
        let Self {
            to,
            senders,
            queued,
            bytes,
            ..
        } = self;
        let mut start = 0;
        for run in queued.chunk_by(|a, b| a.node == b.node) {
            let payloads: Vec<&[u8]> = run
                .iter()
                .map(|report| {
                    let payload = &bytes[start..report.end];
                    start = report.end;
                    payload
                })
                .collect();
            let node = run[0].node;
            sender(senders, node, *to)?
                .send_burst(&payloads)
                .map_err(send_error)?;
        }
        queued.clear();
        bytes.clear();
        Ok(())
    }
}

fn sender(senders: &mut BTreeMap<u32, Sender>, node: u32, to: SocketAddr) -> Result<&mut Sender, CliError> {
    use std::collections::btree_map::Entry;
    match senders.entry(node) {
        Entry::Occupied(entry) => Ok(entry.into_mut()),
        Entry::Vacant(entry) => {
            // 127.0.0.101 for node 101. Systems where only 127.0.0.1 is a local address send from there.
            let loopback = Ipv4Addr::new(127, 0, (node >> 8) as u8, node as u8);
            let sender = Sender::connect(SocketAddr::from((loopback, 0)), to)
                .or_else(|_| Sender::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), to));
            Ok(entry.insert(sender.map_err(send_error)?))
        }
    }
}

fn send_error(error: nic::Error) -> CliError {
    CliError::new(format!("cannot send the demo's reports: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_arrive_in_order_from_an_address_per_switch() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let to = socket.local_addr().unwrap();
        let mut outbox = Outbox::new(to, Streams::default());
        for (node, payload) in [(101, "a"), (101, "bc"), (102, "d"), (101, "e")] {
            let from = Reporter {
                node,
                address: Ipv4Addr::LOCALHOST.into(),
                port: 1,
            };
            outbox.report(0, &from, payload.as_bytes());
        }
        outbox.send().unwrap();
        let mut buffer = [0; 16];
        let received: Vec<(String, String)> = (0..4)
            .map(|_| {
                let (length, from) = socket.recv_from(&mut buffer).unwrap();
                (
                    String::from_utf8_lossy(&buffer[..length]).into_owned(),
                    from.ip().to_string(),
                )
            })
            .collect();
        let one = |text: &str, node: u8| (text.to_string(), format!("127.0.0.{node}"));
        assert_eq!(
            received,
            [one("a", 101), one("bc", 101), one("d", 102), one("e", 101)]
        );
    }

    #[test]
    fn the_script_is_explained() {
        let (network, names) = Network::new(1, Duration::ZERO).unwrap();
        assert_eq!(network.describe(), "6 switches, 8 hosts, 60 flows");
        assert_eq!(names.len(), 6);
        assert!(
            network
                .script()
                .iter()
                .take(5)
                .any(|line| look_hint(&line.text).contains("path_change"))
        );
    }
}
