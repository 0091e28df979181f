//! Counters of the DTA translator. They are conserved: see [`Stats::is_balanced`].

use serde::{Deserialize, Serialize};
use wire::RefusalCounts;

/// Names of the DTA primitives, in counting order.
pub const PRIMITIVES: [&str; 5] = [
    "key_write",
    "append",
    "key_increment",
    "postcarding",
    "sketch_merge",
];

wire::named! {
    /// The reason why a valid report was dropped.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[repr(u8)]
    pub enum Reason, name {
        /// The report's layout is not accepted by the settings.
        NotAccepted => "not_accepted",
        /// The translator does not have the addressed collector.
        NoCollector => "no_collector",
        /// The collector has no such store.
        UnknownStore => "unknown_store",
        /// The collector has no such list.
        UnknownList => "unknown_list",
        /// The collector has no such sketch.
        UnknownSketch => "unknown_sketch",
        /// The data exceeds the store's slots.
        TooMuchData => "too_much_data",
        /// The entries' length differs from the list's.
        WrongEntry => "wrong_entry",
        /// The hop exceeds the store's maximum.
        WrongHop => "wrong_hop",
        /// Depth, width, operation or columns differ from the sketch's.
        WrongShape => "wrong_shape",
        /// The epoch already has all its reporters, and this is another one.
        OneReporterTooMany => "one_reporter_too_many",
        /// The reporter's columns are already merged.
        DuplicateColumn => "duplicate_column",
        /// Earlier columns of this reporter are missing.
        ColumnGap => "column_gap",
        /// The epoch accepts no more columns.
        EpochOver => "epoch_over",
        /// The epoch is too far ahead of the newest one.
        EpochAhead => "epoch_ahead",
        /// The essential report was accepted before.
        Duplicate => "duplicate",
        /// Earlier essential reports are missing; the reporter sends this one again.
        Gap => "gap",
        /// The reporter ID is bound to another address.
        Forged => "forged",
        /// The table of reporters is full, or the sender has too many IDs.
        ReportersFull => "reporters_full",
        /// The sender exceeds its rate.
        Metered => "metered",
        /// The collector is congested, and the report has low priority.
        CongestedLow => "congested_low",
        /// The collector is congested, and the report has medium priority.
        CongestedMedium => "congested_medium",
        /// The collector is not connected, and the report has low priority.
        AbsentLow => "absent_low",
        /// The collector is not connected, and the report has medium priority.
        AbsentMedium => "absent_medium",
        /// The report should wait, but the local memory is full. For an essential report the reporter gets a NACK and sends
        /// it again.
        LocalFull => "local_full",
        /// The transport refused the rest of an operation that was partly done.
        CutShort => "cut_short",
        /// The region is unknown, does not permit the access, or does not contain the address; or the address is not
        /// aligned.
        TransportRefused => "transport_refused",
    }
}

wire::named! {
    /// The reason why a batch, a path or an epoch was written.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[repr(u8)]
    pub enum Cause, name {
        /// The batch, path or epoch was complete.
        Full => "full",
        /// The timer of the data expired.
        Timer => "timer",
        /// A report requested an immediate notification.
        Immediate => "immediate",
        /// Another path needed the cache entry, or a later epoch the buffer.
        Evicted => "evicted",
        /// The translator stopped, or the collector's stores changed.
        Stopped => "stopped",
    }
}

/// Reports, counted by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reports {
    /// Datagrams received: reports and malformed datagrams.
    pub received: u64,
    /// Malformed datagrams, indexed by [`Refusal::index`](wire::Refusal::index).
    pub unreadable: RefusalCounts,
    /// Dropped reports, indexed by [`Reason`].
    pub dropped: [u64; Reason::COUNT],
    /// Executed reports by primitive, in the order of [`PRIMITIVES`].
    pub done: [u64; 5],
    /// Reports in local memory now.
    pub queued: u64,
    /// Payload bytes of these reports.
    pub queued_bytes: u64,
    /// Reports ever put into local memory.
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
    /// Writes that the transport retransmits until they are acknowledged.
    pub reliable: u64,
    /// Operations that the transport refused, indexed by [`Blocked`](rdma::transport::Blocked).
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
    /// Entries created by triggers.
    pub triggered: u64,
    /// Entries that were written.
    pub written: u64,
    /// Entries waiting for their batches now.
    pub pending: u64,
    /// Entries dropped because a collector reconnected with other lists.
    pub dropped: u64,
    /// Triggers' entries that could not be appended.
    pub missed: u64,
    /// Triggers' entries suppressed by their minimum interval.
    pub suppressed: u64,
    /// Batches written, indexed by [`Cause`].
    pub batches: [u64; Cause::COUNT],
}

/// Postcards, counted by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Postcards {
    /// Postcards accepted from reports.
    pub accepted: u64,
    /// Postcards written as part of a path.
    pub written: u64,
    /// Postcards waiting for other hops of their paths now.
    pub pending: u64,
    /// Postcards replaced by a newer one of the same hop before they were written.
    pub replaced: u64,
    /// Postcards dropped because a collector reconnected with other stores.
    pub dropped: u64,
    /// Paths written, indexed by [`Cause`].
    pub paths: [u64; Cause::COUNT],
}

/// Columns and epochs of sketches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sketches {
    /// Reporters' columns that were merged.
    pub merged: u64,
    /// Merged columns written, including those written again after the collector lost its memory.
    pub written: u64,
    /// Epochs written with all columns of all reporters.
    pub complete: u64,
    /// Epochs written with columns of some reporters missing.
    pub partial: u64,
    /// Epochs lost before they were written, because they could not be written or the collector's stores changed.
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
    /// NACKs for missing sketch columns.
    pub sketch_nacks: u64,
    /// Congestion notices that were sent.
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
    /// Number of times a collector's congestion level rose to 1, 2 and 3.
    pub levels: [u64; 3],
    /// Addresses in the table of senders now.
    pub senders: u64,
}

impl Stats {
    /// Returns whether every report is malformed, dropped, done or queued, and every copy, entry and postcard is written,
    /// pending, or lost for a counted reason.
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
