//! The router in simulated time, frame by frame.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::ethernet::{self, ethertype};
use wire::{checksum, ipv4, ipv6, tcp, udp};

use super::*;
use crate::watchlist::{Mode, Watch};

mod intercept;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const HOST: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// The sent frames in order, with their ports.
#[derive(Default)]
struct Sent(Vec<(usize, Vec<u8>)>);

impl Wires for Sent {
    fn send(&mut self, port: usize, frame: &mut Vec<u8>) {
        self.0.push((port, std::mem::take(frame)));
    }
}

impl Sent {
    fn take(&mut self) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut self.0)
    }

    fn one(&mut self) -> (usize, Vec<u8>) {
        assert_eq!(self.0.len(), 1, "{:?}", self.0);
        self.0.remove(0)
    }
}

fn v4(last: u8, net: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, net, last)
}

fn v6(last: u16, net: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, net, 0, 0, 0, last)
}

/// Port 1 (index 0): hosts of net 1. Port 2: a switch, behind it net 2. Port 3: hosts of net 3.
fn config() -> Config {
    let port = |number, edge| Port {
        edge,
        ..Port::new(number, Port::mac_for(11, number))
    };
    let route = |to: &str, port| Route {
        to: to.parse().unwrap(),
        port,
        via: None,
    };
    let routes = [1, 2, 3].map(|net| {
        [
            route(&format!("10.0.{net}.0/24"), net),
            route(&format!("fd00:0:0:{net}::/64"), net),
        ]
    });
    Config {
        node: 11,
        switch: switch::Config::default(),
        watchlist: Watchlist::default(),
        ports: vec![port(1, true), port(2, false), port(3, true)],
        routes: routes.concat(),
        address: Ipv4Addr::new(192, 0, 0, 8),
        address6: v6(11, 99),
        seed: 1,
        intercept: Vec::new(),
    }
}

fn router(config: Config) -> Router {
    Router::new(config).unwrap()
}

fn mac(number: u16) -> [u8; 6] {
    Port::mac_for(11, number)
}

/// A UDP packet with `len` bytes of payload, to port 1 of the switch.
fn udp_frame(src: IpAddr, dst: IpAddr, ports: (u16, u16), len: usize, hops: u8) -> Vec<u8> {
    let v6 = src.is_ipv6();
    let (ip, l4) = (14, 14 + if v6 { 40 } else { 20 });
    let mut frame = vec![0; l4 + 8 + len];
    let ethertype = if v6 { ethertype::IPV6 } else { ethertype::IPV4 };
    ethernet::Repr {
        dst: mac(1),
        src: HOST,
        ethertype,
    }
    .emit(&mut frame);
    let total = (8 + len) as u16;
    udp::Repr {
        src_port: ports.0,
        dst_port: ports.1,
        len: total,
        checksum: 0,
    }
    .emit(&mut frame[l4..]);
    frame[l4 + 8..]
        .iter_mut()
        .enumerate()
        .for_each(|(at, byte)| *byte = at as u8);
    match (src, dst) {
        (IpAddr::V4(s), IpAddr::V4(d)) => ipv4::Repr {
            src: s.octets(),
            dst: d.octets(),
            proto: 17,
            tos: 0,
            total_len: total + 20,
            ident: 7,
            fragment: 0x4000,
            ttl: hops,
            options: &[],
        }
        .emit(&mut frame[ip..]),
        (IpAddr::V6(s), IpAddr::V6(d)) => ipv6::Repr {
            src: s.octets(),
            dst: d.octets(),
            next_header: 17,
            hop_limit: hops,
            traffic_class: 0,
            flow_label: 0,
            payload_len: total,
        }
        .emit(&mut frame[ip..]),
        _ => panic!("two families"),
    }
    let addresses = frame[if v6 { ip + 8..ip + 40 } else { ip + 12..ip + 20 }].to_vec();
    udp::Packet::new_checked(&mut frame[l4..])
        .unwrap()
        .fill_checksum(&addresses);
    frame
}

fn from_1_to(net: u8, len: usize) -> Vec<u8> {
    udp_frame(v4(5, 1).into(), v4(6, net).into(), (1000, 2000), len, 64)
}

/// All checksums of a frame that has only IP and UDP or TCP are right.
fn assert_sound(frame: &[u8]) {
    let ip = packet::ip_of(frame).unwrap_or_else(|| panic!("{frame:02x?}"));
    let at = ip.at + if ip.dst.is_ipv6() { 8 } else { 12 };
    let addresses = &frame[at..ip.at + if ip.dst.is_ipv6() { 40 } else { 20 }];
    let segment = &frame[ip.at + ip.header..ip.at + ip.len];
    assert_eq!(
        checksum::transport(addresses, ip.proto, segment),
        0,
        "{frame:02x?}"
    );
}

fn assert_balanced(router: &Router) {
    assert!(
        router.stats().is_balanced(router.queued()),
        "{:?} queued {}",
        router.stats(),
        router.queued()
    );
}

fn arp(operation: u16, sender: ([u8; 6], Ipv4Addr), target: ([u8; 6], Ipv4Addr), dst: [u8; 6]) -> Vec<u8> {
    let mut frame = vec![0; 14];
    ethernet::Repr {
        dst,
        src: sender.0,
        ethertype: packet::ARP,
    }
    .emit(&mut frame);
    frame.extend([0, 1, 8, 0, 6, 4]);
    frame.extend(operation.to_be_bytes());
    for (mac, address) in [sender, target] {
        frame.extend(mac);
        frame.extend(address.octets());
    }
    frame
}

#[test]
fn a_packet_goes_to_the_next_switch_with_one_hop_less() {
    let (mut router, mut sent) = (router(config()), Sent::default());
    let frame = from_1_to(2, 100);
    router.receive(5, 0, &frame, 4, &mut sent);
    let (port, out) = sent.one();
    assert_eq!(
        (port, &out[..6], &out[6..12]),
        (1, &packet::PEER[..], &mac(2)[..])
    );
    let ip = packet::ip_of(&out).unwrap();
    assert_eq!((ip.hops, ip.len), (63, 128));
    assert_sound(&out);
    assert_eq!(out[34..], frame[34..], "payload and UDP are as they were");
    let frame = udp_frame(v6(5, 1).into(), v6(6, 2).into(), (1, 2), 10, 9);
    router.receive(6, 0, &frame, 6, &mut sent);
    let (port, out) = sent.one();
    assert_eq!((port, packet::ip_of(&out).unwrap().hops), (1, 8));
    assert_sound(&out);
    assert_eq!(
        (router.queued(), router.stats().received(), router.stats().sent()),
        (0, 2, 2)
    );
    assert_balanced(&router);
}

#[test]
fn arp_requests_for_any_address_get_a_reply() {
    let (mut router, mut sent) = (router(config()), Sent::default());
    let question = arp(
        1,
        (HOST, v4(5, 1)),
        ([0; 6], Ipv4Addr::new(169, 254, 1, 1)),
        [0xff; 6],
    );
    router.receive(1, 0, &question, 1, &mut sent);
    let (port, answer) = sent.one();
    let expected = arp(2, (mac(1), Ipv4Addr::new(169, 254, 1, 1)), (HOST, v4(5, 1)), HOST);
    assert_eq!((port, answer), (0, expected));
    assert_eq!(router.neighbours(), 1, "the asker is known from its question");
    // Duplicate address detection, a gratuitous announcement, and a request for a neighbour on the same link get no reply.
    let probe = arp(1, (OTHER, Ipv4Addr::UNSPECIFIED), ([0; 6], v4(7, 1)), [0xff; 6]);
    let announcement = arp(1, (OTHER, v4(7, 1)), ([0; 6], v4(7, 1)), [0xff; 6]);
    let to_neighbour = arp(1, (HOST, v4(5, 1)), ([0; 6], v4(7, 1)), [0xff; 6]);
    for question in [probe, announcement, to_neighbour] {
        router.receive(2, 0, &question, 2, &mut sent);
        assert_eq!(sent.take(), []);
    }
    // No requests are answered on a link between switches.
    router.receive(3, 1, &question, 3, &mut sent);
    assert_eq!((sent.take(), router.stats().dropped(Drop::NotIp)), (vec![], 1));
    assert_eq!(router.stats().consumed, 4);
    assert_balanced(&router);
}

#[test]
fn a_host_is_resolved_while_its_packets_are_queued() {
    let (mut router, mut sent) = (router(config()), Sent::default());
    let frame = from_1_to(3, 10);
    router.receive(0, 0, &frame, 0, &mut sent);
    let (port, question) = sent.one();
    let expected = arp(1, (mac(3), Ipv4Addr::UNSPECIFIED), ([0; 6], v4(6, 3)), [0xff; 6]);
    assert_eq!((port, question), (2, expected.clone()));
    router.receive(1, 0, &frame, 1, &mut sent);
    assert_eq!((sent.take(), router.queued()), (vec![], 2));
    // The request is repeated after a second.
    router.advance(SECOND, &mut sent);
    assert_eq!(sent.one(), (2, expected));
    let answer = arp(2, (OTHER, v4(6, 3)), (mac(3), Ipv4Addr::UNSPECIFIED), mac(3));
    router.receive(SECOND + 1, 2, &answer, SECOND + 1, &mut sent);
    let out = sent.take();
    assert_eq!(
        out.iter()
            .map(|(port, frame)| (*port, &frame[..6]))
            .collect::<Vec<_>>(),
        [(2, &OTHER[..]); 2]
    );
    assert_balanced(&router);
    router.advance(10 * SECOND, &mut sent);
    assert_eq!((sent.take(), router.queued()), (vec![], 0));
}

#[test]
fn packets_to_a_host_that_never_replies_are_dropped_and_the_sender_is_notified() {
    let (mut router, mut sent) = (router(config()), Sent::default());
    // The sender is known from its own packets, so that the error finds it.
    router.receive(0, 0, &from_1_to(3, 10), 0, &mut sent);
    (1..=3).for_each(|second| router.advance(second * SECOND, &mut sent));
    let out = sent.take();
    let ports: Vec<usize> = out.iter().map(|(port, _)| *port).collect();
    assert_eq!(ports, [2, 2, 2, 0], "three questions and an error");
    assert_eq!(&out[3].1[34..36], [3, 1], "host unreachable");
    assert_eq!(&out[3].1[..6], HOST);
    assert_eq!(
        (router.stats().dropped(Drop::Unresolved), router.queued()),
        (1, 0)
    );
    // At most 16 frames are queued for one host, and at most 256 hosts are resolved at once.
    (0..20).for_each(|_| router.receive(4 * SECOND, 0, &from_1_to(3, 10), 0, &mut sent));
    assert_eq!(
        (router.queued(), router.stats().dropped(Drop::Unresolved)),
        (16, 5)
    );
    for host in 0..300u16 {
        let frame = udp_frame(v6(5, 1).into(), v6(host, 3).into(), (1, 2), 0, 64);
        router.receive(4 * SECOND, 0, &frame, 0, &mut sent);
    }
    assert_eq!(router.queued(), 16 + 255);
    assert_balanced(&router);
}

#[test]
fn neighbour_solicitations_are_sent_and_get_replies() {
    let (mut router, mut sent) = (router(config()), Sent::default());
    // A packet for an unknown host causes a solicitation. Another switch replies to it on its edge port.
    let frame = udp_frame(v6(5, 1).into(), v6(6, 3).into(), (1, 2), 10, 9);
    router.receive(0, 0, &frame, 0, &mut sent);
    let (port, question) = sent.one();
    assert_eq!((port, &question[..6]), (2, &[0x33, 0x33, 0xff, 0, 0, 6][..]));
    assert_sound(&question);
    let mut second = self::router(Config { node: 12, ..config() });
    let mut other = Sent::default();
    second.receive(0, 2, &question, 0, &mut other);
    let (_, answer) = other.one();
    assert_sound(&answer);
    assert_eq!((&answer[..6], answer[54], answer[58]), (&mac(3)[..], 136, 0xc0));
    router.receive(1, 2, &answer, 1, &mut sent);
    let (port, out) = sent.one();
    assert_eq!((port, &out[..6]), (2, &Port::mac_for(11, 3)[..]));
    assert_balanced(&router);
    assert_balanced(&second);
    // Duplicate address detection has no source address, and gets no reply; nor does a wrong checksum.
    let mut detection = question.clone();
    detection[22..38].fill(0);
    second.receive(2, 2, &detection, 2, &mut other);
    assert_eq!(
        (other.take(), second.stats().dropped(Drop::Malformed)),
        (vec![], 1)
    );
}

#[test]
fn packets_that_cannot_be_forwarded_are_dropped_with_a_reason() {
    let (mut router, mut sent) = (router(config()), Sent::default());
    let good = from_1_to(2, 10);
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = good.clone();
        change(&mut frame);
        frame
    };
    let cases = [
        (
            changed(&|frame| frame[0..6].copy_from_slice(&OTHER)),
            Drop::NotForUs,
        ),
        (changed(&|frame| frame.truncate(13)), Drop::Malformed),
        (changed(&|frame| frame.truncate(30)), Drop::Malformed),
        (changed(&|frame| frame[24] ^= 1), Drop::Malformed),
        (
            changed(&|frame| frame[12..14].copy_from_slice(&[0x88, 0xcc])),
            Drop::NotIp,
        ),
        (
            udp_frame(
                v4(5, 1).into(),
                Ipv4Addr::new(224, 0, 0, 251).into(),
                (1, 2),
                3,
                9,
            ),
            Drop::LinkScope,
        ),
        (
            udp_frame(v4(5, 1).into(), Ipv4Addr::BROADCAST.into(), (1, 2), 3, 9),
            Drop::LinkScope,
        ),
        (
            udp_frame("fe80::1".parse().unwrap(), v6(6, 2).into(), (1, 2), 3, 9),
            Drop::LinkScope,
        ),
    ];
    for (frame, reason) in &cases {
        let before = router.stats().dropped(*reason);
        router.receive(1, 0, frame, 1, &mut sent);
        assert_eq!(
            (sent.take(), router.stats().dropped(*reason)),
            (vec![], before + 1),
            "{reason:?}"
        );
    }
    // Padding after the packet is not part of it.
    router.receive(2, 0, &changed(&|frame| frame.extend([0; 20])), 2, &mut sent);
    assert_eq!(sent.one().1.len(), good.len());
    assert_balanced(&router);
}

#[test]
fn errors_are_sent_to_the_sender_at_a_limited_rate() {
    let (mut router, mut sent) = (router(config()), Sent::default());
    let expired = udp_frame(v4(5, 1).into(), v4(6, 2).into(), (1000, 2000), 10, 1);
    router.receive(0, 0, &expired, 0, &mut sent);
    let (port, error) = sent.one();
    let ip = packet::ip_of(&error).unwrap();
    assert_eq!(
        (port, ip.src, ip.dst),
        (0, Ipv4Addr::new(192, 0, 0, 8).into(), v4(5, 1).into())
    );
    assert_eq!((&error[34..36], checksum::of(&error[34..])), (&[11, 0][..], 0));
    assert_eq!(error[42..], expired[14..], "the packet is quoted");
    let nowhere = udp_frame(v6(5, 1).into(), v6(6, 77).into(), (1, 2), 10, 64);
    router.receive(0, 0, &nowhere, 0, &mut sent);
    let (_, error) = sent.one();
    assert_sound(&error);
    assert_eq!(&error[54..56], [1, 0]);
    let long = udp_frame(v6(5, 1).into(), v6(6, 2).into(), (1, 2), 1500, 64);
    router.receive(0, 0, &long, 0, &mut sent);
    let (_, error) = sent.one();
    assert_sound(&error);
    assert_eq!(
        (&error[54..56], &error[58..62], error.len()),
        (&[2, 0][..], &1500u32.to_be_bytes()[..], 14 + 1280)
    );
    let reasons = [Drop::HopLimit, Drop::NoRoute, Drop::TooBig].map(|reason| router.stats().dropped(reason));
    assert_eq!(reasons, [1, 1, 1]);
    // Never about an error.
    let mut answer = error.clone();
    packet::set_macs(&mut answer, mac(1), HOST);
    answer[21] = 1;
    router.receive(1, 0, &answer, 1, &mut sent);
    assert_eq!(sent.take(), []);
    (0..200).for_each(|_| router.receive(MS, 0, &expired, MS, &mut sent));
    assert_eq!(
        (sent.take().len(), router.stats().errors_suppressed),
        (98, 102),
        "a hundred, and one a millisecond"
    );
    assert_balanced(&router);
}

#[test]
fn a_queue_is_paced_and_measured() {
    let mut config = config();
    // 1 Mbit/s: a frame of 125 bytes takes 1 ms. The queue has space for three frames.
    config.ports[1].out = LinkConfig {
        rate: Some(1_000_000),
        depth: 375,
        delay: 10 * MS,
        ..LinkConfig::default()
    };
    config.watchlist = Watch {
        mode: Mode::Postcard,
        ..Watch::default()
    }
    .into();
    let (mut router, mut sent) = (router(config), Sent::default());
    let frame = from_1_to(2, 125 - 42);
    assert_eq!(frame.len(), 125);
    (0..5).for_each(|_| router.receive(0, 0, &frame, 0, &mut sent));
    // One is being transmitted, three are queued, one was dropped.
    assert_eq!((router.queued(), router.stats().dropped(Drop::QueueFull)), (4, 1));
    assert_eq!(
        router.queue(1),
        QueueStats {
            bytes: 375,
            frames: 3,
            max_bytes: 375
        }
    );
    assert_balanced(&router);
    let mut times = Vec::new();
    while let Some(next) = router.next() {
        router.advance(next, &mut sent);
        sent.take().iter().for_each(|_| times.push(next / MS));
        assert_balanced(&router);
    }
    assert_eq!(times, [11, 12, 13, 14]);
    // Occupancy and queueing delay of each frame: 0, 0, 125, 250 bytes; 0, 1, 2, 3 ms. And the drop.
    let mut hops = Vec::new();
    for datagram in router.reports().datagrams() {
        let mut decoder = wire::Decoder::new(wire::Profile::default());
        let report = decoder.reports(datagram.payload).next().unwrap().unwrap();
        if !report.flags.contains(wire::Flags::DROP) {
            hops.push((
                report.metadata_hop().queue_occupancy.unwrap(),
                report.metadata_hop().hop_latency.unwrap(),
            ));
        }
    }
    assert_eq!(hops, [(0, 0), (0, 1_000_000), (125, 2_000_000), (250, 3_000_000)]);
    assert_eq!((router.switch().stats().drops_reported, router.queued()), (1, 0));
}

#[test]
fn queues_share_a_buffer_and_ports_have_logical_interfaces() {
    let mut config = config();
    let limited = LinkConfig {
        rate: Some(1_000_000),
        depth: 375,
        ..LinkConfig::default()
    };
    (config.ports[1].out, config.ports[2].out) = (limited, limited);
    // No address is resolved.
    config.ports[2].edge = false;
    config.ports[1].logical = 70_000;
    config.switch.available = 0xff80;
    config.watchlist = Watch {
        mode: Mode::Postcard,
        bitmap: 0x8280,
        ..Watch::default()
    }
    .into();
    let (mut router, mut sent) = (router(config.clone()), Sent::default());
    let fill = |router: &mut Router, sent: &mut Sent| {
        for net in [2, 3] {
            (0..3).for_each(|_| router.receive(0, 0, &from_1_to(net, 125 - 42), 0, sent));
        }
    };
    fill(&mut router, &mut sent);
    assert_eq!(router.buffered, 500);
    while let Some(next) = router.next() {
        router.advance(next, &mut sent);
    }
    assert_eq!(router.buffered, 0);
    let mut hops = Vec::new();
    for datagram in router.reports().datagrams() {
        let mut decoder = wire::Decoder::new(wire::Profile::default());
        let hop = decoder
            .reports(datagram.payload)
            .next()
            .unwrap()
            .unwrap()
            .metadata_hop();
        assert_eq!(hop.buffer_id, Some(0));
        hops.push((
            hop.buffer_occupancy.unwrap(),
            hop.l2_ingress_if.unwrap(),
            hop.l2_egress_if.unwrap(),
        ));
    }
    // The first frame to each network is sent at once, and then one a millisecond.
    let (two, three) = (70_000, 3);
    let both = [
        (0, 1, two),
        (250, 1, three),
        (0, 1, two),
        (250, 1, three),
        (125, 1, two),
        (375, 1, three),
    ];
    assert_eq!(hops, both);
    // The queued frames of a link that goes down are no longer in the buffer.
    let mut router = self::router(config.clone());
    fill(&mut router, &mut sent);
    let down = Port {
        up: false,
        ..config.ports[1].clone()
    };
    router.set_port(0, 1, down).unwrap();
    assert_eq!(router.buffered, 250);
    assert_balanced(&router);
}

#[test]
fn ingress_can_be_shaped_by_a_link() {
    let mut config = config();
    config.ports[0].into = LinkConfig {
        rate: Some(1_000_000),
        delay: 5 * MS,
        ..LinkConfig::default()
    };
    let (mut router, mut sent) = (router(config), Sent::default());
    let frame = from_1_to(2, 125 - 42);
    (0..2).for_each(|_| router.receive(0, 0, &frame, 0, &mut sent));
    let mut times = Vec::new();
    while let Some(next) = router.next() {
        router.advance(next, &mut sent);
        sent.take().iter().for_each(|_| times.push(next / MS));
    }
    assert_eq!(times, [6, 7]);
    assert_balanced(&router);
}

#[test]
fn loss_and_reordering_are_as_asked_and_the_same_each_time() {
    let run = || {
        let mut config = config();
        config.ports[1].out = LinkConfig {
            loss: 100_000,
            reorder: 50_000,
            reorder_delay: MS,
            delay: 1,
            ..LinkConfig::default()
        };
        let (mut router, mut sent) = (router(config), Sent::default());
        for number in 0..10_000u64 {
            let mut frame = from_1_to(2, 10);
            frame[44..52].copy_from_slice(&number.to_be_bytes());
            router.advance(number * 1000, &mut sent);
            router.receive(number * 1000, 0, &frame, 0, &mut sent);
        }
        router.advance(SECOND, &mut sent);
        assert_balanced(&router);
        let lost = router.stats().dropped(Drop::LinkLoss);
        let numbers = sent
            .take()
            .into_iter()
            .map(|(_, f)| u64::from_be_bytes(f[44..52].try_into().unwrap()));
        (lost, numbers.collect::<Vec<_>>())
    };
    let (lost, numbers) = run();
    assert!((900..1100).contains(&lost), "{lost}");
    let late = numbers.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!((380..520).contains(&late), "{late}");
    assert_eq!(run(), (lost, numbers));
}

#[test]
fn a_port_that_goes_down_loses_what_it_holds_and_comes_back() {
    let mut config = config();
    config.ports[1].out = LinkConfig {
        rate: Some(1_000_000),
        delay: 10 * MS,
        ..LinkConfig::default()
    };
    let down = Port {
        up: false,
        ..config.ports[1].clone()
    };
    let up = config.ports[1].clone();
    let (mut router, mut sent) = (router(config), Sent::default());
    (0..5).for_each(|_| router.receive(0, 0, &from_1_to(2, 83), 0, &mut sent));
    router.advance(2 * MS, &mut sent);
    router.set_port(2 * MS, 1, down).unwrap();
    router.receive(3 * MS, 0, &from_1_to(2, 83), 0, &mut sent);
    router.advance(SECOND, &mut sent);
    assert_eq!((sent.take(), router.queued()), (vec![], 0));
    assert_eq!(router.stats().dropped(Drop::LinkDown), 6);
    router.set_port(SECOND, 1, up).unwrap();
    router.receive(SECOND, 0, &from_1_to(2, 83), 0, &mut sent);
    router.advance(2 * SECOND, &mut sent);
    assert_eq!(sent.take().len(), 1);
    assert_balanced(&router);
    assert_eq!(
        router.set_port(0, 1, Port::new(9, [2; 6])),
        Err(ConfigError::OtherPorts)
    );
}

#[test]
fn a_rate_that_is_taken_away_empties_the_queue() {
    let mut config = config();
    config.ports[1].out = LinkConfig {
        rate: Some(1_000),
        ..LinkConfig::default()
    };
    let free = Port {
        out: LinkConfig::default(),
        ..config.ports[1].clone()
    };
    let (mut router, mut sent) = (router(config), Sent::default());
    (0..5).for_each(|_| router.receive(0, 0, &from_1_to(2, 83), 0, &mut sent));
    router.set_port(MS, 1, free).unwrap();
    router.advance(3 * SECOND, &mut sent);
    assert_eq!((sent.take().len(), router.queued()), (5, 0));
    router.receive(3 * SECOND, 0, &from_1_to(2, 83), 0, &mut sent);
    assert_eq!(sent.take().len(), 1);
    assert_balanced(&router);
}

#[test]
fn equal_routes_share_flows_and_a_flow_keeps_its_own() {
    let mut config = config();
    config.routes = vec![
        Route {
            to: "10.0.0.0/8".parse().unwrap(),
            port: 1,
            via: None,
        },
        Route {
            to: "10.0.2.0/24".parse().unwrap(),
            port: 2,
            via: None,
        },
        Route {
            to: "10.0.2.0/24".parse().unwrap(),
            port: 3,
            via: None,
        },
        Route {
            to: "10.0.2.77".parse().unwrap(),
            port: 2,
            via: None,
        },
    ];
    config.ports[2].edge = false;
    let (mut router, mut sent) = (router(config), Sent::default());
    let mut counts = [0; 3];
    for src_port in 0..400 {
        let frame = udp_frame(v4(5, 1).into(), v4(6, 2).into(), (src_port, 9), 4, 64);
        let ports: Vec<usize> = (0..3)
            .map(|_| {
                router.receive(0, 0, &frame, 0, &mut sent);
                sent.one().0
            })
            .collect();
        assert!(ports.iter().all(|port| *port == ports[0]));
        counts[ports[0]] += 1;
        let exact = udp_frame(v4(5, 1).into(), v4(77, 2).into(), (src_port, 9), 4, 64);
        router.receive(0, 0, &exact, 0, &mut sent);
        assert_eq!(sent.one().0, 1, "the longest prefix wins");
    }
    assert!(counts[0] == 0 && (150..250).contains(&counts[1]), "{counts:?}");
}

#[test]
fn int_goes_in_at_the_first_switch_and_out_at_the_last() {
    let watchlist: Watchlist = Watch::default().into();
    let mut first = router(Config {
        watchlist: watchlist.clone(),
        ..config()
    });
    let mut last = router(Config {
        node: 12,
        watchlist,
        ..config()
    });
    let (mut sent, mut delivered) = (Sent::default(), Sent::default());
    last.receive(
        0,
        2,
        &arp(2, (OTHER, v4(6, 2)), (mac(3), v4(1, 1)), mac(3)),
        0,
        &mut delivered,
    );
    for frame in [from_1_to(2, 100), from_1_to(2, 1500 - 28)] {
        first.receive(1000, 0, &frame, 500, &mut sent);
        let (port, on_the_link) = sent.one();
        assert_eq!(port, 1);
        // The other switch has net 2 behind port 3.
        let mut config = last.config().routes.clone();
        config.retain(|route| route.port != 2);
        config.push(Route {
            to: "10.0.2.0/24".parse().unwrap(),
            port: 3,
            via: None,
        });
        last.set_routes(config).unwrap();
        last.receive(3000, 1, &on_the_link, 2500, &mut delivered);
        let (port, out) = delivered.one();
        assert_eq!((port, out.len(), &out[42..]), (2, frame.len(), &frame[42..]));
        assert_sound(&out);
        assert_eq!(packet::ip_of(&out).unwrap().hops, 62);
    }
    // The longer packet had no space for INT, and was sent without it.
    let stats = first.switch().stats();
    assert_eq!((stats.recorded, stats.mtu_exceeded), (1, 1));
    let reports = last
        .reports()
        .datagrams()
        .map(|datagram| datagram.payload.to_vec())
        .collect::<Vec<_>>();
    assert_eq!(reports.len(), 1);
    let mut decoder = wire::Decoder::new(wire::Profile::default());
    let report = decoder.reports(&reports[0]).next().unwrap().unwrap();
    let hops: Vec<_> = report.hops().map(|hop| (hop.node_id, hop.hop_latency)).collect();
    assert_eq!(hops, [(Some(11), Some(500)), (Some(12), Some(500))]);
    assert_balanced(&first);
    assert_balanced(&last);
}

#[test]
fn a_packet_that_int_makes_too_long_for_a_later_link_is_reported_with_its_own_length() {
    let watchlist: Watchlist = Watch::default().into();
    let mut config = Config {
        watchlist,
        ..config()
    };
    config.ports[1].mtu = 2000;
    let (mut first, mut sent) = (router(config), Sent::default());
    first.receive(0, 0, &from_1_to(2, 1472), 0, &mut sent);
    let (_, with_int) = sent.one();
    let int = with_int.len() - 14 - 1500;
    assert!(int > 0);
    // A sink strips INT, and the rest fits.
    let mut last = router(self::config());
    last.set_routes(vec![Route {
        to: "10.0.2.0/24".parse().unwrap(),
        port: 2,
        via: None,
    }])
    .unwrap();
    last.receive(0, 1, &with_int, 0, &mut sent);
    // Between switches INT remains, so the packet is too long: the sender gets the MTU less INT, and its original packet.
    assert_eq!(last.stats().dropped(Drop::TooBig), 1);
    let (port, error) = sent.one();
    assert_eq!((port, &error[34..36]), (1, &[3, 4][..]));
    assert_eq!(u16::from_be_bytes([error[40], error[41]]) as usize, 1500 - int);
    assert_eq!(
        u16::from_be_bytes([error[44], error[45]]),
        1500,
        "the quoted packet is as it was sent"
    );
    assert_balanced(&last);
}

#[test]
fn vlan_tags_stay_and_replies_have_them() {
    let (mut router, mut sent) = (router(config()), Sent::default());
    let tagged = |frame: &[u8]| {
        let mut frame = frame.to_vec();
        frame.splice(12..12, [0x81, 0x00, 0x00, 0x2a]);
        frame
    };
    router.receive(0, 0, &tagged(&from_1_to(2, 10)), 0, &mut sent);
    assert_eq!(sent.one().1[12..18], [0x81, 0, 0, 0x2a, 8, 0]);
    let question = arp(1, (HOST, v4(5, 1)), ([0; 6], v4(1, 1)), [0xff; 6]);
    router.receive(0, 0, &tagged(&question), 0, &mut sent);
    assert_eq!(sent.one().1[12..18], [0x81, 0, 0, 0x2a, 8, 6]);
}

#[test]
fn no_bytes_make_it_panic_and_all_are_accounted_for() {
    let watchlist: Watchlist = Watch::default().into();
    let (mut router, mut sent) = (
        router(Config {
            watchlist,
            ..config()
        }),
        Sent::default(),
    );
    let mut random = Random::new(3);
    let seeds = [
        from_1_to(2, 60),
        from_1_to(3, 60),
        udp_frame(v6(5, 1).into(), v6(6, 3).into(), (1, 2), 60, 64),
        arp(1, (HOST, v4(5, 1)), ([0; 6], v4(1, 1)), [0xff; 6]),
    ];
    for round in 0..30_000u64 {
        let mut frame = seeds[random.below(4) as usize].clone();
        for _ in 0..random.below(4) {
            let at = random.below(frame.len() as u64) as usize;
            frame[at] = random.bits() as u8;
        }
        frame.truncate(random.below(frame.len() as u64 * 2) as usize);
        router.receive(round * 1000, random.below(3) as usize, &frame, 0, &mut sent);
        router.advance(round * 1000, &mut sent);
    }
    assert_balanced(&router);
    router.advance(100 * SECOND, &mut sent);
    assert_eq!(router.queued(), 0);
    assert_balanced(&router);
}

#[test]
fn long_data_is_segmented_as_by_a_nic() {
    let (ip, l4) = (14, 34);
    let mut frame = vec![0; l4 + 32 + 2500];
    ethernet::Repr {
        dst: mac(1),
        src: HOST,
        ethertype: ethertype::IPV4,
    }
    .emit(&mut frame);
    ipv4::Repr {
        src: [10, 0, 1, 5],
        dst: [10, 0, 2, 6],
        proto: 6,
        tos: 0,
        total_len: (20 + 32 + 2500) as u16,
        ident: 0xffff,
        fragment: 0x4000,
        ttl: 64,
        options: &[],
    }
    .emit(&mut frame[ip..]);
    // FIN, PSH, ACK, CWR; twelve bytes of options.
    let header = tcp::Repr {
        src_port: 1,
        dst_port: 2,
        seq: u32::MAX - 999,
        ack: 3,
        flags: 0x99,
        window: 4,
        checksum: 0,
        urgent: 0,
        options: &[1; 12],
    };
    header.emit(&mut frame[l4..]);
    frame[l4 + 32..]
        .iter_mut()
        .enumerate()
        .for_each(|(at, byte)| *byte = (at % 251) as u8);
    let mut parts = Vec::new();
    offload::segment(&frame, 1000, &mut Vec::new(), &mut |part| {
        parts.push(part.to_vec())
    })
    .unwrap();
    parts.iter().for_each(|part| assert_sound(part));
    let segments: Vec<_> = parts
        .iter()
        .map(|part| {
            let header = tcp::Packet::new_checked(&part[l4..]).unwrap();
            (
                part.len() - l4 - 32,
                header.seq(),
                header.flags(),
                u16::from_be_bytes([part[18], part[19]]),
            )
        })
        .collect();
    assert_eq!(
        segments,
        [
            (1000, u32::MAX - 999, 0x90, 0xffff),
            (1000, 0, 0x10, 0),
            (500, 1000, 0x19, 1)
        ]
    );
    let data: Vec<u8> = parts.iter().flat_map(|part| &part[l4 + 32..]).copied().collect();
    assert_eq!(data, frame[l4 + 32..]);
    let long = udp_frame(v6(5, 1).into(), v6(6, 2).into(), (1, 2), 2500, 64);
    let mut lengths = Vec::new();
    offload::segment(&long, 1200, &mut Vec::new(), &mut |part| {
        assert_sound(part);
        lengths.push(part.len() - 62);
    })
    .unwrap();
    assert_eq!(lengths, [1200, 1200, 100]);
    assert!(offload::segment(&long, 0, &mut Vec::new(), &mut |_| {}).is_err());
    assert!(offload::segment(&long[..50], 100, &mut Vec::new(), &mut |_| {}).is_err());
    assert!(
        offload::segment(
            &arp(1, (HOST, v4(1, 1)), (HOST, v4(1, 1)), HOST),
            9,
            &mut Vec::new(),
            &mut |_| {}
        )
        .is_err()
    );
}

#[test]
fn a_checksum_left_to_the_nic_is_completed() {
    let whole = from_1_to(2, 33);
    let mut left = whole.clone();
    let addresses = left[26..34].to_vec();
    let len = (left.len() - 34) as u16;
    let pseudo = checksum::Sum::default()
        .with(&addresses)
        .with(&[0, 17])
        .with(&len.to_be_bytes())
        .finish();
    left[40..42].copy_from_slice(&(!pseudo).to_be_bytes());
    offload::complete(&mut left, 34, 6).unwrap();
    assert_eq!(left, whole);
    assert!(offload::complete(&mut left, 34, 600).is_err() && offload::complete(&mut left, 600, 6).is_err());
}

#[test]
fn configurations_that_cannot_be_are_refused() {
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = config();
        change(&mut config);
        Router::new(config).map(|_| ()).unwrap_err()
    };
    assert_eq!(
        refused(&|config| config.ports[1].number = 1),
        ConfigError::PortNumber(1)
    );
    assert_eq!(
        refused(&|config| config.ports[0].number = 0),
        ConfigError::PortNumber(0)
    );
    assert_eq!(
        refused(&|config| config.routes[0].port = 9),
        ConfigError::NoSuchPort(9)
    );
    assert_eq!(
        refused(&|config| config.ports[0].out.rate = Some(0)),
        ConfigError::BadLink(1)
    );
    assert_eq!(
        refused(&|config| config.ports[0].into.loss = 1_000_001),
        ConfigError::BadLink(1)
    );
    let bad = refused(&|config| config.switch.mark.dscp = 0);
    assert_eq!(bad, ConfigError::Switch(switch::ConfigError::BadDscp(0)));
}

/// Roles of ports are given apart from hosts behind them while a manager changes one after the other.
#[test]
fn source_and_sink_of_a_port_are_set_apart() {
    let frame = from_1_to(2, 64);
    // Source of the ingress port, sink of the egress port: INT leaves, and a report is sent.
    let cases = [
        (None, None, true, false),
        (Some(false), None, false, false),
        (Some(true), Some(false), true, false),
        (Some(true), Some(true), false, true),
        (Some(false), Some(true), false, false),
    ];
    for (source, sink, leaves, reports) in cases {
        let mut config = config();
        config.watchlist = Watch::default().into();
        config.ports[0].source = source;
        config.ports[1].sink = sink;
        let (mut router, mut sent) = (router(config), Sent::default());
        router.receive(0, 0, &frame, 0, &mut sent);
        router.flush_reports();
        let (port, out) = sent.one();
        let found = (
            port,
            out.len() > frame.len(),
            router.reports().datagrams().count() == 1,
        );
        assert_eq!(found, (1, leaves, reports), "{source:?} {sink:?}");
        assert_balanced(&router);
    }
}

/// A port to hosts that is not a source, or one whose cable nobody knows, is at the border as well.
#[test]
fn int_is_removed_where_it_enters_by_a_source_or_a_sink() {
    let (mut other, mut sent) = (
        router(Config {
            watchlist: Watch::default().into(),
            ..config()
        }),
        Sent::default(),
    );
    other.receive(0, 0, &from_1_to(2, 64), 0, &mut sent);
    let (_, mut marked) = sent.one();
    marked[..6].copy_from_slice(&mac(1));
    for (source, sink, stripped) in [
        (false, false, 0),
        (true, false, 1),
        (false, true, 1),
        (true, true, 1),
    ] {
        let mut config = config();
        (config.ports[0].source, config.ports[0].sink) = (Some(source), Some(sink));
        let mut router = router(config);
        router.receive(0, 0, &marked, 0, &mut sent);
        let (_, out) = sent.one();
        let stats = router.switch().stats();
        assert_eq!(
            (stats.edge_stripped, out.len() < marked.len()),
            (stripped, stripped == 1)
        );
        assert_balanced(&router);
    }
}
