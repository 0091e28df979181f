use super::*;
use crate::observation::HopValues;
use crate::random::Random;
use crate::rule::CELLS;
use crate::rule::history::EMPTY;
use crate::rule::tests::{random_hops, random_rule, random_rule_of};

fn compile(texts: &[String]) -> Option<RuleSet> {
    let named: Vec<_> = texts
        .iter()
        .enumerate()
        .map(|(n, text)| (format!("r{n}"), text.clone()))
        .collect();
    RuleSet::compile(&named).ok()
}

fn one(text: &str) -> Table {
    Table::split(&compile(&[text.to_owned()]).expect(text)).table
}

#[test]
fn the_table_evaluates_as_the_rules_do() {
    let mut random = Random::new(3);
    let mut tables = 0;
    let mut fired = 0;
    let mut left_out = 0;
    for _ in 0..4000 {
        let count = 1 + random.below(40);
        let texts: Vec<String> = (0..count).map(|_| random_rule(&mut random, 3)).collect();
        let Some(rules) = compile(&texts) else { continue };
        let split = Table::split(&rules);
        tables += 1;
        left_out += split.user.len();
        assert_eq!(
            u64::from(split.kernel.count_ones()) + split.user.len() as u64,
            count,
            "{texts:?}"
        );
        assert!(
            split.user.iter().all(|(rule, _)| split.kernel >> rule & 1 == 0),
            "{texts:?}"
        );
        for _ in 0..10 {
            let hops = random_hops(&mut random);
            let observation = Observation {
                flow_latency: random.maybe(|r| r.below(6)),
                looped: random.below(2) == 0,
                hops: &hops,
            };
            let expected = rules.evaluate(&observation) & split.kernel;
            assert_eq!(
                split.table.evaluate(&observation),
                expected,
                "{texts:?} of {observation:?}"
            );
            fired += u64::from(expected.count_ones());
        }
    }
    // Some are refused and some accepted, otherwise the test would prove nothing.
    assert!(
        tables > 3000 && fired > 20_000 && fired < 400_000 && left_out > 100,
        "{tables} {fired} {left_out}"
    );
}

#[test]
fn sums_and_means_are_exact_at_the_ends_of_64_bits() {
    let mut random = Random::new(5);
    let edges = [
        0,
        1,
        2,
        1 << 32,
        1 << 60,
        (1 << 63) - 1,
        1 << 63,
        u64::MAX - 2,
        u64::MAX - 1,
    ];
    let mut fired = 0;
    for _ in 0..20_000 {
        let near = |random: &mut Random| *random.pick(&edges.each_ref());
        let sign = random.pick(&["<", "<=", ">", ">=", "==", "!="]).to_owned();
        let value = near(&mut random);
        let text = format!(
            "{}(queue_occupancy) {sign} {value}",
            random.pick(&["sum", "avg", "max", "min"])
        );
        let hops: Vec<HopValues> = (0..random.below(17))
            .map(|_| HopValues {
                queue_occupancy: near(&mut random),
                ..HopValues::NOTHING
            })
            .collect();
        let rules = compile(std::slice::from_ref(&text)).expect(&text);
        let observation = Observation {
            hops: &hops,
            ..Observation::default()
        };
        let expected = rules.evaluate(&observation);
        assert_eq!(
            Table::split(&rules).table.evaluate(&observation),
            expected,
            "{text} of {hops:?}"
        );
        fired += expected;
    }
    assert!((4000..16_000).contains(&fired), "{fired}");
}

#[test]
fn the_table_of_a_known_rule() {
    let table = one("max(queue_occupancy@102) > 50 and (loop or count(hop_latency >= 7ns) != 2)");
    let row = |clause, subject: Subject, aggregate: Aggregate, comparison: Comparison| Row {
        node: NO_NODE,
        subject: subject as u8,
        aggregate: aggregate as u8,
        comparison: comparison as u8,
        clause,
        ..Row::default()
    };
    let greater = Comparison::Greater;
    let at_least = Comparison::AtLeast;
    let equal = Comparison::Equal;
    let mut expected = Table {
        rules: 1,
        metrics: 0b1101,
        terms: 3,
        ..Table::EMPTY
    };
    expected.clauses[0] = 0b11;
    let node = Row {
        value: 50,
        node: 102,
        ..row(0, Subject::QueueOccupancy, Aggregate::Max, greater)
    };
    let looped = Row {
        value: 1,
        ..row(1, Subject::Loop, Aggregate::Flow, equal)
    };
    let value = 7;
    let hops = 2;
    let hops_comparison = Comparison::Unequal as u8;
    let count = row(1, Subject::HopLatency, Aggregate::CountWhere, at_least);
    let count = Row {
        value,
        hops,
        hops_comparison,
        ..count
    };
    expected.rows[..3].copy_from_slice(&[node, looped, count]);
    assert_eq!(table, expected);
}

#[test]
fn common_clauses_are_stored_once() {
    let texts = ["hops > 3 and loop", "loop", "loop and hops > 3 and hops < 9"].map(str::to_owned);
    let split = Table::split(&compile(&texts).unwrap());
    assert_eq!((split.kernel, split.table.terms, split.user.len()), (0b111, 3, 0));
    let observation = Observation {
        looped: true,
        ..Observation::default()
    };
    assert_eq!(split.table.evaluate(&observation), 0b010);
}

#[test]
fn rules_that_do_not_fit_are_omitted_with_a_reason_and_the_others_compile() {
    let all = |range: std::ops::Range<u32>, by: &str, what: &str| {
        range
            .map(|n| format!("{what} > {n}"))
            .collect::<Vec<_>>()
            .join(by)
    };
    let texts = [
        all(0..60, " and ", "hops"),
        all(100..110, " and ", "flow_latency"),
        "loop".to_owned(),
        all(0..50, " or ", "hop_latency"),
        all(100..150, " or ", "queue_occupancy"),
        "hops > 3 and loop".to_owned(),
    ];
    let rules = compile(&texts).unwrap();
    let split = Table::split(&rules);
    let clauses = Reason::Clauses { needed: 10, left: 4 };
    let terms = Reason::Terms { needed: 50, left: 17 };
    assert_eq!(split.user, [(1, clauses), (4, terms)]);
    assert_eq!(split.kernel, 0b10_1101);
    let metrics: Vec<Metric> = split.metrics_for_user().collect();
    assert_eq!(metrics, [Metric::FlowLatency, Metric::QueueOccupancy]);
    assert!(split.table.uses(Metric::HopLatency) && !split.table.uses(Metric::QueueOccupancy));
    let reasons: Vec<String> = split
        .in_user_space(&rules)
        .map(|(name, reason)| format!("{name}: {reason}"))
        .collect();
    assert_eq!(
        reasons,
        [
            "r1: it needs 10 clauses in conjunctive normal form, and of the table's 64 the rules before it leave 4",
            "r4: it needs 50 comparisons in conjunctive normal form, and of the table's 128 the rules before it leave 17",
        ]
    );
    // A rule that is not in the table never fires from it.
    let hops = [HopValues {
        queue_occupancy: 200,
        ..HopValues::NOTHING
    }];
    let observation = Observation {
        hops: &hops,
        looped: true,
        flow_latency: Some(1000),
    };
    assert_eq!(split.table.evaluate(&observation), 0b100);
}

#[test]
fn no_rules_make_an_empty_table() {
    let split = Table::split(&RuleSet::default());
    assert_eq!(
        (&split.table, split.user.len(), split.user_metrics),
        (&Table::EMPTY, 0, 0)
    );
    assert_eq!(split.table.evaluate(&Observation::default()), 0);
}

#[test]
fn bytes_are_the_memory_of_the_table() {
    let table = one("count(hop_latency@258 > 5) >= 2");
    let bytes = table.to_bytes();
    let mut expected = vec![0; Table::BYTES];
    let mut put = |at: usize, number: &[u8]| expected[at..at + number.len()].copy_from_slice(number);
    put(0, &1_u64.to_ne_bytes());
    put(8, &4_u32.to_ne_bytes());
    put(12, &1_u32.to_ne_bytes());
    put(16, &1_u64.to_ne_bytes());
    let row = 16 + 8 * RULES;
    put(row, &5_u64.to_ne_bytes());
    put(row + 8, &258_u32.to_ne_bytes());
    put(row + 12, &2_u32.to_ne_bytes());
    put(row + 16, &[3, 6, 2, 3]);
    assert_eq!(bytes, expected);
    assert_eq!(std::mem::offset_of!(Table, rows), row);
    assert_eq!(
        (
            std::mem::offset_of!(Row, hops),
            std::mem::offset_of!(Row, subject),
            std::mem::offset_of!(Row, clause)
        ),
        (12, 16, 20)
    );
}

#[test]
fn the_program_evaluates_as_the_rules_do() {
    let mut random = Random::new(17);
    let mut programs = 0;
    let mut fired = 0;
    let mut all = 0;
    for _ in 0..1500 {
        let count = 1 + random.below(4);
        let texts: Vec<String> = (0..count).map(|_| random_rule_of(&mut random, 3, true)).collect();
        let Some(rules) = compile(&texts) else { continue };
        let Ok(program) = Program::new(&rules) else {
            continue;
        };
        programs += 1;
        assert_eq!(program.used as usize, rules.cells().len(), "{texts:?}");
        let mut one = [EMPTY; CELLS];
        let mut other = [EMPTY; CELLS];
        for _ in 0..20 {
            let hops = random_hops(&mut random);
            let observation = Observation {
                flow_latency: random.maybe(|r| r.below(6)),
                looped: random.below(2) == 0,
                hops: &hops,
            };
            let expected = rules.evaluate_with(&observation, &mut one);
            assert_eq!(
                program.evaluate(&observation, &mut other),
                expected,
                "{texts:?} of {observation:?}"
            );
            assert_eq!(one, other, "{texts:?} of {observation:?}");
            let first = rules.evaluate(&observation);
            assert_eq!(
                program.evaluate(&observation, &mut []),
                first,
                "{texts:?} of {observation:?}"
            );
            fired += u64::from(expected.count_ones());
            all += count;
        }
    }
    assert!(
        programs > 1000 && fired > all / 10 && fired < all * 9 / 10,
        "{programs} {fired} of {all}"
    );
}

#[test]
fn history_is_exact_at_the_ends_of_64_bits() {
    let mut random = Random::new(19);
    let edges = [
        0,
        1,
        2,
        1 << 32,
        (1 << 48) - 2,
        (1 << 48) - 1,
        1 << 48,
        1 << 60,
        1 << 63,
        u64::MAX - 1,
        u64::MAX,
    ];
    let mut fired = 0;
    for _ in 0..4000 {
        let near = |random: &mut Random| *random.pick(&edges.each_ref());
        let sign = random.pick(&["<", "<=", ">", ">=", "==", "!="]).to_owned();
        let value = near(&mut random);
        let of = random.pick(&["sum", "max", "min"]);
        let what = random.pick(&["previous", "change", "average"]);
        let value = value.min((1 << 48) - 1);
        let text = format!("{what}({of}(queue_occupancy)) {sign} {value}");
        let rules = compile(std::slice::from_ref(&text)).expect(&text);
        let program = Program::new(&rules).unwrap();
        let mut one = [EMPTY; CELLS];
        let mut other = [EMPTY; CELLS];
        for _ in 0..10 {
            let hops: Vec<HopValues> = (0..random.below(17))
                .map(|_| HopValues {
                    queue_occupancy: near(&mut random),
                    ..HopValues::NOTHING
                })
                .collect();
            let observation = Observation {
                hops: &hops,
                ..Observation::default()
            };
            let expected = rules.evaluate_with(&observation, &mut one);
            assert_eq!(
                program.evaluate(&observation, &mut other),
                expected,
                "{text} of {hops:?}"
            );
            assert_eq!(one, other);
            fired += expected;
        }
    }
    assert!((8000..32_000).contains(&fired), "{fired}");
}

#[test]
fn rules_that_remember_are_left_to_user_space_which_needs_every_report() {
    let texts = ["loop", "change(flow_latency) > 5", "hops > 3"].map(str::to_owned);
    let rules = compile(&texts).unwrap();
    let split = Table::split(&rules);
    assert_eq!(
        (split.kernel, split.user.as_slice()),
        (0b101, &[(1, Reason::History)][..])
    );
    assert!(split.user_needs_all && split.table.rules == 0b101);
    assert_eq!(split.user_metrics, 1 << (Metric::FlowLatency as u8));
    assert_eq!(
        Reason::History.to_string(),
        "it uses history, which the kernel program does not store"
    );
    assert!(!Table::split(&compile(&texts[..1]).unwrap()).user_needs_all);
}

#[test]
fn a_program_without_space_names_the_rule() {
    let many = |from: u32| {
        (from..from + 60)
            .map(|n| format!("hops > {n}"))
            .collect::<Vec<_>>()
            .join(" and ")
    };
    let rules = compile(&[many(0), many(100)]).unwrap();
    assert_eq!(
        Program::new(&rules),
        Err((1, Reason::Clauses { needed: 60, left: 4 }))
    );
    assert_eq!(Program::new(&RuleSet::default()), Ok(Program::EMPTY));
}
