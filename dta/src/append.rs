//! Lists: rings of batches, followed by any number of readers.
//!
//! In a **tagged** ring each block ends with a trailer: the batch's sequence number, its entry count, and a CRC over both. A
//! [`Follower`] returns a block when the sequence number is the expected one and the CRC matches, so that it never returns a
//! batch twice or half-written, and counts what it missed: a larger sequence number means that the writer lapped it.
//!
//! A **bare** ring has no trailers. A [`BareFollower`] compares with what was there when it last looked: weaker, see there.

use std::sync::Arc;

use memory::Region;
use wire::crc::crc_32c_update;
use wire::dta::layout::{BLOCK_TRAILER_LEN, BlockTrailer, Ring};

use crate::header::BODY;

/// Sequence numbers are 1 to 2^32 - 1 and wrap around.
const SEQ_MODULUS: i64 = u32::MAX as i64;

/// Bytes of a trailer that the CRC covers.
const TRAILER_HEAD_LEN: usize = 8;

/// CRC-32C of `head` behind `entries`, by the processor's instruction where it has one.
#[inline]
pub(crate) fn block_crc(entries: &[u8], head: &[u8; 8]) -> u32 {
    match memory::crc_32c_update(u32::MAX, entries) {
        Some(state) => !memory::crc_32c_update(state, head).unwrap_or(state),
        None => !crc_32c_update(crc_32c_update(u32::MAX, entries), head),
    }
}

/// The block of a ring of `blocks` in which batch `sequence` lies.
#[inline]
pub const fn block_of(sequence: u32, blocks: u64) -> u64 {
    if blocks == 0 { 0 } else { (sequence as u64).saturating_sub(1) % blocks }
}

/// The number `by` batches after `sequence`, or before it.
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
        Self { region, lists, first_list, ring }
    }

    /// The shape of each list.
    pub fn ring(&self) -> Ring {
        self.ring
    }

    /// The lists' IDs.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = u32> + use<> {
        let first = self.first_list;
        (0..self.lists).map(move |index| first + index)
    }

    /// Whether a list is among them.
    pub fn has(&self, list: u32) -> bool {
        self.place(list).is_some()
    }

    /// Where the list's first block begins, in the region.
    fn place(&self, list: u32) -> Option<u64> {
        let index = list.checked_sub(self.first_list).filter(|index| *index < self.lists)?;
        Some(BODY + self.ring.offset(u64::from(index), 0))
    }

    fn view(&self, list: u32) -> Option<View> {
        let base = self.place(list)?;
        let (blocks, block_len) = (self.ring.blocks(), self.ring.block_len());
        Some(View { region: Arc::clone(&self.region), ring: self.ring, base, blocks, block_len })
    }

    /// The largest number of a whole batch in a list; `None` for an empty list, a bare one, or one that is not here. Reads the
    /// whole list at worst. A translator that starts goes on after it.
    pub fn newest(&self, list: u32) -> Option<u32> {
        self.view(list).filter(|_| self.ring.tagged)?.newest()
    }

    /// [`newest`](Self::newest) of every list, with its ID.
    pub fn heads(&self) -> impl Iterator<Item = (u32, Option<u32>)> {
        self.ids().map(|list| (list, self.newest(list)))
    }

    /// A follower that begins with the oldest batch that is still there. `None` for a bare list or one that is not here.
    pub fn from_oldest(&self, list: u32) -> Option<Follower> {
        let view = self.view(list).filter(|_| self.ring.tagged)?;
        let next = view.newest().map_or(1, |newest| view.oldest_before(newest));
        Some(Follower::new(view, next))
    }

    /// A follower of the entries that are appended after this call.
    pub fn from_now(&self, list: u32) -> Option<Follower> {
        let view = self.view(list).filter(|_| self.ring.tagged)?;
        let next = view.newest().map_or(1, BlockTrailer::next);
        Some(Follower::new(view, next))
    }

    /// A follower that goes on with batch `sequence` (0 counts as 1): where an earlier one stopped.
    pub fn from_sequence(&self, list: u32, sequence: u32) -> Option<Follower> {
        let view = self.view(list).filter(|_| self.ring.tagged)?;
        Some(Follower::new(view, sequence.max(1)))
    }

    /// A follower of a bare list, from the changes after this call. `None` for a tagged list or one that is not here.
    pub fn bare(&self, list: u32) -> Option<BareFollower> {
        self.view(list).filter(|_| !self.ring.tagged).map(BareFollower::new)
    }
}

/// One list's blocks.
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
    fn at(&self, block: u64) -> u64 {
        self.base + block * self.block_len
    }

    /// The number in a block's trailer, checked against nothing.
    #[inline]
    fn sequence(&self, block: u64) -> u32 {
        let at = self.at(block) + self.block_len - BLOCK_TRAILER_LEN as u64;
        self.region.load_u32(at).map_or(0, u32::from_le)
    }

    /// Reads a block and checks it.
    #[inline]
    fn whole(&self, block: u64, scratch: &mut [u8]) -> Option<BlockTrailer> {
        // In a full batch without padding the bytes that the CRC covers lie in a row.
        let covered = scratch.len() - BLOCK_TRAILER_LEN + TRAILER_HEAD_LEN;
        let full = self.region.read_with_crc_32c(self.at(block), scratch, covered).ok()?;
        let in_a_row = |entries: &[u8]| entries.len() + TRAILER_HEAD_LEN == covered;
        let check = |entries: &[u8], head: &[u8; 8]| match full {
            Some(crc) if in_a_row(entries) => crc,
            _ => block_crc(entries, head),
        };
        let trailer = BlockTrailer::check_by(scratch, check).ok()?;
        let fits = trailer.entry_len == self.ring.entry_len && (1..=self.ring.batch).contains(&trailer.count);
        fits.then_some(trailer)
    }

    fn newest(&self) -> Option<u32> {
        let mut scratch = vec![0; self.block_len as usize];
        let later = |best: u32, sequence: u32| best == 0 || BlockTrailer::ahead(sequence, best) > 0;
        let mut claimed = 0;
        for sequence in (0..self.blocks).map(|block| self.sequence(block)) {
            if sequence != 0 && later(claimed, sequence) {
                claimed = sequence;
            }
        }
        // As a rule the block that claims to be the newest is.
        if claimed == 0 || self.holds(claimed, &mut scratch) {
            return Some(claimed).filter(|claimed| *claimed != 0);
        }
        let mut best = 0;
        for block in 0..self.blocks {
            let sequence = self.sequence(block);
            if sequence != 0 && later(best, sequence) && self.holds(sequence, &mut scratch) {
                best = sequence;
            }
        }
        Some(best).filter(|best| *best != 0)
    }

    fn holds(&self, sequence: u32, scratch: &mut [u8]) -> bool {
        let whole = self.whole(block_of(sequence, self.blocks), scratch);
        whole.is_some_and(|trailer| trailer.sequence == sequence)
    }

    /// The first number after which all blocks up to `newest` are where they should be; at most a ring before it.
    fn oldest_before(&self, newest: u32) -> u32 {
        let in_place = |back: &i64| {
            let sequence = seq_add(newest, -back);
            self.sequence(block_of(sequence, self.blocks)) == sequence
        };
        let lap = i64::try_from(self.blocks).unwrap_or(i64::MAX).min(SEQ_MODULUS);
        let back = (1..lap).take_while(in_place).last().unwrap_or(0);
        seq_add(newest, -back)
    }

    /// The newest number, knowing that the block of `found` has it: the blocks behind it have the following ones up to the newest,
    /// and older ones from there on.
    fn newest_after(&self, found: u32) -> u32 {
        let (mut there, mut beyond) = (0, self.blocks as i64);
        while beyond - there > 1 {
            let middle = there + (beyond - there) / 2;
            let sequence = seq_add(found, middle);
            let seen = self.sequence(block_of(sequence, self.blocks));
            if seen != 0 && BlockTrailer::ahead(seen, sequence) >= 0 {
                there = middle;
            } else {
                beyond = middle;
            }
        }
        seq_add(found, there)
    }
}

/// What a follower finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next<'a> {
    /// The next batch.
    Batch {
        /// Its number.
        sequence: u32,
        /// How many entries it has.
        count: u16,
        /// The entries, one behind the other.
        entries: &'a [u8],
    },
    /// It is not there yet. Later ones may be: batches can overtake each other on their way to memory, so a follower asks
    /// [`Follower::MAX_RETRIES`] times before it gives one up. [`Follower::max_empty_polls`] bounds the polls.
    Nothing,
    /// It is being written just now. Ask again.
    Torn,
    /// The writer was faster by a lap: this many batches were overwritten before they were read. The follower goes on with the oldest
    /// ones, a little behind the writer.
    Lapped {
        /// Batches.
        lost: u64,
    },
    /// This many batches never arrived, or not completely, although later ones did: a write was lost on its way to memory, or arrived damaged.
    Missing {
        /// Batches.
        lost: u64,
    },
}

/// What a follower has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FollowerStats {
    /// Batches returned.
    pub batches: u64,
    /// Entries in them.
    pub entries: u64,
    /// Batches overwritten before they were read.
    pub lapped: u64,
    /// Batches that never came, or not whole.
    pub missing: u64,
}

/// Follows a tagged list. Each has its own position, and none disturbs another or the writer.
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
/// assert_eq!((follower.position(), follower.seen().entries), (2, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Follower {
    view: View,
    /// The number waited for, and its block.
    next: u32,
    block: u64,
    /// Polls for this sequence number that found nothing.
    empty_polls: u32,
    retries: u32,
    scratch: Box<[u8]>,
    seen: FollowerStats,
}

impl Follower {
    /// Polls for a missing batch, with later ones present, before it counts as lost.
    pub const MAX_RETRIES: u32 = 64;

    fn new(view: View, next: u32) -> Self {
        let scratch = vec![0; view.block_len as usize].into_boxed_slice();
        let block = block_of(next, view.blocks);
        let retries = Self::MAX_RETRIES;
        Self { view, next, block, empty_polls: 0, retries, scratch, seen: FollowerStats::default() }
    }

    /// Sets the retries, instead of [`Follower::MAX_RETRIES`]. Batches on the reliable queue pair may arrive later than others.
    #[must_use]
    pub fn with_retries(mut self, calls: u32) -> Self {
        self.retries = calls;
        self
    }

    /// The number of the batch that is waited for: where to go on with [`Lists::from_sequence`].
    pub fn position(&self) -> u32 {
        self.next
    }

    /// What was seen since it began.
    pub fn seen(&self) -> FollowerStats {
        self.seen
    }

    /// Bytes of an entry.
    pub fn entry_len(&self) -> usize {
        usize::from(self.view.ring.entry_len)
    }

    /// The next batch, or why there is none. The entries lie in the follower until the next call.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "what it returns borrows the follower")]
    pub fn next(&mut self) -> Next<'_> {
        let found = self.view.sequence(self.block);
        if found != self.next {
            return self.mismatch(found);
        }
        let Some(trailer) = self.view.whole(self.block, &mut self.scratch) else {
            return self.retry_later(true);
        };
        // It may have been overwritten between the two looks.
        if trailer.sequence != self.next {
            return self.mismatch(trailer.sequence);
        }
        let sequence = self.next;
        self.go_to_next();
        self.seen.batches += 1;
        self.seen.entries += u64::from(trailer.count);
        Next::Batch { sequence, count: trailer.count, entries: &self.scratch[..trailer.data_len()] }
    }

    #[inline]
    fn go_to_next(&mut self) {
        self.empty_polls = 0;
        self.next = BlockTrailer::next(self.next);
        self.block += 1;
        if self.next == 1 || self.block == self.view.blocks {
            self.block = block_of(self.next, self.view.blocks);
        }
        self.view.region.prefetch(self.view.at(self.block));
    }

    fn go_to(&mut self, sequence: u32) {
        self.empty_polls = 0;
        self.next = sequence;
        self.block = block_of(sequence, self.view.blocks);
    }

    #[cold]
    fn mismatch(&mut self, found: u32) -> Next<'static> {
        if found == 0 || BlockTrailer::ahead(found, self.next) < 0 {
            return self.retry_later(false);
        }
        // Not by a damaged trailer.
        if self.view.whole(self.block, &mut self.scratch).is_none_or(|trailer| trailer.sequence != found) {
            return self.retry_later(true);
        }
        self.lapped_at(found)
    }

    /// The writer is ahead by a lap: batch `found` is there, whole. Goes on a little behind the newest.
    fn lapped_at(&mut self, found: u32) -> Next<'static> {
        let newest = self.view.newest_after(found);
        let newest = if self.view.holds(newest, &mut self.scratch) { newest } else { found };
        let blocks = self.view.blocks as i64;
        // A distance to the writer, which overwrites the oldest entries.
        let oldest = seq_add(newest, 1 - blocks + blocks / 8);
        // At least beyond the number that is gone.
        let to = if BlockTrailer::ahead(oldest, self.next) > 0 { oldest } else { seq_add(self.next, 1) };
        let lost = BlockTrailer::ahead(to, self.next).unsigned_abs();
        self.seen.lapped += lost;
        self.go_to(to);
        Next::Lapped { lost }
    }

    /// No batch yet. Beyond its retries it looks for a later batch, so that a lost one does not hold it up forever: in each call at one
    /// distance that doubles from call to call, for a short way to what lies far off, and at the next window of all distances, so that none is
    /// left out.
    #[cold]
    fn retry_later(&mut self, torn: bool) -> Next<'static> {
        // After an overflow, continue behind the retries.
        self.empty_polls = self.empty_polls.checked_add(1).unwrap_or(self.retries);
        let answer = if torn { Next::Torn } else { Next::Nothing };
        let Some(calls) = self.empty_polls.checked_sub(self.retries) else { return answer };
        // The block of `next` itself is no later batch's.
        let last = self.view.blocks.saturating_sub(1).min(SEQ_MODULUS as u64) as i64;
        let window = self.window();
        let windows = last.unsigned_abs().div_ceil(window).max(1);
        let from = (u64::from(calls) % windows * window) as i64;
        let near = (from + 1..=last.min(from + window as i64)).find(|by| self.later(*by).is_some());
        let far = Some(1_i64 << (calls % 32)).filter(|by| *by <= last && self.later(*by).is_some());
        let Some(found) = near.or(far) else { return answer };
        let first = (1..=found).find_map(|by| Some((by, self.later(by)?)));
        // Batches come in order: when a later one is there, this one was before it, or it was lost. So one more look.
        let overwritten = match self.view.whole(self.block, &mut self.scratch) {
            Some(trailer) if trailer.sequence == self.next => return answer,
            Some(trailer) if BlockTrailer::ahead(trailer.sequence, self.next) > 0 => {
                return self.lapped_at(trailer.sequence);
            }
            Some(_) => false,
            None => self.is_writer_here(),
        };
        match first {
            Some((lost, there)) if there == seq_add(self.next, lost) && !overwritten => {
                self.seen.missing += lost.unsigned_abs();
                self.go_to(there);
                Next::Missing { lost: lost.unsigned_abs() }
            }
            // One of a later lap: the writer came by here, or is here now.
            Some((_, there)) => self.lapped_at(there),
            None => answer,
        }
    }

    /// Has the writer, a lap ahead, come to the block of the number that is waited for? When that block is not whole, it may stand still in
    /// the middle of it, as one does that has no core: nothing was damaged. What was damaged a lap ago looks the same and counts the same.
    fn is_writer_here(&self) -> bool {
        let following = BlockTrailer::next(self.view.newest_after(self.next));
        block_of(following, self.view.blocks) == self.block
    }

    /// The number in the block of the batch `by` after the one that is waited for: that one's, or a whole one's of a later lap.
    fn later(&mut self, by: i64) -> Option<u32> {
        let sequence = seq_add(self.next, by);
        let seen = self.view.sequence(block_of(sequence, self.view.blocks));
        let later_lap = |this: &mut Self| {
            seen != 0 && BlockTrailer::ahead(seen, sequence) > 0 && this.view.holds(seen, &mut this.scratch)
        };
        (seen == sequence || later_lap(self)).then_some(seen)
    }

    /// Distances that an empty poll looks at: few, and in a long ring enough for a thousand calls to look at all; but no more than take
    /// some microseconds, since idle lists are polled continuously.
    fn window(&self) -> u64 {
        (self.view.blocks / 1024).clamp(32, 1024)
    }

    /// After this many consecutive empty polls of memory without writers there is no later batch: everything was returned.
    pub fn max_empty_polls(&self) -> u32 {
        let windows = self.view.blocks.div_ceil(self.window());
        self.retries.saturating_add(u32::try_from(windows).unwrap_or(u32::MAX)).saturating_add(1)
    }
}

/// Follows a bare list, which has no trailers: a batch counts as new when its bytes differ from those that were there one lap ago.
///
/// So a batch that is equal to the one a lap before is not seen, and those after it not until the writer recurs;
/// half-written batches are returned; being lapped is not detected. Good for rings in
/// which entries never repeat (they have a time or a number) and that are read often. It keeps a copy of the ring.
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
        // The range was checked when the store was opened; a region never shrinks.
        let _ = view.region.read(view.base, &mut before);
        let scratch = vec![0; view.block_len as usize].into_boxed_slice();
        Self { view, block: 0, before, scratch }
    }

    /// The entries of the next batch that changed, in the ring's order from where the last one was found; `None` when nothing
    /// did. Looks at no more than `blocks` blocks.
    pub fn next(&mut self, blocks: u64) -> Option<&[u8]> {
        for _ in 0..blocks.min(self.view.blocks) {
            let block = self.block;
            self.block = if block + 1 == self.view.blocks { 0 } else { block + 1 };
            let old = (block * self.view.block_len) as usize;
            let old = self.before.get_mut(old..old + self.scratch.len())?;
            if !self.view.region.is(self.view.at(block), old) {
                self.view.region.read(self.view.at(block), &mut self.scratch).ok()?;
                old.copy_from_slice(&self.scratch);
                return Some(&self.scratch);
            }
        }
        None
    }
}
