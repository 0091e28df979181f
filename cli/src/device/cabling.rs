//! Converts the objects of NetBox into an inventory: numbers the interfaces that are switch ports, and derives links, edge
//! ports and hosts from the far end of each port's cable.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use manager::{
    device::{NodeId, PortId},
    inventory::{MAX_PORTS, is_name},
};
use serde_json::Value;

use super::{
    inventory::{DeviceRow, Import, PortName},
    netbox::{Address, Device, Interface, Objects, Options},
};

/// Maximum number of listed problems; of the rest, the number is given.
const MAX_PROBLEMS: usize = 20;
/// Kinds of interfaces that are not switch ports.
const NON_PORT_TYPES: [&str; 3] = ["virtual", "bridge", "lag"];
/// Roles of addresses that belong to several hosts.
const SHARED_ROLES: [&str; 6] = ["anycast", "vip", "vrrp", "hsrp", "glbp", "carp"];

impl Interface {
    fn is_port(&self) -> bool {
        !self.mgmt_only && !NON_PORT_TYPES.contains(&self.kind.value.as_str())
    }

    /// Returns whether a cable is connected to something, if only to a circuit.
    fn is_connected(&self) -> bool {
        let ends = self
            .connected_endpoints
            .as_ref()
            .is_some_and(|ends| !ends.is_empty());
        ends && self.connected_endpoints_reachable != Some(false)
    }
}

/// Converts NetBox objects to an inventory, with notes about what was left out.
///
/// # Errors
/// The inventory would be invalid; each problem is a line.
pub(super) fn import(objects: &Objects, options: &Options) -> Result<(Import, Vec<String>), String> {
    let mut importer = Importer {
        options,
        import: Import::default(),
        ports: BTreeMap::new(),
        problems: Vec::new(),
    };
    let mut interfaces: BTreeMap<u64, Vec<&Interface>> = BTreeMap::new();
    for interface in objects.interfaces.iter().filter(|interface| interface.is_port()) {
        interfaces.entry(interface.device.id).or_default().push(interface);
    }
    let mut devices = Vec::new();
    for device in &objects.devices {
        match importer.number_ports(device, interfaces.remove(&device.id).unwrap_or_default()) {
            Ok(ports) => {
                importer
                    .ports
                    .extend(ports.iter().map(|port| (port.interface.id, port.clone())));
                devices.push((device, ports));
            }
            Err(problem) => importer.problems.push(problem),
        }
    }
    // Links only if all devices are fine: a missing far end would otherwise be reported as a problem of the link.
    if importer.problems.is_empty() {
        for (device, ports) in &devices {
            importer
                .device(device, ports)
                .unwrap_or_else(|problem| importer.problems.push(problem));
        }
    }
    if importer.problems.is_empty() {
        importer.links();
    }
    let notes = if importer.problems.is_empty() {
        importer.hosts(objects)
    } else {
        Vec::new()
    };
    let Importer {
        import, mut problems, ..
    } = importer;
    if problems.is_empty() {
        return Ok((import, notes));
    }
    let omitted = problems.len().saturating_sub(MAX_PROBLEMS);
    problems.truncate(MAX_PROBLEMS);
    problems.extend((omitted > 0).then(|| format!("and {omitted} more")));
    Err(problems.join("\n"))
}

/// Switch port with its number and its interface in NetBox.
#[derive(Clone, Debug)]
struct Port<'a> {
    device: &'a str,
    number: PortId,
    interface: &'a Interface,
}

impl Port<'_> {
    /// Returns (device name, port number).
    fn end(&self) -> PortName {
        (self.device.to_owned(), self.number)
    }
}

/// Name of a device that is not managed, and the managed ports connected to it.
struct Neighbour<'a> {
    name: Option<&'a str>,
    ports: Vec<PortName>,
}

/// State of one conversion; problems are collected and reported together.
struct Importer<'a> {
    options: &'a Options,
    import: Import,
    /// All ports by the NetBox id of their interface.
    ports: BTreeMap<u64, Port<'a>>,
    problems: Vec<String>,
}

impl<'a> Importer<'a> {
    /// Numbers a device's ports by a custom field, else by their position in natural order. Returns them ascending.
    fn number_ports(
        &self,
        device: &'a Device,
        mut interfaces: Vec<&'a Interface>,
    ) -> Result<Vec<Port<'a>>, String> {
        let name = device.name.as_deref().unwrap_or_default();
        if !is_name(name) {
            return Err(format!(
                "device {} has the name `{name}`; give it 1 to 63 letters, digits, `.`, `_` and `-`, or leave it out by --filter",
                device.id
            ));
        }
        interfaces.sort_by_cached_key(|interface| natural_key(&interface.name));
        let mut ports = Vec::new();
        for (index, interface) in interfaces.into_iter().enumerate() {
            let number = match &self.options.port_field {
                None => PortId::try_from(index + 1).ok(),
                Some(field) => match interface.custom_fields.get(field) {
                    None | Some(Value::Null) => continue,
                    Some(value) => positive_number(value),
                },
            };
            let number = number
                .filter(|number| (1..=MAX_PORTS).contains(&(*number as usize)))
                .ok_or_else(|| {
                    format!(
                        "interface `{}` of `{name}` has no port number from 1 to {MAX_PORTS}; correct it",
                        printable_text(&interface.name)
                    )
                })?;
            ports.push(Port {
                device: name,
                number,
                interface,
            });
        }
        ports.sort_by_key(|port| port.number);
        match ports.windows(2).find(|pair| pair[0].number == pair[1].number) {
            Some(pair) => Err(format!(
                "two interfaces of `{name}` are port {}: `{}` and `{}`; correct one",
                pair[0].number,
                printable_text(&pair[0].interface.name),
                printable_text(&pair[1].interface.name)
            )),
            None => Ok(ports),
        }
    }

    /// Adds a device with its node id, address, labels and edge ports; an error names the field to correct.
    fn device(&mut self, device: &'a Device, ports: &[Port<'a>]) -> Result<(), String> {
        let name = device.name.clone().unwrap_or_default();
        let field = self
            .options
            .node_field
            .as_ref()
            .and_then(|field| device.custom_fields.get(field));
        let node = match field.filter(|value| !value.is_null()) {
            Some(value) => positive_number(value),
            None => NodeId::try_from(device.id).ok(),
        };
        let node =
            node.ok_or_else(|| format!("`{name}` has a node id that is not a number from 1; correct it"))?;
        let ip = device.primary_ip.as_ref().and_then(|ip| address(&ip.address));
        let address = match (ip, self.options.address.contains("{ip}")) {
            (None, true) => {
                return Err(format!(
                    "`{name}` has no primary address; set it, or write --address with {{name}}"
                ));
            }
            (Some(IpAddr::V6(ip)), _) => self.options.address.replace("{ip}", &format!("[{ip}]")),
            (Some(ip), _) => self.options.address.replace("{ip}", &ip.to_string()),
            (None, false) => self.options.address.clone(),
        };
        let tags = device.site.iter().chain(&device.role).chain(&device.tags);
        let mut labels: Vec<String> = Vec::new();
        for slug in tags.map(|tag| printable_text(&tag.slug)) {
            if !labels.contains(&slug) {
                labels.push(slug);
            }
        }
        let names = ports
            .iter()
            .map(|port| format!("{} {}", port.number, printable_text(&port.interface.name)));
        let edge = ports
            .iter()
            .filter(|port| self.is_edge(port))
            .map(|port| port.number);
        self.import.device(DeviceRow {
            address: address.replace("{name}", &name),
            node: Some(node),
            driver: self.options.driver.clone(),
            labels,
            ports: ports.last().map_or(0, |port| port.number),
            edge: edge.collect(),
            comment: format!("ports: {}", names.collect::<Vec<_>>().join(", ")),
            name,
        })?;
        Ok(())
    }

    /// Returns whether a port is connected to a device that is not managed.
    fn is_edge(&self, port: &Port<'_>) -> bool {
        port.interface.is_connected()
            && !port
                .interface
                .ends()
                .any(|(end, _)| self.ports.contains_key(&end))
    }

    /// Adds the links between managed ports, each once: from the interface with the smaller id.
    fn links(&mut self) {
        for port in self.ports.values() {
            let ends: Vec<u64> = port.interface.ends().map(|(end, _)| end).collect();
            let Some(far_port) = ends.iter().find_map(|end| self.ports.get(end)) else {
                continue;
            };
            let problem = if ends.len() > 1 {
                format!(
                    "{} leads to {} interfaces; make an interface of each of its lanes",
                    port.describe(),
                    ends.len()
                )
            } else if !far_port.interface.ends().any(|(end, _)| end == port.interface.id) {
                format!(
                    "{} leads to {}, which does not lead back; correct the cable",
                    port.describe(),
                    far_port.describe()
                )
            } else if port.interface.id > far_port.interface.id {
                continue;
            } else {
                let mtu = port.interface.mtu.into_iter().chain(far_port.interface.mtu).min();
                match self.import.link([port.end(), far_port.end()], mtu) {
                    Ok(()) => continue,
                    Err(problem) => problem,
                }
            };
            self.problems.push(problem);
        }
    }

    /// Adds the unmanaged neighbours that have addresses as hosts. Returns notes about what was left out.
    fn hosts(&mut self, objects: &Objects) -> Vec<String> {
        let mut neighbours: BTreeMap<u64, Neighbour<'_>> = BTreeMap::new();
        for port in self.ports.values().filter(|port| self.is_edge(port)) {
            for end in port.interface.connected_endpoints.iter().flatten() {
                let Some(device) = &end.device else { continue };
                let neighbour = neighbours.entry(device.id).or_insert(Neighbour {
                    name: device.name.as_deref(),
                    ports: Vec::new(),
                });
                neighbour.ports.push(port.end());
            }
        }
        let (mut addresses_by_host, shared) = host_addresses(&objects.addresses);
        let mut hosts = Vec::new();
        let mut names = BTreeMap::new();
        for (id, Neighbour { name, mut ports }) in neighbours {
            let addresses = addresses_by_host.remove(&id).unwrap_or_default();
            if addresses.is_empty() {
                continue;
            }
            let name = host_name(name, id);
            *names.entry(name.clone()).or_insert(0) += 1;
            ports.dedup();
            // With several links, the host's port is not known.
            let port = if ports.len() == 1 { ports.pop() } else { None };
            hosts.push((name, id, addresses, port));
        }
        for (name, id, addresses, port) in hosts {
            let name = if names[&name] > 1 {
                host_name(None, id)
            } else {
                name
            };
            self.import
                .host(name, addresses, port)
                .unwrap_or_else(|problem| self.problems.push(problem));
        }
        let note = format!("{shared} addresses that several hosts have were left out");
        (shared > 0).then_some(note).into_iter().collect()
    }
}

impl Port<'_> {
    /// Formats the port for messages.
    fn describe(&self) -> String {
        format!("`{}` of `{}`", printable_text(&self.interface.name), self.device)
    }
}

/// Returns the addresses that belong to one device only, by its id, and the number of shared addresses.
fn host_addresses(addresses: &[Address]) -> (BTreeMap<u64, Vec<IpAddr>>, usize) {
    let mut owners = BTreeMap::new();
    let mut shared = BTreeSet::new();
    for address_object in addresses {
        let device = address_object
            .assigned_object
            .as_ref()
            .and_then(|object| object.device.as_ref());
        let (Some(ip), Some(device)) = (address(&address_object.address), device) else {
            continue;
        };
        let is_shared = address_object
            .role
            .as_ref()
            .is_some_and(|role| SHARED_ROLES.contains(&role.value.as_str()));
        if is_shared
            || owners
                .insert(ip, device.id)
                .is_some_and(|other| other != device.id)
        {
            shared.insert(ip);
        }
    }
    let mut addresses_by_host: BTreeMap<u64, Vec<IpAddr>> = BTreeMap::new();
    for (ip, owner) in owners.into_iter().filter(|(ip, _)| !shared.contains(ip)) {
        addresses_by_host.entry(owner).or_default().push(ip);
    }
    (addresses_by_host, shared.len())
}

fn host_letter(c: char) -> char {
    if c.is_ascii_alphanumeric() || "._-".contains(c) {
        c
    } else {
        '-'
    }
}

/// Makes a valid host name: replaces other characters by `-`, and an empty name by the id.
fn host_name(name: Option<&str>, id: u64) -> String {
    let name = name.map_or_else(|| format!("device-{id}"), str::to_owned);
    let name: String = name.chars().map(host_letter).take(63).collect();
    if name.is_empty() {
        format!("device-{id}")
    } else {
        name
    }
}

/// Parses an address without its prefix length; IPv4-mapped addresses become IPv4.
fn address(text: &str) -> Option<IpAddr> {
    text.split('/')
        .next()?
        .parse::<IpAddr>()
        .ok()
        .map(|ip| ip.to_canonical())
}

/// Parses a custom field (number or text) as a number of at least 1.
fn positive_number(value: &Value) -> Option<u32> {
    let number = value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())?;
    u32::try_from(number).ok().filter(|number| *number > 0)
}

/// Shortens foreign text to one line of at most 64 characters, without control characters.
fn printable_text(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}

/// Splits a name into text and number parts as a sort key, so that `swp10` comes after `swp9`.
fn natural_key(name: &str) -> Vec<(String, u64)> {
    let mut parts = vec![(String::new(), 0_u64)];
    let mut in_number = false;
    for c in name.chars() {
        if in_number && !c.is_ascii_digit() {
            parts.push((String::new(), 0));
        }
        in_number = c.is_ascii_digit();
        if let Some((text, value)) = parts.last_mut() {
            match c.to_digit(10) {
                Some(digit) => *value = value.saturating_mul(10).saturating_add(u64::from(digit)),
                None => text.push(c),
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        let mut names = [
            "Ethernet1/10",
            "Ethernet1/9",
            "xe-0/0/1:3",
            "Ethernet2/1",
            "xe-0/0/1:0",
            "Ethernet1/9/2",
            "swp1",
        ];
        names.sort_by_cached_key(|name| natural_key(name));
        assert_eq!(
            names,
            [
                "Ethernet1/9",
                "Ethernet1/9/2",
                "Ethernet1/10",
                "Ethernet2/1",
                "swp1",
                "xe-0/0/1:0",
                "xe-0/0/1:3"
            ]
        );
    }
}
