//! Simulates a RoCEv2 requester and responder of the crate `rdma`, with an unreliable network between them.
//!
//! ```text
//! [Front: reporter ⇄ translator] ──► requester (Links) ──► Net: loss, duplication, delay, bit errors ──► responder ──► regions
//!                                         ▲                                                                 │
//!                                         └───────────────────────── Net ◄──────────────────────────────────┘
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ::rdma::requester::{Config, Connection, Event, Links, RemoteRegion, State};
use ::rdma::responder::{
    self, AccessFlags, Completion, Order, QueuePairConfig, Registered, Registration, Responder,
};
use memory::Region;
use wire::roce::{Packet, Path, Transport};

/// Nanoseconds in a microsecond.
pub const MICRO: u64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MILLI: u64 = 1_000_000;

/// A seeded generator of pseudorandom numbers.
#[derive(Clone, Debug)]
pub struct Rng(crate::rng::Rng);

impl Rng {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(crate::rng::Rng(seed))
    }

    /// Returns the next random number.
    pub fn roll(&mut self) -> u64 {
        self.0.roll()
    }

    /// Returns a number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    /// Returns true with a probability of `chance` per mille.
    pub fn permille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }
}

/// Fault rates of a network, in frames per thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Number of frames dropped.
    pub lost: u64,
    /// Number of frames duplicated.
    pub doubled: u64,
    /// Number of frames delayed by up to 200 µs.
    pub late: u64,
    /// Number of frames in which one bit is flipped.
    pub damaged: u64,
}

/// Destination of a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    /// The requester, [`World::links`].
    Links,
    /// The responder, [`World::responder`].
    Responder,
    /// The translator, if there is one in front of the requester.
    Translator,
    /// The reporter that sends to the translator.
    Reporter,
}

/// Counters of frames to one destination.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Number of frames sent.
    pub sent: u64,
    /// Number of frames dropped.
    pub lost: u64,
    /// Number of frames duplicated.
    pub doubled: u64,
    /// Number of frames delivered; a duplicated frame counts twice.
    pub delivered: u64,
}

/// A frame in flight: time of arrival (ns), order of sending, destination, bytes. `Reverse` makes the heap return the earliest.
type InFlight = Reverse<(u64, u64, Side, Vec<u8>)>;

/// A simulated network with faults.
#[derive(Debug)]
pub struct Net {
    rng: Rng,
    /// Fault rates for the following frames.
    pub faults: Faults,
    queue: BinaryHeap<InFlight>,
    order: u64,
    /// Counters by destination, in the order of [`Side`].
    pub counts: [Counts; 4],
    /// The network drops every frame.
    pub cut: bool,
}

impl Net {
    fn new(seed: u64, faults: Faults) -> Self {
        Self {
            rng: Rng::new(seed),
            faults,
            queue: BinaryHeap::new(),
            order: 0,
            counts: Default::default(),
            cut: false,
        }
    }

    /// Sends a frame at `now` (ns).
    pub fn send(&mut self, now: u64, to: Side, frame: &[u8]) {
        let rng = &mut self.rng;
        let mut faults = self.faults;
        if matches!(to, Side::Translator | Side::Reporter) {
            // DTA packets have no ICRC, so a bit error is detected by the Ethernet FCS, and the frame is lost.
            faults = Faults {
                lost: faults.lost + faults.damaged,
                damaged: 0,
                ..faults
            };
        }
        let counts = &mut self.counts[to as usize];
        counts.sent += 1;
        if self.cut || rng.permille(faults.lost) {
            counts.lost += 1;
            return;
        }
        let twice = rng.permille(faults.doubled);
        counts.doubled += u64::from(twice);
        for _ in 0..1 + u64::from(twice) {
            let mut frame = frame.to_vec();
            if rng.permille(faults.damaged) {
                let bit = rng.below(frame.len() as u64 * 8);
                frame[(bit / 8) as usize] ^= 1 << (bit % 8);
            }
            let late = if rng.permille(faults.late) {
                rng.below(200) * MICRO
            } else {
                0
            };
            // Every frame takes 10 µs. Frames sent at the same time arrive in order, except for delayed ones.
            self.order += 1;
            self.queue
                .push(Reverse((now + 10 * MICRO + late, self.order, to, frame)));
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

/// Output of the responder.
#[derive(Debug, Default)]
pub struct Received {
    /// Responses to the requester that are not sent yet.
    pub responses: Vec<Vec<u8>>,
    /// Completions of writes with an immediate and of receives.
    pub completions: Vec<Completion>,
    /// Payloads of SEND messages.
    pub sent: Vec<Vec<u8>>,
}

impl responder::Output for Received {
    fn respond(&mut self, _: &Path, frame: &[u8]) {
        self.responses.push(frame.to_vec());
    }

    fn complete(&mut self, completion: &Completion) {
        self.completions.push(*completion);
    }

    fn sent(&mut self, _: u32, message: &[u8]) {
        self.sent.push(message.to_vec());
    }
}

/// The simulation: requester, responder, network and clock.
#[derive(Debug)]
pub struct World<F = Alone> {
    /// The time, in nanoseconds.
    pub now: u64,
    /// The requester under test.
    pub links: Links,
    /// Settings of the requester.
    pub config: Config,
    /// The responder under test.
    pub responder: Responder,
    /// The regions that the responder serves.
    pub memory: Vec<Arc<Region>>,
    /// Registrations of the regions, in the same order.
    pub registered: Vec<Registered>,
    /// The network between the two.
    pub net: Net,
    /// Output of the responder.
    pub received: Received,
    /// Path MTU of new queue pairs, in bytes.
    pub mtu: u32,
    /// Receive requests of new queue pairs.
    pub receives: u32,
    /// The current reliable queue pair of the responder.
    pub queue_pair: Option<u32>,
    /// After a reconnection, the responder tells the requester which requests it has executed.
    pub remembers: bool,
    /// Number of connections made.
    pub reconnects: u64,
    /// The component in front of the requester: [`Alone`] if there is none.
    pub front: F,
    restarts: u64,
}

/// A component in front of the requester, such as a translator, which uses the same network.
pub trait Front {
    /// Sends the pending frames.
    fn send(&mut self, now: u64, net: &mut Net);
    /// Processes a payload from the network.
    fn receive(&mut self, now: u64, to: Side, payload: &[u8], links: &mut Links);
    /// Runs the timers that are due at `now` (ns).
    fn tick(&mut self, now: u64, links: &mut Links);
    /// Returns the time of the next timer, in nanoseconds.
    fn deadline(&self) -> Option<u64>;
    /// Checks that its counters balance and that the memory has the expected content.
    fn check_counters(&self, memory: &[Arc<Region>]);
}

/// No component in front of the requester: the test itself passes operations to it.
#[derive(Debug)]
pub struct Alone;

impl Front for Alone {
    fn send(&mut self, _: u64, _: &mut Net) {}
    fn receive(&mut self, _: u64, _: Side, _: &[u8], _: &mut Links) {}
    fn tick(&mut self, _: u64, _: &mut Links) {}
    fn deadline(&self) -> Option<u64> {
        None
    }
    fn check_counters(&self, memory: &[Arc<Region>]) {
        let mut header = (0..512).map(|i| memory[0].load_u64(i * 8).expect("in range"));
        assert!(header.all(|word| word == 0), "a header page was written");
    }
}

/// Length of a region, in bytes.
pub const REGION_LEN: u64 = 1 << 16;

/// Returns the path from the requester to the responder, and the one back.
pub fn paths() -> (Path, Path) {
    let a = Ipv4Addr::new(198, 51, 100, 1).into();
    let b = Ipv4Addr::new(198, 51, 100, 2).into();
    (Path::new(a, b, 0xc001), Path::new(b, a, 0xc001))
}

fn responder(seed: u64) -> Responder {
    Responder::new(responder::Config {
        seed,
        atomic_depth: 8,
        ..responder::Config::default()
    })
    .expect("good settings")
}

impl World {
    /// Creates both ends with two memory regions, not connected yet. The requester's timeout is one millisecond.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self::with(
            seed,
            faults,
            Config {
                seed,
                timeout: MILLI,
                ..Config::default()
            },
        )
    }

    /// Creates both ends with other settings of the requester.
    pub fn with(seed: u64, faults: Faults, config: Config) -> Self {
        let memory: Vec<_> = (0..2)
            .map(|_| Arc::new(Region::anonymous(REGION_LEN, false).expect("memory")))
            .collect();
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

    /// Puts a component in front of the requester.
    pub fn behind<F: Front>(self, front: F) -> World<F> {
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

    /// Replaces the memory regions.
    pub fn over(mut self, memory: Vec<Arc<Region>>) -> Self {
        self.memory = memory;
        self.responder = responder(77);
        self.register();
        self
    }
}

impl<F: Front> World<F> {
    /// Registers each region behind its header page of 4 KiB, which no remote write may touch.
    fn register(&mut self) {
        self.registered = (0..self.memory.len() as u16)
            .map(|region| {
                let what = Registration {
                    memory: Arc::clone(&self.memory[usize::from(region)]),
                    start: 4096,
                    len: self.memory[usize::from(region)].len() - 4096,
                    access: AccessFlags::ALL,
                    order: Order::HeadLast,
                    region,
                };
                self.responder.register(&what).expect("registered")
            })
            .collect();
    }

    /// Connects, or reconnects after a failure.
    pub fn connect(&mut self) {
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
            .map(|(region, r)| RemoteRegion {
                region,
                address: r.address,
                len: r.len,
                rkey: r.rkey,
            })
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

    /// Restarts the collector's process, with the same memory.
    pub fn restart_responder(&mut self) {
        self.restarts += 1;
        self.responder = responder(1000 + self.restarts);
        self.queue_pair = None;
        self.register();
    }

    /// Sends the pending frames.
    pub fn send(&mut self) {
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

    /// Advances to the next event and processes it. Returns `false` if none is due up to `until` (ns).
    pub fn step(&mut self, until: u64) -> bool {
        let next = [self.net.next_time(), self.links.deadline(), self.front.deadline()]
            .into_iter()
            .flatten()
            .min();
        let Some(next) = next.filter(|next| *next <= until) else {
            return false;
        };
        // A deadline may lie in the past while it waits for another event; time must advance anyway.
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
        self.responder
            .process(frames.iter().map(Vec::as_slice), &mut self.received);
        for response in std::mem::take(&mut self.received.responses) {
            self.net.send(self.now, Side::Links, &response);
        }
        self.links.tick(self.now);
        self.front.tick(self.now, &mut self.links);
        self.send();
        true
    }

    /// Runs until no frame is in flight and no timer is pending.
    pub fn settle(&mut self) {
        let mut steps = 0;
        while self.step(u64::MAX) {
            steps += 1;
            assert!(steps < 1_000_000, "it never ends: {:?}", self.links.stats(0));
        }
        assert_eq!(self.links.state(0), State::Up);
    }

    /// Advances the simulated time by `time` nanoseconds, and processes the events in it.
    pub fn pass(&mut self, time: u64) {
        let until = self.now + time;
        while self.step(until) {}
        self.now = until;
    }

    /// Reads the word at `offset` bytes after the header page of a region.
    pub fn u64_at(&self, region: usize, offset: u64) -> u64 {
        self.memory[region].load_u64(4096 + offset).expect("in range")
    }

    /// Asserts that the counters of both sides and of the network balance.
    pub fn check_counters(&self) {
        let stats = self.links.stats(0).expect("a collector");
        assert!(stats.is_balanced(), "{stats:?}");
        assert!(
            self.responder.stats().is_balanced(),
            "{:?}",
            self.responder.stats()
        );
        for counts in self.net.counts {
            assert_eq!(
                counts.sent + counts.doubled,
                counts.lost + counts.delivered,
                "{counts:?}"
            );
        }
        self.front.check_counters(&self.memory);
    }
}
