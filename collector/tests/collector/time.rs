//! Rollups over jumps of time, compared with a plain model that adds values up; timeouts after steps of the clock; and keys that report rarely.

use std::collections::BTreeMap;

use collector::config::JoinConfig;
use collector::{Config, Datagram, Kind, Rollup};
use testkit::reports::{Bench, SECOND, START, Sent, config, flow, node};
use testkit::rng::Rng;
use testkit::workload::collector::{SF_CASES, SfCase};
use wire::FlowKey;

/// Metric, flow, node, interface, queue, interval and its start.
type Key = (
    u8,
    Option<FlowKey>,
    Option<u32>,
    Option<u32>,
    Option<u8>,
    u32,
    u64,
);

/// Values, their minimum, maximum and sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sum {
    count: u64,
    min: u64,
    max: u64,
    sum: u64,
}

#[derive(Default, PartialEq, Eq, Debug)]
struct Totals(BTreeMap<Key, Sum>);

impl Totals {
    fn add(&mut self, key: Key, more: Sum) {
        let sum = self.0.entry(key).or_insert(Sum {
            count: 0,
            min: u64::MAX,
            max: 0,
            sum: 0,
        });
        sum.count += more.count;
        sum.min = sum.min.min(more.min);
        sum.max = sum.max.max(more.max);
        sum.sum += more.sum;
    }

    /// A value of a key at `now`, in each interval.
    fn add_value(&mut self, key: &Key, intervals: &[u32], now: u64, value: u64) {
        for interval in intervals {
            let mut key = *key;
            (key.5, key.6) = (*interval, now - now % (u64::from(*interval) * SECOND));
            self.add(
                key,
                Sum {
                    count: 1,
                    min: value,
                    max: value,
                    sum: value,
                },
            );
        }
    }

    /// The values of a report at `now`.
    fn add_report(&mut self, sent: &Sent, now: u64) {
        let mut total = 0;
        for hop in &sent.hops {
            let [latency, utilization] =
                [hop.latency, hop.utilization].map(|value| value.expect("all hops have it").into());
            let (queue, occupancy) = hop.queue.expect("all hops have one");
            let node = Some(hop.id);
            total += latency;
            self.add_value(&(2, None, node, None, None, 0, 0), &[1, 60], now, latency);
            self.add_value(
                &(3, None, node, Some(2), Some(queue), 0, 0),
                &[1, 60],
                now,
                occupancy.into(),
            );
            self.add_value(
                &(5, None, node, Some(hop.ports.1.into()), None, 0, 0),
                &[1, 60],
                now,
                utilization,
            );
        }
        let flow = Some(flow(sent.flow, false));
        self.add_value(&(1, flow, None, None, None, 0, 0), &[60], now, total);
    }

    fn from_rollups(rollups: &[Rollup]) -> Self {
        let mut totals = Self::default();
        for r in rollups {
            let key = (
                r.metric as u8,
                r.flow,
                r.node,
                r.interface,
                r.queue,
                r.interval,
                r.ts,
            );
            totals.add(
                key,
                Sum {
                    count: r.count,
                    min: r.min,
                    max: r.max,
                    sum: r.sum,
                },
            );
        }
        totals
    }
}

fn random_report(rng: &mut Rng, seq: u32) -> Sent {
    let mut sent = Sent {
        flow: (rng.roll() % 4) as u16,
        seq,
        ..Sent::default()
    };
    for hop in &mut sent.hops {
        hop.latency = Some((rng.roll() % 5000) as u32);
        hop.queue = Some(((rng.roll() % 3) as u8, (rng.roll() % 900) as u32));
        hop.utilization = Some((rng.roll() % 900) as u32);
    }
    sent
}

/// A pause, in nanoseconds: within a second, over several, beyond the timeout of 30 s, over minutes or hours.
fn pause(rng: &mut Rng) -> u64 {
    match rng.roll() % 24 {
        0 | 1 => (rng.roll() % 4) * SECOND + (rng.roll() % SECOND),
        2 => (rng.roll() % 40) * SECOND,
        3 => (20 + (rng.roll() % 200)) * SECOND,
        4 => 3600 * (rng.roll() % 30) * SECOND + (rng.roll() % SECOND),
        _ => rng.roll() % (SECOND / 5),
    }
}

#[test]
fn rollups_are_the_sums_of_the_plain_model_whatever_time_does() {
    for run in 1..=400 {
        let mut rng = Rng(run);
        let settings = Config {
            flow_timeout: 30 * SECOND,
            ..config()
        };
        let mut bench = Bench::new(settings);
        let mut model = Totals::default();
        // A live collector ticks all the time, a replay with the datagrams.
        let is_live = run % 2 == 0;
        let mut now = START;
        for seq in 0..120 {
            let pause = pause(&mut rng);
            if is_live && pause < 300 * SECOND {
                bench.now = now;
                bench.pass(pause);
            }
            now += pause;
            if now > START + 7200 * SECOND && rng.below(10) == 0 {
                // The clock is set back.
                now -= 3 * SECOND + (rng.roll() % 3600) * SECOND;
                bench.collector.tick(now, &mut bench.log);
            }
            let sent = random_report(&mut rng, seq);
            // A report may also have waited behind a later one.
            let received = now
                - if seq > 0 && rng.below(8) == 0 {
                    rng.roll() % (2 * SECOND)
                } else {
                    0
                };
            bench.collector.tick(now, &mut bench.log);
            let payload = sent.v10();
            let datagram = Datagram {
                payload: &payload,
                source: [1; 16],
                src_port: 1,
                listener: 0,
                received,
            };
            bench.collector.handle(&[datagram], &mut bench.log);
            model.add_report(&sent, now);
        }
        bench.collector.finish(now, &mut bench.log);
        let rollups = Totals::from_rollups(&bench.log.rollups);
        let differing: Vec<_> = rollups
            .0
            .iter()
            .filter(|(key, sum)| model.0.get(key) != Some(sum))
            .collect();
        let missing: Vec<_> = model
            .0
            .keys()
            .filter(|key| !rollups.0.contains_key(key))
            .collect();
        assert!(
            differing.is_empty() && missing.is_empty(),
            "run {run}: {differing:?} {missing:?}"
        );
    }
}

#[test]
fn links_follow_the_reports_after_the_clock_was_set_back() {
    let mut bench = Bench::new(config());
    bench.send(&Sent::default()).pass(SECOND);
    bench.now -= 3600 * SECOND;
    let mut sent = Sent::default();
    sent.hops[0].ports.1 = 9;
    for _ in 0..40 {
        bench.pass(SECOND).send(&sent);
    }
    bench.pass(SECOND);
    let link = bench.collector.topology_links().next().expect("a link");
    let node = bench.collector.topology_nodes().next().expect("a node");
    let last_seen = bench.now - SECOND;
    assert_eq!(
        (link.egress_if, link.last_seen, node.last_seen),
        (Some(9), last_seen, last_seen)
    );
    let row = bench.collector.flow(&flow(1, false)).unwrap().row;
    assert!(row.first_seen <= row.last_seen, "{row:?}");
}

#[test]
fn bursts_that_are_further_apart_than_the_timeout_are_counted_in_full() {
    for apart in [3, 20, 120] {
        let mut bench = Bench::new(Config {
            flow_timeout: 15 * SECOND,
            ..config()
        });
        for burst in 0..10 {
            bench.now = START + burst * apart * SECOND;
            for _ in 0..100 {
                bench.send(&Sent::default());
            }
        }
        let now = bench.now;
        bench.collector.finish(now, &mut bench.log);
        let of_node = bench
            .log
            .rollups
            .iter()
            .filter(|r| (r.interval, r.metric as u8, r.node) == (1, 2, Some(2)));
        let counts: Vec<_> = of_node.map(|r| r.count).collect();
        assert_eq!(counts, [100; 10], "{apart} s apart");
    }
}

#[test]
fn a_queue_that_reports_in_one_second_of_twenty_is_new_once() {
    let mut bench = Bench::new(Config {
        flow_timeout: 60 * SECOND,
        ..config()
    });
    for _ in 0..10 {
        bench.send(&Sent {
            hops: vec![node(1)],
            reporter: 1,
            ..Sent::default()
        });
        bench.pass(20 * SECOND);
    }
    let of_queue: Vec<_> = bench
        .log
        .events
        .iter()
        .filter(|e| e.queue.is_some())
        .map(|e| e.kind)
        .collect();
    assert_eq!(of_queue, [Kind::New]);
}

/// Reports of which some are missing: of flows, postcards, and SF-INT records of sets that will not be complete.
struct Incomplete {
    bench: Bench,
    rng: Rng,
    sets: Vec<Vec<u8>>,
    seq: u32,
}

impl Incomplete {
    fn new(run: u64) -> Self {
        let sf = SfCase {
            flows: 20,
            ..SF_CASES[0]
        }
        .feed();
        Self {
            bench: Bench::new(Config {
                flow_timeout: 20 * SECOND,
                sf: JoinConfig {
                    max_flows: 64,
                    max_sets: 64,
                    ..JoinConfig::default()
                },
                ..config()
            }),
            rng: Rng(run),
            sets: sf.payloads().map(<[u8]>::to_vec).collect(),
            seq: 0,
        }
    }

    fn send(&mut self, count: usize) {
        for _ in 0..count {
            let sent = random_report(&mut self.rng, self.seq);
            self.seq += [1, 1, 1, 2, 4][self.rng.below(5)];
            let payload = match self.rng.below(3) {
                0 => sent.v10(),
                1 => sent.postcard(),
                _ => {
                    let mut payload = self.sets[self.rng.below(self.sets.len())].clone();
                    payload[1..4].copy_from_slice(&self.seq.to_be_bytes()[1..]);
                    payload
                }
            };
            self.bench.deliver(&payload);
        }
    }

    /// Sets the clock, back more often than forward. Reports that waited meanwhile have times from before.
    fn step(&mut self) {
        let before = self.bench.now;
        let most = [3, 30, 300, 20_000][self.rng.below(4)];
        let size = self.rng.roll() % (most * SECOND);
        self.bench.now = if self.rng.below(3) == 0 {
            before + size
        } else {
            before - size
        };
        let until = self.rng.roll() % (4 * SECOND);
        self.bench.pass(until);
        let now = std::mem::replace(&mut self.bench.now, before);
        let count = self.rng.below(10);
        self.send(count);
        self.bench.now = now;
    }

    /// Counts what is not closed: flows, pending postcards, sets, flows and records of SF-INT, missing numbers, and metric keys.
    fn open(&self) -> [(&'static str, u64); 8] {
        let collector = &self.bench.collector;
        let stats = collector.stats();
        let tables = collector.tables();
        let keys = [tables.nodes, tables.queues, tables.congestion, tables.links];
        [
            ("flows", tables.flows.used),
            ("paths", tables.paths.used),
            ("postcards", stats.postcards.accepted - stats.postcards.released),
            ("records", stats.sf.pending),
            ("sets", tables.sf_sets.used),
            ("flows of sets", tables.sf_flows.used),
            (
                "numbers",
                collector.streams().map(|view| u64::from(view.missing)).sum(),
            ),
            ("keys", keys.iter().map(|table| table.used).sum()),
        ]
    }
}

#[test]
fn nothing_stays_open_for_longer_than_its_timeout_whatever_the_clock_does() {
    let mut most = [0; 8];
    for run in 0..150 {
        let mut all = Incomplete::new(run);
        for _ in 0..20 {
            let count = all.rng.below(20);
            all.send(count);
            for (most, (_, open)) in most.iter_mut().zip(all.open()) {
                *most = open.max(*most);
            }
            let pause = all.rng.roll() % SECOND;
            all.bench.pass(pause);
            if all.rng.below(6) == 0 {
                all.step();
            }
        }
        // The longest timeout is that of flows of SF-INT.
        all.bench.pass(66 * SECOND);
        let open = all.open();
        assert_eq!(open, open.map(|(name, _)| (name, 0)), "run {run}");
        let losses: u64 = all.bench.log.losses.iter().map(|loss| loss.lost).sum();
        let lost: u64 = all.bench.collector.streams().map(|view| view.lost).sum();
        assert_eq!(losses, lost, "run {run}");
    }
    assert!(most.iter().all(|open| *open > 0), "{most:?}");
}

#[test]
fn a_capture_of_the_first_second_after_time_0_is_counted() {
    for now in [0, SECOND / 2, SECOND, 2 * SECOND, START] {
        let mut bench = Bench::new(config());
        bench.now = now;
        bench.send(&Sent::default()).send(&Sent::default());
        bench.collector.finish(bench.now, &mut bench.log);
        let reports: Vec<u64> = bench.log.rows.iter().map(|(row, _)| row.reports).collect();
        assert_eq!(reports, [2], "at {now}");
    }
}
