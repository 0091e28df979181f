//! Append: entries wait in their block until it is full, its timer expires, or a report requests an immediate.
//! Wire-formats 5.5 and 5.9.

use wire::dta::Opcode;
use wire::dta::layout::{BlockTrailer, Geometry, Ring};

use super::config::StoreEntry;
use super::sender::{Fault, Sender, Target};
use super::stats::{Cause, Entries, Reason};
use memory::age_list::{AgeLink, AgeList, Aged};
use rdma::transport::{Blocked, Transport};

/// A list and its pending batch.
#[derive(Clone, Copy, Debug)]
struct List {
    /// Tagged: sequence number of the pending batch.
    sequence: u32,
    /// Number of pending entries.
    filled: u16,
    /// Whether one of the entries is essential.
    reliable: bool,
    /// Whether one of the entries requests an immediate.
    notice: bool,
    /// Bare: position of the first of them, in entries.
    head: u64,
    /// Arrival time of the first entry, ns.
    age: AgeLink,
}

impl Aged for List {
    fn age_link(&mut self) -> &mut AgeLink {
        &mut self.age
    }
}

/// The lists of one region.
#[derive(Debug)]
pub(super) struct Lists {
    entry: StoreEntry,
    ring: Ring,
    first: u32,
    lists: Vec<List>,
    /// Pending blocks of all lists.
    blocks: Vec<u8>,
    block_len: usize,
    entry_len: usize,
    waiting: AgeList,
}

/// Options of an Append.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) immediate: bool,
    pub(super) reliable: bool,
    /// The entries are the artifact's: words of 4 bytes, which its readers expect in the byte order of memory.
    pub(super) words: bool,
}

impl Lists {
    /// `None` if the entry is not an Append store.
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
            notice: false,
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
            waiting: AgeList::EMPTY,
        })
    }

    pub(super) fn entry(&self) -> &StoreEntry {
        &self.entry
    }

    /// Index of a list, if it is in this region.
    #[inline(always)]
    pub(super) fn find(&self, list: u32) -> Option<usize> {
        let at = list.wrapping_sub(self.first) as usize;
        (at < self.lists.len()).then_some(at)
    }

    /// Prefetches a list's head and its pending block, if it is in this region.
    #[inline(always)]
    pub(super) fn prefetch(&self, list: u32) {
        let at = list.wrapping_sub(self.first) as usize;
        if let (Some(list), Some(block)) = (self.lists.get(at), self.blocks.get(at * self.block_len)) {
            memory::prefetch(list);
            memory::prefetch(block);
        }
    }

    /// Bytes of all heads and pending blocks.
    #[inline(always)]
    pub(super) fn footprint(&self) -> usize {
        self.blocks.len() + size_of_val(&self.lists[..])
    }

    /// Bytes of an entry.
    #[inline(always)]
    pub(super) fn entry_len(&self) -> usize {
        self.entry_len
    }

    /// Sets the number of the next entry: see [`super::Translator::set_next`]. Pending entries are numbered from there on.
    pub(super) fn set_next(&mut self, at: usize, next: u64) {
        let Some(list) = self.lists.get_mut(at) else {
            return;
        };
        list.sequence = (next as u32).max(1);
        // The pending entries of a bare list must not cross the end of their batch.
        let batch = u64::from(self.ring.batch);
        let next = next % self.ring.entries.max(1);
        list.head = if next % batch + u64::from(list.filled) <= batch {
            next
        } else {
            next / batch * batch
        };
    }

    /// Counts the pending entries.
    pub(super) fn pending(&self) -> u64 {
        self.lists.iter().map(|list| u64::from(list.filled)).sum()
    }

    /// Returns the arrival time of the oldest pending entry, ns.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.lists.get(self.waiting.oldest()).map(|list| list.age.since)
    }

    /// Capacity of the pending block in entries: a bare block that was written early is completed first.
    #[inline(always)]
    fn capacity(&self, list: &List) -> u16 {
        if self.ring.tagged {
            self.ring.batch
        } else {
            self.ring.batch - (list.head % u64::from(self.ring.batch)) as u16
        }
    }

    /// Number of entries in this many bytes.
    #[inline(always)]
    fn count(&self, bytes: usize) -> usize {
        // Usually there is one, and a 64-bit division is slow.
        if bytes == self.entry_len {
            1
        } else {
            (bytes as u32 / self.entry_len as u32) as usize
        }
    }

    /// Appends entries (a whole number of them) to the list with index `at`.
    #[inline(always)]
    pub(super) fn append<W: Transport>(
        &mut self,
        at: usize,
        now: u64,
        entries: &[u8],
        request: Request,
        sender: &mut Sender<'_, W>,
        stats: &mut Entries,
    ) -> Result<(), Fault> {
        let list = &self.lists[at];
        let free = usize::from(self.capacity(list)) * self.entry_len;
        if usize::from(list.filled) * self.entry_len + entries.len() < free && !request.immediate {
            // The usual case: they fit, and the block is not full yet.
            stats.accepted += u64::from(self.fill(at, now, entries, request));
            return Ok(());
        }
        self.append_and_write(at, now, entries, request, sender, stats)
    }

    #[inline(never)]
    fn append_and_write<W: Transport>(
        &mut self,
        at: usize,
        now: u64,
        mut entries: &[u8],
        request: Request,
        sender: &mut Sender<'_, W>,
        stats: &mut Entries,
    ) -> Result<(), Fault> {
        let list = self.lists[at];
        let batch = usize::from(self.ring.batch);
        let before = batch - usize::from(self.capacity(&list)) + usize::from(list.filled);
        let writes =
            (before + self.count(entries.len())) as u32 / batch as u32 + u32::from(request.immediate);
        let block_len = self.block_len as u64;
        // Pending entries may be reliable, and these not.
        let is_mixed = list.reliable && !request.reliable && writes > 1;
        let is_reliable = request.reliable || list.reliable;
        if !sender.has_credit(writes, u64::from(writes) * block_len, is_reliable)
            || is_mixed && !sender.has_credit(writes - 1, u64::from(writes - 1) * block_len, false)
        {
            return Err(Fault::Blocked);
        }
        let whole = entries.len();
        loop {
            let list = self.lists[at];
            let free = usize::from(self.capacity(&list)) - usize::from(list.filled);
            let (front, rest) = entries.split_at(entries.len().min(free * self.entry_len));
            stats.accepted += u64::from(self.fill(at, now, front, request));
            entries = rest;
            let list = &mut self.lists[at];
            if request.immediate && rest.is_empty() {
                list.notice = true;
            }
            let full = list.filled == self.capacity(&self.lists[at]);
            if !full && !request.immediate {
                return Ok(());
            }
            let cause = if full { Cause::Full } else { Cause::Immediate };
            let written = self.flush(at, cause, sender, stats);
            if rest.is_empty() {
                // If it could not be written, it stays pending.
                return Ok(());
            }
            if written.is_err() {
                let untouched = rest.len() == whole;
                return Err(if untouched {
                    Fault::Blocked
                } else {
                    Fault::Drop(Reason::CutShort)
                });
            }
        }
    }

    /// Puts entries that fit into the pending block. Returns their number.
    #[inline(always)]
    fn fill(&mut self, at: usize, now: u64, entries: &[u8], request: Request) -> u16 {
        let count = self.count(entries.len()) as u16;
        let list = &mut self.lists[at];
        let before = list.filled;
        list.filled += count;
        list.reliable |= request.reliable;
        let begin = at * self.block_len + usize::from(before) * self.entry_len;
        let place = &mut self.blocks[begin..begin + entries.len()];
        // Tagged blocks are ours alone, and keep the bytes of the report.
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
            // One entry of four bytes: copied without a call.
            *to = *from;
        } else {
            place.copy_from_slice(entries);
        }
        if before == 0 && count > 0 {
            self.waiting.push(&mut self.lists, at, now);
        }
        count
    }

    /// Writes the pending block of a list, and starts the next one. A block that can never be written is lost.
    fn flush<W: Transport>(
        &mut self,
        at: usize,
        cause: Cause,
        sender: &mut Sender<'_, W>,
        stats: &mut Entries,
    ) -> Result<(), Blocked> {
        let list = self.lists[at];
        let id = (Opcode::Append as u32) << 28 | (self.first + at as u32) & 0x0fff_ffff;
        let block = &mut self.blocks[at * self.block_len..][..self.block_len];
        let (offset, len) = if self.ring.tagged {
            seal(block, &list, self.ring);
            let index = u64::from(list.sequence - 1) % self.ring.blocks();
            (self.ring.offset(at as u64, index), self.block_len)
        } else {
            let offset = self.ring.offset(at as u64, 0) + list.head * self.entry_len as u64;
            (offset, usize::from(list.filled) * self.entry_len)
        };
        let immediate = list.notice.then_some(id);
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
        self.waiting.remove(&mut self.lists, at);
        let list = &mut self.lists[at];
        list.sequence = BlockTrailer::next(list.sequence);
        list.head = (list.head + count) % self.ring.entries;
        list.filled = 0;
        list.reliable = false;
        list.notice = false;
        Ok(())
    }

    /// Writes blocks that are pending since `until` or longer, as far as the transport accepts them. False if it did not accept all.
    pub(super) fn flush_until<W: Transport>(
        &mut self,
        until: u64,
        cause: Cause,
        sender: &mut Sender<'_, W>,
        stats: &mut Entries,
    ) -> bool {
        while let Some(list) = self.lists.get(self.waiting.oldest()) {
            if list.age.since > until {
                break;
            }
            let has_credit = sender.has_credit(1, self.block_len as u64, list.reliable);
            if !has_credit || self.flush(self.waiting.oldest(), cause, sender, stats).is_err() {
                return false;
            }
        }
        true
    }
}

/// Completes a block: zeros for missing entries, and the trailer.
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
