//! Hops in the forms of sinks.

use export::record::Stream;
use export::sink::HttpSink as _;
use export::sink::clickhouse::ClickHouse;
use export::sink::influxdb::{InfluxDb, Options};
use export::sink::kafka::{self, Kafka};
use export::sink::webhook::{self, Webhook};

use crate::support::*;

/// The JSON line of a hop.
fn line(number: u8) -> String {
    format!(
        concat!(
            r#"{{"id":"{:016x}","ts":1795654800000000000,"collector":"c1","schema":1,"report":"0000000000000abc","#,
            r#""hop":{number},"flow":{{"src":"10.0.0.1","dst":"10.0.0.2","sport":1234,"dport":80,"proto":6}},"node":7,"#,
            r#""ingress_if":1,"queue":0,"egress_if":2,"hops":3,"hop_latency":900,"queue_occupancy":12,"#,
            r#""link_utilization":500000,"ingress_ts":1000,"egress_ts":1900}}"#
        ),
        hop(number).id(),
        number = number
    ) + "\n"
}

#[test]
fn hops_of_a_report_have_its_number_and_ids_of_their_own() {
    let hook = Webhook::new(&webhook::Options {
        target: "/".to_owned(),
        format: webhook::Format::Lines,
    });
    let body = batch("c1", &[hop(0), hop(1)], |batch| {
        hook.unwrap().request(batch).unwrap().body
    });
    assert_eq!(String::from_utf8(body).unwrap(), line(0) + &line(1));
    assert_ne!(hop(0).id(), hop(1).id());

    // Two of one time are two points.
    let points = InfluxDb::new(&Options::default()).unwrap();
    let body = batch("c1", &[hop(0), hop(1)], |batch| {
        points.request(batch).unwrap().body
    });
    let text = String::from_utf8(body).unwrap();
    let times: Vec<&str> = text
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap().1)
        .collect();
    assert!(times.len() == 2 && times[0] != times[1], "{text}");
}

#[test]
fn kafka_and_clickhouse_know_the_stream() {
    assert_eq!(
        Kafka::new(&kafka::Options::default())
            .unwrap()
            .topic(Stream::Hops),
        "hopwise.hops.v1"
    );
    let statement = ClickHouse::new("net", "", 3)
        .unwrap()
        .schema(&[Stream::Hops])
        .swap_remove(1);
    let (columns, rest) = statement.split_once("\n)\nENGINE").unwrap();
    for column in [
        "report UInt64 CODEC(NONE)",
        "hop UInt64 CODEC(T64, ZSTD(1))",
        "node UInt32 CODEC(T64, ZSTD(1))",
        "ingress_if Nullable(UInt64) CODEC(T64, ZSTD(1))",
        "hop_latency Nullable(UInt64) CODEC(T64, ZSTD(1))",
        "PROJECTION by_flow (SELECT * ORDER BY src, dst, sport, dport, proto, ts)",
    ] {
        assert!(
            columns.contains(&format!("\n  {column}")),
            "{column} in {columns}"
        );
    }
    assert_eq!(
        rest,
        " = MergeTree\nPARTITION BY toDate(ts)\nORDER BY (toStartOfFiveMinutes(ts), node, ts)\n\
         TTL toDateTime(ts) + INTERVAL 3 DAY\nSETTINGS non_replicated_deduplication_window = 10000, min_bytes_for_wide_part = 268435456, ttl_only_drop_parts = 1"
    );
}
