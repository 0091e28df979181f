//! The software end of RoCEv2 on one core: frames in memory to bytes in a region. `cargo bench -p hopwise-collector --bench rdma`;
//! behind `--` words of cases (`key-write`, `append`), and `--mib=N` for another region than 4096 MiB.
//!
//! Each case stands beside a plain loop that stores the same bytes at the same places, in turns with it, in the same run. Prints
//! medians, ns per operation, and the rate of the responder as a share of the loop's.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use collector::rdma::{self, Completion, Order, PairConfig, Registration, Responder, Rights};
use memory::Region;
use translator::dta::{Place, Way};
use translator::rdma::{Config, Connection, Links, RemoteRegion};
use wire::roce::{Path, Transport};

const BATCH: usize = 2048;
/// Operations that the plain loop asks for ahead.
const AHEAD: usize = 16;
const PLACE: Place = Place { collector: 0, region: 0 };

struct Silent(u64);

impl rdma::Out for Silent {
    fn answer(&mut self, _: &Path, frame: &[u8]) {
        self.0 += frame.len() as u64;
    }

    fn complete(&mut self, _: &Completion) {
        self.0 += 1;
    }
}

struct Bench {
    memory: Arc<Region>,
    links: Links,
    responder: Responder,
    silent: Silent,
    random: u64,
    rounds: usize,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` runs this too: then little is enough.
    let timed = words.iter().any(|word| word == "--bench");
    let mib = words.iter().find_map(|word| word.strip_prefix("--mib=")?.parse::<u64>().ok()).unwrap_or(4096);
    let (len, rounds) = if timed { (mib << 20, 300) } else { (1 << 22, 3) };
    let memory = Arc::new(Region::anonymous(len, true).expect("memory"));
    memory.populate().expect("memory");
    println!("region of {} MiB, pages: {:?}", len >> 20, memory.pages());
    println!("{:<28} {:>9} {:>9} {:>7}", "case", "plain ns", "ours ns", "share");
    let mut bench = Bench::new(memory, rounds);
    let wanted = |name: &str| {
        let mut names = words.iter().filter(|word| !word.starts_with("--")).peekable();
        names.peek().is_none() || names.any(|word| name.contains(word.as_str()))
    };
    for (data, order) in [(24, Order::Ascending), (24, Order::HeadLast), (8, Order::Ascending)] {
        let name = format!("key-write {data} B {order:?}");
        if wanted(&name) {
            bench.key_write(&name, data, order);
        }
    }
    for block in [80, 304, 1024, 4096, 16384] {
        let name = format!("append {block} B");
        if wanted(&name) {
            bench.append(&name, block);
        }
    }
    assert!(bench.responder.stats().is_balanced());
    assert_eq!(bench.responder.stats().executed, bench.responder.stats().packets);
    black_box(bench.silent.0);
}

impl Bench {
    fn new(memory: Arc<Region>, rounds: usize) -> Self {
        let config =
            Config { outbox_bytes: BATCH * (16384 + 1024), outbox_frames: BATCH * 32, ..Config::default() };
        let links = Links::new(config).expect("good settings");
        let responder = Responder::new(rdma::Config::default()).expect("good settings");
        Self { memory, links, responder, silent: Silent(0), random: 1, rounds }
    }

    fn connect(&mut self, order: Order) {
        let what = Registration {
            memory: Arc::clone(&self.memory),
            start: 4096,
            len: self.memory.len() - 4096,
            rights: Rights::ALL,
            order,
            region: 0,
        };
        let at = self.responder.register(&what).expect("registered");
        let (a, b) = (Ipv4Addr::new(198, 51, 100, 1).into(), Ipv4Addr::new(198, 51, 100, 2).into());
        let offer = self.links.offer(0).expect("a collector");
        let pair = PairConfig {
            transport: Transport::Uc,
            path: Path::new(b, a, 0xc001),
            peer: offer.unreliable.pair,
            psn: offer.unreliable.psn,
            mtu: 4096,
            receives: 0,
        };
        let unreliable = self.responder.connect(&pair).expect("a pair");
        let connection = Connection {
            path: Path::new(a, b, 0xc001),
            mtu: 4096,
            unreliable: Some(unreliable),
            reliable: None,
            atomic_depth: 1,
            regions: &[RemoteRegion { region: 0, address: at.address, len: at.len, key: at.key }],
            executed: None,
        };
        self.links.connect(0, &connection, 0).expect("connected");
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn key_write(&mut self, name: &str, len: usize, order: Order) {
        self.connect(order);
        let slots = (self.memory.len() - 4096) / 32;
        let data: Vec<u8> = (0..len as u8).collect();
        self.measure(name, &data, |bench, _| bench.random() % slots * 32);
    }

    fn append(&mut self, name: &str, len: usize) {
        self.connect(Order::Ascending);
        let blocks = (self.memory.len() - 4096) / len as u64;
        let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
        self.measure(name, &data, |_, number| number % blocks * len as u64);
    }

    /// Both loops in turns, each with places of its own.
    fn measure(&mut self, name: &str, data: &[u8], place: impl Fn(&mut Self, u64) -> u64) {
        let (mut plain, mut ours) = (Vec::new(), Vec::new());
        let batch = (BATCH * 256 / data.len()).clamp(64, BATCH);
        let mut number = 0;
        let mut places = vec![0; batch];
        for _ in 0..self.rounds {
            for mine in [false, true] {
                for at in &mut places {
                    *at = place(self, number);
                    number += 1;
                }
                let times = if mine { &mut ours } else { &mut plain };
                let time = if mine { self.ours(&places, data) } else { self.plain(&places, data) };
                times.push(time / batch as f64);
            }
        }
        let (plain, ours) = (median(plain), median(ours));
        println!("{name:<28} {plain:>9.1} {ours:>9.1} {:>6.0}%", plain / ours * 100.0);
    }

    fn plain(&self, places: &[u64], data: &[u8]) -> f64 {
        let start = Instant::now();
        for (index, at) in places.iter().enumerate() {
            if let Some(next) = places.get(index + AHEAD) {
                self.memory.prefetch_write(4096 + next);
            }
            let _ = self.memory.write(4096 + at, black_box(data));
        }
        start.elapsed().as_nanos() as f64
    }

    fn ours(&mut self, places: &[u64], data: &[u8]) -> f64 {
        for at in places {
            self.links.write(PLACE, *at, data, None, false).expect("room");
        }
        let start = Instant::now();
        self.responder.take(self.links.frames().map(|(_, frame)| frame), &mut self.silent);
        let time = start.elapsed().as_nanos() as f64;
        self.links.sent();
        time
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
