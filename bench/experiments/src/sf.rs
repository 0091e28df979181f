//! Experiments `sf-overhead` (frame sizes and goodput of SF-INT and INT-MD; SF-INT, Fig. 7) and `sf-yield` (share of packets
//! whose path becomes complete), on a line of simulated switches. `sf_delay` and `sf_rate` use the same traffic ([`Run`]).
//!
//! With SF-INT (stateful INT), a packet carries the record of one node to the sink, which adds its own. The N - 1 records of
//! one packet ID are a set: the first to arrive has the state Medium, the others High. A complete set gives the path of N
//! nodes.

use std::collections::{BTreeMap, btree_map::Entry};

use collector::{Collector, Datagram};
use dataplane::{
    Config, Fabric, FabricSink, FlowSpec, Pattern, Reporter, Topology, Watch,
    fabric::{Family, Frames, Impairments, Wire},
    sf,
    watchlist::Mode,
};
use wire::int::sf::State;

use super::{
    event_detection::failed,
    page::{Comparison, Findings, Table, fixed, linear, log, row},
    rows::{Observations, Results, Row, Rows, extremes, judgement, listed},
    settings::{Parameter, Settings},
};
use collect_role::datagram::octets;
use terminal::{CliError, units};

pub(super) const PATHS: Parameter =
    Parameter::new("nodes", &[2, 3, 4, 5, 6, 7, 8], 2..=15).help("nodes of the path");
pub(super) const YIELD: &[Parameter] = &[
    Parameter::seed(),
    Parameter::scaled("packets", [&[60_000], &[6_000], &[600]], 64..=10_000_000)
        .help("packets of each point"),
    PATHS,
];
pub(super) const OVERHEAD: &[Parameter] = &[
    Parameter::new("packets", &[100], 1..=1_000_000).help("packets of each point"),
    PATHS,
    Parameter::new("items", &[2, 3, 4, 5], 1..=5).help("instructions, in the order of the paper"),
];
/// Remaining Hop Count at the source.
pub(super) const HOPS: u8 = 16;
/// Instructions of the paper, in its order: node ID, hop latency, ingress and egress timestamp, level 2 interfaces.
pub(super) const INSTRUCTIONS: [u16; 5] = [0x8000, 0x2000, 0x0800, 0x0400, 0x0200];
/// Path lengths of the runs with loss and reordering.
const IMPAIRED: [u32; 3] = [3, 5, 8];
/// Payload bytes of the packets: a packet of about 64 bytes, and one of nearly full size.
const PAYLOADS: [u16; 2] = [16, 1_400];

/// Traffic through a line of switches, from one host to another.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) nodes: u32,
    pub(super) mode: Mode,
    pub(super) bitmap: u16,
    pub(super) payload: u16,
    pub(super) flows: u16,
    /// Gap between packets of a flow, ns.
    pub(super) gap: u64,
    /// Distribution of the gaps if packets are not evenly spaced; `gap` is then the mean.
    pub(super) pattern: Option<Pattern>,
    pub(super) packets: u64,
    pub(super) seed: u64,
    pub(super) registers: sf::Config,
    /// Frames lost on each link, per million.
    pub(super) loss: u32,
    /// Frames reordered on each link, per million.
    pub(super) reordering: u32,
}

impl Run {
    pub(super) fn new(nodes: u32, mode: Mode) -> Self {
        Self {
            nodes,
            mode,
            bitmap: 0xac00,
            payload: 16,
            flows: 1,
            gap: 1_000,
            pattern: None,
            packets: 100,
            seed: 1,
            registers: sf::Config::default(),
            loss: 0,
            reordering: 0,
        }
    }

    pub(super) fn play(&self, observer: &mut impl FabricSink) -> Result<(), CliError> {
        let wire = Wire {
            rate: 100_000_000_000,
            delay: 1_000,
            ..Wire::default()
        };
        let topology = Topology::line(self.nodes, wire).map_err(failed)?;
        let watch = Watch {
            mode: self.mode,
            bitmap: self.bitmap,
            hops: HOPS,
            ..Watch::default()
        };
        let mut config = Config {
            watchlist: watch.into(),
            frames: Frames::Sent,
            ..Config::default()
        };
        config.switch.sf = self.registers;
        config.links = Impairments {
            loss: self.loss,
            reordering: self.reordering,
            extra: self.gap * 3 / 2,
        };
        let mut fabric = Fabric::new(topology, config, self.seed).map_err(failed)?;
        let from = 10_001;
        let to = 10_002;
        for flow in 0..self.flows {
            // Flows start one after the other, so that the packets of all flows are evenly spaced.
            let start = 1_000 + u64::from(flow) * self.gap / u64::from(self.flows);
            let spec = FlowSpec {
                family: Family::V6,
                payload: self.payload,
                pattern: self.pattern.unwrap_or(Pattern::Constant { gap: self.gap }),
                start,
                stop: start + self.gap * self.packets,
                ..FlowSpec::new(from, to, port(flow), 80)
            };
            fabric.add_flow(&spec).map_err(failed)?;
        }
        fabric.run_until(self.gap * (self.packets + 1) + 10_000_000, observer);
        Ok(())
    }
}

/// Returns the source port of a flow. Consecutive ports would not collide at random in the registers, because a CRC is linear.
fn port(flow: u16) -> u16 {
    1_024 + (u32::from(flow).wrapping_mul(0x9e37_79b1) >> 17) as u16
}

/// Records frame sizes, and either the delays of complete sets or, with a collector, its joined paths.
pub(super) struct Observer {
    largest: usize,
    smallest: usize,
    decoder: wire::Decoder,
    /// Sets by packet ID: time of the first report (ns), and number of reports.
    sets: BTreeMap<u16, (u64, u32)>,
    /// Time from the first to the last report of each complete set, ns.
    pub(super) delays: Vec<u64>,
    /// Reports in a complete set, N - 1.
    wanted: u32,
    collector: Option<Collector>,
}

impl Observer {
    pub(super) fn new(nodes: u32) -> Self {
        Self {
            largest: 0,
            smallest: usize::MAX,
            decoder: wire::Decoder::new(wire::Profile::default()),
            sets: BTreeMap::new(),
            delays: Vec::new(),
            wanted: nodes - 1,
            collector: None,
        }
    }

    fn with_collector(nodes: u32) -> Self {
        // The collector cannot learn the initial hop count from paths of two nodes.
        let sf = collector::config::JoinConfig {
            hop_limit: Some(HOPS),
            ..collector::config::JoinConfig::default()
        };
        let config = collector::Config {
            max_flows: 4_096,
            sf,
            ..collector::Config::default()
        };
        Self {
            collector: Some(Collector::new(config)),
            ..Self::new(nodes)
        }
    }
}

impl FabricSink for Observer {
    fn frame(&mut self, _t: u64, node: u32, _interface: u16, frame: &[u8]) {
        // Hosts (IDs from 10,000) send frames without INT; the largest frames of switches carry it.
        if node < 10_000 {
            self.largest = self.largest.max(frame.len());
        } else {
            self.smallest = self.smallest.min(frame.len());
        }
    }

    fn report(&mut self, t: u64, from: &Reporter, payload: &[u8]) {
        if let Some(collector) = &mut self.collector {
            let datagram = Datagram {
                payload,
                source: octets(from.address),
                src_port: from.port,
                listener: 0,
                received: t,
            };
            collector.handle(&[datagram], &mut NullOutput);
            collector.tick(t, &mut NullOutput);
            return;
        }
        let mut report = wire::Report::EMPTY;
        let mut reports = self.decoder.reports(payload);
        while let Some(read) = reports.read(&mut report) {
            let (Ok(()), Some(sf)) = (read, report.int.and_then(|int| int.sf)) else {
                continue;
            };
            let set = match sf.state {
                State::Medium => self.sets.entry(sf.packet_id).insert_entry((t, 1)).into_mut(),
                State::High => match self.sets.get_mut(&sf.packet_id) {
                    Some(set) => {
                        set.1 += 1;
                        set
                    }
                    None => continue,
                },
                State::Low => continue,
            };
            if set.1 == self.wanted {
                self.delays.push(t - set.0);
            }
        }
    }
}

/// Returns the path lengths of the setting `nodes`.
pub(super) fn nodes_of(settings: &Settings) -> impl Iterator<Item = u32> {
    settings.list("nodes").iter().map(|nodes| *nodes as u32)
}

struct NullOutput;

impl collector::Output for NullOutput {}

/// Measures the size of packets, and goodput (Fig. 7).
pub(super) fn overhead(settings: &Settings) -> Result<Findings, CliError> {
    let columns = "mode,instructions,nodes,frame_bytes_16,overhead_bytes_16,goodput_percent_16,\
        frame_bytes_1400,overhead_bytes_1400,goodput_percent_1400";
    let mut table = Table::new("size", "Frames by nodes and instructions", columns);
    for &count in settings.list("items") {
        let bitmap = INSTRUCTIONS[..count as usize]
            .iter()
            .fold(0, |all, bit| all | bit);
        for (mode, name) in [(Mode::Md21, "INT"), (Mode::Sf, "SF-INT")] {
            for nodes in nodes_of(settings) {
                let mut row = row![name, count, nodes];
                for payload in PAYLOADS {
                    let mut observer = Observer::new(nodes);
                    Run {
                        bitmap,
                        payload,
                        packets: settings.value("packets"),
                        ..Run::new(nodes, mode)
                    }
                    .play(&mut observer)?;
                    let Observer {
                        largest, smallest, ..
                    } = observer;
                    // Preamble (8), FCS (4) and inter-frame gap (12) of Ethernet.
                    let goodput = 100.0 * f64::from(payload) / (largest as f64 + 24.0);
                    row.extend(row![largest, largest - smallest, fixed(goodput, 1)]);
                }
                table.push(row);
            }
        }
    }
    overhead_plot(
        &mut table,
        "Longest frame, payload of 16 bytes (Fig. 7)",
        "bytes",
        "frame_bytes_16",
    );
    let link = "per cent of the link";
    overhead_plot(
        &mut table,
        "Goodput, payload of 1,400 bytes",
        link,
        "goodput_percent_1400",
    );
    Ok(Findings::new(
        "A line of executable switches carries IPv6/UDP packets. The size is that of the longest frame on any link, from its Ethernet header \
         on. The overhead is the difference from the length of the frame that the host sent. Goodput is the payload as a share of the link \
         time of the frame (with preamble, gap and checksum).",
        [
            "instructions, in this order: node id, hop latency, ingress and egress timestamp (64 bits each), level-2 interfaces",
            "INT 2.1 with its shim behind the UDP header; SF-INT in an IPv6 hop-by-hop option; payloads of 16 and 1,400 bytes",
            "simulated: the same on every machine",
        ]
        .map(str::to_owned),
        [table],
    ))
}

/// Adds a plot of a column, for the smallest and the largest number of instructions.
fn overhead_plot(table: &mut Table, title: &str, label: &str, column: &str) {
    let mut series = Vec::new();
    for mode in ["INT", "SF-INT"] {
        for count in ["2", "5"] {
            let wanted = [("mode", mode), ("instructions", count)];
            series.push(table.line(&format!("{mode}, {count} items"), &wanted, "nodes", column));
        }
    }
    series.retain(|line| !line.points.is_empty());
    table.plot(title, "", [linear("nodes on the path"), linear(label)], series);
}

/// Returns a run without loss or reordering, with the seed and the number of packets of the settings.
fn yield_run(settings: &Settings, nodes: u32) -> Run {
    Run {
        packets: settings.value("packets"),
        seed: settings.value("seed"),
        gap: 10_000,
        ..Run::new(nodes, Mode::Sf)
    }
}

/// Measures the share of packets whose path becomes complete, by length, loss, reordering, flows and registers.
pub(super) fn yields(settings: &Settings) -> Result<Findings, CliError> {
    let mut lossless = BTreeMap::new();
    for nodes in nodes_of(settings).chain(IMPAIRED) {
        if let Entry::Vacant(entry) = lossless.entry(nodes) {
            entry.insert(complete_paths(&yield_run(settings, nodes))?);
        }
    }
    let loss = impaired(
        &lossless,
        "loss",
        "lost",
        &[0, 100, 1_000, 10_000, 50_000],
        |nodes, loss| Run {
            loss,
            ..yield_run(settings, nodes)
        },
    )?;
    let steps = [0, 1_000, 10_000, 50_000];
    let reordering = impaired(
        &lossless,
        "reordering",
        "reordered",
        &steps,
        |nodes, reordering| Run {
            reordering,
            ..yield_run(settings, nodes)
        },
    )?;
    Ok(Findings::new(
        "A line of N executable switches with SF-INT on every packet of a flow; the collector of hopwise joins the reports. A path is complete \
         when the collector has every node's record from source to sink, all of one packet. No other path counts as complete (a test compares \
         every complete path with the ground truth).",
        [
            format!("the collector is configured with the sources' initial hop count of {HOPS}"),
            "simulated: the same on every machine".into(),
        ],
        [
            nodes_table(settings, &lossless),
            loss,
            reordering,
            shared_registers(settings)?,
        ],
    ))
}

/// Returns the number of paths that the collector completes in a run.
fn complete_paths(run: &Run) -> Result<u64, CliError> {
    let mut observer = Observer::with_collector(run.nodes);
    run.play(&mut observer)?;
    Ok(observer
        .collector
        .map_or(0, |collector| collector.stats().sf.complete.sets))
}

fn nodes_table(settings: &Settings, lossless: &BTreeMap<u32, u64>) -> Table {
    let columns = "nodes,packets,complete_paths,complete_percent,period_percent,best_percent";
    let mut table = Table::new("nodes", "Complete paths by length", columns);
    let packets = settings.value("packets");
    for nodes in nodes_of(settings) {
        let complete = lossless[&nodes];
        let shares = [
            100.0 * (complete as f64 / packets as f64),
            100.0 / f64::from((nodes - 1).next_power_of_two()),
            100.0 / f64::from(nodes - 1),
        ];
        table.push(row![
            nodes,
            packets,
            complete,
            shares.map(|share| fixed(share, 2))
        ]);
    }
    let lines = [
        ("measured", "complete_percent"),
        ("the rules' period", "period_percent"),
        ("any such scheme, at best", "best_percent"),
    ]
    .map(|(name, column)| table.line(name, &[], "nodes", column));
    let axes = [linear("nodes on the path"), linear("per cent of packets")];
    table.plot("Packets whose path becomes complete", "", axes, lines.into());
    table
}

/// Measures complete paths by the share of frames that each link loses or reorders, compared with a run without.
fn impaired(
    lossless: &BTreeMap<u32, u64>,
    name: &'static str,
    verb: &str,
    steps: &[u32],
    run: impl Fn(u32, u32) -> Run,
) -> Result<Table, CliError> {
    let about = format!("Complete paths by {name} on each link");
    let mut table = Table::new(
        name,
        about.as_str(),
        "nodes,fault_percent,complete_paths,baseline_percent",
    );
    for nodes in IMPAIRED {
        for &step in steps {
            let complete = complete_paths(&run(nodes, step))?;
            let share = 100.0 * complete as f64 / lossless[&nodes].max(1) as f64;
            table.push(row![
                nodes,
                fixed(f64::from(step) / 1e4, 2),
                complete,
                fixed(share, 1)
            ]);
        }
    }
    let lines = table.lines("nodes", "{} nodes", "fault_percent", "baseline_percent");
    let x = linear(&format!("frames {verb} on each link (per cent)"));
    table.plot(about, "", [x, linear("per cent of the number without")], lines);
    Ok(table)
}

/// Measures complete paths of several flows that share the registers of the switches.
fn shared_registers(settings: &Settings) -> Result<Table, CliError> {
    let columns = "registers,flows,complete_paths,complete_percent";
    let mut table = Table::new("flows", "Complete paths by flows and registers", columns);
    let single = sf::Config {
        single: true,
        ..sf::Config::default()
    };
    let [sixteen, many] = [16, 1_024].map(|registers| sf::Config {
        registers,
        ..sf::Config::default()
    });
    for (name, registers) in [
        ("one register", single),
        ("16 registers", sixteen),
        ("1,024 registers", many),
    ] {
        for flows in [1, 2, 4, 8, 16, 32, 64] {
            let each = settings.value("packets") / u64::from(flows);
            let run = Run {
                flows,
                registers,
                seed: settings.value("seed"),
                packets: each,
                gap: 10_000 * u64::from(flows),
                ..Run::new(4, Mode::Sf)
            };
            let complete = complete_paths(&run)?;
            let share = 100.0 * complete as f64 / (each * u64::from(flows)) as f64;
            table.push(row![name, flows, complete, fixed(share, 2)]);
        }
    }
    let lines = table.lines("registers", "{}", "flows", "complete_percent");
    let axes = [log("flows"), linear("per cent of packets")];
    table.plot(
        "Complete paths by flows that share registers, 4 nodes",
        "",
        axes,
        lines,
    );
    Ok(table)
}

/// Computes comparisons and remarks of `sf-overhead` from the rows.
pub(super) fn observe_overhead(results: &Results) -> Observations {
    let rows = results.table("size");
    let most = rows
        .values("instructions")
        .last()
        .copied()
        .unwrap_or("5")
        .to_owned();
    let comparisons = [
        ("SF-INT", "constant (Fig. 7)"),
        ("INT", "grows with each node (Fig. 7)"),
    ]
    .map(|(mode, paper)| {
        let name = format!("{mode}, {most} instructions: longest frame by nodes");
        Comparison::new(name, paper, sizes(&rows, mode, &most))
    });
    let mut remarks = Vec::new();
    for items in rows.values("instructions") {
        let nodes = rows.values("nodes").first().copied().unwrap_or_default();
        let [sf, int] = ["SF-INT", "INT"]
            .map(|mode| rows.find(&[("mode", mode), ("instructions", items), ("nodes", nodes)]));
        remarks.extend(sf.zip(int).map(|(sf, int)| {
            let sizes =
                sf.fill("{nodes:node}, {instructions:instruction}: {frame_bytes_16} bytes with SF-INT, ");
            format!("{sizes}{}.", int.fill("{frame_bytes_16} bytes with INT"))
        }));
    }
    remarks.push(judgement(
        "INT is put behind the UDP header here and SF-INT into an IPv6 option, while the paper (3.1.3) has both in the option. The hop-by-hop header and its \
         padding are the difference at two nodes. The paper's Fig. 7 has no numbers in its text, so only the shape can be compared.",
    ));
    Observations::new(comparisons, remarks)
}

/// Describes the longest frames of the shortest and the longest path, and the trend between them.
fn sizes(rows: &Rows, mode: &str, items: &str) -> Option<String> {
    let rows = rows.with(&[("mode", mode), ("instructions", items)]);
    let (first, last) = rows.first().zip(rows.last())?;
    let grows = rows
        .windows(2)
        .all(|pair| pair[1].number("frame_bytes_16") > pair[0].number("frame_bytes_16"));
    let equal = rows
        .iter()
        .all(|row| row.text("frame_bytes_16") == first.text("frame_bytes_16"));
    let shape = match (grows, equal) {
        (true, false) => "grows with each node",
        (_, true) => "constant",
        _ => "neither constant nor always growing",
    };
    let template = "{frame_bytes_16} bytes with {nodes:node}";
    Some(format!(
        "{}, {}: {shape}",
        first.fill(template),
        last.fill(template)
    ))
}

/// Computes comparisons and remarks of `sf-yield` from the rows.
pub(super) fn observe_yields(results: &Results) -> Observations {
    let nodes = results.table("nodes");
    let all = nodes.iter().count();
    let periodic = nodes.iter().filter(|row| near(row, "period_percent")).count();
    let hopwise = (all > 0).then(|| {
        format!(
            "N - 1, of one packet in 2^ceil(log2(N - 1)): so in {periodic} of {}",
            units::counted(all as u64, "row")
        )
    });
    let comparisons = vec![Comparison::new(
        "reports for a complete path of N nodes",
        "N - 1",
        hopwise,
    )];
    let mut remarks = Vec::new();
    remarks.extend(listed(
        "Of the packets, fewer have a complete path than the best possible 1/(N - 1): {}.",
        nodes
            .iter()
            .filter(|row| {
                row.number("complete_percent") < row.number("best_percent") && !near(row, "best_percent")
            })
            .map(|row| row.fill("{nodes:node} {complete_percent} % of {best_percent} %")),
    ));
    for table in ["loss", "reordering"] {
        let rows = results.table(table);
        let most = rows.values("fault_percent").last().copied().unwrap_or_default();
        let at_most = rows.with(&[("fault_percent", most)]);
        remarks.extend(listed(
            &format!(
                "With {table} of {most} % on each link, complete paths as a share of those without: {{}}."
            ),
            at_most
                .iter()
                .map(|row| row.fill("{nodes:node} {baseline_percent} %")),
        ));
    }
    remarks.extend(registers(&results.table("flows")));
    remarks.extend(
        [
            "the paper says that N - 1 reports are needed; it does not say how many packets never have them.",
            "the flows take strict turns here, and each row is one run. In random order, sets of a shared register can be complete: \
             [wire formats](../reference/wire-formats.md), section 3.5, counts 854 clean sets of 5,000.",
        ]
        .map(judgement),
    );
    Observations::new(comparisons, remarks)
}

/// Returns whether the share of complete paths equals another column, up to the incomplete set at the end of a run.
fn near(row: &Row<'_>, column: &str) -> bool {
    (row.number("complete_percent") - row.number(column)).abs() < 0.01
}

/// Describes the yield of several flows that take turns, by the registers that they share.
fn registers(flows: &Rows) -> Vec<String> {
    let mut remarks = Vec::new();
    for registers in flows.values("registers") {
        let mut several = flows.with(&[("registers", registers)]);
        several.retain(|row| row.number("flows") > 1.0);
        let Some((least, most)) = extremes(&several, "complete_percent") else {
            continue;
        };
        let yields = if least.text("complete_percent") == most.text("complete_percent") {
            least.fill(&format!(
                "{{complete_percent}} % in each of {}",
                units::counted(several.len() as u64, "row")
            ))
        } else {
            let template = "{complete_percent} % with {flows:flow}";
            format!("{} to {}", least.fill(template), most.fill(template))
        };
        remarks.push(format!(
            "With {registers}, several flows in turn and 4 nodes, the packets with a complete path are {yields}."
        ));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_yield_of_paths_and_of_shared_registers_is_that_of_the_rows() {
        let observed = observe_yields(&Results::parse([
            (
                "nodes",
                "nodes,complete_percent,period_percent,best_percent\n3,50.00,50.00,50.00\n4,25.00,25.00,33.33\n5,20.00,25.00,20.00\n",
            ),
            (
                "loss",
                "nodes,fault_percent,baseline_percent\n3,0.00,100.0\n3,5.00,81.2\n",
            ),
            (
                "flows",
                "registers,flows,complete_percent\none register,1,25.00\none register,2,17.00\none register,4,12.00\n16 registers,2,3.00\n16 registers,4,3.00\n",
            ),
        ]));
        assert_eq!(
            observed.remarks[..4],
            [
                "Of the packets, fewer have a complete path than the best possible 1/(N - 1): 4 nodes 25.00 % of 33.33 %.",
                "With loss of 5.00 % on each link, complete paths as a share of those without: 3 nodes 81.2 %.",
                "With one register, several flows in turn and 4 nodes, the packets with a complete path are 12.00 % with 4 flows to 17.00 % with 2 flows.",
                "With 16 registers, several flows in turn and 4 nodes, the packets with a complete path are 3.00 % in each of 2 rows."
            ]
        );
        assert!(
            observed.comparisons.unwrap()[0]
                .hopwise
                .ends_with("so in 2 of 3 rows")
        );
    }

    #[test]
    fn the_shape_of_the_sizes_is_that_of_the_rows() {
        const HEAD: &str = "mode,instructions,nodes,frame_bytes_16\n";
        fn hopwise(rows: &str) -> String {
            let observed = observe_overhead(&Results::parse([("size", &*format!("{HEAD}{rows}"))]));
            observed.comparisons.unwrap()[0].hopwise.clone()
        }
        assert_eq!(
            hopwise("SF-INT,5,2,134\nSF-INT,5,3,134\n"),
            "134 bytes with 2 nodes, 134 bytes with 3 nodes: constant"
        );
        assert!(hopwise("SF-INT,5,2,134\nSF-INT,5,3,135\n").ends_with("grows with each node"));
        let shapeless = hopwise("SF-INT,5,2,134\nSF-INT,5,3,133\nSF-INT,5,4,135\n");
        assert!(
            shapeless.ends_with("neither constant nor always growing"),
            "{shapeless}"
        );
    }
}
