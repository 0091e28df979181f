//! The reader of DTA Key-Write stores: returns a key's value from up to four redundant copies, each in a slot chosen by a
//! hash of the key.
//!
//! Keys share slots, so later keys overwrite copies of earlier ones. A slot starts with a 32-bit checksum of its key; a
//! slot overwritten by another key is mistaken for this key's with probability 2^-32. The caller's [`Policy`] decides which
//! copies are accepted.

use std::sync::Arc;

use memory::Region;
use wire::dta::hash::{Family, MAX_COPIES, MAX_KEY, slot, slots_n};
use wire::dta::layout::slot_stride;

use crate::header::BODY;
use crate::query::QueryError;
use crate::slots::{self, SlotState};

/// Keys per batch whose slots are prefetched before the first is read.
const KEYS_PER_GROUP: usize = 32;
/// Length of a cache line, bytes.
const LINE: u64 = 64;
/// Length of the smallest slot, bytes.
const WORD: u64 = 8;
const CHECKSUM: usize = 4;

wire::named! {
    /// The rule that derives an answer from a key's copies.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub enum Policy, name {
        /// The first copy with the key's checksum, in the order 0 to 3. The fastest policy. Every report writes copy 0, so
        /// it is never older than the others; they answer only where copy 0 was overwritten.
        First => "first",
        /// The value that more than half of the copies with the key's checksum share.
        #[default]
        Majority => "majority",
        /// The common value of at least two copies, if all copies with the key's checksum agree. One copy suffices if the
        /// query reads only one.
        Strict => "strict",
    }
}

/// The result of a query for a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Answer {
    /// The policy accepts a value.
    Found {
        /// Copies with the key's checksum; always 1 with [`Policy::First`], which stops at the first.
        copies: u8,
        /// Number of these copies that have the returned value.
        agreeing: u8,
    },
    /// No copy has the key's checksum: the key was never reported, or was overwritten.
    #[default]
    Empty,
    /// Copies have the key's checksum, but the policy accepts no value: they differ, or there is only one
    /// ([`Policy::Strict`]). Causes are a key reported with fewer copies than before, a copy in flight, or another key with
    /// the same checksum. [`KeyWriteReader::copy`] returns each copy.
    Ambiguous {
        /// Copies with the key's checksum.
        copies: u8,
        /// Number of these copies that share the most frequent value.
        agreeing: u8,
    },
    /// The only candidate copies were being written at each attempt. Query again.
    Torn,
}

/// Contents of one of a key's slots.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Copy {
    /// The slot has the key's checksum and a value.
    Value,
    /// The slot was never written.
    Empty,
    /// The slot belongs to another key.
    Other,
    /// The slot was being written at each attempt.
    Torn,
}

/// Slot addresses of a key's copies, and the key's checksum.
#[derive(Clone, Copy, Debug)]
struct SlotAddrs<const N: usize> {
    offsets: [u64; N],
    checksum: u32,
}

impl<const N: usize> SlotAddrs<N> {
    /// Returns whether slot `copy`, whose first word is `words[copy]`, holds a copy of the key. If two hashes give the same slot,
    /// only the first counts.
    #[inline(always)]
    fn is_copy(&self, words: &[u64; N], copy: usize) -> bool {
        let offset = self.offsets[copy];
        words[copy] != 0 && words[copy] as u32 == self.checksum && !self.offsets[..copy].contains(&offset)
    }
}

/// Result of reading the first words of a key's slots.
#[derive(Clone, Copy, Debug, Default)]
struct SlotHeads {
    /// Bit n: copy n has the key's checksum.
    matching: u8,
    /// A slot begins with zeros that other bytes follow, so it may be in the middle of a write.
    has_partial_write: bool,
}

/// Reads a Key-Write store. Any number of readers can run during writes.
///
/// ```
/// use std::sync::Arc;
/// use dta::{Answer, DtaStore, Header, Policy, region_len};
/// use wire::dta::{hash::Family, layout::Geometry};
///
/// let geometry = Geometry::KeyWrite { slots: 1 << 10, data_len: 20, family: Family::V1 };
/// let region = Arc::new(memory::Region::anonymous(region_len(&geometry), false)?);
/// let header = Header { name: "paths".into(), id: 1, geometry, fields: "u32[5]".into(), created: 0, snapshot: None };
/// let store = DtaStore::create(region, &header)?;
///
/// let reader = store.key_write().ok_or("a key-write store")?;
/// assert_eq!((reader.slots(), reader.data_len()), (1024, 20));
/// let mut value = [0; 20];
/// assert_eq!(reader.get(b"never written", Policy::Majority, 2, &mut value)?, Answer::Empty);
/// assert!(store.lists().is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct KeyWriteReader {
    region: Arc<Region>,
    slots: u64,
    stride: u64,
    data_len: usize,
    family: Family,
}

impl KeyWriteReader {
    pub(crate) fn new(region: Arc<Region>, slots: u64, data_len: u16, family: Family) -> Self {
        Self {
            region,
            slots,
            stride: slot_stride(data_len),
            data_len: usize::from(data_len),
            family,
        }
    }

    /// Returns the length of a value, bytes.
    pub fn data_len(&self) -> usize {
        self.data_len
    }

    /// Returns the number of slots of the store.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Looks up `key` in its first `copies` slots; use 4 if the number of copies in its reports is unknown. If the answer
    /// is [`Answer::Found`], the value is in the first [`data_len`](Self::data_len) bytes of `out`; otherwise `out` has
    /// unspecified contents.
    ///
    /// # Errors
    /// [`QueryError`] for an invalid key length, number of copies or output length.
    pub fn get(&self, key: &[u8], policy: Policy, copies: u8, out: &mut [u8]) -> Result<Answer, QueryError> {
        if !(1..=MAX_KEY).contains(&key.len()) {
            return Err(QueryError::KeyLength);
        }
        let out = out.get_mut(..self.data_len).ok_or(QueryError::OutLength)?;
        Ok(match copies {
            1 => self.answer_key::<1>(key, policy, out),
            2 => self.answer_key::<2>(key, policy, out),
            3 => self.answer_key::<3>(key, policy, out),
            4 => self.answer_key::<4>(key, policy, out),
            _ => return Err(QueryError::Copies),
        })
    }

    /// Looks up many keys at once, prefetching their slots in groups. The value of key `i` starts at `out[i * data_len]`,
    /// and its answer is `answers[i]`.
    ///
    /// # Errors
    /// [`QueryError`] for an invalid argument; `answers` is unchanged.
    pub fn get_batch<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        policy: Policy,
        copies: u8,
        out: &mut [u8],
        answers: &mut [Answer],
    ) -> Result<(), QueryError> {
        if keys
            .iter()
            .any(|key| !(1..=MAX_KEY).contains(&key.as_ref().len()))
        {
            return Err(QueryError::KeyLength);
        }
        if answers.len() < keys.len() || out.len() / self.data_len < keys.len() {
            return Err(QueryError::OutLength);
        }
        match copies {
            1 => self.answer_all::<K, 1>(keys, policy, out, answers),
            2 => self.answer_all::<K, 2>(keys, policy, out, answers),
            3 => self.answer_all::<K, 3>(keys, policy, out, answers),
            4 => self.answer_all::<K, 4>(keys, policy, out, answers),
            _ => return Err(QueryError::Copies),
        }
        Ok(())
    }

    /// Reads slot `copy` (0 to 3) of a key. The value is in `out` if the result is [`Copy::Value`].
    ///
    /// # Errors
    /// [`QueryError`] for an invalid key length, slot number or output length.
    pub fn copy(&self, key: &[u8], copy: u8, out: &mut [u8]) -> Result<Copy, QueryError> {
        if !(1..=MAX_KEY).contains(&key.len()) {
            return Err(QueryError::KeyLength);
        }
        let out = out.get_mut(..self.data_len).ok_or(QueryError::OutLength)?;
        let addrs: SlotAddrs<MAX_COPIES> = self.addrs(key);
        let offset = *addrs.offsets.get(usize::from(copy)).ok_or(QueryError::Copies)?;
        Ok(
            match slots::read_slot(&self.region, offset, addrs.checksum, out) {
                SlotState::Match => Copy::Value,
                SlotState::Empty => Copy::Empty,
                SlotState::Other => Copy::Other,
                SlotState::Torn => Copy::Torn,
            },
        )
    }

    fn answer_all<K: AsRef<[u8]>, const N: usize>(
        &self,
        keys: &[K],
        policy: Policy,
        out: &mut [u8],
        answers: &mut [Answer],
    ) {
        let mut addrs = [SlotAddrs {
            offsets: [0; N],
            checksum: 0,
        }; KEYS_PER_GROUP];
        let mut heads = [SlotHeads::default(); KEYS_PER_GROUP];
        let groups = keys
            .chunks(KEYS_PER_GROUP)
            .zip(out.chunks_mut(KEYS_PER_GROUP * self.data_len));
        for ((keys, out), answers) in groups.zip(answers.chunks_mut(KEYS_PER_GROUP)) {
            // Three passes per group. Only the last one branches on memory contents, because a mispredicted branch would
            // discard the work already started on the following keys.
            for (key, key_addrs) in keys.iter().zip(&mut addrs) {
                *key_addrs = self.addrs(key.as_ref());
                self.prefetch(key_addrs);
            }
            if self.stride == WORD {
                let outs = out.chunks_exact_mut(self.data_len).zip(answers);
                for (key_addrs, (out, answer)) in addrs[..keys.len()].iter().zip(outs) {
                    *answer = self.answer_words(key_addrs, policy, out);
                }
                continue;
            }
            for (key_addrs, heads) in addrs[..keys.len()].iter().zip(&mut heads) {
                *heads = self.read_heads(key_addrs);
            }
            let outs = out.chunks_exact_mut(self.data_len).zip(answers);
            for ((key_addrs, heads), (out, answer)) in addrs[..keys.len()].iter().zip(&heads).zip(outs) {
                *answer = self.answer(key_addrs, *heads, policy, out);
            }
        }
    }

    fn answer_key<const N: usize>(&self, key: &[u8], policy: Policy, out: &mut [u8]) -> Answer {
        let addrs = self.addrs::<N>(key);
        if self.stride == WORD {
            return self.answer_words(&addrs, policy, out);
        }
        // The loads of the slots' first words are independent, so the CPU overlaps their cache misses.
        let heads = self.read_heads(&addrs);
        self.answer(&addrs, heads, policy, out)
    }

    /// Answers a query on slots of one word. A single load reads all of a slot, so it is never half-written.
    #[inline(always)]
    fn answer_words<const N: usize>(&self, addrs: &SlotAddrs<N>, policy: Policy, out: &mut [u8]) -> Answer {
        // Keeps the checksum and the store's data bytes, and drops the padding after them.
        let mask = u64::MAX >> (8 * (WORD as usize - CHECKSUM).saturating_sub(self.data_len));
        let words = addrs
            .offsets
            .map(|offset| u64::from_le(self.region.load_u64(offset).unwrap_or(0)));
        let mut copies = 0;
        let mut agreeing = 0;
        let mut best_copy = 0;
        for (copy, word) in words.iter().enumerate() {
            let equal_copies = (0..N)
                .map(|other| u8::from(addrs.is_copy(&words, other) & ((words[other] ^ word) & mask == 0)))
                .sum::<u8>();
            let is_copy = addrs.is_copy(&words, copy);
            let equal_copies = if is_copy { equal_copies } else { 0 };
            copies += u8::from(is_copy);
            if equal_copies > agreeing && (agreeing == 0 || policy != Policy::First) {
                agreeing = equal_copies;
                best_copy = copy;
            }
        }
        // Unconditional, to avoid a branch: `out` is unspecified if nothing was found.
        let value = (words[best_copy] >> (8 * CHECKSUM)).to_le_bytes();
        match <&mut [u8; 4]>::try_from(&mut *out) {
            Ok(out) => out.copy_from_slice(&value[..4]),
            Err(_) => out.iter_mut().zip(value).for_each(|(out, byte)| *out = byte),
        }
        let is_accepted = match policy {
            Policy::First => {
                return if copies == 0 {
                    Answer::Empty
                } else {
                    Answer::Found {
                        copies: 1,
                        agreeing: 1,
                    }
                };
            }
            Policy::Majority => is_majority(copies, agreeing),
            Policy::Strict => is_strict::<N>(copies, agreeing),
        };
        match copies {
            0 => Answer::Empty,
            _ if is_accepted => Answer::Found { copies, agreeing },
            _ => Answer::Ambiguous { copies, agreeing },
        }
    }

    /// Reads the first words of a key's slots.
    #[inline(always)]
    fn read_heads<const N: usize>(&self, addrs: &SlotAddrs<N>) -> SlotHeads {
        let mut heads = SlotHeads::default();
        for (copy, offset) in addrs.offsets.iter().enumerate() {
            // Cannot fail: the geometry keeps addresses in range and aligned.
            let head = self.word(*offset);
            heads.matching |= u8::from(slots::has_checksum(head, addrs.checksum)) << copy;
            let rest = match self.stride {
                8 => 0,
                16 => self.word(*offset + 8),
                32 => self.word(*offset + 8) | self.word(*offset + 16) | self.word(*offset + 24),
                // Too long to check here: a slot that begins with zeros counts as possibly being written.
                _ => 1,
            };
            heads.has_partial_write |= head == 0 && rest != 0;
        }
        heads
    }

    #[inline(always)]
    fn word(&self, offset: u64) -> u64 {
        self.region.load_u64(offset).unwrap_or(0)
    }

    #[inline(always)]
    fn addrs<const N: usize>(&self, key: &[u8]) -> SlotAddrs<N> {
        let (hashes, checksum) = match self.family {
            Family::V1 => slots_n::<N>(key),
            Family::Artifact => {
                let all = self.family.hashes(key);
                (std::array::from_fn(|copy| all.slots[copy]), all.checksum)
            }
        };
        SlotAddrs {
            offsets: hashes.map(|hash| BODY + slot(hash, self.slots) * self.stride),
            checksum,
        }
    }

    #[inline(always)]
    fn prefetch<const N: usize>(&self, addrs: &SlotAddrs<N>) {
        for offset in addrs.offsets {
            let mut line = 0;
            while line < self.stride {
                self.region.prefetch(offset + line);
                line += LINE;
            }
        }
    }

    #[inline(always)]
    fn answer<const N: usize>(
        &self,
        addrs: &SlotAddrs<N>,
        heads: SlotHeads,
        policy: Policy,
        out: &mut [u8],
    ) -> Answer {
        if heads.matching == 0 && !heads.has_partial_write {
            return Answer::Empty;
        }
        let first_copy = heads.matching.trailing_zeros() as usize;
        match policy {
            Policy::First => match addrs.offsets.get(first_copy) {
                Some(offset)
                    if slots::read_slot(&self.region, *offset, addrs.checksum, out) == SlotState::Match =>
                {
                    Answer::Found {
                        copies: 1,
                        agreeing: 1,
                    }
                }
                _ => self.answer_first_copy(addrs, out),
            },
            _ if heads.matching.is_power_of_two() && !heads.has_partial_write => {
                self.answer_single_copy(addrs, first_copy, policy, out)
            }
            Policy::Majority => self.answer_by_agreement(addrs, out, is_majority),
            Policy::Strict => self.answer_by_agreement(addrs, out, is_strict::<N>),
        }
    }

    /// Answers a query for which `copy` is the only copy with the key's checksum.
    #[inline(always)]
    fn answer_single_copy<const N: usize>(
        &self,
        addrs: &SlotAddrs<N>,
        copy: usize,
        policy: Policy,
        out: &mut [u8],
    ) -> Answer {
        if slots::read_slot(&self.region, addrs.offsets[copy], addrs.checksum, out) != SlotState::Match {
            return self.answer_by_agreement(
                addrs,
                out,
                if policy == Policy::Strict {
                    is_strict::<N>
                } else {
                    is_majority
                },
            );
        }
        if policy == Policy::Strict && !is_strict::<N>(1, 1) {
            return Answer::Ambiguous {
                copies: 1,
                agreeing: 1,
            };
        }
        Answer::Found {
            copies: 1,
            agreeing: 1,
        }
    }

    /// Slow path of [`Policy::First`]: reads slot by slot, with retries, until one has the key's checksum.
    #[cold]
    fn answer_first_copy<const N: usize>(&self, addrs: &SlotAddrs<N>, out: &mut [u8]) -> Answer {
        let mut is_torn = false;
        for offset in addrs.offsets {
            match slots::read_slot(&self.region, offset, addrs.checksum, out) {
                SlotState::Match => {
                    return Answer::Found {
                        copies: 1,
                        agreeing: 1,
                    };
                }
                SlotState::Torn => is_torn = true,
                SlotState::Empty | SlotState::Other => {}
            }
        }
        if is_torn { Answer::Torn } else { Answer::Empty }
    }

    /// Slow path of the other policies: reads one copy after the other and counts the copies with the same value, until
    /// `is_accepted(copies, agreeing)` holds.
    #[inline]
    fn answer_by_agreement<const N: usize>(
        &self,
        addrs: &SlotAddrs<N>,
        out: &mut [u8],
        is_accepted: fn(u8, u8) -> bool,
    ) -> Answer {
        let mut best = (0, 0);
        let mut is_torn = false;
        for (copy, offset) in addrs.offsets.iter().enumerate() {
            if addrs.offsets[..copy].contains(offset) {
                continue;
            }
            match slots::read_slot(&self.region, *offset, addrs.checksum, out) {
                SlotState::Match => {}
                state => {
                    is_torn |= state == SlotState::Torn;
                    continue;
                }
            }
            let (copies, agreeing) = self.compare_copies(addrs, copy, out);
            if is_accepted(copies, agreeing) {
                return Answer::Found { copies, agreeing };
            }
            best = best.max((agreeing, copies));
        }
        match best {
            (0, _) if is_torn => Answer::Torn,
            (0, _) => Answer::Empty,
            (agreeing, copies) => Answer::Ambiguous { copies, agreeing },
        }
    }

    /// Returns the number of copies with the key's checksum, and how many of them equal `data`, the value of `copy`.
    #[inline]
    fn compare_copies<const N: usize>(&self, addrs: &SlotAddrs<N>, copy: usize, data: &[u8]) -> (u8, u8) {
        let mut copies = 1;
        let mut agreeing = 1;
        for (other, offset) in addrs.offsets.iter().enumerate() {
            // If two hashes give the same slot, it counts as one copy.
            if other == copy || addrs.offsets[..other].contains(offset) || *offset == addrs.offsets[copy] {
                continue;
            }
            if let Some(is_equal) = slots::compare(&self.region, *offset, addrs.checksum, data) {
                copies += 1;
                agreeing += u8::from(is_equal);
            }
        }
        (copies, agreeing)
    }
}

fn is_majority(copies: u8, agreeing: u8) -> bool {
    agreeing * 2 > copies
}

fn is_strict<const N: usize>(copies: u8, agreeing: u8) -> bool {
    agreeing == copies && usize::from(copies) >= N.min(2)
}
