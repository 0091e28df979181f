//! Numbers the parts of rollups. Several workers, or successive processes, may each store a part of the rollup for one key and
//! second; a remote-write sink needs them to be distinct.

use std::collections::HashMap;

use export::record::RollupPart;
use store::{Follower, StoredRecord, StreamPosition};

/// Maximum number of rollups remembered. The parts of one are close together in the store, because workers write every second.
const MAX_ROLLUPS: usize = 1 << 18;
/// Number of records before the start that are read again, which span about as much time as [`MAX_ROLLUPS`] rollups.
const REREAD_RECORDS: u64 = 1 << 17;
/// Number of records per read.
const CHUNK_RECORDS: usize = 4096;

/// Numbers the parts of each rollup in the order of the store, so that a part has the same number whenever it is sent, however
/// pages are cut. This holds for any starting point if a rollup's parts are at most [`REREAD_RECORDS`] records apart. A later part may
/// get a number in use, which may differ after a restart; the server then rejects it, and it is counted.
#[derive(Default, Debug)]
pub(super) struct Parts {
    /// Number of parts before the page, by rollup ID. Rollups with the same ID both count, which only leaves gaps.
    part_counts: HashMap<u32, u16>,
    /// An older generation of `part_counts`, which is dropped next.
    older_part_counts: HashMap<u32, u16>,
    /// The counts of the current page.
    page_counts: HashMap<u32, u16>,
    /// Start of the current page.
    from: Option<StreamPosition>,
    /// End of the last page, once it has been read.
    end: Option<StreamPosition>,
}

impl Parts {
    /// Begins a page: the next one, or the last one again. At any other position the preceding records are read first.
    ///
    /// # Errors
    /// The preceding records cannot be read.
    pub(super) fn begin(
        &mut self,
        from: StreamPosition,
        follower: &mut Follower,
        is_counted: impl Fn(&RollupPart) -> bool,
    ) -> Result<(), store::Error> {
        if self.end == Some(from) {
            self.settle();
        } else if self.from != Some(from) {
            *self = Self::default();
            let mut position = StreamPosition {
                row: from.row.saturating_sub(REREAD_RECORDS),
                ..from
            };
            while position < from {
                let chunk = follower.read(
                    collector::event::Stream::Rollups,
                    position,
                    Some(from),
                    CHUNK_RECORDS,
                    usize::MAX,
                )?;
                for stored in &chunk.records {
                    if let StoredRecord::Rollup(rollup, part) = stored {
                        let mut part = RollupPart {
                            rollup: *rollup,
                            part: *part,
                            nth: 0,
                        };
                        if is_counted(&part) {
                            self.number(&mut part);
                        }
                    }
                }
                self.settle();
                if chunk.end <= position {
                    break;
                }
                position = chunk.end;
            }
        }
        self.page_counts.clear();
        self.from = Some(from);
        self.end = None;
        Ok(())
    }

    /// Ends the current page at `end`.
    pub(super) fn end(&mut self, end: StreamPosition) {
        self.end = Some(end);
    }

    /// Numbers the next part.
    pub(super) fn number(&mut self, part: &mut RollupPart) {
        let id = part.id() as u32;
        let page_count = self.page_counts.entry(id).or_default();
        let earlier_counts =
            [&self.part_counts, &self.older_part_counts].map(|counts| counts.get(&id).copied().unwrap_or(0));
        part.nth = earlier_counts.into_iter().fold(*page_count, u16::saturating_add);
        *page_count = page_count.saturating_add(1);
    }

    /// Adds the counts of a page that will not be read again.
    fn settle(&mut self) {
        for (id, count) in self.page_counts.drain() {
            if self.part_counts.len() >= MAX_ROLLUPS / 2 {
                self.older_part_counts = std::mem::take(&mut self.part_counts);
            }
            let total = self.part_counts.entry(id).or_default();
            *total = total.saturating_add(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use collector::Output as _;
    use testkit::records::{Dir, SECOND, START, rollup};

    /// Nodes and times, so that parts of one rollup are on several pages: node 1 has three at the first time.
    const WRITTEN: [(u64, u32); 9] = [
        (0, 1),
        (0, 2),
        (0, 1),
        (1, 1),
        (0, 1),
        (1, 2),
        (1, 1),
        (0, 2),
        (2, 1),
    ];
    const NUMBERS: [u16; 9] = [0, 0, 1, 0, 2, 0, 1, 1, 0];

    fn numbers(
        parts: &mut Parts,
        follower: &mut Follower,
        from: StreamPosition,
        records: usize,
    ) -> (Vec<u16>, StreamPosition) {
        let stream = collector::event::Stream::Rollups;
        parts.begin(from, follower, |_| true).unwrap();
        let chunk = follower.read(stream, from, None, records, usize::MAX).unwrap();
        let number = |stored: &StoredRecord| {
            let StoredRecord::Rollup(rollup, part) = stored else {
                panic!("{stored:?}")
            };
            let mut part = RollupPart {
                rollup: *rollup,
                part: *part,
                nth: 0,
            };
            parts.number(&mut part);
            part.nth
        };
        let numbers = chunk.records.iter().map(number).collect();
        parts.end(chunk.end);
        (numbers, chunk.end)
    }

    #[test]
    fn parts_have_the_same_numbers_whatever_the_pages_are_and_wherever_reading_begins() {
        let dir = Dir::new("export-parts");
        let store = store::Store::open(store::Config::new(dir.path())).unwrap();
        let mut batch = collector::Batch::with_capacity(16);
        WRITTEN
            .iter()
            .for_each(|(at, node)| batch.rollup(&rollup(START + at * SECOND, *node)));
        store.submit(batch);
        store.flush();
        let mut follower = Follower::new(dir.path());
        for records in 1..=WRITTEN.len() {
            let (mut parts, mut at, mut found) = (Parts::default(), StreamPosition::default(), Vec::new());
            while found.len() < WRITTEN.len() {
                // Each page twice: one that was not full is read again, and may be longer then.
                let (short, _) = numbers(&mut parts, &mut follower, at, records.div_ceil(2));
                let (page, end) = numbers(&mut parts, &mut follower, at, records);
                assert_eq!(short, page[..short.len()]);
                let (again, _) = numbers(&mut Parts::default(), &mut follower, at, records);
                assert_eq!(again, page, "by another process");
                found.extend(page);
                at = end;
            }
            assert_eq!(found, NUMBERS, "{records} on a page");
        }
    }
}
