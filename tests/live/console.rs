//! A console over ClickHouse: it answers as the collector does whose records are there, and what a fleet of collectors observed is there
//! once, whatever was killed meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use collector::Batch;
use serde_json::{Value, json};

use super::export::{ClickHouse, own, reports_from};
use crate::support::{
    TempDir, hopwise,
    server::{Answer, Server, TIMEOUT, report},
};

pub(super) const SECRET: &str = "hopwise:correct horse";

/// A file with the password.
pub(super) fn password() -> (TempDir, String) {
    let directory = TempDir::new();
    let file = directory.join("password");
    std::fs::write(&file, "correct horse\n").unwrap();
    let file = file.display().to_string();
    (directory, file)
}

pub(super) fn account(password: &str) -> String {
    format!("database = \"net\"\nuser = \"hopwise\"\npassword_file = \"{password}\"\n")
}

/// What a collector of this name adds to its configuration.
fn collector(name: &str, engine: &ClickHouse, password: &str) -> String {
    format!(
        "collector.name = \"{name}\"\ncollector.push_interval = \"1s\"\n{}\
         [[rules]]\nname = \"slow\"\nwhen = \"flow_latency > 100us\"\n",
        lake(engine, password)
    )
}

/// The export of what a console needs.
fn lake(engine: &ClickHouse, password: &str) -> String {
    format!(
        "[exports.lake]\nkind = \"clickhouse\"\nurl = \"http://{}\"\n{}linger = \"0s\"\n",
        engine.address(),
        account(password)
    )
}

/// The rules of events in [`keep`].
const RULES: [&str; 2] = ["slow", "a 'deep' queue\\"];

/// Makes a store that has a batch.
pub(super) fn keep(directory: &TempDir, batch: Batch) {
    let records = batch.len() as u64;
    let store = store::Store::open(store::Config::new(directory.join("store"))).unwrap();
    store.set_rules(RULES.map(str::to_owned).to_vec());
    store.submit(batch);
    assert_eq!(store.close().committed, records);
}

/// A collector of this name whose store is in a directory.
pub(super) fn of_store(directory: TempDir, name: &str, engine: &ClickHouse, password: &str) -> Server {
    Server::start_in(
        directory,
        &format!("collector.name = \"{name}\"\n{}", lake(engine, password)),
    )
}

pub(super) fn console(engine: &ClickHouse, password: &str, more: &str) -> Server {
    Server::start_console(&format!(
        "api.listen = \"127.0.0.1:0\"\napi.query_timeout = \"100s\"\n{more}\n[console]\nurl = \"http://{}\"\n{}pairs = [[\"c1\", \"c2\"]]\n",
        engine.address(),
        account(password)
    ))
}

/// Makes the tables.
pub(super) fn prepare(server: &Server) {
    let config = server.path("hopwise.toml");
    let run = hopwise(["schema", "apply", "-c", config.to_str().unwrap(), "lake"]);
    assert_eq!(run.code, Some(0), "{run:?}");
}

/// Waits until everything that is stored is in ClickHouse.
pub(super) fn drain(server: &Server) {
    let run = hopwise([
        "export",
        "drain",
        "--wait",
        "100",
        "--api",
        &format!("http://{}", server.api),
    ]);
    assert_eq!(run.code, Some(0), "{run:?}");
}

/// Everything that a collector has is stored and exported, and nothing comes any more: it is stopped and started again.
pub(super) fn at_rest(server: Server, config: &str) -> Server {
    let (status, directory) = server.stop();
    assert!(status.success());
    let server = Server::start_in(directory, config);
    drain(&server);
    server
}

/// The rows of an answer, in an order of their own: that of rows of one time is not defined.
pub(super) fn rows(answer: &Value, list: &str) -> Vec<String> {
    let rows = answer[list].as_array().unwrap_or_else(|| panic!("{answer:#}"));
    let mut rows: Vec<String> = rows.iter().map(ToString::to_string).collect();
    rows.sort();
    rows
}

pub(super) fn times(answer: &Value, list: &str) -> Vec<u64> {
    answer[list]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["ts"].as_u64().unwrap())
        .collect()
}

/// Both answer each question with the same rows.
fn same_answers(collector: &Server, console: &Server) {
    let all = collector.json("/api/v1/events?limit=10000");
    let (newest, oldest) = (times(&all, "events")[0], *times(&all, "events").last().unwrap());
    // Some changes are before it, whatever the times between reports are.
    let changes = times(
        &collector.json("/api/v1/events?limit=10000&kind=change"),
        "events",
    );
    let middle = changes[changes.len() / 3];
    // The time of a rollup is the start of its interval.
    let minutes = oldest - 120_000_000_000;
    let flow = "10.0.0.1:1007%3E10.0.0.2:80/17";
    for question in [
        "events?limit=10000".to_owned(),
        "events?limit=10000&kind=new".to_owned(),
        "events?limit=10000&kind=rule_on".to_owned(),
        "events?limit=10000&node=101&metric=hop_latency".to_owned(),
        format!("events?limit=10000&flow={flow}"),
        format!("events?limit=10000&from={middle}"),
        format!("events?limit=10000&before={middle}"),
        format!("events?limit=10000&from={oldest}&before={middle}&kind=change"),
        "rollups?limit=10000".to_owned(),
        "rollups?limit=10000&interval=1&metric=queue_occupancy&node=101&queue=3".to_owned(),
        "rollups?limit=10000&metric=link_utilization&interface=2".to_owned(),
        format!("rollups?limit=10000&flow={flow}"),
        format!("rollups?limit=10000&from={minutes}&to={newest}"),
    ] {
        let list = if question.starts_with("events") {
            "events"
        } else {
            "rollups"
        };
        let [here, there] = [collector, console].map(|server| server.json(&format!("/api/v1/{question}")));
        assert!(!rows(&here, list).is_empty(), "{question}: nothing to compare");
        assert_eq!(rows(&there, list), rows(&here, list), "{question}");
        assert_eq!(times(&there, list), times(&here, list), "{question}");
        assert_eq!(
            (&there["next"], &there["truncated"]),
            (&here["next"], &here["truncated"]),
            "{question}"
        );
    }
    // Pages end in the same places, also between events of one time.
    let mut after = String::new();
    let mut paged = Vec::new();
    loop {
        let question = format!("events?limit=7{after}");
        let [here, there] = [collector, console].map(|server| server.json(&format!("/api/v1/{question}")));
        assert_eq!(
            (&there["next"], rows(&there, "events")),
            (&here["next"], rows(&here, "events")),
            "{question}"
        );
        paged.extend(times(&here, "events"));
        let Some(next) = here["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(paged, times(&all, "events"));
    let flow = flow.replace('/', "%2F");
    for question in [
        format!("flows/{flow}/history"),
        format!("flows/{flow}/history?to={newest}&limit=2"),
    ] {
        let [here, there] = [collector, console].map(|server| server.json(&format!("/api/v1/{question}")));
        assert!(
            here["series"].as_array().is_some_and(|series| !series.is_empty()),
            "{here:#}"
        );
        assert_eq!(there, here, "{question}");
    }
}

fn error(answer: &Answer) -> (u16, String) {
    (answer.status, answer.json()["error"].as_str().unwrap().to_owned())
}

#[test]
fn a_console_answers_as_the_collector_whose_records_it_has() {
    let Some(mut engine) = ClickHouse::start(SECRET) else {
        return;
    };
    let (_directory, password) = password();
    let config = collector("c1", &engine, &password);
    let server = Server::start(&config);
    prepare(&server);
    server.send(reports_from(0).chain(reports_from(150)));
    server.settled(300);
    let server = at_rest(server, &config);
    let reader = "api.tokens = [{ token = \"0123456789abcdef\", role = \"read\", name = \"r\" }]";
    let console = console(&engine, &password, "");
    same_answers(&server, &console);
    // What is exported once more is there once.
    let (status, directory) = server.stop();
    assert!(status.success());
    let file = directory.join("hopwise.toml");
    let store = directory.join("store").display().to_string();
    let text = std::fs::read_to_string(&file)
        .unwrap()
        .replace("\"store\"", &format!("\"{store}\""));
    // In other batches than before, or ClickHouse would recognise them.
    let text = text.replace("linger = \"0s\"\n", "linger = \"0s\"\nbatch = 37\n");
    std::fs::write(directory.join("replay.toml"), text).unwrap();
    let replay = directory.join("replay.toml");
    let run = hopwise([
        "export",
        "replay",
        "-c",
        replay.to_str().unwrap(),
        "lake",
        "--from",
        "1h",
    ]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let server = Server::start_in(directory, &config);
    same_answers(&server, &console);
    sql(&console);
    without_live_state(&console);
    let short = Server::start_console(&format!(
        "api.listen = \"127.0.0.1:0\"\napi.query_timeout = \"2s\"\n[console]\nurl = \"http://{}\"\n{}",
        engine.address(),
        account(&password)
    ));
    let (status, error) = error(&short.query("SELECT count() FROM numbers(1000000000000)"));
    assert!(
        status == 400 && error.starts_with("the query took longer than 2 s; narrow it"),
        "{error}"
    );
    // Roles are those of the API.
    let guarded = self::console(&engine, &password, reader);
    assert_eq!(guarded.get("/api/v1/events").status, 401);
    let bearer = "Authorization: Bearer 0123456789abcdef\r\n";
    assert_eq!(guarded.ask("GET", "/api/v1/events", bearer, "").status, 200);
    assert_eq!(
        guarded.ask("POST", "/api/v1/config/reload", bearer, "").status,
        403
    );
    // Without ClickHouse, and with it again.
    engine.kill();
    let gone = ask_once(&console, "/api/v1/events");
    assert!(
        gone.0 == 503 && gone.1.contains("correct the url, or start the server"),
        "{gone:?}"
    );
    engine.restart();
    same_answers(&server, &console);
}

/// The first answer, also when it is that a server is away.
fn ask_once(console: &Server, path: &str) -> (u16, String) {
    use std::io::{Read as _, Write as _};
    let mut stream = console.connect();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        console.api
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    (text.split(' ').nth(1).unwrap().parse().unwrap(), text)
}

/// SQL is ClickHouse's, bounded, and can only read.
fn sql(console: &Server) {
    let rows = console.query("SELECT kind, toString(arraySort(path)) AS nodes, count() AS n FROM events WHERE kind = 'new' AND metric = 'flow_path' GROUP BY kind, path").json();
    // Once more after the replay.
    assert_eq!(rows["rows"], json!([["new", "[101,102,103]", 100]]), "{rows:#}");
    assert_eq!(
        (&rows["columns"], &rows["truncated"]),
        (&json!(["kind", "nodes", "n"]), &json!(false))
    );
    let body = json!({ "sql": "SELECT number FROM numbers(1000000)", "limit": 3 }).to_string();
    let cut = console.ask("POST", "/api/v1/query", "", &body).json();
    assert_eq!(
        (&cut["rows"], &cut["truncated"]),
        (&json!([[0], [1], [2]]), &json!(true))
    );
    for (sql, words) in [
        ("DROP TABLE net.events", "a query can only read; write a SELECT"),
        (
            "TRUNCATE TABLE net.events",
            "a query can only read; write a SELECT",
        ),
        (
            "SELECT * FROM url('http://127.0.0.1:1/', CSV, 'a Int32')",
            "a query can only read",
        ),
        ("SELEC 1", "ClickHouse refuses the query: Code: 62."),
        (
            "SELECT a FROM net.nothing",
            "ClickHouse refuses the query: Code: 60.",
        ),
    ] {
        let (status, error) = error(&console.query(sql));
        assert!(status == 400 && error.contains(words), "{sql}: {status} {error}");
    }
    assert_ne!(
        console.query("SELECT count() FROM net.events").json()["rows"][0][0],
        0
    );
}

/// What only a running collector knows is refused, and not empty.
fn without_live_state(console: &Server) {
    for path in ["rates", "events/stream", "switch", "intents", "dta"] {
        let (status, error) = error(&console.get(&format!("/api/v1/{path}")));
        let words = format!("/api/v1/{path} is not available in a console");
        assert!(
            status == 404 && error.starts_with(&words),
            "{path}: {status} {error}"
        );
    }
    // Without a time, it is the last 15 minutes.
    for list in ["flows", "nodes"] {
        let answer = console.json(&format!("/api/v1/{list}"));
        assert!(
            !answer[list].as_array().unwrap().is_empty() && answer["range"]["to"].is_u64(),
            "{answer:#}"
        );
    }
    let status = console.json("/api/v1/status");
    assert_eq!(
        (&status["console"], &status["inputs"], &status["loss_budget"]),
        (&json!(true), &json!([]), &json!([]))
    );
    let (status, error) = error(&console.get("/api/v1/flows/00c0ffee/history"));
    assert!(
        status == 400 && error.contains("a console knows flows by their texts"),
        "{status} {error}"
    );
    assert_eq!(console.json("/api/v1/session")["console"], true);
    assert_eq!(console.get("/healthz").status, 200);
    let page = console.get("/").body;
    assert!(
        page.contains("<!doctype html>") || page.contains("<!DOCTYPE html>"),
        "{page}"
    );
}

/// A collector that is killed with `kill -9` and started again.
pub(super) fn killed(server: Server, config: &str, meanwhile: impl FnOnce()) -> Server {
    server.signal("-KILL");
    let (_, directory) = server.stop();
    meanwhile();
    Server::start_in(directory, config)
}

/// The numbers of the reports that a collector has stored: each is of a flow of its own.
pub(super) fn stored(server: &Server) -> BTreeSet<u64> {
    let text = own(
        server,
        &format!("SELECT DISTINCT sport - 1000 FROM events WHERE {FIRST}"),
    );
    text.lines().map(|line| line.parse().unwrap()).collect()
}

pub(super) fn wait_for_stored(server: &Server, number: u32) {
    let start = Instant::now();
    while !stored(server).contains(&number.into()) {
        assert!(start.elapsed() < TIMEOUT, "{number} is never stored");
        crate::support::pause();
    }
}

/// Collectors and what they are sent.
pub(super) struct Fleet {
    /// Two hear the same; one hears the reports of other flows.
    pub(super) pair: [Option<Server>; 2],
    pub(super) alone: Option<Server>,
    pub(super) sent: u32,
}

impl Fleet {
    /// Sends the next reports to those that run; the third has those from [`ALONE`] on.
    pub(super) fn send(&mut self) {
        let numbers = self.sent..self.sent + STEP;
        self.sent = numbers.end;
        let reports = |base: u32| {
            numbers
                .clone()
                .map(move |n| report(n, (1000 + base + n) as u16, [1000, 2000, 3000]))
        };
        self.pair
            .iter()
            .flatten()
            .for_each(|server| server.send(reports(0)));
        self.alone.iter().for_each(|server| server.send(reports(ALONE)));
    }
}

#[test]
fn what_a_fleet_observed_is_there_once_whatever_is_killed() {
    let Some(mut engine) = ClickHouse::start(SECRET) else {
        return;
    };
    let (_directory, password) = password();
    let configs = ["c1", "c2", "c3"].map(|name| collector(name, &engine, &password));
    let [c1, c2, c3] = configs.each_ref().map(|config| Server::start(config));
    prepare(&c1);
    let gone = console(&engine, &password, "");
    let mut fleet = Fleet {
        pair: [Some(c1), Some(c2)],
        alone: Some(c3),
        sent: 0,
    };
    fleet.send();
    // One of the pair at a time, at work: the other hears what comes meanwhile.
    for (at, config) in configs[..2].iter().enumerate() {
        let server = fleet.pair[at].take().unwrap();
        fleet.pair[at] = Some(killed(server, config, || fleet.send()));
        fleet.send();
        // What one lost, the other has on disk before it is killed itself.
        fleet
            .pair
            .iter()
            .flatten()
            .for_each(|server| wait_for_stored(server, fleet.sent - 1));
    }
    engine.kill();
    fleet.send();
    engine.restart();
    // What the third had not committed, and what comes while it is away, nobody else hears.
    let server = fleet.alone.take().unwrap();
    fleet.alone = Some(killed(server, &configs[2], || fleet.send()));
    let back = fleet.sent;
    gone.signal("-KILL");
    drop(gone);
    let console = console(&engine, &password, "");
    fleet.send();
    let Fleet {
        pair: [Some(c1), Some(c2)],
        alone: Some(c3),
        sent,
    } = fleet
    else {
        panic!("all run")
    };
    for (server, last) in [(&c1, sent - 1), (&c2, sent - 1), (&c3, ALONE + sent - 1)] {
        wait_for_stored(server, last);
        drain(server);
    }
    let [first, second, third] = [&c1, &c2, &c3].map(stored);
    let all: BTreeSet<u64> = (0..sent.into()).collect();
    assert_eq!(
        first.union(&second).copied().collect::<BTreeSet<_>>(),
        all,
        "the pair has everything"
    );
    // The third has lost what came between its last commit and its start, and nothing else.
    let lost: Vec<u64> = all
        .iter()
        .copied()
        .filter(|n| !third.contains(&(n + u64::from(ALONE))))
        .collect();
    let began = *lost.first().expect("something came while it was away");
    assert_eq!(lost, (began..back.into()).collect::<Vec<_>>());
    assert!(began <= u64::from(back - STEP));
    // In the console: each once.
    let found = console.json("/api/v1/events?kind=new&metric=flow_path&limit=10000");
    let port = |event: &Value| event["flow"]["sport"].as_u64().unwrap() - 1000;
    let mut numbers: Vec<u64> = found["events"].as_array().unwrap().iter().map(port).collect();
    numbers.sort_unstable();
    let expected: Vec<u64> = all.iter().chain(&third).copied().collect();
    assert_eq!(numbers, expected, "sent = in ClickHouse + lost, none twice");
    // In the tables: once for each collector that heard it, under one id.
    let rows = engine.query(&format!(
        "SELECT collector, count(), uniqExact(id) FROM net.events WHERE {FIRST} GROUP BY collector ORDER BY collector"
    ));
    let line = |name: &str, stored: &BTreeSet<u64>| format!("{name}\t{0}\t{0}", stored.len());
    assert_eq!(
        rows,
        [line("c1", &first), line("c2", &second), line("c3", &third)].join("\n")
    );
    let ids = format!("SELECT uniqExact(id) FROM net.events WHERE {FIRST} AND collector IN ('c1', 'c2')");
    assert_eq!(engine.query(&ids), all.len().to_string());
}

#[test]
fn rollups_of_a_pair_are_not_added_up_and_those_of_others_are() {
    let Some(engine) = ClickHouse::start(SECRET) else {
        return;
    };
    let (_directory, password) = password();
    let configs = ["c1", "c2"].map(|name| collector(name, &engine, &password));
    let servers = configs.each_ref().map(|config| Server::start(config));
    prepare(&servers[0]);
    // At the same time: of different minutes, nothing would be of both.
    servers.iter().for_each(|server| server.send(reports_from(0)));
    for server in &servers {
        server.settled(150);
    }
    let [c1, c2] = servers;
    let servers = [at_rest(c1, &configs[0]), at_rest(c2, &configs[1])];
    let sql = "SELECT ts, interval, metric, flow, ifnull(node, '') || ' ' || ifnull(interface, '') || ' ' || ifnull(queue, ''), count FROM rollups";
    let mut values: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in servers
        .iter()
        .flat_map(|server| own(server, sql).lines().map(str::to_owned).collect::<Vec<_>>())
    {
        let (key, count) = line.rsplit_once('\t').unwrap();
        values
            .entry(key.to_owned())
            .or_default()
            .push(count.parse().unwrap());
    }
    let counts = |console: &Server| -> Vec<u64> {
        let found = console.json("/api/v1/rollups?limit=10000");
        let count = |row: &Value| row["count"].as_u64().unwrap();
        let mut counts: Vec<u64> = found["rollups"].as_array().unwrap().iter().map(count).collect();
        counts.sort_unstable();
        counts
    };
    let sorted = |mut counts: Vec<u64>| {
        counts.sort_unstable();
        counts
    };
    let pair = sorted(
        values
            .values()
            .map(|counts| *counts.iter().max().unwrap())
            .collect(),
    );
    assert_eq!(counts(&console(&engine, &password, "")), pair);
    let parts = sorted(values.values().map(|counts| counts.iter().sum()).collect());
    assert_ne!(parts, pair, "both have heard something");
    let text = format!(
        "api.listen = \"127.0.0.1:0\"\n[console]\nurl = \"http://{}\"\n{}",
        engine.address(),
        account(&password)
    );
    assert_eq!(counts(&Server::start_console(&text)), parts);
}

/// Each worker has rollups of its own, and so has a process after a restart: they are parts of one.
#[test]
fn rollups_of_several_workers_are_added_up() {
    let Some(engine) = ClickHouse::start(SECRET) else {
        return;
    };
    let (_directory, password) = password();
    let config = format!("collector.workers = 2\n{}", collector("c3", &engine, &password));
    let server = Server::start(&config);
    prepare(&server);
    server.send(reports_from(0));
    server.settled(150);
    let server = at_rest(server, &config);
    let all: u64 = own(&server, "SELECT count() FROM rollups").parse().unwrap();
    let key = "ts, interval, metric, flow, node, interface, queue";
    let sums = "sum(count), min(min), max(max), sum(sum)";
    let sql = format!("SELECT ts, interval, metric, ifnull(node, ''), {sums} FROM rollups GROUP BY {key}");
    let mut expected: Vec<String> = own(&server, &sql).lines().map(str::to_owned).collect();
    expected.sort();
    assert!(
        (expected.len() as u64) < all,
        "some have two parts: {} of {all}",
        expected.len()
    );
    // Sent again in other batches, they are the same parts.
    let (status, directory) = server.stop();
    assert!(status.success());
    let text = std::fs::read_to_string(directory.join("hopwise.toml")).unwrap();
    let store = directory.join("store").display().to_string();
    let text = text
        .replace("\"store\"", &format!("\"{store}\""))
        .replace("linger = \"0s\"\n", "linger = \"0s\"\nbatch = 37\n");
    let replay = directory.join("replay.toml");
    std::fs::write(&replay, text).unwrap();
    let run = hopwise([
        "export",
        "replay",
        "-c",
        replay.to_str().unwrap(),
        "lake",
        "--from",
        "1h",
    ]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(
        engine.query("SELECT count() FROM net.rollups FINAL"),
        all.to_string()
    );
    let found = console(&engine, &password, "").json("/api/v1/rollups?limit=10000");
    let line = |row: &Value| {
        let text = |name: &str| {
            row[name]
                .as_str()
                .map_or_else(|| row[name].to_string(), str::to_owned)
        };
        let node = if row["node"].is_null() {
            String::new()
        } else {
            text("node")
        };
        let [ts, interval, metric] = ["ts", "interval", "metric"].map(text);
        let values = ["count", "min", "max", "sum"].map(text);
        [[ts, interval, metric, node].as_slice(), values.as_slice()]
            .concat()
            .join("\t")
    };
    let mut rows: Vec<String> = found["rollups"].as_array().unwrap().iter().map(line).collect();
    rows.sort();
    assert_eq!(rows, expected);
}

/// Reports sent between two steps.
pub(super) const STEP: u32 = 200;
/// The number of the first report of the third collector.
pub(super) const ALONE: u32 = 30_000;
/// The first event of a flow.
pub(super) const FIRST: &str = "kind = 'new' AND metric = 'flow_path'";
