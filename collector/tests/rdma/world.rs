//! Links and responder with a bad network between them, in simulated time.
#![allow(dead_code, reason = "each test uses its part")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use dataplane::dta::{Outbox, Reporter};
use memory::Region;
use rdma::requester::{Config, Connection, Event, Links, RemoteRegion, State};
use rdma::responder::{
    self, Completion, Order, QueuePairConfig, Registered, Registration, Responder, Rights,
};
use translator::{Origin, Translator};
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
pub(crate) struct Heard {
    pub(crate) answers: Vec<Vec<u8>>,
    pub(crate) completions: Vec<Completion>,
    pub(crate) sent: Vec<Vec<u8>>,
}

impl responder::Out for Heard {
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
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) links: Links,
    pub(crate) config: Config,
    pub(crate) responder: Responder,
    pub(crate) memory: Vec<Arc<Region>>,
    pub(crate) registered: Vec<Registered>,
    pub(crate) net: Net,
    pub(crate) heard: Heard,
    pub(crate) mtu: u32,
    pub(crate) receives: u32,
    /// The reliable queue pair at the responder.
    pub(crate) pair: Option<u32>,
    /// Whether the collector can say how far it came when the link is made again.
    pub(crate) remembers: bool,
    pub(crate) reconnects: u64,
    /// What stands before the links, if the test is of the whole chain.
    pub(crate) chain: Option<Chain>,
    restarts: u64,
}

/// A reporter and a translator.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) reporter: Reporter,
    pub(crate) outbox: Outbox,
    pub(crate) translator: Translator,
    /// What is sent to the translator finds nobody.
    pub(crate) down: bool,
    controls: Controls,
}

#[derive(Debug, Default)]
struct Controls(Vec<Vec<u8>>);

impl translator::Out for Controls {
    fn control(&mut self, _: SocketAddr, _: u8, payload: &[u8]) {
        self.0.push(payload.to_vec());
    }
}

impl Chain {
    pub(crate) fn new(reporter: Reporter, translator: Translator) -> Self {
        let outbox = Outbox::new(1 << 20, 4096);
        Self { reporter, outbox, translator, down: false, controls: Controls::default() }
    }

    fn send(&mut self, now: u64, net: &mut Net) {
        for datagram in self.outbox.datagrams() {
            net.send(now, Side::Translator, datagram.payload);
        }
        self.outbox.clear();
        for control in self.controls.0.drain(..) {
            net.send(now, Side::Reporter, &control);
        }
    }

    fn take(&mut self, now: u64, to: Side, payload: &[u8], links: &mut Links) {
        if to == Side::Reporter {
            self.reporter.control(0, payload, now, &mut self.outbox);
        } else if !self.down {
            let origin = Origin { sender: ([10, 0, 0, 7], 50000).into(), collector: 0 };
            self.translator.take(now, origin, payload, links, &mut self.controls);
        }
    }

    fn tick(&mut self, now: u64, links: &mut Links) {
        self.reporter.tick(now, &mut self.outbox);
        self.translator.tick(now, links);
    }

    fn deadline(&self) -> Option<u64> {
        [self.reporter.next(), self.translator.deadline()].into_iter().flatten().min()
    }
}

pub(crate) const REGION_LEN: u64 = 1 << 16;

pub(crate) fn paths() -> (Path, Path) {
    let (a, b) = (Ipv4Addr::new(198, 51, 100, 1).into(), Ipv4Addr::new(198, 51, 100, 2).into());
    (Path::new(a, b, 0xc001), Path::new(b, a, 0xc001))
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
            responder: Self::responder(seed),
            memory,
            registered: Vec::new(),
            net: Net::new(seed, faults),
            heard: Heard::default(),
            mtu: 256,
            receives: 1 << 20,
            pair: None,
            remembers: true,
            reconnects: 0,
            chain: None,
            restarts: 0,
        };
        world.register();
        world
    }

    /// The same over other memory.
    pub(crate) fn over(mut self, memory: Vec<Arc<Region>>) -> Self {
        self.memory = memory;
        self.responder = Self::responder(77);
        self.register();
        self
    }

    fn responder(seed: u64) -> Responder {
        Responder::new(responder::Config { seed, atomic_depth: 8, ..responder::Config::default() })
            .expect("good settings")
    }

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
        let executed = self.pair.filter(|_| self.remembers).and_then(|pair| self.responder.expected(pair));
        let (there, back) = paths();
        let mut pair = |transport, end: rdma::requester::End| {
            let config = QueuePairConfig {
                transport,
                path: back,
                peer: end.pair,
                psn: end.psn,
                mtu: self.mtu,
                receives: self.receives,
            };
            self.responder.connect(&config).expect("a queue pair")
        };
        let unreliable = pair(Transport::Uc, offer.unreliable);
        let reliable = pair(Transport::Rc, offer.reliable);
        let regions: Vec<_> = (0..)
            .zip(&self.registered)
            .map(|(region, r)| RemoteRegion { region, address: r.address, len: r.len, key: r.key })
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
        if let Some(old) = self.pair.replace(reliable) {
            self.responder.disconnect(old);
        }
        self.reconnects += 1;
    }

    /// The collector's process ends and another begins, over the same memory.
    pub(crate) fn restart_responder(&mut self) {
        self.restarts += 1;
        self.responder = Self::responder(1000 + self.restarts);
        self.pair = None;
        self.register();
    }

    /// Sends what waits.
    pub(crate) fn send(&mut self) {
        if let Some(chain) = &mut self.chain {
            chain.send(self.now, &mut self.net);
        }
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
        let chain = self.chain.as_ref().and_then(Chain::deadline);
        let next = [self.net.next_time(), self.links.deadline(), chain].into_iter().flatten().min();
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
                    if let Some(chain) = &mut self.chain {
                        chain.take(self.now, to, &frame, &mut self.links);
                    }
                }
            }
        }
        self.responder.take(frames.iter().map(Vec::as_slice), &mut self.heard);
        for answer in std::mem::take(&mut self.heard.answers) {
            self.net.send(self.now, Side::Links, &answer);
        }
        self.links.tick(self.now);
        if let Some(chain) = &mut self.chain {
            chain.tick(self.now, &mut self.links);
        }
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
        if let Some(chain) = &self.chain {
            let stats = chain.translator.stats();
            assert!(stats.is_balanced(), "{stats:?}");
            return;
        }
        let header: Vec<_> = (0..512).map(|i| self.memory[0].load_u64(i * 8).expect("in range")).collect();
        assert!(header.iter().all(|word| *word == 0), "a header page was written");
    }
}
