//! Shared by `hopwise bench` and `hopwise experiment`: translator and responder in one process, generated keys and reports, and
//! filled stores.

pub(crate) mod keys;
pub(crate) mod packets;
pub(crate) mod pipeline;
pub(crate) mod reports;
pub(crate) mod slots;

use terminal::CliError;

/// An error of a component under test.
pub(crate) fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::new(format!("the component under test: {error}"))
}

/// A report or frame that could not be written.
pub(crate) fn unwritten(error: wire::EmitError) -> CliError {
    failed(format!("{error:?}"))
}

/// Decodes all payloads and reads the node of each hop. Returns the number of reports.
pub(crate) fn decode_payloads<'a>(
    decoder: &mut wire::Decoder,
    payloads: impl Iterator<Item = &'a [u8]>,
) -> u64 {
    let mut reports = 0;
    let mut nodes = 0_u32;
    for payload in payloads {
        for report in decoder.reports(payload).flatten() {
            reports += 1;
            if let Some(int) = &report.int {
                let records = int.stack.records();
                nodes = records.fold(nodes, |sum, record| {
                    sum.wrapping_add(int.stack.layout.node_id(record))
                });
            }
        }
    }
    std::hint::black_box(nodes);
    reports
}

/// Bytes of available memory.
pub(crate) fn available() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) << 10
}

/// Bytes of a store that exceeds every cache: 4 GiB if twice as much memory is available, otherwise 256 MiB.
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
