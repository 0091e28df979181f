//! Generates seeded telemetry traffic: six reporters of all report versions, with lost, reordered, duplicated and restarting
//! sequence numbers, and 40 flows with changing paths and values, which mostly vary within their thresholds.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;

use detect::{Detection, Match, RuleSet, Thresholds};
use wire::Flags;

use crate::reports::{Node, Sent, node};

/// A seeded xorshift64 generator, so that failures can be reproduced. The seed must not be 0.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    /// Returns true with a probability of 1 in `count`.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// Six reporters and the flows that they report.
#[derive(Debug)]
pub struct Network {
    /// The random number generator.
    pub random: Random,
    /// Sequence number of each reporter.
    seq: [u32; 6],
    /// Path of each flow, with the current values of its hops.
    routes: Vec<Vec<Node>>,
}

impl Network {
    /// Creates the network with six reporters and 40 flows.
    pub fn new(seed: u64) -> Self {
        let mut network = Self {
            random: Random(seed | 1),
            seq: [0; 6],
            routes: Vec::new(),
        };
        // Two reporters are close to the wrap of their numbers: 32 bits, and 22 bits in Report 2.0.
        network.seq = [0, u32::MAX - 200, (1 << 22) - 300, 5, 0, 77];
        for _ in 0..40 {
            let route = network.route();
            network.routes.push(route);
        }
        network
    }

    /// Chooses a route of one to six hops; some routes return to their first node, which is a loop.
    fn route(&mut self) -> Vec<Node> {
        let first = self.random.below(4) as u32;
        let count = 1 + self.random.below(5) as u32;
        let mut route: Vec<Node> = (0..count)
            .map(|hop| node(10 * hop + first + self.random.below(2) as u32))
            .collect();
        if count > 2 && self.random.one_in(10) {
            route.push(route[0]);
        }
        route
    }

    /// Changes the values of a flow's hops at random, mostly within the thresholds.
    fn wander(&mut self, flow: usize) {
        let random = &mut self.random;
        let route = &mut self.routes[flow];
        for hop in route {
            let step = if random.one_in(30) { 300 } else { 20 };
            let up = |value: u32, random: &mut Random, by: u64| {
                value
                    .saturating_add(random.below(2 * by + 1) as u32)
                    .saturating_sub(by as u32)
            };
            hop.latency = hop.latency.map(|value| up(value, random, step));
            hop.utilization = hop.utilization.map(|value| up(value, random, step));
            hop.queue = hop.queue.map(|(id, value)| {
                (
                    if random.one_in(50) {
                        random.below(3) as u8
                    } else {
                        id
                    },
                    up(value, random, step / 10),
                )
            });
        }
    }

    /// Chooses a flow, and returns its number and the report that `reporter` sends about it.
    fn sent(&mut self, reporter: usize) -> (usize, Sent) {
        let flow = self.random.below(self.routes.len() as u64) as usize;
        if self.random.one_in(60) {
            self.routes[flow] = self.route();
        }
        self.wander(flow);
        let random = &mut self.random;
        let mut sent = Sent {
            flow: flow as u16,
            v6: flow.is_multiple_of(7),
            hops: self.routes[flow].clone(),
            reporter: 100 + reporter as u32,
            ..Sent::default()
        };
        if random.one_in(80) {
            sent.flags = Flags::QUEUE.with(Flags::FLOW, random.one_in(2));
        }
        if random.one_in(15) {
            sent.int_flags = wire::int::Flags::HOPS_EXCEEDED;
        }
        // A report from the middle of the path, or a full stack, lacks hops.
        let lacks_hops = sent.flags.contains(Flags::QUEUE) || sent.int_flags.0 != 0;
        if lacks_hops && sent.hops.len() > 1 && random.one_in(2) {
            let at = random.below(sent.hops.len() as u64) as usize;
            sent.hops.remove(at);
        }
        if random.one_in(100) {
            (sent.flags, sent.metadata, sent.reason) = (Flags::DROP, 0x20, Some(7));
        }
        // Implausible values: a latency of three seconds, or the ingress timestamp 0 of a cloned packet.
        if random.one_in(100) {
            let at = random.below(sent.hops.len() as u64) as usize;
            match random.one_in(2) {
                true => sent.hops[at].latency = Some(3_000_000_000),
                false => sent.hops[at].stamps = Some((0, 900)),
            }
        }
        (flow, sent)
    }

    /// Returns the next sequence number of `reporter`: sometimes reordered, duplicated, after a gap or after a restart.
    fn next(&mut self, reporter: usize) -> u32 {
        let mask = if reporter == 2 { (1 << 22) - 1 } else { u32::MAX };
        let random = &mut self.random;
        // A small gap, a large gap, a duplicate, or the next number.
        let step = match random.below(300) {
            0 => random.below(6) as u32 + 2,
            1 => random.below(400) as u32,
            2 => 0,
            _ => 1,
        };
        let restart = random.one_in(3000);
        let seq = &mut self.seq[reporter];
        *seq = if restart { 0 } else { seq.wrapping_add(step) & mask };
        // Sometimes an earlier number. The fifth reporter always sends 0: it does not count.
        let late = if self.random.one_in(200) {
            self.random.below(100) as u32
        } else {
            0
        };
        if reporter == 4 {
            0
        } else {
            self.seq[reporter].wrapping_sub(late) & mask
        }
    }

    /// Generates a datagram, and returns it with the IPv4 address of its sender.
    pub fn datagram(&mut self) -> (Vec<u8>, [u8; 4]) {
        let reporter = self.random.below(6) as usize;
        let seq = self.next(reporter);
        let (_, sent) = self.sent(reporter);
        let sent = Sent { seq, ..sent };
        let mut bytes = match reporter {
            2 => {
                let sent = Sent {
                    metadata: 0,
                    reason: None,
                    ..sent
                };
                let (_, other) = self.sent(reporter);
                Sent::v20(&[
                    sent,
                    Sent {
                        metadata: 0,
                        reason: None,
                        ..other
                    },
                ])
            }
            3 => Sent {
                reason: None,
                metadata: 0,
                hops: sent.hops[..1].to_vec(),
                ..sent
            }
            .postcard(),
            5 => Sent {
                reason: None,
                metadata: 0,
                ..sent
            }
            .v05(),
            _ => sent.v10(),
        };
        if self.random.one_in(200) {
            bytes.truncate(self.random.below(bytes.len() as u64) as usize);
        }
        (bytes, [192, 0, 2, reporter as u8])
    }
}

/// Builds detection settings: thresholds derived from `threshold`, lower for flows from ports 1000 to 1012, and `rules`.
pub fn detection(threshold: u64, rules: &[&str], generation: u32) -> Arc<Detection> {
    let rules: Vec<_> = rules
        .iter()
        .map(|text| (text.chars().take(64).collect(), (*text).to_owned()))
        .collect();
    let some = Match {
        src_port: "1000-1012".parse().unwrap(),
        ..Match::default()
    };
    let less = [
        None,
        Some(threshold / 3),
        Some(threshold / 3),
        None,
        None,
        Some(threshold / 2),
    ];
    let set = [0, threshold, threshold, threshold / 10, threshold / 10, threshold];
    Arc::new(Detection {
        thresholds: Thresholds::new(set, vec![(some, less)]).unwrap(),
        rules: RuleSet::compile(&rules).unwrap(),
        generation,
    })
}
