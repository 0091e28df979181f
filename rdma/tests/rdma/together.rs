//! Requester and responder over a faulty network: reliable operations are executed exactly once; each lost unreliable one is counted.

use rdma::requester::{Config, Response, UncertainFetchAdds};
use rdma::transport::{Blocked, RemoteAddr, Transport};

use testkit::rdma::{Faults, MICRO, MILLI, Rng, World};

const KEPT: RemoteAddr = RemoteAddr {
    collector: 0,
    region: 0,
};
const LOSSY: RemoteAddr = RemoteAddr {
    collector: 0,
    region: 1,
};
const SLOT: u64 = 32;
const SLOTS: u64 = 512;
const COUNTERS: u64 = 64;
/// Counters follow the slots of region 0, long messages follow the counters.
const COUNTERS_AT: u64 = SLOT * SLOTS;
const LONG_AT: u64 = COUNTERS_AT + COUNTERS * 8;

/// Random operations, and their expected results.
struct Load {
    rng: Rng,
    slots: Vec<u64>,
    counters: Vec<u64>,
    immediates: Vec<u32>,
    kept: u64,
    lossy: u64,
    refused: u64,
}

impl Load {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            slots: vec![0; SLOTS as usize],
            counters: vec![0; COUNTERS as usize],
            immediates: Vec::new(),
            kept: 0,
            lossy: 0,
            refused: 0,
        }
    }

    fn slot(number: u64) -> [u8; 24] {
        let mut data = [0; 24];
        for (place, byte) in data.chunks_exact_mut(8).zip(0..) {
            place.copy_from_slice(&(number.wrapping_mul(0x0101) ^ byte << 56).to_le_bytes());
        }
        data
    }

    /// One operation; an error if it was not accepted.
    fn operation(&mut self, world: &mut World) -> Result<(), Blocked> {
        let number = self.rng.roll() >> 8 | 1;
        let which = self.rng.below(SLOTS);
        let immediate = self.rng.permille(50).then_some(number as u32);
        match self.rng.below(10) {
            0..4 => {
                world
                    .links
                    .write(KEPT, which * SLOT, &Self::slot(number), immediate, true)?;
                self.slots[which as usize] = number;
                self.kept += 1;
                self.immediates.extend(immediate);
            }
            4..7 => {
                let counter = which % COUNTERS;
                world
                    .links
                    .add(KEPT, COUNTERS_AT + counter * 8, number & 0xffff, immediate)?;
                self.counters[counter as usize] += number & 0xffff;
                self.kept += 1 + u64::from(immediate.is_some());
                self.immediates.extend(immediate);
            }
            7 => {
                // A little more than three packets.
                let data: Vec<u8> = (0..900).map(|i| (number >> (i % 7 * 8)) as u8).collect();
                world.links.write(KEPT, LONG_AT, &data, immediate, true)?;
                self.kept += 1;
                self.immediates.extend(immediate);
            }
            _ => {
                world
                    .links
                    .write(LOSSY, which * SLOT, &Self::slot(number), None, false)?;
                self.lossy += 1;
            }
        }
        Ok(())
    }

    fn burst(&mut self, world: &mut World, operations: u64) {
        for _ in 0..operations {
            self.refused += u64::from(self.operation(world).is_err());
        }
        world.send();
    }

    /// Checks that all reliable operations were executed.
    fn check(&self, world: &World) {
        for (slot, number) in (0..).zip(&self.slots) {
            let expected = if *number == 0 {
                [0; 24]
            } else {
                Self::slot(*number)
            };
            let mut found = [0; 24];
            world.memory[0].read(4096 + slot * SLOT, &mut found).unwrap();
            assert_eq!(found, expected, "slot {slot}");
        }
        let stats = world.links.stats(0).unwrap();
        assert_eq!((stats.unacknowledged, stats.given_up), (0, [0; 3]));
        assert_eq!(stats.reliable, self.kept);
        assert_eq!(stats.refused.iter().sum::<u64>(), self.refused);
        assert_eq!(stats.unreliable, self.lossy);
    }

    fn check_counters(&self, world: &World) {
        for (counter, value) in (0..).zip(&self.counters) {
            assert_eq!(
                world.u64_at(0, COUNTERS_AT + counter * 8),
                *value,
                "counter {counter}"
            );
        }
    }

    /// Every immediate value of a reliable operation was delivered once, in order.
    fn check_immediates(&self, world: &World) {
        let delivered: Vec<u32> = world
            .received
            .completions
            .iter()
            .map(|completion| completion.immediate)
            .collect();
        assert_eq!(delivered, self.immediates);
    }
}

fn run(seed: u64, faults: Faults) -> (World, Load) {
    let mut world = World::new(seed, faults);
    let mut load = Load::new(seed);
    world.connect();
    for _ in 0..200 {
        load.burst(&mut world, 20);
        world.pass(50 * MICRO);
    }
    world.settle();
    world.check_counters();
    load.check(&world);
    (world, load)
}

#[test]
fn over_a_good_network_everything_arrives_and_nothing_is_sent_twice() {
    let (world, load) = run(1, Faults::default());
    load.check_counters(&world);
    load.check_immediates(&world);
    let (links, responder) = (world.links.stats(0).unwrap(), world.responder.stats());
    assert_eq!((links.retransmitted, links.timeouts), (0, 0));
    assert_eq!(links.frames, responder.executed);
    assert_eq!(responder.duplicates + responder.dropped.iter().sum::<u64>(), 0);
    // Far fewer acknowledgements than writes.
    assert!(
        responder.acks * 4 < links.reliable - links.fetch_adds,
        "{} of {}",
        responder.acks,
        links.reliable
    );
}

#[test]
fn reliable_operations_arrive_once_despite_loss_duplication_delay_and_corruption() {
    for seed in 0..20 {
        let faults = Faults {
            lost: 20,
            doubled: 20,
            late: 20,
            damaged: 20,
        };
        let (world, load) = run(seed, faults);
        load.check_counters(&world);
        load.check_immediates(&world);
        assert!(world.links.stats(0).unwrap().retransmitted > 0);
        assert!(world.responder.stats().duplicates > 0);
        assert_eq!(world.reconnects, 1, "seed {seed}");
    }
}

#[test]
fn every_lost_unreliable_write_is_counted() {
    let mut world = World::new(
        7,
        Faults {
            lost: 50,
            ..Faults::default()
        },
    );
    world.connect();
    for number in 0..5000_u64 {
        world
            .links
            .write(LOSSY, number * 8 % 8000, &number.to_le_bytes(), None, false)
            .unwrap();
        world.send();
    }
    // The last one reveals to the responder how many were sent.
    world.net.faults = Faults::default();
    world.links.write(LOSSY, 0, &[1; 8], None, false).unwrap();
    world.send();
    world.settle();
    let (links, responder) = (world.links.stats(0).unwrap(), world.responder.stats());
    let lost = world.net.counts[1].lost;
    assert!(lost > 100);
    assert_eq!(links.unreliable, responder.executed + lost);
    assert_eq!(responder.skipped - responder.out_of_order_by, lost);
    world.check_counters();
}

#[test]
fn reordered_and_duplicated_frames_are_distinguished_from_lost_ones() {
    let mut world = World::new(
        8,
        Faults {
            lost: 30,
            doubled: 30,
            late: 100,
            damaged: 0,
        },
    );
    world.connect();
    for number in 0..5000_u64 {
        world
            .links
            .write(LOSSY, number * 8 % 8000, &number.to_le_bytes(), None, false)
            .unwrap();
        world.send();
        world.pass(MICRO);
    }
    world.settle();
    world.net.faults = Faults::default();
    world.links.write(LOSSY, 0, &[1; 8], None, false).unwrap();
    world.send();
    world.settle();
    let counts = world.net.counts[1];
    let responder = world.responder.stats();
    assert!(counts.lost > 0 && counts.doubled > 0 && responder.out_of_order > 0);
    assert_eq!(
        responder.skipped as i64 - responder.out_of_order_by as i64,
        counts.lost as i64 - counts.doubled as i64
    );
    world.check_counters();
}

#[test]
fn a_loss_never_widens_the_window() {
    for window in [1, 2, 15, 16, 17] {
        let everything = Faults {
            lost: 1000,
            ..Faults::default()
        };
        let config = Config {
            window,
            ..Config::default()
        };
        let mut world = World::with(1, everything, config);
        world.connect();
        for slot in 0..64 {
            let written = world.links.write(KEPT, slot * SLOT, &[1; 24], None, true);
            assert_eq!(written, Ok(()));
        }
        let mut sent = 0;
        for _ in 0..4 {
            world.send();
            let frames = world.links.stats(0).unwrap().frames;
            assert!(frames - sent <= u64::from(window), "{window}: {}", frames - sent);
            sent = frames;
            world.pass(config.timeout);
        }
        assert!(world.links.stats(0).unwrap().timeouts > 0);
    }
}

#[test]
fn after_the_collector_restarts_all_buffered_requests_are_retransmitted() {
    for seed in 0..10 {
        let mut world = World::new(
            seed,
            Faults {
                lost: 10,
                doubled: 10,
                late: 10,
                damaged: 10,
            },
        );
        let mut load = Load::new(seed);
        world.connect();
        for round in 0..200 {
            load.burst(&mut world, 10);
            world.pass(200 * MICRO);
            if round % 50 == 25 {
                world.restart_responder();
            }
        }
        world.settle();
        world.check_counters();
        load.check(&world);
        let stats = world.links.stats(0).unwrap();
        assert_eq!(stats.broken, world.reconnects - 1);
        assert!(stats.broken > 0 && stats.uncertain_fetch_adds > 0);
        // The requester cannot know which additions were executed: counters may be too large, never too small, and at most as
        // many as are counted.
        let wrong: Vec<u64> = (0..)
            .zip(&load.counters)
            .map(|(counter, value)| {
                world
                    .u64_at(0, COUNTERS_AT + counter * 8)
                    .checked_sub(*value)
                    .unwrap()
            })
            .filter(|excess| *excess > 0)
            .collect();
        assert!(
            wrong.len() as u64 <= stats.uncertain_fetch_adds,
            "{} of {}",
            wrong.len(),
            stats.uncertain_fetch_adds
        );
        assert!(
            world.received.completions.len() as u64
                <= load.immediates.len() as u64 + stats.uncertain_immediates
        );
    }
}

#[test]
fn a_cut_cable_loses_no_reliable_operation() {
    for (seed, remembers) in [(1, true), (2, true), (3, false)] {
        let mut world = World::new(
            seed,
            Faults {
                lost: 5,
                ..Faults::default()
            },
        );
        world.remembers = remembers;
        let mut load = Load::new(seed);
        world.connect();
        for round in 0..100 {
            world.net.cut = (40..60).contains(&round);
            load.burst(&mut world, 20);
            world.pass(MILLI);
        }
        world.settle();
        world.check_counters();
        load.check(&world);
        let stats = world.links.stats(0).unwrap();
        assert!(stats.broken > 0);
        if remembers {
            load.check_counters(&world);
            load.check_immediates(&world);
            assert_eq!((stats.uncertain_fetch_adds, stats.uncertain_immediates), (0, 0));
        } else {
            assert!(stats.uncertain_fetch_adds > 0);
        }
    }
}

#[test]
fn uncertain_additions_can_be_given_up_instead() {
    let config = rdma::requester::Config {
        uncertain_fetch_adds: UncertainFetchAdds::GiveUp,
        timeout: MILLI,
        ..Default::default()
    };
    let mut world = World::with(5, Faults::default(), config);
    world.remembers = false;
    world.connect();
    let mut sum = 0;
    for round in 0..60_u64 {
        world.net.cut = (20..40).contains(&round);
        for delta in 1..5 {
            sum += u64::from(world.links.add(KEPT, 0, delta, None).is_ok()) * delta;
        }
        world.send();
        world.pass(MILLI);
    }
    world.settle();
    world.check_counters();
    let stats = world.links.stats(0).unwrap();
    assert!(stats.given_up[2] > 0 && stats.uncertain_fetch_adds == 0);
    assert!(world.u64_at(0, 0) < sum);
    assert_eq!(stats.reliable, stats.acknowledged + stats.given_up[2]);
}

#[test]
fn retransmissions_for_removed_regions_are_not_written_to_new_ones() {
    let mut world = World::new(5, Faults::default());
    world.connect();
    world.net.cut = true;
    for place in [KEPT, LOSSY, KEPT] {
        world.links.write(place, 0, &[7; 8], None, true).unwrap();
    }
    world.send();
    world.net.cut = false;
    world.links.give_up(KEPT);
    // Later operations are for the new memory.
    world.links.write(KEPT, 8, &[9; 8], None, true).unwrap();
    world.restart_responder();
    world.connect();
    world.send();
    world.settle();
    world.check_counters();
    let found = [(0, 0), (0, 8), (1, 0)].map(|(region, offset)| world.u64_at(region, offset));
    let (stats, no_place) = (
        world.links.stats(0).unwrap(),
        rdma::requester::GivenUp::NoPlace as usize,
    );
    assert_eq!(found, [0, u64::from_le_bytes([9; 8]), u64::from_le_bytes([7; 8])]);
    assert_eq!(
        (stats.reliable, stats.acknowledged, stats.given_up[no_place]),
        (4, 2, 2)
    );
}

#[test]
fn a_full_receive_queue_makes_the_links_wait() {
    let mut world = World::new(3, Faults::default());
    world.receives = 3;
    world.connect();
    for number in 0..10_u32 {
        world
            .links
            .write(
                KEPT,
                8 * u64::from(number),
                &[number as u8; 8],
                Some(number),
                true,
            )
            .unwrap();
    }
    world.send();
    world.pass(10 * MILLI);
    assert_eq!(world.received.completions.len(), 3);
    let stats = *world.links.stats(0).unwrap();
    // Retried every 1.28 ms, not in between.
    assert!(
        (5..10).contains(&stats.responses[Response::ReceiverNotReady as usize]),
        "{stats:?}"
    );
    let queue_pair = world.queue_pair.unwrap();
    world.responder.replenish(queue_pair, 7);
    world.settle();
    let delivered: Vec<u32> = world
        .received
        .completions
        .iter()
        .map(|completion| completion.immediate)
        .collect();
    assert_eq!(delivered, (0..10).collect::<Vec<_>>());
    assert_eq!(world.responder.receives(queue_pair), Some(0));
    world.check_counters();
}

#[test]
fn a_closed_region_breaks_the_connection_and_is_given_up() {
    let mut world = World::new(4, Faults::default());
    world.connect();
    let rkey = world.registered[1].rkey;
    assert!(world.responder.deregister(rkey));
    world.links.write(LOSSY, 0, &[1; 8], None, true).unwrap();
    world.links.write(KEPT, 0, &[2; 8], None, true).unwrap();
    world.send();
    world.settle();
    world.check_counters();
    let stats = world.links.stats(0).unwrap();
    assert_eq!(stats.broken, 2);
    assert_eq!(stats.given_up, [1, 0, 0]);
    assert_eq!(stats.acknowledged, 1);
    assert_eq!(world.u64_at(0, 0), 0x0202_0202_0202_0202);
}
