//! Measures how many frames per second each receive path delivers on this machine, when the reader touches only one byte of
//! each.
//!
//! Root only: a generator in the kernel sends over a veth between two namespaces, on core 0; the reader has core 1. Usage:
//! `xdp_rate [SECONDS [BYTES [WAIT_US]]]`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nic::load::{LiveFrames, Word};
use nic::netns::Pair;
use nic::receive::{self, Options, RxPath};
use nic::{device, source::Stats, time};

const PORT: u16 = 32766;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let number = |at| std::env::args().nth(at).and_then(|text| text.parse::<f64>().ok());
    let (seconds, bytes) = (number(1).unwrap_or(1.0), number(2).unwrap_or(300.0) as usize);
    let pair = Pair::create()?;
    // A veth without an XDP program receives the generator's frames only if it polls (NAPI), which GRO enables.
    pair.far
        .run(|| device::set_offload(Pair::DEVICE, "rx-gro", true))??;
    let frame = frame(bytes);
    println!(
        "{:12} {:>8} {:>8} {:>8} {:>7} {:>7} {:>8}",
        "rx_path", "sent M/s", "got M/s", "burst", "user", "system", "ns each"
    );
    let rx_paths = match std::env::args().nth(4) {
        Some(name) => RxPath::from_name(&name).into_iter().collect(),
        None => RxPath::ALL.to_vec(),
    };
    for rx_path in rx_paths {
        let mut options = Options {
            ports: vec![PORT],
            best: rx_path,
            worst: rx_path,
            program: Some(xdp::STEER),
            ..Options::default()
        };
        if let Some(wait) = number(3) {
            options.xdp.batch_wait = Duration::from_micros(wait as u64);
        }
        if let Some(frames) = number(5) {
            options.xdp.frames_per_queue = frames as u32;
        }
        match pair.far.run(|| receive::open(Pair::DEVICE, &options))? {
            Ok(opened) => measure(&pair, opened, &frame, seconds)?,
            Err(error) => println!("{rx_path:12} {error}"),
        }
    }
    Ok(())
}

fn measure(
    pair: &Pair,
    mut opened: receive::OpenInterface,
    frame: &[u8],
    seconds: f64,
) -> Result<(), Box<dyn std::error::Error>> {
    // The generator stops before the reader, so that no frame is in flight when the counters are read.
    let (stop, stop_reader) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut source = opened.sources.remove(0);
    // Varies the source port, to generate many flows.
    let words = [Word {
        at: 32,
        base: 0x0002_0000,
        each: 1,
        of: 1 << 14,
    }];
    let generator = pair
        .near
        .run(|| LiveFrames::open(xdp::BENCH, Pair::DEVICE, &words, None))??;
    let (sent, (stats, usage, took)) = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let _ = time::pin(1);
            let (mut sum, mut usage, mut started, mut last) = (0_u64, (0.0, 0.0), 0, 0);
            while !stop_reader.load(Ordering::Relaxed) {
                let got = source
                    .receive(10, &mut |packets| {
                        sum += packets
                            .iter()
                            .map(|packet| u64::from(packet.data[0]))
                            .sum::<u64>();
                    })
                    .unwrap_or(0);
                if got > 0 {
                    last = time::monotonic();
                    if started == 0 {
                        (started, usage) = (last, times());
                    }
                }
            }
            std::hint::black_box(sum);
            let now = times();
            (
                source.stats(),
                (now.0 - usage.0, now.1 - usage.1),
                (last - started) as f64,
            )
        });
        let sending = scope.spawn(|| {
            let _ = time::pin(0);
            pair.near.run(|| {
                let _ = time::pin(0);
                generator.send(frame, u64::MAX, &stop)
            })
        });
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Release);
        let sent = sending.join();
        std::thread::sleep(Duration::from_millis(50));
        stop_reader.store(true, Ordering::Release);
        (sent, receiving.join().expect("the receiver panicked"))
    });
    let sent = sent.expect("the sender panicked")?? as f64;
    let got = stats.datagrams as f64;
    println!(
        "{:12} {:>8.3} {:>8.3} {:>8.1} {:>7.2} {:>7.2} {:>8.1}",
        opened.rx_path.name(),
        sent * 1e3 / took,
        got * 1e3 / took,
        got / stats.bursts.max(1) as f64,
        usage.0 * 1e9 / took,
        usage.1 * 1e9 / took,
        (usage.0 + usage.1) * 1e9 / got
    );
    let zero = Stats {
        datagrams: stats.datagrams,
        bytes: stats.bytes,
        bursts: stats.bursts,
        ..Stats::default()
    };
    if stats != zero {
        println!("{:12} {stats:?}", "");
    }
    println!("{:12} {:?}", "", opened.watch.counters()?);
    Ok(())
}

/// Returns the CPU time of this thread in seconds, (user, system).
fn times() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    let after = text.rsplit(')').next().unwrap_or("");
    let ticks: Vec<f64> = after
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|text| text.parse().ok())
        .collect();
    (
        ticks.first().unwrap_or(&0.0) / 100.0,
        ticks.get(1).unwrap_or(&0.0) / 100.0,
    )
}

/// Returns a frame of `bytes` with a datagram to the port.
fn frame(bytes: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let (total, udp) = ((bytes - 14) as u16, (bytes - 34) as u16);
    frame.extend([
        0x45,
        0,
        (total >> 8) as u8,
        total as u8,
        0,
        0,
        0,
        0,
        64,
        17,
        0,
        0,
        10,
        97,
        0,
        1,
        10,
        97,
        0,
        2,
    ]);
    let sum: u32 = frame[14..34]
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend([2, 0]);
    frame.extend(PORT.to_be_bytes());
    frame.extend(udp.to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(bytes, 7);
    frame
}
