//! The changes made to a running lab: the faults of its links, and the measurement mode that overrides the topology file's.
//!
//! The switches at the ends of a link apply its faults. Each impairs the packets that it sends, so both directions of a link
//! between switches are affected. A host impairs nothing, so its switch also impairs the packets that it receives (`in_…`).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use settings::setting::{Setting, Shown};
use settings::values::{Fraction, Rate, duration_text};

use crate::topology::{Node, Port, Topology};

/// Changes to a running lab, stored in its state file.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Conditions {
    /// Measurement mode of all switches; `off` for none, `None` for the topology file's.
    pub(crate) mode: Option<String>,
    /// Active faults, oldest first.
    pub(crate) faults: Vec<ActiveFault>,
}

/// Fault that is active at a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct ActiveFault {
    /// Name of the link, which is the name of its first interface.
    pub(crate) link: String,
    pub(crate) fault: Fault,
}

/// Kind and strength of a link's fault.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    /// All packets are dropped.
    Cut {
        /// Changes routes to avoid the link after 200 ms, if there is another path.
        reroute: bool,
    },
    /// Loses this share of the packets, from 0 to 1.
    Loss(f64),
    /// Delays packets by this time, ns.
    Delay(u64),
    /// Reorders this share of the packets, from 0 to 1.
    Reorder(f64),
    /// Limits the rate to this, bit/s.
    Slow(u64),
}

impl Conditions {
    /// Returns the faults of a link.
    pub(crate) fn faults_of(&self, link: &str) -> impl Iterator<Item = Fault> {
        self.faults
            .iter()
            .filter(move |active| active.link == link)
            .map(|active| active.fault)
    }

    /// Returns the indices of the links that routes avoid.
    pub(crate) fn avoided_links(&self, topology: &Topology) -> Vec<usize> {
        self.faults
            .iter()
            .filter(|active| active.fault == Fault::Cut { reroute: true })
            .filter_map(|active| topology.find_link(&active.link).ok())
            .collect()
    }

    /// Describes the active faults for people.
    pub(crate) fn descriptions(&self) -> Vec<String> {
        self.faults.iter().map(ActiveFault::describe).collect()
    }

    /// Describes the measurement mode for people.
    pub(crate) fn mode_text(&self) -> &str {
        self.mode.as_deref().unwrap_or("as the file says")
    }

    /// Adds a fault; it replaces a fault of the same kind at the same link.
    pub(crate) fn add(&mut self, active: ActiveFault) {
        let kind = std::mem::discriminant(&active.fault);
        self.faults
            .retain(|other| other.link != active.link || std::mem::discriminant(&other.fault) != kind);
        self.faults.push(active);
    }
}

impl ActiveFault {
    /// Describes the fault for people.
    pub(crate) fn describe(&self) -> String {
        let link = &self.link;
        match self.fault {
            Fault::Cut { .. } => format!("{link} is cut"),
            Fault::Loss(share) => format!("{link} loses {} % of the packets", share * 100.0),
            Fault::Delay(time) => format!("{link} takes {}", duration_text(time)),
            Fault::Reorder(share) => format!("{link} reorders {} % of the packets", share * 100.0),
            Fault::Slow(rate) => format!("{link} passes {}", Rate(rate)),
        }
    }
}

impl Fault {
    /// Returns the keys of a switch port's configuration that cause the fault.
    pub(crate) fn keys(self, port: &Port) -> Vec<(&'static str, Shown)> {
        let is_host_port = matches!(port.peer, Node::Host(_));
        let (send_key, receive_key, value) = match self {
            Self::Cut { .. } => return vec![("up", false.show())],
            Self::Loss(share) => ("loss", "in_loss", Fraction((share * 1e6).round() as u32).show()),
            Self::Delay(time) => ("delay", "in_delay", Duration::from_nanos(time).show()),
            Self::Reorder(share) => (
                "reorder",
                "in_reorder",
                Fraction((share * 1e6).round() as u32).show(),
            ),
            Self::Slow(rate) => ("rate", "in_rate", Rate(rate).show()),
        };
        let mut keys = vec![(send_key, value.clone())];
        keys.extend(is_host_port.then_some((receive_key, value)));
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_a_host_link_affects_both_directions() {
        let port = |peer| Port {
            number: 1,
            link: 0,
            end: 0,
            peer,
        };
        let keys = |fault: Fault, peer| {
            let keys = fault.keys(&port(peer)).into_iter();
            keys.map(|(key, value)| format!("{key}={}", value.to_json()))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let (is_host_port, switch) = (Node::Host(0), Node::Switch(0));
        assert_eq!(keys(Fault::Loss(0.02), switch), "loss=0.02");
        assert_eq!(keys(Fault::Loss(0.02), is_host_port), "loss=0.02 in_loss=0.02");
        assert_eq!(keys(Fault::Cut { reroute: true }, is_host_port), "up=false");
        assert_eq!(
            keys(Fault::Delay(5_000_000), is_host_port),
            "delay=\"5ms\" in_delay=\"5ms\""
        );
        assert_eq!(
            keys(Fault::Slow(5_000_000), is_host_port),
            "rate=\"5Mbit/s\" in_rate=\"5Mbit/s\""
        );
        assert_eq!(keys(Fault::Reorder(0.5), switch), "reorder=0.5");
    }

    #[test]
    fn a_fault_replaces_one_of_the_same_kind() {
        let mut conditions = Conditions::default();
        let active = |link: &str, fault| ActiveFault {
            link: link.to_owned(),
            fault,
        };
        for (link, fault) in [
            ("a-b", Fault::Loss(0.5)),
            ("a-b", Fault::Slow(5_000_000)),
            ("b-c", Fault::Loss(0.25)),
            ("a-b", Fault::Loss(0.02)),
            ("a-b", Fault::Cut { reroute: false }),
            ("a-b", Fault::Delay(1_000_000)),
        ] {
            conditions.add(active(link, fault));
        }
        let described: Vec<String> = conditions.faults.iter().map(ActiveFault::describe).collect();
        let expected = [
            "a-b passes 5Mbit/s",
            "b-c loses 25 % of the packets",
            "a-b loses 2 % of the packets",
            "a-b is cut",
            "a-b takes 1ms",
        ];
        assert_eq!(described, expected);
        assert_eq!(conditions.faults_of("a-b").count(), 4);
        let text = serde_json::to_string(&conditions).unwrap();
        assert_eq!(serde_json::from_str::<Conditions>(&text).ok(), Some(conditions));
    }
}
