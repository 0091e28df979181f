//! Reports made in turn, and what the translator and the responder take for each.

use std::time::{Duration, Instant};

use crate::figures::reports::{BURST, Reports};

use super::timing;
use crate::{
    experiment::Scale,
    figures::{self, joined::Joined},
};
use terminal::CliError;

/// What reports took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    /// Nanoseconds per report in the translator, from the UDP payload to frames.
    pub(super) translate: f64,
    /// And in the responder, from frames to memory, with the answers' way back.
    pub(super) respond: f64,
    /// Frames per report, and their bytes.
    pub(super) frames: f64,
    pub(super) bytes: f64,
}

impl Speed {
    pub(super) fn both(&self) -> f64 {
        self.translate + self.respond
    }
}

/// Gives reports to a translator and its frames to a responder, in bursts, on this thread. Medians of turns of at least `cycle`
/// reports: so many that all turns have the same to do.
pub(super) fn measure(
    scale: Scale,
    joined: &mut Joined,
    reports: &mut Reports,
    cycle: u64,
) -> Result<Speed, CliError> {
    let span = Duration::from_micros(scale.of(1_000_000));
    let bursts = cycle.div_ceil(BURST as u64).max(4);
    let (mut translate, mut respond) = (Vec::new(), Vec::new());
    let (mut count, mut frames, mut bytes) = (0_u64, 0, 0);
    let started = Instant::now();
    while started.elapsed() < span || translate.len() < 4 {
        let (mut translated, mut carried) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..bursts {
            let burst = reports.burst();
            let begin = Instant::now();
            joined.translate(burst);
            translated += begin.elapsed();
            let waiting = joined.waiting();
            let begin = Instant::now();
            joined.carry();
            carried += begin.elapsed();
            count += BURST as u64;
            frames += waiting.0;
            bytes += waiting.1;
        }
        translate.push(translated.as_nanos() as f64);
        respond.push(carried.as_nanos() as f64);
    }
    joined.finish();
    joined.check()?;
    let (turn, per) = ((bursts * BURST as u64) as f64, |total: f64| total / count.max(1) as f64);
    Ok(Speed {
        translate: timing::median(translate) / turn,
        respond: timing::median(respond) / turn,
        frames: per(frames as f64),
        bytes: per(bytes as f64),
    })
}

/// Bytes of a store at most: 4 GiB where there is room for them twice, as the paper has it; else less.
pub(super) fn large(scale: Scale) -> u64 {
    match scale {
        Scale::Quick => 16 << 20,
        Scale::Full => figures::large(),
    }
}
