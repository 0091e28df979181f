//! Load of the server and added delay with an aggregator: Agg(R) and Cor(R).

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use aggregator::{self, Aggregator};
use collector::{Batch, Collector, Datagram};
use nic::udp::{Burst, Options, Receiver, Sender};
use wire::{
    Hop,
    aggregate::{Aggregate, Kind},
    report::v20::{Group, GroupBuilder, Repr},
};

use super::{
    page::{Cell, Comparison, Findings, Table, line_series, linear, log, mark_series},
    rows::{Observations, Results, judgement},
    settings::{Parameter, Settings},
};
use crate::cases::core_time;
use crate::figures::octets;
use crate::svg::{Axis, Plot};
use terminal::{CliError, units};

/// Nodes, as in the paper.
const NODES: u32 = 3;
pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::span(&[2_000]),
    Parameter::new("rate", &[10_000], 100..=200_000).help("postcards per second of each of the three nodes"),
    Parameter::new("flows", &[4], 1..=64).help("flows that each node sees"),
    Parameter::new("batch", &[1, 2, 5, 10, 15, 25, 36, 50, 72], 1..=72)
        .help("R, postcards per aggregate; 1 is without an aggregator"),
];
/// Bytes of Ethernet header and FCS, IPv4 and UDP around a payload.
const AROUND: usize = 14 + 20 + 8 + 4;
/// Maximum time that a postcard waits, ns: longer than any register here takes to fill, so that only R matters.
const TIMER: u64 = 1_000_000_000;

const KINDS: [(Kind, &str); 6] = [
    (Kind::Agg, "Agg"),
    (Kind::AggNode, "Agg_N"),
    (Kind::AggNodeFlow, "Agg_N,F"),
    (Kind::Cor, "Cor"),
    (Kind::CorNode, "Cor_N"),
    (Kind::CorNodeFlow, "Cor_N,F"),
];

/// Output of an aggregator.
#[derive(Default)]
struct AggregatorOutput {
    now: u64,
    /// Time and payload of each datagram.
    sent: Vec<(u64, Vec<u8>)>,
    bytes: u64,
    /// Delay of the first postcard in each aggregate, ns.
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

/// Arrival times and payloads of all postcards in `span`, in order.
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

/// Passes postcards through an aggregator. R = 1 means no aggregator.
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
    // Pending postcards are not counted in any of the sums.
    Ok(out)
}

pub(super) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let span = settings.one("span") * 1_000_000;
    let postcards = postcards(span, settings.one("rate"), settings.one("flows") as u32);
    let seconds = span as f64 / 1e9;
    let mut rows = Vec::new();
    let mut found = Vec::new();
    for (kind, name) in KINDS {
        for r in settings.list("batch").iter().map(|r| *r as u32) {
            let out = aggregate(&postcards, kind, r)?;
            let served = serve(&out.sent, r == 1, postcards[0].0)?;
            let bandwidth = out.bytes as f64 * 8.0 / seconds / 1e6;
            let delay = out.delays.iter().sum::<u64>() as f64 / out.delays.len().max(1) as f64 / 1e3;
            let delays = !kind.is_correlated() || r == 1;
            rows.push(vec![
                name.into(),
                u64::from(r).into(),
                Cell::Figure(out.sent.len() as f64 / seconds, 0),
                Cell::Figure(bandwidth, 3),
                if delays {
                    Cell::Figure(delay, 1)
                } else {
                    Cell::Empty
                },
                Cell::Figure(served.cpu, 2),
                (served.sent - served.received).into(),
            ]);
            found.push(Point {
                name,
                r,
                bandwidth,
                delay,
                cpu: served.cpu,
            });
        }
    }
    Ok(findings(rows, &found, seconds))
}

/// Figures of one row.
struct Point {
    name: &'static str,
    r: u32,
    bandwidth: f64,
    delay: f64,
    cpu: f64,
}

/// Load of the server during a trace.
struct Served {
    /// Per cent of a core.
    cpu: f64,
    sent: u64,
    received: u64,
}

/// Sends a trace over loopback, at the recorded times, to a socket and a collector as in `hopwise run`.
fn failed(error: nic::Error) -> CliError {
    CliError::new(error.to_string())
}

fn serve(trace: &[(u64, Vec<u8>)], reports: bool, begin: u64) -> Result<Served, CliError> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut receiver = Receiver::bind(any, &Options::default()).map_err(failed)?;
    let mut sender = Sender::connect(any, receiver.local_addr()).map_err(failed)?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let server = scope.spawn(|| collect(&mut receiver, &done, reports));
        let started = Instant::now();
        for (at, payload) in trace {
            let due = Duration::from_nanos(at - begin);
            // Sleep has a resolution of some 60 us; datagrams due sooner are sent at once.
            if let Some(rest) = due
                .checked_sub(started.elapsed())
                .filter(|rest| rest.as_micros() > 60)
            {
                thread::sleep(rest);
            }
            sender.send_burst(&[payload]).map_err(failed)?;
        }
        let took = started.elapsed();
        done.store(true, Ordering::Release);
        let joined = server
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (busy, received) = joined.map_err(failed)?;
        let cpu = 100.0 * busy as f64 / took.as_nanos() as f64;
        Ok(Served {
            cpu,
            sent: trace.len() as u64,
            received,
        })
    })
}

/// Receives and processes datagrams until `done` is set and the socket is empty; returns CPU time, ns, and number of datagrams.
fn collect(receiver: &mut Receiver, done: &AtomicBool, reports: bool) -> Result<(u64, u64), nic::Error> {
    let mut collector = Collector::new(collector::Config {
        max_flows: 4_096,
        ..collector::Config::default()
    });
    let mut batch = Batch::with_capacity(4_096);
    let mut burst = Burst::default();
    let began = core_time().unwrap_or(0);
    let mut received = 0;
    let mut ticked = 0;
    loop {
        let ending = done.load(Ordering::Acquire);
        let count = receiver.recv(&mut burst, if ending { 20 } else { 50 })?;
        if count == 0 && ending {
            return Ok((core_time().unwrap_or(0) - began, received));
        }
        received += count as u64;
        for packet in burst.iter().take(count) {
            let datagram = Datagram {
                payload: packet.data,
                source: octets(packet.source.ip()),
                src_port: packet.source.port(),
                listener: 0,
                received: packet.received,
            };
            if reports {
                collector.handle(&[datagram], &mut batch);
            } else {
                collector.handle_aggregates(&[datagram], &mut batch);
            }
            if packet.received.saturating_sub(ticked) >= 20_000_000 {
                ticked = packet.received;
                collector.tick(ticked, &mut batch);
                batch.clear();
            }
        }
    }
}

fn figure(points: &[Point], name: &str, r: u32, figure: fn(&Point) -> f64) -> f64 {
    points
        .iter()
        .find(|one| (one.name, one.r) == (name, r))
        .map_or(f64::NAN, figure)
}

fn plot(found: &[Point], title: &str, y: Axis, figure: fn(&Point) -> f64, kinds: &[&str]) -> Plot {
    let series = kinds.iter().map(|name| {
        let points = found
            .iter()
            .filter(|one| one.name == *name)
            .map(|one| (f64::from(one.r), figure(one)));
        line_series(name, points.collect())
    });
    Plot {
        note: String::new(),
        title: title.to_owned(),
        x: linear("R"),
        y,
        series: series.collect(),
    }
}

fn findings(rows: Vec<Vec<Cell>>, found: &[Point], seconds: f64) -> Findings {
    let cpu = [1, 15, 25].map(|r| format!("{:.1} %", figure(found, "Agg", r, |one| one.cpu)));
    let bandwidth = [("Agg", 1), ("Agg", 25), ("Cor", 25)]
        .map(|(name, r)| format!("{:.1} Mb/s", figure(found, name, r, |one| one.bandwidth)));
    let [one, many, correlated] = bandwidth;
    let mut load = plot(
        found,
        "CPU of the server (Fig. 2)",
        log("per cent of a core"),
        |one| one.cpu,
        &["Agg", "Agg_N,F", "Cor", "Cor_N,F"],
    );
    load.series.push(mark_series(
        "the paper, Agg",
        vec![(1.0, 100.0), (15.0, 50.0), (25.0, 30.0)],
    ));
    let mut link = plot(
        found,
        "Bandwidth to the server (Fig. 3)",
        log("Mb/s"),
        |one| one.bandwidth,
        &["Agg", "Agg_N,F", "Cor", "Cor_N,F"],
    );
    link.series
        .push(mark_series("the paper, Agg", vec![(1.0, 20.0), (25.0, 5.0)]));
    link.series.push(mark_series("the paper, Cor", vec![(25.0, 1.0)]));
    let delays = plot(
        found,
        "Delay of an aggregate's first postcard",
        log("us"),
        |one| one.delay,
        &["Agg", "Agg_N", "Agg_N,F"],
    );
    Findings {
        method: "Three nodes each send 10,000 postcards/s about four flows in total. The aggregator of `hopwise run` processes them in simulated time. \
                 Its output is sent over loopback, at the same rate, to a UDP socket and the collector; the CPU time of the collector's thread is \
                 measured (user and system). R = 1 is without an aggregator. The delay is the time from the arrival of an aggregate's first postcard \
                 until the aggregate is sent."
            .into(),
        conditions: vec![
            format!("{seconds} s per point; Ethernet, IPv4 and UDP headers are counted, preamble and gap are not"),
            "the CPU time is measured, and depends on the machine and its load; bandwidth and delay are exact".into(),
            "postcards of 44 bytes of payload (Telemetry Report 2.0), 20 bytes each in an aggregate".into(),
        ],
        comparisons: vec![
            Comparison::new("server CPU at R = 1, 15, 25", "100 %, 50 %, 30 % (a Python script, which loses reports at 100 %)", cpu.join(", ")),
            Comparison::new("bandwidth, R = 1", "more than 20 Mb/s", one),
            Comparison::new("bandwidth, Agg(25)", "5 Mb/s", many),
            Comparison::new("bandwidth, Cor(25)", "1 Mb/s", correlated),
            Comparison::new("added delay, Agg(25)", "830 us", format!("{:.0} us", figure(found, "Agg", 25, |one| one.delay))),
            Comparison::new("added delay, Agg_3,4(25)", "10 ms", format!("{:.1} ms", figure(found, "Agg_N,F", 25, |one| one.delay) / 1e3)),
            Comparison::new("bytes of 15 postcards", "15 x 90 in, 370 out", format!("15 x {} in, {} out", 44 + AROUND - 4, 15 * 20 + 24 + AROUND - 4)),
        ],
        tables: vec![Table {
            name: "stage",
            about: "Server and link by kind and R".into(),
            columns: "kind,r,datagrams_per_s,bandwidth_mbps,delay_first_us,server_cpu_percent,\
                datagrams_lost".into(),
            rows,
            plots: vec![load, link, delays],
        }],
        ..Findings::default()
    }
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
    let equal = delayed
        .iter()
        .filter(|row| (row.number("delay_first_us") - (row.number("r") - 1.0) * 1e6 / RATE).abs() < 0.1)
        .count();
    if !delayed.is_empty() {
        remarks.push(format!(
            "Agg: the delay is that of R - 1 further postcards at 30,000/s in {equal} of {}.",
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
    Observations {
        comparisons: None,
        remarks,
    }
}

/// Postcards per second of all nodes.
const RATE: f64 = 30_000.0;

#[cfg(test)]
mod tests {
    use super::*;

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
}
