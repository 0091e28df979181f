//! Positions of the metadata items in an INT record.
//!
//! A [`Layout`] is computed once per instruction bitmap, version and dialect, and cached, so that reading an item is one
//! load at a known offset. Raw accessors return all-ones if an item is absent or unavailable.

use crate::bytes::{put_u32, put_u64, try_u32, try_u64};
use crate::hop::{Hop, Items};
use crate::profile::Dialect;
use crate::refusal::Refusal;

/// Bits 4, 5 and 6, whose items have 8 bytes in INT 2.x.
const WIDE_BITS: u16 = 0x0e00;
/// Bits 4 and 5: timestamps.
const TIME_BITS: u16 = 0x0c00;
/// Bit 6: level-2 interfaces (0.5: queue congestion).
const L2_BIT: u16 = 0x0200;
/// Bit 15: checksum complement in INT, drop reason in reports.
const LAST_BIT: u16 = 0x0001;
/// Offset of an absent item, beyond the end of any record, so that bounds-checked reads return `None`.
const ABSENT: u8 = 0xff;
// Indices of `Layout::at`; the first eleven equal the bit numbers of `Items`.
const NODE: usize = 0;
const PORTS: usize = 1;
const LATENCY: usize = 2;
const QUEUE: usize = 3;
const INGRESS: usize = 4;
const EGRESS: usize = 5;
const L2: usize = 6;
const TX: usize = 7;
const BUFFER: usize = 8;
const CONGESTION: usize = 9;
const CHECKSUM: usize = 10;
const DROP: usize = 11;
const INT_2: Rules = Rules {
    wide_time: true,
    wide_l2: true,
    congestion: false,
    buffer: true,
    last: Some(CHECKSUM),
    node: true,
};
const INT_10: Rules = Rules {
    wide_time: false,
    buffer: false,
    ..INT_2
};
const INT_10_GEANT: Rules = Rules {
    wide_time: true,
    wide_l2: false,
    ..INT_10
};
const INT_10_GEN: Rules = Rules {
    wide_l2: false,
    ..INT_10
};
const INT_05: Rules = Rules {
    wide_l2: false,
    congestion: true,
    last: None,
    ..INT_10
};
const REPORT_2: Rules = Rules {
    node: false,
    last: Some(DROP),
    ..INT_2
};

/// Returns bit `k` of an instruction bitmap, counted from the most significant bit as in the specifications.
pub(crate) const fn bit(k: u32) -> u16 {
    0x8000 >> k
}

/// Sizes and meanings of instruction bits in an INT version or dialect.
#[derive(Clone, Copy)]
struct Rules {
    /// Timestamps have 8 bytes.
    wide_time: bool,
    /// Bit 6 has 8 bytes; otherwise 4 (two halves).
    wide_l2: bool,
    /// Bit 6 is queue congestion.
    congestion: bool,
    /// Bit 8 is buffer occupancy; otherwise unknown.
    buffer: bool,
    /// Item of bit 15, if it is defined.
    last: Option<usize>,
    /// Bit 0 is the node ID; otherwise skipped.
    node: bool,
}

/// The positions of the items in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    at: [u8; 12],
    carried: Items,
    words: u8,
    wide_ts: bool,
    wide_l2: bool,
    /// See [`Layout::reciprocal`].
    reciprocal: u32,
}

impl Layout {
    /// The layout of a record without items.
    pub const EMPTY: Self = Self {
        at: [ABSENT; 12],
        carried: Items(0),
        words: 0,
        wide_ts: false,
        wide_l2: false,
        reciprocal: 0,
    };

    /// The layout of the drop report header of Report 0.5.
    pub(crate) const DROP_05: Self = Self {
        words: 3,
        ..Self::EMPTY
    }
    .with(NODE, 0)
    .with(PORTS, 4)
    .with(DROP, 8);

    /// The layout of the switch-local report header of Report 0.5.
    pub(crate) const LOCAL_05: Self = Self {
        words: 4,
        ..Self::EMPTY
    }
    .with(NODE, 0)
    .with(PORTS, 4)
    .with(QUEUE, 8)
    .with(EGRESS, 12);

    /// Returns the layout of INT-MD 2.x records. With `domain`, domain-specific words may follow the baseline metadata.
    ///
    /// # Errors
    /// [`Refusal::BadHopMl`] if `hop_ml` contradicts the bitmap.
    pub fn int_2(bitmap: u16, hop_ml: u8, domain: bool) -> Result<Self, Refusal> {
        let base = words(bitmap, WIDE_BITS);
        let fits = if domain { hop_ml >= base } else { hop_ml == base };
        if !fits {
            return Err(Refusal::BadHopMl);
        }
        let mut layout = Self::build(bitmap, INT_2);
        if bitmap & LAST_BIT != 0 {
            // The checksum complement comes last, after the domain-specific words.
            layout.at[CHECKSUM] = (hop_ml - 1) * 4;
        }
        Ok(layout.with_words(hop_ml))
    }

    /// Returns the layout of INT 1.0 records: the one whose length is `hop_ml` words, by the dialect's preference if
    /// several fit.
    ///
    /// # Errors
    /// [`Refusal::BadHopMl`] if no layout has `hop_ml` words.
    pub fn int_10(bitmap: u16, hop_ml: u8, dialect: Dialect) -> Result<Self, Refusal> {
        let strict = (INT_10, words(bitmap, L2_BIT));
        let geant = (INT_10_GEANT, words(bitmap, TIME_BITS));
        let generator = (INT_10_GEN, words(bitmap, 0));
        let readings = match dialect {
            Dialect::Geant => [geant, strict, strict],
            Dialect::IntCollectorGen => [generator, strict, geant],
            _ => [strict, geant, geant],
        };
        let fitting = readings.into_iter().find(|(_, words)| *words == hop_ml);
        fitting
            .map(|(rules, _)| Self::build(bitmap, rules))
            .ok_or(Refusal::BadHopMl)
    }

    /// Returns the length of an INT 1.0 record in words: `hop_ml`, unless it counts items instead of words. The ONOS
    /// controller writes 8 for all eight items, although the level-2 interfaces take two words. In that case the length of
    /// the stack decides.
    #[inline]
    pub fn words_10(bitmap: u16, hop_ml: u8, stack_words: usize, dialect: Dialect) -> u8 {
        let wide = words_10(bitmap);
        if hop_ml == wide || hop_ml != words(bitmap, 0) {
            return hop_ml;
        }
        Self::words_10_by_length(bitmap, hop_ml, stack_words, dialect)
    }

    #[cold]
    fn words_10_by_length(bitmap: u16, hop_ml: u8, stack_words: usize, dialect: Dialect) -> u8 {
        let wide = words_10(bitmap);
        let as_said = stack_words.is_multiple_of(usize::from(hop_ml.max(1)))
            && Self::int_10(bitmap, hop_ml, dialect).is_ok();
        let prefers_wide = dialect == Dialect::Onos || !as_said;
        if prefers_wide && stack_words.is_multiple_of(usize::from(wide)) {
            wide
        } else {
            hop_ml
        }
    }

    /// Returns the layout of records of INT 0.5.
    pub fn int_05(bitmap: u16) -> Self {
        Self::build(bitmap, INT_05)
    }

    /// Returns the layout of Report 2.0's main metadata. Domain-specific words follow it and are not included.
    pub fn report_20(bits: u16) -> Self {
        Self::build(bits, REPORT_2)
    }

    /// Returns the layout of Report 1.0's optional metadata: six bits, most significant first.
    pub fn report_10(bits: u8) -> Self {
        const ORDER: [usize; 6] = [PORTS, LATENCY, QUEUE, EGRESS, DROP, TX];
        let mut layout = Self::EMPTY;
        let mut offset = 0;
        for (k, item) in ORDER.into_iter().enumerate() {
            if bits & (0x20 >> k) != 0 {
                layout = layout.with(item, offset);
                offset += 4;
            }
        }
        layout.with_words(offset / 4)
    }

    fn build(bitmap: u16, rules: Rules) -> Self {
        let mut layout = Self {
            wide_ts: rules.wide_time,
            wide_l2: rules.wide_l2,
            ..Self::EMPTY
        };
        let mut offset = 0;
        for k in 0..16 {
            if bitmap & bit(k) == 0 {
                continue;
            }
            let item = match k {
                0 if !rules.node => None,
                6 if rules.congestion => Some(CONGESTION),
                8 if !rules.buffer => None,
                0..=8 => Some(k as usize),
                15 => rules.last,
                _ => None,
            };
            if let Some(item) = item {
                layout = layout.with(item, offset);
            }
            offset += match k {
                4 | 5 if rules.wide_time => 8,
                6 if rules.wide_l2 => 8,
                _ => 4,
            };
        }
        layout.with_words(offset / 4)
    }

    const fn with(mut self, item: usize, offset: u8) -> Self {
        self.at[item] = offset;
        self.carried.0 |= 1 << item;
        self
    }

    fn with_words(mut self, words: u8) -> Self {
        self.words = words;
        self.reciprocal = 0x1_0000_u32.div_ceil(u32::from(words.max(1)));
        self
    }

    /// Returns the length of a record in words.
    #[inline]
    pub fn words(&self) -> u8 {
        self.words
    }

    /// Returns the length of a record in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.words) * 4
    }

    /// Returns whether records are empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words == 0
    }

    /// Returns the items of a record.
    #[inline]
    pub fn carried(&self) -> Items {
        if self.at[DROP] == ABSENT {
            return self.carried;
        }
        let named = Items(self.carried.0 & !(1 << DROP));
        if named.contains(Items::QUEUE) {
            named
        } else {
            Items(named.0 | Items::QUEUE_ID.0)
        }
    }

    /// Returns the offset of an item in 4-byte words, or 63, beyond any record, if the record does not have it. For callers
    /// that read many records of one layout.
    #[inline(always)]
    pub fn word_of(&self, item: Items) -> usize {
        usize::from(self.at[item.0.trailing_zeros() as usize % self.at.len()]) / 4
    }

    /// Returns whether level-2 interfaces are two words rather than two halves of one.
    #[inline]
    pub fn wide_l2(&self) -> bool {
        self.wide_l2
    }

    /// Returns whether timestamps are 64 bits wide.
    #[inline]
    pub fn wide_ts(&self) -> bool {
        self.wide_ts
    }

    /// Returns `ceil(2^16 / words)`, which replaces a division by the words of a record: `n * reciprocal >> 16` is `n / words` for
    /// n up to 255 and words up to 31.
    #[inline]
    pub fn reciprocal(&self) -> u32 {
        self.reciprocal
    }

    /// Returns how many records fit into `stack_words`.
    #[inline]
    pub fn records(&self, stack_words: usize) -> usize {
        (stack_words * self.reciprocal as usize) >> 16
    }

    #[inline]
    fn word(&self, record: &[u8], item: usize) -> u32 {
        try_u32(record, usize::from(self.at[item])).unwrap_or(u32::MAX)
    }

    #[inline]
    fn long(&self, record: &[u8], item: usize) -> u64 {
        try_u64(record, usize::from(self.at[item])).unwrap_or(u64::MAX)
    }

    #[inline]
    fn stamp(&self, record: &[u8], item: usize) -> u64 {
        if self.wide_ts {
            return self.long(record, item);
        }
        match self.word(record, item) {
            u32::MAX => u64::MAX,
            stamp => u64::from(stamp),
        }
    }

    /// Returns the node ID; all-ones if absent or unavailable.
    #[inline]
    pub fn node_id(&self, record: &[u8]) -> u32 {
        self.word(record, NODE)
    }

    /// Returns the ingress interface (high half) and egress interface (low half); each 0xFFFF if absent or unavailable.
    #[inline]
    pub fn interfaces(&self, record: &[u8]) -> u32 {
        self.word(record, PORTS)
    }

    /// Returns the hop latency; all-ones if absent or unavailable.
    #[inline]
    pub fn hop_latency(&self, record: &[u8]) -> u32 {
        self.word(record, LATENCY)
    }

    /// Returns the queue ID (high 8 bits) and occupancy (low 24 bits); all-ones if absent or unavailable.
    #[inline]
    pub fn queue(&self, record: &[u8]) -> u32 {
        self.word(record, QUEUE)
    }

    /// Returns the ingress timestamp; `u64::MAX` if absent or unavailable, whatever its width.
    #[inline]
    pub fn ingress_ts(&self, record: &[u8]) -> u64 {
        self.stamp(record, INGRESS)
    }

    /// Returns the egress timestamp; `u64::MAX` if absent or unavailable, whatever its width.
    #[inline]
    pub fn egress_ts(&self, record: &[u8]) -> u64 {
        self.stamp(record, EGRESS)
    }

    /// Returns the level-2 ingress interface (high half) and egress interface (low half); each 0xFFFF_FFFF if absent or
    /// unavailable.
    #[inline]
    pub fn l2_interfaces(&self, record: &[u8]) -> u64 {
        if self.wide_l2 {
            return self.long(record, L2);
        }
        let both = self.word(record, L2);
        let [high, low] = [both >> 16, both & 0xffff].map(|half| match half {
            0xffff => 0xffff_ffff,
            half => u64::from(half),
        });
        high << 32 | low
    }

    /// Returns the egress utilization; all-ones if absent or unavailable.
    #[inline]
    pub fn tx_utilization(&self, record: &[u8]) -> u32 {
        self.word(record, TX)
    }

    /// Returns the buffer ID (high 8 bits) and occupancy (low 24 bits); all-ones if absent or unavailable.
    #[inline]
    pub fn buffer(&self, record: &[u8]) -> u32 {
        self.word(record, BUFFER)
    }

    /// Returns INT 0.5's queue ID (high 8 bits) and congestion status (low 24 bits); all-ones if absent or unavailable.
    #[inline]
    pub fn queue_congestion(&self, record: &[u8]) -> u32 {
        self.word(record, CONGESTION)
    }

    /// Returns the checksum complement; all-ones if it is absent or the hop updated the checksum itself.
    #[inline]
    pub fn checksum_complement(&self, record: &[u8]) -> u32 {
        self.word(record, CHECKSUM)
    }

    /// Returns whether a report's record has the word with queue ID and drop reason.
    #[inline]
    pub fn has_drop(&self) -> bool {
        self.at[DROP] != ABSENT
    }

    /// Returns a report's queue ID (high 8 bits) and drop reason (next 8 bits); all-ones if absent or unavailable.
    #[inline]
    pub fn drop_word(&self, record: &[u8]) -> u32 {
        self.word(record, DROP)
    }

    /// Decodes all items of a record.
    pub fn hop(&self, record: &[u8]) -> Hop {
        let carried = self.carried();
        let node = self.node_id(record);
        let (ingress_if, egress_if) = split16(self.interfaces(record));
        let (queue_id, queue_occupancy) = split24(self.queue(record));
        let (congestion_queue_id, queue_congestion) = split24(self.queue_congestion(record));
        let (buffer_id, buffer_occupancy) = split24(self.buffer(record));
        let drop_queue_id = present(self.drop_word(record)).map(|word| (word >> 24) as u8);
        let (l2_ingress_if, l2_egress_if) = split32(self.l2_interfaces(record));
        Hop {
            carried,
            node_id: present(node),
            ingress_if,
            egress_if,
            hop_latency: present(self.hop_latency(record)),
            latency_in_ns: false,
            queue_id: queue_id.or(congestion_queue_id).or(drop_queue_id),
            congestion_queue_id,
            drop_queue_id,
            queue_occupancy,
            queue_congestion,
            ingress_ts: present64(self.ingress_ts(record)),
            egress_ts: present64(self.egress_ts(record)),
            wide_ts: self.wide_ts,
            l2_ingress_if,
            l2_egress_if,
            tx_utilization: present(self.tx_utilization(record)),
            buffer_id,
            buffer_occupancy,
            checksum_complement: carried
                .contains(Items::CHECKSUM_COMPLEMENT)
                .then(|| self.checksum_complement(record)),
        }
    }

    /// Writes the items of `hop` into `record`, with all-ones for missing values. Leaves bytes that belong to no item
    /// (reserved bits, domain-specific words) unchanged.
    ///
    /// # Panics
    /// If `record` is shorter than [`Layout::len`].
    pub fn write(&self, hop: &Hop, record: &mut [u8]) {
        let record = &mut record[..self.len()];
        let congested = hop.congestion_queue_id.or(hop.queue_id);
        self.put(record, NODE, hop.node_id.unwrap_or(u32::MAX));
        self.put(record, PORTS, join16(hop.ingress_if, hop.egress_if));
        self.put(record, LATENCY, hop.hop_latency.unwrap_or(u32::MAX));
        self.put(record, QUEUE, join24(hop.queue_id, hop.queue_occupancy));
        self.put(record, CONGESTION, join24(congested, hop.queue_congestion));
        self.put(record, TX, hop.tx_utilization.unwrap_or(u32::MAX));
        self.put(record, BUFFER, join24(hop.buffer_id, hop.buffer_occupancy));
        self.put(record, CHECKSUM, hop.checksum_complement.unwrap_or(u32::MAX));
        self.write_wide(hop, record);
    }

    /// Writes the word of an item, if this layout has it.
    #[inline]
    fn put(&self, record: &mut [u8], item: usize, value: u32) {
        if self.at[item] != ABSENT {
            put_u32(record, usize::from(self.at[item]), value);
        }
    }

    fn write_wide(&self, hop: &Hop, record: &mut [u8]) {
        for (item, stamp) in [(INGRESS, hop.ingress_ts), (EGRESS, hop.egress_ts)] {
            let at = usize::from(self.at[item]);
            if self.at[item] == ABSENT {
                continue;
            } else if self.wide_ts {
                put_u64(record, at, stamp.unwrap_or(u64::MAX));
            } else {
                put_u32(record, at, stamp.map_or(u32::MAX, |stamp| stamp as u32));
            }
        }
        let at = usize::from(self.at[L2]);
        if self.at[L2] != ABSENT && self.wide_l2 {
            put_u32(record, at, hop.l2_ingress_if.unwrap_or(u32::MAX));
            put_u32(record, at + 4, hop.l2_egress_if.unwrap_or(u32::MAX));
        } else if self.at[L2] != ABSENT {
            let [ingress, egress] =
                [hop.l2_ingress_if, hop.l2_egress_if].map(|port| port.map(|port| port as u16));
            put_u32(record, at, join16(ingress, egress));
        }
    }

    /// Writes a report's word with queue ID and drop reason, if this layout has it.
    ///
    /// # Panics
    /// If `record` is shorter than [`Layout::len`].
    pub fn write_drop(&self, queue_id: Option<u8>, reason: Option<u8>, record: &mut [u8]) {
        if self.at[DROP] == ABSENT {
            return;
        }
        let word = match (queue_id, reason) {
            (None, None) => u32::MAX,
            // The queue ID is in the queue item, so this word was unavailable as a whole.
            (Some(_), None) if self.at[QUEUE] != ABSENT => u32::MAX,
            (queue, reason) => u32::from(queue.unwrap_or(0)) << 24 | u32::from(reason.unwrap_or(0)) << 16,
        };
        put_u32(&mut record[..self.len()], usize::from(self.at[DROP]), word);
    }
}

/// Returns the length of a record in words, where items of `wide` bits have two words and others one.
pub(crate) fn words(bitmap: u16, wide: u16) -> u8 {
    (bitmap.count_ones() + (bitmap & wide).count_ones()) as u8
}

/// Returns the length of the baseline metadata of INT 2.x and Report 2.0 in words.
pub fn words_2(bitmap: u16) -> u8 {
    words(bitmap, WIDE_BITS)
}

/// Returns the length of an INT 1.0 record in words, as specified.
pub fn words_10(bitmap: u16) -> u8 {
    words(bitmap, L2_BIT)
}

#[inline]
fn present(word: u32) -> Option<u32> {
    (word != u32::MAX).then_some(word)
}

#[inline]
fn present64(word: u64) -> Option<u64> {
    (word != u64::MAX).then_some(word)
}

fn split16(word: u32) -> (Option<u16>, Option<u16>) {
    let [high, low] = [(word >> 16) as u16, word as u16].map(|half| (half != u16::MAX).then_some(half));
    (high, low)
}

fn split24(word: u32) -> (Option<u8>, Option<u32>) {
    match present(word) {
        Some(word) => (Some((word >> 24) as u8), Some(word & 0x00ff_ffff)),
        None => (None, None),
    }
}

fn split32(long: u64) -> (Option<u32>, Option<u32>) {
    (present((long >> 32) as u32), present(long as u32))
}

fn join16(high: Option<u16>, low: Option<u16>) -> u32 {
    u32::from(high.unwrap_or(u16::MAX)) << 16 | u32::from(low.unwrap_or(u16::MAX))
}

/// Packs an 8-bit ID and a 24-bit value. Without a value the pair is unavailable whatever the ID, because all-ones in the
/// lower 24 bits alone would be a value. Clamps the value to the largest one that does not mean "unavailable".
fn join24(id: Option<u8>, value: Option<u32>) -> u32 {
    let Some(value) = value else { return u32::MAX };
    let pair = u32::from(id.unwrap_or(0)) << 24 | value.min(0x00ff_ffff);
    pair.min(u32::MAX - 1)
}

/// Cache of the two most recent layouts: a source rarely changes its instructions.
#[derive(Clone, Debug)]
pub(crate) struct Layouts {
    int: (u64, Layout),
    metadata: (u64, Layout),
}

impl Layouts {
    pub(crate) const fn new() -> Self {
        Self {
            int: (u64::MAX, Layout::EMPTY),
            metadata: (u64::MAX, Layout::EMPTY),
        }
    }

    /// Returns the layout of INT 2.x records.
    #[inline]
    pub(crate) fn int_2(&mut self, bitmap: u16, hop_ml: u8, domain: bool) -> Result<&Layout, Refusal> {
        let key = 2 << 32 | u64::from(domain) << 24 | u64::from(hop_ml) << 16 | u64::from(bitmap);
        if self.int.0 != key {
            renew(&mut self.int, key, || Layout::int_2(bitmap, hop_ml, domain))?;
        }
        Ok(&self.int.1)
    }

    /// Returns the layout of INT 1.0 records.
    #[inline]
    pub(crate) fn int_10(&mut self, bitmap: u16, hop_ml: u8, dialect: Dialect) -> Result<&Layout, Refusal> {
        let key = key_10(bitmap, hop_ml, dialect);
        if self.int.0 != key {
            renew(&mut self.int, key, || Layout::int_10(bitmap, hop_ml, dialect))?;
        }
        Ok(&self.int.1)
    }

    /// Returns the layout of INT 1.0 records with a number that identifies it, or `None` if there is none.
    #[inline(always)]
    pub(crate) fn int_10_shaped(
        &mut self,
        bitmap: u16,
        hop_ml: u8,
        dialect: Dialect,
    ) -> Option<(u64, &Layout)> {
        let key = key_10(bitmap, hop_ml, dialect);
        if self.int.0 != key {
            renew(&mut self.int, key, || Layout::int_10(bitmap, hop_ml, dialect)).ok()?;
        }
        Some((key, &self.int.1))
    }

    /// Returns the layout of INT 2.x records without domain-specific words, with a number that identifies it, or `None` if
    /// there is none.
    pub(crate) fn int_2_shaped(&mut self, bitmap: u16, hop_ml: u8) -> Option<(u64, &Layout)> {
        self.int_2(bitmap, hop_ml, false).ok()?;
        Some((self.int.0, &self.int.1))
    }

    /// Returns the layout of INT 0.5 records.
    #[inline]
    pub(crate) fn int_05(&mut self, bitmap: u16) -> &Layout {
        let key = u64::from(bitmap);
        if self.int.0 != key {
            self.int = (key, Layout::int_05(bitmap));
        }
        &self.int.1
    }

    /// Returns the layout of Report 2.0's main metadata.
    #[inline]
    pub(crate) fn report_20(&mut self, bits: u16) -> &Layout {
        let key = 2 << 32 | u64::from(bits);
        if self.metadata.0 != key {
            self.metadata = (key, Layout::report_20(bits));
        }
        &self.metadata.1
    }

    /// Returns the layout of Report 1.0's optional metadata.
    #[inline]
    pub(crate) fn report_10(&mut self, bits: u8) -> &Layout {
        let key = 1 << 32 | u64::from(bits);
        if self.metadata.0 != key {
            self.metadata = (key, Layout::report_10(bits));
        }
        &self.metadata.1
    }
}

#[inline(always)]
fn key_10(bitmap: u16, hop_ml: u8, dialect: Dialect) -> u64 {
    1 << 32 | (dialect as u64) << 24 | u64::from(hop_ml) << 16 | u64::from(bitmap)
}

#[cold]
#[inline(never)]
fn renew(
    entry: &mut (u64, Layout),
    key: u64,
    layout: impl FnOnce() -> Result<Layout, Refusal>,
) -> Result<(), Refusal> {
    *entry = (key, layout()?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(layout: Layout, hop: Hop) -> Hop {
        let mut record = [0xa5; 124];
        layout.write(&hop, &mut record);
        layout.hop(&record[..layout.len()])
    }

    #[test]
    fn words_per_hop_are_those_of_the_specification() {
        for bitmap in 0..=u16::MAX {
            let one = bitmap.count_ones();
            let count = |wide: u16| (one + (bitmap & wide).count_ones()) as u8;
            assert_eq!(u32::from(Layout::int_05(bitmap).words()), one);
            assert_eq!(
                Layout::int_2(bitmap, count(0x0e00), false).map(|l| l.words()),
                Ok(count(0x0e00))
            );
            let strict = Layout::int_10(bitmap, count(0x0200), Dialect::Strict);
            assert_eq!(strict.map(|l| l.words()), Ok(count(0x0200)));
            let geant = Layout::int_10(bitmap, count(0x0c00), Dialect::Geant);
            assert_eq!(geant.map(|l| l.words()), Ok(count(0x0c00)));
            let generator = Layout::int_10(bitmap, count(0), Dialect::IntCollectorGen);
            assert_eq!(generator.map(|l| l.words()), Ok(count(0)));
            assert_eq!(Layout::report_20(bitmap).words(), count(0x0e00));
        }
    }

    #[test]
    fn dividing_by_multiplying_is_dividing() {
        for words in 1..=31 {
            let layout = Layout::EMPTY.with_words(words);
            for n in 0..=255 {
                assert_eq!(layout.records(n), n / usize::from(words), "{n} / {words}");
            }
        }
    }

    #[test]
    fn an_id_without_a_value_is_written_as_unavailable() {
        let layout = Layout::int_05(0x1000);
        let got = written(
            layout,
            Hop {
                queue_id: Some(3),
                queue_occupancy: None,
                ..Hop::default()
            },
        );
        assert_eq!((got.queue_id, got.queue_occupancy), (None, None));
    }

    #[test]
    fn a_value_that_is_too_large_is_never_written_as_unavailable() {
        let layout = Layout::int_05(0x1000);
        let hop = |id, value| Hop {
            queue_id: Some(id),
            queue_occupancy: Some(value),
            ..Hop::default()
        };
        let read = |got: Hop| (got.queue_id, got.queue_occupancy);
        assert_eq!(
            read(written(layout, hop(3, 0x0100_0000))),
            (Some(3), Some(0x00ff_ffff))
        );
        assert_eq!(
            read(written(layout, hop(0xff, u32::MAX))),
            (Some(0xff), Some(0x00ff_fffe))
        );
    }

    #[test]
    fn each_item_keeps_the_id_of_its_queue() {
        let layout = Layout::int_05(0x1200);
        let hop = layout.hop(&[0xff, 0, 0, 9, 0, 0xff, 0xff, 0xff]);
        let queues = (hop.queue_id, hop.congestion_queue_id, hop.drop_queue_id);
        assert_eq!(queues, (Some(0xff), Some(0), None));
        assert_eq!(
            (hop.queue_occupancy, hop.queue_congestion),
            (Some(9), Some(0x00ff_ffff))
        );
        assert_eq!(written(layout, hop), hop);
        let drop = Layout::report_10(0x0a).hop(&[2, 0, 0, 100, 5, 71, 0, 0]);
        let queues = (drop.queue_id, drop.congestion_queue_id, drop.drop_queue_id);
        assert_eq!(queues, (Some(2), None, Some(5)));
    }

    #[test]
    fn bytes_of_no_item_stay_as_they_are() {
        // Node id, a reserved bit, a domain word, the checksum complement.
        let layout = Layout::int_2(0x8041, 4, true).expect("good");
        let mut record = [0xa5; 16];
        layout.write(
            &Hop {
                node_id: Some(1),
                checksum_complement: Some(2),
                ..Hop::default()
            },
            &mut record,
        );
        assert_eq!(
            record,
            [
                0, 0, 0, 1, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0, 0, 0, 2
            ]
        );
    }

    #[test]
    fn layouts_are_cached_by_everything_they_depend_on() {
        let mut layouts = Layouts::new();
        let strict = *layouts.int_10(0x8a00, 4, Dialect::Strict).expect("good");
        let geant = *layouts.int_10(0x8a00, 4, Dialect::Geant).expect("good");
        let domain = *layouts.int_2(0x8000, 1, true).expect("good");
        assert_ne!(strict, geant);
        assert_eq!(layouts.int_2(0xc000, 1, false), Err(Refusal::BadHopMl));
        assert_eq!(
            layouts.int_2(0x8000, 1, true),
            Ok(&domain),
            "a refusal leaves what was kept"
        );
    }
}
