//! Metrics of the DTA translator and of the collector memory. HELP and TYPE lines are always present, samples only with such a role.

use std::fmt::Display;

use super::Text;
use dta_role::memory::view::{MemoryView, XdpView};
use dta_role::translator::view::{CollectorView, InterceptedView, TranslatorView, UpstreamView};
use view::NamedCounts;

/// Counters by a label.
fn by<V>(
    text: &mut Text,
    view: Option<&V>,
    (name, label, help): (&str, &str, &str),
    counts: impl Fn(&V) -> &NamedCounts,
) {
    text.metric(name, "counter", help);
    for (word, count) in view.iter().flat_map(|view| counts(view)) {
        text.sample(name, &[(label, word)], count);
    }
}

/// Metrics of the DTA translator of this process.
pub(super) fn translating(text: &mut Text, view: Option<&TranslatorView>) {
    let help = "DTA reports received: = completed + dropped + unreadable + queued.";
    text.role(view, "dta_reports_total", "counter", help, |view| view.reports);
    by(
        text,
        view,
        (
            "dta_completed_total",
            "primitive",
            "DTA reports completed, by primitive.",
        ),
        |view| &view.completed,
    );
    let help = "DTA reports dropped, by reason; absent_*: the collector is not connected, congested_*: it does not keep up.";
    by(text, view, ("dta_dropped_total", "reason", help), |view| {
        &view.dropped
    });
    let help = "Datagrams that are not DTA reports, by reason.";
    by(text, view, ("dta_unreadable_total", "reason", help), |view| {
        &view.unreadable
    });
    let help = "Datagrams received where collectors send responses that are not responses, by reason.";
    by(
        text,
        view,
        ("dta_responses_unreadable_total", "reason", help),
        |view| &view.responses_unreadable,
    );
    let help = "DTA reports queued in the translator under congestion.";
    text.role(view, "dta_queued", "gauge", help, |view| view.queued);
    text.role(view, "dta_writes_total", "counter", "RDMA Writes.", |view| {
        view.writes
    });
    text.role(
        view,
        "dta_fetch_adds_total",
        "counter",
        "RDMA Fetch and Adds.",
        |view| view.fetch_adds,
    );
    let help = "Payload bytes of RDMA operations.";
    text.role(view, "dta_operation_bytes_total", "counter", help, |view| {
        view.operation_bytes
    });
    text.metric(
        "dta_pending",
        "gauge",
        "Entries and postcards that wait for a full batch.",
    );
    if let Some(view) = view {
        text.sample("dta_pending", &[("what", &"entries")], view.entries.buffered);
        text.sample("dta_pending", &[("what", &"postcards")], view.postcards.buffered);
    }
    let help = "Essential reports requested by a NACK and never received.";
    text.role(view, "dta_essential_lost_total", "counter", help, |view| {
        view.essential.lost
    });
    by(
        text,
        view,
        ("dta_messages_total", "kind", "Messages to reporters, by kind."),
        |view| &view.messages,
    );
    intercepted(text, view.and_then(|view| view.intercepted.as_ref()));
    upstream(text, view.and_then(|view| view.upstream.as_ref()));
    links(text, view);
}

/// Metrics of reports that the switch of this process intercepts.
fn intercepted(text: &mut Text, view: Option<&InterceptedView>) {
    let help = "DTA reports that the switch of this process intercepted; included in the total.";
    text.role(view, "dta_intercepted_total", "counter", help, |view| {
        view.reports
    });
    let help = "Messages to reporters passed to the switch of this process.";
    text.role(view, "dta_replies_total", "counter", help, |view| view.replies);
    let help = "Messages to reporters dropped because the switch of this process did not keep up.";
    text.role(view, "dta_replies_dropped_total", "counter", help, |view| {
        view.replies_dropped
    });
}

/// Metrics of the sketches that go to the translator of the whole network, by the reporter ID of this section there.
fn upstream(text: &mut Text, view: Option<&UpstreamView>) {
    let help = "Epochs of sketches of which every column was sent to the other translator.";
    sketches_sent(text, view, "dta_upstream_epochs_total", help, |view| view.epochs);
    let help = "Columns of sketches sent to the other translator, without retransmissions.";
    sketches_sent(text, view, "dta_upstream_columns_total", help, |view| {
        view.columns
    });
    let help = "Columns sent again because of a NACK.";
    sketches_sent(text, view, "dta_upstream_retransmitted_total", help, |view| {
        view.retransmitted
    });
    let help = "Columns not sent before their buffer was needed for another epoch.";
    sketches_sent(text, view, "dta_upstream_expired_total", help, |view| {
        view.expired
    });
    let help = "Columns not sent because of congestion, or because they are longer than a report.";
    sketches_sent(text, view, "dta_upstream_suppressed_total", help, |view| {
        view.suppressed
    });
    sketches_sent(
        text,
        view,
        "dta_upstream_nacks_total",
        "NACKs for columns.",
        |view| view.nacks,
    );
    let help = "Datagrams sent to the other translator.";
    sketches_sent(text, view, "dta_upstream_datagrams_total", help, |view| view.sent);
    let help = "Datagrams to the other translator that could not be sent.";
    sketches_sent(text, view, "dta_upstream_unsent_total", help, |view| view.unsent);
}

fn sketches_sent(
    text: &mut Text,
    view: Option<&UpstreamView>,
    name: &str,
    help: &str,
    value: fn(&UpstreamView) -> u64,
) {
    text.metric(name, "counter", help);
    if let Some(view) = view {
        text.sample(
            name,
            &[("reporter", &view.reporter), ("to", &view.to)],
            value(view),
        );
    }
}

#[expect(clippy::too_many_lines, reason = "a list, in its order")]
fn links(text: &mut Text, view: Option<&TranslatorView>) {
    link(
        text,
        view,
        ("dta_link_up", "gauge", "1 while a collector is connected."),
        &|link| u64::from(link.state == "up"),
    );
    link(
        text,
        view,
        (
            "dta_link_congestion_level",
            "gauge",
            "Congestion of a collector, 0 to 3.",
        ),
        &|link| link.congestion_level.into(),
    );
    link(
        text,
        view,
        (
            "dta_link_datagrams_total",
            "counter",
            "DTA datagrams for a collector.",
        ),
        &|link| link.datagrams,
    );
    let help = "Reports that the kernel dropped because the receive buffer was full.";
    link(
        text,
        view,
        ("dta_link_kernel_drops_total", "counter", help),
        &|link| link.kernel_drops,
    );
    link(
        text,
        view,
        (
            "dta_link_frames_total",
            "counter",
            "RoCEv2 packets sent, without retransmissions.",
        ),
        &|link| link.frames,
    );
    link(
        text,
        view,
        (
            "dta_link_frame_bytes_total",
            "counter",
            "Bytes of RoCEv2 packets.",
        ),
        &|link| link.frame_bytes,
    );
    link(
        text,
        view,
        (
            "dta_link_retransmitted_total",
            "counter",
            "RoCEv2 packets retransmitted.",
        ),
        &|link| link.retransmitted,
    );
    link(
        text,
        view,
        (
            "dta_link_unsent_total",
            "counter",
            "RoCEv2 packets that the kernel refused.",
        ),
        &|link| link.unsent,
    );
    link(
        text,
        view,
        (
            "dta_link_unreliable_total",
            "counter",
            "Operations sent without acknowledgement.",
        ),
        &|link| link.unreliable,
    );
    let help = "Operations that need an acknowledgement: = acknowledged + unacknowledged + given up.";
    link(
        text,
        view,
        ("dta_link_reliable_total", "counter", help),
        &|link| link.reliable,
    );
    link(
        text,
        view,
        (
            "dta_link_acknowledged_total",
            "counter",
            "Operations acknowledged.",
        ),
        &|link| link.acknowledged,
    );
    link(
        text,
        view,
        (
            "dta_link_unacknowledged",
            "gauge",
            "Operations not yet acknowledged.",
        ),
        &|link| link.unacknowledged,
    );
    link(
        text,
        view,
        ("dta_link_given_up_total", "counter", "Operations given up."),
        &|link| link.given_up.values().sum(),
    );
    link(
        text,
        view,
        (
            "dta_link_refused_total",
            "counter",
            "Operations refused by the link.",
        ),
        &|link| link.refused.values().sum(),
    );
    link(
        text,
        view,
        (
            "dta_link_responses_total",
            "counter",
            "RoCEv2 responses of a collector.",
        ),
        &|link| link.responses.values().sum(),
    );
    link(
        text,
        view,
        (
            "dta_link_connections_total",
            "counter",
            "Times a collector was connected.",
        ),
        &|link| link.connections,
    );
    link(
        text,
        view,
        ("dta_link_broken_total", "counter", "Times a connection broke."),
        &|link| link.broken,
    );
    let help = "Connection attempts that one side of the exchange refused.";
    link(
        text,
        view,
        ("dta_link_exchange_refused_total", "counter", help),
        &|link| link.exchange_refused.values().sum(),
    );
}

/// `metric`: its name, kind and help.
fn link(
    text: &mut Text,
    view: Option<&TranslatorView>,
    metric: (&str, &str, &str),
    value: &dyn Fn(&CollectorView) -> u64,
) {
    let (name, kind, help) = metric;
    text.metric(name, kind, help);
    for collector in view.iter().flat_map(|view| &view.collectors) {
        text.sample(
            name,
            &[("collector", &collector.exchange as &dyn Display)],
            value(collector),
        );
    }
}

/// Metrics of the responder in the kernel.
fn in_kernel(text: &mut Text, view: Option<&XdpView>) {
    let help = "RoCEv2 packets processed in the kernel, included in the total.";
    text.role(view, "memory_xdp_packets_total", "counter", help, |view| {
        view.packets
    });
    let help = "Frames to the RoCEv2 port that the kernel program passed to the network stack.";
    text.role(view, "memory_xdp_passed_total", "counter", help, |view| {
        view.passed
    });
    let help = "Responses of the kernel program that could not be sent.";
    text.role(
        view,
        "memory_xdp_responses_unsent_total",
        "counter",
        help,
        |view| view.responses_unsent,
    );
    let help = "1 while the kernel program is attached to its interface.";
    text.role(view, "memory_xdp_up", "gauge", help, |view| u64::from(view.up));
}

/// Metrics of the collector memory of this process.
#[expect(clippy::too_many_lines, reason = "a list, in its order")]
pub(super) fn keeping(text: &mut Text, view: Option<&MemoryView>) {
    text.role(
        view,
        "memory_datagrams_total",
        "counter",
        "RoCEv2 datagrams received.",
        |view| view.datagrams,
    );
    let help = "Datagrams that the kernel dropped because the receive buffer was full.";
    text.role(view, "memory_kernel_drops_total", "counter", help, |view| {
        view.kernel_drops
    });
    let help = "RoCEv2 packets: = executed + duplicates + refused + dropped.";
    text.role(view, "memory_packets_total", "counter", help, |view| view.packets);
    in_kernel(text, view.and_then(|view| view.xdp.as_ref()));
    text.role(
        view,
        "memory_executed_total",
        "counter",
        "RoCEv2 packets executed.",
        |view| view.executed,
    );
    text.role(
        view,
        "memory_duplicates_total",
        "counter",
        "Duplicate RoCEv2 packets.",
        |view| view.duplicates,
    );
    let help = "RoCEv2 packets that could not be read, by reason.";
    by(text, view, ("memory_refused_total", "reason", help), |view| {
        &view.refused
    });
    let help = "RoCEv2 packets that were not executed, by reason.";
    by(text, view, ("memory_dropped_total", "reason", help), |view| {
        &view.dropped
    });
    text.role(
        view,
        "memory_messages_total",
        "counter",
        "RDMA operations completed.",
        |view| view.messages,
    );
    text.role(
        view,
        "memory_written_bytes_total",
        "counter",
        "Bytes written into memory.",
        |view| view.written_bytes,
    );
    text.role(
        view,
        "memory_fetch_adds_total",
        "counter",
        "RDMA Fetch and Adds executed.",
        |view| view.fetch_adds,
    );
    let help = "Packets of unreliable queue pairs lost (missing PSNs).";
    text.role(view, "memory_missing", "gauge", help, |view| view.missing);
    text.role(
        view,
        "memory_acks_total",
        "counter",
        "Acknowledgements sent.",
        |view| view.acks,
    );
    by(
        text,
        view,
        (
            "memory_naks_total",
            "kind",
            "Negative acknowledgements sent, by kind.",
        ),
        |view| &view.naks,
    );
    text.role(view, "memory_links", "gauge", "Connected translators.", |view| {
        view.links.iter().filter(|link| link.up).count() as u64
    });
    let help = "Connections to the exchange: = accepted + refused + pending.";
    text.role(
        view,
        "memory_exchange_connections_total",
        "counter",
        help,
        |view| view.translators.connections,
    );
    let help = "Connections to the exchange accepted.";
    text.role(view, "memory_exchange_accepted_total", "counter", help, |view| {
        view.translators.accepted
    });
    let help = "Connections to the exchange refused, by reason.";
    by(
        text,
        view,
        ("memory_exchange_refused_total", "reason", help),
        |view| &view.translators.refused,
    );
    let help = "Connections to the exchange not answered yet.";
    text.role(view, "memory_exchange_pending", "gauge", help, |view| {
        view.translators.pending
    });
    let help = "List entries emitted as events.";
    text.role(view, "memory_entries_reported_total", "counter", help, |view| {
        view.events.entries
    });
    text.metric(
        "memory_batches_lost_total",
        "counter",
        "List batches not emitted, by reason.",
    );
    if let Some(view) = view {
        text.sample(
            "memory_batches_lost_total",
            &[("reason", &"overwritten")],
            view.events.overwritten,
        );
        text.sample(
            "memory_batches_lost_total",
            &[("reason", &"missing")],
            view.events.missing,
        );
    }
    text.role(
        view,
        "memory_immediates_total",
        "counter",
        "Immediate values received.",
        |view| view.events.immediates,
    );
    let help = "Immediate values dropped under overload.";
    text.role(view, "memory_immediates_dropped_total", "counter", help, |view| {
        view.events.immediates_dropped
    });
    snapshots(text, view);
}

fn snapshots(text: &mut Text, view: Option<&MemoryView>) {
    let help = "Times that counters of a store began again at 0.";
    text.role(view, "memory_cleared_total", "counter", help, |view| {
        view.snapshots.cleared
    });
    text.role(
        view,
        "memory_snapshots_total",
        "counter",
        "Snapshots taken.",
        |view| view.snapshots.taken,
    );
    let help = "Snapshots that failed.";
    text.role(view, "memory_snapshots_failed_total", "counter", help, |view| {
        view.snapshots.failed
    });
}
