//! Time per report in the translator and in the responder.

use std::time::{Duration, Instant};

use crate::figures::reports::{BURST, Reports};

use super::timing;
use crate::{
    experiment::Scale,
    figures::{self, pipeline::Pipeline},
};
use terminal::CliError;

/// Time and output per report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    /// Nanoseconds per report in the translator, from the UDP payload to frames.
    pub(super) translate: f64,
    /// Nanoseconds per report in the responder, from frames to memory, including the responses to the requester.
    pub(super) respond: f64,
    /// Frames per report, and bytes of these frames.
    pub(super) frames: f64,
    pub(super) bytes: f64,
}

impl Speed {
    pub(super) fn both(&self) -> f64 {
        self.translate + self.respond
    }
}

/// Passes reports to a translator and its frames to a responder, in bursts, on this thread. The result is the median of rounds of
/// at least `cycle` reports, so that all rounds do the same work.
pub(super) fn measure(
    scale: Scale,
    pipeline: &mut Pipeline,
    reports: &mut Reports,
    cycle: u64,
) -> Result<Speed, CliError> {
    let span = Duration::from_micros(scale.of(1_000_000));
    let bursts = cycle.div_ceil(BURST as u64).max(4);
    let (mut translate, mut respond) = (Vec::new(), Vec::new());
    let (mut count, mut frames, mut bytes) = (0_u64, 0, 0);
    let started = Instant::now();
    while started.elapsed() < span || translate.len() < 4 {
        let (mut translated, mut delivered) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..bursts {
            let burst = reports.burst();
            let begin = Instant::now();
            pipeline.translate(burst);
            translated += begin.elapsed();
            let pending = pipeline.pending();
            let begin = Instant::now();
            pipeline.deliver();
            delivered += begin.elapsed();
            count += BURST as u64;
            frames += pending.0;
            bytes += pending.1;
        }
        translate.push(translated.as_nanos() as f64);
        respond.push(delivered.as_nanos() as f64);
    }
    pipeline.finish();
    pipeline.check()?;
    let (round, per) = ((bursts * BURST as u64) as f64, |total: f64| total / count.max(1) as f64);
    Ok(Speed {
        translate: timing::median(translate) / round,
        respond: timing::median(respond) / round,
        frames: per(frames as f64),
        bytes: per(bytes as f64),
    })
}

/// Maximum bytes of a store: 4 GiB as in the paper, if enough memory is available.
pub(super) fn large(scale: Scale) -> u64 {
    match scale {
        Scale::Quick => 16 << 20,
        Scale::Full => figures::large(),
    }
}
