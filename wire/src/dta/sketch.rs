//! The mapping from keys to sketch counters, on which reporters that fill sketches and readers of the merged sketch must
//! agree. Wire format and translator do not depend on it.
//!
//! The CRCs of a key are linear, so on similar keys they do not behave like random functions; HyperLogLog in particular
//! would have a large error. Therefore 64 bits of them are mixed with a nonlinear finalizer, once per row.

use super::hash::Hashes;
use super::layout::SketchKind;

/// Position of a counter in a sketch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cell {
    /// Column of the counter, from 0.
    pub column: u32,
    /// Row of the counter, from 0.
    pub row: u8,
}

/// Returns the hash of a key for row `row`. The high half selects a column; the low half is for [`is_negative`], [`rank`]
/// and [`sampled`].
#[inline]
pub const fn row_hash(hashes: &Hashes, row: u8) -> u64 {
    let state = (hashes.slots[0] as u64) << 32 | hashes.checksum as u64;
    mix(state.wrapping_add((row as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// Returns the column of a hash among `columns`.
#[inline]
pub const fn column(row_hash: u64, columns: u32) -> u32 {
    (((row_hash >> 32) * columns as u64) >> 32) as u32
}

/// Returns whether a Count sketch subtracts the key's counts in this row instead of adding them.
#[inline]
pub const fn is_negative(row_hash: u64) -> bool {
    row_hash & 1 != 0
}

/// Returns the single counter of a key among the `depth · columns` counters of HyperLogLog and AROMA. `row_hash` is the
/// hash for row 0.
#[inline]
pub const fn cell(row_hash: u64, depth: u8, columns: u32) -> Cell {
    let depth = if depth == 0 { 1 } else { depth as u64 };
    let index = ((row_hash as u128 * (depth * columns as u64) as u128) >> 64) as u64;
    Cell {
        column: (index / depth) as u32,
        row: (index % depth) as u8,
    }
}

/// Returns the HyperLogLog rank of a hash, 1 to 33: the number of trailing zeros of its low half plus one. A register keeps
/// the maximum.
#[inline]
pub const fn rank(row_hash: u64) -> u32 {
    (row_hash as u32).trailing_zeros() + 1
}

/// Returns the AROMA bucket of an item. A merge keeps the largest.
#[inline]
pub const fn sampled(row_hash: u64, item: u32) -> u64 {
    row_hash << 32 | item as u64
}

/// Returns whether a key is counted in every row, rather than only in its [`cell`].
#[inline]
pub const fn counts_in_every_row(kind: SketchKind) -> bool {
    matches!(kind, SketchKind::CountMin | SketchKind::Count)
}

/// Mixes a value (SplitMix64 finalizer): each input bit changes about half of the output bits.
const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::dta::hash::hashes;
    use std::vec;

    #[test]
    fn the_cells_of_a_known_key_stay_where_they_are() {
        // The key of the test vector in the wire formats' section 5.6, with checksum 0x280a4fbc; the tests of `hash`
        // check its slot hash for n = 0.
        let key = [10, 0, 0, 1, 10, 0, 0, 2, 0x04, 0xd2, 0, 0x50, 6];
        let hashes = hashes(&key);
        let state = u64::from(hashes.slots[0]) << 32 | 0x280a_4fbc;
        let first = mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        assert_eq!(row_hash(&hashes, 0), first);
        assert_ne!(row_hash(&hashes, 1), first);
        assert_eq!(column(first, 1 << 16), (first >> 48) as u32);
        assert_eq!(cell(first, 1, 1 << 16).column, (first >> 48) as u32);
        assert_eq!(sampled(first, 7), (first & 0xffff_ffff) << 32 | 7);
    }

    #[test]
    fn the_mix_is_splitmix64() {
        // First outputs of Vigna's reference generator for seed 0.
        let next = |n: u64| mix(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert_eq!(
            (next(1), next(2), next(3)),
            (
                0xe220_a839_7b1d_cdaf,
                0x6e78_9e6a_a1b9_65f4,
                0x06c4_5d18_8009_454f
            )
        );
    }

    #[test]
    fn ranks_and_cells_of_keys_in_a_row_are_as_of_random_ones() {
        let mut cells = vec![0_u32; 64];
        let mut ranks = [0_u32; 34];
        for key in 0..64_000_u32 {
            let hash = row_hash(&hashes(&key.to_be_bytes()), 0);
            let Cell { column, row } = cell(hash, 4, 16);
            cells[column as usize * 4 + usize::from(row)] += 1;
            ranks[rank(hash) as usize] += 1;
        }
        assert!(cells.iter().all(|count| (850..1150).contains(count)), "{cells:?}");
        assert!(
            (31_000..33_000).contains(&ranks[1]) && (15_300..16_700).contains(&ranks[2]),
            "{ranks:?}"
        );
        assert_eq!((rank(0), rank(1), rank(8)), (33, 1, 4));
    }

    #[test]
    fn every_number_of_columns_is_handled() {
        for columns in [1, 3, 1000, u32::MAX] {
            assert_eq!(column(u64::MAX, columns), columns - 1);
            assert_eq!(
                cell(u64::MAX, 16, columns),
                Cell {
                    column: columns - 1,
                    row: 15
                }
            );
        }
        assert_eq!(cell(0, 0, 0), Cell { column: 0, row: 0 });
    }
}
