//! Experiment `event-filter`: event detection in the sink (Programmable Event Detection, Figs. 4 and 5). It measures by how
//! much the filter reduces the load of the monitor, and which values and bursts it hides from a reader of the reports.
//!
//! Traffic is microbursts of three kinds of racks (`bursts`); the workloads fitted to the paper's figures are in `inferred`.

use detect::{
    HopValues, Metric, Observation,
    detector::{Algorithm, Detector, Monitor},
};
use wire::FlowKey;

use super::{
    bursts::{self, MODELS, Packet},
    inferred::{self, PAPER, PAPER_MONITOR, PaperPoint},
    page::{Cell, Comparison, Findings, Interval, Table, fixed, linear, log, mark_series, row},
    rows::{Observations, Results, Row, Rows, extremes, judgement, listed},
    settings::{Parameter, Settings},
};
use crate::svg::{Series, Style};
use terminal::{CliError, units};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::seed(),
    Parameter::seeds(),
    Parameter::scaled("packets", [&[200_000], &[20_000], &[20_000]], 1_000..=10_000_000)
        .help("packets of a trace"),
    Parameter::new("threshold", &THRESHOLDS, 0..=1_000).help("thresholds of the physical queue, us"),
];
/// Thresholds of the queue, us.
const THRESHOLDS: [u64; 12] = [0, 5, 10, 25, 50, 75, 100, 125, 150, 175, 200, 250];
/// A microburst is an interval in which the queue occupancy exceeds this, ns.
const BURST: u64 = 100_000;
/// A filter of the sink that selects the packets to report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filter {
    PerHop,
    Average,
    /// Reports every packet above the threshold, like the rule `queue_occupancy > T`.
    Level,
}

const FILTERS: [(Filter, &str); 3] = [
    (Filter::PerHop, "per-hop"),
    (Filter::Average, "moving average"),
    (Filter::Level, "level"),
];

/// Totals of one filter and threshold over all traces of a model.
struct Outcome {
    model: &'static str,
    filter: &'static str,
    threshold: u64,
    packets: u64,
    /// Packets that were reported, without the first one of each trace.
    reported: u64,
    /// Share of packets reported, by trace.
    shares: Vec<f64>,
    errors: Errors,
    // Bursts that ended, and those of which no report showed more than `BURST`.
    bursts: u64,
    missed: u64,
}

pub(super) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let thresholds = settings.list("threshold");
    let mut outcomes = Vec::new();
    for model in MODELS {
        let mut of_model: Vec<Outcome> = (FILTERS.iter())
            .flat_map(|(_, filter)| {
                thresholds
                    .iter()
                    .map(|threshold| Outcome::new(model.name, filter, *threshold))
            })
            .collect();
        for seed in settings.seeds() {
            let packets = bursts::trace(model, settings.value("packets") as usize, seed);
            for (at, outcome) in of_model.iter_mut().enumerate() {
                play(FILTERS[at / thresholds.len()].0, &packets, outcome)?;
            }
        }
        outcomes.append(&mut of_model);
    }
    let fits = inferred::fits(settings);
    let points = PAPER.into_iter().enumerate();
    Ok(Findings {
        comparisons: points
            .map(|(index, point)| compare(&outcomes, point, &inferred::compare_fits(&fits, index)))
            .collect(),
        ..Findings::new(
            METHOD,
            CONDITIONS.map(str::to_owned),
            [
                inferred::fit_table(&fits),
                inferred::longest_table(settings),
                inferred::sensitivity_table(settings),
                capacity_table(&outcomes),
                error_table(&outcomes),
                burst_table(settings)?,
            ],
        )
    })
}

const METHOD: &str = "Microbursts of three kinds of server racks (two-state model measured at Facebook) fill the queue of one switch. For the physical queue with per-hop and \
                      moving average, the sink's detector, the same code as in the `[switch]` role of `hopwise run`, selects the packets to report; A, B and \
                      `level` have rules of their own. The paper does not \
                      publish its traces, so there are three workloads: a **physical queue** with rates of our choice, and two that are \
                      **inferred**, A and B, whose parameters are fitted to the paper's seven capacities (first three tables). The last \
                      tables show what the paper leaves out, for the physical queue. A reader of the reports sees the last reported queue; the \
                      error is the difference from the actual queue, over all packets. A burst (more than 100 us in the queue) is missed if no \
                      report shows more than 100 us during the burst.";

const CONDITIONS: [&str; 6] = [
    "each trace has its own seed, for each model; one INT switch that reports its queue's occupancy in ns; one flow. Per-hop and \
     per-flow are then the same, as in the paper. The first packet of a trace is not counted as a report of the physical queue",
    "capacity: packets per second in the network at which one core of the monitor is fully used, with 3.43 M reports/s per core as in the paper, \
     so that only the detection differs; `hopwise bench fastpath-1x1-1k` measures what one of our cores handles",
    "transition probabilities per 25 us after a cold and after a hot period: web 0.003 and 0.359, cache 0.013 and 0.586, hadoop 0.042 and 0.655",
    "physical queue: in hot periods 20 Gb/s arrive and 10 Gb/s leave, in packets of 800 bytes; otherwise a fifth of the link; queue of 1 ms; \
     moving average of every packet with alpha 0.25",
    "A and B have no cold periods, only bursts. A: one packet per hot period, growth of 40 us +- 33 % per hot period, one packet that finds the \
     queue empty after each burst, compared with the last reported value, alpha 0.90. B: 744 packets per hot period (minimum frames at 20 Gb/s), \
     growth of 40 us per hot period, no packets between bursts, compared with zero (every packet above the threshold is an event), alpha 0.78. \
     Average in both: of the new value and the last stored one",
    "intervals: 95 % confidence interval of the mean over the traces; simulated: the same on every machine",
];

/// Runs one trace through one detector.
fn play(filter: Filter, packets: &[Packet], outcome: &mut Outcome) -> Result<(), CliError> {
    let ns = outcome.threshold * 1_000;
    let algorithm = match filter {
        Filter::PerHop | Filter::Level => Algorithm::PerHop,
        // Alpha is 64 of 256, that is 0.25.
        Filter::Average => Algorithm::MovingAverage { alpha: 64 },
    };
    let detector = Detector {
        algorithm,
        metric: Metric::QueueOccupancy,
        threshold: ns,
    };
    let mut monitor = Monitor::new(detector, 1).map_err(|error| CliError::new(error.to_string()))?;
    let mut reported = 0_u64;
    let mut last_reported = 0;
    // During a burst: whether a report has shown it.
    let mut open = None;
    for (at, packet) in packets.iter().enumerate() {
        let is_reported = match filter {
            Filter::Level => packet.queue > ns || ns == 0,
            _ => observe_queue(&mut monitor, packet),
        };
        if is_reported {
            // The first packet of a trace is reported whatever the threshold.
            (reported, last_reported) = (reported + u64::from(at > 0), packet.queue);
        }
        outcome.errors.add(packet.queue.abs_diff(last_reported));
        match (packet.queue > BURST, &mut open) {
            (true, Some(shown)) => *shown |= is_reported && last_reported > BURST,
            (true, None) => open = Some(is_reported),
            (false, Some(shown)) => {
                outcome.bursts += 1;
                outcome.missed += u64::from(!*shown);
                open = None;
            }
            (false, None) => {}
        }
    }
    outcome.packets += packets.len() as u64;
    outcome.reported += reported;
    outcome.shares.push(reported as f64 / packets.len() as f64);
    Ok(())
}

/// Returns whether the monitor reports a packet; all packets belong to one flow.
fn observe_queue(monitor: &mut Monitor, packet: &Packet) -> bool {
    let flow = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((5_000, 80)), 17);
    let hops = [HopValues {
        queue_occupancy: packet.queue,
        node: 1,
        ..HopValues::NOTHING
    }];
    let observation = Observation {
        hops: &hops,
        ..Observation::default()
    };
    monitor.decide(&observation, &flow, packet.at).is_reported()
}

/// A histogram of errors in steps of 0.1 us, with sum and maximum in ns.
struct Errors {
    steps: Vec<u64>,
    sum: u64,
    largest: u64,
}

impl Errors {
    const STEP: u64 = 100;

    fn add(&mut self, error: u64) {
        // The depth of the queue (1 ms) bounds the error, so the last step is never exceeded.
        let step = (error.div_ceil(Self::STEP) as usize).min(self.steps.len() - 1);
        self.steps[step] += 1;
        self.sum += error;
        self.largest = self.largest.max(error);
    }

    /// Returns the error that `share` of the packets do not exceed, in ns, rounded up to a step.
    fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.steps.iter().sum::<u64>() as f64 * share) as u64;
        let mut count = 0;
        let step = self.steps.iter().position(|packets| {
            count += packets;
            count > wanted
        });
        step.map_or(self.largest, |step| step as u64 * Self::STEP)
            .min(self.largest)
    }
}

impl Outcome {
    fn new(model: &'static str, filter: &'static str, threshold: u64) -> Self {
        let errors = Errors {
            steps: vec![0; 10_001],
            sum: 0,
            largest: 0,
        };
        Self {
            model,
            filter,
            threshold,
            packets: 0,
            reported: 0,
            shares: Vec::new(),
            errors,
            bursts: 0,
            missed: 0,
        }
    }

    /// Returns the capacity in packets per second at this share of reported packets; `None` if nothing is reported.
    fn capacity(share: f64) -> Option<f64> {
        (share > 0.0).then(|| PAPER_MONITOR / share)
    }

    fn mean(&self) -> f64 {
        self.errors.sum as f64 / self.packets.max(1) as f64 / 1e3
    }
}

fn compare(outcomes: &[Outcome], point: PaperPoint, inferred: &str) -> Comparison {
    let PaperPoint {
        model,
        algorithm,
        threshold_us,
        capacity,
    } = point;
    let [physical, level] = [algorithm, "level"].map(|filter| {
        let share = outcomes
            .iter()
            .find(|outcome| {
                (outcome.model, outcome.filter, outcome.threshold) == (model, filter, threshold_us)
            })
            .map_or(0.0, |outcome| Interval::of(&outcome.shares).mean);
        Outcome::capacity(share).map_or("no event".into(), |capacity| {
            format!(
                "{} times",
                units::count((capacity / PAPER_MONITOR).round() as u64)
            )
        })
    });
    let hopwise = format!("{inferred}; physical queue {physical}, level {level}");
    let paper = format!(
        "{:.1} times ({:.1} M packets/s)",
        capacity / PAPER_MONITOR,
        capacity / 1e6
    );
    Comparison::new(format!("{model}, {algorithm}, {threshold_us} us"), paper, hopwise)
}

fn capacity_table(outcomes: &[Outcome]) -> Table {
    let columns = "model,algorithm,threshold_us,packets,reports,capacity_mpps,ci95_low,ci95_high";
    let about =
        "Physical queue: capacity by algorithm and threshold (empty cell: no event, or no upper limit)";
    let mut table = Table::new("capacity", about, columns);
    for one in outcomes {
        let share = Interval::of(&one.shares);
        let capacities = [share.mean, share.high, share.low].map(|share| match Outcome::capacity(share) {
            Some(capacity) => fixed(capacity / 1e6, 2),
            None => Cell::Empty,
        });
        table.push(row![
            one.model,
            one.filter,
            one.threshold,
            one.packets,
            one.reported,
            capacities,
        ]);
    }
    for (filter, number) in [("per-hop", 4), ("moving average", 5)] {
        let lines = MODELS.iter().flat_map(|model| lines(&table, model.name, filter));
        let series = lines.collect();
        table.plot(
            format!("Capacity of one core of the monitor, {filter} (Fig. {number})"),
            "physical queue, mean of the traces; marks: the paper",
            [linear("threshold (us of queue)"), log("packets a second")],
            series,
        );
    }
    table
}

/// Returns the simulated series and, where the paper states figures, the paper's.
fn lines(table: &Table, model: &str, filter: &str) -> Vec<Series> {
    let selection = [("model", model), ("algorithm", filter)];
    let line = table.line(model, &selection, "threshold_us", "capacity_mpps");
    let paper = PAPER
        .iter()
        .filter(|point| (point.model, point.algorithm) == (model, filter))
        .map(|point| (point.threshold_us as f64, point.capacity));
    let first = [(0.0, PAPER_MONITOR)].into_iter().filter(|_| model != "hadoop");
    let paper: Vec<(f64, f64)> = first.chain(paper).collect();
    let mut lines = vec![line.map(|millions| 1e6 * millions)];
    if !paper.is_empty() {
        lines.push(mark_series(&format!("{model}, the paper"), paper));
    }
    lines
}

/// Makes the table of one burst: the actual queue occupancy, and the one that a reader of the reports knows.
fn burst_table(settings: &Settings) -> Result<Table, CliError> {
    const THRESHOLD: u64 = 50;
    const BEFORE: u64 = 150_000;
    const SPAN: u64 = 700_000;
    let packets = bursts::trace(
        MODELS[1],
        settings.value("packets") as usize,
        settings.value("seed"),
    );
    let from = packets
        .iter()
        .find(|packet| packet.queue > BURST)
        .map_or(0, |packet| packet.at.saturating_sub(BEFORE));
    let detector = Detector {
        algorithm: Algorithm::PerHop,
        metric: Metric::QueueOccupancy,
        threshold: THRESHOLD * 1_000,
    };
    let mut monitor = Monitor::new(detector, 1).map_err(|error| CliError::new(error.to_string()))?;
    let about = "One burst, packet by packet";
    let mut table = Table::new("burst", about, "time_us,queue_us,last_reported_us");
    let mut last_reported = 0;
    for packet in packets.iter().take_while(|packet| packet.at < from + SPAN) {
        if observe_queue(&mut monitor, packet) {
            last_reported = packet.queue;
        }
        if packet.at >= from {
            let figures = [packet.at - from, packet.queue, last_reported];
            table.push(row![figures.map(|ns| fixed(ns as f64 / 1e3, 2))]);
        }
    }
    let mut reconstructed = table.line("last reported", &[], "time_us", "last_reported_us");
    reconstructed.style = Style::Step;
    let lines = vec![table.line("the queue", &[], "time_us", "queue_us"), reconstructed];
    table.plot(
        "A burst: actual queue occupancy, and as reconstructed from reports",
        &format!("cache, per-hop, threshold {THRESHOLD} us"),
        [linear("time (us)"), linear("queue (us)")],
        lines,
    );
    Ok(table)
}

fn error_table(outcomes: &[Outcome]) -> Table {
    let columns = "model,algorithm,threshold_us,error_mean_us,error_p99_us,error_max_us,bursts,\
        bursts_missed";
    let about =
        "Physical queue: error of the reconstructed queue occupancy, and missed bursts (above 100 us)";
    let mut table = Table::new("hidden", about, columns);
    for one in outcomes {
        table.push(row![
            one.model,
            one.filter,
            one.threshold,
            fixed(one.mean(), 2),
            fixed(one.errors.quantile(0.99) as f64 / 1e3, 1),
            fixed(one.errors.largest as f64 / 1e3, 1),
            one.bursts,
            one.missed,
        ]);
    }
    for model in MODELS {
        let lines = FILTERS.map(|(_, filter)| {
            let wanted = [("model", model.name), ("algorithm", filter)];
            table.line(filter, &wanted, "threshold_us", "error_mean_us")
        });
        table.plot(
            format!(
                "{}: mean error of the queue occupancy reconstructed from reports",
                model.name
            ),
            "",
            [linear("threshold (us of queue)"), linear("error (us)")],
            lines.into(),
        );
    }
    table
}

/// Computes the remarks from the rows.
pub(super) fn observe(results: &Results) -> Observations {
    let fit = results.table("fit");
    let capacity = results.table("capacity");
    let hidden = results.table("hidden");
    let mut remarks: Vec<String> = physical(&fit, &capacity).into_iter().collect();
    for workload in fit.values("workload") {
        remarks.extend(fitted(workload, &fit.with(&[("workload", workload)])));
        remarks.extend(sensitivity(workload, &results.table("sensitivity")));
    }
    remarks.extend(results.table("longest").with(&[("model", "web")]).iter().map(|row| {
        row.fill(
            "{workload}, web: the queue stays within 175 us, as the paper says of its own, in {traces_up_to_175_us} of {traces:trace}; the longest is \
             {longest_queue_us~} us.",
        )
    }));
    remarks.extend(listed(
        "Physical queue at a threshold of 0, per-hop: {}. The paper has 3.43 M packets/s with every model.",
        capacity
            .with(&[("algorithm", "per-hop"), ("threshold_us", "0")])
            .iter()
            .map(|row| row.fill("{model} {capacity_mpps} ({ci95_low} to {ci95_high}) M packets/s")),
    ));
    remarks.extend(
        capacity
            .find(&[("model", "web"), ("algorithm", "moving average"), ("threshold_us", "150")])
            .map(|row| row.fill("Physical queue, web, moving average, 150 us: {reports:report} of {packets:packet}; the paper has no events there.")),
    );
    remarks.extend(web_and_cache(&capacity));
    for algorithm in hidden.values("algorithm") {
        remarks.extend(suppressed(algorithm, &hidden.with(&[("algorithm", algorithm)])));
    }
    remarks.extend(JUDGEMENTS.map(judgement));
    Observations::remarks(remarks)
}

const JUDGEMENTS: [&str; 4] = [
    "a burst of the physical queue has hundreds of packets and costs a few reports whatever its length. To report several per cent of the packets, either \
     a burst must have very few packets (A), or each packet above the threshold must be an event (B).",
    "A and B are inferred from the seven capacities. Neither the paper nor its authors confirm them, and five parameters for seven points leave little to \
     test. In both, cold periods carry no packets, which fits a replay at line rate, and the queue grows by about 40 us per period of 25 us. 20 Gb/s into \
     10 Gb/s would give 25 us.",
    "A uses the comparison of III.C. B compares with zero, as III.A describes (\"queue occupancy over the configured threshold\"), not as III.C does.",
    "B's \"moving average\" (Fig. 5) is none: its stored value never changes, so it is the level of the per-hop rule with the threshold divided by alpha, \
     and alpha is a free scale for three of the seven points. With an average of every packet, as in the `[switch]` role, B gives the per-hop result, \
     because the queue moves 54 ns per packet. So nothing here explains Fig. 5: that B is compatible with it is withdrawn.",
];

/// Counts the points at which the paper's capacity lies within the physical queue's confidence interval.
fn physical(fit: &Rows, capacity: &Rows) -> Option<String> {
    let first = fit.values("workload").first().copied()?;
    let mut within = 0;
    let mut factors = Vec::new();
    for point in fit.with(&[("workload", first)]) {
        let same = ["model", "algorithm", "threshold_us"].map(|column| (column, point.text(column)));
        let Some(row) = capacity.find(&same) else { continue };
        let paper = point.number("paper_mpps");
        factors.push(row.number("capacity_mpps") / paper);
        within += usize::from(row.number("ci95_low") <= paper && paper <= row.number("ci95_high"));
    }
    factors.sort_by(f64::total_cmp);
    let (least, most) = factors.first().zip(factors.last())?;
    Some(format!(
        "Physical queue: the paper's capacity lies within the 95 % interval at {within} of {}. The capacities are {} to {} times the paper's.",
        units::counted(factors.len() as u64, "point"),
        units::count(least.round() as u64),
        units::count(most.round() as u64)
    ))
}

/// Counts the points at which the paper's share of reports lies within a fitted workload's confidence interval.
fn fitted(workload: &str, points: &[Row<'_>]) -> Option<String> {
    let (least, most) = extremes(points, "error_percent")?;
    let within = points
        .iter()
        .filter(|row| {
            let paper = row.number("paper_reported_percent");
            row.number("ci95_low") <= paper && paper <= row.number("ci95_high")
        })
        .count();
    let in_traces = points
        .iter()
        .filter(|row| row.text("paper_within_traces") == "yes")
        .count();
    Some(format!(
        "{workload} differs from the paper's capacities by {} to {} %, although it is fitted to them. The paper's share of reports lies within the 95 % \
         interval of the mean at {within} of {}, and within the range of single traces at {in_traces}.",
        least.fill("{error_percent}"),
        most.fill("{error_percent}"),
        units::counted(points.len() as u64, "point")
    ))
}

/// Compares the error of a fit with the errors after changing one parameter.
fn sensitivity(workload: &str, rows: &Rows) -> Option<String> {
    const ERROR: &str = "error_percent_all";
    let fitted = rows.find(&[("workload", workload), ("parameter", "as fitted")])?;
    let mut changed = rows.with(&[("workload", workload)]);
    changed.retain(|row| row.text("parameter") != "as fitted" && !row.text(ERROR).is_empty());
    let (least, most) = extremes(&changed, ERROR)?;
    let template = "{error_percent_all} % ({parameter} {value})";
    let lower = changed
        .iter()
        .filter(|row| row.number(ERROR) < fitted.number(ERROR))
        .count();
    Some(format!(
        "{workload}: the error over all points is {} as fitted, and {} to {} with one parameter changed; {lower} of {} lower it.",
        fitted.fill("{error_percent_all} %"),
        least.fill(template),
        most.fill(template),
        units::counted(changed.len() as u64, "change")
    ))
}

/// Says where web has a higher capacity than cache, outside both intervals.
fn web_and_cache(capacity: &Rows) -> Option<String> {
    let mut higher = 0;
    let mut all = 0;
    for web in capacity.with(&[("model", "web")]) {
        let same = [
            ("model", "cache"),
            ("algorithm", web.text("algorithm")),
            ("threshold_us", web.text("threshold_us")),
        ];
        let Some(cache) = capacity
            .find(&same)
            .filter(|row| !row.text("ci95_high").is_empty())
        else {
            continue;
        };
        if !web.text("ci95_low").is_empty() {
            all += 1;
            higher += usize::from(web.number("ci95_low") > cache.number("ci95_high"));
        }
    }
    (all > 0).then(|| {
        let all = units::counted(all, "threshold");
        format!("Physical queue: web has a higher capacity than cache, outside the 95 % intervals, at {higher} of {all} of all algorithms.")
    })
}

/// Describes how often an algorithm's error exceeds the threshold, and where it misses bursts.
fn suppressed(algorithm: &str, rows: &[Row<'_>]) -> Option<String> {
    let with_threshold: Vec<_> = rows
        .iter()
        .filter(|row| row.number("threshold_us") > 0.0)
        .collect();
    let beyond = with_threshold
        .iter()
        .filter(|row| row.number("error_max_us") > row.number("threshold_us"))
        .count();
    let missing = with_threshold
        .iter()
        .filter(|row| row.number("bursts_missed") > 0.0)
        .count();
    let first = with_threshold
        .iter()
        .filter(|row| row.number("bursts_missed") > 0.0)
        .map(|row| row.number("threshold_us"))
        .fold(f64::INFINITY, f64::min);
    let smallest = if missing > 0 {
        format!(", the smallest threshold {first} us")
    } else {
        String::new()
    };
    (!with_threshold.is_empty()).then(|| {
        let all = units::counted(with_threshold.len() as u64, "row");
        format!(
            "Physical queue, {algorithm}: the error exceeds the threshold in {beyond} of {all} with a threshold; bursts are missed in {missing}{smallest}."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(filter: Filter, threshold: u64, packets: &[Packet]) -> Outcome {
        let mut outcome = Outcome::new("", "", threshold);
        play(filter, packets, &mut outcome).unwrap();
        outcome
    }

    #[test]
    fn the_error_stays_within_the_threshold() {
        let packets = bursts::trace(MODELS[1], 20_000, 3);
        let mut before = u64::MAX;
        for threshold in THRESHOLDS {
            let one = played(Filter::PerHop, threshold, &packets);
            assert!(
                one.errors.largest <= threshold * 1_000,
                "{threshold}: {}",
                one.errors.largest
            );
            assert!(one.reported <= before && one.bursts > 0);
            before = one.reported;
        }
        let all = played(Filter::PerHop, 0, &packets);
        assert_eq!((all.missed, all.errors.largest), (0, 0));
    }

    #[test]
    fn a_level_up_to_that_of_a_burst_shows_every_burst() {
        let packets = bursts::trace(MODELS[1], 200_000, 3);
        for threshold in THRESHOLDS
            .into_iter()
            .filter(|threshold| threshold * 1_000 <= BURST)
        {
            let one = played(Filter::Level, threshold, &packets);
            assert!(one.bursts > 0 && one.missed == 0, "{threshold}");
        }
    }

    #[test]
    fn quantiles_of_errors_are_right_to_a_step() {
        let mut errors = Outcome::new("", "", 0).errors;
        (0..1_000).for_each(|error| errors.add(error * 100 + 1));
        assert_eq!(
            (errors.quantile(0.5), errors.quantile(0.99), errors.quantile(1.0)),
            (50_100, 99_100, 99_901)
        );
    }
    #[test]
    fn remarks_follow_from_the_rows() {
        let fit = |ci95_high: &str| {
            format!(
                "workload,model,algorithm,threshold_us,paper_mpps,error_percent,paper_reported_percent,ci95_low,ci95_high,paper_within_traces\n\
                 A,web,per-hop,100,10.0,-6.7,9.74,9.40,{ci95_high},yes\n"
            )
        };
        let capacity = "model,algorithm,threshold_us,packets,reports,capacity_mpps,ci95_low,ci95_high\n\
                        web,per-hop,0,4000,10,71.01,66.0,76.0\nweb,per-hop,100,4000,10,20.0,9.0,30.0\ncache,per-hop,100,4000,10,20.0,5.0,8.0\n";
        let sensitivity = "workload,parameter,value,error_percent_all\nA,as fitted,,18\nA,growth_us,20,254\nA,idle_packets,0,15\nA,alpha,1,\n";
        let hidden = "model,algorithm,threshold_us,error_max_us,bursts_missed\n\
                      web,per-hop,0,0.0,0\nweb,per-hop,5,5.0,3\nweb,per-hop,10,10.1,0\nweb,level,5,5.0,0\n";
        let remarks = |fit: &str| {
            observe(&Results::parse([
                ("fit", fit),
                ("capacity", capacity),
                ("sensitivity", sensitivity),
                ("hidden", hidden),
            ]))
            .remarks
        };
        assert_eq!(
            remarks(&fit("10.0"))[..7],
            [
                "Physical queue: the paper's capacity lies within the 95 % interval at 1 of 1 point. The capacities are 2 to 2 times the paper's.",
                "A differs from the paper's capacities by -6.7 to -6.7 %, although it is fitted to them. The paper's share of reports lies within the 95 % \
                 interval of the mean at 1 of 1 point, and within the range of single traces at 1.",
                "A: the error over all points is 18 % as fitted, and 15 % (idle_packets 0) to 254 % (growth_us 20) with one parameter changed; 1 of 2 changes \
                 lower it.",
                "Physical queue at a threshold of 0, per-hop: web 71.01 (66.0 to 76.0) M packets/s. The paper has 3.43 M packets/s with every model.",
                "Physical queue: web has a higher capacity than cache, outside the 95 % intervals, at 1 of 1 threshold of all algorithms.",
                "Physical queue, per-hop: the error exceeds the threshold in 1 of 2 rows with a threshold; bursts are missed in 1, the smallest threshold 5 us.",
                "Physical queue, level: the error exceeds the threshold in 0 of 1 row with a threshold; bursts are missed in 0.",
            ]
        );
        assert!(remarks(&fit("9.5"))[1].contains("interval of the mean at 0 of 1 point"));
    }
}
