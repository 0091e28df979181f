//! Events as lines of text, for sequences of reports.

use std::sync::Arc;

use collector::{Clocks, Config, Kind, Profile};
use detect::{Detection, Match, Thresholds};
use testkit::reports::{Bench, SECOND, Sent, config, detection, flow, node, profile};
use wire::Flags;

/// A bench that has processed the first report of the template.
fn warm() -> Bench {
    let mut bench = Bench::new(config());
    bench.send(&Sent::default());
    bench.collected();
    bench
}

/// The template with another hop in the middle.
fn middle(change: impl FnOnce(&mut testkit::reports::Node)) -> Sent {
    let mut sent = Sent::default();
    change(&mut sent.hops[1]);
    sent
}

#[test]
fn a_new_flow_reports_its_path_its_latency_and_every_key() {
    let mut bench = Bench::new(config());
    bench.send(&Sent::default());
    assert_eq!(
        bench.collected(),
        "new flow_path flow=1 3 path=1>2>3\n\
         new hop_latency flow=1 node=1 1000\n\
         new link_utilization node=1 if=2 500\n\
         new queue_occupancy node=1 if=2 queue=0 10\n\
         new hop_latency flow=1 node=2 1000\n\
         new link_utilization node=2 if=2 500\n\
         new queue_occupancy node=2 if=2 queue=0 10\n\
         new hop_latency flow=1 node=3 1000\n\
         new link_utilization node=3 if=2 500\n\
         new queue_occupancy node=3 if=2 queue=0 10\n\
         new flow_latency flow=1 3000 HopSum\n"
    );
    bench.send(&Sent::default());
    assert_eq!(bench.collected(), "");
    bench.send(&Sent {
        flow: 2,
        ..Sent::default()
    });
    assert_eq!(
        bench.collected(),
        "new flow_path flow=2 3 path=1>2>3\n\
         new hop_latency flow=2 node=1 1000\n\
         new hop_latency flow=2 node=2 1000\n\
         new hop_latency flow=2 node=3 1000\n\
         new flow_latency flow=2 3000 HopSum\n"
    );
}

#[test]
fn a_value_is_reported_when_it_is_further_than_its_threshold_from_the_last_reported() {
    let mut bench = warm();
    let mut collected = Vec::new();
    for latency in [1100, 1101, 1001, 1000, 1100, 1201, 0] {
        bench.send(&middle(|hop| hop.latency = Some(latency)));
        collected.push(bench.collected());
    }
    assert_eq!(
        collected,
        [
            "",
            "change hop_latency flow=1 node=2 1000->1101\nchange flow_latency flow=1 3000->3101 HopSum\n",
            "",
            "change hop_latency flow=1 node=2 1101->1000\nchange flow_latency flow=1 3101->3000 HopSum\n",
            "",
            "change hop_latency flow=1 node=2 1000->1201\nchange flow_latency flow=1 3000->3201 HopSum\n",
            "change hop_latency flow=1 node=2 1201->0\nchange flow_latency flow=1 3201->2000 HopSum\n",
        ]
    );
}

#[test]
fn queues_and_links_are_reported_for_their_own_keys() {
    let mut bench = warm();
    bench.send(&middle(|hop| hop.queue = Some((0, 15))));
    bench.send(&middle(|hop| hop.queue = Some((0, 16))));
    bench.send(&middle(|hop| hop.queue = Some((4, 16))));
    bench.send(&middle(|hop| hop.utilization = Some(700)));
    bench.send(&middle(|hop| hop.ports = (1, 9)));
    // Another flow passes the same queue.
    bench.collected();
    bench.send(&Sent {
        flow: 2,
        ..middle(|hop| hop.queue = Some((0, 30)))
    });
    let collected = bench.collected();
    assert!(
        collected.contains("change queue_occupancy node=2 if=2 queue=0 10->30\n"),
        "{collected}"
    );
}

#[test]
fn each_key_is_reported_once() {
    let mut bench = warm();
    bench.send(&middle(|hop| hop.queue = Some((0, 16))));
    assert_eq!(
        bench.collected(),
        "change queue_occupancy node=2 if=2 queue=0 10->16\n"
    );
    bench.send(&middle(|hop| hop.queue = Some((4, 16))));
    assert_eq!(bench.collected(), "new queue_occupancy node=2 if=2 queue=4 16\n");
    bench.send(&middle(|hop| hop.utilization = Some(700)));
    // Back in queue 0, whose last reported value is 16.
    assert_eq!(
        bench.collected(),
        "change link_utilization node=2 if=2 500->700\nchange queue_occupancy node=2 if=2 queue=0 16->10\n"
    );
    bench.send(&middle(|hop| hop.ports = (1, 9)));
    // Queue 0 of another port is another queue: ids may be unique within a port only.
    assert_eq!(
        bench.collected(),
        "new link_utilization node=2 if=9 500\nnew queue_occupancy node=2 if=9 queue=0 10\n"
    );
    bench.send(&middle(|hop| (hop.ports, hop.queue) = ((1, 9), Some((0, 90)))));
    assert_eq!(
        bench.collected(),
        "change queue_occupancy node=2 if=9 queue=0 10->90\n"
    );
    bench.send(&middle(|hop| hop.queue = Some((0, 11))));
    assert_eq!(
        bench.collected(),
        "change link_utilization node=2 if=2 700->500\n"
    );
}

#[test]
fn absent_values_are_no_values() {
    let mut bench = warm();
    bench.send(&middle(|hop| {
        (hop.latency, hop.queue, hop.utilization) = (None, None, None)
    }));
    assert_eq!(bench.collected(), "");
    let view = bench.collector.flow(&flow(1, false)).unwrap();
    assert_eq!(view.row.flow_latency, None);
    bench.send(&Sent::default());
    assert_eq!(bench.collected(), "");
}

#[test]
fn a_path_change_is_reported_with_what_is_new_on_it() {
    let mut bench = warm();
    bench.send(&middle(|hop| hop.id = 9));
    assert_eq!(
        bench.collected(),
        "path_change flow_path flow=1 3->3 path=1>9>3\n\
         new hop_latency flow=1 node=9 1000\n\
         new link_utilization node=9 if=2 500\n\
         new queue_occupancy node=9 if=2 queue=0 10\n"
    );
    bench.send(&Sent {
        hops: vec![node(1), node(3)],
        ..Sent::default()
    });
    assert_eq!(
        bench.collected(),
        "path_change flow_path flow=1 3->2 path=1>3\nchange flow_latency flow=1 3000->2000 HopSum\n"
    );
    bench.send(&Sent {
        hops: vec![node(1), node(3)],
        ..Sent::default()
    });
    assert_eq!(bench.collected(), "");
}

#[test]
fn a_loop_is_reported_when_the_path_is_set() {
    let mut bench = warm();
    let looped = Sent {
        hops: vec![node(1), node(2), node(1), node(3)],
        ..Sent::default()
    };
    bench.send(&looped);
    let collected = bench.collected();
    assert!(
        collected.starts_with(
            "path_change flow_path flow=1 3->4 path=1>2>1>3\npath_loop flow_path flow=1 node=1 4 path=1>2>1>3\n"
        ),
        "{collected}"
    );
    bench.send(&looped);
    assert_eq!(bench.collected(), "");
    assert!(bench.collector.flow(&flow(1, false)).unwrap().looped);
}

#[test]
fn a_drop_is_reported_and_is_no_path() {
    let mut bench = warm();
    // Dropped at node 2, whose report header has ports (bit 5), and queue and reason (bit 1).
    let drop = Sent {
        hops: vec![node(1), node(2)],
        reporter: 2,
        metadata: 0b10_0010,
        reason: Some(51),
        flags: Flags(Flags::DROP.0 | Flags::FLOW.0),
        ..Sent::default()
    };
    bench.send(&drop);
    assert_eq!(bench.collected(), "drop flow=1 node=2 if=2 queue=0 reason=51\n");
    assert_eq!(bench.log.drops.len(), 1);
    let drop = bench.log.drops[0];
    assert_eq!(
        (
            drop.flow,
            drop.node,
            drop.ingress_if,
            drop.egress_if,
            drop.queue,
            drop.reason,
            drop.ts
        ),
        (
            Some(flow(1, false)),
            Some(2),
            Some(1),
            Some(2),
            Some(0),
            Some(51),
            bench.now
        )
    );
    assert_eq!(drop.id, bench.log.events.last().unwrap().id);
    let view = bench.collector.flow(&flow(1, false)).unwrap();
    assert_eq!(
        (view.path().collect::<Vec<_>>(), view.row.reports),
        (vec![1, 2, 3], 2)
    );
}

#[test]
fn rules_are_reported_on_transitions_only() {
    let rules = [
        ("deep", "max(queue_occupancy) > 50 and flow_latency > 3us"),
        ("long", "hops > 3"),
    ];
    let mut bench = Bench::new(Config {
        detection: detection([u64::MAX; 6], &rules),
        ..config()
    });
    let deep = middle(|hop| (hop.queue, hop.latency) = (Some((0, 60)), Some(2000)));
    for sent in [
        &Sent::default(),
        &deep,
        &deep,
        &deep,
        &Sent::default(),
        &Sent::default(),
    ] {
        bench.send(sent);
    }
    let collected: String = bench
        .collected()
        .lines()
        .filter(|l| l.starts_with("rule"))
        .map(|l| format!("{l}\n"))
        .collect();
    assert_eq!(collected, "rule_on flow=1 rule=0\nrule_off flow=1 rule=0\n");
}

#[test]
fn rules_that_were_swapped_are_reported_anew() {
    let rules = |name: &'static str, text| detection([u64::MAX; 6], &[(name, text)]);
    let mut bench = Bench::new(Config {
        detection: rules("a", "hops > 1"),
        ..config()
    });
    bench.send(&Sent::default()).collected();
    for (text, reported) in [
        ("hops > 2", "rule_on flow=1 rule=0\n"),
        ("hops > 3", ""),
        ("hops > 0", "rule_on flow=1 rule=0\n"),
    ] {
        bench.collector.set_detection(rules("b", text));
        bench.send(&Sent::default()).send(&Sent::default());
        assert_eq!(bench.collected(), reported, "{text}");
    }
}

#[test]
fn rules_that_stay_are_not_reported_again_when_others_come_and_go() {
    let rules = |rules: &[(&str, &str)]| detection([u64::MAX; 6], rules);
    let mut bench = Bench::new(Config {
        detection: rules(&[("a", "hops > 1")]),
        ..config()
    });
    bench.send(&Sent::default());
    assert!(bench.collected().contains("rule_on flow=1 rule=0\n"));
    bench
        .collector
        .set_detection(rules(&[("b", "hops > 9"), ("a", "hops > 1")]));
    assert_eq!(bench.collector.flow(&flow(1, false)).unwrap().rules, 0b10);
    bench.send(&Sent::default());
    assert_eq!(bench.collected(), "");
    bench
        .collector
        .set_detection(rules(&[("a", "hops > 1"), ("c", "hops > 2")]));
    bench.send(&Sent::default());
    assert_eq!(bench.collected(), "rule_on flow=1 rule=1\n");
    bench.send(&Sent {
        hops: vec![node(1)],
        ..Sent::default()
    });
    assert!(
        bench
            .collected()
            .ends_with("rule_off flow=1 rule=0\nrule_off flow=1 rule=1\n")
    );
}

#[test]
fn a_rule_looks_at_its_flows_only() {
    let to = |port| Match {
        src_port: detect::PortRange::new(port, port).unwrap(),
        ..Match::default()
    };
    let limited = |flows: &[(usize, Vec<Match>)]| {
        let texts = [
            "max(hop_latency) > 2us",
            "flow_latency > 6us",
            "max(hop_latency) > 2us for 2",
        ];
        let named: Vec<_> = texts
            .iter()
            .map(|text| ((*text).to_owned(), (*text).to_owned()))
            .collect();
        let rules = detect::RuleSet::compile(&named)
            .unwrap()
            .limited_to(flows)
            .unwrap();
        let thresholds = Thresholds::new([u64::MAX; 6], Vec::new()).unwrap();
        Arc::new(Detection {
            thresholds,
            rules,
            generation: 1,
        })
    };
    let scopes = [
        (0, vec![to(1001), to(1002)]),
        (1, vec![to(1002)]),
        (2, vec![to(1003)]),
    ];
    let mut bench = Bench::new(Config {
        detection: limited(&scopes),
        ..config()
    });
    let mut reported = |latency: u32| {
        // Twice each: the second report is settled by the region of the first.
        for flow in [1, 2, 3, 4, 1, 2, 3, 4] {
            bench.send(&Sent {
                flow,
                ..middle(|hop| hop.latency = Some(latency))
            });
        }
        let all = bench.collected();
        all.lines()
            .filter(|line| line.starts_with("rule"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(reported(1000), "");
    let on = "rule_on flow=1 rule=0 rule_on flow=2 rule=0 rule_on flow=2 rule=1 rule_on flow=3 rule=2";
    assert_eq!(reported(5000), on);
    assert_eq!(reported(5000), "");
    assert_eq!(reported(1000), on.replace("rule_on", "rule_off"));
    assert_eq!(reported(5000), on);
    // The rules now are for other flows, and the last one for all.
    bench
        .collector
        .set_detection(limited(&[(0, vec![to(1004)]), (1, vec![to(1002)])]));
    for flow in [1, 2, 3, 4] {
        bench.send(&Sent {
            flow,
            ..middle(|hop| hop.latency = Some(5000))
        });
    }
    let rules = [1, 2, 3, 4].map(|number| bench.collector.flow(&flow(number, false)).unwrap().rules);
    assert_eq!(rules, [0b100, 0b110, 0b100, 0b001]);
}

/// The rule events for these queues of the middle hop in each report; `None`: not reported.
fn reported_of_queues(bench: &mut Bench, queues: &[Option<u32>]) -> String {
    let mut collected = String::new();
    for queue in queues {
        bench.send(&middle(|hop| hop.queue = queue.map(|occupancy| (0, occupancy))));
        let reported = bench.collected();
        let rules: Vec<&str> = reported.lines().filter(|line| line.starts_with("rule")).collect();
        collected += &format!("{} ", rules.join("+").replace(" flow=1 rule=", ""));
    }
    collected.trim_end_matches(' ').to_owned()
}

#[test]
fn rules_remember_earlier_reports_of_their_flow() {
    let rules = [
        ("jump", "change(max(queue_occupancy@2)) > 100"),
        ("stays", "max(queue_occupancy@2) > 50 for 3"),
    ];
    let mut bench = Bench::new(Config {
        detection: detection([u64::MAX; 6], &rules),
        ..config()
    });
    let collected = reported_of_queues(
        &mut bench,
        &[Some(10), Some(200), Some(201), Some(60), Some(50), None],
    );
    assert_eq!(
        collected,
        " rule_on0 rule_off0 rule_on0+rule_on1 rule_off0+rule_off1"
    );
    // Another flow has its own history.
    bench.send(&Sent {
        flow: 2,
        ..middle(|hop| hop.queue = Some((0, 900)))
    });
    assert!(!bench.collected().contains("rule_on"));
}

#[test]
fn rule_history_survives_a_reload_but_not_its_flow() {
    let detection = |rules: &[(&str, &str)]| detection([u64::MAX; 6], rules);
    let stays = ("stays", "max(queue_occupancy@2) > 50 for 3");
    let mut bench = Bench::new(Config {
        detection: detection(&[stays]),
        ..config()
    });
    let bytes = bench.collector.bytes();
    let busy = [Some(60)];
    assert_eq!(reported_of_queues(&mut bench, &[Some(60), Some(60)]), "");
    bench
        .collector
        .set_detection(detection(&[("other", "change(flow_latency) > 1s"), stays]));
    assert_eq!(
        reported_of_queues(&mut bench, &busy),
        "rule_on1",
        "the two before count"
    );
    bench.pass(90 * SECOND);
    bench.collected();
    assert_eq!(
        reported_of_queues(&mut bench, &[Some(60), Some(60), Some(60)]),
        "  rule_on1",
        "a new flow"
    );
    // Without such rules there is no history.
    bench.collector.set_detection(detection(&[("plain", "hops > 5")]));
    bench.collector.set_detection(detection(&[stays]));
    assert_eq!(reported_of_queues(&mut bench, &busy), "", "it was forgotten");
    assert!(bench.collector.bytes().abs_diff(bytes) < bytes);
}

#[test]
fn a_rule_that_is_true_ends_with_its_flow() {
    let mut bench = Bench::new(Config {
        detection: detection([u64::MAX; 6], &[("any", "hops > 0")]),
        ..config()
    });
    bench.send(&Sent::default());
    bench.collected();
    bench.pass(90 * SECOND);
    let collected = bench.collected();
    assert!(
        collected.contains("expired flow_path flow=1 3 path=1>2>3\nrule_off flow=1 rule=0\n"),
        "{collected}"
    );
}

#[test]
fn a_rule_of_an_older_set_does_not_end_under_the_name_of_another() {
    let rules = |name: &'static str| detection([u64::MAX; 6], &[(name, "hops > 0")]);
    let mut bench = Bench::new(Config {
        detection: rules("old"),
        ..config()
    });
    bench.send(&Sent::default());
    assert_eq!(bench.collector.flow(&flow(1, false)).unwrap().rules, 1);
    bench.collector.set_detection(rules("new"));
    assert_eq!(bench.collector.flow(&flow(1, false)).unwrap().rules, 0);
    bench.collected();
    bench.pass(90 * SECOND);
    let collected = bench.collected();
    assert!(
        collected.contains("expired flow_path flow=1") && !collected.contains("rule_off"),
        "{collected}"
    );
}

#[test]
fn a_silent_flow_and_its_keys_expire_once() {
    let mut bench = warm();
    bench.send(&Sent::default());
    bench.pass(SECOND);
    bench.send(&Sent::default());
    bench.pass(59 * SECOND);
    assert_eq!(bench.collected(), "");
    bench.pass(30 * SECOND);
    let mut collected: Vec<String> = bench.collected().lines().map(str::to_owned).collect();
    collected.sort();
    let mut expected = vec!["expired flow_path flow=1 3 path=1>2>3".to_owned()];
    for node in 1..=3 {
        expected.push(format!("expired hop_latency node={node} 1000"));
        expected.push(format!("expired link_utilization node={node} if=2 500"));
        expected.push(format!("expired queue_occupancy node={node} if=2 queue=0 10"));
    }
    expected.sort();
    assert_eq!(collected, expected);
    let tables = bench.collector.tables();
    assert_eq!(
        [tables.flows, tables.nodes, tables.queues, tables.links].map(|table| table.used),
        [0; 4]
    );
    bench.pass(90 * SECOND);
    assert_eq!(bench.collected(), "");
    bench.send(&Sent::default());
    assert_eq!(
        bench
            .collected()
            .lines()
            .filter(|line| line.starts_with("new"))
            .count(),
        11
    );
}

#[test]
fn the_latest_state_is_pushed_while_a_flow_lives() {
    let mut bench = Bench::new(Config {
        push_interval: 2 * SECOND,
        ..config()
    });
    bench.send(&Sent::default());
    bench.collected();
    for _ in 0..40 {
        bench.send(&Sent::default());
        bench.pass(SECOND / 10);
    }
    bench.pass(SECOND / 2);
    let pushed = bench.collected();
    assert_eq!(
        pushed,
        "latest flow_latency flow=1 3000 HopSum path=1>2>3\n".repeat(2),
        "{pushed}"
    );
    assert_eq!(bench.log.rows.len(), 2);
    let (row, path) = &bench.log.rows[1];
    assert_eq!(
        (row.flow, row.flow_latency, path.as_slice()),
        (flow(1, false), Some(3000), &[1, 2, 3][..])
    );
    // A silent flow is not pushed.
    bench.pass(10 * SECOND);
    assert!(bench.collected().lines().count() <= 1);
}

#[test]
fn reports_2_0_of_one_datagram_are_taken_in_order() {
    let mut bench = Bench::new(config());
    let group = [
        Sent {
            seq: 9,
            ..Sent::default()
        },
        Sent {
            flow: 2,
            v6: true,
            ..middle(|hop| hop.id = 7)
        },
        middle(|hop| hop.id = 8),
    ];
    bench.deliver(&Sent::v20(&group));
    let paths: Vec<String> = bench
        .collected()
        .lines()
        .filter(|line| line.contains("flow_path"))
        .map(str::to_owned)
        .collect();
    assert_eq!(
        paths,
        [
            "new flow_path flow=1 3 path=1>2>3",
            "new flow_path flow=2 3 path=1>7>3",
            "path_change flow_path flow=1 3->3 path=1>8>3",
        ]
    );
    let view = bench.collector.flow(&flow(2, true)).unwrap();
    assert_eq!((view.row.reports, view.row.flow.is_v6()), (1, true));
    let stats = bench.collector.stats();
    assert_eq!((stats.datagrams, stats.accepted, stats.reports), (1, 1, 3));
}

#[test]
fn paths_of_any_length_are_kept() {
    for count in [1, 8, 9, 33, 80, 250] {
        let mut bench = Bench::new(config());
        let hops: Vec<_> = (1..=count).map(node).collect();
        let bitmap = if count > 80 { 0x8000 } else { 0xa000 };
        let sent = Sent {
            hops,
            bitmap,
            ..Sent::default()
        };
        bench.send(&sent).send(&sent);
        let view = bench.collector.flow(&flow(1, false)).unwrap();
        assert_eq!(view.path().collect::<Vec<_>>(), (1..=count).collect::<Vec<_>>());
        assert_eq!((view.row.reports, view.path_length), (2, count as u16));
        if bitmap == 0xa000 {
            assert_eq!(view.row.flow_latency, Some(1000 * u64::from(count)), "{count}");
        }
    }
}

fn postcard(id: u32, latency: u32) -> Sent {
    Sent {
        hops: vec![testkit::reports::Node {
            latency: Some(latency),
            ..node(id)
        }],
        bitmap: 0x3000,
        ..Sent::default()
    }
}

#[test]
fn postcards_without_an_order_give_hops_and_make_no_path() {
    let mut bench = Bench::new(config());
    for (id, latency) in [
        (1, 100),
        (2, 200),
        (3, 300),
        (2, 290),
        (1, 100),
        (4, 400),
        (3, 300),
    ] {
        bench.deliver(&postcard(id, latency).postcard());
    }
    let collected: Vec<String> = bench
        .collected()
        .lines()
        .filter(|line| !line.contains("queue"))
        .map(str::to_owned)
        .collect();
    assert_eq!(
        collected,
        [
            "new hop_latency flow=1 node=1 100",
            "new hop_latency flow=1 node=2 200",
            "new hop_latency flow=1 node=3 300",
            "new hop_latency flow=1 node=4 400",
        ]
    );
    let view = bench.collector.flow(&flow(1, false)).unwrap();
    let hops: Vec<_> = view.hops().map(|hop| (hop.node, hop.hop_latency)).collect();
    assert_eq!(
        hops,
        [
            (Some(1), Some(100)),
            (Some(2), Some(290)),
            (Some(3), Some(300)),
            (Some(4), Some(400))
        ]
    );
    assert_eq!(
        (view.path().count(), view.path_length, view.row.flow_latency),
        (0, 0, None)
    );
    assert_eq!((view.row.reports, bench.collector.stats().flow_reports), (7, 7));
}

#[test]
fn a_node_that_is_alone_proves_no_path() {
    let mut bench = Bench::new(config());
    for latency in [100, 5_000, 5_100] {
        bench.deliver(&postcard(7, latency).postcard()).pass(SECOND / 2);
    }
    let view = bench.collector.flow(&flow(1, false)).unwrap();
    let hops: Vec<_> = view.hops().map(|hop| (hop.node, hop.hop_latency)).collect();
    assert_eq!((view.path().count(), hops), (0, vec![(Some(7), Some(5_100))]));
    assert_eq!((view.row.flow_latency, view.row.reports), (None, 3));
}

#[test]
fn a_stack_gives_its_path_to_a_flow_of_postcards() {
    let mut bench = Bench::new(config());
    bench
        .deliver(&postcard(2, 1000).postcard())
        .deliver(&postcard(1, 1000).postcard());
    bench.collected();
    bench
        .send(&Sent::default())
        .deliver(&postcard(7, 1000).postcard());
    let collected = bench.collected();
    let paths: Vec<&str> = collected
        .lines()
        .filter(|line| line.contains("flow_path"))
        .collect();
    assert_eq!(paths, ["new flow_path flow=1 3 path=1>2>3"]);
}

#[test]
fn a_queue_report_counts_for_its_queues_and_sets_no_path() {
    let on_the_way = |flags| Sent {
        hops: vec![
            node(1),
            testkit::reports::Node {
                queue: Some((0, 900)),
                ..node(2)
            },
        ],
        reporter: 2,
        flags,
        ..Sent::default()
    };
    let both = Flags(Flags::QUEUE.0 | Flags::FLOW.0);
    let queue = "change queue_occupancy node=2 if=2 queue=0 10->900";
    for flags in [Flags::QUEUE, both] {
        let mut bench = warm();
        bench
            .send(&on_the_way(flags))
            .deliver(&Sent::v20(&[on_the_way(flags)]));
        let collected = bench.collected();
        assert_eq!(
            collected.lines().filter(|line| *line == queue).count(),
            1,
            "{collected}"
        );
        assert!(!collected.contains("path="), "{collected}");
        let view = bench.collector.flow(&flow(1, false)).unwrap();
        assert_eq!(view.path().count(), 3);
    }
    let mut bench = Bench::new(config());
    bench.send(&on_the_way(Flags::QUEUE));
    assert_eq!(bench.collector.flows().count(), 0);
    assert_eq!(bench.collector.stats().node_reports, 1);
}

#[test]
fn a_local_report_0_5_has_its_latency_from_checked_stamps() {
    let mut bench = Bench::new(config());
    let local = |stamps| Sent {
        hops: vec![testkit::reports::Node {
            stamps: Some(stamps),
            ..node(4)
        }],
        ..Sent::default()
    };
    bench.deliver(&local((0xffff_fff0, 0x1_0000_0010)).v05());
    assert!(bench.collected().contains("new hop_latency flow=1 node=4 32\n"));
    // Egress before ingress is not a latency.
    bench.deliver(&local((1000, 900)).v05());
    assert_eq!(bench.collected(), "");
}

/// Two hops with timestamps: from `at` on, 100 units in the first, then 50 on the link, 200 in the second.
fn stamped(at: u64, skew: i64) -> Sent {
    let second = (at + 150).wrapping_add_signed(skew);
    let hop = |id, stamps: (u64, u64)| testkit::reports::Node {
        latency: None,
        stamps: Some((stamps.0 & 0xffff_ffff, stamps.1 & 0xffff_ffff)),
        ..node(id)
    };
    let hops = vec![hop(1, (at, at + 100)), hop(2, (second, second + 200))];
    Sent {
        hops,
        bitmap: 0x8c00,
        ..Sent::default()
    }
}

#[test]
fn a_first_latency_of_seconds_is_reported_like_any_other() {
    // The longest that is stored, 4.28 s, and others.
    const LONGEST: u32 = 0xfeff_ffff;
    for latency in [LONGEST, LONGEST - 6, LONGEST - 200, 0] {
        let default_profile = collector::Profile {
            max_hop_latency: 0,
            ..collector::Profile::default()
        };
        let mut bench = Bench::new(Config {
            default_profile,
            ..config()
        });
        let hops = vec![testkit::reports::Node {
            latency: Some(latency),
            ..node(1)
        }];
        bench.send(&Sent {
            hops,
            ..Sent::default()
        });
        let reported = format!("new hop_latency flow=1 node=1 {latency}");
        assert!(
            bench.collected().lines().any(|line| line == reported),
            "{reported}"
        );
    }
}

#[test]
fn a_clock_that_is_set_back_stops_nothing() {
    const BACK: u64 = 3600 * SECOND;
    for stall in [0, 3 * SECOND, 8 * SECOND] {
        set_back(BACK, stall);
    }
}

/// The clock is set back after five seconds. The receiving thread then stalls before it reads a report that waited.
fn set_back(back: u64, stall: u64) {
    let config = Config {
        flow_timeout: 20 * SECOND,
        ..config()
    };
    let mut bench = Bench::new(config);
    let mut sent = 0;
    for second in 0..10 {
        for _ in 0..5 {
            bench.send(&Sent::default()).pass(SECOND / 5);
            sent += 1;
        }
        if second == 4 {
            let before = bench.now;
            bench.now -= back;
            bench.pass(SECOND / 5);
            bench.now += stall;
            bench.collector.tick(bench.now, &mut bench.log);
            // A report that waited in a socket in the meantime.
            bench.now = before;
            bench.send(&Sent::default());
            sent += 1;
            bench.now = before - back + SECOND / 5 + stall;
        }
    }
    assert!(!bench.collected().contains("expired"), "nothing was silent");
    let totals = |bench: &Bench, interval: u32| -> Vec<(u64, u64)> {
        let ours = |rollup: &&collector::event::Rollup| {
            rollup.interval == interval
                && rollup.metric == detect::Metric::HopLatency
                && rollup.node == Some(1)
                && rollup.flow.is_none()
        };
        bench
            .log
            .rollups
            .iter()
            .filter(ours)
            .map(|rollup| (rollup.ts, rollup.count))
            .collect()
    };
    bench.pass(2 * SECOND);
    let seconds = totals(&bench, 1);
    assert_eq!(
        seconds.iter().map(|(_, count)| count).sum::<u64>(),
        sent,
        "{seconds:?}"
    );
    // Each is present with its own time, before and after the clock was set back.
    assert!(
        seconds.len() >= 10 && seconds.iter().all(|(_, count)| *count <= 7),
        "{seconds:?}"
    );
    assert!(
        seconds
            .iter()
            .filter(|(ts, _)| *ts < testkit::reports::START)
            .count()
            >= 5,
        "{seconds:?}"
    );
    // A silent flow expires after its timeout, not an hour later.
    assert!(bench.collector.flow(&testkit::reports::flow(1, false)).is_some());
    bench.pass(30 * SECOND);
    assert!(bench.collector.flow(&testkit::reports::flow(1, false)).is_none());
    bench.collector.finish(bench.now, &mut bench.log);
    let minutes = totals(&bench, 60);
    assert_eq!(
        minutes.iter().map(|(_, count)| count).sum::<u64>(),
        sent,
        "{minutes:?}"
    );
}

#[test]
fn latency_is_measured_only_where_clocks_agree() {
    let latency = |clocks, unit, sent: &Sent| {
        let default_profile = Profile {
            clocks,
            ..profile(unit, unit)
        };
        let mut bench = Bench::new(Config {
            default_profile,
            ..config()
        });
        bench.send(sent);
        bench
            .collected()
            .lines()
            .find(|line| line.contains("flow_latency"))
            .map(str::to_owned)
    };
    let reported = |text: &str| Some(format!("new flow_latency flow=1 {text}"));
    let cases = [
        (Clocks::Synchronised, 1, stamped(1000, 0), reported("350")),
        (Clocks::Synchronised, 1000, stamped(1000, 0), reported("350000")),
        // The 32 bits wrap between the hops.
        (
            Clocks::Synchronised,
            1,
            stamped((1 << 32) - 120, 0),
            reported("350"),
        ),
        // The second clock is so far behind that the total is shorter than the sum of its parts, or negative.
        (
            Clocks::Synchronised,
            1,
            stamped(100_000, -60),
            reported("300 HopSum"),
        ),
        (
            Clocks::Synchronised,
            1,
            stamped(100_000, -50_000),
            reported("300 HopSum"),
        ),
        (Clocks::Free, 1, stamped(1000, 0), reported("300 HopSum")),
        (Clocks::Free, 1000, stamped(1000, 99), reported("300000 HopSum")),
    ];
    for (clocks, unit, sent, expected) in cases {
        assert_eq!(
            latency(clocks, unit, &sent),
            expected,
            "{clocks:?} {unit} {:?}",
            sent.hops
        );
    }
}

#[test]
fn disagreeing_clocks_without_latencies_leave_a_mark_and_no_value() {
    let default_profile = Profile {
        clocks: Clocks::Synchronised,
        ..Profile::default()
    };
    let mut bench = Bench::new(Config {
        default_profile,
        ..config()
    });
    let mut sent = stamped(100_000, -50_000);
    // The second hop's ingress timestamp is unavailable, so it has no latency.
    sent.hops[1].stamps = Some((0xffff_ffff, 40_000));
    bench.send(&sent);
    let view = bench.collector.flow(&flow(1, false)).unwrap();
    assert_eq!(
        (view.row.flow_latency, view.basis()),
        (None, collector::event::Basis::Unsynchronised)
    );
}

#[test]
fn units_are_those_of_the_senders_profile() {
    let micro = Profile {
        utilization_scale: 0.01,
        ..profile(1000, 1000)
    };
    let profiles = vec![("192.0.2.0/24".parse().unwrap(), micro)];
    let mut bench = Bench::new(Config { profiles, ..config() });
    bench.deliver_from(&Sent::default().v10(), [192, 0, 2, 1]);
    bench.deliver_from(
        &Sent {
            flow: 2,
            hops: vec![node(8)],
            ..Sent::default()
        }
        .v10(),
        [198, 51, 100, 1],
    );
    let collected = bench.collected();
    for line in [
        "new hop_latency flow=1 node=1 1000000\n",
        "new link_utilization node=1 if=2 5000000\n",
        "new queue_occupancy node=1 if=2 queue=0 10\n",
        "new hop_latency flow=2 node=8 1000\n",
        "new link_utilization node=8 if=2 500\n",
    ] {
        assert!(collected.contains(line), "{line} in {collected}");
    }
    let mut read_by: Vec<_> = bench
        .collector
        .queues()
        .map(|queue| (queue.node, queue.profile))
        .collect();
    read_by.sort_unstable();
    assert_eq!(read_by, [(1, 1), (2, 1), (3, 1), (8, 0)]);
    // Then another source sends reports of the node.
    bench.deliver_from(
        &Sent {
            flow: 3,
            hops: vec![node(8)],
            ..Sent::default()
        }
        .v10(),
        [192, 0, 2, 1],
    );
    assert!(bench.collector.queues().all(|queue| queue.profile == 1));
}

#[test]
fn thresholds_of_a_flow_are_its_own_and_change_while_running() {
    let sensitive = Match {
        src_port: detect::PortRange::new(1002, 1002).unwrap(),
        ..Match::default()
    };
    let mut own = [None; 6];
    own[2] = Some(0);
    let thresholds = Thresholds::new([0, u64::MAX, 100, 5, 5, 100], vec![(sensitive, own)]).unwrap();
    let swapped = Arc::new(Detection {
        thresholds,
        ..Detection::default()
    });
    let mut bench = Bench::new(Config {
        detection: Arc::clone(&swapped),
        ..config()
    });
    let sent = |flow, latency| Sent {
        flow,
        ..middle(|hop| hop.latency = Some(latency))
    };
    for flow in [1, 2] {
        bench.send(&sent(flow, 1000)).collected();
        bench.send(&sent(flow, 1050));
    }
    assert_eq!(bench.collected(), "change hop_latency flow=2 node=2 1000->1050\n");
    bench
        .collector
        .set_detection(detection([u64::MAX; 6], &[("busy", "hops > 1")]));
    for flow in [1, 2] {
        bench.send(&sent(flow, 9000));
    }
    assert_eq!(
        bench.collected(),
        "rule_on flow=1 rule=0\nrule_on flow=2 rule=0\n"
    );
    bench.collector.set_detection(swapped);
    for flow in [1, 2] {
        bench.send(&sent(flow, 9010));
    }
    // The change is from the last reported value, which is unchanged.
    assert_eq!(
        bench.collected(),
        "change hop_latency flow=1 node=2 1000->9010\nchange hop_latency flow=2 node=2 1050->9010\n"
    );
}

#[test]
fn a_disabled_metric_still_reports_new_keys() {
    let mut bench = Bench::new(Config {
        detection: detection([u64::MAX; 6], &[]),
        ..config()
    });
    bench.send(&Sent::default());
    assert_eq!(
        bench
            .collected()
            .lines()
            .filter(|line| line.starts_with("new"))
            .count(),
        11
    );
    bench.send(&middle(|hop| {
        (hop.latency, hop.queue) = (Some(4_000_000_000), Some((0, 0x00ff_fffe)))
    }));
    assert_eq!(bench.collected(), "");
}

#[test]
fn equal_input_gives_equal_output_to_the_last_id() {
    let run = || {
        let mut bench = Bench::new(Config {
            push_interval: SECOND,
            ..config()
        });
        for n in 0..5000_u32 {
            let sent = middle(|hop| {
                hop.latency = Some(n * 7919 % 5000);
                hop.id = 2 + n % 400 / 399;
            });
            bench.send(&Sent {
                flow: (n % 37) as u16,
                ..sent
            });
            bench.pass(u64::from(n % 3) * SECOND / 1000);
        }
        let now = bench.now;
        bench.collector.finish(now, &mut bench.log);
        (
            bench.log.events,
            bench.log.rollups,
            bench.log.rows,
            bench.collector.stats(),
        )
    };
    let (one, other) = (run(), run());
    assert!(one.0.len() > 1000 && !one.1.is_empty() && !one.2.is_empty());
    assert_eq!(one, other);
    // Ids are unique.
    let mut ids: Vec<u64> = one.0.iter().map(|event| event.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), one.0.len());
}

#[test]
fn two_collectors_give_one_report_the_same_ids() {
    let ids = |start| {
        let mut bench = Bench::new(Config {
            seed: start,
            ..config()
        });
        bench.now += start;
        bench
            .send(&Sent::default())
            .send(&middle(|hop| hop.latency = Some(5000)));
        bench.log.events.iter().map(|event| event.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(0), ids(12_345));
}

/// Reports 2.0 have no time, and their numbers come again after a restart of the reporter.
#[test]
fn drops_of_different_packets_have_different_ids_although_the_report_has_no_time() {
    let report = testkit::vectors::bytes("tr20_dropq");
    let packet = report.windows(2).rposition(|bytes| bytes == [0x45, 0]).unwrap();
    let ids = |start: u64| {
        let mut bench = Bench::new(Config {
            seed: start,
            ..config()
        });
        bench.now += start;
        for ident in [1, 2, 2_u16] {
            let mut bytes = report.clone();
            bytes[packet + 4..packet + 6].copy_from_slice(&ident.to_be_bytes());
            bench.deliver(&bytes).pass(60 * SECOND);
        }
        bench.log.drops.iter().map(|drop| drop.id).collect::<Vec<_>>()
    };
    let found = ids(0);
    assert_eq!(found.len(), 3);
    assert_ne!(found[0], found[1]);
    // The same packet in the same report: only the time of reception differs, and another collector has another one.
    assert_eq!(found[1], found[2]);
    assert_eq!(ids(12_345), found);
}

/// What a silence shows: two collectors, whose clocks and seconds differ, give it the same ids; a flow or node that comes back gives it others.
#[test]
fn a_silence_has_the_same_ids_in_two_collectors_and_others_when_it_comes_back() {
    let detection = detection([0, 100, 100, 5, 5, 100], &[("any", "hops > 0")]);
    let ids = |start: u64, rounds: u32| {
        let config = Config {
            seed: start,
            push_interval: SECOND,
            detection: detection.clone(),
            ..config()
        };
        let mut bench = Bench::new(config);
        bench.now += start;
        for _ in 0..rounds {
            bench.send(&Sent::default()).pass(600 * SECOND);
        }
        let by_clock =
            |event: &&collector::Event| matches!(event.kind, Kind::Latest | Kind::Expired | Kind::RuleOff);
        let found = bench.log.events.iter().filter(by_clock);
        let mut found: Vec<_> = found.map(|event| (event.id, event.kind, event.metric)).collect();
        // What is pushed twice without a report between is the same.
        found.sort_unstable();
        found.dedup();
        found
    };
    let once = ids(0, 1);
    // The path, the rule, the latest latency; three metrics of three nodes.
    assert_eq!(once.len(), 12, "{once:?}");
    assert_eq!(ids(12_345_678_901, 1), once);
    let twice = ids(0, 2);
    assert_eq!(twice.len(), 24, "{twice:?}");
    assert!(once.iter().all(|one| twice.contains(one)));
    assert_eq!(ids(777_777_777, 2), twice);
}
