//! Levels of congestion, priorities, local memory, notices, meters of senders, and several collectors: 5.5 and 5.8.

use rdma::transport::Credit;
use translator::{CollectorConfig, Config, Rate, Reason, StoreEntry};
use wire::dta::control::{Body, Cause};
use wire::dta::hash::Family;
use wire::dta::layout::Geometry;
use wire::dta::{Base, Operation, Priority};

use crate::model::{KEY, MS, US, World, append, config, essential, plain, put, sender, stores, with};

/// A collector that accepts a million operations per second: 1 us each, 1,600 at once. Levels begin above 800, 1,200, 1,500.
fn slow(settings: Config) -> Config {
    let mut settings = settings;
    for memory in settings.collectors.iter_mut().flatten() {
        memory.rate = Rate {
            messages: 1_000_000,
            bytes: 0,
            burst: 1_600 * US,
        };
    }
    settings
}

fn at_level(level: u8) -> World {
    let mut world = World::of(slow(config(stores())));
    world.memory.is_logging = false;
    let writes = [0, 900, 1_300, 1_600][usize::from(level)];
    for _ in 0..writes {
        world.send(with(Priority::High), put(&KEY));
        if world.stats().operations.writes == [0, 801, 1_201, 1_501][usize::from(level)] {
            break;
        }
    }
    world.pass(0);
    assert_eq!(world.translator.level(0), level);
    world.mail.0.clear();
    world
}

#[test]
fn each_level_drops_or_diverts_what_5_5_says() {
    for level in 0..4 {
        for (priority, name) in [(Priority::Low, 0), (Priority::Medium, 1), (Priority::High, 2)] {
            let mut world = at_level(level);
            let before = (world.done(), world.stats().reports.queued);
            world.send(with(priority), put(&KEY));
            let stats = world.stats();
            let (done, waiting) = (world.done() - before.0, stats.reports.queued - before.1);
            let dropped: u64 = stats.reports.dropped.iter().sum();
            let expected = match (name, level) {
                (0, 0) | (1, 0 | 1) | (2, 0..=2) => (1, 0, 0),
                (2, _) => (0, 0, 1),
                _ => (0, 1, 0),
            };
            assert_eq!((done, dropped, waiting), expected, "{name} at {level}");
            let (low, medium) = (
                world.dropped(Reason::CongestedLow),
                world.dropped(Reason::CongestedMedium),
            );
            assert_eq!(
                (low, medium),
                (dropped * u64::from(name == 0), dropped * u64::from(name == 1))
            );
        }
    }
}

#[test]
fn diverted_reports_are_retried_in_order_when_credit_returns() {
    let mut world = at_level(3);
    let value = |n: u32| n.to_be_bytes();
    for n in 0..100 {
        let data = value(n);
        world.send(
            with(Priority::High),
            Operation::KeyWrite {
                copies: 1,
                store: 1,
                key: &KEY,
                data: &data,
            },
        );
    }
    let stats = world.stats();
    assert_eq!((stats.reports.diverted, stats.reports.queued), (100, 100));
    world.memory.is_logging = true;
    // Level 3 ends 200 us below its threshold. A newer value does not overtake those that wait.
    world.now += 301 * US;
    let data = value(100);
    world.send(
        with(Priority::High),
        Operation::KeyWrite {
            copies: 1,
            store: 1,
            key: &KEY,
            data: &data,
        },
    );
    assert_eq!(world.stats().reports.queued, 99);
    for _ in 0..50 {
        world.pass(20 * US);
    }
    let values: Vec<u32> = world
        .memory
        .done()
        .iter()
        .map(|done| u32::from_be_bytes(done.data[4..8].try_into().expect("4 bytes")))
        .collect();
    assert_eq!(values, (0..=100).collect::<Vec<_>>());
    assert_eq!(
        (world.stats().reports.queued, world.stats().reports.queued_bytes),
        (0, 0)
    );
    assert_eq!(world.stats().reports.diverted, 101);
}

#[test]
fn the_rate_limit_holds_under_any_load() {
    let mut world = World::of(slow(config(stores())));
    world.memory.is_logging = false;
    // Three times the rate, of all priorities, for 20 ms.
    for n in 0..20_000u32 {
        for priority in [Priority::Low, Priority::Medium, Priority::High] {
            world.send(with(priority), put(&n.to_be_bytes()));
        }
        world.now += US;
        if n % 500 == 0 {
            world.pass(0);
        }
    }
    let stats = world.stats();
    assert!(
        (20_000..=21_700).contains(&stats.operations.writes),
        "{}",
        stats.operations.writes
    );
    // Lower priorities do not get the rate that high ones leave; no high one is lost.
    assert_eq!(world.dropped(Reason::LocalFull), 0);
    assert!(world.dropped(Reason::CongestedLow) > 18_000 && world.dropped(Reason::CongestedMedium) > 17_000);
    for _ in 0..100 {
        world.pass(MS);
    }
    assert_eq!(world.stats().reports.queued, 0);
}

#[test]
fn an_essential_report_is_never_dropped_for_congestion_alone() {
    for level in 1..4 {
        let mut world = at_level(level);
        let done = world.done();
        world.send(
            Base {
                priority: Priority::Low,
                ..essential(1)
            },
            put(&KEY),
        );
        let waits = u64::from(level == 3);
        assert_eq!(
            (world.done() - done, world.stats().reports.queued),
            (1 - waits, waits)
        );
        assert_eq!(world.stats().sequences.accepted, 1);
    }
}

#[test]
fn essential_reports_stay_with_the_reporter_when_local_memory_is_full() {
    let mut settings = slow(config(stores()));
    settings.local = 200;
    let mut world = World::of(settings);
    world.memory.room[0] = Credit::NONE;
    for sequence in 0..10 {
        world.send(essential(sequence), put(&KEY));
    }
    // 8 + 8 + 13 + 4 bytes, and 9 for the record: four fit.
    let stats = world.stats();
    assert_eq!((stats.reports.queued, stats.sequences.accepted), (4, 4));
    assert_eq!(
        (world.dropped(Reason::LocalFull), world.dropped(Reason::Gap)),
        (1, 5)
    );
    let bodies: Vec<Body> = world.controls().into_iter().map(|(_, body)| body).collect();
    let nack = |cause, trigger| Body::Nack {
        cause,
        last: 3,
        trigger,
    };
    let notice = |dropped| Body::Congestion {
        level: 3,
        hold_us: 500,
        dropped,
    };
    // The first diverted report triggers a notice too; those after the rejected one are not a gap to report.
    assert_eq!(bodies, [notice(0), nack(Cause::Overload, 4)]);
    world.memory.room[0] = Credit::UNLIMITED;
    world.now += MS;
    (4..10).for_each(|sequence| world.send(essential(sequence), put(&KEY)));
    world.pass(MS);
    assert_eq!((world.done(), world.stats().sequences.lost), (10, 0));
}

#[test]
fn senders_are_notified_of_congestion_and_of_its_end() {
    let mut world = at_level(1);
    for _ in 0..50 {
        world.send_from(sender(1), with(Priority::Low), put(&KEY));
    }
    world.send_from(sender(2), with(Priority::Medium), put(&KEY));
    let notice = |level, dropped| {
        (
            sender(1),
            Body::Congestion {
                level,
                hold_us: 500,
                dropped,
            },
        )
    };
    // Once, and only the sender of the report; again after half of the hold time.
    assert_eq!(world.controls(), [notice(1, 1)]);
    (0..250).for_each(|_| world.send_from(sender(3), with(Priority::High), put(&KEY)));
    world.now += 250 * US;
    world.send_from(sender(1), with(Priority::Low), put(&KEY));
    assert_eq!(world.controls(), [notice(1, 50)]);
    // Below the level: notified at the next report, within the hold time.
    world.now += 249 * US;
    world.pass(0);
    assert_eq!(world.translator.level(0), 0);
    world.send_from(sender(2), with(Priority::Medium), put(&KEY));
    assert_eq!(world.controls(), []);
    world.send_from(sender(1), with(Priority::Medium), put(&KEY));
    world.send_from(sender(1), with(Priority::Medium), put(&KEY));
    assert_eq!(world.controls(), [notice(0, 0)]);
}

#[test]
fn copies_are_fewer_under_load_and_counters_are_not() {
    for (level, copies) in [(0, 4), (1, 2), (2, 1)] {
        let mut world = at_level(level);
        let before = world.stats();
        world.send(
            with(Priority::High),
            Operation::KeyWrite {
                copies: 4,
                store: 1,
                key: &KEY,
                data: &[1],
            },
        );
        let stats = world.stats();
        assert_eq!(stats.copies.written - before.copies.written, copies);
        assert_eq!(stats.copies.skipped, 4 - copies);
        world.send(
            with(Priority::High),
            Operation::KeyIncrement {
                copies: 4,
                store: 1,
                delta: 1,
                key: &KEY,
            },
        );
        assert_eq!(world.stats().operations.fetch_adds, 4);
    }
    let mut world = World::of(Config {
        copies: [4; 4],
        ..slow(config(stores()))
    });
    world.memory.is_logging = false;
    for _ in 0..310 {
        world.send(
            with(Priority::High),
            Operation::KeyWrite {
                copies: 4,
                store: 1,
                key: &KEY,
                data: &[1],
            },
        );
    }
    assert_eq!((world.translator.level(0), world.stats().copies.skipped), (2, 0));
}

#[test]
fn a_closed_transport_is_level_three() {
    let mut world = World::new();
    world.memory.room[0] = Credit {
        messages: 1,
        bytes: 1_000,
    };
    for priority in [Priority::Low, Priority::Medium, Priority::High] {
        world.send(
            with(priority),
            Operation::KeyWrite {
                copies: 2,
                store: 1,
                key: &KEY,
                data: &[1],
            },
        );
        world.send(with(priority), put(&KEY));
    }
    // One copy fits, two do not; later reports of high priority wait behind the first that waits.
    assert_eq!(
        (
            world.dropped(Reason::CongestedLow),
            world.dropped(Reason::CongestedMedium)
        ),
        (1, 1)
    );
    assert_eq!((world.done(), world.stats().reports.queued), (2, 2));
    let levels: Vec<Body> = world.controls().into_iter().map(|(_, body)| body).collect();
    assert!(
        matches!(levels[0], Body::Congestion { level: 3, .. }),
        "{levels:?}"
    );
    world.memory.room[0] = Credit::UNLIMITED;
    world.pass(1);
    assert_eq!(world.done(), 4);
}

#[test]
fn a_flooding_sender_does_not_starve_others() {
    let mut world = World::of(Config {
        reporter_rate: 10_000,
        reporter_burst: 20,
        ..slow(config(stores()))
    });
    world.memory.is_logging = false;
    // For 100 ms: one sends a thousand times its rate under a hundred IDs, ten send half of theirs.
    let mut good = 0;
    for step in 0..10_000u32 {
        for n in 0..10 {
            let base = Base {
                reporter: step % 100,
                ..with(Priority::High)
            };
            world.send_from(sender(66), base, put(&[n]));
        }
        if step % 20 == 0 {
            for host in 0..10 {
                world.send_from(sender(host), with(Priority::Low), put(&KEY));
                good += 1;
            }
        }
        world.now += 10 * US;
    }
    // 20 at once and 1,000 in 100 ms.
    let flood = world.done() - good;
    assert!((1_000..=1_021).contains(&flood), "{flood}");
    assert_eq!(world.dropped(Reason::Metered), 100_000 - flood);
    assert_eq!(
        (world.dropped(Reason::CongestedLow), world.stats().levels),
        (0, [0; 3])
    );
    // It is notified, at most once in each half of the hold time.
    let notices = world.controls();
    assert!(
        notices
            .iter()
            .all(|(to, body)| *to == sender(66) && matches!(body, Body::Congestion { level: 2, .. }))
    );
    assert!((300..=402).contains(&notices.len()), "{}", notices.len());
}

#[test]
fn a_metered_essential_report_is_sent_again() {
    let mut world = World::of(Config {
        reporter_rate: 1_000,
        reporter_burst: 2,
        ..config(stores())
    });
    (0..4).for_each(|sequence| world.send(essential(sequence), put(&KEY)));
    let bodies: Vec<Body> = world.controls().into_iter().map(|(_, body)| body).collect();
    assert_eq!(
        bodies,
        [
            Body::Congestion {
                level: 2,
                hold_us: 500,
                dropped: 1
            },
            Body::Nack {
                cause: Cause::Overload,
                last: 1,
                trigger: 2
            }
        ]
    );
    world.now += 2 * MS;
    (2..4).for_each(|sequence| world.send(essential(sequence), put(&KEY)));
    assert_eq!((world.done(), world.stats().sequences.lost), (4, 0));
}

#[test]
fn the_very_first_report_is_sent_again_when_it_was_metered() {
    let mut world = World::of(Config {
        reporter_rate: 1_000,
        reporter_burst: 2,
        ..config(stores())
    });
    // Another report of the same sender uses up its rate.
    (0..2).for_each(|_| world.send(plain(), put(&KEY)));
    (7..10).for_each(|sequence| world.send(essential(sequence), put(&KEY)));
    let first = Body::Nack {
        cause: Cause::Overload,
        last: 6,
        trigger: 7,
    };
    assert_eq!(world.controls()[1..], [(sender(1), first)]);
    // The reporter repeats its last report without a NACK.
    world.now += 3 * MS;
    world.send(essential(9), put(&KEY));
    assert_eq!(
        world.controls(),
        [(
            sender(1),
            Body::Nack {
                cause: Cause::Gap,
                last: 6,
                trigger: 9
            }
        )]
    );
    world.now += 3 * MS;
    for sequence in 7..10 {
        world.send(essential(sequence), put(&KEY));
        world.now += MS;
    }
    let (stats, done) = (world.stats(), world.done());
    assert_eq!((done, stats.sequences.accepted, stats.sequences.lost), (5, 3, 0));
}

/// Two collectors, each with a key-write store in a region of its own.
fn two() -> Config {
    let store = |region| {
        StoreEntry::new(
            region,
            1,
            Geometry::KeyWrite {
                slots: 1 << 10,
                data_len: 4,
                family: Family::V1,
            },
        )
    };
    let memory = |region| {
        Some(CollectorConfig {
            stores: vec![store(region)],
            ..CollectorConfig::default()
        })
    };
    Config {
        collectors: vec![memory(5), memory(6)],
        ..config(Vec::new())
    }
}

fn send_to(world: &mut World, collector: u8, base: Base, key: &[u8]) {
    let report = wire::dta::Report {
        base,
        operation: put(key),
    };
    let mut bytes = vec![0; report.len()];
    report.emit(&mut bytes).expect("a good report");
    world.send_bytes(sender(1), collector, &bytes);
}

#[test]
fn losses_to_an_absent_collector_are_not_counted_as_congestion() {
    let mut world = World::of(two());
    let send = |world: &mut World| {
        for priority in [Priority::Low, Priority::Low, Priority::Medium, Priority::High] {
            send_to(world, 1, with(priority), &[1]);
        }
    };
    world.memory.away[1] = true;
    send(&mut world);
    let dropped = |world: &World| {
        [
            Reason::AbsentLow,
            Reason::AbsentMedium,
            Reason::CongestedLow,
            Reason::CongestedMedium,
        ]
        .map(|reason| world.dropped(reason))
    };
    assert_eq!((dropped(&world), world.stats().reports.queued), ([2, 1, 0, 0], 1));
    // It is connected again, and has no credit.
    world.memory.away[1] = false;
    world.memory.room[1] = Credit::NONE;
    send(&mut world);
    assert_eq!((dropped(&world), world.stats().reports.queued), ([2, 1, 2, 1], 2));
    world.memory.room[1] = Credit::UNLIMITED;
    world.pass(MS);
    assert_eq!((world.done(), world.stats().reports.queued), (2, 0));
    assert!(world.stats().is_balanced());
    // A collector that was never attached counts as absent, too.
    let mut world = World::of(Config {
        collectors: vec![None, None],
        ..two()
    });
    send(&mut world);
    assert_eq!(dropped(&world), [2, 1, 0, 0]);
}

#[test]
fn a_collector_that_is_gone_stops_no_other_and_what_was_lost_is_known() {
    let mut world = World::of(two());
    let send_both = |world: &mut World, key: u8| {
        for collector in 0..2 {
            send_to(world, collector, with(Priority::High), &[key]);
            send_to(world, collector, with(Priority::Low), &[key, key]);
        }
    };
    (0..10).for_each(|key| send_both(&mut world, key));
    world.memory.room[1] = Credit::NONE;
    (10..20).for_each(|key| send_both(&mut world, key));
    assert_eq!(
        (world.dropped(Reason::CongestedLow), world.stats().reports.queued),
        (10, 10)
    );
    let regions = |world: &mut World| {
        let done = world.memory.done();
        [0, 1].map(|collector| {
            done.iter()
                .filter(|done| done.place.collector == collector)
                .count()
        })
    };
    assert_eq!(regions(&mut world), [40, 20]);
    world.memory.room[1] = Credit::UNLIMITED;
    world.pass(MS);
    (20..30).for_each(|key| send_both(&mut world, key));
    assert_eq!(regions(&mut world), [20, 30]);
    let levels: Vec<u8> = (0..3)
        .map(|collector| world.translator.level(collector))
        .collect();
    assert_eq!(levels, [0, 0, 0]);
}

#[test]
fn high_priority_reports_wait_for_a_collector_without_known_memory() {
    let mut settings = two();
    let memory = settings.collectors[1].take().expect("a collector");
    let mut world = World::of(settings);
    world.memory.regions.insert((1, 6), vec![0; 1 << 13]);
    send_to(&mut world, 1, with(Priority::High), &[1]);
    send_to(&mut world, 1, essential(1), &[2]);
    send_to(&mut world, 1, with(Priority::Medium), &[3]);
    assert_eq!(
        (
            world.translator.level(1),
            world.done(),
            world.stats().reports.queued
        ),
        (3, 0, 2)
    );
    world.pass(MS);
    world.translator.attach(1, memory).expect("good stores");
    world.pass(MS);
    assert_eq!(
        (
            world.translator.level(1),
            world.done(),
            world.stats().reports.queued
        ),
        (0, 2, 0)
    );
    assert_eq!(world.stats().sequences.accepted, 1);
}

#[test]
fn low_entries_wait_in_their_batch_where_there_is_room_for_them() {
    let mut world = World::new();
    world.memory.room[0] = Credit::NONE;
    // No operation is needed yet, so that nothing is dropped.
    world.send(with(Priority::Low), append(1, &[0; 12]));
    assert_eq!((world.done(), world.stats().entries.pending), (1, 3));
}

#[test]
fn reports_that_the_reporter_still_buffers_are_never_counted_as_lost() {
    let mut settings = slow(config(stores()));
    settings.local = 100;
    let mut world = World::of(settings);
    world.memory.room[0] = Credit::NONE;
    // Even the very first is refused, because another reporter has filled the local memory.
    (0..3).for_each(|sequence| {
        world.send(
            Base {
                reporter: 9,
                ..essential(sequence)
            },
            put(&KEY),
        )
    });
    assert_eq!(world.stats().reports.queued, 2);
    for _ in 0..300 {
        // A ring of 256 reports, again and again, for 300 ms.
        (500..756).for_each(|sequence| world.send(essential(sequence), put(&KEY)));
        world.pass(MS);
    }
    let nacks = world.stats().controls.nacks;
    assert!(nacks[3] >= 300 && nacks[0] == 0, "{nacks:?}");
    world.memory.room[0] = Credit::UNLIMITED;
    world.pass(MS);
    (500..756).for_each(|sequence| world.send(essential(sequence), put(&KEY)));
    assert_eq!((world.done(), world.stats().sequences.lost), (2 + 256, 0));
}

#[test]
fn retries_without_credit_are_bounded() {
    let mut world = World::new();
    world.send(with(Priority::High), append(3, &[1; 4]));
    world.memory.room[0] = Credit::NONE;
    world.pass(5 * MS);
    assert_eq!(world.translator.deadline(), Some(world.now + MS));
    world.memory.room[0] = Credit::UNLIMITED;
    world.pass(MS);
    assert_eq!(
        (world.stats().entries.written, world.translator.deadline()),
        (1, None)
    );
}

#[test]
fn a_closed_transport_is_reported_as_level_three_and_never_as_none() {
    let mut world = World::new();
    world.memory.room[0] = Credit::NONE;
    for host in 1..100 {
        world.send_from(sender(host % 3), with(Priority::High), put(&KEY));
        world.now += 100 * US;
    }
    // An entry that needs no credit does not end the notice.
    world.send_from(sender(1), with(Priority::Low), append(3, &[1; 4]));
    let notices = world.controls();
    assert!(notices.len() > 50);
    assert!(
        notices
            .iter()
            .all(|(_, body)| matches!(body, Body::Congestion { level: 3, .. })),
        "{notices:?}"
    );
}

#[test]
fn other_reports_leave_half_of_local_memory_to_essential_ones() {
    let mut settings = config(stores());
    settings.local = 840;
    let mut world = World::of(settings);
    world.memory.room[0] = Credit::NONE;
    // Records of 42 bytes: 20 in all.
    (0..1_000).for_each(|_| world.send(with(Priority::High), put(&KEY)));
    assert_eq!(
        (world.stats().reports.queued, world.dropped(Reason::LocalFull)),
        (10, 990)
    );
    (0..10).for_each(|sequence| world.send(essential(sequence), put(&KEY)));
    assert_eq!(
        (world.stats().reports.queued, world.stats().sequences.accepted),
        (20, 10)
    );
}
