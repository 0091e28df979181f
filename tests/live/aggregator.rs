//! The aggregator in the real program: postcards over loopback, aggregates over loopback.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    process::{Child, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use serde_json::Value;
use wire::Aggregate;
use wire::aggregate::Kind;

use crate::support::{TempDir, command, hex, hopwise, text};

/// Time limit of every step.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A running aggregator and the socket that receives its aggregates.
struct Stage {
    child: Child,
    lines: Receiver<String>,
    input: SocketAddr,
    api: SocketAddr,
    collector: UdpSocket,
    _directory: TempDir,
}

impl Stage {
    fn start(settings: &str) -> Self {
        let directory = TempDir::new();
        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        collector.set_read_timeout(Some(TIMEOUT)).unwrap();
        let to = collector.local_addr().unwrap();
        let config = directory.join("aggregator.toml");
        let file = format!(
            "[api]\nlisten = \"127.0.0.1:0\"\n[aggregator]\nlisten = \"udp://127.0.0.1:0\"\nforward = [\"{to}\"]\n{settings}\n"
        );
        fs::write(&config, file).unwrap();
        let mut run = command(["run", "-c", text(&config)]);
        let mut child = run
            .current_dir(directory.join(""))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let stderr = child.stderr.take().unwrap();
        thread::spawn(move || {
            BufReader::new(stderr)
                .lines()
                .map_while(Result::ok)
                .try_for_each(|l| sender.send(l))
        });
        let after = |mark: &str| loop {
            let line = lines
                .recv_timeout(TIMEOUT)
                .unwrap_or_else(|_| panic!("no line with {mark:?}"));
            if let Some((_, rest)) = line.split_once(mark) {
                let address = rest.split([',', ' ', '/']).next().unwrap();
                break address.parse().unwrap();
            }
        };
        let (input, api) = (after("udp://"), after("http://"));
        Self {
            child,
            lines,
            input,
            api,
            collector,
            _directory: directory,
        }
    }

    fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.api).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.api
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// The answer of the API once `done` is true for it.
    fn view(&self, done: impl Fn(&Value) -> bool) -> Value {
        // Each answer is at most as old as one sleep of the aggregator; the number of tries is limited.
        for _ in 0..100_000 {
            let view: Value = serde_json::from_str(&self.get("/api/v1/aggregator").1).unwrap();
            if done(&view) {
                return view;
            }
            crate::support::pause();
        }
        panic!("{}", self.get("/api/v1/aggregator").1);
    }

    fn next(&self) -> Vec<u8> {
        let mut buffer = [0; 2048];
        let length = self.collector.recv(&mut buffer).unwrap();
        buffer[..length].to_vec()
    }

    /// Stops it cleanly.
    fn stop(&mut self) {
        let status = std::process::Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        assert!(status.unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A postcard of node 21 about flow `flow`, number `seq`.
fn postcard(seq: u8, flow: u16) -> Vec<u8> {
    hex(&format!(
        "200000{seq:02x} 00000015 10080620 1c005043 80000000 0100002a 17a3b2c1 d0e0f000 17a3b2c1 d0e0f5dc 0000{flow:04x}"
    ))
}

#[test]
fn postcards_become_aggregates_and_counters_balance() {
    let mut stage = Stage::start("kind = \"agg_n\"\nr = 3\ntimer = \"10m\"\naggregator = 99");
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    // Number 4 is lost; the last datagram is not a report.
    for (seq, flow) in [(1, 7), (2, 8), (3, 9), (5, 10)] {
        sender.send_to(&postcard(seq, flow), stage.input).unwrap();
    }
    sender.send_to(b"\x90", stage.input).unwrap();
    let first = stage.next();
    let aggregate = Aggregate::parse(&first).unwrap();
    let header = aggregate.header();
    assert_eq!(
        (header.kind, header.aggregator, header.sequence),
        (Kind::AggNode, 99, 0)
    );
    assert_eq!((header.node_scope, header.by_timer), (Some(21), false));
    let postcards: Vec<_> = aggregate
        .postcards()
        .map(|postcard| (postcard.flow_id(), postcard.hop_latency(), postcard.queue()))
        .collect();
    let postcard = |flow| (Some(flow), Some(1500), Some((1, 42)));
    assert_eq!(postcards, [postcard(7), postcard(8), postcard(9)]);
    let view = stage.view(|view| view["datagrams"] == 5);
    assert_eq!(
        (&view["postcards"], &view["pending"], &view["balanced"]),
        (&4.into(), &1.into(), &true.into())
    );
    assert_eq!(view["unreadable"], serde_json::json!({"unknown_version": 1}));
    assert_eq!(view["nodes"][0]["lost"], 1);
    assert_eq!(view["forward"][0]["datagrams"], 1);
    let metrics = stage.get("/metrics").1;
    for line in [
        "hopwise_aggregator_postcards_total 4",
        "hopwise_aggregator_sent_postcards_total{cause=\"full\"} 3",
        "hopwise_aggregator_refused_total{reason=\"unknown_version\"} 1",
        "hopwise_aggregator_lost_total{node=\"21\",hw_id=\"0\",seq_bits=\"22\"} 1",
        "hopwise_aggregator_untracked_total 0",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    // There is no collector in this process.
    assert!(stage.get("/").0.starts_with("HTTP/1.1 404"));
    stage.stop();
    let last = stage.next();
    let aggregate = Aggregate::parse(&last).unwrap();
    assert_eq!(
        (aggregate.header().sequence, aggregate.postcards().count()),
        (1, 1),
        "pending postcards are sent"
    );
    let said: Vec<String> = stage.lines.iter().collect();
    assert!(
        said.iter().any(|line| line.contains("the aggregator stopped")),
        "{said:?}"
    );
}

#[test]
fn postcards_of_senders_that_are_not_allowed_are_refused_and_counted() {
    let postcards = |allow: &str| {
        let stage = Stage::start(&format!("kind = \"agg\"\nallow = [\"{allow}\"]"));
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for seq in 1..4 {
            sender.send_to(&postcard(seq, 7), stage.input).unwrap();
        }
        let view = stage.view(|view| view["datagrams"] == 3);
        assert_eq!(view["balanced"], true);
        (view["postcards"].clone(), view["unreadable"].clone())
    };
    assert_eq!(postcards("127.0.0.0/8"), (3.into(), serde_json::json!({})));
    assert_eq!(
        postcards("10.0.0.0/8"),
        (0.into(), serde_json::json!({"sender_not_allowed": 3}))
    );
}

#[test]
fn a_timer_sends_what_waits() {
    let stage = Stage::start("kind = \"cor_nf\"\nr = 1000\ntimer = \"20ms\"");
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.send_to(&postcard(1, 7), stage.input).unwrap();
    let payload = stage.next();
    let aggregate = Aggregate::parse(&payload).unwrap();
    assert!(aggregate.header().by_timer);
    let summaries: Vec<_> = aggregate
        .summaries()
        .map(|summary| (summary.max, summary.count))
        .collect();
    assert_eq!(summaries, [(1500, 1), (42, 1)]);
}

#[test]
fn a_wrong_section_is_reported_with_its_line() {
    let dir = TempDir::new();
    let config = dir.join("wrong.toml");
    for (settings, message) in [
        ("", "no destination"),
        ("forward = [\"192.0.2.1:32767\"]\nr = 46", "r must be 1 to 45"),
        (
            "forward = [\"192.0.2.1:32767\"]\ninterop = true",
            "interop needs kind agg_n or agg_nf",
        ),
        (
            "forward = [\"192.0.2.1:32767\"]\nregisters = 1000",
            "registers must be a power of two",
        ),
        (
            "forward = [\"192.0.2.1:32767\"]\nprofile = \"x\"",
            "there is no profile `x`",
        ),
        (
            "forward = [\"127.0.0.1:32766\"]",
            "this is the aggregator's own listen address",
        ),
        (
            "forward = [\"192.0.2.1:32767\"]\nlisten = \"xdp://eth0\"",
            "an aggregator reads UDP sockets",
        ),
    ] {
        fs::write(&config, format!("[aggregator]\n{settings}\n")).unwrap();
        let run = hopwise(["check", "-c", text(&config)]);
        assert_eq!(run.code, Some(2), "{settings}");
        assert!(
            run.stderr.contains(message) && run.stderr.contains("wrong.toml:"),
            "{}",
            run.stderr
        );
    }
    fs::write(&config, "[aggregator]\nforward = [\"192.0.2.1:32767\"]\n").unwrap();
    let run = hopwise(["check", "-c", text(&config)]);
    let expected = "ok: aggregator agg(25) from udp://*:32766 to 192.0.2.1:32767, 1 MiB, no collector, API on http://127.0.0.1:8080\n";
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), expected));
}

#[test]
fn losses_of_every_subsystem_of_every_node_are_shown() {
    const NODES: u32 = 1100;
    let stage = Stage::start("");
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut sent = 0_u64;
    // Subsystem 0 of each node loses nothing, subsystem 1 one postcard.
    for node in 0..NODES {
        for (hw_id, seq) in [(0_u32, 1), (0, 2), (1, 1), (1, 3)] {
            let mut bytes = postcard(seq, 7);
            bytes[..4].copy_from_slice(&(0x2000_0000 | hw_id << 22 | u32::from(seq)).to_be_bytes());
            bytes[4..8].copy_from_slice(&node.to_be_bytes());
            sender.send_to(&bytes, stage.input).unwrap();
            sent += 1;
        }
        if node % 50 == 49 {
            // The socket's buffer holds no more.
            stage.view(|view| view["datagrams"].as_u64() == Some(sent));
        }
    }
    let view = stage.view(|view| view["datagrams"].as_u64() == Some(sent));
    let listed = view["nodes"].as_array().unwrap();
    let lost: u64 = listed.iter().filter_map(|node| node["lost"].as_u64()).sum();
    let untracked = view["nodes_full"].as_u64().unwrap();
    assert_eq!(
        (listed.len(), lost, untracked),
        (2 * NODES as usize, u64::from(NODES), 0)
    );
    let metrics = stage.get("/metrics").1;
    let series: Vec<_> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("hopwise_aggregator_lost_total{"))
        .collect();
    let labels: std::collections::HashSet<_> = series
        .iter()
        .map(|line| line.split_once('}').unwrap().0)
        .collect();
    assert_eq!(
        (series.len(), labels.len()),
        (2 * NODES as usize, 2 * NODES as usize)
    );
    assert!(
        labels.contains("node=\"5\",hw_id=\"1\",seq_bits=\"22\""),
        "{:?}",
        series.first()
    );
}
