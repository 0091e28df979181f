//! Benchmark of the RoCEv2 responder on one core: write frames in memory go in, bytes in a memory region come out.
//!
//! Usage: `cargo bench -p hopwise-rdma --bench rdma -- [CASE…] [--mib=N] [--rounds=N]`. `CASE` is a part of a case's name
//! (`key-write`, `append`); the region has 4096 MiB and a case runs 300 rounds by default.
//!
//! Each case runs next to two baselines, loops with prefetch that alternate with the responder in the same run: `store`
//! stores the same bytes at the same addresses from one cached buffer; `copy` reads them from the frames, as the responder
//! does. The output has the minimum and median of the rounds in ns per operation, and the responder's rate as a share of
//! each baseline's.

use std::sync::Arc;
use std::time::Instant;

use memory::Region;
use rdma::responder::Order;
use testkit::workload::rdma::{Case, Feed};

/// Writes per round; fewer when they are longer than 256 bytes.
const BATCH: usize = 2048;
/// Frames per call, as from a socket or ring.
const BURST: usize = 64;
const CASES: [Case; 8] = [
    key_write("key-write 24 B", 24, Order::Ascending),
    key_write("key-write 24 B head last", 24, Order::HeadLast),
    key_write("key-write 8 B", 8, Order::Ascending),
    append("append 80 B", 80),
    append("append 304 B", 304),
    append("append 1024 B", 1024),
    append("append 4096 B", 4096),
    append("append 16384 B", 16384),
];

const fn key_write(name: &'static str, len: usize, order: Order) -> Case {
    Case {
        name,
        len,
        stride: 32,
        random: true,
        order,
    }
}

const fn append(name: &'static str, len: usize) -> Case {
    Case {
        name,
        len,
        stride: len as u64,
        random: false,
        order: Order::Ascending,
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` also runs this program, without `--bench`: use little memory and few rounds.
    let timed = words.iter().any(|word| word == "--bench");
    let number = |name: &str| {
        words
            .iter()
            .find_map(|word| word.strip_prefix(name)?.parse::<u64>().ok())
    };
    let (mib, rounds) = (
        number("--mib=").unwrap_or(4096),
        number("--rounds=").unwrap_or(300),
    );
    let (len, rounds) = if timed {
        (mib << 20, rounds as usize)
    } else {
        (1 << 22, 3)
    };
    let memory = Arc::new(Region::anonymous(len, true).expect("memory"));
    memory.populate().expect("memory");
    let huge = memory.huge_bytes().expect("reported by the kernel");
    println!(
        "region of {} MiB, pages: {:?}, {} MiB large",
        len >> 20,
        memory.pages(),
        huge >> 20
    );
    println!(
        "{:<26}{:>16}{:>16}{:>16}{:>13}{:>13}",
        "case", "store", "copy", "ours", "of store", "of copy"
    );
    let wanted = |name: &str| {
        let mut names = words.iter().filter(|word| !word.starts_with("--")).peekable();
        names.peek().is_none() || names.any(|word| name.contains(word.as_str()))
    };
    for case in CASES.iter().filter(|case| wanted(case.name)) {
        measure(*case, &memory, rounds);
    }
}

/// Runs the two baselines and the responder alternately, each on its own addresses, and prints a row.
fn measure(case: Case, memory: &Arc<Region>, rounds: usize) {
    let mut feed = case.feed(Arc::clone(memory)).expect("room in the region");
    let batch = (BATCH * 256 / case.len).clamp(64, BATCH);
    let ways: [fn(&mut Feed) -> u64; 3] = [
        |feed| feed.store(),
        |feed| feed.copy(),
        |feed| feed.respond(BURST),
    ];
    let mut times = ways.map(|_| Vec::new());
    for _ in 0..rounds {
        for (way, times) in ways.iter().zip(&mut times) {
            feed.fill(batch).expect("writes that are frames");
            let begun = Instant::now();
            way(&mut feed);
            times.push(begun.elapsed().as_nanos() as f64 / batch as f64);
        }
    }
    let [store, copy, ours] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        (times[0], times[times.len() / 2])
    });
    let spread = |(least, median): (f64, f64)| format!("{least:.1} {median:.1}");
    let share = |(least, median): (f64, f64)| {
        format!("{:.0}% {:.0}%", least / ours.0 * 100.0, median / ours.1 * 100.0)
    };
    println!(
        "{:<26}{:>16}{:>16}{:>16}{:>13}{:>13}",
        case.name,
        spread(store),
        spread(copy),
        spread(ours),
        share(store),
        share(copy)
    );
    assert!(feed.stats().is_balanced());
    assert_eq!(feed.stats().executed, feed.stats().packets);
}
