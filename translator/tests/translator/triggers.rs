//! Triggers: reports that append entries to lists.

use translator::{Condition, Config, Field, Part, Relation, Trigger};
use wire::dta::{Base, Operation};

use crate::model::{KEY, MS, World, append, config, essential, immediate, plain, put, stores};

fn when(field: Field, relation: Relation, value: u64) -> Condition {
    Condition {
        field,
        mask: u64::MAX,
        relation,
        value,
    }
}

fn world(triggers: Vec<Trigger>) -> World {
    World::of(Config {
        triggers,
        ..config(stores())
    })
}

const TRIGGER: Trigger = Trigger {
    opcode: 1,
    collector: None,
    target: None,
    conditions: Vec::new(),
    list: 9,
    entry: Vec::new(),
    immediate: true,
    interval: 0,
};

/// The entries appended to lists, by list.
fn entries(world: &mut World) -> Vec<(u64, Vec<u8>)> {
    let done = world.memory.done();
    done.iter()
        .filter(|done| done.place.region == 1)
        .map(|done| (done.offset / 512, done.data[..4].to_vec()))
        .collect()
}

#[test]
fn a_report_makes_an_entry_where_all_conditions_hold() {
    let conditions = vec![
        when(Field::Data(0, 2), Relation::Greater, 0x0100),
        Condition {
            field: Field::Key(12, 1),
            mask: 0x0f,
            relation: Relation::Equal,
            value: 6,
        },
        when(Field::Reporter, Relation::NotEqual, 8),
    ];
    let entry = vec![
        Part::Key(11, 1),
        Part::Field(Field::Data(0, 2), 2),
        Part::Constant(0xab, 1),
    ];
    let mut world = world(vec![Trigger {
        target: Some(1),
        conditions,
        entry,
        ..TRIGGER
    }]);
    world.send(plain(), put(&KEY));
    assert_eq!(entries(&mut world), [(9, vec![0x50, 1, 2, 0xab])]);
    let cases: [(Base, &[u8], &[u8]); 4] = [
        (plain(), &KEY, &[1, 0]),
        (plain(), &[1; 13], &[9; 4]),
        (
            Base {
                reporter: 8,
                ..plain()
            },
            &KEY,
            &[9; 4],
        ),
        // A field that the report does not have.
        (plain(), &KEY, &[9]),
    ];
    for (base, key, data) in cases {
        world.send(
            base,
            Operation::KeyWrite {
                copies: 1,
                store: 1,
                key,
                data,
            },
        );
        assert_eq!(entries(&mut world), [], "{base:?} {data:?}");
    }
    assert_eq!((world.done(), world.stats().entries.triggered), (5, 1));
}

#[test]
fn every_relation() {
    use Relation::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    let relations = [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual];
    let holds = [
        [false, true, false],
        [true, false, true],
        [true, false, false],
        [true, true, false],
        [false, false, true],
        [false, true, true],
    ];
    for (relation, holds) in relations.into_iter().zip(holds) {
        let conditions = vec![when(Field::Value, relation, 5)];
        let entry = vec![Part::Field(Field::Value, 4)];
        let mut world = world(vec![Trigger {
            opcode: 3,
            conditions,
            entry,
            ..TRIGGER
        }]);
        for (delta, holds) in [4, 5, 6].into_iter().zip(holds) {
            world.send(
                plain(),
                Operation::KeyIncrement {
                    copies: 1,
                    store: 1,
                    delta,
                    key: &KEY,
                },
            );
            assert_eq!(
                entries(&mut world).len(),
                usize::from(holds),
                "{relation:?} {delta}"
            );
        }
    }
}

#[test]
fn postcards_entries_and_their_fields() {
    let postcard = Trigger {
        opcode: 4,
        conditions: vec![
            when(Field::Hop, Relation::Equal, 2),
            when(Field::PathLen, Relation::Equal, 0),
        ],
        entry: vec![
            Part::Field(Field::Value, 2),
            Part::Field(Field::Hop, 1),
            Part::Field(Field::Priority, 1),
        ],
        ..TRIGGER
    };
    // The entries of an Append are checked one by one.
    let appended = Trigger {
        opcode: 2,
        target: Some(3),
        conditions: vec![when(Field::Data(0, 1), Relation::GreaterOrEqual, 3)],
        list: 10,
        entry: vec![
            Part::Data(0, 2),
            Part::Field(Field::Essential, 1),
            Part::Field(Field::Immediate, 1),
        ],
        ..TRIGGER
    };
    let mut world = world(vec![postcard, appended]);
    for hop in 1..4 {
        world.send(
            plain(),
            Operation::Postcard {
                hop,
                path_len: 0,
                store: 1,
                value: 0x1234,
                key: &KEY,
            },
        );
    }
    assert_eq!(entries(&mut world), [(9, vec![0x12, 0x34, 2, 1])]);
    world.send(essential(1), append(3, &[1, 1, 0, 0, 3, 7, 0, 0, 4, 8, 0, 0]));
    assert_eq!(
        entries(&mut world),
        [(10, vec![3, 7, 1, 0]), (10, vec![4, 8, 1, 0])]
    );
    // Other lists do not.
    world.send(plain(), append(4, &[9; 4]));
    assert_eq!(entries(&mut world), []);
}

#[test]
fn an_interval_suppresses_entries_and_those_that_do_not_fit_are_missed() {
    let entry = vec![Part::Time];
    let wrong = Trigger {
        entry: entry.clone(),
        ..TRIGGER
    };
    let fitting = Trigger {
        entry: vec![Part::Data(0, 4)],
        interval: MS,
        immediate: false,
        ..TRIGGER
    };
    let mut world = world(vec![fitting, wrong]);
    assert_eq!(world.translator.unfit_trigger(0), Some(1));
    for _ in 0..10 {
        world.send(immediate(), put(&KEY));
        world.now += MS / 4;
    }
    let stats = world.stats().entries;
    assert_eq!((stats.triggered, stats.suppressed, stats.missed), (3, 7, 10));
}

#[test]
fn reports_that_are_not_done_trigger_nothing() {
    let mut world = world(vec![Trigger {
        entry: vec![Part::Data(0, 4)],
        ..TRIGGER
    }]);
    world.send(
        plain(),
        Operation::KeyWrite {
            copies: 1,
            store: 9,
            key: &KEY,
            data: &[1],
        },
    );
    assert_eq!(world.stats().entries.triggered, 0);
}

#[test]
fn triggers_that_cannot_be_are_named() {
    let good = Trigger {
        entry: vec![Part::Time],
        ..TRIGGER
    };
    let cases = [
        (
            Trigger {
                opcode: 6,
                ..good.clone()
            },
            "opcode",
        ),
        (
            Trigger {
                entry: Vec::new(),
                ..good.clone()
            },
            "parts",
        ),
        (
            Trigger {
                entry: vec![Part::Data(0, 300)],
                ..good.clone()
            },
            "256 bytes",
        ),
        (
            Trigger {
                entry: vec![Part::Constant(1, 9)],
                ..good.clone()
            },
            "number",
        ),
        (
            Trigger {
                conditions: vec![when(Field::Key(0, 9), Relation::Less, 1)],
                ..good.clone()
            },
            "field",
        ),
        (
            Trigger {
                conditions: vec![when(Field::Hop, Relation::Less, 1); 9],
                ..good
            },
            "8 conditions",
        ),
    ];
    for (trigger, text) in cases {
        let error = Config {
            triggers: vec![trigger],
            ..config(stores())
        }
        .check()
        .expect_err(text)
        .to_string();
        assert!(error.contains(text) && error.contains("trigger 1"), "{error}");
    }
}
