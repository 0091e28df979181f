//! The values of one hop in the collector's units, from wherever they lie.

use wire::Hop;
use wire::int::Stack;

use crate::clock::{Difference, difference};
use crate::config::Units;
use crate::flows::ABSENT;

/// All-ones: a value that was absent or unavailable.
pub(crate) const NO_VALUE: u64 = u64::MAX;

/// What one hop says. All-ones stand for what it does not say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reading {
    pub(crate) node: u32,
    /// Level 1, or else level 2.
    pub(crate) egress: u32,
    pub(crate) ingress: u16,
    /// ns.
    pub(crate) latency: u64,
    /// Queue id in the high 8 bits, occupancy in the low 24.
    pub(crate) queue: u32,
    /// Likewise: congestion status, or the shared buffer's occupancy.
    pub(crate) congestion: u32,
    /// Millionths of the link.
    pub(crate) utilization: u64,
}

/// The first node's ingress and the last node's egress stamp, device units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    pub(crate) ingress: u64,
    pub(crate) egress: u64,
    pub(crate) wide: bool,
}

/// The hops of a report in forwarding order.
pub(crate) trait Hops {
    fn count(&self) -> usize;
    fn nodes(&self) -> impl Iterator<Item = u32>;
    fn readings(&self) -> impl Iterator<Item = Reading>;
    fn ends(&self) -> Ends;
}

/// The hops of an INT stack, read where they lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackHops<'a> {
    pub(crate) stack: Stack<'a>,
    pub(crate) units: Units,
}

impl<'a> StackHops<'a> {
    /// No hops.
    pub(crate) const NONE: Self = Self { stack: Stack::EMPTY, units: Units::NONE };

    /// The records in forwarding order; they lie in the stack with the last hop first.
    #[inline]
    fn records(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (bytes, length) = (self.stack.bytes, self.stack.layout.len());
        let mut end = self.stack.len() * length;
        (0..self.stack.len()).map(move |_| {
            let start = end.saturating_sub(length);
            let record = bytes.get(start..end).unwrap_or_default();
            end = start;
            record
        })
    }
}

impl Hops for StackHops<'_> {
    #[inline]
    fn count(&self) -> usize {
        self.stack.len()
    }

    #[inline]
    fn nodes(&self) -> impl Iterator<Item = u32> {
        let layout = self.stack.layout;
        self.records().map(move |record| layout.node_id(record))
    }

    #[inline]
    fn readings(&self) -> impl Iterator<Item = Reading> {
        let (layout, units) = (self.stack.layout, self.units);
        self.records().map(move |record| {
            let ports = layout.interfaces(record);
            let mut latency = scaled(layout.hop_latency(record), units.latency_ns);
            if latency == NO_VALUE {
                latency =
                    between(layout.ingress_ts(record), layout.egress_ts(record), layout.wide_ts(), units);
            }
            let mut congestion = layout.queue_congestion(record);
            if congestion == ABSENT {
                congestion = layout.buffer(record);
            }
            let egress = match ports & 0xffff {
                0xffff => layout.l2_interfaces(record) as u32,
                egress => egress,
            };
            Reading {
                node: layout.node_id(record),
                egress,
                ingress: (ports >> 16) as u16,
                latency,
                queue: layout.queue(record),
                congestion,
                utilization: scaled(layout.tx_utilization(record), units.utilization),
            }
        })
    }

    #[inline]
    fn ends(&self) -> Ends {
        let layout = self.stack.layout;
        let (first, last) = (self.stack.record(self.stack.len().saturating_sub(1)), self.stack.record(0));
        Ends { ingress: layout.ingress_ts(first), egress: layout.egress_ts(last), wide: layout.wide_ts() }
    }
}

/// Hops that were read before, one by one: reports with metadata of their own, postcards, IOAM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadHops<'a> {
    pub(crate) readings: &'a [Reading],
    pub(crate) ends: Ends,
}

impl Hops for ReadHops<'_> {
    fn count(&self) -> usize {
        self.readings.len()
    }

    fn nodes(&self) -> impl Iterator<Item = u32> {
        self.readings.iter().map(|reading| reading.node)
    }

    fn readings(&self) -> impl Iterator<Item = Reading> {
        self.readings.iter().copied()
    }

    fn ends(&self) -> Ends {
        self.ends
    }
}

impl Reading {
    /// Of a hop that was decoded whole.
    pub(crate) fn of(hop: &Hop, units: Units) -> Self {
        let stamp = |stamp: Option<u64>| stamp.unwrap_or(NO_VALUE);
        let latency = match hop.hop_latency {
            Some(latency) => u64::from(latency).saturating_mul(units.latency_ns),
            None => between(stamp(hop.ingress_ts), stamp(hop.egress_ts), hop.wide_ts, units),
        };
        let pair = |id: Option<u8>, level: Option<u32>| match (id, level) {
            (Some(id), Some(level)) => u32::from(id) << 24 | (level & 0x00ff_ffff),
            _ => ABSENT,
        };
        let congestion = match pair(hop.queue_id, hop.queue_congestion) {
            ABSENT => pair(hop.buffer_id, hop.buffer_occupancy),
            congestion => congestion,
        };
        Self {
            node: hop.node_id.unwrap_or(ABSENT),
            egress: hop.egress_if.map(u32::from).or(hop.l2_egress_if).unwrap_or(ABSENT),
            ingress: hop.ingress_if.unwrap_or(u16::MAX),
            latency,
            queue: pair(hop.queue_id, hop.queue_occupancy),
            congestion,
            utilization: scaled(hop.tx_utilization.unwrap_or(ABSENT), units.utilization),
        }
    }
}

#[inline]
fn scaled(raw: u32, unit: u64) -> u64 {
    if raw == ABSENT { NO_VALUE } else { u64::from(raw) * unit }
}

/// The time from one stamp of a node to another, ns.
#[inline]
fn between(ingress: u64, egress: u64, wide: bool, units: Units) -> u64 {
    if ingress == NO_VALUE || egress == NO_VALUE {
        return NO_VALUE;
    }
    match difference(ingress, egress, wide) {
        Difference::Later(units_later) => units_later.saturating_mul(units.stamp_ns),
        Difference::Backwards => NO_VALUE,
    }
}
