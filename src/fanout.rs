//! Fan-out from receiving threads to several workers, by inner flow, so that one busy reporter
//! can use every worker and a flow's reports stay in order.
//!
//! The frames of a ring are valid only during one call. So datagrams are copied, each worker's share into one buffer, which
//! returns when the worker has processed it. Sequence accounting happens here, where datagrams are still in order; the
//! receivers of one input share it, because the reports of one reporter may arrive at several queues of an interface.

use std::sync::{
    Arc, Mutex,
    mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError},
};
use std::time::Duration;

use collector::{Batch, Datagram, Loss, Output, Sequencer, StreamId, event::Nanos};
use nic::source::Packet;
use wire::{
    FlowKey, Version,
    aggregate::Header,
    report::{Peek, peek},
};

use crate::{
    datagram::{AggregatePorts, Contents, Profiles, octets},
    lock::lock,
    pipeline::{Outlet, RuleNames},
    worker::{TICK, Worker},
};

/// Datagrams queued for one worker. Its memory is returned when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    load: Load,
    listener: u16,
    home: Arc<Mutex<Vec<Load>>>,
}

/// Datagrams in one buffer, with their offsets.
#[derive(Debug, Default)]
struct Load {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

/// A datagram of a load: it ends at `end` and begins where the one before ends.
#[derive(Clone, Copy, Debug)]
struct Entry {
    end: usize,
    source: [u8; 16],
    src_port: u16,
    contents: Contents,
    received: Nanos,
}

impl Load {
    fn push(&mut self, packet: &Packet<'_>, source: [u8; 16], contents: Contents) {
        self.bytes.extend_from_slice(packet.data);
        let (src_port, received) = (packet.source.port(), packet.received);
        self.entries.push(Entry { end: self.bytes.len(), source, src_port, contents, received });
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= SHARE || self.bytes.len() >= SHARE_BYTES
    }
}

/// Counters of distributed and dropped datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FanoutStats {
    /// Datagrams received.
    pub(crate) datagrams: u64,
    /// Datagrams whose worker's queue was full.
    pub(crate) shed: u64,
}

/// The counters of an input's fan-out, for display.
#[derive(Debug, Default)]
pub(crate) struct FanoutGauge {
    /// Counters of datagrams.
    pub(crate) stats: Mutex<FanoutStats>,
    /// The streams and their losses, and the losses of evicted streams, as of the last second.
    pub(crate) streams: Mutex<(Vec<collector::StreamView>, collector::stats::Table, u64)>,
}

/// The losses of one input, shared by the threads that receive for it.
pub(crate) struct Ledger {
    accounts: Mutex<Accounts>,
    gauge: Arc<FanoutGauge>,
}

struct Accounts {
    sequencer: Sequencer,
    outlet: Outlet,
    batch: Batch,
    accounted: Nanos,
}

/// A sequence number read during the fan-out.
type Noted = (StreamId, u32, Nanos);

impl Ledger {
    /// For one input. `max_sources`: reporters to account for; `seed` keeps senders from targeting one slot of the table.
    pub(crate) fn new(outlet: Outlet, max_sources: usize, seed: u64) -> Self {
        let batch = outlet.batch();
        let sequencer = Sequencer::new(max_sources, seed);
        let accounts = Mutex::new(Accounts { sequencer, outlet, batch, accounted: 0 });
        Self { accounts, gauge: Arc::default() }
    }

    /// The counters.
    pub(crate) fn gauge(&self) -> Arc<FanoutGauge> {
        Arc::clone(&self.gauge)
    }

    fn observe(&self, noted: &[Noted]) {
        let Accounts { sequencer, batch, .. } = &mut *lock(&self.accounts);
        for (id, seq, received) in noted {
            sequencer.observe(id, *seq, *received, &mut LossOutput(batch));
        }
    }

    /// Reports losses, about once a second.
    fn poll(&self, now: Nanos) {
        let accounts = &mut *lock(&self.accounts);
        if now.abs_diff(accounts.accounted) >= ACCOUNT_EVERY {
            accounts.accounted = now;
            accounts.sequencer.account(now, &mut LossOutput(&mut accounts.batch));
            accounts.publish(&self.gauge);
        }
    }

    /// At the end, missing sequence numbers count as lost.
    pub(crate) fn finish(&self, now: Nanos) {
        let accounts = &mut *lock(&self.accounts);
        accounts.sequencer.finish(now, &mut LossOutput(&mut accounts.batch));
        accounts.publish(&self.gauge);
    }
}

impl Accounts {
    fn publish(&mut self, gauge: &FanoutGauge) {
        // Losses have no rule, so the names do not matter.
        self.outlet.send(&mut self.batch, &RuleNames::from([]));
        let sequencer = &self.sequencer;
        *lock(&gauge.streams) = (sequencer.streams().collect(), sequencer.table(), sequencer.lost_before());
    }
}

/// Shared by the spreaders of one input.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The workers' queues.
    pub(crate) workers: Vec<SyncSender<Share>>,
    /// Parser of a datagram's flow.
    pub(crate) profiles: Arc<Profiles>,
    /// Keeps a sender from targeting one worker.
    pub(crate) seed: u64,
    /// The number of the input.
    pub(crate) listener: u16,
    /// Its losses.
    pub(crate) ledger: Arc<Ledger>,
    /// The ports of aggregates.
    pub(crate) aggregate_ports: AggregatePorts,
}

/// Distributes the datagrams of one thread. Its memory is bounded: each load is in a queue, in a worker, being filled, or free.
#[derive(Debug)]
pub(crate) struct Spreader {
    plan: Plan,
    filling: Vec<Load>,
    free: Arc<Mutex<Vec<Load>>>,
    noted: Vec<Noted>,
    next: u64,
}

impl Spreader {
    /// A spreader of that plan.
    pub(crate) fn new(plan: Plan) -> Self {
        let filling = plan.workers.iter().map(|_| Load::default()).collect();
        Self { plan, filling, free: Arc::default(), noted: Vec::new(), next: 0 }
    }

    /// Copies datagrams for their workers. They are passed on when there are many, and by [`Spreader::poll`].
    pub(crate) fn distribute(&mut self, packets: &[Packet<'_>]) {
        self.noted.clear();
        for packet in packets {
            let source = octets(packet.source.ip());
            let contents = self.plan.aggregate_ports.contents(packet.port);
            let flow = match contents {
                Contents::Reports => self.note_report(packet, source),
                Contents::Aggregates => self.note_aggregate(packet, source),
            };
            // Reports without a flow and other datagrams go to the workers round robin.
            self.next = self.next.wrapping_add(1);
            let hash = flow.map_or(self.next, |flow| flow.hash(self.plan.seed));
            let worker = (hash % self.plan.workers.len() as u64) as usize;
            self.filling[worker].push(packet, source, contents);
            if self.filling[worker].is_full() {
                self.hand_over(worker);
            }
        }
        self.plan.ledger.observe(&self.noted);
    }

    /// Accounts the sequence number of a report; returns its flow.
    fn note_report(&mut self, packet: &Packet<'_>, source: [u8; 16]) -> Option<FlowKey> {
        let peek = peek(packet.data, self.plan.profiles.of(&source)).ok()?;
        self.noted.push((stream(&peek, self.plan.listener, source), peek.seq, packet.received));
        peek.flow.or_else(|| postcard_id(packet.data).map(FlowKey::of_id))
    }

    /// Accounts the sequence number of an aggregate. All aggregates of one aggregator go to one worker, so that the postcards of a packet
    /// can be joined.
    fn note_aggregate(&mut self, packet: &Packet<'_>, source: [u8; 16]) -> Option<FlowKey> {
        let header = Header::parse(packet.data).ok()?;
        let node = Some(header.aggregator);
        let listener = self.plan.listener;
        let id = StreamId { version: collector::AGGREGATE_VERSION, hw_id: 0, listener, node, source };
        self.noted.push((id, header.sequence, packet.received));
        Some(FlowKey::of_id(header.aggregator))
    }

    /// Passes full and partial loads to the workers, and reports losses at intervals.
    pub(crate) fn poll(&mut self, now: Nanos) {
        for worker in 0..self.filling.len() {
            if !self.filling[worker].entries.is_empty() {
                self.hand_over(worker);
            }
        }
        self.plan.ledger.poll(now);
    }

    fn hand_over(&mut self, worker: usize) {
        let empty = lock(&self.free).pop().unwrap_or_default();
        let load = std::mem::replace(&mut self.filling[worker], empty);
        let datagrams = load.entries.len() as u64;
        let gauge = &self.plan.ledger.gauge;
        // Counted before the worker gets them, so that its output never exceeds the input.
        lock(&gauge.stats).datagrams += datagrams;
        let share = Share { load, listener: self.plan.listener, home: Arc::clone(&self.free) };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.plan.workers[worker].try_send(share)
        {
            lock(&gauge.stats).shed += datagrams;
        }
    }
}

/// The counter that numbered a datagram. Reports 0.5 are numbered per address, for all nodes.
fn stream(peek: &Peek, listener: u16, source: [u8; 16]) -> StreamId {
    let (version, node) = match peek.version {
        Version::V05 => (5, None),
        Version::V10 => (10, peek.node_id),
        Version::V20 => (20, peek.node_id),
    };
    StreamId { version, hw_id: peek.hw_id, listener, node, source }
}

/// The Flow ID of a postcard without a packet (wire-formats 4.1): the first of its datagram.
fn postcard_id(payload: &[u8]) -> Option<u32> {
    let half = |at: usize| payload.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let (types, bits, domain, items) = (payload.get(8)?, half(12)?, half(14)?, half(16)?);
    let is_postcard = payload[0] >> 4 == 2
        && types >> 4 == 1
        && domain == wire::report::v20::POSTCARD_DOMAIN
        && items & wire::report::v20::POSTCARD_FLOW_ID != 0;
    let words = (bits.count_ones() + (bits & 0x0e00).count_ones()) as usize;
    let id = payload.get(20 + words * 4..24 + words * 4).filter(|_| is_postcard)?;
    Some(u32::from_be_bytes([id[0], id[1], id[2], id[3]]))
}

/// Losses as records and as events.
struct LossOutput<'b>(&'b mut Batch);

impl Output for LossOutput<'_> {
    fn loss(&mut self, loss: &Loss) {
        self.0.loss(loss);
        if let Some(event) = loss.event() {
            self.0.event(&event, &[]);
        }
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("gauge", &self.gauge).finish_non_exhaustive()
    }
}

/// The loop of a worker behind a queue: until all receivers have ended and their datagrams are processed.
pub(crate) fn work(queue: &Receiver<Share>, mut worker: Worker) {
    let wait = Duration::from_nanos(TICK);
    loop {
        match queue.recv_timeout(wait) {
            Ok(share) => share.each_chunk(|contents, chunk| worker.process(contents, chunk)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        worker.poll(nic::time::now());
    }
    worker.finish(nic::time::now());
}

impl Share {
    fn each_chunk(&self, mut process: impl FnMut(Contents, &[Datagram<'_>])) {
        let none =
            Datagram { payload: &[], source: [0; 16], src_port: 0, listener: self.listener, received: 0 };
        let mut start = 0;
        let alike = |one: &Entry, next: &Entry| one.contents == next.contents;
        for entries in self.load.entries.chunk_by(alike).flat_map(|run| run.chunks(SHARE)) {
            let contents = entries.first().map_or(Contents::Reports, |entry| entry.contents);
            let mut chunk = [none; SHARE];
            for (datagram, entry) in chunk.iter_mut().zip(entries) {
                let Entry { end, source, src_port, received, .. } = *entry;
                let payload = &self.load.bytes[start..end];
                *datagram = Datagram { payload, source, src_port, received, ..none };
                start = end;
            }
            process(contents, &chunk[..entries.len()]);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut load = std::mem::take(&mut self.load);
        load.bytes.clear();
        load.entries.clear();
        lock(&self.home).push(load);
    }
}

/// Datagrams handed to a worker at once.
const SHARE: usize = 64;
/// Bytes after which a load is passed on, regardless of the number of datagrams.
const SHARE_BYTES: usize = 256 << 10;
/// Interval between reports of losses, ns.
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

    /// A plan over queues with room for two shares, and their other ends.
    fn plan(workers: usize) -> (Plan, Vec<Receiver<Share>>, Pipeline) {
        let hub = Arc::new(Hub::new(1, 1, std::collections::BTreeMap::new()));
        let config = pipeline::Config { batch: 8, queue: 1, policy: Policy::Shed, store: None };
        let pipeline = Pipeline::new(config, hub, Control::new().0);
        let ledger = Arc::new(Ledger::new(pipeline.outlet().unwrap(), 16, 1));
        let (workers, queues) = (0..workers).map(|_| sync_channel(2)).unzip();
        let profiles = Arc::new(build::wire_profiles(&Settings::default()));
        let aggregate_ports = AggregatePorts::default();
        (Plan { workers, profiles, seed: 1, listener: 3, ledger, aggregate_ports }, queues, pipeline)
    }

    fn packet(data: &[u8], src_port: u16) -> Packet<'_> {
        let source = ([10, 0, 0, 1], src_port).into();
        Packet { data, source, port: 0, received: u64::from(src_port), truncated: false }
    }

    #[test]
    fn a_stuck_worker_costs_its_share_and_no_more_memory() {
        let (plan, _queues, _pipeline) = plan(1);
        let gauge = plan.ledger.gauge();
        let mut spreader = Spreader::new(plan);
        for round in 0..10 {
            spreader.distribute(&[packet(&[0; 8], round)]);
            spreader.poll(0);
        }
        assert_eq!(*lock(&gauge.stats), FanoutStats { datagrams: 10, shed: 8 });
        assert_eq!(lock(&spreader.free).len(), 1, "two in the queue, one to fill, one came back");
    }

    #[test]
    fn a_share_gives_back_what_went_in_and_then_its_memory() {
        let (plan, queues, _pipeline) = plan(1);
        let mut spreader = Spreader::new(plan);
        let payloads: Vec<Vec<u8>> = (0..100u8).map(|n| vec![n; usize::from(n)]).collect();
        let packets: Vec<_> =
            payloads.iter().zip(0..).map(|(data, src_port)| packet(data, src_port)).collect();
        spreader.distribute(&packets);
        spreader.poll(0);
        let mut seen = Vec::new();
        for share in queues[0].try_iter() {
            share.each_chunk(|_, chunk| {
                seen.extend(chunk.iter().map(|d| (d.payload.to_vec(), d.src_port, d.received, d.listener)));
            });
        }
        let sent: Vec<_> =
            payloads.into_iter().zip(0..).map(|(data, n)| (data, n, u64::from(n), 3)).collect();
        assert_eq!(seen, sent);
        assert_eq!(lock(&spreader.free).len(), 2);
    }

    #[test]
    fn datagrams_that_are_no_reports_go_to_the_workers_round_robin() {
        let (plan, queues, _pipeline) = plan(3);
        let mut spreader = Spreader::new(plan);
        spreader.distribute(&[packet(&[0xff; 8], 1); 9]);
        spreader.poll(0);
        let counts: Vec<usize> =
            queues.iter().map(|queue| queue.try_iter().map(|share| share.load.entries.len()).sum()).collect();
        assert_eq!(counts, [3, 3, 3]);
    }
}
