//! The joiner on simulated networks: every joined path is true, and nearly all provable paths are joined.

mod sim;

use self::sim::{Faults, Outcome, Plan, Route};
use super::set::{SfRecord, order};
use super::{JoinOutput, Joiner, Priority, Reason, SfReport};
use crate::config::{JoinConfig, Units};
use crate::decode::{Head, ReadHops, Reading};
use crate::stats::{JoinStats, Unadmitted};
use wire::FlowKey;

/// Runs a plan, asserts that no false path was joined, and returns the outcome.
fn run(plan: &Plan) -> Outcome {
    let outcome = plan.run();
    let first = outcome.false_ones.first();
    assert!(
        first.is_none(),
        "{} false, such as {first:?}, in {plan:?}",
        outcome.false_ones.len()
    );
    outcome
}

fn partial(stats: &JoinStats, reason: Reason) -> u64 {
    stats.partial[reason as usize].sets
}

/// One in this many packets has a complete set, by number of nodes from 2 on (wire-formats section 3.5).
const ONE_IN: [u64; 7] = [1, 2, 4, 4, 8, 8, 8];

fn lengths() -> impl Iterator<Item = (u32, u64)> {
    (2..).zip(ONE_IN)
}

#[test]
fn without_loss_all_sets_are_joined_that_the_rules_make_whole() {
    for (nodes, one_in) in lengths() {
        let config = JoinConfig {
            hop_limit: Some(16),
            confirmations: 1,
            ..JoinConfig::default()
        };
        let plan = Plan {
            config,
            ..Plan::line(nodes)
        };
        let outcome = run(&plan);
        // The last one may still be in flight.
        assert!(
            plan.packets / one_in - outcome.whole[0] <= 1,
            "{nodes} nodes: {:?}",
            outcome.stats
        );
        assert_eq!(outcome.latest[&0], (1..=nodes).collect::<Vec<_>>());
    }
}

#[test]
fn learning_costs_only_the_first_sets() {
    // Nothing can be learned from paths of two nodes: all their packets are of state Medium.
    assert_eq!(run(&Plan::line(2)).stats.complete.sets, 0);
    for (nodes, one_in) in lengths().skip(1) {
        let plan = Plan::line(nodes);
        let outcome = run(&plan);
        let missed = plan.packets / one_in - outcome.whole[0];
        assert!(
            missed * one_in <= 64 + 2 * one_in,
            "{nodes} nodes: {missed} missed"
        );
        assert_eq!(partial(&outcome.stats, Reason::Unconfirmed), 1);
    }
}

/// Asserts that with these faults at least this share of the sets is still found, per thousand, by number of nodes from 2 on.
fn assert_yield(faults: Faults, at_least: [u64; 7]) {
    for ((nodes, one_in), least) in lengths().zip(at_least) {
        for seed in 1..=3 {
            let hop_limit = (nodes == 2).then_some(16);
            let config = JoinConfig {
                hop_limit,
                ..JoinConfig::default()
            };
            let plan = Plan {
                seed,
                packets: 20_000,
                config,
                ..Plan::line(nodes).faulty(faults)
            };
            let outcome = run(&plan);
            let share = outcome.whole[0] * one_in * 1000 / plan.packets;
            assert!(
                share >= least,
                "{nodes} nodes, seed {seed}: {share} of 1000, {faults:?}"
            );
        }
    }
}

#[test]
fn lost_packets_cost_what_they_must() {
    assert_yield(
        Faults {
            loss: 1_000,
            ..Faults::default()
        },
        [990, 985, 980, 975, 970, 965, 955],
    );
    assert_yield(
        Faults {
            loss: 10_000,
            ..Faults::default()
        },
        [980, 955, 915, 860, 820, 770, 710],
    );
    assert_yield(
        Faults {
            loss: 50_000,
            ..Faults::default()
        },
        [930, 830, 700, 510, 420, 290, 180],
    );
}

#[test]
fn packets_that_change_places_cost_sets_but_no_truth() {
    assert_yield(
        Faults {
            swap: 10_000,
            ..Faults::default()
        },
        [990, 970, 930, 880, 830, 760, 700],
    );
}

#[test]
fn records_recover_after_registers_are_wiped() {
    assert_yield(
        Faults {
            wipe: 1_000,
            ..Faults::default()
        },
        [990, 985, 980, 970, 970, 960, 950],
    );
}

#[test]
fn reports_that_change_places_or_come_twice_cost_nothing() {
    let faults = Faults {
        report_swap: 50_000,
        report_duplicate: 20_000,
        ..Faults::default()
    };
    assert_yield(faults, [990, 985, 980, 980, 980, 980, 980]);
}

#[test]
fn lost_reports_cost_their_sets() {
    assert_yield(
        Faults {
            report_loss: 10_000,
            ..Faults::default()
        },
        [980, 965, 955, 940, 930, 920, 910],
    );
}

#[test]
fn combined_faults_never_produce_a_wrong_join() {
    let faults = Faults {
        loss: 10_000,
        swap: 10_000,
        duplicate: 5_000,
        report_loss: 10_000,
        report_swap: 20_000,
        report_duplicate: 10_000,
        wipe: 500,
    };
    for synchronised in [false, true] {
        for seed in 0..6 {
            for nodes in 2..=8 {
                let hop_limit = (nodes == 2 || seed % 2 == 0).then_some(16);
                let config = JoinConfig {
                    hop_limit,
                    ..JoinConfig::default()
                };
                let line = Plan::line(nodes).faulty(faults);
                let plan = Plan {
                    seed,
                    synchronised,
                    packets: 20_000,
                    config,
                    ..line
                };
                assert!(run(&plan).whole[0] > 100, "{nodes} nodes");
            }
        }
    }
}

#[test]
fn a_path_that_changes_is_followed() {
    let paths = vec![
        vec![1, 2, 3, 4, 9],
        vec![1, 5, 3, 4, 9],
        vec![1, 5, 9],
        vec![1, 2, 6, 7, 3, 4, 9],
    ];
    for faults in [
        Faults::default(),
        Faults {
            loss: 10_000,
            swap: 5_000,
            ..Faults::default()
        },
    ] {
        let route = Route {
            paths: paths.clone(),
            which: |number| (number / 3000 % 4) as usize,
        };
        let plan = Plan {
            flows: vec![route],
            packets: 23_000,
            ..Plan::line(2).faulty(faults)
        };
        let outcome = run(&plan);
        assert_eq!(outcome.latest[&0], paths[3]);
        assert!(outcome.whole[0] > 4_000, "{}", outcome.whole[0]);
    }
}

#[test]
fn a_flow_that_goes_two_ways_at_once_has_two_true_paths() {
    // Alternates every three packets, which makes shared registers lose records.
    let route = Route {
        paths: vec![vec![1, 2, 9], vec![1, 3, 9]],
        which: |number| (number / 3 % 2) as usize,
    };
    let plan = Plan {
        flows: vec![route],
        ..Plan::line(2)
    };
    assert!(run(&plan).whole[0] > 2_000);
}

#[test]
fn an_order_that_changes_for_good_is_followed_too() {
    let paths = vec![vec![1, 2, 3, 4, 9], vec![1, 3, 2, 4, 9]];
    let route = Route {
        paths: paths.clone(),
        which: |number| usize::from(number >= 5000),
    };
    let outcome = run(&Plan {
        flows: vec![route],
        ..Plan::line(2)
    });
    assert_eq!(outcome.latest[&0], paths[1]);
}

#[test]
fn flows_that_share_registers_lose_sets_but_no_truth() {
    let flows = |count: usize| -> Vec<Route> {
        (0..count)
            .map(|flow| {
                let sink = 90 + (flow % 3) as u32;
                Route {
                    paths: vec![vec![10 + (flow % 4) as u32, 2, 3, sink]],
                    which: |_| 0,
                }
            })
            .collect()
    };
    let many = Plan {
        flows: flows(12),
        packets: 3_000,
        ..Plan::line(2)
    };
    let apart = run(&many);
    assert!(apart.whole.iter().all(|whole| *whole > 650), "{:?}", apart.whole);
    let sum = |outcome: &Outcome| outcome.whole.iter().sum::<u64>();
    for hop_limit in [None, Some(16)] {
        let config = JoinConfig {
            hop_limit,
            ..JoinConfig::default()
        };
        for registers in [1, 4, 16, 64] {
            let crowded = run(&Plan {
                registers,
                config,
                ..many.clone()
            });
            assert!(sum(&crowded) < sum(&apart) + 20);
        }
    }
}

#[test]
fn a_register_that_always_belongs_to_another_flow_makes_no_shorter_path() {
    // Both flows always lose the source's record at node 2. The rest looks like whole paths that begin there; but a third flow
    // shows the initial hop count.
    let route = |path: Vec<u32>| Route {
        paths: vec![path],
        which: |_| 0,
    };
    let flows = vec![
        route(vec![1, 2, 3, 4, 9]),
        route(vec![1, 2, 3, 4, 9]),
        route(vec![7, 8, 9]),
    ];
    let outcome = run(&Plan {
        flows,
        registers: 1,
        packets: 3_000,
        ..Plan::line(2)
    });
    assert_eq!(outcome.whole[..2], [0, 0]);
    assert!(outcome.whole[2] > 1_400);
}

#[test]
fn a_hop_count_that_is_used_up_makes_no_path() {
    let plan = Plan {
        hop_limit: 4,
        ..Plan::line(6)
    };
    let outcome = run(&plan);
    assert_eq!(outcome.whole[0], 0);
    assert!(partial(&outcome.stats, Reason::HopLimit) > 100);
}

#[test]
fn nodes_that_do_not_count_make_no_path() {
    for nodes in 3..=8 {
        for hop_limit in [None, Some(16)] {
            let config = JoinConfig {
                hop_limit,
                ..JoinConfig::default()
            };
            let plan = Plan {
                counting: false,
                config,
                ..Plan::line(nodes)
            };
            assert_eq!(run(&plan).whole[0], 0, "{nodes} nodes, {hop_limit:?}");
        }
    }
}

#[test]
fn a_wrongly_configured_hop_limit_makes_no_path_or_gives_way() {
    let with = |hop_limit| {
        let config = JoinConfig {
            hop_limit: Some(hop_limit),
            ..JoinConfig::default()
        };
        run(&Plan {
            config,
            ..Plan::line(5)
        })
    };
    assert_eq!(with(17).whole[0], 0);
    assert!(with(15).whole[0] > 2_400, "learned instead");
    assert!(with(16).whole[0] > 2_400);
}

#[test]
fn packet_ids_that_come_again_are_distinguished() {
    // 200,000 packets within the timeout: each packet ID is used three times.
    let plan = Plan {
        packets: 200_000,
        gap: 400,
        ..Plan::line(3)
    };
    let faults = Faults {
        loss: 10_000,
        report_loss: 10_000,
        swap: 5_000,
        ..Faults::default()
    };
    for seed in 1..3 {
        assert!(
            run(&Plan {
                seed,
                ..plan.clone().faulty(faults)
            })
            .whole[0]
                > 85_000
        );
    }
}

#[test]
fn sets_that_never_close_end_in_time_and_all_is_accounted_for() {
    // A packet every 0.7 s: no set of five nodes is whole within a second.
    let plan = Plan {
        gap: 700_000_000,
        packets: 200,
        ..Plan::line(5)
    };
    let outcome = run(&plan);
    assert_eq!(outcome.whole[0], 0);
    assert!(
        partial(&outcome.stats, Reason::Timeout) > 20,
        "{:?}",
        outcome.stats
    );
}

#[test]
fn too_few_slots_lose_sets_and_are_counted() {
    let route = |flow: u32| Route {
        paths: vec![vec![1, 2, 3, 4, 90 + flow]],
        which: |_| 0,
    };
    let flows: Vec<_> = (0..30).map(route).collect();
    for (max_flows, max_sets) in [(8, 64), (64, 8)] {
        let config = JoinConfig {
            max_sets,
            max_flows,
            ..JoinConfig::default()
        };
        let plan = Plan {
            flows: flows.clone(),
            packets: 500,
            config,
            ..Plan::line(2)
        };
        let outcome = run(&plan);
        if max_sets == 8 {
            assert!(
                partial(&outcome.stats, Reason::Evicted) > 500,
                "{:?}",
                outcome.stats
            );
        } else {
            // Eight flows are joined, and the others wait until one of those is idle.
            let unadmitted = outcome.stats.unadmitted[Unadmitted::TableFull as usize];
            assert!(
                unadmitted > 20_000 && outcome.stats.complete.sets > 900,
                "{:?}",
                outcome.stats
            );
        }
        let [flows, sets] = outcome.tables;
        assert_eq!(
            (flows.capacity, sets.capacity, sets.used),
            (max_flows as u64, max_sets as u64, 0)
        );
        assert_eq!(
            (flows.refused > 0, sets.evicted > 0),
            (max_flows == 8, max_sets == 8)
        );
    }
}

#[test]
fn a_flood_of_flows_pushes_out_nothing_that_is_busy() {
    let key = |flow: u32| FlowKey::v4(flow.to_be_bytes(), [10, 0, 0, 1], Some((1, 2)), 6);
    let config = JoinConfig {
        max_flows: 64,
        max_sets: 64,
        hop_limit: Some(16),
        ..JoinConfig::default()
    };
    let mut joiner = Joiner::new(config, 1);
    let mut paths = Paths(0);
    for at in 0..40_000_u32 {
        // One report in fifty is of the busy flow, source and sink; the others open sets that never become whole.
        let busy = at % 50 == 0;
        let key = key(if busy { 1 } else { at.wrapping_mul(2_654_435_761) });
        let record = |node| SfRecord {
            reading: Reading {
                node,
                ..Reading::NOTHING
            },
            order: order(at, 0),
            remaining: if busy { 15 } else { 9 },
            ..SfRecord::NOTHING
        };
        let mut head = Head {
            hash: key.hash(1),
            ..Head::none()
        };
        (head.about.has_flow, head.about.key) = (true, key);
        head.about.ts = 1_000_000_000 + u64::from(at) * 10_000;
        let report = SfReport {
            head: &head,
            priority: Priority::Medium,
            packet_id: at as u16,
            exceeded: false,
            carried: record(1),
            sink_record: Some(record(2)),
            units: Units::NONE,
        };
        joiner.apply(&report, &mut paths);
    }
    let stats = joiner.stats();
    assert!(stats.balance().is_balanced(), "{stats:?}");
    assert!(paths.0 >= 795, "{} of 800: {stats:?}", paths.0);
    assert_eq!(joiner.tables()[0].used, 64);
}

struct Paths(u64);

impl JoinOutput for Paths {
    fn path(&mut self, _: &Head, _: ReadHops<'_>) {
        self.0 += 1;
    }
    fn nodes(&mut self, _: &Head, _: ReadHops<'_>) {}
}

#[test]
fn paths_that_are_too_long_are_counted_as_such() {
    let config = JoinConfig {
        max_nodes: 5,
        ..JoinConfig::default()
    };
    let outcome = run(&Plan {
        config,
        ..Plan::line(6)
    });
    assert_eq!(outcome.whole[0], 0);
    assert!(
        partial(&outcome.stats, Reason::TooLong) > 500,
        "{:?}",
        outcome.stats
    );
    let config = JoinConfig {
        max_nodes: 6,
        ..JoinConfig::default()
    };
    assert!(
        run(&Plan {
            config,
            ..Plan::line(6)
        })
        .whole[0]
            > 1_000
    );
}
