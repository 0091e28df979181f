//! Loss accounting inside the collector. Disabled if a [`Sequencer`] in front of several collectors does it.

use crate::config::Config;
use crate::event::{Kind, Nanos, Output};
use crate::sequence::{Losses, Run, Sequencer, StreamView};
use crate::state::EventCounts;
use crate::stats::Table;
use crate::stream::StreamId;

/// Counts datagrams by the sequence numbers of their streams, if enabled.
#[derive(Debug)]
pub(super) struct LossAccounting {
    sequencer: Option<Sequencer>,
}

impl LossAccounting {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            sequencer: config
                .sequence
                .then(|| Sequencer::new(config.max_sources, config.seed)),
        }
    }

    /// Calls [`Sequencer::observe_latest`]; returns `true` if loss accounting is disabled.
    #[inline(always)]
    pub(super) fn observe_latest(&mut self, packed: u64, seq: u32, now: Nanos, out: &mut dyn Output) -> bool {
        match &mut self.sequencer {
            Some(sequencer) => sequencer.observe_latest(packed, seq, now, out),
            None => true,
        }
    }

    /// Accounts for a datagram with this sequence number.
    #[inline]
    pub(super) fn observe(&mut self, stream: &StreamId, seq: u32, now: Nanos, out: &mut dyn Output) {
        if let Some(sequencer) = &mut self.sequencer {
            sequencer.observe(stream, seq, now, out);
        }
    }

    /// Passes a refused datagram with this sequence number to [`Sequencer::observe_refused`].
    pub(super) fn observe_refused(&mut self, stream: &StreamId, seq: u32, now: Nanos, out: &mut dyn Output) {
        if let Some(sequencer) = &mut self.sequencer {
            sequencer.observe_refused(stream, seq, now, out);
        }
    }

    /// Accounts for a run of datagrams that a filter suppressed.
    pub(super) fn receive_run(&mut self, stream: &StreamId, run: Run, now: Nanos, out: &mut dyn Output) {
        if let Some(sequencer) = &mut self.sequencer {
            sequencer.receive_run(stream, run, now, out);
        }
    }

    /// Ends an accounting interval: emits each loss and its event. `last`: the input has ended, so missing numbers are lost.
    pub(super) fn account(&mut self, now: Nanos, last: bool, counts: &mut EventCounts, out: &mut dyn Output) {
        let Some(sequencer) = &mut self.sequencer else {
            return;
        };
        counts[Kind::Loss as usize] += if last {
            sequencer.finish(now, out)
        } else {
            sequencer.account(now, out)
        };
    }

    pub(super) fn table(&self) -> Table {
        self.sequencer.as_ref().map(Sequencer::table).unwrap_or_default()
    }

    pub(super) fn streams(&self) -> impl Iterator<Item = StreamView> {
        self.sequencer.iter().flat_map(Sequencer::streams)
    }

    pub(super) fn evicted_losses(&self) -> Losses {
        self.sequencer
            .as_ref()
            .map(Sequencer::evicted_losses)
            .unwrap_or_default()
    }
}
