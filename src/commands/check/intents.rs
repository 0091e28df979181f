//! Would the devices accept the intents? Known without them where all of them run programs that this program has.

use std::{collections::BTreeMap, fmt::Write as _};

use manager::{Manager, device::Capabilities, device::NodeId, intent};
use p4runtime::{program::Program, programs::INCLUDED};
use settings::setting::Setting as _;

use crate::config::{Settings, manager::ManagerSettings};

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// What becomes of the intents, in lines.
    pub(super) text: String,
    /// Intents that are refused, each in a sentence.
    pub(super) refused: Vec<String>,
}

/// Compiles the intents of a configuration.
pub(super) fn compiled(settings: &Settings) -> Found {
    let mut found = Found::default();
    let Some(manager) = settings.manager.as_ref().filter(|_| !settings.intents.is_empty()) else {
        return found;
    };
    let inventory = manager::inventory::of(&settings.inventory);
    let can: Option<BTreeMap<NodeId, Capabilities>> =
        inventory.devices().map(|device| Some((device.node, capabilities(manager, device)?))).collect();
    let Some(can) = can else {
        "intents: whether the devices accept them is known when they answer\n".clone_into(&mut found.text);
        return found;
    };
    let now = nic::time::now();
    let mut simulated = Manager::new(manager.core(&inventory));
    simulated.set_inventory(inventory, now);
    can.into_iter().for_each(|(node, can)| simulated.set_capabilities(node, can, now));
    for (index, of_file) in settings.intents.iter().enumerate() {
        let Ok(intent) = intent::read_one(&settings::json::inline(&of_file.show().to_written()), now) else {
            continue;
        };
        let name = intent.name.clone();
        match simulated.keep_intent(intent, now) {
            Err(refusal) => found.refused.push(format!("the intent `{name}` will be refused: {refusal}")),
            Ok(outcome) if index < MAX_LINES => {
                let (mode, devices) = (outcome.mode.word(), outcome.nodes.len());
                let _ = writeln!(found.text, "intent {name}: mode {mode}, on {devices} device(s)");
            }
            Ok(_) => {}
        }
    }
    if settings.intents.len() > MAX_LINES {
        let _ = writeln!(found.text, "and {} more intents", settings.intents.len() - MAX_LINES);
    }
    found
}

/// What a device can do, if its map is that of a program of ours.
fn capabilities(manager: &ManagerSettings, device: &manager::inventory::Device) -> Option<Capabilities> {
    let of_device = manager.p4runtime.get(&device.name).filter(|_| device.driver == "p4runtime")?;
    let driver = of_device.driver(device).ok()?;
    let (name, map) = &driver.map;
    let program = INCLUDED.iter().find(|program| program.map == Some(name.as_str()))?;
    let info = program.info().ok()?;
    Some(Program::new(map, &info, &driver.local).ok()?.capabilities())
}

/// Intents of which it is said what becomes of them.
const MAX_LINES: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(map: &str, checksum: &str, mode: &str) -> Found {
        let device = |name: &str, node: u32| {
            format!(
                "[manager.p4runtime.{name}]\nmap = \"{map}\"\nreport = {{ port = 4, source = \"192.0.2.{node}\" }}\n"
            )
        };
        let file = format!(
            "[inventory]
            devices = [
                {{ name = \"s1\", node = 1, driver = \"p4runtime\", address = \"192.0.2.11:9559\", ports = 4 }},
                {{ name = \"s2\", node = 2, driver = \"p4runtime\", address = \"192.0.2.12:9559\", ports = 4 }},
            ]
            links = [{{ between = [\"s1:2\", \"s2:2\"] }}]
            hosts = [
                {{ name = \"h1\", addresses = [\"10.0.1.1\"], at = \"s1:1\", mtu = 1400 }},
                {{ name = \"h2\", addresses = [\"10.0.2.1\"], at = \"s2:1\", mtu = 1400 }},
            ]
            [manager]
            collectors = [{{ address = \"192.0.2.100:32766\" }}]
            {checksum}
            {}{}
            [[intents]]
            name = \"web\"
            match = {{ dst = \"10.0.2.1\", proto = \"tcp\", dport = \"443\" }}
            watch = [\"flow_path\", \"hop_latency\"]
            {mode}",
            device("s1", 1),
            device("s2", 2)
        );
        compiled(&Settings::parse(&file, "h.toml").unwrap_or_else(|error| panic!("{error}")))
    }

    #[test]
    fn intents_are_compiled_for_our_programs() {
        let fine = found("hopwise-int", "", "mode = \"md\"");
        assert_eq!((fine.text.as_str(), &*fine.refused), ("intent web: mode md, on 2 device(s)\n", &[][..]));
        let postcards = found("hopwise-int", "", "mode = \"postcard\"");
        assert!(postcards.text.starts_with("intent web: mode postcard"), "{postcards:?}");
        let checksum = found("hopwise-int", "l4_checksum = \"leave\"", "mode = \"md\"");
        let expected = "the intent `web` will be refused: ";
        assert!(checksum.refused.iter().any(|text| text.starts_with(expected)), "{checksum:?}");
        let unknown = found("onos-int", "l4_checksum = \"leave\"", "mode = \"md\"");
        assert_eq!(unknown.text, "intents: whether the devices accept them is known when they answer\n");
    }
}
