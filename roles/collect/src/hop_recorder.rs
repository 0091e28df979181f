//! Records the hops of reports for exports of the stream `hops`: decodes sampled datagrams, or datagrams with events, a second
//! time, and writes one spool record per hop to each interested export. Without such an export there is no recorder and no
//! cost.

use std::sync::Arc;

use collector::{Access, Config, Datagram, Event, Profile, event::Nanos};
use export::{hop::Hop, record::report_id, spool};
use wire::{Decoder, FlowKey, Peek, Report};

use crate::datagram::HopProfiles;
use runtime::hop_queue::HopTap;

/// Decodes datagrams and writes their hops to the taps of exports.
#[derive(Debug)]
pub struct HopRecorder {
    profiles: HopProfiles,
    access: Arc<Access>,
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

/// An event that the collector found.
#[derive(Clone, Copy, Debug)]
struct EventMark {
    /// Receive time of the report.
    received: Nanos,
    flow: Option<FlowKey>,
    node: Option<u32>,
}

/// Events found in the current datagrams, for taps that want only reports with events.
#[derive(Debug, Default)]
pub struct Marks {
    events: Vec<EventMark>,
    are_wanted: bool,
    /// There were too many events to list, so every report of these datagrams counts as one with an event.
    are_all: bool,
}

impl Marks {
    /// Notes an event that the collector found.
    pub fn add(&mut self, event: &Event) {
        if self.are_wanted && self.events.len() < MAX_MARKS {
            self.events.push(EventMark {
                received: event.ts,
                flow: event.flow,
                node: event.node,
            });
        } else {
            self.are_all |= self.are_wanted;
        }
    }

    fn has(&self, received: Nanos) -> bool {
        self.are_all || self.events.iter().any(|event| event.received == received)
    }

    fn clear(&mut self) {
        self.events.clear();
        self.are_all = false;
    }

    fn has_report(&self, received: Nanos, report: &Report<'_>) -> bool {
        self.are_all
            || self.events.iter().any(|event| {
                event.received == received
                    && match event.flow {
                        Some(flow) => flow_of(report) == Some(flow),
                        None => event.node.is_some() && report.hops().any(|hop| hop.node_id == event.node),
                    }
            })
    }
}

impl HopRecorder {
    /// Creates a recorder that decodes sources with the collector's profiles. Returns `None` if no export wants hops.
    pub fn new(config: &Config, taps: &[HopTap]) -> Option<Self> {
        if taps.is_empty() {
            return None;
        }
        let are_wanted = taps.iter().any(|tap| tap.with_events);
        let taps = taps.iter().map(|tap| Tap {
            tap: tap.clone(),
            chunk: Vec::with_capacity(2 * CHUNK),
            hops: 0,
        });
        Some(Self {
            profiles: HopProfiles::new(
                config.default_profile.clone(),
                config.profiles.clone(),
                config.node_profiles.clone(),
            ),
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
            taps,
            marks,
        } = self;
        for datagram in datagrams {
            let of_source = profiles.of_source(&datagram.source);
            let Ok(peek) = wire::peek(datagram.payload, &of_source.wire) else {
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
            let mut decoder = Decoder::new(of_source.wire);
            for report in decoder.reports(datagram.payload).flatten() {
                let has_event = is_marked && marks.has_report(datagram.received, &report);
                for tap in taps.iter_mut().filter(|tap| tap.wants(hash, is_marked)) {
                    if !tap.tap.with_events || has_event {
                        tap.write(datagram.received, &report, hash, content, |node| {
                            profiles.of_node(of_source, node)
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

    fn write<'p>(
        &mut self,
        received: Nanos,
        report: &Report<'_>,
        hash: u64,
        content: u64,
        profile: impl Fn(Option<u32>) -> &'p Profile,
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
            let profile = profile(hop.node_id);
            let record = Hop {
                ts: received,
                report: id,
                hop: number,
                hops,
                flow,
                node: hop.node_id,
                ingress_if: hop.ingress_if.map(u32::from),
                egress_if: hop.egress_interface(),
                queue: hop.queue_id,
                hop_latency: collector::hop_latency(&hop, profile),
                queue_occupancy: hop.queue_occupancy,
                queue_congestion: hop.queue_congestion,
                link_utilization: hop
                    .tx_utilization
                    .map(|part| u64::from(part) * u64::from(profile.utilization_unit())),
                ingress_ts: hop.ingress_ts.map(|ts| stamp_ns(ts, hop.wide_ts, profile)),
                egress_ts: hop.egress_ts.map(|ts| stamp_ns(ts, hop.wide_ts, profile)),
            };
            let record_start = spool::begin(&mut self.chunk);
            record.write(&mut self.chunk);
            spool::end(&mut self.chunk, record_start);
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

/// Returns a timestamp in ns: all 64 bits, or the lower 32, as the device sent it.
fn stamp_ns(ticks: u64, is_wide: bool, profile: &Profile) -> u64 {
    let ns = ticks.saturating_mul(profile.timestamp_unit_ns.max(1).into());
    // Of 32 bits of ticks, the lower 32 bits in ns are known.
    if is_wide { ns } else { ns & 0xffff_ffff }
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

/// Size at which collected hops are handed over, bytes.
const CHUNK: usize = 64 << 10;
/// Maximum size of the hops of one report, bytes.
const MAX_REPORT: usize = 48 << 10;
/// Maximum number of events listed per call of [`HopRecorder::record`].
const MAX_MARKS: usize = 4096;

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

    #[test]
    fn a_latency_is_that_which_the_collector_reads_and_stamps_are_in_ns() {
        let profile = Profile {
            timestamp_unit_ns: 1_000,
            latency_unit_ns: 8,
            ..Profile::default()
        };
        let stamps = |ingress, egress| wire::Hop {
            ingress_ts: Some(ingress),
            egress_ts: Some(egress),
            ..wire::Hop::default()
        };
        let reported = |latency, latency_in_ns| wire::Hop {
            hop_latency: Some(latency),
            latency_in_ns,
            ..wire::Hop::default()
        };
        let cases = [
            (reported(100, false), Some(800)),
            // The transit delay of IOAM.
            (reported(100, true), Some(100)),
            (stamps(5, 7), Some(2_000)),
            (stamps(0xffff_ffff, 1), Some(2_000)),
            // Implausible: longer than a second, no ingress, backwards.
            (reported(400_000_000, false), None),
            (stamps(0, 7), None),
            (stamps(7, 5), None),
            (wire::Hop::default(), None),
        ];
        for (hop, expected) in cases {
            assert_eq!(collector::hop_latency(&hop, &profile), expected, "{hop:?}");
        }
        // Of 32 bits, the lower 32 in ns are known: they go on when the ticks begin anew.
        assert_eq!(stamp_ns(5, false, &profile), 5_000);
        let last = stamp_ns(0xffff_ffff, false, &profile);
        assert_eq!((last + 1_000) & 0xffff_ffff, stamp_ns(0, false, &profile));
        assert_eq!(stamp_ns(0x1_0000_0000, true, &profile), 0x1_0000_0000 * 1_000);
        assert_eq!(stamp_ns(u64::MAX, true, &profile), u64::MAX);
    }
}
