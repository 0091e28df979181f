//! Sections of a network: translators whose merged sketches another translator merges again.

use translator::{Section, SectionConfig, SectionStats, Unsent};
use wire::dta::control::Body;
use wire::dta::{Base, MergeOp, Operation};

use crate::model::{MS, World, plain};

/// Bytes of a report with three columns of the tests' sketch, which has ten of 16 bytes.
const LONGEST: usize = 8 + 12 + 3 * 16;

fn section(pace: u64) -> Section {
    Section::new(SectionConfig {
        collector: 0,
        sketches: Vec::new(),
        longest: LONGEST,
        pace,
    })
}

/// Columns of a switch whose counters are all `value`.
fn deliver(world: &mut World, reporter: u32, (epoch, columns): (u16, u8), value: u32) {
    let counters = value.to_be_bytes().repeat(usize::from(columns) * 4);
    let operation = Operation::SketchMerge {
        sketch: 4,
        epoch,
        first_column: 0,
        depth: 4,
        width: 4,
        op: MergeOp::Sum,
        columns,
        counters: &counters,
    };
    world.send(Base { reporter, ..plain() }, operation);
}

/// The first counter of each column in memory.
fn columns(world: &World, epoch: u16) -> Vec<u32> {
    let body = &world.memory.body(4)[usize::from(epoch & 1) * 176..][..160];
    body.chunks_exact(16)
        .map(|column| u32::from_le_bytes(column[..4].try_into().expect("4 bytes")))
        .collect()
}

/// Sends a section's reports to `top`, except those whose number is in `lost`.
fn forward(section: &mut Section, from: &World, top: &mut World, reporter: u32, lost: &[usize]) -> usize {
    let mut number = 0;
    section.tick(from.now, &from.translator, |operation| {
        if !lost.contains(&number) {
            top.send(Base { reporter, ..plain() }, *operation);
        }
        number += 1;
        Ok(())
    });
    number
}

#[test]
fn the_sketches_of_two_sections_become_one() {
    let (mut left, mut right, mut top) = (World::new(), World::new(), World::new());
    let mut sections = [section(0), section(0)];
    deliver(&mut left, 1, (17, 10), 1);
    assert_eq!(
        forward(&mut sections[0], &left, &mut top, 101, &[]),
        0,
        "the epoch is open"
    );
    deliver(&mut left, 2, (17, 10), 10);
    deliver(&mut right, 1, (17, 10), 100);
    deliver(&mut right, 2, (17, 10), 1000);
    assert_eq!(forward(&mut sections[0], &left, &mut top, 101, &[]), 4);
    assert_eq!(columns(&top, 17), [0; 10], "one section is not all");
    // The second report of the other section is lost: the third and the fourth are out of order.
    assert_eq!(forward(&mut sections[1], &right, &mut top, 102, &[1]), 4);
    let nacked: Vec<Body> = top.controls().into_iter().map(|(_, body)| body).collect();
    assert_eq!(
        nacked,
        [Body::SketchNack {
            sketch: 4,
            epoch: 17,
            column: 3
        }]
    );
    sections[1].nack(4, 17, 3);
    assert_eq!(forward(&mut sections[1], &right, &mut top, 102, &[]), 3);
    assert_eq!(columns(&top, 17), [1111; 10]);
    assert_eq!(top.stats().sketches.complete, 1);
    assert_eq!(
        forward(&mut sections[1], &right, &mut top, 102, &[]),
        0,
        "all was sent"
    );
    let expected = SectionStats {
        epochs: 1,
        columns: 10,
        retransmitted: 7,
        nacks: 1,
        ..SectionStats::default()
    };
    assert_eq!(sections[1].stats(), expected);
}

#[test]
fn a_partial_epoch_is_sent_when_its_time_is_over_and_an_older_one_first() {
    let (mut left, mut top) = (World::new(), World::new());
    let mut section = section(0);
    deliver(&mut left, 1, (16, 10), 1);
    deliver(&mut left, 1, (17, 4), 2);
    left.pass(10_000 * MS);
    let mut sent = Vec::new();
    section.tick(left.now, &left.translator, |operation| {
        let Operation::SketchMerge {
            epoch,
            first_column,
            columns,
            ..
        } = *operation
        else {
            panic!()
        };
        sent.push((epoch, first_column, columns));
        top.send(
            Base {
                reporter: 101,
                ..plain()
            },
            *operation,
        );
        Ok(())
    });
    let of = |epoch| [(epoch, 0, 3), (epoch, 3, 3), (epoch, 6, 3), (epoch, 9, 1)];
    assert_eq!(sent, [of(16), of(17)].concat());
}

#[test]
fn reports_are_paced_and_wait_for_room() {
    let (mut left, mut top) = (World::new(), World::new());
    let mut section = section(5 * MS);
    for reporter in [1, 2] {
        deliver(&mut left, reporter, (17, 10), 1);
    }
    section.tick(left.now, &left.translator, |_| Err(Unsent::NoRoom));
    assert_eq!(section.stats(), SectionStats::default());
    assert_eq!(
        forward(&mut section, &left, &mut top, 101, &[]),
        0,
        "tried again after a millisecond"
    );
    left.now += MS;
    assert_eq!(forward(&mut section, &left, &mut top, 101, &[]), 1);
    left.now += 4 * MS;
    assert_eq!(forward(&mut section, &left, &mut top, 101, &[]), 0);
    left.now += MS;
    assert_eq!(forward(&mut section, &left, &mut top, 101, &[]), 1);
    // Congestion suppresses the rest of the epoch, and the unsent columns of the next one have expired.
    left.now += 5 * MS;
    section.tick(left.now, &left.translator, |_| Err(Unsent::Suppressed));
    let stats = section.stats();
    assert_eq!((stats.columns, stats.suppressed, stats.epochs), (6, 4, 0));
    section.nack(4, 17, 9);
    section.nack(4, 19, 0);
    assert_eq!((section.stats().nacks, section.stats().stale), (1, 1));
}

#[test]
fn forged_nacks_do_not_keep_an_epoch_from_being_sent() {
    let (mut left, mut top) = (World::new(), World::new());
    let mut section = section(5 * MS);
    for reporter in [1, 2] {
        deliver(&mut left, reporter, (17, 10), 1);
    }
    for _ in 0..100 {
        forward(&mut section, &left, &mut top, 101, &[]);
        section.nack(4, 17, 0);
        left.now += 5 * MS;
    }
    let stats = section.stats();
    assert_eq!((stats.columns, stats.epochs, stats.expired), (10, 1, 0));
    assert!(stats.retransmitted <= 4 * 10, "{}", stats.retransmitted);
}

#[test]
fn an_epoch_whose_buffer_is_needed_again_expires() {
    let (mut left, mut top) = (World::new(), World::new());
    let mut section = section(1000 * MS);
    for epoch in [17, 18, 19] {
        for reporter in [1, 2] {
            deliver(&mut left, reporter, (epoch, 10), 1);
        }
        left.now += 10 * MS;
        forward(&mut section, &left, &mut top, 101, &[]);
    }
    assert_eq!((section.stats().columns, section.stats().expired), (3, 7));
}

#[test]
fn only_the_chosen_sketches_are_sent_and_no_column_too_long_for_a_report() {
    let (mut left, mut top) = (World::new(), World::new());
    for reporter in [1, 2] {
        deliver(&mut left, reporter, (17, 10), 1);
    }
    let config = SectionConfig {
        collector: 0,
        sketches: vec![5],
        longest: LONGEST,
        pace: 0,
    };
    let mut other = Section::new(config.clone());
    assert_eq!(forward(&mut other, &left, &mut top, 101, &[]), 0);
    let mut short = Section::new(SectionConfig {
        sketches: vec![4],
        longest: 8 + 12 + 15,
        ..config
    });
    assert_eq!(forward(&mut short, &left, &mut top, 101, &[]), 0);
    assert_eq!(short.stats().suppressed, 10);
}
