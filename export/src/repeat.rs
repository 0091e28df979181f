//! Repeats firing alerts for servers that resolve an alert unless it is sent again, such as Alertmanager.

use std::collections::BTreeMap;

use crate::backoff::Nanos;
use crate::record::{Alert, Record};

/// Maximum number of repeated alerts: about 10 MiB.
const MAX_REPEATED: usize = 50_000;
/// Maximum alerts in one part.
const MAX_PART: usize = 1_000;

/// The firing alerts that were sent, and when to repeat them.
#[derive(Debug)]
pub struct Repeats {
    interval: Nanos,
    next_round: Nanos,
    /// Firing alerts by their IDs.
    firing: BTreeMap<u64, Alert>,
    /// ID at which the current round continues; `None` between rounds.
    position: Option<u64>,
}

impl Repeats {
    /// Returns an empty set whose alerts are repeated once per interval (ns).
    pub fn new(interval: Nanos) -> Self {
        Self {
            interval,
            next_round: 0,
            firing: BTreeMap::new(),
            position: None,
        }
    }

    /// Records an alert that is sent. Returns false if it fires but exceeds the limit, so that it will not be repeated.
    pub fn note(&mut self, record: &Record) -> bool {
        let Record::Alert(alert) = record else { return true };
        let number = alert.alert();
        if !alert.is_firing {
            self.firing.remove(&number);
            return true;
        }
        if self.firing.len() >= MAX_REPEATED && !self.firing.contains_key(&number) {
            return false;
        }
        self.firing.insert(number, (**alert).clone());
        true
    }

    /// Returns the alerts to repeat at `now`, in parts until the round is complete. `now` is monotonic; `ts` is the wall-clock
    /// time that the alerts get, ns since 1970, which may step backwards.
    pub fn due(&mut self, now: Nanos, ts: Nanos) -> Vec<Record> {
        let from = match self.position {
            Some(from) => from,
            None if now < self.next_round => return Vec::new(),
            None => {
                self.next_round = now.saturating_add(self.interval);
                0
            }
        };
        let part: Vec<Record> = self
            .firing
            .range(from..)
            .take(MAX_PART)
            .map(|(_, alert)| Record::Alert(Box::new(Alert { ts, ..alert.clone() })))
            .collect();
        let last = self.firing.range(from..).nth(MAX_PART);
        self.position = last.map(|(number, _)| *number);
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Nanos = 60_000_000_000;

    fn alert(port: usize, is_firing: bool, ts: Nanos) -> Record {
        Record::Alert(Box::new(Alert {
            ts,
            id: ts,
            rule: format!("rule {}", port >> 16).into(),
            is_firing,
            flow: format!("10.0.0.1:{}>10.0.0.2:80/6", port & 0xffff).parse().ok(),
            node: None,
            interface: None,
            queue: None,
            metric: None,
            value: None,
            threshold: None,
            since: Some(ts),
        }))
    }

    #[test]
    fn an_alert_is_repeated_until_it_is_resolved() {
        let mut repeats = Repeats::new(MINUTE);
        assert_eq!(repeats.due(0, 0), []);
        assert!(repeats.note(&alert(1, true, 5)));
        // Two days.
        for minute in 1..=2_880 {
            let now = minute * MINUTE;
            assert_eq!(repeats.due(now - 1, now), [], "minute {minute}");
            let [Record::Alert(one)] = &repeats.due(now, now)[..] else {
                panic!("not repeated after {minute} minutes");
            };
            assert_eq!((one.ts, one.since, one.is_firing), (now, Some(5), true));
        }
        repeats.note(&alert(1, false, 6));
        assert_eq!(repeats.due(3_000 * MINUTE, 0), []);
    }

    #[test]
    fn an_alert_is_repeated_although_the_clock_is_set() {
        let mut repeats = Repeats::new(MINUTE);
        assert!(repeats.note(&alert(1, true, 5)));
        // The clock is set back, forward, and to the beginning.
        for (minute, ts) in [(1, 1000), (2, 1001), (3, 7), (4, 8), (5, 90_000), (6, 0)] {
            let [Record::Alert(one)] = &repeats.due(minute * MINUTE, ts * MINUTE)[..] else {
                panic!("not repeated in minute {minute}");
            };
            assert_eq!((one.ts, one.since), (ts * MINUTE, Some(5)), "{minute}");
            assert_eq!(repeats.due(minute * MINUTE + 1, ts * MINUTE + 1), []);
        }
    }

    #[test]
    fn a_round_has_each_alert_once_in_parts_and_the_number_is_bounded() {
        let mut repeats = Repeats::new(MINUTE);
        let noted = (0..MAX_REPEATED + 10)
            .filter(|port| repeats.note(&alert(*port, true, 5)))
            .count();
        assert_eq!(noted, MAX_REPEATED);
        let mut parts = Vec::new();
        loop {
            let part = repeats.due(MINUTE, MINUTE);
            if part.is_empty() {
                break;
            }
            parts.push(part.len());
        }
        assert_eq!(parts, vec![MAX_PART; MAX_REPEATED / MAX_PART]);
    }
}
