//! Servers of the export cases, as child processes: ClickHouse's engine, a Kafka broker, and an HTTP sink that discards
//! everything. `scripts/sink-servers` installs the first two; without them the cases are skipped.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use terminal::CliError;

use super::super::harness::Failure;
use experiments::machine::Process;

/// Time limit for a server to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the path of an installed server.
fn installed(what: &str) -> PathBuf {
    env::var_os("HOPWISE_SINK_SERVERS")
        .map_or_else(|| PathBuf::from("target/sink-servers"), PathBuf::from)
        .join(what)
}

fn skipped(needs: &str) -> Failure {
    Failure::Skipped(format!(
        "it needs {needs}: run scripts/sink-servers, or name its folder in HOPWISE_SINK_SERVERS"
    ))
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::new(format!("the server of the benchmark: {error}"))
}

/// ClickHouse's engine (chdb) behind the HTTP front of the tests.
#[derive(Debug)]
pub(super) struct Engine {
    _process: Process,
    pub(super) address: SocketAddr,
}

impl Engine {
    /// Starts the server with its data in `dir`.
    pub(super) fn start(dir: &Path) -> Result<Self, Failure> {
        let python =
            env::var_os("HOPWISE_CHDB_PYTHON").map_or_else(|| installed("chdb/bin/python"), PathBuf::from);
        let has = Command::new(&python)
            .args(["-c", "import chdb"])
            .stderr(Stdio::null())
            .status();
        if !has.is_ok_and(|status| status.success()) {
            return Err(skipped("Python with chdb"));
        }
        let front = dir.join("clickhouse.py");
        let data = dir.join("clickhouse");
        fs::write(&front, FRONT).map_err(failed)?;
        fs::create_dir_all(&data).map_err(failed)?;
        let mut command = Command::new(python);
        command
            .arg(front)
            .arg(data)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = Process(command.spawn().map_err(failed)?);
        let output = process.0.stdout.as_mut().ok_or_else(|| failed("no output"))?;
        let mut port = String::new();
        BufReader::new(output).read_line(&mut port).map_err(failed)?;
        let port = port.trim().parse::<u16>().map_err(failed)?;
        Ok(Self {
            _process: process,
            address: (Ipv4Addr::LOCALHOST, port).into(),
        })
    }
}

const FRONT: &str = include_str!("../../../../tests/servers/clickhouse.py");

/// A persistent HTTP connection, with one request at a time.
#[derive(Debug)]
pub(super) struct Http {
    stream: BufReader<TcpStream>,
}

impl Http {
    pub(super) fn connect(address: SocketAddr) -> Result<Self, CliError> {
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends a body, and waits until the server has accepted it.
    pub(super) fn post(&mut self, target: &str, body: &[u8]) -> Result<(), CliError> {
        self.request(target, body).map(drop)
    }

    /// Executes an SQL statement, and returns its output.
    pub(super) fn execute(&mut self, statement: &str) -> Result<String, CliError> {
        self.request("/", statement.as_bytes())
    }

    fn request(&mut self, target: &str, body: &[u8]) -> Result<String, CliError> {
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let stream = self.stream.get_mut();
        stream.write_all(head.as_bytes()).map_err(failed)?;
        stream.write_all(body).map_err(failed)?;
        let (first, length) = head_of(&mut self.stream)
            .map_err(failed)?
            .ok_or_else(|| failed("no answer"))?;
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).map_err(failed)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        if first.contains(" 200 ") {
            Ok(answer)
        } else {
            Err(failed(answer))
        }
    }
}

/// Reads the head of an HTTP message: its first line and the length of its body. `None` at the end of the connection.
fn head_of(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<(String, usize)>> {
    let mut first = String::new();
    let mut line = String::new();
    let mut length = 0;
    if stream.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    while line != "\r\n" {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    Ok(Some((first, length)))
}

/// An HTTP server that accepts requests and discards them.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) address: SocketAddr,
}

impl Sink {
    pub(super) fn start() -> Result<Self, CliError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        // Both threads run until the program ends.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || drain(BufReader::new(stream)));
            }
        });
        Ok(Self { address })
    }
}

fn drain(mut stream: BufReader<TcpStream>) -> std::io::Result<()> {
    while let Some((_, length)) = head_of(&mut stream)? {
        std::io::copy(&mut (&mut stream).take(length as u64), &mut std::io::sink())?;
        stream
            .get_mut()
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
    }
    Ok(())
}

/// A Kafka broker that is its own controller (KRaft).
#[derive(Debug)]
pub(super) struct Broker {
    _process: Process,
    pub(super) address: SocketAddr,
}

impl Broker {
    /// Starts the server with its data in `dir`.
    pub(super) fn start(dir: &Path) -> Result<Self, Failure> {
        let kafka = installed("kafka/lib/DONE");
        let tools = installed("kafka-tools/lib/DONE");
        let has_java = Command::new("java")
            .arg("-version")
            .stderr(Stdio::null())
            .status()
            .is_ok();
        if !(kafka.exists() && tools.exists() && has_java) {
            return Err(skipped("Kafka, its tools and Java"));
        }
        let [port, control] = [free_port()?, free_port()?];
        let data = dir.join("kafka").display().to_string();
        // No retention limit: the events have old timestamps, from which Kafka would count their age.
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{control}\n\
             listeners=PLAIN://127.0.0.1:{port},CONTROL://127.0.0.1:{control}\n\
             advertised.listeners=PLAIN://127.0.0.1:{port}\n\
             listener.security.protocol.map=PLAIN:PLAINTEXT,CONTROL:PLAINTEXT\n\
             inter.broker.listener.name=PLAIN\ncontroller.listener.names=CONTROL\nlog.dirs={data}\n\
             auto.create.topics.enable=false\noffsets.topic.replication.factor=1\n\
             log.retention.ms=-1\n"
        );
        let properties = dir.join("server.properties");
        fs::write(&properties, text).map_err(failed)?;
        let mut format = java("256m");
        format
            .args([
                "kafka.tools.StorageTool",
                "format",
                "-t",
                "MkU3OEVBNTcwNTJENDM2Qg",
                "-c",
            ])
            .arg(&properties);
        let format = format.output().map_err(failed)?;
        if !format.status.success() {
            return Err(failed(String::from_utf8_lossy(&format.stderr)).into());
        }
        let log = File::create(dir.join("kafka.log")).map_err(failed)?;
        let mut command = java("512m");
        command.arg("kafka.Kafka").arg(properties).stdin(Stdio::null());
        command.stdout(log.try_clone().map_err(failed)?).stderr(log);
        let process = Process(command.spawn().map_err(failed)?);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            if begun.elapsed() > PATIENCE {
                return Err(failed("it does not listen").into());
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(Self {
            _process: process,
            address,
        })
    }

    /// Runs Kafka's own load generator. Returns the time per record, ns.
    pub(super) fn own_load(&self, topic: &str, records: u64, size: usize) -> Result<f64, CliError> {
        let mut command = java("512m");
        command.args([
            "org.apache.kafka.tools.ProducerPerformance",
            "--throughput",
            "-1",
            "--topic",
            topic,
        ]);
        command.args([
            "--num-records",
            &records.to_string(),
            "--record-size",
            &size.to_string(),
        ]);
        command.args(["--producer-props", &format!("bootstrap.servers={}", self.address)]);
        command.args(["acks=all", "compression.type=lz4", "batch.size=262144"]);
        let output = command.output().map_err(failed)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let rate = text.lines().filter_map(rate_of).next_back();
        rate.map(|rate| 1e9 / rate)
            .ok_or_else(|| failed(format!("{text}{}", String::from_utf8_lossy(&output.stderr))))
    }
}

/// Parses the rate of a line such as "1000000 records sent, 471253.5 records/sec (98.87 MB/sec), …".
fn rate_of(line: &str) -> Option<f64> {
    line.split_once(" records/sec")?
        .0
        .rsplit(' ')
        .next()?
        .parse()
        .ok()
}

fn java(heap: &str) -> Command {
    let class_path = ["kafka", "kafka-tools"]
        .map(|name| installed(name).join("lib/*").display().to_string())
        .join(":");
    let mut command = Command::new("java");
    command.args([
        &format!("-Xmx{heap}"),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        &class_path,
    ]);
    command
}

/// Returns a port on which no socket listens now.
fn free_port() -> Result<u16, CliError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    Ok(listener.local_addr().map_err(failed)?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_the_last_line_of_the_load_tool() {
        let line = "1000000 records sent, 471253.5 records/sec (98.87 MB/sec), 180.92 ms avg latency";
        assert_eq!(rate_of(line), Some(471_253.5));
        assert_eq!(rate_of("no figures"), None);
    }
}
