//! What a responder has counted. Everything adds up: see [`Stats::is_balanced`].

use wire::Refusal;

/// Why a good packet was not executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reason {
    /// There is no such queue pair.
    UnknownQueuePair,
    /// From another address than the queue pair's other end.
    WrongPeer,
    /// The opcode is of another transport than the queue pair, or an answer and no request.
    WrongTransport,
    /// The queue pair is in the error state: it must be connected again.
    QueuePairInError,
    /// Reliable: packets before it are missing.
    Ahead,
    /// Unreliable: a part of a message whose beginning was lost or refused.
    PartOfLost,
    /// The opcode is not one that is carried out here: reading, swapping, longer sends.
    BadOpcode,
    /// The opcode cannot follow the one before.
    BadSequence,
    /// Payload or padding is not what the opcode, the path MTU and the message's length ask for.
    BadLength,
    /// There is no region with this key.
    BadRkey,
    /// The region does not permit it.
    NoRight,
    /// Not wholly inside the region.
    OutOfRange,
    /// An atomic operation on an address that is no multiple of eight.
    Misaligned,
    /// The receive queue is empty.
    NoReceive,
    /// A repeated atomic operation whose result is no longer kept.
    Forgotten,
    /// The queue pair is with another responder, and the packet did not come there.
    Lent,
}

impl Reason {
    /// How many there are.
    pub const COUNT: usize = Self::Lent as usize + 1;
    /// All of them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::UnknownQueuePair,
        Self::WrongPeer,
        Self::WrongTransport,
        Self::QueuePairInError,
        Self::Ahead,
        Self::PartOfLost,
        Self::BadOpcode,
        Self::BadSequence,
        Self::BadLength,
        Self::BadRkey,
        Self::NoRight,
        Self::OutOfRange,
        Self::Misaligned,
        Self::NoReceive,
        Self::Forgotten,
        Self::Lent,
    ];

    /// The reason as a word, for counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownQueuePair => "unknown_queue_pair",
            Self::WrongPeer => "wrong_peer",
            Self::WrongTransport => "wrong_transport",
            Self::QueuePairInError => "queue_pair_in_error",
            Self::Ahead => "ahead",
            Self::PartOfLost => "part_of_lost",
            Self::BadOpcode => "bad_opcode",
            Self::BadSequence => "bad_sequence",
            Self::BadLength => "bad_length",
            Self::BadRkey => "bad_rkey",
            Self::NoRight => "no_right",
            Self::OutOfRange => "out_of_range",
            Self::Misaligned => "misaligned",
            Self::NoReceive => "no_receive",
            Self::Forgotten => "forgotten",
            Self::Lent => "lent",
        }
    }
}

/// Counters since the responder began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Packets taken.
    pub packets: u64,
    /// Packets executed.
    pub executed: u64,
    /// Packets that had been executed before and were only acknowledged or answered again.
    pub duplicates: u64,
    /// Packets that could not be read, by [`Refusal::index`].
    pub refused: [u64; Refusal::COUNT],
    /// Packets that were not executed, by [`Reason`].
    pub dropped: [u64; Reason::COUNT],
    /// Messages that were executed to their end.
    pub messages: u64,
    /// Bytes written into memory.
    pub bytes: u64,
    /// Additions made.
    pub fetch_adds: u64,
    /// Messages told to the program: immediates and sends.
    pub completions: u64,
    /// Acknowledgements sent; atomic ones apart.
    pub acks: u64,
    /// Atomic acknowledgements sent, repeated ones too.
    pub atomic_acks: u64,
    /// Negative acknowledgements sent: of the sequence, of a receiver that is not ready, of errors.
    pub naks: [u64; 3],
    /// Unreliable: numbers that were skipped, so packets lost or late.
    pub skipped: u64,
    /// Unreliable: packets with a number before the one expected, so late or repeated. Those that begin a message are executed.
    pub late: u64,
    /// Unreliable: by how much they were late. `skipped - stepped_back` is what is missing, less what came twice.
    pub stepped_back: u64,
    /// Unreliable: messages whose end never came.
    pub abandoned: u64,
}

impl Stats {
    /// Nothing counted.
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
        late: 0,
        stepped_back: 0,
        abandoned: 0,
    };

    /// Every packet was executed, repeated, dropped or refused.
    pub fn is_balanced(&self) -> bool {
        let lost: u64 = self.refused.iter().chain(&self.dropped).sum();
        self.packets == self.executed + self.duplicates + lost
    }
}

impl core::ops::AddAssign<&Self> for Stats {
    /// What two responders counted, of which each packet came to one.
    fn add_assign(&mut self, other: &Self) {
        // All fields are named, so that none is left out.
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
            late,
            stepped_back,
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
            (late, other.late),
            (stepped_back, other.stepped_back),
            (abandoned, other.abandoned),
        ];
        let by_reason = refused.iter_mut().zip(other.refused).chain(dropped.iter_mut().zip(other.dropped));
        let all = sums.into_iter().chain(by_reason).chain(naks.iter_mut().zip(other.naks));
        all.for_each(|(sum, more)| *sum += more);
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self::NEW
    }
}
