//! Whether a manager on standby takes over: the devices are the store of the lease.
//!
//! The manager that acts renews its lease on every device. A device tells how long ago that was, by its own clock. When enough devices
//! have heard nothing for the time of a lease, the one on standby takes a higher term and claims them. Safety does not depend
//! on this decision, nor on a clock: devices refuse the lower election, whoever is right. The decision only says who acts.

use std::collections::BTreeMap;

use crate::device::{Election, NodeId};

/// A manager on standby.
#[derive(Clone, Debug)]
pub struct Standby {
    /// Time of a lease, ns.
    lease: u64,
    seen: BTreeMap<NodeId, Seen>,
    /// The highest election that any device has told.
    highest: Election,
}

/// What a device has told.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The acting manager renewed its lease this long before, ns.
    silence: u64,
    /// When the device told that.
    at: u64,
}

impl Standby {
    /// A manager on standby, which has heard from no device yet.
    pub fn new(lease: u64) -> Self {
        Self { lease, seen: BTreeMap::new(), highest: Election::default() }
    }

    /// A device tells: it was claimed with `election`, and the lease was renewed `silence` ns ago.
    pub fn observe(&mut self, node: NodeId, election: Election, silence: u64, now: u64) {
        self.seen.insert(node, Seen { silence, at: now });
        self.highest = self.highest.max(election);
    }

    /// Waits anew: another manager acts.
    pub fn restart(&mut self) {
        self.seen.clear();
    }

    /// The term with which to take over, higher than all that devices have told; `None`: the lease is held, or too few devices answer.
    /// `devices`: how many devices can tell.
    ///
    /// At least half of the devices must have told lately that the lease has ended, and more than tell that it has not. So a network of
    /// two devices that lost one of them still gets a manager, and one that reaches few devices does not take over from one that reaches
    /// many.
    pub fn term(&self, devices: usize, now: u64) -> Option<u64> {
        let lately = self.seen.values().filter(|seen| now.saturating_sub(seen.at) < self.lease);
        let (mut silent, mut held) = (0, 0);
        for seen in lately {
            if seen.silence >= self.lease { silent += 1 } else { held += 1 }
        }
        (silent > 0 && silent * 2 >= devices && silent > held).then(|| self.highest.term.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: u64 = 100;

    fn election(term: u64) -> Election {
        Election { term, epoch: 3 }
    }

    /// The decision at time 1000 of one to whom the devices told these silences at these times.
    fn decided(devices: usize, told: &[(u64, u64)]) -> Option<u64> {
        let mut standby = Standby::new(LEASE);
        for (node, (silence, at)) in (1..).zip(told) {
            standby.observe(node, election(node.into()), *silence, *at);
        }
        standby.term(devices, 1000)
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
        let mut standby = Standby::new(LEASE);
        standby.observe(1, election(7), 500, 1000);
        standby.restart();
        assert_eq!(standby.term(1, 1000), None);
        standby.observe(1, election(2), 500, 1000);
        // Above every election that it has ever seen.
        assert_eq!(standby.term(1, 1000), Some(8));
    }
}
