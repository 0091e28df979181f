//! The simulated network in real time: each step sends the reports that are due.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dataplane::demo::{self, Line};
use dataplane::fabric::{Action, DatagramOutcome, Fabric, FabricSink, GroundTruth, Reporter};
use nic::udp::Sender;
use wire::FlowKey;

use super::dta::{ControlSockets, Reported, Reporters};
use super::{devices::Devices, is_switch};
use crate::config::dta::DtaSettings;
use crate::manager_role::Local;
use terminal::CliError;
use terminal::Tone;
use terminal::{Terminal, units};

/// Simulated time per step. Shorter steps are smoother, longer ones cost less.
const STEP: Duration = Duration::from_millis(5);
/// A network with a greater lag is not realistic; the command warns.
const LAG: Duration = Duration::from_secs(2);

/// The network and its schedule.
#[derive(Debug)]
pub(super) struct Network {
    fabric: Fabric,
    script: Vec<Line>,
    start: u64,
    sockets: Option<ControlSockets>,
    reporters: Reporters,
    devices: Option<Devices>,
}

/// Counts of the sent datagrams, and of those that the simulated network lost or duplicated.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Sent {
    /// Datagrams that the switches sent.
    pub(super) sent: u64,
    /// Of these, datagrams that the simulated network lost: they were not passed to the socket.
    pub(super) lost: u64,
    /// Of the lost ones, the first or last of a stream: they leave no gap in the sequence numbers.
    pub(super) unseen: u64,
    /// Datagrams passed to the socket twice.
    pub(super) duplicated: u64,
    /// How long it ran.
    pub(super) span: Duration,
}

impl Network {
    /// A network that starts now, and the names of its switches.
    pub(super) fn new(seed: u64) -> Result<(Self, Vec<(u32, String)>), CliError> {
        let start = nic::time::now();
        let (fabric, script) = demo::scenario_at(seed, start)
            .map_err(|error| CliError::new(format!("the demo's network: {error}")))?;
        let switches = fabric.topology().nodes().iter().filter(|node| is_switch(&node.kind));
        let names = switches.map(|node| (node.id, node.name.clone())).collect();
        let (sockets, reporters) = (None, Reporters::default());
        Ok((Self { fabric, script, start, sockets, reporters, devices: None }, names))
    }

    /// Leaves the configuration of the switches to a manager: where it sends its commands.
    pub(super) fn manage(&mut self) -> Result<Local, CliError> {
        let (devices, commands) = Devices::new(&mut self.fabric)?;
        self.devices = Some(devices);
        Ok(commands)
    }

    /// Executes what the manager has sent.
    pub(super) fn obey(&mut self) {
        if let Some(devices) = &mut self.devices {
            devices.poll(&mut self.fabric);
        }
    }

    /// The network.
    pub(super) fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Opens the sockets at which the switches listen to translators: the port of all of them.
    pub(super) fn listen(&mut self) -> Result<u16, CliError> {
        let switches = self.fabric.topology().nodes().iter().filter(|node| is_switch(&node.kind));
        let nodes: Vec<u32> = switches.map(|node| node.id).collect();
        let sockets = self.sockets.insert(ControlSockets::open(&nodes)?);
        Ok(sockets.port)
    }

    /// Lets the switches report by DTA as well, to the translator at `to`.
    pub(super) fn report_to(&mut self, to: SocketAddr, settings: &DtaSettings) -> Result<(), CliError> {
        if let Some(sockets) = self.sockets.take() {
            self.reporters = Reporters::attach(sockets, settings, to, &mut self.fabric)?;
        }
        Ok(())
    }

    /// A flow for the example queries: IPv4, between two leaves.
    pub(super) fn example(&self) -> Option<FlowKey> {
        let net = |address: IpAddr| match address {
            IpAddr::V4(address) => Some(address.octets()[2]),
            IpAddr::V6(_) => None,
        };
        let mut flows = self.fabric.flows().map(|totals| totals.flow);
        flows.find(|flow| net(flow.src()).is_some_and(|from| net(flow.dst()).is_some_and(|to| from != to)))
    }

    /// The schedule, by the time since the start.
    pub(super) fn script(&self) -> &[Line] {
        &self.script
    }

    /// `6 switches, 8 hosts, 60 flows`.
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

    /// Runs in real time until `stop`, or for `span`; prints each line of the schedule when it is due.
    pub(super) fn run(
        mut self,
        to: SocketAddr,
        span: Option<Duration>,
        stop: &AtomicBool,
    ) -> Result<(Sent, Reported), CliError> {
        let begin = Instant::now();
        let mut wire = Outbox::new(to);
        let mut script = std::mem::take(&mut self.script).into_iter().peekable();
        let mut warned = false;
        // Relaxed: no other data depends on the flag.
        while !stop.load(Ordering::Relaxed) && span.is_none_or(|span| begin.elapsed() < span) {
            let elapsed = begin.elapsed();
            self.obey();
            self.advance(self.start + elapsed.as_nanos() as u64, &mut wire)?;
            while let Some(line) = script.next_if(|line| u128::from(line.at) <= elapsed.as_nanos()) {
                announce(&line)?;
            }
            let late = begin.elapsed() - elapsed;
            if late > LAG && !warned {
                warned = true;
                eprintln!(
                    "hopwise: this machine is too busy to simulate in real time; the network pauses now and then"
                );
            }
            thread::sleep(STEP.saturating_sub(late));
        }
        self.drain(&mut wire)?;
        Ok((wire.account(begin.elapsed()), self.reporters.account(&self.fabric)))
    }

    /// Simulates until `until`, in steps, and sends the reports: a switch queues DTA reports only until its buffer is full.
    fn advance(&mut self, until: u64, wire: &mut Outbox) -> Result<(), CliError> {
        while self.fabric.now() < until {
            let next = self.fabric.now() + STEP.as_nanos() as u64;
            self.fabric.run_until(next.min(until), wire);
            wire.send()?;
            self.reporters.poll(&mut self.fabric);
        }
        Ok(())
    }

    /// Stops all traffic and lets packets in flight arrive.
    fn drain(&mut self, wire: &mut Outbox) -> Result<(), CliError> {
        let now = self.fabric.now();
        for flow in self.fabric.flow_ids() {
            let stopped = self.fabric.schedule(now, Action::StopFlow(flow));
            stopped.map_err(|error| CliError::new(format!("the demo's network: {error}")))?;
        }
        self.advance(now + DRAIN.as_nanos() as u64, wire)
    }
}

/// Simulated time after which no packet is in flight.
const DRAIN: Duration = Duration::from_secs(1);

/// A hint on where the effect of a line of the schedule is visible.
pub(super) fn look_at(text: &str) -> &'static str {
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
    match io::stdout().write_all(text.as_bytes()) {
        // Standard output is closed; the pages still work.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(CliError::output),
    }
}

/// Reports queued for the socket: each switch has a socket of its own, with a loopback address of its own.
struct Outbox {
    to: SocketAddr,
    senders: BTreeMap<u32, Sender>,
    /// The sender, and the end of its payload in `bytes`.
    waiting: Vec<(u32, usize)>,
    bytes: Vec<u8>,
    /// The outcomes of the datagrams of each stream.
    streams: BTreeMap<(u32, u8), Stream>,
}

/// The datagrams of one switch's subsystem. Losses are visible as gaps between sequence numbers, from that of the first datagram that
/// arrives; it is not always the lowest, because datagrams are reordered.
#[derive(Default, Debug)]
struct Stream {
    sent: u64,
    duplicated: u64,
    /// Sequence numbers of the lost datagrams.
    lost: Vec<u32>,
    /// Sequence number of the first datagram that arrived, and the highest one.
    arrived: Option<(u32, u32)>,
}

impl Stream {
    fn send(&mut self, seq: u32, outcome: DatagramOutcome) {
        self.sent += 1;
        self.duplicated += u64::from(outcome == DatagramOutcome::Duplicated);
        if outcome == DatagramOutcome::Lost {
            self.lost.push(seq);
        }
    }

    fn arrive(&mut self, seq: u32) {
        let (_, highest) = self.arrived.get_or_insert((seq, seq));
        *highest = seq.max(*highest);
    }

    /// Losses without a gap.
    fn unseen(&self) -> u64 {
        let shown = |seq: &&u32| self.arrived.is_some_and(|(first, highest)| (first..highest).contains(*seq));
        (self.lost.len() - self.lost.iter().filter(shown).count()) as u64
    }
}

impl FabricSink for Outbox {
    fn report(&mut self, _: u64, from: &Reporter, payload: &[u8]) {
        self.bytes.extend_from_slice(payload);
        self.waiting.push((from.node, self.bytes.len()));
    }

    fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
        match truth {
            GroundTruth::Datagram(sent) => {
                self.streams.entry((sent.node, sent.hw_id)).or_default().send(sent.seq, sent.outcome);
            }
            GroundTruth::Arrival(arrival) => {
                self.streams.entry((arrival.node, arrival.hw_id)).or_default().arrive(arrival.seq);
            }
            _ => {}
        }
    }
}

impl Outbox {
    fn new(to: SocketAddr) -> Self {
        let (waiting, bytes) = (Vec::new(), Vec::new());
        Self { to, senders: BTreeMap::new(), waiting, bytes, streams: BTreeMap::new() }
    }

    /// The outcomes of all datagrams.
    fn account(&self, span: Duration) -> Sent {
        let mut sent = Sent { span, ..Sent::default() };
        for stream in self.streams.values() {
            sent.sent += stream.sent;
            sent.lost += stream.lost.len() as u64;
            sent.unseen += stream.unseen();
            sent.duplicated += stream.duplicated;
        }
        sent
    }

    /// Sends all queued reports, in order. Consecutive reports of one switch share a system call.
    fn send(&mut self) -> Result<(), CliError> {
        let Self { to, senders, waiting, bytes, .. } = self;
        let mut start = 0;
        for run in waiting.chunk_by(|a, b| a.0 == b.0) {
            let payloads: Vec<&[u8]> = run
                .iter()
                .map(|(_, end)| {
                    let payload = &bytes[start..*end];
                    start = *end;
                    payload
                })
                .collect();
            let node = run[0].0;
            sender(senders, node, *to)?.send_burst(&payloads).map_err(failed)?;
        }
        waiting.clear();
        bytes.clear();
        Ok(())
    }
}

fn sender(senders: &mut BTreeMap<u32, Sender>, node: u32, to: SocketAddr) -> Result<&mut Sender, CliError> {
    use std::collections::btree_map::Entry;
    match senders.entry(node) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(new) => {
            // 127.0.0.101 for node 101; systems with a smaller loopback network send all from 127.0.0.1.
            let own = Ipv4Addr::new(127, 0, (node >> 8) as u8, node as u8);
            let sender = Sender::connect(SocketAddr::from((own, 0)), to)
                .or_else(|_| Sender::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), to));
            Ok(new.insert(sender.map_err(failed)?))
        }
    }
}

fn failed(error: nic::Error) -> CliError {
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
        let mut wire = Outbox::new(to);
        for (node, payload) in [(101, "a"), (101, "bc"), (102, "d"), (101, "e")] {
            let from = Reporter { node, address: Ipv4Addr::LOCALHOST.into(), port: 1 };
            wire.report(0, &from, payload.as_bytes());
        }
        wire.send().unwrap();
        let mut buffer = [0; 16];
        let received: Vec<(String, String)> = (0..4)
            .map(|_| {
                let (length, from) = socket.recv_from(&mut buffer).unwrap();
                (String::from_utf8_lossy(&buffer[..length]).into_owned(), from.ip().to_string())
            })
            .collect();
        let one = |text: &str, node: u8| (text.to_string(), format!("127.0.0.{node}"));
        assert_eq!(received, [one("a", 101), one("bc", 101), one("d", 102), one("e", 101)]);
    }

    #[test]
    fn losses_that_no_gap_shows_are_counted_apart() {
        let mut wire = Outbox::new("127.0.0.1:1".parse().unwrap());
        let stream = wire.streams.entry((101, 0)).or_default();
        use DatagramOutcome::{Delayed, Delivered, Duplicated, Lost};
        let outcomes = [Lost, Delivered, Lost, Lost, Duplicated, Delayed, Lost];
        outcomes.into_iter().zip(0..).for_each(|(outcome, seq)| stream.send(seq, outcome));
        [1, 4, 4, 5].into_iter().for_each(|seq| stream.arrive(seq));
        let span = Duration::from_secs(1);
        assert_eq!(wire.account(span), Sent { sent: 7, lost: 4, unseen: 2, duplicated: 1, span });
        // The first datagram arrives after the third: counting begins with that one.
        let stream = wire.streams.entry((102, 0)).or_default();
        let outcomes = [Delayed, Lost, Delivered];
        outcomes.into_iter().zip(0..).for_each(|(outcome, seq)| stream.send(seq, outcome));
        [2, 0].into_iter().for_each(|seq| stream.arrive(seq));
        assert_eq!(stream.unseen(), 1);
    }

    #[test]
    fn the_script_is_explained() {
        let (network, names) = Network::new(1).unwrap();
        assert_eq!(network.describe(), "6 switches, 8 hosts, 60 flows");
        assert_eq!(names.len(), 6);
        assert!(network.script().iter().take(5).any(|line| look_at(&line.text).contains("path_change")));
    }
}
