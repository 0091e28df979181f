//! The work whose instructions `tests/instructions.rs` counts: `hopwise-bench instructions`, under callgrind.
//!
//! Each case is warmed up, and a fixed number of reports then passes [`counted_pass`], whose cost the test reads.
//! Sizes, seeds and the clock are fixed, and no tick of the collector falls into the counted part, so that a count depends on the
//! code and its compiler only.
//!
//! The reports are those of one flow, or of a few. The sketches of quantiles take every value of a series at first, and fewer as it has more
//! in a second; with a thousand flows, they would take about two fifths of the instructions until there were a million reports.

use std::hint::black_box;
use std::process::ExitCode;

use collector::{Batch, Collector};
use terminal::CliError;
use testkit::workload::collector::{CASES, Case, Feed, Input, SF_CASES, SfCase};

use super::harness::workload;

/// The cases, as in `hopwise bench`.
const COUNTED: [&str; 10] = [
    "fastpath-6x8-1k",
    "fastpath-1x1-1k",
    "fastpath-3x3-1k",
    "fastpath-6x8-change",
    "fastpath-mx21-6x8-1k",
    "fastpath-postcard-6x3-1k",
    "fastpath-tr05-6x8-1k",
    "fastpath-md21-6x8-1k",
    "fastpath-6x8-1k-rules10",
    "sf-join",
];

/// Number of packets in memory, delivered in bursts and repeatedly.
const PACKETS: u32 = 1_000;
/// Flows of the SF-INT case, whose frames are eight for each flow.
const SF_FLOWS: u32 = 16;
/// Minimum numbers of reports before the counted part, and in it. Together they are fewer than the reports between two ticks.
const WARM_UP: u64 = 9_000;
const COUNTED_REPORTS: u64 = 3_000;
/// Capacity of a batch, in records, which is more than a burst fills.
const BATCH: usize = 1_024;

/// Runs every case once, and prints its name and its number of counted reports.
///
/// # Errors
/// A case has no workload, or standard output is closed.
pub(crate) fn run() -> Result<ExitCode, CliError> {
    for name in COUNTED {
        let reports = count(name)?;
        terminal::print(&format!("{name} {reports}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn count(name: &str) -> Result<u64, CliError> {
    let (mut collector, mut feed) = if name.starts_with("sf-") {
        let case = SfCase {
            flows: SF_FLOWS,
            ..workload(SF_CASES, name, |case| case.name)?
        };
        (case.collector(), case.feed())
    } else {
        let case = Case {
            flows: 1,
            ..workload(CASES, name, |case| case.name)?
        };
        (case.collector(), case.feed_of_rounds(PACKETS))
    };
    let mut batch = Batch::with_capacity(BATCH);
    pass(&mut feed, &mut collector, &mut batch, WARM_UP);
    Ok(counted_pass(&mut feed, &mut collector, &mut batch))
}

/// Processes the counted reports, and returns their number. Callgrind finds the function by its name.
#[inline(never)]
fn counted_pass(feed: &mut Feed, collector: &mut Collector, batch: &mut Batch) -> u64 {
    black_box(pass(feed, collector, batch, COUNTED_REPORTS))
}

/// Processes at least `wanted` reports, and returns their number.
fn pass(feed: &mut Feed, collector: &mut Collector, batch: &mut Batch, wanted: u64) -> u64 {
    let mut reports = 0;
    while reports < wanted {
        reports += feed.burst(Input::Frames, collector, batch) as u64;
        batch.clear();
    }
    reports
}
