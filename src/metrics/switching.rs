//! Metrics of INT in the switch of this process.

use super::{Text, filtering, intercepting};
use crate::switch::SwitchView;

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
    let help = "Packets from outside the domain with INT, by what became of them.";
    text.metric("switch_edge_int_total", "counter", help);
    for int in switch.iter().map(|switch| &switch.int) {
        text.sample("switch_edge_int_total", &[("what", &"stripped")], int.edge_stripped);
        text.sample("switch_edge_int_total", &[("what", &"dropped")], int.edge_refused);
    }
    let help = "Packets whose L4 checksum the sink examined after it stripped INT, one of 64, by result.";
    text.metric("switch_checksums_total", "counter", help);
    for int in switch.iter().map(|switch| &switch.int) {
        let right = int.checksums_examined - int.checksums_wrong;
        text.sample("switch_checksums_total", &[("result", &"right")], right);
        text.sample("switch_checksums_total", &[("result", &"wrong")], int.checksums_wrong);
    }
    filtering(text, switch.map_or(&[], |switch| &switch.filters));
    intercepting(text, switch);
}
