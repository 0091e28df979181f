//! Facts about the ports of a device: interfaces and LLDP neighbours as OpenConfig models them.

use std::collections::BTreeMap;

use manager::device::PortId;
use manager::driver::{Facts, Neighbour, PortFacts};
use serde_json::Value as Json;

use crate::map::PathMap;
use crate::message::Path;
use crate::tree::{Tree, child, leaf};

/// Upper limit of the ports: that of the inventory.
const MAX_PORTS: usize = 1024;

/// Extracts the facts from the tree of a device.
pub fn facts(map: &PathMap, tree: &Tree) -> Facts {
    let neighbours: BTreeMap<String, Neighbour> = entries(map.lldp.as_ref(), tree)
        .filter_map(|(name, entry)| Some((name, neighbour(entry)?)))
        .collect();
    let mut ports: BTreeMap<PortId, PortFacts> = BTreeMap::new();
    for (name, entry) in entries(map.interfaces.as_ref(), tree) {
        let state = child(entry, "state");
        let port = match map.ports.iter().find(|(_, interface)| **interface == name) {
            Some((port, _)) => Some(*port),
            None if map.ports.is_empty() => number(state, "ifindex"),
            None => None,
        };
        let Some(port) = port else { continue };
        if ports.len() >= MAX_PORTS {
            continue;
        }
        let mtu = number(state, "mtu").map(|mtu| mtu.saturating_sub(map.mtu_overhead));
        let neighbour = neighbours.get(&name).cloned();
        ports.insert(
            port,
            PortFacts {
                port,
                name: Some(name),
                mtu,
                neighbour,
                ..PortFacts::default()
            },
        );
    }
    Facts {
        capabilities: map.capabilities().clone(),
        ports: ports.into_values().collect(),
    }
}

/// Returns the neighbour of a port, if it has exactly one: a port with two neighbours leads to a segment, not to a device.
fn neighbour(entry: &Json) -> Option<Neighbour> {
    let neighbours = child(child(entry, "neighbors")?, "neighbor")?.as_array()?;
    let [one] = neighbours.as_slice() else { return None };
    let state = child(one, "state")?;
    Some(Neighbour {
        system: text(state, "system-name").or_else(|| text(state, "chassis-id"))?,
        port: text(state, "port-id")?,
    })
}

fn text(state: &Json, name: &str) -> Option<String> {
    child(state, name).and_then(leaf).filter(|text| !text.is_empty())
}

fn number(state: Option<&Json>, name: &str) -> Option<u32> {
    leaf(child(state?, name)?)?.parse().ok()
}

/// Returns the entries of a list of interfaces, by name.
fn entries<'t>(path: Option<&Path>, tree: &'t Tree) -> impl Iterator<Item = (String, &'t Json)> {
    let list = path.and_then(|path| tree.at(path)).and_then(Json::as_array);
    list.into_iter()
        .flatten()
        .filter_map(|entry| Some((child(entry, "name").and_then(leaf)?, entry)))
}
