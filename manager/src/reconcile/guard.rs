//! The guard: decides which changes are safe now, so that no INT ever reaches a host.
//!
//! Each permitted change is safe on its own, whether the other changes of its batch are executed, refused or lost. Facts about
//! a device are pessimistic while a request is outstanding: a sink counts only when it is certain, a source as soon as it is
//! possible.

use std::collections::BTreeMap;

use super::device::Device;
use super::wait::Wait;
use super::{Order, Timing};
use crate::device::{Change, NodeId, PortId, Rule};
use crate::instruction::{self, Bits};

/// Facts about the domain as a whole, from which the guard decides.
#[derive(Debug, Default)]
pub(super) struct Guard {
    pub(super) order: Order,
    pub(super) timing: Timing,
    /// True if at least one target embeds INT in packets.
    pub(super) wanted: bool,
    /// Instruction bits that some device may insert.
    possible: Bits,
    /// Last time, ns, at which each bit (`last`), or any bit (`last_any`), could have been inserted; 0 if never.
    last: [u64; 16],
    last_any: u64,
    /// A ready device by which INT could leave the domain, because a neighbour without a closed border is reachable from it.
    open: Option<String>,
    /// Instructions that reachable devices may lack, and one such device.
    lacking: Bits,
    lacking_at: Option<String>,
    /// A device that may insert INT.
    inserter: Option<String>,
    /// True if all INT must be withdrawn, because the encoding changes.
    withdraw: bool,
    /// Number of devices whose border is not certainly closed.
    unready: usize,
    /// True if unknown devices may still insert INT of an earlier encoding.
    pub(super) is_reencoding: bool,
    /// A device that may insert more INT than links have room for, and the last time at which there was one, ns.
    overfills: Option<String>,
    last_overfilled: u64,
}

/// Devices by node id.
pub(super) type Devices = BTreeMap<NodeId, Device>;

impl Guard {
    pub(super) fn new(order: Order, timing: Timing) -> Self {
        Self {
            order,
            timing,
            ..Self::default()
        }
    }

    /// Recomputes the facts about the domain.
    pub(super) fn refresh(&mut self, devices: &Devices, now: u64) {
        // INT that was possible until now may have been sent just now.
        self.mark(now);
        let all = self.order.sinks_wait_for_claims;
        let counted = devices.values().filter(|device| all || device.actual.is_some());
        self.possible = counted
            .clone()
            .fold(0, |bits, device| bits | device.facts.may_insert);
        self.mark(now);
        self.inserter = counted
            .clone()
            .find(|device| device.facts.may_insert != 0)
            .map(Device::name);
        let ready = devices.values().filter(|device| device.facts.ready);
        self.open = ready
            .clone()
            .find(|device| !is_closed(device, devices))
            .map(Device::name);
        let reachable = ready.clone().filter(|device| device.claimed);
        self.lacking = reachable
            .clone()
            .fold(0, |bits, device| bits | device.facts.missing_bits);
        self.lacking_at = reachable
            .clone()
            .find(|device| device.facts.missing_bits != 0)
            .map(Device::name);
        self.is_reencoding &= devices.is_empty() || self.int_possible(now);
        let differs = self.is_reencoding || devices.values().any(|device| device.facts.wrong_encoding);
        self.withdraw = self.wanted && differs;
        self.unready = devices.len() - ready.count();
        let overfills = devices
            .values()
            .find(|device| device.facts.overfills)
            .map(Device::name);
        if overfills.is_some() || self.overfills.is_some() {
            self.last_overfilled = now;
        }
        self.overfills = overfills;
    }

    /// Records that packets sent now may carry all possible bits.
    fn mark(&mut self, now: u64) {
        for number in instruction::numbers(self.possible) {
            self.last[usize::from(number)] = now;
        }
        if self.possible != 0 {
            self.last_any = now;
        }
    }

    /// Returns whether packets with INT may exist anywhere: inserted now, or still in flight.
    pub(super) fn int_possible(&self, now: u64) -> bool {
        self.possible != 0 || (self.last_any != 0 && now < self.last_any.saturating_add(self.timing.drain))
    }

    /// Returns the earliest time after `now` at which more changes may become safe, ns.
    pub(super) fn wake(&self, devices: &Devices, now: u64) -> Option<u64> {
        let last = self.last.iter().chain([&self.last_any, &self.last_overfilled]);
        let drains = last.map(|last| last.saturating_add(self.timing.drain));
        let unready = devices.values().filter(|device| !device.facts.ready);
        let graces = unready.map(|device| device.unready_since.saturating_add(self.timing.grace));
        drains.chain(graces).filter(|time| *time > now).min()
    }

    /// Returns whether a device certainly needs no change.
    pub(super) fn is_done(&self, device: &Device) -> bool {
        device.missing.is_empty()
            && device.extra.is_empty()
            && device.facts.facing == 0
            && (self.unready == 0 || device.target.ports.links.is_empty())
            && !self.withdraw
    }

    /// Returns the changes of a device that are safe now, and the condition that the first blocked change waits for.
    pub(super) fn changes(&self, node: NodeId, devices: &Devices, now: u64) -> (Vec<Change>, Option<Wait>) {
        let Some(device) = devices.get(&node) else {
            return (Vec::new(), None);
        };
        let view = View {
            guard: self,
            device,
            devices,
            now,
        };
        let mut waits = None;
        let mut changes: Vec<Change> = Vec::new();
        for rule in &device.extra {
            let successor = device.missing.iter().find(|new| new.same_entry(rule));
            // An entry is removed together with the addition of its successor, so that its flows remain measured.
            let may_replace = successor
                .map_or(Ok(()), |new| view.may_add(new))
                .or_else(|wait| view.unless_withdrawn(rule, wait));
            let result = may_replace.and_then(|()| view.may_remove(rule, successor));
            if note(result, &mut waits) {
                changes.push(Change::Remove(rule.clone()));
            }
        }
        let gone: Vec<Rule> = changes.iter().map(|change| change.rule().clone()).collect();
        for rule in &device.missing {
            let blocked = device
                .extra
                .iter()
                .any(|old| old.same_entry(rule) && !gone.contains(old));
            if !blocked && note(view.may_add(rule), &mut waits) {
                changes.push(Change::Add(rule.clone()));
            }
        }
        if view.must_withdraw() {
            let actual = device
                .actual
                .iter()
                .flatten()
                .filter(|rule| rule.inserted_bits() != 0);
            changes.extend(
                actual
                    .filter(|rule| !gone.contains(rule))
                    .cloned()
                    .map(Change::Remove),
            );
        }
        for port in device.target.ports.links.keys() {
            changes.extend(view.facing(*port, &mut waits));
        }
        changes.truncate(self.timing.batch);
        (changes, waits)
    }
}

/// Returns whether a change is allowed. If not, stores its condition in `waits`, unless another change's is stored.
fn note(result: Result<(), Wait>, waits: &mut Option<Wait>) -> bool {
    match result {
        Ok(()) => true,
        Err(wait) => {
            waits.get_or_insert(wait);
            false
        }
    }
}

/// Returns whether INT that reaches a ready device stays among ready devices: each link leads to one, or has a sink.
fn is_closed(device: &Device, devices: &Devices) -> bool {
    let mut links = device.target.ports.links.iter();
    device.facts.ready
        && links.all(|(port, (peer, _))| {
            devices.get(peer).is_some_and(|peer| peer.facts.ready) || device.has(&Rule::Sink(*port))
        })
}

/// One device in the context of all others, with the checks of its changes.
struct View<'a> {
    guard: &'a Guard,
    device: &'a Device,
    devices: &'a Devices,
    now: u64,
}

impl View<'_> {
    /// Returns whether the border of `device` has been open for longer than the grace period.
    fn is_overdue(&self, device: &Device) -> bool {
        !device.facts.ready && self.now >= device.unready_since.saturating_add(self.guard.timing.grace)
    }

    /// Returns whether the device's sources must be removed: the encoding changes, or its border remains open.
    fn must_withdraw(&self) -> bool {
        self.guard.withdraw || (self.device.facts.may_insert != 0 && self.is_overdue(self.device))
    }

    fn unless_withdrawn(&self, rule: &Rule, wait: Wait) -> Result<(), Wait> {
        if self.must_withdraw() && rule.inserted_bits() != 0 {
            Ok(())
        } else {
            Err(wait)
        }
    }

    /// Checks that no packet with INT is in flight and no device inserts INT.
    fn silent(&self) -> Result<(), Wait> {
        self.no_source()?;
        if self.guard.int_possible(self.now) {
            Err(Wait::Drain)
        } else {
            Ok(())
        }
    }

    /// Checks that no device may insert INT.
    fn no_source(&self) -> Result<(), Wait> {
        match &self.guard.inserter {
            Some(device) if self.guard.possible != 0 => Err(Wait::Sources(device.clone())),
            _ => Ok(()),
        }
    }

    /// Checks whether a sink may be removed.
    fn may_open(&self) -> Result<(), Wait> {
        match self.guard.order {
            Order {
                sinks_wait_for_sources: false,
                ..
            } => Ok(()),
            Order {
                sinks_wait_for_drain: false,
                ..
            } => self.no_source(),
            _ => self.silent(),
        }
    }

    /// Checks that no packet has INT of an earlier encoding.
    fn is_encoded(&self) -> Result<(), Wait> {
        let waits = self.guard.is_reencoding && self.guard.order.encodings_wait_for_drain;
        if waits { Err(Wait::Encoding) } else { Ok(()) }
    }

    /// Checks whether the encoding of INT may change.
    fn may_encode(&self) -> Result<(), Wait> {
        if self.guard.order.encodings_wait_for_drain {
            self.silent()
        } else {
            Ok(())
        }
    }

    fn may_add(&self, rule: &Rule) -> Result<(), Wait> {
        match rule {
            Rule::Encoding(_) if self.device.facts.wrong_encoding => self.may_encode(),
            Rule::Encoding(_)
            | Rule::Session(_)
            | Rule::DtaMap(_)
            | Rule::Sink(_)
            | Rule::Instruction(_)
            | Rule::Filter(_) => Ok(()),
            Rule::Forwarding => self.may_forward(),
            Rule::Source(_) => self.may_insert(0),
            Rule::Watch(watch) if watch.mode.embeds() => self.may_insert(watch.bits),
            Rule::Watch(_) => Ok(()),
        }
    }

    /// Checks whether a source may insert these bits: all borders are closed, and all nodes execute the bits.
    fn may_insert(&self, bits: Bits) -> Result<(), Wait> {
        let guard = self.guard;
        if guard.order.sources_wait_for_sinks {
            if guard.withdraw {
                return Err(Wait::Encoding);
            }
            if !self.device.facts.ready {
                return Err(Wait::Border(self.device.target.name.clone()));
            }
            if let Some(open) = &guard.open {
                return Err(Wait::Border(open.clone()));
            }
        }
        match &guard.lacking_at {
            Some(device) if guard.order.sources_wait_for_transits && guard.lacking & bits != 0 => {
                Err(Wait::Transit(device.clone(), guard.lacking & bits))
            }
            _ => Ok(()),
        }
    }

    /// Checks whether a device that waits after a restart may forward packets.
    fn may_forward(&self) -> Result<(), Wait> {
        if self.device.target.outside {
            return Ok(());
        }
        if !self.guard.order.forwarding_waits_for_sinks || (!self.guard.wanted && self.silent().is_ok()) {
            return Ok(());
        }
        if !self.device.facts.ready || self.device.facts.missing_bits != 0 {
            return Err(Wait::Border(self.device.target.name.clone()));
        }
        self.is_encoded()?;
        match &self.guard.open {
            Some(open) if self.silent().is_err() => Err(Wait::Border(open.clone())),
            _ => Ok(()),
        }
    }

    fn may_remove(&self, rule: &Rule, successor: Option<&Rule>) -> Result<(), Wait> {
        match rule {
            Rule::Encoding(_) => self.may_encode(),
            Rule::Sink(_) => self.may_open(),
            Rule::Session(_) if successor.is_none() => self.may_open(),
            Rule::Instruction(number) if self.guard.order.transits_wait_for_sources => {
                self.may_forget(*number)
            }
            _ => Ok(()),
        }
    }

    /// Checks whether an instruction may be removed: no packet requests it.
    fn may_forget(&self, number: u8) -> Result<(), Wait> {
        let guard = self.guard;
        if guard.possible & instruction::bit(number) != 0 {
            return Err(Wait::Sources(guard.inserter.clone().unwrap_or_default()));
        }
        let last = guard.last[usize::from(number)];
        let drained = last == 0 || self.now >= last.saturating_add(guard.timing.drain);
        if drained || !guard.order.transits_wait_for_drain {
            Ok(())
        } else {
            Err(Wait::Drain)
        }
    }

    /// Returns the change, if any, of the sink on a port to a device. It is present while that device's border is open.
    fn facing(&self, port: PortId, waits: &mut Option<Wait>) -> Option<Change> {
        let sink = Rule::Sink(port);
        let (peer, _) = self.device.target.ports.links.get(&port)?;
        let peer = self.devices.get(peer)?;
        let present = self.device.actual.as_ref()?.contains(&sink);
        let around = self.guard.wanted || self.guard.int_possible(self.now);
        if !present {
            let due = self.is_overdue(peer) || !self.device.forwards();
            return (around && !peer.facts.ready && due).then_some(Change::Add(sink));
        }
        if !around || !self.guard.order.links_wait_for_peers {
            return Some(Change::Remove(sink));
        }
        // Checking the peer alone is not enough: from it, INT continues to every ready device.
        let open = self
            .guard
            .open
            .clone()
            .or((!peer.facts.ready).then(|| peer.target.name.clone()));
        let may_remove = open
            .map_or(Ok(()), |open| Err(Wait::Border(open)))
            .and_then(|()| self.has_room())
            .and_then(|()| self.is_encoded());
        note(may_remove, waits).then_some(Change::Remove(sink))
    }

    /// Checks that no packet carries more INT than links have room for, because a new link may have a smaller MTU.
    fn has_room(&self) -> Result<(), Wait> {
        let guard = self.guard;
        let drained = guard.last_overfilled == 0
            || self.now >= guard.last_overfilled.saturating_add(guard.timing.drain);
        match &guard.overfills {
            _ if !guard.order.links_wait_for_room => Ok(()),
            Some(device) => Err(Wait::Sources(device.clone())),
            None if drained => Ok(()),
            None => Err(Wait::Drain),
        }
    }
}
