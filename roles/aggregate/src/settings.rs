//! Settings of the aggregator: the table `[aggregator]`.

use std::net::SocketAddr;
use std::time::Duration;

use aggregator::{Config, ConfigError, Spread};
use detect::Prefix;
use settings::{
    listen::Listen,
    section,
    values::{Size, as_nanoseconds},
};
use wire::{Profile, aggregate::Kind};

section! {
    /// An aggregator between switches and collector: it receives postcards and sends aggregates, so that the collector receives fewer
    /// datagrams, or summaries only. A file with `[aggregator]` and without `[collector]` runs no collector. Postcards are
    /// read as `profile` says; their timestamps and latencies must be nanoseconds.
    pub struct AggregatorSettings("[aggregator]") {
        /// Input for postcards: `udp://*:PORT`, or one address.
        pub listen: Listen = Listen::UdpAny(32766),
        /// Addresses or networks that may send postcards, such as `["10.0.0.0/8"]`; datagrams of others are refused and counted as
        /// `sender_not_allowed`. Empty: everyone.
        pub allow: Vec<Prefix> = Vec::new(),
        /// Destinations of aggregates: addresses of collectors, with the port on which they expect aggregates (with `interop`: reports).
        /// Several of them share the load, see `spread`.
        pub forward: Vec<SocketAddr> = Vec::new(),
        /// Kind of aggregates. `agg`: postcards together, in order of arrival; `agg_n`: those of a node; `agg_nf`: those of a node
        /// and flow. `cor`, `cor_n`, `cor_nf`: the same, but only minimum, maximum, sum and count of hop latencies and queue
        /// lengths are sent.
        pub kind: Kind = Kind::Agg,
        /// Postcards in one datagram or summary. For `agg` kinds at most as many as fit into `pmtu`: 45 at 1500 bytes, or 72
        /// without `packet_fields`.
        pub r: u32 = 25,
        /// Send with each postcard its interfaces, the packet's hop limit and digest, and whether it entered or left the
        /// network: without them the collector reports no path. For `agg` kinds.
        pub packet_fields: bool = true,
        /// Longest time that a postcard waits for others.
        pub timer: Duration = Duration::from_millis(1),
        /// Nodes, or nodes and flows, whose postcards can be pending at the same time, for kinds with a scope; a power of two. When there
        /// are more, a new one evicts the oldest of its possible registers, which is sent early: nothing is lost, but aggregates
        /// are smaller.
        pub registers: usize = 65_536,
        /// Associativity, the registers that a node and flow may use: 1 (as a switch's plain register array), 2, 4 or 8.
        pub ways: usize = 8,
        /// Aggregator ID, by which the collector distinguishes aggregators.
        pub aggregator: u32 = 1,
        /// The key that selects one of several addresses of `forward`.
        pub spread: Spread = Spread::Flow,
        /// Send plain Telemetry Report 2.0 with several reports per datagram, for collectors that do not support aggregates; for kinds
        /// `agg_n` and `agg_nf`.
        pub interop: bool = false,
        /// Path MTU to the collector, bytes.
        pub pmtu: u16 = 1500,
        /// Profile for decoding postcards.
        pub profile: String = "default".to_owned(),
        /// Socket receive buffer to ask the kernel for.
        pub receive_buffer: Size = Size(16 << 20),
    }
}

impl AggregatorSettings {
    /// Returns the configuration of the aggregator. `profile` decodes the postcards.
    pub fn config(&self, profile: Profile) -> Config {
        Config {
            kind: self.kind,
            r: self.r,
            timer: as_nanoseconds(self.timer),
            registers: self.registers,
            ways: self.ways,
            aggregator: self.aggregator,
            destinations: self.forward.len(),
            spread: self.spread,
            packet_fields: self.packet_fields,
            interop: self.interop,
            pmtu: self.pmtu,
            over_ipv6: self.forward.iter().any(SocketAddr::is_ipv6),
            profile,
        }
    }
}

/// Reports inconsistent settings to `refuse`: the setting's path and a message. `profile` decodes the postcards.
pub fn check(settings: &AggregatorSettings, profile: Profile, refuse: &mut dyn FnMut(&[&str], String)) {
    if settings.listen.interface().is_some() {
        let message = "an aggregator reads UDP sockets; write \"udp://*:32766\"";
        refuse(&["aggregator", "listen"], message.to_owned());
    }
    if settings.forward.is_empty() {
        let message = "no destination; write the collector's address, such as [\"192.0.2.100:32767\"]";
        return refuse(&["aggregator", "forward"], message.to_owned());
    }
    let own_ports = settings.listen.ports();
    if settings
        .forward
        .iter()
        .any(|to| to.ip().is_loopback() && own_ports.contains(&to.port()) && to.port() != 0)
    {
        let message = "this is the aggregator's own listen address; write the collector's";
        refuse(&["aggregator", "forward"], message.to_owned());
    }
    if let Err(error) = settings.config(profile).check() {
        let key = match error {
            ConfigError::R(0) => "pmtu",
            ConfigError::R(_) => "r",
            ConfigError::Timer => "timer",
            ConfigError::Registers | ConfigError::Memory(_) => "registers",
            ConfigError::Ways => "ways",
            ConfigError::Destinations => "forward",
            ConfigError::Interop => "interop",
        };
        refuse(&["aggregator", key], error.to_string());
    }
}
