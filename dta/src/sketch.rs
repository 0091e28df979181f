//! The reader of merged sketches: Count-Min, Count sketch, HyperLogLog and AROMA samples that a DTA translator merges from
//! many switches and writes column by column.
//!
//! A region has two buffers, for even and odd epochs. The trailer of a buffer is written last and completes the epoch.
//! While the translator writes epoch e + 1 into the other buffer, epoch e is stable; once e + 1 is complete, e may be
//! overwritten by e + 2. A reader therefore copies the newest epoch, and repeats the copy if a newer one was completed
//! meanwhile.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use memory::Region;
use wire::dta::hash::hashes;
use wire::dta::layout::{Columns, MergeOp, SKETCH_TRAILER_LEN, SketchKind, SketchTrailer};
use wire::dta::sketch::{column, is_negative, row_hash};

use crate::header::BODY;
use crate::key_increment::Bound;

/// Maximum attempts to copy the newest epoch before giving up with [`SketchError::Busy`].
const TRIES: usize = 4;
/// Maximum number of rows of a sketch.
const MAX_DEPTH: usize = 16;

/// The reason why a sketch query has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SketchError {
    /// There is no epoch, or the requested one is not in memory.
    NoEpoch,
    /// New epochs complete faster than one can be copied.
    Busy,
    /// This kind of sketch does not support this query.
    Kind,
    /// None of the key's columns was written.
    NoColumn,
    /// The output buffer is too short for a column.
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

/// Reads the region of a sketch, which holds up to two epochs.
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

    /// Returns the kind of the sketch, which determines how counters are interpreted.
    pub fn kind(&self) -> SketchKind {
        self.kind
    }

    /// Returns the operation that merged the reporters' sketches.
    pub fn op(&self) -> MergeOp {
        self.op
    }

    /// Returns the depth, columns and counter width.
    pub fn shape(&self) -> Columns {
        self.shape
    }

    /// Returns the trailer of buffer 0 or 1, or `None` if the buffer holds no complete epoch of this sketch.
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

    /// Returns the complete epochs, newest first.
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
    /// [`SketchError::NoEpoch`] if no epoch is complete; [`SketchError::Busy`] if newer ones kept completing.
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

    /// Copies one of the complete epochs. For the older one, [`SketchCopy::certain`] is `false`: its columns may already be
    /// partly overwritten by the epoch after the newest.
    ///
    /// # Errors
    /// [`SketchError::NoEpoch`] if the epoch is not in memory, or was overwritten during the copy.
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

    /// Reads one column of an epoch: one counter per row, from row 0.
    ///
    /// # Errors
    /// [`SketchError::NoEpoch`] if the epoch is not in memory or was overwritten during the read; [`SketchError::NoColumn`]
    /// if the column was not written.
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

    /// Reads one counter from live memory.
    #[inline]
    fn counter(&self, epoch: u16, row: u8, column: u32) -> u64 {
        let width = usize::from(self.shape.width);
        let at = BODY + self.shape.offset(epoch, column) + u64::from(row) * width as u64;
        let mut bytes = [0; 8];
        // In range: row and column are below the shape's limits.
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
            // In range: the body's length was checked against the geometry when the store was opened.
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

/// Compares 16-bit epochs in serial number arithmetic (RFC 1982).
fn is_later(epoch: u16, than: u16) -> bool {
    (epoch.wrapping_sub(than) as i16) > 0
}

/// A private copy of one epoch, for queries. Reuse it: it allocates only when it grows.
#[derive(Clone, PartialEq, Debug)]
pub struct SketchCopy {
    trailer: SketchTrailer,
    kind: SketchKind,
    op: MergeOp,
    shape: Columns,
    counters: Vec<u64>,
    certain: bool,
}

/// An estimate with its error bound.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// Estimated value of the quantity.
    pub value: f64,
    /// Upper bound of the error, with its probability.
    pub bound: Bound,
}

/// An item in an AROMA sample.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sampled {
    /// Hash of the item, the largest in its bucket.
    pub hash: u32,
    /// The item's number, as reported.
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

    /// Returns the kind of the sketch, which determines how counters are interpreted.
    pub fn kind(&self) -> SketchKind {
        self.kind
    }

    /// Returns whether the epoch was the newest throughout the copy. An older one may contain columns of a later epoch.
    pub fn certain(&self) -> bool {
        self.certain
    }

    /// Returns the configured shape. [`trailer`](Self::trailer) has the number of columns written.
    pub fn shape(&self) -> Columns {
        self.shape
    }

    /// Returns the counters of all written columns, column by column.
    pub fn counters(&self) -> &[u64] {
        &self.counters
    }

    /// Returns a counter, or `None` if its column was not written.
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

    /// Returns, for each row whose column was written, the key's row hash and its counter.
    fn cells<'a>(&'a self, key: &[u8]) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let hashes = hashes(key);
        (0..self.shape.depth).filter_map(move |row| {
            let hash = row_hash(&hashes, row);
            Some((hash, self.counter(row, column(hash, self.shape.columns))?))
        })
    }

    /// Sums `of(counter)` over a row.
    fn row_sum(&self, row: u8, of: impl Fn(u64) -> f64) -> f64 {
        let depth = usize::from(self.shape.depth.max(1));
        self.counters
            .iter()
            .skip(usize::from(row))
            .step_by(depth)
            .map(|counter| of(*counter))
            .sum()
    }

    /// Estimates a key's count by Count-Min; the estimate is never too small. With w columns and a total count T, it is too
    /// large by more than e·T/w with probability at most e^-depth (Cormode and Muthukrishnan 2005). Rows in which the key's
    /// column was not written are left out.
    ///
    /// # Errors
    /// [`SketchError::Kind`] for another kind of sketch; [`SketchError::NoColumn`] if no row has the key's column.
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

    /// Interprets a counter as a signed number of the sketch's width.
    fn signed(&self, counter: u64) -> f64 {
        if self.shape.width == 8 {
            counter as i64 as f64
        } else {
            f64::from(counter as u32 as i32)
        }
    }

    /// Estimates a key's count by Count sketch: the median over its rows (Charikar, Chen and Farach-Colton 2004).
    ///
    /// By Chebyshev's inequality a row's error exceeds 2·sqrt(F2/w) with probability at most 1/4. F2 is the sum of squared
    /// counts, estimated as the median of the rows' sums of squares. The median's error exceeds the bound only if at least
    /// half of the rows do.
    ///
    /// # Errors
    /// [`SketchError::Kind`] for another kind of sketch; [`SketchError::NoColumn`] if no row has the key's column.
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

    /// Estimates the number of distinct keys by HyperLogLog (Flajolet et al. 2007), with linear counting for small values.
    /// The bound is the standard error, 1.04/sqrt(registers) of the value; about one estimate in three has a larger error.
    ///
    /// # Errors
    /// [`SketchError::Kind`] for another kind of sketch; [`SketchError::NoColumn`] if nothing was written.
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
        // A rank of a 32-bit hash is at most 33; larger values are invalid and count as 33.
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

    /// Returns the items of an AROMA sample, at most one per bucket. Every distinct packet (or other hashed item) is
    /// sampled with the same probability, however many nodes saw it.
    ///
    /// # Errors
    /// [`SketchError::Kind`] for another kind of sketch.
    pub fn samples(&self) -> Result<impl Iterator<Item = Sampled>, SketchError> {
        self.check_kind(SketchKind::Aroma)?;
        let full = self.counters.iter().filter(|bucket| **bucket != 0);
        Ok(full.map(|bucket| Sampled {
            hash: (bucket >> 32) as u32,
            item: *bucket as u32,
        }))
    }

    /// Estimates the number of distinct packets from the largest hash of each AROMA bucket. With m buckets of λ packets
    /// each and hashes scaled to 0..1, one minus the largest hash is exponentially distributed with rate λ, so λ is about
    /// (m - 1)/sum. The bound is the standard error. Accurate only for many more packets than buckets.
    ///
    /// # Errors
    /// [`SketchError::Kind`] for another kind of sketch; [`SketchError::NoColumn`] if fewer than three buckets were
    /// written.
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

    /// Estimates from the AROMA sample which share of packets satisfies `selects`, with the standard error as bound.
    ///
    /// # Errors
    /// [`SketchError::Kind`] for another kind of sketch; [`SketchError::NoColumn`] if the sample is empty.
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

/// Returns the probability that at least half of `rows` rows fail, if each fails independently with probability `one`.
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
