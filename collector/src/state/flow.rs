//! Applies a report to its flow: the flow's latency, the E and M bits of INT (hop count exceeded, MTU exceeded), and the report
//! count. Builds the flow's row and the rollup of its minute.

use detect::Metric;

use super::deadband::Deadband;
use super::emit::Emitter;
use super::flows::{Cold, ColdPart, Flags, Flow};
use crate::config::Units;
use crate::decode::clock::{Difference, difference};
use crate::decode::{EndTimestamps, EventContext, Head, Hops, NO_VALUE, Origin, Signals, lacks_ingress};
use crate::event::{Basis, Event, FlowRow, Kind, Nanos, Rollup};

/// Returns the time from the first node's ingress to the last node's egress, ns, and its basis. `total` is the sum of the hop
/// latencies, or [`NO_VALUE`] if one is unknown.
#[inline(always)]
fn flow_latency(hops: impl Hops, total: u64) -> (u64, Basis) {
    if hops.units().synchronised {
        return synchronised_latency(hops, total);
    }
    summed_latency(hops, total)
}

/// Returns the sum of the hop latencies, ns, and its basis: with a single hop, it is that hop's measurement.
#[inline(always)]
fn summed_latency(hops: impl Hops, total: u64) -> (u64, Basis) {
    let is_sum = total != NO_VALUE && hops.count() != 1;
    (total, if is_sum { Basis::HopSum } else { Basis::Measured })
}

/// Returns the time between the end timestamps, ns, and its basis, or the sum `total` if they are missing or contradict it.
#[inline(never)]
fn synchronised_latency(hops: impl Hops, total: u64) -> (u64, Basis) {
    // Timestamps are rounded at each hop: a sum that is larger by at most that rounding does not contradict them.
    let rounding = u64::from(hops.units().stamp_ns) * hops.count() as u64;
    match measure(hops.ends(), hops.units()) {
        Ok(Some(measured)) if total == NO_VALUE || measured.saturating_add(rounding) >= total => {
            (measured, Basis::Measured)
        }
        Err(Backwards) if total == NO_VALUE => (NO_VALUE, Basis::Unsynchronised),
        _ => summed_latency(hops, total),
    }
}

/// Error: the last egress is earlier than the first ingress.
struct Backwards;

/// Returns the time from the first ingress to the last egress, ns, or `None` if a timestamp is missing.
fn measure(ends: EndTimestamps, units: Units) -> Result<Option<u64>, Backwards> {
    if ends.ingress == NO_VALUE || ends.egress == NO_VALUE || lacks_ingress(ends.ingress, ends.egress, units)
    {
        return Ok(None);
    }
    match difference(ends.ingress, ends.egress, ends.wide) {
        Difference::Later(later) => Ok(Some(later.saturating_mul(u64::from(units.stamp_ns)))),
        Difference::Backwards => Err(Backwards),
    }
}

impl Flow {
    /// Applies the values of the flow as a whole, after its hops. Returns the flow latency, or [`NO_VALUE`].
    #[inline(always)]
    pub(super) fn apply<H: Hops>(
        &mut self,
        cold: ColdPart<'_>,
        head: &Head,
        hops: H,
        total: u64,
        emitter: &mut Emitter<'_>,
    ) -> u64 {
        // With E or M, records of some nodes are missing, so the packet's end-to-end latency is unknown.
        let latency = if head.signals.exceeded() {
            self.forget_latency();
            NO_VALUE
        } else {
            self.apply_latency_sum(cold, hops, total, emitter)
        };
        self.count_report(head, emitter);
        latency
    }

    /// Applies E and M, and counts the report.
    #[inline(always)]
    pub(super) fn count_report(&mut self, head: &Head, emitter: &mut Emitter<'_>) {
        let signals = head.all_signals();
        if !self.flags.matches(signals) {
            self.apply_signals(signals, emitter);
        }
        self.reports = self.reports.wrapping_add(1);
        self.last_seen = self.last_seen.max(head.about.ts);
    }

    /// Applies and returns the flow latency. `total` is the sum over the hops, or [`NO_VALUE`] if one is unknown.
    #[inline(always)]
    pub(crate) fn apply_latency_sum<H: Hops>(
        &mut self,
        cold: ColdPart<'_>,
        hops: H,
        total: u64,
        emitter: &mut Emitter<'_>,
    ) -> u64 {
        let (latency, basis) = flow_latency(hops, total);
        (self.latency, self.basis) = (latency, basis);
        if latency != NO_VALUE {
            self.apply_latency(cold, latency, emitter);
        }
        latency
    }

    /// Makes the latency unknown: that of an earlier report is not true of a later one, which may have taken another path.
    pub(super) fn forget_latency(&mut self) {
        (self.latency, self.basis) = (NO_VALUE, Basis::Measured);
    }

    #[inline(always)]
    fn apply_latency(&mut self, cold: ColdPart<'_>, latency: u64, emitter: &mut Emitter<'_>) {
        self.latency_sum = self.latency_sum.saturating_add(latency);
        // A 32-bit count per minute is enough for 71 million reports per second of one flow.
        self.latency_count = self.latency_count.wrapping_add(1);
        if !self.deadband.contains(latency) {
            self.examine_latency(cold, emitter);
        }
    }

    #[cold]
    #[inline(never)]
    fn examine_latency(&mut self, cold: ColdPart<'_>, emitter: &mut Emitter<'_>) {
        let cold = cold.get();
        let latency = self.latency;
        let threshold = emitter.threshold(Metric::FlowLatency);
        cold.min_latency = cold.min_latency.min(latency);
        cold.max_latency = cold.max_latency.max(latency);
        let previous = (cold.last_reported != NO_VALUE).then_some(cold.last_reported);
        if previous.is_none_or(|previous| previous.abs_diff(latency) > threshold) {
            cold.last_reported = latency;
            let mut event = emitter.change(Metric::FlowLatency, latency, previous);
            (event.flow, event.basis) = (emitter.about().flow(), self.basis);
            emitter.emit(event, &[]);
        }
        self.set_deadband(cold, threshold);
    }

    /// Applies changed E and M bits, and notes whether this report may lack hops of the path.
    #[cold]
    #[inline(never)]
    fn apply_signals(&mut self, signals: Signals, emitter: &mut Emitter<'_>) {
        let now = Flags::from(signals);
        // If packets with and without a bit alternate, reporting each change would make every other report an event.
        let begun = self.marks.record_signals(now);
        for (flag, kind) in [(Flags::HOP_LIMIT, Kind::HopLimit), (Flags::MTU, Kind::Mtu)] {
            if begun.has(flag) {
                let mut event = emitter.event(kind, Metric::FlowPath);
                event.value = Some(u64::from(self.path_length()));
                emitter.emit(event, &[]);
            }
            self.flags.set(flag, now.has(flag));
        }
        if !signals.is_incomplete() {
            // A report with all hops has the same path, so the path is complete.
            self.flags.set(Flags::INCOMPLETE, false);
        }
    }

    /// Reports all true rules as ended, because the flow ended or another rule set applies; no comparison decided it.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_rules(&mut self, emitter: &mut Emitter<'_>) {
        for rule in (0..64_u16).filter(|rule| self.rules >> rule & 1 == 1) {
            let mut event = Event::blank(emitter.about().ts, Kind::RuleOff);
            (event.flow, event.rule) = (emitter.about().flow(), Some(rule));
            emitter.emit(event, &[]);
        }
        self.rules = 0;
    }

    /// Sets the deadband of the flow latency: the values within the minute's extremes and within the threshold.
    pub(crate) fn set_deadband(&mut self, cold: &Cold, threshold: u64) {
        self.deadband = Deadband::EMPTY;
        if cold.last_reported != NO_VALUE && cold.min_latency <= cold.max_latency {
            let low = cold.min_latency.max(cold.last_reported.saturating_sub(threshold));
            let high = cold.max_latency.min(cold.last_reported.saturating_add(threshold));
            self.deadband = Deadband::between(low, high);
        }
    }

    /// Clears the minute's values.
    pub(crate) fn begin_minute(&mut self, cold: &mut Cold) {
        (cold.min_latency, cold.max_latency) = (u64::MAX, 0);
        (self.latency_count, self.latency_sum) = (0, 0);
        self.deadband = Deadband::EMPTY;
    }

    /// Returns the rollup of the flow latency for the minute of `cold`.
    pub(crate) fn minute(&self, cold: &Cold) -> Rollup {
        Rollup {
            ts: u64::from(cold.minute) * 60_000_000_000,
            interval: 60,
            metric: Metric::FlowLatency,
            flow: Some(self.key),
            node: None,
            interface: None,
            queue: None,
            count: u64::from(self.latency_count),
            min: cold.min_latency,
            max: cold.max_latency,
            sum: self.latency_sum,
            p50: None,
            p99: None,
        }
    }

    /// Returns the context for timer-driven events. Flow, first report and report count identify it.
    pub(super) fn about(&self, cold: &Cold, ts: Nanos) -> EventContext {
        let origin = Origin {
            seq: self.reports as u32,
            stamp: cold.first_report_hash,
            ..Origin::NONE
        };
        EventContext {
            ts,
            origin,
            key: self.key,
            has_flow: true,
            profile: 0,
        }
    }

    /// Returns the latest state as a row for the output.
    pub(crate) fn row(&self, cold: &Cold) -> FlowRow {
        FlowRow {
            flow: self.key,
            flow_latency: (self.latency != NO_VALUE).then_some(self.latency),
            basis: self.basis,
            first_seen: cold.first_seen,
            last_seen: self.last_seen,
            reports: self.reports,
        }
    }
}
