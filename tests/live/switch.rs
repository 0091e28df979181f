//! The switch role on real interfaces: two hosts, three switches between them, in network namespaces. INT is invisible to the hosts.

use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use nic::netns::{Namespace, within};
use serde_json::{Value, json};

use crate::support::server::{Server, TIMEOUT};
use crate::support::{self, schema};

/// h1 – s1 – s2 – s3 – h2. Between switches the MTU is larger, so that INT fits.
struct Line {
    hosts: [Namespace; 2],
    switches: Vec<Server>,
    /// Sockets in the switches' namespaces that receive their reports.
    reports: Vec<UdpSocket>,
    namespaces: Vec<Namespace>,
}

/// Bytes of the MiB that iperf3 sends; it stops counting before all have arrived.
const ENOUGH: Option<u64> = Some(100_000);
const NODES: [u32; 3] = [11, 12, 13];
/// Addresses of the hosts: IPv4, IPv6.
const HOSTS: [[&str; 2]; 2] = [["10.0.1.5", "fd00:0:0:1::5"], ["10.0.2.6", "fd00:0:0:2::6"]];

impl Line {
    /// `watch`: lines of `[[switch.watch]]`, for every switch. `None`, reported as skipped: not possible on this machine.
    fn new(watch: &str) -> Option<Self> {
        match Self::links() {
            Ok((hosts, namespaces)) => Some(Self::start(hosts, namespaces, watch)),
            Err(error) => {
                support::skipped(&format!("switches on real interfaces: {error}"));
                None
            }
        }
    }

    fn links() -> Result<([Namespace; 2], Vec<Namespace>), nic::Error> {
        let hosts = [Namespace::create()?, Namespace::create()?];
        let switches = [Namespace::create()?, Namespace::create()?, Namespace::create()?];
        let link = |a: &Namespace, name: &str, b: &Namespace, other: &str, mtu: &str| {
            let peer = ["peer", "name", other, "mtu", mtu, "netns", b.name()];
            a.ip(&[&["link", "add", name, "mtu", mtu, "type", "veth"], &peer[..]].concat())?;
            a.ip(&["link", "set", name, "up"])?;
            b.ip(&["link", "set", other, "up"])
        };
        link(&hosts[0], "eth0", &switches[0], "left", "1500")?;
        link(&switches[0], "right", &switches[1], "left", "2000")?;
        link(&switches[1], "right", &switches[2], "left", "2000")?;
        link(&switches[2], "right", &hosts[1], "eth0", "1500")?;
        for (host, [v4, v6]) in hosts.iter().zip(HOSTS) {
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
        Ok((hosts, switches.into()))
    }

    fn start(hosts: [Namespace; 2], namespaces: Vec<Namespace>, watch: &str) -> Self {
        let mut reports = Vec::new();
        let mut switches = Vec::new();
        for (index, namespace) in namespaces.iter().enumerate() {
            let socket = namespace
                .run(|| UdpSocket::bind("127.0.0.1:32766"))
                .unwrap()
                .unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            reports.push(socket);
            let config = config(index, watch);
            switches.push(Server::start_raw_within(namespace.name(), &config).unwrap());
        }
        Self {
            hosts,
            switches,
            reports,
            namespaces,
        }
    }

    /// Runs a program on a host; its output if it succeeded.
    fn on(&self, host: usize, command: &[&str]) -> Result<String, String> {
        let output = Command::new("ip")
            .args(["netns", "exec", self.hosts[host].name()])
            .args(command)
            .output()
            .unwrap();
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        if output.status.success() {
            Ok(said)
        } else {
            Err(said)
        }
    }

    fn ping(&self, to: &str, more: &[&str]) -> Result<String, String> {
        self.on(
            0,
            &[&["ping", "-n", "-c", "3", "-i", "0.05", "-W", "20", to], more].concat(),
        )
    }

    /// iperf3 from the first host to an address of the second, its result.
    fn iperf(&self, to: &str, more: &[&str]) -> Value {
        let serve = ["netns", "exec", self.hosts[1].name(), "iperf3", "-s", "-1"];
        let mut serving = Command::new("ip")
            .args(serve)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        let result = loop {
            let run = self.on(0, &[&["iperf3", "-J", "-c", to], more].concat());
            let result: Value = run
                .ok()
                .and_then(|text| serde_json::from_str(&text).ok())
                .unwrap_or_default();
            // Retries until the server listens: some versions exit with 0 and print only an error.
            if result["end"]["sum"].is_object()
                || result["end"]["sum_sent"].is_object()
                || start.elapsed() > TIMEOUT
            {
                break result;
            }
        };
        let _ = serving.kill();
        let _ = serving.wait();
        result
    }

    /// Reports received in a switch's namespace: the nodes whose records each contains, and the flow.
    fn paths(&self, switch: usize) -> Vec<(Vec<u32>, String)> {
        let (mut paths, mut buffer) = (Vec::new(), [0; 2048]);
        let mut decoder = wire::Decoder::new(wire::Profile::default());
        while let Ok(len) = self.reports[switch].recv(&mut buffer) {
            for report in decoder.reports(&buffer[..len]) {
                let report = report.unwrap();
                let nodes = report.hops().filter_map(|hop| hop.node_id).collect();
                paths.push((
                    nodes,
                    report.flow.map_or_else(String::new, |flow| flow.to_string()),
                ));
            }
        }
        paths
    }

    /// The counters of each switch balance, with drops only for the reasons in `but`.
    fn assert_balanced(&self, but: &[&str]) {
        let document: Value = self.switches[0].json("/api/v1/openapi.json");
        for server in &self.switches {
            let view = server.json("/api/v1/switch");
            schema::check(
                &document,
                &json!({"$ref": "#/components/schemas/Switch"}),
                &view,
                "switch",
            );
            let totals = &view["totals"];
            assert_eq!(totals["balanced"], true, "{view:#}");
            let number = |name: &str| totals[name].as_u64().unwrap();
            let out = number("sent") + number("consumed") + number("queued") + number("dropped");
            assert_eq!(number("received") + number("originated"), out, "{view:#}");
            let drops = totals["drops"].as_object().unwrap();
            let unexpected: Vec<_> = drops
                .keys()
                .filter(|reason| !but.contains(&reason.as_str()) && *reason != "link_scope")
                .collect();
            assert!(unexpected.is_empty(), "{view:#}");
        }
    }

    /// Packets with wrong checksums received by the hosts.
    fn checksum_errors(&self) -> u64 {
        let one = |host: &Namespace| {
            let table = within(host.name(), || {
                std::fs::read_to_string("/proc/thread-self/net/snmp")
            })
            .unwrap();
            let table = table.unwrap();
            let lines: Vec<&str> = table.lines().collect();
            let columns = |pair: &[&str]| -> u64 {
                let names = pair[0].split_whitespace();
                let values = pair[1].split_whitespace();
                names
                    .zip(values)
                    .filter(|(name, _)| *name == "InCsumErrors")
                    .map(|(_, value)| value.parse::<u64>().unwrap())
                    .sum()
            };
            lines.chunks_exact(2).map(columns).sum::<u64>()
        };
        self.hosts.iter().map(one).sum()
    }
}

/// Switch `index` of the line; its port 1 is to the left. `$NODE` in `watch` is its node ID.
fn config(index: usize, watch: &str) -> String {
    let node = NODES[index];
    let watch = watch.replace("$NODE", &node.to_string());
    let (first, last) = (index == 0, index == NODES.len() - 1);
    format!(
        "api.listen = \"127.0.0.1:0\"\n[switch]\nnode = {node}\nname = \"s{}\"\nreports = \"127.0.0.1:32766\"\n\
         [[switch.ports]]\nnumber = 1\ninterface = \"left\"\nedge = {first}\n\
         [[switch.ports]]\nnumber = 2\ninterface = \"right\"\nedge = {last}\n\
         [[switch.routes]]\nto = \"10.0.1.0/24\"\nport = 1\n[[switch.routes]]\nto = \"fd00:0:0:1::/64\"\nport = 1\n\
         [[switch.routes]]\nto = \"10.0.2.0/24\"\nport = 2\n[[switch.routes]]\nto = \"fd00:0:0:2::/64\"\nport = 2\n{watch}",
        index + 1
    )
}

#[test]
fn hosts_notice_nothing_and_the_collector_receives_all_reports() {
    let Some(line) = Line::new("[[switch.watch]]\nmode = \"md\"\n") else {
        return;
    };
    for to in HOSTS[1] {
        let said = line.ping(to, &[]).unwrap();
        assert!(said.contains("3 received") && said.contains("ttl=61"), "{said}");
    }
    // Hosts use checksum and segmentation offload of their virtual NICs.
    let tcp = line.iperf(HOSTS[1][0], &["-n", "5M"]);
    assert!(tcp["end"]["sum_received"]["bytes"].as_u64() > ENOUGH, "{tcp:#}");
    let forth = line.paths(2);
    assert!(
        forth
            .iter()
            .any(|(path, flow)| path == &NODES && flow.starts_with("10.0.1.5:")),
        "{:?}",
        forth.first()
    );
    assert!(
        forth.iter().all(|(path, _)| path.len() == 3),
        "no report lacks a node"
    );
    let back = line.paths(0);
    assert!(
        back.iter()
            .any(|(path, flow)| path == &[13, 12, 11] && flow.starts_with("10.0.2.6:")),
        "{:?}",
        back.first()
    );
    // A virtual machine may lose packets when its CPUs are descheduled, but not three times in a row.
    let lost = [0; 3].map(|_| {
        let udp = line.iperf(HOSTS[1][0], &["-t", "1", "-u", "-b", "5M", "-l", "1000"]);
        udp["end"]["sum"]["lost_percent"]
            .as_f64()
            .unwrap_or_else(|| panic!("{udp:#}"))
    });
    assert!(lost.iter().any(|lost| *lost < 5.0), "{lost:?}");
    // The socket of this test queues only some of them.
    let reported = line.switches[2].json("/api/v1/switch")["int"]["reported"]
        .as_u64()
        .unwrap();
    assert!(reported > 1_000 && !line.paths(2).is_empty(), "{reported}");
    let v6 = line.iperf(HOSTS[1][1], &["-n", "1M"]);
    assert!(v6["end"]["sum_received"]["bytes"].as_u64() > ENOUGH, "{v6:#}");
    let forth = line.paths(2);
    assert!(
        forth
            .iter()
            .any(|(path, flow)| path == &NODES && flow.starts_with("[fd00:0:0:1::5]:")),
        "{:?}",
        forth.first()
    );
    // Without INT the traffic is the same, and nothing is reported.
    for server in &line.switches {
        let answer = server.ask("PUT", "/api/v1/switch/watch", "", "[]");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    (0..3).for_each(|switch| drop(line.paths(switch)));
    let plain = line.iperf(HOSTS[1][0], &["-n", "1M"]);
    assert!(
        plain["end"]["sum_received"]["bytes"].as_u64() > ENOUGH,
        "{plain:#}"
    );
    assert_eq!(line.paths(2), []);
    line.assert_balanced(&["queue_full", "not_sent"]);
    assert_eq!(line.checksum_errors(), 0);
}

#[test]
fn packets_too_long_are_refused_by_icmp_and_links_can_be_changed() {
    let Some(line) = Line::new("[[switch.watch]]\nmode = \"md\"\n") else {
        return;
    };
    line.ping(HOSTS[1][0], &["-M", "do", "-s", "1472"]).unwrap();
    let patch = |switch: usize, port: u16, body: Value| {
        let path = format!("/api/v1/switch/ports/{port}");
        let answer = line.switches[switch].ask("PATCH", &path, "", &body.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    patch(1, 2, json!({"mtu": 1400}));
    let said = line.ping(HOSTS[1][0], &["-M", "do", "-s", "1472"]).unwrap_err();
    assert!(said.contains("mtu = 1400") || said.contains("mtu=1400"), "{said}");
    let said = line.ping(HOSTS[1][1], &["-M", "do", "-s", "1400"]).unwrap_err();
    assert!(said.contains("mtu = 1400") || said.contains("mtu=1400"), "{said}");
    // TCP works, with INT in its packets.
    let tcp = line.iperf(HOSTS[1][0], &["-n", "1M"]);
    assert!(tcp["end"]["sum_received"]["bytes"].as_u64() > ENOUGH, "{tcp:#}");
    patch(1, 2, json!({"mtu": null}));
    // Hop limits expire on the path.
    let said = line.ping(HOSTS[1][0], &["-t", "2"]).unwrap_err();
    assert!(said.contains("Time to live exceeded"), "{said}");
    // Delay in both directions.
    patch(1, 1, json!({"delay": "20ms"}));
    patch(1, 2, json!({"delay": "30ms"}));
    let said = line.ping(HOSTS[1][0], &[]).unwrap();
    let least = said
        .split("= ")
        .nth(1)
        .and_then(|rest| rest.split('/').next())
        .unwrap();
    assert!(least.parse::<f64>().unwrap() >= 50.0, "{said}");
    patch(1, 2, json!({"up": false}));
    line.ping(HOSTS[1][0], &["-W", "1"]).unwrap_err();
    patch(1, 2, json!({"up": true, "loss": 1}));
    line.ping(HOSTS[1][0], &["-W", "1"]).unwrap_err();
    patch(1, 2, json!({"loss": 0}));
    line.ping(HOSTS[1][0], &[]).unwrap();
    line.assert_balanced(&[
        "too_big",
        "ttl_zero",
        "link_down",
        "link_loss",
        "queue_full",
        "not_sent",
    ]);
    let metrics = line.switches[1].get("/metrics").body;
    assert!(
        metrics.contains("hopwise_switch_drops_total{port=\"2\",reason=\"too_big\"}"),
        "{metrics}"
    );
    let refused = line.switches[1].ask("PATCH", "/api/v1/switch/ports/9", "", "{}");
    assert_eq!(refused.status, 404);
}

#[test]
fn a_queue_with_a_rate_keeps_to_it_and_reports_itself() {
    let Some(line) = Line::new("[[switch.watch]]\nmode = \"md\"\n") else {
        return;
    };
    let path = "/api/v1/switch/ports/2";
    let body = json!({"rate": "20Mbit/s", "depth": "100kB"}).to_string();
    assert_eq!(line.switches[1].ask("PATCH", path, "", &body).status, 200);
    // Never more; less only if the CPUs were descheduled, and not three times in a row.
    let used = (0..3).any(|_| {
        let tcp = line.iperf(HOSTS[1][0], &["-t", "1"]);
        let rate = tcp["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();
        assert!(rate < 20e6, "{rate}");
        rate > 5e6
    });
    assert!(used);
    let view = line.switches[1].json("/api/v1/switch");
    let most = view["ports"][1]["queue"]["max_bytes"].as_u64().unwrap();
    assert!((3_000..=100_000).contains(&most), "{view:#}");
    line.assert_balanced(&["queue_full", "not_sent"]);
}

/// A filter that reports nothing on an idle machine.
const STEADY: &str = "algorithm = \"per_flow\"\nmetric = \"flow_latency\"\nthreshold = \"5s\"\n";

#[test]
fn a_filter_of_the_sink_reports_less_and_its_counts_add_up() {
    let watch = "[[switch.watch]]\nmode = \"md\"\ndrops = false\n";
    let all = format!("{watch}[[switch.filter]]\nproto = \"udp\"\nalgorithm = \"noop\"\n");
    let Some(line) = Line::new(&all) else { return };
    let sink = &line.switches[2];
    let send = || line.iperf(HOSTS[1][0], &["-k", "1000", "-u", "-b", "4M", "-l", "500"]);
    send();
    let view = sink.json("/api/v1/switch");
    let before = Counters::of(&view);
    assert!(
        before.matched > 500 && before.suppressed == 0 && before.filtered == 0,
        "{view:#}"
    );
    // Invalid filters are refused, and nothing changes.
    let path = "/api/v1/switch/filters";
    let bad = json!([{"algorithm": "per_hop", "metric": "flow_latency", "threshold": 1}]).to_string();
    let refused = sink.ask("PUT", path, "", &bad);
    assert!(
        refused.status == 400 && refused.body.contains("per_flow"),
        "{refused:?}"
    );
    let few = json!([{"proto": "udp", "algorithm": "per_flow", "metric": "flow_latency", "threshold": "5s"}]);
    let answer = sink.ask("PUT", path, "", &few.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    send();
    let view = sink.json("/api/v1/switch");
    let after = Counters::of(&view);
    // At most two flows; all packets of each but the first are suppressed. TCP packets, which no filter matches, are reported.
    assert!(
        (1..=4).contains(&after.matched) && after.suppressed > 500,
        "{view:#}"
    );
    assert_eq!(after.suppressed, after.filtered, "{view:#}");
    assert!(after.reported - before.reported < before.matched / 2, "{view:#}");
    let metrics = sink.get("/metrics").body;
    let counted = format!("hopwise_switch_int_total{{what=\"filtered\"}} {}", after.filtered);
    assert!(metrics.contains(&counted), "{metrics}");
    assert!(
        metrics.contains("hopwise_switch_filter_total{filter=\"0\",decision=\"suppressed\"}"),
        "{metrics}"
    );
    // In the new file, the same filter follows another one: it keeps its state and counters.
    let other = "[[switch.filter]]\ndport = 9\nalgorithm = \"change\"\n";
    let file = format!("{watch}{other}[[switch.filter]]\nproto = \"udp\"\n{STEADY}");
    reload(sink, &config(2, &file), |view| {
        view["filters"].as_array().unwrap().len() == 2
    });
    let view = sink.json("/api/v1/switch");
    assert_eq!(view["filters"][1]["suppressed"], after.suppressed, "{view:#}");
    // The first switch is no longer the source of these flows.
    let role = "[[switch.role]]\ndst = \"10.0.2.0/24\"\nrole = \"transit\"\n";
    reload(&line.switches[0], &config(0, &format!("{watch}{role}")), |view| {
        view["roles"] != json!([])
    });
    send();
    let last = Counters::of(&sink.json("/api/v1/switch"));
    assert_eq!(
        (last.filtered, last.suppressed),
        (after.filtered, after.suppressed)
    );
    assert!(last.plain > after.plain + 500, "{}", last.plain);
    line.assert_balanced(&["queue_full", "not_sent"]);
}

/// Applies another file.
fn reload(server: &Server, file: &str, done: impl Fn(&Value) -> bool) {
    server.reconfigure_raw(file);
    server.signal("-HUP");
    let start = Instant::now();
    while !done(&server.json("/api/v1/switch")) {
        assert!(start.elapsed() < TIMEOUT, "{file}");
        crate::support::pause();
    }
}

/// A switch's counters of reports.
struct Counters {
    plain: u64,
    reported: u64,
    filtered: u64,
    /// Counters of its filters.
    matched: u64,
    suppressed: u64,
}

impl Counters {
    /// Checks that they balance: each sent packet has one kind, and each report one reason.
    fn of(view: &Value) -> Self {
        let int = |name: &str| view["int"][name].as_u64().unwrap();
        let kinds = [
            "plain",
            "refused",
            "recorded",
            "swapped",
            "hops_exceeded",
            "mtu_exceeded",
            "not_restorable",
            "reported",
            "filtered",
        ];
        let total = |name: &str| view["totals"][name].as_u64().unwrap();
        let failed = view["totals"]["drops"]["not_sent"].as_u64().unwrap_or(0);
        let measured = kinds.map(int).iter().sum::<u64>();
        assert_eq!(measured + total("originated"), total("sent") + failed, "{view:#}");
        let others = int("drops_reported") + int("queues_reported") + int("congested_reported");
        let reports = &view["reports"];
        let datagrams = reports["sent"].as_u64().unwrap() + reports["unsent"].as_u64().unwrap();
        assert_eq!(int("reported") + others, datagrams, "{view:#}");
        let filters = view["filters"].as_array().unwrap();
        let counts = |filter: &Value| -> u64 {
            filter["reported"]
                .as_object()
                .unwrap()
                .values()
                .map(|count| count.as_u64().unwrap())
                .sum()
        };
        Self {
            plain: int("plain"),
            reported: int("reported"),
            filtered: int("filtered"),
            matched: filters.iter().map(counts).sum(),
            suppressed: filters
                .iter()
                .map(|filter| filter["suppressed"].as_u64().unwrap())
                .sum(),
        }
    }
}

/// Paths of flows, from a collector.
#[derive(Default)]
struct Paths(Vec<(String, Vec<u32>)>);

impl collector::Output for Paths {
    fn event(&mut self, event: &collector::Event, path: &[u32]) {
        if let (Some(detect::Metric::FlowPath), Some(flow)) = (event.metric, event.flow) {
            self.0.push((flow.to_string(), path.to_vec()));
        }
    }
}

#[test]
fn single_records_over_ipv6_become_paths_in_the_collector() {
    let Some(line) = Line::new("[[switch.watch]]\nproto = \"udp\"\nmode = \"sf\"\n") else {
        return;
    };
    let mut collector = collector::Collector::new(collector::Config::default());
    let (mut paths, done) = (Paths::default(), std::sync::atomic::AtomicBool::new(false));
    let now = || {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_nanos() as u64
    };
    // Relaxed: the flag orders no other memory.
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let source = std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
            let mut buffer = [0; 2048];
            loop {
                match line.reports[2].recv(&mut buffer) {
                    Ok(len) => {
                        let (payload, received) = (&buffer[..len], now());
                        let datagram = collector::Datagram {
                            payload,
                            source,
                            src_port: 1,
                            listener: 0,
                            received,
                        };
                        collector.handle(&[datagram], &mut paths);
                    }
                    // No datagram arrived for a while.
                    Err(_) if done.load(order) => break,
                    Err(_) => {}
                }
            }
            collector.tick(now() + 5_000_000_000, &mut paths);
        });
        line.iperf(HOSTS[1][1], &["-k", "1000", "-u", "-b", "4M", "-l", "500"]);
        done.store(true, order);
    });
    let sf = &collector.stats().sf;
    assert!(sf.complete.sets > 50, "{sf:?}");
    let ours = |flow: &str| flow.starts_with("[fd00:0:0:1::5]:") && flow.contains("[fd00:0:0:2::6]:");
    assert!(
        paths.0.iter().any(|(flow, path)| ours(flow) && path == &NODES),
        "{:?}",
        paths.0
    );
    assert!(
        paths.0.iter().all(|(_, path)| path.is_empty() || path == &NODES),
        "{:?}",
        paths.0
    );
    let views: Vec<Value> = line
        .switches
        .iter()
        .map(|server| server.json("/api/v1/switch"))
        .collect();
    views.iter().for_each(|view| {
        let _checked = Counters::of(view);
    });
    let count = |switch: usize, name: &str| views[switch]["int"][name].as_u64().unwrap();
    assert!(
        count(0, "recorded") > 500 && count(1, "swapped") > 0 && count(2, "reported") > 500,
        "{views:#?}"
    );
    line.assert_balanced(&["queue_full", "not_sent"]);
}

#[test]
fn an_invalid_file_is_refused_and_a_missing_interface_reported() {
    let file = config(0, "").replace("port = 2", "port = 7");
    let directory = support::TempDir::new();
    let path = directory.join("s.toml");
    std::fs::write(&path, file).unwrap();
    let run = support::hopwise(["check", "-c", support::text(&path)]);
    assert_eq!(run.code, Some(2));
    assert!(
        run.stderr.contains("there is no port 7; there are: 1, 2"),
        "{}",
        run.stderr
    );
    std::fs::write(&path, config(0, "").replace("\"left\"", "\"no-such-nic\"")).unwrap();
    let run = support::hopwise(["check", "-c", support::text(&path)]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(
        run.stderr.contains("there is no interface `no-such-nic`"),
        "{}",
        run.stderr
    );
    assert!(
        run.stdout
            .starts_with("ok: a switch, node 11, 2 port(s), 4 route(s), 0 watched, no collector"),
        "{}",
        run.stdout
    );
    let run = support::hopwise(["run", "-c", support::text(&path)]);
    assert_eq!(run.code, Some(2));
    assert!(
        run.stderr.contains("port 1: open interface no-such-nic"),
        "{}",
        run.stderr
    );
}

/// Reports the path of every UDP packet by DTA, as an essential report.
const DTA: &str = "[[switch.watch]]\nmode = \"md\"\n[switch.dta]\nprobe = \"0s\"\ncollectors = [\"127.0.0.1:40040\"]\n\
                   [[switch.dta.report]]\nname = \"paths\"\non = \"path\"\nproto = \"udp\"\noperation = \"key-write\"\nstore = 1\n\
                   key = [\"flow\"]\ndata = [\"node[5]\"]\nessential = true\n";

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, from start to end")]
fn a_sink_reports_by_dta_instead_and_sends_again_what_is_missed() {
    use wire::dta::{Control, Operation, Report, control};
    let directory = support::TempDir::new();
    let (map, one) = (directory.join("map.json"), "a=http://127.0.0.1:1,127.0.0.1:40040");
    fs::write(&map, support::hopwise(["map", "new", one]).stdout).unwrap();
    let config = DTA.replace(
        "collectors = [\"127.0.0.1:40040\"]",
        &format!("map = \"{}\"", map.display()),
    );
    let Some(line) = Line::new(&config) else { return };
    let translator = line.namespaces[2]
        .run(|| UdpSocket::bind("127.0.0.1:40040"))
        .unwrap()
        .unwrap();
    translator.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let udp = line.iperf(HOSTS[1][0], &["-t", "1", "-u", "-b", "400k", "-l", "500"]);
    assert!(udp["end"]["sum"]["packets"].as_u64() > Some(20), "{udp:#}");
    let mut buffer = [0; 2048];
    let mut next = |socket: &UdpSocket| -> (u16, Vec<u8>) {
        let len = socket.recv(&mut buffer).unwrap();
        (
            Report::parse(&buffer[..len]).unwrap().base.sequence,
            buffer[..len].to_vec(),
        )
    };
    let (first, bytes) = next(&translator);
    let report = Report::parse(&bytes).unwrap();
    let Operation::KeyWrite {
        store: 1,
        copies: 2,
        key,
        data,
    } = report.operation
    else {
        panic!("{report:?}")
    };
    assert_eq!(
        (key.len(), &key[..8], key[12]),
        (13, &[10, 0, 1, 5, 10, 0, 2, 6][..], 17)
    );
    let nodes: Vec<u32> = data
        .chunks(4)
        .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!((nodes, report.base.reporter), (vec![11, 12, 13, 0, 0], 13));
    assert_eq!(
        (1..20)
            .map(|i| (next(&translator).0).wrapping_sub(i))
            .collect::<Vec<_>>(),
        [first; 19]
    );
    // The translator misses all but the first.
    let body = control::Body::Nack {
        cause: control::Cause::Gap,
        last: first,
        trigger: first.wrapping_add(2),
    };
    let mut nack = [0; 32];
    let len = Control {
        sequence: 0,
        reporter: 13,
        body,
    }
    .emit(&mut nack)
    .unwrap();
    translator.send_to(&nack[..len], "127.0.0.1:40044").unwrap();
    let again = (0..1000)
        .map(|_| next(&translator).0)
        .find(|sequence| *sequence == first.wrapping_add(1));
    assert!(again.is_some());
    let view = line.switches[2].json("/api/v1/switch");
    let (dta, mapping) = (&view["dta"], &view["dta"]["mappings"][0]);
    assert!(
        dta["collectors"][0]["nacks"] == 1 && dta["collectors"][0]["retransmitted"].as_u64() > Some(10),
        "{dta:#}"
    );
    assert!(
        mapping["operations"] == mapping["sent"] && mapping["sent"].as_u64() > Some(20),
        "{dta:#}"
    );
    // The same counters as metrics, which were read earlier: counters only grow.
    let after = line.switches[2].get("/metrics").body;
    for (name, labels, least) in [
        (
            "nacks_total",
            "collector=\"127.0.0.1:40040\"",
            &dta["collectors"][0]["nacks"],
        ),
        (
            "retransmitted_total",
            "collector=\"127.0.0.1:40040\"",
            &dta["collectors"][0]["retransmitted"],
        ),
        ("operations_total", "mapping=\"paths\"", &mapping["operations"]),
        (
            "outcome_total",
            "mapping=\"paths\",outcome=\"sent\"",
            &mapping["sent"],
        ),
    ] {
        let mark = format!("hopwise_switch_dta_{name}{{{labels}}} ");
        let value = after
            .lines()
            .find_map(|line| line.strip_prefix(&mark)?.parse::<u64>().ok());
        assert!(
            value >= least.as_u64() && value.is_some(),
            "{mark}{value:?} {least}"
        );
    }
    assert_eq!(line.paths(2), [], "no Telemetry Reports");
    line.assert_balanced(&["queue_full", "not_sent"]);
    a_map_is_read_again(&line.switches[2], &map, one);
}

/// The memory and the translator that writes to it, in the process of the switch.
const TRANSLATOR: &str = "[translator]\nlisten = \"127.0.0.1:40040\"\n\
                          [[translator.collectors]]\nexchange = \"127.0.0.1:0\"\n\
                          [collector]\nenabled = false\n\
                          [collector.memory]\nlisten = \"127.0.0.1:4791\"\nexchange = \"127.0.0.1:0\"\n\
                          directory = \"DIRECTORY/$NODE\"\n\
                          [[collector.memory.stores]]\nname = \"paths\"\nkind = \"key-write\"\nid = 1\nslots = \"64K\"\n\
                          value = \"u32[5]\"\n";

#[test]
fn a_switch_with_a_translator_in_its_process_reports_by_rdma() {
    let directory = support::TempDir::new();
    let memory = TRANSLATOR.replace("DIRECTORY", support::text(&directory.join("")));
    let Some(line) = Line::new(&format!("{DTA}{memory}")) else {
        return;
    };
    let udp = line.iperf(HOSTS[1][0], &["-t", "1", "-u", "-b", "400k", "-l", "500"]);
    assert!(udp["end"]["sum"]["packets"].as_u64() > Some(20), "{udp:#}");
    let (port, sink) = (&udp["start"]["connected"][0]["local_port"], &line.switches[2]);
    let key = format!("10.0.1.5:{port}%20%3E%2010.0.2.6:5201%20udp");
    let answer = sink.json(&format!("/api/v1/dta/stores/paths/get?key={key}"));
    assert_eq!(
        answer["fields"]["value"],
        serde_json::json!([11, 12, 13, 0, 0]),
        "{answer:#}"
    );
    let stage = sink.json("/api/v1/translator");
    assert!(
        stage["reports"].as_u64() > Some(20) && stage["balanced"] == true,
        "{stage:#}"
    );
    assert_eq!(line.paths(2), [], "no Telemetry Reports");
    line.assert_balanced(&["queue_full", "not_sent"]);
}

/// A map grows; one that does not fit is refused and changes nothing.
fn a_map_is_read_again(switch: &Server, map: &std::path::Path, one: &str) {
    let grown = support::hopwise([
        "map",
        "grow",
        support::text(map),
        "b=http://127.0.0.1:2,127.0.0.1:40041",
    ]);
    fs::write(map, grown.stdout).unwrap();
    switch.signal("-HUP");
    switch.log_line("configuration reloaded");
    let view = switch.json("/api/v1/switch");
    let ways: Vec<_> = view["dta"]["collectors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["address"].clone())
        .collect();
    assert_eq!(ways, ["127.0.0.1:40040", "127.0.0.1:40041"]);
    fs::write(map, support::hopwise(["map", "new", one]).stdout).unwrap();
    switch.signal("-HUP");
    switch.log_line("none can be taken away");
    assert_eq!(
        switch.json("/api/v1/switch")["dta"]["collectors"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}
