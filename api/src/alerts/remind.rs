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

use super::{MAX_ASKED, USUAL, events, firing, true_rule};
use crate::{context::Context, query::history_permit, refusal::Refusal};
use history::alerts::{Alert, Notes};

/// Interval between two checks without failures.
const EVERY: Duration = Duration::from_secs(2);
/// Maximum number of doublings of the interval; about one minute.
const MAX_DOUBLINGS: u32 = 5;
/// Number of failures in a row that is logged.
const NOTABLE: u32 = 4;
/// Delay after the end of a silence, ns. Then all reports received before are evaluated, and the ends that they cause have
/// earlier times.
const SETTLED: Nanos = 5_000_000_000;
/// Maximum number of parts of events that are read.
const MAX_PARTS: usize = 10;

/// Checks at intervals for silences that have ended, until the context is dropped.
pub(crate) async fn remind(context: Weak<Context>) {
    let mut after = settled();
    let mut failures = 0;
    loop {
        time::sleep(pause(failures)).await;
        let Some(context) = context.upgrade() else { return };
        let Some(notes) = &context.notes else { return };
        let until = settled();
        if let Some(end) = notes.ended(after, until) {
            match remind_of(&context, notes, end).await {
                Ok(0) => {}
                Ok(alerts) => tracing::info!(
                    alerts,
                    "a silence has ended; alerts that still fire are reported once more"
                ),
                // Retry later, with backoff: the store or the collector is busy, and the search adds to its load.
                Err(_) => {
                    failures = failures.saturating_add(1);
                    if failures == NOTABLE {
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
fn settled() -> Nanos {
    nic::time::now().saturating_sub(SETTLED)
}

/// Returns the pause before the next check, after this number of failures in a row.
fn pause(failures: u32) -> Duration {
    EVERY.saturating_mul(1 << failures.min(MAX_DOUBLINGS))
}

/// Reports the alerts once more that silences held back until `end`. Returns their number.
async fn remind_of(context: &Context, notes: &Notes, end: Nanos) -> Result<usize, Refusal> {
    let kept = kept_back(context, notes, end).await?;
    let mut count = 0;
    // In chunks, so that the workers can process reports in between.
    for part in kept.chunks(MAX_ASKED) {
        let part: Arc<[Alert]> = part.into();
        let answers = context
            .monitor
            .emit(move |collector, output| report_again(&part, end, collector, output))
            .await;
        let answers = answers.map_err(|_| Refusal::unavailable("the collector does not answer"))?;
        count += answers.iter().sum::<usize>();
    }
    Ok(count)
}

/// Returns the alerts that fire now, began while silenced, and are no longer silenced.
async fn kept_back(context: &Context, notes: &Notes, end: Nanos) -> Result<Vec<Alert>, Refusal> {
    let permit = history_permit(context).await?;
    let now = nic::time::now();
    let mut search = Search {
        to: now,
        seen: HashSet::new(),
    };
    let mut kept = Vec::new();
    let mut unknown = firing(context).await?;
    let mut is_whole = false;
    // Backwards in time: each part ends where the part read before it begins.
    for _ in 0..MAX_PARTS {
        let (alerts, known_since) = events(context, (now.saturating_sub(USUAL), search.to), &permit).await?;
        for alert in search.unseen(alerts).filter(Alert::is_firing) {
            unknown.remove(&alert.last);
            kept.extend(Some(alert).filter(|one| is_kept_back(notes, one, now)));
        }
        is_whole = !search.goes_on(known_since);
        if is_whole {
            break;
        }
    }
    if !is_whole {
        tracing::warn!(
            parts = MAX_PARTS,
            before = search.to,
            "a silence has ended, and there are too many events of rules: alerts that began before this time are reported once more if a silence covered them at its end"
        );
    }
    // Alerts whose beginning is not stored may have begun before the silence; a repeat is better than no report.
    let unknown = unknown.into_alerts().map(|mut alert| {
        alert.last.ts = end.saturating_sub(1);
        alert
    });
    kept.extend(unknown.filter(|one| is_kept_back(notes, one, now)));
    Ok(kept)
}

/// Returns whether a silence covered the beginning of an alert and none covers it now.
fn is_kept_back(notes: &Notes, alert: &Alert, now: Nanos) -> bool {
    notes.is_silenced(&alert.last) && notes.covering(&alert.last, now).is_none()
}

/// Iteration backwards through events, in parts of bounded size.
struct Search {
    /// End of the next part.
    to: Nanos,
    /// Alerts in parts that were read; the latest event of an alert determines its state.
    seen: HashSet<u64>,
}

impl Search {
    /// Returns the alerts of a part that were not in later parts.
    fn unseen(&mut self, alerts: Vec<Alert>) -> impl Iterator<Item = Alert> {
        let seen = &mut self.seen;
        alerts
            .into_iter()
            .filter(move |one| seen.insert(one.last.alert()))
    }

    /// Advances to the part before. `known_since` is the time since which this part is complete, or `None` if it is complete
    /// as a whole. Returns whether there is another part.
    fn goes_on(&mut self, known_since: Option<Nanos>) -> bool {
        let Some(since) = known_since else { return false };
        // Events at this very time may be missing, so read them again; but always advance, even if one time has too many.
        self.to = since.min(self.to.saturating_sub(1));
        true
    }
}

/// Reports the alerts whose rules are true in this collector. Returns their number.
fn report_again(alerts: &[Alert], end: Nanos, collector: &Collector, output: &mut dyn Output) -> usize {
    output.sender(0);
    let mut count = 0;
    for alert in alerts {
        let true_rule_and_flow = alert
            .last
            .flow
            .and_then(|flow| true_rule(collector, &flow, &alert.last.rule));
        if let Some((rule, flow)) = true_rule_and_flow {
            output.event(&again(alert, rule, flow.row.last_seen.max(end)), &[]);
            count += 1;
        }
    }
    count
}

/// Builds the event of an alert at another time, with a new id.
fn again(alert: &Alert, rule: usize, ts: Nanos) -> Event {
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
