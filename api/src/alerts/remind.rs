//! Repeats alerts after a silence: an alert that began while silenced and still fires when the silence ends is reported once
//! more, so that exports send it to people.
//!
//! It must never be reported after its end. So the collector that evaluates the rule emits the repeat itself, and only if the
//! rule is true then: an earlier end precedes the repeat in the collector's output, a later one follows it. The event's time
//! is that of the flow's latest report or of the end of the silence, whichever is later; no later end has an earlier time.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::Duration,
};

use collector::{Collector, Event, Kind, Output, event::Nanos};
use tokio::time;

use super::{DEFAULT_SPAN, REPEAT_BATCH, firing, read_alerts, true_rule};
use crate::{context::Context, query::history_permit, refusal::Refusal};
use history::alerts::{Alert, Notes};

/// Interval between two checks without failures.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of doublings of the interval; about one minute.
const MAX_DOUBLINGS: u32 = 5;
/// Number of failures in a row that is logged.
const FAILURES_BEFORE_LOG: u32 = 4;
/// Delay after the end of a silence, ns. Then all reports received before are evaluated, and the ends that they cause have
/// earlier times.
const SETTLE_DELAY: Nanos = 5_000_000_000;
/// Maximum number of pages of events that are read.
const MAX_EVENT_PAGES: usize = 10;

/// Checks at intervals for silences that have ended, until the context is dropped.
pub(crate) async fn remind(context: Weak<Context>) {
    let mut after = settled_until();
    let mut failures = 0;
    loop {
        time::sleep(check_delay(failures)).await;
        let Some(context) = context.upgrade() else { return };
        let Some(notes) = &context.notes else { return };
        let until = settled_until();
        if let Some(end) = notes.ended(after, until) {
            match repeat_alerts(&context, notes, end).await {
                Ok(0) => {}
                Ok(alerts) => tracing::info!(
                    alerts,
                    "a silence has ended; alerts that still fire are reported once more"
                ),
                // Retry later, with backoff: the store or the collector is busy, and the search adds to its load.
                Err(_) => {
                    failures = failures.saturating_add(1);
                    if failures == FAILURES_BEFORE_LOG {
                        tracing::warn!(
                            failures,
                            "a silence has ended, and the alerts that still fire cannot be read; they are reported once that succeeds"
                        );
                    }
                    continue;
                }
            }
        }
        (after, failures) = (until, 0);
    }
}

/// Returns the time up to which all events are stored.
fn settled_until() -> Nanos {
    nic::time::now().saturating_sub(SETTLE_DELAY)
}

/// Returns the pause before the next check, after this number of failures in a row.
fn check_delay(failures: u32) -> Duration {
    CHECK_INTERVAL.saturating_mul(1 << failures.min(MAX_DOUBLINGS))
}

/// Reports the alerts once more that silences held back until `end`. Returns their number.
async fn repeat_alerts(context: &Context, notes: &Notes, end: Nanos) -> Result<usize, Refusal> {
    let repeats = due_repeats(context, notes, end).await?;
    let mut count = 0;
    // In chunks, so that the workers can process reports in between.
    for batch in repeats.chunks(REPEAT_BATCH) {
        let batch: Arc<[Alert]> = batch.into();
        let counts = context
            .monitor
            .emit(move |collector, output| emit_repeats(&batch, end, collector, output))
            .await;
        let counts = counts.map_err(|_| Refusal::unavailable("the collector does not answer"))?;
        count += counts.iter().sum::<usize>();
    }
    Ok(count)
}

/// Returns the alerts that fire now, began while silenced, and are no longer silenced.
async fn due_repeats(context: &Context, notes: &Notes, end: Nanos) -> Result<Vec<Alert>, Refusal> {
    let permit = history_permit(context).await?;
    let now = nic::time::now();
    let mut search = Search {
        to: now,
        seen: HashSet::new(),
    };
    let mut repeats = Vec::new();
    let mut unknown = firing(context, nic::time::now()).await?.0;
    let mut is_complete = false;
    // Backwards in time: each page ends where the page read before it begins.
    for _ in 0..MAX_EVENT_PAGES {
        let (alerts, known_since) =
            read_alerts(context, (now.saturating_sub(DEFAULT_SPAN), search.to), &permit).await?;
        for alert in search.unseen(alerts).filter(Alert::is_firing) {
            unknown.remove(&alert.last);
            if is_repeat_due(notes, &alert, now) {
                repeats.push(alert);
            }
        }
        is_complete = !search.advance(known_since);
        if is_complete {
            break;
        }
    }
    if !is_complete {
        tracing::warn!(
            parts = MAX_EVENT_PAGES,
            before = search.to,
            "a silence has ended, and there are too many events of rules: alerts that began before this time are reported once more if a silence covered them at its end"
        );
    }
    // Alerts whose beginning is not stored may have begun before the silence; a repeat is better than no report.
    let unknown = unknown.into_alerts().map(|mut alert| {
        alert.last.ts = end.saturating_sub(1);
        alert
    });
    repeats.extend(unknown.filter(|alert| is_repeat_due(notes, alert, now)));
    Ok(repeats)
}

/// Returns whether a silence covered the beginning of an alert and none covers it now.
fn is_repeat_due(notes: &Notes, alert: &Alert, now: Nanos) -> bool {
    notes.is_silenced(&alert.last) && notes.covering(&alert.last, now).is_none()
}

/// Iteration backwards through events, in pages of bounded size.
struct Search {
    /// End of the next page.
    to: Nanos,
    /// Alerts in pages that were read; the latest event of an alert determines its state.
    seen: HashSet<u64>,
}

impl Search {
    /// Returns the alerts of a page that were not in later pages.
    fn unseen(&mut self, alerts: Vec<Alert>) -> impl Iterator<Item = Alert> {
        let seen = &mut self.seen;
        alerts
            .into_iter()
            .filter(move |alert| seen.insert(alert.last.alert()))
    }

    /// Advances to the page before. `known_since` is the time since which this page is complete, or `None` if it is complete
    /// as a whole. Returns whether there is another page.
    fn advance(&mut self, known_since: Option<Nanos>) -> bool {
        let Some(since) = known_since else { return false };
        // Events at this very time may be missing, so read them again; but always advance, even if one time has too many.
        self.to = since.min(self.to.saturating_sub(1));
        true
    }
}

/// Reports the alerts whose rules are true in this collector. Returns their number.
fn emit_repeats(alerts: &[Alert], end: Nanos, collector: &Collector, output: &mut dyn Output) -> usize {
    output.sender(0);
    let mut count = 0;
    for alert in alerts {
        let rule_and_flow = alert
            .last
            .flow
            .and_then(|flow| true_rule(collector, &flow, &alert.last.rule));
        if let Some((rule, flow)) = rule_and_flow {
            output.event(&repeat_event(alert, rule, flow.row.last_seen.max(end)), &[]);
            count += 1;
        }
    }
    count
}

/// Builds the event of an alert at another time, with a new id.
fn repeat_event(alert: &Alert, rule: usize, ts: Nanos) -> Event {
    let last = &alert.last;
    Event {
        ts,
        id: last.id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ts,
        kind: Kind::RuleOn,
        metric: last.metric,
        flow: last.flow,
        node: last.node,
        interface: last.interface,
        queue: last.queue,
        value: last.value,
        previous: None,
        threshold: last.threshold,
        rule: u16::try_from(rule).ok(),
        reason: None,
        basis: collector::event::Basis::Measured,
    }
}

#[cfg(test)]
mod tests;
