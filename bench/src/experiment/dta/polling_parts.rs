//! Where a reader of a list spends its time: reading alone as in the paper, and what hopwise's reader adds (Fig. 8b).

use std::hint::black_box;

use dta::{BODY, DtaStore, Next};

use crate::{
    experiment::{
        page::{Cell, Findings, Table, linear},
        settings::Settings,
        timing::{self, Spread},
    },
    figures::failed,
    svg::{Plot, Series, Style},
};
use terminal::CliError;

/// Blocks of a round.
const ROUND: u64 = 256;
/// The list that is read.
const LIST: u64 = 0;

/// Nanoseconds per batch of the parts of a reader, on one core, without collection.
pub(super) struct Parts {
    batch: u16,
    /// Advancing the pointer, back to the start at the end of the ring.
    pointer: Spread,
    /// The same, and reading the entries: everything that the paper's reader does.
    bare: Spread,
    /// The same, with the CRC-32C of the batch.
    checked: Spread,
    /// hopwise's reader: the same, with sequence number, trailer and counters.
    follower: Spread,
}

impl Parts {
    fn steps(&self) -> [Spread; 4] {
        [self.pointer, self.bare, self.checked, self.follower]
    }
}

/// The block after this one.
fn advance(block: &mut u64, blocks: u64) -> u64 {
    *block = if *block + 1 == blocks { 0 } else { *block + 1 };
    *block
}

pub(super) fn measure(settings: &Settings, store: &DtaStore, batch: u16) -> Result<Parts, CliError> {
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
    let pointer = timing::of(settings, || {
        for _ in 0..ROUND {
            black_box(advance(&mut block, blocks));
        }
        Ok(ROUND)
    })?;
    let bare = timing::of(settings, || {
        for _ in 0..ROUND {
            let at = BODY + ring.offset(LIST, advance(&mut block, blocks));
            region
                .read(at, &mut scratch[..entries])
                .map_err(|_| failed("out of range"))?;
            black_box(&mut scratch);
        }
        Ok(ROUND)
    })?;
    let checked = timing::of(settings, || {
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
    let follower = timing::of(settings, || {
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
    Ok(Parts {
        batch,
        pointer,
        bare,
        checked,
        follower,
    })
}

/// Adds the table of the parts to the findings.
pub(super) fn add(parts: &[Parts], findings: &mut Findings) {
    const STEPS: [&str; 4] = [
        "pointer",
        "and read (as in the paper)",
        "and CRC-32C",
        "and sequence number (hopwise)",
    ];
    let bars = STEPS.into_iter().enumerate().map(|(at, name)| Series {
        name: name.into(),
        style: Style::Bars,
        points: (0_u32..)
            .zip(parts)
            .map(|(x, one)| one.steps()[at].point(x.into()))
            .collect(),
    });
    let categories = parts.iter().map(|one| format!("B = {}", one.batch)).collect();
    findings.tables.push(Table {
        name: "parts",
        about: "Time per batch, each step with those before it; one core, no collection".into(),
        columns: "batch,pointer_ns,and_read_ns,and_crc_ns,and_sequence_ns,bare_mps,bare_mps_min,\
            bare_mps_max,reader_mps,reader_mps_min,reader_mps_max"
            .into(),
        rows: parts
            .iter()
            .map(|one| {
                let entries = f64::from(one.batch);
                let mut row = vec![u64::from(one.batch).into()];
                row.extend(one.steps().map(|spread| Cell::Figure(spread.median, 2)));
                row.extend(one.bare.map(|ns| 1e3 * entries / ns).cells(1));
                row.extend(one.follower.map(|ns| 1e3 * entries / ns).cells(1));
                row
            })
            .collect(),
        plots: vec![Plot {
            note: "each step with those before it".into(),
            title: "Time of a reader per batch (Fig. 8b)".into(),
            x: crate::svg::Axis {
                categories,
                ..linear("")
            },
            y: linear("per batch (ns)"),
            series: bars.collect(),
        }],
    });
}
