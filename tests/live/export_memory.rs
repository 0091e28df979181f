//! The memory of several exports in a real process, while their servers do not answer.

use std::{fs, time::Instant};

use super::export::{Act, Scripted};
use crate::support::server::{Server, TIMEOUT, report};

const MEBIBYTE: u64 = 1 << 20;

/// Resident memory of a process, bytes.
fn resident(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn fill(server: &Server) {
    let mut sent = 0;
    for part in 0..60_u32 {
        server.send(
            (0..500).map(|n| report(part * 500 + n, 1000 + (part * 500 + n) as u16, [1000, 2000, 3000])),
        );
        sent += 500;
        server.settled(sent);
    }
}

#[test]
fn exports_to_servers_that_do_not_answer_stay_within_their_memory() {
    let alone = Server::start("");
    fill(&alone);
    let without = resident(&alone);
    drop(alone);
    let hooks: Vec<Scripted> = (0..6).map(|_| Scripted::start(&[Act::Hang; 1000])).collect();
    let memory = 96 * MEBIBYTE;
    let exports = hooks.iter().enumerate().map(|(number, hook)| {
        format!(
            "[exports.hook{number}]\nkind = \"webhook\"\nurl = \"http://{}/in\"\ntimeout = \"10m\"\nbatch = 200000\nbatch_size = \"64 MiB\"\n",
            hook.address
        )
    });
    let server = Server::start(&format!(
        "[export]\nmemory = \"96 MiB\"\n{}",
        exports.collect::<String>()
    ));
    fill(&server);
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let start = Instant::now();
    // Each has a batch that is sent, and reads the next one until it is full. On a slow machine the first one is small.
    let mut before = Vec::new();
    let view = loop {
        let view = server.json("/api/v1/exports");
        let all = view["exports"].as_array().unwrap();
        let is_begun = |one: &serde_json::Value| number(&one["memory"]) > number(&one["batch_size"]);
        let read: Vec<u64> = all.iter().map(|one| number(&one["read"])).collect();
        if all.len() == hooks.len() && all.iter().all(is_begun) && read == before {
            break view;
        }
        before = read;
        assert!(start.elapsed() < TIMEOUT, "never full: {view:#}");
        crate::support::pause();
    };
    let with = resident(&server);
    let sum = |name: &str| {
        view["exports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| number(&one[name]))
            .sum::<u64>()
    };
    let (held, limit) = (sum("memory"), sum("memory_limit"));
    assert_eq!(number(&view["memory"]), memory);
    assert!(held <= limit && limit <= memory, "{held} {limit} {memory}");
    assert_eq!(
        sum("shed") + sum("expired") + sum("rejected"),
        0,
        "what is over waits: {view:#}"
    );
    // Threads, connections, allocator: not of their batches.
    assert!(
        with < without + memory + 24 * MEBIBYTE,
        "{with} with exports, {without} without"
    );
    eprintln!(
        "resident {} MiB with exports, {} MiB without; held {} MiB",
        with >> 20,
        without >> 20,
        held >> 20
    );
}
