use super::expression::Expression;
use super::history::{History, MAX_VALUE, averaged};
use super::term::{Aggregate, Comparison, Subject};
use super::*;
use crate::observation::{ABSENT, HopValues, NO_NODE};
use crate::random::Random;

fn compile(text: &str) -> Result<RuleSet, RuleError> {
    RuleSet::compile(&[("r".to_owned(), text.to_owned())])
}

fn refused(text: &str) -> RuleError {
    compile(text).map(|rules| rules.len()).expect_err(text)
}

fn hop(node: u32, hop_latency: u64, queue_occupancy: u64) -> HopValues {
    HopValues {
        node,
        hop_latency,
        queue_occupancy,
        ..HopValues::NOTHING
    }
}

/// Three hops: 101 is fast, 102 has a queue, 103 reports no queue. 7 ms in total.
const HOPS: [HopValues; 3] = [
    HopValues {
        node: 101,
        hop_latency: 1_000,
        queue_occupancy: 10,
        ..HopValues::NOTHING
    },
    HopValues {
        node: 102,
        hop_latency: 6_000_000,
        queue_occupancy: 51,
        ..HopValues::NOTHING
    },
    HopValues {
        node: 103,
        hop_latency: 2_000,
        link_utilization: 800_001,
        ..HopValues::NOTHING
    },
];

fn fires(text: &str) -> bool {
    let rules = compile(text).unwrap_or_else(|refused| panic!("{refused}"));
    rules.evaluate(&Observation {
        flow_latency: Some(7_000_000),
        looped: false,
        hops: &HOPS,
    }) == 1
}

#[test]
fn documented_rules_evaluate_as_documented() {
    let cases = [
        ("max(queue_occupancy) > 50 and flow_latency > 5ms", true),
        ("max(queue_occupancy) > 51 and flow_latency > 5ms", false),
        ("max(queue_occupancy) > 51 or flow_latency > 5ms", true),
        ("min(queue_occupancy) == 10", true),
        ("sum(queue_occupancy) == 61", true),
        ("avg(queue_occupancy) > 30 and avg(queue_occupancy) < 31", true),
        ("avg(queue_occupancy) <= 30", false),
        ("count(queue_occupancy) == 2", true),
        ("count(queue_occupancy > 50) == 1", true),
        ("count(queue_occupancy >= 10) >= 2", true),
        ("any(queue_occupancy > 50)", true),
        ("any(queue_occupancy) > 50", true),
        ("queue_occupancy > 50", true),
        ("all(queue_occupancy > 9)", true),
        ("all(queue_occupancy) > 10", false),
        ("queue_occupancy@102 > 50", true),
        ("queue_occupancy@0x66 > 50", true),
        ("queue_occupancy@101 > 50", false),
        ("max(hop_latency@101) == 1us", true),
        ("hops > 2", true),
        ("hops > 3", false),
        ("loop", false),
        ("not loop", true),
        ("5ms < flow_latency", true),
        ("7ms <= flow_latency and 7ms >= flow_latency", true),
        ("flow_latency == 7000000", true),
        ("flow_latency == 0.007s", true),
        ("flow_latency == 7M", true),
        ("flow_latency != 7_000 us", false),
        ("link_utilization > 80%", true),
        ("link_utilization > 80.0001%", false),
        ("max(link_utilization) > 0.8", true),
        ("link_utilization < 1", true),
        ("not (loop or hops > 6) and queue_occupancy > 0x32", true),
        ("loop and hops > 6 or hops == 3", true),
        ("hops == 3 or hops > 6 and loop", true),
        ("(hops == 3 or hops > 6) and loop", false),
        ("not hops == 3 or hops == 3", true),
        ("\n  hops\t==\n3 ", true),
        ("hop_latency > 5 \u{b5}s", true),
        ("hop_latency > 5\u{3bc}s", true),
    ];
    for (text, expected) in cases {
        assert_eq!(fires(text), expected, "{text}");
    }
}

#[test]
fn a_missing_value_fires_nothing() {
    let silent = [
        "flow_latency",
        "max(queue_congestion)",
        "min(queue_congestion)",
        "sum(queue_congestion)",
    ]
    .into_iter()
    .chain([
        "avg(queue_congestion)",
        "queue_congestion",
        "all(queue_congestion)",
        "queue_occupancy@103",
    ])
    .chain(["queue_occupancy@999", "count(queue_congestion > 5)"]);
    for value in silent {
        for sign in ["<", "<=", ">", ">=", "==", "!="] {
            for text in [format!("{value} {sign} 5"), format!("not {value} {sign} 5")] {
                let observation = Observation {
                    flow_latency: None,
                    looped: false,
                    hops: &HOPS,
                };
                assert_eq!(compile(&text).unwrap().evaluate(&observation), 0, "{text}");
            }
        }
    }
    // Only the number of hops with a value is always known.
    assert!(fires("count(queue_congestion) == 0"));
}

/// `Some(b)` as a condition whose truth is `b`, `None` as one that is unknown.
fn condition(truth: Option<bool>) -> &'static str {
    match truth {
        Some(true) => "hops == 0",
        Some(false) => "hops == 1",
        None => "flow_latency > 0",
    }
}

#[test]
fn three_valued_logic_by_its_truth_table() {
    const T: Option<bool> = Some(true);
    const F: Option<bool> = Some(false);
    const U: Option<bool> = None;
    // a, b, a and b, a or b
    let table = [
        (T, T, T, T),
        (T, F, F, T),
        (T, U, U, T),
        (F, T, F, T),
        (F, F, F, F),
        (F, U, F, U),
        (U, T, U, T),
        (U, F, F, U),
        (U, U, U, U),
    ];
    let nothing = Observation::default();
    let is = |text: String, expected: Option<bool>| {
        let expression = parser::parse(&text).unwrap();
        assert_eq!(expression.truth(&[nothing]), expected, "{text}");
        // Compiled, a rule fires when it is true, and its negation when it is false: unknown fires neither.
        assert_eq!(
            compile(&text).unwrap().evaluate(&nothing) == 1,
            expected == T,
            "{text}"
        );
        assert_eq!(
            compile(&format!("not ({text})")).unwrap().evaluate(&nothing) == 1,
            expected == F,
            "not {text}"
        );
    };
    for (a, b, and, or) in table {
        is(condition(a).to_owned(), a);
        is(format!("not {}", condition(a)), a.map(|truth| !truth));
        is(format!("{} and {}", condition(a), condition(b)), and);
        is(format!("{} or {}", condition(a), condition(b)), or);
    }
    // The law of the excluded middle does not hold, and compiling must not use it.
    is("flow_latency > 0 or not flow_latency > 0".to_owned(), U);
}

#[test]
fn the_normal_form_of_known_rules() {
    let normal = |text: &str| {
        let rules = compile(text).unwrap_or_else(|refused| panic!("{refused}"));
        rules
            .clauses(0)
            .map(|terms| terms.iter().map(Term::to_string).collect::<Vec<_>>().join(" or "))
            .collect::<Vec<_>>()
            .join(" and ")
    };
    let cases = [
        ("hops > 6", "hops > 6"),
        ("not (hops > 6 and loop)", "hops <= 6 or not loop"),
        ("not not loop", "loop"),
        ("loop and loop and loop", "loop"),
        ("hops > 1 and (hops > 1 or loop)", "hops > 1"),
        (
            "hops > 1 or hops > 2 and loop",
            "hops > 1 or hops > 2 and hops > 1 or loop",
        ),
        (
            "max(queue_occupancy) > 50 and flow_latency > 5ms",
            "flow_latency > 5000000ns and max(queue_occupancy) > 50",
        ),
        ("not any(hop_latency@7 > 1us)", "all(hop_latency@7 <= 1000ns)"),
        (
            "not all(link_utilization < 50%)",
            "any(link_utilization >= 50.0000%)",
        ),
        (
            "not count(queue_occupancy > 5) >= 2",
            "count(queue_occupancy > 5) < 2",
        ),
        ("not count(queue_occupancy) >= 2", "count(queue_occupancy) < 2"),
    ];
    for (text, expected) in cases {
        assert_eq!(normal(text), expected, "{text}");
    }
}

#[test]
fn terms_are_small_values() {
    let rules = compile("count(queue_occupancy@102 > 5) >= 2").unwrap();
    let terms: Vec<Term> = rules.clauses(0).flatten().copied().collect();
    let expected = Term {
        value: 5,
        node: 102,
        hops: 2,
        subject: Subject::QueueOccupancy,
        aggregate: Aggregate::CountWhere,
        comparison: Comparison::Greater,
        hops_comparison: Comparison::AtLeast,
        history: History::Now,
        alpha: 0,
        reports: 0,
        lapsed: false,
    };
    assert_eq!(terms, [expected]);
}

#[test]
fn several_rules_are_bits_in_their_order() {
    let texts = ["hops == 3", "loop", "flow_latency > 1s", "queue_occupancy > 50"];
    let named: Vec<_> = texts
        .iter()
        .map(|text| (format!("rule {text}"), (*text).to_owned()))
        .collect();
    let rules = RuleSet::compile(&named).unwrap();
    let observation = Observation {
        flow_latency: Some(7_000_000),
        looped: true,
        hops: &HOPS,
    };
    assert_eq!(rules.evaluate(&observation), 0b1011);
    assert_eq!(
        (rules.len(), rules.name(1), rules.text(2)),
        (4, "rule loop", "flow_latency > 1s")
    );
    assert_eq!(
        (rules.name(4), rules.text(4), rules.clauses(4).count()),
        ("", "", 0)
    );
    let used: Vec<Metric> = Metric::ALL
        .into_iter()
        .filter(|&metric| rules.uses(metric))
        .collect();
    assert_eq!(
        used,
        [Metric::FlowPath, Metric::FlowLatency, Metric::QueueOccupancy]
    );
    let none = RuleSet::compile(&[]).unwrap();
    assert!(none.is_empty() && none.evaluate(&observation) == 0);
}

#[test]
fn names_are_there_and_differ() {
    let rule = |name: &str| (name.to_owned(), "loop".to_owned());
    let message = |rules: &[_]| RuleSet::compile(rules).unwrap_err().message;
    assert_eq!(
        message(&[rule("a"), rule("b"), rule("a")]),
        "another rule has this name"
    );
    assert_eq!(message(&[rule(" ")]), "a rule needs a name");
    let many: Vec<_> = (0..65).map(|n| rule(&n.to_string())).collect();
    assert_eq!(message(&many), "there are 65 rules; at most 64 are possible");
    let full = RuleSet::compile(&many[..64]).unwrap();
    assert_eq!(
        full.evaluate(&Observation {
            looped: true,
            ..Observation::default()
        }),
        u64::MAX
    );
}

#[test]
fn a_metric_has_the_same_units_in_rules_and_thresholds() {
    use Metric::{FlowLatency, HopLatency, LinkUtilization, QueueCongestion, QueueOccupancy};
    for (metric, text, expected) in [
        (HopLatency, "500us", Ok(500_000)),
        (FlowLatency, " 1.5 ms ", Ok(1_500_000)),
        (FlowLatency, "64k", Ok(64_000)),
        (QueueOccupancy, "64k", Ok(64_000)),
        (QueueCongestion, "0x10", Ok(16)),
        (LinkUtilization, "80%", Ok(800_000)),
        (LinkUtilization, "0.05", Ok(50_000)),
        (LinkUtilization, "1", Ok(1_000_000)),
        (HopLatency, "5%", Err("a latency is a time: use ns, us, ms or s")),
        (
            QueueOccupancy,
            "500us",
            Err("this value is in the device's own units: a unit of time has no meaning here"),
        ),
        (
            QueueCongestion,
            "5%",
            Err("this value is in the device's own units: `%` has no meaning here"),
        ),
        (
            LinkUtilization,
            "5us",
            Err("a utilization is a fraction: write 80% or 0.8"),
        ),
        (
            LinkUtilization,
            "50000",
            Err("a utilization is at most 100%: write 80% or 0.8"),
        ),
        (HopLatency, "fast", Err("\"fast\" is not a number with a unit")),
        (
            HopLatency,
            "5us 6us",
            Err("\"5us 6us\" is not a number with a unit"),
        ),
        (HopLatency, "", Err("\"\" is not a number with a unit")),
    ] {
        assert_eq!(
            super::amount(metric, text),
            expected.map_err(str::to_owned),
            "{metric} {text}"
        );
    }
    assert!(
        compile("sum(link_utilization) > 1.5").is_ok(),
        "a sum of several links"
    );
}

#[test]
fn latencies_of_a_few_nanoseconds_are_unlikely() {
    let found = unlikely_latencies("flow_latency > 5 or max(hop_latency) >= 999");
    assert_eq!(found, ["flow_latency > 5", "hop_latency >= 999"]);
    let likely = "flow_latency > 5us and hop_latency@7 > 0 and hop_latency > 1000 and hops > 5 and queue_occupancy > 5";
    assert_eq!(unlikely_latencies(likely), Vec::<String>::new());
    assert_eq!(unlikely_latencies("flow_latency > "), Vec::<String>::new());
}

#[test]
fn a_name_has_at_most_64_characters() {
    let named = |name: String| {
        let compiled = RuleSet::compile(&[(name, "hops > 1".to_owned())]);
        compiled.map(|_| ()).map_err(|error| error.message)
    };
    let refused = Err("a rule's name has at most 64 characters".to_owned());
    assert_eq!(named("é".repeat(64)), Ok(()));
    assert_eq!(named("é".repeat(65)), refused);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn errors_point_at_the_place() {
    // Text, the part that is marked, the message.
    let cases = [
        (
            "max(queue_occupncy) > 50",
            "queue_occupncy",
            "unknown name `queue_occupncy`: did you mean `queue_occupancy`?",
        ),
        (
            "hops > 6 ad loop",
            "ad",
            "expected `and`, `or` or the end of the rule",
        ),
        (
            "flow_latency > 5 parsecs",
            "parsecs",
            "expected `and`, `or` or the end of the rule",
        ),
        (
            "flow_latency > 5mss",
            "mss",
            "`mss` is not a unit: did you mean `ms`?",
        ),
        (
            "flow_latency > 5furlongs",
            "furlongs",
            "`furlongs` is not a unit: use ns, us, ms, s, k, M, G or %",
        ),
        ("hops = 6", "=", "`=` is not used here: to compare, write `==`"),
        ("hops > 6 && loop", "&&", "`&&` is not used here: write `and`"),
        (
            "!loop",
            "!",
            "`!` is not used here: write `not`, or `!=` to compare",
        ),
        ("hops ≥ 6", "≥", "`≥` is not used here: write `>=`"),
        ("hops > ß", "ß", "'ß' does not belong in a rule"),
        ("(hops > 6", "(", "this `(` is never closed"),
        ("hops > 6)", ")", "this `)` closes nothing"),
        (
            "1 < hops < 5",
            "<",
            "comparisons are not chained: write `1 < hops and hops < 5`",
        ),
        ("hops > ", "", "expected a number, such as 50, 5ms or 80%"),
        (
            "hops > loop",
            "loop",
            "a value is compared with a number, not with another value",
        ),
        (
            "hops",
            "",
            "after a value, expected a comparison: < <= > >= == !=",
        ),
        ("", "", "the rule is empty"),
        (" \n", "", "the rule is empty"),
        ("loop and", "", "the rule ends where a condition should be"),
        ("loop and ()", ")", "expected a condition before this `)`"),
        (
            "max > 50",
            ">",
            "`max` is over the hops: write max(queue_occupancy)",
        ),
        (
            "max(hops) > 5",
            "hops",
            "hops belongs to the flow, not to its hops: write it without max()",
        ),
        (
            "max(5) > 5",
            "5",
            "expected a metric of a hop, such as queue_occupancy",
        ),
        (
            "max(queue_occupancy > 5)",
            ">",
            "compare behind the parenthesis: max(queue_occupancy) > …",
        ),
        (
            "any(hop_latency > 5 and loop)",
            "and",
            "one comparison fits into any(): write any(…) and any(…)",
        ),
        (
            "flow_latency@3 > 5",
            "@",
            "flow_latency belongs to the flow, not to a node",
        ),
        (
            "hop_latency@ > 5",
            ">",
            "expected a node id behind `@`, such as 102 or 0x66",
        ),
        (
            "hop_latency@4294967295 > 5",
            "4294967295",
            "a node id is a whole number below 4294967295",
        ),
        (
            "hop_latency@1.5 > 5",
            "1.5",
            "a node id is a whole number below 4294967295",
        ),
        (
            "flow_latency > 5%",
            "5%",
            "a latency is a time: use ns, us, ms or s",
        ),
        (
            "link_utilization > 5ms",
            "5ms",
            "a utilization is a fraction: write 80% or 0.8",
        ),
        (
            "queue_occupancy > 5%",
            "5%",
            "this value is in the device's own units: `%` has no meaning here",
        ),
        (
            "hops > 5 ms",
            "5 ms",
            "this value is a number of hops: a unit of time has no meaning here",
        ),
        (
            "hops > 1.5",
            "1.5",
            "this value is a number of hops, which are whole: write a whole number",
        ),
        ("flow_latency > 0.5", "0.5", "finer than a nanosecond"),
        (
            "link_utilization > 0.00001%",
            "0.00001%",
            "finer than a millionth",
        ),
        (
            "link_utilization@7 > 80",
            "80",
            "a utilization is at most 100%: write 80% or 0.8",
        ),
        (
            "max(link_utilization) > 101%",
            "101%",
            "a utilization is at most 100%: write 80% or 0.8",
        ),
        (
            "hops > 18446744073709551615",
            "18446744073709551615",
            "too great for 64 bits",
        ),
        (
            "flow_latency > 18446744073709551614 s",
            "18446744073709551614 s",
            "too great for 64 bits",
        ),
        (
            "hops > 99999999999999999999",
            "99999999999999999999",
            "`99999999999999999999` is not a number of at most 64 bits",
        ),
        ("hops > 0x", "0x", "`0x` is not a number of at most 64 bits"),
        ("hops > 1.", "1.", "digits are missing after the point"),
        (
            "count(hop_latency > 5) > 4294967296",
            "4294967296",
            "no report has so many hops",
        ),
        (
            "5 < loop",
            "5",
            "what follows is true or false by itself: it is not compared with a number",
        ),
        (
            "hops > -5",
            "-",
            "`-` is not used here: values are never negative",
        ),
        (
            "hops > 5 for",
            "",
            "expected a number of reports behind `for`, such as 5",
        ),
        (
            "hops > 5 for 1",
            "1",
            "`for` counts the reports of a flow, from 2 to 65535: write `for 5`",
        ),
        (
            "hops > 5 for 5ms",
            "5ms",
            "`for` counts the reports of a flow, from 2 to 65535: write `for 5`",
        ),
        (
            "(hops > 5 for 5) for 2",
            "for",
            "there is a `for` in this condition already",
        ),
        (
            "(hops > 5 or loop) for 5",
            "for",
            "`for` counts one comparison, or several joined by `and`: the sides of an `or` may take turns; give each its own `for`",
        ),
        (
            "change > 5",
            ">",
            "`change` is of one value: write change(flow_latency)",
        ),
        (
            "change(change(hops)) > 5",
            "change",
            "history functions cannot be nested",
        ),
        (
            "change(queue_occupancy) > 5",
            "queue_occupancy",
            "change() is of one whole number: flow_latency, hops, or max(), min(), sum(), count() of a metric, as in change(max(queue_occupancy))",
        ),
        (
            "average(avg(queue_occupancy)) > 5",
            "avg",
            "average() is of one whole number: flow_latency, hops, or max(), min(), sum(), count() of a metric, as in average(max(queue_occupancy))",
        ),
        (
            "average(hops, 1) > 5",
            "1",
            "the weight of a new value in an average is between 0.004 and 0.996, such as 0.25",
        ),
        (
            "average(hops, 5ms) > 5",
            "5ms",
            "the weight of a new value in an average is between 0.004 and 0.996, such as 0.25",
        ),
        ("change(hops, 0.5) > 5", ",", "expected `)`"),
        (
            "change(hops > 5)",
            ">",
            "compare behind the parenthesis: change(…) > …",
        ),
        (
            "previous(flow_latency) > 300_000s",
            "300_000s",
            "what is remembered is never greater than 281474976710655",
        ),
        (
            "chnage(hops) > 5",
            "chnage",
            "unknown name `chnage`: did you mean `change`?",
        ),
    ];
    for (text, marked, message) in cases {
        let error = refused(text);
        assert_eq!(
            (&text[error.position..][..error.length], error.message.as_str()),
            (marked, message),
            "{text}"
        );
    }
    let flow_path = refused("flow_path > 3").message;
    assert_eq!(
        flow_path,
        "flow_path is not a number: use `hops` for its length, `loop` for a node seen twice"
    );
    let all = "flow_latency, hops, loop, hop_latency, queue_occupancy, queue_congestion, link_utilization";
    assert_eq!(
        refused("bananas > 3").message,
        format!("unknown name `bananas`: known are {all}")
    );
}

#[test]
fn an_error_is_printed_with_a_mark_under_the_place() {
    let error = refused("hops > 6 and\n\tmax(queue_ocupancy) > 50\nor loop");
    let expected = "rule `r`: unknown name `queue_ocupancy`: did you mean `queue_occupancy`?\n   max(queue_ocupancy) > 50\n       ^^^^^^^^^^^^^^";
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.line_and_column(), (2, 6));
    assert_eq!(
        refused("hops >").to_string(),
        "rule `r`: expected a number, such as 50, 5ms or 80%\n  hops >\n        ^"
    );
    let long = format!("{}hopps", "loop and ".repeat(100));
    let expected = "rule `r`: unknown name `hopps`: did you mean `hops`? (at line 1, column 901)";
    assert_eq!(refused(&long).to_string(), expected);
    assert_eq!(
        refused("").to_string(),
        "rule `r`: the rule is empty (at line 1, column 1)"
    );
}

#[test]
fn bounds_are_stated_and_kept() {
    let join = |count: usize, by: &str, term: &dyn Fn(usize) -> String| {
        (0..count).map(term).collect::<Vec<_>>().join(by)
    };
    let hops = |n: usize| format!("hops > {n}");
    let pair = |n: usize| format!("hops > {n} and hops < {n}");
    assert!(compile(&join(64, " or ", &hops)).is_ok());
    let literals = refused(&join(65, " or ", &hops)).message;
    assert_eq!(
        literals,
        "the rule is too big (more than 64 different comparisons): split it into several rules"
    );
    assert!(
        compile(&join(6, " or ", &pair)).is_err_and(|error| error.message.contains("more than 256 terms"))
    );
    assert!(compile(&join(5, " or ", &pair)).is_ok_and(|rules| rules.clauses(0).count() == 32));
    let clauses = refused(&join(30, " or ", &pair)).message;
    assert_eq!(
        clauses,
        "the rule is too big (more than 64 clauses in conjunctive normal form): split it into several rules"
    );
    let deep = |depth: usize| format!("{}loop{}", "(".repeat(depth), ")".repeat(depth));
    assert!(compile(&deep(64)).is_ok());
    assert_eq!(
        refused(&deep(65)).message,
        "`not` and parentheses nest deeper than 64"
    );
    assert_eq!(
        refused(&"not ".repeat(1000)).message,
        "`not` and parentheses nest deeper than 64"
    );
    assert_eq!(
        refused(&"(".repeat(5000)).message,
        "the rule has 5000 bytes; at most 4096 are read"
    );
    // The bound is on different terms and clauses: repeated ones cost nothing.
    assert!(compile(&join(400, " or ", &|_| "loop".into())).is_ok_and(|rules| rules.clauses(0).count() == 1));
}

fn random_term(random: &mut Random) -> String {
    let metrics = [
        "hop_latency",
        "queue_occupancy",
        "queue_congestion",
        "link_utilization",
    ];
    let signs = ["<", "<=", ">", ">=", "==", "!="];
    let sign = random.pick(&signs);
    let metric = random.pick(&metrics);
    let number = if metric == "link_utilization" {
        format!("0.00000{}", random.below(6))
    } else {
        random.below(6).to_string()
    };
    let node = if random.below(4) == 0 {
        format!("@{}", random.below(4))
    } else {
        String::new()
    };
    match random.below(8) {
        0 => format!("flow_latency {sign} {}", random.below(6)),
        1 => format!("hops {sign} {}", random.below(6)),
        2 => "loop".into(),
        3 => format!("{metric}{node} {sign} {number}"),
        4 => format!(
            "count({metric}{node} {sign} {number}) {} {}",
            random.pick(&signs),
            random.below(4)
        ),
        5 => format!("{}({metric}{node} {sign} {number})", random.pick(&["any", "all"])),
        6 => format!("count({metric}{node}) {sign} {}", random.below(4)),
        _ => format!(
            "{}({metric}{node}) {sign} {number}",
            random.pick(&["max", "min", "sum", "avg"])
        ),
    }
}

/// A term that uses earlier reports.
fn random_memory(random: &mut Random) -> String {
    let signs = ["<", "<=", ">", ">=", "==", "!="];
    let sign = random.pick(&signs);
    let number = random.below(6);
    let node = if random.below(4) == 0 {
        format!("@{}", random.below(4))
    } else {
        String::new()
    };
    let metric = random.pick(&["hop_latency", "queue_occupancy", "queue_congestion"]);
    let value = match random.below(6) {
        0 => "flow_latency".into(),
        1 => "hops".into(),
        _ => format!("{}({metric}{node})", random.pick(&["max", "min", "sum", "count"])),
    };
    let value = match random.below(4) {
        0 => format!("previous({value})"),
        1 => format!("change({value})"),
        2 => format!("average({value})"),
        _ => format!("average({value}, 0.{:02})", 1 + random.below(98)),
    };
    format!("{value} {sign} {number}")
}

/// With `cells`, its terms may use earlier reports.
pub(crate) fn random_rule_of(random: &mut Random, depth: u64, cells: bool) -> String {
    if depth == 0 || random.below(4) == 0 {
        let mut term = if cells && random.below(2) == 0 {
            random_memory(random)
        } else {
            random_term(random)
        };
        if cells && random.below(3) == 0 {
            if random.below(3) == 0 {
                term = format!("(not {term} and {})", random_memory(random));
            }
            term = format!("{term} for {}", 2 + random.below(3));
        }
        return term;
    }
    let a = random_rule_of(random, depth - 1, cells);
    let b = random_rule_of(random, depth - 1, cells);
    match random.below(5) {
        0 | 1 => format!("({a}) and {b}"),
        2 | 3 => format!("{a} or ({b})"),
        _ => format!("not ({a})"),
    }
}

pub(crate) fn random_rule(random: &mut Random, depth: u64) -> String {
    random_rule_of(random, depth, false)
}

pub(crate) fn random_hops(random: &mut Random) -> Vec<HopValues> {
    let count = random.below(5);
    let value = |random: &mut Random| random.maybe(|r| r.below(6)).unwrap_or(ABSENT);
    (0..count)
        .map(|_| HopValues {
            hop_latency: value(random),
            queue_occupancy: value(random),
            queue_congestion: value(random),
            link_utilization: value(random),
            node: random.maybe(|r| r.below(4) as u32).unwrap_or(NO_NODE),
        })
        .collect()
}

#[test]
fn the_normal_form_is_equivalent_to_the_expression() {
    let mut random = Random::new(7);
    let mut compiled = 0;
    let mut fired = 0;
    for _ in 0..20_000 {
        let text = random_rule(&mut random, 4);
        let expression: Expression = parser::parse(&text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
        let Ok(rules) = compile(&text) else { continue };
        compiled += 1;
        for _ in 0..10 {
            let hops = random_hops(&mut random);
            let observation = Observation {
                flow_latency: random.maybe(|r| r.below(6)),
                looped: random.below(2) == 0,
                hops: &hops,
            };
            let expected = expression.truth(&[observation]) == Some(true);
            assert_eq!(
                rules.evaluate(&observation) == 1,
                expected,
                "{text} of {observation:?}"
            );
            fired += usize::from(expected);
        }
    }
    // Some are refused and some accepted; otherwise the test would prove nothing.
    assert!(
        compiled > 19_000 && fired > 20_000 && fired < 180_000,
        "{compiled} {fired}"
    );
}

/// A report of one hop with this queue.
fn queue(occupancy: u64) -> [HopValues; 1] {
    [hop(1, 1, occupancy)]
}

/// `1` for each of a flow's reports with these queues for which the rule is true, else `.`. `u64::MAX`: without the value.
fn course(text: &str, queues: &[u64]) -> String {
    let rules = compile(text).unwrap_or_else(|refused| panic!("{refused}"));
    let mut cells = vec![ABSENT; rules.cells().len()];
    queues
        .iter()
        .map(|occupancy| {
            let hops = queue(*occupancy);
            let observation = Observation {
                hops: &hops,
                ..Observation::default()
            };
            if rules.evaluate_with(&observation, &mut cells) == 1 {
                '1'
            } else {
                '.'
            }
        })
        .collect()
}

#[test]
fn previous_values_are_stored() {
    const NO: u64 = ABSENT;
    let cases: [(&str, &[u64], &str); 16] = [
        ("previous(max(queue_occupancy)) > 5", &[9, 9, 1, 1, 9], ".11.."),
        (
            "change(max(queue_occupancy)) > 100",
            &[500, 600, 499, 601, 601],
            "..11.",
        ),
        ("change(max(queue_occupancy)) == 0", &[500, 500, 499], ".1."),
        // If a report lacks a value, the previous one remains.
        (
            "change(max(queue_occupancy)) > 100",
            &[500, NO, 700, NO, 700],
            "..1..",
        ),
        ("previous(max(queue_occupancy)) > 5", &[9, NO, 1, NO, 9], ".11.."),
        (
            "not change(max(queue_occupancy)) > 100",
            &[500, 500, NO, 700],
            ".1..",
        ),
        // 256·8 = 2048; with 0, less a quarter each time: 1536, 1152, 864; 6, 4.5, 3.375.
        ("average(max(queue_occupancy)) > 4", &[8, 0, 0, 0, NO], "111.."),
        (
            "average(max(queue_occupancy), 0.5) >= 2",
            &[8, 0, 0, 0, 8],
            "111.1",
        ),
        (
            "average(max(queue_occupancy), 50%) >= 2",
            &[8, 0, 0, 0, 8],
            "111.1",
        ),
        (
            "max(queue_occupancy) > 5 for 3",
            &[9, 9, 9, 9, 1, 9, 9, 9],
            "..11...1",
        ),
        (
            "max(queue_occupancy) > 5 for 2 reports",
            &[9, 9, NO, 9, 9],
            ".1..1",
        ),
        ("not max(queue_occupancy) > 5 for 2", &[9, 9, NO, 9, 9], "1.11."),
        (
            "(not max(queue_occupancy) > 5) for 2",
            &[1, 1, NO, 1, 1, 9],
            ".1..1.",
        ),
        (
            "(queue_occupancy > 5 and queue_occupancy < 9) for 2",
            &[6, 7, 9, 8, 8],
            ".1..1",
        ),
        (
            "(not (queue_occupancy > 9 or queue_occupancy < 5)) for 2",
            &[6, 7, 4, 8, 8],
            ".1..1",
        ),
        (
            "change(max(queue_occupancy)) > 2 for 2",
            &[0, 5, 10, 15, 15],
            "..11.",
        ),
    ];
    for (text, queues, expected) in cases {
        assert_eq!(course(text, queues), expected, "{text}");
    }
}

#[test]
fn averages_settle_and_products_fit() {
    let settled = |from: u64, to: u64, k: u8| {
        (0..200_000).fold(averaged(ABSENT, from, k), |average, _| averaged(average, to, k))
    };
    for k in [1, 2, 64, 128, 255] {
        assert_eq!(settled(0, MAX_VALUE, k), MAX_VALUE << 8, "up to the value itself");
        let above = settled(MAX_VALUE, 1000, k) - (1000 << 8);
        assert!(above < 256 / u64::from(k) + 1, "{above} 256ths above, weight {k}");
        assert_eq!(averaged(MAX_VALUE << 8, MAX_VALUE, k), MAX_VALUE << 8);
    }
}

#[test]
fn history_cells_are_shared_and_bounded() {
    let rules = |texts: &[&str]| {
        let named: Vec<_> = texts
            .iter()
            .enumerate()
            .map(|(n, text)| (n.to_string(), (*text).into()))
            .collect();
        RuleSet::compile(&named)
    };
    let shared = rules(&[
        "change(max(queue_occupancy)) > 5 or previous(max(queue_occupancy)) > 7",
        "loop",
        "change(max(queue_occupancy)) > 9 and loop for 3 and not loop for 7",
        "average(hops) > 2 and average(hops, 0.25) > 3 and average(hops, 0.5) > 4",
    ])
    .unwrap();
    assert_eq!(shared.cells().len(), 4, "{:?}", shared.cells());
    assert_eq!(
        [0, 1, 2, 3, 4].map(|rule| shared.is_stateful(rule)),
        [true, false, true, true, false]
    );
    assert!(compile("hops > 3").unwrap().cells().is_empty());
    let many = |count: u64| {
        (0..count)
            .map(|n| format!("hops > {n} for 2"))
            .collect::<Vec<_>>()
            .join(" and ")
    };
    assert_eq!(compile(&many(32)).unwrap().cells().len(), 32);
    assert_eq!(
        refused(&many(33)).message,
        "the rules up to this one remember more than 32 values of a flow: leave some out"
    );
}

#[test]
fn terms_with_memory_read_back() {
    let cases = [
        (
            "change(max(queue_occupancy@7)) > 5",
            "change(max(queue_occupancy@7)) > 5",
        ),
        (
            "average(flow_latency, 10%) > 5ms for 3",
            "average(flow_latency, 0.10156250) > 5000000ns for 3",
        ),
        (
            "not previous(hops) > 5 for 3 reports",
            "not previous(hops) > 5 for 3",
        ),
        ("(not loop) for 3", "(not loop) for 3"),
        ("not loop for 3", "not (loop) for 3"),
        ("not not loop for 3", "(loop) for 3"),
        (
            "not change(count(hop_latency)) > 5",
            "change(count(hop_latency)) <= 5",
        ),
        (
            "average(max(link_utilization)) > 80%",
            "average(max(link_utilization), 0.25000000) > 80.0000%",
        ),
    ];
    for (text, expected) in cases {
        let rules = compile(text).unwrap();
        let term = *rules.clauses(0).flatten().next().unwrap();
        assert_eq!(term.to_string(), expected, "{text}");
        let again = compile(expected).unwrap();
        assert_eq!(again.clauses(0).flatten().next(), Some(&term), "{text}");
    }
}

#[test]
fn rules_with_memory_are_equivalent_to_the_expression() {
    let mut random = Random::new(13);
    let mut compiled = 0;
    let mut fired = 0;
    let mut all = 0;
    for _ in 0..6000 {
        let text = random_rule_of(&mut random, 3, true);
        let expression: Expression = parser::parse(&text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
        let Ok(rules) = compile(&text) else { continue };
        compiled += 1;
        let reports: Vec<_> = (0..12).map(|_| random_hops(&mut random)).collect();
        let mut history = Vec::new();
        let mut cells = vec![ABSENT; rules.cells().len()];
        for hops in &reports {
            let flow_latency = random.maybe(|r| r.below(6));
            let looped = random.below(2) == 0;
            history.push(Observation {
                flow_latency,
                looped,
                hops,
            });
            let expected = expression.truth(&history) == Some(true);
            let last = history.last().unwrap();
            assert_eq!(
                rules.evaluate_with(last, &mut cells) == 1,
                expected,
                "{text} of {history:?}"
            );
            fired += usize::from(expected);
            all += 1;
        }
    }
    assert!(
        compiled > 5500 && fired > all / 10 && fired < all * 9 / 10,
        "{compiled} {fired} of {all}"
    );
}

#[test]
fn sums_of_huge_values_do_not_wrap() {
    let huge = [
        hop(1, ABSENT - 1, 0),
        hop(2, ABSENT - 1, 0),
        hop(3, ABSENT - 1, 0),
    ];
    let observation = Observation {
        hops: &huge,
        ..Observation::default()
    };
    let fires = |text: &str| compile(text).unwrap().evaluate(&observation) == 1;
    assert!(fires("sum(hop_latency) > 1000000000s"));
    assert!(fires("avg(hop_latency) == 18446744073709551614"));
}

/// A few seconds of a mutating driver over rules that reach every branch.
#[test]
fn the_fuzz_body_holds() {
    let seeds = [
        "max(queue_occupancy) > 50 and flow_latency > 5ms\0\x01\x02\x03\x04\x05\x33\u{fe}\x01\x01\x02",
        "not (count(hop_latency@0x66 >= 1.5us) != 2 or loop) and hops<=6\0aaaaabbbbb",
        "all(link_utilization<80%)or any(queue_congestion)==7k or 5 \u{b5}s<avg(hop_latency)\0\x00\x00\x00\x00\x00",
        "(not change(max(hop_latency))>3 and loop)for 2 or average(sum(hop_latency@2),0.3)<9 and previous(hops)!=4 for 3 reports\0abcdabcdef",
    ];
    let mut random = Random::new(11);
    for round in 0..30_000u64 {
        let mut data = seeds[(round % 4) as usize].as_bytes().to_vec();
        for _ in 0..random.below(4) {
            let at = random.below(data.len() as u64 + 1) as usize;
            data.resize(data.len().max(at + 1), b' ');
            match random.below(4) {
                0 => data[at] = random.next() as u8,
                1 => drop(data.remove(at)),
                2 => data.insert(at, *b"()<>=!@%. 0,".get(random.below(12) as usize).unwrap()),
                _ => data.truncate(at),
            }
        }
        fuzz::rule(&data);
    }
    (0..seeds[0].len()).for_each(|end| fuzz::rule(&seeds[0].as_bytes()[..end]));
}

#[test]
fn a_rule_without_its_counts_is_true_as_long_and_as_often() {
    let without = |text: &str| compile(text).unwrap().without_counts();
    for text in [
        "previous(hops) > 1",
        "change(hops) > 1",
        "average(hops) > 1",
        "average(hops) > 1 for 3",
        "not (hops > 1 for 3)",
        "hops > 1 for 3 or loop",
    ] {
        assert!(without(text).is_none(), "{text}");
    }
    assert_eq!(without("hops > 1 or loop").map(|rules| rules.stateful()), Some(0));
    let mut random = Random::new(7);
    for text in [
        "max(queue_occupancy) > 2 for 3",
        "(max(queue_occupancy) > 2 and flow_latency > 1) for 2",
        "max(queue_occupancy) > 2 for 3 and flow_latency > 1 for 2",
        "max(queue_occupancy) > 2 for 2 and (flow_latency > 3 or loop)",
    ] {
        let rules = compile(text).unwrap();
        let bound = without(text).unwrap();
        assert!(bound.cells().is_empty() && bound.name(0) == "r", "{text}");
        let mut history = vec![EMPTY; rules.cells().len()];
        let mut was = [false; 2];
        let mut times = [0; 2];
        for _ in 0..10_000 {
            let hops = [hop(1, 0, random.below(5))];
            let flow_latency = random.maybe(|r| r.below(5));
            let observation = Observation {
                flow_latency,
                looped: random.below(2) == 0,
                hops: &hops,
            };
            let is = [
                rules.evaluate_with(&observation, &mut history),
                bound.evaluate(&observation),
            ]
            .map(|set| set == 1);
            assert!(is[1] || !is[0], "{text}");
            (0..2).for_each(|i| times[i] += u32::from(is[i] && !was[i]));
            assert!(times[0] <= times[1], "{text}");
            was = is;
        }
        assert!(times[0] > 10 && times[0] < times[1], "{text}: {times:?}");
    }
}
