//! The [`Reconciler`]: brings all devices of a domain to their desired rules. It claims them, reads them, sends the changes
//! that the guard permits, and retries with backoff.

use std::collections::BTreeMap;
use std::time::Duration;

use settings::values::rounded_text;

use super::device::{Device, LONGER, Outstanding, RequestKind};
use super::guard::{Devices, Guard};
use super::{DeviceStatus, MAX_NOTICES, Notice, Order, Phase, Targets, Timing, new_border_ports};
use crate::device::{
    Answer, Change, Command, DeviceEvent, Election, NodeId, OtherEntries, PortId, Request, RequestId, Rule,
    State,
};

/// Maximum number of epochs by which a device's election may exceed this manager's within the same term. More cannot be true.
const MAX_EPOCHS: u64 = 1 << 32;

/// Reconciles the devices of a domain with their targets.
#[derive(Debug)]
pub struct Reconciler {
    guard: Guard,
    devices: Devices,
    /// Election of the last claim; `None` in standby.
    election: Option<Election>,
    next_id: RequestId,
    notices: Vec<Notice>,
    /// Ports that became edge ports, each with the time since which it is certainly a sink, ns, or `None` if it is not.
    opening: BTreeMap<(NodeId, PortId), Option<u64>>,
    /// True if a message may have made further changes safe.
    dirty: bool,
    /// Earliest time at which waiting changes may become safe, ns.
    wake: Option<u64>,
}

impl Reconciler {
    /// Creates a reconciler without devices, in standby until it gets a term ([`Reconciler::set_term`]).
    pub fn new(timing: Timing, order: Order) -> Self {
        let guard = Guard::new(order, timing);
        Self {
            guard,
            devices: Devices::new(),
            election: None,
            next_id: 0,
            notices: Vec::new(),
            opening: BTreeMap::new(),
            dirty: true,
            wake: None,
        }
    }

    /// Activates this manager with `term`, or puts it in standby with `None`. The term numbers the lease: it grows with each
    /// new holder, and no two managers have the same.
    pub fn set_term(&mut self, term: Option<u64>, now: u64) {
        if self.election.map(|election| election.term) == term {
            return;
        }
        self.election = term.map(|term| Election { term, epoch: 0 });
        for (node, device) in &mut self.devices {
            device.forget(now);
            let reason = "not contacted yet".to_owned();
            device.phase = match term {
                Some(_) => Phase::Unreachable {
                    reason,
                    next_try: now,
                },
                None => Phase::Standby,
            };
            // A device that was not contacted yet is not worth a notice.
            if term.is_none() {
                self.notices.push(Notice::Phase(*node, device.phase.clone()));
            }
        }
        self.dirty = true;
    }

    /// Returns the term while this manager is active, or `None` in standby.
    pub fn term(&self) -> Option<u64> {
        self.election.map(|election| election.term)
    }

    /// Returns whether this manager is active.
    pub fn is_acting(&self) -> bool {
        self.election.is_some()
    }

    /// Records that devices, even unreachable ones, may use an earlier encoding. All INT is withdrawn before the new one is
    /// used.
    pub fn reencode(&mut self) {
        self.guard.is_reencoding = true;
        self.dirty = true;
    }

    /// Returns whether packets with an earlier encoding of INT may be in flight.
    pub fn is_reencoding(&self) -> bool {
        self.guard.is_reencoding
    }

    /// Replaces the targets of the devices. A device without a target is no longer driven.
    pub fn set_targets(&mut self, targets: Targets, now: u64) {
        self.guard.wanted = targets
            .values()
            .any(|target| target.rules.iter().any(|rule| rule.inserted_bits() != 0));
        self.devices.retain(|node, _| targets.contains_key(node));
        self.opening.retain(|(node, port), _| {
            targets
                .get(node)
                .is_some_and(|target| target.ports.border().any(|border_port| border_port == *port))
        });
        for (node, target) in targets {
            match self.devices.get_mut(&node) {
                Some(device) if device.target == target => {}
                Some(device) => {
                    let ports = new_border_ports(&device.target.ports, &target.ports);
                    self.opening
                        .extend(ports.into_iter().map(|port| ((node, port), None)));
                    device.target = target;
                    device.derive(now);
                }
                None => {
                    let mut device = Device::new(target, now);
                    if self.election.is_some() {
                        let reason = "not contacted yet".to_owned();
                        device.phase = Phase::Unreachable {
                            reason,
                            next_try: now,
                        };
                    }
                    self.devices.insert(node, device);
                }
            }
        }
        self.dirty = true;
    }

    /// Requests [`Notice::EdgeReady`] for a port that is to become an edge port. A port whose link disappears from the targets
    /// is announced without a request, but a manager that restarted in between must request it.
    pub fn announce_when_ready(&mut self, node: NodeId, port: PortId) {
        self.opening.entry((node, port)).or_default();
        self.dirty = true;
    }

    /// Processes an answer. Answers to any request but the outstanding one are late or duplicated, and are ignored.
    pub fn answer(&mut self, node: NodeId, id: RequestId, answer: Answer, now: u64) {
        let Some(device) = self.devices.get_mut(&node) else {
            return;
        };
        let Some(Outstanding { kind, sent, .. }) =
            device.outstanding.filter(|outstanding| outstanding.id == id)
        else {
            return;
        };
        let elapsed = now.saturating_sub(sent);
        device.outstanding = None;
        self.dirty = true;
        if !matches!(answer, Answer::Unreachable(_) | Answer::Late(_)) {
            device.pace(kind).answered(elapsed);
        }
        match answer {
            Answer::Claimed => {
                device.claimed = true;
                device.superseded = false;
                device.pace(kind).failures = 0;
                self.send(node, Request::Read, Phase::Reading, now);
            }
            Answer::NotPrimary(highest) => self.superseded(node, highest, now),
            Answer::State(state) => self.read(node, state, elapsed, now),
            Answer::Unconfirmed(reason) => self.unconfirmed(node, reason, now),
            // The result is read back from the device instead of trusted.
            Answer::Applied => self.send(node, Request::Read, Phase::Applying, now),
            Answer::Stale => self.stale(node, kind, now),
            Answer::Refused(reason) if kind == RequestKind::Apply => {
                device.pace(kind).failures += 1;
                let wait = device.pace(kind).back_off(&self.guard.timing);
                device.hold_until = now.saturating_add(wait);
                device.hold_reason = reason;
                self.send(node, Request::Read, Phase::Reading, now);
            }
            Answer::Refused(reason) => self.refused(node, kind, reason, now),
            Answer::Unreachable(reason) => self.unreachable(node, kind, reason, now),
            Answer::Late(reason) => self.late(node, kind, reason, now),
        }
    }

    /// Processes an event that a device reported unasked.
    pub fn event(&mut self, node: NodeId, event: DeviceEvent, now: u64) {
        let Some(device) = self.devices.get_mut(&node) else {
            return;
        };
        self.dirty = true;
        match event {
            DeviceEvent::Changed => {
                device.next_poll = now;
                device.read_again = true;
            }
            DeviceEvent::Lost(reason) => {
                let soon = now.saturating_add(self.guard.timing.retry.0);
                // A device that is already backing off keeps its earlier retry time.
                let next_try = device.next_try().map_or(now, |next_try| soon.min(*next_try));
                device.lose(now);
                self.enter(node, Phase::Unreachable { reason, next_try });
            }
            DeviceEvent::Emptied => {
                device.actual = None;
                device.pending.clear();
                device.derive(now);
            }
            DeviceEvent::Loaded => {
                let soon = now.saturating_add(self.guard.timing.retry.0);
                if let Some(next_try) = device.next_try() {
                    *next_try = soon.min(*next_try);
                }
            }
        }
    }

    /// Advances the state to `now` and appends the requests to send.
    pub fn poll(&mut self, now: u64, out: &mut Vec<Command>) {
        if self.election.is_some() {
            self.expire(now);
            self.advance(now);
        }
        self.append_commands(out);
    }

    /// Returns the time, ns, by which [`Reconciler::poll`] must be called again, or `None` in standby.
    pub fn next_timeout(&self) -> Option<u64> {
        self.election?;
        let timeouts = self
            .devices
            .values()
            .map(|device| match (&device.outstanding, &device.phase) {
                (Some(outstanding), _) => outstanding.deadline,
                (None, Phase::Unreachable { next_try, .. }) => *next_try,
                (None, Phase::Failed { next_try, .. }) if !device.claimed => *next_try,
                _ if device.claimed && device.hold_until > 0 => device.next_poll.min(device.hold_until),
                _ => device.next_poll,
            });
        timeouts.chain(self.wake).min()
    }

    /// Returns and removes the notices since the last call.
    pub fn drain_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Returns the status of each device, for display.
    pub fn statuses(&self) -> Vec<DeviceStatus> {
        let statuses = self.devices.values().zip(self.states());
        statuses
            .map(|(device, status)| DeviceStatus {
                rules: device.actual.clone(),
                foreign: device.foreign.clone(),
                others: device.others,
                ..status
            })
            .collect()
    }

    /// Returns the status of each device without its rules and foreign entries, which may be many.
    pub fn states(&self) -> impl Iterator<Item = DeviceStatus> {
        self.devices.iter().map(|(node, device)| DeviceStatus {
            node: *node,
            name: device.target.name.clone(),
            phase: device.phase.clone(),
            rules: None,
            difference: (device.missing.len(), device.extra.len()),
            waits: device.waits.clone(),
            foreign: Vec::new(),
            others: OtherEntries::default(),
            ready: device.facts.ready,
        })
    }

    /// Returns the rules of a device as last read under this lease, or `None` if unknown.
    pub fn rules(&self, node: NodeId) -> Option<&crate::device::Rules> {
        self.devices.get(&node)?.actual.as_ref()
    }

    /// Returns whether the claim on a device is valid, so that its known rules are current.
    pub fn is_claimed(&self, node: NodeId) -> bool {
        self.devices.get(&node).is_some_and(|device| device.claimed)
    }

    /// Returns the phase of a device, or `None` if it is not driven.
    pub fn phase(&self, node: NodeId) -> Option<&Phase> {
        Some(&self.devices.get(&node)?.phase)
    }

    /// Returns each device's node id and phase.
    pub fn phases(&self) -> impl Iterator<Item = (NodeId, &Phase)> {
        self.devices.iter().map(|(node, device)| (*node, &device.phase))
    }

    /// Returns the number of devices that have exactly the desired rules, without those whose target has just changed.
    pub fn in_sync(&self) -> usize {
        self.devices
            .values()
            .filter(|device| {
                device.phase == Phase::InSync && device.missing.is_empty() && device.extra.is_empty()
            })
            .count()
    }

    /// Sets the phase of a device. A change produces a notice; if too many accumulate, the older half is dropped.
    fn enter(&mut self, node: NodeId, phase: Phase) {
        let Some(device) = self.devices.get_mut(&node) else {
            return;
        };
        if device.phase != phase {
            device.phase = phase.clone();
            self.notices.push(Notice::Phase(node, phase));
        }
        if self.notices.len() > MAX_NOTICES {
            self.notices.drain(..MAX_NOTICES / 2);
        }
    }

    /// Queues a request, which [`Reconciler::poll`] sends.
    fn send(&mut self, node: NodeId, request: Request, phase: Phase, now: u64) {
        self.next_id += 1;
        let Some(device) = self.devices.get_mut(&node) else {
            return;
        };
        let kind = RequestKind::from(&request);
        let limit = device.pace(kind).limit(&self.guard.timing);
        device.outstanding = Some(Outstanding {
            id: self.next_id,
            kind,
            sent: now,
            deadline: now.saturating_add(limit),
        });
        device.queued = Some(request);
        // A failure remains visible until an attempt succeeds.
        let failed = matches!(device.phase, Phase::Unreachable { .. } | Phase::Failed { .. });
        if phase == Phase::Applying || !failed || !device.is_failing() {
            self.enter(node, phase);
        }
    }

    fn append_commands(&mut self, out: &mut Vec<Command>) {
        for (node, device) in &mut self.devices {
            if let Some(request) = device.queued.take()
                && let Some(outstanding) = device.outstanding
            {
                out.push(Command {
                    node: *node,
                    id: outstanding.id,
                    request,
                    limit: outstanding.deadline - outstanding.sent,
                });
            }
        }
    }

    /// Claims a device with a new epoch, which fences off all earlier requests.
    fn claim(&mut self, node: NodeId, now: u64) {
        let Some(election) = self.election.as_mut() else {
            return;
        };
        // The epoch never saturates in practice; `superseded` rejects implausible epochs.
        election.epoch = election.epoch.saturating_add(1);
        let election = *election;
        if let Some(device) = self.devices.get_mut(&node) {
            device.election = election;
        }
        self.send(node, Request::Claim(election), Phase::Connecting, now);
    }

    fn claim_again(&mut self, node: NodeId, now: u64) {
        if let Some(device) = self.devices.get_mut(&node) {
            device.claimed = false;
        }
        self.claim(node, now);
    }

    /// Handles a device that has another election. A single device is not trusted to speak for all: it is retried later, and
    /// this manager continues with the others. That is safe, because a newer manager takes over each device by its own claim.
    /// If at least half of the devices were claimed by a newer lease, this manager goes to standby.
    fn superseded(&mut self, node: NodeId, highest: Election, now: u64) {
        let Some(own) = self.election.as_mut() else { return };
        let Some(device) = self.devices.get_mut(&node) else {
            return;
        };
        let reason = if highest.term > own.term {
            let claims = *device.pace(RequestKind::Claim);
            // The other manager changes the device's rules, so our knowledge is outdated.
            device.forget(now);
            *device.pace(RequestKind::Claim) = claims;
            device.superseded = true;
            format!(
                "another manager acts on it (term {}); stop one of the two. If the other has stopped, hopwise switches are claimed again after one lease period; for other devices, restart this manager",
                highest.term
            )
        } else if highest.term == own.term && highest.epoch <= own.epoch.saturating_add(MAX_EPOCHS) {
            // A duplicated claim of this lease, or a claim whose answer was lost.
            own.epoch = own.epoch.max(highest.epoch);
            "it was claimed twice; it is claimed again".to_owned()
        } else {
            format!(
                "it refuses a claim for an election that cannot be (term {}, epoch {})",
                highest.term, highest.epoch
            )
        };
        let others = self.devices.values().filter(|device| device.superseded).count();
        if others * 2 < self.devices.len() {
            return self.unreachable(node, RequestKind::Claim, reason, now);
        }
        // The holder of a newer lease is active for the whole domain.
        self.notices.push(Notice::Superseded(node));
        self.set_term(None, now);
    }

    fn unreachable(&mut self, node: NodeId, kind: RequestKind, reason: String, now: u64) {
        if let Some(next_try) = self.lose(node, kind, now) {
            self.enter(node, Phase::Unreachable { reason, next_try });
        }
    }

    /// Schedules another claim after a failure that leaves the request's effect unknown. Returns the time of the claim, ns.
    fn lose(&mut self, node: NodeId, kind: RequestKind, now: u64) -> Option<u64> {
        let timing = self.guard.timing;
        let device = self.devices.get_mut(&node)?;
        device.lose(now);
        let wait = device.pace(kind).back_off(&timing);
        device.pace(kind).failures += 1;
        Some(now.saturating_add(wait))
    }

    /// Handles a missing answer. The next request of this kind gets more time.
    fn late(&mut self, node: NodeId, kind: RequestKind, reason: String, now: u64) {
        let timing = self.guard.timing;
        if let Some(device) = self.devices.get_mut(&node) {
            device.pace(kind).was_late(&timing);
        }
        self.unreachable(node, kind, reason, now);
    }

    /// Handles a refused claim or read: the rules are unknown, and the device may have lost its program.
    fn refused(&mut self, node: NodeId, kind: RequestKind, reason: String, now: u64) {
        let reason = match kind {
            RequestKind::Claim => format!("it refuses to be claimed: {reason}"),
            RequestKind::Read => format!("it refuses to be read: {reason}"),
            RequestKind::Apply => reason,
        };
        if let Some(next_try) = self.lose(node, kind, now) {
            self.enter(node, Phase::Failed { reason, next_try });
        }
    }

    /// Handles an outdated ETag or claim. A single case is a race; repeated cases mean that another writer changes the device.
    fn stale(&mut self, node: NodeId, kind: RequestKind, now: u64) {
        let Some(device) = self.devices.get_mut(&node) else {
            return;
        };
        if device.pace(kind).failures > 0 {
            let reason = match kind {
                RequestKind::Apply => {
                    "it changed again before its changes were applied; check for another controller that writes to it"
                }
                _ => "it accepted a claim and did not apply it",
            };
            return self.refused(node, kind, reason.to_owned(), now);
        }
        device.pace(kind).failures += 1;
        self.claim_again(node, now);
    }

    /// Handles a missing confirmation. Pending changes may have been executed; without any, another writer changed the device.
    fn unconfirmed(&mut self, node: NodeId, reason: String, now: u64) {
        let poll = self.guard.timing.poll;
        let Some(device) = self.devices.get_mut(&node) else {
            return;
        };
        device.pace(RequestKind::Read).failures = 0;
        if device.pending.is_empty() {
            device.actual = None;
        }
        device.next_poll = now.saturating_add(poll);
        device.derive(now);
        self.enter(node, Phase::Unconfirmed { reason });
    }

    /// Stores the state that was read, and detects changes that the device accepted but did not apply.
    fn read(&mut self, node: NodeId, state: State, elapsed: u64, now: u64) {
        let timing = self.guard.timing;
        let Some(device) = self.devices.get_mut(&node) else {
            return;
        };
        device.pace(RequestKind::Read).failures = 0;
        let ignored = device
            .pending
            .iter()
            .find(|change| match change {
                Change::Add(rule) => !state.rules.contains(rule),
                Change::Remove(rule) => state.rules.contains(rule),
            })
            .cloned();
        let sent = std::mem::take(&mut device.pending);
        device.actual = Some(state.rules);
        device.etag = state.etag;
        device.foreign = state.foreign;
        device.others = state.others;
        device.next_poll = now.saturating_add(timing.poll.max(elapsed.saturating_mul(LONGER)));
        device.derive(now);
        let is_done = device.missing.is_empty() && device.extra.is_empty();
        match ignored {
            Some(change) if device.phase == Phase::Applying => {
                let changes = device.pace(RequestKind::Apply);
                changes.failures += 1;
                device.hold_until = now.saturating_add(changes.back_off(&timing));
                device.hold_reason = match sent.len() {
                    1 => format!("it accepted a change and did not apply it: {change}"),
                    all => {
                        format!("it accepted {all} changes and did not apply them all; the first: {change}")
                    }
                };
            }
            None if is_done || !sent.is_empty() => device.pace(RequestKind::Apply).failures = 0,
            _ => {}
        }
        self.settle(node, now);
    }

    /// Updates the phase of a device that has been read and has no outstanding request.
    fn settle(&mut self, node: NodeId, now: u64) {
        let Some(device) = self.devices.get(&node) else {
            return;
        };
        let in_sync = device.missing.is_empty() && device.extra.is_empty() && device.waits.is_none();
        let phase = if in_sync {
            Phase::InSync
        } else if device.hold_until > now {
            Phase::Failed {
                reason: device.hold_reason.clone(),
                next_try: device.hold_until,
            }
        } else {
            Phase::Drift
        };
        self.enter(node, phase);
    }

    /// Fails overdue requests. Their effect is unknown; the next claim fences them off.
    fn expire(&mut self, now: u64) {
        let late: Vec<NodeId> = self
            .devices
            .iter()
            .filter(|(_, device)| {
                device
                    .outstanding
                    .is_some_and(|outstanding| outstanding.deadline <= now)
            })
            .map(|(node, _)| *node)
            .collect();
        for node in late {
            self.dirty = true;
            let Some(outstanding) = self.devices.get(&node).and_then(|device| device.outstanding) else {
                continue;
            };
            let limit = Duration::from_nanos(outstanding.deadline.saturating_sub(outstanding.sent));
            self.late(
                node,
                outstanding.kind,
                format!("no answer within {}", rounded_text(limit)),
                now,
            );
        }
    }

    /// Sends the claims and reads that are due, then all changes that became safe.
    fn advance(&mut self, now: u64) {
        let claims: Vec<NodeId> = self
            .devices
            .iter()
            .filter(|(_, device)| wants_claim(device, now))
            .map(|(node, _)| *node)
            .collect();
        for node in claims {
            self.claim(node, now);
        }
        let polls: Vec<NodeId> = self
            .devices
            .iter()
            .filter(|(_, device)| wants_read(device, now))
            .map(|(node, _)| *node)
            .collect();
        for node in polls {
            if let Some(device) = self.devices.get_mut(&node) {
                device.read_again = false;
            }
            self.send(node, Request::Read, Phase::Reading, now);
        }
        let hold_ended = self
            .devices
            .values()
            .any(|device| device.hold_until != 0 && device.hold_until <= now);
        if self.dirty || hold_ended || self.wake.is_some_and(|wake| wake <= now) {
            self.dirty = false;
            self.apply(now);
        }
    }

    /// Sends all changes that are safe now, and computes when to try the others.
    fn apply(&mut self, now: u64) {
        self.guard.refresh(&self.devices, now);
        let nodes: Vec<NodeId> = self
            .devices
            .iter()
            .filter(|(_, device)| device.is_settled())
            .map(|(node, _)| *node)
            .collect();
        for node in nodes {
            let done = self
                .devices
                .get(&node)
                .is_some_and(|device| self.guard.is_done(device));
            let (changes, waits) = if done {
                (Vec::new(), None)
            } else {
                self.guard.changes(node, &self.devices, now)
            };
            let Some(device) = self.devices.get_mut(&node) else {
                continue;
            };
            device.waits = waits;
            if device.hold_until <= now {
                device.hold_until = 0;
            }
            if changes.is_empty() || device.hold_until > now {
                self.settle(node, now);
                continue;
            }
            device.pending = changes.clone();
            device.derive(now);
            let request = Request::Apply {
                election: device.election,
                etag: device.etag.clone(),
                changes: changes.clone(),
            };
            self.notices.push(Notice::Applying(node, changes));
            self.send(node, request, Phase::Applying, now);
        }
        // The changes sent above made the facts more pessimistic.
        self.guard.refresh(&self.devices, now);
        self.announce(now);
        let opening = self
            .opening
            .values()
            .flatten()
            .map(|since| since.saturating_add(self.guard.timing.drain));
        let wake = opening
            .chain(self.guard.wake(&self.devices, now))
            .filter(|time| *time > now)
            .min();
        self.wake = wake;
    }

    /// Announces the edge ports that hosts may be connected to.
    fn announce(&mut self, now: u64) {
        let guard = &self.guard;
        let devices = &self.devices;
        let silent = !guard.wanted && !guard.int_possible(now);
        let mut ready = Vec::new();
        for ((node, port), since) in &mut self.opening {
            let is_sink = devices
                .get(node)
                .is_some_and(|device| device.has(&Rule::Sink(*port)));
            *since = if is_sink { since.or(Some(now)) } else { None };
            let drained = since.is_some_and(|since| now >= since.saturating_add(guard.timing.drain));
            if drained || silent || !guard.order.edges_wait_for_sinks {
                ready.push((*node, *port));
            }
        }
        for (node, port) in ready {
            self.opening.remove(&(node, port));
            self.notices.push(Notice::EdgeReady(node, port));
        }
    }
}

fn wants_claim(device: &Device, now: u64) -> bool {
    match &device.phase {
        _ if device.outstanding.is_some() => false,
        Phase::Unreachable { next_try, .. } => *next_try <= now,
        Phase::Failed { next_try, .. } if !device.claimed => *next_try <= now,
        _ => !device.claimed,
    }
}

fn wants_read(device: &Device, now: u64) -> bool {
    device.claimed && device.outstanding.is_none() && (device.read_again || device.next_poll <= now)
}
