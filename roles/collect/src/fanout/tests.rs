//! Distribution over workers, and what happens when one of them is behind.

use super::*;
use crate::settings::{CollectSettings, Policy};
use crate::{
    live::Hub,
    pipeline::{self, Pipeline},
};
use runtime::control::Control;

/// A plan over queues of 256 KiB, and their other ends.
fn plan(workers: usize) -> (Plan, Vec<LoadReceiver>, Pipeline) {
    let hub = Arc::new(Hub::new(1, 1, std::collections::BTreeMap::new()));
    let config = pipeline::Config {
        batch: 8,
        queue: 1 << 16,
        store_queue: 1 << 16,
        policy: Policy::Shed,
        store: None,
    };
    let pipeline = Pipeline::new(config, hub, Control::new().0);
    let ledger = Arc::new(Ledger::new(pipeline.outlet().unwrap(), 16, 1));
    let (workers, queues) = (0..workers).map(|_| load_queue(256 << 10)).unzip();
    let profiles = Arc::new(CollectSettings::default().wire_profiles());
    let aggregate_ports = AggregatePorts::default();
    let access = Arc::default();
    (
        Plan {
            workers,
            profiles,
            access,
            seed: 1,
            listener: 3,
            ledger,
            aggregate_ports,
            watermarks: Arc::default(),
        },
        queues,
        pipeline,
    )
}

fn packet(data: &[u8], src_port: u16) -> Packet<'_> {
    let source = ([10, 0, 0, 1], src_port).into();
    Packet {
        data,
        source,
        port: 0,
        received: u64::from(src_port),
        truncated: false,
    }
}

/// Takes what is queued.
fn drain(queue: &LoadReceiver, mut process: impl FnMut(&Load)) {
    while matches!(
        queue.receive(None, Duration::ZERO, &mut process),
        Received::Load(_)
    ) {}
}

#[test]
fn a_worker_that_stalls_makes_its_receiver_wait_and_loses_nothing() {
    let (plan, queues, _pipeline) = plan(2);
    let gauge = plan.ledger.gauge();
    let mut spreader = Spreader::new(plan);
    const BURSTS: u64 = 200;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            for _ in 0..BURSTS {
                // No reports, therefore round robin.
                spreader.distribute(&[packet(&[0; 800], 7); 64]);
            }
        });
        while !queues[0].has_waiting_sender() && !receiver.is_finished() {
            std::thread::yield_now();
        }
        // The receiver took no more from its socket than what fits: half of each queue, and the burst for which there is no room.
        let taken = lock(&gauge.stats).datagrams;
        assert!((128..=512).contains(&taken), "{taken}");
        let mut out = [0; 2];
        while out.iter().sum::<u64>() < BURSTS * 64 {
            for (queue, out) in queues.iter().zip(&mut out) {
                drain(queue, |load| *out += load.entries.len() as u64);
            }
        }
        receiver.join().unwrap();
        assert_eq!(out, [BURSTS * 32; 2]);
    });
    assert_eq!(
        *lock(&gauge.stats),
        FanoutStats {
            datagrams: BURSTS * 64,
            ended: 0
        }
    );
}

#[test]
fn datagrams_of_a_worker_that_has_ended_are_counted() {
    let (plan, mut queues, _pipeline) = plan(2);
    let gauge = plan.ledger.gauge();
    let mut spreader = Spreader::new(plan);
    queues.truncate(1);
    spreader.distribute(&[packet(&[0; 800], 7); 64]);
    let mut out = 0;
    drain(&queues[0], |load| out += load.entries.len() as u64);
    assert_eq!(
        (out, *lock(&gauge.stats)),
        (
            32,
            FanoutStats {
                datagrams: 64,
                ended: 32
            }
        )
    );
}

#[test]
fn a_share_gives_back_what_went_in() {
    let (plan, queues, _pipeline) = plan(1);
    let mut spreader = Spreader::new(plan);
    let payloads: Vec<Vec<u8>> = (0..100u8).map(|n| vec![n; usize::from(n)]).collect();
    let packets: Vec<_> = payloads
        .iter()
        .zip(0..)
        .map(|(data, src_port)| packet(data, src_port))
        .collect();
    spreader.distribute(&packets);
    spreader.poll(0, 0);
    let mut seen = Vec::new();
    let mut note = |load: &Load| {
        load.each_chunk(|_, chunk| {
            seen.extend(
                chunk
                    .iter()
                    .map(|d| (d.payload.to_vec(), d.src_port, d.received, d.listener)),
            );
        });
    };
    drain(&queues[0], &mut note);
    let sent: Vec<_> = payloads
        .into_iter()
        .zip(0..)
        .map(|(data, n)| (data, n, u64::from(n), 3))
        .collect();
    assert_eq!(seen, sent);
}

#[test]
fn numbers_of_senders_that_may_not_report_are_not_accounted_for() {
    use collector::Grant;
    let report = testkit::vectors::bytes("tr20_emb");
    let streams = |from: &str| {
        let (mut plan, queues, _pipeline) = plan(1);
        let grant = Grant {
            from: from.parse().unwrap(),
            nodes: Vec::new(),
        };
        // The plan's listener is number 3.
        plan.access = Arc::new(Access::new([None, None, None, Some(vec![grant])]));
        let gauge = plan.ledger.gauge();
        let mut spreader = Spreader::new(plan);
        spreader.distribute(&[packet(&report, 1)]);
        spreader.poll(0, 2 * ACCOUNT_EVERY);
        // The worker refuses and counts it.
        let mut queued = 0;
        drain(&queues[0], |load| queued += load.entries.len());
        assert_eq!(queued, 1);
        lock(&gauge.streams).0.len()
    };
    assert_eq!([streams("10.0.0.0/8"), streams("10.9.0.0/16")], [1, 0]);
}

#[test]
fn datagrams_that_are_no_reports_go_to_the_workers_round_robin() {
    let (plan, queues, _pipeline) = plan(3);
    let mut spreader = Spreader::new(plan);
    spreader.distribute(&[packet(&[0xff; 8], 1); 9]);
    spreader.poll(0, 0);
    let count = |queue: &LoadReceiver| {
        let mut count = 0;
        drain(queue, |load| count += load.entries.len());
        count
    };
    assert_eq!(queues.iter().map(count).collect::<Vec<_>>(), [3, 3, 3]);
}

/// A datagram with a report of each of these flows.
fn group(flows: &[u16], seq: u32) -> Vec<u8> {
    use testkit::reports::Sent;
    let sent: Vec<Sent> = flows
        .iter()
        .map(|flow| Sent {
            flow: *flow,
            seq,
            ..Sent::default()
        })
        .collect();
    Sent::v20(&sent)
}

/// The number of a report in its datagram, and its flow.
type Numbered = (u16, Option<FlowKey>);

/// The datagrams of a worker, with their reports.
fn received(queue: &LoadReceiver) -> Vec<(Contents, Vec<Numbered>)> {
    let mut received = Vec::new();
    drain(queue, |load| {
        load.each_chunk(|contents, chunk| {
            let first = match contents {
                Contents::LaterReports(first) => first,
                _ => 0,
            };
            for datagram in chunk {
                let mut decoder = wire::Decoder::new(wire::Profile::default());
                let reports = decoder.reports(datagram.payload).numbered_from(first);
                let reports = reports
                    .map(|report| report.unwrap())
                    .map(|report| (report.index, report.flow));
                received.push((contents, reports.collect()));
            }
        });
    });
    received
}

#[test]
fn the_reports_of_one_datagram_go_to_the_workers_of_their_flows() {
    const WORKERS: usize = 3;
    let flows: Vec<u16> = (0..40).map(|number| number % 17).collect();
    let (plan, queues, _pipeline) = plan(WORKERS);
    let worker = |flow: &FlowKey| (flow.hash(plan.seed) % WORKERS as u64) as usize;
    let gauge = plan.ledger.gauge();
    let mut spreader = Spreader::new(plan.clone());
    let datagram = group(&flows, 7);
    spreader.distribute(&[packet(&datagram, 1)]);
    assert_eq!(lock(&gauge.stats).datagrams, 1);
    let mut numbers = Vec::new();
    for (index, queue) in queues.iter().enumerate() {
        for (contents, reports) in received(queue) {
            let is_later = matches!(contents, Contents::LaterReports(_));
            assert_eq!(is_later, reports[0].0 != 0, "{contents:?}");
            for (number, flow) in reports {
                let sent = testkit::reports::flow(flows[usize::from(number)], false);
                assert_eq!((flow, worker(&sent)), (Some(sent), index), "report {number}");
                numbers.push(number);
            }
        }
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..40).collect::<Vec<_>>());
    // Lengths that contradict each other: one worker refuses and counts what cannot be read.
    let cut = &datagram[..datagram.len() - 1];
    spreader.distribute(&[packet(cut, 1)]);
    let wholes = queues.iter().map(|queue| {
        let mut lengths = Vec::new();
        drain(queue, |load| {
            load.each_chunk(|_, chunk| lengths.extend(chunk.iter().map(|datagram| datagram.payload.len())));
        });
        lengths
    });
    assert_eq!(wholes.flatten().collect::<Vec<_>>(), [cut.len()]);
}

/// A report 2.0 with this sequence number in place of its own.
fn report_at(report: &[u8], seq: u32) -> Vec<u8> {
    let mut report = report.to_vec();
    let first = u32::from_be_bytes([report[0], report[1], report[2], report[3]]);
    report[..4].copy_from_slice(&(first & !0x3f_ffff | seq).to_be_bytes());
    report
}

const SECOND: Nanos = 1_000_000_000;

/// What is known of the only stream: datagrams, lost, missing, reordered, restarts.
fn stream_of(gauge: &FanoutGauge) -> (u64, u64, u32, u64, u64) {
    let streams = lock(&gauge.streams);
    let [view] = &streams.0[..] else {
        panic!("one stream: {streams:?}")
    };
    (
        view.datagrams,
        view.lost,
        view.missing,
        view.reordered,
        view.restarts,
    )
}

#[test]
fn numbers_that_two_threads_receive_are_accounted_in_the_order_of_arrival() {
    let (plan, queues, _pipeline) = plan(1);
    let gauge = plan.ledger.gauge();
    let mut threads = [Spreader::new(plan.clone()), Spreader::new(plan)];
    let report = testkit::vectors::bytes("tr20_emb");
    let reports: Vec<_> = (0..4000).map(|seq| report_at(&report, seq)).collect();
    let packets: Vec<_> = reports
        .iter()
        .zip(0..)
        .map(|(data, n)| Packet {
            received: SECOND + n,
            ..packet(data, 7)
        })
        .collect();
    // Even numbers arrive at one queue and odd ones at the other, which is read 300 datagrams later.
    let [even, odd] = [0, 1].map(|first| packets.iter().skip(first).step_by(2).copied().collect::<Vec<_>>());
    for (at, (even, odd)) in even.chunks(250).zip(odd.chunks(250)).enumerate() {
        threads[0].distribute(even);
        threads[0].poll(even[249].received, SECOND);
        threads[1].distribute(odd);
        threads[1].poll(odd[249].received, SECOND);
        drain(&queues[0], |_| {});
        assert!(lock(&gauge.stats).datagrams == (at as u64 + 1) * 500);
    }
    let ledger = Arc::clone(&threads[0].plan.ledger);
    drop(threads);
    ledger.finish(SECOND + 4000);
    assert_eq!(stream_of(&gauge), (4000, 0, 0, 0, 0));
}

#[test]
fn numbers_do_not_wait_without_bound_for_a_thread_that_makes_no_progress() {
    let (plan, queues, _pipeline) = plan(1);
    let gauge = plan.ledger.gauge();
    let (mut busy, mut idle) = (Spreader::new(plan.clone()), Spreader::new(plan));
    idle.poll(1, 0);
    let report = testkit::vectors::bytes("tr20_emb");
    let reports: Vec<_> = (0..17_000).map(|seq| report_at(&report, seq)).collect();
    for chunk in reports.chunks(100) {
        let packets: Vec<_> = chunk.iter().map(|data| packet(data, 7)).collect();
        busy.distribute(&packets);
        drain(&queues[0], |_| {});
    }
    busy.poll(8, 2 * SECOND);
    assert_eq!(stream_of(&gauge).0, 17_000 - 16_384);
    // It goes on, and the others with it.
    idle.poll(8, 4 * SECOND);
    assert_eq!(stream_of(&gauge), (17_000, 0, 0, 0, 0));
}

#[test]
fn missing_numbers_are_not_lost_while_datagrams_may_wait_in_a_socket() {
    let (plan, _queues, _pipeline) = plan(1);
    let gauge = plan.ledger.gauge();
    let watermark = plan.watermarks.add();
    let mut spreader = Spreader::new(plan);
    let report = testkit::vectors::bytes("tr20_emb");
    let mut receive = |seq: u32, received, now| {
        spreader.distribute(&[Packet {
            received,
            ..packet(&report_at(&report, seq), 7)
        }]);
        watermark.set(received, false);
        spreader.poll(received, now);
    };
    receive(0, 5 * SECOND, 5 * SECOND);
    receive(1, 5 * SECOND + 1, 5 * SECOND + 1);
    receive(3, 5 * SECOND + 2, 5 * SECOND + 2);
    // The program was stopped for a while. Number 2 waits in the socket.
    receive(4, 6 * SECOND + 3, 20 * SECOND);
    assert_eq!(stream_of(&gauge), (4, 0, 1, 0, 0));
    receive(2, 6 * SECOND + 4, 20 * SECOND);
    watermark.set(20 * SECOND, true);
    spreader.poll(20 * SECOND, 20 * SECOND);
    assert_eq!(stream_of(&gauge), (5, 0, 0, 1, 0));
}

/// Two threads receive consecutive numbers alternately, 25 at a time and every 10 ms, and are polled after each. After a second the clock is
/// set back by `back`, while the second thread still has numbers from before.
fn clock_set_back(back: Nanos) -> (u64, u64, u32, u64, u64) {
    const START: Nanos = 10_000 * SECOND;
    let (plan, queues, _pipeline) = plan(1);
    let gauge = plan.ledger.gauge();
    let mut threads = [Spreader::new(plan.clone()), Spreader::new(plan)];
    let report = testkit::vectors::bytes("tr20_emb");
    let mut seq = 0;
    let mut burst = |thread: &mut Spreader, received: Nanos, now: Nanos| {
        let reports: Vec<_> = (0..25).map(|n| report_at(&report, seq + n)).collect();
        seq += 25;
        let packets: Vec<_> = reports
            .iter()
            .zip(received..)
            .map(|(data, received)| Packet {
                received,
                ..packet(data, 7)
            })
            .collect();
        thread.distribute(&packets);
        drain(&queues[0], |_| {});
        thread.poll(received, now);
    };
    for step in 0..200 {
        let now = START + step * SECOND / 100 - if step < 100 { 0 } else { back };
        burst(&mut threads[0], now, now);
        let late = if step == 100 { back } else { 0 };
        burst(&mut threads[1], now + 1000 + late, now);
    }
    let now = START + 2 * SECOND - back;
    for thread in &mut threads {
        thread.poll(now, now);
    }
    let mut end = now;
    while stream_of(&gauge).0 < 10_000 && end < now + 2 * SECOND {
        end += SECOND / 50;
        for thread in &mut threads {
            thread.poll(end, end);
        }
    }
    stream_of(&gauge)
}

#[test]
fn a_clock_that_is_set_back_neither_stops_accounting_nor_loses_numbers() {
    for back in [SECOND / 4, SECOND * 3 / 4, 5 * SECOND, 3600 * SECOND] {
        let (datagrams, lost, missing, reordered, restarts) = clock_set_back(back);
        assert_eq!((datagrams, lost, missing, restarts), (10_000, 0, 0, 0), "{back}");
        // Those of one burst are accounted after those that the other thread received after the step.
        assert!(reordered <= 25, "{back}: {reordered}");
    }
}
