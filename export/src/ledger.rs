//! Counters of an exporter that balance: every record read is delivered, rejected or still held.

/// Counters of one exporter and stream since its start. `read = delivered + rejected + held`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ledger {
    /// Records read from the stream.
    pub read: u64,
    /// Records that the server stored.
    pub delivered: u64,
    /// Records that the server will never accept.
    pub rejected: u64,
    /// Records in memory: read, and neither delivered nor rejected.
    pub held: u64,
    /// Records deleted by retention before they were read.
    pub expired: u64,
    /// Records in the range read that do not belong to the stream.
    pub left_out: u64,
    /// Rejected records that could not be written to `rejected/` and are only counted.
    pub unwritten: u64,
    /// Records that were sent again.
    pub repeated: u64,
    /// Requests that were sent.
    pub requests: u64,
    /// Requests with an answer for each record.
    pub settled: u64,
    /// Requests with a transient failure.
    pub failed: u64,
    /// Requests that were refused for their content.
    pub refused: u64,
    /// Requests that were refused for their credentials.
    pub unauthorised: u64,
    /// Requests without an answer in time.
    pub timed_out: u64,
    /// Answers that arrived too late or matched no request.
    pub late: u64,
    /// Failed attempts to save the cursor.
    pub unsaved: u64,
}

impl Ledger {
    /// Returns true if `read = delivered + rejected + held`.
    pub fn balances(&self) -> bool {
        self.read == self.delivered + self.rejected + self.held
    }
}
