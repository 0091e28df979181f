//! Fan-out from receiving threads to several workers, by inner flow, so that one busy reporter
//! can use every worker and a flow's reports stay in order.
//!
//! The frames of a ring are valid only during one call. So datagrams are copied, each worker's share into one buffer, which
//! returns when the worker has processed it. Sequence accounting happens here, where datagrams are still in order; the
//! receivers of one input share it, because the reports of one reporter may arrive at several queues of an interface.

mod queue;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use collector::{Access, Batch, Datagram, Loss, Losses, Output, Sequencer, StreamId, event::Nanos};
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
pub(crate) use queue::{LoadReceiver, LoadSender, load_queue};
use queue::{Received, Refused};

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
    listener: u16,
    contents: Contents,
    received: Nanos,
}

impl Load {
    fn push(&mut self, packet: &Packet<'_>, source: [u8; 16], (listener, contents): (u16, Contents)) {
        self.bytes.extend_from_slice(packet.data);
        let (src_port, received) = (packet.source.port(), packet.received);
        self.entries.push(Entry { end: self.bytes.len(), source, src_port, listener, contents, received });
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= SHARE || self.bytes.len() >= SHARE_BYTES
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of memory.
    fn memory(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>() + LOAD_OVERHEAD
    }

    /// Whether `other` can be appended without allocation.
    fn can_take(&self, other: &Self) -> bool {
        let fits = |used: usize, more: usize, capacity: usize| used + more <= capacity;
        fits(self.entries.len(), other.entries.len(), self.entries.capacity())
            && fits(self.bytes.len(), other.bytes.len(), self.bytes.capacity())
    }

    fn append(&mut self, other: &Self) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.entries.extend(other.entries.iter().map(|entry| Entry { end: begin + entry.end, ..*entry }));
    }

    /// Removes the datagrams for which `keep` is false, by their source and size.
    fn retain(&mut self, mut keep: impl FnMut([u8; 16], usize) -> bool) {
        let (mut start, mut end) = (0, 0);
        let bytes = &mut self.bytes;
        self.entries.retain_mut(|entry| {
            let datagram = start..entry.end;
            start = entry.end;
            if !keep(entry.source, datagram.len()) {
                return false;
            }
            let length = datagram.len();
            bytes.copy_within(datagram, end);
            end += length;
            entry.end = end;
            true
        });
        bytes.truncate(end);
    }

    fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.bytes.shrink_to(SPARE_BYTES);
    }
}

/// Counters of distributed and dropped datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FanoutStats {
    /// Datagrams received.
    pub(crate) datagrams: u64,
    /// Datagrams whose worker's queue was full.
    pub(crate) full: u64,
    /// Datagrams whose source already occupied its share of a worker's queue.
    pub(crate) share: u64,
}

/// The counters of an input's fan-out, for display.
#[derive(Debug, Default)]
pub(crate) struct FanoutGauge {
    /// Counters of datagrams.
    pub(crate) stats: Mutex<FanoutStats>,
    /// The streams and their losses, and the losses of evicted streams, as of the last second.
    pub(crate) streams: Mutex<(Vec<collector::StreamView>, collector::stats::Table, Losses)>,
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
        *lock(&gauge.streams) =
            (sequencer.streams().collect(), sequencer.table(), sequencer.evicted_losses());
    }
}

/// Shared by the spreaders of one input.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The workers' queues.
    pub(crate) workers: Vec<LoadSender>,
    /// Parser of a datagram's flow.
    pub(crate) profiles: Arc<Profiles>,
    /// Who may report: the numbers of others are not accounted for. The workers refuse and count their datagrams.
    pub(crate) access: Arc<Access>,
    /// Keeps a sender from targeting one worker.
    pub(crate) seed: u64,
    /// The number of the input.
    pub(crate) listener: u16,
    /// Its losses.
    pub(crate) ledger: Arc<Ledger>,
    /// The ports of aggregates.
    pub(crate) aggregate_ports: AggregatePorts,
}

/// Distributes the datagrams of one thread.
#[derive(Debug)]
pub(crate) struct Spreader {
    plan: Plan,
    filling: Vec<Load>,
    noted: Vec<Noted>,
    next: u64,
}

impl Spreader {
    /// A spreader of that plan.
    pub(crate) fn new(plan: Plan) -> Self {
        let filling = plan.workers.iter().map(|_| Load::default()).collect();
        Self { plan, filling, noted: Vec::new(), next: 0 }
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
            self.filling[worker].push(packet, source, (self.plan.listener, contents));
            if self.filling[worker].is_full() {
                self.hand_over(worker);
            }
        }
        self.plan.ledger.observe(&self.noted);
    }

    /// Accounts the sequence number of a report; returns its flow.
    fn note_report(&mut self, packet: &Packet<'_>, source: [u8; 16]) -> Option<FlowKey> {
        let peek = peek(packet.data, self.plan.profiles.of(&source)).ok()?;
        self.plan.access.check(self.plan.listener, &source, || Ok(peek.node_id)).ok()?;
        self.noted.push((stream(&peek, self.plan.listener, source), peek.seq, packet.received));
        peek.flow.or_else(|| postcard_id(packet.data).map(FlowKey::of_id))
    }

    /// Accounts the sequence number of an aggregate. All aggregates of one aggregator go to one worker, so that the postcards of a packet
    /// can be joined.
    fn note_aggregate(&mut self, packet: &Packet<'_>, source: [u8; 16]) -> Option<FlowKey> {
        let header = Header::parse(packet.data).ok()?;
        let node = Some(header.aggregator);
        let listener = self.plan.listener;
        self.plan.access.check(listener, &source, || Ok(node)).ok()?;
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
        let load = std::mem::take(&mut self.filling[worker]);
        let gauge = &self.plan.ledger.gauge;
        // Counted before the worker gets them, so that its output never exceeds the input.
        lock(&gauge.stats).datagrams += load.entries.len() as u64;
        let (refused, empty) = self.plan.workers[worker].send(load);
        self.filling[worker] = empty;
        if refused != Refused::default() {
            let mut stats = lock(&gauge.stats);
            stats.full += refused.full;
            stats.share += refused.share;
        }
    }
}

/// The stream to which a datagram's sequence number belongs. Reports 0.5 have one per address, for all nodes.
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
            self.0.sender(collector::sender_of(&loss.source));
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
pub(crate) fn work(queue: &LoadReceiver, mut worker: Worker) {
    let mut wait = Duration::from_nanos(TICK);
    let mut received = Received::Nothing;
    while received != Received::End {
        received =
            queue.receive(wait, |load| load.each_chunk(|contents, chunk| worker.process(contents, chunk)));
        worker.poll(nic::time::now());
        wait = Duration::from_millis(worker.serve(queue.is_empty()).into());
    }
    worker.finish(nic::time::now());
}

impl Load {
    fn each_chunk(&self, mut process: impl FnMut(Contents, &[Datagram<'_>])) {
        let none = Datagram { payload: &[], source: [0; 16], src_port: 0, listener: 0, received: 0 };
        let mut start = 0;
        let alike = |one: &Entry, next: &Entry| one.contents == next.contents;
        for entries in self.entries.chunk_by(alike).flat_map(|run| run.chunks(SHARE)) {
            let contents = entries.first().map_or(Contents::Reports, |entry| entry.contents);
            let mut chunk = [none; SHARE];
            for (datagram, entry) in chunk.iter_mut().zip(entries) {
                let Entry { end, source, src_port, listener, received, .. } = *entry;
                let payload = &self.bytes[start..end];
                *datagram = Datagram { payload, source, src_port, listener, received };
                start = end;
            }
            process(contents, &chunk[..entries.len()]);
        }
    }
}

/// Datagrams after which a load is passed on, and the maximum per call of the worker.
const SHARE: usize = 64;
/// Bytes after which a load is passed on, regardless of the number of datagrams.
const SHARE_BYTES: usize = 256 << 10;
/// Bytes that an empty load keeps.
const SPARE_BYTES: usize = 32 << 10;
/// Overhead of a load in a queue and in the accounts of sources, bytes.
const LOAD_OVERHEAD: usize = 512;
/// Interval between reports of losses, ns.
const ACCOUNT_EVERY: Nanos = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Settings, build, sections::Policy},
        control::Control,
        live::Hub,
        pipeline::{self, Pipeline},
    };

    /// A plan over queues of 64 KiB, and their other ends.
    fn plan(workers: usize) -> (Plan, Vec<LoadReceiver>, Pipeline) {
        let hub = Arc::new(Hub::new(1, 1, std::collections::BTreeMap::new()));
        let config = pipeline::Config {
            batch: 8,
            queue: 1 << 16,
            store_queue: 1 << 16,
            policy: Policy::Shed,
            store: None,
        };
        let pipeline = Pipeline::new(config, hub, Control::new().0);
        let ledger = Arc::new(Ledger::new(pipeline.outlet().unwrap(), 16, 1));
        let (workers, queues) = (0..workers).map(|_| load_queue(64 << 10)).unzip();
        let profiles = Arc::new(build::wire_profiles(&Settings::default()));
        let aggregate_ports = AggregatePorts::default();
        let access = Arc::default();
        (Plan { workers, profiles, access, seed: 1, listener: 3, ledger, aggregate_ports }, queues, pipeline)
    }

    fn packet(data: &[u8], src_port: u16) -> Packet<'_> {
        let source = ([10, 0, 0, 1], src_port).into();
        Packet { data, source, port: 0, received: u64::from(src_port), truncated: false }
    }

    #[test]
    fn a_stuck_worker_costs_its_share_and_no_more_memory() {
        let (plan, queues, _pipeline) = plan(1);
        let gauge = plan.ledger.gauge();
        let mut spreader = Spreader::new(plan);
        for round in 0..1_000 {
            spreader.distribute(&[packet(&[0; 800], round)]);
            spreader.poll(0);
        }
        let mut received = 0;
        while queues[0].receive(Duration::ZERO, |load| received += load.entries.len() as u64)
            == Received::Load
        {}
        let stats = *lock(&gauge.stats);
        assert_eq!((stats.datagrams, stats.full + stats.share), (1_000, 1_000 - received));
        assert!((20..80).contains(&received), "{received}");
    }

    #[test]
    fn a_share_gives_back_what_went_in() {
        let (plan, queues, _pipeline) = plan(1);
        let mut spreader = Spreader::new(plan);
        let payloads: Vec<Vec<u8>> = (0..100u8).map(|n| vec![n; usize::from(n)]).collect();
        let packets: Vec<_> =
            payloads.iter().zip(0..).map(|(data, src_port)| packet(data, src_port)).collect();
        spreader.distribute(&packets);
        spreader.poll(0);
        let mut seen = Vec::new();
        let mut note = |load: &Load| {
            load.each_chunk(|_, chunk| {
                seen.extend(chunk.iter().map(|d| (d.payload.to_vec(), d.src_port, d.received, d.listener)));
            });
        };
        while queues[0].receive(Duration::ZERO, &mut note) == Received::Load {}
        let sent: Vec<_> =
            payloads.into_iter().zip(0..).map(|(data, n)| (data, n, u64::from(n), 3)).collect();
        assert_eq!(seen, sent);
    }

    #[test]
    fn a_load_without_some_datagrams_has_the_others() {
        let mut load = Load::default();
        for n in 0..6_u16 {
            load.push(
                &packet(&vec![n as u8; usize::from(n) * 3], n),
                [n as u8 % 2; 16],
                (9, Contents::Reports),
            );
        }
        load.retain(|source, bytes| source[0] == 1 && bytes < 15);
        let mut seen = Vec::new();
        load.each_chunk(|_, chunk| seen.extend(chunk.iter().map(|d| (d.payload.to_vec(), d.src_port))));
        assert_eq!(seen, [(vec![1; 3], 1), (vec![3; 9], 3)]);
        assert_eq!(load.bytes.len(), 12);
    }

    #[test]
    fn numbers_of_senders_that_may_not_report_are_not_accounted_for() {
        use collector::Grant;
        let report = testkit::vectors::bytes("tr20_emb");
        let streams = |from: &str| {
            let (mut plan, queues, _pipeline) = plan(1);
            let grant = Grant { from: from.parse().unwrap(), nodes: Vec::new() };
            // The plan's listener is number 3.
            plan.access = Arc::new(Access::new([None, None, None, Some(vec![grant])]));
            let gauge = plan.ledger.gauge();
            let mut spreader = Spreader::new(plan);
            spreader.distribute(&[packet(&report, 1)]);
            spreader.poll(2 * ACCOUNT_EVERY);
            // The worker refuses and counts it.
            let mut queued = 0;
            while queues[0].receive(Duration::ZERO, |load| queued += load.entries.len()) == Received::Load {}
            assert_eq!(queued, 1);
            lock(&gauge.streams).0.len()
        };
        assert_eq!([streams("10.0.0.0/8"), streams("10.9.0.0/16")], [1, 0]);
    }

    #[test]
    fn datagrams_that_are_no_reports_go_to_the_workers_round_robin() {
        let (plan, queues, _pipeline) = plan(3);
        let mut spreader = Spreader::new(plan);
        spreader.distribute(&[packet(&[0xff; 8], 1); 9]);
        spreader.poll(0);
        let count = |queue: &LoadReceiver| {
            let mut count = 0;
            while queue.receive(Duration::ZERO, |load| count += load.entries.len()) == Received::Load {}
            count
        };
        assert_eq!(queues.iter().map(count).collect::<Vec<_>>(), [3, 3, 3]);
    }
}
