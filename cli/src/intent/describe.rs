//! Describes all fields of an intent in words, for `hopwise intent show`.

use detect::Metric;
use manager::intent::amount_text;
use serde_json::Value;

use manage_role::role::view::IntentView;

/// Returns (label, text) of each part of an intent; labels are those of the command line.
pub(super) fn lines(view: &IntentView) -> Vec<(&'static str, String)> {
    let intent = &view.intent;
    let reporting = intent.get("report").unwrap_or(&Value::Null);
    let thresholds = reporting.get("thresholds").and_then(Value::as_object);
    let coarsest = reporting.get("coarsest").and_then(Value::as_object);
    let mut lines = vec![("flows", flows(intent)), ("where", location(intent))];
    lines.push(("watch", list(intent.get("watch"))));
    if let Some(mode) = mode(view) {
        lines.push(("mode", mode));
    }
    let optional = [
        (
            "sample",
            intent.get("sample").map(text).filter(|sample| sample != "1 in 1"),
        ),
        (
            "filter",
            reporting.get("filter").map(|filter| filter_text(&text(filter))),
        ),
        (
            "threshold",
            thresholds.map(amounts).filter(|amounts| !amounts.is_empty()),
        ),
        (
            "coarsest",
            coarsest.map(amounts).filter(|amounts| !amounts.is_empty()),
        ),
        ("rule", reporting.get("rule").map(text)),
        ("then", reporting.get("then").map(then)),
        ("budget", intent.get("budget").map(text)),
        ("priority", intent.get("priority").map(text)),
    ];
    lines.extend(optional.into_iter().filter_map(|(key, text)| Some((key, text?))));
    lines
}

/// Formats a value as in the configuration; list items are separated by commas.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

fn list(value: Option<&Value>) -> String {
    value.map(text).unwrap_or_default()
}

fn flows(intent: &Value) -> String {
    let keys = intent.get("match").and_then(Value::as_object);
    let labels = [
        ("src", "from"),
        ("dst", "to"),
        ("sport", "source port"),
        ("dport", "port"),
        ("proto", "protocol"),
        ("dscp", "DSCP"),
    ];
    let parts = labels.into_iter().filter_map(|(key, label)| {
        let value = keys?.get(key)?;
        Some(format!(
            "{label} {}",
            if key == "proto" {
                text(value)
                    .split(", ")
                    .map(protocol)
                    .collect::<Vec<_>>()
                    .join(", ")
            } else {
                text(value)
            }
        ))
    });
    let mut parts: Vec<String> = parts.collect();
    if parts.is_empty() {
        parts.push("all".to_owned());
    }
    if intent.get("both_directions").and_then(Value::as_bool) == Some(true) {
        parts.push("both directions".to_owned());
    }
    parts.join("; ")
}

/// Returns the name of TCP or UDP, otherwise the number.
fn protocol(number: &str) -> String {
    match number {
        "6" => "tcp".to_owned(),
        "17" => "udp".to_owned(),
        other => other.to_owned(),
    }
}

/// Returns the devices or hosts under `at.KEY`; `None` if there are none.
fn devices(intent: &Value, key: &str) -> Option<Vec<String>> {
    let names = intent.get("at")?.get(key)?;
    let names: Vec<String> = match names.as_array() {
        Some(names) => names.iter().map(text).collect(),
        None => vec![text(names)],
    };
    (!names.is_empty()).then_some(names)
}

fn location(intent: &Value) -> String {
    let edges = devices(intent, "edges").map(|names| format!("at {}", names.join(", ")));
    let between = devices(intent, "between").map(|names| format!("between {}", names.join(" and ")));
    let parts: Vec<String> = edges.into_iter().chain(between).collect();
    if parts.is_empty() {
        "everywhere".to_owned()
    } else {
        parts.join("; ")
    }
}

/// Returns the active mode with its instructions or, if there is none yet, the requested mode; `None` for `auto`.
fn mode(view: &IntentView) -> Option<String> {
    let requested = view.intent.get("mode").map(text).filter(|mode| mode != "auto");
    match (&view.mode, &view.instructions) {
        (Some(mode), Some(instructions)) => {
            let remark = if requested.is_some() {
                ""
            } else {
                " (the cheapest)"
            };
            Some(format!("{mode}{remark}: {instructions}"))
        }
        _ => requested,
    }
}

fn filter_text(filter: &str) -> String {
    let description = match filter {
        "per_hop" => "sinks report changes at a hop",
        "per_flow" => "sinks report changes of a flow",
        "change" => "sinks report changes of the path, or of a bucket of latency or queue",
        _ => return filter.to_owned(),
    };
    format!("{filter}: {description}")
}

fn amounts(amounts: &serde_json::Map<String, Value>) -> String {
    let texts = amounts.iter().map(|(metric, amount)| {
        let configured = text(amount);
        let parsed = Metric::from_name(metric).zip(configured.parse().ok());
        let amount = parsed.map_or(configured, |(metric, number)| amount_text(metric, number));
        format!("{metric} {amount}")
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn then(then: &Value) -> String {
    let scope = then.get("match").map_or_else(|| "this flow".to_owned(), text);
    let duration = then.get("for").map_or_else(|| "30s".to_owned(), text);
    format!("watch {} of {scope} for {duration}", list(then.get("watch")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(intent: Value, mode: Option<&str>) -> IntentView {
        IntentView {
            name: "a".to_owned(),
            etag: String::new(),
            origin: "api".to_owned(),
            parent: None,
            by: String::new(),
            added: 0,
            end: None,
            intent,
            state: String::new(),
            text: String::new(),
            mode: mode.map(str::to_owned),
            instructions: mode.map(|_| "node_id".to_owned()),
            devices: Vec::new(),
            rules: Vec::new(),
            notes: Vec::new(),
            flows: 0,
            rate: 0.0,
        }
    }

    #[test]
    fn everything_that_an_intent_says_is_shown() {
        let intent = json!({
            "name": "a", "match": {"dst": ["10.0.0.0/8"], "dport": "443", "proto": [17, 6]}, "both_directions": true,
            "watch": ["hop_latency", "flow_path"], "mode": "md", "sample": "1 in 10",
            "at": {"edges": ["leaf*"], "between": ["h1", "h3"]},
            "report": {"filter": "per_hop", "thresholds": {"hop_latency": 20_000}, "coarsest": {"hop_latency": "1ms"},
                "rule": "hops > 2", "then": {"watch": ["queue_occupancy"], "match": "this queue", "for": "1m"}},
            "budget": "10 reports/s", "priority": 7,
        });
        let expected = [
            (
                "flows",
                "to 10.0.0.0/8; port 443; protocol udp, tcp; both directions",
            ),
            ("where", "at leaf*; between h1 and h3"),
            ("watch", "hop_latency, flow_path"),
            ("mode", "md: node_id"),
            ("sample", "1 in 10"),
            ("filter", "per_hop: sinks report changes at a hop"),
            ("threshold", "hop_latency 20us"),
            ("coarsest", "hop_latency 1ms"),
            ("rule", "hops > 2"),
            ("then", "watch queue_occupancy of this queue for 1m"),
            ("budget", "10 reports/s"),
            ("priority", "7"),
        ];
        assert_eq!(
            lines(&view(intent, Some("md"))),
            expected.map(|(key, text)| (key, text.to_owned()))
        );
        let plain = [
            ("flows", "all"),
            ("where", "everywhere"),
            ("watch", "hops"),
            ("mode", "sf (the cheapest): node_id"),
        ];
        let view = view(json!({"match": "all", "watch": ["hops"]}), Some("sf"));
        assert_eq!(lines(&view), plain.map(|(key, text)| (key, text.to_owned())));
    }
}
