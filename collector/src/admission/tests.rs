//! Who keeps and who gets an entry under floods, in simulated time, for both tables of flows.

use std::collections::BTreeSet;

use wire::FlowKey;

use super::{Admission, IDLE_SECONDS, Newcomers, Standing, candidate, establish};
use crate::hash::fold;
use crate::index::{Index, NO_SLOT};
use crate::{join, state};

const CAPACITY: u32 = 16_384;
const SECOND: u64 = 1_000_000_000;

/// A table of flows, which processes reports as its owner does.
trait FlowTable {
    fn with_capacity(capacity: usize) -> Self;
    /// Returns whether the flow had an entry before.
    fn report(&mut self, flow: u64, now: u64) -> bool;
    fn has(&self, flow: u64) -> bool;
}

fn key(flow: u64) -> FlowKey {
    let [a, b, c, d, rest @ ..] = flow.to_be_bytes();
    FlowKey::v4(rest, [10, a, b, c], Some((d.into(), 2)), 17)
}

macro_rules! flow_table {
    ($table:ty, $touch:expr) => {
        impl FlowTable for $table {
            fn with_capacity(capacity: usize) -> Self {
                Self::with_capacity(capacity)
            }

            fn report(&mut self, flow: u64, now: u64) -> bool {
                let (key, second) = (key(flow), (now / SECOND) as u32);
                let hash = key.hash(1);
                let mut slot = self.find(&key, hash, NO_SLOT);
                let had_entry = slot != NO_SLOT;
                if !had_entry {
                    let room = match self.admit(hash, second) {
                        Admission::Free(room) => room,
                        Admission::Evict(room, victim) => {
                            self.remove(victim);
                            room
                        }
                        Admission::Refused(_) => return false,
                    };
                    slot = self.insert(room, key, hash, now, second);
                }
                $touch(self, slot, now, second);
                had_entry
            }

            fn has(&self, flow: u64) -> bool {
                self.find(&key(flow), key(flow).hash(1), NO_SLOT) != NO_SLOT
            }
        }
    };
}

flow_table!(join::flow::Flows, |table: &mut join::flow::Flows,
                                slot,
                                now,
                                second| table
    .touch(slot, now, second));
flow_table!(state::flows::Flows, |table: &mut state::flows::Flows,
                                  slot,
                                  _,
                                  second| {
    table.parts(slot).flow.reports += 1;
    table.touch(slot, second);
});

/// Reports of flows with numbers from `first` on, `each` of them of every flow.
#[derive(Clone, Copy)]
struct Traffic {
    first: u64,
    flows: u64,
    each: u64,
    /// Between two reports of a flow, and over which time the flows begin.
    every: u64,
    spread: u64,
    from: u64,
}

impl Traffic {
    fn reports(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let Self {
            first,
            flows,
            each,
            every,
            spread,
            from,
        } = *self;
        (0..flows).flat_map(move |flow| {
            let begin = from + (u128::from(spread) * u128::from(flow) / u128::from(flows)) as u64;
            (0..each).map(move |n| (begin + n * every, first + flow))
        })
    }

    fn kept<T: FlowTable>(&self, table: &T) -> u64 {
        (0..self.flows)
            .filter(|flow| table.has(self.first + flow))
            .count() as u64
    }
}

/// Feeds all traffic in the order of time until `stop`. Returns which flows that were established before [`FLOOD`] lost their
/// entry.
fn feed<T: FlowTable>(table: &mut T, traffic: &[Traffic], stop: u64) -> BTreeSet<u64> {
    let mut reports: Vec<(u64, u64)> = traffic
        .iter()
        .flat_map(Traffic::reports)
        .filter(|(now, _)| *now < stop)
        .collect();
    // Flows that begin together come in no order.
    reports.sort_unstable_by_key(|(now, flow)| (*now, fold(*flow, 1)));
    let mut lost = BTreeSet::new();
    for (now, flow) in reports {
        if !table.report(flow, now) && now > FLOOD.from && flow < CAPACITY.into() {
            lost.insert(flow);
        }
    }
    lost
}

/// Three of four entries are established flows that report every 8 s.
const ESTABLISHED: Traffic = Traffic {
    first: 0,
    flows: CAPACITY as u64 * 3 / 4,
    each: 20,
    every: 8 * SECOND,
    spread: 8 * SECOND,
    from: SECOND,
};

/// Ten reports of flows seen once for each report of an established one.
const FLOOD: Traffic = Traffic {
    first: 1 << 32,
    flows: ESTABLISHED.flows * 10 / 8 * 140,
    each: 1,
    every: 0,
    spread: 140 * SECOND,
    from: 18 * SECOND,
};

/// In the middle of the flood, with five reports each, one per second.
const NEWCOMERS: Traffic = Traffic {
    first: 1 << 24,
    flows: 1024,
    each: 5,
    every: SECOND,
    spread: 60 * SECOND,
    from: 60 * SECOND,
};

fn established_flows_stay_and_newcomers_enter<T: FlowTable>(established: u64) {
    let established = Traffic {
        flows: established,
        ..ESTABLISHED
    };
    let mut table = T::with_capacity(CAPACITY as usize);
    // How many newcomers have an entry after their third report: those that began up to here.
    let third = NEWCOMERS.from + NEWCOMERS.spread / 2 + 2 * SECOND + 1;
    feed(&mut table, &[established, FLOOD, NEWCOMERS], third);
    let began = Traffic {
        flows: NEWCOMERS.flows / 2,
        ..NEWCOMERS
    };
    let entered = began.kept(&table);
    assert!(
        entered * 100 >= began.flows * 99,
        "{entered} of {} newcomers",
        began.flows
    );

    let mut table = T::with_capacity(CAPACITY as usize);
    let lost = feed(&mut table, &[established, FLOOD, NEWCOMERS], u64::MAX).len() as u64;
    assert!(
        lost * 1000 <= established.flows,
        "{lost} of {} lost",
        established.flows
    );
}

#[test]
fn in_a_flood_of_flows_seen_once_established_flows_stay_and_newcomers_enter() {
    for established in [CAPACITY / 2, CAPACITY * 3 / 4, CAPACITY - 2048].map(u64::from) {
        established_flows_stay_and_newcomers_enter::<state::flows::Flows>(established);
        established_flows_stay_and_newcomers_enter::<join::flow::Flows>(established);
    }
}

/// In a flood of flows that are seen twice.
fn established_flows_stay<T: FlowTable>() {
    let mut table = T::with_capacity(CAPACITY as usize);
    let twice = Traffic {
        each: 2,
        every: SECOND / 10,
        ..FLOOD
    };
    let later = Traffic {
        from: 200 * SECOND,
        spread: 10 * SECOND,
        ..NEWCOMERS
    };
    let established = Traffic {
        each: 30,
        ..ESTABLISHED
    };
    let lost = feed(&mut table, &[established, twice, later], u64::MAX).len() as u64;
    assert!(
        lost * 1000 <= established.flows,
        "{lost} of {} lost",
        established.flows
    );
    let entered = later.kept(&table);
    assert!(
        entered * 100 >= later.flows * 99,
        "{entered} of {} after the flood",
        later.flows
    );
}

#[test]
fn in_a_flood_of_flows_seen_twice_established_flows_stay_and_newcomers_wait_for_its_end() {
    established_flows_stay::<state::flows::Flows>();
    established_flows_stay::<join::flow::Flows>();
}

fn all_at_once<T: FlowTable>() {
    let all = Traffic {
        flows: CAPACITY.into(),
        each: 1,
        spread: SECOND,
        ..ESTABLISHED
    };
    let mut table = T::with_capacity(CAPACITY as usize);
    feed(&mut table, &[all], u64::MAX);
    let kept = all.kept(&table);
    assert!(kept * 1000 >= all.flows * 995, "{kept} of {}", all.flows);
    // Every flow has ended, and as many others begin: after a restart of the network, for example.
    let (old, gap) = (
        Traffic {
            each: 2,
            every: SECOND,
            ..all
        },
        u64::from(IDLE_SECONDS) * SECOND,
    );
    let new = Traffic {
        first: 1 << 24,
        each: 40,
        every: SECOND,
        from: old.from + SECOND,
        ..all
    };
    let mut table = T::with_capacity(CAPACITY as usize);
    feed(&mut table, &[old, new], new.from + gap - SECOND);
    assert!(
        new.kept(&table) * 100 <= new.flows,
        "those that were just seen stay"
    );
    let mut table = T::with_capacity(CAPACITY as usize);
    feed(&mut table, &[old, new], new.from + gap + 4 * SECOND);
    let kept = new.kept(&table);
    assert!(kept * 100 >= new.flows * 99, "{kept} of {} new ones", new.flows);
}

#[test]
fn a_table_with_room_admits_at_once_and_a_full_one_when_its_flows_are_idle() {
    all_at_once::<state::flows::Flows>();
    all_at_once::<join::flow::Flows>();
}

#[test]
fn a_flow_that_is_ahead_of_a_report_is_not_idle() {
    let standing = |of_entry: u32, second: u32| {
        let mut index = Index::with_capacity(64);
        let mut newcomers = Newcomers::for_flows(64);
        let Admission::Free(new_entry) = newcomers.admit(&index, 1, of_entry, false) else {
            panic!("it has room")
        };
        newcomers.insert(&mut index, new_entry, 1, 0, of_entry);
        establish(&mut index, 1, 0, of_entry);
        candidate(&index.get(1, 0).unwrap(), second).standing
    };
    let standings = [(101, 100), (108, 100), (100, 100), (100, 129), (100, 130)].map(|(a, b)| standing(a, b));
    assert_eq!(
        standings,
        [
            Standing::Active,
            Standing::Active,
            Standing::Active,
            Standing::Active,
            Standing::Idle
        ]
    );
}
