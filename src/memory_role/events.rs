//! Entries of lists, and immediates, as events of the normal path.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use collector::{
    Batch, Event, Sink,
    event::{Basis, Drop as DropRow, Kind},
};
use detect::Metric;
use dta::{Follower, Next};
use rdma::responder::Completion;
use wire::FlowKey;

use super::Memory;
use crate::{
    config::memory::{EventKind, RegionSettings},
    pipeline::{Outlet, RuleNames},
};
use dta::fields::Fields;

/// How often lists are looked at, when no immediate says that there is something.
const EVERY: Duration = Duration::from_millis(10);
/// Batches taken from one list before the next has its turn.
const TURN: usize = 64;

/// What was told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    entries: AtomicU64,
    lapped: AtomicU64,
    missing: AtomicU64,
    immediates: AtomicU64,
    immediates_shed: AtomicU64,
}

impl Told {
    /// Entries told, batches lapped, batches missing, immediates told, immediates for which nobody had time.
    pub(crate) fn read(&self) -> [u64; 5] {
        // Relaxed: counts that travel alone.
        [&self.entries, &self.lapped, &self.missing, &self.immediates, &self.immediates_shed]
            .map(|count| count.load(Ordering::Relaxed))
    }

    pub(super) fn immediate_shed(&self) {
        self.immediates_shed.fetch_add(1, Ordering::Relaxed);
    }
}

/// A list that is followed, and what its entries are.
pub(super) struct Followed {
    list: u32,
    follower: Follower,
    teller: Arc<Teller>,
}

/// How entries of a store become events.
#[derive(Debug)]
pub(crate) struct Teller {
    fields: Fields,
    kind: Kind,
    metric: Option<Metric>,
}

/// Follows lists whose entries are events, until `stop` is set and all who tell of immediates, and write, have ended: nothing that they wrote
/// is left.
pub(super) fn follow(
    mut lists: Vec<Followed>,
    memory: &Memory,
    outlet: &Outlet,
    rules: &RuleNames,
    woken: &Receiver<Completion>,
    stop: &AtomicBool,
) {
    let mut batch = outlet.batch();
    loop {
        let ending = stop.load(Ordering::Relaxed);
        let mut closed = false;
        match woken.recv_timeout(EVERY) {
            Ok(completion) => {
                immediate(memory, &completion, &mut batch);
                while let Ok(completion) = woken.try_recv() {
                    immediate(memory, &completion, &mut batch);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => closed = true,
        }
        let mut more = true;
        while more {
            more = false;
            for list in &mut lists {
                more |= take(list, memory, &mut batch);
                if batch.len() * 2 > batch.capacity() {
                    outlet.send(&mut batch, rules);
                }
            }
        }
        outlet.send(&mut batch, rules);
        if ending && closed {
            return;
        }
        // The receiving thread has ended: nothing will wake us, and waiting returns at once.
        if closed {
            std::thread::sleep(EVERY);
        }
    }
}

/// Followers of all lists whose entries are events, of what is written from now on.
pub(super) fn lists(memory: &Memory) -> Vec<Followed> {
    let mut followed = Vec::new();
    for (written, offered) in memory.settings.stores.iter().zip(&memory.offered) {
        let (Some(teller), Some(lists)) = (teller(written), offered.store.store.lists()) else { continue };
        let teller = Arc::new(teller);
        for list in lists.ids() {
            if let Some(follower) = lists.from_now(list) {
                followed.push(Followed { list, follower, teller: Arc::clone(&teller) });
            }
        }
    }
    followed
}

/// How entries of this store are told, if they are.
pub(crate) fn teller(written: &RegionSettings) -> Option<Teller> {
    let kind = match written.events? {
        EventKind::New => Kind::New,
        EventKind::Change => Kind::Change,
        EventKind::PathChange => Kind::PathChange,
        EventKind::Drop => Kind::Drop,
        EventKind::Loss => Kind::Loss,
    };
    let metric = written.metric.as_deref().and_then(Metric::from_name);
    Some(Teller { fields: written.fields.clone()?.0, kind, metric })
}

/// Takes what is there; is there more?
fn take(followed: &mut Followed, memory: &Memory, batch: &mut Batch) -> bool {
    let Followed { list, follower, teller } = followed;
    let length = follower.entry_len().max(1);
    for _ in 0..TURN {
        match follower.next() {
            Next::Batch { sequence, entries, .. } => {
                let ts = nic::time::now();
                for (index, entry) in entries.chunks_exact(length).enumerate() {
                    let id = id(*list, sequence, index, entry);
                    teller.tell(ts, id, entry, batch);
                }
                memory.told.entries.fetch_add((entries.len() / length) as u64, Ordering::Relaxed);
                if batch.len() * 2 > batch.capacity() {
                    return true;
                }
            }
            Next::Lapped { lost } => {
                memory.told.lapped.fetch_add(lost, Ordering::Relaxed);
                loss(*list, lost, follower.position(), batch);
            }
            Next::Missing { lost } => {
                memory.told.missing.fetch_add(lost, Ordering::Relaxed);
                loss(*list, lost, follower.position(), batch);
            }
            Next::Nothing | Next::Torn => return false,
        }
    }
    true
}

/// So many batches of a list were never read: an event, so that it is seen where the entries would have been.
fn loss(list: u32, lost: u64, position: u32, batch: &mut Batch) {
    let id = id(list, position, usize::MAX, &lost.to_be_bytes());
    batch.event(&Event { value: Some(lost), ..event(nic::time::now(), id, Kind::Loss) }, &[]);
}

/// A write with an immediate into what is no followed list: an event by itself. Its value is the immediate: which store, list or
/// sketch in the low 28 bits, which operation above (wire-formats 5.5).
fn immediate(memory: &Memory, completion: &Completion, batch: &mut Batch) {
    memory.told.immediates.fetch_add(1, Ordering::Relaxed);
    let followed = memory.settings.stores.iter().any(|store| {
        let list = completion.immediate & 0x0fff_ffff;
        completion.immediate >> 28 == 2
            && store.events.is_some()
            && store.lists.is_some_and(|lists| (lists.first..=lists.last).contains(&list))
    });
    if !followed {
        let ts = nic::time::now();
        let (region, at) = completion.place.unwrap_or_default();
        let id = id(completion.immediate, region.into(), at as usize, &ts.to_be_bytes());
        batch.event(&Event { value: Some(completion.immediate.into()), ..event(ts, id, Kind::Change) }, &[]);
    }
}

fn event(ts: u64, id: u64, kind: Kind) -> Event {
    Event {
        ts,
        id,
        kind,
        metric: None,
        flow: None,
        node: None,
        interface: None,
        queue: None,
        value: None,
        previous: None,
        threshold: None,
        rule: None,
        reason: None,
        basis: Basis::Measured,
    }
}

/// The same for the same entry, however often it is read (FNV-1a).
fn id(list: u32, sequence: u32, index: usize, entry: &[u8]) -> u64 {
    let place = [u64::from(list), u64::from(sequence), index as u64];
    let bytes = place.iter().flat_map(|number| number.to_be_bytes());
    bytes.chain(entry.iter().copied()).fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl Teller {
    /// Tells an entry.
    pub(crate) fn tell(&self, ts: u64, id: u64, entry: &[u8], sink: &mut impl Sink) {
        let number = |name: &str| self.fields.number(entry, name);
        let small = |name: &str| number(name).and_then(|value| u32::try_from(value).ok());
        let byte = |name: &str| number(name).and_then(|value| u8::try_from(value).ok());
        let path: Vec<u32> =
            self.fields.list(entry, "path").unwrap_or_default().iter().map(|id| *id as u32).collect();
        let event = Event {
            metric: self.metric,
            flow: self.flow(entry),
            node: small("node"),
            interface: small("interface"),
            queue: byte("queue"),
            value: number("value"),
            previous: number("previous"),
            threshold: number("threshold"),
            reason: byte("reason"),
            ..event(ts, id, self.kind)
        };
        sink.event(&event, &path);
        if self.kind == Kind::Drop {
            sink.drop_report(&DropRow {
                ts,
                id,
                flow: event.flow,
                node: event.node,
                ingress_if: small("ingress_if"),
                egress_if: small("interface"),
                queue: event.queue,
                reason: event.reason,
            });
        }
    }

    fn flow(&self, entry: &[u8]) -> Option<FlowKey> {
        let (src, dst) = (self.fields.bytes(entry, "src")?, self.fields.bytes(entry, "dst")?);
        let port = |name: &str| self.fields.number(entry, name).and_then(|port| u16::try_from(port).ok());
        let ports = port("sport").zip(port("dport"));
        let proto = self.fields.number(entry, "proto").and_then(|proto| u8::try_from(proto).ok())?;
        match (src.first_chunk::<16>(), dst.first_chunk::<16>()) {
            (Some(src), Some(dst)) => Some(FlowKey::v6(*src, *dst, ports, proto)),
            _ => Some(FlowKey::v4(*src.first_chunk::<4>()?, *dst.first_chunk::<4>()?, ports, proto)),
        }
    }
}
