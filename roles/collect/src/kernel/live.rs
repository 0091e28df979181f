//! Implements [`Kernel`] for the XDP program loaded into this machine's kernel.

use std::fmt;
use std::sync::{Arc, Mutex};

use collector::{Profile, Run, StreamId, SuppressedHop, SuppressedKey, config::Clocks, event::Basis};
use detect::{Detection, Metric, Prefix};
use nic::{
    Error,
    bpf::{Attachment, Object, Ring},
};
use wire::FlowKey;
use xdp::{Reason, Record, Sizes, Tables, Units};

use super::{Counters, FlowCopy, Kernel, KernelRecord};
use runtime::lock::lock;

/// The name of the XDP program in its object file.
pub const PROGRAM: &str = "hopwise_detect";

/// The name of the ring buffer map in the object file.
const RING: &str = "to_user";

/// Longest sleep, ms. A record written while this thread falls asleep may fail to wake it, so sleeps are short.
const SLEEP_MS: u32 = 10;

/// A slot for the program's attachment, `None` after it has been detached.
pub type AttachmentSlot = Arc<Mutex<Option<Attachment>>>;

/// A loaded program, with its tables and ring buffer.
pub struct Live {
    object: Object,
    tables: Tables,
    ring: Ring,
    attachment: AttachmentSlot,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

/// The configuration of the program.
#[derive(Debug)]
pub struct Reading<'a> {
    /// UDP ports that receive telemetry, each with the index of its listener.
    pub ports: &'a [(u16, u16)],
    /// The profile of sources that no prefix matches.
    pub default: &'a Profile,
    /// The profiles by prefix.
    pub profiles: &'a [(Prefix, Profile)],
    /// Thresholds and rules, effective from the first frame. They must equal the collector's: otherwise the program would
    /// treat values as reported that the collector has not reported, and suppress the next event.
    pub detection: &'a Detection,
}

impl Live {
    /// Loads the program with tables of these sizes, without attaching it.
    ///
    /// # Errors
    /// The kernel lacks a feature, or the process lacks a capability.
    pub fn load(sizes: Sizes, reading: &Reading<'_>) -> Result<Self, Error> {
        let mut object = Object::load(xdp::DETECT, &sizes.options())?;
        let tables = Tables::open(&object, sizes)?;
        let ring = object.ring(RING)?;
        tables.set_detection(reading.detection)?;
        tables.set_ports(reading.ports);
        let listed: Vec<_> = reading
            .profiles
            .iter()
            .map(|(prefix, profile)| (*prefix, &profile.wire, units(profile)))
            .collect();
        tables.set_profiles((&reading.default.wire, units(reading.default)), &listed)?;
        tables.set_sequence(true);
        Ok(Self {
            object,
            tables,
            ring,
            attachment: AttachmentSlot::default(),
        })
    }

    /// Returns the loaded object, for attaching it.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Returns the number of frames to telemetry ports that the program has processed.
    #[cfg(test)]
    pub(super) fn seen(&self) -> Result<u64, Error> {
        let counted = self.tables.counters()?;
        let refused: u64 = counted.refused_frames.iter().sum();
        Ok(counted.datagrams + counted.to_user + counted.ring_full + counted.contended + refused)
    }

    /// Returns the slot for the program's attachment.
    pub fn attachment(&self) -> AttachmentSlot {
        Arc::clone(&self.attachment)
    }
}

/// Converts a profile's units for the kernel program.
fn units(profile: &Profile) -> Units {
    Units {
        stamp_ns: profile.timestamp_unit_ns.max(1),
        latency_ns: profile.latency_unit_ns.max(1),
        utilization: profile.utilization_unit(),
        synchronised: profile.clocks == Clocks::Synchronised,
        max_latency: if profile.max_hop_latency == 0 {
            u64::MAX
        } else {
            profile.max_hop_latency
        },
    }
}

impl Kernel for Live {
    fn drain(&mut self, most: usize, take: &mut dyn FnMut(&KernelRecord<'_>)) -> usize {
        let Self { ring, tables, .. } = self;
        ring.consume(most, |record| {
            let Some(record) = Record::read(record) else {
                return;
            };
            let slot = record
                .stream
                .and_then(|slot| Some((slot, stream_at(tables, slot)?.0)));
            let before = Run {
                last: record.stream_latest,
                count: record.stream_count.into(),
                same: record.why.has(Reason::SAME),
            };
            take(&KernelRecord {
                at: record.ktime,
                stream: slot,
                before: record.why.has(Reason::STREAM).then_some(before),
                listener: record.listener,
                generation: record.generation,
                frame: record.frame,
            });
        })
    }

    fn records(&self) -> usize {
        self.tables.records()
    }

    fn wait(&mut self, timeout_ms: u32) -> Result<(), Error> {
        self.tables.sleep();
        let waited = self.ring.wait(timeout_ms.min(SLEEP_MS));
        self.tables.wake();
        waited
    }

    fn detach(&mut self) {
        lock(&self.attachment).take();
    }

    fn streams(&self) -> u32 {
        self.tables.stream_slots() as u32
    }

    fn stream(&self, slot: u32) -> Option<(StreamId, Run)> {
        stream_at(&self.tables, slot)
    }

    fn forget_stream(&mut self, slot: u32) {
        self.tables.forget_stream(slot as usize);
    }

    fn flows(&self) -> u32 {
        self.tables.flow_slots() as u32
    }

    fn flow_reports(&self, slot: u32) -> Option<u32> {
        self.tables.reports_at(slot as usize)
    }

    fn flow(&self, slot: u32, copy: &mut FlowCopy) -> bool {
        let Some(flow) = self.tables.flow(slot as usize) else {
            return false;
        };
        copy.key = flow.key;
        copy.reports = flow.reports;
        copy.latency = (flow.latency != u64::MAX).then_some(flow.latency);
        // Codes of the XDP program.
        copy.basis = match flow.basis {
            _ if flow.path_length == 0 => None,
            0 => Some(Basis::Measured),
            1 => Some(Basis::HopSum),
            3 => Some(Basis::Unsynchronised),
            _ => None,
        };
        copy.hops.clear();
        copy.hops.extend(
            flow.hops
                .iter()
                .take(flow.path_length.into())
                .map(|hop| SuppressedHop {
                    node: hop.node,
                    link: hop.link,
                    level_2: hop.level_2,
                    latency: widened(hop.latency),
                    queue: hop.queue,
                    utilization: widened(hop.utilization),
                    ..SuppressedHop::NOTHING
                }),
        );
        true
    }

    fn forget_flow(&mut self, key: &FlowKey) {
        self.tables.forget_flow(key);
    }

    fn forget_path(&mut self, key: &FlowKey) {
        self.tables.forget_path(key);
    }

    fn keys(&self, metric: Metric) -> u32 {
        self.tables.metric_slots(metric) as u32
    }

    fn key(&self, metric: Metric, slot: u32) -> Option<(SuppressedKey, u32)> {
        let entry = self.tables.metric_entry(metric, slot as usize)?;
        Some((
            SuppressedKey {
                metric,
                node: entry.node,
                part: entry.part,
                value: entry.latest,
            },
            entry.reports,
        ))
    }

    fn forget_key(&mut self, metric: Metric, node: u32, part: u32) {
        self.tables.forget_metric(metric, node, part);
    }

    fn set_detection(&mut self, detection: &Detection) -> Result<u32, Error> {
        self.tables.set_detection(detection)?;
        Ok(self.tables.generation())
    }

    fn counters(&mut self) -> Result<Counters, Error> {
        let counted = self.tables.counters()?;
        let suppressed = collector::Stats {
            datagrams: counted.datagrams,
            accepted: counted.accepted,
            reports: counted.reports,
            flow_reports: counted.flow_reports,
            node_reports: counted.node_reports,
            refused: counted.refused,
            refused_datagrams: counted.refused_datagrams,
            ..collector::Stats::default()
        };
        Ok(Counters {
            suppressed,
            // Contention and a full ring mean the same to the operator: the datagram was lost between kernel and user space.
            ring_full: counted.ring_full + counted.contended,
            refused_frames: counted.refused_frames,
        })
    }
}

/// Widens a value from the kernel's tables, where `u32::MAX` means absent (`u64::MAX` here).
fn widened(value: u32) -> u64 {
    if value == u32::MAX { u64::MAX } else { value.into() }
}

fn stream_at(tables: &Tables, slot: u32) -> Option<(StreamId, Run)> {
    let entry = tables.stream(slot as usize)?;
    let id = StreamId {
        version: entry.version,
        hw_id: entry.hw_id,
        listener: entry.listener,
        node: entry.node,
        source: entry.source,
    };
    Some((
        id,
        Run {
            last: entry.latest,
            count: entry.count.into(),
            same: entry.same,
        },
    ))
}
