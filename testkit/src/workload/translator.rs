//! DTA reports for benchmarks of the translator: one primitive per case, the same reports every time.

use wire::dta::hash::Family;
use wire::dta::layout::{Columns, Geometry, MergeOp, Ring, SketchKind};
use wire::dta::{Base, Operation, Priority, Report};

use ::rdma::transport::{Blocked, Credit, RemoteAddr, Transport};

use ::translator::{CollectorConfig, Config, StoreEntry};

/// Number of reports of a case, so large that keys, lists and reporters do not recur soon.
pub const REPORTS: usize = 1 << 16;
/// Rows of the sketch, so the number of counters in a column.
const DEPTH: u8 = 4;
/// Columns in one report: 1,024 bytes.
const COLUMNS: u8 = 64;
/// Columns of the whole sketch: 8 MiB in each of its two buffers.
const ALL_COLUMNS: u32 = 1 << 19;

/// The DTA operation that the reports request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// Key-Write with random 13-byte keys, the size of a 5-tuple.
    KeyWrite {
        /// Number of copies, N.
        copies: u8,
        /// Bytes of the data.
        data: u16,
        /// Essential reports, with sequence numbers, from 65,536 reporters in turn.
        essential: bool,
    },
    /// Append with entries of 4 bytes, in batches of 16.
    Append {
        /// Entries in one report.
        entries: u8,
        /// Number of lists, chosen at random.
        lists: u32,
    },
    /// Key-Increment by one, with random 13-byte keys.
    KeyIncrement {
        /// Number of copies, N.
        copies: u8,
    },
    /// Postcarding with random 13-byte keys: five hops of a path, one after the other.
    Postcards,
    /// Sketch-Merge of 64 columns of 4 counters of 4 bytes, from two reporters in turn.
    Sketch,
}

/// A load with a name.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name on the command line.
    pub name: &'static str,
    /// The load of the case.
    pub load: Load,
}

const fn key_write(name: &'static str, copies: u8, data: u16, essential: bool) -> Case {
    Case {
        name,
        load: Load::KeyWrite {
            copies,
            data,
            essential,
        },
    }
}

const fn append(name: &'static str, entries: u8, lists: u32) -> Case {
    Case {
        name,
        load: Load::Append { entries, lists },
    }
}

/// All cases of the benchmark.
pub const CASES: [Case; 14] = [
    key_write("key-write-n1-4", 1, 4, false),
    key_write("key-write-n1-20", 1, 20, false),
    key_write("key-write-n2-4", 2, 4, false),
    key_write("key-write-n2-20", 2, 20, false),
    key_write("key-write-n4-20", 4, 20, false),
    key_write("essential-65536-reporters", 2, 20, true),
    append("append-1", 1, 1),
    append("append-16", 16, 1),
    append("append-255", 255, 1),
    append("append-1-of-255-lists", 1, 255),
    append("append-1-of-65536-lists", 1, 1 << 16),
    Case {
        name: "key-increment-n2",
        load: Load::KeyIncrement { copies: 2 },
    },
    Case {
        name: "postcards",
        load: Load::Postcards,
    },
    Case {
        name: "sketch-merge",
        load: Load::Sketch,
    },
];

/// Payloads of reports, all of one length, one after the other in memory.
#[derive(Clone, Debug)]
pub struct Reports {
    bytes: Vec<u8>,
    len: usize,
}

impl Reports {
    /// Returns the payloads, in order of sending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.len)
    }

    /// Returns the payloads for writing: the sequence numbers of essential reports continue from round to round.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [u8]> {
        self.bytes.chunks_exact_mut(self.len)
    }

    /// Returns the length of a payload, in bytes.
    pub fn payload_len(&self) -> usize {
        self.len
    }
}

impl Case {
    /// Returns the geometry of the store that the case writes to.
    pub fn geometry(&self) -> Geometry {
        let slots = 1 << 27;
        let family = Family::V1;
        match self.load {
            Load::KeyWrite { data, .. } => Geometry::KeyWrite {
                slots,
                data_len: data,
                family,
            },
            Load::Append { lists, .. } => {
                let ring = Ring {
                    entry_len: 4,
                    entries: 1 << 10,
                    batch: 16,
                    tagged: true,
                };
                Geometry::Append {
                    lists,
                    first_list: 0,
                    ring,
                }
            }
            Load::KeyIncrement { .. } => Geometry::KeyIncrement { slots, family },
            Load::Postcards => Geometry::Postcarding {
                slots,
                hops: 5,
                family,
            },
            Load::Sketch => Geometry::Sketch {
                kind: SketchKind::CountMin,
                op: MergeOp::Sum,
                shape: Columns {
                    depth: DEPTH,
                    columns: ALL_COLUMNS,
                    width: 4,
                },
            },
        }
    }

    /// Returns the translator's settings: one collector with this store.
    pub fn config(&self) -> Config {
        let store = StoreEntry {
            reporters: 2,
            ..StoreEntry::new(0, 1, self.geometry())
        };
        let memory = CollectorConfig {
            stores: vec![store],
            ..CollectorConfig::default()
        };
        Config {
            collectors: vec![Some(memory)],
            owned: 1 << 16,
            ..Config::default()
        }
    }

    /// Returns the items in a report, by which a rate is given: entries, bytes of counters, or one operation.
    pub fn items(&self) -> u64 {
        match self.load {
            Load::Append { entries, .. } => entries.into(),
            Load::Sketch => u64::from(COLUMNS) * u64::from(DEPTH) * 4,
            _ => 1,
        }
    }

    /// Generates the reports of the case.
    pub fn reports(&self) -> Reports {
        let count = match self.load {
            // Two whole sketches, one of each reporter.
            Load::Sketch => 2 * (ALL_COLUMNS / u32::from(COLUMNS)) as usize,
            _ => REPORTS,
        };
        let mut bytes = Vec::new();
        let mut len = 0;
        let mut seed = 1;
        for number in 0..count {
            let mut payload = [0; 2048];
            len = self.report(number, &mut seed, &mut payload);
            bytes.extend_from_slice(&payload[..len]);
        }
        Reports { bytes, len }
    }

    fn report(&self, number: usize, seed: &mut u64, out: &mut [u8]) -> usize {
        let mut random = [0; 1024];
        for chunk in random.as_chunks_mut::<8>().0 {
            *chunk = next(seed).to_be_bytes();
        }
        let (key, data) = random.split_at(13);
        let mut base = Base {
            reporter: 7,
            priority: Priority::Medium,
            ..Base::default()
        };
        let operation = match self.load {
            Load::KeyWrite {
                copies,
                data: len,
                essential,
            } => {
                base.essential = essential;
                base.reporter = if essential { number as u32 } else { 7 };
                Operation::KeyWrite {
                    copies,
                    store: 1,
                    key,
                    data: &data[..usize::from(len).min(1000)],
                }
            }
            Load::Append { entries, lists } => {
                // `random` has room for 255 entries: 1,020 of 1,024 bytes.
                let list = u32::from_be_bytes([key[0], key[1], key[2], key[3]]) % lists.max(1);
                Operation::Append {
                    list,
                    entry_len: 4,
                    entries: &random[..4 * usize::from(entries)],
                }
            }
            Load::KeyIncrement { copies } => Operation::KeyIncrement {
                copies,
                store: 1,
                delta: 1,
                key,
            },
            Load::Postcards => {
                let path = (number / 5) as u64;
                let mut key = [0; 13];
                key[..8].copy_from_slice(&next(&mut (path + 1)).to_be_bytes());
                let hop = (number % 5) as u8 + 1;
                let operation = Operation::Postcard {
                    hop,
                    path_len: 5,
                    store: 1,
                    value: hop.into(),
                    key: &key,
                };
                return emit(&Report { base, operation }, out);
            }
            Load::Sketch => {
                base.reporter = (number % 2) as u32;
                Operation::SketchMerge {
                    sketch: 1,
                    epoch: 0,
                    first_column: (number / 2) as u32 * u32::from(COLUMNS),
                    depth: DEPTH,
                    width: 4,
                    op: MergeOp::Sum,
                    columns: COLUMNS,
                    counters: &random,
                }
            }
        };
        emit(&Report { base, operation }, out)
    }

    /// Renumbers reports for another round: sequence numbers of essential reports, epochs of sketches.
    pub fn renumber(&self, reports: &mut Reports, round: u16) {
        // Offset in the payload of the sequence number, or of the epoch.
        let at = match self.load {
            Load::KeyWrite { essential: true, .. } => 2,
            Load::Sketch => 10,
            _ => return,
        };
        for payload in reports.iter_mut() {
            payload[at..at + 2].copy_from_slice(&round.to_be_bytes());
        }
    }
}

fn emit(report: &Report<'_>, out: &mut [u8]) -> usize {
    report.emit(out).unwrap_or(0)
}

/// Returns the next pseudorandom number.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ *seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// A transport that accepts everything and stores nothing, to measure the translator alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullTransport {
    /// Number of operations accepted.
    pub operations: u64,
    /// Bytes of their data.
    pub bytes: u64,
}

impl Transport for NullTransport {
    #[inline(always)]
    fn credit(&self, _: u8, _: bool) -> Credit {
        Credit::UNLIMITED
    }

    #[inline(always)]
    fn write(&mut self, _: RemoteAddr, _: u64, data: &[u8], _: Option<u32>, _: bool) -> Result<(), Blocked> {
        self.operations += 1;
        self.bytes += data.len() as u64;
        std::hint::black_box(data);
        Ok(())
    }

    #[inline(always)]
    fn add(&mut self, _: RemoteAddr, _: u64, delta: u64, _: Option<u32>) -> Result<(), Blocked> {
        self.operations += 1;
        self.bytes += 8;
        std::hint::black_box(delta);
        Ok(())
    }
}
