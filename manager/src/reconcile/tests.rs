use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::device::{
    Answer, Command, DeviceEvent, Election, Etag, Mode, NodeId, Request, RequestId, Rule, State, Watch,
};
use crate::flows::FlowMatch;

const S: u64 = 1_000_000_000;

fn watch() -> Rule {
    let key = FlowMatch::default();
    Rule::Watch(Arc::new(Watch {
        key,
        mode: Mode::Md,
        bits: 0xa000,
        hops: 8,
        sample: 1,
        drops: true,
    }))
}

/// Two leaves joined by a link, each with one edge port.
fn targets(watched: bool) -> Targets {
    let leaf = |node: NodeId, peer: NodeId| {
        let mut rules = Rules::new();
        if watched {
            rules.extend([Rule::Sink(2), Rule::Instruction(0), Rule::Instruction(2)]);
            rules.extend((node == 1).then(watch));
        }
        let ports = DevicePorts {
            edge: [2].into(),
            links: [(1, (peer, 1))].into(),
            ..DevicePorts::default()
        };
        (
            node,
            Target {
                name: format!("leaf{node}"),
                ports,
                rules: Arc::new(rules),
                restart: Restart::Keeps,
                room: None,
                outside: false,
            },
        )
    };
    [leaf(1, 2), leaf(2, 1)].into()
}

/// A reconciler, and devices that execute everything at once, except where a test sets another answer.
struct Bench {
    reconciler: Reconciler,
    rules: BTreeMap<NodeId, Rules>,
    version: u64,
    /// These do not answer.
    mute: Vec<NodeId>,
    /// These accept changes and do nothing.
    liars: Vec<NodeId>,
    /// Answers of a device to requests of a kind, in place of what it would do.
    answers: BTreeMap<(NodeId, &'static str), Answer>,
    /// Applied changes in order.
    log: Vec<String>,
    /// Requests of each device.
    requests: BTreeMap<NodeId, usize>,
}

impl Bench {
    fn new(targets: Targets) -> Self {
        let mut reconciler = Reconciler::new(Timing::default(), Order::default());
        reconciler.set_targets(targets, S);
        reconciler.set_term(Some(1), S);
        let rules = [(1, Rules::new()), (2, Rules::new())].into();
        let (mute, liars, log) = (Vec::new(), Vec::new(), Vec::new());
        let (answers, requests) = (BTreeMap::new(), BTreeMap::new());
        Self {
            reconciler,
            rules,
            version: 0,
            mute,
            liars,
            answers,
            log,
            requests,
        }
    }

    /// Exchanges messages at `now` until there are none.
    fn run(&mut self, now: u64) {
        for round in 0.. {
            assert!(round < 1000, "it asks without a pause: {:?}", self.phases());
            let mut commands = Vec::new();
            self.reconciler.poll(now, &mut commands);
            commands.retain(|command| !self.mute.contains(&command.node));
            if commands.is_empty() {
                return;
            }
            for Command {
                node, id, request, ..
            } in commands
            {
                let answer = self.execute(node, request);
                self.reconciler.answer(node, id, answer, now);
            }
        }
    }

    fn execute(&mut self, node: NodeId, request: Request) -> Answer {
        *self.requests.entry(node).or_default() += 1;
        let kind = match request {
            Request::Claim(_) => "claim",
            Request::Read => "read",
            Request::Apply { .. } => "apply",
        };
        if let Some(answer) = self.answers.get(&(node, kind)) {
            return answer.clone();
        }
        let rules = self.rules.entry(node).or_default();
        match request {
            Request::Claim(_) => Answer::Claimed,
            Request::Read => {
                let etag = Etag(self.version.to_string());
                let foreign = vec!["theirs".to_owned()];
                Answer::State(State {
                    etag,
                    rules: rules.clone(),
                    foreign,
                    ..State::default()
                })
            }
            Request::Apply { changes, .. } => {
                self.version += 1;
                for change in changes {
                    self.log.push(format!("{node}: {change}"));
                    match change {
                        _ if self.liars.contains(&node) => {}
                        Change::Add(rule) => drop(rules.insert(rule)),
                        Change::Remove(rule) => drop(rules.remove(&rule)),
                    }
                }
                Answer::Applied
            }
        }
    }

    fn phases(&self) -> Vec<String> {
        self.reconciler
            .statuses()
            .iter()
            .map(|status| status.phase.to_string())
            .collect()
    }
}

#[test]
fn sinks_come_first_and_go_last() {
    let mut bench = Bench::new(targets(true));
    bench.run(S);
    assert_eq!(bench.phases(), ["in_sync", "in_sync"]);
    assert_eq!(
        bench.log.last().map(String::as_str),
        Some("1: add watch all flows: md with node_id, hop_latency")
    );
    bench.log.clear();
    bench.reconciler.set_targets(targets(false), 5 * S);
    bench.run(5 * S);
    assert_eq!(
        bench.log,
        ["1: remove watch all flows: md with node_id, hop_latency"]
    );
    assert_eq!(bench.reconciler.statuses()[0].waits, Some(Wait::Drain));
    // Two seconds later nothing can be in flight any more.
    assert_eq!(bench.reconciler.next_timeout(), Some(7 * S));
    bench.run(7 * S);
    assert_eq!(bench.phases(), ["in_sync", "in_sync"]);
    assert!(bench.rules.values().all(Rules::is_empty));
}

#[test]
fn a_device_out_of_reach_is_closed_off_after_the_grace_and_let_in_again() {
    let mut bench = Bench::new(targets(true));
    bench.mute.push(2);
    bench.run(S);
    assert_eq!(bench.phases(), ["drift", "connecting"]);
    assert_eq!(
        bench.reconciler.statuses()[0].waits,
        Some(Wait::Border("leaf1".to_owned()))
    );
    bench.run(3 * S);
    assert_eq!(bench.phases()[1], "unreachable: no answer within 2 s");
    // leaf1 removes INT towards leaf2, and watches.
    bench.run(4 * S);
    assert!(bench.rules[&1].contains(&Rule::Sink(1)) && bench.rules[&1].contains(&watch()));
    bench.mute.clear();
    for second in 5..10 {
        bench.run(second * S);
    }
    assert_eq!(bench.phases(), ["in_sync", "in_sync"]);
    assert!(!bench.rules[&1].contains(&Rule::Sink(1)));
}

/// A chain of four devices, the first of which watches; found by a run of the simulation with two managers.
#[test]
fn a_link_opens_only_when_all_ready_devices_behind_it_are_closed() {
    let mut all = Targets::new();
    for node in 1..=4_u32 {
        let mut target = targets(true)[&if node == 1 { 1 } else { 2 }].clone();
        let peers = [(1, node - 1), (3, node + 1)]
            .into_iter()
            .filter(|(_, peer)| (1..=4).contains(peer));
        target.ports.links = peers.map(|(port, peer)| (port, (peer, 4 - port))).collect();
        target.name = format!("leaf{node}");
        all.insert(node, target);
    }
    // Another manager has left all but the last in place; the first two are apart from the others.
    let mut bench = Bench::new(all.clone());
    for (node, target) in all.iter().filter(|(node, _)| **node < 4) {
        bench.rules.insert(*node, Rules::clone(&target.rules));
    }
    bench.rules.entry(1).or_default().insert(Rule::Sink(3));
    bench.mute.push(4);
    bench.run(S);
    // leaf2 and its neighbours are ready, but INT would go on from leaf3 to leaf4, which is not known.
    assert!(bench.rules[&1].contains(&Rule::Sink(3)));
    assert_eq!(
        bench.reconciler.statuses()[0].waits,
        Some(Wait::Border("leaf3".to_owned()))
    );
    bench.run(3 * S);
    bench.run(4 * S);
    assert!(bench.rules[&3].contains(&Rule::Sink(3)) && !bench.rules[&1].contains(&Rule::Sink(3)));
}

#[test]
fn a_device_that_lies_is_contained_and_shown() {
    let mut bench = Bench::new(targets(true));
    bench.liars.push(2);
    bench.run(S);
    for second in 2..8 {
        bench.run(second * S);
    }
    let phases = bench.phases();
    assert!(
        phases[1].starts_with(
            "failed: it accepted 3 changes and did not apply them all; the first: add port 2: sink"
        ),
        "{phases:?}"
    );
    assert!(bench.rules[&1].contains(&Rule::Sink(1)) && bench.rules[&1].contains(&watch()));
}

/// Runs every half a second, and returns when all are in sync, in ns since `from`.
fn until_in_sync(bench: &mut Bench, from: u64, longest: u64) -> u64 {
    for now in (from..from + longest).step_by(S as usize / 2) {
        bench.run(now);
        if bench.reconciler.in_sync() == bench.reconciler.phases().count() {
            return now - from;
        }
    }
    panic!("{:?}", bench.phases());
}

#[test]
fn a_device_that_refuses_an_answer_says_so_until_it_gives_it() {
    let bug = || Answer::Refused("driver bug".to_owned());
    for (kind, expected) in [
        ("claim", "failed: it refuses to be claimed: driver bug"),
        ("read", "failed: it refuses to be read: driver bug"),
        ("apply", "failed: driver bug"),
    ] {
        let mut bench = Bench::new(targets(true));
        bench.answers.insert((2, kind), bug());
        for now in (S..40 * S).step_by(S as usize / 2) {
            bench.run(now);
            assert_eq!(bench.phases()[1], expected, "{kind} at {now}");
        }
        assert!(bench.requests[&2] < 40, "{kind}: {}", bench.requests[&2]);
        assert!(!bench.reconciler.statuses()[1].ready);
        // It is tried again within the longest waiting time, and another failure has no part of this one.
        bench.answers = [((2, "claim"), Answer::Unreachable("reset".to_owned()))].into();
        bench
            .reconciler
            .event(2, DeviceEvent::Lost("reset".to_owned()), 41 * S);
        bench.run(42 * S);
        assert_eq!(bench.phases()[1], "unreachable: reset", "{kind}");
        bench.answers.clear();
        until_in_sync(&mut bench, 43 * S, 31 * S);
    }
}

/// In sync first: then it answers nothing but refusals, as a device that has lost its program.
#[test]
fn a_device_that_refuses_reads_after_it_was_in_sync_is_shown_within_a_poll() {
    for restart in [Restart::Keeps, Restart::Waits, Restart::Forwards] {
        let mut all = targets(true);
        all.values_mut().for_each(|target| target.restart = restart);
        let mut bench = Bench::new(all);
        until_in_sync(&mut bench, S, 10 * S);
        bench.answers.insert(
            (1, "read"),
            Answer::Refused("no forwarding pipeline config".to_owned()),
        );
        bench.run(12 * S);
        let expected = "failed: it refuses to be read: no forwarding pipeline config";
        assert_eq!(bench.phases()[0], expected);
        // It keeps what it has, or nothing of it is known.
        assert_eq!(bench.reconciler.rules(1).is_some(), restart != Restart::Forwards);
        bench.answers.clear();
        assert!(until_in_sync(&mut bench, 12 * S, 10 * S) <= S);
    }
}

#[test]
fn a_device_that_is_back_is_not_kept_waiting_for_its_outage() {
    let mut bench = Bench::new(targets(true));
    bench.run(S);
    bench
        .reconciler
        .event(2, DeviceEvent::Lost("reset".to_owned()), 2 * S);
    bench
        .answers
        .insert((2, "claim"), Answer::Unreachable("connection refused".to_owned()));
    (2 * S..22 * S)
        .step_by(S as usize / 2)
        .for_each(|now| bench.run(now));
    // It starts without a program: the driver loads it, and says when that is done.
    bench.answers.insert(
        (2, "claim"),
        Answer::Unreachable("its program is being loaded".to_owned()),
    );
    let mut now = 22 * S;
    while bench.phases()[1] != "unreachable: its program is being loaded" {
        now += S / 2;
        bench.run(now);
        assert!(now < 53 * S, "{:?}", bench.phases());
    }
    bench.answers.clear();
    bench.reconciler.event(2, DeviceEvent::Loaded, now);
    assert_eq!(until_in_sync(&mut bench, now, 5 * S), S / 2);
    // One that breaks the connection whenever its program is loaded is not tried without a pause.
    bench.answers.insert(
        (2, "claim"),
        Answer::Unreachable("its program is being loaded".to_owned()),
    );
    bench
        .reconciler
        .event(2, DeviceEvent::Lost("reset".to_owned()), now + 60 * S);
    let before = bench.requests[&2];
    for at in (now + 60 * S..now + 90 * S).step_by(S as usize / 10) {
        bench.run(at);
        bench
            .reconciler
            .event(2, DeviceEvent::Lost("reset".to_owned()), at);
        bench.reconciler.event(2, DeviceEvent::Loaded, at);
    }
    assert!(
        bench.requests[&2] - before <= 61,
        "{}",
        bench.requests[&2] - before
    );
}

#[test]
fn a_device_without_a_program_has_no_rules_and_an_open_border() {
    for restart in [Restart::Keeps, Restart::Waits, Restart::Forwards] {
        let mut all = targets(true);
        all.values_mut().for_each(|target| target.restart = restart);
        let mut bench = Bench::new(all);
        bench.run(S);
        let is_ready = |bench: &Bench| bench.reconciler.states().next().unwrap().ready;
        assert!(is_ready(&bench), "{restart:?}");
        bench
            .reconciler
            .event(1, DeviceEvent::Lost("reset".to_owned()), 2 * S);
        bench.reconciler.event(1, DeviceEvent::Emptied, 2 * S);
        assert_eq!(
            (is_ready(&bench), bench.reconciler.rules(1)),
            (false, None),
            "{restart:?}"
        );
        bench.rules.insert(1, Rules::new());
        bench.version += 1;
        until_in_sync(&mut bench, 2 * S, 10 * S);
        assert!(is_ready(&bench), "{restart:?}");
    }
}

#[test]
fn a_device_that_changes_before_each_change_is_named_and_not_asked_without_a_pause() {
    let mut bench = Bench::new(targets(true));
    bench.answers.insert((2, "apply"), Answer::Stale);
    bench.run(S);
    let expected = "failed: it changed again before its changes were applied; check for another controller that writes to it";
    assert_eq!(bench.phases()[1], expected);
    bench.answers = [((2, "read"), Answer::Stale)].into();
    for now in (2 * S..20 * S).step_by(S as usize / 2) {
        bench.run(now);
    }
    assert_eq!(
        bench.phases()[1],
        "failed: it refuses to be read: it accepted a claim and did not apply it"
    );
    bench.answers.clear();
    until_in_sync(&mut bench, 20 * S, 31 * S);
}

#[test]
fn late_and_doubled_answers_are_ignored() {
    let mut bench = Bench::new(targets(true));
    let mut commands = Vec::new();
    bench.reconciler.poll(S, &mut commands);
    let first: RequestId = commands[0].id;
    bench.reconciler.answer(1, first, Answer::Claimed, S);
    bench
        .reconciler
        .answer(1, first, Answer::Unreachable("doubled".to_owned()), S);
    bench.reconciler.answer(1, first + 999, Answer::Applied, S);
    assert_eq!(bench.phases()[0], "reading");
}

/// Loses a device and lets its claim be refused for another election.
fn refused_for(bench: &mut Bench, node: NodeId, election: Election, now: u64) {
    bench
        .reconciler
        .event(node, DeviceEvent::Lost("reset".to_owned()), now);
    let mut commands = Vec::new();
    bench.reconciler.poll(now, &mut commands);
    let claim = commands.iter().find(|command| command.node == node).unwrap();
    bench
        .reconciler
        .answer(node, claim.id, Answer::NotPrimary(election), now);
}

#[test]
fn a_newer_lease_at_half_of_the_devices_ends_the_older_one() {
    let mut bench = Bench::new(targets(true));
    bench.run(S);
    refused_for(&mut bench, 1, Election { term: 2, epoch: 1 }, 2 * S);
    assert!(!bench.reconciler.is_acting());
    assert_eq!(bench.phases(), ["standby", "standby"]);
    assert_eq!(bench.reconciler.next_timeout(), None);
}

#[test]
fn one_device_of_three_does_not_end_the_lease() {
    let mut three = targets(true);
    let third = Target {
        name: "leaf3".to_owned(),
        ..three[&2].clone()
    };
    three.insert(3, third);
    let mut bench = Bench::new(three);
    bench.run(S);
    refused_for(&mut bench, 1, Election { term: 2, epoch: 1 }, 2 * S);
    assert!(bench.reconciler.is_acting());
    let first = "unreachable: another manager acts on it (term 2); stop one of the two. If the other has stopped, hopwise switches are claimed again after one lease period; for other devices, restart this manager";
    assert_eq!(bench.phases(), [first, "in_sync", "in_sync"]);
    // It is tried again, and what it was said to have done is read.
    bench.run(10 * S);
    assert_eq!(bench.phases(), ["in_sync"; 3]);
    refused_for(&mut bench, 1, Election { term: 2, epoch: 1 }, 12 * S);
    refused_for(&mut bench, 2, Election { term: 2, epoch: 1 }, 12 * S);
    assert!(!bench.reconciler.is_acting());
}

#[test]
fn elections_that_cannot_be_are_no_reason_to_stop_or_to_hurry() {
    for (term, epoch) in [(0, 0), (1, u64::MAX), (1, 0), (1, 77)] {
        let mut bench = Bench::new(targets(true));
        bench.run(S);
        refused_for(&mut bench, 1, Election { term, epoch }, 2 * S);
        assert!(bench.reconciler.is_acting(), "{term}.{epoch}");
        let mut commands = Vec::new();
        bench.reconciler.poll(2 * S, &mut commands);
        assert!(
            commands.iter().all(|command| command.node != 1),
            "it is not asked at once: {commands:?}"
        );
        bench.run(10 * S);
        assert_eq!(bench.phases(), ["in_sync", "in_sync"]);
    }
}

#[test]
fn a_restarted_manager_changes_nothing() {
    let mut bench = Bench::new(targets(true));
    bench.run(S);
    bench.log.clear();
    let mut again = Bench {
        rules: bench.rules,
        ..Bench::new(targets(true))
    };
    again.run(S);
    assert_eq!(again.log, Vec::<String>::new());
    assert_eq!(again.reconciler.statuses()[0].foreign, ["theirs"]);
}

#[test]
fn drift_is_seen_at_the_poll_and_at_once_when_the_device_tells() {
    for tells in [false, true] {
        let mut bench = Bench::new(targets(true));
        bench.run(S);
        bench.rules.insert(2, Rules::new());
        bench.version += 1;
        let now = if tells { 2 * S } else { 11 * S };
        if tells {
            bench.reconciler.event(2, DeviceEvent::Changed, now);
        }
        bench.run(now);
        assert_eq!(bench.phases(), ["in_sync", "in_sync"]);
        assert!(bench.rules[&2].contains(&Rule::Sink(2)));
    }
}

#[test]
fn a_new_encoding_waits_until_there_is_no_int() {
    use crate::device::{Encoding, L4Checksum};
    let with = |l4_checksum| {
        let mut targets = targets(true);
        for target in targets.values_mut() {
            let encoding = Encoding {
                l4_checksum,
                ..Encoding::default()
            };
            Arc::make_mut(&mut target.rules).insert(Rule::Encoding(encoding));
        }
        targets
    };
    let mut bench = Bench::new(with(L4Checksum::Update));
    bench.run(S);
    bench.log.clear();
    bench.reconciler.set_targets(with(L4Checksum::Leave), 2 * S);
    bench.run(2 * S);
    assert_eq!(
        bench.log,
        ["1: remove watch all flows: md with node_id, hop_latency"]
    );
    bench.run(4 * S);
    assert_eq!(bench.phases(), ["in_sync", "in_sync"]);
    assert_eq!(
        bench.log.last().map(String::as_str),
        Some("1: add watch all flows: md with node_id, hop_latency")
    );
}

#[test]
fn two_hundred_devices_are_filled_within_two_seconds() {
    const MS: u64 = 1_000_000;
    let mut all = Targets::new();
    for node in 1..=200 {
        let (mut target, spine) = (targets(true)[&1].clone(), 1 + node % 8);
        target.ports.links = if node > 8 {
            [(1, (spine, node))].into()
        } else {
            BTreeMap::new()
        };
        all.insert(node, target);
    }
    for node in 9..=200 {
        let spine = all.get_mut(&(1 + node % 8)).unwrap();
        spine.ports.links.insert(node, (node, 1));
    }
    let mut bench = Bench::new(all);
    // Each message takes 10 ms each way.
    let (mut now, mut in_flight) = (S, Vec::new());
    while bench.reconciler.in_sync() != bench.reconciler.phases().count() {
        let mut commands = Vec::new();
        bench.reconciler.poll(now, &mut commands);
        for Command {
            node, id, request, ..
        } in commands
        {
            let answer = bench.execute(node, request);
            in_flight.push((now + 20 * MS, node, id, answer));
        }
        now += MS;
        let (due, rest): (Vec<_>, Vec<_>) = in_flight.into_iter().partition(|(at, ..)| *at <= now);
        in_flight = rest;
        for (_, node, id, answer) in due {
            bench.reconciler.answer(node, id, answer, now);
        }
        assert!(now < 3 * S, "{:?}", &bench.phases()[..10]);
    }
    // Claim, read, sinks and transits, read, sources, read: six round trips of 20 ms.
    assert_eq!((now - S) / MS, 120);
}

/// 200 leaves without links, whose answers take 5 s, more than the time limit that devices have at first: all of them, or those that are
/// no claims. Late answers are lost, and what they answered was executed all the same.
#[test]
fn two_hundred_devices_that_need_five_seconds_for_an_answer_converge() {
    const MS: u64 = 1_000_000;
    for claim in [5 * S, 10 * MS] {
        converges_slowly(claim);
    }
}

fn converges_slowly(claim: u64) {
    const MS: u64 = 1_000_000;
    let mut leaf = targets(true)[&1].clone();
    leaf.ports.links.clear();
    let all: Targets = (1..=200).map(|node| (node, leaf.clone())).collect();
    let mut bench = Bench::new(all);
    let (mut now, mut in_flight, mut asked) = (S, Vec::new(), 0);
    while bench.reconciler.in_sync() != bench.reconciler.phases().count() {
        let mut commands = Vec::new();
        bench.reconciler.poll(now, &mut commands);
        asked += commands.len();
        for Command {
            node, id, request, ..
        } in commands
        {
            let takes = if matches!(request, Request::Claim(_)) {
                claim
            } else {
                5 * S
            };
            let answer = bench.execute(node, request);
            in_flight.push((now + takes, node, id, answer));
        }
        now += 100 * MS;
        let (due, rest): (Vec<_>, Vec<_>) = in_flight.into_iter().partition(|(at, ..)| *at <= now);
        in_flight = rest;
        for (_, node, id, answer) in due {
            bench.reconciler.answer(node, id, answer, now);
        }
        assert!(now < 300 * S, "{:?}", &bench.phases()[..10]);
    }
    // Of each kind of request, those of 2 s and 4 s are late, and each other one has its answer.
    assert!(
        now < 120 * S && asked < 200 * 40,
        "{} s, {asked} requests",
        now / S
    );
    // In sync, a device is read again after a pause that is longer than a read takes.
    let mut commands = Vec::new();
    bench.reconciler.poll(now + 5 * S, &mut commands);
    assert_eq!(commands, []);
}
