//! Rebuilds alerts from stored rule events: for each rule and subject, the episodes in which it fired.
//!
//! With several collectors (ClickHouse), each stores its own on and off events. An alert fires until every collector that
//! reported it has reported its end, or a report disproved the rule for the collector's whole group.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use export::record;
use store::EventRow;

/// Maximum number of episodes kept per alert; more are only counted.
const MAX_EPISODES: usize = 50;

/// A rule that fired for a flow or location.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// The latest event that started it, or the one that ended it if the start is no longer stored.
    pub last: record::Alert,
    /// The latest episodes, oldest first.
    pub episodes: VecDeque<Episode>,
    /// Number of times it started firing in the span.
    pub count: u64,
    /// Reason for the end of the last episode; `None` while it fires.
    pub ended: Option<Ended>,
    /// Collectors that stored its start and not yet its end.
    firing_sources: BTreeSet<AlertSource>,
    /// All collectors that stored a change of it.
    sources: BTreeSet<AlertSource>,
}

/// A collector that stored a rule event.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AlertSource {
    /// Representative name of all collectors that receive the same reports.
    pub group: Arc<str>,
    /// The name of the collector; empty for this process.
    pub name: Arc<str>,
}

/// A rule event (on or off) and the collectors that stored it.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleEvent {
    /// The stored event of the rule.
    pub row: EventRow,
    /// The collectors that stored it, at least one.
    pub sources: Vec<AlertSource>,
}

/// A change of an alert, and the collectors that stored it.
struct Change {
    event: record::Alert,
    sources: Vec<AlertSource>,
}

/// Changes of one alert with the same timestamp, each kind in order.
#[derive(Default)]
struct SimultaneousChanges {
    ends: VecDeque<Change>,
    starts: VecDeque<Change>,
}

/// Removes and returns the next change: an end if the alert is firing, otherwise a start; or the other kind if there is none.
fn next_change(changes: &mut SimultaneousChanges, is_firing: bool) -> Option<Change> {
    if is_firing {
        changes.ends.pop_front().or_else(|| changes.starts.pop_front())
    } else {
        changes.starts.pop_front().or_else(|| changes.ends.pop_front())
    }
}

/// A period in which a rule fired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Episode {
    /// Start, ns since 1970, or `None` if it is not stored.
    pub since: Option<u64>,
    /// End, ns since 1970, or `None` if it still fires or the end is unknown.
    pub until: Option<u64>,
}

wire::named! {
    /// The reason that an alert ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Ended, name {
        /// A report showed that the rule is no longer true.
        False => "false",
        /// The flow expired or was evicted.
        Flow => "flow",
        /// The collector does not have it and stored no end: it was restarted, or the rule was removed.
        Stale => "stale",
    }
}

/// Accumulates alerts from events.
#[derive(Debug)]
pub struct Past {
    span: (u64, u64),
    alerts: HashMap<u64, Alert>,
}

impl Past {
    /// Creates an empty set for a time span (start and end, ns). Earlier events tell what was firing at its start.
    pub fn new(span: (u64, u64)) -> Self {
        Self {
            span,
            alerts: HashMap::new(),
        }
    }

    /// Adds rule events in ascending time order. Events with equal timestamps are only ordered among starts and among ends;
    /// `add_all` interleaves them.
    pub fn read(&mut self, events: impl Iterator<Item = RuleEvent>) {
        let mut simultaneous: Vec<Change> = Vec::new();
        for RuleEvent { row, sources } in events {
            let Some(event) = record::Alert::from_event(&row.event, row.rule.map(Into::into)) else {
                continue;
            };
            if simultaneous
                .first()
                .is_some_and(|first| first.event.ts != event.ts)
            {
                self.add_all(std::mem::take(&mut simultaneous));
            }
            simultaneous.push(Change { event, sources });
        }
        self.add_all(simultaneous);
    }

    /// Adds changes with the same timestamp. The changes of an alert alternate as far as possible; a firing alert ends first.
    fn add_all(&mut self, simultaneous: Vec<Change>) {
        let mut by_alert: BTreeMap<u64, SimultaneousChanges> = BTreeMap::new();
        for change in simultaneous {
            let changes = by_alert.entry(change.event.alert()).or_default();
            if change.event.is_firing {
                changes.starts.push_back(change);
            } else {
                changes.ends.push_back(change);
            }
        }
        for (alert_id, mut changes) in by_alert {
            loop {
                let is_firing = self.alerts.get(&alert_id).is_some_and(Alert::is_firing);
                let Some(change) = next_change(&mut changes, is_firing) else {
                    break;
                };
                self.add(change);
            }
        }
    }

    fn add(&mut self, Change { event, sources }: Change) {
        let ts = event.ts;
        let is_counted = (self.span.0..=self.span.1).contains(&ts);
        let alert = self.alerts.entry(event.alert()).or_insert_with(|| Alert {
            last: event.clone(),
            episodes: VecDeque::new(),
            count: 0,
            ended: Some(Ended::False),
            firing_sources: BTreeSet::new(),
            sources: BTreeSet::new(),
        });
        alert.sources.extend(sources.iter().cloned());
        if event.is_firing {
            alert.firing_sources.extend(sources);
            // A restarted collector stores the event again; the episode continues.
            if alert.ended.is_some() {
                if alert.episodes.len() == MAX_EPISODES {
                    alert.episodes.pop_front();
                }
                alert.episodes.push_back(Episode {
                    since: Some(ts),
                    until: None,
                });
                alert.count += u64::from(is_counted);
            }
            alert.last = event;
            alert.ended = None;
            return;
        }
        // With a metric, a report disproved the rule; without one, the flow ended.
        let by_report = event.metric.is_some();
        // A report reaches all collectors of a group. The end of a flow holds for one collector only: another may still receive
        // reports.
        alert.firing_sources.retain(|source| {
            !sources
                .iter()
                .any(|ended| ended == source || by_report && ended.group == source.group)
        });
        if !alert.firing_sources.is_empty() {
            return;
        }
        if alert.episodes.is_empty() {
            alert.episodes.push_back(Episode {
                since: None,
                until: None,
            });
        }
        if let Some(last) = alert.episodes.back_mut().filter(|last| last.until.is_none()) {
            last.until = Some(ts);
            alert.ended = Some(if by_report { Ended::False } else { Ended::Flow });
        }
    }

    /// Returns the alerts that fired in the span, firing ones first, the most severe first.
    pub fn alerts(self) -> Vec<Alert> {
        let (from, to) = self.span;
        let mut all: Vec<Alert> = self
            .alerts
            .into_values()
            .filter_map(|mut alert| {
                alert.episodes.retain(|episode| {
                    episode.since.is_none_or(|since| since <= to)
                        && episode.until.is_none_or(|until| until >= from)
                });
                (!alert.episodes.is_empty()).then_some(alert)
            })
            .collect();
        all.sort_by_cached_key(|alert| alert.rank());
        all
    }
}

impl Alert {
    /// Returns true if the rule is firing according to the events.
    pub fn is_firing(&self) -> bool {
        self.ended.is_none()
    }

    /// Returns the start of the last episode, or `None` if it is not stored.
    pub fn since(&self) -> Option<u64> {
        self.episodes.back().and_then(|last| last.since)
    }

    /// Returns the end of the last episode, or `None` if it is firing.
    pub fn until(&self) -> Option<u64> {
        self.episodes.back().and_then(|last| last.until)
    }

    /// Returns the names of the collectors that stored it, without this process.
    pub fn source_names(&self) -> Vec<String> {
        self.sources
            .iter()
            .filter(|source| !source.name.is_empty())
            .map(|source| source.name.to_string())
            .collect()
    }

    /// Creates a firing alert whose start is not stored.
    pub(super) fn without_beginning(last: record::Alert) -> Self {
        Self {
            last,
            episodes: [Episode::default()].into(),
            count: 0,
            ended: None,
            firing_sources: BTreeSet::new(),
            sources: BTreeSet::new(),
        }
    }

    /// Marks the alert as firing although the events say that it ended. The start is unknown.
    pub(super) fn set_firing(&mut self, last: record::Alert) {
        if self.episodes.len() == MAX_EPISODES {
            self.episodes.pop_front();
        }
        self.episodes.push_back(Episode::default());
        self.ended = None;
        self.last = last;
    }

    /// Marks the alert as unknown to the collector.
    pub fn set_stale(&mut self) {
        self.ended = Some(Ended::Stale);
    }

    /// Returns the sort key: firing alerts first, by how far the value is from its threshold; then the newest.
    pub(super) fn rank(&self) -> (bool, std::cmp::Reverse<u64>, std::cmp::Reverse<u64>, u64) {
        let Self { last, .. } = self;
        let excess = match (last.value, last.threshold) {
            // Ratio in percent. Either may be larger, depending on the comparison.
            (Some(value), Some(threshold)) => {
                let larger = value.max(threshold);
                let smaller = value.min(threshold).max(1);
                u64::try_from(u128::from(larger) * 100 / u128::from(smaller)).unwrap_or(u64::MAX)
            }
            _ => 100,
        };
        let newest = self.since().or(self.until()).unwrap_or(0);
        let excess = if self.is_firing() { excess } else { 0 };
        (
            !self.is_firing(),
            std::cmp::Reverse(excess),
            std::cmp::Reverse(newest),
            last.alert(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use collector::{Event, Kind};
    use detect::Metric;

    fn row(ts: u64, kind: Kind, value: Option<u64>, rule: &str, port: u16) -> RuleEvent {
        let flow = Some(format!("10.0.0.1:{port}>10.0.0.2:80/6").parse().unwrap());
        let metric = value.map(|_| Metric::QueueOccupancy);
        let event = Event {
            kind,
            flow,
            metric,
            value,
            threshold: value.map(|_| 50),
            ..testkit::records::bare(ts)
        };
        let row = EventRow {
            event,
            rule: Some(rule.to_owned()),
            path: Vec::new(),
            first: None,
        };
        RuleEvent {
            row,
            sources: vec![AlertSource::default()],
        }
    }

    /// Returns an event that these collectors stored; c1 and c2 are a group.
    fn by(names: &[&str], event: RuleEvent) -> RuleEvent {
        let source = |name: &&str| AlertSource {
            group: if *name == "c3" { "c3" } else { "c1" }.into(),
            name: (*name).into(),
        };
        RuleEvent {
            sources: names.iter().map(source).collect(),
            ..event
        }
    }

    fn on(ts: u64, value: u64, port: u16) -> RuleEvent {
        row(ts, Kind::RuleOn, Some(value), "deep", port)
    }

    fn off(ts: u64, port: u16) -> RuleEvent {
        row(ts, Kind::RuleOff, Some(10), "deep", port)
    }

    fn of(span: (u64, u64), rows: Vec<RuleEvent>) -> Vec<Alert> {
        let mut past = Past::new(span);
        past.read(rows.into_iter());
        past.alerts()
    }

    #[test]
    fn since_when_and_how_often() {
        let rows = vec![
            on(10, 80, 1),
            off(20, 1),
            on(30, 90, 1),
            off(40, 1),
            on(50, 70, 1),
        ];
        let all = of((25, 60), rows);
        let [one] = &all[..] else { panic!("{all:?}") };
        assert_eq!(
            (one.count, one.is_firing(), one.since(), one.until()),
            (2, true, Some(50), None)
        );
        assert_eq!((one.last.value, one.last.threshold), (Some(70), Some(50)));
        let episodes: Vec<_> = one.episodes.iter().map(|one| (one.since, one.until)).collect();
        assert_eq!(
            episodes,
            [(Some(30), Some(40)), (Some(50), None)],
            "the first one ended before"
        );
    }

    #[test]
    fn an_alert_that_is_said_again_lasts() {
        // A collector that was restarted reports its flows anew.
        let all = of((0, 100), vec![on(10, 80, 1), on(50, 60, 1)]);
        assert_eq!(
            (all[0].count, all[0].since(), all[0].last.value),
            (1, Some(10), Some(60))
        );
    }

    #[test]
    fn events_of_one_time_are_in_the_order_that_is_possible() {
        // A burst has one time: what became true and what became false are read one after the other.
        let burst = vec![on(10, 70, 1), on(10, 90, 1), off(10, 1), off(10, 1)];
        let all = of((0, 100), burst.clone());
        assert_eq!(
            (all[0].count, all[0].is_firing(), all[0].last.value),
            (2, false, Some(90))
        );
        let all = of((0, 100), [vec![on(5, 60, 1)], burst].concat());
        assert_eq!((all[0].count, all[0].is_firing()), (3, true));
    }

    #[test]
    fn an_alert_lasts_as_long_as_a_collector_that_said_so_has_not_taken_it_back() {
        let silent = |ts| row(ts, Kind::RuleOff, None, "deep", 1);
        let ended = |rows: Vec<RuleEvent>| {
            let all = of((0, 100), rows);
            (all[0].count, all[0].ended, all[0].until())
        };
        let begun = || by(&["c1", "c2"], on(10, 80, 1));
        // One of a pair receives no more reports of the flow; the other does.
        assert_eq!(ended(vec![begun(), by(&["c1"], silent(20))]), (1, None, None));
        let both = vec![begun(), by(&["c1"], silent(20)), by(&["c2"], silent(30))];
        assert_eq!(ended(both), (1, Some(Ended::Flow), Some(30)));
        // A report is evidence about both collectors, even if one was killed.
        assert_eq!(
            ended(vec![begun(), by(&["c2"], off(20, 1))]),
            (1, Some(Ended::False), Some(20))
        );
        // Another collector receives other reports of the flow.
        let others = vec![begun(), by(&["c3"], on(15, 70, 1)), by(&["c1", "c2"], off(20, 1))];
        assert_eq!(ended(others.clone()), (1, None, None));
        let last = by(&["c3"], off(40, 1));
        assert_eq!(
            ended([others, vec![last]].concat()),
            (1, Some(Ended::False), Some(40))
        );
    }

    #[test]
    fn why_an_alert_ended_and_what_is_not_stored() {
        let silent = row(20, Kind::RuleOff, None, "deep", 1);
        let all = of((0, 100), vec![on(10, 80, 1), silent, off(30, 2)]);
        let by_port = |port: u16| {
            let flow = |one: &&Alert| one.last.flow.and_then(|flow| flow.src_port()) == Some(port);
            let found = all.iter().find(flow).unwrap();
            (found.ended, found.since(), found.until(), found.count)
        };
        assert_eq!(by_port(1), (Some(Ended::Flow), Some(10), Some(20), 1));
        assert_eq!(
            by_port(2),
            (Some(Ended::False), None, Some(30), 0),
            "its beginning is older than what is read"
        );
    }

    #[test]
    fn the_worst_that_fires_is_first_and_the_span_decides() {
        let all = of(
            (100, 200),
            vec![
                on(10, 60, 1),
                on(20, 200, 2),
                on(110, 900, 3),
                off(120, 3),
                on(30, 80, 4),
                off(40, 4),
            ],
        );
        let values: Vec<_> = all
            .iter()
            .map(|one| (one.last.value, one.is_firing(), one.count))
            .collect();
        assert_eq!(
            values,
            [(Some(200), true, 0), (Some(60), true, 0), (Some(900), false, 1)]
        );
    }

    #[test]
    fn episodes_are_bounded_and_counted() {
        let rows = (0..200)
            .flat_map(|n| [on(n * 10, 80, 1), off(n * 10 + 5, 1)])
            .collect();
        let all = of((0, 5000), rows);
        assert_eq!(
            (all[0].count, all[0].episodes.len(), all[0].since()),
            (200, MAX_EPISODES, Some(1990))
        );
    }
}
