//! Workloads inferred for Programmable Event Detection, which publishes no traces: queue traces for which the detector reports
//! as many packets as the paper's capacities (Figs. 4 and 5) imply. They are fitted, neither measured nor published.
//!
//! Capacity is the packet rate at which one core of the monitor is fully used: 3.43 M reports/s divided by the share of packets
//! that the detector reports. Parameters were fitted to seven such capacities.

use super::{
    bursts::{MODELS, Model, Random},
    page::{Cell, Interval, Table, fixed, linear, named, row},
    settings::Settings,
};
use crate::svg::{Axis, Point, Series, Style};

/// Reports per second that one core of the paper's monitor handles.
pub(super) const PAPER_MONITOR: f64 = 3.43e6;
/// A capacity of the paper (text of section IV.B).
#[derive(Clone, Copy)]
pub(super) struct PaperPoint {
    pub(super) model: &'static str,
    pub(super) algorithm: &'static str,
    pub(super) threshold_us: u64,
    /// Packets per second.
    pub(super) capacity: f64,
}

impl PaperPoint {
    const fn new(model: &'static str, algorithm: &'static str, threshold_us: u64, capacity: f64) -> Self {
        Self {
            model,
            algorithm,
            threshold_us,
            capacity,
        }
    }
}

/// The first four points are per-hop, the others moving averages.
pub(super) const PAPER: [PaperPoint; 7] = [
    PaperPoint::new("web", "per-hop", 100, 35.22e6),
    PaperPoint::new("web", "per-hop", 150, 128.59e6),
    PaperPoint::new("cache", "per-hop", 100, 12.21e6),
    PaperPoint::new("cache", "per-hop", 150, 28.01e6),
    PaperPoint::new("web", "moving average", 100, 52.07e6),
    PaperPoint::new("cache", "moving average", 100, 16.76e6),
    PaperPoint::new("cache", "moving average", 150, 67.64e6),
];
/// Number of points of the algorithm per-hop.
const PER_HOP_POINTS: usize = 4;
/// Longest queue with the web model in the paper, ns.
const WEB_LONGEST: u64 = 175_000;

/// The value with which a new one is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reference {
    /// The last value reported, as III.C of the paper says.
    LastReported,
    /// Zero: every packet above the threshold is an event, as III.A of the paper says.
    Zero,
}

/// Parameters of a workload and of the detection.
#[derive(Clone, Copy)]
pub(super) struct Workload {
    /// Name of the row in tables.
    pub(super) name: &'static str,
    reference: Reference,
    /// Packets in a hot period.
    per_period: u64,
    /// Packets after each burst that find the queue empty.
    idle: u64,
    /// Growth of the queue in a hot period, ns.
    growth: u64,
    /// Uniform variation of the growth from period to period, plus or minus, per mille.
    spread: u64,
    /// Weight of a new value in the average, per mille.
    alpha: u64,
}

/// The workloads fitted to the seven capacities of the paper.
pub(super) const WORKLOADS: [Workload; 2] = [
    Workload {
        name: "A",
        reference: Reference::LastReported,
        per_period: 1,
        idle: 1,
        growth: 40_000,
        spread: 333,
        alpha: 900,
    },
    Workload {
        name: "B",
        reference: Reference::Zero,
        per_period: 744,
        idle: 0,
        growth: 40_000,
        spread: 0,
        alpha: 780,
    },
];

/// Generates a trace: the queue that each packet finds (ns), and the number of bursts.
fn trace(workload: Workload, model: Model, packets: usize, seed: u64) -> (Vec<u64>, u64) {
    let mut random = Random(seed);
    let mut queues = Vec::with_capacity(packets);
    let mut bursts = 0;
    while queues.len() < packets {
        let mut backlog = 0;
        let mut is_hot = true;
        bursts += 1;
        while is_hot {
            let lowest = workload.growth * (1_000 - workload.spread) / 1_000;
            let growth = lowest + workload.growth * 2 * workload.spread / 1_000 * random.per_mille() / 1_000;
            queues.extend(
                (1..=workload.per_period).map(|packet| backlog + growth * packet / workload.per_period),
            );
            backlog += growth;
            is_hot = model.stays_hot(&mut random) && queues.len() < packets;
        }
        queues.extend((0..workload.idle).map(|_| 0));
    }
    queues.truncate(packets);
    (queues, bursts)
}

/// Counts the reports of a trace. `weight` is the share of a new value in its average with the stored one, per mille; 1,000
/// disables averaging.
fn reports(queues: &[u64], reference: Reference, threshold: u64, weight: u64) -> u64 {
    let mut stored = 0;
    let mut reports = 0;
    for &queue in queues {
        // The average differs from the stored value by `weight` / 1,000 times the difference of the values.
        if queue.abs_diff(stored) * weight > threshold * 1_000 {
            reports += 1;
            if reference == Reference::LastReported {
                stored = (queue * weight + stored * (1_000 - weight)) / 1_000;
            }
        }
    }
    reports
}

/// The runs of a workload.
struct Fit {
    workload: Workload,
    /// For each point of [`PAPER`], the share of packets reported in each trace.
    shares: Vec<Vec<f64>>,
}

impl Fit {
    fn new(workload: Workload, packets: u64, seeds: std::ops::Range<u64>) -> Self {
        let mut shares = vec![Vec::new(); PAPER.len()];
        for model in MODELS {
            for seed in seeds.clone() {
                let (queues, _) = trace(workload, model, packets as usize, seed);
                for (point, shares) in PAPER
                    .iter()
                    .zip(&mut shares)
                    .filter(|(point, _)| point.model == model.name)
                {
                    let reports = reports(
                        &queues,
                        workload.reference,
                        point.threshold_us * 1_000,
                        weight(workload, point.algorithm),
                    );
                    shares.push(reports as f64 / packets as f64);
                }
            }
        }
        Self { workload, shares }
    }

    /// Returns the fitted capacity at a point of the paper, and its difference from the paper's in per cent.
    fn capacity(&self, point: usize) -> (f64, f64) {
        let capacity = PAPER_MONITOR / Interval::of(self.shares[point].as_slice()).mean;
        (capacity, 100.0 * (capacity / PAPER[point].capacity - 1.0))
    }

    /// Returns the root mean square of ln(fitted / published capacity) over the points, times 100.
    fn error(&self, points: std::ops::Range<usize>) -> f64 {
        let count = points.len() as f64;
        let squares = points.map(|point| (self.capacity(point).0 / PAPER[point].capacity).ln().powi(2));
        100.0 * (squares.sum::<f64>() / count).sqrt()
    }
}

fn weight(workload: Workload, algorithm: &str) -> u64 {
    if algorithm == "per-hop" {
        1_000
    } else {
        workload.alpha
    }
}

/// Describes the fitted capacity and its difference from the paper's, for each workload.
pub(super) fn compare_fits(fits: &Fits, point: usize) -> String {
    fits.0
        .iter()
        .map(|fit| {
            let (capacity, error) = fit.capacity(point);
            format!(
                "{} {:.1} times ({error:+.0} %)",
                fit.workload.name,
                capacity / PAPER_MONITOR
            )
        })
        .collect::<Vec<_>>()
        .join(", ")
}

/// The runs of both workloads.
pub(super) struct Fits(Vec<Fit>);

pub(super) fn fits(settings: &Settings) -> Fits {
    Fits(
        WORKLOADS
            .map(|workload| Fit::new(workload, settings.value("packets"), settings.seeds()))
            .into(),
    )
}

/// Makes the table of fitted and published capacities and shares.
pub(super) fn fit_table(fits: &Fits) -> Table {
    let columns = "workload,model,algorithm,threshold_us,paper_mpps,fitted_mpps,error_percent,\
        paper_reported_percent,reported_percent,ci95_low,ci95_high,one_trace_min,\
        one_trace_max,paper_within_traces";
    let mut table = Table::new("fit", "Workloads as we infer them, against the paper", columns);
    for fit in &fits.0 {
        for (index, point) in PAPER.into_iter().enumerate() {
            let share = Interval::of(fit.shares[index].as_slice());
            let (capacity, error) = fit.capacity(index);
            let published = PAPER_MONITOR / point.capacity;
            let is_inside = (share.smallest..=share.largest).contains(&published);
            let shares = [
                published,
                share.mean,
                share.low,
                share.high,
                share.smallest,
                share.largest,
            ];
            table.push(row![
                fit.workload.name,
                point.model,
                point.algorithm,
                point.threshold_us,
                fixed(point.capacity / 1e6, 2),
                fixed(capacity / 1e6, 2),
                fixed(error, 1),
                shares.map(|share| fixed(100.0 * share, 2)),
                if is_inside { "yes" } else { "no" },
            ]);
        }
    }
    plot_fits(&mut table, fits);
    table
}

/// Plots bars for each point: the paper's capacity, and the mean of each workload with its confidence interval.
fn plot_fits(table: &mut Table, fits: &Fits) {
    let points = PAPER
        .iter()
        .enumerate()
        .map(|(index, point)| (index as f64, point.capacity / PAPER_MONITOR));
    let mut series = vec![Series::new("the paper", Style::Bars, points)];
    for fit in &fits.0 {
        let points = (0..PAPER.len()).map(|index| {
            let share = Interval::of(fit.shares[index].as_slice());
            Point {
                x: index as f64,
                y: 1.0 / share.mean,
                spread: (share.low > 0.0).then(|| (1.0 / share.high, 1.0 / share.low)),
            }
        });
        series.push(Series {
            name: format!("{} (inferred)", fit.workload.name),
            style: Style::Bars,
            points: points.collect(),
        });
    }
    let names = PAPER.iter().map(|point| {
        let algorithm = if point.algorithm == "per-hop" {
            "hop"
        } else {
            "avg"
        };
        format!("{} {algorithm} {}", point.model, point.threshold_us)
    });
    let x = Axis {
        name: "model, algorithm, threshold".into(),
        unit: "us".into(),
        ..named(names)
    };
    let note = "inferred workloads, 95 % confidence interval of the mean of 20 traces; hop: per-hop, avg: moving average";
    let title = "Capacity as a multiple of that without detection";
    table.plot(title, note, [x, linear("times")], series);
}

/// Makes the table of the longest queue of each trace, to compare with the paper's web queue, which never exceeds 175 us.
pub(super) fn longest_table(settings: &Settings) -> Table {
    let columns = "workload,model,bursts_per_trace,longest_queue_us,longest_queue_us_min,\
        longest_queue_us_max,traces_up_to_175_us,traces";
    let about = "Longest queue of a trace (the paper: web never exceeds 175 us)";
    let mut table = Table::new("longest", about, columns);
    for workload in WORKLOADS {
        for model in MODELS {
            let mut longest = Vec::new();
            let mut counts = Vec::new();
            let mut below = 0_u64;
            for seed in settings.seeds() {
                let (queues, bursts) = trace(workload, model, settings.value("packets") as usize, seed);
                let queue = queues.iter().copied().max().unwrap_or(0);
                below += u64::from(queue <= WEB_LONGEST);
                longest.push(queue as f64 / 1e3);
                counts.push(bursts as f64);
            }
            let longest = Interval::of(&longest);
            let figures = [
                Interval::of(&counts).mean,
                longest.mean,
                longest.smallest,
                longest.largest,
            ];
            table.push(row![
                workload.name,
                model.name,
                figures.map(|figure| fixed(figure, 0)),
                below,
                settings.value("runs"),
            ]);
        }
    }
    table
}

/// A workload that differs from a fitted one in one parameter.
struct Variation {
    parameter: &'static str,
    /// Value of the parameter, as text.
    value: String,
    workload: Workload,
}

impl Variation {
    fn new(parameter: &'static str, value: impl Into<String>, workload: Workload) -> Self {
        Self {
            parameter,
            value: value.into(),
            workload,
        }
    }
}

/// Returns variations of a workload in one parameter each, after the workload itself.
fn variations(base: Workload) -> Vec<Variation> {
    let mut variations = vec![Variation::new("as fitted", "", base)];
    for percent in [50, 75, 90, 110, 125, 200] {
        let growth = base.growth * percent / 100;
        variations.push(Variation::new(
            "growth_us",
            format!("{:.0}", growth as f64 / 1e3),
            Workload { growth, ..base },
        ));
    }
    for spread in [0, 333, 1_000]
        .into_iter()
        .filter(|spread| *spread != base.spread)
    {
        variations.push(Variation::new(
            "spread_percent",
            format!("{}", spread / 10),
            Workload { spread, ..base },
        ));
    }
    for idle in [0, 1, 2, 5]
        .map(|periods| periods * base.per_period)
        .into_iter()
        .filter(|idle| *idle != base.idle)
    {
        variations.push(Variation::new(
            "idle_packets",
            idle.to_string(),
            Workload { idle, ..base },
        ));
    }
    for per_period in [1, 2, 4, 78, 744]
        .into_iter()
        .filter(|packets| *packets != base.per_period)
    {
        variations.push(Variation::new(
            "packets_per_period",
            per_period.to_string(),
            Workload { per_period, ..base },
        ));
    }
    for alpha in [500, 700, 1_000] {
        variations.push(Variation::new(
            "alpha",
            format!("{:.1}", alpha as f64 / 1e3),
            Workload { alpha, ..base },
        ));
    }
    let reference = match base.reference {
        Reference::LastReported => Reference::Zero,
        Reference::Zero => Reference::LastReported,
    };
    let name = if reference == Reference::Zero {
        "zero"
    } else {
        "last reported"
    };
    variations.push(Variation::new(
        "compared_with",
        name,
        Workload { reference, ..base },
    ));
    variations
}

pub(super) fn sensitivity_table(settings: &Settings) -> Table {
    let about = "Error of the fit by parameter: root mean square over the paper's points (empty cell: no event at some point)";
    let columns = "workload,parameter,value,error_percent_per_hop,error_percent_average,\
        error_percent_all";
    let mut table = Table::new("sensitivity", about, columns);
    let seed = settings.value("seed");
    for base in WORKLOADS {
        for Variation {
            parameter,
            value,
            workload,
        } in variations(base)
        {
            let fit = Fit::new(workload, 5 * settings.value("packets"), seed..seed + 1);
            let errors = [0..PER_HOP_POINTS, PER_HOP_POINTS..PAPER.len(), 0..PAPER.len()].map(|points| {
                match fit.error(points) {
                    error if error.is_finite() => fixed(error, 0),
                    _ => Cell::Empty,
                }
            });
            table.push(row![base.name, parameter, value.as_str(), errors]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_reports_every_packet_above_it() {
        let queues = [0, 10, 20, 30, 0, 30];
        assert_eq!(reports(&queues, Reference::Zero, 10, 1_000), 3);
        // 20 is an event, 30 is within the threshold of it, 0 and 30 are events.
        assert_eq!(reports(&queues, Reference::LastReported, 10, 1_000), 3);
        assert_eq!(reports(&queues, Reference::LastReported, 19, 1_000), 3);
        // Half the weight is twice the threshold.
        assert_eq!(reports(&queues, Reference::Zero, 10, 500), 2);
    }

    #[test]
    fn a_level_has_the_share_that_the_model_gives() {
        // Two and a half periods of growth: all of the bursts' third half-periods and later.
        let (queues, _) = trace(WORKLOADS[1], MODELS[0], 4_000_000, 1);
        let share = reports(&queues, Reference::Zero, 100_000, 1_000) as f64 / 4e6;
        let expected = 0.359_f64.powi(2) * (0.5 + 0.5 * 0.359);
        assert!((share / expected - 1.0).abs() < 0.1, "{share} {expected}");
    }
}
