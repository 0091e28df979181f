//! Where a reader of a list spends its time: reading alone as in the paper, and what hopwise's reader adds (Fig. 8b).

use std::hint::black_box;

use dta::{BODY, DtaStore, Next};

use crate::{
    figures::failed,
    page::{Table, fixed, linear, named, row},
    settings::Settings,
    svg::{Series, Style},
    timing::{self, Spread},
};
use terminal::CliError;

/// Blocks of a round.
const ROUND: u64 = 256;
/// The list that is read.
const LIST: u64 = 0;

/// Each step of a reader of a list includes those before it.
const STEPS: [&str; 4] = [
    "pointer",
    "and read (as in the paper)",
    "and CRC-32C",
    "and sequence number (hopwise)",
];

/// The time of a reader per batch, step by step, on one core, without collection.
pub(super) struct Parts {
    table: Table,
    bars: [Series; 4],
}

impl Parts {
    pub(super) fn new() -> Self {
        let columns = "batch,pointer_ns,and_read_ns,and_crc_ns,and_sequence_ns,bare_mps,bare_mps_min,\
            bare_mps_max,reader_mps,reader_mps_min,reader_mps_max";
        let about = "Time per batch, each step with those before it; one core, no collection";
        Self {
            table: Table::new("parts", about, columns),
            bars: STEPS.map(|name| Series::new(name, Style::Bars, [])),
        }
    }

    pub(super) fn measure(
        &mut self,
        settings: &Settings,
        store: &DtaStore,
        batch: u16,
    ) -> Result<(), CliError> {
        let steps = steps(settings, store, batch)?;
        let [_, bare, _, reader] = steps.map(|step| step.map(|ns| 1e3 * f64::from(batch) / ns));
        self.table.push(row![
            batch,
            steps.map(|step| fixed(step.median, 2)),
            bare.cells(1),
            reader.cells(1),
        ]);
        for (bars, step) in self.bars.iter_mut().zip(steps) {
            bars.points.push(step.point(bars.points.len() as f64));
        }
        Ok(())
    }

    pub(super) fn table(mut self) -> Table {
        let x = named(
            self.table
                .texts("batch")
                .iter()
                .map(|batch| format!("B = {batch}")),
        );
        self.table.plot(
            "Time of a reader per batch (Fig. 8b)",
            "each step with those before it",
            [x, linear("per batch (ns)")],
            self.bars.into(),
        );
        self.table
    }
}

/// The block after this one.
fn advance(block: &mut u64, blocks: u64) -> u64 {
    *block = if *block + 1 == blocks { 0 } else { *block + 1 };
    *block
}

/// Nanoseconds per batch of each step.
fn steps(settings: &Settings, store: &DtaStore, batch: u16) -> Result<[Spread; 4], CliError> {
    let lists = store.lists().ok_or_else(|| failed("no lists"))?;
    let ring = lists.ring();
    let region = store.region();
    let blocks = ring.blocks();
    let block_len = ring.block_len() as usize;
    let entries = usize::from(batch) * usize::from(ring.entry_len);
    // Entries, and the head of the trailer, without the CRC.
    let covered = block_len - 4;
    let mut scratch = vec![0; block_len];
    let mut block = 0;
    let pointer = timing::measure(settings, || {
        for _ in 0..ROUND {
            black_box(advance(&mut block, blocks));
        }
        Ok(ROUND)
    })?;
    let bare = timing::measure(settings, || {
        for _ in 0..ROUND {
            let at = BODY + ring.offset(LIST, advance(&mut block, blocks));
            region
                .read(at, &mut scratch[..entries])
                .map_err(|_| failed("out of range"))?;
            black_box(&mut scratch);
        }
        Ok(ROUND)
    })?;
    let checked = timing::measure(settings, || {
        for _ in 0..ROUND {
            let at = BODY + ring.offset(LIST, advance(&mut block, blocks));
            let crc = region.read_with_crc_32c(at, &mut scratch, covered);
            black_box(crc.map_err(|_| failed("out of range"))?);
            black_box(&mut scratch);
        }
        Ok(ROUND)
    })?;
    let mut reader = lists
        .from_oldest(LIST as u32)
        .ok_or_else(|| failed("no such list"))?;
    let follower = timing::measure(settings, || {
        for _ in 0..ROUND {
            match reader.next() {
                Next::Batch { entries, .. } => {
                    black_box(entries);
                }
                Next::Nothing => {
                    reader = lists
                        .from_oldest(LIST as u32)
                        .ok_or_else(|| failed("no such list"))?;
                }
                other => return Err(failed(format!("an idle list returned {other:?}"))),
            }
        }
        Ok(ROUND)
    })?;
    Ok([pointer, bare, checked, follower])
}
