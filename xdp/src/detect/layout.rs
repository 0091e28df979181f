//! The Rust side of the memory layouts that detection in the kernel shares with user space (`tables.h`, `detect.h`): field
//! offsets, hash functions, and records of the ring buffer.

use detect::{Detection, Match, Metric, Prefix, Table};
use wire::{FlowKey, Refusal, RefusalCounts};

use crate::bytes::{array_at, put, u16_at, u32_at, u64_at};

/// Entries in a bucket of the flow table.
pub(crate) const WAYS: usize = 8;
/// Slots in a bucket of the tables of queues and links.
pub(crate) const METRIC_WAYS: usize = 4;
/// Bytes of `struct prefix`.
pub(crate) const PREFIX_LEN: usize = 24;
/// Number of slots that a search for a stream visits.
pub(crate) const STREAM_WINDOW: usize = 8;
/// Maximum number of hops stored per flow.
pub const FLOW_HOPS: usize = 16;
/// Bytes of a record before its frame.
pub(crate) const RECORD_HEADER: usize = 64;
/// Thresholds saturate here, far above every value, so that the kernel can add two of them without overflow.
const MAX_THRESHOLD: u64 = 1 << 62;

/// Offsets in `struct control`.
pub(crate) mod control {
    /// Generation in the low half, `WATCHED_*` flags in the high half.
    pub(crate) const GENERATION: usize = 0;
    pub(crate) const SLEEPING: usize = 8;
    pub(crate) const SEQUENCE: usize = 12;
    pub(crate) const PREFIXES: usize = 16;
    pub(crate) const PORTS: usize = 20;
    pub(crate) const LISTENERS: usize = 40;
    pub(crate) const LEN: usize = 56;
    pub(crate) const WATCHED_TABLE: u32 = 1;
    pub(crate) const WATCHED_USER: u32 = 2;
}

/// Offsets in `struct flow`.
pub(crate) mod flow {
    pub(crate) const VERSION: usize = 40;
    /// Path length, number of stored hops, flags and basis (one byte each), then the number of reports.
    pub(crate) const SMALL: usize = 48;
    pub(crate) const REPORTED: usize = 56;
    pub(crate) const LATEST: usize = 64;
    pub(crate) const LEVEL_2: usize = 72;
    pub(crate) const HOPS: usize = 112;
    /// Hops in the flow's entry; the others are in the map `far_hops`.
    pub(crate) const NEAR_HOPS: usize = 6;
    pub(crate) const HOP_LEN: usize = 24;
    pub(crate) const LEN: usize = 256;
}

/// Offsets in `struct metric_slot`.
pub(crate) mod slot {
    pub(crate) const KEY: usize = 0;
    pub(crate) const REPORTED: usize = 8;
    pub(crate) const LATEST: usize = 16;
    pub(crate) const REPORTS: usize = 24;
    pub(crate) const LEN: usize = 32;
}

/// Offsets in `struct stream`.
pub(crate) mod stream {
    pub(crate) const KEY: usize = 0;
    pub(crate) const SOURCE: usize = 8;
    pub(crate) const WORD: usize = 24;
    pub(crate) const USED: usize = 32;
    pub(crate) const LEN: usize = 64;
    pub(crate) const NODELESS: u64 = 1 << 63;
    pub(crate) const SAME: u64 = 1 << 31;
}

/// The reasons why a datagram was passed to user space, a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reason(pub u32);

impl Reason {
    /// The datagram has a significant change, or changes the state with which later reports are compared.
    pub const CHANGE: Self = Self(1);
    /// The sequence number was not the expected one.
    pub const SEQUENCE: Self = Self(2);
    /// A rule becomes true or false, or a rule that runs in user space needs it.
    pub const RULE: Self = Self(4);
    /// The rules in user space have changed and need the flow, or its reports do not fit into the kernel's table.
    pub const PENDING: Self = Self(8);
    /// The kernel program could not decide.
    pub const UNDECIDED: Self = Self(16);
    /// The datagram reports a dropped packet.
    pub const DROP: Self = Self(32);
    /// [`Record::stream_latest`] and [`Record::stream_count`] are valid.
    pub const STREAM: Self = Self(128);
    /// The suppressed numbers before it were all equal to [`Record::stream_latest`].
    pub const SAME: Self = Self(256);

    /// Returns true if it has any bit of `other`.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// A datagram that was passed to user space, as a record of the ring buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Time at which the record was written, monotonic clock, ns.
    pub ktime: u64,
    /// Slot of its stream; `None` if its sequence number is not tracked.
    pub stream: Option<u32>,
    /// Number of datagrams of its stream that were suppressed before it, modulo 2^31.
    pub stream_count: u32,
    /// Sequence number of the last suppressed datagram.
    pub stream_latest: u32,
    /// The reasons why it was passed to user space.
    pub why: Reason,
    /// Receive queue of the interface.
    pub rx_queue: u32,
    /// Index of the receiving interface.
    pub ifindex: u32,
    /// Number of the listener to which its port belongs.
    pub listener: u16,
    /// Generation of thresholds and rules under which it was passed; see [`crate::Tables::generation`].
    pub generation: u32,
    /// The frame from its Ethernet header on.
    pub frame: &'a [u8],
    /// The UDP payload in the frame.
    pub payload: &'a [u8],
}

impl<'a> Record<'a> {
    /// Parses a record, or returns `None` if it is malformed.
    pub fn read(record: &'a [u8]) -> Option<Self> {
        let (head, rest) = record.split_first_chunk::<RECORD_HEADER>()?;
        let frame = rest.get(..u32_at(head, 16) as usize)?;
        let at = usize::from(u16_at(head, 38));
        Some(Self {
            ktime: u64_at(head, 0),
            stream: Some(u32_at(head, 48)).filter(|slot| *slot != u32::MAX),
            stream_count: u64_at(head, 8) as u32,
            why: Reason(u32_at(head, 20)),
            stream_latest: u32_at(head, 24),
            rx_queue: u32_at(head, 28),
            ifindex: u32_at(head, 32),
            listener: u16_at(head, 36),
            generation: u32_at(head, 52),
            frame,
            payload: frame.get(at..at + usize::from(u16_at(head, 40)))?,
        })
    }
}

/// The counters of the kernel program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Datagrams that were suppressed.
    pub datagrams: u64,
    /// Datagrams among them that were suppressed on the fast path.
    pub fast_path: u64,
    /// Datagrams among them with a readable report.
    pub accepted: u64,
    /// Reports in the accepted datagrams.
    pub reports: u64,
    /// Reports among them that updated a flow.
    pub flow_reports: u64,
    /// Reports among them that only updated values of nodes.
    pub node_reports: u64,
    /// Datagrams that were passed to user space.
    pub to_user: u64,
    /// Datagrams lost because the ring buffer was full.
    pub ring_full: u64,
    /// Datagrams lost because another CPU held the lock for too long.
    pub contended: u64,
    /// Datagrams passed to user space because the program could not decide.
    pub undecided: u64,
    /// Reports of flows for which the table had no room.
    pub flows_full: u64,
    /// Values of queues and links for which the tables had no room.
    pub node_metrics_full: u64,
    /// Datagrams of numbered streams for which the table had no room.
    pub streams_full: u64,
    /// Refused reports, by [`Refusal::index`].
    pub refused: RefusalCounts,
    /// Datagrams without a readable report, by the first refusal.
    pub refused_datagrams: RefusalCounts,
    /// Frames to telemetry ports without a datagram in them, by the first refusal.
    pub refused_frames: RefusalCounts,
    /// Frames left to the network stack: by refusal, then to other ports, too long, unreadable.
    pub passed: [u64; Refusal::IN_KERNEL + 3],
}

impl Counters {
    /// Words in a value of the map.
    pub const LEN: usize = Self::WORDS + 4 * Refusal::IN_KERNEL + 3;
    /// Words before the counters by refusal.
    const WORDS: usize = 13;

    /// Reads the counters from the sums over all CPUs.
    pub fn read(sums: &[u64; Self::LEN]) -> Self {
        let (words, by_refusal) = sums.split_at(Self::WORDS);
        let (by_refusal, passed) = by_refusal.split_at(3 * Refusal::IN_KERNEL);
        let fast_path = words[0];
        Self {
            datagrams: words[1] + fast_path,
            fast_path,
            accepted: words[2] + fast_path,
            reports: words[3] + fast_path,
            flow_reports: words[4] + fast_path,
            node_reports: words[5],
            to_user: words[6],
            ring_full: words[7],
            contended: words[8],
            undecided: words[9],
            flows_full: words[10],
            node_metrics_full: words[11],
            streams_full: words[12],
            refused: refusals(by_refusal, 0),
            refused_datagrams: refusals(by_refusal, 1),
            refused_frames: refusals(by_refusal, 2),
            passed: std::array::from_fn(|at| passed[at]),
        }
    }
}

/// Returns the counters of the refusals that the kernel counts, from this group; zeros for all others.
fn refusals(by_refusal: &[u64], group: usize) -> RefusalCounts {
    let mut counts = RefusalCounts::default();
    counts[..Refusal::IN_KERNEL]
        .copy_from_slice(&by_refusal[group * Refusal::IN_KERNEL..][..Refusal::IN_KERNEL]);
    counts
}

/// Offsets in `struct detection`: thresholds, overrides, and the rules that the kernel evaluates.
pub(crate) mod detection {
    use super::Table;

    pub(crate) const OVERRIDES_USED: usize = 48;
    pub(crate) const USER_METRICS: usize = 52;
    /// A rule in user space needs every report of its flow.
    pub(crate) const USER_EVERY: u32 = 1 << 31;
    pub(crate) const RULES: usize = 56;
    pub(crate) const OVERRIDES: usize = RULES + Table::BYTES;
    pub(crate) const OVERRIDE_LEN: usize = 128;
    pub(crate) const LEN: usize = OVERRIDES + detect::threshold::MAX_OVERRIDES * OVERRIDE_LEN;
}

/// Encodes thresholds and rules as the kernel reads them.
pub(crate) fn encode(what: &Detection, split: &detect::Split) -> Vec<u8> {
    let mut out = vec![0; detection::LEN];
    for (metric, value) in what.thresholds.defaults().iter().enumerate() {
        put(&mut out, metric * 8, &value.min(&MAX_THRESHOLD).to_ne_bytes());
    }
    let overrides = what.thresholds.overrides();
    put(
        &mut out,
        detection::OVERRIDES_USED,
        &(overrides.len() as u32).to_ne_bytes(),
    );
    let every = if split.user_needs_all {
        detection::USER_EVERY
    } else {
        0
    };
    put(
        &mut out,
        detection::USER_METRICS,
        &(u32::from(split.user_metrics) | every).to_ne_bytes(),
    );
    put(&mut out, detection::RULES, &split.table.to_bytes());
    let entries = out[detection::OVERRIDES..].chunks_exact_mut(detection::OVERRIDE_LEN);
    for (entry, (flows, values)) in entries.zip(overrides) {
        encode_override(entry, flows, values);
    }
    out
}

fn encode_override(out: &mut [u8], flows: &Match, values: &detect::threshold::Override) {
    encode_prefix(&mut out[..32], flows.src);
    encode_prefix(&mut out[32..64], flows.dst);
    for (at, range) in [(64, flows.src_port), (68, flows.dst_port)] {
        let (first, last) = range.bounds();
        put(out, at, &first.to_ne_bytes());
        put(out, at + 2, &last.to_ne_bytes());
    }
    put(out, 72, &flows.proto.map_or(u16::MAX, u16::from).to_ne_bytes());
    out[74] = u8::from(flows.src.is_some_and(|prefix| prefix.is_v6()));
    out[75] = u8::from(flows.dst.is_some_and(|prefix| prefix.is_v6()));
    let mut given = 0_u32;
    for (metric, value) in values.iter().enumerate() {
        given |= u32::from(value.is_some()) << metric;
        put(
            out,
            80 + 8 * metric,
            &value.unwrap_or(0).min(MAX_THRESHOLD).to_ne_bytes(),
        );
    }
    put(out, 76, &given.to_ne_bytes());
}

/// Encodes network and mask; the mask stays zero without a prefix.
fn encode_prefix(out: &mut [u8], prefix: Option<Prefix>) {
    let Some(prefix) = prefix else { return };
    let (network, bits) = wide(&prefix);
    put(out, 0, &network);
    let mask = if bits == 0 { 0 } else { u128::MAX << (128 - bits) };
    put(out, 16, &mask.to_be_bytes());
}

/// Returns the network's first address with IPv4 mapped into IPv6, and the prefix length in bits of that form.
pub(crate) fn wide(prefix: &Prefix) -> ([u8; 16], u32) {
    let octets = match prefix.network() {
        std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        std::net::IpAddr::V6(v6) => v6.octets(),
    };
    (
        octets,
        u32::from(prefix.len()) + if prefix.is_v6() { 0 } else { 96 },
    )
}

/// Converts a flow key to the form that the kernel compares.
pub(crate) fn key_words(key: &FlowKey) -> [u64; 5] {
    let [src, dst] = [key.src_octets(), key.dst_octets()].map(|octets| {
        let (halves, _) = octets.as_chunks::<8>();
        [u64::from_ne_bytes(halves[0]), u64::from_ne_bytes(halves[1])]
    });
    let (src_port, dst_port) = key.ports().unwrap_or((0, 0));
    let kind = u64::from(key.is_v6()) | u64::from(key.ports().is_some()) << 1;
    let tail = u64::from(src_port) | u64::from(dst_port) << 16 | u64::from(key.proto()) << 32 | kind << 40;
    [src[0], src[1], dst[0], dst[1], tail]
}

/// Converts a flow key from the kernel's form.
pub(crate) fn key_of(words: [u64; 5]) -> FlowKey {
    let [src, dst] = [[words[0], words[1]], [words[2], words[3]]].map(|halves| {
        let mut octets = [0; 16];
        put(&mut octets, 0, &halves[0].to_ne_bytes());
        put(&mut octets, 8, &halves[1].to_ne_bytes());
        octets
    });
    let [src_port, dst_port] = [words[4] as u16, (words[4] >> 16) as u16];
    let proto = (words[4] >> 32) as u8;
    let kind = words[4] >> 40;
    let ports = (kind & 2 != 0).then_some((src_port, dst_port));
    if kind & 1 != 0 {
        FlowKey::v6(src, dst, ports, proto)
    } else {
        FlowKey::v4(array_at(&src, 12), array_at(&dst, 12), ports, proto)
    }
}

/// The hash functions of `tables.h`, under the seed with which the object was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seed(pub(crate) u32);

fn mix(a: u64, b: u64) -> u64 {
    let a = (a ^ b).wrapping_mul(0xff51_afd7_ed55_8ccd);
    a ^ a >> 32
}

/// Scales `hash` to an index below `size`.
fn scale(hash: u32, size: usize) -> usize {
    ((u64::from(hash) * size as u64) >> 32) as usize
}

impl Seed {
    fn flow(self, key: &[u64; 5]) -> u64 {
        let start = u64::from(self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = mix(mix(mix(start, key[1]), key[3]), key[4]);
        if key[0] | key[2] == 0 {
            hash
        } else {
            mix(mix(hash, key[0]), key[2])
        }
    }

    /// Returns the two buckets of a flow.
    pub(crate) fn flow_buckets(self, key: &[u64; 5], size: usize) -> [usize; 2] {
        let hash = self.flow(key);
        [scale((hash >> 32) as u32, size), scale(hash as u32, size)]
    }

    /// Returns the two buckets of a node's value.
    pub(crate) fn metric_buckets(self, key: u64, size: usize) -> [usize; 2] {
        let hash = (key ^ u64::from(self.0) << 20).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let other = (hash ^ hash >> 29).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        [
            scale((hash >> 32) as u32, size * METRIC_WAYS) / METRIC_WAYS,
            scale((other >> 32) as u32, size),
        ]
    }

    /// Returns the first slot to search for a stream.
    pub(crate) fn stream(self, key: u64, source: [u64; 2], slots: usize) -> usize {
        scale(
            mix(mix(mix(u64::from(self.0), key), source[0]), source[1]) as u32,
            slots,
        )
    }
}

const _: () = assert!(size_of::<FlowKey>() == 38);
const _: () = assert!(Metric::COUNT == 6 && Metric::LinkUtilization as usize == 5);
