//! Alerts that a silence kept from people, and that still fire when it ends: they are reported once more, so that exports send them.
//!
//! Nobody may hear of an alert again after its end. So the collector that evaluates the rule reports it itself, if the rule is true then: an
//! end that it has found is before that in its output, or prevents it, and one that it finds later comes after it. The time of the event is
//! that of the flow's latest report, or of the end of the silence; no later end has an earlier one.

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

/// Looks for silences that have ended, as long as the program runs.
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
                // Later, and then less often: the store or the collector is busy, and the search is work for it.
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

/// Returns the time before which all events are stored.
fn settled() -> Nanos {
    nic::time::now().saturating_sub(SETTLED)
}

/// Returns the time to the next look after so many failures in a row.
fn pause(failures: u32) -> Duration {
    EVERY.saturating_mul(1 << failures.min(MAX_DOUBLINGS))
}

/// Reports the alerts once more that silences kept back until `end`, and returns their number.
async fn remind_of(context: &Context, notes: &Notes, end: Nanos) -> Result<usize, Refusal> {
    let kept = kept_back(context, notes, end).await?;
    let mut count = 0;
    // In parts: the workers have reports to take in between.
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

/// Returns the alerts that fire, that began while they were silenced, and that no silence covers now.
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
    // The latest events first: each part ends where the one before begins.
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
    // Those whose beginning is not stored may have begun before the silence: a repeat is better than none.
    let unknown = unknown.into_alerts().map(|mut alert| {
        alert.last.ts = end.saturating_sub(1);
        alert
    });
    kept.extend(unknown.filter(|one| is_kept_back(notes, one, now)));
    Ok(kept)
}

/// Whether a silence covered the beginning of an alert, and none covers it now.
fn is_kept_back(notes: &Notes, alert: &Alert, now: Nanos) -> bool {
    notes.is_silenced(&alert.last) && notes.covering(&alert.last, now).is_none()
}

/// Goes back through events in parts.
struct Search {
    /// The end of the next part.
    to: Nanos,
    /// Alerts of parts that were read: what later events say counts.
    seen: HashSet<u64>,
}

impl Search {
    /// Returns the alerts of a part that later parts did not have.
    fn unseen(&mut self, alerts: Vec<Alert>) -> impl Iterator<Item = Alert> {
        let seen = &mut self.seen;
        alerts
            .into_iter()
            .filter(move |one| seen.insert(one.last.alert()))
    }

    /// Goes on to the part before. `known_since` is the time since which this one has all events, or `None`
    /// if it has all. Returns whether there is another part.
    fn goes_on(&mut self, known_since: Option<Nanos>) -> bool {
        let Some(since) = known_since else { return false };
        // Of its time, some may be missing, unless there are more of one time than are read at all.
        self.to = since.min(self.to.saturating_sub(1));
        true
    }
}

/// Reports those of the alerts that are true in this collector, and returns their number.
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

/// Returns the event of an alert at another time, with an id of its own.
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

/// Interval between two looks while none fails.
const EVERY: Duration = Duration::from_secs(2);
/// Then about every minute.
const MAX_DOUBLINGS: u32 = 5;
/// So many failures in a row are no chance.
const NOTABLE: u32 = 4;
/// So long after the end of a silence, the reports that were received before it are evaluated: what they end has an earlier time.
const SETTLED: Nanos = 5_000_000_000;
/// Parts in which events of rules are read.
const MAX_PARTS: usize = 10;

#[cfg(test)]
mod tests;
