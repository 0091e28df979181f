//! The fast path for the common report (read at constant offsets, see [`Brief`]), a burst at a time: reports are decoded ahead,
//! so that the memory of one is prefetched while others are decoded. The burst has two halves of [`HALF`] reports; one is
//! applied while the memory of the other is prefetched.

use wire::Decoder;
use wire::report::Brief;

use super::Inner;
use crate::decode::{DatagramContext, Head, Signals, StackReport, StreamSeq, is_whole_path, version};
use crate::event::Output;
use crate::index::NO_SLOT;
use crate::state::flows::Flows;
use crate::stream;

/// Reports that are applied together.
const HALF: usize = 8;

/// Maximum number of reports that are decoded ahead.
pub(super) const AHEAD: usize = 2 * HALF;

/// Number of reports decoded between prefetching a report's bucket and its entry, and between its entry and its hops: long
/// enough for the memory access.
const STEP: usize = 4;

/// Writes the common report into an element of the burst.
#[inline(always)]
fn write<'a>(report: &mut StackReport<'a>, brief: &Brief<'a>, envelope: &DatagramContext<'_>, seed: u64) {
    let about = &mut report.head.about;
    (about.key, about.ts) = (brief.flow, envelope.received);
    about.origin.reporter = u64::from(brief.node_id);
    (about.origin.seq, about.origin.stamp) = (brief.seq, brief.ts);
    (about.origin.hw_id, about.origin.sender) = (brief.hw_id, envelope.sender.tag);
    about.origin.version = version(brief.version);
    report.head.hash = brief.flow.hash(seed);
    report.head.signals =
        Signals::from(brief.int_flags).or_incomplete(brief.flags.contains(wire::Flags::QUEUE));
    report.head.remaining = brief.remaining.into();
    report.head.expires = Head::is_last_hop(brief.hop_limit);
    report.records = brief.records;
}

/// Reports that are decoded but not applied yet.
pub(super) struct Burst<'a> {
    /// Two halves, filled alternately.
    reports: [StackReport<'a>; AHEAD],
    /// Index of the first pending report: the start of a half.
    first: usize,
    pub(super) count: usize,
}

impl Burst<'_> {
    pub(super) fn new() -> Self {
        // Sets the fields that are equal in all common reports.
        let mut head = Head::none();
        (head.whole_path, head.about.has_flow) = (true, true);
        let report = StackReport {
            head,
            records: &[],
            plan: 0,
            slot: NO_SLOT,
        };
        Self {
            reports: [report; AHEAD],
            first: 0,
            count: 0,
        }
    }

    /// Returns the index of report `number`, counted from the first pending one.
    #[inline(always)]
    fn place(&self, number: usize) -> usize {
        (self.first + number) % AHEAD
    }

    /// Prefetches memory for the reports that were decoded one and two steps before number `at`.
    #[inline(always)]
    fn look_ahead(&mut self, at: usize, flows: &Flows) {
        if let Some(earlier) = at.checked_sub(STEP).filter(|earlier| *earlier < self.count) {
            let report = &mut self.reports[self.place(earlier)];
            report.slot = flows.prefetch_entry(report.head.hash);
        }
        if let Some(earlier) = at.checked_sub(2 * STEP).filter(|earlier| *earlier < self.count) {
            flows.prefetch_hops(self.reports[self.place(earlier)].slot);
        }
    }
}

impl Inner {
    /// Adds a common report to the burst. Returns `false`, and does nothing, if its records cannot be read in place or some
    /// nodes have units of their own.
    #[inline(always)]
    pub(super) fn brief<'a>(
        &mut self,
        envelope: &DatagramContext<'_>,
        brief: &Brief<'a>,
        reader: &Decoder,
        burst: &mut Burst<'a>,
        out: &mut dyn Output,
    ) -> bool {
        if !self.node_units.is_empty() {
            return false;
        }
        let mut at = burst.place(burst.count);
        write(&mut burst.reports[at], brief, envelope, self.seed);
        let shape = brief.shape | u64::from(envelope.sender.profile) << 56;
        let plan = match self.plans.find(shape) {
            Some(plan) => plan,
            None => {
                // A new plan may evict one that pending reports still need.
                self.flush(burst, out);
                burst.reports[0] = burst.reports[at];
                at = 0;
                match self
                    .plans
                    .make(shape, &reader.layout(brief.shape), *envelope.units)
                {
                    Some(plan) => plan,
                    None => return false,
                }
            }
        };
        let stream = stream::pack(
            version(brief.version),
            brief.hw_id,
            envelope.listener,
            brief.node_id,
        );
        if !self
            .losses
            .observe_latest(stream, brief.seq, envelope.received, out)
        {
            self.losses.observe(
                &StreamSeq::from(brief).stream(envelope),
                brief.seq,
                envelope.received,
                out,
            );
        }
        let report = &mut burst.reports[at];
        report.plan = plan;
        report.head.about.profile = envelope.sender.profile;
        self.state.flows.prefetch_bucket(report.head.hash);
        burst.look_ahead(burst.count, &self.state.flows);
        burst.count += 1;
        true
    }

    /// Adds a report of a less common kind to the burst like [`Inner::brief`], and applies a half if the burst is full. Out of
    /// line, so that `brief` is compiled for the most common kind.
    #[inline(never)]
    pub(super) fn brief_any<'a>(
        &mut self,
        envelope: &DatagramContext<'_>,
        payload: &'a [u8],
        reader: &mut Decoder,
        burst: &mut Burst<'a>,
        out: &mut dyn Output,
    ) -> bool {
        let brief = reader.brief_any(payload);
        let brief = brief.filter(|brief| is_whole_path(brief.flags) && !brief.records.is_empty());
        let added = brief.is_some_and(|brief| self.brief(envelope, &brief, reader, burst, out));
        if burst.count == AHEAD {
            self.apply_half(burst, out);
        }
        added
    }

    /// Applies all pending reports.
    pub(super) fn flush(&mut self, burst: &mut Burst<'_>, out: &mut dyn Output) {
        for at in burst.count..burst.count + 2 * STEP {
            burst.look_ahead(at, &self.state.flows);
        }
        while burst.count > 0 {
            self.apply_half(burst, out);
        }
        burst.first = 0;
    }

    /// Applies the first half of the pending reports.
    #[inline(never)]
    pub(super) fn apply_half(&mut self, burst: &mut Burst<'_>, out: &mut dyn Output) {
        let count = burst.count.min(HALF);
        self.stats.reports += count as u64;
        self.stats.accepted += count as u64;
        self.state.counts.flow_reports += count as u64;
        let half = burst
            .reports
            .get(burst.first..burst.first + count)
            .unwrap_or_default();
        for run in half.chunk_by(|one, next| one.plan == next.plan) {
            if let Some(plan) = run.first().and_then(|report| self.plans.get(report.plan)) {
                self.state.apply_stacks(run, plan, out);
            }
        }
        burst.first = (burst.first + HALF) % AHEAD;
        burst.count -= count;
    }
}
