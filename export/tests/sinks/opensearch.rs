//! Bulk requests, and what OpenSearch answers.

use export::Outcome;
use export::record::Stream;
use export::sink::HttpSink as _;
use export::sink::opensearch::{OpenSearch, Options};

use crate::support::*;

fn sink() -> OpenSearch {
    OpenSearch::new(&Options::default()).unwrap()
}

#[test]
fn records_are_documents() {
    let request = batch("c1", &[change(1), new_flow(0xabc)], |batch| sink().request(batch)).unwrap();
    assert_eq!(
        shown(&request),
        r#"POST /hopwise-events/_bulk?filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason
content-type: application/x-ndjson
rows [0, 1]

{"create":{"_id":"0000000000000001"}}
{"@timestamp":"2026-11-26T01:00:00.000000001Z","id":"0000000000000001","ts":1795654800000000001,"collector":"c1","schema":1,"kind":"change","metric":"queue_occupancy","flow":{"src":"10.0.0.1","dst":"10.0.0.2","sport":1234,"dport":80,"proto":6},"node":7,"interface":2,"queue":0,"value":130,"previous":2,"threshold":128,"basis":"measured"}
{"create":{"_id":"0000000000000abc"}}
{"@timestamp":"2026-11-26T01:00:00.000002748Z","id":"0000000000000abc","ts":1795654800000002748,"collector":"c1","schema":1,"kind":"new","metric":"flow_path","flow":{"src":"fd00::1","dst":"fd00::2","sport":5,"dport":6,"proto":17},"basis":"hop_sum","path":[1,null,300],"flow_latency":42,"latency_basis":"hop_sum","hop_latencies":[null,7]}
"#
    );
    assert_eq!(batch("c1", &[], |batch| sink().request(batch)), None);
}

/// The action line of the document of a rollup of this part.
fn document_name(collector: &str, part: u64) -> String {
    let request = batch(collector, &[rollup_part(part)], |batch| sink().request(batch)).unwrap();
    let body = String::from_utf8(request.body).unwrap();
    let document: serde_json::Value = serde_json::from_str(body.lines().nth(1).unwrap()).unwrap();
    assert_eq!(
        document["id"],
        format!("{:016x}", rollup(0).id()),
        "it is the same for all of them"
    );
    body.lines().next().unwrap().to_owned()
}

#[test]
fn rollups_of_several_workers_are_documents_of_their_own() {
    let names = [
        document_name("c1", 1),
        document_name("c1", 2),
        document_name("c2", 1),
        document_name("c1", 0),
    ];
    assert_eq!(
        names.iter().collect::<std::collections::BTreeSet<_>>().len(),
        names.len(),
        "{names:?}"
    );
    assert_eq!(
        names[0],
        document_name("c1", 1),
        "one that is sent again is refused"
    );
}

#[test]
fn a_template_says_the_types() {
    let plain = Options {
        prefix: "a.b".to_owned(),
        data_streams: false,
    };
    assert_eq!(
        shown(&OpenSearch::new(&plain).unwrap().template(Stream::Losses)),
        concat!(
            "PUT /_index_template/a.b-losses\ncontent-type: application/json\nrows []\n\n",
            r#"{"index_patterns":["a.b-losses","a.b-losses-*"],"priority":200,"_meta":{"schema":1},"template":{"mappings":{"#,
            r#""dynamic":false,"properties":{"@timestamp":{"type":"date_nanos"},"id":{"type":"keyword"},"#,
            r#""ts":{"type":"long","ignore_malformed":true},"collector":{"type":"keyword"},"#,
            r#""schema":{"type":"long","ignore_malformed":true},"node":{"type":"long","ignore_malformed":true},"#,
            r#""source":{"type":"ip","ignore_malformed":true,"fields":{"text":{"type":"keyword","ignore_above":64}}},"#,
            r#""hw_id":{"type":"long","ignore_malformed":true},"lost":{"type":"long","ignore_malformed":true},"#,
            r#""reordered":{"type":"long","ignore_malformed":true},"duplicated":{"type":"long","ignore_malformed":true}}}}}"#
        )
    );
    for stream in Stream::ALL {
        let body = sink().template(stream).body;
        let template: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(template["data_stream"], serde_json::json!({}));
        let fields = template["template"]["mappings"]["properties"]
            .as_object()
            .unwrap();
        assert_eq!(fields.len(), 1 + 4 + stream.fields().len());
    }
}

fn refused_prefix(prefix: &str) -> String {
    let options = Options {
        prefix: prefix.to_owned(),
        data_streams: true,
    };
    OpenSearch::new(&options).unwrap_err()
}

#[test]
fn options_are_checked() {
    let letters = "; use 1 to 200 small letters, digits, `-`, `_` and `.` for it";
    assert_eq!(refused_prefix(""), format!("`prefix` is \"\"{letters}"));
    assert_eq!(refused_prefix("A"), format!("`prefix` is \"A\"{letters}"));
    assert_eq!(refused_prefix("a/b"), format!("`prefix` is \"a/b\"{letters}"));
    assert_eq!(
        refused_prefix("_a"),
        "`prefix` is \"_a\"; let it begin with a letter or a digit"
    );
}

fn outcome(status: u16, body: &str) -> Outcome {
    let records = [change(1), change(2), change(3)];
    batch("c", &records, |batch| {
        sink().outcome(batch, &sink().request(batch).unwrap(), &answer(status, body))
    })
}

/// An answer with these statuses; those that are errors have a type and a reason.
fn items(statuses: [u16; 3]) -> String {
    let errors = statuses.iter().any(|status| *status >= 300);
    let items = statuses.map(|status| {
        if status < 300 {
            serde_json::json!({"create": {"status": status}})
        } else {
            serde_json::json!({"create": {"status": status, "error": {"type": format!("t{status}"), "reason": "r\n"}}})
        }
    });
    serde_json::json!({"errors": errors, "items": items}).to_string()
}

#[test]
fn each_document_has_its_own_status() {
    assert_eq!(outcome(200, &items([201, 200, 201])), Outcome::DONE);
    // Sent before.
    assert_eq!(outcome(200, &items([201, 409, 409])), Outcome::DONE);
    assert_eq!(
        outcome(200, &items([201, 429, 400])),
        settled(&[(2, "HTTP 400 t400: r")], &[1], "HTTP 429 t429: r")
    );
    assert_eq!(outcome(200, &items([503, 403, 404])), failed("HTTP 503 t503: r"));
    assert_eq!(
        outcome(200, &items([201, 403, 404])),
        settled(&[], &[1, 2], "HTTP 403 t403: r")
    );
    let denied = Outcome::Unauthorised {
        reason: "HTTP 403 t403: r".to_owned(),
    };
    assert_eq!(outcome(200, &items([403, 403, 401])), denied);
    // What is no answer for each document is none at all, and a repeat is harmless.
    assert_eq!(
        outcome(200, r#"{"errors":false,"items":[{"create":{"status":201}}]}"#),
        failed("the server answered for 1 documents of 3")
    );
    assert_eq!(
        outcome(200, "<html>"),
        failed("no answer of a bulk request: expected value at line 1 column 1: HTTP 200: <html>")
    );
    assert_eq!(
        outcome(413, "large"),
        Outcome::Refused {
            reason: "large".to_owned()
        }
    );
    assert_eq!(outcome(429, "later"), failed("later"));
    let cut = export::sink::Response {
        is_cut: true,
        ..answer(200, "{")
    };
    assert_eq!(
        batch("c", &[change(1)], |batch| {
            sink().outcome(batch, &sink().request(batch).unwrap(), &cut)
        }),
        Outcome::Refused {
            reason: "the answer is too long to be read".to_owned()
        }
    );
}

/// The words of a probe of two streams that failed; empty if it succeeded.
fn probed_streams(status: u16, body: &str) -> String {
    sink()
        .probed(&[Stream::Events, Stream::Drops], &answer(status, body))
        .err()
        .unwrap_or_default()
}

#[test]
fn the_probe_says_what_to_do() {
    assert_eq!(
        shown(&sink().probe(&[Stream::Events])),
        "GET /_index_template/hopwise-*?filter_path=index_templates.name\nrows []\n\n"
    );
    assert_eq!(
        probed_streams(
            200,
            r#"{"index_templates":[{"name":"hopwise-events"},{"name":"hopwise-drops"}]}"#
        ),
        ""
    );
    assert_eq!(
        probed_streams(200, r#"{"index_templates":[{"name":"hopwise-events"}]}"#),
        "the server has no index template `hopwise-drops`; make it with `hopwise schema apply`"
    );
    let missing = "the server has no index template `hopwise-events`; make it with `hopwise schema apply`";
    assert_eq!(probed_streams(200, "{}"), missing);
    assert_eq!(probed_streams(404, ""), missing);
    assert_eq!(
        probed_streams(403, "no"),
        "the server refuses the credentials (HTTP 403: no); correct user, password or token, and let them read templates"
    );
    assert_eq!(
        probed_streams(500, ""),
        "the server does not accept documents: HTTP 500"
    );
}
