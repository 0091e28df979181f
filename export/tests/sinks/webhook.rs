//! Records as JSON to any address.

use export::Outcome;
use export::sink::HttpSink as _;
use export::sink::webhook::{Format, Options, Webhook};

use crate::support::*;

fn sink(target: &str, format: Format) -> Result<Webhook, String> {
    Webhook::new(&Options {
        target: target.to_owned(),
        format,
    })
}

const DROP: &str = r#"{"id":"0000000000000abc","ts":1795654800000000000,"collector":"c1","schema":1,"flow":{"src":"flow-id:0x0000f10a","dst":"","proto":0},"node":5,"queue":0,"egress_if":2,"reason":71}"#;

fn sent(format: Format) -> String {
    let sink = sink("/hook?key=1", format).unwrap();
    batch("c1", &[dropped(), dropped()], |batch| {
        shown(&sink.request(batch).unwrap())
    })
}

#[test]
fn records_are_an_array_or_lines() {
    assert_eq!(
        sent(Format::Array),
        format!("POST /hook?key=1\ncontent-type: application/json\nrows [0, 1]\n\n[{DROP},{DROP}]")
    );
    assert_eq!(
        sent(Format::Lines),
        format!("POST /hook?key=1\ncontent-type: application/x-ndjson\nrows [0, 1]\n\n{DROP}\n{DROP}\n")
    );
    assert_eq!(
        batch("c1", &[], |batch| sink("/", Format::Array)
            .unwrap()
            .request(batch)),
        None
    );
}

#[test]
fn options_are_checked() {
    for target in ["", "x", "/a b", "/a\r\nx: y", "/é", "/#a"] {
        assert_eq!(
            sink(target, Format::Array).unwrap_err(),
            format!(
                "invalid URL path {target:?}; it must begin with `/`, with a space written as %20, and so on"
            )
        );
    }
}

#[test]
fn answers_are_understood_by_their_status() {
    let sink = sink("/hook", Format::Lines).unwrap();
    let outcomes = [202, 302, 422, 403].map(|status| {
        batch("c1", &[dropped()], |batch| {
            sink.outcome(batch, &sink.request(batch).unwrap(), &answer(status, "w"))
        })
    });
    let reason = "w".to_owned();
    let refused = Outcome::Refused {
        reason: reason.clone(),
    };
    let denied = Outcome::Unauthorised { reason };
    assert_eq!(outcomes, [Outcome::DONE, failed("w"), refused, denied]);
    assert_eq!(shown(&sink.probe(&[])), "GET /hook\nrows []\n\n");
    for status in [200, 405, 501] {
        assert_eq!(probed(&sink, status, "w"), "");
    }
    assert_eq!(
        probed(&sink, 301, "w"),
        "the server redirects (HTTP 301: w); write the final url"
    );
    assert_eq!(
        probed(&sink, 404, "w"),
        "the server has nothing there (HTTP 404: w); correct the url"
    );
    assert_eq!(
        probed(&sink, 502, "w"),
        "the server does not accept records: HTTP 502: w"
    );
    assert_eq!(
        probed(&sink, 401, "w"),
        "the server refuses the credentials (HTTP 401: w); correct user, password or token"
    );
}
