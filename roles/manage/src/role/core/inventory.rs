//! Changes of the inventory at run time: devices added, changed or removed, and link ports that become edge ports.
//!
//! A removed device is *leaving*: it is driven until it no longer inserts INT, so that no packet leaves the domain with an
//! INT header. A port that was in a link is *opening* until it is a sink, and until then hosts must not be connected to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use manager::{
    device::{NodeId, PortId, Rule, Rules},
    driver::Message,
    inventory::{Device, Inventory, PortRole},
    reconcile::Phase,
};

use super::{
    super::{
        Local,
        clock::Now,
        drivers::{Driver, Namespaces},
    },
    Core, Error,
};
use crate::{program::Configuration, settings::ManagerSettings};

/// Everything that drivers need to reach their devices and the manager's thread.
pub(super) struct Reach {
    /// The simulated devices, if they are inside this process.
    pub(super) local: Option<Local>,
    pub(super) namespaces: Namespaces,
    pub(super) send: Arc<dyn Fn(Message) + Send + Sync>,
}

/// A device that was removed from the inventory. It is driven until it measures nothing.
#[derive(Clone, Debug)]
pub(super) struct Leaving {
    device: Device,
    ports: Vec<PortId>,
}

impl Core {
    /// Starts the driver of a device.
    pub(super) fn start_driver(&mut self, device: &Device, now: Now) {
        let Reach {
            local,
            namespaces,
            send,
        } = &self.reach;
        let send = Arc::clone(send);
        let (driver, can) = Driver::start(
            device,
            &self.settings,
            local.as_ref(),
            namespaces,
            move |message| {
                send(message);
            },
        );
        self.manager.set_capabilities(device.node, can, now.steady);
        self.drivers.insert(device.node, driver);
    }

    /// Adopts the inventory of a reloaded configuration: starts, restarts and stops drivers.
    pub(super) fn set_inventory(&mut self, all: &Configuration, now: Now) {
        let inventory = manager::inventory::from_settings(&all.inventory);
        let before = std::mem::replace(&mut self.settings, all.manager.clone());
        let old = std::mem::replace(&mut self.inventory, inventory.clone());
        let gone: Vec<Device> = old
            .devices()
            .filter(|device| inventory.device(device.node).is_none())
            .cloned()
            .collect();
        for device in gone {
            let ports = self.manager.inventory().ports(device.node).collect();
            if self.is_replaced(&device) {
                self.drivers.remove(&device.node);
                self.forget_device(device.node, now);
                self.note(now, "file", "device", &device.name, "has another node id now");
            } else if device.role.is_outside() {
                // INT never reaches a device outside the domain, so it can be dropped at once.
                self.drivers.remove(&device.node);
                self.forget_device(device.node, now);
                self.note(
                    now,
                    "file",
                    "device",
                    &device.name,
                    "is no longer driven: it keeps its entries",
                );
            } else {
                self.let_leave(device, ports, now);
            }
        }
        self.drop_replaced(now);
        for device in inventory.devices() {
            let known = self.leaving.remove(&device.node).map(|leaving| leaving.device);
            match known.as_ref().or_else(|| old.device(device.node)) {
                Some(known)
                    if is_same_device(known, device)
                        && has_same_settings(&device.name, &before, &self.settings) => {}
                Some(_) => {
                    self.forget_device(device.node, now);
                    self.start_driver(device, now);
                    self.note(now, "file", "device", &device.name, "is reached in another way");
                }
                None => {
                    self.start_driver(device, now);
                    self.note(now, "file", "device", &device.name, "is in the inventory now");
                }
            }
        }
        self.count_lease_keepers();
        self.save_devices();
        self.join_facts(now);
        self.set_dta_map(now);
    }

    /// Adopts the map of DTA collectors, whose content may have changed under the same file name.
    fn set_dta_map(&mut self, now: Now) {
        match self.settings.collector_map() {
            Ok(map) => {
                let before = &self.manager.compiler().settings().dta_map;
                if let Some(map) = map.as_ref().filter(|map| before.as_ref() != Some(map)) {
                    let collectors = map.collectors.join(", ");
                    self.note(now, "file", "dta_map", &collectors, "are the DTA collectors now");
                }
                self.manager.set_dta_map(map, now.steady);
            }
            // The map was read a moment ago, when the configuration was checked.
            Err(error) => tracing::warn!(error, "[manager] dta_map: devices keep the map that they have"),
        }
    }

    /// Drops leaving devices that have returned with another node ID, because two drivers must not drive one device.
    fn drop_replaced(&mut self, now: Now) {
        let leaving = self
            .leaving
            .iter()
            .filter(|(_, leaving)| self.is_replaced(&leaving.device));
        for node in leaving.map(|(node, _)| *node).collect::<Vec<_>>() {
            if self.inventory.device(node).is_none() {
                self.leaving.remove(&node);
                self.drivers.remove(&node);
                self.forget_device(node, now);
            }
        }
    }

    /// Lets a device leave. Its neighbours strip INT from packets to it. It may still insert INT, so the sinks stay in the
    /// domain until it is known to measure nothing.
    fn let_leave(&mut self, device: Device, ports: Vec<PortId>, now: Now) {
        self.note(
            now,
            "file",
            "device",
            &device.name,
            "is no longer in the inventory",
        );
        self.leaving.insert(device.node, Leaving { device, ports });
    }

    /// Stops driving the leaving devices that no longer measure anything.
    pub(super) fn end_leaving(&mut self, now: Now) {
        if self.leaving.is_empty() || !self.is_acting() {
            return;
        }
        let clean: Vec<NodeId> = self
            .manager
            .device_states()
            .filter(|status| {
                self.leaving.contains_key(&status.node)
                    && status.phase == Phase::InSync
                    && status.difference == (0, 0)
                    && self.manager.rules(status.node).is_some_and(measures_nothing)
            })
            .map(|status| status.node)
            .collect();
        for node in clean {
            self.release(node, "manager", "it no longer measures, and keeps its sinks", now);
        }
    }

    /// Stops driving a leaving device that cannot be reached.
    ///
    /// # Errors
    /// There is no such device, or the inventory still has it.
    pub fn forget_leaving(&mut self, name: &str, by: &str, now: Now) -> Result<(), Error> {
        self.check_acting()?;
        let node = self.device(name, now)?.node;
        if !self.leaving.contains_key(&node) {
            return Err(Error::Conflict(format!(
                "`{name}` is in the inventory; remove it from the configuration, and reload"
            )));
        }
        self.release(node, by, "it was declared off: its entries are unknown", now);
        Ok(())
    }

    fn release(&mut self, node: NodeId, by: &str, text: &str, now: Now) {
        let Some(Leaving { device, .. }) = self.leaving.remove(&node) else {
            return;
        };
        self.drivers.remove(&node);
        for port in self
            .opening
            .iter()
            .filter(|port| port.0 == node)
            .copied()
            .collect::<Vec<_>>()
        {
            self.set_opening(port, false);
        }
        self.forget_device(node, now);
        tracing::info!(device = device.name, text, "a device is no longer driven");
        self.note(
            now,
            by,
            "device",
            &device.name,
            &format!("is no longer driven: {text}"),
        );
        self.save_devices();
        self.join_facts(now);
    }

    /// Lets the devices leave that an earlier run drove and the configuration no longer has.
    pub(super) fn restore_devices(&mut self, now: Now) -> Result<(), store::Error> {
        for (device, ports) in self.journal.devices()? {
            if self.is_replaced(&device) || self.inventory.device(device.node).is_some() {
                continue;
            }
            self.start_driver(&device, now);
            self.let_leave(device, ports, now);
        }
        self.save_devices();
        Ok(())
    }

    /// Returns whether the inventory has the same device with another node ID.
    fn is_replaced(&self, device: &Device) -> bool {
        let mut devices = self.inventory.devices();
        !device.address.is_empty()
            && devices.any(|other| other.driver == device.driver && other.address == device.address)
    }

    /// Saves the list of driven devices in the journal.
    pub(super) fn save_devices(&mut self) {
        let inventory = self.inventory_of_file();
        let devices: Vec<(Device, Vec<PortId>)> = inventory
            .devices()
            .filter(|device| !device.role.is_outside())
            .map(|device| (device.clone(), inventory.ports(device.node).collect()))
            .collect();
        if let Err(error) = self.journal.set_devices(&devices) {
            tracing::warn!(%error, "cannot save in [manager] state which devices are driven");
        }
    }

    /// Removes all state of a device, because another device may answer in its place.
    fn forget_device(&mut self, node: NodeId, now: Now) {
        self.facts.remove(&node);
        self.lease.forget(node);
        self.device_reports.remove(&node);
        self.device_counters.remove(&node);
        self.reporters.remove(&node.to_string());
        self.matches.forget_device(node);
        self.logged_states.0.remove(&node);
        let mut without = self.manager.inventory().clone();
        without.remove_device(node);
        self.manager.set_inventory(without, now.steady);
    }

    /// Counts the devices that store the active manager's lease.
    pub(super) fn count_lease_keepers(&mut self) {
        let keepers = self.drivers.iter().filter(|(node, driver)| {
            matches!(driver, Driver::Hopwise(_)) && !self.leaving.contains_key(node)
        });
        self.lease_keepers = keepers.count();
    }

    /// Returns the configured inventory with the leaving devices. Nothing is known to be behind their ports.
    pub(super) fn inventory_of_file(&self) -> Inventory {
        let mut inventory = self.inventory.clone();
        for Leaving { device, ports, .. } in self.leaving.values() {
            let name = free_name(&inventory, device);
            // Cannot conflict: a configured device with this node ID removes it from `leaving`.
            if inventory
                .add_device(Device {
                    name,
                    ..device.clone()
                })
                .is_ok()
            {
                for port in ports {
                    // Within the limit on ports, since the device had them before.
                    let _ = inventory.add_port((device.node, *port), None, None);
                }
            }
        }
        inventory
    }

    /// Tracks ports that leave a link, which are announced once they are ready, and ports that rejoin one.
    pub(super) fn note_opening(&mut self, new: &Inventory) {
        let old = self.manager.inventory();
        let still = linked_ports(new);
        for port in linked_ports(old) {
            if !still.contains(&port) && new.device(port.0).is_some() {
                self.set_opening(port, true);
            }
        }
        for port in still {
            if self.opening.contains(&port) {
                self.set_opening(port, false);
            }
        }
    }

    fn set_opening(&mut self, port: (NodeId, PortId), opening: bool) {
        match opening {
            true => self.opening.insert(port),
            false => self.opening.remove(&port),
        };
        if let Err(error) = self.journal.set_opening(port.0, port.1, opening) {
            tracing::warn!(%error, "cannot save in [manager] state which ports become edge ports");
        }
    }

    /// Resumes waiting for the ports that were opening in an earlier run.
    pub(super) fn ask_for_openings(&mut self) -> Result<(), store::Error> {
        for port in self.journal.opening()? {
            if self.manager.inventory().device(port.0).is_some() {
                self.opening.insert(port);
                self.manager.announce_when_ready(port.0, port.1);
            } else {
                self.journal.set_opening(port.0, port.1, false)?;
            }
        }
        Ok(())
    }

    /// Announces an opening port that is now a sink, with no packets with INT left in its queue.
    pub(super) fn edge_ready(&mut self, node: NodeId, port: PortId, now: Now) {
        // Ignore ports that were not in a link.
        if !self.opening.contains(&(node, port)) {
            return;
        }
        self.set_opening((node, port), false);
        if self.leaving.contains_key(&node) {
            return;
        }
        let inventory = self.manager.inventory();
        let subject = format!("{}:{port}", inventory.name(node));
        if inventory.role((node, port)) == PortRole::Edge {
            let text = "INT is removed here: hosts may be connected";
            tracing::info!(port = subject, text, "a port is ready");
            self.note(now, "manager", "edge_ready", &subject, text);
        }
    }
}

/// Returns a free name for a leaving device, because a new device may have taken its name.
fn free_name(inventory: &Inventory, device: &Device) -> String {
    let mut name = device.name.clone();
    if inventory.node(&name).is_ok() {
        name = format!("left-{}", device.node);
    }
    while inventory.node(&name).is_ok() {
        name.insert_str(0, "left-");
    }
    name
}

/// Returns the ports of all links between devices.
fn linked_ports(inventory: &Inventory) -> BTreeSet<(NodeId, PortId)> {
    let devices = inventory.topology().devices.into_iter();
    devices
        .flat_map(|(node, ports)| ports.links.into_keys().map(move |port| (node, port)))
        .collect()
}

/// Returns whether a driver reaches both devices in the same way. Otherwise it must be restarted.
fn is_same_device(before: &Device, after: &Device) -> bool {
    before.name == after.name
        && before.driver == after.driver
        && before.address == after.address
        && before.options == after.options
        && before.role == after.role
}

/// Returns whether the settings of a device's driver are equal. Otherwise it must be restarted.
fn has_same_settings(name: &str, before: &ManagerSettings, after: &ManagerSettings) -> bool {
    before.gnmi.get(name) == after.gnmi.get(name)
        && before.p4runtime.get(name) == after.p4runtime.get(name)
        && before.files.get(name) == after.files.get(name)
}

/// Returns whether a device with these rules inserts no INT and originates no reports. Transit instructions do not count: they
/// concern only packets that other devices have marked.
fn measures_nothing(rules: &Rules) -> bool {
    !rules
        .iter()
        .any(|rule| matches!(rule, Rule::Source(_) | Rule::Watch(_)))
}

/// The leaving devices, by node ID.
pub(super) type AllLeaving = BTreeMap<NodeId, Leaving>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_starts_again_only_if_it_reaches_its_device_in_another_way() {
        let device = |text: &str| {
            let text = format!("devices = [{{ name = \"a\", node = 7, address = \"10.0.0.1:1\"{text} }}]");
            manager::inventory::read(&text, "i.toml")
                .unwrap()
                .devices()
                .next()
                .unwrap()
                .clone()
        };
        let (old, settings) = (device(""), ManagerSettings::default());
        let same = |new: &Device, new_settings| {
            is_same_device(&old, new) && has_same_settings(&old.name, &settings, new_settings)
        };
        assert!(same(
            &device(", labels = [\"x\"], ports = 4, edge = [1]"),
            &settings
        ));
        let moved = Device {
            address: "10.0.0.2:1".to_owned(),
            ..old.clone()
        };
        assert!(!same(&moved, &settings));
        let other = ManagerSettings {
            gnmi: BTreeMap::from([("a".to_owned(), Default::default())]),
            ..ManagerSettings::default()
        };
        assert!(!same(&old, &other));
        let other = ManagerSettings {
            files: BTreeMap::from([("a".to_owned(), Default::default())]),
            ..ManagerSettings::default()
        };
        assert!(!same(&old, &other));
    }

    #[test]
    fn a_device_that_leaves_has_a_name_of_its_own() {
        let text = "devices = [{ name = \"a\", node = 7, address = \"h:1\" }, { name = \"left-8\", node = 9, address = \"h:2\" }]";
        let inventory = manager::inventory::read(text, "i.toml").unwrap();
        let of = |name: &str, node| {
            let device = Device {
                name: name.to_owned(),
                node,
                ..inventory.devices().next().unwrap().clone()
            };
            free_name(&inventory, &device)
        };
        assert_eq!(
            [of("b", 8), of("a", 6), of("a", 8)],
            ["b", "left-6", "left-left-8"]
        );
    }

    #[test]
    fn sinks_measure_nothing() {
        let of = |rules: &[Rule]| measures_nothing(&rules.iter().cloned().collect());
        assert!(of(&[Rule::Sink(1), Rule::Forwarding, Rule::Instruction(2)]));
        assert!(!of(&[Rule::Sink(1), Rule::Source(1)]));
    }
}
