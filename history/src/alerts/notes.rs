//! Acknowledgements and silences of alerts, saved in the file `alerts.json` beside the store.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use collector::Kind;
use detect::Metric;
use export::record::Alert;
use filter::{Facts, Filter, Names, View};
use serde::{Deserialize, Serialize};
use store::facts;
use terminal::CliError;

use runtime::{lock::lock, save::SavedFile};
use view::{AcknowledgedView, SilenceView};

/// Name of the file in the store's directory.
const FILE_NAME: &str = "alerts.json";
/// Maximum number of acknowledgements.
const MAX_ACKNOWLEDGED: usize = 4_096;
/// Maximum number of silences, including recently ended ones: each is compared with each alert.
const MAX_SILENCES: usize = 256;
/// Time for which an ended silence is kept, ns, so that a lagging export applies it, too.
const ENDED_SILENCE_RETENTION: u64 = 7 * 86_400_000_000_000;

/// Acknowledgements and silences, and the file that stores them.
#[derive(Debug)]
pub struct Notes {
    file: Arc<SavedFile>,
    /// Current notes. Never locked during disk I/O, so that readers do not wait for it.
    state: RwLock<State>,
    /// Lock that serialises changes of the file.
    change_lock: Mutex<()>,
}

#[derive(Clone, Debug, Default)]
struct State {
    saved: Saved,
    /// Parsed filters of the silences, in the same order.
    filters: Vec<Arc<Filter>>,
}

/// The content of the file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Saved {
    /// Acknowledgements by alert ID (16 hexadecimal digits).
    acknowledged: BTreeMap<String, AcknowledgedView>,
    silences: Vec<SavedSilence>,
    /// Number of the last silence.
    next: u64,
}

/// A silence as stored in the file; times in ns.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct SavedSilence {
    /// The silence; [`SavedSilence::view`] sets `active`.
    #[serde(flatten)]
    silence: SilenceView,
    /// Ids of the nodes that the filter names, as they were when the silence was added: it covers the same nodes however
    /// names change.
    nodes: BTreeMap<String, u32>,
}

/// Names in the filter of a silence.
struct SilenceNames<'a> {
    /// Ids of nodes by name; those that a new filter uses are added.
    nodes: RefCell<BTreeMap<String, u32>>,
    /// All names, for a new filter.
    names: Option<&'a dyn Names>,
}

impl Names for SilenceNames<'_> {
    fn node(&self, name: &str) -> Option<u32> {
        let mut nodes = self.nodes.borrow_mut();
        if !nodes.contains_key(name) {
            nodes.insert(name.to_owned(), self.names?.node(name)?);
        }
        nodes.get(name).copied()
    }

    fn reason_codes(&self, name: &str) -> Vec<u8> {
        // An alert has no drop reason, so any code will do for a stored filter.
        self.names.map_or(vec![0], |names| names.reason_codes(name))
    }

    fn reason_names(&self) -> Vec<String> {
        self.names.map(Names::reason_names).unwrap_or_default()
    }
}

/// The reason why a change was refused.
#[derive(Debug)]
pub enum ChangeError {
    /// The filter is invalid.
    InvalidFilter {
        /// Position of the error, in characters from 1.
        position: usize,
        /// Description of the error.
        message: String,
    },
    /// The maximum number of silences is reached, and all are active.
    TooManySilences,
    /// The file cannot be written.
    NotSaved(io::Error),
}

impl Notes {
    /// Loads the notes from a directory, or starts empty if the file does not exist.
    ///
    /// # Errors
    /// The file exists but cannot be read.
    pub fn open(directory: &Path) -> Result<Self, CliError> {
        let file = SavedFile::new(directory.join(FILE_NAME), 0o600);
        let shown = file.path().display();
        let remedy =
            "correct or remove it; without it, all alerts are unacknowledged and no silence is active";
        let saved: Saved = match file.read() {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|error| CliError::new(format!("{shown} cannot be read: {error}; {remedy}")))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Saved::default(),
            Err(error) => return Err(CliError::io(format!("cannot read {shown}"), error, remedy)),
        };
        let mut filters = Vec::with_capacity(saved.silences.len());
        for SavedSilence { silence, nodes } in &saved.silences {
            let names = SilenceNames {
                nodes: RefCell::new(nodes.clone()),
                names: None,
            };
            let filter = Filter::parse(&silence.filter, View::Events, &names).map_err(|fault| {
                let message = fault.message;
                CliError::new(format!("{shown}: silence {}: {message}; {remedy}", silence.id))
            })?;
            filters.push(Arc::new(filter));
        }
        Ok(Self {
            state: RwLock::new(State { saved, filters }),
            file,
            change_lock: Mutex::default(),
        })
    }

    /// Returns the acknowledgement of an alert, if it was made since the alert began.
    pub fn acknowledged(&self, alert: u64, since: Option<u64>) -> Option<AcknowledgedView> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let acknowledgement = state.saved.acknowledged.get(&hex_id(alert))?;
        since
            .is_none_or(|since| since <= acknowledgement.at)
            .then(|| acknowledgement.clone())
    }

    /// Acknowledges an alert, or removes its acknowledgement if `note` is `None`.
    ///
    /// # Errors
    /// The change cannot be saved. Nothing changed.
    pub fn acknowledge(&self, alert: u64, note: Option<AcknowledgedView>) -> Result<(), ChangeError> {
        self.change(|state| {
            let all = &mut state.saved.acknowledged;
            match note {
                None => _ = all.remove(&hex_id(alert)),
                Some(note) => {
                    all.insert(hex_id(alert), note);
                }
            }
            while all.len() > MAX_ACKNOWLEDGED {
                let oldest = all
                    .iter()
                    .min_by_key(|(_, note)| note.at)
                    .map(|(name, _)| name.clone());
                let Some(oldest) = oldest else { break };
                all.remove(&oldest);
                tracing::warn!(
                    alert = oldest,
                    most = MAX_ACKNOWLEDGED,
                    "the oldest acknowledgement was deleted"
                );
            }
            Ok(())
        })
    }

    /// Adds a silence, and returns it. `names` resolves the names in its filter.
    ///
    /// # Errors
    /// The filter is invalid, there are too many silences, or the change cannot be saved. Nothing changes in that case.
    pub fn silence(&self, silence: SilenceView, names: &dyn Names) -> Result<SilenceView, ChangeError> {
        let names = SilenceNames {
            nodes: RefCell::default(),
            names: Some(names),
        };
        let parsed = Filter::parse(&silence.filter, View::Events, &names).map_err(|fault| {
            let before = silence.filter.get(..fault.position).unwrap_or(&silence.filter);
            ChangeError::InvalidFilter {
                position: before.chars().count() + 1,
                message: fault.message,
            }
        })?;
        let now = silence.from;
        self.change(|state| {
            state.remove_silences(|old| old.until.saturating_add(ENDED_SILENCE_RETENTION) < now);
            if state.saved.silences.len() >= MAX_SILENCES {
                state.remove_silences(|old| old.until <= now);
            }
            if state.saved.silences.len() >= MAX_SILENCES {
                return Err(ChangeError::TooManySilences);
            }
            state.saved.next += 1;
            let saved = SavedSilence {
                silence: SilenceView {
                    id: state.saved.next,
                    ..silence
                },
                nodes: names.nodes.into_inner(),
            };
            let view = saved.view(now);
            state.saved.silences.push(saved);
            state.filters.push(Arc::new(parsed));
            Ok(view)
        })
    }

    /// Ends a silence now. Returns `None` if no silence with this number is active.
    ///
    /// # Errors
    /// The change cannot be saved. Nothing changed.
    pub fn end(&self, id: u64, now: u64) -> Result<Option<SilenceView>, ChangeError> {
        self.change(|state| {
            let found = state
                .saved
                .silences
                .iter_mut()
                .find(|saved| saved.silence.id == id && saved.silence.until > now);
            Ok(found.map(|saved| {
                saved.silence.until = now;
                saved.view(now)
            }))
        })
    }

    /// Returns all silences, newest first.
    pub fn silences(&self, now: u64) -> Vec<SilenceView> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state
            .saved
            .silences
            .iter()
            .rev()
            .map(|saved| saved.view(now))
            .collect()
    }

    /// Returns the number of a silence that matches an alert at a time, or `None`.
    pub fn covering(&self, alert: &Alert, time: u64) -> Option<u64> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let all = state.saved.silences.iter().zip(&state.filters);
        let facts = alert_facts(alert);
        all.map(|(saved, filter)| (&saved.silence, filter))
            .filter(|(silence, _)| (silence.from..silence.until).contains(&time))
            .find(|(_, filter)| filter.matches(&facts))
            .map(|(silence, _)| silence.id)
    }

    /// Returns true if a silence matched the start of this alert. The end is not tested, because it can have another node,
    /// queue or value, and because an alert that was reported as firing must also be reported as resolved.
    pub fn is_silenced(&self, start: &Alert) -> bool {
        self.covering(start, start.ts).is_some()
    }

    /// Returns the latest end of a silence within `(after, until]`, ns, if any.
    pub fn ended(&self, after: u64, until: u64) -> Option<u64> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state
            .saved
            .silences
            .iter()
            .map(|saved| saved.silence.until)
            .filter(|end| after < *end && *end <= until)
            .max()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> Result<T, ChangeError>) -> Result<T, ChangeError> {
        let _guard = lock(&self.change_lock);
        let mut new = self.state.read().unwrap_or_else(PoisonError::into_inner).clone();
        let result = change(&mut new)?;
        let text =
            serde_json::to_vec_pretty(&new.saved).map_err(|error| ChangeError::NotSaved(error.into()))?;
        self.file.replace(text).map_err(ChangeError::NotSaved)?;
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(result)
    }
}

impl State {
    fn remove_silences(&mut self, should_remove: impl Fn(&SilenceView) -> bool) {
        let silences = std::mem::take(&mut self.saved.silences);
        let all = silences.into_iter().zip(std::mem::take(&mut self.filters));
        (self.saved.silences, self.filters) = all.filter(|(saved, _)| !should_remove(&saved.silence)).unzip();
    }
}

impl SavedSilence {
    fn view(&self, now: u64) -> SilenceView {
        let active = (self.silence.from..self.silence.until).contains(&now);
        SilenceView {
            active,
            ..self.silence.clone()
        }
    }
}

fn alert_facts(alert: &Alert) -> Facts<'_> {
    Facts {
        flow: alert.flow.as_ref(),
        node: alert.node,
        interface: alert.interface,
        queue: alert.queue,
        kind: Some(Kind::RuleOn.name()),
        metric: alert.metric.map(Metric::name),
        rule: Some(&alert.rule),
        values: facts::values(None, alert.metric, alert.value),
        ..Facts::default()
    }
}

fn hex_id(alert: u64) -> String {
    format!("{alert:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use collector::Event;
    use filter::no_names;
    use testkit::records::Dir;

    fn alert(ts: u64, node: u32) -> Alert {
        let event = Event {
            kind: Kind::RuleOn,
            flow: Some("10.0.1.7:5000>10.0.0.2:80/6".parse().unwrap()),
            node: Some(node),
            metric: Some(Metric::QueueOccupancy),
            value: Some(80),
            ..testkit::records::bare(ts)
        };
        Alert::from_event(&event, Some("deep".into())).unwrap()
    }

    fn silence(filter: &str, from: u64, until: u64) -> SilenceView {
        SilenceView {
            filter: filter.to_owned(),
            from,
            until,
            by: "anna".to_owned(),
            ..SilenceView::default()
        }
    }

    #[test]
    fn notes_survive_a_restart() {
        let dir = Dir::new("notes");
        let notes = Notes::open(dir.path()).unwrap();
        let note = AcknowledgedView {
            by: "anna".to_owned(),
            at: 50,
            comment: "known".to_owned(),
        };
        notes.acknowledge(7, Some(note.clone())).unwrap();
        let id = notes
            .silence(
                silence("rule == deep and src in 10.0.1.0/24", 100, 200),
                &no_names,
            )
            .unwrap()
            .id;
        let again = Notes::open(dir.path()).unwrap();
        assert_eq!(again.acknowledged(7, Some(40)), Some(note.clone()));
        assert_eq!(again.acknowledged(7, Some(60)), None, "it began anew after that");
        assert_eq!(
            (again.acknowledged(7, None), again.acknowledged(8, None)),
            (Some(note), None)
        );
        assert_eq!(again.covering(&alert(0, 7), 150), Some(id));
        assert_eq!(
            again
                .silence(silence("rule == other", 100, 200), &no_names)
                .unwrap()
                .id,
            id + 1,
            "numbers go on"
        );
        again.acknowledge(7, None).unwrap();
        assert_eq!(Notes::open(dir.path()).unwrap().acknowledged(7, None), None);
        std::fs::write(dir.path().join(FILE_NAME), "{").unwrap();
        assert!(
            Notes::open(dir.path())
                .unwrap_err()
                .to_string()
                .contains("alerts.json cannot be read")
        );
    }

    #[test]
    fn a_silence_covers_what_began_in_it() {
        let dir = Dir::new("silences");
        let notes = Notes::open(dir.path()).unwrap();
        let id = notes
            .silence(silence("node == 7", 100, 200), &no_names)
            .unwrap()
            .id;
        let at = |ts, node| notes.is_silenced(&alert(ts, node));
        assert_eq!(
            [at(99, 7), at(100, 7), at(199, 7), at(200, 7), at(150, 8)],
            [false, true, true, false, false]
        );
        // It ends earlier: what began in it stays silenced.
        assert_eq!(notes.end(id, 150).unwrap().map(|one| one.until), Some(150));
        assert_eq!([at(149, 7), at(150, 7)], [true, false]);
        assert_eq!((notes.ended(149, 150), notes.ended(150, 300)), (Some(150), None));
        assert_eq!(notes.end(id, 160).unwrap(), None);
        assert_eq!(notes.end(99, 160).unwrap(), None);
    }

    #[test]
    fn names_in_a_silence_mean_what_they_meant_when_it_was_added() {
        let dir = Dir::new("named-silences");
        let names: view::NamesView = serde_json::from_value(serde_json::json!({
            "nodes": [{"node": 7, "name": "leaf-1", "interfaces": []}],
            "hosts": [],
            "drop_reasons": [{"code": 128, "name": "link_down"}]}))
        .unwrap();
        let names = view::Names::from(names);
        let notes = Notes::open(dir.path()).unwrap();
        let text = "node == leaf-1 and not reason == \"link down\" or node == leaf-1";
        let id = notes.silence(silence(text, 100, 200), &names).unwrap().id;
        assert_eq!(notes.covering(&alert(0, 7), 150), Some(id));
        assert_eq!(notes.covering(&alert(0, 8), 150), None);
        // After a restart, whatever the names are by then.
        assert_eq!(
            Notes::open(dir.path()).unwrap().covering(&alert(0, 7), 150),
            Some(id)
        );
        let unknown = notes.silence(silence("reason == link_up", 100, 200), &names);
        let Err(ChangeError::InvalidFilter { message, .. }) = unknown else {
            panic!("{unknown:?}");
        };
        assert!(message.ends_with("or one of link_down"), "{message}");
    }

    #[test]
    fn notes_are_bounded_and_refused_with_a_reason() {
        let dir = Dir::new("full-notes");
        let notes = Notes::open(dir.path()).unwrap();
        let wrong = notes.silence(silence("rule == \"é\" and node = 7", 1, 2), &no_names);
        assert!(
            matches!(wrong, Err(ChangeError::InvalidFilter { position: 22, .. })),
            "{wrong:?}"
        );
        (0..MAX_SILENCES as u64)
            .for_each(|_| _ = notes.silence(silence("node == 7", 100, 200), &no_names).unwrap());
        assert!(matches!(
            notes.silence(silence("node == 7", 150, 300), &no_names),
            Err(ChangeError::TooManySilences)
        ));
        // Those that ended make room.
        assert_eq!(
            notes
                .silence(silence("node == 8", 250, 300), &no_names)
                .unwrap()
                .id,
            MAX_SILENCES as u64 + 1
        );
        assert_eq!(notes.silences(260).len(), 1);
        std::fs::remove_dir_all(dir.path()).unwrap();
        assert!(matches!(
            notes.acknowledge(1, Some(AcknowledgedView::default())),
            Err(ChangeError::NotSaved(_))
        ));
        assert_eq!(notes.acknowledged(1, None), None);
    }

    #[test]
    fn who_reads_does_not_wait_for_who_changes() {
        let dir = Dir::new("reading-notes");
        let notes = Notes::open(dir.path()).unwrap();
        let is_readable = notes.change(|_| Ok(notes.state.try_read().is_ok())).unwrap();
        assert!(is_readable);
    }
}
