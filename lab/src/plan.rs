//! The steps that create the network of a topology: namespaces, veth pairs, addresses and routes. `up` executes them.
//!
//! Both ends of a veth pair are created in their namespaces, so they never appear in the machine's own namespace.

use std::net::{IpAddr, Ipv4Addr};

use super::topology::{Link, Node, Topology};

/// Offloads to disable. With them a host would send packets without checksums, or several segments in one frame, which the
/// switches cannot process. Offloads that a device does not support are ignored.
const OFFLOADS: [&str; 8] = [
    "tx-checksum-ip-generic",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-generic-segmentation",
    "tx-udp-segmentation",
    "rx-gro",
];
/// Default gateways of hosts. No interface has these addresses: a switch answers ARP and ND for any address.
const GATEWAYS: [&str; 2] = ["169.254.1.1", "fe80::1"];
/// The collector's address in the management network, as the switches see it.
pub(crate) const COLLECTOR: Ipv4Addr = Ipv4Addr::new(172, 31, 255, 1);
/// Address of a switch's API in the switch's namespace, and of the aggregator's in the management namespace.
pub(crate) const SWITCH_API: &str = "127.0.0.1:8080";
/// Name of the management network, which connects the collector with the switches.
pub(crate) const MANAGEMENT: &str = "mgmt";

/// Step in the construction of a lab.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// `ip netns add NAME`.
    Namespace(String),
    /// `ip -n NAMESPACE WORDS`, or `ip WORDS` if the namespace is `None`.
    Ip(Option<String>, Vec<String>),
    /// Writes a sysctl: namespace, file below `/proc/sys/net`, value.
    Setting(String, &'static str, &'static str),
    /// Disables an offload: namespace, interface, name of the offload.
    Offload(String, String, &'static str),
}

/// Returns the prefix of the lab's namespaces.
pub(crate) fn prefix(lab: &str) -> String {
    format!("hw-{lab}-")
}

/// Returns the namespace of a node, or of the management network (`mgmt`).
pub(crate) fn namespace(lab: &str, name: &str) -> String {
    format!("hw-{lab}-{name}")
}

/// Returns a switch's address in the management network.
pub(crate) fn management_address(switch: usize) -> Ipv4Addr {
    // A lab has at most 32 switches, so this does not overflow.
    Ipv4Addr::new(172, 31, 255, 10 + switch as u8)
}

/// Returns all steps in the order of execution.
pub(crate) fn steps(topology: &Topology) -> Vec<Step> {
    let mut steps = Vec::new();
    let management = namespace(&topology.name, MANAGEMENT);
    let namespaces = topology
        .nodes()
        .map(|node| namespace(&topology.name, topology.node_name(node)));
    for name in namespaces.chain([management]) {
        steps.push(Step::Namespace(name.clone()));
        // No duplicate address detection: the addresses are unique, and it would delay IPv6 by a second.
        steps.push(Step::Setting(name.clone(), "ipv6/conf/default/accept_dad", "0"));
        steps.push(Step::Setting(
            name.clone(),
            "ipv6/conf/default/router_solicitations",
            "0",
        ));
        steps.push(ip_step(&name, &["link", "set", "lo", "up"]));
    }
    for node in topology.nodes().filter(|node| matches!(node, Node::Switch(_))) {
        // The kernel must not process the packets that the switch process forwards.
        let namespace = namespace(&topology.name, topology.node_name(node));
        steps.push(Step::Setting(
            namespace.clone(),
            "ipv6/conf/default/disable_ipv6",
            "1",
        ));
        if topology.is_bmv2_node(node) {
            steps.push(Step::Setting(namespace, "ipv4/ip_forward", "0"));
        }
    }
    for link in &topology.links {
        link_steps(topology, link, &mut steps);
    }
    for host in 0..topology.hosts.len() {
        host_steps(topology, host, &mut steps);
    }
    for switch in 0..topology.switches.len() {
        management_steps(topology, switch, &mut steps);
    }
    steps
}

/// Creates a veth pair with fixed MACs, without offloads, and sets both ends up.
fn link_steps(topology: &Topology, link: &Link, steps: &mut Vec<Step>) {
    let [near, far] = link
        .ends
        .map(|node| namespace(&topology.name, topology.node_name(node)));
    let [near_if, far_if] = &link.interfaces;
    let macs = [0, 1].map(|end| mac(topology, link, end));
    let mtu = link.mtu.to_string();
    let near_end = [
        "link", "add", near_if, "netns", &near, "mtu", &mtu, "address", &macs[0],
    ];
    let far_end = [
        "type", "veth", "peer", "name", far_if, "netns", &far, "mtu", &mtu, "address", &macs[1],
    ];
    let arguments = [&near_end[..], &far_end[..]].concat();
    steps.push(Step::Ip(None, arguments.into_iter().map(str::to_owned).collect()));
    for (end, namespace) in [near, far].into_iter().enumerate() {
        let interface = &link.interfaces[end];
        let offloads = OFFLOADS.map(|offload| Step::Offload(namespace.clone(), interface.clone(), offload));
        steps.extend(offloads);
        // The kernel must not answer ARP requests at a switch; the switch process does.
        let arp = matches!(link.ends[end], Node::Switch(_)).then_some(["arp", "off"]);
        let arguments = [
            &["link", "set", interface][..],
            arp.as_ref().map_or(&[], |arp| &arp[..]),
            &["up"],
        ]
        .concat();
        steps.push(ip_step(&namespace, &arguments));
    }
}

/// Gives a host its addresses, and default routes over a gateway that exists only as a neighbour entry or ARP reply.
fn host_steps(topology: &Topology, host: usize, steps: &mut Vec<Step>) {
    let name = namespace(&topology.name, topology.node_name(Node::Host(host)));
    let host = &topology.hosts[host];
    let link = &topology.links[host.link];
    let interface = &link.interfaces[usize::from(matches!(link.ends[0], Node::Switch(_)))];
    for address in &host.addresses {
        let cidr = address.to_string();
        let IpAddr::V6(_) = address.ip else {
            steps.push(ip_step(&name, &["address", "add", &cidr, "dev", interface]));
            steps.push(ip_step(
                &name,
                &[
                    "route",
                    "add",
                    "default",
                    "via",
                    GATEWAYS[0],
                    "dev",
                    interface,
                    "onlink",
                ],
            ));
            steps.extend(
                neighbour_arguments(topology, link, GATEWAYS[0]).map(|arguments| ip_step(&name, &arguments)),
            );
            continue;
        };
        steps.push(ip_step(
            &name,
            &["address", "add", &cidr, "dev", interface, "nodad"],
        ));
        steps.push(ip_step(
            &name,
            &[
                "-6",
                "route",
                "add",
                "default",
                "via",
                GATEWAYS[1],
                "dev",
                interface,
                "onlink",
            ],
        ));
        steps.extend(
            neighbour_arguments(topology, link, GATEWAYS[1]).map(|arguments| ip_step(&name, &arguments)),
        );
    }
}

/// Returns the `ip neigh` arguments for a static gateway entry; `None` except for BMv2, which does not answer ARP.
fn neighbour_arguments<'a>(topology: &Topology, link: &'a Link, gateway: &'a str) -> Option<Vec<String>> {
    let end = link.ends.iter().position(|end| topology.is_bmv2_node(*end))?;
    let address = mac(topology, link, end);
    let interface = link.interfaces[1 - end].as_str();
    let family = if gateway.contains(':') { "-6" } else { "-4" };
    let arguments = [
        family,
        "neigh",
        "add",
        gateway,
        "lladdr",
        &address,
        "nud",
        "permanent",
        "dev",
        interface,
    ];
    Some(arguments.map(str::to_owned).into())
}

/// Returns the MAC address of one end of a management link to a `bmv2` switch, whose P4 program writes it into reports.
pub(crate) fn management_mac(switch: usize, is_switch_end: bool) -> String {
    format!(
        "02:6d:00:00:{:02x}:{:02x}",
        if is_switch_end { 1 } else { 2 },
        switch + 1
    )
}

/// Adds the dedicated link from a switch to the collector.
fn management_steps(topology: &Topology, switch: usize, steps: &mut Vec<Step>) {
    let management = namespace(&topology.name, MANAGEMENT);
    let name = &topology.switches[switch].name;
    let switch_namespace = namespace(&topology.name, name);
    let address = management_address(switch).to_string();
    let collector = COLLECTOR.to_string();
    let ends = [
        (&switch_namespace, MANAGEMENT, [&address, "peer", &collector]),
        (&management, name.as_str(), [&collector, "peer", &address]),
    ];
    let arguments = [
        "link",
        "add",
        MANAGEMENT,
        "netns",
        &switch_namespace,
        "type",
        "veth",
        "peer",
        "name",
        name,
        "netns",
        &management,
    ];
    let mut arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
    if topology.is_bmv2(switch) {
        arguments.extend(["address".to_owned(), management_mac(switch, false)]);
        // After `netns NAMESPACE`: the address of the switch's end.
        arguments.splice(5..5, ["address".to_owned(), management_mac(switch, true)]);
    }
    steps.push(Step::Ip(None, arguments));
    for (namespace, interface, address) in ends {
        steps.push(ip_step(
            namespace,
            &[&["address", "add"][..], &address, &["dev", interface]].concat(),
        ));
        steps.push(ip_step(namespace, &["link", "set", interface, "up"]));
    }
}

fn ip_step(namespace: &str, arguments: &[impl AsRef<str>]) -> Step {
    Step::Ip(
        Some(namespace.to_owned()),
        arguments
            .iter()
            .map(|argument| argument.as_ref().to_owned())
            .collect(),
    )
}

/// Returns a MAC address that identifies the node: `02:68:…` (`h`) for a host, `02:73:…` (`s`) for a switch. The last two
/// bytes are the number of the node, from 1, and the number of the port.
pub(crate) fn mac(topology: &Topology, link: &Link, end: usize) -> String {
    let (kind, index, port) = match link.ends[end] {
        Node::Host(index) => (0x68, index, 1),
        Node::Switch(index) => {
            let port = topology.switches[index]
                .ports
                .iter()
                .find(|port| topology.links[port.link].interfaces == link.interfaces && port.end == end);
            (0x73, index, port.map_or(0, |port| port.number))
        }
    };
    // At most 64 nodes per kind. A switch may have ports 1 to 256: the high byte of the number is in the fourth byte.
    format!(
        "02:{kind:02x}:00:{:02x}:{:02x}:{:02x}",
        port >> 8,
        index + 1,
        port & 0xff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "name = \"t\"
        [[hosts]]
        name = \"h1\"
        address = \"10.0.1.1\"
        address6 = \"fd00:1::1/64\"
        [[hosts]]
        name = \"h2\"
        address = \"10.0.2.1\"
        [[switches]]
        name = \"s1\"
        [[links]]
        between = [\"h1\", \"s1\"]
        [[links]]
        between = [\"s1\", \"h2\"]
        [collector]";

    fn written(step: &Step) -> String {
        match step {
            Step::Namespace(name) => format!("ip netns add {name}"),
            Step::Ip(None, arguments) => format!("ip {}", arguments.join(" ")),
            Step::Ip(Some(name), arguments) => format!("ip -n {name} {}", arguments.join(" ")),
            Step::Setting(name, file, value) => format!("{name}: {file} = {value}"),
            Step::Offload(name, interface, _) => format!("{name}: {interface} offload off"),
        }
    }

    #[test]
    fn a_small_network_gives_the_expected_plan() {
        let topology = crate::load::parse_example(SMALL);
        let mut lines: Vec<String> = steps(&topology).iter().map(written).collect();
        lines.dedup();
        let expected = "\
ip netns add hw-t-h1
hw-t-h1: ipv6/conf/default/accept_dad = 0
hw-t-h1: ipv6/conf/default/router_solicitations = 0
ip -n hw-t-h1 link set lo up
ip netns add hw-t-h2
hw-t-h2: ipv6/conf/default/accept_dad = 0
hw-t-h2: ipv6/conf/default/router_solicitations = 0
ip -n hw-t-h2 link set lo up
ip netns add hw-t-s1
hw-t-s1: ipv6/conf/default/accept_dad = 0
hw-t-s1: ipv6/conf/default/router_solicitations = 0
ip -n hw-t-s1 link set lo up
ip netns add hw-t-mgmt
hw-t-mgmt: ipv6/conf/default/accept_dad = 0
hw-t-mgmt: ipv6/conf/default/router_solicitations = 0
ip -n hw-t-mgmt link set lo up
hw-t-s1: ipv6/conf/default/disable_ipv6 = 1
ip link add h1-s1 netns hw-t-h1 mtu 1500 address 02:68:00:00:01:01 type veth peer name s1-h1 netns hw-t-s1 mtu 1500 address 02:73:00:00:01:01
hw-t-h1: h1-s1 offload off
ip -n hw-t-h1 link set h1-s1 up
hw-t-s1: s1-h1 offload off
ip -n hw-t-s1 link set s1-h1 arp off up
ip link add s1-h2 netns hw-t-s1 mtu 1500 address 02:73:00:00:01:02 type veth peer name h2-s1 netns hw-t-h2 mtu 1500 address 02:68:00:00:02:01
hw-t-s1: s1-h2 offload off
ip -n hw-t-s1 link set s1-h2 arp off up
hw-t-h2: h2-s1 offload off
ip -n hw-t-h2 link set h2-s1 up
ip -n hw-t-h1 address add 10.0.1.1/32 dev h1-s1
ip -n hw-t-h1 route add default via 169.254.1.1 dev h1-s1 onlink
ip -n hw-t-h1 address add fd00:1::1/64 dev h1-s1 nodad
ip -n hw-t-h1 -6 route add default via fe80::1 dev h1-s1 onlink
ip -n hw-t-h2 address add 10.0.2.1/32 dev h2-s1
ip -n hw-t-h2 route add default via 169.254.1.1 dev h2-s1 onlink
ip link add mgmt netns hw-t-s1 type veth peer name s1 netns hw-t-mgmt
ip -n hw-t-s1 address add 172.31.255.10 peer 172.31.255.1 dev mgmt
ip -n hw-t-s1 link set mgmt up
ip -n hw-t-mgmt address add 172.31.255.1 peer 172.31.255.10 dev s1
ip -n hw-t-mgmt link set s1 up";
        assert_eq!(lines.join("\n"), expected);
    }
}
