//! Overload: every frame that was sent was handed out, or is counted with the reason why not.

use std::sync::atomic::{AtomicBool, Ordering};

use nic::device;
use nic::ladder::{Counters, Options, Rung};
use nic::load::{LiveFrames, Word};
use nic::netns::Pair;
use nic::source::Stats;

use crate::frames::plain;
use crate::ladder::{close, open, options, pair, receive};

/// Sends `total` frames while a thread reads, slowly if asked to; gives what was handed out and counted.
fn flood(pair: &Pair, options: &Options, total: u64, slow: bool) -> (Stats, Counters) {
    let mut opened = open(pair, options);
    let words = [Word { at: 34, base: 0x0200_0000 + u32::from(crate::frames::PORT), each: 1, of: 1 }];
    let generator =
        pair.near.run(|| LiveFrames::open(bpf::BENCH, Pair::DEVICE, &words, None)).unwrap().unwrap();
    let (never, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut handed = 0;
    std::thread::scope(|scope| {
        let (source, stop) = (&mut opened.sources[0], &stop);
        let reading = scope.spawn(move || {
            let mut handed = 0;
            loop {
                // Acquire: pairs with the release below: what was sent before is there.
                let stopping = stop.load(Ordering::Acquire);
                let got = source.receive(5, &mut |packets| {
                    assert!(packets.iter().all(|packet| packet.data == [7; 158]));
                });
                let got = got.unwrap();
                handed += got as u64;
                if slow && !stopping {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
                if stopping && got == 0 {
                    return handed;
                }
            }
        });
        let sent = pair.near.run(|| generator.send(&plain(200), total, &never)).unwrap().unwrap();
        assert_eq!(sent, total);
        stop.store(true, Ordering::Release);
        handed = reading.join().unwrap();
    });
    let stats = opened.sources[0].stats();
    assert_eq!(stats.datagrams, handed);
    let counters = opened.watch.counters().unwrap();
    close(opened);
    (stats, counters)
}

#[test]
fn under_overload_every_frame_is_accounted_for() {
    for (rung, slow) in
        [(Rung::Native, true), (Rung::Native, false), (Rung::Generic, true), (Rung::Packet, true)]
    {
        let Some(pair) = pair("overload", 1) else { return };
        // So that a veth takes what the generator sends though no XDP program is in its driver.
        pair.far.run(|| device::set_offload(Pair::DEVICE, "rx-gro", true)).unwrap().unwrap();
        const TOTAL: u64 = 400_000;
        let mut options = options(rung);
        options.xdp.frames_per_queue = 1024;
        options.packet_ring = 2 << 20;
        let (stats, counters) = flood(&pair, &options, TOTAL, slow);
        assert_eq!(
            stats.datagrams + stats.lost() + counters.device_dropped,
            TOTAL,
            "{rung} {stats:?} {counters:?}"
        );
        assert!(!slow || stats.lost() > 0, "{rung} {stats:?}");
        assert!(stats.datagrams > 0, "{rung}");
        if rung != Rung::Packet {
            assert_eq!(counters.taken + counters.device_dropped, TOTAL, "{rung} {counters:?}");
        }
    }
}

#[test]
fn frames_are_made_at_the_pace_asked_for_and_their_words_count() {
    let Some(pair) = pair("pace", 1) else { return };
    let mut opened = open(&pair, &options(Rung::Native));
    // The first word of the payload: each value twice, three values.
    let words = [Word { at: 42, base: 0x0102_0304, each: 2, of: 3 }];
    let generator =
        pair.near.run(|| LiveFrames::open(bpf::BENCH, Pair::DEVICE, &words, Some(100_000))).unwrap().unwrap();
    let started = std::time::Instant::now();
    let sent =
        pair.near.run(|| generator.send(&plain(100), 10_000, &AtomicBool::new(false))).unwrap().unwrap();
    // 10,000 at 100,000 per second are 100 ms; late is no fault of ours.
    assert!(started.elapsed().as_millis() >= 99, "{:?}", started.elapsed());
    let found = receive(opened.sources[0].as_mut(), 10_000);
    assert_eq!((sent, found.len()), (10_000, 10_000));
    let first: Vec<u8> = found[..8].iter().map(|(data, _)| data[3]).collect();
    assert_eq!(first, [4, 4, 5, 5, 6, 6, 4, 4]);
    assert!(found.iter().all(|(data, _)| data[..3] == [1, 2, 3] && data[4..] == [7; 54]));
    close(opened);
}
