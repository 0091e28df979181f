//! `hopwise lab capture`: records a link's packets, from a packet socket in the namespace, in a pcap file with ns timestamps.

use std::path::Path;
use std::time::{Duration, Instant};

use nic::capture::{LinkType, Writer};
use nic::sniff::Frames;

use super::remote::Lab;
use terminal::CliError;

/// Maximum time of one wait for a packet, ms: bounds how late the capture ends.
const WAIT_MS: u32 = 100;
/// Maximum captured length of a frame, bytes: a jumbo frame and its Ethernet header.
const MAX_FRAME_LEN: usize = 9_216 + 14;

/// Number of packets of a capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CaptureCounts {
    /// Packets written to the file.
    pub(crate) captured: u64,
    /// Packets that the kernel dropped.
    pub(crate) dropped: u64,
}

/// Writes the packets at the first end of a link to a pcap file, until `span` has passed or `limit` packets are captured.
///
/// # Errors
/// There is no such link, or the file cannot be written.
pub(crate) fn capture(
    lab: &Lab,
    link: &str,
    path: &Path,
    span: Duration,
    limit: Option<u64>,
) -> Result<CaptureCounts, CliError> {
    let index = lab.topology.find_link(link)?;
    let link = &lab.topology.links[index];
    let mut writer = Writer::create(path, LinkType::Ethernet).map_err(|error| write_error(path, error))?;
    let namespace = lab.namespace(lab.topology.node_name(link.ends[0]));
    let opened = nic::netns::within(&namespace, || Frames::open(&link.interfaces[0]));
    let capture_error =
        |error: nic::Error| CliError::new(format!("cannot capture at {}: {error}", link.interfaces[0]));
    let mut frames = opened.map_err(capture_error)?.map_err(capture_error)?;
    let start = Instant::now();
    let mut captured = 0;
    let mut buffer = vec![0; MAX_FRAME_LEN];
    while start.elapsed() < span && limit.is_none_or(|limit| captured < limit) {
        let Some(frame) = frames.next(&mut buffer, WAIT_MS).map_err(capture_error)? else {
            continue;
        };
        writer
            .write_cut(frame.received, frame.bytes, frame.length as u32)
            .map_err(|error| write_error(path, error))?;
        captured += 1;
    }
    writer.finish().map_err(|error| write_error(path, error))?;
    Ok(CaptureCounts {
        captured,
        dropped: frames.lost(),
    })
}

fn write_error(path: &Path, error: impl std::fmt::Display) -> CliError {
    CliError::new(format!(
        "{}: {error}; check the path and the free space",
        path.display()
    ))
}
