//! Datagrams inside the program: their kind by port, the profile that reads them, and the conversion from packets of a source
//! to datagrams of the collector.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use collector::{Datagram, Profile};
use detect::Prefix;
use nic::source::Packet;

/// The contents of a datagram, by its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// The datagram holds telemetry reports.
    Reports,
    /// The later reports of a datagram, from this number on. The first ones went to another worker, which counts the datagram.
    LaterReports(u16),
    /// Aggregates of an aggregator.
    Aggregates,
}

/// The ports of aggregates.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AggregatePorts(pub Arc<[u16]>);

impl AggregatePorts {
    /// The kind of datagrams to a port.
    #[inline]
    pub fn contents(&self, port: u16) -> Contents {
        if self.0.contains(&port) {
            Contents::Aggregates
        } else {
            Contents::Reports
        }
    }
}

/// Passes packets to `take` as the collector's datagrams, a few at a time, each time of one kind, without allocating.
pub fn each_chunk(
    packets: &[Packet<'_>],
    listener: u16,
    ports: &AggregatePorts,
    mut process: impl FnMut(Contents, &[Datagram<'_>]),
) {
    let runs = packets
        .chunk_by(|one, next| one.port == next.port || ports.contents(one.port) == ports.contents(next.port));
    for packets in runs.flat_map(|run| run.chunks(CHUNK)) {
        let contents = packets
            .first()
            .map_or(Contents::Reports, |packet| ports.contents(packet.port));
        let mut chunk = [Datagram {
            payload: &[],
            source: [0; 16],
            src_port: 0,
            listener,
            received: 0,
        }; CHUNK];
        for (datagram, packet) in chunk.iter_mut().zip(packets) {
            *datagram = Datagram {
                payload: packet.data,
                source: octets(packet.source.ip()),
                src_port: packet.source.port(),
                listener,
                received: packet.received,
            };
        }
        process(contents, &chunk[..packets.len()]);
    }
}

/// Maximum number of datagrams per call of the collector.
const CHUNK: usize = 64;

/// An address as 16 bytes, IPv4 mapped into IPv6.
#[inline]
pub fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Whole profiles, by which recorders read single hops: by source address, and of nodes that have one of their own.
#[derive(Clone, Debug)]
pub struct HopProfiles {
    default: Profile,
    /// The longest prefix first.
    by_source: Vec<(Prefix, Profile)>,
    of_nodes: HashMap<u32, Profile>,
}

impl HopProfiles {
    /// Profiles as a collector's configuration has them.
    pub fn new(
        default: Profile,
        mut by_source: Vec<(Prefix, Profile)>,
        of_nodes: Vec<(u32, Profile)>,
    ) -> Self {
        by_source.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Self {
            default,
            by_source,
            of_nodes: of_nodes.into_iter().collect(),
        }
    }

    /// The profile of a source.
    pub fn of_source(&self, source: &[u8; 16]) -> &Profile {
        let found = self
            .by_source
            .iter()
            .find(|(prefix, _)| prefix.contains_octets(source));
        found.map_or(&self.default, |(_, profile)| profile)
    }

    /// The profile of a node: its own, or that of the source of its report.
    pub fn of_node<'p>(&'p self, of_source: &'p Profile, node: Option<u32>) -> &'p Profile {
        let own = node
            .filter(|_| !self.of_nodes.is_empty())
            .and_then(|node| self.of_nodes.get(&node));
        own.unwrap_or(of_source)
    }
}

/// Profiles by source address.
#[derive(Clone, Debug)]
pub struct Profiles {
    /// The profile of sources that no prefix covers.
    pub default: wire::Profile,
    /// The longest prefix first.
    pub by_source: Vec<(Prefix, wire::Profile)>,
}

impl Profiles {
    /// The number of a source's profile.
    pub fn index_of(&self, source: &[u8; 16]) -> usize {
        let index = self
            .by_source
            .iter()
            .position(|(prefix, _)| prefix.contains_octets(source));
        index.unwrap_or(self.by_source.len())
    }

    /// The profile of this number.
    pub fn at(&self, index: usize) -> &wire::Profile {
        self.by_source
            .get(index)
            .map_or(&self.default, |(_, profile)| profile)
    }

    /// The profile of a source.
    pub fn of_source(&self, source: &[u8; 16]) -> &wire::Profile {
        self.at(self.index_of(source))
    }
}
