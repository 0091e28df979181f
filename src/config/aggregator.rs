//! `[aggregator]`: an aggregator between switches and collector.

use model::Listen;
use std::net::SocketAddr;
use std::time::Duration;

use detect::Prefix;

use settings::{choice, section, values::Size};

section! {
    /// An aggregator between switches and collector: it receives postcards and sends aggregates, so that the collector receives fewer
    /// datagrams, or summaries only. A file with `[aggregator]` and without `[collector]` runs no collector. Postcards are
    /// read as `profile` says; their timestamps and latencies must be nanoseconds.
    pub(crate) struct AggregatorSettings("[aggregator]") {
        /// Input for postcards: `udp://*:PORT`, or one address.
        pub(crate) listen: Listen = Listen::UdpAny(32766),
        /// Addresses or networks that may send postcards, such as `["10.0.0.0/8"]`; datagrams of others are refused and counted as
        /// `sender_not_allowed`. Empty: everyone.
        pub(crate) allow: Vec<Prefix> = Vec::new(),
        /// Destinations of aggregates: addresses of collectors, with the port on which they expect aggregates (with `interop`: reports).
        /// Several of them share the load, see `spread`.
        pub(crate) forward: Vec<SocketAddr> = Vec::new(),
        /// Kind of aggregates. `agg`: postcards together, in order of arrival; `agg_n`: those of a node; `agg_nf`: those of a node
        /// and flow. `cor`, `cor_n`, `cor_nf`: the same, but only minimum, maximum, sum and count of hop latencies and queue
        /// lengths are sent.
        pub(crate) kind: AggregateKind = AggregateKind::Agg,
        /// Postcards in one datagram or summary. For `agg` kinds at most as many as fit into `pmtu`: 45 at 1500 bytes, or 72
        /// without `packet_fields`.
        pub(crate) r: u32 = 25,
        /// Send with each postcard its interfaces, the packet's hop limit and digest, and whether it entered or left the
        /// network: without them the collector reports no path. For `agg` kinds.
        pub(crate) packet_fields: bool = true,
        /// Longest time that a postcard waits for others.
        pub(crate) timer: Duration = Duration::from_millis(1),
        /// Nodes, or nodes and flows, whose postcards can be pending at the same time, for kinds with a scope; a power of two. When there
        /// are more, a new one evicts the oldest of its possible registers, which is sent early: nothing is lost, but aggregates
        /// are smaller.
        pub(crate) registers: usize = 65_536,
        /// Associativity, the registers that a node and flow may use: 1 (as a switch's plain register array), 2, 4 or 8.
        pub(crate) ways: usize = 8,
        /// Aggregator ID, by which the collector distinguishes aggregators.
        pub(crate) aggregator: u32 = 1,
        /// The key that selects one of several addresses of `forward`.
        pub(crate) spread: AggregateSpread = AggregateSpread::Flow,
        /// Send plain Telemetry Report 2.0 with several reports per datagram, for collectors that do not support aggregates; for kinds
        /// `agg_n` and `agg_nf`.
        pub(crate) interop: bool = false,
        /// Path MTU to the collector, bytes.
        pub(crate) pmtu: u16 = 1500,
        /// Profile for decoding postcards.
        pub(crate) profile: String = "default".to_owned(),
        /// Socket receive buffer to ask the kernel for.
        pub(crate) receive_buffer: Size = Size(16 << 20),
    }
}

choice! {
    /// The kind of aggregates that an aggregator sends.
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
    /// The key that selects a destination.
    pub(crate) enum AggregateSpread("\"flow\" or \"node\"") {
        /// The flow.
        Flow = "flow",
        /// The node.
        Node = "node",
    }
}
