//! The line protocol, and what InfluxDB answers.

use collector::event::Kind;
use export::Outcome;
use export::record::Record;
use export::sink::influxdb::{Api, InfluxDb, Options};
use export::sink::{HttpSink as _, Request};

use crate::support::*;

fn options() -> Options {
    Options {
        spread: 0,
        ..Options::default()
    }
}

fn sent(options: &Options, records: &[Record]) -> Request {
    batch(COLLECTOR, records, |batch| {
        InfluxDb::new(options).unwrap().request(batch).unwrap()
    })
}

/// The line of a record, without the name of the collector.
fn line(record: Record) -> String {
    let request = sent(&options(), &[record]);
    String::from_utf8(request.body)
        .unwrap()
        .replace(r#"collector=leaf\,\ "1"\=a/b]_"#, "COLLECTOR")
}

#[test]
fn records_are_lines() {
    let events = [change(1), new_flow(2), rule(3, Kind::RuleOn)];
    assert_eq!(
        shown(&sent(&options(), &events)),
        r#"POST /write?db=hopwise&precision=ns
content-type: text/plain; charset=utf-8
rows [0, 1, 2]

hopwise_events,collector=leaf\,\ "1"\=a/b]_,kind=change,metric=queue_occupancy,node=7,interface=2,queue=0 id="0000000000000001",schema=1i,src="10.0.0.1",dst="10.0.0.2",sport=1234i,dport=80i,proto=6i,value=130i,previous=2i,threshold=128i,basis="measured" 1795654800000000001
hopwise_events,collector=leaf\,\ "1"\=a/b]_,kind=new,metric=flow_path id="0000000000000002",schema=1i,src="fd00::1",dst="fd00::2",sport=5i,dport=6i,proto=17i,basis="hop_sum",path="1,-,300",flow_latency=42i,latency_basis="hop_sum",hop_latencies="-,7" 1795654800000000002
hopwise_events,collector=leaf\,\ "1"\=a/b]_,kind=rule_on id="0000000000000003",schema=1i,src="10.0.0.1",dst="10.0.0.2",sport=1234i,dport=80i,proto=6i,rule="deep \"queue\" \\ a=b, c]  é",basis="measured" 1795654800000000003
"#
    );
    assert_eq!(
        line(rollup(0)),
        format!(
            "hopwise_rollups,COLLECTOR,interval=1,metric=hop_latency,node=7,interface=2,queue=0 id=\"{:016x}\",schema=1i,count=3i,min=10i,max=50i,sum=90i,p50=30i 1795654800000000000\n",
            rollup(0).id()
        )
    );
    assert_eq!(
        line(flow()),
        format!(
            "hopwise_flows,COLLECTOR id=\"{:016x}\",schema=1i,src=\"10.0.0.1\",dst=\"10.0.0.2\",proto=1i,flow_latency=900i,basis=\"measured\",first_seen=1795654800000000000i,last_seen=1795654800000000005i,reports=3i,path=\"1,7\" 1795654800000000005\n",
            flow().id()
        )
    );
    assert_eq!(
        line(dropped()),
        "hopwise_drops,COLLECTOR,node=5,queue=0 id=\"0000000000000abc\",schema=1i,src=\"flow-id:0x0000f10a\",proto=0i,egress_if=2i,reason=71i 1795654800000000000\n"
    );
    assert_eq!(
        line(loss()),
        format!(
            "hopwise_losses,COLLECTOR,source=192.0.2.1,hw_id=3 id=\"{:016x}\",schema=1i,lost=4i,reordered=0i,duplicated=1i 1795654800000000000\n",
            loss().id()
        )
    );
}

#[test]
fn tags_are_chosen_and_rollups_of_flows_need_them() {
    let api = Api::V2 {
        org: "my org".to_owned(),
        bucket: "a/b".to_owned(),
    };
    let tags = ["src", "dst", "sport", "dport", "proto", "rule", "src"]
        .map(str::to_owned)
        .into();
    let chosen = Options {
        api,
        tags,
        prefix: String::new(),
        spread: 0,
    };
    let request = sent(&chosen, &[flow_rollup()]);
    assert_eq!(
        shown(&request),
        format!(
            "POST /api/v2/write?org=my%20org&bucket=a%2Fb&precision=ns\ncontent-type: text/plain; charset=utf-8\nrows [0]\n\n\
             rollups,collector=leaf\\,\\ \"1\"\\=a/b]_,interval=60,metric=flow_latency,src=10.0.0.1,dst=10.0.0.2,sport=1234,dport=80,proto=6 \
             id=\"{:016x}\",schema=1i,count=3i,min=10i,max=50i,sum=90i,p50=30i 1795654800000000000\n",
            flow_rollup().id()
        )
    );
    let sink = InfluxDb::new(&options()).unwrap();
    assert_eq!(batch("c", &[flow_rollup()], |batch| sink.request(batch)), None);
    let request = batch("c", &[flow_rollup(), rollup(0)], |batch| sink.request(batch)).unwrap();
    assert_eq!(request.rows, [1]);
}

fn change_line(id: u64) -> String {
    let mut one = event(id, Kind::Change);
    one.event.ts = T + 999_999;
    String::from_utf8(sent(&Options::default(), &[Record::Event(Box::new(one))]).body).unwrap()
}

#[test]
fn events_of_one_burst_do_not_replace_each_other() {
    assert!(
        change_line(0x1234_0000_0001)
            .ends_with("schema=1i,ts=1795654800000999999i,basis=\"measured\" 1795654800000599361\n")
    );
    assert!(change_line(999_999).ends_with("schema=1i,basis=\"measured\" 1795654800000999999\n"));
}

/// The timestamp of the point of a rollup's part.
fn rollup_time(options: &Options, part: u64) -> u64 {
    let body = String::from_utf8(sent(options, &[rollup_part(part)]).body).unwrap();
    let (fields, time) = body.trim_end().rsplit_once(' ').unwrap();
    assert_eq!(
        fields.contains(",ts=1795654800000000000i"),
        time != "1795654800000000000",
        "{body}"
    );
    time.parse::<u64>().unwrap()
}

#[test]
fn rollups_of_several_workers_do_not_replace_each_other() {
    let times: Vec<u64> = (1..100)
        .map(|part| rollup_time(&Options::default(), part))
        .collect();
    assert!(
        times.iter().all(|time| (T..T + 1_000_000).contains(time)),
        "{times:?}"
    );
    assert_eq!(
        times.iter().collect::<std::collections::BTreeSet<_>>().len(),
        times.len()
    );
    assert_eq!(
        times[4],
        rollup_time(&Options::default(), 5),
        "one that is sent again is the same point"
    );
    assert_eq!(
        [rollup_time(&Options::default(), 0), rollup_time(&options(), 7)],
        [T, T]
    );
}

#[test]
fn numbers_beyond_63_bits_are_the_largest_one() {
    let mut one = event(1, Kind::Change);
    one.event.value = Some(u64::MAX);
    let body = sent(&options(), &[Record::Event(Box::new(one))]).body;
    assert!(
        String::from_utf8(body)
            .unwrap()
            .contains(",value=9223372036854775807i,")
    );
}

fn refused(options: Options) -> String {
    InfluxDb::new(&options).unwrap_err()
}

#[test]
fn options_are_checked() {
    let api = Api::V1 {
        database: " ".to_owned(),
        retention_policy: None,
    };
    assert_eq!(
        refused(Options { api, ..options() }),
        "`database` is empty; name the database that the points are written to"
    );
    let api = Api::V1 {
        database: "a".to_owned(),
        retention_policy: Some(String::new()),
    };
    assert_eq!(
        refused(Options { api, ..options() }),
        "`retention_policy` is empty; name the retention_policy that the points are written to"
    );
    assert_eq!(
        refused(Options {
            prefix: "a b".to_owned(),
            ..options()
        }),
        "`prefix` is \"a b\"; use only letters, digits, `_`, `.` and `-` in it"
    );
    assert_eq!(
        refused(Options {
            tags: vec!["value".to_owned()],
            ..options()
        }),
        "`value` cannot be a tag; choose from basis, dport, dst, egress_if, ingress_if, latency_basis, proto, reason, rule, sport, src"
    );
}

/// The outcome of three changes; their ids are 3, 1, 2, so the second one is the oldest.
fn outcome(status: u16, body: &str) -> Outcome {
    let sink = InfluxDb::new(&options()).unwrap();
    let records = [change(3), change(1), new_flow(2)];
    batch("c", &records, |batch| {
        sink.outcome(batch, &sink.request(batch).unwrap(), &answer(status, body))
    })
}

fn rejected(rejected: &[(usize, &str)]) -> Outcome {
    settled(rejected, &[], "")
}

#[test]
fn a_partial_write_has_stored_the_rest() {
    let body = r#"{"error":"partial write: points beyond retention policy dropped=1"}"#;
    let reason = format!("{body} (the server names no line: one of 1 of 3 that the words fit)");
    assert_eq!(outcome(400, body), rejected(&[(1, &reason)]));

    let body = r#"{"error":"partial write: field type conflict: input field \"flow_latency\" on measurement \"hopwise_events\" is type integer, already exists as type float dropped=1"}"#;
    let reason = format!("{body} (the server names no line: one of 1 of 3 that the words fit)");
    assert_eq!(outcome(422, body), rejected(&[(2, &reason)]));

    let body = r#"{"error":"partial write: max-series-per-database limit exceeded: (1000000) dropped=3"}"#;
    assert_eq!(outcome(400, body), rejected(&[(0, body), (1, body), (2, body)]));
    let more = r#"{"error":"partial write: dropped=4000000000000"}"#;
    assert_eq!(outcome(400, more), rejected(&[(0, more), (1, more), (2, more)]));

    let line = String::from_utf8(batch("c", &[change(1)], |batch| {
        InfluxDb::new(&options()).unwrap().request(batch).unwrap().body
    }))
    .unwrap();
    let body = serde_json::json!({"error": format!("partial write: unable to parse '{}': x", line.trim())});
    let Outcome::Settled { rejected: rows, .. } = outcome(400, &body.to_string()) else {
        panic!()
    };
    assert_eq!(rows.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1]);

    let body = r#"{"error":"partial write of line protocol occurred","data":[{"original_line":"…","line_number":3,"error_message":"invalid column type"},{"line_number":1,"error_message":"a\nb"}]}"#;
    assert_eq!(
        outcome(400, body),
        rejected(&[(0, "a b"), (2, "invalid column type")])
    );
}

#[test]
fn other_answers_say_whether_to_try_again() {
    assert_eq!(outcome(204, ""), Outcome::DONE);
    assert_eq!(
        outcome(400, "unable to parse 'x'"),
        Outcome::Refused {
            reason: "unable to parse 'x'".to_owned()
        }
    );
    let missing = r#"{"error":"database not found: \"x\""}"#;
    assert_eq!(outcome(404, missing), failed(missing));
    let missing = r#"{"error":"retention policy not found: x"}"#;
    assert_eq!(outcome(400, missing), failed(missing));
    let reason = "no".to_owned();
    assert_eq!(outcome(401, "no"), Outcome::Unauthorised { reason });
    assert_eq!(outcome(503, "busy"), failed("busy"));
}

#[test]
fn the_probe_says_what_to_do() {
    let sink = InfluxDb::new(&options()).unwrap();
    assert_eq!(
        shown(&sink.probe(&[])),
        "POST /write?db=hopwise&precision=ns\ncontent-type: text/plain; charset=utf-8\nrows []\n\n"
    );
    assert_eq!(probed(&sink, 204, ""), "");
    assert_eq!(
        probed(
            &sink,
            400,
            r#"{"code":"invalid","message":"writing requires points"}"#
        ),
        ""
    );
    assert_eq!(
        probed(&sink, 404, r#"{"error":"database not found: \"hopwise\""}"#),
        r#"{"error":"database not found: \"hopwise\""}; create it (`CREATE DATABASE …`, `influx bucket create …`), or correct `database`, `organisation` or `bucket`"#
    );
    assert_eq!(
        probed(&sink, 404, "404 page not found"),
        "the server has no such API (HTTP 404: 404 page not found); correct `url`, or write `organisation` and `bucket` for InfluxDB 2 and later, neither for InfluxDB 1"
    );
    assert_eq!(
        probed(&sink, 401, "unauthorized"),
        "the server refuses the credentials (HTTP 401: unauthorized); correct user, password or token, and let them write there"
    );
    assert_eq!(
        probed(&sink, 500, ""),
        "the server does not accept points: HTTP 500"
    );
}
