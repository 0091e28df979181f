//! Fuzz bodies for whole stages: the counters of a stage add up, and the division of its input into bursts changes nothing.

use std::collections::HashMap;

use collector::config::{JoinConfig, PostcardConfig, Rollups};
use collector::{Batch, Collector, Config, Datagram, FlowRow, Rollup, Stats, StreamView};
use dataplane::report::Outbox;
use dataplane::switch::{self, Verdict, Visit};
use dataplane::watchlist::Mode;
use dataplane::{Switch, Watch};
use detect::{HopValues, Match, Metric, Observation, RuleSet};
use wire::{Decoder, Profile};

/// Separates the datagrams of one input.
pub const SEPARATOR: [u8; 4] = [0xfe, 0xed, 0xfa, 0xce];
/// The maximum number of datagrams of one input.
const MAX_DATAGRAMS: usize = 32;
const START: u64 = 1_700_000_000_000_000_000;
const MILLISECOND: u64 = 1_000_000;

fn parts(bytes: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut rest = bytes;
    while parts.len() < MAX_DATAGRAMS {
        let Some(at) = rest.windows(4).position(|window| window == SEPARATOR) else {
            break;
        };
        parts.push(&rest[..at]);
        rest = &rest[at + 4..];
    }
    parts.push(rest);
    parts
}

/// Output of a collector: events with their paths, flows, streams, counters.
#[derive(PartialEq, Debug)]
struct Collected {
    events: Vec<(collector::Event, Vec<u32>)>,
    drops: Vec<collector::Drop>,
    flows: Vec<(FlowRow, Vec<u32>)>,
    streams: Vec<StreamView>,
    stats: Stats,
}

/// A collector with small tables: most of the time of an input would go into making large ones.
fn small(default_profile: collector::Profile) -> Config {
    Config {
        max_flows: 256,
        max_queues: 256,
        max_links: 256,
        max_nodes: 256,
        max_sources: 64,
        push_interval: 0,
        rollup: Rollups {
            sketches: 64,
            ..Rollups::default()
        },
        default_profile,
        sf: JoinConfig {
            max_flows: 64,
            max_sets: 64,
            ..JoinConfig::default()
        },
        postcards: PostcardConfig {
            max_pending: 256,
            ..PostcardConfig::default()
        },
        ..Config::default()
    }
}

/// Steps of the clock that a datagram's first byte chooses from, in milliseconds.
const STEPS: [i64; 16] = [
    0, 1, 10, 100, 999, 1000, 1500, 2500, 7000, 60_000, 61_000, 3_600_000, 86_400_000, -1, -1500, -3_600_000,
];

/// Sums of a key over all its intervals of one length.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Total {
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

/// The key of a rollup: metric, node, interface, queue.
type RollupKey = (Metric, Option<u32>, Option<u32>, Option<u8>);

/// Totals of all keys but flows, over the intervals of `seconds`. Every interval begins at a multiple of its length.
fn totals(rollups: &[Rollup], seconds: u32) -> HashMap<RollupKey, Total> {
    let mut totals = HashMap::new();
    for rollup in rollups
        .iter()
        .filter(|rollup| rollup.interval == seconds && rollup.flow.is_none())
    {
        assert_eq!(
            rollup.ts % (u64::from(seconds) * 1000 * MILLISECOND),
            0,
            "{rollup:?}"
        );
        assert!(rollup.count > 0 && rollup.min <= rollup.max, "{rollup:?}");
        let key = (rollup.metric, rollup.node, rollup.interface, rollup.queue);
        let total = totals.entry(key).or_insert(Total {
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        });
        total.count += rollup.count;
        total.sum = total.sum.wrapping_add(rollup.sum);
        total.min = total.min.min(rollup.min);
        total.max = total.max.max(rollup.max);
    }
    totals
}

/// Rollups of `parts`, each of which begins with a byte for the time: the lower half is the step before it (see [`STEPS`]), the highest bit asks for a tick at the new time, before the datagram.
fn rolled_up(parts: &[&[u8]], profile: &Profile) -> Vec<Rollup> {
    let mut config = small(collector::Profile::new("fuzz", *profile));
    config.rollup.seconds = true;
    config.rollup.minutes = true;
    let mut collector = Collector::new(config);
    let (mut batch, mut now) = (Batch::growing(4096), START);
    for part in parts {
        let Some((first, payload)) = part.split_first() else {
            continue;
        };
        now = now.saturating_add_signed(STEPS[usize::from(first & 15)] * MILLISECOND as i64);
        if first & 0x80 != 0 {
            collector.tick(now, &mut batch);
        }
        let source = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, first >> 4 & 1];
        let datagram = Datagram {
            payload,
            source,
            src_port: 40_000,
            listener: 0,
            received: now,
        };
        collector.handle(&[datagram], &mut batch);
    }
    collector.finish(now, &mut batch);
    let stats = collector.stats();
    assert!(
        stats.decode_balance().is_balanced(),
        "{:?}",
        stats.decode_balance()
    );
    assert!(stats.state_balance().is_balanced(), "{:?}", stats.state_balance());
    batch.rollups().to_vec()
}

/// Telemetry datagrams whose clock moves by any step, also backwards: rollups of a second and of a minute have the same values.
pub fn time(bytes: &[u8], profile: &Profile) {
    let rollups = rolled_up(&parts(bytes), profile);
    assert_eq!(totals(&rollups, 1), totals(&rollups, 60));
}

/// Processes the datagrams of the input three times: entries that are new at first are known later.
fn collected(parts: &[&[u8]], profile: &Profile, burst: usize) -> Collected {
    let config = small(collector::Profile::new("fuzz", *profile));
    let mut collector = Collector::new(config);
    let mut batch = Batch::growing(4096);
    let repeated: Vec<Datagram<'_>> = (0..3)
        .flat_map(|_| parts)
        .enumerate()
        .map(|(at, payload)| Datagram {
            payload,
            source: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, at as u8 & 1],
            src_port: 40_000,
            listener: 0,
            received: START + at as u64 * MILLISECOND,
        })
        .collect();
    for datagrams in repeated.chunks(burst) {
        collector.handle(datagrams, &mut batch);
    }
    collector.finish(START + 1000 * MILLISECOND, &mut batch);
    let stats = collector.stats();
    assert_eq!(stats.datagrams, repeated.len() as u64);
    assert!(
        stats.decode_balance().is_balanced(),
        "{:?}",
        stats.decode_balance()
    );
    assert!(stats.state_balance().is_balanced(), "{:?}", stats.state_balance());
    Collected {
        events: batch
            .events()
            .map(|(event, path)| (*event, path.to_vec()))
            .collect(),
        drops: batch.drops().to_vec(),
        flows: batch.flows().map(|(row, path)| (*row, path.to_vec())).collect(),
        streams: collector.streams().collect(),
        stats,
    }
}

/// Telemetry datagrams through the whole collector: everything is counted once, and single datagrams give the result of a burst.
pub fn collect(bytes: &[u8], profile: &Profile) {
    let parts = parts(bytes);
    let one_by_one = collected(&parts, profile, 1);
    assert_eq!(one_by_one, collected(&parts, profile, 64));
    assert_eq!(one_by_one, collected(&parts, profile, 5));
}

/// A frame through source, transit and sink, in the mode that its first byte chooses: every switch counts it once, reports can be
/// read, and a frame that came without INT leaves unchanged.
pub fn switch(frame: &[u8], _: &Profile) {
    let modes = [Mode::Md21, Mode::Md10, Mode::Sf, Mode::Mx21, Mode::Postcard];
    let mode = modes[frame.first().map_or(0, |byte| usize::from(*byte) % modes.len())];
    let watch = Watch {
        mode,
        ..Watch::new(Match::default())
    };
    let config = switch::Config::default();
    // A domain that marks by DSCP has no port for INT.
    let profile = Profile {
        dscp: config.mark.dscp,
        int_udp_port: 0,
        ..Profile::default()
    };
    let plain = wire::packet::contents(frame, &profile).is_ok_and(|contents| contents.int.is_none());
    let (mut packet, mut out) = (frame.to_vec(), Outbox::default());
    for node in 1..=3 {
        let mut switch = Switch::new(node, config.clone(), watch.into()).expect("a valid configuration");
        let step = switch.forward(&mut packet, &visit(node), &mut out);
        switch.flush(&mut out);
        assert_eq!(outcomes(switch.stats()), 1, "{:?}", switch.stats());
        if step.verdict == Verdict::Discard {
            return;
        }
    }
    if !plain {
        return;
    }
    assert_eq!(packet, frame);
    let mut decoder = Decoder::new(profile);
    for datagram in out.datagrams() {
        for report in decoder.reports(datagram.payload) {
            assert!(report.is_ok(), "{:?}", report.err());
        }
    }
}

fn visit(node: u32) -> Visit {
    Visit {
        ingress_if: node as u16 * 10,
        egress_if: node as u16 * 10 + 1,
        ingress_ts: START + u64::from(node) * MILLISECOND,
        egress_ts: START + u64::from(node) * MILLISECOND + 700,
        queue_id: 1,
        queue_occupancy: node * 1000,
        tx_utilization: node * 100,
        buffer_occupancy: 0,
        l2_interfaces: [0; 2],
        mtu: 9000,
        from_edge: node == 1,
        to_edge: node == 3,
        from_border: false,
    }
}

fn outcomes(stats: &switch::Stats) -> u64 {
    stats.plain
        + stats.refused
        + stats.recorded
        + stats.swapped
        + stats.hops_exceeded
        + stats.mtu_exceeded
        + stats.not_restorable
        + stats.reported
        + stats.filtered
}

/// The text of a rule: an error has a position; of a rule without history and its negation, exactly one is true for a report in which
/// no value is missing.
pub fn rule(bytes: &[u8], _: &Profile) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let compiled = |text: &str| RuleSet::compile(&[("a rule".to_owned(), text.to_owned())]);
    let rules = match compiled(text) {
        Ok(rules) => rules,
        Err(error) => {
            let (line, column) = error.line_and_column();
            assert!(line > 0 && column > 0 && !error.to_string().is_empty());
            return;
        }
    };
    let Ok(negation) = compiled(&format!("not (\n{text}\n)")) else {
        return;
    };
    for scale in [0, 1, 1000, 1_000_000, u64::MAX >> 8] {
        let hops: Vec<HopValues> = (1..4)
            .map(|node| HopValues {
                hop_latency: scale.wrapping_mul(node),
                queue_occupancy: scale / node,
                queue_congestion: scale ^ node,
                link_utilization: scale % 1_000_001,
                node: node as u32,
            })
            .collect();
        let observation = Observation {
            flow_latency: Some(scale),
            looped: scale & 1 == 1,
            hops: &hops,
        };
        let (one, other) = (rules.evaluate(&observation), negation.evaluate(&observation));
        // A rule about a node or a hop that the report lacks is neither true nor false.
        let certain = !rules.is_stateful(0) && !text.contains(['@', '[']);
        assert!(
            one + other == 1 || !certain,
            "{one} and {other} of {observation:?}"
        );
    }
}
