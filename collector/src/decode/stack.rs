//! Reads the hops of an INT stack in place, without decoding them: a [`Plan`] with the offsets and units of the items is
//! computed once per record layout, and common layouts have code with constant offsets.

use wire::{Items, Layout};

use super::NO_VALUE;
use super::clock::{between, mark_implausible};
use super::head::Head;
use super::reading::{ABSENT, EndTimestamps, Hops, Reading, egress, scaled};
use super::shapes::Shapes;
use crate::config::Units;

/// Words of the longest record that is read in place (all items of INT 2.1).
pub(crate) const WIDEST_RECORD: u8 = 13;

/// The hops of an INT stack with records of `W` words, read in place. In the stack the last hop comes first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stacked<'a, P, const W: usize> {
    records: &'a [[[u8; 4]; W]],
    plan: &'a Plan,
    places: P,
}

/// Word offset of each item in a record; beyond the end of the record for absent items.
pub(crate) trait ItemOffsets: Copy {
    fn node(self) -> usize;
    fn link(self) -> usize;
    fn latency(self) -> usize;
    /// Returns the offset of the ingress timestamp, or of its upper half.
    fn ingress(self) -> usize;
    fn queue(self) -> usize;
    fn congestion(self) -> usize;
    fn utilization(self) -> usize;
    /// Returns true if `link` is the level-2 egress interface.
    fn level_2(self) -> bool;
    /// Returns true if the record may have level-2 interfaces in addition to `link`.
    fn may_have_both_levels(self) -> bool {
        true
    }
    /// Returns true if the record has both timestamps, from which an unreported latency is computed.
    fn by_stamps(self) -> bool;
}

impl ItemOffsets for &Plan {
    #[inline(always)]
    fn node(self) -> usize {
        self.node.into()
    }
    #[inline(always)]
    fn link(self) -> usize {
        self.link.into()
    }
    #[inline(always)]
    fn latency(self) -> usize {
        self.latency.into()
    }
    #[inline(always)]
    fn ingress(self) -> usize {
        self.stamps.0.into()
    }
    #[inline(always)]
    fn queue(self) -> usize {
        self.queue.into()
    }
    #[inline(always)]
    fn congestion(self) -> usize {
        self.congestion.into()
    }
    #[inline(always)]
    fn utilization(self) -> usize {
        self.utilization.into()
    }
    #[inline(always)]
    fn level_2(self) -> bool {
        self.level_2
    }
    #[inline(always)]
    fn by_stamps(self) -> bool {
        self.by_stamps
    }
}

/// Records of `W` words with exactly these items of the INT 1.0 bitmap, one word each. Constant offsets make constant loads, so
/// that a record with few items is read as fast as one with all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed<const W: usize, const ITEMS: u16>;

/// Bits of the INT 1.0 instruction bitmap.
mod bit {
    pub(super) const NODE: u16 = 0x8000;
    pub(super) const LINK: u16 = 0x4000;
    pub(super) const LATENCY: u16 = 0x2000;
    pub(super) const QUEUE: u16 = 0x1000;
    pub(super) const INGRESS: u16 = 0x0800;
    pub(super) const STAMPS: u16 = 0x0c00;
    pub(super) const UTILIZATION: u16 = 0x0100;
}

impl<const W: usize, const ITEMS: u16> Fixed<W, ITEMS> {
    /// Returns the offset of an item; `W` if it is absent.
    const fn offset(bit: u16) -> usize {
        if ITEMS & bit == 0 {
            return W;
        }
        // Items are in bitmap order, so the items before this one are the higher bits.
        (ITEMS & !(bit | (bit - 1))).count_ones() as usize
    }
}

impl<const W: usize, const ITEMS: u16> ItemOffsets for Fixed<W, ITEMS> {
    #[inline(always)]
    fn node(self) -> usize {
        const { Self::offset(bit::NODE) }
    }
    #[inline(always)]
    fn link(self) -> usize {
        const { Self::offset(bit::LINK) }
    }
    #[inline(always)]
    fn latency(self) -> usize {
        const { Self::offset(bit::LATENCY) }
    }
    #[inline(always)]
    fn ingress(self) -> usize {
        const { Self::offset(bit::INGRESS) }
    }
    #[inline(always)]
    fn queue(self) -> usize {
        const { Self::offset(bit::QUEUE) }
    }
    #[inline(always)]
    fn congestion(self) -> usize {
        W
    }
    #[inline(always)]
    fn utilization(self) -> usize {
        const { Self::offset(bit::UTILIZATION) }
    }
    #[inline(always)]
    fn level_2(self) -> bool {
        false
    }
    #[inline(always)]
    fn may_have_both_levels(self) -> bool {
        false
    }
    #[inline(always)]
    fn by_stamps(self) -> bool {
        ITEMS & bit::STAMPS == bit::STAMPS
    }
}

/// Returns true if the offsets of `plan`, in records of `words` words, equal `offsets`.
fn agrees(plan: &Plan, offsets: impl ItemOffsets, words: usize) -> bool {
    fn all(offsets: impl ItemOffsets, words: usize) -> ([usize; 7], bool, bool) {
        let items = [
            offsets.node(),
            offsets.link(),
            offsets.latency(),
            offsets.ingress(),
            offsets.queue(),
            offsets.congestion(),
            offsets.utilization(),
        ];
        (
            items.map(|offset| offset.min(words)),
            offsets.level_2(),
            offsets.by_stamps(),
        )
    }
    usize::from(plan.words) == words && all(plan, words) == all(offsets, words)
}

/// Calls a macro with (words, items) of all [`Fixed`] records that have specialized code.
macro_rules! fixed_records {
    ($call:ident) => {
        $call!((1 0x8000) (2 0xa000) (2 0x9000) (3 0xb000) (4 0xf000) (5 0xf100) (6 0xfc00))
    };
}
pub(crate) use fixed_records;

/// Returns the items if records of this plan are [`Fixed`], or 0.
fn fixed_items(plan: &Plan) -> u16 {
    macro_rules! search {
        ($(($words:literal $items:literal))*) => {
            $(if agrees(plan, Fixed::<$words, $items>, $words) {
                return $items;
            })*
        };
    }
    fixed_records!(search);
    0
}

/// Records with all items that INT 1.0 defines, as most devices are configured to send. The last word is the utilization.
#[derive(Clone, Copy, Debug)]
pub(crate) struct All<const W: usize>;

impl<const W: usize> All<W> {
    /// Returns true if `plan` has this layout.
    fn fits(plan: &Plan) -> bool {
        let words = [
            plan.node,
            plan.link,
            plan.latency,
            plan.queue,
            plan.stamps.0,
            plan.utilization,
        ];
        words.map(usize::from) == [0, 1, 2, 3, 4, W - 1]
            && !plan.level_2
            && usize::from(plan.words) == W
            && usize::from(plan.congestion) >= W
    }
}

impl<const W: usize> ItemOffsets for All<W> {
    #[inline(always)]
    fn by_stamps(self) -> bool {
        true
    }
    #[inline(always)]
    fn node(self) -> usize {
        0
    }
    #[inline(always)]
    fn link(self) -> usize {
        1
    }
    #[inline(always)]
    fn latency(self) -> usize {
        2
    }
    #[inline(always)]
    fn ingress(self) -> usize {
        4
    }
    #[inline(always)]
    fn queue(self) -> usize {
        3
    }
    #[inline(always)]
    fn congestion(self) -> usize {
        W
    }
    #[inline(always)]
    fn utilization(self) -> usize {
        W - 1
    }
    #[inline(always)]
    fn level_2(self) -> bool {
        false
    }
}

/// Kind of record layout; some kinds have specialized code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordKind {
    /// All items of INT 1.0, in 7, 8, 9 or (INT 2.1) 11 words.
    All,
    /// Fewer items, as in [`Fixed`]; the value is the bitmap.
    Fixed(u16),
    /// Any other layout, without specialized code.
    Other,
}

/// Offsets and units of the items in records of one layout from one kind of source. Computed once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    node: u8,
    link: u8,
    latency: u8,
    queue: u8,
    congestion: u8,
    utilization: u8,
    /// Offsets of the ingress and the egress timestamp.
    stamps: (u8, u8),
    level_2: bool,
    /// Offset of the level-2 egress interface (or of both halves) in a record that also has level-1 interfaces.
    logical: u8,
    wide_l2: bool,
    /// Both timestamps are present.
    by_stamps: bool,
    wide: bool,
    /// The longest plausible latency, in the device's unit.
    max_latency: u32,
    pub(crate) words: u8,
    pub(crate) kind: RecordKind,
    units: Units,
}

impl Plan {
    pub(crate) fn new(layout: &Layout, units: Units) -> Self {
        let carried = layout.carried();
        // Level-2 interfaces that share one word are read like those of level 1.
        let (link, level_2) = match carried.contains(Items::INTERFACES) {
            true => (layout.word_of(Items::INTERFACES), false),
            false if layout.wide_l2() => (layout.word_of(Items::L2_INTERFACES) + 1, true),
            false => (layout.word_of(Items::L2_INTERFACES), false),
        };
        let logical = match carried.contains(Items::INTERFACES) {
            true => layout.word_of(Items::L2_INTERFACES) + usize::from(layout.wide_l2()),
            false => usize::from(u8::MAX),
        };
        let mut plan = Self {
            node: layout.word_of(Items::NODE_ID) as u8,
            link: link as u8,
            level_2,
            logical: logical as u8,
            wide_l2: layout.wide_l2(),
            latency: layout.word_of(Items::HOP_LATENCY) as u8,
            queue: layout.word_of(Items::QUEUE) as u8,
            congestion: layout.word_of(Items::QUEUE_CONGESTION) as u8,
            utilization: layout.word_of(Items::TX_UTILIZATION) as u8,
            stamps: (
                layout.word_of(Items::INGRESS_TS) as u8,
                layout.word_of(Items::EGRESS_TS) as u8,
            ),
            by_stamps: carried.contains(Items::INGRESS_TS) && carried.contains(Items::EGRESS_TS),
            wide: layout.wide_ts(),
            max_latency: u32::try_from(units.max_latency / u64::from(units.latency_ns))
                .map_or(ABSENT - 1, |limit| limit.min(ABSENT - 1)),
            words: layout.words(),
            kind: RecordKind::Other,
            units,
        };
        if All::<7>::fits(&plan) || All::<8>::fits(&plan) || All::<9>::fits(&plan) || All::<11>::fits(&plan) {
            plan.kind = RecordKind::All;
        } else if let items @ 1.. = fixed_items(&plan) {
            plan.kind = RecordKind::Fixed(items);
        }
        plan
    }

    /// Reads a record of any length in place. The result equals [`Reading::of_record`], with the two timestamps of the layout.
    #[inline(always)]
    pub(crate) fn read(&self, record: &[u8]) -> (Reading, EndTimestamps) {
        let words: &[[u8; 4]] = record.as_chunks().0;
        let ends = EndTimestamps {
            ingress: self.stamp(words, self.stamps.0),
            egress: self.stamp(words, self.stamps.1),
            wide: self.wide,
        };
        let latency = match scaled(word(words, self.latency.into()), self.units.latency_ns) {
            NO_VALUE => between(ends.ingress, ends.egress, self.wide, self.units),
            latency => mark_implausible(latency, ends.ingress, ends.egress, self.units),
        };
        let (link, level_2) = match (word(words, self.link.into()), self.level_2) {
            (link, false) if egress(link, false) == ABSENT => {
                self.without_egress(link, word(words, self.logical.into()))
            }
            (link, level_2) => (link, level_2 && link != ABSENT),
        };
        let reading = Reading {
            node: word(words, self.node.into()),
            link,
            level_2,
            latency,
            queue: word(words, self.queue.into()),
            congestion: word(words, self.congestion.into()),
            utilization: word(words, self.utilization.into()),
            utilization_unit: self.units.utilization,
        };
        (reading, ends)
    }

    pub(crate) fn units(&self) -> Units {
        self.units
    }

    /// Returns (link, is level 2) for a record whose level-1 interfaces have no egress; `logical` is its level-2 egress.
    #[inline]
    fn without_egress(&self, link: u32, logical: u32) -> (u32, bool) {
        if logical == ABSENT {
            (link, false)
        } else {
            (logical, self.wide_l2)
        }
    }

    #[inline(always)]
    fn stamp(&self, record: &[[u8; 4]], at: u8) -> u64 {
        match (self.wide, word(record, at.into())) {
            (true, high) => u64::from(high) << 32 | u64::from(word(record, usize::from(at) + 1)),
            (false, ABSENT) => NO_VALUE,
            (false, stamp) => u64::from(stamp),
        }
    }

    /// Returns the hop latency in ns if it is unreported or may be implausible; `reported` is its word.
    #[inline(never)]
    fn unusual_latency<const W: usize>(&self, record: &[[u8; 4]; W], reported: u32) -> u64 {
        let ingress = self.stamp(record, self.stamps.0);
        let egress = self.stamp(record, self.stamps.1);
        match scaled(reported, self.units.latency_ns) {
            NO_VALUE => between(ingress, egress, self.wide, self.units),
            latency => mark_implausible(latency, ingress, egress, self.units),
        }
    }
}

/// A report whose hops are an INT stack that is read in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackReport<'a> {
    pub(crate) head: Head,
    /// The records of its stack, and the index of their plan.
    pub(crate) records: &'a [u8],
    pub(crate) plan: u8,
    /// The probable slot of its flow, or [`NO_SLOT`](crate::index::NO_SLOT).
    pub(crate) slot: u32,
}

/// The plan used last, for reports that are decoded one by one.
#[derive(Debug)]
pub(crate) struct LatestPlan {
    layout: Layout,
    plan: Plan,
}

impl LatestPlan {
    pub(crate) fn new() -> Self {
        Self {
            layout: Layout::EMPTY,
            plan: Plan::new(&Layout::EMPTY, Units::NONE),
        }
    }

    /// Returns the plan for records of a layout.
    #[inline]
    pub(crate) fn get(&mut self, layout: &Layout, units: Units) -> &Plan {
        if self.layout != *layout || self.plan.units != units {
            *self = Self {
                layout: *layout,
                plan: Plan::new(layout, units),
            };
        }
        &self.plan
    }
}

/// The cached plans, by shape.
pub(crate) type Plans = Shapes<Plan>;

impl Plans {
    /// Adds a plan for a new shape; `None` if such records cannot be read in place.
    #[cold]
    #[inline(never)]
    pub(crate) fn make(&mut self, shape: u64, layout: &Layout, units: Units) -> Option<u8> {
        let named = layout.carried().contains(Items::NODE_ID);
        let readable = named && (1..=WIDEST_RECORD).contains(&layout.words());
        readable.then(|| self.add(shape, Plan::new(layout, units)))
    }
}

#[inline(always)]
fn word(record: &[[u8; 4]], at: usize) -> u32 {
    record.get(at).map_or(ABSENT, |word| u32::from_be_bytes(*word))
}

impl<'a, P: ItemOffsets, const W: usize> Stacked<'a, P, W> {
    /// Creates the hops of the records in `bytes`, whose layout `plan` describes.
    #[inline(always)]
    pub(crate) fn new(bytes: &'a [u8], plan: &'a Plan, places: P) -> Self {
        let words: &[[u8; 4]] = bytes.as_chunks().0;
        Self {
            records: words.as_chunks().0,
            plan,
            places,
        }
    }
}

impl<'a, P: ItemOffsets, const W: usize> Hops for Stacked<'a, P, W> {
    type Record = &'a [[u8; 4]; W];

    #[inline(always)]
    fn count(self) -> usize {
        self.records.len()
    }

    #[inline(always)]
    fn units(self) -> Units {
        self.plan.units
    }

    #[inline(always)]
    fn records(self, from: usize) -> impl ExactSizeIterator<Item = Self::Record> {
        self.records[..self.records.len().saturating_sub(from)]
            .iter()
            .rev()
    }

    #[inline(always)]
    fn node(self, record: Self::Record) -> u32 {
        word(record, self.places.node())
    }

    #[inline(always)]
    fn read(self, record: Self::Record) -> Reading {
        let plan = self.plan;
        let places = self.places;
        let reported = word(record, places.latency());
        let latency = if reported == ABSENT && !places.by_stamps() {
            NO_VALUE
        } else if reported > plan.max_latency || word(record, places.ingress()) == 0 {
            // The value may also be absent, or the upper half of a 64-bit timestamp may be 0.
            plan.unusual_latency(record, reported)
        } else {
            u64::from(reported) * u64::from(plan.units.latency_ns)
        };
        let mut link = word(record, places.link());
        let mut level_2 = places.level_2();
        if places.may_have_both_levels() && !level_2 && egress(link, false) == ABSENT {
            (link, level_2) = plan.without_egress(link, word(record, plan.logical.into()));
        }
        Reading {
            node: word(record, places.node()),
            link,
            level_2,
            latency,
            queue: word(record, places.queue()),
            congestion: word(record, places.congestion()),
            utilization: word(record, places.utilization()),
            utilization_unit: plan.units.utilization,
        }
    }

    fn ends(self) -> EndTimestamps {
        let at =
            |record: Option<&[[u8; 4]; W]>, at| record.map_or(NO_VALUE, |record| self.plan.stamp(record, at));
        EndTimestamps {
            ingress: at(self.records.last(), self.plan.stamps.0),
            egress: at(self.records.first(), self.plan.stamps.1),
            wide: self.plan.wide,
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::{Dialect, Layout};

    use super::{Fixed, Hops, Plan, Reading, RecordKind, Stacked};
    use crate::config::Units;
    use crate::hash::fold;

    #[test]
    fn a_record_reads_as_its_hop_does() {
        let units = Units {
            stamp_ns: 3,
            latency_ns: 2,
            utilization: 7,
            max_latency: 1 << 32,
            ..Units::NONE
        };
        let mut read = 0;
        for bitmap in (0..=u16::MAX).step_by(2).filter(|bitmap| bitmap & 0x00fe == 0) {
            let layouts = (0..=13).filter_map(|words| Layout::int_2(bitmap, words, false).ok());
            for layout in layouts.chain([Layout::int_05(bitmap)]) {
                for seed in 0..8_u64 {
                    // Every fourth word is absent.
                    let word = |at: u64| match fold(seed, at) {
                        random if random % 4 == 0 => [0xff; 4],
                        random if random % 16 == 1 => [0; 4],
                        random => (random as u32).to_be_bytes(),
                    };
                    let record: Vec<u8> = (0..u64::from(layout.words())).flat_map(word).collect();
                    let hop = layout.hop(&record);
                    assert_eq!(
                        Reading::of_record(&layout, &record, units),
                        Reading::of(&hop, units),
                        "{hop:?}"
                    );
                    let plan = Plan::new(&layout, units);
                    let (reading, ends) = plan.read(&record);
                    assert_eq!(reading, Reading::of(&hop, units), "{hop:?}");
                    let stamps = (
                        layout.ingress_ts(&record),
                        layout.egress_ts(&record),
                        layout.wide_ts(),
                    );
                    assert_eq!((ends.ingress, ends.egress, ends.wide), stamps, "{hop:?}");
                    read += 1;
                }
            }
        }
        assert!(read > 400, "{read}");
    }

    #[test]
    fn a_record_without_a_level_1_egress_has_the_interface_of_level_2() {
        let units = Units::NONE;
        // Node, both interface levels and utilization of INT 2.1, with and without the level-1 ingress.
        let layout = Layout::int_2(0xc300, 5, false).unwrap();
        let plan = Plan::new(&layout, units);
        for (level_1, logical, expected) in [
            (0xffff_ffff_u32, 102_u32, (102, true)),
            (0x0007_ffff, 102, (102, true)),
            (0x0007_0008, 102, (8, false)),
            (0x0007_ffff, u32::MAX, (u32::MAX, false)),
        ] {
            let record: Vec<u8> = [2, level_1, 101, logical, 70]
                .iter()
                .flat_map(|word: &u32| word.to_be_bytes())
                .collect();
            let whole = Stacked::<_, 5>::new(&record, &plan, &plan);
            let readings = [
                Reading::of(&layout.hop(&record), units),
                Reading::of_record(&layout, &record, units),
                plan.read(&record).0,
                whole.records(0).map(|record| whole.read(record)).next().unwrap(),
            ];
            let found = readings.map(|reading| (reading.egress(), reading.level_2));
            assert_eq!(found, [expected; 4], "{level_1:x} {logical:x}");
        }
        // All items of INT 1.0, as most devices send them.
        let layout = Layout::int_10(0xff00, 9, Dialect::Strict).unwrap();
        let plan = Plan::new(&layout, units);
        assert_eq!(plan.kind, RecordKind::All);
        let record: Vec<u8> = [2, u32::MAX, 3, 4, 5, 6, 101, 102, 70]
            .iter()
            .flat_map(|word: &u32| word.to_be_bytes())
            .collect();
        let all = Stacked::<_, 9>::new(&record, &plan, super::All::<9>);
        let reading = all.read(all.records(0).next().unwrap());
        assert_eq!((reading.egress(), reading.level_2), (102, true));
        assert_eq!(reading, plan.read(&record).0);
        // Two halves of one word.
        let layout = Layout::int_10(0xff00, 8, Dialect::IntCollectorGen).unwrap();
        let plan = Plan::new(&layout, units);
        let record: Vec<u8> = [2, u32::MAX, 3, 4, 5, 6, 101 << 16 | 102, 70]
            .iter()
            .flat_map(|word: &u32| word.to_be_bytes())
            .collect();
        assert_eq!(plan.read(&record).0.egress(), 102);
        assert_eq!(Reading::of(&layout.hop(&record), units).egress(), 102);
    }

    /// Reads a record with specialized code if the plan has any, or else by its offsets.
    fn specialized(plan: &Plan, record: &[u8]) -> Option<Reading> {
        macro_rules! by_items {
            ($(($words:literal $items:literal))*) => {
                match plan.kind {
                    $(RecordKind::Fixed($items) => {
                        let hops = Stacked::<_, $words>::new(record, plan, Fixed::<$words, $items>);
                        hops.records(0).next().map(|record| hops.read(record))
                    })*
                    _ => None,
                }
            };
        }
        fixed_records!(by_items)
    }

    #[test]
    fn specialized_code_reads_records_as_the_plan_says() {
        let units = Units {
            stamp_ns: 3,
            latency_ns: 2,
            utilization: 7,
            max_latency: 1 << 32,
            ..Units::NONE
        };
        let mut forms = Vec::new();
        for bitmap in 0..=0xff_u16 {
            let bitmap = bitmap << 8;
            for dialect in [Dialect::IntCollectorGen, Dialect::Strict, Dialect::Geant] {
                let words = bitmap.count_ones() as u8;
                let Ok(layout) = Layout::int_10(bitmap, words, dialect) else {
                    continue;
                };
                let plan = Plan::new(&layout, units);
                for seed in 0..20_u64 {
                    let word = |at: u64| match fold(seed, at) {
                        random if random % 4 == 0 => [0xff; 4],
                        random if random % 16 == 1 => [0; 4],
                        random => (random as u32).to_be_bytes(),
                    };
                    let record: Vec<u8> = (0..u64::from(words)).flat_map(word).collect();
                    let Some(reading) = specialized(&plan, &record) else {
                        continue;
                    };
                    assert_eq!(reading, plan.read(&record).0, "{bitmap:x} {seed}");
                    forms.push(bitmap);
                }
            }
        }
        forms.sort_unstable();
        forms.dedup();
        assert_eq!(forms, [0x8000, 0x9000, 0xa000, 0xb000, 0xf000, 0xf100, 0xfc00]);
    }
}
