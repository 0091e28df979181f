//! Sketches of the collectors, and reports of their columns: mostly in order, of two reporters.

use std::collections::{BTreeMap, BTreeSet};

use testkit::rng::Rng;
use translator::StoreEntry;
use wire::dta::layout::{Columns, Geometry, MergeOp, SketchKind};

use super::{IDS, RKEY, Target, address, insert};

/// Microseconds that an epoch waits for its columns; and so long that none is over.
pub(crate) const TIMER: u64 = 450;
pub(crate) const NO_TIMER: u64 = 1 << 40;
/// Sketches of a collector, at most.
const PLACES: usize = 5;
/// Reporters whose address is the sender's.
const OWN: usize = 2;

const fn sketch(
    region: u16,
    id: u16,
    (kind, op): (SketchKind, MergeOp),
    (depth, columns, width): (u8, u32, u8),
    reporters: u32,
) -> StoreEntry {
    let geometry = Geometry::Sketch {
        kind,
        op,
        shape: Columns {
            depth,
            columns,
            width,
        },
    };
    StoreEntry {
        reporters,
        ..StoreEntry::new(region, id, geometry)
    }
}

/// A collector's sketches, of which so many columns are written together.
pub(crate) fn stores(collector: u8, batch: u32) -> Vec<StoreEntry> {
    use MergeOp::{Max, Min, Sample, Sum};
    use SketchKind::{Aroma, Count, CountMin, HyperLogLog};
    match collector {
        0 => vec![
            sketch(9, 4, (CountMin, Sum), (4, 9, 4), 2),
            sketch(10, 7, (Count, Sum), (1, 20, 8), 2),
            sketch(11, 8, (Aroma, Sample), (2, 6, 8), 2),
            sketch(12, 10, (HyperLogLog, Min), (3, 7, 4), 2),
            sketch(13, 0x1234, (CountMin, Sum), (2, 5, 8), 2),
        ],
        1 => vec![
            sketch(9, 4, (Count, Sum), (4, 9, 4), 2),
            sketch(10, 7, (HyperLogLog, Max), (1, 17, 4), 3),
            sketch(11, 8, (HyperLogLog, Min), (1, 6, 8), 2),
        ],
        _ if batch == 1 => vec![sketch(9, 4, (CountMin, Sum), (16, 3, 4), 2)],
        _ => vec![
            sketch(9, 7, (HyperLogLog, Max), (2, 9, 8), 1),
            sketch(10, 8, (Count, Max), (1, 3, 4), 2),
        ],
    }
}

/// The entry of a sketch. Returns what its timer frames name.
pub(crate) fn install(
    p4: &mut Target,
    collector: u8,
    store: &StoreEntry,
    (batch, timer): (u32, u64),
) -> Vec<(u8, u32, u32)> {
    let Geometry::Sketch { kind, op, shape } = store.geometry else {
        panic!("no sketch")
    };
    let index = u32::from(collector) * PLACES as u32 + u32::from(store.region) - 9;
    let parameters = vec![
        address(collector, store.region).into(),
        RKEY.into(),
        index.into(),
        u128::from(index * 128),
        u128::from(index * 64),
        shape.columns.into(),
        shape.depth.into(),
        shape.width.into(),
        op as u128,
        (kind == SketchKind::CountMin).into(),
        store.reporters.into(),
        batch.into(),
        timer.into(),
    ];
    insert(
        p4,
        "store",
        &[collector.into(), 5, store.id.into()],
        "sketch",
        parameters,
    );
    (0..2).map(|parity| (5, parity, store.id.into())).collect()
}

/// What was merged of a sketch, as far as its reporters know.
#[derive(Default)]
struct Progress {
    epoch: u16,
    next: [u32; OWN],
    /// Reports since columns were merged.
    stalls: u32,
    /// Who asked for a later column than the first one: the translator in Rust keeps as many as a sketch has reporters.
    nonmembers: BTreeSet<(u16, usize)>,
}

/// Columns that were sent: whether they were merged is known afterwards.
struct Attempt {
    collector: u8,
    sketch: u16,
    epoch: u16,
    reporter: usize,
    end: u32,
}

/// The reporters of sketches.
#[derive(Default)]
pub(crate) struct Reporters {
    sketches: BTreeMap<(u8, u16), Progress>,
    attempt: Option<Attempt>,
}

impl Reporters {
    /// Some columns, mostly the next ones.
    pub(crate) fn report(&mut self, rng: &mut Rng, collector: u8, batch: u32) -> Vec<u8> {
        let stores = stores(collector, batch);
        let store = stores[rng.below(stores.len())];
        let Geometry::Sketch { op, shape, .. } = store.geometry else {
            panic!("no sketch")
        };
        let progress = self.sketches.entry((collector, store.id)).or_insert_with(|| {
            let epoch = if rng.below(2) == 0 {
                0xfffe
            } else {
                rng.roll() as u16
            };
            Progress {
                epoch,
                ..Progress::default()
            }
        });
        if progress.stalls > 2 || progress.next.iter().all(|next| *next == shape.columns) {
            (progress.epoch, progress.next, progress.stalls) = (progress.epoch.wrapping_add(1), [0; OWN], 0);
        }
        let mut reporter = rng.below(OWN);
        if progress.next[reporter] == shape.columns && rng.below(8) > 0 {
            reporter = 1 - reporter;
        }
        let (mut epoch, mut first) = (progress.epoch, progress.next[reporter]);
        match rng.below(40) {
            0 => (epoch, first) = (epoch.wrapping_add(1), 0),
            1 => (epoch, first) = (epoch.wrapping_sub(1), 0),
            2 | 7 => (epoch, first) = (epoch.wrapping_add(2 + rng.below(12) as u16), 0),
            // Columns that were lost on their way, of a member.
            3 if first > 0 => first += 1 + rng.below(2) as u32,
            4 | 5 => first = first.saturating_sub(1 + rng.below(3) as u32),
            6 if progress.nonmembers.len() < store.reporters as usize => {
                first = 1 + rng.below(4) as u32;
                progress.nonmembers.insert((epoch, reporter));
            }
            _ => {}
        }
        let fits = 64 / shape.column_len() as u32;
        let left = shape.columns.saturating_sub(first).clamp(1, fits);
        let columns = 1 + rng.below(left as usize) as u32 + u32::from(rng.below(50) == 0);
        let (depth, width) = (shape.depth + u8::from(rng.below(60) == 0), shape.width);
        self.attempt = Some(Attempt {
            collector,
            sketch: store.id,
            epoch,
            reporter,
            end: first + columns,
        });
        let id = match rng.below(30) {
            0 => IDS[OWN].0,
            1 => 0x5555_5555,
            _ => IDS[reporter].0,
        };
        let flags =
            u8::from(rng.below(5) == 0) << 7 | u8::from(rng.below(3) == 0) << 6 | (rng.below(3) as u8) << 4;
        let mut out = vec![0x15, flags, rng.roll() as u8, rng.roll() as u8];
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&store.id.to_be_bytes());
        out.extend_from_slice(&epoch.to_be_bytes());
        out.extend_from_slice(&first.to_be_bytes());
        out.extend_from_slice(&[depth, width, op as u8, columns as u8]);
        for _ in 0..u32::from(depth) * columns {
            // High ones, so that sums overflow.
            let number = if rng.below(4) == 0 {
                u64::MAX - rng.roll() % 5
            } else {
                rng.roll()
            };
            out.extend_from_slice(&number.to_be_bytes()[8 - usize::from(width)..]);
        }
        match rng.below(60) {
            0 => out[9] ^= 1,
            1 => rng.corrupt(&mut out),
            _ => {}
        }
        out
    }

    /// Whether the last report's columns were merged.
    pub(crate) fn merged(&mut self, is_merged: bool) {
        let Some(Attempt {
            collector,
            sketch,
            epoch,
            reporter,
            end,
        }) = self.attempt.take()
        else {
            return;
        };
        let Some(progress) = self.sketches.get_mut(&(collector, sketch)) else {
            return;
        };
        progress.stalls += 1;
        if is_merged {
            if epoch != progress.epoch && epoch.wrapping_sub(progress.epoch) < 0x8000 {
                (progress.epoch, progress.next) = (epoch, [0; OWN]);
            }
            if epoch == progress.epoch {
                (progress.next[reporter], progress.stalls) = (end, 0);
            }
        }
    }
}
