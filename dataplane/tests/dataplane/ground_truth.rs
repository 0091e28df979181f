//! Reports match the ground truth: every report of a busy, failing, congested fabric is decoded and compared with the
//! truth, item by item.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

use std::collections::{BTreeMap, HashMap, VecDeque};

use dataplane::fabric::{
    Channel, DatagramOutcome, DatagramTruth, DropReason, FlowSpec, Frames, HopTruth, ReportKind, ReportTruth,
    Transport, Wire,
};
use dataplane::report::{Format, Version};
use dataplane::switch::{self, Congestion, Mark};
use dataplane::watchlist::Mode;
use dataplane::{Action, Config, Fabric, FabricSink, GroundTruth, Pattern, Reporter, Topology, Watch};
use wire::report::Decoder;
use wire::{Hop, Profile, Report};

const MS: u64 = 1_000_000;

/// Compares each report that arrives with the ground truth that was recorded when it was sent.
struct Auditor {
    decoder: Decoder,
    mode: Mode,
    format: Format,
    bitmap: u16,
    underway: HashMap<(u32, u8, u32), VecDeque<DatagramTruth>>,
    kinds: BTreeMap<ReportKind, usize>,
    longest: usize,
    /// Sent and received packets of each flow.
    sent: BTreeMap<Vec<u8>, u64>,
    received: BTreeMap<Vec<u8>, u64>,
    drops_reported: BTreeMap<(u32, u8), usize>,
    drops_true: BTreeMap<(u32, u8), usize>,
    path_changes: usize,
}

impl Auditor {
    fn new(config: &Config, watch: &Watch) -> Self {
        let profile = Profile {
            int_udp_port: config.switch.mark.port.unwrap_or(0),
            ..Profile::default()
        };
        Self {
            decoder: Decoder::new(profile),
            mode: watch.mode,
            format: config.switch.format,
            bitmap: watch.bitmap,
            underway: HashMap::new(),
            kinds: BTreeMap::new(),
            longest: 0,
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            drops_reported: BTreeMap::new(),
            drops_true: BTreeMap::new(),
            path_changes: 0,
        }
    }

    fn check(&self, report: &Report<'_>, truth: &ReportTruth) {
        let sf = report.int.and_then(|int| int.sf);
        assert_eq!(sf, truth.sf.map(|truth| truth.sf), "{truth:?}");
        if let Some(truth) = truth.sf {
            let carried = report.int.unwrap().stack.hop(0);
            let (_, real) = truth.carried.expect("a record that was made");
            assert_eq!(carried.ingress_ts, Some(real.ingress_ts()), "{truth:?}");
            assert_eq!(
                report.metadata_hop().ingress_ts,
                Some(truth.reporter.ingress_ts())
            );
        }
        let hops: Vec<Hop> = report.hops().collect();
        let path: Vec<Option<u32>> = hops.iter().map(|hop| hop.node_id).collect();
        assert_eq!(
            path,
            truth.path().into_iter().map(Some).collect::<Vec<_>>(),
            "{truth:?}"
        );
        match truth.kind {
            ReportKind::Queue => {
                assert!(report.flags == wire::Flags::QUEUE);
                assert_eq!(hops[0].queue_occupancy, Some(truth.hops[0].queue_occupancy));
                return;
            }
            ReportKind::Drop => {
                assert!(report.flags.contains(wire::Flags::DROP));
                assert_eq!(report.drop_reason, truth.reason.map(DropReason::code));
                assert_eq!(
                    hops[hops.len() - 1].egress_if,
                    truth.hops[hops.len() - 1].known_egress()
                );
            }
            ReportKind::Flow | ReportKind::Postcard => {
                for (at, (hop, truth)) in hops.iter().zip(&truth.hops).enumerate() {
                    let is_reporter = at + 1 == hops.len();
                    let wanted = self.wanted(truth, is_reporter && self.in_header());
                    let got = Hop {
                        carried: wanted.carried,
                        wide_ts: wanted.wide_ts,
                        ..*hop
                    };
                    assert_eq!(got, wanted);
                }
            }
        }
        if self.mode == Mode::Postcard && truth.kind == ReportKind::Postcard {
            assert_eq!(report.flow_id, Some(truth.flow.flow_id()));
        } else {
            assert_eq!(report.flow, Some(truth.flow));
        }
    }

    fn in_header(&self) -> bool {
        !self.format.metadata_on_stack || matches!(self.mode, Mode::Mx21 | Mode::Postcard)
    }

    /// The expected items of a hop; a report's header does not have fields for all of them.
    fn wanted(&self, truth: &HopTruth, header: bool) -> Hop {
        let v10_header = header && self.format.version == Version::V10;
        let has = |bit: u32| self.bitmap & 0x8000 >> bit != 0;
        let wide = !v10_header && (header || self.mode != Mode::Md10);
        let stamp = |ts: u64| if wide { ts } else { ts & 0xffff_ffff };
        Hop {
            node_id: Some(truth.node),
            ingress_if: has(1).then_some(truth.ingress_if),
            egress_if: has(1).then_some(truth.egress_if),
            hop_latency: has(2).then_some(truth.hop_latency() as u32),
            queue_id: has(3).then_some(truth.egress_if as u8),
            queue_occupancy: has(3).then_some(truth.queue_occupancy),
            ingress_ts: (has(4) || v10_header).then_some(stamp(truth.ingress_ts())),
            egress_ts: has(5).then_some(stamp(truth.egress_ts())),
            tx_utilization: has(7).then_some(truth.tx_utilization),
            ..Hop::default()
        }
    }
}

trait Known {
    fn known_egress(&self) -> Option<u16>;
}

impl Known for HopTruth {
    fn known_egress(&self) -> Option<u16> {
        (self.egress_if != 0).then_some(self.egress_if)
    }
}

impl FabricSink for Auditor {
    fn report(&mut self, _t: u64, from: &Reporter, payload: &[u8]) {
        let mut decoder = self.decoder.clone();
        let reports: Vec<Report<'_>> = decoder.reports(payload).map(|report| report.unwrap()).collect();
        let key = (from.node, reports[0].hw_id, reports[0].seq);
        let datagram = self
            .underway
            .get_mut(&key)
            .and_then(VecDeque::pop_front)
            .expect("a datagram that was sent");
        assert_eq!(reports.len(), datagram.reports.len());
        for (report, truth) in reports.iter().zip(&datagram.reports) {
            assert_eq!(report.node_id, Some(from.node));
            self.check(report, truth);
            *self.kinds.entry(truth.kind).or_default() += 1;
            self.longest = self.longest.max(truth.hops.len());
            if truth.kind == ReportKind::Drop {
                *self
                    .drops_reported
                    .entry((from.node, report.drop_reason.unwrap()))
                    .or_default() += 1;
            }
        }
    }

    fn frame(&mut self, _t: u64, node: u32, interface: u16, frame: &[u8]) {
        let is_host = node > 10_000;
        // A host's only interface is 1; a leaf's interfaces 1 and 2 lead to its hosts.
        if is_host {
            *self.sent.entry(frame.to_vec()).or_default() += 1;
        } else if (100..200).contains(&node) && interface <= 2 {
            *self.received.entry(frame.to_vec()).or_default() += 1;
        }
    }

    fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
        match truth {
            GroundTruth::Datagram(datagram) => {
                let copies = match datagram.outcome {
                    DatagramOutcome::Lost => 0,
                    DatagramOutcome::Duplicated => 2,
                    DatagramOutcome::Delivered | DatagramOutcome::Delayed => 1,
                };
                let key = (datagram.node, datagram.hw_id, datagram.seq);
                let queue = self.underway.entry(key).or_default();
                queue.extend((0..copies).map(|_| (*datagram).clone()));
            }
            GroundTruth::Dropped {
                node,
                reason,
                reported,
                ..
            } => {
                assert_eq!(*reported, *reason != DropReason::LostOnLink && *node < 10_000);
                if *reported {
                    *self.drops_true.entry((*node, reason.code())).or_default() += 1;
                }
            }
            GroundTruth::PathChange { .. } => self.path_changes += 1,
            _ => {}
        }
    }
}

/// Four leaves, two spines, clocks with different offsets, 40 flows, bursts to one host, a link that fails and is restored.
fn busy(config: Config, seed: u64) -> Fabric {
    let wire = Wire {
        rate: 100_000_000,
        delay: 5_000,
        depth: 60_000,
    };
    let mut topology = Topology::leaf_spine(4, 2, 2, wire).unwrap();
    for (node, offset) in [(101, 1_500_000), (103, -2_000_000), (201, 77)] {
        assert!(topology.set_clock_offset(node, offset));
    }
    let start = config.start;
    let mut fabric = Fabric::new(topology, config, seed).unwrap();
    for at in 0..40u16 {
        let (from, to) = (
            10_001 + u32::from(at % 8),
            10_001 + u32::from((at % 8 + 1 + at % 7) % 8),
        );
        let spec = FlowSpec {
            family: if at % 5 == 2 {
                dataplane::fabric::Family::V6
            } else {
                dataplane::fabric::Family::V4
            },
            transport: if at % 3 == 0 {
                Transport::Tcp
            } else {
                Transport::Udp
            },
            payload: 100 + at * 20,
            pattern: if at % 2 == 0 {
                Pattern::poisson(400)
            } else {
                Pattern::constant(300)
            },
            start: start + u64::from(at) * MS / 8,
            ..FlowSpec::new(from, to, 30_000 + at, 443)
        };
        fabric.add_flow(&spec).unwrap();
    }
    for (at, from) in [10_001, 10_003, 10_005].into_iter().enumerate() {
        let spec = FlowSpec {
            payload: 500,
            pattern: Pattern::Idle,
            ..FlowSpec::new(from, 10_008, 7_000 + at as u16, 9)
        };
        let flow = fabric.add_flow(&spec).unwrap();
        fabric
            .schedule(
                start + 40 * MS,
                Action::Burst {
                    flow,
                    packets: 100,
                    gap: 0,
                },
            )
            .unwrap();
    }
    fabric
        .schedule(start + 100 * MS, Action::CutLink { a: 102, b: 202 })
        .unwrap();
    fabric
        .schedule(start + 300 * MS, Action::MendLink { a: 102, b: 202 })
        .unwrap();
    fabric
        .schedule(start + 200 * MS, Action::Wipe { node: 201 })
        .unwrap();
    fabric
}

fn config(format: Format, watch: Watch) -> Config {
    Config {
        start: 1_790_000_000_000_000_000,
        convergence: 50 * MS,
        switch: switch::Config {
            format,
            congestion: Some(Congestion {
                rise: 20_000,
                fall: 5_000,
                quota: 0,
            }),
            ..switch::Config::default()
        },
        watchlist: watch.into(),
        frames: Frames::Sent,
        channel: Channel {
            loss: 10_000,
            duplication: 10_000,
            reordering: 20_000,
            ..Channel::default()
        },
        ..Config::default()
    }
}

fn audit(config: Config, watch: Watch) -> (Fabric, Auditor) {
    let mut auditor = Auditor::new(&config, &watch);
    let end = config.start + 450 * MS;
    let mut fabric = busy(config, 11);
    for flow in fabric.flow_ids() {
        fabric.schedule(end - 20 * MS, Action::StopFlow(flow)).unwrap();
    }
    fabric.run_until(end, &mut auditor);
    (fabric, auditor)
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, from start to end")]
fn every_report_matches_the_ground_truth() {
    let watch = Watch::default();
    let v20 = Format::default();
    let v10 = Format {
        version: Version::V10,
        ..v20
    };
    let cases = [
        (v20, watch),
        (
            Format {
                metadata_on_stack: true,
                ethernet: true,
                ..v20
            },
            watch,
        ),
        (
            Format {
                group: 8,
                subsystems: 3,
                drop_with_int: true,
                ..v20
            },
            watch,
        ),
        (
            v20,
            Watch {
                mode: Mode::Md10,
                ..watch
            },
        ),
        (
            Format {
                metadata_on_stack: true,
                ..v10
            },
            Watch {
                mode: Mode::Md10,
                ..watch
            },
        ),
        (
            v10,
            Watch {
                mode: Mode::Md10,
                bitmap: 0xf500,
                ..watch
            },
        ),
        (
            v20,
            Watch {
                mode: Mode::Sf,
                ..watch
            },
        ),
        (
            Format {
                group: 4,
                drop_with_int: true,
                ..v20
            },
            Watch {
                mode: Mode::Sf,
                ..watch
            },
        ),
        (
            Format { group: 4, ..v20 },
            Watch {
                mode: Mode::Mx21,
                ..watch
            },
        ),
        (
            Format { group: 16, ..v20 },
            Watch {
                mode: Mode::Postcard,
                bitmap: 0x1c00,
                ..watch
            },
        ),
    ];
    for (case, (format, watch)) in cases.into_iter().enumerate() {
        for port in [None, Some(33_122)] {
            let mut config = config(format, watch);
            config.switch.mark = Mark {
                port,
                ..Mark::default()
            };
            let (fabric, auditor) = audit(config, watch);
            assert!(
                auditor.underway.values().all(VecDeque::is_empty),
                "all have arrived"
            );
            let hop_reports = matches!(watch.mode, Mode::Md21 | Mode::Md10 | Mode::Sf);
            let kind = if hop_reports {
                ReportKind::Flow
            } else {
                ReportKind::Postcard
            };
            let counts = [kind, ReportKind::Drop, ReportKind::Queue].map(|kind| auditor.kinds[&kind]);
            assert!(
                counts[0] > 5_000 && counts[1] > 100 && counts[2] >= 1,
                "case {case}: {counts:?}"
            );
            // An SF-INT report contains the carried record and at most the sink's.
            let longest = if watch.mode == Mode::Sf { 2 } else { 3 };
            assert_eq!(auditor.longest, if hop_reports { longest } else { 1 });
            assert!(auditor.path_changes >= 4, "{}", auditor.path_changes);
            for totals in fabric.flows() {
                assert_eq!(totals.sent, totals.delivered + totals.dropped, "{}", totals.flow);
            }
            // Packets arrive byte for byte as they were sent.
            for (frame, count) in &auditor.received {
                assert!(
                    auditor.sent.get(frame).is_some_and(|sent| sent >= count),
                    "case {case}"
                );
            }
        }
    }
}

#[test]
fn without_faults_every_drop_except_on_a_link_is_reported() {
    let watch = Watch::default();
    let config = Config {
        channel: Channel::default(),
        ..config(Format::default(), watch)
    };
    let (fabric, auditor) = audit(config, watch);
    assert_eq!(auditor.drops_reported, auditor.drops_true);
    assert!(
        auditor
            .drops_true
            .keys()
            .any(|&(_, reason)| reason == DropReason::LinkDown.code())
    );
    assert!(
        auditor
            .drops_true
            .keys()
            .any(|&(_, reason)| reason == DropReason::QueueFull.code())
    );
    assert!(
        fabric
            .channel_totals()
            .iter()
            .all(|one| one.sent == one.arrived && one.lost == 0)
    );
}

#[test]
fn the_counters_of_the_channel_balance() {
    let watch = Watch::default();
    let (fabric, _) = audit(
        config(
            Format {
                subsystems: 2,
                ..Format::default()
            },
            watch,
        ),
        watch,
    );
    let totals = fabric.channel_totals();
    let sum = |count: fn(&dataplane::fabric::ChannelTotals) -> u64| totals.iter().map(count).sum::<u64>();
    assert!(totals.iter().all(|one| one.sent == one.arrived + one.lost));
    assert!(sum(|one| one.lost) > 20 && sum(|one| one.duplicated) > 20 && sum(|one| one.reordered) > 20);
}

/// Hashes all output of the fabric.
#[derive(Default)]
struct Fingerprint {
    hash: u64,
    reports: u64,
}

impl FabricSink for Fingerprint {
    fn report(&mut self, t: u64, from: &Reporter, payload: &[u8]) {
        self.reports += 1;
        let numbers = t.to_be_bytes().into_iter().chain(from.node.to_be_bytes());
        for byte in numbers.chain(payload.iter().copied()) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let watch = Watch::default();
    let run = |seed, steps: u64| {
        let mut fabric = busy(config(Format::default(), watch), seed);
        let mut print = Fingerprint::default();
        for step in 1..=steps {
            fabric.run_until(1_790_000_000_000_000_000 + step * 450 * MS / steps, &mut print);
        }
        (print.reports, print.hash)
    };
    let first = run(11, 1);
    assert_eq!(first, run(11, 1));
    assert_eq!(first, run(11, 450), "however it is cut into steps");
    assert_ne!(first, run(12, 1));
    // A constant, so that a change of the model, or a difference between platforms, is detected.
    assert_eq!(first, (6570, 6_791_513_621_030_541_395));
}
