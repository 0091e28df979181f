//! A running hopwise, reports to send to it, and a minimal HTTP client to query it.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    path::PathBuf,
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use wire::{Dialect, Flags, Hop, Layout, int::header::Md10, int::shim::Shim1, report::v10};

use crate::support::{TempDir, command};

/// Time limit of every step.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);

/// A hopwise with a directory of its own. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    lines: Receiver<String>,
    pub(crate) input: SocketAddr,
    pub(crate) api: SocketAddr,
    directory: TempDir,
    /// The network namespace it runs in, if not ours.
    namespace: Option<String>,
}

/// An HTTP answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

impl Server {
    /// Starts hopwise with `extra` lines in its configuration. It listens on 127.0.0.1, on ports that the kernel chooses.
    pub(crate) fn start(extra: &str) -> Self {
        Self::start_in(TempDir::new(), extra)
    }

    /// Likewise, in a directory that has been used before.
    pub(crate) fn start_in(directory: TempDir, extra: &str) -> Self {
        let config = directory.join("hopwise.toml");
        fs::write(&config, Self::config(extra)).unwrap();
        let mut child = run(&config, &directory).stderr(Stdio::piped()).spawn().unwrap();
        let lines = read_lines(child.stderr.take().unwrap());
        let after = |mark: &str| loop {
            let line = lines
                .recv_timeout(TIMEOUT)
                .unwrap_or_else(|_| panic!("no line with {mark:?}"));
            if let Some((_, rest)) = line.split_once(mark) {
                let rest = rest.trim_start_matches("s://").trim_start_matches("://");
                break rest.trim_end_matches('/').parse().unwrap();
            }
        };
        let input = after("udp://");
        let api = after("url=http");
        Self {
            child,
            lines,
            input,
            api,
            directory,
            namespace: None,
        }
    }

    /// Starts `hopwise console` with this configuration.
    pub(crate) fn start_console(text: &str) -> Self {
        Self::start_serving("console", TempDir::new(), text)
    }

    /// Starts `hopwise outlet` with this configuration, in a directory where its state may be.
    pub(crate) fn start_outlet(directory: TempDir, text: &str) -> Self {
        Self::start_serving("outlet", directory, text)
    }

    /// Starts a command that has an API and no inputs.
    fn start_serving(name: &str, directory: TempDir, text: &str) -> Self {
        let config = directory.join(&format!("{name}.toml"));
        fs::write(&config, text).unwrap();
        let mut command = command([name.as_ref(), "-c".as_ref(), config.as_os_str()]);
        let mut child = command
            .current_dir(directory.join(""))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = read_lines(child.stderr.take().unwrap());
        let api = loop {
            let line = lines
                .recv_timeout(TIMEOUT)
                .unwrap_or_else(|_| panic!("{name} does not start"));
            if let Some((_, rest)) = line.split_once("url=http://") {
                break rest.trim_end_matches('/').parse().unwrap();
            }
        };
        let input = (Ipv4Addr::UNSPECIFIED, 0).into();
        Self {
            child,
            lines,
            input,
            api,
            directory,
            namespace: None,
        }
    }

    /// Starts hopwise inside a network namespace, on `listen`. A command that starts it may follow the namespace's name.
    ///
    /// # Errors
    /// Its output if it ended instead.
    pub(crate) fn start_within(namespace: &str, listen: &str, extra: &str) -> Result<Self, String> {
        Self::start_raw_within(
            namespace,
            &Self::config(&format!("collector.listen = [\"{listen}\"]\n{extra}")),
        )
    }

    /// The same with a configuration as it is.
    ///
    /// # Errors
    /// Its output if it ended instead.
    pub(crate) fn start_raw_within(namespace: &str, text: &str) -> Result<Self, String> {
        let directory = TempDir::new();
        let config = directory.join("hopwise.toml");
        fs::write(&config, text).unwrap();
        let program = run(&config, &directory);
        let mut child = Command::new("ip")
            .args(["netns", "exec"])
            .args(namespace.split_whitespace())
            .arg(program.get_program())
            .args(program.get_args())
            .current_dir(directory.join(""))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = read_lines(child.stderr.take().unwrap());
        let mut output = String::new();
        let api = loop {
            match lines.recv_timeout(TIMEOUT) {
                Ok(line) => match line.split_once("http://") {
                    Some((_, rest)) => break rest.trim_end_matches('/').parse().unwrap(),
                    None => output = format!("{output}{line}\n"),
                },
                Err(_) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(output);
                }
            }
        };
        let (input, namespace) = (
            (Ipv4Addr::UNSPECIFIED, 0).into(),
            namespace.split_whitespace().next().map(str::to_owned),
        );
        Ok(Self {
            child,
            lines,
            input,
            api,
            directory,
            namespace,
        })
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// A configuration with `extra` lines; those of tables that are begun here are written `api.token = …`, and come first.
    fn config(extra: &str) -> String {
        let mut text = String::new();
        if !extra.contains("collector.listen") {
            text.push_str("collector.listen = [\"udp://127.0.0.1:0\"]\n");
        }
        format!(
            "{text}api.listen = \"127.0.0.1:0\"\nstore.dir = \"store\"\nstore.commit_every = \"50ms\"\n{extra}\n"
        )
    }

    /// Writes another configuration.
    pub(crate) fn reconfigure(&self, extra: &str) {
        fs::write(self.directory.join("hopwise.toml"), Self::config(extra)).unwrap();
    }

    /// Writes a configuration as it is.
    pub(crate) fn reconfigure_raw(&self, text: &str) {
        fs::write(self.directory.join("hopwise.toml"), text).unwrap();
    }

    /// A path in its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Sends it datagrams, in order, slowly enough for any machine to receive them.
    pub(crate) fn send<B: AsRef<[u8]>>(&self, datagrams: impl IntoIterator<Item = B>) {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for (index, datagram) in datagrams.into_iter().enumerate() {
            socket.send_to(datagram.as_ref(), self.input).unwrap();
            if index % 64 == 63 {
                thread::yield_now();
            }
        }
    }

    /// GET.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", "")
    }

    /// GET that must succeed.
    pub(crate) fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    /// A request with further header lines; repeated while the server answers that it is busy (503).
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let start = Instant::now();
        loop {
            let answer = self.ask_once(method, path, headers, body);
            if answer.status != 503 || path.ends_with("/stream") || start.elapsed() > TIMEOUT {
                return answer;
            }
        }
    }

    fn ask_once(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let mut stream = self.connect();
        let length = body.len();
        let host = if headers.to_lowercase().contains("host:") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.api)
        };
        let kind = if body.is_empty() {
            ""
        } else {
            "Content-Type: application/json\r\n"
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{host}{kind}Content-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let (headers, body) = text
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("no head in {text:?}"));
        let status = headers.split(' ').nth(1).unwrap().parse().unwrap();
        let chunked = headers.to_lowercase().contains("transfer-encoding: chunked");
        Answer {
            status,
            headers: headers.to_owned(),
            body: if chunked { unchunk(body) } else { body.to_owned() },
        }
    }

    /// A connection to the API.
    pub(crate) fn connect(&self) -> TcpStream {
        let api = self.api;
        let stream = match &self.namespace {
            Some(name) => nic::netns::within(name, || TcpStream::connect(api)).unwrap(),
            None => TcpStream::connect(api),
        };
        let stream = stream.unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    /// The live stream, once its head has arrived.
    pub(crate) fn stream(&self, path: &str) -> BufReader<TcpStream> {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.api).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "HTTP/1.1 200 OK\r\n");
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        reader
    }

    /// SQL.
    pub(crate) fn query(&self, sql: &str) -> Answer {
        self.ask(
            "POST",
            "/api/v1/query",
            "",
            &serde_json::json!({ "sql": sql }).to_string(),
        )
    }

    /// Polls the status until `good` accepts it, up to [`TIMEOUT`].
    pub(crate) fn wait_for(&self, what: &str, good: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let status = self.json("/api/v1/status");
            if good(&status) {
                return status;
            }
            assert!(start.elapsed() < TIMEOUT, "never {what}: {status:#}");
            crate::support::pause();
        }
    }

    /// Waits until this many datagrams have been read, or dropped in the kernel, and all records are on disk.
    pub(crate) fn settled(&self, datagrams: u64) -> Value {
        self.wait_for("read", |status| {
            stage(status, "kernel")["in"] == datagrams
                && stage(status, "decode")["in"].as_u64().unwrap() + dropped(status, "fanout")
                    == stage(status, "kernel")["out"]
        });
        // With another request: a status is computed from the last stage to the first.
        self.wait_for("settled", |status| {
            ["queue", "store"]
                .iter()
                .all(|name| stage(status, name)["queued"] == 0)
        })
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Sends SIGTERM and waits for the end. Gives the directory back.
    pub(crate) fn stop(mut self) -> (ExitStatus, TempDir) {
        self.signal("-TERM");
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < TIMEOUT, "does not stop");
            crate::support::pause();
        };
        let directory = std::mem::replace(&mut self.directory, TempDir::new());
        (status, directory)
    }

    /// The next line of its log with `mark` in it.
    pub(crate) fn log_line(&self, mark: &str) -> String {
        loop {
            let line = self
                .lines
                .recv_timeout(TIMEOUT)
                .unwrap_or_else(|_| panic!("no line with {mark:?}"));
            if line.contains(mark) {
                return line;
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `hopwise run` with this configuration, in this directory; not started yet.
pub(crate) fn run(config: &std::path::Path, directory: &TempDir) -> Command {
    let mut command = command(["run".as_ref(), "-c".as_ref(), config.as_os_str()]);
    command.current_dir(directory.join(""));
    command
}

fn read_lines(stderr: ChildStderr) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            // The receiver is dropped when the test has ended.
            let _ = sender.send(line);
        }
    });
    lines
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        whole.push_str(&rest[..length]);
        body = &rest[length + 2..];
        if length == 0 {
            break;
        }
    }
    whole
}

/// A stage of the loss budget; null when there is no such stage.
pub(crate) fn stage<'s>(status: &'s Value, name: &str) -> &'s Value {
    let stages = status["loss_budget"].as_array().unwrap();
    stages
        .iter()
        .find(|stage| stage["stage"] == name)
        .unwrap_or(&Value::Null)
}

/// The sum of a stage's drops over all reasons.
pub(crate) fn dropped(status: &Value, name: &str) -> u64 {
    let drops = stage(status, name)["drops"].as_object();
    drops.map_or(0, |drops| {
        drops.values().map(|count| count.as_u64().unwrap()).sum()
    })
}

/// Every stage of the budget: in = out + drops + queued.
pub(crate) fn assert_balanced(status: &Value) {
    for stage in status["loss_budget"].as_array().unwrap() {
        let number = |name: &str| stage[name].as_u64().unwrap();
        let name = stage["stage"].as_str().unwrap();
        let left = number("out") + number("queued") + dropped(status, name);
        assert_eq!(number("in"), left, "stage {name} of {status:#}");
    }
}

/// Telemetry Report 1.0 around INT 1.0: node 101 → 102 → 103, one per latency, for a flow from port `sport` of 10.0.0.1 to
/// port 80 of 10.0.0.2.
pub(crate) fn report(seq: u32, src_port: u16, latencies: [u32; 3]) -> Vec<u8> {
    // Node, ports, latency, queue, utilization.
    let layout = Layout::int_10(0xf100, 5, Dialect::Strict).unwrap();
    let mut payload = vec![0; 1024];
    let header = v10::Repr {
        next: v10::NextProtocol::Ethernet,
        bits: 0,
        flags: Flags::FLOW,
        hw_id: 1,
        switch_id: 103,
        seq,
        ingress_ts: seq,
        metadata: Hop::default(),
        drop_reason: None,
    };
    let mut at = header.emit(Dialect::Strict, &mut payload);
    let stack = latencies.len() * layout.len();
    let inner = inner_packet(src_port, 4 + 8 + stack);
    payload[at..at + inner.len()].copy_from_slice(&inner);
    at += inner.len();
    Shim1 {
        kind: 1,
        length: (3 + stack / 4) as u8,
        last: 0,
    }
    .emit(&mut payload[at..]);
    Md10 {
        hop_ml: 5,
        remaining: 5,
        bitmap: 0xf100,
        ..Md10::default()
    }
    .emit(&mut payload[at + 4..]);
    at += 12;
    for (index, latency) in latencies.iter().enumerate().rev() {
        let hop = Hop {
            node_id: Some(101 + index as u32),
            ingress_if: Some(1),
            egress_if: Some(2),
            hop_latency: Some(*latency),
            queue_id: Some(3),
            queue_occupancy: Some(latency / 1000),
            tx_utilization: Some(250_000),
            ..Hop::default()
        };
        layout.write(&hop, &mut payload[at..]);
        at += layout.len();
    }
    payload.truncate(at);
    payload
}

/// Ethernet, IPv4 and UDP headers of a packet marked as carrying INT, for `payload` further bytes.
fn inner_packet(src_port: u16, payload: usize) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0x17 << 2];
    packet.extend((28 + payload as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let checksum = wire::checksum::of(&packet[14..34]);
    packet[24..26].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(src_port.to_be_bytes());
    packet.extend(80_u16.to_be_bytes());
    packet.extend((8 + payload as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet
}
