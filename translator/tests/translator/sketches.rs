//! Sketch-Merge: 5.4, 5.5 and 5.9.

use rdma::transport::{Blocked, Credit, RemoteAddr};
use translator::{Config, Reason, StoreEntry};
use wire::dta::control::Body;
use wire::dta::layout::{Columns, Geometry, SketchKind, SketchTrailer};
use wire::dta::{Base, MergeOp, Operation, Priority};

use crate::model::{KEY, MS, World, config, immediate, plain, put, sender, stores, with};

/// The tests' sketch: 10 columns of 4 counters of 4 bytes.
const BUFFER: usize = 10 * 16 + 16;

fn base(reporter: u32) -> Base {
    Base { reporter, ..plain() }
}

/// Columns whose counters are `value`.
fn deliver(world: &mut World, reporter: u32, epoch: u16, first: u32, columns: u8, value: u32) {
    let counters = value.to_be_bytes().repeat(usize::from(columns) * 4);
    send(world, base(reporter), (epoch, first, columns), &counters);
}

fn send(world: &mut World, base: Base, (epoch, first_column, columns): (u16, u32, u8), counters: &[u8]) {
    let width = (counters.len() / usize::from(columns) / 4) as u8;
    let op = MergeOp::Sum;
    let operation = Operation::SketchMerge {
        sketch: 4,
        epoch,
        first_column,
        depth: 4,
        width,
        op,
        columns,
        counters,
    };
    world.send(base, operation);
}

fn trailer(world: &World, epoch: u16) -> SketchTrailer {
    let at = usize::from(epoch & 1) * BUFFER + 160;
    SketchTrailer::parse(world.memory.body(4)[at..at + 16].try_into().expect("16 bytes"))
}

/// The first counter of each column in memory.
fn columns(world: &World, epoch: u16) -> Vec<u32> {
    let body = &world.memory.body(4)[usize::from(epoch & 1) * BUFFER..][..160];
    body.chunks_exact(16)
        .map(|column| u32::from_le_bytes(column[..4].try_into().expect("4 bytes")))
        .collect()
}

#[test]
fn columns_are_written_when_all_reporters_delivered_them() {
    let mut world = World::new();
    deliver(&mut world, 1, 17, 0, 10, 1);
    assert_eq!(world.memory.done(), []);
    // Batches of four complete columns; before the first write the old trailer is invalidated.
    deliver(&mut world, 2, 17, 0, 3, 10);
    assert_eq!(world.memory.done(), []);
    deliver(&mut world, 2, 17, 3, 2, 10);
    let done = world.memory.done();
    let seen: Vec<(u64, usize, bool)> = done
        .iter()
        .map(|done| (done.offset, done.data.len(), done.reliable))
        .collect();
    assert_eq!(seen, [(176 + 160, 16, true), (176, 64, true)]);
    assert_eq!(
        trailer(&world, 17),
        SketchTrailer {
            epoch: 17,
            sketch: 4,
            columns: 0,
            reporters: 0
        }
    );
    send(
        &mut world,
        Base {
            reporter: 2,
            ..immediate()
        },
        (17, 5, 5),
        &10u32.to_be_bytes().repeat(20),
    );
    let done = world.memory.done();
    let seen: Vec<(u64, usize, Option<u32>)> = done
        .iter()
        .map(|done| (done.offset, done.data.len(), done.immediate))
        .collect();
    // The rest, and finally the trailer, which signals that a notification was requested.
    assert_eq!(
        seen,
        [
            (176 + 64, 64, None),
            (176 + 128, 32, None),
            (176 + 160, 16, Some(0x5000_0004))
        ]
    );
    assert_eq!(columns(&world, 17), [11; 10]);
    assert_eq!(
        trailer(&world, 17),
        SketchTrailer {
            epoch: 17,
            sketch: 4,
            columns: 10,
            reporters: 2
        }
    );
    let stats = world.stats().sketches;
    assert_eq!(
        (stats.merged, stats.written, stats.complete, stats.partial),
        (20, 10, 1, 0)
    );
}

#[test]
fn the_columns_of_section_5_7() {
    let mut world = World::new();
    let example = crate::primitives::hex(
        "15500009 00000007 00040011 00000000 04040002 00000001 00000002 00000003 00000004 00000005 00000006 00000007 \
         00000008",
    );
    world.send_bytes(sender(1), 0, &example);
    assert_eq!(
        (world.stats().sketches.merged, world.stats().sequences.accepted),
        (2, 1)
    );
    // The columns of other reporters are added, counter by counter; memory is little-endian.
    let counters: Vec<u8> = (0..40u32).flat_map(|n| (n * 0x0100_0000).to_be_bytes()).collect();
    send(&mut world, base(1), (17, 0, 10), &counters);
    let rest: Vec<u8> = 1u32.to_be_bytes().repeat(32);
    send(&mut world, base(7), (17, 2, 8), &rest);
    let expected = crate::primitives::hex("01000000 02000001 03000002 04000003 05000004 06000005");
    assert_eq!(world.memory.body(4)[176..][..24], expected);
}

#[test]
fn a_column_out_of_order_is_dropped_and_nacked() {
    let mut world = World::new();
    deliver(&mut world, 1, 0, 0, 6, 1);
    deliver(&mut world, 1, 0, 8, 2, 1);
    assert_eq!(
        world.controls(),
        [(
            sender(1),
            Body::SketchNack {
                sketch: 4,
                epoch: 0,
                column: 6
            }
        )]
    );
    // The NACK is repeated after a millisecond, not before.
    world.now += MS - 1;
    deliver(&mut world, 1, 0, 9, 1, 1);
    assert_eq!(world.controls(), []);
    world.now += 1;
    deliver(&mut world, 1, 0, 9, 1, 1);
    assert_eq!(world.controls().len(), 1);
    // Merged columns are not merged again, not even in part.
    deliver(&mut world, 1, 0, 0, 6, 1);
    deliver(&mut world, 1, 0, 5, 2, 1);
    assert_eq!(
        (
            world.controls().len(),
            world.dropped(Reason::DuplicateColumn),
            world.dropped(Reason::ColumnGap)
        ),
        (0, 2, 3)
    );
    deliver(&mut world, 1, 0, 6, 4, 1);
    deliver(&mut world, 2, 0, 0, 10, 5);
    assert_eq!(columns(&world, 0), [6; 10]);
    // A reporter first seen in mid-epoch is nacked with column 0.
    deliver(&mut world, 1, 1, 3, 1, 1);
    assert_eq!(
        world.controls(),
        [(
            sender(1),
            Body::SketchNack {
                sketch: 4,
                epoch: 1,
                column: 0
            }
        )]
    );
}

#[test]
fn a_reporter_starting_in_mid_epoch_takes_no_members_slot() {
    let mut world = World::new();
    let begin = Body::SketchNack {
        sketch: 4,
        epoch: 0,
        column: 0,
    };
    // Two are nacked with column 0, once each in a millisecond, however their columns interleave.
    for _ in 0..3 {
        deliver(&mut world, 8, 0, 3, 1, 1);
        deliver(&mut world, 9, 0, 3, 1, 1);
    }
    assert_eq!(world.controls(), [(sender(1), begin), (sender(1), begin)]);
    world.now += MS;
    deliver(&mut world, 9, 0, 3, 1, 1);
    assert_eq!(world.controls(), [(sender(1), begin)]);
    for reporter in [1, 2] {
        deliver(&mut world, reporter, 0, 0, 10, 1);
    }
    assert_eq!(
        (columns(&world, 0), world.stats().sketches.complete),
        (vec![2; 10], 1)
    );
    // When all members are known, a new reporter cannot join.
    for reporter in [1, 2] {
        deliver(&mut world, reporter, 1, 0, 1, 1);
    }
    deliver(&mut world, 9, 1, 3, 1, 1);
    assert_eq!(
        (world.controls(), world.dropped(Reason::OneReporterTooMany)),
        (vec![], 1)
    );
}

#[test]
fn a_gap_among_columns_from_local_memory_is_nacked_with_the_next_ones() {
    for (due, reporter) in [(2, 1), (0, 2)] {
        let mut world = World::new();
        let high = Base {
            priority: Priority::High,
            ..base(reporter)
        };
        let counters = 1u32.to_be_bytes().repeat(4);
        deliver(&mut world, 1, 0, 0, 2, 1);
        world.memory.room[0] = Credit::NONE;
        // A report that waits for credit blocks the later ones, the first of which is lost.
        world.send(with(Priority::High), put(&KEY));
        send(&mut world, high, (0, due + 1, 1), &counters);
        assert_eq!(world.stats().reports.queued, 2);
        world.memory.room[0] = Credit::UNLIMITED;
        world.pass(1);
        assert_eq!(
            (world.stats().reports.queued, world.dropped(Reason::ColumnGap)),
            (0, 1)
        );
        world.controls();
        send(&mut world, high, (0, due + 2, 1), &counters);
        let column = due;
        assert_eq!(
            world.controls()[..1],
            [(
                sender(1),
                Body::SketchNack {
                    sketch: 4,
                    epoch: 0,
                    column
                }
            )]
        );
    }
}

#[test]
fn sketch_reports_that_do_not_fit_the_store_are_refused() {
    let mut world = World::new();
    let counters = [0; 64];
    let operation = |sketch, first_column, depth, width, op| Operation::SketchMerge {
        sketch,
        epoch: 0,
        first_column,
        depth,
        width,
        op,
        columns: 1,
        counters: &counters[..usize::from(depth) * usize::from(width)],
    };
    let cases = [
        (operation(5, 0, 4, 4, MergeOp::Sum), Reason::UnknownSketch),
        (operation(4, 0, 3, 4, MergeOp::Sum), Reason::WrongShape),
        (operation(4, 0, 4, 8, MergeOp::Sum), Reason::WrongShape),
        (operation(4, 0, 4, 4, MergeOp::Max), Reason::WrongShape),
        (operation(4, 10, 4, 4, MergeOp::Sum), Reason::WrongShape),
        (operation(4, u32::MAX, 4, 4, MergeOp::Sum), Reason::WrongShape),
    ];
    for (operation, reason) in cases {
        let before = world.dropped(reason);
        world.send(plain(), operation);
        assert_eq!(world.dropped(reason), before + 1, "{operation:?}");
    }
    for reporter in 1..4 {
        deliver(&mut world, reporter, 0, 0, 1, 1);
    }
    assert_eq!((world.dropped(Reason::OneReporterTooMany), world.done()), (1, 2));
}

#[test]
fn two_epochs_are_open_and_older_ones_are_over() {
    let mut world = World::new();
    deliver(&mut world, 1, 5, 0, 10, 1);
    deliver(&mut world, 1, 6, 0, 10, 2);
    // The second reporter lags behind.
    deliver(&mut world, 2, 5, 0, 10, 1);
    deliver(&mut world, 2, 6, 0, 10, 2);
    assert_eq!((columns(&world, 5)[0], columns(&world, 6)[0]), (2, 4));
    deliver(&mut world, 2, 5, 0, 1, 1);
    deliver(&mut world, 2, 4, 0, 1, 1);
    assert_eq!(world.dropped(Reason::EpochOver), 2);
    // Too far ahead while the newest epoch is recent: a forged epoch would end all others.
    deliver(&mut world, 2, 6 + 9, 0, 1, 1);
    deliver(&mut world, 2, 6 + 30_000, 0, 1, 1);
    assert_eq!(world.dropped(Reason::EpochAhead), 2);
    // After a silence any epoch is accepted.
    world.now += 1_000 * MS;
    deliver(&mut world, 2, 3, 0, 10, 7);
    deliver(&mut world, 1, 3, 0, 10, 7);
    assert_eq!((trailer(&world, 3).epoch, columns(&world, 3)[9]), (3, 14));
    // Epochs wrap.
    world.now += 1_000 * MS;
    deliver(&mut world, 1, 0xffff, 0, 10, 7);
    deliver(&mut world, 1, 0, 0, 10, 7);
    deliver(&mut world, 2, 0xffff, 0, 10, 7);
    assert_eq!(
        (trailer(&world, 0xffff).columns, world.dropped(Reason::EpochOver)),
        (10, 2)
    );
}

#[test]
fn an_epoch_that_stays_incomplete_is_written_with_what_there_is() {
    let mut world = World::new();
    deliver(&mut world, 1, 8, 0, 10, 3);
    deliver(&mut world, 2, 8, 0, 4, 3);
    assert_eq!(world.translator.deadline(), Some(world.now + 1_000 * MS));
    world.pass(1_000 * MS);
    assert_eq!(columns(&world, 8), [6, 6, 6, 6, 3, 3, 3, 3, 3, 3]);
    // One reporter delivered all.
    assert_eq!(
        trailer(&world, 8),
        SketchTrailer {
            epoch: 8,
            sketch: 4,
            columns: 10,
            reporters: 1
        }
    );
    deliver(&mut world, 2, 8, 4, 4, 3);
    assert_eq!(
        (world.dropped(Reason::EpochOver), world.stats().sketches.partial),
        (1, 1)
    );
    assert_eq!(world.translator.deadline(), None);
    // Columns that were not delivered are zero, not those of the epoch before.
    deliver(&mut world, 1, 10, 0, 2, 1);
    world.pass(1_000 * MS);
    assert_eq!(columns(&world, 10), [1, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn an_epoch_whose_buffer_is_needed_is_written_first() {
    let mut world = World::new();
    deliver(&mut world, 1, 1, 0, 10, 3);
    deliver(&mut world, 1, 2, 0, 10, 3);
    deliver(&mut world, 1, 3, 0, 10, 4);
    assert_eq!(columns(&world, 1), [3; 10]);
    assert_eq!((trailer(&world, 1).epoch, trailer(&world, 1).reporters), (1, 1));
    // Where it cannot be written, the new one waits: nothing is overwritten.
    world.memory.room[0] = Credit::NONE;
    deliver(&mut world, 1, 4, 0, 10, 5);
    assert_eq!(world.dropped(Reason::CongestedMedium), 1);
    world.memory.room[0] = Credit::UNLIMITED;
    deliver(&mut world, 1, 4, 0, 10, 5);
    assert_eq!(
        (columns(&world, 2), world.stats().sketches.partial),
        (vec![3; 10], 2)
    );
}

#[test]
fn a_closed_transport_delays_columns_and_loses_none() {
    let mut world = World::new();
    deliver(&mut world, 1, 0, 0, 10, 1);
    for fuse in 0..6 {
        world.memory.fuse = Some(fuse.min(1));
        if fuse == 0 {
            deliver(&mut world, 2, 0, 0, 10, 1);
        }
        assert_eq!(world.stats().sketches.complete, 0, "{fuse}");
        world.pass(1);
    }
    // Invalidating the trailer, three batches, the trailer: one write each time.
    assert_eq!(
        (columns(&world, 0), world.stats().sketches.complete),
        (vec![2; 10], 1)
    );
    assert_eq!(world.memory.done().len(), 5);
}

#[test]
fn a_collector_with_new_memory_gets_both_epochs_whole() {
    use translator::CollectorConfig;
    let mut world = World::new();
    for reporter in [1, 2] {
        deliver(&mut world, reporter, 6, 0, 10, 3);
    }
    deliver(&mut world, 1, 7, 0, 10, 3);
    // Of this one four columns are written.
    deliver(&mut world, 2, 7, 0, 5, 3);
    for region in world.memory.regions.values_mut() {
        region.fill(0);
    }
    world.memory.done();
    let memory = CollectorConfig {
        stores: stores(),
        ..CollectorConfig::default()
    };
    world.translator.attach(0, memory).expect("good stores");
    world.translator.rewrite_sketches(0, &mut world.memory);
    assert_eq!(
        world.memory.given_up,
        [RemoteAddr {
            collector: 0,
            region: 4
        }]
    );
    world.pass(MS);
    let whole = |epoch| SketchTrailer {
        epoch,
        sketch: 4,
        columns: 10,
        reporters: 2,
    };
    let expected = (
        whole(6),
        vec![6; 10],
        SketchTrailer {
            columns: 0,
            reporters: 0,
            ..whole(7)
        },
    );
    assert_eq!(
        (trailer(&world, 6), columns(&world, 6), trailer(&world, 7)),
        expected
    );
    deliver(&mut world, 2, 7, 5, 5, 3);
    assert_eq!((trailer(&world, 7), columns(&world, 7)), (whole(7), vec![6; 10]));
    let stats = world.stats().sketches;
    assert_eq!(
        (
            stats.complete,
            stats.partial,
            stats.dropped,
            world.translator.deadline()
        ),
        (2, 0, 0, None)
    );
}

#[test]
fn every_operation_and_width_against_a_model() {
    let mut random = crate::model::Random(17);
    let kinds = [
        (SketchKind::CountMin, MergeOp::Sum),
        (SketchKind::Count, MergeOp::Sum),
        (SketchKind::HyperLogLog, MergeOp::Max),
        (SketchKind::CountMin, MergeOp::Min),
        (SketchKind::Aroma, MergeOp::Sample),
    ];
    for ((kind, op), width) in kinds.into_iter().flat_map(|kind| [(kind, 4u8), (kind, 8)]) {
        if op == MergeOp::Sample && width == 4 {
            continue;
        }
        let shape = Columns {
            depth: 3,
            columns: 50,
            width,
        };
        let store = StoreEntry {
            reporters: 3,
            ..StoreEntry::new(4, 4, Geometry::Sketch { kind, op, shape })
        };
        let mut world = World::of(Config {
            sketch_columns: 7,
            ..config(vec![store])
        });
        let largest = if width == 4 { u64::from(u32::MAX) } else { u64::MAX };
        let mut model: Option<Vec<u64>> = None;
        for reporter in 0..3 {
            let cells: Vec<u64> = (0..150)
                .map(|_| random.next() & largest >> random.below(3))
                .collect();
            let bytes: Vec<u8> = cells
                .iter()
                .flat_map(|cell| cell.to_be_bytes()[8 - usize::from(width)..].to_vec())
                .collect();
            let merge = |a: u64, b: u64| match (op, kind) {
                (MergeOp::Sum, SketchKind::CountMin) => a.saturating_add(b).min(largest),
                (MergeOp::Sum, _) => a.wrapping_add(b) & largest,
                (MergeOp::Min, _) => a.min(b),
                _ => a.max(b),
            };
            model = Some(match model {
                None => cells.clone(),
                Some(model) => model.iter().zip(&cells).map(|(a, b)| merge(*a, *b)).collect(),
            });
            let (mut first, column) = (0u32, 3 * usize::from(width));
            while first < 50 {
                let columns = (1 + random.below(9) as u32).min(50 - first) as u8;
                let counters = &bytes[first as usize * column..][..usize::from(columns) * column];
                let operation = Operation::SketchMerge {
                    sketch: 4,
                    epoch: 6,
                    first_column: first,
                    depth: 3,
                    width,
                    op,
                    columns,
                    counters,
                };
                world.send(base(reporter), operation);
                first += u32::from(columns);
            }
        }
        let expected: Vec<u8> = model
            .expect("three reporters")
            .iter()
            .flat_map(|cell| cell.to_le_bytes()[..usize::from(width)].to_vec())
            .collect();
        assert_eq!(
            world.memory.body(4)[..expected.len()],
            expected,
            "{kind:?} {op:?} {width}"
        );
        assert_eq!(world.stats().sketches.complete, 1);
    }
}

#[test]
fn a_sketch_of_which_a_part_is_essential_keeps_both_orders() {
    let mut world = World::of(config(stores()));
    let essential = |sequence, reporter| Base {
        essential: true,
        sequence,
        ..base(reporter)
    };
    let counters = 1u32.to_be_bytes().repeat(4);
    send(&mut world, essential(1, 1), (0, 0, 1), &counters);
    // Report 2 with column 1 is lost: neither the sequence nor the sketch advances.
    send(&mut world, essential(3, 1), (0, 2, 1), &counters);
    assert_eq!((world.dropped(Reason::Gap), world.controls().len()), (1, 1));
    send(&mut world, essential(2, 1), (0, 1, 1), &counters);
    send(&mut world, essential(3, 1), (0, 2, 1), &counters);
    assert_eq!(world.stats().sketches.merged, 3);
    // Columns under another's ID are not merged, essential or not.
    world.send_from(
        sender(9),
        base(1),
        Operation::SketchMerge {
            sketch: 4,
            epoch: 0,
            first_column: 3,
            depth: 4,
            width: 4,
            op: MergeOp::Sum,
            columns: 1,
            counters: &counters,
        },
    );
    assert_eq!(
        (world.dropped(Reason::Forged), world.stats().sketches.merged),
        (1, 3)
    );
}

#[test]
fn a_batch_of_columns_is_never_longer_than_a_write_may_be() {
    let shape = Columns {
        depth: 16,
        columns: 2_000,
        width: 8,
    };
    let sketch = Geometry::Sketch {
        kind: SketchKind::CountMin,
        op: MergeOp::Sum,
        shape,
    };
    for refused in [false, true] {
        let settings = config(vec![StoreEntry::new(4, 4, sketch)]);
        let mut world = World::of(Config {
            sketch_columns: 1_000,
            ..settings
        });
        world.memory.says = Blocked::OutOfRegion;
        world.memory.fuse = refused.then_some(1);
        for first_column in (0..2_000).step_by(8) {
            let counters = [1; 8 * 128];
            let (depth, width, columns, op) = (16, 8, 8, MergeOp::Sum);
            let (sketch, epoch, counters) = (4, 1, &counters[..]);
            world.send(
                plain(),
                Operation::SketchMerge {
                    sketch,
                    epoch,
                    first_column,
                    depth,
                    width,
                    op,
                    columns,
                    counters,
                },
            );
        }
        let (done, sketches) = (world.memory.done(), world.stats().sketches);
        assert!(
            done.iter()
                .all(|done| done.data.len() <= rdma::transport::MAX_WRITE)
        );
        assert_eq!(
            (sketches.complete, sketches.dropped),
            (u64::from(!refused), u64::from(refused))
        );
        // A report that can never be executed does not block later ones.
        world.pass(10_000 * MS);
        assert_eq!(
            (world.stats().sketches.partial, world.translator.deadline()),
            (0, None)
        );
    }
}

#[test]
fn many_reporters_starting_in_mid_epoch_are_nacked_once_each() {
    let mut all = stores();
    let sketches = all
        .iter_mut()
        .filter(|store| matches!(store.geometry, Geometry::Sketch { .. }));
    sketches.for_each(|store| store.reporters = 16);
    let mut world = World::of(config(all));
    for column in 1..10 {
        for reporter in 1..=9 {
            deliver(&mut world, reporter, 0, column, 1, 1);
        }
    }
    assert_eq!(world.controls().len(), 9);
    // When just-nacked reporters occupy all slots, no other is nacked; later others are again.
    (100..200).for_each(|reporter| deliver(&mut world, reporter, 0, 1, 1, 1));
    assert_eq!(world.controls().len(), 7);
    world.now += 1_000 * MS;
    (200..300).for_each(|reporter| deliver(&mut world, reporter, 0, 1, 1, 1));
    assert_eq!(world.controls().len(), 16);
}
