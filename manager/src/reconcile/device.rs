//! The state of one device: the outstanding request, its known rules, and its phase.

use std::collections::BTreeSet;

use super::wait::Wait;
use super::{Phase, Target, Timing};
use crate::device::{Change, Election, Etag, OtherEntries, Request, RequestId, Restart, Rule, Rules};
use crate::instruction::{self, Bits};

/// A request that awaits its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outstanding {
    pub(super) id: RequestId,
    pub(super) kind: RequestKind,
    pub(super) sent: u64,
    pub(super) deadline: u64,
}

/// The kind of a request. A device may be quick to answer one and slow, or unable, to answer another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Claim,
    Read,
    Apply,
}

impl From<&Request> for RequestKind {
    fn from(request: &Request) -> Self {
        match request {
            Request::Claim(_) => Self::Claim,
            Request::Read => Self::Read,
            Request::Apply { .. } => Self::Apply,
        }
    }
}

/// The time limits and failures of requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pace {
    /// Failures since the last success.
    pub(super) failures: u32,
    /// Time limit of the next one, ns, if it is more than that of all devices.
    limit: u64,
}

impl Pace {
    /// Returns the time limit of the next request, ns.
    pub(super) fn limit(&self, timing: &Timing) -> u64 {
        self.limit
            .clamp(timing.timeout, timing.longest.max(timing.timeout))
    }

    /// Records an answer that came after `elapsed` ns: others may take several times as long.
    pub(super) fn answered(&mut self, elapsed: u64) {
        self.limit = elapsed.saturating_mul(LONGER);
    }

    /// Doubles the time limit because there was no answer in time.
    pub(super) fn was_late(&mut self, timing: &Timing) {
        self.limit = self.limit(timing).saturating_mul(2);
    }

    /// Returns the time until the next attempt, ns.
    pub(super) fn back_off(&self, timing: &Timing) -> u64 {
        let (first, longest) = timing.retry;
        first.saturating_mul(1_u64 << self.failures.min(16)).min(longest)
    }
}

/// A request may take this many times as long as the last one of its kind. Between two reads, a device rests for at least this
/// many times the duration of the last read.
pub(super) const LONGER: u64 = 4;

/// The properties of a device that the guards need, derived from its rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// All border ports are certainly sinks, and INT is encoded as in the whole domain.
    pub(super) ready: bool,
    /// Bits that the device may insert into packets.
    pub(super) may_insert: Bits,
    /// Bits that it should execute and possibly does not.
    pub(super) missing_bits: Bits,
    /// The encoding differs from that of the domain.
    pub(super) wrong_encoding: bool,
    /// Sinks on ports to other devices, possibly.
    pub(super) facing: usize,
    /// Packets may get more INT from it than links have room for.
    pub(super) overfills: bool,
}

/// A device with its target and its known rules.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) target: Target,
    pub(super) phase: Phase,
    pub(super) outstanding: Option<Outstanding>,
    /// The outstanding request, until it is sent.
    pub(super) queued: Option<Request>,
    /// The claim is valid: requests may be sent, and the state is current.
    pub(super) claimed: bool,
    /// Election of the last claim.
    pub(super) election: Election,
    /// The last claim was refused for a newer lease.
    pub(super) superseded: bool,
    /// Rules as last read under the current lease.
    pub(super) actual: Option<Rules>,
    /// Changes that were sent and not confirmed by a read: each may or may not have been executed.
    pub(super) pending: Vec<Change>,
    pub(super) etag: Etag,
    pub(super) foreign: Vec<String>,
    pub(super) others: OtherEntries,
    /// Time limits of claims, reads and changes.
    paces: [Pace; 3],
    /// No changes are sent before this time, after a refusal.
    pub(super) hold_until: u64,
    pub(super) hold_reason: String,
    pub(super) next_poll: u64,
    /// The device reported a change while a request was outstanding.
    pub(super) read_again: bool,
    pub(super) facts: Facts,
    /// Time since which its border has not been closed.
    pub(super) unready_since: u64,
    pub(super) waits: Option<Wait>,
    /// Rules of the target that are missing, and unexpected rules; sinks of ports to devices not counted.
    pub(super) missing: Vec<Rule>,
    pub(super) extra: Vec<Rule>,
}

impl Device {
    pub(super) fn new(target: Target, now: u64) -> Self {
        let mut device = Self {
            target,
            phase: Phase::Standby,
            outstanding: None,
            queued: None,
            claimed: false,
            election: Election::default(),
            superseded: false,
            actual: None,
            pending: Vec::new(),
            etag: Etag::default(),
            foreign: Vec::new(),
            others: OtherEntries::default(),
            paces: [Pace::default(); 3],
            hold_until: 0,
            hold_reason: String::new(),
            next_poll: 0,
            read_again: false,
            facts: Facts::default(),
            unready_since: now,
            waits: None,
            missing: Vec::new(),
            extra: Vec::new(),
        };
        device.derive(now);
        device
    }

    /// Discards all that is known of the device's rules: knowledge from another lease may be wrong by now.
    pub(super) fn forget(&mut self, now: u64) {
        self.claimed = false;
        self.superseded = false;
        self.outstanding = None;
        self.queued = None;
        self.actual = None;
        self.pending.clear();
        self.paces = [Pace::default(); 3];
        self.hold_until = 0;
        self.derive(now);
    }

    /// Returns the time limits and failures of a kind of request.
    pub(super) fn pace(&mut self, kind: RequestKind) -> &mut Pace {
        &mut self.paces[kind as usize]
    }

    /// Returns whether the last request of some kind failed.
    pub(super) fn is_failing(&self) -> bool {
        self.paces.iter().any(|pace| pace.failures > 0)
    }

    /// Returns the time at which it is to be claimed again, if it waits for that.
    pub(super) fn next_try(&mut self) -> Option<&mut u64> {
        match &mut self.phase {
            _ if self.claimed || self.outstanding.is_some() => None,
            Phase::Unreachable { next_try, .. } | Phase::Failed { next_try, .. } => Some(next_try),
            _ => None,
        }
    }

    /// Records that the connection or the device was lost. The known rules stay true as far as the border goes: the device keeps
    /// them, or forwards nothing until it gets that rule. Of a device that forwards without rules, nothing is known any more.
    pub(super) fn lose(&mut self, now: u64) {
        self.claimed = false;
        self.outstanding = None;
        self.queued = None;
        if self.target.restart == Restart::Forwards {
            self.actual = None;
            self.pending.clear();
        }
        self.derive(now);
    }

    /// Returns the name of the device, for messages.
    pub(super) fn name(&self) -> String {
        self.target.name.clone()
    }

    /// Returns whether `rule` is certainly present.
    pub(super) fn has(&self, rule: &Rule) -> bool {
        self.actual.as_ref().is_some_and(|actual| actual.contains(rule))
            && !self
                .pending
                .iter()
                .any(|change| matches!(change, Change::Remove(removed) if removed == rule))
    }

    /// Returns whether the device forwards packets, as far as that depends on rules.
    pub(super) fn forwards(&self) -> bool {
        self.target.restart != Restart::Waits || self.has(&Rule::Forwarding)
    }

    /// Recomputes facts and differences after its rules or its target changed.
    pub(super) fn derive(&mut self, now: u64) {
        let was_ready = self.facts.ready;
        self.facts = self.current_facts();
        if was_ready && !self.facts.ready {
            self.unready_since = now;
        }
        let links = &self.target.ports.links;
        let empty = Rules::new();
        let actual = self.actual.as_ref().unwrap_or(&empty);
        self.missing = self.target.rules.difference(actual).cloned().collect();
        let has_map = self
            .target
            .rules
            .iter()
            .any(|rule| matches!(rule, Rule::DtaMap(_)));
        self.extra = actual
            .difference(&self.target.rules)
            .filter(|rule| match rule {
                Rule::Sink(port) => !links.contains_key(port),
                // Whatever is planned, a device that forwards goes on forwarding.
                Rule::Forwarding => false,
                // A device that has DTA collectors keeps them until it gets others.
                Rule::DtaMap(_) => has_map,
                _ => true,
            })
            .cloned()
            .collect();
    }

    fn current_facts(&self) -> Facts {
        if self.target.outside {
            return Facts {
                ready: true,
                ..Facts::default()
            };
        }
        let Some(actual) = &self.actual else {
            return Facts {
                may_insert: Bits::MAX,
                ..Facts::default()
            };
        };
        let removed: BTreeSet<&Rule> = self.changes(false);
        let added: BTreeSet<&Rule> = self.changes(true);
        let possible = actual.iter().chain(added.iter().copied());
        let encoding = self
            .target
            .rules
            .iter()
            .find(|rule| matches!(rule, Rule::Encoding(_)));
        let wrong_encoding = encoding.is_some()
            && possible
                .clone()
                .any(|rule| matches!(rule, Rule::Encoding(_)) && Some(rule) != encoding);
        let certain: BTreeSet<&Rule> = actual.iter().filter(|rule| !removed.contains(rule)).collect();
        let encoded = encoding.is_none_or(|rule| certain.contains(rule)) && !wrong_encoding;
        let missing = self.target.rules.iter().filter_map(|rule| match rule {
            Rule::Instruction(number) if !certain.contains(rule) => Some(instruction::bit(*number)),
            _ => None,
        });
        let links = &self.target.ports.links;
        Facts {
            ready: encoded
                && self
                    .target
                    .ports
                    .border()
                    .all(|port| certain.contains(&Rule::Sink(port))),
            may_insert: possible.clone().fold(0, |bits, rule| bits | rule.inserted_bits()),
            missing_bits: missing.fold(0, |bits, bit| bits | bit),
            wrong_encoding,
            overfills: self
                .target
                .room
                .is_some_and(|room| possible.clone().any(|rule| rule.int_bytes() > room)),
            facing: possible
                .filter(|rule| matches!(rule, Rule::Sink(port) if links.contains_key(port)))
                .count(),
        }
    }

    fn changes(&self, added: bool) -> BTreeSet<&Rule> {
        self.pending
            .iter()
            .filter(|change| matches!(change, Change::Add(_)) == added)
            .map(Change::rule)
            .collect()
    }

    /// Returns whether changes may be sent now.
    pub(super) fn is_settled(&self) -> bool {
        self.claimed && self.outstanding.is_none() && self.actual.is_some() && self.pending.is_empty()
    }
}
