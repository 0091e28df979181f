//! The aggregator role: receives INT postcards on a UDP socket, aggregates them, and sends the aggregates to the collectors
//! over UDP. A single thread receives, aggregates and sends; it publishes its counters for the API.

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
/// Interval at which the counters are published, ns.
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

/// Returns the last published counters, which are complete even after a panic, because they are replaced as a whole.
pub fn view(handle: &Handle) -> AggregatorView {
    lock(handle).clone()
}

impl Ready {
    /// Opens the sockets and allocates the registers. `profile` selects the decoder of the postcards.
    ///
    /// # Errors
    /// A port is in use, a destination has no route, or the settings are invalid.
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

    /// Starts the aggregator's thread.
    ///
    /// # Errors
    /// The system cannot start a thread.
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
    /// Returns a handle to the published counters, for the API.
    pub fn handle(&self) -> Handle {
        Arc::clone(&self.shared)
    }

    /// Returns the local address on which postcards arrive.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn error(error: impl std::fmt::Display) -> CliError {
    CliError::new(format!("[aggregator]: {error}"))
}

impl Drop for Role {
    /// Stops the thread, which sends the pending postcards before it ends.
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
    /// Allowed senders; `None` allows every sender.
    senders: Option<Senders>,
    /// Datagrams from senders that are not allowed.
    not_allowed: u64,
    aggregator: Aggregator,
    destinations: AggregateSenders,
    /// Datagrams truncated to the slot size of the receive burst.
    cut: u64,
    /// Time of the last publication, ns of the monotonic clock.
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

    /// Returns how long to wait for datagrams, ms: until the next register's deadline, but at most [`SLEEP`]. It is rounded
    /// up, because the socket's timeout has a resolution of 1 ms and 0 would mean polling.
    fn timeout(&self) -> u32 {
        let Some(deadline) = self.aggregator.deadline() else {
            return SLEEP;
        };
        let remaining = deadline.saturating_sub(nic::time::monotonic());
        u32::try_from(remaining.div_ceil(1_000_000))
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

/// A destination with the datagrams queued for it.
#[derive(Debug)]
struct AggregateSender {
    sender: Sender,
    /// Payloads of the queued datagrams, concatenated.
    bytes: Vec<u8>,
    /// End of each payload in `bytes`.
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

    /// Passes the queued datagrams to the kernel. Blocks while the socket's buffer is full. Counts and skips refused ones.
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

    /// Counts the refused datagram at `first` and returns the index of the next one.
    fn refused(&mut self, first: usize, errno: Option<i32>) -> usize {
        /// Linux error numbers for lack of memory: `ENOBUFS`, `ENOMEM` and `EAGAIN`.
        const NO_ROOM: [i32; 3] = [105, 12, 11];
        if errno.is_some_and(|errno| NO_ROOM.contains(&errno)) {
            self.counts.no_buffers += 1;
        } else {
            self.counts.failed += 1;
        }
        first + 1
    }
}

/// Returns the payload at `index` of the concatenated `bytes`, or an empty slice beyond the last.
fn payload<'a>(bytes: &'a [u8], ends: &[usize], index: usize) -> &'a [u8] {
    let Some(end) = ends.get(index) else { return &[] };
    let start = index
        .checked_sub(1)
        .and_then(|before| ends.get(before))
        .copied()
        .unwrap_or(0);
    bytes.get(start..*end).unwrap_or(&[])
}

/// All destinations; the aggregator addresses them by index.
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
