//! Flows and microbursts between hosts: UDP packets with numbers and timestamps in them, sent and received by sockets inside the
//! hosts. All share one clock, so that the latency is known.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nic::udp::{Burst, Options, Receiver};

use super::remote::Lab;
use super::topology::Topology;
use settings::values::Rate;
use terminal::CliError;

/// How packets are spread over time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Pattern {
    /// One by one, so that each flow has this rate.
    Even {
        /// Of each flow, from the IP header on.
        rate: Rate,
    },
    /// So many at once, and again after a while.
    Burst {
        /// Of each flow.
        packets: u32,
        /// From one burst to the next.
        every: Duration,
    },
}

/// What is to be sent.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Traffic {
    /// Sender and receiver.
    pub(crate) ends: Ends,
    /// From each sender to each receiver.
    pub(crate) flows: u32,
    /// Bytes of a packet, from its IP header on.
    pub(crate) size: u32,
    /// How long.
    pub(crate) span: Duration,
    /// UDP port of the receivers.
    pub(crate) port: u16,
    /// How.
    pub(crate) pattern: Pattern,
}

/// Senders and receivers: places in the list of hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    pairs: Vec<(usize, usize)>,
    ipv6: bool,
}

/// Most flows at once: each is a socket.
const MAX_FLOWS: usize = 4_000;

impl Ends {
    /// Those named: hosts with commas between them, or `all`. Nobody sends to itself.
    ///
    /// # Errors
    /// There is no such host; one has no address of that family; nobody is left to send to.
    pub(crate) fn find(topology: &Topology, from: &str, to: &str, ipv6: bool) -> Result<Self, CliError> {
        let (from, to) = (hosts(topology, from)?, hosts(topology, to)?);
        let pairs = from.iter().flat_map(|from| to.iter().map(move |to| (*from, *to)));
        let pairs: Vec<_> = pairs.filter(|(from, to)| from != to).collect();
        if pairs.is_empty() {
            return Err(CliError::new("a host does not send to itself; name another receiver"));
        }
        let lacks = |index: &usize| topology.hosts[*index].address(ipv6).is_none();
        if let Some(index) = from.iter().chain(&to).copied().find(|index| lacks(index)) {
            let (family, other) = if ipv6 { ("IPv6", "leave -6 out") } else { ("IPv4", "add -6") };
            return Err(CliError::new(format!(
                "{} has no {family} address; {other}",
                topology.hosts[index].name
            )));
        }
        Ok(Self { pairs, ipv6 })
    }
}

fn hosts(topology: &Topology, named: &str) -> Result<Vec<usize>, CliError> {
    if named == "all" {
        return Ok((0..topology.hosts.len()).collect());
    }
    let find = |name: &str| {
        topology.hosts.iter().position(|host| host.name == name).ok_or_else(|| {
            let all: Vec<&str> = topology.hosts.iter().map(|host| host.name.as_str()).collect();
            CliError::new(format!(
                "there is no host `{name}` in the lab {}; there are {}",
                topology.name,
                all.join(", ")
            ))
        })
    };
    let mut found = named.split(',').map(find).collect::<Result<Vec<_>, _>>()?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Outcomes of the packets from one sender to one receiver.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Figures {
    /// Sender and receiver.
    pub(crate) between: [String; 2],
    /// Packets that the sender's system took.
    pub(crate) sent: u64,
    /// Packets that it refused.
    pub(crate) refused: u64,
    /// Packets that arrived.
    pub(crate) received: u64,
    /// Of these, those that arrived after a later one of their flow.
    pub(crate) reordered: u64,
    /// Minimum latency, ns.
    pub(crate) min: u64,
    /// Maximum latency, ns.
    pub(crate) max: u64,
    /// Sum of all latencies, ns.
    pub(crate) sum: u128,
}

impl Figures {
    /// Packets that were sent and did not arrive.
    pub(crate) fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    fn arrived(&mut self, late: bool, delay: u64) {
        self.min = if self.received == 0 { delay } else { self.min.min(delay) };
        self.max = self.max.max(delay);
        self.sum += u128::from(delay);
        self.received += 1;
        self.reordered += u64::from(late);
    }
}

/// A packet's payload: a mark, the flow's number, the packet's number in it, the time when it was sent.
const HEADER: usize = 24;
const MARK: [u8; 4] = *b"hwlt";

fn payload(buffer: &mut [u8], flow: u32, number: u64, now: u64) {
    buffer[..4].copy_from_slice(&MARK);
    buffer[4..8].copy_from_slice(&flow.to_be_bytes());
    buffer[8..16].copy_from_slice(&number.to_be_bytes());
    buffer[16..24].copy_from_slice(&now.to_be_bytes());
}

/// Flow, number and time of a payload of ours.
fn read(payload: &[u8]) -> Option<(u32, u64, u64)> {
    let rest = payload.get(..HEADER)?.strip_prefix(&MARK)?;
    let (flow, rest) = rest.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    Some((u32::from_be_bytes(*flow), u64::from_be_bytes(*number), u64::from_be_bytes(*rest.first_chunk()?)))
}

/// A flow at its sender.
struct Flow {
    id: u32,
    pair: usize,
    socket: UdpSocket,
    number: u64,
    due: Duration,
}

/// The IP and UDP headers before a payload.
fn headers(ipv6: bool) -> usize {
    if ipv6 { 48 } else { 28 }
}

/// How long packets may still be on their way when the last was sent: longer than any queue of a usual lab.
const ON_THE_WAY: Duration = Duration::from_secs(2);
/// No packet for so long: none is on its way any more.
const SILENCE: Duration = Duration::from_millis(300);

/// Sends it all, and waits for what is on its way.
///
/// # Errors
/// There are too many flows; a socket cannot be opened.
pub(crate) fn run(lab: &Lab, traffic: &Traffic) -> Result<Vec<Figures>, CliError> {
    let topology = &lab.topology;
    let Ends { pairs, ipv6 } = &traffic.ends;
    let all = pairs.len() * traffic.flows as usize;
    if all > MAX_FLOWS {
        return Err(CliError::new(format!(
            "these are {all} flows, and {MAX_FLOWS} are possible; choose fewer hosts or --flows"
        )));
    }
    let receivers = by_host(pairs.iter().map(|(_, to)| *to));
    let senders = by_host(pairs.iter().map(|(from, _)| *from));
    let mut sockets = Vec::new();
    for host in receivers {
        sockets.push(receiver(lab, host, traffic)?);
    }
    let mut flows = Vec::new();
    for host in senders {
        flows.push(open_flows(lab, host, traffic)?);
    }
    let name = |index: usize| topology.hosts[index].name.clone();
    let mut figures: Vec<Figures> = pairs
        .iter()
        .map(|(from, to)| Figures { between: [name(*from), name(*to)], ..Figures::default() })
        .collect();
    let sent_all = AtomicBool::new(false);
    let gone = || !lab.directory.path().exists();
    let parts = thread::scope(|scope| {
        let receiving: Vec<_> = sockets
            .into_iter()
            .map(|socket| scope.spawn(|| receive(socket, all, traffic.flows, pairs.len(), &sent_all)))
            .collect();
        let sending: Vec<_> = flows
            .into_iter()
            .map(|flows| scope.spawn(|| send(flows, traffic, *ipv6, pairs.len(), &gone)))
            .collect();
        let mut parts: Vec<_> = sending.into_iter().map(|thread| thread.join()).collect();
        // Relaxed: the flag travels alone; joining orders the rest.
        sent_all.store(true, Ordering::Relaxed);
        parts.extend(receiving.into_iter().map(|thread| thread.join()));
        parts
    });
    for part in parts {
        let part = part
            .map_err(|_| CliError::new("a thread of the traffic panicked; this is a fault of this build"))?;
        for (whole, part) in figures.iter_mut().zip(part) {
            merge(whole, &part);
        }
    }
    Ok(figures)
}

fn by_host(hosts: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut hosts: Vec<usize> = hosts.collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

/// Sender and receiver know different parts of a pair's figures.
fn merge(whole: &mut Figures, part: &Figures) {
    whole.sent += part.sent;
    whole.refused += part.refused;
    if part.received > 0 {
        let first = whole.received == 0;
        whole.min = if first { part.min } else { whole.min.min(part.min) };
        whole.max = whole.max.max(part.max);
        whole.sum += part.sum;
        whole.received += part.received;
        whole.reordered += part.reordered;
    }
}

fn address(lab: &Lab, host: usize, ipv6: bool) -> IpAddr {
    // That each host has one was checked.
    lab.topology.hosts[host].address(ipv6).unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
}

fn receiver(lab: &Lab, host: usize, traffic: &Traffic) -> Result<Receiver, CliError> {
    let at = SocketAddr::new(address(lab, host, traffic.ends.ipv6), traffic.port);
    let options = Options { recv_buffer: 16 << 20, ..Options::default() };
    let failed =
        |error: nic::Error| CliError::new(format!("host {}: {error}", lab.topology.hosts[host].name));
    let inside = lab.namespace(&lab.topology.hosts[host].name);
    nic::netns::within(&inside, || Receiver::bind(at, &options)).map_err(failed)?.map_err(failed)
}

fn open_flows(lab: &Lab, host: usize, traffic: &Traffic) -> Result<Vec<Flow>, CliError> {
    let ipv6 = traffic.ends.ipv6;
    let from = SocketAddr::new(address(lab, host, ipv6), 0);
    let name = &lab.topology.hosts[host].name;
    let failed = |error| {
        CliError::io(format!("host {name} cannot send"), error, "raise the limit on open files (ulimit -n)")
    };
    let open = || {
        let mut flows = Vec::new();
        for (pair, (_, to)) in traffic.ends.pairs.iter().enumerate().filter(|(_, (from, _))| *from == host) {
            for copy in 0..traffic.flows {
                let socket = UdpSocket::bind(from)?;
                socket.connect(SocketAddr::new(address(lab, *to, ipv6), traffic.port))?;
                let id = pair as u32 * traffic.flows + copy;
                flows.push(Flow { id, pair, socket, number: 0, due: Duration::ZERO });
            }
        }
        Ok(flows)
    };
    let inside = lab.namespace(name);
    nic::netns::within(&inside, open).map_err(|error| CliError::new(error.to_string()))?.map_err(failed)
}

/// Sends the flows of one host.
fn send(
    mut flows: Vec<Flow>,
    traffic: &Traffic,
    ipv6: bool,
    pairs: usize,
    gone: &(impl Fn() -> bool + Sync),
) -> Vec<Figures> {
    /// Shorter naps are not slept but passed on: the flows catch up.
    const NAP: Duration = Duration::from_micros(100);
    const LONGEST_NAP: Duration = Duration::from_millis(100);
    let mut figures = vec![Figures::default(); pairs];
    let mut buffer = vec![0; (traffic.size as usize).saturating_sub(headers(ipv6)).max(HEADER)];
    let (gap, at_once) = match traffic.pattern {
        Pattern::Even { rate } => (Duration::from_secs_f64(f64::from(traffic.size) * 8.0 / rate.0 as f64), 1),
        Pattern::Burst { packets, every } => (every.max(Duration::from_micros(1)), packets),
    };
    // Flows at an even pace do not start all at the same moment.
    if at_once == 1 {
        let count = flows.len() as u32;
        for (index, flow) in flows.iter_mut().enumerate() {
            flow.due = gap / count * index as u32;
        }
    }
    let start = Instant::now();
    let mut looked = start;
    while start.elapsed() < traffic.span {
        let now = start.elapsed();
        for flow in flows.iter_mut().filter(|flow| flow.due <= now && flow.due < traffic.span) {
            flow.due += gap;
            for _ in 0..at_once {
                payload(&mut buffer, flow.id, flow.number, nic::time::monotonic());
                flow.number += 1;
                match flow.socket.send(&buffer) {
                    Ok(_) => figures[flow.pair].sent += 1,
                    Err(_) => figures[flow.pair].refused += 1,
                }
            }
        }
        let next = flows.iter().map(|flow| flow.due).min().unwrap_or(traffic.span).min(traffic.span);
        let nap = next.saturating_sub(start.elapsed()).min(LONGEST_NAP);
        thread::sleep(nap.max(NAP));
        // Once in a while: when the lab is taken down, its traffic ends.
        if looked.elapsed() > LONGEST_NAP {
            looked = Instant::now();
            if gone() {
                break;
            }
        }
    }
    figures
}

/// Receives at one host, until all is sent and nothing comes any more.
fn receive(
    mut receiver: Receiver,
    flows: usize,
    flows_per_pair: u32,
    pairs: usize,
    sent_all: &AtomicBool,
) -> Vec<Figures> {
    const STEP_MS: u32 = 20;
    let mut figures = vec![Figures::default(); pairs];
    let mut latest: Vec<Option<u64>> = vec![None; flows];
    let mut burst = Burst::new(64, 9_216);
    let (mut last, mut ended) = (Instant::now(), None);
    loop {
        // A socket that fails is asked again, until the time is over.
        let filled = receiver.recv(&mut burst, STEP_MS).unwrap_or(0);
        if filled > 0 {
            last = Instant::now();
        }
        let now = nic::time::monotonic();
        for packet in burst.iter().take(filled) {
            let Some((flow, number, sent)) = read(packet.data) else { continue };
            let Some(latest) = latest.get_mut(flow as usize) else { continue };
            let late = latest.is_some_and(|latest| number < latest);
            *latest = Some(latest.map_or(number, |latest| latest.max(number)));
            figures[(flow / flows_per_pair) as usize].arrived(late, now.saturating_sub(sent));
        }
        if sent_all.load(Ordering::Relaxed) {
            let since = ended.get_or_insert_with(Instant::now).elapsed();
            if since > ON_THE_WAY || (since > SILENCE && last.elapsed() > SILENCE) {
                return figures;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology() -> Topology {
        let text = include_str!("../../examples/lab/three-switches.toml");
        crate::load::parse(text, "example.toml", &crate::program::Lenient)
            .map_err(|error| error.to_string())
            .unwrap()
    }

    #[test]
    fn hosts_are_named_or_all() {
        let topology = topology();
        let pairs = |from: &str, to: &str| {
            Ends::find(&topology, from, to, true).map(|ends| ends.pairs).map_err(|error| error.to_string())
        };
        assert_eq!(pairs("h1,h2,h1", "h3"), Ok(vec![(0, 2), (1, 2)]));
        assert_eq!(pairs("all", "all").map(|pairs| pairs.len()), Ok(6));
        assert_eq!(
            pairs("h1", "h1"),
            Err("a host does not send to itself; name another receiver".to_owned())
        );
        assert_eq!(
            pairs("h1", "s1"),
            Err("there is no host `s1` in the lab three; there are h1, h2, h3".to_owned())
        );
    }

    #[test]
    fn a_payload_reads_as_it_was_written() {
        let mut buffer = [0xa5; 100];
        payload(&mut buffer, 7, 1 << 40, 123);
        assert_eq!(read(&buffer), Some((7, 1 << 40, 123)));
        assert_eq!(read(&buffer[..23]), None);
        assert_eq!(read(&[0; 100]), None);
    }

    #[test]
    fn the_figures_of_sender_and_receiver_make_one() {
        let mut receiver = Figures::default();
        [(false, 5), (false, 9), (true, 1)]
            .into_iter()
            .for_each(|(late, delay)| receiver.arrived(late, delay));
        let mut whole = Figures { sent: 4, ..Figures::default() };
        merge(&mut whole, &receiver);
        merge(&mut whole, &Figures { refused: 2, ..Figures::default() });
        let found = (
            whole.sent,
            whole.refused,
            whole.received,
            whole.lost(),
            whole.reordered,
            whole.min,
            whole.max,
            whole.sum,
        );
        assert_eq!(found, (4, 2, 3, 1, 1, 1, 9, 15));
    }
}
