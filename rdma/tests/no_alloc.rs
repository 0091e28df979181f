//! Nothing is allocated per operation, frame or acknowledgement, at either end: a counting allocator checks it, with one test in one
//! thread.

use testkit::allocations::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

use std::sync::Arc;

use memory::Region;
use rdma::requester::{Config, Connection, End, Links, RemoteRegion};
use rdma::responder::{self, AccessFlags, Completion, Order, QueuePairConfig, Registration, Responder};
use rdma::transport::{RemoteAddr, Transport as _};
use wire::roce::{Packet, Path, Transport};

/// The responses of one burst.
struct Responses {
    frames: Box<[[u8; 128]; 64]>,
    lens: [usize; 64],
    count: usize,
    completions: u64,
}

impl responder::Output for Responses {
    fn respond(&mut self, _: &Path, frame: &[u8]) {
        self.frames[self.count][..frame.len()].copy_from_slice(frame);
        self.lens[self.count] = frame.len();
        self.count += 1;
    }

    fn complete(&mut self, _: &Completion) {
        self.completions += 1;
    }
}

fn connected() -> (Links, Responder, Arc<Region>) {
    let mut links = Links::new(Config::default()).expect("good settings");
    let mut responder = Responder::new(responder::Config::default()).expect("good settings");
    let memory = Arc::new(Region::anonymous(1 << 16, false).expect("memory"));
    let what = Registration {
        memory: Arc::clone(&memory),
        start: 4096,
        len: 1 << 15,
        access: AccessFlags::ALL,
        order: Order::HeadLast,
        region: 0,
    };
    let at = responder.register(&what).expect("registered");
    let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let offer = links.offer(0).expect("a collector");
    let mut queue_pair = |transport, end: End| {
        let path = Path::new(b, a, 0xc001);
        let config = QueuePairConfig {
            transport,
            path,
            peer: end.queue_pair,
            psn: end.psn,
            mtu: 256,
            receives: 1 << 30,
        };
        responder.connect(&config).expect("a queue_pair")
    };
    let connection = Connection {
        path: Path::new(a, b, 0xc001),
        mtu: 256,
        unreliable: Some(queue_pair(Transport::Uc, offer.unreliable)),
        reliable: Some(queue_pair(Transport::Rc, offer.reliable)),
        atomic_depth: 16,
        regions: &[RemoteRegion {
            region: 0,
            address: at.address,
            len: at.len,
            rkey: at.rkey,
        }],
        executed: None,
    };
    links.connect(0, &connection, 0).expect("connected");
    (links, responder, memory)
}

#[test]
fn both_ends_at_work_allocate_nothing() {
    let (mut links, mut responder, memory) = connected();
    let mut responses = Responses {
        frames: Box::new([[0; 128]; 64]),
        lens: [0; 64],
        count: 0,
        completions: 0,
    };
    let place = RemoteAddr {
        collector: 0,
        region: 0,
    };
    let data = [7; 700];
    let mut before = 0;
    for round in 0..1000_u64 {
        let now = round * 50_000_000;
        if round == 10 {
            before = allocations();
        }
        let at = round % 100 * 32;
        links.write(place, at, &data[..24], None, false).expect("room");
        links.write(place, at + 8, &data[..24], None, true).expect("room");
        links
            .write(place, 16384, &data, Some(round as u32), true)
            .expect("room");
        links.add(place, 8192 + at, 1, Some(5)).expect("room");
        while links.flush(now) > 0 {
            // Every seventh frame is lost, and retransmitted.
            let frames = links
                .frames()
                .enumerate()
                .filter(|(i, _)| !(i + round as usize).is_multiple_of(7));
            responder.process(frames.map(|(_, (_, frame))| frame), &mut responses);
            links.sent();
            for index in 0..std::mem::take(&mut responses.count) {
                let frame = &responses.frames[index][..responses.lens[index]];
                links.receive(now, &Packet::parse(frame).expect("a valid response"));
            }
        }
        links.tick(now);
    }
    assert_eq!(allocations() - before, 0);
    let stats = links.stats(0).expect("a collector");
    assert!(
        stats.is_balanced() && stats.retransmitted > 0 && stats.acknowledged > 3000,
        "{stats:?}"
    );
    assert!(responses.completions > 1000);
    assert_eq!(memory.load_u64(4096), Ok(0x0707_0707_0707_0707));
}
