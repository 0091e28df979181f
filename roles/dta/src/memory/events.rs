//! Follows Append lists and emits their entries as events of the collector. An RDMA immediate carries no measurement: it is
//! only counted, and makes the follower read its lists at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use collector::{
    Batch, Event, Output,
    event::{Basis, Drop as DropRow, Kind},
};
use detect::Metric;
use dta::{Follower, Next};
use rdma::responder::Completion;
use wire::FlowKey;

use super::Memory;
use dta::fields::Fields;
use dta::settings::RegionSettings;

/// Poll interval of lists in the absence of immediates.
const EVERY: Duration = Duration::from_millis(10);
/// Maximum number of batches read from one list before the next list's turn.
const MAX_BATCHES: usize = 64;

/// The receiver of the events: the queue to the live stream and the store.
pub trait EventSink: Send {
    /// Returns an empty batch.
    fn batch(&self) -> Batch;

    /// Sends the records of `batch`, and empties it.
    fn send(&self, batch: &mut Batch);
}

/// Counts of emitted entries and of immediates.
#[derive(Debug, Default)]
pub(crate) struct EventCounters {
    entries: AtomicU64,
    overwritten: AtomicU64,
    missing: AtomicU64,
    immediates: AtomicU64,
    immediates_dropped: AtomicU64,
}

impl EventCounters {
    /// Returns, in this order, the entries emitted, batches overwritten, batches missing, immediates received, and immediates
    /// discarded because the queue was full.
    pub(crate) fn read(&self) -> [u64; 5] {
        // Relaxed: independent counters.
        [
            &self.entries,
            &self.overwritten,
            &self.missing,
            &self.immediates,
            &self.immediates_dropped,
        ]
        .map(|count| count.load(Ordering::Relaxed))
    }

    pub(super) fn immediate_shed(&self) {
        self.immediates_dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// A list whose entries are emitted as events, and the position reached.
pub(super) struct FollowedList {
    list: u32,
    follower: Follower,
    emitter: Arc<Emitter>,
}

/// Converts the entries of a store to events.
#[derive(Debug)]
pub(crate) struct Emitter {
    fields: Fields,
    kind: Kind,
    metric: Option<Metric>,
}

/// Follows lists until `stop` is set and all senders of immediates are gone, and then emits all entries written so far.
pub(super) fn follow(
    mut lists: Vec<FollowedList>,
    memory: &Memory,
    sink: &dyn EventSink,
    woken: &Receiver<Completion>,
    stop: &AtomicBool,
) {
    let mut batch = sink.batch();
    loop {
        let ending = stop.load(Ordering::Relaxed);
        let mut closed = false;
        match woken.recv_timeout(EVERY) {
            Ok(_) => {
                let arrived = 1 + woken.try_iter().count() as u64;
                memory.reported.immediates.fetch_add(arrived, Ordering::Relaxed);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => closed = true,
        }
        let mut more = true;
        while more {
            more = false;
            for list in &mut lists {
                more |= drain(list, memory, &mut batch);
                if batch.len() * 2 > batch.capacity() {
                    sink.send(&mut batch);
                }
            }
        }
        sink.send(&mut batch);
        if ending && closed {
            return;
        }
        // Without senders `recv_timeout` returns at once, so pace the loop here.
        if closed {
            std::thread::sleep(EVERY);
        }
    }
}

/// Returns followers of all lists whose entries are events, positioned behind the newest entry.
pub(super) fn lists(memory: &Memory) -> Vec<FollowedList> {
    let mut followed = Vec::new();
    for (written, offered) in memory.settings.stores.iter().zip(&memory.offered) {
        let (Some(emitter), Some(lists)) = (emitter(written), offered.store.store.lists()) else {
            continue;
        };
        let emitter = Arc::new(emitter);
        for list in lists.ids() {
            if let Some(follower) = lists.from_now(list) {
                followed.push(FollowedList {
                    list,
                    follower,
                    emitter: Arc::clone(&emitter),
                });
            }
        }
    }
    followed
}

/// Returns the emitter of a store, or `None` if its entries are not events.
pub(crate) fn emitter(written: &RegionSettings) -> Option<Emitter> {
    let metric = written.metric.as_deref().and_then(Metric::from_name);
    Some(Emitter {
        fields: written.fields.clone()?.0,
        kind: Kind::from_name(written.events?.name())?,
        metric,
    })
}

/// Emits the available batches of a list. Returns whether there may be more.
fn drain(followed: &mut FollowedList, memory: &Memory, batch: &mut Batch) -> bool {
    let FollowedList {
        list,
        follower,
        emitter,
    } = followed;
    let length = follower.entry_len().max(1);
    for _ in 0..MAX_BATCHES {
        match follower.next() {
            Next::Batch {
                sequence, entries, ..
            } => {
                let ts = nic::time::now();
                for (index, entry) in entries.chunks_exact(length).enumerate() {
                    let id = id(*list, sequence, index, entry);
                    emitter.emit(ts, id, entry, batch);
                }
                memory
                    .reported
                    .entries
                    .fetch_add((entries.len() / length) as u64, Ordering::Relaxed);
                if batch.len() * 2 > batch.capacity() {
                    return true;
                }
            }
            Next::Overwritten { lost } => {
                memory.reported.overwritten.fetch_add(lost, Ordering::Relaxed);
                loss(*list, lost, follower.position(), batch);
            }
            Next::Missing { lost } => {
                memory.reported.missing.fetch_add(lost, Ordering::Relaxed);
                loss(*list, lost, follower.position(), batch);
            }
            Next::Nothing | Next::Torn => return false,
        }
    }
    true
}

/// Emits the loss of `lost` batches of a list as an event.
fn loss(list: u32, lost: u64, position: u32, batch: &mut Batch) {
    let id = id(list, position, usize::MAX, &lost.to_be_bytes());
    batch.event(
        &Event {
            value: Some(lost),
            ..event(nic::time::now(), id, Kind::Loss)
        },
        &[],
    );
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

/// Returns a deterministic ID of an entry (64-bit FNV-1a), so that repeated reads yield the same ID.
fn id(list: u32, sequence: u32, index: usize, entry: &[u8]) -> u64 {
    let place = [u64::from(list), u64::from(sequence), index as u64];
    let bytes = place.iter().flat_map(|number| number.to_be_bytes());
    bytes
        .chain(entry.iter().copied())
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
}

impl Emitter {
    /// Emits an entry as an event, and also as a drop report if it is a drop.
    pub(crate) fn emit(&self, ts: u64, id: u64, entry: &[u8], out: &mut impl Output) {
        let path: Vec<u32> = self
            .fields
            .list(entry, "path")
            .unwrap_or_default()
            .iter()
            .map(|id| *id as u32)
            .collect();
        let event = Event {
            metric: self.metric,
            flow: self.flow(entry),
            node: self.number(entry, "node"),
            interface: self.number(entry, "interface"),
            queue: self.number(entry, "queue"),
            value: self.number(entry, "value"),
            previous: self.number(entry, "previous"),
            threshold: self.number(entry, "threshold"),
            reason: self.number(entry, "reason"),
            ..event(ts, id, self.kind)
        };
        out.event(&event, &path);
        if self.kind == Kind::Drop {
            out.drop_report(&DropRow {
                ts,
                id,
                flow: event.flow,
                tunnel: None,
                node: event.node,
                ingress_if: self.number(entry, "ingress_if"),
                egress_if: self.number(entry, "interface"),
                queue: event.queue,
                reason: event.reason,
            });
        }
    }

    /// Returns a numeric field of `entry`, or `None` if it is absent or out of range.
    fn number<N: TryFrom<u64>>(&self, entry: &[u8], name: &str) -> Option<N> {
        self.fields.number(entry, name)?.try_into().ok()
    }

    fn flow(&self, entry: &[u8]) -> Option<FlowKey> {
        let src = self.fields.bytes(entry, "src")?;
        let dst = self.fields.bytes(entry, "dst")?;
        let ports = self.number(entry, "sport").zip(self.number(entry, "dport"));
        let proto = self.number(entry, "proto")?;
        match (src.first_chunk::<16>(), dst.first_chunk::<16>()) {
            (Some(src), Some(dst)) => Some(FlowKey::v6(*src, *dst, ports, proto)),
            _ => Some(FlowKey::v4(
                *src.first_chunk::<4>()?,
                *dst.first_chunk::<4>()?,
                ports,
                proto,
            )),
        }
    }
}
