use std::net::IpAddr;

use detect::Metric;
use testkit::rng::Rng;

use super::*;
use crate::device::L4Checksum;
use crate::flows::Flows;
use crate::intent::At;
use crate::inventory;

/// Two leaves and a spine; h1 at leaf1, h2 at leaf2; port 4 of leaf2 is unused.
const NETWORK: &str = r#"
devices = [
    { name = "leaf1", node = 1, ports = 3, labels = ["rack-a"] },
    { name = "leaf2", node = 2, ports = 4, edge = [3] },
    { name = "spine", node = 3, ports = 2 },
]
links = [
    { between = ["leaf1:1", "spine:1"], mtu = 1600 },
    { between = ["leaf2:1", "spine:2"], mtu = 1600 },
]
hosts = [
    { name = "h1", addresses = ["10.0.0.1", "fd00::1"], at = "leaf1:2", mtu = 1500 },
    { name = "h2", addresses = ["10.0.0.2"], at = "leaf2:2", mtu = 1500 },
    { name = "h3" },
]
"#;

type Able = BTreeMap<NodeId, Capabilities>;

fn compiler(capabilities: &Able) -> Compiler {
    let inventory = inventory::read(NETWORK, "i.toml").unwrap();
    let collectors = vec![Collector {
        address: "192.0.2.1:32766".parse().unwrap(),
        capacity: 1,
        at: None,
        budget: Budget::default(),
    }];
    Compiler::new(
        &inventory,
        capabilities,
        DomainSettings {
            collectors,
            ..DomainSettings::default()
        },
    )
}

fn able(change: impl Fn(NodeId, &mut Capabilities)) -> Able {
    let with = |node| {
        let mut capabilities = Capabilities {
            joint_roles: false,
            ..Capabilities::default()
        };
        change(node, &mut capabilities);
        (node, capabilities)
    };
    (1..=3).map(with).collect()
}

fn intent(name: &str) -> Intent {
    Intent {
        name: name.to_owned(),
        watch: [Metric::HopLatency].into(),
        mode: Some(Mode::Md),
        ..Intent::default()
    }
}

fn to(address: &str) -> Flows {
    Flows {
        dst: vec![address.parse().unwrap()],
        ..Flows::default()
    }
}

fn texts(compiler: &Compiler, node: NodeId) -> Vec<String> {
    compiler.desired()[&node]
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn roles_follow_from_the_topology() {
    let mut compiler = compiler(&able(|_, _| {}));
    assert!(compiler.desired().values().all(|rules| rules.is_empty()));
    let between = Some(("h1".to_owned(), "h2".to_owned()));
    let storage = Intent {
        at: At {
            between,
            ..At::default()
        },
        both_directions: true,
        ..intent("storage")
    };
    compiler.add(&storage).unwrap();
    let expected = [
        "INT marked by DSCP 23, L4 checksum update",
        "reports to 192.0.2.1:32766",
        "port 2: sink",
        "port 3: sink",
        "port 4: sink",
        "instruction node_id",
        "instruction hop_latency",
        "port 2: source",
        "port 3: source",
        "watch from 10.0.0.2/32, to 10.0.0.1/32: md with node_id, hop_latency",
    ];
    assert_eq!(texts(&compiler, 2), expected);
    // A spine has no border: it only executes instructions.
    assert_eq!(texts(&compiler, 3).len(), 4);
    assert!(compiler.remove("storage"));
    assert!(compiler.desired().values().all(|rules| rules.is_empty()));
}

#[test]
fn nodes_that_report_by_themselves_execute_instructions_and_give_interfaces() {
    let mut compiler = compiler(&able(|_, can| can.bits |= 0x4000));
    compiler
        .add(&Intent {
            mode: Some(Mode::Postcard),
            ..intent("a")
        })
        .unwrap();
    let expected = [
        "reports to 192.0.2.1:32766",
        "instruction node_id",
        "instruction interfaces",
        "instruction hop_latency",
        "watch all flows: postcard with node_id, interfaces, hop_latency",
    ];
    assert_eq!(texts(&compiler, 3), expected);
    // Hosts can send INT all the same: the border removes it, of a device that can do that.
    let sinks = ["port 2: sink", "port 3: sink", "port 4: sink"];
    assert_eq!(
        texts(&compiler, 2),
        [&expected[..1], &sinks, &expected[1..]].concat()
    );
    compiler.remove("a");
    assert!(compiler.desired().values().all(|rules| rules.is_empty()));
    let mut compiler = super::tests::compiler(&able(|node, can| {
        can.bits |= 0x4000;
        can.sink = node != 2;
    }));
    compiler
        .add(&Intent {
            mode: Some(Mode::Postcard),
            ..intent("a")
        })
        .unwrap();
    assert_eq!([2, 3].map(|node| texts(&compiler, node)), [expected; 2]);
    assert_eq!(texts(&compiler, 1)[1], "port 2: sink");
    // Where no node gives them, postcards are still reported.
    let mut compiler = super::tests::compiler(&able(|_, can| can.bits &= !0x4000));
    compiler
        .add(&Intent {
            mode: Some(Mode::Postcard),
            ..intent("a")
        })
        .unwrap();
    assert_eq!(
        texts(&compiler, 3)[3],
        "watch all flows: postcard with node_id, hop_latency"
    );
}

#[test]
fn overlapping_intents_share_entries_with_the_union() {
    let mut compiler = compiler(&able(|_, can| can.sampling = true));
    compiler
        .add(&Intent {
            sample: 10,
            ..intent("all")
        })
        .unwrap();
    let watch = [Metric::QueueOccupancy].into();
    compiler
        .add(&Intent {
            watch,
            sample: 4,
            flows: to("10.0.0.2"),
            ..intent("one")
        })
        .unwrap();
    let watches: Vec<String> = texts(&compiler, 1)
        .into_iter()
        .filter(|text| text.starts_with("watch"))
        .collect();
    let expected = [
        "watch all flows: md with node_id, hop_latency, 1 in 10",
        "watch to 10.0.0.2/32: md with node_id, hop_latency, queue, 1 in 4",
    ];
    assert_eq!(watches, expected);
    let key = FlowMatch {
        dst: Some("10.0.0.2".parse().unwrap()),
        ..FlowMatch::default()
    };
    assert_eq!(compiler.served(&key), ["all", "one"]);
    assert_eq!(compiler.served(&FlowMatch::default()), ["all"]);
}

#[test]
fn filters_combine_so_that_nothing_asked_for_is_suppressed() {
    let mut compiler = compiler(&able(|_, _| {}));
    let reporting = |threshold| crate::intent::Reporting {
        thresholds: [(Metric::HopLatency, threshold)].into(),
        filter: Some(FilterAlgorithm::PerHop),
        ..crate::intent::Reporting::default()
    };
    let filters = |compiler: &Compiler| -> Vec<String> {
        let is_filter = |text: &String| text.starts_with("filter") || text.starts_with("report every");
        texts(compiler, 2).into_iter().filter(is_filter).collect()
    };
    compiler
        .add(&Intent {
            reporting: reporting(500),
            ..intent("a")
        })
        .unwrap();
    compiler
        .add(&Intent {
            reporting: reporting(100),
            flows: to("10.0.0.2"),
            ..intent("b")
        })
        .unwrap();
    let both = [
        "filter per_hop of hop_latency above 500ns: all flows",
        "filter per_hop of hop_latency above 100ns: to 10.0.0.2/32",
    ];
    assert_eq!(filters(&compiler), both);
    compiler
        .add(&Intent {
            flows: to("10.0.0.2"),
            ..intent("c")
        })
        .unwrap();
    assert_eq!(filters(&compiler)[1], "report every packet: to 10.0.0.2/32");
}

#[test]
fn the_cheapest_mode_that_works_is_chosen() {
    let auto = Intent {
        mode: None,
        ..intent("a")
    };
    let mode =
        |capabilities: Able, intent: &Intent| compiler(&capabilities).add(intent).map(|outcome| outcome.mode);
    assert_eq!(mode(able(|_, _| {}), &auto), Ok(Mode::Sf));
    let flow = Intent {
        watch: [Metric::FlowLatency].into(),
        ..auto.clone()
    };
    assert_eq!(mode(able(|_, _| {}), &flow), Ok(Mode::Md));
    assert_eq!(
        mode(able(|_, can| can.modes = [Mode::Md].into()), &auto),
        Ok(Mode::Md)
    );
    // INT would reach hosts behind leaf2: only postcards are left.
    assert_eq!(
        mode(able(|node, can| can.sink = node != 2), &auto),
        Ok(Mode::Postcard)
    );
}

#[test]
fn what_cannot_be_done_is_refused_in_one_sentence() {
    let refusal = |change: &dyn Fn(NodeId, &mut Capabilities), intent: &Intent| {
        compiler(&able(change)).add(intent).unwrap_err().to_string()
    };
    let nothing = |_: NodeId, _: &mut Capabilities| {};
    let at = |edges: &[&str]| At {
        edges: edges.iter().map(|&edge| edge.to_owned()).collect(),
        between: None,
    };
    let between = |a: &str, b: &str| At {
        between: Some((a.to_owned(), b.to_owned())),
        ..At::default()
    };
    let ranges = Flows {
        dport: vec![(8000, 8999)],
        ..Flows::default()
    };
    let cases = [
        (
            refusal(&|node, can| can.sink = node != 2, &intent("a")),
            "leaf2 has ports to hosts and cannot remove INT, so that hosts would receive it; use mode = \"postcard\", or remove leaf2 from the inventory",
        ),
        (
            refusal(&|_, can| can.bits = 0x8000, &intent("a")),
            "no device can fill hop_latency; remove the metrics that need it from `watch`",
        ),
        (
            refusal(
                &|_, can| can.matches.ranges = false,
                &Intent {
                    flows: ranges,
                    ..intent("a")
                },
            ),
            "leaf1 cannot match `port 8000-8999`: it has no port ranges; list the ports, or leave the ports out",
        ),
        (
            refusal(&|_, can| can.watch_entries = 0, &intent("a")),
            "the watchlist of leaf1 would need 1 entries and has room for 0; use wider prefixes, or limit the intent by `at`",
        ),
        (
            refusal(
                &|_, can| can.sampling = false,
                &Intent {
                    sample: 10,
                    ..intent("a")
                },
            ),
            "leaf1 cannot sample packets; remove `sample`, or exclude it by `at.edges`",
        ),
        (
            refusal(
                &nothing,
                &Intent {
                    at: at(&["leaf*", "core*"]),
                    ..intent("a")
                },
            ),
            "no device with edge ports is named or labelled `core*`; correct `at.edges`",
        ),
        (
            refusal(
                &nothing,
                &Intent {
                    at: between("h1", "h7"),
                    ..intent("a")
                },
            ),
            "there is no host `h7`; add it to the inventory",
        ),
        (
            refusal(
                &nothing,
                &Intent {
                    at: between("h1", "h3"),
                    ..intent("a")
                },
            ),
            "the host `h3` has no address; add one to the inventory",
        ),
        (
            refusal(
                &|node, can| {
                    can.l4_checksum
                        .retain(|one| node != 3 || *one == L4Checksum::Leave)
                },
                &intent("a"),
            ),
            "spine does not support l4_checksum = \"update\", and all devices of a domain must agree; choose one that all support",
        ),
    ];
    for (at, (refusal, expected)) in cases.into_iter().enumerate() {
        assert_eq!(refusal, expected, "case {at}");
    }
}

#[test]
fn keys_that_a_program_lacks_are_refused() {
    let refusal = |change: &dyn Fn(NodeId, &mut Capabilities), flows: Flows| {
        compiler(&able(change))
            .add(&Intent { flows, ..intent("a") })
            .unwrap_err()
            .to_string()
    };
    let tcp = Flows {
        proto: vec![6],
        dport: vec![(80, 80)],
        ..Flows::default()
    };
    assert_eq!(
        refusal(&|_, can| can.matches.protocol = false, tcp.clone()),
        "leaf1 cannot match `TCP, port 80`: it does not match the protocol; leave `proto` out: TCP and UDP are measured alike"
    );
    assert_eq!(
        refusal(
            &|_, can| can.matches.needs_port = true,
            Flows {
                proto: vec![6],
                ..Flows::default()
            }
        ),
        "leaf1 cannot match `TCP`: it would insert INT into packets without ports, which no sink removes; add a port"
    );
    let needs_port = able(|_, can| can.matches.needs_port = true);
    assert!(
        compiler(&needs_port)
            .add(&Intent {
                flows: tcp,
                ..intent("a")
            })
            .is_ok()
    );
}

#[test]
fn a_packet_that_would_not_fit_is_refused_in_bytes() {
    let watch = [
        Metric::HopLatency,
        Metric::QueueOccupancy,
        Metric::LinkUtilization,
    ];
    let intent = Intent {
        watch: watch.into(),
        ..intent("a")
    };
    let mut able = able(|_, can| can.bits = 0xffff);
    assert!(compiler(&able).add(&intent).is_ok());
    let narrow = NETWORK.replace("1600", "1550");
    let inventory = inventory::read(&narrow, "i.toml").unwrap();
    let mut compiler = Compiler::new(&inventory, &able, DomainSettings::default());
    let expected = "a packet of 1500 bytes grows by up to 76 bytes of INT (on the longest path and one link more, since a failure makes paths longer), and the MTU between devices is 1550; raise that MTU to 1576 bytes, watch less, or use mode = \"postcard\"";
    assert_eq!(compiler.add(&intent).unwrap_err().to_string(), expected);
    // Of the modes that fit, the cheapest is taken.
    able.values_mut()
        .for_each(|can| can.modes = [Mode::Md, Mode::Mx, Mode::Postcard].into());
    let mut compiler = Compiler::new(&inventory, &able, DomainSettings::default());
    assert_eq!(
        compiler
            .add(&Intent { mode: None, ..intent })
            .map(|outcome| outcome.mode),
        Ok(Mode::Postcard)
    );
}

/// Each alone fits; a packet of both would not.
#[test]
fn what_overlapping_intents_ask_together_must_fit() {
    let able = able(|_, _| {});
    let narrow = NETWORK.replace("1600", "1550");
    let inventory = inventory::read(&narrow, "i.toml").unwrap();
    let mut compiler = Compiler::new(&inventory, &able, DomainSettings::default());
    let latency = Intent {
        watch: [Metric::HopLatency].into(),
        ..intent("a")
    };
    let queue = Intent {
        watch: [Metric::QueueOccupancy].into(),
        ..intent("b")
    };
    compiler.add(&latency).unwrap();
    let hops = |compiler: &Compiler| {
        let watch = |rule: &Rule| {
            if let Rule::Watch(watch) = rule {
                Some(watch.hops)
            } else {
                None
            }
        };
        compiler.desired()[&1].iter().find_map(watch)
    };
    // 34 bytes have room for four records of 8 bytes, however long the path gets.
    assert_eq!(hops(&compiler), Some(4));
    let expected = "a packet of 1500 bytes grows by up to 52 bytes of INT for all intents of the same flows (on the longest path and one link more, since a failure makes paths longer), and the MTU between devices is 1550; raise that MTU to 1552 bytes, watch less, or use mode = \"postcard\"";
    assert_eq!(compiler.add(&queue).unwrap_err().to_string(), expected);
    let refused = compiler.add_all([&latency, &queue]);
    assert_eq!(
        refused.into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
        ["b"]
    );
    // Postcards would hide it until that intent goes.
    let postcards = Intent {
        mode: Some(Mode::Postcard),
        priority: 9,
        ..intent("c")
    };
    assert!(compiler.add(&postcards).is_err());
}

#[test]
fn what_an_operator_should_know_is_noted() {
    let able = able(|node, can| {
        can.bits = if node == 3 { 0x8000 } else { 0xfd01 };
        can.restart = if node == 1 {
            Restart::Forwards
        } else {
            Restart::Keeps
        };
    });
    let outcome = compiler(&able).add(&intent("a")).unwrap();
    let notes: Vec<String> = outcome.notes.iter().map(ToString::to_string).collect();
    let expected = [
        "spine cannot fill hop_latency: its records lack these values",
        "leaf1 forwards without rules after a restart: until it is configured again, its hosts may receive INT",
    ];
    assert_eq!(notes, expected);
}

#[test]
fn adding_one_by_one_gives_the_same_as_all_at_once() {
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let mut one_by_one = compiler(&able(|_, can| can.sampling = true));
        let mut intents: BTreeMap<String, Intent> = BTreeMap::new();
        for _ in 0..20 {
            let name = format!("i{}", rng.below(6));
            if rng.below(3) == 0 {
                intents.remove(&name);
                one_by_one.remove(&name);
                continue;
            }
            let prefix = ["10.0.0.0/8", "10.0.0.1", "10.0.0.2", "fd00::/16"][rng.below(4)];
            let intent = Intent {
                flows: to(prefix),
                watch: [Metric::ALL[rng.below(4)]].into(),
                mode: [Some(Mode::Md), Some(Mode::Postcard), None][rng.below(3)],
                sample: 1 + rng.below(3) as u32,
                both_directions: rng.below(2) == 0,
                priority: rng.below(3) as u32,
                ..intent(&name)
            };
            one_by_one.add(&intent).unwrap();
            intents.insert(name, intent);
        }
        let mut at_once = compiler(&able(|_, can| can.sampling = true));
        assert_eq!(at_once.add_all(intents.values()), []);
        assert_eq!(one_by_one.desired(), at_once.desired(), "seed {seed}");
    }
}

#[test]
fn collectors_share_the_reporters_by_distance_and_capacity() {
    let inventory = inventory::read(NETWORK, "i.toml").unwrap();
    let collector = |last: u8, capacity, at| Collector {
        address: (IpAddr::from([192, 0, 2, last]), 32766).into(),
        capacity,
        at,
        budget: Budget::default(),
    };
    let of = |collectors: Vec<Collector>| {
        let settings = DomainSettings {
            collectors,
            ..DomainSettings::default()
        };
        let mut compiler = Compiler::new(&inventory, &able(|_, _| {}), settings);
        compiler.add(&intent("a")).unwrap();
        let session = |rules: &Arc<Rules>| {
            rules.iter().find_map(|rule| match rule {
                Rule::Session(address) => Some(address.ip().to_string().pop()),
                _ => None,
            })
        };
        compiler
            .desired()
            .values()
            .map(|rules| session(rules).flatten().unwrap())
            .collect::<String>()
    };
    assert_eq!(
        of(vec![collector(1, 1, Some(1)), collector(2, 1, Some(2))]),
        "121"
    );
    assert_eq!(of(vec![collector(1, 2, None), collector(2, 1, None)]), "121");
    // One whose place is not known is the last choice.
    assert_eq!(of(vec![collector(1, 9, None), collector(2, 1, Some(3))]), "222");
}
/// Two racks of two leaves below a spine each, and the spines connected.
#[test]
fn a_collector_that_goes_away_leaves_its_reporters_to_the_nearest_of_the_others() {
    let device = |name: &str, node: u32| {
        let edge = if name.len() == 2 { ", edge = [1]" } else { "" };
        format!("{{ name = \"{name}\", node = {node}, ports = 4{edge} }}")
    };
    let names = ["a1", "a2", "a", "b", "b1", "b2"]
        .iter()
        .zip(1..)
        .map(|(name, node)| device(name, node));
    let links = [
        "a1:4\", \"a:1",
        "a2:4\", \"a:2",
        "a:3\", \"b:3",
        "b:1\", \"b1:4",
        "b:2\", \"b2:4",
    ];
    let links = links.map(|link| format!("{{ between = [\"{link}\"] }}"));
    let text = format!(
        "devices = [{}]\nlinks = [{}]",
        names.collect::<Vec<_>>().join(", "),
        links.join(", ")
    );
    let inventory = inventory::read(&text, "i.toml").unwrap();
    let collector = |last: u8, capacity, at| Collector {
        address: (IpAddr::from([192, 0, 2, last]), 32766).into(),
        capacity,
        at: Some(at),
        budget: Budget::default(),
    };
    let sessions = |collectors: &[Collector]| -> Vec<(NodeId, Option<u8>)> {
        let settings = DomainSettings {
            collectors: collectors.to_vec(),
            ..DomainSettings::default()
        };
        let capabilities = inventory
            .devices()
            .map(|device| (device.node, Capabilities::default()))
            .collect();
        let mut compiler = Compiler::new(&inventory, &capabilities, settings);
        compiler.add(&intent("a")).unwrap();
        let session = |rules: &Rules| {
            rules.iter().find_map(|rule| match rule {
                Rule::Session(to) => to.ip().to_string().rsplit('.').next()?.parse().ok(),
                _ => None,
            })
        };
        compiler
            .desired()
            .iter()
            .map(|(node, rules)| (*node, session(rules)))
            .collect()
    };
    let to = |collectors: [u8; 6]| -> Vec<(NodeId, Option<u8>)> { (1..).zip(collectors.map(Some)).collect() };
    // One at the first spine; two at the second, of which the last takes twice as many.
    let all = [collector(1, 1, 3), collector(2, 1, 4), collector(3, 2, 4)];
    assert_eq!(sessions(&all), to([1, 1, 1, 2, 3, 3]));
    assert_eq!(sessions(&all[..2]), to([1, 1, 1, 2, 2, 2]));
    // Without the near one, the others share its reporters by capacity.
    assert_eq!(sessions(&all[1..]), to([2, 3, 3, 2, 3, 3]));
    assert_eq!(sessions(&all[..1]), to([1; 6]));
    assert_eq!(
        sessions(&[]),
        (1..=6).map(|node| (node, None)).collect::<Vec<_>>()
    );
}

/// The state of an overlap as text: its rules, then its notes.
fn described(overlaps: &Overlaps, name: &str) -> Vec<String> {
    let overlap = &overlaps[name];
    let rule = |rule: &EffectiveRule| {
        let which = if rule.whole { "whole" } else { "part" };
        format!("{which} {} {}", rule.mode.name(), instruction::names(rule.bits))
    };
    overlap.rules.iter().map(rule).chain(overlap.notes()).collect()
}

#[test]
fn intents_that_overlap_say_which_rule_is_in_force_and_who_loses_what() {
    let watch = [Metric::FlowLatency, Metric::HopLatency];
    let tcp = Intent {
        watch: watch.into(),
        ..intent("tcp")
    };
    let web = Intent {
        mode: Some(Mode::Sf),
        flows: to("10.0.0.2"),
        ..intent("web")
    };
    let mut compiler = compiler(&able(|_, can| can.modes = Mode::ALL.into()));
    compiler.add(&tcp).unwrap();
    compiler
        .add(&Intent {
            watch: [Metric::QueueOccupancy].into(),
            ..web.clone()
        })
        .unwrap();
    let overlaps = compiler.overlaps();
    let expected = [
        "whole md node_id, hop_latency",
        "part md node_id, hop_latency, queue",
    ];
    assert_eq!(described(&overlaps, "tcp"), expected);
    let expected = [
        "whole md node_id, hop_latency, queue",
        "its packets are taken by `tcp`: mode md in place of sf, because its name comes first and both have priority 100",
    ];
    assert_eq!(described(&overlaps, "web"), expected);

    compiler
        .add(&Intent {
            priority: 200,
            ..web.clone()
        })
        .unwrap();
    let overlaps = compiler.overlaps();
    let note = "those of its packets that it matches are taken by `web`: mode sf in place of md, because of priority 200 to 100; \
                they give no flow latency";
    let expected = [
        "whole md node_id, hop_latency",
        "part sf node_id, hop_latency",
        note,
    ];
    assert_eq!(described(&overlaps, "tcp"), expected);
    assert_eq!(described(&overlaps, "web"), ["whole sf node_id, hop_latency"]);
    assert_eq!(overlaps["tcp"].notes_of("web"), [note]);
    // Its packets are counted where its mode is in force.
    let key = to("10.0.0.2").entries(false).unwrap()[0];
    assert_eq!(compiler.measured(1, &key), ["web"]);
    assert_eq!(compiler.measured(1, &FlowMatch::default()), ["tcp"]);
}

#[test]
fn a_filter_by_rule_is_its_rule_where_devices_can_express_it() {
    let reporting = |rule: &str| crate::intent::Reporting {
        rule: Some(rule.to_owned()),
        filter: Some(FilterAlgorithm::Rule),
        ..crate::intent::Reporting::default()
    };
    let wants = |name: &str, rule: &str, flows| Intent {
        reporting: reporting(rule),
        flows,
        ..intent(name)
    };
    let mut compiler = compiler(&able(|node, can| {
        if node == 2 {
            (can.rules.history, can.rules.filters) = (false, 2);
        }
    }));
    compiler
        .add(&wants("a", "max(hop_latency) > 5us\n  or loop", to("10.0.0.2")))
        .unwrap();
    let filters = |compiler: &Compiler| -> Vec<String> {
        texts(compiler, 2)
            .into_iter()
            .filter(|text| text.starts_with("report "))
            .collect()
    };
    assert_eq!(
        filters(&compiler)[0],
        "report if max(hop_latency) > 5us or loop: to 10.0.0.2/32"
    );
    // Of two rules for the same flows, neither may hold back what the other asks for.
    compiler.add(&wants("b", "hops > 3", to("10.0.0.2"))).unwrap();
    assert_eq!(filters(&compiler), ["report every packet: to 10.0.0.2/32"]);
    assert!(compiler.remove("b"));
    let error = compiler
        .add(&wants("c", "hops > 3 for 5", to("10.0.0.2")))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the rule cannot be the filter of leaf2: it keeps no earlier packets"),
        "{error}"
    );
    compiler.add(&wants("d", "hops > 4", to("10.0.1.0/24"))).unwrap();
    let error = compiler
        .add(&wants("e", "hops > 5", to("10.0.2.0/24")))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(
            "the filters by rule of leaf2 would need 3 entries and has room for 2; each entry of the flows"
        ),
        "{error}"
    );
    let without = Intent {
        reporting: crate::intent::Reporting {
            rule: None,
            ..reporting("")
        },
        ..intent("f")
    };
    let error = without.check(0).unwrap_err().to_string();
    assert_eq!(error, "the filter needs a condition; add `rule`");
}

#[test]
fn a_filter_that_another_intent_undoes_is_told() {
    let filters = |name: &str, filter, flows| {
        let reporting = crate::intent::Reporting {
            filter: Some(filter),
            ..crate::intent::Reporting::default()
        };
        Intent {
            reporting,
            flows,
            ..intent(name)
        }
    };
    let mut compiler = compiler(&able(|_, _| {}));
    let change = FilterAlgorithm::Change;
    compiler.add(&filters("bad", change, to("10.0.0.2"))).unwrap();
    assert_eq!(
        described(&compiler.overlaps(), "bad"),
        ["whole md node_id, hop_latency"]
    );
    compiler
        .add(&filters("also", FilterAlgorithm::PerHop, to("10.0.0.0/8")))
        .unwrap();
    assert_eq!(
        described(&compiler.overlaps(), "bad")[1..],
        ["its filter has no effect: `also` has another filter, so every packet is reported"]
    );
    assert_eq!(
        described(&compiler.overlaps(), "also")[1..],
        [
            "its filter has no effect on packets that `bad` matches too: `bad` has another filter, so every packet is reported"
        ]
    );
    compiler.add(&intent("tcp")).unwrap();
    assert_eq!(
        described(&compiler.overlaps(), "bad")[1..],
        ["its filter has no effect: `tcp` has every packet reported"]
    );
}
