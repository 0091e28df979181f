//! Filters by rule: their entries, numbers, and what is read back.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use detect::Metric;
use manager::device::{Filter, FilterAlgorithm, Rule, Rules};
use manager::flows::FlowMatch;
use p4runtime::entry::{Bytes, Content, Entry, Field, Key};
use p4runtime::map;
use p4runtime::message::UpdateType;
use p4runtime::program::Program;
use p4runtime::translate::{Entries, Meaning};

/// A program that has filters by rule with three comparisons, and nothing else.
const INFO: &str = "\
table filter 16
  field ipv4_dst 32 ternary
  action filter_rule
table filter_term_0 2
  field filter 8 exact
  action filter_term
table filter_term_1 2
  field filter 8 exact
  action filter_term
table filter_term_2 2
  field filter 8 exact
  action filter_term
table filter_rules 2
  field filter 8 exact
  field clauses 3 ternary
  action filter_fires
action filter_rule
  param filter 8
action filter_term
  param subject 3
  param aggregate 4
  param node 32
  param holds_if 3
  param value 64
  param hops_if 3
  param hops 32
  param clauses 3
action filter_fires
";

const MAP: &str = r#"
modes = ["postcard"]
rule_filters = [7, 8]
rule_metrics = ["flow_path", "hop_latency"]

[[term]]
table = "filter_term_"
tables = 3
match = { filter = "filter" }
action = "filter_term"
params = { subject = "term_subject", aggregate = "term_aggregate", node = "term_node", holds_if = "term_if", value = "term_value", hops_if = "term_hops_if", hops = "term_hops", clauses = "clauses" }

[[clauses]]
table = "filter_rules"
match = { filter = "filter", clauses = "clauses" }
action = "filter_fires"

[[filter]]
table = "filter"
algorithm = "rule"
match = { ipv4_dst = "dst" }
action = "filter_rule"
params = { filter = "filter" }
"#;

fn program() -> Program {
    let map = map::read(MAP, "map.toml").unwrap();
    Program::new(&map, &support::parse(INFO), &support::local()).unwrap()
}

fn filter(dst: &str, rule: &str) -> Rule {
    let key = FlowMatch {
        dst: Some(dst.parse().unwrap()),
        ..FlowMatch::default()
    };
    let (algorithm, metric) = (FilterAlgorithm::Rule, Metric::FlowPath);
    Rule::Filter(Arc::new(Filter {
        key,
        algorithm,
        metric,
        threshold: 0,
        rule: Some(rule.into()),
    }))
}

/// What a device has after these requests.
fn applied(mut entries: Entries, batches: &[Vec<(UpdateType, Entry)>]) -> Entries {
    for (update, entry) in batches.iter().flatten() {
        match update {
            UpdateType::Delete => drop(entries.remove(&entry.key).unwrap()),
            UpdateType::Insert => assert!(entries.insert(entry.key.clone(), entry.clone()).is_none()),
            _ => drop(entries.insert(entry.key.clone(), entry.clone()).unwrap()),
        }
    }
    entries
}

/// Numbers of the filters in force.
fn numbers(entries: &Entries) -> Vec<u128> {
    let number = |entry: &Entry| match (&entry.key, &entry.content) {
        (
            Key::Table {
                table: 0x0200_0001, ..
            },
            Content::Action(_, params),
        ) => params[&1].number(),
        _ => None,
    };
    entries.values().filter_map(number).collect()
}

const LONG: &str = "max(hop_latency) > 5us and (loop or hops > 3)";
const SHORT: &str = "count(hop_latency@3 >= 7ns) != 2";

#[test]
fn a_rule_is_entries_of_its_number_and_is_read_back() {
    let program = program();
    let wanted = Rules::from([filter("10.0.0.0/16", LONG), filter("10.1.0.0/16", SHORT)]);
    let batches = program.plan(&Meaning::default(), &wanted).unwrap();
    // Comparisons before rules, and rules before the flows that they are for.
    let tables = |batches: &[Vec<(UpdateType, Entry)>]| -> Vec<u32> {
        let table = |(_, entry): &(UpdateType, Entry)| match entry.key {
            Key::Table { table, .. } => table & 0xff,
            _ => 0,
        };
        batches.iter().flatten().map(table).collect()
    };
    assert_eq!(tables(&batches), [2, 2, 3, 4, 5, 5, 1, 1]);
    let device = applied(Entries::new(), &batches);
    assert_eq!(numbers(&device), [7, 8]);
    let read = |remembered: &Rules| program.decode(device.values().cloned().collect(), remembered);
    assert_eq!(
        (read(&wanted).rules, read(&wanted).remains.len()),
        (wanted.clone(), 0)
    );
    // Counters have the numbers only.
    let of_numbers = [
        (
            7,
            "report if (loop or hops > 3) and (max(hop_latency) > 5000ns): to 10.0.0.0/16".to_owned(),
        ),
        (
            8,
            "report if (count(hop_latency@3 >= 7ns) != 2): to 10.1.0.0/16".to_owned(),
        ),
    ];
    assert_eq!(
        program.rule_filters(&device, &Rules::new()),
        BTreeMap::from(of_numbers)
    );

    // The text is not on the device: without memory, it is the normal form, which has the same entries.
    let plain = read(&Rules::new());
    let expected = Rules::from([
        filter(
            "10.0.0.0/16",
            "(loop or hops > 3) and (max(hop_latency) > 5000ns)",
        ),
        filter("10.1.0.0/16", "(count(hop_latency@3 >= 7ns) != 2)"),
    ]);
    let texts = |rules: &Rules| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!((texts(&plain.rules), plain.remains.len()), (texts(&expected), 0));
    assert_eq!(program.plan(&plain, &wanted).unwrap(), Vec::<Vec<_>>::new());
    assert_eq!(program.plan(&plain, &plain.rules).unwrap(), Vec::<Vec<_>>::new());
}

#[test]
fn a_filter_keeps_its_number_and_a_changed_rule_its_registers() {
    let program = program();
    let wanted = Rules::from([filter("10.0.0.0/16", LONG), filter("10.1.0.0/16", SHORT)]);
    let device = applied(
        Entries::new(),
        &program.plan(&Meaning::default(), &wanted).unwrap(),
    );
    let read = |device: &Entries| program.decode(device.values().cloned().collect(), &Rules::new());

    let changed = Rules::from([filter("10.0.0.0/16", "hops > 3"), filter("10.1.0.0/16", SHORT)]);
    let device = applied(device.clone(), &program.plan(&read(&device), &changed).unwrap());
    assert_eq!((numbers(&device), device.len()), (vec![7, 8], 6));
    // The first goes, another comes: it gets the number that is free.
    let others = Rules::from([filter("10.1.0.0/16", SHORT), filter("10.2.0.0/16", LONG)]);
    let device = applied(device.clone(), &program.plan(&read(&device), &others).unwrap());
    assert_eq!((numbers(&device), device.len()), (vec![8, 7], 8));
    let third: Rules = others
        .iter()
        .cloned()
        .chain([filter("10.3.0.0/16", SHORT)])
        .collect();
    let error = program.plan(&read(&device), &third).unwrap_err();
    assert_eq!(
        error,
        "the program has 2 filters by rule; use fewer intents with filter = \"rule\""
    );
    let none = applied(
        device.clone(),
        &program.plan(&read(&device), &Rules::new()).unwrap(),
    );
    assert_eq!(none, Entries::new());
}

#[test]
fn a_rule_with_more_or_other_comparisons_on_the_device_is_not_there() {
    let program = program();
    let wanted = Rules::from([filter("10.1.0.0/16", SHORT)]);
    let device = applied(
        Entries::new(),
        &program.plan(&Meaning::default(), &wanted).unwrap(),
    );
    let read = |device: &Entries| program.decode(device.values().cloned().collect(), &wanted);
    let of_table = |table: u32| {
        device
            .values()
            .find(|entry| matches!(entry.key, Key::Table { table: of, .. } if of == table))
            .unwrap()
            .clone()
    };
    let first = of_table(0x0200_0002);
    let Key::Table { fields, .. } = &first.key else {
        panic!()
    };
    assert_eq!(fields[&1], Field::Exact(Bytes::from(7)));
    let more = Entry {
        key: Key::Table {
            table: 0x0200_0003,
            priority: 0,
            fields: fields.clone(),
        },
        ..first.clone()
    };
    let mut other = first.clone();
    let Content::Action(_, params) = &mut other.content else {
        panic!()
    };
    params.insert(5, Bytes::from(8));
    for entry in [more, other] {
        let mut device = device.clone();
        device.insert(entry.key.clone(), entry);
        let meaning = read(&device);
        assert!(
            !meaning.rules.contains(wanted.first().unwrap()),
            "{:?}",
            meaning.rules
        );
        let repaired = applied(device, &program.plan(&meaning, &wanted).unwrap());
        assert_eq!(read(&repaired).rules, wanted);
    }
}

#[test]
fn what_rules_can_be_follows_from_the_map() {
    let program = program();
    let can = program.capabilities().rules;
    assert_eq!(
        (can.filters, can.comparisons, can.clauses, can.history),
        (2, 3, 3, false)
    );
    for (rule, part) in [
        ("max(queue_occupancy) > 5", "it does not compare queue_occupancy"),
        ("hops > 3 for 2", "it keeps no earlier packets"),
        (
            "hops > 3 and loop and hops < 9 and max(hop_latency) > 1",
            "room for 3 different comparisons in 3 clauses",
        ),
    ] {
        let error = program.encode(&filter("10.0.0.0/8", rule)).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}
