//! OpenSearch, which stands in for Elasticsearch too.

use std::path::PathBuf;
use std::process::Command;

use export::Outcome;
use export::record::{Record, Stream};
use export::sink::opensearch::{OpenSearch, Options};
use export::sink::{HttpSink as _, Request};
use serde_json::{Value, json};

use crate::server::{Server, TempDir, free_port, is_installed, probe, send, skipped};
use crate::support::*;

fn opensearch() -> Option<Server> {
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/sink-servers");
    let folder = std::env::var_os("HOPWISE_SINK_SERVERS")
        .map_or(default, PathBuf::from)
        .join("opensearch/lib");
    if !folder.is_dir() {
        skipped("opensearch_stores_what_is_sent: no OpenSearch; scripts/sink-servers installs it");
        return None;
    }
    if !is_installed("java", "default-jdk-headless") {
        return None;
    }
    let files = TempDir::new();
    let port = free_port();
    let mut command = Command::new("java");
    command
        .args(["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
        .arg(folder.join("*"));
    command.arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/servers/OpenSearch.java"));
    command
        .arg(files.path())
        .args([port.to_string(), free_port().to_string()]);
    Some(Server::start(&mut command, port, files))
}

/// The documents that a search finds, in the order of time.
fn found(server: &Server, index: &str, query: &str) -> Vec<Value> {
    let refresh = Request {
        method: "POST",
        target: format!("/{index}/_refresh"),
        ..Request::default()
    };
    assert_eq!(server.send(&refresh).response().status, 200);
    let target = format!("/{index}/_search?sort=ts&q={query}");
    let answer = server.json("GET", &target, "");
    answer["hits"]["hits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| hit["_source"].clone())
        .collect()
}

fn documents(sink: &OpenSearch, records: &[Record]) -> Vec<Value> {
    batch(COLLECTOR, records, |batch| {
        let body = String::from_utf8(sink.request(batch).unwrap().body).unwrap();
        let lines = body.lines().skip(1).step_by(2);
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect::<Vec<Value>>()
    })
}

/// One server for all: it needs half a minute to start.
#[test]
fn opensearch_stores_what_is_sent() {
    let Some(server) = opensearch() else { return };
    let sink = OpenSearch::new(&Options::default()).unwrap();
    assert!(
        probe(&server, &sink, &Stream::ALL)
            .unwrap_err()
            .contains("hopwise schema apply")
    );
    for stream in Stream::ALL {
        let answer = server.send(&sink.template(stream));
        assert_eq!(answer.response().status, 200, "{answer:?}");
    }
    assert_eq!(probe(&server, &sink, &Stream::ALL), Ok(()));

    // Twice: what is stored is recognised by its id.
    let events = [change(1), new_flow(2), rule(3, collector::event::Kind::RuleOn)];
    for _ in 0..2 {
        assert_eq!(send(&server, &sink, &events), Outcome::DONE);
        for one in [rollup(0), flow(), dropped(), loss()] {
            assert_eq!(send(&server, &sink, &[one]), Outcome::DONE);
        }
    }
    assert_eq!(found(&server, "hopwise-events", "*"), documents(&sink, &events));
    for record in [rollup(0), flow(), dropped(), loss()] {
        let index = format!("hopwise-{}", record.stream().name());
        assert_eq!(found(&server, &index, "*"), documents(&sink, &[record]));
    }
    // Twice: each part is there once.
    for _ in 0..2 {
        assert_eq!(send(&server, &sink, &[1, 2].map(rollup_part)), Outcome::DONE);
    }
    assert_eq!(found(&server, "hopwise-rollups", "*").len(), 3);
    fields_have_their_types(&server, &documents(&sink, &events));
    errors_are_understood(&server, &sink);
}

fn found_events(server: &Server, query: &str) -> Vec<Value> {
    found(server, "hopwise-events", query)
}

fn fields_have_their_types(server: &Server, events: &[Value]) {
    let stream = server.json("GET", "/_data_stream/hopwise-events", "");
    assert_eq!(stream["data_streams"][0]["template"], "hopwise-events");
    // A prefix of addresses, a range of numbers, the exact time.
    assert_eq!(
        found_events(
            server,
            "flow.src:%2210.0.0.0/24%22%20AND%20value:[129%20TO%20131]"
        ),
        [events[0].clone()]
    );
    assert_eq!(
        found_events(server, "%40timestamp:%222026-11-26T01:00:00.000000002Z%22"),
        [events[1].clone()]
    );
    // A flow of which only the id is known has no address.
    let by_id = found(server, "hopwise-drops", "flow.src.text:%22flow-id:0x0000f10a%22");
    assert_eq!(
        by_id[0]["flow"],
        json!({"src": "flow-id:0x0000f10a", "dst": "", "proto": 0})
    );
}

fn errors_are_understood(server: &Server, sink: &OpenSearch) {
    // What is beyond the type's range is stored all the same.
    let mut large = event(7, collector::event::Kind::Mtu);
    large.event.value = Some(u64::MAX);
    assert_eq!(
        send(server, sink, &[Record::Event(Box::new(large))]),
        Outcome::DONE
    );
    // An index that somebody else made, with another type: the other document is stored.
    let other = OpenSearch::new(&Options {
        prefix: "other".to_owned(),
        data_streams: false,
    })
    .unwrap();
    let headers = vec![("content-type", "application/json".to_owned())];
    let body = br#"{"mappings":{"properties":{"threshold":{"type":"boolean"}}}}"#.to_vec();
    let target = "/other-events".to_owned();
    let made = server.send(&Request {
        method: "PUT",
        target,
        headers,
        body,
        ..Request::default()
    });
    assert_eq!(made.response().status, 200, "{made:?}");
    let Outcome::Settled { rejected, retry, .. } = send(server, &other, &[change(1), new_flow(2)]) else {
        panic!()
    };
    assert_eq!((rejected.len(), retry), (1, Vec::new()));
    assert_eq!(rejected[0].0, 0);
    assert!(
        rejected[0]
            .1
            .starts_with("HTTP 400 mapper_parsing_exception: failed to parse field [threshold]"),
        "{rejected:?}"
    );
    assert_eq!(found(server, "other-events", "*").len(), 1);
}
