//! Reads pcap and pcapng captures: extracts the UDP datagrams to telemetry ports, and accounts for every other frame.

mod clocks;
mod merge;
mod times;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nic::capture::{self, Frame, Frames, Layer};
use wire::Refusal;
use wire::frame::{self, Datagram, PartialHeaders};

use terminal::CliError;
use terminal::progress::Progress;

pub use self::clocks::{ClockOffsets, RingClocks, UnknownClock};
pub use self::merge::{Merged, Run, merged};
pub(crate) use self::times::{Sequence, first_time};

/// A frame of a capture, parsed as far as possible.
#[derive(Debug)]
pub enum CapturedFrame<'a> {
    /// A UDP datagram to a telemetry port, and the frame that carried it.
    Datagram(Datagram<'a>, Layer<'a>),
    /// A frame whose headers contradict its bytes, and its source address if known.
    Refused(Refusal, Option<IpAddr>),
}

/// Outcome of each frame of a capture: `frames` = `datagrams` + refused + skipped.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Account {
    /// Frames in the files.
    pub frames: u64,
    /// Datagrams to a telemetry port.
    pub datagrams: u64,
    /// Frames with malformed headers, by cause.
    pub refused: BTreeMap<&'static str, u64>,
    /// Frames that are not telemetry, by class.
    pub skipped: BTreeMap<&'static str, u64>,
}

impl Account {
    /// Returns the number of frames that are not telemetry.
    pub fn skipped_total(&self) -> u64 {
        self.skipped.values().sum()
    }
}

/// Reads one capture from its first frame to its last, or to the point where it is truncated.
///
/// `each` receives the time of capture (ns since the epoch) and the parsed frame. An error from `each` stops the reading.
pub fn read(
    path: &Path,
    ports: &[u16],
    account: &mut Account,
    progress: &mut Progress,
    mut each: impl FnMut(u64, CapturedFrame<'_>) -> Result<(), CliError>,
) -> Result<(), CliError> {
    frames(path, account, progress, |account, frame| {
        match telemetry(frame, ports, account) {
            Ok((datagram, _)) => each(frame.ts, CapturedFrame::Datagram(datagram, frame.layer())),
            Err(NoDatagram::Refused(refused)) => {
                each(frame.ts, CapturedFrame::Refused(refused.refusal, refused.source))
            }
            Err(NoDatagram::NotTelemetry) => Ok(()),
        }
    })
}

/// A frame that was refused.
#[derive(Clone, Copy, Debug)]
pub struct Refused<'a> {
    /// The cause of the refusal.
    pub refusal: Refusal,
    /// The source address, if known.
    pub source: Option<IpAddr>,
    /// The part that arrived of a datagram to a telemetry port.
    pub beginning: Option<Beginning<'a>>,
}

/// The beginning of a datagram that did not arrive whole, such as the first fragment of one.
#[derive(Clone, Copy, Debug)]
pub struct Beginning<'a> {
    /// Source address of the datagram.
    pub src: IpAddr,
    /// UDP source port of the datagram.
    pub src_port: u16,
    /// UDP destination port of the datagram.
    pub dst_port: u16,
    /// Index of this port.
    pub listener: usize,
    /// The bytes behind the UDP header. Their number is not that of the datagram.
    pub payload: &'a [u8],
}

/// The reason why a frame has no datagram to a telemetry port.
#[derive(Clone, Copy, Debug)]
pub enum NoDatagram<'a> {
    /// The headers of the frame are malformed.
    Refused(Refused<'a>),
    /// It is not telemetry.
    NotTelemetry,
}

/// Returns the datagram in a frame and the index of its destination port in `ports`. Counts the frame in everything but
/// [`Account::frames`].
#[inline]
pub fn telemetry<'a>(
    frame: &Frame<'a>,
    ports: &[u16],
    account: &mut Account,
) -> Result<(Datagram<'a>, usize), NoDatagram<'a>> {
    let parsed = datagram(frame);
    if let Ok(datagram) = parsed
        && let Some(port) = ports.iter().position(|port| *port == datagram.dst_port)
    {
        account.datagrams += 1;
        return Ok((datagram, port));
    }
    let error = parsed.err().unwrap_or(ParseError::OtherPort);
    Err(account_other(frame, error, ports, account))
}

/// The reason why a frame has no datagram that could be telemetry.
#[derive(Clone, Copy)]
enum ParseError {
    UnknownLinkType,
    Refused(Refusal),
    /// The datagram is to another port.
    OtherPort,
}

/// Parses the datagram in a frame, to any port.
#[inline]
fn datagram<'a>(frame: &Frame<'a>) -> Result<Datagram<'a>, ParseError> {
    match frame.layer() {
        Layer::Ethernet(bytes) => frame::datagram(bytes).map_err(ParseError::Refused),
        Layer::Network { ethertype, bytes } => frame::network(ethertype, bytes).map_err(ParseError::Refused),
        Layer::Cut => Err(ParseError::Refused(Refusal::Truncated)),
        Layer::Unsupported => Err(ParseError::UnknownLinkType),
    }
}

/// Accounts for a frame without a datagram to one of `ports`.
#[cold]
fn account_other<'a>(
    frame: &Frame<'a>,
    error: ParseError,
    ports: &[u16],
    account: &mut Account,
) -> NoDatagram<'a> {
    let class = match error {
        ParseError::OtherPort => "other_port",
        ParseError::UnknownLinkType => "unknown_link",
        ParseError::Refused(refusal) => {
            let headers = partial_headers(frame);
            match skipped_class(refusal, headers.dst_port, ports) {
                Some(class) => class,
                None => {
                    *account.refused.entry(refusal.name()).or_default() += 1;
                    return NoDatagram::Refused(Refused {
                        refusal,
                        source: headers.src,
                        beginning: beginning(&headers, ports),
                    });
                }
            }
        }
    };
    *account.skipped.entry(class).or_default() += 1;
    NoDatagram::NotTelemetry
}

/// Returns the beginning of a datagram to one of `ports`, if the frame has it.
fn beginning<'a>(headers: &PartialHeaders<'a>, ports: &[u16]) -> Option<Beginning<'a>> {
    let dst_port = headers.dst_port?;
    let (src_port, payload) = headers.beginning()?;
    Some(Beginning {
        src: headers.src?,
        src_port,
        dst_port,
        listener: ports.iter().position(|port| *port == dst_port)?,
        payload,
    })
}

fn partial_headers<'a>(frame: &Frame<'a>) -> PartialHeaders<'a> {
    match frame.layer() {
        Layer::Ethernet(bytes) => PartialHeaders::of_frame(bytes),
        Layer::Network { ethertype, bytes } => PartialHeaders::of_network(ethertype, bytes),
        Layer::Cut | Layer::Unsupported => PartialHeaders::default(),
    }
}

/// Returns the class of a refused frame that is not telemetry, or `None` if it is or could be. A malformed datagram to another
/// port is not telemetry; the first fragment of a datagram to a telemetry port is a report that cannot be read.
fn skipped_class(refusal: Refusal, dst_port: Option<u16>, ports: &[u16]) -> Option<&'static str> {
    match (dst_port, refusal) {
        (Some(dst_port), _) if ports.contains(&dst_port) => None,
        (Some(_), _) => Some("other_port"),
        (None, Refusal::NotIp | Refusal::NotUdp | Refusal::Fragment) => Some(refusal.name()),
        (None, _) => None,
    }
}

/// Opens a capture file, or standard input for `-`.
fn open(path: &Path) -> Result<capture::Reader<File>, CliError> {
    if path != Path::new(STDIN) {
        return capture::Reader::open(path).map_err(|error| unreadable(path, &error));
    }
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    let stdin = stdin.map_err(|error| CliError::io("cannot read standard input", error, "name a file"))?;
    capture::Reader::from_file(stdin.into()).map_err(|error| unreadable(path, &error))
}

/// Returns whether a capture is still being written: a pipe, or another file without an end.
pub fn is_live(path: &Path) -> bool {
    path == Path::new(STDIN) || std::fs::metadata(path).is_ok_and(|file| !file.is_file())
}

const STDIN: &str = "-";
/// Number of frames between two updates of the progress display.
const PROGRESS_INTERVAL: u64 = 4096;

/// Reads all frames of one capture, one call of `each` per frame.
pub fn frames(
    path: &Path,
    account: &mut Account,
    progress: &mut Progress,
    mut each: impl FnMut(&mut Account, &Frame<'_>) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut reader = open(path)?;
    let bytes_before = progress.files_done();
    loop {
        if account.frames.is_multiple_of(PROGRESS_INTERVAL) {
            progress.at(bytes_before + reader.bytes_read(), account.frames);
        }
        let frame = match reader.next() {
            None => break,
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Err(unreadable(path, &error)),
        };
        account.frames += 1;
        each(account, &frame)?;
    }
    progress.file_done(bytes_before + reader.bytes_read());
    Ok(())
}

/// Reads all frames of one capture in bursts. `each` adds them to [`Account::frames`].
pub fn bursts(
    path: &Path,
    account: &mut Account,
    progress: &mut Progress,
    mut each: impl FnMut(&mut Account, Frames<'_>),
) -> Result<(), CliError> {
    let mut reader = open(path)?;
    let bytes_before = progress.files_done();
    let mut shown_frames = None;
    loop {
        if shown_frames.is_none_or(|shown| account.frames - shown >= PROGRESS_INTERVAL) {
            shown_frames = Some(account.frames);
            progress.at(bytes_before + reader.bytes_read(), account.frames);
        }
        match reader.burst() {
            None => break,
            Some(Ok(frames)) => each(account, frames),
            Some(Err(error)) => return Err(unreadable(path, &error)),
        }
    }
    progress.file_done(bytes_before + reader.bytes_read());
    Ok(())
}

fn unreadable(path: &Path, error: &capture::Error) -> CliError {
    match path == Path::new(STDIN) {
        true => CliError::new(format!("standard input: {error}")),
        false => CliError::new(format!("{}: {error}", path.display())),
    }
}

/// Returns the total size of the files, for the progress display, or `None` if the size of one is unknown.
pub fn total_bytes(paths: &[PathBuf]) -> Option<u64> {
    paths
        .iter()
        .map(|path| std::fs::metadata(path).ok().map(|meta| meta.len()))
        .sum()
}
