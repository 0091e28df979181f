//! Drill-downs: temporary intents with more detail, installed when the rule of an intent with `then` becomes true.

use std::collections::BTreeMap;

use manager::{
    drill_down::{Denied, Firing},
    flows::{ANY_PORT, Ports},
    intent::{Intent, Scope},
};
use serde_json::{Map, Value, json};

use super::{
    super::{clock::Now, journal::StoredIntent},
    Core, ManagedIntent, Origin,
};
use runtime::monitor::CollectorMonitor;

/// Minimum interval between history entries with the same reason, ns.
const QUIET: u64 = 60_000_000_000;

/// State of drill-downs: whether their rules are followed, and which were denied.
#[derive(Debug, Default)]
pub(super) struct DrillDowns {
    /// The collector has the current names of the rules to follow.
    pub(super) is_followed: bool,
    /// Denied drill-downs by intent, for the history.
    denied: BTreeMap<String, Refusals>,
}

/// Denied drill-downs of an intent.
#[derive(Debug, Default)]
struct Refusals {
    /// Number of denials since the last entry in the history.
    count: u64,
    /// Time of the last denial, ns, by the steady clock.
    denied_at: u64,
    /// Reason of the last denial.
    reason: String,
}

impl DrillDowns {
    /// Removes the denials of an intent.
    pub(super) fn forget(&mut self, name: &str) {
        self.denied.remove(name);
    }

    /// Returns the reason an intent was denied a drill-down in the last minute.
    pub(super) fn denied(&self, name: &str, now: u64) -> Option<&str> {
        let denied = self
            .denied
            .get(name)
            .filter(|denied| now < denied.denied_at.saturating_add(QUIET))?;
        Some(&denied.reason)
    }
}

impl Core {
    /// Tells the collector which rules to follow, if they have changed.
    pub(super) fn set_followed(&mut self, monitor: &impl CollectorMonitor) {
        if !std::mem::replace(&mut self.drill_downs.is_followed, true) {
            let intents = self.intents.values().map(|managed| &managed.intent);
            let followed = intents.filter(|intent| intent.reporting.then.is_some());
            monitor.set_followed(followed.map(|intent| intent.name.clone()).collect());
        }
    }

    /// Returns the scope of the drill-down that an intent's rule requests for `flow`. `missed` rules became true too fast to
    /// be processed.
    pub(in crate::role) fn scope_of(
        &mut self,
        name: &str,
        flow: &wire::FlowKey,
        missed: u64,
        now: Now,
    ) -> Option<Scope> {
        if missed > 0 {
            let text =
                format!("{missed} rules became true while others were pending; make the rules stricter");
            tracing::warn!(missed, "rules of intents become true too often for drill-downs");
            self.note(now, "manager", "drill_down", name, &text);
        }
        let scope = self.intents.get(name)?.intent.reporting.then.as_ref()?.scope;
        if flow.known_id().is_some() {
            self.deny(
                name,
                "the reports of the flow have an id in place of its addresses".to_owned(),
                now,
            );
            return None;
        }
        Some(scope)
    }

    /// Returns whether a drill-down of this intent may be installed now.
    pub(in crate::role) fn admits(&mut self, name: &str, firing: &Firing, now: Now) -> bool {
        let admitted = self.manager.admit(name, firing, now.steady);
        self.denied(name, admitted, now).is_some()
    }

    /// Installs a drill-down of an intent, and records it.
    pub(in crate::role) fn fire(&mut self, parent: &str, firing: &Firing, now: Now) {
        let fired = self.manager.fire(parent, firing, now.steady);
        let Some(child) = self.denied(parent, fired, now) else {
            return;
        };
        let name = child.name.clone();
        let body = body(&child);
        let stored = StoredIntent {
            body,
            by: "manager".to_owned(),
            added: now.wall,
        };
        let end = self
            .manager
            .intent(&name)
            .and_then(|status| status.end)
            .unwrap_or(now.steady);
        let watched: Vec<String> = child.watch.iter().map(ToString::to_string).collect();
        let seconds = end.saturating_sub(now.steady) / 1_000_000_000;
        let text = format!(
            "{name} watches {} for {seconds} s: the rule became true for {}",
            watched.join(", "),
            firing.flow
        );
        tracing::info!(
            intent = parent,
            drill_down = name,
            "a rule became true: more detail is measured"
        );
        self.note(now, "manager", "drill_down", parent, &text);
        self.intents.insert(
            name,
            ManagedIntent::new(child, stored, Origin::DrillDown(parent.to_owned()), now),
        );
    }

    /// Removes drill-downs that the `manager` crate has ended.
    pub(super) fn end_drill_downs(&mut self, now: Now) {
        let ended = self
            .intents
            .iter()
            .filter_map(|(name, managed)| match &managed.origin {
                Origin::DrillDown(parent) if self.manager.intent(name).is_none() => {
                    Some((name.clone(), parent.clone()))
                }
                _ => None,
            });
        for (name, parent) in ended.collect::<Vec<_>>() {
            self.drop_intent(&name, now);
            self.note(now, "manager", "end", &parent, &format!("{name} has ended"));
        }
    }

    /// Returns a successful result. Counts a denial, and records it at most once a minute.
    fn denied<T>(&mut self, name: &str, result: Result<T, Denied>, now: Now) -> Option<T> {
        match result {
            Ok(outcome) => return Some(outcome),
            Err(Denied::NotAsked | Denied::Prolonged(_)) => {}
            Err(denied) => self.deny(name, denied.to_string(), now),
        }
        None
    }

    fn deny(&mut self, name: &str, reason: String, now: Now) {
        let denied = self.drill_downs.denied.entry(name.to_owned()).or_default();
        denied.count += 1;
        let is_new = denied.reason != reason;
        if !is_new && now.steady < denied.denied_at.saturating_add(QUIET) {
            return;
        }
        let others = denied.count - 1;
        *denied = Refusals {
            count: 0,
            denied_at: now.steady,
            reason,
        };
        let more = if others > 0 {
            format!(" ({others} others before it)")
        } else {
            String::new()
        };
        let text = format!("a drill-down was not installed{more}: {}", denied.reason);
        tracing::warn!(
            intent = name,
            reason = denied.reason,
            "a drill-down was not installed"
        );
        self.note(now, "manager", "drill_down", name, &text);
    }

    /// Returns the names of an intent's drill-downs.
    pub(super) fn drill_downs_of(&self, name: &str) -> Vec<String> {
        let own = self.manager.drill_downs().filter(|(_, parent)| *parent == name);
        own.map(|(child, _)| child.to_owned()).collect()
    }
}

/// Returns a drill-down in the form of `[[intents]]`.
fn body(intent: &Intent) -> Value {
    let mut keys: Map<String, Value> = [
        ("src", intent.flows.src.iter().map(ToString::to_string).collect()),
        ("dst", intent.flows.dst.iter().map(ToString::to_string).collect()),
        ("sport", port_texts(&intent.flows.sport)),
        ("dport", port_texts(&intent.flows.dport)),
    ]
    .into_iter()
    .filter(|(_, texts): &(_, Vec<String>)| !texts.is_empty())
    .map(|(key, texts)| (key.to_owned(), json!(texts)))
    .collect();
    if !intent.flows.proto.is_empty() {
        keys.insert("proto".to_owned(), json!(intent.flows.proto));
    }
    let watch: Vec<String> = intent.watch.iter().map(ToString::to_string).collect();
    let mut body = json!({"name": intent.name, "match": keys, "watch": watch, "priority": intent.priority});
    if intent.both_directions {
        body["both_directions"] = json!(true);
    }
    if let Some(mode) = intent.mode {
        body["mode"] = json!(mode.name());
    }
    if !intent.at.edges.is_empty() {
        body["at"] = json!({"edges": intent.at.edges});
    }
    body
}

/// Formats port ranges as in `[[intents]]`, without ranges of all ports.
fn port_texts(ports: &[Ports]) -> Vec<String> {
    let limited = ports.iter().filter(|ports| **ports != ANY_PORT);
    limited
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use detect::Metric;
    use manager::{
        device::Mode,
        flows::{FlowMatch, Flows},
        intent::At,
    };

    use super::*;

    #[test]
    fn a_drill_down_is_shown_as_the_file_would_have_it() {
        let key = FlowMatch::default();
        let intent = Intent {
            name: "web.drill-1".to_owned(),
            flows: Flows {
                src: vec!["10.0.0.1".parse().unwrap()],
                dst: vec!["10.2.0.0/16".parse().unwrap()],
                sport: vec![key.sport],
                dport: vec![(80, 80), (8000, 8999)],
                proto: vec![17],
                dscp: Vec::new(),
            },
            both_directions: true,
            watch: [Metric::QueueOccupancy, Metric::HopLatency].into(),
            mode: Some(Mode::Md),
            at: At {
                edges: vec!["leaf1".to_owned()],
                between: None,
            },
            ..Intent::default()
        };
        let read = manager::intent::read_one(&settings::json::tree(&body(&intent)), 0).unwrap();
        let flows = Flows {
            sport: Vec::new(),
            ..intent.flows.clone()
        };
        assert_eq!(read, Intent { flows, ..intent });
    }
}
