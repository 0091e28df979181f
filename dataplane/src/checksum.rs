//! The Internet checksum, changed by what changes (RFC 1624), so that a packet that came in broken goes out broken.

/// One's complement sum of the 16-bit words of `bytes`; an odd last byte is padded with zero.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2);
    let odd = words.remainder().first().map_or(0, |&byte| u64::from(byte) << 8);
    fold(words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u64>() + odd)
}

/// The checksum of data whose words' sum changes from `old` to `new`.
pub(crate) fn adjust(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

/// One's complement sum of two sums.
pub(crate) fn add(a: u16, b: u16) -> u16 {
    fold(u64::from(a) + u64::from(b))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_gives_what_a_full_computation_gives() {
        let data: Vec<u8> = (0..40u8).map(|byte| byte.wrapping_mul(37)).collect();
        let mut changed = data.clone();
        changed[6..10].copy_from_slice(&[0xde, 0xad, 0xbe, 0xef]);
        let adjusted = adjust(!sum(&data), sum(&data[6..10]), sum(&changed[6..10]));
        assert_eq!(adjusted, !sum(&changed));
        assert_eq!(sum(&[0x12, 0x34, 0x56]), 0x1234 + 0x5600);
        assert_eq!(add(0xffff, 0x0001), 0x0001);
    }
}
