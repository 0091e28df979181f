//! Computes updates for clients of `/domain/stream`: the states that differ from those last sent.
//!
//! States are compared at most ten times a second, using at most a tenth of the thread's time. In a large domain a change is
//! therefore sent later, and intermediate states are skipped.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::view::{ChangeView, DeviceState, DomainState, Entry, IntentState};
use runtime::monitor::{CollectorMonitor, StreamMessage};

/// Minimum interval between comparisons, ns.
const INTERVAL: u64 = 100_000_000;
/// Interval between figures of an intent in an unchanged state, ns.
const FIGURES: u64 = 1_000_000_000;
/// Maximum number of intents for which figures are sent; with more, only changes of state are.
const MAX_FIGURES: usize = 500;
/// Maximum number of history entries queued between two comparisons.
const MAX_NOTED: usize = 1_000;

/// A snapshot of all states.
pub(super) struct States {
    pub(super) devices: Vec<DeviceState>,
    pub(super) intents: Vec<IntentState>,
    pub(super) domain: DomainState,
}

/// The states last sent, and the schedule.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Number of subscriptions so far when states were last sent, or `None` if nobody was subscribed.
    clients: Option<u64>,
    devices: BTreeMap<String, DeviceState>,
    intents: BTreeMap<String, IntentState>,
    domain: Option<DomainState>,
    /// Entries of the history that have not been sent yet.
    unsent: Vec<Entry>,
    /// When states are compared again, ns, by the steady clock.
    next: u64,
    /// When figures of intents whose state is unchanged are sent again, likewise.
    figures: u64,
}

impl Progress {
    /// Queues an entry of the history for the clients.
    pub(super) fn note(&mut self, entry: Entry) {
        if self.clients.is_some() && self.unsent.len() < MAX_NOTED {
            self.unsent.push(entry);
        }
    }

    /// Sends the changes. Returns the time until the next call is due at the latest, or `None` without clients.
    pub(super) fn publish(
        &mut self,
        monitor: &impl CollectorMonitor,
        now: u64,
        states: impl FnOnce() -> States,
    ) -> Option<Duration> {
        let Some(clients) = monitor.stream_clients() else {
            *self = Self::default();
            return None;
        };
        if self.clients != Some(clients) {
            // A new client needs all states; the others receive them again.
            let unsent = std::mem::take(&mut self.unsent);
            *self = Self {
                clients: Some(clients),
                unsent,
                ..Self::default()
            };
        }
        if now < self.next {
            return Some(Duration::from_nanos(self.next - now));
        }
        let start = Instant::now();
        for change in self.changes(states(), now) {
            monitor.publish_change(&message(&change));
        }
        let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Nine times the time spent, so that at most a tenth of the thread's time is used.
        let pause = INTERVAL.max(took.saturating_mul(9));
        self.next = now.saturating_add(pause);
        Some(Duration::from_nanos(pause))
    }

    /// Returns the states that differ from those last sent.
    fn changes(&mut self, states: States, now: u64) -> Vec<ChangeView> {
        let mut changes: Vec<_> = self.unsent.drain(..).map(ChangeView::History).collect();
        let devices = states
            .devices
            .into_iter()
            .map(|state| (state.name.clone(), state))
            .collect();
        changes.extend(changed(
            &mut self.devices,
            devices,
            "device",
            ChangeView::Device,
            |a, b| a == b,
        ));
        let intents: BTreeMap<_, _> = states
            .intents
            .into_iter()
            .map(|state| (state.name.clone(), state))
            .collect();
        let figures = now >= self.figures && intents.len() <= MAX_FIGURES;
        if figures {
            self.figures = now.saturating_add(FIGURES);
        }
        changes.extend(changed(
            &mut self.intents,
            intents,
            "intent",
            ChangeView::Intent,
            |a, b| match figures {
                true => a == b,
                false => (&a.etag, &a.state) == (&b.etag, &b.state),
            },
        ));
        let domain = Some(states.domain);
        if self.domain != domain {
            self.domain.clone_from(&domain);
            changes.extend(domain.map(ChangeView::Domain));
        }
        changes
    }
}

/// Replaces the states that differ according to `same`, and returns the changes.
fn changed<T: Clone>(
    sent: &mut BTreeMap<String, T>,
    states: BTreeMap<String, T>,
    kind: &str,
    change: fn(T) -> ChangeView,
    same: impl Fn(&T, &T) -> bool,
) -> Vec<ChangeView> {
    let mut changes = Vec::new();
    sent.retain(|name, _| {
        let remains = states.contains_key(name);
        if !remains {
            changes.push(ChangeView::Removed {
                what: kind.to_owned(),
                name: name.clone(),
            });
        }
        remains
    });
    for (name, state) in states {
        if sent.get(&name).is_none_or(|before| !same(before, &state)) {
            changes.push(change(state.clone()));
            sent.insert(name, state);
        }
    }
    changes
}

fn message(change: &ChangeView) -> StreamMessage {
    let name = match change {
        ChangeView::Device(_) => "device",
        ChangeView::Intent(_) => "intent",
        ChangeView::Removed { .. } => "removed",
        ChangeView::Domain(_) => "domain",
        ChangeView::History(_) => "history",
    };
    // Serialising a plain struct cannot fail.
    StreamMessage {
        name: Some(name),
        text: serde_json::to_string(change).unwrap_or_default().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_sent() {
        let state = |name: &str, state: &str, flows| {
            let [name, etag, state, text] = [name, "1", state, ""].map(str::to_owned);
            (
                name.clone(),
                IntentState {
                    name,
                    etag,
                    state,
                    text,
                    flows,
                    rate: 0.0,
                },
            )
        };
        let mut sent = BTreeMap::from([
            state("a", "seen", 1),
            state("b", "seen", 1),
            state("c", "seen", 1),
        ]);
        let now = BTreeMap::from([
            state("a", "seen", 2),
            state("b", "complete", 1),
            state("d", "pending", 0),
        ]);
        let same = |a: &IntentState, b: &IntentState| a.state == b.state;
        let changes = changed(&mut sent, now.clone(), "intent", ChangeView::Intent, same);
        let removed = ChangeView::Removed {
            what: "intent".to_owned(),
            name: "c".to_owned(),
        };
        let of = |name: &str| ChangeView::Intent(now[name].clone());
        assert_eq!(changes, [removed, of("b"), of("d")]);
        // The figures of `a` are sent when they are compared.
        let changes = changed(&mut sent, now.clone(), "intent", ChangeView::Intent, |a, b| {
            a == b
        });
        assert_eq!(changes, [of("a")]);
        let text = r#"{"kind":"intent","change":{"name":"a","etag":"1","state":"seen","text":"","flows":2,"rate":0.0}}"#;
        assert_eq!(
            message(&changes[0]),
            StreamMessage {
                name: Some("intent"),
                text: text.into()
            }
        );
    }
}
