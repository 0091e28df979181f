//! A manager on standby keeps what the one that acts has.

use std::collections::{BTreeMap, BTreeSet};

use manager::intent::Intent;
use serde_json::Value;

use super::{
    super::{
        journal::Kept,
        view::{CopiedView, CopyView},
    },
    Core, Error, Held, Origin, intents,
};
use terminal::text;

/// The other manager.
#[derive(Debug)]
pub(super) struct Peer {
    address: String,
    last: Last,
    /// When its intents were last those of this manager.
    copied: Option<u64>,
    /// Why an intent of it is left out.
    left_out: Option<String>,
}

/// What became of the last copy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Last {
    /// There is none yet.
    None,
    /// This manager has what the other one has.
    Copied,
    /// More is to be copied.
    Partly,
    /// The other one does not act either.
    Idle,
    /// It failed.
    Failed(String),
}

impl Peer {
    /// The other manager, of which nothing is known yet.
    pub(super) fn new(address: String) -> Self {
        Self {
            address,
            last: Last::None,
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
            Last::None => format!("has not copied the intents of {address} yet"),
            Last::Copied => format!("has the intents of {address}{left_out}"),
            Last::Partly => format!("is copying the intents of {address}{left_out}"),
            Last::Idle => format!("{address} is not active either; {has}"),
            Last::Failed(why) => format!("cannot copy the intents of {address}: {why}; {has}{left_out}"),
        }
    }
}

impl Core {
    /// Whether this manager acts.
    pub(in crate::role) fn is_acting(&self) -> bool {
        self.manager.is_acting()
    }

    /// Refuses changes that the next copy would undo.
    pub(super) fn check_acting(&self) -> Result<(), Error> {
        match &self.peer {
            Some(peer) if !self.is_acting() => Err(Error::Conflict(format!(
                "this manager is on standby: make the change at the active one ({}), or here once this one is active",
                peer.address
            ))),
            _ => Ok(()),
        }
    }

    /// What a manager on standby has of the other one, in one sentence; `None`: it acts, or it does not copy.
    pub(super) fn copy_text(&self, now: u64) -> Option<String> {
        self.peer
            .as_ref()
            .filter(|_| !self.is_acting())
            .map(|peer| peer.text(now))
    }

    /// What a manager on standby copies, with its version. `known`: nothing, if it is still this version.
    pub fn copy(&self, known: Option<&str>) -> (String, Option<CopyView>) {
        let acting = self.is_acting();
        let etag = format!("{:x}-{:x}-{acting}", self.started, self.journal.revision());
        if known == Some(&etag) {
            return (etag, None);
        }
        let added = self
            .intents
            .iter()
            .filter(|(_, held)| acting && held.origin == Origin::Api);
        let intents = added.map(
            |(
                name,
                Held {
                    kept: Kept { body, by, added },
                    ..
                },
            )| CopiedView {
                name: name.clone(),
                intent: body.clone(),
                by: by.clone(),
                added: *added,
            },
        );
        (
            etag,
            Some(CopyView {
                acting,
                stopped: self.stopped,
                intents: intents.collect(),
            }),
        )
    }

    /// Takes over what the other manager has; `None`: what it had before. Returns whether this manager has all of it.
    pub(in crate::role) fn copied(&mut self, copy: Result<Option<CopyView>, String>, now: u64) -> bool {
        // Meanwhile this one may have begun to act.
        if self.is_acting() {
            return false;
        }
        let last = match copy {
            Ok(None) => self.peer.as_ref().map_or(Last::None, |peer| peer.last.clone()),
            Ok(Some(copy)) if !copy.acting => Last::Idle,
            Ok(Some(copy)) => self.take_copy(copy, now).unwrap_or_else(|error| match error {
                Error::NotSaved(why) => Last::Failed(why),
                error => Last::Failed(format!("{error:?}")),
            }),
            Err(why) => Last::Failed(why),
        };
        let Some(peer) = &mut self.peer else { return false };
        if last == Last::Copied {
            peer.copied = Some(now);
        }
        let failed = |last: &Last| matches!(last, Last::Failed(_));
        let (is_new, complete) = (
            failed(&last) != failed(&peer.last),
            matches!(last, Last::Copied | Last::Idle),
        );
        peer.last = last;
        if is_new {
            let text = peer.text(now);
            tracing::warn!(text, "the other manager");
            self.note(now, "manager", "standby", "", &text);
        }
        complete
    }

    fn take_copy(&mut self, copy: CopyView, now: u64) -> Result<Last, Error> {
        self.set_stopped(copy.stopped, BY, now)?;
        let collects = self.asking.collects();
        let changes = changes(&self.intents, copy.intents, |body| {
            intents::read(body, collects, now)
        });
        self.journal.change(&changes.gone, &changes.kept)?;
        for name in &changes.gone {
            self.drop_intent(name, now);
        }
        let added: Vec<String> = changes.kept.iter().map(|(name, ..)| name.clone()).collect();
        for (name, intent, kept) in changes.kept {
            self.forget(&name);
            self.hold(
                Held {
                    intent,
                    kept,
                    origin: Origin::Api,
                },
                now,
            );
        }
        for (action, names) in [("remove", &changes.gone), ("add", &added)] {
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
            Last::Copied
        } else {
            Last::Partly
        })
    }
}

/// How the intents of this manager become those of the other one.
#[derive(Debug, PartialEq)]
struct Changes {
    /// These are removed first.
    gone: Vec<String>,
    /// These are added, or replace those of their names.
    kept: Vec<(String, Intent, Kept)>,
    /// Why one is left out.
    left_out: Option<String>,
    /// Nothing is left to do after this.
    is_all: bool,
}

/// Compares what this manager has with what the other one has. Its file decides what it has; what it cannot read is left out.
fn changes(
    own: &BTreeMap<String, Held>,
    theirs: Vec<CopiedView>,
    read: impl Fn(&Value) -> Result<Intent, String>,
) -> Changes {
    let names: BTreeSet<&str> = theirs.iter().map(|one| one.name.as_str()).collect();
    let is_gone =
        |(name, held): &(&String, &Held)| held.origin == Origin::Api && !names.contains(name.as_str());
    let gone: Vec<String> = own.iter().filter(is_gone).map(|(name, _)| name.clone()).collect();
    let mut changes = Changes {
        gone,
        kept: Vec::new(),
        left_out: None,
        is_all: true,
    };
    for CopiedView {
        name,
        intent: body,
        by,
        added,
    } in theirs
    {
        let kept = Kept {
            body,
            by: text::bounded(&by, MAX_BY),
            added,
        };
        let is_kept = |held: &Held| held.origin != Origin::Api || held.kept == kept;
        if own.get(&name).is_some_and(is_kept) {
            continue;
        }
        if changes.kept.len() == MAX_CHANGES {
            changes.is_all = false;
            break;
        }
        match read(&kept.body) {
            Ok(intent) if intent.name == name => changes.kept.push((name, intent, kept)),
            Ok(_) => {}
            Err(why) => changes.left_out = Some(text::bounded(&format!("`{name}`: {why}"), MAX_REASON)),
        }
    }
    changes
}

/// Who did it, in the history.
const BY: &str = "other manager";
/// Changes by one copy; the next one has the rest.
const MAX_CHANGES: usize = 256;
/// Entries of the history for one copy and action.
const MAX_NOTES: usize = 16;
/// Characters of who added an intent.
const MAX_BY: usize = 300;
/// Characters of why an intent is left out.
const MAX_REASON: usize = 300;

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

    fn kept(name: &str, added: u64) -> Kept {
        Kept {
            body: json!({"name": name}),
            by: "ana".to_owned(),
            added,
        }
    }

    fn held(name: &str, origin: Origin) -> (String, Held) {
        let intent = Intent {
            name: name.to_owned(),
            ..Intent::default()
        };
        (
            name.to_owned(),
            Held {
                intent,
                kept: kept(name, 5),
                origin,
            },
        )
    }

    fn copied(name: &str, added: u64) -> CopiedView {
        let Kept { body, by, added } = kept(name, added);
        CopiedView {
            name: name.to_owned(),
            intent: body,
            by,
            added,
        }
    }

    #[test]
    fn intents_become_those_of_the_other_manager() {
        let own = ["gone", "same", "other"].map(|name| held(name, Origin::Api));
        let own = own
            .into_iter()
            .chain([held("file", Origin::File), held("mine", Origin::File)])
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
        let intent = |name: &str| Intent {
            name: name.to_owned(),
            ..Intent::default()
        };
        let expected = Changes {
            gone: vec!["gone".to_owned()],
            kept: vec![
                ("other".to_owned(), intent("other"), kept("other", 6)),
                ("new".to_owned(), intent("new"), kept("new", 7)),
            ],
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
        assert_eq!((first.kept.len(), first.is_all), (MAX_CHANGES, false));
        let own = first
            .kept
            .iter()
            .map(|(name, ..)| held(name, Origin::Api))
            .collect();
        let second = changes(&own, theirs(), read);
        assert_eq!(
            (second.gone.len(), second.kept.len(), second.is_all),
            (0, 1, true)
        );
    }

    #[test]
    fn what_is_known_of_the_other_manager_is_one_sentence() {
        let mut peer = Peer::new("10.9.0.2:8080".to_owned());
        let now = 40_000_000_000;
        let text = |peer: &Peer| peer.text(now);
        assert_eq!(text(&peer), "has not copied the intents of 10.9.0.2:8080 yet");
        peer.last = Last::Failed("no answer".to_owned());
        assert_eq!(
            text(&peer),
            "cannot copy the intents of 10.9.0.2:8080: no answer; none are copied"
        );
        peer.copied = Some(10_000_000_000);
        assert_eq!(
            text(&peer),
            "cannot copy the intents of 10.9.0.2:8080: no answer; has a copy from 30 s ago"
        );
        (peer.last, peer.left_out) = (Last::Copied, Some("`a`: no bits".to_owned()));
        assert_eq!(
            text(&peer),
            "has the intents of 10.9.0.2:8080; left out: `a`: no bits"
        );
    }
}
