//! `hopwise lab`: a network of three switches in namespaces, measured in three ways, broken, and removed completely. Needs root,
//! `ip`, `ping` and `iperf3`; tests that cannot run are reported as skipped.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[allow(dead_code, reason = "each test program uses a part")]
mod support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Run, TempDir, command, hopwise, skipped};

/// Time limit of every step.
const TIMEOUT: Duration = Duration::from_secs(300);

/// One lab at a time: its results depend on the speed of its switches, and other labs would compete for the same processors.
static ALONE: Mutex<()> = Mutex::new(());

/// A lab with a name of its own; taken down when dropped.
struct Lab {
    name: String,
    file: PathBuf,
    _directory: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Lab {
    /// The file of an example, under another name; not up yet. `None` without root.
    fn new(kind: &str, example: &str) -> Option<Self> {
        let capabilities = nic::capabilities::current().unwrap();
        if !capabilities.effective.has(nic::capabilities::Cap::SYS_ADMIN) || !has("ip") {
            skipped("lab: a network in namespaces needs root and iproute2");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = TempDir::new();
        let text = fs::read_to_string(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("examples/lab")
                .join(example),
        )
        .unwrap();
        let start = text.find("name = \"").unwrap();
        let end = start + text[start..].find('\n').unwrap();
        let name = format!("{kind}{}", std::process::id());
        let file = directory.join(example);
        fs::write(
            &file,
            format!("{}name = \"{name}\"{}", &text[..start], &text[end..]),
        )
        .unwrap();
        Some(Self {
            name,
            file,
            _directory: directory,
            _alone: alone,
        })
    }

    fn up(&self) -> Run {
        hopwise([
            "lab".as_ref(),
            "up".as_ref(),
            self.file.as_os_str(),
            "--api".as_ref(),
            "127.0.0.1:0".as_ref(),
        ])
    }

    /// `hopwise lab WORDS --lab NAME`, which must succeed.
    fn run(&self, words: &str) -> Run {
        let run = self.try_run(words);
        assert_eq!(run.code, Some(0), "{words}: {}{}", run.stdout, run.stderr);
        run
    }

    fn try_run(&self, words: &str) -> Run {
        hopwise(
            ["lab"]
                .into_iter()
                .chain(words.split(' '))
                .chain(["--lab", &self.name]),
        )
    }

    /// A program in a host, which must succeed.
    fn exec(&self, host: &str, words: &str) -> String {
        let output = self.command(host, words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{words}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
    }

    fn command(&self, host: &str, words: &str) -> Command {
        command(
            ["lab", "exec", host, "--lab", &self.name, "--"]
                .into_iter()
                .chain(words.split(' ')),
        )
    }

    fn status(&self) -> Value {
        let run = hopwise(["lab", "status", &self.name, "--json"]);
        serde_json::from_str(&run.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", run.stdout, run.stderr))
    }

    /// Sends the traffic of `words`, all of which must arrive; otherwise the failure shows what each switch counted.
    fn lossless(&self, words: &str) {
        let sent = figures(&self.run(words));
        assert_eq!(
            sent["lost"],
            0,
            "{words}: {sent:#}\nThe switches: {:#}",
            self.status()["switches"]
        );
    }

    fn down(&self) {
        let run = hopwise(["lab", "down", &self.name]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
    }

    /// Checks that nothing is left: no namespace, process, file or link.
    fn is_gone(&self) -> Result<(), String> {
        let directory = format!("/run/hopwise/lab-{}", self.name);
        if Path::new(&directory).exists() {
            return Err(format!("{directory} is there"));
        }
        let prefix = format!("hw-{}-", self.name);
        let namespaces = fs::read_dir("/run/netns")
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name());
        if let Some(name) = namespaces
            .into_iter()
            .find(|name| name.to_string_lossy().starts_with(&prefix))
        {
            return Err(format!("the namespace {} is there", name.display()));
        }
        for process in nic::process::all().unwrap() {
            if process.command().iter().any(|word| word.starts_with(&directory)) {
                return Err(format!("{:?} runs", process.command()));
            }
        }
        let links = Command::new("ip").args(["-o", "link"]).output().unwrap();
        let links = String::from_utf8_lossy(&links.stdout).into_owned();
        if ["h1-s1", "s1-h1", "s1-s2", "mgmt"]
            .iter()
            .any(|name| links.contains(&format!(" {name}@")))
        {
            return Err(format!("a link is there: {links}"));
        }
        let list = hopwise(["lab", "list", "--json"]);
        if list.stdout.contains(&format!("\"{}\"", self.name)) {
            Err(list.stdout)
        } else {
            Ok(())
        }
    }
}

impl Lab {
    /// Prints the logs of its programs, which are deleted with the lab.
    fn print_logs(&self) {
        let entries = fs::read_dir(format!("/run/hopwise/lab-{}", self.name))
            .into_iter()
            .flatten()
            .flatten();
        for path in entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|it| it == "log"))
        {
            println!(
                "{}:\n{}",
                path.display(),
                fs::read_to_string(&path).unwrap_or_default()
            );
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_logs();
        }
        let _ = command(["lab", "down", &self.name]).output();
    }
}

fn has(program: &str) -> bool {
    Command::new(program)
        .arg("-V")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

/// The collector of a lab.
struct Collector {
    authority: String,
}

impl Collector {
    fn of(status: &Value) -> Self {
        Self {
            authority: status["api"]
                .as_str()
                .unwrap()
                .trim_start_matches("http://")
                .to_owned(),
        }
    }

    /// The response to `GET /api/v1{path}`.
    fn get(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(&self.authority).unwrap();
        let head = format!(
            "GET /api/v1{path} HTTP/1.0\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.authority
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{path}: {answer}");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {answer}"))
    }

    /// Polls until the condition holds.
    fn wait_for(&self, what: &str, path: &str, good: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let answer = self.get(path);
            if good(&answer) {
                return answer;
            }
            assert!(start.elapsed() < TIMEOUT, "never {what}: {answer:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Reports received of each of these nodes.
    fn reports_of(&self, nodes: &[u32]) -> Vec<u64> {
        let status = self.get("/status");
        let sources = status["sources"].as_array().unwrap();
        let of = |node: &u32| {
            let own = sources.iter().filter(|source| source["node"] == *node);
            own.map(|source| source["reports"].as_u64().unwrap()).sum()
        };
        nodes.iter().map(of).collect()
    }

    /// Waits for a flow to this port whose path is this.
    fn wait_for_path(&self, port: u16, path: &[u32]) {
        let known = |flow: &Value| flow["flow"]["dport"] == port && flow["path"] == serde_json::json!(path);
        let list = format!("/flows?filter=:{port}/17");
        self.wait_for(&format!("a flow to port {port} by {path:?}"), &list, |answer| {
            answer["flows"].as_array().unwrap().iter().any(known)
        });
    }
}

/// Figures of `lab traffic … --json`.
fn figures(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap()
}

#[test]
fn three_switches_measure_in_every_mode_and_a_burst_and_a_fault_are_found() {
    let Some(lab) = Lab::new("e", "three-switches.toml") else {
        return;
    };
    let made = lab.up();
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    for part in [
        "is up: 3 hosts, 3 switches, 5 links.",
        "http://127.0.0.1:",
        "hopwise lab exec h1 -- ping",
    ] {
        assert!(made.stdout.contains(part), "{part}: {}", made.stdout);
    }
    let again = lab.up();
    assert_eq!(again.code, Some(2));
    assert!(again.stderr.contains("hopwise lab down"), "{}", again.stderr);
    let status = lab.status();
    assert_eq!(status["switches"].as_array().unwrap().len(), 3, "{status:#}");
    let collector = Collector::of(&status);
    hosts_notice_nothing(&lab);
    every_mode_finds_the_path(&lab, &collector);
    postcards_under_delay_make_no_false_path(&lab, &collector);
    a_burst_is_found(&lab, &collector);
    a_fault_is_found(&lab, &collector);
    captures_have_the_forwarded_packets(&lab);
    lab.down();
    assert_eq!(lab.is_gone(), Ok(()));
}

/// Programs without INT work through the switches while INT is on.
fn hosts_notice_nothing(lab: &Lab) {
    if has("ping") {
        for address in ["10.0.3.1", "fd00:3::1"] {
            let said = lab.exec("h1", &format!("ping -c 3 -i 0.2 -W 5 {address}"));
            assert!(said.contains(" 0% packet loss"), "{said}");
        }
    } else {
        skipped("lab: there is no `ping` (apt-get install iputils-ping)");
    }
    if !has("iperf3") {
        return skipped("lab: there is no `iperf3` (apt-get install iperf3)");
    }
    let mut server = lab
        .command("h3", "iperf3 -s")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    for (address, further) in [
        ("10.0.3.1", "-t 1"),
        ("fd00:3::1", "-t 1 -R"),
        ("10.0.3.1", "-t 1 -u -b 5M"),
    ] {
        let bits = iperf(lab, &format!("iperf3 -c {address} -J {further}"), &mut server);
        assert!(bits > 1e6, "iperf3 {address} {further}: {bits} bit/s");
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

/// Bits per second that arrived. The server may still be starting.
fn iperf(lab: &Lab, words: &str, server: &mut Child) -> f64 {
    let start = Instant::now();
    loop {
        let output = lab.command("h1", words).output().unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let end = &said["end"];
        let received = [&end["sum_received"], &end["sum"]]
            .into_iter()
            .find_map(|sum| sum["bits_per_second"].as_f64());
        if let (true, Some(bits)) = (output.status.success(), received) {
            return bits;
        }
        assert!(server.try_wait().unwrap().is_none(), "the server has ended");
        assert!(start.elapsed() < TIMEOUT, "{words}: {said:#}");
        crate::support::pause();
    }
}

/// The collector finds the path in every mode. INT-MX and postcards: every node of the path reports every packet.
fn every_mode_finds_the_path(lab: &Lab, collector: &Collector) {
    for (port, mode) in (9101..).zip(["md", "sf", "mx", "postcard"]) {
        let set = lab.try_run(&format!("mode {mode}"));
        assert_eq!(set.code, Some(0), "{}", set.stderr);
        assert_eq!(collector.get("/intents/all")["mode"], mode);
        // From one end to the other by IPv4, and two hops by IPv6.
        for (words, port, nodes) in [
            ("h1 h3", port, &[11, 12, 13][..]),
            ("h3 h2 -6", port + 100, &[13, 12]),
        ] {
            let before = collector.reports_of(nodes);
            let command =
                format!("traffic flow {words} --rate 2Mbit/s --size 500 --for 0.8 --port {port} --json");
            let sent = figures(&lab.run(&command));
            assert_eq!(
                (&sent["lost"], &sent["refused"]),
                (&Value::from(0), &Value::from(0)),
                "{mode}: {sent:#}"
            );
            if ["mx", "postcard"].contains(&mode) {
                let packets = sent["sent"].as_u64().unwrap();
                let wanted: Vec<u64> = before.iter().map(|before| before + packets).collect();
                collector.wait_for(&format!("{mode} of all nodes"), "/status", |_| {
                    collector
                        .reports_of(nodes)
                        .iter()
                        .zip(&wanted)
                        .all(|(now, wanted)| now >= wanted)
                });
            }
            collector.wait_for_path(port, nodes);
        }
    }
    lab.run("mode off");
    lab.run("traffic flow h1 h3 --rate 2Mbit/s --for 1 --port 9301 --json");
    let flows = collector.get("/flows?filter=:9301/17");
    assert_eq!(flows["flows"].as_array().map(Vec::len), Some(0), "{flows:#}");
    lab.run("mode file");
}

/// Postcards with a link whose delay is much longer than the gap between packets: no path other than the real one is ever reported,
/// and `hopwise path` finds the flow by its address.
fn postcards_under_delay_make_no_false_path(lab: &Lab, collector: &Collector) {
    lab.run("mode postcard");
    lab.run("fault delay s1-s2 20ms");
    for (words, port, path) in [("h1 h3", 9351, &[11, 12, 13][..]), ("h3 h2", 9352, &[13, 12])] {
        lab.run(&format!(
            "traffic flow {words} --rate 4Mbit/s --size 500 --for 1 --port {port} --json"
        ));
        collector.wait_for_path(port, path);
        let of_flow = |event: &&Value| event["flow"]["dport"] == port;
        let events = path_events(collector);
        assert!(events.iter().any(|event| of_flow(&event)));
        for event in events.iter().filter(of_flow) {
            assert_eq!(event["path"], serde_json::json!(path), "{event:#}");
        }
    }
    lab.run("fault clear");
    let status = lab.status();
    let run = hopwise(["path", "10.0.3.1", "--api", status["api"].as_str().unwrap()]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stdout.contains(":9351/17"), "{}", run.stdout);
}

/// The latest events about paths.
fn path_events(collector: &Collector) -> Vec<Value> {
    let answer = collector.get("/events?metric=flow_path&limit=1000");
    answer["events"].as_array().unwrap().clone()
}

/// Two hosts send to one at the same time: the packets queue at switch 12, before the slower link.
fn a_burst_is_found(lab: &Lab, collector: &Collector) {
    let sent =
        figures(&lab.run("traffic burst h1,h2 h3 --packets 150 --every 500ms --for 1.2 --port 9401 --json"));
    assert!(sent["received"].as_u64().unwrap() > 300, "{sent:#}");
    let full = |event: &Value| event["value"].as_u64().is_some_and(|bytes| bytes > 60_000);
    collector.wait_for(
        "a queue that fills",
        "/events?metric=queue_occupancy&node=12&limit=1000",
        |answer| answer["events"].as_array().unwrap().iter().any(full),
    );
    collector.wait_for("the rule", "/events?kind=rule_on&limit=1000", |answer| {
        answer["events"]
            .as_array()
            .unwrap()
            .iter()
            .any(|event| event["rule"] == "deep queue")
    });
}

/// A link that is cut drops packets, and the switch before it reports them; when it is restored, they arrive again.
fn a_fault_is_found(lab: &Lab, collector: &Collector) {
    lab.run("fault cut s2-s3");
    assert_eq!(lab.status()["faults"].as_array().map(Vec::len), Some(1));
    let sent = lab.try_run("traffic flow h1 h3 --rate 1Mbit/s --for 1 --port 9501 --json");
    assert_eq!(sent.code, Some(1), "{}", sent.stdout);
    collector.wait_for(
        "drops at switch 12",
        "/events?kind=drop&node=12&limit=1000",
        |answer| !answer["events"].as_array().unwrap().is_empty(),
    );
    lab.run("fault clear");
    lab.lossless("traffic flow h1 h3 --rate 1Mbit/s --for 1 --port 9501 --json");
    lab.run("fault loss s1-s2 50%");
    lab.run("fault delay s1-s2 20ms");
    let sent = figures(&lab.run("traffic flow h1 h3 --rate 4Mbit/s --size 500 --for 1 --port 9501 --json"));
    let (packets, lost) = (sent["sent"].as_u64().unwrap(), sent["lost"].as_u64().unwrap());
    assert!(lost > packets / 5 && lost < packets * 4 / 5, "{sent:#}");
    assert!(
        sent["pairs"][0]["delay_ns"]["min"].as_u64().unwrap() > 20_000_000,
        "{sent:#}"
    );
    lab.run("fault clear");
}

/// A capture of a link between switches contains packets with INT.
fn captures_have_the_forwarded_packets(lab: &Lab) {
    lab.run("mode md");
    let directory = TempDir::new();
    let file = directory.join("link.pcap");
    let traffic = lab_traffic(lab);
    lab.run(&format!("capture s1-s2 {} --for 1 --packets 20", file.display()));
    assert!(traffic.wait_with_output().unwrap().status.success());
    let mut reader = nic::capture::Reader::open(&file).unwrap();
    let mut marked = 0;
    while let Some(frame) = reader.next() {
        let frame = frame.unwrap();
        // IPv4, with the DSCP of INT.
        marked += u32::from(frame.data[12..14] == [8, 0] && frame.data[15] >> 2 == 23);
    }
    assert!(marked >= 10, "{marked} packets with INT");
}

/// How many of 20 packets with INT on the first link have a correct UDP checksum.
fn right_checksums(lab: &Lab) -> u32 {
    let directory = TempDir::new();
    let file = directory.join("link.pcap");
    let traffic = lab_traffic(lab);
    lab.run(&format!("capture s1-s2 {} --for 5 --packets 20", file.display()));
    assert!(traffic.wait_with_output().unwrap().status.success());
    let mut reader = nic::capture::Reader::open(&file).unwrap();
    let (mut marked, mut right) = (0, 0);
    while let Some(frame) = reader.next() {
        let frame = frame.unwrap().data;
        if frame[12..14] != [8, 0] || frame[15] >> 2 != 23 || frame[23] != 17 {
            continue;
        }
        let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        let segment = &frame[34..end];
        let pseudo = [
            &frame[26..34],
            &[0, 17],
            &(segment.len() as u16).to_be_bytes(),
            segment,
        ]
        .concat();
        marked += 1;
        right += u32::from(wire::checksum::of(&pseudo) == 0);
    }
    assert!(marked >= 10, "{marked} packets with INT");
    right
}

#[test]
fn a_lab_leaves_l4_checksums_and_a_switch_that_differs_is_logged() {
    let Some(lab) = Lab::new("l", "three-switches.toml") else {
        return;
    };
    let text = fs::read_to_string(&lab.file).unwrap();
    fs::write(&lab.file, format!("{text}\n[switch]\nl4_checksum = \"leave\"\n")).unwrap();
    let made = lab.up();
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let flow = "traffic flow h1 h3 --rate 1Mbit/s --for 1 --port 9801 --json";
    // The sink restores the packet, so that its checksum is right.
    lab.lossless(flow);
    assert_eq!(
        right_checksums(&lab),
        0,
        "the checksum is that of the packet without INT"
    );
    lab.down();
    // The switch in the middle leaves the checksum that the others update: without a manager, which would not let it.
    let text = without_manager(&text).replace("node = 12", "node = 12\nl4_checksum = \"leave\"");
    fs::write(&lab.file, text).unwrap();
    let made = lab.up();
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let sent = figures(&lab.try_run(flow));
    assert_eq!(
        sent["lost"], sent["sent"],
        "hosts drop packets with a wrong checksum: {sent:#}"
    );
    let log = format!("/run/hopwise/lab-{}/s3.log", lab.name);
    let start = Instant::now();
    let line = loop {
        let text = fs::read_to_string(&log).unwrap();
        if let Some(line) = text.lines().find(|line| line.contains("wrong L4 checksum")) {
            break line.to_owned();
        }
        assert!(start.elapsed() < TIMEOUT, "{text}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(line.contains("WARN") && line.contains("node=13"), "{line}");
    lab.down();
}

/// The file with a watchlist for all switches instead of intents.
fn without_manager(text: &str) -> String {
    let start = text.find("[[intents]]").unwrap();
    let end = start + text[start..].find("\n\n").unwrap();
    format!("{}[[watch]]\nmode = \"md\"{}", &text[..start], &text[end..])
}

#[test]
fn a_lab_without_a_manager_measures_as_its_watchlist_says() {
    let Some(lab) = Lab::new("u", "three-switches.toml") else {
        return;
    };
    let text = fs::read_to_string(&lab.file).unwrap();
    fs::write(&lab.file, without_manager(&text)).unwrap();
    let made = lab.up();
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let collector = Collector::of(&lab.status());
    for (port, mode) in (9111..).zip(["md10", "sf", "file"]) {
        lab.run(&format!("mode {mode}"));
        lab.run(&format!(
            "traffic flow h1 h3 --rate 2Mbit/s --size 500 --for 0.8 --port {port} --json"
        ));
        collector.wait_for_path(port, &[11, 12, 13]);
    }
    let restarted = lab.run("fault restart s2");
    assert!(
        restarted
            .stdout
            .starts_with("s2 was killed and started again in "),
        "{}",
        restarted.stdout
    );
    lab.run("traffic flow h1 h3 --rate 2Mbit/s --size 500 --for 0.5 --port 9121 --json");
    lab.down();
}

/// The switches start without rules: the manager fills them, also after they were killed, and no host sees INT.
#[test]
fn a_killed_switch_is_filled_again_and_an_intent_changes_reports() {
    let Some(lab) = Lab::new("m", "three-switches.toml") else {
        return;
    };
    let made = lab.up();
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let status = lab.status();
    let collector = Collector::of(&status);
    let state = |wanted: &str| {
        collector.wait_for(wanted, "/intents/all", |intent| intent["state"] == wanted);
    };
    let send = |port: u16| {
        let words = format!("traffic flow h1 h3 --rate 2Mbit/s --size 500 --for 0.5 --port {port} --json");
        // What arrives is what was sent: packets with INT would be refused by the receiver.
        lab.lossless(&words);
    };
    send(9131);
    state("complete");
    let refused = lab.try_run("mode md10");
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("write [[watch]] mode = \"md10\" instead"),
        "{}",
        refused.stderr
    );

    // At an edge and in the middle. Meanwhile packets flow, and a capture at the host watches for INT.
    for switch in ["s2", "s3"] {
        let directory = TempDir::new();
        let file = directory.join("host.pcap");
        let words = format!("lab capture h3-s3 {} --for 6 --lab {}", file.display(), lab.name);
        let capture = command(words.split(' ')).stdout(Stdio::piped()).spawn().unwrap();
        let words = format!(
            "lab traffic flow h1 h3 --rate 1Mbit/s --for 5.5 --port 9132 --lab {}",
            lab.name
        );
        let traffic = command(words.split(' ')).stdout(Stdio::null()).spawn().unwrap();
        let restarted = lab.run(&format!("fault restart {switch} --after 100ms"));
        let filled = "ms later the manager had installed its rules.";
        assert!(restarted.stdout.contains(filled), "{}", restarted.stdout);
        traffic.wait_with_output().unwrap();
        assert!(capture.wait_with_output().unwrap().status.success());
        assert_eq!(packets_with_int(&file), 0, "{switch}");
        let status = hopwise(["lab", "status", &lab.name]);
        assert!(
            status.stdout.contains("intent all: ") && !status.stdout.contains("s2: "),
            "{}",
            status.stdout
        );
        send(9133);
        state("complete");
    }

    // Nothing is measured; then a flow is, by an intent from the shell.
    lab.run("mode off");
    send(9134);
    assert_eq!(
        collector.get("/flows?filter=:9134/17")["flows"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
    let begun = Instant::now();
    let words = "intent add one --dport 9135 --watch flow_path,hop_latency --mode md --wait 0 --api";
    let added = hopwise(words.split(' ').chain([status["api"].as_str().unwrap()]));
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    collector.wait_for("on the switches", "/intents/one", |intent| {
        intent["state"] != "pending"
    });
    eprintln!("installed {} ms after it was added", begun.elapsed().as_millis());
    send(9135);
    collector.wait_for_path(9135, &[11, 12, 13]);
    lab.down();
    assert_eq!(lab.is_gone(), Ok(()));
}

/// Packets of a capture that are marked with the DSCP of INT; others are there, too.
fn packets_with_int(file: &Path) -> usize {
    let mut reader = nic::capture::Reader::open(file).unwrap();
    let (mut marked, mut others) = (0, 0);
    while let Some(frame) = reader.next() {
        let frame = frame.unwrap().data;
        if frame[12..14] == [8, 0] && frame[23] == 17 {
            *(if frame[15] >> 2 == 23 {
                &mut marked
            } else {
                &mut others
            }) += 1;
        }
    }
    assert!(others > 0, "no packets");
    marked
}

fn lab_traffic(lab: &Lab) -> Child {
    let words = "lab traffic flow h1 h3 --rate 1Mbit/s --for 1.5 --port 9601 --json";
    command(words.split(' ').chain(["--lab", &lab.name]))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Switches of another kind, driven by the manager: every packet has the whole path, and no host sees INT.
fn bmv2_finds_the_path(kind: &str, of_hopwise: &[&str], mode: &str) {
    if !has("simple_switch_grpc") {
        return skipped("lab: there is no `simple_switch_grpc` on PATH (BMv2)");
    }
    let Some(lab) = Lab::new(kind, "three-bmv2.toml") else {
        return;
    };
    let mut text = fs::read_to_string(&lab.file).unwrap();
    for name in of_hopwise {
        let start = text.find(&format!("name = \"{name}\"")).unwrap();
        let kind = start + text[start..].find("kind = \"bmv2\"").unwrap();
        text.replace_range(kind..kind + "kind = \"bmv2\"".len(), "");
    }
    if mode == "sf" {
        text = text.replace("kind = \"bmv2\"", "kind = \"bmv2\"\nprogram = \"sf\"");
    }
    fs::write(
        &lab.file,
        text.replace("mode = \"md\"", &format!("mode = \"{mode}\"")),
    )
    .unwrap();
    let made = lab.up();
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let collector = Collector::of(&lab.status());
    if has("ping") {
        for address in ["10.0.3.1", "fd00:3::1"] {
            let said = lab.exec("h1", &format!("ping -c 3 -i 0.2 -W 5 {address}"));
            assert!(said.contains(" 0% packet loss"), "{said}");
        }
    }
    let directory = TempDir::new();
    let file = directory.join("host.pcap");
    let words = format!(
        "lab capture s3-h3 {} --for 20 --packets 60 --lab {}",
        file.display(),
        lab.name
    );
    let capture = command(words.split(' ')).stdout(Stdio::piped()).spawn().unwrap();
    for (words, port, path) in [
        ("h1 h3", 9161, [11, 12, 13]),
        ("h3 h1 -6", 9162, [13, 12, 11]),
        ("h1 h3", 9163, [11, 12, 13]),
    ] {
        // The collector learns the hop count of SF-INT from 64 reports.
        let seconds = if mode == "sf" { 3 } else { 1 };
        let words =
            format!("traffic flow {words} --rate 100kbit/s --size 300 --for {seconds} --port {port} --json");
        // Slowly, since BMv2 drops what its queue of 64 packets does not hold. Packets with INT would be refused by the receiver.
        lab.lossless(&words);
        collector.wait_for_path(port, &path);
    }
    collector.wait_for("complete", "/intents/all", |intent| intent["state"] == "complete");
    // What the program has counted is read by the manager.
    let of_bmv2 = ["s1", "s2", "s3"]
        .into_iter()
        .find(|name| !of_hopwise.contains(name))
        .unwrap();
    collector.wait_for("counters", &format!("/devices/{of_bmv2}"), |device| {
        device["counters"]
            .as_array()
            .unwrap()
            .iter()
            .any(|counter| counter["packets"] != 0)
    });
    assert!(capture.wait_with_output().unwrap().status.success());
    assert_eq!(packets_with_int(&file), 0);
    // A killed switch is filled again, and forwards nothing before.
    lab.run("fault restart s2");
    let words = "traffic flow h1 h3 --rate 100kbit/s --size 300 --for 1 --port 9164 --json";
    lab.lossless(words);
    collector.wait_for_path(9164, &[11, 12, 13]);
    let refused = lab.try_run("fault loss s1-s2 2%");
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("injects no faults"), "{}", refused.stderr);
    lab.down();
    assert_eq!(lab.is_gone(), Ok(()));
}

#[test]
fn three_bmv2_switches_give_the_whole_path() {
    bmv2_finds_the_path("b", &[], "md");
}

#[test]
fn a_bmv2_switch_between_two_of_hopwise_is_in_the_path() {
    bmv2_finds_the_path("x", &["s1", "s3"], "md");
}

#[test]
fn bmv2_switches_send_postcards_beside_one_of_hopwise() {
    bmv2_finds_the_path("k", &["s2"], "postcard");
}

#[test]
fn bmv2_switches_with_sf_int_give_the_path_beside_one_of_hopwise() {
    bmv2_finds_the_path("g", &["s2"], "sf");
}

#[test]
fn without_bmv2_a_lab_with_it_is_refused() {
    let Some(lab) = Lab::new("n", "three-bmv2.toml") else {
        return;
    };
    // Only `ip` is on PATH.
    let directory = TempDir::new();
    let path = std::env::var_os("PATH").unwrap();
    let ip = std::env::split_paths(&path)
        .map(|folder| folder.join("ip"))
        .find(|file| file.is_file());
    std::os::unix::fs::symlink(ip.unwrap(), directory.join("ip")).unwrap();
    let words = ["lab", "up", lab.file.to_str().unwrap()];
    let output = command(words).env("PATH", directory.join("")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = "`simple_switch_grpc` is not on PATH, and the lab needs it for switches of kind \"bmv2\" (s1, s2, s3); install BMv2, or remove `kind`";
    assert!(
        output.status.code() == Some(2) && said.contains(expected),
        "{said}"
    );
    assert_eq!(lab.is_gone(), Ok(()));
}

#[test]
fn switches_report_by_dta_through_a_translator() {
    let Some(lab) = Lab::new("d", "dta.toml") else {
        return;
    };
    let made = lab.up();
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let collector = Collector::of(&lab.status());
    collector.wait_for("a link of the translator", "/dta", |memory| {
        memory["links"][0]["up"] == true
    });
    lab.lossless("traffic flow h1 h2 --rate 1Mbit/s --for 0.5 --port 9601 --json");
    let answer = collector.wait_for("a path", "/dta/stores/paths/get?key=10.0.2.1", |answer| {
        answer["answer"] == "found"
    });
    assert_eq!(
        answer["fields"]["value"],
        serde_json::json!([11, 12, 0, 0, 0]),
        "{answer:#}"
    );
    // A fault reconfigures the switches at its link; reporting continues.
    lab.run("fault delay s1-s2 1ms");
    lab.run("traffic flow h2 h1 --rate 1Mbit/s --for 0.5 --port 9602 --json");
    let path = "/dta/stores/paths/get?key=10.0.1.1";
    let back = collector.wait_for("a path back", path, |answer| answer["answer"] == "found");
    assert_eq!(
        back["fields"]["value"],
        serde_json::json!([12, 11, 0, 0, 0]),
        "{back:#}"
    );
    lab.down();
    assert_eq!(lab.is_gone(), Ok(()));
}

#[test]
fn postcards_through_an_aggregator_make_no_false_path() {
    let Some(lab) = Lab::new("a", "three-switches.toml") else {
        return;
    };
    let text = fs::read_to_string(&lab.file).unwrap();
    fs::write(&lab.file, format!("{text}\n[aggregator]\ntimer = \"10ms\"\n")).unwrap();
    let made = lab.up();
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let collector = Collector::of(&lab.status());
    lab.run("mode postcard");
    lab.run("fault delay s2-s3 5ms");
    lab.run("traffic flow h1 h3 --rate 4Mbit/s --size 500 --for 1 --port 9701 --json");
    let path = serde_json::json!([11, 12, 13]);
    collector.wait_for("the path", "/flows?limit=100", |answer| {
        answer["flows"]
            .as_array()
            .unwrap()
            .iter()
            .any(|flow| flow["path"] == path)
    });
    for event in path_events(&collector) {
        assert_eq!(event["path"], path, "{event:#}");
    }
    lab.down();
}

#[test]
fn remains_of_a_crash_are_found_and_removed() {
    let Some(lab) = Lab::new("c", "leaf-spine.toml") else {
        return;
    };
    // The program that creates the lab is killed during creation, at different moments.
    for namespaces in [1, 6, 12] {
        let mut making = command([
            "lab".as_ref(),
            "up".as_ref(),
            lab.file.as_os_str(),
            "--api".as_ref(),
            "127.0.0.1:0".as_ref(),
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
        let prefix = format!("hw-{}-", lab.name);
        let there = || {
            let names = fs::read_dir("/run/netns")
                .into_iter()
                .flatten()
                .filter_map(Result::ok);
            names
                .filter(|name| name.file_name().to_string_lossy().starts_with(&prefix))
                .count()
        };
        let start = Instant::now();
        while there() < namespaces {
            assert!(start.elapsed() < TIMEOUT, "it is not being made");
            crate::support::pause();
        }
        making.kill().unwrap();
        making.wait().unwrap();
        let status = hopwise(["lab", "status", &lab.name]);
        assert!(
            status.stderr.contains("is incomplete; remove the rest with"),
            "{}",
            status.stderr
        );
        lab.down();
        assert_eq!(lab.is_gone(), Ok(()));
    }
    // A complete lab, of which a switch and the collector are killed.
    let made = lab.up();
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    assert_eq!(hopwise(["lab", "status", &lab.name]).code, Some(0));
    for name in ["leaf1", "collector"] {
        let file = format!("/run/hopwise/lab-{}/{name}.toml", lab.name);
        let all = nic::process::all().unwrap();
        let process = all
            .into_iter()
            .find(|process| process.command().contains(&file))
            .unwrap();
        process.signal(nic::process::Signal::Kill).unwrap();
        assert!(process.wait(TIMEOUT));
    }
    let status = hopwise(["lab", "status", &lab.name]);
    assert_eq!(status.code, Some(1));
    assert!(
        status.stdout.contains("leaf1: does not answer"),
        "{}",
        status.stdout
    );
    lab.down();
    assert_eq!(lab.is_gone(), Ok(()));
    let again = hopwise(["lab", "down", &lab.name]);
    assert_eq!(again.code, Some(2), "{}", again.stdout);
}

#[test]
fn a_failure_halfway_leaves_nothing() {
    let Some(lab) = Lab::new("f", "three-switches.toml") else {
        return;
    };
    let text = fs::read_to_string(&lab.file).unwrap();
    // Only the collector itself detects this error, after everything else was created.
    fs::write(
        &lab.file,
        format!("{text}\n[collector.store]\ndir = \"/proc/nowhere\"\n"),
    )
    .unwrap();
    let failed = lab.up();
    assert_eq!(failed.code, Some(2), "{}", failed.stdout);
    assert!(
        failed.stderr.contains("Nothing was left behind."),
        "{}",
        failed.stderr
    );
    assert_eq!(lab.is_gone(), Ok(()));
}

#[test]
fn a_bad_file_is_refused_before_anything_is_made() {
    let directory = TempDir::new();
    let file = directory.join("bad.toml");
    fs::write(
        &file,
        "name = \"bad\"\n[collector]\n[[links]]\nbetween = [\"a\", \"a\"]\n",
    )
    .unwrap();
    let run = hopwise(["lab".as_ref(), "up".as_ref(), file.as_os_str()]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("bad.toml:4:"), "{}", run.stderr);
    let missing = hopwise(["lab", "up", "/nonexistent/lab.toml"]);
    assert!(
        missing
            .stderr
            .contains("name a topology file, such as examples/lab/three-switches.toml"),
        "{}",
        missing.stderr
    );
}
