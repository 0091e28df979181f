//! Intents on the manager's thread: adds, replaces and removes them, checks them, and describes their state for the API.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use detect::Metric;
use manager::{
    DryRun, IntentStatus,
    budget::Detail,
    compile::EffectiveRule,
    device::{Mode, NodeId},
    intent::{self, At, Intent},
    plan,
    reconcile::Phase,
    verify::{self, IntentCounters, State},
};
use serde_json::Value;
use settings::setting::Setting;

use super::{
    super::{
        clock::Now,
        count::{self, Expected, Expecting, Measuring},
        journal::StoredIntent,
        view::{CostView, IntentState, IntentView, IntentsView, PlanView},
    },
    Core, Error, InstallCheck, ManagedIntent, Origin, PutIntent,
};
use crate::{
    program::Configuration,
    settings::{matches, supported},
};
use terminal::units;

/// Note that SF-INT was chosen, and what it does not measure.
const SF_CHOSEN: &str = "SF-INT is the cheapest mode: each packet carries a part of a path's records, so there is no flow latency, and sets of records that stay incomplete are lost; mode \"md\" measures every packet whole";
/// Minimum interval between checks which intents are installed, ns.
const INSTALLED: u64 = 100_000_000;

impl Core {
    /// Adopts a reloaded configuration file.
    pub(in crate::role) fn reload(&mut self, all: &Arc<Configuration>, now: Now) {
        self.set_inventory(all, now);
        self.set_file(all, now);
    }

    /// Replaces the intents of the file. Unchanged ones keep their counts.
    pub(super) fn set_file(&mut self, all: &Arc<Configuration>, now: Now) {
        self.detection.set_settings(Arc::clone(all));
        let in_file = self
            .intents
            .iter()
            .filter(|(_, managed)| managed.origin == Origin::File);
        let mut old: Vec<String> = in_file.map(|(name, _)| name.clone()).collect();
        for settings in &all.intents {
            let intent = settings.intent();
            if intent.check(now.wall).is_err() || supported(&intent, all.collects()).is_err() {
                continue;
            }
            let body = settings.show().to_written();
            let name = intent.name.clone();
            old.retain(|old| *old != name);
            let before = self
                .intents
                .get(&name)
                .filter(|managed| managed.origin == Origin::File);
            if before.is_none_or(|before| before.stored.body != body) {
                self.forget(&name);
                let stored = StoredIntent {
                    body,
                    by: "file".to_owned(),
                    added: now.wall,
                };
                self.hold(ManagedIntent::new(intent, stored, Origin::File, now), now);
                // Remove an intent with that name from the journal, so that it does not return once the file omits it.
                if let Err(error) = self.journal.forget(&name) {
                    tracing::warn!(intent = name, %error, "cannot save in [manager] state that the file has this intent now");
                }
                self.note(now, "file", "add", &name, "");
            }
        }
        for name in old {
            self.drop_intent(&name, now);
            self.note(now, "file", "remove", &name, "");
        }
    }

    /// Adds an intent. If the current network refuses it, it is retained, and compiled again when the network changes.
    pub(super) fn hold(&mut self, managed: ManagedIntent, now: Now) {
        let name = managed.intent.name.clone();
        self.detection.is_due = true;
        self.drill_downs.is_followed = false;
        self.matches.renew();
        self.changed = now;
        if !self.stopped
            && let Err(refusal) = self.manager.keep_intent(managed.intent.clone(), now.steady)
        {
            tracing::warn!(intent = name, reason = %refusal, "an intent is refused");
        }
        self.intents.insert(name, managed);
    }

    pub(super) fn drop_intent(&mut self, name: &str, now: Now) {
        self.detection.is_due = true;
        self.drill_downs.is_followed = false;
        self.changed = now;
        self.intents.remove(name);
        self.manager.remove_intent(name, now.steady);
        self.forget(name);
    }

    /// Removes everything that was counted for an intent.
    pub(super) fn forget(&mut self, name: &str) {
        self.verifier.remove(name);
        self.totals.remove(name);
        self.budgets.forget(name);
        self.drill_downs.forget(name);
        self.matches.forget(name);
    }

    /// Adds or replaces an intent.
    ///
    /// # Errors
    /// The request is refused; nothing changes.
    pub fn put(&mut self, request: PutIntent, now: Now) -> Result<IntentView, Error> {
        self.check_acting()?;
        let PutIntent {
            body,
            by,
            if_match,
            is_new,
        } = request;
        let intent = read(&body, self.detection.collects(), now.wall).map_err(Error::Wrong)?;
        let name = intent.name.clone();
        let before = self.intents.get(&name);
        check_version(&name, before, if_match.as_deref())?;
        if let Some(managed) = before.filter(|_| is_new) {
            return Err(name_in_use(&name, managed));
        }
        let is_replaced = before.is_some();
        if let Some(managed) = before {
            may_be_replaced(&name, managed)?;
        }
        let stored = StoredIntent {
            body,
            by: by.clone(),
            added: now.wall,
        };
        let mut managed = ManagedIntent::new(intent, stored, Origin::Api, now);
        self.manager.check_intent(&managed.intent, now.steady)?;
        self.check_asked(&managed.intent)?;
        // A relative `until` counts from now, also after a restart, so store the absolute time.
        if let (Some(end), Value::Object(table)) = (managed.end, &mut managed.stored.body) {
            table.insert("until".to_owned(), intent::time_text(end).into());
        }
        self.journal.save_intent(&name, &managed.stored)?;
        self.forget(&name);
        self.hold(managed, now);
        self.note(now, &by, if is_replaced { "replace" } else { "add" }, &name, "");
        self.intent(&name, now)
    }

    /// Returns an intent's flows, and the intents that measure flows now, from which its rate of reports is estimated.
    ///
    /// # Errors
    /// The intent is invalid.
    pub fn expecting(&self, body: &Value, now: Now) -> Result<Expecting, Error> {
        let intent = read(body, self.detection.collects(), now.wall).map_err(Error::Wrong)?;
        let measuring = self.intents.iter().filter_map(|(name, managed)| {
            let outcome = self.manager.compiler().outcome(name)?;
            Some(Measuring {
                flows: matches(&managed.intent.entries().ok()?),
                sample: self.sample_of(managed),
                mode: outcome.mode,
                rank: (managed.intent.priority, Reverse(name.clone())),
                filters: managed.intent.reporting.filter.is_some(),
                everywhere: managed.intent.at == At::default(),
            })
        });
        Ok(Expecting {
            flows: matches(&intent.entries().unwrap_or_default()),
            measuring: measuring.collect(),
            // Of reports before a step of the clock, nobody knows whether they are older.
            since: (!now.is_set_since(self.changed)).then_some(self.changed.wall),
        })
    }

    /// Returns the changes that adding an intent would make. `expected` estimates its rate of reports.
    ///
    /// # Errors
    /// The errors of [`Core::put`].
    pub fn dry_run(&self, body: &Value, expected: &Expected, now: Now) -> Result<PlanView, Error> {
        let intent = read(body, self.detection.collects(), now.wall).map_err(Error::Wrong)?;
        if let Some(managed) = self.intents.get(&intent.name) {
            may_be_replaced(&intent.name, managed)?;
        }
        let intent = Intent {
            until: None,
            ..intent
        };
        let DryRun {
            outcome,
            plan,
            overlaps,
        } = self.manager.dry_run(&intent, now.steady)?;
        self.check_asked(&intent)?;
        let links = self.manager.compiler().longest_path();
        let own = EffectiveRule {
            whole: true,
            mode: outcome.mode,
            bits: outcome.bits,
            sample: intent.sample,
        };
        let overlap = overlaps.get(&intent.name);
        let rules = overlap.map_or(&[][..], |overlap| &overlap.rules);
        let (rule, others) = rules.split_first().unwrap_or((&own, &[]));
        let cost = plan::cost(rule.mode, rule.bits, rule.sample, links, None, expected.rate());
        let fewer = intent.reporting.filter.is_some()
            || !intent.budget.is_empty()
            || intent.at != At::default()
            || matches!(rule.mode, Mode::Mx | Mode::Postcard);
        let cost = Some(CostView::new(rule, cost, expected.text(fewer)));
        let mut view = PlanView::new(&plan, self.manager.inventory());
        view.notes.extend(outcome.notes.iter().map(ToString::to_string));
        view.notes
            .extend(overlap.iter().flat_map(|overlap| overlap.notes()));
        view.notes.extend(
            others
                .iter()
                .map(|rule| format!("packets that other intents match too: {}", rule_text(rule, links))),
        );
        for (name, overlap) in overlaps.iter().filter(|(name, _)| **name != intent.name) {
            view.notes.extend(
                overlap
                    .notes_of(&intent.name)
                    .iter()
                    .map(|note| format!("{name}: {note}")),
            );
        }
        if intent.mode.is_none() && rule.mode == Mode::Sf {
            view.notes.push(SF_CHOSEN.to_owned());
        }
        Ok(PlanView { cost, ..view })
    }

    /// Removes an intent; with `if_match`, only that version.
    ///
    /// # Errors
    /// The intent does not exist, has another version or belongs to the file, or another manager is active.
    pub fn remove(&mut self, name: &str, if_match: Option<&str>, by: &str, now: Now) -> Result<(), Error> {
        self.check_acting()?;
        let managed = self.intents.get(name).ok_or_else(|| unknown(name))?;
        check_version(name, Some(managed), if_match)?;
        if managed.origin == Origin::File {
            return Err(in_file(name));
        }
        self.journal.forget(name)?;
        self.drop_intent(name, now);
        self.note(now, by, "remove", name, "");
        Ok(())
    }

    /// Returns an intent with its state.
    ///
    /// # Errors
    /// There is no such intent.
    pub fn intent(&self, name: &str, now: Now) -> Result<IntentView, Error> {
        let managed = self.intents.get(name).ok_or_else(|| unknown(name))?;
        Ok(self.intent_view(name, managed, now))
    }

    /// Returns the states of all intents, for the manager's stream.
    pub(in crate::role) fn intent_states(&self, now: Now) -> Vec<IntentState> {
        let views = self.intents(now).intents.into_iter();
        views
            .map(|view| IntentState {
                name: view.name,
                etag: view.etag,
                state: view.state,
                text: view.text,
                flows: view.flows,
                rate: view.rate,
            })
            .collect()
    }

    /// Returns all intents with their states.
    pub fn intents(&self, now: Now) -> IntentsView {
        let intents = self
            .intents
            .iter()
            .map(|(name, managed)| self.intent_view(name, managed, now));
        IntentsView {
            intents: intents.collect(),
        }
    }

    fn intent_view(&self, name: &str, managed: &ManagedIntent, now: Now) -> IntentView {
        let status = self.manager.intent(name);
        let inventory = self.manager.inventory();
        let state = self.verifier.state(name, |node| inventory.name(node), now.steady);
        let (flows, rate) = match &state {
            Some(State::Seen(figures) | State::Complete(figures)) => (figures.flows, figures.rate),
            _ => (0, 0.0),
        };
        let idle = self.idle_sinks(name, state.as_ref(), now);
        let (mut state, mut text) = self.described(status.as_ref(), state);
        text.push_str(&self.remarks(name, now));
        if let Some((is_silent, lost)) = self.lost_devices(name, &state, now) {
            text = format!("{lost}; {text}");
            if is_silent {
                state = "silent".to_owned();
            }
        }
        let broken = self.silent_devices(name, &state, now);
        if !broken.is_empty() {
            // Name the device whose reports are lost first, then those whose packets they describe.
            let others = Some(text).filter(|_| state == "silent");
            text = broken.into_iter().chain(others).collect::<Vec<_>>().join("; ");
            state = "silent".to_owned();
        } else if let Some(idle) = idle.filter(|_| state == "silent") {
            text = format!("{idle}; {text}");
        }
        let outcome = status.as_ref().and_then(|status| status.outcome.as_ref().ok());
        let overlap = self.overlap(name);
        let links = self.manager.compiler().longest_path();
        let own = outcome.map(|outcome| EffectiveRule {
            whole: true,
            mode: outcome.mode,
            bits: outcome.bits,
            sample: self.sample_of(managed),
        });
        let rules = match overlap {
            Some(overlap) if outcome.is_some() => &overlap.rules,
            _ => own.as_slice(),
        };
        let notes = outcome
            .iter()
            .flat_map(|outcome| &outcome.notes)
            .map(ToString::to_string);
        IntentView {
            name: name.to_owned(),
            etag: etag_of(managed),
            origin: managed.origin.name().to_owned(),
            parent: match &managed.origin {
                Origin::DrillDown(parent) => Some(parent.clone()),
                Origin::File | Origin::Api => None,
            },
            by: managed.stored.by.clone(),
            added: managed.stored.added,
            end: managed.end.or_else(|| Some(now.to_wall(status.as_ref()?.end?))),
            intent: managed.stored.body.clone(),
            state,
            text,
            mode: modes(rules),
            instructions: rules.first().map(|rule| manager::instruction::names(rule.bits)),
            rules: rules.iter().map(|rule| rule_text(rule, links)).collect(),
            devices: outcome
                .iter()
                .flat_map(|outcome| &outcome.nodes)
                .map(|node| inventory.name(*node))
                .collect(),
            notes: notes
                .chain(overlap.iter().flat_map(|overlap| overlap.notes()))
                .collect(),
            flows,
            rate,
        }
    }

    /// Returns the remarks that follow the description of an intent's state.
    fn remarks(&self, name: &str, now: Now) -> String {
        let mut text = String::new();
        if let Some(conflict) = self
            .overlap(name)
            .and_then(|overlap| overlap.taken.iter().find(|conflict| conflict.whole))
        {
            text.push_str(&format!(
                "; its packets are taken by `{}` (mode {})",
                conflict.by,
                conflict.modes.0.name()
            ));
        }
        if let Some(reason) = self.detection.left_out(name) {
            text.push_str(&format!("; its rule and thresholds are not evaluated: {reason}"));
        }
        if let Some(detail) = self.budgets.coarser(name) {
            let compared = self
                .intents
                .get(name)
                .and_then(|managed| managed.intent.reporting.thresholds.keys().next());
            text.push_str(&format!(
                "; {} by a budget",
                detail_text(compared.copied(), detail)
            ));
        }
        let drill_downs = self.drill_downs_of(name);
        if !drill_downs.is_empty() {
            text.push_str(&format!("; its rule became true: see {}", drill_downs.join(", ")));
        }
        if let Some(reason) = self.drill_downs.denied(name, now.steady) {
            text.push_str(&format!("; a drill-down was not installed: {reason}"));
        }
        text
    }

    /// Describes unreachable or failing devices on an intent's paths. The flag says whether they make the intent silent.
    fn lost_devices(&self, name: &str, state: &str, now: Now) -> Option<(bool, String)> {
        if !matches!(state, "seen" | "complete" | "silent") {
            return None;
        }
        let nodes = self.totals.get(name)?.nodes.iter();
        let lost = nodes.filter_map(|node| match self.manager.phase(*node)? {
            phase @ (Phase::Unreachable { .. } | Phase::Failed { .. }) if !self.manager.is_claimed(*node) => {
                Some((self.manager.inventory().name(*node), phase.to_string()))
            }
            _ => None,
        });
        let lost: Vec<(String, String)> = lost.collect();
        verify::unreachable_text(&lost, self.verifier.last_report(name, now.steady))
    }

    /// Describes devices whose reports an intent lacks: those at which its flows end or, if no flow is known, all devices.
    fn silent_devices(&self, name: &str, state: &str, now: Now) -> Vec<String> {
        let ends = self.totals.get(name).map(|since| &since.ends);
        self.device_reports
            .keys()
            .filter(|node| match state {
                "installed" => true,
                "silent" if ends.is_none_or(BTreeMap::is_empty) => true,
                "seen" | "complete" | "silent" => ends.is_some_and(|ends| ends.contains_key(node)),
                _ => false,
            })
            .filter_map(|node| self.silence(*node, now))
            .collect()
    }

    /// Returns the state of an intent as a word and as a sentence.
    fn described(&self, status: Option<&IntentStatus>, state: Option<State>) -> (String, String) {
        let inventory = self.manager.inventory();
        let Some(status) = status else {
            return match self.stopped {
                true => ("stopped".to_owned(), "all INT is stopped".to_owned()),
                false => (
                    "refused".to_owned(),
                    "the network refused it when it was added".to_owned(),
                ),
            };
        };
        let outcome = match &status.outcome {
            Err(refusal) => return ("refused".to_owned(), refusal.to_string()),
            Ok(outcome) => outcome,
        };
        let devices = outcome.nodes.len();
        let state = state.unwrap_or(State::Pending);
        let text = match &state {
            State::Pending => {
                let nodes = outcome.nodes.iter();
                let waiting: Vec<String> = nodes
                    .filter(|node| self.manager.phase(**node) != Some(&Phase::InSync))
                    .map(|node| inventory.name(*node))
                    .collect();
                if !waiting.is_empty() {
                    format!("waits for {}", waiting.join(", "))
                } else if self.manager.needs_approval(&outcome.nodes) {
                    "waits for approval".to_owned()
                } else {
                    "waits for its devices".to_owned()
                }
            }
            State::Installed => format!(
                "on {}; no report of its flows has arrived yet",
                units::counted(devices as u64, "device")
            ),
            State::Seen(figures) if figures.missing.is_empty() => {
                let paths = match figures.without_path {
                    0 => "no path is complete yet".to_owned(),
                    count => format!("{} without a complete path", units::counted(count, "flow")),
                };
                format!(
                    "{}, {:.0} reports/s; {paths}",
                    units::counted(figures.flows, "flow"),
                    figures.rate
                )
            }
            State::Seen(figures) => verify::missing_text(&figures.missing, |node| inventory.name(node)),
            State::Complete(figures) => format!(
                "{}, {:.0} reports/s, the last one {} s ago; every path is complete",
                units::counted(figures.flows, "flow"),
                figures.rate,
                figures.age / 1_000_000_000
            ),
            State::Silent(silent) => silent
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
        };
        (state.name().to_owned(), text)
    }

    /// Tells the verifier which intents all their devices have, if that may have changed. Returns the steady time of the next check, if
    /// one is due.
    pub(super) fn check_installed(&mut self, now: Now) -> Option<u64> {
        if !self.install_check.is_due {
            return None;
        }
        if now.steady < self.install_check.next {
            return Some(self.install_check.next);
        }
        let start = (self.stopwatch)();
        let mut lacking: BTreeMap<NodeId, Option<BTreeSet<&str>>> = BTreeMap::new();
        for name in self.intents.keys() {
            let is_installed = match self.manager.compiler().outcome(name) {
                Some(outcome) => outcome.nodes.iter().all(|node| {
                    let lacking = lacking
                        .entry(*node)
                        .or_insert_with(|| self.manager.lacking(*node));
                    let lacking = lacking.as_ref();
                    lacking.is_some_and(|lacking| !lacking.contains(name.as_str()))
                }),
                // All INT is stopped.
                None if self.stopped => continue,
                None => false,
            };
            self.verifier.set_installed(name, is_installed, now.steady);
        }
        let duration = (self.stopwatch)().saturating_sub(start);
        // At most a tenth of the thread's time goes into this check.
        self.install_check = InstallCheck {
            is_due: false,
            next: now.steady + INSTALLED.max(duration.saturating_mul(9)),
        };
        None
    }

    /// Returns the flows of each intent, and the instruction bits that its nodes should fill.
    pub(in crate::role) fn watched(&self) -> Vec<count::Watched> {
        let watched = self.intents.iter().filter_map(|(name, managed)| {
            let outcome = self.manager.compiler().outcome(name)?;
            Some(count::Watched {
                name: name.clone(),
                flows: matches(&managed.intent.entries().ok()?),
                bits: outcome.bits,
                mode: outcome.mode,
                events: managed.intent.budget.events.is_some(),
            })
        });
        watched.collect()
    }

    /// Processes the reports that were counted for each intent.
    pub(in crate::role) fn observe(
        &mut self,
        counted: BTreeMap<String, IntentCounters>,
        totals: count::Totals,
        now: Now,
    ) {
        for (name, mut counters) in counted {
            if self.intents.contains_key(&name) {
                count::IntentTotals::add_to(&mut self.totals, &name, &mut counters);
                counters.sources = self.sources(&name, &counters.sources);
                counters.arrivals = self.arrivals;
                self.verifier.observe(&name, counters, now.steady);
            }
        }
        self.keep_budgets(totals, now);
    }

    /// Removes intents whose time is over by the system's clock. Returns the steady time of the next end, as that clock is set now.
    pub(super) fn end_intents(&mut self, now: Now) -> Option<u64> {
        let ended: Vec<String> = self
            .intents
            .iter()
            .filter(|(_, managed)| managed.end.is_some_and(|end| end <= now.wall))
            .map(|(name, _)| name.clone())
            .collect();
        for name in ended {
            self.drop_intent(&name, now);
            if let Err(error) = self.journal.forget(&name) {
                tracing::warn!(intent = name, %error, "cannot save in [manager] state that an intent has ended");
            }
            self.note(now, "manager", "end", &name, "its time has expired");
        }
        let ends = self.intents.values().filter_map(|managed| managed.end);
        ends.min().map(|end| now.to_steady(end))
    }
}

/// Lists the modes of rules, each once.
fn modes(rules: &[EffectiveRule]) -> Option<String> {
    let mut words: Vec<&str> = Vec::new();
    for rule in rules {
        let word = rule.mode.name();
        if !words.contains(&word) {
            words.push(word);
        }
    }
    (!words.is_empty()).then(|| words.join(", "))
}

/// Describes a rule and its overhead on the longest path.
fn rule_text(rule: &EffectiveRule, links: u32) -> String {
    let EffectiveRule {
        whole,
        mode,
        bits,
        sample,
    } = *rule;
    let cost = plan::cost(mode, bits, sample, links, None, None);
    let part = if whole {
        ""
    } else {
        " for packets that others match too"
    };
    let sampled = if sample > 1 {
        format!(", 1 in {sample}")
    } else {
        String::new()
    };
    format!(
        "{} with {}{sampled}{part}; at most {} bytes, goodput {:.1} %",
        mode.name(),
        manager::instruction::names(bits),
        cost.bytes.last().copied().unwrap_or(0),
        cost.goodput * 100.0
    )
}

/// Parses an intent from JSON, and checks that this process supports it.
pub(super) fn read(body: &Value, collects: bool, now: u64) -> Result<Intent, String> {
    if !body.is_object() {
        return Err(
            "write a table as in [[intents]], such as {\"name\": \"web\", \"watch\": [\"hop_latency\"]}"
                .to_owned(),
        );
    }
    let intent = intent::read_one(&settings::json::tree(body), now)?;
    supported(&intent, collects)
        .map(|()| intent)
        .map_err(|(_, message)| message)
}

/// Describes a detail, with the threshold in the unit of its metric.
fn detail_text(metric: Option<Metric>, detail: Detail) -> String {
    let threshold = metric.filter(|_| detail.threshold > 0);
    let threshold = threshold.map(|metric| {
        format!(
            "threshold of {metric} {}",
            intent::amount_text(metric, detail.threshold)
        )
    });
    let sample = (detail.sample > 1).then(|| format!("1 in {} packets", detail.sample));
    threshold.into_iter().chain(sample).collect::<Vec<_>>().join(", ")
}

/// Returns the version of an intent, derived from the time at which it was added.
fn etag_of(managed: &ManagedIntent) -> String {
    format!("{:x}", managed.stored.added)
}

fn unknown(name: &str) -> Error {
    Error::Unknown(format!(
        "there is no intent `{name}`; use a name of the list of intents"
    ))
}

/// Checks that an intent has the expected version; `*` accepts any.
fn check_version(name: &str, managed: Option<&ManagedIntent>, if_match: Option<&str>) -> Result<(), Error> {
    match (if_match, managed) {
        (None, _) | (Some("*"), Some(_)) => Ok(()),
        (Some(etag), Some(managed)) if etag == etag_of(managed) => Ok(()),
        (Some(_), Some(managed)) => Err(Error::Stale(format!(
            "`{name}` was replaced by {} in the meantime; review it, and repeat the change if it still applies",
            managed.stored.by
        ))),
        (Some(_), None) => Err(Error::Stale(format!(
            "the intent `{name}` no longer exists; add it as a new one"
        ))),
    }
}

/// Returns the refusal of a new intent whose name is in use.
fn name_in_use(name: &str, managed: &ManagedIntent) -> Error {
    match may_be_replaced(name, managed) {
        Err(error) => error,
        Ok(()) => Error::Stale(format!(
            "there is an intent `{name}` already, added by {}; use another name, or edit that one",
            managed.stored.by
        )),
    }
}

/// Checks that a request may replace this intent.
fn may_be_replaced(name: &str, managed: &ManagedIntent) -> Result<(), Error> {
    match &managed.origin {
        Origin::Api => Ok(()),
        Origin::File => Err(in_file(name)),
        Origin::DrillDown(parent) => Err(Error::Conflict(format!(
            "`{name}` is a drill-down of `{parent}` and ends by itself; give the intent another name"
        ))),
    }
}

fn in_file(name: &str) -> Error {
    Error::Conflict(format!(
        "`{name}` is in the configuration file; change it there, and reload"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_refused_if_it_is_for_another_version() {
        let managed = |origin| ManagedIntent {
            intent: Intent {
                name: "web".to_owned(),
                ..Intent::default()
            },
            end: None,
            stored: StoredIntent {
                body: Value::Null,
                by: "ana".to_owned(),
                added: 0x2a,
            },
            origin,
        };
        let present = managed(Origin::Api);
        let text = |error: Error| match error {
            Error::Stale(message) | Error::Conflict(message) => message,
            other => panic!("{other:?}"),
        };
        let check = |managed, etag| check_version("web", managed, etag).map_err(text);
        assert_eq!(check(Some(&present), Some("2a")), Ok(()));
        assert_eq!(check(Some(&present), Some("*")), Ok(()));
        assert_eq!(check(Some(&present), None), Ok(()));
        assert_eq!(check(None, None), Ok(()));
        let replaced =
            "`web` was replaced by ana in the meantime; review it, and repeat the change if it still applies";
        assert_eq!(check(Some(&present), Some("29")), Err(replaced.to_owned()));
        let gone = "the intent `web` no longer exists; add it as a new one";
        assert_eq!(check(None, Some("2a")), Err(gone.to_owned()));
        assert_eq!(check(None, Some("*")), Err(gone.to_owned()));
        let there = "there is an intent `web` already, added by ana; use another name, or edit that one";
        assert_eq!(text(name_in_use("web", &present)), there);
        assert!(text(name_in_use("web", &managed(Origin::File))).contains("configuration file"));
    }
}
