//! Generates random telemetry datagrams for fuzz tests: almost valid, so that they pass the first checks of the decoders.
//!
//! Telemetry Report 0.5, 1.0 and 2.0 around INT 0.5, 1.0 and 2.x, SF-INT and IOAM, in every encapsulation that the decoders
//! know, nested in any order. A choice listed more than once in [`pick`] is that much likelier.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use crate::rng::Rng;
use wire::profile::{Domain, TcpShim};
use wire::{Dialect, Profile, TelemetryPorts};

/// Returns one of `choices` at random.
pub fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len())]
}

/// Returns true with a probability of 1 in `n`.
fn rarely(rng: &mut Rng, n: usize) -> bool {
    rng.below(n) == 0
}

/// Returns a decoder profile with random settings.
pub fn profile(rng: &mut Rng) -> Profile {
    let mut profile = Profile::new(pick(rng, &Dialect::ALL));
    if rarely(rng, 4) {
        profile.probe_marker = Some(MARKER);
    }
    if rarely(rng, 3) {
        profile.tcp_shim = TcpShim::AfterOptions;
    }
    if rarely(rng, 2) {
        profile.domains[rng.below(2)] = Some(Domain {
            id: DOMAIN,
            source_only_words: rng.below(4) as u8,
        });
    }
    if rarely(rng, 8) {
        (profile.dscp, profile.dscp_mask) = (0, 0);
    }
    if rarely(rng, 8) {
        profile.int_udp_port = 0;
    }
    if rarely(rng, 3) {
        profile.vxlan_ports[1] = VXLAN_PORT;
    }
    if rarely(rng, 4) {
        profile.telemetry_ports = TelemetryPorts::new(&[9000, 32766]).unwrap();
    }
    profile
}

// The probe marker and the domain that random profiles and random packets share.
const MARKER: u64 = 0x1122_3344_5566_7788;
const DOMAIN: u16 = 0x0abc;
/// A port of VXLAN in random profiles and random packets.
const VXLAN_PORT: u16 = 12345;

/// The node ID of the reporter, which is often on the INT stack too.
const REPORTER: u32 = 3;

/// Returns a word as devices write it: small, all ones (no value), half of it all ones, or random.
fn word(rng: &mut Rng) -> u32 {
    match rng.below(8) {
        0 | 1 => u32::MAX,
        2 => 0xffff_0000 | rng.roll() as u16 as u32,
        3 => (rng.roll() as u32) << 16 | 0xffff,
        4 => REPORTER,
        5 => rng.roll() as u32,
        _ => rng.below(8) as u32,
    }
}

fn put_words(rng: &mut Rng, out: &mut Vec<u8>, count: usize) {
    for _ in 0..count {
        out.extend(word(rng).to_be_bytes());
    }
}

/// Generates the UDP payload of a telemetry datagram.
pub fn datagram(rng: &mut Rng) -> Vec<u8> {
    let mut out = match rng.below(40) {
        0 => other_protocol(rng),
        1 => length_zero(rng),
        2..12 => report_05(rng),
        12..22 => report_10(rng),
        _ => group(rng),
    };
    if rarely(rng, 3) {
        rng.corrupt(&mut out);
    }
    out
}

/// Generates a datagram of another protocol that begins like a report: sFlow, NetFlow 5 and 9, IPFIX, DNS.
fn other_protocol(rng: &mut Rng) -> Vec<u8> {
    let count = 1 + rng.below(3);
    let (head, len) = match rng.below(5) {
        0 => {
            let address = pick(rng, &[1, 2, 3]);
            let mut sflow = vec![0, 0, 0, 5, 0, 0, 0, address];
            // Agent, subagent, sequence number and uptime; then the number of samples, and type and length of the first.
            sflow.resize(if address == 2 { 36 } else { 24 }, 7);
            sflow.extend([
                0,
                0,
                0,
                count as u8,
                0,
                0,
                0,
                1,
                0,
                0,
                0,
                pick(rng, &[0, 16, 64, 200]),
            ]);
            (sflow, 112)
        }
        1 => (vec![0, 5, 0, count as u8], 24 + 48 * count),
        2 => (vec![0, 9, 0, count as u8], 20 + 16 * count),
        3 => (vec![0, 10, 0, (16 + 8 * count) as u8], 16 + 8 * count),
        _ => {
            let number = pick(rng, &[0x00, 0x01, 0x02, 0x14, 0x15, 0x16, 0x21]);
            let question = b"\x03www\x07example\x03com\0\0\x01\0\x01";
            let mut dns = vec![
                number,
                pick(rng, &[0x80, 0x60, 0x41, 0x20]),
                rng.below(2) as u8,
                0,
                0,
                1,
                0,
                0,
                0,
                0,
                0,
                0,
            ];
            dns.extend(question);
            let len = dns.len();
            (dns, len)
        }
    };
    let mut out: Vec<u8> = (0..len).map(|_| rng.roll() as u8).collect();
    out[..head.len()].copy_from_slice(&head);
    if head[1] == 9 {
        out[22..24].copy_from_slice(&(4 + rng.below(16) as u16).to_be_bytes());
    }
    out
}

/// Generates a report 2.0 as the p4-int programs send it: all lengths are 0, and the version may be 1.
fn length_zero(rng: &mut Rng) -> Vec<u8> {
    let mut out = (pick(rng, &[1, 2, 2]) << 28 | rng.roll() as u32 & 0x07ff_ffff)
        .to_be_bytes()
        .to_vec();
    out.extend(node(rng).to_be_bytes());
    out.extend([pick(rng, &[0x13, 0x14]), 0, 0, 0x30, 0, 0, 0, 0, 0, 0, 0, 0]);
    out.extend(ethernet(rng, 0));
    out
}

/// Telemetry Report 0.5. Its kind (drop, local, gap, node) decides how many words follow the header.
fn report_05(rng: &mut Rng) -> Vec<u8> {
    let kind = pick(rng, &[0, 0, 1, 2, 3, 4, 5]);
    // Version, kind, the flags D, Q and F (0xe0 in byte 1), and the hardware ID.
    let word = (rng.below(2) as u32) << 28 | kind << 24 | rng.roll() as u32 & 0x00e0_003f;
    let mut out = word.to_be_bytes().to_vec();
    put_words(rng, &mut out, 2);
    let extra = match kind {
        1 => 3,
        2 => 4,
        3 => 6,
        4 => rng.below(2),
        _ => 0,
    };
    put_words(rng, &mut out, extra);
    out.extend(if kind < 3 { ethernet(rng, 0) } else { ipv4(rng, 0) });
    out
}

/// Telemetry Report 1.0. Each of the six metadata bits adds a word after the four of the fixed header.
fn report_10(rng: &mut Rng) -> Vec<u8> {
    let metadata: u32 = if rarely(rng, 2) { 0 } else { rng.below(64) as u32 };
    let len = if rarely(rng, 8) {
        rng.below(16) as u32
    } else {
        4 + metadata.count_ones()
    };
    let next = pick(rng, &[0, 0, 0, 1, 1, 1, 2, 2, 2, 5]);
    // Version, length, next protocol and metadata bits; the flags and the hardware ID are random.
    let word = 1 << 28 | (len & 15) << 24 | next << 21 | metadata << 15 | rng.roll() as u32 & 0x71ff;
    let mut out = word.to_be_bytes().to_vec();
    out.extend(node(rng).to_be_bytes());
    put_words(rng, &mut out, 2 + metadata.count_ones() as usize);
    out.extend(packet(rng, next as usize));
    out
}

fn node(rng: &mut Rng) -> u32 {
    pick(rng, &[REPORTER, REPORTER, 7, u32::MAX])
}

/// Generates a packet that begins with Ethernet (0), IPv4 (1) or IPv6 (any other number).
fn packet(rng: &mut Rng, first: usize) -> Vec<u8> {
    match first {
        0 => ethernet(rng, 0),
        1 => ipv4(rng, 0),
        _ => ipv6(rng, 0),
    }
}

/// Telemetry Report 2.0: a group header and its reports.
fn group(rng: &mut Rng) -> Vec<u8> {
    let mut out = (2 << 28 | rng.roll() as u32 & 0x0fff_ffff).to_be_bytes().to_vec();
    out.extend(node(rng).to_be_bytes());
    for _ in 0..pick(rng, &[1, 1, 1, 2, 3, 5, 80]) {
        let report = report_20(rng);
        out.extend(report);
        if out.len() > 3000 {
            break;
        }
    }
    out
}

/// One individual report of version 2.0, of up to 255 words after its header.
fn report_20(rng: &mut Rng) -> Vec<u8> {
    let report_type = pick(rng, &[0_u8, 1, 1, 1, 1, 1, 1, 2]);
    let inner_type = pick(rng, &[0_u8, 1, 2, 3, 3, 4, 4, 5, 5, 6]);
    // D 0x80, Q 0x40, F 0x20, I 0x10; the low four bits are reserved.
    let flags = pick(rng, &[0x20_u8, 0x20, 0x20, 0xa0, 0x30, 0x40, 0x60, 0]) | rng.below(16) as u8;
    let mut body = Vec::new();
    let mut md = rng.roll() as u8;
    if report_type == 1 {
        let bits = rng.roll() as u16 & pick(rng, &[0x7f81, 0xffff, 0, 0x5c00]);
        // Bits 4 to 6 are items of eight bytes.
        let baseline = bits.count_ones() + (bits & 0x0e00).count_ones();
        // 0x5043 and 0x5346 are this project's domains for postcards and SF-INT.
        let ds_id = pick(rng, &[0_u16, 0, 0x5043, DOMAIN, 0x5346]);
        let domain = if ds_id == 0 { 0 } else { rng.below(3) };
        for half in [bits, ds_id, rng.roll() as u16, 0] {
            body.extend(half.to_be_bytes());
        }
        put_words(rng, &mut body, baseline as usize + domain);
        md = if rarely(rng, 12) {
            md
        } else {
            baseline as u8 + domain as u8
        };
    }
    match inner_type {
        0 => {}
        1 => tlvs(rng, &mut body),
        3 => body.extend(ethernet(rng, 0)),
        4 => body.extend(ipv4(rng, 0)),
        5 => body.extend(ipv6(rng, 0)),
        2 if !rarely(rng, 8) => int_sf(rng, &mut body),
        _ => {
            let count = rng.below(4);
            put_words(rng, &mut body, count);
        }
    }
    body.resize(body.len().next_multiple_of(4), 0);
    let words = if rarely(rng, 30) {
        rng.roll() as usize
    } else {
        body.len() / 4
    };
    let mut out = vec![report_type << 4 | inner_type, words.min(255) as u8, md, flags];
    out.extend(body);
    out
}

/// TLVs as inner contents; types 1 to 3 hold a packet.
fn tlvs(rng: &mut Rng, out: &mut Vec<u8>) {
    for _ in 0..rng.below(4) {
        let kind = rng.below(4);
        let mut value = Vec::new();
        match kind {
            0 => {
                let count = rng.below(3);
                put_words(rng, &mut value, count);
            }
            kind => value = packet(rng, kind - 1),
        }
        value.resize(value.len().next_multiple_of(4), 0);
        let words = if rarely(rng, 10) {
            rng.roll() as u8
        } else {
            (value.len() / 4).min(255) as u8
        };
        out.extend([(kind as u8) << 4, words, 0, 7]);
        out.extend(value);
    }
}

/// Nesting depth from which on no further headers are generated.
const MAX_DEPTH: usize = 14;

fn ethernet(rng: &mut Rng, depth: usize) -> Vec<u8> {
    let mut out = vec![2; 12];
    out.extend(typed(rng, depth));
    out
}

/// Generates an EtherType and its payload, in one buffer.
fn typed(rng: &mut Rng, depth: usize) -> Vec<u8> {
    let (ethertype, body) = announced(rng, depth);
    [&ethertype.to_be_bytes()[..], &body].concat()
}

/// Generates an EtherType and its payload, separately.
fn announced(rng: &mut Rng, depth: usize) -> (u16, Vec<u8>) {
    if depth > MAX_DEPTH {
        return (0x0806, vec![0; 8]);
    }
    let depth = depth + 1;
    match rng.below(16) {
        0 | 1 => {
            let tag = pick(rng, &[0x8100, 0x88a8, 0x9100]);
            (tag, [&[0, 5][..], &typed(rng, depth)].concat())
        }
        2 => (pick(rng, &[0x8847, 0x8848]), mpls(rng, depth)),
        3 if rarely(rng, 2) => (0x8864, pppoe(rng, depth)),
        3 => (0x6558, ethernet(rng, depth)),
        4 => (pick(rng, &[0x0806, 0x88b6, 0x86de]), vec![0x45; 8]),
        5..=7 => (0x86dd, ipv6(rng, depth)),
        _ => (0x0800, ipv4(rng, depth)),
    }
}

fn mpls(rng: &mut Rng, depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let labels = pick(rng, &[1, 1, 1, 2, 3, 9]);
    for i in 1..=labels {
        out.extend([0, 1, (i == labels).into(), 64]);
    }
    out.extend(match rng.below(4) {
        0 => ipv6(rng, depth),
        1 => ipv4(rng, depth),
        2 => [&[0; 4][..], &ethernet(rng, depth)].concat(),
        _ => ethernet(rng, depth),
    });
    out
}

/// Generates the data of a PPPoE session.
fn pppoe(rng: &mut Rng, depth: usize) -> Vec<u8> {
    let (protocol, body) = match rng.below(4) {
        0 => (vec![0, 0x57], ipv6(rng, depth)),
        1 => (vec![0x21], ipv4(rng, depth)),
        2 => (vec![0xc0, 0x21], vec![1; 8]),
        _ => (vec![0, 0x21], ipv4(rng, depth)),
    };
    let len = about(rng, protocol.len() + body.len());
    let mut out = vec![0x11, pick(rng, &[0, 0, 0, 7]), 0x12, 0x34];
    out.extend(len.to_be_bytes());
    out.extend(protocol);
    out.extend(body);
    out
}

/// Generates GTP-U with IP, with up to two extension headers.
fn gtp(rng: &mut Rng, depth: usize) -> Vec<u8> {
    let count = rng.below(3);
    let mut rest = Vec::new();
    if count > 0 {
        rest.extend([0, 7, 0, 0x85]);
        for i in 1..=count {
            let words = pick(rng, &[1_u8, 1, 1, 2, 0, 200]);
            rest.extend([words, 9]);
            rest.extend(vec![9; usize::from(words.clamp(1, 3)) * 4 - 3]);
            rest.push(if i < count { 0x85 } else { 0 });
        }
    }
    rest.extend(if rarely(rng, 3) {
        ipv6(rng, depth)
    } else {
        ipv4(rng, depth)
    });
    let len = about(rng, rest.len());
    let flags = if count > 0 { 0x34 } else { 0x30 };
    let mut out = vec![flags, pick(rng, &[0xff, 0xff, 0xff, 1])];
    out.extend(len.to_be_bytes());
    out.extend([0xde, 0xad, 0, 1]);
    out.extend(rest);
    out
}

/// Generates GRE with ERSPAN of any type.
fn erspan(rng: &mut Rng, depth: usize) -> Vec<u8> {
    let kind = rng.below(3);
    let mut out = match kind {
        0 => vec![0, 0, 0x88, 0xbe],
        1 => vec![
            0x10,
            0,
            0x88,
            0xbe,
            0,
            0,
            0,
            1,
            pick(rng, &[0x10, 0x10, 0x20]),
            0x64,
        ],
        _ => vec![
            0x10,
            0,
            0x22,
            0xeb,
            0,
            0,
            0,
            1,
            pick(rng, &[0x20, 0x20, 0x30]),
            0x64,
        ],
    };
    match kind {
        0 => {}
        1 => out.extend([0; 6]),
        _ => {
            let last = pick(rng, &[0_u8, 1]);
            out.extend([0; 8]);
            out.extend([pick(rng, &[0x80, 0x80, 0x88, 0x84]), last]);
            out.extend(vec![0; usize::from(last) * 8]);
        }
    }
    out.extend(ethernet(rng, depth));
    out
}

/// Returns a TOS byte. Three of seven have the DSCP that marks INT (0x17).
fn tos(rng: &mut Rng) -> u8 {
    pick(rng, &[0x17, 0x17, 0x17, 0x20, 0x01, 0, 0x3f]) << 2
}

/// Returns `len`, or sometimes a wrong length.
fn about(rng: &mut Rng, len: usize) -> u16 {
    match rng.below(12) {
        0 => 0,
        1 => rng.below(len + 8) as u16,
        2 => len as u16 + 6,
        _ => len as u16,
    }
}

fn ipv4(rng: &mut Rng, depth: usize) -> Vec<u8> {
    let options = if rarely(rng, 6) { rng.below(11) } else { 0 };
    let (proto, body) = transport(rng, depth);
    let first = if rarely(rng, 30) {
        rng.roll() as u8
    } else {
        0x45 + options as u8
    };
    let total = about(rng, 20 + options * 4 + body.len()).to_be_bytes();
    let fragment = if rarely(rng, 20) { 0x2001 } else { 0x4000_u16 }.to_be_bytes();
    // An identification whose first byte looks like the start of an IPv4 header.
    let ident = pick(rng, &[0, 0, 0x45]);
    let mut out = vec![
        first,
        tos(rng),
        total[0],
        total[1],
        ident,
        1,
        fragment[0],
        fragment[1],
        64,
        proto,
        0,
        0,
    ];
    out.extend([10, 0, 0, 1, 10, 0, 0, rng.below(4) as u8]);
    if rarely(rng, 2) {
        let sum = wire::checksum::of(&out).to_be_bytes();
        out[10..12].copy_from_slice(&sum);
    }
    out.extend(vec![1; options * 4]);
    out.extend(body);
    out
}

fn ipv6(rng: &mut Rng, depth: usize) -> Vec<u8> {
    let (mut proto, mut body) = transport(rng, depth);
    for _ in 0..pick(rng, &[0, 0, 0, 1, 2, 9]) {
        let next = proto;
        proto = pick(rng, &[0, 60, 0, 60, 43, 44, 51, 135, 139]);
        let mut header = vec![next, 0];
        match proto {
            0 | 60 => options(rng, &mut header),
            44 => {
                let offset = if rarely(rng, 3) { 0x0009_u16 } else { 0 };
                header.extend(offset.to_be_bytes());
            }
            _ => header.extend(vec![0; rng.below(40)]),
        }
        // The Authentication Header (51) counts words; a Fragment header (44) has no length.
        let unit = if proto == 51 { 4 } else { 8 };
        header.resize(header.len().max(8).next_multiple_of(unit), 0);
        header[1] = if proto == 44 {
            rng.roll() as u8
        } else {
            ((header.len() - 8) / unit) as u8
        };
        body = [header, body].concat();
    }
    let class = u32::from(tos(rng)) << 20 | 6 << 28;
    let mut out = class.to_be_bytes().to_vec();
    out.extend(about(rng, body.len()).to_be_bytes());
    out.extend([proto, 64]);
    out.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    out.extend([
        0x20,
        1,
        0x0d,
        0xb8,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        rng.below(4) as u8,
    ]);
    out.extend(body);
    out
}

/// IPv6 options: padding, INT, IOAM, and broken ones.
fn options(rng: &mut Rng, out: &mut Vec<u8>) {
    for _ in 0..rng.below(4) {
        match rng.below(7) {
            5 => int_option(rng, out),
            6 if rarely(rng, 20) => out.push(0x3e),
            0 => out.push(0),
            1 => out.extend([1, 2, 0, 0]),
            2 => out.extend([0x31, rng.below(12) as u8, 0, rng.below(6) as u8, 0, 0]),
            _ => ioam(rng, out),
        }
    }
}

/// The option 0x3E, which holds an INT 2.x shim and INT or SF-INT.
fn int_option(rng: &mut Rng, out: &mut Vec<u8>) {
    let mut data = Vec::new();
    let npt = if rarely(rng, 20) { 4 } else { 0 };
    shim_2(rng, &mut data, |_| [npt, 0, 0]);
    if rarely(rng, 20) {
        data[0] = rng.roll() as u8;
    }
    data.truncate(pick(rng, &[252, 252, 252, 252, 60, 8, 2]));
    let len = if rarely(rng, 20) {
        rng.roll() as u8
    } else {
        data.len() as u8
    };
    out.extend([0x3e, len]);
    out.extend(data);
}

/// An IOAM option (RFC 9197, RFC 9326). Trace bits 8 to 10 are items of eight bytes; bit 22 is of variable length.
fn ioam(rng: &mut Rng, out: &mut Vec<u8>) {
    let kind = pick(rng, &[0_u8, 1, 1, 4, 3]);
    let trace = rng.roll() as u32 & pick(rng, &[0x00d8_0000, 0x00ff_ffff, 0x00fa_7ffe, 0x0080_0002]);
    let counted = trace & 0x00ff_fffc;
    let len = counted.count_ones() + (counted & 0x00e000).count_ones();
    let mut nodes = Vec::new();
    for _ in 0..rng.below(5) {
        put_words(rng, &mut nodes, len as usize);
        if trace & 2 != 0 {
            let opaque = rng.below(3);
            nodes.extend([opaque as u8, 0, 0, 1]);
            put_words(rng, &mut nodes, opaque);
        }
    }
    if trace & 0x0080_0000 != 0 && rarely(rng, 2) && nodes.len() >= 4 {
        // The newest node is the reporter.
        nodes[..4].copy_from_slice(&(0x4000_0000 | REPORTER).to_be_bytes());
    }
    let free = if kind == 0 { rng.below(3) } else { 0 };
    // Reserved, option type, namespace 1, node length in the upper five bits, free words.
    let mut data = vec![0, kind, 0, 1, (len as u8) << 3, free as u8];
    if kind == 4 {
        data[4..6].copy_from_slice(&[0, pick(rng, &[0, 0x80, 0xc0])]);
    }
    data.extend(&trace.to_be_bytes()[1..]);
    data.push(0);
    data.extend(vec![0; free * 4]);
    data.extend(nodes);
    if rarely(rng, 8) {
        data.pop();
    }
    data.truncate(255);
    out.extend([pick(rng, &[0x31, 0x11]), data.len() as u8]);
    out.extend(data);
}

/// Generates an IP protocol number and its payload.
fn transport(rng: &mut Rng, depth: usize) -> (u8, Vec<u8>) {
    if depth > MAX_DEPTH {
        return (1, vec![0; 8]);
    }
    let depth = depth + 1;
    match rng.below(16) {
        0 | 1 => (6, tcp(rng)),
        2 => (47, gre(rng, depth)),
        3 => (4, ipv4(rng, depth)),
        4 => (41, ipv6(rng, depth)),
        5 => (pick(rng, &[33, 132, 136, 1]), vec![7; 6]),
        _ => (17, udp(rng, depth)),
    }
}

const TUNNEL_PORTS: [u16; 6] = [4789, 4790, 6081, 8472, 2152, VXLAN_PORT];

fn udp(rng: &mut Rng, depth: usize) -> Vec<u8> {
    let dst_port = pick(
        rng,
        &[
            9000, 9000, 33122, 33122, 4789, 4790, 6081, 8472, 32766, 5000, 2152, VXLAN_PORT,
        ],
    );
    let mut body = Vec::new();
    let mut inner = dst_port;
    if dst_port == 33122 || !rarely(rng, 3) {
        if rarely(rng, 8) {
            body.extend(MARKER.to_be_bytes());
        }
        inner = shim(rng, &mut body, dst_port);
    }
    match inner {
        4789 | 8472 | VXLAN_PORT => body.extend(vxlan(rng, depth)),
        2152 => body.extend(gtp(rng, depth)),
        4790 => gpe(rng, depth, &mut body),
        6081 => geneve(rng, depth, &mut body),
        32766 if !rarely(rng, 3) => body.extend(nested(rng)),
        _ => body.extend(vec![0xab; rng.below(24)]),
    }
    let mut out = vec![0x40, 0];
    out.extend(dst_port.to_be_bytes());
    out.extend(about(rng, 8 + body.len()).to_be_bytes());
    out.extend([0, 0]);
    out.extend(body);
    if rarely(rng, 12) {
        out.truncate(rng.below(12));
    }
    out
}

/// Generates the start of a report inside a reported packet, or something similar.
fn nested(rng: &mut Rng) -> Vec<u8> {
    let mut out = vec![
        pick(rng, &[0, 1, 4, 0x14, 0x11, 0x20, 0x30]),
        rng.below(4) as u8 * 0x40,
    ];
    let count = rng.below(9);
    out.extend([0, 1]);
    put_words(rng, &mut out, count);
    out
}

fn tcp(rng: &mut Rng) -> Vec<u8> {
    let words = pick(rng, &[5, 5, 5, 6, 8, 2]);
    let mut out = vec![
        0x40,
        1,
        0,
        80,
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        1,
        words << 4,
        0x10,
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    if rarely(rng, 2) {
        out.resize((usize::from(words) * 4).max(20), 1);
    }
    if !rarely(rng, 3) {
        if rarely(rng, 8) {
            out.extend(MARKER.to_be_bytes());
        }
        shim(rng, &mut out, 80);
    }
    out.extend(vec![0xcd; rng.below(12)]);
    out
}

fn gre(rng: &mut Rng, depth: usize) -> Vec<u8> {
    if rarely(rng, 5) {
        return erspan(rng, depth);
    }
    let flags = pick(rng, &[0_u8, 0, 0, 0x20, 0xb0, 0x40]);
    let version = if rarely(rng, 12) { 1 } else { 0 };
    let mut out = vec![flags, version];
    let extra = (flags & 0xb0).count_ones() as usize * 4;
    if rarely(rng, 2) {
        out.extend([0x88, 0xb6]);
        out.extend(vec![9; extra]);
        let (ethertype, body) = announced(rng, depth);
        let [high, low] = ethertype.to_be_bytes();
        shim_2(rng, &mut out, |_| [0x08, high, low]);
        out.extend(body);
    } else {
        let (ethertype, body) = announced(rng, depth);
        out.extend(ethertype.to_be_bytes());
        out.extend(vec![9; extra]);
        out.extend(body);
    }
    out
}

fn vxlan(rng: &mut Rng, depth: usize) -> Vec<u8> {
    let mut out = vec![8, 0, 0, 0, 0, 0, 1, 0];
    out.extend(ethernet(rng, depth));
    out
}

/// VXLAN-GPE with a chain of INT shims; each shim's next protocol announces the one behind it.
fn gpe(rng: &mut Rng, depth: usize, out: &mut Vec<u8>) {
    let chain = pick(rng, &[0, 0, 1, 1, 1, 2, 9]);
    let last = pick(rng, &[1_u8, 2, 3, 3, 4]);
    let mut codes: Vec<u8> = (0..chain).map(|_| pick(rng, &[0x05, 0x08, 0x80, 0x82])).collect();
    codes.push(last);
    out.extend([if rarely(rng, 8) { 8 } else { 0x0c }, 0, 0, codes[0], 0, 0, 1, 0]);
    for pair in codes.windows(2) {
        let next = pair[1];
        match pair[0] {
            0x05 => shim_1(rng, out, (0x01, next), 5, 0),
            0x08 => shim_1(rng, out, (0x01, next), 10, 0),
            _ => shim_2(rng, out, |_| [0, 0x80, next]),
        }
    }
    out.extend(match last {
        1 => ipv4(rng, depth),
        2 => ipv6(rng, depth),
        _ => ethernet(rng, depth),
    });
}

/// Geneve with up to two options, of which some are INT.
fn geneve(rng: &mut Rng, depth: usize, out: &mut Vec<u8>) {
    let mut options = Vec::new();
    for _ in 0..rng.below(3) {
        let class = pick(rng, &[0x0103_u16, 0x00ab, 0x00ab, 0x1234]);
        let kind = pick(rng, &[1_u8, 1, 1, 3, 2, 4]);
        let mut data = Vec::new();
        match pick(rng, &[2, 2, 10, 5, 0]) {
            2 => int_2(rng, &mut data, 3),
            10 => int_10(rng, &mut data, 3),
            5 => int_05(rng, &mut data, 3),
            _ => data.extend(vec![0; rng.below(3) * 4]),
        }
        let words = if rarely(rng, 20) {
            31
        } else {
            (data.len() / 4).min(31) as u8
        };
        data.truncate(124);
        options.extend(class.to_be_bytes());
        options.extend([kind, words]);
        options.extend(data);
    }
    options.truncate(252);
    let (protocol, body) = announced(rng, depth);
    let first = if rarely(rng, 20) {
        rng.roll() as u8
    } else {
        (options.len() / 4) as u8
    };
    let [high, low] = protocol.to_be_bytes();
    out.extend([first, 0, high, low, 0, 0, 1, 0]);
    out.extend(options);
    out.extend(body);
}

/// Generates a shim after L4 and INT. Returns the destination port that the packet had before INT was added.
fn shim(rng: &mut Rng, out: &mut Vec<u8>, dst_port: u16) -> u16 {
    match rng.below(10) {
        0..=2 => {
            let tail = pick(rng, &[0, 1, 1, 2, 4]);
            let kind = pick(rng, &[1, 1, 1, 3, 2]);
            shim_1(rng, out, (kind, 0), 5, tail);
            dst_port
        }
        3..=5 => {
            let kind = pick(rng, &[1, 1, 1, 1, 2]);
            shim_1(rng, out, (kind, 0), 10, 0);
            dst_port
        }
        _ => {
            let port = if rarely(rng, 2) {
                pick(rng, &TUNNEL_PORTS)
            } else {
                9000
            };
            let npt = if dst_port == 33122 {
                pick(rng, &[1, 1, 1, 2, 0, 3])
            } else {
                pick(rng, &[0, 0, 0, 0, 1])
            };
            let [high, low] = match npt {
                1 => port.to_be_bytes(),
                2 => [0, pick(rng, &[6, 17, 132])],
                _ => [0, 0],
            };
            shim_2(rng, out, |_| [npt << 2, high, low]);
            if npt == 1 { port } else { dst_port }
        }
    }
}

/// The shim of INT 0.5 (with `tail` words after the stack) or 1.0; `kind` and `last` are its first and last byte.
fn shim_1(rng: &mut Rng, out: &mut Vec<u8>, (kind, last): (u8, u8), version: u8, tail: usize) {
    let mut int = Vec::new();
    let hops = hops(rng);
    if version == 5 {
        int_05(rng, &mut int, hops);
    } else {
        int_10(rng, &mut int, hops);
    }
    let behind = [6, pick(rng, &[0, 0x23]), pick(rng, &[0, 0x28, 0xb5]), 0].repeat(tail);
    let words = (int.len() + behind.len()) / 4 + 1;
    let words = if rarely(rng, 30) {
        rng.below(words + 3)
    } else {
        words
    };
    // Destination-type INT: decoders read only the length.
    let words = if kind == 2 && rarely(rng, 3) { 0 } else { words };
    out.extend([kind, 0, words.min(255) as u8, last]);
    out.extend(int);
    // host-int removes the tail but leaves the length.
    if !rarely(rng, 6) {
        out.extend(behind);
    }
}

/// The shim of INT 2.x. `rest` returns the low bits of byte 0, and bytes 2 and 3.
fn shim_2(rng: &mut Rng, out: &mut Vec<u8>, rest: impl Fn(u8) -> [u8; 3]) {
    let kind = pick(rng, &[1_u8, 1, 1, 1, 3, 2, 4, 4, 5]);
    let mut int = Vec::new();
    let hops = hops(rng);
    if (kind == 4) != rarely(rng, 40) {
        int_sf(rng, &mut int);
    } else {
        int_2(rng, &mut int, hops);
    }
    let [low, second, third] = rest(kind);
    let words = if rarely(rng, 30) {
        rng.below(60)
    } else {
        int.len() / 4
    };
    out.extend([kind << 4 | low, words.min(255) as u8, second, third]);
    out.extend(int);
}

fn hops(rng: &mut Rng) -> usize {
    pick(rng, &[0, 1, 1, 2, 3, 6, 15, 16, 17])
}

/// Returns an instruction bitmap, often one that deployments use.
fn bitmap(rng: &mut Rng) -> u16 {
    let any = rng.roll() as u16;
    pick(
        rng,
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

fn int_2(rng: &mut Rng, out: &mut Vec<u8>, hops: usize) {
    let bitmap = bitmap(rng);
    let base = bitmap.count_ones() + (bitmap & 0x0e00).count_ones();
    let domain = rarely(rng, 4);
    let extra = if domain { rng.below(3) as u32 } else { 0 };
    let hop_ml = if rarely(rng, 20) {
        rng.below(32) as u32
    } else {
        (base + extra).min(31)
    };
    out.extend([
        0x20 | rng.below(16) as u8 & 0x0e,
        rng.roll() as u8,
        hop_ml as u8,
        7,
    ]);
    out.extend(bitmap.to_be_bytes());
    let (id, instruction) = if domain {
        (pick(rng, &[DOMAIN, 0x0abd]), 1_u16)
    } else {
        (0, 0)
    };
    for half in [id, instruction, 0] {
        out.extend(half.to_be_bytes());
    }
    let source_only = if domain { rng.below(4) } else { 0 };
    let fitting = (240 / hop_ml.max(1) as usize).min(hops);
    put_words(rng, out, fitting * hop_ml as usize + source_only);
}

/// INT 2.x with the flag that marks SF-INT, and mostly one or two records.
fn int_sf(rng: &mut Rng, out: &mut Vec<u8>) {
    let bitmap = bitmap(rng) & if rarely(rng, 8) { 0xffff } else { 0xfffe };
    let bitmap = bitmap | if rarely(rng, 8) { 0 } else { 0x8000 };
    let words = bitmap.count_ones() + (bitmap & 0x0e00).count_ones();
    let hop_ml = if rarely(rng, 20) {
        rng.below(32) as u32
    } else {
        words
    };
    let second = if rarely(rng, 10) {
        rng.roll() as u8
    } else {
        pick(rng, &[0x20, 0x40, 0x60, 0xc0])
    };
    out.extend([0x21 | rng.below(16) as u8, second, hop_ml as u8, 7]);
    out.extend(bitmap.to_be_bytes());
    out.extend([
        0,
        rng.below(4) as u8,
        0,
        u8::from(rarely(rng, 30)),
        0,
        u8::from(rarely(rng, 30)),
    ]);
    let odd = if rarely(rng, 20) { 1 } else { 0 };
    let records = pick(rng, &[1, 1, 1, 1, 2, 2, 0, 3]).min(240 / hop_ml.max(1) as usize);
    put_words(rng, out, records * hop_ml as usize + odd);
}

fn int_10(rng: &mut Rng, out: &mut Vec<u8>, hops: usize) {
    let bitmap = bitmap(rng);
    // Dialects of 1.0 differ in which items have eight bytes: the level 2 interfaces, the timestamps, or none.
    let wide = pick(rng, &[0x0200, 0x0200, 0x0c00, 0]);
    let words = bitmap.count_ones() + (bitmap & wide).count_ones();
    let hop_ml = if rarely(rng, 20) {
        rng.below(32) as u32
    } else {
        words
    };
    let version = if rarely(rng, 6) { 0 } else { 0x10 };
    out.extend([
        version | rng.below(4) as u8,
        rng.roll() as u8 & 0x9f,
        hop_ml as u8,
        7,
    ]);
    out.extend(bitmap.to_be_bytes());
    out.extend([0, 9]);
    let fitting = (240 / hop_ml.max(1) as usize).min(hops);
    put_words(rng, out, fitting * hop_ml as usize);
}

fn int_05(rng: &mut Rng, out: &mut Vec<u8>, hops: usize) {
    let bitmap = bitmap(rng);
    let words = bitmap.count_ones();
    let count = if rarely(rng, 20) {
        rng.below(32) as u32
    } else {
        words
    };
    let fitting = (240 / words.max(1) as usize).min(hops);
    let most = if rarely(rng, 20) {
        rng.below(8)
    } else {
        16 + fitting
    };
    out.extend([rng.below(4) as u8, count as u8, most as u8, fitting as u8]);
    out.extend(bitmap.to_be_bytes());
    out.extend([0, 0]);
    put_words(rng, out, fitting * words as usize);
}

/// Generates a frame around a datagram: VLAN tags, MPLS, and IPv4 or IPv6 with options or extension headers, mostly valid.
pub fn frame(rng: &mut Rng, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![2; 12];
    for _ in 0..pick(rng, &[0, 0, 0, 1, 2, 8, 9]) {
        out.extend(pick(rng, &[[0x81, 0], [0x88, 0xa8], [0x91, 0]]));
        out.extend([0, 5]);
    }
    let v6 = rarely(rng, 2);
    if rarely(rng, 5) {
        out.extend([0x88, 0x47, 0, 1, 1, 64]);
    } else {
        out.extend(if v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
    }
    let dst_port = pick(rng, &[32766, 32766, 32766, 32766, 9000, 53_u16]);
    let mut udp = vec![0x40, 0];
    udp.extend(dst_port.to_be_bytes());
    udp.extend(about(rng, 8 + payload.len()).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    out.extend(if v6 {
        outer_v6(rng, &udp)
    } else {
        outer_v4(rng, &udp)
    });
    if rarely(rng, 8) {
        out.truncate(rng.below(out.len()).max(14));
    }
    if rarely(rng, 8) {
        rng.corrupt(&mut out);
        out.resize(out.len().max(14), 0);
    }
    out
}

fn outer_v4(rng: &mut Rng, udp: &[u8]) -> Vec<u8> {
    let options = if rarely(rng, 4) { rng.below(11) } else { 0 };
    let total = (20 + options * 4 + udp.len()) as u16;
    let total = if rarely(rng, 12) {
        rng.below(60) as u16
    } else {
        total
    }
    .to_be_bytes();
    let fragment = pick(rng, &[0_u16, 0x4000, 0x4000, 0x4000, 0x2000, 0x0007]).to_be_bytes();
    let proto = if rarely(rng, 12) { 6 } else { 17 };
    let mut out = vec![
        0x45 + options as u8,
        0,
        total[0],
        total[1],
        0,
        1,
        fragment[0],
        fragment[1],
        64,
        proto,
    ];
    out.extend([0, 0, 192, 0, 2, rng.below(9) as u8, 192, 0, 2, 100]);
    out.extend(vec![1; options * 4]);
    out.extend(udp);
    out
}

fn outer_v6(rng: &mut Rng, udp: &[u8]) -> Vec<u8> {
    let mut proto = if rarely(rng, 12) { 58_u8 } else { 17 };
    let mut body = udp.to_vec();
    for _ in 0..pick(rng, &[0, 0, 0, 1, 2, 7, 8]) {
        let next = proto;
        proto = pick(rng, &[0, 60, 43, 44, 51, 135]);
        let units = rng.below(4);
        let size = match proto {
            44 => 8,
            51 => 8 + units * 4,
            _ => 8 + units * 8,
        };
        let mut header = vec![0; size];
        header[0] = next;
        header[1] = units as u8;
        if proto == 44 && rarely(rng, 6) {
            header[3] = pick(rng, &[1, 8, 9]);
        }
        body = [header, body].concat();
    }
    let len = if rarely(rng, 12) {
        rng.below(60)
    } else {
        body.len()
    };
    let mut out = vec![0x60, 0, 0, 0];
    out.extend((len as u16).to_be_bytes());
    out.extend([proto, 64]);
    out.extend([
        0x20,
        1,
        0x0d,
        0xb8,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        rng.below(9) as u8,
    ]);
    out.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100]);
    out.extend(body);
    out
}
