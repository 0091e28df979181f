//! Measures the time per report in the translator and in the responder, for the experiments that pass DTA reports through both.

use std::time::{Duration, Instant};

use crate::figures::reports::{BURST, Reports};

use crate::{
    figures::{self, pipeline::Pipeline},
    settings::{Scale, Settings},
    timing::{self, Spread},
};
use terminal::CliError;

/// Time, frames and bytes per report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    /// Nanoseconds per report in the translator, from the UDP payload to frames.
    pub(super) translate: Spread,
    /// Nanoseconds per report in the responder, from frames to memory, including the responses to the requester.
    pub(super) respond: Spread,
    /// Frames per report, and the bytes of these frames.
    pub(super) frames: f64,
    pub(super) bytes: f64,
}

impl Speed {
    pub(super) fn both(&self) -> Spread {
        self.translate.plus(self.respond)
    }
}

/// Passes reports to a translator and its frames to a responder, in bursts, on this thread. Each run is the median of its
/// rounds. A round has at least `cycle` reports, so that all rounds do the same work.
pub(super) fn measure(
    settings: &Settings,
    pipeline: &mut Pipeline,
    reports: &mut Reports,
    cycle: u64,
) -> Result<Speed, CliError> {
    let span = timing::span(settings);
    let bursts = cycle.div_ceil(BURST as u64).max(4);
    let mut translate = Vec::new();
    let mut respond = Vec::new();
    let mut total = Sent::default();
    for _ in 0..settings.value("runs") {
        let started = Instant::now();
        let mut translated = Vec::new();
        let mut delivered = Vec::new();
        while started.elapsed() < span || translated.len() < 2 {
            let (one, other) = round(pipeline, reports, bursts, &mut total);
            translated.push(one.as_nanos() as f64);
            delivered.push(other.as_nanos() as f64);
        }
        let reports = (bursts * BURST as u64) as f64;
        translate.push(Spread::of(translated).median / reports);
        respond.push(Spread::of(delivered).median / reports);
    }
    pipeline.finish();
    pipeline.check()?;
    let reports = total.reports.max(1) as f64;
    Ok(Speed {
        translate: Spread::of(translate),
        respond: Spread::of(respond),
        frames: total.frames as f64 / reports,
        bytes: total.bytes as f64 / reports,
    })
}

/// Totals of reports in, and of frames and bytes out.
#[derive(Default)]
struct Sent {
    reports: u64,
    frames: u64,
    bytes: u64,
}

/// Runs one round. Returns the time in the translator and the time in the responder.
fn round(
    pipeline: &mut Pipeline,
    reports: &mut Reports,
    bursts: u64,
    total: &mut Sent,
) -> (Duration, Duration) {
    let mut translated = Duration::ZERO;
    let mut delivered = Duration::ZERO;
    for _ in 0..bursts {
        let burst = reports.burst();
        let begin = Instant::now();
        pipeline.translate(burst);
        translated += begin.elapsed();
        let pending = pipeline.pending();
        let begin = Instant::now();
        pipeline.deliver();
        delivered += begin.elapsed();
        total.reports += BURST as u64;
        total.frames += pending.0;
        total.bytes += pending.1;
    }
    (translated, delivered)
}

/// Returns the bytes of a large store: 4 GiB as in the paper, if enough memory is available.
pub(super) fn large(scale: Scale) -> u64 {
    match scale {
        Scale::Quick => 16 << 20,
        Scale::Smallest => 1 << 20,
        Scale::Full => figures::large(),
    }
}
