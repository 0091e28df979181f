//! The DTA Append primitive in the translator: collects entries per list and writes them as one batch when the block is
//! full, a timer expires, or a report requests an immediate notification.
//!
//! A *tagged* ring writes whole blocks that end in a sequence number and a CRC. A *bare* ring has entries only, so a block
//! that was written early is completed by the next write. Memory layout: `docs/reference/wire-formats.md`, section 5.9.

use wire::dta::Opcode;
use wire::dta::layout::{BlockTrailer, Geometry, Ring};

use super::config::StoreEntry;
use super::sender::{Fault, Sender, Target};
use super::stats::{Cause, Entries, Reason};
use memory::age_list::{AgeLink, AgeList, Aged};
use rdma::transport::{Blocked, Transport};

/// A list with its pending batch.
#[derive(Clone, Copy, Debug)]
struct List {
    /// Tagged lists: sequence number of the pending batch.
    sequence: u32,
    /// Number of pending entries.
    filled: u16,
    /// At least one pending entry is essential, so the batch is written reliably.
    reliable: bool,
    /// At least one pending entry requests an immediate notification.
    notify: bool,
    /// Bare lists: position of the first pending entry in the ring, in entries.
    head: u64,
    /// Arrival time of the first pending entry, ns, and links to the lists before and after it by age.
    age: AgeLink,
}

impl Aged for List {
    fn age_link(&mut self) -> &mut AgeLink {
        &mut self.age
    }
}

/// The lists of one Append store.
#[derive(Debug)]
pub(super) struct Lists {
    entry: StoreEntry,
    ring: Ring,
    first: u32,
    lists: Vec<List>,
    /// Pending blocks of all lists, one after the other.
    blocks: Vec<u8>,
    block_len: usize,
    entry_len: usize,
    pending_by_age: AgeList,
}

/// Options of an Append report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) immediate: bool,
    pub(super) reliable: bool,
    /// The entries come in the artifact's layout: 4-byte words, which its readers expect in the collector's byte order.
    pub(super) words: bool,
}

impl Lists {
    /// Creates the lists of a store, or returns `None` if it is not an Append store.
    pub(super) fn new(entry: StoreEntry) -> Option<Self> {
        let Geometry::Append {
            lists,
            first_list,
            ring,
        } = entry.geometry
        else {
            return None;
        };
        let block_len = ring.block_len() as usize;
        let list = List {
            sequence: 1,
            filled: 0,
            reliable: false,
            notify: false,
            head: 0,
            age: AgeLink::NONE,
        };
        Some(Self {
            entry,
            ring,
            first: first_list,
            lists: vec![list; lists as usize],
            blocks: vec![0; block_len * lists as usize],
            block_len,
            entry_len: usize::from(ring.entry_len),
            pending_by_age: AgeList::EMPTY,
        })
    }

    pub(super) fn entry(&self) -> &StoreEntry {
        &self.entry
    }

    /// Returns the index of a list, or `None` if the store does not have it.
    #[inline(always)]
    pub(super) fn find(&self, list: u32) -> Option<usize> {
        let index = list.wrapping_sub(self.first) as usize;
        (index < self.lists.len()).then_some(index)
    }

    /// Prefetches a list's state and its pending block; does nothing for another store's list.
    #[inline(always)]
    pub(super) fn prefetch(&self, list: u32) {
        let index = list.wrapping_sub(self.first) as usize;
        if let (Some(list), Some(block)) = (self.lists.get(index), self.blocks.get(index * self.block_len)) {
            memory::prefetch(list);
            memory::prefetch(block);
        }
    }

    /// Returns the memory of all lists and pending blocks, bytes.
    #[inline(always)]
    pub(super) fn footprint(&self) -> usize {
        self.blocks.len() + size_of_val(&self.lists[..])
    }

    /// Returns the length of an entry, bytes.
    #[inline(always)]
    pub(super) fn entry_len(&self) -> usize {
        self.entry_len
    }

    /// Sets the number at which the list continues: see [`super::Translator::set_next`]. Pending entries keep their order
    /// from there.
    pub(super) fn set_next(&mut self, index: usize, next: u64) {
        let Some(list) = self.lists.get_mut(index) else {
            return;
        };
        list.sequence = (next as u32).max(1);
        // The pending entries of a bare list must not cross the end of a batch.
        let batch = u64::from(self.ring.batch);
        let next = next % self.ring.entries.max(1);
        list.head = if next % batch + u64::from(list.filled) <= batch {
            next
        } else {
            next / batch * batch
        };
    }

    /// Returns the number of pending entries.
    pub(super) fn pending(&self) -> u64 {
        self.lists.iter().map(|list| u64::from(list.filled)).sum()
    }

    /// Returns the arrival time of the oldest pending entry, ns, or `None` if nothing is pending.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.lists
            .get(self.pending_by_age.oldest())
            .map(|list| list.age.since)
    }

    /// Returns how many entries the pending block takes. A bare block that was written early is completed first.
    #[inline(always)]
    fn capacity(&self, list: &List) -> u16 {
        if self.ring.tagged {
            self.ring.batch
        } else {
            self.ring.batch - (list.head % u64::from(self.ring.batch)) as u16
        }
    }

    /// Returns the number of entries in this many bytes.
    #[inline(always)]
    fn count(&self, bytes: usize) -> usize {
        // The common case is a single entry; this avoids a slow division.
        if bytes == self.entry_len {
            1
        } else {
            (bytes as u32 / self.entry_len as u32) as usize
        }
    }

    /// Appends whole entries to the list with this index, and writes its blocks as they fill.
    #[inline(always)]
    pub(super) fn append<W: Transport>(
        &mut self,
        index: usize,
        now: u64,
        entries: &[u8],
        request: Request,
        sender: &mut Sender<'_, W>,
        stats: &mut Entries,
    ) -> Result<(), Fault> {
        let list = &self.lists[index];
        let free = usize::from(self.capacity(list)) * self.entry_len;
        if usize::from(list.filled) * self.entry_len + entries.len() < free && !request.immediate {
            // Fast path: the entries fit and do not fill the block.
            stats.accepted += u64::from(self.fill(index, now, entries, request));
            return Ok(());
        }
        self.append_and_write(index, now, entries, request, sender, stats)
    }

    #[inline(never)]
    fn append_and_write<W: Transport>(
        &mut self,
        index: usize,
        now: u64,
        mut entries: &[u8],
        request: Request,
        sender: &mut Sender<'_, W>,
        stats: &mut Entries,
    ) -> Result<(), Fault> {
        let list = self.lists[index];
        let batch = usize::from(self.ring.batch);
        let before = batch - usize::from(self.capacity(&list)) + usize::from(list.filled);
        let write_count =
            (before + self.count(entries.len())) as u32 / batch as u32 + u32::from(request.immediate);
        let block_len = self.block_len as u64;
        // Pending entries may be essential and the new ones not: then the first block needs reliable credit and the others
        // do not.
        let is_mixed = list.reliable && !request.reliable && write_count > 1;
        let is_reliable = request.reliable || list.reliable;
        if !sender.has_credit(write_count, u64::from(write_count) * block_len, is_reliable)
            || is_mixed && !sender.has_credit(write_count - 1, u64::from(write_count - 1) * block_len, false)
        {
            return Err(Fault::Blocked);
        }
        let total_len = entries.len();
        loop {
            let list = self.lists[index];
            let free = usize::from(self.capacity(&list)) - usize::from(list.filled);
            let (fitting, rest) = entries.split_at(entries.len().min(free * self.entry_len));
            stats.accepted += u64::from(self.fill(index, now, fitting, request));
            entries = rest;
            let list = &mut self.lists[index];
            if request.immediate && rest.is_empty() {
                list.notify = true;
            }
            let is_full = list.filled == self.capacity(&self.lists[index]);
            if !is_full && !request.immediate {
                return Ok(());
            }
            let cause = if is_full { Cause::Full } else { Cause::Immediate };
            let written = self.flush(index, cause, sender, stats);
            if rest.is_empty() {
                // A last block that could not be written stays pending.
                return Ok(());
            }
            if written.is_err() {
                let is_first_block = rest.len() == total_len;
                return Err(if is_first_block {
                    Fault::Blocked
                } else {
                    Fault::Drop(Reason::CutShort)
                });
            }
        }
    }

    /// Copies entries that fit into the pending block, and returns their number.
    #[inline(always)]
    fn fill(&mut self, index: usize, now: u64, entries: &[u8], request: Request) -> u16 {
        let count = self.count(entries.len()) as u16;
        let list = &mut self.lists[index];
        let before = list.filled;
        list.filled += count;
        list.reliable |= request.reliable;
        let start = index * self.block_len + usize::from(before) * self.entry_len;
        let place = &mut self.blocks[start..start + entries.len()];
        // Tagged blocks are hopwise's own layout and keep the byte order of the report.
        if self.entry.swapped || request.words && !self.ring.tagged {
            for (to, from) in place
                .as_chunks_mut::<4>()
                .0
                .iter_mut()
                .zip(entries.as_chunks::<4>().0)
            {
                *to = u32::from_be_bytes(*from).to_le_bytes();
            }
        } else if let (Ok(to), Ok(from)) = (
            <&mut [u8; 4]>::try_from(&mut *place),
            <&[u8; 4]>::try_from(entries),
        ) {
            // A single 4-byte entry is copied without calling memcpy.
            *to = *from;
        } else {
            place.copy_from_slice(entries);
        }
        if before == 0 && count > 0 {
            self.pending_by_age.push(&mut self.lists, index, now);
        }
        count
    }

    /// Writes the pending block of a list and starts the next one. Returns `Err` if it must be retried; a block that can
    /// never be written is dropped.
    fn flush<W: Transport>(
        &mut self,
        index: usize,
        cause: Cause,
        sender: &mut Sender<'_, W>,
        stats: &mut Entries,
    ) -> Result<(), Blocked> {
        let list = self.lists[index];
        // Immediate value: opcode in the top 4 bits, list ID below.
        let id = (Opcode::Append as u32) << 28 | (self.first + index as u32) & 0x0fff_ffff;
        let block = &mut self.blocks[index * self.block_len..][..self.block_len];
        let (offset, len) = if self.ring.tagged {
            seal(block, &list, self.ring);
            let block_index = u64::from(list.sequence - 1) % self.ring.blocks();
            (self.ring.offset(index as u64, block_index), self.block_len)
        } else {
            let offset = self.ring.offset(index as u64, 0) + list.head * self.entry_len as u64;
            (offset, usize::from(list.filled) * self.entry_len)
        };
        let immediate = list.notify.then_some(id);
        let target = Target {
            region: self.entry.region,
            offset,
            immediate,
            reliable: list.reliable,
        };
        let count = u64::from(list.filled);
        match sender.write(target, &block[..len]) {
            Ok(()) => {
                stats.written += count;
                stats.batches[cause as usize] += 1;
            }
            Err(blocked) if blocked.is_transient() => return Err(blocked),
            Err(_) => stats.dropped += count,
        }
        self.pending_by_age.remove(&mut self.lists, index);
        let list = &mut self.lists[index];
        list.sequence = BlockTrailer::next(list.sequence);
        list.head = (list.head + count) % self.ring.entries;
        list.filled = 0;
        list.reliable = false;
        list.notify = false;
        Ok(())
    }

    /// Writes the blocks that are pending since `until` or earlier. Returns `false` if the transport did not accept all of
    /// them.
    pub(super) fn flush_until<W: Transport>(
        &mut self,
        until: u64,
        cause: Cause,
        sender: &mut Sender<'_, W>,
        stats: &mut Entries,
    ) -> bool {
        while let Some(list) = self.lists.get(self.pending_by_age.oldest()) {
            if list.age.since > until {
                break;
            }
            let has_credit = sender.has_credit(1, self.block_len as u64, list.reliable);
            if !has_credit
                || self
                    .flush(self.pending_by_age.oldest(), cause, sender, stats)
                    .is_err()
            {
                return false;
            }
        }
        true
    }
}

/// Completes a block: zeroes missing entries and writes the trailer.
#[inline]
fn seal(block: &mut [u8], list: &List, ring: Ring) {
    let trailer = BlockTrailer {
        sequence: list.sequence,
        count: list.filled,
        entry_len: ring.entry_len,
    };
    if list.filled < ring.batch {
        block[trailer.data_len()..].fill(0);
    }
    trailer.seal(block);
}
