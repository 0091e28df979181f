use dataplane::fabric::{
    Action, Config, Fabric, FabricSink, FlowId, FlowSpec, GroundTruth, Pattern, Topology, Wire,
};
use testkit::rng::Rng;

use super::*;

fn flow(port: u16) -> FlowKey {
    format!("10.0.0.1:{port}>10.0.0.2:80/17").parse().unwrap()
}

fn passage(ts: Nanos, port: u16, occupancy: u64, latency: u64) -> Passage {
    let (occupancy, latency) = (Some(occupancy), Some(latency));
    Passage {
        ts,
        flow: Some(flow(port)),
        occupancy,
        latency,
        weight: 1,
    }
}

#[test]
fn the_flow_that_filled_the_queue_comes_first_and_the_one_that_waited_is_named() {
    // Flow 1 is steady and has most packets; flow 2 sends 20 at once; flow 3 comes when the queue is full.
    let mut passages: Vec<Passage> = (0..50).map(|at| passage(at * 100, 1, 2, 10)).collect();
    for at in 0..20 {
        passages.push(passage(5_000 + at * 10, 2, 5 + at * 5, at * 10));
    }
    passages.push(passage(5_250, 3, 90, 240));
    passages.push(passage(5_260, 1, 40, 120));
    let burst = analyse(passages);
    assert_eq!(burst.peak, Some((5_190, Some(100))));
    assert_eq!(burst.begun, 5_010);
    let order: Vec<_> = burst
        .flows
        .iter()
        .map(|part| (part.flow, part.rise, part.reports))
        .collect();
    assert_eq!(order[0], (Some(flow(2)), 18, 20));
    assert_eq!(order.len(), 3);
    let of = |port| {
        burst
            .flows
            .iter()
            .find(|part| part.flow == Some(flow(port)))
            .unwrap()
    };
    // It entered at 5,010, when the burst's last packet entered at 5,000.
    assert_eq!((of(3).rise, of(3).longest, of(3).waited), (0, Some(240), 240));
    assert_eq!((of(1).longest, of(1).first, of(1).last), (Some(120), 0, 5_260));
    assert_eq!(burst.reports, 72);
}

#[test]
fn weights_count_and_missing_values_are_missing() {
    assert_eq!(analyse(Vec::new()), Burst::default());
    let blank = Passage {
        ts: 7,
        flow: None,
        occupancy: None,
        latency: None,
        weight: 4,
    };
    let burst = analyse(vec![blank]);
    let part = FlowShare {
        flow: None,
        rise: 4,
        reports: 4,
        longest: None,
        waited: 0,
        first: 7,
        last: 7,
    };
    let expected = Burst {
        peak: Some((7, None)),
        begun: 7,
        rise: 4,
        reports: 4,
        flows: vec![part],
    };
    assert_eq!(burst, expected);
    // Without the occupancy, the longest time inside is the peak.
    let times = [(10, 5), (20, 500), (30, 50)];
    let passages = times
        .map(|(ts, latency)| Passage {
            occupancy: None,
            ..passage(ts, 1, 0, latency)
        })
        .to_vec();
    assert_eq!(analyse(passages).peak, Some((20, None)));
}

/// The packets that pass each queue of a fabric.
#[derive(Default)]
struct Passing(HashMap<(u32, u16), Vec<Passage>>);

impl FabricSink for Passing {
    fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
        let GroundTruth::Delivered(trace) = truth else {
            return;
        };
        for hop in trace.hops {
            let (occupancy, latency) = (Some(hop.queue_occupancy.into()), Some(hop.hop_latency()));
            let flow = Some(trace.flow);
            let passage = Passage {
                ts: hop.egress_ts(),
                flow,
                occupancy,
                latency,
                weight: 1,
            };
            self.0.entry((hop.node, hop.egress_if)).or_default().push(passage);
        }
    }
}

const SECOND: Nanos = 1_000_000_000;

/// A leaf–spine network with a steady flow from each host to each other one.
fn network(seed: u64) -> Fabric {
    let wire = Wire {
        rate: 100_000_000,
        delay: 5_000,
        depth: 131_072,
    };
    let topology = Topology::leaf_spine(4, 2, 2, wire).unwrap();
    let mut fabric = Fabric::new(topology, Config::default(), seed).unwrap();
    let hosts = 10_001..=10_008u32;
    for from in hosts.clone() {
        for to in hosts.clone().filter(|to| *to != from) {
            let port = 20_000 + (from * 8 + to) as u16;
            let pattern = Pattern::poisson(150);
            let spec = FlowSpec {
                payload: 600,
                pattern,
                ..FlowSpec::new(from, to, port, 5_000)
            };
            fabric.add_flow(&spec).unwrap();
        }
    }
    fabric
}

#[test]
fn bursts_of_random_hosts_are_told_from_the_traffic_around_them() {
    let mut rng = Rng(18);
    for round in 0..40 {
        let mut fabric = network(round);
        let to = 10_001 + rng.below(8) as u32;
        // At least two senders behind other leaves: one alone fills no queue, because all links have the same rate.
        let mut others: Vec<u32> = (10_001..=10_008)
            .filter(|host| (host - 10_001) / 2 != (to - 10_001) / 2)
            .collect();
        let count = 2 + rng.below(4);
        let senders: Vec<u32> = (0..count)
            .map(|_| others.swap_remove(rng.below(others.len())))
            .collect();
        let flows: Vec<FlowId> = senders
            .iter()
            .map(|from| {
                let spec = FlowSpec {
                    pattern: Pattern::Idle,
                    payload: 1_000,
                    ..FlowSpec::new(*from, to, 7_000, 9_000)
                };
                fabric.add_flow(&spec).unwrap()
            })
            .collect();
        for flow in flows {
            fabric
                .schedule(
                    SECOND / 2,
                    Action::Burst {
                        flow,
                        packets: 60,
                        gap: 0,
                    },
                )
                .unwrap();
        }
        let mut passing = Passing::default();
        fabric.run_until(SECOND, &mut passing);
        // Where they meet: in front of the receiver, or at the spine that two of them were sent over.
        let deepest = |passages: &Vec<Passage>| passages.iter().map(|passage| passage.occupancy).max();
        let burst = analyse(passing.0.into_values().max_by_key(deepest).unwrap());
        let of_burst = |part: &&FlowShare| part.flow.is_some_and(|flow| flow.dst_port() == Some(9_000));
        let guilty = burst.flows.iter().filter(of_burst).count();
        let first = &burst.flows[..guilty];
        assert!(
            (2..=count).contains(&guilty),
            "round {round}: {senders:?} to {to}: {burst:?}"
        );
        assert!(
            first.iter().all(|part| of_burst(&part)),
            "round {round}: {senders:?} to {to}: {burst:?}"
        );
        let share: u64 = first.iter().map(|part| part.rise).sum();
        assert!(
            share * 10 >= burst.rise * 9,
            "round {round}: {share} of {}",
            burst.rise
        );
    }
}
