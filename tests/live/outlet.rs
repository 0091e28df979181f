//! An outlet between Kafka and ClickHouse: what a fleet sends is there once, whatever was killed meanwhile, and what nobody can read is kept
//! with its reason.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use serde_json::Value;

use super::{
    console::{
        ALONE, FIRST, Fleet, SECRET, STEP, account, console, drain, killed, password, stored, wait_for_stored,
    },
    export::{ClickHouse, Scripted, reports_from},
    export_kafka::Kafka,
};
use crate::support::{
    TempDir, hopwise,
    server::{Server, TIMEOUT},
};

const STREAMS: &str = "streams = [\"events\", \"rollups\", \"flows\", \"drops\", \"losses\"]\n";

impl Kafka {
    pub(super) fn url(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.brokers[0].plain)
    }

    /// Messages of a topic.
    fn count(&self, stream: &str) -> usize {
        self.messages(&format!("hopwise.{stream}.v1"), "%o\n").len()
    }

    /// Writes messages, a line each, into a partition.
    fn write(&self, stream: &str, partition: u32, lines: &str) {
        let mut child = Command::new("kcat")
            .args([
                "-P",
                "-b",
                &self.url()[6..],
                "-t",
                &format!("hopwise.{stream}.v1"),
            ])
            .args(["-p", &partition.to_string()])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }
}

/// What a collector of this name adds to its configuration.
fn collector(name: &str, url: &str, format: &str) -> String {
    format!(
        "collector.name = \"{name}\"\ncollector.push_interval = \"1s\"\n\
         [exports.bus]\nkind = \"kafka\"\nurl = \"{url}\"\nformat = \"{format}\"\npartitions = 3\n{STREAMS}linger = \"0s\"\n"
    )
}

fn outlet(kafka: &Kafka, engine: &ClickHouse, password: &str, share: &str) -> String {
    format!(
        "api.listen = \"127.0.0.1:0\"\n[outlet]\nstate = \"state\"\nshare = \"{share}\"\n{STREAMS}linger = \"0s\"\ntimeout = \"5s\"\n\
         [outlet.kafka]\nurl = \"{}\"\n[outlet.clickhouse]\nurl = \"http://{}\"\n{}",
        kafka.url(),
        engine.address(),
        account(password)
    )
}

fn apply(config: &Path, name: &str) {
    let run = hopwise(["schema", "apply", "-c", config.to_str().unwrap(), name]);
    assert_eq!(run.code, Some(0), "{run:?}");
}

/// The sum of a count over all partitions of an outlet.
fn sum(outlet: &Server, name: &str) -> u64 {
    let view = outlet.json("/api/v1/exports");
    view["exports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one[name].as_u64().unwrap())
        .sum()
}

/// Waits until as many rows are in a table as there are messages, but for those that nobody can read.
fn arrives(kafka: &Kafka, engine: &ClickHouse, stream: &str, unreadable: usize) {
    let start = Instant::now();
    let rows = || engine.query(&format!("SELECT count() FROM net.{stream}"));
    let expected = kafka.count(stream) - unreadable;
    while rows() != expected.to_string() {
        assert!(start.elapsed() < TIMEOUT, "{} of {expected} {stream}", rows());
        crate::support::pause();
    }
}

/// What each partition says adds up.
fn adds_up(outlet: &Server) {
    let view = outlet.json("/api/v1/exports");
    let number = |one: &Value, name: &str| one[name].as_u64().unwrap_or_else(|| panic!("{name}: {one:#}"));
    for one in view["exports"].as_array().unwrap() {
        let settled = ["delivered", "left_out", "rejected", "held"].map(|name| number(one, name));
        assert_eq!(number(one, "read"), settled.iter().sum::<u64>(), "{one:#}");
        assert_eq!(
            (number(one, "waiting"), &one["last_error"]),
            (0, &Value::Null),
            "{one:#}"
        );
    }
    let stage = &view["stage"];
    let dropped: u64 = stage["drops"]
        .as_object()
        .unwrap()
        .values()
        .map(|drop| drop.as_u64().unwrap())
        .sum();
    assert_eq!(
        number(stage, "in"),
        number(stage, "out") + number(stage, "queued") + dropped,
        "{stage:#}"
    );
}

#[test]
fn what_a_fleet_sends_by_kafka_is_there_once_whatever_is_killed() {
    let Some(mut kafka) = Kafka::start(1, 1) else {
        return;
    };
    let Some(mut engine) = ClickHouse::start(SECRET) else {
        return;
    };
    let (_directory, password) = password();
    let configs = [("c1", "protobuf"), ("c2", "json"), ("c3", "protobuf")]
        .map(|(name, format)| collector(name, &kafka.url(), format));
    let [c1, c2, c3] = configs.each_ref().map(|config| Server::start(config));
    apply(&c1.path("hopwise.toml"), "bus");
    let texts = ["1/2", "2/2"].map(|share| outlet(&kafka, &engine, &password, share));
    let mut outlets = texts
        .each_ref()
        .map(|text| Some(Server::start_outlet(TempDir::new(), text)));
    apply(&outlets[0].as_ref().unwrap().path("outlet.toml"), "outlet");
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
        fleet
            .pair
            .iter()
            .flatten()
            .for_each(|server| wait_for_stored(server, fleet.sent - 1));
    }
    kafka.brokers[0].kill();
    fleet.send();
    kafka.brokers[0].spawn();
    kafka.brokers[0].wait();
    for at in [0, 1] {
        fleet.send();
        let server = outlets[at].take().unwrap();
        server.signal("-KILL");
        let (_, directory) = server.stop();
        fleet.send();
        outlets[at] = Some(Server::start_outlet(directory, &texts[at]));
    }
    fleet.send();
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
    let outlets = outlets.map(Option::unwrap);
    outlets.iter().for_each(drain);
    // Each message is a row: nothing is missing, and nothing is there twice, on the way from Kafka.
    for stream in ["events", "drops", "losses"] {
        arrives(&kafka, &engine, stream, 0);
    }
    outlets.iter().for_each(adds_up);
    let partitions = outlets.each_ref().map(|outlet| {
        outlet.json("/api/v1/exports")["exports"]
            .as_array()
            .unwrap()
            .len()
    });
    assert_eq!(partitions.iter().sum::<usize>(), 5 * 3, "{partitions:?}");
    assert_eq!(
        [sum(&outlets[0], "rejected"), sum(&outlets[1], "rejected")],
        [0, 0]
    );
    once(&[&c1, &c2, &c3], (sent, back), &engine, &console);
}

/// What was sent is in ClickHouse, or was lost before a collector had committed it; nothing is there twice, by its id.
fn once(collectors: &[&Server; 3], (sent, back): (u32, u32), engine: &ClickHouse, console: &Server) {
    let [first, second, third] = collectors.map(stored);
    let all: BTreeSet<u64> = (0..sent.into()).collect();
    assert_eq!(
        first.union(&second).copied().collect::<BTreeSet<_>>(),
        all,
        "the pair has everything"
    );
    let lost: Vec<u64> = all
        .iter()
        .copied()
        .filter(|n| !third.contains(&(n + u64::from(ALONE))))
        .collect();
    let began = *lost.first().expect("something came while it was away");
    assert_eq!(lost, (began..back.into()).collect::<Vec<_>>());
    assert!(began <= u64::from(back - STEP));
    let found = console.json("/api/v1/events?kind=new&metric=flow_path&limit=10000");
    let port = |event: &Value| event["flow"]["sport"].as_u64().unwrap() - 1000;
    let mut numbers: Vec<u64> = found["events"].as_array().unwrap().iter().map(port).collect();
    numbers.sort_unstable();
    let expected: Vec<u64> = all.iter().chain(&third).copied().collect();
    assert_eq!(numbers, expected, "sent = in ClickHouse + lost, none twice");
    let rows = engine.query(&format!(
        "SELECT collector, uniqExact(id) FROM net.events WHERE {FIRST} GROUP BY collector ORDER BY collector"
    ));
    let line = |name: &str, stored: &BTreeSet<u64>| format!("{name}\t{}", stored.len());
    assert_eq!(
        rows,
        [line("c1", &first), line("c2", &second), line("c3", &third)].join("\n")
    );
}

/// The lines of all files of rejected messages.
fn rejected(outlet: &Server) -> Vec<Value> {
    let files = fs::read_dir(outlet.path("state"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let texts = files.filter(|file| file.to_string_lossy().ends_with(".rejected.jsonl"));
    let texts: Vec<String> = texts.map(|file| fs::read_to_string(file).unwrap()).collect();
    texts
        .iter()
        .flat_map(|text| text.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// What `check --connect` says of both sides.
fn connect(file: &Path) -> (Option<i32>, [String; 2]) {
    let run = hopwise(["check", "-c", file.to_str().unwrap(), "--connect"]);
    let mut lines = run.stdout.lines().skip(1).map(str::to_owned);
    (run.code, [lines.next().unwrap(), lines.next().unwrap()])
}

/// Three messages are none: each is in a file, with where it was and why.
fn has_kept_three(outlet: &Server) {
    let start = Instant::now();
    while sum(outlet, "rejected") != 3 {
        assert!(start.elapsed() < TIMEOUT, "{:#}", outlet.json("/api/v1/exports"));
        crate::support::pause();
    }
    let mut lines = rejected(outlet);
    lines.sort_by_key(|line| line["offset"].as_u64());
    let words: Vec<&str> = lines.iter().map(|line| line["words"].as_str().unwrap()).collect();
    assert_eq!(words[0], "not a Protobuf message, or truncated");
    assert!(
        words[1].starts_with("it is of version 99 of the schema"),
        "{words:?}"
    );
    assert!(words[2].starts_with("not a JSON object: EOF"), "{words:?}");
    for line in &lines {
        assert_eq!(
            (&line["topic"], &line["partition"]),
            (&"hopwise.events.v1".into(), &1.into())
        );
    }
    assert_eq!(lines[0]["value"], "dGhpcyBpcyBub25l");
    let metrics = outlet.get("/metrics").body;
    for line in [
        "hopwise_export_rejected_total{export=\"outlet\",stream=\"events\",partition=\"1\"} 3",
        "hopwise_export_waiting{export=\"outlet\",stream=\"events\",partition=\"1\"} 0",
        "hopwise_export_lag_seconds{export=\"outlet\",stream=\"events\",partition=\"1\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

/// Nobody else may use its directory.
fn is_alone(outlet: &Server, text: &str, directory: &TempDir) {
    let other = directory.join("other.toml");
    let state = outlet.path("state");
    fs::write(&other, text.replace("\"state\"", &format!("{state:?}"))).unwrap();
    let run = hopwise(["outlet", "-c", other.to_str().unwrap()]);
    assert!(
        run.code != Some(0) && run.stderr.contains("another outlet uses"),
        "{run:?}"
    );
}

#[test]
fn kafka_messages_that_nobody_can_read_are_kept_and_the_rest_is_passed_on() {
    let Some(kafka) = Kafka::start(1, 1) else { return };
    let Some(engine) = ClickHouse::start(SECRET) else {
        return;
    };
    let (directory, password) = password();
    let config = collector("c1", &kafka.url(), "json");
    let text = outlet(&kafka, &engine, &password, "1/1");
    let file = directory.join("outlet.toml");
    fs::write(&file, &text).unwrap();
    let missing = [
        "outlet from Kafka: Kafka has no topic hopwise.events.v1; `hopwise schema apply` creates it",
        "outlet to ClickHouse: ClickHouse has no table net.events; `hopwise schema apply` creates it, `hopwise schema show` prints the statement",
    ];
    assert_eq!(connect(&file), (Some(1), missing.map(str::to_owned)));
    // An outlet waits for the topics, and says what it waits for.
    let outlet = Server::start_outlet(TempDir::new(), &text);
    let start = Instant::now();
    let error = || outlet.json("/api/v1/exports")["exports"][0]["last_error"].clone();
    while error() != "Kafka has no topic hopwise.events.v1; `hopwise schema apply` creates it" {
        assert!(start.elapsed() < TIMEOUT, "{}", error());
        crate::support::pause();
    }
    let server = Server::start(&config);
    apply(&server.path("hopwise.toml"), "bus");
    apply(&file, "outlet");
    let sides = [
        format!("from Kafka: {}", &kafka.url()[6..]),
        format!("to ClickHouse: {}", engine.address()),
    ];
    assert_eq!(
        connect(&file),
        (
            Some(0),
            sides.map(|side| format!("outlet {side} has what is needed"))
        )
    );
    server.send(reports_from(0));
    server.settled(150);
    drain(&server);
    let newer = "{\"id\":\"0000000000000001\",\"ts\":1,\"collector\":\"c9\",\"schema\":99,\"kind\":\"new\"}";
    kafka.write("events", 1, &format!("this is none\n{newer}\n{{\"id\":\n"));
    server.send(reports_from(150));
    server.settled(300);
    drain(&server);
    arrives(&kafka, &engine, "events", 3);
    has_kept_three(&outlet);
    drain(&outlet);
    adds_up(&outlet);
    is_alone(&outlet, &text, &directory);
    // A stop leaves nothing half done, and the next start goes on.
    let (status, directory) = outlet.stop();
    assert!(status.success());
    server.send(reports_from(300));
    server.settled(450);
    drain(&server);
    let outlet = Server::start_outlet(directory, &text);
    arrives(&kafka, &engine, "events", 3);
    assert_eq!(sum(&outlet, "rejected"), 0, "once");
}

#[test]
fn a_file_that_cannot_be_written_now_holds_up_only_its_partition() {
    let Some(kafka) = Kafka::start(1, 1) else { return };
    let hook = Scripted::start(&[]);
    let directory = TempDir::new();
    let config = directory.join("hopwise.toml");
    fs::write(
        &config,
        collector("c1", &kafka.url(), "json").replace(STREAMS, "streams = [\"events\"]\n"),
    )
    .unwrap();
    apply(&config, "bus");
    // Who opens it to write waits until somebody reads, as with a disk that hangs.
    let state = TempDir::new();
    fs::create_dir(state.join("state")).unwrap();
    let file = state.join("state").join("outlet.events.1.rejected.jsonl");
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let text = format!(
        "api.listen = \"127.0.0.1:0\"\n[outlet]\nstate = \"state\"\nstreams = [\"events\"]\nlinger = \"0s\"\n\
         [outlet.kafka]\nurl = \"{}\"\n[outlet.clickhouse]\nurl = \"http://{}\"\n",
        kafka.url(),
        hook.address
    );
    let outlet = Server::start_outlet(state, &text);
    let of = |partition: u64, name: &str| {
        let view = outlet.json("/api/v1/exports");
        let all = view["exports"].as_array().unwrap();
        all.iter()
            .find(|one| one["partition"] == partition)
            .map_or(0, |one| one[name].as_u64().unwrap())
    };
    let until = |partition, name: &str, count| {
        let start = Instant::now();
        while of(partition, name) != count {
            assert!(
                start.elapsed() < TIMEOUT,
                "{name} of {partition}: {:#}",
                outlet.json("/api/v1/exports")
            );
            crate::support::pause();
        }
    };
    kafka.write("events", 1, "this is none\n");
    until(1, "held", 1);
    let event = "{\"id\":\"0000000000000001\",\"ts\":1795654800000000000,\"collector\":\"c9\",\"schema\":1,\"kind\":\"new\"}\n";
    for (partition, count) in [(0, 1), (2, 1), (0, 2)] {
        kafka.write("events", partition as u32, event);
        until(partition, "delivered", count);
    }
    assert_eq!([of(1, "rejected"), of(1, "held")], [0, 1]);
    let line: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(line["words"], "not a Protobuf message, or truncated");
    until(1, "rejected", 1);
    assert!(outlet.stop().0.success());
}
