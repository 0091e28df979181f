//! Counters of a responder. They add up: see [`Stats::is_balanced`].

use wire::Refusal;

/// The reason why a well-formed packet was not executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reason {
    /// There is no such queue pair.
    UnknownQueuePair,
    /// From another address than the queue pair's peer.
    WrongPeer,
    /// The opcode is of another transport than the queue pair, or not a request.
    WrongTransport,
    /// The queue pair is in the error state: the requester must reconnect.
    QueuePairInError,
    /// Reliable: packets before it are missing.
    Ahead,
    /// Unreliable: part of a message whose first packet is missing: lost or dropped.
    FirstMissing,
    /// Unsupported opcode: read, compare-and-swap, send of several packets.
    BadOpcode,
    /// The opcode cannot follow the previous one.
    BadSequence,
    /// Payload or padding does not match the opcode, the path MTU and the message's length.
    BadLength,
    /// No region has this R_Key.
    BadRkey,
    /// The region does not permit the access.
    AccessDenied,
    /// Not wholly inside the region.
    OutOfRange,
    /// Address of an atomic operation that is not a multiple of eight.
    Misaligned,
    /// The receive queue is empty.
    NoReceive,
    /// A duplicate atomic operation whose saved result was overwritten.
    ResultOverwritten,
    /// Another responder executes the queue pair's packets, but this one arrived here.
    Offloaded,
}

impl Reason {
    /// Number of the reasons.
    pub const COUNT: usize = Self::Offloaded as usize + 1;
    /// All reasons, by their index.
    pub const ALL: [Self; Self::COUNT] = [
        Self::UnknownQueuePair,
        Self::WrongPeer,
        Self::WrongTransport,
        Self::QueuePairInError,
        Self::Ahead,
        Self::FirstMissing,
        Self::BadOpcode,
        Self::BadSequence,
        Self::BadLength,
        Self::BadRkey,
        Self::AccessDenied,
        Self::OutOfRange,
        Self::Misaligned,
        Self::NoReceive,
        Self::ResultOverwritten,
        Self::Offloaded,
    ];

    /// Returns the reason as a word, for counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownQueuePair => "unknown_queue_pair",
            Self::WrongPeer => "wrong_peer",
            Self::WrongTransport => "wrong_transport",
            Self::QueuePairInError => "queue_pair_in_error",
            Self::Ahead => "ahead",
            Self::FirstMissing => "first_missing",
            Self::BadOpcode => "bad_opcode",
            Self::BadSequence => "bad_sequence",
            Self::BadLength => "bad_length",
            Self::BadRkey => "bad_rkey",
            Self::AccessDenied => "access_denied",
            Self::OutOfRange => "out_of_range",
            Self::Misaligned => "misaligned",
            Self::NoReceive => "no_receive",
            Self::ResultOverwritten => "result_overwritten",
            Self::Offloaded => "offloaded",
        }
    }
}

/// Counters since the responder started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Number of packets received.
    pub packets: u64,
    /// Number of packets executed.
    pub executed: u64,
    /// Duplicate packets, acknowledged again, or answered from saved results.
    pub duplicates: u64,
    /// Malformed packets, by [`Refusal::index`].
    pub refused: [u64; Refusal::COUNT],
    /// Dropped packets, by [`Reason`].
    pub dropped: [u64; Reason::COUNT],
    /// Number of completed messages.
    pub messages: u64,
    /// Bytes written into memory.
    pub bytes: u64,
    /// Number of additions executed.
    pub fetch_adds: u64,
    /// Completions for the program: messages with an immediate value, and sends.
    pub completions: u64,
    /// Acknowledgements sent, without those of atomic operations.
    pub acks: u64,
    /// Atomic acknowledgements sent, repeated ones too.
    pub atomic_acks: u64,
    /// Negative acknowledgements sent: of the sequence, of a receiver that is not ready, of errors.
    pub naks: [u64; 3],
    /// Unreliable: PSNs that were skipped: packets lost or reordered.
    pub skipped: u64,
    /// Unreliable: packets with a PSN before the expected one: reordered or duplicated. Those that begin a message are executed.
    pub out_of_order: u64,
    /// Unreliable: the sum of their distances from the expected PSN. `skipped - out_of_order_by` is the number of missing packets
    /// minus the number of duplicates.
    pub out_of_order_by: u64,
    /// Unreliable: messages that were never completed.
    pub abandoned: u64,
}

impl Stats {
    /// Counters that are all zero.
    pub const NEW: Self = Self {
        packets: 0,
        executed: 0,
        duplicates: 0,
        refused: [0; Refusal::COUNT],
        dropped: [0; Reason::COUNT],
        messages: 0,
        bytes: 0,
        fetch_adds: 0,
        completions: 0,
        acks: 0,
        atomic_acks: 0,
        naks: [0; 3],
        skipped: 0,
        out_of_order: 0,
        out_of_order_by: 0,
        abandoned: 0,
    };

    /// Returns whether every packet was executed, a duplicate, dropped or malformed.
    pub fn is_balanced(&self) -> bool {
        let lost: u64 = self.refused.iter().chain(&self.dropped).sum();
        self.packets == self.executed + self.duplicates + lost
    }
}

impl core::ops::AddAssign<&Self> for Stats {
    /// Sums the counters of two responders that share the packets.
    fn add_assign(&mut self, other: &Self) {
        // Names all fields, so that none is left out.
        let Self {
            packets,
            executed,
            duplicates,
            refused,
            dropped,
            messages,
            bytes,
            fetch_adds,
            completions,
            acks,
            atomic_acks,
            naks,
            skipped,
            out_of_order,
            out_of_order_by,
            abandoned,
        } = self;
        let sums = [
            (packets, other.packets),
            (executed, other.executed),
            (duplicates, other.duplicates),
            (messages, other.messages),
            (bytes, other.bytes),
            (fetch_adds, other.fetch_adds),
            (completions, other.completions),
            (acks, other.acks),
            (atomic_acks, other.atomic_acks),
            (skipped, other.skipped),
            (out_of_order, other.out_of_order),
            (out_of_order_by, other.out_of_order_by),
            (abandoned, other.abandoned),
        ];
        let by_reason = refused
            .iter_mut()
            .zip(other.refused)
            .chain(dropped.iter_mut().zip(other.dropped));
        let all = sums
            .into_iter()
            .chain(by_reason)
            .chain(naks.iter_mut().zip(other.naks));
        all.for_each(|(sum, more)| *sum += more);
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self::NEW
    }
}
