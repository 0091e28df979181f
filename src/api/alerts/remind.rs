//! Alerts that a silence kept from people, and that still fire when it ends: they are reported once more, so that exports send them.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use collector::{Batch, Event, Kind, Output as _};
use tokio::time;

use super::{USUAL, confirm, events};
use crate::{
    alerts::Alert,
    api::{Context, question::place, refusal::Refusal},
    pipeline::Outlet,
};

/// Looks for silences that have ended, as long as the program runs.
pub(in crate::api) async fn remind(context: Weak<Context>) {
    let (mut after, mut failures) = (nic::time::now(), 0);
    loop {
        time::sleep(pause(failures)).await;
        let Some(context) = context.upgrade() else { return };
        let (Some(outlet), Some(notes)) = (&context.reminders, &context.notes) else { return };
        let now = nic::time::now();
        if notes.has_ended(after, now) {
            match kept_back(&context, now).await {
                Ok(alerts) if alerts.is_empty() => {}
                Ok(alerts) => {
                    let (outlet, count) = (Arc::clone(outlet), alerts.len());
                    // It may wait for room in the queue.
                    let _ = tokio::task::spawn_blocking(move || send(&outlet, &alerts, now)).await;
                    tracing::info!(
                        alerts = count,
                        "a silence has ended; alerts that still fire are reported once more"
                    );
                }
                // Later, and then less often: the store or the collector is busy, and the search is work for it.
                Err(_) => {
                    failures = failures.saturating_add(1);
                    if failures == NOTABLE {
                        tracing::warn!(
                            failures,
                            "a silence has ended, and the alerts that still fire cannot be looked up; they are reported once that succeeds"
                        );
                    }
                    continue;
                }
            }
        }
        (after, failures) = (now, 0);
    }
}

/// How long it rests when it has failed so often in a row.
fn pause(failures: u32) -> Duration {
    EVERY.saturating_mul(1 << failures.min(MOST_DOUBLINGS))
}

/// Those that fire, that began while they were silenced, and that no silence covers now.
async fn kept_back(context: &Context, now: u64) -> Result<Vec<Alert>, Refusal> {
    let place = place(context).await?;
    let (mut alerts, _) = events(context, (now.saturating_sub(USUAL), now), &place).await?;
    if !confirm(context, &mut alerts).await {
        return Err(Refusal::unavailable("the collector does not answer"));
    }
    let Some(notes) = &context.notes else { return Ok(Vec::new()) };
    alerts.retain(|one| {
        one.is_firing() && notes.is_silenced(&one.last) && notes.covering(&one.last, now).is_none()
    });
    Ok(alerts)
}

fn send(outlet: &Outlet, alerts: &[Alert], now: u64) {
    for alerts in alerts.chunks(usize::from(u8::MAX)) {
        let mut batch = Batch::with_capacity(alerts.len());
        let rules: Vec<String> = alerts.iter().map(|one| one.last.rule.to_string()).collect();
        for (rule, alert) in (0..).zip(alerts) {
            batch.event(&again(alert, rule, now), &[]);
        }
        outlet.send_blocking(&mut batch, &rules.into());
    }
}

/// The event of an alert, now. It is another one than the first.
fn again(alert: &Alert, rule: u16, now: u64) -> Event {
    let last = &alert.last;
    Event {
        ts: now,
        id: last.id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ now,
        kind: Kind::RuleOn,
        metric: last.metric,
        flow: last.flow,
        node: last.node,
        interface: last.interface,
        queue: last.queue,
        value: last.value,
        previous: None,
        threshold: last.threshold,
        rule: Some(rule),
        reason: None,
        basis: collector::event::Basis::Measured,
    }
}

/// How often it looks.
const EVERY: Duration = Duration::from_secs(2);
/// Then about every minute.
const MOST_DOUBLINGS: u32 = 5;
/// So many failures in a row are no chance.
const NOTABLE: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_less_often_when_it_fails() {
        assert_eq!(
            [0, 1, 4, 5, 6, u32::MAX].map(|failures| pause(failures).as_secs()),
            [2, 4, 32, 64, 64, 64]
        );
    }
}
