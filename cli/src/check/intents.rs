//! Predicts for `hopwise check` whether devices will accept the intents. Possible without contacting them if every device
//! runs a P4 program that is included in hopwise, so that its capabilities are known.

use std::{collections::BTreeMap, fmt::Write as _};

use manager::{
    Manager,
    compile::Refusal,
    device::{Capabilities, NodeId, Rules},
    inventory::Device,
};
use p4runtime::{program::Program, programs::INCLUDED};

use config::Settings;
use manage_role::settings::{ManagerSettings, p4runtime::P4RuntimeSettings};

/// Maximum number of intents or devices that are described.
const MAX_LINES: usize = 20;

/// Predictions about intents or devices.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// One line for each intent or device.
    pub(super) text: String,
    /// Problems with intents or devices, a sentence each.
    pub(super) problems: Vec<String>,
}

/// Creates a manager of the configured devices, without intents; `None` if a device tells its capabilities only at run time.
fn simulated_manager(settings: &Settings, now: u64) -> Option<Manager> {
    let manager_settings = settings.manager.as_ref()?;
    let inventory = manager::inventory::from_settings(&settings.inventory);
    let switches = inventory.devices().filter(|device| !device.role.is_outside());
    let capabilities: Option<BTreeMap<NodeId, Capabilities>> = switches
        .map(|device| Some((device.node, capabilities(manager_settings, device)?)))
        .collect();
    let capabilities = capabilities?;
    let mut manager = Manager::new(manager_settings.core(&inventory));
    manager.set_inventory(inventory, now);
    capabilities
        .into_iter()
        .for_each(|(node, capabilities)| manager.set_capabilities(node, capabilities, now));
    Some(manager)
}

/// Returns the rules that the configured intents give a device. `None` if they depend on answers of devices.
pub(crate) fn rules(settings: &Settings, node: NodeId) -> Option<Rules> {
    let now = nic::time::now();
    let mut manager = simulated_manager(settings, now)?;
    for intent_settings in &settings.intents {
        // A refused intent has no rules; `hopwise check` prints the reason.
        let _ = manager.keep_intent(intent_settings.intent(), now);
    }
    manager
        .compiler()
        .desired()
        .get(&node)
        .map(|rules| (**rules).clone())
}

/// Describes the table entries of devices outside the INT domain (aggregators and translators).
pub(super) fn roles(settings: &Settings) -> Findings {
    let mut findings = Findings::default();
    let Some(manager) = settings.manager.as_ref() else {
        return findings;
    };
    let inventory = manager::inventory::from_settings(&settings.inventory);
    for (index, device) in inventory.outside().enumerate() {
        if index == MAX_LINES {
            let _ = writeln!(
                findings.text,
                "and {} more devices",
                inventory.outside().count() - MAX_LINES
            );
            break;
        }
        let Some(p4_settings) = manager.p4runtime.get(&device.name) else {
            continue;
        };
        let name = &device.name;
        let role_name = device.role.name();
        let description = p4_settings.about().unwrap_or_default();
        match bind_program(p4_settings, device) {
            Ok(program) => {
                let Some(role) = program.role() else { continue };
                let [entries, groups, sessions] = role.size();
                let _ = write!(
                    findings.text,
                    "device {name}: {role_name}: {description}; {entries} entries, {groups} multicast groups, {sessions} clone sessions"
                );
                let frames = role.frames.len();
                let period = role.period;
                let _ = match frames {
                    0 => writeln!(findings.text, ", no timer frames of the manager"),
                    _ => writeln!(findings.text, ", {frames} timer frames every {period:?}"),
                };
            }
            Err(Some(problem)) => findings
                .problems
                .push(format!("`{name}` cannot be driven: {problem}")),
            Err(None) => {
                let _ = writeln!(
                    findings.text,
                    "device {name}: {role_name}: {description}; its entries are unknown until it answers"
                );
            }
        }
    }
    findings
}

/// Binds a device's map (names of P4 tables and actions) to its program, if hopwise includes the program.
///
/// # Errors
/// The reason why the map does not fit, or `None` if the program is not included, so that its P4Info is unknown.
pub(crate) fn bind_program(
    p4_settings: &P4RuntimeSettings,
    device: &Device,
) -> Result<Program, Option<String>> {
    let driver = p4_settings
        .driver(device)
        .map_err(|(key, why)| Some(format!("`{key}`: {why}")))?;
    let (name, map) = &driver.map;
    let program = INCLUDED
        .iter()
        .find(|program| program.map == Some(name.as_str()))
        .ok_or(None::<String>)?;
    let info = program.info().map_err(Some)?;
    Program::new(map, &info, &driver.local).map_err(|problems| Some(problems.join("; ")))
}

/// Compiles the configured intents and describes the outcome of each.
pub(super) fn compile(settings: &Settings) -> Findings {
    let mut findings = Findings::default();
    if settings.manager.is_none() || settings.intents.is_empty() {
        return findings;
    }
    let now = nic::time::now();
    let Some(mut manager) = simulated_manager(settings, now) else {
        "intents: whether the devices accept them is unknown until they answer\n"
            .clone_into(&mut findings.text);
        return findings;
    };
    for (index, intent_settings) in settings.intents.iter().enumerate() {
        let intent = intent_settings.intent();
        let name = intent.name.clone();
        match manager.keep_intent(intent, now) {
            // Reported where the configuration was parsed.
            Err(Refusal::Intent(_)) => {}
            Err(refusal) => findings
                .problems
                .push(format!("the intent `{name}` will be refused: {refusal}")),
            Ok(outcome) if index < MAX_LINES => {
                let mode = outcome.mode.name();
                let devices = outcome.nodes.len();
                let _ = writeln!(
                    findings.text,
                    "intent {name}: mode {mode}, on {devices} device(s)"
                );
            }
            Ok(_) => {}
        }
    }
    if settings.intents.len() > MAX_LINES {
        let _ = writeln!(
            findings.text,
            "and {} more intents",
            settings.intents.len() - MAX_LINES
        );
    }
    findings
}

/// Returns the capabilities of a device; `None` unless its map belongs to an included program.
fn capabilities(manager: &ManagerSettings, device: &Device) -> Option<Capabilities> {
    let p4_settings = manager
        .p4runtime
        .get(&device.name)
        .filter(|_| device.driver == "p4runtime")?;
    Some(bind_program(p4_settings, device).ok()?.capabilities())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A switch, an aggregator and a translator.
    pub(crate) const OUTSIDE: &str = r#"
[inventory]
devices = [
    { name = "s1", node = 1, driver = "p4runtime", address = "192.0.2.11:9559", ports = 4 },
    { name = "agg1", node = 11, role = "aggregator", driver = "p4runtime", address = "192.0.2.21:9559" },
    { name = "dta1", node = 12, role = "translator", driver = "p4runtime", address = "192.0.2.22:9559" },
]
hosts = [
    { name = "h1", addresses = ["10.0.1.1"], at = "s1:1", mtu = 1400 },
    { name = "h2", addresses = ["10.0.2.1"], at = "s1:2", mtu = 1400 },
]
[manager]
collectors = [{ address = "192.0.2.100:32766" }]

[manager.p4runtime.s1]
map = "hopwise-int"
report = { port = 4, source = "192.0.2.1" }
routes = [{ to = "10.0.1.1", port = 1, source_mac = "02:00:00:00:01:01", mac = "02:00:00:00:11:01" }]

[manager.p4runtime.agg1]
map = "hopwise-aggregator"
load = { program = "hopwise-aggregator" }
[manager.p4runtime.agg1.aggregator]
kind = "agg_nf"
r = 3
registers = 16
destinations = [{ to = "192.0.2.100:32767", port = 4, source = "192.0.2.1", source_mac = "02:00:00:00:00:01", mac = "02:00:00:00:01:00" }]

[manager.p4runtime.dta1]
map = "hopwise-dta-translator"
load = { program = "hopwise-dta-translator" }
[manager.p4runtime.dta1.translator]
report_ports = [1]
reporters = [{ id = 7, address = "10.0.0.7" }]
timer_frames = { ports = [64], every = "1s" }
[[manager.p4runtime.dta1.translator.collectors]]
address = "192.0.2.200"
port = 3
source = "198.51.100.1"
source_mac = "02:00:00:00:00:03"
mac = "02:00:00:00:01:00"
unreliable = 0x100
reliable = 0x101
stores = [
    { kind = "key-write", id = 1, address = 0x7f0000000000, rkey = 8002, slots = 1024, data = 20 },
    { kind = "append", id = 10, address = 0x7f0002000000, rkey = 8002, lists = 3, entry = 4, entries = 64, batch = 16 },
]

[[intents]]
name = "web"
match = { dst = "10.0.2.1", proto = "tcp", dport = "443" }
watch = ["flow_path", "hop_latency"]
mode = "md"
"#;

    #[test]
    fn devices_outside_the_domain_are_shown_and_concern_no_intent() {
        let settings = Settings::parse(OUTSIDE, "h.toml").unwrap_or_else(|error| panic!("{error}"));
        let found = roles(&settings);
        let expected = "device agg1: aggregator: agg_nf of 3 postcards to 192.0.2.100:32767; 3 entries, 0 multicast groups, 1 clone sessions, no timer frames of the manager
device dta1: translator: DTA to 1 collector(s) with 2 store(s); 1 reporter(s) of essential reports; 13 entries, 6 multicast groups, 1 clone sessions, 3 timer frames every 1s
";
        assert_eq!((found.text.as_str(), &*found.problems), (expected, &[][..]));
        let intents = compile(&settings);
        assert_eq!(
            (intents.text.as_str(), &*intents.problems),
            ("intent web: mode md, on 1 device(s)\n", &[][..])
        );
    }

    #[test]
    fn what_a_device_outside_the_domain_cannot_be_is_refused_with_its_line() {
        for (from, to, part) in [
            (
                "r = 3\n",
                "r = 24\n",
                "r: an aggregate of `agg_nf` has at most 23 postcards",
            ),
            (
                "role = \"aggregator\", ",
                "",
                "`hopwise-aggregator` is of a device outside the domain; add role = \"aggregator\" to `agg1`",
            ),
            (
                "role = \"aggregator\"",
                "role = \"translator\"",
                "add role = \"aggregator\" to `agg1`",
            ),
            (
                "map = \"hopwise-aggregator\"",
                "map = \"hopwise-int\"",
                "`hopwise-int` is the map of a switch, and `agg1` has role = \"aggregator\"",
            ),
            (
                "[manager.p4runtime.agg1.aggregator]",
                "[manager.p4runtime.s1.aggregator]",
                "`aggregator` belongs to a device with role = \"aggregator\"",
            ),
            (
                "load = { program = \"hopwise-dta-translator\" }",
                "mtus = [{ port = 1 }]",
                "`mtus` belongs to switches of the domain",
            ),
            (
                "slots = 1024",
                "slots = 1000",
                "collectors[0].stores[0]: slots must be a power of two",
            ),
            (
                "role = \"translator\", driver = \"p4runtime\"",
                "role = \"translator\", driver = \"files\"",
                "only driver = \"p4runtime\" drives a device with a role",
            ),
            ("at = \"s1:2\"", "at = \"agg1:2\"", "`agg1` is outside the domain"),
        ] {
            let text = OUTSIDE.replacen(from, to, 1);
            assert_ne!(text, OUTSIDE, "{from}");
            let error = Settings::parse(&text, "h.toml")
                .map(drop)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("h.toml:") && error.contains(part),
                "{part}\n{error}"
            );
        }
    }

    fn found(map: &str, checksum: &str, mode: &str) -> Findings {
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
        compile(&Settings::parse(&file, "h.toml").unwrap_or_else(|error| panic!("{error}")))
    }

    #[test]
    fn intents_are_compiled_for_our_programs() {
        let fine = found("hopwise-int", "", "mode = \"md\"");
        assert_eq!(
            (fine.text.as_str(), &*fine.problems),
            ("intent web: mode md, on 2 device(s)\n", &[][..])
        );
        let postcards = found("hopwise-int", "", "mode = \"postcard\"");
        assert!(
            postcards.text.starts_with("intent web: mode postcard"),
            "{postcards:?}"
        );
        let checksum = found("hopwise-int", "l4_checksum = \"leave\"", "mode = \"md\"");
        let expected = "the intent `web` will be refused: ";
        assert!(
            checksum.problems.iter().any(|text| text.starts_with(expected)),
            "{checksum:?}"
        );
        let unknown = found("onos-int", "l4_checksum = \"leave\"", "mode = \"md\"");
        assert_eq!(
            unknown.text,
            "intents: whether the devices accept them is unknown until they answer\n"
        );
    }
}
