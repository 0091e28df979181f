//! A burst has the same effect as its reports one by one: the fast path of plain Appends changes nothing but the time.

use rdma::transport::{Blocked, Credit};
use translator::{Accept, Config, Rate, Stats, Trigger};
use wire::dta::layout::{Geometry, Ring};

use crate::hostile::report;
use crate::model::{MS, Random, World, config, sender, stores};

/// Many reports, most of them plain Appends, to both worlds; their whole observable state is equal after each burst.
fn both(name: &str, settings: &Config, seed: u64) -> World {
    let mut random = Random(seed);
    let (mut alone, mut together) = (World::of(settings.clone()), World::of(settings.clone()));
    for round in 0..400 {
        let burst: Vec<_> = (0..1 + random.below(70))
            .map(|_| {
                let mut bytes = Vec::new();
                report(&mut random, &mut bytes);
                if random.below(3) > 0 {
                    bytes[1] &= 0x3f;
                }
                if random.below(30) == 0 {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << random.below(8);
                }
                (sender(random.below(5) as u8), bytes)
            })
            .collect();
        let room = match random.below(8) {
            0 => Credit {
                messages: 3,
                bytes: 200,
            },
            1 => Credit::NONE,
            _ => Credit::UNLIMITED,
        };
        for world in [&mut alone, &mut together] {
            world.memory.room[0] = room;
            // Sometimes an operation is refused despite available credit.
            (world.memory.fuse, world.memory.says) = ((round % 3 == 1).then_some(round % 7), Blocked::Full);
            world.now += if round % 16 == 0 { 30 * MS } else { 4_000 };
        }
        burst
            .iter()
            .for_each(|(from, bytes)| alone.send_bytes(*from, 0, bytes));
        let World {
            translator,
            memory,
            mail,
            now,
        } = &mut together;
        translator.process_burst(
            *now,
            0,
            burst.iter().map(|(from, bytes)| (*from, &bytes[..])),
            memory,
            mail,
        );
        let at = format!("{name}, round {round}");
        assert_eq!(together.memory.done(), alone.memory.done(), "{at}");
        assert_eq!(together.mail.0, alone.mail.0, "{at}");
        // An operation refused despite available credit is retried once in a burst.
        let blind = |mut stats: Stats| {
            stats.operations.blocked = [0; 5];
            stats
        };
        assert_eq!(blind(together.stats()), blind(alone.stats()), "{at}");
        assert_eq!(
            together.translator.deadline(),
            alone.translator.deadline(),
            "{at}"
        );
        alone.pass(1_000);
        together.pass(1_000);
    }
    together
}

#[test]
fn a_burst_is_what_its_reports_are_one_by_one() {
    let plain = config(stores());
    let mut metered = plain.clone();
    if let Some(collector) = &mut metered.collectors[0] {
        collector.rate = Rate {
            messages: 500_000,
            bytes: 0,
            burst: 100_000,
        };
    }
    let mut wide = plain.clone();
    if let Some(collector) = &mut wide.collectors[0] {
        // Too many lists for the cache.
        let ring = Ring {
            entry_len: 4,
            entries: 64,
            batch: 4,
            tagged: true,
        };
        collector.stores[1].geometry = Geometry::Append {
            lists: 4_096,
            first_list: 0,
            ring,
        };
        collector.stores.truncate(5);
    }
    let trigger = Trigger {
        opcode: 2,
        collector: None,
        target: Some(3),
        conditions: Vec::new(),
        list: 9,
        entry: vec![translator::Part::Constant(7, 4)],
        immediate: false,
        interval: 0,
    };
    let cases = [
        ("plain", plain.clone()),
        (
            "both layouts",
            Config {
                accept: Accept::Both,
                ..plain.clone()
            },
        ),
        (
            "artifact only",
            Config {
                accept: Accept::Artifact,
                ..plain.clone()
            },
        ),
        (
            "senders metered",
            Config {
                reporter_rate: 80_000,
                reporter_burst: 64,
                ..plain.clone()
            },
        ),
        (
            "triggers",
            Config {
                triggers: vec![trigger],
                ..plain
            },
        ),
        ("metered", metered),
        ("many lists", wide),
    ];
    for (seed, (name, settings)) in cases.iter().enumerate() {
        let world = both(name, settings, seed as u64);
        let stats = world.stats();
        let nothing_read = settings.accept == Accept::Artifact;
        assert_eq!(
            stats.entries.written > 2_000,
            !nothing_read,
            "{name}: {:?}",
            stats.entries
        );
    }
}
