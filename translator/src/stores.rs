//! The stores of one collector in the translator, and the execution of the five DTA primitives on them. Key-Write and
//! Key-Increment become RDMA operations at once; the other primitives collect data first.

use wire::dta::hash::{self, Family, Hashes};
use wire::dta::layout::{self, Geometry};
use wire::dta::{Operation, PlainAppend, Report};

use super::config::{CollectorConfig, Config, StoreEntry};
use super::lists::{Lists, Request};
use super::paths::{Paths, Postcard};
use super::sender::{Fault, Sender, Target};
use super::sketch::{Delivery, Sketch};
use super::stats::{Cause, Entries, Reason, Stats};
use rdma::transport::Transport;

/// Slots up to this length are built in a short buffer.
const SHORT_SLOT_LEN: usize = 64;
/// Length of the longest slot, bytes.
const MAX_SLOT: usize = layout::CHECKSUM_LEN + wire::dta::MAX_DATA;
/// Slots of the hash table of stores: twice the maximum number of stores.
const TABLE_SLOTS: usize = 128;
/// Bytes that are likely to stay in a core's L2 cache under load: a fraction of its size.
const CACHED_BYTES: usize = 1 << 16;

/// Stores of one kind, found by ID by linear probing from the ID's low bits. `table` has indices of `stores`; 255 marks a
/// free slot.
#[derive(Debug)]
struct StoreTable<T> {
    table: Box<[u8; TABLE_SLOTS]>,
    stores: Vec<(u16, T)>,
}

impl<T> StoreTable<T> {
    fn new() -> Self {
        Self {
            table: Box::new([u8::MAX; TABLE_SLOTS]),
            stores: Vec::new(),
        }
    }

    /// Adds a store. A collector has at most 64, so a free slot exists.
    fn insert(&mut self, id: u16, store: T) {
        let mut slot = usize::from(id) % TABLE_SLOTS;
        while self.table[slot] != u8::MAX {
            slot = (slot + 1) % TABLE_SLOTS;
        }
        self.table[slot] = self.stores.len() as u8;
        self.stores.push((id, store));
    }

    /// Returns the store with this ID. The search ends at a free slot, and at least half of the slots are free.
    #[inline(always)]
    fn find(&mut self, id: u16) -> Option<&mut T> {
        let mut slot = usize::from(id) % TABLE_SLOTS;
        loop {
            let index = usize::from(self.table[slot]);
            match self.stores.get(index) {
                None => return None,
                Some((other, _)) if *other == id => return Some(&mut self.stores[index].1),
                Some(_) => slot = (slot + 1) % TABLE_SLOTS,
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.stores.iter().map(|(_, store)| store)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.stores.iter_mut().map(|(_, store)| store)
    }
}

/// Geometry of a Key-Write store: `slots` slots, `stride` bytes apart.
#[derive(Clone, Copy, Debug)]
struct Slots {
    region: u16,
    data_len: u16,
    family: Family,
    slots: u64,
    stride: u64,
}

/// Geometry of a Key-Increment store: `slots` counters of 8 bytes.
#[derive(Clone, Copy, Debug)]
struct Counters {
    region: u16,
    family: Family,
    slots: u64,
}

/// Context of a report's execution: the time, the congestion level, and whether it uses the artifact's layout.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    pub(super) now: u64,
    pub(super) level: u8,
    pub(super) artifact: bool,
}

/// The stores of one collector by kind.
#[derive(Debug)]
pub(super) struct Stores {
    key_write: StoreTable<Slots>,
    key_increment: StoreTable<Counters>,
    postcarding: StoreTable<Paths>,
    sketches: StoreTable<Sketch>,
    append: Vec<Lists>,
}

impl Stores {
    pub(super) fn sketches(&self) -> impl Iterator<Item = &Sketch> {
        self.sketches.iter()
    }

    pub(super) fn new() -> Self {
        Self {
            key_write: StoreTable::new(),
            key_increment: StoreTable::new(),
            postcarding: StoreTable::new(),
            sketches: StoreTable::new(),
            append: Vec::new(),
        }
    }

    /// Creates a collector's stores. Pending data moves over from stores of `previous` with the same settings; other pending
    /// data is dropped and counted.
    pub(super) fn replace(
        previous: Self,
        memory: &CollectorConfig,
        config: &Config,
        stats: &mut Stats,
    ) -> Self {
        let mut stores = Self::new();
        let mut append = previous.append;
        let mut paths: Vec<Paths> = previous
            .postcarding
            .stores
            .into_iter()
            .map(|(_, paths)| paths)
            .collect();
        let mut sketches: Vec<Sketch> = previous
            .sketches
            .stores
            .into_iter()
            .map(|(_, sketch)| sketch)
            .collect();
        for entry in &memory.stores {
            match entry.geometry {
                Geometry::KeyWrite {
                    slots,
                    data_len,
                    family,
                } => {
                    stores.key_write.insert(
                        entry.id,
                        Slots {
                            region: entry.region,
                            data_len,
                            family,
                            slots,
                            stride: layout::slot_stride(data_len),
                        },
                    );
                }
                Geometry::KeyIncrement { slots, family } => {
                    stores.key_increment.insert(
                        entry.id,
                        Counters {
                            region: entry.region,
                            family,
                            slots,
                        },
                    );
                }
                Geometry::Append { .. } => {
                    stores
                        .append
                        .extend(reuse(&mut append, entry, Lists::entry).or_else(|| Lists::new(*entry)));
                }
                Geometry::Postcarding { .. } => {
                    let reusable = reuse(&mut paths, entry, Paths::entry);
                    if let Some(paths) = reusable.or_else(|| Paths::new(*entry, config.postcards)) {
                        stores.postcarding.insert(entry.id, paths);
                    }
                }
                Geometry::Sketch { .. } => {
                    let reusable = reuse(&mut sketches, entry, Sketch::entry);
                    if let Some(sketch) = reusable.or_else(|| Sketch::new(*entry)) {
                        stores.sketches.insert(entry.id, sketch);
                    }
                }
            }
        }
        stats.entries.dropped += append.iter().map(Lists::pending).sum::<u64>();
        stats.postcards.dropped += paths.iter().map(Paths::pending).sum::<u64>();
        stats.sketches.dropped += sketches.iter().map(Sketch::open).sum::<u64>();
        stores
    }

    /// Sets the number at which a list continues, see [`super::Translator::set_next`]. Returns `false` if there is no such
    /// list.
    pub(super) fn set_next(&mut self, list: u32, next: u64) -> bool {
        match self.find_list(list) {
            Some((lists, index)) => {
                lists.set_next(index, next);
                true
            }
            None => false,
        }
    }

    /// Schedules all sketches to be written again, see [`super::Translator::rewrite_sketches`]. Returns their regions.
    pub(super) fn rewrite_sketches(&mut self) -> impl Iterator<Item = u16> {
        self.sketches.iter_mut().map(|sketch| {
            sketch.rewrite();
            sketch.entry().region
        })
    }

    /// Returns the number of pending entries and of pending postcards.
    pub(super) fn pending(&self) -> (u64, u64) {
        (
            self.append.iter().map(Lists::pending).sum(),
            self.postcarding.iter().map(Paths::pending).sum(),
        )
    }

    /// Returns when the first timer expires, ns, or `None` if nothing is pending.
    pub(super) fn deadline(&self, config: &Config) -> Option<u64> {
        let entries = self
            .append
            .iter()
            .filter_map(Lists::oldest)
            .map(|index| index.saturating_add(config.append_timer));
        let paths = self
            .postcarding
            .iter()
            .filter_map(Paths::oldest)
            .map(|index| index.saturating_add(config.postcard_timer));
        let sketches = self
            .sketches
            .iter()
            .filter_map(Sketch::oldest)
            .map(|index| index.saturating_add(config.sketch_timer));
        entries.chain(paths).chain(sketches).min()
    }

    /// Executes a report's operation on its store. The store writes at once or collects the data for a later write.
    #[inline(always)]
    pub(super) fn execute<W: Transport>(
        &mut self,
        Context { now, level, artifact }: Context,
        report: &Report<'_>,
        config: &Config,
        sender: &mut Sender<'_, W>,
        stats: &mut Stats,
    ) -> Result<(), Fault> {
        let reliable = report.base.essential;
        let immediate = report.base.immediate;
        match report.operation {
            Operation::KeyWrite {
                copies,
                store,
                key,
                data,
            } => {
                let store = self
                    .key_write
                    .find(store)
                    .ok_or(Fault::Drop(Reason::UnknownStore))?;
                // Under congestion fewer copies are written, which saves bandwidth but makes queries less likely to
                // succeed.
                let max_copies = copies.min(config.copies[usize::from(level & 3)]);
                let notice = immediate.then(|| report.operation.immediate_value());
                let written = store.write(key, data, max_copies, notice, reliable, sender)?;
                stats.copies.requested += u64::from(copies);
                stats.copies.written += u64::from(written);
                stats.copies.skipped += u64::from(copies - max_copies);
                stats.copies.dropped += u64::from(max_copies - written);
                Ok(())
            }
            Operation::Append {
                list,
                entry_len,
                entries,
            } => {
                let (lists, index) = self.find_list(list).ok_or(Fault::Drop(Reason::UnknownList))?;
                if usize::from(entry_len) != lists.entry_len() {
                    return Err(Fault::Drop(Reason::WrongEntry));
                }
                let request = Request {
                    immediate,
                    reliable,
                    words: artifact,
                };
                lists.append(index, now, entries, request, sender, &mut stats.entries)
            }
            Operation::KeyIncrement {
                copies,
                store,
                delta,
                key,
            } => {
                let store = self
                    .key_increment
                    .find(store)
                    .ok_or(Fault::Drop(Reason::UnknownStore))?;
                let notice = immediate.then(|| report.operation.immediate_value());
                store.add(key, delta, copies, notice, sender)
            }
            Operation::Postcard {
                hop,
                path_len,
                store,
                value,
                key,
            } => {
                let store = self
                    .postcarding
                    .find(store)
                    .ok_or(Fault::Drop(Reason::UnknownStore))?;
                let postcard = Postcard {
                    hop,
                    path_len,
                    value,
                    key,
                    reliable,
                    immediate,
                };
                store.add(now, postcard, sender, &mut stats.postcards)
            }
            Operation::SketchMerge {
                sketch,
                epoch,
                first_column,
                depth,
                width,
                op,
                columns,
                counters,
            } => {
                let sketch = self
                    .sketches
                    .find(sketch)
                    .ok_or(Fault::Drop(Reason::UnknownSketch))?;
                if !sketch.is_shaped(depth, width, op) {
                    return Err(Fault::Drop(Reason::WrongShape));
                }
                let delivery = Delivery {
                    reporter: report.base.reporter,
                    epoch,
                    first: first_column,
                    columns,
                    counters,
                    immediate,
                };
                sketch.merge(now, delivery, config, sender, &mut stats.sketches)
            }
        }
    }

    /// Executes a plain Append on the fast path. Returns `None` if nothing was done; [`Stores::execute`] must then execute
    /// it, or find the reason.
    #[inline(always)]
    pub(super) fn append_plain<W: Transport>(
        &mut self,
        now: u64,
        plain: &PlainAppend<'_>,
        sender: &mut Sender<'_, W>,
        stats: &mut Entries,
    ) -> Option<Result<(), Reason>> {
        let (lists, index) = self.find_list(plain.list)?;
        if usize::from(plain.entry_len) != lists.entry_len() {
            return None;
        }
        let request = Request {
            immediate: false,
            reliable: false,
            words: false,
        };
        match lists.append(index, now, plain.entries, request, sender, stats) {
            Ok(()) => Some(Ok(())),
            Err(Fault::Drop(reason)) => Some(Err(reason)),
            Err(Fault::Blocked | Fault::ColumnGap { .. }) => None,
        }
    }

    /// Records that the NACK for the columns missing before this report was not sent.
    #[cold]
    pub(super) fn nack_not_sent(&mut self, report: &Report<'_>) {
        if let Operation::SketchMerge { sketch, epoch, .. } = report.operation
            && let Some(sketch) = self.sketches.find(sketch)
        {
            sketch.nack_not_sent(report.base.reporter, epoch);
        }
    }

    /// Returns the Append store that contains a list, and the list's index in it.
    #[inline(always)]
    fn find_list(&mut self, list: u32) -> Option<(&mut Lists, usize)> {
        self.append
            .iter_mut()
            .find_map(|lists| lists.find(list).map(|index| (lists, index)))
    }

    /// Returns whether the state of all lists probably fits the cache, so that prefetching does not pay.
    #[inline(always)]
    pub(super) fn are_lists_few(&self) -> bool {
        self.append.iter().map(Lists::footprint).sum::<usize>() <= CACHED_BYTES
    }

    /// Prefetches a list's state and its pending block.
    #[inline(always)]
    pub(super) fn prefetch_list(&self, list: u32) {
        for lists in &self.append {
            lists.prefetch(list);
        }
    }

    /// Returns the entry length of a list in bytes, or `None` if there is no such list.
    pub(super) fn entry_len(&self, list: u32) -> Option<usize> {
        self.append
            .iter()
            .find(|lists| lists.find(list).is_some())
            .map(Lists::entry_len)
    }

    /// Appends a trigger's entry to its list.
    pub(super) fn append<W: Transport>(
        &mut self,
        now: u64,
        list: u32,
        entry: &[u8],
        request: Request,
        sender: &mut Sender<'_, W>,
        stats: &mut Stats,
    ) -> Result<(), Fault> {
        let (lists, index) = self.find_list(list).ok_or(Fault::Drop(Reason::UnknownList))?;
        if entry.len() != lists.entry_len() {
            return Err(Fault::Drop(Reason::WrongEntry));
        }
        let previous = stats.entries.accepted;
        let result = lists.append(index, now, entry, request, sender, &mut stats.entries);
        // Counts it as a trigger's entry instead of a report's.
        let triggered = stats.entries.accepted - previous;
        stats.entries.accepted = previous;
        stats.entries.triggered += triggered;
        result
    }

    /// Writes data whose timers have expired, or all data if the translator stops. Returns `false` if the transport did not
    /// accept all of it.
    pub(super) fn flush<W: Transport>(
        &mut self,
        now: u64,
        cause: Cause,
        config: &Config,
        sender: &mut Sender<'_, W>,
        stats: &mut Stats,
    ) -> bool {
        let mut is_complete = true;
        if let Some(until) = flush_limit(now, cause, config.append_timer) {
            for lists in &mut self.append {
                is_complete &= lists.flush_until(until, cause, sender, &mut stats.entries);
            }
        }
        if let Some(until) = flush_limit(now, cause, config.postcard_timer) {
            for paths in self.postcarding.iter_mut() {
                is_complete &= paths.flush_until(until, cause, sender, &mut stats.postcards);
            }
        }
        // With limit 0 nothing is closed, but complete columns that had no credit are written.
        let until = flush_limit(now, cause, config.sketch_timer).unwrap_or(0);
        for sketch in self.sketches.iter_mut() {
            is_complete &=
                sketch.flush_until(until, cause, config.sketch_columns, sender, &mut stats.sketches);
        }
        is_complete
    }
}

/// Returns the latest arrival time of data to be written, or `None` if no data can be old enough.
fn flush_limit(now: u64, cause: Cause, timer: u64) -> Option<u64> {
    match cause {
        Cause::Stopped => Some(u64::MAX),
        _ => now.checked_sub(timer),
    }
}

/// Removes and returns the known store with the same settings, including its pending data.
fn reuse<T>(reusable: &mut Vec<T>, entry: &StoreEntry, settings_of: impl Fn(&T) -> &StoreEntry) -> Option<T> {
    let index = reusable
        .iter()
        .position(|reusable| settings_of(reusable) == entry)?;
    Some(reusable.swap_remove(index))
}

impl Slots {
    /// Writes the copies of a key's value and returns how many were written.
    #[inline(always)]
    fn write<W: Transport>(
        &self,
        key: &[u8],
        data: &[u8],
        copies: u8,
        notice: Option<u32>,
        reliable: bool,
        sender: &mut Sender<'_, W>,
    ) -> Result<u8, Fault> {
        if data.len() > usize::from(self.data_len) {
            return Err(Fault::Drop(Reason::TooMuchData));
        }
        let len = layout::CHECKSUM_LEN + usize::from(self.data_len);
        if !sender.has_credit(u32::from(copies), u64::from(copies) * len as u64, reliable) {
            return Err(Fault::Blocked);
        }
        let Hashes { slots, checksum } = self.hashes(key, copies);
        if len <= SHORT_SLOT_LEN {
            // Zeroing a short buffer is cheaper, and suffices for the usual sizes.
            let mut slot = [0; SHORT_SLOT_LEN];
            layout::put_slot(&mut slot, checksum, data, self.data_len);
            self.write_copies(
                &slot[..len],
                &slots[..usize::from(copies)],
                notice,
                reliable,
                sender,
            )
        } else {
            let mut slot = [0; MAX_SLOT];
            layout::put_slot(&mut slot, checksum, data, self.data_len);
            self.write_copies(
                &slot[..len],
                &slots[..usize::from(copies)],
                notice,
                reliable,
                sender,
            )
        }
    }

    /// Computes the key's checksum and at least `copies` slot hashes. The fourth is skipped if it is not needed.
    #[inline(always)]
    fn hashes(&self, key: &[u8], copies: u8) -> Hashes {
        match (self.family, copies) {
            (Family::V1, 1..=3) => {
                let ([a, b, c], checksum) = hash::slots_n::<3>(key);
                Hashes {
                    slots: [a, b, c, 0],
                    checksum,
                }
            }
            (family, _) => family.hashes(key),
        }
    }

    /// Writes `slot` at each of these hashes and returns how many writes were accepted. Only the last one carries the
    /// immediate value.
    #[inline(always)]
    fn write_copies<W: Transport>(
        &self,
        slot: &[u8],
        slots: &[u32],
        notice: Option<u32>,
        reliable: bool,
        sender: &mut Sender<'_, W>,
    ) -> Result<u8, Fault> {
        let last = slots.len() - 1;
        for (n, hash) in slots.iter().enumerate() {
            let target = Target {
                region: self.region,
                offset: hash::slot(*hash, self.slots) * self.stride,
                immediate: if n == last { notice } else { None },
                reliable,
            };
            match sender.write(target, slot) {
                Ok(()) => {}
                Err(blocked) if n == 0 => return Err(blocked.into()),
                // At least one copy is written, so a query can find the value.
                Err(_) => return Ok(n as u8),
            }
        }
        Ok(slots.len() as u8)
    }
}

impl Counters {
    /// Adds to all of a key's counters. Fewer additions would make their minimum, the estimate, too small.
    #[inline(always)]
    fn add<W: Transport>(
        &self,
        key: &[u8],
        delta: u64,
        copies: u8,
        notice: Option<u32>,
        sender: &mut Sender<'_, W>,
    ) -> Result<(), Fault> {
        // The immediate value takes a message of its own, since a fetch-and-add cannot carry one.
        let messages = u32::from(copies) + u32::from(notice.is_some());
        if !sender.has_credit(messages, u64::from(messages) * layout::COUNTER_LEN, true) {
            return Err(Fault::Blocked);
        }
        let slots = self.family.hashes(key).slots;
        let slots = &slots[..usize::from(copies)];
        for (n, hash) in slots.iter().enumerate() {
            let offset = hash::slot(*hash, self.slots) * layout::COUNTER_LEN;
            let notice = if n + 1 == slots.len() { notice } else { None };
            if let Err(blocked) = sender.add(self.region, offset, delta, notice) {
                let cut_short = n > 0;
                return Err(if cut_short {
                    Fault::Drop(Reason::CutShort)
                } else {
                    blocked.into()
                });
            }
        }
        Ok(())
    }
}
