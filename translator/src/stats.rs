//! Counters of the translator. They add up: see [`Stats::is_balanced`].

use serde::{Deserialize, Serialize};
use wire::RefusalCounts;

wire::named! {
    /// A reason why a valid report was dropped.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[repr(u8)]
    pub enum Reason, name {
        /// The report's layout is not accepted here.
        NotAccepted => "not_accepted",
        /// For a collector that this translator does not have.
        NoCollector => "no_collector",
        /// There is no such store.
        UnknownStore => "unknown_store",
        /// There is no such list.
        UnknownList => "unknown_list",
        /// There is no such sketch.
        UnknownSketch => "unknown_sketch",
        /// More data than the store's slots hold.
        TooMuchData => "too_much_data",
        /// Entries of another size than the list's.
        WrongEntry => "wrong_entry",
        /// A hop beyond the store's.
        WrongHop => "wrong_hop",
        /// Depth, width, operation or columns are not the sketch's.
        WrongShape => "wrong_shape",
        /// The sketch has all its reporters, and this is not one of them.
        OneReporterTooMany => "one_reporter_too_many",
        /// This reporter's columns were merged before.
        DuplicateColumn => "duplicate_column",
        /// Columns of this reporter are missing before these.
        ColumnGap => "column_gap",
        /// An epoch that is over.
        EpochOver => "epoch_over",
        /// An epoch too far ahead.
        EpochAhead => "epoch_ahead",
        /// An essential report that was accepted before.
        Duplicate => "duplicate",
        /// Essential reports are missing before this one; it will be sent again.
        Gap => "gap",
        /// The reporter ID belongs to another address.
        Forged => "forged",
        /// The table of reporters' sequences is full.
        ReportersFull => "reporters_full",
        /// The sender exceeds its rate.
        Metered => "metered",
        /// Congestion, and the report is of low priority.
        CongestedLow => "congested_low",
        /// Congestion, and the report is of medium priority.
        CongestedMedium => "congested_medium",
        /// The collector is not connected, and the report is of low priority.
        AbsentLow => "absent_low",
        /// The collector is not connected, and the report is of medium priority.
        AbsentMedium => "absent_medium",
        /// Congestion or no collector, and the local memory is full. The reporter of an essential report gets a NACK, and sends it again.
        LocalFull => "local_full",
        /// The transport refused the rest of an operation that was partly done.
        CutShort => "cut_short",
        /// The transport does not know the region, or the region does not permit the access, or the address is outside it or not aligned.
        TransportRefused => "transport_refused",
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

wire::named! {
    /// A reason why a batch, a path or an epoch was written.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[repr(u8)]
    pub enum Cause, name {
        /// The batch, path or epoch was complete.
        Full => "full",
        /// The timer of the data expired.
        Timer => "timer",
        /// A report requested an immediate notification.
        Immediate => "immediate",
        /// Another path needed its place, or the next epoch its buffer.
        Evicted => "evicted",
        /// The translator stopped, or the collector's stores changed.
        Stopped => "stopped",
    }
}

/// Reports, counted by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reports {
    /// Datagrams received; each is a report, or malformed.
    pub received: u64,
    /// Malformed ones, by [`Refusal::index`](wire::Refusal::index).
    pub unreadable: RefusalCounts,
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

/// Copies of Key-Write reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "TranslatorCopies"))]
pub struct Copies {
    /// Copies that reports requested.
    pub requested: u64,
    /// Copies that were written.
    pub written: u64,
    /// Copies skipped under load.
    pub skipped: u64,
    /// Copies that the transport refused.
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

/// Counters of essential reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "TranslatorEssential"))]
pub struct Sequences {
    /// Essential reports that were accepted.
    pub accepted: u64,
    /// Requested by a NACK and never received.
    pub lost: u64,
    /// Reporters whose sequence numbers are tracked.
    pub reporters: u64,
    /// Restarts of reporters that were detected.
    pub restarts: u64,
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
