//! The layout of collector memory (wire-formats 5.9), which the translator writes and the collector reads: positions, lengths, and
//! the bytes of slots, blocks and trailers. Offsets are relative to the body of a region.

use super::hash::{Family, MAX_SLOTS};
use crate::crc::crc_32c_update;

/// The value of a hop without a postcard, in a postcard slot.
pub const NO_HOP: u32 = u32::MAX;
/// Bytes of the trailer of a tagged append block.
pub const BLOCK_TRAILER_LEN: usize = 16;
/// Bytes of the trailer of a sketch's buffer.
pub const SKETCH_TRAILER_LEN: usize = 16;
/// Bytes of the checksum before the data of a key-write or postcard slot.
pub const CHECKSUM_LEN: usize = 4;
/// Bytes of a counter of a key-increment store.
pub const COUNTER_LEN: u64 = 8;

/// Returns the stride of key-write slots for `data_len` bytes of data: the next power of two that holds them
/// and the checksum.
#[inline]
pub const fn slot_stride(data_len: u16) -> u64 {
    (CHECKSUM_LEN as u64 + data_len as u64).next_power_of_two()
}

/// Writes a key-write slot: checksum, data, and zeros up to the `data_len` bytes that the store keeps. Returns the bytes written,
/// `4 + data_len`, or `None` if `out` is too short or `data` too long.
#[inline]
pub fn put_slot(out: &mut [u8], checksum: u32, data: &[u8], data_len: u16) -> Option<usize> {
    let len = CHECKSUM_LEN + usize::from(data_len);
    let (head, body) = out.get_mut(..len)?.split_first_chunk_mut::<CHECKSUM_LEN>()?;
    *head = checksum.to_le_bytes();
    let (front, pad) = body.split_at_mut_checked(data.len())?;
    front.copy_from_slice(data);
    pad.fill(0);
    Some(len)
}

/// Returns the checksum and the data of a slot read from memory, or `None` if it is shorter than its
/// checksum.
#[inline]
pub fn slot_parts(slot: &[u8]) -> Option<(u32, &[u8])> {
    let (head, data) = slot.split_first_chunk::<CHECKSUM_LEN>()?;
    Some((u32::from_le_bytes(*head), data))
}

/// Returns whether this slot (of Key-Write or Postcarding) was never written: checksum and data are zero.
#[inline]
pub fn is_empty(slot: &[u8]) -> bool {
    slot.iter().fold(0, |sum, byte| sum | byte) == 0
}

/// Returns the stride of the postcard slots of a store of paths of up to `hops`.
#[inline]
pub const fn postcard_stride(hops: u8) -> u64 {
    (CHECKSUM_LEN as u64 + 4 * hops as u64).next_power_of_two()
}

/// Writes a postcard slot: checksum and a value per hop, the first hop's first; [`NO_HOP`] where there is none. Returns the
/// bytes written, or `None` if `out` is too short.
#[inline]
pub fn put_postcards(out: &mut [u8], checksum: u32, values: &[u32]) -> Option<usize> {
    let len = CHECKSUM_LEN + 4 * values.len();
    let (head, body) = out.get_mut(..len)?.split_first_chunk_mut::<CHECKSUM_LEN>()?;
    *head = checksum.to_le_bytes();
    for (word, value) in body.as_chunks_mut::<4>().0.iter_mut().zip(values) {
        *word = value.to_be_bytes();
    }
    Some(len)
}

/// Returns the value of a hop, 1-based, in a postcard slot, or `None` if it was not seen or there is no such
/// hop.
#[inline]
pub fn postcard(slot: &[u8], hop: u8) -> Option<u32> {
    let at = 4 * usize::from(hop.max(1));
    let word = u32::from_be_bytes(*slot.get(at..)?.first_chunk::<4>()?);
    (hop > 0 && word != NO_HOP).then_some(word)
}

/// The ring of a list, and the positions of its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ring {
    /// Bytes of an entry, 1 to 1024.
    pub entry_len: u16,
    /// Entries of a list, a multiple of the batch.
    pub entries: u64,
    /// Entries of a block, at most 255.
    pub batch: u16,
    /// Blocks end with a trailer. Bare rings, as in the artifact, do not show a reader which entries are new and complete.
    pub tagged: bool,
}

impl Ring {
    /// Returns the bytes of a block: the entries of a batch, and in a tagged ring the padding to a multiple
    /// of eight and the trailer.
    #[inline]
    pub const fn block_len(&self) -> u64 {
        let data = self.batch as u64 * self.entry_len as u64;
        if self.tagged {
            data.next_multiple_of(8) + BLOCK_TRAILER_LEN as u64
        } else {
            data
        }
    }

    /// Returns the number of blocks of a list.
    #[inline]
    pub const fn blocks(&self) -> u64 {
        if self.batch == 0 {
            0
        } else {
            self.entries / self.batch as u64
        }
    }

    /// Returns the bytes of a list.
    #[inline]
    pub const fn list_len(&self) -> u64 {
        self.blocks() * self.block_len()
    }

    /// Returns the offset of block `block` of the `list`th list of the region.
    #[inline]
    pub const fn offset(&self, list: u64, block: u64) -> u64 {
        list * self.list_len() + block * self.block_len()
    }
}

/// Contents of the trailer of a tagged block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockTrailer {
    /// Number of the batch, from 1; it wraps from the largest to 1.
    pub sequence: u32,
    /// Entries in it, at most the ring's batch.
    pub count: u16,
    /// Bytes of an entry.
    pub entry_len: u16,
}

impl BlockTrailer {
    /// Returns the number of the batch after `sequence`: 0 is skipped, so that memory that was never written
    /// does not look like a batch.
    #[inline]
    pub const fn next(sequence: u32) -> u32 {
        if sequence == u32::MAX { 1 } else { sequence + 1 }
    }

    /// Returns the number of batches by which `sequence` is ahead of `from`; negative if it is behind.
    #[inline]
    pub const fn ahead(sequence: u32, from: u32) -> i64 {
        // The sequence space has 2^32 - 1 numbers.
        let round = u32::MAX as i64;
        let far = (sequence as i64 - from as i64).rem_euclid(round);
        if far > round / 2 { far - round } else { far }
    }

    /// Returns the trailer's first eight bytes, which the CRC covers too.
    #[inline]
    const fn head(&self) -> [u8; 8] {
        let [a, b, c, d] = self.sequence.to_le_bytes();
        let [e, f] = self.count.to_le_bytes();
        let [g, h] = self.entry_len.to_le_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// Returns the bytes of all entries in the batch.
    #[inline]
    pub const fn data_len(&self) -> usize {
        self.count as usize * self.entry_len as usize
    }

    /// Writes the trailer into the last bytes of a block that already begins with its entries. `false`, with nothing
    /// written, if the block is too short.
    #[inline]
    pub fn seal(&self, block: &mut [u8]) -> bool {
        let Some((data, trailer)) = block.split_last_chunk_mut::<BLOCK_TRAILER_LEN>() else {
            return false;
        };
        let Some(entries) = data.get(..self.data_len()) else {
            return false;
        };
        let head = self.head();
        let crc = !crc_32c_update(crc_32c_update(u32::MAX, entries), &head);
        trailer[..8].copy_from_slice(&head);
        trailer[8..12].copy_from_slice(&crc.to_le_bytes());
        trailer[12..].fill(0);
        true
    }

    /// Reads the trailer of a block and checks the entries against it.
    ///
    /// # Errors
    /// If the block was never written, is being written, or contains parts of two batches.
    #[inline]
    pub fn check(block: &[u8]) -> Result<Self, Torn> {
        Self::check_by(block, |entries, head| {
            !crc_32c_update(crc_32c_update(u32::MAX, entries), head)
        })
    }

    /// Checks a block as [`check`](Self::check) does, with the caller's CRC-32C function over the entries
    /// followed by the eight bytes.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    #[inline]
    pub fn check_by(block: &[u8], crc: impl FnOnce(&[u8], &[u8; 8]) -> u32) -> Result<Self, Torn> {
        let (trailer, said) = Self::read(block).ok_or(Torn)?;
        let entries = block[..block.len() - BLOCK_TRAILER_LEN]
            .get(..trailer.data_len())
            .ok_or(Torn)?;
        if trailer.sequence == 0 || crc(entries, &trailer.head()) != said {
            Err(Torn)
        } else {
            Ok(trailer)
        }
    }

    /// Reads the trailer and its CRC, without validation.
    #[inline]
    pub fn read(block: &[u8]) -> Option<(Self, u32)> {
        let &[a, b, c, d, e, f, g, h, i, j, k, l, ..] = block.last_chunk::<BLOCK_TRAILER_LEN>()?;
        let trailer = Self {
            sequence: u32::from_le_bytes([a, b, c, d]),
            count: u16::from_le_bytes([e, f]),
            entry_len: u16::from_le_bytes([g, h]),
        };
        Some((trailer, u32::from_le_bytes([i, j, k, l])))
    }
}

/// A block that is not, or not yet, a whole batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Torn;

crate::named! {
    /// The operation that merges two counters of a sketch. The discriminants are the numbers on the wire.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[repr(u8)]
    pub enum MergeOp, name {
        /// Adds them, modulo their width: Count-Min, Count.
        Sum = 0 => "sum",
        /// The larger of both: HyperLogLog.
        Max = 1 => "max",
        /// The smaller of both.
        Min = 2 => "min",
        /// The larger of two 8-byte buckets, with the hash in the high half and the sample in the low half: AROMA.
        Sample = 3 => "sample",
    }
}

impl MergeOp {
    /// Returns the operation with this number.
    #[inline]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Sum),
            1 => Some(Self::Max),
            2 => Some(Self::Min),
            3 => Some(Self::Sample),
            _ => None,
        }
    }
}

/// The shape of a sketch: two buffers, one per parity of the epoch, column by column.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Columns {
    /// Rows, 1 to 16.
    pub depth: u8,
    /// Columns of the sketch.
    pub columns: u32,
    /// Bytes of a counter, 4 or 8.
    pub width: u8,
}

impl Columns {
    /// Returns the bytes of a column.
    #[inline]
    pub const fn column_len(&self) -> u64 {
        self.depth as u64 * self.width as u64
    }

    /// Returns the bytes of a buffer with its trailer.
    #[inline]
    pub const fn buffer_len(&self) -> u64 {
        self.columns as u64 * self.column_len() + SKETCH_TRAILER_LEN as u64
    }

    /// Returns the offset of the buffer of an epoch.
    #[inline]
    pub const fn buffer(&self, epoch: u16) -> u64 {
        (epoch & 1) as u64 * self.buffer_len()
    }

    /// Returns the offset of a column in the buffer of an epoch.
    #[inline]
    pub const fn offset(&self, epoch: u16, column: u32) -> u64 {
        self.buffer(epoch) + column as u64 * self.column_len()
    }

    /// Returns the offset of the trailer of an epoch's buffer.
    #[inline]
    pub const fn trailer(&self, epoch: u16) -> u64 {
        self.offset(epoch, self.columns)
    }
}

/// The trailer after the counters of a sketch's buffer; it is written last.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SketchTrailer {
    /// The epoch of the counters.
    pub epoch: u16,
    /// ID of the sketch.
    pub sketch: u16,
    /// Number of columns that were written.
    pub columns: u32,
    /// Number of reporters whose columns were merged.
    pub reporters: u32,
}

impl SketchTrailer {
    /// Returns the trailer as bytes.
    pub const fn emit(&self) -> [u8; SKETCH_TRAILER_LEN] {
        let ([a, b], [c, d]) = (self.epoch.to_le_bytes(), self.sketch.to_le_bytes());
        let ([e, f, g, h], [i, j, k, l]) = (self.columns.to_le_bytes(), self.reporters.to_le_bytes());
        [a, b, c, d, e, f, g, h, i, j, k, l, 0, 0, 0, 0]
    }

    /// Reads a trailer from its bytes.
    pub const fn parse(bytes: &[u8; SKETCH_TRAILER_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *bytes;
        Self {
            epoch: u16::from_le_bytes([a, b]),
            sketch: u16::from_le_bytes([c, d]),
            columns: u32::from_le_bytes([e, f, g, h]),
            reporters: u32::from_le_bytes([i, j, k, l]),
        }
    }
}

/// Turns counters from the wire's byte order (big-endian) into memory's (little-endian), or back; `width` is 4 or 8. The bytes
/// of an incomplete last counter are not changed.
#[inline]
pub fn swap_counter_bytes(counters: &mut [u8], width: u8) {
    if width == 8 {
        counters
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .for_each(|counter| counter.reverse());
    } else {
        counters
            .as_chunks_mut::<4>()
            .0
            .iter_mut()
            .for_each(|counter| counter.reverse());
    }
}

crate::named! {
    /// Kind of the sketch in a region, which determines how its counters are read; [`MergeOp`] determines how they are merged.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[repr(u8)]
    pub enum SketchKind, name {
        /// Count-Min: the minimum of a key's counters is at least its count.
        CountMin = 1 => "count-min",
        /// Count sketch: signed counters, the median is the estimate.
        Count = 2 => "count",
        /// HyperLogLog: the number of distinct keys.
        HyperLogLog = 3 => "hyperloglog",
        /// AROMA: a sample of distinct packets.
        Aroma = 4 => "aroma",
    }
}

impl SketchKind {
    /// Returns the kind with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Returns the operation that merges counters of this kind.
    pub const fn op(self) -> MergeOp {
        match self {
            Self::CountMin | Self::Count => MergeOp::Sum,
            Self::HyperLogLog => MergeOp::Max,
            Self::Aroma => MergeOp::Sample,
        }
    }
}

/// The structure of a store, as far as both ends must agree on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Geometry {
    /// A store of values by key.
    KeyWrite {
        /// Slots, a power of two.
        slots: u64,
        /// Bytes of data in a slot, 1 to 1024.
        data_len: u16,
        /// The hash family that selects a key's slots.
        family: Family,
    },
    /// A store of lists.
    Append {
        /// Number of lists in the store.
        lists: u32,
        /// ID of the first; the others follow.
        first_list: u32,
        /// The shape of each.
        ring: Ring,
    },
    /// A store of counters by key.
    KeyIncrement {
        /// Counters, a power of two.
        slots: u64,
        /// The hash family that selects a key's counters.
        family: Family,
    },
    /// A sketch merged from those of several reporters.
    Sketch {
        /// The kind of sketch, which determines how it is read.
        kind: SketchKind,
        /// The operation that merges two counters.
        op: MergeOp,
        /// Rows, columns and counter width.
        shape: Columns,
    },
    /// A store of paths by key.
    Postcarding {
        /// Slots, a power of two.
        slots: u64,
        /// Hops of the longest path, 1 to 255.
        hops: u8,
        /// The hash family that selects a key's slots.
        family: Family,
    },
}

/// Returns `rule` as the error unless `good`.
fn ensure(good: bool, rule: BadGeometry) -> Result<(), BadGeometry> {
    if good { Ok(()) } else { Err(rule) }
}

/// The reason for which a geometry is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BadGeometry {
    /// Slots are not a power of two up to [`MAX_SLOTS`].
    Slots,
    /// Data in a slot is not 1 to 1024 bytes.
    DataLength,
    /// No list, or IDs beyond 32 bits.
    Lists,
    /// An entry is not 1 to 1024 bytes.
    EntryLength,
    /// Batch not 1 to 255, or the entries of a list are not a multiple of it.
    Batch,
    /// Depth not 1 to 16, no columns, a counter not of 4 or 8 bytes, or a sample not of 8.
    Sketch,
    /// The maximum number of hops is zero.
    Hops,
    /// The store's size exceeds 62 bits.
    TooLarge,
}

impl core::fmt::Display for BadGeometry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Slots => "slots must be a power of two, at most 2^31",
            Self::DataLength => "a slot holds 1 to 1024 bytes",
            Self::Lists => "there must be a list, and list IDs have 32 bits",
            Self::EntryLength => "an entry has 1 to 1024 bytes",
            Self::Batch => "a batch has 1 to 255 entries, and a list a multiple of it",
            Self::Sketch => "a sketch has 1 to 16 rows, columns, and counters of 4 or 8 bytes (samples: 8)",
            Self::Hops => "a path has 1 to 255 hops",
            Self::TooLarge => "larger than the address space",
        })
    }
}

impl core::error::Error for BadGeometry {}

impl Geometry {
    /// Returns the kind as a word.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::KeyWrite { .. } => "key-write",
            Self::Append { .. } => "append",
            Self::KeyIncrement { .. } => "key-increment",
            Self::Sketch { .. } => "sketch",
            Self::Postcarding { .. } => "postcarding",
        }
    }

    /// Checks that both ends can use it.
    ///
    /// # Errors
    /// The first violated rule.
    pub fn check(&self) -> Result<(), BadGeometry> {
        match *self {
            Self::KeyWrite { slots, data_len, .. } => {
                ensure(good_slots(slots), BadGeometry::Slots)?;
                ensure((1..=1024).contains(&data_len), BadGeometry::DataLength)
            }
            Self::Append {
                lists,
                first_list,
                ring,
            } => {
                let last = first_list.checked_add(lists.saturating_sub(1));
                ensure(lists > 0 && last.is_some(), BadGeometry::Lists)?;
                ensure((1..=1024).contains(&ring.entry_len), BadGeometry::EntryLength)?;
                let multiple = ring.entries > 0 && ring.entries.is_multiple_of(u64::from(ring.batch.max(1)));
                ensure((1..=255).contains(&ring.batch) && multiple, BadGeometry::Batch)?;
                let list = ring.blocks().checked_mul(ring.block_len());
                let all = list.and_then(|list| list.checked_mul(u64::from(lists)));
                ensure(all.is_some_and(|all| all < 1 << 62), BadGeometry::TooLarge)
            }
            Self::KeyIncrement { slots, .. } => ensure(good_slots(slots), BadGeometry::Slots),
            Self::Sketch { op, shape, .. } => {
                let width = shape.width == 8 || shape.width == 4 && op != MergeOp::Sample;
                let good = (1..=16).contains(&shape.depth) && width && shape.columns > 0;
                ensure(good, BadGeometry::Sketch)
            }
            Self::Postcarding { slots, hops, .. } => {
                ensure(good_slots(slots), BadGeometry::Slots)?;
                ensure(hops > 0, BadGeometry::Hops)
            }
        }
    }

    /// Returns the bytes of the region's body, for a geometry that was [checked](Self::check).
    pub const fn body_len(&self) -> u64 {
        match *self {
            Self::KeyWrite { slots, data_len, .. } => slots.wrapping_mul(slot_stride(data_len)),
            Self::Append { lists, ring, .. } => {
                let list = ring.blocks().wrapping_mul(ring.block_len());
                (lists as u64).wrapping_mul(list)
            }
            Self::KeyIncrement { slots, .. } => slots.wrapping_mul(COUNTER_LEN),
            Self::Sketch { shape, .. } => 2 * shape.buffer_len(),
            Self::Postcarding { slots, hops, .. } => slots.wrapping_mul(postcard_stride(hops)),
        }
    }
}

fn good_slots(slots: u64) -> bool {
    slots.is_power_of_two() && slots <= MAX_SLOTS
}

#[cfg(test)]
mod tests {
    use super::super::hash::hashes;
    use super::*;

    const KEY: [u8; 13] = [10, 0, 0, 1, 10, 0, 0, 2, 0x04, 0xd2, 0x00, 0x50, 6];

    /// `dta1_blk` of 5.9.
    const BLOCK: [u8; 24] = [
        0xde, 0xad, 0xbe, 0xef, 0xca, 0xfe, 0xf0, 0x0d, 1, 0, 0, 0, 2, 0, 4, 0, 0xef, 0xd2, 0xf9, 0x1b, 0, 0,
        0, 0,
    ];

    #[test]
    fn the_slot_of_section_5_9() {
        let mut data = [0; 20];
        for (i, word) in data.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            word[3] = 11 + i as u8;
        }
        let mut slot = [0xa5; 32];
        assert_eq!(put_slot(&mut slot, hashes(&KEY).checksum, &data, 20), Some(24));
        assert_eq!(slot[..8], [0xbc, 0x4f, 0x0a, 0x28, 0, 0, 0, 0x0b]);
        assert_eq!(slot_parts(&slot[..24]), Some((0x280a_4fbc, data.as_slice())));
        assert_eq!((slot_stride(20), 0x9_f9de * slot_stride(20)), (32, 0x13f_3bc0));
        assert_eq!(
            (
                slot_stride(4),
                slot_stride(28),
                slot_stride(29),
                slot_stride(1024)
            ),
            (8, 32, 64, 2048)
        );
        // Short data are followed by zeros; nothing is written beyond.
        let mut short = [0xa5; 32];
        assert_eq!(put_slot(&mut short, 1, &[7], 20), Some(24));
        assert_eq!(
            (&short[4..24], short[24]),
            ([&[7][..], &[0; 19]].concat().as_slice(), 0xa5)
        );
        assert_eq!(put_slot(&mut [0; 23], 1, &data, 20), None);
        assert_eq!(put_slot(&mut [0; 32], 1, &[0; 21], 20), None);
        assert!(is_empty(&[0; 24]) && !is_empty(&slot));
    }

    #[test]
    fn the_postcard_slot_of_section_5_9() {
        let mut slot = [0; 32];
        let values = [11, 12, 13, NO_HOP, NO_HOP];
        assert_eq!(put_postcards(&mut slot, hashes(&KEY).checksum, &values), Some(24));
        let expected = [
            0xbc, 0x4f, 0x0a, 0x28, 0, 0, 0, 11, 0, 0, 0, 12, 0, 0, 0, 13, 255, 255, 255, 255, 255,
        ];
        assert_eq!(slot[..21], expected);
        assert_eq!(
            [1, 2, 3, 4, 5].map(|hop| postcard(&slot[..24], hop)),
            [Some(11), Some(12), Some(13), None, None]
        );
        assert_eq!((postcard(&slot[..24], 0), postcard(&slot[..24], 6)), (None, None));
        assert_eq!(
            (postcard_stride(5), postcard_stride(7), postcard_stride(8)),
            (32, 32, 64)
        );
        assert_eq!(put_postcards(&mut [0; 23], 0, &values), None);
    }

    #[test]
    fn the_block_of_section_5_9() {
        let trailer = BlockTrailer {
            sequence: 1,
            count: 2,
            entry_len: 4,
        };
        let mut block = [0xa5; 24];
        block[..8].copy_from_slice(&BLOCK[..8]);
        assert!(trailer.seal(&mut block));
        assert_eq!(block, BLOCK);
        assert_eq!(BlockTrailer::check(&block), Ok(trailer));
        assert_eq!(crate::crc::crc_32c(&BLOCK[..16]), 0x1bf9_d2ef);
        let ring = Ring {
            entry_len: 4,
            entries: 64,
            batch: 2,
            tagged: true,
        };
        assert_eq!(
            (ring.block_len(), ring.blocks(), ring.offset(3, 5)),
            (24, 32, 3 * 32 * 24 + 5 * 24)
        );
        let bare = Ring {
            tagged: false,
            ..ring
        };
        assert_eq!((bare.block_len(), bare.list_len()), (8, 256));
        assert_eq!(
            Ring {
                entry_len: 18,
                batch: 1,
                ..ring
            }
            .block_len(),
            24 + 16
        );
    }

    #[test]
    fn no_bit_of_a_block_may_change() {
        for bit in 0..BLOCK.len() * 8 {
            let mut block = BLOCK;
            block[bit / 8] ^= 1 << (bit % 8);
            // The last four bytes are reserved.
            let torn = bit / 8 < 20;
            assert_eq!(BlockTrailer::check(&block).is_err(), torn, "bit {bit}");
        }
        for len in 0..BLOCK.len() {
            assert_eq!(BlockTrailer::check(&BLOCK[..len]), Err(Torn), "{len} bytes");
        }
        assert_eq!(BlockTrailer::check(&[0; 24]), Err(Torn), "never written");
    }

    #[test]
    fn a_block_too_short_is_left_alone() {
        let mut block = [0xa5; 24];
        assert!(
            !BlockTrailer {
                sequence: 1,
                count: 3,
                entry_len: 4
            }
            .seal(&mut block)
        );
        assert!(
            !BlockTrailer {
                sequence: 1,
                count: 0,
                entry_len: 4
            }
            .seal(&mut block[..15])
        );
        assert_eq!(block, [0xa5; 24]);
    }

    #[test]
    fn batch_numbers_wrap_and_skip_zero() {
        assert_eq!(
            (
                BlockTrailer::next(0),
                BlockTrailer::next(1),
                BlockTrailer::next(u32::MAX)
            ),
            (1, 2, 1)
        );
        assert_eq!(BlockTrailer::ahead(1, u32::MAX), 1);
        assert_eq!(BlockTrailer::ahead(u32::MAX, 1), -1);
        assert_eq!(
            (
                BlockTrailer::ahead(10, 3),
                BlockTrailer::ahead(3, 10),
                BlockTrailer::ahead(9, 9)
            ),
            (7, -7, 0)
        );
    }

    #[test]
    fn sketches_lie_column_by_column() {
        let shape = Columns {
            depth: 4,
            columns: 1000,
            width: 4,
        };
        assert_eq!((shape.column_len(), shape.buffer_len()), (16, 16_016));
        assert_eq!((shape.offset(0, 3), shape.offset(17, 3)), (48, 16_016 + 48));
        assert_eq!((shape.trailer(2), shape.trailer(3)), (16_000, 32_016));
        let trailer = SketchTrailer {
            epoch: 0x0102,
            sketch: 4,
            columns: 1000,
            reporters: 3,
        };
        assert_eq!(
            trailer.emit(),
            [2, 1, 4, 0, 0xe8, 3, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(SketchTrailer::parse(&trailer.emit()), trailer);
        let mut counters = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        swap_counter_bytes(&mut counters, 4);
        assert_eq!(counters, [4, 3, 2, 1, 8, 7, 6, 5, 9]);
        swap_counter_bytes(&mut counters[..8], 8);
        assert_eq!(counters, [5, 6, 7, 8, 1, 2, 3, 4, 9]);
    }

    #[test]
    fn numbers_and_names_go_both_ways() {
        for op in [MergeOp::Sum, MergeOp::Max, MergeOp::Min, MergeOp::Sample] {
            assert_eq!(
                (MergeOp::from_number(op as u8), MergeOp::from_name(op.name())),
                (Some(op), Some(op))
            );
        }
        assert_eq!(
            (MergeOp::from_number(4), SketchKind::from_number(0)),
            (None, None)
        );
        for kind in SketchKind::ALL {
            assert_eq!(
                (
                    SketchKind::from_number(kind as u8),
                    SketchKind::from_name(kind.name())
                ),
                (Some(kind), Some(kind))
            );
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one scenario, from start to end")]
    fn geometries_are_checked() {
        let ring = Ring {
            entry_len: 18,
            entries: 1 << 20,
            batch: 16,
            tagged: true,
        };
        let shape = Columns {
            depth: 4,
            columns: 4096,
            width: 8,
        };
        let family = Family::V1;
        let lists = |lists, first_list, ring| Geometry::Append {
            lists,
            first_list,
            ring,
        };
        let sketch = |op, shape| Geometry::Sketch {
            kind: SketchKind::CountMin,
            op,
            shape,
        };
        let good = [
            (
                Geometry::KeyWrite {
                    slots: 1 << 20,
                    data_len: 20,
                    family,
                },
                32 << 20,
            ),
            (lists(16, 0, ring), 16 * 65536 * (288 + 16)),
            (
                Geometry::KeyIncrement {
                    slots: 1 << 16,
                    family,
                },
                8 << 16,
            ),
            (sketch(MergeOp::Sum, shape), 2 * (4096 * 32 + 16)),
            (
                Geometry::Postcarding {
                    slots: 1 << 31,
                    hops: 5,
                    family,
                },
                32 << 31,
            ),
        ];
        for (geometry, len) in good {
            assert_eq!(
                (geometry.check(), geometry.body_len()),
                (Ok(()), len),
                "{geometry:?}"
            );
        }
        let bad = [
            (
                Geometry::KeyWrite {
                    slots: 3,
                    data_len: 20,
                    family,
                },
                BadGeometry::Slots,
            ),
            (
                Geometry::KeyWrite {
                    slots: 1 << 32,
                    data_len: 20,
                    family,
                },
                BadGeometry::Slots,
            ),
            (
                Geometry::KeyWrite {
                    slots: 4,
                    data_len: 0,
                    family,
                },
                BadGeometry::DataLength,
            ),
            (
                Geometry::KeyWrite {
                    slots: 4,
                    data_len: 1025,
                    family,
                },
                BadGeometry::DataLength,
            ),
            (lists(0, 0, ring), BadGeometry::Lists),
            (lists(2, u32::MAX, ring), BadGeometry::Lists),
            (
                lists(1, 0, Ring { entry_len: 0, ..ring }),
                BadGeometry::EntryLength,
            ),
            (lists(1, 0, Ring { batch: 0, ..ring }), BadGeometry::Batch),
            (lists(1, 0, Ring { batch: 256, ..ring }), BadGeometry::Batch),
            (lists(1, 0, Ring { entries: 17, ..ring }), BadGeometry::Batch),
            (
                lists(
                    u32::MAX,
                    0,
                    Ring {
                        entries: 1 << 60,
                        ..ring
                    },
                ),
                BadGeometry::TooLarge,
            ),
            (Geometry::KeyIncrement { slots: 0, family }, BadGeometry::Slots),
            (
                sketch(MergeOp::Sum, Columns { depth: 17, ..shape }),
                BadGeometry::Sketch,
            ),
            (
                sketch(MergeOp::Sum, Columns { width: 2, ..shape }),
                BadGeometry::Sketch,
            ),
            (
                sketch(MergeOp::Sample, Columns { width: 4, ..shape }),
                BadGeometry::Sketch,
            ),
            (
                sketch(MergeOp::Sum, Columns { columns: 0, ..shape }),
                BadGeometry::Sketch,
            ),
            (
                Geometry::Postcarding {
                    slots: 4,
                    hops: 0,
                    family,
                },
                BadGeometry::Hops,
            ),
        ];
        for (geometry, why) in bad {
            assert_eq!(geometry.check(), Err(why), "{geometry:?}");
        }
    }
}
