//! Counters of an aggregator. [`Stats::is_balanced`] checks that they add up.

use wire::RefusalCounts;

wire::named! {
    /// A reason why a valid report is not a postcard for this aggregator.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u8)]
    pub enum RefusalReason, name {
        /// It has data of several nodes: INT-MD, an IOAM trace.
        SeveralNodes => "several_nodes",
        /// It has no metadata of a node.
        NoMetadata => "no_metadata",
        /// A drop report: an aggregate has no field for the reason.
        DropReport => "drop_report",
        /// It is an SF-INT report: its record belongs to another packet.
        Stateful => "stateful",
        /// It has no node id, and the kind needs one.
        NoNode => "no_node",
        /// It has neither a Flow ID nor a packet, and the kind needs a flow.
        NoFlow => "no_flow",
        /// It has no value that a summary could hold.
        NoValue => "no_value",
    }
}

wire::named! {
    /// A reason why a register was sent.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u8)]
    pub enum Cause, name {
        /// It held R postcards, the configured number.
        Full => "full",
        /// The register's timer expired.
        Timer => "timer",
        /// Another node or flow needed the register.
        Evicted => "evicted",
        /// The aggregator has stopped.
        Stopped => "stopped",
    }
}

/// Output for one cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Number of datagrams sent.
    pub aggregates: u64,
    /// Postcards in them, or in their summaries.
    pub postcards: u64,
}

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Number of datagrams received.
    pub datagrams: u64,
    /// Reports in them that could be read.
    pub reports: u64,
    /// Unreadable datagrams and reports, by [`Refusal::index`](wire::Refusal::index).
    pub unreadable: RefusalCounts,
    /// Reports that are not postcards for this aggregator, by [`RefusalReason`].
    pub refused: [u64; RefusalReason::COUNT],
    /// Number of accepted postcards.
    pub postcards: u64,
    /// Output, counted by [`Cause`].
    pub sent: [Sent; Cause::ALL.len()],
    /// Bytes of UDP payload sent.
    pub sent_bytes: u64,
    /// Postcards that wait in registers now.
    pub pending: u64,
    /// Registers in use now.
    pub occupied: u64,
    /// Values that were missing and are therefore in no summary.
    pub missing_values: u64,
    /// Postcards whose node did not fit into the table of sequence numbers; losses of these nodes are not counted.
    pub nodes_full: u64,
}

impl Stats {
    /// Returns whether the reports are postcards or refused, and the postcards sent or pending.
    pub fn is_balanced(&self) -> bool {
        let sent: u64 = self.sent.iter().map(|sent| sent.postcards).sum();
        self.reports == self.postcards + self.refused.iter().sum::<u64>()
            && self.postcards == sent + self.pending
    }
}
