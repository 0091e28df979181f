//! Tables and sketches.

use super::*;

pub(super) fn table(key: &str, slots: usize, period: u64) -> table::Config {
    table::Config {
        name: "t".to_owned(),
        key: fields(key),
        flows: Match::default(),
        at: table::At::Anywhere,
        slots,
        period,
        having: Vec::new(),
    }
}

pub(super) fn packet(flow: &FlowKey, bytes: u32) -> Context<'_> {
    let packet = PacketFacts {
        bytes,
        ..PacketFacts::default()
    };
    Context {
        flow: Some(flow),
        packet,
        ..Context::new(Trigger::Packet, 7)
    }
}

pub(super) fn of_table(on: Trigger, action: Action) -> Mapping {
    Mapping {
        table: Some(0),
        ..mapping(on, action)
    }
}

#[test]
fn an_evicted_record_is_reported_and_nothing_is_counted_twice() {
    let delta = "packets".parse().unwrap();
    let counter = || Action::KeyIncrement {
        store: 1,
        copies: 2,
        key: fields("key"),
        delta,
    };
    let mappings = vec![
        of_table(Trigger::Evicted, counter()),
        of_table(Trigger::Period, counter()),
    ];
    let tables = vec![table("flow", 64, 1_000_000_000)];
    let config = Config {
        reporter: 7,
        mappings,
        tables,
        ..Config::default()
    };
    let (mut reporter, mut out) = (Reporter::new(config).unwrap(), Outbox::default());
    let mut sums = std::collections::HashMap::new();
    let mut add = |out: &mut Outbox| {
        for payload in sent(out) {
            let Operation::KeyIncrement { delta, key, .. } = Report::parse(&payload).unwrap().operation
            else {
                panic!()
            };
            *sums.entry(key.to_vec()).or_insert(0) += delta;
        }
    };
    reporter.tick(1, &mut out);
    for i in 0..30_000_u32 {
        let flow = flow((i.wrapping_mul(2_654_435_761) >> 20) as u16 % 300);
        reporter.packet(&packet(&flow, 100), u64::from(i) * 100_000, &mut out);
        reporter.tick(u64::from(i) * 100_000, &mut out);
        add(&mut out);
    }
    reporter.tick(4_000_000_000, &mut out);
    add(&mut out);
    let (_, stats) = reporter.tables().next().unwrap();
    assert_eq!((stats.counted, stats.periods, stats.keyless), (30_000, 3, 0));
    assert_eq!(stats.made, stats.evicted + stats.idle + stats.records);
    assert_eq!((sums.len(), sums.values().sum::<u64>()), (300, 30_000));
    assert!(
        reporter
            .mappings()
            .all(|(_, stats)| stats.is_balanced() && stats.sent > 50)
    );
}

#[test]
fn a_period_reports_matching_records_and_a_window_reports_all() {
    let heavy = of_table(Trigger::Period, key_write("key", "packets:u32 total_packets:u32"));
    let window = of_table(
        Trigger::Window,
        key_write("9:u16", "keys:u16 packets:u32 top_packets:u16 top_key[4]"),
    );
    let having = vec!["packets >= 10".parse().unwrap()];
    let tables = vec![table::Config {
        having,
        ..table("src", 1024, 1_000_000_000)
    }];
    let config = Config {
        reporter: 7,
        mappings: vec![heavy, window],
        tables,
        ..Config::default()
    };
    let (mut reporter, mut out) = (Reporter::new(config).unwrap(), Outbox::default());
    reporter.tick(0, &mut out);
    for (host, packets) in [(1, 9), (2, 10), (3, 40), (4, 1)] {
        let flow = FlowKey::v4([10, 0, 0, host], [10, 0, 0, 9], Some((1, 2)), 17);
        (0..packets).for_each(|_| reporter.packet(&packet(&flow, 100), 5, &mut out));
    }
    reporter.tick(999_999_999, &mut out);
    assert!(out.is_empty());
    reporter.tick(1_000_000_000, &mut out);
    let mut reported: Vec<_> = sent(&mut out)
        .iter()
        .map(|payload| payload[16..].to_vec())
        .collect();
    reported.sort();
    let words = |bytes: &[u8]| bytes.to_vec();
    assert_eq!(
        reported,
        [
            words(&[0, 9, 0, 2, 0, 0, 0, 50, 0, 40, 10, 0, 0, 3]),
            words(&[10, 0, 0, 2, 0, 0, 0, 10, 0, 0, 0, 10]),
            words(&[10, 0, 0, 3, 0, 0, 0, 40, 0, 0, 0, 40]),
        ]
    );
    let flow = FlowKey::v4([10, 0, 0, 3], [10, 0, 0, 9], Some((1, 2)), 17);
    (0..11).for_each(|_| reporter.packet(&packet(&flow, 100), 1_500_000_000, &mut out));
    reporter.tick(2_000_000_000, &mut out);
    let reported = sent(&mut out);
    assert_eq!(reported[0][16..], [10, 0, 0, 3, 0, 0, 0, 11, 0, 0, 0, 51]);
    assert_eq!(reported[1][18..24], [0, 1, 0, 0, 0, 11]);
    let (_, stats) = reporter.tables().next().unwrap();
    assert_eq!((stats.records, stats.idle), (1, 3));
}

#[test]
fn a_flow_that_loses_too_much_is_reported_once_a_period() {
    let lossy = Mapping {
        when: vec![
            "loss_rate > 1%".parse().unwrap(),
            "packets >= 50".parse().unwrap(),
        ],
        ..of_table(Trigger::Passed, append(2, "key[13] drops:u8", 1))
    };
    let tables = vec![table("flow", 1024, 1_000_000_000)];
    let config = Config {
        reporter: 7,
        mappings: vec![lossy],
        tables,
        ..Config::default()
    };
    let (mut reporter, mut out) = (Reporter::new(config).unwrap(), Outbox::default());
    let mut reported = Vec::new();
    reporter.tick(0, &mut out);
    for second in 0..2_u64 {
        for (src_port, losses) in [(1, 0), (2, 1), (3, 30)] {
            let flow = flow(src_port);
            for i in 0..100 {
                let (now, drop) = (second * 1_000_000_000 + i, i < losses);
                if drop {
                    let context = Context {
                        trigger: Trigger::Drop,
                        ..packet(&flow, 100)
                    };
                    reporter.report(&context, now, &mut out);
                } else {
                    reporter.packet(&packet(&flow, 100), now, &mut out);
                }
            }
        }
        reporter.tick((second + 1) * 1_000_000_000, &mut out);
        let sports = sent(&mut out)
            .iter()
            .map(|one| (one[16 + 9], one[16 + 13]))
            .collect::<Vec<_>>();
        reported.push(sports);
    }
    // 1 of 51 is more than 1 in 100, when there are 50.
    assert_eq!(reported, [[(2, 1), (3, 30)], [(2, 1), (3, 30)]]);
}

pub(super) fn sketch_config(kind: SketchKind, depth: u8, columns: u32, width: u8) -> sketches::Config {
    sketches::Config {
        name: "s".to_owned(),
        id: 4,
        kind,
        shape: Columns {
            depth,
            columns,
            width,
        },
        key: fields("src"),
        item: (kind == SketchKind::Aroma).then(|| "src".parse().unwrap()),
        counts: sketches::Counts::Packets,
        flows: Match::default(),
        at: table::At::Anywhere,
        epoch: 1_000_000_000,
        per_report: 7,
        pace: 10_000,
        options: SendOptions::default(),
    }
}

/// Sends an epoch: the reports, and all counters in order.
fn epoch(reporter: &mut Reporter, out: &mut Outbox, from: u64) -> (Vec<Vec<u8>>, Vec<u64>) {
    let (mut reports, mut counters) = (Vec::new(), Vec::new());
    for step in 0..2000 {
        reporter.tick(from + step * 100_000, out);
        reports.extend(sent(out));
    }
    for report in &reports {
        let Operation::SketchMerge {
            counters: part,
            width,
            ..
        } = Report::parse(report).unwrap().operation
        else {
            panic!()
        };
        counters.extend(
            part.chunks(width.into())
                .map(|one| one.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))),
        );
    }
    (reports, counters)
}

pub(super) fn host(number: u32) -> FlowKey {
    let [a, b, c, d] = (0x0a00_0000 + number).to_be_bytes();
    FlowKey::v4([a, b, c, d], [10, 0, 0, 9], Some((1, 2)), 17)
}

#[test]
fn a_count_min_sketch_arrives_in_order_and_estimates() {
    let sketches = vec![sketch_config(SketchKind::CountMin, 4, 100, 4)];
    let config = Config {
        reporter: 7,
        sketches,
        ..Config::default()
    };
    let (mut reporter, mut out) = (Reporter::new(config).unwrap(), Outbox::default());
    reporter.tick(17_000_000_000, &mut out);
    for number in 0..50 {
        (0..=number).for_each(|_| reporter.packet(&packet(&host(number), 100), 17_000_000_001, &mut out));
    }
    let (reports, counters) = epoch(&mut reporter, &mut out, 18_000_000_000);
    assert_eq!(
        (reports.len(), counters.len()),
        (15, 400),
        "14 of 7 columns, one of 2"
    );
    let first = Report::parse(&reports[0]).unwrap().operation;
    assert!(matches!(
        first,
        Operation::SketchMerge {
            sketch: 4,
            epoch: 17,
            first_column: 0,
            depth: 4,
            columns: 7,
            ..
        }
    ));
    let row = |row: usize| counters.iter().skip(row).step_by(4).sum::<u64>();
    assert_eq!([0, 1, 2, 3].map(row), [1275; 4], "each row counts every packet");
    for number in 0..50_u32 {
        let key = (0x0a00_0000 + number).to_be_bytes();
        let hashes = hash::hashes(&key);
        let at = |row: u8| {
            counters[sketch::column(sketch::row_hash(&hashes, row), 100) as usize * 4 + usize::from(row)]
        };
        let estimate = (0..4).map(at).min().unwrap();
        assert!(
            (u64::from(number) + 1..u64::from(number) + 40).contains(&estimate),
            "{number}: {estimate}"
        );
    }
    let (_, stats) = reporter.sketches().next().unwrap();
    assert_eq!(
        (stats.counted, stats.columns, stats.again, stats.expired),
        (1275, 100, 0, 0)
    );
}

#[test]
fn a_sketch_nack_goes_back_to_the_column_that_is_due() {
    let sketches = vec![sketch_config(SketchKind::Count, 2, 50, 8)];
    let config = Config {
        reporter: 7,
        sketches,
        ..Config::default()
    };
    let (mut reporter, mut out) = (Reporter::new(config).unwrap(), Outbox::default());
    reporter.tick(1, &mut out);
    (0..100).for_each(|number| reporter.packet(&packet(&host(number), 1), 1, &mut out));
    let (_, counters) = epoch(&mut reporter, &mut out, 1_000_000_000);
    // Signed: about as many counts are subtracted as added.
    assert!(
        counters.iter().any(|counter| (*counter as i64) < 0)
            && counters.iter().any(|counter| *counter as i64 > 0)
    );
    let nack = |epoch, column| {
        control(Body::SketchNack {
            sketch: 4,
            epoch,
            column,
        })
    };
    reporter.control(0, &nack(0, 20), 1_200_000_000, &mut out);
    let (again, rest) = epoch(&mut reporter, &mut out, 1_200_000_000);
    let first = |report: &[u8]| match Report::parse(report).unwrap().operation {
        Operation::SketchMerge { first_column, .. } => first_column,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        again.iter().map(|one| first(one)).collect::<Vec<_>>(),
        [20, 27, 34, 41, 48]
    );
    assert_eq!(rest, counters[20 * 2..]);
    reporter.control(0, &nack(1, 0), 1_300_000_000, &mut out);
    reporter.control(0, &nack(0, 50), 1_300_000_000, &mut out);
    assert!(epoch(&mut reporter, &mut out, 1_300_000_000).0.is_empty());
    let (_, stats) = reporter.sketches().next().unwrap();
    assert_eq!((stats.nacks, stats.stale, stats.again), (1, 2, 30));
}

#[test]
fn forged_sketch_nacks_do_not_keep_an_epoch_from_being_sent() {
    for (every, pace) in [(1, 10_000), (40, 10_000), (1, 30_000_000)] {
        let config = sketches::Config {
            pace,
            ..sketch_config(SketchKind::Count, 2, 50, 8)
        };
        let (mut reporter, mut out) = (
            Reporter::new(Config {
                reporter: 7,
                sketches: vec![config],
                ..Config::default()
            })
            .unwrap(),
            Outbox::default(),
        );
        reporter.tick(1, &mut out);
        let mut columns = 0;
        for step in 0..10_000_u64 {
            let now = 1_000_000_000 + step * 99_999;
            if step % every == 0 {
                reporter.control(
                    0,
                    &control(Body::SketchNack {
                        sketch: 4,
                        epoch: 0,
                        column: 0,
                    }),
                    now,
                    &mut out,
                );
            }
            reporter.tick(now, &mut out);
            columns += sent(&mut out)
                .iter()
                .map(|report| match Report::parse(report).unwrap().operation {
                    Operation::SketchMerge { columns, .. } => u64::from(columns),
                    other => panic!("{other:?}"),
                })
                .sum::<u64>();
        }
        let (_, stats) = reporter.sketches().next().unwrap();
        assert_eq!(
            (stats.columns, stats.expired),
            (50, 0),
            "every {every}, pace {pace}"
        );
        assert_eq!(columns, stats.columns + stats.again);
        assert!(stats.again <= 4 * 50 && stats.limited > 0, "{stats:?}");
        let nacks = 10_000_u64.div_ceil(every);
        assert_eq!(stats.nacks + stats.stale + stats.limited, nacks);
    }
}

#[test]
fn an_epoch_that_is_not_sent_in_time_is_counted() {
    let slow = sketches::Config {
        pace: 500_000_000,
        ..sketch_config(SketchKind::CountMin, 1, 70, 4)
    };
    let config = Config {
        reporter: 7,
        sketches: vec![slow],
        ..Config::default()
    };
    let (mut reporter, mut out) = (Reporter::new(config).unwrap(), Outbox::default());
    (0..41).for_each(|step| reporter.tick(step * 100_000_000, &mut out));
    let (_, stats) = reporter.sketches().next().unwrap();
    // Epochs 0 to 2 could each send 2 of 10 reports; epoch 3 has begun.
    assert_eq!((stats.epochs, stats.expired), (4, 3 * 56));
    assert_eq!(stats.columns, 3 * 14 + 7);
}

#[test]
fn hyperloglog_counts_keys_and_merges_by_the_largest() {
    let made = |range: std::ops::Range<u32>| {
        let sketches = vec![sketch_config(SketchKind::HyperLogLog, 4, 256, 4)];
        let (mut reporter, mut out) = (
            Reporter::new(Config {
                reporter: 7,
                sketches,
                ..Config::default()
            })
            .unwrap(),
            Outbox::default(),
        );
        reporter.tick(1, &mut out);
        range.for_each(|number| reporter.packet(&packet(&host(number), 1), 1, &mut out));
        epoch(&mut reporter, &mut out, 1_000_000_000).1
    };
    let (a, b) = (made(0..20_000), made(10_000..30_000));
    let estimate = |registers: &[u64]| {
        let m = registers.len() as f64;
        let sum: f64 = registers.iter().map(|rank| 0.5_f64.powi(*rank as i32)).sum();
        0.7213 / (1.0 + 1.079 / m) * m * m / sum
    };
    let both: Vec<u64> = a.iter().zip(&b).map(|(a, b)| *a.max(b)).collect();
    for (registers, truth) in [(&a, 20_000.0), (&b, 20_000.0), (&both, 30_000.0)] {
        let error = estimate(registers) / truth - 1.0;
        assert!(error.abs() < 0.1, "{error}: standard error is 1.04 / 32");
    }
}

#[test]
fn aroma_samples_keys_independently_of_their_frequency() {
    let sketches = vec![sketch_config(SketchKind::Aroma, 1, 64, 8)];
    let config = Config {
        reporter: 7,
        sketches,
        ..Config::default()
    };
    let (mut reporter, mut out) = (Reporter::new(config).unwrap(), Outbox::default());
    reporter.tick(1, &mut out);
    for number in 0..1000 {
        // The first half sends a hundred times as much.
        (0..if number < 500 { 100 } else { 1 })
            .for_each(|_| reporter.packet(&packet(&host(number), 1), 1, &mut out));
    }
    let (_, buckets) = epoch(&mut reporter, &mut out, 1_000_000_000);
    let frequent = buckets
        .iter()
        .filter(|bucket| ((**bucket as u32) - 0x0a00_0000) < 500)
        .count();
    assert_eq!(buckets.len(), 64);
    assert!(
        buckets.iter().all(|bucket| *bucket > 0) && (20..44).contains(&frequent),
        "{frequent}"
    );
}
