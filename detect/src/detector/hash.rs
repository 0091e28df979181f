//! CRC-32C (Castagnoli) of register keys, with four lookup tables. P4 targets compute the same hash.

use wire::FlowKey;

/// Polynomial 0x1EDC6F41 with its bits reversed.
const REFLECTED: u32 = 0x82f6_3b78;

/// Slicing-by-4 tables: `SLICES[n][byte]` is the contribution of a byte that `n` bytes follow.
const SLICES: [[u32; 256]; 4] = slices();

const fn slices() -> [[u32; 256]; 4] {
    let mut slices = [[0; 256]; 4];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 != 0 { REFLECTED } else { 0 };
            bit += 1;
        }
        slices[0][byte] = crc;
        byte += 1;
    }
    let mut slice = 1;
    while slice < 4 {
        let mut byte = 0;
        while byte < 256 {
            let before = slices[slice - 1][byte];
            slices[slice][byte] = (before >> 8) ^ slices[0][(before & 0xff) as usize];
            byte += 1;
        }
        slice += 1;
    }
    slices
}

/// A CRC-32C under computation.
#[derive(Clone, Copy, Debug)]
pub struct Crc(u32);

impl Crc {
    /// Returns the CRC of no bytes.
    #[inline]
    pub fn new() -> Self {
        Self(u32::MAX)
    }

    /// Appends one byte to the input.
    #[inline]
    #[must_use]
    pub fn byte(self, byte: u8) -> Self {
        Self((self.0 >> 8) ^ SLICES[0][((self.0 ^ u32::from(byte)) & 0xff) as usize])
    }

    /// Appends the four bytes of a number in big-endian order.
    #[inline]
    #[must_use]
    pub fn word(self, word: u32) -> Self {
        let [a, b, c, d] = (self.0 ^ word.swap_bytes()).to_le_bytes().map(usize::from);
        Self(SLICES[3][a] ^ SLICES[2][b] ^ SLICES[1][c] ^ SLICES[0][d])
    }

    /// Appends the eight bytes of a number in big-endian order.
    #[inline]
    #[must_use]
    pub fn long(self, long: u64) -> Self {
        self.word((long >> 32) as u32).word(long as u32)
    }

    /// Returns the checksum of all bytes.
    #[inline]
    pub fn value(self) -> u32 {
        !self.0
    }
}

impl Default for Crc {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the CRC of a flow's 5-tuple (13 bytes for IPv4, 37 for IPv6), whose value is the [flow ID](FlowKey::flow_id) of
/// postcards. If only the flow ID of a flow is known, it takes the place of the source address, and the other fields are 0.
#[inline]
pub fn flow_crc(flow: &FlowKey) -> Crc {
    let id = match flow.known_id() {
        Some(id) => FlowKey::flow_id_v4(id, 0, 0, 0, 0),
        None => flow.flow_id(),
    };
    Crc(!id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogues_check_value() {
        let bytes = b"123456789".iter().fold(Crc::new(), |crc, byte| crc.byte(*byte));
        assert_eq!(bytes.value(), 0xe306_9283);
        let words = Crc::new().word(0x3132_3334).word(0x3536_3738).byte(0x39);
        assert_eq!(words.value(), 0xe306_9283);
        assert_eq!(
            Crc::new().long(0x3132_3334_3536_3738).byte(0x39).value(),
            0xe306_9283
        );
    }

    #[test]
    fn a_flows_checksum_is_of_its_tuple() {
        let by_bytes = |bytes: &[u8]| bytes.iter().fold(Crc::new(), |crc, byte| crc.byte(*byte)).value();
        let flow = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1234, 80)), 6);
        assert_eq!(
            flow_crc(&flow).value(),
            by_bytes(&[10, 0, 0, 1, 10, 0, 0, 2, 4, 210, 0, 80, 6])
        );
        assert_eq!(
            flow_crc(&flow).value() & 0xf_ffff,
            0x9_f9de,
            "wire-formats 5.6, n = 0"
        );
        let flow = FlowKey::new(
            "2001:db8::1".parse().unwrap(),
            "2001:db8::2".parse().unwrap(),
            None,
            58,
        );
        let mut bytes = [0; 37];
        bytes[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        bytes[16..20].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        (bytes[15], bytes[31], bytes[36]) = (1, 2, 58);
        assert_eq!(flow_crc(&flow).value(), by_bytes(&bytes));
        let mut unknown = [0; 13];
        unknown[2..4].copy_from_slice(&[0xf1, 0x0a]);
        assert_eq!(flow_crc(&FlowKey::of_id(0xf10a)).value(), by_bytes(&unknown));
    }
}
