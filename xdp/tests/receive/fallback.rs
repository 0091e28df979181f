//! The receive paths, each in namespaces of its own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nic::bpf::{Ids, LoadOptions, Mode, Object};
use nic::netns::{Namespace, Pair, send_frames};
use nic::receive::{self, Counters, NoRxPath, OpenInterface, Options, RxPath, State};
use nic::source::{Source, Stats};
use nic::{device, netns};

use crate::frames::{PORT, SOURCE, ethernet, extension, ipv4, ipv6, plain, udp};
use crate::skipped;

/// The receive paths that work on a veth and use XDP.
const WITH_XDP: [RxPath; 2] = [RxPath::Native, RxPath::Generic];

pub(crate) fn options(rx_path: RxPath) -> Options {
    Options {
        ports: vec![PORT],
        best: rx_path,
        worst: rx_path,
        program: Some(xdp::STEER),
        ..Options::default()
    }
}

pub(crate) fn pair(test: &str, queues: u32) -> Option<Pair> {
    match Pair::with_queues(queues) {
        Ok(pair) => Some(pair),
        Err(error) => skipped(test, &error),
    }
}

/// Opens the interface at the far end.
pub(crate) fn open(pair: &Pair, options: &Options) -> OpenInterface {
    try_open(&pair.far, options).unwrap()
}

fn try_open(namespace: &Namespace, options: &Options) -> Result<OpenInterface, NoRxPath> {
    namespace.run(|| receive::open(Pair::DEVICE, options)).unwrap()
}

/// Opens the interface at the far end again.
fn open_again(pair: &Pair, options: &Options) -> OpenInterface {
    testkit::descriptors::open_again(|| try_open(&pair.far, options)).unwrap()
}

/// Receives until `count` datagrams have arrived, or none for half a second; returns payloads and senders.
pub(crate) fn receive(source: &mut dyn Source, count: usize) -> Vec<(Vec<u8>, SocketAddr)> {
    let mut found = Vec::new();
    while found.len() < count {
        let before = found.len();
        source
            .receive(500, &mut |packets| {
                found.extend(packets.iter().map(|packet| (packet.data.to_vec(), packet.source)));
            })
            .unwrap();
        if found.len() == before {
            break;
        }
    }
    found
}

/// Closes the interface; fails if one of its programs or maps still exists afterwards.
pub(crate) fn close(opened: OpenInterface) {
    let ids = opened.watch.ids().unwrap();
    assert!(!opened.rx_path.name().starts_with("xdp") || (ids.programs.len() == 1 && ids.maps.len() >= 3));
    drop(opened);
    gone(&ids);
}

/// The kernel frees unreferenced objects with a delay.
fn gone(ids: &Ids) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let alive = ids.alive().unwrap();
        if alive.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "left behind: programs; maps {alive}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn send(pair: &Pair, frames: &[Vec<u8>]) {
    pair.near
        .run(|| send_frames(Pair::DEVICE, frames))
        .unwrap()
        .unwrap();
}

#[test]
fn every_rx_path_delivers_the_datagrams_sent() {
    let datagram = |text: &str| udp(PORT, text.as_bytes());
    let frames = [
        ethernet(&[], 0x0800, &ipv4(0, 0, 17, &datagram("v4"))),
        ethernet(&[], 0x86dd, &ipv6(17, &datagram("v6"))),
        ethernet(&[0x8100], 0x0800, &ipv4(8, 0, 17, &datagram("vlan, options"))),
        ethernet(&[0x88a8, 0x8100], 0x86dd, &ipv6(17, &datagram("qinq"))),
        ethernet(&[], 0x86dd, &ipv6(60, &extension(17, &datagram("extension")))),
        ethernet(&[], 0x0800, &ipv4(0, 0, 17, &udp(PORT + 1, b"another port"))),
        ethernet(
            &[],
            0x0800,
            &ipv4(
                0,
                0,
                17,
                &[&[0x30, 0x39][..], &PORT.to_be_bytes(), &[0, 99, 0, 0]].concat(),
            ),
        ),
        ethernet(&[], 0x0800, &ipv4(0, 0, 17, &datagram("last"))),
    ];
    let [v4, v6] = Pair::NEAR.map(|address| SocketAddr::new(address, SOURCE));
    let expected = [
        ("v4", v4),
        ("v6", v6),
        ("vlan, options", v4),
        ("qinq", v6),
        ("extension", v6),
        ("last", v4),
    ];
    let expected = expected.map(|(text, source)| (text.as_bytes().to_vec(), source));
    let mut refused = wire::RefusalCounts::default();
    refused[wire::Refusal::BadUdpLength.index()] = 1;
    for rx_path in [RxPath::Native, RxPath::Generic, RxPath::Packet] {
        let Some(pair) = pair("rx_paths", 1) else { return };
        let mut opened = open(&pair, &options(rx_path));
        assert_eq!(
            (opened.rx_path, opened.sources.len(), opened.sources[0].kind()),
            (rx_path, 1, rx_path.name())
        );
        send(&pair, &frames);
        let source = opened.sources[0].as_mut();
        assert_eq!(receive(source, expected.len()), expected, "{rx_path}");
        let stats = source.stats();
        let bytes = expected.iter().map(|(data, _)| data.len() as u64).sum();
        let expected = Stats {
            datagrams: 6,
            bytes,
            refused,
            bursts: stats.bursts,
            ..Stats::default()
        };
        assert_eq!(stats, expected, "{rx_path}");
        let counters = opened.watch.counters().unwrap();
        let redirected = if rx_path == RxPath::Packet { 0 } else { 7 };
        assert_eq!(
            counters,
            Counters {
                redirected,
                device_dropped: counters.device_dropped,
                ..Counters::default()
            }
        );
        assert_eq!(opened.watch.check().unwrap(), State::Good);
        close(opened);
    }
}

#[test]
fn udp_sockets_are_the_last_rx_path() {
    let Some(pair) = pair("rx_paths", 1) else { return };
    let mut opened = open(
        &pair,
        &Options {
            program: None,
            ..options(RxPath::Udp)
        },
    );
    for (near, far) in Pair::NEAR.into_iter().zip(Pair::FAR) {
        let sender = pair.near.run(|| UdpSocket::bind((near, 0))).unwrap().unwrap();
        sender.send_to(b"report", (far, PORT)).unwrap();
        let from = sender.local_addr().unwrap();
        assert_eq!(
            receive(opened.sources[0].as_mut(), 1),
            [(b"report".to_vec(), from)]
        );
    }
    close(opened);
}

#[test]
fn other_traffic_passes_while_the_program_is_attached() {
    for rx_path in WITH_XDP {
        let Some(pair) = pair("other traffic", 1) else {
            return;
        };
        let opened = open(&pair, &options(rx_path));
        for (near, far) in Pair::NEAR.into_iter().zip(Pair::FAR) {
            let listener = pair.far.run(|| TcpListener::bind((far, 0))).unwrap().unwrap();
            let to = listener.local_addr().unwrap();
            let mut client = pair.near.run(|| TcpStream::connect(to)).unwrap().unwrap();
            let (mut server, _) = listener.accept().unwrap();
            let megabyte = vec![5; 1 << 20];
            let echoed = std::thread::spawn(move || {
                let mut all = vec![0; 1 << 20];
                server.read_exact(&mut all).unwrap();
                server.write_all(&all).unwrap();
            });
            client.write_all(&megabyte).unwrap();
            let mut back = vec![0; 1 << 20];
            client.read_exact(&mut back).unwrap();
            assert!(back == megabyte, "{rx_path}");
            echoed.join().unwrap();
            let other = pair.far.run(|| UdpSocket::bind((far, 0))).unwrap().unwrap();
            other.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let sender = pair.near.run(|| UdpSocket::bind((near, 0))).unwrap().unwrap();
            sender
                .send_to(b"to another port", other.local_addr().unwrap())
                .unwrap();
            assert_eq!(other.recv(&mut [0; 64]).unwrap(), 15);
        }
        close(opened);
    }
}

#[test]
fn fragments_and_long_frames_arrive_through_the_stack() {
    for rx_path in WITH_XDP {
        let Some(pair) = pair("stack source", 1) else {
            return;
        };
        for side in [&pair.near, &pair.far] {
            side.ip(&["link", "set", Pair::DEVICE, "mtu", "9000"]).unwrap();
        }
        let mut opened = open(&pair, &options(rx_path));
        let mut stack_source = opened.stack_source.take().unwrap();
        for (near, far) in Pair::NEAR.into_iter().zip(Pair::FAR) {
            let sender = pair.near.run(|| UdpSocket::bind((near, 0))).unwrap().unwrap();
            let from = sender.local_addr().unwrap();
            // Short; longer than a UMEM frame of 2048 bytes; longer than one of 4096; longer than the MTU.
            let [short, long, longer, longest] =
                [100, 3000, 8000, 9100].map(|len| (0..len).map(|n| n as u8).collect::<Vec<u8>>());
            for payload in [&short, &long, &longer, &longest] {
                sender.send_to(payload, (far, PORT)).unwrap();
            }
            assert_eq!(
                receive(opened.sources[0].as_mut(), 2),
                [(short, from), (long, from)],
                "{rx_path}"
            );
            assert_eq!(
                receive(stack_source.as_mut(), 2),
                [(longer, from), (longest, from)],
                "{rx_path}"
            );
        }
        let counters = opened.watch.counters().unwrap();
        let device_dropped = counters.device_dropped;
        let expected = Counters {
            redirected: 4,
            passed_too_long: 2,
            passed_fragment: 2,
            device_dropped,
            ..Counters::default()
        };
        assert_eq!(counters, expected, "{rx_path}");
        close(opened);
    }
}

#[test]
fn every_queue_is_read_by_one_or_several_threads() {
    for (rx_path, threads) in [
        (RxPath::Native, 1),
        (RxPath::Native, 2),
        (RxPath::Native, 9),
        (RxPath::Generic, 2),
    ] {
        let Some(pair) = pair("queues", 2) else { return };
        let mut opened = open(
            &pair,
            &Options {
                threads,
                ..options(rx_path)
            },
        );
        assert_eq!((opened.queues, opened.sources.len()), (2, threads.min(2)));
        // A veth delivers what a transmit queue sends to the receive queue with the same index.
        let sender = pair
            .near
            .run(|| UdpSocket::bind((Pair::NEAR[0], 0)))
            .unwrap()
            .unwrap();
        let mut each = Vec::new();
        for core in [0, 1] {
            // The core selects the transmit queue.
            let sender = &sender;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    nic::time::pin(core).unwrap();
                    for _ in 0..50 {
                        sender.send_to(b"report", (Pair::FAR[0], PORT)).unwrap();
                    }
                });
            });
        }
        for source in &mut opened.sources {
            each.push(receive(source.as_mut(), 100).len());
        }
        assert_eq!(each.iter().sum::<usize>(), 100, "{rx_path} {threads} {each:?}");
        assert_eq!(opened.watch.counters().unwrap().redirected, 100);
        close(opened);
    }
}

#[test]
fn datagrams_of_several_queues_have_their_receive_times_and_order() {
    for (rx_path, threads) in [(RxPath::Native, 1), (RxPath::Native, 2), (RxPath::Generic, 1)] {
        let Some(pair) = pair("order", 2) else { return };
        let mut opened = open(
            &pair,
            &Options {
                threads,
                ..options(rx_path)
            },
        );
        let sender = pair
            .near
            .run(|| UdpSocket::bind((Pair::NEAR[0], 0)))
            .unwrap()
            .unwrap();
        let begun = nic::time::now();
        // The core selects the transmit queue, which has the index of the receive queue: runs of 1 to 7 datagrams at each.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..200_u8 {
                    nic::time::pin(usize::from(number / 7 % 2)).unwrap();
                    sender.send_to(&[number], (Pair::FAR[0], PORT)).unwrap();
                }
            });
        });
        let sent = nic::time::now();
        let mut found = Vec::new();
        for source in &mut opened.sources {
            let mut packets = 1;
            while packets > 0 && found.len() < 200 {
                let mut take = |packets: &[nic::source::Packet<'_>]| {
                    found.extend(packets.iter().map(|packet| (packet.received, packet.data[0])));
                };
                packets = source.receive(500, &mut take).unwrap();
            }
        }
        if threads > 1 {
            found.sort_unstable();
        }
        let numbers: Vec<u8> = found.iter().map(|(_, number)| *number).collect();
        assert_eq!(numbers, (0..200).collect::<Vec<_>>(), "{rx_path} {threads}");
        // They are the times at which they arrived, and not at which they were read.
        assert!(
            found
                .iter()
                .all(|(received, _)| (begun..=sent).contains(received)),
            "{rx_path}"
        );
        close(opened);
    }
}

#[test]
fn frames_return_to_the_fill_ring_and_are_reused() {
    for rx_path in WITH_XDP {
        let Some(pair) = pair("reused", 2) else { return };
        let mut options = options(rx_path);
        options.xdp.frames_per_queue = 64;
        let mut opened = open(&pair, &options);
        let mut number = 0_u32;
        // Ten times as many as there are frames, but at most 64 at a time, so that none may be lost.
        for _ in 0..30 {
            let payloads: Vec<[u8; 4]> = (number..number + 40).map(u32::to_be_bytes).collect();
            number += 40;
            let frames = payloads
                .iter()
                .map(|payload| ethernet(&[], 0x0800, &ipv4(0, 0, 17, &udp(PORT, payload))));
            send(&pair, &frames.collect::<Vec<_>>());
            let mut found = receive(opened.sources[0].as_mut(), 40);
            // They may have arrived on two queues.
            found.sort();
            assert!(
                found
                    .iter()
                    .map(|(data, _)| &data[..])
                    .eq(payloads.iter().map(|payload| &payload[..])),
                "{rx_path}"
            );
        }
        let stats = opened.sources[0].stats();
        assert_eq!((stats.datagrams, stats.lost()), (1200, 0), "{rx_path}");
        close(opened);
    }
}

#[test]
fn two_interfaces_receive_at_the_same_time() {
    let (Some(one), Some(two)) = (pair("two interfaces", 1), pair("two interfaces", 1)) else {
        return;
    };
    let (mut first, mut second) = (
        open(&one, &options(RxPath::Native)),
        open(&two, &options(RxPath::Generic)),
    );
    send(&one, &[plain(100), plain(200)]);
    send(&two, &[plain(300)]);
    let lengths = |opened: &mut OpenInterface| -> Vec<usize> {
        receive(opened.sources[0].as_mut(), 3)
            .into_iter()
            .map(|(data, _)| data.len())
            .collect()
    };
    assert_eq!(
        (lengths(&mut first), lengths(&mut second)),
        (vec![58, 158], vec![258])
    );
    close(first);
    send(&two, &[plain(400)]);
    assert_eq!(lengths(&mut second), [358]);
    close(second);
}

/// The generator's object with its program renamed to one that is not ours.
fn renamed(object: &[u8]) -> Vec<u8> {
    let (ours, other) = (b"hopwise_bench", b"someone_bench");
    let mut bytes = object.to_vec();
    for at in 0..bytes.len() - ours.len() {
        if bytes[at..].starts_with(ours) {
            bytes[at..at + other.len()].copy_from_slice(other);
        }
    }
    bytes
}

#[test]
fn each_failed_rx_path_is_reported_with_its_reason() {
    let Some(pair) = pair("reasons", 1) else { return };
    // Only the driver prevents zero-copy.
    let opened = open(
        &pair,
        &Options {
            best: RxPath::ZeroCopy,
            worst: RxPath::Udp,
            ..options(RxPath::Udp)
        },
    );
    let tried: Vec<String> = opened.tried.iter().map(ToString::to_string).collect();
    assert_eq!(
        (opened.rx_path, tried),
        (
            RxPath::Native,
            vec![
                "xdp-zerocopy: bind AF_XDP veth0 queue 0: the driver has no zero-copy mode (or not for these settings)"
                    .to_owned()
            ]
        )
    );
    // The interface already has a program.
    let all = Options {
        best: RxPath::Native,
        worst: RxPath::Udp,
        ..options(RxPath::Udp)
    };
    let second = try_open(&pair.far, &all).unwrap_err().to_string();
    assert!(
        second.contains("another hopwise receives from this interface (program `hopwise_steer`"),
        "{second}"
    );
    assert!(
        second.contains("udp: bind [::]:32766: another program listens on UDP port 32766"),
        "{second}"
    );
    close(opened);
    // A program that is not ours stays attached; only AF_PACKET remains.
    let other = Object::load(&renamed(xdp::BENCH), &LoadOptions::default()).unwrap();
    let index = pair
        .far
        .run(|| device::facts(Pair::DEVICE))
        .unwrap()
        .unwrap()
        .unwrap()
        .index;
    let attached = pair
        .far
        .run(|| other.attach("someone_bench", index, Mode::Generic))
        .unwrap()
        .unwrap();
    let opened = open_again(&pair, &all);
    let reason = format!(
        "another XDP program is on this interface (`someone_bench`, ID {}): stop its owner, or detach it with \
         `ip link set veth0 xdp off`",
        other.program_id("someone_bench").unwrap()
    );
    let tried: Vec<_> = opened
        .tried
        .iter()
        .map(|refused| (refused.rx_path, refused.reason.as_str()))
        .collect();
    let reason = format!("XDP veth0: {reason}");
    assert_eq!(
        (opened.rx_path, tried),
        (
            RxPath::Packet,
            vec![(RxPath::Native, &reason[..]), (RxPath::Generic, &reason[..])]
        )
    );
    assert_eq!(attached.replaced().unwrap(), None);
    drop((opened, attached));
    pair.far.ip(&["link", "set", Pair::DEVICE, "down"]).unwrap();
    let down = try_open(&pair.far, &options(RxPath::Native))
        .unwrap_err()
        .to_string();
    assert!(
        down.contains("the interface is down: `ip link set veth0 up`"),
        "{down}"
    );
    let missing = pair
        .far
        .run(|| receive::open("hopwise-none", &all))
        .unwrap()
        .unwrap_err()
        .to_string();
    assert!(missing.contains("No such device"), "{missing}");
    let opened = {
        pair.far.ip(&["link", "set", Pair::DEVICE, "up"]).unwrap();
        open_again(&pair, &Options { program: None, ..all })
    };
    assert_eq!((opened.rx_path, opened.tried.len()), (RxPath::Packet, 2));
    close(opened);
}

#[test]
fn a_veth_that_receives_on_too_few_queues_is_detected() {
    let Some(pair) = pair("few queues", 2) else { return };
    pair.far
        .run(|| device::set_queues(Pair::DEVICE, 1, 2))
        .unwrap()
        .unwrap();
    let refused = try_open(&pair.far, &options(RxPath::Native))
        .unwrap_err()
        .to_string();
    let expected = "xdp-native: attach the XDP program: the other end of this veth sends on more queues than this end receives on: \
                    `ethtool -L veth0 rx N` with as many, or `ethtool -L PEER tx 1` there";
    assert!(refused.ends_with(expected), "{refused}");
}

/// The counters after the device has dropped a frame.
fn counted(opened: &mut OpenInterface) -> Counters {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let counters = opened.watch.counters().unwrap();
        if counters.device_dropped > 0 || Instant::now() > deadline {
            return counters;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_watch_reports_interface_changes() {
    let Some(pair) = pair("watch", 2) else { return };
    let mut opened = open(&pair, &options(RxPath::Native));
    // A program attached by a BPF link cannot be detached from outside.
    assert!(pair.far.ip(&["link", "set", Pair::DEVICE, "xdp", "off"]).is_err());
    assert_eq!(opened.watch.check().unwrap(), State::Good);
    // After down and up, the interface need not be reopened.
    pair.far.ip(&["link", "set", Pair::DEVICE, "down"]).unwrap();
    pair.far.ip(&["link", "set", Pair::DEVICE, "up"]).unwrap();
    assert_eq!(opened.watch.check().unwrap(), State::Good);
    let deadline = Instant::now() + Duration::from_secs(30);
    let found = loop {
        send(&pair, &[plain(100)]);
        let found = receive(opened.sources[0].as_mut(), 1).len();
        if found > 0 || Instant::now() > deadline {
            break found;
        }
    };
    assert!(found > 0, "nothing arrives after down and up");
    close(opened);
}

#[test]
fn the_watch_reports_queues_and_a_removed_interface() {
    let Some(pair) = pair("watch", 2) else { return };
    // A veth needs at least as many receive queues as the other end has transmit queues.
    pair.near
        .run(|| device::set_queues(Pair::DEVICE, 2, 1))
        .unwrap()
        .unwrap();
    pair.far
        .run(|| device::set_queues(Pair::DEVICE, 1, 2))
        .unwrap()
        .unwrap();
    let mut opened = open(&pair, &options(RxPath::Native));
    assert_eq!(opened.queues, 1);
    pair.far
        .run(|| device::set_queues(Pair::DEVICE, 2, 2))
        .unwrap()
        .unwrap();
    assert_eq!(
        opened.watch.check().unwrap(),
        State::QueuesChanged { before: 1, now: 2 }
    );
    // No protocol handler accepts this frame; the device counts the drop.
    send(&pair, &[ethernet(&[], 0x88b5, &[0; 50])]);
    let lost = counted(&mut opened);
    assert_eq!(lost.device_dropped, 1);
    // Removed during a read.
    let (mut source, deleting) = (opened.sources.remove(0), &pair.far);
    let error = std::thread::scope(|scope| {
        let reading = scope.spawn(move || (0..3000).find_map(|_| source.receive(10, &mut |_| {}).err()));
        std::thread::sleep(Duration::from_millis(50));
        deleting.ip(&["link", "delete", Pair::DEVICE]).unwrap();
        reading.join().unwrap()
    });
    assert_eq!(
        error.unwrap().to_string(),
        "receive veth0: the interface was removed"
    );
    assert_eq!(opened.watch.check().unwrap(), State::Gone);
    assert_eq!(
        opened.watch.counters().unwrap(),
        lost,
        "the counters remain after removal"
    );
    close(opened);
}

#[test]
fn a_program_attached_by_netlink_is_monitored_and_detected() {
    let Some(pair) = pair("netlink", 1) else { return };
    let index = pair
        .far
        .run(|| device::facts(Pair::DEVICE))
        .unwrap()
        .unwrap()
        .unwrap()
        .index;
    let load = |bytes| Object::load(bytes, &LoadOptions::default()).unwrap();
    let (steer, other) = (load(xdp::STEER), load(xdp::BENCH));
    for (mode, of_ip) in [(Mode::Native, "xdpdrv"), (Mode::Generic, "xdpgeneric")] {
        let attach = |object: &Object, program: &str| {
            pair.far
                .run(|| object.attach_by_netlink(program, index, mode))
                .unwrap()
        };
        let attached = attach(&steer, "hopwise_steer").unwrap();
        assert_eq!(attached.replaced().unwrap(), None);
        // It never replaces another program.
        assert!(attach(&other, "hopwise_bench").is_err());
        pair.far.ip(&["link", "set", Pair::DEVICE, of_ip, "off"]).unwrap();
        assert_eq!(attached.replaced().unwrap(), Some(0));
        let replacing = attach(&other, "hopwise_bench").unwrap();
        assert_eq!(
            attached.replaced().unwrap(),
            Some(other.program_id("hopwise_bench").unwrap())
        );
        drop(attached);
        assert_eq!(
            replacing.replaced().unwrap(),
            None,
            "the other program stays attached"
        );
        drop(replacing);
        // A killed run leaves its program attached. The next run detaches it.
        let left = attach(&steer, "hopwise_steer").unwrap();
        std::mem::forget(left);
        let mut opened = open(&pair, &options(RxPath::Native));
        send(&pair, &[plain(100)]);
        assert_eq!(receive(opened.sources[0].as_mut(), 1).len(), 1);
        close(opened);
    }
    let ids = steer.ids().unwrap();
    drop(steer);
    gone(&ids);
}

#[test]
fn a_bound_udp_port_does_not_prevent_xdp() {
    let Some(pair) = pair("port in use", 1) else {
        return;
    };
    let other = pair
        .far
        .run(|| UdpSocket::bind(("0.0.0.0", PORT)))
        .unwrap()
        .unwrap();
    let mut opened = open(&pair, &options(RxPath::Native));
    assert!(opened.stack_source.is_none());
    let expected = "UDP port 32766 is read by another socket: it gets the fragments and the frames that are too long for veth0";
    assert_eq!(opened.warnings, [expected]);
    let sender = pair
        .near
        .run(|| UdpSocket::bind((Pair::NEAR[0], 0)))
        .unwrap()
        .unwrap();
    let from = sender.local_addr().unwrap();
    for len in [100, 3000] {
        sender.send_to(&vec![1; len], (Pair::FAR[0], PORT)).unwrap();
    }
    assert_eq!(receive(opened.sources[0].as_mut(), 1), [(vec![1; 100], from)]);
    other.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(other.recv(&mut [0; 4000]).unwrap(), 3000);
    close(opened);
}

/// The error without the capability to load programs.
const NOT_LOADED: &str = "refused nothing can be received from veth0; xdp-native: load the BPF object: BPF programs need CAP_BPF and \
                          CAP_NET_ADMIN: grant both, or run as root";

#[test]
fn four_capabilities_are_enough_and_a_missing_one_is_reported() {
    let Some(pair) = pair("capabilities", 1) else {
        return;
    };
    for (capabilities, expected) in [
        ("-all,+bpf,+net_admin,+net_raw,+ipc_lock", "opened xdp-native"),
        (
            "-all,+bpf,+net_admin,+net_raw",
            "refused nothing can be received from veth0; xdp-native: setsockopt XDP_UMEM_REG: 32 MiB of memory may not be \
             locked: grant CAP_IPC_LOCK, or raise the limit (`ulimit -l 32768`, in a unit `LimitMEMLOCK=32M`)",
        ),
        (
            "-all,+bpf,+net_admin,+ipc_lock",
            "refused nothing can be received from veth0; xdp-native: socket AF_XDP veth0: CAP_NET_RAW is missing: grant it, \
             or run as root",
        ),
        ("-all,+net_admin,+net_raw,+ipc_lock", NOT_LOADED),
        ("-all,+bpf,+net_raw,+ipc_lock", NOT_LOADED),
    ] {
        let Some((printed, errors)) = with_capabilities(&pair, capabilities) else {
            return;
        };
        assert!(
            printed.lines().any(|line| line.starts_with(expected)),
            "{capabilities}: {printed}{errors}"
        );
    }
}

/// Output of a child in the far namespace that is not root and has only these capabilities.
fn with_capabilities(pair: &Pair, capabilities: &str) -> Option<(String, String)> {
    let output = Command::new("ip")
        .args([
            "netns",
            "exec",
            pair.far.name(),
            "prlimit",
            "--memlock=65536:65536",
        ])
        .args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(format!("--inh-caps={capabilities}"))
        .arg(format!("--ambient-caps={capabilities}"))
        .arg(format!("--bounding-set={capabilities}"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "fallback::child_with_few_capabilities", "--nocapture"])
        .env(CHILD, pair.far.name())
        .output();
    match output {
        Ok(output) if output.status.code() != Some(127) => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            Some((text(&output.stdout), text(&output.stderr)))
        }
        _ => {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED capabilities: there is no `prlimit` or `setpriv`"
            );
            None
        }
    }
}

/// Not a test by itself: [`with_capabilities`] starts it, in a namespace and not as root.
#[test]
fn child_with_few_capabilities() {
    if std::env::var(CHILD).is_err() {
        return;
    }
    match receive::open(Pair::DEVICE, &options(RxPath::Native)) {
        Ok(mut opened) => {
            let state = opened.watch.check().unwrap();
            assert_eq!(
                (state, opened.watch.counters().unwrap().redirected),
                (State::Good, 0)
            );
            println!("\nopened {}", opened.rx_path);
        }
        Err(error) => println!("\nrefused {error}"),
    }
}

/// Set for a child process, to the name of its namespace.
const CHILD: &str = "HOPWISE_TEST_NAMESPACE";

/// Not a test by itself: [`a_killed_run_leaves_no_state_behind`] kills it.
#[test]
fn child_that_is_killed() {
    let Ok(namespace) = std::env::var(CHILD) else {
        return;
    };
    let opened = netns::within(&namespace, || {
        receive::open(Pair::DEVICE, &options(RxPath::Native))
    })
    .unwrap()
    .unwrap();
    println!("\nids {}", opened.watch.ids().unwrap());
    std::thread::sleep(Duration::from_secs(30));
}

#[test]
fn a_killed_run_leaves_no_state_behind() {
    let Some(pair) = pair("kill", 1) else { return };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "fallback::child_that_is_killed", "--nocapture"])
        .env(CHILD, pair.far.name())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let ids = lines
        .filter_map(|line| Ids::parse(line.strip_prefix("ids ")?))
        .next();
    let Some(ids) = ids else {
        let _ = child.wait();
        panic!("the child did not open the interface");
    };
    assert_eq!(ids.alive().unwrap(), ids);
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    gone(&ids);
    let mut opened = open(&pair, &options(RxPath::Native));
    send(&pair, &[plain(100)]);
    assert_eq!(receive(opened.sources[0].as_mut(), 1).len(), 1);
    close(opened);
}
