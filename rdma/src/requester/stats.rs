//! Counters of the links. They add up: see [`Stats::is_balanced`].

wire::named! {
    /// The reason why a link did not accept an operation.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u8)]
    pub enum Refused, name {
        /// The collector is not connected, or its connection is broken, and the operation is unreliable.
        Down => "down",
        /// Sending is paused at the collector's request.
        Paused => "paused",
        /// The outbox is full.
        OutboxFull => "outbox_full",
        /// The retransmit buffer is full.
        RetransmitFull => "retransmit_full",
        /// The collector has no such region.
        NoRegion => "no_region",
        /// Not wholly inside the region.
        OutOfRange => "out_of_range",
        /// A counter's address is not a multiple of eight.
        Misaligned => "misaligned",
        /// Longer than a message may be.
        TooLong => "too_long",
        /// A reliable operation, and the collector has no reliable queue pair.
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
        /// After a reconnect its region is gone, smaller or otherwise addressed, or has other memory.
        NoPlace => "no_place",
        /// An addition whose response was lost with the connection, under [`UncertainFetchAdds::GiveUp`].
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
        /// An acknowledgement of a PSN that was acknowledged before or never sent.
        Stale => "stale",
        /// NAK: packets are missing at the collector.
        SequenceError => "sequence_error",
        /// RNR NAK: no receive for an immediate value.
        ReceiverNotReady => "receiver_not_ready",
        /// NAK: the request is invalid.
        InvalidRequest => "invalid_request",
        /// NAK: remote access error.
        RemoteAccess => "remote_access",
        /// NAK: remote operational error.
        RemoteOperational => "remote_operational",
        /// Congestion notification packet (CNP).
        Congestion => "congestion",
        /// An opcode or syndrome that no responder sends.
        Unexpected => "unexpected",
        /// From another address than the collector's.
        WrongPeer => "wrong_peer",
        /// To an unknown queue pair.
        UnknownQueuePair => "unknown_queue_pair",
    }
}

/// Counters of one collector's link since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Unreliable operations accepted; their frames were built at once.
    pub unreliable: u64,
    /// Reliable operations accepted. An addition with an immediate value counts as two.
    pub reliable: u64,
    /// Additions among the reliable operations.
    pub fetch_adds: u64,
    /// Number of acknowledged reliable operations.
    pub acknowledged: u64,
    /// Reliable operations given up, by [`GivenUp`].
    pub given_up: [u64; GivenUp::ALL.len()],
    /// Reliable operations in the retransmit buffer now.
    pub unacknowledged: u64,
    /// Operations not accepted, by [`Refused`].
    pub refused: [u64; Refused::COUNT],
    /// Number of frames built.
    pub frames: u64,
    /// Bytes of these frames, Ethernet header included.
    pub bytes: u64,
    /// Frames among them that had been sent before.
    pub retransmitted: u64,
    /// Packets from the collector, by [`Response`].
    pub responses: [u64; Response::COUNT],
    /// Number of retransmission timeouts.
    pub timeouts: u64,
    /// Number of connections made.
    pub connections: u64,
    /// Number of connections that broke.
    pub broken: u64,
    /// Additions sent again after a connection broke before their response: each may be executed twice.
    pub uncertain_fetch_adds: u64,
    /// Immediate values likewise: each may be delivered twice.
    pub uncertain_immediates: u64,
}

impl Stats {
    /// Returns whether each reliable operation was acknowledged, was given up, or is unacknowledged.
    pub fn is_balanced(&self) -> bool {
        self.reliable == self.acknowledged + self.unacknowledged + self.given_up.iter().sum::<u64>()
    }
}
