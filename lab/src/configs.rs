//! Builds the configuration file of each process of a lab, as TOML: collector, switches, aggregator and translator.
//!
//! The topology file has the users' settings; the lab adds addresses, ports, routes and node names. All reports go to
//! addresses in the management namespace, where the collector's sockets are.

use std::{net::SocketAddr, path::Path};

use settings::{
    setting::{Setting, Shown},
    values::{Size, bytes},
};

use crate::plan::{COLLECTOR, MANAGEMENT, SWITCH_API, namespace};
use crate::tables::{default_at, entry, get_at, plain, set, set_at, table, text};
use crate::topology::{Node, Port, Topology};
use crate::{conditions::Conditions, file::Verbatim, managed, routes::routes};

/// UDP port of telemetry reports at the collector.
const TELEMETRY_PORT: u16 = 32766;
/// UDP port on which the aggregator receives postcards.
const AGGREGATOR_PORT: u16 = 32765;
/// UDP port on which the collector receives aggregates.
const AGGREGATE_PORT: u16 = 32767;

/// UDP port on which the translator receives DTA reports.
const DTA_PORT: u16 = 40040;
/// UDP port of RoCEv2, and TCP port of the exchange, at the collector.
const MEMORY_PORTS: [u16; 2] = [4791, 18515];

/// API address of the translator, in the management namespace.
pub(crate) const TRANSLATOR_API: &str = "127.0.0.1:8081";

/// Maximum size of a lab's store, bytes. The store is on tmpfs unless the topology file names another directory.
const MAX_STORE_BYTES: u64 = 256 << 20;

/// Builds the collector's configuration. `api` is its API address; `dir` is the lab's directory, which has the store and the
/// collector memory unless the topology file names another place.
pub(crate) fn collector(topology: &Topology, api: SocketAddr, dir: &Path, conditions: &Conditions) -> String {
    let mut settings = match &topology.file.collector {
        Some(Verbatim(written)) => written.clone(),
        None => Shown::Table(Vec::new()),
    };
    let aggregates = topology.file.aggregator.is_some().then_some(AGGREGATE_PORT);
    let listen = [TELEMETRY_PORT].into_iter().chain(aggregates);
    let listen = listen.map(|port| plain(format!("udp://{}", SocketAddr::from((COLLECTOR, port)))));
    set_at(
        &mut settings,
        &["collector", "listen"],
        Shown::List(listen.collect()),
    );
    set_at(
        &mut settings,
        &["collector", "namespace"],
        plain(namespace(&topology.name, MANAGEMENT)),
    );
    set_at(&mut settings, &["api", "listen"], plain(api.to_string()));
    let nodes = topology
        .switches
        .iter()
        .map(|switch| (switch.node.to_string(), plain(switch.name.as_str())));
    set_at(&mut settings, &["nodes"], Shown::Table(nodes.collect()));
    if get_at(&settings, &["store", "dir"]).is_none() {
        let written = get_at(&settings, &["store", "max_bytes"])
            .and_then(text)
            .and_then(bytes);
        let max_bytes = written.map_or(MAX_STORE_BYTES, |max_bytes| max_bytes.min(MAX_STORE_BYTES));
        set_at(
            &mut settings,
            &["store", "dir"],
            plain(dir.join("store").to_string_lossy()),
        );
        set_at(&mut settings, &["store", "max_bytes"], Size(max_bytes).show());
    }
    if get_at(&settings, &["collector", "memory"]).is_some() {
        let [rdma, exchange] = MEMORY_PORTS.map(collector_address);
        set_at(&mut settings, &["collector", "memory", "listen"], rdma);
        set_at(&mut settings, &["collector", "memory", "exchange"], exchange);
        let directory = plain(dir.join("memory").to_string_lossy());
        default_at(&mut settings, &["collector", "memory", "directory"], directory);
    }
    if managed::is_managed(&topology.file) {
        managed::add_manager(
            &mut settings,
            topology,
            conditions.mode.as_deref(),
            &report_address(topology),
            dir,
        );
    }
    // The initial hop limit is the same at all sources, so the collector need not learn it from longer paths.
    let mut hops = topology
        .file
        .watch
        .iter()
        .map(|watch| get_at(&watch.0, &["hops"]));
    if let Some(Some(first)) = hops.next()
        && hops.all(|other| other == Some(first))
    {
        default_at(&mut settings, &["collector", "sf", "hop_limit"], first.clone());
    }
    let links = Shown::List(links(topology));
    default_at(&mut settings, &["collector", "postcards", "links"], links);
    // The switches of a lab share one clock, but each BMv2 counts its own time.
    let clocks = (!topology.has_bmv2()).then(|| entry("clocks", plain("synchronised")));
    let reasons = dataplane::demo::drop_reasons().map(|(code, name)| (code.to_string(), plain(name)));
    let reasons = entry("drop_reasons", Shown::Table(reasons.collect()));
    let profile = Shown::Table(clocks.into_iter().chain([reasons]).collect());
    default_at(&mut settings, &["profiles", "default"], profile);
    settings.to_toml()
}

/// Returns the address to which the switches send their reports.
fn report_address(topology: &Topology) -> String {
    let port = if topology.file.aggregator.is_some() {
        AGGREGATOR_PORT
    } else {
        TELEMETRY_PORT
    };
    SocketAddr::from((COLLECTOR, port)).to_string()
}

/// Returns the links between switches, one entry for each direction. The collector checks paths of postcards against them.
fn links(topology: &Topology) -> Vec<Shown> {
    let pairs = (0..topology.links.len()).filter_map(|at| {
        topology.switches.iter().find_map(|switch| {
            let mut ports = switch.ports.iter();
            let near = ports.find(|port| port.link == at && matches!(port.peer, Node::Switch(_)))?;
            let far = topology.switches.iter().find_map(|other| {
                let far = other
                    .ports
                    .iter()
                    .find(|port| port.link == at && port.end != near.end)?;
                Some(format!("{}:{}", other.node, far.number))
            })?;
            Some((format!("{}:{}", switch.node, near.number), far))
        })
    });
    pairs
        .flat_map(|(a, b)| [plain(format!("{a}-{b}")), plain(format!("{b}-{a}"))])
        .collect()
}

/// Returns the collector's API address in the topology file, if set.
pub(crate) fn configured_api(topology: &Topology) -> Option<SocketAddr> {
    let Verbatim(settings) = topology.file.collector.as_ref()?;
    get_at(settings, &["api", "listen"]).and_then(text)?.parse().ok()
}

/// Builds the configuration of a switch under these conditions.
pub(crate) fn switch(topology: &Topology, index: usize, conditions: &Conditions) -> String {
    let switch = &topology.switches[index];
    let file = &topology.file;
    let written = &file.switches[index];
    let managed = managed::is_managed(file);
    let mut entries = vec![
        entry("node", plain(switch.node)),
        entry("name", plain(switch.name.as_str())),
    ];
    if !managed {
        entries.push(entry("reports", plain(report_address(topology))));
    }
    if let Some(Verbatim(Shown::Table(further))) = &file.switch {
        entries.extend(further.iter().cloned());
    }
    if let Some(l4_checksum) = &written.l4_checksum {
        set(&mut entries, "l4_checksum", plain(l4_checksum.as_str()));
    }
    if file.translator.is_some()
        && let Some((_, Shown::Table(dta))) = entries.iter_mut().find(|(key, _)| key == "dta")
    {
        set(dta, "collectors", Shown::List(vec![collector_address(DTA_PORT)]));
    }
    let ports = switch
        .ports
        .iter()
        .map(|port| self::port(topology, port, conditions));
    entries.push(entry("ports", Shown::List(ports.collect())));
    let routes = routes(topology, index, &conditions.avoided_links(topology))
        .into_iter()
        .flat_map(|route| {
            let destination = route.to.to_string();
            let ports = route.ports.into_iter();
            ports.map(move |port| table([("to", plain(destination.as_str())), ("port", plain(port))]))
        });
    entries.push(entry("routes", Shown::List(routes.collect())));
    if managed {
        // No state file: a restarted switch forgets its rules and waits for its manager.
        entries.push(entry("managed", table([("state", Shown::Nothing)])));
    } else {
        entries.push(entry("watch", watch(topology, index, conditions)));
    }
    let filter = written.filter.as_ref().unwrap_or(&file.filter);
    if !filter.is_empty() {
        entries.push(entry("filter", list(filter)));
    }
    role_config("switch", entries, SWITCH_API)
}

/// Builds the configuration of a process with one role and the API.
fn role_config(name: &str, entries: Vec<(String, Shown)>, api: &str) -> String {
    let api = table([("listen", plain(api))]);
    table([(name, Shown::Table(entries)), ("api", api)]).to_toml()
}

/// Formats a socket address in the management namespace, at the collector's IP address.
fn collector_address(port: u16) -> Shown {
    plain(SocketAddr::from((COLLECTOR, port)).to_string())
}

/// Builds the aggregator's configuration; `None` in a lab without aggregator.
pub(crate) fn aggregator(topology: &Topology) -> Option<String> {
    let Some(Verbatim(Shown::Table(written))) = &topology.file.aggregator else {
        return None;
    };
    let mut entries = written.clone();
    let interop = written
        .iter()
        .any(|(key, value)| key == "interop" && *value == plain(true));
    let destination = if interop { TELEMETRY_PORT } else { AGGREGATE_PORT };
    let listen = plain(format!("udp://{COLLECTOR}:{AGGREGATOR_PORT}"));
    set(&mut entries, "listen", listen);
    set(
        &mut entries,
        "forward",
        Shown::List(vec![collector_address(destination)]),
    );
    Some(role_config("aggregator", entries, SWITCH_API))
}

/// Builds the translator's configuration; `None` in a lab without translator.
pub(crate) fn translator(topology: &Topology) -> Option<String> {
    let Some(Verbatim(Shown::Table(written))) = &topology.file.translator else {
        return None;
    };
    let mut entries = written.clone();
    let [_, exchange] = MEMORY_PORTS.map(collector_address);
    set(&mut entries, "listen", collector_address(DTA_PORT));
    let memory = table([("exchange", exchange)]);
    set(&mut entries, "collectors", Shown::List(vec![memory]));
    Some(role_config("translator", entries, TRANSLATOR_API))
}

/// Builds the watch list of a switch, which names the flows that it measures.
fn watch(topology: &Topology, index: usize, conditions: &Conditions) -> Shown {
    let file = &topology.file;
    // A rule without keys matches UDP and TCP between all hosts and measures with INT-MD.
    let default = [Verbatim(Shown::Table(Vec::new()))];
    let written = match &file.switches[index].watch {
        Some(switch_watch) => switch_watch,
        None if file.watch.is_empty() => &default[..],
        None => &file.watch,
    };
    match conditions.mode.as_deref() {
        None => list(written),
        Some("off") => Shown::List(Vec::new()),
        Some(mode) => Shown::List(written.iter().map(|entry| with_mode(entry, mode)).collect()),
    }
}

/// Copies a watch rule with another measurement mode.
fn with_mode(watch: &Verbatim, mode: &str) -> Shown {
    let mut rule = watch.0.clone();
    if let Shown::Table(keys) = &mut rule {
        set(keys, "mode", plain(mode));
    }
    rule
}

/// Builds the settings of a switch port: its interface, its impairments, and the faults of its link.
fn port(topology: &Topology, port: &Port, conditions: &Conditions) -> Shown {
    let link = &topology.links[port.link];
    let mut entries = vec![
        entry("number", plain(port.number)),
        entry("interface", plain(link.interfaces[port.end].as_str())),
        entry("edge", plain(matches!(port.peer, Node::Host(_)))),
        entry("mtu", plain(link.mtu)),
    ];
    entries.extend(
        impairments(topology, port)
            .into_iter()
            .filter(|(_, value)| *value != Shown::Nothing),
    );
    for fault in conditions.faults_of(&link.interfaces[0]) {
        for (key, value) in fault.keys(port) {
            set(&mut entries, key, value);
        }
    }
    Shown::Table(entries)
}

/// Returns the impairments of a port from the link's settings; also those of received packets (`in_…`) if the other
/// end is a host.
fn impairments(topology: &Topology, port: &Port) -> Vec<(String, Shown)> {
    let link = &topology.links[port.link].settings;
    let mut entries = vec![
        entry("rate", link.rate.show()),
        entry("depth", link.depth.show()),
        entry("delay", link.delay.show()),
        entry("loss", link.loss.show()),
    ];
    if matches!(port.peer, Node::Host(_)) {
        entries.extend([
            entry("in_rate", link.rate.show()),
            entry("in_delay", link.delay.show()),
            entry("in_loss", link.loss.show()),
        ]);
    }
    entries
}

fn list(tables: &[Verbatim]) -> Shown {
    Shown::List(tables.iter().map(|table| table.0.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        [[switches.watch]]
        mode = \"postcard\"
        dst = \"10.0.2.0/24\"
        [[links]]
        between = [\"h1\", \"s1\"]
        rate = \"10Mbit/s\"
        delay = \"1ms\"
        [[links]]
        between = [\"s1\", \"s2\"]
        [[links]]
        between = [\"h2\", \"s2\"]
        [switch]
        seed = 7
        [collector.thresholds]
        flow_latency = \"1ms\"";

    fn topology() -> Topology {
        crate::load::parse_example(FILE)
    }

    #[test]
    fn a_switch_config_has_its_ports_routes_and_watchlist() {
        let expected = "\
[switch]
node = 11
name = \"s1\"
reports = \"172.31.255.1:32766\"
seed = 7

[[switch.ports]]
number = 1
interface = \"s1-h1\"
edge = true
mtu = 1500
rate = \"10Mbit/s\"
delay = \"1ms\"
loss = 0.0
in_rate = \"10Mbit/s\"
in_delay = \"1ms\"
in_loss = 0.0

[[switch.ports]]
number = 2
interface = \"s1-s2\"
edge = false
mtu = 2140
delay = \"0s\"
loss = 0.0

[[switch.routes]]
to = \"10.0.1.1\"
port = 1

[[switch.routes]]
to = \"10.0.2.1\"
port = 2

[[switch.routes]]
to = \"fd00:2::1\"
port = 2

";
        let default = Conditions::default();
        let made = switch(&topology(), 0, &default);
        let (before, _) = made.split_once("[[switch.watch]]").unwrap();
        assert_eq!(before, expected);
        assert!(
            made.ends_with("\n[[switch.watch]]\n\n[api]\nlisten = \"127.0.0.1:8080\"\n"),
            "{made}"
        );
        let other = switch(&topology(), 1, &default);
        assert!(other.contains("node = 2\n"), "{other}");
        assert!(
            other.contains("[[switch.watch]]\ndst = \"10.0.2.0/24\"\nmode = \"postcard\"\n"),
            "{other}"
        );
    }

    #[test]
    fn conditions_change_the_mode_the_ports_and_the_routes() {
        use crate::conditions::{ActiveFault, Fault};
        let faults = [
            ("h1-s1", Fault::Delay(5_000_000)),
            ("s1-s2", Fault::Loss(0.5)),
            ("s1-s2", Fault::Cut { reroute: true }),
        ];
        let faults = faults
            .map(|(link, fault)| ActiveFault {
                link: link.to_owned(),
                fault,
            })
            .to_vec();
        let made = |mode: &str| {
            let conditions = Conditions {
                mode: Some(mode.to_owned()),
                faults: faults.clone(),
            };
            switch(&topology(), 0, &conditions)
        };
        let text = made("postcard");
        for part in [
            "delay = \"5ms\"\nloss = 0.0\nin_rate = \"10Mbit/s\"\nin_delay = \"5ms\"\n",
            "delay = \"0s\"\nloss = 0.5\nup = false\n",
            "mode = \"postcard\"\n",
            "to = \"10.0.2.1\"\nport = 2\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(made("off").contains("watch = []\n"));
    }

    #[test]
    fn a_translator_gets_its_addresses_and_so_do_switches_and_memory() {
        let file = FILE.replace(
            "seed = 7",
            "seed = 7\n[switch.dta]\nlongest = 1000\n[translator]\nacknowledge = true",
        ) + "\n[collector.collector.memory]\npolicy = \"first\"\n[[collector.collector.memory.stores]]\n\
             name = \"paths\"\nkind = \"key-write\"\nid = 1\nslots = \"64K\"\nvalue = \"u32[5]\"";
        let topology = crate::load::parse_example(&file);
        let text = translator(&topology).unwrap();
        assert!(
            text.starts_with("[translator]\nacknowledge = true\nlisten = \"172.31.255.1:40040\"\n"),
            "{text}"
        );
        assert!(
            text.contains("[[translator.collectors]]\nexchange = \"172.31.255.1:18515\"\n"),
            "{text}"
        );
        let text = switch(&topology, 0, &Conditions::default());
        assert!(
            text.contains("[switch.dta]\nlongest = 1000\ncollectors = [\"172.31.255.1:40040\"]\n"),
            "{text}"
        );
        let text = collector(
            &topology,
            "127.0.0.1:0".parse().unwrap(),
            Path::new("/run/x"),
            &Conditions::default(),
        );
        let memory = "[collector.memory]\npolicy = \"first\"\nlisten = \"172.31.255.1:4791\"\n\
                      exchange = \"172.31.255.1:18515\"\ndirectory = \"/run/x/memory\"\n";
        assert!(text.contains(memory), "{text}");
    }

    #[test]
    fn the_collector_gets_the_settings_of_the_file_and_of_the_lab() {
        let text = collector(
            &topology(),
            "127.0.0.1:0".parse().unwrap(),
            Path::new("/run/x"),
            &Conditions::default(),
        );
        for line in [
            "listen = [\"udp://172.31.255.1:32766\"]",
            "namespace = \"hw-t-mgmt\"",
            "11 = \"s1\"",
            "2 = \"s2\"",
            "flow_latency = \"1ms\"",
            "max_bytes = \"256 MiB\"",
            "[profiles.default]",
            "[api]",
            "dir = \"/run/x/store\"",
            "clocks = \"synchronised\"",
            "links = [\"11:2-2:1\", \"2:1-11:2\"]",
        ] {
            assert!(text.lines().any(|written| written == line), "{line}\n{text}");
        }
    }
}
