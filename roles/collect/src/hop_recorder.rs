//! Records the hops of reports for exports of the stream `hops`: decodes sampled datagrams, or datagrams with events, a second
//! time, and writes one spool record per hop to each interested export. Without such an export there is no recorder and no
//! cost.

use std::{collections::HashMap, sync::Arc};

use collector::{Access, Config, Datagram, Event, Profile, event::Nanos};
use export::{hop::Hop, record::report_id, spool};
use wire::{Decoder, FlowKey, Peek, Report};

use crate::datagram::Profiles;
use runtime::hop_queue::HopTap;

/// Size at which collected hops are handed over, bytes.
const CHUNK: usize = 64 << 10;
/// Maximum size of the hops of one report, bytes.
const MAX_REPORT: usize = 48 << 10;
/// Maximum number of events listed per call of [`HopRecorder::record`].
const MAX_MARKS: usize = 4096;

/// Decodes datagrams and writes their hops to the taps of exports.
#[derive(Debug)]
pub struct HopRecorder {
    profiles: Profiles,
    access: Arc<Access>,
    units: Units,
    taps: Vec<Tap>,
    marks: Marks,
}

/// An export's tap, with the hops that its queue has not accepted yet.
#[derive(Debug)]
struct Tap {
    tap: HopTap,
    chunk: Vec<u8>,
    hops: u64,
}

/// Events found in the current datagrams, for taps that want only reports with events.
#[derive(Debug, Default)]
pub struct Marks {
    /// Receive time, flow and node of each event.
    marks: Vec<(Nanos, Option<FlowKey>, Option<u32>)>,
    are_wanted: bool,
    /// There were too many events to list, so every report of these datagrams counts as one with an event.
    are_all: bool,
}

impl Marks {
    /// Notes an event that the collector found.
    pub fn add(&mut self, event: &Event) {
        if self.are_wanted && self.marks.len() < MAX_MARKS {
            self.marks.push((event.ts, event.flow, event.node));
        } else {
            self.are_all |= self.are_wanted;
        }
    }

    fn has(&self, received: Nanos) -> bool {
        self.are_all || self.marks.iter().any(|(ts, ..)| *ts == received)
    }

    fn clear(&mut self) {
        self.marks.clear();
        self.are_all = false;
    }

    fn has_report(&self, received: Nanos, report: &Report<'_>) -> bool {
        self.are_all
            || self.marks.iter().any(|(ts, flow, node)| {
                *ts == received
                    && match flow {
                        Some(flow) => flow_of(report) == Some(*flow),
                        None => node.is_some() && report.hops().any(|hop| hop.node_id == *node),
                    }
            })
    }
}

/// Units of metadata values: by the profile of the source, or by a node's own profile, which takes precedence.
#[derive(Debug)]
struct Units {
    of_sources: Vec<Unit>,
    default: Unit,
    of_nodes: HashMap<u32, Unit>,
}

/// Factors from the raw INT metadata to ns, and to the collector's unit of link utilization.
#[derive(Clone, Copy, Debug)]
struct Unit {
    latency_ns: u64,
    stamp_ns: u64,
    utilization: u64,
}

impl From<&Profile> for Unit {
    fn from(profile: &Profile) -> Self {
        Self {
            latency_ns: profile.latency_unit_ns.max(1).into(),
            stamp_ns: profile.timestamp_unit_ns.max(1).into(),
            utilization: profile.utilization_unit().into(),
        }
    }
}

impl Units {
    fn unit(&self, source: usize, node: Option<u32>) -> Unit {
        let own = node
            .filter(|_| !self.of_nodes.is_empty())
            .and_then(|node| self.of_nodes.get(&node));
        *own.or_else(|| self.of_sources.get(source))
            .unwrap_or(&self.default)
    }
}

impl HopRecorder {
    /// Creates a recorder that decodes sources with the collector's profiles. Returns `None` if no export wants hops.
    pub fn new(config: &Config, taps: &[HopTap]) -> Option<Self> {
        if taps.is_empty() {
            return None;
        }
        let mut by_source: Vec<_> = config.profiles.iter().collect();
        by_source.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        let are_wanted = taps.iter().any(|tap| tap.with_events);
        let taps = taps.iter().map(|tap| Tap {
            tap: tap.clone(),
            chunk: Vec::with_capacity(2 * CHUNK),
            hops: 0,
        });
        Some(Self {
            units: Units {
                of_sources: by_source.iter().map(|(_, profile)| profile.into()).collect(),
                default: (&config.default_profile).into(),
                of_nodes: config
                    .node_profiles
                    .iter()
                    .map(|(node, profile)| (*node, profile.into()))
                    .collect(),
            },
            profiles: Profiles {
                default: config.default_profile.wire,
                by_source: by_source
                    .into_iter()
                    .map(|(prefix, profile)| (*prefix, profile.wire))
                    .collect(),
            },
            access: Arc::clone(&config.access),
            taps: taps.collect(),
            marks: Marks {
                are_wanted,
                ..Marks::default()
            },
        })
    }

    /// Returns the list to which the collector's output adds events.
    pub fn marks(&mut self) -> &mut Marks {
        &mut self.marks
    }

    /// Records the hops of the selected datagrams. Ignores malformed and refused ones, which the collector counts.
    pub fn record(&mut self, datagrams: &[Datagram<'_>]) {
        let Self {
            profiles,
            access,
            units,
            taps,
            marks,
        } = self;
        for datagram in datagrams {
            let source = profiles.index_of(&datagram.source);
            let profile = profiles.at(source);
            let Ok(peek) = wire::peek(datagram.payload, profile) else {
                continue;
            };
            let hash = hash_of(datagram, &peek);
            let is_marked = marks.has(datagram.received);
            if !taps.iter().any(|tap| tap.wants(hash, is_marked))
                || access
                    .check(datagram.listener, &datagram.source, || Ok(peek.node_id))
                    .is_err()
            {
                continue;
            }
            // Sequence numbers repeat. A checksum of the datagram keeps the report's ID unique.
            let content = u64::from(wire::crc::crc_32c(datagram.payload)) << 32;
            let mut decoder = Decoder::new(*profile);
            for report in decoder.reports(datagram.payload).flatten() {
                let has_event = is_marked && marks.has_report(datagram.received, &report);
                for tap in taps.iter_mut().filter(|tap| tap.wants(hash, is_marked)) {
                    if !tap.tap.with_events || has_event {
                        tap.write(datagram.received, &report, hash, content, |node| {
                            units.unit(source, node)
                        });
                    }
                }
            }
        }
        marks.clear();
    }

    /// Hands collected hops over to the exports.
    pub fn send(&mut self) {
        self.taps
            .iter_mut()
            .filter(|tap| tap.hops > 0)
            .for_each(Tap::send);
    }
}

impl Drop for HopRecorder {
    fn drop(&mut self) {
        for tap in self.taps.iter_mut().filter(|tap| tap.hops > 0) {
            tap.tap.queue.offer(&mut tap.chunk, &mut tap.hops, true);
        }
    }
}

impl Tap {
    fn wants(&self, hash: u64, is_marked: bool) -> bool {
        if self.tap.with_events {
            is_marked
        } else {
            hash.is_multiple_of(self.tap.sample)
        }
    }

    /// Writes a record for each hop of a report. `hash` and `content` make the report's ID unique.
    fn write(
        &mut self,
        received: Nanos,
        report: &Report<'_>,
        hash: u64,
        content: u64,
        unit: impl Fn(Option<u32>) -> Unit,
    ) {
        let flow = flow_of(report);
        let stamp = report.ts.unwrap_or(0);
        let parts = [
            hash,
            u64::from(report.seq) | content,
            report.index.into(),
            stamp.into(),
        ];
        let id = report_id(parts, flow.as_ref());
        let count = u8::try_from(report.hop_count()).unwrap_or(u8::MAX);
        let hops = if report.is_single_record() { 0 } else { count };
        for (number, hop) in (0..count).zip(report.hops()) {
            let unit = unit(hop.node_id);
            let record = Hop {
                ts: received,
                report: id,
                hop: number,
                hops,
                flow,
                node: hop.node_id,
                ingress_if: hop.ingress_if.map(u32::from),
                egress_if: hop.egress_if.map(u32::from),
                queue: hop.queue_id,
                hop_latency: hop
                    .hop_latency
                    .map(|latency| u64::from(latency) * if hop.latency_in_ns { 1 } else { unit.latency_ns }),
                queue_occupancy: hop.queue_occupancy,
                queue_congestion: hop.queue_congestion,
                link_utilization: hop.tx_utilization.map(|part| u64::from(part) * unit.utilization),
                ingress_ts: hop.ingress_ts.map(|ts| ts.saturating_mul(unit.stamp_ns)),
                egress_ts: hop.egress_ts.map(|ts| ts.saturating_mul(unit.stamp_ns)),
            };
            let begun = spool::begin(&mut self.chunk);
            record.write(&mut self.chunk);
            spool::end(&mut self.chunk, begun);
            self.hops += 1;
        }
        if self.chunk.len() >= CHUNK {
            self.send();
        }
    }

    fn send(&mut self) {
        // Urgent: the hops of one more report might not fit into the chunk.
        let is_urgent = self.chunk.len() >= 2 * CHUNK - MAX_REPORT;
        self.tap.queue.offer(&mut self.chunk, &mut self.hops, is_urgent);
    }
}

fn flow_of(report: &Report<'_>) -> Option<FlowKey> {
    report.flow.or_else(|| report.flow_id.map(FlowKey::of_id))
}

/// Hashes a datagram's reporter and sequence number, so that all collectors sample the same datagrams.
fn hash_of(datagram: &Datagram<'_>, peek: &Peek) -> u64 {
    let source = u128::from_be_bytes(datagram.source);
    let reporter = match peek.node_id {
        Some(node) => [u64::from(node), 0],
        None => [(source >> 64) as u64, source as u64],
    };
    report_id(
        [reporter[0], reporter[1], peek.hw_id.into(), peek.seq.into()],
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_more_events_than_are_remembered_no_report_is_left_out() {
        let mut marks = Marks {
            are_wanted: true,
            ..Marks::default()
        };
        for ts in 0..MAX_MARKS as u64 {
            marks.add(&testkit::records::bare(ts));
        }
        let known = [marks.has(0), marks.has(MAX_MARKS as u64), marks.has(u64::MAX)];
        assert_eq!(known, [true, false, false]);
        marks.add(&testkit::records::bare(7));
        assert!(marks.has(u64::MAX));
        // Until the burst is over.
        marks.clear();
        assert!(!marks.has(0) && !marks.has(u64::MAX));
    }
}
