//! Names of nodes, interfaces, hosts and drop reasons: the API response, and a lookup table for commands that replace IDs by
//! names.

use std::{collections::BTreeMap, net::IpAddr};

use manager::inventory::Inventory;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Name, ReasonNames};

/// Names of nodes, interfaces, hosts and drop reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Names"))]
pub struct NamesView {
    /// Nodes with a name, or with interfaces that have one, by id.
    pub nodes: Vec<NodeNamesView>,
    /// Hosts with a name, by address.
    pub hosts: Vec<HostNameView>,
    /// Drop reasons with a name on which the profiles agree, by code.
    #[serde(default)]
    pub drop_reasons: Vec<ReasonNameView>,
}

/// The name of a drop reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ReasonName"))]
pub struct ReasonNameView {
    /// Code of the device.
    pub code: u8,
    /// Name of the reason.
    pub name: String,
}

/// Names of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "NodeNames"))]
pub struct NodeNamesView {
    /// Node id, as in reports.
    pub node: u32,
    /// Name of the node, or null if it has none.
    pub name: Option<String>,
    /// Interfaces of the node that have a name, by number.
    pub interfaces: Vec<InterfaceNameView>,
}

/// The name of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "InterfaceName"))]
pub struct InterfaceNameView {
    /// Interface id in INT.
    pub interface: u32,
    /// Name of the interface.
    pub name: String,
}

/// The name of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "HostName"))]
pub struct HostNameView {
    /// One of its addresses.
    pub address: String,
    /// Name of the host.
    pub name: String,
    /// Source of the name: `file`, the inventory; `dns`, where `[names] dns` is on.
    #[serde(default)]
    pub origin: Name,
}

impl NamesView {
    /// Creates the view from configured names and the inventory. `nodes`, the configured names, take precedence.
    pub fn new(mut nodes: BTreeMap<u32, String>, inventory: &Inventory) -> Self {
        for device in inventory.devices() {
            nodes.entry(device.node).or_insert_with(|| device.name.clone());
        }
        let nodes = nodes.into_iter().map(|(node, name)| NodeNamesView {
            node,
            name: Some(name),
            interfaces: interfaces(inventory, node),
        });
        let mut view = Self {
            nodes: nodes.collect(),
            ..Self::default()
        };
        let hosts = inventory
            .hosts()
            .flat_map(|host| host.addresses.iter().map(|ip| (*ip, host.name.clone())));
        view.add_hosts(hosts, "file");
        view
    }

    /// Returns the view with these names of drop reasons.
    pub fn with_drop_reasons(mut self, reasons: ReasonNames) -> Self {
        let reasons = reasons.into_iter();
        self.drop_reasons = reasons
            .map(|(code, name)| ReasonNameView { code, name })
            .collect();
        self
    }

    /// Adds names of hosts. An address that already has a name keeps it.
    pub fn add_hosts(&mut self, hosts: impl IntoIterator<Item = (IpAddr, String)>, origin: &'static str) {
        let mut all: BTreeMap<String, HostNameView> = std::mem::take(&mut self.hosts)
            .into_iter()
            .map(|host| (host.address.clone(), host))
            .collect();
        for (ip, name) in hosts {
            let address = ip.to_canonical().to_string();
            let view = HostNameView {
                address: address.clone(),
                name,
                origin: origin.into(),
            };
            all.entry(address).or_insert(view);
        }
        self.hosts = all.into_values().collect();
    }
}

fn interfaces(inventory: &Inventory, node: u32) -> Vec<InterfaceNameView> {
    inventory
        .ports(node)
        .filter_map(|interface| {
            let name = inventory.port_name((node, interface))?.to_owned();
            Some(InterfaceNameView { interface, name })
        })
        .collect()
}

/// Lookup table of the names.
#[derive(Clone, Debug, Default)]
pub struct Names {
    nodes: BTreeMap<u32, String>,
    interfaces: BTreeMap<(u32, u32), String>,
    hosts: BTreeMap<IpAddr, String>,
    drop_reasons: ReasonNames,
}

impl From<NamesView> for Names {
    fn from(view: NamesView) -> Self {
        let mut names = Self::default();
        for view in view.nodes {
            names.nodes.extend(view.name.map(|name| (view.node, name)));
            let interfaces = view.interfaces.into_iter();
            let interfaces = interfaces.map(|interface| ((view.node, interface.interface), interface.name));
            names.interfaces.extend(interfaces);
        }
        let reasons = view.drop_reasons.into_iter();
        names.drop_reasons = reasons.map(|reason| (reason.code, reason.name)).collect();
        let hosts = view.hosts.into_iter();
        names
            .hosts
            .extend(hosts.filter_map(|host| Some((host.address.parse().ok()?, host.name))));
        names
    }
}

impl Names {
    /// Returns a node's name, or its id.
    pub fn node(&self, node: u32) -> String {
        self.nodes.get(&node).cloned().unwrap_or_else(|| node.to_string())
    }

    /// Returns an interface's name, or its number.
    pub fn interface(&self, node: Option<u32>, interface: u32) -> String {
        let named = node.and_then(|node| self.interfaces.get(&(node, interface)));
        named.cloned().unwrap_or_else(|| interface.to_string())
    }

    /// Returns a drop reason's name, or its code.
    pub fn drop_reason(&self, code: u8) -> String {
        let named = self.drop_reasons.get(&code);
        named.cloned().unwrap_or_else(|| code.to_string())
    }

    /// Returns the names of drop reasons by code.
    pub fn drop_reasons(&self) -> &ReasonNames {
        &self.drop_reasons
    }

    /// Returns the different names of nodes, sorted.
    pub fn node_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.nodes.values().map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns the id of the node with this name, or `None` if there is none; of several, the lowest.
    pub fn node_id(&self, name: &str) -> Option<u32> {
        let mut nodes = self.nodes.iter();
        nodes.find_map(|(id, known)| (known == name).then_some(*id))
    }

    /// Returns a host's name, or its address.
    pub fn host(&self, address: &str) -> String {
        let ip = address.parse::<IpAddr>().ok();
        let named = ip.and_then(|ip| self.hosts.get(&ip.to_canonical()));
        named.cloned().unwrap_or_else(|| address.to_owned())
    }

    /// Formats a path as `leaf1>spine>leaf2`, with `?` for an unknown node.
    pub fn path(&self, path: &[Option<u32>]) -> String {
        let names = path
            .iter()
            .map(|node| node.map_or_else(|| "?".to_owned(), |node| self.node(node)));
        names.collect::<Vec<_>>().join(">")
    }

    /// Formats the hosts of a flow as `h1>h2`, or returns `None` if neither has a name.
    pub fn hosts(&self, src: &str, dst: &str) -> Option<String> {
        let from = self.host(src);
        let to = self.host(dst);
        (from != src || to != dst).then(|| format!("{from}>{to}"))
    }
}

/// Names in a filter are those of the output.
impl filter::Names for Names {
    fn node(&self, name: &str) -> Option<u32> {
        self.node_id(name)
    }

    fn reason_codes(&self, name: &str) -> Vec<u8> {
        let reasons = self.drop_reasons.iter();
        filter::codes_of(reasons.map(|(code, name)| (*code, name.as_str())), name)
    }

    fn reason_names(&self) -> Vec<String> {
        self.drop_reasons.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manager::inventory;

    #[test]
    fn configured_names_come_first_and_interfaces_have_those_of_the_device() {
        let text = "devices = [{ name = \"leaf1\", node = 11, ports = 2 }, { name = \"leaf2\", node = 12 }]\n\
                    hosts = [{ name = \"h1\", addresses = [\"10.0.0.1\", \"fd00::1\"] }]";
        let mut inventory = inventory::read(text, "i.toml").unwrap();
        inventory
            .add_port((11, 2), Some("eth2".to_owned()), None)
            .unwrap();
        let nodes = BTreeMap::from([(7, "probe".to_owned()), (12, "rack 2".to_owned())]);
        let mut view = NamesView::new(nodes, &inventory);
        let found = [("10.0.0.1", "other"), ("::ffff:10.0.0.2", "db2.example.org")];
        view.add_hosts(
            found.map(|(ip, name)| (ip.parse().unwrap(), name.to_owned())),
            "dns",
        );
        let node = |node, name: &str, interfaces| NodeNamesView {
            node,
            name: Some(name.to_owned()),
            interfaces,
        };
        let host = |address: &str, name: &str, origin: &'static str| HostNameView {
            address: address.to_owned(),
            name: name.to_owned(),
            origin: origin.into(),
        };
        let eth2 = InterfaceNameView {
            interface: 2,
            name: "eth2".to_owned(),
        };
        let expected = NamesView {
            nodes: vec![
                node(7, "probe", vec![]),
                node(11, "leaf1", vec![eth2]),
                node(12, "rack 2", vec![]),
            ],
            hosts: vec![
                host("10.0.0.1", "h1", "file"),
                host("10.0.0.2", "db2.example.org", "dns"),
                host("fd00::1", "h1", "file"),
            ],
            drop_reasons: Vec::new(),
        };
        assert_eq!(view, expected);
    }

    #[test]
    fn names_replace_ids_where_they_are_known() {
        let view: NamesView = serde_json::from_value(serde_json::json!({
            "nodes": [{"node": 11, "name": "leaf1", "interfaces": [{"interface": 2, "name": "Ethernet4"}]},
                      {"node": 12, "name": null, "interfaces": []}],
            "hosts": [{"address": "10.0.0.1", "name": "h1"}, {"address": "fd00::1", "name": "h1"}],
            "drop_reasons": [{"code": 128, "name": "link_down"}]}))
        .unwrap();
        let names = Names::from(view);
        assert_eq!(names.path(&[Some(11), Some(12), None]), "leaf1>12>?");
        let interface = |node, number| names.interface(node, number);
        assert_eq!(
            [interface(Some(11), 2), interface(Some(11), 3), interface(None, 2)],
            ["Ethernet4", "3", "2"]
        );
        assert_eq!(names.host("::ffff:10.0.0.1"), "h1");
        assert_eq!(names.hosts("10.0.0.9", "fd00::1").as_deref(), Some("10.0.0.9>h1"));
        assert_eq!(names.hosts("10.0.0.9", "10.0.0.8"), None);
        assert_eq!([128, 71].map(|code| names.drop_reason(code)), ["link_down", "71"]);
        assert_eq!([names.node_id("leaf1"), names.node_id("12")], [Some(11), None]);
    }
}
