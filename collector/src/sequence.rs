//! Loss, reordering and duplicates, from the sequence numbers of reports.
//!
//! # The algorithm
//!
//! A **stream** is what numbers its datagrams by itself: (version, node id, `hw_id`, listener) for reports 1.0 and 2.0,
//! (version, source address, `hw_id`, listener) for 0.5, which carries no node id; the listener stands for "our address"
//! in the specification. Numbers count datagrams, modulo 2^22 in 2.0 and 2^32 in 1.0 and 0.5, and are compared by serial
//! arithmetic: of two numbers the nearer way round the circle decides which is the later.
//!
//! Per stream we keep the highest number seen and a **window** of the [`WINDOW`] numbers up to it, one bit each: here, or
//! still missing. With `d` = number − highest:
//!
//! | d | what it is | what is counted |
//! | --- | --- | --- |
//! | 1 | the next | nothing |
//! | > 1 | a gap opens: `d - 1` are missing, none is lost yet | a missing number that falls out of the window: **lost** |
//! | 0 or in the window, here already | | **duplicated** |
//! | in the window, missing | late | **reordered** |
//! | further back than the window, or ahead by more than [`FAR`] | a stray, a restart or a long outage: the next number decides | see below |
//!
//! **Far away.** One number far back may be a very late packet, one far ahead a spoilt or a forged one: by itself it is
//! not believed. If the next one follows it (by at most a window), then far back the reporter has restarted: what was
//! missing is lost, counting starts again there; far ahead everything between is lost. If not, the first was a stray and
//! counts as reordered (if it was counted lost when the window passed it, it is not taken back). A jump *forward* that
//! lands among the first [`WINDOW`] numbers of the circle is a restart too: modulo 2^22 a reporter that begins again at 0
//! lies "ahead" of every number in the upper half, and losing exactly up to the wrap is far less likely.
//!
//! **Start.** Nothing before the first number is expected. A number from before it counts as reordered.
//!
//! **Not countable.** A stream whose number never moves (many devices send 0 for ever) is *not countable*: neither lost
//! nor duplicated means anything there, and [`StreamView::countable`] says so. A stream becomes countable with its first
//! move, and stops being so when one number comes [`STILL`] times in a row.
//!
//! **Silence.** What is missing in a stream that has been silent for [`SETTLE`] (or at [`Sequencer::finish`]) is counted
//! lost; if it still comes, it counts as reordered as well.
//!
//! So, for a countable stream without restarts: numbers from first to highest = datagrams − duplicated − strays + lost +
//! still missing.

mod run;

pub use run::Run;

use crate::event::{Loss, Nanos, SequenceEvent, SequenceEventKind, Sink};
use crate::index::{BUSY, Index, NO_SLOT, Room};
use crate::stream::{StreamId, pack};

/// How many numbers back a late one is told from a restart.
pub const WINDOW: u32 = u128::BITS;
/// A forward jump of more than this is believed when the next number follows it.
pub const FAR: u32 = 1 << 16;
/// One number this many times in a row: the stream does not count.
pub const STILL: u32 = 64;
/// Silence after which what is missing is lost.
pub const SETTLE: Nanos = 2_000_000_000;

/// Totals of one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamView {
    /// Which.
    pub id: StreamId,
    /// Datagrams received.
    pub datagrams: u64,
    /// Lost for good.
    pub lost: u64,
    /// Arrived late.
    pub reordered: u64,
    /// Arrived again.
    pub duplicated: u64,
    /// Times the reporter began again.
    pub restarts: u64,
    /// Does its number move? If not, the counters above mean nothing.
    pub countable: bool,
    /// Missing, and not given up yet.
    pub missing: u32,
    /// Receive time of the latest datagram.
    pub last_seen: Nanos,
}

#[derive(Clone, Debug)]
struct Stream {
    id: StreamId,
    /// [`pack`]ed, where there is a node id.
    packed: u64,
    /// Bits of 32 that the circle does not use.
    unused: u8,
    /// Its number moves, did not stand still last time, and none is under suspicion.
    steady: bool,
    window: u128,
    highest: u32,
    /// How many numbers up to the highest are accounted for, at most [`WINDOW`].
    known: u32,
    suspect: Option<u32>,
    still: u32,
    moved: bool,
    datagrams: u64,
    lost: u64,
    reordered: u64,
    duplicated: u64,
    restarts: u64,
    /// Lost, reordered, duplicated as last told.
    told: [u64; 3],
    last_seen: Nanos,
}

impl Stream {
    fn new(id: StreamId, number: u32, now: Nanos) -> Self {
        Self {
            id,
            packed: id.node.map_or(u64::MAX, |node| pack(id.version, id.hw_id, id.listener, node)),
            unused: (32 - id.bits()) as u8,
            steady: false,
            window: u128::MAX,
            highest: number,
            known: 1,
            suspect: None,
            still: 0,
            moved: false,
            datagrams: 1,
            lost: 0,
            reordered: 0,
            duplicated: 0,
            restarts: 0,
            told: [0; 3],
            last_seen: now,
        }
    }

    /// How far `number` lies after `from`, negative when before.
    #[inline]
    fn distance(&self, number: u32, from: u32) -> i32 {
        // At most 10, which the compiler cannot know.
        let unused = u32::from(self.unused) & 31;
        (number.wrapping_sub(from) << unused).cast_signed() >> unused
    }

    #[inline]
    fn before(&self, number: u32, by: u32) -> u32 {
        number.wrapping_sub(by) & (u32::MAX >> (32 - self.id.bits()))
    }

    #[inline(always)]
    fn observe(&mut self, number: u32, now: Nanos, sink: &mut dyn Sink) {
        self.datagrams = self.datagrams.wrapping_add(1);
        self.last_seen = now;
        let ahead = self.distance(number, self.highest);
        // The steady state: the next number, nothing missing at the window's far end, nothing under suspicion.
        if ahead == 1 && self.steady && self.window >> 127 == 1 {
            self.highest = number;
            self.window = self.window << 1 | 1;
            self.known = self.known.wrapping_add(1).min(WINDOW);
        } else {
            self.observe_odd(number, ahead, now, sink);
            self.steady = self.moved && self.still == 0 && self.suspect.is_none();
        }
    }

    #[cold]
    #[inline(never)]
    fn observe_odd(&mut self, number: u32, ahead: i32, now: Nanos, sink: &mut dyn Sink) {
        if ahead == 0 {
            self.repeat(number, now, sink);
            return;
        }
        if !self.begin_to_move(number) {
            return;
        }
        let distance = ahead.unsigned_abs();
        if distance > FAR || (ahead < 0 && distance >= WINDOW) {
            self.look_far(number, now, sink);
        } else if ahead > 0 {
            self.settle_suspect(now, sink);
            self.advance(number, distance, now, sink);
        } else {
            self.look_back(number, distance, now, sink);
        }
    }

    /// The number moves. `false`: it began to move only now, and counting starts here.
    fn begin_to_move(&mut self, number: u32) -> bool {
        let still = std::mem::take(&mut self.still);
        if self.moved {
            return true;
        }
        self.moved = true;
        if still < STILL {
            // Few repeats of the very first number: duplicates after all.
            self.duplicated += u64::from(still);
            return true;
        }
        self.begin(number);
        false
    }

    fn begin(&mut self, number: u32) {
        self.window = u128::MAX;
        self.highest = number;
        self.known = 1;
        self.suspect = None;
    }

    fn repeat(&mut self, number: u32, now: Nanos, sink: &mut dyn Sink) {
        // Devices whose number never moves go on for ever.
        self.still = self.still.saturating_add(1);
        if self.moved {
            self.duplicated += 1;
            self.note(now, SequenceEventKind::Duplicate(number), sink);
            if self.still >= STILL {
                self.moved = false;
            }
        }
    }

    fn advance(&mut self, number: u32, by: u32, now: Nanos, sink: &mut dyn Sink) {
        self.give_up(by.min(WINDOW), now, sink);
        if by > WINDOW {
            let first = self.before(number, by - 1);
            self.lose(first, by - WINDOW, now, sink);
        }
        self.window = if by >= WINDOW { 1 } else { self.window << by | 1 };
        self.known = self.known.saturating_add(by).min(WINDOW);
        self.highest = number;
        if by > 1 {
            self.note(
                now,
                SequenceEventKind::Gap { first: self.before(number, by - 1), count: by - 1 },
                sink,
            );
        }
    }

    /// Counts as lost what is missing among the oldest `count` numbers of the window.
    fn give_up(&mut self, count: u32, now: Nanos, sink: &mut dyn Sink) {
        let mut missing = !self.window;
        if count < WINDOW {
            missing &= !(u128::MAX >> count);
        }
        // Runs of missing numbers, the oldest first.
        while missing != 0 {
            let oldest = WINDOW - 1 - missing.leading_zeros();
            let run = (missing << missing.leading_zeros()).leading_ones();
            self.lose(self.before(self.highest, oldest), run, now, sink);
            missing &= !(mask(run) << (oldest + 1 - run));
        }
    }

    fn lose(&mut self, first: u32, count: u32, now: Nanos, sink: &mut dyn Sink) {
        self.lost += u64::from(count);
        self.note(now, SequenceEventKind::Lost { first, count }, sink);
    }

    fn look_back(&mut self, number: u32, back: u32, now: Nanos, sink: &mut dyn Sink) {
        if back >= self.known {
            self.reordered += 1;
            self.note(now, SequenceEventKind::Late(number), sink);
        } else if self.window >> back & 1 == 1 {
            self.duplicated += 1;
            self.note(now, SequenceEventKind::Duplicate(number), sink);
        } else {
            self.window |= 1 << back;
            self.reordered += 1;
            self.note(now, SequenceEventKind::Late(number), sink);
        }
    }

    fn look_far(&mut self, number: u32, now: Nanos, sink: &mut dyn Sink) {
        if let Some(suspect) = self.suspect
            && let ahead = self.distance(number, suspect)
            && (1..=WINDOW.cast_signed()).contains(&ahead)
        {
            match self.distance(suspect, self.highest) {
                gap if gap > 0 && suspect >= WINDOW => {
                    self.suspect = None;
                    self.advance(suspect, gap.unsigned_abs(), now, sink);
                }
                _ => self.restart(suspect, now, sink),
            }
            self.advance(number, ahead.unsigned_abs(), now, sink);
            return;
        }
        self.settle_suspect(now, sink);
        self.suspect = Some(number);
    }

    fn settle_suspect(&mut self, now: Nanos, sink: &mut dyn Sink) {
        if let Some(stray) = self.suspect.take() {
            self.reordered += 1;
            self.note(now, SequenceEventKind::Stray(stray), sink);
        }
    }

    fn restart(&mut self, number: u32, now: Nanos, sink: &mut dyn Sink) {
        self.give_up(WINDOW, now, sink);
        self.begin(number);
        self.restarts += 1;
        self.note(now, SequenceEventKind::Restart(number), sink);
    }

    /// Counts as lost everything that is missing.
    fn settle(&mut self, now: Nanos, sink: &mut dyn Sink) {
        self.settle_suspect(now, sink);
        if self.window != u128::MAX {
            self.give_up(WINDOW, now, sink);
            self.window = u128::MAX;
            self.known = 1;
        }
    }

    /// Tells what was counted since the last time.
    fn tell(&mut self, now: Nanos, sink: &mut dyn Sink) -> Option<Loss> {
        let counted = [self.lost, self.reordered, self.duplicated];
        if counted == self.told || !self.moved {
            return None;
        }
        let loss = Loss {
            ts: now,
            node: self.id.node,
            source: self.id.source,
            hw_id: self.id.hw_id,
            lost: counted[0] - self.told[0],
            reordered: counted[1] - self.told[1],
            duplicated: counted[2] - self.told[2],
        };
        self.told = counted;
        sink.loss(&loss);
        Some(loss)
    }

    fn note(&self, ts: Nanos, kind: SequenceEventKind, sink: &mut dyn Sink) {
        sink.sequence(&SequenceEvent { ts, stream: self.id, kind });
    }

    fn view(&self) -> StreamView {
        StreamView {
            id: self.id,
            datagrams: self.datagrams,
            lost: self.lost,
            reordered: self.reordered,
            duplicated: self.duplicated,
            restarts: self.restarts,
            countable: self.moved,
            missing: self.window.count_zeros(),
            last_seen: self.last_seen,
        }
    }
}

fn mask(bits: u32) -> u128 {
    if bits >= WINDOW { u128::MAX } else { (1 << bits) - 1 }
}

/// Loss accounting for a bounded number of streams. Stands alone: where one thread receives and others work, the
/// receiving thread owns it, since only there do the numbers come in order.
///
/// A full table gives up the stream that was heard least in the last minute; one that is heard often is never given up,
/// and the newcomer is then refused (its reports are handled, their loss is not counted).
#[derive(Debug)]
pub struct Sequencer {
    streams: Vec<Stream>,
    capacity: usize,
    index: Index,
    seed: u64,
    latest: u32,
    evicted: u64,
    refused: u64,
    /// Lost in streams that were given up.
    gone: u64,
}

impl Sequencer {
    /// Room for `capacity` streams; the seed is that of the hash.
    pub fn new(capacity: usize, seed: u64) -> Self {
        Self {
            streams: Vec::with_capacity(capacity),
            capacity,
            index: Index::with_capacity(capacity),
            seed,
            latest: u32::MAX,
            evicted: 0,
            refused: 0,
            gone: 0,
        }
    }

    /// A datagram with this number arrived; `false`, and nothing done, if its stream is not the one that was heard last.
    #[inline(always)]
    pub(crate) fn observe_latest(
        &mut self,
        packed: u64,
        number: u32,
        now: Nanos,
        sink: &mut dyn Sink,
    ) -> bool {
        match self.streams.get_mut(self.latest as usize) {
            Some(stream) if stream.packed == packed => {
                stream.observe(number, now, sink);
                true
            }
            _ => false,
        }
    }

    /// A datagram with this number arrived.
    pub fn observe(&mut self, id: &StreamId, number: u32, now: Nanos, sink: &mut dyn Sink) {
        if let Some(stream) = self.streams.get_mut(self.latest as usize)
            && stream.id.is(id)
        {
            stream.observe(number, now, sink);
            return;
        }
        self.observe_other(id, number, now, sink);
    }

    #[inline(never)]
    fn observe_other(&mut self, id: &StreamId, number: u32, now: Nanos, sink: &mut dyn Sink) {
        let hash = id.hash(self.seed);
        let streams = &self.streams;
        let slot = self.index.find(hash, |slot| streams[slot as usize].id.is(id));
        if slot != NO_SLOT {
            self.index.touch(hash, slot, 1, eon(now));
            self.latest = slot;
            self.streams[slot as usize].observe(number, now, sink);
            return;
        }
        self.warm_latest(now);
        match self.index.room(hash, eon(now), self.streams.len() == self.capacity) {
            Room::Free(place) => {
                let slot = self.streams.len() as u32;
                self.index.put(place, hash, slot, (1, eon(now)));
                self.streams.push(Stream::new(*id, number, now));
                self.latest = slot;
            }
            Room::Evict(place, slot) => {
                self.evict(slot, now, sink);
                self.index.put(place, hash, slot, (1, eon(now)));
                self.streams[slot as usize] = Stream::new(*id, number, now);
                self.latest = slot;
            }
            Room::Refused => self.refused += 1,
        }
    }

    /// The latest stream is found without the index, which therefore does not know that it is busy.
    fn warm_latest(&mut self, now: Nanos) {
        if let Some(stream) = self.streams.get(self.latest as usize)
            && stream.datagrams >= u64::from(BUSY)
        {
            let (hash, seen) = (stream.id.hash(self.seed), eon(stream.last_seen.min(now)));
            self.index.touch(hash, self.latest, u64::from(BUSY), seen);
        }
    }

    fn evict(&mut self, slot: u32, now: Nanos, sink: &mut dyn Sink) {
        let stream = &mut self.streams[slot as usize];
        stream.settle(now, sink);
        stream.tell(now, sink);
        self.gone += if stream.moved { stream.lost } else { 0 };
        self.evicted += 1;
    }

    /// Once per accounting interval: settles silent streams and tells what was counted since, one [`Loss`] per stream
    /// that counted anything. `told` hears of each.
    pub fn account(&mut self, now: Nanos, sink: &mut dyn Sink) {
        self.account_with(now, sink, |_, _| {});
    }

    pub(crate) fn account_with(
        &mut self,
        now: Nanos,
        sink: &mut dyn Sink,
        mut told: impl FnMut(&Loss, &mut dyn Sink),
    ) {
        for stream in &mut self.streams {
            if now.saturating_sub(stream.last_seen) >= SETTLE {
                stream.settle(now, sink);
            }
            if let Some(loss) = stream.tell(now, sink) {
                told(&loss, sink);
            }
        }
    }

    /// The end of the input: everything missing is lost, everything counted is told.
    pub fn finish(&mut self, now: Nanos, sink: &mut dyn Sink) {
        self.finish_with(now, sink, |_, _| {});
    }

    pub(crate) fn finish_with(
        &mut self,
        now: Nanos,
        sink: &mut dyn Sink,
        told: impl FnMut(&Loss, &mut dyn Sink),
    ) {
        for stream in &mut self.streams {
            stream.settle(now, sink);
        }
        self.account_with(now, sink, told);
    }

    /// Totals per stream, in the order they were first heard.
    pub fn streams(&self) -> impl ExactSizeIterator<Item = StreamView> {
        self.streams.iter().map(Stream::view)
    }

    /// Datagrams lost in streams that were given up since: what [`Sequencer::streams`] no longer shows.
    pub fn lost_before(&self) -> u64 {
        self.gone
    }

    /// Streams held, room for, given up, refused.
    pub fn table(&self) -> crate::stats::Table {
        crate::stats::Table {
            used: self.streams.len() as u64,
            capacity: self.capacity as u64,
            evicted: self.evicted,
            refused: self.refused,
        }
    }
}

/// The unit of heat for streams: 8.6 s, so that a reporter that sends once per second counts as busy.
fn eon(now: Nanos) -> u32 {
    (now >> 33) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const V10: StreamId = StreamId { version: 10, hw_id: 1, listener: 0, node: Some(7), source: [0; 16] };
    const V20: StreamId = StreamId { version: 20, ..V10 };

    #[derive(Default)]
    struct Notes(Vec<SequenceEventKind>, Vec<Loss>);

    impl Sink for Notes {
        fn sequence(&mut self, note: &SequenceEvent) {
            self.0.push(note.kind);
        }
        fn loss(&mut self, loss: &Loss) {
            self.1.push(*loss);
        }
    }

    /// Lost, reordered, duplicated, restarts, missing, countable.
    type Counted = (u64, u64, u64, u64, u32, bool);

    fn run(id: StreamId, numbers: impl IntoIterator<Item = u32>) -> (Counted, Vec<SequenceEventKind>) {
        let mut sequencer = Sequencer::new(4, 0);
        let mut notes = Notes::default();
        for (at, number) in numbers.into_iter().enumerate() {
            sequencer.observe(&id, number, at as Nanos, &mut notes);
        }
        let v = sequencer.streams().next().unwrap();
        ((v.lost, v.reordered, v.duplicated, v.restarts, v.missing, v.countable), notes.0)
    }

    #[test]
    fn the_table_of_the_module() {
        const M22: u32 = (1 << 22) - 1;
        let cases: [(&str, StreamId, Vec<u32>, Counted); 20] = [
            ("in order", V10, (5..300).collect(), (0, 0, 0, 0, 0, true)),
            ("a gap is missing, not lost", V10, vec![1, 2, 5], (0, 0, 0, 0, 2, true)),
            (
                "lost when it falls out",
                V10,
                [1, 2].into_iter().chain(5..=2 + 128 + 2).collect(),
                (2, 0, 0, 0, 0, true),
            ),
            ("one falls out", V10, [1, 2].into_iter().chain(5..=3 + 128).collect(), (1, 0, 0, 0, 1, true)),
            ("late, filled", V10, vec![1, 2, 5, 4, 3, 6], (0, 2, 0, 0, 0, true)),
            ("twice", V10, vec![1, 2, 2, 3], (0, 0, 1, 0, 0, true)),
            ("late and twice", V10, vec![1, 4, 2, 2], (0, 1, 1, 0, 1, true)),
            ("wrap of 32 bits", V10, vec![u32::MAX - 1, u32::MAX, 0, 1], (0, 0, 0, 0, 0, true)),
            ("gap over the wrap", V10, vec![u32::MAX - 1, 1, u32::MAX], (0, 1, 0, 0, 1, true)),
            ("wrap of 22 bits", V20, vec![M22 - 1, M22, 0, 1], (0, 0, 0, 0, 0, true)),
            ("late over the wrap of 22 bits", V20, vec![M22 - 1, 1, 0, M22], (0, 2, 0, 0, 0, true)),
            ("a jump wider than the window", V10, vec![1, 2, 1002], (1002 - 2 - 128, 0, 0, 0, 127, true)),
            ("before the first", V10, vec![10, 11, 9], (0, 1, 0, 0, 0, true)),
            ("restart", V10, (5000..5010).chain(0..10).collect(), (0, 0, 0, 1, 0, true)),
            ("restart with a gap open", V10, vec![5000, 5002, 5003, 0, 1, 2], (1, 0, 0, 1, 0, true)),
            (
                "restart from the upper half, 22 bits",
                V20,
                vec![3_000_000, 3_000_001, 0, 1],
                (0, 0, 0, 1, 0, true),
            ),
            ("a stray is no restart", V10, vec![5000, 5001, 4000, 5002, 5003], (0, 1, 0, 0, 0, true)),
            ("always 0", V10, vec![0; 1000], (0, 0, 0, 0, 0, false)),
            (
                "stood still, then counts",
                V10,
                [0; 100].into_iter().chain(500..510).collect(),
                (0, 0, 0, 0, 0, true),
            ),
            ("counts, then stands still", V10, (1..10).chain([9; 100]).collect(), (0, 0, 64, 0, 0, false)),
        ];
        for (name, id, numbers, expected) in cases {
            assert_eq!(run(id, numbers).0, expected, "{name}");
        }
    }

    #[test]
    fn a_number_far_ahead_is_believed_when_the_next_follows_it() {
        const FORGED: u32 = 2_000_000_000;
        const OUTAGE: u32 = 100_000;
        let cases: [(&str, StreamId, Vec<u32>, Counted); 4] = [
            (
                "one number far ahead is not believed",
                V10,
                vec![10, 11, FORGED, 12, 13],
                (0, 1, 0, 0, 0, true),
            ),
            (
                "nor many without order",
                V10,
                vec![10, 11, FORGED, 12, 3 * OUTAGE, 13, FORGED],
                (0, 2, 0, 0, 0, true),
            ),
            (
                "a long outage is, when the next one follows",
                V10,
                [10, 11].into_iter().chain(OUTAGE..OUTAGE + 200).collect(),
                (u64::from(OUTAGE) - 12, 0, 0, 0, 0, true),
            ),
            (
                "over the wrap too",
                V10,
                vec![u32::MAX - 5, u32::MAX - 4, OUTAGE, OUTAGE + 1],
                (u64::from(OUTAGE) + 4 - 126, 0, 0, 0, 126, true),
            ),
        ];
        for (name, id, numbers, expected) in cases {
            assert_eq!(run(id, numbers).0, expected, "{name}");
        }
    }

    #[test]
    fn each_gap_is_explained() {
        let numbers = [1, 2, 5, 4, 7].into_iter().chain(8..=3 + 128);
        assert_eq!(
            run(V10, numbers).1,
            [
                SequenceEventKind::Gap { first: 3, count: 2 },
                SequenceEventKind::Late(4),
                SequenceEventKind::Gap { first: 6, count: 1 },
                SequenceEventKind::Lost { first: 3, count: 1 },
            ]
        );
        assert_eq!(
            run(V10, [10, 11, 400, 3000, 11, 12]).1,
            [
                SequenceEventKind::Lost { first: 12, count: 261 },
                SequenceEventKind::Gap { first: 12, count: 388 },
                SequenceEventKind::Lost { first: 273, count: 127 },
                SequenceEventKind::Lost { first: 401, count: 2472 },
                SequenceEventKind::Gap { first: 401, count: 2599 },
                SequenceEventKind::Lost { first: 2873, count: 127 },
                SequenceEventKind::Restart(11),
            ]
        );
    }

    #[test]
    fn numbers_add_up_whatever_arrives() {
        for id in [V10, V20] {
            let mut jitter = crate::hash::Jitter::new(3);
            let mut sequencer = Sequencer::new(4, 0);
            let (mut notes, mut number) = (Notes::default(), 4_194_000_u32);
            let first = number;
            let mut highest = number;
            let modulo = |n: u32| if id.version == 20 { n & 0x3f_ffff } else { n };
            sequencer.observe(&id, modulo(first), 0, &mut notes);
            for at in 1..100_000 {
                number = match jitter.around(20) {
                    1..=4 => highest.wrapping_add(jitter.around(50)),
                    5..=8 => highest - jitter.around(60).min(highest - first),
                    _ => highest + 1,
                };
                highest = highest.max(number);
                sequencer.observe(&id, modulo(number), at, &mut notes);
            }
            let v = sequencer.streams().next().unwrap();
            let span = u64::from(highest - first) + 1;
            assert_eq!(span, v.datagrams - v.duplicated + v.lost + u64::from(v.missing), "{v:?}");
            let lost: u64 = notes
                .0
                .iter()
                .map(|n| if let SequenceEventKind::Lost { count, .. } = n { u64::from(*count) } else { 0 })
                .sum();
            assert_eq!((v.lost, v.restarts), (lost, 0));
        }
    }

    #[test]
    fn silence_settles_what_is_missing_once() {
        let mut sequencer = Sequencer::new(4, 0);
        let mut notes = Notes::default();
        for (at, number) in [1, 2, 5].into_iter().enumerate() {
            sequencer.observe(&V10, number, at as Nanos, &mut notes);
        }
        sequencer.account(SETTLE, &mut notes);
        assert_eq!(notes.1, []);
        for second in 1..4 {
            sequencer.account(2 + second * SETTLE, &mut notes);
        }
        sequencer.observe(&V10, 4, 5 * SETTLE, &mut notes);
        sequencer.finish(5 * SETTLE, &mut notes);
        let loss = |ts, lost, reordered| Loss {
            ts,
            node: Some(7),
            source: [0; 16],
            hw_id: 1,
            lost,
            reordered,
            duplicated: 0,
        };
        assert_eq!(notes.1, [loss(2 + SETTLE, 2, 0), loss(5 * SETTLE, 0, 1)]);
    }

    #[test]
    fn streams_are_apart_by_what_identifies_them() {
        let mut sequencer = Sequencer::new(64, 9);
        let v05 = |last: u8| StreamId { version: 5, node: None, source: [last; 16], ..V10 };
        let ids = [
            V10,
            V20,
            StreamId { hw_id: 2, ..V10 },
            StreamId { listener: 1, ..V10 },
            v05(1),
            v05(2),
            V10,
            v05(1),
        ];
        for (at, id) in ids.iter().enumerate() {
            sequencer.observe(id, at as u32 * 1000, 0, &mut Notes::default());
        }
        sequencer.observe(&StreamId { source: [9; 16], ..V10 }, 6001, 0, &mut Notes::default());
        let seen: Vec<_> = sequencer.streams().map(|v| (v.id, v.datagrams)).collect();
        assert_eq!(seen, [(V10, 3), (V20, 1), (ids[2], 1), (ids[3], 1), (v05(1), 2), (v05(2), 1)]);
    }

    #[test]
    fn what_given_up_streams_lost_is_still_known() {
        let mut sequencer = Sequencer::new(4, 9);
        for node in 0..1000 {
            for n in [1, 2, 5] {
                let id = StreamId { node: Some(node), ..V10 };
                sequencer.observe(&id, n, u64::from(node) * 100 * SETTLE, &mut Notes::default());
            }
        }
        sequencer.finish(1, &mut Notes::default());
        let table = sequencer.table();
        let seen: u64 = sequencer.streams().map(|view| view.lost).sum();
        assert!(table.evicted > 0);
        assert_eq!(seen + sequencer.lost_before(), 2 * (table.used + table.evicted));
    }

    #[test]
    fn a_stream_that_was_alone_is_spared_too() {
        let mut sequencer = Sequencer::new(4, 9);
        for n in 0..100 {
            sequencer.observe(&V10, n, 0, &mut Notes::default());
        }
        for n in 0..100 {
            sequencer.observe(&StreamId { node: Some(n + 100), ..V10 }, n, 0, &mut Notes::default());
        }
        assert_eq!(sequencer.streams().filter(|v| v.id == V10).count(), 1);
    }

    #[test]
    fn a_flood_of_streams_stays_bounded_and_spares_the_heard() {
        let mut sequencer = Sequencer::new(32, 9);
        let busy = StreamId { node: Some(u32::MAX), ..V10 };
        for n in 0..100_000 {
            sequencer.observe(&StreamId { node: Some(n), ..V10 }, n, 0, &mut Notes::default());
            sequencer.observe(&busy, n, 0, &mut Notes::default());
        }
        let view = sequencer.streams().find(|v| v.id == busy).unwrap();
        assert_eq!((view.datagrams, view.lost), (100_000, 0));
        let table = sequencer.table();
        assert!(table.used <= 32 && table.used + table.evicted + table.refused == 100_001, "{table:?}");
    }
}
