//! The program on an interface: frames arrive over a link, and responses leave.

use std::time::{Duration, Instant};

use nic::frames::{self, Port};
use nic::netns::{Pair, send_frames};
use nic::receive::RxPath;
use nic::udp::{Burst, Receiver};
use rdma::responder::{AccessFlags, Order, QueuePairConfig, Registered};
use wire::roce::{Aeth, Endpoints, Head, Opcode, Packet, Path, Psn, Syndrome, Transport, Writer};
use xdp::rdma::Options;

use crate::both::load;
use crate::frames::{HERE, Request, address, atomic, reth};

const ADDRESS: u64 = 1 << 40;
const KEY: u32 = 0x1234_5601;
const FROM: u8 = 1;

fn config(transport: Transport) -> QueuePairConfig {
    let path = Path::new(address(false, HERE), address(false, FROM), 0xc001);
    QueuePairConfig {
        transport,
        path,
        peer: 9,
        psn: Psn::new(0xff_ffff),
        mtu: 1024,
        receives: 0,
    }
}

fn request(number: u32, opcode: u8, psn: u32, extension: Vec<u8>, payload: &[u8]) -> Vec<u8> {
    let (payload, pad) = (payload.to_vec(), (payload.len().wrapping_neg() & 3) as u8);
    Request {
        v6: false,
        from: FROM,
        opcode,
        pair: number,
        psn,
        ack: true,
        extension,
        payload,
        pad,
    }
    .frame()
}

/// Waits until `done` returns true.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// Opcode, queue pair, number, syndrome, messages, result.
type Response = (Opcode, u32, u32, Syndrome, u32, Option<u64>);

/// The next `count` responses.
fn responses(port: &mut Port, count: usize) -> Vec<Response> {
    let mut responses = Vec::new();
    until("responses arrive", || {
        port.receive(16, &mut |frame| {
            if let Ok(packet) = Packet::parse(frame.data) {
                let Aeth { syndrome, msn } = packet.aeth.unwrap();
                let psn = packet.bth.psn.value();
                responses.push((
                    packet.bth.opcode,
                    packet.bth.queue_pair,
                    psn,
                    syndrome,
                    msn,
                    packet.atomic_ack,
                ));
            }
        });
        responses.len() >= count
    });
    responses
}

/// Asserts that two pages of memory are zero except these bytes of the second.
fn holds(memory: &memory::Region, written: &[(usize, &[u8])]) {
    let (mut found, mut expected) = (vec![9; 8192], vec![0; 8192]);
    memory.read(0, &mut found).unwrap();
    for (at, bytes) in written {
        expected[4096 + at..4096 + at + bytes.len()].copy_from_slice(bytes);
    }
    assert!(found == expected);
}

#[test]
fn writes_arrive_and_acknowledgements_leave_on_an_interface() {
    let options = Options {
        memory: 1 << 20,
        ..Options::default()
    };
    let Some(mut kernel) = load("writes_arrive_and_acknowledgements_leave", &options) else {
        return;
    };
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => return crate::skipped("writes_arrive_and_acknowledgements_leave", &error),
    };
    let memory = kernel.map(4096, 8192).unwrap();
    let named = Registered {
        address: ADDRESS,
        len: 4096,
        rkey: KEY,
    };
    // The first page is the store's header, which is not writable from the network.
    kernel
        .register(&named, 8192, AccessFlags::ALL, Order::HeadLast, 3)
        .unwrap();
    kernel.connect(0x5001, &config(Transport::Uc)).unwrap();
    kernel.connect(0x5002, &config(Transport::Rc)).unwrap();
    let attached = pair.far.run(|| kernel.attach(Pair::DEVICE)).unwrap().unwrap();
    assert_eq!(attached.rx_path, RxPath::Native);
    let mut port = pair
        .near
        .run(|| Port::open(Pair::DEVICE, &frames::Options::default()))
        .unwrap()
        .unwrap();
    // A veth receives frames that the other end's program sends only if it polls (NAPI), which GRO enables.
    pair.near
        .run(|| nic::device::set_offload(Pair::DEVICE, "rx-gro", true))
        .unwrap()
        .unwrap();
    let requests = [
        request(0x5001, 0x2a, 0xff_ffff, reth(ADDRESS + 8, KEY, 24), &[1; 24]),
        request(0x5002, 0x0a, 0xff_ffff, reth(ADDRESS + 40, KEY, 5), &[2; 5]),
        request(0x5002, 0x14, 0, atomic(ADDRESS + 48, KEY, 77), &[]),
        // Ahead of the expected PSN; and one for an unknown queue pair.
        request(0x5002, 0x0a, 5, reth(ADDRESS, KEY, 4), &[3; 4]),
        request(0x5003, 0x0a, 5, reth(ADDRESS, KEY, 4), &[3; 4]),
    ];
    pair.near
        .run(|| send_frames(Pair::DEVICE, &requests))
        .unwrap()
        .unwrap();
    let responses = responses(&mut port, 3);
    let nak = Syndrome::Nak(wire::roce::Nak::SequenceError);
    assert_eq!(
        responses,
        [
            (Opcode::Acknowledge, 9, 0xff_ffff, Syndrome::ACK, 1, None),
            (Opcode::AtomicAcknowledge, 9, 0, Syndrome::ACK, 2, Some(0)),
            (Opcode::Acknowledge, 9, 1, nak, 2, None),
        ]
    );
    until("the frame for nobody is passed", || {
        kernel.counted().unwrap().passed == 1
    });
    let counted = kernel.counted().unwrap();
    assert!(
        counted.is_balanced() && counted.responses_unsent == 0,
        "{counted:?}"
    );
    assert_eq!(
        (counted.stats.packets, counted.stats.executed, counted.stats.bytes),
        (4, 3, 29)
    );
    holds(&memory, &[(8, &[1; 24]), (40, &[2; 5]), (48, &[77])]);
    // Dropping the attachment detaches the program, and the memory stays as long as it is mapped.
    let ids = kernel.object().ids().unwrap();
    drop((attached, kernel));
    assert_eq!(memory.load_u64(4096 + 48).unwrap(), 77);
    drop(memory);
    until("nothing is left behind", || ids.alive().unwrap().is_empty());
}

#[test]
fn responses_find_a_socket_on_any_port_without_a_configured_hardware_address() {
    const NAME: &str = "responses_find_a_socket_on_any_port";
    let options = Options {
        memory: 1 << 20,
        ..Options::default()
    };
    let Some(mut kernel) = load(NAME, &options) else {
        return;
    };
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => return crate::skipped(NAME, &error),
    };
    let named = Registered {
        address: ADDRESS,
        len: 4096,
        rkey: KEY,
    };
    kernel
        .register(&named, 4096, AccessFlags::ALL, Order::HeadLast, 3)
        .unwrap();
    let attached = pair.far.run(|| kernel.attach(Pair::DEVICE)).unwrap().unwrap();
    pair.near
        .run(|| nic::device::set_offload(Pair::DEVICE, "rx-gro", true))
        .unwrap()
        .unwrap();
    for family in 0..2 {
        let (near, far) = (Pair::NEAR[family], Pair::FAR[family]);
        let bind = || Receiver::bind((near, 0).into(), &nic::udp::Options::default()).unwrap();
        let mut socket = pair.near.run(bind).unwrap();
        socket.never_fragment().unwrap();
        let port = socket.local_addr().port();
        let number = 0x6001 + family as u32;
        let to = QueuePairConfig {
            path: Path::new(far, near, port),
            ..config(Transport::Rc)
        };
        kernel.connect_to(number, &to, port).unwrap();
        let there = Path::new(near, far, port);
        let mut writer = Writer::new(there, Transport::Rc, number).unwrap();
        let reth = wire::roce::Reth {
            address: ADDRESS,
            rkey: KEY,
            len: 8,
        };
        let mut frame = [0; 256];
        let head = Head {
            ack_request: true,
            ..Head::new(Psn::new(0xff_ffff))
        };
        let len = writer.write_only(&mut frame, head, reth, &[7; 8]).unwrap();
        let sent = socket.send([((far, 4791).into(), &frame[there.headers_len()..len])]);
        assert_eq!(sent.sent, 1, "{sent:?}");
        let mut burst = Burst::new(4, 2048);
        assert_eq!(
            socket.recv(&mut burst, 10_000).unwrap(),
            1,
            "IPv{}: {:?}",
            4 + 2 * family,
            kernel.counted()
        );
        let packet = burst.iter().next().unwrap();
        assert_eq!(packet.source.ip(), far);
        let ends = Endpoints {
            source: far,
            destination: near,
            source_port: packet.source.port(),
        };
        let response = Packet::parse_udp(packet.data, ends).unwrap();
        assert_eq!(
            (response.bth.queue_pair, response.aeth.unwrap().syndrome),
            (9, Syndrome::ACK)
        );
    }
    drop(attached);
}

#[test]
fn a_flood_is_executed_or_counted_to_the_last_packet() {
    const TOTAL: u64 = 200_000;
    let options = Options {
        memory: 1 << 20,
        ..Options::default()
    };
    let Some(mut kernel) = load("a_flood_is_executed_or_counted_to_the_last_packet", &options) else {
        return;
    };
    // Two queues, so that two CPUs may process one queue pair at the same time.
    let pair = match Pair::with_queues(2) {
        Ok(pair) => pair,
        Err(error) => return crate::skipped("a_flood_is_executed_or_counted", &error),
    };
    let named = Registered {
        address: ADDRESS,
        len: 4096,
        rkey: KEY,
    };
    kernel
        .register(&named, 4096, AccessFlags::ALL, Order::HeadLast, 3)
        .unwrap();
    kernel.connect(0x5001, &config(Transport::Uc)).unwrap();
    let attached = pair.far.run(|| kernel.attach(Pair::DEVICE)).unwrap().unwrap();
    let before = pair.link_drops().unwrap();
    let frame = request(0x5001, 0x2a, 0xff_ffff, reth(ADDRESS + 8, KEY, 24), &[1; 24]);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                pair.near
                    .run(|| {
                        let sender =
                            nic::load::LiveFrames::open(xdp::BENCH, Pair::DEVICE, &[], None).unwrap();
                        sender
                            .send(&frame, TOTAL / 2, &std::sync::atomic::AtomicBool::new(false))
                            .unwrap();
                    })
                    .unwrap();
            });
        }
    });
    until("all is accounted for", || {
        let lost = pair.link_drops().unwrap() - before;
        kernel.counted().unwrap().stats.packets + lost == TOTAL
    });
    let counted = kernel.counted().unwrap();
    assert!(counted.is_balanced(), "{counted:?}");
    assert_eq!(counted.stats.executed + counted.contended, counted.stats.packets);
    assert_eq!(counted.stats.messages, counted.stats.executed);
    println!("{counted:?}");
    drop(attached);
}
