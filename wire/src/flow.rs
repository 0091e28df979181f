//! The flow key: an IPv4 or IPv6 5-tuple, or a flow ID alone, with its hashes and its text form.

use crate::crc::CRC_32C;
use crate::siphash::siphash_2_4;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr;

/// Prefix of the text form of a flow ID.
const ID_PREFIX: &str = "flow-id:";
/// The key of [`FlowKey::id`]: `hopwise flow id.` as two little-endian words. It never changes, so that ids stay the same.
const ID_KEY: [u64; 2] = [u64::from_le_bytes(*b"hopwise "), u64::from_le_bytes(*b"flow id.")];

/// A flow's 5-tuple. IPv4 addresses are stored as IPv4-mapped IPv6 addresses (`::ffff:a.b.c.d`) without the `V6` bit.
///
/// Ports are absent (zero, without the `PORTS` bit) if the packet was cut before them, is a fragment, or has a protocol
/// without ports.
///
/// A key may also be a flow ID alone ([`FlowKey::of_id`]), as in postcards and aggregates that do not contain the packet.
/// It then has no addresses, ports or protocol, and is printed as `flow-id:0x0000f10a`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(C)]
pub struct FlowKey {
    src: [u8; 16],
    dst: [u8; 16],
    src_port: u16,
    dst_port: u16,
    proto: u8,
    kind: u8,
}

impl FlowKey {
    const V6: u8 = 1;
    const PORTS: u8 = 2;
    const ID: u8 = 4;

    /// Creates a flow of which only the flow ID is known.
    #[inline]
    pub fn of_id(id: u32) -> Self {
        let src = u128::from(id).to_be_bytes();
        Self {
            src,
            dst: [0; 16],
            src_port: 0,
            dst_port: 0,
            proto: 0,
            kind: Self::ID,
        }
    }

    /// Returns the flow ID if nothing else is known. Such a flow has no addresses, so [`FlowKey::src`] and [`FlowKey::dst`]
    /// are meaningless.
    #[inline]
    pub fn known_id(&self) -> Option<u32> {
        (self.kind & Self::ID != 0).then_some(u128::from_be_bytes(self.src) as u32)
    }

    /// Creates a flow between two addresses. If their families differ, both are treated as IPv6.
    pub fn new(src: IpAddr, dst: IpAddr, ports: Option<(u16, u16)>, proto: u8) -> Self {
        match (src, dst) {
            (IpAddr::V4(s), IpAddr::V4(d)) => Self::v4(s.octets(), d.octets(), ports, proto),
            _ => Self::v6(widen(src), widen(dst), ports, proto),
        }
    }

    /// Creates an IPv4 flow; `ports` are source and destination port.
    #[inline]
    pub fn v4(src: [u8; 4], dst: [u8; 4], ports: Option<(u16, u16)>, proto: u8) -> Self {
        Self::v4_words(u32::from_be_bytes(src), u32::from_be_bytes(dst), ports, proto)
    }

    /// Creates an IPv4 flow from addresses as integers.
    #[inline]
    pub(crate) fn v4_words(src: u32, dst: u32, ports: Option<(u16, u16)>, proto: u8) -> Self {
        // Built from whole words, so that a later wide load does not stall on narrow stores (store forwarding).
        Self::v6(mapped(src), mapped(dst), ports, proto).with_kind_cleared(Self::V6)
    }

    /// Creates an IPv6 flow; `ports` are source and destination port.
    #[inline]
    pub fn v6(src: [u8; 16], dst: [u8; 16], ports: Option<(u16, u16)>, proto: u8) -> Self {
        let (src_port, dst_port) = ports.unwrap_or((0, 0));
        let kind = Self::V6 | if ports.is_some() { Self::PORTS } else { 0 };
        Self {
            src,
            dst,
            src_port,
            dst_port,
            proto,
            kind,
        }
    }

    #[inline]
    fn with_kind_cleared(mut self, bit: u8) -> Self {
        self.kind &= !bit;
        self
    }

    /// Returns the source IP address.
    pub fn src(&self) -> IpAddr {
        self.address(&self.src)
    }

    /// Returns the destination IP address.
    pub fn dst(&self) -> IpAddr {
        self.address(&self.dst)
    }

    /// Returns the source address as 16 bytes, with IPv4 mapped into IPv6.
    pub fn src_octets(&self) -> &[u8; 16] {
        &self.src
    }

    /// Returns the destination address as 16 bytes, with IPv4 mapped into IPv6.
    pub fn dst_octets(&self) -> &[u8; 16] {
        &self.dst
    }

    /// Returns the source port, or `None` if ports are absent.
    pub fn src_port(&self) -> Option<u16> {
        self.ports().map(|(src_port, _)| src_port)
    }

    /// Returns the destination port, or `None` if ports are absent.
    pub fn dst_port(&self) -> Option<u16> {
        self.ports().map(|(_, dst_port)| dst_port)
    }

    /// Returns source and destination port, or `None` if they are absent.
    pub fn ports(&self) -> Option<(u16, u16)> {
        (self.kind & Self::PORTS != 0).then_some((self.src_port, self.dst_port))
    }

    /// Returns the IP protocol number.
    pub fn proto(&self) -> u8 {
        self.proto
    }

    /// Returns whether this is an IPv6 flow.
    pub fn is_v6(&self) -> bool {
        self.kind & Self::V6 != 0
    }

    /// Compares like `==`, but without a branch per field, for callers where keys are nearly always equal.
    #[inline(always)]
    pub fn is(&self, other: &Self) -> bool {
        let src = u128::from_ne_bytes(self.src) ^ u128::from_ne_bytes(other.src);
        let dst = u128::from_ne_bytes(self.dst) ^ u128::from_ne_bytes(other.dst);
        src | dst == 0 && self.tail() == other.tail()
    }

    /// Packs all fields except the addresses into a word, in little-endian memory order.
    #[inline(always)]
    fn tail(&self) -> u64 {
        u64::from(self.src_port)
            | u64::from(self.dst_port) << 16
            | u64::from(self.proto) << 32
            | u64::from(self.kind) << 40
    }

    /// Computes a 64-bit hash with `seed`. It is not cryptographic; a secret seed keeps senders from filling one hash
    /// bucket on purpose.
    #[inline]
    pub fn hash(&self, seed: u64) -> u64 {
        let tail = u64::from(self.src_port) << 32
            | u64::from(self.dst_port) << 16
            | u64::from(self.proto) << 8
            | u64::from(self.kind);
        // Each factor depends on the seed: a sender who could make one 0 would erase what the hash has read so far.
        let other = seed.rotate_left(23);
        let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
        if self.is_v6() {
            let s = halves(&self.src);
            let d = halves(&self.dst);
            state = fold(state ^ s.0, other ^ 0xa076_1d64_78bd_642f ^ d.0);
            state = fold(state ^ s.1, other ^ 0xe703_7ed1_a0b4_28db ^ d.1);
        } else {
            state = fold(
                state ^ halves(&self.src).1,
                other ^ 0xa076_1d64_78bd_642f ^ halves(&self.dst).1,
            );
        }
        fold(state ^ tail, other ^ 0x8ebc_6af0_9c88_c6e3)
    }

    /// Returns the flow's stable ID: the same number in every process, run and file. It is the SipHash-2-4, under the key
    /// `hopwise flow id.`, of source and destination (4 bytes each for IPv4, 16 for IPv6), ports (0 if absent) and protocol,
    /// in network byte order, and a byte with bit 0 for IPv6, bit 1 for ports, and bit 2 for a flow ID alone, which takes
    /// the place of an IPv4 source.
    ///
    /// The key is public: a host can compute two flows with one ID in some 2^32 steps, and one with the ID of another host's
    /// flow in 2^64. So code that finds a flow by its ID looks whether several have it.
    pub fn id(&self) -> u64 {
        let ports = u64::from(self.src_port) << 16 | u64::from(self.dst_port);
        let tail = ports << 32 | u64::from(self.proto) << 24 | u64::from(self.kind) << 16;
        let s = halves(&self.src);
        let d = halves(&self.dst);
        if self.is_v6() {
            siphash_2_4(
                ID_KEY,
                [
                    s.0.swap_bytes(),
                    s.1.swap_bytes(),
                    d.0.swap_bytes(),
                    d.1.swap_bytes(),
                    (tail | 38).swap_bytes(),
                ],
            )
        } else {
            let addresses = s.1 << 32 | d.1 & 0xffff_ffff;
            siphash_2_4(ID_KEY, [addresses.swap_bytes(), (tail | 14).swap_bytes()])
        }
    }

    /// Returns the default flow ID of postcards: the CRC-32C of the canonical 5-tuple (source, destination, ports,
    /// protocol; 13 bytes for IPv4, 37 for IPv6). Absent ports count as 0.
    #[inline]
    pub fn flow_id(&self) -> u32 {
        if let Some(id) = self.known_id() {
            return id;
        }
        let src = u128::from_be_bytes(self.src);
        let dst = u128::from_be_bytes(self.dst);
        if self.is_v6() {
            Self::flow_id_v6(src, dst, self.src_port, self.dst_port, self.proto)
        } else {
            Self::flow_id_v4(src as u32, dst as u32, self.src_port, self.dst_port, self.proto)
        }
    }

    /// Returns the flow ID of an IPv4 flow without building a key.
    #[inline]
    pub fn flow_id_v4(src: u32, dst: u32, src_port: u16, dst_port: u16, proto: u8) -> u32 {
        let ports = u32::from(src_port) << 16 | u32::from(dst_port);
        let bytes = u128::from(src) << 96 | u128::from(dst) << 64 | u128::from(ports) << 32;
        // Only the first 13 bytes, up to the protocol, are hashed.
        !crc_32c_of_bytes::<13>(u32::MAX, bytes | u128::from(proto) << 24)
    }

    /// Returns the flow ID of an IPv6 flow without building a key.
    #[inline]
    pub fn flow_id_v6(src: u128, dst: u128, src_port: u16, dst_port: u16, proto: u8) -> u32 {
        let crc = crc_32c_of_bytes::<16>(crc_32c_of_bytes::<16>(u32::MAX, src), dst);
        let ports = u32::from(src_port) << 16 | u32::from(dst_port);
        !crc_32c_of_bytes::<5>(crc, u128::from(ports) << 96 | u128::from(proto) << 88)
    }

    fn address(&self, octets: &[u8; 16]) -> IpAddr {
        if self.is_v6() {
            IpAddr::V6(Ipv6Addr::from(*octets))
        } else {
            IpAddr::V4(Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15]))
        }
    }
}

/// Maps an IPv4 address into IPv6 (`::ffff:a.b.c.d`).
#[inline]
fn mapped(address: u32) -> [u8; 16] {
    (0xffff_0000_0000 | u128::from(address)).to_be_bytes()
}

fn widen(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

#[inline]
fn halves(octets: &[u8; 16]) -> (u64, u64) {
    let wide = u128::from_be_bytes(*octets);
    ((wide >> 64) as u64, wide as u64)
}

/// Computes the CRC-32C of eight big-endian bytes. Switches use it to find the register of a node (high half) and flow (low
/// half).
#[inline]
pub fn crc_32c_of(key: u64) -> u32 {
    !crc_32c_of_bytes::<8>(u32::MAX, u128::from(key) << 64)
}

/// Continues a CRC-32C over the first `LEN` (4 to 16) big-endian bytes of a number, with independent lookups.
#[inline(always)]
fn crc_32c_of_bytes<const LEN: usize>(crc: u32, bytes: u128) -> u32 {
    let word = bytes.swap_bytes() ^ u128::from(crc);
    let low = word as u64;
    let high = (word >> 64) as u64;
    let mut crc = 0;
    let mut at = 0;
    while at < LEN {
        let byte = if at < 8 {
            low >> (at * 8)
        } else {
            high >> (at % 8 * 8)
        };
        crc ^= CRC_32C[LEN - 1 - at][(byte & 0xff) as usize];
        at += 1;
    }
    crc
}

/// Multiplies to 128 bits and XORs the halves, so that every input bit can affect every output bit.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    (wide >> 64) as u64 ^ wide as u64
}

/// Prints `10.0.0.1:5000>10.0.0.2:80/17` or `[2001:db8::1]:1>[2001:db8::2]:2/6`; without ports `10.0.0.1>10.0.0.2/1`; a
/// flow ID alone as `flow-id:0x0000f10a`.
impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(id) = self.known_id() {
            return write!(f, "{ID_PREFIX}{id:#010x}");
        }
        match (self.ports(), self.is_v6()) {
            (Some((s, d)), true) => write!(f, "[{}]:{s}>[{}]:{d}/{}", self.src(), self.dst(), self.proto),
            (Some((s, d)), false) => write!(f, "{}:{s}>{}:{d}/{}", self.src(), self.dst(), self.proto),
            (None, _) => write!(f, "{}>{}/{}", self.src(), self.dst(), self.proto),
        }
    }
}

/// The text does not have the form that [`FlowKey`]'s `Display` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAFlow;

impl fmt::Display for NotAFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "not a flow; write it like 10.0.0.1:5000>10.0.0.2:80/17, [2001:db8::1]:5000>[2001:db8::2]:80/6 or \
             flow-id:0xf10a",
        )
    }
}

impl core::error::Error for NotAFlow {}

/// Parses the form that `Display` prints.
impl FromStr for FlowKey {
    type Err = NotAFlow;

    fn from_str(text: &str) -> Result<Self, NotAFlow> {
        if let Some(id) = text.strip_prefix(ID_PREFIX) {
            let id = match id.strip_prefix("0x") {
                Some(hex) if !hex.starts_with('+') => u32::from_str_radix(hex, 16),
                _ => id.parse(),
            };
            return id.map(Self::of_id).map_err(|_| NotAFlow);
        }
        let (ends, proto) = text.rsplit_once('/').ok_or(NotAFlow)?;
        let (src, dst) = ends.split_once('>').ok_or(NotAFlow)?;
        let proto = proto.parse().map_err(|_| NotAFlow)?;
        let ends: (IpAddr, IpAddr, _) = match (src.parse::<SocketAddr>(), dst.parse::<SocketAddr>()) {
            (Ok(s), Ok(d)) => (s.ip(), d.ip(), Some((s.port(), d.port()))),
            (Err(_), Err(_)) => (
                src.parse().map_err(|_| NotAFlow)?,
                dst.parse().map_err(|_| NotAFlow)?,
                None,
            ),
            _ => return Err(NotAFlow),
        };
        let (src, dst, ports) = ends;
        if src.is_ipv4() == dst.is_ipv4() {
            Ok(Self::new(src, dst, ports, proto))
        } else {
            Err(NotAFlow)
        }
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::ToString;

    use super::*;
    use crate::crc::crc_32c;

    #[test]
    fn a_flow_reads_what_it_writes() {
        for text in [
            "10.0.0.1:5000>10.0.0.2:80/17",
            "[2001:db8::1]:1>[2001:db8::2]:2/6",
            "10.0.0.1>10.0.0.2/1",
            "2001:db8::1>2001:db8::2/58",
            "flow-id:0x0000f10a",
        ] {
            assert_eq!(
                text.parse::<FlowKey>().map(|flow| flow.to_string()),
                Ok(text.to_string())
            );
        }
    }

    #[test]
    fn flow_ids_are_the_catalogues_crc() {
        assert_eq!(crc_32c(b"123456789"), 0xe306_9283, "the catalogue's check");
        let flow = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1234, 80)), 6);
        assert_eq!(flow.flow_id() & 0xf_ffff, 0x9_f9de, "wire-formats 5.6, n = 0");
        // The CRC over the parts of an IPv6 key equals the CRC over its 37 bytes at once.
        let v6 = FlowKey::v6([1; 16], [2; 16], Some((0x0304, 0x0506)), 17);
        let mut key = [0; 37];
        key[..16].fill(1);
        key[16..32].fill(2);
        key[32..].copy_from_slice(&[3, 4, 5, 6, 17]);
        assert_eq!(v6.flow_id(), crc_32c(&key));
        let v4 = FlowKey::v4([1, 2, 3, 4], [0xf5, 6, 7, 8], Some((0x0304, 0xf506)), 0xfe);
        let key = [1, 2, 3, 4, 0xf5, 6, 7, 8, 3, 4, 0xf5, 6, 0xfe];
        assert_eq!(v4.flow_id(), crc_32c(&key));
        assert_eq!(
            crc_32c_of(0x0102_0304_f506_0708),
            crc_32c(&[1, 2, 3, 4, 0xf5, 6, 7, 8])
        );
    }

    /// Two flows that share an ID, found by search.
    const TWINS: [&str; 2] = [
        "10.34.39.143:57873>10.97.196.140:80/17",
        "10.174.201.81:4693>10.241.114.202:80/17",
    ];

    #[test]
    fn ids_never_change() {
        // From a SipHash-2-4 by other authors.
        for (text, id) in [
            (TWINS[0], 0x1876_573b_f03b_a46f),
            (TWINS[1], 0x1876_573b_f03b_a46f),
            ("[2001:db8::1]:1>[2001:db8::2]:2/6", 0xf7a2_d09f_ca08_f624),
            ("10.0.0.1>10.0.0.2/1", 0xb46d_f731_b1f8_8c53),
            ("flow-id:0x0000f10a", 0x2914_b42f_3c75_658e),
        ] {
            assert_eq!(text.parse().map(|flow: FlowKey| flow.id()), Ok(id), "{text}");
        }
        // Hosts choose these so that the hash of an earlier version was the same.
        let of = |text: &str| text.parse().map(|flow: FlowKey| flow.id());
        assert_ne!(
            of("10.0.0.1:5000>10.0.0.2:443/17"),
            of("10.0.0.9:55737>104.169.58.112:43445/17")
        );
    }

    #[test]
    fn no_host_chooses_an_address_that_erases_what_the_hash_has_read() {
        let constants = [
            0xa076_1d64_78bd_642f_u64,
            0xe703_7ed1_a0b4_28db,
            0x8ebc_6af0_9c88_c6e3,
            0x9e37_79b9_7f4a_7c15,
        ];
        for seed in [1, 0x6a09_e667_f3bc_c908, 0x0123_4567_89ab_cdef] {
            for constant in constants {
                for half in [0, 8] {
                    let hashes = [1, 2].map(|first| {
                        let [mut src, mut dst] = [[first; 16], [7; 16]];
                        src[15] = 9;
                        dst[half..half + 8].copy_from_slice(&constant.to_be_bytes());
                        FlowKey::v6(src, dst, Some((4500, 4500)), 17).hash(seed)
                    });
                    assert_ne!(hashes[0], hashes[1], "{seed:x} {constant:x} {half}");
                }
            }
        }
    }

    #[test]
    fn a_flow_id_alone_is_no_address() {
        let key = FlowKey::of_id(0xf10a);
        assert_eq!((key.known_id(), "flow-id:61706".parse()), (Some(0xf10a), Ok(key)));
        let looks_alike = [
            FlowKey::v4([0, 0, 0xf1, 0x0a], [0; 4], None, 0),
            FlowKey::v6(*key.src_octets(), [0; 16], None, 0),
            FlowKey::of_id(0xf10b),
        ];
        for other in looks_alike {
            assert!(
                other != key && !other.is(&key) && other.hash(1) != key.hash(1),
                "{other}"
            );
        }
        for text in [
            "flow-id:",
            "flow-id:0x",
            "flow-id:0x+1",
            "flow-id:-1",
            "flow-id:4294967296",
        ] {
            assert_eq!(text.parse::<FlowKey>(), Err(NotAFlow), "{text}");
        }
    }

    #[test]
    fn an_incomplete_flow_is_refused() {
        for text in [
            "",
            "10.0.0.1>10.0.0.2",
            "10.0.0.1:1>10.0.0.2/6",
            "10.0.0.1>::1/6",
            "10.0.0.1:1>10.0.0.2:2/256",
        ] {
            assert_eq!(text.parse::<FlowKey>(), Err(NotAFlow), "{text}");
        }
    }

    #[test]
    fn is_agrees_with_equality() {
        let of = |src: u32, dst: u32, ports, proto| {
            FlowKey::v4(src.to_be_bytes(), dst.to_be_bytes(), ports, proto)
        };
        let v6 = |last| FlowKey::v6([last; 16], [2; 16], Some((3, 4)), 17);
        // Each key differs from the first in one field.
        let keys = [
            of(1, 2, Some((3, 4)), 17),
            of(9, 2, Some((3, 4)), 17),
            of(1, 9, Some((3, 4)), 17),
            of(1, 2, Some((9, 4)), 17),
            of(1, 2, Some((3, 9)), 17),
            of(1, 2, Some((3, 4)), 6),
            of(1, 2, None, 17),
            of(1, 2, Some((0, 0)), 17),
            v6(1),
            v6(9),
        ];
        for (at, one) in keys.iter().enumerate() {
            let found = (0..keys.len()).filter(|other| keys[*other].is(one));
            assert!(found.eq([at]), "{one}");
        }
    }
}
