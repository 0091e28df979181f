//! Fans datagrams out from receiving threads to several workers, by a hash of the monitored (inner) flow, so that one busy
//! reporter can use every worker and the reports of a flow stay in order.
//!
//! ```text
//! input threads                        workers
//!  Spreader ── LoadSender lane ──┐
//!  Spreader ── LoadSender lane ──┴──> LoadReceiver ──> Worker
//! ```
//!
//! A ring's frames are valid only during one call, so datagrams are copied into their worker's queue. A thread whose worker is
//! behind waits and leaves its socket or ring unread: the kernel buffers what arrives and counts what it drops, as with one
//! worker. Sequence accounting happens here, while datagrams are still in order. All threads of one input share a [`Ledger`],
//! because a reporter's datagrams may arrive at several receive queues of an interface.

mod order;
mod queue;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use collector::{Access, Batch, Datagram, Losses, Sequencer, StreamId, event::Nanos};
use nic::{pace::Pace, source::Packet};
use wire::{
    FlowKey, Version,
    aggregate::Header,
    report::{Peek, peek, peek_group, peek_header, v20::GROUP_LEN},
};

use crate::{
    datagram::{AggregatePorts, Contents, Profiles, octets},
    pipeline::{QueueSender, RuleNames},
    watermarks::Watermarks,
    worker::{TICK, Worker},
};
use order::Order;
use queue::Received;
pub use queue::{LoadReceiver, LoadSender, load_queue};
use runtime::lock::lock;

/// Prefetch distance, in datagrams ahead of the current one.
const AHEAD: usize = 4;
/// Maximum number of datagrams per call of the worker.
const SHARE: usize = 64;
/// Maximum number of datagrams in a load.
const LOAD_DATAGRAMS: usize = 128;
/// Capacity of a load, bytes. A longer datagram gets a load of exactly its size.
const LOAD_BYTES: usize = 32 << 10;
/// Sleep of a worker whose queue is empty while datagrams arrive at a high rate; senders then need not wake it.
const NAP: Duration = Duration::from_micros(500);
/// Interval between reports of losses, ns.
const ACCOUNT_EVERY: Nanos = 1_000_000_000;

/// A buffer of datagrams, with their offsets. It never grows after allocation.
#[derive(Debug)]
struct Load {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

/// The metadata of one datagram in a load. Its bytes extend from the previous entry's `end` to its own.
#[derive(Clone, Copy, Debug)]
struct Entry {
    end: usize,
    source: [u8; 16],
    src_port: u16,
    listener: u16,
    contents: Contents,
    received: Nanos,
}

/// A datagram for one worker, or a part of it: the reports that belong to that worker's flows.
#[derive(Clone, Copy, Debug)]
struct Arrival<'p> {
    /// A copy of the datagram's group header, put before a part; empty for a whole datagram.
    header: &'p [u8],
    data: &'p [u8],
    /// The load entry for this datagram; `end` is not set yet.
    entry: Entry,
}

impl Arrival<'_> {
    fn len(&self) -> usize {
        self.header.len() + self.data.len()
    }
}

impl Load {
    /// Creates an empty load with memory for a datagram of `len` bytes.
    fn with_room_for(len: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(len.max(LOAD_BYTES)),
            entries: Vec::with_capacity(LOAD_DATAGRAMS),
        }
    }

    /// Returns the bytes of memory that [`Load::with_room_for`] allocates.
    fn memory_for(len: usize) -> usize {
        len.max(LOAD_BYTES) + LOAD_DATAGRAMS * size_of::<Entry>()
    }

    /// Returns the load's memory in bytes.
    fn memory(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Returns whether the load has the standard size and can be reused.
    fn is_regular(&self) -> bool {
        self.bytes.capacity() == LOAD_BYTES
    }

    /// Returns whether a datagram of `len` bytes fits without allocation.
    fn fits(&self, len: usize) -> bool {
        self.entries.len() < LOAD_DATAGRAMS && self.bytes.len() + len <= self.bytes.capacity()
    }

    fn push(&mut self, arrival: &Arrival<'_>) {
        self.bytes.extend_from_slice(arrival.header);
        self.bytes.extend_from_slice(arrival.data);
        self.entries.push(Entry {
            end: self.bytes.len(),
            ..arrival.entry
        });
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }
}

/// Counters of distributed and dropped datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FanoutStats {
    /// Number of datagrams received.
    pub datagrams: u64,
    /// Datagrams dropped because their worker has ended.
    pub ended: u64,
}

/// The counters of an input's fan-out, for display.
#[derive(Debug, Default)]
pub struct FanoutGauge {
    /// Counters of distributed and dropped datagrams.
    pub stats: Mutex<FanoutStats>,
    /// Streams with their losses, the occupancy of the stream table, and the losses of evicted streams; updated each second.
    pub streams: Mutex<(Vec<collector::StreamView>, collector::stats::Table, Losses)>,
}

/// Sequence accounting of one input, shared by all threads that receive for it.
pub struct Ledger {
    accounts: Mutex<Accounts>,
    gauge: Arc<FanoutGauge>,
}

struct Accounts {
    sequencer: Sequencer,
    order: Order,
    outlet: QueueSender,
    batch: Batch,
    accounted: Nanos,
}

/// A sequence number read during the fan-out.
#[derive(Clone, Copy, Debug)]
struct ReceivedNumber {
    stream: StreamId,
    seq: u32,
    received: Nanos,
    /// The datagram may not be a report, so its number counts only if it is the one that the stream expects.
    refused: bool,
}

impl Ledger {
    /// Creates the ledger of one input. `max_sources` limits the streams that are tracked; the secret `seed` keeps senders
    /// from targeting one slot of the table.
    pub fn new(outlet: QueueSender, max_sources: usize, seed: u64) -> Self {
        let batch = outlet.batch();
        let sequencer = Sequencer::new(max_sources, seed);
        let accounts = Mutex::new(Accounts {
            sequencer,
            order: Order::default(),
            outlet,
            batch,
            accounted: 0,
        });
        Self {
            accounts,
            gauge: Arc::default(),
        }
    }

    /// Returns the counters for display.
    pub fn gauge(&self) -> Arc<FanoutGauge> {
        Arc::clone(&self.gauge)
    }

    /// Accounts the sequence numbers that the thread of `lane` received.
    fn observe(&self, lane: usize, numbers: &[ReceivedNumber]) {
        let accounts = &mut *lock(&self.accounts);
        if accounts.order.is_trivial() {
            for number in numbers {
                observe(&mut accounts.sequencer, &mut accounts.batch, number);
            }
        } else {
            accounts.order.push(lane, numbers);
            accounts.observe_ordered();
        }
    }

    /// Accounts sequence numbers up to a watermark, and reports losses about once a second. The thread of `lane` has observed
    /// everything that arrived before `until`, and all threads of all inputs everything that arrived before `now`.
    fn poll(&self, lane: usize, until: Nanos, now: Nanos) {
        let accounts = &mut *lock(&self.accounts);
        accounts.order.set(lane, until);
        accounts.observe_ordered();
        if now.abs_diff(accounts.accounted) >= ACCOUNT_EVERY {
            accounts.accounted = now;
            accounts.sequencer.account(now, &mut accounts.batch);
            accounts.publish(&self.gauge);
        }
    }

    fn add_lane(&self) -> usize {
        lock(&self.accounts).order.add()
    }

    fn end_lane(&self, lane: usize) {
        let accounts = &mut *lock(&self.accounts);
        accounts.order.end(lane);
        accounts.observe_ordered();
    }

    /// Counts all sequence numbers still missing as lost. Called when the input has ended.
    pub fn finish(&self, now: Nanos) {
        let accounts = &mut *lock(&self.accounts);
        accounts.sequencer.finish(now, &mut accounts.batch);
        accounts.publish(&self.gauge);
    }
}

impl Accounts {
    /// Accounts the sequence numbers that no other thread can still precede.
    fn observe_ordered(&mut self) {
        let Self {
            sequencer,
            order,
            batch,
            ..
        } = self;
        order.drain(|number| observe(sequencer, batch, &number));
    }

    fn publish(&mut self, gauge: &FanoutGauge) {
        // Losses have no rule, so the names do not matter.
        self.outlet.send(&mut self.batch, &RuleNames::from([]));
        let sequencer = &self.sequencer;
        *lock(&gauge.streams) = (
            sequencer.streams().collect(),
            sequencer.table(),
            sequencer.evicted_losses(),
        );
    }
}

fn observe(sequencer: &mut Sequencer, batch: &mut Batch, number: &ReceivedNumber) {
    let ReceivedNumber {
        stream,
        seq,
        received,
        refused,
    } = number;
    if *refused {
        sequencer.observe_refused(stream, *seq, *received, batch);
    } else {
        sequencer.observe(stream, *seq, *received, batch);
    }
}

/// The shared configuration of one input's spreaders.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Queues to the workers, by the worker's index.
    pub workers: Vec<LoadSender>,
    /// Decoding profiles, used to find a datagram's flow.
    pub profiles: Arc<Profiles>,
    /// Allowed senders. Datagrams from others are not in the sequence accounting; the workers refuse and count them.
    pub access: Arc<Access>,
    /// A secret seed of the flow hash, so that a sender cannot target one worker.
    pub seed: u64,
    /// Index of the input in the configuration.
    pub listener: u16,
    /// Accounts for the input's lost datagrams.
    pub ledger: Arc<Ledger>,
    /// The ports of aggregates.
    pub aggregate_ports: AggregatePorts,
    /// The watermarks of all threads that receive for these workers.
    pub watermarks: Arc<Watermarks>,
}

/// Distributes the datagrams that one receiving thread reads.
#[derive(Debug)]
pub struct Spreader {
    plan: Plan,
    /// The thread's lane in the ledger.
    lane: usize,
    /// The parts of the current burst, by worker.
    shares: Vec<Vec<Share>>,
    numbers: Vec<ReceivedNumber>,
    next: u64,
    latest: Sender,
}

/// The part of a datagram that goes to one worker: its bytes from `start` to `end`.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// The datagram's index in its burst.
    index: usize,
    start: usize,
    end: usize,
    entry: Entry,
}

/// Properties that depend on a datagram's sender and port alone, cached because consecutive datagrams usually share them.
#[derive(Clone, Copy, Debug)]
struct Sender {
    address: SocketAddr,
    /// The destination port of its datagrams.
    port: u16,
    octets: [u8; 16],
    contents: Contents,
    /// The index of the profile that decodes its reports.
    profile: usize,
}

impl Sender {
    fn new(packet: &Packet<'_>, plan: &Plan) -> Self {
        let octets = octets(packet.source.ip());
        let contents = plan.aggregate_ports.contents(packet.port);
        let profile = plan.profiles.index_of(&octets);
        Self {
            address: packet.source,
            port: packet.port,
            octets,
            contents,
            profile,
        }
    }
}

impl Spreader {
    /// Creates the spreader of one thread, and its lane in the ledger.
    pub fn new(plan: Plan) -> Self {
        let shares = plan.workers.iter().map(|_| Vec::new()).collect();
        let nobody = SocketAddr::from(([0; 16], 0));
        let none = Packet {
            data: &[],
            source: nobody,
            port: 0,
            received: 0,
            truncated: false,
        };
        let latest = Sender::new(&none, &plan);
        let lane = plan.ledger.add_lane();
        Self {
            plan,
            lane,
            shares,
            numbers: Vec::new(),
            next: 0,
            latest,
        }
    }

    /// Copies datagrams into the queues of their workers, and waits while one of these is full.
    pub fn distribute(&mut self, packets: &[Packet<'_>]) {
        self.numbers.clear();
        for (index, packet) in packets.iter().enumerate() {
            if let Some(ahead) = packets.get(index + AHEAD) {
                // The cache lines with the headers; the copy reads the rest in order.
                for line in [0, 64, 128] {
                    ahead.data.get(line).map(memory::prefetch);
                }
            }
            if (packet.source, packet.port) != (self.latest.address, self.latest.port) {
                self.latest = Sender::new(packet, &self.plan);
            }
            let sender = self.latest;
            let flow = match sender.contents {
                Contents::Reports | Contents::LaterReports(_) => self.note_report(packet, &sender),
                Contents::Aggregates => self.note_aggregate(packet, sender.octets),
            };
            let entry = Entry {
                end: 0,
                source: sender.octets,
                src_port: packet.source.port(),
                listener: self.plan.listener,
                contents: sender.contents,
                received: packet.received,
            };
            if !self.divide(index, packet, &entry) {
                let worker = worker_of(flow, &self.plan, &mut self.next);
                self.shares[worker].push(Share {
                    index,
                    start: 0,
                    end: packet.data.len(),
                    entry,
                });
            }
        }
        self.plan.ledger.observe(self.lane, &self.numbers);
        // Counted before the workers get them, so that their output never exceeds the input.
        lock(&self.plan.ledger.gauge.stats).datagrams += packets.len() as u64;
        self.flush(packets);
    }

    /// Splits a datagram of several reports (Telemetry Report 2.0 groups them) among the workers of their flows. Consecutive
    /// reports for the same worker stay together. Returns `false` for a datagram that must go to one worker: it has a single
    /// report, or its length fields contradict each other.
    fn divide(&mut self, index: usize, packet: &Packet<'_>, entry: &Entry) -> bool {
        if entry.contents != Contents::Reports {
            return false;
        }
        let Self {
            plan, shares, next, ..
        } = self;
        let Some(reports) = peek_group(packet.data, plan.profiles.at(self.latest.profile)) else {
            return false;
        };
        let mut start = GROUP_LEN;
        let mut end = GROUP_LEN;
        let mut previous_worker = None;
        let mut contents = Contents::Reports;
        for (number, report) in (0..).zip(reports) {
            let flow = report
                .flow
                .or_else(|| postcard_id(report.bytes).map(FlowKey::of_id));
            let worker = match (flow, previous_worker) {
                (None, Some(previous_worker)) => previous_worker,
                _ => worker_of(flow, plan, next),
            };
            let is_new = previous_worker != Some(worker);
            if is_new && previous_worker.is_some() {
                start = end;
                contents = Contents::LaterReports(number);
            }
            end += report.bytes.len();
            let share = Share {
                index,
                start,
                end,
                entry: Entry { contents, ..*entry },
            };
            match shares[worker].last_mut() {
                Some(last) if !is_new => *last = share,
                _ => shares[worker].push(share),
            }
            previous_worker = Some(worker);
        }
        true
    }

    /// Queues the collected shares of a burst for their workers.
    fn flush(&mut self, packets: &[Packet<'_>]) {
        let mut ended = 0;
        for (worker, share) in self
            .plan
            .workers
            .iter()
            .zip(&mut self.shares)
            .filter(|(_, share)| !share.is_empty())
        {
            let arrivals = share.drain(..).map(|share| {
                let data = packets[share.index].data;
                Arrival {
                    header: if share.start == 0 { &[] } else { &data[..GROUP_LEN] },
                    data: &data[share.start..share.end],
                    entry: share.entry,
                }
            });
            ended += worker.send(arrivals);
        }
        if ended > 0 {
            lock(&self.plan.ledger.gauge.stats).ended += ended;
        }
    }

    /// Records the sequence number of a report datagram, and returns the flow that selects its worker.
    fn note_report(&mut self, packet: &Packet<'_>, sender: &Sender) -> Option<FlowKey> {
        let profile = self.plan.profiles.at(sender.profile);
        let peeked = peek(packet.data, profile);
        let refused = peeked.is_err();
        let peek = peeked.or_else(|_| peek_header(packet.data, profile)).ok()?;
        self.plan
            .access
            .check(self.plan.listener, &sender.octets, || Ok(peek.node_id))
            .ok()?;
        self.numbers.push(ReceivedNumber {
            stream: stream(&peek, self.plan.listener, sender.octets),
            seq: peek.seq,
            received: packet.received,
            refused,
        });
        if refused {
            return None;
        }
        let is_group = peek.version == Version::V20;
        let report = packet.data.get(GROUP_LEN..).filter(|_| is_group);
        peek.flow
            .or_else(|| report.and_then(postcard_id).map(FlowKey::of_id))
    }

    /// Records the sequence number of an aggregate datagram. The worker is selected by aggregator, so that all postcards of a
    /// packet meet in one worker and can be joined.
    fn note_aggregate(&mut self, packet: &Packet<'_>, source: [u8; 16]) -> Option<FlowKey> {
        let header = Header::parse(packet.data).ok()?;
        let node = Some(header.aggregator);
        let listener = self.plan.listener;
        self.plan.access.check(listener, &source, || Ok(node)).ok()?;
        let id = StreamId {
            version: collector::AGGREGATE_VERSION,
            hw_id: 0,
            listener,
            node,
            source,
        };
        self.numbers.push(ReceivedNumber {
            stream: id,
            seq: header.sequence,
            received: packet.received,
            refused: false,
        });
        Some(FlowKey::of_id(header.aggregator))
    }

    /// Advances the thread's watermark: everything that arrived before `until` is distributed. Reports losses once a second.
    pub fn poll(&mut self, until: Nanos, now: Nanos) {
        let settled = self.plan.watermarks.time(now);
        self.plan.ledger.poll(self.lane, until, settled);
    }
}

impl Drop for Spreader {
    fn drop(&mut self) {
        self.plan.ledger.end_lane(self.lane);
    }
}

/// Returns the index of a flow's worker. Datagrams without a flow are assigned round robin; `next` is the counter.
fn worker_of(flow: Option<FlowKey>, plan: &Plan, next: &mut u64) -> usize {
    *next = next.wrapping_add(1);
    let hash = flow.map_or(*next, |flow| flow.hash(plan.seed));
    (hash % plan.workers.len() as u64) as usize
}

/// Returns the stream to which a datagram's sequence number belongs.
fn stream(peek: &Peek, listener: u16, source: [u8; 16]) -> StreamId {
    let version = match peek.version {
        Version::V05 => 5,
        Version::V10 => 10,
        Version::V20 => 20,
    };
    StreamId {
        version,
        hw_id: peek.hw_id,
        listener,
        node: peek.node_id,
        source,
    }
}

/// Returns the Flow ID in the domain-specific metadata of a postcard that carries no packet headers (wire-formats 4.1).
/// `report` starts at the individual report header.
fn postcard_id(report: &[u8]) -> Option<u32> {
    let types = report.first()?;
    let bits = u16_at(report, 4)?;
    let domain = u16_at(report, 6)?;
    let items = u16_at(report, 8)?;
    let is_postcard = types >> 4 == 1
        && domain == wire::report::v20::POSTCARD_DOMAIN
        && items & wire::report::v20::POSTCARD_FLOW_ID != 0;
    // Word count of the hop metadata before the domain-specific part. The bits of 0x0e00 stand for two words each.
    let words = (bits.count_ones() + (bits & 0x0e00).count_ones()) as usize;
    let id = report
        .get(12 + words * 4..16 + words * 4)
        .filter(|_| is_postcard)?;
    Some(u32::from_be_bytes([id[0], id[1], id[2], id[3]]))
}

#[inline(always)]
fn u16_at(payload: &[u8], offset: usize) -> Option<u16> {
    let bytes = payload.get(offset..offset + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger")
            .field("gauge", &self.gauge)
            .finish_non_exhaustive()
    }
}

/// Runs a worker behind a queue until all receivers have ended and their datagrams are processed.
pub fn work(queue: &LoadReceiver, mut worker: Worker) {
    let mut wait = Duration::from_nanos(TICK);
    let mut pace = Pace::new(NAP);
    loop {
        let received = queue.receive(pace.wait_first(), wait, |load| {
            load.each_chunk(|contents, chunk| worker.process(contents, chunk));
        });
        match received {
            Received::Load(count) => pace.note(count, usize::MAX, nic::time::monotonic()),
            Received::Nothing => pace.note(0, usize::MAX, nic::time::monotonic()),
            Received::End => break,
        }
        // Read the watermarks before the queue: whatever is queued after this read arrived later than they say.
        let now = nic::time::now();
        let passed_on = worker.watermarks().time(now);
        let until = queue.oldest().unwrap_or(passed_on).min(passed_on);
        worker.poll(now, until);
        wait = Duration::from_millis(worker.serve(queue.is_empty()).into());
    }
    worker.finish(nic::time::now());
}

impl Load {
    /// Calls `process` for runs of datagrams with equal contents, in slices of at most [`SHARE`].
    fn each_chunk(&self, mut process: impl FnMut(Contents, &[Datagram<'_>])) {
        let none = Datagram {
            payload: &[],
            source: [0; 16],
            src_port: 0,
            listener: 0,
            received: 0,
        };
        let mut start = 0;
        let runs = self
            .entries
            .chunk_by(|entry, next| entry.contents == next.contents);
        for entries in runs.flat_map(|run| run.chunks(SHARE)) {
            let contents = entries.first().map_or(Contents::Reports, |entry| entry.contents);
            let mut chunk = [none; SHARE];
            for (datagram, entry) in chunk.iter_mut().zip(entries) {
                let Entry {
                    end,
                    source,
                    src_port,
                    listener,
                    received,
                    ..
                } = *entry;
                let payload = &self.bytes[start..end];
                *datagram = Datagram {
                    payload,
                    source,
                    src_port,
                    listener,
                    received,
                };
                start = end;
            }
            process(contents, &chunk[..entries.len()]);
        }
    }
}

#[cfg(test)]
mod tests;
