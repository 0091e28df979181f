//! Benchmark of DTA and RoCEv2 parsing on one core with cached data: the cost of a key's hashes, a report and a frame.
//!
//! Usage: `cargo bench -p hopwise-wire --bench dta -- [CASE…]`. Prints the minimum and median of many short runs, ns per
//! item.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;
use wire::dta::hash::{self, Family};
use wire::dta::layout::{self, BlockTrailer};
use wire::dta::{Base, Operation, Report};
use wire::roce::{AtomicEth, Head, MAX_FRAME, Packet, Path, Psn, Reth, Transport, Writer};

/// Items per run: too many for a branch predictor to memorize, few enough for the L1 cache.
const PIECES: usize = 256;
const ROUNDS: usize = 40;

struct Bench {
    wanted: Vec<String>,
    runs: usize,
}

impl Bench {
    /// Measures `piece`, which is called with the numbers 0 to 255 in turn.
    fn case<T>(&self, name: &str, mut piece: impl FnMut(usize) -> T) {
        if !self.wanted.is_empty() && !self.wanted.iter().any(|word| word == name) {
            return;
        }
        let mut times: Vec<f64> = (0..self.runs)
            .map(|_| {
                let start = Instant::now();
                for _ in 0..ROUNDS {
                    for at in 0..PIECES {
                        black_box(piece(at));
                    }
                }
                start.elapsed().as_nanos() as f64 / (ROUNDS * PIECES) as f64
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("{name:<24} {:>8.1} {:>8.1}", times[0], times[times.len() / 2]);
    }
}

fn main() {
    let wanted = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    // `cargo test --benches` also runs this program, without `--bench`; one run is enough there.
    let runs = if std::env::args().any(|word| word == "--bench") {
        301
    } else {
        1
    };
    let bench = Bench { wanted, runs };
    println!("{:<24} {:>8} {:>8}", "case", "min", "median");
    hashes(&bench);
    reports(&bench);
    blocks(&bench);
    writes(&bench);
    reads(&bench);
}

/// Returns a pseudo-random byte generator (a linear congruential generator).
fn noise(seed: u64) -> impl FnMut() -> u8 {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    }
}

fn hashes(bench: &Bench) {
    let mut byte = noise(1);
    let keys: Vec<[u8; 64]> = (0..PIECES).map(|_| std::array::from_fn(|_| byte())).collect();
    bench.case("hash-13-n2", |at| hash::slots_n::<2>(&keys[at][..13]));
    bench.case("hash-13-all", |at| hash::hashes(&keys[at][..13]));
    bench.case("hash-4-n2", |at| hash::slots_n::<2>(&keys[at][..4]));
    bench.case("hash-16-n2", |at| hash::slots_n::<2>(&keys[at][..16]));
    bench.case("hash-37-n2", |at| hash::slots_n::<2>(&keys[at][..37]));
    bench.case("hash-64-all", |at| hash::hashes(&keys[at]));
    bench.case("hash-4-artifact", |at| Family::Artifact.hashes(&keys[at][..4]));
}

fn reports(bench: &Bench) {
    let mut byte = noise(2);
    let payloads: Vec<Vec<u8>> = (0..PIECES)
        .map(|at| {
            let key: [u8; 13] = std::array::from_fn(|_| byte());
            let data: [u8; 20] = std::array::from_fn(|_| byte());
            let base = Base {
                reporter: at as u32,
                ..Base::default()
            };
            let operation = Operation::KeyWrite {
                copies: 2,
                store: 1,
                key: &key,
                data: &data,
            };
            let mut out = vec![0; 64];
            let len = Report { base, operation }.emit(&mut out).expect("room");
            out.truncate(len);
            out
        })
        .collect();
    bench.case("report-parse", |at| Report::parse(&payloads[at]).is_ok());
    let mut out = [0; 64];
    let parsed: Vec<_> = payloads
        .iter()
        .map(|payload| Report::parse(payload).expect("good"))
        .collect();
    bench.case("report-emit", |at| parsed[at].emit(black_box(&mut out)));
}

fn blocks(bench: &Bench) {
    let mut byte = noise(3);
    let mut blocks: Vec<[u8; 80]> = (0..PIECES).map(|_| std::array::from_fn(|_| byte())).collect();
    let trailer = |at: usize| BlockTrailer {
        sequence: at as u32 + 1,
        count: 16,
        entry_len: 4,
    };
    bench.case("block-seal-64", |at| trailer(at).seal(&mut blocks[at]));
    (0..PIECES).for_each(|at| assert!(trailer(at).seal(&mut blocks[at])));
    bench.case("block-check-64", |at| BlockTrailer::check(&blocks[at]).is_ok());
    bench.case("slot-24", |at| {
        let mut slot = [0; 32];
        layout::put_slot(&mut slot, at as u32, &blocks[at][..20], 20);
        slot
    });
}

fn writer(v6: bool, transport: Transport) -> Writer {
    let host = |last| match v6 {
        true => IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)),
        false => IpAddr::from(Ipv4Addr::new(10, 0, 0, last as u8)),
    };
    Writer::new(Path::new(host(1), host(2), 0xc001), transport, 0x12).expect("one family")
}

/// Builds frame number `at`, which writes a 24-byte slot, and returns its length.
fn slot_frame(writer: &mut Writer, out: &mut [u8], at: usize, data: &[u8; 24]) -> usize {
    let reth = Reth {
        address: 0x7f00_0000_0000 + 32 * at as u64,
        rkey: 0x1f42,
        len: 24,
    };
    writer
        .write_only(out, Head::new(Psn::new(at as u32)), reth, data)
        .expect("room")
}

fn writes(bench: &Bench) {
    let mut byte = noise(4);
    let data: Vec<[u8; 24]> = (0..PIECES).map(|_| std::array::from_fn(|_| byte())).collect();
    let mut out = [0; MAX_FRAME];
    let mut v4 = writer(false, Transport::Rc);
    bench.case("write-only-24", |at| {
        slot_frame(&mut v4, black_box(&mut out), at, &data[at])
    });
    let mut v6 = writer(true, Transport::Uc);
    bench.case("write-only-24-v6", |at| {
        slot_frame(&mut v6, black_box(&mut out), at, &data[at])
    });
    let atomic = |at: usize| AtomicEth {
        address: 8 * at as u64,
        rkey: 1,
        add: 1,
        compare: 0,
    };
    bench.case("fetch-add", |at| {
        v4.fetch_add(black_box(&mut out), Head::default(), atomic(at))
    });
    bench.case("ack", |at| {
        v4.ack(black_box(&mut out), Psn::new(at as u32), at as u32)
    });
    let kib = [7; 1024];
    let reth = |at| Reth {
        address: at as u64,
        rkey: 1,
        len: 1024,
    };
    bench.case("write-only-1024", |at| {
        v4.write_only(black_box(&mut out), Head::default(), reth(at), &kib)
    });
}

fn reads(bench: &Bench) {
    let mut byte = noise(5);
    for (name, v6) in [("parse-24", false), ("parse-24-v6", true)] {
        let mut writer = writer(v6, Transport::Rc);
        let frames: Vec<Vec<u8>> = (0..PIECES)
            .map(|at| {
                let mut out = vec![0; 128];
                let len = slot_frame(&mut writer, &mut out, at, &std::array::from_fn(|_| byte()));
                out.truncate(len);
                out
            })
            .collect();
        bench.case(name, |at| {
            Packet::parse(&frames[at]).is_ok_and(|packet| packet.fault.is_none())
        });
    }
    let mut writer = writer(false, Transport::Rc);
    let mut out = vec![0; MAX_FRAME];
    let reth = Reth {
        address: 0,
        rkey: 1,
        len: 1024,
    };
    let len = writer
        .write_only(&mut out, Head::default(), reth, &[7; 1024])
        .expect("room");
    bench.case("parse-1024", |_| Packet::parse(black_box(&out[..len])).is_ok());
}
