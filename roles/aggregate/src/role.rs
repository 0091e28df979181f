//! The aggregator role: postcards from a UDP socket through the aggregator to UDP sockets. One thread does everything, and
//! publishes its counters for the others.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use aggregator::{Aggregator, Cause, Output, RefusalReason, Stats};
use collector::Senders;
use nic::udp::{Burst, JUMBO_SLOT_SIZE, Options, Receiver, Sender};
use view::NamedCounts;
use wire::{Profile, Refusal};

use crate::settings::AggregatorSettings;
use crate::view::{AggregatorView, ForwardView, SentView};
use runtime::{
    control::{Control, StoppableThread},
    lock::lock,
};
use settings::listen::Listen;
use terminal::CliError;

/// Maximum datagrams per receive or send call.
const BURST: usize = 64;
/// Longest sleep, ms, which bounds the time to notice a stop and the age of the published counters.
const SLEEP: u32 = 50;
/// Time between two publications, ns.
const PUBLISH: u64 = 50_000_000;

/// An aggregator with its sockets open, before its thread starts.
#[derive(Debug)]
pub struct Ready {
    settings: AggregatorSettings,
    receiver: Receiver,
    aggregator: Aggregator,
    destinations: AggregateSenders,
}

/// A running aggregator with its thread.
#[derive(Debug)]
pub struct Role {
    shared: Arc<Mutex<AggregatorView>>,
    address: SocketAddr,
    thread: StoppableThread,
}

/// The published counters, for the API.
pub type Handle = Arc<Mutex<AggregatorView>>;

/// The last published counters. A thread that panicked left a complete value.
pub fn view(handle: &Handle) -> AggregatorView {
    lock(handle).clone()
}

impl Ready {
    /// Opens sockets and allocates registers. `profile` decodes the postcards.
    ///
    /// # Errors
    /// A port in use, no route, or invalid settings.
    pub fn open(settings: &AggregatorSettings, profile: Profile) -> Result<Self, CliError> {
        let aggregator = Aggregator::new(settings.config(profile)).map_err(error)?;
        let recv_buffer = usize::try_from(settings.receive_buffer.0).unwrap_or(usize::MAX);
        let options = Options {
            recv_buffer,
            ..Options::default()
        };
        let receiver = match &settings.listen {
            Listen::Udp(address) => Receiver::bind(*address, &options).map_err(error)?,
            other => {
                let port = other.ports().first().copied().unwrap_or_default();
                Receiver::bind_any(port, None, &options).map_err(error)?
            }
        };
        if let Some(warning) = receiver.warning() {
            tracing::warn!(warning, "the socket works with a limit");
        }
        let destinations = settings
            .forward
            .iter()
            .map(|to| AggregateSender::open(*to))
            .collect::<Result<_, _>>();
        let destinations = AggregateSenders(destinations.map_err(error)?);
        Ok(Self {
            settings: settings.clone(),
            receiver,
            aggregator,
            destinations,
        })
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(self, control: &Control) -> Result<Role, CliError> {
        let address = self.receiver.local_addr();
        let Self {
            settings,
            receiver,
            aggregator,
            destinations,
        } = self;
        let senders = Senders::of_prefixes(&settings.allow);
        let mut worker = Worker {
            settings,
            receiver,
            senders,
            not_allowed: 0,
            aggregator,
            destinations,
            cut: 0,
            published: 0,
        };
        let shared = Arc::new(Mutex::new(worker.view()));
        let published = Arc::clone(&shared);
        let failed = control.clone();
        let thread = control.spawn_stoppable("aggregator", move |stop| {
            if let Err(error) = worker.work(&stop, &published) {
                failed.failed(format!("the aggregator failed: {error}"));
            }
        })?;
        Ok(Role {
            shared,
            address,
            thread,
        })
    }
}

impl Role {
    /// The published counters, for the API.
    pub fn handle(&self) -> Handle {
        Arc::clone(&self.shared)
    }

    /// The address that receives postcards.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn error(error: impl std::fmt::Display) -> CliError {
    CliError::new(format!("[aggregator]: {error}"))
}

impl Drop for Role {
    /// Sends the pending postcards.
    fn drop(&mut self) {
        self.thread.stop();
        let Stats { postcards, .. } = view(&self.shared).stats;
        let sent: u64 = view(&self.shared)
            .forward
            .iter()
            .map(|sender| sender.datagrams)
            .sum();
        tracing::info!(postcards, aggregates = sent, "the aggregator stopped");
    }
}

/// State of the aggregator's thread.
struct Worker {
    settings: AggregatorSettings,
    receiver: Receiver,
    /// Who may send; `None`: everyone.
    senders: Option<Senders>,
    /// Datagrams of other senders.
    not_allowed: u64,
    aggregator: Aggregator,
    destinations: AggregateSenders,
    /// Datagrams that were longer than a slot.
    cut: u64,
    published: u64,
}

impl Worker {
    fn work(&mut self, stop: &AtomicBool, shared: &Mutex<AggregatorView>) -> Result<(), nic::Error> {
        let mut burst = Burst::new(BURST, JUMBO_SLOT_SIZE);
        let mut failed = None;
        while !stop.load(Ordering::Relaxed) {
            let wait = self.timeout();
            if let Err(error) = self.receiver.recv(&mut burst, wait) {
                failed = Some(error);
                break;
            }
            let now = nic::time::monotonic();
            self.cut += burst.iter().filter(|packet| packet.truncated).count() as u64;
            self.ingest(now, &burst);
            self.destinations.flush();
            if now.saturating_sub(self.published) >= PUBLISH {
                self.published = now;
                self.publish(shared);
            }
        }
        self.aggregator.finish(&mut self.destinations);
        self.destinations.flush();
        self.publish(shared);
        failed.map_or(Ok(()), Err)
    }

    fn ingest(&mut self, now: u64, burst: &Burst) {
        let Self {
            senders,
            not_allowed,
            aggregator,
            destinations,
            ..
        } = self;
        let allowed = burst.iter().filter(|packet| {
            let is_allowed = senders
                .as_ref()
                .is_none_or(|senders| senders.contains(packet.source.ip()));
            *not_allowed += u64::from(!is_allowed);
            is_allowed
        });
        aggregator.ingest(now, allowed.map(|packet| packet.data), destinations);
    }

    /// Time to wait for datagrams, ms: until the next deadline of a register, at most [`SLEEP`]. Rounded up, because the
    /// socket's timeout has a resolution of 1 ms.
    fn timeout(&self) -> u32 {
        let Some(deadline) = self.aggregator.deadline() else {
            return SLEEP;
        };
        let left = deadline.saturating_sub(nic::time::monotonic());
        u32::try_from(left.div_ceil(1_000_000))
            .unwrap_or(SLEEP)
            .min(SLEEP)
    }

    fn publish(&mut self, shared: &Mutex<AggregatorView>) {
        let view = self.view();
        *lock(shared) = view;
    }

    fn view(&mut self) -> AggregatorView {
        let mut stats = self.aggregator.stats();
        stats.datagrams += self.not_allowed;
        stats.unreadable[Refusal::SenderNotAllowed.index()] += self.not_allowed;
        let received = self.receiver.stats();
        let settings = &self.settings;
        let unreadable = Refusal::ALL.map(|refusal| (refusal.name(), stats.unreadable[refusal.index()]));
        let refused = RefusalReason::ALL.map(|reason| (reason.name(), stats.refused[reason as usize]));
        let sent = Cause::ALL.map(|cause| {
            let sent = stats.sent[cause as usize];
            (
                cause.name(),
                SentView {
                    datagrams: sent.aggregates,
                    postcards: sent.postcards,
                },
            )
        });
        AggregatorView {
            listen: self.receiver.local_addr().to_string(),
            kind: settings.kind.name().into(),
            r: settings.r,
            interop: settings.interop,
            registers: self.aggregator.config().registers,
            bytes: self.aggregator.config().bytes(),
            datagrams: stats.datagrams,
            kernel_drops: received.kernel_drops,
            cut: self.cut,
            reports: stats.reports,
            unreadable: NamedCounts::nonzero(unreadable),
            refused: NamedCounts::nonzero(refused),
            postcards: stats.postcards,
            pending: stats.pending,
            occupied: stats.occupied,
            sent: sent
                .into_iter()
                .map(|(cause, sent)| (cause.into(), sent))
                .collect(),
            missing_values: stats.missing_values,
            balanced: stats.is_balanced(),
            forward: self
                .destinations
                .0
                .iter()
                .map(|sender| sender.counts.clone())
                .collect(),
            nodes: self.aggregator.nodes().copied().collect(),
            nodes_full: stats.nodes_full,
            stats,
        }
    }
}

/// A destination, and the datagrams that wait to be sent to it.
#[derive(Debug)]
struct AggregateSender {
    sender: Sender,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    counts: ForwardView,
}

impl AggregateSender {
    fn open(to: SocketAddr) -> Result<Self, nic::Error> {
        let any = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
        let from = any.parse().unwrap_or(to);
        Ok(Self {
            sender: Sender::connect(from, to)?,
            bytes: Vec::with_capacity(BURST << 11),
            ends: Vec::with_capacity(BURST),
            counts: ForwardView {
                to: to.to_string(),
                ..ForwardView::default()
            },
        })
    }

    /// Passes the waiting datagrams to the kernel; blocks while the socket's buffer is full. Refused datagrams are counted and skipped.
    fn flush(&mut self) {
        let mut first = 0;
        while first < self.ends.len() {
            let payloads: [&[u8]; BURST] =
                std::array::from_fn(|at| payload(&self.bytes, &self.ends, first + at));
            let count = self.ends.len() - first;
            match self.sender.send_burst(&payloads[..count]) {
                Ok(0) => first = self.refused(first, None),
                Ok(sent) => {
                    let bytes: usize = payloads[..sent].iter().map(|payload| payload.len()).sum();
                    self.counts.datagrams += sent as u64;
                    self.counts.bytes += bytes as u64;
                    first += sent;
                }
                Err(error) => first = self.refused(first, error.errno()),
            }
        }
        self.ends.clear();
        self.bytes.clear();
    }

    fn refused(&mut self, first: usize, errno: Option<i32>) -> usize {
        /// `ENOBUFS`, `ENOMEM` and `EAGAIN` of Linux.
        const NO_ROOM: [i32; 3] = [105, 12, 11];
        if errno.is_some_and(|errno| NO_ROOM.contains(&errno)) {
            self.counts.no_buffers += 1;
        } else {
            self.counts.failed += 1;
        }
        first + 1
    }
}

/// The payload with this index; `bytes` are all payloads, concatenated.
fn payload<'a>(bytes: &'a [u8], ends: &[usize], index: usize) -> &'a [u8] {
    let Some(end) = ends.get(index) else { return &[] };
    let start = index
        .checked_sub(1)
        .and_then(|before| ends.get(before))
        .copied()
        .unwrap_or(0);
    bytes.get(start..*end).unwrap_or(&[])
}

/// All destinations, by their index.
#[derive(Debug)]
struct AggregateSenders(Vec<AggregateSender>);

impl AggregateSenders {
    fn flush(&mut self) {
        self.0.iter_mut().for_each(AggregateSender::flush);
    }
}

impl Output for AggregateSenders {
    fn send(&mut self, destination: usize, payload: &[u8]) {
        let Some(sender) = self.0.get_mut(destination) else {
            return;
        };
        sender.bytes.extend_from_slice(payload);
        sender.ends.push(sender.bytes.len());
        if sender.ends.len() == BURST {
            sender.flush();
        }
    }
}
