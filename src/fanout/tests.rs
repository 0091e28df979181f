//! Distribution over workers, and what happens when one of them is behind.

use super::*;
use crate::{
    config::{Settings, build, sections::Policy},
    control::Control,
    live::Hub,
    pipeline::{self, Pipeline},
};

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
    let profiles = Arc::new(build::wire_profiles(&Settings::default()));
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
    spreader.poll(0);
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
        spreader.poll(2 * ACCOUNT_EVERY);
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
    spreader.poll(0);
    let count = |queue: &LoadReceiver| {
        let mut count = 0;
        drain(queue, |load| count += load.entries.len());
        count
    };
    assert_eq!(queues.iter().map(count).collect::<Vec<_>>(), [3, 3, 3]);
}
