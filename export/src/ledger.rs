//! The accounts of the records of an exporter.

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
    /// Records that were deleted before they were read, because the store's limits of age or size came first.
    pub expired: u64,
    /// Records that the stream does not have, since it is a part of what is read.
    pub left_out: u64,
    /// Rejected records that could not be written to `rejected/`: only their number is left.
    pub unwritten: u64,
    /// Records that were sent again.
    pub repeated: u64,
    /// Requests that were sent.
    pub requests: u64,
    /// Requests that were answered for each record.
    pub settled: u64,
    /// Requests that failed in a way that may pass.
    pub failed: u64,
    /// Requests that were refused for their content.
    pub refused: u64,
    /// Requests that were refused for their credentials.
    pub unauthorised: u64,
    /// Requests without an answer in time.
    pub timed_out: u64,
    /// Answers that came too late, or for which there was no request.
    pub late: u64,
    /// Times that the cursor could not be saved.
    pub unsaved: u64,
}

impl Ledger {
    /// Returns true if each record that was read is accounted for.
    pub fn balances(&self) -> bool {
        self.read == self.delivered + self.rejected + self.held
    }
}
