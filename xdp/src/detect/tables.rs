//! User space's side of the tables for detection in the kernel: fills and reads them, and deletes entries that the collector
//! removed.
//!
//! The tables are memory-mapped and change at any time. Each value of an entry is read atomically, but the entry as a whole is
//! not. Deleting an entry is one atomic store, after which the kernel may reuse the slot.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use detect::{Detection, Metric, Prefix, Split, Table};
use nic::Error;
use nic::bpf::{LoadOptions, Map, Mapped, Object};
use wire::FlowKey;

use super::layout::{
    self, Counters, FLOW_HOPS, METRIC_WAYS, STREAM_WINDOW, Seed, WAYS, control, flow, key_of, key_words,
    slot, stream, wide,
};
use super::profile::{Units, plans, profile};
use crate::bytes::put;

/// Bytes of the kernel's header before each record of a ring buffer.
const RING_HEADER: usize = 8;

/// Sizes of the tables, set when the object is loaded. The kernel allocates all of it: 512 bytes per flow (half of them for
/// hops beyond the sixth), 32 per queue and link, 64 per stream, times the reserve that hashing needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Number of flows: the collector's, and some more, because the collector removes a flow a little before the kernel does.
    pub flows: u32,
    /// Number of queues, and of buffers.
    pub queues: u32,
    /// Number of links, each identified by node and egress interface.
    pub links: u32,
    /// Number of sequence streams that are tracked.
    pub streams: u32,
    /// Bytes of the ring buffer, a power of two of at least a page.
    pub ring: u32,
    /// Hash seed, which keeps senders from targeting one bucket.
    pub seed: u32,
}

impl Sizes {
    /// Returns the number of buckets. They are five eighths full on average, so that a flow rarely finds both buckets full.
    fn flow_buckets(&self) -> u32 {
        self.flows.div_ceil(5).max(2)
    }

    fn metric_buckets(count: u32) -> u32 {
        count.div_ceil(2).max(2)
    }

    fn stream_slots(&self) -> u32 {
        self.streams.saturating_mul(4).max(64)
    }

    /// Returns the options with which to load the object.
    pub fn options(&self) -> LoadOptions<'static> {
        let [queues, links] = [self.queues, self.links].map(Self::metric_buckets);
        LoadOptions {
            max_entries: vec![
                ("flows", self.flow_buckets() * WAYS as u32),
                ("far_hops", self.flow_buckets() * WAYS as u32),
                ("flow_tags", self.flow_buckets()),
                ("queues", queues),
                ("congestions", queues),
                ("links", links),
                ("streams", self.stream_slots() + STREAM_WINDOW as u32),
                ("to_user", self.ring),
            ],
            constants: vec![
                ("flow_buckets", self.flow_buckets()),
                ("queue_buckets", queues),
                ("link_buckets", links),
                ("stream_slots", self.stream_slots()),
                ("seed", self.seed),
            ],
        }
    }
}

/// A flow in the kernel's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowEntry {
    /// Key of the flow.
    pub key: FlowKey,
    /// Reports that were not passed to user space, modulo 2^32.
    pub reports: u32,
    /// Number of hops of its path; 0 if there were only reports of single nodes.
    pub path_length: u8,
    /// Number of hops stored.
    pub states: u8,
    /// Basis of the latest latency, numbered as in `collector::Basis`.
    pub basis: u8,
    /// Flow latency as last reported, ns; all ones if none.
    pub reported: u64,
    /// Latest flow latency, ns; all ones if none.
    pub latency: u64,
    /// Hops of the path, the first [`FlowEntry::states`] of them.
    pub hops: [HopEntry; FLOW_HOPS],
}

/// The latest values of a hop; all ones if not reported.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HopEntry {
    /// ID of the node.
    pub node: u32,
    /// Level-1 interfaces, ingress and egress in a half each, or the level-2 egress.
    pub link: u32,
    /// True if `link` is a level-2 interface.
    pub level_2: bool,
    /// Hop latency as last reported, ns, saturated at 4.28 s.
    pub reported: u32,
    /// Latest hop latency, ns, saturated at 4.28 s.
    pub latency: u32,
    /// Queue id in the high 8 bits, occupancy in the low 24.
    pub queue: u32,
    /// Utilization in millionths of the link, saturated below all ones.
    pub utilization: u32,
}

/// A queue, buffer or link in the kernel's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetricEntry {
    /// ID of the node.
    pub node: u32,
    /// Queue, buffer or egress interface of the node.
    pub part: u32,
    /// The value as last reported.
    pub reported: u64,
    /// Latest value from reports without a flow.
    pub latest: u64,
    /// Number of reports without a flow, modulo 2^32.
    pub reports: u32,
}

/// A numbered stream in the kernel's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamEntry {
    /// Report version: 5, 10, 20.
    pub version: u8,
    /// Subsystem of the reporter.
    pub hw_id: u8,
    /// Index of our listener.
    pub listener: u16,
    /// Node id of the reporter, if its reports have one.
    pub node: Option<u32>,
    /// Source address of the reports without a node id; otherwise zero.
    pub source: [u8; 16],
    /// The latest sequence number.
    pub latest: u32,
    /// True if all numbers of the current run equal `latest`.
    pub same: bool,
    /// Number of datagrams suppressed so far, modulo 2^31.
    pub count: u32,
}

/// The tables in the kernel; see the module's documentation.
#[derive(Debug)]
pub struct Tables {
    control: Mapped,
    flows: Mapped,
    far: Mapped,
    tags: Mapped,
    /// The tables of queues, congestion and links.
    node_metrics: [Mapped; 3],
    streams: Mapped,
    sizes: Sizes,
    detection: Map,
    profiles: Map,
    plans: Map,
    prefixes: Map,
    counters: Map,
}

impl Tables {
    /// Maps the tables of an object that was loaded with `sizes`.
    ///
    /// # Errors
    /// The object is not [`crate::DETECT`], or the system refused to map memory.
    pub fn open(object: &Object, sizes: Sizes) -> Result<Self, Error> {
        Ok(Self {
            control: object.map("control")?.map_memory()?,
            flows: object.map("flows")?.map_memory()?,
            far: object.map("far_hops")?.map_memory()?,
            tags: object.map("flow_tags")?.map_memory()?,
            node_metrics: [
                object.map("queues")?.map_memory()?,
                object.map("congestions")?.map_memory()?,
                object.map("links")?.map_memory()?,
            ],
            streams: object.map("streams")?.map_memory()?,
            sizes,
            detection: object.map("detection")?.try_clone()?,
            profiles: object.map("profiles")?.try_clone()?,
            plans: object.map("plans")?.try_clone()?,
            prefixes: object.map("prefixes")?.try_clone()?,
            counters: object.map("counters")?.try_clone()?,
        })
    }

    fn seed(&self) -> Seed {
        Seed(self.sizes.seed)
    }

    fn set(&self, offset: usize, value: u32) {
        if let Some(word) = self.control.half(0, offset) {
            word.store(value, Release);
        }
    }

    /// Sets the ports whose datagrams are telemetry, at most eight, as (port, listener number).
    pub fn set_ports(&self, ports: &[(u16, u16)]) {
        let mut listed = [(0_u16, 0_u16); 8];
        listed
            .iter_mut()
            .zip(ports)
            .for_each(|(slot, port)| *slot = *port);
        for (at, two) in listed.chunks_exact(2).enumerate() {
            let [(port, listener), (next_port, next_listener)] = [two[0], two[1]];
            self.set(
                control::PORTS + 4 + 4 * at,
                u32::from(port) | u32::from(next_port) << 16,
            );
            self.set(
                control::LISTENERS + 4 * at,
                u32::from(listener) | u32::from(next_listener) << 16,
            );
        }
        self.set(control::PORTS, ports.len().min(8) as u32);
    }

    /// Enables or disables tracking of sequence numbers.
    pub fn set_sequence(&self, on: bool) {
        self.set(control::SEQUENCE, u32::from(on));
    }

    /// Sets the profiles of sources: the default, and those of prefixes, at most 256 different ones.
    ///
    /// # Errors
    /// The system refused, or there are more profiles or prefixes than the tables can store.
    pub fn set_profiles(
        &self,
        default: (&wire::Profile, Units),
        listed: &[(Prefix, &wire::Profile, Units)],
    ) -> Result<(), Error> {
        let mut known = vec![profile(default.0, &default.1)];
        let first = 0_u32.to_ne_bytes();
        self.plans.update(&first, &plans(default.0.dialect))?;
        self.profiles.update(&first, &known[0])?;
        // Among equal prefixes the first one wins, so it is written last.
        for (prefix, wire, units) in listed.iter().rev() {
            let bytes = profile(wire, units);
            let number = known.iter().position(|other| *other == bytes);
            let at = number.unwrap_or(known.len()) as u32;
            if number.is_none() {
                self.profiles.update(&at.to_ne_bytes(), &bytes)?;
                known.push(bytes);
            }
            let (network, bits) = wide(prefix);
            let mut key = [0; layout::PREFIX_LEN];
            put(&mut key, 0, &(8 + bits).to_ne_bytes());
            key[4] = if prefix.is_v6() { 6 } else { 4 };
            put(&mut key, 5, &network);
            self.prefixes.update(&key, &at.to_ne_bytes())?;
        }
        self.set(control::PREFIXES, listed.len() as u32);
        Ok(())
    }

    /// Activates thresholds and rules, from the next report of each flow on. Returns where each rule runs. Leave a short pause
    /// between two calls: each overwrites the thresholds and rules that were active before the current ones.
    ///
    /// # Errors
    /// The system refused.
    pub fn set_detection(&self, what: &Detection) -> Result<Split, Error> {
        let split = Table::split(&what.rules);
        let Some(word) = self.control.word(0, control::GENERATION) else {
            return Ok(split);
        };
        let generation = (word.load(Acquire) as u32).wrapping_add(1);
        self.detection
            .update(&(generation & 1).to_ne_bytes(), &layout::encode(what, &split))?;
        let table = if split.table.rules == 0 {
            0
        } else {
            control::WATCHED_TABLE
        };
        let user = if split.user.is_empty() {
            0
        } else {
            control::WATCHED_USER
        };
        word.store(u64::from(generation) | u64::from(table | user) << 32, Release);
        Ok(split)
    }

    /// Returns the generation of the active thresholds and rules, which each [`Tables::set_detection`] increments.
    pub fn generation(&self) -> u32 {
        self.control.load(0, control::GENERATION, Acquire).unwrap_or(0) as u32
    }

    /// Returns the maximum number of records in the ring: no frame with a datagram is shorter than 42 bytes.
    pub fn records(&self) -> usize {
        self.sizes.ring as usize / (RING_HEADER + layout::RECORD_HEADER + 42)
    }

    /// Announces that the ring's reader is about to sleep, and needs a wake-up with the next record. The reader must check the
    /// ring once more before it sleeps, and sleep for some milliseconds at most.
    pub fn sleep(&self) {
        if let Some(word) = self.control.half(0, control::SLEEPING) {
            word.store(1, std::sync::atomic::Ordering::SeqCst);
        }
    }

    /// Announces that the ring's reader is awake.
    pub fn wake(&self) {
        self.set(control::SLEEPING, 0);
    }

    /// Returns the number of slots for flows.
    pub fn flow_slots(&self) -> usize {
        self.sizes.flow_buckets() as usize * WAYS
    }

    /// Returns the report count of the flow in a slot, modulo 2^32, which shows whether the flow must be read; `None` if the
    /// slot is free.
    pub fn reports_at(&self, slot: usize) -> Option<u32> {
        self.tag(slot).filter(|tag| *tag != 0)?;
        let small = self.flows.load(slot, flow::SMALL, Relaxed)?;
        Some((small >> 32) as u32)
    }

    fn tag(&self, slot: usize) -> Option<u16> {
        let word = self.tags.load(slot / WAYS, slot % WAYS / 4 * 8, Acquire)?;
        Some((word >> (slot % 4 * 16)) as u16)
    }

    fn key_at(&self, slot: usize) -> Option<[u64; 5]> {
        let mut key = [0; 5];
        for (at, word) in key.iter_mut().enumerate() {
            *word = self.flows.load(slot, at * 8, Relaxed)?;
        }
        Some(key)
    }

    /// Returns the flow in a slot, or `None` if the slot is free or being changed. After [`Tables::forget_path`] the flow has
    /// no path, but its reports still count.
    pub fn flow(&self, slot: usize) -> Option<FlowEntry> {
        self.tag(slot).filter(|tag| *tag != 0)?;
        let version = self.flows.load_half(slot, flow::VERSION, Acquire)?;
        let small = self.flows.load(slot, flow::SMALL, Relaxed)?;
        let level_2 = self.flows.load_half(slot, flow::LEVEL_2, Relaxed)?;
        let mut entry = FlowEntry {
            key: key_of(self.key_at(slot)?),
            reports: (small >> 32) as u32,
            path_length: small as u8,
            states: (small >> 8) as u8,
            basis: (small >> 24) as u8,
            reported: self.flows.load(slot, flow::REPORTED, Relaxed)?,
            latency: self.flows.load(slot, flow::LATEST, Relaxed)?,
            hops: [HopEntry::default(); FLOW_HOPS],
        };
        if version == 0 {
            entry.path_length = 0;
            entry.states = 0;
            entry.reported = u64::MAX;
            entry.latency = u64::MAX;
        }
        for (at, hop) in entry.hops.iter_mut().enumerate().take(usize::from(entry.states)) {
            let (memory, start) = match at.checked_sub(flow::NEAR_HOPS) {
                None => (&self.flows, flow::HOPS + at * flow::HOP_LEN),
                Some(far) => (&self.far, far * flow::HOP_LEN),
            };
            let ids = memory.load(slot, start, Relaxed)?;
            let latencies = memory.load(slot, start + 8, Relaxed)?;
            let others = memory.load(slot, start + 16, Relaxed)?;
            *hop = HopEntry {
                node: ids as u32,
                link: (ids >> 32) as u32,
                level_2: level_2 >> at & 1 == 1,
                reported: latencies as u32,
                latency: (latencies >> 32) as u32,
                queue: others as u32,
                utilization: (others >> 32) as u32,
            };
        }
        let is_there = self.tag(slot).is_some_and(|tag| tag != 0);
        (is_there && self.flows.load_half(slot, flow::VERSION, Acquire) == Some(version)).then_some(entry)
    }

    /// Removes a flow. Returns `false` if it was absent.
    pub fn forget_flow(&self, key: &FlowKey) -> bool {
        self.slot_of(key).is_some_and(|slot| self.clear_tag(slot))
    }

    /// Makes the kernel drop path, latency and reported values of a flow at its next report. Returns `false` if there are none.
    pub fn forget_path(&self, key: &FlowKey) -> bool {
        let version = self
            .slot_of(key)
            .and_then(|slot| self.flows.half(slot, flow::VERSION));
        version.is_some_and(|version| version.swap(0, AcqRel) != 0)
    }

    fn slot_of(&self, key: &FlowKey) -> Option<usize> {
        let words = key_words(key);
        let buckets = self
            .seed()
            .flow_buckets(&words, self.sizes.flow_buckets() as usize);
        let mut slots = buckets
            .into_iter()
            .flat_map(|bucket| bucket * WAYS..(bucket + 1) * WAYS);
        slots.find(|slot| self.tag(*slot).is_some_and(|tag| tag != 0) && self.key_at(*slot) == Some(words))
    }

    fn clear_tag(&self, slot: usize) -> bool {
        let Some(word) = self.tags.word(slot / WAYS, slot % WAYS / 4 * 8) else {
            return false;
        };
        word.fetch_and(!(0xffff << (slot % 4 * 16)), AcqRel);
        true
    }

    fn node_metrics(&self, metric: Metric) -> Option<(&Mapped, usize)> {
        let [queues, links] = [self.sizes.queues, self.sizes.links].map(Sizes::metric_buckets);
        match metric {
            Metric::QueueOccupancy => Some((&self.node_metrics[0], queues as usize)),
            Metric::QueueCongestion => Some((&self.node_metrics[1], queues as usize)),
            Metric::LinkUtilization => Some((&self.node_metrics[2], links as usize)),
            _ => None,
        }
    }

    /// Returns the number of slots for values of a node metric.
    pub fn metric_slots(&self, metric: Metric) -> usize {
        self.node_metrics(metric)
            .map_or(0, |(_, buckets)| buckets * METRIC_WAYS)
    }

    /// Returns the value in a slot, or `None` if the slot is free.
    pub fn metric_entry(&self, metric: Metric, slot: usize) -> Option<MetricEntry> {
        let (map, _) = self.node_metrics(metric)?;
        let bucket = slot / METRIC_WAYS;
        let start = slot % METRIC_WAYS * slot::LEN;
        let reported = map
            .load(bucket, start + slot::REPORTED, Acquire)?
            .checked_sub(1)?;
        let key = map.load(bucket, start + slot::KEY, Acquire)?;
        let reports = map.load(bucket, start + slot::REPORTS, Acquire)? as u32;
        Some(MetricEntry {
            node: (key >> 32) as u32,
            part: key as u32,
            reported,
            latest: map.load(bucket, start + slot::LATEST, Acquire)?,
            reports,
        })
    }

    /// Removes a value of a node. Returns `false` if it was absent.
    pub fn forget_metric(&self, metric: Metric, node: u32, part: u32) -> bool {
        let Some((map, size)) = self.node_metrics(metric) else {
            return false;
        };
        let key = u64::from(node) << 32 | u64::from(part);
        for bucket in self.seed().metric_buckets(key, size) {
            for way in 0..METRIC_WAYS {
                let start = way * slot::LEN;
                if let Some(reported) = map.word(bucket, start + slot::REPORTED)
                    && reported.load(Acquire) != 0
                    && map.load(bucket, start + slot::KEY, Relaxed) == Some(key)
                {
                    reported.store(0, Release);
                    return true;
                }
            }
        }
        false
    }

    /// Returns the number of slots for streams.
    pub fn stream_slots(&self) -> usize {
        self.sizes.stream_slots() as usize + STREAM_WINDOW
    }

    /// Returns the stream in a slot, or `None` if the slot is free.
    pub fn stream(&self, slot: usize) -> Option<StreamEntry> {
        if !self.is_used(slot) {
            return None;
        }
        let key = self.streams.load(slot, stream::KEY, Relaxed)?;
        let run = self.streams.load(slot, stream::WORD, Relaxed)?;
        let mut source = [0; 16];
        for (at, half) in source.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *half = self
                .streams
                .load(slot, stream::SOURCE + 8 * at, Relaxed)?
                .to_ne_bytes();
        }
        Some(StreamEntry {
            version: (key >> 56) as u8 & 0x7f,
            hw_id: (key >> 48) as u8,
            listener: (key >> 32) as u16,
            node: (key & stream::NODELESS == 0).then_some(key as u32),
            source,
            latest: (run >> 32) as u32,
            same: run & stream::SAME != 0,
            count: (run & (stream::SAME - 1)) as u32,
        })
    }

    /// Returns the slot of the stream with the identity of `like` (its first five fields).
    pub fn stream_slot(&self, like: &StreamEntry) -> Option<usize> {
        let nodeless = if like.node.is_none() { stream::NODELESS } else { 0 };
        let key = u64::from(like.version) << 56
            | u64::from(like.hw_id) << 48
            | u64::from(like.listener) << 32
            | u64::from(like.node.unwrap_or(0))
            | nodeless;
        let source = if like.node.is_some() { [0; 16] } else { like.source };
        let (halves, _) = source.as_chunks::<8>();
        let source = [u64::from_ne_bytes(halves[0]), u64::from_ne_bytes(halves[1])];
        let start = self
            .seed()
            .stream(key, source, self.sizes.stream_slots() as usize);
        (start..start + STREAM_WINDOW).find(|&slot| {
            self.is_used(slot)
                && self.streams.load(slot, stream::KEY, Relaxed) == Some(key)
                && self.streams.load(slot, stream::SOURCE, Relaxed) == Some(source[0])
                && self.streams.load(slot, stream::SOURCE + 8, Relaxed) == Some(source[1])
        })
    }

    fn is_used(&self, slot: usize) -> bool {
        let used = self.streams.load_half(slot, stream::USED, Acquire);
        used.is_some_and(|used| used != 0)
    }

    /// Removes the stream in a slot, so that its next datagram is passed to user space.
    pub fn forget_stream(&self, slot: usize) {
        if let Some(used) = self.streams.half(slot, stream::USED) {
            used.store(0, Release);
        }
    }

    /// Returns the counters, summed over all CPUs.
    ///
    /// # Errors
    /// The system refused.
    pub fn counters(&self) -> Result<Counters, Error> {
        let mut sums = [0; Counters::LEN];
        self.counters.sum(&0_u32.to_ne_bytes(), &mut sums)?;
        Ok(Counters::read(&sums))
    }
}

const _: () = assert!(control::LEN == 56 && flow::LEN == 256 && stream::LEN == 64);
