//! The role `aggregator`: settings of a P4 switch that aggregates INT postcards, and the entries of the program `aggregator`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use settings::{choice, section};
use wire::aggregate::Kind;

use super::{CrossConnectSettings, Role, RoleEntry, RoleKind, TimerSettings, frame, mac, micros, port};

/// Number of registers in the program.
const MAX_REGISTERS: u32 = 4096;
/// Maximum number of destinations.
const MAX_DESTINATIONS: usize = 64;
/// Maximum number of postcards in an aggregate that carries postcards. The program has room for 25, but BMv2 terminates when a
/// frame grows by more than 512 bytes.
const MAX_HELD: u32 = 23;
/// Maximum number of destinations that a description names.
const MAX_NAMED: usize = 3;
/// The clone session for the remaining postcards of a datagram, which are recirculated, so its port does not matter.
const REST_SESSION: u32 = 501;
const REST_PORT: u32 = 1;

section! {
    /// A device with `role = "aggregator"`: postcards in, aggregates out (`map = "hopwise-aggregator"`).
    pub struct AggregatorSettings("[manager.p4runtime.NAME.aggregator]") {
        /// UDP ports to which nodes send their postcards, at any address.
        pub(crate) listen: Vec<u16> = vec![32766],
        /// Kind of aggregates, as in `[aggregator]`: `agg`, `agg_n`, `agg_nf`, `cor`, `cor_n` or `cor_nf`.
        pub(crate) kind: Kind = Kind::Agg,
        /// Postcards in one aggregate or summary; for `agg` kinds at most 23.
        pub(crate) r: u32 = 23,
        /// Longest time that a postcard waits for others, as far as timer frames arrive.
        pub(crate) timer: Duration = Duration::from_millis(1),
        /// Registers for nodes, or nodes and flows, of kinds with a scope; a power of two, at most 4096.
        pub(crate) registers: u32 = 4096,
        /// Aggregator ID, by which the collector distinguishes aggregators. Not set: the device's node id.
        pub(crate) aggregator: Option<u32> = None,
        /// The key that selects one of several destinations: `flow` or `node`.
        pub(crate) spread: P4Spread = P4Spread::Flow,
        /// Destinations of the aggregates.
        pub(crate) destinations: Vec<DestinationSettings> = Vec::new(),
        /// Ports between which other packets pass.
        pub(crate) cross_connect: Vec<CrossConnectSettings> = Vec::new(),
        /// Timer frames. Without them, a postcard waits until its register is full or another node or flow needs it.
        pub(crate) timer_frames: TimerSettings = TimerSettings::default(),
    }
}

section! {
    /// A destination of aggregates.
    pub struct DestinationSettings("[[manager.p4runtime.NAME.aggregator.destinations]]") {
        /// Address and UDP port of the collector.
        pub(crate) to: Option<SocketAddr> = None,
        /// The device's port towards the destination.
        pub(crate) port: u32 = 0,
        /// Source address of the aggregates.
        pub(crate) source: Option<IpAddr> = None,
        /// The MAC address of that port.
        pub(crate) source_mac: String = String::new(),
        /// The MAC address of the collector, or of the next router.
        pub(crate) mac: String = String::new(),
    }
}

choice! {
    /// The key that selects a destination.
    pub enum P4Spread("\"flow\" or \"node\"") {
        /// The flow of the postcards.
        Flow = "flow",
        /// The node of the postcards.
        Node = "node",
    }
}

impl AggregatorSettings {
    /// Builds the role for the device with this node id.
    ///
    /// # Errors
    /// A sentence with the setting's key and the problem.
    pub fn role(&self, node: u32) -> Result<Role, String> {
        self.check()?;
        let mut entries = Vec::new();
        for (number, destination) in self.destinations.iter().enumerate() {
            entries.push(destination.entry(number)?);
        }
        entries.push(RoleEntry::clone_session(REST_SESSION, REST_PORT));
        entries.push(RoleEntry::default(
            "aggregator",
            "aggregate",
            vec![
                ("kind", (self.kind as u8).into()),
                ("r", self.r.into()),
                ("timer", micros(self.timer, "timer")?),
                ("aggregator", self.aggregator.unwrap_or(node).into()),
                ("registers", u128::from(self.registers) - 1),
                ("destinations", self.destinations.len() as u128),
                ("by_node", u128::from(self.spread == P4Spread::Node)),
            ],
        ));
        for port in &self.listen {
            let key = vec![("udp_dport", u128::from(*port))];
            entries.push(RoleEntry::entry("postcard_port", key, "accept_postcards", Vec::new()).last());
        }
        let slots = if self.kind.node_scope() {
            self.registers
        } else {
            self.destinations.len() as u32
        };
        let frames = (0..slots)
            .map(|slot| frame(&[[0; 4], slot.to_be_bytes()].concat()))
            .collect();
        Role::new(
            RoleKind::Aggregator,
            entries,
            frames,
            &self.cross_connect,
            &self.timer_frames,
        )
    }

    /// Describes the role in a few words, for display.
    pub fn about(&self) -> String {
        let destinations = self.destinations.iter().filter_map(|destination| destination.to);
        let mut names: Vec<String> = destinations.take(MAX_NAMED).map(|to| to.to_string()).collect();
        let more = self.destinations.len().saturating_sub(MAX_NAMED);
        names.extend((more > 0).then(|| format!("{more} more")));
        format!(
            "{} of {} postcards to {}",
            self.kind.name(),
            self.r,
            names.join(", ")
        )
    }

    /// Checks the limits of the program.
    fn check(&self) -> Result<(), String> {
        if self.listen.is_empty() || self.listen.contains(&0) {
            return Err("listen: write the UDP ports of postcards, such as [32766]".to_owned());
        }
        if self.destinations.is_empty() || self.destinations.len() > MAX_DESTINATIONS {
            return Err(format!("destinations: write 1 to {MAX_DESTINATIONS}"));
        }
        if !self.registers.is_power_of_two() || self.registers > MAX_REGISTERS {
            return Err(format!(
                "registers: write a power of two, at most {MAX_REGISTERS}"
            ));
        }
        match (self.kind.is_correlated(), self.r) {
            (_, 0) => Err("r: write at least 1".to_owned()),
            (false, r) if r > MAX_HELD => Err(format!(
                "r: an aggregate of `{}` has at most {MAX_HELD} postcards, as bmv2 ends when a frame grows by more than 512 bytes; write less, or a `cor` kind",
                self.kind.name()
            )),
            _ => Ok(()),
        }
    }
}

impl DestinationSettings {
    /// Builds the entry of destination `number`.
    fn entry(&self, number: usize) -> Result<RoleEntry, String> {
        let at = format!("destinations[{number}]");
        let to = self
            .to
            .ok_or_else(|| format!("{at}.to: write it like \"192.0.2.100:32767\""))?;
        let source = self
            .source
            .ok_or_else(|| format!("{at}.source: write the address from which aggregates come"))?;
        let source_mac = mac(&self.source_mac).map_err(|error| format!("{at}.source_mac: {error}"))?;
        let next_mac = mac(&self.mac).map_err(|error| format!("{at}.mac: {error}"))?;
        let (action, src, dst) = match (source, to.ip()) {
            (IpAddr::V4(source), IpAddr::V4(to)) => {
                ("send", u128::from(source.to_bits()), u128::from(to.to_bits()))
            }
            (IpAddr::V6(source), IpAddr::V6(to)) => ("send_v6", source.to_bits(), to.to_bits()),
            _ => {
                return Err(format!(
                    "{at}.source: write an address of the same family as `to`"
                ));
            }
        };
        let params = vec![
            ("port", u128::from(port(self.port, &format!("{at}.port"))?)),
            ("src_mac", source_mac.into()),
            ("dst_mac", next_mac.into()),
            ("src_ip", src),
            ("dst_ip", dst),
            ("dst_port", to.port().into()),
        ];
        Ok(RoleEntry::entry(
            "destination",
            vec![("destination", number as u128)],
            action,
            params,
        ))
    }
}
