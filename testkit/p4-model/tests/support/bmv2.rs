//! Runs a program in BMv2: packets from a capture in, captures of its ports out.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// For the last packets, which may have been dropped.
const PATIENCE: Duration = Duration::from_secs(15);

/// Says on standard error that a test is skipped, although it passes.
pub(crate) fn skipped(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

/// A capture (libpcap, Ethernet) of these frames, ten milliseconds apart: no queue overflows.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![
        0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0,
    ];
    for (number, frame) in frames.iter().enumerate() {
        let (number, len) = (number as u32, (frame.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(number / 100).to_le_bytes());
        bytes.extend_from_slice(&(number % 100 * 10_000).to_le_bytes());
        bytes.extend_from_slice(&len);
        bytes.extend_from_slice(&len);
        bytes.extend_from_slice(frame);
    }
    bytes
}

/// The frames of a capture that are there so far.
fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let mut rest = bytes.get(24..).unwrap_or_default();
    let mut frames = Vec::new();
    while let Some(head) = rest.first_chunk::<16>() {
        let len = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let Some(frame) = rest.get(16..16 + len) else {
            break;
        };
        frames.push(frame.to_vec());
        rest = &rest[16 + len..];
    }
    frames
}

struct Running(Child, PathBuf);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

/// Whether a program is on PATH.
pub(crate) fn is_found(name: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|at| at.join(name).exists()))
}

/// A switch that executes `json` with these commands of `simple_switch_CLI`, and reads `input` at port `from`.
fn start(json: &Path, commands: &str, from: u16, input: &[Vec<u8>], ports: &[u16]) -> Option<Running> {
    /// Distinguishes the switches of one process. Relaxed: threads only need different numbers.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (name, number) = (
        json.file_stem()?.to_string_lossy(),
        NEXT.fetch_add(1, Ordering::Relaxed),
    );
    let folder = std::env::temp_dir().join(format!("hopwise-bmv2-{}-{number}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let thrift = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
        .to_string();
    let mut switch = Command::new("simple_switch");
    // The packets are read a few seconds later, when the tables are filled.
    switch
        .current_dir(&folder)
        .args(["--use-files", "5", "--thrift-port", &thrift]);
    for port in [from].iter().chain(ports).collect::<BTreeSet<_>>() {
        let packets = if *port == from {
            capture(input)
        } else {
            capture(&[])
        };
        std::fs::write(folder.join(format!("p{port}_in.pcap")), packets).unwrap();
        switch.args(["-i", &format!("{port}@p{port}")]);
    }
    let child = switch
        .arg(json)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let running = Running(child, folder);
    let begun = Instant::now();
    loop {
        let mut cli = Command::new("simple_switch_CLI");
        cli.args(["--thrift-port", &thrift])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut cli = cli.spawn().ok()?;
        cli.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
        let done = cli.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        if done.status.success() && !said.contains("Could not connect") {
            assert!(!said.contains("Error") && !said.contains("Invalid"), "{said}");
            return Some(running);
        }
        assert!(begun.elapsed() < LIMIT, "simple_switch does not start: {said}");
    }
}

/// The frames that BMv2 sends from each port, of `input` at port `from`. `None`: it is not on PATH, and the test is skipped. Ends when
/// there are as many as `expected`.
pub(crate) fn run(
    (test, program): (&str, &str),
    from: u16,
    commands: &str,
    input: &[Vec<u8>],
    expected: &BTreeMap<u16, usize>,
) -> Option<BTreeMap<u16, Vec<Vec<u8>>>> {
    if !is_found("simple_switch") || !is_found("simple_switch_CLI") {
        skipped(test, "simple_switch is not installed");
        return None;
    }
    let json = std::env::current_dir()
        .unwrap()
        .join("../../p4/v1model")
        .join(program);
    let ports: Vec<u16> = expected.keys().copied().collect();
    let Some(running) = start(&json, commands, from, input, &ports) else {
        skipped(test, "simple_switch does not start");
        return None;
    };
    let begun = Instant::now();
    let wait = PATIENCE + Duration::from_millis(10 * input.len() as u64);
    loop {
        let got: BTreeMap<_, _> = ports
            .iter()
            .map(|port| (*port, frames(&running.1.join(format!("p{port}_out.pcap")))))
            .collect();
        if begun.elapsed() > wait || got.iter().all(|(port, frames)| frames.len() == expected[port]) {
            return Some(got);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
