//! Reads the inventory from TOML: the tables `[[devices]]`, `[[links]]` and `[[hosts]]`.

use std::net::IpAddr;

use settings::read::{ConfigError, Node, Reader, nearest, span_of};
use settings::section;
use settings::setting::{Setting, tables};

use super::{Device, DeviceRole, DriverOptions, Host, Inventory, InventoryError, MAX_PORTS, Origin, Peer};
use crate::device::{NodeId, PortId};

section! {
    /// The network that a manager configures.
    pub struct InventorySettings("the inventory") {
        /// The devices of the network.
        pub(crate) devices: Vec<DeviceSettings> = Vec::new(),
        /// The links between devices.
        pub(crate) links: Vec<LinkSettings> = Vec::new(),
        /// The hosts at the devices.
        pub(crate) hosts: Vec<HostSettings> = Vec::new(),
    }
}

section! {
    /// A device that the manager drives.
    struct DeviceSettings("[[devices]]") {
        /// The name: letters, digits, `.`, `_` and `-`.
        pub(crate) name: String = String::new(),
        /// The node id in INT. Not set: the lowest free one.
        pub(crate) node: Option<u32> = None,
        /// The driver: `hopwise`, `p4runtime`, `gnmi` or `files`.
        pub(crate) driver: String = "hopwise".to_owned(),
        /// Address of the device for the driver: `host:port` of its API, or of P4Runtime; a directory, for `files`.
        pub(crate) address: String = String::new(),
        /// For `files`, when rules count as applied: `applied`: once `applied.txt` is a copy of `desired.txt`; `written`:
        /// immediately, without a guaranteed order of steps.
        pub(crate) confirm: Option<String> = None,
        /// Labels, for display and for `at.edges` of intents.
        pub(crate) labels: Vec<String> = Vec::new(),
        /// Number of ports, numbered from 1. Ports without a link and without a host are unused: INT never leaves by them.
        pub(crate) ports: u32 = 0,
        /// Ports to hosts, or to networks that are not managed.
        pub(crate) edge: Vec<u32> = Vec::new(),
        /// `switch`: a node of the domain. Outside it, `aggregator`: postcards in, aggregates out; `translator`: DTA reports in,
        /// RoCEv2 out. Such a device has no ports, links or hosts here, and intents do not apply to it; it is configured in
        /// `[manager.p4runtime.NAME]`.
        pub(crate) role: DeviceRole = DeviceRole::Switch,
    }
}

section! {
    /// A link between two devices.
    struct LinkSettings("[[links]]") {
        /// The two ends, as `"DEVICE:PORT"`.
        pub(crate) between: Vec<String> = Vec::new(),
        /// Longest IP packet, bytes. Not set: unknown.
        pub(crate) mtu: Option<u32> = None,
    }
}

section! {
    /// A host at a port of a device.
    struct HostSettings("[[hosts]]") {
        /// The name, with the same rules as a device's.
        pub(crate) name: String = String::new(),
        /// Addresses of the host.
        pub(crate) addresses: Vec<IpAddr> = Vec::new(),
        /// The port to which it is connected, as `"DEVICE:PORT"`.
        pub(crate) at: Option<String> = None,
        /// Longest IP packet that the host sends, bytes. Not set: unknown.
        pub(crate) mtu: Option<u32> = None,
    }
}

/// Reads an inventory. `file` is its name in messages.
///
/// # Errors
/// [`ConfigError`], which lists every problem with its line and a fix.
pub fn read(text: &str, file: &str) -> Result<Inventory, ConfigError> {
    let mut reader = Reader::new(text);
    let mut inventory = Inventory::default();
    if let Some(root) = reader.parse(tables::<InventorySettings>)
        && let Some(settings) = InventorySettings::read(&root, &mut reader)
    {
        inventory = checked(&settings, &root, &mut reader);
    }
    reader.finish(file).map(|()| inventory)
}

/// Builds the inventory from settings that passed [`checked`].
pub fn from_settings(settings: &InventorySettings) -> Inventory {
    let mut reader = Reader::new("");
    // Problems were reported when the settings were read.
    reader
        .parse(tables::<InventorySettings>)
        .map_or_else(Inventory::default, |root| checked(settings, &root, &mut reader))
}

/// Builds the inventory from a table of a larger file. `node` is that table, where `reader` locates the problems.
pub fn checked(settings: &InventorySettings, node: &Node<'_>, reader: &mut Reader<'_>) -> Inventory {
    let mut inventory = Inventory::default();
    add_devices(&mut inventory, settings, node, reader);
    for (index, link) in settings.links.iter().enumerate() {
        if let Err(message) = add_link(&mut inventory, link) {
            reader.refuse(span_of(node, &["links", &index.to_string(), "between"]), message);
        }
    }
    for (index, host) in settings.hosts.iter().enumerate() {
        if let Err(message) = add_host(&mut inventory, host) {
            reader.refuse(span_of(node, &["hosts", &index.to_string()]), message);
        }
    }
    inventory
}

/// Adds devices with an explicit node id first, so that the others get ids that are really free.
fn add_devices(
    inventory: &mut Inventory,
    settings: &InventorySettings,
    root: &Node<'_>,
    reader: &mut Reader<'_>,
) {
    for given in [true, false] {
        let devices = settings
            .devices
            .iter()
            .enumerate()
            .filter(|(_, device)| device.node.is_some() == given);
        for (index, device) in devices {
            if let Err(message) = add_device(inventory, device) {
                reader.refuse(span_of(root, &["devices", &index.to_string()]), message);
            }
        }
    }
}

fn add_device(inventory: &mut Inventory, settings: &DeviceSettings) -> Result<(), String> {
    let node = settings.node.unwrap_or_else(|| inventory.free_node());
    if settings.ports as usize > MAX_PORTS {
        return Err(InventoryError::TooMany("ports of one device", MAX_PORTS).to_string());
    }
    inventory
        .add_device(Device {
            name: settings.name.clone(),
            node,
            driver: settings.driver.clone(),
            address: settings.address.clone(),
            options: DriverOptions {
                confirm: settings.confirm.clone(),
            },
            labels: settings.labels.clone(),
            role: settings.role,
        })
        .map_err(|error| error.to_string())?;
    for port in 1..=settings.ports {
        inventory
            .add_port((node, port), None, None)
            .map_err(|error| error.to_string())?;
    }
    for port in &settings.edge {
        inventory
            .set_peer((node, *port), Some(Peer::Hosts), Origin::File)
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Parses a port written as `DEVICE:PORT`.
fn port(inventory: &Inventory, written: &str) -> Result<(NodeId, PortId), String> {
    let (device, port) = written
        .rsplit_once(':')
        .ok_or_else(|| format!("`{written}` is not a port; write \"DEVICE:PORT\", such as \"leaf1:3\""))?;
    let port = port
        .parse()
        .map_err(|_| format!("`{port}` is not the number of a port; write \"{device}:1\""))?;
    let node = inventory.node(device).map_err(|error| {
        let names: Vec<&str> = inventory.devices().map(|device| device.name.as_str()).collect();
        // Short names are not compared, because most of them differ little.
        let near = if device.len() > 3 {
            nearest(device, &names)
        } else {
            None
        };
        match near {
            Some(near) => format!("there is no device `{device}`; did you mean `{near}`?"),
            None => error.to_string(),
        }
    })?;
    Ok((node, port))
}

fn add_link(inventory: &mut Inventory, link: &LinkSettings) -> Result<(), String> {
    let [a, b] = link.between.as_slice() else {
        return Err(format!(
            "a link has two ends, not {}; write between = [\"a:1\", \"b:1\"]",
            link.between.len()
        ));
    };
    let a = port(inventory, a)?;
    let b = port(inventory, b)?;
    // All lines of a file have the same origin, so a later line would silently replace an earlier one.
    for (end, other) in [(a, b), (b, a)] {
        let peer = Peer::Port(other.0, other.1);
        if inventory
            .claims(end)
            .iter()
            .any(|(origin, old)| *origin == Origin::File && *old != peer)
        {
            let name = inventory.name(end.0);
            return Err(format!(
                "port {} of `{name}` has another peer in this file; remove one of the two",
                end.1
            ));
        }
    }
    inventory
        .add_link(a, b, Origin::File)
        .map_err(|error| error.to_string())?;
    for end in [a, b] {
        inventory
            .add_port(end, None, link.mtu)
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn add_host(inventory: &mut Inventory, settings: &HostSettings) -> Result<(), String> {
    let at = settings
        .at
        .as_deref()
        .map(|written| port(inventory, written))
        .transpose()?;
    if let Some((node, number)) = at {
        if inventory
            .claims((node, number))
            .iter()
            .any(|(_, peer)| *peer != Peer::Hosts)
        {
            let name = inventory.name(node);
            return Err(format!(
                "port {number} of `{name}` has a link to a device; a host needs its own port"
            ));
        }
        inventory
            .add_port((node, number), None, settings.mtu)
            .map_err(|error| error.to_string())?;
    }
    let host = Host {
        name: settings.name.clone(),
        addresses: settings.addresses.clone(),
        at,
    };
    inventory
        .add_host(host, Origin::File)
        .map_err(|error| error.to_string())
}
