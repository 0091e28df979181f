//! Random datagrams that are nearly right: every header that the decoders know, in every order, with counts and lengths that
//! mostly agree.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use crate::dice::Dice;
use wire::profile::{Domain, TcpShim};
use wire::{Dialect, Profile, TelemetryPorts};

/// One of `choices`.
pub fn pick<T: Copy>(dice: &mut Dice, choices: &[T]) -> T {
    choices[dice.below(choices.len())]
}

/// True once in `n` times.
fn rarely(dice: &mut Dice, n: usize) -> bool {
    dice.below(n) == 0
}

/// Some way to read.
pub fn profile(dice: &mut Dice) -> Profile {
    let mut profile = Profile::new(pick(dice, &Dialect::ALL));
    if rarely(dice, 4) {
        profile.probe_marker = Some(MARKER);
    }
    if rarely(dice, 3) {
        profile.tcp_shim = TcpShim::AfterOptions;
    }
    if rarely(dice, 2) {
        profile.domains[dice.below(2)] = Some(Domain { id: DOMAIN, source_only_words: dice.below(4) as u8 });
    }
    if rarely(dice, 8) {
        (profile.dscp, profile.dscp_mask) = (0, 0);
    }
    if rarely(dice, 8) {
        profile.int_udp_port = 0;
    }
    if rarely(dice, 4) {
        profile.telemetry_ports = TelemetryPorts::new(&[9000, 32766]).unwrap();
    }
    profile
}

const MARKER: u64 = 0x1122_3344_5566_7788;
const DOMAIN: u16 = 0x0abc;

/// The node that reports, and often is on the stack too.
const REPORTER: u32 = 3;

/// A word as devices write them: small, all-ones, halves of all-ones, or anything.
fn word(dice: &mut Dice) -> u32 {
    match dice.below(8) {
        0 | 1 => u32::MAX,
        2 => 0xffff_0000 | dice.roll() as u16 as u32,
        3 => (dice.roll() as u32) << 16 | 0xffff,
        4 => REPORTER,
        5 => dice.roll() as u32,
        _ => dice.below(8) as u32,
    }
}

fn put_words(dice: &mut Dice, out: &mut Vec<u8>, count: usize) {
    for _ in 0..count {
        out.extend(word(dice).to_be_bytes());
    }
}

/// A telemetry datagram's payload.
pub fn datagram(dice: &mut Dice) -> Vec<u8> {
    let mut out = match dice.below(4) {
        0 => report_05(dice),
        1 => report_10(dice),
        _ => group(dice),
    };
    if rarely(dice, 3) {
        dice.spoil(&mut out);
    }
    out
}

fn report_05(dice: &mut Dice) -> Vec<u8> {
    let kind = pick(dice, &[0, 0, 1, 2, 3, 4, 5]);
    let word = (dice.below(2) as u32) << 28 | kind << 24 | dice.roll() as u32 & 0x00e0_003f;
    let mut out = word.to_be_bytes().to_vec();
    put_words(dice, &mut out, 2);
    let extra = match kind {
        1 => 3,
        2 => 4,
        3 => 6,
        4 => dice.below(2),
        _ => 0,
    };
    put_words(dice, &mut out, extra);
    out.extend(if kind < 3 { ethernet(dice, 0) } else { ipv4(dice, 0) });
    out
}

fn report_10(dice: &mut Dice) -> Vec<u8> {
    let metadata: u32 = if rarely(dice, 2) { 0 } else { dice.below(64) as u32 };
    let len = if rarely(dice, 8) { dice.below(16) as u32 } else { 4 + metadata.count_ones() };
    let next = pick(dice, &[0, 0, 0, 1, 1, 1, 2, 2, 2, 5]);
    let word = 1 << 28 | (len & 15) << 24 | next << 21 | metadata << 15 | dice.roll() as u32 & 0x71ff;
    let mut out = word.to_be_bytes().to_vec();
    out.extend(node(dice).to_be_bytes());
    put_words(dice, &mut out, 2 + metadata.count_ones() as usize);
    out.extend(packet(dice, next as usize));
    out
}

fn node(dice: &mut Dice) -> u32 {
    pick(dice, &[REPORTER, REPORTER, 7, u32::MAX])
}

/// From Ethernet (0), IPv4 (1) or IPv6 on.
fn packet(dice: &mut Dice, first: usize) -> Vec<u8> {
    match first {
        0 => ethernet(dice, 0),
        1 => ipv4(dice, 0),
        _ => ipv6(dice, 0),
    }
}

fn group(dice: &mut Dice) -> Vec<u8> {
    let mut out = (2 << 28 | dice.roll() as u32 & 0x0fff_ffff).to_be_bytes().to_vec();
    out.extend(node(dice).to_be_bytes());
    for _ in 0..pick(dice, &[1, 1, 1, 2, 3, 5, 80]) {
        let report = report_20(dice);
        out.extend(report);
        if out.len() > 3000 {
            break;
        }
    }
    out
}

fn report_20(dice: &mut Dice) -> Vec<u8> {
    let report_type = pick(dice, &[0_u8, 1, 1, 1, 1, 1, 1, 2]);
    let inner_type = pick(dice, &[0_u8, 1, 2, 3, 3, 4, 4, 5, 5, 6]);
    let flags = pick(dice, &[0x20_u8, 0x20, 0x20, 0xa0, 0x30, 0x40, 0x60, 0]) | dice.below(16) as u8;
    let mut body = Vec::new();
    let mut md = dice.roll() as u8;
    if report_type == 1 {
        let bits = dice.roll() as u16 & pick(dice, &[0x7f81, 0xffff, 0, 0x5c00]);
        let baseline = bits.count_ones() + (bits & 0x0e00).count_ones();
        let ds_id = pick(dice, &[0_u16, 0, 0x5043, DOMAIN, 0x5346]);
        let domain = if ds_id == 0 { 0 } else { dice.below(3) };
        for half in [bits, ds_id, dice.roll() as u16, 0] {
            body.extend(half.to_be_bytes());
        }
        put_words(dice, &mut body, baseline as usize + domain);
        md = if rarely(dice, 12) { md } else { baseline as u8 + domain as u8 };
    }
    match inner_type {
        0 => {}
        1 => tlvs(dice, &mut body),
        3 => body.extend(ethernet(dice, 0)),
        4 => body.extend(ipv4(dice, 0)),
        5 => body.extend(ipv6(dice, 0)),
        2 if !rarely(dice, 8) => int_sf(dice, &mut body),
        _ => {
            let count = dice.below(4);
            put_words(dice, &mut body, count);
        }
    }
    body.resize(body.len().next_multiple_of(4), 0);
    let words = if rarely(dice, 30) { dice.roll() as usize } else { body.len() / 4 };
    let mut out = vec![report_type << 4 | inner_type, words.min(255) as u8, md, flags];
    out.extend(body);
    out
}

fn tlvs(dice: &mut Dice, out: &mut Vec<u8>) {
    for _ in 0..dice.below(4) {
        let kind = dice.below(4);
        let mut value = Vec::new();
        match kind {
            0 => {
                let count = dice.below(3);
                put_words(dice, &mut value, count);
            }
            kind => value = packet(dice, kind - 1),
        }
        value.resize(value.len().next_multiple_of(4), 0);
        let words = if rarely(dice, 10) { dice.roll() as u8 } else { (value.len() / 4).min(255) as u8 };
        out.extend([(kind as u8) << 4, words, 0, 7]);
        out.extend(value);
    }
}

/// Below this depth packets end, so that they end.
const DEEPEST: usize = 14;

fn ethernet(dice: &mut Dice, depth: usize) -> Vec<u8> {
    let mut out = vec![2; 12];
    out.extend(typed(dice, depth));
    out
}

/// An EtherType and what it announces.
fn typed(dice: &mut Dice, depth: usize) -> Vec<u8> {
    let (ethertype, body) = announced(dice, depth);
    [&ethertype.to_be_bytes()[..], &body].concat()
}

fn announced(dice: &mut Dice, depth: usize) -> (u16, Vec<u8>) {
    if depth > DEEPEST {
        return (0x0806, vec![0; 8]);
    }
    let depth = depth + 1;
    match dice.below(16) {
        0 | 1 => {
            let tag = pick(dice, &[0x8100, 0x88a8, 0x9100]);
            (tag, [&[0, 5][..], &typed(dice, depth)].concat())
        }
        2 => (pick(dice, &[0x8847, 0x8848]), mpls(dice, depth)),
        3 => (0x6558, ethernet(dice, depth)),
        4 => (pick(dice, &[0x0806, 0x88b6, 0x86de]), vec![0x45; 8]),
        5..=7 => (0x86dd, ipv6(dice, depth)),
        _ => (0x0800, ipv4(dice, depth)),
    }
}

fn mpls(dice: &mut Dice, depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let labels = pick(dice, &[1, 1, 1, 2, 3, 9]);
    for i in 1..=labels {
        out.extend([0, 1, (i == labels).into(), 64]);
    }
    out.extend(match dice.below(3) {
        0 => ipv6(dice, depth),
        1 => ipv4(dice, depth),
        _ => ethernet(dice, depth),
    });
    out
}

fn tos(dice: &mut Dice) -> u8 {
    pick(dice, &[0x17, 0x17, 0x17, 0x20, 0x01, 0, 0x3f]) << 2
}

/// A length that is mostly right.
fn about(dice: &mut Dice, len: usize) -> u16 {
    match dice.below(12) {
        0 => 0,
        1 => dice.below(len + 8) as u16,
        2 => len as u16 + 6,
        _ => len as u16,
    }
}

fn ipv4(dice: &mut Dice, depth: usize) -> Vec<u8> {
    let options = if rarely(dice, 6) { dice.below(11) } else { 0 };
    let (proto, body) = transport(dice, depth);
    let first = if rarely(dice, 30) { dice.roll() as u8 } else { 0x45 + options as u8 };
    let total = about(dice, 20 + options * 4 + body.len()).to_be_bytes();
    let fragment = if rarely(dice, 20) { 0x2001 } else { 0x4000_u16 }.to_be_bytes();
    // An identification may look like the first byte of IPv4.
    let ident = pick(dice, &[0, 0, 0x45]);
    let mut out =
        vec![first, tos(dice), total[0], total[1], ident, 1, fragment[0], fragment[1], 64, proto, 0, 0];
    out.extend([10, 0, 0, 1, 10, 0, 0, dice.below(4) as u8]);
    if rarely(dice, 2) {
        let sum = wire::checksum::of(&out).to_be_bytes();
        out[10..12].copy_from_slice(&sum);
    }
    out.extend(vec![1; options * 4]);
    out.extend(body);
    out
}

fn ipv6(dice: &mut Dice, depth: usize) -> Vec<u8> {
    let (mut proto, mut body) = transport(dice, depth);
    for _ in 0..pick(dice, &[0, 0, 0, 1, 2, 9]) {
        let next = proto;
        proto = pick(dice, &[0, 60, 0, 60, 43, 44, 51, 135, 139]);
        let mut header = vec![next, 0];
        match proto {
            0 | 60 => options(dice, &mut header),
            44 => {
                let offset = if rarely(dice, 3) { 0x0009_u16 } else { 0 };
                header.extend(offset.to_be_bytes());
            }
            _ => header.extend(vec![0; dice.below(40)]),
        }
        let unit = if proto == 51 { 4 } else { 8 };
        header.resize(header.len().max(8).next_multiple_of(unit), 0);
        header[1] = if proto == 44 { dice.roll() as u8 } else { ((header.len() - 8) / unit) as u8 };
        body = [header, body].concat();
    }
    let class = u32::from(tos(dice)) << 20 | 6 << 28;
    let mut out = class.to_be_bytes().to_vec();
    out.extend(about(dice, body.len()).to_be_bytes());
    out.extend([proto, 64]);
    out.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    out.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, dice.below(4) as u8]);
    out.extend(body);
    out
}

fn options(dice: &mut Dice, out: &mut Vec<u8>) {
    for _ in 0..dice.below(4) {
        match dice.below(7) {
            5 => int_option(dice, out),
            6 if rarely(dice, 20) => out.push(0x3e),
            0 => out.push(0),
            1 => out.extend([1, 2, 0, 0]),
            2 => out.extend([0x31, dice.below(12) as u8, 0, dice.below(6) as u8, 0, 0]),
            _ => ioam(dice, out),
        }
    }
}

/// The option that holds INT.
fn int_option(dice: &mut Dice, out: &mut Vec<u8>) {
    let mut data = Vec::new();
    let npt = if rarely(dice, 20) { 4 } else { 0 };
    shim_2(dice, &mut data, |_| [npt, 0, 0]);
    if rarely(dice, 20) {
        data[0] = dice.roll() as u8;
    }
    data.truncate(pick(dice, &[252, 252, 252, 252, 60, 8, 2]));
    let len = if rarely(dice, 20) { dice.roll() as u8 } else { data.len() as u8 };
    out.extend([0x3e, len]);
    out.extend(data);
}

fn ioam(dice: &mut Dice, out: &mut Vec<u8>) {
    let kind = pick(dice, &[0_u8, 1, 1, 4, 3]);
    let trace = dice.roll() as u32 & pick(dice, &[0x00d8_0000, 0x00ff_ffff, 0x00fa_7ffe, 0x0080_0002]);
    let counted = trace & 0x00ff_fffc;
    let len = counted.count_ones() + (counted & 0x00e000).count_ones();
    let mut nodes = Vec::new();
    for _ in 0..dice.below(5) {
        put_words(dice, &mut nodes, len as usize);
        if trace & 2 != 0 {
            let opaque = dice.below(3);
            nodes.extend([opaque as u8, 0, 0, 1]);
            put_words(dice, &mut nodes, opaque);
        }
    }
    if trace & 0x0080_0000 != 0 && rarely(dice, 2) && nodes.len() >= 4 {
        // The newest node is the reporter.
        nodes[..4].copy_from_slice(&(0x4000_0000 | REPORTER).to_be_bytes());
    }
    let free = if kind == 0 { dice.below(3) } else { 0 };
    let mut data = vec![0, kind, 0, 1, (len as u8) << 3, free as u8];
    if kind == 4 {
        data[4..6].copy_from_slice(&[0, pick(dice, &[0, 0x80, 0xc0])]);
    }
    data.extend(&trace.to_be_bytes()[1..]);
    data.push(0);
    data.extend(vec![0; free * 4]);
    data.extend(nodes);
    if rarely(dice, 8) {
        data.pop();
    }
    data.truncate(255);
    out.extend([pick(dice, &[0x31, 0x11]), data.len() as u8]);
    out.extend(data);
}

/// A protocol number and what it announces.
fn transport(dice: &mut Dice, depth: usize) -> (u8, Vec<u8>) {
    if depth > DEEPEST {
        return (1, vec![0; 8]);
    }
    let depth = depth + 1;
    match dice.below(16) {
        0 | 1 => (6, tcp(dice)),
        2 => (47, gre(dice, depth)),
        3 => (4, ipv4(dice, depth)),
        4 => (41, ipv6(dice, depth)),
        5 => (pick(dice, &[33, 132, 136, 1]), vec![7; 6]),
        _ => (17, udp(dice, depth)),
    }
}

const TUNNEL_PORTS: [u16; 3] = [4789, 4790, 6081];

fn udp(dice: &mut Dice, depth: usize) -> Vec<u8> {
    let dst_port = pick(dice, &[9000, 9000, 33122, 33122, 4789, 4790, 6081, 32766, 5000]);
    let mut body = Vec::new();
    let mut inner = dst_port;
    if dst_port == 33122 || !rarely(dice, 3) {
        if rarely(dice, 8) {
            body.extend(MARKER.to_be_bytes());
        }
        inner = shim(dice, &mut body, dst_port);
    }
    match inner {
        4789 => body.extend(vxlan(dice, depth)),
        4790 => gpe(dice, depth, &mut body),
        6081 => geneve(dice, depth, &mut body),
        32766 if !rarely(dice, 3) => body.extend(nested(dice)),
        _ => body.extend(vec![0xab; dice.below(24)]),
    }
    let mut out = vec![0x40, 0];
    out.extend(dst_port.to_be_bytes());
    out.extend(about(dice, 8 + body.len()).to_be_bytes());
    out.extend([0, 0]);
    out.extend(body);
    if rarely(dice, 12) {
        out.truncate(dice.below(12));
    }
    out
}

/// The start of a report, or what nearly is one.
fn nested(dice: &mut Dice) -> Vec<u8> {
    let mut out = vec![pick(dice, &[0, 1, 4, 0x14, 0x11, 0x20, 0x30]), dice.below(4) as u8 * 0x40];
    let count = dice.below(9);
    out.extend([0, 1]);
    put_words(dice, &mut out, count);
    out
}

fn tcp(dice: &mut Dice) -> Vec<u8> {
    let words = pick(dice, &[5, 5, 5, 6, 8, 2]);
    let mut out = vec![0x40, 1, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, words << 4, 0x10, 0, 0, 0, 0, 0, 0];
    if rarely(dice, 2) {
        out.resize((usize::from(words) * 4).max(20), 1);
    }
    if !rarely(dice, 3) {
        if rarely(dice, 8) {
            out.extend(MARKER.to_be_bytes());
        }
        shim(dice, &mut out, 80);
    }
    out.extend(vec![0xcd; dice.below(12)]);
    out
}

fn gre(dice: &mut Dice, depth: usize) -> Vec<u8> {
    let flags = pick(dice, &[0_u8, 0, 0, 0x20, 0xb0, 0x40]);
    let version = if rarely(dice, 12) { 1 } else { 0 };
    let mut out = vec![flags, version];
    let extra = (flags & 0xb0).count_ones() as usize * 4;
    if rarely(dice, 2) {
        out.extend([0x88, 0xb6]);
        out.extend(vec![9; extra]);
        let (ethertype, body) = announced(dice, depth);
        let [high, low] = ethertype.to_be_bytes();
        shim_2(dice, &mut out, |_| [0x08, high, low]);
        out.extend(body);
    } else {
        let (ethertype, body) = announced(dice, depth);
        out.extend(ethertype.to_be_bytes());
        out.extend(vec![9; extra]);
        out.extend(body);
    }
    out
}

fn vxlan(dice: &mut Dice, depth: usize) -> Vec<u8> {
    let mut out = vec![8, 0, 0, 0, 0, 0, 1, 0];
    out.extend(ethernet(dice, depth));
    out
}

fn gpe(dice: &mut Dice, depth: usize, out: &mut Vec<u8>) {
    let chain = pick(dice, &[0, 0, 1, 1, 1, 2, 9]);
    let last = pick(dice, &[1_u8, 2, 3, 3, 4]);
    let mut codes: Vec<u8> = (0..chain).map(|_| pick(dice, &[0x05, 0x08, 0x80, 0x82])).collect();
    codes.push(last);
    out.extend([if rarely(dice, 8) { 8 } else { 0x0c }, 0, 0, codes[0], 0, 0, 1, 0]);
    for pair in codes.windows(2) {
        let next = pair[1];
        match pair[0] {
            0x05 => shim_1(dice, out, (0x01, next), 5, 0),
            0x08 => shim_1(dice, out, (0x01, next), 10, 0),
            _ => shim_2(dice, out, |_| [0, 0x80, next]),
        }
    }
    out.extend(match last {
        1 => ipv4(dice, depth),
        2 => ipv6(dice, depth),
        _ => ethernet(dice, depth),
    });
}

fn geneve(dice: &mut Dice, depth: usize, out: &mut Vec<u8>) {
    let mut options = Vec::new();
    for _ in 0..dice.below(3) {
        let class = pick(dice, &[0x0103_u16, 0x00ab, 0x00ab, 0x1234]);
        let kind = pick(dice, &[1_u8, 1, 1, 3, 2, 4]);
        let mut data = Vec::new();
        match pick(dice, &[2, 2, 10, 5, 0]) {
            2 => int_2(dice, &mut data, 3),
            10 => int_10(dice, &mut data, 3),
            5 => int_05(dice, &mut data, 3),
            _ => data.extend(vec![0; dice.below(3) * 4]),
        }
        let words = if rarely(dice, 20) { 31 } else { (data.len() / 4).min(31) as u8 };
        data.truncate(124);
        options.extend(class.to_be_bytes());
        options.extend([kind, words]);
        options.extend(data);
    }
    options.truncate(252);
    let (protocol, body) = announced(dice, depth);
    let first = if rarely(dice, 20) { dice.roll() as u8 } else { (options.len() / 4) as u8 };
    let [high, low] = protocol.to_be_bytes();
    out.extend([first, 0, high, low, 0, 0, 1, 0]);
    out.extend(options);
    out.extend(body);
}

/// A shim after L4, and INT. Answers the original port.
fn shim(dice: &mut Dice, out: &mut Vec<u8>, dst_port: u16) -> u16 {
    match dice.below(10) {
        0..=2 => {
            let tail = pick(dice, &[0, 1, 1, 2, 4]);
            let kind = pick(dice, &[1, 1, 1, 3, 2]);
            shim_1(dice, out, (kind, 0), 5, tail);
            dst_port
        }
        3..=5 => {
            let kind = pick(dice, &[1, 1, 1, 1, 2]);
            shim_1(dice, out, (kind, 0), 10, 0);
            dst_port
        }
        _ => {
            let port = if rarely(dice, 2) { pick(dice, &TUNNEL_PORTS) } else { 9000 };
            let npt = if dst_port == 33122 {
                pick(dice, &[1, 1, 1, 2, 0, 3])
            } else {
                pick(dice, &[0, 0, 0, 0, 1])
            };
            let [high, low] = match npt {
                1 => port.to_be_bytes(),
                2 => [0, pick(dice, &[6, 17, 132])],
                _ => [0, 0],
            };
            shim_2(dice, out, |_| [npt << 2, high, low]);
            if npt == 1 { port } else { dst_port }
        }
    }
}

/// The shim of 0.5 (with so many words behind the stack) or 1.0.
fn shim_1(dice: &mut Dice, out: &mut Vec<u8>, (kind, last): (u8, u8), version: u8, tail: usize) {
    let mut int = Vec::new();
    let hops = hops(dice);
    if version == 5 {
        int_05(dice, &mut int, hops);
    } else {
        int_10(dice, &mut int, hops);
    }
    let behind = [6, pick(dice, &[0, 0x23]), pick(dice, &[0, 0x28, 0xb5]), 0].repeat(tail);
    let words = (int.len() + behind.len()) / 4 + 1;
    let words = if rarely(dice, 30) { dice.below(words + 3) } else { words };
    // For the destination: the length is all that is read of it.
    let words = if kind == 2 && rarely(dice, 3) { 0 } else { words };
    out.extend([kind, 0, words.min(255) as u8, last]);
    out.extend(int);
    // host-int removes the tail and leaves the length.
    if !rarely(dice, 6) {
        out.extend(behind);
    }
}

/// The shim of 2.x, with the last three bytes as `rest` says; the first of them goes into the first byte.
fn shim_2(dice: &mut Dice, out: &mut Vec<u8>, rest: impl Fn(u8) -> [u8; 3]) {
    let kind = pick(dice, &[1_u8, 1, 1, 1, 3, 2, 4, 4, 5]);
    let mut int = Vec::new();
    let hops = hops(dice);
    if (kind == 4) != rarely(dice, 40) {
        int_sf(dice, &mut int);
    } else {
        int_2(dice, &mut int, hops);
    }
    let [low, second, third] = rest(kind);
    let words = if rarely(dice, 30) { dice.below(60) } else { int.len() / 4 };
    out.extend([kind << 4 | low, words.min(255) as u8, second, third]);
    out.extend(int);
}

fn hops(dice: &mut Dice) -> usize {
    pick(dice, &[0, 1, 1, 2, 3, 6, 15, 16, 17])
}

/// An instruction bitmap, often a usual one.
fn bitmap(dice: &mut Dice) -> u16 {
    let any = dice.roll() as u16;
    pick(
        dice,
        &[
            0x8000,
            0x9000,
            0xfd00,
            0xff00,
            0xdc00,
            0x0c00,
            0x8200,
            0xc200,
            0xbfff,
            0xffff,
            any,
            any & 0xff81,
            0,
        ],
    )
}

fn int_2(dice: &mut Dice, out: &mut Vec<u8>, hops: usize) {
    let bitmap = bitmap(dice);
    let base = bitmap.count_ones() + (bitmap & 0x0e00).count_ones();
    let domain = rarely(dice, 4);
    let extra = if domain { dice.below(3) as u32 } else { 0 };
    let hop_ml = if rarely(dice, 20) { dice.below(32) as u32 } else { (base + extra).min(31) };
    out.extend([0x20 | dice.below(16) as u8 & 0x0e, dice.roll() as u8, hop_ml as u8, 7]);
    out.extend(bitmap.to_be_bytes());
    let (id, instruction) = if domain { (pick(dice, &[DOMAIN, 0x0abd]), 1_u16) } else { (0, 0) };
    for half in [id, instruction, 0] {
        out.extend(half.to_be_bytes());
    }
    let source_only = if domain { dice.below(4) } else { 0 };
    let fitting = (240 / hop_ml.max(1) as usize).min(hops);
    put_words(dice, out, fitting * hop_ml as usize + source_only);
}

/// INT 2.x with the flag of SF-INT.
fn int_sf(dice: &mut Dice, out: &mut Vec<u8>) {
    let bitmap = bitmap(dice) & if rarely(dice, 8) { 0xffff } else { 0xfffe };
    let bitmap = bitmap | if rarely(dice, 8) { 0 } else { 0x8000 };
    let words = bitmap.count_ones() + (bitmap & 0x0e00).count_ones();
    let hop_ml = if rarely(dice, 20) { dice.below(32) as u32 } else { words };
    let second = if rarely(dice, 10) { dice.roll() as u8 } else { pick(dice, &[0x20, 0x40, 0x60, 0xc0]) };
    out.extend([0x21 | dice.below(16) as u8, second, hop_ml as u8, 7]);
    out.extend(bitmap.to_be_bytes());
    out.extend([0, dice.below(4) as u8, 0, u8::from(rarely(dice, 30)), 0, u8::from(rarely(dice, 30))]);
    let odd = if rarely(dice, 20) { 1 } else { 0 };
    let records = pick(dice, &[1, 1, 1, 1, 2, 2, 0, 3]).min(240 / hop_ml.max(1) as usize);
    put_words(dice, out, records * hop_ml as usize + odd);
}

fn int_10(dice: &mut Dice, out: &mut Vec<u8>, hops: usize) {
    let bitmap = bitmap(dice);
    let wide = pick(dice, &[0x0200, 0x0200, 0x0c00, 0]);
    let words = bitmap.count_ones() + (bitmap & wide).count_ones();
    let hop_ml = if rarely(dice, 20) { dice.below(32) as u32 } else { words };
    let version = if rarely(dice, 6) { 0 } else { 0x10 };
    out.extend([version | dice.below(4) as u8, dice.roll() as u8 & 0x9f, hop_ml as u8, 7]);
    out.extend(bitmap.to_be_bytes());
    out.extend([0, 9]);
    let fitting = (240 / hop_ml.max(1) as usize).min(hops);
    put_words(dice, out, fitting * hop_ml as usize);
}

fn int_05(dice: &mut Dice, out: &mut Vec<u8>, hops: usize) {
    let bitmap = bitmap(dice);
    let words = bitmap.count_ones();
    let count = if rarely(dice, 20) { dice.below(32) as u32 } else { words };
    let fitting = (240 / words.max(1) as usize).min(hops);
    let most = if rarely(dice, 20) { dice.below(8) } else { 16 + fitting };
    out.extend([dice.below(4) as u8, count as u8, most as u8, fitting as u8]);
    out.extend(bitmap.to_be_bytes());
    out.extend([0, 0]);
    put_words(dice, out, fitting * words as usize);
}

/// A frame around a datagram, with whatever a frame may have on its way down to UDP.
pub fn frame(dice: &mut Dice, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![2; 12];
    for _ in 0..pick(dice, &[0, 0, 0, 1, 2, 8, 9]) {
        out.extend(pick(dice, &[[0x81, 0], [0x88, 0xa8], [0x91, 0]]));
        out.extend([0, 5]);
    }
    let v6 = rarely(dice, 2);
    if rarely(dice, 5) {
        out.extend([0x88, 0x47, 0, 1, 1, 64]);
    } else {
        out.extend(if v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
    }
    let dst_port = pick(dice, &[32766, 32766, 32766, 32766, 9000, 53_u16]);
    let mut udp = vec![0x40, 0];
    udp.extend(dst_port.to_be_bytes());
    udp.extend(about(dice, 8 + payload.len()).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    out.extend(if v6 { outer_v6(dice, &udp) } else { outer_v4(dice, &udp) });
    if rarely(dice, 8) {
        out.truncate(dice.below(out.len()).max(14));
    }
    if rarely(dice, 8) {
        dice.spoil(&mut out);
        out.resize(out.len().max(14), 0);
    }
    out
}

fn outer_v4(dice: &mut Dice, udp: &[u8]) -> Vec<u8> {
    let options = if rarely(dice, 4) { dice.below(11) } else { 0 };
    let total = (20 + options * 4 + udp.len()) as u16;
    let total = if rarely(dice, 12) { dice.below(60) as u16 } else { total }.to_be_bytes();
    let fragment = pick(dice, &[0_u16, 0x4000, 0x4000, 0x4000, 0x2000, 0x0007]).to_be_bytes();
    let proto = if rarely(dice, 12) { 6 } else { 17 };
    let mut out =
        vec![0x45 + options as u8, 0, total[0], total[1], 0, 1, fragment[0], fragment[1], 64, proto];
    out.extend([0, 0, 192, 0, 2, dice.below(9) as u8, 192, 0, 2, 100]);
    out.extend(vec![1; options * 4]);
    out.extend(udp);
    out
}

fn outer_v6(dice: &mut Dice, udp: &[u8]) -> Vec<u8> {
    let (mut proto, mut body) = (if rarely(dice, 12) { 58_u8 } else { 17 }, udp.to_vec());
    for _ in 0..pick(dice, &[0, 0, 0, 1, 2, 7, 8]) {
        let next = proto;
        proto = pick(dice, &[0, 60, 43, 44, 51, 135]);
        let units = dice.below(4);
        let size = match proto {
            44 => 8,
            51 => 8 + units * 4,
            _ => 8 + units * 8,
        };
        let mut header = vec![0; size];
        header[0] = next;
        header[1] = units as u8;
        if proto == 44 && rarely(dice, 6) {
            header[3] = pick(dice, &[1, 8, 9]);
        }
        body = [header, body].concat();
    }
    let len = if rarely(dice, 12) { dice.below(60) } else { body.len() };
    let mut out = vec![0x60, 0, 0, 0];
    out.extend((len as u16).to_be_bytes());
    out.extend([proto, 64]);
    out.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, dice.below(9) as u8]);
    out.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100]);
    out.extend(body);
    out
}
