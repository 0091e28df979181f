//! Counters of the postcard aggregator. They are conserved: see [`Stats::is_balanced`].

use wire::RefusalCounts;

wire::named! {
    /// The reason why a valid report is not a postcard for this aggregator.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u8)]
    pub enum RefusalReason, name {
        /// It has metadata of several nodes (INT-MD, an IOAM trace).
        SeveralNodes => "several_nodes",
        /// It has no node metadata.
        NoMetadata => "no_metadata",
        /// It is a drop report, and aggregates have no field for the drop reason.
        DropReport => "drop_report",
        /// It is an SF-INT report, whose record belongs to another packet.
        Stateful => "stateful",
        /// It has no node ID, which the kind of aggregate needs.
        NoNode => "no_node",
        /// It has neither a flow ID nor a packet, and the kind of aggregate needs a flow.
        NoFlow => "no_flow",
        /// It has no value that a summary could include.
        NoValue => "no_value",
    }
}

wire::named! {
    /// The reason why a register was sent.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u8)]
    pub enum Cause, name {
        /// The register held R postcards.
        Full => "full",
        /// The register's timer expired.
        Timer => "timer",
        /// Another node or flow needed the register.
        Evicted => "evicted",
        /// The aggregator was stopped.
        Stopped => "stopped",
    }
}

/// Datagrams and postcards sent for one cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Number of datagrams sent.
    pub aggregates: u64,
    /// Postcards contained or summarized in them.
    pub postcards: u64,
}

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Number of datagrams received.
    pub datagrams: u64,
    /// Reports in them that were readable.
    pub reports: u64,
    /// Unreadable datagrams and reports, indexed by [`Refusal::index`](wire::Refusal::index).
    pub unreadable: RefusalCounts,
    /// Reports that are not postcards for this aggregator, indexed by [`RefusalReason`].
    pub refused: [u64; RefusalReason::COUNT],
    /// Number of accepted postcards.
    pub postcards: u64,
    /// Datagrams sent, indexed by [`Cause`].
    pub sent: [Sent; Cause::ALL.len()],
    /// Bytes of UDP payload sent.
    pub sent_bytes: u64,
    /// Postcards waiting in registers now.
    pub pending: u64,
    /// Registers in use now.
    pub occupied: u64,
    /// Values missing in postcards, and therefore in summaries.
    pub missing_values: u64,
    /// Postcards whose node did not fit into the table of sequence numbers, so that losses before them are not counted.
    pub nodes_full: u64,
}

impl Stats {
    /// Returns whether every report is a postcard or refused, and every postcard sent or pending.
    pub fn is_balanced(&self) -> bool {
        let sent: u64 = self.sent.iter().map(|sent| sent.postcards).sum();
        self.reports == self.postcards + self.refused.iter().sum::<u64>()
            && self.postcards == sent + self.pending
    }
}
