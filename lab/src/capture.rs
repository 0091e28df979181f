//! What passes a link, into a file.

use std::path::Path;
use std::time::{Duration, Instant};

use nic::capture::{LinkType, Writer};
use nic::sniff::Frames;

use super::remote::Lab;
use terminal::CliError;

/// How long one wait for a packet takes at most.
const STEP_MS: u32 = 100;
/// Longest packet that is written whole.
const LONGEST: usize = 9_216 + 14;

/// Writes the packets at the first end of a link into a pcap file, for so long or until there are so many. Gives back how many,
/// and how many more there were that nobody fetched in time.
///
/// # Errors
/// There is no such link; the file cannot be written.
pub(crate) fn capture(
    lab: &Lab,
    link: &str,
    path: &Path,
    span: Duration,
    most: Option<u64>,
) -> Result<(u64, u64), CliError> {
    let index = lab.topology.find_link(link)?;
    let link = &lab.topology.links[index];
    let failed =
        |error| CliError::new(format!("{}: {error}; check the path, and the room there", path.display()));
    let mut writer = Writer::create(path, LinkType::Ethernet).map_err(failed)?;
    let inside = lab.namespace(lab.topology.name_of(link.ends[0]));
    let opened = nic::netns::within(&inside, || Frames::open(&link.interfaces[0]));
    let seen = |error: nic::Error| CliError::new(format!("cannot see {}: {error}", link.interfaces[0]));
    let mut frames = opened.map_err(seen)?.map_err(seen)?;
    let (start, mut count, mut buffer) = (Instant::now(), 0, vec![0; LONGEST]);
    while start.elapsed() < span && most.is_none_or(|most| count < most) {
        let Some(frame) = frames.next(&mut buffer, STEP_MS).map_err(seen)? else { continue };
        writer.write_cut(frame.received, frame.bytes, frame.length as u32).map_err(failed)?;
        count += 1;
    }
    writer.finish().map_err(failed)?;
    Ok((count, frames.lost()))
}
