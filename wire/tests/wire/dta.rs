//! DTA reports, read and written: the examples of wire-formats 5.7, and refused reports.

use wire::Refusal;
use wire::dta::{BASE_LEN, Base, EmitError, MergeOp, Operation, Priority, Report};

const KEY: [u8; 13] = [10, 0, 0, 1, 10, 0, 0, 2, 0x04, 0xd2, 0x00, 0x50, 6];
const PATH: [u8; 20] = [0, 0, 0, 11, 0, 0, 0, 12, 0, 0, 0, 13, 0, 0, 0, 14, 0, 0, 0, 15];
const ENTRY: [u8; 18] = [
    0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf, 0xb0,
    0xb1,
];
const COUNTERS: [u8; 32] = [
    0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 8,
];

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn base(immediate: bool, essential: bool, priority: Priority, sequence: u16) -> Base {
    Base {
        immediate,
        essential,
        priority,
        sequence,
        reporter: 7,
    }
}

/// The examples of 5.7.
fn examples() -> [(Vec<u8>, Report<'static>); 5] {
    let (low, address) = (base(false, false, Priority::Low, 0), &[10, 0, 0, 1]);
    let operation = [
        (
            "11600102000000070 20d0014000100000a0000010a00000204d2005006 0000000b0000000c0000000d0000000e0000000f",
            base(false, true, Priority::High, 0x102),
            Operation::KeyWrite {
                copies: 2,
                store: 1,
                key: &KEY,
                data: &PATH,
            },
        ),
        (
            "1290000000000007 0000000500120100 a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1",
            base(true, false, Priority::Medium, 0),
            Operation::Append {
                list: 5,
                entry_len: 18,
                entries: &ENTRY,
            },
        ),
        (
            "1300000000000007 02040001000000000000000000000005 0a000001",
            low,
            Operation::KeyIncrement {
                copies: 2,
                store: 1,
                delta: 5,
                key: address,
            },
        ),
        (
            "1400000000000007 02030d00000100000000000c 0a0000010a00000204d2005006",
            low,
            Operation::Postcard {
                hop: 2,
                path_len: 3,
                store: 1,
                value: 12,
                key: &KEY,
            },
        ),
        (
            "1550000900000007 000400110000000004040002
             0000000100000002000000030000000400000005000000060000000700000008",
            base(false, true, Priority::Medium, 9),
            Operation::SketchMerge {
                sketch: 4,
                epoch: 17,
                first_column: 0,
                depth: 4,
                width: 4,
                op: MergeOp::Sum,
                columns: 2,
                counters: &COUNTERS,
            },
        ),
    ];
    operation.map(|(text, base, operation)| (hex(text), Report { base, operation }))
}

#[test]
fn the_examples_of_section_5_7() {
    for (bytes, report) in examples() {
        assert_eq!(Report::parse(&bytes), Ok(report));
        let mut out = vec![0xa5; bytes.len() + 1];
        assert_eq!(report.emit(&mut out), Ok(bytes.len()));
        assert_eq!((&out[..bytes.len()], out[bytes.len()]), (&bytes[..], 0xa5));
        assert_eq!(
            report.emit(&mut out[..bytes.len() - 1]),
            Err(EmitError::Short(bytes.len()))
        );
    }
}

#[test]
fn immediates_tell_operation_and_place() {
    let values = examples().map(|(_, report)| report.operation.immediate_value());
    assert_eq!(
        values,
        [0x1000_0001, 0x2000_0005, 0x3000_0001, 0x4000_0001, 0x5000_0004]
    );
    let far = Operation::Append {
        list: 0xf234_5678,
        entry_len: 1,
        entries: &[0],
    };
    assert_eq!(far.immediate_value(), 0x2234_5678);
}

#[test]
fn cut_or_prolonged_is_refused() {
    for (bytes, report) in examples() {
        for len in 0..bytes.len() {
            let got = Report::parse(&bytes[..len]);
            let header = bytes.len() - report.operation.len() + header_len(&report);
            let expected = if len < header {
                Refusal::Truncated
            } else {
                Refusal::BadDtaLength
            };
            assert_eq!(got, Err(expected), "{len} of {report:?}");
        }
        let long = [&bytes[..], &[0]].concat();
        assert_eq!(Report::parse(&long), Err(Refusal::BadDtaLength), "{report:?}");
    }
}

/// Bytes of the sub-header, by the table of 5.4.
fn header_len(report: &Report<'_>) -> usize {
    match report.operation {
        Operation::KeyWrite { .. } | Operation::Append { .. } => 8,
        Operation::KeyIncrement { .. } => 16,
        Operation::Postcard { .. } | Operation::SketchMerge { .. } => 12,
    }
}

/// Each case overwrites one byte of example `which`, and has the expected refusal.
#[test]
fn each_exceeded_limit_has_its_own_refusal() {
    let cases: &[(usize, usize, u8, Refusal)] = &[
        (0, 0, 0x01, Refusal::UnknownVersion),
        (0, 0, 0x21, Refusal::UnknownVersion),
        (0, 0, 0x10, Refusal::BadDtaOpcode),
        (0, 0, 0x16, Refusal::BadDtaOpcode),
        (0, 0, 0x1e, Refusal::BadDtaOpcode),
        (0, 0, 0x1f, Refusal::BadDtaOpcode),
        (0, 1, 0x30, Refusal::BadDtaPriority),
        (0, BASE_LEN, 0, Refusal::BadCopies),
        (0, BASE_LEN, 5, Refusal::BadCopies),
        (0, BASE_LEN + 1, 12, Refusal::BadDtaLength),
        (0, BASE_LEN + 3, 21, Refusal::BadDtaLength),
        (1, BASE_LEN + 5, 0, Refusal::BadEntries),
        (1, BASE_LEN + 6, 0, Refusal::BadEntries),
        (1, BASE_LEN + 6, 2, Refusal::BadDtaLength),
        (2, BASE_LEN, 0, Refusal::BadCopies),
        (2, BASE_LEN, 5, Refusal::BadCopies),
        (2, BASE_LEN + 1, 5, Refusal::BadDtaLength),
        (3, BASE_LEN, 0, Refusal::BadHop),
        (3, BASE_LEN, 4, Refusal::BadHop),
        (3, BASE_LEN + 2, 12, Refusal::BadDtaLength),
        (4, BASE_LEN + 8, 0, Refusal::BadSketch),
        (4, BASE_LEN + 8, 17, Refusal::BadSketch),
        (4, BASE_LEN + 8, 3, Refusal::BadDtaLength),
        (4, BASE_LEN + 9, 2, Refusal::BadSketch),
        (4, BASE_LEN + 9, 8, Refusal::BadDtaLength),
        (4, BASE_LEN + 10, 3, Refusal::BadSketch),
        (4, BASE_LEN + 10, 4, Refusal::BadMergeOp),
        (4, BASE_LEN + 11, 0, Refusal::BadSketch),
        (4, BASE_LEN + 11, 3, Refusal::BadDtaLength),
    ];
    let examples = examples();
    for (which, at, value, refusal) in cases {
        let mut bytes = examples[*which].0.clone();
        bytes[*at] = *value;
        assert_eq!(
            Report::parse(&bytes),
            Err(*refusal),
            "byte {at} of example {which} is {value:#x}"
        );
    }
    let mut all_ones = examples[3].0.clone();
    all_ones[BASE_LEN + 8..BASE_LEN + 12].fill(0xff);
    assert_eq!(Report::parse(&all_ones), Err(Refusal::BadHopValue));
}

#[test]
fn lengths_at_their_limits() {
    let base = base(true, true, Priority::High, u16::MAX);
    let bytes = [0x5a; 1100];
    let data = |key, data| Operation::KeyWrite {
        copies: 4,
        store: u16::MAX,
        key: &bytes[..key],
        data: &bytes[..data],
    };
    let entries = |len: u16, all: usize| Operation::Append {
        list: u32::MAX,
        entry_len: len,
        entries: &bytes[..all],
    };
    let increment = |key| Operation::KeyIncrement {
        copies: 1,
        store: 0,
        delta: u64::MAX,
        key: &bytes[..key],
    };
    let postcard = |key, path_len, value| Operation::Postcard {
        hop: 255,
        path_len,
        store: 0,
        value,
        key: &bytes[..key],
    };
    for good in [
        data(1, 1),
        data(64, 1024),
        entries(1, 255),
        entries(4, 1020),
        entries(1100, 1100),
        increment(1),
        increment(64),
        postcard(64, 0, u32::MAX - 1),
        postcard(1, 255, 0),
    ] {
        let report = Report {
            base,
            operation: good,
        };
        let mut out = [0xa5; 1200];
        let len = report.emit(&mut out).expect("within the limits");
        assert_eq!(Report::parse(&out[..len]), Ok(report));
    }
    for (bad, refusal) in [
        (data(0, 1), Refusal::BadKeyLength),
        (data(65, 1), Refusal::BadKeyLength),
        (data(1, 0), Refusal::BadDataLength),
        (data(1, 1025), Refusal::BadDataLength),
        (entries(0, 1), Refusal::BadEntries),
        (entries(4, 0), Refusal::BadEntries),
        (entries(4, 6), Refusal::BadDtaLength),
        (entries(1, 256), Refusal::BadDtaLength),
        (increment(0), Refusal::BadKeyLength),
        (increment(65), Refusal::BadKeyLength),
        (postcard(0, 0, 1), Refusal::BadKeyLength),
        (postcard(65, 0, 1), Refusal::BadKeyLength),
        (postcard(1, 254, 1), Refusal::BadHop),
        (postcard(1, 0, u32::MAX), Refusal::BadHopValue),
    ] {
        let report = Report { base, operation: bad };
        assert_eq!(
            report.emit(&mut [0; 2000]),
            Err(EmitError::Invalid(refusal)),
            "{bad:?}"
        );
    }
}

#[test]
fn reserved_bits_and_untracked_sequences_say_nothing() {
    let (bytes, report) = &examples()[2];
    let mut odd = bytes.clone();
    odd[1] |= 0x0f;
    odd[2..4].copy_from_slice(&[0x12, 0x34]);
    odd[12..16].fill(0xff);
    assert_eq!(Report::parse(&odd), Ok(*report));
    let untracked = Report {
        base: Base {
            sequence: 9,
            ..report.base
        },
        ..*report
    };
    let mut out = vec![0; bytes.len()];
    assert_eq!((untracked.emit(&mut out), &out), (Ok(bytes.len()), bytes));
}
