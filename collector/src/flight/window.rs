//! Time windows of the flight recorder: which events start a recording, and the time that it covers.

use std::collections::VecDeque;

use detect::Metric;
use wire::FlowKey;

use crate::event::{Event, Kind, Location, Nanos, SECOND, SET_BACK};

/// An event further in the past than this means that the clock was set back, ns.
const CLOCK_SET_BACK: Nanos = 60 * SECOND;
/// Maximum number of subjects per window.
const SUBJECTS: usize = 64;
/// Maximum number of ended windows that wait to be fetched.
const WAITING: usize = 4;

/// Limits of recordings: their length, their rate and their size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlightConfig {
    /// Recorded time before an event, ns.
    pub before: Nanos,
    /// Recorded time after an event, ns.
    pub after: Nanos,
    /// Maximum length of a window, ns; further events do not extend it beyond this.
    pub longest: Nanos,
    /// Maximum number of windows per minute.
    pub per_minute: usize,
    /// Maximum number of reports per window.
    pub reports: usize,
}

impl Default for FlightConfig {
    /// Keeps half a second before and after, at most three seconds, twelve windows a minute, 2,000 reports each.
    fn default() -> Self {
        let before = SECOND / 2;
        Self {
            before,
            after: before,
            longest: 3 * SECOND,
            per_minute: 12,
            reports: 2_000,
        }
    }
}

/// The subject of a recording: an event, and the name of its rule.
#[derive(Clone, PartialEq, Debug)]
pub struct Trigger {
    /// The event that starts the recording.
    pub event: Event,
    /// The rule's name, if a rule caused the event.
    pub rule: Option<String>,
}

/// A span of time in which the reports that concern one of its triggers are recorded.
#[derive(Clone, PartialEq, Debug)]
pub struct Window {
    /// Start of the window, by receive time.
    pub from: Nanos,
    /// End of the window, by receive time.
    pub to: Nanos,
    /// The first event of each subject.
    pub triggers: Vec<Trigger>,
    /// Number of events of further subjects, for which there was no room.
    pub left_out: u64,
}

/// The result of recording the reports that concern one trigger.
#[derive(Clone, PartialEq, Debug)]
pub struct Recording {
    /// The event that was recorded, with its rule.
    pub trigger: Trigger,
    /// Start of the recording, by receive time.
    pub from: Nanos,
    /// End of the recording, by receive time.
    pub to: Nanos,
    /// Number of reports that concern the trigger.
    pub reports: u64,
    /// One of this many reports was stored: 1, 2, 4, ….
    pub every: u64,
    /// True if a part was no longer in memory, so that reports are missing.
    pub late: bool,
}

/// Counters: every event that could start a recording is in exactly one of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FlightStats {
    /// Events that are the subject of a window.
    pub recorded: u64,
    /// Events whose subject is already in the window.
    pub repeated: u64,
    /// Events of further subjects than a window has.
    pub subjects_full: u64,
    /// Events without a window, because there were too many in the last minute.
    pub over_budget: u64,
    /// Events older than the end of the last window.
    pub late: u64,
}

/// The windows of a collector. They do not overlap: no report is recorded twice.
#[derive(Debug)]
pub struct Windows {
    config: FlightConfig,
    open: Option<Window>,
    ended: VecDeque<Window>,
    /// End of the last window; up to this time reports are recorded already.
    recorded_to: Nanos,
    /// Start times of the windows of the last minute.
    recent: VecDeque<Nanos>,
    stats: FlightStats,
}

impl Windows {
    /// Creates the windows of a collector, none of them open.
    pub fn new(config: FlightConfig) -> Self {
        let open = None;
        let ended = VecDeque::new();
        let recent = VecDeque::new();
        Self {
            config,
            open,
            ended,
            recorded_to: 0,
            recent,
            stats: FlightStats::default(),
        }
    }

    /// Returns the counters of events that could start a recording.
    pub fn stats(&self) -> FlightStats {
        self.stats
    }

    /// Starts or extends a window for an event that is worth a recording.
    pub fn trigger(&mut self, trigger: Trigger) {
        let ts = trigger.event.ts;
        let limit = self.config.longest;
        if let Some(open) = self.open.as_mut().filter(|open| ts <= open.to) {
            // An older event, from a thread that is behind or a clock that was set back, belongs to the window as far as that
            // reaches.
            open.to = open
                .to
                .max(ts.saturating_add(self.config.after))
                .min(open.from.saturating_add(limit));
            let same = open
                .triggers
                .iter()
                .any(|other| other.subject() == trigger.subject());
            let counter = if same {
                &mut self.stats.repeated
            } else if open.triggers.len() >= SUBJECTS {
                open.left_out += 1;
                &mut self.stats.subjects_full
            } else {
                open.triggers.push(trigger);
                &mut self.stats.recorded
            };
            *counter += 1;
            return;
        }
        if ts < self.recorded_to && self.recorded_to - ts < CLOCK_SET_BACK {
            self.stats.late += 1;
            return;
        }
        self.recent.retain(|begun| ts.abs_diff(*begun) < 60 * SECOND);
        if self.recent.len() >= self.config.per_minute || self.ended.len() >= WAITING {
            self.stats.over_budget += 1;
            return;
        }
        self.end();
        if ts < self.recorded_to {
            // The clock was set back: its current time counts.
            self.recorded_to = 0;
        }
        let from = ts.saturating_sub(self.config.before).max(self.recorded_to);
        let to = ts
            .saturating_add(self.config.after)
            .min(from.saturating_add(limit));
        self.recent.push_back(ts);
        self.stats.recorded += 1;
        self.open = Some(Window {
            from,
            to,
            triggers: vec![trigger],
            left_out: 0,
        });
    }

    /// Returns a window that is over at `now`. Call it until it returns `None`.
    pub fn due(&mut self, now: Nanos) -> Option<Window> {
        if let Some(open) = &self.open
            && (open.to < now || now.saturating_add(SET_BACK) < open.from)
        {
            self.end();
        }
        self.ended.pop_front()
    }

    /// Ends the open window, for example when the program ends.
    pub fn end(&mut self) {
        if let Some(open) = self.open.take() {
            self.recorded_to = open.to.saturating_add(1);
            self.ended.push_back(open);
        }
    }
}

impl Trigger {
    /// Returns the subject of the event. Two events with the same subject share one recording.
    fn subject(&self) -> Subject {
        Subject {
            location: self.event.location(),
            flow: self.event.flow,
            metric: self.event.metric,
            kind: self.event.kind,
        }
    }
}

/// The kind of an event, and what it is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Subject {
    location: Location,
    flow: Option<FlowKey>,
    metric: Option<Metric>,
    kind: Kind,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn at(ts: Nanos, node: u32) -> Trigger {
        Trigger {
            event: Event {
                node: Some(node),
                ..Event::blank(ts, Kind::Change)
            },
            rule: None,
        }
    }

    fn window(from: Nanos, to: Nanos, triggers: &[(Nanos, u32)]) -> Window {
        let triggers = triggers.iter().map(|(ts, node)| at(*ts, *node)).collect();
        Window {
            from,
            to,
            triggers,
            left_out: 0,
        }
    }

    #[test]
    fn events_that_are_close_share_a_window() {
        let mut windows = Windows::new(FlightConfig::default());
        for (ms, node) in [(10_000, 1), (10_100, 2), (10_200, 1), (10_050, 3)] {
            windows.trigger(at(ms * MS, node));
        }
        assert_eq!(windows.due(10_700 * MS), None);
        let subjects = [(10_000 * MS, 1), (10_100 * MS, 2), (10_050 * MS, 3)];
        assert_eq!(
            windows.due(10_700 * MS + 1),
            Some(window(9_500 * MS, 10_700 * MS, &subjects))
        );
        assert_eq!(windows.due(u64::MAX), None);
        assert_eq!(
            windows.stats(),
            FlightStats {
                recorded: 3,
                repeated: 1,
                ..FlightStats::default()
            }
        );
    }

    #[test]
    fn windows_never_overlap_and_have_a_longest_one() {
        let mut windows = Windows::new(FlightConfig::default());
        for step in 0..40 {
            windows.trigger(at((10_000 + step * 100) * MS, 1));
        }
        let first = windows.due(u64::MAX).unwrap();
        assert_eq!((first.from, first.to), (9_500 * MS, 12_500 * MS));
        let second = windows.due(u64::MAX).unwrap();
        assert_eq!((second.from, second.to), (12_500 * MS + 1, 14_400 * MS));
        // An event in the time already recorded is late; one of an hour ago means that the clock was set back.
        windows.trigger(at(14_000 * MS, 2));
        assert_eq!((windows.stats().late, windows.open.is_some()), (1, false));
        windows.trigger(at(100_000 * MS, 2));
        windows.end();
        windows.due(u64::MAX);
        windows.trigger(at(9_000 * MS, 2));
        assert_eq!(
            windows.due(u64::MAX),
            Some(window(8_500 * MS, 9_500 * MS, &[(9_000 * MS, 2)]))
        );
    }

    #[test]
    fn a_window_ends_when_the_clock_is_set_back() {
        for back in [3, 30, 3000] {
            let mut windows = Windows::new(FlightConfig::default());
            windows.trigger(at(10_000 * SECOND, 1));
            assert_eq!(windows.due((10_000 - 1) * SECOND), None);
            assert!(windows.due((10_000 - back) * SECOND).is_some(), "{back}");
        }
    }

    #[test]
    fn windows_of_a_minute_and_subjects_of_a_window_are_bounded_and_counted() {
        let config = FlightConfig {
            per_minute: 2,
            ..FlightConfig::default()
        };
        let mut windows = Windows::new(config);
        for node in 0..SUBJECTS as u32 + 3 {
            windows.trigger(at(10_000 * MS, node));
        }
        for second in [20, 30, 40] {
            windows.trigger(at(second * SECOND, 1));
            windows.end();
        }
        let first = windows.due(u64::MAX).unwrap();
        assert_eq!((first.triggers.len(), first.left_out), (SUBJECTS, 3));
        assert!(windows.due(u64::MAX).is_some() && windows.due(u64::MAX).is_none());
        let expected = FlightStats {
            recorded: 65,
            subjects_full: 3,
            over_budget: 2,
            ..FlightStats::default()
        };
        assert_eq!(windows.stats(), expected);
        windows.trigger(at(71 * SECOND, 1));
        assert!(windows.open.is_some());
    }
}
