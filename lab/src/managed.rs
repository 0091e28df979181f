//! Managed labs: switches start without rules; the manager in the collector's process compiles the intents into rules.
//!
//! Builds the manager's part of the collector's configuration: `[manager]`, `[inventory]` and `[[intents]]`. A lab is managed
//! unless its file configures the switches one by one, for example with `[[watch]]`.

use std::path::Path;

use settings::setting::Shown;

use crate::bmv2;
use crate::file::{LabFile, P4Program, Verbatim};
use crate::plan::{SWITCH_API, namespace};
use crate::tables::{default_at, entry, get_at, plain, set, set_at, table, text};
use crate::topology::{Node, Topology, program_of};

/// Returns the first key of the file that configures switches one by one and so excludes a manager; `None` in a managed lab.
pub(crate) fn unmanaged_by(file: &LabFile) -> Option<&'static str> {
    let sets_role = file
        .switch
        .as_ref()
        .is_some_and(|Verbatim(keys)| get_at(keys, &["role"]).is_some());
    let mut switches = file.switches.iter();
    let keys = [
        ("watch", !file.watch.is_empty()),
        ("filter", !file.filter.is_empty()),
        (
            "watch of [[switches]]",
            switches.clone().any(|switch| switch.watch.is_some()),
        ),
        (
            "filter of [[switches]]",
            switches.clone().any(|switch| switch.filter.is_some()),
        ),
        (
            "l4_checksum of [[switches]]",
            switches.any(|switch| switch.l4_checksum.is_some()),
        ),
        ("role of [switch]", sets_role),
    ];
    keys.into_iter().find_map(|(key, written)| written.then_some(key))
}

/// Returns whether a manager configures the switches.
pub(crate) fn is_managed(file: &LabFile) -> bool {
    unmanaged_by(file).is_none()
}

/// Returns the intents in a measurement mode; `None` keeps the modes of the file.
fn intents(file: &LabFile, mode: Option<&str>) -> Vec<Shown> {
    let written = file
        .intents
        .as_ref()
        .map(|written| written.iter().map(|Verbatim(intent)| intent.clone()));
    let intents: Vec<Shown> =
        written.map_or_else(|| vec![default_intent(program_of(file))], Iterator::collect);
    match mode {
        None => intents,
        Some("off") => Vec::new(),
        Some(mode) => intents
            .into_iter()
            .map(|intent| with_mode(intent, mode))
            .collect(),
    }
}

/// Builds the default intent: UDP and TCP between all hosts, with INT-MD, or SF-INT if the P4 program supports only that. It
/// does not watch link utilization, which is undefined for a link without a rate.
fn default_intent(program: P4Program) -> Shown {
    let protocols = ["udp", "tcp"].map(plain);
    let metrics = ["flow_path", "flow_latency", "hop_latency", "queue_occupancy"].map(plain);
    let intent = table([
        ("name", plain("all")),
        ("match", table([("proto", Shown::List(protocols.into()))])),
        ("watch", Shown::List(metrics.into())),
        ("mode", plain("md")),
    ]);
    match program {
        P4Program::Int => intent,
        P4Program::Sf => with_mode(intent, "sf"),
    }
}

/// Name and mode of an intent, each `None` if the intent does not set it.
pub(crate) struct ExpectedIntent {
    pub(crate) name: Option<String>,
    pub(crate) mode: Option<String>,
}

/// Returns the intents that the manager reads from its configuration.
pub(crate) fn expected_intents(file: &LabFile, mode: Option<&str>) -> Vec<ExpectedIntent> {
    let intents = intents(file, mode).into_iter().map(|intent| {
        let [name, mode] =
            ["name", "mode"].map(|key| get_at(&intent, &[key]).and_then(text).map(str::to_owned));
        ExpectedIntent { name, mode }
    });
    intents.collect()
}

/// Changes the mode of an intent. SF-INT does not measure flow latency, so that metric is removed.
fn with_mode(mut intent: Shown, mode: &str) -> Shown {
    if let Shown::Table(keys) = &mut intent {
        set(keys, "mode", plain(mode));
        let watch = keys.iter_mut().find(|(key, _)| key == "watch");
        if mode == "sf"
            && let Some((_, Shown::List(metrics))) = watch
        {
            metrics.retain(|metric| text(metric) != Some("flow_latency"));
        }
    }
    intent
}

/// Adds the manager, the inventory and the intents to the collector's configuration. `reports` is the address that switches
/// report to.
pub(crate) fn add_manager(
    settings: &mut Shown,
    topology: &Topology,
    mode: Option<&str>,
    reports: &str,
    dir: &Path,
) {
    let collector = table([("address", plain(reports))]);
    set_at(settings, &["manager", "collectors"], Shown::List(vec![collector]));
    set_at(
        settings,
        &["manager", "namespace"],
        plain(namespace(&topology.name, "{device}")),
    );
    if !topology.has_bmv2() {
        default_at(settings, &["manager", "clocks"], plain("synchronised"));
    }
    for (index, switch) in topology
        .switches
        .iter()
        .enumerate()
        .filter(|(index, _)| topology.is_bmv2(*index))
    {
        set_at(
            settings,
            &["manager", "p4runtime", &switch.name],
            bmv2::settings(topology, index),
        );
    }
    default_at(settings, &["manager", "calm"], plain("100ms"));
    let state = dir.join("manager.sqlite");
    default_at(settings, &["manager", "state"], plain(state.to_string_lossy()));
    // All devices of a domain must encode INT the same, so the manager sets these keys for all switches.
    for (key, path) in [("l4_checksum", &["l4_checksum"][..]), ("dscp", &["mark", "dscp"])] {
        let written = topology
            .file
            .switch
            .as_ref()
            .and_then(|Verbatim(keys)| get_at(keys, path));
        if let Some(value) = written {
            default_at(settings, &["manager", key], value.clone());
        }
    }
    set_at(settings, &["inventory"], inventory(topology));
    set_at(settings, &["intents"], Shown::List(intents(&topology.file, mode)));
}

/// Builds the manager's inventory: devices, links and hosts of the topology.
fn inventory(topology: &Topology) -> Shown {
    let devices = topology.switches.iter().enumerate().map(|(index, switch)| {
        let is_bmv2 = topology.is_bmv2(index);
        let mut keys = vec![
            entry("name", plain(switch.name.as_str())),
            entry("node", plain(switch.node)),
        ];
        keys.extend(is_bmv2.then(|| entry("driver", plain("p4runtime"))));
        let address = if is_bmv2 { bmv2::P4RUNTIME } else { SWITCH_API };
        keys.extend([
            entry("address", plain(address)),
            entry("ports", plain(switch.ports.len())),
        ]);
        Shown::Table(keys)
    });
    let ports = topology.switches.iter().flat_map(|switch| {
        switch
            .ports
            .iter()
            .map(move |port| (port, plain(format!("{}:{}", switch.name, port.number))))
    });
    let links = (0..topology.links.len()).filter_map(|link| {
        let ends: Vec<Shown> = ports
            .clone()
            .filter(|(port, _)| port.link == link)
            .map(|(_, end)| end)
            .collect();
        (ends.len() == 2).then(|| table([("between", Shown::List(ends))]))
    });
    let hosts = ports.clone().filter_map(|(port, end)| {
        let Node::Host(index) = port.peer else { return None };
        let host = &topology.hosts[index];
        let addresses = host.addresses.iter().map(|address| plain(address.ip.to_string()));
        let addresses = Shown::List(addresses.collect());
        Some(table([
            ("name", plain(host.name.as_str())),
            ("addresses", addresses),
            ("at", end),
        ]))
    });
    Shown::Table(vec![
        entry("devices", Shown::List(devices.collect())),
        entry("links", Shown::List(links.collect())),
        entry("hosts", Shown::List(hosts.collect())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::Conditions;
    use crate::configs;

    const FILE: &str = "name = \"t\"
        [[hosts]]
        name = \"h1\"
        address = \"10.0.1.1\"
        [[hosts]]
        name = \"h2\"
        address = \"10.0.2.1\"
        address6 = \"fd00:2::1\"
        [[switches]]
        name = \"s1\"
        node = 11
        [[switches]]
        name = \"s2\"
        [[links]]
        between = [\"h1\", \"s1\"]
        [[links]]
        between = [\"s1\", \"s2\"]
        [[links]]
        between = [\"h2\", \"s2\"]
        [switch]
        l4_checksum = \"leave\"
        [collector.manager]
        drain = \"1s\"";

    fn topology(more: &str) -> Topology {
        crate::load::parse_example(&format!("{FILE}\n{more}"))
    }

    fn collector(topology: &Topology, mode: Option<&str>) -> String {
        let conditions = Conditions {
            mode: mode.map(str::to_owned),
            ..Conditions::default()
        };
        configs::collector(
            topology,
            "127.0.0.1:0".parse().unwrap(),
            Path::new("/run/x"),
            &conditions,
        )
    }

    #[test]
    fn the_collector_gets_manager_inventory_and_intents_and_the_switches_get_none() {
        let topology = topology("");
        let text = collector(&topology, None);
        let begin = text.find("[manager]").unwrap();
        let end = text.find("[collector.postcards]").unwrap_or(text.len());
        let expected = "\
[manager]
drain = \"1s\"
namespace = \"hw-t-{device}\"
clocks = \"synchronised\"
calm = \"100ms\"
state = \"/run/x/manager.sqlite\"
l4_checksum = \"leave\"

[[manager.collectors]]
address = \"172.31.255.1:32766\"

";
        assert!(text[begin..end].starts_with(expected), "{text}");
        for part in [
            "[[inventory.devices]]\nname = \"s1\"\nnode = 11\naddress = \"127.0.0.1:8080\"\nports = 2\n",
            "[[inventory.links]]\nbetween = [\"s1:2\", \"s2:1\"]\n",
            "[[inventory.hosts]]\nname = \"h2\"\naddresses = [\"10.0.2.1\", \"fd00:2::1\"]\nat = \"s2:2\"\n",
            "[[intents]]\nname = \"all\"\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let switch = configs::switch(&topology, 0, &Conditions::default());
        assert!(switch.contains("[switch.managed]\n"), "{switch}");
        assert!(
            !switch.contains("reports") && !switch.contains("watch"),
            "{switch}"
        );
    }

    #[test]
    fn a_mode_is_that_of_every_intent_and_off_removes_them() {
        let intents = "[[intents]]\nname = \"a\"\nmode = \"md\"\nwatch = [\"hop_latency\"]\n\
                       [[intents]]\nname = \"b\"\nwatch = [\"hop_latency\"]\n";
        let text = collector(&topology(intents), Some("sf"));
        assert_eq!(text.matches("mode = \"sf\"\n").count(), 2, "{text}");
        assert!(!text.contains("mode = \"md\""), "{text}");
        assert!(collector(&topology(intents), Some("off")).contains("intents = []\n"));
        // SF-INT does not give the latency of a flow.
        let watch = |mode: &str| collector(&topology(""), Some(mode)).contains("\"flow_latency\"");
        assert_eq!(["md", "sf"].map(watch), [true, false]);
        let bmv2 = |program: &str| {
            let switch = format!("[[switches]]\nname = \"s3\"\nkind = \"bmv2\"\nprogram = \"{program}\"");
            let link = "[[links]]\nbetween = [\"s2\", \"s3\"]";
            let file = FILE.replace("l4_checksum = \"leave\"", "");
            let file = file.replace("[switch]", &format!("{switch}\n{link}\n[switch]"));
            let topology = crate::load::parse_example(&file);
            collector(&topology, None).contains("mode = \"sf\"\n")
        };
        assert_eq!(["int", "sf"].map(bmv2), [false, true]);
    }

    #[test]
    fn a_watchlist_in_the_file_leaves_the_manager_out() {
        let topology = topology("").file;
        assert_eq!(unmanaged_by(&topology), None);
        for (more, key) in [
            ("[[watch]]\nmode = \"md10\"", "watch"),
            ("[[filter]]\nalgorithm = \"noop\"", "filter"),
        ] {
            let text = FILE.replace("[collector.manager]\n        drain = \"1s\"", "[collector]");
            let topology = crate::load::parse_example(&format!("{text}\n{more}"));
            assert_eq!(unmanaged_by(&topology.file), Some(key));
            assert!(!collector(&topology, None).contains("manager"));
        }
    }
}
