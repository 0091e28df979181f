//! Work for one switch, for benches: frames as they come to it, again and again.

use std::net::{Ipv4Addr, Ipv6Addr};

use detect::Match;

use crate::fabric::{Address, Family, FlowSpec};
use crate::packet;
use crate::report::Outbox;
use crate::switch::{Config, ConfigError, Switch, Visit};
use crate::watchlist::{Mode, Watch, Watchlist};

/// What the switch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// A transit node of INT-MD 2.1: pushes its record.
    Transit,
    /// A transit node of SF-INT: trades records.
    SfTransit,
    /// A sink of INT-MD 2.1 behind five nodes: reports and strips.
    Sink,
}

impl Task {
    /// All tasks and the names of their benches.
    pub const ALL: [(&'static str, Self); 3] = [
        ("switch-transit", Self::Transit),
        ("switch-sf-transit", Self::SfTransit),
        ("switch-sink", Self::Sink),
    ];
}

/// How many flows there are.
pub const FLOWS: u16 = 256;
/// Bytes behind the UDP header.
pub const PAYLOAD: u16 = 64;
/// Nodes that a packet has come by before the sink.
const BEFORE_SINK: u32 = 5;

/// One switch and the frames that come to it.
#[derive(Debug)]
pub struct Workload {
    switch: Switch,
    task: Task,
    frames: Vec<Vec<u8>>,
    frame: Vec<u8>,
    outbox: Outbox,
    visit: Visit,
}

impl Workload {
    /// A switch with this task, and packets of UDP over IPv4 (over IPv6 in the hop-by-hop header when `v6`).
    ///
    /// # Errors
    /// Never: the configuration is good.
    pub fn new(task: Task, v6: bool) -> Result<Self, ConfigError> {
        let mode = if task == Task::SfTransit { Mode::Sf } else { Mode::Md21 };
        let watch = Watch { mode, hops: 32, ..Watch::new(Match::default()) };
        let switch = |node| Switch::new(node, Config::default(), Watchlist::from(watch));
        let before = if task == Task::Sink { BEFORE_SINK } else { 1 };
        let mut way = (1..=before).map(switch).collect::<Result<Vec<_>, _>>()?;
        let visit = Visit {
            ingress_if: 1,
            egress_if: 2,
            ingress_ts: 0x17a3_b2c1_d0e0_f000,
            egress_ts: 0x17a3_b2c1_d0e0_f5dc,
            queue_id: 1,
            queue_occupancy: 64,
            tx_utilization: 120,
            mtu: 1500,
            from_edge: false,
            to_edge: false,
        };
        let mut outbox = Outbox::default();
        let frames = (0..FLOWS).map(|flow| {
            let mut frame = template(flow, v6);
            for (at, switch) in way.iter_mut().enumerate() {
                switch.forward(&mut frame, &Visit { from_edge: at == 0, ..visit }, &mut outbox);
            }
            frame
        });
        let frames = frames.collect();
        let visit = Visit { to_edge: task == Task::Sink, ..visit };
        let switch = switch(before + 1)?;
        Ok(Self { switch, task, frames, frame: Vec::with_capacity(2048), outbox, visit })
    }

    #[cfg(test)]
    pub(crate) fn frames(&self) -> &[Vec<u8>] {
        &self.frames
    }

    /// Bytes of a frame as it comes in.
    pub fn frame_bytes(&self) -> usize {
        self.frames.first().map_or(0, Vec::len)
    }

    /// Sends one packet of every flow through the switch, and tells how many that were.
    pub fn burst(&mut self) -> u64 {
        let Self { switch, frames, frame, outbox, visit, .. } = self;
        for bytes in frames.iter() {
            frame.clear();
            frame.extend_from_slice(bytes);
            visit.egress_ts = visit.egress_ts.wrapping_add(100);
            switch.forward(frame, visit, outbox);
            std::hint::black_box(&frame);
            outbox.clear();
        }
        frames.len() as u64
    }

    /// Has every packet been treated as its task wants it?
    pub fn holds(&self, packets: u64) -> bool {
        let stats = self.switch.stats();
        match self.task {
            Task::Transit => stats.recorded == packets,
            Task::SfTransit => stats.recorded + stats.traded == packets,
            Task::Sink => stats.reported == packets,
        }
    }
}

pub(crate) fn template(flow: u16, v6: bool) -> Vec<u8> {
    let address = |n: u8| Address {
        mac: [2, 0, 0, 0, 0, n],
        v4: Ipv4Addr::new(10, 0, 0, n),
        v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n)),
    };
    let family = if v6 { Family::V6 } else { Family::V4 };
    let spec = FlowSpec { family, payload: PAYLOAD, ..FlowSpec::new(1, 2, 20_000 + flow, 9_000) };
    packet::template(&spec, &address(1), &address(2)).0
}

#[cfg(test)]
mod tests {
    use super::*;

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
