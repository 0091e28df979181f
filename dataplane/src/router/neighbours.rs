//! Neighbour table: MAC addresses of the hosts behind edge ports, resolved or being resolved while a few frames are queued.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Interval between two requests, ns.
pub(super) const RETRY: u64 = 1_000_000_000;
/// Number of requests before senders get "host unreachable".
const TRIES: u8 = 3;
/// Idle time after which a neighbour is probed, ns. The entry remains in use until [`TRIES`] probes had no reply.
const FRESH: u64 = 60 * 1_000_000_000;
/// Maximum number of neighbours.
const MAX_NEIGHBOURS: usize = 4096;
/// Maximum number of neighbours that are being resolved at once.
const MAX_UNRESOLVED: usize = 256;
/// Maximum number of frames queued for one neighbour.
const MAX_QUEUED: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Neighbours {
    /// Neighbours by port index and IP address.
    entries: BTreeMap<(u16, IpAddr), Neighbour>,
    unresolved: usize,
    /// Source of the last frame: most frames come from the same neighbour as the previous one.
    last: Option<(u16, IpAddr, [u8; 6])>,
}

#[derive(Debug)]
enum Neighbour {
    Known {
        mac: [u8; 6],
        last_seen: u64,
        requests: u8,
    },
    Pending {
        tries: u8,
        waiting: Vec<u32>,
    },
}

/// Result of looking up a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    Known {
        mac: [u8; 6],
        /// Whether to send a probe, because the neighbour was idle for [`FRESH`].
        probe: bool,
    },
    Unknown,
}

/// Result of queueing a frame for an unresolved neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitOutcome {
    /// The frame is queued, and the caller must send a request.
    SendRequest,
    /// The frame is queued after others.
    Queued,
    /// The queue is full.
    Full,
}

impl Neighbours {
    pub(super) fn known(&self) -> usize {
        self.entries.len() - self.unresolved
    }

    pub(super) fn find(&mut self, now: u64, port: u16, address: IpAddr) -> Lookup {
        let Some(Neighbour::Known {
            mac,
            last_seen,
            requests,
        }) = self.entries.get_mut(&(port, address))
        else {
            return Lookup::Unknown;
        };
        if now.saturating_sub(*last_seen) <= FRESH + u64::from(*requests) * RETRY {
            return Lookup::Known {
                mac: *mac,
                probe: false,
            };
        }
        if *requests < TRIES {
            *requests += 1;
            return Lookup::Known {
                mac: *mac,
                probe: true,
            };
        }
        self.entries.remove(&(port, address));
        self.last = None;
        Lookup::Unknown
    }

    /// Returns whether the neighbour is known at this port with a MAC address other than `mac`.
    pub(super) fn is_other(&self, port: u16, address: IpAddr, mac: [u8; 6]) -> bool {
        matches!(self.entries.get(&(port, address)), Some(Neighbour::Known { mac: known, .. }) if *known != mac)
    }

    /// Queues a frame until the MAC address of its next hop is resolved.
    pub(super) fn wait(&mut self, port: u16, address: IpAddr, slot: u32) -> WaitOutcome {
        if let Some(Neighbour::Pending { waiting, .. }) = self.entries.get_mut(&(port, address)) {
            if waiting.len() >= MAX_QUEUED {
                return WaitOutcome::Full;
            }
            waiting.push(slot);
            return WaitOutcome::Queued;
        }
        if self.unresolved >= MAX_UNRESOLVED {
            return WaitOutcome::Full;
        }
        if self.entries.len() >= MAX_NEIGHBOURS + MAX_UNRESOLVED {
            self.evict_oldest();
        }
        self.unresolved += 1;
        self.entries.insert(
            (port, address),
            Neighbour::Pending {
                tries: 1,
                waiting: vec![slot],
            },
        );
        WaitOutcome::SendRequest
    }

    /// Handles the timeout of a request, [`RETRY`] after it was sent. Returns `None` if the neighbour is no longer being
    /// resolved, `Ok` to send another request, and `Err` with the queued frames to give up.
    pub(super) fn no_reply(&mut self, port: u16, address: IpAddr) -> Option<Result<(), Vec<u32>>> {
        let Some(Neighbour::Pending { tries, waiting }) = self.entries.get_mut(&(port, address)) else {
            return None;
        };
        if *tries < TRIES {
            *tries += 1;
            return Some(Ok(()));
        }
        let waiting = std::mem::take(waiting);
        self.unresolved -= 1;
        self.entries.remove(&(port, address));
        Some(Err(waiting))
    }

    /// Returns whether the last frame came from the same neighbour, so that there is nothing to learn.
    pub(super) fn is_last(&self, port: u16, address: IpAddr, mac: [u8; 6]) -> bool {
        self.last == Some((port, address, mac))
    }

    /// Learns a MAC address, and returns the frames that were queued for it. Only a reply to a request may evict another
    /// neighbour: `unsolicited` packets can fill the table, but never evict an entry.
    pub(super) fn learn(
        &mut self,
        now: u64,
        port: u16,
        address: IpAddr,
        mac: [u8; 6],
        unsolicited: bool,
    ) -> Vec<u32> {
        let full = self.entries.len() - self.unresolved >= MAX_NEIGHBOURS;
        let known = Neighbour::Known {
            mac,
            last_seen: now,
            requests: 0,
        };
        match self.entries.get_mut(&(port, address)) {
            Some(entry) => {
                let before = std::mem::replace(entry, known);
                self.last = Some((port, address, mac));
                let Neighbour::Pending { waiting, .. } = before else {
                    return Vec::new();
                };
                self.unresolved -= 1;
                return waiting;
            }
            None if full && unsolicited => return Vec::new(),
            None if full => self.evict_oldest(),
            None => {}
        }
        self.entries.insert((port, address), known);
        self.last = Some((port, address, mac));
        Vec::new()
    }

    /// Resets the idle time of a neighbour that is known with this MAC address. Returns whether there is one: then there is
    /// nothing to learn.
    pub(super) fn is_known(&mut self, now: u64, port: u16, address: IpAddr, mac: [u8; 6]) -> bool {
        let Some(Neighbour::Known {
            mac: known,
            last_seen,
            requests,
        }) = self.entries.get_mut(&(port, address))
        else {
            return false;
        };
        if *known != mac {
            return false;
        }
        *last_seen = now;
        *requests = 0;
        self.last = Some((port, address, mac));
        true
    }

    fn evict_oldest(&mut self) {
        let known = self
            .entries
            .iter()
            .filter_map(|(key, neighbour)| match neighbour {
                Neighbour::Known { last_seen, .. } => Some((*last_seen, *key)),
                Neighbour::Pending { .. } => None,
            });
        if let Some((_, key)) = known.min() {
            self.entries.remove(&key);
            self.last = None;
        }
    }
}
