//! `hopwise lab capture`: records a link's packets, from a packet socket in the namespace, in a pcap file with ns timestamps.

use std::path::Path;
use std::time::{Duration, Instant};

use nic::capture::{LinkType, Writer};
use nic::sniff::Frames;

use super::remote::Lab;
use terminal::CliError;

/// Maximum time of one wait for a packet, ms: bounds how late the capture ends.
const STEP_MS: u32 = 100;
/// Maximum captured length of a frame, bytes: a jumbo frame and its Ethernet header.
const MAX_LEN: usize = 9_216 + 14;

/// Writes the packets at the first end of a link to a pcap file, until `span` has passed or `limit` packets are captured.
/// Returns (packets captured, packets that the kernel dropped).
///
/// # Errors
/// There is no such link, or the file cannot be written.
pub(crate) fn capture(
    lab: &Lab,
    link: &str,
    path: &Path,
    span: Duration,
    limit: Option<u64>,
) -> Result<(u64, u64), CliError> {
    let index = lab.topology.find_link(link)?;
    let link = &lab.topology.links[index];
    let mut writer = Writer::create(path, LinkType::Ethernet).map_err(|error| cannot_write(path, error))?;
    let inside = lab.namespace(lab.topology.name_of(link.ends[0]));
    let opened = nic::netns::within(&inside, || Frames::open(&link.interfaces[0]));
    let capture_failed =
        |error: nic::Error| CliError::new(format!("cannot capture at {}: {error}", link.interfaces[0]));
    let mut frames = opened.map_err(capture_failed)?.map_err(capture_failed)?;
    let start = Instant::now();
    let mut count = 0;
    let mut buffer = vec![0; MAX_LEN];
    while start.elapsed() < span && limit.is_none_or(|limit| count < limit) {
        let Some(frame) = frames.next(&mut buffer, STEP_MS).map_err(capture_failed)? else {
            continue;
        };
        writer
            .write_cut(frame.received, frame.bytes, frame.length as u32)
            .map_err(|error| cannot_write(path, error))?;
        count += 1;
    }
    writer.finish().map_err(|error| cannot_write(path, error))?;
    Ok((count, frames.lost()))
}

fn cannot_write(path: &Path, error: impl std::fmt::Display) -> CliError {
    CliError::new(format!(
        "{}: {error}; check the path and the free space",
        path.display()
    ))
}
