//! Reminders in simulated time, between reports that begin and end the alert.

use collect_role::settings::Policy;
use collector::{Datagram, event::Basis};
use testkit::{
    reports::{Node, SECOND, START, Sent, config, detection, flow, node},
    rng::Rng,
};

use super::*;
use collect_role::{
    live::{Filter, Hub, Topic},
    pipeline::{Config, Pipeline},
    worker::{Worker, WorkerHandle},
};
use history::alerts::{AlertSource, RuleEvent};
use runtime::control::Control;

#[test]
fn it_looks_less_often_when_it_fails() {
    assert_eq!(
        [0, 1, 4, 5, 6, u32::MAX].map(|failures| check_delay(failures).as_secs()),
        [2, 4, 32, 64, 64, 64]
    );
}

/// A worker with a rule, in simulated time.
struct Simulated {
    worker: Worker,
    handle: WorkerHandle,
    pipeline: Pipeline,
    hub: Arc<Hub>,
    now: Nanos,
    seq: u32,
}

impl Simulated {
    fn new() -> Self {
        let control = Control::new().0;
        let hub = Arc::new(Hub::new(1, 10_000, std::collections::BTreeMap::new()));
        let queues = Config {
            batch: 1024,
            queue: 1 << 20,
            store_queue: 1 << 20,
            policy: Policy::Shed,
            store: None,
        };
        let mut pipeline = Pipeline::new(queues, Arc::clone(&hub), control);
        pipeline.start().unwrap();
        let rules = [("other", "hops > 9"), ("deep", "max(queue_occupancy) > 50")];
        let config = collector::Config {
            detection: detection([0, 100, 100, 5, 5, 100], &rules),
            ..config()
        };
        let names = rules.map(|(name, _)| name.to_owned());
        let (worker, handle) = Worker::new(
            Collector::new(config),
            pipeline.outlet().unwrap(),
            names.into(),
            None,
        );
        Self {
            worker,
            handle,
            pipeline,
            hub,
            now: START,
            seq: 0,
        }
    }

    /// A report of flow 1, for which the rule is true or not.
    fn report(&mut self, is_true: bool) {
        (self.now, self.seq) = (self.now + SECOND / 10, self.seq + 1);
        let queue = Some((0, if is_true { 80 } else { 10 }));
        let sent = Sent {
            hops: vec![Node { queue, ..node(7) }],
            seq: self.seq,
            ..Sent::default()
        };
        let payload = sent.v10();
        let source = std::net::Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets();
        let datagram = Datagram {
            payload: &payload,
            source,
            src_port: 5000,
            listener: 0,
            received: self.now,
        };
        self.worker.process_reports(&[datagram]);
    }

    /// Asks for a reminder of an alert as events said it some time ago.
    fn remind(&self, end: Nanos) {
        let alerts: Arc<[Alert]> = [alert()].into();
        drop_answer(
            self.handle
                .emit(move |collector, output| emit_repeats(&alerts, end, collector, output)),
        );
    }

    /// What was published: kind and time.
    fn events(mut self, subscription: &mut collect_role::live::Subscription) -> Vec<(bool, Nanos)> {
        self.worker.poll(self.now + SECOND, self.now + SECOND);
        drop(self.worker);
        self.pipeline.stop();
        let mut events = Vec::new();
        while let Ok(message) = subscription.events.try_recv() {
            let event: serde_json::Value = serde_json::from_str(&message.text).unwrap();
            if event["rule"] == "deep" {
                events.push((event["kind"] == "rule_on", event["ts"].as_u64().unwrap()));
            }
        }
        events
    }
}

/// The requester waits for the answer: a task is dropped without one.
fn drop_answer(answer: tokio::sync::oneshot::Receiver<usize>) {
    std::mem::forget(answer);
}

fn alert() -> Alert {
    let event = Event {
        kind: Kind::RuleOn,
        flow: Some(flow(1, false)),
        node: Some(7),
        metric: Some(detect::Metric::QueueOccupancy),
        value: Some(80),
        basis: Basis::Measured,
        ..testkit::records::bare(START)
    };
    let row = store::EventRow {
        event,
        rule: Some("deep".to_owned()),
        path: Vec::new(),
        first: None,
    };
    let mut past = history::alerts::Past::new((0, u64::MAX));
    past.read(
        [RuleEvent {
            row,
            sources: vec![AlertSource::default()],
        }]
        .into_iter(),
    );
    past.alerts().remove(0)
}

#[test]
fn nobody_hears_of_an_alert_again_after_its_end() {
    let (mut reminders, mut refused) = (0, 0);
    for seed in 0..200 {
        let (mut rng, mut simulated) = (Rng(seed), Simulated::new());
        let mut heard = simulated
            .hub
            .subscribe(Topic::Events(Filter::default()), None)
            .unwrap();
        let (mut is_true, mut reports, mut asked, mut end) = (false, 0, 0_usize, START);
        for _ in 0..40 {
            match rng.below(5) {
                0 | 1 => {
                    let is = rng.below(2) == 0;
                    reports += u32::from(is && !is_true);
                    is_true = is;
                    simulated.report(is);
                }
                2 => {
                    // The silence ended before the latest reports, or after all of them.
                    asked += 1;
                    end = end.max(simulated.now - rng.below(2) as u64 * SECOND / 4);
                    simulated.remind(end);
                }
                3 => _ = simulated.worker.serve(true),
                _ => {
                    simulated.now += SECOND / 20;
                    simulated.worker.poll(simulated.now, simulated.now);
                }
            }
        }
        let events = simulated.events(&mut heard);
        let mut fires = false;
        let (mut began, mut again) = (0, 0_usize);
        for (place, (is_on, ts)) in events.iter().enumerate() {
            assert!(
                place == 0 || *ts >= events[place - 1].1,
                "seed {seed}: an earlier time: {events:?}"
            );
            match (*is_on, fires) {
                (true, true) => again += 1,
                (true, false) => began += 1,
                (false, was) => assert!(was, "seed {seed}: {events:?}"),
            }
            fires = *is_on;
        }
        assert_eq!(fires, is_true, "seed {seed}: {events:?}");
        assert_eq!(
            began, reports,
            "seed {seed}: one was reported that was not true: {events:?}"
        );
        reminders += again;
        refused += asked.saturating_sub(again);
    }
    assert!(reminders > 200 && refused > 200, "{reminders} {refused}");
}

#[test]
fn events_are_searched_back_to_the_beginning() {
    let named = |port: u16| {
        let mut one = alert();
        one.last.flow = Some(flow(port, false));
        one
    };
    let mut search = Search {
        to: 1_000,
        seen: HashSet::new(),
    };
    let mut part = |alerts: &[u16], known_since| {
        let found = search
            .unseen(alerts.iter().map(|port| named(*port)).collect())
            .count();
        (found, search.advance(known_since), search.to)
    };
    assert_eq!(part(&[1, 2], Some(700)), (2, true, 700));
    assert_eq!(
        part(&[2, 3], Some(700)),
        (1, true, 699),
        "all of one time: it goes on before it"
    );
    assert_eq!(part(&[1, 4], Some(300)), (1, true, 300));
    assert_eq!(part(&[5], None), (1, false, 300));
}
