//! One run: a random network, random changes and faults, then calm.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use detect::Metric;
use manager::compile::{Compiler, Refusal};
use manager::device::{
    Answer, Capabilities, Change, Command, DeviceEvent, Election, Encoding, L4Checksum, Mode, NodeId, PortId,
    Request, RequestId, Restart, Rule,
};
use manager::flows::Flows;
use manager::intent::Intent;
use manager::inventory::{Host, Inventory, Origin, Peer};
use manager::reconcile::{Notice, Order, Timing};
use manager::{Manager, ManagerSettings};
use testkit::rng::Rng;

use super::members::Away;
use super::net::{End, Net, Step, address};
use super::packet::{Bytes, Int, Packet};
use super::standby::{Acting, OnStandby};
use super::{LINKS, MS, PACKET, QUEUE};

/// What may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Messages are lost, doubled, delayed; requests are executed in part.
    messages: bool,
    /// Links, switches and managers fail; managers take over from each other.
    crashes: bool,
    /// Some switches forward without rules after a restart.
    open: bool,
    /// Of some switches, somebody else executes what they accept, later.
    slow: bool,
    /// Switches execute requests of every election.
    unfenced: bool,
    /// The manager does not know the MTUs.
    no_mtus: bool,
    /// Nobody starts a manager but one on standby, with a copy of what the one that acts had lately.
    pub(super) standby: bool,
    /// Devices leave the inventory and return, in place of changes of cabling.
    members: bool,
}

impl Faults {
    pub(crate) const NONE: Self = Self {
        messages: false,
        crashes: false,
        open: false,
        slow: false,
        unfenced: false,
        no_mtus: false,
        standby: false,
        members: false,
    };
    /// Nothing fails, and devices leave the inventory.
    pub(crate) const MEMBERS: Self = Self {
        members: true,
        ..Self::NONE
    };
    pub(crate) const MEMBERS_AND_ALL: Self = Self {
        members: true,
        ..Self::ALL
    };
    pub(crate) const STANDBY: Self = Self {
        standby: true,
        ..Self::ALL
    };
    pub(crate) const ALL: Self = Self {
        messages: true,
        crashes: true,
        ..Self::NONE
    };
    pub(crate) const OPEN: Self = Self {
        open: true,
        ..Self::ALL
    };
    pub(crate) const SLOW: Self = Self {
        slow: true,
        ..Self::ALL
    };
    pub(crate) const UNFENCED: Self = Self {
        unfenced: true,
        ..Self::ALL
    };
    pub(crate) const NO_MTUS: Self = Self {
        no_mtus: true,
        ..Self::ALL
    };
}

/// What must not happen.
#[derive(Debug)]
#[allow(dead_code, reason = "the fields are printed")]
pub(crate) enum Violation {
    /// A host received INT.
    Leak {
        at: u64,
        packet: Packet,
        port: (NodeId, PortId),
    },
    /// A packet was dropped, or went elsewhere, than in the same network without INT.
    Fate { at: u64, packet: Packet, node: NodeId },
    /// A host received another packet than was sent.
    Changed { at: u64, packet: Packet },
    /// A switch that forwarded had to stop.
    Stopped { at: u64, node: NodeId },
    /// Without faults: a report lacks a node of the path.
    Incomplete {
        at: u64,
        path: Vec<NodeId>,
        records: Vec<NodeId>,
    },
    /// In the end, a device does not have what it should have.
    End { node: NodeId, difference: String },
}

/// What a run did.
#[derive(Default, Debug)]
pub(crate) struct Stats {
    pub(crate) reported: u64,
    pub(crate) applied: u64,
    /// Packets that hosts received as they were sent.
    pub(crate) delivered: u64,
    /// Changes of the encoding of INT.
    pub(crate) encodings: u64,
    /// Devices that left the inventory and were driven until they measured nothing.
    pub(crate) emptied: u64,
    /// How often a manager on standby took over, and of these from one that was cut off and still acted.
    pub(crate) take_overs: (u64, u64),
    /// How often a manager claimed switches again that another one had claimed and left.
    pub(crate) claimed_again: u64,
    /// Packets with INT that reached a host soon after a switch started that forwards without rules.
    pub(crate) exposed: u64,
}

pub(super) enum Event {
    Deliver(Packet, (NodeId, PortId)),
    Request(usize, NodeId, RequestId, Request),
    Answer(usize, NodeId, RequestId, Answer),
    Start(NodeId),
    LinkUp((NodeId, PortId), (NodeId, PortId)),
    /// A manager renews its lease: its term.
    Renew(NodeId, u64),
    /// A switch reports to the manager on standby.
    Lease(NodeId, Election, u64),
}

/// A planned change of cabling.
enum Recabling {
    /// The port may become an edge port when it is announced.
    Announced((NodeId, PortId), (NodeId, PortId)),
    Done((NodeId, PortId), (NodeId, PortId)),
}

pub(crate) struct Run {
    pub(super) rng: Rng,
    pub(super) now: u64,
    pub(super) faults: Faults,
    order: Order,
    pub(super) net: Net,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    pending: BTreeMap<u64, Event>,
    count: u64,
    /// The newest manager is last.
    pub(super) managers: Vec<Acting>,
    next_manager: usize,
    pub(super) term: u64,
    pub(super) inventory: Inventory,
    pub(super) away: Away,
    pub(super) intents: BTreeMap<String, Intent>,
    pub(super) standby: OnStandby,
    recabling: Vec<Recabling>,
    hosts: u8,
    pub(super) stats: Stats,
    /// A report that lacks a node: its path and its records.
    broken: Option<Int>,
    pub(super) encoding: Encoding,
    /// The last encoding that was in force everywhere, which managers keep.
    in_force: Encoding,
    ever_failed: bool,
    /// INT can reach hosts until then: a switch started that forwards without rules.
    exposed_until: u64,
}

const TIMING: Timing = Timing {
    timeout: 150 * MS,
    longest: 400 * MS,
    poll: 1000 * MS,
    grace: 200 * MS,
    drain: LINKS * QUEUE,
    retry: (30 * MS, 400 * MS),
    batch: 1000,
};

/// The topology is calm after this time.
const CALM: u64 = 30 * MS;

impl Run {
    /// A random network of two to six switches, each with hosts and free ports.
    pub(crate) fn new(seed: u64, order: Order, faults: Faults) -> Self {
        let mut rng = Rng(seed.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ 0x1234);
        let count = 2 + rng.below(5) as NodeId;
        let (mut net, mut inventory) = (Net::default(), Inventory::default());
        net.mtu = PACKET + [30, 50, 80, 300][rng.below(4)];
        for node in 1..=count {
            let kinds = [Restart::Keeps, Restart::Waits, Restart::Forwards];
            net.add(node, kinds[rng.below(if faults.open { 3 } else { 2 })]);
            let is_slow = faults.slow && rng.below(3) == 0;
            let respects_mtu = rng.below(2) == 0;
            net.switches.entry(node).and_modify(|switch| {
                switch.is_slow = is_slow && switch.restart == Restart::Keeps;
                switch.respects_mtu = respects_mtu;
                switch.is_unfenced = faults.unfenced;
            });
            inventory
                .add_device(Self::device(node))
                .expect("the simulated network is valid");
        }
        let mut run = Self {
            rng,
            now: MS,
            faults,
            order,
            net,
            events: BinaryHeap::new(),
            pending: BTreeMap::new(),
            count: 0,
            managers: Vec::new(),
            next_manager: 0,
            term: 0,
            inventory,
            intents: BTreeMap::new(),
            standby: OnStandby::default(),
            away: Away::default(),
            recabling: Vec::new(),
            hosts: 0,
            stats: Stats::default(),
            broken: None,
            encoding: Encoding::default(),
            in_force: Encoding::default(),
            ever_failed: faults != Faults::NONE,
            exposed_until: 0,
        };
        run.build(count);
        run.new_manager();
        run
    }

    fn build(&mut self, count: NodeId) {
        // A tree, and some links more.
        for node in 2..=count {
            let peer = 1 + self.rng.below(node as usize - 1) as NodeId;
            self.link((node, peer), (peer, node));
        }
        for _ in 0..self.rng.below(4) {
            let (a, b) = (
                1 + self.rng.below(count as usize) as NodeId,
                1 + self.rng.below(count as usize) as NodeId,
            );
            if a != b && !self.net.cables.contains_key(&(a, b)) {
                self.link((a, b), (b, a));
            }
        }
        for node in 1..=count {
            for port in 0..self.rng.below(3) as PortId {
                self.attach((node, 10 + port));
            }
            self.inventory
                .add_port((node, 20), None, None)
                .expect("the simulated network is valid");
        }
        self.attach((1, 15));
        self.attach((count, 15));
    }

    fn link(&mut self, a: (NodeId, PortId), b: (NodeId, PortId)) {
        self.net.cables.insert(a, End::Port(b.0, b.1));
        self.net.cables.insert(b, End::Port(a.0, a.1));
        self.inventory
            .add_link(a, b, Origin::File)
            .expect("the simulated network is valid");
        self.set_mtu(a, self.net.mtu);
        self.set_mtu(b, self.net.mtu);
    }

    fn set_mtu(&mut self, port: (NodeId, PortId), mtu: u32) {
        let mtu = Some(mtu).filter(|_| !self.faults.no_mtus);
        self.inventory
            .add_port(port, None, mtu)
            .expect("the simulated network is valid");
    }

    fn attach(&mut self, port: (NodeId, PortId)) -> u8 {
        self.hosts += 1;
        let host = self.hosts;
        self.net.cables.insert(port, End::Host(host));
        let record = Host {
            name: format!("h{host}"),
            addresses: vec![address(host)],
            at: Some(port),
        };
        self.inventory
            .add_host(record, Origin::File)
            .expect("the simulated network is valid");
        self.set_mtu(port, PACKET);
        host
    }

    pub(super) fn at(&mut self, delay: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((self.now + delay, self.count)));
        self.pending.insert(self.count, event);
    }

    fn new_manager(&mut self) {
        self.term += 1;
        self.start_manager(self.term);
    }

    /// A manager without memory, which gets inventory, capabilities and intents again.
    pub(super) fn start_manager(&mut self, term: u64) {
        self.next_manager += 1;
        let domain = self.domain();
        let settings = ManagerSettings {
            domain,
            reencode: self.encoding != self.in_force,
            timing: TIMING,
            order: self.order,
            calm: CALM,
            ..ManagerSettings::default()
        };
        let mut manager = Manager::new(settings);
        for (node, capabilities) in self.capabilities() {
            manager.set_capabilities(node, capabilities, self.now);
        }
        manager.set_term(Some(term), self.now);
        for change in &self.recabling {
            if let Recabling::Announced(a, _) = change {
                manager.announce_when_ready(a.0, a.1);
            }
        }
        self.managers.push(Acting::new(self.next_manager, manager, term));
        self.update();
    }

    fn capabilities(&self) -> BTreeMap<NodeId, Capabilities> {
        let of = |(node, switch): (&NodeId, &super::net::Switch)| {
            let default = Capabilities::default();
            let dta = node % 2 == 1;
            let can = Capabilities {
                joint_roles: false,
                restart: switch.restart,
                dta,
                ..default
            };
            (*node, can)
        };
        self.net.switches.iter().map(of).collect()
    }

    /// The newest manager learns the inventory and the intents.
    pub(super) fn update(&mut self) {
        let now = self.now;
        let Some(newest) = self.managers.last_mut() else {
            return;
        };
        newest.manager.set_inventory(self.inventory.clone(), now);
        let known: Vec<String> = newest.manager.intents().map(str::to_owned).collect();
        for name in known.iter().filter(|name| !self.intents.contains_key(*name)) {
            newest.manager.remove_intent(name, now);
        }
        for (name, intent) in &self.intents {
            let known = newest.manager.intent(name);
            if known.is_none_or(|known| known.intent != *intent) {
                // What does not fit into the MTU has no effect.
                match newest.manager.keep_intent(intent.clone(), now) {
                    Ok(_) | Err(Refusal::Mtu { .. }) => {}
                    Err(refusal) => panic!("a valid intent: {refusal}"),
                }
            }
        }
    }

    /// The intents that are not refused for the MTU.
    fn accepted(&self) -> impl Iterator<Item = &Intent> {
        let newest = self.managers.last();
        let is_accepted = move |intent: &&Intent| {
            let status = newest.and_then(|one| one.manager.intent(&intent.name));
            status.is_some_and(|status| status.outcome.is_ok())
        };
        self.intents.values().filter(is_accepted)
    }

    /// Runs to the end.
    pub(crate) fn finish(mut self) -> Result<Stats, Violation> {
        let end = self.now + 2500 * MS;
        let mut next_action = self.now + 200 * MS;
        while self.now < end {
            self.now += 2 * MS;
            self.inject()?;
            self.execute_late();
            self.keep_lease();
            self.end_leaving();
            if self.now >= next_action {
                next_action = self.now + (10 + self.rng.below(120) as u64) * MS;
                self.action();
            }
            self.step()?;
        }
        self.calm()?;
        self.expect_desired()?;
        self.expect_emptied()?;
        self.stats.emptied = self.away.emptied;
        self.intents.clear();
        self.update();
        self.calm()?;
        self.expect_desired()?;
        Ok(self.stats)
    }

    /// Everything works again; long enough for every retry.
    fn calm(&mut self) -> Result<(), Violation> {
        self.faults = Faults {
            standby: self.faults.standby,
            ..Faults::NONE
        };
        self.net.down.clear();
        let down: Vec<NodeId> = self
            .net
            .switches
            .iter()
            .filter(|(_, one)| !one.up)
            .map(|(node, _)| *node)
            .collect();
        for node in down {
            self.net.start(node);
            self.expose(node);
        }
        let end = self.now + 5000 * MS;
        while self.now < end {
            self.now += 10 * MS;
            self.inject()?;
            self.execute_late();
            self.keep_lease();
            self.end_leaving();
            self.step()?;
        }
        Ok(())
    }

    fn expect_desired(&self) -> Result<(), Violation> {
        let mut compiler = Compiler::new(&self.inventory, &self.capabilities(), self.domain());
        assert_eq!(compiler.add_all(self.accepted()), []);
        for (node, switch) in &self.net.switches {
            // It is not in the inventory.
            let Some(desired) = compiler.desired().get(node) else {
                continue;
            };
            if **desired != switch.rules {
                let list = |rules: Vec<&Rule>| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
                let missing = list(desired.difference(&switch.rules).collect());
                let extra = list(switch.rules.difference(desired).collect());
                let status: Vec<String> = self
                    .managers
                    .last()
                    .iter()
                    .flat_map(|one| one.manager.devices())
                    .map(|status| {
                        format!(
                            "{} {} {:?} {}",
                            status.name, status.phase, status.waits, status.ready
                        )
                    })
                    .collect();
                let difference = format!("missing {missing:?}, extra {extra:?}, {status:?}");
                return Err(Violation::End {
                    node: *node,
                    difference,
                });
            }
        }
        Ok(())
    }

    /// A switch that forwards without rules is configured again at the latest after a poll and a few attempts.
    fn expose(&mut self, node: NodeId) {
        if self.net.switches[&node].restart == Restart::Forwards {
            self.exposed_until = self.now + TIMING.poll + 4 * (TIMING.timeout + TIMING.retry.1);
        }
    }

    /// Slow switches execute a change every 20 ms.
    fn execute_late(&mut self) {
        let slow = |(node, switch): (&NodeId, &super::net::Switch)| switch.is_slow.then_some(*node);
        let slow: Vec<NodeId> = self.net.switches.iter().filter_map(slow).collect();
        for node in slow {
            if self.rng.below(if self.faults == Faults::NONE { 2 } else { 10 }) == 0 {
                let choice = self.rng.below(1 << 16);
                self.net.execute_late(node, choice);
            }
        }
    }

    fn inject(&mut self) -> Result<(), Violation> {
        let (src, dst) = (
            1 + self.rng.below(self.hosts.into()) as u8,
            1 + self.rng.below(self.hosts.into()) as u8,
        );
        if let Some(port) = self.net.host_port(src).filter(|_| src != dst) {
            let len = if self.rng.below(2) == 0 {
                PACKET
            } else {
                64 + self.rng.below(1400) as u32
            };
            let (dscp, checksum) = (self.rng.below(16) as u8, self.rng.roll() % 0xffff);
            let packet = Packet::new(src, dst, Bytes { len, dscp, checksum });
            self.forward(packet, port.0, port.1)?;
        }
        Ok(())
    }

    /// A packet arrives at a switch. It must leave by the port by which it would leave without INT.
    fn forward(&mut self, mut packet: Packet, node: NodeId, port: PortId) -> Result<(), Violation> {
        packet.hops += 1;
        let expected = self.net.egress(node, &packet);
        let (egress, report) = match self.net.arrive(node, port, expected, &mut packet) {
            Step::Queued(egress, report) => (Some(egress), report),
            Step::Dropped => (None, None),
        };
        if egress != expected {
            return Err(Violation::Fate {
                at: self.now,
                packet,
                node,
            });
        }
        if let Some(int) = report {
            self.stats.reported += 1;
            if int.path != int.records && !int.is_partial {
                self.broken.get_or_insert(int);
            }
        }
        if let Some(egress) = egress {
            let delay = 1 + self.rng.roll() % (QUEUE - 1);
            self.at(delay, Event::Deliver(packet, (node, egress)));
        }
        Ok(())
    }

    /// Everything that is due.
    fn step(&mut self) -> Result<(), Violation> {
        let until = self.now;
        while let Some(Reverse((time, number))) = self
            .events
            .peek()
            .copied()
            .filter(|Reverse((time, _))| *time <= until)
        {
            self.events.pop();
            self.now = time;
            if let Some(event) = self.pending.remove(&number) {
                self.happen(event)?;
            }
            self.poll();
        }
        self.now = until;
        self.poll();
        let broken = self
            .broken
            .take()
            .filter(|_| self.faults == Faults::NONE && !self.ever_failed);
        match broken {
            Some(Int { path, records, .. }) => Err(Violation::Incomplete {
                at: self.now,
                path,
                records,
            }),
            None => Ok(()),
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Deliver(packet, port) => return self.deliver(packet, port),
            Event::Request(manager, node, id, request) => return self.request(manager, node, id, request),
            Event::Answer(manager, node, id, answer) => {
                let now = self.now;
                if let Some(manager) = self.managers.iter_mut().find(|one| one.id == manager) {
                    manager.manager.answer(node, id, answer, now);
                }
            }
            Event::Start(node) => {
                if !self.net.switches[&node].up {
                    self.net.start(node);
                    self.expose(node);
                    self.renew(node);
                }
            }
            Event::Renew(node, term) => self.renewed(node, term),
            Event::Lease(node, election, silence) => {
                self.hear(node, election, silence);
            }
            Event::LinkUp(a, b) => {
                self.net.down.remove(&a);
                self.net.down.remove(&b);
            }
        }
        Ok(())
    }

    fn deliver(&mut self, packet: Packet, port: (NodeId, PortId)) -> Result<(), Violation> {
        if self.net.down.contains(&port) || !self.net.switches[&port.0].up {
            return Ok(());
        }
        match self.net.cables.get(&port) {
            Some(End::Host(_)) if packet.int.is_some() && self.now < self.exposed_until => {
                self.stats.exposed += 1;
                Ok(())
            }
            Some(End::Host(_)) if packet.int.is_some() => Err(Violation::Leak {
                at: self.now,
                packet,
                port,
            }),
            Some(End::Host(_)) if packet.bytes != packet.sent => {
                Err(Violation::Changed { at: self.now, packet })
            }
            Some(End::Host(_)) => {
                self.stats.delivered += 1;
                Ok(())
            }
            Some(End::Port(node, other)) => self.forward(packet, *node, *other),
            None => Ok(()),
        }
    }

    fn request(
        &mut self,
        manager: usize,
        node: NodeId,
        id: RequestId,
        request: Request,
    ) -> Result<(), Violation> {
        if !self.net.switches[&node].up {
            return Ok(());
        }
        let changes = if let Request::Apply { changes, .. } = &request {
            changes.as_slice()
        } else {
            &[]
        };
        if changes.contains(&Change::Remove(Rule::Forwarding)) {
            return Err(Violation::Stopped { at: self.now, node });
        }
        let len = changes.len();
        let partly = self.faults.messages && len > 0 && self.rng.below(10) == 0;
        let executes = if partly { self.rng.roll() } else { u64::MAX };
        self.stats.applied += len as u64;
        let answer = self.net.execute(node, request, executes);
        if matches!(answer, Answer::Claimed | Answer::Applied) {
            self.renew(node);
        }
        if partly && self.rng.below(2) == 0 {
            self.crash(node);
        } else {
            self.transmit(|answer| Event::Answer(manager, node, id, answer), answer);
        }
        Ok(())
    }

    /// Sends a message over an unreliable network.
    pub(super) fn transmit<T: Clone>(&mut self, event: impl Fn(T) -> Event, content: T) {
        let copies = match self.rng.below(20) {
            0 if self.faults.messages => 0,
            1 if self.faults.messages => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let late = self.faults.messages && self.rng.below(20) == 0;
            let delay = if late {
                self.rng.below(600)
            } else {
                1 + self.rng.below(10)
            };
            self.at(delay as u64 * MS, event(content.clone()));
        }
    }

    fn poll(&mut self) {
        let now = self.now;
        let mut commands: Vec<(usize, Command)> = Vec::new();
        let mut notices = Vec::new();
        for manager in &mut self.managers {
            let mut out = Vec::new();
            manager.manager.poll(now, &mut out);
            commands.extend(out.into_iter().map(|command| (manager.id, command)));
            notices = manager.manager.drain_notices();
        }
        if self
            .managers
            .last()
            .is_some_and(|newest| !newest.manager.is_reencoding())
        {
            self.in_force = self.encoding;
        }
        // Only what the newest manager announces counts: the others do not know of the plan.
        for notice in notices {
            if let Notice::EdgeReady(node, port) = notice {
                self.edge_ready((node, port));
            }
        }
        for (
            manager,
            Command {
                node, id, request, ..
            },
        ) in commands
        {
            self.transmit(|request| Event::Request(manager, node, id, request), request);
        }
    }

    fn edge_ready(&mut self, port: (NodeId, PortId)) {
        let planned = |one: &Recabling| matches!(one, Recabling::Announced(a, _) if *a == port);
        let Some(at) = self.recabling.iter().position(planned) else {
            return;
        };
        let Recabling::Announced(a, b) = self.recabling.remove(at) else {
            return;
        };
        self.net.cables.remove(&b);
        self.attach(a);
        self.recabling.push(Recabling::Done(a, b));
    }

    fn action(&mut self) {
        let kinds = if self.faults.crashes { 13 } else { 7 };
        match self.rng.below(kinds) {
            4 | 5 if self.faults.members => self.change_members(),
            0..=2 => self.add_intent(),
            3 => {
                let names: Vec<String> = self.intents.keys().cloned().collect();
                if let Some(name) = names.get(self.rng.below(names.len().max(1))) {
                    self.intents.remove(name);
                }
                if self.rng.below(3) == 0 {
                    self.intents.clear();
                }
                self.update();
            }
            4 => self.plan_edge(),
            5 => self.plan_link(),
            6 => self.change_encoding(),
            7 => self.link_down(),
            8 | 9 => {
                let node = 1 + self.rng.below(self.net.switches.len()) as NodeId;
                self.crash(node);
            }
            10 if self.faults.standby => self.fail_manager(),
            11.. if self.faults.standby => self.cut_manager_off(),
            10 => self.restart_manager(),
            _ => self.take_over(),
        }
    }

    fn add_intent(&mut self) {
        let name = format!("i{}", self.rng.below(4));
        let mut prefix = || match self.rng.below(3) {
            0 => Vec::new(),
            1 => vec![address(1 + self.rng.below(self.hosts.into()) as u8).into()],
            _ => vec![
                ["10.0.0.0/24", "10.0.1.0/24", "10.0.0.0/23"][self.rng.below(3)]
                    .parse()
                    .expect("the simulated network is valid"),
            ],
        };
        let (src, dst) = (prefix(), prefix());
        let metric = [
            Metric::HopLatency,
            Metric::QueueOccupancy,
            Metric::LinkUtilization,
        ][self.rng.below(3)];
        let intent = Intent {
            name: name.clone(),
            flows: Flows {
                src,
                dst,
                ..Flows::default()
            },
            watch: [metric].into(),
            mode: Some(Mode::Md),
            both_directions: self.rng.below(2) == 0,
            ..Intent::default()
        };
        self.intents.insert(name, intent);
        self.update();
    }

    fn links(&self) -> Vec<((NodeId, PortId), (NodeId, PortId))> {
        let link = |(port, end): (&(NodeId, PortId), &End)| match end {
            End::Port(node, other) => Some((*port, (*node, *other))),
            End::Host(_) => None,
        };
        let planned = |port: &(NodeId, PortId)| {
            self.recabling
                .iter()
                .any(|one| matches!(one, Recabling::Announced(a, b) if a == port || b == port))
        };
        self.net
            .cables
            .iter()
            .filter_map(link)
            .filter(|(a, _)| !planned(a))
            .collect()
    }

    /// A link is to be replaced by a host: the inventory changes first, the cable when the manager announces the port.
    fn plan_edge(&mut self) {
        let links = self.links();
        if links.is_empty() || self.hosts > 60 {
            return;
        }
        let (a, b) = links[self.rng.below(links.len())];
        self.inventory
            .set_peer(a, Some(Peer::Hosts), Origin::File)
            .expect("the simulated network is valid");
        self.inventory
            .set_peer(b, None, Origin::File)
            .expect("the simulated network is valid");
        self.set_mtu(a, PACKET);
        self.recabling.push(Recabling::Announced(a, b));
        self.update();
        if let Some(newest) = self.managers.last_mut() {
            newest.manager.announce_when_ready(a.0, a.1);
        }
    }

    /// A host is replaced by the link that was there before: the cable changes first, then the inventory.
    fn plan_link(&mut self) {
        let done = |one: &Recabling| matches!(one, Recabling::Done(..));
        let Some(at) = self.recabling.iter().position(done) else {
            return;
        };
        let Recabling::Done(a, b) = self.recabling.remove(at) else {
            return;
        };
        self.net.cables.insert(a, End::Port(b.0, b.1));
        self.net.cables.insert(b, End::Port(a.0, a.1));
        self.inventory
            .set_peer(a, None, Origin::File)
            .expect("the simulated network is valid");
        self.inventory
            .add_link(a, b, Origin::File)
            .expect("the simulated network is valid");
        self.set_mtu(a, self.net.mtu);
        self.update();
    }

    fn link_down(&mut self) {
        let links = self.links();
        if let Some((a, b)) = links.get(self.rng.below(links.len().max(1))).copied() {
            self.net.down.extend([a, b]);
            let time = self.rng.below(400) as u64 * MS;
            self.at(time, Event::LinkUp(a, b));
        }
    }

    fn crash(&mut self, node: NodeId) {
        self.ever_failed = true;
        if let Some(switch) = self.net.switches.get_mut(&node) {
            switch.up = false;
        }
        let time = self.rng.below(400) as u64 * MS;
        self.at(time, Event::Start(node));
        let now = self.now;
        if self.rng.below(2) == 0 {
            for manager in &mut self.managers {
                manager
                    .manager
                    .event(node, DeviceEvent::Lost("connection reset".to_owned()), now);
            }
        }
    }

    /// The newest manager crashes. Nobody starts it again.
    fn fail_manager(&mut self) {
        self.ever_failed = true;
        self.managers.pop();
    }

    /// The switches do not hear the newest manager for a while; it may still act.
    fn cut_manager_off(&mut self) {
        self.ever_failed = true;
        let until = self.now + self.rng.below(600) as u64 * MS;
        if let Some(newest) = self.managers.last_mut() {
            newest.cut_off = until;
        }
    }

    /// The newest manager crashes and starts again, with the same lease or a new one.
    fn restart_manager(&mut self) {
        self.ever_failed = true;
        if let Some(old) = self.managers.pop() {
            if self.rng.below(2) == 0 {
                self.start_manager(old.term);
            } else {
                self.new_manager();
            }
        }
    }

    /// The newest manager is configured anew, with another encoding. Now and then.
    fn change_encoding(&mut self) {
        if self.rng.below(4) != 0 {
            return;
        }
        self.stats.encodings += 1;
        let dscp = [0x17, 0x2a][self.rng.below(2)];
        let l4_checksum = [L4Checksum::Update, L4Checksum::Leave, L4Checksum::Zero][self.rng.below(3)];
        self.encoding = Encoding { dscp, l4_checksum };
        if self.managers.pop().is_some() {
            self.new_manager();
        }
    }

    /// Another manager takes over; the old one does not know it yet.
    fn take_over(&mut self) {
        self.ever_failed = true;
        self.managers.retain(|manager| manager.manager.is_acting());
        if self.managers.len() > 2 {
            self.managers.remove(0);
        }
        self.new_manager();
    }
}
