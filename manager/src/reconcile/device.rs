//! One device: the outstanding request, what is known of its rules, and its state.

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

/// The experience with requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pace {
    /// Failures since the last success.
    pub(super) failures: u32,
    /// Time limit of the next one, ns, if it is more than that of all devices.
    limit: u64,
}

impl Pace {
    /// Time limit of the next request, ns.
    pub(super) fn limit(&self, timing: &Timing) -> u64 {
        self.limit
            .clamp(timing.timeout, timing.longest.max(timing.timeout))
    }

    /// The answer came after `took` ns: others may take several times as long.
    pub(super) fn answered(&mut self, took: u64) {
        self.limit = took.saturating_mul(LONGER);
    }

    /// There was no answer in time.
    pub(super) fn was_late(&mut self, timing: &Timing) {
        self.limit = self.limit(timing).saturating_mul(2);
    }

    /// Time until the next attempt.
    pub(super) fn back_off(&self, timing: &Timing) -> u64 {
        let (first, longest) = timing.retry;
        first.saturating_mul(1_u64 << self.failures.min(16)).min(longest)
    }
}

/// A request may take this many times as long as the last one of its kind; and a device is read at most so that it rests for this many times
/// as long as the last read took.
pub(super) const LONGER: u64 = 4;

/// What the guards need to know, derived from rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// All border ports are certainly sinks, and INT is encoded as in the whole domain.
    pub(super) ready: bool,
    /// Bits that it possibly inserts into packets.
    pub(super) may_insert: Bits,
    /// Bits that it should execute and possibly does not.
    pub(super) missing_bits: Bits,
    /// Its encoding is not the domain's.
    pub(super) wrong_encoding: bool,
    /// Sinks on ports to other devices, possibly.
    pub(super) facing: usize,
    /// Packets may get more INT from it than links have room for.
    pub(super) overfills: bool,
}

/// A device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) target: Target,
    pub(super) phase: Phase,
    pub(super) outstanding: Option<Outstanding>,
    /// The outstanding request, until it is handed out.
    pub(super) queued: Option<Request>,
    /// The claim stands: requests may be sent, and the state is current.
    pub(super) claimed: bool,
    /// The last claim.
    pub(super) election: Election,
    /// It was last refused for a newer lease.
    pub(super) superseded: bool,
    /// Last read under the current lease.
    pub(super) actual: Option<Rules>,
    /// Sent, and not confirmed by a read: each may or may not have been executed.
    pub(super) pending: Vec<Change>,
    pub(super) etag: Etag,
    pub(super) foreign: Vec<String>,
    pub(super) others: OtherEntries,
    /// Claims, reads and changes: each kind has its own waiting times.
    paces: [Pace; 3],
    /// No changes are sent before this time, after a refusal.
    pub(super) hold_until: u64,
    pub(super) hold_reason: String,
    pub(super) next_poll: u64,
    /// It said that something changed while a request was outstanding.
    pub(super) read_again: bool,
    pub(super) facts: Facts,
    /// Since when its border has not been closed.
    pub(super) unready_since: u64,
    pub(super) waits: Option<Wait>,
    /// Rules of the target that it lacks, and rules beyond the target; sinks of ports to devices not counted.
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

    /// Forgets everything about the device's rules: the knowledge of another lease may be wrong by now.
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

    /// The experience with a kind of request.
    pub(super) fn pace(&mut self, kind: RequestKind) -> &mut Pace {
        &mut self.paces[kind as usize]
    }

    /// Whether the last request of some kind failed.
    pub(super) fn is_failing(&self) -> bool {
        self.paces.iter().any(|pace| pace.failures > 0)
    }

    /// When it is to be claimed again, if it waits for that.
    pub(super) fn next_try(&mut self) -> Option<&mut u64> {
        match &mut self.phase {
            _ if self.claimed || self.outstanding.is_some() => None,
            Phase::Unreachable { next_try, .. } | Phase::Failed { next_try, .. } => Some(next_try),
            _ => None,
        }
    }

    /// The connection or the device was lost. What it has of rules stays true as far as the border goes: it keeps them, or
    /// it forwards nothing until it gets that rule. Of a device that forwards without rules, nothing is known any more.
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

    /// Whether `rule` is certainly there.
    pub(super) fn has(&self, rule: &Rule) -> bool {
        let removed = |change: &Change| matches!(change, Change::Remove(one) if one == rule);
        self.actual.as_ref().is_some_and(|actual| actual.contains(rule)) && !self.pending.iter().any(removed)
    }

    /// Whether the device forwards packets, as far as that depends on rules.
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
        let is_facing = |rule: &Rule| matches!(rule, Rule::Sink(port) if links.contains_key(port));
        let empty = Rules::new();
        let actual = self.actual.as_ref().unwrap_or(&empty);
        self.missing = self.target.rules.difference(actual).cloned().collect();
        let is_map = |rule: &Rule| matches!(rule, Rule::DtaMap(_));
        let maps = self.target.rules.iter().any(is_map);
        // Whatever is planned, a device that forwards goes on forwarding, and one that has DTA collectors keeps them until it gets others.
        let goes = |rule: &&Rule| !is_facing(rule) && **rule != Rule::Forwarding && (maps || !is_map(rule));
        self.extra = actual
            .difference(&self.target.rules)
            .filter(goes)
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
        let has = |rule: &Rule| actual.contains(rule) && !removed.contains(rule);
        let is_encoding = |rule: &&Rule| matches!(rule, Rule::Encoding(_));
        let wanted = self.target.rules.iter().find(is_encoding);
        let wrong_encoding = wanted.is_some()
            && actual
                .iter()
                .chain(added.iter().copied())
                .filter(is_encoding)
                .any(|rule| Some(rule) != wanted);
        let encoded = wanted.is_none_or(has) && !wrong_encoding;
        let all = || actual.iter().chain(added.iter().copied());
        let missing = self.target.rules.iter().filter_map(|rule| match rule {
            Rule::Instruction(number) if !has(rule) => Some(instruction::bit(*number)),
            _ => None,
        });
        let links = &self.target.ports.links;
        Facts {
            ready: encoded && self.target.ports.border().all(|port| has(&Rule::Sink(port))),
            may_insert: all().fold(0, |bits, rule| bits | rule.inserted_bits()),
            missing_bits: missing.fold(0, |bits, bit| bits | bit),
            wrong_encoding,
            overfills: self
                .target
                .room
                .is_some_and(|room| all().any(|rule| rule.int_bytes() > room)),
            facing: all()
                .filter(|rule| matches!(rule, Rule::Sink(port) if links.contains_key(port)))
                .count(),
        }
    }

    fn changes(&self, added: bool) -> BTreeSet<&Rule> {
        let of = |change: &'_ Change| matches!(change, Change::Add(_)) == added;
        let rules = self.pending.iter().filter(|change| of(change));
        rules.map(Change::rule).collect()
    }

    /// Whether changes may be sent now.
    pub(super) fn is_settled(&self) -> bool {
        self.claimed && self.outstanding.is_none() && self.actual.is_some() && self.pending.is_empty()
    }
}
