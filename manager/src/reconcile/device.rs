//! The reconciler's state of one device: outstanding request, known rules, differences from the target, and phase.

use std::collections::BTreeSet;

use super::wait::Wait;
use super::{Phase, Target, Timing};
use crate::device::{Change, Election, Etag, OtherEntries, Request, RequestId, Restart, Rule, Rules};
use crate::instruction::{self, Bits};

/// A request may take this many times as long as the previous one of its kind. After a read, the device rests for at least
/// this many times the duration of the read.
pub(super) const LONGER: u64 = 4;

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outstanding {
    pub(super) id: RequestId,
    pub(super) kind: RequestKind,
    /// Time at which it was sent, and time at which it fails, ns.
    pub(super) sent: u64,
    pub(super) deadline: u64,
}

/// The kind of a request. Timeouts and backoff are separate for each kind, because a device may answer one quickly and be slow
/// or unable to answer another.
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

/// The timeout and backoff of requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pace {
    /// Number of failures since the last success.
    pub(super) failures: u32,
    /// Time limit of the next request, ns, if it exceeds the default.
    limit: u64,
}

impl Pace {
    /// Returns the time limit of the next request, ns, between the default and the maximum.
    pub(super) fn limit(&self, timing: &Timing) -> u64 {
        self.limit
            .clamp(timing.timeout, timing.longest.max(timing.timeout))
    }

    /// Records an answer that took `elapsed` ns. Later requests may take [`LONGER`] times as long.
    pub(super) fn answered(&mut self, elapsed: u64) {
        self.limit = elapsed.saturating_mul(LONGER);
    }

    /// Doubles the time limit after a request without an answer.
    pub(super) fn was_late(&mut self, timing: &Timing) {
        self.limit = self.limit(timing).saturating_mul(2);
    }

    /// Returns the backoff until the next attempt, ns: exponential in the number of failures.
    pub(super) fn back_off(&self, timing: &Timing) -> u64 {
        let (first, longest) = timing.retry;
        first.saturating_mul(1_u64 << self.failures.min(16)).min(longest)
    }
}

/// Properties of a device, derived from its rules, that the guards check. They are pessimistic while changes are pending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// True if all border ports are certainly sinks and the encoding of INT is certainly the domain's.
    pub(super) ready: bool,
    /// Instruction bits that the device may insert into packets.
    pub(super) may_insert: Bits,
    /// Instruction bits that it should execute and possibly does not.
    pub(super) missing_bits: Bits,
    /// True if the encoding possibly differs from the domain's.
    pub(super) wrong_encoding: bool,
    /// Number of sinks that are possibly present on ports to other devices.
    pub(super) facing: usize,
    /// True if it may insert more INT into packets than the links have room for.
    pub(super) overfills: bool,
}

/// A device with its target and its known rules.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) target: Target,
    pub(super) phase: Phase,
    pub(super) outstanding: Option<Outstanding>,
    /// The request of `outstanding` until it is sent.
    pub(super) queued: Option<Request>,
    /// True if the claim is valid: requests may be sent, and the known state is current.
    pub(super) claimed: bool,
    /// Election of the last claim.
    pub(super) election: Election,
    /// True if the last claim was refused in favour of a newer lease.
    pub(super) superseded: bool,
    /// Rules as last read under the current lease; `None` if unknown.
    pub(super) actual: Option<Rules>,
    /// Changes that were sent but not confirmed by a read. Each may or may not have been executed.
    pub(super) pending: Vec<Change>,
    pub(super) etag: Etag,
    pub(super) foreign: Vec<String>,
    pub(super) others: OtherEntries,
    /// Timeout and backoff of claims, reads and changes, by [`RequestKind`].
    paces: [Pace; 3],
    /// After a refusal, no changes are sent before this time, ns.
    pub(super) hold_until: u64,
    pub(super) hold_reason: String,
    /// Time of the next periodic read, ns.
    pub(super) next_poll: u64,
    /// True if the device reported a change while a request was outstanding.
    pub(super) read_again: bool,
    pub(super) facts: Facts,
    /// Time since which its border has not been closed, ns.
    pub(super) unready_since: u64,
    /// Condition that the next change waits for.
    pub(super) waits: Option<Wait>,
    /// Missing rules of the target (`missing`), and unexpected rules (`extra`), where sinks on ports to devices do not count.
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

    /// Discards everything known about the device's rules, because knowledge from another lease may be outdated.
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

    /// Returns the timeout and backoff of a kind of request.
    pub(super) fn pace(&mut self, kind: RequestKind) -> &mut Pace {
        &mut self.paces[kind as usize]
    }

    /// Returns whether the last request of any kind failed.
    pub(super) fn is_failing(&self) -> bool {
        self.paces.iter().any(|pace| pace.failures > 0)
    }

    /// Returns the time of the next claim, ns, if the device is backing off from one.
    pub(super) fn next_try(&mut self) -> Option<&mut u64> {
        match &mut self.phase {
            _ if self.claimed || self.outstanding.is_some() => None,
            Phase::Unreachable { next_try, .. } | Phase::Failed { next_try, .. } => Some(next_try),
            _ => None,
        }
    }

    /// Records that the connection or the device was lost. The known rules remain valid for the border, because the device
    /// keeps its rules, or forwards nothing until [`Rule::Forwarding`] is installed. For a device that forwards without rules,
    /// nothing is known any more.
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

    /// Returns the device's name, for messages.
    pub(super) fn name(&self) -> String {
        self.target.name.clone()
    }

    /// Returns whether `rule` is certainly present on the device.
    pub(super) fn has(&self, rule: &Rule) -> bool {
        self.actual.as_ref().is_some_and(|actual| actual.contains(rule))
            && !self
                .pending
                .iter()
                .any(|change| matches!(change, Change::Remove(removed) if removed == rule))
    }

    /// Returns whether the device forwards packets, as far as that depends on its rules.
    pub(super) fn forwards(&self) -> bool {
        self.target.restart != Restart::Waits || self.has(&Rule::Forwarding)
    }

    /// Recomputes facts and differences after a change of the device's rules or its target.
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
                // No plan stops a device that forwards.
                Rule::Forwarding => false,
                // A device keeps its DTA collectors until it gets others.
                Rule::DtaMap(_) => has_map,
                _ => true,
            })
            .cloned()
            .collect();
    }

    /// Derives the facts from the known rules and the pending changes; the most pessimistic if nothing is known.
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

    /// Returns whether changes may be sent now: the device is claimed, its rules are known, and nothing is outstanding.
    pub(super) fn is_settled(&self) -> bool {
        self.claimed && self.outstanding.is_none() && self.actual.is_some() && self.pending.is_empty()
    }
}
