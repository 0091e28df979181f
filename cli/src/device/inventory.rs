//! Builds an imported inventory: checks each row like a configuration entry, then writes `[[inventory.…]]` tables.

use std::net::IpAddr;

use manager::{
    device::{NodeId, PortId},
    inventory::{Device, DeviceRole, DriverOptions, Host, Inventory, Origin, Peer},
};
use terminal::units;

/// Device of the CSV file or NetBox; without a node id it gets a free one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceRow {
    pub(super) name: String,
    pub(super) node: Option<NodeId>,
    pub(super) driver: String,
    pub(super) address: String,
    pub(super) labels: Vec<String>,
    pub(super) ports: PortId,
    pub(super) edge: Vec<PortId>,
    /// One-line comment for people, written above the table; empty for none.
    pub(super) comment: String,
}

/// Ports at both ends of a link, as (device name, port), and the link's MTU.
#[derive(Debug)]
struct ImportedLink {
    ends: [PortName; 2],
    mtu: Option<u32>,
}

/// Port of a device: the name of the device and the number of the port.
pub(super) type PortName = (String, PortId);

/// Devices, links and hosts imported so far.
#[derive(Debug, Default)]
pub(super) struct Import {
    inventory: Inventory,
    devices: Vec<DeviceRow>,
    links: Vec<ImportedLink>,
    hosts: Vec<(Host, Option<PortName>)>,
}

impl Import {
    /// Adds a device with its ports.
    ///
    /// # Errors
    /// The row is invalid; the error is one sentence.
    pub(super) fn device(&mut self, row: DeviceRow) -> Result<(), String> {
        let node = row.node.unwrap_or_else(|| self.inventory.free_node());
        let DeviceRow {
            name,
            driver,
            address,
            labels,
            ..
        } = row.clone();
        let options = DriverOptions::default();
        let role = DeviceRole::Switch;
        let device = Device {
            name,
            node,
            driver,
            address,
            labels,
            options,
            role,
        };
        self.inventory
            .add_device(device)
            .map_err(|error| error.to_string())?;
        if let Some(port) = row.edge.iter().find(|port| **port == 0 || **port > row.ports) {
            return Err(format!(
                "edge port {port} is not one of its {} ports; correct `ports`",
                row.ports
            ));
        }
        for port in 1..=row.ports {
            self.inventory
                .add_port((node, port), None, None)
                .map_err(|error| error.to_string())?;
        }
        for port in &row.edge {
            let hosts = self
                .inventory
                .set_peer((node, *port), Some(Peer::Hosts), Origin::File);
            hosts.map_err(|error| error.to_string())?;
        }
        self.devices.push(row);
        Ok(())
    }

    /// Adds a link between two ports.
    ///
    /// # Errors
    /// The row is invalid; the error is one sentence.
    pub(super) fn link(&mut self, ends: [PortName; 2], mtu: Option<u32>) -> Result<(), String> {
        let [from_name, to_name] = &ends;
        let from = self.resolve(from_name)?;
        let to = self.resolve(to_name)?;
        for (end, name) in [(from, from_name), (to, to_name)] {
            if !self.inventory.claims(end).is_empty() {
                return Err(format!(
                    "port {} of `{}` has a link or a host already; remove one",
                    name.1, name.0
                ));
            }
        }
        self.inventory
            .add_link(from, to, Origin::File)
            .map_err(|error| error.to_string())?;
        self.links.push(ImportedLink { ends, mtu });
        Ok(())
    }

    /// Adds a host, if known at its port.
    ///
    /// # Errors
    /// The row is invalid; the error is one sentence.
    pub(super) fn host(
        &mut self,
        name: String,
        addresses: Vec<IpAddr>,
        at: Option<PortName>,
    ) -> Result<(), String> {
        let port = at.as_ref().map(|at| self.resolve(at)).transpose()?;
        if port.is_some_and(|port| {
            self.inventory
                .claims(port)
                .iter()
                .any(|(_, peer)| *peer != Peer::Hosts)
        }) {
            return Err("its port has a link to a device; a host needs its own port".to_owned());
        }
        let host = Host {
            name,
            addresses,
            at: port,
        };
        self.inventory
            .add_host(host.clone(), Origin::File)
            .map_err(|error| error.to_string())?;
        self.hosts.push((host, at));
        Ok(())
    }

    /// Finds the node id of a port's device. Fails if the inventory does not have the device.
    fn resolve(&self, port: &PortName) -> Result<(NodeId, PortId), String> {
        let node = self.inventory.node(&port.0).map_err(|error| error.to_string())?;
        Ok((node, port.1))
    }

    /// Formats the size of the inventory: `3 devices, 2 links and 4 hosts`.
    pub(super) fn summary(&self) -> String {
        let Self {
            devices,
            links,
            hosts,
            ..
        } = self;
        let devices = units::counted(devices.len() as u64, "device");
        let links = units::counted(links.len() as u64, "link");
        let hosts = units::counted(hosts.len() as u64, "host");
        format!("{devices}, {links} and {hosts}")
    }

    /// Formats the inventory as tables of the configuration.
    pub(super) fn toml(&self) -> String {
        let mut out = String::new();
        for row in &self.devices {
            if !row.comment.is_empty() {
                out.push_str(&format!("# {}\n", row.comment));
            }
            out.push_str(&format!("[[inventory.devices]]\nname = {}\n", text(&row.name)));
            if let Some(node) = row.node {
                out.push_str(&format!("node = {node}\n"));
            }
            if row.driver != "hopwise" {
                out.push_str(&format!("driver = {}\n", text(&row.driver)));
            }
            out.push_str(&format!("address = {}\n", text(&row.address)));
            if !row.labels.is_empty() {
                out.push_str(&format!(
                    "labels = {}\n",
                    list(row.labels.iter().map(|label| text(label)))
                ));
            }
            out.push_str(&format!("ports = {}\n", row.ports));
            if !row.edge.is_empty() {
                out.push_str(&format!(
                    "edge = {}\n",
                    list(row.edge.iter().map(PortId::to_string))
                ));
            }
            out.push('\n');
        }
        for ImportedLink { ends, mtu } in &self.links {
            out.push_str(&format!(
                "[[inventory.links]]\nbetween = {}\n",
                list(ends.iter().map(port_text))
            ));
            out.push_str(&mtu.map_or_else(String::new, |mtu| format!("mtu = {mtu}\n")));
            out.push('\n');
        }
        for (host, at) in &self.hosts {
            let addresses = host.addresses.iter().map(|ip| text(&ip.to_string()));
            out.push_str(&format!("[[inventory.hosts]]\nname = {}\n", text(&host.name)));
            out.push_str(&format!("addresses = {}\n", list(addresses)));
            out.push_str(
                &at.as_ref()
                    .map_or_else(String::new, |at| format!("at = {}\n", port_text(at))),
            );
            out.push('\n');
        }
        out
    }
}

/// Formats a port as `"DEVICE:PORT"`.
fn port_text(port: &PortName) -> String {
    text(&format!("{}:{}", port.0, port.1))
}

/// Quotes a string for TOML.
fn text(value: &str) -> String {
    // TOML's strings have the escape sequences of JSON.
    terminal::json::escaped(&serde_json::Value::from(value).to_string()).into_owned()
}

fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}
