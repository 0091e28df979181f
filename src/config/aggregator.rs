//! `[aggregator]`: an aggregator between switches and collector.

use std::net::SocketAddr;
use std::time::Duration;

use super::values::Listen;
use settings::{choice, section, values::Size};

section! {
    /// An aggregator between switches and collector: takes postcards and sends aggregates of them, so that the collector has fewer
    /// datagrams to take, or summaries only. A file with `[aggregator]` and without `[collector]` runs no collector. Postcards are
    /// read as `profile` says; their time stamps and latencies must be nanoseconds.
    pub(crate) struct AggregatorSettings("[aggregator]") {
        /// Where postcards come to: `udp://*:PORT`, or one address.
        pub(crate) listen: Listen = Listen::UdpAny(32766),
        /// Where aggregates go: addresses of collectors, with the port on which they expect aggregates (with `interop`: reports).
        /// Several of them share the work, see `spread`.
        pub(crate) forward: Vec<SocketAddr> = Vec::new(),
        /// What is made of postcards. `agg`: they are sent together as they come; `agg_n`: those of a node; `agg_nf`: those of a node
        /// about a flow. `cor`, `cor_n`, `cor_nf`: the same, but only least, largest, sum and number of hop latencies and queue
        /// lengths are sent.
        pub(crate) kind: AggregateKind = AggregateKind::Agg,
        /// How many postcards go into one datagram or summary. For `agg` kinds at most what fits into `pmtu`: 72 at 1500 bytes.
        pub(crate) r: u32 = 25,
        /// Longest time that a postcard waits for others.
        pub(crate) timer: Duration = Duration::from_millis(1),
        /// Nodes, or nodes and flows, whose postcards can wait at the same time, for kinds with a scope; a power of two. When there
        /// are more, a newcomer sends the oldest of the few whose place it could have, early: nothing is lost, but aggregates
        /// are smaller.
        pub(crate) registers: usize = 65_536,
        /// In how many registers a node and flow may be: 1 (as a switch's plain register array), 2, 4 or 8.
        pub(crate) ways: usize = 8,
        /// Aggregator ID, by which the collector tells aggregators apart.
        pub(crate) aggregator: u32 = 1,
        /// By what a postcard chooses among several addresses of `forward`.
        pub(crate) spread: AggregateSpread = AggregateSpread::Flow,
        /// Send plain Telemetry Report 2.0 with several reports per datagram, for collectors that know no aggregates; for kinds
        /// `agg_n` and `agg_nf`.
        pub(crate) interop: bool = false,
        /// Bytes of the longest packet that reaches the collector whole.
        pub(crate) pmtu: u16 = 1500,
        /// Profile by which postcards are read.
        pub(crate) profile: String = "default".to_owned(),
        /// Socket receive buffer to ask the kernel for.
        pub(crate) receive_buffer: Size = Size(16 << 20),
    }
}

choice! {
    /// What an aggregator makes.
    pub(crate) enum AggregateKind("\"agg\", \"agg_n\", \"agg_nf\", \"cor\", \"cor_n\" or \"cor_nf\"") {
        /// Agg(R).
        Agg = "agg",
        /// Agg_N(R).
        AggNode = "agg_n",
        /// Agg_{N,F}(R).
        AggNodeFlow = "agg_nf",
        /// Cor(R).
        Cor = "cor",
        /// Cor_N(R).
        CorNode = "cor_n",
        /// Cor_{N,F}(R).
        CorNodeFlow = "cor_nf",
    }
}

choice! {
    /// By what a destination is chosen.
    pub(crate) enum AggregateSpread("\"flow\" or \"node\"") {
        /// The flow.
        Flow = "flow",
        /// The node.
        Node = "node",
    }
}
