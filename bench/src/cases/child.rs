//! Runs `hopwise run` as a child process, and reads its counters and its use of resources.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::harness::processor_time;
use experiments::machine::Process;
use terminal::{CliError, programs};

/// A running `hopwise run`, which is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Program {
    process: Process,
    store: PathBuf,
    /// The address at which reports are received; an outlet has none.
    input: Option<SocketAddr>,
    api: SocketAddr,
}

/// Counters and resource usage since the start of the process.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Usage {
    pub(super) received: u64,
    /// Datagrams and records dropped at any stage of the process.
    pub(super) dropped: u64,
    pub(super) records: u64,
    /// Bytes of the store's files.
    pub(super) bytes: u64,
    /// CPU time in user and system mode, seconds.
    pub(super) user: f64,
    pub(super) system: f64,
}

impl Usage {
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            received: self.received - before.received,
            dropped: self.dropped - before.dropped,
            records: self.records - before.records,
            bytes: self.bytes.saturating_sub(before.bytes),
            user: self.user - before.user,
            system: self.system - before.system,
        }
    }
}

impl Program {
    /// Starts a collector with a store in `dir` and additional configuration sections. The kernel chooses the ports.
    pub(super) fn start(dir: &Path, sections: &str) -> Result<Self, CliError> {
        Self::run(dir, &format!("{CONFIG}{sections}"), true)
    }

    /// Starts an outlet (Kafka to ClickHouse) with this configuration.
    pub(super) fn start_outlet(dir: &Path, sections: &str) -> Result<Self, CliError> {
        Self::run(dir, &format!("{LISTEN}{sections}"), false)
    }

    /// Returns the address at which reports are received.
    pub(super) fn input(&self) -> Result<SocketAddr, CliError> {
        self.input
            .ok_or_else(|| CliError::new("an outlet receives no reports"))
    }

    fn run(dir: &Path, config: &str, has_input: bool) -> Result<Self, CliError> {
        let mut process = Command::new(hopwise()?)
            .args(["run", "-c"])
            .arg(configure(dir, config)?)
            .current_dir(dir)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map(Process)
            .map_err(cannot_start)?;
        let mut input = None;
        let mut api = None;
        let mut said = String::new();
        let mut output = BufReader::new(
            process
                .0
                .stderr
                .take()
                .ok_or_else(|| CliError::new("no output"))?,
        );
        while has_input && input.is_none() || api.is_none() {
            let mut line = String::new();
            if output.read_line(&mut line).map_err(cannot_start)? == 0 {
                return Err(CliError::new(format!("hopwise ended: {said}")));
            }
            input = input.or_else(|| address(&line, "udp://"));
            api = api.or_else(|| address(&line, "http://"));
            said.push_str(&line);
        }
        // Further output must be read, because a full pipe would block the process.
        thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        api.map(|api| Self {
            process,
            store: dir.join("store"),
            input,
            api,
        })
        .ok_or_else(|| CliError::new("hopwise did not say where it listens"))
    }

    /// Runs `hopwise schema apply`, which creates the tables or topics of an export.
    pub(super) fn schema(dir: &Path, sections: &str, export: &str) -> Result<(), CliError> {
        let output = Command::new(hopwise()?)
            .args(["schema", "apply", "-c"])
            .arg(configure(dir, &format!("{CONFIG}{sections}"))?)
            .arg(export)
            .env("NO_COLOR", "1")
            .output()
            .map_err(cannot_start)?;
        if output.status.success() {
            return Ok(());
        }
        Err(CliError::new(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        ))
    }

    /// Returns the sum of a metric over all labels.
    pub(super) fn sum(&self, metric: &str) -> Result<u64, CliError> {
        let metrics = self
            .get("/metrics")
            .ok_or_else(|| CliError::new("hopwise does not answer"))?;
        Ok(sum(&metrics, metric))
    }

    /// Reads the counters and the resource usage so far.
    pub(super) fn usage(&self) -> Result<Usage, CliError> {
        let metrics = self
            .get("/metrics")
            .ok_or_else(|| CliError::new("hopwise does not answer"))?;
        let (user, system) = processor_time(&format!("/proc/{}/stat", self.process.0.id()));
        Ok(Usage {
            received: sum(&metrics, "hopwise_input_datagrams_total"),
            dropped: sum(&metrics, "hopwise_drops_total") - network(&metrics),
            records: sum(&metrics, "hopwise_store_committed_total"),
            bytes: self.stored(),
            user,
            system,
        })
    }

    /// Waits until the queues are empty and no more datagrams arrive. Returns false if that takes longer than `patience`.
    pub(super) fn settle(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        let mut received = u64::MAX;
        let mut quiet = 0;
        while Instant::now() < end && quiet < QUIET {
            thread::sleep(Duration::from_millis(50));
            let Some(metrics) = self.get("/metrics") else {
                continue;
            };
            let now = sum(&metrics, "hopwise_input_datagrams_total");
            let waiting = sum(&metrics, "hopwise_stage_queued") > 0 || now != received;
            quiet = if waiting { 0 } else { quiet + 1 };
            received = now;
        }
        quiet == QUIET
    }

    /// Returns the bytes of the store's files.
    fn stored(&self) -> u64 {
        let files = fs::read_dir(&self.store).into_iter().flatten().flatten();
        files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    }

    /// Requests pages of flows until `end`. Returns the response times, shortest first, and the number of failed requests.
    pub(super) fn ask_until(&self, end: Instant, every: Duration) -> (Vec<Duration>, u64) {
        let mut times = Vec::new();
        let mut unanswered = 0;
        while times.is_empty() || Instant::now() < end {
            let begun = Instant::now();
            unanswered += u64::from(self.get("/api/v1/flows?limit=50").is_none());
            times.push(begun.elapsed());
            thread::sleep(every);
        }
        times.sort();
        (times, unanswered)
    }

    /// Returns the resident memory of the process, bytes.
    pub(super) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.0.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    }

    /// Returns the body of a successful response of the API; `None` if the request fails.
    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect_timeout(&self.api, ANSWER).ok()?;
        stream.set_read_timeout(Some(ANSWER)).ok()?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.api
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.contains(" 200 ").then(|| body.to_owned())
    }
}

/// Finds the program `hopwise`, which is measured.
fn hopwise() -> Result<PathBuf, CliError> {
    programs::find("hopwise").ok_or_else(|| {
        CliError::new(
            "needs the program `hopwise`, which is neither beside this one nor in PATH; build it with `make build`",
        )
    })
}

fn cannot_start(error: std::io::Error) -> CliError {
    CliError::io("cannot start hopwise", error, "see the system's message")
}

fn configure(dir: &Path, text: &str) -> Result<PathBuf, CliError> {
    let config = dir.join("hopwise.toml");
    fs::write(&config, text).map_err(|error| {
        CliError::io(
            "cannot write a configuration",
            error,
            "set TMPDIR to a writable directory",
        )
    })?;
    Ok(config)
}

fn address(line: &str, mark: &str) -> Option<SocketAddr> {
    line.split_once(mark)?.1.trim().trim_end_matches('/').parse().ok()
}

/// Sums a metric over all labels in the text of `/metrics`.
fn sum(metrics: &str, name: &str) -> u64 {
    let values = metrics.lines().filter_map(|line| {
        let rest = line
            .strip_prefix(name)
            .filter(|rest| rest.starts_with([' ', '{']))?;
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    });
    values.sum::<f64>() as u64
}

/// Returns the losses inferred from sequence numbers. They are not real: the sender repeats its reports with the same numbers.
fn network(metrics: &str) -> u64 {
    let of_network = metrics.lines().filter(|line| line.contains("stage=\"network\""));
    sum(&of_network.collect::<Vec<_>>().join("\n"), "hopwise_drops_total")
}

/// Configuration of a collector, with thresholds that only the changed hop latency of the workload exceeds.
const CONFIG: &str = "\
collector.listen = [\"udp://127.0.0.1:0\"]
collector.max_flows = 1048576
api.listen = \"127.0.0.1:0\"
store.dir = \"store\"
[profiles.default]
dialect = \"intcollector-gen\"
[thresholds]
flow_latency = 100000
hop_latency = 10000
queue_occupancy = 1000
queue_congestion = 1000
link_utilization = \"10%\"
";

/// API address of an outlet, on a free port of the loopback interface.
const LISTEN: &str = "api.listen = \"127.0.0.1:0\"\n";
/// Consecutive polls that must find empty queues and no new datagram.
const QUIET: u32 = 4;
/// Time limit of a response.
const ANSWER: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_summed_by_their_whole_name() {
        let metrics =
            "# HELP a_total x\na_total{stage=\"network\"} 3\na_total{stage=\"b\"} 4\na_total_more 9\nb 1\n";
        assert_eq!(
            (sum(metrics, "a_total"), sum(metrics, "b"), sum(metrics, "c")),
            (7, 1, 0)
        );
    }

    #[test]
    fn addresses_are_read_from_the_log() {
        let line = "INFO receiving reports address=udp://127.0.0.1:4711\n";
        assert_eq!(address(line, "udp://"), "127.0.0.1:4711".parse().ok());
        assert_eq!(address(line, "http://"), None);
    }
}
