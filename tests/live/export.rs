//! Exports: from a report to the other system's table, through answers that fail, kills and restarts.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Instant,
};

use crate::support::{
    TempDir, hopwise,
    server::{Server, TIMEOUT, assert_balanced, report, stage},
    skipped,
};

/// A request as a server of this test got it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Got {
    pub(super) target: String,
    pub(super) body: Vec<u8>,
}

/// What the server of a test does with a request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Act {
    Accept,
    Status(u16),
    Close,
    Hang,
}

/// A server that does what it is told, once per request; afterwards it accepts.
pub(super) struct Scripted {
    pub(super) address: SocketAddr,
    pub(super) got: Receiver<(Got, Act)>,
    script: Arc<Mutex<Vec<Act>>>,
}

impl Scripted {
    pub(super) fn start(script: &[Act]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, got) = channel();
        let script = Arc::new(Mutex::new(script.iter().rev().copied().collect::<Vec<_>>()));
        let acts = Arc::clone(&script);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (sender, acts) = (sender.clone(), Arc::clone(&acts));
                thread::spawn(move || serve(stream, &sender, &acts));
            }
        });
        Self { address, got, script }
    }

    fn next(&self) -> (Got, Act) {
        self.got.recv_timeout(TIMEOUT).unwrap()
    }
}

fn serve(stream: TcpStream, sender: &Sender<(Got, Act)>, acts: &Mutex<Vec<Act>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(got) = request(&mut reader) {
        let act = acts.lock().unwrap().pop().unwrap_or(Act::Accept);
        if sender.send((got, act)).is_err() {
            return;
        }
        let status = match act {
            Act::Accept => 200,
            Act::Status(status) => status,
            Act::Close => return,
            Act::Hang => {
                let _ = reader.read(&mut [0]);
                return;
            }
        };
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 4\r\n\r\nword");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn request(reader: &mut BufReader<TcpStream>) -> Option<Got> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let target = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Got { target, body })
}

/// The deduplication token of a request, and the number of records that it says.
fn token(got: &Got) -> (String, u64) {
    let token = got.target.split("insert_deduplication_token=").nth(1).unwrap();
    let token = token.split('&').next().unwrap();
    (
        token.to_owned(),
        token.rsplit_once('-').unwrap().1.parse().unwrap(),
    )
}

/// The first stream of the first export, once it has been counted and `done` accepts it: until then, it says that nothing waits.
pub(super) fn exported(
    server: &Server,
    what: &str,
    done: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    let start = Instant::now();
    loop {
        let view = server.json("/api/v1/exports");
        if view["exports"][0]["counted"] != 0 && done(&view["exports"][0]) {
            return view["exports"][0].clone();
        }
        assert!(start.elapsed() < TIMEOUT, "never {what}: {view:#}");
        crate::support::pause();
    }
}

fn stored(server: &Server) -> u64 {
    let table = server.query("SELECT count(*) FROM events").json();
    table["rows"][0][0].as_u64().unwrap()
}

/// The stage of the loss budget, which is balanced and in the metrics too: in, out, queued.
fn budget(server: &Server) -> [u64; 3] {
    let status = server.json("/api/v1/status");
    assert_balanced(&status);
    let stage = stage(&status, "export");
    let counts = ["in", "out", "queued"].map(|name| stage[name].as_u64().unwrap());
    let line = format!(
        "hopwise_stage_out_total{{stage=\"export\",unit=\"records\"}} {}",
        counts[1]
    );
    assert!(server.get("/metrics").body.contains(&line), "{line}");
    counts
}

#[test]
fn each_record_arrives_whatever_the_server_and_the_kernel_do() {
    use Act::{Accept, Close, Hang, Status};
    let sink = Scripted::start(&[Status(503), Close, Accept, Status(429), Hang]);
    let config = format!(
        "[exports.lake]\nkind = \"clickhouse\"\nurl = \"http://{}\"\nstreams = [\"events\"]\nbatch = 40\nlinger = \"0s\"\n",
        sink.address
    );
    let server = Server::start(&config);
    server.send((0..100).map(|n| report(n, 1000 + n as u16, [1000, 2000, 3000])));
    server.settled(100);
    let expected = stored(&server);
    assert!(expected >= 100, "{expected}");
    let mut accepted: BTreeMap<String, (u64, Vec<u8>)> = BTreeMap::new();
    let mut before = None;
    // The request that hangs is the last before the kill; the one after it has the same records.
    let hanging = loop {
        let (got, act) = sink.next();
        if let Some(failed) = before.take() {
            assert_eq!(got, failed, "a request that failed is sent again as it was");
        }
        match act {
            Accept => _ = accepted.insert(token(&got).0, (token(&got).1, got.body)),
            Hang => break got,
            _ => before = Some(got),
        }
    };
    server.signal("-KILL");
    let before_the_kill: u64 = accepted.values().map(|(count, _)| count).sum();
    let (_, directory) = server.stop();
    let server = Server::start_in(directory, &config);
    let (first, _) = sink.next();
    assert_eq!(
        token(&first),
        token(&hanging),
        "what may have arrived is sent as the same batch"
    );
    assert_eq!(first.body, hanging.body);
    accepted.insert(token(&first).0, (token(&first).1, first.body));
    let view = exported(&server, "settled", |view| {
        view["waiting"] == 0 && view["held"] == 0
    });
    while let Ok((got, _)) = sink.got.try_recv() {
        accepted.insert(token(&got).0, (token(&got).1, got.body));
    }
    assert_eq!(accepted.values().map(|(count, _)| count).sum::<u64>(), expected);
    // What the first process has delivered came before this one.
    let came = expected - before_the_kill;
    assert_eq!(budget(&server), [came, came, 0]);
    assert_eq!(view["expired"], 0);
    // A server that refuses everything: what it says is shown, and nothing is thrown away.
    sink.script.lock().unwrap().extend([Status(403); 3]);
    server.send((0..10).map(|n| report(200 + n, 5000 + n as u16, [1000, 2000, 3000])));
    let view = exported(&server, "refused", |view| {
        view["last_error"].is_string() && view["waiting"].as_u64() >= Some(10)
    });
    let error = view["last_error"].as_str().unwrap();
    let expected = format!(
        "the server refused the credentials: {} answers HTTP 403 (these credentials may not write there): word",
        sink.address
    );
    assert_eq!(error, expected);
    assert_eq!(
        (view["rejected"].as_u64(), view["unauthorised"].as_u64()),
        (Some(0), Some(1))
    );
    let [into, out, queued] = budget(&server);
    assert!(
        (into, out) == (came + queued, came) && queued >= 10,
        "{into} {out} {queued}"
    );
    let metrics = server.get("/metrics").body;
    assert!(
        metrics.contains("hopwise_export_requests_unauthorised_total{export=\"lake\",stream=\"events\"} 1")
    );
    let (status, _) = server.stop();
    assert!(status.success(), "a stop does not wait for a server for ever");
}

/// ClickHouse's engine behind our HTTP front; `None` where there is none.
pub(super) struct ClickHouse {
    child: Child,
    address: String,
    secret: String,
    directory: TempDir,
    python: PathBuf,
}

impl ClickHouse {
    pub(super) fn start(secret: &str) -> Option<Self> {
        // A virtual environment with `chdb`, as scripts/sink-servers makes it, or the system's Python.
        let python = std::env::var_os("HOPWISE_CHDB_PYTHON").map_or_else(
            || {
                let own =
                    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/sink-servers/chdb/bin/python");
                if own.exists() {
                    own
                } else {
                    PathBuf::from("python3")
                }
            },
            PathBuf::from,
        );
        let has = Command::new(&python)
            .args(["-c", "import chdb"])
            .stderr(Stdio::null())
            .status();
        if !has.is_ok_and(|status| status.success()) {
            skipped("exports to ClickHouse: needs chdb (scripts/sink-servers)");
            return None;
        }
        let directory = TempDir::new();
        let (child, port) = Self::spawn(&python, &directory, secret, "0");
        let address = format!("127.0.0.1:{port}");
        Some(Self {
            child,
            address,
            secret: secret.to_owned(),
            directory,
            python,
        })
    }

    fn spawn(python: &PathBuf, directory: &TempDir, secret: &str, port: &str) -> (Child, String) {
        let front = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/servers/clickhouse.py");
        let mut child = Command::new(python)
            .arg(front)
            .arg(directory.join(""))
            .args([secret, port])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut port)
            .unwrap();
        (child, port.trim().to_owned())
    }

    /// Kills it.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, with the same data at the same address.
    pub(super) fn restart(&mut self) {
        let port = self.address().port().to_string();
        (self.child, _) = Self::spawn(&self.python, &self.directory, &self.secret, &port);
    }

    /// Where it takes HTTP.
    pub(super) fn address(&self) -> SocketAddr {
        self.address.parse().unwrap()
    }

    pub(super) fn query(&self, sql: &str) -> String {
        let sql = format!("{sql} FORMAT TabSeparated");
        let mut stream = TcpStream::connect(&self.address).unwrap();
        // "hopwise:correct horse".
        let request = format!(
            "POST / HTTP/1.1\r\nAuthorization: Basic aG9wd2lzZTpjb3JyZWN0IGhvcnNl\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{sql}",
            sql.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.trim().to_owned()
    }
}

impl Drop for ClickHouse {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes the tables, and checks that each thing that is missing is named.
fn prepare(directory: &TempDir, export: &str, password: &std::path::Path) {
    let config = directory.join("check.toml");
    std::fs::write(&config, export).unwrap();
    let config = config.to_str().unwrap();
    let connect = || hopwise(["check", "-c", config, "--connect"]);
    let run = connect();
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(
        run.stdout
            .contains("export lake: ClickHouse refuses the credentials (HTTP 403: Code: 516."),
        "{run:?}"
    );
    std::fs::write(password, "correct horse\n").unwrap();
    let run = connect();
    assert!(
        run.stdout
            .contains("export lake: ClickHouse has no table net.events; `hopwise schema apply`"),
        "{run:?}"
    );
    let run = hopwise(["schema", "apply", "-c", config, "lake"]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (Some(0), "14 statement(s) executed\n"),
        "{run:?}"
    );
    let run = connect();
    assert_eq!(run.code, Some(0), "{run:?}");
    // Again: nothing changes.
    assert_eq!(hopwise(["schema", "apply", "-c", config, "lake"]).code, Some(0));
}

/// 150 reports, counted on from `from`: of 50 flows, each with another latency of its first hop.
pub(super) fn reports_from(from: u32) -> impl Iterator<Item = Vec<u8>> {
    (from..from + 150).map(|n| report(n, 1000 + (n % 50) as u16, [1000 + n * 700, 2000, 3000]))
}

/// The rows of a query of the store: a line each, with tabs between the cells, as ClickHouse writes them.
pub(super) fn own(server: &Server, sql: &str) -> String {
    let rows = server.query(sql).json()["rows"].as_array().unwrap().clone();
    let cell = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => "\\N".to_owned(),
        other => other.to_string(),
    };
    let line = |row: &serde_json::Value| {
        row.as_array()
            .unwrap()
            .iter()
            .map(cell)
            .collect::<Vec<_>>()
            .join("\t")
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn clickhouse_has_what_the_store_has() {
    let Some(engine) = ClickHouse::start("hopwise:correct horse") else {
        return;
    };
    let directory = TempDir::new();
    let password = directory.join("password");
    std::fs::write(&password, "wrong\n").unwrap();
    let export = format!(
        "[exports.lake]\nkind = \"clickhouse\"\nurl = \"http://{}\"\ndatabase = \"net\"\nuser = \"hopwise\"\npassword_file = \"{}\"\n\
         streams = [\"events\", \"rollups\", \"flows\", \"drops\", \"losses\"]\nlinger = \"0s\"\n",
        engine.address,
        password.display()
    );
    prepare(&directory, &export, &password);
    let server = Server::start(&export);
    server.send((0..300).map(|n| report(n, 1000 + (n % 50) as u16, [1000 + n * 700, 2000, 3000])));
    server.settled(300);
    let drained = hopwise([
        "export",
        "drain",
        "--wait",
        "60",
        "--api",
        &format!("http://{}", server.api),
    ]);
    assert_eq!(drained.code, Some(0), "{drained:?}");
    let own = |sql: &str| own(&server, sql);
    let columns = "id, kind, ifnull(metric, ''), ifnull(flow, ''), ifnull(node, 4294967295), value, previous, threshold, basis";
    let theirs =
        "lower(leftPad(hex(id), 16, '0')), kind, metric, flow, node, value, previous, threshold, basis";
    let (there, here) = (
        engine.query(&format!("SELECT {theirs} FROM net.events ORDER BY id")),
        // SQLite compares the text of the id; both are in the order of unsigned numbers.
        own(&format!("SELECT {columns} FROM events ORDER BY id")),
    );
    let different = there
        .lines()
        .zip(here.lines())
        .find(|(there, here)| there != here);
    assert_eq!((different, there.lines().count()), (None, here.lines().count()));
    assert_eq!(
        engine.query("SELECT flow, reports, toUnixTimestamp64Nano(last_seen), arrayStringConcat(path, '>') FROM net.flows FINAL ORDER BY flow"),
        own("SELECT flow, reports, last_seen, path FROM flows ORDER BY flow")
    );
    // The same time range again: the server recognises what it has, by id.
    let before = engine.query("SELECT count(), uniqExact(id) FROM net.events");
    let (status, directory) = server.stop();
    assert!(status.success());
    let text = std::fs::read_to_string(directory.join("hopwise.toml")).unwrap();
    let store = directory.join("store");
    std::fs::write(
        directory.join("replay.toml"),
        // In several batches: it ends with the last one.
        text.replace("\"store\"", &format!("\"{}\"", store.display()))
            .replace("linger =", "batch = 40\nlinger ="),
    )
    .unwrap();
    let replay = directory.join("replay.toml");
    let run = hopwise([
        "export",
        "replay",
        "-c",
        replay.to_str().unwrap(),
        "lake",
        "--from",
        "1h",
        "--stream",
        "events",
    ]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let after = engine.query("SELECT count(), uniqExact(id) FROM net.events");
    assert_eq!(after.split('\t').nth(1), before.split('\t').nth(1));
    assert!(run.stdout.contains("clickhouse"), "{run:?}");
}
