//! An alert in the form of each sink that takes the stream `alerts`.

use collector::event::Kind;
use export::record::{Alert, Record, Stream};
use export::sink::HttpSink;
use export::sink::influxdb::{self, InfluxDb};
use export::sink::kafka::{self, Compression, Kafka};
use export::sink::opensearch::{self, OpenSearch};
use export::sink::otlp::{self, Otlp};
use export::sink::redis::{self, Redis};
use export::sink::syslog::{self, Syslog};
use export::sink::webhook::{self, Webhook};
use export::sink::{Request, clickhouse::ClickHouse};

use crate::support::*;

const ID: &str = "9fad6c50414291bd";

fn firing() -> Record {
    alert(1, Kind::RuleOn)
}

fn sent(sink: &dyn HttpSink, record: Record) -> Request {
    batch("c1", &[record], |batch| sink.request(batch)).unwrap()
}

fn body(sink: &dyn HttpSink, record: Record) -> String {
    String::from_utf8_lossy(&sent(sink, record).body).into_owned()
}

fn alert_from(event: &Record) -> Option<Alert> {
    let Record::Event(one) = event else { panic!() };
    Alert::from_event(&one.event, one.rule.clone())
}

#[test]
fn an_alert_is_the_event_of_a_rule() {
    assert_eq!(alert_from(&change(1)), None);
    assert_eq!(alert_from(&new_flow(1)), None);
    let flow = Some("10.0.0.1:1234>10.0.0.2:80/6".parse().unwrap());
    let expected = Alert {
        ts: T + 2,
        id: 2,
        rule: "deep \"queue\" \\ a=b, c] \u{1}é".into(),
        is_firing: false,
        flow,
        node: None,
        interface: None,
        queue: None,
        metric: None,
        value: None,
        threshold: None,
        since: None,
    };
    assert_eq!(alert_from(&rule(2, Kind::RuleOff)), Some(expected.clone()));
    let Record::Event(mut one) = rule(3, Kind::RuleOn) else {
        panic!()
    };
    one.rule = None;
    assert_eq!(&*alert_from(&Record::Event(one)).unwrap().rule, "rule 1");

    // One number for firing and resolved, and wherever the value of the flow is from; others for another rule or flow, and without a
    // flow for another place.
    let one = expected.alert();
    assert_eq!(
        Alert {
            is_firing: true,
            ts: 0,
            id: 0,
            ..expected.clone()
        }
        .alert(),
        one
    );
    assert_eq!(
        Alert {
            node: Some(0),
            interface: Some(0),
            queue: Some(0),
            ..expected.clone()
        }
        .alert(),
        one
    );
    let [Record::Alert(on), Record::Alert(off)] = [firing(), alert(2, Kind::RuleOff)] else {
        panic!()
    };
    assert_eq!(
        (on.since, off.since, on.alert()),
        (Some(T + 1), None, off.alert())
    );
    let bare = Alert {
        flow: None,
        ..expected.clone()
    };
    let others = [
        Alert {
            rule: "deep".into(),
            ..expected.clone()
        },
        Alert {
            rule: "deep\0".into(),
            ..expected
        },
        bare.clone(),
        Alert {
            node: Some(0),
            ..bare.clone()
        },
        Alert {
            interface: Some(0),
            ..bare.clone()
        },
        Alert {
            queue: Some(0),
            ..bare
        },
    ];
    let mut numbers: Vec<u64> = others.iter().map(Alert::alert).chain([one]).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 7);
}

#[test]
fn each_sink_has_a_form_for_alerts() {
    let json = concat!(
        r#"{"id":"0000000000000001","ts":1795654800000000001,"collector":"c1","schema":1,"alert":"ALERT","#,
        r#""rule":"deep \"queue\" \\ a=b, c] \u0001é","flow":{"src":"10.0.0.1","dst":"10.0.0.2","sport":1234,"dport":80,"#,
        r#""proto":6},"node":7,"queue":0,"state":"firing","metric":"queue_occupancy","value":80,"threshold":50,"#,
        r#""since":1795654800000000001}"#
    )
    .replace("ALERT", ID);
    let hook = Webhook::new(&webhook::Options {
        target: "/".to_owned(),
        format: webhook::Format::Lines,
    });
    assert_eq!(body(&hook.unwrap(), firing()), format!("{json}\n"));

    let bulk = sent(
        &OpenSearch::new(&opensearch::Options::default()).unwrap(),
        firing(),
    );
    assert!(
        bulk.target.starts_with("/hopwise-alerts/_bulk?"),
        "{}",
        bulk.target
    );
    let document = json.replacen('{', "{\"@timestamp\":\"2026-11-26T01:00:00.000000001Z\",", 1);
    let expected = format!("{{\"create\":{{\"_id\":\"0000000000000001\"}}}}\n{document}\n");
    assert_eq!(String::from_utf8(bulk.body).unwrap(), expected);

    // Two of one time are two points: they are moved by their ids.
    let points = InfluxDb::new(&influxdb::Options::default()).unwrap();
    assert_eq!(
        body(&points, alert(2, Kind::RuleOff)),
        format!(
            "hopwise_alerts,collector=c1,node=8,queue=0,metric=queue_occupancy id=\"0000000000000002\",schema=1i,alert=\"{ID}\",rule=\"deep \\\"queue\\\" \\\\ a=b, c]  é\",src=\"10.0.0.1\",dst=\"10.0.0.2\",sport=1234i,dport=80i,proto=6i,state=\"resolved\",value=20i,threshold=50i 1795654800000000002\n",
        )
    );

    let logs = sent(&Otlp::new(&otlp::Options::default()).unwrap(), firing());
    assert_eq!(logs.target, "/v1/logs");
    let shown = String::from_utf8_lossy(&logs.body).into_owned();
    for part in ["WARN", "hopwise.firing", "hopwise.alert", "hopwise.state"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }

    let mut messages = Vec::new();
    let syslog = Syslog::new(&syslog::Options::default()).unwrap();
    batch("c1", &[firing(), alert(2, Kind::RuleOff)], |batch| {
        syslog.write(batch, &mut messages)
    });
    let messages = String::from_utf8(messages).unwrap();
    for part in [
        "<132>1 2026-11-26T01:00:00.000000Z - hopwise - firing [hopwise@32473 id=\"0000000000000001\"",
        " value=\"80\" threshold=\"50\" since=\"1795654800000000001\"] firing deep \"queue\" \\ a=b, c]  é 10.0.0.1:1234>10.0.0.2:80/6",
        "<133>1 2026-11-26T01:00:00.000000Z - hopwise - resolved [",
    ] {
        assert!(messages.contains(part), "{part} in {messages}");
    }

    let redis = Redis::new(&redis::Options::default()).unwrap();
    let commands = batch("c1", &[firing()], |batch| {
        redis.begin(batch).unwrap().pipeline().bytes.clone()
    });
    assert!(String::from_utf8_lossy(&commands).contains("hopwise:alerts\r\n"));
}

#[test]
fn kafka_and_clickhouse_know_the_stream() {
    let options = kafka::Options {
        compression: Compression::None,
        ..kafka::Options::default()
    };
    let sink = Kafka::new(&options).unwrap();
    assert_eq!(sink.topic(Stream::Alerts), "hopwise.alerts.v1");
    let mut exchange = batch("c1", &[firing()], |batch| sink.begin(batch).unwrap());
    exchange.spread(1);
    let mut chunk = Vec::new();
    exchange.write(0, None, &mut chunk);
    let key = "deep \"queue\" \\ a=b, c] \u{1}é 10.0.0.1:1234>10.0.0.2:80/6";
    for part in [key.as_bytes(), b"hopwise.v1.Alert"] {
        assert!(chunk.windows(part.len()).any(|window| window == part));
    }

    let lake = ClickHouse::new("net", "", 30).unwrap();
    assert_eq!(
        lake.schema(&[Stream::Alerts])[1],
        "CREATE TABLE IF NOT EXISTS net.alerts\n(\n  id UInt64 CODEC(NONE),\n  ts DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),\n  \
         collector LowCardinality(String),\n  schema UInt32 CODEC(T64, ZSTD(1)),\n  alert UInt64 CODEC(NONE),\n  \
         rule LowCardinality(String),\n  flow String CODEC(ZSTD(1)),\n  src IPv6 CODEC(ZSTD(1)),\n  dst IPv6 CODEC(ZSTD(1)),\n  \
         sport UInt16,\n  dport UInt16,\n  proto UInt8,\n  node UInt32 CODEC(T64, ZSTD(1)),\n  \
         interface UInt32 CODEC(T64, ZSTD(1)),\n  queue UInt32 CODEC(T64, ZSTD(1)),\n  state LowCardinality(String),\n  \
         metric LowCardinality(String),\n  value Nullable(UInt64) CODEC(T64, ZSTD(1)),\n  threshold Nullable(UInt64) CODEC(T64, ZSTD(1)),\n  \
         since DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1))\n)\n\
         ENGINE = MergeTree\nPARTITION BY toDate(ts)\nORDER BY (rule, toStartOfFiveMinutes(ts), ts)\n\
         TTL toDateTime(ts) + INTERVAL 30 DAY\nSETTINGS non_replicated_deduplication_window = 10000, min_bytes_for_wide_part = 268435456, ttl_only_drop_parts = 1"
    );
}
