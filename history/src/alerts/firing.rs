//! The rules that are firing now according to the collector's state, to correct alerts rebuilt from stored events, which may be
//! incomplete.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use detect::Detection;
use export::record;
use wire::FlowKey;

use super::{Alert, RuleEvent};

/// Maximum number of firing alerts: about 12 MiB.
const MAX_FIRING: usize = 50_000;

/// Set of the rules that are firing for flows.
#[derive(Debug, Default)]
pub struct Firing {
    /// Firing alerts by ID.
    alerts: HashMap<u64, record::Alert>,
    names: HashMap<String, Arc<str>>,
    /// Number of firing alerts beyond the limit.
    pub beyond: usize,
    /// Number of these whose flow is silent.
    pub silent_beyond: usize,
}

impl Firing {
    /// Adds the rules that fire for a flow: bit i of `rules` is rule i of `detection`. `is_silent`: the flow sends no reports.
    pub fn add(&mut self, detection: &Detection, flow: FlowKey, rules: u64, is_silent: bool) {
        let rules = (0..detection.rules.len()).filter(|index| rules >> index & 1 == 1);
        for name in rules.map(|index| detection.rules.name(index)) {
            if self.alerts.len() >= MAX_FIRING {
                self.beyond += 1;
                self.silent_beyond += usize::from(is_silent);
                continue;
            }
            if !self.names.contains_key(name) {
                self.names.insert(name.to_owned(), name.into());
            }
            let Some(rule) = self.names.get(name) else {
                continue;
            };
            let alert = true_alert(Arc::clone(rule), flow);
            self.alerts.insert(alert.id, alert);
        }
    }

    /// Returns whether this alert fires, or `None` if the set is incomplete.
    pub fn contains(&self, alert: &record::Alert) -> Option<bool> {
        let is_firing = self.alerts.contains_key(&alert.alert());
        (is_firing || self.beyond == 0).then_some(is_firing)
    }

    /// Removes an alert from the set.
    pub fn remove(&mut self, alert: &record::Alert) {
        self.alerts.remove(&alert.alert());
    }

    /// Returns the alerts, whose start times are unknown.
    pub fn into_alerts(self) -> impl Iterator<Item = Alert> {
        self.alerts.into_values().map(Alert::without_beginning)
    }

    /// Corrects alerts from stored events: afterwards exactly the alerts of this set fire.
    pub fn correct(mut self, alerts: &mut Vec<Alert>) {
        for alert in alerts.iter_mut().filter(|alert| alert.last.flow.is_some()) {
            let is_firing = self.contains(&alert.last);
            let state = self.alerts.remove(&alert.last.alert());
            match (is_firing, state) {
                (Some(true), Some(state)) if !alert.is_firing() => alert.set_firing(state),
                (Some(false), _) if alert.is_firing() => alert.set_stale(),
                _ => {}
            }
        }
        alerts.extend(self.into_alerts());
        alerts.sort_by_cached_key(Alert::rank);
    }

    /// Corrects alerts of a past time span: an alert without a stored end that does not fire now ended at an unknown time.
    /// `ends` are the later events of rules that stopped firing; `is_all` means that there are no more.
    pub fn correct_past(&self, alerts: &mut [Alert], ends: &[RuleEvent], is_all: bool) {
        let ended: HashSet<u64> = ends
            .iter()
            .filter_map(|end| {
                record::Alert::from_event(&end.row.event, end.row.rule.as_deref().map(Into::into))
            })
            .map(|end| end.alert())
            .collect();
        for alert in alerts
            .iter_mut()
            .filter(|alert| alert.is_firing() && alert.last.flow.is_some())
        {
            if is_all && self.contains(&alert.last) == Some(false) && !ended.contains(&alert.last.alert()) {
                alert.set_stale();
            }
        }
        alerts.sort_by_cached_key(Alert::rank);
    }
}

/// Creates a firing alert with an unknown start time and deciding comparison.
fn true_alert(rule: Arc<str>, flow: FlowKey) -> record::Alert {
    let mut alert = record::Alert {
        ts: 0,
        id: 0,
        rule,
        is_firing: true,
        flow: Some(flow),
        node: None,
        interface: None,
        queue: None,
        metric: None,
        value: None,
        threshold: None,
        since: None,
    };
    alert.id = alert.alert();
    alert
}

#[cfg(test)]
mod tests {
    use collector::{Event, Kind};
    use detect::RuleSet;

    use super::super::{AlertSource, Past, past::Ended};
    use super::*;

    fn detection() -> Detection {
        let rules = [("slow", "flow_latency > 5"), ("deep", "hops > 3")];
        Detection {
            rules: RuleSet::compile(&rules.map(|(name, when)| (name.to_owned(), when.to_owned()))).unwrap(),
            ..Detection::default()
        }
    }

    fn flow(port: u16) -> FlowKey {
        format!("10.0.0.1:{port}>10.0.0.2:80/6").parse().unwrap()
    }

    /// Events of the rule `deep`: time, whether it became true, and the port of the flow.
    fn events(events: &[(u64, bool, u16)]) -> impl Iterator<Item = RuleEvent> {
        events.iter().map(|(ts, is_on, port)| {
            let event = Event {
                kind: if *is_on { Kind::RuleOn } else { Kind::RuleOff },
                metric: Some(detect::Metric::FlowLatency),
                value: Some(7),
                flow: Some(flow(*port)),
                ..testkit::records::bare(*ts)
            };
            RuleEvent {
                row: store::EventRow {
                    event,
                    rule: Some("deep".to_owned()),
                    path: Vec::new(),
                    first: None,
                },
                sources: vec![AlertSource::default()],
            }
        })
    }

    /// Alerts as events say.
    fn stored(span: (u64, u64), all: &[(u64, bool, u16)]) -> Vec<Alert> {
        let mut past = Past::new(span);
        past.read(events(all));
        past.alerts()
    }

    /// Port, rule, beginning, value and how it ended.
    type Shown<'a> = (u16, &'a str, Option<u64>, Option<u64>, Option<Ended>);

    fn shown(alerts: &[Alert]) -> Vec<Shown<'_>> {
        let mut all: Vec<_> = alerts
            .iter()
            .map(|one| {
                let port = one.last.flow.and_then(|flow| flow.src_port()).unwrap();
                (port, &*one.last.rule, one.since(), one.last.value, one.ended)
            })
            .collect();
        all.sort_by_key(|one| (one.0, one.1.to_owned()));
        all
    }

    #[test]
    fn the_collector_says_what_fires_whatever_is_stored() {
        let detection = detection();
        let mut firing = Firing::default();
        // Flow 1: nothing is stored. Flow 2: as stored. Flow 3: its end is before its beginning, because the clock was set back. Flow 4 is
        // over. Flow 5 fires, and an earlier end is the latest that is stored.
        firing.add(&detection, flow(1), 0b11, false);
        firing.add(&detection, flow(2), 0b10, false);
        firing.add(&detection, flow(3), 0b10, false);
        firing.add(&detection, flow(5), 0b10, false);
        let mut alerts = stored(
            (0, 100),
            &[
                (10, true, 2),
                (20, false, 3),
                (30, true, 3),
                (40, true, 4),
                (50, true, 5),
                (60, false, 5),
            ],
        );
        firing.correct(&mut alerts);
        assert_eq!(
            shown(&alerts),
            [
                (1, "deep", None, None, None),
                (1, "slow", None, None, None),
                (2, "deep", Some(10), Some(7), None),
                (3, "deep", Some(30), Some(7), None),
                (4, "deep", Some(40), Some(7), Some(Ended::Stale)),
                (5, "deep", None, None, None),
            ]
        );
        assert!(!alerts[5].is_firing(), "what fires is first: {alerts:?}");
        let episodes = |port| {
            let alert = alerts
                .iter()
                .find(|one| one.last.flow == Some(flow(port)))
                .unwrap();
            alert
                .episodes
                .iter()
                .map(|one| (one.since, one.until))
                .collect::<Vec<_>>()
        };
        assert_eq!(episodes(5), [(Some(50), Some(60)), (None, None)]);
    }

    #[test]
    fn what_fired_in_the_past_has_an_end_or_fires_now() {
        let mut firing = Firing::default();
        firing.add(&detection(), flow(1), 0b10, false);
        let all = [(10, true, 1), (20, true, 2), (30, true, 3)];
        // Flow 1 fires now, flow 2 ended later, and of flow 3 no end is stored: the collector was restarted.
        let later: Vec<RuleEvent> = events(&[(200, false, 2)]).collect();
        let ended = |is_all| {
            let mut alerts = stored((0, 100), &all);
            firing.correct_past(&mut alerts, &later, is_all);
            shown(&alerts).iter().map(|one| one.4).collect::<Vec<_>>()
        };
        assert_eq!(ended(true), [None, None, Some(Ended::Stale)]);
        assert_eq!(ended(false), [None; 3], "there may be an end");
    }

    #[test]
    fn beyond_what_is_remembered_nothing_is_denied() {
        let detection = detection();
        let mut firing = Firing::default();
        for n in 0..MAX_FIRING as u32 + 7 {
            let [_, a, b, c] = n.to_be_bytes();
            firing.add(
                &detection,
                FlowKey::v4([10, a, b, c], [10; 4], Some((1, 2)), 17),
                0b10,
                n % 2 == 0,
            );
        }
        assert_eq!((firing.alerts.len(), firing.beyond), (MAX_FIRING, 7));
        assert_eq!(
            firing.silent_beyond, 4,
            "of those within the limit, the caller knows"
        );
        let mut alerts = stored((0, 100), &[(10, true, 2)]);
        firing.correct(&mut alerts);
        let found = alerts.iter().find(|one| one.last.flow == Some(flow(2))).unwrap();
        assert_eq!((found.ended, alerts.len()), (None, MAX_FIRING + 1));
    }
}
