//! Essential reports (wire-formats 5.8), in simulated time; and reporter identity checks.

use translator::{Config, PinnedReporter, Reason};
use wire::dta::control::{Body, Cause};
use wire::dta::{Base, Operation};

use crate::model::{KEY, MS, Random, US, World, append, config, essential, put, sender, stores};

fn numbered(world: &mut World, sequence: u16) {
    world.send(essential(sequence), put(&KEY));
}

fn nack(cause: Cause, last: u16, trigger: u16) -> Vec<(std::net::SocketAddr, Body)> {
    vec![(sender(1), Body::Nack { cause, last, trigger })]
}

#[test]
fn a_gap_is_nacked_and_filled_by_retransmission() {
    let mut world = World::new();
    for sequence in [0xfffe, 0xffff, 0, 3] {
        numbered(&mut world, sequence);
    }
    assert_eq!(world.controls(), nack(Cause::Gap, 0, 3));
    assert_eq!((world.done(), world.dropped(Reason::Gap)), (3, 1));
    // Further reports after the gap cause no NACK for a millisecond.
    numbered(&mut world, 4);
    world.now += MS - 1;
    numbered(&mut world, 5);
    assert_eq!(world.controls(), []);
    world.now += 1;
    numbered(&mut world, 6);
    assert_eq!(world.controls(), nack(Cause::Gap, 0, 6));
    // The reporter goes back to 1.
    (1..=6).for_each(|sequence| numbered(&mut world, sequence));
    assert_eq!(
        (world.controls(), world.done(), world.dropped(Reason::Gap)),
        (vec![], 9, 4)
    );
    let stats = world.stats().sequences;
    assert_eq!((stats.accepted, stats.lost, stats.reporters), (9, 0, 1));
}

#[test]
fn accepted_reports_are_not_executed_twice() {
    let mut world = World::new();
    (100..400).for_each(|sequence| numbered(&mut world, sequence));
    // The reporter's whole ring again, and a number half the sequence space away.
    (144..400).for_each(|sequence| numbered(&mut world, sequence));
    numbered(&mut world, 399 + 32768);
    assert_eq!(
        (world.done(), world.dropped(Reason::Duplicate), world.controls()),
        (300, 257, vec![])
    );
}

#[test]
fn a_last_report_that_is_sent_again_is_acknowledged() {
    let mut world = World::new();
    (1..=3).for_each(|sequence| numbered(&mut world, sequence));
    assert_eq!(world.controls(), []);
    world.now += 20 * MS;
    // Once, whatever the number of copies; and not an earlier one.
    for sequence in [3, 3, 3, 2] {
        numbered(&mut world, sequence);
    }
    let bodies: Vec<Body> = world.controls().into_iter().map(|(_, body)| body).collect();
    assert_eq!(bodies, [Body::Ack { last: 3 }]);
    world.now += 20 * MS;
    numbered(&mut world, 2);
    assert_eq!((world.controls(), world.done()), (vec![], 3));
}

#[test]
fn a_gap_that_stays_is_given_up_after_three_nacks() {
    let mut world = World::new();
    numbered(&mut world, 10);
    for wait in [1, 4, 16] {
        numbered(&mut world, 14);
        assert_eq!(world.controls().len(), 1);
        world.now += wait * MS;
    }
    numbered(&mut world, 14);
    numbered(&mut world, 15);
    let stats = world.stats();
    assert_eq!(
        (world.done(), stats.sequences.lost, stats.controls.nacks),
        (3, 3, [3, 0, 0, 0])
    );
    assert_eq!(world.controls(), []);
}

#[test]
fn reporters_and_collectors_are_counted_apart() {
    let mut settings = config(stores());
    settings.collectors.push(settings.collectors[0].clone());
    let mut world = World::of(settings);
    for collector in 0..2 {
        for reporter in 0..3 {
            for sequence in [1, 2, 4] {
                let base = Base {
                    reporter,
                    ..essential(sequence)
                };
                let report = wire::dta::Report {
                    base,
                    operation: put(&KEY),
                };
                let mut bytes = vec![0; report.len()];
                report.emit(&mut bytes).expect("a good report");
                world.send_bytes(sender(1), collector, &bytes);
            }
        }
    }
    assert_eq!(
        (
            world.done(),
            world.dropped(Reason::Gap),
            world.stats().sequences.reporters
        ),
        (12, 6, 6)
    );
    let collectors: Vec<u8> = world.mail.0.iter().map(|(_, collector, _)| *collector).collect();
    assert_eq!(collectors, [0, 0, 0, 1, 1, 1]);
}

#[test]
fn sixty_five_thousand_reporters_are_followed() {
    let mut world = World::of(Config {
        owned: 1 << 16,
        ..config(stores())
    });
    world.memory.is_logging = false;
    let mut bytes = [0; 64];
    let len = wire::dta::Report {
        base: essential(0),
        operation: put(&KEY),
    }
    .emit(&mut bytes)
    .expect("good");
    for sequence in [5u16, 6, 8] {
        for reporter in 0..65_536u32 {
            bytes[2..4].copy_from_slice(&sequence.to_be_bytes());
            bytes[4..8].copy_from_slice(&(reporter * 3).to_be_bytes());
            let origin = translator::Origin {
                sender: sender(1),
                collector: 0,
            };
            world.translator.process(
                world.now,
                origin,
                &bytes[..len],
                &mut world.memory,
                &mut world.mail,
            );
        }
    }
    let stats = world.stats();
    assert!(stats.is_balanced());
    assert_eq!(
        (stats.sequences.reporters, stats.sequences.accepted),
        (65_536, 131_072)
    );
    assert_eq!(
        (world.dropped(Reason::Gap), world.controls().len()),
        (65_536, 65_536)
    );
    // The table is full for another one, until others expire.
    let another = Base {
        reporter: u32::MAX,
        ..essential(1)
    };
    world.send(another, put(&KEY));
    assert_eq!(world.dropped(Reason::ReportersFull), 1);
    for _ in 0..600 {
        world.pass(20 * MS);
    }
    world.send(another, put(&KEY));
    assert!(world.stats().sequences.reporters < 65_536 && world.dropped(Reason::ReportersFull) == 1);
}

#[test]
fn an_id_belongs_to_the_address_that_uses_it() {
    let mut world = World::new();
    numbered(&mut world, 1);
    // A forger would advance the sequence, and so block the reporter.
    for _ in 0..10 {
        world.send_from(sender(66), essential(9_000), put(&KEY));
        world.now += MS;
    }
    numbered(&mut world, 2);
    assert_eq!(
        (world.done(), world.dropped(Reason::Forged), world.controls()),
        (2, 10, vec![])
    );
    // After a silence the ID is free: the reporter has another address now.
    world.now += 10_000 * MS;
    world.send_from(sender(2), essential(500), put(&KEY));
    numbered(&mut world, 3);
    assert_eq!((world.done(), world.dropped(Reason::Forged)), (3, 11));
}

#[test]
fn a_configured_reporter_id_is_never_given_to_another_address() {
    let known = vec![PinnedReporter {
        reporter: 7,
        address: sender(1).ip(),
    }];
    let mut world = World::of(Config {
        known,
        bind: false,
        ..config(stores())
    });
    world.now += 100_000 * MS;
    world.send_from(sender(2), essential(1), put(&KEY));
    numbered(&mut world, 5);
    assert_eq!((world.done(), world.dropped(Reason::Forged)), (1, 1));
    // Other IDs may come from any address.
    for host in 1..4 {
        world.send_from(
            sender(host),
            Base {
                reporter: 8,
                ..essential(host.into())
            },
            put(&KEY),
        );
    }
    assert_eq!(world.done(), 4);
}

#[test]
fn an_address_with_many_ids_is_limited_to_its_share() {
    let mut world = World::of(Config {
        reporters: 1_000,
        owned: 100,
        ..config(stores())
    });
    for reporter in 0..5_000 {
        world.send_from(
            sender(66),
            Base {
                reporter: 1_000_000 + reporter,
                ..essential(1)
            },
            put(&KEY),
        );
    }
    assert_eq!(world.stats().sequences.reporters, 100);
    for host in 0..50 {
        world.send_from(
            sender(host),
            Base {
                reporter: host.into(),
                ..essential(1)
            },
            put(&KEY),
        );
    }
    assert_eq!((world.done(), world.dropped(Reason::ReportersFull)), (150, 4_900));
}

#[test]
fn a_storm_of_numbers_costs_no_more_than_a_nack_a_millisecond() {
    let mut world = World::new();
    world.memory.is_logging = false;
    let mut random = Random(5);
    numbered(&mut world, 0);
    for _ in 0..100_000 {
        numbered(&mut world, random.next() as u16);
        world.now += US;
    }
    // 100 ms: at most one NACK in each, and one for each number accepted, after which another gap begins. At most one in 21
    // milliseconds gives up a gap.
    let (nacks, accepted) = (world.controls().len() as u64, world.stats().sequences.accepted);
    assert!(
        nacks >= 12 && nacks <= 100 + accepted && accepted < 40,
        "{nacks} {accepted}"
    );
}

#[test]
fn an_essential_report_that_cannot_be_done_does_not_stop_those_behind_it() {
    let mut world = World::new();
    numbered(&mut world, 1);
    world.send(
        essential(2),
        Operation::KeyWrite {
            copies: 1,
            store: 9,
            key: &KEY,
            data: &[1],
        },
    );
    assert_eq!(world.controls(), nack(Cause::Unknown, 2, 2));
    world.now += MS;
    world.send(essential(3), append(77, &[0; 4]));
    assert_eq!(world.controls(), nack(Cause::Unknown, 3, 3));
    world.now += MS;
    world.send(
        essential(4),
        Operation::KeyWrite {
            copies: 1,
            store: 1,
            key: &KEY,
            data: &[1; 21],
        },
    );
    assert_eq!(world.controls(), nack(Cause::Malformed, 4, 4));
    world.now += MS;
    // A report that is malformed after its base header.
    world.send_bytes(sender(1), 0, &[0x11, 0x50, 0, 5, 0, 0, 0, 7, 0, 0, 0]);
    assert_eq!(world.controls(), nack(Cause::Malformed, 5, 5));
    world.now += MS;
    // No NACK for a report that was not essential, or whose ID belongs to another sender.
    world.send_bytes(sender(1), 0, &[0x11, 0x10, 0, 6, 0, 0, 0, 7, 0, 0, 0]);
    world.send_bytes(sender(2), 0, &[0x11, 0x50, 0, 6, 0, 0, 0, 7, 0, 0, 0]);
    numbered(&mut world, 6);
    assert_eq!((world.done(), world.controls()), (2, vec![]));
    let stats = world.stats();
    assert_eq!(
        (stats.sequences.accepted, stats.controls.nacks),
        (6, [0, 2, 2, 0])
    );
}

#[test]
fn refused_essential_reports_are_nacked_at_most_once_a_millisecond() {
    let mut world = World::new();
    for sequence in 0..1_000 {
        world.send(essential(sequence), append(77, &[0; 4]));
        world.now += 10 * US;
    }
    assert_eq!(world.controls().len(), 10);
}

#[test]
fn one_of_sixty_four_is_acknowledged_when_asked() {
    let mut world = World::of(Config {
        acks: true,
        ..config(stores())
    });
    (0..130).for_each(|sequence| numbered(&mut world, sequence));
    let acks: Vec<Body> = world.controls().into_iter().map(|(_, body)| body).collect();
    assert_eq!(acks, [Body::Ack { last: 63 }, Body::Ack { last: 127 }]);
}

#[test]
fn a_reporter_that_restarts_is_accepted_again() {
    let mut world = World::new();
    (30_000..30_010).for_each(|sequence| numbered(&mut world, sequence));
    (0..20).for_each(|sequence| numbered(&mut world, sequence));
    let stats = world.stats();
    assert_eq!(
        (
            stats.sequences.restarts,
            world.dropped(Reason::Duplicate),
            world.done()
        ),
        (1, 7, 10)
    );
    // A NACK requests the reports that were mistaken for duplicates; the reporter still has them.
    assert_eq!(world.controls(), nack(Cause::Gap, 0xffff, 7));
    (0..20).for_each(|sequence| numbered(&mut world, sequence));
    assert_eq!((world.stats().sequences.lost, world.done()), (0, 30));
    // Near the last sequence number only a timeout detects the loss.
    world.now += 10_000 * MS;
    (0..20).for_each(|sequence| numbered(&mut world, sequence));
    assert_eq!((world.stats().sequences.restarts, world.done()), (2, 50));
}

#[test]
fn a_report_that_cannot_be_read_moves_nothing_but_its_own_number() {
    let mut world = World::new();
    numbered(&mut world, 1);
    // Ahead and malformed: no NACK, and the gap's NACKs are not used up.
    for _ in 0..100 {
        world.send_bytes(sender(1), 0, &[0x11, 0x50, 0, 5, 0, 0, 0, 7, 0, 0, 0]);
        world.now += 20 * MS;
    }
    assert_eq!((world.controls(), world.stats().sequences.lost), (vec![], 0));
    numbered(&mut world, 5);
    assert_eq!(world.controls(), nack(Cause::Gap, 1, 5));
}

/// A reporter of 5.8: buffers the last 256 reports, and goes back on a NACK.
#[test]
fn all_arrive_over_a_network_that_loses_and_repeats() {
    let mut world = World::new();
    world.memory.is_logging = false;
    let mut random = Random(11);
    let (mut next, mut highest) = (0u32, 0u32);
    let total = 20_000u32;
    // Numbers wrap with 70,000 reports; each is counted in the key's counter.
    while next < total || world.stats().sequences.accepted < u64::from(total) {
        // After the last report, the last ones are sent again from time to time: no later report would reveal a gap.
        if next == total {
            next = total.saturating_sub(200);
        }
        let base = essential((next + 60_000) as u16);
        let copies = match random.below(20) {
            0 => 0,
            1 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            world.send(
                base,
                Operation::KeyIncrement {
                    copies: 1,
                    store: 1,
                    delta: 1,
                    key: &KEY,
                },
            );
        }
        next += 1;
        highest = highest.max(next);
        // Slow enough that the ring still has the reports that a second NACK requests.
        world.now += 50 * US;
        assert!(world.now < 100_000 * MS, "{:?}", world.stats().sequences);
        for (_, body) in world.controls() {
            let Body::Nack { last, .. } = body else {
                panic!("{body:?}")
            };
            // A NACK may be lost too.
            if random.below(50) > 0 {
                let back = (next + 60_000 - 1).wrapping_sub(u32::from(last)) as u16;
                next -= u32::from(back).min(256);
            }
        }
    }
    let at = wire::dta::hash::hashes(&KEY).slots[0] as usize % 65536 * 8;
    let counter = u64::from_le_bytes(world.memory.body(2)[at..at + 8].try_into().expect("8 bytes"));
    let stats = world.stats().sequences;
    assert_eq!(
        (counter + stats.lost, stats.accepted),
        (u64::from(total), u64::from(total))
    );
    assert_eq!(stats.lost, 0);
}
