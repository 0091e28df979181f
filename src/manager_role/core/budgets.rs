//! Budgets of intents and of collectors: rates of the last moment, and what becomes coarser or finer because of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use manager::{
    budget::{Budget, Budgets, Detail, Kept, Load, Move, Rates},
    device::{NodeId, Rule},
    intent::Intent,
    verify::State,
};

use super::{
    super::count::Totals,
    Core, Held,
    silence::{Counted, arrives},
};

/// The budgets, and the rates that they are compared with.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    budgets: Budgets,
    /// Intents as their budgets have changed them.
    moved: BTreeMap<String, Intent>,
    /// What was counted last, and when.
    last: Option<(u64, Totals, BTreeMap<NodeId, u64>)>,
    /// Of collectors with a budget.
    collectors: BTreeMap<SocketAddr, (Budget, Rates)>,
    /// Events per second of intents.
    events: BTreeMap<String, f64>,
}

impl Keeping {
    /// Forgets an intent.
    pub(super) fn forget(&mut self, name: &str) {
        self.budgets.forget(name);
        self.moved.remove(name);
        self.events.remove(name);
    }

    /// The detail of an intent, if it is coarser than what was asked for.
    pub(super) fn coarser(&self, name: &str) -> Option<Detail> {
        self.budgets.coarser(name)
    }

    /// An intent as its budget has changed it.
    pub(super) fn in_force<'a>(&'a self, held: &'a Held) -> &'a Intent {
        self.moved.get(&held.intent.name).unwrap_or(&held.intent)
    }

    /// Takes over what was counted up to now. `sessions`: the collectors with a budget; `None` as devices: all that arrives here.
    fn measure(
        &mut self,
        totals: Totals,
        reported: BTreeMap<NodeId, u64>,
        sessions: BTreeMap<SocketAddr, (Budget, Option<BTreeSet<NodeId>>)>,
        now: u64,
    ) {
        let before = self.last.replace((now, totals, reported));
        let (Some((then, before, reported_before)), Some((_, totals, reported))) = (before, &self.last)
        else {
            return;
        };
        let seconds = now.saturating_sub(then).max(1) as f64 / 1e9;
        // What counts anew after a restart says nothing about the time before.
        let rate = |new: u64, old: u64| new.saturating_sub(old) as f64 / seconds;
        let of_device = |node: &NodeId| match (reported.get(node), reported_before.get(node)) {
            (Some(new), Some(old)) => rate(*new, *old),
            _ => 0.0,
        };
        let rates = |devices: Option<BTreeSet<NodeId>>| match devices {
            None => Rates {
                reports: rate(totals.reports, before.reports),
                events: rate(totals.events, before.events),
            },
            Some(devices) => Rates { reports: devices.iter().map(of_device).sum(), events: 0.0 },
        };
        self.collectors = sessions.into_iter().map(|(at, (budget, of))| (at, (budget, rates(of)))).collect();
        let of_intent = |(name, events): (&String, &u64)| {
            let old = before.of_intents.get(name)?;
            Some((name.clone(), rate(*events, *old)))
        };
        self.events = totals.of_intents.iter().filter_map(of_intent).collect();
    }
}

impl Core {
    /// Keeps intents and collectors to their budgets, by the reports and events of the last moment.
    pub(super) fn keep_budgets(&mut self, totals: Totals, now: u64) {
        let sessions = self.budgeted();
        let packets = |(node, counted): (&NodeId, &Counted)| (*node, counted.reported.packets);
        let reported = self.reported.iter().map(packets).collect();
        self.keeping.measure(totals, reported, sessions, now);
        let mut budgets = std::mem::take(&mut self.keeping.budgets);
        let kept: Vec<Kept<'_>> =
            self.intents.iter().filter_map(|(name, held)| self.kept(name, held, now)).collect();
        let (moves, stuck) = budgets.observe(&kept, &self.keeping.collectors, now);
        self.keeping.budgets = budgets;
        if !moves.is_empty() {
            // Sampling may change.
            self.changed = now;
            self.matching.renew();
        }
        for (name, step) in moves {
            self.make(&name, &step, now);
        }
        for load in stuck {
            self.tell_stuck(&load, now);
        }
    }

    /// The collectors with a budget, and the devices that report there; `None`: it is the one of this process.
    fn budgeted(&self) -> BTreeMap<SocketAddr, (Budget, Option<BTreeSet<NodeId>>)> {
        let collectors = self.manager.compiler().settings().collectors.iter();
        let of = |at: SocketAddr| {
            let is_here = self.is_local || self.listens.iter().any(|listen| arrives(listen, at, &self.local));
            let devices = self.reported.keys().copied();
            (!is_here).then(|| devices.filter(|node| self.session(*node) == Some(at)).collect())
        };
        let budgeted = collectors.filter(|collector| !collector.budget.is_empty());
        budgeted.map(|one| (one.address, (one.budget, of(one.address)))).collect()
    }

    /// Where a device sends its reports.
    pub(super) fn session(&self, node: NodeId) -> Option<SocketAddr> {
        let rules = self.manager.compiler().desired().get(&node);
        rules.into_iter().flat_map(|rules| rules.iter()).find_map(|rule| match rule {
            Rule::Session(to) => Some(*to),
            _ => None,
        })
    }

    /// An intent that can become coarser, with what is known of it now.
    fn kept<'a>(&'a self, name: &'a str, held: &Held, now: u64) -> Option<Kept<'a>> {
        let bounds = held.intent.bounds()?;
        let outcome = self.manager.compiler().outcome(name)?;
        let names = |node| self.manager.inventory().name(node);
        let reports = match self.verifier.state(name, names, now) {
            Some(State::Seen(figures) | State::Complete(figures)) => Some(figures.rate),
            Some(State::Installed) => Some(0.0),
            _ => None,
        };
        let events = self.keeping.events.get(name).copied().unwrap_or_default();
        let ends = self.baselines.get(name).into_iter().flat_map(|counters| counters.edges.keys());
        let at: BTreeSet<SocketAddr> =
            outcome.nodes.iter().chain(ends).filter_map(|node| self.session(*node)).collect();
        Some(Kept {
            name,
            bounds,
            budget: held.intent.budget,
            rates: reports.map(|reports| Rates { reports, events }),
            collectors: at.into_iter().collect(),
        })
    }

    /// Makes an intent coarser or finer.
    fn make(&mut self, name: &str, step: &Move, now: u64) {
        let Some(held) = self.intents.get(name) else { return };
        if step.from != step.to {
            let intent = held.intent.with_detail(step.to);
            if let Err(refusal) = self.manager.add_intent(intent.clone(), now) {
                self.keeping.budgets.undo(name, step);
                tracing::warn!(intent = name, reason = %refusal, "the budget cannot change the detail");
                return;
            }
            // Thresholds without a filter are the collector's.
            self.asking.is_due |= held.intent.tell.filter.is_none();
            self.keeping.moved.insert(name.to_owned(), intent);
        }
        self.note(now, "manager", "budget", name, &step.to_string());
    }

    fn tell_stuck(&mut self, load: &Load, now: u64) {
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

    /// The share of packets that is measured for an intent now: its budget may have changed it.
    pub(super) fn sample_of(&self, held: &Held) -> u32 {
        self.keeping.in_force(held).sample.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_elsewhere_is_measured_by_the_devices_that_report_there() {
        let (here, there) = (SocketAddr::from(([192, 0, 2, 1], 1)), SocketAddr::from(([192, 0, 2, 2], 1)));
        let budget = Budget { reports: Some(10), events: Some(5) };
        let sessions = || BTreeMap::from([(here, (budget, None)), (there, (budget, Some([7, 8].into())))]);
        let totals = |reports, events| Totals {
            reports,
            events,
            of_intents: [("a".to_owned(), events / 2), (format!("b{events}"), 9)].into(),
        };
        let mut keeping = Keeping::default();
        keeping.measure(totals(100, 10), [(6, 5), (7, 1000), (8, 50)].into(), sessions(), 1_000_000_000);
        assert_eq!(keeping.collectors, BTreeMap::new());
        // The second device has restarted, and the third one was not known before.
        keeping.measure(
            totals(300, 20),
            [(6, 5), (7, 1060), (8, 0), (9, 7)].into(),
            sessions(),
            3_000_000_000,
        );
        let expected = [
            (here, (budget, Rates { reports: 100.0, events: 5.0 })),
            (there, (budget, Rates { reports: 30.0, events: 0.0 })),
        ];
        assert_eq!(keeping.collectors, expected.into());
        assert_eq!(keeping.events, [("a".to_owned(), 2.5)].into());
    }
}
