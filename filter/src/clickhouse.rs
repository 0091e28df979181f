//! Translates a filter to a ClickHouse condition. A field that a row lacks becomes NULL, so SQL's three-valued logic gives
//! the same result as [`crate::Filter::matches`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use detect::{Metric, Prefix};

use crate::field::Field;
use crate::path::{Pattern, Step};
use crate::test::{Expression, Test};

/// First IPv4 address as stored in IPv6 columns.
const FIRST_MAPPED_IPV4: &str = "::ffff:0.0.0.0";
/// Last IPv4 address as stored in IPv6 columns.
const LAST_MAPPED_IPV4: &str = "::ffff:255.255.255.255";
/// Condition that a row's flow has addresses rather than only a flow ID.
const HAS_ADDRESSES: &str = "flow != '' AND NOT startsWith(flow, 'flow-id:')";
/// Condition that the flow's text has ports, as in `a:1>b:2/6` and `[a]:1>[b]:2/6`.
pub const HAS_PORTS: &str = "match(flow, '^([0-9.]+|\\\\[[^>]*\\\\]):[0-9]+>')";
/// Value of a number that a row lacks.
const UNKNOWN: u32 = u32::MAX;

/// Registers a query parameter with its ClickHouse type and value, and returns its placeholder.
type AddParameter<'a> = &'a mut dyn FnMut(&str, String) -> String;

/// Translates an expression to a condition that evaluates to 1, 0 or NULL.
pub(crate) fn condition(expression: &Expression, parameter: AddParameter<'_>) -> String {
    match expression {
        Expression::And(operands) => join(operands, " AND ", "1", parameter),
        Expression::Or(operands) => join(operands, " OR ", "0", parameter),
        Expression::Not(operand) => format!("(NOT {})", condition(operand, parameter)),
        Expression::Test(test) => test_condition(test, parameter),
    }
}

/// Joins the conditions of all operands by `operator`; `empty` is the condition for no operands.
fn join(operands: &[Expression], operator: &str, empty: &str, parameter: AddParameter<'_>) -> String {
    let conditions: Vec<String> = operands
        .iter()
        .map(|operand| condition(operand, parameter))
        .collect();
    if conditions.is_empty() {
        empty.to_owned()
    } else {
        format!("({})", conditions.join(operator))
    }
}

fn test_condition(test: &Test, parameter: AddParameter<'_>) -> String {
    match test {
        Test::Address(field, prefixes) => address_condition(*field, prefixes, parameter),
        Test::Number(Field::Port, ranges) => {
            let terms: Vec<String> = ["sport", "dport"]
                .iter()
                .flat_map(|column| range_terms(column, ranges, parameter))
                .collect();
            format!("if({HAS_PORTS}, {}, NULL)", or_terms(&terms))
        }
        Test::Number(field, ranges) => {
            let (column, is_known) = numeric_expression(*field);
            format!(
                "if({is_known}, {}, NULL)",
                or_terms(&range_terms(&column, ranges, parameter))
            )
        }
        Test::Text(field, texts) => {
            let terms: Vec<String> = texts
                .iter()
                .map(|text| format!("{} = {}", field.name(), parameter("String", text.clone())))
                .collect();
            format!("if({} = '', NULL, {})", field.name(), or_terms(&terms))
        }
        Test::Contains(field, substring) => {
            let substring = parameter("String", substring.clone());
            format!("if({0} = '', NULL, position({0}, {substring}) > 0)", field.name())
        }
        Test::Path(patterns) => {
            let text = "concat('>', arrayStringConcat(path, '>'), '>')";
            let terms: Vec<String> = patterns
                .iter()
                .map(|pattern| format!("match({text}, {})", parameter("String", path_regex(pattern))))
                .collect();
            format!("if(empty(path), NULL, {})", or_terms(&terms))
        }
    }
}

fn address_condition(field: Field, prefixes: &[Prefix], parameter: AddParameter<'_>) -> String {
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
            // IPv4 addresses are stored mapped into ::ffff:0:0/96; an IPv6 prefix must not match them.
            if prefix.is_v6() && prefix.len() < 96 {
                let first_v4 = parameter("IPv6", FIRST_MAPPED_IPV4.to_owned());
                let last_v4 = parameter("IPv6", LAST_MAPPED_IPV4.to_owned());
                term = format!("({term} AND NOT {column} BETWEEN {first_v4} AND {last_v4})");
            }
            terms.push(term);
        }
    }
    format!("if({HAS_ADDRESSES}, {}, NULL)", or_terms(&terms))
}

/// Joins terms by OR; no terms are never true.
fn or_terms(terms: &[String]) -> String {
    if terms.is_empty() {
        "0".to_owned()
    } else {
        format!("({})", terms.join(" OR "))
    }
}

/// Returns one term per range, both ends included.
fn range_terms(column: &str, ranges: &[(u64, u64)], parameter: AddParameter<'_>) -> Vec<String> {
    ranges
        .iter()
        .map(|(first, last)| {
            let first = parameter("UInt64", first.to_string());
            let last = parameter("UInt64", last.to_string());
            format!("{column} BETWEEN {first} AND {last}")
        })
        .collect()
}

/// Returns the SQL expression of a numeric field, and the condition that the row has it.
fn numeric_expression(field: Field) -> (String, String) {
    match field {
        Field::SrcPort | Field::DstPort => (field.name().to_owned(), HAS_PORTS.to_owned()),
        Field::Proto => ("proto".to_owned(), HAS_ADDRESSES.to_owned()),
        Field::Hops => ("length(path)".to_owned(), "notEmpty(path)".to_owned()),
        Field::Value(metric) => {
            let value = format!("if(metric = '{}', value, {})", metric.name(), first_value(metric));
            (value.clone(), format!("{value} IS NOT NULL"))
        }
        Field::Reason => ("reason".to_owned(), "reason IS NOT NULL".to_owned()),
        _ => (
            field.name().to_owned(),
            format!("{} != {}", field.name(), UNKNOWN),
        ),
    }
}

/// Returns the SQL expression for the value in the report that first showed a path (events of metric `flow_path`).
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

/// Returns the first and the last address of a prefix, as text.
fn bounds(prefix: &Prefix) -> (String, String) {
    match prefix.network() {
        IpAddr::V4(first) => {
            // With the full prefix length the shift overflows, and there are no host bits.
            let host_bits = u32::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
            let last = Ipv4Addr::from(u32::from(first) | host_bits);
            (
                first.to_ipv6_mapped().to_string(),
                last.to_ipv6_mapped().to_string(),
            )
        }
        IpAddr::V6(first) => {
            let host_bits = u128::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
            (
                first.to_string(),
                Ipv6Addr::from(u128::from(first) | host_bits).to_string(),
            )
        }
    }
}

/// Converts a path pattern to a regular expression that is matched against text such as `>101>102>`.
fn path_regex(pattern: &Pattern) -> String {
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
