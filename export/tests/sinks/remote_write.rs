//! Remote write: the message as text, and what servers answer.

use export::Outcome;
use export::record::Record;
use export::sink::remote_write::{Options, RemoteWrite};
use export::sink::{HttpSink as _, Request};

use crate::support::*;

/// A reader of protobuf that knows field numbers, varints, doubles and bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn varint(&mut self) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (byte, rest) = self.0.split_first().unwrap();
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes
    }

    /// The next field: its tag, and its content.
    fn field(&mut self) -> Option<(u64, &'a [u8])> {
        if self.0.is_empty() {
            return None;
        }
        let tag = self.varint();
        let before = self.0;
        let content = match tag & 7 {
            0 => {
                self.varint();
                &before[..before.len() - self.0.len()]
            }
            1 => self.bytes(8),
            2 => {
                let len = self.varint() as usize;
                self.bytes(len)
            }
            other => panic!("wire type {other}"),
        };
        Some((tag, content))
    }
}

/// `name{label="value",…} value@ms …`, a line per series.
fn series(request: &Request) -> String {
    let body = snap::raw::Decoder::new().decompress_vec(&request.body).unwrap();
    let mut reader = Reader(&body);
    let mut lines = String::new();
    while let Some((tag, series)) = reader.field() {
        assert_eq!(tag, 1 << 3 | 2);
        let mut reader = Reader(series);
        let mut labels = Vec::new();
        let mut samples = String::new();
        while let Some((tag, content)) = reader.field() {
            let mut part = Reader(content);
            let first = part.field().unwrap();
            let second = part.field().unwrap();
            assert_eq!(part.field(), None);
            if tag == 1 << 3 | 2 {
                assert_eq!((first.0, second.0), (1 << 3 | 2, 2 << 3 | 2));
                let name = String::from_utf8(first.1.to_vec()).unwrap();
                labels.push((name, String::from_utf8(second.1.to_vec()).unwrap()));
            } else {
                assert_eq!((tag, first.0, second.0), (2 << 3 | 2, 1 << 3 | 1, 2 << 3));
                let value = f64::from_le_bytes(first.1.try_into().unwrap());
                samples.push_str(&format!(" {value}@{}", Reader(second.1).varint()));
            }
        }
        assert!(labels.is_sorted(), "{labels:?}");
        let (_, name) = labels.remove(0);
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}={value:?}"))
            .collect();
        lines.push_str(&format!("{name}{{{}}}{samples}\n", labels.join(",")));
    }
    lines
}

fn sent(flows: bool, records: &[Record]) -> Option<Request> {
    let sink = RemoteWrite::new(&Options {
        flows,
        ..Options::default()
    })
    .unwrap();
    batch("leaf \"1\"", records, |batch| sink.request(batch))
}

#[test]
fn rollups_are_samples_in_the_order_of_time() {
    let request = sent(false, &[rollup(1), rollup(0), flow_rollup()]).unwrap();
    assert_eq!(
        (request.method, request.target.as_str()),
        ("POST", "/api/v1/write")
    );
    assert_eq!(
        request.headers,
        [
            ("content-type", "application/x-protobuf"),
            ("content-encoding", "snappy"),
            ("x-prometheus-remote-write-version", "0.1.0")
        ]
        .map(|(name, value)| (name, value.to_owned()))
    );
    assert_eq!(request.rows, [0, 1]);
    assert_eq!(
        series(&request),
        r#"hopwise_hop_latency_min{collector="leaf \"1\"",interface="2",interval="1",node="7",queue="0"} 10@1795654800000 10@1795654801000
hopwise_hop_latency_max{collector="leaf \"1\"",interface="2",interval="1",node="7",queue="0"} 50@1795654800000 50@1795654801000
hopwise_hop_latency_sum{collector="leaf \"1\"",interface="2",interval="1",node="7",queue="0"} 90@1795654800000 90@1795654801000
hopwise_hop_latency_count{collector="leaf \"1\"",interface="2",interval="1",node="7",queue="0"} 3@1795654800000 3@1795654801000
hopwise_hop_latency_p50{collector="leaf \"1\"",interface="2",interval="1",node="7",queue="0"} 30@1795654800000 30@1795654801000
"#
    );
}

fn count_series(part: &str, samples: &str) -> String {
    format!(
        "hopwise_hop_latency_count{{collector=\"leaf \\\"1\\\"\",interface=\"2\",interval=\"1\",node=\"7\",{part}queue=\"0\"}} {samples}"
    )
}

#[test]
fn rollups_of_several_workers_are_series_that_are_added_up() {
    let request = sent(false, &[nth_part(0), rollup(1), nth_part(2), nth_part(1)]).unwrap();
    let text = series(&request);
    let counts: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("hopwise_hop_latency_count"))
        .collect();
    let expected = [
        count_series("", "3@1795654800000 3@1795654801000"),
        count_series("part=\"1\",", "3@1795654800000"),
        count_series("part=\"2\",", "3@1795654800000"),
    ];
    assert_eq!(counts, expected, "{text}");
    assert_eq!(request.rows, [0, 1, 2, 3]);
}

#[test]
fn parts_without_numbers_are_one_sample() {
    let mut other = rollup_part(2);
    let Record::Rollup(one) = &mut other else {
        unreachable!()
    };
    (one.count, one.min, one.max, one.sum, one.p50, one.p99) = (1, 7, 7, 7, Some(7), Some(9));
    let text = series(&sent(false, &[rollup_part(1), rollup(1), other]).unwrap());
    let values: Vec<&str> = text
        .lines()
        .map(|line| line.split_once("} ").unwrap().1)
        .collect();
    let expected = [
        "7@1795654800000 10@1795654801000",
        "50@1795654800000 50@1795654801000",
        "97@1795654800000 90@1795654801000",
        "4@1795654800000 3@1795654801000",
        "30@1795654800000 30@1795654801000",
        "9@1795654800000",
    ];
    assert_eq!(values, expected, "{text}");
}

#[test]
fn rollups_of_flows_are_samples_only_if_chosen() {
    assert_eq!(sent(false, &[flow_rollup()]), None);
    assert_eq!(sent(true, &[change(1)]), None);
    let lines = series(&sent(true, &[flow_rollup()]).unwrap());
    assert_eq!(
        lines.lines().next().unwrap(),
        r#"hopwise_flow_latency_min{collector="leaf \"1\"",dport="80",dst="10.0.0.2",interval="60",proto="6",sport="1234",src="10.0.0.1"} 10@1795654800000"#
    );
    assert_eq!(lines.lines().count(), 5);
    let Record::Rollup(mut one) = flow_rollup() else {
        panic!()
    };
    (one.flow, one.p50) = (Some(wire::FlowKey::of_id(1)), None);
    assert_eq!(
        series(&sent(true, &[Record::Rollup(one)]).unwrap())
            .lines()
            .last()
            .unwrap(),
        r#"hopwise_flow_latency_count{collector="leaf \"1\"",interval="60",proto="0",src="flow-id:0x00000001"} 3@1795654800000"#
    );
}

fn refused_prefix(prefix: &str) -> String {
    RemoteWrite::new(&Options {
        prefix: prefix.to_owned(),
        flows: false,
    })
    .unwrap_err()
}

#[test]
fn options_are_checked() {
    for prefix in ["", "1a", "a-b", "é"] {
        assert_eq!(
            refused_prefix(prefix),
            format!(
                "`prefix` is {prefix:?}; use 1 to 200 letters, digits, `_` and `:` for it, no digit first"
            )
        );
    }
}

fn outcome(status: u16, body: &str, records: &[Record]) -> Outcome {
    let sink = RemoteWrite::new(&Options::default()).unwrap();
    batch("c", records, |batch| {
        sink.outcome(batch, &sink.request(batch).unwrap(), &answer(status, body))
    })
}

fn refused(reason: &str) -> Outcome {
    Outcome::Refused {
        reason: reason.to_owned(),
    }
}

#[test]
fn samples_that_are_too_old_are_not_sent_for_ever() {
    let near = [rollup(0), flow_rollup(), rollup(60)];
    let far = [rollup(0), rollup(61)];
    for (status, reason) in [
        (400, "out of bounds"),
        (500, "too old sample"),
        (400, "x (err-mimir-sample-timestamp-too-old) y"),
    ] {
        let expected = settled(&[(0, reason), (2, reason)], &[], "");
        assert_eq!(outcome(status, reason, &near), expected);
        // Not all of them need to be too old.
        assert_eq!(outcome(status, reason, &far), refused(reason));
    }
    // Of two samples of a series, one may be right.
    let reason = "out of order sample";
    let older = format!("{reason}: sent before, or older than another one of its series");
    let expected = settled(&[(0, &older)], &[2], "another sample of its series comes first");
    assert_eq!(outcome(400, reason, &near), expected);
    assert_eq!(outcome(400, reason, &far), refused(reason));
    assert_eq!(outcome(400, reason, &near[2..]), refused(reason));
    for (status, reason) in [
        (500, "duplicate sample for timestamp"),
        (409, "conflict"),
        (400, "?"),
    ] {
        assert_eq!(outcome(status, reason, &near), refused(reason));
    }
    assert_eq!(outcome(204, "", &near), Outcome::DONE);
    assert_eq!(outcome(500, "no disk", &near), failed("no disk"));
    assert_eq!(outcome(404, "disabled", &near), failed("disabled"));
}

#[test]
fn the_probe_says_what_to_do() {
    let sink = RemoteWrite::new(&Options::default()).unwrap();
    assert_eq!(series(&sink.probe(&[])), "");
    assert_eq!(probed(&sink, 204, ""), "");
    assert_eq!(
        probed(&sink, 404, "off"),
        "the server does not accept remote write (HTTP 404: off); start Prometheus with --web.enable-remote-write-receiver, or correct the url"
    );
    assert_eq!(
        probed(&sink, 401, ""),
        "the server refuses the credentials (HTTP 401); correct user, password or token"
    );
    assert_eq!(
        probed(&sink, 400, "x"),
        "the server does not accept samples: HTTP 400: x"
    );
}
