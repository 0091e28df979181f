//! The network of `hopwise demo`: a small leaf–spine fabric with a script: about ten thousand reports per second, a microburst
//! every twenty seconds, and every minute a link failure that is routed around and repaired.

use crate::fabric::{
    Action, Channel, Config, DropReason, Fabric, Family, FlowId, FlowSpec, Pattern, Topology, Transport, Wire,
};
use crate::switch::{self, Congestion};
use crate::watchlist::{Watch, Watchlist};

/// Unit of queue occupancy in the demo's reports.
pub const QUEUE_UNIT: &str = "bytes";
/// One unit of utilization in the demo's reports, as a fraction of 1.
pub const UTILIZATION_SCALE: f64 = 0.0001;
/// Thresholds per metric, in the metric's unit, which the script exceeds and the background traffic does not. Without them,
/// each of ten thousand packets per second would cause about two events.
pub const THRESHOLDS: detect::threshold::Set = {
    let mut set = [0; detect::Metric::COUNT];
    set[detect::Metric::FlowLatency as usize] = 2 * MS;
    set[detect::Metric::HopLatency as usize] = MS;
    set[detect::Metric::QueueOccupancy as usize] = 10_000;
    set[detect::Metric::QueueCongestion as usize] = 10_000;
    set[detect::Metric::LinkUtilization as usize] = 400_000;
    set
};
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Period of the script, ns.
const PERIOD: u64 = 60 * SECOND;
/// Number of scripted periods (a day). After that only the traffic continues.
const PERIODS: u64 = 24 * 60;
/// Seconds into each minute at which a microburst begins.
const BURSTS: [u64; 3] = [5, 25, 45];
/// Second of each minute at which the link fails.
const CUT: u64 = 30;
/// Second of each minute at which the link is restored.
const RESTORE: u64 = 38;
/// Hosts that send the microburst.
const BURST_FROM: [u32; 4] = [10_001, 10_003, 10_004, 10_006];
/// The host that receives the microburst.
const BURST_TO: u32 = 10_008;
/// Number of packets that each of these hosts sends.
const BURST_PACKETS: u32 = 60;
/// The link that fails.
const LINK: (u32, u32) = (101, 201);

/// A line of the demo's script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Time of the action, ns since the start.
    pub at: u64,
    /// Description of the action for the user.
    pub text: String,
}

/// Returns the drop reason codes and their names in the demo's reports.
pub fn drop_reasons() -> impl Iterator<Item = (u8, &'static str)> {
    DropReason::ALL
        .into_iter()
        .filter(|reason| *reason != DropReason::LostOnLink)
        .map(|reason| (reason.code(), reason.name()))
}

/// Returns the demo, starting at time 0: the fabric, and its script for a day.
///
/// # Errors
/// None in practice: all nodes and links in the script exist.
pub fn scenario(seed: u64) -> Result<(Fabric, Vec<Line>), String> {
    scenario_at(seed, 0)
}

/// Returns the demo, starting at `start` (ns since the epoch by the switches' clocks).
///
/// # Errors
/// None in practice: all nodes and links in the script exist.
pub fn scenario_at(seed: u64, start: u64) -> Result<(Fabric, Vec<Line>), String> {
    let mut fabric = Fabric::new(topology(), config(start), seed)?;
    for spec in background(start) {
        fabric.add_flow(&spec)?;
    }
    let mut bursts = Vec::new();
    for (index, from) in BURST_FROM.into_iter().enumerate() {
        let spec = FlowSpec {
            pattern: Pattern::Idle,
            payload: 1_000,
            ..FlowSpec::new(from, BURST_TO, 7_000 + index as u16, 9_000)
        };
        bursts.push(fabric.add_flow(&spec)?);
    }
    let script = script(&mut fabric, &bursts, start)?;
    Ok((fabric, script))
}

/// Returns a topology of four leaves with two hosts each and two spines. All links have 100 Mb/s and 128 KiB of queue, slow
/// enough to queue.
fn topology() -> Topology {
    let wire = Wire {
        rate: 100_000_000,
        delay: 5_000,
        depth: 131_072,
    };
    Topology::leaf_spine(4, 2, 2, wire).unwrap_or_else(|error| unreachable!("a constant shape: {error}"))
}

fn config(start: u64) -> Config {
    let switch = switch::Config {
        congestion: Some(Congestion {
            rise: 65_536,
            fall: 16_384,
            quota: 0,
        }),
        ..switch::Config::default()
    };
    Config {
        start,
        convergence: 200 * MS,
        switch,
        watchlist: Watchlist::from(Watch::default()),
        channel: Channel {
            loss: 20,
            duplication: 5,
            reordering: 20,
            ..Channel::default()
        },
        // Postcards need hop limits for their order.
        routed: true,
        ..Config::default()
    }
}

/// Returns 56 flows of several kinds, from each host to every other, with about 180 packets/s each.
fn background(start: u64) -> impl Iterator<Item = FlowSpec> {
    let hosts = 10_001..=10_008u32;
    hosts
        .clone()
        .flat_map(move |from| hosts.clone().map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
        .enumerate()
        .map(move |(index, (from, to))| {
            let index = index as u16;
            FlowSpec {
                family: if index % 7 == 3 { Family::V6 } else { Family::V4 },
                transport: if index % 3 == 1 {
                    Transport::Tcp
                } else {
                    Transport::Udp
                },
                payload: 200 + index % 9 * 100,
                pattern: match index % 4 {
                    0 => Pattern::constant(180),
                    1 => Pattern::OnOff {
                        gap: MS,
                        on: 40 * MS,
                        off: 180 * MS,
                        random: true,
                    },
                    _ => Pattern::poisson(180),
                },
                start: start + u64::from(index) * 30 * MS,
                ..FlowSpec::new(from, to, 20_000 + index, if index % 3 == 1 { 443 } else { 5_000 })
            }
        })
}

/// Schedules the bursts and the link failures of all periods, and returns a line of the script for each.
fn script(fabric: &mut Fabric, bursts: &[FlowId], start: u64) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    let (a, b) = LINK;
    let link = format!("leaf1-spine1 ({a}-{b})");
    for period in 0..PERIODS {
        for second in BURSTS {
            let at = period * PERIOD + second * SECOND;
            for &flow in bursts {
                fabric.schedule(
                    start + at,
                    Action::Burst {
                        flow,
                        packets: BURST_PACKETS,
                        gap: 0,
                    },
                )?;
            }
            let text =
                format!("microburst: h1, h3, h4 and h6 send {BURST_PACKETS} packets each to h8 at once");
            lines.push(Line { at, text });
        }
        let cut = period * PERIOD + CUT * SECOND;
        let restore = period * PERIOD + RESTORE * SECOND;
        fabric.schedule(start + cut, Action::CutLink { a, b })?;
        fabric.schedule(start + restore, Action::MendLink { a, b })?;
        lines.push(Line {
            at: cut,
            text: format!("link {link} fails; new routes in 200 ms"),
        });
        lines.push(Line {
            at: restore,
            text: format!("link {link} is restored"),
        });
    }
    lines.sort_by_key(|line| line.at);
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::fabric::{FabricSink, GroundTruth, Reporter};
    use crate::report::ReportKind;

    /// Observed rates of the demo, per second.
    #[derive(Default)]
    struct Observed {
        reports: BTreeMap<u64, usize>,
        drops: BTreeMap<(u64, u32, &'static str), usize>,
        paths: BTreeMap<u64, usize>,
        queues: BTreeMap<(u64, u32), u32>,
        deepest: BTreeMap<u64, (u32, u32)>,
    }

    impl FabricSink for Observed {
        fn report(&mut self, t: u64, _from: &Reporter, _payload: &[u8]) {
            *self.reports.entry(t / SECOND).or_default() += 1;
        }

        fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
            match truth {
                GroundTruth::Dropped {
                    trace, node, reason, ..
                } => {
                    *self
                        .drops
                        .entry((trace.ended / SECOND, *node, reason.name()))
                        .or_default() += 1;
                }
                GroundTruth::PathChange { at, .. } => *self.paths.entry(at / SECOND).or_default() += 1,
                GroundTruth::Datagram(datagram) => {
                    for report in &datagram.reports {
                        if report.kind == ReportKind::Queue {
                            *self
                                .queues
                                .entry((datagram.sent / SECOND, datagram.node))
                                .or_default() += 1;
                        }
                    }
                }
                GroundTruth::Delivered(trace) => {
                    let second = trace.ended / SECOND;
                    for hop in trace.hops {
                        let deepest = self.deepest.entry(second).or_default();
                        *deepest = (*deepest).max((hop.queue_occupancy, hop.node));
                    }
                }
                _ => {}
            }
        }
    }

    #[test]
    fn the_script_can_be_seen() {
        let (mut fabric, script) = scenario(1).unwrap();
        let mut audience = Observed::default();
        fabric.run_until(42 * SECOND, &mut audience);
        let Observed {
            reports,
            drops,
            paths,
            queues,
            deepest,
        } = audience;
        let steady = reports
            .range(1..42)
            .all(|(_, count)| (5_000..20_000).contains(count));
        assert!(steady, "{reports:?}");
        for (second, (depth, _)) in &deepest {
            let burst = [5, 25].contains(second);
            assert!(
                if burst { *depth > 100_000 } else { *depth < 10_000 },
                "second {second}: {depth} bytes"
            );
        }
        let lost = |wanted: &str| {
            drops
                .iter()
                .filter(|((_, _, why), _)| *why == wanted)
                .map(|(_, n)| n)
                .sum::<usize>()
        };
        assert!(
            (1..200).contains(&lost("queue_full")) && lost("link_down") > 100,
            "{drops:?}"
        );
        assert_eq!(lost("no_route") + lost("ttl_zero"), 0);
        assert_eq!(
            paths.keys().copied().collect::<Vec<_>>(),
            [CUT, RESTORE],
            "flows move away and come back"
        );
        assert_eq!(paths[&CUT], paths[&RESTORE]);
        assert!(
            queues.keys().all(|(second, _)| [5, 25].contains(second)) && !queues.is_empty(),
            "{queues:?}"
        );
        let begin: Vec<String> = script[..5]
            .iter()
            .map(|line| format!("{} {}", line.at / SECOND, line.text))
            .collect();
        assert_eq!(
            begin,
            [
                "5 microburst: h1, h3, h4 and h6 send 60 packets each to h8 at once",
                "25 microburst: h1, h3, h4 and h6 send 60 packets each to h8 at once",
                "30 link leaf1-spine1 (101-201) fails; new routes in 200 ms",
                "38 link leaf1-spine1 (101-201) is restored",
                "45 microburst: h1, h3, h4 and h6 send 60 packets each to h8 at once",
            ]
        );
        assert_eq!(script.len() as u64, PERIODS * 5);
    }

    #[test]
    fn a_capture_can_begin_at_any_time_of_the_run() {
        let start = 1_790_000_000_000_000_000;
        let (mut fabric, _) = scenario_at(1, start).unwrap();
        assert_eq!(fabric.now(), start);
        fabric.run_until(start + 5_100 * MS, &mut ());
        assert!(fabric.flows().all(|flow| flow.sent > 0), "bursts included");
    }

    #[test]
    fn reasons_have_names() {
        let names: Vec<_> = drop_reasons().collect();
        assert_eq!(
            names,
            [
                (26, "ttl_zero"),
                (29, "no_route"),
                (71, "queue_full"),
                (128, "link_down")
            ]
        );
    }
}
