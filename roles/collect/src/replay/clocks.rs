//! Reconciles the clocks of the interfaces of a pcapng capture.
//!
//! A pcapng file may hold frames of several interfaces, each timestamped by a different clock (the host's or a NIC's). The
//! frames are stored in the order of capture, so the clocks of interfaces whose frames alternate can be compared. If no common
//! clock explains the order, the clocks differ, and all times are converted to the clock of the reference: the file's first
//! interface or, if several files are replayed, the one with the lowest number.
//!
//! If an interface's first frame is far from the latest time, its clock may differ, or it may have been captured at another
//! time. The file is then read a second time ([`ClockOffsets::measure`]) to see whether its frames alternate with others. A pipe cannot
//! be read twice: its clocks are adjusted only after the interfaces have alternated, and the second interface's first frames set
//! the time back or forward.
//!
//! If several files are replayed, the clocks of each are compared before its first frame is due, because the offsets decide the
//! order of frames.
//!
//! A frame far ahead of all before it follows a pause or has a wrong time. The next frame shows which; see [`Time::Ahead`].

use std::path::{Path, PathBuf};

use collector::event::SET_BACK;
use nic::capture::Frame;

use crate::capture::{ClockOffsets, Sequence};

/// Maximum number of differences in the list.
const MAX_LISTED: usize = 64;

/// The clocks of the interfaces of one file.
#[derive(Debug)]
pub(super) struct Clocks {
    file: PathBuf,
    /// The interface of the latest frame.
    current: Clock,
    others: Vec<Clock>,
    /// The offset of each interface's times, if the file was read to compare clocks.
    measured_offsets: Option<ClockOffsets>,
    /// The interface whose clock is the common one, if it was chosen before the first frame.
    reference: Option<u16>,
}

/// The clock of one interface. All its times are on the clock of the reference.
#[derive(Clone, Copy, Default, Debug)]
struct Clock {
    interface: u16,
    /// Offset to add to the interface's timestamps, ns.
    offset: i64,
    /// The latest time of its frames since the clock was set back, or `None` before its first frame.
    latest: Option<u64>,
    /// The previous frame's time, if it is behind the latest time by more than [`SET_BACK`].
    behind: Option<u64>,
    /// The previous frame's time, if it was rejected because it was far ahead.
    ahead: Option<u64>,
    /// This is the file's first interface.
    is_first: bool,
}

/// The time and the interface that a frame has in its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    /// The timestamp, ns; 0 if it has none.
    pub(super) ts: u64,
    pub(super) interface: u16,
}

impl Stamp {
    pub(super) fn of(frame: &Frame<'_>) -> Self {
        Self {
            ts: frame.ts,
            interface: frame.interface,
        }
    }
}

/// The difference between the clocks of two interfaces of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Path of the capture file.
    pub file: PathBuf,
    /// The reference interface, and the one with the different clock.
    pub interfaces: [u16; 2],
    /// Time by which the second interface's clock is ahead, ns.
    pub ahead: i64,
}

/// The time of a frame on the clock of the reference, ns.
pub(super) enum Time {
    /// A time in sequence.
    At(u64),
    /// A time to which the clock was set back.
    SetBack(u64),
    /// A time behind the latest one by more than [`SET_BACK`]. It is not used: the frame counts at the latest time. If the next
    /// frame of the interface is as far behind, it sets the clock back.
    Behind,
    /// The frame has no time, as in simple packet blocks: it counts at the latest time.
    Absent,
    /// A time far ahead of the latest one ([`Sequence::is_ahead`]). It is wrong if the next frame continues from the latest time,
    /// and is not used if the next frame has no time, or if there is none.
    Ahead(u64),
}

impl Clocks {
    /// Creates the clocks of a file before its first frame is read.
    pub(super) fn new(file: &Path) -> Self {
        Self {
            file: file.to_path_buf(),
            current: Clock::default(),
            others: Vec::new(),
            measured_offsets: None,
            reference: None,
        }
    }

    /// Creates the clocks of a file whose offsets were measured before its first frame is read; without any, they are measured when
    /// they are needed.
    pub(super) fn with_offsets(file: &Path, offsets: ClockOffsets) -> Self {
        Self {
            reference: offsets.reference(),
            measured_offsets: offsets.reference().is_some().then_some(offsets),
            ..Self::new(file)
        }
    }

    /// Appends the differences between the file's clocks to a list.
    pub(super) fn append_differences(self, differences: &mut Vec<Difference>) {
        let Self {
            file,
            current,
            others: mut clocks,
            reference,
            ..
        } = self;
        clocks.push(current);
        let found = clocks.iter().find(|clock| match reference {
            Some(interface) => clock.interface == interface,
            None => clock.is_first,
        });
        let base = match (found, reference) {
            (Some(found), _) => *found,
            // The reference has no telemetry; its offset is 0.
            (None, Some(interface)) => Clock {
                interface,
                ..Clock::default()
            },
            (None, None) => return,
        };
        clocks.retain(|clock| clock.offset != base.offset);
        clocks.sort_by_key(|clock| clock.interface);
        clocks.truncate(MAX_LISTED - differences.len());
        differences.extend(clocks.iter().map(|clock| Difference {
            file: file.clone(),
            interfaces: [base.interface, clock.interface],
            ahead: base.offset - clock.offset,
        }));
    }

    /// Returns the time of a frame, as far as its interface's clock is known.
    pub(super) fn known_time(&self, frame: Stamp) -> u64 {
        let clocks = std::iter::once(&self.current).chain(&self.others);
        let interface_clock = clocks
            .into_iter()
            .find(|clock| clock.interface == frame.interface);
        let offset = match (interface_clock, &self.measured_offsets) {
            (Some(clock), _) => clock.offset,
            (None, Some(offsets)) => offsets.of(frame.interface).unwrap_or(0),
            (None, None) => 0,
        };
        frame.ts.saturating_add_signed(offset)
    }

    /// Marks the time of an interface's latest frame as wrong. If its next frame is ahead as well, its clock made a step.
    pub(super) fn mark_wrong_time(&mut self, interface: u16, ts: u64) {
        let clocks = std::iter::once(&mut self.current).chain(&mut self.others);
        for clock in clocks.filter(|clock| clock.interface == interface) {
            clock.ahead = Some(ts);
        }
    }

    /// Returns the time of a frame that follows those with the times of `sequence`, whose latest time is 0 if none is known.
    #[inline]
    pub(super) fn time(&mut self, frame: Stamp, sequence: &Sequence) -> Time {
        let latest = sequence.latest;
        if frame.ts == 0 {
            return if latest == 0 { Time::At(0) } else { Time::Absent };
        }
        if frame.interface != self.current.interface || self.current.latest.is_none() {
            self.select(frame, latest);
        }
        let clock = &mut self.current;
        let ts = frame.ts.saturating_add_signed(clock.offset);
        if sequence.is_behind(ts) {
            return self.time_behind(ts, latest);
        }
        if sequence.is_ahead(ts) && latest > 0 && clock.may_be_wrong(ts) {
            return Time::Ahead(ts);
        }
        clock.behind = None;
        clock.ahead = None;
        clock.latest = clock.latest.max(Some(ts));
        Time::At(ts)
    }

    /// Makes the clock of a frame's interface the current one.
    #[cold]
    fn select(&mut self, frame: Stamp, latest: u64) {
        let interface = frame.interface;
        let is_first = !self.current.is_first && self.others.is_empty();
        if !is_first && interface == self.current.interface {
            return;
        }
        let index = self.others.iter().position(|clock| clock.interface == interface);
        let selected = match index {
            Some(index) => self.others.swap_remove(index),
            None => Clock {
                interface,
                offset: if is_first || self.reference.is_some() {
                    self.offset_to_reference(interface)
                } else {
                    self.offset(frame, latest)
                },
                is_first,
                ..Clock::default()
            },
        };
        let previous = std::mem::replace(&mut self.current, selected);
        if !is_first {
            self.others.push(previous);
        }
    }

    /// Returns the offset that was measured before the first frame, ns; 0 if it is not known.
    fn offset_to_reference(&self, interface: u16) -> i64 {
        let offsets = self.measured_offsets.as_ref();
        offsets.and_then(|offsets| offsets.of(interface)).unwrap_or(0)
    }

    /// Returns the offset for an interface whose first frame this is, ns.
    fn offset(&mut self, frame: Stamp, latest: u64) -> i64 {
        let is_near = frame.ts.abs_diff(latest) <= SET_BACK;
        if self.measured_offsets.is_none() && (is_near || latest == 0) {
            return 0;
        }
        let offsets = self
            .measured_offsets
            .get_or_insert_with(|| ClockOffsets::measure(&self.file));
        let [current_offset, new_offset] =
            [self.current.interface, frame.interface].map(|interface| offsets.of(interface));
        let (Some(current_offset), Some(new_offset)) = (current_offset, new_offset) else {
            return 0;
        };
        self.current
            .offset
            .saturating_add(new_offset.saturating_sub(current_offset))
    }

    /// Returns the time of a frame that is behind the latest time. A single such frame is out of order or has a wrong time; a second
    /// one means that a clock was set back or differs.
    #[cold]
    fn time_behind(&mut self, ts: u64, latest: u64) -> Time {
        let clock = &mut self.current;
        clock.ahead = None;
        let previous = clock.behind.replace(ts);
        // A frame that is even further behind does not confirm the previous one.
        if previous.is_none_or(|previous| ts.saturating_add(SET_BACK) < previous) {
            return Time::Behind;
        }
        clock.behind = None;
        let is_step = clock
            .latest
            .is_none_or(|latest| ts.saturating_add(SET_BACK) < latest);
        if !is_step {
            // The interface's clock runs on as before, but behind the others: adjust its offset.
            let lag = i64::try_from(latest - ts).unwrap_or(i64::MAX);
            clock.offset = clock.offset.saturating_add(lag);
            clock.latest = Some(latest);
            return Time::At(latest);
        }
        clock.latest = Some(ts);
        for other in &mut self.others {
            other.latest = other.latest.map(|latest| latest.min(ts));
            other.behind = None;
        }
        Time::SetBack(ts)
    }
}

impl Clock {
    /// Returns whether a time far ahead may be wrong. It is considered right after another frame that was as far ahead.
    fn may_be_wrong(&self, ts: u64) -> bool {
        self.ahead.is_none_or(|ahead| ts.saturating_add(SET_BACK) < ahead)
    }
}
