//! Numbers the parts of a rollup: workers, and processes one after the other, each have rollups of one key and time.

use std::collections::HashMap;

use export::record::RollupPart;
use store::{Follower, StoredRecord, StreamPosition};

/// Numbers the parts of each rollup in the order of the store, so that one that is sent again has the same number, whatever the pages are.
/// That holds wherever reading begins, if no more than [`BACK`] records are between the first part of a rollup and its others: one that
/// comes later may get a number that is there already, after a restart another than before. A server refuses it, and it is counted.
#[derive(Default, Debug)]
pub(super) struct Parts {
    /// By the id of the rollup: its parts before the page. Of two rollups with one number both count: that leaves numbers out, and gives
    /// none twice.
    known: HashMap<u32, u16>,
    /// Those that were read before them, and that are forgotten next.
    older: HashMap<u32, u16>,
    /// The counts of the current page.
    page: HashMap<u32, u16>,
    from: Option<StreamPosition>,
    end: Option<StreamPosition>,
}

/// Maximum number of rollups that are remembered. Their parts are close to each other in the store: workers write
/// each second.
const MOST: usize = 1 << 18;
/// Records before the first one that are read once more: those of about as much time.
const BACK: u64 = 1 << 17;
/// Records of one read.
const CHUNK: usize = 4096;

impl Parts {
    /// A page begins here: the one after the last page, or that once more.
    ///
    /// # Errors
    /// What comes before it cannot be read.
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
            let mut at = StreamPosition {
                row: from.row.saturating_sub(BACK),
                ..from
            };
            while at < from {
                let chunk = follower.read(
                    collector::event::Stream::Rollups,
                    at,
                    Some(from),
                    CHUNK,
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
                if chunk.end <= at {
                    break;
                }
                at = chunk.end;
            }
        }
        self.page.clear();
        self.from = Some(from);
        self.end = None;
        Ok(())
    }

    /// The page ends here.
    pub(super) fn end(&mut self, end: StreamPosition) {
        self.end = Some(end);
    }

    /// Gives the next part its number.
    pub(super) fn number(&mut self, part: &mut RollupPart) {
        let id = part.id() as u32;
        let here = self.page.entry(id).or_default();
        let before = [&self.known, &self.older].map(|known| known.get(&id).copied().unwrap_or(0));
        part.nth = before.into_iter().fold(*here, u16::saturating_add);
        *here = here.saturating_add(1);
    }

    /// The page will not be read again.
    fn settle(&mut self) {
        for (id, count) in self.page.drain() {
            if self.known.len() >= MOST / 2 {
                self.older = std::mem::take(&mut self.known);
            }
            let known = self.known.entry(id).or_default();
            *known = known.saturating_add(count);
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
