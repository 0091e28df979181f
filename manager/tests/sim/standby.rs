//! A manager on standby: it takes over by the lease that the switches keep, with a copy of the intents that is not the newest.

use std::collections::BTreeMap;

use manager::device::NodeId;
use manager::intent::Intent;
use manager::lease::Standby;

use super::MS;
use super::run::{Event, Run};

/// What a manager on standby knows.
pub(crate) struct OnStandby {
    pub(super) lease: Standby,
    /// The intents that the manager that acts had when it was last asked.
    copied: BTreeMap<String, Intent>,
    /// When the lease is renewed, switches are asked, and intents are copied again.
    next: u64,
}

impl Default for OnStandby {
    fn default() -> Self {
        Self { lease: Standby::new(LEASE), copied: BTreeMap::new(), next: 0 }
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
        let devices = self.net.switches.len();
        let Some(term) = self.standby.lease.term(devices, self.now) else { return };
        self.stats.take_overs.0 += 1;
        self.stats.take_overs.1 += u64::from(self.managers.iter().any(|one| one.manager.is_acting()));
        self.managers.retain(|one| one.manager.is_acting());
        if self.managers.len() > 2 {
            self.managers.remove(0);
        }
        self.standby.lease.restart();
        // As the program: what a new standby has not heard of yet has a lower term all the same.
        let term = term.max(self.now / 1_000);
        self.term = self.term.max(term);
        // What was added since is lost; what was removed since is there again.
        self.intents.clone_from(&self.standby.copied);
        self.start_manager(term);
    }

    fn renew_and_ask(&mut self) {
        let (now, nodes) = (self.now, self.net.switches.keys().copied().collect::<Vec<NodeId>>());
        let heard = |one: &&super::run::Acting| one.manager.is_acting() && now >= one.cut_off;
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

    /// A manager that failed soon after it took over may have claimed a few switches. The older one, which goes on with the others, cannot
    /// know that nobody comes back: a person restarts it, as its message says.
    pub(super) fn restart_below_a_claim(&mut self) {
        let newest = self.managers.iter().filter(|one| one.manager.is_acting()).map(|one| one.term).max();
        let claimed = self.net.switches.values().map(|switch| switch.highest.term).max().unwrap_or(0);
        if self.faults.standby && newest.is_some_and(|newest| newest < claimed) {
            self.stats.restarted += 1;
            self.managers.clear();
            self.term = self.term.max(claimed) + 1;
            self.start_manager(self.term);
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
        if self.net.switches.get(&node).is_some_and(|switch| switch.up && switch.highest.term == term) {
            self.renew(node);
        }
    }
}

const LEASE: u64 = 250 * MS;
const INTERVAL: u64 = 50 * MS;
