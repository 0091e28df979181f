//! Decides which manager acts: the devices store the lease.
//!
//! The manager that acts renews its lease on every device. A device reports how long ago that was, by its own clock. When enough
//! devices have received no renewal for one lease period, the manager on standby claims them with a higher term. Safety does not
//! depend on this decision, nor on a clock: devices refuse the lower election, whoever is right. The decision only selects who
//! acts.
//!
//! A manager that took over may fail when it has claimed a few devices. The one that goes on with the others claims them again
//! when they have received no renewal for one lease period, likewise with a higher term.

use std::collections::BTreeMap;

use crate::device::{Election, NodeId};

/// The state of the lease, as the devices report it.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Period of the lease, ns.
    lease: u64,
    seen: BTreeMap<NodeId, LeaseReport>,
    /// The highest election that any device has reported.
    highest: Election,
    /// Number of times that devices were claimed again.
    reclaims: u32,
    /// Time at which they may be claimed again, ns.
    next_reclaim: u64,
}

/// The last report of a device.
#[derive(Clone, Copy, Debug)]
struct LeaseReport {
    /// Election of its last claim.
    election: Election,
    /// Time since the acting manager renewed its lease, ns.
    silence: u64,
    /// Time of the report, ns.
    at: u64,
}

impl Lease {
    /// Creates the state of a manager that has received no report yet. `lease` is the lease period, ns.
    pub fn new(lease: u64) -> Self {
        Self {
            lease,
            seen: BTreeMap::new(),
            highest: Election::default(),
            reclaims: 0,
            next_reclaim: 0,
        }
    }

    /// Records the report of a device: it was claimed with `election`, and the lease was renewed `silence` ns ago.
    pub fn observe(&mut self, node: NodeId, election: Election, silence: u64, now: u64) {
        self.seen.insert(
            node,
            LeaseReport {
                election,
                silence,
                at: now,
            },
        );
        self.highest = self.highest.max(election);
    }

    /// Removes a device that is not driven any more.
    pub fn forget(&mut self, node: NodeId) {
        self.seen.remove(&node);
    }

    /// Waits for new reports, because another manager acts now.
    pub fn restart(&mut self) {
        self.seen.clear();
    }

    /// Returns the term with which to take over, higher than all that devices have reported, or `None` if the lease is held or
    /// too few devices answer. `devices` is the number of devices that can report.
    ///
    /// At least half of the devices must have reported lately that the lease has ended, and more than report that it has not. So
    /// a network of two devices that lost one of them still gets a manager, and one that reaches few devices does not take over
    /// from one that reaches many.
    pub fn term(&self, devices: usize, now: u64) -> Option<u64> {
        let mut silent = 0;
        let mut held = 0;
        for seen in self.seen.values().filter(|seen| self.is_recent(seen, now)) {
            if seen.silence >= self.lease {
                silent += 1
            } else {
                held += 1
            }
        }
        (silent > 0 && silent * 2 >= devices && silent > held).then(|| self.highest.term.saturating_add(1))
    }

    /// Returns the term with which a manager that acts with the term `own` claims devices again that a newer one has claimed and
    /// left. `None` if there are none, or the newer one renews its lease, or one of them has not reported lately that it does
    /// not. The time between two such claims doubles, so that a device that always reports a newer election disturbs the others
    /// less and less.
    pub fn reclaim(&mut self, own: u64, now: u64) -> Option<u64> {
        if now < self.next_reclaim {
            return None;
        }
        let above = self.abandoned(own, now)?;
        self.reclaims = self.reclaims.saturating_add(1);
        self.next_reclaim = now.saturating_add(self.lease << self.reclaims.min(8));
        Some(above)
    }

    /// Returns a higher term if all devices with a newer election report that it is not renewed.
    fn abandoned(&self, own: u64, now: u64) -> Option<u64> {
        let mut newer = self
            .seen
            .values()
            .filter(|seen| seen.election.term > own)
            .peekable();
        newer.peek()?;
        newer
            .all(|seen| self.is_recent(seen, now) && seen.silence >= self.lease)
            .then(|| self.highest.term.saturating_add(1))
    }

    fn is_recent(&self, seen: &LeaseReport, now: u64) -> bool {
        now.saturating_sub(seen.at) < self.lease
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: u64 = 100;

    fn election(term: u64) -> Election {
        Election { term, epoch: 3 }
    }

    /// The decision at time 1000 of a manager to which the devices reported these silences at these times.
    fn decided(devices: usize, reported: &[(u64, u64)]) -> Option<u64> {
        let mut lease = Lease::new(LEASE);
        for (node, (silence, at)) in (1..).zip(reported) {
            lease.observe(node, election(node.into()), *silence, *at);
        }
        lease.term(devices, 1000)
    }

    #[test]
    fn it_takes_over_when_half_of_the_devices_are_silent_and_fewer_are_not() {
        assert_eq!(decided(1, &[(100, 1000)]), Some(2));
        assert_eq!(decided(1, &[(99, 1000)]), None);
        assert_eq!(decided(2, &[(100, 1000)]), Some(2));
        assert_eq!(decided(2, &[(100, 1000), (5, 1000)]), None);
        assert_eq!(decided(3, &[(100, 1000)]), None);
        assert_eq!(decided(3, &[(100, 1000), (200, 950), (0, 1000)]), Some(4));
        assert_eq!(decided(3, &[(100, 1000), (0, 950), (0, 1000)]), None);
        assert_eq!(decided(0, &[]), None);
    }

    #[test]
    fn what_a_device_told_long_ago_is_no_evidence() {
        assert_eq!(decided(1, &[(500, 900)]), None);
        assert_eq!(decided(1, &[(500, 901)]), Some(2));
        let mut lease = Lease::new(LEASE);
        lease.observe(1, election(7), 500, 1000);
        lease.restart();
        assert_eq!(lease.term(1, 1000), None);
        lease.observe(1, election(2), 500, 1000);
        // Above every election that it has ever seen.
        assert_eq!(lease.term(1, 1000), Some(8));
    }

    #[test]
    fn devices_that_a_newer_manager_has_left_are_claimed_again() {
        // By device: the term of its election, the silence and when it was reported.
        let decided = |reports: &[(u64, u64, u64)]| {
            let mut lease = Lease::new(LEASE);
            for (node, (term, silence, at)) in (1..).zip(reports) {
                lease.observe(node, election(*term), *silence, *at);
            }
            lease.reclaim(5, 1000)
        };
        // Only this manager has claimed them.
        assert_eq!(
            [decided(&[]), decided(&[(5, 0, 1000), (4, 500, 1000)])],
            [None, None]
        );
        assert_eq!(decided(&[(5, 0, 1000), (7, 100, 1000)]), Some(8));
        // The newer one acts, at least on one.
        assert_eq!(decided(&[(7, 99, 1000)]), None);
        assert_eq!(decided(&[(7, 500, 1000), (9, 5, 1000)]), None);
        // One of them has not reported lately.
        assert_eq!(decided(&[(7, 500, 1000), (7, 500, 900)]), None);
    }

    #[test]
    fn a_device_that_names_newer_elections_for_ever_is_claimed_again_ever_less_often() {
        let mut lease = Lease::new(LEASE);
        let mut claims = Vec::new();
        for now in 1000..3000 {
            lease.observe(1, election(now), 500, now);
            if lease.reclaim(5, now).is_some() {
                lease.restart();
                claims.push(now);
            }
        }
        assert_eq!(claims, [1000, 1200, 1600, 2400]);
        lease.observe(1, election(4000), 500, 9000);
        lease.forget(1);
        assert_eq!(lease.reclaim(5, 9000), None);
    }
}
