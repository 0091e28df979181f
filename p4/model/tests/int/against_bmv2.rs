//! The model and BMv2 do the same. Where `simple_switch` and `simple_switch_CLI` are not on PATH, the test is skipped.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use p4_model::{Key, Program};
use testkit::rng::Rng;

use crate::packets::packet;
use crate::pair::{COLLECTOR, Pair, Setup};

/// Items that do not depend on time: node id and interfaces.
const TIMELESS: u16 = 0xc000;
const PACKETS: usize = 200;

/// The commands of `simple_switch_CLI`.
fn commands(setup: &[Setup]) -> String {
    let mut text = String::new();
    let list = |values: &[u128]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    for one in setup {
        match one {
            Setup::Default(table, action, parameters) => {
                writeln!(text, "table_set_default {table} {action} {}", list(parameters)).unwrap();
            }
            Setup::Session(session, port) => writeln!(text, "mirroring_add {session} {port}").unwrap(),
            Setup::Entry(table, entry) => {
                let v6 = table.ends_with("v6");
                let key = |key: &Key| match *key {
                    Key::Exact(value) => value.to_string(),
                    Key::Lpm(_, len) if v6 => format!("::/{len}"),
                    Key::Lpm(value, len) => format!("{value}/{len}"),
                    Key::Ternary(value, mask) => format!("{value}&&&{mask}"),
                    Key::Range(first, last) => format!("{first}->{last}"),
                };
                let keys: Vec<String> = entry.keys.iter().map(key).collect();
                let priority = if entry.keys.len() > 1 { "10" } else { "" };
                let (keys, parameters) = (keys.join(" "), list(&entry.parameters));
                writeln!(text, "table_add {table} {} {keys} => {parameters} {priority}", entry.action)
                    .unwrap();
            }
        }
    }
    text
}

/// A capture (libpcap, Ethernet) of these frames.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0];
    for (number, frame) in frames.iter().enumerate() {
        let len = (frame.len() as u32).to_le_bytes();
        // Ten milliseconds apart: no queue overflows.
        bytes.extend_from_slice(&(number as u32 / 100).to_le_bytes());
        bytes.extend_from_slice(&(number as u32 % 100 * 10_000).to_le_bytes());
        bytes.extend_from_slice(&len);
        bytes.extend_from_slice(&len);
        bytes.extend_from_slice(frame);
    }
    bytes
}

/// The frames of a capture; those that are there so far.
fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let mut rest = bytes.get(24..).unwrap_or_default();
    let mut frames = Vec::new();
    while let Some(head) = rest.first_chunk::<16>() {
        let len = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let Some(frame) = rest.get(16..16 + len) else { break };
        frames.push(frame.to_vec());
        rest = &rest[16 + len..];
    }
    frames
}

/// Clears sequence numbers, which count lost reports as well, and the ingress timestamp, which 1.0 and drops always have.
fn mask(report: &mut [u8]) {
    const DROP: u8 = 0x80;
    if report[0] >> 4 == 1 {
        return report[8..16].fill(0);
    }
    report[1..4].fill(0);
    if report[11] & DROP != 0 {
        report[24..32].fill(0);
    }
}

struct Running(Child, PathBuf);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

/// A switch with these tables that processes these packets, and where its output goes.
fn start(json: &Path, setup: &[Setup], input: &[Vec<u8>]) -> Option<Running> {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("hopwise-bmv2-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("p1_in.pcap"), capture(input)).unwrap();
    for name in ["p2_in.pcap", "p9_in.pcap"] {
        std::fs::write(folder.join(name), capture(&[])).unwrap();
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut switch = Command::new("simple_switch");
    // The packets are read a few seconds later, when the tables are filled.
    switch.current_dir(&folder).args(["--use-files", "3", "--thrift-port", &port]);
    switch.args(["-i", "1@p1", "-i", "2@p2", "-i", &format!("{COLLECTOR}@p9")]).arg(json);
    let child = switch.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    let running = Running(child, folder);
    let begun = Instant::now();
    loop {
        let mut cli = Command::new("simple_switch_CLI");
        cli.args(["--thrift-port", &port]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut cli = cli.spawn().ok()?;
        cli.stdin.take().unwrap().write_all(commands(setup).as_bytes()).unwrap();
        let done = cli.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        if done.status.success() && !said.contains("Could not connect") {
            assert!(!said.contains("Error") && !said.contains("Invalid"), "{said}");
            return Some(running);
        }
        assert!(begun.elapsed() < LIMIT, "simple_switch does not start: {said}");
    }
}

const LIMIT: Duration = Duration::from_secs(60);
/// For the last packets, which may have been dropped.
const PATIENCE: Duration = Duration::from_secs(15);

fn skipped(why: &str) {
    // Directly, so that it is seen although the test passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED the_model_and_bmv2_do_the_same: {why}");
}

#[test]
fn the_model_and_bmv2_do_the_same() {
    let found = |name: &str| {
        std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|at| at.join(name).exists()))
    };
    if !found("simple_switch") || !found("simple_switch_CLI") {
        return skipped("simple_switch is not installed");
    }
    let program = Program::read(crate::PROGRAM).unwrap();
    let json = std::env::current_dir().unwrap().join("../v1model/int.json");
    let mut rng = Rng(99);
    let mut input: Vec<Vec<u8>> = (0..PACKETS).map(|_| packet(&mut rng)).collect();
    for edges in [(true, false), (false, false), (true, true), (false, true)] {
        let mut pair = Pair::new(&mut rng, &program, edges, TIMELESS);
        let Some(running) = start(&json, &pair.setup, &input) else {
            return skipped("simple_switch does not start");
        };
        let mut expected = [Vec::new(), Vec::new()];
        for frame in &input {
            for sent in pair.p4.process(frame, &p4_model::Arrival { port: 1, ..Default::default() }) {
                expected[usize::from(sent.port == COLLECTOR)].push(sent.frame);
            }
        }
        let folder = running.1.clone();
        let got = || [frames(&folder.join("p2_out.pcap")), frames(&folder.join("p9_out.pcap"))];
        let begun = Instant::now();
        while got().map(|frames| frames.len()) != [expected[0].len(), expected[1].len()]
            && begun.elapsed() < PATIENCE
        {
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut got = got();
        expected[1].iter_mut().chain(&mut got[1]).for_each(|report| mask(&mut report[42..]));
        for (port, (expected, got)) in expected.iter().zip(&got).enumerate() {
            // BMv2 drops packets when the machine is busy: what it sends is compared in order.
            let mut at = 0;
            for frame in got {
                let found = expected[at..].iter().position(|wanted| wanted == frame);
                let Some(skipped) = found else {
                    let next = expected.get(at);
                    panic!("edges {edges:?}, output {port}\n  model {next:02x?}\n  bmv2  {frame:02x?}");
                };
                at += skipped + 1;
            }
            let (sent, wanted) = (got.len(), expected.len());
            assert!(sent * 2 >= wanted, "edges {edges:?}, output {port}: only {sent} of {wanted}");
        }
        // What the source and the transit sent is what the next one receives; some of it is corrupted.
        let [packets, _] = got;
        if !packets.is_empty() {
            input = packets;
        }
        for frame in input.iter_mut().step_by(7) {
            rng.corrupt(frame);
        }
        input.retain(|frame| frame.len() >= 14);
    }
}
