//! Commands for Redis, and its replies.

use collector::event::Kind;
use export::Outcome;
use export::record::Record;
use export::sink::redis::{Credentials, Exchange, Malformed, Options, Pipeline, Redis, Replies, Reply};

use crate::support::*;

fn sink() -> Redis {
    Redis::new(&Options::default()).unwrap()
}

/// A line per command, its parts quoted.
fn commands(pipeline: &Pipeline) -> Vec<String> {
    let mut rest = &pipeline.bytes[..];
    let mut number = |kind: u8| -> Option<(usize, &[u8])> {
        let end = rest.windows(2).position(|window| window == b"\r\n")?;
        assert_eq!(rest[0], kind);
        let len: usize = std::str::from_utf8(&rest[1..end]).unwrap().parse().unwrap();
        rest = &rest[end + 2..];
        if kind == b'*' {
            return Some((len, b""));
        }
        let (part, after) = rest.split_at(len);
        rest = after.strip_prefix(b"\r\n").unwrap();
        Some((len, part))
    };
    let mut commands = Vec::new();
    while let Some((parts, _)) = number(b'*') {
        commands.push(
            (0..parts)
                .map(|_| format!("{:?}", String::from_utf8_lossy(number(b'$').unwrap().1)))
                .collect::<Vec<_>>()
                .join(" ")
                .replace("\" \"", "|"),
        );
    }
    commands
}

fn replies(bytes: &[u8]) -> Vec<Reply> {
    let mut reader = Replies::new();
    reader.push(bytes);
    std::iter::from_fn(|| reader.next_reply().unwrap()).collect()
}

fn sent(records: &[Record]) -> Exchange {
    batch("c 1", records, |batch| sink().begin(batch).unwrap())
}

#[test]
fn records_are_entries_and_hashes() {
    let exchange = sent(&[change(0x10_0000_0000_0002), rule(1, Kind::RuleOn)]);
    assert_eq!(exchange.pipeline().replies, 2);
    // In the order of their ids: the time of the second one is earlier.
    assert_eq!(
        commands(exchange.pipeline()),
        [
            r#""XADD|hopwise:events|MAXLEN|~|1000000|1795654800000-17592186044417|id|0000000000000001|ts|1795654800000000001|collector|c 1|schema|1|kind|rule_on|flow|10.0.0.1:1234>10.0.0.2:80/6|rule|deep \"queue\" \\ a=b, c] \u{1}é|basis|measured""#,
            r#""XADD|hopwise:events|MAXLEN|~|1000000|1800158399627-6517869745084039170|id|0010000000000002|ts|1800158399627370498|collector|c 1|schema|1|kind|change|metric|queue_occupancy|flow|10.0.0.1:1234>10.0.0.2:80/6|node|7|interface|2|queue|0|value|130|previous|2|threshold|128|basis|measured""#,
        ]
    );
    let exchange = sent(&[flow()]);
    assert_eq!(exchange.pipeline().replies, 2);
    assert_eq!(
        commands(exchange.pipeline()),
        [
            format!(
                r#""HSET|hopwise:flow:10.0.0.1>10.0.0.2/1|id|{:016x}|ts|1795654800000000005|collector|c 1|schema|1|flow|10.0.0.1>10.0.0.2/1|flow_latency|900|basis|measured|first_seen|1795654800000000000|last_seen|1795654800000000005|reports|3|path|1,7""#,
                flow().id()
            ),
            r#""PEXPIRE|hopwise:flow:10.0.0.1>10.0.0.2/1|3600000""#.to_owned(),
        ]
    );
    let Record::Flow(mut one) = flow() else { panic!() };
    (one.0.flow_latency, one.1) = (None, Vec::new());
    let unlimited = Redis::new(&Options {
        max_len: 0,
        expire: 0,
        ..Options::default()
    })
    .unwrap();
    let exchange = batch("c", &[Record::Flow(one)], |batch| unlimited.begin(batch).unwrap());
    assert_eq!(exchange.pipeline().replies, 1);
    let command = &commands(exchange.pipeline())[0];
    assert!(command.ends_with("|reports|3|flow_latency||path|\""), "{command}");
    let exchange = batch("c", &[loss()], |batch| unlimited.begin(batch).unwrap());
    let command = &commands(exchange.pipeline())[0];
    assert!(
        command.starts_with("\"XADD|hopwise:losses|1795654800000-"),
        "{command}"
    );
    assert_eq!(batch("c", &[], |batch| sink().begin(batch)), None);
}

fn greeting(redis: &Redis, user: Option<&str>, password: &str) -> Vec<String> {
    let credentials = Credentials { user, password };
    commands(&redis.greeting(Some(&credentials)))
}

/// The words about refused credentials; empty if the greeting succeeded.
fn greeted(redis: &Redis, bytes: &[u8]) -> String {
    redis.greeted(&replies(bytes)).err().unwrap_or_default()
}

#[test]
fn the_greeting_says_what_to_do() {
    let options = Options {
        database: 3,
        ..Options::default()
    };
    let redis = Redis::new(&options).unwrap();
    assert_eq!(
        greeting(&redis, None, "s\r\n"),
        [r#""AUTH|s\r\n""#, r#""SELECT|3""#, r#""PING""#]
    );
    assert_eq!(greeting(&redis, Some("me"), "s")[0], r#""AUTH|me|s""#);
    assert_eq!(
        sink().greeting(None),
        Pipeline {
            bytes: b"*1\r\n$4\r\nPING\r\n".to_vec(),
            replies: 1
        }
    );
    assert!(
        !format!(
            "{:?}",
            Credentials {
                user: None,
                password: "secret"
            }
        )
        .contains("secret")
    );
    assert_eq!(greeted(&redis, b"+OK\r\n+OK\r\n+PONG\r\n"), "");
    assert_eq!(
        greeted(&redis, b"+OK\r\n"),
        "the server does not answer as Redis does; correct address and port"
    );
    assert_eq!(
        greeted(&redis, b"-WRONGPASS invalid\r\n-NOAUTH x\r\n"),
        "the server refuses the credentials (WRONGPASS invalid); correct user and password"
    );
    assert_eq!(
        greeted(&redis, b"-NOAUTH Authentication required.\r\n"),
        "the server requires credentials (NOAUTH Authentication required.); write a password, and a user if there is one"
    );
    assert_eq!(
        greeted(&redis, b"-ERR DB index is out of range\r\n+PONG\r\n"),
        "the server has no database 3 (ERR DB index is out of range); choose another one"
    );
    assert_eq!(
        greeted(&redis, b"-NOPERM x\r\n"),
        "the user may not do that (NOPERM x); allow PING, SELECT, XADD, XRANGE, XREVRANGE, HSET and PEXPIRE"
    );
    assert_eq!(
        greeted(&redis, b"-LOADING x\r\n"),
        "the server does not accept commands: LOADING x"
    );
    for prefix in ["", "a b", "é"] {
        let options = Options {
            prefix: prefix.to_owned(),
            ..Options::default()
        };
        assert_eq!(
            Redis::new(&options).unwrap_err(),
            format!("`prefix` is {prefix:?}; use 1 to 200 printable ASCII characters without spaces")
        );
    }
}

/// The exchange for three changes, with the replies of a server. `None` at the end: more is to be sent.
fn exchange(all: &[&str]) -> (Exchange, Option<Outcome>) {
    let records = [change(1), change(2), change(3)];
    batch("c", &records, |batch| {
        let mut exchange = sink().begin(batch).unwrap();
        let mut outcome = None;
        for bytes in all {
            assert_eq!(outcome, None);
            outcome = sink().answered(batch, &mut exchange, &replies(bytes.as_bytes()));
        }
        (exchange, outcome)
    })
}

const OK: &str = "$3\r\n1-1\r\n";
const REPEATED: &str =
    "-ERR The ID specified in XADD is equal or smaller than the target stream top item\r\n";

/// The outcome of three changes with these replies.
fn outcome(parts: [&str; 3]) -> Option<Outcome> {
    exchange(&[&parts.concat()]).1
}

#[test]
fn errors_are_understood_by_record() {
    assert_eq!(outcome([OK, OK, OK]), Some(Outcome::DONE));
    assert_eq!(
        outcome([OK, "-WRONGTYPE x\r\n", OK]),
        Some(settled(&[(1, "WRONGTYPE x")], &[], ""))
    );
    assert_eq!(
        outcome([OK, "-OOM x\r\n", "-ERR y\r\n"]),
        Some(settled(&[(2, "ERR y")], &[1], "OOM x"))
    );
    for reason in [
        "OOM x",
        "LOADING x",
        "READONLY x",
        "CLUSTERDOWN x",
        "ERR unknown command 'XADD'",
    ] {
        let reply = format!("-{reason}\r\n");
        assert_eq!(outcome([&reply, &reply, &reply]), Some(failed(reason)));
    }
    for reason in ["NOAUTH x", "NOPERM x"] {
        assert_eq!(
            outcome([OK, OK, &format!("-{reason}\r\n")]),
            Some(Outcome::Unauthorised {
                reason: reason.to_owned()
            })
        );
    }
    assert_eq!(
        outcome([OK, OK, ""]),
        Some(failed("the server answered 2 of 3 commands"))
    );
    assert_eq!(
        outcome([OK, OK, "+OK\r\n+OK\r\n"]),
        Some(failed("the server answered 4 of 3 commands"))
    );
}

#[test]
fn a_refused_id_is_a_repeat_or_a_late_record() {
    let refused = [REPEATED, REPEATED, OK].concat();
    let (asking, outcome) = exchange(&[&refused]);
    assert_eq!(outcome, None);
    assert_eq!(
        commands(asking.pipeline()),
        [
            r#""XRANGE|hopwise:events|1795654800000-17592186044417|1795654800000-17592186044417""#,
            r#""XRANGE|hopwise:events|1795654800000-35184372088834|1795654800000-35184372088834""#,
            r#""XREVRANGE|hopwise:events|+|-|COUNT|1""#,
        ]
    );
    let entry = "*1\r\n*2\r\n$4\r\n70-9\r\n*2\r\n$2\r\nid\r\n$1\r\n1\r\n";
    // Both are there.
    assert_eq!(
        exchange(&[&refused, &[entry, entry, entry].concat()]).1,
        Some(Outcome::DONE)
    );
    // The second one is not.
    let missing = [entry, "*0\r\n", entry].concat();
    let (appending, outcome) = exchange(&[&refused, &missing]);
    assert_eq!(outcome, None);
    let commands = commands(appending.pipeline());
    assert_eq!(commands.len(), 1);
    assert!(commands[0].starts_with("\"XADD|hopwise:events|MAXLEN|~|1000000|70-10|id|0000000000000002|"));
    assert_eq!(exchange(&[&refused, &missing, OK]).1, Some(Outcome::DONE));
    // Somebody else wrote in between, or there is no memory: later.
    assert_eq!(
        exchange(&[&refused, &missing, REPEATED]).1,
        Some(settled(&[], &[1], REPEATED[1..].trim_end()))
    );
    assert_eq!(
        exchange(&[&refused, &missing, "-OOM x\r\n"]).1,
        Some(settled(&[], &[1], "OOM x"))
    );
    // A server that does not know its last entry, or answers something else.
    assert_eq!(
        exchange(&[&refused, &[entry, "*0\r\n", "*0\r\n"].concat()]).1,
        Some(settled(
            &[],
            &[1],
            "the server does not say which entry is the last one"
        ))
    );
    assert_eq!(
        exchange(&[&refused, &["+x\r\n", "-OOM x\r\n", entry].concat()]).1,
        Some(settled(&[], &[0, 1], "OOM x"))
    );
    // The number of a late record goes over into the ms.
    let last = entry.replace("$4\r\n70-9", "$23\r\n70-18446744073709551615");
    let (appending, _) = exchange(&[&refused, &[entry, "*0\r\n", &last].concat()]);
    assert!(self::commands(appending.pipeline())[0].contains("|71-0|"));
}

#[test]
fn replies_are_read_in_parts_of_any_size() {
    let bytes = b"+OK\r\n-ERR a\nb\r\n:-7\r\n$5\r\na\r\nbc\r\n$-1\r\n*-1\r\n*0\r\n*2\r\n*1\r\n:1\r\n$0\r\n\r\n+PONG\r\n";
    let expected = [
        Reply::Text("OK".to_owned()),
        Reply::Error("ERR a b".to_owned()),
        Reply::Number(-7),
        Reply::Text("a bc".to_owned()),
        Reply::Null,
        Reply::Null,
        Reply::Array(Vec::new()),
        Reply::Array(vec![
            Reply::Array(vec![Reply::Number(1)]),
            Reply::Text(String::new()),
        ]),
        Reply::Text("PONG".to_owned()),
    ];
    for size in 1..bytes.len() {
        let mut reader = Replies::new();
        let mut read = Vec::new();
        for part in bytes.chunks(size) {
            reader.push(part);
            while let Some(reply) = reader.next_reply().unwrap() {
                read.push(reply);
            }
        }
        assert_eq!(read, expected, "{size}");
    }
}

/// The error of these replies; empty if there is none.
fn malformed(bytes: &[u8]) -> &'static str {
    let mut reader = Replies::new();
    reader.push(bytes);
    let error = loop {
        match reader.next_reply() {
            Ok(Some(_)) => {}
            Ok(None) => return "",
            Err(error) => break error,
        }
    };
    // Nothing is read behind it.
    reader.push(b"+OK\r\n");
    assert_eq!(reader.next_reply(), Err(error.clone()));
    let Malformed(reason) = error;
    reason
}

#[test]
fn what_is_no_reply_ends_the_connection() {
    assert_eq!(malformed(b"HTTP/1.1 400\r\n"), "a reply of an unknown kind");
    assert_eq!(malformed(b"\r\n"), "an empty line");
    assert_eq!(malformed(b":x\r\n"), "an invalid number");
    assert_eq!(malformed(b":99999999999999999999\r\n"), "an invalid number");
    assert_eq!(malformed(b"$-2\r\n"), "a length that is negative or too large");
    assert_eq!(
        malformed(b"$9223372036854775807\r\n"),
        "a length that is negative or too large"
    );
    assert_eq!(
        malformed(b"*1048577\r\n"),
        "a length that is negative or too large"
    );
    assert_eq!(malformed(b"$1\r\nabc"), "a string without an end");
    assert_eq!(malformed(&b"*1\r\n".repeat(8)), "");
    assert_eq!(malformed(&b"*1\r\n".repeat(9)), "arrays in too many arrays");
    assert_eq!(
        malformed(&[b"+", &b"x".repeat(70_000)[..]].concat()),
        "a line that is too long"
    );
    assert_eq!(
        malformed(&[b"*1000000\r\n", &b":1\r\n".repeat(300_000)[..]].concat()),
        "a reply with too many values"
    );
    let text = [b"$60000\r\n", &b"x".repeat(60_000)[..], b"\r\n"].concat();
    assert_eq!(
        malformed(&[b"*20\r\n", &text.repeat(20)[..]].concat()),
        "a reply that is too long"
    );
    assert_eq!(malformed(&b":1\r\n".repeat(300_000)), "");
}
