//! Strict parser of both metrics formats, for tests. `promtool check metrics` and Prometheus accept whatever it accepts.

use std::collections::{BTreeMap, HashSet};

use super::Format;

/// Checks a document. Returns (type, number of samples) by family name; panics at the first fault.
pub(super) fn check(document: &str, format: Format) -> BTreeMap<String, (String, usize)> {
    let mut families: BTreeMap<String, (String, usize)> = BTreeMap::new();
    let (mut current, mut help, mut seen, mut ended) = (String::new(), String::new(), HashSet::new(), false);
    assert!(document.ends_with('\n'));
    for line in document.lines() {
        assert!(!ended, "after the end: {line}");
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, text) = rest.split_once(' ').unwrap_or_else(|| panic!("no help: {line}"));
            assert!(text.ends_with(['.', '`']) || text.ends_with(')'), "{line}");
            help = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(help, name, "HELP and TYPE differ");
            check_family(name, kind, format);
            assert!(
                families.insert(name.to_owned(), (kind.to_owned(), 0)).is_none(),
                "twice: {name}"
            );
            current = name.to_owned();
        } else if line == "# EOF" {
            ended = true;
        } else {
            let (name, labels) = sample(line);
            let (kind, samples) = families
                .get_mut(&current)
                .unwrap_or_else(|| panic!("no family: {line}"));
            let suffix = match (format, kind.as_str()) {
                (Format::OpenMetrics, "counter") => "_total",
                (Format::OpenMetrics, "info") => "_info",
                _ => "",
            };
            assert_eq!(name, format!("{current}{suffix}"), "outside its family: {line}");
            assert!(
                !labels.contains_key("quantile") && !labels.contains_key("le"),
                "{line}"
            );
            assert!(seen.insert((name.clone(), labels)), "twice: {line}");
            *samples += 1;
        }
    }
    assert_eq!(ended, format == Format::OpenMetrics, "the end");
    families
}

/// Checks a family's name. A counter's `_total` belongs to the family in Prometheus' format, to the samples in OpenMetrics.
fn check_family(name: &str, kind: &str, format: Format) {
    let letters = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    assert!(
        letters && name.starts_with(|c: char| c.is_ascii_lowercase()),
        "{name}"
    );
    let total = name.ends_with("_total");
    match (kind, format) {
        ("counter", Format::Prometheus) => assert!(total, "a counter without _total: {name}"),
        ("info", Format::OpenMetrics) => {}
        ("counter" | "gauge", _) => assert!(!total, "{kind} with _total: {name}"),
        _ => panic!("{name} is a {kind}"),
    }
    for suffix in ["_count", "_sum", "_bucket", "_created", "_info"] {
        let is_info = suffix == "_info" && format == Format::Prometheus;
        assert!(
            !name.ends_with(suffix) || is_info || name == "hopwise_info",
            "a reserved suffix: {name}"
        );
    }
    for unit in [
        "_ms",
        "_ns",
        "_us",
        "_milliseconds",
        "_nanoseconds",
        "_kib",
        "_mib",
        "_percent",
    ] {
        assert!(!name.contains(unit), "no base unit: {name}");
    }
}

/// Parses name and labels of a sample, and checks that its value is a number.
fn sample(line: &str) -> (String, BTreeMap<String, String>) {
    let (head, value) = line
        .rsplit_once(' ')
        .unwrap_or_else(|| panic!("no value: {line}"));
    assert!(value.parse::<f64>().is_ok(), "{line}");
    let Some((name, rest)) = head.split_once('{') else {
        return (head.to_owned(), BTreeMap::new());
    };
    let mut rest = rest.strip_suffix('}').unwrap_or_else(|| panic!("{line}"));
    let mut labels = BTreeMap::new();
    while !rest.is_empty() {
        let (label, quoted) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
        let mut text = String::new();
        let mut chars = quoted.chars();
        loop {
            match chars.next().unwrap_or_else(|| panic!("unclosed: {line}")) {
                '\\' => text.push(match chars.next() {
                    Some('n') => '\n',
                    Some(c @ ('\\' | '"')) => c,
                    other => panic!("escape {other:?} in {line}"),
                }),
                '"' => break,
                c => text.push(c),
            }
        }
        assert!(labels.insert(label.to_owned(), text).is_none(), "{line}");
        rest = chars.as_str();
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    (name.to_owned(), labels)
}
