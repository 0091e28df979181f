//! Finds the beginning of a resolved alert, which is an earlier record in the stream of events.

use std::{collections::HashMap, path::PathBuf};

use collector::Kind;
use export::record::Alert;
use store::{EventFilter, Reader};

/// Number of failed searches in a row after which an alert is exported without its beginning.
const MAX_FAILURES: u32 = 5;
/// Maximum number of beginnings in the cache.
const MAX_KNOWN: usize = 65_536;
/// Maximum number of a flow's rule events examined per search.
const MAX_RULES: usize = 256;

/// A cache of alerts' beginnings. Missing ones are looked up in the store, so the result does not depend on where reading
/// started, and a repeated record is the same.
#[derive(Debug)]
pub(super) struct Beginnings {
    directory: PathBuf,
    reader: Option<Reader>,
    /// The record of an alert's latest beginning, by alert number.
    known: HashMap<u64, Alert>,
    /// An older generation of `known`, which is dropped next.
    older: HashMap<u64, Alert>,
    /// Number of failed searches in a row.
    failures: u32,
}

impl Beginnings {
    /// Creates an empty cache over the store in `directory`.
    pub(super) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            reader: None,
            known: HashMap::new(),
            older: HashMap::new(),
            failures: 0,
        }
    }

    /// Remembers the beginning of a firing alert, or sets `since` of a resolved one. Returns the beginning's record, if any.
    ///
    /// # Errors
    /// The store cannot be searched, so the beginning is unknown.
    pub(super) fn complete(&mut self, alert: &mut Alert) -> Result<Option<Alert>, String> {
        let number = alert.alert();
        if alert.is_firing {
            // Drop the oldest generation; its alerts can still be found in the store.
            if self.known.len() >= MAX_KNOWN / 2 {
                self.older = std::mem::take(&mut self.known);
            }
            self.known.insert(number, alert.clone());
            return Ok(Some(alert.clone()));
        }
        let known = self.known.get(&number).or_else(|| self.older.get(&number));
        // If a page is read again, `known` may already hold a later beginning.
        let known = known.filter(|began| began.ts <= alert.ts).cloned();
        let began = if known.is_some() {
            known
        } else {
            self.look_up_or_give_up(alert, number)?
        };
        alert.since = began.as_ref().map(|began| began.ts);
        Ok(began)
    }

    /// Searches the store. Gives up after repeated failures, because a search that takes too long must not block all alerts.
    fn look_up_or_give_up(&mut self, alert: &Alert, number: u64) -> Result<Option<Alert>, String> {
        let looked_up = self.look_up(alert, number);
        self.failures = if looked_up.is_ok() { 0 } else { self.failures + 1 };
        match looked_up {
            Err(error) if self.failures > MAX_FAILURES => {
                self.failures = 0;
                tracing::warn!(
                    rule = &*alert.rule,
                    error,
                    "the end of an alert is exported without its beginning"
                );
                Ok(None)
            }
            looked_up => looked_up,
        }
    }

    fn look_up(&mut self, alert: &Alert, number: u64) -> Result<Option<Alert>, String> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => Reader::open(&self.directory).map_err(failed)?,
        };
        let before = Some(alert.ts.saturating_add(1));
        let filter = EventFilter {
            before,
            kind: Some(Kind::RuleOn),
            flow: alert.flow,
            limit: MAX_RULES,
            ..EventFilter::default()
        };
        let rows = reader.events(&filter).map_err(failed)?;
        self.reader = Some(reader);
        let alerts = rows
            .into_iter()
            .filter_map(|row| Alert::from_event(&row.event, row.rule.map(Into::into)));
        Ok(alerts
            .filter(|other| other.alert() == number)
            .max_by_key(|other| other.ts))
    }
}

fn failed(error: impl std::fmt::Display) -> String {
    format!("cannot look up when an alert began: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use collector::{Event, Output as _};
    use testkit::records::{Dir, START, bare};

    #[test]
    fn a_beginning_is_known_or_found_in_the_store() {
        let dir = Dir::new("beginnings");
        let store = store::Store::open(store::Config::new(dir.path())).unwrap();
        let flow = |port: u16| format!("10.0.0.1:{port}>10.0.0.2:80/6").parse().ok();
        let event = |ts, kind, port| Event {
            kind,
            flow: flow(port),
            rule: Some(0),
            ..bare(START + ts)
        };
        let mut batch = collector::Batch::with_capacity(16);
        let events = [
            (1, Kind::RuleOn),
            (2, Kind::RuleOff),
            (3, Kind::RuleOn),
            (4, Kind::RuleOff),
        ];
        events
            .iter()
            .for_each(|(ts, kind)| batch.event(&event(*ts, *kind, 5000), &[]));
        batch.event(&event(3, Kind::RuleOn, 5001), &[]);
        store.set_rules(vec!["slow".to_owned()]);
        store.submit(batch);
        store.flush();
        let alert = |ts, kind, port| Alert::from_event(&event(ts, kind, port), Some("slow".into())).unwrap();
        let since = |beginnings: &mut Beginnings, ts, port| {
            let mut alert = alert(ts, Kind::RuleOff, port);
            let began = beginnings.complete(&mut alert).unwrap();
            assert_eq!(began.map(|began| began.ts), alert.since);
            alert.since.map(|since| since - START)
        };
        let mut fresh = Beginnings::new(dir.path().to_owned());
        assert_eq!(
            [since(&mut fresh, 4, 5000), since(&mut fresh, 2, 5000)],
            [Some(3), Some(1)]
        );
        assert_eq!(since(&mut fresh, 4, 5002), None, "it is not stored");
        // As it was read.
        let mut read = Beginnings::new(dir.path().to_owned());
        read.complete(&mut alert(3, Kind::RuleOn, 5000)).unwrap();
        assert_eq!(
            [since(&mut read, 4, 5000), since(&mut read, 2, 5000)],
            [Some(3), Some(1)],
            "a page that is read again"
        );
    }

    #[test]
    fn the_oldest_beginnings_are_forgotten_first_and_a_failed_search_is_reported() {
        let dir = Dir::new("forgotten-beginnings");
        let mut beginnings = Beginnings::new(dir.path().join("gone"));
        let event = |kind, port: usize| {
            let flow = format!("10.0.0.{}:{}>10.0.0.2:80/6", port / 50_000, port % 50_000 + 1)
                .parse()
                .ok();
            Event {
                kind,
                flow,
                node: Some(7),
                ..bare(START)
            }
        };
        let mut complete = |kind, port| {
            let mut alert = Alert::from_event(&event(kind, port), Some("slow".into())).unwrap();
            beginnings.complete(&mut alert)
        };
        for port in 0..=MAX_KNOWN {
            complete(Kind::RuleOn, port).unwrap();
        }
        let late = complete(Kind::RuleOff, MAX_KNOWN / 2).unwrap().unwrap();
        assert_eq!((late.is_firing, late.node), (true, Some(7)));
        // It is not in memory, and there is no store.
        for _ in 0..MAX_FAILURES {
            let error = complete(Kind::RuleOff, 0).unwrap_err();
            assert!(
                error.starts_with("cannot look up when an alert began: "),
                "{error}"
            );
        }
        assert_eq!(complete(Kind::RuleOff, 0), Ok(None), "others wait for it");
        assert!(complete(Kind::RuleOff, 0).is_err());
    }
}
