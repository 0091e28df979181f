//! A Linux guest whose kernel speaks RoCEv2 in software: frames to and from it over a pair of local sockets, and its queue
//! pairs driven by lines on its serial port (`peer.c` lists them). Made by `scripts/rxe-guest`; no root, no network.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longest to wait for the guest to start: about 7 s on an idle machine, without hardware help.
const BOOT: Duration = Duration::from_secs(240);
const ANSWER: Duration = Duration::from_secs(60);

/// A running guest; dropping this stops it.
pub(crate) struct Guest {
    child: Child,
    orders: ChildStdin,
    lines: Receiver<String>,
    wire: UnixDatagram,
    peer: PathBuf,
    folder: PathBuf,
    /// The guest's memory region: address, key, length.
    pub(crate) address: u64,
    pub(crate) rkey: u32,
    pub(crate) length: u64,
}

impl Guest {
    /// Starts the guest, or returns the reason why it cannot start.
    pub(crate) fn boot() -> Result<Self, String> {
        let made = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("rxe");
        let (kernel, tree) = (made.join("vmlinuz"), made.join("initrd.gz"));
        if !kernel.exists() || !tree.exists() {
            return Err(format!(
                "no guest in {}; `scripts/rxe-guest {0}` makes it",
                made.display()
            ));
        }
        let folder = std::env::temp_dir().join(format!("hopwise-rxe-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let (ours, peer) = (folder.join("ours"), folder.join("peer"));
        let wire = UnixDatagram::bind(&ours).map_err(|error| error.to_string())?;
        let netdev = format!(
            "dgram,id=net,local.type=unix,local.path={},remote.type=unix,remote.path={}",
            peer.display(),
            ours.display()
        );
        let mut child = Command::new("qemu-system-x86_64")
            .args([
                "-M",
                "q35",
                "-accel",
                "tcg,thread=multi",
                "-cpu",
                "max",
                "-m",
                "384",
                "-smp",
                "2",
            ])
            .args([
                "-display",
                "none",
                "-serial",
                "stdio",
                "-monitor",
                "none",
                "-no-reboot",
                "-nodefaults",
            ])
            .args([
                "-kernel".as_ref(),
                kernel.as_os_str(),
                "-initrd".as_ref(),
                tree.as_os_str(),
            ])
            .args([
                "-append",
                "console=ttyS0 quiet mitigations=off no_timer_check panic=-1",
                "-netdev",
                &netdev,
            ])
            .args([
                "-device",
                "virtio-net-pci,netdev=net,mac=02:00:00:00:00:02,romfile=",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| format!("qemu-system-x86_64: {error} (package qemu-system-x86)"))?;
        let orders = child.stdin.take().ok_or("no way in")?;
        let said = BufReader::new(child.stdout.take().ok_or("no way out")?);
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                if sender.send(line.trim_end().to_owned()).is_err() {
                    break;
                }
            }
        });
        let mut guest = Self {
            child,
            orders,
            lines,
            wire,
            peer,
            folder,
            address: 0,
            rkey: 0,
            length: 0,
        };
        guest.wait_until_ready()?;
        Ok(guest)
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let mut output = String::new();
        loop {
            let Ok(line) = self.lines.recv_timeout(BOOT) else {
                return Err(format!("the guest did not start; it said:\n{output}"));
            };
            if let Some(rest) = line.strip_prefix("ready ") {
                let mut words = rest.split(' ').map(|word| u64::from_str_radix(word, 16));
                let mut word = || {
                    words
                        .next()
                        .and_then(Result::ok)
                        .ok_or("a ready line of three numbers")
                };
                (self.address, self.rkey, self.length) = (word()?, word()? as u32, word()?);
                return Ok(());
            }
            let _ = writeln!(output, "{line}");
        }
    }

    /// Gives an order and returns what the guest answers after `ok`.
    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.order(order);
        self.answer(order)
    }

    /// Gives an order that is answered later: after frames that the test must respond to.
    pub(crate) fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("the guest listens");
    }

    /// The answer to an order.
    pub(crate) fn answer(&mut self, order: &str) -> String {
        loop {
            let line = self
                .lines
                .recv_timeout(ANSWER)
                .unwrap_or_else(|_| panic!("no answer to {order:?}"));
            if let Some(rest) = line.strip_prefix("ok") {
                return rest.trim().to_owned();
            }
            // The kernel may print messages in between.
            assert!(!line.starts_with("failed"), "{order:?}: {line}");
        }
    }

    /// The answer to an order, if there is one yet.
    pub(crate) fn answered(&mut self) -> Option<String> {
        self.lines
            .try_iter()
            .find_map(|line| line.strip_prefix("ok").map(|rest| rest.trim().to_owned()))
    }

    /// The numbers of an answer.
    pub(crate) fn numbers(&mut self, order: &str) -> Vec<u64> {
        let answer = self.ask(order);
        answer
            .split(' ')
            .map(|word| word.parse().unwrap_or_else(|_| panic!("{order:?}: {answer}")))
            .collect()
    }

    /// Some of the guest's memory.
    pub(crate) fn memory(&mut self, at: usize, len: usize) -> Vec<u8> {
        let hex = self.ask(&format!("dump {at} {len}"));
        assert_eq!(hex.len(), 2 * len, "{hex}");
        (0..len)
            .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("two hex digits"))
            .collect()
    }

    /// Puts a frame on the wire.
    pub(crate) fn send(&self, frame: &[u8]) {
        self.wire
            .send_to(frame, &self.peer)
            .expect("the guest's NIC accepts frames");
    }

    /// The next frame from the guest that is RoCEv2, if one comes in time.
    pub(crate) fn receive(&self, patience: Duration) -> Option<Vec<u8>> {
        let mut frame = vec![0; 9000];
        self.wire
            .set_read_timeout(Some(patience))
            .expect("a time to wait");
        loop {
            let len = self.wire.recv(&mut frame).ok()?;
            if is_rocev2(&frame[..len]) {
                frame.truncate(len);
                return Some(frame);
            }
        }
    }
}

/// UDP to port 4791, over IPv4 or IPv6 without extension headers: neighbour discovery and the like are ignored.
fn is_rocev2(frame: &[u8]) -> bool {
    let port = |at: usize| frame.get(at..at + 2) == Some(&4791_u16.to_be_bytes());
    match frame.get(12..14) {
        Some([0x08, 0x00]) => frame.get(23) == Some(&17) && port(36),
        Some([0x86, 0xdd]) => frame.get(20) == Some(&17) && port(56),
        _ => false,
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = writeln!(self.orders, "quit");
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
