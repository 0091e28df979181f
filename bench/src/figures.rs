//! What `hopwise bench` and `hopwise experiment` measure with: the parts of the program joined without a network, keys, and stores
//! that are filled.

pub(crate) mod joined;
pub(crate) mod keys;
pub(crate) mod reports;
pub(crate) mod slots;

use terminal::CliError;

/// Why a part could not be made; the parts' own words.
pub(crate) fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::new(format!("the measured part: {error}"))
}

/// A report or frame of this program that breaks a rule.
pub(crate) fn unwritten(error: wire::Unwritten) -> CliError {
    failed(format!("{error:?}"))
}

/// Bytes of memory that may be had.
pub(crate) fn available() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) << 10
}

/// Bytes of a store that no cache holds: 4 GiB where there is room for it twice, else less.
pub(crate) fn large() -> u64 {
    if available() > 9 << 30 { 4 << 30 } else { 256 << 20 }
}

/// An address as 16 bytes, IPv4 mapped into IPv6.
pub(crate) fn octets(address: std::net::IpAddr) -> [u8; 16] {
    match address {
        std::net::IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        std::net::IpAddr::V6(address) => address.octets(),
    }
}
