//! Synthetic postcards for benchmarks of the aggregator: Telemetry Report 2.0 datagrams as nodes send them, one postcard each.

use wire::Hop;
use wire::aggregate::Kind;
use wire::report::v20::{Group, GroupBuilder, Repr};

use ::aggregator::Config;

/// Bytes of a datagram with one postcard.
pub const LEN: usize = 44;
/// Number of nodes that send.
pub const NODES: u32 = 3;
/// Ingress timestamp of the first postcard, ns.
const BEGIN: u64 = 1_700_000_000_000_000_000;

/// One case of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    /// Name of the case in `hopwise bench`.
    pub name: &'static str,
    /// Kind of aggregates that the aggregator builds.
    pub kind: Kind,
    /// R, the number of postcards in an aggregate or summary.
    pub r: u32,
    /// Number of pairs of node and flow, used cyclically.
    pub flows: u32,
    /// Registers of the aggregator, each of which collects the postcards of one aggregate.
    pub registers: usize,
}

/// Cases whose results are published.
pub const CASES: [Case; 3] = [
    Case {
        name: "aggregator-agg25",
        kind: Kind::Agg,
        r: 25,
        flows: 1000,
        registers: 1,
    },
    Case {
        name: "aggregator-agg-nf-100k",
        kind: Kind::AggNodeFlow,
        r: 25,
        flows: 100_000,
        registers: 1 << 18,
    },
    Case {
        name: "aggregator-cor-nf-100k",
        kind: Kind::CorNodeFlow,
        r: 25,
        flows: 100_000,
        registers: 1 << 18,
    },
];

impl Case {
    /// Returns the settings for the case.
    pub fn config(&self) -> Config {
        Config {
            kind: self.kind,
            r: self.r,
            // An hour (ns), so that no timer ends an aggregate during a run.
            timer: 3_600_000_000_000,
            registers: self.registers,
            ways: self.registers.min(8),
            ..Config::default()
        }
    }

    /// Generates the datagrams, [`LEN`] bytes each: one pass over all flows, in an order that defeats prefetching.
    pub fn datagrams(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.flows as usize * LEN];
        // A prime that divides none of the flow counts.
        let stride = 7919;
        let mut sequences = [0; NODES as usize];
        for (at, out) in bytes.chunks_exact_mut(LEN).enumerate() {
            let flow = (at as u64 * stride % u64::from(self.flows)) as u32;
            let node = flow % NODES;
            let ingress = BEGIN + at as u64 * 100;
            let own = Hop {
                queue_id: Some(1),
                queue_occupancy: Some(flow % 1000),
                ingress_ts: Some(ingress),
                egress_ts: Some(ingress + 500 + u64::from(flow % 7)),
                ..Hop::default()
            };
            let seq = sequences[node as usize];
            sequences[node as usize] += 1;
            let flow_id = flow.wrapping_mul(0x9e37_79b1).to_be_bytes();
            let group = Group {
                hw_id: 0,
                seq,
                node_id: node + 1,
            };
            if let Some(mut group) = GroupBuilder::new(out, group) {
                let _ = group.push(&Repr::postcard(own, &flow_id));
            }
        }
        bytes
    }
}
