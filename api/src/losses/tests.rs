//! Tests of losses on simulated networks that record the truth: the API names the lossy links.

use collector::{Batch, Collector, Datagram};
use dataplane::fabric::{DropReason, FlowSpec, Wire};
use dataplane::watchlist::Mode;
use dataplane::{
    Action, Config, Fabric, FabricSink, GroundTruth, Pattern, Reporter, Topology, Watch, switch,
};
use detect::Match;
use store::{DropSum, LinkCount, Reader, ReportRow, Span, Store};
use testkit::records::{Dir, SECOND, START};
use wire::{Decoder, Profile};

use super::*;

const MS: u64 = 1_000_000;

/// Collects what a collector says of a fabric's reports, and what really happened to the packets.
struct Observer {
    collector: Collector,
    batch: Batch,
    rows: Vec<ReportRow>,
    decoder: Decoder,
    /// What was behind interfaces, looked at once a second.
    memory: LinkMemory,
    looked: u64,
    /// Packets lost on each link.
    truth: BTreeMap<(u32, u32), u64>,
    reported_drops: BTreeMap<u32, u64>,
}

impl Observer {
    fn new() -> Self {
        Self {
            collector: Collector::new(collector::Config::default()),
            batch: Batch::with_capacity(400_000),
            rows: Vec::new(),
            decoder: Decoder::new(Profile::default()),
            memory: LinkMemory::default(),
            looked: 0,
            truth: BTreeMap::new(),
            reported_drops: BTreeMap::new(),
        }
    }
}

impl FabricSink for Observer {
    fn report(&mut self, t: u64, from: &Reporter, payload: &[u8]) {
        let std::net::IpAddr::V4(address) = from.address else {
            return;
        };
        let source = address.to_ipv6_mapped().octets();
        let datagram = Datagram {
            payload,
            source,
            src_port: from.port,
            listener: 0,
            received: t,
        };
        self.collector.handle(&[datagram], &mut self.batch);
        self.collector.tick(t, &mut self.batch);
        if t - self.looked >= SECOND {
            self.looked = t;
            self.memory
                .learn(&self.collector.topology_links().collect::<Vec<_>>());
        }
        let rows = self
            .decoder
            .reports(payload)
            .flatten()
            .map(|report| ReportRow::new(&report, t, source, |_| None));
        self.rows.extend(rows);
    }

    fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
        let GroundTruth::Dropped {
            trace,
            node,
            reason,
            reported,
        } = truth
        else {
            return;
        };
        if *reported {
            *self.reported_drops.entry(*node).or_default() += 1;
        }
        if *reason == DropReason::LostOnLink {
            // The way on is the one that other packets of the flow take: over the spine, or down from it.
            let to = trace.hops.last().map_or(0, |hop| peer(*node, hop.egress_if));
            *self.truth.entry((*node, to)).or_default() += 1;
        }
    }
}

/// Three leaves of two hosts, two spines: what is behind a port. Leaves have their hosts first, then the spines.
fn peer(node: u32, port: u16) -> u32 {
    match node {
        101..=103 if port > 2 => 198 + u32::from(port),
        201 | 202 => 100 + u32::from(port),
        _ => 0,
    }
}

/// Runs a network of twelve flows for 20 s. `prepare` does the damage.
fn run(
    seed: u64,
    mode: Mode,
    channel: dataplane::fabric::Channel,
    prepare: impl FnOnce(&mut Fabric),
) -> Observer {
    let wire = Wire {
        rate: 50_000_000,
        delay: 5_000,
        depth: 60_000,
    };
    let topology = Topology::leaf_spine(3, 2, 2, wire).unwrap();
    let config = Config {
        start: START,
        convergence: 500 * MS,
        switch: switch::Config::default(),
        // Nodes, ports, hop latency and timestamps.
        watchlist: Watch {
            mode,
            bitmap: 0xec00,
            ..Watch::new(Match::default())
        }
        .into(),
        channel,
        routed: true,
        ..Config::default()
    };
    let mut fabric = Fabric::new(topology, config, seed).unwrap();
    for at in 0..12_u16 {
        let (from, to) = (
            10_001 + u32::from(at % 6),
            10_001 + u32::from((at % 6 + 2 + at % 3) % 6),
        );
        let pattern = if at % 2 == 0 {
            Pattern::poisson(60)
        } else {
            Pattern::constant(50)
        };
        let spec = FlowSpec {
            payload: 100 + at * 20,
            pattern,
            start: START,
            stop: START + 19 * SECOND,
            ..FlowSpec::new(from, to, 30_000 + at, 443)
        };
        fabric.add_flow(&spec).unwrap();
    }
    prepare(&mut fabric);
    let mut observer = Observer::new();
    fabric.run_until(START + 20 * SECOND, &mut observer);
    observer
        .collector
        .finish(START + 20 * SECOND, &mut observer.batch);
    observer
}

/// What the answer says of the links.
fn judged(observer: Observer, every_report: bool) -> (Vec<LinkLoss>, Losses) {
    let dir = Dir::new("losses-api");
    let memory = observer.memory;
    let store = Store::open(store::Config {
        reports_table: true,
        ..store::Config::new(dir.path())
    })
    .unwrap();
    store.submit(observer.batch);
    store.submit_reports(observer.rows);
    store.close();
    let span = Span::new(START, START + 60 * SECOND);
    let losses = Reader::open(dir.path())
        .unwrap()
        .losses_in(span, every_report.then_some(u64::MAX))
        .unwrap();
    let ends = Peers::from_losses(&losses, &memory);
    assert_eq!(ends.unplaced(&losses), 0);
    let fabric = [101, 102, 103, 201, 202].into_iter();
    let links = fabric.flat_map(|node| (1..5).map(move |port| (node, peer(node, port))));
    let links = links.filter(|(_, to)| *to != 0).collect();
    (
        link_losses(
            &losses,
            links,
            &ends,
            if every_report {
                Evidence::Reports
            } else {
                Evidence::Sampled
            },
        ),
        losses,
    )
}

#[test]
fn a_link_that_loses_packets_unseen_is_named_by_the_reports_of_both_ends() {
    let links = [
        (101, 201),
        (201, 103),
        (102, 202),
        (202, 101),
        (103, 201),
        (201, 102),
    ];
    for (seed, link) in (1..).zip(links) {
        let observer = run(
            seed,
            Mode::Mx21,
            dataplane::fabric::Channel::default(),
            |fabric| {
                let (from, to) = link;
                fabric
                    .schedule(
                        START,
                        Action::LoseOnLink {
                            from,
                            to,
                            loss: 30_000,
                        },
                    )
                    .unwrap();
            },
        );
        let truth = observer.truth.clone();
        assert_eq!(
            truth.keys().copied().collect::<Vec<_>>(),
            [link],
            "only that link loses packets"
        );
        let (judged, losses) = judged(observer, true);
        let guilty: Vec<_> = judged
            .iter()
            .filter(|one| one.lost.is_some_and(|lost| lost > 0))
            .collect();
        assert_eq!(guilty.len(), 1, "seed {seed}: {judged:?}");
        let found = guilty[0];
        assert_eq!(
            (found.from, found.to, found.dropped),
            (link.0, link.1, 0),
            "seed {seed}"
        );
        assert_eq!(found.lost, Some(truth[&link]), "seed {seed}: {losses:?}");
        assert_eq!(found.lost_most, found.lost, "no report was lost");
        assert_eq!((judged[0].from, judged[0].to), link, "the worst is first");
    }
}

#[test]
fn lost_reports_are_not_lost_packets() {
    let channel = dataplane::fabric::Channel {
        loss: 20_000,
        duplication: 5_000,
        ..Default::default()
    };
    for seed in 1..4 {
        let (judged, losses) = judged(run(seed, Mode::Mx21, channel, |_| ()), true);
        assert!(
            losses.reporters.values().map(|loss| loss.lost).sum::<u64>() > 50,
            "{losses:?}"
        );
        assert!(!losses.links.is_empty());
        let accused: Vec<_> = judged
            .iter()
            .filter(|one| one.lost.is_some_and(|lost| lost > 0))
            .collect();
        assert_eq!(accused, [] as [&LinkLoss; 0], "seed {seed}");
        // With both, the truth lies between what is said.
        let link = (101, 201);
        let both = run(seed, Mode::Mx21, channel, |fabric| {
            let (from, to) = link;
            fabric
                .schedule(
                    START,
                    Action::LoseOnLink {
                        from,
                        to,
                        loss: 200_000,
                    },
                )
                .unwrap();
        });
        let truth = both.truth[&link];
        let (judged, _) = self::judged(both, true);
        let found = judged.iter().find(|one| (one.from, one.to) == link).unwrap();
        let (least, most) = (found.lost.unwrap(), found.lost_most.unwrap());
        assert!(
            least > 0 && (least..=most).contains(&truth),
            "seed {seed}: {least} to {most}, {truth}"
        );
        assert_eq!((judged[0].from, judged[0].to), link);
    }
}

#[test]
fn a_link_that_fails_is_named_by_drop_reports() {
    for (seed, link) in (1..).zip([(101, 201), (103, 202), (201, 102)]) {
        let observer = run(
            seed,
            Mode::Md21,
            dataplane::fabric::Channel::default(),
            |fabric| {
                let (a, b) = link;
                fabric
                    .schedule(START + 5 * SECOND, Action::CutLink { a, b })
                    .unwrap();
            },
        );
        // After 14 s without it, no flow that is known uses the link.
        let collector = &observer.collector;
        let is_it = |one: &collector::LinkUse| [(one.from, one.to), (one.to, one.from)].contains(&link);
        assert!(!collector.topology_links().any(|one| is_it(&one)) && collector.topology_links().count() > 5);
        let reported: u64 = observer.reported_drops.values().sum();
        assert!(reported > 5, "the switches noticed it");
        let (judged, losses) = judged(observer, false);
        // The link was cut in both directions.
        let named: Vec<_> = judged
            .iter()
            .filter(|one| one.dropped > 0)
            .map(|one| (one.from, one.to))
            .collect();
        assert!(
            !named.is_empty() && named.iter().all(|one| *one == link || (one.1, one.0) == link),
            "{named:?}"
        );
        assert_eq!(judged.iter().map(|one| one.dropped).sum::<u64>(), reported);
        assert!(
            losses
                .drops
                .keys()
                .all(|place| place.reason == Some(DropReason::LinkDown.code()))
        );
        // What was lost unseen is not claimed to be nothing.
        assert!(
            judged
                .iter()
                .all(|one| one.lost.is_none() && one.unknown.is_some())
        );
    }
}

#[test]
fn what_is_not_known_is_said() {
    let count = |sent, arrived| LinkCount {
        sent,
        arrived,
        flows: 1,
        ..LinkCount::default()
    };
    let losses = Losses {
        links: [
            ((1, 2), count(10, 9)),
            ((2, 3), count(10, 20)),
            ((3, 4), count(5, 5)),
        ]
        .into(),
        silent: [(4, 5)].into(),
        concerning: [(
            2,
            ReporterLoss {
                lost: 3,
                duplicated: 0,
            },
        )]
        .into(),
        ..Losses::default()
    };
    let links = [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6)].into();
    let judged = link_losses(&losses, links, &Peers::default(), Evidence::Reports);
    let of = |from: u32| judged.iter().find(|link| link.from == from).unwrap();
    // Node 2 lost three reports: they explain the missing one.
    assert_eq!(
        (of(1).lost, of(1).lost_most, of(1).sent),
        (Some(0), Some(1), Some(10))
    );
    assert_eq!(
        (of(2).lost, of(2).unknown.as_deref()),
        (None, Some(UNEQUAL_SHARES))
    );
    assert_eq!((of(3).lost, of(3).lost_most), (Some(0), Some(0)));
    assert_eq!(of(4).unknown.as_deref(), Some(ONE_END));
    assert_eq!(of(5).unknown.as_deref(), Some(requirement(Evidence::Reports)));
    let off = link_losses(
        &Losses::default(),
        [(5, 6)].into(),
        &Peers::default(),
        Evidence::Sampled,
    );
    assert_eq!(off[0].unknown.as_deref(), Some(requirement(Evidence::Sampled)));
}

#[test]
fn drops_of_no_link_that_is_known_are_said() {
    let place = |node, egress_if| DropKey {
        node,
        egress_if,
        queue: None,
        reason: None,
    };
    let sum = |packets, first, last| DropSum {
        packets,
        flows: 1,
        first,
        last,
    };
    let [seconds, later] = [100, 900].map(|second: u64| START + second * SECOND);
    let losses = Losses {
        drops: [
            (place(Some(1), Some(5)), sum(7, seconds, seconds)),
            (place(Some(1), Some(6)), sum(20, seconds, later)),
            (place(Some(1), Some(9)), sum(30, seconds, seconds)),
            (place(Some(1), None), sum(40, seconds, seconds)),
        ]
        .into(),
        ..Losses::default()
    };
    let mut memory = LinkMemory::default();
    let link = |egress_if, to, last_seen| collector::LinkUse {
        from: 1,
        to,
        flows: 1,
        last_seen,
        egress_if: Some(egress_if),
        ingress_if: None,
        utilization: None,
        queue_occupancy: None,
        hop_latency: None,
    };
    memory.learn(&[
        link(5, 2, START),
        link(6, 3, START),
        link(6, 4, START + 500 * SECOND),
    ]);
    let ends = Peers::from_losses(&losses, &memory);
    let found = drops(&losses, &BTreeMap::new(), &ends, Evidence::Sampled);
    let said: Vec<_> = found
        .iter()
        .map(|one| (one.packets, one.to, one.to_unknown.as_deref()))
        .collect();
    let expected = [
        (40, None, None),
        (30, None, Some(NO_NODE_SEEN)),
        (20, None, Some(SEVERAL_NODES)),
        (7, Some(2), None),
    ];
    assert_eq!(said, expected);
    assert_eq!(ends.unplaced(&losses), 90);
    let judged = link_losses(&losses, BTreeSet::new(), &ends, Evidence::Sampled);
    assert_eq!(
        judged
            .iter()
            .map(|one| (one.from, one.to, one.dropped))
            .collect::<Vec<_>>(),
        [(1, 2, 7)]
    );
}
