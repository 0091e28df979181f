//! Counters of a responder. They add up: see [`Stats::is_balanced`].

use wire::RefusalCounts;

wire::named! {
    /// The reason why a well-formed packet was not executed.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u8)]
    pub enum Reason, name {
        /// There is no such queue pair.
        UnknownQueuePair => "unknown_queue_pair",
        /// From another address than the queue pair's peer.
        WrongPeer => "wrong_peer",
        /// The opcode is of another transport than the queue pair, or not a request.
        WrongTransport => "wrong_transport",
        /// The queue pair is in the error state: the requester must reconnect.
        QueuePairInError => "queue_pair_in_error",
        /// Reliable: packets before it are missing.
        Ahead => "ahead",
        /// Unreliable: part of a message whose first packet is missing: lost or dropped.
        FirstMissing => "first_missing",
        /// Unsupported opcode: read, compare-and-swap, send of several packets.
        BadOpcode => "bad_opcode",
        /// The opcode cannot follow the previous one.
        BadSequence => "bad_sequence",
        /// Payload or padding does not match the opcode, the path MTU and the message's length.
        BadLength => "bad_length",
        /// No region has this R_Key.
        BadRkey => "bad_rkey",
        /// The region does not permit the access.
        AccessDenied => "access_denied",
        /// Not wholly inside the region.
        OutOfRange => "out_of_range",
        /// Address of an atomic operation that is not a multiple of eight.
        Misaligned => "misaligned",
        /// The receive queue is empty.
        NoReceive => "no_receive",
        /// A duplicate atomic operation whose saved result was overwritten.
        ResultOverwritten => "result_overwritten",
        /// Another responder executes the queue pair's packets, but this one arrived here.
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
    /// Duplicate packets, acknowledged again, or answered from saved results.
    pub duplicates: u64,
    /// Malformed packets, by [`Refusal::index`](wire::Refusal::index).
    pub refused: RefusalCounts,
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
