//! Generates DTA reports of one primitive, with the copies, sizes and lists that an experiment chooses. Before each burst, the
//! payloads are modified in place, so that no two bursts have the same keys.

use translator::StoreEntry;
use wire::EmitError;
use wire::dta::layout::{Columns, Geometry, MergeOp, Ring, SketchKind};
use wire::dta::{Base, Operation, Report, hash::Family};

use super::keys::mix;

/// Reports per burst, as one call reads them from a socket.
pub const BURST: usize = 64;
/// Bytes of a Key-Write's key: an IPv4 5-tuple.
pub const KEY: usize = 13;
/// Columns in a Sketch-Merge report. A column has four counters of four bytes.
pub const COLUMNS: u32 = 64;
/// ID of the store or sketch.
const ID: u16 = 1;
// Offsets in the payload of the parts that change from report to report; the base header has 8 bytes.
const KEY_WRITE_KEY: usize = 8 + 8;
const APPEND_LIST: usize = 8;
const SKETCH_EPOCH: usize = 8 + 2;
const REPORTER: usize = 4;

/// The part of a payload that changes from one report to the next.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Eight bytes at this offset: the first ones of the key, random.
    Key(usize),
    /// The list ID, which cycles through this number of lists.
    List(u32),
    /// The first column; after the last one the next reporter, after the last reporter the next epoch.
    Column { columns: u32, reporters: u32 },
    /// Nothing: all reports are equal.
    None,
}

/// An endless sequence of reports, in bursts.
#[derive(Clone, Debug)]
pub struct Reports {
    payloads: Vec<Vec<u8>>,
    change: Change,
    number: u64,
}

/// Returns a Key-Write store for [`Reports::key_write`].
pub const fn key_write_store(slots: u64, data_len: u16) -> StoreEntry {
    StoreEntry::new(
        0,
        ID,
        Geometry::KeyWrite {
            slots,
            data_len,
            family: Family::V1,
        },
    )
}

/// Returns a store of lists from ID 0, with entries of four bytes, for [`Reports::append`].
pub const fn append_store(lists: u32, entries: u64, batch: u16) -> StoreEntry {
    let ring = Ring {
        entry_len: 4,
        entries,
        batch,
        tagged: true,
    };
    StoreEntry::new(
        0,
        ID,
        Geometry::Append {
            lists,
            first_list: 0,
            ring,
        },
    )
}

/// Returns a Count-Min sketch for [`Reports::sketch_merge`].
pub const fn sketch_store(columns: u32, reporters: u32) -> StoreEntry {
    let shape = Columns {
        depth: 4,
        columns,
        width: 4,
    };
    let geometry = Geometry::Sketch {
        kind: SketchKind::CountMin,
        op: MergeOp::Sum,
        shape,
    };
    StoreEntry {
        reporters,
        ..StoreEntry::new(0, ID, geometry)
    }
}

impl Reports {
    /// Creates Key-Write reports of random 5-tuples.
    ///
    /// # Errors
    /// The arguments are invalid.
    pub fn key_write(copies: u8, data: &[u8]) -> Result<Self, EmitError> {
        let operation = Operation::KeyWrite {
            copies,
            store: ID,
            key: &[6; KEY],
            data,
        };
        Self::new(operation, Change::Key(KEY_WRITE_KEY))
    }

    /// Creates Append reports of `count` entries of four bytes each, to `lists` lists in turn.
    pub fn append(count: usize, lists: u32) -> Result<Self, EmitError> {
        let entries = vec![0xe5; 4 * count];
        Self::new(
            Operation::Append {
                list: 0,
                entry_len: 4,
                entries: &entries,
            },
            Change::List(lists),
        )
    }

    /// Creates Append reports of `count` entries of four bytes each, to one list.
    pub fn append_to(count: usize, list: u32) -> Result<Self, EmitError> {
        let entries = vec![0xe5; 4 * count];
        Self::new(
            Operation::Append {
                list,
                entry_len: 4,
                entries: &entries,
            },
            Change::None,
        )
    }

    /// Creates Sketch-Merge reports for sketches of `columns` columns, a multiple of [`COLUMNS`], from reporters 1 and up.
    pub fn sketch_merge(columns: u32, reporters: u32) -> Result<Self, EmitError> {
        let counters = vec![1; COLUMNS as usize * 16];
        let operation = Operation::SketchMerge {
            sketch: ID,
            epoch: 0,
            first_column: 0,
            depth: 4,
            width: 4,
            op: MergeOp::Sum,
            columns: COLUMNS as u8,
            counters: &counters,
        };
        Self::new(operation, Change::Column { columns, reporters })
    }

    fn new(operation: Operation<'_>, change: Change) -> Result<Self, EmitError> {
        let report = Report {
            base: Base {
                reporter: 1,
                ..Base::default()
            },
            operation,
        };
        let mut payload = vec![0; report.len()];
        report.emit(&mut payload)?;
        Ok(Self {
            payloads: vec![payload; BURST],
            change,
            number: 0,
        })
    }

    /// Returns the length of a payload, in bytes.
    pub fn payload_len(&self) -> usize {
        self.payloads.first().map_or(0, Vec::len)
    }

    /// Generates the next [`BURST`] payloads.
    pub fn burst(&mut self) -> impl ExactSizeIterator<Item = &[u8]> {
        for payload in &mut self.payloads {
            change(payload, self.change, self.number);
            self.number += 1;
        }
        self.payloads.iter().map(Vec::as_slice)
    }
}

fn put(payload: &mut [u8], at: usize, bytes: &[u8]) {
    payload[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Modifies a payload for the report with this number.
fn change(payload: &mut [u8], change: Change, number: u64) {
    match change {
        Change::Key(at) => put(payload, at, &mix(number).to_be_bytes()),
        Change::List(lists) => put(
            payload,
            APPEND_LIST,
            &((number % u64::from(lists)) as u32).to_be_bytes(),
        ),
        Change::Column { columns, reporters } => {
            let reports = u64::from(columns / COLUMNS);
            let sketch = number / reports;
            let report = number % reports;
            let epoch = sketch / u64::from(reporters);
            let reporter = sketch % u64::from(reporters);
            put(payload, REPORTER, &(reporter as u32 + 1).to_be_bytes());
            put(payload, SKETCH_EPOCH, &(epoch as u16).to_be_bytes());
            put(
                payload,
                SKETCH_EPOCH + 2,
                &(report as u32 * COLUMNS).to_be_bytes(),
            );
        }
        Change::None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations(reports: &mut Reports, mut see: impl FnMut(u32, Operation<'_>)) {
        for _ in 0..4 {
            for payload in reports.burst() {
                let report = Report::parse(payload).unwrap();
                see(report.base.reporter, report.operation);
            }
        }
    }

    #[test]
    fn every_report_is_valid_and_unique() {
        let mut keys = std::collections::BTreeSet::new();
        operations(&mut Reports::key_write(2, &[7; 20]).unwrap(), |_, operation| {
            assert!(keys.insert(operation.key().unwrap().to_vec()));
        });
        let mut lists = Vec::new();
        operations(
            &mut Reports::append(16, 3).unwrap(),
            |_, operation| match operation {
                Operation::Append { list, entries, .. } => lists.push((list, entries.len())),
                other => panic!("{other:?}"),
            },
        );
        assert_eq!(lists[..4], [(0, 64), (1, 64), (2, 64), (0, 64)]);
        let mut columns = Vec::new();
        operations(
            &mut Reports::sketch_merge(128, 2).unwrap(),
            |reporter, operation| match operation {
                Operation::SketchMerge {
                    epoch, first_column, ..
                } => columns.push((epoch, reporter, first_column)),
                other => panic!("{other:?}"),
            },
        );
        assert_eq!(
            columns[..6],
            [
                (0, 1, 0),
                (0, 1, 64),
                (0, 2, 0),
                (0, 2, 64),
                (1, 1, 0),
                (1, 1, 64)
            ]
        );
    }
}
