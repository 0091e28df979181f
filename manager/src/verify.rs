//! Verifies that an intent works, from the reports at the collector and the devices' counters.
//!
//! About once a second, a [`Verifier`] gets the counters of the collector and the devices. It derives each intent's state:
//! `pending → installed → seen → complete`, or `silent` with a sentence that says where reports are missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::device::NodeId;
use crate::instruction::{self, Bits};

/// An edge device is silent if matching packets cause no report for this long, ns; detected within 10 s.
pub const SILENCE: u64 = 8_000_000_000;

const SECOND: u64 = 1_000_000_000;

/// Maximum age of a device's counters, ns. Drivers and the collector each poll once a second.
const LATE: u64 = 3_000_000_000;

/// Maximum number of device names in a sentence.
const MAX_NAMES: usize = 4;

/// Fewer packets than this without a report are no sign of a fault, because they may have been dropped in transit.
const FEWEST: u64 = 10;

/// Counters of one edge device for one intent. All start at the same time; only differences matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdgeCounters {
    /// Packets that matched at the device, or from which it removed INT; `None` if it does not count them.
    pub packets: Option<u64>,
    /// Reports of the intent's flows that arrived from the device.
    pub reports: u64,
    /// Datagrams with reports that the device has sent; `None` if it does not count them.
    pub sent: Option<u64>,
    /// The device's reports that the network lost, derived from sequence numbers.
    pub lost: u64,
}

/// Counters of a device that measures packets of one intent, and the arrival of their reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceCounters {
    /// Packets that matched and were measured at the device, so that they must be reported.
    pub packets: u64,
    /// Sampling: one matching packet in `sample` was measured.
    pub sample: u32,
    /// Time of the last report of a flow that is measured there, ns; `None` if there was none.
    pub last_report: Option<u64>,
}

/// Totals over all devices and flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Datagrams that arrived at the collector.
    pub datagrams: u64,
    /// Datagrams that the network lost, derived from sequence numbers.
    pub lost: u64,
}

/// Counters of one intent from the collector and the devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntentCounters {
    /// Matching flows that the collector knows.
    pub flows: u64,
    /// Counters of each edge device that reports.
    pub edges: BTreeMap<NodeId, EdgeCounters>,
    /// Counters of each device that measures and counts packets; empty if not every measured packet is reported.
    pub sources: BTreeMap<NodeId, SourceCounters>,
    /// Datagrams of all devices and flows.
    pub arrivals: Arrivals,
    /// Devices on the paths of the matching flows, as far as reports name them.
    pub nodes: BTreeSet<NodeId>,
    /// Requested bits that a device on these paths never filled, by device.
    pub missing: BTreeMap<NodeId, Bits>,
    /// Number of reports whose path was complete.
    pub complete: u64,
    /// Flows that have been reported for some time, and still are, without a complete path.
    pub without_path: u64,
}

/// The state of an intent.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// At least one device lacks entries of the intent.
    Pending,
    /// All devices have the intent's entries; no matching packet is known.
    Installed,
    /// Reports of the intent arrive.
    Seen(Figures),
    /// Reports arrive, and all paths contain everything that the intent requests.
    Complete(Figures),
    /// Packets match, but reports are missing.
    Silent(Vec<Silence>),
}

impl State {
    /// Returns the name of this state in the API.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Installed => "installed",
            Self::Seen(_) => "seen",
            Self::Complete(_) => "complete",
            Self::Silent(_) => "silent",
        }
    }
}

/// Figures of an intent whose reports arrive.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Flows that matched the intent.
    pub flows: u64,
    /// Rate of reports per second.
    pub rate: f64,
    /// Time since the last report, ns.
    pub age: u64,
    /// Requested bits that a device never filled, by device.
    pub missing: BTreeMap<NodeId, Bits>,
    /// Flows without a complete path.
    pub without_path: u64,
}

/// An edge device whose reports are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Node id of the device.
    pub node: NodeId,
    /// Name of the device.
    pub name: String,
    /// Time since the intent was installed, ns.
    pub installed: u64,
    /// Packets that matched since the last report, or since the installation; with sampling, only measured packets.
    pub packets: u64,
    /// Sampling: one packet in `sample` was measured.
    pub sample: u32,
    /// Time since the last report, ns; `None` if there was none.
    pub last_report: Option<u64>,
    /// Reports that the network lost in that time.
    pub lost: u64,
    /// Evidence of where reports are lost.
    pub evidence: Evidence,
}

/// Evidence of where the missing reports are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The device does not count its reports.
    NotCounted,
    /// The device sends no reports, so it is at fault.
    SendsNone,
    /// The device has sent this many datagrams. They were lost in transit, or the collector refused them.
    Sends(u64),
    /// The reports may come from another device. The flag is true if reports of any device arrive.
    Elsewhere(bool),
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            installed,
            packets,
            sample,
            lost,
            ..
        } = self;
        write!(
            f,
            "{name} installed it {} s ago, {packets} packets matched",
            installed / SECOND
        )?;
        if *sample > 1 {
            write!(f, " and were measured (1 in {sample})")?;
        }
        f.write_str(", ")?;
        match self.last_report {
            None => f.write_str("no report arrived")?,
            Some(age) => write!(f, "the last report arrived {} s ago", age / SECOND)?,
        }
        let evidence = match self.evidence {
            Evidence::NotCounted => format!("{name} does not count what it sends"),
            Evidence::SendsNone => format!("{name} has sent no report since then"),
            Evidence::Sends(sent) => format!("{name} has sent {sent} datagrams since then"),
            Evidence::Elsewhere(true) => "reports of other flows arrive".to_owned(),
            Evidence::Elsewhere(false) => "no report of any device arrives".to_owned(),
        };
        write!(f, " (loss budget: {lost} lost in the network; {evidence})")
    }
}

/// The counters of one edge device over time.
#[derive(Clone, Debug)]
struct Edge {
    counters: EdgeCounters,
    /// Counters at the time of the last report, or at the installation.
    then: EdgeCounters,
    last_report: Option<u64>,
    /// Time at which packets first matched without a report, ns.
    waiting_since: Option<u64>,
}

/// The counters of one measuring device over time.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    packets: u64,
    sample: u32,
    last_report: Option<u64>,
    /// Packet count when the last report had certainly been counted, or at the installation.
    packets_then: u64,
    /// Total arrivals at that time.
    arrivals_then: Arrivals,
    /// Time at which packets first matched without a report, ns.
    waiting_since: Option<u64>,
}

impl Source {
    /// Stores new counters. Reports from before `installed` do not count.
    fn observe(&mut self, new: &SourceCounters, arrivals: Arrivals, installed: u64, now: u64) {
        self.packets = new.packets;
        self.sample = new.sample;
        let last = new.last_report.filter(|last| *last >= installed);
        if last > self.last_report {
            self.last_report = last;
            self.waiting_since = None;
        }
        // A device's counters lag by up to `LATE`, so its newest packets may have been reported already.
        let is_recent = self
            .last_report
            .is_some_and(|last| now < last.saturating_add(LATE));
        if is_recent || new.packets < self.packets_then {
            self.packets_then = new.packets;
            self.arrivals_then = arrivals;
        } else if new.packets >= self.packets_then + FEWEST {
            self.waiting_since.get_or_insert(now);
        }
    }

    fn silence(
        &self,
        node: NodeId,
        name: String,
        installed: u64,
        arrivals: Arrivals,
        now: u64,
    ) -> Option<Silence> {
        let since = self.waiting_since?;
        if now < since.saturating_add(SILENCE) {
            return None;
        }
        Some(Silence {
            node,
            name,
            installed: now.saturating_sub(installed),
            packets: self.packets.saturating_sub(self.packets_then),
            sample: self.sample,
            last_report: self.last_report.map(|last| now.saturating_sub(last)),
            lost: arrivals.lost.saturating_sub(self.arrivals_then.lost),
            evidence: Evidence::Elsewhere(arrivals.datagrams > self.arrivals_then.datagrams),
        })
    }
}

/// The counters of one intent over time.
#[derive(Clone, Debug, Default)]
struct Record {
    /// Time at which the intent was installed on all its devices, ns.
    installed: Option<u64>,
    counters: IntentCounters,
    edges: BTreeMap<NodeId, Edge>,
    sources: BTreeMap<NodeId, Source>,
    /// Time of the last counters, ns; the rate of reports per second; and the reports in total.
    observed: Option<u64>,
    rate: f64,
    reports: u64,
}

/// Derives the states of all intents from their counters over time.
#[derive(Clone, Debug, Default)]
pub struct Verifier {
    records: BTreeMap<String, Record>,
}

impl Verifier {
    /// Records whether an intent is installed on all its devices. A new or withdrawn intent starts over.
    pub fn set_installed(&mut self, intent: &str, installed: bool, now: u64) {
        let record = self.records.entry(intent.to_owned()).or_default();
        match (record.installed, installed) {
            (None, true) => {
                // Counting starts here; earlier counts are no evidence.
                record.installed = Some(now);
                for edge in record.edges.values_mut() {
                    edge.then = edge.counters.clone();
                    edge.last_report = None;
                    edge.waiting_since = None;
                }
                for source in record.sources.values_mut() {
                    *source = Source {
                        packets: source.packets,
                        packets_then: source.packets,
                        arrivals_then: record.counters.arrivals,
                        ..Source::default()
                    };
                }
            }
            (Some(_), false) => record.installed = None,
            _ => {}
        }
    }

    /// Removes the state of an intent.
    pub fn remove(&mut self, intent: &str) {
        self.records.remove(intent);
    }

    /// Stores the counters of an intent at `now`, ns.
    pub fn observe(&mut self, intent: &str, counters: IntentCounters, now: u64) {
        let record = self.records.entry(intent.to_owned()).or_default();
        for (node, new) in &counters.edges {
            let is_new = !record.edges.contains_key(node);
            let edge = record.edges.entry(*node).or_insert_with(|| Edge {
                counters: new.clone(),
                then: new.clone(),
                last_report: None,
                waiting_since: None,
            });
            // The first counters of an edge device may already contain reports.
            let before = if is_new { 0 } else { edge.counters.reports };
            if new.reports > before {
                edge.last_report = Some(now);
                edge.waiting_since = None;
                edge.then = new.clone();
            } else if new.packets > edge.then.packets {
                edge.waiting_since.get_or_insert(now);
            }
            edge.counters = new.clone();
        }
        let installed = record.installed.unwrap_or(now);
        record
            .sources
            .retain(|node, _| counters.sources.contains_key(node));
        for (node, new) in &counters.sources {
            let start = Source {
                packets: new.packets,
                packets_then: new.packets,
                arrivals_then: counters.arrivals,
                ..Source::default()
            };
            record
                .sources
                .entry(*node)
                .or_insert(start)
                .observe(new, counters.arrivals, installed, now);
        }
        let reports = counters.edges.values().map(|edge| edge.reports).sum();
        if let Some(before) = record.observed.filter(|before| *before < now) {
            // A restarted collector counts from 0 again; `reports_between` handles that.
            record.rate = reports_between(record.reports, reports) as f64 * 1e9 / (now - before) as f64;
        }
        record.reports = reports;
        record.observed = Some(now);
        record.counters = counters;
    }

    /// Returns the time since the last report of an intent's flows, ns, or `None` if there was none since the installation.
    pub fn last_report(&self, intent: &str, now: u64) -> Option<u64> {
        let edges = self.records.get(intent)?.edges.values();
        edges
            .filter_map(|edge| edge.last_report)
            .max()
            .map(|last| now.saturating_sub(last))
    }

    /// Returns the state of an intent, or `None` if it is unknown. `names` returns a device's name.
    pub fn state(&self, intent: &str, names: impl Fn(NodeId) -> String, now: u64) -> Option<State> {
        let record = self.records.get(intent)?;
        let Some(installed) = record.installed else {
            return Some(State::Pending);
        };
        let mut silent: Vec<Silence> = record
            .edges
            .iter()
            .filter(|(_, edge)| {
                edge.waiting_since
                    .is_some_and(|since| now >= since.saturating_add(SILENCE))
            })
            .map(|(node, edge)| Silence {
                node: *node,
                name: names(*node),
                installed: now.saturating_sub(installed),
                packets: edge
                    .counters
                    .packets
                    .unwrap_or(0)
                    .saturating_sub(edge.then.packets.unwrap_or(0)),
                sample: 1,
                last_report: edge.last_report.map(|last| now.saturating_sub(last)),
                lost: edge.counters.lost.saturating_sub(edge.then.lost),
                evidence: match (edge.counters.sent, edge.then.sent) {
                    (Some(sent), Some(then)) if sent > then => Evidence::Sends(sent - then),
                    (Some(_), Some(_)) => Evidence::SendsNone,
                    _ => Evidence::NotCounted,
                },
            })
            .collect();
        silent.extend(record.sources.iter().filter_map(|(node, source)| {
            source.silence(*node, names(*node), installed, record.counters.arrivals, now)
        }));
        if !silent.is_empty() {
            return Some(State::Silent(silent));
        }
        let Some(last) = record.edges.values().filter_map(|edge| edge.last_report).max() else {
            return Some(State::Installed);
        };
        let IntentCounters {
            flows,
            missing,
            complete,
            without_path,
            ..
        } = &record.counters;
        let age = now.saturating_sub(last);
        let figures = Figures {
            flows: *flows,
            rate: record.rate,
            age,
            missing: missing.clone(),
            without_path: *without_path,
        };
        let is_complete = missing.is_empty() && *complete > 0 && *without_path == 0;
        Some(if is_complete {
            State::Complete(figures)
        } else {
            State::Seen(figures)
        })
    }
}

/// Returns the increase of a counter, or its value if it was reset.
fn reports_between(before: u64, after: u64) -> u64 {
    after.checked_sub(before).unwrap_or(after)
}

/// Describes unreachable devices, given as name and failure, on an intent's paths. `age` is that of the last report, ns.
///
/// Returns whether the intent is silent, and the text; `None` if there are no such devices. Without recent reports the intent
/// is silent, because its packets may not get through.
pub fn unreachable_text(devices: &[(String, String)], age: Option<u64>) -> Option<(bool, String)> {
    if devices.is_empty() {
        return None;
    }
    let shown = devices
        .iter()
        .take(MAX_NAMES)
        .map(|(name, state)| format!("{name} ({state})"));
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = match devices.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let text = format!("on its path: {shown}{more}");
    Some(match age {
        Some(age) if age < SILENCE => (false, text),
        Some(age) => (
            true,
            format!("{text}; the last report arrived {} s ago", age / 1_000_000_000),
        ),
        None => (true, format!("{text}; no report has arrived")),
    })
}

/// Describes which devices never filled which requested values.
pub fn missing_text(missing: &BTreeMap<NodeId, Bits>, names: impl Fn(NodeId) -> String) -> String {
    let each = missing
        .iter()
        .map(|(node, bits)| format!("{} never filled {}", names(*node), instruction::names(*bits)));
    let rate = missing.values().any(|bits| bits & instruction::bit(7) != 0);
    let rate = rate.then(|| "a device knows its link utilization only if it knows the rate of the link: set `rate` of [[switch.ports]] on a hopwise switch".to_owned());
    each.chain(rate).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn counted(packets: u64, reports: u64, sent: u64) -> IntentCounters {
        let edge = EdgeCounters {
            packets: Some(packets),
            reports,
            sent: Some(sent),
            lost: 0,
        };
        let complete = reports / 2;
        IntentCounters {
            flows: 3,
            edges: [(3, edge)].into(),
            complete,
            ..IntentCounters::default()
        }
    }

    fn state(verifier: &Verifier, now: u64) -> State {
        verifier.state("a", |node| format!("leaf{node}"), now).unwrap()
    }

    #[test]
    fn an_intent_goes_from_pending_to_complete() {
        let mut verifier = Verifier::default();
        verifier.set_installed("a", false, 0);
        assert_eq!(state(&verifier, 0), State::Pending);
        verifier.set_installed("a", true, S);
        verifier.observe("a", counted(0, 0, 7), S);
        assert_eq!(state(&verifier, S), State::Installed);
        verifier.observe("a", counted(20, 1, 8), 2 * S);
        let figures = Figures {
            flows: 3,
            rate: 1.0,
            age: 0,
            missing: BTreeMap::new(),
            without_path: 0,
        };
        assert_eq!(state(&verifier, 2 * S), State::Seen(figures.clone()));
        verifier.observe("a", counted(60, 41, 48), 4 * S);
        let figures = Figures {
            rate: 20.0,
            age: S,
            ..figures
        };
        assert_eq!(state(&verifier, 5 * S), State::Complete(figures.clone()));
        // Another flow has no path.
        verifier.observe(
            "a",
            IntentCounters {
                without_path: 1,
                ..counted(80, 61, 68)
            },
            5 * S,
        );
        assert_eq!(
            state(&verifier, 6 * S),
            State::Seen(Figures {
                without_path: 1,
                ..figures
            })
        );
    }

    #[test]
    fn a_sink_that_is_broken_in_silence_is_named_within_ten_seconds() {
        let mut verifier = Verifier::default();
        verifier.set_installed("a", true, S);
        for second in 1..=10 {
            assert_eq!(
                state(&verifier, second * S).name() == "silent",
                second == 10,
                "{second}"
            );
            verifier.observe("a", counted(1000 * (second - 1), 0, 7), second * S);
        }
        let State::Silent(silent) = state(&verifier, 10 * S) else {
            panic!()
        };
        let expected = "leaf3 installed it 9 s ago, 9000 packets matched, no report arrived (loss budget: 0 lost in the network; leaf3 has sent no report since then)";
        assert_eq!(silent[0].to_string(), expected);
        // One report ends it; then it stops again.
        verifier.observe("a", counted(10_000, 1, 8), 11 * S);
        assert_eq!(state(&verifier, 11 * S).name(), "seen");
        for second in 12..=20 {
            verifier.observe("a", counted(1000 * second, 1, 9), second * S);
        }
        let State::Silent(silent) = state(&verifier, 20 * S) else {
            panic!()
        };
        let expected = "leaf3 installed it 19 s ago, 10000 packets matched, the last report arrived 9 s ago (loss budget: 0 lost in the network; leaf3 has sent 1 datagrams since then)";
        assert_eq!(silent[0].to_string(), expected);
    }

    #[test]
    fn a_device_that_does_not_know_the_rate_of_its_links_is_named() {
        let text = |missing: [(NodeId, Bits); 1]| missing_text(&missing.into(), |node| format!("leaf{node}"));
        let expected = "leaf3 never filled tx_utilization; a device knows its link utilization only if it knows the rate of the link: set `rate` of [[switch.ports]] on a hopwise switch";
        assert_eq!(text([(3, 0x0100)]), expected);
        assert_eq!(text([(4, 0x2000)]), "leaf4 never filled hop_latency");
    }

    #[test]
    fn a_source_whose_packets_are_not_reported_is_named() {
        let counters = |packets, last_report, datagrams, lost| IntentCounters {
            sources: [(
                3,
                SourceCounters {
                    packets,
                    sample: 1,
                    last_report,
                },
            )]
            .into(),
            arrivals: Arrivals { datagrams, lost },
            ..IntentCounters::default()
        };
        let mut verifier = Verifier::default();
        // Another intent had these flows measured before.
        verifier.observe("a", counters(500, Some(S), 9, 4), S);
        verifier.set_installed("a", true, 2 * S);
        for second in 3..23 {
            verifier.observe("a", counters(500 + 60 * second, Some(S), 9, 5), second * S);
        }
        let State::Silent(silent) = state(&verifier, 22 * S) else {
            panic!()
        };
        let sampled = Silence {
            sample: 10,
            ..silent[0].clone()
        }
        .to_string();
        let expected = "1320 packets matched and were measured (1 in 10), no report arrived";
        assert!(sampled.contains(expected), "{sampled}");
        let expected = "leaf3 installed it 20 s ago, 1320 packets matched, no report arrived (loss budget: 1 lost in the network; no report of any device arrives)";
        assert_eq!(silent[0].to_string(), expected);

        // One that arrives ends it; counters that are late are no silence.
        verifier.observe("a", counters(2_000, Some(23 * S), 10, 5), 23 * S);
        verifier.observe("a", counters(3_000, Some(23 * S), 10, 5), 25 * S);
        for second in 26..60 {
            verifier.observe(
                "a",
                counters(3_000 + FEWEST - 1, Some(23 * S), 10 + second, 5),
                second * S,
            );
        }
        assert!(!matches!(state(&verifier, 60 * S), State::Silent(_)));
        verifier.observe("a", counters(3_000 + FEWEST, Some(23 * S), 99, 5), 60 * S);
        let State::Silent(silent) = state(&verifier, 68 * S) else {
            panic!()
        };
        let expected = "leaf3 installed it 66 s ago, 10 packets matched, the last report arrived 45 s ago (loss budget: 0 lost in the network; reports of other flows arrive)";
        assert_eq!(silent[0].to_string(), expected);
    }

    #[test]
    fn unreachable_devices_of_a_path_are_named_and_silence_is_theirs() {
        let devices = [
            ("s2".to_owned(), "unreachable: connection refused".to_owned()),
            (
                "s3".to_owned(),
                "failed: it refuses to be read: driver bug".to_owned(),
            ),
        ];
        let each = "on its path: s2 (unreachable: connection refused), s3 (failed: it refuses to be read: driver bug)";
        let cases = [
            (Some(7 * S), (false, each.to_owned())),
            (
                Some(54 * S),
                (true, format!("{each}; the last report arrived 54 s ago")),
            ),
            (None, (true, format!("{each}; no report has arrived"))),
        ];
        for (age, expected) in cases {
            assert_eq!(unreachable_text(&devices, age), Some(expected));
        }
        assert_eq!(unreachable_text(&[], Some(54 * S)), None);
        let mut verifier = Verifier::default();
        verifier.set_installed("a", true, S);
        verifier.observe("a", counted(0, 0, 7), S);
        assert_eq!(verifier.last_report("a", 9 * S), None);
        verifier.observe("a", counted(20, 1, 8), 2 * S);
        assert_eq!(
            (verifier.last_report("a", 9 * S), verifier.last_report("b", 9 * S)),
            (Some(7 * S), None)
        );
    }

    #[test]
    fn without_packets_there_is_no_silence() {
        let mut verifier = Verifier::default();
        verifier.set_installed("a", true, S);
        for second in 1..100 {
            verifier.observe("a", counted(5, 0, 7), second * S);
        }
        assert_eq!(state(&verifier, 100 * S), State::Installed);
    }
}
