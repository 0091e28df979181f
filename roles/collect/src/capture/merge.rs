//! Merges captures that overlap in time, ordered by the timestamps of their frames, on the clock of one interface of each file.
//!
//! A ring of files written by `tcpdump -C` or `-G` is replayed in the order of time, whatever the order of its file names. The
//! frames of captures that overlap, such as captures from two interfaces or hosts, are interleaved. A file is opened only when
//! its first frame is due, so only overlapping files are open at the same time.

use std::collections::VecDeque;
use std::fs::File;
use std::mem;
use std::ops::Range;
use std::path::{Path, PathBuf};

use collector::event::Nanos;
use nic::capture::{BURST, Frame, LinkType, Reader};
use terminal::CliError;
use terminal::progress::Progress;

use super::times::{Sequence, due, first_time};
use super::{Account, ClockOffsets, open, unreadable};

/// Consecutive frames of one file.
#[derive(Debug, Default)]
pub struct Run {
    bytes: Vec<u8>,
    frames: Vec<FrameRef>,
}

/// A frame, as a range in the bytes of its run.
#[derive(Debug)]
struct FrameRef {
    bytes: Range<usize>,
    header: Header,
}

/// The metadata of a frame, without its bytes.
#[derive(Clone, Copy, Debug)]
struct Header {
    ts: u64,
    link: LinkType,
    length: u32,
    truncated: bool,
    interface: u16,
}

impl Header {
    fn read(frame: &Frame<'_>) -> Self {
        Self {
            ts: frame.ts,
            link: frame.link,
            length: frame.length,
            truncated: frame.truncated,
            interface: frame.interface,
        }
    }
}

impl Run {
    /// Returns the frames of the run, in their order.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        self.frames.iter().map(|FrameRef { bytes, header }| Frame {
            ts: header.ts,
            data: &self.bytes[bytes.clone()],
            link: header.link,
            length: header.length,
            truncated: header.truncated,
            interface: header.interface,
        })
    }

    fn push(&mut self, frame: &OwnedFrame) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&frame.data);
        self.frames.push(FrameRef {
            bytes: start..self.bytes.len(),
            header: frame.header,
        });
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
    }
}

#[derive(Debug)]
struct OwnedFrame {
    header: Header,
    data: Vec<u8>,
}

/// A file to merge.
#[derive(Clone, Copy, Debug)]
struct Input<'a> {
    /// The file's index in the list of paths.
    file: usize,
    path: &'a Path,
    offsets: &'a ClockOffsets,
}

/// Number of frames with a time that are read ahead of the next one: with two frames more, it shows which of three times is wrong.
const LOOK_AHEAD: usize = 2;
/// Maximum number of frames that are read ahead, with and without a time.
const MAX_LOOK_AHEAD: usize = 64;

/// An open file with a look-ahead of [`LOOK_AHEAD`] frames with a time.
#[derive(Debug)]
struct Source<'a> {
    input: Input<'a>,
    reader: Reader<File>,
    next: OwnedFrame,
    /// The frames after `next`, fewer at the end of the file.
    following: VecDeque<OwnedFrame>,
    /// Number of frames in `following` that have a time.
    following_times: usize,
    /// The times at which the frames before `next` were due, or `None` as long as no time is known.
    sequence: Option<Sequence>,
    /// The error that ends the file early; reported after the frames before it.
    error: Option<CliError>,
}

impl<'a> Source<'a> {
    /// Opens a file, or returns `Ok(None)` if it holds no frame.
    fn open(input: Input<'a>) -> Result<Option<Self>, CliError> {
        let mut reader = open(input.path)?;
        let Some(next) = read(&mut reader, input.path, Vec::new())? else {
            return Ok(None);
        };
        let mut source = Self {
            input,
            reader,
            next,
            following: VecDeque::with_capacity(LOOK_AHEAD),
            following_times: 0,
            sequence: None,
            error: None,
        };
        source.read_ahead(Vec::new());
        source.begin();
        Ok(Some(source))
    }

    /// Reads frames until [`LOOK_AHEAD`] of them have a time, unless the file ends. Reuses the buffer of an earlier frame.
    fn read_ahead(&mut self, buffer: Vec<u8>) {
        let mut buffer = Some(buffer);
        while self.following_times < LOOK_AHEAD
            && self.following.len() < MAX_LOOK_AHEAD
            && self.error.is_none()
        {
            match read(
                &mut self.reader,
                self.input.path,
                buffer.take().unwrap_or_default(),
            ) {
                Ok(Some(frame)) => {
                    self.following_times += usize::from(frame.header.ts != 0);
                    self.following.push_back(frame);
                }
                Ok(None) => break,
                Err(error) => self.error = Some(error),
            }
        }
    }

    /// Finds the time at which the file begins, if it is not known yet.
    fn begin(&mut self) {
        if self.sequence.is_none() {
            let frames = std::iter::once(&self.next).chain(&self.following);
            let times: Vec<Nanos> = frames.filter_map(|frame| self.time(frame)).collect();
            self.sequence = first_time(&times).map(Sequence::new);
        }
    }

    /// Returns the time at which the next frame is due: after all others if no time of its file is known.
    fn due(&self) -> Nanos {
        let Some(sequence) = &self.sequence else {
            return Nanos::MAX;
        };
        let mut times = self.following.iter().filter_map(|frame| self.time(frame));
        due(sequence, self.time(&self.next), times.next(), times.next())
    }

    /// Returns the time of a frame on the common clock of its file, if it has one.
    fn time(&self, frame: &OwnedFrame) -> Option<Nanos> {
        let Header { ts, interface, .. } = frame.header;
        let offset = self.input.offsets.of(interface).unwrap_or(0);
        (ts != 0).then(|| ts.saturating_add_signed(offset))
    }

    /// Advances by one frame. Returns `false` at the end of the file.
    fn advance(&mut self) -> bool {
        let due = self.due();
        if let Some(sequence) = &mut self.sequence {
            sequence.follow(due);
        }
        let Some(after) = self.following.pop_front() else {
            return false;
        };
        self.following_times -= usize::from(after.header.ts != 0);
        let passed = mem::replace(&mut self.next, after);
        self.read_ahead(passed.data);
        self.begin();
        true
    }
}

fn read(reader: &mut Reader<File>, path: &Path, mut buffer: Vec<u8>) -> Result<Option<OwnedFrame>, CliError> {
    let frame = match reader.next() {
        None => return Ok(None),
        Some(frame) => frame.map_err(|error| unreadable(path, &error))?,
    };
    buffer.clear();
    buffer.extend_from_slice(frame.data);
    Ok(Some(OwnedFrame {
        header: Header::read(&frame),
        data: buffer,
    }))
}

/// Files that overlap or failed during [`merged`].
#[derive(Debug, Default)]
pub struct Merged {
    /// Files that overlap another one in time, in the order in which they were given.
    pub overlapping: Vec<PathBuf>,
    /// Errors of files that could not be read to their end.
    pub errors: Vec<CliError>,
}

/// Reads all frames of several captures in the order of their times. The paths must be readable twice: each file is opened
/// once to find its first frame, and again when that frame is due. `each` receives runs of frames with the index of their
/// file, and counts them in the account. A file that cannot be read to its end does not stop the others. `offsets` are those of
/// each file ([`super::RingClocks`]); they decide the order, and the frames keep their own times.
pub fn merged(
    paths: &[PathBuf],
    offsets: &[ClockOffsets],
    account: &mut Account,
    progress: &mut Progress,
    mut each: impl FnMut(usize, &mut Account, &Run),
) -> Merged {
    let mut merged = Merged::default();
    let mut overlaps = vec![false; paths.len()];
    let mut waiting: Vec<(u64, usize)> = Vec::with_capacity(paths.len());
    let inputs: Vec<Input<'_>> = paths
        .iter()
        .zip(offsets)
        .enumerate()
        .map(|(file, (path, offsets))| Input { file, path, offsets })
        .collect();
    for input in &inputs {
        match Source::open(*input) {
            Ok(Some(source)) => waiting.push((source.due(), input.file)),
            Ok(None) => {}
            Err(error) => merged.errors.push(error),
        }
    }
    // Sorted latest first, so that `pop_if` takes the file that is due next.
    waiting.sort_unstable_by(|a, b| b.cmp(a));
    let mut sources: Vec<Source<'_>> = Vec::new();
    let mut run = Run::default();
    let mut run_of = 0;
    let mut bytes_done = progress.files_done();
    loop {
        let first = sources
            .iter()
            .map(|source| (source.due(), source.input.file))
            .min();
        if let Some((_, file)) = waiting.pop_if(|next| first.is_none_or(|first| *next < first)) {
            match Source::open(inputs[file]) {
                Ok(Some(source)) => {
                    sources.push(source);
                    if sources.len() > 1 {
                        sources
                            .iter()
                            .for_each(|source| overlaps[source.input.file] = true);
                    }
                }
                Ok(None) => {}
                Err(error) => merged.errors.push(error),
            }
            continue;
        }
        let Some((_, file)) = first else { break };
        let Some(at) = sources.iter().position(|source| source.input.file == file) else {
            break;
        };
        if run_of != file || run.frames.len() == BURST {
            each(run_of, account, &run);
            run.clear();
            run_of = file;
            let open: u64 = sources.iter().map(|source| source.reader.bytes_read()).sum();
            progress.at(bytes_done + open, account.frames);
        }
        let source = &mut sources[at];
        run.push(&source.next);
        if !source.advance() {
            let ended = sources.swap_remove(at);
            bytes_done += ended.reader.bytes_read();
            progress.file_done(bytes_done);
            merged.errors.extend(ended.error);
        }
    }
    each(run_of, account, &run);
    let overlapping = paths.iter().zip(overlaps).filter(|(_, overlaps)| *overlaps);
    merged.overlapping = overlapping.map(|(path, _)| path.clone()).collect();
    merged
}
