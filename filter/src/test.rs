//! Evaluates a filter's expression on a row in three-valued (Kleene) logic: a test of a field that the row lacks is
//! unknown.

use std::cell::OnceCell;

use detect::{Metric, Prefix};
use wire::FlowKey;

use crate::field::Field;
use crate::path::Pattern;

/// The values of a row; an absent field is unknown.
#[derive(Clone, Copy, Default, Debug)]
pub struct Facts<'a> {
    /// The flow of the row.
    pub flow: Option<&'a FlowKey>,
    /// Cache of the flow's text, for evaluating several filters on the same row.
    pub flow_text: Option<&'a OnceCell<String>>,
    /// Nodes in forwarding order (`u32::MAX`: ID unknown); empty if the path is unknown.
    pub path: &'a [u32],
    /// The node of the event.
    pub node: Option<u32>,
    /// The interface of the event.
    pub interface: Option<u32>,
    /// The queue of the event.
    pub queue: Option<u8>,
    /// The kind of the event.
    pub kind: Option<&'a str>,
    /// The metric of the event.
    pub metric: Option<&'a str>,
    /// The rule of the event.
    pub rule: Option<&'a str>,
    /// The drop reason of the event.
    pub reason: Option<u8>,
    /// The number of reports of the flow.
    pub reports: Option<u64>,
    /// The measured values, by metric.
    pub values: [Option<u64>; Metric::COUNT],
}

/// Properties that all matching rows share; `None` where they may differ.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Required {
    /// The kind of the event.
    pub kind: Option<String>,
    /// The metric of the event.
    pub metric: Option<String>,
    /// The node, if rows are events.
    pub node: Option<u32>,
    /// The flow that the row is about.
    pub flow: Option<FlowKey>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Expression {
    /// True if all operands are true, and for no operands.
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    Test(Test),
}

/// A test of one field.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Test {
    /// The address lies in one of these prefixes.
    Address(Field, Vec<Prefix>),
    /// The number lies in one of these ranges, both ends included.
    Number(Field, Vec<(u64, u64)>),
    /// The text equals one of these.
    Text(Field, Vec<String>),
    /// The text contains this string.
    Contains(Field, String),
    /// The path matches one of these patterns.
    Path(Vec<Pattern>),
}

impl Expression {
    pub(crate) fn truth(&self, facts: &Facts<'_>) -> Option<bool> {
        match self {
            Self::And(operands) => combine(operands.iter().map(|operand| operand.truth(facts)), false),
            Self::Or(operands) => combine(operands.iter().map(|operand| operand.truth(facts)), true),
            Self::Not(operand) => operand.truth(facts).map(|truth| !truth),
            Self::Test(test) => test.truth(facts),
        }
    }

    pub(crate) fn tests(&self) -> usize {
        match self {
            Self::And(operands) | Self::Or(operands) => operands.iter().map(Self::tests).sum(),
            Self::Not(operand) => operand.tests(),
            Self::Test(Test::Address(_, values)) => values.len(),
            Self::Test(Test::Number(_, values)) => values.len().max(1),
            Self::Test(Test::Text(_, values)) => values.len(),
            Self::Test(Test::Path(values)) => values.len(),
            Self::Test(Test::Contains(..)) => 1,
        }
    }

    pub(crate) fn asks_nodes(&self) -> bool {
        match self {
            Self::And(operands) | Self::Or(operands) => operands.iter().any(Self::asks_nodes),
            Self::Not(operand) => operand.asks_nodes(),
            Self::Test(Test::Path(_) | Test::Number(Field::Hops | Field::Node, _)) => true,
            Self::Test(Test::Number(Field::Value(metric), _)) => *metric != Metric::FlowLatency,
            Self::Test(_) => false,
        }
    }

    /// Adds the values at which the result of a test of this field can change.
    pub(crate) fn bounds(&self, of_field: Field, bounds: &mut Vec<u64>) {
        match self {
            Self::And(operands) | Self::Or(operands) => operands
                .iter()
                .for_each(|operand| operand.bounds(of_field, bounds)),
            Self::Not(operand) => operand.bounds(of_field, bounds),
            Self::Test(Test::Number(field, ranges)) if *field == of_field => {
                let ends = ranges
                    .iter()
                    .flat_map(|(first, last)| [Some(*first), last.checked_add(1)]);
                bounds.extend(ends.flatten());
            }
            Self::Test(_) => {}
        }
    }

    /// Adds the tested fields to `fields`, without duplicates.
    pub(crate) fn fields(&self, fields: &mut Vec<Field>) {
        let field = match self {
            Self::And(operands) | Self::Or(operands) => {
                return operands.iter().for_each(|operand| operand.fields(fields));
            }
            Self::Not(operand) => return operand.fields(fields),
            Self::Test(Test::Path(_)) => Field::Path,
            Self::Test(
                Test::Address(field, _)
                | Test::Number(field, _)
                | Test::Text(field, _)
                | Test::Contains(field, _),
            ) => *field,
        };
        if !fields.contains(&field) {
            fields.push(field);
        }
    }

    pub(crate) fn required(&self) -> Required {
        let mut required = Required::default();
        let tests = match self {
            Self::And(operands) => &operands[..],
            other => std::slice::from_ref(other),
        };
        for test in tests {
            match test {
                Self::Test(Test::Number(Field::Node, ranges)) => match ranges[..] {
                    [(first, last)] if first == last => required.node = u32::try_from(first).ok(),
                    _ => {}
                },
                Self::Test(Test::Text(field, texts)) if texts.len() == 1 => {
                    let text = &texts[0];
                    match field {
                        Field::Kind => required.kind = Some(text.clone()),
                        Field::Metric => required.metric = Some(text.clone()),
                        Field::Flow => required.flow = text.parse().ok(),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        required
    }
}

/// Combines truth values in Kleene logic: `decisive` if any has that value; otherwise unknown if any is unknown.
fn combine(truths: impl Iterator<Item = Option<bool>>, decisive: bool) -> Option<bool> {
    let mut result = Some(!decisive);
    for truth in truths {
        match truth {
            Some(truth) if truth == decisive => return Some(decisive),
            None => result = None,
            Some(_) => {}
        }
    }
    result
}

impl Test {
    fn truth(&self, facts: &Facts<'_>) -> Option<bool> {
        match self {
            Self::Address(field, prefixes) => {
                let flow = flow_with_addresses(facts)?;
                let src = flow.src_octets();
                let dst = flow.dst_octets();
                Some(prefixes.iter().any(|prefix| match field {
                    Field::Src => prefix.contains_octets(src),
                    Field::Dst => prefix.contains_octets(dst),
                    _ => prefix.contains_octets(src) || prefix.contains_octets(dst),
                }))
            }
            Self::Number(field, ranges) => {
                if *field == Field::Port {
                    let (src, dst) = facts.flow?.ports()?;
                    return Some(contains(ranges, src.into()) || contains(ranges, dst.into()));
                }
                number(*field, facts).map(|number| contains(ranges, number))
            }
            Self::Text(field, texts) => text(*field, facts, |text| {
                texts.iter().any(|candidate| candidate == text)
            }),
            Self::Contains(field, substring) => text(*field, facts, |text| text.contains(&**substring)),
            Self::Path(patterns) => {
                (!facts.path.is_empty()).then(|| patterns.iter().any(|pattern| pattern.is_in(facts.path)))
            }
        }
    }
}

fn contains(ranges: &[(u64, u64)], number: u64) -> bool {
    ranges
        .iter()
        .any(|(first, last)| (*first..=*last).contains(&number))
}

/// Returns the flow if its addresses are known, rather than only its flow ID.
fn flow_with_addresses<'a>(facts: &Facts<'a>) -> Option<&'a FlowKey> {
    facts.flow.filter(|flow| flow.known_id().is_none())
}

fn number(field: Field, facts: &Facts<'_>) -> Option<u64> {
    match field {
        Field::SrcPort => facts.flow?.src_port().map(u64::from),
        Field::DstPort => facts.flow?.dst_port().map(u64::from),
        Field::Proto => flow_with_addresses(facts).map(|flow| flow.proto().into()),
        Field::Node => facts.node.map(u64::from),
        Field::Interface => facts.interface.map(u64::from),
        Field::Queue => facts.queue.map(u64::from),
        Field::Reason => facts.reason.map(u64::from),
        Field::Reports => facts.reports,
        Field::Hops => (!facts.path.is_empty()).then_some(facts.path.len() as u64),
        Field::Value(metric) => facts.values[metric as usize],
        _ => None,
    }
}

fn text(field: Field, facts: &Facts<'_>, is_match: impl Fn(&str) -> bool) -> Option<bool> {
    match field {
        Field::Flow => facts.flow.map(|flow| match facts.flow_text {
            Some(text) => is_match(text.get_or_init(|| flow.to_string())),
            None => is_match(&flow.to_string()),
        }),
        Field::Kind => facts.kind.map(is_match),
        Field::Metric => facts.metric.map(is_match),
        Field::Rule => facts.rule.map(is_match),
        _ => None,
    }
}
