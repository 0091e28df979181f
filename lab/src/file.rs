//! The topology file of a lab, declared with the macros that also declare hopwise's configuration. The doc comments of the
//! settings are the text of the reference page, `docs/reference/lab.md`.

use std::{net::IpAddr, time::Duration};

use settings::{
    choice,
    read::{Node, Reader, Value},
    section,
    setting::{Setting, Shown},
    values::{Fraction, Rate, Size},
};

section! {
    /// A network on one machine, created by `hopwise lab up FILE`.
    pub(crate) struct LabFile("the file") {
        /// Name of the lab: letters, digits and `_`, at most 15. Its namespaces are called `hw-NAME-…`.
        pub(crate) name: String = String::new(),
        /// The hosts of the network.
        pub(crate) hosts: Vec<HostSettings> = Vec::new(),
        /// The switches of the network.
        pub(crate) switches: Vec<SwitchSettings> = Vec::new(),
        /// The links between hosts and switches.
        pub(crate) links: Vec<LinkSettings> = Vec::new(),
        /// Flows to measure, as [`[[intents]]`](config.md#intents) of a configuration. The switches start without rules, and a
        /// manager in the collector's process makes rules of the intents. Not set: UDP and TCP between all hosts, with INT-MD. An
        /// empty list: nothing, until an intent is added.
        pub(crate) intents: Option<Vec<Verbatim>> = None,
        /// A lab without a manager: the flows that the switches measure, and how, as [`[[switch.watch]]`](config.md) of a switch's
        /// configuration. The first match decides. None: UDP and TCP between all hosts, with INT-MD.
        pub(crate) watch: Vec<Verbatim> = Vec::new(),
        /// A lab without a manager: what the sinks report, as [`[[switch.filter]]`](config.md) of a switch's configuration. None: every
        /// packet that is measured.
        pub(crate) filter: Vec<Verbatim> = Vec::new(),
        /// More keys of `[switch]` for every switch, such as `report_version`, `l4_checksum` or `queue_reports`.
        pub(crate) switch: Option<Verbatim> = None,
        /// An aggregator between the switches and the collector: `[aggregator]` of a configuration, without the addresses. All reports
        /// go to it, and it reads postcards: modes `postcard` and `mx`.
        pub(crate) aggregator: Option<Verbatim> = None,
        /// A DTA translator between the switches and the collector's memory: `[translator]` of a configuration, without the addresses.
        /// The memory is `[collector.collector.memory]`, with its stores; the switches report by `[switch.dta]`. The lab adds
        /// the addresses of all three.
        pub(crate) translator: Option<Verbatim> = None,
        /// The collector's configuration, such as `[collector.thresholds]` or `[[collector.rules]]`. The
        /// lab adds the listen addresses, the names of the nodes, the store, the manager and its inventory. Required; it may be empty.
        pub(crate) collector: Option<Verbatim> = None,
    }
}

section! {
    /// A host: a network namespace with one link, to a switch, and a default route over it.
    pub(crate) struct HostSettings("[[hosts]]") {
        /// Name of the host: letters, digits and `_`. Two names joined by `-` name an interface, which has at most 15 characters.
        pub(crate) name: String = String::new(),
        /// IPv4 address, with or without a prefix length.
        pub(crate) address: Option<Address> = None,
        /// IPv6 address, with or without a prefix length. A host needs at least one address.
        pub(crate) address6: Option<Address> = None,
    }
}

section! {
    /// A switch: a network namespace with a process that forwards, measures, and reports.
    pub(crate) struct SwitchSettings("[[switches]]") {
        /// Name of the switch, with the same rules as a host's.
        pub(crate) name: String = String::new(),
        /// Kind of switch. `"hopwise"`: the switch of hopwise. `"bmv2"`: `simple_switch_grpc`, found on PATH, with a P4 program of
        /// this project, driven over P4Runtime. Its links have no rate, delay or loss.
        pub(crate) kind: SwitchKind = SwitchKind::Hopwise,
        /// The P4 program of a switch of kind `"bmv2"`, the same for all of them. `"int"` (`p4/v1model/int.p4`) measures in modes `md`,
        /// `mx` and `postcard`, `"sf"` (`p4/v1model/sf.p4`) in mode `sf`. Not set: `"int"`.
        pub(crate) program: Option<P4Program> = None,
        /// Node id in reports. Not set: 1 for the first switch, 2 for the second, …
        pub(crate) node: Option<u32> = None,
        /// Overrides the file's `[[watch]]`; a lab without a manager.
        pub(crate) watch: Option<Vec<Verbatim>> = None,
        /// Overrides the file's `[[filter]]`; a lab without a manager.
        pub(crate) filter: Option<Vec<Verbatim>> = None,
        /// Overrides `l4_checksum` of the file's `[switch]`, so that this switch behaves as one of another maker: `"leave"` beside
        /// switches that update the checksum, and hosts receive no packet with INT that passed it. A lab without a manager, which gives all
        /// switches the same encoding.
        pub(crate) l4_checksum: Option<String> = None,
    }
}

choice! {
    /// The software that a switch runs.
    pub(crate) enum SwitchKind("\"hopwise\" or \"bmv2\"") {
        /// The switch of hopwise.
        Hopwise = "hopwise",
        /// BMv2 with a hopwise P4 program.
        Bmv2 = "bmv2",
    }
}

choice! {
    /// The P4 program of a BMv2 switch.
    pub(crate) enum P4Program("\"int\" or \"sf\"") {
        /// INT-MD, INT-MX and postcards.
        Int = "int",
        /// SF-INT on the software switch.
        Sf = "sf",
    }
}

section! {
    /// A link, the same in both directions. There may be several between two switches. Packets take the path with the
    /// fewest links; flows are spread over paths of equal length.
    pub(crate) struct LinkSettings("[[links]]") {
        /// The names of its two ends: two switches, or a switch and a host.
        pub(crate) between: Vec<String> = Vec::new(),
        /// Rate of the link; packets above it queue. Not set: unlimited.
        pub(crate) rate: Option<Rate> = None,
        /// Size of that queue; packets beyond it are dropped. Not set: the switch's default.
        pub(crate) depth: Option<Size> = None,
        /// Delay in each direction.
        pub(crate) delay: Duration = Duration::ZERO,
        /// Share of the packets lost in each direction.
        pub(crate) loss: Fraction = Fraction(0),
        /// Maximum packet size in bytes. Not set: 1500 at a host; between switches 640 more than at any host, as room for INT.
        pub(crate) mtu: Option<u32> = None,
    }
}

/// An address with an optional prefix length: `10.0.1.1`, `10.0.1.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The address without its prefix length.
    pub(crate) ip: IpAddr,
    /// Length of the prefix, bits.
    pub(crate) bits: u8,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.ip, self.bits)
    }
}

impl Setting for Address {
    const KIND: &'static str = "an address, such as \"10.0.1.1\", \"10.0.1.1/24\" or \"fd00:1::1\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let read = node.get_ref().as_str().and_then(|text| {
            let (ip, bits) = text
                .split_once('/')
                .map_or((text, None), |(ip, bits)| (ip, Some(bits)));
            let ip: IpAddr = ip.parse().ok()?;
            let most = if ip.is_ipv4() { 32 } else { 128 };
            let bits = bits.map_or(Some(most), |bits| {
                bits.parse().ok().filter(|bits| (1..=most).contains(bits))
            })?;
            Some(Self { ip, bits })
        });
        if read.is_none() {
            reader.expected(node, Self::KIND);
        }
        read
    }

    fn show(&self) -> Shown {
        Shown::Plain(self.to_string().into())
    }
}

/// Table of another configuration, passed on as written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verbatim(pub(crate) Shown);

impl Setting for Verbatim {
    const KIND: &'static str = "a table";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let table = shown(node);
        if !matches!(table, Shown::Table(_)) {
            reader.expected(node, Self::KIND);
            return None;
        }
        Some(Self(table))
    }

    fn show(&self) -> Shown {
        self.0.clone()
    }
}

/// Converts a TOML value. One that no setting accepts (a date, a number beyond 64 bits) becomes text, rejected later.
pub(crate) fn shown(node: &Node<'_>) -> Shown {
    match node.get_ref() {
        Value::String(text) => Shown::Plain(text.as_ref().into()),
        Value::Integer(number) => {
            let value = number.to_i64().map(Into::into);
            Shown::Plain(value.unwrap_or_else(|| number.as_str().into()))
        }
        Value::Float(number) => {
            let value = number.to_f64().map(Into::into);
            Shown::Plain(value.unwrap_or_else(|| number.as_str().into()))
        }
        Value::Boolean(value) => Shown::Plain((*value).into()),
        Value::Datetime(date) => Shown::Plain(date.as_str().into()),
        Value::Array(list) => Shown::List(list.iter().map(shown).collect()),
        Value::Table(table) => Shown::Table(
            table
                .iter()
                .map(|(key, value)| (key.get_ref().to_string(), shown(value)))
                .collect(),
        ),
    }
}

/// Renders the reference page of the topology file, in Markdown.
#[cfg(test)]
pub(crate) fn reference() -> String {
    let mut chapters = Vec::new();
    LabFile::explain("", &mut chapters);
    chapters[0].heading = "the file".to_owned();
    settings::show::page(REFERENCE_HEAD, &chapters)
}

#[cfg(test)]
const REFERENCE_HEAD: &str = "# Reference: the topology file of a lab

<!-- Made from the source by `cargo test -p hopwise-lab`; do not edit. To accept a change: UPDATE_REFERENCE=1 cargo test -p hopwise-lab -->

`hopwise lab up FILE` creates the network: see the [tutorial](../tutorial/a-lab-on-your-laptop.md). The file is TOML; unknown keys are
rejected. Examples are in `examples/lab/`.

Durations are numbers with a unit: `ns`, `us`, `ms`, `s`. Sizes are numbers with `B`, `KiB`, `MiB`. Rates are numbers with `bit/s`,
`kbit/s`, `Mbit/s`, `Gbit/s`.
";

#[cfg(test)]
mod tests {
    #[test]
    fn the_reference_page_of_the_topology_file_is_up_to_date() {
        testkit::compare_page("docs/reference/lab.md", &super::reference());
    }
}
