//! Aggregates of postcards for benchmarks of the collector: three switches in a row, as in the testbed of the postcard paper,
//! send postcards to an aggregator, which packs R of them into a datagram.

use std::net::Ipv4Addr;
use std::sync::Arc;

use detect::{Detection, Thresholds};
use wire::aggregate::{HEADER_LEN, Header, Kind, LONG_POSTCARD_LEN, POSTCARD_LEN, PacketFields, Postcard};

use super::{THRESHOLDS, TICK};
use collector::Collector;
use collector::Datagram;
use collector::Output;
use collector::config::{Clocks, Config, PostcardConfig, Profile};

/// Number of nodes that each packet passes.
const NODES: u32 = 3;
/// Time between two postcards, ns: twenty million per second.
const GAP: u64 = 50;
/// Time inside a node and between two nodes, ns.
const INSIDE: u64 = 1500;
const BETWEEN: u64 = 5000;
/// Number of postcards in memory, used cyclically.
const POSTCARDS: u32 = 300_000;

/// One case of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    /// Name of the case, as in `hopwise bench`.
    pub name: &'static str,
    /// R, the number of postcards in an aggregate.
    pub r: u16,
    /// Number of different flows.
    pub flows: u32,
    /// The nodes' clocks are synchronised, and the collector joins the postcards of a packet into its path.
    pub joins: bool,
}

/// The cases whose results are published.
pub const CASES: [Case; 3] = [
    Case {
        name: "aggregate-unfold",
        r: 25,
        flows: 1000,
        joins: false,
    },
    Case {
        name: "aggregate-unfold-72",
        r: 72,
        flows: 1000,
        joins: false,
    },
    Case {
        name: "aggregate-unfold-join",
        r: 25,
        flows: 1000,
        joins: true,
    },
];

impl Case {
    /// Creates a collector for the case.
    pub fn collector(&self) -> Collector {
        let thresholds = Thresholds::new(THRESHOLDS, Vec::new()).unwrap_or_default();
        let clocks = if self.joins {
            Clocks::Synchronised
        } else {
            Clocks::Free
        };
        // 1 ms: longer than the packets of all flows take, and short enough that the pending postcards fit.
        let timeout = 1_000_000;
        Collector::new(Config {
            max_flows: self.flows as usize * 2,
            push_interval: 0,
            flow_timeout: 3_600_000_000_000,
            default_profile: Profile {
                clocks,
                ..Profile::default()
            },
            detection: Arc::new(Detection {
                thresholds,
                ..Detection::default()
            }),
            postcards: PostcardConfig {
                timeout,
                ..PostcardConfig::default()
            },
            ..Config::default()
        })
    }

    /// Generates the aggregates of the case, Agg(R), in memory. The postcards of a packet are adjacent.
    pub fn feed(&self) -> Feed {
        let count = POSTCARDS / u32::from(self.r);
        let record_len = if self.joins {
            LONG_POSTCARD_LEN
        } else {
            POSTCARD_LEN
        };
        let length = HEADER_LEN + usize::from(self.r) * record_len;
        let mut bytes = vec![0; length * count as usize];
        let mut number = 0;
        for (sequence, payload) in bytes.chunks_exact_mut(length).enumerate() {
            let header = Header {
                kind: Kind::Agg,
                by_timer: false,
                packet_fields: self.joins,
                count: self.r,
                record_len: record_len as u16,
                aggregator: 99,
                sequence: sequence as u32,
                node_scope: None,
                flow_scope: None,
            };
            header.emit(payload);
            for record in payload[HEADER_LEN..].chunks_exact_mut(record_len) {
                self.postcard(number).emit(record);
                if self.joins {
                    packet_fields(number).emit(record);
                }
                number += 1;
            }
        }
        Feed {
            bytes,
            length,
            r: self.r.into(),
            next: 0,
            now: 1_700_000_000_000_000_000,
            ticked: 0,
        }
    }

    fn postcard(&self, number: u32) -> Postcard {
        let packet = number / NODES;
        let hop = number % NODES;
        let flow = (u64::from(packet) * 618_033_989 % u64::from(self.flows)) as u32;
        let ingress = u64::from(packet) * u64::from(NODES) * GAP + u64::from(hop) * (INSIDE + BETWEEN);
        Postcard {
            node: 100 + hop,
            flow_id: flow.wrapping_mul(0x9e37_79b1) | 1,
            ingress_ts: ingress as u32,
            egress_ts: (ingress + INSIDE) as u32,
            queue_id: (flow & 3) as u8,
            queue_length: 400,
        }
    }
}

/// Returns the packet fields of a postcard. The hop limit starts at 64, and the digest differs from the others of its flow.
fn packet_fields(number: u32) -> PacketFields {
    let packet = number / NODES;
    let hop = number % NODES;
    PacketFields {
        ingress_if: Some(1),
        egress_if: Some(2),
        hop_limit: Some(64 - hop as u8),
        entered: hop == 0,
        left: hop + 1 == NODES,
        digest: packet << 1 | 1,
    }
}

/// Aggregates in memory, passed to a collector repeatedly.
#[derive(Debug)]
pub struct Feed {
    bytes: Vec<u8>,
    length: usize,
    /// Postcards in an aggregate.
    r: u64,
    next: usize,
    now: u64,
    ticked: u64,
}

impl Feed {
    /// Returns the bytes of one datagram.
    pub fn payload_len(&self) -> usize {
        self.length
    }

    /// Returns the number of postcards before the feed repeats.
    pub fn postcards(&self) -> u64 {
        (self.bytes.len() / self.length) as u64 * self.r
    }

    /// Delivers the next aggregate to a collector, with a tick when one is due. Returns how many postcards it holds.
    pub fn deliver(&mut self, collector: &mut Collector, out: &mut impl Output) -> u64 {
        self.now += GAP * self.r;
        let payload = &self.bytes[self.next..self.next + self.length];
        let source = Ipv4Addr::new(192, 0, 2, 99).to_ipv6_mapped().octets();
        let datagram = Datagram {
            payload,
            source,
            src_port: 40_000,
            listener: 0,
            received: self.now,
        };
        collector.handle_aggregates(&[datagram], out);
        self.next += self.length;
        if self.next >= self.bytes.len() {
            self.next = 0;
        }
        if self.now - self.ticked >= TICK / 10 {
            self.ticked = self.now;
            collector.tick(self.now, out);
        }
        self.r
    }
}
