//! Keeps intents and collectors to their budgets (reports or events per second): measures the current rates, and makes intents
//! coarser (a larger sample or threshold) or finer again.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use manager::{
    budget::{Budget, BudgetedIntent, Budgets, CollectorLoad, Detail, Load, Move, Rates},
    device::{NodeId, Rule},
    intent::Intent,
    verify::State,
};

use super::{
    super::{clock::Now, count::Totals},
    Core, ManagedIntent,
    silence::arrives,
};
use runtime::monitor::MAX_COUNTED_FLOWS;

/// Minimum interval between two compared messages, ns. Delayed messages arrive together.
const LEAST: u64 = 900_000_000;
/// Silence after which a device is ignored, ns.
const FOLLOWED: u64 = 5_000_000_000;

/// The budgets and the measured rates.
#[derive(Debug, Default)]
pub(super) struct BudgetControl {
    budgets: Budgets,
    /// Intents whose detail a budget has changed, in their changed form.
    effective_intents: BTreeMap<String, Intent>,
    /// The totals at the last measurement, and its time, ns.
    last: Option<(u64, Totals)>,
    /// The last two counter messages of each device.
    devices: BTreeMap<NodeId, Window>,
    /// Collectors with a budget, and their load.
    collectors: BTreeMap<SocketAddr, CollectorLoad>,
    /// Intents with a budget of events whose events are not counted.
    uncounted: BTreeSet<String>,
    /// The reason of the last change of each intent that was refused.
    refused: BTreeMap<String, String>,
    /// Events per second of intents.
    events: BTreeMap<String, f64>,
}

/// Packets that a device has counted, and the time of its message, ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    counted_at: u64,
    packets: u64,
}

/// A collector with a budget, and the devices that report to it.
#[derive(Clone, Debug)]
pub(super) struct Budgeted {
    budget: Budget,
    /// The devices that report to it, or `None` for the collector in this process.
    devices: Option<BTreeSet<NodeId>>,
}

/// The last two counter messages of a device. Between messages its counters are unknown, so rates use the message times.
#[derive(Clone, Copy, Debug)]
struct Window {
    from: Counters,
    to: Counters,
}

impl Window {
    fn new(first: Counters) -> Self {
        Self {
            from: first,
            to: first,
        }
    }

    /// Adds the device's latest counters. Repeated ones change nothing.
    fn advance(&mut self, counters: Counters) {
        if counters.packets < self.to.packets {
            // The counters restarted, so the previous message is useless.
            *self = Self::new(counters);
        } else if counters.counted_at >= self.to.counted_at.saturating_add(LEAST) {
            *self = Self {
                from: self.to,
                to: counters,
            };
        }
    }

    /// Returns the rate in packets per second, or `None` before the second message.
    fn rate(&self) -> Option<f64> {
        let Self { from, to } = self;
        let seconds = to.counted_at.saturating_sub(from.counted_at) as f64 / 1e9;
        (seconds > 0.0).then(|| to.packets.saturating_sub(from.packets) as f64 / seconds)
    }

    /// Returns whether the device has reported its counters lately.
    fn is_followed(&self, now: u64) -> bool {
        now <= self.to.counted_at.saturating_add(FOLLOWED)
    }
}

impl BudgetControl {
    /// Removes the budget state of an intent.
    pub(super) fn forget(&mut self, name: &str) {
        self.budgets.forget(name);
        self.effective_intents.remove(name);
        self.events.remove(name);
        self.refused.remove(name);
    }

    /// Returns the detail of an intent if it is coarser than requested.
    pub(super) fn coarser(&self, name: &str) -> Option<Detail> {
        self.budgets.coarser(name)
    }

    /// Returns the effective intent, as its budget has changed it.
    pub(super) fn effective_intent<'a>(&'a self, managed: &'a ManagedIntent) -> &'a Intent {
        self.effective_intents
            .get(&managed.intent.name)
            .unwrap_or(&managed.intent)
    }

    /// Computes rates from the counts and the devices' latest counters. `sessions` lists the collectors with a budget.
    fn measure(
        &mut self,
        totals: Totals,
        counters: &BTreeMap<NodeId, Counters>,
        sessions: BTreeMap<SocketAddr, Budgeted>,
        now: u64,
    ) {
        self.devices.retain(|node, _| counters.contains_key(node));
        for (node, counters) in counters {
            self.devices
                .entry(*node)
                .or_insert_with(|| Window::new(*counters))
                .advance(*counters);
        }
        let before = self.last.replace((now, totals));
        let (Some((then, before)), Some((_, totals))) = (before, &self.last) else {
            return;
        };
        let seconds = now.saturating_sub(then).max(1) as f64 / 1e9;
        // Saturating: after a restart of the counters the rate is 0 once.
        let reports = totals.reports.saturating_sub(before.reports) as f64 / seconds;
        let events = totals.events.saturating_sub(before.events) as f64 / seconds;
        let loads = sessions.into_iter().map(|(at, Budgeted { budget, devices })| {
            let (rates, since) = match devices {
                None => (Rates { reports, events }, Some(then)),
                Some(devices) => {
                    let (reports, since) = self.reported(&devices, now);
                    (Rates { reports, events: 0.0 }, since)
                }
            };
            (at, CollectorLoad { budget, rates, since })
        });
        self.collectors = loads.collect();
        let by_intent = totals.of_intents.iter().filter_map(|(name, events)| {
            let old = before.of_intents.get(name)?;
            Some((name.clone(), events.saturating_sub(*old) as f64 / seconds))
        });
        self.events = by_intent.collect();
    }

    /// Updates the set of intents that are not counted. Returns those that are new in it.
    fn no_longer_counted(&mut self, now: &BTreeSet<String>) -> Vec<String> {
        let before = std::mem::replace(&mut self.uncounted, now.clone());
        now.difference(&before).cloned().collect()
    }

    /// Returns the reports per second of several devices, and the start of the period measured. The start is `None` if the
    /// rate of a device is not known yet.
    fn reported(&self, devices: &BTreeSet<NodeId>, now: u64) -> (f64, Option<u64>) {
        let known = devices.iter().filter_map(|node| self.devices.get(node));
        let followed: Vec<&Window> = known.filter(|window| window.is_followed(now)).collect();
        let rates: Option<Vec<f64>> = followed.iter().map(|window| window.rate()).collect();
        let since = followed.iter().map(|window| window.from.counted_at).min();
        rates.map_or((0.0, None), |rates| (rates.iter().sum(), since))
    }
}

impl Core {
    /// Adjusts intents to the budgets, given the totals up to now.
    pub(super) fn keep_budgets(&mut self, totals: Totals, now: Now) {
        let sessions = self.budgeted();
        let counters = self.device_reports.iter().map(|(node, device)| {
            let counted_at = device.reported_at;
            let packets = device.reported.packets;
            (*node, Counters { counted_at, packets })
        });
        let counters = counters.collect();
        for name in self.budgets.no_longer_counted(&totals.uncounted) {
            self.note(now, "manager", "budget", &name, &uncounted());
        }
        self.budgets.measure(totals, &counters, sessions, now.steady);
        let mut budgets = std::mem::take(&mut self.budgets.budgets);
        let budgeted: Vec<BudgetedIntent<'_>> = self
            .intents
            .iter()
            .filter_map(|(name, managed)| self.budgeted_intent(name, managed, now))
            .collect();
        let (moves, stuck) = budgets.observe(&budgeted, &self.budgets.collectors, now.steady);
        self.budgets.budgets = budgets;
        for (name, step) in moves {
            self.apply_move(&name, &step, now);
        }
        for load in stuck {
            self.note_exceeded(&load, now);
        }
    }

    /// Returns the collectors that have a budget.
    fn budgeted(&self) -> BTreeMap<SocketAddr, Budgeted> {
        let collectors = self.manager.compiler().settings().collectors.iter();
        let budgeted = collectors.filter(|collector| !collector.budget.is_empty());
        budgeted
            .map(|collector| {
                let at = collector.address;
                let mut listens = self.listens.iter();
                let is_here = self.is_local || listens.any(|listen| arrives(listen, at, &self.local));
                let nodes = self.device_reports.keys().copied();
                let devices =
                    (!is_here).then(|| nodes.filter(|node| self.session(*node) == Some(at)).collect());
                let budget = collector.budget;
                (at, Budgeted { budget, devices })
            })
            .collect()
    }

    /// Returns the address to which a device sends its reports.
    pub(super) fn session(&self, node: NodeId) -> Option<SocketAddr> {
        let rules = self.manager.compiler().desired().get(&node);
        rules
            .into_iter()
            .flat_map(|rules| rules.iter())
            .find_map(|rule| match rule {
                Rule::Session(to) => Some(*to),
                _ => None,
            })
    }

    /// Returns the budget input of an intent, or `None` if it cannot become coarser.
    fn budgeted_intent<'a>(
        &'a self,
        name: &'a str,
        managed: &ManagedIntent,
        now: Now,
    ) -> Option<BudgetedIntent<'a>> {
        let bounds = managed.intent.bounds()?;
        let outcome = self.manager.compiler().outcome(name)?;
        let inventory = self.manager.inventory();
        let reports = match self.verifier.state(name, |node| inventory.name(node), now.steady) {
            Some(State::Seen(figures) | State::Complete(figures)) => Some(figures.rate),
            Some(State::Installed) => Some(0.0),
            _ => None,
        };
        let events = self.budgets.events.get(name).copied();
        let (budget, rates) = known(managed.intent.budget, reports, events);
        let ends = self
            .totals
            .get(name)
            .into_iter()
            .flat_map(|since| since.ends.keys());
        let at: BTreeSet<SocketAddr> = outcome
            .nodes
            .iter()
            .chain(ends)
            .filter_map(|node| self.session(*node))
            .collect();
        Some(BudgetedIntent {
            name,
            bounds,
            budget,
            rates,
            collectors: at.into_iter().collect(),
        })
    }

    /// Makes an intent coarser or finer, and records it.
    fn apply_move(&mut self, name: &str, step: &Move, now: Now) {
        let Some(managed) = self.intents.get(name) else {
            return;
        };
        if step.from != step.to {
            let intent = managed.intent.with_detail(step.to);
            if let Err(refusal) = self.manager.add_intent(intent.clone(), now.steady) {
                self.budgets.budgets.undo(name, step);
                // The change is retried every second, but logged once.
                let refusal = refusal.to_string();
                if self.budgets.refused.get(name) != Some(&refusal) {
                    tracing::warn!(
                        intent = name,
                        reason = refusal,
                        "the budget cannot change the detail"
                    );
                    self.note(
                        now,
                        "manager",
                        "budget",
                        name,
                        &format!("the detail stays: {refusal}"),
                    );
                    self.budgets.refused.insert(name.to_owned(), refusal);
                }
                return;
            }
            self.budgets.refused.remove(name);
            // The sampling may differ, so earlier reports are not comparable.
            self.changed = now;
            self.matches.renew();
            // A threshold without a filter is evaluated by the collector.
            self.detection.is_due |= managed.intent.reporting.filter.is_none();
            self.budgets.effective_intents.insert(name.to_owned(), intent);
        }
        self.note(now, "manager", "budget", name, &step.to_string());
    }

    /// Reports a collector over its budget although no intent can become coarser.
    fn note_exceeded(&mut self, load: &Load, now: Now) {
        let text = format!(
            "{load} exceed its budget of {}, and no intent that reports there can become coarser; raise it, or give intents a filter with a threshold, or coarsest = {{ sample = \"1 in 64\" }}",
            load.budget
        );
        let at = load.collector.map(|at| at.to_string()).unwrap_or_default();
        tracing::warn!(
            collector = at,
            rate = load.rate,
            budget = load.budget,
            "a collector is over its budget"
        );
        self.note(now, "manager", "budget", &at, &text);
    }

    /// Returns the N of an intent's effective sampling of 1 in N packets.
    pub(super) fn sample_of(&self, managed: &ManagedIntent) -> u32 {
        self.budgets.effective_intent(managed).sample.max(1)
    }
}

/// Returns an intent's budget and rates as far as known. An uncounted rate of events must not look like spare budget.
fn known(budget: Budget, reports: Option<f64>, events: Option<f64>) -> (Budget, Option<Rates>) {
    let rates = reports.map(|reports| Rates {
        reports,
        events: events.unwrap_or_default(),
    });
    match (budget.events, events) {
        (Some(_), None) if budget.reports.is_some() => (
            Budget {
                events: None,
                ..budget
            },
            rates,
        ),
        (Some(_), None) => (budget, None),
        _ => (budget, rates),
    }
}

/// Returns the note about an intent whose events are not counted.
fn uncounted() -> String {
    format!(
        "its events are not counted, and its budget in events/s has no effect: the intents with such a budget have more than {MAX_COUNTED_FLOWS} flow entries together; narrow `match`, or write the budget in reports/s"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn counters(all: &[(NodeId, u64, u64)]) -> BTreeMap<NodeId, Counters> {
        all.iter()
            .map(|(node, at, packets)| {
                (
                    *node,
                    Counters {
                        counted_at: *at,
                        packets: *packets,
                    },
                )
            })
            .collect()
    }

    #[test]
    fn a_collector_elsewhere_is_measured_by_the_devices_that_report_there() {
        let (here, there) = (
            SocketAddr::from(([192, 0, 2, 1], 1)),
            SocketAddr::from(([192, 0, 2, 2], 1)),
        );
        let budget = Budget {
            reports: Some(10),
            events: Some(5),
        };
        let devices = Some(BTreeSet::from([7, 8, 9]));
        let sessions = || {
            let elsewhere = Budgeted {
                budget,
                devices: devices.clone(),
            };
            let devices = None;
            BTreeMap::from([(here, Budgeted { budget, devices }), (there, elsewhere)])
        };
        let totals = |reports, events| Totals {
            reports,
            events,
            of_intents: [("a".to_owned(), events / 2), (format!("b{events}"), 9)].into(),
            uncounted: BTreeSet::new(),
        };
        let mut keeping = BudgetControl::default();
        // The last device tells nothing any more.
        let first = counters(&[(6, SECOND, 5), (7, SECOND, 1000), (8, SECOND, 50), (9, 0, 7)]);
        keeping.measure(totals(100, 10), &first, sessions(), SECOND);
        assert_eq!(keeping.collectors, BTreeMap::new());
        let share = |reports, events, since| CollectorLoad {
            budget,
            rates: Rates { reports, events },
            since,
        };
        let mut observe = |eight: (u64, u64), seven: (u64, u64), now| {
            let new = counters(&[
                (6, SECOND, 5),
                (7, seven.0, seven.1),
                (8, eight.0, eight.1),
                (9, 0, 7),
            ]);
            keeping.measure(
                totals(now / SECOND * 100, now / SECOND * 5),
                &new,
                sessions(),
                now,
            );
            (keeping.collectors.clone(), keeping.events.get("a").copied())
        };
        // The second device has restarted: its rate is not known.
        let (at, _) = observe((6 * SECOND, 0), (6 * SECOND, 1150), 6 * SECOND);
        assert_eq!(
            at,
            [
                (here, share(100.0, 4.0, Some(SECOND))),
                (there, share(0.0, 0.0, None))
            ]
            .into()
        );
        let (at, events) = observe((8 * SECOND, 20), (7 * SECOND, 1250), 8 * SECOND);
        let expected = [
            (here, share(100.0, 5.0, Some(6 * SECOND))),
            (there, share(110.0, 0.0, Some(6 * SECOND))),
        ];
        assert_eq!((at, events), (expected.into(), Some(2.5)));
    }

    #[test]
    fn events_that_nobody_counts_are_no_room_and_told_once() {
        let (reports, events) = (Some(10), Some(5));
        let rates = |events| Some(Rates { reports: 3.0, events });
        let both = Budget { reports, events };
        assert_eq!(known(both, Some(3.0), Some(2.0)), (both, rates(2.0)));
        assert_eq!(
            known(both, Some(3.0), None),
            (
                Budget {
                    reports,
                    events: None
                },
                rates(0.0)
            )
        );
        let only = Budget {
            reports: None,
            events,
        };
        assert_eq!(known(only, Some(3.0), None), (only, None));
        let without = Budget {
            reports,
            events: None,
        };
        assert_eq!(known(without, Some(3.0), None), (without, rates(0.0)));
        let mut keeping = BudgetControl::default();
        let mut newly = |names: &[&str]| {
            keeping.no_longer_counted(&names.iter().map(|name| (*name).to_owned()).collect())
        };
        assert_eq!(newly(&["a"]), ["a"]);
        assert_eq!(newly(&["a", "b"]), ["b"]);
        assert!(newly(&["b"]).is_empty());
        assert_eq!(newly(&["a"]), ["a"]);
    }

    /// Devices report once a second, and all is measured twice a second.
    #[test]
    fn a_constant_rate_is_constant_however_often_it_is_measured() {
        let at = SocketAddr::from(([192, 0, 2, 2], 1));
        let budget = Budget {
            reports: Some(150),
            events: None,
        };
        let mut keeping = BudgetControl::default();
        let mut seen = BTreeSet::new();
        for half in 0..20 {
            let now = half * SECOND / 2;
            // At 0.02 s, 1.02 s and so on.
            let last = (now.saturating_sub(SECOND / 50)) / SECOND;
            let all = counters(&[(7, last * SECOND + SECOND / 50, last * 100)]);
            keeping.measure(
                Totals::default(),
                &all,
                [(
                    at,
                    Budgeted {
                        budget,
                        devices: Some([7].into()),
                    },
                )]
                .into(),
                now,
            );
            let share = keeping.collectors.get(&at).copied().unwrap_or_default();
            seen.extend(
                share
                    .since
                    .map(|since| (share.rates.reports as u64, since / SECOND)),
            );
        }
        // Each second once: a measurement without a new message is no new one.
        assert_eq!(seen, (0..9).map(|second| (100, second)).collect());
    }
}
