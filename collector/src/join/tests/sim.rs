//! A simulation of the nine rules of SF-INT (wire-formats section 3.3) with faults: the ground truth for tests of the joiner.

use std::collections::{BTreeMap, BinaryHeap, HashMap};

use wire::FlowKey;

use super::super::set::{SfRecord, order};
use super::super::{JoinOutput, Joiner, Priority, SfReport};
use crate::config::{JoinConfig, Units};
use crate::decode::{EventContext, Head, NO_VALUE, Origin, ReadHops, Reading};
use crate::hash::fold;
use crate::stats::{JoinStats, Table};

/// The time of the first packet, ns.
const EPOCH: u64 = 1_000_000_000;
/// Time on a link, ns.
const LINK: u64 = 2_000;

/// Fault rates, in parts of a million, per link or per report.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Faults {
    pub(super) loss: u64,
    pub(super) swap: u64,
    pub(super) duplicate: u64,
    pub(super) report_loss: u64,
    pub(super) report_swap: u64,
    pub(super) report_duplicate: u64,
    /// Rate at which a node's registers are cleared, per forwarded packet.
    pub(super) wipe: u64,
}

/// A flow: its paths, and the packet numbers of each.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) paths: Vec<Vec<u32>>,
    pub(super) which: fn(u64) -> usize,
}

/// Parameters of a simulation.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) flows: Vec<Route>,
    pub(super) packets: u64,
    /// Between two packets of a flow, ns.
    pub(super) gap: u64,
    pub(super) faults: Faults,
    /// Registers per node.
    pub(super) registers: u64,
    /// Nodes decrement the hop count by the rules.
    pub(super) counting: bool,
    /// Initial hop count of sources.
    pub(super) hop_limit: u8,
    pub(super) synchronised: bool,
    pub(super) config: JoinConfig,
    pub(super) seed: u64,
}

impl Plan {
    /// One flow over nodes 1 to `nodes`, without faults.
    pub(super) fn line(nodes: u32) -> Self {
        let route = Route {
            paths: vec![(1..=nodes).collect()],
            which: |_| 0,
        };
        Self {
            flows: vec![route],
            packets: 10_000,
            gap: 10_000,
            faults: Faults::default(),
            registers: 1 << 16,
            counting: true,
            hop_limit: 16,
            synchronised: false,
            config: JoinConfig::default(),
            seed: 1,
        }
    }

    pub(super) fn faulty(self, faults: Faults) -> Self {
        Self { faults, ..self }
    }

    pub(super) fn run(&self) -> Outcome {
        let mut simulation = Simulation::new(self);
        simulation.run();
        simulation.end()
    }
}

/// The result of a simulation.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Sets declared complete, by flow, ...
    pub(super) whole: Vec<u64>,
    /// ... that differ from the ground truth.
    pub(super) false_ones: Vec<String>,
    pub(super) stats: JoinStats,
    pub(super) tables: [Table; 2],
    /// Latest path declared, by flow.
    pub(super) latest: HashMap<usize, Vec<u32>>,
}

#[derive(Clone, Copy, Debug)]
struct Carried {
    packet_id: u16,
    priority: Priority,
    record: SfRecord,
}

#[derive(Clone, Debug)]
struct Packet {
    flow: usize,
    number: u64,
    remaining: u8,
    exceeded: bool,
    carried: Carried,
}

#[derive(Clone, Copy, Debug)]
struct Register {
    flow: usize,
    carried: Carried,
}

/// A [`SfReport`] in flight.
#[derive(Clone, Copy, Debug)]
struct PendingReport {
    priority: Priority,
    packet_id: u16,
    exceeded: bool,
    carried: SfRecord,
    own: Option<SfRecord>,
    units: Units,
}

#[derive(Debug)]
enum SimEvent {
    /// A packet arrives at the node with this position on its path.
    Arrives(Packet, usize),
    /// A report arrives, with the data that its [`SfReport`] borrows.
    Reported(Head, PendingReport),
}

struct Simulation<'p> {
    plan: &'p Plan,
    random: u64,
    queue: BinaryHeap<std::cmp::Reverse<(u64, u64)>>,
    events: HashMap<u64, SimEvent>,
    next: u64,
    registers: BTreeMap<(u32, u64), Register>,
    /// Sequence numbers of sinks.
    numbers: HashMap<u32, u32>,
    joiner: Joiner,
    witness: Checker<'p>,
}

/// Compares the joined paths with the ground truth.
struct Checker<'p> {
    plan: &'p Plan,
    keys: HashMap<FlowKey, usize>,
    whole: Vec<u64>,
    false_ones: Vec<String>,
    latest: HashMap<usize, Vec<u32>>,
    samples: u64,
}

fn key(flow: usize) -> FlowKey {
    FlowKey::v4(
        [10, 0, (flow >> 8) as u8, flow as u8],
        [10, 1, 0, 1],
        Some((1000, 80)),
        17,
    )
}

impl JoinOutput for Checker<'_> {
    fn path(&mut self, head: &Head, hops: ReadHops<'_>) {
        let flow = self.keys[&head.about.key];
        self.whole[flow] += 1;
        let path: Vec<u32> = hops.readings.iter().map(|reading| reading.node).collect();
        let number = hops.readings[0].latency;
        let route = &self.plan.flows[flow];
        let one_packet = hops.readings.iter().all(|reading| reading.latency == number);
        if !one_packet || path != route.paths[(route.which)(number)] {
            self.false_ones.push(format!("{:?}", hops.readings));
        }
        self.latest.insert(flow, path);
    }

    fn nodes(&mut self, _: &Head, hops: ReadHops<'_>) {
        self.samples += hops.readings.len() as u64;
    }
}

impl<'p> Simulation<'p> {
    fn new(plan: &'p Plan) -> Self {
        let flows = plan.flows.len();
        let witness = Checker {
            plan,
            keys: (0..flows).map(|flow| (key(flow), flow)).collect(),
            whole: vec![0; flows],
            false_ones: Vec::new(),
            latest: HashMap::new(),
            samples: 0,
        };
        Self {
            plan,
            random: fold(plan.seed, 7) | 1,
            queue: BinaryHeap::new(),
            events: HashMap::new(),
            next: 0,
            registers: BTreeMap::new(),
            numbers: HashMap::new(),
            joiner: Joiner::new(plan.config, plan.seed),
            witness,
        }
    }

    fn chance(&mut self, of_a_million: u64) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        of_a_million > 0 && (self.random >> 20) % 1_000_000 < of_a_million
    }

    fn at(&mut self, time: u64, happening: SimEvent) {
        self.queue.push(std::cmp::Reverse((time, self.next)));
        self.events.insert(self.next, happening);
        self.next += 1;
    }

    fn run(&mut self) {
        for number in 0..self.plan.packets {
            for flow in 0..self.plan.flows.len() {
                let time = EPOCH + number * self.plan.gap + flow as u64 * 100;
                while self.queue.peek().is_some_and(|next| next.0.0 <= time) {
                    self.step();
                }
                self.send(flow, number, time);
            }
        }
        while !self.queue.is_empty() {
            self.step();
        }
    }

    fn end(mut self) -> Outcome {
        assert!(
            self.joiner.stats().balance().is_balanced(),
            "{:?}",
            self.joiner.stats()
        );
        self.joiner.finish(&mut self.witness);
        let stats = self.joiner.stats();
        assert!(stats.balance().is_balanced() && stats.pending == 0, "{stats:?}");
        assert_eq!(
            stats.complete.records + stats.repeated + self.witness.samples,
            stats.records
        );
        let Checker {
            whole,
            false_ones,
            latest,
            ..
        } = self.witness;
        Outcome {
            whole,
            false_ones,
            stats,
            tables: self.joiner.tables(),
            latest,
        }
    }

    fn step(&mut self) {
        let Some(std::cmp::Reverse((time, which))) = self.queue.pop() else {
            return;
        };
        match self.events.remove(&which) {
            Some(SimEvent::Arrives(packet, place)) => self.arrive(time, packet, place),
            Some(SimEvent::Reported(mut head, made)) => {
                head.about.ts = time;
                let PendingReport {
                    priority,
                    packet_id,
                    exceeded,
                    carried,
                    own,
                    units,
                } = made;
                let part = SfReport {
                    head: &head,
                    priority,
                    packet_id,
                    exceeded,
                    carried,
                    sink_record: own,
                    units,
                };
                self.joiner.apply(&part, &mut self.witness);
                self.joiner.tick(time, &mut self.witness);
            }
            None => {}
        }
    }

    fn path(&self, flow: usize, number: u64) -> &'p [u32] {
        let route = &self.plan.flows[flow];
        &route.paths[(route.which)(number)]
    }

    fn record(&self, node: u32, number: u64, time: u64) -> SfRecord {
        let offset = if self.plan.synchronised {
            0
        } else {
            fold(node.into(), 3) & 0xff_ffff
        };
        let reading = Reading {
            node,
            latency: number,
            ..Reading::NOTHING
        };
        SfRecord {
            reading,
            ingress: time + offset,
            egress: NO_VALUE,
            wide: true,
            ..SfRecord::NOTHING
        }
    }

    /// The source.
    fn send(&mut self, flow: usize, number: u64, time: u64) {
        let node = self.path(flow, number)[0];
        let carried = Carried {
            packet_id: number as u16,
            priority: Priority::Medium,
            record: self.record(node, number, time),
        };
        let remaining = self.plan.hop_limit - u8::from(self.plan.counting);
        self.forward(
            time,
            Packet {
                flow,
                number,
                remaining,
                exceeded: false,
                carried,
            },
            1,
        );
    }

    /// Sends a packet over a link to the node in `place`.
    fn forward(&mut self, time: u64, packet: Packet, place: usize) {
        let faults = self.plan.faults;
        if self.chance(faults.loss) {
            return;
        }
        // It arrives after the next packet of its flow.
        let late = if self.chance(faults.swap) {
            self.plan.gap + 1_000
        } else {
            0
        };
        if self.chance(faults.duplicate) {
            self.at(time + LINK + late + 50, SimEvent::Arrives(packet.clone(), place));
        }
        self.at(time + LINK + late, SimEvent::Arrives(packet, place));
    }

    fn arrive(&mut self, time: u64, mut packet: Packet, place: usize) {
        let path = self.path(packet.flow, packet.number);
        let node = path[place];
        if place + 1 == path.len() {
            self.report(time, &packet, node);
            return;
        }
        if self.chance(self.plan.faults.wipe) {
            self.registers.retain(|(owner, _), _| *owner != node);
        }
        self.trade(time, node, &mut packet);
        self.forward(time, packet, place + 1);
    }

    /// The nine rules.
    fn trade(&mut self, time: u64, node: u32, packet: &mut Packet) {
        use Priority::{High, Low, Medium};
        let at = (node, fold(packet.flow as u64, 11) % self.plan.registers);
        let stored = self
            .registers
            .get(&at)
            .copied()
            .filter(|register| register.flow == packet.flow);
        let stored = stored.map(|register| register.carried);
        let arriving = packet.carried;
        let as_state = |carried: Carried, priority| Carried { priority, ..carried };
        let fresh = Carried {
            packet_id: arriving.packet_id,
            priority: Medium,
            record: self.record(node, packet.number, time),
        };
        let (forward, keep) = match (arriving.priority, stored.map(|stored| stored.priority)) {
            (Medium, Some(High)) => (stored, Some(as_state(arriving, Low))),
            (Medium, _) if packet.remaining == 0 => {
                packet.exceeded = true;
                return;
            }
            (Medium, _) => {
                packet.remaining -= u8::from(self.plan.counting);
                (Some(fresh), Some(as_state(arriving, High)))
            }
            (High, Some(High)) => (stored, Some(arriving)),
            (High, Some(_)) => (stored, Some(as_state(arriving, Low))),
            (High, None) => (Some(arriving), None),
            (Low, Some(_)) => (stored, Some(arriving)),
            (Low, None) => (Some(arriving), None),
        };
        packet.carried = forward.expect("something is always forwarded");
        match keep {
            Some(carried) => self.registers.insert(
                at,
                Register {
                    flow: packet.flow,
                    carried,
                },
            ),
            None => self.registers.remove(&at),
        };
    }

    /// The sink.
    fn report(&mut self, time: u64, packet: &Packet, node: u32) {
        let number = self.numbers.entry(node).or_default();
        *number = (*number + 1) & 0x3f_ffff;
        let origin = Origin {
            reporter: node.into(),
            seq: *number,
            version: 20,
            ..Origin::NONE
        };
        let key = key(packet.flow);
        let about = EventContext {
            ts: 0,
            origin,
            key,
            has_flow: true,
            profile: 0,
        };
        let place = SfRecord {
            order: order(*number, 0),
            remaining: packet.remaining,
            ..SfRecord::NOTHING
        };
        let placed = |record: SfRecord| SfRecord {
            order: place.order,
            remaining: place.remaining,
            ..record
        };
        let head = Head {
            about,
            hash: key.hash(self.plan.seed),
            whole_path: true,
            ..Head::none()
        };
        let made = PendingReport {
            priority: packet.carried.priority,
            packet_id: packet.carried.packet_id,
            exceeded: packet.exceeded,
            carried: placed(packet.carried.record),
            own: Some(placed(self.record(node, packet.number, time))),
            units: Units {
                synchronised: self.plan.synchronised,
                ..Units::NONE
            },
        };
        let faults = self.plan.faults;
        if self.chance(faults.report_loss) {
            return;
        }
        let late = if self.chance(faults.report_swap) {
            self.plan.gap + 1_000
        } else {
            0
        };
        if self.chance(faults.report_duplicate) {
            self.at(
                time + LINK + late + 3 * self.plan.gap,
                SimEvent::Reported(head, made),
            );
        }
        self.at(time + LINK + late, SimEvent::Reported(head, made));
    }
}
