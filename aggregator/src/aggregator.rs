//! The postcard aggregator's engine: collects INT-XD postcards in registers and sends full, expired or evicted registers as
//! datagrams.
//!
//! Postcards are processed in batches of 64 in three passes (prefetch keys, prefetch registers, insert), so that cache
//! misses of different postcards overlap.

use wire::Decoder;
use wire::aggregate::{HEADER_LEN, Header, LONG_POSTCARD_LEN, SUMMARY_LEN};
use wire::report::{Report, Version, v20};

use crate::config::{Config, ConfigError, Spread};
use crate::nodes::{Node, Nodes, Stream};
use crate::postcard::{ExactGroup, Postcard};
use crate::stats::{Cause, RefusalReason, Stats};
use crate::table::{self, Slot, Table};

/// Postcards per batch, whose registers are prefetched together.
const BATCH: usize = 64;
/// Maximum number of sequence number streams in interop mode; a power of two.
const MAX_STREAMS: usize = 8192;
/// Table entries searched for a stream.
const MAX_PROBES: usize = 8;

/// Receives an aggregator's datagrams.
pub trait Output {
    /// Sends a UDP payload to the destination with this index.
    fn send(&mut self, destination: usize, payload: &[u8]);
}

/// Aggregates postcards: see the [crate](crate) documentation.
///
/// ```
/// use aggregator::{Aggregator, Config, ConfigError, Output};
///
/// #[derive(Default)]
/// struct Count(usize);
/// impl Output for Count {
///     fn send(&mut self, _destination: usize, _payload: &[u8]) {
///         self.0 += 1;
///     }
/// }
///
/// let mut aggregator = Aggregator::new(Config { timer: 1_000_000, ..Config::default() })?;
/// let postcards = testkit::workload::aggregator::CASES[0].datagrams();
/// let mut sent = Count::default();
/// aggregator.ingest(5_000_000, postcards.chunks_exact(testkit::workload::aggregator::LEN).take(2), &mut sent);
/// assert_eq!((sent.0, aggregator.deadline()), (0, Some(6_000_000)));
/// aggregator.tick(6_000_000, &mut sent);
/// assert_eq!((sent.0, aggregator.deadline()), (1, None));
///
/// assert!(matches!(Aggregator::new(Config { r: 0, ..Config::default() }), Err(ConfigError::R(_))));
/// # Ok::<(), ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Aggregator {
    decoder: Decoder,
    nodes: Nodes,
    core: Core,
}

impl Aggregator {
    /// Creates an empty aggregator and allocates all memory.
    ///
    /// # Errors
    /// [`ConfigError`] for invalid settings.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let decoder = Decoder::new(config.profile);
        Ok(Self {
            decoder,
            nodes: Nodes::new(),
            core: Core::new(config),
        })
    }

    /// Processes UDP payloads that arrived at `now` (ns, any monotonic clock).
    pub fn ingest<'a>(
        &mut self,
        now: u64,
        datagrams: impl IntoIterator<Item = &'a [u8]>,
        out: &mut impl Output,
    ) {
        self.core.expire(now, out);
        let mut report = Report::EMPTY;
        for payload in datagrams {
            self.core.stats.datagrams += 1;
            let Some(exact) = ExactGroup::parse(payload) else {
                self.ingest_decoded(payload, &mut report, now, out);
                continue;
            };
            let Self { nodes, core, .. } = self;
            let stream = Stream {
                node: exact.node,
                hw_id: exact.hw_id,
                short: true,
            };
            core.observe(nodes, stream, exact.seq);
            core.stats.reports += exact.postcards().len() as u64;
            for postcard in exact.postcards() {
                core.push(postcard, now, out);
            }
        }
        self.core.insert_queued(now, out);
    }

    /// Slow path: decodes a datagram that is not an [`ExactGroup`].
    #[inline(never)]
    fn ingest_decoded<'a>(
        &mut self,
        payload: &'a [u8],
        report: &mut Report<'a>,
        now: u64,
        out: &mut impl Output,
    ) {
        let Self { decoder, nodes, core } = self;
        let mut reports = decoder.reports(payload);
        let mut is_numbered = false;
        while let Some(result) = reports.read(report) {
            if let Err(refusal) = result {
                core.stats.unreadable[refusal.index()] += 1;
                continue;
            }
            core.stats.reports += 1;
            if !is_numbered {
                is_numbered = true;
                let stream = Stream {
                    node: report.node_id.unwrap_or(u32::MAX),
                    hw_id: report.hw_id,
                    short: report.version == Version::V20,
                };
                core.observe(nodes, stream, report.seq);
            }
            match Postcard::from_report(report) {
                Ok(postcard) => core.push(postcard, now, out),
                Err(reason) => core.refuse(reason),
            }
        }
    }

    /// Sends registers whose timer has expired, as [`Aggregator::ingest`] also does. Call it at
    /// [`deadline`](Self::deadline).
    pub fn tick(&mut self, now: u64, out: &mut impl Output) {
        self.core.expire(now, out);
    }

    /// Sends all pending postcards, for a clean stop.
    pub fn finish(&mut self, out: &mut impl Output) {
        while let Some((slot, _)) = self.core.table.oldest() {
            self.core.flush(slot, Cause::Stopped, out);
        }
    }

    /// Returns when the next register's timer expires, ns, or `None` if no postcard is pending.
    pub fn deadline(&self) -> Option<u64> {
        self.core
            .table
            .oldest()
            .map(|(_, since)| since.saturating_add(self.core.config.timer))
    }

    /// Returns the counters since the start.
    pub fn stats(&self) -> Stats {
        let table = &self.core.table;
        let sent: u64 = self.core.stats.sent.iter().map(|sent| sent.postcards).sum();
        Stats {
            pending: self.core.stats.postcards - sent,
            occupied: table.occupied,
            ..self.core.stats
        }
    }

    /// Returns the sequence statistics per node. A collector sees only the aggregator's own sequence numbers, so losses
    /// before the aggregator are counted here.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    /// Returns the settings in use.
    pub fn config(&self) -> &Config {
        &self.core.config
    }
}

/// A postcard in the current batch, with the key and bucket of its register.
#[derive(Clone, Copy, Debug)]
struct QueuedPostcard {
    postcard: Postcard,
    key: u64,
    bucket: u32,
}

/// Registers, counters and sequence numbers.
#[derive(Debug)]
struct Core {
    config: Config,
    table: Table,
    stats: Stats,
    pending: Vec<QueuedPostcard>,
    /// Next sequence number per destination.
    sequences: Vec<u32>,
    /// Interop mode: open-addressed table of (key, next sequence number); the key is a node and a destination.
    streams: Vec<(u64, u32)>,
}

impl Core {
    fn new(config: Config) -> Self {
        Self {
            table: Table::new(&config),
            stats: Stats::default(),
            pending: Vec::with_capacity(BATCH),
            sequences: vec![0; config.destinations],
            streams: if config.interop {
                vec![(table::FREE_KEY, 0); MAX_STREAMS]
            } else {
                Vec::new()
            },
            config,
        }
    }

    /// Records a datagram's sequence number. Nodes without a node ID cannot be told apart and are not tracked.
    #[inline(always)]
    fn observe(&mut self, nodes: &mut Nodes, stream: Stream, seq: u32) {
        if stream.node != u32::MAX && !nodes.observe(stream, seq) {
            self.stats.nodes_full += 1;
        }
    }

    fn refuse(&mut self, reason: RefusalReason) {
        self.stats.refused[reason as usize] += 1;
    }

    /// Returns the reason why the configured kind of aggregate cannot hold a postcard, or `None` if it can.
    #[inline(always)]
    fn check(&self, postcard: &Postcard) -> Option<RefusalReason> {
        let kind = self.config.kind;
        if kind.node_scope() && postcard.node == u32::MAX {
            return Some(RefusalReason::NoNode);
        }
        if kind.flow_scope() && postcard.flow == u32::MAX {
            return Some(RefusalReason::NoFlow);
        }
        let has_no_value = postcard.hop_latency().is_none() && postcard.queue_length().is_none();
        (kind.is_correlated() && has_no_value).then_some(RefusalReason::NoValue)
    }

    /// Returns the index of a postcard's destination.
    #[inline(always)]
    fn destination(&self, postcard: &Postcard) -> u32 {
        if self.config.destinations == 1 {
            return 0;
        }
        let hashed = match self.config.spread {
            Spread::Node => postcard.node,
            Spread::Flow => postcard.flow,
        };
        // Uses the hash's upper bits, because the lower ones select the register.
        let hash = u64::from(wire::flow::crc_32c_of(u64::from(hashed)));
        ((hash * self.config.destinations as u64) >> 32) as u32
    }

    /// Queues a postcard for [`Core::insert_queued`].
    #[inline(always)]
    fn push(&mut self, postcard: Postcard, now: u64, out: &mut impl Output) {
        if let Some(reason) = self.check(&postcard) {
            return self.refuse(reason);
        }
        self.stats.postcards += 1;
        let kind = self.config.kind;
        let flow_or_destination = if kind.flow_scope() {
            postcard.flow
        } else {
            self.destination(&postcard)
        };
        let key = if kind.node_scope() {
            u64::from(postcard.node) << 32
        } else {
            0
        } | u64::from(flow_or_destination);
        let bucket = if kind.node_scope() {
            self.table.bucket(key)
        } else {
            flow_or_destination
        };
        self.table.prefetch_keys(bucket);
        self.pending.push(QueuedPostcard {
            postcard,
            key,
            bucket,
        });
        if self.pending.len() == BATCH {
            self.insert_queued(now, out);
        }
    }

    /// Puts the queued postcards into their registers.
    fn insert_queued(&mut self, now: u64, out: &mut impl Output) {
        let items = std::mem::take(&mut self.pending);
        for item in &items {
            self.table.prefetch(item.bucket, item.key);
        }
        if !self.config.kind.is_correlated() {
            let head = self.config.head();
            let postcard_len = self.config.postcard_len();
            for item in &items {
                let slot = self.table.find(item.bucket, item.key).unwrap_or(item.bucket);
                self.table.prefetch_bytes(slot, head, postcard_len);
            }
        }
        for item in &items {
            self.insert(item, now, out);
        }
        self.pending = items;
        self.pending.clear();
    }

    /// Inserts a postcard into its register, and sends the register if it is full.
    #[inline(always)]
    fn insert(&mut self, item: &QueuedPostcard, now: u64, out: &mut impl Output) {
        let slot = match self.table.find(item.bucket, item.key) {
            Some(slot) => slot,
            None => self.claim(item, now, out),
        };
        let head = self.config.head();
        let postcard_len = self.config.postcard_len();
        let interop = self.config.interop;
        let register = self.table.register(slot);
        let position = register.count as usize;
        register.count += 1;
        let is_full = register.count == self.config.r;
        if self.config.kind.is_correlated() {
            self.stats.missing_values += register.add(&item.postcard);
        } else {
            let record = &mut self.table.bytes(slot)[head + position * postcard_len..][..postcard_len];
            if interop {
                item.postcard.emit(record);
            } else {
                item.postcard.to_wire().emit(record);
                if postcard_len == LONG_POSTCARD_LEN {
                    item.postcard.packet.emit(record);
                }
            }
        }
        if is_full {
            self.flush(slot, Cause::Full, out);
        }
    }

    /// Allocates a register for a new key, after evicting the oldest one of its bucket if none is free.
    fn claim(&mut self, item: &QueuedPostcard, now: u64, out: &mut impl Output) -> u32 {
        let slot = match self.table.slot_for_new(item.bucket) {
            Slot::Free(slot) => slot,
            Slot::Evict(slot) => {
                self.flush(slot, Cause::Evicted, out);
                slot
            }
        };
        self.table.claim(slot, item.key, now);
        slot
    }

    /// Sends registers whose timer has expired.
    fn expire(&mut self, now: u64, out: &mut impl Output) {
        while let Some((slot, since)) = self.table.oldest() {
            if now.saturating_sub(since) < self.config.timer {
                break;
            }
            self.flush(slot, Cause::Timer, out);
        }
    }

    /// Sends a register and frees it.
    fn flush(&mut self, slot: u32, cause: Cause, out: &mut impl Output) {
        let key = self.table.key(slot);
        let node = (key >> 32) as u32;
        let flow_or_destination = key as u32;
        let kind = self.config.kind;
        let destination = match (kind.flow_scope(), self.config.spread) {
            (false, _) => flow_or_destination,
            (true, Spread::Flow) => self.destination(&Postcard {
                flow: flow_or_destination,
                ..Postcard::NOTHING
            }),
            (true, Spread::Node) => self.destination(&Postcard {
                node,
                ..Postcard::NOTHING
            }),
        };
        let count = self.table.register(slot).count;
        let bytes = if self.config.interop {
            self.send_group(slot, node, destination, out)
        } else {
            let node_scope = kind.node_scope().then_some(node);
            let flow_scope = kind.flow_scope().then_some(flow_or_destination);
            self.send_aggregate(slot, node_scope, flow_scope, destination, cause, out)
        };
        let sent = &mut self.stats.sent[cause as usize];
        sent.aggregates += 1;
        sent.postcards += u64::from(count);
        self.stats.sent_bytes += bytes as u64;
        self.table.release(slot);
    }

    fn send_aggregate(
        &mut self,
        slot: u32,
        node_scope: Option<u32>,
        flow_scope: Option<u32>,
        destination: u32,
        cause: Cause,
        out: &mut impl Output,
    ) -> usize {
        let sequence = self.sequence(destination);
        let register = *self.table.register(slot);
        let correlated = self.config.kind.is_correlated();
        let mut header = Header {
            kind: self.config.kind,
            by_timer: cause == Cause::Timer,
            packet_fields: self.config.has_packet_fields(),
            count: register.count as u16,
            record_len: if correlated {
                self.config.kind.record_len()
            } else {
                self.config.postcard_len()
            } as u16,
            aggregator: self.config.aggregator,
            sequence,
            node_scope,
            flow_scope,
        };
        if !correlated {
            let len = HEADER_LEN + register.count as usize * self.config.postcard_len();
            let bytes = &mut self.table.bytes(slot)[..len];
            header.emit(bytes);
            out.send(destination as usize, bytes);
            return len;
        }
        let mut bytes = [0; HEADER_LEN + 2 * SUMMARY_LEN];
        let mut len = HEADER_LEN;
        for summary in register.summaries() {
            summary.emit(&mut bytes[len..]);
            len += SUMMARY_LEN;
        }
        header.count = ((len - HEADER_LEN) / SUMMARY_LEN) as u16;
        header.emit(&mut bytes);
        out.send(destination as usize, &bytes[..len]);
        len
    }

    fn send_group(&mut self, slot: u32, node: u32, destination: u32, out: &mut impl Output) -> usize {
        let seq = self.stream_sequence(node, destination);
        let len = v20::GROUP_LEN + self.table.register(slot).count as usize * self.config.postcard_len();
        let bytes = &mut self.table.bytes(slot)[..len];
        v20::Group {
            hw_id: 0,
            seq,
            node_id: node,
        }
        .emit(bytes);
        out.send(destination as usize, bytes);
        len
    }

    fn sequence(&mut self, destination: u32) -> u32 {
        let Some(next) = self.sequences.get_mut(destination as usize) else {
            return 0;
        };
        let sequence = *next;
        *next = sequence.wrapping_add(1);
        sequence
    }

    /// Returns the next sequence number of a Report 2.0 group, which is numbered per node. If the table is full, another
    /// stream is replaced and restarts at 0, which a collector takes for a restart of the node.
    fn stream_sequence(&mut self, node: u32, destination: u32) -> u32 {
        let key = u64::from(node) << 32 | u64::from(destination);
        let first = wire::flow::crc_32c_of(key) as usize;
        let mut places = (0..MAX_PROBES).map(|probe| (first + probe) & (MAX_STREAMS - 1));
        let found = places.find(|at| {
            let other = self.streams[*at].0;
            other == key || other == table::FREE_KEY
        });
        let stream = &mut self.streams[found.unwrap_or(first & (MAX_STREAMS - 1))];
        if stream.0 != key {
            *stream = (key, 0);
        }
        let sequence = stream.1;
        stream.1 = (sequence + 1) & 0x003f_ffff;
        sequence
    }
}
