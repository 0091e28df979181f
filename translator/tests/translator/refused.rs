//! A refused report changes nothing: later reports have the same effect as at a translator that never received it.

use std::collections::HashMap;

use rdma::transport::Credit;
use translator::{Config, Reason};
use wire::dta::{Base, MergeOp, Operation, Priority, Report};

use crate::hostile;
use crate::model::{MS, Random, World, config, plain, sender, stores};

fn bytes_of(base: Base, operation: Operation<'_>) -> Vec<u8> {
    let report = Report { base, operation };
    let mut bytes = vec![0; report.len()];
    report.emit(&mut bytes).expect("a good report");
    bytes
}

fn columns(reporter: u32, epoch: u16, first_column: u32, columns: u8, priority: Priority) -> Vec<u8> {
    let counters = (reporter + 1).to_be_bytes().repeat(4 * usize::from(columns));
    let operation = Operation::SketchMerge {
        sketch: 4,
        epoch,
        first_column,
        depth: 4,
        width: 4,
        op: MergeOp::Sum,
        columns,
        counters: &counters,
    };
    bytes_of(
        Base {
            reporter,
            priority,
            ..plain()
        },
        operation,
    )
}

/// Reports of all primitives, about half of them refused.
struct Reports {
    random: Random,
    /// The next column, by reporter and epoch.
    due: HashMap<(u32, u16), u32>,
    newest: u16,
}

/// A report, its sender, and its columns.
struct Sent {
    host: u8,
    bytes: Vec<u8>,
    columns: Option<(u32, u16, u32)>,
}

impl Reports {
    fn next(&mut self) -> Sent {
        let random = &mut self.random;
        if random.below(2) == 0 {
            let mut bytes = Vec::new();
            hostile::report(random, &mut bytes);
            // Other tests check sequences.
            bytes[1] &= 0xbf;
            return Sent {
                host: 1,
                bytes,
                columns: None,
            };
        }
        if random.below(60) == 0 {
            self.newest = self.newest.wrapping_add(1 + random.below(2) as u16);
        }
        let (reporter, back) = (random.below(4) as u32, random.below(8));
        let epoch = match back {
            0 => self.newest.wrapping_add(random.next() as u16),
            1 => self.newest.wrapping_add(1),
            2 => self.newest.wrapping_sub(1),
            _ => self.newest,
        };
        let due = self.due.get(&(reporter, epoch)).copied().unwrap_or(0);
        let first = if random.below(3) == 0 {
            random.below(11) as u32
        } else {
            due
        };
        let count = 1 + random.below(3) as u8;
        let priority = [Priority::Low, Priority::Medium, Priority::High][random.below(3) as usize];
        let host = if random.below(5) == 0 { 9 } else { reporter as u8 };
        let bytes = columns(reporter, epoch, first, count, priority);
        Sent {
            host,
            bytes,
            columns: Some((reporter, epoch, first + u32::from(count))),
        }
    }
}

fn executed(world: &World) -> u64 {
    world.done() + world.stats().reports.diverted
}

#[test]
fn a_refused_report_does_not_affect_later_ones() {
    for seed in 0..8 {
        let settings = || Config {
            postcards: 4,
            ..config(stores())
        };
        let (mut world, mut twin) = (World::of(settings()), World::of(settings()));
        let mut reports = Reports {
            random: Random(seed),
            due: HashMap::new(),
            newest: 100,
        };
        let (mut refused, mut opened) = ([0; Reason::COUNT], 0);
        for step in 0..20_000u32 {
            let sent = reports.next();
            let (before, dropped) = (executed(&world), world.stats().reports.dropped);
            world.send_bytes(sender(sent.host), 0, &sent.bytes);
            if executed(&world) > before {
                twin.send_bytes(sender(sent.host), 0, &sent.bytes);
                assert_eq!(executed(&twin), executed(&world), "step {step} of seed {seed}");
                if let Some((reporter, epoch, next)) = sent.columns {
                    reports.due.insert((reporter, epoch), next);
                    opened += 1;
                }
            } else {
                let now = world.stats().reports.dropped;
                refused
                    .iter_mut()
                    .zip(now)
                    .zip(dropped)
                    .for_each(|((sum, now), was)| *sum += now - was);
            }
            assert_eq!(
                world.memory.done(),
                twin.memory.done(),
                "step {step} of seed {seed}"
            );
            let time = [0, 0, 1_000, 2 * MS][reports.random.below(4) as usize];
            let room = match reports.random.below(40) {
                0 => Some(Credit::NONE),
                1..8 => Some(Credit::UNLIMITED),
                _ => None,
            };
            for world in [&mut world, &mut twin] {
                world.memory.room[0] = room.unwrap_or(world.memory.room[0]);
                world.pass(time);
            }
            assert_eq!(
                world.memory.done(),
                twin.memory.done(),
                "step {step} of seed {seed}"
            );
        }
        assert!(world.memory.regions == twin.memory.regions);
        let hit = |reason: Reason| refused[reason as usize] > 0;
        let reasons = [
            Reason::UnknownStore,
            Reason::UnknownList,
            Reason::WrongEntry,
            Reason::WrongHop,
            Reason::TooMuchData,
            Reason::ColumnGap,
            Reason::DuplicateColumn,
            Reason::EpochOver,
            Reason::EpochAhead,
            Reason::OneReporterTooMany,
            Reason::Forged,
            Reason::CongestedLow,
        ];
        for reason in reasons {
            assert!(hit(reason), "{} never happened", reason.name());
        }
        assert!(opened > 1_000, "{opened}");
    }
}

#[test]
fn a_wrong_first_column_opens_no_epoch() {
    let mut world = World::new();
    let send = |world: &mut World, reporter, epoch, first| {
        let bytes = columns(reporter, epoch, first, 1, Priority::Medium);
        world.send_bytes(sender(reporter as u8), 0, &bytes);
    };
    send(&mut world, 1, 10, 0);
    // Forged epochs, each of which would end those before it.
    for epoch in [12, 18, 26] {
        send(&mut world, 3, epoch, 5);
    }
    assert_eq!(
        (
            world.dropped(Reason::ColumnGap),
            world.dropped(Reason::EpochAhead)
        ),
        (2, 1)
    );
    for first in 0..10 {
        for reporter in [1, 2] {
            send(&mut world, reporter, 10, first);
        }
    }
    assert_eq!(
        (world.dropped(Reason::EpochOver), world.stats().sketches.complete),
        (0, 1)
    );
}

#[test]
fn refused_columns_claim_no_reporter_id() {
    let mut world = World::new();
    let wrong = columns(1, 0, 4, 1, Priority::Medium);
    world.send_bytes(sender(9), 0, &wrong);
    let sound = columns(1, 0, 0, 10, Priority::Medium);
    world.send_bytes(sender(1), 0, &sound);
    assert_eq!((world.dropped(Reason::Forged), world.done()), (0, 1));
    world.send_bytes(sender(9), 0, &columns(1, 1, 0, 1, Priority::Medium));
    assert_eq!(world.dropped(Reason::Forged), 1);
}

#[test]
fn the_id_of_a_reporter_that_sends_columns_stays_its_own() {
    let mut world = World::new();
    for epoch in 0..30 {
        world.send_bytes(sender(1), 0, &columns(1, epoch, 0, 10, Priority::Medium));
        world.pass(1_000 * MS);
    }
    world.send_bytes(sender(9), 0, &columns(1, 30, 0, 10, Priority::Medium));
    assert_eq!((world.dropped(Reason::Forged), world.done()), (1, 30));
}
