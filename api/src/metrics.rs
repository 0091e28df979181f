//! `/metrics`: all metrics as a document in Prometheus' text format 0.0.4 or OpenMetrics 1.0.0. Metric names and labels are
//! defined only here; a flow is never a label, so the cardinality stays bounded.

/// Maximum number of reporters, nodes, queues and links that have samples, except for those of an aggregator.
const MAX_SERIES: usize = 1_024;
/// Maximum number of nodes, and of interfaces, that have a name sample.
const MAX_NAMES: usize = 16_384;

/// Writes metrics, each given as `name => value, help;`: HELP and TYPE lines, then a sample for each item of the loops. Loops
/// (outer first) and labels are optional, and apply to every metric of the call: `metrics!(text [for x in y] ["label" = x.z]
/// { … })`.
macro_rules! metrics {
    ($text:ident { $($metrics:tt)+ }) => { metrics!($text [] [] { $($metrics)+ }) };
    ($text:ident $loops:tt $labels:tt { $($name:expr => $value:expr, $help:expr;)+ }) => {$(
        $text.metric(&$name, $help);
        metrics!(@each $loops $text.sample(&$name, metrics!(@labels $labels), $value));
    )+};
    (@each [] $sample:expr) => { $sample };
    (@each [for $item:pat in $items:expr $(; $($inner:tt)+)?] $sample:expr) => {
        for $item in IntoIterator::into_iter($items) {
            metrics!(@each [$($($inner)+)?] $sample);
        }
    };
    (@labels [$($label:literal = $word:expr),*]) => { &[$(($label, &$word as &dyn std::fmt::Display)),*] };
    (@labels ($labels:expr)) => { &$labels };
}

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

use collector::StreamView;
use store::ProblemKind;

use ::export_role::role::view::ExportsView;
use aggregate_role::view::AggregatorView;
use collect_role::{
    monitor::{Detail, Monitor, version_name},
    topology::merged,
};
use dta_role::{memory::view::MemoryView, reporter::view::ReporterView, translator::view::TranslatorView};
use manager::driver::Counter;
use net::dns::Counts;
use net::tls::{Endpoint, Failure};
use runtime::save;
use switch_role::role::SwitchView;

/// Format of the document.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Format {
    /// Prometheus text format 0.0.4.
    #[default]
    Prometheus,
    /// OpenMetrics 1.0.0 text format.
    OpenMetrics,
}

impl Format {
    /// Returns the format for an `Accept` header: OpenMetrics if named, otherwise Prometheus.
    pub(crate) fn accepted(accept: &str) -> Self {
        if accept.split(',').any(is_open_metrics) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Returns the media type of the response.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Returns whether an element of `Accept` names OpenMetrics 1 without excluding it by `q=0`.
fn is_open_metrics(range: &str) -> bool {
    let mut sources = range.split(';').map(str::trim);
    let name = sources.next().unwrap_or("");
    let names_open_metrics = name.eq_ignore_ascii_case("application/openmetrics-text");
    names_open_metrics
        && sources.all(|part| match part.split_once('=') {
            Some(("q", weight)) => weight.parse() != Ok(0.0),
            Some(("version", version)) => version.starts_with("1."),
            _ => true,
        })
}

/// Metrics document under construction.
#[derive(Debug, Default)]
struct Text {
    out: String,
    format: Format,
}

impl Text {
    /// Writes HELP and TYPE of a metric, once before its samples. The suffix of the name determines the type.
    fn metric(&mut self, name: &str, help: &str) {
        // In OpenMetrics the suffix belongs to the sample, not to the family name. The Prometheus format has no type `info`.
        let open_metrics = self.format == Format::OpenMetrics;
        let (family, kind) = if let Some(family) = name.strip_suffix("_total") {
            (if open_metrics { family } else { name }, "counter")
        } else if let Some(family) = name.strip_suffix("_info").filter(|_| open_metrics) {
            (family, "info")
        } else {
            (name, "gauge")
        };
        let prefix = prefix(name);
        let _ = writeln!(
            self.out,
            "# HELP {prefix}{family} {help}\n# TYPE {prefix}{family} {kind}"
        );
    }

    /// Writes a sample, with label values escaped.
    fn sample(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        let _ = write!(self.out, "{}{name}", prefix(name));
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
}

/// Returns the prefix of a metric name. Process metrics keep the names that all Prometheus client libraries use.
fn prefix(name: &str) -> &'static str {
    if name.starts_with("process_") {
        ""
    } else {
        "hopwise_"
    }
}

/// Sources of the document besides the monitor; `None` for roles that do not run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources<'a> {
    /// State of the switch role.
    pub(crate) switch: Option<&'a SwitchView>,
    /// State of the aggregator role.
    pub(crate) aggregator: Option<&'a AggregatorView>,
    /// State of the exports and the outlet.
    pub(crate) exports: Option<&'a ExportsView>,
    /// State of the DTA reporter for programs.
    pub(crate) reporter: Option<&'a ReporterView>,
    /// State of the DTA translator.
    pub(crate) translator: Option<&'a TranslatorView>,
    /// State of the collector memory.
    pub(crate) memory: Option<&'a MemoryView>,
    /// Name and counters of each device of the manager.
    pub(crate) devices: &'a [(String, Vec<Counter>)],
    /// Names of nodes and interfaces.
    pub(crate) names: &'a view::NamesView,
    /// Counters of reverse DNS lookups.
    pub(crate) dns: Option<Counts>,
    /// TLS endpoint of the API, for its handshake counters.
    pub(crate) tls: &'a Endpoint,
}

/// Writes the document with all metrics.
pub(crate) fn render(monitor: &Monitor, sources: Sources<'_>, format: Format) -> String {
    let detail = monitor.detail();
    let Sources {
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
    } = sources;
    let mut document = Text {
        format,
        ..Text::default()
    };
    let text = &mut document;
    metrics!(text [] ["version" = env!("CARGO_PKG_VERSION")] { "info" => 1, "Version of hopwise."; });
    metrics!(text { "uptime_seconds" => monitor.uptime().as_secs(), "Seconds since the start."; });
    let export = exports.map(|exports| exports.stage.clone());
    stages(
        text,
        &[monitor.stages(detail.losses), Vec::from_iter(export)].concat(),
    );
    inputs(text, &monitor.inputs());
    write_collector(text, monitor);
    losses(text, &detail.streams);
    metrics!(text [for (table, counts) in &detail.tables] ["table" = table] {
        "table_entries" => counts.used, "Entries in a table.";
        "table_capacity" => counts.capacity, "Capacity of a table.";
        "table_evicted_total" => counts.evicted, "Entries evicted from a full table.";
        "table_refused_total" => counts.refused, "New entries refused because a table was full.";
    });
    network(text, &detail);
    write_names(text, names, dns);
    store(text, monitor);
    let streams = monitor.hub().stats();
    metrics!(text {
        "stream_clients" => streams.clients, "Clients of the live stream.";
        "stream_events_sent_total" => streams.sent, "Events sent to clients of the live stream.";
        "stream_events_shed_total" => streams.shed, "Events dropped because a client of the live stream was too slow.";
        "tls_handshakes_total" => tls.completed(), "TLS handshakes of clients of the API that succeeded.";
    });
    metrics!(text [for failure in Failure::ALL] ["reason" = failure.name()] {
        "tls_handshakes_failed_total" => tls.failed(failure), "TLS handshakes of clients of the API that failed.";
    });
    switching::write_switch(text, switch);
    switching::write_devices(text, devices);
    reporting::write_switch_dta(text, switch.and_then(|switch| switch.dta.as_ref()));
    write_aggregator(text, aggregator);
    exporting::write_exports(text, exports);
    recording::write_flight_recorder(text, monitor.flight_recorder());
    reporting::write_reporter(text, reporter);
    dta::write_translator(text, translator);
    dta::write_memory(text, memory);
    process::write_process(text);
    if format == Format::OpenMetrics {
        document.out.push_str("# EOF\n");
    }
    document.out
}

fn stages(text: &mut Text, stages: &[view::Stage]) {
    metrics!(text [for stage in stages] ["stage" = stage.stage, "unit" = stage.unit] {
        "stage_in_total" => stage.into, "Units that entered a stage of the loss budget.";
        "stage_out_total" => stage.out, "Units that left a stage: in = out + drops + queued.";
        "stage_queued" => stage.queued, "Units in a stage now.";
    });
    metrics!(text [for stage in stages; for (reason, count) in &stage.drops] ["stage" = stage.stage, "reason" = reason] {
        "drops_total" => count, "Units lost, by stage of the loss budget and reason.";
    });
    let evidence = stages.iter().find_map(|stage| stage.evidence).unwrap_or_default();
    metrics!(text {
        "unconfirmed_losses" => evidence.unconfirmed,
            "Datagrams missing in sequences, and not counted as lost, because the datagrams received do not support it.";
        "loss_evidence_datagrams" => evidence.datagrams,
            "Datagrams received in the streams in which any are missing: the evidence for losses.";
    });
}

fn inputs(text: &mut Text, inputs: &[view::InputView]) {
    metrics!(text [for input in inputs] ["listen" = input.listen] {
        "input_datagrams_total" => input.datagrams, "Datagrams received.";
        "input_handled_in_kernel_total" => input.handled_in_kernel,
            "Of these, datagrams without a significant change that the kernel program aggregated (mode = \"kernel\").";
        "input_bytes_total" => input.bytes, "Payload bytes received.";
        "input_truncated_total" => input.truncated,
            "Datagrams truncated because they are longer than [collector] datagram.";
        "input_kernel_drops_total" => input.kernel_drops,
            "Datagrams that the kernel dropped because the receive buffer was full.";
        "input_up" => u8::from(input.up), "1 while an input receives, 0 while it cannot be opened.";
    });
    metrics!(text [for input in inputs] ["listen" = input.listen, "kind" = input.kind] {
        "input_kind" => 1, "1 for the receive path of an input, from xdp-zerocopy to udp.";
    });
    metrics!(text [for input in inputs] ["listen" = input.listen] {
        "input_reopened_total" => input.reopened, "Times an input was reopened.";
    });
    metrics!(text [for input in inputs; for (reason, count) in &input.drops] ["listen" = input.listen, "reason" = reason] {
        "input_drops_total" => count, "Datagrams sent to an input and not received, by reason.";
    });
    metrics!(text [for input in inputs; for (reason, count) in &input.passed] ["listen" = input.listen, "reason" = reason] {
        "input_passed_total" => count,
            "Telemetry frames that the XDP program passed to the network stack, by reason; a socket receives them.";
    });
    metrics!(text [for input in inputs.iter().filter(|input| input.interface.is_some())] ["listen" = input.listen] {
        "input_device_drops_total" => input.device_drops,
            "Frames of any destination that the interface dropped before the XDP program.";
    });
}

fn postcards(text: &mut Text, view: &view::PostcardsView) {
    metrics!(text {
        "postcards_total" => view.received, "Postcards: in = joined + pending + partial + unjoinable.";
        "postcards_joined_total" => view.joined, "Postcards that gave or confirmed a path.";
        "postcards_pending" => view.pending, "Postcards that wait for others of the same packet.";
    });
    metrics!(text [for (reason, count) in &view.partial] ["reason" = reason] {
        "postcards_partial_total" => count, "Postcards that waited and were not joined, by reason.";
    });
    metrics!(text [for (reason, count) in &view.unjoinable] ["reason" = reason] {
        "postcards_unjoinable_total" => count, "Postcards that could not be joined, by reason.";
    });
    metrics!(text {
        "postcards_ambiguous_total" => view.ambiguous, "Postcards whose Flow ID matches several known flows.";
        "aggregates_total" => view.aggregates, "Valid aggregates received.";
        "aggregate_postcards_total" => view.unfolded, "Postcards in them.";
        "aggregate_summaries_total" => view.summaries, "Summaries in them.";
    });
}

/// Returns the refusals that were counted, by name.
fn refusals(
    monitor: &Monitor,
    counts: fn(&collector::Stats) -> &wire::refusal::RefusalCounts,
) -> impl Iterator<Item = (&'static str, u64)> {
    wire::Refusal::ALL
        .iter()
        .map(move |refusal| {
            let count = monitor.total(|stats| counts(stats)[refusal.index()]);
            (refusal.name(), count)
        })
        .filter(|(_, count)| *count > 0)
}

fn write_collector(text: &mut Text, monitor: &Monitor) {
    metrics!(text { "reports_total" => monitor.total(|stats| stats.reports), "Valid reports."; });
    metrics!(text [for (reason, count) in monitor.refused()] ["reason" = reason] {
        "reports_refused_total" => count, "Reports, or remainders of datagrams, refused, by reason.";
    });
    let refused = refusals(monitor, |stats| &stats.int_refused);
    metrics!(text [for (reason, count) in refused] ["reason" = reason] {
        "int_refused_total" => count,
            "Valid reports from which INT or IOAM of the packet was left out because it cannot be read, by reason.";
    });
    let refused = refusals(monitor, |stats| &stats.tunnel_refused);
    metrics!(text [for (reason, count) in refused] ["reason" = reason] {
        "tunnel_refused_total" => count,
            "Valid reports about a tunnel whose contents cannot be read, by reason.";
    });
    postcards(text, &monitor.postcards());
    metrics!(text {
        "drop_reports_total" => monitor.total(|stats| stats.drop_reports), "Reports of dropped packets.";
        "implausible_latencies_total" => monitor.total(|stats| stats.implausible_latencies),
            "Implausible hop latencies, not included in any other metric.";
        "truncated_paths_total" => monitor.total(|stats| stats.truncated_paths),
            "Paths truncated because the table of hops was full.";
        "truncated_flows" => monitor.total(|stats| stats.truncated_flows), "Flows whose path is truncated now.";
    });
    metrics!(text [for (index, kind) in collector::Kind::ALL.iter().enumerate()] ["kind" = kind.name()] {
        "events_total" => monitor.total(|stats| stats.events[index]), "Events emitted, by kind.";
    });
}

/// Writes losses per reporting node. The number of series is bounded, because node ids can be forged.
fn losses(text: &mut Text, streams: &[StreamView]) {
    metrics!(text [for stream in streams.iter().filter(|stream| stream.countable).take(MAX_SERIES)] [
        "node" = stream.id.node.map_or_else(String::new, |node| node.to_string()),
        "hw_id" = stream.id.hw_id,
        "source" = std::net::Ipv6Addr::from(stream.id.source).to_canonical(),
        "version" = version_name(stream.id.version),
        "listener" = stream.id.listener
    ] {
        "source_unconfirmed_losses" => stream.unconfirmed,
            "Datagrams missing in a reporter's sequence beyond those lost: the datagrams received do not support it.";
        "source_lost_total" => stream.lost + stream.recovered,
            "Datagrams missing in a reporter's sequence, with those that were recovered later.";
        "source_recovered_total" => stream.recovered, "Datagrams that arrived after they were counted as lost.";
        "source_reordered_total" => stream.reordered, "Datagrams that arrived reordered.";
        "source_duplicated_total" => stream.duplicated, "Datagrams that arrived twice.";
        "source_restarts_total" => stream.restarts, "Restarts of a reporter's sequence numbers.";
    });
    metrics!(text {
        "sources_uncountable" => streams.iter().filter(|stream| !stream.countable && stream.datagrams > 1).count(),
            "Reporters of several reports whose sequence number is constant, or that of several nodes: their losses are unknown.";
    });
}

/// Writes the latest values as gauges per node, queue and link.
fn network(text: &mut Text, detail: &Detail) {
    let entries = &detail.entries;
    let latencies = merged(entries.iter().map(|entries| &entries.nodes));
    metrics!(text [for entry in latencies.values().take(MAX_SERIES); for value in entry.last.p50] ["node" = entry.node] {
        "hop_latency_median_seconds" => value as f64 / 1e9,
            "Time inside a node, median over the last second that had values.";
    });
    metrics!(text [for entry in latencies.values().take(MAX_SERIES); for value in entry.last.p99] ["node" = entry.node] {
        "hop_latency_p99_seconds" => value as f64 / 1e9,
            "Time inside a node, 99th percentile over the last second that had values.";
    });
    let queues = merged(entries.iter().map(|entries| &entries.queues));
    metrics!(text [for queue in queues.values().take(MAX_SERIES)] [
        "node" = queue.node,
        // Prometheus takes an empty label for an absent one.
        "interface" = queue.interface.map_or_else(String::new, |interface| interface.to_string()),
        // Aggregated over all queues: the entry has no queue number.
        "queue" = queue.queue.map_or_else(|| "all".to_owned(), |number| number.to_string())
    ] {
        "queue_occupancy" => queue.latest, "Latest occupancy of a queue, device units.";
    });
    let links = merged(entries.iter().map(|entries| &entries.links));
    metrics!(text [for link in links.values().take(MAX_SERIES)] ["node" = link.node, "interface" = link.part] {
        "link_utilization_ratio" => view::fraction(link.latest),
            "Latest utilization of an egress link, as a fraction of 1.";
    });
}

/// Writes names of nodes and interfaces as info metrics, to be joined with metrics that have ids.
fn write_names(text: &mut Text, names: &view::NamesView, dns: Option<Counts>) {
    metrics!(text [for node in names.nodes.iter().take(MAX_NAMES); for name in &node.name] [
        "node" = node.node, "name" = name
    ] {
        "node_info" => 1, "Name of a node; 1.";
    });
    let interfaces = names
        .nodes
        .iter()
        .flat_map(|node| node.interfaces.iter().map(|entry| (node.node, entry)));
    metrics!(text [for (node, entry) in interfaces.take(MAX_NAMES)] [
        "node" = node, "interface" = entry.interface, "name" = entry.name
    ] {
        "interface_info" => 1, "Name of an interface of a node; 1.";
    });
    metrics!(text [
        for dns in dns;
        for (result, count) in [("found", dns.found), ("none", dns.without), ("queue_full", dns.refused)]
    ] ["result" = result] {
        "dns_lookups_total" => count, "Lookups of names of hosts by DNS, by result.";
    });
    metrics!(text [for dns in dns] [] {
        "dns_waiting" => dns.waiting, "Addresses that wait for a lookup of their name.";
    });
}

fn store(text: &mut Text, monitor: &Monitor) {
    metrics!(text [for stats in &monitor.pipeline().store()] [] {
        "store_up" => u8::from(stats.state == store::State::Ok),
            "1 while the store works, 0 while it fails or its directory cannot be used.";
        "store_committed_total" => stats.committed, "Records on disk.";
        "store_bytes" => stats.bytes, "Size of all files.";
        "store_files" => stats.files, "Files.";
        "store_indexed_later_total" => stats.indexed_later,
            "Files written without indexes on events at a high rate, and indexed when they were complete.";
        "store_index_failures_total" => stats.index_failures, "Failed attempts to index such a file.";
        "store_files_moved_total" => stats.moved_files,
            "Files removed or replaced by anything but retention while hopwise ran.";
        "store_removed_records_total" => stats.removed,
            "Records of hopwise_store_committed_total that were in files that were removed, replaced or set aside.";
        "store_files_set_aside_total" => stats.set_aside, "Damaged files that were set aside since the start.";
        "store_damaged_files" => stats.problems.count(ProblemKind::Damaged),
            "Damaged files pending for `hopwise store check`.";
        "store_unreadable_files" => stats.problems.count(ProblemKind::Unreadable),
            "Files of earlier periods that cannot be opened.";
        "store_last_commit_seconds" => stats.last_commit.map_or(f64::NAN, |at| at as f64 / 1e9),
            "Time of the last commit, Unix time.";
    });
    metrics!(text {
        "files_restored_total" => save::restored(),
            "State files, such as cursors, that something else removed, and that were written again.";
        "files_replaced" => save::replaced().len(),
            "State files that something else replaced, and that are not written until a restart.";
        "store_queue_bytes" => monitor.pipeline().store_queue().bytes, "Bytes of records queued for the disk.";
    });
}

/// Writes the metrics of the aggregator role.
fn write_aggregator(text: &mut Text, view: Option<&AggregatorView>) {
    metrics!(text [for view in view] [] {
        "aggregator_datagrams_total" => view.datagrams, "Datagrams received by the aggregator.";
        "aggregator_kernel_drops_total" => view.kernel_drops,
            "Datagrams that the kernel dropped because the aggregator's receive buffer was full.";
        "aggregator_postcards_total" => view.postcards, "Postcards accepted: sent + pending.";
        "aggregator_pending" => view.pending, "Postcards pending in registers.";
        "aggregator_occupied" => view.occupied, "Registers with pending postcards.";
        "aggregator_untracked_total" => view.nodes_full,
            "Datagrams of nodes that are not tracked, because the table was full; their losses are not counted.";
    });
    metrics!(text [for view in view; for (reason, count) in view.refused.iter().chain(&view.unreadable)] ["reason" = reason] {
        "aggregator_refused_total" => count, "Datagrams and reports refused, by reason.";
    });
    metrics!(text [for view in view; for (cause, sent) in &view.sent] ["cause" = cause] {
        "aggregator_sent_postcards_total" => sent.postcards, "Postcards sent, by cause of the flush.";
        "aggregator_aggregates_total" => sent.datagrams, "Aggregates sent, by cause of the flush.";
    });
    metrics!(text [for view in view; for to in &view.forward] ["to" = to.to] {
        "aggregator_sent_datagrams_total" => to.datagrams, "Datagrams passed to the kernel.";
        "aggregator_sent_bytes_total" => to.bytes, "Payload bytes of these datagrams.";
    });
    metrics!(text [
        for view in view;
        for to in &view.forward;
        for (reason, count) in [("no_buffers", to.no_buffers), ("failed", to.failed)]
    ] ["to" = to.to, "reason" = reason] {
        "aggregator_unsent_total" => count, "Datagrams that the kernel refused, by reason.";
    });
    metrics!(text [for view in view; for node in &view.nodes] [
        "node" = node.node, "hw_id" = node.hw_id, "seq_bits" = node.seq_bits
    ] {
        "aggregator_lost_total" => node.lost,
            "Postcards lost (missing sequence numbers), by node, subsystem and length of sequence numbers.";
    });
}
