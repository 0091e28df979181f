//! Records that come back from a topic: the same rows as without the detour, and nothing of what only looks like a record.

use export::received::{MAX_MESSAGE, Received};
use export::record::{Record, Stream};
use export::sink::clickhouse::ClickHouse;
use export::sink::kafka::{Compression, Kafka, Options, log};
use export::{Cursor, Position, json, outlet, protobuf};
use testkit::rng::Rng;

use crate::support::*;

fn samples() -> Vec<Record> {
    let mut samples = vec![
        change(3),
        new_flow(4),
        rollup(5),
        flow_rollup(),
        flow(),
        dropped(),
        loss(),
        hop(1),
    ];
    samples.extend([collector::Kind::RuleOn, collector::Kind::RuleOff].map(|kind| rule(6, kind)));
    samples.extend([collector::Kind::RuleOn, collector::Kind::RuleOff].map(|kind| alert(6, kind)));
    let Record::Rollup(mut part) = rollup(5) else {
        unreachable!()
    };
    part.part = 1 << 60;
    samples.push(Record::Rollup(part));
    for one in testkit::records::odd_flows() {
        let Record::Event(mut event) = change(9) else {
            unreachable!()
        };
        event.event.flow = Some(one);
        samples.push(Record::Event(event));
    }
    samples
}

fn written(record: &Record) -> [Vec<u8>; 2] {
    let mut message = Vec::new();
    let mut object = Vec::new();
    protobuf::write(record, COLLECTOR, &mut message);
    json::write(record, COLLECTOR, &mut object);
    [message, object]
}

fn refused(stream: Stream, bytes: &[u8]) -> String {
    Received::read(stream, bytes).unwrap_err().0
}

#[test]
fn what_comes_back_is_the_same_row() {
    let sink = ClickHouse::new("net", "", 30).unwrap();
    for record in samples() {
        let stream = record.stream();
        let row = sink.insert(stream, std::iter::once((&record, COLLECTOR)), "t");
        for bytes in written(&record) {
            let received =
                Received::read(stream, &bytes).unwrap_or_else(|error| panic!("{error:?}: {record:?}"));
            assert_eq!((received.id(), received.ts()), (record.id(), record.ts()));
            assert_eq!(
                sink.insert(stream, std::iter::once(&received), "t"),
                row,
                "{record:?}"
            );
            let mut object = Vec::new();
            json::write_fields(&received, &mut object);
            assert_eq!(object, written(&record)[1]);
        }
    }
}

/// A field, as protobuf has it.
fn bytes_field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut len = bytes.len();
    while len >= 0x80 {
        field.push(len as u8 | 0x80);
        len >>= 7;
    }
    field.push(len as u8);
    [&field, bytes].concat()
}

#[test]
fn what_only_looks_like_a_record_has_a_reason() {
    let [message, object] = written(&change(3));
    let text = String::from_utf8(object).unwrap();
    let cases: [(Vec<u8>, &str); 17] = [
        (vec![], "it is empty"),
        (
            vec![b'x'; MAX_MESSAGE + 1],
            "it has 1048577 bytes; at most 1048576 are read",
        ),
        (b"\xff\xff".to_vec(), "not a Protobuf message, or truncated"),
        (b"{".to_vec(), "not a JSON object: "),
        (b"{}".to_vec(), "not a hopwise record: it has no id"),
        (b"[1]".to_vec(), "not a Protobuf message"),
        (
            [b"{\"a\":".to_vec(), b"[".repeat(10_000)].concat(),
            "not a JSON object: recursion limit",
        ),
        (
            message[..message.len() - 1].to_vec(),
            "not a Protobuf message, or truncated",
        ),
        // A length that goes beyond the end, or around.
        (
            [&message[..], b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"].concat(),
            "or truncated",
        ),
        (
            [&message[..], b"\x1a\xff\xff\xff\xff\x0f"].concat(),
            "or truncated",
        ),
        // A group.
        ([&message[..], b"\x1b\x1c"].concat(), "not a Protobuf message"),
        // The collector as a number; its name without UTF-8, and too long.
        (
            [&message[..], b"\x18\x01"].concat(),
            "its collector is not of the type of that field",
        ),
        (
            [message.clone(), bytes_field(3, b"\xff")].concat(),
            "its collector is not of the type",
        ),
        (
            [message.clone(), bytes_field(3, &[b'x'; 4097])].concat(),
            "its collector is longer than 4096 bytes",
        ),
        // A later version.
        (
            [&message[..], b"\x20\x63"].concat(),
            "it is of version 99 of the schema, and this hopwise knows those up to",
        ),
        (
            text.replace("\"node\":7", "\"node\":-7").into_bytes(),
            "its node is not of the type of that field",
        ),
        (
            text.replace("\"id\":\"0", "\"id\":\"+").into_bytes(),
            "its id is not of the type of that field",
        ),
    ];
    for (bytes, reason) in cases {
        let said = refused(Stream::Events, &bytes);
        assert!(said.contains(reason), "{said:?} in place of {reason:?}");
    }
    // A path of too many nodes, each a byte.
    let long = [
        message.clone(),
        [&[0xb2, 0x01, 0x81, 0x20][..], &[1; 4097]].concat(),
    ]
    .concat();
    assert_eq!(
        refused(Stream::Events, &long),
        "its path has more than 4096 numbers"
    );
    // What is not known here is not in the way.
    let more = [message, bytes_field(9, b"new")].concat();
    assert!(Received::read(Stream::Events, &more).is_ok());
    assert!(Received::read(Stream::Events, text.replacen('{', "{\"new\":[1],", 1).as_bytes()).is_ok());
}

#[test]
fn any_bytes_are_a_record_or_have_a_reason() {
    for (number, record) in samples().into_iter().enumerate() {
        for bytes in written(&record) {
            for end in 0..bytes.len() {
                let _ = Received::read(record.stream(), &bytes[..end]);
            }
            for seed in 0..300 {
                let mut bytes = bytes.clone();
                Rng(seed + 1000 * number as u64).corrupt(&mut bytes);
                if let Err(error) = Received::read(record.stream(), &bytes) {
                    assert!(!error.0.is_empty());
                }
            }
        }
    }
}

/// Record batches as our own producer writes them.
fn chunk(records: &[Record], compression: Compression, first: i64) -> Vec<u8> {
    let sink = Kafka::new(&Options {
        compression,
        ..Options::default()
    })
    .unwrap();
    let mut exchange = batch(COLLECTOR, records, |batch| sink.begin(batch)).unwrap();
    exchange.spread(1);
    let mut bytes = Vec::new();
    exchange.write(0, None, &mut bytes);
    bytes[..8].copy_from_slice(&first.to_be_bytes());
    bytes
}

/// Offset, and length of the value or why it cannot be read.
type Found = (i64, Result<usize, String>);

/// The next offset, and what was found before.
fn read(bytes: &[u8], from: i64, most: usize) -> (i64, Vec<Found>) {
    let mut found = Vec::new();
    let next = log::messages(bytes, from, |message| {
        if found.len() == most {
            return false;
        }
        found.push((
            message.offset,
            message.value.map(<[u8]>::len).map_err(str::to_owned),
        ));
        true
    });
    (next, found)
}

fn read_rows(lens: &[usize], from: i64, to: i64) -> Vec<Found> {
    (from..to)
        .map(|at| (at, Ok(lens[(at - 10) as usize])))
        .collect::<Vec<_>>()
}

fn unread_rows(from: i64, to: i64, reason: &str) -> Vec<Found> {
    (from..to)
        .map(|at| (at, Err(reason.to_owned())))
        .collect::<Vec<_>>()
}

#[test]
fn each_offset_of_a_batch_is_read_or_has_a_reason() {
    let records: Vec<Record> = (0..5).map(change).collect();
    let lens: Vec<usize> = records.iter().map(|record| written(record)[0].len()).collect();
    for compression in [Compression::None, Compression::Lz4] {
        let bytes = chunk(&records, compression, 10);
        assert_eq!(
            read(&bytes, 0, 99),
            (15, read_rows(&lens, 10, 15)),
            "from before it"
        );
        assert_eq!(
            read(&bytes, 12, 99),
            (15, read_rows(&lens, 12, 15)),
            "from the middle"
        );
        assert_eq!(read(&bytes, 10, 2), (12, read_rows(&lens, 10, 12)), "stopped");
        assert_eq!(read(&bytes, 15, 99), (15, vec![]));
        // The last batch is cut off: it comes again.
        let two = [bytes.clone(), chunk(&records, compression, 15)].concat();
        for end in bytes.len()..two.len() {
            assert_eq!(read(&two[..end], 10, 99).0, 15);
        }
        assert_eq!(read(&two, 10, 99).0, 20);
        // Whatever byte is damaged, the offsets that the head names are passed, and no other record is read.
        for at in 61..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert_eq!(
                read(&damaged, 10, 99),
                (
                    15,
                    unread_rows(10, 15, "the checksum of its record batch is wrong")
                )
            );
        }
        for codec in [1, 2, 4] {
            let mut other = bytes.clone();
            other[22] = codec;
            let crc = wire::crc::crc_32c(&other[21..]).to_be_bytes();
            other[17..21].copy_from_slice(&crc);
            let (next, found) = read(&other, 11, 99);
            assert_eq!((next, found.len()), (15, 4));
            assert!(found.iter().all(|(_, value)| {
                value
                    .as_ref()
                    .is_err_and(|reason| reason.contains("only lz4 is read"))
            }));
        }
    }
    // The broker's own: no message, and passed.
    let mut control = chunk(&records, Compression::None, 10);
    control[22] = 0x20;
    let crc = wire::crc::crc_32c(&control[21..]).to_be_bytes();
    control[17..21].copy_from_slice(&crc);
    assert_eq!(read(&control, 10, 99), (15, vec![]));
    // Hostile lengths, with the right checksum: what was read before them counts.
    let bytes = chunk(&records, Compression::None, 10);
    for (place, value) in [(61, 0xff), (61, 1), (65, 0x7f)] {
        let mut hostile = bytes.clone();
        hostile[place] = value;
        let crc = wire::crc::crc_32c(&hostile[21..]).to_be_bytes();
        hostile[17..21].copy_from_slice(&crc);
        let (next, found) = read(&hostile, 10, 99);
        assert_eq!(next, 15);
        assert!(found.iter().any(|(_, value)| value.is_err()), "{found:?}");
    }
}

#[test]
fn any_batch_ends_and_goes_forward() {
    let records: Vec<Record> = (0..5).map(change).collect();
    let bytes = chunk(&records, Compression::Lz4, 10);
    for seed in 0..20_000 {
        let mut bytes = bytes.clone();
        Rng(seed).corrupt(&mut bytes);
        if seed % 2 == 0 && bytes.len() > 21 {
            let crc = wire::crc::crc_32c(&bytes[21..]).to_be_bytes();
            bytes[17..21].copy_from_slice(&crc);
        }
        let mut last = 9;
        let (next, found) = read(&bytes, 10, 1000);
        for (offset, _) in found {
            assert!(offset > last, "seed {seed}");
            last = offset;
        }
        assert!(next > last, "seed {seed}");
    }
}

fn token(file: u64, part: Option<(u64, u64)>) -> String {
    let cursor = Cursor {
        settled: Position { file, row: 100 },
        batch_end: Some(Position { file, row: 150 }),
    };
    outlet::token("hopwise.events.v1", 3, &cursor, part)
}

#[test]
fn a_token_names_its_log_and_borders_and_not_content() {
    assert_eq!(token(0x1f, None), "hopwise.events.v1-3-000000000000001f-100-150");
    assert_eq!(
        token(2, Some((100, 124))),
        "hopwise.events.v1-3-0000000000000002-100-150-part-100-124"
    );
}
