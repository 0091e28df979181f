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

pub(super) fn measure(settings: &Settings, store: &DtaStore, batch: u16) -> Result<Parts, CliError> {
    let lists = store.lists().ok_or_else(|| failed("no lists"))?;
    let (ring, region) = (lists.ring(), store.region());
    let (blocks, block_len) = (ring.blocks(), ring.block_len() as usize);
    let entries = usize::from(batch) * usize::from(ring.entry_len);
    // Entries, and the head of the trailer, without the CRC.
    let covered = block_len - 4;
    let at = |block: u64| BODY + ring.offset(LIST, block);
    let mut scratch = vec![0; block_len];
    let mut block = 0;
    let mut next = move || {
        block = if block + 1 == blocks { 0 } else { block + 1 };
        block
    };
    let pointer = timing::of(settings, || {
        (0..ROUND).for_each(|_| {
            black_box(next());
        });
        Ok(ROUND)
    })?;
    let bare = timing::of(settings, || {
        for _ in 0..ROUND {
            region
                .read(at(next()), &mut scratch[..entries])
                .map_err(|_| failed("out of range"))?;
            black_box(&mut scratch);
        }
        Ok(ROUND)
    })?;
    let checked = timing::of(settings, || {
        for _ in 0..ROUND {
            let crc = region.read_with_crc_32c(at(next()), &mut scratch, covered);
            black_box(crc.map_err(|_| failed("out of range"))?);
            black_box(&mut scratch);
        }
        Ok(ROUND)
    })?;
    let oldest = || {
        lists
            .from_oldest(LIST as u32)
            .ok_or_else(|| failed("no such list"))
    };
    let mut reader = oldest()?;
    let follower = timing::of(settings, || {
        for _ in 0..ROUND {
            match reader.next() {
                Next::Batch { entries, .. } => {
                    black_box(entries);
                }
                Next::Nothing => reader = oldest()?,
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

/// Adds the table.
pub(super) fn add(parts: &[Parts], findings: &mut Findings) {
    let steps = |one: &Parts| [one.pointer, one.bare, one.checked, one.follower];
    let row = |one: &Parts| {
        let per_entry = |spread: Spread| spread.map(|ns| ns / f64::from(one.batch));
        let mut row = vec![u64::from(one.batch).into()];
        row.extend(steps(one).map(|spread| Cell::Figure(spread.median, 2)));
        row.extend(per_entry(one.bare).map(|ns| 1e3 / ns).cells(1));
        row.extend(per_entry(one.follower).map(|ns| 1e3 / ns).cells(1));
        row
    };
    let bars = |at: usize, name: &str| Series {
        name: name.into(),
        style: Style::Bars,
        points: (0_u32..)
            .zip(parts)
            .map(|(x, one)| steps(one)[at].point(x.into()))
            .collect(),
    };
    let categories = parts.iter().map(|one| format!("B = {}", one.batch)).collect();
    findings.tables.push(Table {
        name: "parts",
        about: "Time per batch, each step with those before it; one core, no collection".into(),
        columns: vec![
            "batch",
            "pointer_ns",
            "and_read_ns",
            "and_crc_ns",
            "and_sequence_ns",
            "bare_mps",
            "bare_mps_min",
            "bare_mps_max",
            "reader_mps",
            "reader_mps_min",
            "reader_mps_max",
        ],
        rows: parts.iter().map(row).collect(),
        plots: vec![Plot {
            note: "each step with those before it".into(),
            title: "Time of a reader per batch (Fig. 8b)".into(),
            x: crate::svg::Axis {
                categories,
                ..linear("")
            },
            y: linear("per batch (ns)"),
            series: vec![
                bars(0, "pointer"),
                bars(1, "and read (as in the paper)"),
                bars(2, "and CRC-32C"),
                bars(3, "and sequence number (hopwise)"),
            ],
        }],
    });
}
