//! The register table: a set-associative array of fixed size, as in a switch. If all ways of a key's set are in use, the
//! oldest register is evicted and sent early, so no postcard waits for space or is lost.

use memory::age_list::{AgeLink, AgeList, Aged};
use wire::aggregate::{Summary, SummaryMetric};

use super::config::Config;
use super::postcard::Postcard;

/// Key of a free register. A postcard never has it, because its node or flow would be unknown.
pub(super) const FREE_KEY: u64 = u64::MAX;

/// A register without its datagram; one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Register {
    /// Arrival time of its first postcard, and links to the next older and newer registers.
    age: AgeLink,
    latency_sum: u64,
    queue_sum: u64,
    latency: Range,
    queue: Range,
    pub(super) count: u32,
}

const _: () = assert!(size_of::<Register>() == 64);

/// Minimum, maximum and number of values.
#[derive(Clone, Copy, Debug)]
struct Range {
    min: u32,
    max: u32,
    count: u32,
}

impl Range {
    const NEW: Self = Self {
        min: u32::MAX,
        max: 0,
        count: 0,
    };

    /// Adds a value to the range and to `sum`. Returns the number of missing values: 0 or 1.
    #[inline(always)]
    fn add(&mut self, sum: &mut u64, value: Option<u32>) -> u64 {
        let Some(value) = value else { return 1 };
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.count += 1;
        *sum += u64::from(value);
        0
    }

    fn summary(&self, metric: SummaryMetric, sum: u64) -> Option<Summary> {
        (self.count > 0).then_some(Summary {
            metric,
            min: self.min,
            max: self.max,
            sum,
            count: self.count,
        })
    }
}

impl Register {
    const EMPTY: Self = Self {
        age: AgeLink::NONE,
        latency_sum: 0,
        queue_sum: 0,
        latency: Range::NEW,
        queue: Range::NEW,
        count: 0,
    };

    /// Adds a postcard's values and returns how many were missing. The caller increments `count`.
    #[inline(always)]
    pub(super) fn add(&mut self, postcard: &Postcard) -> u64 {
        self.latency.add(&mut self.latency_sum, postcard.hop_latency())
            + self.queue.add(&mut self.queue_sum, postcard.queue_length())
    }

    /// Returns a summary for each metric with at least one value.
    pub(super) fn summaries(&self) -> impl Iterator<Item = Summary> {
        let latency = self.latency.summary(SummaryMetric::HopLatency, self.latency_sum);
        let queue = self.queue.summary(SummaryMetric::QueueLength, self.queue_sum);
        latency.into_iter().chain(queue)
    }
}

impl Aged for Register {
    #[inline(always)]
    fn age_link(&mut self) -> &mut AgeLink {
        &mut self.age
    }
}

/// The slot for a new key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slot {
    /// The register is free.
    Free(u32),
    /// The register in the slot must be sent first.
    Evict(u32),
}

/// All registers, indexed by a hash of the key.
#[derive(Debug)]
pub(super) struct Table {
    keys: Vec<u64>,
    registers: Vec<Register>,
    /// Datagrams under construction: space for a header, then the postcards.
    bytes: Vec<u8>,
    stride: usize,
    ways: usize,
    /// Mask of the bucket index.
    mask: usize,
    waiting: AgeList,
    pub(super) occupied: u64,
}

impl Table {
    pub(super) fn new(config: &Config) -> Self {
        let slots = config.slots();
        let stride = config.stride();
        let ways = if config.kind.node_scope() { config.ways } else { 1 };
        let mut registers = Vec::with_capacity(slots);
        memory::advise_huge(&registers);
        registers.resize(slots, Register::EMPTY);
        let mut bytes = Vec::with_capacity(slots * stride);
        memory::advise_huge(&bytes);
        bytes.resize(slots * stride, 0);
        Self {
            keys: vec![FREE_KEY; slots],
            registers,
            bytes,
            stride,
            ways,
            mask: slots / ways - 1,
            waiting: AgeList::EMPTY,
            occupied: 0,
        }
    }

    /// Returns the first slot of a key's set.
    #[inline(always)]
    pub(super) fn bucket(&self, key: u64) -> u32 {
        ((wire::flow::crc_32c_of(key) as usize & self.mask) * self.ways) as u32
    }

    #[inline(always)]
    pub(super) fn prefetch_keys(&self, bucket: u32) {
        memory::prefetch(&self.keys[bucket as usize]);
    }

    /// Prefetches the register of `key`.
    #[inline(always)]
    pub(super) fn prefetch(&self, bucket: u32, key: u64) {
        let slot = self.find(bucket, key).unwrap_or(bucket);
        memory::prefetch(&self.registers[slot as usize]);
    }

    /// Prefetches the place of a register's next postcard.
    #[inline(always)]
    pub(super) fn prefetch_bytes(&self, slot: u32, head: usize, postcard_len: usize) {
        let at =
            slot as usize * self.stride + head + self.registers[slot as usize].count as usize * postcard_len;
        if let Some(byte) = self.bytes.get(at) {
            memory::prefetch(byte);
        }
    }

    /// Returns the slot of a key, or `None` if it has no register.
    #[inline(always)]
    pub(super) fn find(&self, bucket: u32, key: u64) -> Option<u32> {
        let first = bucket as usize;
        let ways = &self.keys[first..first + self.ways];
        ways.iter()
            .position(|other| *other == key)
            .map(|way| bucket + way as u32)
    }

    /// Returns a free slot of this set, or the slot whose first postcard has waited longest, to be evicted.
    pub(super) fn slot_for_new(&self, bucket: u32) -> Slot {
        if let Some(slot) = self.find(bucket, FREE_KEY) {
            return Slot::Free(slot);
        }
        let ways = bucket..bucket + self.ways as u32;
        let oldest = ways.min_by_key(|slot| self.registers[*slot as usize].age.since);
        Slot::Evict(oldest.unwrap_or(bucket))
    }

    /// Assigns a free register to a key.
    #[inline(always)]
    pub(super) fn claim(&mut self, slot: u32, key: u64, now: u64) {
        self.keys[slot as usize] = key;
        self.registers[slot as usize] = Register::EMPTY;
        self.waiting.push(&mut self.registers, slot as usize, now);
        self.occupied += 1;
    }

    #[inline(always)]
    pub(super) fn release(&mut self, slot: u32) {
        self.keys[slot as usize] = FREE_KEY;
        self.registers[slot as usize].count = 0;
        self.waiting.remove(&mut self.registers, slot as usize);
        self.occupied -= 1;
    }

    /// Returns the slot whose first postcard has waited longest, and that postcard's arrival time, ns.
    #[inline]
    pub(super) fn oldest(&self) -> Option<(u32, u64)> {
        let oldest = self.waiting.oldest();
        let register = self.registers.get(oldest)?;
        Some((oldest as u32, register.age.since))
    }

    #[inline(always)]
    pub(super) fn key(&self, slot: u32) -> u64 {
        self.keys[slot as usize]
    }

    #[inline(always)]
    pub(super) fn register(&mut self, slot: u32) -> &mut Register {
        &mut self.registers[slot as usize]
    }

    /// Returns a register's datagram under construction.
    #[inline(always)]
    pub(super) fn bytes(&mut self, slot: u32) -> &mut [u8] {
        &mut self.bytes[slot as usize * self.stride..][..self.stride]
    }
}
