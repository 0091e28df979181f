//! Overload: every frame sent is delivered, or counted as dropped by reason.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nic::device;
use nic::load::{LiveFrames, Word};
use nic::netns::Pair;
use nic::receive::{Counters, Options, RxPath};
use nic::source::{Source, Stats};

use crate::fallback::{close, open, options, pair, receive};
use crate::frames::plain;

/// Behaviour of a reader while frames are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reader {
    /// Receives continuously.
    Takes,
    /// Does not read: the load that overruns a slow reader depends on the machine; without a reader, every frame beyond the
    /// capacity of the rings is dropped.
    Waits,
}

/// Sends `total` frames to a reader; returns the frames delivered and the counters.
fn flood(pair: &Pair, options: &Options, total: u64, reader: Reader) -> (Stats, Counters) {
    let mut opened = open(pair, options);
    let words = [Word {
        at: 34,
        base: 0x0200_0000 + u32::from(crate::frames::PORT),
        each: 1,
        of: 1,
    }];
    let generator = pair
        .near
        .run(|| LiveFrames::open(xdp::BENCH, Pair::DEVICE, &words, None))
        .unwrap()
        .unwrap();
    let (never, stop) = (AtomicBool::new(false), AtomicBool::new(reader == Reader::Waits));
    let mut handed = 0;
    let source = &mut opened.sources[0];
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut handed = 0;
            // Relaxed: only the flag itself matters.
            while !stop.load(Ordering::Relaxed) {
                handed += take(source.as_mut(), 5);
            }
            handed
        });
        let sent = pair
            .near
            .run(|| generator.send(&plain(200), total, &never))
            .unwrap()
            .unwrap();
        assert_eq!(sent, total);
        stop.store(true, Ordering::Relaxed);
        handed = reading.join().unwrap();
    });
    // Sent frames may not have arrived yet: the receiving end of the link may wait to be scheduled on a busy machine.
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        handed += take(source.as_mut(), 50);
        let (stats, counters) = (source.stats(), opened.watch.counters().unwrap());
        assert_eq!(stats.datagrams, handed);
        if stats.datagrams + stats.lost() + counters.device_dropped == total || Instant::now() > deadline {
            close(opened);
            return (stats, counters);
        }
    }
}

/// Receives once; returns the number of frames.
fn take(source: &mut dyn Source, timeout_ms: u32) -> u64 {
    let got = source.receive(timeout_ms, &mut |packets| {
        assert!(packets.iter().all(|packet| packet.data == [7; 158]));
    });
    got.unwrap() as u64
}

#[test]
fn under_overload_every_frame_is_accounted_for() {
    for (rx_path, reader) in [
        (RxPath::Native, Reader::Waits),
        (RxPath::Native, Reader::Takes),
        (RxPath::Generic, Reader::Waits),
        (RxPath::Packet, Reader::Waits),
    ] {
        let Some(pair) = pair("overload", 1) else { return };
        // So that a veth receives the generator's frames without an XDP program in its driver.
        pair.far
            .run(|| device::set_offload(Pair::DEVICE, "rx-gro", true))
            .unwrap()
            .unwrap();
        const TOTAL: u64 = 400_000;
        let mut options = options(rx_path);
        options.xdp.frames_per_queue = 1024;
        options.packet_ring = 2 << 20;
        let (stats, counters) = flood(&pair, &options, TOTAL, reader);
        assert_eq!(
            stats.datagrams + stats.lost() + counters.device_dropped,
            TOTAL,
            "{rx_path} {stats:?} {counters:?}"
        );
        assert!(reader == Reader::Takes || stats.lost() > 0, "{rx_path} {stats:?}");
        assert!(stats.datagrams > 0, "{rx_path}");
        if rx_path != RxPath::Packet {
            assert_eq!(
                counters.redirected + counters.device_dropped,
                TOTAL,
                "{rx_path} {counters:?}"
            );
        }
    }
}

#[test]
fn frames_are_made_at_the_pace_asked_for_and_their_words_count() {
    let Some(pair) = pair("pace", 1) else { return };
    let mut opened = open(&pair, &options(RxPath::Native));
    // The first word of the payload: each value twice, three values.
    let words = [Word {
        at: 42,
        base: 0x0102_0304,
        each: 2,
        of: 3,
    }];
    let generator = pair
        .near
        .run(|| LiveFrames::open(xdp::BENCH, Pair::DEVICE, &words, Some(100_000)))
        .unwrap()
        .unwrap();
    let started = std::time::Instant::now();
    let sent = pair
        .near
        .run(|| generator.send(&plain(100), 10_000, &AtomicBool::new(false)))
        .unwrap()
        .unwrap();
    // 10,000 at 100,000 per second are 100 ms; a delay is not a fault of the receiver.
    assert!(started.elapsed().as_millis() >= 99, "{:?}", started.elapsed());
    let found = receive(opened.sources[0].as_mut(), 10_000);
    assert_eq!(sent, 10_000);
    // A reader that was not scheduled for so long that the link's ring was full misses some.
    let missed = opened.watch.counters().unwrap().device_dropped;
    assert_eq!(found.len() as u64 + missed, 10_000);
    let first: Vec<u8> = found[..8].iter().map(|(data, _)| data[3]).collect();
    assert_eq!(first, [4, 4, 5, 5, 6, 6, 4, 4]);
    assert!(
        found
            .iter()
            .all(|(data, _)| data[..3] == [1, 2, 3] && data[4..] == [7; 54])
    );
    close(opened);
}
