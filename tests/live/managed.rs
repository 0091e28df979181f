//! A manager, a collector and three switches as processes: what an operator writes becomes reports, and a killed switch is filled again.

mod budgets;

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nic::netns::Namespace;
use serde_json::{Value, json};

use crate::support::roles::Program;
use crate::support::server::TIMEOUT;
use crate::support::{self, TempDir, schema, tls};

/// h1 – s1 – s2 – s3 – h2. Everything but the hosts is in one namespace.
struct Fabric {
    sender: UdpSocket,
    receiver: UdpSocket,
    manager: Program,
    switches: Vec<Program>,
    files: TempDir,
    fabric: Namespace,
    _hosts: [Namespace; 2],
}

const NAMES: [&str; 3] = ["s1", "s2", "s3"];

fn links() -> Result<(Namespace, [Namespace; 2]), nic::Error> {
    let (fabric, hosts) = (Namespace::create()?, [Namespace::create()?, Namespace::create()?]);
    for (host, (port, address)) in hosts.iter().zip([("s1p1", "10.0.1.5"), ("s3p2", "10.0.2.6")]) {
        host.ip(&[
            "link",
            "add",
            "eth0",
            "type",
            "veth",
            "peer",
            "name",
            port,
            "netns",
            fabric.name(),
        ])?;
        host.ip(&["link", "set", "eth0", "up"])?;
        fabric.ip(&["link", "set", port, "up"])?;
        host.ip(&["address", "add", &format!("{address}/32"), "dev", "eth0"])?;
        host.ip(&["route", "add", "169.254.1.1", "dev", "eth0"])?;
        host.ip(&["route", "add", "default", "via", "169.254.1.1"])?;
    }
    for (a, b) in [("s1p2", "s2p1"), ("s2p2", "s3p1")] {
        fabric.ip(&[
            "link", "add", a, "mtu", "2000", "type", "veth", "peer", "name", b, "mtu", "2000",
        ])?;
        fabric.ip(&["link", "set", a, "up"])?;
        fabric.ip(&["link", "set", b, "up"])?;
    }
    Ok((fabric, hosts))
}

fn switch(index: usize) -> String {
    let number = index + 1;
    // The first one keeps its rules, the others lose them when they end.
    let state = if index == 0 {
        "state = \"s1-rules.json\""
    } else {
        ""
    };
    let port = |port: usize| {
        let edge = (index, port) == (0, 1) || (index, port) == (2, 2);
        format!("[[switch.ports]]\nnumber = {port}\ninterface = \"s{number}p{port}\"\nedge = {edge}\n")
    };
    let route =
        |net: usize, port: usize| format!("[[switch.routes]]\nto = \"10.0.{net}.0/24\"\nport = {port}\n");
    // The last one is reached over TLS.
    let tls = if index == 2 {
        tls::section("server")
    } else {
        String::new()
    };
    format!(
        "api.listen = \"127.0.0.1:{}\"\n{tls}[switch]\nnode = {}\nname = \"s{number}\"\n[switch.managed]\n{state}\n{}{}{}{}",
        8100 + number,
        10 + number,
        port(1),
        port(2),
        route(1, 1),
        route(2, 2)
    )
}

/// The file of the manager. `links`: those between the switches are written in it.
fn manager(files: &TempDir, links: bool) -> String {
    let device = |index: usize| {
        let (name, number) = (NAMES[index], index + 1);
        let edge = ["edge = [1]", "", "edge = [2]"][index];
        format!(
            "[[inventory.devices]]\nname = \"{name}\"\nnode = {}\naddress = \"{}127.0.0.1:{}\"\nports = 2\n{edge}\n",
            10 + number,
            if index == 2 { "https://" } else { "" },
            8100 + number
        )
    };
    format!(
        "[api]\nlisten = \"127.0.0.1:8100\"\n[store]\ndir = \"{}\"\n[collector]\nlisten = [\"udp://*:9555\"]\n\
         [manager]\n{COLLECTORS}drain = \"200ms\"\ncalm = \"100ms\"\nstate = \"{}\"\nca = {:?}\n\
         drill_downs = {{ at_once = 1 }}\n\
         {}{}{}{}",
        files.join("store").display(),
        files.join("manager.sqlite").display(),
        tls::file("ca.pem"),
        device(0),
        device(1),
        device(2),
        if links { LINKS } else { "" }
    )
}

const COLLECTORS: &str = "collectors = [{ address = \"127.0.0.9:9555\" }]\n";

const LINKS: &str = "[[inventory.links]]\nbetween = [\"s1:2\", \"s2:1\"]\n\
                     [[inventory.links]]\nbetween = [\"s2:2\", \"s3:1\"]\n";

impl Fabric {
    /// `None`, reported as skipped: not possible on this machine.
    fn start() -> Option<Self> {
        Self::start_with(true, "", "")
    }

    /// `links_in_file`: those between the switches. `first`: more of the first switch's file. `more`: more of the `[manager]` section.
    fn start_with(links_in_file: bool, first: &str, more: &str) -> Option<Self> {
        let (fabric, hosts) = match links() {
            Ok(links) => links,
            Err(error) => {
                support::skipped(&format!("a managed fabric on real interfaces: {error}"));
                return None;
            }
        };
        let files = TempDir::new();
        let socket = |host: &Namespace, address: &str| {
            let socket = host.run(|| UdpSocket::bind(address)).unwrap().unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            socket
        };
        let (sender, receiver) = (
            socket(&hosts[0], "10.0.1.5:4000"),
            socket(&hosts[1], "10.0.2.6:5000"),
        );
        let start = |name: &str, text: &str| {
            Program::start_in(
                Some(fabric.name()),
                &files.join("."),
                &format!("{name}.toml"),
                text,
            )
        };
        let text = |index: usize| format!("{}{}", switch(index), if index == 0 { first } else { "" });
        let switches = NAMES
            .iter()
            .enumerate()
            .map(|(index, name)| start(name, &text(index)))
            .collect();
        let mut text = manager(&files, links_in_file);
        if more.contains("collectors =") {
            text = text.replace(COLLECTORS, "");
        }
        let text = text.replace("[manager]\n", &format!("[manager]\n{more}"));
        let manager = start("manager", &text);
        Some(Self {
            sender,
            receiver,
            manager,
            switches,
            files,
            fabric,
            _hosts: hosts,
        })
    }

    /// A number in the first rule of a kind that a switch has, while packets flow.
    fn first_rule(&self, switch: usize, kind: &str, field: &str) -> Option<u64> {
        self.deliver();
        let view = self.switches[switch].get("/api/v1/switch/rules");
        let mut rules = view["rules"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|rule| rule["kind"] == kind);
        rules.next().and_then(|rule| rule[field].as_u64())
    }

    /// Sends packets until one arrives; every packet that arrives is as it was sent.
    fn deliver(&self) {
        let to: SocketAddr = "10.0.2.6:5000".parse().unwrap();
        let (begun, payload) = (Instant::now(), [7; 100]);
        loop {
            // Until the first packet has resolved an address, the stack may refuse.
            let _ = self.sender.send_to(&payload, to);
            let mut buffer = [0; 2000];
            if let Ok(len) = self.receiver.recv(&mut buffer) {
                assert_eq!(buffer[..len], payload, "INT reached a host");
                return;
            }
            assert!(
                begun.elapsed() < TIMEOUT,
                "no packet arrives: {:#}",
                self.manager.get("/api/v1/devices")
            );
            crate::support::pause();
        }
    }

    fn wait_for_devices(&self, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        let all = |view: &Value| view["devices"].as_array().unwrap().iter().all(&done);
        self.manager.wait("/api/v1/devices", what, all)
    }

    /// The state of the intent while packets flow.
    fn wait_for_intent(&self, state: &str) -> Value {
        self.manager.wait("/api/v1/intents/web", state, |view| {
            self.deliver();
            view["state"] == state
        })
    }

    fn reports(&self) -> u64 {
        let flows = self.manager.get("/api/v1/flows");
        flows["flows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|flow| flow["reports"].as_u64().unwrap())
            .sum()
    }

    /// Kills each switch that keeps or loses its rules, and the manager; all of them come back by themselves.
    fn restart_everything(&mut self) {
        // A switch that lost its rules forwards nothing until the manager has filled it again.
        for index in [1, 0] {
            self.switches[index].kill();
            self.wait_for_devices("lost", |device| {
                device["name"] != NAMES[index] || device["state"] != "in_sync"
            });
            let name = format!("{}.toml", NAMES[index]);
            self.switches[index] = Program::start_in(
                Some(self.fabric.name()),
                &self.files.join("."),
                &name,
                &switch(index),
            );
            self.wait_for_devices("in sync again", in_sync);
            self.wait_for_intent("complete");
        }

        // A restart of the manager changes nothing on the switches, and it knows its intents.
        let rules = self.switches[1].get("/api/v1/switch/rules")["rules"].clone();
        self.manager.kill();
        self.manager = Program::start_in(
            Some(self.fabric.name()),
            &self.files.join("."),
            "manager.toml",
            &manager(&self.files, true),
        );
        self.wait_for_devices("in sync with another manager", in_sync);
        assert_eq!(self.switches[1].get("/api/v1/switch/rules")["rules"], rules);
        self.wait_for_intent("complete");
    }

    /// Stopped, nothing of INT is left; started, it is back.
    fn stop_and_start(&self) {
        assert_eq!(self.manager.ask("POST", "/api/v1/domain/stop", "").0, 200);
        self.wait_for_devices("without INT", only_forwards);
        let reports = self.reports();
        self.deliver();
        assert_eq!(self.manager.get("/api/v1/intents/web")["state"], "stopped");
        assert_eq!(self.reports(), reports);
        assert_eq!(self.manager.ask("POST", "/api/v1/domain/start", "").0, 200);
        self.wait_for_intent("complete");
    }

    /// Every response of the manager's API is what the OpenAPI document says.
    fn check_schemas(&self) {
        let document = self.manager.get("/api/v1/openapi.json");
        for (path, name) in [
            ("intents", "Intents"),
            ("intents/web", "Intent"),
            ("devices", "Devices"),
            ("devices/s2", "Device"),
            ("plan", "Plan"),
            ("domain", "Domain"),
            ("domain/history", "ManagerHistory"),
        ] {
            let view = self.manager.get(&format!("/api/v1/{path}"));
            schema::check(
                &document,
                &json!({"$ref": format!("#/components/schemas/{name}")}),
                &view,
                path,
            );
        }
        let view = self.switches[0].get("/api/v1/switch/int");
        schema::check(
            &document,
            &json!({"$ref": "#/components/schemas/SwitchCounters"}),
            &view,
            "int",
        );
        let view = self.switches[0].get("/api/v1/switch/rules");
        schema::check(
            &document,
            &json!({"$ref": "#/components/schemas/SwitchRules"}),
            &view,
            "rules",
        );
    }
}

fn in_sync(device: &Value) -> bool {
    device["state"] == "in_sync"
}

fn only_forwards(device: &Value) -> bool {
    device["rules"] == json!(["forwarding"])
}

#[test]
fn an_intent_becomes_reports_and_a_killed_switch_is_filled_again() {
    let Some(mut fabric) = Fabric::start() else { return };
    fabric.wait_for_devices("in sync", in_sync);
    // The switches have only what allows them to forward.
    fabric.deliver();

    let intent = json!({"name": "web", "match": {"dst": "10.0.2.0/24", "dport": 5000, "proto": "udp"},
                        "watch": ["flow_path", "hop_latency"], "mode": "md"});
    let body = intent.to_string();
    let (status, plan) = fabric.manager.ask("POST", "/api/v1/intents/plan", &body);
    assert_eq!(
        (status, plan["devices"].as_array().unwrap().len()),
        (200, 3),
        "{plan:#}"
    );
    assert_eq!(plan["cost"]["bytes"], json!([24, 32]));
    let begun = Instant::now();
    let (status, added) = fabric.manager.ask("PUT", "/api/v1/intents", &body);
    assert_eq!(status, 200, "{added:#}");
    let view = fabric.wait_for_intent("complete");
    eprintln!("verified {} ms after it was added", begun.elapsed().as_millis());
    assert_eq!((&view["flows"], &view["origin"]), (&json!(1), &json!("api")));
    fabric.check_schemas();
    let path = fabric.manager.get("/api/v1/flows")["flows"][0]["path"].clone();
    assert_eq!(path, json!([11, 12, 13]));
    // Only the edges have roles.
    let ports = fabric.manager.get("/api/v1/devices/s1")["ports"].clone();
    let roles: Vec<_> = ports
        .as_array()
        .unwrap()
        .iter()
        .map(|port| (&port["role"], &port["source"], &port["sink"]))
        .collect();
    let (edge, link) = (json!("edge"), json!("fabric"));
    assert_eq!(
        roles,
        [
            (&edge, &json!(true), &json!(true)),
            (&link, &json!(false), &json!(false))
        ]
    );

    fabric.restart_everything();
    fabric.stop_and_start();
    assert_eq!(fabric.manager.ask("DELETE", "/api/v1/intents/web", "").0, 200);
    fabric.wait_for_devices("without the intent", only_forwards);
    fabric.deliver();

    let history = fabric.manager.get("/api/v1/domain/history?subject=web");
    let actions: Vec<_> = history["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["action"].as_str().unwrap())
        .collect();
    assert_eq!(actions, ["remove", "add"]);
    for switch in &fabric.switches {
        assert_eq!(switch.get("/api/v1/switch")["totals"]["balanced"], true);
    }
}

/// A sink that does its work, and whose reports do not arrive, is named.
#[test]
fn a_sink_that_is_silently_broken_is_named() {
    let Some(fabric) = Fabric::start() else { return };
    fabric.wait_for_devices("in sync", in_sync);
    let intent = json!({"name": "web", "match": {"dport": 5000}, "watch": ["hop_latency"], "mode": "md"});
    assert_eq!(
        fabric
            .manager
            .ask("PUT", "/api/v1/intents", &intent.to_string())
            .0,
        200
    );
    fabric.wait_for_intent("complete");
    fabric
        .fabric
        .ip(&["route", "add", "blackhole", "127.0.0.9", "table", "local"])
        .unwrap();
    let begun = Instant::now();
    // The sink that sends no report, and the source whose packets they are about.
    let view = fabric.manager.wait("/api/v1/intents/web", "both named", |view| {
        fabric.deliver();
        let text = view["text"].as_str().unwrap();
        view["state"] == "silent" && text.contains("s3 had ") && text.contains("s1 installed it ")
    });
    eprintln!("named after {} ms", begun.elapsed().as_millis());
    let text = view["text"].as_str().unwrap();
    assert!(
        text.starts_with("s3 had ") && text.contains("has sent no report of them"),
        "{text}"
    );
    assert!(
        text.ends_with("(loss budget: 0 lost in the network; no report of any device arrives)"),
        "{text}"
    );
    let matched = |switch: usize| fabric.switches[switch].get("/api/v1/switch/int")["matched"].clone();
    assert!(
        matched(0)[0]["packets"].as_u64().unwrap() > 10,
        "{:#}",
        matched(0)
    );
    assert_eq!(
        (&matched(0)[0]["flows"], matched(2)),
        (&json!({"dport": [5000, 5000]}), json!([]))
    );
    let devices = fabric.manager.get("/api/v1/devices");
    let silent: Vec<_> = devices["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|device| device["silence"].is_string())
        .collect();
    assert_eq!(silent, [false, false, true]);
    fabric
        .fabric
        .ip(&["route", "del", "blackhole", "127.0.0.9", "table", "local"])
        .unwrap();
    fabric.wait_for_intent("complete");
}

/// A changed inventory needs no restart: a device that leaves is emptied, and one that comes is driven.
#[test]
fn a_reload_takes_devices_away_and_adds_them() {
    let Some(fabric) = Fabric::start() else { return };
    fabric.wait_for_devices("in sync", in_sync);
    let intent = json!({"name": "web", "match": {"dport": 5000}, "watch": ["hop_latency"], "mode": "md"});
    assert_eq!(
        fabric
            .manager
            .ask("PUT", "/api/v1/intents", &intent.to_string())
            .0,
        200
    );
    fabric.wait_for_intent("complete");
    let text = manager(&fabric.files, true);
    let (before, after) = text.split_once("[[inventory.devices]]\nname = \"s3\"").unwrap();
    let links = "[[inventory.links]]\nbetween = [\"s1:2\", \"s2:1\"]\n";
    let reload = |text: &str| {
        std::fs::write(&fabric.manager.config, text).unwrap();
        fabric.manager.ask("POST", "/api/v1/config/reload", "")
    };
    // A wrong file changes nothing, and the line is named.
    let (status, answer) = reload(&format!(
        "{text}[[inventory.links]]\nbetween = [\"s9:1\", \"s1:2\"]\n"
    ));
    assert!(
        status == 400 && answer.to_string().contains("s9"),
        "{status} {answer}"
    );
    let rules = |index: usize| fabric.switches[index].get("/api/v1/switch/rules")["rules"].clone();
    let kinds = |index: usize, kind: &str| {
        rules(index)
            .as_array()
            .unwrap()
            .iter()
            .filter(|rule| rule["kind"] == kind)
            .count()
    };
    assert!(kinds(2, "watch") > 0);
    let without = format!("{before}{links}");
    assert_eq!(reload(&without).0, 200);
    let two = |view: &Value| view["devices"].as_array().unwrap().len() == 2;
    fabric.manager.wait("/api/v1/devices", "s3 is emptied", two);
    // It removes INT for as long as somebody may send it, and measures nothing.
    assert_eq!(
        (kinds(2, "watch"), kinds(2, "source"), kinds(2, "sink")),
        (0, 0, 2),
        "{:#}",
        rules(2)
    );
    fabric.deliver();
    assert_eq!(
        reload(&format!("{before}[[inventory.devices]]\nname = \"s3\"{after}")).0,
        200
    );
    fabric.wait_for_devices("in sync with s3", in_sync);
    fabric.manager.wait("/api/v1/devices", "all", |view| {
        view["devices"].as_array().unwrap().len() == 3
    });
    fabric.wait_for_intent("complete");
    let history = fabric.manager.get("/api/v1/domain/history?subject=s3");
    let entries = history["history"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["action"] == "device");
    let texts: Vec<&str> = entries.map(|entry| entry["text"].as_str().unwrap()).collect();
    assert_eq!(
        texts,
        [
            "is in the inventory now",
            "is no longer driven: it no longer measures, and keeps its sinks",
            "is no longer in the inventory"
        ]
    );
}

/// Every packet by DTA, keyed so that each of several collectors gets some.
const DTA: &str = "[switch.dta]\ncontrol = \"127.0.0.1:40044\"\n[[switch.dta.report]]\non = \"packet\"\nproto = \"udp\"\n\
                   operation = \"key-write\"\nstore = 1\nkey = [\"packet_id\"]\ndata = [\"switch\"]\n";

#[test]
fn a_map_of_dta_collectors_is_handed_out_and_grows() {
    let directory = TempDir::new();
    let map = directory.join("map.json");
    let write = |arguments: &[&str]| {
        let made = support::hopwise(arguments);
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        std::fs::write(&map, made.stdout).unwrap();
    };
    write(&["map", "new", "a=http://127.0.0.1:1,127.0.0.1:40040"]);
    let more = format!("dta_map = {map:?}\n");
    let Some(fabric) = Fabric::start_with(true, DTA, &more) else {
        return;
    };
    let collector = |port: u16| {
        let socket = fabric
            .fabric
            .run(|| UdpSocket::bind(("127.0.0.1", port)))
            .unwrap()
            .unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        socket
    };
    let collectors = [40040, 40041].map(collector);
    let wait_for_report = |number: usize| {
        let begun = Instant::now();
        while collectors[number].recv(&mut [0; 2000]).is_err() {
            assert!(
                begun.elapsed() < TIMEOUT,
                "no report: {:#}",
                fabric.switches[0].get("/api/v1/switch")["dta"]
            );
            fabric.deliver();
        }
    };
    fabric.wait_for_devices("in sync", in_sync);
    let given = |switch: usize| {
        let dta = fabric.switches[switch].get("/api/v1/switch")["dta"].clone();
        (dta["map"].clone(), dta["collectors"].as_array().map(Vec::len))
    };
    let has = |names: &[&str]| {
        let view = |view: &Value| view["dta_collectors"] == json!(names);
        fabric.manager.wait("/api/v1/domain", "the map", view);
        fabric.switches[0].wait("/api/v1/switch", "the map", |view| {
            view["dta"]["map"] == json!(names)
        });
    };
    has(&["a"]);
    assert_eq!(
        (given(0), given(1)),
        ((json!(["a"]), Some(1)), (Value::Null, None))
    );
    wait_for_report(0);

    write(&[
        "map",
        "grow",
        support::text(&map),
        "b=http://127.0.0.1:1,127.0.0.1:40041",
    ]);
    assert_eq!(fabric.manager.ask("POST", "/api/v1/config/reload", "").0, 200);
    has(&["a", "b"]);
    wait_for_report(1);

    // A file that is no map changes nothing.
    std::fs::write(&map, "{}").unwrap();
    let (status, answer) = fabric.manager.ask("POST", "/api/v1/config/reload", "");
    assert!(
        status == 400 && answer.to_string().contains("is no map of collectors"),
        "{status} {answer}"
    );
    assert_eq!(given(0), (json!(["a", "b"]), Some(2)));
}

/// The rules of intents for the same flow, and for others, are evaluated by themselves, and come and go with their intents.
#[test]
fn the_rule_of_an_intent_is_evaluated_for_its_flows() {
    let Some(fabric) = Fabric::start() else { return };
    fabric.wait_for_devices("in sync", in_sync);
    let put = |name: &str, port: u16, rule: &str| {
        let intent = json!({"name": name, "match": {"dport": port}, "watch": ["hop_latency"], "mode": "md",
                            "report": {"rule": rule, "thresholds": {"hop_latency": "1s"}}});
        assert_eq!(
            fabric
                .manager
                .ask("PUT", "/api/v1/intents", &intent.to_string())
                .0,
            200
        );
    };
    put("web", 5000, "max(hop_latency) > 0");
    put("long", 5000, "hops > 9");
    put("other", 5001, "hops > 0");
    let rules = |kind: &str| {
        let view = fabric.manager.get(&format!("/api/v1/events?kind={kind}"));
        let events = view["events"].as_array().unwrap().iter();
        events
            .map(|event| event["rule"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let begun = Instant::now();
    while rules("rule_on").is_empty() {
        fabric.deliver();
        assert!(
            begun.elapsed() < TIMEOUT,
            "{:#}",
            fabric.manager.get("/api/v1/intents")
        );
        crate::support::pause();
    }
    // One that comes does not end the others, nor make them events again.
    put("short", 5000, "hops < 9");
    while rules("rule_on").len() < 2 {
        fabric.deliver();
        assert!(
            begun.elapsed() < TIMEOUT,
            "{:#}",
            fabric.manager.get("/api/v1/intents")
        );
        crate::support::pause();
    }
    assert_eq!(
        (rules("rule_on"), rules("rule_off")),
        (vec!["short".to_owned(), "web".to_owned()], vec![])
    );
    let flow = fabric.manager.get("/api/v1/flows")["flows"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let flow = fabric.manager.get(&format!("/api/v1/flows/{flow}"));
    assert_eq!(flow["intents"], json!(["long", "short", "web"]));
    // The thresholds are those of the intents: no change is as large.
    assert_eq!(
        fabric
            .manager
            .get("/api/v1/events?kind=change&metric=hop_latency")["events"],
        json!([])
    );
}

/// A rule that becomes true leads to more detail of its flow for a while, within the limits.
#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, from start to end")]
fn a_rule_that_becomes_true_is_followed_by_more_detail() {
    let Some(fabric) = Fabric::start() else { return };
    fabric.wait_for_devices("in sync", in_sync);
    let intent = json!({"name": "web", "match": {"dport": "5000-5001"}, "watch": ["flow_path", "hop_latency"], "mode": "md",
                        "report": {"rule": "max(hop_latency) > 0",
                                 "then": {"watch": ["queue_occupancy"], "match": "this flow", "for": "4s"}}});
    assert_eq!(
        fabric
            .manager
            .ask("PUT", "/api/v1/intents", &intent.to_string())
            .0,
        200
    );
    let child = || {
        fabric.manager.get("/api/v1/intents")["intents"]
            .as_array()
            .unwrap()
            .get(1)
            .cloned()
    };
    let begun = Instant::now();
    let view = loop {
        fabric.deliver();
        if let Some(child) = child() {
            break child;
        }
        assert!(
            begun.elapsed() < TIMEOUT,
            "{:#}",
            fabric.manager.get("/api/v1/intents")
        );
    };
    eprintln!("followed after {} ms", begun.elapsed().as_millis());
    assert_eq!(
        (&view["name"], &view["origin"], &view["parent"]),
        (&json!("web.drill-1"), &json!("drill_down"), &json!("web"))
    );
    // Only where the flow enters.
    let flow = json!({"src": ["10.0.1.5/32"], "dst": ["10.0.2.6/32"], "sport": ["4000"], "dport": ["5000"], "proto": [17]});
    assert_eq!(
        (&view["intent"]["match"], &view["intent"]["at"]),
        (&flow, &json!({"edges": ["s1"]}))
    );
    fabric.check_schemas();
    let (status, answer) = fabric.manager.ask(
        "PUT",
        "/api/v1/intents",
        &json!({"name": "web.drill-1", "watch": ["hop_latency"]}).to_string(),
    );
    assert!(
        status == 409 && answer["error"].as_str().unwrap().contains("drill-down of `web`"),
        "{answer}"
    );

    // The queues of this flow are measured, and the limit holds for another one.
    let id = fabric.manager.get("/api/v1/flows")["flows"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let texts = || -> Vec<String> {
        let view = fabric.manager.get("/api/v1/domain/history?subject=web");
        let entries = view["history"].as_array().unwrap().iter().rev();
        let texts = entries
            .filter(|entry| entry["action"] != "add")
            .map(|entry| entry["text"].clone());
        texts.map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let (mut measured, mut denied) = (false, false);
    while !(measured && denied) {
        fabric.deliver();
        let _ = fabric.sender.send_to(&[7; 100], "10.0.2.6:5001");
        let flow = fabric.manager.get(&format!("/api/v1/flows/{id}"));
        measured |= flow["hops"]
            .as_array()
            .unwrap()
            .iter()
            .any(|hop| !hop["queue_occupancy"].is_null());
        denied |= texts()
            .iter()
            .any(|text| text.contains("too many drill-downs are active"));
        assert!(
            begun.elapsed() < TIMEOUT,
            "{measured} {denied} {:#}",
            fabric.manager.get("/api/v1/intents")
        );
        crate::support::pause();
    }
    // It ends by itself, and leaves nothing.
    while child().is_some() {
        fabric.deliver();
        assert!(
            begun.elapsed() < TIMEOUT,
            "{:#}",
            fabric.manager.get("/api/v1/intents")
        );
        crate::support::pause();
    }
    fabric.wait_for_devices("in sync without it", |device| {
        let rules = device["rules"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str);
        in_sync(device) && !rules.clone().any(|rule| rule.contains("queue"))
    });
    let texts = texts();
    assert_eq!(
        texts[0],
        "web.drill-1 watches queue_occupancy for 4 s: the rule became true for from 10.0.1.5/32, to 10.0.2.6/32, UDP, source port 4000, port 5000"
    );
    assert!(
        texts.iter().any(|text| text == "web.drill-1 has ended"),
        "{texts:#?}"
    );
}

/// The manager on standby has the intents that were added at the one that acts, and keeps them in force when that one fails. One that
/// returns has what was decided without it.
#[test]
fn a_manager_on_standby_keeps_intents_that_were_added_while_running() {
    let Some(mut fabric) = Fabric::start() else { return };
    fabric.wait_for_devices("in sync", in_sync);
    let other = TempDir::new();
    let on_standby = |files: &TempDir, peer: &str| {
        let keys = format!("[manager]\nstandby = true\nlease = \"3s\"\npeer = \"{peer}\"\n");
        manager(files, true).replace("[manager]\n", &keys)
    };
    let text = on_standby(&other, "127.0.0.1:8100")
        .replace("\"127.0.0.1:8100\"\n[store]", "\"127.0.0.1:8109\"\n[store]")
        .replace("udp://*:9555", "udp://*:9556");
    let start = |name: &str, text: &str| {
        Program::start_in(Some(fabric.fabric.name()), &fabric.files.join("."), name, text)
    };
    let second = start("second.toml", &text);
    let web = |name: &str, port: u16| {
        json!({"name": name, "match": {"dport": port}, "watch": ["hop_latency"], "mode": "md"}).to_string()
    };
    for (name, port) in [("web", 5000), ("dns", 53)] {
        assert_eq!(
            fabric.manager.ask("PUT", "/api/v1/intents", &web(name, port)).0,
            200
        );
    }
    second.wait("/api/v1/intents", "both", |view| names(view) == ["dns", "web"]);
    assert_eq!(fabric.manager.ask("DELETE", "/api/v1/intents/dns", "").0, 200);
    let view = second.wait("/api/v1/intents", "one", |view| names(view) == ["web"]);
    let original = fabric.manager.get("/api/v1/intents/web");
    for key in ["added", "by", "origin", "intent", "etag"] {
        assert_eq!(view["intents"][0][key], original[key], "{key}");
    }
    let domain = second.get("/api/v1/domain");
    assert_eq!(
        (&domain["acting"], &domain["copy"]),
        (&json!(false), &json!("has the intents of 127.0.0.1:8100"))
    );
    let (status, refusal) = second.ask("PUT", "/api/v1/intents", &web("late", 80));
    assert!(
        status == 409 && refusal["error"].as_str().unwrap().contains("(127.0.0.1:8100)"),
        "{refusal}"
    );

    fabric.wait_for_devices("in sync with it", in_sync);
    let rules = fabric.switches[0].get("/api/v1/switch/rules")["rules"].clone();
    assert!(
        rules
            .as_array()
            .unwrap()
            .iter()
            .any(|rule| rule["kind"] == "watch"),
        "{rules:#}"
    );
    fabric.manager.kill();
    second.wait("/api/v1/domain", "the peer is lost", |view| {
        let text = view["copy"].as_str().unwrap_or_default();
        view["acting"] == true || text.contains("cannot copy the intents of 127.0.0.1:8100: ")
    });
    second.wait("/api/v1/domain", "it acts", |view| view["acting"] == true);
    second.wait("/api/v1/devices", "in sync", |view| {
        view["devices"].as_array().unwrap().iter().all(in_sync)
    });
    assert_eq!(fabric.switches[0].get("/api/v1/switch/rules")["rules"], rules);

    // What was removed while the first one was away does not return with it.
    assert_eq!(second.ask("DELETE", "/api/v1/intents/web", "").0, 200);
    assert_eq!(second.ask("PUT", "/api/v1/intents", &web("new", 80)).0, 200);
    let first = start("manager.toml", &on_standby(&fabric.files, "127.0.0.1:8109"));
    first.wait("/api/v1/intents", "only the new one", |view| {
        names(view) == ["new"]
    });
    assert_eq!(
        (
            first.get("/api/v1/domain")["acting"].clone(),
            names(&second.get("/api/v1/intents"))
        ),
        (json!(false), vec!["new".to_owned()])
    );
    check_copy(&second);
}

fn names(view: &Value) -> Vec<String> {
    let names = view["intents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|intent| intent["name"].clone());
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// What a manager on standby reads is what the OpenAPI document says.
fn check_copy(manager: &Program) {
    let document = manager.get("/api/v1/openapi.json");
    let view = manager.get("/api/v1/domain/intents");
    schema::check(
        &document,
        &json!({"$ref": "#/components/schemas/ManagerCopy"}),
        &view,
        "copy",
    );
    assert_eq!(
        (&view["acting"], names(&view)),
        (&json!(true), vec!["new".to_owned()])
    );
}

/// Without links in the file, the switches find each other by LLDP, and INT passes where both ends hear each other.
#[test]
fn links_are_found_by_lldp() {
    let Some(mut fabric) = Fabric::start_with(false, "", "") else {
        return;
    };
    let links = json!([[11, 2, 12, 1], [12, 2, 13, 1]]);
    let begun = Instant::now();
    fabric
        .manager
        .wait("/api/v1/domain", "both links", |view| view["links"] == links);
    eprintln!("links after {} ms", begun.elapsed().as_millis());
    let neighbour = json!({"system": "s1", "port": "s1p2", "chassis": "02:68:00:00:0b:00", "description": "port 2",
                           "ttl": 121, "several": false});
    let rules = fabric.switches[1].get("/api/v1/switch/rules");
    assert_eq!(rules["ports"][0]["neighbour"], neighbour);
    let ports = fabric.manager.get("/api/v1/devices/s1")["ports"].clone();
    assert_eq!(ports[0]["neighbour"], Value::Null);
    assert_eq!(
        ports[1]["neighbour"],
        json!({"system": "s2", "port": "s2p1", "note": null})
    );
    assert_eq!(
        (&ports[1]["role"], &ports[1]["peer"]),
        (&json!("fabric"), &json!("s2:1"))
    );

    fabric.wait_for_devices("in sync", in_sync);
    let intent =
        json!({"name": "web", "match": {"dport": 5000}, "watch": ["flow_path", "hop_latency"], "mode": "md"});
    assert_eq!(
        fabric
            .manager
            .ask("PUT", "/api/v1/intents", &intent.to_string())
            .0,
        200
    );
    fabric.wait_for_intent("complete");
    assert_eq!(
        fabric.manager.get("/api/v1/flows")["flows"][0]["path"],
        json!([11, 12, 13])
    );
    fabric.check_schemas();

    // A switch that ends says so: its neighbours close their ports to it, and its place in the history is kept.
    fabric.switches[2].stop();
    let gone = json!([[11, 2, 12, 1]]);
    fabric
        .manager
        .wait("/api/v1/domain", "one link", |view| view["links"] == gone);
    fabric.switches[2] = Program::start_in(
        Some(fabric.fabric.name()),
        &fabric.files.join("."),
        "s3.toml",
        &switch(2),
    );
    fabric.manager.wait("/api/v1/domain", "both links again", |view| {
        view["links"] == links
    });
    fabric.wait_for_devices("in sync again", in_sync);
    fabric.wait_for_intent("complete");
    let history = fabric.manager.get("/api/v1/domain/history?subject=s2:2");
    let texts: Vec<_> = history["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["text"].as_str().unwrap())
        .collect();
    assert_eq!(
        texts,
        ["leads to s3:1", "no longer leads to s3:1", "leads to s3:1"]
    );
    for switch in &fabric.switches {
        let totals = switch.get("/api/v1/switch")["totals"].clone();
        assert_eq!(totals["balanced"], true, "{totals:#}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_in_one_sentence() {
    let Some(fabric) = Fabric::start() else { return };
    fabric.wait_for_devices("in sync", |device| device["state"] == "in_sync");
    let error = |method: &str, path: &str, body: Value| {
        let (status, answer) = fabric.manager.ask(method, path, &body.to_string());
        (status, answer["error"].as_str().unwrap_or_default().to_owned())
    };
    let intents = [
        (json!([]), "write a table as in [[intents]]"),
        (json!({"name": "a"}), "no metrics selected"),
        (json!({"name": "a", "watch": ["speed"]}), "\"flow_path\""),
        (
            json!({"name": "a", "watch": ["hop_latency"], "match": {"dscp": 3}}),
            "DSCP",
        ),
        (
            json!({"name": "a", "watch": ["hop_latency"], "sample": "1 in 0"}),
            "sampl",
        ),
        (
            json!({"name": "a", "watch": ["hop_latency"], "at": {"edges": ["leaf*"]}}),
            "leaf*",
        ),
        (
            json!({"name": "a", "watch": ["hop_latency"], "until": "2020-01-01T00:00:00Z"}),
            "past",
        ),
        (
            json!({"name": "a", "watch": ["hop_latency"], "budget": "9 reports/s"}),
            "add a filter per_hop or per_flow",
        ),
        (
            json!({"name": "a", "watch": ["hop_latency"], "report": {"rule": "hops > 5ms"}}),
            "hops",
        ),
        (
            json!({"name": "a", "watch": ["hop_latency"], "match": {"dscp": 3}, "report": {"rule": "hops > 1"}}),
            "remove `dscp`, or `report`",
        ),
    ];
    for (body, reason) in intents {
        for (method, path) in [("PUT", "/api/v1/intents"), ("POST", "/api/v1/intents/plan")] {
            let (status, message) = error(method, path, body.clone());
            assert!(
                status == 400 && message.contains(reason),
                "{body}: {status} {message}"
            );
        }
    }
    assert_eq!(error("DELETE", "/api/v1/intents/a", Value::Null).0, 404);
    assert_eq!(fabric.manager.get("/api/v1/intents"), json!({"intents": []}));

    // A switch refuses whoever is not its manager, and what was computed from another version.
    let switch =
        |method: &str, path: &str, body: Value| fabric.switches[0].ask(method, path, &body.to_string());
    let rules = fabric.switches[0].get("/api/v1/switch/rules");
    assert_eq!(
        switch("POST", "/api/v1/switch/claim", json!({"term": 1, "epoch": 1})).0,
        409
    );
    assert_eq!(
        switch(
            "PATCH",
            "/api/v1/switch/rules",
            json!({"election": rules["election"], "changes": []})
        )
        .0,
        400
    );
    let (status, answer) = switch("PUT", "/api/v1/switch/watch", json!([{"dport": 80}]));
    assert!(
        status == 400 && answer["error"].as_str().unwrap().contains("add an intent"),
        "{answer}"
    );
    assert_eq!(fabric.switches[0].get("/api/v1/switch/rules"), rules);
    // Another manager with a higher election takes over one switch: this one goes on with the others. When it takes over most of them,
    // this one stops acting, and says so.
    let claim = json!({"term": rules["election"]["term"].as_u64().unwrap() + 1, "epoch": 1});
    assert_eq!(switch("POST", "/api/v1/switch/claim", claim.clone()).0, 200);
    fabric.manager.wait("/api/v1/devices", "one taken over", |view| {
        view["devices"][0]["text"]
            .as_str()
            .unwrap_or_default()
            .contains("another manager acts on it")
    });
    assert_eq!(fabric.manager.get("/api/v1/domain")["acting"], true);
    assert_eq!(
        fabric.switches[1]
            .ask("POST", "/api/v1/switch/claim", &claim.to_string())
            .0,
        200
    );
    fabric
        .manager
        .wait("/api/v1/domain", "superseded", |view| view["acting"] == false);
}
