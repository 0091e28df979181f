//! Event detection in the sink: how much it reduces the load of the monitor, and which information it suppresses.

use detect::{
    HopValues, Metric, Observation,
    detector::{Algorithm, Detector, Monitor},
};
use wire::FlowKey;

use super::{
    Scale,
    bursts::{self, MODELS, Model, Packet},
    page::{Cell, Comparison, Findings, Table, line_series, linear, log, mark_series},
};
use crate::svg::{Plot, Series, Style};
use terminal::CliError;

/// Packets of a trace, as in the paper.
const PACKETS: u64 = 200_000;
/// Thresholds, us.
const THRESHOLDS: [u64; 12] = [0, 5, 10, 25, 50, 75, 100, 125, 150, 175, 200, 250];
/// A microburst is an interval in which the queue occupancy exceeds this, ns.
const BURST: u64 = 100_000;
/// Reports per second that one core of the paper's monitor handles when every packet is reported.
const PAPER_MONITOR: f64 = 3.43e6;
/// The paper's capacities (text of IV.B): model, algorithm, threshold in us, packets a second.
const PAPER: [(&str, &str, u64, f64); 7] = [
    ("web", "per-hop", 100, 35.22e6),
    ("web", "per-hop", 150, 128.59e6),
    ("cache", "per-hop", 100, 12.21e6),
    ("cache", "per-hop", 150, 28.01e6),
    ("web", "moving average", 100, 52.07e6),
    ("cache", "moving average", 100, 16.76e6),
    ("cache", "moving average", 150, 67.64e6),
];

/// Filter of the sink.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filter {
    PerHop,
    PerFlow,
    Average,
    /// Reports every packet above the threshold, like the rule `queue_occupancy > T`.
    Level,
}

const FILTERS: [(Filter, &str); 4] = [
    (Filter::PerHop, "per-hop"),
    (Filter::PerFlow, "per-flow"),
    (Filter::Average, "moving average"),
    (Filter::Level, "level"),
];

/// One run.
struct Outcome {
    model: &'static str,
    filter: &'static str,
    threshold: u64,
    packets: u64,
    reported: u64,
    errors: Vec<u64>,
    bursts: u64,
    missed: u64,
}

pub(super) fn run(scale: Scale) -> Result<Findings, CliError> {
    let mut outcomes = Vec::new();
    for model in MODELS {
        let packets = bursts::trace(model, scale.of(PACKETS) as usize, 1);
        for (filter, name) in FILTERS {
            for threshold in THRESHOLDS {
                outcomes.push(run_trace(model, (filter, name), threshold, &packets)?);
            }
        }
    }
    let mut findings = Findings { method: METHOD.into(), ..Findings::default() };
    findings.conditions = [
        "200,000 packets of each model, seed 1; one INT switch that reports its queue's occupancy in ns; one flow",
        "capacity: packets per second in the network at which one core of the monitor is fully used, with 3.43 M reports/s per core as in the paper, \
         so that only the detection differs; `hopwise bench fastpath-1x1-1k` measures what one of our cores handles",
        "transition probabilities per 25 us after a cold and after a hot period: web 0.003 and 0.359, cache 0.013 and 0.586, hadoop 0.042 and 0.655",
        "in hot periods 20 Gb/s arrive and 10 Gb/s leave, in packets of 800 bytes; otherwise a fifth of the link; queue of 1 ms; moving average with \
         alpha 0.25",
        "simulated: the same on every machine",
    ]
    .map(str::to_owned)
    .into();
    findings.remarks = REMARKS.map(str::to_owned).into();
    for (model, filter, threshold, capacity) in PAPER {
        findings.comparisons.push(compare(&outcomes, (model, filter, threshold, capacity)));
    }
    findings.tables = vec![capacity_table(&outcomes), error_table(&outcomes), burst_table()?];
    Ok(findings)
}

const METHOD: &str = "Microbursts of three kinds of server racks (two-state model measured at Facebook) fill the queue of one switch. The sink's \
                      detector, the same code as in the `[switch]` role of `hopwise run`, selects the packets to report. The second table shows what \
                      the paper leaves out. A reader of the reports sees the last reported queue; the error is the difference from the actual queue, \
                      over all packets. A burst (more than 100 us in the queue) is missed if no report shows more than 100 us during the burst.";

const REMARKS: [&str; 5] = [
    "The paper does not publish its traces, the rates inside and between bursts, or alpha. Ours use the published probabilities and rates of our \
     choice, so the factors differ. Their order is the same (web gains most, hadoop least).",
    "If a value is compared with the last reported one, as III.C says, a burst of any length costs a few reports, and the capacity grows much faster \
     with the threshold than in the paper's Fig. 4. The paper's figure resembles the share of packets above the threshold; our rows `level` show this \
     share.",
    "With one flow over one hop, per-hop and per-flow are the same, as in the paper.",
    "With per-hop and per-flow, the error never exceeds the threshold; with the moving average and a level, it has no bound. A level causes no report \
     for values below it, so after a burst the reader keeps the last high value: the mean error can exceed that of a coarser per-hop threshold.",
    "The filters that compare with the last reported value miss bursts even with thresholds far below 100 us: the \
     last reported value can already be close to 100 us when a burst begins. `level` finds every \
     burst with thresholds up to 100 us.",
];

/// Runs one trace through one detector.
fn run_trace(
    model: Model,
    (filter, name): (Filter, &'static str),
    threshold: u64,
    packets: &[Packet],
) -> Result<Outcome, CliError> {
    let ns = threshold * 1_000;
    let algorithm = match filter {
        Filter::PerHop | Filter::Level => Algorithm::PerHop,
        Filter::PerFlow => Algorithm::PerFlow,
        Filter::Average => Algorithm::MovingAverage { alpha: 64 },
    };
    let detector = Detector { algorithm, metric: Metric::QueueOccupancy, threshold: ns };
    let mut monitor = Monitor::new(detector, 1024).map_err(|error| CliError::new(error.to_string()))?;
    let flow = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((5_000, 80)), 17);
    let (mut reported, mut last_reported, mut errors) = (0, 0, Vec::with_capacity(packets.len()));
    let (mut bursts, mut missed, mut open) = (0, 0, None);
    for packet in packets {
        let hops = [HopValues { queue_occupancy: packet.queue, node: 1, ..HopValues::NOTHING }];
        let observation = Observation { hops: &hops, ..Observation::default() };
        let is_reported = match filter {
            Filter::Level => packet.queue > ns || threshold == 0,
            _ => monitor.decide(&observation, &flow, packet.at).is_reported(),
        };
        if is_reported {
            (reported, last_reported) = (reported + 1, packet.queue);
        }
        errors.push(packet.queue.abs_diff(last_reported));
        match (packet.queue > BURST, &mut open) {
            (true, Some(shown)) => *shown |= is_reported && last_reported > BURST,
            (true, None) => open = Some(is_reported),
            (false, Some(shown)) => {
                (bursts, missed) = (bursts + 1, missed + u64::from(!*shown));
                open = None;
            }
            (false, None) => {}
        }
    }
    errors.sort_unstable();
    let packets = packets.len() as u64;
    Ok(Outcome { model: model.name, filter: name, threshold, packets, reported, errors, bursts, missed })
}

impl Outcome {
    fn capacity(&self) -> f64 {
        PAPER_MONITOR * self.packets as f64 / self.reported.max(1) as f64
    }

    fn mean(&self) -> f64 {
        self.errors.iter().sum::<u64>() as f64 / self.errors.len().max(1) as f64 / 1e3
    }

    fn quantile(&self, share: f64) -> f64 {
        let at = ((self.errors.len() as f64 * share) as usize).min(self.errors.len().saturating_sub(1));
        self.errors.get(at).map_or(0.0, |error| *error as f64 / 1e3)
    }
}

fn compare(outcomes: &[Outcome], (model, filter, threshold, capacity): (&str, &str, u64, f64)) -> Comparison {
    let factor =
        |packets: f64| format!("{:.1} M packets/s, {:.1} times", packets / 1e6, packets / PAPER_MONITOR);
    let of = |filter: &str| {
        let same = |one: &&Outcome| (one.model, one.filter, one.threshold) == (model, filter, threshold);
        outcomes.iter().find(same).map_or("no event".into(), |one| {
            if one.reported <= 1 { "no event".into() } else { factor(one.capacity()) }
        })
    };
    let hopwise = format!("{}; level: {}", of(filter), of("level"));
    Comparison::new(format!("{model}, {filter}, {threshold} us"), factor(capacity), hopwise)
}

fn capacity_table(outcomes: &[Outcome]) -> Table {
    let row = |one: &Outcome| {
        let capacity = if one.reported > 1 { Cell::Figure(one.capacity() / 1e6, 2) } else { Cell::Empty };
        vec![
            one.model.into(),
            one.filter.into(),
            one.threshold.into(),
            one.packets.into(),
            one.reported.into(),
            capacity,
        ]
    };
    let plots = ["per-hop", "moving average"].map(|filter| Plot {
        note: String::new(),
        title: format!(
            "Capacity of one core of the monitor, {filter} (Fig. {})",
            if filter == "per-hop" { 4 } else { 5 }
        ),
        x: linear("threshold (us of queue)"),
        y: log("packets a second"),
        series: MODELS.iter().flat_map(|model| lines(outcomes, model.name, filter)).collect(),
    });
    Table {
        name: "capacity",
        about: "Capacity by algorithm and threshold (empty cell: no event except for the first packet)"
            .into(),
        columns: vec!["model", "algorithm", "threshold_us", "packets", "reports", "capacity_mpps"],
        rows: outcomes.iter().map(row).collect(),
        plots: plots.into(),
    }
}

/// The measured series and, where the paper gives figures, the paper's.
fn lines(outcomes: &[Outcome], model: &str, filter: &str) -> Vec<Series> {
    let found = outcomes.iter().filter(|one| (one.model, one.filter) == (model, filter) && one.reported > 1);
    let paper = PAPER.iter().filter(|one| (one.0, one.1) == (model, filter)).map(|one| (one.2 as f64, one.3));
    let first = [(0.0, PAPER_MONITOR)].into_iter().filter(|_| model != "hadoop");
    let paper: Vec<(f64, f64)> = first.chain(paper).collect();
    let mut lines =
        vec![line_series(model, found.map(|one| (one.threshold as f64, one.capacity())).collect())];
    if !paper.is_empty() {
        lines.push(mark_series(&format!("{model}, the paper"), paper));
    }
    lines
}

/// One burst: the actual queue occupancy, and the one reconstructed from the reports.
fn burst_table() -> Result<Table, CliError> {
    const THRESHOLD: u64 = 50;
    const BEFORE: u64 = 150_000;
    const SPAN: u64 = 700_000;
    let packets = bursts::trace(MODELS[1], PACKETS as usize, 1);
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
    let flow = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((5_000, 80)), 17);
    let (mut last_reported, mut rows, mut actual, mut reconstructed) =
        (0, Vec::new(), Vec::new(), Vec::new());
    for packet in packets.iter().take_while(|packet| packet.at < from + SPAN) {
        let hops = [HopValues { queue_occupancy: packet.queue, node: 1, ..HopValues::NOTHING }];
        if monitor
            .decide(&Observation { hops: &hops, ..Observation::default() }, &flow, packet.at)
            .is_reported()
        {
            last_reported = packet.queue;
        }
        if packet.at >= from {
            let at = (packet.at - from) as f64 / 1e3;
            let (queue, last_reported) = (packet.queue as f64 / 1e3, last_reported as f64 / 1e3);
            rows.push([at, queue, last_reported].map(|figure| Cell::Figure(figure, 2)).into());
            actual.push((at, queue));
            reconstructed.push((at, last_reported));
        }
    }
    let plot = Plot {
        note: format!("cache, per-hop, threshold {THRESHOLD} us"),
        title: "A burst: actual queue occupancy, and as reconstructed from reports".into(),
        x: linear("time (us)"),
        y: linear("queue (us)"),
        series: vec![
            line_series("the queue", actual),
            Series::new("last reported", Style::Step, reconstructed),
        ],
    };
    Ok(Table {
        name: "burst",
        about: "One burst, packet by packet".into(),
        columns: vec!["time_us", "queue_us", "last_reported_us"],
        rows,
        plots: vec![plot],
    })
}

fn error_table(outcomes: &[Outcome]) -> Table {
    let row = |one: &Outcome| {
        vec![
            one.model.into(),
            one.filter.into(),
            one.threshold.into(),
            Cell::Figure(one.mean(), 2),
            Cell::Figure(one.quantile(0.99), 1),
            Cell::Figure(one.quantile(1.0), 1),
            one.bursts.into(),
            one.missed.into(),
        ]
    };
    let errors = |model: &Model| Plot {
        note: String::new(),
        title: format!("{}: mean error of the queue occupancy reconstructed from reports", model.name),
        x: linear("threshold (us of queue)"),
        y: linear("error (us)"),
        series: FILTERS
            .iter()
            .filter(|filter| filter.0 != Filter::PerFlow)
            .map(|(_, filter)| {
                let same = outcomes.iter().filter(|one| (one.model, one.filter) == (model.name, *filter));
                line_series(filter, same.map(|one| (one.threshold as f64, one.mean())).collect())
            })
            .collect(),
    };
    Table {
        name: "hidden",
        about: "Error of the reconstructed queue occupancy, and missed bursts (above 100 us)".into(),
        columns: vec![
            "model",
            "algorithm",
            "threshold_us",
            "error_mean_us",
            "error_p99_us",
            "error_max_us",
            "bursts",
            "bursts_missed",
        ],
        rows: outcomes.iter().map(row).collect(),
        plots: MODELS.iter().map(errors).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_stays_within_the_threshold() {
        let packets = bursts::trace(MODELS[1], 20_000, 3);
        for (filter, name) in [(Filter::PerHop, "per-hop"), (Filter::PerFlow, "per-flow")] {
            let mut previous = u64::MAX;
            for threshold in THRESHOLDS {
                let one = run_trace(MODELS[1], (filter, name), threshold, &packets).unwrap();
                assert!(one.quantile(1.0) <= threshold as f64, "{name} {threshold}: {}", one.quantile(1.0));
                assert!(one.reported <= previous && one.bursts > 0);
                previous = one.reported;
            }
        }
        let all = run_trace(MODELS[1], (Filter::PerHop, "per-hop"), 0, &packets).unwrap();
        assert_eq!((all.missed, all.quantile(1.0)), (0, 0.0));
    }
}
