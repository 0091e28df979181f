//! What a device says about its ports: interfaces and LLDP neighbours as OpenConfig models them.

use std::collections::BTreeMap;

use manager::device::PortId;
use manager::driver::{Facts, Neighbour, PortFacts};
use serde_json::Value as Json;

use crate::map::PathMap;
use crate::message::Path;
use crate::tree::{Tree, child, leaf};

/// Ports at most: as many as the inventory takes.
const MAX_PORTS: usize = 1024;

/// The facts of a tree.
pub fn facts(map: &PathMap, tree: &Tree) -> Facts {
    let neighbours: BTreeMap<String, Neighbour> = entries(map.lldp.as_ref(), tree)
        .filter_map(|(name, entry)| {
            let neighbours = child(child(entry, "neighbors")?, "neighbor")?.as_array()?;
            // A port with two neighbours leads to a segment, not to a device.
            let [one] = neighbours.as_slice() else { return None };
            let state = child(one, "state")?;
            let text = |name| child(state, name).and_then(leaf).filter(|text| !text.is_empty());
            let system = text("system-name").or_else(|| text("chassis-id"))?;
            Some((
                name,
                Neighbour {
                    system,
                    port: text("port-id")?,
                },
            ))
        })
        .collect();
    let mut ports: BTreeMap<PortId, PortFacts> = BTreeMap::new();
    for (name, entry) in entries(map.interfaces.as_ref(), tree) {
        let state = child(entry, "state");
        let number = |leaf_name| {
            state
                .and_then(|state| child(state, leaf_name))
                .and_then(leaf)?
                .parse::<u32>()
                .ok()
        };
        let port = match map.ports.iter().find(|(_, interface)| **interface == name) {
            Some((port, _)) => Some(*port),
            None if map.ports.is_empty() => number("ifindex"),
            None => None,
        };
        let Some(port) = port.filter(|_| ports.len() < MAX_PORTS) else {
            continue;
        };
        let mtu = number("mtu").map(|mtu| mtu.saturating_sub(map.mtu_overhead));
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

/// The entries of a list of interfaces, by name.
fn entries<'t>(path: Option<&Path>, tree: &'t Tree) -> impl Iterator<Item = (String, &'t Json)> {
    let list = path.and_then(|path| tree.at(path)).and_then(Json::as_array);
    list.into_iter()
        .flatten()
        .filter_map(|entry| Some((child(entry, "name").and_then(leaf)?, entry)))
}
