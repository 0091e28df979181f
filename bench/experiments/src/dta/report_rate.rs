//! Experiment `dta-report-rate`: reports per second of one switch (DTA, Table 1): postcards of all packets, drops, or packets
//! that an event filter selects. Rates per packet come from a simulated fabric and are scaled to the paper's switch.

use std::collections::HashMap;

use dataplane::{
    Config, FabricSink, GroundTruth, Watch,
    fabric::{HopTruth, ReportKind},
    watchlist::Mode,
};
use detect::{
    HopValues, Metric, Observation,
    detector::{Algorithm, Detector, Monitor},
};
use wire::FlowKey;

use crate::svg::{Point, Series, Style};
use crate::{
    event_detection,
    page::{Cell, Comparison, Findings, Interval, Table, fixed, log, named, row},
    rows::{Observations, Results, judgement},
    settings::{Parameter, Settings},
};
use terminal::CliError;

pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::seed(),
    Parameter::seeds(),
    Parameter::scaled("span", [&[200], &[40], &[20]], 10..=10_000).help("simulated time of each run, ms"),
    Parameter::new("threshold", &[0, 1_500, 10_000, 50_000], 0..=1_000_000)
        .help("change of the queue occupancy that is an event, bytes"),
];

/// Bits per second that the paper's switch forwards: 6.4 Tb/s, of which 40 % is used.
const SWITCH: f64 = 6.4e12 * 0.4;
/// Shortest frame on the wire, with preamble and gap, bytes.
const SHORTEST: f64 = 84.0;
/// Registers of a switch's detector.
const REGISTERS: usize = 4_096;
/// Share of packets that INT samples in the paper.
const SAMPLING: f64 = 0.005;
/// The rows of the paper's table: system, and reports per second of a switch.
const PAPER: [(&str, f64); 4] = [
    ("INT postcards, 0.5 % sampling", 19e6),
    ("Marple, TCP out of sequence", 6.72e6),
    ("Marple, packet counters", 4.29e6),
    ("NetSeer, flow events", 950e3),
];

/// Names of the systems of [`PAPER`] in the plot.
const LABELS: [&str; 4] = ["INT", "Marple 1", "Marple 2", "NetSeer"];

/// Counts packets and reports of all switches.
struct Counts {
    /// Packets, once per switch that they reached, including those that it dropped.
    packets: u64,
    dropped: u64,
    postcards: u64,
    events: Vec<Events>,
}

/// The events of one threshold, with a monitor for each switch, by node ID.
struct Events {
    threshold: u64,
    monitors: HashMap<u32, Option<Monitor>>,
    count: u64,
}

impl Counts {
    fn new(thresholds: &[u64]) -> Self {
        let events = thresholds.iter().map(|&threshold| Events {
            threshold,
            monitors: HashMap::new(),
            count: 0,
        });
        Self {
            packets: 0,
            dropped: 0,
            postcards: 0,
            events: events.collect(),
        }
    }
}

impl Events {
    fn add(&mut self, at: u64, flow: &FlowKey, hop: &HopTruth) {
        let queue_occupancy = u64::from(hop.queue_occupancy);
        let hops = [HopValues {
            queue_occupancy,
            node: hop.node,
            ..HopValues::NOTHING
        }];
        let observation = Observation {
            hops: &hops,
            ..Observation::default()
        };
        let threshold = self.threshold;
        let monitor = self.monitors.entry(hop.node).or_insert_with(|| {
            let detector = Detector {
                algorithm: Algorithm::PerHop,
                metric: Metric::QueueOccupancy,
                threshold,
            };
            Monitor::new(detector, REGISTERS).ok()
        });
        if let Some(monitor) = monitor {
            self.count += u64::from(monitor.decide(&observation, flow, at).is_reported());
        }
    }
}

impl FabricSink for Counts {
    fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
        match truth {
            // The postcards of a switch are in the order of its packets.
            GroundTruth::Datagram(datagram) => {
                for report in datagram
                    .reports
                    .iter()
                    .filter(|report| report.kind == ReportKind::Postcard)
                {
                    self.postcards += 1;
                    for hop in &report.hops {
                        self.events
                            .iter_mut()
                            .for_each(|events| events.add(datagram.sent, &report.flow, hop));
                    }
                }
            }
            GroundTruth::Delivered(trace) => self.packets += trace.hops.len() as u64,
            GroundTruth::Dropped { trace, .. } => {
                self.packets += trace.hops.len() as u64;
                self.dropped += 1;
            }
            _ => {}
        }
    }
}

/// A kind of report, and its number per packet of a switch, in each run.
struct Kind {
    name: String,
    label: String,
    shares: Vec<f64>,
}

impl Kind {
    fn new(name: impl Into<String>, label: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            label: label.into(),
            shares: Vec::new(),
        }
    }
}

/// Runs a fabric in which every switch sends postcards for `span` ns, and counts them.
fn count(thresholds: &[u64], seed: u64, span: u64) -> Result<Counts, CliError> {
    let mut counts = Counts::new(thresholds);
    let watch = Watch {
        mode: Mode::Postcard,
        ..Watch::default()
    };
    let config = Config {
        watchlist: watch.into(),
        ..Config::default()
    };
    event_detection::network(config, seed)?.run_until(span, &mut counts);
    Ok(counts)
}

pub(crate) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let thresholds = settings.list("threshold");
    let mut kinds = vec![
        Kind::new(FORWARDED, "all"),
        Kind::new("every forwarded packet, 0.5 % sampling", "0.5 %"),
        Kind::new(DROPPED, "drops"),
    ];
    kinds.extend(thresholds.iter().map(|threshold| {
        let name = format!("queue changes by more than {threshold} bytes");
        Kind::new(name, format!("> {threshold} B"))
    }));
    for seed in settings.seeds() {
        let counts = count(thresholds, seed, settings.value("span") * 1_000_000)?;
        let packets = counts.packets.max(1) as f64;
        let postcards = counts.postcards as f64;
        let events = counts.events.iter().map(|events| events.count as f64);
        let all = [postcards, SAMPLING * postcards, counts.dropped as f64]
            .into_iter()
            .chain(events);
        kinds
            .iter_mut()
            .zip(all)
            .for_each(|(kind, count)| kind.shares.push(count / packets));
    }
    Ok(findings(&kinds))
}

/// Returns the packets per second of the paper's switch if all take this many bytes on the wire.
fn packets(bytes: f64) -> f64 {
    SWITCH / 8.0 / bytes
}

/// Returns the reports of the paper's switch, in millions per second, at this share of its packets.
fn million_per_second(share: f64) -> f64 {
    share * packets(SHORTEST) / 1e6
}

fn table(kinds: &[Kind]) -> Table {
    let about =
        "Reports of one switch: per packet in the simulated fabric, and per second at the paper's rate";
    let columns = "reports,per_packet,ci95_low,ci95_high,switch_mps,paper_mps";
    let mut table = Table::new("rate", about, columns);
    let mut bars = Series::new("hopwise", Style::Bars, []);
    let mut paper = Series::new("the paper", Style::Marks, []);
    for one in kinds {
        let share = Interval::of(&one.shares);
        let [mean, low, high] = [share.mean, share.low, share.high].map(million_per_second);
        let shares = [share.mean, share.low, share.high].map(|share| fixed(share, 5));
        table.push(row![one.name.as_str(), shares, fixed(mean, 2), None]);
        bars.points.push(Point {
            x: bars.points.len() as f64,
            y: mean,
            spread: Some((low, high)),
        });
    }
    for (name, rate) in PAPER {
        let name = format!("the paper: {name}");
        paper.points.push((table.rows.len() as f64, rate / 1e6).into());
        table.push(row![
            name.as_str(),
            [const { Cell::Empty }; 4],
            fixed(rate / 1e6, 2)
        ]);
    }
    let names = kinds.iter().map(|one| one.label.as_str()).chain(LABELS);
    table.plot(
        "Reports per second of a switch of 6.4 Tb/s at 40 % (Table 1)",
        "packets of 84 bytes on the wire; Marple 1: out of sequence, 2: counters",
        [named(names), log("reports per second (M)")],
        vec![bars, paper],
    );
    table
}

fn findings(kinds: &[Kind]) -> Findings {
    let rates: Vec<String> = kinds
        .iter()
        .map(|one| {
            let rate = Interval::of(&one.shares);
            let [mean, low, high] = [rate.mean, rate.low, rate.high].map(million_per_second);
            format!("{}: {mean:.2} M/s ({low:.2} to {high:.2})", one.name)
        })
        .collect();
    Findings {
        comparisons: vec![
            Comparison::new("INT postcards, 0.5 % sampling", "19 M/s", rates.get(1).cloned().unwrap_or_default()),
            Comparison::new("events only", "NetSeer 0.95 M/s, Marple 4.29 and 6.72 M/s", rates.get(3..).unwrap_or_default().join("; ")),
        ],
        ..Findings::new(
            "A simulated fabric (four leaves, two spines, 64 hosts, links of 1 Gb/s) carries Poisson traffic and random bursts towards two hosts, as in \
             `event-detection`. Every switch sends a postcard for every packet that it forwards. The detector of the sink's filter (per-hop) decides, at \
             each switch, which postcards are events. The table gives reports per packet of a switch, over all switches, and scales them to the \
             paper's switch: 6.4 Tb/s, 40 % used.",
            [
                format!("packets of 84 bytes on the wire, {:.2} G packets/s: see the remark", packets(SHORTEST) / 1e9),
                "intervals: 95 % confidence interval of the mean over the runs; simulated: the same on every machine".into(),
                "the paper's figures come from the papers of these systems; Marple and NetSeer were not run here".into(),
            ],
            [table(kinds)],
        )
    }
}

const FORWARDED: &str = "every forwarded packet";
const DROPPED: &str = "dropped packets";

/// Computes the remarks from the rows.
pub(crate) fn observe(results: &Results) -> Observations {
    let rows = results.table("rate");
    let mut remarks = Vec::new();
    if let (Some(forwarded), Some(dropped)) = (
        rows.find(&[("reports", FORWARDED)]),
        rows.find(&[("reports", DROPPED)]),
    ) {
        remarks.push(format!(
            "A switch sends no postcard for a packet that it drops: {} and {} are {:.3} per packet together.",
            forwarded.fill("{per_packet} postcards"),
            dropped.fill("{per_packet} drops"),
            forwarded.number("per_packet") + dropped.number("per_packet")
        ));
    }
    remarks.extend(
        [
            "the paper does not state its packet size. 6.4 Tb/s x 40 % x 0.5 % gives 19 M/s for packets of 84 bytes on the wire, the shortest Ethernet frame with \
             preamble and gap. With longer packets, the rate falls in proportion.",
            "the rates of events depend on the workload, so they do not confirm the paper's rows for Marple and NetSeer, which are other events in other traffic.",
        ]
        .map(judgement),
    );
    Observations::remarks(remarks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_rate_follows_from_the_shortest_frames() {
        let rate = SAMPLING * packets(SHORTEST);
        assert!((rate / PAPER[0].1 - 1.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn larger_thresholds_give_fewer_events() {
        let counts = count(&[0, 10_000, u64::MAX], 1, 50_000_000).unwrap();
        let events: Vec<u64> = counts.events.iter().map(|one| one.count).collect();
        assert!(
            events[0] > events[1] && events[1] > events[2] && events[0] < counts.postcards,
            "{events:?}"
        );
        // Packets and postcards in flight at the end do not count. A dropped packet has a drop report in place of a postcard.
        let reported = counts.postcards + counts.dropped;
        assert!(
            reported.abs_diff(counts.packets) < 200,
            "{reported} {}",
            counts.packets
        );
    }

    #[test]
    fn postcards_and_drops_are_added_from_the_rows() {
        let csv = "reports,per_packet\nevery forwarded packet,0.900\ndropped packets,0.200\n";
        assert_eq!(
            observe(&Results::parse([("rate", csv)])).remarks[0],
            "A switch sends no postcard for a packet that it drops: 0.900 postcards and 0.200 drops are 1.100 per packet together."
        );
    }
}
