//! Invalid input: nothing panics, nothing is written outside a region, and the counters add up.

use rdma::transport::Credit;
use translator::{Accept, Config, Reason};
use wire::dta::{Base, Operation, Priority, Report};

use crate::model::{KEY, MS, Random, World, append, config, plain, sender, stores, with};

/// A random report of any kind, with numbers that are sometimes invalid.
pub(crate) fn report(random: &mut Random, bytes: &mut Vec<u8>) {
    let priority = [Priority::Low, Priority::Medium, Priority::High][random.below(3) as usize];
    let base = Base {
        immediate: random.below(8) == 0,
        essential: random.below(3) == 0,
        priority,
        sequence: random.below(6) as u16,
        reporter: random.below(4) as u32,
    };
    let data: Vec<u8> = (0..1200).map(|_| random.next() as u8).collect();
    let key = &data[1100..1100 + 1 + random.below(20) as usize];
    let (copies, store) = (1 + random.below(4) as u8, random.below(3) as u16);
    let operation = match random.below(5) {
        0 => Operation::KeyWrite {
            copies,
            store,
            key,
            data: &data[..1 + random.below(24) as usize],
        },
        1 => {
            let (entry_len, count) = (2 + random.below(4) as u16, 1 + random.below(30) as usize);
            let list = [0, 3, 15, 16, 100, 103, u32::MAX][random.below(7) as usize];
            Operation::Append {
                list,
                entry_len,
                entries: &data[..usize::from(entry_len) * count],
            }
        }
        2 => Operation::KeyIncrement {
            copies,
            store,
            delta: random.next(),
            key,
        },
        3 => {
            let hop = 1 + random.below(7) as u8;
            let path_len = if random.below(2) == 0 {
                0
            } else {
                hop + random.below(3) as u8
            };
            Operation::Postcard {
                hop,
                path_len,
                store,
                value: random.below(9) as u32,
                key: &key[..1],
            }
        }
        _ => {
            let columns = 1 + random.below(4) as u8;
            Operation::SketchMerge {
                sketch: 4,
                epoch: random.below(4) as u16,
                first_column: random.below(11) as u32,
                depth: 4,
                width: 4,
                op: wire::dta::MergeOp::Sum,
                columns,
                counters: &data[..usize::from(columns) * 16],
            }
        }
    };
    let report = Report { base, operation };
    bytes.clear();
    bytes.resize(report.len(), 0);
    report.emit(bytes).expect("a good report");
}

/// A setup that exercises every limit: a rate limit, meters of two senders, little local memory, and a transport that is sometimes without credit.
fn storm(accept: Accept, seed: u64, mutate: bool) -> World {
    let mut settings = Config {
        accept,
        local: 600,
        reporter_rate: 80_000,
        reporter_burst: 64,
        ..config(stores())
    };
    settings.reporters = 3;
    settings.postcards = 4;
    if let Some(collector) = &mut settings.collectors[0] {
        collector.rate = translator::Rate {
            messages: 500_000,
            bytes: 0,
            burst: 100_000,
        };
    }
    let mut world = World::of(settings);
    world.memory.is_logging = false;
    let mut random = Random(seed);
    let mut bytes = Vec::new();
    for _ in 0..20_000 {
        report(&mut random, &mut bytes);
        if mutate {
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                match random.below(4) {
                    0 => bytes.truncate(at),
                    1 => bytes.push(random.next() as u8),
                    _ => bytes[at] = random.next() as u8,
                }
                if bytes.is_empty() {
                    bytes.push(random.next() as u8);
                }
            }
        }
        match random.below(100) {
            0 => world.memory.room[0] = Credit::NONE,
            1 => {
                world.memory.room[0] = Credit {
                    messages: 3,
                    bytes: 200,
                }
            }
            2 => world.memory.fuse = Some(random.below(4) as u32),
            3 => world.pass(random.below(2 * MS)),
            4..20 => {
                world.memory.room[0] = Credit::UNLIMITED;
                (world.memory.fuse, world.memory.away[0]) = (None, false);
            }
            99 => world.memory.away[0] = true,
            _ => {}
        }
        world.now += random.below(4_000);
        let collector = u8::from(random.below(50) == 0);
        let host = random.below(5) as u8;
        // Checks that the counters add up; the memory checks that nothing is written outside.
        world.send_bytes(sender(host), collector, &bytes);
    }
    world
}

#[test]
fn a_storm_of_reports_adds_up() {
    let mut seen = [0; Reason::COUNT];
    let mut done = [0; 5];
    for seed in 0..4 {
        let mut world = storm(Accept::V1, seed, false);
        let stats = world.stats();
        assert_eq!(stats.reports.unreadable.iter().sum::<u64>(), 0);
        seen.iter_mut()
            .zip(stats.reports.dropped)
            .for_each(|(seen, dropped)| *seen += dropped);
        done.iter_mut()
            .zip(stats.reports.done)
            .for_each(|(sum, done)| *sum += done);
        assert!(stats.reports.diverted > 0, "{stats:#?}");
        // All pending data is written at the end.
        world.memory.room[0] = Credit::UNLIMITED;
        (world.memory.fuse, world.memory.away[0]) = (None, false);
        world.now += 1_000 * MS;
        assert!(world.translator.finish(world.now, &mut world.memory));
        let stats = world.stats();
        assert_eq!(
            (
                stats.reports.queued,
                stats.entries.pending,
                stats.postcards.pending
            ),
            (0, 0, 0)
        );
        assert!(stats.is_balanced());
    }
    for (reason, count) in Reason::ALL.iter().zip(seen) {
        let elsewhere = matches!(
            reason,
            Reason::NotAccepted
                | Reason::WrongShape
                | Reason::EpochAhead
                | Reason::TransportRefused
                | Reason::UnknownSketch
        );
        assert!(count > 0 || elsewhere, "{} never happened", reason.name());
    }
    assert!(done.iter().all(|done| *done > 20), "{done:?}");
}

#[test]
fn corrupted_reports_are_refused_without_side_effects() {
    for (seed, accept) in [(1, Accept::V1), (2, Accept::Both), (3, Accept::Artifact)] {
        let world = storm(accept, seed, true);
        let stats = world.stats();
        assert!(stats.reports.unreadable.iter().sum::<u64>() > 1_000);
        assert_eq!(stats.reports.received, 20_000);
    }
}

#[test]
fn noise_is_refused() {
    let mut random = Random(9);
    for accept in [Accept::V1, Accept::Artifact, Accept::Both] {
        let mut world = World::of(Config {
            accept,
            ..config(stores())
        });
        for len in (0..64).chain([1_500, 65_507]) {
            for _ in 0..20 {
                let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
                world.send_bytes(sender(1), 0, &bytes);
                if let Some(first) = bytes.first_mut() {
                    *first = 0x10 | *first & 0x0f;
                    world.send_bytes(sender(1), 0, &bytes);
                }
            }
        }
    }
}

#[test]
fn every_shorter_report_is_refused() {
    let mut random = Random(3);
    let mut bytes = Vec::new();
    let mut world = World::new();
    for _ in 0..200 {
        report(&mut random, &mut bytes);
        // Not essential: other tests check sequences.
        bytes[1] &= 0xbf;
        for len in 0..bytes.len() {
            world.send_bytes(sender(1), 0, &bytes[..len]);
        }
    }
    assert_eq!(
        world.stats().reports.unreadable.iter().sum::<u64>(),
        world.stats().reports.received
    );
}

#[test]
fn a_transport_that_does_not_know_the_region_is_counted() {
    let mut world = World::new();
    world.memory.regions.clear();
    world.send(
        plain(),
        Operation::KeyWrite {
            copies: 2,
            store: 1,
            key: &KEY,
            data: &[1],
        },
    );
    world.send(
        plain(),
        Operation::KeyIncrement {
            copies: 2,
            store: 1,
            delta: 1,
            key: &KEY,
        },
    );
    assert_eq!(world.dropped(Reason::TransportRefused), 2);
    world.send(with(Priority::High), append(3, &[0; 16]));
    world.send(
        plain(),
        Operation::Postcard {
            hop: 1,
            path_len: 1,
            store: 1,
            value: 1,
            key: &KEY,
        },
    );
    assert_eq!(
        (world.stats().entries.dropped, world.stats().postcards.dropped),
        (4, 1)
    );
    // Nothing is retried.
    world.pass(1_000 * MS);
    assert_eq!(world.stats().operations.blocked.iter().sum::<u64>(), 4);
}

#[test]
fn an_unknown_collector_is_counted() {
    let mut world = World::new();
    let mut bytes = Vec::new();
    report(&mut Random(1), &mut bytes);
    world.send_bytes(sender(1), 7, &bytes);
    assert_eq!(world.dropped(Reason::NoCollector), 1);
}

#[test]
fn a_clock_that_starts_or_jumps_anywhere_breaks_nothing() {
    const HOUR: u64 = 3_600_000 * MS;
    for (seed, start) in [0, 1, 1 << 62, u64::MAX / 2, u64::MAX - 200 * HOUR]
        .into_iter()
        .enumerate()
    {
        let mut settings = Config {
            reporter_rate: 80_000,
            ..config(stores())
        };
        if let Some(collector) = &mut settings.collectors[0] {
            collector.rate = translator::Rate {
                messages: 500_000,
                bytes: 1 << 30,
                burst: 100_000,
            };
        }
        let mut world = World::of(settings);
        world.memory.is_logging = false;
        world.now = start;
        let (mut random, mut bytes) = (Random(seed as u64), Vec::new());
        for _ in 0..5_000 {
            match random.below(50) {
                0 => world.pass(HOUR),
                1..10 => world.pass(random.below(2 * MS)),
                _ => {}
            }
            let _ = world.translator.deadline();
            report(&mut random, &mut bytes);
            world.send_bytes(sender(random.below(5) as u8), 0, &bytes);
        }
        world.pass(HOUR);
        let (done, pending) = (world.done(), world.stats().entries.pending);
        assert!(
            done > 300 && pending == 0,
            "start {start}: {done} done, {pending} pending"
        );
        // The last possible time.
        world.now = u64::MAX;
        for _ in 0..100 {
            report(&mut random, &mut bytes);
            world.send_bytes(sender(1), 0, &bytes);
            world.pass(0);
        }
        assert!(world.translator.finish(world.now, &mut world.memory));
    }
}
