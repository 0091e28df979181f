//! Chunks for partitions of Kafka, and what its answers mean for their records.

use export::Outcome;
use export::record::{Record, Stream};
use export::sink::kafka::protocol::{self, Produced, ProducerId};
use export::sink::kafka::{Compression, Exchange, Format, Kafka, Options, Verdict};

use crate::support::*;

fn begin(records: &[Record], partitions: usize) -> Exchange {
    let options = Options {
        compression: Compression::None,
        ..Options::default()
    };
    let sink = Kafka::new(&options).unwrap();
    let mut exchange = batch(COLLECTOR, records, |batch| sink.begin(batch)).unwrap();
    exchange.spread(partitions);
    exchange
}

fn answer(exchange: &mut Exchange, partition: i32, error: i16) -> Verdict {
    exchange.produced(
        "t",
        &Produced {
            partition,
            error,
            reason: String::new(),
        },
    )
}

/// Records of so many flows.
fn flows(count: u64) -> Vec<Record> {
    (1..=count)
        .map(|id| {
            let Record::Event(mut change) = change(id) else {
                unreachable!()
            };
            change.event.flow = Some(format!("10.0.0.{id}:1>10.0.1.1:2/17").parse().unwrap());
            Record::Event(change)
        })
        .collect()
}

/// A varint, zigzag, and what follows.
fn signed(bytes: &[u8]) -> (i64, &[u8]) {
    let end = bytes.iter().position(|byte| *byte < 0x80).unwrap() + 1;
    let value = bytes[..end]
        .iter()
        .rev()
        .fold(0_u64, |value, byte| value << 7 | u64::from(byte & 0x7f));
    ((value >> 1) as i64 ^ -((value & 1) as i64), &bytes[end..])
}

fn part(bytes: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let (len, rest) = signed(bytes);
    if len < 0 {
        (None, rest)
    } else {
        (Some(&rest[..len as usize]), &rest[len as usize..])
    }
}

/// The number of `len` bytes at `at`, in network order.
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len]
        .iter()
        .fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
}

#[test]
fn a_chunk_is_a_record_batch() {
    let records = [change(3), change(1_000_001)];
    let exchange = begin(&records, 1);
    let mut bytes = Vec::new();
    exchange.write(0, Some((ProducerId { id: 7, epoch: 1 }, 9)), &mut bytes);
    assert_eq!(number(&bytes, 0, 8), 0, "offset");
    assert_eq!(number(&bytes, 8, 4) as usize, bytes.len() - 12, "length");
    assert_eq!(
        (number(&bytes, 12, 4), number(&bytes, 16, 1)),
        (u64::from(u32::MAX), 2),
        "epoch of the leader, version"
    );
    assert_eq!(number(&bytes, 17, 4) as u32, wire::crc::crc_32c(&bytes[21..]));
    assert_eq!(
        (number(&bytes, 21, 2), number(&bytes, 23, 4)),
        (0, 1),
        "attributes, last offset"
    );
    assert_eq!(
        (number(&bytes, 27, 8), number(&bytes, 35, 8)),
        (T / 1_000_000, T / 1_000_000 + 1),
        "times"
    );
    assert_eq!(
        (
            number(&bytes, 43, 8),
            number(&bytes, 51, 2),
            number(&bytes, 53, 4),
            number(&bytes, 57, 4)
        ),
        (7, 1, 9, 2)
    );
    let mut rest = &bytes[61..];
    for (offset, record) in records.iter().enumerate() {
        let (len, after) = signed(rest);
        let (body, next) = after.split_at(len as usize);
        rest = next;
        assert_eq!(body[0], 0);
        let (ms, body) = signed(&body[1..]);
        let (at, body) = signed(body);
        assert_eq!((ms, at), (offset as i64, offset as i64));
        let (key, body) = part(body);
        assert_eq!(key, Some(&b"10.0.0.1:1234>10.0.0.2:80/6"[..]));
        let mut value = Vec::new();
        export::protobuf::write(record, COLLECTOR, &mut value);
        let (found, body) = part(body);
        assert_eq!(found, Some(&value[..]));
        let (count, mut body) = signed(body);
        let mut headers = Vec::new();
        for _ in 0..count {
            let (name, after) = part(body);
            let (value, after) = part(after);
            body = after;
            headers.push([name, value].map(|part| String::from_utf8(part.unwrap().to_vec()).unwrap()));
        }
        let id = format!("{:016x}", record.id());
        assert_eq!(
            headers,
            [
                ["id", &id],
                ["schema", "hopwise.v1.Event"],
                ["collector", COLLECTOR]
            ]
        );
        assert_eq!(body, b"");
    }
    assert_eq!(rest, b"");
}

#[test]
fn a_flow_has_one_partition_and_a_chunk_is_not_too_large() {
    let records: Vec<Record> = [flows(40), flows(40)].concat();
    let exchange = begin(&records, 3);
    assert_eq!(exchange.partitions(), [0, 1, 2]);
    let counts: Vec<usize> = [0, 1, 2].map(|partition| exchange.count(partition)).to_vec();
    assert!(
        counts.iter().sum::<usize>() == 80 && counts.iter().all(|count| count % 2 == 0),
        "{counts:?}"
    );
    let records: Vec<Record> = (0..5000).map(change).collect();
    let mut exchange = begin(&records, 3);
    let partition = exchange.partitions()[0];
    assert_eq!(exchange.partitions(), [partition], "they are of one flow");
    let mut sent = 0;
    while !exchange.partitions().is_empty() {
        let mut bytes = Vec::new();
        exchange.write(partition, None, &mut bytes);
        assert!(bytes.len() <= 900_100, "{}", bytes.len());
        sent += exchange.count(partition);
        assert_eq!(answer(&mut exchange, partition, 0), Verdict::Stored);
    }
    assert_eq!((sent, exchange.outcome()), (5000, Outcome::DONE));
}

#[test]
fn a_record_that_is_refused_is_found_and_the_rest_goes_on() {
    let records: Vec<Record> = (0..8).map(change).collect();
    let mut exchange = begin(&records, 1);
    // The server refuses each chunk with the sixth record.
    let mut at = 0;
    while !exchange.partitions().is_empty() {
        let count = exchange.count(0);
        let has = (at..at + count).contains(&5);
        let verdict = answer(&mut exchange, 0, if has { 10 } else { 0 });
        assert_eq!(verdict, if has { Verdict::NotStored } else { Verdict::Stored });
        at += if has && count > 1 { 0 } else { count };
    }
    let rejected = vec![(5, "MESSAGE_TOO_LARGE".to_owned())];
    assert_eq!(
        exchange.outcome(),
        Outcome::Settled {
            rejected,
            retry: vec![],
            reason: String::new(),
            retry_after: None
        }
    );
}

#[test]
fn nothing_overtakes_what_failed() {
    let records = flows(20);
    let mut exchange = begin(&records, 2);
    let first = exchange.fingerprint(0);
    let waiting = exchange.count(0);
    let stored = exchange.count(1);
    assert_eq!(
        answer(&mut exchange, 1, 46),
        Verdict::Stored,
        "it has this sequence number already"
    );
    assert_eq!(answer(&mut exchange, 0, 19), Verdict::Unknown);
    assert_eq!(exchange.partitions(), [0_i32; 0]);
    let Outcome::Settled { rejected, retry, .. } = exchange.outcome() else {
        panic!()
    };
    assert_eq!((rejected.len(), retry.len(), stored), (0, waiting, 20 - waiting));
    // The same records are the same chunk.
    let records: Vec<Record> = retry.into_iter().map(|index| records[index].clone()).collect();
    assert_eq!(begin(&records, 2).fingerprint(0), first);
    let mut other = begin(&records[1..], 2);
    assert_ne!(other.fingerprint(0), first);
    assert_eq!(answer(&mut other, 0, 6), Verdict::Moved);
    let reason = "NOT_LEADER_OR_FOLLOWER".to_owned();
    assert_eq!(
        other.outcome(),
        Outcome::Failed {
            reason,
            retry_after: None
        }
    );
    let mut other = begin(&records, 1);
    assert_eq!(answer(&mut other, 0, 29), Verdict::NotStored);
    let reason = "TOPIC_AUTHORIZATION_FAILED; allow this user to write to topic t".to_owned();
    assert_eq!(other.outcome(), Outcome::Unauthorised { reason });
    let mut other = begin(&records, 1);
    assert_eq!(answer(&mut other, 0, 45), Verdict::Forgotten);
}

#[test]
fn options_are_checked_and_keys_can_be_left_out() {
    let wrong = Options {
        prefix: "a b".to_owned(),
        ..Options::default()
    };
    assert_eq!(
        Kafka::new(&wrong).unwrap_err(),
        "`prefix` is \"a b\"; use 1 to 200 letters, digits, `.`, `_` and `-`"
    );
    let options = Options {
        format: Format::Json,
        keys: false,
        ..Options::default()
    };
    let sink = Kafka::new(&options).unwrap();
    let records: Vec<Record> = (0..30).map(change).collect();
    let mut exchange = batch(COLLECTOR, &records, |batch| sink.begin(batch)).unwrap();
    exchange.spread(3);
    assert_eq!(exchange.partitions(), [0, 1, 2], "one flow is spread");
    // A topic that is compacted takes no message without a key.
    assert_eq!(sink.settings(Stream::Flows), []);
    let sink = Kafka::new(&Options::default()).unwrap();
    assert_eq!(sink.settings(Stream::Flows), [("cleanup.policy", "compact")]);
}

/// A metadata answer as Kafka 4.1 gave it (version 4), with this second partition.
fn metadata(second: &str) -> Vec<u8> {
    let head = "00000000 00000001 00000001 0003 3a3a31 00002384 ffff 0001 63 00000001 00000001 0000 0001 74 00 00000002";
    let first = "0000 00000000 00000001 00000001 00000001 00000001 00000001";
    let text = format!("{head}{first}{second}");
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect::<Vec<u8>>()
}

#[test]
fn a_topology_is_read_and_one_with_a_gap_is_none() {
    let whole = protocol::read_metadata(&metadata("0005 00000001 ffffffff 00000000 00000000"), "t").unwrap();
    assert_eq!((whole.error, whole.leaders), (0, vec![1, -1]));
    assert_eq!(
        whole.brokers.into_iter().collect::<Vec<_>>(),
        [(1, "[::1]:9092".to_owned())]
    );
    let other = protocol::read_metadata(&metadata("0000 00000001 00000001 00000000 00000000"), "u").unwrap();
    assert_eq!(
        (other.error, other.leaders.len()),
        (3, 0),
        "there is no such topic"
    );
    let gap = protocol::read_metadata(&metadata("0000 00000002 00000001 00000000 00000000"), "t");
    assert_eq!(gap.unwrap_err().0, "partitions that are not numbered from 0 on");
}

/// The numbers of brokers and partitions that are read in an answer with so many.
fn counts(brokers: usize, partitions: usize) -> Result<(usize, usize), protocol::Malformed> {
    let mut body = vec![0; 4];
    body.extend((brokers as u32).to_be_bytes());
    body.extend((0..brokers as u32).flat_map(|node| [&node.to_be_bytes()[..], &[0; 6], &[255; 2]].concat()));
    // Cluster, controller, one topic `t`.
    body.extend([255, 255, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, b't', 0]);
    body.extend((partitions as u32).to_be_bytes());
    body.extend(
        (0..partitions as u32).flat_map(|index| [&[0; 2][..], &index.to_be_bytes(), &[0; 12]].concat()),
    );
    protocol::read_metadata(&body, "t").map(|topology| (topology.brokers.len(), topology.leaders.len()))
}

#[test]
fn an_answer_with_more_brokers_or_partitions_than_are_read_is_none() {
    let many = Err(protocol::Malformed("more items than are read here"));
    assert_eq!(counts(10_000, 100_000), Ok((10_000, 100_000)));
    assert_eq!(counts(10_001, 1), many);
    assert_eq!(counts(1, 100_001), many);
}
