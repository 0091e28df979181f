//! DTA Append lists: ring buffers of batches that a translator writes by RDMA, and the readers that follow them.
//!
//! ```text
//! tagged block:  │ entry 0 │ entry 1 │ … │ padding │ sequence │ count, entry_len │ CRC-32C │
//! bare block:    │ entry 0 │ entry 1 │ … │
//! ```
//!
//! Batch `s` (numbered from 1) is in block `(s - 1) mod blocks`. In a **tagged** ring, a [`Follower`] returns a block only
//! if it has the expected sequence number and its CRC matches, so it never returns a batch twice or half-written. A larger
//! sequence number means that the expected batch was overwritten; the follower counts such losses. A **bare** ring has no
//! trailers. A [`BareFollower`] compares a block with its previous contents, which detects less.

use std::sync::Arc;

use memory::Region;
use wire::crc::crc_32c_update;
use wire::dta::layout::{BLOCK_TRAILER_LEN, BlockTrailer, Ring};

use crate::header::BODY;

/// Sequence numbers run from 1 to 2^32 - 1 and wrap to 1; 0 marks a block that was never written.
const SEQ_MODULUS: i64 = u32::MAX as i64;

/// Bytes of a trailer that the CRC covers: sequence number, count and entry length.
const TRAILER_HEAD_LEN: usize = 8;

/// Computes the CRC-32C of `entries` followed by `head`, with the CPU's CRC instruction if it has one.
#[inline]
pub(crate) fn block_crc(entries: &[u8], head: &[u8; 8]) -> u32 {
    match memory::crc_32c_update(u32::MAX, entries) {
        Some(state) => !memory::crc_32c_update(state, head).unwrap_or(state),
        None => !crc_32c_update(crc_32c_update(u32::MAX, entries), head),
    }
}

/// Returns the block that contains batch `sequence` in a ring of `blocks` blocks.
#[inline]
pub const fn block_of(sequence: u32, blocks: u64) -> u64 {
    if blocks == 0 {
        0
    } else {
        (sequence as u64).saturating_sub(1) % blocks
    }
}

/// Returns the sequence number `by` batches after `sequence`, or before it if `by` is negative.
#[inline]
const fn seq_add(sequence: u32, by: i64) -> u32 {
    ((sequence as i64 - 1 + by).rem_euclid(SEQ_MODULUS) + 1) as u32
}

/// The lists of an append store.
///
/// ```
/// use std::sync::Arc;
/// use dta::{BODY, DtaStore, Header, Next, region_len};
/// use wire::dta::layout::{BlockTrailer, Geometry, Ring};
///
/// // One list with ID 7: entries of 4 bytes, two in a batch, four batches in the ring.
/// let ring = Ring { entry_len: 4, entries: 8, batch: 2, tagged: true };
/// let geometry = Geometry::Append { lists: 1, first_list: 7, ring };
/// let region = Arc::new(memory::Region::anonymous(region_len(&geometry), false)?);
/// let header = Header { name: "events".into(), id: 1, geometry, fields: "u32".into(), created: 0, snapshot: None };
/// let store = DtaStore::create(Arc::clone(&region), &header)?;
/// let lists = store.lists().ok_or("an append store")?;
/// assert!(lists.has(7) && !lists.has(8));
/// assert_eq!(lists.newest(7), None);
///
/// // A translator's write of batch 1:
/// let mut block = vec![0; ring.block_len() as usize];
/// block[..8].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 2]);
/// assert!(BlockTrailer { sequence: 1, count: 2, entry_len: 4 }.seal(&mut block));
/// region.write(BODY + ring.offset(0, 0), &block)?;
/// assert_eq!(lists.newest(7), Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lists {
    region: Arc<Region>,
    lists: u32,
    first_list: u32,
    ring: Ring,
}

impl Lists {
    pub(crate) fn new(region: Arc<Region>, lists: u32, first_list: u32, ring: Ring) -> Self {
        Self {
            region,
            lists,
            first_list,
            ring,
        }
    }

    /// Returns the shape of each list.
    pub fn ring(&self) -> Ring {
        self.ring
    }

    /// Returns the IDs of the lists.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = u32> + use<> {
        let first = self.first_list;
        (0..self.lists).map(move |index| first + index)
    }

    /// Returns whether the store has this list.
    pub fn has(&self, list: u32) -> bool {
        self.first_block(list).is_some()
    }

    /// Returns the region offset of the list's first block, or `None` for an unknown list.
    fn first_block(&self, list: u32) -> Option<u64> {
        let index = list
            .checked_sub(self.first_list)
            .filter(|index| *index < self.lists)?;
        Some(BODY + self.ring.offset(u64::from(index), 0))
    }

    fn view(&self, list: u32) -> Option<View> {
        let base = self.first_block(list)?;
        Some(View {
            region: Arc::clone(&self.region),
            ring: self.ring,
            base,
            blocks: self.ring.blocks(),
            block_len: self.ring.block_len(),
        })
    }

    /// Returns the blocks of a tagged list, or `None` for a bare or unknown list.
    fn tagged(&self, list: u32) -> Option<View> {
        if self.ring.tagged { self.view(list) } else { None }
    }

    /// Returns the sequence number of the newest complete batch of a list, or `None` for an empty, bare or unknown list. A
    /// restarted translator continues after it. Reads at most the whole list.
    pub fn newest(&self, list: u32) -> Option<u32> {
        self.tagged(list)?.newest()
    }

    /// Returns [`newest`](Self::newest) of every list, with its ID.
    pub fn heads(&self) -> impl Iterator<Item = (u32, Option<u32>)> {
        self.ids().map(|list| (list, self.newest(list)))
    }

    /// Creates a follower that starts with the oldest batch in the list, or returns `None` for a bare or unknown list.
    pub fn from_oldest(&self, list: u32) -> Option<Follower> {
        let view = self.tagged(list)?;
        let next = view.newest().map_or(1, |newest| view.oldest_before(newest));
        Some(Follower::new(view, next))
    }

    /// Creates a follower that starts with the next batch appended after this call, or returns `None` for a bare or unknown
    /// list.
    pub fn from_now(&self, list: u32) -> Option<Follower> {
        let view = self.tagged(list)?;
        let next = view.newest().map_or(1, BlockTrailer::next);
        Some(Follower::new(view, next))
    }

    /// Creates a follower that starts with batch `sequence` (0 counts as 1), where an earlier one stopped. Returns `None`
    /// for a bare or unknown list.
    pub fn from_sequence(&self, list: u32, sequence: u32) -> Option<Follower> {
        let view = self.tagged(list)?;
        Some(Follower::new(view, sequence.max(1)))
    }

    /// Creates a follower of a bare list that starts with changes after this call, or returns `None` for a tagged or
    /// unknown list.
    pub fn bare(&self, list: u32) -> Option<BareFollower> {
        if self.ring.tagged {
            return None;
        }
        self.view(list).map(BareFollower::new)
    }
}

/// The blocks of one list in its region.
#[derive(Clone, Debug)]
struct View {
    region: Arc<Region>,
    ring: Ring,
    base: u64,
    blocks: u64,
    block_len: u64,
}

impl View {
    #[inline]
    fn block_offset(&self, block: u64) -> u64 {
        self.base + block * self.block_len
    }

    /// Reads the sequence number in a block's trailer without checking the CRC.
    #[inline]
    fn sequence(&self, block: u64) -> u32 {
        let trailer_offset = self.block_offset(block) + self.block_len - BLOCK_TRAILER_LEN as u64;
        self.region.load_u32(trailer_offset).map_or(0, u32::from_le)
    }

    /// Reads a block into `scratch` and checks its trailer. Returns `None` if the block is incomplete.
    #[inline]
    fn read_block(&self, block: u64, scratch: &mut [u8]) -> Option<BlockTrailer> {
        // In a full batch without padding, the entries and the trailer's head are contiguous, so one pass computes the CRC.
        let checked_len = scratch.len() - BLOCK_TRAILER_LEN + TRAILER_HEAD_LEN;
        let crc = self
            .region
            .read_with_crc_32c(self.block_offset(block), scratch, checked_len)
            .ok()?;
        let trailer = BlockTrailer::check_by(scratch, |entries, head| match crc {
            Some(crc) if entries.len() + TRAILER_HEAD_LEN == checked_len => crc,
            _ => block_crc(entries, head),
        });
        let trailer = trailer.ok()?;
        let is_valid =
            trailer.entry_len == self.ring.entry_len && (1..=self.ring.batch).contains(&trailer.count);
        is_valid.then_some(trailer)
    }

    fn newest(&self) -> Option<u32> {
        let mut scratch = vec![0; self.block_len as usize];
        let mut newest_claimed = 0;
        for sequence in (0..self.blocks).map(|block| self.sequence(block)) {
            if sequence != 0 && is_later(sequence, newest_claimed) {
                newest_claimed = sequence;
            }
        }
        // The block with the largest sequence number is usually complete. If it is not, check the others one by one.
        if newest_claimed == 0 || self.is_complete(newest_claimed, &mut scratch) {
            return Some(newest_claimed).filter(|sequence| *sequence != 0);
        }
        let mut newest_complete = 0;
        for block in 0..self.blocks {
            let sequence = self.sequence(block);
            if sequence != 0
                && is_later(sequence, newest_complete)
                && self.is_complete(sequence, &mut scratch)
            {
                newest_complete = sequence;
            }
        }
        Some(newest_complete).filter(|sequence| *sequence != 0)
    }

    fn is_complete(&self, sequence: u32, scratch: &mut [u8]) -> bool {
        let trailer = self.read_block(block_of(sequence, self.blocks), scratch);
        trailer.is_some_and(|trailer| trailer.sequence == sequence)
    }

    /// Returns the oldest sequence number from which every block up to `newest` has the expected number, at most one ring
    /// back.
    fn oldest_before(&self, newest: u32) -> u32 {
        let limit = i64::try_from(self.blocks).unwrap_or(i64::MAX).min(SEQ_MODULUS);
        let batches_back = (1..limit)
            .take_while(|batches_back| {
                let sequence = seq_add(newest, -batches_back);
                self.sequence(block_of(sequence, self.blocks)) == sequence
            })
            .last()
            .unwrap_or(0);
        seq_add(newest, -batches_back)
    }

    /// Returns the newest sequence number, given that batch `found` is in its block. Uses binary search: the blocks after
    /// it have consecutive numbers up to the newest batch, then numbers of the previous pass.
    fn newest_after(&self, found: u32) -> u32 {
        let mut reached = 0;
        let mut end = self.blocks as i64;
        while end - reached > 1 {
            let middle = reached + (end - reached) / 2;
            let sequence = seq_add(found, middle);
            let stored_sequence = self.sequence(block_of(sequence, self.blocks));
            if stored_sequence != 0 && BlockTrailer::ahead(stored_sequence, sequence) >= 0 {
                reached = middle;
            } else {
                end = middle;
            }
        }
        seq_add(found, reached)
    }
}

/// Returns whether a sequence number is later than the newest one so far (0: none).
fn is_later(sequence: u32, newest: u32) -> bool {
    newest == 0 || BlockTrailer::ahead(sequence, newest) > 0
}

/// The result of polling a follower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next<'a> {
    /// The expected batch has arrived completely.
    Batch {
        /// Sequence number of the batch.
        sequence: u32,
        /// Number of its entries.
        count: u16,
        /// Bytes of all entries, concatenated.
        entries: &'a [u8],
    },
    /// The expected batch has not arrived. Later ones may have, because writes can be reordered: the follower polls
    /// [`Follower::MAX_RETRIES`] times before it counts a batch as missing. [`Follower::max_empty_polls`] bounds the polls.
    Nothing,
    /// The expected batch is being written. Poll again.
    Torn,
    /// Batches were overwritten before they were read. The follower continues with later ones, at some distance from the
    /// writer.
    Overwritten {
        /// Number of overwritten batches.
        lost: u64,
    },
    /// Batches never arrived complete although later ones did, because a write was lost or corrupted in flight.
    Missing {
        /// Number of missing batches.
        lost: u64,
    },
}

/// Counters of a follower.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FollowerStats {
    /// Number of batches returned.
    pub batches: u64,
    /// Number of entries in them.
    pub entries: u64,
    /// Batches overwritten before they were read.
    pub overwritten: u64,
    /// Batches that never arrived completely.
    pub missing: u64,
}

/// Follows a tagged list. Each follower has its own position and affects neither the writer nor other followers.
///
/// ```
/// use std::sync::Arc;
/// use dta::{BODY, DtaStore, Header, Next, region_len};
/// use wire::dta::layout::{BlockTrailer, Geometry, Ring};
///
/// // One list with ID 7: entries of 4 bytes, two in a batch, four batches in the ring.
/// let ring = Ring { entry_len: 4, entries: 8, batch: 2, tagged: true };
/// let geometry = Geometry::Append { lists: 1, first_list: 7, ring };
/// let region = Arc::new(memory::Region::anonymous(region_len(&geometry), false)?);
/// let header = Header { name: "events".into(), id: 1, geometry, fields: "u32".into(), created: 0, snapshot: None };
/// let store = DtaStore::create(Arc::clone(&region), &header)?;
/// let lists = store.lists().ok_or("an append store")?;
/// let mut follower = lists.from_oldest(7).ok_or("list 7")?;
/// assert_eq!(follower.next(), Next::Nothing);
///
/// // A translator's write of batch 1:
/// let mut block = vec![0; ring.block_len() as usize];
/// block[..8].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 2]);
/// assert!(BlockTrailer { sequence: 1, count: 2, entry_len: 4 }.seal(&mut block));
/// region.write(BODY + ring.offset(0, 0), &block)?;
/// assert_eq!(follower.next(), Next::Batch { sequence: 1, count: 2, entries: &[0, 0, 0, 1, 0, 0, 0, 2] });
/// assert_eq!((follower.position(), follower.stats().entries), (2, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Follower {
    view: View,
    /// The expected sequence number and its block.
    next: u32,
    block: u64,
    /// Consecutive polls without the expected batch.
    empty_polls: u32,
    retries: u32,
    scratch: Box<[u8]>,
    stats: FollowerStats,
}

impl Follower {
    /// Polls for a missing batch before the follower looks for later ones and counts it as lost.
    pub const MAX_RETRIES: u32 = 64;

    fn new(view: View, next: u32) -> Self {
        let scratch = vec![0; view.block_len as usize].into_boxed_slice();
        let block = block_of(next, view.blocks);
        let retries = Self::MAX_RETRIES;
        Self {
            view,
            next,
            block,
            empty_polls: 0,
            retries,
            scratch,
            stats: FollowerStats::default(),
        }
    }

    /// Sets the number of retries in place of [`Follower::MAX_RETRIES`]. Batches on the reliable queue pair may arrive
    /// later than others.
    #[must_use]
    pub fn with_retries(mut self, calls: u32) -> Self {
        self.retries = calls;
        self
    }

    /// Returns the expected sequence number, from which [`Lists::from_sequence`] can continue.
    pub fn position(&self) -> u32 {
        self.next
    }

    /// Returns the counters since the follower was created.
    pub fn stats(&self) -> FollowerStats {
        self.stats
    }

    /// Returns the length of an entry, bytes.
    pub fn entry_len(&self) -> usize {
        usize::from(self.view.ring.entry_len)
    }

    /// Returns the next batch, or the reason why there is none yet. The entries are valid until the next call.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "the result borrows the follower")]
    pub fn next(&mut self) -> Next<'_> {
        let found = self.view.sequence(self.block);
        if found != self.next {
            return self.mismatch(found);
        }
        let Some(trailer) = self.view.read_block(self.block, &mut self.scratch) else {
            return self.retry_later(true);
        };
        // The writer may have overwritten the block between the two reads.
        if trailer.sequence != self.next {
            return self.mismatch(trailer.sequence);
        }
        let sequence = self.next;
        self.go_to_next();
        self.stats.batches += 1;
        self.stats.entries += u64::from(trailer.count);
        Next::Batch {
            sequence,
            count: trailer.count,
            entries: &self.scratch[..trailer.data_len()],
        }
    }

    #[inline]
    fn go_to_next(&mut self) {
        self.empty_polls = 0;
        self.next = BlockTrailer::next(self.next);
        self.block += 1;
        if self.next == 1 || self.block == self.view.blocks {
            self.block = block_of(self.next, self.view.blocks);
        }
        self.view.region.prefetch(self.view.block_offset(self.block));
    }

    fn seek(&mut self, sequence: u32) {
        self.empty_polls = 0;
        self.next = sequence;
        self.block = block_of(sequence, self.view.blocks);
    }

    #[cold]
    fn mismatch(&mut self, found: u32) -> Next<'static> {
        if found == 0 || BlockTrailer::ahead(found, self.next) < 0 {
            return self.retry_later(false);
        }
        // Ignore a corrupted trailer: its sequence number may be wrong.
        if self
            .view
            .read_block(self.block, &mut self.scratch)
            .is_none_or(|trailer| trailer.sequence != found)
        {
            return self.retry_later(true);
        }
        self.skip_overwritten(found)
    }

    /// Skips the expected batch, which was overwritten: its block contains the complete batch `found`. Continues some
    /// distance behind the newest batch.
    fn skip_overwritten(&mut self, found: u32) -> Next<'static> {
        let newest = self.view.newest_after(found);
        let newest = if self.view.is_complete(newest, &mut self.scratch) {
            newest
        } else {
            found
        };
        let blocks = self.view.blocks as i64;
        // An eighth of the ring, so that the writer does not overwrite the next batch at once.
        let oldest = seq_add(newest, 1 - blocks + blocks / 8);
        // Go at least one batch past the overwritten one.
        let to = if BlockTrailer::ahead(oldest, self.next) > 0 {
            oldest
        } else {
            seq_add(self.next, 1)
        };
        let lost = BlockTrailer::ahead(to, self.next).unsigned_abs();
        self.stats.overwritten += lost;
        self.seek(to);
        Next::Overwritten { lost }
    }

    /// Counts an empty poll. After the retries it also searches for a later batch, so that one lost batch does not block
    /// the follower. A poll cannot check the whole ring. It checks one distance that doubles from poll to poll, which finds
    /// distant batches quickly, and the next window of distances, so that every distance is checked eventually.
    #[cold]
    fn retry_later(&mut self, torn: bool) -> Next<'static> {
        // If the counter overflows, continue as if the retries were just used up.
        self.empty_polls = self.empty_polls.checked_add(1).unwrap_or(self.retries);
        let answer = if torn { Next::Torn } else { Next::Nothing };
        let Some(calls) = self.empty_polls.checked_sub(self.retries) else {
            return answer;
        };
        // One block less than the ring: the expected batch's own block is excluded.
        let last = self.view.blocks.saturating_sub(1).min(SEQ_MODULUS as u64) as i64;
        let window = self.window();
        let windows = last.unsigned_abs().div_ceil(window).max(1);
        let from = (u64::from(calls) % windows * window) as i64;
        let near = (from + 1..=last.min(from + window as i64)).find(|by| self.later_sequence(*by).is_some());
        let far = Some(1_i64 << (calls % 32)).filter(|by| *by <= last && self.later_sequence(*by).is_some());
        let Some(found) = near.or(far) else { return answer };
        let first = (1..=found).find_map(|by| Some((by, self.later_sequence(by)?)));
        // A later batch is present, so the expected one is lost, unless it has arrived meanwhile. Read its block again.
        let overwritten = match self.view.read_block(self.block, &mut self.scratch) {
            Some(trailer) if trailer.sequence == self.next => return answer,
            Some(trailer) if BlockTrailer::ahead(trailer.sequence, self.next) > 0 => {
                return self.skip_overwritten(trailer.sequence);
            }
            Some(_) => false,
            None => self.is_writer_here(),
        };
        match first {
            Some((lost, reached)) if reached == seq_add(self.next, lost) && !overwritten => {
                self.stats.missing += lost.unsigned_abs();
                self.seek(reached);
                Next::Missing {
                    lost: lost.unsigned_abs(),
                }
            }
            // A batch of a later pass: the writer has overwritten the expected block, or is overwriting it.
            Some((_, reached)) => self.skip_overwritten(reached),
            None => answer,
        }
    }

    /// Returns whether the writer is overwriting the expected block, one pass ahead. An incomplete block can mean that the
    /// writer was descheduled in the middle of a write, rather than that the batch is corrupt. A batch that was corrupted
    /// one pass ago looks the same and is counted the same.
    fn is_writer_here(&self) -> bool {
        let following = BlockTrailer::next(self.view.newest_after(self.next));
        block_of(following, self.view.blocks) == self.block
    }

    /// Returns the sequence number in the block of the batch `by` after the expected one, if the block contains that batch
    /// or a complete one of a later pass.
    fn later_sequence(&mut self, by: i64) -> Option<u32> {
        let sequence = seq_add(self.next, by);
        let stored_sequence = self.view.sequence(block_of(sequence, self.view.blocks));
        if stored_sequence == sequence {
            return Some(stored_sequence);
        }
        let is_later_pass = stored_sequence != 0
            && BlockTrailer::ahead(stored_sequence, sequence) > 0
            && self.view.is_complete(stored_sequence, &mut self.scratch);
        is_later_pass.then_some(stored_sequence)
    }

    /// Returns how many distances one empty poll checks. 1,024 polls cover a long ring, but one poll takes only a few
    /// microseconds, because idle lists are polled continuously.
    fn window(&self) -> u64 {
        (self.view.blocks / 1024).clamp(32, 1024)
    }

    /// Returns how many consecutive empty polls prove, if nothing writes to the memory, that every batch has been returned.
    pub fn max_empty_polls(&self) -> u32 {
        let windows = self.view.blocks.div_ceil(self.window());
        self.retries
            .saturating_add(u32::try_from(windows).unwrap_or(u32::MAX))
            .saturating_add(1)
    }
}

/// Follows a bare list. Without trailers, a batch is new if its bytes differ from the previous contents of its block.
///
/// Limits: if a batch equals the previous contents, it and the following ones are missed until the writer returns to that
/// block. Half-written batches are returned, and overwritten ones are not counted. Use it for rings whose entries never
/// repeat (they contain a time or a number) and that are polled often. It keeps a copy of the ring.
#[derive(Clone, Debug)]
pub struct BareFollower {
    view: View,
    block: u64,
    before: Box<[u8]>,
    scratch: Box<[u8]>,
}

impl BareFollower {
    fn new(view: View) -> Self {
        let mut before = vec![0; (view.blocks * view.block_len) as usize].into_boxed_slice();
        // The range was checked when the store was opened, and a region never shrinks.
        let _ = view.region.read(view.base, &mut before);
        let scratch = vec![0; view.block_len as usize].into_boxed_slice();
        Self {
            view,
            block: 0,
            before,
            scratch,
        }
    }

    /// Returns the entries of the next changed batch in ring order, or `None` if nothing changed. Reads at most `blocks`
    /// blocks.
    pub fn next(&mut self, blocks: u64) -> Option<&[u8]> {
        for _ in 0..blocks.min(self.view.blocks) {
            let block = self.block;
            self.block = if block + 1 == self.view.blocks {
                0
            } else {
                block + 1
            };
            let old = (block * self.view.block_len) as usize;
            let old = self.before.get_mut(old..old + self.scratch.len())?;
            if !self.view.region.is(self.view.block_offset(block), old) {
                self.view
                    .region
                    .read(self.view.block_offset(block), &mut self.scratch)
                    .ok()?;
                old.copy_from_slice(&self.scratch);
                return Some(&self.scratch);
            }
        }
        None
    }
}
