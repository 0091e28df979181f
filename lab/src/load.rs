//! Parses and validates a topology file. All problems are collected and reported together, each with its line.
//!
//! Checks come in two steps: first the file (names, addresses, links, MTUs), then, if that is valid, the configurations that
//! the lab would write. Each configuration passes through the parser of the process that will read it; an error points at the
//! table of the topology file that causes it.

use std::collections::{BTreeMap, BTreeSet};
use std::{net::IpAddr, ops::RangeInclusive, path::Path};

use config::Settings;
use manage_role::settings::check_intents;
use manager::intent::IntentSettings;
use settings::{
    read::{ConfigError, Node as TomlNode, Reader, Value, is_written, nearest, span_of},
    setting::{Setting, tables},
};
use switch_role::settings::WatchSettings;
use terminal::CliError;

use crate::conditions::Conditions;
use crate::file::{Address, HostSettings, LabFile, LinkSettings, P4Program, Verbatim};
use crate::topology::{Host, Link, Node, Port, Switch, Topology, attached_switch};
use crate::{configs, managed, routes};

/// Maximum length of a lab's name.
const MAX_LAB_NAME: usize = 15;
/// Maximum length of an interface name: 16 bytes in the kernel, including the terminating zero.
const MAX_INTERFACE_NAME: usize = 15;
/// Maximum number of switches; each runs a process.
const MAX_SWITCHES: usize = 32;
/// Maximum number of hosts.
const MAX_HOSTS: usize = 64;
/// Maximum number of links.
const MAX_LINKS: usize = 256;
/// Default MTU of a host.
pub(crate) const HOST_MTU: u32 = 1500;
/// Additional MTU of a link between switches, as room for INT: shim and header of INT-MD (16 bytes), 16 hops with the default
/// instructions (36 bytes each), and 48 bytes of reserve.
pub(crate) const INT_HEADROOM: u32 = 640;
/// Valid MTUs: IPv6 requires 1280 bytes, a lab supports at most 9216.
const VALID_MTUS: RangeInclusive<u32> = 1280..=9216;
/// Length of an Ethernet header, bytes.
const ETHERNET_HEADER: u64 = 14;
/// Reserved names: `lo` is an interface of every namespace, `all` selects all hosts, the others are namespaces and files of a
/// lab.
const RESERVED_NAMES: [&str; 9] = [
    "lo",
    "mgmt",
    "collector",
    "translator",
    "aggregator",
    "state",
    "topology",
    "store",
    "all",
];

/// Reads and validates a topology file.
///
/// # Errors
/// The file cannot be read or is invalid; the message lists each problem with its line.
pub(crate) fn load(path: &Path) -> Result<Topology, CliError> {
    let text = settings::read::file(path).map_err(|error| {
        let remedy = "name a topology file, such as examples/lab/three-switches.toml";
        CliError::io(format!("cannot read {}", path.display()), error, remedy)
    })?;
    parse(&text, &path.to_string_lossy()).map_err(|error| CliError::new(error.to_string()))
}

#[cfg(test)]
pub(crate) fn parse_example(text: &str) -> Topology {
    parse(text, "lab.toml")
        .map_err(|error| error.to_string())
        .unwrap()
}

/// Parses a topology file. `file` is its name in messages.
///
/// # Errors
/// The file is invalid; the error lists every problem with its line.
pub(crate) fn parse(text: &str, file: &str) -> Result<Topology, ConfigError> {
    let mut reader = Reader::new(text);
    let mut topology = None;
    if let Some(root) = reader.parse(tables::<LabFile>)
        && let Some(file) = LabFile::read(&root, &mut reader)
    {
        topology = Builder {
            root: &root,
            reader: &mut reader,
            text,
        }
        .build(file);
    }
    reader.finish(file)?;
    // The default is never returned: if no topology was built, `finish` has returned the problems.
    Ok(topology.unwrap_or_else(|| Topology {
        name: String::new(),
        hosts: Vec::new(),
        switches: Vec::new(),
        links: Vec::new(),
        file: LabFile::default(),
    }))
}

/// Builds a topology from the parsed file and records problems in the reader.
struct Builder<'a, 'i> {
    root: &'a TomlNode<'a>,
    reader: &'a mut Reader<'i>,
    text: &'a str,
}

type Names<'f> = BTreeMap<&'f str, Node>;

impl Builder<'_, '_> {
    fn build(&mut self, mut file: LabFile) -> Option<Topology> {
        self.check_lab_name(&file);
        self.check_sizes(&file);
        let names = self.names(&file);
        let nodes = self.node_ids(&file);
        let addresses = self.addresses(&file);
        let links = self.links(&file, &names)?;
        let ports = ports(&links, file.switches.len());
        let host_links = self.host_links(&file, &links);
        self.check_mtus(&file, &links);
        self.complete_watch_lists(&mut file);
        self.check_intents(&file);
        self.check_collector(&file);
        let hosts = file.hosts.iter().zip(addresses).zip(host_links);
        let hosts: Option<Vec<Host>> = hosts
            .map(|((host, addresses), link)| {
                Some(Host {
                    name: host.name.clone(),
                    addresses,
                    link: link?,
                })
            })
            .collect();
        let switches = file.switches.iter().zip(nodes).zip(ports);
        let switches = switches
            .map(|((switch, node), ports)| Switch {
                name: switch.name.clone(),
                node,
                ports,
            })
            .collect();
        let topology = Topology {
            name: file.name.clone(),
            hosts: hosts?,
            switches,
            links,
            file,
        };
        self.check_connected(&topology);
        self.check_bmv2(&topology);
        self.check_switches(&topology);
        self.check_manager(&topology);
        self.check_aggregator(&topology);
        self.check_translator(&topology);
        Some(topology)
    }

    fn refuse(&mut self, path: &[&str], message: impl Into<String>) {
        self.reader.refuse(span_of(self.root, path), message);
    }

    /// Rejects a key of a list item, or the whole item if `key` is empty.
    fn refuse_item(&mut self, list: &str, index: usize, key: &str, message: impl Into<String>) {
        let index = index.to_string();
        let path = [list, &index, key];
        self.refuse(&path[..if key.is_empty() { 2 } else { 3 }], message);
    }

    /// Rejects a key that the topology file must not set.
    fn refuse_key(&mut self, path: &[&str], why: &str) {
        if is_written(self.root, path) {
            self.refuse(path, format!("{why}; remove this"));
        }
    }

    /// Parses a configuration that the lab would write for a process. On failure, rejects the key at `path` that it results
    /// from.
    fn check_config(&mut self, config: &str, process: &str, file: &str, path: &[&str]) -> bool {
        let result = Settings::parse(config, file);
        if let Err(error) = &result {
            let message = format!("{process} rejects the configuration that results:\n{error}");
            self.refuse(path, message);
        }
        result.is_ok()
    }

    fn check_lab_name(&mut self, file: &LabFile) {
        if !is_written(self.root, &["name"]) {
            self.refuse(
                &[],
                "the lab has no name; write one at the top, such as name = \"three\"",
            );
        } else if !is_word(&file.name) || file.name.len() > MAX_LAB_NAME {
            let message = format!(
                "`{}` cannot be the name of a lab; write 1 to {MAX_LAB_NAME} letters, digits or `_`",
                file.name
            );
            self.refuse(&["name"], message);
        }
    }

    fn check_sizes(&mut self, file: &LabFile) {
        let hosts = file.hosts.len();
        self.check_count(
            "hosts",
            hosts,
            2..=MAX_HOSTS,
            "packets go from one host to another",
        );
        let switches = file.switches.len();
        self.check_count("switches", switches, 1..=MAX_SWITCHES, "each is a process");
        let links = file.links.len();
        self.check_count("links", links, 1..=MAX_LINKS, "each is a pair of interfaces");
    }

    fn check_count(&mut self, key: &str, count: usize, range: RangeInclusive<usize>, why: &str) {
        if !range.contains(&count) {
            let min = range.start();
            let max = range.end();
            let message =
                format!("a lab has {min} to {max} {key} ({why}), and here are {count}; write [[{key}]]");
            self.refuse(&[key], message);
        }
    }

    /// Collects the names; each must be unique.
    fn names<'f>(&mut self, file: &'f LabFile) -> Names<'f> {
        let hosts = file
            .hosts
            .iter()
            .enumerate()
            .map(|(index, host)| ("hosts", index, &host.name, Node::Host(index)));
        let switches = file
            .switches
            .iter()
            .enumerate()
            .map(|(index, switch)| ("switches", index, &switch.name, Node::Switch(index)));
        let mut names = Names::new();
        for (list, index, name, node) in hosts.chain(switches) {
            let message = if !is_word(name) {
                format!(
                    "`{name}` cannot be a name; write letters, digits or `_`, such as \"{}1\"",
                    &list[..1]
                )
            } else if RESERVED_NAMES.contains(&name.as_str()) {
                format!("`{name}` is a reserved name; choose another")
            } else if names.insert(name, node).is_some() {
                format!("there are two nodes called `{name}`; rename one")
            } else {
                continue;
            };
            self.refuse_item(list, index, "name", message);
        }
        names
    }

    /// Collects the node IDs; each must be unique.
    fn node_ids(&mut self, file: &LabFile) -> Vec<u32> {
        let mut seen = BTreeMap::new();
        let mut ids = Vec::new();
        for (index, switch) in file.switches.iter().enumerate() {
            let id = switch.node.unwrap_or(index as u32 + 1);
            if id == 0 || id == u32::MAX {
                let max = u32::MAX - 1;
                let message = format!("{id} means \"unknown\" in reports; write a number from 1 to {max}");
                self.refuse_item("switches", index, "node", message);
            } else if let Some(other) = seen.insert(id, &switch.name) {
                let message = format!("the node id {id} is used by `{other}`; write another `node`");
                self.refuse_item("switches", index, "node", message);
            }
            ids.push(id);
        }
        ids
    }

    /// Collects the addresses of each host; each must be unique.
    fn addresses(&mut self, file: &LabFile) -> Vec<Vec<Address>> {
        let mut seen: BTreeMap<IpAddr, &str> = BTreeMap::new();
        let mut addresses = Vec::new();
        for (index, host) in file.hosts.iter().enumerate() {
            let mut host_addresses = Vec::new();
            for (key, ipv6, written) in [
                ("address", false, host.address),
                ("address6", true, host.address6),
            ] {
                let Some(address) = written else { continue };
                if let Err(message) = check_address(address, ipv6) {
                    self.refuse_item("hosts", index, key, message);
                } else if let Some(other) = seen.insert(address.ip, &host.name) {
                    let message = format!("{} is the address of `{other}`; write another", address.ip);
                    self.refuse_item("hosts", index, key, message);
                }
                host_addresses.push(address);
            }
            if host_addresses.is_empty() {
                let message = format!(
                    "`{}` has no address; write address = \"10.0.{}.1\"",
                    host.name,
                    index + 1
                );
                self.refuse_item("hosts", index, "", message);
            }
            addresses.push(host_addresses);
        }
        addresses
    }

    /// Builds the links; `None` if one of them has no two valid ends.
    fn links(&mut self, file: &LabFile, names: &Names<'_>) -> Option<Vec<Link>> {
        let mut links = Vec::new();
        let mut used_names = BTreeSet::new();
        for (index, link) in file.links.iter().enumerate() {
            let item = index.to_string();
            self.check_link(&item, link);
            let Some(ends) = self.ends(&item, link, names) else {
                continue;
            };
            let interfaces =
                [(0, 1), (1, 0)].map(|(a, b)| format!("{}-{}", link.between[a], link.between[b]));
            // The second link between the same nodes is called `a-b.2`, the third `a-b.3`, …
            let copies = (1..).map(|copy| {
                interfaces
                    .clone()
                    .map(|name| if copy == 1 { name } else { format!("{name}.{copy}") })
            });
            let interfaces = copies
                .take(MAX_LINKS + 1)
                .find(|names| !used_names.contains(&names[0]))
                .unwrap_or(interfaces);
            used_names.extend(interfaces.iter().cloned());
            if interfaces[0].len() > MAX_INTERFACE_NAME {
                let message = format!(
                    "the interface of this link would be called `{}`, and such names have {MAX_INTERFACE_NAME} letters at most; shorten \
                     `{}` or `{}`",
                    interfaces[0], link.between[0], link.between[1]
                );
                self.refuse(&["links", &item, "between"], message);
            }
            links.push(Link {
                ends,
                interfaces,
                mtu: HOST_MTU,
                settings: link.clone(),
            });
        }
        let is_complete = links.len() == file.links.len();
        set_mtus(&mut links);
        is_complete.then_some(links)
    }

    fn ends(&mut self, item: &str, link: &LinkSettings, names: &Names<'_>) -> Option<[Node; 2]> {
        let path = ["links", item, "between"];
        let [from, to] = link.between.as_slice() else {
            self.refuse(
                &path,
                "a link is between two nodes; write between = [\"h1\", \"s1\"]",
            );
            return None;
        };
        let mut ends = Vec::new();
        for (position, name) in [from, to].into_iter().enumerate() {
            let Some(node) = names.get(name.as_str()) else {
                let node_names: Vec<&str> = names.keys().copied().collect();
                let hint = match nearest(name, &node_names) {
                    Some(name) => format!("did you mean `{name}`?"),
                    None => format!("write one of {}", node_names.join(", ")),
                };
                self.refuse(
                    &["links", item, "between", &position.to_string()],
                    format!("there is no node `{name}`; {hint}"),
                );
                continue;
            };
            ends.push(*node);
        }
        match *ends.as_slice() {
            [a, b] if a == b => {
                self.refuse(&path, format!("a link from `{from}` to itself; name two nodes"));
                None
            }
            [Node::Host(_), Node::Host(_)] => {
                self.refuse(
                    &path,
                    format!("`{from}` and `{to}` are both hosts; put a switch between them"),
                );
                None
            }
            [a, b] => Some([a, b]),
            _ => None,
        }
    }

    fn check_link(&mut self, item: &str, link: &LinkSettings) {
        if link.delay.as_secs() >= 10 {
            self.refuse(
                &["links", item, "delay"],
                "the delay is too long; write less than \"10s\"",
            );
        }
        if let Some(mtu) = link.mtu.filter(|mtu| !VALID_MTUS.contains(mtu)) {
            let message = format!(
                "{mtu} is out of range; write a number from {} to {}",
                VALID_MTUS.start(),
                VALID_MTUS.end()
            );
            self.refuse(&["links", item, "mtu"], message);
        }
        if let Some(depth) = link.depth {
            if link.rate.is_none() {
                self.refuse(
                    &["links", item, "depth"],
                    "a queue needs a rate; add rate = \"100Mbit/s\", or remove `depth`",
                );
            } else if depth.0 < u64::from(*VALID_MTUS.end()) + ETHERNET_HEADER {
                self.refuse(
                    &["links", item, "depth"],
                    "the queue is too small for one packet; write at least \"10 KiB\"",
                );
            }
        }
    }

    /// Finds the link of each host; a host must have exactly one.
    fn host_links(&mut self, file: &LabFile, links: &[Link]) -> Vec<Option<usize>> {
        let mut host_links = Vec::new();
        for (index, HostSettings { name, .. }) in file.hosts.iter().enumerate() {
            let indices: Vec<usize> = (0..links.len())
                .filter(|link| links[*link].ends.contains(&Node::Host(index)))
                .collect();
            match indices[..] {
                [] => {
                    let message = format!("`{name}` has no link; write [[links]] between = [\"{name}\", …]");
                    self.refuse_item("hosts", index, "", message);
                }
                [_] => {}
                [_, second, ..] => {
                    let message = format!(
                        "`{name}` has a second link; a host has one: make it a switch, or remove a link"
                    );
                    self.refuse(&["links", &second.to_string(), "between"], message);
                }
            }
            host_links.push(indices.first().copied());
        }
        host_links
    }

    /// Checks that the largest packet of a host fits through every link between switches.
    fn check_mtus(&mut self, file: &LabFile, links: &[Link]) {
        let max_mtu = max_host_mtu(links);
        for (index, link) in links
            .iter()
            .enumerate()
            .filter(|(_, link)| is_between_switches(link))
        {
            if file.links[index].mtu.is_some() && link.mtu < max_mtu {
                let message = format!(
                    "hosts send packets of up to {max_mtu} bytes; write at least {} (with room for INT), or a smaller mtu at the hosts",
                    max_mtu + INT_HEADROOM
                );
                self.refuse_item("links", index, "mtu", message);
            }
        }
    }

    fn check_collector(&mut self, file: &LabFile) {
        if file.collector.is_none() {
            self.refuse(&[], "there is no collector; write [collector] (it may be empty)");
            return;
        }
        if let Some(node) = child(self.root, "collector")
            && let Some(settings) = Settings::read(node, self.reader)
        {
            config::check::check(&settings, self.text, node, self.reader);
        }
        for (path, why) in [
            (
                &["collector", "collector", "listen"][..],
                "the lab sets where its collector listens",
            ),
            (
                &["collector", "collector", "namespace"],
                "the lab sets where its collector listens",
            ),
            (&["collector", "api", "token"], "the API of a lab is local"),
            (
                &["collector", "nodes"],
                "the names of the nodes are those of the switches",
            ),
            (&["collector", "switch"], "switches have processes of their own"),
            (
                &["collector", "inventory"],
                "the inventory is made from this file",
            ),
            (
                &["collector", "intents"],
                "the intents of a lab are written at the top, as [[intents]]",
            ),
            (
                &["collector", "manager", "collectors"],
                "the lab sets where its switches report",
            ),
            (
                &["collector", "manager", "namespace"],
                "the lab sets where its switches are",
            ),
        ] {
            self.refuse_key(path, why);
        }
    }

    /// Replaces the watch lists by complete ones: each rule gets the defaults of a switch's configuration.
    fn complete_watch_lists(&mut self, file: &mut LabFile) {
        if let Some(node) = child(self.root, "watch") {
            file.watch = self.read_watch_list(node);
        }
        let Some(Value::Array(switches)) = child(self.root, "switches").map(TomlNode::get_ref) else {
            return;
        };
        for (switch, node) in file.switches.iter_mut().zip(switches) {
            if let Some(node) = child(node, "watch") {
                switch.watch = Some(self.read_watch_list(node));
            }
        }
    }

    fn read_watch_list(&mut self, list: &TomlNode<'_>) -> Vec<Verbatim> {
        let Value::Array(list) = list.get_ref() else {
            return Vec::new();
        };
        list.iter()
            .filter_map(|node| Some(Verbatim(WatchSettings::read(node, self.reader)?.show())))
            .collect()
    }

    fn check_intents(&mut self, file: &LabFile) {
        if let Some(node) = child(self.root, "intents")
            && let Some(intents) = Vec::<IntentSettings>::read(node, self.reader)
        {
            check_intents(&intents, true, self.root, self.reader);
        }
        let Some(key) = managed::unmanaged_by(file) else {
            return;
        };
        for (path, subject) in [
            (&["intents"][..], "[[intents]]"),
            (&["collector", "manager"], "a manager"),
        ] {
            if is_written(self.root, path) {
                let message = format!(
                    "with {subject}, the manager decides what each switch does, and so does `{key}`; remove one of them"
                );
                self.refuse(path, message);
            }
        }
    }

    /// Checks that the collector's configuration is valid with the manager, inventory and intents that the lab adds.
    fn check_manager(&mut self, topology: &Topology) {
        if !self.reader.has_no_problems() || !managed::is_managed(&topology.file) {
            return;
        }
        let api = ([127, 0, 0, 1], 0).into();
        let directory = Path::new("/");
        let config = configs::collector(topology, api, directory, &Conditions::default());
        self.check_config(&config, "the collector", "collector.toml", &["collector"]);
    }

    /// Checks that switches of kind `bmv2` support what the file requests.
    fn check_bmv2(&mut self, topology: &Topology) {
        for index in (0..topology.switches.len()).filter(|index| topology.is_bmv2(*index)) {
            if let Some(key) = managed::unmanaged_by(&topology.file) {
                let message = format!(
                    "a manager drives switches of this kind, and `{key}` leaves it out; remove one of the two"
                );
                self.refuse_item("switches", index, "kind", message);
            }
        }
        for (index, switch) in topology.file.switches.iter().enumerate() {
            let message = match switch.program {
                Some(_) if !topology.is_bmv2(index) => {
                    "the switch of hopwise has no P4 program; remove it, or add kind = \"bmv2\""
                }
                program
                    if topology.is_bmv2(index)
                        && program.unwrap_or(P4Program::Int) != topology.p4_program() =>
                {
                    "a lab measures in one mode, so its switches of kind \"bmv2\" have the same program; write the same `program` for all"
                }
                _ => continue,
            };
            let key = if switch.program.is_some() {
                "program"
            } else {
                "kind"
            };
            self.refuse_item("switches", index, key, message);
        }
        for (index, link) in topology.links.iter().enumerate() {
            let Some(end) = link.ends.iter().find(|end| topology.is_bmv2_node(**end)) else {
                continue;
            };
            for key in ["rate", "depth", "delay", "loss"] {
                if is_written(self.root, &["links", &index.to_string(), key]) {
                    let name = topology.node_name(*end);
                    let message = format!(
                        "`{name}` is of kind \"bmv2\", which sends packets as they come; remove `{key}`"
                    );
                    self.refuse_item("links", index, key, message);
                }
            }
        }
    }

    /// Checks every switch's configuration; stops at the first error, since others would fail for the same reason.
    fn check_switches(&mut self, topology: &Topology) {
        if !self.reader.has_no_problems() {
            return;
        }
        for (index, switch) in topology
            .switches
            .iter()
            .enumerate()
            .filter(|(index, _)| !topology.is_bmv2(*index))
        {
            let config = configs::switch(topology, index, &Conditions::default());
            let shared_key = ["switch", "filter", "watch"]
                .into_iter()
                .find(|key| is_written(self.root, &[key]));
            let index = index.to_string();
            let path = shared_key.map_or(vec!["switches", index.as_str()], |key| vec![key]);
            let process = format!("switch `{}`", switch.name);
            if !self.check_config(&config, &process, &format!("{}.toml", switch.name), &path) {
                break;
            }
        }
    }

    fn check_aggregator(&mut self, topology: &Topology) {
        for key in ["listen", "forward"] {
            let why = "the lab decides where its aggregator listens and sends to";
            self.refuse_key(&["aggregator", key], why);
        }
        if let Some(text) = configs::aggregator(topology).filter(|_| self.reader.has_no_problems()) {
            self.check_config(&text, "the aggregator", "aggregator.toml", &["aggregator"]);
        }
    }

    fn check_translator(&mut self, topology: &Topology) {
        for (path, why) in [
            (
                &["translator", "listen"][..],
                "the lab decides where its translator listens",
            ),
            (
                &["translator", "collectors"],
                "the translator of a lab writes to the lab's collector",
            ),
            (
                &["collector", "collector", "memory", "listen"],
                "the lab decides where the memory listens",
            ),
            (
                &["collector", "collector", "memory", "exchange"],
                "the lab decides where the exchange listens",
            ),
        ] {
            self.refuse_key(path, why);
        }
        if topology.file.translator.is_some() {
            let why = "switches report to the lab's translator";
            self.refuse_key(&["switch", "dta", "collectors"], why);
        }
        let Some(text) = configs::translator(topology).filter(|_| self.reader.has_no_problems()) else {
            return;
        };
        if !is_written(self.root, &["collector", "collector", "memory"]) {
            let why =
                "the translator needs memory to write to; add [collector.collector.memory] with its stores";
            return self.refuse(&["translator"], why);
        }
        self.check_config(&text, "the translator", "translator.toml", &["translator"]);
    }

    /// Checks that the network is connected: every host reaches every other, and every switch has a link.
    fn check_connected(&mut self, topology: &Topology) {
        let distances = routes::distances(topology, 0, &[]);
        for (index, host) in topology.hosts.iter().enumerate() {
            if distances[attached_switch(topology, host)].is_none() {
                let first = &topology.hosts[0].name;
                let message = format!(
                    "there is no path from `{first}` to `{}`; add a link between their switches",
                    host.name
                );
                self.refuse_item("hosts", index, "", message);
            }
        }
        for (index, switch) in topology.switches.iter().enumerate() {
            if switch.ports.is_empty() {
                let message = format!("`{}` has no link; add one, or remove it", switch.name);
                self.refuse_item("switches", index, "", message);
            }
        }
    }
}

fn is_word(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn child<'a>(node: &'a TomlNode<'a>, key: &str) -> Option<&'a TomlNode<'a>> {
    node.get_ref().get(key)
}

/// Checks that a host in a routed network can have this address.
fn check_address(address: Address, ipv6: bool) -> Result<(), String> {
    let ip = address.ip;
    if ip.is_ipv6() != ipv6 {
        let (family, key) = if ipv6 { ("4", "address") } else { ("6", "address6") };
        return Err(format!("{ip} is an IPv{family} address; write it as `{key}`"));
    }
    let local = match ip {
        IpAddr::V4(ip) => {
            ip.is_link_local() || ip.is_broadcast() || ip.octets()[0] == 0 || ip.octets()[0] >= 240
        }
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    if local || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() {
        return Err(format!(
            "{ip} cannot be the address of a host in a routed network; write one such as 10.0.1.1 or fd00:1::1"
        ));
    }
    Ok(())
}

fn is_between_switches(link: &Link) -> bool {
    matches!(link.ends, [Node::Switch(_), Node::Switch(_)])
}

fn max_host_mtu(links: &[Link]) -> u32 {
    links
        .iter()
        .filter(|link| !is_between_switches(link))
        .map(|link| link.mtu)
        .max()
        .unwrap_or(HOST_MTU)
}

/// Sets the MTU of each link: as configured, or else the default for links of hosts and links between switches.
fn set_mtus(links: &mut [Link]) {
    for link in links.iter_mut() {
        link.mtu = link.settings.mtu.unwrap_or(HOST_MTU);
    }
    let default_mtu = max_host_mtu(links) + INT_HEADROOM;
    for link in links.iter_mut().filter(|link| is_between_switches(link)) {
        link.mtu = link.settings.mtu.unwrap_or(default_mtu);
    }
}

/// Returns the ports of each switch, numbered from 1 in the order of the links.
fn ports(links: &[Link], switches: usize) -> Vec<Vec<Port>> {
    let mut ports = vec![Vec::new(); switches];
    for (link, Link { ends, .. }) in links.iter().enumerate() {
        for end in 0..2 {
            if let Node::Switch(index) = ends[end] {
                let number = ports[index].len() as u16 + 1;
                ports[index].push(Port {
                    number,
                    link,
                    end,
                    peer: ends[1 - end],
                });
            }
        }
    }
    ports
}

#[cfg(test)]
mod tests;
