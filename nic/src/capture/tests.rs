use std::io::{Read, Write};
use std::path::PathBuf;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// Owned form of a frame, to compare.
type Seen = (u64, Vec<u8>, LinkType, u32, bool);

/// All frames and, if any, the error; the same one by one and in bursts.
fn read(file: &[u8]) -> (Vec<Seen>, Option<Error>) {
    let (seen, error) = read_singly(file);
    let (in_bursts, error_in_bursts) = read_in_bursts(file);
    assert_eq!(in_bursts, seen);
    assert_eq!(format!("{error_in_bursts:?}"), format!("{error:?}"));
    (seen, error)
}

fn seen(frame: Frame<'_>) -> Seen {
    (
        frame.ts,
        frame.data.to_vec(),
        frame.link,
        frame.length,
        frame.truncated,
    )
}

fn read_in_bursts(file: &[u8]) -> (Vec<Seen>, Option<Error>) {
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut frames = Vec::new();
    loop {
        match reader.burst() {
            None => return (frames, None),
            Some(Ok(burst)) => {
                assert!((1..=BURST).contains(&burst.len()));
                frames.extend(burst.map(seen));
            }
            Some(Err(error)) => {
                assert!(reader.burst().is_none());
                return (frames, Some(error));
            }
        }
    }
}

fn read_singly(file: &[u8]) -> (Vec<Seen>, Option<Error>) {
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut frames = Vec::new();
    loop {
        match reader.next() {
            None => return (frames, None),
            Some(Ok(frame)) => frames.push(seen(frame)),
            Some(Err(error)) => {
                assert!(reader.next().is_none());
                return (frames, Some(error));
            }
        }
    }
}

fn whole(file: &[u8]) -> Vec<Seen> {
    let (seen, error) = read(file);
    assert!(error.is_none(), "{error:?}");
    seen
}

fn refused(file: &[u8]) -> String {
    read(file).1.expect("the file is damaged").to_string()
}

/// Writes numbers in one byte order.
struct Bytes(Order, Vec<u8>);

impl Bytes {
    fn new(order: Order) -> Self {
        Self(order, Vec::new())
    }

    fn u16(self, value: u16) -> Self {
        let bytes = if self.0 == Order::Little {
            value.to_le_bytes()
        } else {
            value.to_be_bytes()
        };
        self.raw(&bytes)
    }

    fn u32(self, value: u32) -> Self {
        let bytes = if self.0 == Order::Little {
            value.to_le_bytes()
        } else {
            value.to_be_bytes()
        };
        self.raw(&bytes)
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.1.extend(bytes);
        self
    }

    fn pad(mut self) -> Self {
        self.1.resize(self.1.len().next_multiple_of(4), 0);
        self
    }

    /// A pcapng block with this body.
    fn block(self, kind: u32) -> Vec<u8> {
        let body = self.pad();
        let len = 12 + body.1.len() as u32;
        Self::new(body.0).u32(kind).u32(len).raw(&body.1).u32(len).1
    }
}

/// A file header, and two packets: at 3 s + 7 units, and at 4 s, cut from 9 bytes to 2. Each piece with the number of frames
/// up to its end.
fn pcap_pieces(order: Order, magic: u32) -> Vec<(Vec<u8>, usize)> {
    let header = Bytes::new(order)
        .u32(magic)
        .u16(2)
        .u16(4)
        .u32(0)
        .u32(0)
        .u32(65535)
        .u32(1);
    let first = Bytes::new(order).u32(3).u32(7).u32(4).u32(4).raw(b"abcd");
    let second = Bytes::new(order).u32(4).u32(0).u32(2).u32(9).raw(b"ef");
    vec![(header.1, 0), (first.1, 1), (second.1, 2)]
}

fn pcap(order: Order, magic: u32) -> Vec<u8> {
    joined(&pcap_pieces(order, magic))
}

fn joined(pieces: &[(Vec<u8>, usize)]) -> Vec<u8> {
    pieces.iter().flat_map(|(piece, _)| piece.clone()).collect()
}

fn section(order: Order) -> Vec<u8> {
    Bytes::new(order)
        .u32(0x1a2b_3c4d)
        .u16(1)
        .u16(0)
        .raw(&[0xff; 8])
        .block(0x0a0d_0d0a)
}

/// An interface with options, given as code and value.
fn interface(order: Order, link: u16, snap_len: u32, options: &[(u16, &[u8])]) -> Vec<u8> {
    let body = Bytes::new(order).u16(link).u16(0).u32(snap_len);
    let with =
        |body: Bytes, (code, value): &(u16, &[u8])| body.u16(*code).u16(value.len() as u16).raw(value).pad();
    options.iter().fold(body, with).block(1)
}

/// The body of an enhanced packet block.
fn enhanced(order: Order, interface: u32, stamp: u64, data: &[u8], length: u32) -> Bytes {
    let head = Bytes::new(order)
        .u32(interface)
        .u32((stamp >> 32) as u32)
        .u32(stamp as u32);
    head.u32(data.len() as u32).u32(length).raw(data)
}

/// Every kind of block, two sections of different byte order; with the number of frames up to each block's end.
fn pcapng_pieces(order: Order) -> Vec<(Vec<u8>, usize)> {
    let (other, offset) = match order {
        Order::Little => (Order::Big, (-2i64).to_le_bytes()),
        Order::Big => (Order::Little, (-2i64).to_be_bytes()),
    };
    let old = Bytes::new(order)
        .u16(1)
        .u16(9)
        .u32(0)
        .u32(12)
        .u32(3)
        .u32(3)
        .raw(b"old");
    let commented = enhanced(order, 0, 5_000_001, b"abcd", 4)
        .u16(1)
        .u16(2)
        .raw(b"hi")
        .pad()
        .u32(0);
    vec![
        (section(order), 0),
        (interface(order, 1, 4, &[(2, b"eth0"), (0, b"")]), 0),
        (interface(order, 113, 0, &[(9, &[9]), (14, &offset)]), 0),
        (commented.block(6), 1),
        (enhanced(order, 1, 5 * SECOND + 1, b"x", 9).block(6), 2),
        (Bytes(order, vec![1, 2, 3]).block(0x0bad), 2),
        (Bytes::new(order).u32(6).raw(b"simp").block(3), 3),
        (old.block(2), 4),
        (section(other), 4),
        (interface(other, 276, 0, &[(9, &[0x80 | 10])]), 4),
        (enhanced(other, 0, 1536, b"", 0).block(6), 5),
    ]
}

fn pcapng(order: Order) -> Vec<u8> {
    joined(&pcapng_pieces(order))
}

fn pcapng_frames() -> Vec<Seen> {
    vec![
        (5_000_001_000, b"abcd".to_vec(), LinkType::Ethernet, 4, false),
        (3 * SECOND + 1, b"x".to_vec(), LinkType::LinuxSll, 9, true),
        (0, b"simp".to_vec(), LinkType::Ethernet, 6, true),
        // 12 ns, minus two seconds: not before the epoch.
        (0, b"old".to_vec(), LinkType::LinuxSll, 3, false),
        (1_500_000_000, vec![], LinkType::LinuxSll2, 0, false),
    ]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn pcap_of_both_orders_and_both_units() {
    for order in [Order::Little, Order::Big] {
        for (magic, unit) in [(0xa1b2_c3d4, 1_000), (0xa1b2_3c4d, 1)] {
            let first = (
                3 * SECOND + 7 * unit,
                b"abcd".to_vec(),
                LinkType::Ethernet,
                4,
                false,
            );
            let second = (4 * SECOND, b"ef".to_vec(), LinkType::Ethernet, 9, true);
            assert_eq!(whole(&pcap(order, magic)), [first, second], "{order:?} {magic:x}");
        }
    }
}

#[test]
fn pcapng_of_both_orders_with_every_kind_of_block() {
    assert_eq!(whole(&pcapng(Order::Little)), pcapng_frames());
    assert_eq!(whole(&pcapng(Order::Big)), pcapng_frames());
}

#[test]
fn gzip_of_either_also_in_several_members() {
    let file = pcapng(Order::Little);
    assert_eq!(whole(&gzip(&file)), pcapng_frames());
    let (a, b) = file.split_at(file.len() / 2);
    assert_eq!(whole(&[gzip(a), gzip(b)].concat()), pcapng_frames());
    assert_eq!(whole(&gzip(&pcap(Order::Big, 0xa1b2_c3d4))).len(), 2);
}

/// A file cut anywhere gives the frames before the cut, and, unless the cut is between two pieces, an error with the offset
/// where the last piece begins.
fn cut_everywhere(pieces: &[(Vec<u8>, usize)]) {
    let file = joined(pieces);
    let frames = whole(&file);
    let (mut begins, mut frames_before) = (0, 0);
    for (piece, frames_after) in pieces {
        for cut in begins..begins + piece.len() {
            let (seen, error) = read(&file[..cut]);
            assert_eq!(seen, frames[..frames_before], "cut at {cut}");
            match error {
                None => assert!(cut == begins && cut > 0, "cut at {cut} is not between pieces"),
                Some(Error {
                    offset,
                    fault: Fault::Cut,
                }) => {
                    assert_eq!(offset, begins as u64, "cut at {cut}")
                }
                Some(error) => panic!("cut at {cut}: {error:?}"),
            }
        }
        (begins, frames_before) = (begins + piece.len(), *frames_after);
    }
}

#[test]
fn cut_at_every_byte() {
    for order in [Order::Little, Order::Big] {
        cut_everywhere(&pcap_pieces(order, 0xa1b2_c3d4));
        cut_everywhere(&pcapng_pieces(order));
    }
    let text = refused(&pcap(Order::Big, 0xa1b2_c3d4)[..45]);
    assert_eq!(
        text,
        "the file ends in the middle of a packet that begins at byte 44: it was cut"
    );
    assert_eq!(refused(b""), "the file is too short for a capture");
    let packed = gzip(&pcap(Order::Little, 0xa1b2_c3d4));
    for end in 0..packed.len() {
        let (seen, error) = read(&packed[..end]);
        assert!(
            error.is_some_and(|error| matches!(error.fault, Fault::Cut)) && seen.len() <= 2,
            "cut at {end}"
        );
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, from start to end")]
fn corruption_is_reported_with_its_position() {
    let little = |bytes: &[u8]| Bytes(Order::Little, bytes.to_vec());
    let header = pcap_pieces(Order::Little, 0xa1b2_c3d4)[0].0.clone();
    let packet = |len: u32| little(&header).u32(0).u32(0).u32(len).u32(len).1;
    assert_eq!(
        refused(&packet(262_145)),
        "at byte 24: a packet has an implausible length of 262145 bytes (at most 262144): the file is damaged"
    );
    assert!(refused(&packet(262_144)).contains("in the middle of a packet that begins at byte 24"));
    assert_eq!(
        refused(b"GET / HTTP/1.1"),
        "not a capture (it begins with 47 45 54 20): give a pcap or pcapng file, gzipped or not"
    );
    let section = section(Order::Little);
    let after = |block: Vec<u8>| refused(&[&section[..], &block].concat());
    let described = |block: Vec<u8>| {
        let described = [&section[..], &interface(Order::Little, 1, 0, &[])].concat();
        refused(&[described, block].concat())
    };
    let packet_of = |interface, len: u32| {
        let body = little(&[])
            .u32(interface)
            .u32(0)
            .u32(0)
            .u32(len)
            .u32(len)
            .raw(b"1234");
        body.block(6)
    };
    let cases = [
        (
            after(packet_of(0, 4)),
            28,
            "a packet is of an interface that was not described",
        ),
        (
            described(packet_of(1, 4)),
            48,
            "a packet is of an interface that was not described",
        ),
        (
            described(packet_of(0, 5)),
            48,
            "a packet is longer than its block",
        ),
        (
            described(little(b"1234").block(6)),
            48,
            "a packet's block is too short",
        ),
        (
            described(little(b"1234").block(2)),
            48,
            "a packet's block is too short",
        ),
        (
            described(little(&[]).block(3)),
            48,
            "a packet's block is too short",
        ),
        (
            described(little(&[]).u32(9).raw(b"1234").block(3)),
            48,
            "a packet is longer than its block",
        ),
        (
            after(little(b"1234").block(1)),
            28,
            "the description of an interface is too short",
        ),
        (
            after(interface(Order::Little, 1, 0, &[(9, &[200])])),
            28,
            "the timestamp resolution is implausible",
        ),
        (
            after(little(&[]).u32(1).u32(0).u16(2).u16(5).u32(0).block(1)),
            28,
            "an option is longer than its block",
        ),
        (
            after(little(b"1234").block(0x0a0d_0d0a)),
            28,
            "a section's byte order is unknown",
        ),
        (
            after(
                little(&[])
                    .u32(0x1a2b_3c4d)
                    .u16(2)
                    .u16(0)
                    .raw(&[0; 8])
                    .block(0x0a0d_0d0a),
            ),
            28,
            "the version of pcapng is not 1",
        ),
        (
            after(little(&[]).u32(0x1a2b_3c4d).u16(1).u16(0).block(0x0a0d_0d0a)),
            28,
            "a section header is too short",
        ),
        (
            after(little(&[]).u32(9).u32(13).raw(&[0; 8]).1),
            28,
            "a block's length is not possible",
        ),
        (
            after(little(&[]).u32(9).u32(8).raw(&[0; 8]).1),
            28,
            "a block's length is not possible",
        ),
        (
            after(little(&[]).u32(9).u32(16).raw(&[0; 8]).1),
            28,
            "a block's two lengths differ",
        ),
    ];
    for (found, offset, what) in cases {
        assert_eq!(found, format!("at byte {offset}: {what}: the file is damaged"));
    }
    let many: Vec<u8> = std::iter::repeat_n(interface(Order::Little, 1, 0, &[]), 4097)
        .flatten()
        .collect();
    assert!(after(many).contains("more interfaces are described than a capture has"));
    let mut corrupt = gzip(&pcapng(Order::Little));
    corrupt[20] ^= 0xff;
    assert!(read(&corrupt).1.is_some());
}

#[test]
fn huge_blocks_are_skipped_if_nobody_reads_them_and_refused_otherwise() {
    let huge = |kind| Bytes(Order::Big, vec![7; 3 << 20]).block(kind);
    let file = |kind| [&section(Order::Big)[..], &huge(kind), &pcapng(Order::Little)].concat();
    assert_eq!(whole(&file(0x0bad)), pcapng_frames());
    let text = refused(&file(6));
    assert_eq!(
        text,
        "at byte 28: a block has an implausible length of 3145740 bytes (at most 524288): the file is damaged"
    );
    let skipped = file(0x0bad);
    let cut = &skipped[..2 << 20];
    assert!(matches!(
        read(cut).1,
        Some(Error {
            fault: Fault::Cut,
            ..
        })
    ));
    let mut differing = skipped;
    let trailer = 28 + (3 << 20) + 8;
    differing[trailer] ^= 1;
    assert!(refused(&differing).contains("a block's two lengths differ"));
}

#[test]
fn an_error_comes_after_the_frames_before_it_and_ends_the_file() {
    let pieces = pcapng_pieces(Order::Little);
    let good = enhanced(Order::Little, 1, 5 * SECOND + 1, b"x", 9).block(6);
    let mut differing = good.clone();
    if let Some(last) = differing.last_mut() {
        *last ^= 1;
    }
    let (seen, error) = read(&[&joined(&pieces[..5])[..], &differing, &good].concat());
    assert_eq!(seen, pcapng_frames()[..2]);
    assert!(matches!(
        error,
        Some(Error {
            fault: Fault::Malformed("a block's two lengths differ"),
            ..
        })
    ));
}

/// Frames of every length, so that they cross the window's ends at every offset.
#[test]
fn written_captures_read_back_from_any_file() {
    let mut writer = Writer::new(Vec::new(), LinkType::RawIp).unwrap();
    let frame = |n: u64| vec![n as u8; (n * 7919 % 3000) as usize];
    for n in 0..2000 {
        writer.write(n * SECOND + n, &frame(n)).unwrap();
    }
    writer.write(1, &vec![1; MAX_PACKET]).unwrap();
    let file = writer.finish().unwrap();
    assert!(file.len() > 3 << 20);
    let mut expected: Vec<Seen> = (0..2000)
        .map(|n| {
            (
                n * SECOND + n,
                frame(n),
                LinkType::RawIp,
                frame(n).len() as u32,
                false,
            )
        })
        .collect();
    expected.push((1, vec![1; MAX_PACKET], LinkType::RawIp, MAX_PACKET as u32, false));
    assert_eq!(whole(&file), expected);
    assert_eq!(whole(&gzip(&file)), expected);
    let mut reader = Reader::new(file.as_slice()).unwrap();
    let mut lengths = Vec::new();
    while let Some(burst) = reader.burst() {
        lengths.push(burst.unwrap().len());
    }
    assert_eq!(lengths.iter().sum::<usize>(), expected.len());
    assert!(
        lengths.len() <= expected.len().div_ceil(BURST) + 2 * file.len().div_ceil(1 << 20),
        "{lengths:?}"
    );
    let mut dripping = Reader::new(SlowReader(&file, 0)).unwrap();
    for (ts, data, ..) in &expected {
        let frame = dripping.next().unwrap().unwrap();
        assert_eq!((frame.ts, frame.data), (*ts, data.as_slice()));
    }
    assert!(dripping.next().is_none());
    assert_eq!(dripping.bytes_read(), file.len() as u64);
}

/// A pipe that gives a few bytes at a time, and is interrupted by signals between; counts its calls.
struct SlowReader<'a>(&'a [u8], usize);

impl Read for SlowReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.1 += 1;
        if self.1.is_multiple_of(3) {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let len = into.len().min(self.0.len()).min(1 + self.1 * 7919 % 997);
        let (now, later) = self.0.split_at(len);
        into[..len].copy_from_slice(now);
        self.0 = later;
        Ok(len)
    }
}

#[test]
fn the_writer_refuses_what_the_format_cannot_hold() {
    let mut writer = Writer::new(Vec::new(), LinkType::Ethernet).unwrap();
    let late = writer
        .write(u64::from(u32::MAX) * SECOND + SECOND, b"")
        .unwrap_err()
        .to_string();
    assert_eq!(
        late,
        "cannot be written at byte 24: pcap files cannot hold times after the year 2106"
    );
    let long = writer.write(0, &vec![0; MAX_PACKET + 1]).unwrap_err().to_string();
    assert!(
        long.contains("a packet has an implausible length of 262145 bytes"),
        "{long}"
    );
    assert!(Writer::create("/nonexistent/x.pcap", LinkType::Ethernet).is_err());
    assert_eq!(writer.finish().unwrap().len(), 24);
}

fn captured(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/captures")
        .join(name)
}

#[test]
fn real_captures_are_read_whole() {
    let cases = [
        ("onos-int10-congested.pcap", 4000),
        ("onos-int10-path-only.pcap", 500),
        ("onos-int10-data-link.pcap", 1000),
    ];
    for (name, expected) in cases {
        let mut reader = Reader::open(captured(name)).unwrap();
        let (mut frames, mut last) = (0, 0);
        while let Some(frame) = reader.next() {
            let frame = frame.unwrap();
            assert_eq!(
                (frame.link, frame.truncated, frame.layer()),
                (LinkType::Ethernet, false, Layer::Ethernet(frame.data))
            );
            assert!(
                frame.ts >= last && frame.ts > 1_500_000_000 * SECOND,
                "{name}: frame {frames} at {}",
                frame.ts
            );
            (frames, last) = (frames + 1, frame.ts);
        }
        assert_eq!(frames, expected, "{name}");
        assert_eq!(Some(reader.bytes_read()), reader.total_bytes());
    }
    let missing = Reader::open(captured("none.pcap")).unwrap_err().to_string();
    assert_eq!(missing, "there is no such file: check the path");
    assert!(
        Reader::open(captured(""))
            .unwrap_err()
            .to_string()
            .contains("is a directory: name the captures in it")
    );
}

/// Runs the fuzz body over mutations of files that reach every branch, for a few seconds.
#[test]
fn the_fuzz_body_holds() {
    let (little, big) = (pcapng(Order::Little), pcapng(Order::Big));
    let seeds = [
        pcap(Order::Little, 0xa1b2_c3d4),
        pcap(Order::Big, 0xa1b2_3c4d),
        gzip(&little),
        little,
        big,
    ];
    let mut state = 3u64;
    let mut random = |bound: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    for round in 0..4_000 {
        let mut data = seeds[round % seeds.len()].clone();
        for _ in 0..1 + random(3) {
            let at = random(data.len());
            match random(5) {
                0 => data[at] ^= 1 << random(8),
                1 => data[at] = [0, 1, 0x7f, 0x80, 0xff][random(5)],
                2 => data.truncate(at.max(1)),
                3 => drop(data.drain(at..(at + 4).min(data.len()))),
                _ => data.extend_from_within(at..),
            }
            data.push(0);
        }
        fuzz::capture(&data);
    }
}
