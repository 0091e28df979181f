//! A filter as a condition of ClickHouse about our tables. What a row lacks is NULL, so that its logic is that of [`crate::Filter::matches`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use detect::{Metric, Prefix};

use crate::field::Field;
use crate::path::{Pattern, Step};
use crate::test::{Expression, Test};

type Parameter<'a> = &'a mut dyn FnMut(&str, String) -> String;

/// The condition. Its result is 1, 0 or NULL.
pub(crate) fn condition(expression: &Expression, parameter: Parameter<'_>) -> String {
    match expression {
        Expression::And(parts) => join(parts, " AND ", "1", parameter),
        Expression::Or(parts) => join(parts, " OR ", "0", parameter),
        Expression::Not(part) => format!("(NOT {})", condition(part, parameter)),
        Expression::Test(test) => test_condition(test, parameter),
    }
}

fn join(parts: &[Expression], word: &str, none: &str, parameter: Parameter<'_>) -> String {
    let parts: Vec<String> = parts.iter().map(|part| condition(part, parameter)).collect();
    if parts.is_empty() {
        none.to_owned()
    } else {
        format!("({})", parts.join(word))
    }
}

fn test_condition(test: &Test, parameter: Parameter<'_>) -> String {
    match test {
        Test::Address(field, prefixes) => {
            let columns: &[&str] = match field {
                Field::Src => &["src"],
                Field::Dst => &["dst"],
                _ => &["src", "dst"],
            };
            let mut terms = Vec::new();
            for column in columns {
                for prefix in prefixes {
                    let (first, last) = bounds(prefix);
                    let first = parameter("IPv6", first);
                    let last = parameter("IPv6", last);
                    let mut term = format!("{column} BETWEEN {first} AND {last}");
                    if prefix.is_v6() && prefix.len() < 96 {
                        let v4 = parameter("IPv6", MAPPED.0.to_owned());
                        let end = parameter("IPv6", MAPPED.1.to_owned());
                        term = format!("({term} AND NOT {column} BETWEEN {v4} AND {end})");
                    }
                    terms.push(term);
                }
            }
            format!("if({ADDRESSED}, {}, NULL)", any(&terms))
        }
        Test::Number(Field::Port, ranges) => {
            let terms: Vec<String> = ["sport", "dport"]
                .iter()
                .flat_map(|column| within(column, ranges, parameter))
                .collect();
            format!("if({WITH_PORTS}, {}, NULL)", any(&terms))
        }
        Test::Number(field, ranges) => {
            let (column, is_known) = column(*field);
            format!(
                "if({is_known}, {}, NULL)",
                any(&within(&column, ranges, parameter))
            )
        }
        Test::Text(field, texts) => {
            let terms: Vec<String> = texts
                .iter()
                .map(|text| format!("{} = {}", field.name(), parameter("String", text.clone())))
                .collect();
            format!("if({} = '', NULL, {})", field.name(), any(&terms))
        }
        Test::Contains(field, part) => {
            let part = parameter("String", part.clone());
            format!("if({0} = '', NULL, position({0}, {part}) > 0)", field.name())
        }
        Test::Path(patterns) => {
            let text = "concat('>', arrayStringConcat(path, '>'), '>')";
            let terms: Vec<String> = patterns
                .iter()
                .map(|pattern| format!("match({text}, {})", parameter("String", expression_of(pattern))))
                .collect();
            format!("if(empty(path), NULL, {})", any(&terms))
        }
    }
}

fn any(terms: &[String]) -> String {
    if terms.is_empty() {
        "0".to_owned()
    } else {
        format!("({})", terms.join(" OR "))
    }
}

fn within(column: &str, ranges: &[(u64, u64)], parameter: Parameter<'_>) -> Vec<String> {
    ranges
        .iter()
        .map(|(first, last)| {
            let first = parameter("UInt64", first.to_string());
            let last = parameter("UInt64", last.to_string());
            format!("{column} BETWEEN {first} AND {last}")
        })
        .collect()
}

/// The expression of a field that is a number, and the condition that the row has it.
fn column(field: Field) -> (String, String) {
    match field {
        Field::SrcPort | Field::DstPort => (field.name().to_owned(), WITH_PORTS.to_owned()),
        Field::Proto => ("proto".to_owned(), ADDRESSED.to_owned()),
        Field::Hops => ("length(path)".to_owned(), "notEmpty(path)".to_owned()),
        Field::Value(metric) => {
            let value = format!("if(metric = '{}', value, {})", metric.name(), first_value(metric));
            (value.clone(), format!("{value} IS NOT NULL"))
        }
        Field::Reason => ("reason".to_owned(), "reason IS NOT NULL".to_owned()),
        _ => (
            field.name().to_owned(),
            format!("{} != {}", field.name(), u32::MAX),
        ),
    }
}

/// The expression of the value that the first report of a path measured: the row is of metric `flow_path`.
fn first_value(metric: Metric) -> &'static str {
    match metric {
        Metric::FlowLatency => "flow_latency",
        Metric::HopLatency => {
            "if(arrayExists(one -> one != 4294967295, hop_latencies), \
             toUInt64(arrayMax(arrayFilter(one -> one != 4294967295, hop_latencies))), NULL)"
        }
        _ => "NULL",
    }
}

/// First and last address of a prefix.
fn bounds(prefix: &Prefix) -> (String, String) {
    match prefix.network() {
        IpAddr::V4(first) => {
            let rest = u32::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
            let last = Ipv4Addr::from(u32::from(first) | rest);
            (
                first.to_ipv6_mapped().to_string(),
                last.to_ipv6_mapped().to_string(),
            )
        }
        IpAddr::V6(first) => {
            let rest = u128::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
            (
                first.to_string(),
                Ipv6Addr::from(u128::from(first) | rest).to_string(),
            )
        }
    }
}

/// A pattern of a path as a regular expression about `>101>102>`.
fn expression_of(pattern: &Pattern) -> String {
    let mut text = String::from(">");
    for step in pattern.steps() {
        match step {
            Step::Node(node) => text.push_str(&format!("{node}>")),
            Step::One => text.push_str("[0-9]+>"),
            Step::Any => text.push_str("([0-9]+>)*"),
        }
    }
    text
}

/// Addresses of IPv4 as IPv6 has them.
const MAPPED: (&str, &str) = ("::ffff:0.0.0.0", "::ffff:255.255.255.255");
/// The flow has addresses.
const ADDRESSED: &str = "flow != '' AND NOT startsWith(flow, 'flow-id:')";
/// A condition of ClickHouse: the flow has ports. Its text has them behind colons, and those of IPv6 addresses are in brackets.
pub const WITH_PORTS: &str = "match(flow, '^([0-9.]+|\\\\[[^>]*\\\\]):[0-9]+>')";
