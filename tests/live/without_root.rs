//! hopwise run by an ordinary user with capabilities only, in a network namespace. Needs root to be set up,
//! and `setpriv`; tests that cannot run are reported as skipped.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use nic::capabilities::{Cap, CapSet, Capabilities};
use nic::netns::Pair;
use serde_json::Value;

use crate::support::server::{TIMEOUT, assert_balanced, dropped, report, stage};
use crate::support::{TempDir, public_copy, skipped};

/// Address of the API, in a namespace of its own.
const API: &str = "127.0.0.1:8080";

/// The user and group `nobody`.
const NOBODY: u32 = 65534;

/// Capabilities for an interface.
const FOUR: [Cap; 4] = [Cap::BPF, Cap::NET_ADMIN, Cap::NET_RAW, Cap::IPC_LOCK];

/// hopwise reading `veth0` of a namespace, as nobody. Killed when dropped.
struct Unprivileged {
    child: Child,
    /// Its log until all inputs are open.
    log: String,
    pair: Pair,
    _directory: TempDir,
}

impl Drop for Unprivileged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Unprivileged {
    /// Starts it with these ambient capabilities, like the service.
    fn start(capabilities: &[Cap]) -> Option<Self> {
        let pair = Pair::create();
        let pair = pair
            .map_err(|error| skipped(&format!("without root: this needs root ({error})")))
            .ok()?;
        let directory = TempDir::new();
        let program = public_copy(&directory);
        fs::set_permissions(directory.join(""), fs::Permissions::from_mode(0o777)).unwrap();
        let given: Vec<String> = capabilities
            .iter()
            .map(|cap| cap.name().replacen("cap_", "+", 1))
            .collect();
        let mut command = Command::new("setpriv");
        command.args([
            format!("--reuid={NOBODY}"),
            format!("--regid={NOBODY}"),
            "--clear-groups".to_owned(),
        ]);
        if !given.is_empty() {
            let given = given.join(",");
            command.args([format!("--inh-caps={given}"), format!("--ambient-caps={given}")]);
        }
        command
            .arg(&program)
            .args(["run", "--listen", "xdp://veth0", "--api", API, "--store", "store"]);
        command
            .current_dir(directory.join(""))
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = pair.far.run(|| command.spawn()).unwrap().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut log = String::new();
        while !log.contains("http://") {
            assert!(lines.read_line(&mut log).unwrap() > 0, "{log}");
        }
        // Discards the rest, which would fill the pipe eventually.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Some(Self {
            child,
            log,
            pair,
            _directory: directory,
        })
    }

    /// The line of the log with `mark` in it.
    fn log_line(&self, mark: &str) -> &str {
        self.log
            .lines()
            .find(|line| line.contains(mark))
            .unwrap_or_else(|| panic!("no {mark:?} in {}", self.log))
    }

    fn status(&self) -> Value {
        let mut stream = self.pair.far.run(|| TcpStream::connect(API)).unwrap().unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let request = format!("GET /api/v1/status HTTP/1.1\r\nHost: {API}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap_or_else(|_| panic!("{text}"))
    }

    /// Sends reports from the other end of the link, and waits until all are accounted for.
    fn receives(&self, reports: u32) -> Value {
        let socket = self
            .pair
            .near
            .run(|| UdpSocket::bind((Pair::NEAR[0], 0)))
            .unwrap()
            .unwrap();
        let to = SocketAddr::new(Pair::FAR[0], 32766);
        let start = Instant::now();
        let came = |status: &Value| stage(status, "kernel")["in"].as_u64().unwrap();
        for seq in 0..reports {
            socket.send_to(&report(seq, 1, [1, 2, 3]), to).unwrap();
            // At most as many as the link can queue while its other end is not scheduled.
            while seq % 128 == 127 && came(&self.status()) <= u64::from(seq) {
                assert!(start.elapsed() < TIMEOUT, "{seq}");
            }
        }
        loop {
            let status = self.status();
            let seen = stage(&status, "kernel")["in"].as_u64().unwrap();
            let decoded = stage(&status, "decode")["in"].as_u64().unwrap();
            if seen == u64::from(reports) && decoded + dropped(&status, "kernel") == seen {
                assert_balanced(&status);
                return status;
            }
            assert!(start.elapsed() < TIMEOUT, "{status:#}");
        }
    }

    /// The capabilities of each thread, by its name.
    fn capabilities(&self) -> BTreeMap<String, Capabilities> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        tasks
            .filter_map(|task| {
                // A thread that has ended meanwhile has none.
                let read = |name: &str| fs::read_to_string(task.as_ref().ok()?.path().join(name)).ok();
                Some((
                    read("comm")?.trim().to_owned(),
                    Capabilities::parse(&read("status")?)?,
                ))
            })
            .collect()
    }
}

#[test]
fn four_capabilities_are_enough_and_one_thread_keeps_them() {
    let Some(hopwise) = Unprivileged::start(&FOUR) else {
        return;
    };
    let line = hopwise.log_line("the input is open");
    assert!(
        line.contains("input=\"xdp://veth0\" rx_path=\"xdp-native on 1 queue"),
        "{line}"
    );
    let status = hopwise.receives(500);
    assert_eq!(status["inputs"][0]["kind"], "xdp-native");
    let capabilities = hopwise.capabilities();
    assert!(capabilities.len() > 3, "{capabilities:?}");
    for (thread, capabilities) in capabilities {
        let most = match thread.as_str() {
            // The thread that reopens interfaces.
            "inputs" => CapSet::of(&FOUR),
            name if name.starts_with("input-") => CapSet::of(&[Cap::BPF]),
            _ => CapSet::default(),
        };
        assert_eq!(
            (capabilities.permitted, capabilities.effective),
            (most, most),
            "{thread}"
        );
        assert!(
            capabilities.ambient.is_empty() && capabilities.inheritable.is_empty() && !capabilities.root,
            "{thread}"
        );
        assert!(capabilities.no_new_privileges, "{thread}");
    }
}

#[test]
fn with_some_capabilities_the_next_best_rx_path_is_used() {
    let Some(hopwise) = Unprivileged::start(&[Cap::NET_RAW]) else {
        return;
    };
    let line = hopwise.log_line("the input is open");
    assert!(line.contains("rx_path=\"packet"), "{line}");
    assert_eq!(hopwise.receives(500)["inputs"][0]["kind"], "packet");
}

#[test]
fn without_capabilities_reports_come_by_udp_and_the_log_says_what_to_do() {
    let Some(hopwise) = Unprivileged::start(&[]) else {
        return;
    };
    let line = hopwise.log_line("CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW missing");
    let fix = "setcap cap_bpf,cap_net_admin,cap_net_raw,cap_ipc_lock+ep $(command -v hopwise)";
    assert!(line.contains("blocking") && line.contains(fix), "{line}");
    let line = hopwise.log_line("the input is open");
    assert!(line.contains("rx_path=\"udp"), "{line}");
    hopwise.receives(200);
    assert!(
        hopwise
            .capabilities()
            .values()
            .all(|capabilities| capabilities.permitted.is_empty())
    );
}
