//! Intercepted, forwarded and refused datagrams.

use super::*;

/// A consumer of datagrams with a limited capacity.
struct Consumer {
    sent: Vec<(usize, Vec<u8>)>,
    delivered: Vec<(usize, SocketAddr, Vec<u8>)>,
    room: usize,
}

impl Consumer {
    fn new() -> Self {
        Self {
            sent: Vec::new(),
            delivered: Vec::new(),
            room: usize::MAX,
        }
    }
}

impl Wires for Consumer {
    fn send(&mut self, port: usize, frame: &mut Vec<u8>) {
        self.sent.push((port, std::mem::take(frame)));
    }

    fn deliver(&mut self, to: usize, from: SocketAddr, payload: &[u8]) -> bool {
        let accepted = self.delivered.len() < self.room;
        if accepted {
            self.delivered.push((to, from, payload.to_vec()));
        }
        accepted
    }
}

const DTA: u16 = 40040;

/// Collectors in net 2, behind a switch: one with addresses of both families.
fn intercepting() -> Config {
    let addresses: [IpAddr; 3] = [v4(9, 2).into(), v6(9, 2).into(), v4(10, 2).into()];
    Config {
        intercept: addresses.map(|ip| SocketAddr::new(ip, DTA)).to_vec(),
        ..config()
    }
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| at as u8).collect()
}

fn to(dst: IpAddr, port: u16) -> Vec<u8> {
    let src: IpAddr = if dst.is_ipv4() {
        v4(5, 1).into()
    } else {
        v6(5, 1).into()
    };
    udp_frame(src, dst, (5555, port), 20, 64)
}

fn given(router: &mut Router, frame: &[u8]) -> Consumer {
    let mut out = Consumer::new();
    router.receive(0, 0, frame, 0, &mut out);
    assert!(
        router.stats().is_balanced(router.queued()),
        "{:?}",
        router.stats()
    );
    out
}

/// With another checksum in the IPv4 header, after a change.
fn fixed(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let sum = checksum::of(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn datagrams_to_intercepted_destinations_are_delivered_and_others_forwarded() {
    let mut router = router(intercepting());
    for (index, dst) in [IpAddr::from(v4(9, 2)), v6(9, 2).into(), v4(10, 2).into()]
        .into_iter()
        .enumerate()
    {
        let out = given(&mut router, &to(dst, DTA));
        let src: IpAddr = if dst.is_ipv4() {
            v4(5, 1).into()
        } else {
            v6(5, 1).into()
        };
        assert_eq!(out.delivered, [(index, SocketAddr::new(src, 5555), payload(20))]);
        assert_eq!(out.sent, [], "{dst}");
    }
    // It ends here, so the hop limit does not matter, and the padding of a short frame is no payload.
    let mut short = udp_frame(v4(5, 1).into(), v4(9, 2).into(), (5555, DTA), 3, 1);
    short.resize(60, 0xaa);
    assert_eq!(given(&mut router, &short).delivered[0].2, payload(3));
    assert_eq!((router.stats().intercepted, router.stats().consumed), (4, 4));
    // Another port, another address, another protocol.
    let mut tcp = to(v4(9, 2).into(), DTA);
    tcp[23] = 6;
    for frame in [to(v4(9, 2).into(), DTA + 1), to(v4(8, 2).into(), DTA), fixed(tcp)] {
        let out = given(&mut router, &frame);
        assert_eq!((out.delivered.len(), out.sent.len()), (0, 1));
    }
    // With a VLAN tag.
    let mut tagged = to(v4(9, 2).into(), DTA);
    tagged.splice(12..12, [0x81, 0, 0, 7]);
    assert_eq!(given(&mut router, &tagged).sent.len(), 1);
    assert_eq!(router.stats().intercept_tagged, 1);
    tagged[41] += 1;
    given(&mut router, &tagged);
    assert_eq!(router.stats().intercept_tagged, 1, "another port");
    assert_eq!((router.stats().intercepted, router.stats().drops()), (4, 0));
}

#[test]
fn what_cannot_be_intercepted_is_refused_by_reason() {
    let good = to(v4(9, 2).into(), DTA);
    let good6 = to(v6(9, 2).into(), DTA);
    let changed = |frame: &[u8], at: usize, bytes: &[u8]| {
        let mut frame = frame.to_vec();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        if frame[12..14] == [8, 0] {
            fixed(frame)
        } else {
            frame
        }
    };
    let mut hop_by_hop = changed(&good6, 20, &[0]);
    hop_by_hop.splice(54..54, [17, 0, 1, 4, 0, 0, 0, 0]);
    hop_by_hop[19] += 8;
    let mut atomic = changed(&good6, 20, &[44]);
    atomic.splice(54..54, [17, 0, 0, 1, 0, 0, 0, 9]);
    atomic[19] += 8;
    for (what, frame, reason) in [
        (
            "first fragment",
            changed(&good, 20, &[0x20, 0]),
            Drop::InterceptFragment,
        ),
        ("IPv6 fragment", atomic, Drop::InterceptFragment),
        (
            "longer than the packet",
            changed(&good, 38, &[0, 29]),
            Drop::InterceptMalformed,
        ),
        (
            "shorter than its header",
            changed(&good, 38, &[0, 7]),
            Drop::InterceptMalformed,
        ),
        (
            "cut in the UDP header",
            changed(&good, 16, &[0, 27]),
            Drop::InterceptMalformed,
        ),
        (
            "wrong checksum",
            changed(&good, 50, &[0xff]),
            Drop::InterceptMalformed,
        ),
        (
            "no checksum over IPv6",
            changed(&good6, 60, &[0, 0]),
            Drop::InterceptMalformed,
        ),
        ("extension header", hop_by_hop, Drop::InterceptMalformed),
    ] {
        let mut router = router(intercepting());
        let out = given(&mut router, &frame);
        assert_eq!((out.delivered.len(), out.sent.len()), (0, 0), "{what}");
        assert_eq!(
            (router.stats().dropped(reason), router.stats().drops()),
            (1, 1),
            "{what}"
        );
    }
    let mut router = router(intercepting());
    // Over IPv4, a datagram needs no checksum.
    assert_eq!(
        given(&mut router, &changed(&good, 40, &[0, 0])).delivered.len(),
        1
    );
    // A later fragment has no port, so its destination port is unknown.
    assert_eq!(given(&mut router, &changed(&good, 20, &[0, 3])).sent.len(), 1);
    // Cut before the port.
    let cut = changed(&good, 16, &[0, 23]);
    assert_eq!(given(&mut router, &cut[..37]).sent.len(), 1);
    let mut full = Consumer {
        room: 1,
        ..Consumer::new()
    };
    (0..3).for_each(|_| router.receive(0, 0, &good, 0, &mut full));
    assert_eq!(
        (
            full.delivered.len(),
            router.stats().dropped(Drop::InterceptQueueFull)
        ),
        (1, 2)
    );
    assert!(router.stats().is_balanced(router.queued()));
}

#[test]
fn every_shorter_or_damaged_frame_is_accounted_for() {
    for dst in [IpAddr::from(v4(9, 2)), v6(9, 2).into()] {
        let good = to(dst, DTA);
        let mut router = router(intercepting());
        for cut in 0..good.len() {
            assert_eq!(given(&mut router, &good[..cut]).delivered, [], "{cut}");
        }
        for at in 14..good.len() {
            let mut frame = good.clone();
            frame[at] ^= 0x55;
            given(&mut router, &frame);
        }
        assert_eq!(router.stats().received(), 2 * good.len() as u64 - 14);
    }
}

#[test]
fn int_is_reported_and_stripped_before_delivery() {
    let watched = Watch {
        mode: Mode::Md21,
        ..Watch::default()
    };
    for (mark, dst) in [
        (switch::Mark::default(), IpAddr::from(v4(9, 2))),
        (
            switch::Mark {
                port: Some(5678),
                ..switch::Mark::default()
            },
            v4(9, 2).into(),
        ),
        (
            switch::Mark {
                hop_by_hop: true,
                ..switch::Mark::default()
            },
            v6(9, 2).into(),
        ),
    ] {
        let int = switch::Config {
            mark,
            ..switch::Config::default()
        };
        let source = Config {
            node: 10,
            switch: int.clone(),
            watchlist: watched.into(),
            ..config()
        };
        let mut source = router(source);
        let (port, mut marked) = given(&mut source, &to(dst, DTA)).sent.remove(0);
        assert_eq!((port, source.switch().stats().recorded), (1, 1));
        packet::set_macs(&mut marked, mac(2), mac(2));
        let mut router = router(Config {
            switch: int,
            ..intercepting()
        });
        let mut out = Consumer::new();
        router.receive(0, 1, &marked, 0, &mut out);
        assert_eq!(out.delivered.len(), 1, "{mark:?} {:?}", router.stats());
        assert_eq!(
            (out.delivered[0].1.port(), &out.delivered[0].2),
            (5555, &payload(20))
        );
        assert_eq!(router.switch().stats().reported, 1, "{mark:?}");
        assert_eq!(router.reports().datagrams().count(), 1);
        assert!(router.stats().is_balanced(router.queued()));
    }
}

#[test]
fn replies_come_from_the_destination_and_go_to_the_sender() {
    let mut router = router(intercepting());
    for (index, dst) in [(0, IpAddr::from(v4(9, 2))), (1, v6(9, 2).into())] {
        let (_, sender, _) = given(&mut router, &to(dst, DTA)).delivered.remove(0);
        let mut out = Consumer::new();
        // The switch learned the sender's hardware address from its datagram.
        assert!(router.reply(1, index, SocketAddr::new(sender.ip(), 40044), b"nack", &mut out));
        let (port, frame) = out.sent.remove(0);
        assert_eq!((port, &frame[..6], &frame[6..12]), (0, &HOST[..], &mac(1)[..]));
        let ip = packet::ip_of(&frame).unwrap();
        assert_eq!((ip.src, ip.dst, ip.hops), (dst, sender.ip(), 64));
        let back = super::super::intercept::datagram(&frame, SocketAddr::new(sender.ip(), 40044));
        assert_eq!(back, Some((SocketAddr::new(dst, DTA), &b"nack"[..])));
    }
    // Refused: no route, two families, longer than the MTU, no such destination.
    let host = SocketAddr::from((v4(5, 1), 40044));
    for (from, to, len) in [
        (0, SocketAddr::from((v4(5, 77), 40044)), 4),
        (0, SocketAddr::from((v6(5, 1), 40044)), 4),
        (0, host, 1473),
        (0, host, 70_000),
        (3, host, 4),
    ] {
        assert!(
            !router.reply(2, from, to, &payload(len), &mut Consumer::new()),
            "{to} {len}"
        );
    }
    let stats = router.stats();
    assert_eq!(
        (stats.replies, stats.replies_refused, stats.originated),
        (2, 5, 2)
    );
    assert!(stats.is_balanced(router.queued()));
    let many = Config {
        intercept: vec![host; MAX_INTERCEPTED + 1],
        ..config()
    };
    assert_eq!(Router::new(many).unwrap_err(), ConfigError::TooManyIntercepted);
}
