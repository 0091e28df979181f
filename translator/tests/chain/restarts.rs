//! A reporter and a translator restart, at one report per second: how long each is silent, and the outcome of each report.

use std::sync::Arc;

use dataplane::dta::{Config as Reporting, Reporter};
use dta::{DtaStore, Next};
use wire::dta::Operation;

use crate::chain::Chain;
use crate::delivery::{ESSENTIAL, entry, restart_translator, stores, translator};
use testkit::rdma::{Faults, MILLI, World};

const SECOND: u64 = 1_000 * MILLI;
/// The reporter's last sequence number before its restart.
const LAST: u16 = 1_004;
/// Maximum time until a report is accepted at one report per second: see docs/design/dta-reporter.md.
const LONGEST: u64 = 2_100 * MILLI;

struct Rig {
    world: World<Chain>,
    lists: DtaStore,
    /// When each report was sent, and when the translators accepted each, in order.
    sent: Vec<u64>,
    accepted: Vec<u64>,
    /// Reports accepted by earlier translators.
    before: u64,
}

/// Outcomes of the reports.
#[derive(PartialEq, Eq, Debug)]
struct ReportOutcome {
    lost: Vec<u32>,
    in_time: bool,
}

const NOTHING_LOST: ReportOutcome = ReportOutcome {
    lost: Vec::new(),
    in_time: true,
};

fn reporter(first_sequence: u16) -> Reporter {
    let reporting = Reporting {
        reporter: 7,
        max_essential_len: 64,
        first_sequence,
        ..Reporting::default()
    };
    Reporter::new(reporting).unwrap()
}

impl Rig {
    /// After five reports.
    fn new(seed: u64, faults: Faults) -> Self {
        let stores = stores();
        let memory = stores.iter().map(|store| Arc::clone(store.region())).collect();
        let chain = Chain::new(reporter(LAST - 4), translator());
        let mut world = World::new(seed, faults).over(memory).behind(chain);
        world.connect();
        let lists = DtaStore::open(Arc::clone(&world.memory[1])).unwrap();
        let mut rig = Self {
            world,
            lists,
            sent: Vec::new(),
            accepted: Vec::new(),
            before: 0,
        };
        rig.seconds(5);
        rig
    }

    fn chain(&mut self) -> &mut Chain {
        &mut self.world.front
    }

    fn accepted(&mut self) -> u64 {
        self.before + self.chain().translator.stats().sequences.accepted
    }

    /// Sends a report at once, and another one each second.
    fn seconds(&mut self, seconds: u32) {
        for _ in 0..seconds {
            let (now, number) = (self.world.now, self.sent.len() as u32);
            let append = Operation::Append {
                list: 5,
                entry_len: 6,
                entries: &entry(number),
            };
            let chain = &mut self.world.front;
            chain
                .reporter
                .send(&append, ESSENTIAL, now, &mut chain.outbox)
                .unwrap();
            self.sent.push(now);
            self.world.send();
            self.pass(SECOND);
        }
    }

    fn pass(&mut self, time: u64) {
        for _ in 0..time / (10 * MILLI) {
            self.world.pass(10 * MILLI);
            let (accepted, now) = (self.accepted(), self.world.now);
            self.accepted.resize(accepted as usize, now);
        }
    }

    fn restart_reporter(&mut self, ahead: u16) {
        self.chain().reporter = reporter(LAST.wrapping_add(ahead));
    }

    fn restart_translator(&mut self) {
        self.before = self.accepted();
        self.chain().down = false;
        restart_translator(&mut self.world);
    }

    /// After twelve more reports.
    fn outcome(mut self) -> ReportOutcome {
        self.seconds(12);
        self.world.check_counters();
        let mut follower = self.lists.lists().unwrap().from_sequence(5, 1).unwrap();
        let mut found = Vec::new();
        for _ in 0..10_000 {
            if let Next::Batch { entries, .. } = follower.next() {
                found.extend(
                    entries
                        .chunks_exact(6)
                        .map(|entry| u32::from_be_bytes(*entry.first_chunk().unwrap())),
                );
            }
        }
        assert!(
            found.is_sorted_by(|one, next| one < next),
            "not once each, in order: {found:?}"
        );
        assert_eq!(found.len(), self.accepted.len());
        let late = |(number, accepted): (&u32, &u64)| *accepted - self.sent[*number as usize] > LONGEST;
        let in_time = !found.iter().zip(&self.accepted).any(late);
        let lost = (0..self.sent.len() as u32)
            .filter(|number| !found.contains(number))
            .collect();
        ReportOutcome { lost, in_time }
    }
}

#[test]
fn a_restarted_reporter_is_accepted_whatever_its_first_sequence_number() {
    let far = [1, 2, 5, 255, 256, 300, 20_000, 32_767, 32_768, 40_000];
    let behind = [300, 256, 255, 100, 8, 2].map(|behind: u16| behind.wrapping_neg());
    for ahead in far.into_iter().chain(behind) {
        let mut rig = Rig::new(1, Faults::default());
        rig.restart_reporter(ahead);
        assert_eq!(rig.outcome(), NOTHING_LOST, "{ahead}");
    }
    // The old reporter's last number, or the one before it: a report that could be a repetition counts as a duplicate.
    for (ahead, lost) in [(0, vec![5]), (u16::MAX, vec![5, 6])] {
        let mut rig = Rig::new(1, Faults::default());
        rig.restart_reporter(ahead);
        assert_eq!(rig.outcome(), ReportOutcome { lost, in_time: true });
    }
}

#[test]
fn a_translator_that_restarts_misses_what_was_not_the_last_while_it_was_away() {
    for (away, lost) in [(0, vec![]), (1, vec![5]), (3, vec![5, 6, 7])] {
        let mut rig = Rig::new(1, Faults::default());
        rig.chain().down = true;
        rig.seconds(away);
        rig.restart_translator();
        assert_eq!(rig.outcome(), ReportOutcome { lost, in_time: true });
    }
    // The reporter repeats its last report until the translator is back.
    let mut rig = Rig::new(1, Faults::default());
    rig.chain().down = true;
    rig.seconds(1);
    rig.restart_translator();
    rig.pass(SECOND);
    assert_eq!(rig.accepted.len(), 6);
    assert_eq!(rig.outcome(), NOTHING_LOST);
}

#[test]
fn both_restart_over_a_bad_network() {
    let faults = Faults {
        lost: 100,
        doubled: 50,
        late: 50,
        damaged: 10,
    };
    for (seed, ahead) in (0..).zip([0, 1, 300, 32_768, 300u16.wrapping_neg(), 100u16.wrapping_neg()]) {
        // The reporter alone, the translator alone, both in either order.
        for [first, second] in [
            ["reporter", ""],
            ["translator", ""],
            ["reporter", "translator"],
            ["translator", "reporter"],
        ] {
            let mut rig = Rig::new(seed, faults);
            for which in [first, second] {
                match which {
                    "reporter" => rig.restart_reporter(if ahead == 0 { 1 } else { ahead }),
                    "translator" => rig.restart_translator(),
                    _ => {}
                }
                rig.seconds(3);
            }
            assert_eq!(rig.outcome(), NOTHING_LOST, "{first} {second} {ahead}");
        }
    }
}
