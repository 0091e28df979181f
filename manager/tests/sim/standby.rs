//! A manager on standby: it takes over by the lease that the switches keep, with a copy of the intents that is not the newest.

use std::collections::BTreeMap;

use manager::Manager;
use manager::device::{Election, NodeId};
use manager::intent::Intent;
use manager::lease::Lease;

use super::MS;
use super::run::{Event, Run};

/// A manager with its lease.
pub(super) struct Acting {
    pub(super) id: usize,
    pub(super) manager: Manager,
    pub(super) term: u64,
    /// Until then it does not renew its lease.
    pub(super) cut_off: u64,
    /// What switches have told it of the lease.
    lease: Lease,
}

impl Acting {
    pub(super) fn new(id: usize, manager: Manager, term: u64) -> Self {
        Self {
            id,
            manager,
            term,
            cut_off: 0,
            lease: Lease::new(LEASE),
        }
    }
}

/// What a manager on standby knows.
pub(crate) struct OnStandby {
    pub(super) lease: Lease,
    /// The intents that the manager that acts had when it was last asked.
    copied: BTreeMap<String, Intent>,
    /// When the lease is renewed, switches are asked, and intents are copied again.
    next: u64,
}

impl Default for OnStandby {
    fn default() -> Self {
        Self {
            lease: Lease::new(LEASE),
            copied: BTreeMap::new(),
            next: 0,
        }
    }
}

impl Run {
    /// Managers renew their lease; the one on standby asks, and takes over.
    pub(super) fn keep_lease(&mut self) {
        if !self.faults.standby {
            return;
        }
        if self.now >= self.standby.next {
            self.standby.next = self.now + INTERVAL;
            self.renew_and_ask();
        }
        self.claim_again();
        let devices = self.net.switches.len();
        let Some(term) = self.standby.lease.term(devices, self.now) else {
            return;
        };
        self.stats.take_overs.0 += 1;
        self.stats.take_overs.1 += u64::from(self.managers.iter().any(|one| one.manager.is_acting()));
        self.managers.retain(|one| one.manager.is_acting());
        if self.managers.len() > 2 {
            self.managers.remove(0);
        }
        self.standby.lease.restart();
        // As the program: what a new standby has not heard of yet has a lower term all the same.
        let term = term.max(self.now / 1_000).max(self.term + 1);
        self.term = self.term.max(term);
        // What was added since is lost; what was removed since is there again.
        self.intents.clone_from(&self.standby.copied);
        self.start_manager(term);
    }

    fn renew_and_ask(&mut self) {
        let (now, nodes) = (
            self.now,
            self.net.switches.keys().copied().collect::<Vec<NodeId>>(),
        );
        let heard = |one: &&Acting| one.manager.is_acting() && now >= one.cut_off;
        let terms: Vec<u64> = self.managers.iter().filter(heard).map(|one| one.term).collect();
        if self.managers.last().is_some_and(|newest| heard(&newest)) {
            self.standby.copied.clone_from(&self.intents);
        }
        for node in nodes {
            for term in &terms {
                self.transmit(|term| Event::Renew(node, term), *term);
            }
            let switch = &self.net.switches[&node];
            if switch.up {
                let lease = (switch.highest, now.saturating_sub(switch.renewed));
                self.transmit(|(election, silence)| Event::Lease(node, election, silence), lease);
            }
        }
    }

    /// A manager that acts claims again what another one has claimed and left: no person does. It decides from then on.
    fn claim_again(&mut self) {
        let now = self.now;
        let above = |one: &mut Acting| one.lease.reclaim(one.manager.term()?, now);
        let found = self
            .managers
            .iter_mut()
            .enumerate()
            .filter(|(_, one)| now >= one.cut_off);
        let Some((index, above)) = found.filter_map(|(index, one)| Some((index, above(one)?))).next() else {
            return;
        };
        let mut one = self.managers.remove(index);
        one.lease.restart();
        // Terms are times: no two are equal.
        one.term = above.max(now / 1_000).max(self.term + 1);
        one.manager.set_term(Some(one.term), now);
        self.term = self.term.max(one.term);
        let names: Vec<String> = one.manager.intents().map(str::to_owned).collect();
        let intents = names.into_iter().filter_map(|name| {
            let intent = one.manager.intent(&name)?.intent;
            Some((name, intent))
        });
        self.intents = intents.collect();
        self.encoding = one.manager.compiler().settings().encoding;
        self.managers.push(one);
        self.stats.claimed_again += 1;
        self.update();
    }

    /// A switch tells whoever asks of the lease.
    pub(super) fn hear(&mut self, node: NodeId, election: Election, silence: u64) {
        let now = self.now;
        self.standby.lease.observe(node, election, silence, now);
        for one in self.managers.iter_mut().filter(|one| now >= one.cut_off) {
            one.lease.observe(node, election, silence, now);
        }
    }

    /// A switch hears its manager.
    pub(super) fn renew(&mut self, node: NodeId) {
        let now = self.now;
        if let Some(switch) = self.net.switches.get_mut(&node) {
            switch.renewed = now;
        }
    }

    /// A switch hears a manager that may be another one.
    pub(super) fn renewed(&mut self, node: NodeId, term: u64) {
        if self
            .net
            .switches
            .get(&node)
            .is_some_and(|switch| switch.up && switch.highest.term == term)
        {
            self.renew(node);
        }
    }
}

const LEASE: u64 = 250 * MS;
const INTERVAL: u64 = 50 * MS;
