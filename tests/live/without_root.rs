//! hopwise run by an ordinary user with capabilities only, in a network namespace. Needs root to be set up,
//! and `setpriv`; tests that cannot run are reported as skipped.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use nic::capabilities::{Cap, CapSet, Capabilities};
use nic::netns::Pair;
use serde_json::Value;

use crate::support::server::{TIMEOUT, assert_balanced, dropped, report, stage};
use crate::support::{TempDir, public_copy, skipped};

/// Address of the API, in a namespace of its own.
const API: &str = "127.0.0.1:8080";

/// Arguments of `setpriv` that make a program run as this user.
const AS_NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];

/// Reports that [`Unprivileged::receives_more`] sends.
const MORE: u32 = 50;

/// Capabilities for an interface.
const FOUR: [Cap; 4] = [Cap::BPF, Cap::NET_ADMIN, Cap::NET_RAW, Cap::IPC_LOCK];

/// hopwise reading `veth0` of a namespace, as nobody. Killed when dropped.
struct Unprivileged {
    child: Child,
    /// Its log until all inputs are open.
    log: String,
    /// The lines after that.
    lines: Receiver<String>,
    pair: Pair,
    directory: TempDir,
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
        // With mounts of its own, so that a test can change them.
        let mut command = Command::new("unshare");
        command.args(["--mount", "setpriv"]).args(AS_NOBODY);
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
        let (sender, rest) = channel();
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                // The receiver is dropped when the test has ended.
                let _ = sender.send(line);
            }
        });
        Some(Self {
            child,
            log,
            lines: rest,
            pair,
            directory,
        })
    }

    /// The line of the log with `mark` in it.
    fn log_line(&self, mark: &str) -> &str {
        self.log
            .lines()
            .find(|line| line.contains(mark))
            .unwrap_or_else(|| panic!("no {mark:?} in {}", self.log))
    }

    /// The next line of the log with `mark` in it.
    fn next_line(&self, mark: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(TIMEOUT);
            let line = line.unwrap_or_else(|_| panic!("no line with {mark:?}"));
            if line.contains(mark) {
                return line;
            }
        }
    }

    /// The body of the response to a GET.
    fn get(&self, path: &str) -> String {
        let mut stream = self.pair.far.run(|| TcpStream::connect(API)).unwrap().unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {API}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    fn status(&self) -> Value {
        let text = self.get("/api/v1/status");
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
    }

    /// Waits until the store has this state and nothing waits for it. Returns its status.
    fn store(&self, state: &str) -> Value {
        let start = Instant::now();
        loop {
            let store = self.status()["store"].clone();
            if store["state"] == state && store["queue"] == 0 {
                return store;
            }
            assert!(start.elapsed() < TIMEOUT, "never {state}: {store}");
            crate::support::pause();
        }
    }

    /// Sends reports of new flows, with the sequence numbers from `first` on, and waits until they are read.
    fn receives_more(&self, first: u32) {
        let before = stage(&self.status(), "state")["in"].as_u64().unwrap();
        let socket = self.pair.near.run(|| UdpSocket::bind((Pair::NEAR[0], 0)));
        let socket = socket.unwrap().unwrap();
        for seq in first..first + MORE {
            let to = SocketAddr::new(Pair::FAR[0], 32766);
            socket.send_to(&report(seq, seq as u16, [1, 2, 3]), to).unwrap();
        }
        let start = Instant::now();
        while stage(&self.status(), "state")["in"] != before + u64::from(MORE) {
            assert!(start.elapsed() < TIMEOUT, "{:#}", self.status());
            crate::support::pause();
        }
    }

    /// Executes a command among the mounts of the process.
    fn mount(&self, command: &str, args: &[&str]) {
        let mut entered = Command::new("nsenter");
        entered.arg(format!("--mount=/proc/{}/ns/mnt", self.child.id()));
        let status = entered.arg(command).args(args).status().unwrap();
        assert!(status.success(), "{command} {args:?}: {status}");
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
                crate::support::pause();
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
            crate::support::pause();
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

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A change that keeps the store from using its directory.
#[derive(Clone, Copy, Debug)]
enum Obstacle {
    /// A mode of the directory.
    Mode(u32),
    /// A mode of the directory above it.
    ModeAbove(u32),
    /// A read-only mount.
    ReadOnly,
}

impl Unprivileged {
    fn obstruct(&self, obstacle: Obstacle) {
        let dir = self.directory.join("store");
        let path = dir.to_str().unwrap();
        match obstacle {
            Obstacle::Mode(mode) => set_mode(&dir, mode),
            Obstacle::ModeAbove(mode) => set_mode(&self.directory.join(""), mode),
            Obstacle::ReadOnly => {
                self.mount("mount", &["--bind", path, path]);
                self.mount("mount", &["-o", "remount,ro,bind", path]);
            }
        }
    }

    fn clear(&self, obstacle: Obstacle) {
        let dir = self.directory.join("store");
        match obstacle {
            Obstacle::Mode(_) => set_mode(&dir, 0o750),
            Obstacle::ModeAbove(_) => set_mode(&self.directory.join(""), 0o777),
            Obstacle::ReadOnly => self.mount("umount", &[dir.to_str().unwrap()]),
        }
    }
}

#[test]
fn a_directory_that_the_store_cannot_use_is_named_and_no_record_is_lost() {
    let Some(hopwise) = Unprivileged::start(&[]) else {
        return;
    };
    hopwise.receives_more(0);
    hopwise.store("ok");
    let dir = hopwise.directory.join("store").display().to_string();
    let above = dir.trim_end_matches("/store");
    let to_list = format!("{dir}: permission denied: user 65534 may not list, open and create files in");
    let to_search = format!("{above}: permission denied: user 65534 may not search");
    let read_only = format!("{dir}: Read-only file system; remount it read-write");
    let cases = [
        (Obstacle::Mode(0), &to_list),
        (Obstacle::Mode(0o550), &to_list),
        (Obstacle::ModeAbove(0), &to_search),
        (Obstacle::ReadOnly, &read_only),
    ];
    let mut first = MORE;
    for (obstacle, reason) in cases {
        hopwise.obstruct(obstacle);
        // Without a record that arrives.
        let store = hopwise.store("degraded");
        let message = store["message"].as_str().unwrap();
        assert!(
            message.starts_with(reason) && message.contains("records go only into the open file hopwise-"),
            "{obstacle:?}: {message}"
        );
        let line = hopwise.next_line("the directory of the store cannot be used");
        assert!(line.contains(reason), "{obstacle:?}: {line}");
        let metrics = hopwise.get("/metrics");
        assert!(
            metrics.lines().any(|line| line == "hopwise_store_up 0"),
            "{obstacle:?}"
        );
        hopwise.receives_more(first);
        first += MORE;
        let after = hopwise.store("degraded");
        assert!(
            after["committed"].as_u64() > store["committed"].as_u64(),
            "{obstacle:?}: {after}"
        );
        assert_eq!(
            after["files"], store["files"],
            "{obstacle:?}: what was counted before"
        );
        hopwise.clear(obstacle);
        hopwise.store("ok");
        hopwise.next_line("the store works again");
    }
    let store = hopwise.store("ok");
    for count in ["failed", "shed", "removed", "moved_files"] {
        assert_eq!(store[count], 0, "{store}");
    }
}

#[test]
fn a_file_in_place_of_the_directory_is_named_and_storing_goes_on_without_it() {
    let Some(hopwise) = Unprivileged::start(&[]) else {
        return;
    };
    let dir = hopwise.directory.join("store");
    hopwise.receives_more(0);
    hopwise.store("ok");
    fs::rename(&dir, hopwise.directory.join("elsewhere")).unwrap();
    fs::write(&dir, "").unwrap();
    let store = hopwise.store("failing");
    let message = store["message"].as_str().unwrap();
    let expected = format!(
        "{}: not a directory; move it away, or set another directory",
        dir.display()
    );
    assert!(message.contains(&expected), "{message}");
    assert_eq!(store["problems"][0]["kind"], "removed", "{store}");
    fs::remove_file(&dir).unwrap();
    hopwise.store("ok");
    hopwise.receives_more(MORE);
    let after = hopwise.store("ok");
    assert!(
        after["committed"].as_u64() > store["committed"].as_u64(),
        "{after}"
    );
    assert!(dir.is_dir());
}

#[test]
fn a_directory_that_cannot_be_used_is_refused_at_the_start_with_a_remedy() {
    let directory = TempDir::new();
    set_mode(&directory.join(""), 0o755);
    let program = public_copy(&directory);
    let closed = directory.join("closed");
    fs::create_dir_all(closed.join("store")).unwrap();
    let file = directory.join("file");
    fs::write(&file, "").unwrap();
    set_mode(&closed, 0);
    let cases = [
        (
            closed.clone(),
            "closed: permission denied: user 65534 may not list, open and create files in",
        ),
        (
            closed.join("store"),
            "closed: permission denied: user 65534 may not search",
        ),
        (file.clone(), "not a directory"),
        (file.join("store"), "not a directory"),
        (
            directory.join("new"),
            "permission denied: user 65534 may not list, open and create files in",
        ),
    ];
    for (dir, reason) in &cases {
        let config = directory.join("hopwise.toml");
        let text = format!(
            "collector.listen = [\"udp://127.0.0.1:0\"]\napi.listen = \"127.0.0.1:0\"\nstore.dir = {dir:?}\n"
        );
        fs::write(&config, text).unwrap();
        for command in ["check", "run"] {
            let mut run = Command::new("setpriv");
            run.args(AS_NOBODY)
                .arg(&program)
                .args([command, "-c"])
                .arg(&config);
            let output = run.current_dir("/").output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            if said.starts_with("setpriv:") {
                skipped("without root: setpriv needs root");
                return;
            }
            assert!(
                !output.status.success() && said.contains(reason),
                "{command} {dir:?}: {said}"
            );
        }
    }
    set_mode(&closed, 0o755);
}
