use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::*;
use crate::netns::{Namespace, Pair, tests::skipped};
use crate::source::{Source, Stats};
use crate::udp::Sender;
use wire::{Refusal, RefusalCounts};

/// Runs the classic BPF program of [`filter`] on a received frame, as the kernel would.
fn accepts(program: &[libc::sock_filter], frame: &[u8]) -> bool {
    accepts_of_type(libc::PACKET_HOST, program, frame)
}

/// Runs the program on a frame of this packet type.
fn accepts_of_type(kind: u8, program: &[libc::sock_filter], frame: &[u8]) -> bool {
    const PACKET_TYPE: usize = 0xffff_f004;
    let (mut a, mut x, mut at) = (0_u32, 0_u32, 0);
    let load = |from: usize, len: usize| {
        if from == PACKET_TYPE {
            return Some(u32::from(kind));
        }
        let bytes = frame.get(from..from + len)?;
        Some(bytes.iter().fold(0, |value, &byte| value << 8 | u32::from(byte)))
    };
    for _ in 0..program.len() {
        let libc::sock_filter { code, jt, jf, k } = program[at];
        let from = k as usize;
        at += 1;
        let loaded = match code {
            0x30 => load(from, 1),
            0x28 => load(from, 2),
            0x48 => load(from + x as usize, 2),
            0xb1 => load(from, 1),
            0x64 => Some(a << k),
            0x07 => Some(a),
            0x15 | 0x45 => {
                let yes = if code == 0x15 { a == k } else { a & k != 0 };
                at += usize::from(if yes { jt } else { jf });
                continue;
            }
            0x06 => return k != 0,
            other => panic!("instruction {other:#x}"),
        };
        // A load beyond the frame ends the program, and nothing is accepted.
        let Some(loaded) = loaded else { return false };
        match code {
            0xb1 => x = (loaded & 15) * 4,
            0x07 => x = loaded,
            _ => a = loaded,
        }
    }
    panic!("a program that does not end")
}

/// An Ethernet header with these VLAN tags, then `packet`.
fn ethernet(tags: &[u16], ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    for tpid in tags {
        frame.extend(tpid.to_be_bytes());
        frame.extend([0, 5]);
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    frame
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len() as u16;
    [
        &[0x30, 0x39][..],
        &port.to_be_bytes(),
        &len.to_be_bytes(),
        &[0, 0],
        payload,
    ]
    .concat()
}

fn ipv4(options: usize, fragment: u16, protocol: u8, body: &[u8]) -> Vec<u8> {
    let len = (20 + options + body.len()) as u16;
    let mut packet = vec![0x45 + (options / 4) as u8, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([0, 1]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(addresses(4));
    // No-operation options.
    packet.extend(vec![1; options]);
    packet.extend(body);
    packet
}

fn ipv6(next: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((body.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    packet.extend(addresses(16));
    packet.extend(body);
    packet
}

/// The addresses of the near and the far side, in this order.
fn addresses(len: usize) -> Vec<u8> {
    let bytes = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    [Pair::NEAR, Pair::FAR]
        .into_iter()
        .flatten()
        .map(bytes)
        .filter(|bytes| bytes.len() == len)
        .flatten()
        .collect()
}

#[test]
fn the_filter_picks_datagrams_to_the_ports() {
    let program = filter::telemetry(&[5555, 6666]);
    let accepted = |frame: &[u8]| accepts(&program, frame);
    for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100], &[0x9100, 0x8100, 0x8100]] {
        let frame = |port| ethernet(tags, 0x0800, &ipv4(0, 0, 17, &udp(port, b"report")));
        assert!(
            accepted(&frame(5555)) && accepted(&frame(6666)) && !accepted(&frame(5556)),
            "{tags:x?}"
        );
        let frame = |port| ethernet(tags, 0x0800, &ipv4(12, 0x4000, 17, &udp(port, b"report")));
        assert!(accepted(&frame(5555)) && !accepted(&frame(7777)), "{tags:x?}");
        let frame = |port| ethernet(tags, 0x86dd, &ipv6(17, &udp(port, b"report")));
        assert!(accepted(&frame(6666)) && !accepted(&frame(7777)), "{tags:x?}");
        let behind = |next: u8, port| [&[next, 0, 1, 4, 0, 0, 0, 0][..], &udp(port, b"report")].concat();
        assert!(accepted(&ethernet(tags, 0x86dd, &ipv6(60, &behind(17, 5555)))));
        assert!(!accepted(&ethernet(tags, 0x86dd, &ipv6(60, &behind(17, 7777)))));
        assert!(!accepted(&ethernet(tags, 0x86dd, &ipv6(0, &behind(58, 5555)))));
        // After two extension headers the port is unknown: accepted.
        assert!(accepted(&ethernet(tags, 0x86dd, &ipv6(0, &behind(60, 7777)))));
        let fragment = |offset: u8| [&[17, 0, 0, offset, 0, 0, 0, 0][..], &udp(5555, b"report")].concat();
        assert!(accepted(&ethernet(tags, 0x86dd, &ipv6(44, &fragment(1)))));
        assert!(!accepted(&ethernet(tags, 0x86dd, &ipv6(44, &fragment(9)))));
        assert!(!accepted(&ethernet(tags, 0x86dd, &ipv6(6, &udp(5555, b"tcp")))));
        assert!(!accepted(&ethernet(
            tags,
            0x0800,
            &ipv4(0, 0, 6, &udp(5555, b"tcp"))
        )));
    }
    assert!(!accepted(&ethernet(
        &[0x8100; 4],
        0x0800,
        &ipv4(0, 0, 17, &udp(5555, b"report"))
    )));
    // The first fragment is accepted, so that it can be counted; those without ports are not.
    assert!(accepted(&ethernet(
        &[],
        0x0800,
        &ipv4(0, 0x2000, 17, &udp(5555, b"report"))
    )));
    assert!(!accepted(&ethernet(
        &[],
        0x0800,
        &ipv4(0, 0x2001, 17, &udp(5555, b"report"))
    )));
    assert!(!accepted(&ethernet(&[], 0x0806, &[0; 46])));
    let whole = ethernet(&[0x8100], 0x0800, &ipv4(8, 0, 17, &udp(5555, b"report")));
    for end in 0..whole.len() {
        // Nothing is read beyond a frame's end; the port ends at 14 + 4 + 28 + 4.
        assert_eq!(accepted(&whole[..end]), end >= 50, "{end}");
    }
}

#[test]
fn the_filter_rejects_what_this_machine_sends() {
    let program = filter::telemetry(&[5555]);
    let frame = ethernet(&[], 0x0800, &ipv4(0, 0, 17, &udp(5555, b"report")));
    // To this machine, to all, to a group, to another machine (in promiscuous mode), from this machine.
    let accepted = [0, 1, 2, 3, 4].map(|kind| accepts_of_type(kind, &program, &frame));
    assert_eq!(accepted, [true, true, true, true, false]);
}

#[test]
fn the_longest_program_has_no_jump_too_long() {
    let ports: Vec<u16> = (1..=32).collect();
    let program = filter::telemetry(&ports);
    assert!(program.len() <= 255, "{}", program.len());
    let frame = |port| ethernet(&[], 0x0800, &ipv4(0, 0, 17, &udp(port, b"")));
    assert!(accepts(&program, &frame(32)) && !accepts(&program, &frame(33)));
    // More ports than the filter can list: it accepts all, and they are checked afterwards.
    let ports: Vec<u16> = (1..=33).collect();
    assert!(accepts(&filter::telemetry(&ports), &frame(9999)));
    assert!(!accepts(&filter::NOTHING, &frame(64)));
}

/// A pair and a ring on its far side.
fn opened(options: &Options) -> Result<(Pair, Ring), crate::Error> {
    let pair = Pair::create()?;
    let ring = pair.far.run(|| Ring::open("veth0", options))??;
    Ok((pair, ring))
}

/// Receives until `count` have arrived, or no more arrive.
fn receive(ring: &mut Ring, count: usize) -> Vec<(Vec<u8>, SocketAddr, bool)> {
    let mut found = Vec::new();
    for _ in 0..200 {
        ring.receive(20, &mut |packets| {
            found.extend(
                packets
                    .iter()
                    .map(|packet| (packet.data.to_vec(), packet.source, packet.truncated)),
            );
        })
        .unwrap();
        if found.len() >= count {
            break;
        }
    }
    found
}

/// Sends frames as they are from the near side.
fn send_raw(near: &Namespace, frames: &[Vec<u8>]) {
    near.run(|| crate::netns::send_frames("veth0", frames))
        .unwrap()
        .unwrap();
}

#[test]
fn datagrams_of_both_families_and_in_tags_arrive_and_others_do_not() {
    let options = Options {
        ports: vec![5555],
        ring: 4 << 20,
        ..Options::default()
    };
    let (pair, mut ring) = match opened(&options) {
        Ok(opened) => opened,
        Err(error) => return skipped(&error),
    };
    let datagram = |text: &str| udp(5555, text.as_bytes());
    let destination_options = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &datagram("extension")].concat();
    let frames = [
        ethernet(&[], 0x0800, &ipv4(0, 0, 17, &datagram("v4"))),
        ethernet(&[], 0x86dd, &ipv6(17, &datagram("v6"))),
        ethernet(&[0x8100], 0x0800, &ipv4(8, 0, 17, &datagram("vlan, options"))),
        ethernet(&[0x88a8, 0x8100], 0x86dd, &ipv6(17, &datagram("qinq"))),
        ethernet(&[], 0x86dd, &ipv6(60, &destination_options)),
        ethernet(&[], 0x0800, &ipv4(0, 0, 17, &udp(5556, b"another port"))),
        // A later fragment alone is ignored; a datagram whose lengths contradict each other is counted.
        ethernet(
            &[],
            0x0800,
            &ipv4(0, 0, 17, &[0x30, 0x39, 0x15, 0xb3, 0, 99, 0, 0, 1]),
        ),
        ethernet(&[], 0x0800, &ipv4(0, 0, 17, &datagram("last"))),
    ];
    send_raw(&pair.near, &frames);
    let [v4, v6] = Pair::NEAR.map(|address| SocketAddr::new(address, 12345));
    let expected = [
        ("v4", v4),
        ("v6", v6),
        ("vlan, options", v4),
        ("qinq", v6),
        ("extension", v6),
        ("last", v4),
    ];
    let expected = expected.map(|(text, source)| (text.as_bytes().to_vec(), source, false));
    let found = receive(&mut ring, 6);
    let stats = ring.stats();
    assert_eq!(found, expected, "{stats:?}");
    let mut refused = RefusalCounts::default();
    refused[Refusal::BadUdpLength.index()] = 1;
    let bytes = expected.iter().map(|(data, ..)| data.len() as u64).sum();
    assert_eq!(
        stats,
        Stats {
            datagrams: 6,
            bytes,
            refused,
            bursts: stats.bursts,
            ..Stats::default()
        }
    );
}

#[test]
fn a_wrong_checksum_is_counted_and_none_is_right() {
    let options = Options {
        ports: vec![5555],
        ring: 4 << 20,
        ..Options::default()
    };
    let (pair, mut ring) = match opened(&options) {
        Ok(opened) => opened,
        Err(error) => return skipped(&error),
    };
    let summed = |len: usize, payload: &[u8]| {
        let mut segment = udp(5555, payload);
        let sum = wire::checksum::transport(&addresses(len), 17, &segment);
        segment[6..8].copy_from_slice(&sum.to_be_bytes());
        segment
    };
    let damaged = |mut segment: Vec<u8>| {
        segment[9] ^= 0x10;
        segment
    };
    let frames = [
        ethernet(&[], 0x0800, &ipv4(0, 0, 17, &summed(4, b"v4"))),
        ethernet(&[], 0x0800, &ipv4(0, 0, 17, &damaged(summed(4, b"v4")))),
        ethernet(&[0x8100], 0x86dd, &ipv6(17, &summed(16, b"v6, odd"))),
        ethernet(&[0x8100], 0x86dd, &ipv6(17, &damaged(summed(16, b"v6, odd")))),
        ethernet(&[], 0x0800, &ipv4(8, 0, 17, &udp(5555, b"none"))),
    ];
    send_raw(&pair.near, &frames);
    let found: Vec<_> = receive(&mut ring, 3).into_iter().map(|(data, ..)| data).collect();
    assert_eq!(found, [&b"v4"[..], b"v6, odd", b"none"]);
    let stats = ring.stats();
    assert_eq!((stats.datagrams, stats.bad_checksum, stats.lost()), (3, 2, 2));
}

#[test]
fn fragments_are_put_together_and_segments_taken_apart() {
    let options = Options {
        ports: vec![5555],
        ring: 4 << 20,
        ..Options::default()
    };
    let (pair, mut ring) = match opened(&options) {
        Ok(opened) => opened,
        Err(error) => return skipped(&error),
    };
    let (near, far) = (
        SocketAddr::new(Pair::NEAR[0], 0),
        SocketAddr::new(Pair::FAR[0], 5555),
    );
    let mut sender = pair.near.run(|| Sender::connect(near, far)).unwrap().unwrap();
    let source = sender.local_addr().unwrap();
    let long: Vec<u8> = (0..4000_u32).map(|n| n as u8).collect();
    sender.send_burst(&[&long]).unwrap();
    assert_eq!(receive(&mut ring, 1), [(long.clone(), source, false)]);
    // Eight of 500 bytes, as one.
    sender.send_segments(&long, 500).unwrap();
    let expected: Vec<_> = long
        .chunks(500)
        .map(|data| (data.to_vec(), source, false))
        .collect();
    assert_eq!(receive(&mut ring, 8), expected);
}

#[test]
fn datagrams_that_this_machine_sends_are_not_received() {
    let options = Options {
        ports: vec![5555],
        ring: 4 << 20,
        ..Options::default()
    };
    let (pair, mut ring) = match opened(&options) {
        Ok(opened) => opened,
        Err(error) => return skipped(&error),
    };
    let [near, far] = [Pair::NEAR[0], Pair::FAR[0]].map(|address| SocketAddr::new(address, 0));
    let to = |address: SocketAddr| SocketAddr::new(address.ip(), 5555);
    // One that fits into a frame, and one in fragments, which the kernel reassembles.
    let long = vec![7; 4000];
    let mut outgoing = pair.far.run(|| Sender::connect(far, to(near))).unwrap().unwrap();
    outgoing.send_burst(&[b"outgoing", &long]).unwrap();
    let mut incoming = pair.near.run(|| Sender::connect(near, to(far))).unwrap().unwrap();
    incoming.send_burst(&[b"incoming", &long]).unwrap();
    let source = incoming.local_addr().unwrap();
    let expected = [b"incoming".to_vec(), long].map(|data| (data, source, false));
    assert_eq!(receive(&mut ring, 3), expected);
}

#[test]
fn the_stack_sends_no_reply_and_other_traffic_passes() {
    let options = Options {
        ports: vec![5555],
        ring: 4 << 20,
        ..Options::default()
    };
    let (pair, mut ring) = match opened(&options) {
        Ok(opened) => opened,
        Err(error) => return skipped(&error),
    };
    let sender = pair
        .near
        .run(|| UdpSocket::bind((Pair::NEAR[0], 0)))
        .unwrap()
        .unwrap();
    sender.connect((Pair::FAR[0], 5555)).unwrap();
    for _ in 0..3 {
        // After an answer "port unreachable" the next send fails.
        sender.send(b"report").unwrap();
        assert_eq!(receive(&mut ring, 1).len(), 1);
    }
    let other = pair
        .far
        .run(|| UdpSocket::bind((Pair::FAR[0], 7777)))
        .unwrap()
        .unwrap();
    sender.send_to(b"other", (Pair::FAR[0], 7777)).unwrap();
    let mut buffer = [0; 16];
    other
        .set_read_timeout(Some(std::time::Duration::from_secs(5)))
        .unwrap();
    assert_eq!(other.recv(&mut buffer).unwrap(), 5);
    let taken = pair
        .far
        .run(|| Ring::open("veth0", &options))
        .unwrap()
        .unwrap_err();
    assert!(
        taken
            .to_string()
            .contains("another program listens on UDP port 5555"),
        "{taken}"
    );
}

#[test]
fn under_overload_what_was_sent_is_handed_out_or_counted() {
    // Two blocks, and no reader.
    let options = Options {
        ports: vec![5555],
        ring: 0,
        ..Options::default()
    };
    let (pair, mut ring) = match opened(&options) {
        Ok(opened) => opened,
        Err(error) => return skipped(&error),
    };
    let (near, far) = (
        SocketAddr::new(Pair::NEAR[0], 0),
        SocketAddr::new(Pair::FAR[0], 5555),
    );
    let mut sender = pair.near.run(|| Sender::connect(near, far)).unwrap().unwrap();
    let before = pair.link_drops().unwrap();
    let payload = vec![7; 1000];
    let burst: Vec<&[u8]> = vec![&payload; 64];
    let sent: usize = (0..100).map(|_| sender.send_burst(&burst).unwrap()).sum();
    let received = receive(&mut ring, sent).len();
    let stats = ring.stats();
    let on_the_link = pair.link_drops().unwrap() - before;
    assert_eq!(
        received as u64 + stats.lost() + on_the_link,
        sent as u64,
        "{stats:?} {on_the_link}"
    );
    assert!(stats.ring_full > 0 && received > 0, "{stats:?}");
    assert_eq!(stats.datagrams, received as u64);
}

#[test]
fn an_interface_that_goes_away_is_an_error() {
    let options = Options {
        ports: vec![5555],
        ring: 0,
        ..Options::default()
    };
    let (pair, mut ring) = match opened(&options) {
        Ok(opened) => opened,
        Err(error) => return skipped(&error),
    };
    pair.far.ip(&["link", "delete", "veth0"]).unwrap();
    let error = (0..10).find_map(|_| ring.receive(20, &mut |_| {}).err()).unwrap();
    assert_eq!(error.errno(), Some(libc::ENETDOWN));
    let missing = pair
        .far
        .run(|| Ring::open("veth0", &options))
        .unwrap()
        .unwrap_err();
    assert_eq!(missing.errno(), Some(libc::ENODEV));
}
