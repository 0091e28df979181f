//! Sketches: merged by the translator, written column by column, one buffer per parity of the epoch.
//!
//! A buffer's trailer is written last: an epoch is complete when its trailer is there. While the translator writes epoch e + 1
//! into the other buffer, epoch e does not change; once e + 1 is complete, e's buffer may be overwritten with e + 2. So the newest
//! epoch can be read consistently, and the copy is repeated if a newer one was completed during it.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use memory::Region;
use wire::dta::hash::hashes;
use wire::dta::layout::{Columns, MergeOp, SKETCH_TRAILER_LEN, SketchKind, SketchTrailer};
use wire::dta::sketch::{column, is_negative, row_hash};

use crate::header::BODY;
use crate::key_increment::Bound;

/// Maximum number of attempts to copy the newest epoch; another one follows if a newer epoch was completed during the copy.
const TRIES: usize = 4;
/// Maximum number of rows: wire-formats 5.4.
const MAX_DEPTH: usize = 16;

/// The reason why a sketch gives no answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SketchError {
    /// There is no epoch, or not the requested one.
    NoEpoch,
    /// New epochs come faster than one can be read.
    Busy,
    /// This kind of sketch does not support this query.
    Kind,
    /// None of the key's columns was written.
    NoColumn,
    /// The memory given is too short for a column.
    OutLength,
}

impl std::fmt::Display for SketchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoEpoch => "there is no such epoch",
            Self::Busy => "new epochs come faster than one can be read",
            Self::Kind => "this kind of sketch does not support this query",
            Self::NoColumn => "none of the key's columns was written",
            Self::OutLength => "the output buffer is too short for a column",
        })
    }
}

impl std::error::Error for SketchError {}

/// Reads the region of a sketch.
#[derive(Clone, Debug)]
pub struct SketchReader {
    region: Arc<Region>,
    id: u16,
    kind: SketchKind,
    op: MergeOp,
    shape: Columns,
}

impl SketchReader {
    pub(crate) fn new(region: Arc<Region>, id: u16, kind: SketchKind, op: MergeOp, shape: Columns) -> Self {
        Self {
            region,
            id,
            kind,
            op,
            shape,
        }
    }

    /// Returns the kind of the sketch, by which its counters are read.
    pub fn kind(&self) -> SketchKind {
        self.kind
    }

    /// Returns the operation by which sketches were merged.
    pub fn op(&self) -> MergeOp {
        self.op
    }

    /// Returns the shape of the sketch.
    pub fn shape(&self) -> Columns {
        self.shape
    }

    /// Returns the trailer of a buffer, 0 or 1, if there is an epoch of this sketch in it.
    fn trailer(&self, buffer: u16) -> Option<SketchTrailer> {
        let mut bytes = [0; SKETCH_TRAILER_LEN];
        self.region
            .read(BODY + self.shape.trailer(buffer), &mut bytes)
            .ok()?;
        let trailer = SketchTrailer::parse(&bytes);
        let good = trailer.sketch == self.id
            && trailer.epoch & 1 == buffer
            && (1..=self.shape.columns).contains(&trailer.columns);
        good.then_some(trailer)
    }

    /// Returns the complete epochs, the newest first.
    pub fn epochs(&self) -> [Option<SketchTrailer>; 2] {
        match (self.trailer(0), self.trailer(1)) {
            (Some(even), Some(odd)) if is_later(odd.epoch, even.epoch) => [Some(odd), Some(even)],
            (Some(even), odd) => [Some(even), odd],
            (None, odd) => [odd, None],
        }
    }

    /// Copies the newest epoch.
    ///
    /// # Errors
    /// [`SketchError::NoEpoch`], [`SketchError::Busy`].
    pub fn copy_newest(&self, into: &mut SketchCopy) -> Result<(), SketchError> {
        for _ in 0..TRIES {
            let [newest, _] = self.epochs();
            self.copy_buffer(newest.ok_or(SketchError::NoEpoch)?, into);
            fence(Ordering::Acquire);
            if self.epochs()[0] == newest {
                into.certain = true;
                return Ok(());
            }
        }
        Err(SketchError::Busy)
    }

    /// Copies one of the complete epochs. [`SketchCopy::certain`] is false for the older one: some of its columns may already be
    /// overwritten with those of the epoch after the newest.
    ///
    /// # Errors
    /// [`SketchError::NoEpoch`], also if the epoch was overwritten during the read.
    pub fn copy_epoch(&self, epoch: u16, into: &mut SketchCopy) -> Result<(), SketchError> {
        let trailer = self.trailer(epoch & 1).filter(|trailer| trailer.epoch == epoch);
        self.copy_buffer(trailer.ok_or(SketchError::NoEpoch)?, into);
        fence(Ordering::Acquire);
        let [newest, older] = self.epochs();
        into.certain = newest == trailer;
        if newest == trailer || older == trailer {
            Ok(())
        } else {
            Err(SketchError::NoEpoch)
        }
    }

    /// Reads one column of an epoch: its counters, the first row's first.
    ///
    /// # Errors
    /// [`SketchError::NoEpoch`], also if the epoch was overwritten during the read; [`SketchError::NoColumn`] for a column that was not
    /// written.
    pub fn column(&self, epoch: u16, column: u32, out: &mut [u64]) -> Result<(), SketchError> {
        let out = out
            .get_mut(..usize::from(self.shape.depth))
            .ok_or(SketchError::OutLength)?;
        let trailer = self.trailer(epoch & 1).filter(|trailer| trailer.epoch == epoch);
        if column >= trailer.ok_or(SketchError::NoEpoch)?.columns {
            return Err(SketchError::NoColumn);
        }
        for (row, counter) in (0..self.shape.depth).zip(out) {
            *counter = self.counter(epoch, row, column);
        }
        fence(Ordering::Acquire);
        if self.trailer(epoch & 1) == trailer {
            Ok(())
        } else {
            Err(SketchError::NoEpoch)
        }
    }

    /// Reads the counter of a row and column, from memory as it is now.
    #[inline]
    fn counter(&self, epoch: u16, row: u8, column: u32) -> u64 {
        let width = usize::from(self.shape.width);
        let at = BODY + self.shape.offset(epoch, column) + u64::from(row) * width as u64;
        let mut bytes = [0; 8];
        // In range: row and column are the shape's.
        let _ = self.region.read(at, &mut bytes[..width.min(8)]);
        u64::from_le_bytes(bytes)
    }

    fn copy_buffer(&self, trailer: SketchTrailer, into: &mut SketchCopy) {
        let mut block = [0; 4096];
        into.trailer = trailer;
        into.kind = self.kind;
        into.op = self.op;
        into.shape = self.shape;
        into.counters.clear();
        let mut at = BODY + self.shape.buffer(trailer.epoch);
        let end = BODY + self.shape.trailer(trailer.epoch);
        while at < end {
            let len = (end - at).min(block.len() as u64);
            let block = &mut block[..len as usize];
            // In range: the body was compared with the geometry when the store was opened.
            let _ = self.region.read(at, block);
            if self.shape.width == 8 {
                into.counters.extend(
                    block
                        .as_chunks::<8>()
                        .0
                        .iter()
                        .map(|bytes| u64::from_le_bytes(*bytes)),
                );
            } else {
                let words = block.as_chunks::<4>().0.iter();
                into.counters
                    .extend(words.map(|bytes| u64::from(u32::from_le_bytes(*bytes))));
            }
            at += len;
        }
        let written = trailer.columns as usize * usize::from(self.shape.depth);
        into.counters.truncate(written);
    }
}

/// Compares epochs as serial numbers of 16 bits (RFC 1982).
fn is_later(epoch: u16, than: u16) -> bool {
    (epoch.wrapping_sub(than) as i16) > 0
}

/// A copy of one epoch, for queries. Reuse it: it allocates only when it grows.
#[derive(Clone, PartialEq, Debug)]
pub struct SketchCopy {
    trailer: SketchTrailer,
    kind: SketchKind,
    op: MergeOp,
    shape: Columns,
    counters: Vec<u64>,
    certain: bool,
}

/// An estimated number with its bound.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The estimated number itself.
    pub value: f64,
    /// Bound of its error.
    pub bound: Bound,
}

/// An item that AROMA sampled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sampled {
    /// Hash of the item, the largest in its bucket.
    pub hash: u32,
    /// Number of the item.
    pub item: u32,
}

impl Default for SketchCopy {
    fn default() -> Self {
        Self::new()
    }
}

impl SketchCopy {
    /// Creates an empty copy, for [`SketchReader::copy_newest`].
    pub fn new() -> Self {
        Self {
            trailer: SketchTrailer::default(),
            kind: SketchKind::CountMin,
            op: MergeOp::Sum,
            shape: Columns {
                depth: 1,
                columns: 0,
                width: 8,
            },
            counters: Vec::new(),
            certain: false,
        }
    }

    /// Returns the trailer: epoch, columns written, reporters merged.
    pub fn trailer(&self) -> SketchTrailer {
        self.trailer
    }

    /// Returns the kind of the sketch, by which its counters are read.
    pub fn kind(&self) -> SketchKind {
        self.kind
    }

    /// Returns whether it was the newest epoch while it was copied. An older one may contain columns of a newer one.
    pub fn certain(&self) -> bool {
        self.certain
    }

    /// Returns the shape, as configured; [`trailer`](Self::trailer) has the number of columns written.
    pub fn shape(&self) -> Columns {
        self.shape
    }

    /// Returns all counters of the columns that were written, column by column.
    pub fn counters(&self) -> &[u64] {
        &self.counters
    }

    /// Returns a counter, if its column was written.
    #[inline]
    pub fn counter(&self, row: u8, column: u32) -> Option<u64> {
        if row >= self.shape.depth {
            return None;
        }
        let index = column as usize * usize::from(self.shape.depth) + usize::from(row);
        self.counters.get(index).copied()
    }

    fn check_kind(&self, kind: SketchKind) -> Result<(), SketchError> {
        if self.kind == kind {
            Ok(())
        } else {
            Err(SketchError::Kind)
        }
    }

    /// Returns a key's counter in each row whose column was written, with the key's hash for this row.
    fn cells<'a>(&'a self, key: &[u8]) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let hashes = hashes(key);
        (0..self.shape.depth).filter_map(move |row| {
            let hash = row_hash(&hashes, row);
            Some((hash, self.counter(row, column(hash, self.shape.columns))?))
        })
    }

    /// Sums a function over the counters of a row.
    fn row_sum(&self, row: u8, of: impl Fn(u64) -> f64) -> f64 {
        let depth = usize::from(self.shape.depth.max(1));
        self.counters
            .iter()
            .skip(usize::from(row))
            .step_by(depth)
            .map(|counter| of(*counter))
            .sum()
    }

    /// Estimates the count of a key by Count-Min; never too small. With w columns and a total T it is too large by more than
    /// e·T/w with a probability of at most e^-depth (Cormode and Muthukrishnan 2005). Rows in which the key's column was not
    /// written are left out.
    ///
    /// # Errors
    /// [`SketchError::Kind`], [`SketchError::NoColumn`].
    pub fn count_min(&self, key: &[u8]) -> Result<Estimate, SketchError> {
        self.check_kind(SketchKind::CountMin)?;
        let mut least = u64::MAX;
        let mut rows = 0_u8;
        for (_, counter) in self.cells(key) {
            least = least.min(counter);
            rows += 1;
        }
        if rows == 0 {
            return Err(SketchError::NoColumn);
        }
        let total = self.row_sum(0, |counter| counter as f64);
        let error = std::f64::consts::E * total / f64::from(self.shape.columns.max(1));
        Ok(Estimate {
            value: least as f64,
            bound: Bound {
                error,
                confidence: 1.0 - (-f64::from(rows)).exp(),
            },
        })
    }

    /// Returns a counter as a signed number of its width.
    fn signed(&self, counter: u64) -> f64 {
        if self.shape.width == 8 {
            counter as i64 as f64
        } else {
            f64::from(counter as u32 as i32)
        }
    }

    /// Estimates the count of a key by Count sketch, as the median over its rows (Charikar, Chen and Farach-Colton 2004). The
    /// error of one row exceeds 2·sqrt(F2/w) with a probability of at most 1/4 (Chebyshev; F2, the sum of the squares of all
    /// counts, is estimated by the median row's sum of squares); the error of the median exceeds it only if those of half of the
    /// rows do.
    ///
    /// # Errors
    /// [`SketchError::Kind`], [`SketchError::NoColumn`].
    pub fn count(&self, key: &[u8]) -> Result<Estimate, SketchError> {
        self.check_kind(SketchKind::Count)?;
        let mut values = [0.0; MAX_DEPTH];
        let mut rows = 0;
        for ((hash, counter), value) in self.cells(key).zip(&mut values) {
            *value = if is_negative(hash) {
                -self.signed(counter)
            } else {
                self.signed(counter)
            };
            rows += 1;
        }
        let value = median(&mut values[..rows]).ok_or(SketchError::NoColumn)?;
        let mut squares = [0.0; MAX_DEPTH];
        for (row, sum) in (0..self.shape.depth).zip(&mut squares) {
            *sum = self.row_sum(row, |counter| self.signed(counter).powi(2));
        }
        let depth = usize::from(self.shape.depth).min(MAX_DEPTH);
        let f2 = median(&mut squares[..depth]).unwrap_or(0.0);
        let error = 2.0 * (f2 / f64::from(self.shape.columns.max(1))).sqrt();
        Ok(Estimate {
            value,
            bound: Bound {
                error,
                confidence: 1.0 - at_least_half(rows as u32, 0.25),
            },
        })
    }

    /// Estimates the number of distinct keys by HyperLogLog (Flajolet et al. 2007; linear counting while registers are empty).
    /// The bound is the standard error, 1.04/sqrt(registers) of the value; the error of one estimate in three is larger.
    ///
    /// # Errors
    /// [`SketchError::Kind`], [`SketchError::NoColumn`].
    pub fn cardinality(&self) -> Result<Estimate, SketchError> {
        self.check_kind(SketchKind::HyperLogLog)?;
        let registers = self.counters.len() as f64;
        if self.counters.is_empty() {
            return Err(SketchError::NoColumn);
        }
        let alpha = match self.counters.len() {
            ..32 => 0.673,
            32..64 => 0.697,
            64..128 => 0.709,
            _ => 0.7213 / (1.0 + 1.079 / registers),
        };
        // A rank is at most 33; anything larger is invalid and counts as 33.
        let sum: f64 = self
            .counters
            .iter()
            .map(|rank| (-((*rank).min(33) as f64)).exp2())
            .sum();
        let raw = alpha * registers * registers / sum;
        let empty = self.counters.iter().filter(|rank| **rank == 0).count() as f64;
        let value = if raw <= 2.5 * registers && empty > 0.0 {
            registers * (registers / empty).ln()
        } else {
            raw
        };
        Ok(Estimate {
            value,
            bound: Bound {
                error: 1.04 / registers.sqrt() * value,
                confidence: 0.68,
            },
        })
    }

    /// Returns the samples of AROMA, one of each bucket that is not empty. Every distinct packet (or other hashed item) is in the
    /// sample with the same probability, whatever the number of nodes that saw it.
    ///
    /// # Errors
    /// [`SketchError::Kind`].
    pub fn samples(&self) -> Result<impl Iterator<Item = Sampled>, SketchError> {
        self.check_kind(SketchKind::Aroma)?;
        let full = self.counters.iter().filter(|bucket| **bucket != 0);
        Ok(full.map(|bucket| Sampled {
            hash: (bucket >> 32) as u32,
            item: *bucket as u32,
        }))
    }

    /// Estimates the number of distinct packets by AROMA, from the largest hash of each bucket. With m buckets of λ packets each
    /// and hashes scaled to 0 to 1, 1 minus the largest hash is exponential with rate λ, so λ is about (m - 1)/sum; the bound is
    /// the standard error. Accurate for many more packets than buckets.
    ///
    /// # Errors
    /// [`SketchError::Kind`]; [`SketchError::NoColumn`], also for fewer than three buckets.
    pub fn sampled_from(&self) -> Result<Estimate, SketchError> {
        self.check_kind(SketchKind::Aroma)?;
        let buckets = self.counters.len() as f64;
        if self.counters.len() < 3 {
            return Err(SketchError::NoColumn);
        }
        let rests = self
            .counters
            .iter()
            .map(|bucket| 1.0 - (bucket >> 32) as f64 / (1_u64 << 32) as f64);
        let sum: f64 = rests.sum();
        let value = if self.counters.iter().all(|bucket| *bucket == 0) {
            0.0
        } else {
            buckets * (buckets - 1.0) / sum
        };
        Ok(Estimate {
            value,
            bound: Bound {
                error: value / (buckets - 2.0).sqrt(),
                confidence: 0.68,
            },
        })
    }

    /// Estimates the share of the packets for whose items `selects` holds by AROMA, with its standard error.
    ///
    /// # Errors
    /// [`SketchError::Kind`], [`SketchError::NoColumn`] when nothing was sampled.
    pub fn share(&self, selects: impl Fn(u32) -> bool) -> Result<Estimate, SketchError> {
        let mut all = 0.0_f64;
        let mut selected = 0.0;
        for sampled in self.samples()? {
            all += 1.0;
            selected += f64::from(u8::from(selects(sampled.item)));
        }
        if all == 0.0 {
            return Err(SketchError::NoColumn);
        }
        let value = selected / all;
        let error = (value * (1.0 - value) / all).sqrt();
        Ok(Estimate {
            value,
            bound: Bound {
                error,
                confidence: 0.68,
            },
        })
    }
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 {
        upper
    } else {
        f64::midpoint(upper, values[middle - 1])
    })
}

/// Returns the probability that at least half of `rows` fail if each fails with probability `one`.
fn at_least_half(rows: u32, one: f64) -> f64 {
    let mut term = (1.0 - one).powi(rows as i32);
    let mut sum = 0.0;
    for failed in 0..=rows {
        if failed * 2 >= rows {
            sum += term;
        }
        term *= one / (1.0 - one) * f64::from(rows - failed) / f64::from(failed + 1);
    }
    sum
}
