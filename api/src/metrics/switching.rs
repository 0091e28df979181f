//! Metrics of INT in the switch of this process, and of the devices that its manager drives.

use super::{MAX_SERIES, Text, filtering, intercepting};
use manage_role::role::view::DeviceCounterView;
use switch_role::role::SwitchView;

/// INT of the switch of this process.
pub(super) fn int(text: &mut Text, switch: Option<&SwitchView>) {
    text.metric("switch_int_total", "counter", "Packets sent, by INT action.");
    for int in switch.iter().map(|switch| &switch.int) {
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
        ] {
            text.sample("switch_int_total", &[("what", &what)], count);
        }
    }
    let help = "Packets from outside the domain with INT, by outcome.";
    text.metric("switch_edge_int_total", "counter", help);
    for int in switch.iter().map(|switch| &switch.int) {
        text.sample(
            "switch_edge_int_total",
            &[("what", &"stripped")],
            int.edge_stripped,
        );
        text.sample("switch_edge_int_total", &[("what", &"dropped")], int.edge_refused);
    }
    let help = "Packets whose L4 checksum the sink examined after it stripped INT, one of 64, by result.";
    text.metric("switch_checksums_total", "counter", help);
    for int in switch.iter().map(|switch| &switch.int) {
        let right = int.checksums_examined - int.checksums_wrong;
        text.sample("switch_checksums_total", &[("result", &"right")], right);
        text.sample(
            "switch_checksums_total",
            &[("result", &"wrong")],
            int.checksums_wrong,
        );
    }
    filtering(text, switch.map_or(&[], |switch| &switch.filters));
    intercepting(text, switch);
}

/// Counters of the devices that the manager drives.
pub(super) fn devices(text: &mut Text, devices: &[(String, Vec<DeviceCounterView>)]) {
    let help = "Packets that the program of a managed device counted, by device and counter.";
    text.metric("device_packets_total", "counter", help);
    for (device, counters) in devices.iter().take(MAX_SERIES) {
        for DeviceCounterView { name, packets, .. } in counters.iter().filter(|one| one.object.is_none()) {
            text.sample(
                "device_packets_total",
                &[("device", device), ("what", name)],
                packets,
            );
        }
    }
    let help = "Packets that a filter, a mapping or the like of a managed device's program counted, by device, object and counter.";
    text.metric("device_object_packets_total", "counter", help);
    for (device, counters) in devices.iter().take(MAX_SERIES) {
        for DeviceCounterView {
            object,
            name,
            packets,
            ..
        } in counters
        {
            let Some(object) = object else { continue };
            let labels: [(&str, &dyn std::fmt::Display); 3] =
                [("device", device), ("object", object), ("what", name)];
            text.sample("device_object_packets_total", &labels, packets);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_devices_have_the_names_of_device_and_counter() {
        let counter = |name: &str, packets| DeviceCounterView {
            object: None,
            about: None,
            name: name.to_owned(),
            packets,
        };
        let of = |object: &str, one: DeviceCounterView| DeviceCounterView {
            object: Some(object.to_owned()),
            ..one
        };
        let devices = [
            (
                "s1".to_owned(),
                vec![counter("plain", 7), counter("edge_refused", 0)],
            ),
            (
                "s2".to_owned(),
                vec![counter("plain", 1), of("filter 3", counter("event", 4))],
            ),
        ];
        let mut text = Text::default();
        super::devices(&mut text, &devices);
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
