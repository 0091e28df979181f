//! Experiment `adaptive`: the manager's budget controller moves the sink's filter threshold to keep a budget of reports,
//! compared with fixed thresholds, in simulated time. Measured are reports, missed bursts, and the error that a reader sees.
//!
//! Traffic models three kinds of server racks (`bursts`), one kind after another.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, VecDeque},
};

use dataplane::{
    Config, Fabric, FabricSink, Filter, Filters, FlowSpec, GroundTruth, Pattern, Reporter, Topology, Watch,
    fabric::{Action, FlowId, HopTruth, PacketTrace, ReportKind, ReportTruth, Wire},
    filter::Units,
};
use detect::{Algorithm, Detector, Match, Metric};
use manager::{
    budget::{Budget, Controller, INTERVAL, Move, Rates, Reason},
    intent::Intent,
};
use wire::FlowKey;

use super::{
    bursts::{MODELS, Model, PERIOD, Random},
    event_detection::failed,
    page::{Cell, Comparison, Findings, Table, fixed, line_series, linear, log, row},
    rows::{Observations, Results, Row, judgement},
    settings::{Parameter, Settings},
};
use crate::svg::Style;
use terminal::{CliError, units};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::seed(),
    Parameter::scaled("span", [&[30_000], &[12_000], &[2_000]], 2_000..=60_000)
        .help("length of each phase, ms"),
    Parameter::new("rate", &[1_000], 10..=100_000).help("budget, reports per second"),
    Parameter::new("threshold", &[800, 3_200, 12_800, 51_200], 1..=1_000_000).help("fixed thresholds, bytes"),
];

/// The kinds of racks, one per phase of the run.
const PHASES: [Model; 5] = [MODELS[0], MODELS[1], MODELS[2], MODELS[1], MODELS[0]];
/// The link to the rack in the model, bit/s.
const RATE: u64 = 10_000_000_000;
const PACKET_BYTES: u64 = 800;
/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS: u64 = 42;
/// A burst is a period in which a queue exceeds this, bytes.
const BURST: u32 = 64_000;
/// The finest threshold, bytes: one packet.
const FINEST: u64 = PACKET_BYTES;
/// Reports per second that the collector can process, as a multiple of the budget.
const CAPACITY: u64 = 2;
/// Reports that the collector can queue, in seconds at the rate of the budget.
const ROOM: u64 = 8;
/// Simulated time per step of the main loop, ns.
const STEP: u64 = 100_000_000;

// Node IDs of switches and hosts: LEAF - SPINE - SINK in a row, two senders before the leaf, one server behind the sink.
const LEAF: u32 = 1;
const SPINE: u32 = 2;
const SINK: u32 = 3;
const STEADY: u32 = 11;
const BURSTY: u32 = 12;
const SERVER: u32 = 13;

pub(super) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let span = settings.value("span") * 1_000_000;
    let budget = settings.value("rate");
    let scene = Scene {
        slower: 40,
        span,
        budget,
        seed: settings.value("seed"),
    };
    let mut runs = vec![play(scene, Control::Adaptive)?];
    for threshold in settings.list("threshold") {
        runs.push(play(scene, Control::Fixed(*threshold))?);
    }
    Ok(Findings::new(
        METHOD,
        conditions(&runs[0], scene),
        [
            outcome_table(&runs, budget),
            time_table(&runs),
            move_table(&runs[0]),
        ],
    ))
}

const METHOD: &str = "Three switches in a row carry a steady flow and bursts of three kinds of server racks (two-state model measured at Facebook, as \
                      in [event-filter](event-filter.md)) to a server, one kind after another. INT-MD measures every packet; the sink reports a packet if \
                      the queue of some hop differs by more than the threshold from the last reported one (per-hop). The threshold is fixed, or the \
                      manager's budget controller moves it, at most once a second, within the bounds of an intent with a budget. A reader of the reports \
                      knows the last queue of each hop that the collector did not shed. The error is the difference from the actual queue, over all packets and hops, by the \
                      ground truth of the simulation. A burst (a queue above 64,000 bytes) is missed if no report of that time shows more than 64,000 bytes.";

fn conditions(run: &Run, scene: Scene) -> Vec<String> {
    let Scene { slower, budget, .. } = scene;
    vec![
        format!(
            "{} packets of {PACKET_BYTES} bytes; all times of the model are {slower} times as long and all rates as much lower, so that queues in \
             bytes are those of 10 Gb/s: periods of {} ms, a link of {} Mb/s to the server",
            units::count(run.total(|phase| phase.packets)),
            PERIOD * slower / 1_000_000,
            RATE / slower / 1_000_000
        ),
        format!(
            "intent: watch queue_occupancy, filter per_hop, threshold {} to {} bytes, budget {} reports/s",
            units::count(FINEST),
            units::count(FINEST * manager::intent::COARSER),
            units::count(budget)
        ),
        format!(
            "the collector processes {} reports/s and has room for {} more; beyond that it sheds",
            units::count(CAPACITY * budget),
            units::count(ROOM * budget)
        ),
        "a change of the threshold keeps the sink's registers: the next packet is compared with what was reported last".into(),
        "simulated: the same on every machine".into(),
    ]
}

/// Parameters of the simulation.
#[derive(Clone, Copy, Debug)]
struct Scene {
    /// Factor by which all times of the model are longer, and all rates lower: queues in bytes stay the same.
    slower: u64,
    /// Length of each phase, ns.
    span: u64,
    /// Reports per second that the budget allows.
    budget: u64,
    seed: u64,
}

/// The way in which the threshold is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Control {
    /// The budget controller changes it.
    Adaptive,
    /// The threshold is fixed at this value, bytes.
    Fixed(u64),
}

impl Control {
    fn name(self) -> String {
        match self {
            Self::Adaptive => "adaptive".to_owned(),
            Self::Fixed(threshold) => threshold.to_string(),
        }
    }

    fn label(self) -> String {
        match self {
            Self::Adaptive => "adaptive".to_owned(),
            Self::Fixed(threshold) => format!("fixed, {} bytes", units::count(threshold)),
        }
    }
}

/// The results of one run, with a fixed or an adaptive threshold.
#[derive(Clone, PartialEq, Debug)]
struct Run {
    control: Control,
    phases: Vec<Phase>,
    rates: Vec<u64>,
    /// Threshold in force in each second.
    thresholds: Vec<u64>,
    /// The controller's changes of the threshold.
    moves: Vec<Move>,
    /// Largest number of reports in the collector's queue.
    waiting: f64,
}

/// Totals of one phase; a value is the queue of one hop of one packet.
#[derive(Clone, Default, PartialEq, Debug)]
struct Phase {
    packets: u64,
    values: u64,
    reports: u64,
    /// Sum of the differences between the actual and the last reported queue, bytes.
    error_sum: u64,
    error_max: u64,
    bursts: u64,
    missed: u64,
    shed: u64,
    /// Values that differed from the last reported one by more than the threshold in force.
    violations: u64,
}

impl Run {
    fn total(&self, of: fn(&Phase) -> u64) -> u64 {
        self.phases.iter().map(of).sum()
    }

    fn bursts(&self) -> u64 {
        self.total(|phase| phase.bursts)
    }

    fn missed(&self) -> u64 {
        self.total(|phase| phase.missed)
    }
}

/// Runs the network with a fixed or an adaptive threshold.
fn play(scene: Scene, control: Control) -> Result<Run, CliError> {
    let mut fabric = network(scene)?;
    let (mut controller, threshold) = match control {
        Control::Adaptive => (Some(controller(scene.budget)?), FINEST),
        Control::Fixed(threshold) => (None, threshold),
    };
    let mut reader = Reader::new(scene, control, threshold);
    set_threshold(&mut fabric, threshold)?;
    let end = scene.span * PHASES.len() as u64;
    for now in (STEP..=end).step_by(STEP as usize) {
        fabric.run_until(now, &mut reader);
        reader.drain(now);
        if !now.is_multiple_of(INTERVAL) {
            continue;
        }
        let rate = std::mem::take(&mut reader.arrived);
        reader.run.rates.push(rate);
        reader.run.thresholds.push(reader.threshold_at(now));
        let change = controller.as_mut().and_then(|controller| {
            let rates = Rates {
                reports: rate as f64,
                events: 0.0,
            };
            let budget = Budget {
                reports: Some(scene.budget),
                events: None,
            };
            controller.observe(budget.loads(rates, None), now)
        });
        if let Some(change) = change.filter(|change| change.from != change.to) {
            set_threshold(&mut fabric, change.to.threshold)?;
            reader.moved(change);
        }
    }
    reader.close();
    Ok(reader.run)
}

/// Creates the controller of an intent with a budget, as the manager does.
fn controller(budget: u64) -> Result<Controller, CliError> {
    let table = format!(
        "[[intents]]\nname = \"racks\"\nwatch = [\"queue_occupancy\"]\nmode = \"md\"\nbudget = \"{budget} reports/s\"\n\
         report = {{ filter = \"per_hop\", thresholds = {{ queue_occupancy = {FINEST} }} }}"
    );
    let intents = manager::intent::read(&table, "racks.toml", 0);
    let intents = intents.map_err(|error| CliError::new(error.to_string()))?;
    let bounds = intents.first().and_then(Intent::bounds);
    let bounds = bounds.ok_or_else(|| CliError::new("no bounds"))?;
    Ok(Controller::new(bounds))
}

fn set_threshold(fabric: &mut Fabric, threshold: u64) -> Result<(), CliError> {
    let detector = Detector {
        algorithm: Algorithm::PerHop,
        metric: Metric::QueueOccupancy,
        threshold,
    };
    let filter = Filter {
        flows: Match::default(),
        detector,
    };
    let filters = Filters::new(vec![filter], 4_096, Units::default()).map_err(failed)?;
    if let Some(switch) = fabric.switch_mut(SINK) {
        switch.set_filters(filters);
    }
    Ok(())
}

/// Builds the network of two hosts, three switches and a server, with the bursts of all phases scheduled.
fn network(scene: Scene) -> Result<Fabric, CliError> {
    let rate = RATE / scene.slower;
    let [to_server, between_switches, from_hosts] = [1, 2, 4].map(|times| Wire {
        rate: times * rate,
        delay: 10_000,
        depth: 2_000_000,
    });
    let topology = (Topology::builder().switch(LEAF).switch(SPINE).switch(SINK))
        .host(STEADY, None)
        .host(BURSTY, None)
        .host(SERVER, None)
        .link(STEADY, LEAF, from_hosts)
        .link(BURSTY, LEAF, from_hosts)
        .link(LEAF, SPINE, between_switches)
        .link(SPINE, SINK, between_switches)
        .link(SINK, SERVER, to_server);
    let config = Config {
        watchlist: Watch::default().into(),
        ..Config::default()
    };
    let mut fabric = Fabric::new(topology.build().map_err(failed)?, config, scene.seed).map_err(failed)?;
    // Transmission time of a packet on the link to the server, ns. Between bursts, the steady flow uses a fifth of the link.
    let packet = PACKET_BYTES * 8 * 1_000_000_000 / rate;
    let payload = (PACKET_BYTES - HEADERS) as u16;
    let steady = FlowSpec {
        payload,
        pattern: Pattern::Constant { gap: 5 * packet },
        ..FlowSpec::new(STEADY, SERVER, 5_000, 80)
    };
    let bursty = FlowSpec {
        payload,
        pattern: Pattern::Idle,
        ..FlowSpec::new(BURSTY, SERVER, 6_000, 443)
    };
    fabric.add_flow(&steady).map_err(failed)?;
    let flow = fabric.add_flow(&bursty).map_err(failed)?;
    schedule(&mut fabric, flow, packet, scene)?;
    Ok(fabric)
}

/// Schedules the bursts of a flow. In a hot period, both flows together arrive at twice the rate of the link to the server.
fn schedule(fabric: &mut Fabric, flow: FlowId, packet: u64, scene: Scene) -> Result<(), CliError> {
    let mut random = Random(scene.seed);
    let mut hot = false;
    let period = PERIOD * scene.slower;
    // Twice what the link can send in a period, less the share of the steady flow.
    let packets = (2 * period / packet - period / (5 * packet)) as u32;
    let gap = period / u64::from(packets);
    for (index, model) in PHASES.into_iter().enumerate() {
        let begin = scene.span * index as u64;
        for at in (begin..begin + scene.span).step_by(period as usize) {
            hot = model.is_hot(hot, &mut random);
            if hot {
                fabric
                    .schedule(at, Action::Burst { flow, packets, gap })
                    .map_err(failed)?;
            }
        }
    }
    Ok(())
}

/// A packet that arrived at the server.
struct Packet {
    number: u64,
    flow: FlowKey,
    sent: u64,
    ended: u64,
    hops: Vec<HopTruth>,
}

/// Upper bound of the time from a packet's arrival at the server until its report has left the sink, ns.
const LAG: u64 = 50_000_000;

/// The reader of the reports: knows the last reported queue of each hop, and compares it with the ground truth.
struct Reader {
    run: Run,
    /// Pairs of the time from which a threshold was in force (ns) and the threshold (bytes).
    thresholds: Vec<(u64, u64)>,
    scene: Scene,
    /// Reports that have arrived since the controller last observed the rate.
    arrived: u64,
    /// Reports in the collector's queue, and reports that it processes per step.
    waiting: f64,
    per_step: f64,
    /// Packets at the server whose reports may still be in flight.
    delivered: VecDeque<Packet>,
    /// Reports whose packets have not been compared yet, in the order of sending.
    pending: VecDeque<ReportTruth>,
    /// For each report that has arrived, in the same order: true if the collector queued it, false if it shed it.
    taken: VecDeque<bool>,
    /// Last reported queue of each node, bytes.
    reported: BTreeMap<u32, u32>,
    /// Bursts in progress, by node: the phase in which each began, and whether a report showed it.
    open: BTreeMap<u32, (usize, bool)>,
}

impl Reader {
    fn new(scene: Scene, control: Control, threshold: u64) -> Self {
        let run = Run {
            control,
            phases: vec![Phase::default(); PHASES.len()],
            rates: Vec::new(),
            thresholds: Vec::new(),
            moves: Vec::new(),
            waiting: 0.0,
        };
        Self {
            run,
            thresholds: vec![(0, threshold)],
            delivered: VecDeque::new(),
            scene,
            arrived: 0,
            waiting: 0.0,
            per_step: (CAPACITY * scene.budget * STEP) as f64 / 1e9,
            pending: VecDeque::new(),
            taken: VecDeque::new(),
            reported: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }

    fn phase(&self, at: u64) -> usize {
        ((at / self.scene.span) as usize).min(PHASES.len() - 1)
    }

    fn moved(&mut self, change: Move) {
        self.thresholds.push((change.at, change.to.threshold));
        self.run.moves.push(change);
    }

    fn threshold_at(&self, time: u64) -> u64 {
        self.thresholds
            .iter()
            .rfind(|(from, _)| *from < time)
            .map_or(0, |(_, threshold)| *threshold)
    }

    /// Returns the largest threshold in force while a packet was in the sink.
    fn allowed(&self, sink: &HopTruth) -> u64 {
        self.threshold_at(sink.ingress)
            .max(self.threshold_at(sink.egress + 1))
    }

    /// Lets the collector process one step's share of its queue, and compares the packets whose reports have left by `now`.
    fn drain(&mut self, now: u64) {
        self.waiting = (self.waiting - self.per_step).max(0.0);
        while let Some(packet) = self.delivered.pop_front_if(|packet| packet.ended + LAG <= now) {
            self.compare(&packet);
        }
    }

    /// Applies the packet's report, if there is one, then adds the error of each hop.
    fn compare(&mut self, packet: &Packet) {
        let Some(sink) = packet.hops.last() else { return };
        let phase = self.phase(packet.sent);
        let allowed = self.allowed(sink);
        // The sink decides about packets in the order in which they leave, so reports have the same order as packets.
        if let Some(report) = self
            .pending
            .pop_front_if(|report| (report.flow, report.packet) == (packet.flow, packet.number))
            && self.taken.pop_front() == Some(true)
        {
            self.reported
                .extend(report.hops.iter().map(|hop| (hop.node, hop.queue_occupancy)));
        }
        self.run.phases[phase].packets += 1;
        for hop in &packet.hops {
            let last = self.reported.get(&hop.node).copied().unwrap_or(0);
            let error = u64::from(hop.queue_occupancy.abs_diff(last));
            let outcome = &mut self.run.phases[phase];
            outcome.violations += u64::from(error > allowed);
            outcome.values += 1;
            outcome.error_sum += error;
            outcome.error_max = outcome.error_max.max(error);
            self.watch_burst(hop, phase);
        }
    }

    fn watch_burst(&mut self, hop: &HopTruth, phase: usize) {
        let shown = self.reported.get(&hop.node).is_some_and(|queue| *queue > BURST);
        if hop.queue_occupancy > BURST {
            self.open.entry(hop.node).or_insert((phase, false)).1 |= shown;
        } else if let Some((phase, shown)) = self.open.remove(&hop.node) {
            self.end_burst(phase, shown);
        }
    }

    fn end_burst(&mut self, phase: usize, shown: bool) {
        let outcome = &mut self.run.phases[phase];
        outcome.bursts += 1;
        outcome.missed += u64::from(!shown);
    }

    /// Ends the run. Packets that are still in the network are not compared.
    fn close(&mut self) {
        self.drain(u64::MAX);
        for (phase, shown) in std::mem::take(&mut self.open).into_values() {
            self.end_burst(phase, shown);
        }
    }
}

impl FabricSink for Reader {
    fn report(&mut self, t: u64, _from: &Reporter, _payload: &[u8]) {
        // Each datagram holds one report.
        let phase = self.phase(t);
        self.arrived += 1;
        self.run.phases[phase].reports += 1;
        let is_taken = self.waiting < (ROOM * self.scene.budget) as f64;
        self.taken.push_back(is_taken);
        if !is_taken {
            self.run.phases[phase].shed += 1;
        } else {
            self.waiting += 1.0;
            self.run.waiting = self.run.waiting.max(self.waiting);
        }
    }

    fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
        match truth {
            GroundTruth::Datagram(datagram) => {
                for report in datagram
                    .reports
                    .iter()
                    .filter(|report| report.kind == ReportKind::Flow)
                {
                    self.pending.push_back(report.clone());
                }
            }
            GroundTruth::Delivered(PacketTrace {
                packet,
                flow,
                sent,
                ended,
                hops,
            }) => {
                self.delivered.push_back(Packet {
                    number: *packet,
                    flow: *flow,
                    sent: *sent,
                    ended: *ended,
                    hops: hops.to_vec(),
                });
            }
            _ => {}
        }
    }
}

/// Makes the table with one row for each threshold and kind of rack, over all phases of that kind.
fn outcome_table(runs: &[Run], budget: u64) -> Table {
    let columns = "threshold_bytes,rack,packets,reports_per_s,busiest_second,seconds_over_budget,\
        shed,bursts,bursts_missed,error_mean_bytes,error_max_bytes,threshold_least,\
        threshold_most,values_beyond_threshold";
    let about = "Reports, missed bursts and error by threshold and kind of rack";
    let mut table = Table::new("outcome", about, columns);
    let mut lines = Vec::new();
    for run in runs {
        for model in MODELS {
            table.push(rack_row(run, model, budget));
        }
        let share = 100.0 * run.missed() as f64 / run.bursts().max(1) as f64;
        // The line connects the mean rate with the rate of the busiest second.
        let points = [mean(&run.rates), maximum(&run.rates) as f64].map(|rate| (rate.max(1.0), share));
        lines.push(line_series(&run.control.label(), points.into()));
    }
    table.plot(
        "Reports and missed bursts, by threshold",
        &format!("each line from the mean of all seconds to the busiest one; budget {budget} reports/s"),
        [log("reports (per second)"), linear("missed bursts (per cent)")],
        lines,
    );
    table
}

fn mean(values: &[u64]) -> f64 {
    values.iter().sum::<u64>() as f64 / values.len().max(1) as f64
}

fn maximum(values: &[u64]) -> u64 {
    values.iter().copied().max().unwrap_or(0)
}

fn rack_row(run: &Run, model: Model, budget: u64) -> Vec<Cell> {
    let phases = run
        .phases
        .iter()
        .zip(PHASES)
        .filter(|(_, phase_model)| *phase_model == model);
    let phases: Vec<Phase> = phases.map(|(phase, _)| phase.clone()).collect();
    let total = Run {
        phases,
        ..run.clone()
    };
    let seconds = run.rates.len() / PHASES.len();
    let [rates, thresholds] = [&run.rates, &run.thresholds].map(|values| {
        let values = values.iter().enumerate();
        let of_model = values.filter(|(second, _)| rack_at(*second, seconds) == model);
        of_model.map(|(_, value)| *value).collect::<Vec<u64>>()
    });
    let error = total.total(|phase| phase.error_sum) as f64 / total.total(|phase| phase.values).max(1) as f64;
    let errors: Vec<u64> = total.phases.iter().map(|phase| phase.error_max).collect();
    row![
        run.control.name().as_str(),
        model.name,
        total.total(|phase| phase.packets),
        fixed(mean(&rates), 1),
        maximum(&rates),
        rates.iter().filter(|rate| **rate > budget).count(),
        total.total(|phase| phase.shed),
        total.bursts(),
        total.missed(),
        fixed(error, 1),
        maximum(&errors),
        thresholds.iter().copied().min().unwrap_or(0),
        maximum(&thresholds),
        total.total(|phase| phase.violations),
    ]
}

/// Returns the kind of rack in a second of a run whose phases last `seconds`.
fn rack_at(second: usize, seconds: usize) -> Model {
    PHASES[(second / seconds.max(1)).min(PHASES.len() - 1)]
}

/// Makes the table with one row per second: the adaptive run, and the run with the finest fixed threshold.
fn time_table(runs: &[Run]) -> Table {
    let adaptive = &runs[0];
    let finest = runs.get(1).unwrap_or(adaptive);
    let seconds = adaptive.rates.len() / PHASES.len();
    let columns = "second,rack,reports_fixed_finest,reports_adaptive,threshold_bytes";
    let mut table = Table::new("time", "Second by second", columns);
    for second in 0..adaptive.rates.len() {
        table.push(row![
            second + 1,
            rack_at(second, seconds).name,
            finest.rates[second],
            adaptive.rates[second],
            adaptive.thresholds[second],
        ]);
    }
    let fixed = finest.control.label();
    let [finest, adaptive, mut thresholds] = [
        (fixed.as_str(), "reports_fixed_finest"),
        ("adaptive", "reports_adaptive"),
        ("adaptive", "threshold_bytes"),
    ]
    .map(|(name, column)| {
        table
            .line(name, &[], "second", column)
            .map(|value| value.max(1.0))
    });
    let racks = PHASES.map(|model| model.name).join(", ");
    let axes = [linear("time (s)"), log("reports")];
    table.plot("Reports of each second", &racks, axes, vec![finest, adaptive]);
    thresholds.style = Style::Step;
    let axes = [linear("time (s)"), log("threshold (bytes)")];
    table.plot("Threshold in force", &racks, axes, vec![thresholds]);
    table
}

/// Makes the table of the controller's changes and their reasons.
fn move_table(adaptive: &Run) -> Table {
    let columns = "after_second,reason,reports,threshold_before,threshold_after";
    let mut table = Table::new("moves", "Moves of the threshold", columns);
    for change in &adaptive.moves {
        let reason = match change.reason {
            Reason::Above => "above the budget",
            Reason::Room => "room",
            Reason::NoBudget => "no budget any more",
            Reason::AtBound => "above, at the bound",
        };
        table.push(row![
            change.at / INTERVAL,
            reason,
            fixed(change.load.rate, 0),
            change.from.threshold,
            change.to.threshold,
        ]);
    }
    table
}

/// Computes comparisons and remarks from the rows: each fixed threshold against the adaptive one, in every quantity.
pub(super) fn observe(results: &Results) -> Observations {
    let rows = results.table("outcome");
    let outcomes: Vec<Outcome> = rows
        .values("threshold_bytes")
        .into_iter()
        .map(|threshold| Outcome::new(threshold, &rows.with(&[("threshold_bytes", threshold)])))
        .collect();
    let mut comparison = Comparison::new(
        "thresholds changed while switches run",
        "possible (\"changing the threshold and algorithm settings per flow\", III); not evaluated",
        None::<String>,
    );
    let mut remarks = Vec::new();
    if let Some((adaptive, fixed)) = outcomes.split_first() {
        comparison.hopwise = format!(
            "{} in {} s; {} beyond the threshold in force",
            units::counted(results.table("moves").iter().count() as u64, "change"),
            results.table("time").iter().count(),
            units::counted(adaptive.beyond as u64, "value")
        );
        remarks.push(format!("Adaptive: {}.", adaptive.text()));
        remarks.extend(fixed.iter().map(|one| {
            let better = adaptive.quantities_in_order(one, Ordering::Less);
            let worse = adaptive.quantities_in_order(one, Ordering::Greater);
            let bytes = units::counted(one.threshold, "byte");
            format!("Fixed at {bytes}: {}. Compared with it, the adaptive threshold is better in {better}, and worse in {worse}.", one.text())
        }));
    }
    remarks.push(judgement(
        "the controller sees a rate only after a second of it, so the budget can be exceeded until then. All of this is one run with one seed.",
    ));
    Observations::new([comparison], remarks)
}

/// Totals of one threshold over all kinds of racks.
struct Outcome {
    /// The threshold in bytes; 0 if it is adaptive.
    threshold: u64,
    over: f64,
    shed: f64,
    missed: f64,
    bursts: f64,
    /// Values beyond the threshold in force.
    beyond: f64,
    /// Mean error over all packets, bytes.
    error: f64,
}

impl Outcome {
    fn new(threshold: &str, rows: &[Row<'_>]) -> Self {
        let weighted = rows
            .iter()
            .map(|row| row.number("packets") * row.number("error_mean_bytes"));
        Self {
            threshold: threshold.parse().unwrap_or(0),
            over: sum(rows, "seconds_over_budget"),
            shed: sum(rows, "shed"),
            missed: sum(rows, "bursts_missed"),
            bursts: sum(rows, "bursts"),
            beyond: sum(rows, "values_beyond_threshold"),
            error: weighted.sum::<f64>() / sum(rows, "packets"),
        }
    }

    fn text(&self) -> String {
        format!(
            "mean error {} bytes, {} of {} missed, {} over the budget, {} shed, {} beyond the threshold in force",
            units::count(self.error.round() as u64),
            units::count(self.missed as u64),
            units::counted(self.bursts as u64, "burst"),
            units::counted(self.over as u64, "second"),
            units::counted(self.shed as u64, "report"),
            units::counted(self.beyond as u64, "value")
        )
    }

    /// Lists the quantities in which this outcome compares with the other in this order; less is better in each.
    fn quantities_in_order(&self, other: &Self, order: Ordering) -> String {
        let quantities = [
            ("mean error", self.error, other.error),
            ("missed bursts", self.missed, other.missed),
            ("seconds over the budget", self.over, other.over),
            ("shed reports", self.shed, other.shed),
            ("values beyond the threshold", self.beyond, other.beyond),
        ];
        let names: Vec<&str> = quantities
            .iter()
            .filter(|one| one.1.total_cmp(&one.2) == order)
            .map(|one| one.0)
            .collect();
        if names.is_empty() {
            "nothing".to_owned()
        } else {
            names.join(", ")
        }
    }
}

fn sum(rows: &[Row<'_>], column: &str) -> f64 {
    rows.iter().map(|row| row.number(column)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A network two and a half times as slow as that of the page, with as much less of a budget.
    const SMALL: Scene = Scene {
        slower: 100,
        span: 8_000_000_000,
        budget: 400,
        seed: 1,
    };

    impl Run {
        fn violations(&self) -> u64 {
            self.total(|phase| phase.violations)
        }

        fn shed(&self) -> u64 {
            self.total(|phase| phase.shed)
        }

        fn mean(&self) -> f64 {
            self.total(|phase| phase.error_sum) as f64 / self.total(|phase| phase.values).max(1) as f64
        }
    }

    fn over(rates: &[u64]) -> usize {
        rates.iter().filter(|rate| **rate > SMALL.budget).count()
    }

    #[test]
    fn what_is_hidden_stays_within_the_threshold_and_the_collector_never_sheds() {
        let run = play(SMALL, Control::Adaptive).unwrap();
        assert_eq!((run.violations(), run.shed()), (0, 0));
        assert!(run.bursts() > 50 && run.moves.len() > 10, "{run:?}");
        // Each move continues from the last one, within the bounds; the first is by the bursts of the cache racks.
        let mut threshold = FINEST;
        for change in &run.moves {
            assert_eq!(change.from.threshold, threshold);
            threshold = change.to.threshold;
            assert!(
                (FINEST..=FINEST * manager::intent::COARSER).contains(&threshold),
                "{change}"
            );
            assert_eq!(
                change.reason == Reason::Above,
                change.to.threshold > change.from.threshold,
                "{change}"
            );
        }
        // The hadoop racks: after some seconds the rate stays near the budget; without the controller it is far above it.
        let hadoop = &run.rates[16..24];
        assert!(
            over(&hadoop[3..]) <= 1 && over(&run.rates) <= 6,
            "{:?}",
            run.rates
        );
        assert_eq!(play(SMALL, Control::Adaptive).unwrap(), run);
    }

    #[test]
    fn a_fine_threshold_exceeds_the_budget_and_a_coarse_one_misses_more_bursts() {
        let fixed = |threshold| play(SMALL, Control::Fixed(threshold)).unwrap();
        let (fine, coarse) = (fixed(FINEST), fixed(51_200));
        assert!(over(&fine.rates) > 8 && fine.shed() > 0, "{:?}", fine.rates);
        assert!(fine.violations() > 0, "what the collector shed, nobody knows");
        assert_eq!(
            (coarse.violations(), coarse.shed(), over(&coarse.rates)),
            (0, 0, 0)
        );
        assert!(coarse.missed() > fine.missed() && coarse.mean() > fine.mean());
        assert_eq!(coarse.bursts(), fine.bursts());
    }

    #[test]
    fn a_fixed_threshold_that_is_better_is_said_to_be() {
        let csv = "threshold_bytes,rack,packets,seconds_over_budget,shed,bursts,bursts_missed,error_mean_bytes,values_beyond_threshold\n\
                   adaptive,web,10,13,0,20,4,600,7\n3200,web,10,32,0,20,0,450,0\n3200,cache,30,0,0,20,0,490,0\n";
        let observed = observe(&Results::parse([
            ("outcome", csv),
            ("moves", "after_second\n31\n"),
            ("time", "second\n1\n2\n"),
        ]));
        assert_eq!(
            observed.remarks[1],
            "Fixed at 3,200 bytes: mean error 480 bytes, 0 of 40 bursts missed, 32 seconds over the budget, 0 reports shed, 0 values beyond the threshold in \
             force. Compared with it, the adaptive threshold is better in seconds over the budget, and worse in mean error, missed bursts, values beyond the \
             threshold."
        );
        assert_eq!(
            observed.comparisons.unwrap()[0].hopwise,
            "1 change in 2 s; 7 values beyond the threshold in force"
        );
    }
}
