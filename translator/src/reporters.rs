//! The translator's tables of report senders and reporter IDs: rate limits, congestion notices, and which address may use
//! which reporter ID.
//!
//! Two tables of fixed size: senders by IP address, and sequence trackers by reporter ID. Reports are not authenticated, so
//! an ID is bound to the address that first used it, and an address may own only a limited number of IDs.

use core::net::{IpAddr, SocketAddr};

use super::config::Config;
use super::hash_table::HashTable;
use super::meter::{ReporterMeter, ReporterRate};
use super::received::{Identity, tracker_key};
use super::stats::Reason;
use super::tracker::Tracker;

/// Table slots that one tick checks for expired entries.
const SWEEP: usize = 256;

/// Converts an address to a table key; IPv4 as an IPv4-mapped IPv6 address.
#[inline(always)]
pub(super) fn address_key(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => 0xffff_0000_0000 | u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// State of one sender address.
#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    meter: ReporterMeter,
    seen: u64,
    /// Level of the last congestion notice, its expiry, and the time it was sent, ns.
    notified_level: u8,
    notified_until: u64,
    notified_at: u64,
    /// The notice was caused by the sender's own rate, so the end of a collector's congestion does not end it.
    by_rate: bool,
    /// Reports of this sender dropped since the last notice.
    dropped: u32,
    /// Number of reporter IDs bound to the sender.
    owned: u32,
}

/// Congestion that affected a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Congestion {
    pub(super) level: u8,
    /// The report was dropped.
    pub(super) is_dropped: bool,
    /// The sender's own rate is the cause, not a collector.
    pub(super) by_rate: bool,
}

/// Contents of a congestion notice: the level, and the reports dropped since the last notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Notice {
    pub(super) level: u8,
    pub(super) dropped: u32,
}

/// The tables of senders and reporters.
#[derive(Debug)]
pub(super) struct Reporters {
    senders: HashTable<u128, Sender>,
    trackers: HashTable<u64, Tracker>,
    rate: ReporterRate,
    /// Shared meter of senders that the full table could not take.
    shared_meter: ReporterMeter,
    /// Latest expiry of any sender's notice, ns.
    notified_until: u64,
}

impl Reporters {
    /// Creates the tables with the pinned reporters of the settings.
    pub(super) fn new(config: &Config) -> Self {
        let mut trackers = HashTable::new(config.reporters);
        for known in &config.known {
            for collector in 0..config.collectors.len() {
                let key = tracker_key(collector as u8, known.reporter, false);
                if let Some((at, _)) = trackers.find_or_insert(key) {
                    *trackers.at(at) = Tracker::new(address_key(known.address), 0, true);
                }
            }
        }
        Self {
            senders: HashTable::new(config.reporters),
            trackers,
            rate: ReporterRate::new(config.reporter_rate, config.reporter_burst),
            shared_meter: ReporterMeter::default(),
            notified_until: 0,
        }
    }

    /// Returns the number of senders and of reporters in the tables.
    pub(super) fn sizes(&self) -> (u64, u64) {
        (self.senders.len() as u64, self.trackers.len() as u64)
    }

    /// Returns whether senders have no rate limit.
    #[inline(always)]
    pub(super) fn is_unmetered(&self) -> bool {
        self.rate.is_unlimited()
    }

    /// Returns whether no congestion notice is active.
    #[inline(always)]
    pub(super) fn is_nobody_notified(&self, now: u64) -> bool {
        now >= self.notified_until
    }

    /// Counts a report of this sender; returns `false` if it exceeds the sender's rate.
    #[inline(always)]
    pub(super) fn meter(&mut self, now: u64, sender: SocketAddr) -> bool {
        self.is_unmetered() || self.meter_sender(now, sender)
    }

    fn meter_sender(&mut self, now: u64, sender: SocketAddr) -> bool {
        let rate = self.rate;
        match self.sender(now, sender.ip()) {
            Some(sender) => sender.meter.admit(now, rate),
            None => self.shared_meter.admit(now, rate),
        }
    }

    fn sender(&mut self, now: u64, address: IpAddr) -> Option<&mut Sender> {
        let (at, _) = self.senders.find_or_insert(address_key(address))?;
        let sender = self.senders.at(at);
        sender.seen = now;
        Some(sender)
    }

    /// Records that congestion affected a report of this sender. Returns the notice to send, if one is due.
    pub(super) fn congested(
        &mut self,
        now: u64,
        sender: SocketAddr,
        congestion: Congestion,
        config: &Config,
    ) -> Option<Notice> {
        let until = now.saturating_add(config.hold);
        let sender = self.sender(now, sender.ip())?;
        let Congestion {
            level,
            is_dropped,
            by_rate,
        } = congestion;
        sender.dropped = sender.dropped.saturating_add(u32::from(is_dropped));
        // A notice is repeated after half of its validity. A changed level is sent sooner, but not with every report.
        let elapsed = now.saturating_sub(sender.notified_at);
        let min_interval = if sender.notified_level == level {
            config.hold / 2
        } else {
            config.hold / 16
        };
        if sender.notified_until != 0 && elapsed < min_interval {
            return None;
        }
        let notice = Notice {
            level,
            dropped: sender.dropped,
        };
        sender.notified_level = level;
        sender.notified_until = until;
        sender.notified_at = now;
        sender.dropped = 0;
        sender.by_rate = by_rate;
        self.notified_until = self.notified_until.max(until);
        Some(notice)
    }

    /// Records that a report of this sender met no congestion. Returns the notice that ends an active one, if any.
    #[inline(always)]
    pub(super) fn uncongested(&mut self, now: u64, sender: SocketAddr) -> Option<Notice> {
        if self.is_nobody_notified(now) {
            None
        } else {
            self.end_notice(now, sender)
        }
    }

    fn end_notice(&mut self, now: u64, sender: SocketAddr) -> Option<Notice> {
        let at = self.senders.find(address_key(sender.ip()))?;
        let sender = self.senders.at(at);
        if sender.notified_level == 0 || sender.by_rate || now >= sender.notified_until {
            return None;
        }
        let notice = Notice {
            level: 0,
            dropped: sender.dropped,
        };
        sender.notified_level = 0;
        sender.notified_at = now;
        sender.dropped = 0;
        Some(notice)
    }

    /// Returns the table slot of a reporter's sequence state, and adds the reporter if it is new.
    ///
    /// # Errors
    /// [`Reason::Forged`] if the ID is bound to another address; [`Reason::ReportersFull`] if there is no free slot or the
    /// sender owns too many IDs.
    #[inline]
    pub(super) fn tracker(&mut self, now: u64, identity: Identity, config: &Config) -> Result<usize, Reason> {
        let Identity { key, sender } = identity;
        let address = address_key(sender.ip());
        let Some(at) = self.trackers.find(key) else {
            return self.add_tracker(now, identity, config);
        };
        let tracker = self.trackers.at(at);
        if tracker.address != address && (tracker.pinned || config.bind) {
            if tracker.pinned || now.saturating_sub(tracker.last_active()) < config.idle {
                return Err(Reason::Forged);
            }
            let previous_owner = tracker.address;
            self.claim_id(now, sender, config)?;
            self.release_id(previous_owner);
            *self.trackers.at(at) = Tracker::new(address, now, false);
        }
        Ok(at)
    }

    /// Checks that this sender may use the reporter's ID, without binding it, so that a report that is refused later leaves
    /// the ID free.
    ///
    /// # Errors
    /// As for [`Reporters::tracker`].
    pub(super) fn check_id(&self, now: u64, identity: Identity, config: &Config) -> Result<(), Reason> {
        let Identity { key, sender } = identity;
        let address = address_key(sender.ip());
        match self.trackers.find(key).map(|at| self.trackers.get(at)) {
            Some(tracker) if tracker.address == address || !(tracker.pinned || config.bind) => return Ok(()),
            Some(tracker) if tracker.pinned || now.saturating_sub(tracker.last_active()) < config.idle => {
                return Err(Reason::Forged);
            }
            Some(_) => {}
            None if self.trackers.is_full() => return Err(Reason::ReportersFull),
            None => {}
        }
        let may_own = match self.senders.find(address) {
            Some(at) => self.senders.get(at).owned < config.owned,
            None => !self.senders.is_full() && config.owned > 0,
        };
        if may_own {
            Ok(())
        } else {
            Err(Reason::ReportersFull)
        }
    }

    /// Returns the table slot of a known reporter, or `None` if it is unknown or its ID is bound to another sender.
    pub(super) fn known_tracker(&mut self, identity: Identity, config: &Config) -> Option<usize> {
        let at = self.trackers.find(identity.key)?;
        let tracker = self.trackers.at(at);
        let is_owner =
            tracker.address == address_key(identity.sender.ip()) || !(config.bind || tracker.pinned);
        is_owner.then_some(at)
    }

    #[cold]
    fn add_tracker(&mut self, now: u64, identity: Identity, config: &Config) -> Result<usize, Reason> {
        let Identity { key, sender } = identity;
        self.claim_id(now, sender, config)?;
        let Some((at, _)) = self.trackers.find_or_insert(key) else {
            self.release_id(address_key(sender.ip()));
            return Err(Reason::ReportersFull);
        };
        *self.trackers.at(at) = Tracker::new(address_key(sender.ip()), now, false);
        Ok(at)
    }

    /// Binds one more reporter ID to this sender.
    fn claim_id(&mut self, now: u64, sender: SocketAddr, config: &Config) -> Result<(), Reason> {
        let sender = self.sender(now, sender.ip()).ok_or(Reason::ReportersFull)?;
        if sender.owned >= config.owned {
            return Err(Reason::ReportersFull);
        }
        sender.owned += 1;
        Ok(())
    }

    fn release_id(&mut self, address: u128) {
        if let Some(at) = self.senders.find(address) {
            let sender = self.senders.at(at);
            sender.owned = sender.owned.saturating_sub(1);
        }
    }

    /// Prefetches the state of a reporter.
    #[inline(always)]
    pub(super) fn prefetch(&self, key: u64) {
        self.trackers.prefetch(key);
    }

    /// Returns the state in a slot. Slots stay valid until the next [`Reporters::sweep`].
    #[inline(always)]
    pub(super) fn at(&mut self, tracker: usize) -> &mut Tracker {
        self.trackers.at(tracker)
    }

    /// Removes some expired senders. Expired reporters are removed only if their table is more than half full; until then
    /// their sequence numbers are kept, so that a returning reporter is not taken for a new one.
    pub(super) fn sweep(&mut self, now: u64, config: &Config) {
        let senders = &mut self.senders;
        let is_crowded = self.trackers.len() > config.reporters / 2;
        self.trackers
            .sweep(if is_crowded { SWEEP } else { 0 }, |_, tracker| {
                let is_over = !tracker.pinned && is_idle(now, tracker.last_active(), config);
                if is_over && let Some(at) = senders.find(tracker.address) {
                    let sender = senders.at(at);
                    sender.owned = sender.owned.saturating_sub(1);
                }
                is_over
            });
        self.senders.sweep(SWEEP, |_, sender| {
            sender.owned == 0 && is_idle(now, sender.seen, config)
        });
    }
}

/// Returns whether nothing was received for the expiry time.
fn is_idle(now: u64, seen: u64, config: &Config) -> bool {
    now.saturating_sub(seen) >= config.idle
}
