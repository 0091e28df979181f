//! The memory of an outlet, as the kernel counts it: what is in Kafka does not matter, nor whether ClickHouse takes it.

use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    export::{Act, Scripted},
    export_kafka::Kafka,
};
use crate::support::{
    TempDir, hopwise,
    server::{Server, TIMEOUT},
};

const MEBIBYTE: u64 = 1 << 20;
const MEMORY: u64 = 64 * MEBIBYTE;
const STREAMS: [&str; 2] = ["events", "drops"];
const PARTITIONS: u32 = 3;
/// Messages of a partition, 300 bytes each.
const MESSAGES: u64 = 60_000;

/// The most memory that was resident so far, bytes.
fn peak(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn message(stream: &str, number: u64) -> String {
    let (id, ts) = (
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        1_795_654_800_000_000_000 + number * 1000,
    );
    let (host, port) = (number % 5_000, number % 60_000);
    let flow = format!(
        "{{\"src\":\"2001:db8::{host:x}\",\"dst\":\"2001:db8::1\",\"sport\":{port},\"dport\":443,\"proto\":6}}"
    );
    let common =
        format!("\"id\":\"{id:016x}\",\"ts\":{ts},\"collector\":\"c1\",\"schema\":1,\"flow\":{flow}");
    match stream {
        "events" => format!(
            "{{{common},\"kind\":\"change\",\"metric\":\"hop_latency\",\"node\":101,\"interface\":7,\"queue\":3,\"value\":{ts},\
             \"previous\":{ts},\"threshold\":5000,\"basis\":\"hops\",\"path\":[101,102,103,104,105]}}\n"
        ),
        _ => format!(
            "{{{common},\"node\":101,\"ingress_if\":7,\"queue\":3,\"egress_if\":{port},\"reason\":{host}}}\n"
        ),
    }
}

/// Fills all partitions, one of them with small batches, the others with large ones that are compressed.
fn fill(kafka: &Kafka) {
    let options = ["-Xbatch.num.messages=100", "-zlz4", "-zlz4"];
    for stream in STREAMS {
        for (partition, option) in (0..PARTITIONS).zip(options) {
            let mut child = Command::new("kcat")
                .args([
                    "-P",
                    "-b",
                    &kafka.url()[6..],
                    "-t",
                    &format!("hopwise.{stream}.v1"),
                    option,
                ])
                .args(["-p", &partition.to_string(), "-Xlinger.ms=100"])
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            let lines: String = (0..MESSAGES).map(|number| message(stream, number)).collect();
            child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
            assert!(child.wait().unwrap().success());
        }
    }
}

fn started(kafka: &Kafka, hook: &Scripted) -> Server {
    let text = format!(
        "api.listen = \"127.0.0.1:0\"\n[outlet]\nstate = \"state\"\nmemory = \"64 MiB\"\nstreams = {STREAMS:?}\nlinger = \"0s\"\n\
         timeout = \"60s\"\n[outlet.kafka]\nurl = \"{}\"\n[outlet.clickhouse]\nurl = \"http://{}\"\n",
        kafka.url(),
        hook.address
    );
    Server::start_outlet(TempDir::new(), &text)
}

/// Waits until each partition is as it shall be.
fn wait(server: &Server, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let view = server.json("/api/v1/exports");
        let all = view["exports"].as_array().unwrap();
        if all.len() == STREAMS.len() * PARTITIONS as usize && all.iter().all(&is) {
            return view;
        }
        assert!(start.elapsed() < TIMEOUT, "never {what}: {view:#}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

#[test]
fn an_outlet_stays_within_its_memory_whatever_is_in_kafka() {
    let Some(kafka) = Kafka::start(1, 1) else { return };
    let directory = TempDir::new();
    let config = directory.join("hopwise.toml");
    let topics = format!(
        "[exports.bus]\nkind = \"kafka\"\nurl = \"{}\"\npartitions = {PARTITIONS}\nstreams = {STREAMS:?}\n",
        kafka.url()
    );
    fs::write(&config, topics).unwrap();
    let run = hopwise(["schema", "apply", "-c", config.to_str().unwrap(), "bus"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    // With nothing to do: the program, its threads, connections, the API.
    let hangs = Scripted::start(&[Act::Hang; 1000]);
    let outlet = started(&kafka, &hangs);
    wait(&outlet, "idle", |one| one["counted"] != 0);
    let base = peak(&outlet);
    drop(outlet);
    fill(&kafka);
    // ClickHouse does not answer: of each partition there are two batches, and a request.
    let outlet = started(&kafka, &hangs);
    let view = wait(&outlet, "full", |one| {
        // Each read may end a little earlier than it might.
        number(&one["requests"]) > 0 && number(&one["memory"]) * 10 > number(&one["memory_limit"]) * 8
    });
    let sum = |name: &str| {
        view["exports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| number(&one[name]))
            .sum::<u64>()
    };
    let (held, limit) = (sum("memory"), sum("memory_limit"));
    assert_eq!(number(&view["memory"]), MEMORY);
    assert!(held <= limit && limit <= MEMORY, "{held} {limit}");
    let hanging = peak(&outlet);
    drop(outlet);
    // It takes everything, as fast as it comes, but refuses some at first.
    let takes = Scripted::start(&[Act::Status(503), Act::Status(429), Act::Close].repeat(20));
    let outlet = started(&kafka, &takes);
    let view = wait(&outlet, "done", |one| number(&one["delivered"]) == MESSAGES);
    let busy = peak(&outlet);
    let mib = |bytes: u64| bytes as f64 / MEBIBYTE as f64;
    eprintln!(
        "resident, MiB: {:.1} without messages; at most {:.1} while ClickHouse hangs, {:.1} while it takes",
        mib(base),
        mib(hanging),
        mib(busy)
    );
    assert!(
        hanging <= base + MEMORY,
        "{hanging} hanging, {base} without messages"
    );
    assert!(
        busy <= base + MEMORY,
        "{busy} busy, {base} without messages: {view:#}"
    );
}
