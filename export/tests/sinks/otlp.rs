//! OTLP: options and answers. `servers/otlp.rs` lets OpenTelemetry's own classes read the messages.

use export::Outcome;
use export::sink::HttpSink as _;
use export::sink::otlp::{Options, Otlp};

use crate::support::*;

fn named(service: &str) -> Result<Otlp, String> {
    Otlp::new(&Options {
        service: service.to_owned(),
        ..Options::default()
    })
}

fn target(record: export::record::Record) -> String {
    batch("c1", &[record], |batch| {
        named("s").unwrap().request(batch).unwrap().target
    })
}

#[test]
fn options_are_checked() {
    for service in ["", "a\nb", &"x".repeat(201)] {
        let expected =
            format!("`prefix` is {service:?}; write the name of the service, of 1 to 200 characters");
        assert_eq!(named(service).unwrap_err(), expected);
    }
    assert_eq!(
        [change(1), flow(), dropped(), loss(), rollup(0)].map(target),
        ["/v1/logs", "/v1/logs", "/v1/logs", "/v1/logs", "/v1/metrics"]
    );
}

fn outcome(status: u16, body: &[u8]) -> Outcome {
    batch("c1", &[change(1), change(2)], |batch| {
        let sink = Otlp::new(&Options::default()).unwrap();
        let request = sink.request(batch).unwrap();
        assert_eq!(request.rows, [0, 1]);
        sink.outcome(
            batch,
            &request,
            &export::sink::Response {
                body,
                ..answer(status, "")
            },
        )
    })
}

fn refused_rows(refused: u64, rows: &[usize]) -> Outcome {
    let reason =
        format!("the server refused {refused} of a request with 2 records, and does not say which: old");
    let rejected: Vec<(usize, &str)> = rows.iter().map(|row| (*row, &reason[..])).collect();
    settled(&rejected, &[], "")
}

#[test]
fn answers_say_what_was_refused() {
    assert_eq!(outcome(200, b""), Outcome::DONE);
    // A warning without refused records; an unknown field, fixed ones among them.
    assert_eq!(outcome(200, b"\x0a\x05\x12\x03old"), Outcome::DONE);
    assert_eq!(
        outcome(200, b"\x18\x01\x0a\x02\x08\x00\x25abcd\x21abcdefgh"),
        Outcome::DONE
    );
    assert_eq!(
        outcome(200, b"\x0a\x07\x08\x01\x12\x03old"),
        refused_rows(1, &[0])
    );
    // Points of a rollup are several.
    assert_eq!(
        outcome(200, b"\x0a\x07\x08\x06\x12\x03old"),
        refused_rows(6, &[0, 1])
    );
    for malformed in [
        &b"\x0a\x05\x08"[..],
        b"\x0a",
        b"\xff",
        b"\x0b",
        b"\x08",
        &[0x88; 12],
        b"\x21abc",
    ] {
        let Outcome::Failed { reason, .. } = outcome(200, malformed) else {
            panic!("{malformed:?}")
        };
        assert!(reason.starts_with("no answer of OTLP: HTTP 200"), "{reason}");
    }
    let reason = "bad".to_owned();
    assert_eq!(outcome(400, b"bad"), Outcome::Refused { reason });
    assert!(matches!(outcome(503, b""), Outcome::Failed { .. }));
    assert!(matches!(outcome(401, b""), Outcome::Unauthorised { .. }));
}
