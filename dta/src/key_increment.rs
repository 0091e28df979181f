//! The reader of DTA Key-Increment stores: estimates a key's count as the minimum of up to four counters, as in a Count-Min
//! sketch.
//!
//! Keys share counters, so an estimate is never too small but may be too large; [`Bound`] limits the error with a stated
//! probability.

use std::sync::Arc;

use memory::Region;
use wire::dta::hash::{Family, MAX_COPIES, MAX_KEY, slot, slots_n};
use wire::dta::layout::COUNTER_LEN;

use crate::header::BODY;
use crate::query::QueryError;

/// Keys per batch whose counters are prefetched before the first is read.
const GROUP: usize = 32;

/// An upper bound of an estimation error, and the probability that it holds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// The error is at most this ...
    pub error: f64,
    /// ... with at least this probability, if the hash functions behave like random ones.
    pub confidence: f64,
}

/// Reads a Key-Increment store.
#[derive(Clone, Debug)]
pub struct KeyIncrementReader {
    region: Arc<Region>,
    slots: u64,
    family: Family,
}

impl KeyIncrementReader {
    pub(crate) fn new(region: Arc<Region>, slots: u64, family: Family) -> Self {
        Self {
            region,
            slots,
            family,
        }
    }

    /// Returns the number of counters of the store.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Returns the count of `key`: the minimum of its first `copies` counters. Every report of the key must have used at
    /// least that many copies; otherwise the result is too small.
    ///
    /// # Errors
    /// [`QueryError`] for an invalid key length or number of copies.
    pub fn estimate(&self, key: &[u8], copies: u8) -> Result<u64, QueryError> {
        let mut value = [0];
        self.estimate_batch(&[key], copies, &mut value)?;
        Ok(value[0])
    }

    /// Estimates many keys at once and writes the estimate of key `i` to `out[i]`.
    ///
    /// # Errors
    /// [`QueryError`] for an invalid argument; `out` is unchanged.
    pub fn estimate_batch<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        copies: u8,
        out: &mut [u64],
    ) -> Result<(), QueryError> {
        if keys
            .iter()
            .any(|key| !(1..=MAX_KEY).contains(&key.as_ref().len()))
        {
            return Err(QueryError::KeyLength);
        }
        if out.len() < keys.len() {
            return Err(QueryError::OutLength);
        }
        match copies {
            1 => self.estimate_all::<K, 1>(keys, out),
            2 => self.estimate_all::<K, 2>(keys, out),
            3 => self.estimate_all::<K, 3>(keys, out),
            4 => self.estimate_all::<K, MAX_COPIES>(keys, out),
            _ => return Err(QueryError::Copies),
        }
        Ok(())
    }

    fn estimate_all<K: AsRef<[u8]>, const N: usize>(&self, keys: &[K], out: &mut [u64]) {
        let mut addrs = [[0; N]; GROUP];
        for (keys, out) in keys.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            for (key, key_addrs) in keys.iter().zip(&mut addrs) {
                *key_addrs = self.addrs(key.as_ref());
                key_addrs.iter().for_each(|at| self.region.prefetch(*at));
            }
            for (key_addrs, out) in addrs[..keys.len()].iter().zip(out) {
                // Cannot fail: the geometry keeps addresses in range and aligned.
                *out = key_addrs
                    .iter()
                    .map(|at| self.region.load_u64(*at).unwrap_or(0))
                    .min()
                    .unwrap_or(0);
            }
        }
    }

    #[inline(always)]
    fn addrs<const N: usize>(&self, key: &[u8]) -> [u64; N] {
        let hashes: [u32; N] = match self.family {
            Family::V1 => slots_n::<N>(key).0,
            Family::Artifact => {
                let all = self.family.hashes(key).slots;
                std::array::from_fn(|n| all[n])
            }
        };
        hashes.map(|hash| BODY + slot(hash, self.slots) * COUNTER_LEN)
    }

    /// Sums all counters modulo 2^64. An increment counts once per copy. Reads the whole store.
    pub fn total(&self) -> u64 {
        let ats = (BODY..BODY + self.slots * COUNTER_LEN).step_by(COUNTER_LEN as usize);
        ats.fold(0, |sum: u64, at| {
            sum.wrapping_add(self.region.load_u64(at).unwrap_or(0))
        })
    }

    /// Returns the error bound of an estimate from `copies` counters, given the sum `total` of all counters
    /// ([`total`](Self::total)). This is the Count-Min bound (Cormode and Muthukrishnan 2005) with all rows in one array:
    /// other keys add `total / slots` to a counter on average. By Markov's inequality they add more than e times that with
    /// probability at most 1/e, and to all copies with at most e^-copies.
    pub fn bound(&self, copies: u8, total: u64) -> Bound {
        let mean = total as f64 / self.slots as f64;
        Bound {
            error: std::f64::consts::E * mean,
            confidence: 1.0 - (-f64::from(copies)).exp(),
        }
    }
}
