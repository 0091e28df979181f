//! OTLP: options and answers. `servers/otlp.rs` lets OpenTelemetry's own classes read the messages.

use export::Outcome;
use export::sink::HttpSink as _;
use export::sink::otlp::{Options, Otlp};

use crate::support::*;

#[test]
fn options_are_checked() {
    let named = |service: &str| {
        Otlp::new(&Options {
            service: service.to_owned(),
            ..Options::default()
        })
    };
    for service in ["", "a\nb", &"x".repeat(201)] {
        let expected =
            format!("`prefix` is {service:?}; write the name of the service, of 1 to 200 characters");
        assert_eq!(named(service).unwrap_err(), expected);
    }
    let target = |record| {
        batch("c1", &[record], |batch| {
            named("s").unwrap().request(batch).unwrap().target
        })
    };
    assert_eq!(
        [change(1), flow(), dropped(), loss(), rollup(0)].map(target),
        ["/v1/logs", "/v1/logs", "/v1/logs", "/v1/logs", "/v1/metrics"]
    );
}

#[test]
fn answers_say_what_was_refused() {
    let outcome = |status, body: &[u8]| {
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
    };
    let refused = |words: &str| Outcome::Refused {
        words: words.to_owned(),
    };
    assert_eq!(outcome(200, b""), Outcome::DONE);
    // A warning without refused records; an unknown field, fixed ones among them.
    assert_eq!(outcome(200, b"\x0a\x05\x12\x03old"), Outcome::DONE);
    assert_eq!(
        outcome(200, b"\x18\x01\x0a\x02\x08\x00\x25abcd\x21abcdefgh"),
        Outcome::DONE
    );
    let settled = |refused: u64, rows: &[usize]| {
        let words =
            format!("the server refused {refused} of a request with 2 records, and does not say which: old");
        let rejected = rows.iter().map(|row| (*row, words.clone())).collect();
        Outcome::Settled {
            rejected,
            again: Vec::new(),
            words: String::new(),
            retry_after: None,
        }
    };
    assert_eq!(outcome(200, b"\x0a\x07\x08\x01\x12\x03old"), settled(1, &[0]));
    // Points of a rollup are several.
    assert_eq!(outcome(200, b"\x0a\x07\x08\x06\x12\x03old"), settled(6, &[0, 1]));
    for malformed in [
        &b"\x0a\x05\x08"[..],
        b"\x0a",
        b"\xff",
        b"\x0b",
        b"\x08",
        &[0x88; 12],
        b"\x21abc",
    ] {
        let Outcome::Failed { words, .. } = outcome(200, malformed) else {
            panic!("{malformed:?}")
        };
        assert!(words.starts_with("no answer of OTLP: HTTP 200"), "{words}");
    }
    assert_eq!(outcome(400, b"bad"), refused("bad"));
    assert!(matches!(outcome(503, b""), Outcome::Failed { .. }));
    assert!(matches!(outcome(401, b""), Outcome::Unauthorised { .. }));
}
