//! IPv4 and IPv6 address prefixes, as in thresholds, rules and filters.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The IPv4-mapped addresses, `::ffff:0:0/96`.
const MAPPED: u128 = 0xffff_0000_0000;
const MAPPED_BITS: u8 = 96;

/// An address prefix: `10.0.0.0/8`, `2001:db8::/32`, or a single address. IPv4 and IPv6 prefixes never contain addresses of
/// the other family; an IPv4-mapped IPv6 address (`::ffff:a.b.c.d`) counts as IPv4, as in [`wire::FlowKey`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Prefix {
    /// First address; IPv4 is mapped into IPv6.
    network: u128,
    mask: u128,
    v6: bool,
}

impl Prefix {
    /// Creates the prefix of the first `length` bits of `address`.
    ///
    /// # Errors
    /// [`PrefixError`] if `length` exceeds the address, or if bits beyond it are set.
    pub fn new(address: IpAddr, length: u8) -> Result<Self, PrefixError> {
        let address = address.to_canonical();
        let width = if address.is_ipv6() { 128 } else { 32 };
        if length > width {
            return Err(PrefixError::TooLong { address, length });
        }
        let bits = wide(address);
        let mask = mask(length + (128 - width));
        if bits & !mask != 0 {
            return Err(PrefixError::HostBits {
                length,
                network: narrow(bits & mask),
            });
        }
        Ok(Self {
            network: bits,
            mask,
            v6: address.is_ipv6(),
        })
    }

    /// Returns the first address of the prefix.
    pub fn network(&self) -> IpAddr {
        narrow(self.network)
    }

    /// Returns the prefix length in bits: at most 32 for IPv4, 128 for IPv6.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a prefix contains at least one address"
    )]
    pub fn len(&self) -> u8 {
        let bits = self.mask.leading_ones() as u8;
        if self.v6 { bits } else { bits - MAPPED_BITS }
    }

    /// Returns whether it is an IPv6 prefix.
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    /// Returns whether the prefix contains `address`.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.contains_bits(wide(address))
    }

    /// Returns whether the prefix contains an address given as 16 bytes, with IPv4 mapped into IPv6.
    #[inline]
    pub fn contains_octets(&self, address: &[u8; 16]) -> bool {
        self.contains_bits(u128::from_be_bytes(*address))
    }

    /// Returns the longer of both prefixes if the other contains it; `None` if they are disjoint.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let (long, short) = if self.mask >= other.mask {
            (self, other)
        } else {
            (other, self)
        };
        short
            .contains_bits(long.network)
            .then_some(*long)
            .filter(|_| self.v6 == other.v6)
    }

    #[inline]
    fn contains_bits(&self, bits: u128) -> bool {
        // An IPv4 prefix has the mapped bits in its mask. A short IPv6 prefix such as `::/0` would include mapped
        // addresses.
        (bits ^ self.network) & self.mask == 0 && !(self.v6 && is_mapped(bits))
    }
}

#[inline]
fn is_mapped(bits: u128) -> bool {
    bits >> 32 == MAPPED >> 32
}

fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => MAPPED | u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

fn narrow(bits: u128) -> IpAddr {
    if is_mapped(bits) {
        IpAddr::V4(Ipv4Addr::from(bits as u32))
    } else {
        IpAddr::V6(Ipv6Addr::from(bits))
    }
}

fn mask(length: u8) -> u128 {
    if length == 0 {
        0
    } else {
        u128::MAX << (128 - length)
    }
}

impl From<IpAddr> for Prefix {
    /// Converts an address to the prefix that contains only this address.
    fn from(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self {
            network: wide(address),
            mask: u128::MAX,
            v6: address.is_ipv6(),
        }
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = text.split_once('/').unzip();
        // `u8::from_str` accepts a plus sign, which is invalid in a prefix length.
        let length = length.map(|length| length.parse::<u8>().ok().filter(|_| !length.starts_with('+')));
        match (address.unwrap_or(text).parse::<IpAddr>(), length) {
            (Ok(address), None) => Ok(Self::from(address)),
            (Ok(address), Some(Some(length))) => Self::new(address, length),
            _ => Err(PrefixError::Malformed {
                text: text.to_owned(),
            }),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network(), self.len())
    }
}

/// The reason why a prefix is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PrefixError {
    /// The text is not `ADDRESS` or `ADDRESS/LENGTH`.
    Malformed {
        /// The text that was rejected.
        text: String,
    },
    /// The length exceeds the address.
    TooLong {
        /// The address of the prefix.
        address: IpAddr,
        /// The length that was given.
        length: u8,
    },
    /// Bits beyond the length are set.
    HostBits {
        /// The length that was given.
        length: u8,
        /// The prefix that was probably intended.
        network: IpAddr,
    },
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { text } => {
                write!(
                    f,
                    "`{text}` is not a prefix: write an address, or an address and a length, as in 10.0.0.0/8"
                )
            }
            Self::TooLong { address, length } => {
                let most = if address.is_ipv6() { 128 } else { 32 };
                write!(f, "{address}/{length} is too long: at most /{most}")
            }
            Self::HostBits { length, network } => {
                write!(
                    f,
                    "the address has bits set beyond /{length}: write {network}/{length}"
                )
            }
        }
    }
}

impl std::error::Error for PrefixError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn values_convert_to_text_and_back() {
        for text in [
            "10.0.0.0/8",
            "0.0.0.0/0",
            "10.1.2.3/32",
            "::/0",
            "2001:db8::/32",
            "2001:db8::1/128",
        ] {
            assert_eq!(prefix(text).to_string(), text);
        }
        assert_eq!(prefix("10.1.2.3").to_string(), "10.1.2.3/32");
        assert_eq!(prefix("::1").to_string(), "::1/128");
    }

    #[test]
    fn prefix_containment_compares_bits_and_family() {
        let inside = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/9", "10.128.0.0", false),
            ("0.0.0.0/0", "255.1.2.3", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
            ("::/0", "10.0.0.1", false),
            ("10.0.0.1", "::ffff:10.0.0.1", true),
            ("2001:db8::/32", "2001:db8:ffff::", true),
            ("2001:db8::/32", "2001:db9::", false),
        ];
        for (p, a, expected) in inside {
            assert_eq!(prefix(p).contains(address(a)), expected, "{p} contains {a}");
            assert_eq!(
                prefix(p).contains_octets(&wide(address(a)).to_be_bytes()),
                expected,
                "{p} contains {a}"
            );
        }
    }

    #[test]
    fn intersection_is_the_longer_of_nested_prefixes() {
        let both = |a: &str, b: &str| prefix(a).intersection(&prefix(b)).map(|p| p.to_string());
        assert_eq!(both("10.0.0.0/8", "10.1.0.0/16").as_deref(), Some("10.1.0.0/16"));
        assert_eq!(both("10.1.0.0/16", "10.0.0.0/8").as_deref(), Some("10.1.0.0/16"));
        assert_eq!(both("10.1.0.0/16", "10.2.0.0/16"), None);
        assert_eq!(both("::/0", "10.0.0.0/8"), None);
        assert_eq!(both("0.0.0.0/0", "::/0"), None);
        assert_eq!(both("::/0", "2001:db8::/32").as_deref(), Some("2001:db8::/32"));
    }

    #[test]
    fn refusals_say_what_to_write() {
        let refused = |text: &str| text.parse::<Prefix>().unwrap_err().to_string();
        assert_eq!(
            refused("10.1.2.3/8"),
            "the address has bits set beyond /8: write 10.0.0.0/8"
        );
        assert_eq!(refused("10.0.0.0/33"), "10.0.0.0/33 is too long: at most /32");
        assert_eq!(refused("::/129"), "::/129 is too long: at most /128");
        for text in [
            "",
            "/8",
            "10.0.0/8",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/8/8",
            "10.0.0.0/256",
            "host/8",
        ] {
            assert!(
                refused(text).starts_with(&format!("`{text}` is not a prefix")),
                "{text}"
            );
        }
    }
}
