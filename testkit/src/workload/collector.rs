//! Synthetic reports for benchmarks of the collector, by default Report 1.0 around INT 1.0 as INTCollector's generator sends
//! them.
//!
//! A frame of 6 hops with 8 items is 304 bytes:
//!
//! ```text
//! Ethernet, IPv4, UDP 42 | report header 16 | inner Ethernet, IPv4, UDP 42 | INT shim 4 | INT header 8 | 6 × 32 metadata
//! ```

pub mod aggregate;
mod feed;
mod format;
mod sf;

use std::sync::Arc;

use detect::{Detection, RuleSet, Thresholds};
use wire::Hop;

use collector::Collector;
use collector::config::{Config, Profile};

use crate::rng::Rng;

pub use feed::{Feed, Input};
pub use format::Format;
pub use sf::{SF_CASES, SfCase};

/// Maximum number of reports in a burst, as a receive path delivers them.
pub const BURST: usize = 64;

/// Simulated time between two ticks of the collector, ns.
const TICK: u64 = 10_000_000;
/// Thresholds by metric; only the traffic of [`Values::Change`] exceeds one.
const THRESHOLDS: [u64; 6] = [0, 100_000, 10_000, 1000, 1000, 100_000];

/// One case of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    /// Name of the case, as in `hopwise bench`.
    pub name: &'static str,
    /// Number of flows, which report in turn.
    pub flows: u32,
    /// Number of hops in a report.
    pub hops: u8,
    /// Instruction bitmap: the items that each hop carries.
    pub bitmap: u16,
    /// Change of a flow's values from one report to the next.
    pub values: Values,
    /// Order in which flows are visited.
    pub order: Order,
    /// The format in which reports are encoded.
    pub format: Format,
    /// Rules that are evaluated; none is ever true.
    pub rules: &'static [&'static str],
}

/// The change of a flow's values from one report to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    /// The values of a hop stay the same.
    Constant,
    /// The values vary, by less than every threshold.
    Jitter,
    /// One hop latency per report changes by more than its threshold.
    Change,
}

/// The order in which flows are visited, after a first round that creates their state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// In the order in which their state was created, so that much of it is read from consecutive addresses.
    Created,
    /// In random order, the same in every round.
    Random,
}

impl Order {
    /// Describes the order in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Created => "flows in the order in which their state was created",
            Self::Random => "flows in random order",
        }
    }
}

/// One rule with a single comparison.
const ONE_RULE: &[&str] = &["flow_latency > 5ms"];
/// One rule that keeps a history: it must hold for three reports.
const RULE_WITH_HISTORY: &[&str] = &["queue_occupancy > 5000 for 3"];
/// Ten rules, over every metric.
const TEN_RULES: &[&str] = &[
    "flow_latency > 5ms",
    "flow_latency > 20ms and hops > 3",
    "queue_occupancy > 5000",
    "max(queue_occupancy) > 20000 and flow_latency > 1ms",
    "link_utilization > 80%",
    "avg(link_utilization) > 60%",
    "hop_latency > 2ms",
    "count(hop_latency > 1ms) >= 2",
    "hops > 12 or loop",
    "queue_occupancy@300 > 1000",
];

/// The basic case: the others differ from it in a few fields.
const BASE: Case = Case {
    name: "fastpath-6x8-1k",
    order: Order::Random,
    ..Case::PLAIN
};

/// The cases whose results are published.
pub const CASES: [Case; 23] = [
    BASE,
    Case {
        name: "fastpath-6x8-100k",
        flows: 100_000,
        order: Order::Created,
        ..BASE
    },
    Case {
        name: "fastpath-6x8-1m",
        flows: 1_000_000,
        order: Order::Created,
        ..BASE
    },
    Case {
        name: "fastpath-6x8-100k-shuffled",
        flows: 100_000,
        ..BASE
    },
    Case {
        name: "fastpath-6x8-1m-shuffled",
        flows: 1_000_000,
        ..BASE
    },
    Case {
        name: "fastpath-6x8-4m-shuffled",
        flows: 4_000_000,
        ..BASE
    },
    Case {
        name: "fastpath-1x1-1k",
        hops: 1,
        bitmap: 0x8000,
        ..BASE
    },
    Case {
        name: "fastpath-3x3-1k",
        hops: 3,
        // Node ID, hop latency and queue.
        bitmap: 0xb000,
        ..BASE
    },
    Case {
        name: "fastpath-6x4-1k",
        bitmap: 0xf000,
        ..BASE
    },
    Case {
        name: "fastpath-8x8-1k",
        hops: 8,
        ..BASE
    },
    Case {
        name: "fastpath-12x8-1k",
        hops: 12,
        ..BASE
    },
    Case {
        name: "fastpath-16x8-1k",
        hops: 16,
        ..BASE
    },
    Case {
        name: "fastpath-6x8-change",
        values: Values::Change,
        ..BASE
    },
    Case {
        name: "fastpath-6x8-1k-jitter",
        values: Values::Jitter,
        ..BASE
    },
    Case {
        name: "fastpath-6x8-1k-rule",
        rules: ONE_RULE,
        ..BASE
    },
    Case {
        name: "fastpath-6x8-1k-rule-history",
        rules: RULE_WITH_HISTORY,
        ..BASE
    },
    Case {
        name: "fastpath-6x8-1k-rules10",
        rules: TEN_RULES,
        ..BASE
    },
    Case {
        name: "fastpath-6x8-100k-shuffled-rule",
        flows: 100_000,
        rules: ONE_RULE,
        ..BASE
    },
    Case {
        name: "fastpath-md21-6x8-1k",
        format: Format::Report20Md21,
        ..BASE
    },
    Case {
        name: "fastpath-tr20-md10-6x8-1k",
        format: Format::Report20Md10,
        ..BASE
    },
    Case {
        name: "fastpath-tr05-6x8-1k",
        format: Format::Report05,
        ..BASE
    },
    Case {
        name: "fastpath-mx21-6x8-1k",
        format: Format::Mx21,
        ..BASE
    },
    Case {
        name: "fastpath-postcard-6x3-1k",
        format: Format::Postcard,
        bitmap: 0x1c00,
        ..BASE
    },
];

impl Case {
    /// A template for cases: 6 hops of 8 items, constant values, flows in the order in which their state was created.
    pub const PLAIN: Self = Self {
        name: "",
        flows: 1000,
        hops: 6,
        bitmap: 0xff00,
        values: Values::Constant,
        order: Order::Created,
        format: Format::Report10,
        rules: &[],
    };

    /// Creates a collector for the case. No flow times out, and unchanged values are not repeated.
    pub fn collector(&self) -> Collector {
        let thresholds = Thresholds::new(THRESHOLDS, Vec::new()).unwrap_or_default();
        let named: Vec<_> = self
            .rules
            .iter()
            .map(|text| ((*text).to_owned(), (*text).to_owned()))
            .collect();
        let rules = RuleSet::compile(&named).unwrap_or_default();
        let mut profile = Profile::new("generator", wire::Profile::new(self.format.dialect()));
        profile.utilization_scale = 1e-6;
        Collector::new(Config {
            max_flows: self.flows as usize,
            push_interval: 0,
            flow_timeout: 3_600_000_000_000,
            default_profile: profile,
            detection: Arc::new(Detection {
                thresholds,
                rules,
                ..Detection::default()
            }),
            ..Config::default()
        })
    }

    /// Generates the frames of the case in memory.
    pub fn feed(&self) -> Feed {
        // Several rounds over all flows, so that values can differ from one to the next.
        self.feed_of_rounds(match self.values {
            Values::Constant => 1,
            Values::Change => 2,
            Values::Jitter => 4,
        })
    }

    /// Generates the frames of this number of rounds over all flows.
    pub fn feed_of_rounds(&self, rounds: u32) -> Feed {
        let length = self.frame_len();
        let packet = length * usize::from(self.frames_per_packet());
        let mut bytes = vec![0; packet * (self.flows * rounds) as usize];
        let mut random = Rng(1);
        // Flows occur in an order that no prefetcher predicts.
        let stride = coprime(self.flows);
        for (seq, frames) in (0..).zip(bytes.chunks_exact_mut(packet)) {
            let flow = (u64::from(seq) * u64::from(stride) % u64::from(self.flows)) as u32;
            let hops: Vec<Hop> = (0..self.hops)
                .map(|hop| self.hop(hop, flow, seq / self.flows, &mut random))
                .collect();
            for (number, frame) in frames.chunks_exact_mut(length).enumerate() {
                self.write(frame, flow, seq, &hops, number);
            }
        }
        let feed = Feed::new(bytes, length);
        match self.order {
            Order::Created => feed,
            Order::Random => {
                let seq_at = OUTER + self.format.sequence_number();
                feed.shuffled_after_first_round((packet, self.flows as usize), seq_at)
            }
        }
    }

    /// Returns the ID of the node at a position of a flow's path: one of four nodes, but always the same sink, a busy reporter.
    fn node(&self, hop: u8, flow: u32) -> u32 {
        // If each node reports (INT-MX, postcards), a position has only one node, so that its sequence numbers have no gaps.
        let alone = hop + 1 == self.hops || self.frames_per_packet() > 1;
        let choice = if alone {
            0
        } else {
            flow >> (2 * u32::from(hop)) & 3
        };
        100 * (u32::from(hop) + 1) + choice
    }

    /// Generates the metadata of one hop; `round` alternates the latency of one hop if the values change.
    fn hop(&self, hop: u8, flow: u32, round: u32, random: &mut Rng) -> Hop {
        let [latency, occupancy, utilization] = [900, 400, 40_000].map(|mean| {
            if self.values == Values::Jitter {
                random.below(2 * mean - 1) as u32 + 1
            } else {
                mean as u32
            }
        });
        let changed = self.values == Values::Change && flow % u32::from(self.hops) == u32::from(hop);
        let latency = 1000 * (u32::from(hop) + 1) + latency + if changed { 20_000 * (round & 1) } else { 0 };
        let ingress = 1_700_000_000_000_000_000 + u64::from(hop) * 50_000;
        Hop {
            node_id: Some(self.node(hop, flow)),
            ingress_if: Some(1),
            egress_if: Some((flow & 7) as u16 + 2),
            hop_latency: Some(latency),
            queue_id: Some((flow & 3) as u8),
            queue_occupancy: Some(occupancy),
            queue_congestion: Some(20),
            ingress_ts: Some(ingress),
            egress_ts: Some(ingress + u64::from(latency)),
            l2_ingress_if: Some(1),
            l2_egress_if: Some(2),
            tx_utilization: Some(utilization),
            ..Hop::default()
        }
    }
}

/// Bytes of the outer headers: Ethernet, IPv4 without options, UDP.
const OUTER: usize = 42;

struct Packet {
    src: [u8; 4],
    dst: [u8; 4],
    src_port: u16,
    dst_port: u16,
    dscp: u8,
    id: u16,
    ttl: u8,
}

impl Packet {
    /// The outer packet of a report.
    const REPORT: Self = Self {
        src: [192, 0, 2, 1],
        dst: [192, 0, 2, 100],
        src_port: 40_000,
        dst_port: 32_766,
        dscp: 0,
        id: 0,
        ttl: 64,
    };

    /// Writes Ethernet, IPv4 and UDP headers for `payload` bytes.
    fn write(&self, head: &mut [u8], payload: usize) {
        let total = 28 + payload as u16;
        let length = 8 + payload as u16;
        head[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        head[12..14].copy_from_slice(&[0x08, 0x00]);
        head[14..18].copy_from_slice(&[0x45, self.dscp << 2, (total >> 8) as u8, total as u8]);
        head[18..20].copy_from_slice(&self.id.to_be_bytes());
        head[20..26].copy_from_slice(&[0x40, 0, self.ttl, 17, 0, 0]);
        head[26..30].copy_from_slice(&self.src);
        head[30..34].copy_from_slice(&self.dst);
        let checksum = wire::checksum::of(&head[14..34]);
        head[24..26].copy_from_slice(&checksum.to_be_bytes());
        head[34..36].copy_from_slice(&self.src_port.to_be_bytes());
        head[36..38].copy_from_slice(&self.dst_port.to_be_bytes());
        head[38..40].copy_from_slice(&length.to_be_bytes());
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns a stride coprime to `count`, near its golden section, which visits all indexes in an order that defeats prefetching.
pub fn coprime(count: u32) -> u32 {
    let start = (u64::from(count) * 618 / 1000) as u32;
    (start.max(1)..)
        .find(|candidate| gcd(*candidate, count) == 1)
        .unwrap_or(1)
}
