//! Settings of a switch: the table `[switch]`, checks across settings, and the conversion to the data plane's configuration.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use dataplane::{
    Watch, Watchlist,
    report::{Format, Version},
    router::{self, LinkConfig, Port, Route},
    sf,
    switch::{self, Congestion, Mark},
    watchlist::Mode,
};
use detect::{Match, PortRange, Prefix};

pub mod dta;
pub mod filter;

use dta::DtaSettings;
use filter::{FilterSet, FilterSettings, RoleSettings};
use manager::device::L4Checksum;
use settings::{
    choice,
    problems::Problems,
    section,
    values::{Clocks, Fraction, Protocol, Rate, Size, as_nanoseconds},
};
use view::switch::INSTRUCTIONS;

section! {
    /// A software switch that forwards IPv4 and IPv6 between interfaces and performs INT. Needs CAP_NET_RAW and
    /// CAP_NET_ADMIN, and interfaces without addresses. A file with this table and without `[collector]` starts only a switch
    /// and its API.
    pub struct SwitchSettings("[switch]") {
        /// Node ID in INT and in reports; not 0.
        pub node: u32 = 0,
        /// Name of the switch in displays and in LLDP.
        pub name: Option<String> = None,
        /// Destination of reports, sent by UDP through the network stack of this machine. Not set: none are sent.
        pub reports: Option<SocketAddr> = None,
        /// Version of the reports.
        pub report_version: Version = Version::V20,
        /// The mark that distinguishes packets with INT; the same in the whole INT domain.
        pub mark: MarkSettings = MarkSettings::default(),
        /// Treatment of the L4 checksum of packets with INT, the same in the whole INT domain. With another vendor's node between this
        /// source and its sink, write what that node does: `leave` for the programs of ONOS and fabric. A wrong setting gives
        /// every packet a wrong checksum, and hosts drop them: the sink examines one packet of 64 and counts.
        pub l4_checksum: L4Checksum = L4Checksum::Update,
        /// Thresholds of queue reports. Not set: queues are not reported.
        [live] pub queue_reports: Option<QueueReportSettings> = None,
        /// Settings of SF-INT on this switch.
        pub sf: SfSettings = SfSettings::default(),
        /// Source address of ICMP errors, which `traceroute` shows. 192.0.0.8 is for nodes without an address (RFC 7600).
        pub address: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8)),
        /// Source address of ICMPv6 errors. Not set: an address that ends in the node ID.
        pub address6: Option<IpAddr> = None,
        /// Send LLDP (IEEE 802.1AB) on the ports, and receive that of their neighbours: a manager learns the links from it.
        pub lldp: bool = true,
        /// Size of the RX ring of each port, frames.
        pub ring: usize = 1024,
        /// Seed of the random loss and reordering; the same seed selects the same frames.
        pub seed: u64 = 1,
        /// The ports of the switch.
        [live] pub ports: Vec<PortSettings> = Vec::new(),
        /// The routes between the ports.
        [live] pub routes: Vec<RouteSettings> = Vec::new(),
        /// Watchlist: flows to measure, at the edge port where they enter (postcards: everywhere). The first match applies.
        [live] pub watch: Vec<WatchSettings> = Vec::new(),
        /// Event detection at the sink: which packets are reported.
        [live] pub filter: Vec<FilterSettings> = Vec::new(),
        /// Registers per filter (flows or nodes), a power of two; colliding flows share a register and are reported more
        /// often.
        [live] pub filter_registers: usize = 4096,
        /// Whether the clocks of all nodes are synchronised, so that filters may compare timestamps. As in the collector's
        /// profile.
        [live] pub clocks: Clocks = Clocks::Free,
        /// INT roles of this switch for some flows.
        [live] pub role: Vec<RoleSettings> = Vec::new(),
        /// Reports by Direct Telemetry Access. Not set: none.
        pub dta: Option<DtaSettings> = None,
        /// A manager configures INT on this switch. Not set: this file does.
        pub managed: Option<ManagedSettings> = None,
    }
}

section! {
    /// A switch whose INT is configured by a manager, through the API: roles of ports, watchlist, filters and the destination of
    /// reports, which this file then does not have. It forwards nothing until it has its rules, so that no INT reaches a host.
    pub struct ManagedSettings("[switch.managed]") {
        /// File in which the rules survive a restart. Not set: a restarted switch waits until its manager has configured it again.
        pub state: Option<PathBuf> = None,
    }
}

section! {
    /// The mark of packets with INT.
    pub struct MarkSettings("[switch.mark]") {
        /// DSCP, 1 to 63.
        pub dscp: u8 = 23,
        /// UDP destination port instead of the DSCP (INT 2.1).
        pub port: Option<u16> = None,
        /// Over IPv6, INT-MD and INT-MX 2.1 are an option of the hop-by-hop header, which needs no mark and leaves L4 as it is. SF-INT
        /// always is. All nodes of the domain must support it; every hopwise switch reads both.
        pub hop_by_hop: bool = false,
    }
}

section! {
    /// Thresholds of queue reports.
    pub struct QueueReportSettings("[switch.queue_reports]") {
        /// Report the queue when its depth reaches this.
        pub rise: Size = Size(64_000),
        /// Report it again when the depth has fallen to this.
        pub fall: Size = Size(16_000),
        /// In between, report this many of the packets that pass the queue, each with the depth that it found.
        pub quota: u32 = 0,
    }
}

section! {
    /// SF-INT (`mode = "sf"`): each packet carries the record of one node and keeps its size.
    pub struct SfSettings("[switch.sf]") {
        /// Registers, a power of two up to 1048576; colliding flows share one.
        pub registers: usize = 1024,
        /// One register for all flows.
        pub single: bool = false,
        /// Age after which a record in a register is discarded.
        pub aging: Duration = Duration::from_secs(1),
        /// Contents of a report.
        pub form: sf::Form = sf::Form::Full,
        /// Every n-th packet of a flow collects the records of all nodes itself. Not set: none.
        pub urgent_every: Option<u32> = None,
        /// So do packets that find this depth in the queue of the first switch. Not set: none.
        pub urgent_queue: Option<Size> = None,
    }
}

section! {
    /// A port with two emulated links: one for egress, and one for ingress (`in_…`), for hosts without such queues of their
    /// own. Without a rate there is no queueing.
    pub struct PortSettings("[[switch.ports]]") {
        /// Interface ID in INT, 1 to 255; also the queue ID.
        pub number: u16 = 0,
        /// Level-2 interface ID in INT: the logical interface, such as a link aggregation group, that the port belongs to; from 1. Not
        /// set: the number.
        [live] pub logical: Option<u32> = None,
        /// The network interface. It should have no addresses; IPv6 is disabled on it.
        pub interface: String = String::new(),
        /// Edge port to hosts: this switch is the source for packets that enter here and the sink for packets that leave.
        /// Otherwise the port leads to another switch.
        pub edge: bool = false,
        /// Whether the port is up.
        [live] pub up: bool = true,
        /// MTU: longest IP packet, bytes. Not set: the MTU of the interface.
        [live] pub mtu: Option<u16> = None,
        /// Link rate, bits per second.
        [live] pub rate: Option<Rate> = None,
        /// Capacity of the queue, bytes.
        [live] pub depth: Size = Size(256 << 10),
        /// Propagation delay of the link.
        [live] pub delay: Duration = Duration::ZERO,
        /// Fraction of frames that the link loses.
        [live] pub loss: Fraction = Fraction(0),
        /// Fraction of frames that the link delays by `reorder_delay` in addition.
        [live] pub reorder: Fraction = Fraction(0),
        /// Additional delay of reordered frames.
        [live] pub reorder_delay: Duration = Duration::from_millis(1),
        /// As `rate`, for ingress.
        [live] pub in_rate: Option<Rate> = None,
        /// As `depth`, for ingress.
        [live] pub in_depth: Size = Size(256 << 10),
        /// As `delay`, for ingress.
        [live] pub in_delay: Duration = Duration::ZERO,
        /// As `loss`, for ingress.
        [live] pub in_loss: Fraction = Fraction(0),
        /// As `reorder`, for ingress.
        [live] pub in_reorder: Fraction = Fraction(0),
        /// As `reorder_delay`, for ingress.
        [live] pub in_reorder_delay: Duration = Duration::from_millis(1),
    }
}

section! {
    /// A route. Several routes of one prefix are ECMP: each flow uses one of them.
    pub struct RouteSettings("[[switch.routes]]") {
        /// Destination: a network or an address.
        pub to: Option<Prefix> = None,
        /// Port through which packets leave.
        pub port: u16 = 0,
        /// Next hop on an edge port. Not set: the destination is directly connected.
        pub via: Option<IpAddr> = None,
    }
}

section! {
    /// A watchlist entry: flows to measure, and how.
    pub struct WatchSettings("[[switch.watch]]") {
        /// Source addresses to match.
        pub src: Option<Prefix> = None,
        /// Destination addresses to match.
        pub dst: Option<Prefix> = None,
        /// Source ports to match.
        pub sport: Option<PortRange> = None,
        /// Destination ports to match.
        pub dport: Option<PortRange> = None,
        /// IP protocol. INT supports only TCP and UDP.
        pub proto: Option<Protocol> = None,
        /// INT mode of these flows.
        pub mode: Mode = Mode::Md21,
        /// Metadata that every node adds.
        pub items: Vec<Item> = Item::USUAL.to_vec(),
        /// Remaining Hop Count: how many nodes may add a record.
        pub hops: u8 = 16,
        /// Measure one packet of this many. Postcards: each switch with the same number chooses the same packets.
        pub sample: u32 = 1,
        /// Report dropped packets of these flows, without regard to `sample`.
        pub drops: bool = true,
    }
}

choice! {
    /// Metadata of a packet in a node.
    pub enum Item(
        "\"node_id\", \"interfaces\", \"hop_latency\", \"queue\", \"ingress_ts\", \"egress_ts\", \"l2_interfaces\", \"tx_utilization\", \"buffer\" or \"checksum_complement\""
    ) {
        /// Node ID, from which paths are reconstructed.
        NodeId = "node_id",
        /// Ingress and egress port.
        Interfaces = "interfaces",
        /// Latency of the hop.
        HopLatency = "hop_latency",
        /// Queue ID and its depth on enqueue, bytes.
        Queue = "queue",
        /// Time of arrival at the hop.
        IngressTs = "ingress_ts",
        /// Time of departure from the hop.
        EgressTs = "egress_ts",
        /// Level-2 ingress and egress interface: `logical` of the ports.
        L2Interfaces = "l2_interfaces",
        /// Utilization of the egress link, millionths.
        TxUtilization = "tx_utilization",
        /// Buffer ID (0) and the bytes in all egress queues when the packet arrived.
        Buffer = "buffer",
        /// Checksum complement, in packets only: with `l4_checksum = "leave"` it keeps the L4 checksum right while INT is in the packet;
        /// otherwise it is all-ones, because the switch updates the checksum itself.
        ChecksumComplement = "checksum_complement",
    }
}

impl Item {
    const USUAL: [Self; 7] = [
        Self::NodeId,
        Self::Interfaces,
        Self::HopLatency,
        Self::Queue,
        Self::IngressTs,
        Self::EgressTs,
        Self::TxUtilization,
    ];

    /// Returns the metadata of these instruction bits, or `None` if this switch has no value for one of them.
    pub fn from_bits(bits: u16) -> Option<Vec<Self>> {
        let items = Self::ALL.into_iter().filter(|item| bits & item.bit() != 0);
        (bits & !INSTRUCTIONS == 0).then(|| items.collect())
    }

    /// Returns the instruction bit; bit 0 is the most significant.
    fn bit(self) -> u16 {
        // Variants are declared in the order of their bits, except for the checksum complement, which is the last bit.
        match self {
            Self::ChecksumComplement => 1,
            other => 0x8000 >> other as u16,
        }
    }
}

impl SwitchSettings {
    /// Returns the filters and roles of the settings.
    pub fn filter_set(&self) -> FilterSet<'_> {
        FilterSet {
            filters: &self.filter,
            roles: &self.role,
            registers: self.filter_registers,
            clocks: self.clocks,
        }
    }
}

/// Reports inconsistent settings. `refuse` receives the path of a setting and a message.
pub fn check(settings: &SwitchSettings, refuse: &mut dyn FnMut(&[&str], String)) {
    if settings.node == 0 {
        refuse(
            &["switch", "node"],
            "a switch needs an id; add node = 11 or the like".to_owned(),
        );
    }
    if !(64..=1 << 16).contains(&settings.ring) {
        refuse(&["switch", "ring"], "write a number from 64 to 65536".to_owned());
    }
    if settings.address.is_ipv6() {
        refuse(
            &["switch", "address"],
            "write an IPv4 address; the other family's is address6".to_owned(),
        );
    }
    if settings.address6.is_some_and(|address| address.is_ipv4()) {
        refuse(
            &["switch", "address6"],
            "write an IPv6 address; the other family's is address".to_owned(),
        );
    }
    check_ports(settings, refuse);
    check_routes(settings, refuse);
    check_managed(settings, refuse);
    for (index, watch) in settings.watch.iter().enumerate() {
        let path = ["switch", "watch", &index.to_string()];
        if watch.items.is_empty() {
            refuse(
                &path,
                "no metadata selected; write items = [\"node_id\"] or more".to_owned(),
            );
        }
        if watch
            .src
            .zip(watch.dst)
            .is_some_and(|(src, dst)| src.is_v6() != dst.is_v6())
        {
            let message = "this matches nothing: one address is IPv4 and the other IPv6; correct one, or remove the table";
            refuse(&path, message.to_owned());
        }
        if watch.sample == 0 {
            refuse(
                &path,
                "a sample of 0 is invalid; write sample = 1 or more, or remove the table".to_owned(),
            );
        }
    }
    filter::check(&settings.filter_set(), refuse);
    if let Some(dta) = &settings.dta {
        dta::check(
            dta,
            settings.node,
            settings.managed.is_some(),
            &mut |path, message| {
                let path: Vec<&str> = ["switch"].iter().chain(path).copied().collect();
                refuse(&path, message);
            },
        );
    }
    // The data plane checks the remaining contradictions between INT settings.
    if let Err(error) = switch::Switch::new(settings.node, int_config(settings), watchlist(&settings.watch)) {
        use switch::ConfigError::{
            BadCongestion, BadDscp, BadPort, BadRegisters, BadSfWatch, ComplementWithoutStack, NeedsReport20,
        };
        let path: &[&str] = match error {
            BadDscp(_) | BadPort => &["switch", "mark"],
            BadCongestion => &["switch", "queue_reports"],
            BadRegisters => &["switch", "sf"],
            BadSfWatch | ComplementWithoutStack => &["switch", "watch"],
            NeedsReport20 => &["switch", "report_version"],
            _ => &["switch"],
        };
        if error != switch::ConfigError::EmptyBitmap {
            refuse(path, error.to_string());
        }
    }
}

/// Refuses settings in the file that a manager decides on.
fn check_managed(settings: &SwitchSettings, refuse: &mut dyn FnMut(&[&str], String)) {
    let written = [
        ("reports", settings.reports.is_some()),
        ("watch", !settings.watch.is_empty()),
        ("filter", !settings.filter.is_empty()),
        ("role", !settings.role.is_empty()),
    ];
    for (key, _) in written
        .iter()
        .filter(|(_, written)| *written && settings.managed.is_some())
    {
        let message =
            format!("the manager of this switch decides `{key}`; remove it, or remove [switch.managed]");
        refuse(&["switch", key], message);
    }
}

/// Reports problems of `[[switch.ports]]`, such as duplicate numbers or interfaces.
fn check_ports(settings: &SwitchSettings, refuse: &mut dyn FnMut(&[&str], String)) {
    for (index, port) in settings.ports.iter().enumerate() {
        if matches!(port.logical, Some(0 | u32::MAX)) {
            let path = ["switch", "ports", &index.to_string(), "logical"];
            refuse(&path, "write a number from 1 to 4294967294".to_owned());
        }
    }
    if settings.ports.is_empty() {
        refuse(
            &["switch", "ports"],
            "a switch needs ports; add [[switch.ports]]".to_owned(),
        );
    }
    for (index, port) in settings.ports.iter().enumerate() {
        let before = &settings.ports[..index];
        let position = index.to_string();
        let mut refuse_key =
            |key: &str, message: String| refuse(&["switch", "ports", &position, key], message);
        if !(1..=255).contains(&port.number) {
            refuse_key("number", "a port needs a number from 1 to 255".to_owned());
        } else if before.iter().any(|other| other.number == port.number) {
            refuse_key(
                "number",
                format!("there are two ports {}; renumber one", port.number),
            );
        }
        let name = &port.interface;
        let is_valid = (1..=15).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':');
        if !is_valid {
            refuse_key(
                "interface",
                "a port needs an interface; add interface = \"eth1\" or the like".to_owned(),
            );
        } else if before.iter().any(|other| other.interface == *name) {
            refuse_key(
                "interface",
                format!("two ports have the interface {name}; give one another"),
            );
        }
        if port.mtu.is_some_and(|mtu| mtu < 576) {
            refuse_key("mtu", "write at least 576".to_owned());
        }
        for (key, depth) in [("depth", port.depth), ("in_depth", port.in_depth)] {
            if depth.0 > 1 << 30 {
                refuse_key(key, "write at most \"1 GiB\"".to_owned());
            }
        }
        for (key, delay) in [
            ("delay", port.delay),
            ("reorder_delay", port.reorder_delay),
            ("in_delay", port.in_delay),
            ("in_reorder_delay", port.in_reorder_delay),
        ] {
            if delay.as_secs() >= 10 {
                refuse_key(key, "write less than \"10s\"".to_owned());
            }
        }
    }
}

/// Reports problems of `[[switch.routes]]`.
fn check_routes(settings: &SwitchSettings, refuse: &mut dyn FnMut(&[&str], String)) {
    for (index, route) in settings.routes.iter().enumerate() {
        let position = index.to_string();
        let table = ["switch", "routes", &position];
        let mut problems = Problems::new(&table, refuse);
        let Some(to) = route.to else {
            problems.add(
                "to",
                "a route needs a destination; add to = \"10.0.2.0/24\" or the like",
            );
            continue;
        };
        let port = settings.ports.iter().find(|port| port.number == route.port);
        if port.is_none() {
            let numbers: Vec<String> = settings
                .ports
                .iter()
                .map(|port| port.number.to_string())
                .collect();
            let message = format!(
                "there is no port {}; there are: {}",
                route.port,
                numbers.join(", ")
            );
            problems.add("port", message);
        }
        if route.via.is_some_and(|via| via.is_ipv6() != to.is_v6()) {
            problems.add(
                "via",
                "it is of the other family; write an address of the destination's",
            );
        } else if route.via.is_some() && port.is_some_and(|port| !port.edge) {
            problems.add(
                "via",
                "only on edge ports; on others the next hop is always the switch at the other end",
            );
        }
        let before = &settings.routes[..index];
        if before
            .iter()
            .any(|other| other.to == route.to && other.port == route.port)
        {
            refuse(
                &["switch", "routes", &position],
                "this route is written twice; remove one".to_owned(),
            );
        }
    }
}

/// Returns the INT configuration of the switch.
pub fn int_config(settings: &SwitchSettings) -> switch::Config {
    let version = settings.report_version;
    // Report 1.0 cannot carry the switch's own metadata separately, so it goes onto the packet's INT stack.
    let metadata_on_stack = version == Version::V10;
    switch::Config {
        mark: Mark {
            dscp: settings.mark.dscp,
            port: settings.mark.port,
            hop_by_hop: settings.mark.hop_by_hop,
        },
        available: INSTRUCTIONS,
        l4_checksum: match settings.l4_checksum {
            L4Checksum::Update => switch::L4Checksum::Update,
            L4Checksum::Leave => switch::L4Checksum::Leave,
            L4Checksum::Zero => switch::L4Checksum::Zero,
        },
        format: Format {
            version,
            metadata_on_stack,
            ..Format::default()
        },
        congestion: congestion(settings),
        sf: sf::Config {
            registers: settings.sf.registers,
            single: settings.sf.single,
            aging: as_nanoseconds(settings.sf.aging),
            form: settings.sf.form,
            urgent: sf::Urgent {
                every: settings.sf.urgent_every,
                queue: settings.sf.urgent_queue.map(bytes),
            },
        },
    }
}

/// Returns the thresholds of queue reports.
pub fn congestion(settings: &SwitchSettings) -> Option<Congestion> {
    settings.queue_reports.as_ref().map(|limits| Congestion {
        rise: bytes(limits.rise),
        fall: bytes(limits.fall),
        quota: limits.quota,
    })
}

fn bytes(size: Size) -> u32 {
    u32::try_from(size.0).unwrap_or(u32::MAX)
}

/// Builds a match of these fields; `None` matches any value.
fn flow_match(
    src: Option<Prefix>,
    dst: Option<Prefix>,
    sport: Option<PortRange>,
    dport: Option<PortRange>,
    proto: Option<Protocol>,
) -> Match {
    Match {
        src,
        dst,
        src_port: sport.unwrap_or(PortRange::ANY),
        dst_port: dport.unwrap_or(PortRange::ANY),
        proto: proto.map(|protocol| protocol.0),
    }
}

/// Builds the watchlist from its settings.
pub fn watchlist(settings: &[WatchSettings]) -> Watchlist {
    let watches = settings.iter().map(|watch| Watch {
        mode: watch.mode,
        bitmap: watch.items.iter().fold(0, |bits, item| bits | item.bit()),
        hops: watch.hops,
        sample: watch.sample,
        drops: watch.drops,
        ..Watch::new(flow_match(
            watch.src,
            watch.dst,
            watch.sport,
            watch.dport,
            watch.proto,
        ))
    });
    Watchlist::new(watches.collect())
}

/// Converts the routes for the router.
pub fn routes(settings: &SwitchSettings) -> Vec<Route> {
    let routes = settings.routes.iter().filter_map(|route| {
        Some(Route {
            to: route.to?,
            port: route.port,
            via: route.via,
        })
    });
    routes.collect()
}

/// Builds a port of `node`. `mtu` is the interface's MTU, bytes.
pub fn port(node: u32, settings: &PortSettings, mtu: u16) -> Port {
    Port {
        number: settings.number,
        mac: Port::mac_for(node, settings.number),
        logical: settings.logical.unwrap_or(0),
        edge: settings.edge,
        source: None,
        sink: None,
        mtu: settings.mtu.unwrap_or(mtu),
        up: settings.up,
        out: LinkConfig {
            rate: settings.rate.map(|rate| rate.0),
            depth: bytes(settings.depth),
            delay: as_nanoseconds(settings.delay),
            loss: settings.loss.0,
            reorder: settings.reorder.0,
            reorder_delay: as_nanoseconds(settings.reorder_delay),
        },
        into: LinkConfig {
            rate: settings.in_rate.map(|rate| rate.0),
            depth: bytes(settings.in_depth),
            delay: as_nanoseconds(settings.in_delay),
            loss: settings.in_loss.0,
            reorder: settings.in_reorder.0,
            reorder_delay: as_nanoseconds(settings.in_reorder_delay),
        },
    }
}

/// Builds the configuration of the whole router. `mtu_of` returns the MTU of an interface.
pub fn router(settings: &SwitchSettings, mtu_of: &dyn Fn(&str) -> u16) -> router::Config {
    // By default a unique local address (RFC 4193) that ends in the node ID.
    let node = settings.node;
    let own = Ipv6Addr::new(
        0xfd68,
        0x6f70,
        0x7769,
        0x7365,
        0,
        0,
        (node >> 16) as u16,
        node as u16,
    );
    let address = match settings.address {
        IpAddr::V4(v4) => v4,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    };
    let address6 = match settings.address6 {
        Some(IpAddr::V6(v6)) => v6,
        _ => own,
    };
    let ports = settings
        .ports
        .iter()
        .map(|written| port(node, written, mtu_of(&written.interface)));
    router::Config {
        node,
        switch: int_config(settings),
        watchlist: watchlist(&settings.watch),
        ports: ports.collect(),
        routes: routes(settings),
        address,
        address6,
        seed: settings.seed,
        intercept: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::for_tests;

    fn read(switch: &str) -> Result<SwitchSettings, String> {
        let ports = "[[switch.ports]]\nnumber = 1\ninterface = \"a\"\n";
        let text = format!("[switch]\nnode = 1\n{ports}{switch}");
        for_tests::parse(&text)
    }

    #[test]
    fn items_are_instruction_bits_and_the_switch_delivers_them() {
        let items = "\"l2_interfaces\", \"buffer\", \"checksum_complement\"";
        let settings = read(&format!("[[switch.watch]]\nitems = [\"node_id\", {items}]\n")).unwrap();
        assert_eq!(watchlist(&settings.watch).entries()[0].bitmap, 0x8281);
        let bits = Item::ALL.iter().fold(0, |bits, item| bits | item.bit());
        assert_eq!(bits, INSTRUCTIONS | Item::ChecksumComplement.bit());
        assert_eq!(
            watchlist(&[WatchSettings::default()]).entries()[0].bitmap,
            Watch::USUAL
        );
    }

    #[test]
    fn ports_have_logical_interfaces_and_the_mark_may_be_an_option() {
        let settings = read("logical = 70000\n[switch.mark]\nhop_by_hop = true\n").unwrap();
        assert_eq!(port(1, &settings.ports[0], 1500).logical, 70_000);
        assert!(int_config(&settings).mark.hop_by_hop);
        assert!(
            read("logical = 0\n")
                .unwrap_err()
                .contains("from 1 to 4294967294")
        );
    }

    #[test]
    fn a_managed_switch_has_no_watchlist_of_its_own() {
        assert!(
            read("[switch.managed]\nstate = \"rules.json\"\n")
                .unwrap()
                .managed
                .is_some()
        );
        let error = read("[switch.managed]\n[[switch.watch]]\ndport = 80\n").unwrap_err();
        assert!(
            error.contains("the manager of this switch decides `watch`"),
            "{error}"
        );
        assert_eq!(
            (Item::from_bits(0xa000), Item::from_bits(1)),
            (Some(vec![Item::NodeId, Item::HopLatency]), None)
        );
    }

    #[test]
    fn a_complement_needs_records_in_the_packet() {
        for (mode, refused) in [
            ("md", false),
            ("md10", false),
            ("mx", true),
            ("postcard", true),
            ("sf", true),
        ] {
            let watch = "items = [\"node_id\", \"checksum_complement\"]";
            let read = read(&format!("[[switch.watch]]\nmode = \"{mode}\"\n{watch}\n"));
            assert_eq!(read.is_err(), refused, "{mode}: {read:?}");
        }
    }
}
