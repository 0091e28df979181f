//! Replays captures through a collector, in the capture's own time: ticks and timers follow the frames' timestamps, so that a
//! capture always yields the same results at any speed.

mod clocks;

use std::path::Path;
use std::time::{Duration, Instant};

use collector::event::{SECOND, SET_BACK};
use collector::{Collector, Datagram, Output};
use nic::capture::{BURST, Frame};

pub use self::clocks::Difference;
use self::clocks::{Clocks, Stamp, Time};
use crate::capture::{self, Account, Beginning, ClockOffsets, NoDatagram, Refused, Sequence, first_time};
use crate::datagram::{AggregatePorts, Contents, octets};

/// Speed of the replay, relative to the capture.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Speed {
    /// As fast as this machine can.
    Max,
    /// A multiple of the capture's original speed.
    Times(f64),
}

/// Interval of ticks in capture time, ns; a running collector ticks as often.
const TICK: u64 = 20_000_000;
/// Maximum number of ticks during a gap in the capture.
const MAX_TICKS: u64 = 10_000;
/// Maximum number of datagrams that wait until the first time is certain.
const MAX_AT_START: usize = 64;
/// Upper bound of all timers besides the flow timeout, ns. The longest are the end of a minute and rounds through all flows.
const OTHER_TIMERS: u64 = 300 * SECOND;

/// The output of a replay.
pub trait ReplayOutput: Output {
    /// Called once in each second of capture time, before its first tick, and at the end.
    fn second(&mut self, collector: &Collector) {
        let _ = collector;
    }

    /// Called after each tick; `now` is capture time in ns.
    fn ticked(&mut self, collector: &Collector, now: u64) {
        let _ = (collector, now);
    }
}

/// Settings of a replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// Speed of the replay, relative to the capture.
    pub speed: Speed,
    /// UDP ports of reports and aggregates. A port's index is its listener's index.
    pub ports: Vec<u16>,
    /// The subset of the ports that receive aggregates.
    pub aggregate_ports: AggregatePorts,
}

/// A replay in progress.
#[derive(Debug)]
pub struct Replay<O> {
    collector: Collector,
    output: O,
    /// Datagrams since the last call of [`Replay::tick`].
    datagrams_since_tick: usize,
    pace: Pace,
    /// Capture time of the last tick, ns.
    last_tick: u64,
    /// Time without datagrams after which no timer is pending, ns.
    longest_timer: u64,
    /// The receive times so far.
    sequence: Sequence,
    /// The first datagrams, until their times show which one is right.
    first: Vec<Held>,
    /// The clocks of each file, in the order of [`Replay::begin`]; `file` indexes the current one.
    clocks: Vec<Clocks>,
    file: usize,
    /// A datagram far ahead of the others, until the next one confirms or refutes its time.
    held: Option<Held>,
    ignored_times: IgnoredTimes,
    aggregate_ports: AggregatePorts,
    ports: Vec<u16>,
}

/// The result of a replay.
#[derive(Debug)]
pub struct Replayed<O> {
    /// The collector, which has emitted all results.
    pub collector: Collector,
    /// The output passed to [`Replay::new`].
    pub output: O,
    /// Detected differences between the clocks of interfaces.
    pub differences: Vec<Difference>,
    /// Numbers of datagrams whose times were not used.
    pub ignored_times: IgnoredTimes,
    /// True if the last datagram is more than 10 s ahead of those before it: after a pause, or with a wrong time. Its time was not
    /// used.
    pub has_unconfirmed_end: bool,
}

/// Numbers of datagrams whose times were not used, or that have none: they were processed at the latest time, and those before the
/// first right time at that one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct IgnoredTimes {
    /// Times more than 10 s ahead of those before and after them, before a frame without a time, or in the last datagram.
    pub ahead: u64,
    /// Times more than 2 s behind the latest one, without or before another one that sets the clock back.
    pub behind: u64,
    /// Frames without a time, if others have one.
    pub absent: u64,
}

/// A datagram without its payload.
#[derive(Clone, Copy, Debug)]
struct Header {
    source: [u8; 16],
    src_port: u16,
    dst_port: u16,
    listener: u16,
    /// The file that it came from, and its time and interface there.
    file: usize,
    stamp: Stamp,
}

impl Header {
    fn is_from_interface_of(&self, other: &Self) -> bool {
        self.file == other.file && self.stamp.interface == other.stamp.interface
    }

    /// Returns the datagram with this header, received at `ts`.
    fn datagram<'a>(&self, payload: &'a [u8], ts: u64) -> Datagram<'a> {
        Datagram {
            payload,
            source: self.source,
            src_port: self.src_port,
            listener: self.listener,
            received: ts,
        }
    }
}

/// A copy of a datagram whose time is not certain. The next ones show whether it is right.
#[derive(Debug)]
struct Held {
    header: Header,
    payload: Vec<u8>,
    /// The time on the clock of the reference, ns.
    ts: u64,
}

/// Datagrams with the same contents, to process together.
struct Burst<'a> {
    datagrams: [Datagram<'a>; BURST],
    len: usize,
    contents: Contents,
}

impl Burst<'_> {
    fn new() -> Self {
        let unused = Datagram {
            payload: &[],
            source: [0; 16],
            src_port: 0,
            listener: 0,
            received: 0,
        };
        Self {
            datagrams: [unused; BURST],
            len: 0,
            contents: Contents::Reports,
        }
    }
}

impl<O: ReplayOutput> Replay<O> {
    /// Creates a replay through a new collector.
    pub fn new(config: collector::Config, output: O, options: Options) -> Self {
        let pace = Pace {
            speed: options.speed,
            begin: None,
        };
        let longest_timer = config.flow_timeout.saturating_add(OTHER_TIMERS);
        Self {
            collector: Collector::new(config),
            output,
            datagrams_since_tick: 0,
            pace,
            last_tick: 0,
            longest_timer,
            sequence: Sequence::default(),
            first: Vec::new(),
            clocks: Vec::new(),
            file: 0,
            held: None,
            ignored_times: IgnoredTimes::default(),
            aggregate_ports: options.aggregate_ports,
            ports: options.ports,
        }
    }

    /// Begins the next file, whose interfaces have separate clocks.
    pub fn begin(&mut self, file: &Path) {
        self.clocks.push(Clocks::new(file));
        self.file = self.clocks.len() - 1;
    }

    /// Begins the next file, like [`Replay::begin`], with the offsets of its clocks.
    pub fn begin_with_offsets(&mut self, file: &Path, offsets: ClockOffsets) {
        self.clocks.push(Clocks::with_offsets(file, offsets));
        self.file = self.clocks.len() - 1;
    }

    /// Switches to a file that was begun earlier, by index.
    pub fn resume(&mut self, file: usize) {
        self.file = file;
    }

    /// Processes the datagrams of the current file, and counts its frames in `account`. Call [`Replay::begin`] before.
    pub fn add<'a>(&mut self, frames: impl Iterator<Item = Frame<'a>>, account: &mut Account) {
        let mut burst = Burst::new();
        for frame in frames {
            account.frames += 1;
            let (datagram, listener) = match capture::telemetry(&frame, &self.ports, account) {
                Ok(telemetry) => telemetry,
                // A frame with malformed headers is in the account already.
                Err(no_datagram) => {
                    if let NoDatagram::Refused(Refused {
                        beginning: Some(beginning),
                        ..
                    }) = no_datagram
                    {
                        self.handle(&mut burst);
                        self.observe_beginning(&frame, &beginning);
                    }
                    continue;
                }
            };
            let header = Header {
                source: octets(datagram.src),
                src_port: datagram.src_port,
                dst_port: datagram.dst_port,
                listener: listener as u16,
                file: self.file,
                stamp: Stamp::of(&frame),
            };
            if self.sequence.latest == 0 {
                self.hold_first(header, datagram.payload);
            } else {
                self.process(&mut burst, header, datagram.payload);
            }
        }
        self.handle(&mut burst);
    }

    /// Adds a datagram to the first ones, and processes them when it is certain which of their times is right: two times of one
    /// interface that are near each other, or three of them, are enough.
    #[cold]
    fn hold_first(&mut self, header: Header, payload: &[u8]) {
        let clocks = self.clocks.get(header.file);
        self.first.push(Held {
            header,
            payload: payload.to_vec(),
            ts: clocks.map_or(header.stamp.ts, |clocks| clocks.known_time(header.stamp)),
        });
        let is_certain = match self.first_times()[..] {
            [first, second] => Sequence::new(first).is_near(second),
            [_, _, ..] => true,
            _ => false,
        };
        if is_certain || self.first.len() == MAX_AT_START {
            self.process_first();
        }
    }

    /// Returns the times of the first datagrams that are from the interface of the first one with a time.
    fn first_times(&self) -> Vec<u64> {
        let mut with_time = self.first.iter().filter(|held| held.header.stamp.ts != 0);
        let Some(first) = with_time.next() else {
            return Vec::new();
        };
        let others = with_time.filter(|held| held.header.is_from_interface_of(&first.header));
        std::iter::once(first).chain(others).map(|held| held.ts).collect()
    }

    /// Begins at the first right time, and processes the first datagrams.
    fn process_first(&mut self) {
        if self.first.is_empty() {
            return;
        }
        self.sequence = Sequence::new(first_time(&self.first_times()).unwrap_or(0));
        let mut burst = Burst::new();
        let first = std::mem::take(&mut self.first);
        for held in &first {
            self.process(&mut burst, held.header, &held.payload);
        }
        self.handle(&mut burst);
    }

    /// Processes a datagram at its time, or at the latest one if its own is wrong.
    #[inline]
    fn process<'a>(&mut self, burst: &mut Burst<'a>, header: Header, payload: &'a [u8]) {
        if self.held.is_some() {
            self.handle(burst);
            self.decide_held(&header);
        }
        let Some(clocks) = self.clocks.get_mut(header.file) else {
            return;
        };
        let ts = match clocks.time(header.stamp, &self.sequence) {
            Time::At(ts) => ts,
            Time::SetBack(ts) => {
                self.handle(burst);
                self.set_back(ts);
                ts
            }
            Time::Behind => {
                self.ignored_times.behind += 1;
                self.sequence.latest
            }
            Time::Absent => {
                self.ignored_times.absent += 1;
                self.sequence.latest
            }
            Time::Ahead(ts) => {
                self.held = Some(Held {
                    header,
                    payload: payload.to_vec(),
                    ts,
                });
                return;
            }
        };
        self.push(burst, header.datagram(payload, ts), header.dst_port);
    }

    /// Accounts for the sequence number of a datagram of which the frame has only the beginning: it was not lost before the
    /// capture, and it is counted as refused.
    #[cold]
    fn observe_beginning(&mut self, frame: &Frame<'_>, beginning: &Beginning<'_>) {
        let clocks = self.clocks.get(self.file);
        let ts = clocks.map_or(frame.ts, |clocks| clocks.known_time(Stamp::of(frame)));
        let latest = self.sequence.latest;
        let datagram = Datagram {
            payload: beginning.payload,
            source: octets(beginning.src),
            src_port: beginning.src_port,
            listener: beginning.listener as u16,
            // The frame may have a wrong time, and lets no time pass.
            received: if self.sequence.is_near(ts) {
                ts.max(latest)
            } else {
                latest
            },
        };
        let collector = &mut self.collector;
        let output = &mut self.output;
        match self.aggregate_ports.contents(beginning.dst_port) {
            Contents::Reports => collector.observe_refused(&datagram, output),
            Contents::Aggregates => collector.observe_refused_aggregate(&datagram, output),
            Contents::LaterReports(_) => {}
        }
    }

    /// Advances the capture time to a datagram's receive time, and adds the datagram to the burst.
    #[inline]
    fn push<'a>(&mut self, burst: &mut Burst<'a>, datagram: Datagram<'a>, dst_port: u16) {
        let ts = datagram.received;
        if self.pace.is_early(ts) {
            self.handle(burst);
            self.tick();
            self.pace.wait(ts);
        }
        if self.sequence.latest > 0 && ts.saturating_sub(self.sequence.latest) > TICK {
            self.handle(burst);
            self.pass_time(ts);
        }
        let contents = self.aggregate_ports.contents(dst_port);
        if contents != burst.contents {
            self.handle(burst);
            burst.contents = contents;
        }
        burst.datagrams[burst.len] = datagram;
        burst.len += 1;
        self.sequence.advance(ts);
        self.datagrams_since_tick += 1;
        if self.datagrams_since_tick == BURST {
            self.handle(burst);
            self.tick();
        }
    }

    /// Processes the held datagram, now that `next` follows it. If `next` continues from the datagrams before, the held time
    /// is wrong, and the preceding datagram's time replaces it. If `next` is even earlier, the clock was set back, and the
    /// held time is right. If `next` has no time, the held time remains unconfirmed and is replaced as well: after a pause, the
    /// next time as far ahead shows it.
    #[cold]
    fn decide_held(&mut self, next: &Header) {
        let Some(held) = self.held.take() else { return };
        let clocks = self.clocks.get(next.file);
        let time = clocks.map_or(next.stamp.ts, |clocks| clocks.known_time(next.stamp));
        let continues = !self.sequence.is_behind(time) && time < held.ts.saturating_sub(SET_BACK);
        let is_ignored = continues || next.stamp.ts == 0;
        if is_ignored {
            self.ignore_held(&held);
        } else {
            self.push_held(&held, held.ts);
        }
    }

    /// Processes the held datagram at the latest time.
    fn ignore_held(&mut self, held: &Held) {
        self.ignored_times.ahead += 1;
        let Header { file, stamp, .. } = held.header;
        if let Some(clocks) = self.clocks.get_mut(file) {
            clocks.mark_wrong_time(stamp.interface, held.ts);
        }
        self.push_held(held, self.sequence.latest);
    }

    fn push_held(&mut self, held: &Held, ts: u64) {
        let mut burst = Burst::new();
        let datagram = held.header.datagram(&held.payload, ts);
        self.push(&mut burst, datagram, held.header.dst_port);
        self.handle(&mut burst);
    }

    /// Processes the datagrams of a burst and empties it.
    fn handle(&mut self, burst: &mut Burst<'_>) {
        let datagrams = &burst.datagrams[..std::mem::take(&mut burst.len)];
        match burst.contents {
            _ if datagrams.is_empty() => {}
            Contents::Reports => self.collector.handle(datagrams, &mut self.output),
            Contents::LaterReports(first) => {
                self.collector
                    .handle_later_reports(datagrams, first, &mut self.output)
            }
            Contents::Aggregates => self.collector.handle_aggregates(datagrams, &mut self.output),
        }
    }

    /// Runs a tick if one is due. It is called after a fixed number of datagrams, however the frames are grouped into bursts,
    /// so that a capture always yields the same results.
    fn tick(&mut self) {
        if std::mem::take(&mut self.datagrams_since_tick) == 0 {
            return;
        }
        self.tick_at(self.sequence.latest);
    }

    /// Sets the capture time back to `ts` with a tick, as a running collector sees it.
    fn set_back(&mut self, ts: u64) {
        self.sequence = Sequence::new(ts);
        self.datagrams_since_tick = 0;
        self.pace.begin = None;
        self.tick_at(ts);
    }

    /// Lets the time from the latest datagram to `ts` pass with regular ticks, like an idle collector. In a long gap,
    /// everything has expired at some point, and the rest is skipped.
    fn pass_time(&mut self, ts: u64) {
        self.datagrams_since_tick = 0;
        let span = ts.saturating_sub(self.sequence.latest).min(self.longest_timer);
        let step = if span > SECOND {
            (SECOND / 10).max(span / MAX_TICKS)
        } else {
            TICK
        };
        for count in 0..=span / step {
            self.tick_at(self.sequence.latest.saturating_add(count * step));
        }
    }

    fn tick_at(&mut self, now: u64) {
        if now.abs_diff(self.last_tick) >= TICK {
            if now / SECOND != self.last_tick / SECOND {
                self.output.second(&self.collector);
            }
            self.last_tick = now;
            self.collector.tick(now, &mut self.output);
            self.output.ticked(&self.collector, now);
        }
    }

    /// Ends the replay. The collector emits all remaining results.
    pub fn finish(mut self) -> Replayed<O> {
        self.process_first();
        let held = self.held.take();
        let has_unconfirmed_end = held.is_some();
        if let Some(held) = held {
            self.ignore_held(&held);
        }
        self.tick();
        self.output.second(&self.collector);
        self.collector.finish(self.sequence.latest, &mut self.output);
        let mut differences = Vec::new();
        for clocks in self.clocks {
            clocks.append_differences(&mut differences);
        }
        Replayed {
            collector: self.collector,
            output: self.output,
            differences,
            ignored_times: self.ignored_times,
            has_unconfirmed_end,
        }
    }
}

/// Paces the capture time by the wall clock.
#[derive(Debug)]
struct Pace {
    speed: Speed,
    /// The first timestamp, ns, and the wall-clock time at which it was read.
    begin: Option<(u64, Instant)>,
}

impl Pace {
    /// Returns the time until `ts` is due, or `None` if it is due already or the speed is unlimited.
    fn time_until(&mut self, ts: u64) -> Option<Duration> {
        let Speed::Times(times) = self.speed else {
            return None;
        };
        let (first, first_read) = *self.begin.get_or_insert((ts, Instant::now()));
        let offset = Duration::from_nanos(ts.saturating_sub(first)).div_f64(times);
        offset
            .checked_sub(first_read.elapsed())
            .filter(|wait| !wait.is_zero())
    }

    fn is_early(&mut self, ts: u64) -> bool {
        self.time_until(ts).is_some()
    }

    fn wait(&mut self, ts: u64) {
        if let Some(wait) = self.time_until(ts) {
            std::thread::sleep(wait);
        }
    }
}

#[cfg(test)]
mod tests;
