//! Helpers for `hopwise bench` and `hopwise experiment`: DTA in one process, generated keys and reports, and filled stores.

pub mod keys;
pub mod packets;
pub mod pipeline;
pub mod reports;
pub mod slots;

use collect_role::datagram::octets;
use collector::Datagram;
use nic::udp::Burst;
use terminal::CliError;

/// Wraps an error of a component under test.
pub fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::new(format!("the component under test: {error}"))
}

/// Wraps the error of a report or frame that could not be encoded.
pub fn unwritten(error: wire::EmitError) -> CliError {
    failed(format!("{error:?}"))
}

/// Passes the datagrams of a burst to `handle`, up to 64 at a time, as the program does.
pub fn each_chunk(burst: &Burst, mut handle: impl FnMut(&[Datagram<'_>])) {
    let mut packets = burst.iter().peekable();
    while packets.peek().is_some() {
        let mut datagrams = [Datagram {
            payload: &[],
            source: [0; 16],
            src_port: 0,
            listener: 0,
            received: 0,
        }; 64];
        let mut count = 0;
        for (slot, packet) in datagrams.iter_mut().zip(&mut packets) {
            *slot = Datagram {
                payload: packet.data,
                source: octets(packet.source.ip()),
                src_port: packet.source.port(),
                listener: 0,
                received: packet.received,
            };
            count += 1;
        }
        handle(&datagrams[..count]);
    }
}

/// Decodes all payloads and reads the node of each hop. Returns the number of reports.
pub fn decode_payloads<'a>(decoder: &mut wire::Decoder, payloads: impl Iterator<Item = &'a [u8]>) -> u64 {
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

/// Returns the available memory in bytes (`MemAvailable`), or 0 if it is unknown.
pub fn available() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) << 10
}

/// Returns the bytes of a store that exceeds every cache: 4 GiB if more than 9 GiB of memory are available, otherwise 256 MiB.
pub fn large() -> u64 {
    if available() > 9 << 30 { 4 << 30 } else { 256 << 20 }
}
