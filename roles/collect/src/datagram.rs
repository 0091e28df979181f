//! Telemetry datagrams inside the collector: their contents by destination port, the profile (INT version and units) that
//! decodes them by source address, and the conversion from the receiver's packets to the collector's [`Datagram`]s.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use collector::{Datagram, Profile};
use detect::Prefix;
use nic::source::Packet;

/// The contents of a datagram, determined by its destination port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// The datagram holds telemetry reports.
    Reports,
    /// The reports of a datagram from this index on. Another worker received the first ones and counts the datagram.
    LaterReports(u16),
    /// The datagram holds aggregates from an aggregator.
    Aggregates,
}

/// The UDP ports on which aggregates arrive.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AggregatePorts(pub Arc<[u16]>);

impl AggregatePorts {
    /// Returns the contents of datagrams to a port.
    #[inline]
    pub fn contents(&self, port: u16) -> Contents {
        if self.0.contains(&port) {
            Contents::Aggregates
        } else {
            Contents::Reports
        }
    }
}

/// Converts packets to datagrams and passes them to `process` in chunks of up to 64 with equal contents. Allocates nothing.
pub fn each_chunk(
    packets: &[Packet<'_>],
    listener: u16,
    ports: &AggregatePorts,
    mut process: impl FnMut(Contents, &[Datagram<'_>]),
) {
    let runs = packets.chunk_by(|packet, next| {
        packet.port == next.port || ports.contents(packet.port) == ports.contents(next.port)
    });
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

/// Maximum number of datagrams per call of `process`.
const CHUNK: usize = 64;

/// Returns an address as 16 bytes, with IPv4 mapped into IPv6 (`::ffff:a.b.c.d`).
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
    /// Profiles by source prefix, longest prefix first.
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

    /// Returns the profile of a source.
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

/// Decoding profiles by source address.
#[derive(Clone, Debug)]
pub struct Profiles {
    /// The profile of sources that no prefix covers.
    pub default: wire::Profile,
    /// Profiles by source prefix, longest prefix first.
    pub by_source: Vec<(Prefix, wire::Profile)>,
}

impl Profiles {
    /// Returns the index of a source's profile; the default profile has the index after the last prefix.
    pub fn index_of(&self, source: &[u8; 16]) -> usize {
        let index = self
            .by_source
            .iter()
            .position(|(prefix, _)| prefix.contains_octets(source));
        index.unwrap_or(self.by_source.len())
    }

    /// Returns the profile with this index.
    pub fn at(&self, index: usize) -> &wire::Profile {
        self.by_source
            .get(index)
            .map_or(&self.default, |(_, profile)| profile)
    }

    /// Returns the profile of a source.
    pub fn of_source(&self, source: &[u8; 16]) -> &wire::Profile {
        self.at(self.index_of(source))
    }
}
