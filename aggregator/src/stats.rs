//! Counters of an aggregator. [`Stats::is_balanced`] checks that they add up.

use wire::Refusal;

/// A reason why a valid report is not a postcard for this aggregator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reason {
    /// It has data of several nodes: INT-MD, an IOAM trace.
    SeveralNodes,
    /// It has no metadata of a node.
    NoMetadata,
    /// A drop report: an aggregate has no field for the reason.
    DropReport,
    /// It is an SF-INT report: its record belongs to another packet.
    Stateful,
    /// It has no node id, and the kind needs one.
    NoNode,
    /// It has neither a Flow ID nor a packet, and the kind needs a flow.
    NoFlow,
    /// It has no value that a summary could hold.
    NoValue,
}

impl Reason {
    /// The number of reasons, which is the length of an array that counts by reason.
    pub const COUNT: usize = Self::NoValue as usize + 1;
    /// All reasons, in order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::SeveralNodes,
        Self::NoMetadata,
        Self::DropReport,
        Self::Stateful,
        Self::NoNode,
        Self::NoFlow,
        Self::NoValue,
    ];

    /// Name of the reason in metrics and the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SeveralNodes => "several_nodes",
            Self::NoMetadata => "no_metadata",
            Self::DropReport => "drop_report",
            Self::Stateful => "stateful",
            Self::NoNode => "no_node",
            Self::NoFlow => "no_flow",
            Self::NoValue => "no_value",
        }
    }
}

/// A reason why a register was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Cause {
    /// R postcards were in it.
    Full,
    /// The register's timer expired.
    Timer,
    /// Another node or flow needed the register.
    Evicted,
    /// The aggregator has stopped.
    Stopped,
}

impl Cause {
    /// All causes, in order of their numbers.
    pub const ALL: [Self; 4] = [Self::Full, Self::Timer, Self::Evicted, Self::Stopped];

    /// Name of the cause in metrics and the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Timer => "timer",
            Self::Evicted => "evicted",
            Self::Stopped => "stopped",
        }
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Number of datagrams received.
    pub datagrams: u64,
    /// Reports in them that could be read.
    pub reports: u64,
    /// Unreadable datagrams and reports, by [`Refusal::index`].
    pub unreadable: [u64; Refusal::COUNT],
    /// Reports that are not postcards for this aggregator, by [`Reason`].
    pub refused: [u64; Reason::COUNT],
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
    /// Sequence numbers of nodes that did not fit into the table; losses of these nodes are not counted.
    pub nodes_full: u64,
}

impl Stats {
    /// Counters that are all 0.
    pub const NEW: Self = Self {
        datagrams: 0,
        reports: 0,
        unreadable: [0; Refusal::COUNT],
        refused: [0; Reason::COUNT],
        postcards: 0,
        sent: [Sent {
            aggregates: 0,
            postcards: 0,
        }; Cause::ALL.len()],
        sent_bytes: 0,
        pending: 0,
        occupied: 0,
        missing_values: 0,
        nodes_full: 0,
    };

    /// Returns whether the reports are postcards or refused, and the postcards sent or pending.
    pub fn is_balanced(&self) -> bool {
        let sent: u64 = self.sent.iter().map(|sent| sent.postcards).sum();
        self.reports == self.postcards + self.refused.iter().sum::<u64>()
            && self.postcards == sent + self.pending
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self::NEW
    }
}
