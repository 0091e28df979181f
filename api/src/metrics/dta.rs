//! Metrics of the DTA translator and collector memory. HELP and TYPE lines are always written, samples only if the role runs.

use super::Text;
use dta_role::memory::view::MemoryView;
use dta_role::translator::view::TranslatorView;

/// Writes the metrics of the DTA translator.
pub(super) fn write_translator(text: &mut Text, view: Option<&TranslatorView>) {
    metrics!(text [for view in view] [] {
        "dta_reports_total" => view.reports,
            "DTA reports received: = completed + dropped + unreadable + queued.";
    });
    metrics!(text [for view in view; for (primitive, count) in &view.completed] ["primitive" = primitive] {
        "dta_completed_total" => count, "DTA reports completed, by primitive.";
    });
    metrics!(text [for view in view; for (reason, count) in &view.dropped] ["reason" = reason] {
        "dta_dropped_total" => count,
            "DTA reports dropped, by reason; absent_*: the collector is not connected, congested_*: it does not keep up.";
    });
    metrics!(text [for view in view; for (reason, count) in &view.unreadable] ["reason" = reason] {
        "dta_unreadable_total" => count, "Datagrams that are not DTA reports, by reason.";
    });
    metrics!(text [for view in view; for (reason, count) in &view.responses_unreadable] ["reason" = reason] {
        "dta_responses_unreadable_total" => count,
            "Datagrams received where collectors send responses that are not responses, by reason.";
    });
    metrics!(text [for view in view] [] {
        "dta_queued" => view.queued, "DTA reports queued in the translator under congestion.";
        "dta_writes_total" => view.writes, "RDMA Writes.";
        "dta_fetch_adds_total" => view.fetch_adds, "RDMA Fetch and Adds.";
        "dta_operation_bytes_total" => view.operation_bytes, "Payload bytes of RDMA operations.";
    });
    metrics!(text [
        for view in view;
        for (kind, count) in [("entries", view.entries.buffered), ("postcards", view.postcards.buffered)]
    ] ["what" = kind] {
        "dta_pending" => count, "Entries and postcards that wait for a full batch.";
    });
    metrics!(text [for view in view] [] {
        "dta_essential_lost_total" => view.essential.lost,
            "Essential reports requested by a NACK and never received.";
    });
    metrics!(text [for view in view; for (kind, count) in &view.messages] ["kind" = kind] {
        "dta_messages_total" => count, "Messages to reporters, by kind.";
    });
    metrics!(text [for view in view; for view in &view.intercepted] [] {
        "dta_intercepted_total" => view.reports,
            "DTA reports that the switch of this process intercepted; included in the total.";
        "dta_replies_total" => view.replies, "Messages to reporters passed to the switch of this process.";
        "dta_replies_dropped_total" => view.replies_dropped,
            "Messages to reporters dropped because the switch of this process did not keep up.";
    });
    upstream(text, view);
    links(text, view);
}

/// Writes the metrics of sketches sent upstream, to the translator that merges the whole network's, by reporter ID there.
fn upstream(text: &mut Text, view: Option<&TranslatorView>) {
    metrics!(text [for view in view; for view in &view.upstream] ["reporter" = view.reporter, "to" = view.to] {
        "dta_upstream_epochs_total" => view.epochs,
            "Epochs of sketches of which every column was sent to the other translator.";
        "dta_upstream_columns_total" => view.columns,
            "Columns of sketches sent to the other translator, without retransmissions.";
        "dta_upstream_retransmitted_total" => view.retransmitted, "Columns sent again because of a NACK.";
        "dta_upstream_expired_total" => view.expired,
            "Columns not sent before their buffer was needed for another epoch.";
        "dta_upstream_suppressed_total" => view.suppressed,
            "Columns not sent because of congestion, or because they are longer than a report.";
        "dta_upstream_nacks_total" => view.nacks, "NACKs for columns.";
        "dta_upstream_datagrams_total" => view.sent, "Datagrams sent to the other translator.";
        "dta_upstream_unsent_total" => view.unsent, "Datagrams to the other translator that could not be sent.";
    });
}

/// Writes the metrics of the RDMA connection to each collector.
fn links(text: &mut Text, view: Option<&TranslatorView>) {
    metrics!(text [for view in view; for link in &view.collectors] ["collector" = link.exchange] {
        "dta_link_up" => u64::from(link.state == "up"), "1 while a collector is connected.";
        "dta_link_congestion_level" => link.congestion_level, "Congestion of a collector, 0 to 3.";
        "dta_link_datagrams_total" => link.datagrams, "DTA datagrams for a collector.";
        "dta_link_kernel_drops_total" => link.kernel_drops,
            "Reports that the kernel dropped because the receive buffer was full.";
        "dta_link_frames_total" => link.frames, "RoCEv2 packets sent, without retransmissions.";
        "dta_link_frame_bytes_total" => link.frame_bytes, "Bytes of RoCEv2 packets.";
        "dta_link_retransmitted_total" => link.retransmitted, "RoCEv2 packets retransmitted.";
        "dta_link_unsent_total" => link.unsent, "RoCEv2 packets that the kernel refused.";
        "dta_link_unreliable_total" => link.unreliable, "Operations sent without acknowledgement.";
        "dta_link_reliable_total" => link.reliable,
            "Operations that need an acknowledgement: = acknowledged + unacknowledged + given up.";
        "dta_link_acknowledged_total" => link.acknowledged, "Operations acknowledged.";
        "dta_link_unacknowledged" => link.unacknowledged, "Operations not yet acknowledged.";
        "dta_link_given_up_total" => link.given_up.values().sum::<u64>(), "Operations given up.";
        "dta_link_refused_total" => link.refused.values().sum::<u64>(), "Operations refused by the link.";
        "dta_link_responses_total" => link.responses.values().sum::<u64>(), "RoCEv2 responses of a collector.";
        "dta_link_connections_total" => link.connections, "Times a collector was connected.";
        "dta_link_broken_total" => link.broken, "Times a connection broke.";
        "dta_link_exchange_refused_total" => link.exchange_refused.values().sum::<u64>(),
            "Connection attempts that one side of the exchange refused.";
    });
}

/// Writes the metrics of collector memory.
pub(super) fn write_memory(text: &mut Text, view: Option<&MemoryView>) {
    metrics!(text [for view in view] [] {
        "memory_datagrams_total" => view.datagrams, "RoCEv2 datagrams received.";
        "memory_kernel_drops_total" => view.kernel_drops,
            "Datagrams that the kernel dropped because the receive buffer was full.";
        "memory_packets_total" => view.packets, "RoCEv2 packets: = executed + duplicates + refused + dropped.";
    });
    metrics!(text [for view in view; for view in &view.xdp] [] {
        "memory_xdp_packets_total" => view.packets,
            "RoCEv2 packets processed in the kernel, included in the total.";
        "memory_xdp_passed_total" => view.passed,
            "Frames to the RoCEv2 port that the kernel program passed to the network stack.";
        "memory_xdp_responses_unsent_total" => view.responses_unsent,
            "Responses of the kernel program that could not be sent.";
        "memory_xdp_up" => u64::from(view.up), "1 while the kernel program is attached to its interface.";
    });
    metrics!(text [for view in view] [] {
        "memory_executed_total" => view.executed, "RoCEv2 packets executed.";
        "memory_duplicates_total" => view.duplicates, "Duplicate RoCEv2 packets.";
    });
    metrics!(text [for view in view; for (reason, count) in &view.refused] ["reason" = reason] {
        "memory_refused_total" => count, "RoCEv2 packets that could not be read, by reason.";
    });
    metrics!(text [for view in view; for (reason, count) in &view.dropped] ["reason" = reason] {
        "memory_dropped_total" => count, "RoCEv2 packets that were not executed, by reason.";
    });
    metrics!(text [for view in view] [] {
        "memory_messages_total" => view.messages, "RDMA operations completed.";
        "memory_written_bytes_total" => view.written_bytes, "Bytes written into memory.";
        "memory_fetch_adds_total" => view.fetch_adds, "RDMA Fetch and Adds executed.";
        "memory_missing" => view.missing, "Packets of unreliable queue pairs lost (missing PSNs).";
        "memory_acks_total" => view.acks, "Acknowledgements sent.";
    });
    metrics!(text [for view in view; for (kind, count) in &view.naks] ["kind" = kind] {
        "memory_naks_total" => count, "Negative acknowledgements sent, by kind.";
    });
    exchange(text, view);
    metrics!(text [for view in view] [] {
        "memory_entries_reported_total" => view.events.entries, "List entries emitted as events.";
    });
    metrics!(text [
        for view in view;
        for (reason, count) in [("overwritten", view.events.overwritten), ("missing", view.events.missing)]
    ] ["reason" = reason] {
        "memory_batches_lost_total" => count, "List batches not emitted, by reason.";
    });
    metrics!(text [for view in view] [] {
        "memory_immediates_total" => view.events.immediates, "Immediate values received.";
        "memory_immediates_dropped_total" => view.events.immediates_dropped,
            "Immediate values dropped under overload.";
        "memory_cleared_total" => view.snapshots.cleared, "Times that counters of a store began again at 0.";
        "memory_snapshots_total" => view.snapshots.taken, "Snapshots taken.";
        "memory_snapshots_failed_total" => view.snapshots.failed, "Snapshots that failed.";
    });
}

/// Writes the metrics of the exchange of connection parameters with translators.
fn exchange(text: &mut Text, view: Option<&MemoryView>) {
    metrics!(text [for view in view] [] {
        "memory_links" => view.links.iter().filter(|link| link.up).count(), "Connected translators.";
        "memory_exchange_connections_total" => view.translators.connections,
            "Connections to the exchange: = accepted + refused + pending.";
        "memory_exchange_accepted_total" => view.translators.accepted, "Connections to the exchange accepted.";
    });
    metrics!(text [for view in view; for (reason, count) in &view.translators.refused] ["reason" = reason] {
        "memory_exchange_refused_total" => count, "Connections to the exchange refused, by reason.";
    });
    metrics!(text [for view in view] [] {
        "memory_exchange_pending" => view.translators.pending, "Connections to the exchange not answered yet.";
    });
}
