//! Generates keys for DTA stores: random ones, and sequential ones as traffic generators and networks produce them.

/// Maximum length of a key, bytes.
const MAX_LEN: usize = 13;

wire::named! {
    /// The structure of the keys of a store.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Kind, name {
        /// IPv4 5-tuples of random bytes.
        RandomTuples => "random 5-tuples",
        /// Keys of four random bytes.
        RandomWords => "random words",
        /// Keys of four bytes that count up, as the generators of the DTA artifact send them.
        SequentialWords => "sequential words",
        /// IPv4 5-tuples of one client network and one server, with addresses and ports counting up.
        SequentialTuples => "sequential 5-tuples",
    }
}

/// A key of a store.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    bytes: [u8; MAX_LEN],
    len: u8,
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A set of unique keys, addressed by number.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// The structure of the keys.
    pub kind: Kind,
    /// Selects other random keys, or another start of the sequence.
    pub seed: u64,
}

impl Keys {
    /// Returns the key with this number, which must be below 2^31.
    pub fn key(&self, number: u64) -> Key {
        let mut bytes = [0; MAX_LEN];
        let len = match self.kind {
            Kind::RandomTuples => {
                // The first eight bytes are a bijection of the number, so all keys differ.
                let first = mix(number ^ mix(self.seed));
                bytes[..8].copy_from_slice(&first.to_be_bytes());
                bytes[8..].copy_from_slice(&mix(first ^ 0x5bd1_e995).to_be_bytes()[..5]);
                MAX_LEN
            }
            Kind::RandomWords => {
                bytes[..4].copy_from_slice(&mix_word(number as u32 ^ mix(self.seed) as u32).to_be_bytes());
                4
            }
            Kind::SequentialWords => {
                let begin = (mix(self.seed) as u32) & 0x00ff_0000;
                bytes[..4].copy_from_slice(&(0x0a00_0001 + begin).wrapping_add(number as u32).to_be_bytes());
                4
            }
            Kind::SequentialTuples => {
                // 250 clients of a /24 network; the source port counts up after each round. Port 443 (1, 187) over TCP (6).
                let client = number % 250;
                let port = number / 250;
                let network = mix(self.seed) as u8;
                let server = (port / 28_000) as u8;
                bytes[..8].copy_from_slice(&[10, network, 0, client as u8 + 1, 192, 168, server, 1]);
                bytes[8..10].copy_from_slice(&(32_768 + (port % 28_000) as u16).to_be_bytes());
                bytes[10..13].copy_from_slice(&[1, 187, 6]);
                MAX_LEN
            }
        };
        Key {
            bytes,
            len: len as u8,
        }
    }
}

/// A bijection of 64 bits in which every input bit changes every output bit (SplitMix64).
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// Mixes 32 bits (MurmurHash3's finalizer). Unlike a CRC, it is not linear.
fn mix_word(value: u32) -> u32 {
    let value = (value ^ value >> 16).wrapping_mul(0x85eb_ca6b);
    let value = (value ^ value >> 13).wrapping_mul(0xc2b2_ae35);
    value ^ value >> 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn all_keys_differ() {
        for kind in Kind::ALL {
            let keys = Keys { kind, seed: 3 };
            let set: BTreeSet<Vec<u8>> = (0..100_000)
                .map(|number| keys.key(number).as_ref().to_vec())
                .collect();
            assert_eq!(set.len(), 100_000, "{}", kind.name());
        }
    }
}
