//! Reporter, translator, links and responder in a chain, over faulty networks: all essential reports end up in the collector's memory,
//! as its readers see it.

use std::collections::BTreeSet;
use std::sync::Arc;

use dataplane::dta::{Config as Reporting, Reporter, SendOptions};
use dta::{Answer, DtaStore, Header, Next, Policy, region_len};
use memory::Region;
use translator::{CollectorConfig, Config as Translating, StoreEntry, Translator};
use wire::dta::hash::Family;
use wire::dta::layout::{Geometry, Ring};
use wire::dta::{Operation, Priority};

use crate::chain::Chain;
use testkit::rdma::{Faults, MICRO, MILLI, Rng, World};

const VALUES: Geometry = Geometry::KeyWrite {
    slots: 1 << 14,
    data_len: 20,
    family: Family::V1,
};
const LISTS: Geometry = Geometry::Append {
    lists: 2,
    first_list: 5,
    ring: Ring {
        entry_len: 6,
        entries: 1 << 13,
        batch: 8,
        tagged: true,
    },
};
const COUNTERS: Geometry = Geometry::KeyIncrement {
    slots: 1 << 12,
    family: Family::V1,
};
const STORES: [(Geometry, u16); 3] = [(VALUES, 1), (LISTS, 0), (COUNTERS, 1)];

pub(crate) const ESSENTIAL: SendOptions = SendOptions {
    priority: Priority::High,
    essential: true,
    immediate: false,
};
const OTHER: SendOptions = SendOptions {
    priority: Priority::Low,
    essential: false,
    immediate: false,
};

/// The data of the reports.
#[derive(Default)]
struct Reported {
    values: Vec<([u8; 13], [u8; 20])>,
    entries: [Vec<u32>; 2],
    others: BTreeSet<u32>,
    counts: Vec<u64>,
    reports: u64,
}

fn key(number: u32) -> [u8; 13] {
    let mut key = [0; 13];
    let mut rng = Rng::new(u64::from(number));
    key[..8].copy_from_slice(&rng.roll().to_le_bytes());
    key[8..12].copy_from_slice(&number.to_be_bytes());
    key[12] = 6;
    key
}

pub(crate) fn entry(number: u32) -> [u8; 6] {
    let [a, b, c, d] = number.to_be_bytes();
    [a, b, c, d, a ^ b ^ c ^ d, 0xee]
}

pub(crate) fn stores() -> Vec<DtaStore> {
    let made = STORES.iter().map(|(geometry, id)| {
        let region = Arc::new(Region::anonymous(region_len(geometry), false).unwrap());
        let header = Header {
            name: "a store".into(),
            id: u32::from(*id),
            geometry: *geometry,
            fields: String::new(),
            created: 0,
            snapshot: None,
        };
        DtaStore::create(region, &header).unwrap()
    });
    made.collect()
}

pub(crate) fn translator() -> Translator {
    let stores = (0..)
        .zip(STORES)
        .map(|(region, (geometry, id))| StoreEntry::new(region, id, geometry));
    let memory = CollectorConfig {
        stores: stores.collect(),
        ..CollectorConfig::default()
    };
    Translator::new(Translating {
        collectors: vec![Some(memory)],
        ..Translating::default()
    })
    .unwrap()
}

/// A restarted translator, which knows earlier state only from the collector's memory.
pub(crate) fn restart_translator(world: &mut World<Chain>) {
    let chain = &mut world.front;
    chain.translator = translator();
    let lists = DtaStore::open(Arc::clone(&world.memory[1]))
        .unwrap()
        .lists()
        .unwrap();
    for (list, newest) in lists.heads() {
        assert!(
            chain
                .translator
                .set_next(0, list, newest.map_or(1, |newest| u64::from(newest) + 1))
        );
    }
    world.links = rdma::requester::Links::new(world.config).unwrap();
    world.queue_pair = None;
    world.connect();
}

struct Run {
    world: World<Chain>,
    stores: Vec<DtaStore>,
    reported: Reported,
    rng: Rng,
}

impl Run {
    fn new(seed: u64, faults: Faults) -> Self {
        let stores = stores();
        let memory = stores.iter().map(|store| Arc::clone(store.region())).collect();
        let reporting = Reporting {
            reporter: 7,
            max_essential_len: 64,
            ..Reporting::default()
        };
        let chain = Chain::new(Reporter::new(reporting).unwrap(), translator());
        let mut world = World::new(seed, faults).over(memory).behind(chain);
        world.connect();
        Self {
            world,
            stores,
            reported: Reported {
                counts: vec![0; 50],
                ..Reported::default()
            },
            rng: Rng::new(seed + 1000),
        }
    }

    /// Returns whether it was sent: the reporter suppresses reports that are not essential under congestion.
    fn send(&mut self, operation: &Operation<'_>, options: SendOptions) -> bool {
        let chain = &mut self.world.front;
        let sent = chain
            .reporter
            .send(operation, options, self.world.now, &mut chain.outbox)
            .is_ok();
        assert!(sent || options == OTHER);
        sent
    }

    /// One random report.
    fn report(&mut self) {
        let number = self.reported.reports as u32;
        self.reported.reports += 1;
        match self.rng.below(4) {
            0 => {
                let (key, data) = (key(number), [number as u8; 20]);
                self.send(
                    &Operation::KeyWrite {
                        copies: 2,
                        store: 1,
                        key: &key,
                        data: &data,
                    },
                    ESSENTIAL,
                );
                self.reported.values.push((key, data));
            }
            1 => {
                let list = self.rng.below(2) as usize;
                let append = Operation::Append {
                    list: 5 + list as u32,
                    entry_len: 6,
                    entries: &entry(number),
                };
                self.send(&append, ESSENTIAL);
                self.reported.entries[list].push(number);
            }
            2 => {
                let counter = self.rng.below(50);
                let key = key(counter as u32);
                let add = Operation::KeyIncrement {
                    copies: 2,
                    store: 1,
                    delta: u64::from(number),
                    key: &key,
                };
                self.send(&add, ESSENTIAL);
                self.reported.counts[counter as usize] += u64::from(number);
            }
            _ => {
                let append = Operation::Append {
                    list: 6,
                    entry_len: 6,
                    entries: &entry(number),
                };
                if self.send(&append, OTHER) {
                    self.reported.others.insert(number);
                }
            }
        }
    }

    fn reports(&mut self, rounds: u64, mut between: impl FnMut(&mut World<Chain>, u64)) {
        for round in 0..rounds {
            for _ in 0..6 {
                self.report();
            }
            self.world.send();
            self.world.pass(200 * MICRO);
            between(&mut self.world, round);
        }
        // Probes and timers deliver the rest.
        self.world.pass(2000 * MILLI);
        self.world.check_counters();
        let chain = &self.world.front;
        let destination = chain.reporter.destinations(self.world.now).next().unwrap();
        assert_eq!(
            (destination.stats.overwritten, destination.stats.unavailable),
            (0, 0)
        );
        assert_eq!(self.world.links.stats(0).unwrap().unacknowledged, 0);
    }

    /// The number of missing values; checks the others.
    fn missing_values(&self) -> usize {
        let reader = self.stores[0].key_write().unwrap();
        let absent = self.reported.values.iter().filter(|(key, data)| {
            let mut value = [0; 20];
            match reader.get(key, Policy::Majority, 4, &mut value).unwrap() {
                Answer::Found { .. } => {
                    assert_eq!(value, *data);
                    false
                }
                answer => {
                    assert_eq!(answer, Answer::Empty);
                    true
                }
            }
        });
        absent.count()
    }

    /// Entries of a list as a follower reads them, and the number of batches that it missed.
    fn followed(&self, list: usize) -> (Vec<u32>, u64) {
        let lists = self.stores[1].lists().unwrap();
        let mut follower = lists.from_sequence(5 + list as u32, 1).unwrap();
        let (mut numbers, mut lost) = (Vec::new(), 0);
        // The follower polls several times before it counts a batch as missing.
        for _ in 0..100_000 {
            match follower.next() {
                Next::Batch { entries, .. } => numbers.extend(entries.chunks_exact(6).map(|found| {
                    let number = u32::from_be_bytes([found[0], found[1], found[2], found[3]]);
                    assert_eq!(found, entry(number));
                    number
                })),
                Next::Missing { lost: more } | Next::Overwritten { lost: more } => lost += more,
                Next::Torn | Next::Nothing => {}
            }
        }
        (numbers, lost)
    }

    fn check_lists(&self) {
        let (first, lost) = self.followed(0);
        assert_eq!(
            lost,
            0,
            "batches are missing: {:?} {:?}",
            self.world.links.stats(0),
            self.world.front.translator.stats()
        );
        assert_eq!((&first, lost), (&self.reported.entries[0], 0));
        let (second, _) = self.followed(1);
        let essential: Vec<u32> = second
            .iter()
            .copied()
            .filter(|number| !self.reported.others.contains(number))
            .collect();
        assert_eq!(essential, self.reported.entries[1]);
        let stats = self.world.front.translator.stats();
        assert_eq!((stats.entries.dropped, stats.entries.pending), (0, 0));
    }

    fn counts(&self) -> Vec<u64> {
        let reader = self.stores[2].counters().unwrap();
        (0..50)
            .map(|counter| reader.estimate(&key(counter), 2).unwrap())
            .collect()
    }
}

#[test]
fn essential_reports_are_in_memory_however_bad_the_networks_are() {
    for seed in 0..6 {
        let mut run = Run::new(
            seed,
            Faults {
                lost: 15,
                doubled: 10,
                late: 10,
                damaged: 10,
            },
        );
        run.reports(300, |_, _| {});
        assert_eq!(run.missing_values(), 0, "seed {seed}");
        run.check_lists();
        assert_eq!(run.counts(), run.reported.counts);
        let chain = &run.world.front;
        let (translator, reporter) = (
            chain.translator.stats(),
            chain.reporter.destinations(0).next().unwrap(),
        );
        assert_eq!(translator.sequences.lost, 0);
        assert!(translator.controls.nacks[0] > 0 && reporter.stats.retransmitted > 0);
        // Some of the other reports were lost, on the way to the translator only.
        let arrived = run
            .followed(1)
            .0
            .into_iter()
            .filter(|number| run.reported.others.contains(number))
            .count();
        assert!(arrived < run.reported.others.len() && arrived > run.reported.others.len() / 2);
    }
}

#[test]
fn a_collector_that_restarts_loses_nothing_essential() {
    for seed in 0..3 {
        let mut run = Run::new(
            seed,
            Faults {
                lost: 5,
                doubled: 5,
                late: 5,
                damaged: 5,
            },
        );
        run.reports(300, |world, round| {
            if round % 100 == 50 {
                world.restart_responder();
            }
        });
        assert!(run.world.reconnects > 1);
        assert_eq!(run.missing_values(), 0, "seed {seed}");
        run.check_lists();
        // Additions whose responses were lost with the collector may have been executed twice.
        let more = run
            .counts()
            .iter()
            .zip(&run.reported.counts)
            .filter(|(found, reported)| found > reported)
            .count() as u64;
        assert!(
            run.counts()
                .iter()
                .zip(&run.reported.counts)
                .all(|(found, reported)| found >= reported)
        );
        assert!(more <= run.world.links.stats(0).unwrap().uncertain_fetch_adds);
    }
}

#[test]
fn a_translator_that_restarts_loses_no_more_than_it_held() {
    for seed in 0..3 {
        let mut run = Run::new(seed, Faults::default());
        let mut pending = 0;
        run.reports(200, |world, round| {
            if round != 100 {
                return;
            }
            let chain = &mut world.front;
            pending = world.links.stats(0).unwrap().unacknowledged + chain.translator.stats().entries.pending;
            restart_translator(world);
        });
        let entries = run.reported.entries[0].len() - run.followed(0).0.len()
            + run.reported.entries[1].len()
            + run.reported.others.len()
            - run.followed(1).0.len();
        let missing = run.missing_values() as u64 + entries as u64;
        assert!(missing <= pending, "{missing} of {pending}");
    }
}
