//! Extracts facts about a device's ports from the OpenConfig models of interfaces and LLDP.

use std::collections::BTreeMap;

use manager::device::PortId;
use manager::driver::{Facts, Neighbour, PortFacts};
use serde_json::Value as Json;

use crate::map::PathMap;
use crate::message::Path;
use crate::tree::{Tree, child, leaf};

/// Maximum number of ports; same as the inventory's.
const MAX_PORTS: usize = 1024;

/// Extracts the ports, with MTU and LLDP neighbour, from the values of a device.
pub fn facts(map: &PathMap, tree: &Tree) -> Facts {
    // The key of both lists is the interface name, which joins them.
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

/// Returns a port's LLDP neighbour if it has exactly one. A port with several leads to a shared segment, not to a device.
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

/// Returns the entries of a list by name; none if there is no such list.
fn entries<'t>(path: Option<&Path>, tree: &'t Tree) -> impl Iterator<Item = (String, &'t Json)> {
    let list = path.and_then(|path| tree.at(path)).and_then(Json::as_array);
    list.into_iter()
        .flatten()
        .filter_map(|entry| Some((child(entry, "name").and_then(leaf)?, entry)))
}
