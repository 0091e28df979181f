//! Both of our ends: the translator's links write to the kernel's memory over a wire that loses frames, and the kernel writes to
//! memory of the collector's responder.

use std::sync::Arc;
use std::time::{Duration, Instant};

use memory::Region;
use rdma::requester::{Connection, Links, RemoteRegion};
use rdma::responder::{
    AccessFlags, Completion, Config, Order, Output, QueuePairConfig, QueuePairState, Registered,
    Registration, Responder,
};
use rdma::transport::{RemoteAddr, Transport as _};
use wire::roce::{Packet, Path, Psn, Transport};

use crate::guest::Guest;
use crate::{PMTU, TIMEOUT, path};

const SHORT: Duration = Duration::from_millis(5);

/// Carries frames both ways and loses each seventh reliable one of ours, until all reliable operations are acknowledged.
fn carry(guest: &mut Guest, links: &mut Links, start: Instant, sent: &mut u64) {
    let now = || start.elapsed().as_nanos() as u64;
    while links.stats(0).unwrap().unacknowledged > 0 || links.frames().len() > 0 {
        assert!(start.elapsed() < 6 * TIMEOUT, "{:?}", links.stats(0));
        links.flush(now());
        for (_, frame) in links.frames() {
            *sent += 1;
            if !sent.is_multiple_of(7) || !is_reliable(frame) {
                guest.send(frame);
            }
        }
        links.sent();
        while let Some(frame) = guest.receive(SHORT) {
            let packet = Packet::parse(&frame).expect("the kernel's packets are good, its CRC too");
            links.receive(now(), &packet);
        }
        links.tick(now());
        assert_eq!(links.poll_event(), None);
    }
}

/// Opcodes of reliable connections begin with three zero bits.
fn is_reliable(frame: &[u8]) -> bool {
    frame[42] >> 5 == 0
}

pub(crate) fn our_links_fill_the_kernels_memory(guest: &mut Guest) {
    guest.ask("fill 0 65536 0");
    let mut config = rdma::requester::Config {
        seed: 5,
        ..Default::default()
    };
    // The guest is slow, and a timeout must not break the connection.
    (config.timeout, config.retries) = (300_000_000, 100);
    let mut links = Links::new(config).unwrap();
    let offer = links.offer(0).unwrap();
    let [uc, uc_number] = guest.numbers("qp uc")[..] else {
        panic!("a new queue pair")
    };
    let [rc, rc_number] = guest.numbers("qp rc")[..] else {
        panic!("a new queue pair")
    };
    for (index, end) in [(uc, offer.unreliable), (rc, offer.reliable)] {
        guest.ask(&format!(
            "connect {index} {} {} 0 {PMTU} 4",
            end.queue_pair,
            end.psn.value()
        ));
    }
    guest.ask(&format!("receive {rc} 8"));
    guest.ask(&format!("receive {uc} 8"));
    let region = RemoteRegion {
        region: 3,
        address: guest.address,
        len: guest.length,
        rkey: guest.rkey,
    };
    let connection = Connection {
        path: path(4),
        mtu: PMTU.into(),
        unreliable: Some(uc_number as u32),
        reliable: Some(rc_number as u32),
        atomic_depth: 4,
        regions: &[region],
        executed: None,
    };
    links.connect(0, &connection, 0).unwrap();
    let place = RemoteAddr {
        collector: 0,
        region: 3,
    };
    let mut expected = vec![0; 65536];
    for at in 0..20_usize {
        // Slots of 24 bytes, each third one reliable, and now and then a write of several packets.
        let len = if at % 10 == 9 { 2500 } else { 24 };
        let data: Vec<u8> = (0..len).map(|byte| (byte + at * 7) as u8).collect();
        let offset = at * 2944;
        let immediate = (at < 6 && at % 5 == 0).then_some(at as u32);
        links
            .write(place, offset as u64, &data, immediate, at % 3 == 0 || len > 24)
            .unwrap();
        expected[offset..offset + len].copy_from_slice(&data);
    }
    for at in 0..30_u64 {
        links
            .add(place, 60_000 + at % 3 * 8, at + 1, (at == 29).then_some(0x77))
            .unwrap();
    }
    for (at, sum) in [145_u64, 155, 165].into_iter().enumerate() {
        expected[60_000 + at * 8..][..8].copy_from_slice(&sum.to_le_bytes());
    }
    carry(guest, &mut links, Instant::now(), &mut 0);
    let stats = *links.stats(0).unwrap();
    assert!(
        stats.is_balanced() && stats.retransmitted > 0 && stats.acknowledged == stats.reliable,
        "{stats:?}"
    );
    assert_eq!(stats.uncertain_fetch_adds, 0);
    for at in (0..65536).step_by(16384) {
        assert!(
            guest.memory(at, 16384) == expected[at..at + 16384],
            "memory from {at} on"
        );
    }
    let mut completions: Vec<_> = guest.ask("poll").split(' ').map(str::to_owned).collect();
    completions.sort();
    let mut expected = vec![
        format!("{rc_number}:0:129:0:24"),
        format!("{rc_number}:0:129:77:0"),
        format!("{uc_number}:0:129:5:24"),
    ];
    expected.sort();
    assert_eq!(completions, expected);
}

/// Output of a responder.
#[derive(Default)]
struct Recorded {
    frames: Vec<Vec<u8>>,
    completions: Vec<Completion>,
    messages: Vec<Vec<u8>>,
}

impl Output for Recorded {
    fn respond(&mut self, path: &Path, frame: &[u8]) {
        assert_eq!(*path, crate::path(4));
        self.frames.push(frame.to_vec());
    }
    fn complete(&mut self, completion: &Completion) {
        self.completions.push(*completion);
    }
    fn sent(&mut self, _: u32, message: &[u8]) {
        self.messages.push(message.to_vec());
    }
}

/// Our memory, and a queue pair of its responder that is connected to one of the guest's.
struct Memory {
    responder: Responder,
    region: Arc<Region>,
    registered: Registered,
    number: u32,
    index: u64,
    recorded: Recorded,
}

const LEN: u64 = 1 << 16;

impl Memory {
    fn new(guest: &mut Guest, transport: Transport, receives: u32) -> Self {
        let mut responder = Responder::new(Config {
            seed: 9,
            ..Config::default()
        })
        .unwrap();
        let region = Arc::new(Region::anonymous(LEN + 4096, false).unwrap());
        let registration = Registration {
            memory: Arc::clone(&region),
            start: 4096,
            len: LEN,
            access: AccessFlags::ALL,
            order: Order::HeadLast,
            region: 2,
        };
        let registered = responder.register(&registration).unwrap();
        let kind = if transport == Transport::Rc { "rc" } else { "uc" };
        let [index, peer] = guest.numbers(&format!("qp {kind}"))[..] else {
            panic!("a new queue pair")
        };
        let psn = 0xff_fffe;
        let queue_pair = QueuePairConfig {
            transport,
            path: path(4),
            peer: peer as u32,
            psn: Psn::new(psn),
            mtu: PMTU.into(),
            receives,
        };
        let number = responder.connect(&queue_pair).unwrap();
        guest.ask(&format!("connect {index} {number} 0 {psn} {PMTU} 4"));
        Self {
            responder,
            region,
            registered,
            number,
            index,
            recorded: Recorded::default(),
        }
    }

    /// Lets the guest execute a request, and responds to it; returns the guest's output.
    fn serve(&mut self, guest: &mut Guest, order: &str, mut turn: impl FnMut(&mut Responder)) -> Vec<u64> {
        guest.order(order);
        let start = Instant::now();
        loop {
            assert!(
                start.elapsed() < 3 * TIMEOUT,
                "no answer to {order:?}: {:?}",
                self.responder.stats()
            );
            if let Some(frame) = guest.receive(SHORT) {
                self.responder.process([&frame[..]], &mut self.recorded);
                for frame in self.recorded.frames.drain(..) {
                    guest.send(&frame);
                }
                turn(&mut self.responder);
            }
            if let Some(answer) = guest.answered() {
                let number = |word: &str| {
                    word.parse()
                        .unwrap_or_else(|_| panic!("{order:?}: {answer}: {:?}", self.responder.stats()))
                };
                return answer.split(' ').map(number).collect();
            }
        }
    }

    fn place(&self, at: u64) -> String {
        format!(
            "{} {:x} {:x}",
            self.index,
            self.registered.address + at,
            self.registered.rkey
        )
    }

    fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.region.read(4096 + at, &mut bytes).unwrap();
        bytes
    }
}

pub(crate) fn the_kernel_fills_our_memory(guest: &mut Guest, transport: Transport) {
    guest.ask("fill 0 1500 171");
    guest.ask("fill 1500 1500 205");
    let mut memory = Memory::new(guest, transport, 1);
    let none = |_: &mut Responder| {};
    let place = memory.place(8);
    assert_eq!(memory.serve(guest, &format!("write {place} 13"), none), [0]);
    let place = memory.place(1000);
    assert_eq!(memory.serve(guest, &format!("write {place} 3000"), none), [0]);
    let place = memory.place(8192);
    assert_eq!(
        memory.serve(guest, &format!("write-imm {place} 8 beef"), none),
        [0]
    );
    if transport == Transport::Rc {
        let place = memory.place(16384);
        assert_eq!(memory.serve(guest, &format!("add {place} 9"), none), [0, 0]);
        assert_eq!(memory.serve(guest, &format!("add {place} 90"), none), [0, 9]);
        assert_eq!(memory.region.load_u64(4096 + 16384), Ok(99));
        // The receive queue is empty now: the kernel retries until a receive is added.
        let (place, number) = (memory.place(8200), memory.number);
        let answer = memory.serve(guest, &format!("write-imm {place} 8 cafe"), |responder| {
            if responder.receives(number) == Some(0) && responder.stats().packets % 3 == 0 {
                responder.replenish(number, 1);
            }
        });
        assert_eq!(answer, [0]);
        memory.responder.replenish(number, 1);
        assert_eq!(
            memory.serve(guest, &format!("send {} 64", memory.index), none),
            [0]
        );
        assert_eq!(memory.recorded.messages, [[171; 64]]);
    } else {
        // The completion of an unreliable send does not wait for us: its last frames may still be in flight.
        while let Some(frame) = guest.receive(20 * SHORT) {
            memory.responder.process([&frame[..]], &mut memory.recorded);
        }
    }
    assert_eq!(
        memory.read(0, 24),
        [vec![0; 8], vec![171; 13], vec![0; 3]].concat()
    );
    assert_eq!(
        memory.read(1000, 3008),
        [vec![171; 1500], vec![205; 1500], vec![0; 8]].concat()
    );
    assert_eq!(memory.read(8192, 8), [171; 8]);
    let completion = |immediate, at| Completion {
        queue_pair: memory.number,
        immediate,
        location: Some((2, at)),
        len: 8,
    };
    let mut expected = vec![completion(0xbeef, 8192)];
    expected.extend((transport == Transport::Rc).then(|| completion(0xcafe, 8200)));
    assert_eq!(memory.recorded.completions, expected);
    assert!(memory.responder.stats().is_balanced());
}

pub(crate) fn the_kernel_is_refused(guest: &mut Guest) {
    // Remote access error, by its number in libibverbs. (The kernel refuses to send a misaligned addition.)
    const ACCESS: u64 = 10;
    type Request = fn(&Memory) -> String;
    let cases: [Request; 3] = [
        |memory| {
            format!(
                "write {} {:x} {:x} 8",
                memory.index, memory.registered.address, !memory.registered.rkey
            )
        },
        |memory| format!("write {} 8", memory.place(LEN - 4)),
        |memory| format!("write {} 2000", memory.place(LEN - 1999)),
    ];
    for request in cases {
        let mut memory = Memory::new(guest, Transport::Rc, 0);
        let request = request(&memory);
        assert_eq!(memory.serve(guest, &request, |_| {})[0], ACCESS, "{request}");
        assert_eq!(memory.responder.state(memory.number), Some(QueuePairState::Error));
        assert_eq!(memory.read(0, LEN as usize), vec![0; LEN as usize], "{request}");
        assert!(memory.responder.stats().is_balanced());
    }
}
