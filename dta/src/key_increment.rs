//! Key-Increment: the estimate for a key is the minimum of up to four counters. Keys share counters, so an estimate is never too
//! small but may be too large: [`Bound`] limits the error, with a stated probability.

use std::sync::Arc;

use memory::Region;
use wire::dta::hash::{Family, MAX_COPIES, MAX_KEY, slot, slots_n};
use wire::dta::layout::COUNTER_LEN;

use crate::header::BODY;
use crate::query::QueryError;

/// Number of keys in flight at once.
const GROUP: usize = 32;

/// The upper bound of an error, with a probability.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// The error is at most this ...
    pub error: f64,
    /// ... with at least this probability, for hash functions that behave as random ones.
    pub confidence: f64,
}

/// Reads a key-increment store.
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

    /// Returns the count of `key` by reports that used at least `copies` counters: the minimum of the first `copies`. With more
    /// copies than a report used, the result is too small.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn estimate(&self, key: &[u8], copies: u8) -> Result<u64, QueryError> {
        let mut value = [0];
        self.estimate_batch(&[key], copies, &mut value)?;
        Ok(value[0])
    }

    /// Estimates many keys at once; the estimate of key i is `out[i]`.
    ///
    /// # Errors
    /// [`QueryError`]; nothing was written then.
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
                // In range, and aligned: the addresses are computed from the geometry.
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

    /// Sums all counters, modulo 2^64: each addition counts once per copy. Reads the whole store.
    pub fn total(&self) -> u64 {
        let ats = (BODY..BODY + self.slots * COUNTER_LEN).step_by(COUNTER_LEN as usize);
        ats.fold(0, |sum: u64, at| {
            sum.wrapping_add(self.region.load_u64(at).unwrap_or(0))
        })
    }

    /// Returns the bound of an estimate from `copies` counters when all counters together have `total` ([`total`](Self::total)):
    /// Count-Min (Cormode and Muthukrishnan 2005), with all rows in one array. Other keys add `total / slots` to a counter on
    /// average, and more than e times that with a probability of at most 1/e (Markov); to all copies with at most e^-copies.
    pub fn bound(&self, copies: u8, total: u64) -> Bound {
        let mean = total as f64 / self.slots as f64;
        Bound {
            error: std::f64::consts::E * mean,
            confidence: 1.0 - (-f64::from(copies)).exp(),
        }
    }
}
