//! Compares the clocks of the interfaces of capture files, by the order in which their frames were stored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use collector::event::{Nanos, SET_BACK};
use nic::capture::{InterfaceId, Reader};
use terminal::progress::Progress;

use super::times::Sequence;
use super::{PROGRESS_INTERVAL, is_live, open};

/// Maximum number of interfaces whose clocks are compared in a file.
const MAX_COMPARED: usize = 64;

/// The offsets of the clocks of a file's interfaces from that of one of them, the reference.
#[derive(Clone, Default, Debug)]
pub struct ClockOffsets {
    /// The interface whose clock is the common one.
    reference: Option<u16>,
    interfaces: Vec<InterfaceOffset>,
    /// The differences are those from the reference of all files of the ring.
    is_related: bool,
}

/// An interface whose clock is not known to agree with the common one: no file has enough frames of both by turns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownClock {
    /// Path of the capture file.
    pub file: PathBuf,
    /// Number of the interface in the file.
    pub interface: u16,
}

/// The clocks of several files that are replayed together.
#[derive(Debug)]
pub struct RingClocks {
    /// The offsets of each file.
    pub offsets: Vec<ClockOffsets>,
    /// The interfaces whose times are used as they are, because nothing shows the offset.
    pub unknown: Vec<UnknownClock>,
}

#[derive(Clone, Debug)]
struct InterfaceOffset {
    number: u16,
    id: InterfaceId,
    /// The difference of the interface's clock, ahead of the reference; `None` if the order of frames does not show it.
    ahead: Option<Range>,
    /// The offset to add to the interface's timestamps, ns; `None` if it is not known.
    offset: Option<i64>,
}

/// A range of differences between two clocks, ns, with both ends.
#[derive(Clone, Copy, Debug)]
struct Range {
    min: i128,
    max: i128,
}

impl Range {
    const ZERO: Self = Self { min: 0, max: 0 };

    /// Returns the range of the sum of two differences.
    fn plus(self, other: Self) -> Self {
        Self {
            min: self.min + other.min,
            max: self.max + other.max,
        }
    }

    fn negated(self) -> Self {
        Self {
            min: -self.max,
            max: -self.min,
        }
    }

    /// Returns the range between two bounds, or `None` if they contradict each other. They may cross a little, because frames may be
    /// stored a little out of order.
    fn between(min: i128, max: i128) -> Option<Self> {
        (min <= max + i128::from(SET_BACK)).then(|| Self {
            min: min.min(max),
            max: min.max(max),
        })
    }

    /// Returns the range that both allow, or `None` if they contradict each other.
    fn intersection(self, other: Self) -> Option<Self> {
        Self::between(self.min.max(other.min), self.max.min(other.max))
    }

    /// Returns the offset that corrects a clock which is ahead by this much: 0 if the clocks may agree.
    fn offset(self) -> Option<i64> {
        let tolerance = i128::from(SET_BACK);
        if self.min <= tolerance && self.max >= -tolerance {
            return Some(0);
        }
        i64::try_from(-(self.min + self.max) / 2).ok()
    }
}

impl ClockOffsets {
    /// Reads a file to compare the clocks of its interfaces; the reference is the interface of its first frame. Returns no
    /// offsets for a pipe, which cannot be read twice. Read errors are ignored here: the replay reports them.
    pub fn measure(file: &Path) -> Self {
        let mut progress = Progress::new("", "frames", None).silenced(true);
        Self::read(file, &mut 0, &mut progress)
    }

    fn read(file: &Path, frames: &mut u64, progress: &mut Progress) -> Self {
        if is_live(file) {
            return Self::default();
        }
        let Ok(mut reader) = open(file) else {
            return Self::default();
        };
        let bytes_before = progress.files_done();
        let mut comparison = Comparison::default();
        while let Some(Ok(frame)) = reader.next() {
            comparison.add(frame.interface, frame.ts);
            *frames += 1;
            if frames.is_multiple_of(PROGRESS_INTERVAL) {
                progress.at(bytes_before + reader.bytes_read(), *frames);
            }
        }
        progress.file_done(bytes_before + reader.bytes_read());
        comparison.offsets(&reader)
    }

    /// Returns the offset of an interface, ns; `None` if it is not known.
    pub fn of(&self, interface: u16) -> Option<i64> {
        let offset = self.interfaces.iter().find(|offset| offset.number == interface);
        offset.and_then(|offset| offset.offset)
    }

    /// Returns the interface whose clock is the common one.
    pub fn reference(&self) -> Option<u16> {
        self.reference
    }

    /// Returns how far the clock of the interface with this id is ahead of the reference, if it is known.
    fn ahead_of(&self, id: &InterfaceId) -> Option<Range> {
        let found = self.interfaces.iter().find(|interface| interface.id == *id);
        found.and_then(|interface| interface.ahead)
    }

    /// Adds a difference to those of all clocks, because of another reference.
    fn shift(&mut self, by: Range) {
        for interface in &mut self.interfaces {
            interface.ahead = interface.ahead.map(|ahead| ahead.plus(by));
        }
    }
}

impl RingClocks {
    /// Compares the clocks of each of several files. The reference of all is the interface with the lowest number. Where the frames
    /// of a file do not show the offset of an interface, those of the others do.
    pub fn measure(files: &[PathBuf], progress: &mut Progress) -> Self {
        let mut frames = 0;
        let mut offsets: Vec<ClockOffsets> = Vec::with_capacity(files.len());
        for file in files {
            offsets.push(if may_have_several_interfaces(file) {
                ClockOffsets::read(file, &mut frames, progress)
            } else {
                ClockOffsets::default()
            });
        }
        let mut known = KnownClocks::new(&offsets);
        let mut unrelated: Vec<&mut ClockOffsets> = offsets.iter_mut().collect();
        loop {
            let count = unrelated.len();
            unrelated.retain_mut(|file| !known.relate(file));
            if unrelated.len() == count {
                break;
            }
        }
        let mut unknown = Vec::new();
        for (file, path) in offsets.iter_mut().zip(files) {
            let interfaces = known.complete(file);
            unknown.extend(interfaces.into_iter().map(|interface| UnknownClock {
                file: path.clone(),
                interface,
            }));
        }
        Self { offsets, unknown }
    }

    /// Returns the number of bytes that [`RingClocks::measure`] reads, for the progress display.
    pub fn bytes_to_measure(files: &[PathBuf]) -> u64 {
        let several = files.iter().filter(|file| may_have_several_interfaces(file));
        several
            .filter_map(|file| Some(std::fs::metadata(file).ok()?.len()))
            .sum()
    }
}

/// The differences of clocks from that of the reference, as all files of a ring show them.
#[derive(Debug)]
struct KnownClocks {
    /// The interface with the lowest number.
    reference: Option<(u16, InterfaceId)>,
    /// Ranges that contradict each other are listed beside each other: a clock was set between two files.
    ahead: BTreeMap<InterfaceId, Vec<Range>>,
}

impl KnownClocks {
    fn new(files: &[ClockOffsets]) -> Self {
        let interfaces = files.iter().flat_map(|file| &file.interfaces);
        let reference = interfaces
            .map(|interface| (interface.number, interface.id.clone()))
            .min();
        let of_reference = reference.iter().map(|(_, id)| (id.clone(), vec![Range::ZERO]));
        Self {
            ahead: of_reference.collect(),
            reference,
        }
    }

    /// Returns how far an interface's clock is ahead, if the files agree.
    fn ahead_of(&self, id: &InterfaceId) -> Option<Range> {
        match self.ahead.get(id)?[..] {
            [ahead] => Some(ahead),
            _ => None,
        }
    }

    /// Relates the clocks of a file to the reference by one that is known, and learns the others. Returns `false` if none is known.
    fn relate(&mut self, file: &mut ClockOffsets) -> bool {
        let reference = self.reference.iter().map(|(_, id)| id);
        let ids = reference.chain(file.interfaces.iter().map(|interface| &interface.id));
        let by = ids.into_iter().find_map(|id| {
            let [known, own] = [self.ahead_of(id)?, file.ahead_of(id)?];
            Some(known.plus(own.negated()))
        });
        let Some(by) = by else { return false };
        file.is_related = true;
        file.shift(by);
        for interface in &file.interfaces {
            if let Some(ahead) = interface.ahead {
                self.learn(&interface.id, ahead);
            }
        }
        true
    }

    fn learn(&mut self, id: &InterfaceId, ahead: Range) {
        let ranges = self.ahead.entry(id.clone()).or_default();
        for range in ranges.iter_mut() {
            if let Some(both) = range.intersection(ahead) {
                *range = both;
                return;
            }
        }
        if ranges.len() < MAX_COMPARED {
            ranges.push(ahead);
        }
    }

    /// Decides the offsets of a file: the ones that are consistent with all files, or else those that it shows itself. Returns the
    /// interfaces whose offset from the reference is not known.
    fn complete(&self, file: &mut ClockOffsets) -> Vec<u16> {
        file.interfaces.sort_by_key(|interface| interface.number);
        if !file.is_related
            && let Some(lowest) = file.interfaces.first().and_then(|lowest| lowest.ahead)
        {
            file.shift(lowest.negated());
        }
        let mut unknown = Vec::new();
        for interface in &mut file.interfaces {
            let known = match interface.ahead.filter(|_| file.is_related) {
                Some(own) => {
                    let ranges = self.ahead.get(&interface.id);
                    let consistent = ranges
                        .into_iter()
                        .flatten()
                        .find(|range| range.intersection(own).is_some());
                    Some(*consistent.unwrap_or(&own))
                }
                None => self.ahead_of(&interface.id),
            };
            if known.is_none() {
                unknown.push(interface.number);
            }
            interface.offset = known.or(interface.ahead).and_then(Range::offset);
        }
        let in_file = self
            .reference
            .as_ref()
            .and_then(|(_, id)| file.interfaces.iter().find(|interface| interface.id == *id));
        file.reference = match (in_file, file.is_related) {
            (Some(reference), _) => Some(reference.number),
            (None, true) => self.reference.as_ref().map(|(number, _)| *number),
            (None, false) => file.interfaces.first().map(|lowest| lowest.number),
        };
        unknown
    }
}

/// Returns whether a file may have several interfaces: a pcapng file may describe them anywhere between its frames, so only its
/// end shows how many there are. Read errors are reported by the replay.
fn may_have_several_interfaces(file: &Path) -> bool {
    // Before the first frame is read, a pcap file has its one interface, and a pcapng file none.
    open(file).is_ok_and(|reader| reader.interfaces() == 0)
}

/// The comparison of the clocks of a file's interfaces: the first one, and the others with it.
#[derive(Debug, Default)]
struct Comparison {
    first: Option<InterfaceTimes>,
    others: Vec<ClockComparison>,
}

impl Comparison {
    /// Adds the next frame of the file. A time that is out of sequence on its own interface is wrong, or the clock was set: it is
    /// not compared.
    fn add(&mut self, interface: u16, ts: Nanos) {
        if ts == 0 {
            // A simple packet block has no time.
            return;
        }
        let Some(first) = &mut self.first else {
            self.first = Some(InterfaceTimes::new(interface, ts));
            return;
        };
        if first.interface == interface {
            first.observe(ts);
            for other in &mut self.others {
                other.precede(first);
            }
        } else if let Some(other) = self
            .others
            .iter_mut()
            .find(|other| other.times.interface == interface)
        {
            other.times.observe(ts);
            other.follow(first);
        } else if self.others.len() < MAX_COMPARED {
            self.others.push(ClockComparison {
                times: InterfaceTimes::new(interface, ts),
                min_ahead: None,
                max_ahead: None,
            });
        }
    }

    /// Returns the differences from the clock of the first interface.
    fn offsets(&self, reader: &Reader) -> ClockOffsets {
        let first = self
            .first
            .as_ref()
            .map(|first| (first.interface, Some(Range::ZERO)));
        let others = self
            .others
            .iter()
            .map(|other| (other.times.interface, other.ahead()));
        let interfaces = first.into_iter().chain(others).map(|(number, ahead)| {
            let id = reader.interface_id(number).cloned();
            InterfaceOffset {
                number,
                id: id.unwrap_or(InterfaceId::Number(number)),
                ahead,
                offset: ahead.and_then(Range::offset),
            }
        });
        ClockOffsets {
            reference: first.map(|(number, _)| number),
            interfaces: interfaces.collect(),
            is_related: false,
        }
    }
}

/// The times of an interface's frames.
#[derive(Clone, Copy, Debug)]
struct InterfaceTimes {
    interface: u16,
    sequence: Sequence,
    /// The time of the latest frame, unless it is out of sequence.
    time: Option<i128>,
}

impl InterfaceTimes {
    /// Begins with the first frame, whose time nothing confirms.
    fn new(interface: u16, ts: Nanos) -> Self {
        Self {
            interface,
            sequence: Sequence::new(ts),
            time: None,
        }
    }

    fn observe(&mut self, ts: Nanos) {
        self.time = self.sequence.is_near(ts).then_some(i128::from(ts));
        self.sequence.follow(ts);
    }
}

/// Comparison of an interface's clock with the first interface's, ns.
#[derive(Clone, Copy, Debug)]
struct ClockComparison {
    times: InterfaceTimes,
    /// Lower bound on how far this clock is ahead, from a frame of the first interface that follows one of this interface.
    min_ahead: Option<i128>,
    /// Upper bound, from the reverse order.
    max_ahead: Option<i128>,
}

impl ClockComparison {
    /// Compares the latest frame of the first interface, which follows those of this one.
    fn precede(&mut self, first: &InterfaceTimes) {
        if let (Some(first), Some(other)) = (first.time, self.times.time) {
            self.min_ahead = self.min_ahead.max(Some(other - first));
        }
    }

    /// Compares the latest frame of this interface, which follows those of the first one.
    fn follow(&mut self, first: &InterfaceTimes) {
        if let (Some(first), Some(other)) = (first.time, self.times.time) {
            let ahead = other - first;
            self.max_ahead = Some(self.max_ahead.map_or(ahead, |max| max.min(ahead)));
        }
    }

    /// Returns the range in which the difference lies; `None` without both bounds, and if not even two clocks explain the order of
    /// the frames, because one was set during the capture.
    fn ahead(&self) -> Option<Range> {
        Range::between(self.min_ahead?, self.max_ahead?)
    }
}
