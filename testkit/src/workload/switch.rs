//! Workloads for benchmarks of the data plane: one switch with repeated frames, and a simulated leaf-spine fabric.

use std::net::{Ipv4Addr, Ipv6Addr};

use detect::{Algorithm, Detector, Match, Metric};

use dataplane::fabric::{
    self, Address, Fabric, FabricSink, Family, FlowSpec, GroundTruth, Pattern, Reporter, Topology,
};
use dataplane::filter::{Filter, Filters, Units};
use dataplane::flow;
use dataplane::report::Outbox;
use dataplane::switch::{Config, ConfigError, Switch, Visit};
use dataplane::watchlist::{Mode, Watch, Watchlist};

/// The role of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// A transit node of INT-MD 2.1, which pushes its metadata onto the stack.
    Transit,
    /// A transit node of SF-INT, which may replace the packet's record by its own.
    SfTransit,
    /// A sink of INT-MD 2.1 after five nodes, which reports the stack and strips it.
    Sink,
    /// The same sink with a filter that compares every hop, and reports every packet.
    FilteredSink,
}

impl Task {
    /// All tasks and the names of their benchmarks.
    pub const ALL: [(&'static str, Self); 4] = [
        ("switch-transit", Self::Transit),
        ("switch-sf-transit", Self::SfTransit),
        ("switch-sink", Self::Sink),
        ("switch-sink-filter", Self::FilteredSink),
    ];

    fn is_sink(self) -> bool {
        matches!(self, Self::Sink | Self::FilteredSink)
    }
}

/// Number of flows of a workload.
pub const FLOWS: u16 = 256;
/// Bytes after the UDP header.
pub const PAYLOAD: u16 = 64;
/// Number of nodes that a packet passes before the sink.
const BEFORE_SINK: u32 = 5;

/// One switch and its arriving frames.
#[derive(Debug)]
pub struct Workload {
    switch: Switch,
    task: Task,
    frames: Vec<Vec<u8>>,
    /// Buffer for the frame that is being processed.
    frame: Vec<u8>,
    outbox: Outbox,
    visit: Visit,
}

impl Workload {
    /// Creates a switch with this task, and its frames: UDP over IPv4, or over IPv6 with INT in the hop-by-hop header.
    pub fn new(task: Task, v6: bool) -> Result<Self, ConfigError> {
        let mode = if task == Task::SfTransit {
            Mode::Sf
        } else {
            Mode::Md21
        };
        let watch = Watch {
            mode,
            hops: 32,
            ..Watch::default()
        };
        let before = if task.is_sink() { BEFORE_SINK } else { 1 };
        let mut path = (1..=before + 1)
            .map(|node| Switch::new(node, Config::default(), Watchlist::from(watch)))
            .collect::<Result<Vec<_>, _>>()?;
        let visit = Visit {
            ingress_if: 1,
            egress_if: 2,
            ingress_ts: 0x17a3_b2c1_d0e0_f000,
            egress_ts: 0x17a3_b2c1_d0e0_f5dc,
            queue_id: 1,
            queue_occupancy: 64,
            tx_utilization: 120,
            mtu: 1500,
            ..Visit::default()
        };
        let mut outbox = Outbox::default();
        let frames = (0..FLOWS).map(|flow| {
            let mut frame = template(flow, v6);
            for (at, switch) in path[..before as usize].iter_mut().enumerate() {
                switch.forward(
                    &mut frame,
                    &Visit {
                        from_edge: at == 0,
                        ..visit
                    },
                    &mut outbox,
                );
            }
            frame
        });
        let frames = frames.collect();
        let visit = Visit {
            to_edge: task.is_sink(),
            ..visit
        };
        let mut switch = path.remove(before as usize);
        if task == Task::FilteredSink {
            let detector = Detector {
                algorithm: Algorithm::PerHop,
                metric: Metric::QueueOccupancy,
                threshold: 0,
            };
            let filter = Filter {
                flows: Match::default(),
                detector,
            };
            // The filter is valid.
            switch.set_filters(Filters::new(vec![filter], 4096, Units::default()).unwrap_or_default());
        }
        Ok(Self {
            switch,
            task,
            frames,
            frame: Vec::with_capacity(2048),
            outbox,
            visit,
        })
    }

    /// Returns the frames as they arrive, one for each flow.
    pub fn frames(&self) -> &[Vec<u8>] {
        &self.frames
    }

    /// Returns the length of a frame as it arrives, in bytes.
    pub fn frame_bytes(&self) -> usize {
        self.frames.first().map_or(0, Vec::len)
    }

    /// Sends one packet of every flow through the switch, and returns the number of packets.
    pub fn burst(&mut self) -> u64 {
        let Self {
            switch,
            frames,
            frame,
            outbox,
            visit,
            ..
        } = self;
        for bytes in frames.iter() {
            frame.clear();
            frame.extend_from_slice(bytes);
            visit.egress_ts = visit.egress_ts.wrapping_add(100);
            // Values change, so that a filter always reports the packet.
            visit.queue_occupancy ^= 1;
            switch.forward(frame, visit, outbox);
            std::hint::black_box(&frame);
            outbox.clear();
        }
        frames.len() as u64
    }

    /// Tells whether the switch processed this number of packets as the task requires.
    pub fn holds(&self, packets: u64) -> bool {
        let stats = self.switch.stats();
        match self.task {
            Task::Transit => stats.recorded == packets,
            Task::SfTransit => stats.recorded + stats.swapped == packets,
            Task::Sink => stats.reported == packets,
            Task::FilteredSink => {
                let decisions: u64 = self
                    .switch
                    .filters()
                    .entries()
                    .map(|(_, counts)| counts.decisions.iter().sum::<u64>())
                    .sum();
                stats.reported == packets && decisions == packets
            }
        }
    }
}

/// Number of switches of [`simulate`].
pub const SIMULATED_SWITCHES: u32 = 20;

/// Totals of one run of [`simulate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Simulated {
    /// Packets delivered to their host, each counted once regardless of its hops.
    pub packets: u64,
    /// Hops of these packets, one per switch.
    pub hops: u64,
    /// Reports that the sinks sent.
    pub reports: u64,
    /// Bytes of the reports.
    pub bytes: u64,
}

impl FabricSink for Simulated {
    fn report(&mut self, _t: u64, _from: &Reporter, payload: &[u8]) {
        self.reports += 1;
        self.bytes += payload.len() as u64;
    }

    fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
        if let GroundTruth::Delivered(trace) = truth {
            self.packets += 1;
            self.hops += trace.hops.len() as u64;
        }
    }
}

/// Simulates at least this many packets of 400 flows over a leaf-spine fabric of 20 switches. Each packet passes three switches
/// with INT-MD 2.1 and is reported by a Report 2.0. Keeping the ground truth is part of the work.
///
/// # Errors
/// None in practice: topology and configuration are valid.
pub fn simulate(packets: u64) -> Result<Simulated, Box<dyn std::error::Error>> {
    const FLOWS: u16 = 400;
    const HOSTS: u32 = 64;
    let topology = Topology::leaf_spine(16, SIMULATED_SWITCHES - 16, 4, fabric::Wire::default())?;
    let watchlist = Watch::default().into();
    let mut fabric = Fabric::new(
        topology,
        fabric::Config {
            watchlist,
            ..fabric::Config::default()
        },
        1,
    )?;
    for flow in 0..FLOWS {
        // Four hosts per leaf, so the destination is below another leaf, and the path leads through a spine.
        let [from, to] = [u32::from(flow), u32::from(flow) + 4].map(|host| 10_001 + host % HOSTS);
        let spec = FlowSpec {
            payload: 300,
            pattern: Pattern::poisson(1_000),
            ..FlowSpec::new(from, to, flow, 80)
        };
        fabric.add_flow(&spec)?;
    }
    let mut done = Simulated::default();
    for step in 1.. {
        if done.packets >= packets {
            break;
        }
        fabric.run_until(step * 10_000_000, &mut done);
    }
    Ok(done)
}

/// Returns a frame without INT of the flow with this number.
pub fn template(flow: u16, v6: bool) -> Vec<u8> {
    let [from, to] = [1, 2].map(|n| Address {
        mac: [2, 0, 0, 0, 0, n],
        v4: Ipv4Addr::new(10, 0, 0, n),
        v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n)),
    });
    let family = if v6 { Family::V6 } else { Family::V4 };
    let spec = FlowSpec {
        family,
        payload: PAYLOAD,
        ..FlowSpec::new(1, 2, 20_000 + flow, 9_000)
    };
    flow::template(&spec, &from, &to).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulation_reports_every_packet() {
        let done = simulate(2_000).unwrap();
        assert!(done.packets >= 2_000, "{done:?}");
        assert_eq!(done.hops, done.packets * 3);
        // Some are reported and have not arrived; of some the report is in flight.
        assert!(done.reports.abs_diff(done.packets) < 100, "{done:?}");
    }

    #[test]
    fn every_task_does_what_it_is_for() {
        for (name, task) in Task::ALL {
            for v6 in [false, true] {
                let mut workload = Workload::new(task, v6).unwrap();
                let packets: u64 = (0..4).map(|_| workload.burst()).sum();
                assert!(workload.holds(packets), "{name}: {:?}", workload.switch.stats());
            }
        }
    }
}
