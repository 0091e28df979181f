//! The Rust side of the memory layouts that the RoCEv2 responder in the kernel shares with user space (`rdma/tables.h`).

use rdma::responder::{AccessFlags, Order, QueuePairConfig, Reason, Registered, Stats};
use wire::Refusal;
use wire::roce::{AETH_LEN, ATOMIC_ACK_LEN, Aeth, ICRC_LEN, Psn, Syndrome, Transport, Writer};

/// Bytes of a chunk of the memory, which is one element of its map.
pub(super) const CHUNK: u64 = 1 << 20;
/// The largest path MTU supported, bytes.
pub(super) const MAX_PAYLOAD: u32 = 2048;
/// Number of slots for queue pairs; the low bits of a queue pair number select one.
pub(super) const MAX_QUEUE_PAIRS: usize = 4096;
/// Number of slots for regions; the low bits of an rkey select one.
pub(super) const MAX_REGIONS: usize = 256;
/// Number of results of atomic operations stored per queue pair.
pub(super) const SAVED_ATOMICS: usize = 128;
/// Refusals in the order of `enum roce_refusal`.
const REFUSALS: [Refusal; 7] = [
    Refusal::BadIpHeader,
    Refusal::BadUdpLength,
    Refusal::BadRoceLength,
    Refusal::Truncated,
    Refusal::BadIcrc,
    Refusal::BadTransportVersion,
    Refusal::BadPartitionKey,
];
/// Number of counters of packets in `struct rdma_counters`: the fields before `refused`.
const PACKET_COUNTERS: usize = 18;
/// Number of counters of refusals (`ROCE_REFUSALS_KEPT`); the last ones are unused.
const REFUSAL_COUNTERS: usize = 8;
/// Number of reasons that only the kernel program has; they follow [`REASONS`].
const KERNEL_REASONS: usize = 2;
/// Number of words in `struct rdma_counters`.
pub(super) const COUNTERS: usize = PACKET_COUNTERS + REFUSAL_COUNTERS + REASONS.len() + KERNEL_REASONS;

/// A C structure that is written field by field.
struct Layout(Vec<u8>);

impl Layout {
    fn of(size: usize) -> Self {
        Self(vec![0; size])
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(field) = self.0.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_ne_bytes());
    }

    fn u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_ne_bytes());
    }
}

/// Offsets in `struct region`.
pub(super) mod region {
    pub(in crate::rdma) const RKEY: usize = 0;
    pub(super) const FLAGS: usize = 4;
    pub(super) const ADDRESS: usize = 8;
    pub(super) const LEN: usize = 16;
    pub(super) const START: usize = 24;
    pub(super) const NUMBER: usize = 32;
    pub(super) const SIZE: usize = 64;
    pub(super) const WRITE: u32 = 1;
    pub(super) const ATOMIC: u32 = 2;
    pub(super) const HEAD_LAST: u32 = 4;
}

/// Encodes `struct region` without its rkey, which is stored last to publish the entry.
pub(super) fn region(
    registered: &Registered,
    start: u64,
    access: AccessFlags,
    order: Order,
    number: u16,
) -> Vec<u8> {
    let flags = [
        (access.write, region::WRITE),
        (access.atomic, region::ATOMIC),
        (order == Order::HeadLast, region::HEAD_LAST),
    ];
    let mut entry = Layout::of(region::SIZE);
    entry.u32(
        region::FLAGS,
        flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum(),
    );
    entry.u64(region::ADDRESS, registered.address);
    entry.u64(region::LEN, registered.len);
    entry.u64(region::START, start);
    entry.u32(region::NUMBER, number.into());
    entry.0
}

/// Offsets in `struct queue_pair`.
pub(super) mod queue_pair {
    pub(in crate::rdma) const NUMBER: usize = 0;
    pub(in crate::rdma) const LOCK: usize = 4;
    pub(super) const FLAGS: usize = 8;
    pub(super) const MTU: usize = 12;
    pub(in crate::rdma) const RECEIVES: usize = 16;
    pub(in crate::rdma) const EXPECTED: usize = 20;
    pub(in crate::rdma) const ERROR: usize = 28;
    pub(super) const PEER: usize = 64;
    pub(super) const SIZE: usize = 128;
    pub(super) const RELIABLE: u32 = 1;
    pub(super) const V6: u32 = 2;
}

/// Encodes `struct queue_pair` without its number, which is stored last to publish the entry.
pub(super) fn queue_pair(config: &QueuePairConfig) -> Vec<u8> {
    let mut entry = Layout::of(queue_pair::SIZE);
    let reliable = if config.transport == Transport::Rc {
        queue_pair::RELIABLE
    } else {
        0
    };
    let v6 = if config.path.destination.is_ipv6() {
        queue_pair::V6
    } else {
        0
    };
    entry.u32(queue_pair::FLAGS, reliable | v6);
    entry.u32(queue_pair::MTU, config.mtu);
    entry.u32(queue_pair::RECEIVES, config.receives);
    entry.u32(queue_pair::EXPECTED, config.psn.value());
    match config.path.destination {
        std::net::IpAddr::V4(peer) => entry.put(queue_pair::PEER, &peer.octets()),
        std::net::IpAddr::V6(peer) => entry.put(queue_pair::PEER, &peer.octets()),
    }
    entry.0
}

/// Encodes an empty `struct saved_atomics`; all ones mean "no PSN".
pub(super) fn saved_atomics() -> Vec<u8> {
    const PSN: usize = 8 * SAVED_ATOMICS;
    const SIZE: usize = 12 * SAVED_ATOMICS + 8;
    let mut entry = Layout::of(SIZE);
    entry.put(PSN, &[0xff; 4 * SAVED_ATOMICS]);
    entry.0
}

/// Encodes `struct response_templates`: templates of a plain and an atomic acknowledgement to UDP port `port`, in which the
/// program fills in the last bytes. Returns `None` if the path's addresses are of different families.
pub(super) fn response_templates(config: &QueuePairConfig, port: u16) -> Option<Vec<u8>> {
    /// Size of a template, bytes.
    const MAX_RESPONSE: usize = 96;
    // Offsets in the struct after the two templates, and its size.
    const LEN: usize = 2 * MAX_RESPONSE;
    const ICRC: usize = LEN + 8;
    const BACK: usize = ICRC + 8;
    const SIZE: usize = 256;
    /// Bytes that the program fills in before the ICRC: the PSN and the AETH, and of an atomic one also the result.
    const ACK_TAIL: usize = 4 + AETH_LEN;
    const ATOMIC_ACK_TAIL: usize = ACK_TAIL + ATOMIC_ACK_LEN;
    /// Distance from the UDP destination port to the end of the UDP header, bytes.
    const PORT_TO_PAYLOAD: usize = 6;
    let mut entry = Layout::of(SIZE);
    if config.transport == Transport::Uc {
        return Some(entry.0);
    }
    let mut writer = Writer::new(config.path, config.transport, config.peer).ok()?;
    entry.u32(BACK, u32::from(config.path.destination_mac == [0; 6]));
    let zero = Psn::new(0);
    let aeth = Aeth {
        syndrome: Syndrome::ACK,
        msn: 0,
    };
    let mut plain = [0; MAX_RESPONSE];
    let plain_len = writer.acknowledge(&mut plain, zero, aeth).ok()?;
    let mut atomic = [0; MAX_RESPONSE];
    let atomic_len = writer.atomic_ack(&mut atomic, zero, 0, 0).ok()?;
    let templates = [
        (plain, plain_len, ACK_TAIL),
        (atomic, atomic_len, ATOMIC_ACK_TAIL),
    ];
    for (index, (frame, len, tail)) in templates.iter().enumerate() {
        entry.put(index * MAX_RESPONSE, frame);
        // The ICRC covers RoCEv2's own port, so the port is set after the checksum, as if a socket sent the response.
        let port_at = config.path.headers_len() - PORT_TO_PAYLOAD;
        entry.put(index * MAX_RESPONSE + port_at, &port.to_be_bytes());
        entry.u32(LEN + 4 * index, *len as u32);
        entry.u32(ICRC + 4 * index, crc_before(&frame[..*len], *tail)?);
    }
    Some(entry.0)
}

/// Returns the CRC state of a frame before the last `tail_len` bytes that the ICRC covers, computed backwards from the final ICRC.
/// `None` if the frame is too short.
fn crc_before(frame: &[u8], tail_len: usize) -> Option<u32> {
    // CRC-32 of IEEE 802.3, reflected.
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let (covered, icrc) = frame.split_last_chunk::<ICRC_LEN>()?;
    let (_, tail) = covered.split_at_checked(covered.len().checked_sub(tail_len)?)?;
    Some(tail.iter().rev().fold(!u32::from_le_bytes(*icrc), |crc, byte| {
        // Undoes one bit at a time: its highest bit tells whether the polynomial was added.
        let register = (0..8).fold(crc, |crc, _| match crc >> 31 {
            1 => (crc ^ POLYNOMIAL) << 1 | 1,
            _ => crc << 1,
        });
        register ^ u32::from(*byte)
    }))
}

/// Reasons in the order of `enum reason`; two reasons that only the program has follow these.
const REASONS: [Reason; 15] = [
    Reason::UnknownQueuePair,
    Reason::WrongPeer,
    Reason::WrongTransport,
    Reason::QueuePairInError,
    Reason::Ahead,
    Reason::FirstMissing,
    Reason::BadOpcode,
    Reason::BadSequence,
    Reason::BadLength,
    Reason::BadRkey,
    Reason::AccessDenied,
    Reason::OutOfRange,
    Reason::Misaligned,
    Reason::NoReceive,
    Reason::ResultOverwritten,
];

/// The counters of the kernel program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// The statistics that a responder in user space also has.
    pub stats: Stats,
    /// Packets dropped because another CPU held the queue pair's lock for too long.
    pub contended: u64,
    /// Packets dropped because their payload is longer than any supported path MTU.
    pub too_long: u64,
    /// Responses not sent because the frame had no room for them.
    pub responses_unsent: u64,
    /// Frames to the RoCEv2 port that were left to the stack, because they are for other queue pairs. Not counted as packets.
    pub passed: u64,
}

impl Counted {
    /// Returns true if each packet was executed, a duplicate, dropped or refused.
    pub fn is_balanced(&self) -> bool {
        let mut stats = self.stats;
        stats.packets = stats.packets.wrapping_sub(self.contended + self.too_long);
        stats.is_balanced()
    }

    /// Reads the words of `struct rdma_counters`.
    pub(super) fn of(words: &[u64; COUNTERS]) -> Self {
        let [
            packets,
            executed,
            duplicates,
            messages,
            bytes,
            fetch_adds,
            completions,
            acks,
            atomic_acks,
            rest @ ..,
        ] = words;
        let [
            sequence_error_naks,
            receiver_not_ready_naks,
            other_naks,
            skipped,
            out_of_order,
            out_of_order_by,
            abandoned,
            responses_unsent,
            passed,
            rest @ ..,
        ] = rest;
        let (refused, dropped) = rest.split_at(REFUSAL_COUNTERS);
        let mut stats = Stats {
            packets: *packets,
            executed: *executed,
            duplicates: *duplicates,
            messages: *messages,
            bytes: *bytes,
            fetch_adds: *fetch_adds,
            completions: *completions,
            acks: *acks,
            atomic_acks: *atomic_acks,
            naks: [*sequence_error_naks, *receiver_not_ready_naks, *other_naks],
            skipped: *skipped,
            out_of_order: *out_of_order,
            out_of_order_by: *out_of_order_by,
            abandoned: *abandoned,
            ..Stats::default()
        };
        for (refusal, count) in REFUSALS.iter().zip(refused) {
            stats.refused[refusal.index()] = *count;
        }
        for (reason, count) in REASONS.iter().zip(dropped) {
            stats.dropped[*reason as usize] = *count;
        }
        let [contended, too_long] = *dropped.last_chunk().unwrap_or(&[0; KERNEL_REASONS]);
        Self {
            stats,
            contended,
            too_long,
            responses_unsent: *responses_unsent,
            passed: *passed,
        }
    }
}
