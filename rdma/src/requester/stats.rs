//! What the links have counted. Everything adds up: see [`Stats::is_balanced`].

/// Why an operation was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Refused {
    /// The collector is not connected, or its connection is broken, and the operation was not to be kept.
    Down,
    /// A pause: the collector asked for it.
    Paused,
    /// The frames that wait to be sent leave no room.
    OutboxFull,
    /// The operations that wait for acknowledgement leave no room.
    RetransmitFull,
    /// The collector told of no such region.
    NoRegion,
    /// Not wholly inside the region.
    OutOfRange,
    /// A counter's address is not a multiple of eight.
    Misaligned,
    /// Longer than a message may be.
    TooLong,
    /// It must arrive, and the collector has no reliable queue pair.
    NoReliable,
}

impl Refused {
    /// How many there are.
    pub const COUNT: usize = Self::NoReliable as usize + 1;
    /// All of them.
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

    /// The reason as a word, for counters.
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

/// Why a kept operation was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum GivenUp {
    /// The collector refused it on two connections.
    RefusedTwice,
    /// After a reconnect its region is gone, smaller or otherwise addressed, or has other memory.
    NoPlace,
    /// An addition whose answer was lost with the connection, and additions are not to be made twice.
    Uncertain,
}

impl GivenUp {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::RefusedTwice, Self::NoPlace, Self::Uncertain];

    /// The reason as a word, for counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RefusedTwice => "refused_twice",
            Self::NoPlace => "no_place",
            Self::Uncertain => "uncertain",
        }
    }
}

/// What came from a collector, and what was made of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Response {
    /// An acknowledgement that brought something on.
    Ack,
    /// An acknowledgement of what had been acknowledged, or of what was never sent.
    Stale,
    /// Packets are missing there.
    SequenceError,
    /// Its program has no room for more immediates.
    ReceiverNotReady,
    /// It calls a request invalid.
    InvalidRequest,
    /// It forbids the access.
    RemoteAccess,
    /// It cannot do what was asked.
    RemoteOperational,
    /// Congestion in the network.
    Congestion,
    /// An opcode or syndrome that no responder sends.
    Unexpected,
    /// From another address than the collector's.
    WrongPeer,
    /// To a queue pair that we do not have.
    UnknownQueuePair,
}

impl Response {
    /// How many there are.
    pub const COUNT: usize = Self::UnknownQueuePair as usize + 1;
    /// All of them.
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

    /// The answer as a word, for counters.
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
    /// Operations taken that may be lost: their frames left at once.
    pub unreliable: u64,
    /// Operations taken that are kept until acknowledged. An addition with an immediate is two.
    pub reliable: u64,
    /// Additions among them.
    pub fetch_adds: u64,
    /// RetransmitBuffer operations that were acknowledged.
    pub acknowledged: u64,
    /// RetransmitBuffer operations given up, by [`GivenUp`].
    pub given_up: [u64; GivenUp::ALL.len()],
    /// RetransmitBuffer operations that wait now.
    pub unacknowledged: u64,
    /// Operations not taken, by [`Refused`].
    pub refused: [u64; Refused::COUNT],
    /// Frames made.
    pub frames: u64,
    /// Bytes of these frames, Ethernet header included.
    pub bytes: u64,
    /// Frames among them that had been sent before.
    pub retransmitted: u64,
    /// Packets from the collector, by [`Response`].
    pub responses: [u64; Response::COUNT],
    /// Times that no answer came.
    pub timeouts: u64,
    /// Connections made.
    pub connections: u64,
    /// Connections that broke.
    pub broken: u64,
    /// Additions that were sent, unanswered, on a connection that broke, and were made again: each may count twice.
    pub uncertain_fetch_adds: u64,
    /// Immediates likewise: each may be told twice.
    pub uncertain_immediates: u64,
}

impl Stats {
    /// What was to be kept was acknowledged, given up, or waits.
    pub fn is_balanced(&self) -> bool {
        self.reliable == self.acknowledged + self.unacknowledged + self.given_up.iter().sum::<u64>()
    }
}
