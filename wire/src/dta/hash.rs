//! Slot hashes of DTA keys: four slot hashes and a checksum, each a CRC-32 with its own polynomial
//! (`docs/reference/wire-formats.md`, section 5.6), and the single CRC of the published DTA code (*artifact*, section 5.2).
//!
//! A CRC is affine: the CRC of a key is the CRC of as many zero bytes, XORed with a contribution of each half byte that
//! depends on its position. So all CRCs of a key come from one pass of table lookups that do not depend on each other.

use crate::crc::byte_of;
use crate::flow::FlowKey;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum length of a key, bytes.
pub const MAX_KEY: usize = 64;
/// Maximum number of copies of a value, which is the number of slot hashes.
pub const MAX_COPIES: usize = 4;
/// Maximum number of slots or counters in a store.
pub const MAX_SLOTS: u64 = 1 << 31;

/// Reflected polynomials: checksum (IEEE 802.3), then slots 0 (Castagnoli), 1 (CRC-32D), 2 (CRC-32K), 3 (CRC-32Q).
const POLYNOMIALS: [u32; 5] = [0xedb8_8320, 0x82f6_3b78, 0xd419_cc15, 0xeb31_d82e, 0xd582_8281];
/// Contributions of the low and the high half of a byte, indexed by the byte's distance from the key's end.
static HALVES: [[[Halves; 16]; 2]; MAX_KEY] = halves();
/// Contributions to slot hash 3, which is rarely needed.
static LAST_HALVES: [[[u32; 16]; 2]; MAX_KEY] = last_halves();
/// CRCs of zero bytes, by key length.
static ZEROS: [Halves; MAX_KEY + 1] = zeros();
static LAST_ZEROS: [u32; MAX_KEY + 1] = zeros_of(POLYNOMIALS[4]);

/// Checksum and slot hashes 0 to 2.
type Lanes = [u32; 4];
/// Checksum and slot hashes 0 to 2 in pairs, which halves the number of lookups and XORs.
type Halves = [u64; 2];

const fn halves_of(polynomial: u32) -> [[[u32; 16]; 2]; MAX_KEY] {
    let mut table = [[[0; 16]; 2]; MAX_KEY];
    let mut half = 0;
    while half < 32 {
        let value = half % 16;
        let high = half / 16;
        let mut crc = byte_of(polynomial, (value << (high * 4)) as u8);
        let mut at = 0;
        while at < MAX_KEY {
            table[at][high][value] = crc;
            crc = crc >> 8 ^ byte_of(polynomial, crc as u8);
            at += 1;
        }
        half += 1;
    }
    table
}

const fn zeros_of(polynomial: u32) -> [u32; MAX_KEY + 1] {
    let mut table = [0; MAX_KEY + 1];
    let mut crc = u32::MAX;
    let mut len = 0;
    while len <= MAX_KEY {
        table[len] = !crc;
        crc = crc >> 8 ^ byte_of(polynomial, crc as u8);
        len += 1;
    }
    table
}

const fn halves() -> [[[Halves; 16]; 2]; MAX_KEY] {
    let mut table = [[[[0; 2]; 16]; 2]; MAX_KEY];
    let mut lane = 0;
    while lane < 4 {
        let contributions = halves_of(POLYNOMIALS[lane]);
        let mut at = 0;
        while at < MAX_KEY * 32 {
            table[at / 32][at / 16 % 2][at % 16][lane / 2] |=
                (contributions[at / 32][at / 16 % 2][at % 16] as u64) << (lane % 2 * 32);
            at += 1;
        }
        lane += 1;
    }
    table
}

const fn last_halves() -> [[[u32; 16]; 2]; MAX_KEY] {
    halves_of(POLYNOMIALS[4])
}

const fn zeros() -> [Halves; MAX_KEY + 1] {
    let mut table = [[0; 2]; MAX_KEY + 1];
    let mut lane = 0;
    while lane < 4 {
        let crcs = zeros_of(POLYNOMIALS[lane]);
        let mut len = 0;
        while len <= MAX_KEY {
            table[len][lane / 2] |= (crcs[len] as u64) << (lane % 2 * 32);
            len += 1;
        }
        lane += 1;
    }
    table
}

/// The hashes of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hashes {
    /// Slot hashes 0 to 3. A store uses their low bits, see [`slot`].
    pub slots: [u32; MAX_COPIES],
    /// Checksum that identifies the key in a slot.
    pub checksum: u32,
}

/// Computes all hashes of a key (v1). Keys longer than [`MAX_KEY`] cannot be sent; they are hashed too, but slowly.
#[inline]
pub fn hashes(key: &[u8]) -> Hashes {
    let [checksum, a, b, c] = lanes(key);
    Hashes {
        slots: [a, b, c, slot_hash_3(key)],
        checksum,
    }
}

/// Computes the first `N` slot hashes and the checksum. One to three cost the same.
#[inline]
pub fn slots_n<const N: usize>(key: &[u8]) -> ([u32; N], u32) {
    const { assert!(N <= MAX_COPIES, "there are four slot hashes") };
    let [checksum, a, b, c] = lanes(key);
    let d = if N > 3 { slot_hash_3(key) } else { 0 };
    let all = [a, b, c, d];
    (core::array::from_fn(|n| all[n]), checksum)
}

/// Returns a key's bucket in a collector map of 256 buckets: the high byte of its CRC-32K.
#[inline]
pub fn collector_of(key: &[u8]) -> u8 {
    (lanes(key)[3] >> 24) as u8
}

/// Returns the slot of a hash in a store of `slots`, a power of two; 0 if there are no slots.
#[inline]
pub const fn slot(hash: u32, slots: u64) -> u64 {
    hash as u64 & slots.wrapping_sub(1)
}

/// Computes the checksum and slot hashes 0 to 2.
#[inline]
fn lanes(key: &[u8]) -> Lanes {
    // Specialized lengths: 5-tuples (13, 37), an address (4), a node and flow (8).
    match key.len() {
        13 => lanes_of_len::<13>(key),
        4 => lanes_of_len::<4>(key),
        8 => lanes_of_len::<8>(key),
        37 => lanes_of_len::<37>(key),
        _ => lanes_of_any(key),
    }
}

#[inline(always)]
fn lanes_of_len<const LEN: usize>(key: &[u8]) -> Lanes {
    let Some(key) = key.first_chunk::<LEN>() else {
        return [0; 4];
    };
    let mut sum = ZEROS[LEN];
    let mut at = 0;
    while at < LEN {
        sum = add_byte(sum, &HALVES[LEN - 1 - at], key[at]);
        at += 1;
    }
    split_pairs(sum)
}

fn lanes_of_any(key: &[u8]) -> Lanes {
    match ZEROS.get(key.len()) {
        Some(zeros) => {
            let positions = key.iter().rev().zip(&HALVES);
            split_pairs(positions.fold(*zeros, |sum, (byte, table)| add_byte(sum, table, *byte)))
        }
        None => core::array::from_fn(|lane| crc_bytewise(POLYNOMIALS[lane], key)),
    }
}

/// XORs the contribution of a byte at its position.
#[inline(always)]
fn add_byte(sum: Halves, table: &[[Halves; 16]; 2], byte: u8) -> Halves {
    let low = &table[0][usize::from(byte & 15)];
    let high = &table[1][usize::from(byte >> 4)];
    [sum[0] ^ low[0] ^ high[0], sum[1] ^ low[1] ^ high[1]]
}

/// Splits the pairs into the four hash values.
#[inline(always)]
fn split_pairs([low, high]: Halves) -> Lanes {
    [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32]
}

/// Computes slot hash 3.
#[inline]
fn slot_hash_3(key: &[u8]) -> u32 {
    let Some(zeros) = LAST_ZEROS.get(key.len()) else {
        return crc_bytewise(POLYNOMIALS[4], key);
    };
    key.iter()
        .rev()
        .zip(&LAST_HALVES)
        .fold(*zeros, |sum, (byte, table)| {
            sum ^ table[0][usize::from(byte & 15)] ^ table[1][usize::from(byte >> 4)]
        })
}

#[cold]
fn crc_bytewise(polynomial: u32, key: &[u8]) -> u32 {
    !key.iter().fold(u32::MAX, |crc, byte| {
        crc >> 8 ^ byte_of(polynomial, crc as u8 ^ byte)
    })
}

crate::named! {
    /// The hash functions of a store.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub enum Family, name {
        /// Four polynomials for the slots and one for the checksum.
        #[default]
        V1 => "v1",
        /// One CRC for all, as in the published DTA code: over the reversed key, and for slots also the copy's number.
        /// Copies of a key then tend to be overwritten together, so they hardly protect it.
        Artifact => "artifact",
    }
}

impl Family {
    /// Computes the slot hashes and the checksum of a key.
    #[inline]
    pub fn hashes(self, key: &[u8]) -> Hashes {
        match self {
            Self::V1 => hashes(key),
            Self::Artifact => artifact(key),
        }
    }
}

/// Computes the artifact's hashes: `slot_n = CRC(reversed key, n)`, and the checksum without n.
fn artifact(key: &[u8]) -> Hashes {
    let polynomial = POLYNOMIALS[0];
    let state = { key.iter().rev() }.fold(u32::MAX, |crc, byte| crc_step(polynomial, crc, *byte));
    Hashes {
        slots: core::array::from_fn(|n| !crc_step(polynomial, state, n as u8)),
        checksum: !state,
    }
}

fn crc_step(polynomial: u32, crc: u32, byte: u8) -> u32 {
    crc >> 8 ^ byte_of(polynomial, crc as u8 ^ byte)
}

/// The canonical key of a 5-tuple: source, destination, ports, protocol; 13 bytes for IPv4, 37 for IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowBytes {
    bytes: [u8; 37],
    len: u8,
}

impl FlowBytes {
    /// Creates the key of a flow; absent ports count as 0. Returns `None` if only the flow ID is known.
    #[inline]
    pub fn of(flow: &FlowKey) -> Option<Self> {
        if flow.known_id().is_some() {
            return None;
        }
        let addresses = if flow.is_v6() { 16 } else { 4 };
        let mut bytes = [0; 37];
        bytes[..addresses].copy_from_slice(&flow.src_octets()[16 - addresses..]);
        bytes[addresses..2 * addresses].copy_from_slice(&flow.dst_octets()[16 - addresses..]);
        let (src_port, dst_port) = flow.ports().unwrap_or((0, 0));
        let [a, b] = src_port.to_be_bytes();
        let [c, d] = dst_port.to_be_bytes();
        bytes[2 * addresses..2 * addresses + 5].copy_from_slice(&[a, b, c, d, flow.proto()]);
        Some(Self {
            bytes,
            len: (2 * addresses + 5) as u8,
        })
    }

    /// Returns the bytes of the key.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Converts a key of 13 or 37 bytes back to a 5-tuple; `None` for other lengths. Ports that are both 0 count as absent,
/// unless the protocol has ports (TCP, UDP, DCCP, SCTP, UDP-Lite).
pub fn flow_of(key: &[u8]) -> Option<FlowKey> {
    let addresses = match key.len() {
        13 => 4,
        37 => 16,
        _ => return None,
    };
    let (src, rest) = key.split_at(addresses);
    let (dst, rest) = rest.split_at(addresses);
    let &[a, b, c, d, proto] = rest else { return None };
    let ports = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let ports = (ports != (0, 0) || matches!(proto, 6 | 17 | 33 | 132 | 136)).then_some(ports);
    Some(FlowKey::new(address(src)?, address(dst)?, ports, proto))
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    match *octets {
        [a, b, c, d] => Some(Ipv4Addr::new(a, b, c, d).into()),
        _ => octets
            .first_chunk::<16>()
            .map(|octets| Ipv6Addr::from(*octets).into()),
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    /// The key of the test vector in `docs/reference/wire-formats.md`, section 5.6.
    const KEY: [u8; 13] = [10, 0, 0, 1, 10, 0, 0, 2, 0x04, 0xd2, 0x00, 0x50, 6];

    #[test]
    fn the_catalogues_checks() {
        let Hashes { slots, checksum } = hashes(b"123456789");
        assert_eq!(checksum, 0xcbf4_3926);
        assert_eq!(slots, [0xe306_9283, 0x8731_5576, 0x2d3d_d0ae, 0xa9cc_8179]);
    }

    #[test]
    fn the_vector_of_section_5_6() {
        let Hashes { slots, checksum } = hashes(&KEY);
        assert_eq!(checksum, 0x280a_4fbc);
        assert_eq!(
            slots.map(|hash| slot(hash, 1 << 20)),
            [0x9_f9de, 0xd_f141, 0xd_c761, 0xb_c046]
        );
        assert_eq!(collector_of(&KEY), (slots[2] >> 24) as u8);
    }

    #[test]
    fn every_length_is_the_definitions() {
        let bytes: Vec<u8> = (0..100).map(|i: u32| (i * 73 + 5) as u8).collect();
        for len in 0..bytes.len() {
            let key = &bytes[..len];
            let all = hashes(key);
            let slow = POLYNOMIALS.map(|polynomial| crc_bytewise(polynomial, key));
            assert_eq!(
                (all.checksum, all.slots.as_slice()),
                (slow[0], &slow[1..]),
                "{len}"
            );
            assert_eq!(slots_n::<1>(key), ([slow[1]], slow[0]));
            assert_eq!(slots_n::<2>(key), ([slow[1], slow[2]], slow[0]));
            assert_eq!(slots_n::<3>(key), ([slow[1], slow[2], slow[3]], slow[0]));
            assert_eq!(slots_n::<4>(key), (all.slots, slow[0]));
        }
    }

    #[test]
    fn the_artifacts_hashes_are_those_of_section_5_2() {
        let Hashes { slots, checksum } = Family::Artifact.hashes(&[10, 0, 0, 1]);
        assert_eq!(checksum, 0x792d_5167);
        assert_eq!([slots[0], slots[1]].map(|hash| slot(hash, 65536)), [13863, 1713]);
        // The artifact's defect: the slots of a key's copies differ by the same bits (XOR) for every key.
        let other = Family::Artifact.hashes(&[192, 168, 7, 9]).slots;
        let low = |all: [u32; 4]| [1, 2, 3].map(|n| (all[0] ^ all[n]) & 0xffff);
        assert_eq!(
            (low(slots), low(other)),
            ([0x3096, 0x612c, 0x51ba], [0x3096, 0x612c, 0x51ba])
        );
    }

    #[test]
    fn slots_of_a_store_stay_inside_it() {
        assert_eq!(slot(u32::MAX, MAX_SLOTS), MAX_SLOTS - 1);
        assert_eq!((slot(u32::MAX, 1), slot(7, 8)), (0, 7));
    }

    #[test]
    fn a_flow_converts_to_its_key_and_back() {
        let v4 = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1234, 80)), 6);
        let v6 = FlowKey::v6([1; 16], [2; 16], Some((0x0304, 0x0506)), 17);
        let icmp = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], None, 1);
        assert_eq!(FlowBytes::of(&v4).expect("a flow").as_slice(), KEY);
        assert_eq!(
            FlowBytes::of(&v6).expect("a flow").as_slice()[..17],
            [[1; 16].as_slice(), &[2]].concat()
        );
        for flow in [v4, v6, icmp] {
            let key = FlowBytes::of(&flow).expect("a flow");
            assert_eq!(flow_of(key.as_slice()), Some(flow));
            assert_eq!(hashes(key.as_slice()).slots[0], flow.flow_id());
        }
        assert_eq!(FlowBytes::of(&FlowKey::of_id(7)), None);
        assert_eq!((flow_of(&KEY[..12]), flow_of(&[0; 38])), (None, None));
    }

    #[test]
    fn families_have_names() {
        for family in [Family::V1, Family::Artifact] {
            assert_eq!(Family::from_name(family.name()), Some(family));
        }
        assert_eq!(Family::from_name("crc"), None);
    }
}
