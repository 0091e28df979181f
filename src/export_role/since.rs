//! When an alert that is resolved began: the stream of events has it, further back.

use std::{collections::HashMap, path::PathBuf};

use collector::Kind;
use export::record::Alert;
use store::{EventFilter, Reader};

/// When alerts became true, of those that were read. What is not in it is looked up in the store: the answer does not depend on where
/// reading began, so that a repeat is the same.
#[derive(Debug)]
pub(super) struct Beginnings {
    directory: PathBuf,
    reader: Option<Reader>,
    /// By the number of the alert: its latest beginning.
    known: HashMap<u64, u64>,
}

impl Beginnings {
    /// Of the store in a directory.
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, reader: None, known: HashMap::new() }
    }

    /// Notes the beginning of an alert, or completes one that is resolved.
    pub(super) fn complete(&mut self, alert: &mut Alert) {
        let number = alert.alert();
        if alert.is_firing {
            // Those that are forgotten are found in the store.
            if self.known.len() >= MOST_KNOWN {
                self.known.clear();
            }
            self.known.insert(number, alert.ts);
            return;
        }
        // A page can be read again: then a later beginning may be known.
        let known = self.known.get(&number).copied().filter(|began| *began <= alert.ts);
        alert.since = known.or_else(|| self.look_up(alert, number));
    }

    fn look_up(&mut self, alert: &Alert, number: u64) -> Option<u64> {
        if self.reader.is_none() {
            self.reader = Reader::open(&self.directory).ok();
        }
        let before = Some(alert.ts.saturating_add(1));
        let filter = EventFilter {
            before,
            kind: Some(Kind::RuleOn),
            flow: alert.flow,
            limit: MOST_RULES,
            ..EventFilter::default()
        };
        let rows = self.reader.as_ref()?.events(&filter).ok()?;
        let alerts = rows.into_iter().filter_map(|row| Alert::of(&row.event, row.rule.map(Into::into)));
        alerts.filter(|other| other.alert() == number).map(|other| other.ts).max()
    }
}

/// Beginnings in memory.
const MOST_KNOWN: usize = 65_536;
/// Of one flow: at most so many rules became true after the one that is looked for.
const MOST_RULES: usize = 256;

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
        let event = |ts, kind, port| Event { kind, flow: flow(port), rule: Some(0), ..bare(START + ts) };
        let mut batch = collector::Batch::with_capacity(16);
        let events = [(1, Kind::RuleOn), (2, Kind::RuleOff), (3, Kind::RuleOn), (4, Kind::RuleOff)];
        events.iter().for_each(|(ts, kind)| batch.event(&event(*ts, *kind, 5000), &[]));
        batch.event(&event(3, Kind::RuleOn, 5001), &[]);
        store.set_rules(vec!["slow".to_owned()]);
        store.submit(batch).unwrap();
        store.flush();
        let alert = |ts, kind, port| Alert::of(&event(ts, kind, port), Some("slow".into())).unwrap();
        let since = |beginnings: &mut Beginnings, ts, port| {
            let mut alert = alert(ts, Kind::RuleOff, port);
            beginnings.complete(&mut alert);
            alert.since.map(|since| since - START)
        };
        let mut fresh = Beginnings::new(dir.path().to_owned());
        assert_eq!([since(&mut fresh, 4, 5000), since(&mut fresh, 2, 5000)], [Some(3), Some(1)]);
        assert_eq!(since(&mut fresh, 4, 5002), None, "it is not stored");
        // As it was read.
        let mut read = Beginnings::new(dir.path().to_owned());
        read.complete(&mut alert(3, Kind::RuleOn, 5000));
        assert_eq!(
            [since(&mut read, 4, 5000), since(&mut read, 2, 5000)],
            [Some(3), Some(1)],
            "a page that is read again"
        );
    }
}
