//! The whole aggregator: the vectors of `vectors/aggregator`, and counters that balance under any traffic.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use aggregator::{Aggregator, Config, Output, Spread};
use aggregator::{Cause, ConfigError, RefusalReason, Stats};
use wire::aggregate::Kind;
use wire::{Aggregate, Decoder, Profile, Refusal};

#[derive(Default)]
struct Sent(Vec<(usize, Vec<u8>)>);

impl Output for Sent {
    fn send(&mut self, destination: usize, payload: &[u8]) {
        self.0.push((destination, payload.to_vec()));
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn config(words: &str) -> Config {
    let mut config = Config {
        registers: 1,
        ways: 0,
        timer: 1,
        ..Config::default()
    };
    for (name, value) in words
        .split(' ')
        .map(|word| word.split_once('=').expect("name=value"))
    {
        let number = || value.parse::<usize>().expect("a number");
        match name {
            "kind" => config.kind = Kind::from_name(value).expect("a kind"),
            "r" => config.r = number() as u32,
            "timer" => config.timer = number() as u64,
            "registers" => config.registers = number(),
            "ways" => config.ways = number(),
            "aggregator" => config.aggregator = number() as u32,
            "destinations" => config.destinations = number(),
            "spread" => {
                config.spread = if value == "node" {
                    Spread::Node
                } else {
                    Spread::Flow
                }
            }
            "interop" => config.interop = number() == 1,
            _ => panic!("unknown word {name}"),
        }
    }
    if config.ways == 0 {
        config.ways = config.registers.min(8);
    }
    config
}

fn counts(stats: &Stats) -> BTreeMap<&'static str, u64> {
    let evicted = stats.sent[Cause::Evicted as usize].postcards;
    let mut counts = BTreeMap::from([("evicted", evicted), ("missing_values", stats.missing_values)]);
    counts.extend(RefusalReason::ALL.map(|reason| (reason.name(), stats.refused[reason as usize])));
    counts.extend(Refusal::ALL.map(|refusal| (refusal.name(), stats.unreadable[refusal.index()])));
    counts.retain(|_, count| *count > 0);
    counts.extend([("postcards", stats.postcards), ("pending", stats.pending)]);
    counts
}

/// Runs a block of the vector file; returns the first mismatch.
fn run(block: &str) -> Result<(), String> {
    let (mut aggregator, mut sent, mut made) = (None, Sent::default(), 0);
    for line in block.lines().filter(|line| !line.starts_with('#')) {
        let (key, value) = line.split_once(':').expect("key: value");
        let value = value.trim();
        if key == "config" {
            aggregator = Some(Aggregator::new(config(value)).map_err(|error| error.to_string())?);
            continue;
        }
        let Some(aggregator) = &mut aggregator else {
            continue;
        };
        if key != "out" && made < sent.0.len() {
            return Err(format!("before `{line}` also sent {:02x?}", sent.0[made]));
        }
        match key {
            "in" => {
                let (at, payloads) = value.split_once(' ').expect("a time and bytes");
                let payloads: Vec<_> = payloads.split(',').map(hex).collect();
                aggregator.ingest(
                    at.parse().expect("a time"),
                    payloads.iter().map(Vec::as_slice),
                    &mut sent,
                );
            }
            "tick" => aggregator.tick(value.parse().expect("a time"), &mut sent),
            "finish" => aggregator.finish(&mut sent),
            "out" => {
                let (to, bytes) = value.split_once(' ').expect("a destination and bytes");
                let wanted = (to.parse().expect("a number"), hex(bytes));
                if sent.0.get(made) != Some(&wanted) {
                    return Err(format!("{wanted:02x?}\n  is not\n  {:02x?}", sent.0.get(made)));
                }
                made += 1;
            }
            "count" => {
                let words = value
                    .split(' ')
                    .map(|word| word.split_once('=').expect("name=value"));
                let wanted: BTreeMap<&str, u64> = words
                    .map(|(name, count)| (name, count.parse().expect("a number")))
                    .collect();
                let stats = aggregator.stats();
                if counts(&stats) != wanted || !stats.is_balanced() {
                    return Err(format!("{wanted:?}\n  is not\n  {:?}", counts(&stats)));
                }
            }
            _ => panic!("unknown key {key}"),
        }
    }
    if made < sent.0.len() {
        Err(format!("also sent {:02x?}", sent.0[made]))
    } else {
        Ok(())
    }
}

#[test]
fn every_vector_gives_the_expected_datagrams() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors/aggregator/aggregates.txt");
    let text = fs::read_to_string(file).expect("it is there");
    let blocks: Vec<&str> = text
        .trim()
        .split("\n\n")
        .filter(|block| block.contains("kind:"))
        .collect();
    let wrong: Vec<_> = blocks
        .iter()
        .filter_map(|block| {
            run(block)
                .err()
                .map(|why| format!("{}\n  {why}", block.lines().next().unwrap_or("")))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(blocks.len() > 20, "{}", blocks.len());
}

/// A small random number generator.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as u32) % n
    }
}

/// A datagram of a few postcards of few nodes and flows, some of them corrupted.
fn datagram(rng: &mut Rng, flows: u32) -> Vec<u8> {
    let node = if rng.below(40) == 0 {
        u32::MAX
    } else {
        rng.below(9)
    };
    let mut out = [2 << 28 | rng.below(1 << 20), node]
        .map(u32::to_be_bytes)
        .concat();
    for _ in 0..=rng.below(5) {
        let flags = if rng.below(20) == 0 { 0xa0 } else { 0x20 };
        let some = |rng: &mut Rng, value| if rng.below(9) == 0 { u32::MAX } else { value };
        let flow = some(rng, random_flow(rng.0, flows));
        let queue = rng.below(1 << 28);
        let queue = some(rng, queue);
        let stamp = rng.below(1 << 30);
        let ingress = if rng.below(9) == 0 {
            [u32::MAX; 2]
        } else {
            [7, stamp]
        };
        let words = [
            0x1008_0600 | flags,
            0x1c00_5043,
            0x8000_0000,
            queue,
            ingress[0],
            ingress[1],
            7,
            stamp + 900,
            flow,
        ];
        out.extend(words.map(u32::to_be_bytes).concat());
    }
    if rng.below(6) == 0 {
        let at = rng.below(out.len() as u32) as usize;
        out[at] ^= 1 << rng.below(8);
    }
    if rng.below(15) == 0 {
        out.truncate(rng.below(out.len() as u32) as usize);
    }
    out
}

fn random_flow(seed: u64, flows: u32) -> u32 {
    (seed >> 40) as u32 % flows
}

/// Counts datagrams and postcards (single ones, or the largest count of a summary) of the output, and checks the sequence numbers
/// of each destination.
fn read(config: &Config, sent: &Sent) -> (u64, u64) {
    let mut next = vec![0; config.destinations];
    let (mut postcards, mut decoder) = (0, Decoder::new(Profile::default()));
    for (to, payload) in &sent.0 {
        assert!(payload.len() + 28 <= usize::from(config.pmtu));
        if config.interop {
            let reports: Result<Vec<_>, _> = decoder.reports(payload).collect();
            postcards += reports.expect("good").len() as u64;
            continue;
        }
        let aggregate = Aggregate::parse(payload).expect("what is sent can be read");
        let header = aggregate.header();
        assert_eq!((header.kind, header.sequence), (config.kind, next[*to]));
        assert!(header.kind.is_correlated() || u32::from(header.count) <= config.r);
        next[*to] += 1;
        postcards += aggregate.postcards().count() as u64;
        postcards += aggregate
            .summaries()
            .map(|summary| u64::from(summary.count))
            .max()
            .unwrap_or(0);
    }
    (sent.0.len() as u64, postcards)
}

#[test]
fn counters_balance_under_random_traffic() {
    let mut rng = Rng(7);
    for round in 0..120 {
        let kind = Kind::ALL[round % 6];
        let interop = matches!(kind, Kind::AggNode | Kind::AggNodeFlow) && round % 4 == 1;
        let ways = 1 << rng.below(4);
        let config = Config {
            kind,
            r: 1 + rng.below(30),
            timer: 1 + u64::from(rng.below(5000)),
            registers: ways << rng.below(6),
            ways,
            destinations: 1 + rng.below(4) as usize,
            spread: if rng.below(2) == 0 {
                Spread::Node
            } else {
                Spread::Flow
            },
            interop,
            ..Config::default()
        };
        let mut aggregator = Aggregator::new(config.clone()).expect("good settings");
        let (mut sent, mut now) = (Sent::default(), 0);
        for _ in 0..200 {
            let burst: Vec<_> = (0..rng.below(20)).map(|_| datagram(&mut rng, 60)).collect();
            aggregator.ingest(now, burst.iter().map(Vec::as_slice), &mut sent);
            let stats = aggregator.stats();
            assert!(
                stats.is_balanced() && stats.occupied <= stats.pending,
                "{config:?} {stats:?}"
            );
            now += u64::from(rng.below(700));
            aggregator.tick(now, &mut sent);
            assert!(aggregator.deadline().is_none_or(|deadline| deadline > now));
        }
        aggregator.finish(&mut sent);
        let stats = aggregator.stats();
        let (datagrams, postcards) = read(&config, &sent);
        let total = |count: fn(&aggregator::Sent) -> u64| stats.sent.iter().map(count).sum::<u64>();
        assert_eq!(
            (stats.pending, stats.occupied, aggregator.deadline()),
            (0, 0, None)
        );
        assert_eq!(total(|sent| sent.aggregates), datagrams);
        assert_eq!(
            stats.sent_bytes,
            sent.0
                .iter()
                .map(|(_, payload)| payload.len() as u64)
                .sum::<u64>()
        );
        // A summary counts values, and a postcard may lack the value of both metrics.
        let counted = total(|sent| sent.postcards);
        assert!(
            if kind.is_correlated() {
                postcards <= counted
            } else {
                postcards == counted
            },
            "{postcards} {counted}"
        );
        assert_eq!(stats.postcards, counted);
        assert!(
            stats.postcards > 1000 && stats.unreadable.iter().sum::<u64>() > 0,
            "{stats:?}"
        );
    }
}

#[test]
fn eviction_loses_no_postcards() {
    let config = Config {
        kind: Kind::CorNodeFlow,
        r: 10,
        timer: u64::MAX,
        registers: 64,
        ..Config::default()
    };
    let mut aggregator = Aggregator::new(config).expect("good settings");
    let (mut sent, mut rng) = (Sent::default(), Rng(3));
    for _ in 0..5000 {
        let flood = datagram(&mut rng, 1 << 24);
        aggregator.ingest(0, [flood.as_slice()], &mut sent);
    }
    let stats = aggregator.stats();
    assert!(stats.is_balanced() && stats.occupied <= 64, "{stats:?}");
    assert!(
        stats.sent[Cause::Evicted as usize].postcards > stats.postcards * 9 / 10,
        "{stats:?}"
    );
}

#[test]
fn invalid_settings_are_refused() {
    let good = Config::default();
    let refused = |config: Config| Aggregator::new(config).err();
    assert_eq!(refused(good.clone()), None);
    assert_eq!(
        refused(Config {
            r: 72,
            ..good.clone()
        }),
        None,
        "72 at 1500"
    );
    assert_eq!(
        refused(Config {
            r: 73,
            ..good.clone()
        }),
        Some(ConfigError::R(72))
    );
    assert_eq!(
        refused(Config {
            r: 72,
            over_ipv6: true,
            ..good.clone()
        }),
        Some(ConfigError::R(71))
    );
    assert_eq!(refused(Config { r: 0, ..good.clone() }), Some(ConfigError::R(72)));
    assert_eq!(
        refused(Config {
            pmtu: 60,
            ..good.clone()
        }),
        Some(ConfigError::R(0))
    );
    assert_eq!(
        refused(Config {
            kind: Kind::Cor,
            r: 1_000_000,
            ..good.clone()
        }),
        None
    );
    assert_eq!(
        refused(Config {
            timer: 0,
            ..good.clone()
        }),
        Some(ConfigError::Timer)
    );
    assert_eq!(
        refused(Config {
            registers: 100,
            ..good.clone()
        }),
        Some(ConfigError::Registers)
    );
    assert_eq!(
        refused(Config {
            ways: 3,
            ..good.clone()
        }),
        Some(ConfigError::Ways)
    );
    assert_eq!(
        refused(Config {
            destinations: 0,
            ..good.clone()
        }),
        Some(ConfigError::Destinations)
    );
    assert_eq!(
        refused(Config {
            interop: true,
            ..good.clone()
        }),
        Some(ConfigError::Interop)
    );
    let interop = Config {
        kind: Kind::AggNode,
        interop: true,
        ..good.clone()
    };
    assert_eq!(
        refused(Config {
            r: 40,
            registers: 8,
            ..interop.clone()
        }),
        None,
        "8 + 40 * 36 bytes"
    );
    assert_eq!(refused(Config { r: 41, ..interop }), Some(ConfigError::R(40)));
    let huge = Config {
        kind: Kind::AggNodeFlow,
        r: 72,
        registers: 1 << 24,
        ..good
    };
    assert!(matches!(refused(huge), Some(ConfigError::Memory(_))));
}

#[test]
fn lost_postcards_are_reported() {
    let mut aggregator = Aggregator::new(Config::default()).expect("good settings");
    let mut rng = Rng(1);
    let payload = loop {
        let payload = datagram(&mut rng, 5);
        if payload.len() == 44 && payload[3] < 200 && payload[4..8] != [0xff; 4] {
            break payload;
        }
    };
    let later = |by: u8| {
        let mut later = payload.clone();
        later[3] += by;
        later
    };
    let all = [later(0), later(1), later(5), later(4)];
    aggregator.ingest(0, all.iter().map(Vec::as_slice), &mut Sent::default());
    let nodes: Vec<_> = aggregator
        .nodes()
        .map(|node| (node.numbered, node.lost, node.reordered))
        .collect();
    assert_eq!(nodes, [(4, 2, 1)]);
}
