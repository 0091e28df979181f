//! Detects devices whose reports do not arrive, and tells a device that sends none from reports lost in transit.

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

/// Maximum number of sinks named.
const MAX_NAMES: usize = 4;

/// The number of reports that a device has sent, by its own count.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceReports {
    pub(super) reported: Reported,
    /// When it reported this, ns, by the steady clock.
    pub(super) reported_at: u64,
    /// Time at which it last had more packets to report, ns; `None` if never since the manager's start.
    advanced: Option<u64>,
    /// Time at which it had last sent more datagrams, ns; `None` if never since the manager's start.
    sent: Option<u64>,
}

impl Core {
    /// Stores a device's count of its reports.
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
            // The device has restarted, and its counters with it.
            self.reporters.remove(&node.to_string());
        }
    }

    /// Compares sent with arrived reports of devices. `local`: this host's addresses among the collectors.
    pub(in crate::role) fn compare(
        &mut self,
        arrived: &BTreeMap<NodeId, Arrived>,
        local: BTreeSet<IpAddr>,
        now: Now,
    ) {
        self.local = local;
        self.arrivals = Arrivals {
            datagrams: arrived.values().map(|arrivals| arrivals.datagrams).sum(),
            lost: arrived.values().map(|arrivals| arrivals.lost).sum(),
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

    /// Returns whether a device sends its reports to the collector in this process.
    pub(super) fn reports_here(&self, node: NodeId) -> bool {
        self.session(node)
            .is_some_and(|to| self.listens.iter().any(|listen| arrives(listen, to, &self.local)))
    }

    /// Describes a device whose reports do not arrive, or returns `None` if they do.
    pub(super) fn silence(&self, node: NodeId, now: Now) -> Option<String> {
        let inventory = self.manager.inventory();
        let name = node.to_string();
        match self
            .reporters
            .state(&name, |node| inventory.name(node), now.steady)?
        {
            State::Silent(silent) => silent.first().map(|silent| {
                // The device's sent counter is updated late. If it has not advanced lately, the device sends nothing.
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

    /// Describes sinks that have nothing to report, while packets of an intent match at sources and no report of them arrives.
    pub(super) fn idle_sinks(&self, name: &str, state: Option<&State>, now: Now) -> Option<String> {
        let Some(State::Silent(silent)) = state else {
            return None;
        };
        let ends = self
            .totals
            .get(name)
            .map(|since| &since.ends)
            .filter(|ends| !ends.is_empty());
        let sources: BTreeSet<NodeId> = silent.iter().map(|source| source.node).collect();
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

/// Returns whether something never happened, or longer ago than the silence threshold.
fn is_old(time: Option<u64>, now: u64) -> bool {
    time.is_none_or(|time| now >= time.saturating_add(SILENCE))
}

/// Describes a device whose reports do not arrive.
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

/// Describes idle sinks. `ended`: the intent's flows are known to have ended there.
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

/// Returns whether reports to `to` arrive at a listener. The address must be one of this host's (`local`).
pub(super) fn arrives(listen: &Listen, to: SocketAddr, local: &BTreeSet<IpAddr>) -> bool {
    match listen {
        Listen::Udp(address) if !address.ip().is_unspecified() => *address == to,
        Listen::Udp(address) => address.port() == to.port() && local.contains(&to.ip()),
        Listen::UdpAny(port) => *port == to.port() && local.contains(&to.ip()),
        Listen::Xdp { ports, .. } => ports.contains(&to.port()) && local.contains(&to.ip()),
    }
}

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
