//! Decides which manager is active and which is on standby. The devices store the lease.
//!
//! The active manager renews its lease on every device. Each device reports the time since the last renewal, by its own clock.
//! When enough devices have seen no renewal for one lease period, the standby claims them with a higher term. Safety depends
//! neither on this decision nor on clocks, because devices refuse requests with a lower election. The decision only selects
//! the active manager.
//!
//! A manager that took over may fail after claiming only a few devices. The manager that remains active for the others then
//! claims those again, with a still higher term, when they have seen no renewal for one lease period.

use std::collections::BTreeMap;

use crate::device::{Election, NodeId};

/// The lease as the devices report it.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Period of the lease, ns.
    lease: u64,
    /// Last report of each device.
    seen: BTreeMap<NodeId, LeaseReport>,
    /// The highest election that any device has reported.
    highest: Election,
    /// Number of times that abandoned devices were claimed again.
    reclaims: u32,
    /// Earliest time of the next such claim, ns.
    next_reclaim: u64,
}

/// The last report of a device.
#[derive(Clone, Copy, Debug)]
struct LeaseReport {
    /// Election of its last claim.
    election: Election,
    /// Time since the lease's holder renewed it, ns.
    silence: u64,
    /// Time of the report, ns.
    at: u64,
}

impl Lease {
    /// Creates the state without any reports. `lease` is the lease period, ns.
    pub fn new(lease: u64) -> Self {
        Self {
            lease,
            seen: BTreeMap::new(),
            highest: Election::default(),
            reclaims: 0,
            next_reclaim: 0,
        }
    }

    /// Records a device's report: `election` claimed it last, and the lease was renewed `silence` ns ago.
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

    /// Forgets a device that this manager no longer drives.
    pub fn forget(&mut self, node: NodeId) {
        self.seen.remove(&node);
    }

    /// Discards all reports and waits for new ones, because another manager is active now.
    pub fn restart(&mut self) {
        self.seen.clear();
    }

    /// Returns the term for a takeover, higher than all reported ones, or `None` if the lease is held or too few devices
    /// answer. `devices` is the number of devices that can report.
    ///
    /// At least half of the devices must have reported recently that the lease has expired, and more than have reported that
    /// it has not. A network of two devices that lost one of them thus still gets a manager, and a manager that reaches few
    /// devices does not take over from one that reaches many.
    pub fn term(&self, devices: usize, now: u64) -> Option<u64> {
        let mut silent = 0;
        let mut leased = 0;
        for seen in self.seen.values().filter(|seen| self.is_recent(seen, now)) {
            if seen.silence >= self.lease {
                silent += 1
            } else {
                leased += 1
            }
        }
        (silent > 0 && silent * 2 >= devices && silent > leased).then(|| self.highest.term.saturating_add(1))
    }

    /// Returns the term with which the active manager, whose term is `own`, claims devices again that a newer manager claimed
    /// and abandoned. Returns `None` if there are no such devices, or if any of them has not reported recently that the lease
    /// has expired.
    ///
    /// The interval between such claims doubles, at most to 256 lease periods, so that a device that always reports a newer
    /// election disturbs the others less and less.
    pub fn reclaim(&mut self, own: u64, now: u64) -> Option<u64> {
        if now < self.next_reclaim {
            return None;
        }
        let above = self.abandoned(own, now)?;
        self.reclaims = self.reclaims.saturating_add(1);
        self.next_reclaim = now.saturating_add(self.lease << self.reclaims.min(8));
        Some(above)
    }

    /// Returns a higher term if all devices with a newer election report an expired lease.
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

    /// Returns whether the report is newer than one lease period.
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
