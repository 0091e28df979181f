//! The roles of DTA as real programs: a collector with memory, a translator, and a reporter that the test controls.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use wire::dta::{Base, Operation, Priority, Report};

use crate::support::{command, hex, text, tls};

/// Time limit of every step.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);

/// A connection with or without TLS.
trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A running hopwise. Killed when dropped.
pub(crate) struct Program {
    pub(crate) child: Child,
    pub(crate) lines: Receiver<String>,
    pub(crate) config: PathBuf,
    /// Addresses that receive reports for each collector.
    pub(crate) reports: Vec<SocketAddr>,
    /// Addresses of RoCEv2 and of the exchange.
    pub(crate) memory: Option<(SocketAddr, SocketAddr)>,
    pub(crate) api: SocketAddr,
    namespace: Option<String>,
    /// Its API has TLS.
    secure: bool,
}

/// The program in a network namespace, not started yet.
pub(crate) fn within(namespace: Option<&str>, program: &Command) -> Command {
    let mut run = match namespace {
        Some(namespace) => {
            let mut run = Command::new("ip");
            run.args(["netns", "exec", namespace]).arg(program.get_program());
            run
        }
        None => Command::new(program.get_program()),
    };
    run.args(program.get_args())
        .env_remove("HOPWISE_TOKEN")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null());
    run
}

impl Program {
    /// Starts it with this file, in this directory.
    pub(crate) fn start(directory: &Path, name: &str, settings: &str) -> Self {
        Self::start_in(None, directory, name, settings)
    }

    /// The same in a network namespace.
    pub(crate) fn start_in(namespace: Option<&str>, directory: &Path, name: &str, settings: &str) -> Self {
        let config = directory.join(name);
        fs::write(&config, settings).unwrap();
        let mut run = within(namespace, &command(["run", "-c", text(&config)]));
        let mut child = run.current_dir(directory).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let stderr = child.stderr.take().unwrap();
        thread::spawn(move || {
            BufReader::new(stderr)
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        let (mut reports, mut memory) = (Vec::new(), None);
        let api = loop {
            let line = lines
                .recv_timeout(TIMEOUT)
                .unwrap_or_else(|_| panic!("{name} does not start"));
            let after = |mark: &str| {
                let (_, rest) = line.split_once(mark)?;
                rest.split([',', ' ', '/'])
                    .next()
                    .unwrap()
                    .parse::<SocketAddr>()
                    .ok()
            };
            if line.contains("receiving DTA reports") {
                reports.extend(after("udp://"));
            } else if line.contains("the collector memory is ready") {
                memory = after("udp://").zip(after("tcp://"));
            } else if let Some(api) = after("http://") {
                break (api, false);
            } else if let Some(api) = after("https://") {
                break (api, true);
            }
        };
        let (api, secure) = api;
        let namespace = namespace.map(str::to_owned);
        Self {
            child,
            lines,
            config,
            reports,
            memory,
            api,
            namespace,
            secure,
        }
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let api = self.api;
        let stream = match &self.namespace {
            Some(name) => nic::netns::within(name, move || TcpStream::connect(api)).unwrap(),
            None => TcpStream::connect(api),
        };
        let stream = stream.unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut stream: Box<dyn Stream> = if self.secure {
            Box::new(tls::secured(stream))
        } else {
            Box::new(stream)
        };
        let kind = if body.is_empty() {
            ""
        } else {
            "Content-Type: application/json\r\n"
        };
        let (host, length) = (self.api, body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{kind}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (
            status,
            serde_json::from_str(body).unwrap_or(Value::String(body.to_owned())),
        )
    }

    /// GET that must succeed.
    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, "");
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// The response of the API at `path` when `done` accepts it.
    pub(crate) fn wait(&self, path: &str, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let view = self.get(path);
            if done(&view) {
                return view;
            }
            assert!(begun.elapsed() < TIMEOUT, "never {what}: {view:#}");
            crate::support::pause();
        }
    }

    /// The translator's view when `done` accepts it.
    pub(crate) fn translator(&self, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        self.wait("/api/v1/translator", what, |view| done(view)).clone()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.api)
    }

    /// Kills it, as a crash does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it regularly; returns its log.
    pub(crate) fn stop(&mut self) -> Vec<String> {
        let sent = std::process::Command::new("kill")
            .arg(self.child.id().to_string())
            .status()
            .unwrap();
        assert!(sent.success());
        let status = self.child.wait().unwrap();
        let said: Vec<String> = self.lines.iter().collect();
        assert!(status.success(), "{said:?}");
        said
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A collector with a store of every kind. The kernel chooses the ports.
pub(crate) fn collector(directory: &Path, name: &str, extra: &str) -> String {
    memory(directory, name, "127.0.0.1", extra) + STORES
}

/// A collector at this address (in brackets if IPv6) without any store.
pub(crate) fn memory(directory: &Path, name: &str, address: &str, extra: &str) -> String {
    let own = directory.join(name);
    format!(
        r#"
api.listen = "127.0.0.1:0"
[store]
dir = "{name}-events"
commit_every = "50ms"
[collector]
listen = ["udp://127.0.0.1:0"]
[collector.memory]
listen = "{address}:0"
exchange = "{address}:0"
directory = "{}"
{extra}
"#,
        own.display()
    )
}

/// A store of every kind.
pub(crate) const STORES: &str = r#"
[[collector.memory.stores]]
name = "paths"
kind = "key-write"
id = 1
slots = "64K"
value = "u32[5]"
[[collector.memory.stores]]
name = "losses"
kind = "append"
lists = "0-3"
entries = 4096
batch = 4
fields = "src:ipv4 dst:ipv4 sport:u16 dport:u16 proto:u8 node:u32 reason:u8"
events = "drop"
[[collector.memory.stores]]
name = "plain"
kind = "append"
lists = 10
entries = 4096
entry = 4
[[collector.memory.stores]]
name = "bytes"
kind = "key-increment"
id = 2
slots = 4096
[[collector.memory.stores]]
name = "postcards"
kind = "postcarding"
id = 3
slots = 4096
[[collector.memory.stores]]
name = "heavy"
kind = "sketch"
id = 4
depth = 2
columns = 8
reporters = 1
"#;

/// A translator for collectors whose exchanges listen at `exchanges`. The kernel chooses the ports.
pub(crate) fn translator(exchanges: &[SocketAddr], extra: &str) -> String {
    translator_at("127.0.0.1", exchanges, extra)
}

/// The same at this address (in brackets if IPv6).
pub(crate) fn translator_at(address: &str, exchanges: &[SocketAddr], extra: &str) -> String {
    let mut out = format!(
        "api.listen = \"127.0.0.1:0\"\n[translator]\nlisten = \"{address}:0\"\ncontrol_port = 0\n{extra}\n"
    );
    for exchange in exchanges {
        out.push_str(&format!(
            "[[translator.collectors]]\nexchange = \"{exchange}\"\nlisten = \"{address}:0\"\n"
        ));
    }
    out
}

/// A reporter that the test controls.
pub(crate) struct Reporter {
    pub(crate) socket: UdpSocket,
    pub(crate) to: SocketAddr,
    pub(crate) sequence: u16,
}

impl Reporter {
    pub(crate) fn new(to: SocketAddr) -> Self {
        let any = if to.is_ipv6() { "[::1]:0" } else { "127.0.0.1:0" };
        let socket = UdpSocket::bind(any).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self {
            socket,
            to,
            sequence: 0,
        }
    }

    pub(crate) fn send(&mut self, essential: bool, immediate: bool, operation: Operation<'_>) {
        self.sequence = self.sequence.wrapping_add(u16::from(essential));
        let sequence = if essential { self.sequence } else { 0 };
        let base = Base {
            immediate,
            essential,
            priority: Priority::Medium,
            sequence,
            reporter: 7,
        };
        let mut bytes = [0; 2048];
        let length = Report { base, operation }.emit(&mut bytes).unwrap();
        self.socket.send_to(&bytes[..length], self.to).unwrap();
    }

    pub(crate) fn key_write(&mut self, key: &[u8], data: &[u8]) {
        self.send(
            false,
            false,
            Operation::KeyWrite {
                copies: 2,
                store: 1,
                key,
                data,
            },
        );
    }
}

/// Five switches, as data of the store `paths`.
pub(crate) fn path_of(first: u32) -> Vec<u8> {
    (first..first + 5).flat_map(u32::to_be_bytes).collect()
}

/// wire-formats 5.6: 10.0.0.1:1234 > 10.0.0.2:80 tcp.
pub(crate) fn flow() -> Vec<u8> {
    hex("0a0000010a00000204d2005006")
}

pub(crate) const FLOW: &str = "10.0.0.1:1234 > 10.0.0.2:80 tcp";

pub(crate) fn connected(dta: &Value, collector: usize) -> bool {
    dta["collectors"][collector]["state"] == "up"
}

/// A text for a URL.
pub(crate) fn escape(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}
