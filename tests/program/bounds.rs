//! Every answer is bounded, for any request and any speed of the client.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    hopwise,
    server::{Server, TIMEOUT, report},
};

/// One step of SQLite's virtual machine that takes many minutes.
const ENDLESS: &str = "SELECT length(trim(printf('%.*c', 1000000, '0'), printf('%.*c', 80000, '1') || '0'))";

fn waits(condition: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !condition() {
        if begun.elapsed() > TIMEOUT {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Processes of this server that execute queries.
fn helpers(server: &Server) -> usize {
    let children = format!("/proc/{0}/task", server.id());
    let tasks = fs::read_dir(children).unwrap().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.map(|list| list.split_whitespace().count()).sum()
}

#[test]
fn a_query_that_cannot_stop_by_itself_is_ended() {
    let server = Server::start("api.query_timeout = \"300ms\"");
    let begun = Instant::now();
    let answer = server.query(ENDLESS);
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(answer.body.contains("took longer than 0.3 s"), "{answer:?}");
    assert!(begun.elapsed() < TIMEOUT, "{:?}", begun.elapsed());
    assert_eq!(server.query("SELECT 1 AS one").json()["rows"], json!([[1]]));
}

#[test]
fn a_query_ends_when_its_client_goes_away() {
    let server = Server::start("api.query_timeout = \"10m\"\napi.max_queries = 1");
    let mut client = TcpStream::connect(server.api).unwrap();
    let body = json!({"sql": ENDLESS}).to_string();
    let (api, length) = (server.api, body.len());
    let head = format!("POST /api/v1/query HTTP/1.1\r\nHost: {api}\r\nContent-Type: application/json");
    write!(client, "{head}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    assert!(waits(|| helpers(&server) == 1), "it begins");
    drop(client);
    assert!(waits(|| helpers(&server) == 0), "it ends");
    assert_eq!(server.query("SELECT 1 AS one").json()["rows"], json!([[1]]));
}

#[test]
fn the_answer_to_a_query_is_bounded_in_bytes() {
    let server = Server::start("");
    let answer = server.query(
        "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c LIMIT 1000) SELECT i, printf('%.*c', 100000, 'x') FROM c",
    );
    assert!(answer.body.len() < 9 << 20, "{}", answer.body.len());
    let table = answer.json();
    assert_eq!(table["truncated"], true);
    assert!(table["rows"].as_array().unwrap().len() > 10);
}

/// All rows of `name`, one per request.
fn pages(server: &Server, path: &str, name: &str, cursor: &str) -> Vec<Value> {
    let (mut rows, mut next) = (Vec::new(), String::new());
    loop {
        let separator = if path.contains('?') { '&' } else { '?' };
        let page = server.json(&format!("{path}{separator}limit=1{next}"));
        rows.extend(page[name].as_array().unwrap().iter().cloned());
        next = match &page["next"] {
            Value::Null => return rows,
            Value::String(text) => format!("&{cursor}={text}"),
            number => format!("&{cursor}={number}"),
        };
        assert!(rows.len() < 1_000, "{rows:?}");
    }
}

#[test]
fn pages_make_up_the_whole() {
    let server = Server::start("");
    server.send((0..5).map(|seq| report(seq, 5000 + seq as u16, [1_000 + seq, 2_000, 3_000])));
    server.settled(5);
    for (path, name, cursor, rows) in [
        ("/api/v1/nodes", "nodes", "after", 3),
        ("/api/v1/links", "links", "offset", 2),
        ("/api/v1/paths", "paths", "offset", 1),
        ("/api/v1/flows?sort=latency", "flows", "after", 5),
    ] {
        let whole = server.json(path);
        assert_eq!(
            (whole[name].as_array().unwrap().len(), &whole["next"]),
            (rows, &Value::Null),
            "{path}"
        );
        let names = |rows: &[Value]| -> Vec<Value> {
            rows.iter()
                .map(|row| json!([row["node"], row["from"], row["to"], row["path"], row["id"]]))
                .collect()
        };
        let paged = pages(&server, path, name, cursor);
        assert_eq!(names(&paged), names(whole[name].as_array().unwrap()), "{path}");
    }
}

#[test]
fn pages_have_every_event_also_those_of_one_time() {
    let server = Server::start("");
    server.send((0..1_500).map(|seq| report(seq, 5000 + seq as u16, [1_000, 2_000, 3_000])));
    server.settled(1_500);
    let count = |sql: &str| server.query(sql).json()["rows"][0][0].as_u64().unwrap();
    let sizes = "SELECT max(n) FROM (SELECT count(*) AS n FROM events WHERE kind = 'new' GROUP BY ts)";
    assert!(count(sizes) > 2, "no page ends between events of one time");
    let all = count("SELECT count(DISTINCT id) FROM events WHERE kind = 'new'");
    let mut ids = std::collections::BTreeSet::new();
    let mut after = String::new();
    loop {
        let page = server.json(&format!("/api/v1/events?kind=new&limit=2{after}"));
        let events = page["events"].as_array().unwrap();
        ids.extend(
            events
                .iter()
                .map(|event| event["id"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(ids.len() as u64, all);
    let api = format!("http://{}", server.api);
    let run = hopwise([
        "events", "--kind", "new", "--json", "--limit", "100000", "--api", &api,
    ]);
    assert_eq!((run.code, run.stdout.lines().count() as u64), (Some(0), all));
}

#[test]
fn metrics_are_openmetrics_for_those_that_accept_it() {
    let server = Server::start("");
    let plain = server.get("/metrics");
    assert!(
        plain
            .headers
            .to_lowercase()
            .contains("content-type: text/plain; version=0.0.4"),
        "{plain:?}"
    );
    assert!(plain.body.contains("\nprocess_open_fds ") && !plain.body.contains("quantile"));
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    let open = server.ask("GET", "/metrics", accept, "");
    assert!(
        open.headers
            .to_lowercase()
            .contains("content-type: application/openmetrics-text"),
        "{open:?}"
    );
    assert!(open.body.ends_with("\n# EOF\n"));
}

#[test]
fn promtool_accepts_the_metrics() {
    let mut promtool = Command::new("promtool");
    promtool
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Ok(mut child) = promtool.spawn() else {
        let line = "SKIPPED promtool_accepts_the_metrics: no promtool (Debian: prometheus)\n";
        std::io::stderr().write_all(line.as_bytes()).unwrap();
        return;
    };
    let server = Server::start("");
    server.send((0..5).map(|seq| report(seq, 5000, [1_000, 2_000, 3_000])));
    server.settled(5);
    child
        .stdin
        .take()
        .unwrap()
        .write_all(server.get("/metrics").body.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn idle_and_slow_connections_exclude_nobody() {
    let server = Server::start("");
    // More connections than the server accepts; each of them idle for ever.
    let connect = |index: usize| {
        let mut stream = TcpStream::connect(server.api).unwrap();
        match index % 3 {
            0 => {}
            1 => stream.write_all(b"GET /api/v1/status HT").unwrap(),
            _ => write!(
                stream,
                "POST /api/v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{{"
            )
            .unwrap(),
        }
        stream
    };
    let mut idle: Vec<TcpStream> = (0..600).map(connect).collect();
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.get("/api/v1/status").status, 200);
    // The oldest was closed for a newer one.
    idle[0].set_read_timeout(Some(TIMEOUT)).unwrap();
    assert!(matches!(idle[0].read(&mut [0; 1]), Ok(0) | Err(_)));
}

#[test]
fn files_of_the_store_are_not_for_everybody() {
    let server = Server::start("");
    server.send([report(0, 1, [1, 2, 3])]);
    server.settled(1);
    let files = || fs::read_dir(server.path("store")).unwrap().flatten();
    assert!(waits(|| files().count() >= 2));
    for file in files() {
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o137, 0, "{:?}: {mode:o}", file.path());
    }
}
