//! Experiment `sf-delay`: time from a path's first report to its completion with SF-INT, by arrival pattern (SF-INT, Fig. 8b).

use dataplane::{Pattern, watchlist::Mode};

use super::{
    page::{Comparison, Findings, Interval, Table, fixed, linear, log, mark_series, row},
    rows::{Observations, Results, Row, Rows, judgement, listed},
    settings::{Parameter, Settings},
    sf::{Observer, PATHS, Run, nodes_of},
};
use crate::svg::{Point, Series, Style};
use terminal::{CliError, units};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::seed(),
    Parameter::seeds(),
    Parameter::scaled("packets", [&[8_192], &[2_048], &[600]], 64..=1_000_000).help("packets of each run"),
    Parameter::new(
        "rate",
        &[100_000, 645_000, 1_000_000, 7_000_000],
        1_000..=10_000_000,
    )
    .help("packets per second of the flow"),
    PATHS,
];

/// Packets per second at which evenly spaced packets on a path of eight nodes have the paper's mean delay.
const MATCHED: u64 = 645_000;
/// Nodes of the path in the paper's result.
const PAPER_NODES: u32 = 8;
/// The paper's mean delay, us.
const PAPER_DELAY_US: f64 = 9.3;
/// Mean number of packets in a burst, and rate in a burst as a multiple of the mean rate.
const BURST: u64 = 1_000;
const PEAK: u64 = 4;

/// A named distribution of gaps between packets; `pattern` takes the mean gap in ns.
#[derive(Clone, Copy)]
struct Arrivals {
    name: &'static str,
    pattern: fn(u64) -> Pattern,
}

const ARRIVALS: [Arrivals; 3] = [
    Arrivals {
        name: "even",
        pattern: |gap| Pattern::Constant { gap },
    },
    Arrivals {
        name: "Poisson",
        pattern: |mean| Pattern::Poisson { mean },
    },
    Arrivals {
        name: "bursts",
        pattern: bursts,
    },
];

/// Returns bursts and pauses of random length, with this mean gap over both (ns).
fn bursts(mean: u64) -> Pattern {
    let gap = (mean / PEAK).max(1);
    Pattern::OnOff {
        gap,
        on: BURST * gap,
        off: BURST * gap * (PEAK - 1),
        random: true,
    }
}

/// Delays of the complete paths in all runs of a point.
struct Delays {
    /// Mean of each run, us.
    means: Vec<f64>,
    /// All delays, ns, ascending.
    all: Vec<u64>,
}

impl Delays {
    fn of(settings: &Settings, arrivals: Arrivals, rate: u64, nodes: u32) -> Result<Self, CliError> {
        let gap = 1_000_000_000 / rate;
        let mut means = Vec::new();
        let mut all = Vec::new();
        for seed in settings.seeds() {
            let mut observer = Observer::new(nodes);
            let pattern = Some((arrivals.pattern)(gap));
            let run = Run {
                packets: settings.value("packets"),
                gap,
                pattern,
                seed,
                ..Run::new(nodes, Mode::Sf)
            };
            run.play(&mut observer)?;
            if !observer.delays.is_empty() {
                means.push(observer.delays.iter().sum::<u64>() as f64 / observer.delays.len() as f64 / 1e3);
            }
            all.append(&mut observer.delays);
            if arrivals.name == "even" {
                // Even arrivals do not depend on the seed.
                break;
            }
        }
        all.sort_unstable();
        Ok(Self { means, all })
    }

    fn mean(&self) -> Interval {
        Interval::of(&self.means)
    }

    fn quantile(&self, share: f64) -> f64 {
        let at = (self.all.len() as f64 * share) as usize;
        self.all
            .get(at.min(self.all.len().saturating_sub(1)))
            .map_or(0.0, |delay| *delay as f64 / 1e3)
    }

    /// Returns the share of delays below their mean, per cent.
    fn below_mean(&self) -> f64 {
        let mean = self.all.iter().sum::<u64>() as f64 / self.all.len().max(1) as f64;
        let below = self.all.iter().filter(|delay| (**delay as f64) < mean).count();
        100.0 * below as f64 / self.all.len().max(1) as f64
    }
}

pub(super) fn run(settings: &Settings) -> Result<Findings, CliError> {
    Ok(Findings::new(
        format!(
            "The time at the sink from the first report of a packet's path (state Medium) to the report that completes it: N - 1 reports, carried \
             by N - 1 packets of the flow. One flow, no loss. The first table has evenly spaced packets. The second has the mean rate {MATCHED} \
             packets/s, with even, Poisson and bursty arrivals: bursts of {BURST} packets on average at {PEAK} times the mean rate, and pauses, \
             both of exponentially distributed length."
        ),
        [
            "links of 100 Gb/s and 1 us, IPv6, one flow",
            "intervals: 95 % confidence interval of the mean over the runs; the quantiles and the share are over the paths of all runs; \
             simulated: the same on every machine",
        ]
        .map(str::to_owned),
        [even_table(settings)?, arrivals_table(settings)?],
    ))
}

/// Returns the paper's mean delay as a mark.
fn paper() -> Series {
    mark_series("the paper, N = 8", vec![(PAPER_NODES.into(), PAPER_DELAY_US)])
}

fn even_table(settings: &Settings) -> Result<Table, CliError> {
    let columns = "packets_per_s,nodes,complete_paths,delay_mean_us,delay_p99_us";
    let mut table = Table::new("delay", "Evenly spaced packets", columns);
    let mut series = Vec::new();
    for &rate in settings.list("rate") {
        for nodes in nodes_of(settings) {
            let delays = Delays::of(settings, ARRIVALS[0], rate, nodes)?;
            let figures = [delays.mean().mean, delays.quantile(0.99)];
            table.push(row![
                rate,
                nodes,
                delays.all.len(),
                figures.map(|us| fixed(us, 3))
            ]);
        }
        let name = format!("{} k packets/s", rate / 1_000);
        series.push(table.line(
            &name,
            &[("packets_per_s", &rate.to_string())],
            "nodes",
            "delay_mean_us",
        ));
    }
    series.push(paper());
    let axes = [linear("nodes on the path"), log("us")];
    let title = "Delay until a path is complete, mean (Fig. 8b)";
    table.plot(title, "evenly spaced packets", axes, series);
    Ok(table)
}

/// Makes the table of all arrival distributions at one rate.
fn arrivals_table(settings: &Settings) -> Result<Table, CliError> {
    let about = format!("Even, Poisson and bursty arrivals, {MATCHED} packets/s on average");
    let columns = "arrivals,nodes,complete_paths,delay_mean_us,ci95_low,ci95_high,delay_p50_us,\
        delay_p99_us,delay_max_us,below_mean_percent";
    let mut table = Table::new("arrivals", about, columns);
    let mut series = Vec::new();
    for arrivals in ARRIVALS {
        let mut points = Vec::new();
        for nodes in nodes_of(settings) {
            let delays = Delays::of(settings, arrivals, MATCHED, nodes)?;
            let mean = delays.mean();
            let quantiles = [0.5, 0.99, 1.0].map(|share| fixed(delays.quantile(share), 2));
            table.push(row![
                arrivals.name,
                nodes,
                delays.all.len(),
                [mean.mean, mean.low, mean.high].map(|us| fixed(us, 2)),
                quantiles,
                fixed(delays.below_mean(), 1),
            ]);
            points.push(Point {
                x: nodes.into(),
                y: mean.mean,
                spread: Some((mean.low.max(0.0), mean.high)),
            });
        }
        series.push(Series {
            name: arrivals.name.into(),
            style: Style::Line,
            points,
        });
    }
    series.push(paper());
    let axes = [linear("nodes on the path"), linear("us")];
    let title = "Delay until a path is complete, by arrivals (Fig. 8b)";
    table.plot(title, "mean, with its 95 % confidence interval", axes, series);
    Ok(table)
}

/// Computes comparisons and remarks from the rows.
pub(super) fn observe(results: &Results) -> Observations {
    let even = results.table("delay");
    let arrivals = results.table("arrivals");
    let nodes = PAPER_NODES.to_string();
    let longest = arrivals.with(&[("nodes", &nodes)]);
    let matched = format!(
        "{nodes} nodes, {} packets/s (chosen to give this delay with even arrivals): mean delay",
        units::count(MATCHED)
    );
    let comparisons = vec![
        Comparison::new(
            matched,
            format!("{} us", PAPER_DELAY_US),
            fill_each(
                &longest,
                "{arrivals} {delay_mean_us} us ({ci95_low} to {ci95_high})",
            ),
        ),
        Comparison::new(
            format!("{nodes} nodes: delays below the mean"),
            "99 %",
            fill_each(&longest, "{arrivals} {below_mean_percent} %"),
        ),
    ];
    let mut remarks: Vec<String> = gaps(&even).into_iter().collect();
    remarks.extend(even.with(&[("nodes", &nodes)]).last().map(|row| {
        row.fill(&format!(
            "At {{packets_per_s}} packets/s (the paper's abstract: 7.13 M), one flow has {{delay_mean_us}} us at {nodes} nodes; the paper's {} us are {:.1} \
             times that.",
            PAPER_DELAY_US,
            PAPER_DELAY_US / row.number("delay_mean_us")
        ))
    }));
    remarks.extend(longest.iter().map(|row| {
        let than = if row.number("below_mean_percent") < 99.0 { "fewer than the paper's 99 %" } else { "the paper's 99 % or more" };
        row.fill(&format!("{{arrivals}}: {{below_mean_percent}} % of the delays at {nodes} nodes are below the mean, {than}."))
    }));
    remarks.extend(
        [
            "the rate of the first comparison is chosen so that six gaps are the paper's delay, so an equal mean confirms nothing. The paper does not state the \
             number of flows and the rate of its generator in this measurement.",
            "the length and rate of our bursts are our choice, and the paper does not describe its arrivals, so a share near 99 % shows only that bursty \
             arrivals could explain its sentence.",
            "the paper counts every round of reports; here a path becomes complete for only one packet in 2^ceil(log2(N - 1)), see [sf-yield](sf-yield.md).",
        ]
        .map(judgement),
    );
    Observations::new(comparisons, remarks)
}

/// Fills a template for each row, and joins the texts.
fn fill_each(rows: &[Row<'_>], template: &str) -> Option<String> {
    listed("{}", rows.iter().map(|row| row.fill(template)))
}

/// Says in how many rows the mean delay of even arrivals is N - 2 gaps between packets.
fn gaps(even: &Rows) -> Option<String> {
    let all = even.iter().count();
    let equal = even
        .iter()
        .filter(|row| {
            let expected = (row.number("nodes") - 2.0) * 1e6 / row.number("packets_per_s");
            (row.number("delay_mean_us") - expected).abs() < 0.01
        })
        .count();
    (all > 0).then(|| format!("With evenly spaced packets, the mean delay is N - 2 gaps between packets of the flow in {equal} of {}.", units::counted(all as u64, "row")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Scale;

    #[test]
    fn the_delay_is_a_gap_for_each_further_report() {
        let settings = Settings::new(Scale::Smallest, PARAMETERS);
        let even = Delays::of(&settings, ARRIVALS[0], 1_000_000, 8).unwrap();
        assert_eq!(
            (even.quantile(0.0), even.quantile(1.0), even.below_mean()),
            (6.0, 6.0, 0.0)
        );
        let random = Delays::of(&settings, ARRIVALS[1], 1_000_000, 5).unwrap();
        let mean = random.mean().mean;
        assert!(
            (2.4..3.6).contains(&mean) && random.quantile(1.0) > 2.0 * mean,
            "{mean}"
        );
    }

    #[test]
    fn the_delay_of_the_papers_rate_and_the_shares_are_those_of_the_rows() {
        let observed = observe(&Results::parse([
            (
                "delay",
                "packets_per_s,nodes,delay_mean_us\n1000000,3,1.000\n7000000,8,18.600\n",
            ),
            (
                "arrivals",
                "arrivals,nodes,delay_mean_us,below_mean_percent\nbursts,8,9.53,40.0\n",
            ),
        ]));
        assert_eq!(
            observed.remarks[..3],
            [
                "With evenly spaced packets, the mean delay is N - 2 gaps between packets of the flow in 1 of 2 rows.",
                "At 7,000,000 packets/s (the paper's abstract: 7.13 M), one flow has 18.600 us at 8 nodes; the paper's 9.3 us are 0.5 times that.",
                "bursts: 40.0 % of the delays at 8 nodes are below the mean, fewer than the paper's 99 %."
            ]
        );
    }
}
