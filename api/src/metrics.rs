//! `/metrics`: the figures in Prometheus' text format or as OpenMetrics. Names and labels exist only here; a flow is never a label.

#[cfg(test)]
mod check;
mod dta;
mod exporting;
mod process;
mod recording;
mod reporting;
mod switching;
#[cfg(test)]
mod tests;

use std::fmt::{Display, Write};

use collector::{StreamView, Summary, stats::Table};
use store::ProblemKind;

use ::export_role::role::view::ExportsView;
use aggregate_role::view::AggregatorView;
use collect_role::{
    monitor::{Detail, Monitor, version_name},
    topology::merged,
};
use dta_role::{memory::view::MemoryView, reporter::view::ReporterView, translator::view::TranslatorView};
use manage_role::role::view::DeviceCounterView;
use net::dns::Counts;
use net::tls::{Endpoint, Failure};
use runtime::save;
use switch_role::role::{FilterView, PortView, SwitchView};

/// The format of the document.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Format {
    /// Prometheus' text format 0.0.4.
    #[default]
    Prometheus,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The one that a request accepts; Prometheus' own unless OpenMetrics is named.
    pub(crate) fn accepted(accept: &str) -> Self {
        if accept.split(',').any(is_open_metrics) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// The media type of the response.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Whether an element of `Accept` names OpenMetrics 1, and does not exclude it by `q=0`.
fn is_open_metrics(range: &str) -> bool {
    let mut parts = range.split(';').map(str::trim);
    let name = parts.next().unwrap_or("");
    let is_named = name.eq_ignore_ascii_case("application/openmetrics-text");
    is_named
        && parts.all(|part| match part.split_once('=') {
            Some(("q", weight)) => weight.parse() != Ok(0.0),
            Some(("version", version)) => version.starts_with("1."),
            _ => true,
        })
}

/// TLS connections to the API.
fn handshakes(text: &mut Text, tls: &Endpoint) {
    let about = "TLS handshakes of clients of the API that succeeded.";
    text.single("tls_handshakes_total", "counter", about, tls.completed());
    text.metric(
        "tls_handshakes_failed_total",
        "counter",
        "TLS handshakes of clients of the API that failed.",
    );
    for failure in Failure::ALL {
        text.sample(
            "tls_handshakes_failed_total",
            &[("reason", &failure.word())],
            tls.failed(failure),
        );
    }
}

/// A document under construction.
#[derive(Debug, Default)]
struct Text {
    out: String,
    format: Format,
}

impl Text {
    /// The head of a metric, once before its samples.
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        self.head(&format!("hopwise_{name}"), kind, help);
    }

    /// The same for a name that has no prefix.
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // In OpenMetrics the suffix belongs to the sample of a counter, not to the name of the metric.
        let family = match self.format {
            Format::OpenMetrics if kind == "counter" => name.strip_suffix("_total").unwrap_or(name),
            // So does that of information, a type that Prometheus' own format does not have.
            Format::OpenMetrics if kind == "info" => name.strip_suffix("_info").unwrap_or(name),
            _ => name,
        };
        let kind = if kind == "info" && self.format == Format::Prometheus {
            "gauge"
        } else {
            kind
        };
        let _ = writeln!(self.out, "# HELP {family} {help}\n# TYPE {family} {kind}");
    }

    /// One sample. Label values are escaped as the format demands.
    fn sample(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        let _ = write!(self.out, "hopwise_{name}");
        for (index, (label, text)) in labels.iter().enumerate() {
            let text = text
                .to_string()
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = write!(
                self.out,
                "{}{label}=\"{text}\"",
                if index == 0 { '{' } else { ',' }
            );
        }
        let _ = writeln!(self.out, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// A sample without labels, of a name that has no prefix.
    fn line(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.out, "{name} {value}");
    }

    /// A metric with one sample and no labels.
    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }

    /// A metric of a role, with one sample if this process has the role.
    fn role<V, N: Display>(
        &mut self,
        view: Option<&V>,
        name: &str,
        kind: &str,
        help: &str,
        value: impl Fn(&V) -> N,
    ) {
        self.metric(name, kind, help);
        if let Some(view) = view {
            self.sample(name, &[], value(view));
        }
    }
}

/// The sources of the document beside the monitor. A role that this program does not have is absent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    /// The view of the switch of this process.
    pub(crate) switch: Option<&'a SwitchView>,
    /// The view of the aggregator of this process.
    pub(crate) aggregator: Option<&'a AggregatorView>,
    /// The view of the exports and of the outlet.
    pub(crate) exports: Option<&'a ExportsView>,
    /// The view of the DTA reporter of programs.
    pub(crate) reporter: Option<&'a ReporterView>,
    /// The view of the DTA translator of this process.
    pub(crate) translator: Option<&'a TranslatorView>,
    /// The view of the collector memory of this process.
    pub(crate) memory: Option<&'a MemoryView>,
    /// Names and counters of the devices of the manager.
    pub(crate) devices: &'a [(String, Vec<DeviceCounterView>)],
    /// Names of nodes and interfaces.
    pub(crate) names: &'a view::NamesView,
    /// The counters of name resolution by DNS.
    pub(crate) dns: Option<Counts>,
    /// TLS of the API.
    pub(crate) tls: &'a Endpoint,
}

/// Writes the document of all metrics.
pub(crate) fn text(monitor: &Monitor, parts: Parts<'_>, format: Format) -> String {
    let detail = monitor.detail();
    let Parts {
        switch,
        aggregator,
        exports,
        reporter,
        translator,
        memory,
        devices,
        names,
        dns,
        tls,
    } = parts;
    let mut text = Text {
        format,
        ..Text::default()
    };
    text.metric("info", "gauge", "Version of hopwise.");
    text.sample("info", &[("version", &env!("CARGO_PKG_VERSION"))], 1);
    text.single(
        "uptime_seconds",
        "gauge",
        "Seconds since the start.",
        monitor.uptime().as_secs(),
    );
    let export = exports.map(|exports| exports.stage.clone());
    stages(
        &mut text,
        &[monitor.stages(detail.losses), Vec::from_iter(export)].concat(),
    );
    inputs(&mut text, monitor);
    collecting(&mut text, monitor);
    losses(&mut text, &detail.streams);
    tables(&mut text, &detail.tables);
    network(&mut text, &detail);
    named(&mut text, names, dns);
    store(&mut text, monitor);
    let streams = monitor.hub().stats();
    text.single(
        "stream_clients",
        "gauge",
        "Clients of the live stream.",
        streams.clients,
    );
    text.single(
        "stream_events_sent_total",
        "counter",
        "Events sent to clients of the live stream.",
        streams.sent,
    );
    text.single(
        "stream_events_shed_total",
        "counter",
        "Events dropped because a client of the live stream was too slow.",
        streams.shed,
    );
    handshakes(&mut text, tls);
    switching(&mut text, switch, devices);
    reporting::reporting(&mut text, switch.and_then(|switch| switch.dta.as_ref()));
    aggregating(&mut text, aggregator);
    exporting::exporting(&mut text, exports);
    recording::recording(&mut text, monitor.flight_recorder());
    reporting::host(&mut text, reporter);
    dta::translating(&mut text, translator);
    dta::keeping(&mut text, memory);
    process::process(&mut text);
    if format == Format::OpenMetrics {
        text.out.push_str("# EOF\n");
    }
    text.out
}

fn tables(text: &mut Text, tables: &[(&'static str, Table)]) {
    table(
        text,
        tables,
        "table_entries",
        "gauge",
        "Entries in a table.",
        |table| table.used,
    );
    table(
        text,
        tables,
        "table_capacity",
        "gauge",
        "Capacity of a table.",
        |table| table.capacity,
    );
    table(
        text,
        tables,
        "table_evicted_total",
        "counter",
        "Entries evicted from a full table.",
        |table| table.evicted,
    );
    let help = "New entries refused because a table was full.";
    table(text, tables, "table_refused_total", "counter", help, |table| {
        table.refused
    });
}

fn table(
    text: &mut Text,
    tables: &[(&'static str, Table)],
    name: &str,
    kind: &str,
    help: &str,
    value: fn(&Table) -> u64,
) {
    text.metric(name, kind, help);
    for (table, counts) in tables {
        text.sample(name, &[("table", table)], value(counts));
    }
}

fn stages(text: &mut Text, stages: &[view::Stage]) {
    text.metric(
        "stage_in_total",
        "counter",
        "Units that entered a stage of the loss budget.",
    );
    stages.iter().for_each(|stage| {
        text.sample(
            "stage_in_total",
            &[("stage", &stage.stage), ("unit", &stage.unit)],
            stage.into,
        )
    });
    text.metric(
        "stage_out_total",
        "counter",
        "Units that left a stage: in = out + drops + queued.",
    );
    stages.iter().for_each(|stage| {
        text.sample(
            "stage_out_total",
            &[("stage", &stage.stage), ("unit", &stage.unit)],
            stage.out,
        )
    });
    text.metric("stage_queued", "gauge", "Units in a stage now.");
    stages.iter().for_each(|stage| {
        text.sample(
            "stage_queued",
            &[("stage", &stage.stage), ("unit", &stage.unit)],
            stage.queued,
        )
    });
    text.metric(
        "drops_total",
        "counter",
        "Units lost, by stage of the loss budget and reason.",
    );
    for stage in stages {
        for (reason, count) in &stage.drops {
            text.sample(
                "drops_total",
                &[("stage", &stage.stage), ("reason", reason)],
                count,
            );
        }
    }
    let evidence = stages.iter().find_map(|stage| stage.evidence).unwrap_or_default();
    let help = "Datagrams missing in sequences, and not counted as lost, because the datagrams received do not support it.";
    text.single("unconfirmed_losses", "gauge", help, evidence.unconfirmed);
    let help = "Datagrams received in the streams in which any are missing: the evidence for losses.";
    text.single("loss_evidence_datagrams", "gauge", help, evidence.datagrams);
}

fn inputs(text: &mut Text, monitor: &Monitor) {
    let inputs = monitor.inputs();
    text.metric("input_datagrams_total", "counter", "Datagrams received.");
    inputs.iter().for_each(|input| {
        text.sample(
            "input_datagrams_total",
            &[("listen", &input.listen)],
            input.datagrams,
        )
    });
    text.metric(
        "input_handled_in_kernel_total",
        "counter",
        "Of these, datagrams without a significant change that the kernel program aggregated (mode = \"kernel\").",
    );
    inputs.iter().for_each(|input| {
        text.sample(
            "input_handled_in_kernel_total",
            &[("listen", &input.listen)],
            input.handled_in_kernel,
        )
    });
    text.metric("input_bytes_total", "counter", "Payload bytes received.");
    inputs
        .iter()
        .for_each(|input| text.sample("input_bytes_total", &[("listen", &input.listen)], input.bytes));
    text.metric(
        "input_truncated_total",
        "counter",
        "Datagrams truncated because they are longer than [collector] datagram.",
    );
    inputs.iter().for_each(|input| {
        text.sample(
            "input_truncated_total",
            &[("listen", &input.listen)],
            input.truncated,
        )
    });
    text.metric(
        "input_kernel_drops_total",
        "counter",
        "Datagrams that the kernel dropped because the receive buffer was full.",
    );
    inputs.iter().for_each(|input| {
        text.sample(
            "input_kernel_drops_total",
            &[("listen", &input.listen)],
            input.kernel_drops,
        )
    });
    receive_paths(text, &inputs);
}

/// The receive path of each input, and its losses.
fn receive_paths(text: &mut Text, inputs: &[view::InputView]) {
    text.metric(
        "input_up",
        "gauge",
        "1 while an input receives, 0 while it cannot be opened.",
    );
    inputs
        .iter()
        .for_each(|input| text.sample("input_up", &[("listen", &input.listen)], u8::from(input.up)));
    text.metric(
        "input_kind",
        "gauge",
        "1 for the receive path of an input, from xdp-zerocopy to udp.",
    );
    for input in inputs {
        text.sample(
            "input_kind",
            &[("listen", &input.listen), ("kind", &input.kind)],
            1,
        );
    }
    text.metric("input_reopened_total", "counter", "Times an input was reopened.");
    inputs.iter().for_each(|input| {
        text.sample(
            "input_reopened_total",
            &[("listen", &input.listen)],
            input.reopened,
        )
    });
    text.metric(
        "input_drops_total",
        "counter",
        "Datagrams sent to an input and not received, by reason.",
    );
    for input in inputs {
        for (reason, count) in &input.drops {
            text.sample(
                "input_drops_total",
                &[("listen", &input.listen), ("reason", reason)],
                count,
            );
        }
    }
    text.metric(
        "input_passed_total",
        "counter",
        "Telemetry frames that the XDP program passed to the network stack, by reason; a socket receives them.",
    );
    for input in inputs {
        for (reason, count) in &input.passed {
            text.sample(
                "input_passed_total",
                &[("listen", &input.listen), ("reason", reason)],
                count,
            );
        }
    }
    text.metric(
        "input_device_drops_total",
        "counter",
        "Frames of any destination that the interface dropped before the XDP program.",
    );
    for input in inputs.iter().filter(|input| input.interface.is_some()) {
        text.sample(
            "input_device_drops_total",
            &[("listen", &input.listen)],
            input.device_drops,
        );
    }
}

fn postcards(text: &mut Text, view: &view::PostcardsView) {
    let help = "Postcards: in = joined + pending + partial + unjoinable.";
    text.single("postcards_total", "counter", help, view.received);
    text.single(
        "postcards_joined_total",
        "counter",
        "Postcards that gave or confirmed a path.",
        view.joined,
    );
    text.single(
        "postcards_pending",
        "gauge",
        "Postcards that wait for others of the same packet.",
        view.pending,
    );
    text.metric(
        "postcards_partial_total",
        "counter",
        "Postcards that waited and were not joined, by reason.",
    );
    for (reason, count) in &view.partial {
        text.sample("postcards_partial_total", &[("reason", reason)], count);
    }
    text.metric(
        "postcards_unjoinable_total",
        "counter",
        "Postcards that could not be joined, by reason.",
    );
    for (reason, count) in &view.unjoinable {
        text.sample("postcards_unjoinable_total", &[("reason", reason)], count);
    }
    let help = "Postcards whose Flow ID matches several known flows.";
    text.single("postcards_ambiguous_total", "counter", help, view.ambiguous);
    text.single(
        "aggregates_total",
        "counter",
        "Valid aggregates received.",
        view.aggregates,
    );
    text.single(
        "aggregate_postcards_total",
        "counter",
        "Postcards in them.",
        view.unfolded,
    );
    text.single(
        "aggregate_summaries_total",
        "counter",
        "Summaries in them.",
        view.summaries,
    );
}

fn collecting(text: &mut Text, monitor: &Monitor) {
    text.single(
        "reports_total",
        "counter",
        "Valid reports.",
        monitor.total(|stats| stats.reports),
    );
    text.metric(
        "reports_refused_total",
        "counter",
        "Reports, or remainders of datagrams, refused, by reason.",
    );
    monitor
        .refused()
        .iter()
        .for_each(|(reason, count)| text.sample("reports_refused_total", &[("reason", reason)], count));
    let help = "Valid reports from which INT or IOAM of the packet was left out because it cannot be read, by reason.";
    text.metric("int_refused_total", "counter", help);
    for refusal in wire::Refusal::ALL {
        let count = monitor.total(|stats| stats.int_refused[refusal.index()]);
        if count > 0 {
            text.sample("int_refused_total", &[("reason", &refusal.name())], count);
        }
    }
    postcards(text, &monitor.postcards());
    let help = "Reports of dropped packets.";
    text.single(
        "drop_reports_total",
        "counter",
        help,
        monitor.total(|stats| stats.drop_reports),
    );
    let help = "Implausible hop latencies, not included in any other metric.";
    let implausible = monitor.total(|stats| stats.implausible_latencies);
    text.single("implausible_latencies_total", "counter", help, implausible);
    let help = "Paths truncated because the table of hops was full.";
    text.single(
        "truncated_paths_total",
        "counter",
        help,
        monitor.total(|stats| stats.truncated_paths),
    );
    let help = "Flows whose path is truncated now.";
    text.single(
        "truncated_flows",
        "gauge",
        help,
        monitor.total(|stats| stats.truncated_flows),
    );
    text.metric("events_total", "counter", "Events emitted, by kind.");
    for (index, kind) in collector::Kind::ALL.iter().enumerate() {
        text.sample(
            "events_total",
            &[("kind", &kind.name())],
            monitor.total(|stats| stats.events[index]),
        );
    }
}

/// Losses per reporting node. The number of series is bounded, in case of forged node ids.
fn losses(text: &mut Text, streams: &[StreamView]) {
    let help = "Datagrams missing in a reporter's sequence beyond those lost: the datagrams received do not support it.";
    stream(
        text,
        streams,
        "source_unconfirmed_losses",
        "gauge",
        help,
        |stream| stream.unconfirmed,
    );
    stream(
        text,
        streams,
        "source_lost_total",
        "counter",
        "Datagrams missing in a reporter's sequence, with those that were recovered later.",
        |stream| stream.lost + stream.recovered,
    );
    stream(
        text,
        streams,
        "source_recovered_total",
        "counter",
        "Datagrams that arrived after they were counted as lost.",
        |stream| stream.recovered,
    );
    stream(
        text,
        streams,
        "source_reordered_total",
        "counter",
        "Datagrams that arrived reordered.",
        |stream| stream.reordered,
    );
    stream(
        text,
        streams,
        "source_duplicated_total",
        "counter",
        "Datagrams that arrived twice.",
        |stream| stream.duplicated,
    );
    stream(
        text,
        streams,
        "source_restarts_total",
        "counter",
        "Restarts of a reporter's sequence numbers.",
        |stream| stream.restarts,
    );
    let uncountable = streams.iter().filter(|stream| !stream.countable).count();
    text.single(
        "sources_uncountable",
        "gauge",
        "Reporters whose sequence number is constant, or that of several nodes: their losses are unknown.",
        uncountable,
    );
}

fn stream(
    text: &mut Text,
    streams: &[StreamView],
    name: &str,
    kind: &str,
    help: &str,
    count: fn(&StreamView) -> u64,
) {
    text.metric(name, kind, help);
    for stream in streams.iter().filter(|stream| stream.countable).take(MAX_SERIES) {
        let node = stream.id.node.map_or_else(String::new, |node| node.to_string());
        let version = version_name(stream.id.version);
        let source = std::net::Ipv6Addr::from(stream.id.source).to_canonical();
        let labels: [(&str, &dyn Display); 5] = [
            ("node", &node),
            ("hw_id", &stream.id.hw_id),
            ("source", &source),
            ("version", &version),
            ("listener", &stream.id.listener),
        ];
        text.sample(name, &labels, count(stream));
    }
}

/// Latest values of nodes: gauges per node, queue and link.
fn network(text: &mut Text, detail: &Detail) {
    let entries = &detail.entries;
    let latencies = merged(entries.iter().map(|entries| &entries.nodes));
    for (name, help, value) in [
        (
            "hop_latency_median_seconds",
            "Time inside a node, median over the last second that had values.",
            (|last| last.p50) as fn(&Summary) -> Option<u64>,
        ),
        (
            "hop_latency_p99_seconds",
            "Time inside a node, 99th percentile over the last second that had values.",
            |last| last.p99,
        ),
    ] {
        text.metric(name, "gauge", help);
        for latency in latencies.values().take(MAX_SERIES) {
            if let Some(value) = value(&latency.last) {
                text.sample(name, &[("node", &latency.node)], value as f64 / 1e9);
            }
        }
    }
    text.metric(
        "queue_occupancy",
        "gauge",
        "Latest occupancy of a queue, device units.",
    );
    for queue in merged(entries.iter().map(|entries| &entries.queues))
        .values()
        .take(MAX_SERIES)
    {
        // The entry for all queues of the node has no number.
        match u8::try_from(queue.part) {
            Ok(number) => text.sample(
                "queue_occupancy",
                &[("node", &queue.node), ("queue", &number)],
                queue.latest,
            ),
            Err(_) => text.sample(
                "queue_occupancy",
                &[("node", &queue.node), ("queue", &"all")],
                queue.latest,
            ),
        }
    }
    text.metric(
        "link_utilization_ratio",
        "gauge",
        "Latest utilization of an egress link, as a fraction of 1.",
    );
    for link in merged(entries.iter().map(|entries| &entries.links))
        .values()
        .take(MAX_SERIES)
    {
        let value = view::fraction(link.latest);
        text.sample(
            "link_utilization_ratio",
            &[("node", &link.node), ("interface", &link.part)],
            value,
        );
    }
}

/// Names of nodes and interfaces, to be joined with the metrics that have their ids.
fn named(text: &mut Text, names: &view::NamesView, dns: Option<Counts>) {
    text.metric("node_info", "info", "Name of a node; 1.");
    for node in names.nodes.iter().take(MAX_NAMES) {
        if let Some(name) = &node.name {
            text.sample("node_info", &[("node", &node.node), ("name", name)], 1);
        }
    }
    text.metric("interface_info", "info", "Name of an interface of a node; 1.");
    let interfaces = names
        .nodes
        .iter()
        .flat_map(|node| node.interfaces.iter().map(|one| (node.node, one)));
    for (node, one) in interfaces.take(MAX_NAMES) {
        let labels: [(&str, &dyn Display); 3] = [
            ("node", &node),
            ("interface", &one.interface),
            ("name", &one.name),
        ];
        text.sample("interface_info", &labels, 1);
    }
    text.metric(
        "dns_lookups_total",
        "counter",
        "Lookups of names of hosts by DNS, by result.",
    );
    if let Some(Counts {
        found,
        without,
        refused,
        ..
    }) = dns
    {
        for (result, count) in [("found", found), ("none", without), ("queue_full", refused)] {
            text.sample("dns_lookups_total", &[("result", &result)], count);
        }
    }
    text.metric(
        "dns_waiting",
        "gauge",
        "Addresses that wait for a lookup of their name.",
    );
    if let Some(dns) = dns {
        text.sample("dns_waiting", &[], dns.waiting);
    }
}

fn store(text: &mut Text, monitor: &Monitor) {
    let stats = monitor.pipeline().store();
    let stats = stats.as_ref();
    text.role(
        stats,
        "store_up",
        "gauge",
        "1 while the store works, 0 while it fails or its directory cannot be used.",
        |stats| f64::from(stats.state == store::State::Ok),
    );
    text.role(
        stats,
        "store_committed_total",
        "counter",
        "Records on disk.",
        |stats| stats.committed as f64,
    );
    text.role(stats, "store_bytes", "gauge", "Size of all files.", |stats| {
        stats.bytes as f64
    });
    text.role(stats, "store_files", "gauge", "Files.", |stats| {
        stats.files as f64
    });
    let help = "Files written without indexes on events at a high rate, and indexed when they were complete.";
    text.role(stats, "store_indexed_later_total", "counter", help, |stats| {
        stats.indexed_later as f64
    });
    let help = "Failed attempts to index such a file.";
    text.role(stats, "store_index_failures_total", "counter", help, |stats| {
        stats.index_failures as f64
    });
    let help = "Files removed or replaced by anything but retention while hopwise ran.";
    text.role(stats, "store_files_moved_total", "counter", help, |stats| {
        stats.moved_files as f64
    });
    let help = "Records of hopwise_store_committed_total that were in files that were removed, replaced or set aside.";
    text.role(stats, "store_removed_records_total", "counter", help, |stats| {
        stats.removed as f64
    });
    let help = "Damaged files that were set aside since the start.";
    text.role(stats, "store_files_set_aside_total", "counter", help, |stats| {
        stats.set_aside as f64
    });
    let help = "Damaged files pending for `hopwise store check`.";
    text.role(stats, "store_damaged_files", "gauge", help, |stats| {
        stats.problems.count(ProblemKind::Damaged) as f64
    });
    let help = "Files of earlier periods that cannot be opened.";
    text.role(stats, "store_unreadable_files", "gauge", help, |stats| {
        stats.problems.count(ProblemKind::Unreadable) as f64
    });
    text.role(
        stats,
        "store_last_commit_seconds",
        "gauge",
        "Time of the last commit, Unix time.",
        |stats| stats.last_commit.map_or(f64::NAN, |at| at as f64 / 1e9),
    );
    let help = "State files, such as cursors, that something else removed, and that were written again.";
    text.single("files_restored_total", "counter", help, save::restored());
    let help = "State files that something else replaced, and that are not written until a restart.";
    text.single("files_replaced", "gauge", help, save::replaced().len());
    let queued = monitor.pipeline().store_queue().bytes;
    text.single(
        "store_queue_bytes",
        "gauge",
        "Bytes of records queued for the disk.",
        queued,
    );
}

/// Metrics of the switch of this process.
fn switching(text: &mut Text, switch: Option<&SwitchView>, devices: &[(String, Vec<DeviceCounterView>)]) {
    let ports = switch.map_or(&[][..], |switch| &switch.ports);
    port(
        text,
        ports,
        "switch_received_total",
        "counter",
        "Frames received by a port.",
        |port| port.received,
    );
    port(
        text,
        ports,
        "switch_received_bytes_total",
        "counter",
        "Their bytes.",
        |port| port.received_bytes,
    );
    port(
        text,
        ports,
        "switch_sent_total",
        "counter",
        "Frames sent by a port.",
        |port| port.sent,
    );
    port(
        text,
        ports,
        "switch_sent_bytes_total",
        "counter",
        "Their bytes.",
        |port| port.sent_bytes,
    );
    let help = "Frames dropped because a port's RX ring was full; not counted as received.";
    port(text, ports, "switch_ring_full_total", "counter", help, |port| {
        port.ring_full
    });
    port(
        text,
        ports,
        "switch_queue_bytes",
        "gauge",
        "Bytes in a port's egress queue.",
        |port| port.queue.bytes.into(),
    );
    text.metric(
        "switch_drops_total",
        "counter",
        "Frames dropped, by responsible port and reason.",
    );
    for port in ports {
        for (reason, count) in &port.drops {
            text.sample(
                "switch_drops_total",
                &[("port", &port.number), ("reason", reason)],
                count,
            );
        }
    }
    let help =
        "Frames originated by the switch: ARP, neighbor discovery, ICMP errors, messages to DTA reporters.";
    text.role(switch, "switch_originated_total", "counter", help, |switch| {
        switch.totals.originated
    });
    let help = "Frames consumed by the switch: received + originated = sent + consumed + queued + drops.";
    text.role(switch, "switch_consumed_total", "counter", help, |switch| {
        switch.totals.consumed
    });
    let help = "Frames in queues, on links, or waiting for neighbor resolution.";
    text.role(switch, "switch_queued", "gauge", help, |switch| {
        switch.totals.queued
    });
    text.role(
        switch,
        "switch_reports_sent_total",
        "counter",
        "Datagrams with reports sent.",
        |switch| switch.reports.sent,
    );
    let help = "Datagrams with reports that could not be sent.";
    text.role(switch, "switch_reports_unsent_total", "counter", help, |switch| {
        switch.reports.unsent
    });
    switching::int(text, switch);
    switching::devices(text, devices);
}

fn port(
    text: &mut Text,
    ports: &[PortView],
    name: &str,
    kind: &str,
    help: &str,
    value: fn(&PortView) -> u64,
) {
    text.metric(name, kind, help);
    for port in ports {
        text.sample(name, &[("port", &port.number)], value(port));
    }
}

/// DTA reports that the switch intercepts, and the messages to their reporters.
fn intercepting(text: &mut Text, switch: Option<&SwitchView>) {
    let help = "DTA reports intercepted for the translator of this process; part of the frames consumed.";
    text.role(switch, "switch_intercepted_total", "counter", help, |switch| {
        switch.totals.intercepted
    });
    let help = "DTA reports with VLAN tags, forwarded instead of intercepted.";
    text.role(
        switch,
        "switch_intercept_tagged_total",
        "counter",
        help,
        |switch| switch.totals.intercept_tagged,
    );
    let help =
        "Messages to DTA reporters sent for the translator of this process; part of the frames originated.";
    text.role(switch, "switch_replies_total", "counter", help, |switch| {
        switch.totals.replies
    });
    let help = "Messages to DTA reporters without a route, or longer than the MTU.";
    text.role(
        switch,
        "switch_replies_refused_total",
        "counter",
        help,
        |switch| switch.totals.replies_refused,
    );
}

/// Decisions of each filter of the switch.
fn filtering(text: &mut Text, filters: &[FilterView]) {
    let help = "Packets by filter (index from 0) and decision; all but `suppressed` were reported.";
    text.metric("switch_filter_total", "counter", help);
    for (index, filter) in filters.iter().enumerate() {
        let reported = &filter.reported;
        for (decision, count) in [
            ("event", reported.event),
            ("first", reported.first),
            ("ended", reported.ended),
            ("keep_alive", reported.keep_alive),
            ("missing_value", reported.missing_value),
            ("suppressed", filter.suppressed),
        ] {
            text.sample(
                "switch_filter_total",
                &[("filter", &index), ("decision", &decision)],
                count,
            );
        }
    }
    let help = "Register collisions of a filter: another flow or node took the register over.";
    text.metric("switch_filter_collisions_total", "counter", help);
    for (index, filter) in filters.iter().enumerate() {
        text.sample(
            "switch_filter_collisions_total",
            &[("filter", &index)],
            filter.collisions,
        );
    }
}

/// Metrics of the aggregator of this process.
fn aggregating(text: &mut Text, aggregator: Option<&AggregatorView>) {
    text.role(
        aggregator,
        "aggregator_datagrams_total",
        "counter",
        "Datagrams received by the aggregator.",
        |s| s.datagrams,
    );
    let help = "Datagrams that the kernel dropped because the aggregator's receive buffer was full.";
    text.role(
        aggregator,
        "aggregator_kernel_drops_total",
        "counter",
        help,
        |s| s.kernel_drops,
    );
    let help = "Postcards accepted: sent + pending.";
    text.role(aggregator, "aggregator_postcards_total", "counter", help, |s| {
        s.postcards
    });
    text.role(
        aggregator,
        "aggregator_pending",
        "gauge",
        "Postcards pending in registers.",
        |s| s.pending,
    );
    text.role(
        aggregator,
        "aggregator_occupied",
        "gauge",
        "Registers with pending postcards.",
        |s| s.occupied,
    );
    text.metric(
        "aggregator_refused_total",
        "counter",
        "Datagrams and reports refused, by reason.",
    );
    for (reason, count) in aggregator
        .iter()
        .flat_map(|view| view.refused.iter().chain(&view.unreadable))
    {
        text.sample("aggregator_refused_total", &[("reason", reason)], count);
    }
    text.metric(
        "aggregator_sent_postcards_total",
        "counter",
        "Postcards sent, by cause of the flush.",
    );
    for (cause, sent) in aggregator.iter().flat_map(|view| &view.sent) {
        text.sample(
            "aggregator_sent_postcards_total",
            &[("cause", cause)],
            sent.postcards,
        );
    }
    let help = "Aggregates sent, by cause of the flush.";
    text.metric("aggregator_aggregates_total", "counter", help);
    for (cause, sent) in aggregator.iter().flat_map(|view| &view.sent) {
        text.sample("aggregator_aggregates_total", &[("cause", cause)], sent.datagrams);
    }
    let to = aggregator.map_or(&[][..], |view| &view.forward);
    text.metric(
        "aggregator_sent_datagrams_total",
        "counter",
        "Datagrams passed to the kernel.",
    );
    for f in to {
        text.sample("aggregator_sent_datagrams_total", &[("to", &f.to)], f.datagrams);
    }
    text.metric(
        "aggregator_sent_bytes_total",
        "counter",
        "Payload bytes of these datagrams.",
    );
    for f in to {
        text.sample("aggregator_sent_bytes_total", &[("to", &f.to)], f.bytes);
    }
    text.metric(
        "aggregator_unsent_total",
        "counter",
        "Datagrams that the kernel refused, by reason.",
    );
    for f in to {
        text.sample(
            "aggregator_unsent_total",
            &[("to", &f.to), ("reason", &"no_buffers")],
            f.no_buffers,
        );
        text.sample(
            "aggregator_unsent_total",
            &[("to", &f.to), ("reason", &"failed")],
            f.failed,
        );
    }
    let help = "Postcards lost (missing sequence numbers), by node.";
    text.metric("aggregator_lost_total", "counter", help);
    for node in aggregator.iter().flat_map(|view| &view.nodes) {
        text.sample("aggregator_lost_total", &[("node", &node.node)], node.lost);
    }
}

/// Maximum number of reporters, nodes, queues and links with samples of their own.
const MAX_SERIES: usize = 1_024;
/// Maximum number of nodes, and of interfaces, with a name.
const MAX_NAMES: usize = 16_384;
