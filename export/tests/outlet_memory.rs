//! What an outlet holds in memory, by an allocator that counts: pages are no larger than they say, nor are the requests that they become;
//! and record batches are read without being in memory as a whole.

#![allow(clippy::unwrap_used, reason = "a test panics")]

#[allow(dead_code, reason = "shared with other test programs")]
mod support;

use std::io::Write as _;

use export::outlet::{Item, PageRequest, Reading, Step};
use export::received::Received;
use export::record::{Record, Stream};
use export::sink::clickhouse::ClickHouse;
use export::sink::kafka::log;
use export::sink::kafka::protocol::fetch::Fetched;
use export::{Page, Position, protobuf};
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use std::sync::Arc;
use testkit::allocations::{Counting, bytes_of};

use crate::support::*;

#[global_allocator]
static COUNTING: Counting = Counting;

/// The bytes that the system's allocator adds to the two pieces of a message.
const ADDED: i64 = 2 * 16;

fn signed(value: i64, out: &mut Vec<u8>) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest > 0x7f {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Messages as records of a batch.
fn records(values: &[Vec<u8>]) -> Vec<u8> {
    let mut records = Vec::new();
    for (delta, value) in values.iter().enumerate() {
        let mut record = vec![0];
        [0, delta as i64, -1, value.len() as i64]
            .iter()
            .for_each(|number| signed(*number, &mut record));
        record.extend(value);
        signed(0, &mut record);
        signed(record.len() as i64, &mut records);
        records.extend(&record);
    }
    records
}

/// So many records as a batch; `codec` 3: compressed by LZ4.
fn record_batch(count: usize, codec: u8, records: &[u8]) -> Vec<u8> {
    let mut checked = vec![0, codec];
    checked.extend((count as i32 - 1).to_be_bytes());
    checked.extend([0; 16]);
    checked.extend([0xff; 14]);
    checked.extend((count as i32).to_be_bytes());
    checked.extend(records);
    let mut batch = 0_u64.to_be_bytes().to_vec();
    batch.extend((checked.len() as u32 + 9).to_be_bytes());
    batch.extend([0, 0, 0, 0, 2]);
    batch.extend(wire::crc::crc_32c(&checked).to_be_bytes());
    batch.extend(&checked);
    batch
}

fn page(stream: Stream, batch: &[u8], count: usize) -> Page<Arc<Item>> {
    let wanted = PageRequest {
        from: Position::default(),
        until: None,
        records: count,
        bytes: 1 << 30,
        random: 0,
    };
    let (mut reading, _) = Reading::new(stream, wanted);
    let fetched = Fetched {
        error: 0,
        end: count as i64 + 1,
        batches: batch,
    };
    let Step::Page { page, .. } = reading.fetched(&fetched) else {
        panic!("no page")
    };
    assert_eq!(page.records.len(), count);
    page
}

/// The page and its request have so many bytes as it says, at most. Returns how many it says of a record.
fn counts(stream: Stream, values: &[Vec<u8>], about: &str) -> usize {
    let (said, held, peak) = measured(stream, values);
    assert!(held <= said, "{about}: {held} bytes, and it says {said}");
    assert!(
        peak <= said,
        "{about}: a request of {peak} bytes, of a page of {said}"
    );
    said as usize / values.len()
}

/// Returns the size of a page: its own account, its bytes, and the most bytes of its request.
fn measured(stream: Stream, values: &[Vec<u8>]) -> (i64, i64, i64) {
    let batch = record_batch(values.len(), 0, &records(values));
    let (page, held, _) = bytes_of(|| page(stream, &batch, values.len()));
    let held = held + ADDED * values.len() as i64;
    let sink = ClickHouse::new("net", "", 30).unwrap();
    let (_, _, peak) = bytes_of(|| {
        let items: Vec<Arc<Item>> = page.records.clone();
        let rows: Vec<&Received> = items
            .iter()
            .filter_map(|item| item.content.as_ref().ok())
            .collect();
        sink.insert(stream, rows.into_iter(), "token")
    });
    (page.bytes as i64, held, peak)
}

fn written(record: &Record, collector: &str) -> Vec<u8> {
    let mut message = Vec::new();
    protobuf::write(record, collector, &mut message);
    message
}

#[test]
fn a_page_and_its_request_are_no_larger_than_it_says() {
    let samples = [
        change(3),
        new_flow(4),
        rollup(5),
        flow_rollup(),
        flow(),
        dropped(),
        loss(),
        hop(1),
        alert(6, collector::Kind::RuleOn),
    ];
    for record in samples {
        let said = counts(
            record.stream(),
            &vec![written(&record, "collector-17.example.org"); 10_000],
            &format!("{record:?}"),
        );
        assert!(said < 1024, "{said}: more is counted than needed: {record:?}");
    }
    // Only what each record has.
    let bare = b"\x09\x01\0\0\0\0\0\0\0\x11\0\0\x6c\x8e\xd4\x6e\xea\x18\x1a\x01c\x20\x01";
    for stream in Stream::ALL {
        counts(stream, &vec![bare.to_vec(); 10_000], stream.name());
    }
    // Each has another name, which a request has several times while it is made; the list of all names may be longer than it is full.
    for (rows, len) in [(1_000, 4000), (10_000, 60)] {
        let values: Vec<Vec<u8>> = (0..rows)
            .map(|n| written(&change(3), &format!("{n:0>len$}")))
            .collect();
        let (said, held, peak) = measured(Stream::Events, &values);
        assert!(held <= said && peak <= said * 3 / 2, "{held} {peak} {said}");
    }
    counts(Stream::Events, &vec![b"this is none".to_vec(); 10_000], "none");
    counts(
        Stream::Events,
        &vec![vec![b'x'; 100_000]; 100],
        "long ones that are none",
    );
}

/// Reads all messages of a batch: how many have a value, what is said of the others, and the most bytes that it took.
fn read(batch: &[u8]) -> (usize, Vec<String>, i64) {
    let mut good = 0;
    let mut bad = Vec::with_capacity(1000);
    let (_, _, peak) = bytes_of(|| {
        log::messages(batch, 0, |message| {
            match message.value {
                Ok(_) => good += 1,
                Err(reason) => bad.push(reason.to_owned()),
            }
            true
        })
    });
    (good, bad, peak)
}

fn lz4(blocks: BlockSize, mode: BlockMode, bytes: &[u8]) -> Vec<u8> {
    let info = FrameInfo::new().block_size(blocks).block_mode(mode);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_compressed_batch_is_never_in_memory_as_a_whole() {
    let values: Vec<Vec<u8>> = (0..60).map(|n| vec![n; 1 << 20]).collect();
    let whole = records(&values);
    for (blocks, mode) in [
        (BlockSize::Max4MB, BlockMode::Linked),
        (BlockSize::Max4MB, BlockMode::Independent),
        (BlockSize::Max64KB, BlockMode::Linked),
    ] {
        let batch = record_batch(values.len(), 3, &lz4(blocks, mode, &whole));
        let (good, bad, peak) = read(&batch);
        assert_eq!((good, bad), (60, vec![]));
        assert!(peak <= log::UNPACKING as i64, "{peak} bytes for {blocks:?}");
    }
    // A record that is too long is passed, and those after it are read.
    let long = records(&[vec![1; 10], vec![2; 30 << 20], vec![3; 10]]);
    let (good, bad, peak) = read(&record_batch(
        3,
        3,
        &lz4(BlockSize::Max64KB, BlockMode::Independent, &long),
    ));
    assert_eq!(
        (good, bad.as_slice()),
        (
            2,
            &["its record has 31457289 bytes; at most 2097152 are read".to_owned()][..]
        )
    );
    assert!(peak <= 4 << 20, "{peak}");
    // More than is read of a batch: what was before it is read.
    let values = vec![vec![7; 1 << 20]; 70];
    let (good, bad, _) = read(&record_batch(
        70,
        3,
        &lz4(BlockSize::Max4MB, BlockMode::Linked, &records(&values)),
    ));
    assert_eq!((good, bad.len()), (63, 7));
    assert_eq!(
        bad[0],
        "its record batch has more than 64 MiB without compression"
    );
    let mut old = lz4(BlockSize::Max64KB, BlockMode::Independent, &records(&values[..2]));
    old[..4].copy_from_slice(&0x184c_2102_u32.to_le_bytes());
    assert_eq!(
        read(&record_batch(2, 3, &old)).1,
        vec!["its record batch cannot be decompressed"; 2]
    );
}
