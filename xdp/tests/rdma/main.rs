//! The responder in the kernel against the one in user space, packet for packet: memory, responses, completions, counters.
//!
//! It needs root; without it, each test prints that it is skipped.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a failed unwrap is a failed test"
)]

mod both;
#[allow(unreachable_pub)] // shared with tests where it is reached
mod frames;
mod live;

use std::net::IpAddr;

use both::{Both, Pair, Recorded};
use frames::{Request, atomic, reth, seal, vary};
use rdma::responder::{AccessFlags, Order, Output, QueuePairConfig, Reason, Registered};
use testkit::rng::Rng;
use wire::roce::{Psn, Transport};
use xdp::rdma::{Options, Refused};

/// Prints that a test lacks a requirement. Everything but a missing permission is a failure.
fn skipped(test: &str, error: &nic::Error) {
    use std::io::Write as _;
    assert!(
        error.errno().is_none_or(|errno| [1, 13].contains(&errno)),
        "{error}"
    );
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {error}");
}

/// The remaining bytes of a message of several packets that a requester is sending.
type Sending = Option<u32>;

/// Random requests, most of them valid.
struct Requester {
    rng: Rng,
    sending: Vec<Sending>,
}

impl Requester {
    fn chance(&mut self, percent: usize) -> bool {
        self.rng.below(100) < percent
    }

    fn payload(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.rng.roll() as u8).collect()
    }

    /// An address with `len` bytes in a region; sometimes partly outside.
    fn place(&mut self, both: &Both, len: u32) -> (u64, u32) {
        let region = both.regions[self.rng.below(both.regions.len())];
        let room = region.len.saturating_sub(u64::from(len)).max(1);
        let mut offset = self.rng.roll() % room;
        if self.chance(60) {
            offset &= !7;
        }
        let mut address = region.address + offset;
        let mut key = region.rkey;
        match self.rng.below(60) {
            0 => address = region.address + region.len - u64::from(len) + 1 + offset % 9,
            1 => address = region.address.wrapping_sub(1 + offset % 9),
            2 => address = u64::MAX - offset % 9,
            3 => key ^= 0x100,
            4 => key = key.wrapping_add(7),
            5 => key = 0,
            _ => {}
        }
        (address, key)
    }

    /// A request for pair `index`.
    fn request(&mut self, both: &Both, index: usize) -> Request {
        let pair = both.pairs[index];
        let mtu = pair.config.mtu;
        let transport = if pair.config.transport == Transport::Uc {
            0x20
        } else {
            0
        };
        let expected = both.responder.expected(pair.number).unwrap();
        let psn = match self.rng.below(40) {
            0 => expected.plus(1 + self.rng.below(3) as u32),
            1 => expected.plus(0x100_0000 - 1 - self.rng.below(40) as u32),
            2 => Psn::new(self.rng.roll() as u32),
            _ => expected,
        };
        let sending = self.sending[index];
        let (opcode, extension, len) = match sending {
            Some(left) if self.chance(95) => {
                let last = left <= mtu;
                self.sending[index] = left.checked_sub(mtu).filter(|left| *left > 0);
                if !last {
                    (7, Vec::new(), mtu)
                } else if self.chance(20) {
                    (9, self.payload(4), left)
                } else {
                    (8, Vec::new(), left)
                }
            }
            _ => self.first(both, index, transport == 0),
        };
        let payload = self.payload(len as usize);
        let pad = (len.wrapping_neg() & 3) as u8;
        let (v6, from, number) = (pair.v6, pair.from, pair.number);
        let ack = self.chance(50);
        Request {
            v6,
            from,
            opcode: transport | opcode,
            pair: number,
            psn: psn.value(),
            ack,
            extension,
            payload,
            pad,
        }
    }

    /// The first packet of a message: opcode, headers, payload length.
    fn first(&mut self, both: &Both, index: usize, reliable: bool) -> (u8, Vec<u8>, u32) {
        let mtu = both.pairs[index].config.mtu;
        let len = match self.rng.below(10) {
            0 => 0,
            1 => mtu,
            2..5 => 1 + self.rng.below(64) as u32,
            5 => 1 + self.rng.below(mtu as usize) as u32,
            _ => 24,
        };
        match self.rng.below(20) {
            0 => (4, Vec::new(), len),
            1 | 2 => {
                let total = mtu + 1 + self.rng.below(3 * mtu as usize) as u32;
                let (address, key) = self.place(both, total);
                self.sending[index] = Some(total - mtu);
                (6, reth(address, key, total), mtu)
            }
            3 | 4 => {
                let (address, key) = self.place(both, len);
                (0xb, [reth(address, key, len), self.payload(4)].concat(), len)
            }
            5..8 if reliable => {
                let (address, key) = self.place(both, 8);
                let address = if self.chance(97) { address & !7 } else { address };
                (0x14, atomic(address, key, self.rng.roll()), 0)
            }
            8 if self.chance(20) => (self.rng.below(32) as u8, self.payload(16), len),
            _ => {
                let (address, key) = self.place(both, len);
                (0xa, reth(address, key, len), len)
            }
        }
    }

    /// The frame of a request, sometimes with other values in the fields that may vary.
    fn good(&mut self, request: &Request) -> Vec<u8> {
        let mut frame = request.frame();
        if self.chance(30) {
            vary(&mut frame, || self.rng.roll() as u8);
        }
        frame
    }

    /// A frame with a random defect.
    fn corrupt(&mut self, request: &mut Request) -> Vec<u8> {
        match self.rng.below(9) {
            0 => request.pad = self.rng.below(4) as u8,
            1 => {
                let len = self.rng.below(request.payload.len() + 9);
                request.payload.resize(len, 3);
            }
            2 => request.from = request.from.wrapping_add(1),
            3 => request.opcode = self.rng.roll() as u8,
            4 => request.pair ^= 1 << self.rng.below(24),
            5 => request
                .extension
                .truncate(self.rng.below(request.extension.len() + 1)),
            _ => {}
        }
        let mut frame = request.frame();
        match self.rng.below(7) {
            0 => {
                // Any bit; the checksum detects it.
                let at = self.rng.below(frame.len());
                frame[at] ^= 1 << self.rng.below(8);
            }
            1 => {
                // A byte of the headers, with a correct checksum.
                let at = 12 + self.rng.below(80).min(frame.len() - 13);
                frame[at] = self.rng.roll() as u8;
                seal(&mut frame);
            }
            2 => frame.truncate(14.max(self.rng.below(frame.len()))),
            3 => frame.extend([0; 9]),
            4 => {
                self.rng.corrupt(&mut frame);
                frame.resize(frame.len().max(14), 0);
            }
            _ => {}
        }
        frame
    }
}

fn all_pairs(both: &mut Both) {
    for (transport, v6, mtu) in [
        (Transport::Uc, false, 1024),
        (Transport::Rc, false, 1024),
        (Transport::Uc, true, 256),
        (Transport::Rc, true, 256),
        (Transport::Uc, false, 2048),
        (Transport::Rc, false, 512),
    ] {
        both.connect(transport, v6, mtu);
    }
}

/// Gives 20,000 random requests to both.
fn random_requests(mut both: Both, seed: u64) {
    const REQUESTS: usize = 20_000;
    all_pairs(&mut both);
    let mut requester = Requester {
        rng: Rng(seed),
        sending: vec![None; both.pairs.len()],
    };
    for round in 0..REQUESTS {
        let index = requester.rng.below(both.pairs.len());
        let mut request = requester.request(&both, index);
        let frame = if requester.chance(15) {
            requester.corrupt(&mut request)
        } else {
            requester.good(&request)
        };
        both.process(&format!("{round}: {request:?}"), &frame);
        if requester.chance(50) {
            both.reset_pair(index);
        }
        if round % 400 == 0 {
            both.replenish(index);
        }
        if round % 64 == 0 {
            both.compare(&format!("{round}: {request:?}"));
        }
    }
    both.compare("at the end");
    let stats = *both.responder.stats();
    println!("{stats:?}");
    // Every counted outcome has occurred; packets for unknown pairs are passed to the stack.
    let not_seen = |reason: &&Reason| stats.dropped[**reason as usize] == 0;
    let unseen: Vec<_> = Reason::ALL.iter().filter(not_seen).collect();
    assert_eq!(unseen, [&Reason::UnknownQueuePair, &Reason::Offloaded]);
    assert!(stats.naks.iter().all(|count| *count > 0) && stats.abandoned > 0 && stats.duplicates > 0);
}

#[test]
fn random_requests_do_what_they_do_in_user_space() {
    let Some(both) = Both::new("random_requests_do_what_they_do_in_user_space") else {
        return;
    };
    random_requests(both, 1);
}

#[test]
fn many_random_requests_do_what_they_do_in_user_space() {
    use std::io::Write as _;
    let Some(seeds) = std::env::var("HOPWISE_RDMA_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse::<u64>().ok())
    else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED many_random_requests_do_what_they_do_in_user_space: seconds for each seed; HOPWISE_RDMA_SEEDS=25 runs it, after a \
             change of the program"
        );
        return;
    };
    for seed in 2..2 + seeds {
        let Some(both) = Both::new("many_random_requests_do_what_they_do_in_user_space") else {
            return;
        };
        random_requests(both, seed);
    }
}

/// The program caches valid headers. Changes each bit of them after they are cached, with a correct checksum and with the old
/// one.
#[test]
fn a_cached_header_matches_no_other_header() {
    let Some(mut both) = Both::new("a_cached_header_matches_no_other_header") else {
        return;
    };
    for (transport, v6) in [
        (Transport::Uc, false),
        (Transport::Rc, false),
        (Transport::Uc, true),
        (Transport::Rc, true),
    ] {
        both.connect(transport, v6, 1024);
        let index = both.pairs.len() - 1;
        // To the end of the headers: IP, UDP, base header, and the extended headers.
        let end = if v6 {
            14 + 40 + 8 + 12 + 16
        } else {
            14 + 20 + 8 + 12 + 16
        };
        for (at, bit) in (12..end).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            for sealed in [true, false] {
                let next = both.responder.expected(both.pairs[index].number).unwrap().value();
                let good = write(&both, index, next, 0, 64, &[9; 23]).frame();
                both.process("good", &good);
                let next = both.responder.expected(both.pairs[index].number).unwrap().value();
                let mut other = write(&both, index, next, 0, 64, &[8; 23]).frame();
                other[at] ^= 1 << bit;
                if sealed {
                    seal(&mut other);
                }
                both.process(
                    &format!("{transport:?}, IPv6 {v6}: bit {bit} of byte {at}, sealed {sealed}"),
                    &other,
                );
                both.reset_pair(index);
            }
        }
        both.compare("at the end");
    }
    let stats = both.responder.stats();
    assert!(stats.executed > 4000 && stats.is_balanced(), "{stats:?}");
}

/// A write of these bytes in one packet.
fn write(both: &Both, index: usize, psn: u32, region: usize, offset: u64, payload: &[u8]) -> Request {
    let (pair, region) = (both.pairs[index], both.regions[region]);
    let transport = if pair.config.transport == Transport::Uc {
        0x20
    } else {
        0
    };
    Request {
        v6: pair.v6,
        from: pair.from,
        opcode: transport | 0xa,
        pair: pair.number,
        psn,
        ack: true,
        extension: reth(region.address + offset, region.rkey, payload.len() as u32),
        payload: payload.to_vec(),
        pad: (payload.len().wrapping_neg() & 3) as u8,
    }
}

/// Cached headers match every later pair with the same number; the checks against the pair must be repeated.
#[test]
fn a_cached_header_does_not_outlive_its_queue_pair() {
    let Some(mut both) = Both::new("a_cached_header_does_not_outlive_its_queue_pair") else {
        return;
    };
    for (transport, v6) in [
        (Transport::Uc, false),
        (Transport::Rc, false),
        (Transport::Uc, true),
        (Transport::Rc, true),
    ] {
        both.connect(transport, v6, 1024);
        let index = both.pairs.len() - 1;
        let Pair { number, config, .. } = both.pairs[index];
        let frame =
            |both: &Both, psn: Psn| write(both, index, psn.value(), 0, 64, &[u8::from(v6); 512]).frame();
        let mut next = config.psn;
        let mut process = |both: &mut Both, config: QueuePairConfig, key: Option<u32>| {
            let before = both.kernel.counted().unwrap().stats;
            let mut bytes = frame(both, next);
            if let Some(key) = key {
                let at = if v6 { 14 + 60 + 8 } else { 14 + 40 + 8 };
                bytes[at..at + 4].copy_from_slice(&key.to_be_bytes());
                seal(&mut bytes);
            }
            both.kernel.disconnect(number);
            both.kernel
                .connect(number, &QueuePairConfig { psn: next, ..config })
                .unwrap();
            next = next.next();
            both.kernel
                .object()
                .test_run(xdp::rdma::Rdma::PROGRAM, &bytes, 1)
                .unwrap();
            let after = both.kernel.counted().unwrap().stats;
            assert_eq!(after.packets, before.packets + 1);
            Reason::ALL
                .into_iter()
                .find(|reason| after.dropped[*reason as usize] > before.dropped[*reason as usize])
        };
        // The slow path, and the fast path.
        assert_eq!(
            [process(&mut both, config, None), process(&mut both, config, None)],
            [None, None]
        );
        let mut other = config;
        other.path.destination = frames::address(v6, 99);
        assert_eq!(process(&mut both, other, None), Some(Reason::WrongPeer));
        let mut far = config;
        if v6 {
            // An address in another network, with the same last eight bytes.
            let IpAddr::V6(peer) = config.path.destination else {
                unreachable!()
            };
            let mut octets = peer.octets();
            octets[7] ^= 1;
            far.path.destination = octets.into();
            assert_eq!(process(&mut both, far, None), Some(Reason::WrongPeer));
        }
        assert_eq!(
            process(&mut both, QueuePairConfig { mtu: 256, ..config }, None),
            Some(Reason::BadLength)
        );
        let turned = if transport == Transport::Uc {
            Transport::Rc
        } else {
            Transport::Uc
        };
        assert_eq!(
            process(
                &mut both,
                QueuePairConfig {
                    transport: turned,
                    ..config
                },
                None
            ),
            Some(Reason::WrongTransport)
        );
        // The slot of a deregistered region, and a key of no region: the last round.
        let key = both.regions[0].rkey;
        if v6 && transport == Transport::Rc {
            assert!(key.is_multiple_of(256) && both.kernel.deregister(key));
            assert_eq!(process(&mut both, config, None), Some(Reason::BadRkey));
            assert_eq!(process(&mut both, config, Some(0)), Some(Reason::BadRkey));
        }
    }
}

#[test]
fn a_message_that_is_sent_while_its_region_is_closed_is_dropped() {
    let Some(mut both) = Both::new("a_message_that_is_sent_while_its_region_is_closed_is_dropped") else {
        return;
    };
    for transport in [Transport::Uc, Transport::Rc] {
        both.connect(transport, false, 256);
        let index = both.pairs.len() - 1;
        let region = usize::from(transport == Transport::Rc);
        let psn = both.pairs[index].config.psn.value();
        let mut first = write(&both, index, psn, region, 8, &[7; 256]);
        first.opcode -= 4;
        first.extension[12..].copy_from_slice(&300_u32.to_be_bytes());
        both.process("first", &first.frame());
        let key = both.regions[region].rkey;
        assert!(
            both.responder.deregister(key) && both.kernel.deregister(key) && !both.kernel.deregister(key)
        );
        let mut last = write(&both, index, psn + 1, region, 0, &[8; 44]);
        last.opcode -= 2;
        last.extension.clear();
        both.process("last", &last.frame());
        both.compare("closed");
    }
    assert_eq!(both.responder.stats().dropped[Reason::BadRkey as usize], 2);
}

#[test]
fn slots_of_every_short_length_and_of_many_packets_are_alike() {
    let Some(mut both) = Both::new("slots_of_every_short_length_and_of_many_packets_are_alike") else {
        return;
    };
    both.connect(Transport::Uc, false, 256);
    let mut psn = both.pairs[0].config.psn.value();
    let mut step = || {
        let this = psn;
        psn = (psn + 1) & 0xff_ffff;
        this
    };
    // Region 2 crosses the boundary of the kernel's chunks, 1003 words after its first byte.
    let seam = 8 * 1003;
    for (region, offset) in [(0, 64), (2, 0), (2, seam - 8), (2, seam - 16), (2, seam)] {
        // Twice: with headers that are not cached, and with cached ones.
        for byte in [0x51, 0x52, 0x53] {
            for len in 1..=17 {
                let only = write(&both, 0, step(), region, offset, &vec![byte; len]);
                both.process("a short slot", &only.frame());
            }
        }
        both.compare("short slots");
    }
    for (region, offset, whole) in [
        (0, 64, true),
        (0, 64, false),
        (2, seam - 304, true),
        (2, seam - 8, false),
    ] {
        let mut first = write(&both, 0, step(), region, offset, &[7; 256]);
        first.opcode -= 4;
        first.extension[12..].copy_from_slice(&300_u32.to_be_bytes());
        both.process("first", &first.frame());
        both.compare("a first packet");
        let psn = step();
        if whole {
            let mut last = write(&both, 0, psn, region, 0, &[8; 44]);
            last.opcode -= 2;
            last.extension.clear();
            both.process("last", &last.frame());
            both.compare("a last packet");
        }
    }
    assert_eq!(both.responder.stats().messages, 5 * 3 * 17 + 2);
}

#[test]
fn a_message_does_not_go_on_in_another_region_in_the_same_place() {
    let Some(mut both) = Both::new("a_message_does_not_go_on_in_another_region_in_the_same_place") else {
        return;
    };
    both.connect(Transport::Uc, false, 256);
    let psn = both.pairs[0].config.psn.value();
    let mut first = write(&both, 0, psn, 0, 8, &[7; 256]);
    first.opcode -= 4;
    first.extension[12..].copy_from_slice(&300_u32.to_be_bytes());
    both.process("first", &first.frame());
    let key = both.regions[0].rkey;
    assert!(both.responder.deregister(key) && both.kernel.deregister(key));
    both.register(4096, 64 << 10, AccessFlags::ALL, Order::HeadLast);
    assert_eq!(both.regions[4].rkey & 0xff, key & 0xff, "the same place");
    let mut last = write(&both, 0, psn + 1, 0, 0, &[8; 44]);
    last.opcode -= 2;
    last.extension.clear();
    both.process("last", &last.frame());
    both.compare("another region");
    assert_eq!(both.responder.stats().dropped[Reason::BadRkey as usize], 1);
}

#[test]
fn a_full_ring_is_an_empty_receive_queue() {
    let options = Options {
        completions: 4096,
        memory: 1,
        ..Options::default()
    };
    let Some(mut kernel) = both::load("a_full_ring_is_an_empty_receive_queue", &options) else {
        return;
    };
    let Some(mut both) = Both::new("a_full_ring_is_an_empty_receive_queue") else {
        return;
    };
    both.connect(Transport::Uc, false, 1024);
    let mut pair = both.pairs[0];
    pair.config.receives = 1000;
    kernel.connect(pair.number, &pair.config).unwrap();
    struct Sum(usize);
    impl Output for Sum {
        fn respond(&mut self, _: &wire::roce::Path, _: &[u8]) {}
        fn sent(&mut self, _: u32, message: &[u8]) {
            self.0 += message.len();
        }
    }
    let mut heard = Sum(0);
    for psn in 0..100 {
        let mut send = write(&both, 0, psn, 0, 0, &[1; 100]);
        send.opcode = 0x24;
        send.extension.clear();
        kernel
            .object()
            .test_run(xdp::rdma::Rdma::PROGRAM, &send.frame(), 1)
            .unwrap();
    }
    // Each needs 24 bytes, its payload and 8 of the ring, rounded up to multiples of 8; and the ring is never completely full.
    let room = 4095 / 136;
    assert_eq!(kernel.completed(usize::MAX, &mut heard), room);
    assert_eq!(heard.0, room * 100);
    let counted = kernel.counted().unwrap();
    assert!(counted.is_balanced());
    assert_eq!(counted.stats.completions, room as u64);
    assert_eq!(
        counted.stats.dropped[Reason::NoReceive as usize],
        100 - room as u64
    );
    assert_eq!(kernel.receives(pair.number), Some(1000 - room as u32));
}

#[test]
fn frames_for_other_queue_pairs_are_passed_to_the_stack() {
    let Some(mut both) = Both::new("frames_for_other_queue_pairs_are_passed_to_the_stack") else {
        return;
    };
    both.connect(Transport::Uc, false, 1024);
    let mut request = write(&both, 0, 0, 0, 0, &[1; 24]);
    request.pair += 0x1000;
    assert_eq!(
        both.process("another pair", &request.frame()),
        Vec::<Recorded>::new()
    );
    request.pair = both.pairs[0].number;
    let mut tagged = request.frame();
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    both.process("a tag", &tagged);
    let mut port = request.frame();
    port[37] += 1;
    both.process("another port", &port);
    let counted = both.kernel.counted().unwrap();
    assert_eq!((counted.stats.packets, counted.passed), (0, 1));
    // After this returns it no longer exists.
    assert!(both.kernel.disconnect(request.pair) && !both.kernel.disconnect(request.pair));
    both.pairs.clear();
    both.process("a pair that is gone", &request.frame());
    assert_eq!(both.kernel.counted().unwrap().passed, 2);
}

#[test]
fn a_packet_longer_than_any_pair_takes_is_dropped() {
    let Some(mut both) = Both::new("a_packet_longer_than_any_pair_takes_is_dropped") else {
        return;
    };
    both.connect(Transport::Rc, false, 2048);
    let frame = write(&both, 0, both.pairs[0].config.psn.value(), 0, 0, &[1; 2100]).frame();
    let run = both
        .kernel
        .object()
        .test_run(xdp::rdma::Rdma::PROGRAM, &frame, 1)
        .unwrap();
    let counted = both.kernel.counted().unwrap();
    assert_eq!((run.verdict, counted.too_long, counted.stats.packets), (1, 1, 1));
    assert!(counted.is_balanced());
}

#[test]
fn unsupported_queue_pairs_and_regions_are_refused() {
    let Some(mut both) = Both::new("unsupported_queue_pairs_and_regions_are_refused") else {
        return;
    };
    both.connect(Transport::Uc, false, 1024);
    let pair = both.pairs[0];
    let refused = |result: Result<(), Refused>| format!("{:?}", result.unwrap_err());
    assert_eq!(refused(both.kernel.connect(pair.number, &pair.config)), "InUse");
    assert_eq!(refused(both.kernel.connect(0, &pair.config)), "InUse");
    let mut config = pair.config;
    config.mtu = 4096;
    assert_eq!(refused(both.kernel.connect(pair.number + 1, &config)), "Mtu");
    config.mtu = 256;
    config.path.source = frames::address(true, 2);
    assert_eq!(
        refused(both.kernel.connect(pair.number + 1, &config)),
        "Addresses"
    );
    let mut register = |named, start| {
        refused(
            both.kernel
                .register(&named, start, AccessFlags::ALL, Order::Ascending, 0),
        )
    };
    let named = Registered {
        address: 1 << 41,
        len: 100,
        rkey: 0x120,
    };
    assert_eq!(register(named, (2 << 20) - 99), "Range");
    assert_eq!(register(named, u64::MAX), "Range");
    assert_eq!(register(named, 12), "Range");
    assert_eq!(register(Registered { len: 0, ..named }, 0), "Range");
    assert_eq!(register(Registered { rkey: 0x101, ..named }, 0), "InUse");
}
