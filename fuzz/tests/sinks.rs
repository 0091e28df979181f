//! Runs the fuzz bodies of what servers answer to sinks over answers of real servers, and over seeded mutations of them.

use std::panic::catch_unwind;

use testkit::rng::Rng;

/// Mutations of each body, the same on every machine; `HOPWISE_FUZZ_SECONDS` is for the bodies of packets.
const MUTATIONS: u64 = 50_000;

fn fuzzed(body: fn(&[u8]), seed: u64, mutations: u64, answers: &[Vec<u8>]) {
    let mut rng = Rng(seed);
    let run = |bytes: &[u8], what: &str| {
        if catch_unwind(|| body(bytes)).is_err() {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            panic!("{what}\nhex: {hex}");
        }
    };
    answers
        .iter()
        .for_each(|answer| run(answer, "an answer as it is"));
    for count in 0..mutations {
        let mut bytes = answers[rng.below(answers.len())].clone();
        rng.corrupt(&mut bytes);
        run(&bytes, &format!("mutation {count} under seed {seed:#x}"));
    }
}

/// Bytes from hexadecimal digits; spaces are ignored.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// Sink and status, as the body reads them.
const INFLUXDB: u8 = 0;
const OPENSEARCH: u8 = 1;
const REMOTE_WRITE: u8 = 2;
const ALERTMANAGER: u8 = 3;
const CLICKHOUSE: u8 = 4;
const OTLP: u8 = 5;
const OK: u8 = 0;
const BAD_REQUEST: u8 = 2;
const NOT_FOUND: u8 = 3;

#[test]
fn http() {
    let answers: [(u8, u8, &str); 9] = [
        // Two records refused, and why.
        (OTLP, OK, "\u{a}\u{7}\u{8}\u{2}\u{12}\u{3}old"),
        (
            OPENSEARCH,
            OK,
            r#"{"took":1,"errors":true,"items":[{"create":{"_id":"a","status":201}},{"create":{"status":409,"error":{"type":"version_conflict_engine_exception","reason":"[a]: version conflict"}}},{"create":{"status":429,"error":{"type":"es_rejected_execution_exception","reason":"full"}}}]}"#,
        ),
        (
            OPENSEARCH,
            OK,
            r#"{"errors":true,"items":[{"index":{"status":400,"error":{"type":"mapper_parsing_exception","reason":"failed to parse field [node]","caused_by":{"type":"x","reason":"y"}}}},{"create":{"status":201}},{"create":{"status":201}}]}"#,
        ),
        (
            INFLUXDB,
            BAD_REQUEST,
            r#"{"error":"partial write: field type conflict: input field \"value\" on measurement \"hopwise_events\" is type float, already exists as type integer dropped=1"}"#,
        ),
        (
            INFLUXDB,
            BAD_REQUEST,
            r#"{"code":"invalid","message":"partial write of line protocol occurred","data":[{"error_message":"invalid column","line_number":2,"original_line":"x"}]}"#,
        ),
        (
            INFLUXDB,
            NOT_FOUND,
            r#"{"error":"database not found: \"hopwise\""}"#,
        ),
        (REMOTE_WRITE, BAD_REQUEST, "out of order sample"),
        (
            ALERTMANAGER,
            BAD_REQUEST,
            r#"{"code":601,"message":"invalid label set: \"a-b\" is not a valid label name"}"#,
        ),
        (
            CLICKHOUSE,
            NOT_FOUND,
            "Code: 60. DB::Exception: Table hopwise.events does not exist. (UNKNOWN_TABLE) (version 26.9)",
        ),
    ];
    let answers = answers.map(|(sink, status, body)| [&[sink, status][..], body.as_bytes()].concat());
    fuzzed(fuzz::sink_http, 20, MUTATIONS, &answers);
}

#[test]
fn redis() {
    let answers = [
        "+PONG\r\n",
        "$16\r\n1795654800000-17\r\n$16\r\n1795654800000-18\r\n",
        "-ERR The ID specified in XADD is equal or smaller than the target stream top item\r\n$16\r\n1795654800000-18\r\n*0\r\n*1\r\n*2\r\n$16\r\n1795654800000-19\r\n*2\r\n$2\r\nid\r\n$2\r\n07\r\n$16\r\n1795654800000-20\r\n",
        "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n-OOM command not allowed\r\n$1\r\n1\r\n$1\r\n1\r\n",
        "-NOAUTH Authentication required.\r\n-NOAUTH Authentication required.\r\n",
        ":1\r\n:-1\r\n$-1\r\n*-1\r\n*3\r\n:1\r\n*1\r\n+a\r\n$0\r\n\r\n",
    ];
    fuzzed(
        fuzz::sink_redis,
        21,
        MUTATIONS,
        &answers.map(|text| text.as_bytes().to_vec()),
    );
}

/// The number that an answer repeats, and its body in hexadecimal, after two bytes that choose request and version.
#[test]
fn kafka() {
    let answers = [
        // ApiVersions: Produce 0 to 12, Metadata 0 to 13.
        "0000 00000001 0000 00000002 0000 0000 000c 0003 0000 000d",
        // Metadata: broker 1 at a:9092, topic t with partitions 0 and 1.
        "0100 00000002 00000000 00000001 00000001 0001 61 00002384 ffff 0001 63 00000001 00000001 0000 0001 74 00 00000002 \
         0000 00000000 00000001 00000001 00000001 00000001 00000001 0000 00000001 00000001 00000001 00000001 00000001 00000001",
        // SaslHandshake: not this one, but PLAIN.
        "0200 00000003 0021 00000001 0005 504c41494e",
        // SaslAuthenticate: refused.
        "0300 00000004 003a 0002 6e6f 00000000",
        "0300 00000004 0000 ffff 00000002 763d",
        // InitProducerId, CreateTopics.
        "0400 00000005 00000000 0000 0000000000000007 0000",
        "0500 00000006 00000000 00000001 0001 74 0024 0002 6e6f",
        // Produce, version 8: partition 0 is stored, 1 has a record that is invalid.
        "0605 00000007 00000001 0001 74 00000002 00000000 0000 0000000000000005 ffffffffffffffff 0000000000000000 00000000 ffff \
         00000001 0057 ffffffffffffffff ffffffffffffffff ffffffffffffffff 00000001 00000000 0002 6e6f ffff 00000000",
        // Produce, version 3: moved, too large.
        "0600 00000007 00000001 0001 74 00000002 00000000 0006 ffffffffffffffff ffffffffffffffff \
         00000001 000a ffffffffffffffff ffffffffffffffff 00000000",
        // Fetch, version 11, and version 4: a record batch of one message at offset 3, of three bytes.
        "0707 00000008 00000000 0000 00000000 00000001 0001 74 00000001 00000000 0000 0000000000000004 0000000000000004 \
         0000000000000000 00000000 ffffffff 00000047 0000000000000003 0000003b 00000000 02 00000000 0000 00000000 \
         0000000000000000 0000000000000000 ffffffffffffffff ffff ffffffff 00000001 12 00 00 00 01 06 616263 00",
        "0700 00000009 00000000 00000001 0001 74 00000001 00000000 0000 0000000000000004 0000000000000004 ffffffff \
         00000047 0000000000000003 0000003b 00000000 02 00000000 0000 00000000 0000000000000000 0000000000000000 \
         ffffffffffffffff ffff ffffffff 00000001 12 00 00 00 01 06 616263 00",
        // ListOffsets: the partition begins at 3.
        "0800 0000000a 00000001 0001 74 00000001 00000000 0000 ffffffffffffffff 0000000000000003",
        // A message: a change, as protobuf.
        "0900 0000000b 09 0300000000000000 11 0300000000000000 1a 02 6331 20 01 52 03 6e6577 62 0c 0a 04 0a000001 12 04 0a000002",
    ];
    fuzzed(fuzz::sink_kafka, 22, MUTATIONS, &answers.map(hex));
}

#[test]
fn scram() {
    let answers = [
        "r=abcdef,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "r=abcdef,s=W22Z,i=4095",
        "e=unknown-user",
        "v=6rri",
    ];
    fuzzed(
        fuzz::sink_scram,
        23,
        2_000,
        &answers.map(|text| text.as_bytes().to_vec()),
    );
}
