//! Shared by the test programs of this folder: runs of hopwise, temporary directories, captures written from bytes.

pub(crate) mod roles;
pub(crate) mod schema;
pub(crate) mod server;
pub(crate) mod tls;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Prints that something was not tested, bypassing the test runner, which captures the output of passing tests.
pub(crate) fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {what}");
}

/// Result of a run of the program.
#[derive(Debug)]
pub(crate) struct Run {
    /// Exit code; `None` when a signal ended it.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

impl Run {
    /// Standard output as one JSON value per line.
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}")))
            .collect()
    }
}

/// Runs the real program to its end.
pub(crate) fn hopwise<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
    let output = command(args).output().unwrap();
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The real program with these arguments, not started yet.
pub(crate) fn command<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hopwise"));
    command
        .args(args)
        .env_remove("HOPWISE_TOKEN")
        .env_remove("NETBOX_TOKEN")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null());
    command
}

/// A copy of the program that any user may execute. Another process writes it: a file that a process being started holds open for
/// writing (see `testkit::descriptors`) cannot be executed.
pub(crate) fn public_copy(directory: &TempDir) -> PathBuf {
    let copy = directory.join("hopwise");
    let status = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_hopwise"))
        .arg(&copy)
        .status()
        .unwrap();
    assert!(status.success(), "cp: {status}");
    copy
}

/// Pauses between two polls. On a slow machine, a busy loop takes CPU time from the process that the test waits for.
pub(crate) fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(5));
}

/// A temporary directory, removed on drop.
#[derive(Debug)]
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    /// A new, empty directory.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hopwise-test-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A path inside.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A capture inside.
    pub(crate) fn capture(&self, name: &str, frames: &[Vec<u8>]) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, pcap(frames)).unwrap();
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Receive time of the first frame of [`pcap`], ns since the epoch; the next ones follow at intervals of a microsecond.
pub(crate) const FIRST_TS: u64 = 1_700_000_000_000_000_000;

/// A capture in nanosecond pcap: Ethernet frames, one microsecond apart from [`FIRST_TS`] on.
pub(crate) fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        out.extend(word.to_le_bytes());
    }
    for (index, frame) in frames.iter().enumerate() {
        let ts = FIRST_TS + index as u64 * 1000;
        let length = frame.len() as u32;
        for word in [
            (ts / 1_000_000_000) as u32,
            (ts % 1_000_000_000) as u32,
            length,
            length,
        ] {
            out.extend(word.to_le_bytes());
        }
        out.extend(frame);
    }
    out
}

/// A UDP datagram from 192.0.2.1 to port 32766 of 192.0.2.100, in an Ethernet frame.
pub(crate) fn report_frame(payload: &[u8]) -> Vec<u8> {
    udp_frame(32_766, payload)
}

/// A UDP datagram from 192.0.2.1 to `port` of 192.0.2.100, in an Ethernet frame.
pub(crate) fn udp_frame(port: u16, payload: &[u8]) -> Vec<u8> {
    let udp_length = (8 + payload.len()) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let mut ip = vec![0x45, 0];
    ip.extend((20 + udp_length).to_be_bytes());
    ip.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 100]);
    let sum: u32 = ip
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(ip);
    frame.extend(40_000_u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend(udp_length.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Bytes from hexadecimal digits; other characters are ignored.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// A capture of `tests/captures`.
pub(crate) fn capture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/captures")
        .join(name)
}
