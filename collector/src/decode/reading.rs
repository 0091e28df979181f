//! The values of one hop in the collector's units ([`Reading`]), from records in place or from decoded hops.

use detect::{HopValues, observation};
use wire::{Hop, Layout};

use super::NO_VALUE;
use super::clock::{between, is_plausible, mark_implausible};
use crate::config::Units;

/// All ones: an id or a 32-bit value that is absent.
pub(crate) const ABSENT: u32 = u32::MAX;

/// Maximum number of hops in a report: one-word records in the longest INT stack.
pub(crate) const MAX_HOPS: usize = 256;

/// The values of one hop; all ones if absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reading {
    pub(crate) node: u32,
    /// Reported interfaces: level-1 ingress and egress in 16 bits each, or the level-2 egress if there is no level-1 egress.
    pub(crate) link: u32,
    pub(crate) level_2: bool,
    /// Hop latency, ns; values from [`IMPLAUSIBLE`](super::clock::IMPLAUSIBLE) on are not used.
    pub(crate) latency: u64,
    /// Queue id in the high 8 bits, occupancy in the low 24.
    pub(crate) queue: u32,
    /// Queue id in the high 8 bits, congestion status in the low 24. The occupancy of a shared buffer is no queue's, and is not
    /// collected.
    pub(crate) congestion: u32,
    /// Utilization as reported, in units of `utilization_unit` millionths of the link.
    pub(crate) utilization: u32,
    pub(crate) utilization_unit: u32,
}

/// Ingress timestamp of the first node and egress timestamp of the last, in device units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EndTimestamps {
    pub(crate) ingress: u64,
    pub(crate) egress: u64,
    pub(crate) wide: bool,
}

impl EndTimestamps {
    pub(crate) const NONE: Self = Self {
        ingress: NO_VALUE,
        egress: NO_VALUE,
        wide: false,
    };
}

/// The hops of a report in forwarding order. Small, so that it is passed by value.
pub(crate) trait Hops: Copy {
    type Record: Copy;
    fn count(self) -> usize;
    fn units(self) -> Units;
    /// Returns the records of the hops from `from` on.
    fn records(self, from: usize) -> impl ExactSizeIterator<Item = Self::Record>;
    fn node(self, record: Self::Record) -> u32;
    fn read(self, record: Self::Record) -> Reading;
    fn ends(self) -> EndTimestamps;
}

/// Hops that were already decoded one by one: from reports with the reporter's metadata, postcards, or IOAM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadHops<'a> {
    pub(crate) readings: &'a [Reading],
    pub(crate) ends: EndTimestamps,
    pub(crate) units: Units,
}

impl<'a> ReadHops<'a> {
    pub(crate) fn new(readings: &'a [Reading], ends: EndTimestamps, units: Units) -> Self {
        Self {
            readings,
            ends,
            units,
        }
    }
}

impl<'a> Hops for ReadHops<'a> {
    type Record = &'a Reading;

    fn count(self) -> usize {
        self.readings.len()
    }

    fn units(self) -> Units {
        self.units
    }

    fn records(self, from: usize) -> impl ExactSizeIterator<Item = Self::Record> {
        self.readings.iter().skip(from)
    }

    fn node(self, record: Self::Record) -> u32 {
        record.node
    }

    fn read(self, record: Self::Record) -> Reading {
        *record
    }

    fn ends(self) -> EndTimestamps {
        self.ends
    }
}

impl Reading {
    /// The reading of a hop without any values.
    pub(crate) const NOTHING: Self = Self {
        node: ABSENT,
        link: ABSENT,
        level_2: false,
        latency: NO_VALUE,
        queue: ABSENT,
        congestion: ABSENT,
        utilization: ABSENT,
        utilization_unit: 1,
    };

    /// Converts a decoded hop.
    pub(crate) fn of(hop: &Hop, units: Units) -> Self {
        let ingress = hop.ingress_ts.unwrap_or(NO_VALUE);
        let egress = hop.egress_ts.unwrap_or(NO_VALUE);
        let latency = match hop.hop_latency {
            Some(latency) => {
                let latency = scaled(latency, units.of_latency(hop));
                mark_implausible(latency, ingress, egress, units)
            }
            None => between(ingress, egress, hop.wide_ts, units),
        };
        let level_1 = join_interfaces(hop.ingress_if, hop.egress_if);
        let level_2 = hop.l2_egress_if.filter(|_| hop.egress_if.is_none());
        Self {
            node: hop.node_id.unwrap_or(ABSENT),
            link: level_2.unwrap_or(level_1),
            level_2: level_2.is_some(),
            latency,
            queue: join_level(hop.queue_id, hop.queue_occupancy),
            congestion: join_level(hop.congestion_queue_id, hop.queue_congestion),
            utilization: hop.tx_utilization.unwrap_or(ABSENT),
            utilization_unit: units.utilization,
        }
    }

    /// Returns the utilization in millionths of the link. Computed on demand, so that its presence is checked only once.
    #[inline(always)]
    pub(crate) fn utilization(&self) -> u64 {
        scaled(self.utilization, self.utilization_unit)
    }

    /// Returns the egress interface, or all ones if not reported.
    pub(crate) fn egress(&self) -> u32 {
        egress(self.link, self.level_2)
    }
}

impl Reading {
    /// Reads a record in place; equals the reading of the decoded hop.
    #[inline]
    pub(crate) fn of_record(layout: &Layout, record: &[u8], units: Units) -> Self {
        let ingress = layout.ingress_ts(record);
        let egress = layout.egress_ts(record);
        let latency = match scaled(layout.hop_latency(record), units.latency_ns) {
            NO_VALUE => between(ingress, egress, layout.wide_ts(), units),
            latency => mark_implausible(latency, ingress, egress, units),
        };
        let level_1 = layout.interfaces(record);
        let level_2 = (layout.l2_interfaces(record) & 0xffff_ffff) as u32;
        let level_2 = Some(level_2).filter(|logical| *logical != ABSENT && level_1 & 0xffff == 0xffff);
        Self {
            node: layout.node_id(record),
            link: level_2.unwrap_or(level_1),
            level_2: level_2.is_some(),
            latency,
            queue: layout.queue(record),
            congestion: layout.queue_congestion(record),
            utilization: layout.tx_utilization(record),
            utilization_unit: units.utilization,
        }
    }
}

/// Returns the egress interface of a [`Reading::link`].
pub(crate) fn egress(link: u32, level_2: bool) -> u32 {
    match (level_2, link & 0xffff) {
        (true, _) => link,
        (false, 0xffff) => ABSENT,
        (false, egress) => egress,
    }
}

#[inline(always)]
pub(super) fn scaled(raw: u32, unit: u32) -> u64 {
    if raw == ABSENT {
        NO_VALUE
    } else {
        u64::from(raw) * u64::from(unit)
    }
}

/// Returns the value, or `None` if it is [`ABSENT`].
#[inline(always)]
pub(crate) fn present(value: u32) -> Option<u32> {
    (value != ABSENT).then_some(value)
}

/// Joins level-1 interfaces: ingress in the upper half, egress in the lower; all ones for an absent one.
#[inline(always)]
pub(crate) fn join_interfaces(ingress: Option<u16>, egress: Option<u16>) -> u32 {
    u32::from(ingress.unwrap_or(u16::MAX)) << 16 | u32::from(egress.unwrap_or(u16::MAX))
}

/// Joins the id of a queue (high 8 bits) and its level (low 24). [`ABSENT`] if one of them is absent, or if the level
/// has more than 24 bits, as an IOAM queue depth may.
#[inline(always)]
fn join_level(id: Option<u8>, level: Option<u32>) -> u32 {
    match (id, level) {
        (Some(id), Some(level)) if level >> 24 == 0 => u32::from(id) << 24 | level,
        _ => ABSENT,
    }
}

/// Returns the level in a value of [`join_level`].
#[inline(always)]
fn level_of(joined: u32) -> u64 {
    present(joined).map_or(observation::ABSENT, |joined| u64::from(joined & 0x00ff_ffff))
}

impl Reading {
    /// Returns the values in the form that rules use.
    pub(crate) fn values(&self) -> HopValues {
        HopValues {
            hop_latency: if is_plausible(self.latency) {
                self.latency
            } else {
                observation::ABSENT
            },
            queue_occupancy: level_of(self.queue),
            queue_congestion: level_of(self.congestion),
            link_utilization: self.utilization(),
            node: self.node,
        }
    }
}

// Both crates use all ones for "absent".
const _: () = assert!(NO_VALUE == observation::ABSENT && ABSENT == observation::NO_NODE);
