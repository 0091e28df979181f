//! `hopwise lab traffic`: generates flows and microbursts between hosts. UDP packets carry a sequence number and a send time;
//! sockets inside the hosts send and receive them. Namespaces share one monotonic clock, so one-way latency is exact.
//!
//! The UDP payload, integers in big-endian order, is padded to the packet size:
//! `"hwlt"` (4 bytes) | flow id (4) | sequence number (8) | send time, ns (8)

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use std::{io::ErrorKind, sync::OnceLock, thread};

use nic::udp::{Burst, Options, Receiver};

use super::{remote::Lab, topology::Topology};
use settings::values::Rate;
use terminal::CliError;

/// Maximum number of concurrent flows; each needs a socket.
const MAX_FLOWS: usize = 4_000;
/// Length of the payload's fields, bytes: magic number, flow id, sequence number, send time.
const HEADER_LEN: usize = 24;
/// Receive buffer of a host's socket, bytes.
const RECV_BUFFER: usize = 16 << 20;
const MAGIC: [u8; 4] = *b"hwlt";
/// Maximum wait for packets in flight after the last was sent: longer than the queues of a usual lab, and longer than a busy
/// machine delays a switch process.
const MAX_FLIGHT_TIME: Duration = Duration::from_secs(2);

/// Distribution of a flow's packets over time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Pattern {
    /// Packets at a constant interval.
    Even {
        /// Rate of each flow, counted from the IP header on.
        rate: Rate,
    },
    /// Bursts at a constant interval.
    Burst {
        /// Packets per burst and flow.
        packets: u32,
        /// Time between two bursts.
        every: Duration,
    },
}

/// Parameters of the traffic to generate.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Traffic {
    /// Pairs of sender and receiver.
    pub(crate) hosts: HostPairs,
    /// Flows from each sender to each receiver.
    pub(crate) flows: u32,
    /// Packet size in bytes, from the IP header on.
    pub(crate) size: u32,
    /// Duration of the traffic.
    pub(crate) span: Duration,
    /// UDP port of the receivers.
    pub(crate) port: u16,
    /// Timing of the packets.
    pub(crate) pattern: Pattern,
}

/// Pairs of sender and receiver, as indices of hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HostPairs {
    pairs: Vec<(usize, usize)>,
    ipv6: bool,
}

impl HostPairs {
    /// Builds all pairs of the named hosts (separated by commas, or `all`), without pairs of a host with itself.
    ///
    /// # Errors
    /// A host is unknown or has no address of that family, or no pair is left.
    pub(crate) fn find(topology: &Topology, from: &str, to: &str, ipv6: bool) -> Result<Self, CliError> {
        let from = hosts(topology, from)?;
        let to = hosts(topology, to)?;
        let pairs = from.iter().flat_map(|from| to.iter().map(move |to| (*from, *to)));
        let pairs: Vec<_> = pairs.filter(|(from, to)| from != to).collect();
        if pairs.is_empty() {
            return Err(CliError::new(
                "a host does not send to itself; name another receiver",
            ));
        }
        let mut hosts = from.iter().chain(&to);
        if let Some(index) = hosts.find(|index| topology.hosts[**index].address(ipv6).is_none()) {
            let (family, remedy) = if ipv6 {
                ("IPv6", "leave -6 out")
            } else {
                ("IPv4", "add -6")
            };
            return Err(CliError::new(format!(
                "{} has no {family} address; {remedy}",
                topology.hosts[*index].name
            )));
        }
        Ok(Self { pairs, ipv6 })
    }
}

/// Returns the indices of the hosts in a list of names (`all` or `h1,h2`).
fn hosts(topology: &Topology, names: &str) -> Result<Vec<usize>, CliError> {
    if names == "all" {
        return Ok((0..topology.hosts.len()).collect());
    }
    let indices = names
        .split(',')
        .map(|name| {
            topology
                .hosts
                .iter()
                .position(|host| host.name == name)
                .ok_or_else(|| {
                    let count: Vec<&str> = topology.hosts.iter().map(|host| host.name.as_str()).collect();
                    CliError::new(format!(
                        "there is no host `{name}` in the lab {}; there are {}",
                        topology.name,
                        count.join(", ")
                    ))
                })
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(sorted_unique(indices))
}

/// Counters and latencies of the packets from one sender to one receiver.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct PairStats {
    /// Names of the sending and the receiving host.
    pub(crate) between: [String; 2],
    /// Packets that the sender's kernel accepted.
    pub(crate) sent: u64,
    /// Packets that the sender's kernel refused.
    pub(crate) refused: u64,
    /// Packets that arrived at the receiver.
    pub(crate) received: u64,
    /// Packets that arrived after a later one of their flow; included in `received`.
    pub(crate) reordered: u64,
    /// Minimum latency of a packet, ns.
    pub(crate) min_latency: u64,
    /// Maximum latency of a packet, ns.
    pub(crate) max_latency: u64,
    /// Sum of all latencies, ns.
    pub(crate) latency_sum: u128,
}

impl PairStats {
    /// Returns the number of packets that were sent and did not arrive.
    pub(crate) fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    fn count_arrival(&mut self, is_reordered: bool, delay: u64) {
        self.merge(&Self {
            received: 1,
            reordered: u64::from(is_reordered),
            min_latency: delay,
            max_latency: delay,
            latency_sum: delay.into(),
            ..Self::default()
        });
    }

    /// Adds the figures of another part: the sender's thread counts what was sent, the receiver's what arrived.
    fn merge(&mut self, part: &Self) {
        self.sent += part.sent;
        self.refused += part.refused;
        if part.received > 0 {
            let is_first = self.received == 0;
            self.min_latency = if is_first {
                part.min_latency
            } else {
                self.min_latency.min(part.min_latency)
            };
            self.max_latency = self.max_latency.max(part.max_latency);
            self.latency_sum += part.latency_sum;
            self.received += part.received;
            self.reordered += part.reordered;
        }
    }
}

/// Fields of a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    flow: u32,
    seq: u64,
    /// Send time by the monotonic clock, ns.
    sent: u64,
}

impl Header {
    fn write(self, buffer: &mut [u8]) {
        buffer[..4].copy_from_slice(&MAGIC);
        buffer[4..8].copy_from_slice(&self.flow.to_be_bytes());
        buffer[8..16].copy_from_slice(&self.seq.to_be_bytes());
        buffer[16..24].copy_from_slice(&self.sent.to_be_bytes());
    }

    /// Parses a payload; `None` if another program sent it.
    fn parse(payload: &[u8]) -> Option<Self> {
        let fields = payload.get(..HEADER_LEN)?.strip_prefix(&MAGIC)?;
        let (flow, fields) = fields.split_first_chunk()?;
        let (seq, fields) = fields.split_first_chunk()?;
        Some(Self {
            flow: u32::from_be_bytes(*flow),
            seq: u64::from_be_bytes(*seq),
            sent: u64::from_be_bytes(*fields.first_chunk()?),
        })
    }
}

/// Sender state of a flow.
struct Flow {
    id: u32,
    pair: usize,
    socket: UdpSocket,
    seq: u64,
    /// Time of the next packet or burst, since the start.
    due: Duration,
}

/// Returns the length of the IP and UDP headers, bytes.
fn ip_udp_len(ipv6: bool) -> usize {
    if ipv6 { 40 + 8 } else { 20 + 8 }
}

/// Sends all packets, waits for those in flight, and returns the figures of each pair.
///
/// # Errors
/// There are too many flows, or a socket cannot be opened.
pub(crate) fn run(lab: &Lab, traffic: &Traffic) -> Result<Vec<PairStats>, CliError> {
    let topology = &lab.topology;
    let HostPairs { pairs, ipv6 } = &traffic.hosts;
    let count = pairs.len() * traffic.flows as usize;
    if count > MAX_FLOWS {
        return Err(CliError::new(format!(
            "these are {count} flows, more than the maximum of {MAX_FLOWS}; choose fewer hosts or --flows"
        )));
    }
    let receivers = sorted_unique(pairs.iter().map(|(_, to)| *to));
    let senders = sorted_unique(pairs.iter().map(|(from, _)| *from));
    let mut sockets = Vec::new();
    for host in receivers {
        sockets.push((host, bind_receiver(lab, host, traffic)?));
    }
    let mut flows = Vec::new();
    for host in senders {
        flows.push(open_flows(lab, host, traffic)?);
    }
    let stats = pairs.iter().map(|(from, to)| PairStats {
        between: [*from, *to].map(|index| topology.hosts[index].name.clone()),
        ..PairStats::default()
    });
    let mut stats: Vec<PairStats> = stats.collect();
    let all_sent = OnceLock::new();
    let parts = thread::scope(|scope| {
        let receivers: Vec<_> = sockets
            .into_iter()
            .map(|(host, socket)| {
                let all_sent = &all_sent;
                scope.spawn(move || receive(socket, host, traffic, all_sent))
            })
            .collect();
        let senders: Vec<_> = flows
            .into_iter()
            .map(|flows| {
                scope.spawn(|| {
                    send(flows, traffic, *ipv6, pairs.len(), &|| {
                        !lab.directory.path().exists()
                    })
                })
            })
            .collect();
        let mut parts: Vec<_> = senders.into_iter().map(|thread| thread.join()).collect();
        let mut sent = vec![0; pairs.len()];
        for part in parts.iter().flatten() {
            for (total, part) in sent.iter_mut().zip(part) {
                *total += part.sent;
            }
        }
        all_sent.get_or_init(|| sent);
        parts.extend(receivers.into_iter().map(|thread| thread.join()));
        parts
    });
    for part in parts {
        let part = part.map_err(|_| CliError::new("a thread of the traffic panicked; this is a bug"))?;
        for (total, part) in stats.iter_mut().zip(part) {
            total.merge(&part);
        }
    }
    Ok(stats)
}

/// Sorts and deduplicates host indices.
fn sorted_unique(hosts: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let mut hosts: Vec<usize> = hosts.into_iter().collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

fn address(lab: &Lab, host: usize, ipv6: bool) -> IpAddr {
    // `Ends::find` has checked that each host has an address.
    lab.topology.hosts[host]
        .address(ipv6)
        .unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
}

fn bind_receiver(lab: &Lab, host: usize, traffic: &Traffic) -> Result<Receiver, CliError> {
    let listen = SocketAddr::new(address(lab, host, traffic.hosts.ipv6), traffic.port);
    let options = Options {
        recv_buffer: RECV_BUFFER,
        ..Options::default()
    };
    let name = &lab.topology.hosts[host].name;
    let namespace = lab.namespace(name);
    let bound = nic::netns::within(&namespace, || Receiver::bind(listen, &options)).and_then(|bound| bound);
    bound.map_err(|error| CliError::new(receive_error(name, traffic.port, &error)))
}

/// Describes the reason that a host cannot receive.
fn receive_error(name: &str, port: u16, error: &nic::Error) -> String {
    let kind = error
        .errno()
        .map(|errno| std::io::Error::from_raw_os_error(errno).kind());
    if kind == Some(ErrorKind::AddrInUse) {
        return format!(
            "host {name}: something receives on UDP port {port} there, perhaps another `lab traffic`; give --port, or see what: hopwise lab exec {name} -- ss -ulpn 'sport = :{port}'"
        );
    }
    format!("host {name}: {error}")
}

/// Opens a connected socket per flow of a sending host, inside its namespace.
fn open_flows(lab: &Lab, host: usize, traffic: &Traffic) -> Result<Vec<Flow>, CliError> {
    let ipv6 = traffic.hosts.ipv6;
    let from = SocketAddr::new(address(lab, host, ipv6), 0);
    let name = &lab.topology.hosts[host].name;
    let namespace = lab.namespace(name);
    nic::netns::within(&namespace, || {
        let mut flows = Vec::new();
        for (pair, (_, to)) in traffic
            .hosts
            .pairs
            .iter()
            .enumerate()
            .filter(|(_, (from, _))| *from == host)
        {
            for copy in 0..traffic.flows {
                let socket = UdpSocket::bind(from)?;
                socket.connect(SocketAddr::new(address(lab, *to, ipv6), traffic.port))?;
                let id = pair as u32 * traffic.flows + copy;
                flows.push(Flow {
                    id,
                    pair,
                    socket,
                    seq: 0,
                    due: Duration::ZERO,
                });
            }
        }
        Ok(flows)
    })
    .map_err(|error| CliError::new(error.to_string()))?
    .map_err(|error| {
        CliError::io(
            format!("host {name} cannot send"),
            error,
            "raise the limit on open files (ulimit -n)",
        )
    })
}

/// Sends the flows of one host until the time is over or the lab is removed.
fn send(
    mut flows: Vec<Flow>,
    traffic: &Traffic,
    ipv6: bool,
    pairs: usize,
    is_lab_removed: &(impl Fn() -> bool + Sync),
) -> Vec<PairStats> {
    /// Minimum sleep between two rounds. A flow that falls behind by less catches up in the next round.
    const MIN_SLEEP: Duration = Duration::from_micros(100);
    const MAX_SLEEP: Duration = Duration::from_millis(100);
    let mut stats = vec![PairStats::default(); pairs];
    let mut buffer = vec![
        0;
        (traffic.size as usize)
            .saturating_sub(ip_udp_len(ipv6))
            .max(HEADER_LEN)
    ];
    let (interval, burst_len) = match traffic.pattern {
        Pattern::Even { rate } => (
            Duration::from_secs_f64(f64::from(traffic.size) * 8.0 / rate.0 as f64),
            1,
        ),
        Pattern::Burst { packets, every } => (every.max(Duration::from_micros(1)), packets),
    };
    // Stagger evenly spaced flows over one interval, so that they do not send at the same moments. Bursts must coincide.
    if burst_len == 1 {
        let count = flows.len() as u32;
        for (index, flow) in flows.iter_mut().enumerate() {
            flow.due = interval / count * index as u32;
        }
    }
    let start = Instant::now();
    let mut last_check = start;
    while start.elapsed() < traffic.span {
        let now = start.elapsed();
        for flow in flows
            .iter_mut()
            .filter(|flow| flow.due <= now && flow.due < traffic.span)
        {
            flow.due += interval;
            for _ in 0..burst_len {
                let header = Header {
                    flow: flow.id,
                    seq: flow.seq,
                    sent: nic::time::monotonic(),
                };
                header.write(&mut buffer);
                flow.seq += 1;
                match flow.socket.send(&buffer) {
                    Ok(_) => stats[flow.pair].sent += 1,
                    Err(_) => stats[flow.pair].refused += 1,
                }
            }
        }
        let next = flows
            .iter()
            .map(|flow| flow.due)
            .min()
            .unwrap_or(traffic.span)
            .min(traffic.span);
        let sleep = next.saturating_sub(start.elapsed()).min(MAX_SLEEP);
        thread::sleep(sleep.max(MIN_SLEEP));
        // End the traffic if the lab was removed meanwhile.
        if last_check.elapsed() > MAX_SLEEP {
            last_check = Instant::now();
            if is_lab_removed() {
                break;
            }
        }
    }
    stats
}

/// Receives at one host until it has all packets, or none can be in flight any more. `all_sent` is set once all senders are
/// done, with the number of packets sent for each pair.
fn receive(
    mut receiver: Receiver,
    host: usize,
    traffic: &Traffic,
    all_sent: &OnceLock<Vec<u64>>,
) -> Vec<PairStats> {
    /// Timeout of one read, ms, after which the end of sending is checked.
    const READ_TIMEOUT_MS: u32 = 20;
    const BURST_PACKETS: usize = 64;
    /// Maximum length of a received datagram, bytes.
    const MAX_DATAGRAM: usize = 9_216;
    let pairs = &traffic.hosts.pairs;
    let mut stats = vec![PairStats::default(); pairs.len()];
    let mut highest_seq: Vec<Option<u64>> = vec![None; pairs.len() * traffic.flows as usize];
    let mut burst = Burst::new(BURST_PACKETS, MAX_DATAGRAM);
    let mut sending_end: Option<Instant> = None;
    loop {
        // Checked before the read: packets that queued while this thread did not run are still read, however late it is.
        let has_timed_out = sending_end.is_some_and(|sending_end| sending_end.elapsed() > MAX_FLIGHT_TIME);
        // An error counts as an empty read and is retried until the time is over.
        let received_packets = receiver.recv(&mut burst, READ_TIMEOUT_MS).unwrap_or(0);
        let now = nic::time::monotonic();
        for packet in burst.iter().take(received_packets) {
            let Some(Header { flow, seq, sent }) = Header::parse(packet.data) else {
                continue;
            };
            let Some(highest) = highest_seq.get_mut(flow as usize) else {
                continue;
            };
            let is_reordered = highest.is_some_and(|highest| seq < highest);
            *highest = Some(highest.map_or(seq, |highest| highest.max(seq)));
            let pair = (flow / traffic.flows) as usize;
            stats[pair].count_arrival(is_reordered, now.saturating_sub(sent));
        }
        let Some(sent) = all_sent.get() else { continue };
        sending_end.get_or_insert_with(Instant::now);
        if has_timed_out && received_packets == 0 || has_all_packets(host, pairs, sent, &stats) {
            return stats;
        }
    }
}

/// Returns whether a host has received as many packets of each of its pairs as were sent.
fn has_all_packets(host: usize, pairs: &[(usize, usize)], sent: &[u64], stats: &[PairStats]) -> bool {
    pairs
        .iter()
        .zip(sent)
        .zip(stats)
        .all(|(((_, to), sent), stats)| *to != host || stats.received >= *sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology() -> Topology {
        let text = include_str!("../../examples/lab/three-switches.toml");
        crate::load::parse_example(text)
    }

    #[test]
    fn a_host_has_all_packets_when_those_of_its_pairs_have_arrived() {
        let pairs = [(0, 2), (1, 2), (0, 1)];
        let received = |counts: [u64; 3]| {
            counts.map(|received| PairStats {
                received,
                ..PairStats::default()
            })
        };
        for (counts, has) in [
            ([5, 7, 0], true),
            ([5, 6, 9], false),
            ([4, 8, 9], false),
            ([6, 7, 0], true),
        ] {
            assert_eq!(
                has_all_packets(2, &pairs, &[5, 7, 9], &received(counts)),
                has,
                "{counts:?}"
            );
        }
    }

    #[test]
    fn a_second_receiver_is_told_how_to_see_the_first() {
        let options = Options::default();
        let first = Receiver::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let listen = first.local_addr();
        let error = Receiver::bind(listen, &options).map(|_| ()).unwrap_err();
        let text = receive_error("h3", listen.port(), &error);
        assert!(
            text.contains("hopwise lab exec h3 -- ss -ulpn") && text.contains("give --port"),
            "{text}"
        );
    }

    #[test]
    fn hosts_are_named_or_all() {
        let topology = topology();
        let pairs = |from: &str, to: &str| {
            HostPairs::find(&topology, from, to, true)
                .map(|ends| ends.pairs)
                .map_err(|error| error.to_string())
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
    fn a_written_payload_reads_back() {
        let mut buffer = [0xa5; 100];
        let header = Header {
            flow: 7,
            seq: 1 << 40,
            sent: 123,
        };
        header.write(&mut buffer);
        assert_eq!(Header::parse(&buffer), Some(header));
        assert_eq!(Header::parse(&buffer[..23]), None);
        assert_eq!(Header::parse(&[0; 100]), None);
    }

    #[test]
    fn figures_of_sender_and_receiver_are_merged() {
        let mut receiver = PairStats::default();
        for (is_reordered, delay) in [(false, 5), (false, 9), (true, 1)] {
            receiver.count_arrival(is_reordered, delay);
        }
        let mut total = PairStats {
            sent: 4,
            ..PairStats::default()
        };
        total.merge(&receiver);
        total.merge(&PairStats {
            refused: 2,
            ..PairStats::default()
        });
        let indices = (
            total.sent,
            total.refused,
            total.received,
            total.lost(),
            total.reordered,
            total.min_latency,
            total.max_latency,
            total.latency_sum,
        );
        assert_eq!(indices, (4, 2, 3, 1, 1, 1, 9, 15));
    }
}
