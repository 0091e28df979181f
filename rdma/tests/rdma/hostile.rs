//! Invalid packets at a responder: nothing outside of its region changes, everything is counted, and a reliable requester gets a
//! NAK.

use std::net::IpAddr;
use std::sync::Arc;

use memory::Region;
use rdma::responder::{
    AccessFlags, Config, Order, QueuePairConfig, QueuePairError, QueuePairState, Reason, RegisterError,
    Registration, Responder, Stats,
};
use wire::Refusal;
use wire::roce::{Aeth, AtomicEth, Head, Nak, Packet, Path, Psn, Reth, Syndrome, Transport, Writer};

use testkit::rdma::{Received, Rng, paths};

const LEN: u64 = 1 << 14;
/// The memory that requests may access lies between memory that they must not.
const START: u64 = 4096;
const BODY: u64 = 8192;

struct Fixture {
    transport: Transport,
    responder: Responder,
    memory: Arc<Region>,
    address: u64,
    rkey: u32,
    queue_pair: u32,
    writer: Writer,
    paths: (Path, Path),
    received: Received,
}

type Frame = Vec<u8>;
/// Name of a defect, the responder's reason and NAK for it, and a function that makes the frame.
type Wrong = (&'static str, Reason, Nak, fn(&mut Fixture) -> Frame);

impl Fixture {
    fn new(transport: Transport) -> Self {
        Self::with(transport, AccessFlags::ALL)
    }

    fn with(transport: Transport, access: AccessFlags) -> Self {
        Self::ordered(transport, access, Order::Ascending)
    }

    fn ordered(transport: Transport, access: AccessFlags, order: Order) -> Self {
        Self::over(paths(), transport, access, order)
    }

    /// Over these paths: to the responder, and back.
    fn over((there, path): (Path, Path), transport: Transport, access: AccessFlags, order: Order) -> Self {
        let config = Config {
            atomic_depth: 4,
            ..Config::default()
        };
        let mut responder = Responder::new(config).unwrap();
        let memory = Arc::new(Region::anonymous(LEN, false).unwrap());
        let what = Registration {
            memory: Arc::clone(&memory),
            start: START,
            len: BODY,
            access,
            order,
            region: 3,
        };
        let at = responder.register(&what).unwrap();
        let queue_pair = QueuePairConfig {
            transport,
            path,
            peer: 0x77,
            psn: Psn::new(0xff_fffe),
            mtu: 256,
            receives: 2,
        };
        let queue_pair = responder.connect(&queue_pair).unwrap();
        let writer = Writer::new(there, transport, queue_pair).unwrap();
        Self {
            transport,
            responder,
            memory,
            address: at.address,
            rkey: at.rkey,
            queue_pair,
            writer,
            paths: (there, path),
            received: Received::default(),
        }
    }

    /// Switches to another queue pair, of the other transport.
    fn turn(&mut self) {
        let (there, path) = self.paths;
        self.transport = if self.transport == Transport::Uc {
            Transport::Rc
        } else {
            Transport::Uc
        };
        let psn = Psn::new(0xff_fffe);
        let queue_pair = QueuePairConfig {
            transport: self.transport,
            path,
            peer: 0x77,
            psn,
            mtu: 256,
            receives: 2,
        };
        self.queue_pair = self.responder.connect(&queue_pair).unwrap();
        self.writer = Writer::new(there, self.transport, self.queue_pair).unwrap();
    }

    fn reth(&self, offset: u64, len: u32) -> Reth {
        Reth {
            address: self.address + offset,
            rkey: self.rkey,
            len,
        }
    }

    fn make(&mut self, make: impl FnOnce(&mut Writer, &mut [u8]) -> usize) -> Frame {
        let mut frame = vec![0; 8192];
        let len = make(&mut self.writer, &mut frame);
        frame.truncate(len);
        frame
    }

    fn only(&mut self, psn: u32, reth: Reth) -> Frame {
        let head = head(psn);
        self.make(|writer, out| {
            writer
                .write_only(out, head, reth, &vec![0x55; reth.len as usize])
                .unwrap()
        })
    }

    /// A message of 700 bytes in three packets.
    fn three(&mut self, psn: u32, offset: u64, byte: u8) -> [Frame; 3] {
        let (data, reth) = ([byte; 700], self.reth(offset, 700));
        let next = |by| head(Psn::new(psn).plus(by).value());
        [
            self.make(|writer, out| writer.write_first(out, next(0), reth, &data[..256]).unwrap()),
            self.make(|writer, out| writer.write_middle(out, next(1), &data[256..512]).unwrap()),
            self.make(|writer, out| writer.write_last(out, next(2), &data[512..]).unwrap()),
        ]
    }

    fn add(&mut self, psn: u32, offset: u64) -> Frame {
        let atomic = AtomicEth {
            address: self.address + offset,
            rkey: self.rkey,
            add: 3,
            compare: 0,
        };
        self.make(|writer, out| writer.fetch_add(out, head(psn), atomic).unwrap())
    }

    fn process(&mut self, frame: &[u8]) {
        self.responder.process([frame], &mut self.received);
    }

    /// Responses since the last call.
    fn responses(&mut self) -> Vec<(u32, Aeth, Option<u64>)> {
        let responses = std::mem::take(&mut self.received.responses);
        let read = responses.iter().map(|frame| {
            let packet = Packet::parse(frame).unwrap();
            assert_eq!((packet.bth.queue_pair, packet.fault), (0x77, None));
            (packet.bth.psn.value(), packet.aeth.unwrap(), packet.atomic_ack)
        });
        read.collect()
    }

    fn dropped(&self, reason: Reason) -> u64 {
        self.responder.stats().dropped[reason as usize]
    }

    fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(at, &mut bytes).unwrap();
        bytes
    }

    fn untouched(&self) -> bool {
        self.bytes(0, LEN as usize).iter().all(|byte| *byte == 0)
    }
}

fn head(psn: u32) -> Head {
    Head {
        psn: Psn::new(psn),
        ack_request: true,
        solicited: false,
    }
}

const fn ack(msn: u32) -> Aeth {
    Aeth {
        syndrome: Syndrome::ACK,
        msn,
    }
}

/// Recomputes the ICRC of a changed frame, with the plain implementation.
fn sealed(mut frame: Frame) -> Frame {
    let end = frame.len() - 4;
    let mut crc = 0xdebb_20e3_u32;
    for (at, byte) in frame.iter().enumerate().take(end).skip(14) {
        let free = matches!(at - 14, 1 | 8 | 10 | 11 | 26 | 27 | 32);
        crc ^= u32::from(if free { 0xff } else { *byte });
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ 0xedb8_8320
            } else {
                crc >> 1
            };
        }
    }
    frame[end..].copy_from_slice(&(!crc).to_le_bytes());
    frame
}

/// Invalid frames, each the first of its connection.
fn wrong() -> Vec<Wrong> {
    const FIRST: u32 = 0xff_fffe;
    fn changed(fixture: &mut Fixture, change: fn(&mut Reth)) -> Frame {
        let mut reth = fixture.reth(0, 8);
        change(&mut reth);
        fixture.only(FIRST, reth)
    }
    vec![
        ("rkey", Reason::BadRkey, Nak::RemoteAccess, |fixture| {
            changed(fixture, |reth| reth.rkey ^= 0x100)
        }),
        ("index", Reason::BadRkey, Nak::RemoteAccess, |fixture| {
            changed(fixture, |reth| reth.rkey ^= 0x81)
        }),
        ("before", Reason::OutOfRange, Nak::RemoteAccess, |fixture| {
            changed(fixture, |reth| reth.address -= 1)
        }),
        ("behind", Reason::OutOfRange, Nak::RemoteAccess, |fixture| {
            changed(fixture, |reth| reth.address += BODY - 7)
        }),
        ("far", Reason::OutOfRange, Nak::RemoteAccess, |fixture| {
            changed(fixture, |reth| reth.address = u64::MAX - 3)
        }),
        ("zero", Reason::OutOfRange, Nak::RemoteAccess, |fixture| {
            changed(fixture, |reth| reth.address = 0)
        }),
        ("whole", Reason::OutOfRange, Nak::RemoteAccess, |fixture| {
            let reth = Reth {
                len: u32::MAX,
                ..fixture.reth(0, 0)
            };
            fixture.make(|writer, out| writer.write_first(out, head(FIRST), reth, &[9; 256]).unwrap())
        }),
        (
            "more than the MTU",
            Reason::BadLength,
            Nak::InvalidRequest,
            |fixture| {
                let reth = fixture.reth(0, 257);
                fixture.only(FIRST, reth)
            },
        ),
        ("another MTU", Reason::BadLength, Nak::InvalidRequest, |fixture| {
            let reth = fixture.reth(0, 1000);
            fixture.make(|writer, out| writer.write_first(out, head(FIRST), reth, &[9; 512]).unwrap())
        }),
        (
            "shorter than it says",
            Reason::BadLength,
            Nak::InvalidRequest,
            |fixture| {
                let mut frame = changed(fixture, |_| {});
                frame[69] = 12;
                sealed(frame)
            },
        ),
        (
            "padding that is none",
            Reason::BadLength,
            Nak::InvalidRequest,
            |fixture| {
                let mut frame = changed(fixture, |_| {});
                frame[43] |= 0x10;
                sealed(frame)
            },
        ),
        ("a read", Reason::BadOpcode, Nak::InvalidRequest, |fixture| {
            let mut frame = changed(fixture, |_| {});
            frame[42] = frame[42] & 0xe0 | 0x0c;
            sealed(frame)
        }),
        (
            "the middle of nothing",
            Reason::BadSequence,
            Nak::InvalidRequest,
            |fixture| fixture.make(|writer, out| writer.write_middle(out, head(FIRST), &[9; 256]).unwrap()),
        ),
        (
            "the end of nothing",
            Reason::BadSequence,
            Nak::InvalidRequest,
            |fixture| fixture.make(|writer, out| writer.write_last(out, head(FIRST), &[9; 8]).unwrap()),
        ),
    ]
}

#[test]
fn a_reliable_requester_is_nacked_and_then_ignored() {
    for (what, reason, nak, make) in wrong() {
        let mut fixture = Fixture::new(Transport::Rc);
        let frame = make(&mut fixture);
        fixture.process(&frame);
        assert_eq!(
            fixture.responses(),
            [(
                0xff_fffe,
                Aeth {
                    syndrome: Syndrome::Nak(nak),
                    msn: 0
                },
                None
            )],
            "{what}"
        );
        assert_eq!(
            (fixture.dropped(reason), fixture.untouched()),
            (1, true),
            "{what}"
        );
        assert_eq!(
            fixture.responder.state(fixture.queue_pair),
            Some(QueuePairState::Error)
        );
        let reth = fixture.reth(0, 8);
        let good = fixture.only(0xff_fffe, reth);
        fixture.process(&good);
        assert_eq!(
            (
                fixture.responses().len(),
                fixture.dropped(Reason::QueuePairInError),
                fixture.untouched()
            ),
            (0, 1, true)
        );
        assert_eq!(
            fixture.responder.expected(fixture.queue_pair),
            Some(Psn::new(0xff_fffe))
        );
        assert!(fixture.responder.stats().is_balanced());
    }
}

#[test]
fn an_unreliable_queue_pair_sends_no_response_and_continues() {
    for (what, reason, _, make) in wrong() {
        let mut fixture = Fixture::new(Transport::Uc);
        let frame = make(&mut fixture);
        fixture.process(&frame);
        // Without its first packet the responder cannot know whether there was a message.
        let reason = if reason == Reason::BadSequence {
            Reason::FirstMissing
        } else {
            reason
        };
        assert_eq!(
            (
                fixture.dropped(reason),
                fixture.untouched(),
                fixture.responses().len()
            ),
            (1, true, 0),
            "{what}"
        );
        let reth = fixture.reth(8, 8);
        let good = fixture.only(0xff_ffff, reth);
        fixture.process(&good);
        assert_eq!(fixture.bytes(START + 8, 8), [0x55; 8], "{what}");
        assert!(fixture.responder.stats().is_balanced());
    }
}

#[test]
fn rights_and_alignment_of_additions() {
    let mut fixture = Fixture::with(Transport::Rc, AccessFlags::WRITE);
    let frame = fixture.add(0xff_fffe, 0);
    fixture.process(&frame);
    assert_eq!(
        (fixture.dropped(Reason::AccessDenied), fixture.untouched()),
        (1, true)
    );
    let mut fixture = Fixture::new(Transport::Rc);
    let frame = fixture.add(0xff_fffe, 4);
    fixture.process(&frame);
    assert_eq!(
        fixture.responses()[0].1.syndrome,
        Syndrome::Nak(Nak::InvalidRequest)
    );
    assert_eq!(
        (fixture.dropped(Reason::Misaligned), fixture.untouched()),
        (1, true)
    );
    let mut fixture = Fixture::new(Transport::Rc);
    let frame = fixture.add(0xff_fffe, BODY);
    fixture.process(&frame);
    assert_eq!(
        (fixture.dropped(Reason::OutOfRange), fixture.untouched()),
        (1, true)
    );
}

#[test]
fn numbers_around_the_wrap_are_acknowledged_once_for_all_of_a_burst() {
    let mut fixture = Fixture::new(Transport::Rc);
    let frames: Vec<Frame> = (0..5)
        .map(|i| {
            let reth = fixture.reth(i * 8, 8);
            fixture.only(0xff_fffe + i as u32, reth)
        })
        .collect();
    fixture
        .responder
        .process(frames.iter().map(Vec::as_slice), &mut fixture.received);
    assert_eq!(fixture.responses(), [(2, ack(5), None)]);
    assert_eq!(fixture.bytes(START, 41), [[0x55; 40].as_slice(), &[0]].concat());
    assert_eq!(fixture.responder.expected(fixture.queue_pair), Some(Psn::new(3)));
}

#[test]
fn a_gap_is_nacked_once_until_it_is_filled() {
    let mut fixture = Fixture::new(Transport::Rc);
    let frames: Vec<Frame> = (0..6)
        .map(|i| {
            let reth = fixture.reth(i * 8, 8);
            fixture.only(0xff_fffe + i as u32, reth)
        })
        .collect();
    for index in [1, 2, 3] {
        fixture.process(&frames[index]);
    }
    let nak = Aeth {
        syndrome: Syndrome::Nak(Nak::SequenceError),
        msn: 0,
    };
    assert_eq!(fixture.responses(), [(0xff_fffe, nak, None)]);
    assert!(fixture.untouched());
    fixture.process(&frames[0]);
    assert_eq!(fixture.responses(), [(0xff_fffe, ack(1), None)]);
    fixture.process(&frames[3]);
    fixture.process(&frames[4]);
    assert_eq!(fixture.responses(), [(0xff_ffff, Aeth { msn: 1, ..nak }, None)]);
    // Duplicates are acknowledged again, and not executed again.
    fixture.memory.store_u64(START, 0).unwrap();
    fixture.process(&frames[0]);
    assert_eq!(fixture.responses(), [(0xff_fffe, ack(1), None)]);
    assert!(fixture.untouched());
    assert_eq!(
        (
            fixture.responder.stats().duplicates,
            fixture.dropped(Reason::Ahead)
        ),
        (1, 5)
    );
}

#[test]
fn an_addition_is_made_once_however_often_it_is_asked_for() {
    let mut fixture = Fixture::new(Transport::Rc);
    let frames: Vec<Frame> = (0..6).map(|i| fixture.add(0xff_fffe + i, 16)).collect();
    for frame in &frames {
        fixture.process(frame);
    }
    let originals: Vec<_> = fixture
        .responses()
        .into_iter()
        .map(|(_, _, original)| original)
        .collect();
    assert_eq!(originals, [0, 3, 6, 9, 12, 15].map(Some));
    // The results of the last four are saved.
    for frame in &frames {
        fixture.process(frame);
    }
    let again: Vec<_> = fixture
        .responses()
        .into_iter()
        .map(|(psn, _, original)| (psn, original))
        .collect();
    assert_eq!(again, [(0, Some(6)), (1, Some(9)), (2, Some(12)), (3, Some(15))]);
    assert_eq!(fixture.memory.load_u64(START + 16), Ok(18));
    assert_eq!(
        (
            fixture.responder.stats().duplicates,
            fixture.dropped(Reason::ResultOverwritten)
        ),
        (4, 2)
    );
}

#[test]
fn a_message_of_many_packets_is_written_whole_or_broken_off() {
    for transport in [Transport::Rc, Transport::Uc] {
        let mut fixture = Fixture::new(transport);
        let data: Vec<u8> = (0..700).map(|i| i as u8).collect();
        let reth = fixture.reth(100, 700);
        let [first, middle, last] = [
            fixture.make(|writer, out| {
                writer
                    .write_first(out, head(0xff_fffe), reth, &data[..256])
                    .unwrap()
            }),
            fixture.make(|writer, out| {
                writer
                    .write_middle(out, head(0xff_ffff), &data[256..512])
                    .unwrap()
            }),
            fixture.make(|writer, out| {
                writer
                    .write_last_immediate(out, head(0), 9, &data[512..])
                    .unwrap()
            }),
        ];
        for frame in [&first, &middle, &last] {
            fixture.process(frame);
        }
        assert_eq!(fixture.bytes(START + 100, 701), [data.as_slice(), &[0]].concat());
        let [completion] = fixture.received.completions[..] else {
            panic!("one completion")
        };
        assert_eq!(
            (
                completion.immediate,
                completion.location,
                completion.len,
                completion.queue_pair
            ),
            (9, Some((3, 100)), 700, fixture.queue_pair)
        );
        // Another message interrupts an unfinished one.
        let first = fixture.make(|writer, out| writer.write_first(out, head(1), reth, &data[..256]).unwrap());
        let reth = fixture.reth(0, 8);
        let only = fixture.only(2, reth);
        fixture.process(&first);
        fixture.process(&only);
        let stats = *fixture.responder.stats();
        assert_eq!(
            (stats.abandoned, stats.messages),
            (1, if transport == Transport::Rc { 1 } else { 2 })
        );
        assert!(stats.is_balanced());
    }
}

#[test]
fn a_slot_of_many_packets_has_no_head_until_the_last_one_came() {
    for transport in [Transport::Rc, Transport::Uc] {
        let mut fixture = Fixture::ordered(transport, AccessFlags::ALL, Order::HeadLast);
        let is = |fixture: &Fixture, head: u8, parts: [u8; 3]| {
            let [one, two, three] = parts;
            let slot = [
                vec![head; 8],
                vec![one; 248],
                vec![two; 256],
                vec![three; 188],
                vec![0; 8],
            ]
            .concat();
            assert_eq!(fixture.bytes(START + 16, 708), slot, "{head}: {parts:?}");
        };
        for (frame, parts) in fixture
            .three(0xff_fffe, 16, 5)
            .iter()
            .zip([[5, 0, 0], [5, 5, 0], [5, 5, 5]])
        {
            fixture.process(frame);
            is(&fixture, if parts[2] == 0 { 0 } else { 5 }, parts);
        }
        // The next message loses its last packet: the head is zero, neither the new one nor the old one.
        let [first, middle, _] = fixture.three(1, 16, 6);
        fixture.process(&first);
        is(&fixture, 0, [6, 5, 5]);
        fixture.process(&middle);
        is(&fixture, 0, [6, 6, 5]);
        let reth = fixture.reth(4096, 8);
        let only = fixture.only(3, reth);
        fixture.process(&only);
        is(&fixture, 0, [6, 6, 5]);
        assert_eq!(fixture.responder.stats().abandoned, 1);
        if transport == Transport::Uc {
            fixture
                .three(4, 16, 7)
                .iter()
                .for_each(|frame| fixture.process(frame));
            is(&fixture, 7, [7, 7, 7]);
            // At an unaligned offset, where no slot can be, the bytes are stored in order.
            let [first, ..] = fixture.three(7, 2001, 8);
            fixture.process(&first);
            assert_eq!(
                fixture.bytes(START + 2001, 257),
                [[8; 256].as_slice(), &[0]].concat()
            );
        }
        assert!(fixture.responder.stats().is_balanced());
    }
}

#[test]
fn a_message_does_not_go_on_in_another_region_in_the_same_place() {
    for transport in [Transport::Rc, Transport::Uc] {
        for order in [Order::Ascending, Order::HeadLast] {
            let mut fixture = Fixture::ordered(transport, AccessFlags::ALL, order);
            let [first, middle, _] = fixture.three(0xff_fffe, 16, 5);
            fixture.process(&first);
            assert!(fixture.responder.deregister(fixture.rkey));
            let memory = Arc::clone(&fixture.memory);
            let what = Registration {
                memory,
                start: START,
                len: BODY,
                access: AccessFlags::ALL,
                order,
                region: 4,
            };
            let other = fixture.responder.register(&what).unwrap();
            assert_eq!(
                (other.address, other.rkey & 0xff),
                (fixture.address, fixture.rkey & 0xff)
            );
            fixture.process(&middle);
            assert_eq!(
                (
                    fixture.dropped(Reason::BadRkey),
                    fixture.responder.stats().abandoned
                ),
                (1, 1)
            );
            assert_eq!(fixture.bytes(START + 16 + 256, 256), [0; 256]);
        }
    }
}

#[test]
fn an_unreliable_queue_pair_recovers_after_a_loss() {
    let mut fixture = Fixture::new(Transport::Uc);
    let middle = fixture.make(|writer, out| writer.write_middle(out, head(0xff_ffff), &[7; 256]).unwrap());
    let last = fixture.make(|writer, out| writer.write_last(out, head(0), &[7; 8]).unwrap());
    let reth = fixture.reth(0, 8);
    let next = fixture.only(5, reth);
    for frame in [&middle, &last, &next] {
        fixture.process(frame);
    }
    let stats = fixture.responder.stats();
    assert_eq!(
        (
            stats.skipped,
            fixture.dropped(Reason::FirstMissing),
            stats.executed
        ),
        (5, 2, 1)
    );
    assert_eq!(
        fixture.bytes(START, 9),
        [0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0]
    );
}

#[test]
fn without_a_receive_an_immediate_is_not_executed() {
    for (transport, answers) in [(Transport::Rc, 1), (Transport::Uc, 0)] {
        let mut fixture = Fixture::new(transport);
        for psn in 0..3 {
            let reth = fixture.reth(u64::from(psn) * 8, 8);
            let psn = 0xff_fffe + psn;
            let frame = fixture.make(|writer, out| {
                writer
                    .write_only_immediate(out, Head::new(Psn::new(psn)), reth, psn, &[1; 8])
                    .unwrap()
            });
            fixture.process(&frame);
        }
        assert_eq!(fixture.received.completions.len(), 2);
        assert_eq!(
            (fixture.dropped(Reason::NoReceive), fixture.bytes(START + 16, 8)),
            (1, vec![0; 8])
        );
        let answered = fixture.responses();
        assert_eq!(answered.len(), answers);
        assert!(
            answered
                .iter()
                .all(|(psn, aeth, _)| *psn == 0 && aeth.syndrome == Syndrome::Rnr(14))
        );
        let hello = fixture.make(|writer, out| writer.send(out, head(0), b"hello").unwrap());
        fixture.responder.replenish(fixture.queue_pair, 1);
        fixture.process(&hello);
        assert_eq!(fixture.received.sent, [b"hello"]);
    }
}

#[test]
fn unknown_peers_are_ignored() {
    let mut fixture = Fixture::new(Transport::Rc);
    let reth = fixture.reth(0, 8);
    let good = fixture.only(0xff_fffe, reth);
    let mut elsewhere = good.clone();
    elsewhere[29] ^= 1;
    let mut unknown = good.clone();
    unknown[49] ^= 1;
    let mut other = good.clone();
    other[42] |= 0x20;
    let mut damaged = good.clone();
    damaged[72] ^= 1;
    for frame in [
        sealed(elsewhere),
        sealed(unknown),
        sealed(other),
        damaged,
        good[..60].to_vec(),
        Vec::new(),
    ] {
        fixture.process(&frame);
    }
    assert!(fixture.untouched() && fixture.received.responses.is_empty());
    let stats = *fixture.responder.stats();
    for reason in [
        Reason::WrongPeer,
        Reason::UnknownQueuePair,
        Reason::WrongTransport,
    ] {
        assert_eq!(fixture.dropped(reason), 1, "{reason:?}");
    }
    assert_eq!(stats.refused[Refusal::BadIcrc.index()], 1);
    assert_eq!(stats.refused[Refusal::Truncated.index()], 2);
    assert!(stats.is_balanced());
    fixture.process(&good);
    assert_eq!(fixture.responder.stats().executed, 1);
    assert!(
        fixture.responder.disconnect(fixture.queue_pair) && !fixture.responder.disconnect(fixture.queue_pair)
    );
    fixture.process(&good);
    assert_eq!(fixture.dropped(Reason::UnknownQueuePair), 2);
}

#[test]
fn packets_for_an_offloaded_queue_pair_are_dropped() {
    for transport in [Transport::Uc, Transport::Rc] {
        let mut fixture = Fixture::new(transport);
        let frame = {
            let reth = fixture.reth(0, 8);
            fixture.only(0xff_fffe, reth)
        };
        assert!(
            fixture.responder.offload(fixture.queue_pair)
                && !fixture.responder.offload(fixture.queue_pair ^ 0x1000)
        );
        // Singly, and as parsed packets.
        fixture.process(&frame);
        fixture
            .responder
            .process_parsed([Packet::parse(&frame)], &mut fixture.received);
        assert!(fixture.untouched() && fixture.received.responses.is_empty());
        assert_eq!(
            (
                fixture.dropped(Reason::Offloaded),
                fixture.responder.stats().is_balanced()
            ),
            (2, true)
        );
        assert_eq!(
            fixture.responder.state(fixture.queue_pair),
            Some(QueuePairState::Offloaded)
        );
        assert!(fixture.responder.disconnect(fixture.queue_pair));
    }
}

#[test]
fn counters_of_two_responders_add_up_field_by_field() {
    let mut fixture = Fixture::new(Transport::Rc);
    let reth = fixture.reth(0, 8);
    for frame in [
        fixture.only(0xff_fffe, reth),
        fixture.only(5, reth),
        fixture.add(0xff_ffff, 8),
        vec![0; 60],
    ] {
        fixture.process(&frame);
    }
    let one = *fixture.responder.stats();
    let mut sum = Stats::default();
    sum += &one;
    assert_eq!(sum, one);
    sum += &one;
    assert_eq!(
        (sum.packets, sum.fetch_adds, sum.naks[0], sum.acks),
        (8, 2, 2, 2),
        "{sum:?}"
    );
    assert_eq!(sum.dropped[Reason::Ahead as usize], 2);
    assert!(sum.is_balanced() && sum.refused.iter().sum::<u64>() == 2);
}

#[test]
fn places_are_bounded_and_old_names_open_nothing() {
    let mut responder = Responder::new(Config {
        queue_pairs: 2,
        regions: 1,
        ..Config::default()
    })
    .unwrap();
    let memory = Arc::new(Region::anonymous(LEN, false).unwrap());
    let what = Registration {
        memory,
        start: 0,
        len: LEN,
        access: AccessFlags::ALL,
        order: Order::Ascending,
        region: 0,
    };
    for (start, len) in [(0, 0), (0, LEN + 1), (1, LEN), (u64::MAX, 2)] {
        let bad = Registration {
            start,
            len,
            ..what.clone()
        };
        assert_eq!(responder.register(&bad), Err(RegisterError::Range));
    }
    let crooked = Registration {
        start: 4,
        len: 16,
        ..what.clone()
    };
    assert_eq!(responder.register(&crooked), Err(RegisterError::Alignment));
    let first = responder.register(&what).unwrap();
    assert_eq!(responder.register(&what), Err(RegisterError::Full));
    assert!(responder.deregister(first.rkey) && !responder.deregister(first.rkey));
    assert_ne!(responder.register(&what).unwrap().rkey, first.rkey);
    let (_, path) = paths();
    let queue_pair = QueuePairConfig {
        transport: Transport::Uc,
        path,
        peer: 1,
        psn: Psn::new(0),
        mtu: 1024,
        receives: 0,
    };
    assert_eq!(
        responder.connect(&QueuePairConfig {
            mtu: 1000,
            ..queue_pair
        }),
        Err(QueuePairError::Mtu)
    );
    let mixed = Path {
        source: "::1".parse().unwrap(),
        ..path
    };
    assert_eq!(
        responder.connect(&QueuePairConfig {
            path: mixed,
            ..queue_pair
        }),
        Err(QueuePairError::Addresses)
    );
    let number = responder.connect(&queue_pair).unwrap();
    responder.connect(&queue_pair).unwrap();
    assert_eq!(responder.connect(&queue_pair), Err(QueuePairError::Full));
    assert!(responder.disconnect(number));
    assert_ne!(responder.connect(&queue_pair), Ok(number));
}

#[test]
fn each_gap_is_nacked_also_when_the_expected_packet_took_the_fast_path() {
    let mut fixture = Fixture::new(Transport::Rc);
    let mut psn = Psn::new(0xff_fffe);
    for round in 0..4 {
        for ahead in [0, 1, 3, 4] {
            let frame = fixture.only(psn.plus(ahead).value(), fixture.reth(0, 24));
            fixture.process(&frame);
        }
        psn = psn.plus(2);
        let is_gap = |aeth: &Aeth| aeth.syndrome == Syndrome::Nak(Nak::SequenceError);
        assert_eq!(
            fixture
                .responses()
                .iter()
                .filter(|(_, aeth, _)| is_gap(aeth))
                .count(),
            1,
            "round {round}"
        );
    }
}

/// Random packets, valid and invalid, for three responders: one gets them in bursts, one singly, one parsed. Their results must not
/// differ. In half of the runs the packets of two queue pairs alternate.
#[test]
fn a_peek_reads_the_same_as_the_reader() {
    for (transport, order) in [
        (Transport::Uc, Order::Ascending),
        (Transport::Rc, Order::HeadLast),
    ] {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let v6 = |last: u16| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]);
            let over_v6 = (Path::new(v6(1), v6(2), 0xc001), Path::new(v6(2), v6(1), 0xc001));
            let paths = if seed % 4 < 2 { paths() } else { over_v6 };
            let mut beds = [0; 3].map(|_| Fixture::over(paths, transport, AccessFlags::ALL, order));
            let mut frames: Vec<Frame> = stream(&mut beds[0], &mut rng);
            if seed % 2 == 1 {
                beds.iter_mut().for_each(Fixture::turn);
                let other = stream(&mut beds[0], &mut rng);
                frames = by_turns(frames, other, &mut rng);
            }
            let [bursts, singly, read] = &mut beds;
            for burst in frames.chunks(1 + rng.below(40) as usize) {
                bursts
                    .responder
                    .process(burst.iter().map(Vec::as_slice), &mut bursts.received);
            }
            for frame in &frames {
                singly.process(frame);
                read.responder
                    .process_parsed([Packet::parse(frame)], &mut read.received);
            }
            for fixture in [&*bursts, &*singly] {
                assert_eq!(fixture.bytes(0, LEN as usize), read.bytes(0, LEN as usize));
                assert_eq!(fixture.received.completions, read.received.completions);
                assert_eq!(
                    fixture.responder.expected(fixture.queue_pair),
                    read.responder.expected(read.queue_pair)
                );
            }
            assert_eq!(singly.responder.stats(), read.responder.stats());
            assert_eq!(singly.received.responses, read.received.responses);
            let (mut a, mut b) = (*bursts.responder.stats(), *read.responder.stats());
            (a.acks, b.acks) = (0, 0);
            assert_eq!(a, b);
            // Most of the packets are valid.
            assert!(
                read.responder.stats().executed > 200,
                "{transport:?} {seed}: {:?}",
                read.responder.stats()
            );
            for fixture in &beds {
                assert!(fixture.bytes(0, START as usize).iter().all(|byte| *byte == 0));
                assert!(
                    fixture
                        .bytes(START + BODY, (LEN - START - BODY) as usize)
                        .iter()
                        .all(|byte| *byte == 0)
                );
                assert!(fixture.responder.stats().is_balanced());
            }
        }
    }
}

/// Interleaves two lists at random; each keeps its order.
fn by_turns(these: Vec<Frame>, those: Vec<Frame>, rng: &mut Rng) -> Vec<Frame> {
    let (mut these, mut those, mut all) = (these.into_iter(), those.into_iter(), Vec::new());
    while these.len() + those.len() > 0 {
        all.extend(these.by_ref().take(rng.below(20) as usize));
        all.extend(those.by_ref().take(rng.below(20) as usize));
    }
    all
}

/// 300 packets, most of them valid and in order.
fn stream(fixture: &mut Fixture, rng: &mut Rng) -> Vec<Frame> {
    let reliable = fixture.transport == Transport::Rc;
    let (mut psn, mut completions) = (0xff_fffe, 0);
    let mut frames = Vec::new();
    for round in 0..300 {
        // A reliable queue pair breaks at an invalid request, and stops when its receive queue is empty: both only near the end.
        let gentle = reliable && round < 270;
        let len = [8, 24, 24, 24, 80, 0, 5, 256, 300][rng.below(if gentle { 8 } else { 9 }) as usize];
        let room = if gentle { 500 } else { u64::from(len) / 2 };
        let mut reth = fixture.reth(rng.below(BODY - room), len);
        if !gentle && rng.permille(5) {
            reth.rkey ^= 1 << rng.below(32);
        }
        if !gentle && rng.permille(5) {
            reth.address ^= 1 << rng.below(64);
        }
        let head = Head {
            ack_request: rng.permille(100),
            ..Head::new(Psn::new(psn))
        };
        let byte = rng.roll() as u8;
        let mut frame = match rng.below(20) {
            0 if !gentle || completions < 2 => fixture.make(|writer, out| {
                completions += 1;
                writer
                    .write_only_immediate(out, head, reth, psn, &vec![byte; reth.len as usize])
                    .unwrap()
            }),
            1 if reliable => {
                let offset = rng.below(BODY / 8) * 8;
                fixture.add(psn, offset)
            }
            2 => {
                let reth = Reth { len: 500, ..reth };
                frames.push(
                    fixture.make(|writer, out| writer.write_first(out, head, reth, &[byte; 256]).unwrap()),
                );
                psn += 1;
                let head = Head::new(Psn::new(psn));
                fixture.make(|writer, out| writer.write_last(out, head, &[byte; 244]).unwrap())
            }
            _ => fixture.make(|writer, out| {
                writer
                    .write_only(out, head, reth, &vec![byte; reth.len as usize])
                    .unwrap()
            }),
        };
        if reliable && rng.permille(20) {
            // The requester sends it again, intact.
            let mut corrupted = frame.clone();
            corrupted[rng.below(frame.len() as u64) as usize] ^= 1;
            frames.push(corrupted);
        } else if !gentle && rng.permille(20) {
            let bit = rng.below(frame.len() as u64 * 8) as usize;
            frame[bit / 8] ^= 1 << (bit % 8);
            if rng.permille(500) {
                frame = sealed(frame);
            }
        }
        let times = if rng.permille(20) {
            2
        } else {
            u64::from(gentle || !rng.permille(20))
        };
        for _ in 0..times {
            frames.push(frame.clone());
        }
        psn += 1;
    }
    if reliable {
        lost_and_sent_again(&frames, rng)
    } else {
        frames
    }
}

/// Loses a frame now and then: some later frames arrive, then the lost one and these again, as after a retransmission.
fn lost_and_sent_again(frames: &[Frame], rng: &mut Rng) -> Vec<Frame> {
    let mut all = Vec::new();
    for (at, frame) in frames.iter().enumerate() {
        if rng.permille(30) {
            let behind = 1 + rng.below(4) as usize;
            all.extend(frames[at + 1..].iter().take(behind).cloned());
        }
        all.push(frame.clone());
    }
    all
}
