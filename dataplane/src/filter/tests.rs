use std::sync::Arc;

use detect::detector::Change;
use detect::{Program, RuleSet};
use wire::Profile;

use super::*;
use crate::fabric::{Family, Transport};
use crate::report::{Format, Outbox, Version};
use crate::switch::tests::{decoded, frame, visit};
use crate::switch::{Config, Congestion, Stats, Switch, Verdict, Visit};
use crate::watchlist::{Mode, Role, Roles, Watch, Watchlist};

const ALL: Match = Match {
    src: None,
    dst: None,
    src_port: detect::PortRange::ANY,
    dst_port: detect::PortRange::ANY,
    proto: None,
};

fn filter(algorithm: Algorithm, metric: Metric, threshold: u64) -> Filter {
    Filter {
        flows: ALL,
        detector: Detector {
            algorithm,
            metric,
            threshold,
        },
    }
}

fn per_hop(threshold: u64) -> Filter {
    filter(Algorithm::PerHop, Metric::QueueOccupancy, threshold)
}

fn filters(list: &[Filter]) -> Filters {
    Filters::new(list.to_vec(), 64, Units::default()).unwrap()
}

/// Three switches in a row, of which the last has the filters.
struct Row {
    switches: Vec<Switch>,
    outbox: Outbox,
}

impl Row {
    fn new(config: &Config, watch: Watch, list: &[Filter]) -> Self {
        let switch = |node| Switch::new(node, config.clone(), watch.into()).unwrap();
        let mut switches: Vec<_> = (1..=3).map(switch).collect();
        switches[2].set_filters(filters(list));
        Self {
            switches,
            outbox: Outbox::default(),
        }
    }

    /// Sends a packet that finds these queues. Returns the number of reports.
    fn send(&mut self, queues: [u32; 3]) -> usize {
        self.send_of(Family::V4, queues)
    }

    fn send_of(&mut self, family: Family, queues: [u32; 3]) -> usize {
        let original = frame(family, Transport::Udp, 100);
        let mut packet = original.clone();
        self.outbox.clear();
        for (at, switch) in self.switches.iter_mut().enumerate() {
            let queue_occupancy = queues[at];
            let visit = Visit {
                from_edge: at == 0,
                to_edge: at == 2,
                queue_occupancy,
                ..visit(at as u32 + 1)
            };
            assert_eq!(
                switch.forward(&mut packet, &visit, &mut self.outbox).verdict,
                Verdict::Forward
            );
        }
        assert_eq!(packet, original, "as it came, whether it is reported or not");
        self.outbox.datagrams().count()
    }

    fn course(&mut self, packets: &[[u32; 3]]) -> Vec<usize> {
        packets.iter().map(|queues| self.send(*queues)).collect()
    }

    fn sink(&self) -> Stats {
        let stats = *self.switches[2].stats();
        let Stats {
            plain,
            refused,
            recorded,
            hops_exceeded,
            mtu_exceeded,
            reported,
            filtered,
            ..
        } = stats;
        let counted: u64 = self.switches[2]
            .filters()
            .entries()
            .map(|(_, c)| c.decisions.iter().sum::<u64>())
            .sum();
        assert!(filtered <= counted && plain + refused + recorded + hops_exceeded + mtu_exceeded == 0);
        assert_eq!(filtered, self.hidden());
        assert!(reported + filtered >= counted);
        stats
    }

    fn hidden(&self) -> u64 {
        self.switches[2]
            .filters()
            .entries()
            .map(|(_, counts)| counts.of(Decision::Suppressed))
            .sum()
    }
}

#[test]
fn a_sink_reports_changes_beyond_the_threshold() {
    let formats = [
        Format::default(),
        Format {
            metadata_on_stack: true,
            ..Format::default()
        },
        Format {
            version: Version::V10,
            ..Format::default()
        },
        Format {
            version: Version::V10,
            metadata_on_stack: true,
            ..Format::default()
        },
    ];
    for (format, mode) in formats
        .into_iter()
        .flat_map(|f| [(f, Mode::Md21), (f, Mode::Md10)])
    {
        let config = Config {
            format,
            ..Config::default()
        };
        let watch = Watch {
            mode,
            ..Watch::new(ALL)
        };
        let packets = [
            [5, 5, 5],
            [5, 5, 15],
            [5, 5, 16],
            [16, 5, 16],
            [10, 10, 10],
            [5, 6, 7],
        ];
        let mut row = Row::new(&config, watch, &[per_hop(10)]);
        assert_eq!(
            row.course(&packets),
            [1, 0, 1, 1, 0, 1],
            "{format:?} {mode:?}: each node with itself"
        );
        assert_eq!((row.sink().reported, row.sink().filtered), (4, 2));
        let sum = filter(Algorithm::PerFlow, Metric::QueueOccupancy, 10);
        let mut row = Row::new(&config, watch, &[sum]);
        // 15, 25, 26, 37, 30, 18: reported are 15, 26, 37, 18.
        assert_eq!(
            row.course(&packets),
            [1, 0, 1, 1, 0, 1],
            "{format:?} {mode:?}: the sum"
        );
        // The sums of 700 ns each do not change.
        let latency = filter(Algorithm::PerFlow, Metric::FlowLatency, 0);
        let mut row = Row::new(&config, watch, &[latency]);
        assert_eq!(
            row.course(&packets),
            [1, 0, 0, 0, 0, 0],
            "{format:?} {mode:?}: latency"
        );
    }
}

#[test]
fn the_first_filter_that_matches_decides() {
    let v6 = Filter {
        flows: Match {
            src: Some("2001:db8::/32".parse().unwrap()),
            ..ALL
        },
        ..per_hop(1000)
    };
    let never = Filter {
        flows: Match {
            dst_port: "1".parse().unwrap(),
            ..ALL
        },
        ..per_hop(1000)
    };
    let mut row = Row::new(&Config::default(), Watch::new(ALL), &[v6.clone(), never]);
    assert_eq!(
        row.course(&[[1, 1, 1], [1, 1, 1], [1, 1, 1]]),
        [1, 1, 1],
        "none is for it"
    );
    let six = |row: &mut Row| {
        (0..3)
            .map(|_| row.send_of(Family::V6, [1, 1, 1]))
            .collect::<Vec<_>>()
    };
    assert_eq!(six(&mut row), [1, 0, 0]);
    let mut row = Row::new(&Config::default(), Watch::new(ALL), &[v6, per_hop(0)]);
    row.send([1, 1, 1]);
    assert_eq!(row.send([1, 1, 2]), 1, "the second");
}

#[test]
fn filters_change_while_it_runs_and_those_that_stay_remember() {
    let mut row = Row::new(&Config::default(), Watch::new(ALL), &[per_hop(10)]);
    assert_eq!(row.course(&[[5, 5, 5], [5, 5, 15]]), [1, 0]);
    let other = Filter {
        flows: Match {
            proto: Some(1),
            ..ALL
        },
        ..per_hop(3)
    };
    row.switches[2].set_filters(filters(&[other.clone(), per_hop(10)]));
    assert_eq!(
        row.course(&[[5, 5, 15], [5, 5, 16]]),
        [0, 1],
        "5 was the last value reported"
    );
    assert_eq!(row.sink().filtered, 2);
    row.switches[2].set_filters(filters(&[other.clone(), per_hop(3)]));
    assert_eq!(
        row.course(&[[5, 5, 13], [5, 5, 12]]),
        [0, 1],
        "16 was, whatever the threshold is now"
    );
    assert_eq!(row.sink().filtered, 3);
    row.switches[2].set_filters(filters(&[per_hop(3), per_hop(9)]));
    row.switches[2].set_filters(filters(&[per_hop(9), per_hop(3)]));
    assert_eq!(
        row.course(&[[5, 5, 16]]),
        [1],
        "equal filters first: 9 has the empty registers"
    );
    row.switches[2].set_filters(filters(&[other, per_hop(9)]));
    assert_eq!(row.course(&[[5, 5, 16]]), [0]);
    let sum = filter(Algorithm::PerFlow, Metric::QueueOccupancy, 9);
    row.switches[2].set_filters(filters(&[sum]));
    assert_eq!(
        row.course(&[[5, 5, 16], [5, 5, 16]]),
        [1, 0],
        "another algorithm begins anew"
    );
    row.switches[2].set_filters(filters(&[per_hop(9)]));
    assert_eq!(row.course(&[[5, 5, 16]]), [1]);
    let registers = Filters::new(vec![per_hop(9)], 128, Units::default()).unwrap();
    row.switches[2].set_filters(registers);
    assert_eq!(
        row.course(&[[5, 5, 16], [5, 5, 16]]),
        [1, 0],
        "so do other registers"
    );
    row.switches[2].set_filters(Filters::default());
    assert_eq!(row.course(&[[5, 5, 16], [5, 5, 16]]), [1, 1]);
}

#[test]
fn an_incomplete_path_is_always_reported() {
    let watch = Watch {
        hops: 2,
        ..Watch::new(ALL)
    };
    let on_stack = Config {
        format: Format {
            metadata_on_stack: true,
            ..Format::default()
        },
        ..Config::default()
    };
    let mut row = Row::new(&on_stack, watch, &[per_hop(10)]);
    assert_eq!(
        row.course(&[[1, 1, 1]; 3]),
        [1, 1, 1],
        "the sink's record finds no room"
    );
    assert_eq!(row.switches[2].stats().hops_exceeded, 3);
    let mut row = Row::new(&Config::default(), Watch { hops: 1, ..watch }, &[per_hop(10)]);
    assert_eq!(row.course(&[[1, 1, 1]; 3]), [1, 1, 1], "E is set on the path");
    assert_eq!((row.sink().reported, row.sink().filtered), (3, 0));
}

#[test]
fn postcards_and_mx_are_filtered_where_they_are_made() {
    for mode in [Mode::Mx21, Mode::Postcard] {
        let watch = Watch {
            mode,
            ..Watch::new(ALL)
        };
        let mut row = Row::new(&Config::default(), watch, &[per_hop(10)]);
        // The first two nodes report everything.
        assert_eq!(
            row.course(&[[5, 5, 5], [50, 5, 15], [5, 5, 16]]),
            [3, 2, 3],
            "{mode:?}"
        );
        assert_eq!((row.sink().reported, row.sink().filtered), (2, 1));
    }
}

#[test]
fn rules_and_changes_see_the_whole_path() {
    let rule = |text: &str| {
        let rules = RuleSet::compile(&[("r".into(), text.into())]).unwrap();
        filter(
            Algorithm::Rule(Arc::new(Program::new(&rules).unwrap())),
            Metric::FlowPath,
            0,
        )
    };
    let run = |filter: Filter, packets: &[[u32; 3]]| {
        Row::new(&Config::default(), Watch::new(ALL), &[filter]).course(packets)
    };
    let packets = [[1, 1, 1], [1, 60, 1], [1, 60, 1], [1, 1, 1], [1, 1, 1]];
    assert_eq!(
        run(rule("queue_occupancy@2 > 50 and hops == 3"), &packets),
        [1, 1, 1, 1, 0],
        "and the end"
    );
    assert_eq!(
        run(rule("change(sum(queue_occupancy)) > 50"), &packets),
        [1, 1, 1, 1, 1]
    );
    assert_eq!(
        run(rule("max(queue_occupancy) > 50 for 2"), &packets),
        [1, 0, 1, 1, 0]
    );
    assert_eq!(run(rule("flow_latency == 4200ns and not loop"), &packets), [1; 5]);
    let change = Change {
        latency_bits: 10,
        queue_bits: 4,
        keep_alive: u64::MAX,
    };
    let change = filter(Algorithm::Change(change), Metric::FlowPath, 0);
    assert_eq!(
        run(change, &[[1, 1, 1], [15, 1, 1], [16, 1, 1], [31, 1, 1]]),
        [1, 0, 1, 0]
    );
}

#[test]
fn a_role_goes_by_flow_and_may_change() {
    let mut switch = Switch::new(7, Config::default(), Watch::new(ALL).into()).unwrap();
    let mut outbox = Outbox::default();
    let original = frame(Family::V4, Transport::Udp, 50);
    let inside = visit(7);
    let mut run = |role: Option<Role>, packet: &[u8], switch: &mut Switch| {
        let udp = Match {
            proto: Some(17),
            ..ALL
        };
        switch.set_roles(Roles::new(role.map(|role| (udp, role)).into_iter().collect()));
        outbox.clear();
        let mut packet = packet.to_vec();
        switch.forward(&mut packet, &inside, &mut outbox);
        (packet, outbox.datagrams().count())
    };
    assert_eq!(
        run(None, &original, &mut switch),
        (original.clone(), 0),
        "a port inside the domain"
    );
    assert_eq!(
        run(Some(Role::Transit), &original, &mut switch),
        (original.clone(), 0)
    );
    let (carrying, reports) = run(Some(Role::Source), &original, &mut switch);
    assert!(carrying.len() > original.len() && reports == 0);
    let (longer, _) = run(Some(Role::Transit), &carrying, &mut switch);
    assert!(longer.len() > carrying.len());
    assert_eq!(
        run(Some(Role::Off), &carrying, &mut switch),
        (carrying.clone(), 0)
    );
    assert_eq!(run(Some(Role::Sink), &longer, &mut switch), (original.clone(), 1));
    assert_eq!(
        run(Some(Role::SourceAndSink), &original, &mut switch),
        (original.clone(), 1)
    );
    let tcp = frame(Family::V4, Transport::Tcp, 50);
    assert_eq!(
        run(Some(Role::SourceAndSink), &tcp, &mut switch),
        (tcp.clone(), 0),
        "not this flow"
    );
    let Stats {
        plain,
        recorded,
        reported,
        ..
    } = *switch.stats();
    assert_eq!((plain, recorded, reported), (4, 2, 2));
}

#[test]
fn a_congested_queue_reports_its_packets_up_to_the_quota_in_each_period() {
    for version in [Version::V20, Version::V10] {
        let congestion = Some(Congestion {
            rise: 500,
            fall: 200,
            quota: 2,
        });
        let format = Format {
            version,
            ..Format::default()
        };
        let config = Config {
            congestion,
            format,
            ..Config::default()
        };
        let mut switch = Switch::new(
            1,
            config,
            Watch::new(Match {
                proto: Some(1),
                ..ALL
            })
            .into(),
        )
        .unwrap();
        let mut seen = Vec::new();
        for queue_occupancy in [100, 500, 600, 300, 700, 800, 200, 499, 900, 901, 100] {
            let mut outbox = Outbox::default();
            let mut packet = frame(Family::V6, Transport::Udp, 50);
            switch.forward(
                &mut packet,
                &Visit {
                    queue_occupancy,
                    ..visit(1)
                },
                &mut outbox,
            );
            let datagrams: Vec<_> = outbox.datagrams().collect();
            assert!(datagrams.len() <= 1);
            if let Some(datagram) = datagrams.first() {
                let (hops, flow) = decoded(datagram.payload, Profile::default());
                assert_eq!(hops[0].queue_occupancy, Some(queue_occupancy));
                seen.push((queue_occupancy, !flow.is_empty()));
            }
        }
        let wanted = [
            (500, false),
            (600, true),
            (300, true),
            (200, false),
            (900, false),
            (901, true),
            (100, false),
        ];
        assert_eq!(seen, wanted, "{version:?}: rise, quota, fall; and again");
        assert_eq!(
            (switch.stats().queues_reported, switch.stats().congested_reported),
            (4, 3)
        );
        assert_eq!(switch.stats().plain, 11);
    }
}

#[test]
fn queue_thresholds_may_change_at_run_time() {
    let limits = |rise, fall, quota| Some(Congestion { rise, fall, quota });
    let mut switch = Switch::new(1, Config::default(), Watchlist::default()).unwrap();
    let mut decoded = |congestion: Option<Congestion>, occupancies: &[u32]| -> Vec<u32> {
        if switch.set_congestion(congestion).is_err() {
            return vec![u32::MAX];
        }
        let mut reports = |queue_occupancy: &u32| {
            let mut outbox = Outbox::default();
            let mut packet = frame(Family::V4, Transport::Udp, 50);
            switch.forward(
                &mut packet,
                &Visit {
                    queue_occupancy: *queue_occupancy,
                    ..visit(1)
                },
                &mut outbox,
            );
            outbox.datagrams().next().is_some()
        };
        occupancies
            .iter()
            .copied()
            .filter(|occupancy| reports(occupancy))
            .collect()
    };
    assert!(decoded(None, &[900]).is_empty());
    assert_eq!(decoded(limits(500, 200, 9), &[900, 800]), [900, 800]);
    // A quota of eight remained.
    assert_eq!(decoded(limits(600, 100, 1), &[700, 701, 702]), [700]);
    assert_eq!(decoded(limits(600, 600, 1), &[]), [u32::MAX]);
    assert_eq!(decoded(limits(600, 100, 5), &[703, 150, 100]), [100]);
    assert_eq!(decoded(limits(600, 100, 0), &[700]), [700]);
    // The state is cleared: the same queue is reported as congested again.
    assert!(decoded(None, &[700]).is_empty());
    assert_eq!(decoded(limits(600, 100, 0), &[700, 701]), [700]);
}

#[test]
fn contradictory_settings_are_refused_with_their_position() {
    let bad = filter(Algorithm::PerHop, Metric::FlowLatency, 0);
    let refused = |list: Vec<Filter>| Filters::new(list, 64, Units::default()).unwrap_err().to_string();
    assert_eq!(
        refused(vec![per_hop(1), bad]),
        "filter 2: flow_latency belongs to the flow: use per-flow, not per-hop"
    );
    assert_eq!(
        refused(vec![per_hop(1); 257]),
        "257 filters are too many: at most 256"
    );
}

/// A packet through the row: node 2 keeps it for `latency`, the others for 700 ns; `None`: the ingress timestamp of node 2 is 0. Returns
/// the number of reports.
fn send_latency(row: &mut Row, latency: Option<u64>) -> usize {
    let mut packet = frame(Family::V4, Transport::Udp, 100);
    row.outbox.clear();
    for (at, switch) in row.switches.iter_mut().enumerate() {
        let mut visit = Visit {
            from_edge: at == 0,
            to_edge: at == 2,
            ..visit(at as u32 + 1)
        };
        if at == 1 {
            match latency {
                Some(latency) => visit.egress_ts = visit.ingress_ts + latency,
                None => visit.ingress_ts = 0,
            }
        }
        switch.forward(&mut packet, &visit, &mut row.outbox);
    }
    row.outbox.datagrams().count()
}

#[test]
fn an_implausible_latency_is_no_event() {
    let change = Algorithm::Change(Change {
        latency_bits: 8,
        queue_bits: 0,
        keep_alive: u64::MAX,
    });
    let rules = RuleSet::compile(&[("slow".to_owned(), "max(hop_latency) > 1ms".to_owned())]).unwrap();
    let rule = Algorithm::Rule(Arc::new(Program::new(&rules).unwrap()));
    let algorithms = [
        (Algorithm::PerHop, Metric::HopLatency),
        (Algorithm::PerHopOfFlow, Metric::HopLatency),
        (Algorithm::PerFlow, Metric::HopLatency),
        (Algorithm::PerFlow, Metric::FlowLatency),
        (Algorithm::MovingAverage { alpha: 255 }, Metric::FlowLatency),
        (change, Metric::HopLatency),
        (rule, Metric::HopLatency),
    ];
    for (algorithm, metric) in algorithms {
        for mode in [Mode::Md21, Mode::Md10] {
            let watch = Watch {
                mode,
                ..Watch::new(ALL)
            };
            let mut row = Row::new(
                &Config::default(),
                watch,
                &[filter(algorithm.clone(), metric, 10_000)],
            );
            // The second is longer than a second, the third has no ingress time; the last is an event.
            let packets = [
                Some(700),
                Some(2_000_000_000),
                None,
                Some(700),
                None,
                Some(50_000_000),
            ];
            let reported: Vec<_> = packets
                .iter()
                .map(|latency| send_latency(&mut row, *latency))
                .collect();
            assert_eq!(
                reported,
                [1, 0, 0, 0, 0, 1],
                "{algorithm:?} of {metric:?}, {mode:?}"
            );
            let counts = *row.switches[2].filters().entries().next().unwrap().1;
            assert_eq!(counts.of(Decision::Suppressed), 4);
            assert_eq!(counts.decisions.iter().sum::<u64>(), packets.len() as u64);
        }
    }
}

#[test]
fn with_the_limit_off_every_latency_counts() {
    let latency = filter(Algorithm::PerFlow, Metric::FlowLatency, 10_000);
    let units = Units {
        max_latency: Units::UNLIMITED,
        ..Units::default()
    };
    let mut row = Row::new(&Config::default(), Watch::new(ALL), &[]);
    row.switches[2].set_filters(Filters::new(vec![latency], 64, units).unwrap());
    let packets = [
        Some(700),
        Some(2_000_000_000),
        Some(2_000_000_000),
        None,
        Some(700),
    ];
    assert_eq!(
        packets.map(|latency| send_latency(&mut row, latency)),
        [1, 1, 0, 1, 1]
    );
}

#[test]
fn a_flow_with_implausible_latencies_only_is_reported() {
    for (algorithm, metric) in [
        (Algorithm::PerHop, Metric::HopLatency),
        (Algorithm::PerFlow, Metric::FlowLatency),
    ] {
        let mut row = Row::new(
            &Config::default(),
            Watch::new(ALL),
            &[filter(algorithm.clone(), metric, 10_000)],
        );
        let reported: Vec<_> = (0..3).map(|_| send_latency(&mut row, None)).collect();
        // Per hop, the other nodes decide.
        let expected = if algorithm == Algorithm::PerHop {
            [1, 0, 0]
        } else {
            [1, 1, 1]
        };
        assert_eq!(reported, expected, "{algorithm:?}");
    }
}
