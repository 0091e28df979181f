//! Measures where a reader of an Append list spends its time: advancing and reading, as in Fig. 8b of the DTA paper, and the
//! checks that hopwise's reader adds (CRC-32C, sequence number). A part of the experiment `dta-polling`.

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

/// Blocks that one timed round reads. A block is a batch of entries with its trailer.
const ROUND: u64 = 256;
/// ID of the list that is read.
const LIST: u64 = 0;

/// Names of the steps of a reader; each includes the steps before it.
const STEPS: [&str; 4] = [
    "pointer",
    "and read (as in the paper)",
    "and CRC-32C",
    "and sequence number (hopwise)",
];

/// The table and plot of a reader's time per batch, step by step, on one core, while no reports arrive.
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

/// Moves on to the next block of the ring, and returns it.
fn advance(block: &mut u64, blocks: u64) -> u64 {
    *block = if *block + 1 == blocks { 0 } else { *block + 1 };
    *block
}

/// Measures each step, in ns per batch.
fn steps(settings: &Settings, store: &DtaStore, batch: u16) -> Result<[Spread; 4], CliError> {
    let lists = store.lists().ok_or_else(|| failed("no lists"))?;
    let ring = lists.ring();
    let region = store.region();
    let blocks = ring.blocks();
    let block_len = ring.block_len() as usize;
    let entries = usize::from(batch) * usize::from(ring.entry_len);
    // The CRC covers the entries and the trailer up to the CRC itself, its last four bytes.
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
            let offset = BODY + ring.offset(LIST, advance(&mut block, blocks));
            region
                .read(offset, &mut scratch[..entries])
                .map_err(|_| failed("out of range"))?;
            black_box(&mut scratch);
        }
        Ok(ROUND)
    })?;
    let checked = timing::measure(settings, || {
        for _ in 0..ROUND {
            let offset = BODY + ring.offset(LIST, advance(&mut block, blocks));
            let crc = region.read_with_crc_32c(offset, &mut scratch, covered);
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
