//! Rules to entries and back, with the interfaces of published programs.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use detect::Metric;
use manager::device::{
    Change, Encoding, Filter, FilterAlgorithm, L4Checksum, MatchKinds, Mode, Restart, Rule, Rules, Watch,
};
use manager::flows::{ANY_PORT, FlowMatch};
use p4runtime::entry::{Bytes, Content, Entry, Field, Key, MARK};
use p4runtime::map;
use p4runtime::message::{ReadResponse, UpdateType};
use p4runtime::program::{LocalSettings, Program};
use p4runtime::translate::{Meaning, changed};
use prost::Message;
use support::{PROGRAMS, info, local, parse, program, shipped};
use testkit::rng::Rng;

fn key(src: Option<&str>, dst: Option<&str>, sport: (u16, u16), dport: (u16, u16)) -> FlowMatch {
    let prefix = |text: &str| text.parse().unwrap();
    FlowMatch {
        src: src.map(prefix),
        dst: dst.map(prefix),
        sport,
        dport,
        proto: None,
        dscp: None,
    }
}

fn watch(key: FlowMatch, mode: Mode, bits: u16) -> Rule {
    Rule::Watch(Arc::new(Watch {
        key,
        mode,
        bits,
        hops: 6,
        sample: 1,
        drops: true,
    }))
}

/// What a device of a domain gets.
fn rules(program: &Program) -> Rules {
    let mut rules = Rules::from([Rule::Session("192.0.2.9:32766".parse().unwrap())]);
    let one = key(Some("10.0.0.0/8"), Some("10.1.2.3"), ANY_PORT, (4789, 4789));
    if program.capabilities().sink {
        rules.extend(program.map().encoding().map(Rule::Encoding));
        if program.capabilities().restart == Restart::Waits {
            rules.insert(Rule::Forwarding);
        }
        rules.extend([1, 2, 3].map(Rule::Sink));
        rules.extend([0, 2].map(Rule::Instruction));
        rules.insert(Rule::Source(1));
        let is_sf = program.capabilities().modes.contains(&Mode::Sf);
        rules.insert(watch(one, if is_sf { Mode::Sf } else { Mode::Md }, 0xa000));
    } else {
        rules.insert(watch(one, Mode::Postcard, 0xa000));
        let ranges = key(None, Some("10.1.2.0/24"), (1024, 65535), (80, 443));
        rules.insert(watch(
            FlowMatch {
                proto: Some(6),
                ..ranges
            },
            Mode::Postcard,
            0x8000,
        ));
    }
    rules
}

fn entries(program: &Program, rules: &Rules) -> Vec<Entry> {
    let all = rules.iter().flat_map(|rule| program.encode(rule).unwrap());
    all.collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn rules_come_back_from_their_entries() {
    for (name, _) in PROGRAMS {
        let program = program(name);
        let rules = rules(&program);
        let meaning = program.decode(entries(&program, &rules), &rules);
        assert_eq!(meaning.rules, rules, "{name}");
        assert_eq!((meaning.remains.len(), meaning.foreign.len()), (0, 0), "{name}");
        // Nothing is to be done.
        assert_eq!(program.plan(&meaning, &rules), Ok(vec![]), "{name}");
    }
}

#[test]
fn without_memory_entries_are_the_plainest_rules_and_need_no_change() {
    for (name, _) in PROGRAMS {
        let program = program(name);
        let rules = rules(&program);
        let meaning = program.decode(entries(&program, &rules), &Rules::new());
        assert_eq!(meaning.remains, BTreeSet::new(), "{name}");
        // The manager removes and adds what differs, and the entries stay as they are.
        let wanted: Vec<Change> = meaning
            .rules
            .difference(&rules)
            .cloned()
            .map(Change::Remove)
            .collect();
        let wanted = wanted
            .into_iter()
            .chain(rules.difference(&meaning.rules).cloned().map(Change::Add));
        let then = changed(&meaning.rules, &wanted.collect::<Vec<_>>());
        assert_eq!(then, rules, "{name}");
        assert_eq!(program.plan(&meaning, &then), Ok(vec![]), "{name}");
    }
    let onos = program("onos-int");
    let wanted = rules(&onos);
    let meaning = onos.decode(entries(&onos, &wanted), &Rules::new());
    // The program says neither how INT is encoded nor which instructions were asked for; of the watchlist nothing is lost.
    let lost: Vec<String> = wanted
        .difference(&meaning.rules)
        .map(ToString::to_string)
        .collect();
    assert_eq!(lost, ["INT marked by DSCP 23, L4 checksum leave"]);
    assert_eq!(meaning.rules.difference(&wanted).count(), 6);
}

#[test]
fn an_entry_of_the_watchlist_has_the_values_of_the_program() {
    let onos = program("onos-int");
    let one = key(Some("10.0.0.0/8"), None, ANY_PORT, (4789, 4789));
    let found = onos.encode(&watch(one, Mode::Md, 0xa200)).unwrap();
    let fields = [
        (
            1,
            Field::Ternary(Bytes::from(0x0a00_0000), Bytes::from(0xff00_0000)),
        ),
        (4, Field::Ternary(Bytes::from(4789), Bytes::from(0xffff))),
    ];
    // 9 of the prefix, 65,535 of the port.
    let key = Key::Table {
        table: 0x0200_0003,
        priority: 1 + 9 + 65_535,
        fields: fields.into(),
    };
    // Three values, one of two words: four words.
    let params = [(1, 4), (2, 6), (3, 0xa), (4, 2)].map(|(id, value)| (id, Bytes::from(value)));
    let content = Content::Action(0x0100_0004, params.into());
    assert_eq!(
        found,
        [Entry {
            key,
            content,
            metadata: MARK.to_vec()
        }]
    );
}

#[test]
fn a_device_forwards_by_its_routes_when_it_may() {
    let int = program("hopwise-int");
    let found = int.encode(&Rule::Forwarding).unwrap();
    let field = |field: Field| BTreeMap::from([(1, field)]);
    let bytes = |number: u128| Bytes::from(number);
    let hop = |port: u128| {
        let params = [(1, port), (2, 0x0200_0000_0011), (3, 0x0200_0000_0012)];
        Content::Action(0x0100_0010, params.map(|(id, value)| (id, bytes(value))).into())
    };
    let route = |table: u32, fields: BTreeMap<u32, Field>, port: u128| Entry {
        key: Key::Table {
            table,
            priority: 0,
            fields,
        },
        content: hop(port),
        metadata: MARK.to_vec(),
    };
    let to = u128::from("fd00:2::1".parse::<std::net::Ipv6Addr>().unwrap());
    let expected = [
        Entry {
            key: Key::Table {
                table: 0x0200_0013,
                priority: 0,
                fields: field(Field::Exact(bytes(2))),
            },
            content: Content::Action(0x0100_0012, [(1, bytes(2140))].into()),
            metadata: MARK.to_vec(),
        },
        route(0x0200_0010, field(Field::Lpm(bytes(0x0a00_0100), 24)), 1),
        route(0x0200_0010, BTreeMap::new(), 3),
        route(0x0200_0011, field(Field::Lpm(bytes(to), 128)), 2),
    ];
    assert_eq!(found, expected);
    assert_eq!(int.capabilities().restart, Restart::Waits);
    // A route that is missing: it does not forward as it should.
    let rules = Rules::from([Rule::Forwarding]);
    let meaning = int.decode(found[1..].to_vec(), &rules);
    assert_eq!((meaning.rules.len(), meaning.remains.len()), (0, 3));
    // Another controller has the routes: it may forward before its ports remove INT.
    let without = LocalSettings {
        routes: vec![],
        ..local()
    };
    let without = Program::new(&shipped("hopwise-int"), &info("hopwise-int"), &without).unwrap();
    assert_eq!(without.capabilities().restart, Restart::Forwards);
}

#[test]
fn a_watchlist_of_both_versions_of_ip_has_two_tables() {
    let int = program("hopwise-int");
    let tables = |key: FlowMatch| -> Vec<u32> {
        let entries = int.encode(&watch(key, Mode::Md, 0xa000)).unwrap();
        let table = |entry: &Entry| match entry.key {
            Key::Table { table, .. } => table,
            _ => 0,
        };
        entries.iter().map(table).collect()
    };
    assert_eq!(
        tables(FlowMatch {
            dscp: Some(10),
            ..FlowMatch::default()
        }),
        [0x0200_0002, 0x0200_0003]
    );
    assert_eq!(
        tables(key(Some("10.0.0.0/8"), None, (80, 90), ANY_PORT)),
        [0x0200_0002]
    );
    assert_eq!(
        tables(key(None, Some("fd00::/16"), ANY_PORT, (80, 90))),
        [0x0200_0003]
    );
    // The reports of others are excluded, above all keys.
    let session = int
        .encode(&Rule::Session("192.0.2.9:32766".parse().unwrap()))
        .unwrap();
    let excluded = session.iter().any(|entry| {
        matches!(
            entry.key,
            Key::Table {
                table: 0x0200_0002,
                priority: 0xff_ffff,
                ..
            }
        )
    });
    assert!(excluded, "{session:?}");
}

#[test]
fn capabilities_follow_from_the_program() {
    let onos = program("onos-int").capabilities();
    assert_eq!(
        (onos.watch_entries, onos.bits, onos.sink, onos.joint_roles),
        (1024, 0xff00, true, false)
    );
    let kinds = MatchKinds {
        ipv6: false,
        prefixes: true,
        wildcards: true,
        ranges: false,
        dscp: false,
        protocol: false,
        needs_port: true,
    };
    assert_eq!(onos.matches, kinds);
    assert_eq!(onos.l4_checksum, [L4Checksum::Leave].into());
    assert_eq!(onos.restart, Restart::Forwards);
    assert_eq!(program("geant-int").capabilities().watch_entries, 127);
    let tna = program("fabric-tna").capabilities();
    // One entry excludes the reports.
    assert_eq!(
        (tna.watch_entries, tna.sink, tna.modes),
        (63, false, [Mode::Postcard].into())
    );
    assert_eq!(
        tna.matches,
        MatchKinds {
            ranges: true,
            protocol: true,
            needs_port: false,
            ..kinds
        }
    );
    let kept = LocalSettings {
        restart: Some(Restart::Keeps),
        ..local()
    };
    let kept = Program::new(&shipped("onos-int"), &info("onos-int"), &kept).unwrap();
    assert_eq!(kept.capabilities().restart, Restart::Keeps);
}

#[test]
fn what_does_not_fit_is_named() {
    let (_, text) = PROGRAMS[0];
    let broken = text
        .replace("tb_set_sink 511", "tb_sink 511")
        .replace("field int_is_valid 1 exact", "field valid 1 exact")
        .replace("param switch_id 32", "param node 32")
        .replace("hdr.ipv4.src_addr 32", "hdr.ipv4.src_addr 31")
        .replace("dst_addr 32 ternary", "dst_addr 32 range");
    let without = LocalSettings {
        report: None,
        ..local()
    };
    let problems = Program::new(&shipped("onos-int"), &parse(&broken), &without).unwrap_err();
    let expected = [
        "the map needs to know how reports leave the device; add `report`",
        "the key of table `egress.process_int_report.tb_generate_report` has no field `int_is_valid`; it has valid",
        "the field `valid` of table `egress.process_int_report.tb_generate_report` must have a value, and the map gives none",
        "the program has no table `ingress.process_int_source_sink.tb_set_sink`",
        "the key of table `egress.process_int_transit.tb_int_insert` has no field `int_is_valid`; it has valid",
        "the field `valid` of table `egress.process_int_transit.tb_int_insert` must have a value, and the map gives none",
        "the action `egress.process_int_transit.init_metadata` has no parameter `switch_id`; it has node",
        "the parameter `node` of action `egress.process_int_transit.init_metadata` must have a value, and the map gives none",
        "the field `hdr.ipv4.dst_addr` of table `ingress.process_int_source.tb_int_source` is a range, which no prefix is",
        "the field `hdr.ipv4.src_addr` of table `ingress.process_int_source.tb_int_source` has 31 bits, which do not fit `src`",
    ];
    assert_eq!(problems, expected);
    // A map for another program: every table is missing, and the list has an end.
    let other = Program::new(&shipped("fabric-tna"), &info("onos-int"), &local()).unwrap_err();
    assert!(
        other.len() <= 21 && other[0].contains("has no table `FabricEgress.int_egress.report`"),
        "{other:?}"
    );
}

#[test]
fn maps_of_our_programs_name_all_their_counters() {
    for (name, _) in PROGRAMS
        .into_iter()
        .filter(|(name, _)| name.starts_with("hopwise"))
    {
        let text = map::shipped(name).unwrap();
        for counter in info(name).counters {
            let alias = counter.preamble.unwrap().alias;
            assert!(
                text.contains(&format!("array = \"{alias}\"")),
                "{name} does not name {alias}"
            );
        }
    }
}

/// What is reported by DTA is no rule of the manager: a copy of the map has it as entries.
#[test]
fn a_copy_of_a_map_has_further_entries_of_the_device() {
    let more = r#"
[[forwarding]]
table = "collector"
match = { collector = 0 }
action = "report_to"
params = { src_mac = "report_source_mac", dst_mac = "report_mac", src_ip = "report_source", dst_ip = 0xc0000209, src_port = 40040, dst_port = 40040, first = 0 }

[[forwarding]]
table = "mapping"
match = { event = 1, position = "0-3", ip_proto = 6 }
action = "key_write"
params = { number = 3, store = 1, copies = 2, of_key = 3 }
"#;
    let name = "hopwise-dta-reporter";
    let text = format!("{}{more}", map::shipped(name).unwrap());
    let copy = map::read(&text, "copy.toml").unwrap();
    let program =
        Program::new(&copy, &info(name), &local()).unwrap_or_else(|problems| panic!("{problems:#?}"));
    let plain = support::program(name).encode(&Rule::Forwarding).unwrap();
    let entries = program.encode(&Rule::Forwarding).unwrap();
    assert_eq!(entries.len(), plain.len() + 2);
    let meaning = program.decode(entries.clone(), &Rules::new());
    assert_eq!(
        (meaning.rules, meaning.remains.len()),
        (Rules::from([Rule::Forwarding]), 0)
    );
    // One that is missing is written again.
    let meaning = program.decode(entries[..entries.len() - 1].to_vec(), &Rules::new());
    assert_eq!(meaning.rules, Rules::new());
    let batches = program.plan(&meaning, &Rules::from([Rule::Forwarding])).unwrap();
    assert_eq!(batches.iter().flatten().count(), 1);
}

#[test]
fn the_entries_of_the_how_to_fit() {
    let page = include_str!("../../../../docs/how-to/manage-p4-switches.md");
    let section = page.split_once("## DTA reporters").unwrap().1;
    let more = section.split("```").nth(1).unwrap().strip_prefix("toml").unwrap();
    let name = "hopwise-dta-reporter";
    let copy = map::read(&format!("{}{more}", map::shipped(name).unwrap()), "copy.toml");
    let copy = copy.unwrap_or_else(|error| panic!("{error}"));
    let program =
        Program::new(&copy, &info(name), &local()).unwrap_or_else(|problems| panic!("{problems:#?}"));
    let plain = support::program(name).encode(&Rule::Forwarding).unwrap();
    assert_eq!(program.encode(&Rule::Forwarding).unwrap().len(), plain.len() + 4);
}

/// A packet would report without end at a mapping whose entry comes back behind its own number.
#[test]
fn a_mapping_at_a_position_behind_its_number_is_refused() {
    let entry = |position: &str, number: u8| {
        format!(
            "{}\n[[forwarding]]\ntable = \"mapping\"\nmatch = {{ event = 1{position} }}\naction = \"key_write\"\nparams = {{ number = {number}, store = 1, copies = 2, of_key = 3 }}\n",
            map::shipped("hopwise-dta-reporter").unwrap()
        )
    };
    let refused = |position, number| {
        let read = map::read(&entry(position, number), "copy.toml");
        read.err().map(|error| {
            error
                .to_string()
                .contains(&format!("write position = \"0-{number}\""))
        })
    };
    let good = [
        (", position = \"0-3\"", 3),
        (", position = 0", 0),
        (", position = \"1-2\"", 3),
    ];
    assert_eq!(
        good.map(|(position, number)| refused(position, number)),
        [None; 3]
    );
    // Without a position, an entry has all of them.
    let bad = [(", position = \"0-3\"", 0), (", position = 1", 0), ("", 3)];
    assert_eq!(
        bad.map(|(position, number)| refused(position, number)),
        [Some(true); 3]
    );
}

fn filter(key: FlowMatch, algorithm: FilterAlgorithm, metric: Metric, threshold: u64) -> Rule {
    Rule::Filter(Arc::new(Filter {
        key,
        algorithm,
        metric,
        threshold,
        rule: None,
    }))
}

#[test]
fn filters_are_entries_and_a_threshold_is_a_parameter() {
    let int = program("hopwise-int");
    let can = int.capabilities();
    let all = [
        FilterAlgorithm::Noop,
        FilterAlgorithm::PerHop,
        FilterAlgorithm::PerFlow,
        FilterAlgorithm::Change,
        FilterAlgorithm::Rule,
    ];
    let rules = (
        can.rules.filters,
        can.rules.comparisons,
        can.rules.clauses,
        can.rules.history,
    );
    assert_eq!(rules, (9, 16, 16, false));
    assert_eq!((can.filter_entries, can.filters), (256, all.into()));
    let (any, web) = (
        FlowMatch::default(),
        key(Some("10.0.0.0/8"), None, ANY_PORT, (80, 90)),
    );
    let mut wanted = Rules::from([
        filter(any, FilterAlgorithm::PerFlow, Metric::FlowLatency, 1_000_000),
        filter(
            FlowMatch {
                proto: Some(6),
                ..web
            },
            FilterAlgorithm::PerHop,
            Metric::QueueOccupancy,
            64,
        ),
        filter(
            key(None, Some("fd00::/16"), ANY_PORT, ANY_PORT),
            FilterAlgorithm::Change,
            Metric::FlowPath,
            0,
        ),
        filter(web, FilterAlgorithm::Noop, Metric::FlowPath, 0),
    ]);
    // Of both versions of IP: two entries.
    let installed = entries(&int, &wanted);
    assert_eq!(installed.len(), 5);
    for memory in [&wanted, &Rules::new()] {
        let meaning = int.decode(installed.clone(), memory);
        assert_eq!((&meaning.rules, meaning.remains.len()), (&wanted, 0));
    }
    let meaning = int.decode(installed, &wanted);
    wanted.pop_first();
    wanted.insert(filter(
        any,
        FilterAlgorithm::PerFlow,
        Metric::FlowLatency,
        2_000_000,
    ));
    let batches = int.plan(&meaning, &wanted).unwrap();
    let updates: Vec<UpdateType> = batches.iter().flatten().map(|(update, _)| *update).collect();
    assert_eq!(updates, [UpdateType::Modify; 2]);
    for (rule, expected) in [
        (
            filter(any, FilterAlgorithm::PerHop, Metric::LinkUtilization, 1),
            "the program has no filter per_hop of link_utilization; use another metric or filter",
        ),
        (
            filter(
                FlowMatch { dscp: Some(3), ..any },
                FilterAlgorithm::Noop,
                Metric::FlowPath,
                0,
            ),
            "the filters of the program cannot match the DSCP; remove `dscp` from the intent",
        ),
        (
            filter(any, FilterAlgorithm::PerFlow, Metric::FlowLatency, 1 << 48),
            "281474976710656 does not fit into the 48 bits of `threshold` in the program",
        ),
    ] {
        assert_eq!(int.encode(&rule), Err(expected.to_owned()));
    }
}

fn sampled(port: u16, mode: Mode, sample: u32) -> Rule {
    let key = key(None, None, ANY_PORT, (port, port));
    Rule::Watch(Arc::new(Watch {
        key,
        mode,
        bits: 0xa000,
        hops: 8,
        sample,
        drops: true,
    }))
}

/// Table, sample and sampler of the entries of the watchlist.
fn samples(batches: &[Vec<(UpdateType, Entry)>]) -> Vec<(UpdateType, u32, u128, Option<u128>)> {
    let of = |(update, entry): &(UpdateType, Entry)| {
        let Key::Table { table, .. } = entry.key else {
            panic!("{entry:?}")
        };
        let Content::Action(action, params) = &entry.content else {
            panic!("{entry:?}")
        };
        let number = |id: u32| params.get(&id).and_then(Bytes::number);
        // Of postcards, the sample is the last one.
        let (sample, sampler) = if *action == 0x0100_0006 { (3, 7) } else { (5, 6) };
        (*update, table, number(sample).unwrap(), number(sampler))
    };
    batches.iter().flatten().map(of).collect()
}

#[test]
fn each_rule_that_samples_has_a_sampler_of_its_own_and_keeps_it() {
    const V4: u32 = 0x0200_0002;
    const V6: u32 = 0x0200_0003;
    let (int, add, modify) = (program("hopwise-int"), UpdateType::Insert, UpdateType::Modify);
    assert!(int.capabilities().sampling);
    let first = Rules::from([
        sampled(80, Mode::Md, 10),
        sampled(81, Mode::Md, 1),
        sampled(82, Mode::Md, 7),
        sampled(83, Mode::Postcard, 5),
    ]);
    let batches = int.plan(&Meaning::default(), &first).unwrap();
    let both = |update, sample, sampler| [(update, V4, sample, sampler), (update, V6, sample, sampler)];
    let mut found = samples(&batches);
    found.sort_by_key(|(_, table, sample, _)| (*sample, *table));
    let expected = [
        both(add, 1, Some(0)),
        both(add, 5, None),
        both(add, 7, Some(1)),
        both(add, 10, Some(0)),
    ];
    assert_eq!(found, expected.concat());
    let installed: Vec<Entry> = batches.into_iter().flatten().map(|(_, entry)| entry).collect();
    for memory in [&first, &Rules::new()] {
        let meaning = int.decode(installed.clone(), memory);
        assert_eq!((&meaning.rules, meaning.remains.len()), (&first, 0));
        assert_eq!(int.plan(&meaning, &first), Ok(vec![]));
    }
    // The one of the rule that goes is free; a share that changes is one parameter.
    let meaning = int.decode(installed, &first);
    let then = Rules::from([
        sampled(82, Mode::Md, 14),
        sampled(84, Mode::Md, 3),
        sampled(85, Mode::Md, 2),
    ]);
    let batches = int.plan(&meaning, &then).unwrap();
    let mut found = samples(&batches);
    found.retain(|(update, ..)| *update != UpdateType::Delete);
    found.sort_by_key(|(_, table, sample, _)| (*sample, *table));
    let expected = [
        both(add, 2, Some(2)),
        both(add, 3, Some(0)),
        both(modify, 14, Some(1)),
    ];
    assert_eq!(found, expected.concat());
    // As many as the program has.
    let all = |count: u16| {
        (0..count)
            .map(|port| sampled(1000 + port, Mode::Md, 2))
            .collect::<Rules>()
    };
    assert!(int.plan(&Meaning::default(), &all(1024)).is_ok());
    let expected = "the program samples the packets of 1024 entries; use fewer intents with `sample`";
    assert_eq!(
        int.plan(&Meaning::default(), &all(1025)),
        Err(expected.to_owned())
    );
}

#[test]
fn what_the_program_cannot_do_is_refused_in_one_sentence() {
    let onos = program("onos-int");
    let port = key(None, None, ANY_PORT, (80, 80));
    let encoding = Encoding {
        dscp: 23,
        l4_checksum: L4Checksum::Update,
    };
    let filter = Filter {
        key: port,
        algorithm: FilterAlgorithm::Noop,
        metric: detect::Metric::HopLatency,
        threshold: 0,
        rule: None,
    };
    let sampled = Watch {
        key: port,
        mode: Mode::Md,
        bits: 0x8000,
        hops: 6,
        sample: 10,
        drops: true,
    };
    for (rule, expected) in [
        (
            Rule::Encoding(encoding),
            "the program marks INT by DSCP 23 and fixes the L4 checksum; write dscp = 23 and l4_checksum = \"leave\" in [manager]",
        ),
        (
            Rule::Filter(Arc::new(filter)),
            "the program has no filter; remove `filter` from the intent",
        ),
        (Rule::Instruction(8), "the program does not fill buffer"),
        (Rule::Forwarding, "the program has no `forwarding` for this"),
        (
            Rule::Sink(512),
            "512 does not fit into the 9 bits of `standard_metadata.egress_spec` in the program",
        ),
        (
            Rule::Session("[fd00::1]:32766".parse().unwrap()),
            "the program reports over IPv4 only; use a collector with an IPv4 address",
        ),
        (
            watch(port, Mode::Postcard, 0x8000),
            "the program has no mode \"postcard\"",
        ),
        (
            watch(port, Mode::Md, 0x8080),
            "the program has no instruction buffer",
        ),
        (
            Rule::Watch(Arc::new(sampled)),
            "the program cannot sample packets; remove `sample` from the intent",
        ),
        (
            watch(FlowMatch::default(), Mode::Md, 0x8000),
            "the program inserts INT into packets without ports; add a port to the intent",
        ),
        (
            watch(key(Some("fd00::/16"), None, ANY_PORT, (80, 80)), Mode::Md, 0x8000),
            "the field `hdr.ipv4.src_addr` of the program does not hold IPv6 addresses",
        ),
        (
            watch(key(None, None, ANY_PORT, (80, 90)), Mode::Md, 0x8000),
            "the field `local_metadata.l4_dst_port` of the program cannot match a range; list the values",
        ),
    ] {
        assert_eq!(onos.encode(&rule), Err(expected.to_owned()), "{rule}");
    }
}

#[test]
fn entries_of_others_are_foreign_and_in_the_way() {
    let onos = program("onos-int");
    let rules = rules(&onos);
    let mut all = entries(&onos, &rules);
    let theirs = all
        .iter_mut()
        .find(|entry| {
            matches!(
                entry.key,
                Key::Table {
                    table: 0x0200_0002,
                    ..
                }
            )
        })
        .unwrap();
    theirs.metadata.clear();
    let meaning = onos.decode(all, &rules);
    assert_eq!(
        rules.difference(&meaning.rules).cloned().collect::<Vec<_>>(),
        [Rule::Sink(1)]
    );
    let described: Vec<String> = meaning.foreign.iter().map(|entry| onos.describe(entry)).collect();
    let name = "the entry of ingress.process_int_source_sink.tb_set_sink for standard_metadata.egress_spec 1 (ingress.process_int_source_sink.int_set_sink)";
    assert_eq!(described, [name]);
    let expected = format!("{name} was installed by another controller; remove it");
    assert_eq!(onos.plan(&meaning, &rules), Err(expected));
}

#[test]
fn remains_of_a_rule_are_removed_with_the_next_change() {
    let onos = program("onos-int");
    let session = Rule::Session("192.0.2.9:32766".parse().unwrap());
    let half: Vec<Entry> = onos.encode(&session).unwrap().into_iter().take(1).collect();
    let meaning = onos.decode(half.clone(), &[session.clone()].into());
    assert_eq!((meaning.rules.len(), meaning.remains.len()), (0, 1));
    assert_eq!(
        onos.plan(&meaning, &Rules::new()),
        Ok(vec![vec![(UpdateType::Delete, half[0].clone())]])
    );
    // Or completed.
    let batches = onos.plan(&meaning, &[session].into()).unwrap();
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0][0].0, UpdateType::Insert);
}

#[test]
fn additions_and_removals_are_in_order() {
    let onos = program("onos-int");
    let rules = rules(&onos);
    let order = |batches: Vec<Vec<(UpdateType, Entry)>>| -> Vec<String> {
        let text = |(update, entry): &(UpdateType, Entry)| format!("{update:?} {}", onos.describe(entry));
        let short = |text: String| text.split(" for ").next().unwrap().replace("the entry of ", "");
        batches
            .iter()
            .map(|batch| format!("{} x {}", batch.len(), short(text(&batch[0]))))
            .collect()
    };
    let added = order(onos.plan(&Meaning::default(), &rules).unwrap());
    let expected = [
        "1 x Insert clone session 500 (to port 4)",
        "1 x Insert egress.process_int_report.tb_generate_report",
        "3 x Insert ingress.process_int_source_sink.tb_set_sink",
        "1 x Insert egress.process_int_transit.tb_int_insert",
        "1 x Insert ingress.process_int_source_sink.tb_set_source",
        "1 x Insert ingress.process_int_source.tb_int_source",
    ];
    assert_eq!(added, expected);
    let meaning = onos.decode(entries(&onos, &rules), &rules);
    let removed = order(onos.plan(&meaning, &Rules::new()).unwrap());
    let expected: Vec<String> = expected
        .iter()
        .rev()
        .map(|text| text.replace("Insert", "Delete"))
        .collect();
    assert_eq!(removed, expected);
}

#[test]
fn a_change_of_an_entry_is_one_modification() {
    let onos = program("onos-int");
    let one = key(None, None, ANY_PORT, (80, 80));
    let before = Rules::from([watch(one, Mode::Md, 0xa000)]);
    let meaning = onos.decode(entries(&onos, &before), &before);
    let changes = [
        Change::Remove(watch(one, Mode::Md, 0xa000)),
        Change::Add(watch(one, Mode::Md, 0xf000)),
    ];
    let batches = onos.plan(&meaning, &changed(&meaning.rules, &changes)).unwrap();
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0][0].0, UpdateType::Modify);
}

#[test]
fn a_narrower_key_has_the_greater_priority() {
    let tna = program("fabric-tna");
    let mut rng = Rng(1);
    let mut nested = 0;
    let priority = |key: FlowMatch| match &tna.encode(&watch(key, Mode::Postcard, 0x8000)).unwrap()[0].key {
        Key::Table { priority, .. } => *priority,
        other => panic!("{other:?}"),
    };
    for _ in 0..20_000 {
        let mut one = || FlowMatch {
            src: [None, Some("0.0.0.0/0"), Some("10.0.0.0/8"), Some("10.1.0.0/16")][rng.below(4)]
                .map(|text| text.parse().unwrap()),
            dst: [None, Some("10.0.0.0/8")][rng.below(2)].map(|text| text.parse().unwrap()),
            sport: [ANY_PORT, (80, 100), (80, 101), (80, 80)][rng.below(4)],
            dport: [ANY_PORT, (0, 65_534)][rng.below(2)],
            proto: [None, Some(6)][rng.below(2)],
            dscp: None,
        };
        let (a, b) = (one(), one());
        if a != b && a.intersection(&b) == Some(a) {
            assert!(priority(a) > priority(b), "{a} in {b}");
            nested += 1;
        }
    }
    assert!(nested > 100);
    // The exclusion of the reports wins over every key.
    let narrowest = FlowMatch {
        proto: Some(17),
        ..key(Some("10.0.0.1"), Some("10.0.0.2"), (1, 1), (1, 1))
    };
    let session = tna
        .encode(&Rule::Session("192.0.2.9:32766".parse().unwrap()))
        .unwrap();
    let first = session.iter().filter_map(|entry| match entry.key {
        Key::Table { priority, .. } => Some(priority),
        _ => None,
    });
    assert!(first.max().unwrap() > priority(narrowest));
}

/// Whatever a device returns, each rule that is read has all of its entries, and needs no change.
#[test]
fn any_bytes_of_a_device_are_entries_or_nothing() {
    let mut rng = Rng(7);
    let mut read = 0;
    for (name, _) in PROGRAMS {
        let program = program(name);
        let entities = entries(&program, &rules(&program)).into_iter();
        let entities = entities
            .filter_map(|entry| entry.update(UpdateType::Insert).entity)
            .collect();
        let bytes = ReadResponse { entities }.encode_to_vec();
        for _ in 0..5_000 {
            let mut bytes = bytes.clone();
            rng.corrupt(&mut bytes);
            let Ok(response) = ReadResponse::decode(bytes.as_slice()) else {
                continue;
            };
            let entries = response
                .entities
                .iter()
                .filter_map(Entry::read)
                .map(|(entry, _)| entry)
                .collect();
            let meaning = program.decode(entries, &Rules::new());
            for rule in &meaning.rules {
                let parts = program.encode_all([rule], &meaning.ours).unwrap();
                assert!(
                    parts.iter().all(|part| meaning.ours.get(&part.key) == Some(part)),
                    "{rule}"
                );
            }
            let batches = program.plan(&meaning, &meaning.rules).unwrap();
            assert_eq!(batches.iter().map(Vec::len).sum::<usize>(), meaning.remains.len());
            read += meaning.rules.len();
        }
    }
    assert!(read > 1000, "{read}");
}
