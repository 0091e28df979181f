//! From one socket to several workers: each report goes where its inner flow belongs, so that one busy reporter can use
//! every core and a flow's reports stay in order.
//!
//! A burst is shared, not copied: every worker that has a datagram in it holds a reference, and when the last one lets go,
//! the receiver fills it again.

use std::{
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError},
    },
    time::Duration,
};

use collector::{Batch, Datagram, Loss, Sequencer, Sink, StreamId, event::Nanos};
use detect::Prefix;
use nic::udp::Burst;
use wire::{
    Version,
    report::{Peek, peek},
};

use crate::{
    input::{each_chunk, lock, octets},
    pipeline::{Outlet, RuleNames},
    worker::{Core, TICK},
};

/// Some datagrams of a burst.
#[derive(Debug)]
pub(crate) struct Share {
    burst: Arc<Burst>,
    slots: Slots,
    listener: u16,
}

/// A set of slots of a burst, of which there are at most 1,024.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slots([u64; 16]);

impl Slots {
    fn insert(&mut self, slot: usize) {
        self.0[slot / 64] |= 1 << (slot % 64);
    }

    fn contains(&self, slot: usize) -> bool {
        self.0[slot / 64] >> (slot % 64) & 1 == 1
    }

    fn len(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

/// Which profile reads whose reports.
#[derive(Clone, Debug)]
pub(crate) struct Profiles {
    /// For all others.
    pub(crate) default: wire::Profile,
    /// The longest prefix first.
    pub(crate) by_source: Vec<(Prefix, wire::Profile)>,
}

impl Profiles {
    /// The profile of a source.
    pub(crate) fn of(&self, source: &[u8; 16]) -> &wire::Profile {
        let found = self.by_source.iter().find(|(prefix, _)| prefix.contains_octets(source));
        found.map_or(&self.default, |(_, profile)| profile)
    }
}

/// What was spread and what found no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FanoutStats {
    /// Datagrams that came.
    pub(crate) datagrams: u64,
    /// Datagrams whose worker's queue was full.
    pub(crate) shed: u64,
}

/// The figures of a spreader, for others.
#[derive(Debug, Default)]
pub(crate) struct FanoutGauge {
    /// What was spread.
    pub(crate) stats: Mutex<FanoutStats>,
    /// The streams and their losses, and what was lost in those given up, as of the last second.
    pub(crate) streams: Mutex<(Vec<collector::StreamView>, collector::stats::Table, u64)>,
}

/// Spreads the bursts of one socket.
pub(crate) struct Spreader {
    workers: Vec<SyncSender<Share>>,
    pool: Vec<Arc<Burst>>,
    most: usize,
    profiles: Profiles,
    seed: u64,
    sequencer: Sequencer,
    outlet: Outlet,
    batch: Batch,
    gauge: Arc<FanoutGauge>,
    accounted: Nanos,
}

/// What a spreader is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The workers' queues.
    pub(crate) workers: Vec<SyncSender<Share>>,
    /// Room in each.
    pub(crate) queue: usize,
    /// How to read a datagram's flow.
    pub(crate) profiles: Profiles,
    /// Reporters to account for.
    pub(crate) max_sources: usize,
    /// Keeps a sender from aiming at one worker.
    pub(crate) seed: u64,
    /// Where losses go.
    pub(crate) outlet: Outlet,
}

impl Spreader {
    /// A spreader and its figures.
    pub(crate) fn new(parts: Parts) -> (Self, Arc<FanoutGauge>) {
        let Parts { workers, queue, profiles, max_sources, seed, outlet } = parts;
        let gauge = Arc::new(FanoutGauge::default());
        // Each worker holds the burst in hand and those in its queue; one more is always free to be filled.
        let most = workers.len() * (queue + 1) + 1;
        let sequencer = Sequencer::new(max_sources, seed);
        let batch = outlet.batch();
        let shared = Arc::clone(&gauge);
        let pool = Vec::new();
        let spreader = Self {
            workers,
            pool,
            most,
            profiles,
            seed,
            sequencer,
            outlet,
            batch,
            gauge: shared,
            accounted: 0,
        };
        (spreader, gauge)
    }

    /// Gives the datagrams of `burst` to their workers and leaves another burst in its place.
    pub(crate) fn spread(&mut self, burst: &mut Burst, listener: u16, now: Nanos) {
        if !burst.is_empty() {
            let shares = self.assign(burst, listener);
            self.hand_out(burst, &shares, listener);
        }
        if now.abs_diff(self.accounted) >= ACCOUNT_EVERY {
            self.accounted = now;
            self.sequencer.account(now, &mut Told(&mut self.batch));
            self.tell();
        }
    }

    /// The end: what is still missing is lost.
    pub(crate) fn finish(&mut self, now: Nanos) {
        self.sequencer.finish(now, &mut Told(&mut self.batch));
        self.tell();
    }

    /// Which slots go to which worker; sequence numbers are noted on the way, in order.
    fn assign(&mut self, burst: &Burst, listener: u16) -> [Slots; MAX_WORKERS] {
        let mut shares = [Slots::default(); MAX_WORKERS];
        for (slot, packet) in burst.iter().enumerate() {
            let source = octets(packet.source.ip());
            let peeked = peek(packet.data, self.profiles.of(&source)).ok();
            if let Some(peek) = &peeked {
                let id = stream(peek, listener, source);
                self.sequencer.observe(&id, peek.seq, packet.received, &mut Told(&mut self.batch));
            }
            // A report without a flow, and what is no report, may go anywhere: spread it by its place.
            let hash = peeked.and_then(|peek| peek.flow).map_or(slot as u64, |flow| flow.hash(self.seed));
            shares[(hash % self.workers.len() as u64) as usize].insert(slot);
        }
        shares
    }

    fn hand_out(&mut self, burst: &mut Burst, shares: &[Slots; MAX_WORKERS], listener: u16) {
        let datagrams = burst.len() as u64;
        let shared = self.share(burst);
        let mut shed = 0;
        for (worker, slots) in self.workers.iter().zip(shares).filter(|(_, slots)| slots.len() > 0) {
            let Some(burst) = &shared else {
                shed += slots.len();
                continue;
            };
            let share = Share { burst: Arc::clone(burst), slots: *slots, listener };
            if let Err(TrySendError::Full(share) | TrySendError::Disconnected(share)) = worker.try_send(share)
            {
                shed += share.slots.len();
            }
        }
        let mut stats = lock(&self.gauge.stats);
        stats.datagrams += datagrams;
        stats.shed += shed;
    }

    /// Exchanges `burst` for one that nobody uses; the filled one comes back shared.
    fn share(&mut self, burst: &mut Burst) -> Option<Arc<Burst>> {
        let free = self.pool.iter().position(|held| Arc::strong_count(held) == 1);
        let index = free.or_else(|| {
            (self.pool.len() < self.most).then(|| {
                self.pool.push(Arc::new(Burst::new(burst.slots(), burst.slot_size())));
                self.pool.len() - 1
            })
        })?;
        // Nobody else holds it: workers only ever give their references up.
        std::mem::swap(Arc::get_mut(&mut self.pool[index])?, burst);
        Some(Arc::clone(&self.pool[index]))
    }

    fn tell(&mut self) {
        // Losses carry no rule, so the names do not matter.
        self.outlet.send(&mut self.batch, &RuleNames::from([]));
        let sequencer = &self.sequencer;
        *lock(&self.gauge.streams) =
            (sequencer.streams().collect(), sequencer.table(), sequencer.lost_before());
    }
}

/// What numbered a datagram. Reports 0.5 are numbered per address, whatever node they name.
fn stream(peek: &Peek, listener: u16, source: [u8; 16]) -> StreamId {
    let (version, node) = match peek.version {
        Version::V05 => (5, None),
        Version::V10 => (10, peek.node_id),
        Version::V20 => (20, peek.node_id),
    };
    StreamId { version, hw_id: peek.hw_id, listener, node, source }
}

/// Losses as records and as events.
struct Told<'b>(&'b mut Batch);

impl Sink for Told<'_> {
    fn loss(&mut self, loss: &Loss) {
        self.0.loss(loss);
        if let Some(event) = loss.event() {
            self.0.event(&event, &[]);
        }
    }
}

impl std::fmt::Debug for Spreader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spreader").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}

/// The loop of a worker behind a queue: until all receivers have ended, and what they left is handled.
pub(crate) fn work(queue: &Receiver<Share>, mut core: Core) {
    let wait = Duration::from_nanos(TICK);
    loop {
        match queue.recv_timeout(wait) {
            Ok(share) => share.each_chunk(|chunk| core.take(chunk)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        core.turn(nic::time::now());
    }
    core.finish(nic::time::now());
}

impl Share {
    fn each_chunk(&self, take: impl FnMut(&[Datagram<'_>])) {
        let mine = self.burst.iter().enumerate().filter(|(slot, _)| self.slots.contains(*slot));
        each_chunk(mine.map(|(_, packet)| packet), self.listener, take);
    }
}

/// Most workers; the configuration allows no more.
pub(crate) const MAX_WORKERS: usize = 64;
/// How often losses are told, ns.
const ACCOUNT_EVERY: Nanos = 1_000_000_000;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::{
        config::{Settings, build, sections::Policy},
        control::Control,
        live::Hub,
        pipeline::{self, Pipeline},
    };

    #[test]
    fn a_set_of_slots_holds_what_was_put_in() {
        let mut slots = Slots::default();
        [0, 63, 64, 1023].into_iter().for_each(|slot| slots.insert(slot));
        let held: Vec<usize> = (0..1024).filter(|slot| slots.contains(*slot)).collect();
        assert_eq!((held, slots.len()), (vec![0, 63, 64, 1023], 4));
    }

    #[test]
    fn a_stuck_worker_costs_its_share_and_no_more_memory() {
        let hub = Arc::new(Hub::new(1, 1, std::collections::BTreeMap::new()));
        let config = pipeline::Config { batch: 8, queue: 1, policy: Policy::Shed, store: None };
        let pipeline = Pipeline::new(config, hub, Control::new().0);
        let (stuck, _shares) = sync_channel(2);
        let parts = Parts {
            workers: vec![stuck],
            queue: 2,
            profiles: build::wire_profiles(&Settings::default()),
            max_sources: 16,
            seed: 1,
            outlet: pipeline.outlet().unwrap(),
        };
        let (mut spreader, gauge) = Spreader::new(parts);
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut receiver =
            nic::udp::Receiver::bind("127.0.0.1:0".parse().unwrap(), &nic::udp::Options::default()).unwrap();
        let mut burst = Burst::new(4, 64);
        for _ in 0..10 {
            sender.send_to(&[0; 8], receiver.local_addr()).unwrap();
            assert_eq!(receiver.recv(&mut burst, 5_000).unwrap(), 1);
            spreader.spread(&mut burst, 0, 0);
        }
        assert_eq!(*lock(&gauge.stats), FanoutStats { datagrams: 10, shed: 8 });
        assert_eq!(spreader.pool.len(), 3, "two in the queue, one to fill");
    }
}
