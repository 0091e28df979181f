//! SF-INT (stateful INT) reports for benchmarks: paths of five nodes, with the record of one node in each packet. Every fourth
//! packet completes a set, as in a network without faults.
//!
//! A frame is Ethernet, IPv4 and UDP (42 bytes), and a report 2.0 of 136 bytes: the sink's own metadata, and an IPv6 packet
//! with the record of one node (node ID, hop latency, both timestamps: 24 bytes) in its hop-by-hop header.

use wire::int::header::Md2;
use wire::int::sf::{self, Sf, State};
use wire::int::shim::{Next, Shim2};
use wire::report::v20::{Group, GroupBuilder, Inner, MainRepr, Repr};
use wire::{Flags, Hop, Layout, ipv6};

use super::{Feed, OUTER, Packet, coprime};
use collector::Collector;
use collector::config::{Config, JoinConfig};

/// One case of the benchmark: `flows` flows, which send one packet each in turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SfCase {
    /// Name of the case, as in `hopwise bench`.
    pub name: &'static str,
    /// Number of different flows.
    pub flows: u32,
}

/// The cases whose results are published.
pub const SF_CASES: [SfCase; 2] = [
    SfCase {
        name: "sf-join",
        flows: 1000,
    },
    SfCase {
        name: "sf-join-100k",
        flows: 100_000,
    },
];

/// Number of nodes of a path, including the sink.
const NODES: u32 = 5;
/// Initial remaining hop count of sources.
const HOP_LIMIT: u8 = 16;
/// Instruction bitmap: node ID, hop latency, ingress and egress timestamp.
const ITEMS: u16 = 0xac00;
/// The packets of one set: position of the node whose record arrives, and how many nodes wrote their record into the packet.
const PERIOD: [(u32, u8); 4] = [(4, 4), (3, 1), (2, 2), (1, 1)];
/// Sets of each flow before the frames repeat.
const SETS: u32 = 2;
/// Bytes of the inner packet: IPv6, hop-by-hop header, UDP.
const INNER: usize = 40 + 48 + 8;
/// Bytes of a frame: outer headers, group header, report header, main contents, five words of metadata, inner packet.
const FRAME: usize = OUTER + 8 + 4 + 8 + 20 + INNER;

impl SfCase {
    /// Creates a collector for the case.
    pub fn collector(&self) -> Collector {
        let flows = self.flows as usize;
        let sf = JoinConfig {
            max_flows: flows,
            max_sets: 3 * flows,
            max_nodes: 8,
            hop_limit: Some(HOP_LIMIT),
            timeout: 3_600_000_000_000,
            ..JoinConfig::default()
        };
        Collector::new(Config {
            max_flows: flows,
            push_interval: 0,
            flow_timeout: 3_600_000_000_000,
            sf,
            ..Config::default()
        })
    }

    /// Generates the frames of the case in memory.
    pub fn feed(&self) -> Feed {
        let count = self.flows * SETS * PERIOD.len() as u32;
        let mut bytes = vec![0; FRAME * count as usize];
        // Flows occur in an order that no prefetcher predicts.
        let stride = u64::from(coprime(self.flows));
        for (at, frame) in (0..).zip(bytes.chunks_exact_mut(FRAME)) {
            let flow = (u64::from(at) * stride % u64::from(self.flows)) as u32;
            self.write(frame, flow, at);
        }
        Feed::new(bytes, FRAME)
    }

    fn write(&self, frame: &mut [u8], flow: u32, seq: u32) {
        // The number of the packet within its flow; the first packet's number identifies the set.
        let number = seq / self.flows;
        let (node, writers) = PERIOD[number as usize % PERIOD.len()];
        let set = number - number % PERIOD.len() as u32;
        let sf = Sf {
            urgent: false,
            state: if writers == 4 { State::Medium } else { State::High },
            packet_id: set as u16,
        };
        let header = Md2::stateful(6, HOP_LIMIT - writers, ITEMS, sf);
        let mut inner = [0; INNER];
        packet(&mut inner, flow, &header, &hop(node, flow, set));
        let main = MainRepr {
            bits: ITEMS & 0x7fff,
            metadata: hop(NODES, flow, number),
            ..MainRepr::default()
        };
        let report = Repr::new(Flags::FLOW, main, Inner::Ipv6(&inner));
        let (head, rest) = frame.split_at_mut(OUTER);
        Packet::REPORT.write(head, rest.len());
        let group = Group {
            hw_id: 0,
            seq: seq & 0x003f_ffff,
            node_id: NODES,
        };
        if let Some(mut builder) = GroupBuilder::new(rest, group) {
            let fits = builder.push(&report);
            debug_assert!(fits, "a frame has room for its report");
        }
    }
}

/// Writes an IPv6 packet as the sink receives it, up to its UDP header.
fn packet(out: &mut [u8; INNER], flow: u32, header: &Md2, hop: &Hop) {
    let [src, dst] = [1 + flow / 4, 0xff00_0001_u32].map(|last| {
        let mut octets = [0; 16];
        octets[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        octets[12..].copy_from_slice(&last.to_be_bytes());
        octets
    });
    let repr = ipv6::Repr {
        src,
        dst,
        next_header: 0,
        hop_limit: 60,
        payload_len: (INNER - 40) as u16,
        ..ipv6::Repr::default()
    };
    repr.emit(out);
    let options = &mut out[40..88];
    // Next header UDP; length 5, that is 48 bytes; the option with shim (4), header (12) and record (24), 40 bytes of data.
    options[..4].copy_from_slice(&[17, 5, sf::OPTION, 40]);
    Shim2 {
        kind: Shim2::SF,
        length: 9,
        next: Next::Nothing,
    }
    .emit(&mut options[4..]);
    header.emit(&mut options[8..]);
    if let Ok(layout) = Layout::int_2(ITEMS, 6, false) {
        layout.write(hop, &mut options[20..]);
    }
    // PadN, to a multiple of eight bytes.
    options[44..].copy_from_slice(&[1, 2, 0, 0]);
    out[88..90].copy_from_slice(&(1024 + (flow % 4) as u16).to_be_bytes());
    out[90..96].copy_from_slice(&[0, 80, 0, 8, 0, 0]);
}

/// Returns the metadata that the node at a position of a flow's path adds to a packet.
fn hop(place: u32, flow: u32, number: u32) -> Hop {
    // One of four nodes per position, and one sink.
    let choice = if place == NODES {
        0
    } else {
        flow >> (2 * place) & 3
    };
    let ingress = 1_700_000_000_000_000_000 + u64::from(number) * 10_000 + u64::from(place) * 50_000;
    let latency = 1000 * place;
    Hop {
        node_id: Some(100 * place + choice),
        hop_latency: Some(latency),
        ingress_ts: Some(ingress),
        egress_ts: Some(ingress + u64::from(latency)),
        ..Hop::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Input;
    use super::{PERIOD, SF_CASES, SfCase};
    use collector::Batch;

    #[test]
    fn every_fourth_report_makes_a_set_whole() {
        let case = SfCase {
            flows: 10,
            ..SF_CASES[0]
        };
        let (mut collector, mut feed) = (case.collector(), case.feed());
        let mut batch = Batch::with_capacity(1 << 12);
        let mut reports = 0;
        while reports < 4_000 {
            reports += feed.burst(Input::Frames, &mut collector, &mut batch);
            batch.clear();
        }
        let stats = collector.stats();
        assert_eq!(stats.sf.reports as usize, reports, "{stats:?}");
        let whole = stats.sf.complete.sets as usize;
        assert!(whole >= (reports - 100) / PERIOD.len(), "{stats:?}");
        assert_eq!(collector.flows().next().map(|flow| flow.path().count()), Some(5));
        assert!(
            stats.decode_balance().is_balanced()
                && stats.state_balance().is_balanced()
                && stats.sf.balance().is_balanced()
        );
    }
}
