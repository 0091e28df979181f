//! Experiment `sf-rate`: SF-INT reports that one core receives and joins, by sending rate over loopback (SF-INT, Fig. 8a), and
//! in process by nodes and instructions (Fig. 9).

use std::cmp::Ordering;

use collector::{Batch, Collector, config::JoinConfig};
use dataplane::{FabricSink, Reporter, watchlist::Mode};

use super::{
    collector_cpu::handle,
    loopback::{self, Served, Server},
    page::{Comparison, Findings, Table, fixed, linear, log, row},
    rows::{Observations, Results, Row, Rows, extremes, judgement},
    settings::{Parameter, Settings},
    sf::{HOPS, INSTRUCTIONS, PATHS, Run, nodes_of},
    timing::{self, Spread},
};
use crate::svg::{Series, Style};
use terminal::CliError;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::runs(),
    Parameter::span(&[200]),
    Parameter::seed(),
    Parameter::scaled("packets", [&[8_192], &[2_048], &[256]], 64..=65_536)
        .help("packets whose reports are repeated"),
    Parameter::new(
        "rate",
        &[50_000, 100_000, 200_000, 400_000, 800_000],
        100..=10_000_000,
    )
    .help("reports sent per second, path of eight nodes"),
    PATHS,
    Parameter::new("items", &[2, 3, 4, 5], 1..=5).help("instructions, in the order of the paper"),
];

/// Number of nodes of the path in the runs by sending rate.
const NODES: u32 = 8;
/// Bytes around a report on the paper's link: Ethernet header (14) and FCS (4), IPv4 (20), UDP (8), preamble and gap (20).
const OVERHEAD: f64 = (14 + 4 + 20 + 8 + 20) as f64;
/// Maximum number of reports in one call of the collector.
const BURST: usize = 64;
const BATCH: usize = 8_192;

/// The reports of one case.
struct RecordedCase {
    instructions: u64,
    nodes: u32,
    recording: Recording,
}

/// Payloads of reports, in order of arrival.
#[derive(Default)]
struct Recording(Vec<Vec<u8>>);

impl FabricSink for Recording {
    fn report(&mut self, _t: u64, _from: &Reporter, payload: &[u8]) {
        self.0.push(payload.to_vec());
    }
}

impl Recording {
    /// Simulates one flow through a line of switches, and records its reports.
    fn of(settings: &Settings, nodes: u32, instructions: u64) -> Result<Self, CliError> {
        let bitmap = INSTRUCTIONS[..instructions as usize]
            .iter()
            .fold(0, |all, bit| all | bit);
        let mut recording = Self::default();
        let packets = settings.value("packets");
        let seed = settings.value("seed");
        Run {
            bitmap,
            packets,
            seed,
            ..Run::new(nodes, Mode::Sf)
        }
        .play(&mut recording)?;
        Ok(recording)
    }

    /// Returns the mean bytes of a report on the paper's link.
    fn bytes(&self) -> f64 {
        self.0
            .iter()
            .map(|payload| payload.len() as f64 + OVERHEAD)
            .sum::<f64>()
            / self.0.len().max(1) as f64
    }
}

fn collector() -> Collector {
    // The collector cannot learn the initial hop count from paths of two nodes.
    let sf = JoinConfig {
        hop_limit: Some(HOPS),
        ..JoinConfig::default()
    };
    Collector::new(collector::Config {
        max_flows: 4_096,
        sf,
        ..collector::Config::default()
    })
}

pub(super) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let mut cases = Vec::new();
    for &instructions in settings.list("items") {
        for nodes in nodes_of(settings) {
            cases.push(RecordedCase {
                instructions,
                nodes,
                recording: Recording::of(settings, nodes, instructions)?,
            });
        }
    }
    Ok(Findings::new(
        METHOD,
        CONDITIONS.map(str::to_owned),
        [capacity_table(settings, &cases)?, throughput_table(settings)?],
    ))
}

const METHOD: &str = "A line of executable switches with SF-INT makes the reports of one flow. By nodes (Fig. 9): the collector processes their payloads in \
                      memory, again and again, and joins the records to paths; the rate is the inverse of the CPU time on one core. By sending rate (Fig. \
                      8a): a sender passes them over loopback to a receiving thread with the collector.";
const CONDITIONS: [&str; 4] = [
    "the paper: 54 micro-engines of a Netronome SmartNIC, link of 10 Gb/s, packets of 64 bytes; its values are those of its text, since the \
     figures' data is not published",
    "bytes on a link of the paper include Ethernet, IPv4, UDP, preamble and gap",
    "over loopback: sender and receiver share the machine; the kernel does part of the receive work in the sender's context",
    timing::CONDITION,
];

/// Measures the collector's time per report from payloads in memory, ns.
fn cost(settings: &Settings, payloads: &[Vec<u8>]) -> Result<f64, CliError> {
    let mut collector = collector();
    let mut batch = Batch::with_capacity(BATCH);
    let mut now = 1_000_000_000;
    let mut bursts = payloads.chunks(BURST).cycle();
    let mut before = 0;
    let mut calls = 0_u64;
    timing::measure_once(settings, || {
        for _ in 0..4 {
            let burst = bursts.next().unwrap_or_default();
            now += 1_000 * burst.len() as u64;
            handle(&mut collector, burst, now, &mut batch);
        }
        calls += 1;
        if calls.is_multiple_of(64) {
            collector.tick(now, &mut batch);
        }
        batch.clear();
        let reports = collector.stats().reports;
        Ok(reports - std::mem::replace(&mut before, reports))
    })
}

fn serve(settings: &Settings, payloads: &[Vec<u8>], rate: u64) -> Result<Served, CliError> {
    let mut server = Server::new(collector());
    loopback::serve(payloads, rate, timing::span(settings), |datagrams| {
        if server.serve(datagrams, Collector::handle) {
            server.batch.clear();
        }
    })
}

fn capacity_table(settings: &Settings, cases: &[RecordedCase]) -> Result<Table, CliError> {
    let columns = "instructions,nodes,frame_bytes,ns_per_report,ns_per_report_min,\
        ns_per_report_max,reports_mps,reports_mps_min,reports_mps_max,gbps";
    let mut table = Table::new("capacity", "Reports that one core processes, in process", columns);
    let costs = timing::in_turn(settings, cases, |case| cost(settings, &case.recording.0))?;
    for (case, ns) in cases.iter().zip(costs) {
        let bytes = case.recording.bytes();
        table.push(row![
            case.instructions,
            case.nodes,
            fixed(bytes, 0),
            ns.cells(1),
            ns.map(|ns| 1e3 / ns).cells(2),
            fixed(bytes * 8.0 / ns.median, 2),
        ]);
    }
    let lines = table.lines("instructions", "{} instructions", "nodes", MPS);
    let axes = [linear("nodes on the path"), linear("reports per second (M)")];
    table.plot(
        "Reports per second by nodes (Fig. 9)",
        "one core, in process",
        axes,
        lines,
    );
    Ok(table)
}

fn throughput_table(settings: &Settings) -> Result<Table, CliError> {
    let columns = "instructions,wanted_per_s,sent_kps,processed_kps,processed_kps_min,\
        processed_kps_max,sent_gbps,processed_gbps,cpu_ns_per_report";
    let about = format!("Sent and processed over loopback, path of {NODES} nodes");
    let mut table = Table::new("throughput", about, columns);
    let mut lines = Vec::new();
    for &instructions in settings.list("items") {
        let recording = Recording::of(settings, NODES, instructions)?;
        // Factor from thousands of reports per second to Gb/s on the paper's link.
        let gbits = recording.bytes() * 8.0 / 1e6;
        let mut line = Series::new(&format!("{instructions} instructions"), Style::Line, []);
        for &rate in settings.list("rate") {
            let runs = (0..settings.value("runs")).map(|_| serve(settings, &recording.0, rate));
            let runs: Vec<Served> = runs.collect::<Result<_, _>>()?;
            let [sent, processed, ns] = [
                |run: &Served| run.sent_per_second() / 1e3,
                |run: &Served| run.received_per_second() / 1e3,
                Served::ns_per_report,
            ]
            .map(|figure| Spread::of(runs.iter().map(figure).collect()));
            let on_link = processed.map(|rate| gbits * rate);
            table.push(row![
                instructions,
                rate,
                fixed(sent.median, 1),
                processed.cells(1),
                fixed(gbits * sent.median, 3),
                fixed(on_link.median, 3),
                fixed(ns.median, 0),
            ]);
            line.points.push(on_link.point(gbits * sent.median));
        }
        lines.push(line);
    }
    let axes = [log("sent (Gb/s)"), log("processed (Gb/s)")];
    let note = "as these reports would fill the paper's link";
    table.plot("Processed by sending rate (Fig. 8a)", note, axes, lines);
    Ok(table)
}

/// Computes comparisons and remarks from the rows.
pub(super) fn observe(results: &Results) -> Observations {
    let capacity = results.table("capacity");
    let throughput = results.table("throughput");
    let comparisons = vec![
        Comparison::new(
            "processing rate, 2 instructions, all paths (Fig. 9)",
            "up to 7.13 Mpps (the abstract; 4.3 says Gbps)",
            range(&capacity, "2"),
        ),
        Comparison::new(
            "processing rate, 5 instructions, all paths",
            "a plot",
            range(&capacity, "5"),
        ),
        Comparison::new(
            "effect of the number of nodes, 2 instructions",
            "none",
            by_nodes(&capacity, "2"),
        ),
        Comparison::new(
            "throughput without loss (Fig. 8a)",
            "9.13 Gb/s",
            lossless(&throughput),
        ),
        Comparison::new(
            "output compared with input of the SmartNIC (Figs. 9a and 9b)",
            "near",
            output(&throughput),
        ),
    ];
    let mut remarks = Vec::new();
    for items in capacity.values("instructions") {
        remarks.extend(by_nodes(&capacity, items).map(|text| format!("{items} instructions: {text}.")));
    }
    remarks.extend(by_items(&capacity));
    remarks.push(judgement(
        "the paper measures a NIC with 54 cores that runs on its own link. Ours is one core of a CPU that also runs the sender, so the rates are \
         not comparable.",
    ));
    remarks.push(judgement(
        "a path of two nodes is complete with every report, and a longer one with fewer reports, which would make short paths the slowest. \
         This cause was not measured separately.",
    ));
    Observations::new(comparisons, remarks)
}

const MPS: &str = "reports_mps";

/// Describes the smallest and the largest rate with this number of instructions.
fn range(capacity: &Rows, items: &str) -> Option<String> {
    let (low, high) = extremes(&capacity.with(&[("instructions", items)]), MPS)?;
    let [low, high] = [low, high].map(|row| row.fill("{reports_mps~}"));
    Some(format!("{low} to {high} M reports/s"))
}

/// Describes the slowest and the fastest path length, and whether the runs distinguish them.
fn by_nodes(capacity: &Rows, items: &str) -> Option<String> {
    let (low, high) = extremes(&capacity.with(&[("instructions", items)]), MPS)?;
    let template = "{reports_mps~} M reports/s with {nodes:node}";
    let verdict = match low.spread(MPS).order(high.spread(MPS)) {
        Some(_) => "the number of nodes changes the rate",
        None => "the runs do not distinguish the slowest and the fastest path",
    };
    Some(format!(
        "{} (lowest), {} (highest): {verdict}",
        low.fill(template),
        high.fill(template)
    ))
}

/// Describes the effect of the number of instructions on the longest path.
fn by_items(capacity: &Rows) -> Option<String> {
    let nodes = capacity.values("nodes").last().copied()?;
    let rows = capacity.with(&[("nodes", nodes)]);
    let (first, last) = rows.first().zip(rows.last())?;
    let verdict = match last.spread(MPS).order(first.spread(MPS)) {
        Some(Ordering::Less) => "more instructions are slower",
        Some(_) => "more instructions are faster",
        None => "the runs do not distinguish them",
    };
    let template = "{reports_mps~} M reports/s with {instructions:instruction}";
    Some(format!(
        "{}: {}, {}: {verdict}.",
        last.fill("{nodes:node}"),
        first.fill(template),
        last.fill(template)
    ))
}

/// Describes the smallest share of sent reports that was processed, over all rates.
fn output(throughput: &Rows) -> Option<String> {
    let share = throughput
        .iter()
        .map(|row| 100.0 * row.number("processed_kps_min") / row.number("sent_kps"))
        .fold(f64::INFINITY, f64::min);
    share
        .is_finite()
        .then(|| format!("over loopback, 8 nodes: at least {share:.1} % at each rate tried"))
}

/// Returns whether every run of a row lost at most 0.1 % of the reports.
fn is_lossless(row: &Row<'_>) -> bool {
    row.number("processed_kps_min") >= 0.999 * row.number("sent_kps")
}

/// Describes the largest throughput without loss. It is a maximum only if a higher rate lost reports.
fn lossless(throughput: &Rows) -> Option<String> {
    throughput.iter().next()?;
    let rows: Vec<_> = throughput.iter().filter(is_lossless).collect();
    let Some((_, most)) = extremes(&rows, "processed_gbps") else {
        return Some("no rate without loss".into());
    };
    let losing: Vec<_> = throughput.iter().filter(|row| !is_lossless(row)).collect();
    let limit = extremes(&losing, "wanted_per_s").map_or_else(
        || "the highest rate tried; no loss above 0.1 % seen, so not a maximum".into(),
        |(least, _)| least.fill("loss above 0.1 % begins at {wanted_per_s} reports/s"),
    );
    Some(most.fill(&format!("{{processed_gbps}} Gb/s over loopback ({{wanted_per_s}} reports/s, {{instructions:instruction}}): {limit}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Scale;

    #[test]
    fn every_packet_makes_one_report_of_constant_length() {
        let settings = Settings::new(Scale::Smallest, PARAMETERS);
        let recordings = [3, 8].map(|nodes| Recording::of(&settings, nodes, 2).unwrap());
        for recording in &recordings {
            assert_eq!(recording.0.len() as u64, settings.value("packets"));
        }
        assert_eq!(recordings[0].bytes(), recordings[1].bytes());
    }

    #[test]
    fn a_rate_without_loss_is_a_maximum_only_if_a_higher_one_loses() {
        let head =
            "instructions,wanted_per_s,sent_kps,processed_kps_min,processed_gbps\n2,1000,1.0,1.0,0.001\n";
        let hopwise = |rows: &str| {
            let results = Results::parse([("throughput", &*format!("{head}{rows}"))]);
            observe(&results).comparisons.unwrap()[3].hopwise.clone()
        };
        assert_eq!(
            hopwise("2,800000,800.0,800.0,1.343\n"),
            "1.343 Gb/s over loopback (800,000 reports/s, 2 instructions): the highest rate tried; no loss above 0.1 % seen, so not a maximum"
        );
        assert_eq!(
            hopwise("2,800000,800.0,700.0,1.343\n"),
            "0.001 Gb/s over loopback (1,000 reports/s, 2 instructions): loss above 0.1 % begins at 800,000 reports/s"
        );
    }

    #[test]
    fn the_effect_of_nodes_is_that_of_the_rows() {
        fn remark(high: &str) -> Vec<String> {
            let csv = format!(
                "instructions,nodes,reports_mps,reports_mps_min,reports_mps_max\n2,2,12.00,{high}\n2,6,9.00,8.00,10.00\n3,6,10.00,9.00,11.00\n"
            );
            observe(&Results::parse([("capacity", &*csv)])).remarks
        }
        assert_eq!(
            remark("11.00,13.00")[0],
            "2 instructions: 9.00 (8.00 to 10.00) M reports/s with 6 nodes (lowest), 12.00 (11.00 to 13.00) M reports/s with 2 nodes (highest): the number \
             of nodes changes the rate."
        );
        assert!(
            remark("9.50,13.00")[0]
                .ends_with("the runs do not distinguish the slowest and the fastest path.")
        );
        assert_eq!(
            remark("9.50,13.00")[2],
            "6 nodes: 9.00 (8.00 to 10.00) M reports/s with 2 instructions, 10.00 (9.00 to 11.00) M reports/s with 3 instructions: the runs do not \
             distinguish them."
        );
    }
}
