//! Key-write: the value of a key, from up to four copies.
//!
//! Slots are shared: later keys overwrite the copies of earlier ones. A slot identifies its key by a checksum of 32 bits, so that
//! a slot overwritten by another key is mistaken for ours with a probability of 2^-32. The caller's [`Policy`] decides which
//! copies are accepted.

use std::sync::Arc;

use memory::Region;
use wire::dta::hash::{Family, MAX_COPIES, MAX_KEY, slot, slots_n};
use wire::dta::layout::slot_stride;

use crate::header::BODY;
use crate::query::QueryError;
use crate::slots::{self, SlotState};

wire::named! {
    /// The rule that decides which copies make an answer.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub enum Policy, name {
        /// The first copy that has the key's checksum, in the order 0, 1, 2, 3. The fastest. Every report writes copy 0, whatever
        /// its number of copies, so that it is never older than the others; the others answer where copy 0 was overwritten.
        First => "first",
        /// The value of more than half of the copies that have the key's checksum.
        #[default]
        Majority => "majority",
        /// At least two copies, all equal. (One, if the query is for one copy.)
        Strict => "strict",
    }
}

/// The result of a query for a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Answer {
    /// The key has a value.
    Found {
        /// Copies that have the key's checksum; 1 with [`Policy::First`], which reads no others.
        copies: u8,
        /// Number of these copies that have this value.
        agreeing: u8,
    },
    /// No copy has the key's checksum: never reported, or overwritten.
    #[default]
    Empty,
    /// Copies have the key's checksum, and the policy accepts none of their values: they differ, or (strict) there is only one. The
    /// key was reported with fewer copies than before, a copy is in flight, or another key has the same checksum.
    /// [`KeyWriteReader::copy`] shows each.
    Ambiguous {
        /// Copies that have the key's checksum.
        copies: u8,
        /// Number of these copies that have the most frequent value.
        agreeing: u8,
    },
    /// The only copies that might be the key's were being written at each read. Query again.
    Torn,
}

/// The content of one of a key's slots.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Copy {
    /// The slot has the key's checksum and a value.
    Value,
    /// The slot was never written.
    Empty,
    /// The slot has another key.
    Other,
    /// The slot was being written at each read.
    Torn,
}

/// Number of keys in flight at once.
const GROUP: usize = 32;
/// Length of a cache line, bytes.
const LINE: u64 = 64;
/// Length of the smallest slot, and of the checksum in front of every slot, bytes.
const WORD: u64 = 8;
const CHECKSUM: usize = 4;

/// The addresses of a key's copies, and its checksum.
#[derive(Clone, Copy, Debug)]
struct SlotAddrs<const N: usize> {
    at: [u64; N],
    checksum: u32,
}

impl<const N: usize> SlotAddrs<N> {
    /// Returns whether word `n` of the key's slots is a copy of the key. Two hashes may give one slot, which is one copy then.
    #[inline(always)]
    fn is_copy(&self, words: &[u64; N], n: usize) -> bool {
        let at = self.at[n];
        words[n] != 0 && words[n] as u32 == self.checksum && !self.at[..n].contains(&at)
    }
}

/// Result of the first read of a key's slots.
#[derive(Clone, Copy, Debug, Default)]
struct SlotHeads {
    /// Bit n: copy n has the key's checksum.
    matching: u8,
    /// Whether a copy begins with zeros followed by other bytes: it may be in the middle of a write.
    begun: bool,
}

/// Reads a key-write store. Any number of readers, at any time.
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

    /// Looks up `key` in its first `copies` slots (4 if the number of copies in its reports is unknown). The value
    /// is the first [`data_len`](Self::data_len) bytes of `out` if the answer is [`Answer::Found`]; otherwise `out` holds anything.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn get(&self, key: &[u8], policy: Policy, copies: u8, out: &mut [u8]) -> Result<Answer, QueryError> {
        if !(1..=MAX_KEY).contains(&key.len()) {
            return Err(QueryError::KeyLength);
        }
        let out = out.get_mut(..self.data_len).ok_or(QueryError::OutLength)?;
        Ok(match copies {
            1 => self.answer_one::<1>(key, policy, out),
            2 => self.answer_one::<2>(key, policy, out),
            3 => self.answer_one::<3>(key, policy, out),
            4 => self.answer_one::<4>(key, policy, out),
            _ => return Err(QueryError::Copies),
        })
    }

    /// Looks up many keys at once: prefetches the memory of all before it reads the first. The value of key i begins at `out[i *
    /// data_len]`, its answer is `answers[i]`.
    ///
    /// # Errors
    /// [`QueryError`]; no answer was written then.
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

    /// Reads slot `n` (0 to 3) of a key; its value is in `out` if there is one.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn copy(&self, key: &[u8], n: u8, out: &mut [u8]) -> Result<Copy, QueryError> {
        if !(1..=MAX_KEY).contains(&key.len()) {
            return Err(QueryError::KeyLength);
        }
        let out = out.get_mut(..self.data_len).ok_or(QueryError::OutLength)?;
        let addrs: SlotAddrs<MAX_COPIES> = self.addrs(key);
        let at = *addrs.at.get(usize::from(n)).ok_or(QueryError::Copies)?;
        Ok(match slots::read_slot(&self.region, at, addrs.checksum, out) {
            SlotState::Match => Copy::Value,
            SlotState::Empty => Copy::Empty,
            SlotState::Other => Copy::Other,
            SlotState::Torn => Copy::Torn,
        })
    }

    fn answer_all<K: AsRef<[u8]>, const N: usize>(
        &self,
        keys: &[K],
        policy: Policy,
        out: &mut [u8],
        answers: &mut [Answer],
    ) {
        let mut addrs = [SlotAddrs {
            at: [0; N],
            checksum: 0,
        }; GROUP];
        let mut seen = [SlotHeads::default(); GROUP];
        let groups = keys.chunks(GROUP).zip(out.chunks_mut(GROUP * self.data_len));
        for ((keys, out), answers) in groups.zip(answers.chunks_mut(GROUP)) {
            // Three steps; only the last has branches that depend on the memory's contents: a misprediction would discard the
            // work on the following keys.
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
            for (key_addrs, seen) in addrs[..keys.len()].iter().zip(&mut seen) {
                *seen = self.read_heads(key_addrs);
            }
            let outs = out.chunks_exact_mut(self.data_len).zip(answers);
            for ((key_addrs, seen), (out, answer)) in addrs[..keys.len()].iter().zip(&seen).zip(outs) {
                *answer = self.answer(key_addrs, *seen, policy, out);
            }
        }
    }

    fn answer_one<const N: usize>(&self, key: &[u8], policy: Policy, out: &mut [u8]) -> Answer {
        let addrs = self.addrs::<N>(key);
        if self.stride == WORD {
            return self.answer_words(&addrs, policy, out);
        }
        // The loads of the copies' heads do not depend on each other.
        let seen = self.read_heads(&addrs);
        self.answer(&addrs, seen, policy, out)
    }

    /// Answers a query where a slot is one word: one load reads all of it, never half-written.
    #[inline(always)]
    fn answer_words<const N: usize>(&self, addrs: &SlotAddrs<N>, policy: Policy, out: &mut [u8]) -> Answer {
        // The checksum and as many bytes of data as the store has; the bytes after them do not count.
        let mask = u64::MAX >> (8 * (WORD as usize - CHECKSUM).saturating_sub(self.data_len));
        let words = addrs
            .at
            .map(|at| u64::from_le(self.region.load_u64(at).unwrap_or(0)));
        let mut copies = 0;
        let mut agreeing = 0;
        let mut best = 0;
        for (n, word) in words.iter().enumerate() {
            let alike = (0..N)
                .map(|m| u8::from(addrs.is_copy(&words, m) & ((words[m] ^ word) & mask == 0)))
                .sum::<u8>();
            let is_copy = addrs.is_copy(&words, n);
            let alike = if is_copy { alike } else { 0 };
            copies += u8::from(is_copy);
            if alike > agreeing && (agreeing == 0 || policy != Policy::First) {
                agreeing = alike;
                best = n;
            }
        }
        // Also if nothing was found: `out` may hold anything then, and this avoids a branch.
        let value = (words[best] >> (8 * CHECKSUM)).to_le_bytes();
        match <&mut [u8; 4]>::try_from(&mut *out) {
            Ok(out) => out.copy_from_slice(&value[..4]),
            Err(_) => out.iter_mut().zip(value).for_each(|(out, byte)| *out = byte),
        }
        let enough = match policy {
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
            _ if enough => Answer::Found { copies, agreeing },
            _ => Answer::Ambiguous { copies, agreeing },
        }
    }

    /// Reads the heads of a key's slots.
    #[inline(always)]
    fn read_heads<const N: usize>(&self, addrs: &SlotAddrs<N>) -> SlotHeads {
        let mut seen = SlotHeads::default();
        for (n, at) in addrs.at.iter().enumerate() {
            // In range and aligned: the addresses are computed from the geometry.
            let head = self.word(*at);
            seen.matching |= u8::from(slots::begins_with(head, addrs.checksum)) << n;
            let rest = match self.stride {
                8 => 0,
                16 => self.word(*at + 8),
                32 => self.word(*at + 8) | self.word(*at + 16) | self.word(*at + 24),
                // Too long to read here: a slot that begins with zeros is read again.
                _ => 1,
            };
            seen.begun |= head == 0 && rest != 0;
        }
        seen
    }

    #[inline(always)]
    fn word(&self, at: u64) -> u64 {
        self.region.load_u64(at).unwrap_or(0)
    }

    #[inline(always)]
    fn addrs<const N: usize>(&self, key: &[u8]) -> SlotAddrs<N> {
        let (hashes, checksum) = match self.family {
            Family::V1 => slots_n::<N>(key),
            Family::Artifact => {
                let all = self.family.hashes(key);
                (std::array::from_fn(|n| all.slots[n]), all.checksum)
            }
        };
        SlotAddrs {
            at: hashes.map(|hash| BODY + slot(hash, self.slots) * self.stride),
            checksum,
        }
    }

    #[inline(always)]
    fn prefetch<const N: usize>(&self, addrs: &SlotAddrs<N>) {
        for at in addrs.at {
            let mut line = 0;
            while line < self.stride {
                self.region.prefetch(at + line);
                line += LINE;
            }
        }
    }

    #[inline(always)]
    fn answer<const N: usize>(
        &self,
        addrs: &SlotAddrs<N>,
        seen: SlotHeads,
        policy: Policy,
        out: &mut [u8],
    ) -> Answer {
        if seen.matching == 0 && !seen.begun {
            return Answer::Empty;
        }
        let first = seen.matching.trailing_zeros() as usize;
        match policy {
            Policy::First => match addrs.at.get(first) {
                Some(at) if slots::read_slot(&self.region, *at, addrs.checksum, out) == SlotState::Match => {
                    Answer::Found {
                        copies: 1,
                        agreeing: 1,
                    }
                }
                _ => self.first(addrs, out),
            },
            _ if seen.matching.is_power_of_two() && !seen.begun => self.only(addrs, first, policy, out),
            Policy::Majority => self.agreed(addrs, out, is_majority),
            Policy::Strict => self.agreed(addrs, out, is_strict::<N>),
        }
    }

    /// Answers a query when copy `n` is the only one with the key's checksum.
    #[inline(always)]
    fn only<const N: usize>(&self, addrs: &SlotAddrs<N>, n: usize, policy: Policy, out: &mut [u8]) -> Answer {
        if slots::read_slot(&self.region, addrs.at[n], addrs.checksum, out) != SlotState::Match {
            return self.agreed(
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

    /// Reads slot by slot, with all special cases, until one has the key's checksum.
    #[cold]
    fn first<const N: usize>(&self, addrs: &SlotAddrs<N>, out: &mut [u8]) -> Answer {
        let mut torn = false;
        for at in addrs.at {
            match slots::read_slot(&self.region, at, addrs.checksum, out) {
                SlotState::Match => {
                    return Answer::Found {
                        copies: 1,
                        agreeing: 1,
                    };
                }
                SlotState::Torn => torn = true,
                SlotState::Empty | SlotState::Other => {}
            }
        }
        if torn { Answer::Torn } else { Answer::Empty }
    }

    /// Reads the value of one copy after the other, and counts the copies that have it, until `enough(copies, agreeing)`.
    #[inline]
    fn agreed<const N: usize>(
        &self,
        addrs: &SlotAddrs<N>,
        out: &mut [u8],
        enough: fn(u8, u8) -> bool,
    ) -> Answer {
        let mut best = (0, 0);
        let mut torn = false;
        for (n, at) in addrs.at.iter().enumerate() {
            if addrs.at[..n].contains(at) {
                continue;
            }
            match slots::read_slot(&self.region, *at, addrs.checksum, out) {
                SlotState::Match => {}
                state => {
                    torn |= state == SlotState::Torn;
                    continue;
                }
            }
            let (copies, agreeing) = self.count(addrs, n, out);
            if enough(copies, agreeing) {
                return Answer::Found { copies, agreeing };
            }
            best = best.max((agreeing, copies));
        }
        match best {
            (0, _) if torn => Answer::Torn,
            (0, _) => Answer::Empty,
            (agreeing, copies) => Answer::Ambiguous { copies, agreeing },
        }
    }

    /// Counts the copies that have the checksum, and those of them that have `data`, which copy `n` has.
    #[inline]
    fn count<const N: usize>(&self, addrs: &SlotAddrs<N>, n: usize, data: &[u8]) -> (u8, u8) {
        let mut copies = 1;
        let mut agreeing = 1;
        for (m, at) in addrs.at.iter().enumerate() {
            // Two hashes may give one slot, which is one copy then.
            if m == n || addrs.at[..m].contains(at) || *at == addrs.at[n] {
                continue;
            }
            if let Some(alike) = slots::compare(&self.region, *at, addrs.checksum, data) {
                copies += 1;
                agreeing += u8::from(alike);
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
