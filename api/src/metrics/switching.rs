//! Metrics of the switch role, and of the devices that the manager drives.

use super::{MAX_SERIES, Text};
use manager::driver::Counter;
use switch_role::role::SwitchView;

/// Writes the metrics of the switch: ports, totals, INT and filters.
pub(super) fn write_switch(text: &mut Text, switch: Option<&SwitchView>) {
    metrics!(text [for switch in switch; for port in &switch.ports] ["port" = port.number] {
        "switch_received_total" => port.received, "Frames received by a port.";
        "switch_received_bytes_total" => port.received_bytes, "Their bytes.";
        "switch_sent_total" => port.sent, "Frames sent by a port.";
        "switch_sent_bytes_total" => port.sent_bytes, "Their bytes.";
        "switch_ring_full_total" => port.ring_full,
            "Frames dropped because a port's RX ring was full; not counted as received.";
        "switch_queue_bytes" => port.queue.bytes, "Bytes in a port's egress queue.";
    });
    metrics!(text [for switch in switch; for port in &switch.ports; for (reason, count) in &port.drops] [
        "port" = port.number, "reason" = reason
    ] {
        "switch_drops_total" => count, "Frames dropped, by responsible port and reason.";
    });
    metrics!(text [for switch in switch] [] {
        "switch_originated_total" => switch.totals.originated,
            "Frames originated by the switch: ARP, neighbor discovery, ICMP errors, messages to DTA reporters.";
        "switch_consumed_total" => switch.totals.consumed,
            "Frames consumed by the switch: received + originated = sent + consumed + queued + drops.";
        "switch_queued" => switch.totals.queued, "Frames in queues, on links, or waiting for neighbor resolution.";
        "switch_reports_sent_total" => switch.reports.sent, "Datagrams with reports sent.";
        "switch_reports_unsent_total" => switch.reports.unsent, "Datagrams with reports that could not be sent.";
    });
    int(text, switch);
    filters(text, switch);
    metrics!(text [for switch in switch] [] {
        "switch_intercepted_total" => switch.totals.intercepted,
            "DTA reports intercepted for the translator of this process; part of the frames consumed.";
        "switch_intercept_tagged_total" => switch.totals.intercept_tagged,
            "DTA reports with VLAN tags, forwarded instead of intercepted.";
        "switch_replies_total" => switch.totals.replies,
            "Messages to DTA reporters sent for the translator of this process; part of the frames originated.";
        "switch_replies_refused_total" => switch.totals.replies_refused,
            "Messages to DTA reporters without a route, or longer than the MTU.";
    });
}

/// Writes the INT counters of the switch.
fn int(text: &mut Text, switch: Option<&SwitchView>) {
    let int = switch.map(|switch| &switch.int);
    metrics!(text [
        for int in int;
        for (what, count) in [
            ("plain", int.plain),
            ("refused", int.refused),
            ("recorded", int.recorded),
            ("swapped", int.swapped),
            ("hops_exceeded", int.hops_exceeded),
            ("mtu_exceeded", int.mtu_exceeded),
            ("not_restorable", int.not_restorable),
            ("reported", int.reported),
            ("filtered", int.filtered),
        ]
    ] ["what" = what] {
        "switch_int_total" => count, "Packets sent, by INT action.";
    });
    metrics!(text [
        for int in int;
        for (what, count) in [("stripped", int.edge_stripped), ("dropped", int.edge_refused)]
    ] ["what" = what] {
        "switch_edge_int_total" => count, "Packets from outside the domain with INT, by outcome.";
    });
    metrics!(text [
        for int in int;
        for (result, count) in
            [("right", int.checksums_examined - int.checksums_wrong), ("wrong", int.checksums_wrong)]
    ] ["result" = result] {
        "switch_checksums_total" => count,
            "Packets whose L4 checksum the sink examined after it stripped INT, one of 64, by result.";
    });
}

/// Writes the decisions of each report filter of the switch.
fn filters(text: &mut Text, switch: Option<&SwitchView>) {
    metrics!(text [
        for switch in switch;
        for (index, filter) in switch.filters.iter().enumerate();
        for (decision, count) in [
            ("event", filter.reported.event),
            ("first", filter.reported.first),
            ("ended", filter.reported.ended),
            ("keep_alive", filter.reported.keep_alive),
            ("missing_value", filter.reported.missing_value),
            ("suppressed", filter.suppressed),
        ]
    ] ["filter" = index, "decision" = decision] {
        "switch_filter_total" => count,
            "Packets by filter (index from 0) and decision; all but `suppressed` were reported.";
    });
    metrics!(text [for switch in switch; for (index, filter) in switch.filters.iter().enumerate()] ["filter" = index] {
        "switch_filter_collisions_total" => filter.collisions,
            "Register collisions of a filter: another flow or node took the register over.";
    });
}

/// Writes the counters of the manager's devices.
pub(super) fn write_devices(text: &mut Text, devices: &[(String, Vec<Counter>)]) {
    metrics!(text [
        for (device, counters) in devices.iter().take(MAX_SERIES);
        for entry in counters.iter().filter(|entry| entry.object.is_none())
    ] ["device" = device, "what" = entry.name] {
        "device_packets_total" => entry.packets,
            "Packets that the program of a managed device counted, by device and counter.";
    });
    metrics!(text [
        for (device, counters) in devices.iter().take(MAX_SERIES);
        for entry in counters;
        for object in &entry.object
    ] ["device" = device, "object" = object, "what" = entry.name] {
        "device_object_packets_total" => entry.packets,
            "Packets that a filter, a mapping or the like of a managed device's program counted, by device, object and counter.";
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(object: Option<&str>, name: &str, packets: u64) -> Counter {
        Counter {
            object: object.map(str::to_owned),
            about: None,
            name: name.to_owned(),
            packets,
        }
    }

    #[test]
    fn counters_of_devices_have_the_names_of_device_and_counter() {
        let devices = [
            (
                "s1".to_owned(),
                vec![counter(None, "plain", 7), counter(None, "edge_refused", 0)],
            ),
            (
                "s2".to_owned(),
                vec![counter(None, "plain", 1), counter(Some("filter 3"), "event", 4)],
            ),
        ];
        let mut text = Text::default();
        super::write_devices(&mut text, &devices);
        let (_, samples) = text.out.split_once("counter\n").unwrap();
        let expected = "hopwise_device_packets_total{device=\"s1\",what=\"plain\"} 7\n\
            hopwise_device_packets_total{device=\"s1\",what=\"edge_refused\"} 0\n\
            hopwise_device_packets_total{device=\"s2\",what=\"plain\"} 1\n";
        let (own, of_objects) = samples.split_once("# HELP").unwrap();
        assert_eq!(own, expected);
        let (_, of_objects) = of_objects.split_once("counter\n").unwrap();
        let expected =
            "hopwise_device_object_packets_total{device=\"s2\",object=\"filter 3\",what=\"event\"} 4\n";
        assert_eq!(of_objects, expected);
    }
}
