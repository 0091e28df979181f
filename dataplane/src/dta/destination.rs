//! The state of a reporter towards one collector's translator: sequence numbers of essential reports, a ring of the most recent
//! ones for retransmission, and the congestion level (wire-formats 5.8).
//!
//! Reports have three counters in the same 16-bit space, all relative to the first report: `next` (not made yet),
//! `first_never_sent`, and `next_due` (to send or retransmit). Adding `sequence_offset` gives the sequence number on the wire.

use wire::dta::{Priority, Report};

use super::outbox::Outbox;

/// Number of essential reports stored per collector (W in wire-formats 5.8).
pub const WINDOW: usize = 256;
/// Byte offset of the sequence number in a report (wire-formats 5.3).
const SEQUENCE_OFFSET: usize = 2;
/// Minimum delay before the other reports follow the first one that is retransmitted to a full translator, ns.
const MIN_OVERLOAD_WAIT: u64 = 1_000_000;
/// Maximum of this delay, which applies if the translator announced a longer time, ns.
const MAX_OVERLOAD_WAIT: u64 = 100_000_000;
/// Maximum number of retransmissions of the last report without a NACK.
const MAX_PROBES: u8 = 8;
/// Maximum time for which a congestion notice holds, us. Control messages are not authenticated, and a translator that is still
/// congested repeats its notice far sooner.
const MAX_HOLD_US: u32 = 1_000_000;
/// Cost of one retransmission in the allowance for NACKs, ns: 256 retransmissions per millisecond.
const RETRANSMISSION_COST: u64 = 1_000_000 / 256;
/// Size of the allowance, ns: a burst of 512 retransmissions.
const ALLOWANCE: u64 = 512 * RETRANSMISSION_COST;

/// Settings of the retransmission of essential reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retransmission {
    /// Time for which further NACKs for the same gap are ignored, ns.
    pub patience: u64,
    /// Time after which the last essential report is retransmitted if no other follows it, ns. It is repeated after twice, four
    /// times… this time, eight times in total, because only a later report reveals a loss. The translator ignores duplicates. 0
    /// disables this.
    pub probe: u64,
}

impl Default for Retransmission {
    fn default() -> Self {
        Self {
            patience: 500_000,
            probe: 20_000_000,
        }
    }
}

/// Counters of the destination of one collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of essential reports created.
    pub essential: u64,
    /// Essential reports overwritten in the ring before they were first sent.
    pub overwritten: u64,
    /// Retransmissions because of a NACK.
    pub retransmitted: u64,
    /// Retransmissions of the last report because none followed.
    pub probes: u64,
    /// NACKs that were processed.
    pub nacks: u64,
    /// NACKs that were ignored: a repetition within [`Retransmission::patience`], or one that names no missing report.
    pub early: u64,
    /// NACKs ignored because they would exceed the limit of retransmissions.
    pub limited: u64,
    /// ACKs about reports that were never sent; NACKs about such reports, after the translator had confirmed a sequence number or
    /// after the first [`WINDOW`] reports.
    pub unbelieved: u64,
    /// Reports that NACKs requested after they had left the retransmit buffer, each counted once.
    pub unavailable: u64,
    /// NACKs of a translator that expects a sequence number before this reporter's first one; the stored reports were
    /// renumbered.
    pub renumbered: u64,
    /// NACKs that reject a report, because it is malformed or for a store or list that does not exist.
    pub refused: u64,
    /// ACKs that arrived, with those that are `unbelieved`.
    pub acks: u64,
    /// Congestion notices that were processed.
    pub congestions: u64,
    /// Reports that the translator dropped, according to its congestion notices.
    pub translator_drops: u64,
}

/// The last NACK that was processed.
#[derive(Clone, Copy, Debug)]
struct LastNack {
    /// Arrival time, ns.
    received: u64,
    /// The sequence number that it gave: the translator has all reports up to this one.
    sequence: u16,
}

/// Retransmission of the last report while no other follows it, like the tail loss probe of RFC 8985.
#[derive(Clone, Copy, Debug)]
struct TailProbe {
    /// Time of the next retransmission, ns; [`u64::MAX`] if the translator has confirmed the report.
    due: u64,
    /// Remaining retransmissions.
    remaining: u8,
}

impl TailProbe {
    /// No retransmission is pending.
    const NONE: Self = Self {
        due: u64::MAX,
        remaining: 0,
    };
}

#[derive(Debug)]
pub(super) struct Destination {
    number: u8,
    /// Bytes of a slot in the ring.
    slot_len: usize,
    ring: Vec<u8>,
    lengths: Vec<u16>,
    /// Number of the next essential report, counted from the first.
    next: u16,
    /// Offset from a report's number to its sequence number on the wire.
    sequence_offset: u16,
    /// Number of reports in the ring.
    buffered_count: u16,
    /// The first report that must be sent or retransmitted, if any.
    next_due: Option<u16>,
    /// All reports before this one have been sent at least once.
    first_never_sent: u16,
    last_nack: Option<LastNack>,
    /// Time at which the allowance for retransmissions is full again, ns.
    spent_until: u64,
    /// True once the translator has named one of our sequence numbers.
    has_confirmation: bool,
    /// Reports before this position are not counted as unavailable again.
    unavailable_before: u64,
    probe: TailProbe,
    /// Congestion level of the translator's latest notice, 0 (none) to 3.
    level: u8,
    /// Time at which the level ends, ns.
    level_until: u64,
    /// Time until which only one report is retransmitted because the translator was full, ns.
    retransmit_after: u64,
    pub(super) stats: Stats,
}

impl Destination {
    /// Creates the state. `longest` is the length of the longest essential report in bytes, 0 if there are none; `first` is the
    /// sequence number of the first report.
    pub(super) fn new(number: u8, longest: usize, first: u16) -> Self {
        let buffered = if longest > 0 { WINDOW } else { 0 };
        Self {
            number,
            slot_len: longest,
            ring: vec![0; longest * buffered],
            lengths: vec![0; buffered],
            next: 0,
            sequence_offset: first,
            buffered_count: 0,
            next_due: None,
            first_never_sent: 0,
            last_nack: None,
            spent_until: 0,
            has_confirmation: false,
            unavailable_before: 0,
            probe: TailProbe::NONE,
            level: 0,
            level_until: 0,
            retransmit_after: 0,
            stats: Stats::default(),
        }
    }

    /// Returns the bytes of the longest essential report.
    pub(super) fn longest(&self) -> usize {
        self.slot_len
    }

    /// Returns whether congestion suppresses reports of this priority.
    #[inline]
    pub(super) fn suppresses(&self, priority: Priority, now: u64) -> bool {
        if self.level == 0 || now >= self.level_until {
            return false;
        }
        match priority {
            Priority::Low => true,
            Priority::Medium => self.level >= 2,
            Priority::High => false,
        }
    }

    /// Returns the congestion level at `now`.
    pub(super) fn level(&self, now: u64) -> u8 {
        if now < self.level_until { self.level } else { 0 }
    }

    pub(super) fn set_level(&mut self, level: u8, hold_us: u32, dropped: u32, now: u64) {
        self.stats.congestions += 1;
        self.stats.translator_drops += u64::from(dropped);
        self.level = level.min(3);
        if level == 0 {
            self.retransmit_after = 0;
        }
        self.level_until = now.saturating_add(u64::from(hold_us.min(MAX_HOLD_US)) * 1000);
    }

    /// Sends a report or, if it is essential, stores it in the ring and sends it when it fits. Returns false if there was no
    /// space.
    pub(super) fn send(&mut self, report: &Report<'_>, now: u64, probe: u64, out: &mut Outbox) -> bool {
        if report.base.essential {
            return self.send_essential(report, now, probe, out);
        }
        let Some(Ok(len)) = out.buffer(report.len()).map(|buffer| report.emit(buffer)) else {
            return false;
        };
        out.commit(self.number, len);
        true
    }

    fn send_essential(&mut self, report: &Report<'_>, now: u64, probe: u64, out: &mut Outbox) -> bool {
        let mut report = *report;
        report.base.sequence = self.next.wrapping_add(self.sequence_offset);
        let slot = usize::from(self.next) % WINDOW;
        let buffer = self
            .ring
            .get_mut(slot * self.slot_len..(slot + 1) * self.slot_len);
        let Some(Ok(len)) = buffer.map(|buffer| report.emit(buffer)) else {
            return false;
        };
        self.lengths[slot] = len as u16;
        // The slot's previous report is overwritten, so it can no longer be sent.
        if self.next_due == Some(self.next.wrapping_sub(WINDOW as u16)) {
            self.skip_next_due();
        }
        self.buffered_count = (self.buffered_count + 1).min(WINDOW as u16);
        self.next_due = self.next_due.or(Some(self.next));
        self.next = self.next.wrapping_add(1);
        self.stats.essential += 1;
        self.probe = TailProbe {
            due: now.saturating_add(probe),
            remaining: if probe > 0 { MAX_PROBES } else { 0 },
        };
        self.send_due(now, out);
        true
    }

    fn skip_next_due(&mut self) {
        let Some(first) = self.next_due else { return };
        if self.first_never_sent == first {
            self.stats.overwritten += 1;
            self.first_never_sent = first.wrapping_add(1);
        }
        self.next_due = Some(first.wrapping_add(1)).filter(|next| *next != self.next);
    }

    /// Sends and retransmits due reports in order, as many as fit.
    pub(super) fn send_due(&mut self, now: u64, out: &mut Outbox) {
        while now >= self.retransmit_after && self.send_next_due(out) {}
    }

    /// Sends the first due report. Returns false if there is none, or it does not fit.
    fn send_next_due(&mut self, out: &mut Outbox) -> bool {
        let Some(report) = self.next_due else { return false };
        if !out.push(self.number, self.buffered(report)) {
            return false;
        }
        if report == self.first_never_sent {
            self.first_never_sent = report.wrapping_add(1);
        } else {
            self.stats.retransmitted += 1;
        }
        self.next_due = Some(report.wrapping_add(1)).filter(|next| *next != self.next);
        true
    }

    fn buffered(&self, report: u16) -> &[u8] {
        let slot = usize::from(report) % WINDOW;
        let len = self.lengths.get(slot).map_or(0, |len| usize::from(*len));
        self.ring
            .get(slot * self.slot_len..slot * self.slot_len + len)
            .unwrap_or(&[])
    }

    /// Processes a NACK: the translator lacks the reports after `last`. With `overload` (it could not queue them), only the
    /// first is retransmitted at once, the others when the congestion is over.
    pub(super) fn nack(
        &mut self,
        last: u16,
        overload: bool,
        now: u64,
        retransmission: &Retransmission,
        out: &mut Outbox,
    ) {
        let missing = self.reports_after(last);
        let is_repeated = self.last_nack.is_some_and(|nack| {
            nack.sequence == last && now.saturating_sub(nack.received) < retransmission.patience
        });
        // Half of the numbers are behind the latest report.
        if is_repeated || missing == 0 || missing >= 1 << 15 {
            self.stats.early += 1;
            return;
        }
        let were_sent = u64::from(missing) <= self.stats.essential;
        // A translator that knows an earlier reporter with our ID asks about one of the first reports. Later, renumbered
        // reports would be ones that it already has, and would execute again.
        if !were_sent && (self.has_confirmation || self.stats.essential > WINDOW as u64) {
            self.stats.unbelieved += 1;
            return;
        }
        let retransmissions = if overload {
            1
        } else {
            missing.min(self.buffered_count)
        };
        if !self.spend_allowance(retransmissions, now) {
            self.stats.limited += 1;
            return;
        }
        self.stats.nacks += 1;
        self.last_nack = Some(LastNack {
            received: now,
            sequence: last,
        });
        self.has_confirmation = true;
        let missing = if were_sent { missing } else { self.renumber(last) };
        self.count_unavailable(missing);
        let first = self.next.wrapping_sub(missing.min(self.buffered_count));
        if self.buffered_count > 0 {
            self.next_due = Some(first);
        }
        if retransmission.probe > 0 {
            self.probe = TailProbe {
                due: now.saturating_add(retransmission.probe),
                remaining: MAX_PROBES,
            };
        }
        self.retransmit_after = 0;
        if overload {
            self.send_next_due(out);
            let congested_until = if self.level >= 3 { self.level_until } else { 0 };
            self.retransmit_after = congested_until.clamp(
                now.saturating_add(MIN_OVERLOAD_WAIT),
                now.saturating_add(MAX_OVERLOAD_WAIT),
            );
        }
        self.send_due(now, out);
    }

    /// Returns the number of reports after sequence number `last`.
    fn reports_after(&self, last: u16) -> u16 {
        self.next
            .wrapping_add(self.sequence_offset)
            .wrapping_sub(last)
            .wrapping_sub(1)
    }

    /// Takes `count` retransmissions from the allowance. Returns false if it does not have as many.
    fn spend_allowance(&mut self, count: u16, now: u64) -> bool {
        // Impossible value: the clock was set back.
        if self.spent_until > now.saturating_add(ALLOWANCE) {
            self.spent_until = now;
        }
        let spent_until = self
            .spent_until
            .max(now)
            .saturating_add(u64::from(count) * RETRANSMISSION_COST);
        let is_allowed = spent_until <= now.saturating_add(ALLOWANCE);
        if is_allowed {
            self.spent_until = spent_until;
        }
        is_allowed
    }

    /// Counts those of the last `missing` reports that have left the buffer and were not counted before.
    fn count_unavailable(&mut self, missing: u16) {
        let total = self.stats.essential;
        let from = total.saturating_sub(missing.into()).max(self.unavailable_before);
        let to = total.saturating_sub(self.buffered_count.into());
        self.stats.unavailable += to.saturating_sub(from);
        self.unavailable_before = to.max(self.unavailable_before);
    }

    /// Handles a `last` that was never sent: the translator continues the sequence of an earlier reporter with the same ID, and
    /// has accepted no report of ours yet. Renumbers the stored reports to follow `last`, and returns the number of missing
    /// reports.
    fn renumber(&mut self, last: u16) -> u16 {
        self.stats.renumbered += 1;
        let first = self.next.wrapping_sub(self.buffered_count);
        self.sequence_offset = last.wrapping_add(1).wrapping_sub(first);
        for offset in 0..self.buffered_count {
            let report = first.wrapping_add(offset);
            let start = usize::from(report) % WINDOW * self.slot_len + SEQUENCE_OFFSET;
            if let Some(sequence) = self.ring.get_mut(start..start + 2) {
                sequence.copy_from_slice(&report.wrapping_add(self.sequence_offset).to_be_bytes());
            }
        }
        u16::try_from(self.stats.essential).unwrap_or(u16::MAX)
    }

    /// Processes an ACK: the translator has all reports up to `last`.
    pub(super) fn ack(&mut self, last: u16) {
        self.stats.acks += 1;
        let missing = self.reports_after(last);
        if u64::from(missing) >= self.stats.essential {
            self.stats.unbelieved += 1;
            return;
        }
        self.has_confirmation = true;
        if missing == 0 {
            self.probe = TailProbe::NONE;
        }
    }

    /// Returns whether the translator has confirmed all essential reports.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.stats.essential == 0 || self.probe.due == u64::MAX
    }

    /// Sends due reports: those that did not fit before, and the retransmission of the last report.
    pub(super) fn tick(&mut self, now: u64, retransmission: &Retransmission, out: &mut Outbox) {
        self.send_due(now, out);
        let TailProbe { due, remaining } = self.probe;
        if remaining == 0 || now < due || self.next_due.is_some() || self.buffered_count == 0 {
            return;
        }
        if out.push(self.number, self.buffered(self.next.wrapping_sub(1))) {
            self.stats.probes += 1;
            // Each probe waits twice as long as the one before.
            let probes = MAX_PROBES - remaining + 1;
            self.probe = TailProbe {
                due: now.saturating_add(retransmission.probe << probes),
                remaining: remaining - 1,
            };
        }
    }

    /// Returns the time at which [`Destination::tick`] is due, ns.
    pub(super) fn next_tick(&self) -> Option<u64> {
        match self.next_due {
            Some(_) => Some(self.retransmit_after),
            None => (self.probe.remaining > 0).then_some(self.probe.due),
        }
    }

    /// Returns the number of essential reports that were not sent yet.
    pub(super) fn never_sent_count(&self) -> u16 {
        self.next_due
            .map_or(0, |_| self.next.wrapping_sub(self.first_never_sent))
    }

    /// Returns the sequence number of the last essential report.
    pub(super) fn last_sequence(&self) -> Option<u16> {
        (self.buffered_count > 0).then(|| self.next.wrapping_add(self.sequence_offset).wrapping_sub(1))
    }
}
