//! A manager in simulated time whose system's clock is set: nothing that it does may depend on that.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, mpsc},
};

use collector::{Collector, Stats, StreamView};
use detect::Match;
use manager::{
    device::{
        Answer, Capabilities, Change, Command, DeviceEvent, Election, Etag, NodeId, Request, Rule, Rules,
        State,
    },
    drill_down::Firing,
    driver::{Facts, Message, PortFacts, Reported},
    flows::FlowMatch,
};
use runtime::{
    control::{self, Control},
    lock::lock,
    monitor::{Busy, CollectorMonitor, RuleOn, StreamMessage},
};
use serde_json::{Value, json};
use testkit::rng::Rng;

use super::{
    super::{
        Namespaces, ToDevice,
        clock::Now,
        count::{Arrived, Counting, Expected, SimulatedFlow, Totals},
        view::{CopiedView, CopyView, IntentView},
    },
    Core, Error, PutIntent, is_of_the_future,
};
use crate::for_tests::configuration;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const HOUR: u64 = 3_600 * S;
/// When the simulation begins, by both clocks.
const START: u64 = 1_750_000_000 * S;
/// Time between two steps of the simulation.
const TICK: u64 = 100 * MS;

/// Two switches between two hosts.
const NETWORK: &str = r#"
[[inventory.devices]]
name = "a"
node = 1
address = "this process"
ports = 2
edge = [1]
[[inventory.devices]]
name = "b"
node = 2
address = "this process"
ports = 3
edge = [2]
[[inventory.links]]
between = ["a:2", "b:1"]
[manager]
collectors = [{ address = "127.0.0.1:9555", budget = "40 reports/s" }]
drill_downs = { at_once = 2, per_minute = 3 }
request_timeout = "1s"
"#;

/// A third switch, which comes and goes, and an intent of the file.
const SPINE: &str = r#"
[[inventory.devices]]
name = "c"
node = 3
address = "this process"
ports = 2
edge = [2]
[[inventory.links]]
between = ["b:3", "c:1"]
[[intents]]
name = "file"
match = { proto = "udp", dport = 8001 }
watch = ["hop_latency"]
"#;
const MANUAL: &str = "apply = \"manual\"\n";
const STANDBY: &str = "standby = true\nlease = \"4s\"\npeer = \"10.0.0.9:8080\"\n";

/// Steps of the system's clock, and whether the manager mistakes it for the steady clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    /// Nobody sets the clock.
    Undisturbed,
    /// The clock is set at random times.
    Set,
    /// The clock is set at random times, and the manager uses it as its steady clock.
    Trusted,
}

/// A switch that is driven.
#[derive(Debug, Default)]
struct Switch {
    rules: Rules,
    version: u64,
    highest: Election,
    /// When the lease was last renewed.
    renewed: u64,
    /// Until then it cannot be reached.
    down_until: u64,
    matched: BTreeMap<FlowMatch, u64>,
    reported: u64,
}

impl Switch {
    fn execute(&mut self, request: Request, now: u64) -> Answer {
        match request {
            Request::Claim(election) if election <= self.highest => Answer::NotPrimary(self.highest),
            Request::Claim(election) => {
                (self.highest, self.renewed) = (election, now);
                Answer::Claimed
            }
            Request::Read => Answer::State(State {
                etag: Etag(self.version.to_string()),
                rules: self.rules.clone(),
                ..State::default()
            }),
            Request::Apply { election, .. } if election != self.highest => Answer::NotPrimary(self.highest),
            Request::Apply { etag, .. } if etag.0 != self.version.to_string() => Answer::Stale,
            Request::Apply { changes, .. } => {
                self.version += 1;
                self.renewed = now;
                for change in changes {
                    _ = match change {
                        Change::Add(rule) => self.rules.insert(rule),
                        Change::Remove(rule) => self.rules.remove(&rule),
                    };
                }
                Answer::Applied
            }
        }
    }
}

/// The manager, its switches and the collector.
struct Simulation {
    core: Core,
    commands: mpsc::Receiver<ToDevice>,
    messages: Arc<Mutex<VecDeque<Message>>>,
    /// Holds what is sent to the main thread.
    _main: mpsc::Receiver<control::Message>,
    switches: BTreeMap<NodeId, Switch>,
    /// Until then, another manager renews its lease on all switches.
    other_acts_until: u64,
    counting: Counting,
    flows: Vec<SimulatedFlow>,
    clock: Clock,
    /// Time that has passed, and what the system's clock shows.
    time: u64,
    wall: u64,
    /// Source of the simulated events; `steps` is that of the steps of the clock.
    random: Rng,
    steps: Rng,
    /// The terms of this manager, in their order.
    terms: Vec<u64>,
    log: Vec<String>,
}

impl Simulation {
    fn new(text: &str, clock: Clock, seed: u64) -> Self {
        let (local, commands) = mpsc::channel();
        let (control, main) = Control::new();
        let messages: Arc<Mutex<VecDeque<Message>>> = Arc::default();
        let sent = Arc::clone(&messages);
        let all = configuration(&format!("{NETWORK}{text}"));
        let now = Now {
            steady: START,
            wall: START,
        };
        let mut core = Core::new(
            &all,
            Some(local),
            Namespaces::default(),
            &control,
            now,
            move |message| {
                lock(&sent).push_back(message);
            },
        )
        .unwrap();
        core.stopwatch = || 0;
        Self {
            core,
            commands,
            messages,
            _main: main,
            switches: (1..=3).map(|node| (node, Switch::default())).collect(),
            other_acts_until: 0,
            counting: Counting::default(),
            flows: Vec::new(),
            clock,
            time: START,
            wall: START,
            random: Rng(seed),
            steps: Rng(!seed),
            terms: Vec::new(),
            log: Vec::new(),
        }
    }

    fn now(&self) -> Now {
        let steady = if self.clock == Clock::Trusted {
            self.wall
        } else {
            self.time
        };
        Now {
            steady,
            wall: self.wall,
        }
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.random.below(one_in) == 0
    }

    /// Sets the clock now and then: by hours, by seconds, or right.
    fn set_clock(&mut self) {
        let (is_set, way) = (self.steps.below(150) == 0, self.steps.below(4));
        let distance = self.steps.roll();
        if !is_set || self.clock == Clock::Undisturbed {
            return;
        }
        self.wall = match way {
            0 => self.wall.max(START - 6 * HOUR) - distance % (3 * HOUR),
            1 => self.wall.min(START + 6 * HOUR) + distance % (3 * HOUR),
            2 => self.wall + 5 * S - distance % (10 * S),
            _ => self.time,
        };
    }

    /// Lets one tick pass, with what happens in it.
    fn tick(&mut self) {
        self.advance();
        self.set_clock();
        self.take_messages();
        self.disturb();
        self.work();
    }

    /// Lets time pass in which nothing happens from outside.
    fn rest(&mut self, length: u64) {
        for _ in 0..length / TICK {
            self.advance();
            self.take_messages();
            self.work();
        }
    }

    fn advance(&mut self) {
        self.time += TICK;
        self.wall += TICK;
    }

    fn take_messages(&mut self) {
        while let Some(message) = { lock(&self.messages).pop_front() } {
            self.core.receive(message, self.now());
        }
    }

    /// The devices, the collector, and the manager.
    fn work(&mut self) {
        let ticks = (self.time - START) / TICK;
        if ticks % 10 == 3 {
            self.report();
        }
        if ticks.is_multiple_of(5) {
            self.pass_reports();
        }
        self.core.poll(self.now());
        while let Ok(arrived) = self.commands.try_recv() {
            if let ToDevice::Command(command, reply) = arrived
                && let Some(answer) = self.execute(command)
            {
                reply(answer);
            }
        }
        self.write_history(ticks);
        if ticks.is_multiple_of(5) {
            self.write_states(ticks);
        }
    }

    /// Executes a command; `None`: there is no answer.
    fn execute(&mut self, command: Command) -> Option<Answer> {
        let mut shown = command.request.clone();
        if let Request::Claim(election) | Request::Apply { election, .. } = &mut shown {
            election.term = self.number_of_term(election.term);
        }
        let tick = (self.time - START) / TICK;
        self.log.push(format!("{tick} to {}: {shown:?}", command.node));
        let is_lost = self.chance(40);
        let is_refused = self.chance(60);
        let switch = self.switches.get_mut(&command.node).unwrap();
        if self.time < switch.down_until {
            return command
                .id
                .is_multiple_of(2)
                .then(|| Answer::Unreachable("no answer".to_owned()));
        }
        if is_refused {
            return Some(Answer::Refused("busy".to_owned()));
        }
        let answer = switch.execute(command.request, self.time);
        (!is_lost).then_some(answer)
    }

    /// Terms are times of the wall clock: only their order counts, and each is above those before.
    fn number_of_term(&mut self, term: u64) -> u64 {
        if let Some(number) = self.terms.iter().position(|known| *known == term) {
            return number as u64;
        }
        assert!(
            self.terms.iter().all(|known| *known < term),
            "{term} after {:?}",
            self.terms
        );
        self.terms.push(term);
        self.terms.len() as u64 - 1
    }

    /// People, faults and rules, as they come.
    fn disturb(&mut self) {
        let now = self.now();
        let node = 1 + self.random.below(2) as NodeId;
        let length = 1 + self.random.below(20) as u64;
        if self.chance(100) {
            let name = format!("i{}", self.random.below(4));
            let body = self.intent(&name);
            let done = self.put(body).map(|view| view.state);
            self.log.push(format!("put {name}: {done:?}"));
        }
        if self.chance(400) {
            let name = format!("i{}", self.random.below(4));
            let done = self.core.remove(&name, None, "ana", now);
            self.log.push(format!("remove {name}: {done:?}"));
        }
        if self.chance(900) {
            let stop = self.chance(2);
            _ = self.core.stop(stop, "ana", now);
        }
        if self.chance(80) {
            let name = format!("i{}", self.random.below(4));
            let flow = key(8000 + self.random.below(4) as u16);
            let firing = Firing {
                flow,
                at: vec![1],
                ..Firing::default()
            };
            if self.core.admits(&name, &firing, now) {
                self.core.fire(&name, &firing, now);
            }
        }
        if self.chance(300) {
            self.switches.get_mut(&node).unwrap().down_until = self.time + length * S;
            let lost = DeviceEvent::Lost("the connection was closed".to_owned());
            self.core.receive(Message::Event(node, lost), now);
        }
        if self.chance(300) {
            let switch = self.switches.get_mut(&node).unwrap();
            switch.rules.clear();
            switch.version += 1;
            self.core.receive(Message::Event(node, DeviceEvent::Changed), now);
        }
        if self.core.manager.is_manual() && self.chance(50) {
            self.core.apply("ana", now);
        }
        if self.chance(200) {
            let port = PortFacts {
                port: 1,
                mtu: Some(1400 + 100 * self.random.below(3) as u32),
                hosts: true,
                ..PortFacts::default()
            };
            let facts = Facts {
                capabilities: Capabilities {
                    watch_entries: 16 << self.random.below(2),
                    ..Capabilities::default()
                },
                ports: vec![port],
            };
            self.core.receive(Message::Facts(node, Box::new(facts)), now);
        }
        if self.core.settings.standby {
            self.let_another_manager_act(length);
        } else if self.chance(300) {
            let more = [SPINE, ""][self.random.below(2)];
            self.reload(more);
        }
    }

    /// Another manager claims all switches for a while, or its intents are copied.
    fn let_another_manager_act(&mut self, length: u64) {
        if self.chance(50) {
            let added = START + self.random.below(3) as u64;
            let copied = CopiedView {
                name: "i0".to_owned(),
                intent: body("i0", 8000 + added as u16 % 8),
                by: "eve".to_owned(),
                added,
            };
            let copy = match self.random.below(4) {
                0 => Err("no answer".to_owned()),
                1 => Ok(None),
                _ => Ok(Some(CopyView {
                    acting: true,
                    stopped: false,
                    intents: vec![copied],
                })),
            };
            self.core.apply_copy(copy, self.now());
        }
        if self.chance(300) {
            let others = self.switches.values().map(|switch| switch.highest.term);
            let own = self.terms.last().copied().unwrap_or(START / 1_000);
            let election = Election {
                term: others.max().unwrap_or(0).max(own) + 1,
                epoch: 1,
            };
            for switch in self.switches.values_mut() {
                switch.highest = election;
            }
            self.other_acts_until = self.time + length * S;
        }
    }

    /// Takes over a file with more than the network.
    fn reload(&mut self, more: &str) {
        let all = configuration(&format!("{NETWORK}{more}"));
        self.core.reload(&all, self.now());
    }

    fn put(&mut self, body: Value) -> Result<IntentView, Error> {
        let put = PutIntent {
            body,
            by: "ana".to_owned(),
            if_match: None,
            is_new: false,
        };
        self.core.put(put, self.now())
    }

    fn intent(&mut self, name: &str) -> Value {
        let mut body = body(name, 8000 + self.random.below(8) as u16);
        if self.chance(2) {
            body["budget"] = "20 reports/s".into();
            body["report"] = json!({"coarsest": {"sample": "1 in 64"}});
        } else {
            let then = json!({"watch": ["queue_occupancy"], "match": "this flow", "for": "7s"});
            body["report"] = json!({"rule": "hop_latency > 1 ms", "then": then});
        }
        body
    }

    /// Once a second, devices say what they have counted, and who holds their lease.
    fn report(&mut self) {
        let now = self.now();
        let is_acting = self.core.is_acting();
        let own = self.core.manager.term();
        for (node, switch) in &mut self.switches {
            if self.time < switch.down_until {
                continue;
            }
            if self.time < self.other_acts_until || is_acting && Some(switch.highest.term) == own {
                switch.renewed = self.time;
            }
            // Packets pass, whether or not they are reported.
            let keys: Vec<FlowMatch> = switch
                .rules
                .iter()
                .filter_map(|rule| match rule {
                    Rule::Watch(watch) => Some(watch.key),
                    _ => None,
                })
                .collect();
            for key in keys {
                *switch.matched.entry(key).or_default() += 7;
            }
            switch.reported += 5;
            let reported = Reported {
                packets: switch.reported,
                sent: Some(switch.reported / 2),
            };
            let matched = switch.matched.clone().into_iter().collect();
            let silence = self.time - switch.renewed;
            self.core.receive(Message::Reported(*node, reported), now);
            self.core.receive(Message::Matched(*node, matched), now);
            self.core
                .receive(Message::Lease(*node, switch.highest, silence), now);
        }
    }

    /// Twice a second, reports of some flows arrive, and the manager counts them.
    fn pass_reports(&mut self) {
        let now = self.now();
        if self.chance(20) && self.flows.len() < 6 {
            self.flows.push(SimulatedFlow {
                dport: 8000 + self.random.below(8) as u16,
                reports: 0,
                first_seen: self.wall,
                last_seen: self.wall,
            });
            self.flows.sort_by_key(|flow| flow.dport);
            self.flows.dedup_by_key(|flow| flow.dport);
        }
        if self.chance(60) && !self.flows.is_empty() {
            let index = self.random.below(self.flows.len());
            self.flows.remove(index);
        }
        // Whole flows are silent for half a minute.
        let phase = (self.time - START) / (30 * S);
        for flow in &mut self.flows {
            if flow.reports == 0 || !(u64::from(flow.dport) / 2 + phase).is_multiple_of(3) {
                flow.reports += 1 + self.random.below(30) as u64;
                flow.last_seen = self.wall;
            }
        }
        let reports = self.flows.iter().map(|flow| flow.reports).sum::<u64>();
        let arrived = Arrived {
            datagrams: reports / 50,
            lost: 0,
        };
        let local = BTreeSet::from(["127.0.0.1".parse().unwrap()]);
        self.core.compare(&BTreeMap::from([(2, arrived)]), local, now);
        let watched = self.core.watched();
        let counted = self.counting.count_simulated(&self.flows, &watched, now);
        let totals = Totals {
            reports,
            ..Totals::default()
        };
        self.core.observe(counted, totals, now);
    }

    /// Writes down the entries of the history that have the present time of the wall clock.
    fn write_history(&mut self, tick: u64) {
        let history = self.core.history(None, 24).unwrap().history;
        for entry in history.iter().rev().filter(|entry| entry.time == self.wall) {
            // How many are merged depends on how many the wall clock has in an hour.
            let (text, merged) = entry.text.split_once(" times in ").unwrap_or((&entry.text, ""));
            let text = match merged {
                "" => text,
                _ => text.rsplit_once(" (").map_or(text, |(text, _)| text),
            };
            self.log.push(format!(
                "{tick} {} {} {}: {text}",
                entry.by, entry.action, entry.subject
            ));
        }
    }

    fn write_states(&mut self, tick: u64) {
        let now = self.now();
        let intents = self.core.intents(now).intents.into_iter().map(|one| {
            let age = one.end.map(|end| end.saturating_sub(self.wall));
            format!("{} {} {} {} {age:?}", one.name, one.state, one.text, one.rate)
        });
        let devices = self.core.device_states(now).into_iter();
        let devices = devices.map(|one| format!("{} {} {}", one.name, one.state, one.text));
        let domain = self.core.domain(now);
        let domain = [Some(domain.waits), domain.copy].into_iter().flatten();
        let shown: Vec<String> = intents.chain(devices).chain(domain).collect();
        self.log.push(format!("{tick} {}", shown.join(" | ")));
    }

    fn run(text: &str, clock: Clock, seed: u64) -> Vec<String> {
        let mut simulation = Self::new(text, clock, seed);
        (0..150 * S / TICK).for_each(|_| simulation.tick());
        simulation.log
    }
}

/// An intent for the flows to a port.
fn body(name: &str, dport: u16) -> Value {
    json!({"name": name, "match": {"proto": "udp", "dport": dport.to_string()}, "watch": ["hop_latency"], "mode": "md"})
}

/// The flow to a port.
fn key(dport: u16) -> FlowMatch {
    FlowMatch {
        src: Some("10.0.0.1".parse().unwrap()),
        dst: Some("10.0.0.2".parse().unwrap()),
        sport: (1000, 1000),
        dport: (dport, dport),
        proto: Some(17),
        ..FlowMatch::default()
    }
}

/// The first difference of two runs, with what was the same before it.
fn difference(one: &[String], other: &[String]) -> Option<String> {
    let at = one.iter().zip(other).position(|(one, other)| one != other);
    let at = at.or((one.len() != other.len()).then(|| one.len().min(other.len())))?;
    let before = &one[at.saturating_sub(3)..at];
    Some(format!("{before:#?}\n{:?}\n{:?}", one.get(at), other.get(at)))
}

#[test]
fn what_a_manager_does_does_not_depend_on_steps_of_the_clock() {
    for seed in 0..3 {
        for text in ["", MANUAL, STANDBY] {
            let without = Simulation::run(text, Clock::Undisturbed, seed);
            let with = Simulation::run(text, Clock::Set, seed);
            if let Some(difference) = difference(&without, &with) {
                panic!("seed {seed} {text}: {difference}");
            }
        }
    }
}

/// Checks that the test above can fail: it detects a manager whose timers follow the system's clock.
#[test]
fn a_manager_that_trusts_the_clock_of_the_system_is_found() {
    let runs = [("", 1), (STANDBY, 2)].map(|(text, seed)| {
        let without = Simulation::run(text, Clock::Undisturbed, seed);
        difference(&without, &Simulation::run(text, Clock::Trusted, seed))
    });
    assert!(runs.iter().all(Option::is_some));
}

#[test]
fn an_intent_is_installed_at_once_after_the_clock_was_set_back() {
    let waits = [Clock::Set, Clock::Trusted].map(|clock| {
        let mut simulation = Simulation::new("", clock, 0);
        simulation.rest(5 * S);
        simulation.wall -= HOUR;
        simulation.put(body("web", 8000)).unwrap();
        simulation.rest(10 * S);
        let view = simulation.core.intent("web", simulation.now()).unwrap();
        assert_eq!(view.added, simulation.wall - 10 * S);
        view.state == "pending"
    });
    assert_eq!(waits, [false, true]);
}

#[test]
fn an_intent_ends_at_the_time_that_it_shows_also_after_a_step() {
    let mut simulation = Simulation::new("", Clock::Set, 0);
    let end = simulation.wall + 600 * S;
    for name in ["early", "late"] {
        let mut body = body(name, 8000);
        body["until"] = "10m".into();
        let view = simulation.put(body).unwrap();
        assert_eq!(view.end, Some(end));
        assert_eq!(view.intent["until"], manager::intent::time_text(end));
    }
    let core = &mut simulation.core;
    let mut names_at = |passed: u64, wall: u64| {
        let now = Now {
            steady: START + passed,
            wall,
        };
        let next = core.poll(now).unwrap();
        let names: Vec<String> = core
            .intents(now)
            .intents
            .into_iter()
            .map(|one| one.name)
            .collect();
        (names.len(), next.min(now.to_steady(end)) == next)
    };
    // Set back: it lasts longer. The manager wakes up in time.
    assert_eq!(names_at(700 * S, START - HOUR), (2, true));
    assert_eq!(names_at(700 * S + HOUR, end - 1), (2, true));
    assert_eq!(names_at(800 * S + HOUR, START), (2, true));
    // Set ahead: it ends.
    let (left, _) = names_at(801 * S + HOUR, end);
    assert_eq!(left, 0);
    let history = core.history(Some("late"), 1).unwrap().history;
    assert_eq!((history[0].action.as_str(), history[0].time), ("end", end));
}

#[test]
fn ends_are_read_by_the_clock_of_the_system() {
    let mut simulation = Simulation::new("", Clock::Set, 0);
    simulation.wall -= HOUR;
    let now = simulation.now();
    let until = |end: u64| {
        let mut body = body("web", 8000);
        body["until"] = manager::intent::time_text(end).into();
        body
    };
    let expected = Expected::default();
    let core = &mut simulation.core;
    // Between the times of the two clocks.
    let body = until(now.wall + 600 * S);
    assert!(core.dry_run(&body, &expected, now).is_ok() && core.expecting(&body, now).is_ok());
    assert_eq!(simulation.put(body).unwrap().end, Some(now.wall + 600 * S));
    simulation.wall += 2 * HOUR;
    let now = simulation.now();
    let core = &mut simulation.core;
    let body = until(now.wall - 600 * S);
    assert!(core.dry_run(&body, &expected, now).is_err() && core.expecting(&body, now).is_err());
    assert!(simulation.put(body).is_err());
    simulation.rest(TICK);
    assert_eq!(simulation.core.intents(simulation.now()).intents.len(), 0);
    // An intent of the file: a length of time counts from the reload.
    let now = simulation.now();
    simulation.reload(&SPINE.replace("watch =", "until = \"10m\"\nwatch ="));
    let view = simulation.core.intent("file", now).unwrap();
    assert_eq!((view.added, view.end), (now.wall, Some(now.wall + 600 * S)));
    // It has ended by the present clock.
    let past = manager::intent::time_text(now.wall - 600 * S);
    simulation.reload(&SPINE.replace("watch =", &format!("until = \"{past}\"\nwatch =")));
    assert!(simulation.core.intent("file", now).is_err());
}

#[test]
fn a_copy_of_intents_is_read_by_the_clock_of_the_system() {
    let mut simulation = Simulation::new(STANDBY, Clock::Set, 0);
    simulation.wall -= HOUR;
    let now = simulation.now();
    let end = now.wall + 600 * S;
    let mut intent = body("web", 8000);
    intent["until"] = manager::intent::time_text(end).into();
    let copy = CopyView {
        acting: true,
        stopped: false,
        intents: vec![CopiedView {
            name: "web".to_owned(),
            intent,
            by: "eve".to_owned(),
            added: START,
        }],
    };
    assert!(simulation.core.apply_copy(Ok(Some(copy)), now));
    let view = simulation.core.intent("web", now).unwrap();
    assert_eq!((view.added, view.end), (START, Some(end)));
}

#[test]
fn the_reports_of_an_intent_are_expected_from_flows_of_the_same_clock() {
    let mut simulation = Simulation::new("", Clock::Set, 0);
    simulation.wall -= HOUR;
    simulation.put(body("web", 8000)).unwrap();
    let since = |simulation: &Simulation| {
        let expecting = simulation.core.expecting(&body("more", 8001), simulation.now());
        expecting.unwrap().since
    };
    let changed = simulation.wall;
    simulation.rest(S);
    assert_eq!(since(&simulation), Some(changed));
    simulation.wall += HOUR;
    assert_eq!(since(&simulation), None);
}

/// One client of the manager's stream.
#[derive(Debug, Default)]
struct Client(Mutex<Vec<StreamMessage>>);

impl CollectorMonitor for Client {
    async fn ask<T: Send + 'static>(
        &self,
        _: impl Fn(&Collector) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Busy> {
        Err(Busy)
    }

    async fn walk<T: Send + 'static>(
        &self,
        _: impl Fn(&Collector, u32) -> (T, Option<u32>) + Clone + Send + 'static,
        _: impl FnMut(usize, T) + Send,
    ) -> Result<(), Busy> {
        Err(Busy)
    }

    fn streams(&self) -> Vec<StreamView> {
        Vec::new()
    }

    fn total(&self, _: fn(&Stats) -> u64) -> u64 {
        0
    }

    fn follow_rules(&self, queue: usize) -> tokio::sync::mpsc::Receiver<RuleOn> {
        tokio::sync::mpsc::channel(queue).1
    }

    fn set_followed(&self, _: BTreeSet<String>) {}

    fn drain_missed_rules(&self) -> u64 {
        0
    }

    fn counted_events<'a>(&self, _: impl Iterator<Item = (&'a str, &'a [Match])>) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    fn stream_clients(&self) -> Option<u64> {
        Some(1)
    }

    fn publish_change(&self, message: &StreamMessage) {
        lock(&self.0).push(message.clone());
    }
}

#[test]
fn clients_of_the_stream_get_changes_also_after_the_clock_was_set_back() {
    let mut simulation = Simulation::new("", Clock::Set, 0);
    let client = Client::default();
    let publish = |simulation: &mut Simulation| {
        simulation.core.publish(&client, simulation.now());
        std::mem::take(&mut *lock(&client.0)).len()
    };
    assert!(publish(&mut simulation) > 0);
    simulation.wall -= HOUR;
    // More than the share of the thread's time that a busy machine leaves.
    simulation.rest(60 * S);
    simulation.put(body("web", 8000)).unwrap();
    assert!(publish(&mut simulation) > 0);
}

#[test]
fn a_drill_down_lasts_as_long_as_was_asked_and_shows_its_end_by_the_present_clock() {
    let mut simulation = Simulation::new("", Clock::Set, 0);
    let mut parent = body("web", 8000);
    let then = json!({"watch": ["queue_occupancy"], "match": "this flow", "for": "7s"});
    parent["report"] = json!({"rule": "hop_latency > 1 ms", "then": then});
    simulation.put(parent).unwrap();
    let firing = Firing {
        flow: key(8000),
        at: vec![1],
        ..Firing::default()
    };
    simulation.wall -= HOUR;
    simulation.core.fire("web", &firing, simulation.now());
    let view = simulation.core.intent("web.drill-1", simulation.now());
    assert_eq!(view.unwrap().added, simulation.wall);
    let end = |simulation: &Simulation| {
        let view = simulation.core.intent("web.drill-1", simulation.now());
        Some(view.ok()?.end? - simulation.wall)
    };
    assert_eq!(end(&simulation), Some(7 * S));
    simulation.wall -= HOUR;
    assert_eq!(end(&simulation), Some(7 * S));
    simulation.rest(6 * S);
    simulation.wall += 2 * HOUR;
    simulation.rest(TICK);
    assert_eq!(end(&simulation), Some(S - TICK));
    simulation.rest(S);
    assert_eq!(end(&simulation), None);
}

#[test]
fn a_manager_on_standby_believes_leases_after_its_clock_was_set_back() {
    let term = |wall: u64| Election {
        term: wall / 1_000,
        epoch: 1,
    };
    let now = |steady, wall| Now { steady, wall };
    let day = 24 * HOUR;
    assert!(!is_of_the_future(term(START + HOUR), now(START, START)));
    assert!(is_of_the_future(term(START + 2 * day), now(START, START)));
    assert!(!is_of_the_future(term(START), now(START + HOUR, START - 9 * day)));
    // A manager that started with a wrong clock, which was set right.
    assert!(!is_of_the_future(term(START), now(9 * day, START)));
}
