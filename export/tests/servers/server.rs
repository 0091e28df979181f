//! Servers as children of a test, and a client of HTTP.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use export::Outcome;
use export::record::{Record, Stream};
use export::sink::{HttpSink, Request, Response};

use crate::support::{COLLECTOR, batch};

/// Past the runner, which captures the output of tests that pass.
pub(crate) fn skipped(what: &str) {
    _ = writeln!(std::io::stderr(), "SKIPPED {what}");
}

/// Whether a program is on the path. If not, says that the test is skipped.
pub(crate) fn is_installed(program: &str, package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        skipped(&format!("test of a sink: no {program} (Debian: {package})"));
    }
    found
}

/// A port that nobody listens on now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// A directory that is removed afterwards.
#[derive(Debug)]
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hopwise-sink-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server, ended with the test.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// The port at which it listens.
    pub(crate) port: u16,
    files: TempDir,
}

impl Server {
    /// Starts `command` and waits until `port` is open.
    pub(crate) fn start(command: &mut Command, port: u16, files: TempDir) -> Self {
        let log = std::fs::File::create(files.path().join("log")).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let child = command.current_dir(files.path()).spawn().unwrap();
        let mut server = Self { child, port, files };
        server.wait("opens its port", |_| {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        server
    }

    /// Waits for a condition, as long as the server lives and no longer than two minutes.
    pub(crate) fn wait(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(120);
        while !is_so(self) {
            let ended = self.child.try_wait().unwrap();
            if ended.is_some() || Instant::now() > end {
                let log = std::fs::read(self.files.path().join("log")).unwrap_or_default();
                panic!(
                    "no server that {what}: {ended:?}\n{}",
                    String::from_utf8_lossy(&log)
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a request and returns status and body.
    pub(crate) fn send(&self, request: &Request) -> Answer {
        let mut head = format!(
            "{} {} HTTP/1.0\r\nhost: localhost\r\n",
            request.method, request.target
        );
        for (name, value) in &request.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", request.body.len()));
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&request.body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .unwrap();
        let status = String::from_utf8_lossy(&answer[..end])
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        Answer {
            status,
            body: answer.split_off(end + 4),
        }
    }

    /// The body of a successful request, as JSON.
    pub(crate) fn json(&self, method: &'static str, target: &str, form: &str) -> serde_json::Value {
        let headers = vec![("content-type", "application/x-www-form-urlencoded".to_owned())];
        let body = form.as_bytes().to_vec();
        let answer = self.send(&Request {
            method,
            target: target.to_owned(),
            headers,
            body,
            ..Request::default()
        });
        let text = String::from_utf8_lossy(&answer.body);
        assert_eq!(answer.status, 200, "{target}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The answer of a server.
#[derive(Debug)]
pub(crate) struct Answer {
    status: u16,
    body: Vec<u8>,
}

impl Answer {
    pub(crate) fn response(&self) -> Response<'_> {
        Response {
            status: self.status,
            retry_after: None,
            body: &self.body,
            is_cut: false,
        }
    }
}

/// Sends records through a sink.
pub(crate) fn send(server: &Server, sink: &dyn HttpSink, records: &[Record]) -> Outcome {
    batch(COLLECTOR, records, |batch| {
        let request = sink.request(batch).unwrap();
        sink.outcome(batch, &request, &server.send(&request).response())
    })
}

/// Asks a server whether it takes these streams.
pub(crate) fn probe(server: &Server, sink: &dyn HttpSink, streams: &[Stream]) -> Result<(), String> {
    sink.probed(streams, &server.send(&sink.probe(streams)).response())
}

/// The time, ns: servers refuse what is old.
pub(crate) fn now() -> u64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}

/// VictoriaMetrics, which accepts requests for InfluxDB and for Prometheus.
pub(crate) fn victoria_metrics() -> Option<Server> {
    if !is_installed("victoria-metrics", "victoria-metrics") {
        return None;
    }
    let files = TempDir::new();
    let port = free_port();
    let mut command = Command::new("victoria-metrics");
    command
        .arg(format!("-httpListenAddr=127.0.0.1:{port}"))
        .arg("-retentionPeriod=100y");
    command.arg(format!(
        "-storageDataPath={}",
        files.path().join("data").display()
    ));
    Some(Server::start(&mut command, port, files))
}
