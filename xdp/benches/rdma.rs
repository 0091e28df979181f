//! Benchmark of the RoCEv2 responder in the kernel: ns of one core per request, by `BPF_PROG_TEST_RUN`, over requests to
//! different addresses; and the requests per second that it executes on a veth, with the sender on the same core or another
//! one. Run `cargo bench -p hopwise-xdp --bench rdma`; it takes some seconds and needs root.
//!
//! An argument selects cases by part of their names. `HOPWISE_RDMA_COST=FILE,FILE` compares with `rdma_cost.bpf.o` of other
//! versions, alternating; `HOPWISE_NO_LIVE=1` omits the runs on a veth.
#![allow(clippy::unwrap_used, missing_docs, reason = "a program for people")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nic::bpf::{LoadOptions, Object};
use nic::netns::Pair;
use nic::time;
use rdma::responder::{AccessFlags, Order, QueuePairConfig, Registered};
use wire::roce::{AtomicEth, Head, Path, Psn, Reth, Transport, Writer};
use xdp::rdma::{Counted, Options, Rdma};

// Queue pair number, rkey, and the address and size of the region, bytes.
const NUMBER: u32 = 0x1001;
const KEY: u32 = 0x77_01;
const ADDRESS: u64 = 1 << 40;
const MEMORY: u64 = 256 << 20;
const HEADER: u64 = 4096;
const MTU: u32 = 2048;
/// Number of rounds; the best one counts.
const ROUNDS: u64 = 30;
/// Frames per round: enough to amortise cold caches, few enough that some rounds run undisturbed on a busy machine.
const COUNT: u32 = 8192;

/// A benchmark case.
#[derive(Clone, Copy)]
struct Case {
    what: &'static str,
    transport: Transport,
    v6: bool,
    /// Bytes of a write; 0 for an addition.
    len: u32,
    /// True for addresses in an order that no prefetcher predicts; false for sequential ones.
    random: bool,
    ack: bool,
    order: Order,
    /// Bytes of memory that the requests touch.
    memory: u64,
}

const CASES: [Case; 10] = {
    use Order::{Ascending, HeadLast};
    use Transport::{Rc, Uc};
    let key_write = Case {
        what: "key-write, 24 of 32 bytes at random in 64 MiB",
        transport: Uc,
        v6: false,
        len: 24,
        random: true,
        ack: false,
        order: HeadLast,
        memory: 64 << 20,
    };
    [
        Case {
            what: "key-write, 24 of 32 bytes in 256 KiB (in the cache)",
            memory: 256 << 10,
            ..key_write
        },
        key_write,
        Case {
            what: "the same, ascending",
            order: Ascending,
            ..key_write
        },
        Case {
            what: "the same over IPv6",
            v6: true,
            ..key_write
        },
        Case {
            what: "the same, reliable",
            transport: Rc,
            ..key_write
        },
        Case {
            what: "the same, each acknowledged",
            transport: Rc,
            ack: true,
            ..key_write
        },
        Case {
            what: "addition, acknowledged",
            transport: Rc,
            len: 0,
            ..key_write
        },
        Case {
            what: "append, 80 bytes (16 entries of 4)",
            len: 80,
            random: false,
            order: Ascending,
            ..key_write
        },
        Case {
            what: "append, 304 bytes (16 entries of 18)",
            len: 304,
            random: false,
            order: Ascending,
            ..key_write
        },
        Case {
            what: "sketch, 1024 bytes",
            len: 1024,
            random: false,
            order: Ascending,
            ..key_write
        },
    ]
};

fn address(v6: bool, end: u8) -> std::net::IpAddr {
    if v6 {
        [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end].into()
    } else {
        [10, 97, 0, end].into()
    }
}

fn pair(case: &Case) -> QueuePairConfig {
    let path = Path::new(address(case.v6, 2), address(case.v6, 1), 0xc001);
    QueuePairConfig {
        transport: case.transport,
        path,
        peer: 7,
        psn: Psn::new(0),
        mtu: MTU,
        receives: 0,
    }
}

/// Returns requests that each write to a different address, or that together cover the case's whole memory.
fn frames(case: &Case, count: u32) -> Vec<Vec<u8>> {
    let path = Path::new(address(case.v6, 1), address(case.v6, 2), 0xc001);
    let mut writer = Writer::new(path, case.transport, NUMBER).unwrap();
    let stride = u64::from(case.len.max(8)).next_power_of_two();
    let places = case.memory / stride;
    let payload = vec![0xa5; case.len as usize];
    (0..count)
        .map(|number| {
            let place = if case.random {
                u64::from(number.wrapping_mul(0x9e37_79b1))
            } else {
                number.into()
            };
            let place = ADDRESS + place % places * stride;
            let head = Head {
                psn: Psn::new(number),
                ack_request: case.ack,
                solicited: false,
            };
            let mut frame = vec![0; 2200];
            let len = if case.len == 0 {
                writer.fetch_add(
                    &mut frame,
                    head,
                    AtomicEth {
                        address: place,
                        rkey: KEY,
                        add: 1,
                        compare: 0,
                    },
                )
            } else {
                writer.write_only(
                    &mut frame,
                    head,
                    Reth {
                        address: place,
                        rkey: KEY,
                        len: case.len,
                    },
                    &payload,
                )
            };
            frame.truncate(len.unwrap());
            frame
        })
        .collect()
}

/// Fills the map of frames (`struct samples`: count, stride, length, next).
fn samples(object: &Object, frames: &[Vec<u8>]) {
    const HEAD: usize = 16;
    let map = object.map("samples").unwrap();
    let mut value = vec![0; map.sizes().1];
    let len = frames[0].len();
    let stride = len.next_multiple_of(64);
    for (at, number) in [(0, frames.len()), (4, stride), (8, len), (12, 0)] {
        value[at..at + 4].copy_from_slice(&(number as u32).to_ne_bytes());
    }
    for (place, frame) in value[HEAD..].chunks_mut(stride).zip(frames) {
        place[..len].copy_from_slice(frame);
    }
    map.update(&0_u32.to_ne_bytes(), &value).unwrap();
}

fn open(kernel: &mut Rdma, case: &Case) {
    let named = Registered {
        address: ADDRESS,
        len: MEMORY - HEADER,
        rkey: KEY,
    };
    kernel.deregister(KEY);
    kernel
        .register(&named, HEADER, AccessFlags::ALL, case.order, 1)
        .unwrap();
    again(kernel, case);
}

fn again(kernel: &mut Rdma, case: &Case) {
    kernel.disconnect(NUMBER);
    kernel.connect(NUMBER, &pair(case)).unwrap();
}

fn executed(counted: &Counted) -> u64 {
    assert_eq!(counted.stats.packets, counted.stats.executed, "{counted:?}");
    counted.stats.executed
}

/// Returns the time per frame, ns.
fn run(kernel: &Rdma, program: &str, frame: &[u8]) -> u32 {
    kernel
        .object()
        .test_run(program, frame, COUNT)
        .unwrap()
        .duration_ns
}

/// Costs in ns per frame.
struct Cost {
    /// With a different frame each time, including the copy; and the cost of the copy alone (`only`).
    each: u32,
    only: u32,
    /// With the same frame each time; `None` if that would be a repeated request.
    same: Option<u32>,
    /// For storing only three words at the same addresses (writes of 24 bytes over IPv4), including `only`.
    bare: Option<u32>,
}

/// One version of the program, with its result for one case.
struct Bench {
    kernel: Rdma,
    cost: Cost,
}

impl Bench {
    fn new(object: &[u8]) -> Self {
        let options = Options {
            memory: MEMORY,
            ..Options::default()
        };
        let kernel = Rdma::load_object(object, &options, LoadOptions::default()).unwrap();
        kernel.map(0, MEMORY).unwrap().populate().unwrap();
        Self {
            kernel,
            cost: Cost {
                each: 0,
                only: 0,
                same: None,
                bare: None,
            },
        }
    }

    fn begin(&mut self, case: &Case, frames: &[Vec<u8>]) {
        open(&mut self.kernel, case);
        samples(self.kernel.object(), frames);
        let same = (case.transport == Transport::Uc).then_some(u32::MAX);
        let bare = (case.len == 24 && !case.v6).then_some(u32::MAX);
        self.cost = Cost {
            each: u32::MAX,
            only: u32::MAX,
            same,
            bare,
        };
    }

    fn round(&mut self, case: &Case, frame: &[u8]) {
        let cost = &mut self.cost;
        let before = executed(&self.kernel.counted().unwrap());
        cost.only = cost.only.min(run(&self.kernel, "hopwise_rdma_only", frame));
        cost.each = cost.each.min(run(&self.kernel, "hopwise_rdma_cost", frame));
        if let Some(bare) = &mut cost.bare {
            *bare = (*bare).min(run(&self.kernel, "hopwise_rdma_store", frame));
        }
        let mut asked = u64::from(COUNT);
        if let Some(same) = &mut cost.same {
            *same = (*same).min(run(&self.kernel, Rdma::PROGRAM, frame));
            asked *= 2;
        }
        assert_eq!(executed(&self.kernel.counted().unwrap()), before + asked);
        again(&mut self.kernel, case);
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let less = |with: u32| with.saturating_sub(self.only);
        write!(f, "{:>4} ns", less(self.each))?;
        if let Some(same) = self.same {
            write!(f, ", one over and over {same} ns, with the test run")?;
        }
        if let Some(bare) = self.bare {
            write!(f, "; bare stores {} ns", less(bare))?;
        }
        write!(f, " (put there: {} ns)", self.only)
    }
}

/// Runs a case for each program version, alternating, so that all run under the same conditions.
fn by_test_run(case: &Case, benches: &mut [Bench]) {
    let frames = frames(case, COUNT);
    benches.iter_mut().for_each(|bench| bench.begin(case, &frames));
    for _ in 0..ROUNDS {
        benches.iter_mut().for_each(|bench| bench.round(case, &frames[0]));
    }
    println!("{}, frames of {} bytes", case.what, frames[0].len());
    benches.iter().for_each(|bench| println!("    {}", bench.cost));
}

/// Prints the requests per second that are executed on a veth.
fn live(case: &Case, sender: usize, seconds: f64) {
    let Ok(pair) = Pair::create() else {
        return println!("    no namespaces here");
    };
    let mut kernel = Rdma::load(&Options {
        memory: MEMORY,
        ..Options::default()
    })
    .unwrap();
    kernel.map(0, MEMORY).unwrap().populate().unwrap();
    open(&mut kernel, case);
    let attached = pair.far.run(|| kernel.attach(Pair::DEVICE)).unwrap().unwrap();
    let index = pair
        .near
        .run(|| nic::device::facts(Pair::DEVICE))
        .unwrap()
        .unwrap()
        .unwrap()
        .index;
    let load = LoadOptions {
        constants: vec![("out", index)],
        ..LoadOptions::default()
    };
    let generator = Object::load(xdp::RDMA_COST, &load).unwrap();
    let frames = frames(case, COUNT);
    samples(&generator, &frames);
    let stop = AtomicBool::new(false);
    let (rate, counted) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            pair.near.run(|| {
                let _ = time::pin(sender);
                let mut sent = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    generator
                        .run_live("hopwise_rdma_send", &frames[0], 1 << 20, index)
                        .unwrap();
                    sent += 1 << 20;
                }
                sent
            })
        });
        std::thread::sleep(Duration::from_millis(200));
        let (started, before) = (Instant::now(), kernel.counted().unwrap());
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let (took, after) = (started.elapsed(), kernel.counted().unwrap());
        stop.store(true, Ordering::Relaxed);
        sending.join().unwrap().unwrap();
        (
            (after.stats.executed - before.stats.executed) as f64 / took.as_secs_f64(),
            kernel.counted().unwrap(),
        )
    });
    assert!(counted.is_balanced());
    println!(
        "{:>6.2} M/s  {} ({}, sender on core {sender}; {} others)",
        rate / 1e6,
        case.what,
        attached.rx_path,
        counted.stats.packets - counted.stats.executed
    );
}

fn main() {
    if let Err(error) = Rdma::load(&Options::default()) {
        return println!("skipped: {error}");
    }
    let only: Option<String> = std::env::args().nth(1).filter(|text| !text.starts_with('-'));
    let wanted = |case: &&Case| only.as_ref().is_none_or(|only| case.what.contains(only.as_str()));
    let others = std::env::var("HOPWISE_RDMA_COST").unwrap_or_default();
    let others = others
        .split(',')
        .filter(|path| !path.is_empty())
        .map(|path| std::fs::read(path).unwrap());
    let objects = std::iter::once(xdp::RDMA_COST.to_vec()).chain(others);
    let mut benches: Vec<Bench> = objects.map(|object| Bench::new(&object)).collect();
    CASES
        .iter()
        .filter(wanted)
        .for_each(|case| by_test_run(case, &mut benches));
    if std::env::var_os("HOPWISE_NO_LIVE").is_some() {
        return;
    }
    for case in CASES
        .iter()
        .filter(wanted)
        .filter(|case| case.transport == Transport::Uc && !case.v6)
    {
        live(case, 0, 2.0);
    }
}
