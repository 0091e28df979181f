//! Rows that filters match, texts that they refuse, and completions.
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use detect::Metric;
use filter::{Facts, Fault, Field, Filter, Names, Required, View, codes_of, complete, no_names};
use wire::FlowKey;

fn flow(text: &str) -> FlowKey {
    text.parse().unwrap()
}

fn names(name: &str) -> Option<u32> {
    [("leaf-1", 101), ("spine 2", 202)]
        .into_iter()
        .find(|(known, _)| *known == name)
        .map(|(_, id)| id)
}

fn matches(text: &str, view: View, facts: &Facts<'_>) -> bool {
    Filter::parse(text, view, &names)
        .unwrap_or_else(|fault| panic!("{text}: {fault}"))
        .matches(facts)
}

/// A flow's conditions, and whether they are true of it.
const OF_A_FLOW: &[(&str, bool)] = &[
    ("", true),
    ("  ", true),
    ("src in 10.0.1.0/24", true),
    ("src == 10.0.1.7", true),
    ("src != 10.0.1.7", false),
    ("src in (10.1.0.0/16, 10.0.0.0/8)", true),
    ("dst in 10.0.1.0/24", false),
    ("host in 10.0.1.0/24 and host in 10.9.0.0/16", true),
    ("host in ::/0", false),
    ("sport == 5000", true),
    ("dport in (80, 400-500)", true),
    ("dport in 444-500", false),
    ("port == 443", true),
    ("port != 443", false),
    ("port < 443", false),
    ("port <= 443", true),
    ("proto == tcp", true),
    ("proto == 6", true),
    ("proto in (udp, 1)", false),
    ("flow == \"10.0.1.7:5000>10.9.0.1:443/6\"", true),
    ("flow ~ :443", true),
    ("10.0.1.7:", true),
    ("10.0.1.7:5000>10.9.0.1:443/6", true),
    ("10.0.1.8", false),
    ("nowhere", false),
    ("\"10.9\" and src in 10.0.0.0/8", true),
    ("10.9.0.1 and not 10.9.0.2", true),
    ("node == 201", true),
    ("node != 201", false),
    ("node in (7, leaf-1)", true),
    ("path ~ 101>*>103", true),
    ("path ~ leaf-1>?>103", true),
    ("path ~ 101>103", false),
    ("hops == 3", true),
    ("hops>=4", false),
    ("flow_latency == 5ms", true),
    ("flow_latency > 4.999ms", true),
    ("flow_latency<5000us", false),
    ("flow_latency >= 0.005s and flow_latency <= 5_000_000", true),
    ("link_utilization > 80%", true),
    ("link_utilization == 80.5%", true),
    ("reports == 10k", true),
    ("reports == 0x2710", true),
    ("reports > 18446744073709551615 or reports < 0", false),
    // A queue is unknown: its tests are neither true nor false.
    ("queue_occupancy > 0", false),
    ("not queue_occupancy > 0", false),
    ("queue_occupancy > 0 or src in 10.0.0.0/8", true),
    ("not (queue_occupancy > 0 and dst == 10.9.0.1)", false),
    ("not (queue_occupancy > 0 and dst == 10.9.0.2)", true),
    // `and` binds more tightly than `or`, `not` more tightly than both.
    ("dport == 1 and dport == 2 or dport == 443", true),
    ("dport == 1 and (dport == 2 or dport == 443)", false),
    ("not dport == 1 and dport == 443", true),
    ("not not dport == 443", true),
];

#[test]
fn flows_are_matched_by_each_of_their_fields() {
    let key = flow("10.0.1.7:5000>10.9.0.1:443/6");
    let mut values = [None; Metric::COUNT];
    values[Metric::FlowLatency as usize] = Some(5_000_000);
    values[Metric::LinkUtilization as usize] = Some(805_000);
    let facts = Facts {
        flow: Some(&key),
        path: &[101, 201, 103],
        reports: Some(10_000),
        values,
        ..Facts::default()
    };
    for (text, expected) in OF_A_FLOW {
        assert_eq!(matches(text, View::Flows, &facts), *expected, "{text}");
    }
}

#[test]
fn events_are_matched_by_their_own_fields() {
    let key = flow("[2001:db8::1]:5000>[2001:db8::2]:443/17");
    let mut values = [None; Metric::COUNT];
    values[Metric::QueueOccupancy as usize] = Some(80);
    let facts = Facts {
        flow: Some(&key),
        node: Some(202),
        interface: Some(3),
        queue: Some(7),
        kind: Some("change"),
        metric: Some("queue_occupancy"),
        values,
        ..Facts::default()
    };
    for (text, expected) in [
        (
            "kind == change and metric in (queue_occupancy, hop_latency)",
            true,
        ),
        ("kind != drop", true),
        ("node == \"spine 2\" and queue == 7 and interface in 1-3", true),
        ("node in (201, 203)", false),
        ("queue_occupancy > 50", true),
        ("queue_occupancy > 50 and hop_latency > 0", false),
        ("src in 2001:db8::/32 and dst == 2001:db8::2", true),
        ("src in 0.0.0.0/0", false),
        ("rule ~ slow", false),
        ("not rule ~ slow", false),
        ("path ~ 202", false),
    ] {
        assert_eq!(matches(text, View::Events, &facts), expected, "{text}");
    }
    let rule = Facts {
        kind: Some("rule_on"),
        rule: Some("slow through a full queue"),
        ..Facts::default()
    };
    assert!(matches(
        "rule ~ slow and rule == \"slow through a full queue\"",
        View::Events,
        &rule
    ));
    assert!(
        !matches("host in 0.0.0.0/0", View::Events, &rule),
        "an event without a flow"
    );
    let id = flow("flow-id:0x0000f10a");
    let facts = Facts {
        flow: Some(&id),
        ..Facts::default()
    };
    for text in ["host in ::/0", "not host in ::/0", "port == 0", "proto == 0"] {
        assert!(
            !matches(text, View::Events, &facts),
            "{text}: only the Flow ID is known"
        );
    }
    assert!(matches("flow-id:0x0000f10a", View::Events, &facts));
}

/// A text, the position and length of its fault, and the message; no message if the text is searched.
const FAULTS: [(&str, usize, usize, &str); 27] = [
    ("src", 3, 0, ""),
    (
        "src and dst == 10.0.0.1",
        4,
        3,
        "after src, write an operator, such as src == …",
    ),
    ("src = 10.0.0.1", 4, 1, "in place of =, write =="),
    (
        "src == 10.0.0.1 && dst == 10.0.0.2",
        16,
        2,
        "in place of &&, write and",
    ),
    ("src == ", 7, 0, "a value is missing here"),
    ("src in (10.0.0.1, )", 18, 0, "a value is missing here"),
    (
        "src in (10.0.0.1",
        16,
        0,
        "separate values by commas, and close the list with `)`",
    ),
    (
        "src in 10.0.0.1/8",
        7,
        10,
        "the address has bits set beyond /8: write 10.0.0.0/8",
    ),
    ("src > 10.0.0.1", 4, 1, "src is compared by == != in"),
    ("(src == 10.0.0.1", 16, 0, "close the parenthesis with `)`"),
    (
        "src == 10.0.0.1 dst == 10.0.0.2",
        16,
        3,
        "write `and` or `or` between two tests",
    ),
    (
        "src == 10.0.0.1 and",
        19,
        0,
        "write a test here, such as src in 10.0.0.0/8",
    ),
    (
        "and src == 10.0.0.1",
        0,
        3,
        "before `and`, a test is missing, such as src in 10.0.0.0/8",
    ),
    ("kind == drop", 0, 4, "kind is a field of events, not of flows"),
    (
        "sorce == 10.0.0.1",
        0,
        5,
        "flows have no field sorce; did you mean src?",
    ),
    (
        "latency > 5ms",
        0,
        7,
        "flows have no field latency; did you mean hop_latency?",
    ),
    (
        "checkout and port == 80",
        0,
        8,
        "flows have no field checkout; to search for it in the text of flows, write \"checkout\"",
    ),
    ("flow_latency > 5m", 15, 2, "\"5m\" is not a time, such as 5ms"),
    ("flow_latency > 1.5", 15, 3, "\"1.5\" is not a time, such as 5ms"),
    (
        "link_utilization > 80",
        19,
        2,
        "\"80\" is not a share, such as 80%: write its unit",
    ),
    ("port == 65536", 8, 5, "65536 is more than 65535"),
    ("port in 9-8", 8, 3, "9-8 ends before it begins"),
    (
        "proto == ip",
        9,
        2,
        "\"ip\" is not a protocol: tcp, udp, icmp, sctp, or a number",
    ),
    (
        "node == spine9",
        8,
        6,
        "no node has the name \"spine9\"; write an id such as 101, or a name of the inventory",
    ),
    (
        "path ~ 101>>103",
        7,
        8,
        "write nodes, ? or * between >, such as 101>*>103",
    ),
    ("flow ~ \"10.0", 7, 0, "close the quotes with another \""),
    (
        "src == 10.0.0.1 and §",
        20,
        2,
        "\"§\" is not a test; write a field, an operator and a value",
    ),
];

#[test]
fn faults_have_a_position_and_say_what_to_write() {
    let most = "x".repeat(5_000);
    let deep = "(".repeat(40);
    let bounds = [
        (most.as_str(), 4096, 0, "a filter has up to 4096 bytes"),
        (deep.as_str(), 32, 0, "parentheses and `not` go up to 32 deep"),
    ];
    for (text, position, length, message) in FAULTS.iter().copied().chain(bounds) {
        let parsed = Filter::parse(text, View::Flows, &names);
        if message.is_empty() {
            assert!(parsed.is_ok(), "{text}: one word is searched");
            continue;
        }
        assert_eq!(
            parsed,
            Err(Fault {
                position,
                length,
                message: message.to_owned()
            }),
            "{text}"
        );
    }
    let many = vec!["port == 1"; 200].join(" and ");
    let refused = Filter::parse(&many, View::Flows, &no_names).unwrap_err();
    assert_eq!(refused.message, "a filter has up to 256 tests and values");
}

fn required(text: &str) -> Required {
    Filter::parse(text, View::Events, &names).unwrap().required()
}

#[test]
fn what_every_match_has_is_for_an_index() {
    let flow = "10.0.0.1:1>10.0.0.2:2/17";
    assert_eq!(
        required(&format!(
            "kind == drop and node == leaf-1 and metric == hop_latency and flow == \"{flow}\""
        )),
        Required {
            kind: Some("drop".into()),
            metric: Some("hop_latency".into()),
            node: Some(101),
            flow: flow.parse().ok(),
        }
    );
    for text in [
        "kind == drop or node == 1",
        "not node == 1",
        "node in (1, 2)",
        "kind != drop",
        "",
    ] {
        assert_eq!(required(text), Required::default(), "{text}");
    }
    assert_eq!(
        required("node == 7"),
        Required {
            node: Some(7),
            ..Required::default()
        }
    );
}

/// The condition of ClickHouse for a filter, and its parameters.
fn to_clickhouse(text: &str) -> (String, Vec<String>) {
    let mut values = Vec::new();
    let filter = Filter::parse(text, View::Events, &names).unwrap();
    let text = filter.to_clickhouse(&mut |kind, value| {
        values.push(format!("{kind} {value}"));
        format!("{{p{}}}", values.len())
    });
    (text, values)
}

#[test]
fn clickhouse_gets_values_as_parameters() {
    let (text, values) = to_clickhouse("src in 10.0.1.0/24 and not path ~ 101>*>?>103");
    assert_eq!(
        text,
        "(if(flow != '' AND NOT startsWith(flow, 'flow-id:'), (src BETWEEN {p1} AND {p2}), NULL) AND \
         (NOT if(empty(path), NULL, (match(concat('>', arrayStringConcat(path, '>'), '>'), {p3})))))"
    );
    assert_eq!(
        values,
        [
            "IPv6 ::ffff:10.0.1.0",
            "IPv6 ::ffff:10.0.1.255",
            "String >101>([0-9]+>)*[0-9]+>103>"
        ]
    );
    let (text, values) = to_clickhouse("rule ~ \"a' OR 1 = 1\"");
    assert_eq!(text, "if(rule = '', NULL, position(rule, {p1}) > 0)");
    assert_eq!(values, ["String a' OR 1 = 1"]);
}

/// Names of drop reasons, one of which two devices have.
struct Reasons;

impl Names for Reasons {
    fn node(&self, _name: &str) -> Option<u32> {
        None
    }

    fn reason_codes(&self, name: &str) -> Vec<u8> {
        codes_of(
            [
                (71, "queue_full"),
                (128, "link_down"),
                (200, "link_down"),
                (26, "7 up"),
            ],
            name,
        )
    }

    fn reason_names(&self) -> Vec<String> {
        ["link_down", "queue_full"].map(str::to_owned).to_vec()
    }
}

#[test]
fn a_drop_reason_is_a_code_or_a_name() {
    let matches = |text: &str, reason: u8| {
        let filter =
            Filter::parse(text, View::Events, &Reasons).unwrap_or_else(|fault| panic!("{text}: {fault}"));
        filter.matches(&Facts {
            reason: Some(reason),
            ..Facts::default()
        })
    };
    for (text, reason, expected) in [
        ("reason == link_down", 128, true),
        ("reason == link_down", 200, true),
        ("reason == link_down", 71, false),
        ("reason == \"Link down\"", 128, true),
        ("reason == link-down", 128, true),
        ("reason != link_down", 71, true),
        ("reason != link_down", 200, false),
        ("reason in (link_down, queue_full)", 71, true),
        ("reason in (link_down, 1)", 1, true),
        ("reason == \"7 up\"", 26, true),
        ("reason == 128", 128, true),
        ("reason == 100-150", 128, true),
        ("reason >= 128", 128, true),
    ] {
        assert_eq!(matches(text, reason), expected, "{text} {reason}");
    }
    let refused = |text: &str, names: &dyn Names| {
        let fault = Filter::parse(text, View::Events, names).unwrap_err();
        (fault.position, fault.length, fault.message)
    };
    assert_eq!(
        refused("reason == link_dwn", &Reasons),
        (
            10,
            8,
            "no drop reason has the name \"link_dwn\"; write a code from 0 to 255, or one of link_down, queue_full".to_owned()
        )
    );
    assert_eq!(
        refused("reason == 256", &no_names).2,
        "no drop reason has the name \"256\"; write a code from 0 to 255, or a name of `drop_reasons` of a profile"
    );
    assert_eq!(
        refused("reason > link_down", &Reasons).2,
        "the name of a drop reason is compared by == != in"
    );
}

fn completed(text: &str) -> Vec<String> {
    complete(
        text,
        View::Events,
        &["leaf-1", "spine 2"],
        &["link_down", "acl deny"],
    )
    .into_iter()
    .map(|completion| format!("{}{}", &text[..completion.from], completion.text))
    .collect()
}

#[test]
fn completions_are_what_may_follow() {
    let fields = Field::ALL
        .into_iter()
        .filter(|field| field.is_of(View::Events))
        .count();
    assert_eq!(completed("").len(), fields + 1);
    assert_eq!(completed("que"), ["queue", "queue_occupancy", "queue_congestion"]);
    assert_eq!(completed("src "), ["src == ", "src != ", "src in "]);
    assert_eq!(completed("src i"), ["src in "]);
    assert_eq!(completed("kind == dr"), ["kind == drop"]);
    assert_eq!(completed("kind in (drop, lo"), ["kind in (drop, loss"]);
    assert_eq!(completed("node == "), ["node == leaf-1", "node == \"spine 2\""]);
    assert_eq!(
        completed("reason == "),
        ["reason == link_down", "reason == \"acl deny\""]
    );
    assert_eq!(completed("path ~ 7>le"), ["path ~ 7>leaf-1"]);
    assert_eq!(completed("proto == t"), ["proto == tcp"]);
    assert_eq!(
        completed("kind == drop "),
        ["kind == drop and ", "kind == drop or "]
    );
    assert_eq!(completed("kind == drop a"), ["kind == drop and "]);
    assert_eq!(
        completed("kind == drop and not (int"),
        ["kind == drop and not (interface"]
    );
    assert_eq!(completed("reports"), Vec::<String>::new(), "a field of flows");
}

#[test]
fn any_bytes_are_refused_or_used() {
    filter::fuzz(b"src in 10.0.0.0/8 and (path ~ 1>*>2 or not kind in (drop, loss))");
    let mut state = 1_u64;
    let words = [
        "src",
        "in",
        "==",
        "(",
        ")",
        "and",
        "or",
        "not",
        "10.0.0.0/8",
        "\"",
        "path",
        "~",
        "1>*>",
        "§",
        "<",
        "5ms",
        ",",
    ];
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..8 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            text.push_str(words[(state >> 33) as usize % words.len()]);
            if state >> 60 > 2 {
                text.push(' ');
            }
        }
        filter::fuzz(text.as_bytes());
    }
}

/// `docs/reference/filters.md` is made of the fields.
#[test]
fn the_reference_page_is_up_to_date() {
    let mut page = HEAD.to_owned();
    for field in Field::ALL {
        let of = View::ALL.map(|view| {
            if field.is_of(view) {
                field.about(view)
            } else {
                "–"
            }
        });
        page.push_str(&format!("| `{}` | {} | {} |\n", field.name(), of[0], of[1]));
    }
    page.push_str(TAIL);
    testkit::compare_page("docs/reference/filters.md", &page);
}

const HEAD: &str = "# Filters of flows and events

<!-- Made from the source; do not edit. To accept a change: make docs -->

One language says which flows and events are shown: in the field *Filter* of the pages *Flows* and *Events*, as `filter=` of the [API](api.md) (`/flows`, `/events`, `/events/stream`), and as `hopwise events --filter`.

```text
src in 10.0.1.0/24 and queue_occupancy > 50
kind == drop and not (node == leaf-1 or reason in (1, 2))
path ~ 101>*>103 and flow_latency > 5ms
10.0.1.5:443
```

A test is a field, an operator and a value. `and`, `or`, `not` and parentheses combine tests: `not` binds most tightly, then `and`. What is only a word, an address, or a text in quotes is searched in the text of the flow.

| field | flows | events |
| --- | --- | --- |
";

const TAIL: &str = "
| values | operators | written as |
| --- | --- | --- |
| addresses | `==` `!=` `in` | `10.0.1.5`, `10.0.0.0/8`, `2001:db8::/32` |
| nodes | `==` `!=` `in` | an id, or a name of the configuration or the inventory; in quotes if it has blanks |
| drop reasons | `==` `!=` `in` | a name, such as `link_down`, in any case and with spaces, `_` or `-` between words; or the device's code, also in a range: `128-131`. Codes can be compared by `<` `<=` `>` `>=`, too |
| ports, numbers | `==` `!=` `<` `<=` `>` `>=` `in` | `443`, `8000-8999`, `10k`, `0x17` |
| times | the same | `800ns`, `5us`, `1.5ms`, `2s`; without a unit nanoseconds |
| shares | the same | `80%` |
| words, protocols | `==` `!=` `in` | `drop`, `hop_latency`, `tcp`, `17` |
| texts | `~` (contains) `==` `!=` `in` | `\"slow through a full queue\"` |
| paths | `~` | nodes in forwarding order, between `>`; `*` is any number of nodes, `?` is one; where in the path they are does not matter |

`in` takes one value or several: `port in (80, 443, 8000-8999)`.

A field that a flow or event lacks is *unknown*: a test of it is neither true nor false, not even under `not`, as in [rules](../how-to/thresholds-and-rules.md). So `not queue_occupancy > 50` has only events about the occupancy of queues.
Flows are compared as they are now, with the latest value that was reported; of several nodes, the greatest counts.

A filter has up to 4,096 bytes, 256 tests and values, and is up to 32 deep. `GET /api/v1/filter?text=…` says whether it is right, and what can complete it.

Events are searched from the newest on. Where few of many match, an answer of the API ends after 250,000 events, and goes on at `next`. Flows are searched by what all have – addresses, ports, latency, reports; where a filter also asks for nodes, paths or queues, up to 16,384 flows are looked up for a page, in the order of the list.
";
