//! Counters of the RoCEv2 responder. They are conserved: see [`Stats::is_balanced`].

use wire::RefusalCounts;

wire::named! {
    /// The reason why a well-formed packet was not executed.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u8)]
    pub enum Reason, name {
        /// No queue pair has this number.
        UnknownQueuePair => "unknown_queue_pair",
        /// The source is not the queue pair's peer.
        WrongPeer => "wrong_peer",
        /// The opcode belongs to another transport service, or is not a request.
        WrongTransport => "wrong_transport",
        /// The queue pair is in the error state; the requester must reconnect.
        QueuePairInError => "queue_pair_in_error",
        /// RC: packets before this one are missing.
        Ahead => "ahead",
        /// UC: the message's first packet was lost or dropped.
        FirstMissing => "first_missing",
        /// The opcode is unsupported: read, compare-and-swap, or a send of several packets.
        BadOpcode => "bad_opcode",
        /// The opcode cannot follow the previous one.
        BadSequence => "bad_sequence",
        /// Payload or padding does not fit the opcode, the path MTU or the message's length.
        BadLength => "bad_length",
        /// No region has this R_Key.
        BadRkey => "bad_rkey",
        /// The region does not permit the access.
        AccessDenied => "access_denied",
        /// Some of the bytes lie outside the region.
        OutOfRange => "out_of_range",
        /// An atomic operation's address is not a multiple of eight.
        Misaligned => "misaligned",
        /// The receive queue is empty.
        NoReceive => "no_receive",
        /// The saved result of a duplicate atomic operation was overwritten.
        ResultOverwritten => "result_overwritten",
        /// Another responder executes this queue pair's packets.
        Offloaded => "offloaded",
    }
}

/// Counters since the responder started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Number of packets received.
    pub packets: u64,
    /// Number of packets executed.
    pub executed: u64,
    /// Duplicate packets, acknowledged again or answered from saved results.
    pub duplicates: u64,
    /// Malformed packets, indexed by [`Refusal::index`](wire::Refusal::index).
    pub refused: RefusalCounts,
    /// Dropped packets, indexed by [`Reason`].
    pub dropped: [u64; Reason::COUNT],
    /// Number of completed messages.
    pub messages: u64,
    /// Bytes written into memory.
    pub bytes: u64,
    /// Number of fetch-and-adds executed.
    pub fetch_adds: u64,
    /// Completions reported to the program: messages with an immediate value, and sends.
    pub completions: u64,
    /// Acknowledgements sent, except for atomic operations.
    pub acks: u64,
    /// Atomic acknowledgements sent, including repeated ones.
    pub atomic_acks: u64,
    /// NAKs sent: PSN sequence errors, RNR (receiver not ready), and fatal errors.
    pub naks: [u64; 3],
    /// UC: PSNs skipped because packets were lost or reordered.
    pub skipped: u64,
    /// UC: packets with a PSN before the expected one (reordered or duplicated). They are executed if they begin a message.
    pub out_of_order: u64,
    /// UC: the sum of the distances of these packets from the expected PSN. `skipped - out_of_order_by` is the number of
    /// missing packets minus the number of duplicates.
    pub out_of_order_by: u64,
    /// UC: messages that were never completed.
    pub abandoned: u64,
}

impl Stats {
    /// Returns whether every packet was executed, a duplicate, dropped or malformed.
    pub fn is_balanced(&self) -> bool {
        let lost: u64 = self.refused.iter().chain(&self.dropped).sum();
        self.packets == self.executed + self.duplicates + lost
    }
}

impl core::ops::AddAssign<&Self> for Stats {
    /// Adds the counters of another responder that shares the traffic.
    fn add_assign(&mut self, other: &Self) {
        // Names all fields, so that a new one cannot be forgotten.
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
