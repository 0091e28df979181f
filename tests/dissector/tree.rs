//! Converts tshark's JSON trees to the form of the vectors.

use crate::*;

/// A field of a tree, once.
pub(crate) fn get<'a>(tree: &'a Value, name: &str) -> Option<&'a Value> {
    match tree.get(format!("hopwise.{name}")) {
        Some(Value::Array(many)) => many.first(),
        one => one,
    }
}

/// All occurrences of a field of a tree.
pub(crate) fn all<'a>(tree: &'a Value, name: &str) -> Vec<&'a Value> {
    match tree.get(format!("hopwise.{name}")) {
        Some(Value::Array(many)) => many.iter().collect(),
        Some(one) => vec![one],
        None => Vec::new(),
    }
}

pub(crate) fn string(tree: &Value, name: &str) -> Option<String> {
    get(tree, name).map(|value| value.as_str().unwrap_or_default().to_owned())
}

pub(crate) fn number(tree: &Value, name: &str) -> Option<u64> {
    let text = string(tree, name)?;
    let digits = text.strip_prefix("0x");
    digits.map_or_else(
        || text.parse().ok(),
        |digits| u64::from_str_radix(digits, 16).ok(),
    )
}

pub(crate) fn is_set(tree: &Value, name: &str) -> bool {
    string(tree, name).is_some_and(|text| text == "1" || text == "True")
}

pub(crate) fn unavailable(tree: &Value) -> Vec<String> {
    all(tree, "unavailable")
        .into_iter()
        .map(|name| name.as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Items of a hop: their names in the vectors and in the dissector.
pub(crate) const ITEMS: [(&str, &str); 17] = [
    ("node_id", "node_id"),
    ("ingress_if", "ingress_if"),
    ("egress_if", "egress_if"),
    ("hop_latency", "latency"),
    ("queue_id", "queue_id"),
    ("queue_occupancy", "queue_occupancy"),
    ("queue_congestion", "queue_congestion"),
    ("congestion_queue_id", "congestion_queue_id"),
    ("drop_queue_id", "drop_queue_id"),
    ("ingress_ts", "ingress_ts"),
    ("egress_ts", "egress_ts"),
    ("l2_ingress_if", "l2_ingress_if"),
    ("l2_egress_if", "l2_egress_if"),
    ("tx_utilization", "tx_utilization"),
    ("buffer_id", "buffer_id"),
    ("buffer_occupancy", "buffer_occupancy"),
    ("checksum_complement", "checksum_complement"),
];

pub(crate) fn hop(tree: &Value, prefix: &str) -> Map<String, Value> {
    let mut out = Map::new();
    let missing = unavailable(tree);
    for (name, field) in ITEMS {
        if let Some(value) = number(tree, &format!("{prefix}.{field}")) {
            out.insert(name.into(), json!(value));
        } else if missing.iter().any(|missing| missing == field) {
            out.insert(name.into(), Value::Null);
        }
    }
    // Without an occupancy, the queue is that of the congestion status, or the one beside a drop reason.
    let is_known = |name| out.get(name).is_some_and(|value: &Value| !value.is_null());
    if is_known("queue_id") && !is_known("queue_occupancy") {
        let of_congestion = is_known("queue_congestion");
        let name = if of_congestion {
            "congestion_queue_id"
        } else {
            "drop_queue_id"
        };
        out.insert(name.into(), out["queue_id"].clone());
    }
    out
}

/// Removes queues that are that of the hop.
fn leave_out_same_queues(hop: &mut Map<String, Value>) {
    let queue = hop.get("queue_id").cloned();
    for name in ["congestion_queue_id", "drop_queue_id"] {
        if hop.get(name) == queue.as_ref() {
            hop.remove(name);
        }
    }
}

/// Whether a report is of the domain of postcards, and about its node alone.
fn is_postcard(tree: &Value) -> bool {
    const DOMAIN: u64 = 0x5043;
    get(tree, "report.hop").is_some() && number(tree, "report.ds_id") == Some(DOMAIN)
}

/// The header of the INT that is read. That of an option that was left out is before it.
fn int_header(int: &Value) -> Option<&Value> {
    all(int, "int.header").pop()
}

/// Whether the trace of IOAM gives the nodes: INT has none, or is absent.
fn is_traced(tree: &Value) -> bool {
    let has = |flag: &str| is_set(tree, &format!("report.flags.{flag}"));
    let is_local = (has("drop") || has("queue")) && !has("flow");
    let Some(ioam) = get(tree, "ioam").filter(|_| !is_postcard(tree) && !is_local) else {
        return false;
    };
    if string(tree, "report.int_refused").as_deref() == Some("int_beside_trace") {
        return false;
    }
    let shim = get(tree, "int").and_then(|int| get(int, "int.shim"));
    let is_mx = shim.and_then(|shim| number(shim, "int.shim.type")) == Some(3);
    if is_mx && get(tree, "report.hop").is_some() {
        return false;
    }
    get(tree, "int").is_none_or(|int| {
        let is_sf = int_header(int).is_some_and(|header| get(header, "int.sf").is_some());
        all(int, "int.hop").is_empty() && !is_sf && !all(ioam, "ioam.hop").is_empty()
    })
}

/// Hops in forwarding order: those in the packet, then the reporter's own, which is merged with the newest if the
/// dissector marks it so.
pub(crate) fn hops(tree: &Value, marks: &[String]) -> Vec<Map<String, Value>> {
    let int = get(tree, "int").filter(|_| !is_postcard(tree));
    let mut hops: Vec<_> = match (int, get(tree, "ioam")) {
        _ if is_postcard(tree) => Vec::new(),
        (_, Some(ioam)) if is_traced(tree) => all(ioam, "ioam.hop")
            .into_iter()
            .map(|each| hop(each, "ioam.hop"))
            .collect(),
        (Some(int), _) => all(int, "int.hop")
            .into_iter()
            .map(|each| hop(each, "int.hop"))
            .collect(),
        (None, _) => Vec::new(),
    };
    hops.reverse();
    let of_one_packet = int
        .and_then(int_header)
        .filter(|header| get(header, "int.sf").is_some())
        .is_none_or(|header| is_set(header, "int.sf.urgent") || number(header, "int.sf.state") == Some(2));
    if let Some(own) = get(tree, "report.hop").filter(|_| of_one_packet) {
        let own = hop(own, "report.hop");
        match hops.last_mut() {
            Some(newest) if marks.iter().any(|mark| mark == "merged") => merge(newest, own),
            _ => hops.push(own),
        }
    }
    hops.iter_mut().for_each(leave_out_same_queues);
    hops
}

/// Adds the reporter's own items to its record. A queue's id beside a drop reason leaves that of an occupancy. Of a timestamp of 64 bits
/// beside one of 32 only the lower half counts.
fn merge(record: &mut Map<String, Value>, mut own: Map<String, Value>) {
    let is_known = |name| record.get(name).is_some_and(|value| !value.is_null());
    if !own.contains_key("queue_occupancy") && is_known("queue_id") && is_known("queue_occupancy") {
        own.remove("queue_id");
    }
    record.extend(own);
    let stamps = ["ingress_ts", "egress_ts"];
    let is_wide = stamps.map(|name| {
        record
            .get(name)?
            .as_u64()
            .map(|stamp| stamp > u64::from(u32::MAX))
    });
    if let [Some(first), Some(second)] = is_wide
        && first != second
    {
        for name in stamps {
            record[name] = json!(record[name].as_u64().unwrap() & u64::from(u32::MAX));
        }
    }
}

pub(crate) fn flow(tree: &Value, which: &str) -> Option<Value> {
    let flow = get(tree, which)?;
    let mut out = Map::new();
    for end in ["src", "dst"] {
        let address = string(flow, &format!("{which}.{end}"));
        let address = address.or_else(|| string(flow, &format!("{which}.{end}_v6")))?;
        out.insert(end.into(), json!(address));
    }
    for name in ["sport", "dport", "proto"] {
        if let Some(value) = number(flow, &format!("{which}.{name}")) {
            out.insert(name.into(), json!(value));
        }
    }
    Some(Value::Object(out))
}

/// Copies numbers that are present into an object under other names.
pub(crate) fn numbers(tree: &Value, out: &mut Map<String, Value>, names: &[(&str, &str)]) {
    for (name, field) in names {
        if let Some(value) = number(tree, field) {
            out.insert((*name).into(), json!(value));
        }
    }
}

/// Fields common to packets and reports.
pub(crate) fn contents(tree: &Value, out: &mut Map<String, Value>) {
    for which in ["flow", "tunnel"] {
        if let Some(flow) = flow(tree, which) {
            out.insert(which.into(), flow);
        }
    }
    let mut marks: Vec<String> = all(tree, "annotation")
        .iter()
        .map(|mark| mark.as_str().unwrap().into())
        .collect();
    if let Some(int) = get(tree, "int") {
        if let Some(version) = string(int, "int.version") {
            out.insert("int_version".into(), json!(version));
        }
        marks.extend(
            all(int, "annotation")
                .iter()
                .map(|mark| mark.as_str().unwrap().to_owned()),
        );
    }
    if let Some(ioam) = get(tree, "ioam") {
        let mut inner = Map::new();
        let names = [
            ("namespace", "ioam.namespace"),
            ("trace_type", "ioam.trace_type"),
            ("nodes", "ioam.nodes"),
            ("flow_id", "ioam.flow_id"),
            ("seq", "ioam.seq"),
        ];
        numbers(ioam, &mut inner, &names);
        out.insert("ioam".into(), Value::Object(inner));
        marks.extend(
            all(ioam, "annotation")
                .iter()
                .map(|mark| mark.as_str().unwrap().to_owned()),
        );
    }
    if let Some(header) = get(tree, "int").and_then(int_header)
        && get(header, "int.sf").is_some()
        && string(tree, "report.int_refused").as_deref() != Some("int_beside_trace")
    {
        let state = number(header, "int.sf.state").unwrap_or_default();
        let urgent = is_set(header, "int.sf.urgent");
        let state = ["invalid", "low", "medium", "high"][state as usize];
        let packet_id = number(header, "int.sf.packet_id");
        out.insert(
            "sf".into(),
            json!({"state": state, "urgent": urgent, "packet_id": packet_id}),
        );
        if let Some(own) = get(tree, "report.hop").filter(|_| !urgent) {
            let mut own = hop(own, "report.hop");
            leave_out_same_queues(&mut own);
            out.insert("reporter_metadata".into(), Value::Object(own));
        }
    }
    let hops = hops(tree, &marks);
    let nameless = is_traced(tree) && hops.iter().all(|hop| !hop.contains_key("node_id"));
    let path: Vec<Value> = hops
        .iter()
        .filter(|_| !nameless)
        .map(|hop| hop.get("node_id").cloned().unwrap_or(Value::Null))
        .collect();
    let shown: Vec<String> = path
        .iter()
        .map(|id| if id.is_null() { "?".into() } else { id.to_string() })
        .collect();
    assert_eq!(
        string(tree, "path"),
        Some(shown.join(",")),
        "the path that is shown"
    );
    out.insert("path".into(), Value::Array(path));
    out.insert("hops".into(), hops.into_iter().map(Value::Object).collect());
    if !marks.is_empty() {
        out.insert("annotations".into(), json!(marks));
    }
}

/// A report's object. `datagram` has the fields that occur once.
pub(crate) fn report(datagram: &Value, tree: &Value) -> Value {
    if let Some(refused) = string(tree, "refused") {
        return json!({"error": refused});
    }
    let mut out = Map::new();
    let version = string(datagram, "report.version").unwrap_or_default();
    let names = [
        ("node_id", "report.node_id"),
        ("hw_id", "report.hw_id"),
        ("seq", "report.seq"),
    ];
    numbers(datagram, &mut out, &names);
    if unavailable(datagram).iter().any(|name| name == "node_id") {
        out.insert("node_id".into(), Value::Null);
    }
    let flags: Vec<&str> = ["drop", "queue", "flow", "intermediate"]
        .into_iter()
        .filter(|flag| is_set(tree, &format!("report.flags.{flag}")))
        .collect();
    out.insert("flags".into(), json!(flags));
    if version == "2.0" {
        numbers(tree, &mut out, &[("report_type", "report.type")]);
    }
    out.insert("version".into(), json!(version));
    numbers(
        tree,
        &mut out,
        &[
            ("flow_id", "report.flow_id"),
            ("drop_reason", "report.drop_reason"),
        ],
    );
    if unavailable(tree).iter().any(|name| name == "drop_reason") {
        out.insert("drop_reason".into(), Value::Null);
    }
    if let Some(gap) = get(tree, "report.gap") {
        let mut inner = Map::new();
        let names = ["source", "ts", "seq", "count"];
        for name in names {
            numbers(gap, &mut inner, &[(name, &format!("report.gap.{name}"))]);
        }
        out.insert("gap".into(), Value::Object(inner));
    }
    if let Some(refused) = string(tree, "report.int_refused") {
        out.insert("int_refused".into(), json!(refused));
    }
    if let Some(refused) = string(tree, "report.tunnel_refused") {
        out.insert("tunnel_refused".into(), json!(refused));
    }
    contents(tree, &mut out);
    Value::Object(out)
}

/// The object of a packet.
pub(crate) fn packet(tree: &Value) -> Value {
    if let Some(refused) = string(tree, "refused") {
        return json!({"error": refused});
    }
    let mut out = Map::new();
    contents(tree, &mut out);
    let Some(int) = get(tree, "int").filter(|int| get(int, "int.version").is_some()) else {
        return Value::Object(out);
    };
    let header = int_header(int).unwrap();
    let flags: Vec<&str> = ["discard", "hops_exceeded", "mtu_exceeded"]
        .into_iter()
        .filter(|flag| is_set(header, &format!("int.flags.{flag}")))
        .collect();
    out.insert("int_flags".into(), json!(flags));
    for name in ["mode", "encapsulation", "recognised"] {
        out.insert(name.into(), json!(string(int, &format!("int.{name}"))));
    }
    out.insert("hop_ml".into(), json!(number(header, "int.hop_ml").unwrap_or(0)));
    let remaining = number(header, "int.remaining").or_else(|| number(header, "int.max_hops"));
    out.insert("remaining".into(), json!(remaining.unwrap_or(0)));
    numbers(header, &mut out, &[("bitmap", "int.bitmap")]);
    let offsets: Vec<_> = ["start", "header", "stack", "end"]
        .iter()
        .map(|name| number(int, &format!("int.offset.{name}")))
        .collect();
    out.insert("offsets".into(), json!(offsets));
    if let Some(original) = get(int, "int.original") {
        let mut inner = Map::new();
        for name in ["port", "proto", "dscp"] {
            numbers(original, &mut inner, &[(name, &format!("int.original.{name}"))]);
        }
        if is_set(original, "int.original.tunnel_inserted") {
            inner.insert("tunnel_inserted".into(), json!(true));
        }
        out.insert("original".into(), Value::Object(inner));
    }
    if let Some(bytes) = string(int, "int.source_only") {
        out.insert("source_only".into(), json!(bytes.replace(':', "")));
    }
    Value::Object(out)
}

/// A number of a tree under another name, `null` if the tree says that it is not available.
pub(crate) fn nullable(tree: &Value, field: &str, missing: &str) -> Value {
    let missing = unavailable(tree).iter().any(|name| name == missing);
    if missing {
        Value::Null
    } else {
        json!(number(tree, field))
    }
}

/// An aggregate's object.
pub(crate) fn aggregate(tree: &Value) -> Value {
    const KINDS: [&str; 8] = ["", "agg", "agg_n", "agg_nf", "", "cor", "cor_n", "cor_nf"];
    if let Some(refused) = string(tree, "refused") {
        return json!({"error": refused});
    }
    let mut out = Map::new();
    let kind = number(tree, "aggregate.kind").unwrap() as usize;
    out.insert("aggregate".into(), json!(KINDS[kind]));
    out.insert("by_timer".into(), json!(is_set(tree, "aggregate.by_timer")));
    let names = [
        ("aggregator", "aggregate.aggregator"),
        ("seq", "aggregate.seq"),
        ("node_id", "aggregate.node_scope"),
        ("flow_id", "aggregate.flow_scope"),
    ];
    numbers(tree, &mut out, &names);
    if kind < 4 {
        let postcard = |postcard: &Value| {
            let value = |name: &str| nullable(postcard, &format!("aggregate.postcard.{name}"), name);
            let queue = nullable(postcard, "aggregate.postcard.queue_id", "queue_occupancy");
            let mut out = json!({"node_id": value("node_id"), "flow_id": value("flow_id"), "ingress_ts": value("ingress_ts"),
                "egress_ts": value("egress_ts"), "queue_id": queue, "queue_occupancy": value("queue_occupancy")});
            if is_set(tree, "aggregate.packet_fields") {
                for name in ["ingress_if", "egress_if", "hop_limit", "digest"] {
                    out[name] = value(name);
                }
                for name in ["entered", "left"] {
                    out[name] = json!(is_set(postcard, &format!("aggregate.postcard.{name}")));
                }
            }
            out
        };
        out.insert(
            "postcards".into(),
            all(tree, "aggregate.postcard")
                .into_iter()
                .map(postcard)
                .collect(),
        );
    } else {
        let summary = |summary: &Value| {
            let value = |name: &str| json!(number(summary, &format!("aggregate.summary.{name}")));
            let metric = match number(summary, "aggregate.summary.metric") {
                Some(1) => json!("hop_latency"),
                Some(2) => json!("queue_occupancy"),
                other => json!(other),
            };
            json!({"metric": metric, "min": value("min"), "max": value("max"), "sum": value("sum"),
                "count": value("count"), "avg": value("avg")})
        };
        out.insert(
            "summaries".into(),
            all(tree, "aggregate.summary").into_iter().map(summary).collect(),
        );
    }
    Value::Object(out)
}
