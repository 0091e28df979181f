//! Layouts of DTA collector memory, shared by the translator that writes it and the collector that reads it: offsets,
//! lengths, and the bytes of slots, blocks and trailers (`docs/reference/wire-formats.md`, section 5.9). Offsets are
//! relative to the body of a region; integers written by the translator's own format are little-endian, values from reports
//! stay big-endian.

use super::hash::{Family, MAX_SLOTS};
use crate::crc::crc_32c_update;

/// Value of a hop without a postcard in a Postcarding slot.
pub const NO_HOP: u32 = u32::MAX;
/// Length of the trailer of a tagged Append block, bytes.
pub const BLOCK_TRAILER_LEN: usize = 16;
/// Length of the trailer of a sketch's buffer, bytes.
pub const SKETCH_TRAILER_LEN: usize = 16;
/// Length of the checksum at the start of a Key-Write or Postcarding slot, bytes.
pub const CHECKSUM_LEN: usize = 4;
/// Length of a Key-Increment counter, bytes.
pub const COUNTER_LEN: u64 = 8;

/// Returns the stride of Key-Write slots with `data_len` bytes of data: the smallest power of two that holds them and the
/// checksum.
#[inline]
pub const fn slot_stride(data_len: u16) -> u64 {
    (CHECKSUM_LEN as u64 + data_len as u64).next_power_of_two()
}

/// Writes a Key-Write slot: checksum, data, and zeros up to the store's `data_len`. Returns its length `4 + data_len`, or
/// `None` if `out` is too short or `data` too long.
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

/// Splits a slot into its checksum and data, or returns `None` if it is shorter than a checksum.
#[inline]
pub fn slot_parts(slot: &[u8]) -> Option<(u32, &[u8])> {
    let (head, data) = slot.split_first_chunk::<CHECKSUM_LEN>()?;
    Some((u32::from_le_bytes(*head), data))
}

/// Returns whether a Key-Write or Postcarding slot was never written: all its bytes are zero.
#[inline]
pub fn is_empty(slot: &[u8]) -> bool {
    slot.iter().fold(0, |sum, byte| sum | byte) == 0
}

/// Returns the stride of Postcarding slots for paths of up to `hops` hops, bytes.
#[inline]
pub const fn postcard_stride(hops: u8) -> u64 {
    (CHECKSUM_LEN as u64 + 4 * hops as u64).next_power_of_two()
}

/// Writes a Postcarding slot: checksum and one value per hop in path order, [`NO_HOP`] for a missing hop. Returns its
/// length, or `None` if `out` is too short.
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

/// Returns the value of a hop (from 1) in a Postcarding slot, or `None` if it is missing or out of range.
#[inline]
pub fn postcard(slot: &[u8], hop: u8) -> Option<u32> {
    let at = 4 * usize::from(hop.max(1));
    let word = u32::from_be_bytes(*slot.get(at..)?.first_chunk::<4>()?);
    (hop > 0 && word != NO_HOP).then_some(word)
}

/// The shape of a list: a ring of blocks with a batch of entries each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ring {
    /// Length of an entry, 1 to 1024 bytes.
    pub entry_len: u16,
    /// Entries in a list, a multiple of the batch.
    pub entries: u64,
    /// Entries per block, at most 255.
    pub batch: u16,
    /// Blocks end with a trailer. Bare rings, as in the published DTA code, do not tell a reader which entries are new and
    /// complete.
    pub tagged: bool,
}

impl Ring {
    /// Returns the length of a block, bytes: a batch of entries and, in a tagged ring, padding to a multiple of eight and
    /// the trailer.
    #[inline]
    pub const fn block_len(&self) -> u64 {
        let data = self.batch as u64 * self.entry_len as u64;
        if self.tagged {
            data.next_multiple_of(8) + BLOCK_TRAILER_LEN as u64
        } else {
            data
        }
    }

    /// Returns the number of blocks in a list.
    #[inline]
    pub const fn blocks(&self) -> u64 {
        if self.batch == 0 {
            0
        } else {
            self.entries / self.batch as u64
        }
    }

    /// Returns the length of a list, bytes.
    #[inline]
    pub const fn list_len(&self) -> u64 {
        self.blocks() * self.block_len()
    }

    /// Returns the offset of block `block` in the list with index `list`.
    #[inline]
    pub const fn offset(&self, list: u64, block: u64) -> u64 {
        list * self.list_len() + block * self.block_len()
    }
}

/// The trailer of a tagged block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockTrailer {
    /// Sequence number of the batch, from 1; the largest wraps to 1.
    pub sequence: u32,
    /// Number of entries in the batch, at most the ring's batch size.
    pub count: u16,
    /// Length of an entry, bytes.
    pub entry_len: u16,
}

impl BlockTrailer {
    /// Returns the sequence number after `sequence`. It skips 0, so that unwritten memory does not look like a batch.
    #[inline]
    pub const fn next(sequence: u32) -> u32 {
        if sequence == u32::MAX { 1 } else { sequence + 1 }
    }

    /// Returns by how many batches `sequence` is ahead of `from`; negative if it is behind.
    #[inline]
    pub const fn ahead(sequence: u32, from: u32) -> i64 {
        // The sequence space has 2^32 - 1 numbers, because 0 is skipped.
        let round = u32::MAX as i64;
        let far = (sequence as i64 - from as i64).rem_euclid(round);
        if far > round / 2 { far - round } else { far }
    }

    /// Returns the trailer's first eight bytes, which the CRC covers as well.
    #[inline]
    const fn head(&self) -> [u8; 8] {
        let [a, b, c, d] = self.sequence.to_le_bytes();
        let [e, f] = self.count.to_le_bytes();
        let [g, h] = self.entry_len.to_le_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// Returns the length of the batch's entries, bytes.
    #[inline]
    pub const fn data_len(&self) -> usize {
        self.count as usize * self.entry_len as usize
    }

    /// Writes the trailer at the end of a block that already contains its entries. Returns `false` with nothing written if
    /// the block is too short.
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

    /// Parses a block's trailer and checks the CRC over its entries.
    ///
    /// # Errors
    /// [`Torn`] if the block was never written, is being written, or mixes two batches.
    #[inline]
    pub fn check(block: &[u8]) -> Result<Self, Torn> {
        Self::check_by(block, |entries, head| {
            !crc_32c_update(crc_32c_update(u32::MAX, entries), head)
        })
    }

    /// Like [`check`](Self::check), with the caller's CRC-32C function over the entries followed by the trailer's first
    /// eight bytes.
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

    /// Returns the trailer and its CRC without checking them, or `None` if the block is too short.
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

/// A block does not contain a complete batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Torn;

crate::named! {
    /// The operation that merges two counters of a sketch. The discriminants are the numbers on the wire.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[repr(u8)]
    pub enum MergeOp, name {
        /// Sum modulo the counter width (Count-Min, Count).
        Sum = 0 => "sum",
        /// Maximum of both (HyperLogLog).
        Max = 1 => "max",
        /// Minimum of both counters.
        Min = 2 => "min",
        /// Larger 8-byte bucket, with the hash in the high half and the item in the low half (AROMA).
        Sample = 3 => "sample",
    }
}

impl MergeOp {
    /// Returns the operation with this number, or `None` for an unknown one.
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

/// The shape of a sketch: two buffers, for even and odd epochs, each stored column by column.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Columns {
    /// Number of rows, 1 to 16.
    pub depth: u8,
    /// Number of columns in a row.
    pub columns: u32,
    /// Counter width, 4 or 8 bytes.
    pub width: u8,
}

impl Columns {
    /// Returns the length of a column, bytes.
    #[inline]
    pub const fn column_len(&self) -> u64 {
        self.depth as u64 * self.width as u64
    }

    /// Returns the length of a buffer with its trailer, bytes.
    #[inline]
    pub const fn buffer_len(&self) -> u64 {
        self.columns as u64 * self.column_len() + SKETCH_TRAILER_LEN as u64
    }

    /// Returns the offset of an epoch's buffer.
    #[inline]
    pub const fn buffer(&self, epoch: u16) -> u64 {
        (epoch & 1) as u64 * self.buffer_len()
    }

    /// Returns the offset of a column in an epoch's buffer.
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

/// The trailer of a sketch's buffer. It is written last and completes the epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SketchTrailer {
    /// Epoch of the counters.
    pub epoch: u16,
    /// ID of the sketch.
    pub sketch: u16,
    /// Number of columns written.
    pub columns: u32,
    /// Number of reporters whose columns were merged.
    pub reporters: u32,
}

impl SketchTrailer {
    /// Encodes the trailer as bytes.
    pub const fn emit(&self) -> [u8; SKETCH_TRAILER_LEN] {
        let ([a, b], [c, d]) = (self.epoch.to_le_bytes(), self.sketch.to_le_bytes());
        let ([e, f, g, h], [i, j, k, l]) = (self.columns.to_le_bytes(), self.reporters.to_le_bytes());
        [a, b, c, d, e, f, g, h, i, j, k, l, 0, 0, 0, 0]
    }

    /// Decodes a trailer from bytes.
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

/// Converts counters between the wire's big-endian and memory's little-endian order; `width` is 4 or 8. Leaves an
/// incomplete last counter unchanged.
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
    /// The kind of a sketch, which determines how its counters are read. [`MergeOp`] determines how they are merged.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[repr(u8)]
    pub enum SketchKind, name {
        /// Count-Min: the minimum of a key's counters is an upper bound of its count.
        CountMin = 1 => "count-min",
        /// Count sketch: signed counters, whose median estimates the count.
        Count = 2 => "count",
        /// HyperLogLog: estimates the number of distinct keys.
        HyperLogLog = 3 => "hyperloglog",
        /// AROMA: a uniform sample of distinct packets.
        Aroma = 4 => "aroma",
    }
}

impl SketchKind {
    /// Returns the kind with this number, or `None` for an unknown one.
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

/// The structure of a store, as agreed between collector and translator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Geometry {
    /// A Key-Write store: values by key.
    KeyWrite {
        /// Number of slots, a power of two.
        slots: u64,
        /// Data per slot, 1 to 1024 bytes.
        data_len: u16,
        /// The hash family that selects a key's slots.
        family: Family,
    },
    /// An Append store: lists of entries.
    Append {
        /// Number of lists in the store.
        lists: u32,
        /// ID of the first list; the others have consecutive IDs.
        first_list: u32,
        /// Shape of each list.
        ring: Ring,
    },
    /// A Key-Increment store: counters by key.
    KeyIncrement {
        /// Number of counters, a power of two.
        slots: u64,
        /// The hash family that selects a key's counters.
        family: Family,
    },
    /// A sketch merged from several reporters.
    Sketch {
        /// The kind of sketch, which determines how it is read.
        kind: SketchKind,
        /// Operation that merges two counters.
        op: MergeOp,
        /// Rows, columns and counter width.
        shape: Columns,
    },
    /// A Postcarding store: paths by key.
    Postcarding {
        /// Number of slots, a power of two.
        slots: u64,
        /// Maximum number of hops of a path, 1 to 255.
        hops: u8,
        /// The hash family that selects a key's slots.
        family: Family,
    },
}

/// Returns `rule` as an error unless `good`.
fn ensure(good: bool, rule: BadGeometry) -> Result<(), BadGeometry> {
    if good { Ok(()) } else { Err(rule) }
}

/// The reason why a geometry is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BadGeometry {
    /// The number of slots is not a power of two up to [`MAX_SLOTS`].
    Slots,
    /// Data in a slot is not 1 to 1024 bytes.
    DataLength,
    /// There is no list, or list IDs exceed 32 bits.
    Lists,
    /// An entry is not 1 to 1024 bytes.
    EntryLength,
    /// The batch is not 1 to 255, or the list's entries are not a multiple of it.
    Batch,
    /// Depth is not 1 to 16, there are no columns, or the width is not 4 or 8 (8 for samples).
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
    /// Returns the kind of store as a word.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::KeyWrite { .. } => "key-write",
            Self::Append { .. } => "append",
            Self::KeyIncrement { .. } => "key-increment",
            Self::Sketch { .. } => "sketch",
            Self::Postcarding { .. } => "postcarding",
        }
    }

    /// Validates the geometry.
    ///
    /// # Errors
    /// The first rule that is violated.
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

    /// Returns the length of the region's body in bytes, for a [validated](Self::check) geometry.
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

    /// The example block `dta1_blk` of `docs/reference/wire-formats.md`, section 5.9.
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
        // Short data are padded with zeros; nothing is written after the slot.
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
            // The last four bytes are reserved, so the check does not cover them.
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
