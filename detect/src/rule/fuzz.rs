//! The fuzz target of rules as a plain function, for fuzzers and tests.

use super::error::Fault;
use super::expression::{Expression, NormalForm};
use super::history::{CELLS, EMPTY};
use super::parser;
use super::{RuleSet, Term};
use crate::observation::{ABSENT, HopValues, Observation};

/// Interprets `data` as a rule and, after a zero byte, as values. Checks that a text is either rejected at a position
/// inside it or compiles to an equivalent form, and that the text of each term parses to the same term.
///
/// # Panics
/// If a check fails.
pub fn rule(data: &[u8]) {
    let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let text = String::from_utf8_lossy(&data[..end]);
    let compiled = RuleSet::compile(&[("fuzz".to_owned(), text.clone().into_owned())]);
    match (parser::parse(&text), compiled) {
        (Err(fault), Err(refused)) => {
            assert_eq!(fault.clone().in_rule("fuzz", &text), refused);
            assert!(covers_characters(&fault, &text), "{fault:?}");
            assert!(refused.to_string().starts_with("rule `fuzz`: "), "{refused}");
        }
        (Ok(expression), Ok(rules)) => {
            agrees(&expression, &rules, &data[end..]);
            rules.clauses(0).flatten().for_each(reads_back);
        }
        (Ok(expression), Err(_)) => assert!(NormalForm::of(&expression).is_err(), "{text} was refused"),
        (Err(fault), Ok(_)) => panic!("{text} compiled in spite of {fault:?}"),
    }
}

fn covers_characters(fault: &Fault, text: &str) -> bool {
    text.get(fault.position..fault.position + fault.length).is_some()
}

/// Compares both forms on the reports of one flow. Values are bytes, so they often equal the rule's numbers.
fn agrees(expression: &Expression, rules: &RuleSet, bytes: &[u8]) {
    let hops = bytes.as_chunks::<5>().0.iter().map(|bytes| {
        let values = bytes.map(|byte| if byte >= 0xf0 { ABSENT } else { u64::from(byte) });
        HopValues {
            hop_latency: values[0],
            queue_occupancy: values[1],
            queue_congestion: values[2],
            link_utilization: values[3],
            node: u32::from(bytes[4]),
        }
    });
    let hops: Vec<HopValues> = hops.collect();
    let mut history = Vec::new();
    let mut cells = [EMPTY; CELLS];
    for flow_latency in [None, Some(0), Some(bytes.len() as u64), Some(u64::MAX - 1)] {
        for looped in [false, true] {
            let hops = &hops[history.len().min(hops.len())..];
            history.push(Observation {
                flow_latency,
                looped,
                hops,
            });
            let expected = u64::from(expression.truth(&history) == Some(true));
            let last = &history[history.len() - 1];
            assert_eq!(
                rules.evaluate_with(last, &mut cells),
                expected,
                "{expression:?} of {history:?}"
            );
            if rules.cells().is_empty() || history.len() == 1 {
                assert_eq!(rules.evaluate(last), expected, "{expression:?} of {last:?}");
            }
        }
    }
}

fn reads_back(term: &Term) {
    let expression = parser::parse(&term.to_string());
    let read = expression.as_ref().map(NormalForm::of);
    assert_eq!(
        read,
        Ok(Ok(NormalForm {
            clauses: vec![vec![*term]]
        })),
        "{term}"
    );
}
