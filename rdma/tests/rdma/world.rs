//! Links and responder with a bad network between them, in simulated time.
#![allow(dead_code, reason = "each test uses its part")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use memory::Region;
use rdma::requester::{Config, Connection, Event, Links, RemoteRegion, State};
use rdma::responder::{
    self, Completion, Order, QueuePairConfig, Registered, Registration, Responder, Rights,
};
use wire::roce::{Packet, Path, Transport};

pub(crate) const MICRO: u64 = 1_000;
pub(crate) const MILLI: u64 = 1_000_000;

use testkit::dice;

/// Numbers that look like chance.
#[derive(Clone, Debug)]
pub(crate) struct Dice(dice::Dice);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(dice::Dice(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.roll()
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True so many times in a thousand.
    pub(crate) fn permille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }
}

/// How bad a network is, in frames of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) late: u64,
    pub(crate) damaged: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Side {
    Links,
    Responder,
    Translator,
    Reporter,
}

/// What happened to frames on one way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) delivered: u64,
}

type Underway = Reverse<(u64, u64, Side, Vec<u8>)>;

/// A network.
#[derive(Debug)]
pub(crate) struct Net {
    dice: Dice,
    pub(crate) faults: Faults,
    queue: BinaryHeap<Underway>,
    order: u64,
    pub(crate) counts: [Counts; 4],
    pub(crate) cut: bool,
}

impl Net {
    fn new(seed: u64, faults: Faults) -> Self {
        Self {
            dice: Dice::new(seed),
            faults,
            queue: BinaryHeap::new(),
            order: 0,
            counts: Default::default(),
            cut: false,
        }
    }

    pub(crate) fn send(&mut self, now: u64, to: Side, frame: &[u8]) {
        let (dice, mut faults) = (&mut self.dice, self.faults);
        if matches!(to, Side::Translator | Side::Reporter) {
            // Ethernet finds damage in what has no checksum of its own.
            faults = Faults { lost: faults.lost + faults.damaged, damaged: 0, ..faults };
        }
        let counts = &mut self.counts[to as usize];
        counts.sent += 1;
        if self.cut || dice.permille(faults.lost) {
            counts.lost += 1;
            return;
        }
        let twice = dice.permille(faults.doubled);
        counts.doubled += u64::from(twice);
        for _ in 0..1 + u64::from(twice) {
            let mut frame = frame.to_vec();
            if dice.permille(faults.damaged) {
                let bit = dice.below(frame.len() as u64 * 8);
                frame[(bit / 8) as usize] ^= 1 << (bit % 8);
            }
            let late = if dice.permille(faults.late) { dice.below(200) * MICRO } else { 0 };
            // Frames of one moment arrive in the order they were sent, but for those that are late.
            self.order += 1;
            self.queue.push(Reverse((now + 10 * MICRO + late, self.order, to, frame)));
        }
    }

    fn next_time(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse((time, ..))| *time)
    }

    fn take(&mut self, now: u64) -> Option<(Side, Vec<u8>)> {
        if self.next_time()? > now {
            return None;
        }
        let Reverse((_, _, to, frame)) = self.queue.pop()?;
        self.counts[to as usize].delivered += 1;
        Some((to, frame))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) answers: Vec<Vec<u8>>,
    pub(crate) completions: Vec<Completion>,
    pub(crate) sent: Vec<Vec<u8>>,
}

impl responder::Out for Received {
    fn answer(&mut self, _: &Path, frame: &[u8]) {
        self.answers.push(frame.to_vec());
    }

    fn complete(&mut self, completion: &Completion) {
        self.completions.push(*completion);
    }

    fn sent(&mut self, _: u32, message: &[u8]) {
        self.sent.push(message.to_vec());
    }
}

/// Everything.
#[derive(Debug)]
pub(crate) struct World<F = Alone> {
    pub(crate) now: u64,
    pub(crate) links: Links,
    pub(crate) config: Config,
    pub(crate) responder: Responder,
    pub(crate) memory: Vec<Arc<Region>>,
    pub(crate) registered: Vec<Registered>,
    pub(crate) net: Net,
    pub(crate) received: Received,
    pub(crate) mtu: u32,
    pub(crate) receives: u32,
    /// The reliable queue pair at the responder.
    pub(crate) queue_pair: Option<u32>,
    /// Whether the collector can say how far it came when the link is made again.
    pub(crate) remembers: bool,
    pub(crate) reconnects: u64,
    /// What stands before the links.
    pub(crate) front: F,
    restarts: u64,
}

/// What stands before the links: its packets go over the same network, and it hands operations to the links.
pub(crate) trait Front {
    /// Sends what waits.
    fn send(&mut self, now: u64, net: &mut Net);
    fn receive(&mut self, now: u64, to: Side, payload: &[u8], links: &mut Links);
    fn tick(&mut self, now: u64, links: &mut Links);
    fn deadline(&self) -> Option<u64>;
    /// Its counters add up, and memory holds what it should.
    fn check_books(&self, memory: &[Arc<Region>]);
}

/// Nothing before the links: the test itself hands them operations.
#[derive(Debug)]
pub(crate) struct Alone;

impl Front for Alone {
    fn send(&mut self, _: u64, _: &mut Net) {}
    fn receive(&mut self, _: u64, _: Side, _: &[u8], _: &mut Links) {}
    fn tick(&mut self, _: u64, _: &mut Links) {}
    fn deadline(&self) -> Option<u64> {
        None
    }
    fn check_books(&self, memory: &[Arc<Region>]) {
        let mut header = (0..512).map(|i| memory[0].load_u64(i * 8).expect("in range"));
        assert!(header.all(|word| word == 0), "a header page was written");
    }
}

pub(crate) const REGION_LEN: u64 = 1 << 16;

pub(crate) fn paths() -> (Path, Path) {
    let (a, b) = (Ipv4Addr::new(198, 51, 100, 1).into(), Ipv4Addr::new(198, 51, 100, 2).into());
    (Path::new(a, b, 0xc001), Path::new(b, a, 0xc001))
}

fn responder(seed: u64) -> Responder {
    Responder::new(responder::Config { seed, atomic_depth: 8, ..responder::Config::default() })
        .expect("good settings")
}

impl World {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        Self::with(seed, faults, Config { seed, timeout: MILLI, ..Config::default() })
    }

    pub(crate) fn with(seed: u64, faults: Faults, config: Config) -> Self {
        let memory: Vec<_> =
            (0..2).map(|_| Arc::new(Region::anonymous(REGION_LEN, false).expect("memory"))).collect();
        let mut world = Self {
            now: 0,
            links: Links::new(config).expect("good settings"),
            config,
            responder: responder(seed),
            memory,
            registered: Vec::new(),
            net: Net::new(seed, faults),
            received: Received::default(),
            mtu: 256,
            receives: 1 << 20,
            queue_pair: None,
            remembers: true,
            reconnects: 0,
            front: Alone,
            restarts: 0,
        };
        world.register();
        world
    }

    /// The same with something before the links.
    pub(crate) fn behind<F: Front>(self, front: F) -> World<F> {
        World {
            now: self.now,
            links: self.links,
            config: self.config,
            responder: self.responder,
            memory: self.memory,
            registered: self.registered,
            net: self.net,
            received: self.received,
            mtu: self.mtu,
            receives: self.receives,
            queue_pair: self.queue_pair,
            remembers: self.remembers,
            reconnects: self.reconnects,
            front,
            restarts: self.restarts,
        }
    }

    /// The same over other memory.
    pub(crate) fn over(mut self, memory: Vec<Arc<Region>>) -> Self {
        self.memory = memory;
        self.responder = responder(77);
        self.register();
        self
    }
}

impl<F: Front> World<F> {
    fn register(&mut self) {
        self.registered = (0..self.memory.len() as u16)
            .map(|region| {
                let what = Registration {
                    memory: Arc::clone(&self.memory[usize::from(region)]),
                    start: 4096,
                    len: self.memory[usize::from(region)].len() - 4096,
                    rights: Rights::ALL,
                    order: Order::HeadLast,
                    region,
                };
                self.responder.register(&what).expect("registered")
            })
            .collect();
    }

    /// Makes the connection (again).
    pub(crate) fn connect(&mut self) {
        let offer = self.links.offer(0).expect("a collector");
        let executed = self
            .queue_pair
            .filter(|_| self.remembers)
            .and_then(|queue_pair| self.responder.expected(queue_pair));
        let (there, back) = paths();
        let mut queue_pair = |transport, end: rdma::requester::End| {
            let config = QueuePairConfig {
                transport,
                path: back,
                peer: end.queue_pair,
                psn: end.psn,
                mtu: self.mtu,
                receives: self.receives,
            };
            self.responder.connect(&config).expect("a queue pair")
        };
        let unreliable = queue_pair(Transport::Uc, offer.unreliable);
        let reliable = queue_pair(Transport::Rc, offer.reliable);
        let regions: Vec<_> = (0..)
            .zip(&self.registered)
            .map(|(region, r)| RemoteRegion { region, address: r.address, len: r.len, rkey: r.rkey })
            .collect();
        let connection = Connection {
            path: there,
            mtu: self.mtu,
            unreliable: Some(unreliable),
            reliable: Some(reliable),
            atomic_depth: 8,
            regions: &regions,
            executed,
        };
        self.links.connect(0, &connection, self.now).expect("connected");
        if let Some(old) = self.queue_pair.replace(reliable) {
            self.responder.disconnect(old);
        }
        self.reconnects += 1;
    }

    /// The collector's process ends and another begins, over the same memory.
    pub(crate) fn restart_responder(&mut self) {
        self.restarts += 1;
        self.responder = responder(1000 + self.restarts);
        self.queue_pair = None;
        self.register();
    }

    /// Sends what waits.
    pub(crate) fn send(&mut self) {
        self.front.send(self.now, &mut self.net);
        while self.links.flush(self.now) > 0 {
            for (_, frame) in self.links.frames() {
                self.net.send(self.now, Side::Responder, frame);
            }
            self.links.sent();
        }
        while let Some(Event::Broken { .. }) = self.links.poll_event() {
            self.connect();
            self.send();
        }
    }

    /// Goes to the next thing that happens, not beyond `until`; `false` if nothing happens before.
    pub(crate) fn step(&mut self, until: u64) -> bool {
        let next =
            [self.net.next_time(), self.links.deadline(), self.front.deadline()].into_iter().flatten().min();
        let Some(next) = next.filter(|next| *next <= until) else { return false };
        // A deadline that stands in the past is one that waits for something else: time goes on all the same.
        self.now = next.max(self.now + 1);
        let mut frames = Vec::new();
        while let Some((to, frame)) = self.net.take(self.now) {
            match to {
                Side::Responder => frames.push(frame),
                Side::Links => {
                    if let Ok(packet) = Packet::parse(&frame) {
                        self.links.receive(self.now, &packet);
                    }
                }
                Side::Translator | Side::Reporter => {
                    self.front.receive(self.now, to, &frame, &mut self.links);
                }
            }
        }
        self.responder.take(frames.iter().map(Vec::as_slice), &mut self.received);
        for answer in std::mem::take(&mut self.received.answers) {
            self.net.send(self.now, Side::Links, &answer);
        }
        self.links.tick(self.now);
        self.front.tick(self.now, &mut self.links);
        self.send();
        true
    }

    /// Until nothing is under way any more.
    pub(crate) fn settle(&mut self) {
        let mut steps = 0;
        while self.step(u64::MAX) {
            steps += 1;
            assert!(steps < 1_000_000, "it never ends: {:?}", self.links.stats(0));
        }
        assert_eq!(self.links.state(0), State::Up);
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: u64) {
        let until = self.now + time;
        while self.step(until) {}
        self.now = until;
    }

    pub(crate) fn u64_at(&self, region: usize, offset: u64) -> u64 {
        self.memory[region].load_u64(4096 + offset).expect("in range")
    }

    /// Both sides' numbers, and the network's, add up.
    pub(crate) fn check_books(&self) {
        let stats = self.links.stats(0).expect("a collector");
        assert!(stats.is_balanced(), "{stats:?}");
        assert!(self.responder.stats().is_balanced(), "{:?}", self.responder.stats());
        for counts in self.net.counts {
            assert_eq!(counts.sent + counts.doubled, counts.lost + counts.delivered, "{counts:?}");
        }
        self.front.check_books(&self.memory);
    }
}
