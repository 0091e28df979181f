//! Filters by rule: random rules, and their entries.

use detect::table::Row;
use detect::{Program, RuleSet, Table};
use p4_model::{Entry, Key};
use testkit::rng::Rng;

use crate::setup::Setup;

/// Comparisons and clauses of a rule of the program.
const TERMS: usize = 16;
const CLAUSES: usize = 16;
/// Tables of comparisons.
const TABLES: [&str; TERMS] = [
    "filter_term_0",
    "filter_term_1",
    "filter_term_2",
    "filter_term_3",
    "filter_term_4",
    "filter_term_5",
    "filter_term_6",
    "filter_term_7",
    "filter_term_8",
    "filter_term_9",
    "filter_term_10",
    "filter_term_11",
    "filter_term_12",
    "filter_term_13",
    "filter_term_14",
    "filter_term_15",
];
const COMPARISONS: [&str; 6] = ["<", "<=", ">", ">=", "==", "!="];

/// One or two rules that fit the program.
pub(crate) fn random(rng: &mut Rng) -> Program {
    loop {
        let count = 1 + rng.below(2);
        let named = |number: usize, rng: &mut Rng| (number.to_string(), condition(rng, 3));
        let rules: Vec<(String, String)> = (0..count).map(|number| named(number, rng)).collect();
        // Too many clauses.
        let Ok(rules) = RuleSet::compile(&rules) else {
            continue;
        };
        let Ok(program) = Program::new(&rules) else {
            continue;
        };
        let Table { clauses, .. } = &program.table;
        let highest = clauses.iter().fold(0, |all, clauses| all | clauses);
        if program.table.comparisons().len() <= TERMS && highest >> CLAUSES == 0 {
            return program;
        }
    }
}

fn condition(rng: &mut Rng, depth: usize) -> String {
    match rng.below(if depth == 0 { 1 } else { 5 }) {
        0 | 1 => comparison(rng),
        2 => format!("not ({})", condition(rng, depth - 1)),
        joined => {
            let word = if joined == 3 { "and" } else { "or" };
            let parts: Vec<String> = (0..2 + rng.below(2)).map(|_| condition(rng, depth - 1)).collect();
            format!("({})", parts.join(&format!(" {word} ")))
        }
    }
}

/// Values are those of a few switches, and ends of ranges.
fn comparison(rng: &mut Rng) -> String {
    let (subject, values) = match rng.below(2) {
        0 => (
            "hop_latency",
            ["0", "1ms", "2500us", "4ms", "5ms", "1s", "0xffffffffffff"],
        ),
        _ => (
            "queue_occupancy",
            [
                "0",
                "1000",
                "0x20000",
                "0x40000",
                "0x70000",
                "0xffffff",
                "0xffffffffffff",
            ],
        ),
    };
    let compares = COMPARISONS[rng.below(6)];
    let value = values[rng.below(values.len())];
    let node = if rng.below(4) == 0 {
        format!("@{}", 1 + rng.below(6))
    } else {
        String::new()
    };
    let few = rng.below(6);
    match rng.below(9) {
        0..=2 => {
            let aggregate = ["max", "min", "sum", "avg"][rng.below(4)];
            format!("{aggregate}({subject}{node}) {compares} {value}")
        }
        3 | 4 => {
            let aggregate = ["any", "all"][rng.below(2)];
            format!("{aggregate}({subject}{node} {compares} {value})")
        }
        5 => format!(
            "count({subject}{node} {compares} {value}) {} {few}",
            COMPARISONS[rng.below(6)]
        ),
        6 => format!("count({subject}{node}) {compares} {few}"),
        7 => format!(
            "flow_latency {compares} {}",
            ["0", "2ms", "5ms", "8ms", "2s"][rng.below(5)]
        ),
        _ => match rng.below(3) {
            0 => "loop".to_owned(),
            _ => format!("hops {compares} {few}"),
        },
    }
}

/// The entries of the rules of a filter.
pub(crate) fn entries(table: &Table, filter: u128) -> Vec<Setup> {
    let results = |comparison: u8| [4, 6, 1, 3, 2, 5][usize::from(comparison)];
    let term = |((row, clauses), place): ((Row, u64), &'static str)| {
        let parameters = vec![
            u128::from(row.subject),
            u128::from(row.aggregate),
            u128::from(row.node),
            results(row.comparison),
            u128::from(row.value),
            results(row.hops_comparison),
            u128::from(row.hops),
            u128::from(clauses),
        ];
        let (keys, action) = (vec![Key::Exact(filter)], "filter_term".to_owned());
        Setup::Entry(
            place,
            Entry {
                keys,
                priority: 0,
                action,
                parameters,
            },
        )
    };
    let mut setup: Vec<Setup> = table.comparisons().into_iter().zip(TABLES).map(term).collect();
    for rule in (0..64).filter(|rule| table.rules >> rule & 1 == 1) {
        let clauses = u128::from(table.clauses[rule]);
        let keys = vec![Key::Exact(filter), Key::Ternary(clauses, clauses)];
        let (action, parameters) = ("filter_fires".to_owned(), Vec::new());
        setup.push(Setup::Entry(
            "filter_rules",
            Entry {
                keys,
                priority: 1 + rule as i32,
                action,
                parameters,
            },
        ));
    }
    setup
}
