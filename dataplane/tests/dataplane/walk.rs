//! One packet's walk through three switches in each mode, byte by byte, with the ground truth and the reports: `walk.txt`. It is
//! a reference example for other implementations of the switch.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

use std::fmt::Write as _;

use dataplane::fabric::{Family, FlowSpec, Frames, Transport, Wire};
use dataplane::report::{Format, Version};
use dataplane::switch::{self, Mark};
use dataplane::watchlist::Mode;
use dataplane::{Action, Config, Fabric, FabricSink, GroundTruth, Pattern, Reporter, Topology, Watch};

#[derive(Default)]
struct Recorder {
    text: String,
}

impl Recorder {
    fn bytes(&mut self, bytes: &[u8]) {
        for line in bytes.chunks(32) {
            self.text.push_str("   ");
            for word in line.chunks(4) {
                self.text.push(' ');
                word.iter()
                    .for_each(|byte| write!(self.text, "{byte:02x}").unwrap());
            }
            self.text.push('\n');
        }
    }
}

impl FabricSink for Recorder {
    fn report(&mut self, t: u64, from: &Reporter, payload: &[u8]) {
        writeln!(self.text, "{t:>6} report of {} from {}", from.node, from.address).unwrap();
        self.bytes(payload);
    }

    fn frame(&mut self, t: u64, node: u32, interface: u16, frame: &[u8]) {
        writeln!(self.text, "{t:>6} frame from {node} by interface {interface}").unwrap();
        self.bytes(frame);
    }

    fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
        if let GroundTruth::Delivered(trace) = truth {
            writeln!(self.text, "{:>6} delivered: {}", trace.ended, trace.flow).unwrap();
            for hop in trace.hops {
                writeln!(
                    self.text,
                    "       at {} {}->{} latency {} queue {} ts {}..{} utilization {} recorded {}",
                    hop.node,
                    hop.ingress_if,
                    hop.egress_if,
                    hop.hop_latency(),
                    hop.queue_occupancy,
                    hop.ingress_ts(),
                    hop.egress_ts(),
                    hop.tx_utilization,
                    hop.recorded
                )
                .unwrap();
            }
        }
    }
}

struct Case {
    name: &'static str,
    mode: Mode,
    bitmap: u16,
    family: Family,
    transport: Transport,
    port: Option<u16>,
    format: Format,
}

fn walk(case: &Case) -> String {
    let mut topology = Topology::line(
        3,
        Wire {
            rate: 1_000_000_000,
            delay: 1_000,
            depth: 10_000,
        },
    )
    .unwrap();
    assert!(topology.set_clock_offset(102, 1_000_000));
    let switch = switch::Config {
        mark: Mark {
            port: case.port,
            ..Mark::default()
        },
        format: case.format,
        ..switch::Config::default()
    };
    let watch = Watch {
        mode: case.mode,
        bitmap: case.bitmap,
        hops: 8,
        ..Watch::default()
    };
    let config = Config {
        switch,
        watchlist: watch.into(),
        frames: Frames::Sent,
        ..Config::default()
    };
    let mut fabric = Fabric::new(topology, config, 1).unwrap();
    let spec = FlowSpec {
        family: case.family,
        transport: case.transport,
        dscp: 10,
        payload: 6,
        pattern: Pattern::Idle,
        ..FlowSpec::new(10_001, 10_002, 40_000, 9_000)
    };
    let flow = fabric.add_flow(&spec).unwrap();
    fabric
        .schedule(
            0,
            Action::Burst {
                flow,
                packets: 1,
                gap: 0,
            },
        )
        .unwrap();
    let mut scribe = Recorder {
        text: format!("== {}\n", case.name),
    };
    fabric.run_until(2_000_000, &mut scribe);
    scribe.text
}

#[test]
fn a_packets_walk_is_as_written_down() {
    let (v20, v10) = (
        Format::default(),
        Format {
            version: Version::V10,
            ..Format::default()
        },
    );
    let udp = |name, mode, bitmap| Case {
        name,
        mode,
        bitmap,
        family: Family::V4,
        transport: Transport::Udp,
        port: None,
        format: v20,
    };
    let cases = [
        udp(
            "INT-MD 2.1, IPv4, UDP, DSCP, Report 2.0, own metadata in the report",
            Mode::Md21,
            0xb800,
        ),
        Case {
            family: Family::V6,
            port: Some(33_122),
            ..udp(
                "INT-MD 2.1, IPv6, UDP, port mark (NPT 1), level-2 interfaces unavailable",
                Mode::Md21,
                0xc200,
            )
        },
        Case {
            transport: Transport::Tcp,
            port: Some(33_122),
            ..udp("INT-MD 2.1, IPv4, TCP, port mark (NPT 2)", Mode::Md21, 0x9000)
        },
        Case {
            transport: Transport::Tcp,
            format: Format {
                metadata_on_stack: true,
                ethernet: true,
                ..v10
            },
            ..udp(
                "INT 1.0, IPv4, TCP, DSCP, Report 1.0, own metadata on the stack",
                Mode::Md10,
                0xec00,
            )
        },
        udp("INT-MX 2.1, IPv4, UDP, DSCP", Mode::Mx21, 0xa000),
        Case {
            format: Format { group: 4, ..v20 },
            ..udp("postcards", Mode::Postcard, 0x1c00)
        },
    ];
    let text: String = cases.iter().map(walk).collect();
    if text != include_str!("walk.txt") {
        let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/walk.txt");
        std::fs::write(path, &text).unwrap();
        panic!("the walk is not that of tests/walk.txt; the new one is in {path}");
    }
}
