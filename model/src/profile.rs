//! The sections `[profiles]`, `[[sources]]` and `[nodes]`: how a kind of device encodes INT reports, and which senders and
//! nodes use which profile.

use std::{collections::BTreeMap, time::Duration};

use detect::Prefix;
use settings::{
    choice,
    read::{Node, Reader, Value},
    section,
    setting::{Chapter, Setting, Shown},
    values::{Clocks, from_text, refuse},
};
use wire::Dialect;

section! {
    /// Encoding of the reports of a kind of device. `[profiles.default]` applies to sources without a profile; by
    /// default it follows the specification, in nanoseconds. `strict`, `geant`, `hostint`, `intcollector-gen`,
    /// `onos` and `p4int` are built-in profiles of these dialects; a table of the same name replaces one.
    pub struct ProfileSettings("[profiles.NAME]") {
        /// The dialect of INT and Telemetry Report.
        pub dialect: Dialect = Dialect::Strict,
        /// Duration of one tick of the timestamps.
        pub timestamp_unit: Duration = Duration::from_nanos(1),
        /// Duration of one tick of the hop latency. The transit delay of IOAM is in nanoseconds whatever this says.
        pub latency_unit: Duration = Duration::from_nanos(1),
        /// Longest plausible hop latency. A longer one is not used: it is counted and shown as implausible, as is one of a
        /// record whose ingress timestamp is 0 and whose egress timestamp is not. A switch without an ingress time, as for a
        /// packet that it cloned, reports its uptime as hop latency. `0s` turns both checks off.
        pub max_hop_latency: Duration = Duration::from_secs(1),
        /// The device's unit of queue occupancy, shown beside the values.
        pub queue_unit: String = "bytes".to_owned(),
        /// Factor from the device's link utilization to a fraction of 1.
        pub utilization_scale: f64 = 1e-6,
        /// Whether the clocks of nodes are synchronised. With `free` clocks, the latency of a flow is the sum of its hop
        /// latencies, and marked as such.
        pub clocks: Clocks = Clocks::Free,
        /// DSCP that marks INT over TCP and UDP; not set: the dialect's.
        pub dscp: Option<u8> = None,
        /// Mask of the DSCP comparison; 0 turns the mark off. Not set: the dialect's.
        pub dscp_mask: Option<u8> = None,
        /// A second DSCP that marks INT, compared without a mask. Not set: the dialect's.
        pub dscp_other: Option<u8> = None,
        /// UDP destination port that marks INT; 0 turns the mark off.
        pub int_udp_port: u16 = 33122,
        /// Probe marker: eight bytes after the TCP or UDP header that mark INT.
        pub probe_marker: Option<Marker> = None,
        /// GRE protocol that marks INT.
        pub gre_protocol: u16 = 0x88b6,
        /// Position of the INT shim in TCP.
        pub tcp_shim: TcpShim = TcpShim::AfterFixed,
        /// UDP ports of telemetry reports, at most eight with those of `listen`; a report of INT about a report to one of them is refused as nested.
        pub telemetry_ports: Vec<u16> = vec![32766],
        /// UDP destination ports of VXLAN besides 4789 and 8472, at most four: in a reported packet to one of them, the flow is
        /// that of the packet inside.
        pub vxlan_ports: Vec<u16> = Vec::new(),
        /// In a drop report 0.5, egress interface 0 with queue 0 means that neither is known: fabric-tna writes both where it
        /// drops a packet before it has chosen them.
        pub drop_zero_unknown: bool = false,
        /// Names of the device's drop reasons, by code.
        pub drop_reasons: BTreeMap<u8, String> = BTreeMap::new(),
    }
}

choice! {
    /// Position of the INT shim in TCP.
    pub enum TcpShim("\"after-fixed\" or \"after-options\"") {
        /// After the 20 fixed bytes, before the options.
        AfterFixed = "after-fixed",
        /// The metadata follows the options.
        AfterOptions = "after-options",
    }
}

section! {
    /// Senders of reports, by address. The longest matching prefix applies. All sources and nodes together use at most 256
    /// different profiles; those that read and count alike are one.
    pub struct SourceSettings("[[sources]]") {
        /// The sender's address, or a network of senders.
        pub prefix: Option<Prefix> = None,
        /// Name of the profile of its reports.
        pub profile: String = "default".to_owned(),
        /// Display name of the sender.
        pub name: Option<String> = None,
    }
}

section! {
    /// A node, by its id. `12 = "leaf1"` in `[nodes]` is short for a table with a name.
    pub struct NodeSettings("[nodes.ID]") {
        /// Display name of the node.
        pub name: Option<String> = None,
        /// Name of the profile whose units apply to this node's values, regardless of the reporter: in a network with two vendors,
        /// the nodes of one INT stack can use different units. The dialect stays that of the source. Not with `mode = "kernel"`;
        /// changes apply at the next start.
        pub profile: Option<String> = None,
    }
}

/// A node in `[nodes]`: a name alone, or a table.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct NodeEntry(pub NodeSettings);

impl NodeEntry {
    /// Creates a node that has only a name.
    pub fn named(name: String) -> Self {
        Self(NodeSettings {
            name: Some(name),
            profile: None,
        })
    }
}

impl Setting for NodeEntry {
    const KIND: &'static str = "a name in quotes, or a table with `name` and `profile`";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        match node.get_ref() {
            Value::Table(_) => NodeSettings::read(node, reader).map(Self),
            Value::String(name) => Some(Self::named(name.to_string())),
            _ => refuse::<Self>(node, reader),
        }
    }

    fn show(&self) -> Shown {
        match (&self.0.name, &self.0.profile) {
            (Some(name), None) => Shown::Plain(name.as_str().into()),
            _ => self.0.show(),
        }
    }

    fn explain(path: &str, chapters: &mut Vec<Chapter>) {
        NodeSettings::explain(path, chapters);
    }
}

/// Eight marker bytes in packets, as hexadecimal text because TOML integers have only 63 bits for non-negative values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker(pub u64);

impl Setting for Marker {
    const KIND: &'static str = "eight bytes in hexadecimal, such as \"a5a55a5a494e5421\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        from_text(node, reader, |text| {
            let digits = text.strip_prefix("0x").unwrap_or(text);
            let whole = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            u64::from_str_radix(digits, 16).ok().filter(|_| whole).map(Self)
        })
    }

    fn show(&self) -> Shown {
        Shown::Plain(format!("{:016x}", self.0).into())
    }
}
