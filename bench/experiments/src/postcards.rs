//! Experiment `postcards`: server load, bandwidth and added delay with an aggregator (P4 Postcard Telemetry Collector, Figs. 2
//! and 3). Agg(R) packs R postcards into a datagram; Cor(R) sends summaries of R postcards.

use std::{
    thread,
    time::{Duration, Instant},
};

use aggregator::{self, Aggregator};
use collector::Collector;
use wire::{
    Hop,
    aggregate::{self, Aggregate, Kind},
    report::v20::{Group, GroupBuilder, Repr},
};

use super::{
    loopback::{self, Served, Server},
    page::{Comparison, Findings, Table, fixed, linear, log, mark_series, row},
    rows::{Observations, Results, judgement},
    settings::{Parameter, Settings},
};
use crate::svg::Axis;
use terminal::{CliError, units};

/// Number of nodes, as in the paper.
const NODES: u32 = 3;
pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::span(&[2_000]),
    Parameter::new("rate", &[10_000], 100..=200_000).help("postcards per second of each of the three nodes"),
    Parameter::new("flows", &[4], 1..=64).help("flows that each node sees"),
    Parameter::new("batch", &[1, 2, 5, 10, 15, 25, 36, 50, 72], 1..=72)
        .help("R, postcards per aggregate; 1 is without an aggregator"),
];
/// Bytes of the Ethernet frame check sequence, which is not part of the length of a captured frame.
const FCS: usize = 4;
/// Bytes of Ethernet, IPv4 and UDP headers and FCS around a payload.
const AROUND: usize = 14 + 20 + 8 + FCS;
/// Bytes of a Telemetry Report 2.0 with one postcard, as [`postcards`] generates it.
const REPORT: usize = 44;
/// Maximum time that a postcard waits, ns: longer than any register takes to fill here, so that only R matters.
const TIMER: u64 = 1_000_000_000;

const KINDS: [(Kind, &str); 6] = [
    (Kind::Agg, "Agg"),
    (Kind::AggNode, "Agg_N"),
    (Kind::AggNodeFlow, "Agg_N,F"),
    (Kind::Cor, "Cor"),
    (Kind::CorNode, "Cor_N"),
    (Kind::CorNodeFlow, "Cor_N,F"),
];

/// The datagrams that an aggregator sends.
#[derive(Default)]
struct AggregatorOutput {
    now: u64,
    sent: Vec<(u64, Vec<u8>)>,
    bytes: u64,
    /// Delay of the first postcard of each aggregate, ns.
    delays: Vec<u64>,
}

impl aggregator::Output for AggregatorOutput {
    fn send(&mut self, _destination: usize, payload: &[u8]) {
        self.sent.push((self.now, payload.to_vec()));
        self.bytes += (payload.len() + AROUND) as u64;
        if let Ok(aggregate) = Aggregate::parse(payload)
            && let Some(first) = aggregate.postcards().next()
        {
            // The timestamp is the arrival time of the postcard, modulo 2^32.
            self.delays
                .push(u64::from((self.now as u32).wrapping_sub(first.ingress_ts)));
        }
    }
}

/// Generates the postcards of `span` ns: arrival times (ns) and payloads, in order.
fn postcards(span: u64, rate: u64, flows: u32) -> Vec<(u64, Vec<u8>)> {
    let count = span * rate * u64::from(NODES) / 1_000_000_000;
    let mut sequences = [0_u32; NODES as usize];
    (0..count)
        .map(|at| {
            let node = (at % u64::from(NODES)) as u32;
            let index = (at / u64::from(NODES)) as u32;
            let now = 1_000_000_000 + at * 1_000_000_000 / (rate * u64::from(NODES));
            let hop = Hop {
                queue_id: Some(1),
                queue_occupancy: Some(index % 97),
                ingress_ts: Some(now),
                egress_ts: Some(now + 500 + u64::from(index % 13)),
                ..Hop::default()
            };
            let flow_id = (index % flows).wrapping_mul(0x9e37_79b1).to_be_bytes();
            let mut payload = vec![0; 256];
            let seq = sequences[node as usize];
            sequences[node as usize] += 1;
            let group = GroupBuilder::new(
                &mut payload,
                Group {
                    hw_id: 0,
                    seq,
                    node_id: node + 1,
                },
            );
            let len = group.map_or(0, |mut group| {
                let written = group.push(&Repr::postcard(hop, &flow_id));
                debug_assert!(written, "256 bytes are room for one postcard");
                group.len()
            });
            payload.truncate(len);
            (now, payload)
        })
        .collect()
}

/// Passes postcards through an aggregator. With R = 1 there is none, and the postcards are sent unchanged.
fn aggregate(postcards: &[(u64, Vec<u8>)], kind: Kind, r: u32) -> Result<AggregatorOutput, CliError> {
    let mut out = AggregatorOutput::default();
    if r == 1 {
        out.sent = postcards.to_vec();
        out.bytes = postcards
            .iter()
            .map(|(_, payload)| (payload.len() + AROUND) as u64)
            .sum();
        out.delays = vec![0];
        return Ok(out);
    }
    let config = aggregator::Config {
        kind,
        r,
        timer: TIMER,
        registers: 64,
        ..aggregator::Config::default()
    };
    let mut aggregator = Aggregator::new(config).map_err(|error| CliError::new(error.to_string()))?;
    for (now, payload) in postcards {
        out.now = *now;
        aggregator.ingest(*now, [payload.as_slice()], &mut out);
    }
    // Postcards still pending at the end are not counted.
    Ok(out)
}

pub(super) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let span = settings.value("span") * 1_000_000;
    let postcards = postcards(span, settings.value("rate"), settings.value("flows") as u32);
    let seconds = span as f64 / 1e9;
    let columns = "kind,r,datagrams_per_s,bandwidth_mbps,delay_first_us,server_cpu_percent,\
        datagrams_lost";
    let mut table = Table::new("stage", "Server and link by kind and R", columns);
    for (kind, name) in KINDS {
        for r in settings.list("batch").iter().map(|r| *r as u32) {
            let out = aggregate(&postcards, kind, r)?;
            let served = serve(out.sent.clone(), r == 1, postcards[0].0)?;
            let delay = out.delays.iter().sum::<u64>() as f64 / out.delays.len().max(1) as f64 / 1e3;
            let has_delays = !kind.is_correlated() || r == 1;
            table.push(row![
                name,
                r,
                fixed(out.sent.len() as f64 / seconds, 0),
                fixed(out.bytes as f64 * 8.0 / seconds / 1e6, 3),
                has_delays.then(|| fixed(delay, 1)),
                fixed(served.percent(), 2),
                served.sent - served.received,
            ]);
        }
    }
    Ok(findings(table, settings))
}

/// Sends a trace over loopback, at the recorded times, to a socket and a collector as in `hopwise run`.
fn serve(trace: Vec<(u64, Vec<u8>)>, reports: bool, begin: u64) -> Result<Served, CliError> {
    let mut server = Server::new(Collector::new(collector::Config {
        max_flows: 4_096,
        ..collector::Config::default()
    }));
    let handle = if reports {
        Collector::handle
    } else {
        Collector::handle_aggregates
    };
    loopback::deliver(
        |sender| {
            let started = Instant::now();
            for (at, payload) in &trace {
                let due = Duration::from_nanos(at - begin);
                // Sleep has a resolution of about 60 us; datagrams due sooner are sent at once.
                if let Some(rest) = due
                    .checked_sub(started.elapsed())
                    .filter(|rest| rest.as_micros() > 60)
                {
                    thread::sleep(rest);
                }
                sender.send_burst(&[payload])?;
            }
            Ok((trace.len() as u64, started.elapsed().as_secs_f64()))
        },
        |datagrams| {
            if server.serve(datagrams, handle) {
                server.batch.clear();
            }
        },
    )
}

/// Adds a plot of a column by R, with figures of the paper as marks.
fn plot(
    table: &mut Table,
    title: &str,
    y: Axis,
    column: &str,
    kinds: &[&str],
    paper: &[(&str, &[(f64, f64)])],
) {
    let lines = kinds
        .iter()
        .map(|kind| table.line(kind, &[("kind", kind)], "r", column));
    let marks = paper
        .iter()
        .map(|(kind, points)| mark_series(&format!("the paper, {kind}"), points.to_vec()));
    let series = lines.chain(marks).collect();
    table.plot(title, "", [linear("R"), y], series);
}

/// Returns the length of a captured frame with this payload.
const fn frame_len(payload: usize) -> usize {
    payload + AROUND - FCS
}

fn findings(mut table: Table, settings: &Settings) -> Findings {
    let cpu = ["1", "15", "25"].map(|r| match figure(&table, "Agg", r, "server_cpu_percent") {
        Some(percent) => format!("{percent:.1} %"),
        None => "not run".to_owned(),
    });
    let [agg_1, agg_25, cor_25] = [("Agg", "1"), ("Agg", "25"), ("Cor", "25")]
        .map(|(kind, r)| Some(format!("{:.1} Mb/s", figure(&table, kind, r, "bandwidth_mbps")?)));
    let [delay, delay_by_flow] = ["Agg", "Agg_N,F"].map(|kind| figure(&table, kind, "25", "delay_first_us"));
    let delay = delay.map(|us| format!("{us:.0} us"));
    let delay_by_flow = delay_by_flow.map(|us| format!("{:.1} ms", us / 1e3));
    let kinds = ["Agg", "Agg_N,F", "Cor", "Cor_N,F"];
    plot(
        &mut table,
        "CPU of the server (Fig. 2)",
        log("per cent of a core"),
        "server_cpu_percent",
        &kinds,
        &[("Agg", &[(1.0, 100.0), (15.0, 50.0), (25.0, 30.0)])],
    );
    plot(
        &mut table,
        "Bandwidth to the server (Fig. 3)",
        log("Mb/s"),
        "bandwidth_mbps",
        &kinds,
        &[("Agg", &[(1.0, 20.0), (25.0, 5.0)]), ("Cor", &[(25.0, 1.0)])],
    );
    plot(
        &mut table,
        "Delay of an aggregate's first postcard",
        log("us"),
        "delay_first_us",
        &["Agg", "Agg_N", "Agg_N,F"],
        &[],
    );
    Findings {
        comparisons: vec![
            Comparison::new("server CPU at R = 1, 15, 25", "100 %, 50 %, 30 % (a Python script, which loses reports at 100 %)", cpu.join(", ")),
            Comparison::new("bandwidth, R = 1", "more than 20 Mb/s", agg_1),
            Comparison::new("bandwidth, Agg(25)", "5 Mb/s", agg_25),
            Comparison::new("bandwidth, Cor(25)", "1 Mb/s", cor_25),
            Comparison::new("added delay, Agg(25)", "830 us", delay),
            Comparison::new("added delay, Agg_3,4(25)", "10 ms", delay_by_flow),
            Comparison::new("bytes of 15 postcards", "15 x 90 in, 370 out", format!("15 x {} in, {} out", frame_len(REPORT), frame_len(aggregate::HEADER_LEN + 15 * aggregate::POSTCARD_LEN))),
        ],
        ..Findings::new(
            format!(
                "Three nodes each send {} postcards/s about {} in total. The aggregator of `hopwise run` processes them in simulated time. \
                 Its output is sent over loopback, at the same rate, to a UDP socket and the collector; the CPU time of the collector's thread is \
                 measured (user and system). R = 1 is without an aggregator. The delay is the time from the arrival of an aggregate's first postcard \
                 until the aggregate is sent.",
                units::count(settings.value("rate")),
                units::counted(settings.value("flows"), "flow"),
            ),
            [
                format!("{} s per point; Ethernet, IPv4 and UDP headers are counted, preamble and gap are not", settings.value("span") as f64 / 1e3),
                "the CPU time is measured, and depends on the machine and its load; bandwidth and delay are exact".into(),
                format!(
                    "postcards of {REPORT} bytes of payload (Telemetry Report 2.0), {} bytes each in an aggregate",
                    aggregate::POSTCARD_LEN
                ),
            ],
            [table],
        )
    }
}

/// Returns a figure of one kind of aggregator and R, or `None` if R was not among the settings.
fn figure(table: &Table, kind: &str, r: &str, column: &str) -> Option<f64> {
    let figure = table.value(&[("kind", kind), ("r", r)], column);
    (!figure.is_nan()).then_some(figure)
}

/// Computes the remarks from the rows.
pub(super) fn observe(results: &Results) -> Observations {
    let rows = results.table("stage");
    let mut remarks = Vec::new();
    for kind in rows.values("kind") {
        let of_kind = rows.with(&[("kind", kind)]);
        remarks.extend(of_kind.first().zip(of_kind.last()).map(|(first, last)| {
            let template = "{server_cpu_percent} % of a core and {bandwidth_mbps} Mb/s for {datagrams_per_s} datagrams/s at R = {r}";
            format!("{kind}: {}; {}.", first.fill(template), last.fill(template))
        }));
    }
    let delayed = rows.with(&[("kind", "Agg")]);
    // Without an aggregator (R = 1), a datagram is a postcard, so the row has the postcards per second of all nodes.
    let without = rows.find(&[("kind", "Agg"), ("r", "1")]);
    if let Some(rate) = without.map(|row| row.number("datagrams_per_s")) {
        let equal = delayed
            .iter()
            .filter(|row| (row.number("delay_first_us") - (row.number("r") - 1.0) * 1e6 / rate).abs() < 0.1)
            .count();
        remarks.push(format!(
            "Agg: the delay is that of R - 1 further postcards at {}/s in {equal} of {}.",
            units::count(rate as u64),
            units::counted(delayed.len() as u64, "row")
        ));
    }
    remarks.extend(
        [
            "the CPU time of each point is measured once, so the spread of runs is unknown and small differences mean nothing.",
            "the CPU time falls with the number of datagrams, presumably because the kernel's cost per datagram exceeds the cost of its records; this was not \
             measured separately. The paper counts R postcards in its delay, we count those after the first.",
        ]
        .map(judgement),
    );
    Observations::remarks(remarks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Scale;

    #[test]
    fn load_and_delay_are_those_of_the_rows() {
        let csv = "kind,r,datagrams_per_s,bandwidth_mbps,delay_first_us,server_cpu_percent\n\
                   Agg,1,30000,21.6,0.0,16.3\nAgg,2,15000,13.2,40.0,10.3\n\"Cor_N,F\",5,6000,5.6,,3.2\n";
        assert_eq!(
            observe(&Results::parse([("stage", csv)])).remarks[..3],
            [
                "Agg: 16.3 % of a core and 21.6 Mb/s for 30,000 datagrams/s at R = 1; 10.3 % of a core and 13.2 Mb/s for 15,000 datagrams/s at R = 2.",
                "Cor_N,F: 3.2 % of a core and 5.6 Mb/s for 6,000 datagrams/s at R = 5; 3.2 % of a core and 5.6 Mb/s for 6,000 datagrams/s at R = 5.",
                "Agg: the delay is that of R - 1 further postcards at 30,000/s in 1 of 2 rows."
            ]
        );
    }

    #[test]
    fn the_delay_is_compared_at_the_rate_of_the_rows() {
        let columns = "kind,r,datagrams_per_s,bandwidth_mbps,delay_first_us,server_cpu_percent";
        let observed =
            |rows: &str| observe(&Results::parse([("stage", &*format!("{columns}\n{rows}"))])).remarks;
        let remarks = observed("Agg,1,3000,2.1,0.0,1.6\nAgg,2,1500,1.3,333.3,1.0\n");
        let delay = "Agg: the delay is that of R - 1 further postcards at 3,000/s in 2 of 2 rows.";
        assert!(remarks.iter().any(|remark| remark == delay), "{remarks:?}");
        let unknown = observed("Agg,2,1500,1.3,333.3,1.0\n");
        assert!(
            !unknown.iter().any(|remark| remark.contains("further postcards")),
            "{unknown:?}"
        );
    }

    #[test]
    fn a_page_names_its_settings_and_has_no_figure_that_was_not_run() {
        assert_eq!(postcards(1_000_000, 10_000, 4)[0].1.len(), REPORT);
        let settings = Settings::new(Scale::Smallest, PARAMETERS);
        let columns =
            "kind,r,datagrams_per_s,bandwidth_mbps,delay_first_us,server_cpu_percent,datagrams_lost";
        let mut table = Table::new("stage", "", columns);
        table.push(row!["Agg", 2_u64, 15_000_u64, 13_u64, 33_u64, 10_u64, 0_u64]);
        let page = findings(table, &settings).markdown(("postcards", "", ""), &settings, false);
        assert!(
            page.contains("each send 10,000 postcards/s about 4 flows in total"),
            "{page}"
        );
        assert!(!page.contains("NaN"), "{page}");
        assert!(
            page.contains("| added delay, Agg(25) | 830 us | not run |"),
            "{page}"
        );
    }
}
