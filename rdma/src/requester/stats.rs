//! Counters of the links. They add up: see [`Stats::is_balanced`].

/// The reason why a link did not accept an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Refused {
    /// The collector is not connected, or its connection is broken, and the operation is unreliable.
    Down,
    /// Sending is paused at the collector's request.
    Paused,
    /// The outbox is full.
    OutboxFull,
    /// The retransmit buffer is full.
    RetransmitFull,
    /// The collector has no such region.
    NoRegion,
    /// Not wholly inside the region.
    OutOfRange,
    /// A counter's address is not a multiple of eight.
    Misaligned,
    /// Longer than a message may be.
    TooLong,
    /// A reliable operation, and the collector has no reliable queue pair.
    NoReliable,
}

impl Refused {
    /// Number of the reasons.
    pub const COUNT: usize = Self::NoReliable as usize + 1;
    /// All reasons, by their index.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Down,
        Self::Paused,
        Self::OutboxFull,
        Self::RetransmitFull,
        Self::NoRegion,
        Self::OutOfRange,
        Self::Misaligned,
        Self::TooLong,
        Self::NoReliable,
    ];

    /// Returns the reason as a word, for counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Paused => "paused",
            Self::OutboxFull => "outbox_full",
            Self::RetransmitFull => "retransmit_full",
            Self::NoRegion => "no_region",
            Self::OutOfRange => "out_of_range",
            Self::Misaligned => "misaligned",
            Self::TooLong => "too_long",
            Self::NoReliable => "no_reliable",
        }
    }
}

/// The reason why a reliable operation was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum GivenUp {
    /// The collector refused it on two connections.
    RefusedTwice,
    /// After a reconnect its region is gone, smaller or otherwise addressed, or has other memory.
    NoPlace,
    /// An addition whose response was lost with the connection, under [`UncertainFetchAdds::GiveUp`].
    ///
    /// [`UncertainFetchAdds::GiveUp`]: super::UncertainFetchAdds::GiveUp
    Uncertain,
}

impl GivenUp {
    /// All reasons, by their index.
    pub const ALL: [Self; 3] = [Self::RefusedTwice, Self::NoPlace, Self::Uncertain];

    /// Returns the reason as a word, for counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RefusedTwice => "refused_twice",
            Self::NoPlace => "no_place",
            Self::Uncertain => "uncertain",
        }
    }
}

/// The kind of a packet from a collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Response {
    /// An acknowledgement that advances the link.
    Ack,
    /// An acknowledgement of a PSN that was acknowledged before or never sent.
    Stale,
    /// NAK: packets are missing at the collector.
    SequenceError,
    /// RNR NAK: no receive for an immediate value.
    ReceiverNotReady,
    /// NAK: the request is invalid.
    InvalidRequest,
    /// NAK: remote access error.
    RemoteAccess,
    /// NAK: remote operational error.
    RemoteOperational,
    /// Congestion notification packet (CNP).
    Congestion,
    /// An opcode or syndrome that no responder sends.
    Unexpected,
    /// From another address than the collector's.
    WrongPeer,
    /// To an unknown queue pair.
    UnknownQueuePair,
}

impl Response {
    /// Number of the kinds.
    pub const COUNT: usize = Self::UnknownQueuePair as usize + 1;
    /// All kinds, by their index.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Ack,
        Self::Stale,
        Self::SequenceError,
        Self::ReceiverNotReady,
        Self::InvalidRequest,
        Self::RemoteAccess,
        Self::RemoteOperational,
        Self::Congestion,
        Self::Unexpected,
        Self::WrongPeer,
        Self::UnknownQueuePair,
    ];

    /// Returns the kind as a word, for counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Stale => "stale",
            Self::SequenceError => "sequence_error",
            Self::ReceiverNotReady => "receiver_not_ready",
            Self::InvalidRequest => "invalid_request",
            Self::RemoteAccess => "remote_access",
            Self::RemoteOperational => "remote_operational",
            Self::Congestion => "congestion",
            Self::Unexpected => "unexpected",
            Self::WrongPeer => "wrong_peer",
            Self::UnknownQueuePair => "unknown_queue_pair",
        }
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
