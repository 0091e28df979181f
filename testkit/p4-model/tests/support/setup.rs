//! What the comparisons of programs with the Rust switch share: what a control plane installs, as commands for BMv2, too, and what a switch
//! measures of a packet.

use std::fmt::Write as _;
use std::sync::Arc;

use dataplane::switch::Visit;
use p4_model::{Arrival, Entry, Key, Program, Switch};

/// What a control plane installs.
pub(crate) enum Setup {
    Default(&'static str, &'static str, Vec<u128>),
    Entry(&'static str, Entry),
    Session(u32, u16),
}

/// A switch with all of it.
pub(crate) fn installed(program: &Arc<Program>, setup: &[Setup]) -> Switch {
    let mut p4 = Switch::new(program.clone());
    for one in setup {
        match one {
            Setup::Default(table, action, parameters) => p4.set_default(table, action, parameters).unwrap(),
            Setup::Entry(table, entry) => p4.insert(table, entry).unwrap(),
            Setup::Session(session, port) => p4.set_session(*session, *port),
        }
    }
    p4
}

/// The commands of `simple_switch_CLI`.
pub(crate) fn commands(setup: &[Setup]) -> String {
    let mut text = String::new();
    let list = |values: &[u128]| {
        values
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    };
    for one in setup {
        match one {
            Setup::Default(table, action, parameters) => {
                writeln!(text, "table_set_default {table} {action} {}", list(parameters)).unwrap();
            }
            Setup::Session(session, port) => writeln!(text, "mirroring_add {session} {port}").unwrap(),
            Setup::Entry(table, entry) => {
                let v6 = table.ends_with("v6");
                let key = |key: &Key| match *key {
                    Key::Exact(value) => value.to_string(),
                    Key::Lpm(_, len) if v6 => format!("::/{len}"),
                    Key::Lpm(value, len) => format!("{value}/{len}"),
                    Key::Ternary(value, mask) => format!("{value}&&&{mask}"),
                    Key::Range(first, last) => format!("{first}->{last}"),
                };
                let keys: Vec<String> = entry.keys.iter().map(key).collect();
                let chooses = entry
                    .keys
                    .iter()
                    .any(|key| matches!(key, Key::Ternary(..) | Key::Range(..)));
                // In BMv2 the smallest one applies.
                let priority = if chooses {
                    (1_000_000 - entry.priority).to_string()
                } else {
                    String::new()
                };
                let (keys, parameters) = (keys.join(" "), list(&entry.parameters));
                writeln!(
                    text,
                    "table_add {table} {} {keys} => {parameters} {priority}",
                    entry.action
                )
                .unwrap();
            }
        }
    }
    text
}

/// A visit with what BMv2 measures: microseconds, and one queue.
pub(crate) fn measured(arrival: &Arrival) -> Visit {
    Visit {
        ingress_if: 1,
        egress_if: 2,
        ingress_ts: arrival.ingress_ts * 1000,
        egress_ts: arrival.egress_ts * 1000,
        queue_id: 0,
        queue_occupancy: arrival.deq_qdepth,
        tx_utilization: 0,
        buffer_occupancy: u32::MAX,
        l2_interfaces: [0; 2],
        mtu: 0,
        from_edge: false,
        to_edge: false,
        from_border: false,
    }
}
