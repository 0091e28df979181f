//! The standby side of a pair of managers: copies the intents of the active manager, so that it can take over.

use std::collections::{BTreeMap, BTreeSet};

use manager::intent::Intent;
use serde_json::Value;

use super::{
    super::{
        clock::Now,
        journal::{CopiedIntent, StoredIntent},
        view::{CopiedView, CopyView},
    },
    Core, Error, ManagedIntent, Origin, intents,
};
use terminal::text;

/// The author of these changes in the history.
const BY: &str = "other manager";
/// Maximum number of changes per copy. The next copy continues.
const MAX_CHANGES: usize = 256;
/// Maximum number of history entries per copy and action.
const MAX_NOTES: usize = 16;
/// Maximum length of an intent's author, characters.
const MAX_BY: usize = 300;
/// Maximum length of a reason for leaving an intent out, characters.
const MAX_REASON: usize = 300;

/// The other manager, and the state of the copy.
#[derive(Debug)]
pub(super) struct Peer {
    address: String,
    last: CopyState,
    /// When its intents were last those of this manager, by the steady clock.
    copied: Option<u64>,
    /// The reason why one of its intents is not copied.
    left_out: Option<String>,
}

/// The state of the copy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CopyState {
    /// Nothing has been copied yet.
    None,
    /// The copy is complete.
    Copied,
    /// More intents remain to be copied.
    Partly,
    /// The other manager is not active either.
    Idle,
    /// The last copy failed, for the given reason.
    Failed(String),
}

impl Peer {
    /// Creates the state before the first copy.
    pub(super) fn new(address: String) -> Self {
        Self {
            address,
            last: CopyState::None,
            copied: None,
            left_out: None,
        }
    }

    fn text(&self, now: u64) -> String {
        let Self {
            address,
            last,
            copied,
            left_out,
        } = self;
        let age = copied.map(|copied| now.saturating_sub(copied) / 1_000_000_000);
        let has = age.map_or_else(
            || "none are copied".to_owned(),
            |age| format!("has a copy from {age} s ago"),
        );
        let left_out = left_out
            .as_ref()
            .map(|why| format!("; left out: {why}"))
            .unwrap_or_default();
        match last {
            CopyState::None => format!("has not copied the intents of {address} yet"),
            CopyState::Copied => format!("has the intents of {address}{left_out}"),
            CopyState::Partly => format!("is copying the intents of {address}{left_out}"),
            CopyState::Idle => format!("{address} is not active either; {has}"),
            CopyState::Failed(why) => format!("cannot copy the intents of {address}: {why}; {has}{left_out}"),
        }
    }
}

impl Core {
    /// Returns whether this manager is active.
    pub(in crate::role) fn is_acting(&self) -> bool {
        self.manager.is_acting()
    }

    /// Refuses changes on standby, which the next copy would undo.
    pub(super) fn check_acting(&self) -> Result<(), Error> {
        match &self.peer {
            Some(peer) if !self.is_acting() => Err(Error::Conflict(format!(
                "this manager is on standby: make the change at the active one ({}), or here once this one is active",
                peer.address
            ))),
            _ => Ok(()),
        }
    }

    /// Describes the state of the copy, or returns `None` if this manager is active or has no peer.
    pub(super) fn copy_text(&self, now: Now) -> Option<String> {
        self.peer
            .as_ref()
            .filter(|_| !self.is_acting())
            .map(|peer| peer.text(now.steady))
    }

    /// Returns the version of the state that a standby manager copies, and the state itself unless its version is `known`.
    pub fn copy(&self, known: Option<&str>) -> (String, Option<CopyView>) {
        let acting = self.is_acting();
        let etag = format!("{:x}-{:x}-{acting}", self.started, self.journal.revision());
        if known == Some(&etag) {
            return (etag, None);
        }
        let added = self
            .intents
            .iter()
            .filter(|(_, managed)| acting && managed.origin == Origin::Api);
        let intents = added.map(|(name, managed)| CopiedView {
            name: name.clone(),
            intent: managed.stored.body.clone(),
            by: managed.stored.by.clone(),
            added: managed.stored.added,
        });
        (
            etag,
            Some(CopyView {
                acting,
                stopped: self.stopped,
                intents: intents.collect(),
            }),
        )
    }

    /// Adopts the other manager's intents; `Ok(None)` means that they are unchanged. Returns whether the copy is complete.
    pub(in crate::role) fn apply_copy(&mut self, copy: Result<Option<CopyView>, String>, now: Now) -> bool {
        // This manager may have taken over meanwhile.
        if self.is_acting() {
            return false;
        }
        let last = match copy {
            Ok(None) => self
                .peer
                .as_ref()
                .map_or(CopyState::None, |peer| peer.last.clone()),
            Ok(Some(copy)) if !copy.acting => CopyState::Idle,
            Ok(Some(copy)) => self
                .take_over_intents(copy, now)
                .unwrap_or_else(|error| match error {
                    Error::NotSaved(why) => CopyState::Failed(why),
                    error => CopyState::Failed(format!("{error:?}")),
                }),
            Err(why) => CopyState::Failed(why),
        };
        let Some(peer) = &mut self.peer else { return false };
        if last == CopyState::Copied {
            peer.copied = Some(now.steady);
        }
        let is_new = matches!(last, CopyState::Failed(_)) != matches!(peer.last, CopyState::Failed(_));
        let complete = matches!(last, CopyState::Copied | CopyState::Idle);
        peer.last = last;
        if is_new {
            let text = peer.text(now.steady);
            tracing::warn!(text, "the other manager");
            self.note(now, "manager", "standby", "", &text);
        }
        complete
    }

    fn take_over_intents(&mut self, copy: CopyView, now: Now) -> Result<CopyState, Error> {
        self.set_stopped(copy.stopped, BY, now)?;
        let collects = self.detection.collects();
        let changes = changes(&self.intents, copy.intents, |body| {
            intents::read(body, collects, now.wall)
        });
        self.journal.replace_intents(&changes.removed, &changes.changed)?;
        for name in &changes.removed {
            self.drop_intent(name, now);
        }
        let added: Vec<String> = changes.changed.iter().map(|copied| copied.name.clone()).collect();
        for CopiedIntent { name, intent, stored } in changes.changed {
            self.forget(&name);
            self.hold(ManagedIntent::new(intent, stored, Origin::Api, now), now);
        }
        for (action, names) in [("remove", &changes.removed), ("add", &added)] {
            names
                .iter()
                .take(MAX_NOTES)
                .for_each(|name| self.note(now, BY, action, name, ""));
            if names.len() > MAX_NOTES {
                self.note(
                    now,
                    BY,
                    action,
                    "",
                    &format!("and {} more intents", names.len() - MAX_NOTES),
                );
            }
        }
        if let Some(peer) = &mut self.peer {
            peer.left_out = changes.left_out;
        }
        Ok(if changes.is_all {
            CopyState::Copied
        } else {
            CopyState::Partly
        })
    }
}

/// The changes that make this manager's intents equal to the other manager's.
#[derive(Debug, PartialEq)]
struct Changes {
    /// Names of intents to remove first.
    removed: Vec<String>,
    /// Intents to add or replace.
    changed: Vec<CopiedIntent>,
    /// The reason why an intent is not copied.
    left_out: Option<String>,
    /// The changes are complete.
    is_all: bool,
}

/// Compares this manager's intents with the other's. Its own file's have precedence, and unreadable ones are omitted.
fn changes(
    own: &BTreeMap<String, ManagedIntent>,
    copied: Vec<CopiedView>,
    read: impl Fn(&Value) -> Result<Intent, String>,
) -> Changes {
    let names: BTreeSet<&str> = copied.iter().map(|intent| intent.name.as_str()).collect();
    let removed = own
        .iter()
        .filter(|(name, managed)| managed.origin == Origin::Api && !names.contains(name.as_str()));
    let mut changes = Changes {
        removed: removed.map(|(name, _)| name.clone()).collect(),
        changed: Vec::new(),
        left_out: None,
        is_all: true,
    };
    for CopiedView {
        name,
        intent: body,
        by,
        added,
    } in copied
    {
        let stored = StoredIntent {
            body,
            by: text::bounded(&by, MAX_BY),
            added,
        };
        if own
            .get(&name)
            .is_some_and(|managed| managed.origin != Origin::Api || managed.stored == stored)
        {
            continue;
        }
        if changes.changed.len() == MAX_CHANGES {
            changes.is_all = false;
            break;
        }
        match read(&stored.body) {
            Ok(intent) if intent.name == name => changes.changed.push(CopiedIntent { name, intent, stored }),
            Ok(_) => {}
            Err(reason) => {
                changes.left_out = Some(text::bounded(&format!("`{name}`: {reason}"), MAX_REASON));
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: &Value) -> Result<Intent, String> {
        match body["name"].as_str() {
            Some(name) => Ok(Intent {
                name: name.to_owned(),
                ..Intent::default()
            }),
            None => Err("no name".to_owned()),
        }
    }

    fn stored(name: &str, added: u64) -> StoredIntent {
        StoredIntent {
            body: json!({"name": name}),
            by: "ana".to_owned(),
            added,
        }
    }

    fn managed(name: &str, origin: Origin) -> (String, ManagedIntent) {
        let intent = Intent {
            name: name.to_owned(),
            ..Intent::default()
        };
        (
            name.to_owned(),
            ManagedIntent {
                intent,
                end: None,
                stored: stored(name, 5),
                origin,
            },
        )
    }

    fn changed_intent(name: &str, added: u64) -> CopiedIntent {
        CopiedIntent {
            name: name.to_owned(),
            intent: Intent {
                name: name.to_owned(),
                ..Intent::default()
            },
            stored: stored(name, added),
        }
    }

    fn copied(name: &str, added: u64) -> CopiedView {
        let StoredIntent { body, by, added } = stored(name, added);
        CopiedView {
            name: name.to_owned(),
            intent: body,
            by,
            added,
        }
    }

    #[test]
    fn intents_become_those_of_the_other_manager() {
        let own = ["gone", "same", "other"].map(|name| managed(name, Origin::Api));
        let own = own
            .into_iter()
            .chain([managed("file", Origin::File), managed("mine", Origin::File)])
            .collect();
        let broken = CopiedView {
            intent: json!(5),
            ..copied("broken", 1)
        };
        let forged = CopiedView {
            name: "forged".to_owned(),
            ..copied("file", 1)
        };
        let theirs = vec![
            copied("same", 5),
            copied("other", 6),
            copied("new", 7),
            copied("file", 8),
            broken,
            forged,
        ];
        let expected = Changes {
            removed: vec!["gone".to_owned()],
            changed: vec![changed_intent("other", 6), changed_intent("new", 7)],
            left_out: Some("`broken`: no name".to_owned()),
            is_all: true,
        };
        assert_eq!(changes(&own, theirs, read), expected);
    }

    #[test]
    fn a_large_copy_is_taken_in_parts() {
        let names: Vec<String> = (0..MAX_CHANGES + 1).map(|number| format!("i{number}")).collect();
        let theirs = || names.iter().map(|name| copied(name, 5)).collect();
        let first = changes(&BTreeMap::new(), theirs(), read);
        assert_eq!((first.changed.len(), first.is_all), (MAX_CHANGES, false));
        let own = first
            .changed
            .iter()
            .map(|copied| managed(&copied.name, Origin::Api))
            .collect();
        let second = changes(&own, theirs(), read);
        assert_eq!(
            (second.removed.len(), second.changed.len(), second.is_all),
            (0, 1, true)
        );
    }

    #[test]
    fn what_is_known_of_the_other_manager_is_one_sentence() {
        let mut peer = Peer::new("10.9.0.2:8080".to_owned());
        let now = 40_000_000_000;
        let text = |peer: &Peer| peer.text(now);
        assert_eq!(text(&peer), "has not copied the intents of 10.9.0.2:8080 yet");
        peer.last = CopyState::Failed("no answer".to_owned());
        assert_eq!(
            text(&peer),
            "cannot copy the intents of 10.9.0.2:8080: no answer; none are copied"
        );
        peer.copied = Some(10_000_000_000);
        assert_eq!(
            text(&peer),
            "cannot copy the intents of 10.9.0.2:8080: no answer; has a copy from 30 s ago"
        );
        (peer.last, peer.left_out) = (CopyState::Copied, Some("`a`: no bits".to_owned()));
        assert_eq!(
            text(&peer),
            "has the intents of 10.9.0.2:8080; left out: `a`: no bits"
        );
    }
}
