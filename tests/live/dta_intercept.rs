//! The translator in the last switch before the collector: it intercepts the reports of a host behind another switch, and answers with
//! the collector's address. INT that the first switch inserted is reported and stripped; other traffic is forwarded.

use std::{
    net::{SocketAddr, UdpSocket},
    path::Path,
    process::Command,
};

use nic::netns::Namespace;
use serde_json::{Value, json};
use testkit::descriptors;
use wire::dta::{Control, Operation, control::Body};

use crate::support::roles::{
    self, FLOW, Program, Reporter, TIMEOUT, connected, escape, flow, memory as memory_at, path_of,
};
use crate::support::{TempDir, hex, skipped};

/// Addresses of the reporter and of the collector.
const HOSTS: [[&str; 2]; 2] = [["10.0.1.5", "fd00:0:0:1::5"], ["10.0.2.9", "fd00:0:0:2::9"]];
/// Where reporters send reports for the collector.
const REPORTS: [&str; 2] = ["10.0.2.9:40040", "[fd00:0:0:2::9]:40040"];

/// reporter – first switch – last switch – collector. The last switch's translator reaches the collector by another link.
struct Network {
    reporter: Namespace,
    switches: [Namespace; 2],
    collector: Namespace,
}

impl Network {
    fn new() -> Result<Self, nic::Error> {
        let network = Self {
            reporter: Namespace::create()?,
            switches: [Namespace::create()?, Namespace::create()?],
            collector: Namespace::create()?,
        };
        let link = |a: &Namespace, name: &str, b: &Namespace, other: &str, mtu: &str| {
            let peer = ["peer", "name", other, "mtu", mtu, "netns", b.name()];
            a.ip(&[&["link", "add", name, "mtu", mtu, "type", "veth"], &peer[..]].concat())?;
            a.ip(&["link", "set", name, "up"])?;
            b.ip(&["link", "set", other, "up"])
        };
        let [first, last] = &network.switches;
        link(&network.reporter, "eth0", first, "left", "1500")?;
        link(first, "right", last, "left", "2000")?;
        link(last, "right", &network.collector, "eth0", "1500")?;
        link(last, "manage", &network.collector, "eth1", "1500")?;
        last.ip(&["address", "add", "10.98.1.1/24", "dev", "manage"])?;
        network
            .collector
            .ip(&["address", "add", "10.98.1.2/24", "dev", "eth1"])?;
        for (host, [v4, v6]) in [&network.reporter, &network.collector].into_iter().zip(HOSTS) {
            host.ip(&["address", "add", &format!("{v4}/32"), "dev", "eth0"])?;
            host.ip(&[
                "-6",
                "address",
                "add",
                &format!("{v6}/128"),
                "dev",
                "eth0",
                "nodad",
            ])?;
            host.ip(&["route", "add", "169.254.1.1", "dev", "eth0"])?;
            host.ip(&["route", "add", "default", "via", "169.254.1.1"])?;
            host.ip(&["-6", "route", "add", "default", "via", "fe80::1", "dev", "eth0"])?;
        }
        Ok(network)
    }

    /// A socket of the reporter or, with `collector`, of that host's data address.
    fn socket(&self, collector: bool, at: &str) -> UdpSocket {
        let host = if collector {
            &self.collector
        } else {
            &self.reporter
        };
        let at: SocketAddr = at.parse().unwrap();
        let socket = descriptors::open_again(|| host.run(move || UdpSocket::bind(at)).unwrap());
        let socket = socket.unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket
    }

    fn reporter(&self, family: usize) -> Reporter {
        let from = [format!("{}:0", HOSTS[0][0]), format!("[{}]:0", HOSTS[0][1])];
        Reporter {
            socket: self.socket(false, &from[family]),
            to: REPORTS[family].parse().unwrap(),
            sequence: 0,
        }
    }

    /// A switch, whose port 1 is to the left. Both watch all flows.
    fn start(&self, number: usize, at: &Path, extra: &str) -> Program {
        let node = number + 11;
        let settings = format!(
            "api.listen = \"127.0.0.1:0\"\n[switch]\nnode = {node}\nreports = \"127.0.0.1:32766\"\n\
             [[switch.ports]]\nnumber = 1\ninterface = \"left\"\nedge = {}\n\
             [[switch.ports]]\nnumber = 2\ninterface = \"right\"\nedge = {}\n\
             [[switch.routes]]\nto = \"10.0.1.0/24\"\nport = 1\n[[switch.routes]]\nto = \"fd00:0:0:1::/64\"\nport = 1\n\
             [[switch.routes]]\nto = \"10.0.2.0/24\"\nport = 2\n[[switch.routes]]\nto = \"fd00:0:0:2::/64\"\nport = 2\n\
             [[switch.watch]]\nmode = \"md\"\n{extra}",
            number == 0,
            number == 1
        );
        Program::start_in(
            Some(self.switches[number].name()),
            at,
            &format!("s{node}.toml"),
            &settings,
        )
    }
}

/// The switch's view when `done` accepts its totals.
fn totals(switch: &Program, what: &str, done: impl Fn(&Value) -> bool) -> Value {
    switch.wait("/api/v1/switch", what, |view| done(&view["totals"]))
}

#[test]
fn the_last_switch_intercepts_reports_and_answers_in_the_collectors_name() {
    let network = match Network::new() {
        Ok(network) => network,
        Err(error) => return skipped(&format!("interception of DTA reports: this needs root ({error})")),
    };
    let directory = TempDir::new();
    let at = directory.join("");
    let settings = memory_at(&at, "memory", "10.98.1.2", "") + roles::STORES;
    let keeper = Program::start_in(Some(network.collector.name()), &at, "c.toml", &settings);
    let translator = format!(
        "[translator]\nlisten = \"127.0.0.1:0\"\nallow = [\"10.0.1.5\", \"fd00:0:0:1::/64\"]\n\
         [[translator.collectors]]\nexchange = \"{}\"\nintercept = [\"{}\", \"{}\"]\n",
        keeper.memory.unwrap().1,
        REPORTS[0],
        REPORTS[1]
    );
    let first = network.start(0, &at, "");
    let last = network.start(1, &at, &translator);
    last.translator("connected", |dta| connected(dta, 0));

    values_and_entries(&network, &keeper, &last);
    other_traffic_is_forwarded(&network);
    fragments_and_others_are_counted(&network, &last);

    let view = totals(&last, "settled", |totals| totals["queued"] == 0);
    let dta = last.get("/api/v1/translator");
    let totals = &view["totals"];
    assert_eq!(
        (&totals["balanced"], &dta["balanced"]),
        (&json!(true), &json!(true)),
        "{view:#}"
    );
    assert_eq!(
        totals["intercepted"], dta["intercepted"]["reports"],
        "{view:#} {dta:#}"
    );
    assert_eq!(
        totals["replies"], dta["intercepted"]["replies"],
        "{view:#} {dta:#}"
    );
    assert_eq!(
        (&totals["replies_refused"], &dta["intercepted"]["replies_dropped"]),
        (&json!(0), &json!(0))
    );
    // Each intercepted report carried INT, which became a report of its path.
    assert!(
        view["int"]["reported"].as_u64() >= totals["intercepted"].as_u64(),
        "{view:#}"
    );
    assert_eq!(view["int"]["refused"], 0, "{view:#}");
    assert_eq!(first.get("/api/v1/switch")["totals"]["intercepted"], 0);
    let (_, metrics) = last.ask("GET", "/metrics", "");
    let sample = format!("hopwise_switch_intercepted_total {}", totals["intercepted"]);
    assert!(metrics.as_str().unwrap().contains(&sample), "{sample}");
}

/// Values over both families, and essential entries of which one is lost on the way.
fn values_and_entries(network: &Network, keeper: &Program, last: &Program) {
    let mut reporters = [0, 1].map(|family| network.reporter(family));
    let keys = [
        flow(),
        hex("20010db8000000000000000000000001 20010db8000000000000000000000002 0001 0002 11"),
    ];
    for (reporter, (key, first)) in reporters.iter_mut().zip(keys.iter().zip([11, 41])) {
        reporter.key_write(key, &path_of(first));
    }
    let six = "[2001:db8::1]:1 > [2001:db8::2]:2 udp";
    for (key, value) in [
        (FLOW, json!([11, 12, 13, 14, 15])),
        (six, json!([41, 42, 43, 44, 45])),
    ] {
        let path = format!("/api/v1/dta/stores/paths/get?key={}", escape(key));
        let answer = keeper.wait(&path, "written", |answer| answer["answer"] == "found");
        assert_eq!(answer["fields"]["value"], value, "{answer}");
    }
    let control = network.socket(false, "10.0.1.5:40044");
    let entry = |reporter: &mut Reporter, sequence: u16| {
        let entries = u32::from(sequence).to_be_bytes();
        reporter.sequence = sequence - 1;
        reporter.send(
            true,
            false,
            Operation::Append {
                list: 10,
                entry_len: 4,
                entries: &entries,
            },
        );
    };
    // The second is lost. The translator requests the reports after the first, from the collector's address.
    let reporter = &mut reporters[0];
    entry(reporter, 1);
    entry(reporter, 3);
    let mut buffer = [0; 128];
    let (len, from) = control.recv_from(&mut buffer).unwrap();
    assert_eq!(from, reporter.to);
    let nack = Control::parse(&buffer[..len]).unwrap();
    assert_eq!(nack.reporter, 7);
    assert!(
        matches!(
            nack.body,
            Body::Nack {
                last: 1,
                trigger: 3,
                ..
            }
        ),
        "{nack:?}"
    );
    entry(reporter, 2);
    entry(reporter, 3);
    let dta = last.translator("in sequence", |dta| dta["completed"]["append"] == 3);
    assert_eq!(
        (&dta["messages"]["nack_gap"], &dta["unreadable"]),
        (&json!(1), &json!({})),
        "{dta:#}"
    );
    let list = keeper.wait("/api/v1/dta/lists/10", "three entries", |list| {
        list["entries"].as_array().unwrap().len() >= 3
    });
    let data: Vec<_> = list["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["data"])
        .collect();
    assert_eq!(data, ["00000001", "00000002", "00000003"], "{list}");
}

fn other_traffic_is_forwarded(network: &Network) {
    let (mut buffer, sender) = ([0; 2048], network.socket(false, "10.0.1.5:5555"));
    for port in ["10.0.2.9:40041", "10.0.2.9:5000"] {
        let receiver = network.socket(true, port);
        sender.send_to(b"plain", port).unwrap();
        let (len, from) = receiver.recv_from(&mut buffer).unwrap();
        assert_eq!(
            (&buffer[..len], from),
            (&b"plain"[..], "10.0.1.5:5555".parse().unwrap())
        );
    }
    let ping = [
        "netns",
        "exec",
        network.reporter.name(),
        "ping",
        "-n",
        "-c",
        "2",
        "-i",
        "0.05",
        "-W",
        "20",
    ];
    let ping = Command::new("ip").args(ping).arg(HOSTS[1][0]).output().unwrap();
    assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stdout));
}

/// A report in fragments is dropped by the switch, one without a header and one of an unknown sender by the translator.
fn fragments_and_others_are_counted(network: &Network, last: &Program) {
    let sender = network.socket(false, "10.0.1.5:5555");
    let before = last.get("/api/v1/translator")["reports"].as_u64().unwrap();
    sender.send_to(&[0; 3000], REPORTS[0]).unwrap();
    totals(last, "counted", |totals| {
        totals["drops"]["intercept_fragment"] == 1
    });
    sender.send_to(&[0; 3], REPORTS[0]).unwrap();
    network
        .reporter
        .ip(&["address", "add", "10.0.1.6/32", "dev", "eth0"])
        .unwrap();
    network
        .socket(false, "10.0.1.6:0")
        .send_to(b"unknown", REPORTS[0])
        .unwrap();
    let dta = last.translator("refused", |dta| dta["reports"] == before + 2);
    assert_eq!(dta["unreadable"]["sender_not_allowed"], 1, "{dta:#}");
    assert_eq!(dta["unreadable"].as_object().unwrap().len(), 2, "{dta:#}");
}
