//! The clocks of a capture's interfaces.
//!
//! A pcapng file may have frames of several interfaces, and the timestamps of each may be of a clock of its own: the host's, or that of a NIC. The
//! file has the frames in the order in which they were written, so the clocks of two interfaces whose frames alternate can be compared: a
//! frame that follows another was not captured before it. If no common clock explains the order, the clocks differ, and the times of the file's first
//! interface hold for all.
//!
//! An interface whose first frame is far from the latest one may have another clock, or may have been captured at another time. Then the file
//! is read once more ([`differences`]) to see whether its frames alternate with others. A capture from a pipe cannot be: there a
//! difference is known when the interfaces have alternated, so its first frames set the time back, or forward.
//!
//! A frame far ahead of all before it follows a pause, or has a wrong time. The next one shows which: see [`Time::Ahead`].

use std::path::{Path, PathBuf};

use collector::event::{SECOND, SET_BACK};
use nic::capture::Frame;

use terminal::progress::Progress;

use crate::capture::{self, Account};

/// Maximum number of interfaces of a file whose clocks are compared before their frames are replayed.
const MAX_COMPARED: usize = 64;
/// Maximum number of differences that are listed.
const MAX_LISTED: usize = 64;

/// A frame that is further ahead than this may have a wrong time, ns. Sequence numbers, for one, decide nothing before.
pub(super) const AHEAD: u64 = 10 * SECOND;

/// The clocks of the interfaces of a file.
#[derive(Debug)]
pub(super) struct Clocks {
    file: PathBuf,
    /// The interface of the latest frame.
    current: Clock,
    others: Vec<Clock>,
    /// The offsets of the times of interfaces, if the file was read for this.
    compared: Option<Vec<(u16, i64)>>,
}

/// The clock of an interface. Times are those of the first interface.
#[derive(Clone, Copy, Default, Debug)]
struct Clock {
    interface: u16,
    /// The offset of its times, ns.
    offset: i64,
    /// The latest time of a frame since its clock was set back; `None`: there is none.
    latest: Option<u64>,
    /// The time of its frame before, if it is behind the latest frame by more than [`SET_BACK`].
    behind: Option<u64>,
    /// The time of its frame before, if that was ahead by more than [`AHEAD`], and was not used.
    ahead: Option<u64>,
    /// The first interface of the file.
    is_first: bool,
}

/// The difference between the clocks of two interfaces of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Path of the capture file.
    pub file: PathBuf,
    /// The interface whose times hold, and the other.
    pub interfaces: [u16; 2],
    /// The time by which the clock of the other is ahead, ns.
    pub ahead: i64,
}

/// The time of a frame.
pub(super) enum Time {
    /// By the clock of the first interface.
    At(u64),
    /// The same, and the clock was set back to it.
    SetBack(u64),
    /// By the clock of the first interface, but ahead of the latest time by more than [`AHEAD`]. If the next frame is not, the time is wrong.
    Ahead(u64),
}

impl Clocks {
    /// The clocks of a file of which no frame has been read.
    pub(super) fn new(file: &Path) -> Self {
        Self {
            file: file.to_path_buf(),
            current: Clock::default(),
            others: Vec::new(),
            compared: None,
        }
    }

    /// Lists the differences between the clocks of the file.
    pub(super) fn list(self, listed: &mut Vec<Difference>) {
        let Self {
            file,
            current,
            others: mut clocks,
            ..
        } = self;
        clocks.push(current);
        let Some(first) = clocks.iter().find(|clock| clock.is_first).copied() else {
            return;
        };
        clocks.retain(|clock| clock.offset != first.offset);
        clocks.sort_by_key(|clock| clock.interface);
        clocks.truncate(MAX_LISTED - listed.len());
        listed.extend(clocks.iter().map(|clock| Difference {
            file: file.clone(),
            interfaces: [first.interface, clock.interface],
            ahead: first.offset - clock.offset,
        }));
    }

    /// Returns the time of a frame as far as its clock is known.
    pub(super) fn known_time(&self, frame: &Frame<'_>) -> u64 {
        let clocks = std::iter::once(&self.current).chain(&self.others);
        let known = clocks
            .into_iter()
            .find(|clock| clock.interface == frame.interface);
        frame
            .ts
            .saturating_add_signed(known.map_or(0, |clock| clock.offset))
    }

    /// The time of the latest frame of an interface, which was ahead, was wrong. If its next one is ahead as well, its clock made a step.
    pub(super) fn set_ahead(&mut self, interface: u16, ts: u64) {
        let clocks = std::iter::once(&mut self.current).chain(&mut self.others);
        for clock in clocks.filter(|clock| clock.interface == interface) {
            clock.ahead = Some(ts);
        }
    }

    /// Returns the time of a frame. `latest`: the latest time, since the clock was set back, or 0.
    #[inline]
    pub(super) fn time(&mut self, frame: &Frame<'_>, latest: u64) -> Time {
        if frame.interface != self.current.interface || self.current.latest.is_none() {
            self.select(frame, latest);
        }
        let clock = &mut self.current;
        let ts = frame.ts.saturating_add_signed(clock.offset);
        if ts.saturating_add(SET_BACK) < latest {
            return self.time_behind(ts, latest);
        }
        if ts > latest.saturating_add(AHEAD) && latest > 0 && clock.may_be_wrong(ts) {
            return Time::Ahead(ts);
        }
        clock.behind = None;
        clock.ahead = None;
        clock.latest = clock.latest.max(Some(ts));
        Time::At(ts)
    }

    /// Makes the clock of a frame's interface the current one.
    #[cold]
    fn select(&mut self, frame: &Frame<'_>, latest: u64) {
        let interface = frame.interface;
        let is_first = !self.current.is_first && self.others.is_empty();
        if !is_first && interface == self.current.interface {
            return;
        }
        let known = self.others.iter().position(|clock| clock.interface == interface);
        let next = match known {
            Some(at) => self.others.swap_remove(at),
            None => Clock {
                interface,
                offset: if is_first { 0 } else { self.offset(frame, latest) },
                is_first,
                ..Clock::default()
            },
        };
        let before = std::mem::replace(&mut self.current, next);
        if !is_first {
            self.others.push(before);
        }
    }

    /// Returns the offset of the times of an interface whose first frame this is, ns.
    fn offset(&mut self, frame: &Frame<'_>, latest: u64) -> i64 {
        let is_near = frame.ts.abs_diff(latest) <= SET_BACK;
        if self.compared.is_none() && (is_near || latest == 0) {
            return 0;
        }
        let compared = self.compared.get_or_insert_with(|| differences(&self.file));
        let [reference, other] = [self.current.interface, frame.interface].map(|interface| {
            let found = compared.iter().find(|(of, _)| *of == interface);
            found.map(|(_, offset)| *offset)
        });
        let (Some(reference), Some(other)) = (reference, other) else {
            return 0;
        };
        self.current
            .offset
            .saturating_add(other.saturating_sub(reference))
    }

    /// Returns the time of a frame that is behind the latest one. A single one may be out of order.
    #[cold]
    fn time_behind(&mut self, ts: u64, latest: u64) -> Time {
        let clock = &mut self.current;
        clock.ahead = None;
        let before = clock.behind.replace(ts);
        // The next one may come much later, where reports are few.
        if before.is_none_or(|before| ts.saturating_add(SET_BACK) < before) {
            return Time::At(ts);
        }
        clock.behind = None;
        let is_step = clock.latest.is_none_or(|own| ts.saturating_add(SET_BACK) < own);
        if !is_step {
            // Its clock goes on as before.
            let add = i64::try_from(latest - ts).unwrap_or(i64::MAX);
            clock.offset = clock.offset.saturating_add(add);
            clock.latest = Some(latest);
            return Time::At(latest);
        }
        clock.latest = Some(ts);
        for other in &mut self.others {
            other.latest = other.latest.map(|own| own.min(ts));
            other.behind = None;
        }
        Time::SetBack(ts)
    }
}

impl Clock {
    /// Whether a time that is far ahead may be wrong: not the first one of another interface, whose clock may be another, and the one
    /// before was not as far ahead.
    fn may_be_wrong(&self, ts: u64) -> bool {
        let is_known = self.latest.is_some() || self.is_first;
        is_known && self.ahead.is_none_or(|ahead| ts.saturating_add(SET_BACK) < ahead)
    }
}

/// Times of an interface, compared with those of the first one.
#[derive(Clone, Copy, Debug)]
struct Compared {
    interface: u16,
    latest: i128,
    /// The bounds of how far its clock is ahead: from a frame of the first interface that follows one of this one, and the other way round.
    least: Option<i128>,
    most: i128,
}

impl Compared {
    /// The offset of its times, ns.
    fn offset(&self) -> i64 {
        let bound = i128::from(SET_BACK);
        let Some(least) = self.least else {
            // Not one frame of the first interface follows.
            return 0;
        };
        let differs = least > bound || self.most < -bound;
        if !differs || least > self.most + bound {
            // One clock explains the order, or not even two clocks do: they were set meanwhile.
            return 0;
        }
        i64::try_from(-(least + self.most) / 2).unwrap_or(0)
    }
}

/// Reads a file to compare the clocks of its interfaces. Returns what to add to their times, for each interface.
fn differences(file: &Path) -> Vec<(u16, i64)> {
    if capture::is_live(file) {
        return Vec::new();
    }
    let mut first: Option<(u16, i128)> = None;
    let mut others: Vec<Compared> = Vec::new();
    let mut progress = Progress::new("", "frames", None).silenced(true);
    // Where the file is broken, the replay says so.
    let _ = capture::frames(file, &mut Account::default(), &mut progress, |_, frame| {
        let ts = i128::from(frame.ts);
        let (interface, latest) = first.get_or_insert((frame.interface, ts));
        if frame.interface == *interface {
            *latest = ts;
            for other in &mut others {
                other.least = other.least.max(Some(other.latest - ts));
            }
            return Ok(());
        }
        let ahead = ts - *latest;
        if let Some(other) = others.iter_mut().find(|other| other.interface == frame.interface) {
            other.latest = ts;
            other.most = other.most.min(ahead);
        } else if others.len() < MAX_COMPARED {
            others.push(Compared {
                interface: frame.interface,
                latest: ts,
                least: None,
                most: ahead,
            });
        }
        Ok(())
    });
    let first = first.map(|(interface, _)| (interface, 0));
    let others = others.iter().map(|other| (other.interface, other.offset()));
    first.into_iter().chain(others).collect()
}
