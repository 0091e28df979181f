//! Reports that do not arrive: which device does not send them, or whose are lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use manager::{
    device::NodeId,
    driver::Reported,
    verify::{Arrivals, EdgeCounters, Evidence, IntentCounters, SILENCE, Silence, State},
};

use super::{
    super::{clock::Now, count::Arrived},
    Core,
};
use settings::listen::Listen;

/// The reports that a device has sent, by its own count.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceReports {
    pub(super) reported: Reported,
    /// When it reported this, ns, by the steady clock.
    pub(super) reported_at: u64,
    /// When it last had another packet to report, ns; `None`: not since the manager began.
    advanced: Option<u64>,
    /// When it last had sent another datagram, likewise.
    sent: Option<u64>,
}

impl Core {
    /// Stores the counters of the reports that a device has sent.
    pub(super) fn add_reported(&mut self, node: NodeId, reported: Reported, now: Now) {
        let before = self.device_reports.get(&node).copied();
        let packets = before.map(|before| before.reported.packets);
        let is_more = packets.is_some_and(|before| reported.packets > before);
        let advanced = if is_more {
            Some(now.steady)
        } else {
            before.and_then(|before| before.advanced)
        };
        let is_sending = before.is_some_and(|before| reported.sent > before.reported.sent);
        let sent = if is_sending {
            Some(now.steady)
        } else {
            before.and_then(|before| before.sent)
        };
        self.device_reports.insert(
            node,
            DeviceReports {
                reported,
                reported_at: now.steady,
                advanced,
                sent,
            },
        );
        if packets.is_some_and(|before| reported.packets < before) {
            // It has restarted, and counts anew.
            self.reporters.remove(&node.to_string());
        }
    }

    /// Compares the reports that devices have sent with those that have arrived here. `local`: the addresses of collectors that this host has.
    pub(in crate::role) fn compare(
        &mut self,
        arrived: &BTreeMap<NodeId, Arrived>,
        local: BTreeSet<IpAddr>,
        now: Now,
    ) {
        self.local = local;
        self.arrivals = Arrivals {
            datagrams: arrived.values().map(|one| one.datagrams).sum(),
            lost: arrived.values().map(|one| one.lost).sum(),
        };
        for (node, device) in self.device_reports.clone() {
            let Reported { packets, sent } = device.reported;
            let name = node.to_string();
            if !self.reports_here(node) {
                self.reporters.remove(&name);
                continue;
            }
            let Arrived { datagrams, lost } = arrived.get(&node).copied().unwrap_or_default();
            let edge = EdgeCounters {
                packets: Some(packets),
                reports: datagrams,
                sent,
                lost,
            };
            let counters = IntentCounters {
                edges: [(node, edge)].into(),
                ..IntentCounters::default()
            };
            self.reporters.set_installed(&name, true, now.steady);
            self.reporters.observe(&name, counters, now.steady);
        }
    }

    /// Whether a device sends its reports to the collector of this process.
    pub(super) fn reports_here(&self, node: NodeId) -> bool {
        self.session(node)
            .is_some_and(|to| self.listens.iter().any(|listen| arrives(listen, to, &self.local)))
    }

    /// The sentence about a device whose reports do not arrive.
    pub(super) fn silence(&self, node: NodeId, now: Now) -> Option<String> {
        let inventory = self.manager.inventory();
        let name = node.to_string();
        match self
            .reporters
            .state(&name, |node| inventory.name(node), now.steady)?
        {
            State::Silent(silent) => silent.first().map(|silent| {
                // Its counters are late: datagrams that have arrived are among those that it has sent since then.
                let sent = self.device_reports.get(&node).and_then(|counted| counted.sent);
                let evidence = match silent.evidence {
                    Evidence::Sends(_) if is_old(sent, now.steady) => Evidence::SendsNone,
                    evidence => evidence,
                };
                text(&Silence {
                    evidence,
                    ..silent.clone()
                })
            }),
            _ => None,
        }
    }

    /// The sentence about sinks that have no packets to report, while packets of an intent match at sources and nothing of them arrives.
    pub(super) fn idle_sinks(&self, name: &str, state: Option<&State>, now: Now) -> Option<String> {
        let Some(State::Silent(silent)) = state else {
            return None;
        };
        let ends = self
            .totals
            .get(name)
            .map(|since| &since.ends)
            .filter(|ends| !ends.is_empty());
        let sources: BTreeSet<NodeId> = silent.iter().map(|one| one.node).collect();
        let sinks: Vec<NodeId> = match ends {
            Some(ends) => ends.keys().copied().collect(),
            None => {
                let devices = self.manager.compiler().topology().devices.iter();
                let edges = devices
                    .filter(|(_, ports)| !ports.edge.is_empty())
                    .map(|(node, _)| *node);
                edges.filter(|node| !sources.contains(node)).collect()
            }
        };
        let idle = sinks
            .into_iter()
            .filter(|node| {
                let device = self.device_reports.get(node);
                device.is_some_and(|device| is_old(device.advanced, now.steady))
            })
            .map(|node| self.manager.inventory().name(node));
        idle_text(idle.collect(), ends.is_some())
    }
}

/// Whether something never happened, or longer ago than silence takes.
fn is_old(time: Option<u64>, now: u64) -> bool {
    time.is_none_or(|time| now >= time.saturating_add(SILENCE))
}

/// The sentence about a device whose reports do not arrive.
fn text(silent: &Silence) -> String {
    let Silence {
        name, packets, lost, ..
    } = silent;
    let since = silent.last_report.unwrap_or(silent.installed) / 1_000_000_000;
    let arrived = format!("no report of it has arrived since then ({lost} datagrams lost in the network)");
    match silent.evidence {
        Evidence::SendsNone => format!(
            "{name} had {packets} packets to report in {since} s, and has sent no report of them: it cannot reach the collector, or is broken (`unsent` of its GET /api/v1/switch)"
        ),
        Evidence::Sends(sent) => format!(
            "{name} reported {packets} packets in {since} s in {sent} datagrams, and {arrived}: they are lost in transit, or not accepted here"
        ),
        _ => format!("{name} reported {packets} packets in {since} s, and {arrived}"),
    }
}

/// The sentence about idle sinks. `ended`: flows of the intent are known to have ended there.
fn idle_text(names: Vec<String>, ended: bool) -> Option<String> {
    let more = match names.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let list = names
        .iter()
        .take(MAX_NAMES)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    (!names.is_empty()).then(|| match ended {
        true => format!(
            "its flows ended at {list}{more}, which counts no packet to report: it removes INT and does not report, or the packets no longer get there"
        ),
        false => format!("of the sinks, {list}{more} count no packet to report"),
    })
}

/// Whether reports to an address arrive at a listener. Another collector may have the same port: `local` are addresses of this host.
pub(super) fn arrives(listen: &Listen, to: SocketAddr, local: &BTreeSet<IpAddr>) -> bool {
    match listen {
        Listen::Udp(address) if !address.ip().is_unspecified() => *address == to,
        Listen::Udp(address) => address.port() == to.port() && local.contains(&to.ip()),
        Listen::UdpAny(port) => *port == to.port() && local.contains(&to.ip()),
        Listen::Xdp { ports, .. } => ports.contains(&to.port()) && local.contains(&to.ip()),
    }
}

/// Sinks that are named.
const MAX_NAMES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn silent(evidence: Evidence) -> Silence {
        let (name, last_report) = ("s3".to_owned(), Some(9_000_000_000));
        Silence {
            node: 3,
            name,
            installed: 60_000_000_000,
            packets: 70,
            sample: 1,
            last_report,
            lost: 0,
            evidence,
        }
    }

    #[test]
    fn a_sink_that_sends_nothing_and_reports_that_are_lost_differ() {
        let none = "s3 had 70 packets to report in 9 s, and has sent no report of them: it cannot reach the collector, or is broken (`unsent` of its GET /api/v1/switch)";
        let lost = "s3 reported 70 packets in 9 s in 12 datagrams, and no report of it has arrived since then (0 datagrams lost in the network): they are lost in transit, or not accepted here";
        let unknown = "s3 reported 70 packets in 9 s, and no report of it has arrived since then (0 datagrams lost in the network)";
        let texts =
            [Evidence::SendsNone, Evidence::Sends(12), Evidence::NotCounted].map(|one| text(&silent(one)));
        assert_eq!(texts, [none, lost, unknown]);
    }

    #[test]
    fn sinks_that_count_nothing_are_named() {
        let idle =
            |names: &[&str], ends| idle_text(names.iter().map(|name| (*name).to_owned()).collect(), ends);
        assert_eq!(idle(&[], true), None);
        assert_eq!(
            idle(&["s3"], true).unwrap(),
            "its flows ended at s3, which counts no packet to report: it removes INT and does not report, or the packets no longer get there"
        );
        assert_eq!(
            idle(&["s1", "s2", "s3", "s4", "s5", "s6"], false).unwrap(),
            "of the sinks, s1, s2, s3, s4 and 2 more count no packet to report"
        );
    }

    #[test]
    fn reports_to_another_collector_with_the_same_port_do_not_arrive_here() {
        let local = BTreeSet::from(["10.0.0.1".parse().unwrap()]);
        let at = |listen: &Listen, to: &str| arrives(listen, to.parse().unwrap(), &local);
        let all = [Listen::UdpAny(9555), Listen::Udp("0.0.0.0:9555".parse().unwrap())];
        for listen in &all {
            let seen = ["10.0.0.1:9555", "10.0.0.2:9555", "10.0.0.1:9556"].map(|to| at(listen, to));
            assert_eq!(seen, [true, false, false], "{listen:?}");
        }
        let one = Listen::Udp("10.0.0.2:9555".parse().unwrap());
        assert_eq!(
            ["10.0.0.1:9555", "10.0.0.2:9555"].map(|to| at(&one, to)),
            [false, true]
        );
    }
}
