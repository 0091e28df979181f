//! What a filter means.

use std::cell::OnceCell;

use detect::{Metric, Prefix};
use wire::FlowKey;

use crate::field::Field;
use crate::path::Pattern;

/// What is known of a row. What it lacks is unknown.
#[derive(Clone, Copy, Default, Debug)]
pub struct Facts<'a> {
    /// The flow.
    pub flow: Option<&'a FlowKey>,
    /// Where the flow's text is kept once a test has made it, if many filters are asked about the row.
    pub flow_text: Option<&'a OnceCell<String>>,
    /// The nodes in forwarding order (`u32::MAX`: unavailable); empty if unknown.
    pub path: &'a [u32],
    /// The event's node.
    pub node: Option<u32>,
    /// The event's interface.
    pub interface: Option<u32>,
    /// The event's queue.
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
    /// Values, by metric.
    pub values: [Option<u64>; Metric::COUNT],
}

/// What each row has that a filter matches.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Required {
    /// This kind.
    pub kind: Option<String>,
    /// This metric.
    pub metric: Option<String>,
    /// This node, of an event.
    pub node: Option<u32>,
    /// This flow.
    pub flow: Option<FlowKey>,
}

/// A condition.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Expression {
    /// True of all if there are none.
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    Test(Test),
}

/// One field.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Test {
    /// An address is in one of these.
    Address(Field, Vec<Prefix>),
    /// A number is in one of these ranges, both ends included.
    Number(Field, Vec<(u64, u64)>),
    /// A text is one of these.
    Text(Field, Vec<String>),
    /// A text contains this one.
    Contains(Field, String),
    /// The path has one of these.
    Path(Vec<Pattern>),
}

impl Expression {
    pub(crate) fn truth(&self, facts: &Facts<'_>) -> Option<bool> {
        match self {
            Self::And(parts) => all(parts.iter().map(|part| part.truth(facts)), false),
            Self::Or(parts) => all(parts.iter().map(|part| part.truth(facts)), true),
            Self::Not(part) => part.truth(facts).map(|truth| !truth),
            Self::Test(test) => test.truth(facts),
        }
    }

    pub(crate) fn tests(&self) -> usize {
        match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().map(Self::tests).sum(),
            Self::Not(part) => part.tests(),
            Self::Test(Test::Address(_, values)) => values.len(),
            Self::Test(Test::Number(_, values)) => values.len().max(1),
            Self::Test(Test::Text(_, values)) => values.len(),
            Self::Test(Test::Path(values)) => values.len(),
            Self::Test(Test::Contains(..)) => 1,
        }
    }

    pub(crate) fn asks_nodes(&self) -> bool {
        match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().any(Self::asks_nodes),
            Self::Not(part) => part.asks_nodes(),
            Self::Test(Test::Path(_) | Test::Number(Field::Hops | Field::Node, _)) => true,
            Self::Test(Test::Number(Field::Value(metric), _)) => *metric != Metric::FlowLatency,
            Self::Test(_) => false,
        }
    }

    /// Adds the values at which a test of this field may change.
    pub(crate) fn bounds(&self, of: Field, bounds: &mut Vec<u64>) {
        match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().for_each(|part| part.bounds(of, bounds)),
            Self::Not(part) => part.bounds(of, bounds),
            Self::Test(Test::Number(field, ranges)) if *field == of => {
                let ends = ranges
                    .iter()
                    .flat_map(|(first, last)| [Some(*first), last.checked_add(1)]);
                bounds.extend(ends.flatten());
            }
            Self::Test(_) => {}
        }
    }

    /// Adds the fields of its tests.
    pub(crate) fn fields(&self, fields: &mut Vec<Field>) {
        let field = match self {
            Self::And(parts) | Self::Or(parts) => return parts.iter().for_each(|part| part.fields(fields)),
            Self::Not(part) => return part.fields(fields),
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
            Self::And(parts) => &parts[..],
            other => std::slice::from_ref(other),
        };
        for test in tests {
            match test {
                Self::Test(Test::Number(Field::Node, ranges)) => match ranges[..] {
                    [(first, last)] if first == last => required.node = u32::try_from(first).ok(),
                    _ => {}
                },
                Self::Test(Test::Text(field, texts)) if texts.len() == 1 => {
                    let text = || Some(texts[0].clone());
                    match field {
                        Field::Kind => required.kind = text(),
                        Field::Metric => required.metric = text(),
                        Field::Flow => required.flow = texts[0].parse().ok(),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        required
    }
}

/// Kleene's logic: `decisive` decides, else what is unknown does.
fn all(truths: impl Iterator<Item = Option<bool>>, decisive: bool) -> Option<bool> {
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
                let flow = facts.flow.filter(|flow| flow.known_id().is_none())?;
                let (src, dst) = (flow.src_octets(), flow.dst_octets());
                let is_in =
                    |address: &[u8; 16]| prefixes.iter().any(|prefix| prefix.contains_octets(address));
                Some(match field {
                    Field::Src => is_in(src),
                    Field::Dst => is_in(dst),
                    _ => is_in(src) || is_in(dst),
                })
            }
            Self::Number(field, ranges) => {
                let is_in = |number: u64| {
                    ranges
                        .iter()
                        .any(|(first, last)| (*first..=*last).contains(&number))
                };
                if *field == Field::Port {
                    let (src, dst) = facts.flow?.ports()?;
                    return Some(is_in(src.into()) || is_in(dst.into()));
                }
                number(*field, facts).map(is_in)
            }
            Self::Text(field, texts) => text(*field, facts, |text| texts.iter().any(|one| one == text)),
            Self::Contains(field, part) => text(*field, facts, |text| text.contains(&**part)),
            Self::Path(patterns) => {
                (!facts.path.is_empty()).then(|| patterns.iter().any(|pattern| pattern.is_in(facts.path)))
            }
        }
    }
}

fn number(field: Field, facts: &Facts<'_>) -> Option<u64> {
    let addressed = || facts.flow.filter(|flow| flow.known_id().is_none());
    match field {
        Field::SrcPort => facts.flow?.src_port().map(u64::from),
        Field::DstPort => facts.flow?.dst_port().map(u64::from),
        Field::Proto => addressed().map(|flow| flow.proto().into()),
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

fn text(field: Field, facts: &Facts<'_>, is: impl Fn(&str) -> bool) -> Option<bool> {
    match field {
        Field::Flow => facts.flow.map(|flow| match facts.flow_text {
            Some(text) => is(text.get_or_init(|| flow.to_string())),
            None => is(&flow.to_string()),
        }),
        Field::Kind => facts.kind.map(is),
        Field::Metric => facts.metric.map(is),
        Field::Rule => facts.rule.map(is),
        _ => None,
    }
}
