//! Real sockets on the loopback. Nothing waits for longer than a time-out that is never reached.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};

use wire::Refusal;

use super::*;
use crate::netns::{Pair, send_frames, tests::skipped};
use crate::source::{Packet, Source, Stats};
use crate::time;

/// A time-out that a passing test never reaches.
const LONG_MS: u32 = 5_000;

fn any(family: &str) -> SocketAddr {
    format!("{family}:0").parse().unwrap()
}

/// Says so when this machine has no IPv6, and the tests of it are skipped.
fn has_ipv6() -> bool {
    let has = Receiver::bind(any("[::1]"), &Options::default()).is_ok();
    if !has {
        eprintln!("SKIPPED: IPv6: this machine has no [::1]");
    }
    has
}

fn pair(family: &str, options: &Options) -> (Sender, Receiver) {
    let receiver = Receiver::bind(any(family), options).unwrap();
    (
        Sender::connect(any(family), receiver.local_addr()).unwrap(),
        receiver,
    )
}

/// Receives until `expected` datagrams have arrived, or none for the time-out.
fn drain(
    receiver: &mut Receiver,
    burst: &mut Burst,
    expected: usize,
    mut each: impl FnMut(Packet<'_>),
) -> usize {
    let mut count = 0;
    while count < expected {
        let filled = receiver.recv(burst, LONG_MS).unwrap();
        if filled == 0 {
            break;
        }
        burst.iter().for_each(&mut each);
        count += filled;
    }
    count
}

#[test]
fn datagrams_arrive_whole_in_order_with_sender_and_time() {
    for family in ["127.0.0.1", "[::1]"]
        .into_iter()
        .take(1 + usize::from(has_ipv6()))
    {
        let (mut sender, mut receiver) = pair(family, &Options::default());
        let payloads: Vec<Vec<u8>> = (0..200u16)
            .map(|n| n.to_be_bytes().repeat(usize::from(n)))
            .collect();
        let before = time::now();
        let sent = sender
            .send_burst(&payloads.iter().map(Vec::as_slice).collect::<Vec<_>>())
            .unwrap();
        let from = sender.local_addr().unwrap();
        let mut burst = Burst::default();
        let mut arrived = Vec::new();
        drain(&mut receiver, &mut burst, sent, |packet| {
            assert_eq!((packet.source, packet.truncated), (from, false));
            assert!(before <= packet.received && packet.received <= time::now());
            arrived.push(packet.data.to_vec());
        });
        assert_eq!(arrived, payloads);
        let bytes = payloads.iter().map(|payload| payload.len() as u64).sum();
        let bursts = receiver.stats().bursts;
        assert!((4..=200).contains(&bursts));
        assert_eq!(
            receiver.stats(),
            Stats {
                datagrams: 200,
                bytes,
                bursts,
                ..Stats::default()
            }
        );
    }
}

/// The kernel stamps when the datagram arrives, which on the loopback is before the sender's call returns. It begins to do so
/// a little after the first socket asked for it; until then it stamps when we read.
#[test]
fn the_receive_time_is_of_the_arrival_and_not_of_the_reading() {
    let (mut sender, mut receiver) = pair("127.0.0.1", &Options::default());
    let mut burst = Burst::default();
    let stamped_on_arrival = (0..10_000).any(|_| {
        let before = time::now();
        sender.send_burst(&[b"now"]).unwrap();
        let after = time::now();
        assert_eq!(receiver.recv(&mut burst, LONG_MS).unwrap(), 1);
        let received = burst.packet(0).received;
        assert!(before <= received && received <= time::now());
        received <= after
    });
    assert!(stamped_on_arrival);
}

#[test]
fn a_datagram_longer_than_its_slot_is_cut_and_marked() {
    let (mut sender, mut receiver) = pair("127.0.0.1", &Options::default());
    let long = [7u8; 9000];
    sender.send_burst(&[&long, &long[..64], &long[..65]]).unwrap();
    let (mut small, mut seen) = (Burst::new(2, 64), Vec::new());
    drain(&mut receiver, &mut small, 3, |packet| {
        seen.push((packet.data.len(), packet.truncated))
    });
    assert_eq!(seen, [(64, true), (64, false), (64, true)]);
    assert_eq!(receiver.stats().truncated, 2);
    sender.send_burst(&[&long]).unwrap();
    let mut jumbo = Burst::new(1, JUMBO_SLOT_SIZE);
    assert_eq!(receiver.recv(&mut jumbo, LONG_MS).unwrap(), 1);
    assert_eq!(
        (jumbo.packet(0).data, jumbo.packet(0).truncated),
        (&long[..], false)
    );
}

#[test]
fn an_empty_socket_returns_no_datagrams() {
    let (_sender, mut receiver) = pair("127.0.0.1", &Options::default());
    let mut burst = Burst::default();
    assert_eq!(receiver.recv(&mut burst, 0).unwrap(), 0);
    assert_eq!(receiver.recv(&mut burst, 1).unwrap(), 0);
    assert_eq!(
        (burst.len(), burst.iter().count(), receiver.stats()),
        (0, 0, Stats::default())
    );
}

/// The buffer holds a few datagrams, and ten thousand are sent before one is read.
#[test]
fn datagrams_lost_to_a_full_buffer_are_counted() {
    let (mut sender, mut receiver) = pair(
        "127.0.0.1",
        &Options {
            recv_buffer: 4096,
            ..Options::default()
        },
    );
    let payload = [1u8; 100];
    let mut sent = 0;
    for _ in 0..10 {
        sent += sender.send_burst(&[&payload[..]; 1000]).unwrap() as u64;
    }
    // Before anything was read, and without a further datagram that would report the counter.
    let at_once = receiver.drops().buffer_full;
    assert!(at_once > 9_000 && at_once < sent, "{at_once} of {sent}");
    let mut burst = Burst::default();
    let received = drain(&mut receiver, &mut burst, (sent - at_once) as usize, |_| {}) as u64;
    assert_eq!(received + receiver.drops().buffer_full, sent);
    // A second overrun, reported by the datagram that arrives after it.
    sent += sender.send_burst(&[&payload[..]; 1000]).unwrap() as u64;
    let received = received + receiver.recv(&mut burst, LONG_MS).unwrap() as u64;
    sender.send_burst(&[b"after"]).unwrap();
    sent += 1;
    let received = received + drain(&mut receiver, &mut burst, 1, |_| {}) as u64;
    assert_eq!(receiver.recv(&mut burst, 0).unwrap(), 0);
    assert_eq!(received + receiver.drops_reported(), sent);
    assert_eq!(receiver.stats().datagrams + receiver.stats().kernel_drops, sent);
}

#[test]
fn a_smaller_kernel_buffer_is_reported() {
    let receiver = Receiver::bind(
        any("127.0.0.1"),
        &Options {
            recv_buffer: 1 << 30,
            ..Options::default()
        },
    )
    .unwrap();
    let RecvBuffer { requested, granted } = receiver.recv_buffer();
    assert_eq!(requested, 1 << 30);
    assert_eq!(receiver.warning().is_some(), granted < requested);
    let mut small = receiver;
    small.buffer = RecvBuffer {
        requested: 100,
        granted: 50,
    };
    let warning = small.warning().unwrap();
    assert!(
        warning.contains("gave a receive buffer of 50 bytes instead of 100")
            && warning.contains("net.core.rmem_max=100")
    );
}

#[test]
fn a_port_in_use_is_named() {
    let first = Receiver::bind(any("127.0.0.1"), &Options::default()).unwrap();
    let error = Receiver::bind(first.local_addr(), &Options::default()).unwrap_err();
    let port = first.local_addr().port();
    assert_eq!((error.call(), error.errno()), ("bind", Some(libc::EADDRINUSE)));
    assert!(
        error
            .to_string()
            .contains(&format!("another program listens on UDP port {port}")),
        "{error}"
    );
    let foreign = Receiver::bind("192.0.2.1:0".parse().unwrap(), &Options::default()).unwrap_err();
    assert!(
        foreign.to_string().contains("this machine has no such address"),
        "{foreign}"
    );
}

#[test]
fn ipv6_leaves_ipv4_alone_and_ports_can_be_shared() {
    if !has_ipv6() {
        return;
    }
    let shared = Options {
        reuse_port: true,
        ..Options::default()
    };
    // Another process may have bound the same IPv4 port; then another one is tried.
    let v4 = (0..20).find_map(|_| {
        let v6 = Receiver::bind(any("[::]"), &Options::default()).unwrap();
        let same_port = SocketAddr::new("0.0.0.0".parse().unwrap(), v6.local_addr().port());
        Receiver::bind(same_port, &shared).ok().map(|v4| (v4, v6))
    });
    let (v4, _v6) = v4.expect("one of twenty ports is free for IPv4 while IPv6 uses it");
    assert_eq!(
        Receiver::bind(v4.local_addr(), &shared).unwrap().local_addr(),
        v4.local_addr()
    );
}

/// Many switches send reports over IPv6 without a checksum, as RFC 6936 permits.
#[test]
fn datagrams_over_ipv6_without_a_checksum_are_received() {
    if !has_ipv6() {
        return;
    }
    let from = socket::open(any("[::1]")).unwrap();
    let sender = UdpSocket::from(from.try_clone().unwrap());
    let merging = Options {
        merge: true,
        ..Options::default()
    };
    for options in [Options::default(), merging] {
        let one = Receiver::bind(any("[::1]"), &options).unwrap();
        let all = Receiver::bind_any(0, None, &options).unwrap();
        for mut receiver in [one, all] {
            let to = SocketAddr::new("::1".parse().unwrap(), receiver.local_addr().port());
            for (number, without_checksum) in [(1, 0), (2, 1), (3, 0)] {
                crate::sys::set(
                    &from,
                    libc::IPPROTO_UDP,
                    libc::UDP_NO_CHECK6_TX,
                    &without_checksum,
                )
                .unwrap();
                sender.send_to(&[number], to).unwrap();
            }
            let mut arrived = Vec::new();
            drain(&mut receiver, &mut Burst::default(), 3, |packet| {
                arrived.extend_from_slice(packet.data)
            });
            assert_eq!(arrived, [1, 2, 3]);
            assert_eq!(receiver.drops(), Drops::default());
        }
    }
}

#[test]
fn segments_arrive_as_datagrams() {
    let (mut sender, mut receiver) = pair("127.0.0.1", &Options::default());
    let data: Vec<u8> = (0..150u8).flat_map(|n| [n; 300]).chain([255; 10]).collect();
    assert_eq!(sender.send_segments(&data, 300).unwrap(), 151);
    let mut arrived = Vec::new();
    drain(&mut receiver, &mut Burst::default(), 151, |packet| {
        arrived.push(packet.data.to_vec())
    });
    assert_eq!(arrived, data.chunks(300).map(<[u8]>::to_vec).collect::<Vec<_>>());
    assert_eq!(sender.send_segments(&[], 300).unwrap(), 0);
}

#[test]
fn sending_to_a_closed_port_is_no_error_but_a_too_long_datagram_is() {
    let (mut sender, receiver) = pair("127.0.0.1", &Options::default());
    drop(receiver);
    for _ in 0..3 {
        assert_eq!(sender.send_burst(&[&b"a"[..]; 100]).unwrap(), 100);
        assert_eq!(sender.send_segments(&[0; 1000], 100).unwrap(), 10);
    }
    let error = sender.send_burst(&[&[0; 70_000]]).unwrap_err().to_string();
    assert!(
        error.ends_with(": the datagram is longer than UDP allows here"),
        "{error}"
    );
}

#[test]
fn bursts_travel_between_threads() {
    let (mut sender, mut receiver) = pair("127.0.0.1", &Options::default());
    sender.send_burst(&[b"one", b"two"]).unwrap();
    let mut burst = Burst::default();
    while burst.len() < 2 {
        assert_ne!(receiver.recv(&mut burst, LONG_MS).unwrap(), 0);
    }
    let (back, payloads) = std::thread::spawn(move || {
        let payloads: Vec<Vec<u8>> = burst.iter().map(|packet| packet.data.to_vec()).collect();
        (burst, payloads)
    })
    .join()
    .unwrap();
    assert_eq!(payloads, [b"one", b"two"]);
    let mut burst = back;
    sender.send_burst(&[b"three"]).unwrap();
    assert_eq!(receiver.recv(&mut burst, LONG_MS).unwrap(), 1);
    assert_eq!(burst.packet(0).data, b"three");
}

#[test]
fn a_source_lends_all_of_a_large_burst() {
    let (mut sender, receiver) = pair("127.0.0.1", &Options::default());
    let payloads: Vec<[u8; 2]> = (0..200u16).map(u16::to_be_bytes).collect();
    sender
        .send_burst(&payloads.iter().map(<[u8; 2]>::as_slice).collect::<Vec<_>>())
        .unwrap();
    let mut source: Box<dyn Source> = Box::new(Buffered::new(receiver, Burst::new(150, 64)));
    let (mut seen, mut count) = (BTreeSet::new(), 0);
    while count < 200 {
        let mut lent = 0;
        let filled = source.receive(LONG_MS, &mut |packets| {
            lent += packets.len();
            seen.extend(packets.iter().map(|packet| packet.data.to_vec()));
        });
        assert_eq!(filled.unwrap(), lent);
        assert_ne!(lent, 0);
        count += lent;
    }
    assert_eq!(seen.len(), 200);
    assert_eq!((source.kind(), source.stats().datagrams), ("udp", 200));
}

fn merging(family: &str, recv_buffer: usize) -> Option<(Sender, Receiver)> {
    let (sender, receiver) = pair(
        family,
        &Options {
            merge: true,
            recv_buffer,
            ..Options::default()
        },
    );
    if !receiver.merges() {
        eprintln!("SKIPPED: merged datagrams: this needs CAP_BPF");
        return None;
    }
    Some((sender, receiver))
}

#[test]
fn merged_datagrams_arrive_one_by_one_in_order() {
    for family in ["127.0.0.1", "[::1]"]
        .into_iter()
        .take(1 + usize::from(has_ipv6()))
    {
        let Some((mut sender, mut receiver)) = merging(family, 1 << 20) else {
            return;
        };
        // 100 of 300 bytes, the last one shorter; apart; and longer than the receiver takes.
        let data: Vec<u8> = (0..29_950_u32).map(|n| (n / 300) as u8).collect();
        assert_eq!(sender.send_segments(&data, 300).unwrap(), 100);
        assert_eq!(sender.send_burst(&[b"", b"apart", &[7; 400]]).unwrap(), 3);
        let from = sender.local_addr().unwrap();
        let (mut burst, mut arrived) = (receiver.burst(64, 320), Vec::new());
        drain(&mut receiver, &mut burst, 103, |packet| {
            assert!(packet.source == from && packet.received > 1_700_000_000_000_000_000);
            arrived.push((packet.data.to_vec(), packet.truncated));
        });
        let mut expected: Vec<_> = data.chunks(300).map(|data| (data.to_vec(), false)).collect();
        expected.extend([(vec![], false), (b"apart".to_vec(), false), (vec![7; 320], true)]);
        assert_eq!(arrived, expected);
        let stats = receiver.stats();
        assert_eq!(
            (stats.datagrams, stats.truncated, stats.kernel_drops),
            (103, 1, 0)
        );
        // Many datagrams came in few buffers.
        assert!(stats.bursts <= 5, "{stats:?}");
    }
}

/// A frame from the near end of a [`Pair`] to its far end: 200 bytes of UDP with this checksum. (The kernel verifies datagrams of up to 76
/// bytes before it looks for a socket, and drops wrong ones without a socket's counter.)
fn frame_with_checksum(port: u16, checksum: u16) -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &[8, 0]].concat();
    let addresses = [Pair::NEAR[0], Pair::FAR[0]].map(|address| match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(_) => unreachable!("the first address of an end is IPv4"),
    });
    let mut header = [
        &[0x45, 0, 0, 220, 0, 0, 0x40, 0, 64, 17, 0, 0][..],
        &addresses.concat(),
    ]
    .concat();
    let sum: u32 = header
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    let sum = !(((sum >> 16) + (sum & 0xffff)) as u16);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend([4000, port, 200, checksum].map(u16::to_be_bytes).concat());
    frame.extend([7; 192]);
    frame
}

#[test]
fn wrong_checksums_are_told_from_a_full_buffer() {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => return skipped(&error),
    };
    let options = Options {
        merge: true,
        recv_buffer: 4096,
        ..Options::default()
    };
    let address = SocketAddr::new(Pair::FAR[0], 0);
    let mut receiver = pair
        .far
        .run(|| Receiver::bind(address, &options))
        .unwrap()
        .unwrap();
    let port = receiver.local_addr().port();
    // No checksum (0) is a right one; 1 is wrong for these bytes. The last one is right.
    let (right, wrong) = (frame_with_checksum(port, 0), frame_with_checksum(port, 1));
    let mut frames = vec![wrong; 300];
    frames.extend(vec![right; 200]);
    pair.near
        .run(|| send_frames(Pair::DEVICE, &frames))
        .unwrap()
        .unwrap();
    let (mut burst, mut received) = (receiver.burst(64, 2048), 0);
    // Everything has arrived once the numbers add up.
    for _ in 0..500 {
        received += receiver.recv(&mut burst, 10).unwrap() as u64;
        let Drops {
            buffer_full,
            bad_checksum,
        } = receiver.drops();
        if received + buffer_full + bad_checksum == 500 && burst.is_empty() {
            break;
        }
    }
    let Drops {
        buffer_full,
        bad_checksum,
    } = receiver.drops();
    assert_eq!((bad_checksum, received + buffer_full), (300, 200));
    assert!(received > 0 && buffer_full > 0, "{received} received");
    let stats = receiver.stats();
    assert_eq!(
        (stats.kernel_drops, stats.bad_checksum, stats.lost()),
        (buffer_full, 300, buffer_full + 300)
    );
}

/// A frame from the near end of a [`Pair`] to its far end: UDP without a checksum, in an IPv6 packet from `src`.
fn frame_over_ipv6(src: Ipv6Addr, port: u16) -> Vec<u8> {
    let IpAddr::V6(dst) = Pair::FAR[1] else {
        unreachable!("the second address of an end is IPv6");
    };
    [
        &[0xff; 6][..],
        &[2, 0, 0, 0, 0, 1, 0x86, 0xdd],
        &[0x60, 0, 0, 0, 0, 12, 17, 64],
        &src.octets(),
        &dst.octets(),
        &[4000, port, 12, 0].map(u16::to_be_bytes).concat(),
        &[7; 4],
    ]
    .concat()
}

/// The kernel gives the sender of an IPv4 packet to a socket for both families as an IPv4-mapped address, and passes on an IPv6
/// packet with such a source.
#[test]
fn an_ipv6_packet_does_not_pass_for_one_of_an_ipv4_sender() {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => return skipped(&error),
    };
    let (IpAddr::V4(v4), IpAddr::V6(v6)) = (Pair::NEAR[0], Pair::NEAR[1]) else {
        unreachable!("an end has an IPv4 and an IPv6 address");
    };
    let merging = Options {
        merge: true,
        ..Options::default()
    };
    for options in [Options::default(), merging] {
        let receivers = pair
            .far
            .run(|| {
                let any_v6 = Receiver::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)), &options);
                [Receiver::bind_any(0, None, &options), any_v6].map(Result::unwrap)
            })
            .unwrap();
        for (mut receiver, wanted) in receivers
            .into_iter()
            .zip([vec![v6.into(), v4.into()], vec![IpAddr::from(v6)]])
        {
            let port = receiver.local_addr().port();
            let frames = [
                frame_over_ipv6(v6, port),
                frame_over_ipv6(v4.to_ipv6_mapped(), port),
                frame_with_checksum(port, 0),
            ];
            pair.near
                .run(|| send_frames(Pair::DEVICE, &frames))
                .unwrap()
                .unwrap();
            let (mut burst, mut senders) = (receiver.burst(64, 2048), Vec::new());
            for _ in 0..50 {
                receiver.recv(&mut burst, 10).unwrap();
                senders.extend(burst.iter().map(|packet| packet.source.ip()));
            }
            assert_eq!(senders, wanted);
            let stats = receiver.stats();
            let refused = stats.refused[Refusal::BadIpHeader.index()];
            assert_eq!(
                (stats.datagrams, refused, stats.lost()),
                (wanted.len() as u64, 1, 1)
            );
        }
    }
}

#[test]
fn merged_datagrams_lost_to_a_full_buffer_are_counted_one_by_one() {
    let Some((mut sender, mut receiver)) = merging("127.0.0.1", 1 << 16) else {
        return;
    };
    let (mut burst, mut received, mut sent) = (receiver.burst(64, 2048), 0, 0);
    for round in 0..3 {
        for datagrams in 1..=64 {
            sent += sender.send_segments(&vec![round; datagrams * 100], 100).unwrap() as u64;
        }
        // The kernel counts buffers until the socket is empty.
        let buffers = receiver.drops().buffer_full;
        assert!(buffers > 0 && received + buffers < sent, "{buffers} of {sent}");
        loop {
            let filled = receiver.recv(&mut burst, 0).unwrap() as u64;
            received += filled;
            if filled == 0 {
                break;
            }
        }
        assert_eq!(received + receiver.drops().buffer_full, sent, "round {round}");
    }
    assert_eq!(receiver.stats().datagrams, received);
}
