//! Compares the clocks of the interfaces of a capture file, by the order in which their frames were stored.

use std::path::{Path, PathBuf};

use collector::event::SET_BACK;
use terminal::progress::Progress;

use super::{Account, frames, is_live, open};

/// Maximum number of interfaces whose clocks are compared in a file.
const MAX_COMPARED: usize = 64;

/// The offsets of the clocks of a file's interfaces from that of one of them, the reference.
#[derive(Clone, Default, Debug)]
pub struct ClockOffsets(Vec<InterfaceOffset>);

/// The offset to add to the timestamps of an interface, ns.
#[derive(Clone, Copy, Debug)]
struct InterfaceOffset {
    interface: u16,
    offset: i64,
    /// The offset lies in this range, as the order of the frames shows. Both are 0 if it is not known to differ from 0.
    min: i128,
    max: i128,
}

impl ClockOffsets {
    /// Reads a file to compare the clocks of its interfaces; the reference is the interface of its first frame. Returns no
    /// offsets for a pipe, which cannot be read twice. Read errors are ignored here: the replay reports them.
    pub fn measure(file: &Path) -> Self {
        if is_live(file) {
            return Self::default();
        }
        let mut first: Option<FirstInterface> = None;
        let mut others: Vec<ClockComparison> = Vec::new();
        let mut progress = Progress::new("", "frames", None).silenced(true);
        let _ = frames(file, &mut Account::default(), &mut progress, |_, frame| {
            if frame.ts == 0 {
                // A simple packet block has no time.
                return Ok(());
            }
            let ts = i128::from(frame.ts);
            let interface = frame.interface;
            let first = first.get_or_insert(FirstInterface {
                interface,
                latest: ts,
            });
            if interface == first.interface {
                first.latest = ts;
                for other in &mut others {
                    other.min_ahead = other.min_ahead.max(Some(other.latest - ts));
                }
                return Ok(());
            }
            let ahead = ts - first.latest;
            if let Some(other) = others.iter_mut().find(|other| other.interface == interface) {
                other.latest = ts;
                other.max_ahead = other.max_ahead.min(ahead);
            } else if others.len() < MAX_COMPARED {
                others.push(ClockComparison {
                    interface,
                    latest: ts,
                    min_ahead: None,
                    max_ahead: ahead,
                });
            }
            Ok(())
        });
        let first = first.map(|first| InterfaceOffset::none(first.interface));
        let others = others.iter().map(ClockComparison::offset);
        Self(first.into_iter().chain(others).collect())
    }

    /// Compares the clocks of each of several files that are replayed together. The reference of each file is its interface with
    /// the lowest number, so that it is the same in all files of a ring; and an offset is the same in all files that are
    /// consistent with it, so that the times of one interface keep their order over the files.
    pub fn measure_each(files: &[PathBuf]) -> Vec<Self> {
        let mut known = Self::default();
        let mut all = Vec::with_capacity(files.len());
        for file in files {
            let mut offsets = if may_have_several_interfaces(file) {
                Self::measure(file)
            } else {
                Self::default()
            };
            offsets.refer_to_lowest();
            offsets.agree_with(&mut known);
            all.push(offsets);
        }
        all
    }

    /// Returns the offset of an interface, ns; `None` if its clock was not compared.
    pub fn of(&self, interface: u16) -> Option<i64> {
        let offset = self.0.iter().find(|offset| offset.interface == interface);
        offset.map(|offset| offset.offset)
    }

    /// Returns the interface whose clock is the common one.
    pub fn reference(&self) -> Option<u16> {
        self.0.first().map(|first| first.interface)
    }

    /// Makes the interface with the lowest number the reference.
    fn refer_to_lowest(&mut self) {
        self.0.sort_by_key(|offset| offset.interface);
        let Some(lowest) = self.0.first().copied() else {
            return;
        };
        for offset in &mut self.0 {
            offset.offset = offset.offset.saturating_sub(lowest.offset);
            // The uncertainty of both comparisons adds up.
            offset.min -= lowest.max;
            offset.max -= lowest.min;
        }
        self.0[0] = InterfaceOffset::none(lowest.interface);
    }

    /// Replaces offsets by those of earlier files where both are consistent, and adds the others to the known ones.
    fn agree_with(&mut self, known: &mut Self) {
        for offset in self.0.iter_mut().filter(|offset| offset.offset != 0) {
            let earlier = known.0.iter().find(|known| {
                known.interface == offset.interface
                    && (offset.min..=offset.max).contains(&i128::from(known.offset))
            });
            match earlier {
                Some(earlier) => offset.offset = earlier.offset,
                None if known.0.len() < MAX_COMPARED => known.0.push(*offset),
                None => {}
            }
        }
    }
}

impl InterfaceOffset {
    fn none(interface: u16) -> Self {
        Self {
            interface,
            offset: 0,
            min: 0,
            max: 0,
        }
    }
}

/// Returns whether a file may have several interfaces: a pcapng file may describe them anywhere between its frames, so only its
/// end shows how many there are. Read errors are reported by the replay.
fn may_have_several_interfaces(file: &Path) -> bool {
    // Before the first frame is read, a pcap file has its one interface, and a pcapng file none.
    open(file).is_ok_and(|reader| reader.interfaces() == 0)
}

/// The interface of a file's first frame, and the time of its latest frame, ns.
#[derive(Clone, Copy, Debug)]
struct FirstInterface {
    interface: u16,
    latest: i128,
}

/// Comparison of an interface's clock with the first interface's, ns.
#[derive(Clone, Copy, Debug)]
struct ClockComparison {
    interface: u16,
    /// The latest time of the interface's frames.
    latest: i128,
    /// Lower bound on how far this clock is ahead, from a frame of the first interface that follows one of this interface.
    min_ahead: Option<i128>,
    /// Upper bound, from the reverse order.
    max_ahead: i128,
}

impl ClockComparison {
    /// Returns the offset that maps the interface's times to the first interface's clock.
    fn offset(&self) -> InterfaceOffset {
        let none = InterfaceOffset::none(self.interface);
        let tolerance = i128::from(SET_BACK);
        let Some(min_ahead) = self.min_ahead else {
            // No frame of the first interface follows, so there is no lower bound.
            return none;
        };
        let differs = min_ahead > tolerance || self.max_ahead < -tolerance;
        if !differs || min_ahead > self.max_ahead + tolerance {
            // Either one clock explains the order, or not even two clocks do, because one was set during the capture.
            return none;
        }
        // Frames may be stored a little out of order, so that the bounds cross.
        let min = -min_ahead.max(self.max_ahead);
        let max = -min_ahead.min(self.max_ahead);
        i64::try_from((min + max) / 2).map_or(none, |offset| InterfaceOffset {
            offset,
            min,
            max,
            ..none
        })
    }
}
