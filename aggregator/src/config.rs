//! Settings of the postcard aggregator, and their limits.

use std::fmt;

use wire::Profile;
use wire::aggregate::Kind;
use wire::report::v20;

/// Bytes of a postcard in interop mode: an individual report of Telemetry Report 2.0.
pub(super) const V20_POSTCARD_LEN: usize = 36;
/// Maximum number of destinations.
pub const MAX_DESTINATIONS: usize = 64;
/// Maximum number of registers.
pub const MAX_REGISTERS: usize = 1 << 24;
/// Maximum memory of all registers, bytes.
pub const MAX_BYTES: usize = 4 << 30;
/// Maximum associativity (ways) of the table.
pub const MAX_WAYS: usize = 8;

settings::choice! {
    /// The field that selects the destination of a postcard.
    #[derive(Default)]
    pub enum Spread("\"flow\" or \"node\"") {
        /// The node: all postcards of a node go to one destination.
        Node = "node",
        /// The Flow ID: all postcards of a flow go to one destination.
        #[default]
        Flow = "flow",
    }
}

/// Settings of a [`super::Aggregator`].
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Kind of aggregate to send.
    pub kind: Kind,
    /// R of the paper: number of postcards that fill a register.
    pub r: u32,
    /// Maximum time that a postcard waits in its register, ns.
    pub timer: u64,
    /// Number of registers for kinds with a node scope; a power of two. Other kinds have one register per destination.
    pub registers: usize,
    /// Associativity of the table: registers (1, 2, 4 or 8) that a node and flow can use. 1 is a plain register array, as
    /// in a switch.
    pub ways: usize,
    /// ID of this aggregator.
    pub aggregator: u32,
    /// Number of destinations to which aggregates are sent.
    pub destinations: usize,
    /// Field that selects the destination of a postcard.
    pub spread: Spread,
    /// Add the packet's fields ([`wire::aggregate::PacketFields`]) to each postcard, which a collector needs to verify
    /// paths. Agg kinds only.
    pub packet_fields: bool,
    /// Send groups of Telemetry Report 2.0 instead of aggregates. Agg_N and Agg_{N,F} only.
    pub interop: bool,
    /// Path MTU: the longest IP packet that reaches every destination, bytes.
    pub pmtu: u16,
    /// At least one destination is an IPv6 address.
    pub over_ipv6: bool,
    /// Dialect and units of the received postcards.
    pub profile: Profile,
}

impl Default for Config {
    /// The paper's Agg(25) with a timer of 1 ms.
    fn default() -> Self {
        Self {
            kind: Kind::Agg,
            r: 25,
            timer: 1_000_000,
            registers: 1 << 16,
            ways: 8,
            aggregator: 1,
            destinations: 1,
            spread: Spread::default(),
            packet_fields: false,
            interop: false,
            pmtu: 1500,
            over_ipv6: false,
            profile: Profile::default(),
        }
    }
}

/// The reason why settings are invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// R is 0 or more than fits into a datagram; contains the maximum.
    R(usize),
    /// The timer is 0.
    Timer,
    /// The number of registers is too large or not a power of two.
    Registers,
    /// The number of ways is not 1, 2, 4 or 8, or exceeds the number of registers.
    Ways,
    /// The number of destinations is 0 or too large.
    Destinations,
    /// Telemetry Report 2.0 cannot express this kind.
    Interop,
    /// The registers would need this many bytes, more than allowed.
    Memory(usize),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::R(0) => f.write_str("no postcard fits into a packet of this path MTU"),
            Self::R(most) => write!(
                f,
                "r must be 1 to {most}: no more fit into a packet of this path MTU"
            ),
            Self::Timer => f.write_str("the timer must be above 0"),
            Self::Registers => write!(f, "registers must be a power of two, at most {MAX_REGISTERS}"),
            Self::Ways => f.write_str("ways must be 1, 2, 4 or 8, and not more than registers"),
            Self::Destinations => write!(f, "there must be 1 to {MAX_DESTINATIONS} destinations"),
            Self::Interop => f.write_str(
                "interop needs kind agg_n or agg_nf: a Report 2.0 is of one node and has no summaries",
            ),
            Self::Memory(bytes) => write!(
                f,
                "these registers would need {} MiB, more than {} MiB: fewer registers, or a smaller r",
                bytes >> 20,
                MAX_BYTES >> 20
            ),
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Returns the maximum R, limited by the path MTU.
    pub fn max_r(&self) -> usize {
        if self.has_packet_fields() {
            return Kind::max_postcards_of(self.postcard_len(), self.pmtu, self.over_ipv6);
        }
        if !self.interop {
            return self.kind.max_postcards(self.pmtu, self.over_ipv6);
        }
        let headers = v20::GROUP_LEN + 8 + if self.over_ipv6 { 40 } else { 20 };
        usize::from(self.pmtu).saturating_sub(headers) / V20_POSTCARD_LEN
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.interop && !matches!(self.kind, Kind::AggNode | Kind::AggNodeFlow) {
            return Err(ConfigError::Interop);
        }
        if self.r == 0 || self.r as usize > self.max_r() {
            return Err(ConfigError::R(self.max_r()));
        }
        if self.timer == 0 {
            return Err(ConfigError::Timer);
        }
        if !self.registers.is_power_of_two() || self.registers > MAX_REGISTERS {
            return Err(ConfigError::Registers);
        }
        if !self.ways.is_power_of_two() || self.ways > MAX_WAYS.min(self.registers) {
            return Err(ConfigError::Ways);
        }
        if self.destinations == 0 || self.destinations > MAX_DESTINATIONS {
            return Err(ConfigError::Destinations);
        }
        if self.bytes() > MAX_BYTES {
            return Err(ConfigError::Memory(self.bytes()));
        }
        Ok(())
    }

    /// Returns the memory that the registers need, bytes (64 per register and 8 per key besides the datagram).
    pub fn bytes(&self) -> usize {
        self.slots() * (self.stride() + 64 + 8)
    }

    /// Number of registers in the table.
    pub(super) fn slots(&self) -> usize {
        if self.kind.node_scope() {
            self.registers
        } else {
            self.destinations
        }
    }

    /// Returns the bytes that a register reserves for its datagram; 0 for kinds that send summaries.
    pub(super) fn stride(&self) -> usize {
        if self.kind.is_correlated() {
            return 0;
        }
        self.head() + self.r as usize * self.postcard_len()
    }

    /// Returns the length of a datagram's header, bytes.
    pub(super) fn head(&self) -> usize {
        if self.interop {
            v20::GROUP_LEN
        } else {
            wire::aggregate::HEADER_LEN
        }
    }

    /// Returns the length of a postcard in a datagram, bytes.
    pub(super) fn postcard_len(&self) -> usize {
        match (self.interop, self.packet_fields) {
            (true, _) => V20_POSTCARD_LEN,
            (false, true) => wire::aggregate::LONG_POSTCARD_LEN,
            (false, false) => wire::aggregate::POSTCARD_LEN,
        }
    }

    /// Returns whether postcards are sent with the packet's fields.
    pub(super) fn has_packet_fields(&self) -> bool {
        self.packet_fields && !self.interop && !self.kind.is_correlated()
    }
}
