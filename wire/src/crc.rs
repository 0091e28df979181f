//! Table-based CRC-32C (slicing-by-16) and CRC-32. Both are reflected, with all ones as initial value and final XOR unless
//! noted otherwise.

/// Tables of CRC-32C (Castagnoli).
pub(crate) static CRC_32C: Tables = tables(0x82f6_3b78);

/// `tables[n][byte]` is the contribution of a byte that `n` bytes follow, for n up to 15.
pub(crate) type Tables = [[u32; 256]; 16];

/// Computes the tables of a polynomial given in reflected form.
pub(crate) const fn tables(reflected: u32) -> Tables {
    let mut table = [[0; 256]; 16];
    let mut byte = 0;
    while byte < 256 {
        table[0][byte] = byte_of(reflected, byte as u8);
        byte += 1;
    }
    let mut slice = 1;
    while slice < 16 {
        let mut byte = 0;
        while byte < 256 {
            let before = table[slice - 1][byte];
            table[slice][byte] = before >> 8 ^ table[0][(before & 0xff) as usize];
            byte += 1;
        }
        slice += 1;
    }
    table
}

/// Returns the CRC register after one byte, starting from 0.
pub(crate) const fn byte_of(reflected: u32, byte: u8) -> u32 {
    let mut crc = byte as u32;
    let mut bit = 0;
    while bit < 8 {
        crc = crc >> 1 ^ if crc & 1 != 0 { reflected } else { 0 };
        bit += 1;
    }
    crc
}

/// Continues a CRC register, without initial value and final XOR.
#[inline]
pub(crate) fn update(tables: &Tables, crc: u32, bytes: &[u8]) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<16>();
    let mut crc = crc;
    for block in blocks {
        crc = at_once(tables, crc, block);
    }
    if rest.len() >= 4 {
        return at_once(tables, crc, rest);
    }
    for byte in rest {
        crc = crc >> 8 ^ tables[0][((crc ^ u32::from(*byte)) & 0xff) as usize];
    }
    crc
}

/// Continues a CRC over 4 to 16 bytes with independent lookups: the CRC is the XOR of its bytes' contributions.
#[inline(always)]
fn at_once(tables: &Tables, crc: u32, bytes: &[u8]) -> u32 {
    let state = crc.to_le_bytes();
    let (first, rest) = bytes.split_at(4);
    let from_last = tables[..bytes.len()].iter().rev();
    let of_first = from_last.clone();
    let of_rest = from_last.skip(4);
    let rest = rest
        .iter()
        .zip(of_rest)
        .fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)]);
    let first = first.iter().zip(state).zip(of_first);
    first.fold(rest, |sum, ((byte, state), table)| {
        sum ^ table[usize::from(*byte ^ state)]
    })
}

/// Computes the CRC-32C of `bytes`, as iSCSI defines it.
#[inline]
pub fn crc_32c(bytes: &[u8]) -> u32 {
    !crc_32c_update(u32::MAX, bytes)
}

/// Continues a CRC-32C: start with all ones, and invert the final state.
#[inline]
pub fn crc_32c_update(state: u32, bytes: &[u8]) -> u32 {
    update(&CRC_32C, state, bytes)
}

/// A function that continues a CRC-32 as zlib does: start with all ones, and invert the final state.
pub type Crc32 = fn(u32, &[u8]) -> u32;

/// Returns the fastest CRC-32 function for inputs of a given length. The function accepts any length.
pub type ChooseCrc32 = fn(usize) -> Crc32;

/// Returns this crate's [`Crc32`], whatever the length.
pub fn choose_crc_32(_len: usize) -> Crc32 {
    crc_32_update
}

/// Continues a CRC-32 with the instructions that `crc32fast` detects. Callers with a faster implementation pass theirs
/// instead.
#[inline]
pub fn crc_32_update(state: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!state);
    hasher.update(bytes);
    !hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the CRC-32C bit by bit, directly from its definition.
    fn slowly(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |crc, byte| {
            crc >> 8 ^ byte_of(0x82f6_3b78, crc as u8 ^ byte)
        })
    }

    #[test]
    fn every_length_is_the_definitions() {
        assert_eq!(crc_32c(b"123456789"), 0xe306_9283, "the catalogue's check");
        let bytes: [u8; 100] = core::array::from_fn(|i| (i * 37 + 11) as u8);
        for len in 0..bytes.len() {
            assert_eq!(crc_32c(&bytes[..len]), slowly(&bytes[..len]), "{len}");
            let (front, back) = bytes[..len].split_at(len / 3);
            assert_eq!(
                !crc_32c_update(crc_32c_update(u32::MAX, front), back),
                slowly(&bytes[..len]),
                "{len}"
            );
        }
    }
}
