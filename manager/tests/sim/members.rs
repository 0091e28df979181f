//! Devices that leave the inventory and return, as the program does it: one that leaves is driven with nothing known behind its ports,
//! until it measures nothing. Its cables stay, and so do its sinks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use manager::compile::DomainSettings;
use manager::device::{DtaMap, NodeId, Rule};
use manager::inventory::{Device, DeviceRole, DriverOptions, Host, Inventory, Origin};
use manager::reconcile::{DeviceStatus, Phase};

use super::PACKET;
use super::net::{End, address};
use super::run::{Run, Violation};

/// The devices that are not members.
#[derive(Default)]
pub(crate) struct Away {
    /// Whether it is driven no longer.
    gone: BTreeMap<NodeId, bool>,
    /// Those that measured nothing when they were driven last.
    clean: BTreeSet<NodeId>,
    /// How many were driven until then.
    pub(super) emptied: u64,
}

fn measures_nothing(rule: &Rule) -> bool {
    !matches!(rule, Rule::Source(_) | Rule::Watch(_) | Rule::Instruction(_))
}

impl Run {
    pub(super) fn domain(&self) -> DomainSettings {
        let map = DtaMap {
            collectors: vec!["a".to_owned()],
            text: self.encoding.dscp.to_string(),
        };
        DomainSettings {
            encoding: self.encoding,
            dta_map: Some(Arc::new(map)),
            ..DomainSettings::default()
        }
    }

    pub(super) fn device(node: NodeId) -> Device {
        Device {
            name: format!("s{node}"),
            node,
            driver: String::new(),
            address: String::new(),
            options: DriverOptions::default(),
            labels: Vec::new(),
            role: DeviceRole::Switch,
        }
    }

    /// A device leaves or returns. The first and the last one have hosts and stay.
    pub(super) fn change_members(&mut self) {
        let count = self.net.switches.len();
        if count < 3 {
            return;
        }
        let node = 2 + self.rng.below(count - 2) as NodeId;
        if self.away.gone.remove(&node).is_none() {
            self.away.gone.insert(node, false);
        }
        self.away.clean.remove(&node);
        self.declare();
    }

    /// Devices that leave are driven no longer when they measure nothing.
    pub(super) fn end_leaving(&mut self) {
        let leaving: Vec<NodeId> = self
            .away
            .gone
            .iter()
            .filter(|(_, gone)| !**gone)
            .map(|(node, _)| *node)
            .collect();
        if leaving.is_empty() {
            return;
        }
        let acting = self.managers.last().filter(|one| one.manager.is_acting());
        let statuses = acting.map(|one| one.manager.devices()).unwrap_or_default();
        for node in leaving {
            let is_clean = |status: &DeviceStatus| {
                status.node == node
                    && status.phase == Phase::InSync
                    && status.difference == (0, 0)
                    && status
                        .rules
                        .as_ref()
                        .is_some_and(|rules| rules.iter().all(measures_nothing))
            };
            let is_clean = statuses.iter().any(is_clean);
            if is_clean {
                self.away.clean.insert(node);
                self.away.emptied += 1;
                self.away.gone.insert(node, true);
                self.declare();
            }
        }
    }

    /// The inventory that follows from cables and members.
    fn declare(&mut self) {
        let valid = "the simulated network is valid";
        let mut inventory = Inventory::default();
        let is_driven = |node: NodeId| self.away.gone.get(&node) != Some(&true);
        let is_member = |node: NodeId| !self.away.gone.contains_key(&node);
        for node in self.net.switches.keys().copied().filter(|node| is_driven(*node)) {
            inventory.add_device(Self::device(node)).expect(valid);
            inventory.add_port((node, 20), None, None).expect(valid);
        }
        for (port, end) in &self.net.cables {
            let at = Some(*port).filter(|port| is_member(port.0));
            if is_driven(port.0) {
                let mtu = if matches!(end, End::Host(_)) {
                    PACKET
                } else {
                    self.net.mtu
                };
                inventory.add_port(*port, None, Some(mtu)).expect(valid);
            }
            match end {
                End::Host(host) => {
                    let record = Host {
                        name: format!("h{host}"),
                        addresses: vec![address(*host)],
                        at,
                    };
                    inventory.add_host(record, Origin::File).expect(valid);
                }
                End::Port(node, other) if at.is_some() && is_member(*node) => {
                    inventory
                        .add_port((*node, *other), None, Some(self.net.mtu))
                        .expect(valid);
                    inventory
                        .add_link(*port, (*node, *other), Origin::File)
                        .expect(valid);
                }
                End::Port(..) => {}
            }
        }
        self.inventory = inventory;
        self.update();
    }

    /// Devices that were emptied measure nothing: nobody has driven them since.
    pub(super) fn expect_emptied(&self) -> Result<(), Violation> {
        for node in &self.away.clean {
            let left = self.net.switches[node]
                .rules
                .iter()
                .find(|rule| !measures_nothing(rule));
            if let Some(left) = left {
                return Err(Violation::End {
                    node: *node,
                    difference: format!("it still has {left}"),
                });
            }
        }
        Ok(())
    }
}
