//! For any input: memory is bounded, busy entries are not evicted, and the counters add up.

use collector::event::SequenceEventKind;
use collector::{Config, Datagram, Stats};
use testkit::reports::{Bench, SECOND, Sent, config, flow, node};
use wire::{Flags, FlowKey, Refusal};

/// A simple seeded generator of random numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 11) as usize % bound
    }
}

fn check(stats: &Stats) {
    assert!(
        stats.decode_balance().is_balanced(),
        "{:?}",
        stats.decode_balance()
    );
    assert!(stats.state_balance().is_balanced(), "{:?}", stats.state_balance());
    assert!(stats.refused.iter().sum::<u64>() >= stats.refused_datagrams.iter().sum::<u64>());
}

/// A report 1.0 about the flow between these addresses; the bytes are those of a template, with two words changed.
fn patched(template: &[u8], src: u32, dst: u32) -> Vec<u8> {
    let mut bytes = template.to_vec();
    bytes[16 + 12..16 + 16].copy_from_slice(&src.to_be_bytes());
    bytes[16 + 16..16 + 20].copy_from_slice(&dst.to_be_bytes());
    bytes
}

#[test]
fn random_bytes_are_refused_and_the_numbers_balance() {
    let mut bench = Bench::new(config());
    let mut random = Random(7);
    let bases = [
        Sent::default().v10(),
        Sent::v20(&[
            Sent::default(),
            Sent {
                v6: true,
                ..Sent::default()
            },
            Sent::default(),
        ]),
        Sent {
            bitmap: 0x3000,
            ..Sent::default()
        }
        .postcard(),
        Sent::default().v05(),
    ];
    for turn in 0..60_000 {
        let mut bytes = bases[turn % bases.len()].clone();
        for _ in 0..random.below(5) {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        bytes.truncate(if random.below(3) == 0 {
            random.below(bytes.len())
        } else {
            bytes.len()
        });
        if random.below(50) == 0 {
            bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
        }
        bench.deliver_from(&bytes, [192, 0, 2, random.below(40) as u8]);
        if turn % 1000 == 0 {
            bench.pass(SECOND / 3);
        }
    }
    let stats = bench.collector.stats();
    check(&stats);
    let by_reason = |reason: Refusal| stats.refused[reason.index()];
    assert!(by_reason(Refusal::Truncated) > 0 && by_reason(Refusal::UnknownVersion) > 0);
    assert!(
        stats.accepted > 10_000 && stats.accepted < stats.datagrams,
        "{stats:?}"
    );
    // By source, for those in the table.
    let by_source: u64 = bench
        .collector
        .sources()
        .map(|source| source.refused.iter().sum::<u64>())
        .sum();
    let table = bench.collector.tables().sources;
    assert!(by_source <= stats.refused.iter().sum() && (table.evicted + table.refused > 0 || by_source > 0));
}

#[test]
fn refusals_are_counted_by_reason_and_source() {
    let mut bench = Bench::new(config());
    let whole = Sent::default().v10();
    bench.deliver_from(&whole, [192, 0, 2, 1]);
    bench.deliver_from(&whole[..60], [192, 0, 2, 2]);
    bench.deliver_from(&[0x35; 40], [192, 0, 2, 2]);
    bench.deliver_from(&[], [192, 0, 2, 2]);
    let refused: Vec<_> = bench
        .collector
        .sources()
        .map(|source| {
            let of = |reason: Refusal| source.refused[reason.index()];
            (
                source.datagrams,
                of(Refusal::IntTruncated),
                of(Refusal::UnknownVersion),
                of(Refusal::Truncated),
            )
        })
        .collect();
    assert_eq!(refused, [(1, 0, 0, 0), (3, 1, 1, 1)]);
    let stats = bench.collector.stats();
    check(&stats);
    assert_eq!((stats.datagrams, stats.accepted, stats.reports), (4, 1, 1));
}

/// Datagrams of other protocols: no stream, no loss, no event.
#[test]
fn other_protocols_are_refused_and_have_no_sequence() {
    let mut bench = Bench::new(config());
    let others: Vec<_> = testkit::vectors::all()
        .into_iter()
        .filter(|vector| vector.expect.iter().all(|line| line.starts_with("{\"error\"")))
        .filter(|vector| {
            let names = [
                "not_a_report",
                "sflow",
                "netflow_v5",
                "netflow_v9",
                "ipfix",
                "unknown_version",
            ];
            names.iter().any(|name| {
                vector
                    .expect
                    .iter()
                    .any(|line| line.contains(&format!("\"{name}\"")))
            })
        })
        .filter(|vector| vector.kind == testkit::vectors::Kind::Payload)
        .collect();
    assert!(others.len() > 40, "only {} vectors", others.len());
    for turn in 0..50 {
        for vector in &others {
            let mut bytes = vector.bytes.clone();
            // The bits of the sequence numbers of reports 0.5 and 1.0 and 2.0, if the refusal does not depend on them.
            if vector.expect[0].contains("netflow_v9") {
                bytes[12..16].copy_from_slice(&(turn * 17_u32).to_be_bytes());
                bytes[4..8].copy_from_slice(&(turn * 1000_u32).to_be_bytes());
            }
            bench.deliver_from(&bytes, [192, 0, 2, 1]);
        }
        bench.pass(SECOND);
    }
    let stats = bench.collector.stats();
    check(&stats);
    assert_eq!((stats.accepted, stats.reports), (0, 0));
    assert_eq!(bench.collector.streams().count(), 0, "nothing to lose");
    assert_eq!(bench.collected(), "");
}

/// A host that uses the DSCP of INT does not hide its drops.
#[test]
fn a_drop_of_a_packet_with_the_mark_of_int_is_a_drop() {
    let mut bench = Bench::new(config());
    let drop = testkit::vectors::bytes("g_drop_05_of_dns");
    bench.deliver(&drop);
    // The flow by its source port, less 1000.
    assert_eq!(
        bench.collected(),
        "drop flow=16751 node=7 if=2 queue=3 reason=71\n"
    );
    let stats = bench.collector.stats();
    check(&stats);
    let of = |counts: &[u64; Refusal::COUNT]| (counts[Refusal::BadShim.index()], counts.iter().sum::<u64>());
    assert_eq!((stats.reports, stats.drop_reports), (1, 1));
    assert_eq!((of(&stats.int_refused), of(&stats.refused)), ((1, 1), (0, 0)));
}

/// A tunnel that cannot be read hides nothing: the flow is the packet around it, and the reason is counted.
#[test]
fn a_tunnel_that_cannot_be_read_is_counted() {
    let mut bench = Bench::new(config());
    for name in [
        "t_gtpu",
        "t_gtpu_extension_0",
        "t_erspan_3_version",
        "t_gtpu_truncated",
    ] {
        bench.deliver(&testkit::vectors::bytes(name));
    }
    let stats = bench.collector.stats();
    check(&stats);
    let reasons = [
        Refusal::GtpExtension,
        Refusal::ErspanVersion,
        Refusal::TunnelTruncated,
    ];
    assert_eq!(reasons.map(|reason| stats.tunnel_refused[reason.index()]), [1; 3]);
    assert_eq!((stats.reports, stats.tunnel_refused.iter().sum::<u64>()), (4, 3));
    assert_eq!(stats.refused.iter().sum::<u64>(), 0);
}

#[test]
fn a_report_about_a_report_is_refused() {
    let mut bench = Bench::new(config());
    let mut nested = Sent::default().v10();
    // The inner packet goes to the telemetry port, and its INT is followed by a report.
    nested[16 + 22..16 + 24].copy_from_slice(&32_766_u16.to_be_bytes());
    let inner = Sent::default().v10();
    let total = (nested.len() - 16 + inner.len()) as u16;
    nested[16 + 2..16 + 4].copy_from_slice(&total.to_be_bytes());
    nested.extend_from_slice(&inner);
    bench.deliver(&nested);
    assert_eq!(bench.collected(), "");
    assert_eq!(
        bench.collector.stats().refused_datagrams[Refusal::Nested.index()],
        1
    );
}

#[test]
fn a_flood_of_flows_spares_the_busy_ones_and_the_memory() {
    let mut bench = Bench::new(Config {
        max_flows: 512,
        ..config()
    });
    let template = Sent::default().v10();
    let busy: Vec<Vec<u8>> = (0..100)
        .map(|n| {
            Sent {
                flow: n,
                ..Sent::default()
            }
            .v10()
        })
        .collect();
    let mut random = Random(3);
    for round in 0..300 {
        for report in &busy {
            bench.deliver(report);
        }
        for _ in 0..500 {
            bench.deliver(&patched(&template, random.next() as u32, random.next() as u32));
        }
        if round % 10 == 0 {
            bench.pass(SECOND / 2);
        }
        if round == 20 {
            bench.log = testkit::reports::Log::default();
        }
    }
    let stats = bench.collector.stats();
    check(&stats);
    let flows = bench.collector.tables().flows;
    assert!(
        flows.used <= 512 && flows.evicted + flows.refused > 100_000,
        "{flows:?}"
    );
    assert!(bench.collector.bytes() < 4 << 20);
    for n in 0..100 {
        let view = bench.collector.flow(&flow(n, false)).unwrap();
        // The first reports may be refused in the flood; later ones are not.
        assert!(view.row.reports >= 290, "flow {n} was pushed out: {:?}", view.row);
    }
    let again = bench.log.events.iter().filter(|event| {
        event.kind == collector::Kind::New
            && event
                .flow
                .is_some_and(|key| key.src_octets()[12..] == [10, 0, 0, 1])
    });
    assert_eq!(again.count(), 0, "a busy flow was reported as new again");
    // Node metrics got every report, even if its flow did not fit into the table.
    bench.pass(SECOND);
    let values: u64 = bench.collector.nodes().map(|view| view.values).sum();
    assert_eq!(values, 3 * stats.reports);
}

#[test]
fn two_reports_make_a_flow_busy_at_once() {
    let mut bench = Bench::new(Config {
        max_flows: 512,
        ..config()
    });
    let template = Sent::default().v10();
    for n in 0..200 {
        let report = Sent {
            flow: n % 100,
            ..Sent::default()
        }
        .v10();
        bench.deliver(&report);
    }
    let mut random = Random(9);
    for _ in 0..50_000 {
        bench.deliver(&patched(&template, random.next() as u32, random.next() as u32));
    }
    assert!(bench.now < testkit::reports::START + SECOND);
    let kept = (0..100).filter(|n| {
        bench
            .collector
            .flow(&flow(*n, false))
            .is_some_and(|view| view.row.reports == 2)
    });
    assert_eq!(kept.count(), 100);
}

#[test]
fn reports_of_flows_without_an_entry_are_counted_by_reason_and_update_their_nodes() {
    let mut bench = Bench::new(Config {
        max_flows: 16,
        ..config()
    });
    for n in 0..32 {
        bench.send(&Sent {
            flow: n % 16,
            ..Sent::default()
        });
    }
    let new = Sent {
        flow: 100,
        ..Sent::default()
    };
    let mut seen = Vec::new();
    for wait in [0, 1, 27, 1, 1] {
        bench.pass(wait * SECOND).send(&new);
        let stats = bench.collector.stats();
        check(&stats);
        seen.push((stats.unadmitted, stats.flow_reports));
    }
    assert_eq!(
        seen,
        [
            ([1, 0], 32),
            ([1, 1], 32),
            ([1, 2], 32),
            ([1, 3], 32),
            ([1, 3], 33)
        ]
    );
    bench.pass(SECOND);
    let values: u64 = bench.collector.nodes().map(|view| view.values).sum();
    assert_eq!(values, 3 * bench.collector.stats().reports);
}

#[test]
fn a_flood_of_node_ids_keeps_to_its_tables() {
    let mut bench = Bench::new(config());
    let mut random = Random(5);
    for turn in 0..20_000_u32 {
        let hops = vec![node(random.next() as u32), node(random.next() as u32)];
        bench.send(&Sent {
            flow: (turn % 64) as u16,
            hops,
            ..Sent::default()
        });
        if turn % 100 == 0 {
            bench.pass(SECOND / 10);
        }
    }
    let tables = bench.collector.tables();
    for (name, table) in tables.named() {
        assert!(table.used <= table.capacity, "{name}: {table:?}");
    }
    assert!(tables.nodes.refused > 10_000, "{:?}", tables.nodes);
    // After the flood, new nodes are admitted again.
    bench.send(&Sent::default()).pass(10 * SECOND);
    bench.log = testkit::reports::Log::default();
    bench.send(&Sent {
        flow: 2000,
        ..Sent::default()
    });
    assert_eq!(bench.collector.nodes().filter(|view| view.node <= 3).count(), 3);
    check(&bench.collector.stats());
}

#[test]
fn a_reassigned_slot_is_not_written_to() {
    // A table of two queues: the flow's own expires while the flow's reports do not name it, then others get the slot.
    let mut bench = Bench::new(Config {
        max_queues: 2,
        flow_timeout: 20 * SECOND,
        ..config()
    });
    let quiet = |queue| Sent {
        hops: vec![testkit::reports::Node { queue, ..node(1) }],
        ..Sent::default()
    };
    bench.send(&quiet(Some((1, 10))));
    for _ in 0..30 {
        bench.send(&quiet(None)).pass(SECOND);
    }
    assert_eq!(bench.collector.tables().queues.used, 0);
    let other = |queue| Sent {
        flow: 2,
        hops: vec![testkit::reports::Node { queue, ..node(9) }],
        ..Sent::default()
    };
    bench.send(&other(Some((7, 77)))).send(&other(Some((8, 88))));
    bench.send(&quiet(Some((1, 5_000))));
    let mut queues: Vec<_> = bench
        .collector
        .queues()
        .map(|view| (view.node, view.queue, view.latest, view.values))
        .collect();
    queues.sort_unstable();
    assert_eq!(queues, [(9, Some(7), 77, 1), (9, Some(8), 88, 1)]);
}

#[test]
fn losses_are_reported_once_per_second_and_explained() {
    let mut bench = Bench::new(config());
    let report = |seq| {
        Sent {
            seq,
            ..Sent::default()
        }
        .v10()
    };
    for seq in (1..500).filter(|seq| !(100..110).contains(seq) && *seq != 300) {
        bench.deliver(&report(seq));
    }
    bench.deliver(&report(300));
    bench.pass(SECOND);
    let losses: Vec<_> = bench
        .log
        .losses
        .iter()
        .map(|loss| (loss.node, loss.lost, loss.reordered, loss.duplicated))
        .collect();
    assert_eq!(losses, [(Some(3), 11, 0, 0)]);
    assert!(bench.collected().contains("loss node=3 11\n"));
    let of = |kind: SequenceEventKind| {
        if let SequenceEventKind::Lost { first, count } = kind {
            Some((first, count))
        } else {
            None
        }
    };
    let lost: Vec<_> = bench.log.notes.iter().filter_map(|note| of(note.kind)).collect();
    // One by one, as they leave the window.
    assert_eq!(
        lost,
        (100..110).chain([300]).map(|seq| (seq, 1)).collect::<Vec<_>>()
    );
    let stream = bench.collector.streams().next().unwrap();
    assert_eq!((stream.datagrams, stream.lost, stream.countable), (489, 11, true));
}

#[test]
fn a_report_refused_behind_its_header_is_not_lost() {
    let mut bench = Bench::new(config());
    for seq in 1..300 {
        let report = Sent {
            seq,
            ..Sent::default()
        }
        .v10();
        bench.deliver(if seq % 3 == 0 { &report[..60] } else { &report });
    }
    bench.pass(3 * SECOND);
    let stream = bench.collector.streams().next().unwrap();
    assert_eq!((stream.datagrams, stream.lost, stream.missing), (299, 0, 0));
    assert_eq!(bench.log.losses, []);
}

/// Makes a datagram one that is refused for its header.
type Damage = fn(&mut Vec<u8>);

/// A datagram whose header is refused has arrived, too: only its sequence number is read.
#[test]
fn a_datagram_refused_for_its_header_is_not_lost() {
    // A vector, the place of its sequence number, and the other bits of that word.
    const FORMS: [(&str, usize, u32, Damage, Refusal); 8] = [
        (
            "tr05_drop",
            4,
            0,
            |report| report[0] = 5,
            Refusal::BadNextProtocol,
        ),
        (
            "tr05_drop",
            4,
            0,
            |report| report.truncate(20),
            Refusal::Truncated,
        ),
        ("tr05_drop", 4, 0, |report| report.truncate(8), Refusal::Truncated),
        (
            "tr10_drop_private",
            8,
            0,
            |report| report[1] |= 0x60,
            Refusal::BadNextProtocol,
        ),
        (
            "tr10_drop_private",
            8,
            0,
            |report| report[0] += 2,
            Refusal::BadLength,
        ),
        (
            "tr10_drop_private",
            8,
            0,
            |report| report.truncate(12),
            Refusal::Truncated,
        ),
        (
            "tr20_emb",
            0,
            0x2040_0000,
            |report| report.truncate(8),
            Refusal::EmptyGroup,
        ),
        (
            "tr20_emb",
            0,
            0x2040_0000,
            |report| report.truncate(30),
            Refusal::Truncated,
        ),
    ];
    for (vector, at, word, damage, refusal) in FORMS {
        let mut bench = Bench::new(config());
        for seq in 1..300_u32 {
            let mut report = testkit::vectors::bytes(vector);
            report[at..at + 4].copy_from_slice(&(word | seq).to_be_bytes());
            if seq % 3 == 0 {
                damage(&mut report);
            }
            bench.deliver(&report);
        }
        bench.pass(3 * SECOND);
        let streams: Vec<_> = bench
            .collector
            .streams()
            .map(|stream| (stream.datagrams, stream.lost, stream.missing))
            .collect();
        assert_eq!(streams, [(299, 0, 0)], "{vector}, {refusal}");
        assert_eq!(bench.log.losses, [], "{vector}, {refusal}");
        let stats = bench.collector.stats();
        check(&stats);
        assert_eq!(
            stats.refused_datagrams[refusal.index()],
            99,
            "{vector}, {refusal}"
        );
    }
}

#[test]
fn a_sequence_that_never_moves_is_not_countable() {
    let mut bench = Bench::new(config());
    for _ in 0..500 {
        bench.deliver(&Sent::default().v10());
    }
    bench.pass(3 * SECOND);
    let stream = bench.collector.streams().next().unwrap();
    assert_eq!((stream.countable, stream.lost, stream.duplicated), (false, 0, 0));
    assert_eq!(bench.log.losses, []);
}

#[test]
fn rollups_add_up_to_every_value_that_came() {
    let mut bench = Bench::new(config());
    let mut random = Random(11);
    let (mut sums, mut counts) = ([0_u64; 6], [0_u64; 6]);
    for _ in 0..20_000 {
        let mut sent = Sent {
            flow: random.below(50) as u16,
            ..Sent::default()
        };
        for hop in &mut sent.hops {
            hop.latency = Some(random.below(5000) as u32);
            hop.queue = Some((random.below(3) as u8, random.below(900) as u32));
            hop.utilization = (random.below(4) > 0).then(|| random.below(900) as u32);
        }
        let mut add = |metric: usize, value: u64| {
            sums[metric] += value;
            counts[metric] += 1;
        };
        for hop in &sent.hops {
            add(2, u64::from(hop.latency.unwrap()));
            add(3, u64::from(hop.queue.unwrap().1));
            hop.utilization.iter().for_each(|value| add(5, u64::from(*value)));
        }
        add(
            1,
            sent.hops.iter().map(|hop| u64::from(hop.latency.unwrap())).sum(),
        );
        bench.send(&sent);
        bench.now += random.below(20) as u64 * SECOND / 1000;
        if random.below(30) == 0 {
            bench.pass(1);
        }
    }
    let now = bench.now;
    bench.collector.finish(now, &mut bench.log);
    for (interval, metrics) in [(1, vec![2, 3, 5]), (60, vec![1, 2, 3, 5])] {
        for metric in metrics {
            let rollups = bench
                .log
                .rollups
                .iter()
                .filter(|r| (r.interval, r.metric as usize) == (interval, metric));
            let (mut sum, mut count) = (0, 0);
            for rollup in rollups {
                (sum, count) = (sum + rollup.sum, count + rollup.count);
                assert!(rollup.min <= rollup.max && rollup.ts.is_multiple_of(u64::from(interval) * SECOND));
                let mean = rollup.sum as f64 / rollup.count as f64;
                assert!(rollup.min as f64 <= mean && mean <= rollup.max as f64);
                assert_eq!(rollup.p50.is_some(), metric != 1);
            }
            assert_eq!(
                (sum, count),
                (sums[metric], counts[metric]),
                "metric {metric}, {interval} s"
            );
        }
    }
}

#[test]
fn a_constant_jumping_or_reversed_clock_is_tolerated() {
    let mut bench = Bench::new(config());
    let report = Sent::default().v10();
    let starts = [0, 5, u64::MAX, u64::MAX - 1, 3, SECOND, 1 << 62, 0, u64::MAX];
    for received in starts {
        let datagram = Datagram {
            payload: &report,
            source: [1; 16],
            src_port: 1,
            listener: 0,
            received,
        };
        bench.collector.handle(&[datagram; 3], &mut bench.log);
        bench.collector.tick(received, &mut bench.log);
    }
    bench.collector.finish(7, &mut bench.log);
    check(&bench.collector.stats());
    assert_eq!(bench.collector.stats().flow_reports, 27);
}

#[test]
fn the_smallest_tables_work() {
    let mut bench = Bench::new(Config {
        max_flows: 1,
        max_nodes: 1,
        max_queues: 1,
        max_links: 1,
        max_sources: 1,
        rollup: collector::Rollups {
            sketches: 0,
            ..Default::default()
        },
        ..config()
    });
    for n in 0..2000_u16 {
        bench.send(&Sent {
            flow: n,
            v6: n % 2 == 0,
            ..Sent::default()
        });
    }
    bench.pass(70 * SECOND);
    check(&bench.collector.stats());
    assert!(bench.log.rollups.iter().all(|rollup| rollup.p50.is_none()));
}

#[test]
fn drop_reports_of_unknown_flows_make_no_flows() {
    let mut bench = Bench::new(config());
    for n in 0..100 {
        let sent = Sent {
            flow: n,
            hops: vec![node(1), node(2)],
            reporter: 2,
            metadata: 0b10_0010,
            reason: Some(9),
            flags: Flags::DROP,
            ..Sent::default()
        };
        bench.send(&sent);
    }
    let stats = bench.collector.stats();
    check(&stats);
    assert_eq!(
        (
            bench.collector.flows().count(),
            stats.drop_reports,
            stats.node_reports
        ),
        (0, 100, 100)
    );
    assert_eq!(
        bench.collector.flow(&FlowKey::default()).map(|view| view.row),
        None
    );
}
