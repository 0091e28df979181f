//! Counters of the translator. They add up: see [`Stats::is_balanced`].

use wire::Refusal;

/// A reason why a valid report was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Reason {
    /// The report's layout is not accepted here.
    NotAccepted,
    /// For a collector that this translator does not have.
    NoCollector,
    /// There is no such store.
    UnknownStore,
    /// There is no such list.
    UnknownList,
    /// There is no such sketch.
    UnknownSketch,
    /// More data than the store's slots hold.
    TooMuchData,
    /// Entries of another size than the list's.
    WrongEntry,
    /// A hop beyond the store's.
    WrongHop,
    /// Depth, width, operation or columns are not the sketch's.
    WrongShape,
    /// The sketch has all its reporters, and this is not one of them.
    OneReporterTooMany,
    /// This reporter's columns were merged before.
    DuplicateColumn,
    /// Columns of this reporter are missing before these.
    ColumnGap,
    /// An epoch that is over.
    EpochOver,
    /// An epoch too far ahead.
    EpochAhead,
    /// An essential report that was accepted before.
    Duplicate,
    /// Essential reports are missing before this one; it will be sent again.
    Gap,
    /// The reporter ID belongs to another address.
    Forged,
    /// The table of reporters' sequences is full.
    ReportersFull,
    /// The sender exceeds its rate.
    Metered,
    /// Congestion, and the report is of low priority.
    CongestedLow,
    /// Congestion, and the report is of medium priority.
    CongestedMedium,
    /// The collector is not connected, and the report is of low priority.
    AbsentLow,
    /// The collector is not connected, and the report is of medium priority.
    AbsentMedium,
    /// Congestion or no collector, and the local memory is full. The reporter of an essential report gets a NACK, and sends it again.
    LocalFull,
    /// The transport refused the rest of an operation that was partly done.
    CutShort,
    /// The transport does not know the region, or the region does not permit the access, or the address is outside it or not aligned.
    TransportRefused,
}

impl Reason {
    /// The number of reasons.
    pub const COUNT: usize = Self::ALL.len();
    /// All reasons, in order of their numbers.
    pub const ALL: [Self; 26] = [
        Self::NotAccepted,
        Self::NoCollector,
        Self::UnknownStore,
        Self::UnknownList,
        Self::UnknownSketch,
        Self::TooMuchData,
        Self::WrongEntry,
        Self::WrongHop,
        Self::WrongShape,
        Self::OneReporterTooMany,
        Self::DuplicateColumn,
        Self::ColumnGap,
        Self::EpochOver,
        Self::EpochAhead,
        Self::Duplicate,
        Self::Gap,
        Self::Forged,
        Self::ReportersFull,
        Self::Metered,
        Self::CongestedLow,
        Self::CongestedMedium,
        Self::AbsentLow,
        Self::AbsentMedium,
        Self::LocalFull,
        Self::CutShort,
        Self::TransportRefused,
    ];

    /// The reason as a word, for counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotAccepted => "not_accepted",
            Self::NoCollector => "no_collector",
            Self::UnknownStore => "unknown_store",
            Self::UnknownList => "unknown_list",
            Self::UnknownSketch => "unknown_sketch",
            Self::TooMuchData => "too_much_data",
            Self::WrongEntry => "wrong_entry",
            Self::WrongHop => "wrong_hop",
            Self::WrongShape => "wrong_shape",
            Self::OneReporterTooMany => "one_reporter_too_many",
            Self::DuplicateColumn => "duplicate_column",
            Self::ColumnGap => "column_gap",
            Self::EpochOver => "epoch_over",
            Self::EpochAhead => "epoch_ahead",
            Self::Duplicate => "duplicate",
            Self::Gap => "gap",
            Self::Forged => "forged",
            Self::ReportersFull => "reporters_full",
            Self::Metered => "metered",
            Self::CongestedLow => "congested_low",
            Self::CongestedMedium => "congested_medium",
            Self::AbsentLow => "absent_low",
            Self::AbsentMedium => "absent_medium",
            Self::LocalFull => "local_full",
            Self::CutShort => "cut_short",
            Self::TransportRefused => "transport_refused",
        }
    }
}

/// The primitives, in the order in which they are counted.
pub const PRIMITIVES: [&str; 5] = [
    "key_write",
    "append",
    "key_increment",
    "postcarding",
    "sketch_merge",
];

/// A reason why a batch, a path or an epoch was written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Cause {
    /// The batch, path or epoch was complete.
    Full,
    /// The timer of the data expired.
    Timer,
    /// A report requested an immediate notification.
    Immediate,
    /// Another path needed its place, or the next epoch its buffer.
    Evicted,
    /// The translator stopped, or the collector's stores changed.
    Stopped,
}

impl Cause {
    /// The number of causes.
    pub const COUNT: usize = Self::ALL.len();
    /// All causes, in order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::Full,
        Self::Timer,
        Self::Immediate,
        Self::Evicted,
        Self::Stopped,
    ];

    /// The cause as a word, for counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Timer => "timer",
            Self::Immediate => "immediate",
            Self::Evicted => "evicted",
            Self::Stopped => "stopped",
        }
    }
}

/// Reports, counted by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reports {
    /// Datagrams received; each is a report, or malformed.
    pub received: u64,
    /// Malformed ones, by [`Refusal::index`].
    pub unreadable: [u64; Refusal::COUNT],
    /// Dropped ones, by [`Reason`].
    pub dropped: [u64; Reason::COUNT],
    /// Executed ones, by primitive: [`PRIMITIVES`].
    pub done: [u64; 5],
    /// In local memory now.
    pub queued: u64,
    /// Bytes of these reports.
    pub queued_bytes: u64,
    /// Ever put into local memory.
    pub diverted: u64,
}

/// Operations that the transport accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Operations {
    /// Writes that the transport accepted.
    pub writes: u64,
    /// `FETCH_ADD` operations that the transport accepted.
    pub fetch_adds: u64,
    /// Bytes of data in these operations.
    pub bytes: u64,
    /// Operations with an immediate value.
    pub immediates: u64,
    /// Writes that the transport repeats until they are acknowledged.
    pub reliable: u64,
    /// Refused by the transport, by [`Blocked`](rdma::transport::Blocked).
    pub blocked: [u64; 5],
}

/// Copies of data that Key-Write reports request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copies {
    /// Requested by completed reports.
    pub requested: u64,
    /// Copies that were written.
    pub written: u64,
    /// Skipped because of load.
    pub skipped: u64,
    /// Not written because the transport refused them after the first.
    pub dropped: u64,
}

/// Entries of lists, counted by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entries {
    /// Entries accepted from reports.
    pub accepted: u64,
    /// Entries made by triggers.
    pub triggered: u64,
    /// Entries that were written.
    pub written: u64,
    /// Waiting for their batches now.
    pub pending: u64,
    /// Dropped when a collector reconnected with other lists.
    pub dropped: u64,
    /// Entries of triggers that could not be appended.
    pub missed: u64,
    /// Entries of triggers suppressed by their interval.
    pub suppressed: u64,
    /// Batches written, by [`Cause`].
    pub batches: [u64; Cause::COUNT],
}

/// Postcards, counted by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Postcards {
    /// Postcards accepted from reports.
    pub accepted: u64,
    /// Written as part of a path.
    pub written: u64,
    /// Waiting for the others of their paths now.
    pub pending: u64,
    /// Replaced by a newer one of the same hop before they were written.
    pub replaced: u64,
    /// Dropped when a collector reconnected with other stores.
    pub dropped: u64,
    /// Paths written, by [`Cause`].
    pub paths: [u64; Cause::COUNT],
}

/// Columns and epochs of sketches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sketches {
    /// Columns of reporters that were merged.
    pub merged: u64,
    /// Merged columns written, including repetitions after the collector reconnected with other memory.
    pub written: u64,
    /// Epochs written with all columns of all reporters.
    pub complete: u64,
    /// Epochs written although some were missing.
    pub partial: u64,
    /// Epochs whose buffer was needed, or whose collector was no longer attached, before they were written.
    pub dropped: u64,
}

/// Sequences of essential reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sequences {
    /// Essential reports that were accepted.
    pub accepted: u64,
    /// Lost: given up after NACKs.
    pub lost: u64,
    /// Restarts of reporters that were detected.
    pub restarts: u64,
    /// Reporters with sequence state now.
    pub reporters: u64,
}

/// Control messages to reporters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Controls {
    /// ACKs that were sent.
    pub acks: u64,
    /// NACKs, by code minus 1: gap, malformed, unknown, overload.
    pub nacks: [u64; 4],
    /// NACKs for missing columns of sketches.
    pub sketch_nacks: u64,
    /// Notices of congestion that were sent.
    pub notices: u64,
}

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Reports, counted by outcome.
    pub reports: Reports,
    /// Operations that the transport accepted or refused.
    pub operations: Operations,
    /// Copies of data that Key-Write reports request.
    pub copies: Copies,
    /// Entries of lists, counted by outcome.
    pub entries: Entries,
    /// Postcards, counted by outcome.
    pub postcards: Postcards,
    /// Columns and epochs of sketches.
    pub sketches: Sketches,
    /// Sequences of essential reports.
    pub sequences: Sequences,
    /// Control messages to reporters.
    pub controls: Controls,
    /// Times a collector's congestion rose to level 1, 2, 3.
    pub levels: [u64; 3],
    /// Addresses in the table of senders now, whether metered or not.
    pub senders: u64,
}

impl Stats {
    /// Counters that are all 0.
    pub const NEW: Self = Self {
        reports: Reports {
            received: 0,
            unreadable: [0; Refusal::COUNT],
            dropped: [0; Reason::COUNT],
            done: [0; 5],
            queued: 0,
            queued_bytes: 0,
            diverted: 0,
        },
        operations: Operations {
            writes: 0,
            fetch_adds: 0,
            bytes: 0,
            immediates: 0,
            reliable: 0,
            blocked: [0; 5],
        },
        copies: Copies {
            requested: 0,
            written: 0,
            skipped: 0,
            dropped: 0,
        },
        entries: Entries {
            accepted: 0,
            triggered: 0,
            written: 0,
            pending: 0,
            dropped: 0,
            missed: 0,
            suppressed: 0,
            batches: [0; Cause::COUNT],
        },
        postcards: Postcards {
            accepted: 0,
            written: 0,
            pending: 0,
            replaced: 0,
            dropped: 0,
            paths: [0; Cause::COUNT],
        },
        sketches: Sketches {
            merged: 0,
            written: 0,
            complete: 0,
            partial: 0,
            dropped: 0,
        },
        sequences: Sequences {
            accepted: 0,
            lost: 0,
            restarts: 0,
            reporters: 0,
        },
        controls: Controls {
            acks: 0,
            nacks: [0; 4],
            sketch_nacks: 0,
            notices: 0,
        },
        levels: [0; 3],
        senders: 0,
    };

    /// Returns whether reports are malformed, dropped, done or waiting; copies, entries and postcards written, pending, or lost
    /// for a counted reason.
    pub fn is_balanced(&self) -> bool {
        let reports = &self.reports;
        let became = reports.unreadable.iter().sum::<u64>()
            + reports.dropped.iter().sum::<u64>()
            + reports.done.iter().sum::<u64>()
            + reports.queued;
        let copies = &self.copies;
        let entries = &self.entries;
        let postcards = &self.postcards;
        reports.received == became
            && copies.requested == copies.written + copies.skipped + copies.dropped
            && entries.accepted + entries.triggered == entries.written + entries.pending + entries.dropped
            && postcards.accepted
                == postcards.written + postcards.pending + postcards.replaced + postcards.dropped
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self::NEW
    }
}
