//! The document of metrics, and the reference page that is made from it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::*;
use collect_role::{
    live::Hub,
    pipeline::{self, Pipeline},
    settings::Policy,
};
use runtime::control::Control;

#[test]
fn samples_are_escaped() {
    let mut text = Text::default();
    text.metric("x_total", "Things.");
    text.sample("x_total", &[("a", &"b\"c\\d\ne"), ("f", &1)], 2);
    text.sample("x_total", &[], 3);
    let expected = "# HELP hopwise_x_total Things.\n# TYPE hopwise_x_total counter\n\
        hopwise_x_total{a=\"b\\\"c\\\\d\\ne\",f=\"1\"} 2\nhopwise_x_total 3\n";
    assert_eq!(text.out, expected);
}

/// A program without roles.
fn empty<'a>(tls: &'a Endpoint, names: &'a view::NamesView) -> Sources<'a> {
    Sources {
        switch: None,
        aggregator: None,
        exports: None,
        reporter: None,
        translator: None,
        memory: None,
        devices: &[],
        names,
        dns: None,
        tls,
    }
}

fn names() -> view::NamesView {
    serde_json::from_value(serde_json::json!({"hosts": [], "nodes": [
        {"node": 11, "name": "leaf \"1\"", "interfaces": [{"interface": 2, "name": "Ethernet4"}]},
        {"node": 12, "name": null, "interfaces": []}]}))
    .unwrap()
}

#[test]
fn names_are_information_about_ids() {
    let mut text = Text::default();
    write_names(
        &mut text,
        &names(),
        Some(Counts {
            found: 3,
            without: 2,
            refused: 1,
            waiting: 4,
            cached: 5,
        }),
    );
    let expected = "# HELP hopwise_node_info Name of a node; 1.\n# TYPE hopwise_node_info gauge\n\
        hopwise_node_info{node=\"11\",name=\"leaf \\\"1\\\"\"} 1\n\
        # HELP hopwise_interface_info Name of an interface of a node; 1.\n# TYPE hopwise_interface_info gauge\n\
        hopwise_interface_info{node=\"11\",interface=\"2\",name=\"Ethernet4\"} 1\n\
        # HELP hopwise_dns_lookups_total Lookups of names of hosts by DNS, by result.\n\
        # TYPE hopwise_dns_lookups_total counter\nhopwise_dns_lookups_total{result=\"found\"} 3\n\
        hopwise_dns_lookups_total{result=\"none\"} 2\nhopwise_dns_lookups_total{result=\"queue_full\"} 1\n\
        # HELP hopwise_dns_waiting Addresses that wait for a lookup of their name.\n\
        # TYPE hopwise_dns_waiting gauge\nhopwise_dns_waiting 4\n";
    assert_eq!(text.out, expected);
}

#[test]
fn both_formats_are_valid_and_say_the_same() {
    let monitor = idle();
    let tls = Endpoint::default();
    let names = names();
    let parts = Sources {
        dns: Some(Counts::default()),
        ..empty(&tls, &names)
    };
    let plain = super::render(&monitor, parts, Format::Prometheus);
    let open = super::render(&monitor, parts, Format::OpenMetrics);
    let plain = check::check(&plain, Format::Prometheus);
    let open = check::check(&open, Format::OpenMetrics);
    let named = |(name, (kind, samples)): (String, (String, usize))| {
        let plain = name
            .strip_suffix("_total")
            .or(name.strip_suffix("_info"))
            .unwrap_or(&name);
        (plain.to_owned(), kind.replace("info", "gauge"), samples)
    };
    let same = |families: BTreeMap<String, (String, usize)>| {
        families.into_iter().map(named).collect::<BTreeSet<_>>()
    };
    assert_eq!(same(plain.clone()), same(open));
    assert_eq!(plain["process_open_fds"], ("gauge".to_owned(), 1));
}

#[test]
fn openmetrics_is_for_those_that_ask_for_it() {
    let prometheus =
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
    for accept in [
        "",
        "*/*",
        "text/plain",
        "application/openmetrics-text;q=0",
        "application/openmetrics-text; version=0.0.1",
    ] {
        assert_eq!(Format::accepted(accept), Format::Prometheus, "{accept}");
    }
}

#[test]
fn the_reference_page_is_up_to_date() {
    let tls = Endpoint::default();
    let names = view::NamesView::default();
    let made = reference(&super::render(&idle(), empty(&tls, &names), Format::Prometheus));
    testkit::compare_page("docs/reference/metrics.md", &made);
}

/// A monitor without inputs and workers.
fn idle() -> Monitor {
    let hub = Arc::new(Hub::new(1, 1, BTreeMap::new()));
    let config = pipeline::Config {
        batch: 1,
        queue: 1 << 16,
        store_queue: 1 << 16,
        policy: Policy::Shed,
        store: None,
    };
    let pipeline = Pipeline::new(config, Arc::clone(&hub), Control::new().0);
    Monitor::new(Vec::new(), Vec::new(), Vec::new(), pipeline.gauge(), hub)
}

/// The reference page: every metric with its kind and meaning, from the document itself.
fn reference(document: &str) -> String {
    let mut out = String::from(
        "# Metrics reference

<!-- Made from the source; do not edit. To accept a change: make docs -->

`GET /metrics`. Aggregates only: a flow is never a label. At most 1,024 reporters, nodes, queues and links, and 4,096 subsystems of nodes of an aggregator, are reported one by one, and at most 16,384 names.

| metric | kind | meaning |
| --- | --- | --- |
",
    );
    let mut help = "";
    for line in document.lines() {
        if let Some((_, text)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            help = text;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let _ = writeln!(out, "| `{name}` | {kind} | {help} |");
        }
    }
    out
}
