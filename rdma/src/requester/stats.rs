//! Counters of the requester's links. They are conserved: see [`Stats::is_balanced`].

wire::named! {
    /// The reason why a link did not accept an operation.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u8)]
    pub enum Refused, name {
        /// The collector is not connected. Reliable operations are refused only before the first connection.
        Down => "down",
        /// Sending is paused after congestion or a loss.
        Paused => "paused",
        /// The outbox is full.
        OutboxFull => "outbox_full",
        /// The retransmit buffer is full.
        RetransmitFull => "retransmit_full",
        /// The collector has no such region.
        NoRegion => "no_region",
        /// Some of the bytes lie outside the region.
        OutOfRange => "out_of_range",
        /// The counter's address is not a multiple of eight.
        Misaligned => "misaligned",
        /// The data exceeds the maximum message length.
        TooLong => "too_long",
        /// The operation is reliable, but the collector has no reliable queue pair.
        NoReliable => "no_reliable",
    }
}

wire::named! {
    /// The reason why a reliable operation was given up.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u8)]
    pub enum GivenUp, name {
        /// The collector refused it on two connections.
        RefusedTwice => "refused_twice",
        /// The region is gone after a reconnect, or it is now smaller or has other memory.
        NoPlace => "no_place",
        /// A fetch-and-add whose response was lost with the connection, under [`UncertainFetchAdds::GiveUp`].
        ///
        /// [`UncertainFetchAdds::GiveUp`]: super::UncertainFetchAdds::GiveUp
        Uncertain => "uncertain",
    }
}

wire::named! {
    /// The kind of a packet from a collector.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u8)]
    pub enum Response, name {
        /// An acknowledgement that advances the link.
        Ack => "ack",
        /// An acknowledgement of a PSN that is already acknowledged or was never sent.
        Stale => "stale",
        /// NAK: the collector is missing packets.
        SequenceError => "sequence_error",
        /// RNR NAK: the receive queue has no entry for an immediate value.
        ReceiverNotReady => "receiver_not_ready",
        /// NAK: the request is invalid.
        InvalidRequest => "invalid_request",
        /// NAK: remote access error.
        RemoteAccess => "remote_access",
        /// NAK: remote operational error.
        RemoteOperational => "remote_operational",
        /// Congestion notification packet (CNP).
        Congestion => "congestion",
        /// An opcode or syndrome that a responder never sends.
        Unexpected => "unexpected",
        /// The source is not the collector's address.
        WrongPeer => "wrong_peer",
        /// The destination is an unknown queue pair.
        UnknownQueuePair => "unknown_queue_pair",
    }
}

/// Counters of one collector's link since creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Unreliable operations accepted; their frames were built at once.
    pub unreliable: u64,
    /// Reliable operations accepted. A fetch-and-add with an immediate value counts as two.
    pub reliable: u64,
    /// Fetch-and-adds among the reliable operations.
    pub fetch_adds: u64,
    /// Number of acknowledged reliable operations.
    pub acknowledged: u64,
    /// Reliable operations given up, indexed by [`GivenUp`].
    pub given_up: [u64; GivenUp::ALL.len()],
    /// Reliable operations in the retransmit buffer now.
    pub unacknowledged: u64,
    /// Operations refused, indexed by [`Refused`].
    pub refused: [u64; Refused::COUNT],
    /// Number of frames built.
    pub frames: u64,
    /// Bytes of these frames, including Ethernet headers.
    pub bytes: u64,
    /// Retransmitted frames among them.
    pub retransmitted: u64,
    /// Packets from the collector, indexed by [`Response`].
    pub responses: [u64; Response::COUNT],
    /// Number of retransmission timeouts.
    pub timeouts: u64,
    /// Number of connections established.
    pub connections: u64,
    /// Number of connections that broke.
    pub broken: u64,
    /// Fetch-and-adds sent again after a connection broke before their response. Each may be executed twice.
    pub uncertain_fetch_adds: u64,
    /// Immediate values sent again after a connection broke. Each may be delivered twice.
    pub uncertain_immediates: u64,
}

impl Stats {
    /// Returns whether each reliable operation was acknowledged, was given up, or is unacknowledged.
    pub fn is_balanced(&self) -> bool {
        self.reliable == self.acknowledged + self.unacknowledged + self.given_up.iter().sum::<u64>()
    }
}
