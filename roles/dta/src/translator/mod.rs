//! The DTA translator role: receives DTA reports from UDP sockets, translates them to RDMA operations on collectors' memory,
//! and sends these as RoCEv2 packets or through an RDMA device. One thread does this; another thread per collector keeps its
//! exchange connection.

mod intercepted;
mod links;
pub mod settings;
mod transport;
mod upstream;
mod verbs;
pub mod view;

use std::{
    net::SocketAddr,
    os::fd::AsFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use collector::Senders;
use nic::{
    frames::PollFds,
    udp::{Burst, JUMBO_SLOT_SIZE, Options, Receiver, SendOutcome},
};
use translator::{Output, Translator};
use wire::roce::{self, Endpoints};

use crate::exchange::secret::SecretFile;
use intercepted::{Intercepted, Stage};
use links::{Context, Peers};
use runtime::{
    control::{Control, StoppableThread},
    intercept::TranslatorEnd,
    lock::lock,
};
use settings::{TranslatorSettings, TransportMode};
use terminal::CliError;
use transport::RdmaTransport;
use upstream::Upstream;
use view::TranslatorView;

/// Maximum number of datagrams per receive call.
const BURST: usize = 128;
/// Longest sleep, which bounds the delay of link events and of a stop.
const SLEEP: Duration = Duration::from_millis(20);
/// Interval of publications, ns.
const PUBLISH: u64 = 50_000_000;
/// Interval between attempts to hand replies to a switch that has not accepted the last ones.
const RETRY: Duration = Duration::from_millis(1);
/// Longest time for flushing buffers at the stop, ns.
const FLUSH_TIMEOUT: u64 = 1_000_000_000;

/// A translator with its sockets open, before its threads start.
#[derive(Debug)]
pub struct Ready {
    settings: TranslatorSettings,
    reports: Vec<Reports>,
    translator: Translator,
    /// The RDMA transport; `None` until the RDMA device is opened.
    links: Option<RdmaTransport>,
    upstream: Option<Upstream>,
    intercepted: Option<Intercepted>,
    secrets: Secrets,
}

/// The secrets by collector; `None` without a secret.
type Secrets = Vec<Option<Arc<SecretFile>>>;

/// The handle of the running translator role.
#[derive(Debug)]
pub struct Role {
    shared: Handle,
    addresses: Vec<SocketAddr>,
    secrets: Secrets,
    thread: StoppableThread,
}

/// The published view, for the API.
pub type Handle = Arc<Mutex<TranslatorView>>;

/// Returns the last published view.
pub fn view(handle: &Handle) -> TranslatorView {
    lock(handle).clone()
}

/// The socket that receives a collector's reports.
#[derive(Debug)]
struct Reports {
    receiver: Receiver,
    /// Datagrams that were longer than a receive slot.
    cut: u64,
    /// Outcome of replies sent to reporters.
    sent: SendOutcome,
}

impl Ready {
    /// Opens the sockets for reports, and allocates the tables. `intercept` connects to the switch that intercepts reports.
    ///
    /// # Errors
    /// A port is in use, or the settings are unusable.
    pub fn open(settings: &TranslatorSettings, intercept: Option<TranslatorEnd>) -> Result<Self, CliError> {
        let recv_buffer = usize::try_from(settings.receive_buffer.0).unwrap_or(usize::MAX);
        let options = Options {
            recv_buffer,
            ..Options::default()
        };
        let secrets = settings
            .collectors
            .iter()
            .map(|collector| SecretFile::open(settings.secret_file(collector)));
        let secrets = secrets.collect::<Result<_, _>>()?;
        let mut reports = Vec::new();
        for address in settings.listens() {
            let receiver = Receiver::bind(address, &options).map_err(error)?;
            if let Some(warning) = receiver.warning() {
                tracing::warn!("{warning}");
            }
            reports.push(Reports {
                receiver,
                cut: 0,
                sent: SendOutcome::default(),
            });
        }
        let translator = Translator::new(settings.config()).map_err(error)?;
        // The device is opened last; see `open_device`.
        let links = (settings.mode != TransportMode::Verbs)
            .then(|| RdmaTransport::open(settings))
            .transpose()?;
        let upstream = settings.upstream.as_ref();
        let upstream = upstream
            .map(|upstream| Upstream::open(upstream, nic::time::now()))
            .transpose()?;
        let intercepted = intercept.map(|end| Intercepted::new(end, settings.intercepted()));
        Ok(Self {
            settings: settings.clone(),
            reports,
            translator,
            links,
            upstream,
            intercepted,
            secrets,
        })
    }

    /// Opens the RDMA device, if one is configured. Linux ties a device to the credentials of the thread that opened it, so
    /// this must come after dropping the privileges that the sockets needed.
    ///
    /// # Errors
    /// There is no such device, or it cannot be opened.
    pub fn open_device(&mut self) -> Result<(), CliError> {
        if self.links.is_none() {
            self.links = Some(RdmaTransport::open(&self.settings)?);
        }
        Ok(())
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(self, control: &Control) -> Result<Role, CliError> {
        let Self {
            settings,
            reports,
            translator,
            links,
            upstream,
            intercepted,
            secrets,
        } = self;
        let links = links.map_or_else(|| RdmaTransport::open(&settings), Ok)?;
        let addresses: Vec<_> = reports
            .iter()
            .map(|reports| reports.receiver.local_addr())
            .collect();
        let peers = Peers::start(&settings, &secrets, control)?;
        let senders = Senders::of_prefixes(&settings.allow);
        let mut worker = Worker {
            settings,
            senders,
            not_allowed: 0,
            reports,
            translator,
            links,
            upstream,
            intercepted,
            peers,
            messages: Messages::default(),
            published: 0,
            offset: nic::time::now().saturating_sub(nic::time::monotonic()),
        };
        let shared = Arc::new(Mutex::new(worker.view()));
        let published = Arc::clone(&shared);
        let failed = control.clone();
        let thread = control.spawn_stoppable("translator", move |stop| {
            if let Err(error) = worker.work(&stop, &published) {
                failed.failed(format!("the translator failed: {error}"));
            }
        })?;
        Ok(Role {
            shared,
            addresses,
            secrets,
            thread,
        })
    }
}

fn error(error: impl std::fmt::Display) -> CliError {
    CliError::new(format!("[translator]: {error}"))
}

impl Role {
    /// Returns the published view, for the API.
    pub fn handle(&self) -> Handle {
        Arc::clone(&self.shared)
    }

    /// Iterates over the secrets shared with collectors.
    pub fn secrets(&self) -> impl Iterator<Item = &Arc<SecretFile>> {
        self.secrets.iter().flatten()
    }

    /// Returns the addresses that receive reports, by collector.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Drop for Role {
    /// Stops the thread, which flushes its buffers as far as the collectors grant credit, and logs what is lost.
    fn drop(&mut self) {
        self.thread.stop();
        let view = view(&self.shared);
        let unacknowledged: u64 = view
            .collectors
            .iter()
            .map(|collector| collector.unacknowledged)
            .sum();
        if view.queued + view.entries.buffered + view.postcards.buffered + unacknowledged > 0 {
            tracing::warn!(
                "lost at the stop: {} reports that waited, {} buffered entries, {} buffered postcards, \
                 and {unacknowledged} operations that were not acknowledged",
                view.queued,
                view.entries.buffered,
                view.postcards.buffered
            );
        }
        tracing::info!(
            reports = view.reports,
            operations = view.writes + view.fetch_adds,
            "the translator stopped"
        );
    }
}

/// State of the translator's thread.
struct Worker {
    settings: TranslatorSettings,
    /// Allowed senders of reports; `None` admits everyone.
    senders: Option<Senders>,
    /// Number of datagrams from other senders.
    not_allowed: u64,
    /// Sockets that receive reports, by collector.
    reports: Vec<Reports>,
    translator: Translator,
    links: RdmaTransport,
    upstream: Option<Upstream>,
    intercepted: Option<Intercepted>,
    peers: Peers,
    messages: Messages,
    published: u64,
    /// Wall clock minus monotonic clock at the start, ns. The entries of triggers need wall-clock times.
    offset: u64,
}

impl Worker {
    /// Returns a monotonic time close to the wall clock, ns since the epoch.
    fn now(&self) -> u64 {
        nic::time::monotonic() + self.offset
    }

    /// Translates until the stop, then flushes the buffers.
    fn work(&mut self, stop: &AtomicBool, shared: &Mutex<TranslatorView>) -> Result<(), nic::Error> {
        let mut burst = Burst::new(BURST, JUMBO_SLOT_SIZE);
        let mut poll_fds = PollFds::default();
        let mut outcome = Ok(());
        while !stop.load(Ordering::Relaxed) {
            if let Err(error) = self.poll(&mut burst, &mut poll_fds) {
                outcome = Err(error);
                break;
            }
            self.publish_when_due(shared);
        }
        // After a stop or failure, flush the buffers until everything is acknowledged or the time is up.
        self.process_intercepted();
        let end = self.now() + FLUSH_TIMEOUT;
        while self.now() < end {
            let now = self.now();
            let finished = self.translator.finish(now, &mut self.links);
            self.links.tick(now);
            self.send(now);
            if self.process_responses(&mut burst).is_err()
                || finished && self.peers.all_acknowledged(&self.links)
            {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some(intercepted) = &mut self.intercepted {
            intercepted.close();
        }
        *lock(shared) = self.view();
        outcome
    }

    /// Waits for datagrams or a deadline, and processes whatever is due.
    fn poll(&mut self, burst: &mut Burst, poll_fds: &mut PollFds) -> Result<(), nic::Error> {
        let timeout = self.poll_timeout();
        let descriptors = self.reports.iter().map(|reports| reports.receiver.as_fd());
        let descriptors = descriptors.chain(self.upstream.as_ref().map(Upstream::control));
        let descriptors = descriptors.chain(self.intercepted.as_ref().map(Intercepted::as_fd));
        nic::frames::wait(descriptors.chain(self.peers.descriptors()), poll_fds, timeout)?;
        let now = self.now();
        let settings = &self.settings;
        let translator = &mut self.translator;
        let links = &mut self.links;
        self.peers.handle_events(&mut Context {
            now,
            settings,
            translator,
            links,
        });
        for collector in 0..self.reports.len() {
            self.process_reports(collector, burst)?;
        }
        self.process_intercepted();
        self.process_responses(burst)?;
        let now = self.now();
        self.translator.tick(now, &mut self.links);
        if let Some(upstream) = &mut self.upstream {
            upstream.poll(now, &self.translator);
        }
        self.links.tick(now);
        self.send(now);
        self.peers.reconnect_broken(&mut self.links);
        self.send_messages();
        Ok(())
    }

    /// Returns the time to wait for datagrams: until the next deadline, at most [`SLEEP`].
    fn poll_timeout(&self) -> Duration {
        let upstream = self.upstream.as_ref().and_then(Upstream::deadline);
        let due = [self.translator.deadline(), self.links.deadline(), upstream]
            .into_iter()
            .flatten()
            .min();
        let wait = due.map_or(u64::MAX, |due| due.saturating_sub(self.now()));
        let is_pending = self.intercepted.as_ref().is_some_and(Intercepted::is_pending);
        Duration::from_nanos(wait).min(if is_pending { RETRY } else { SLEEP })
    }

    /// Processes the reports received for one collector.
    fn process_reports(&mut self, collector: usize, burst: &mut Burst) -> Result<(), nic::Error> {
        let now = self.now();
        let Some(reports) = self.reports.get_mut(collector) else {
            return Ok(());
        };
        if reports.receiver.recv(burst, 0)? == 0 {
            return Ok(());
        }
        reports.cut += burst.iter().filter(|packet| packet.truncated).count() as u64;
        let Self {
            senders,
            not_allowed,
            translator,
            links,
            messages,
            ..
        } = self;
        let allowed = burst.iter().filter(|packet| {
            let is_allowed = senders
                .as_ref()
                .is_none_or(|senders| senders.contains(packet.source.ip()));
            *not_allowed += u64::from(!is_allowed);
            is_allowed
        });
        let payloads = allowed.map(|packet| (packet.source, packet.data));
        translator.process_burst(now, collector as u8, payloads, links, messages);
        self.send(now);
        Ok(())
    }

    /// Processes the reports that the switch intercepted.
    fn process_intercepted(&mut self) {
        let now = self.now();
        let Self {
            settings,
            senders,
            not_allowed,
            translator,
            links,
            intercepted: Some(intercepted),
            ..
        } = self
        else {
            return;
        };
        let control_port = settings.control_port;
        let senders = senders.as_ref();
        intercepted.process(Stage {
            now,
            control_port,
            senders,
            not_allowed,
            translator,
            links,
        });
        self.send(now);
    }

    /// Processes the responses from collectors (ACKs, NAKs, atomic results).
    fn process_responses(&mut self, burst: &mut Burst) -> Result<(), nic::Error> {
        let now = self.now();
        for socket in self.peers.sockets() {
            if socket.recv(burst, 0)? == 0 {
                continue;
            }
            let destination = socket.local_addr().ip();
            for packet in burst.iter() {
                let ends = Endpoints {
                    source: packet.source.ip(),
                    destination,
                    source_port: packet.source.port(),
                };
                match (roce::Packet::parse_udp(packet.data, ends), self.links.frames()) {
                    (Ok(response), Some(links)) => links.receive(now, &response),
                    (Ok(_), None) => {}
                    (Err(refusal), _) => self.messages.unreadable[refusal.index()] += 1,
                }
            }
        }
        self.send(now);
        Ok(())
    }

    /// Sends all frames for which there is credit.
    fn send(&mut self, now: u64) {
        let Some(links) = self.links.frames() else { return };
        while links.flush(now) > 0 {
            self.peers.send(links.frames());
            links.sent();
        }
    }

    /// Sends replies to reporters, from the address that received their reports.
    fn send_messages(&mut self) {
        let port = self.settings.control_port;
        for (collector, reports) in self.reports.iter_mut().enumerate() {
            let replies = self.messages.to_reporters_of(collector);
            let replies = replies.map(|(to, payload)| (reporter_address(to, port), payload));
            let sent = reports.receiver.send(replies);
            reports.sent.sent += sent.sent;
            reports.sent.failed += sent.failed + sent.no_buffers;
        }
        self.messages.clear();
    }

    fn publish_when_due(&mut self, shared: &Mutex<TranslatorView>) {
        let now = self.now();
        if now.saturating_sub(self.published) >= PUBLISH {
            self.published = now;
            let view = self.view();
            *lock(shared) = view;
        }
    }
}

/// Returns the address for a reporter's replies: `port` at the reporter, or if `port` is 0 the source of its reports.
fn reporter_address(reporter: SocketAddr, port: u16) -> SocketAddr {
    if port == 0 {
        reporter
    } else {
        SocketAddr::new(reporter.ip(), port)
    }
}

/// A reply to a reporter.
#[derive(Debug)]
struct Reply {
    /// Offset of the end of its bytes.
    end: usize,
    to: SocketAddr,
    /// Index of the collector.
    collector: u8,
}

/// Replies to reporters that have not been sent yet, concatenated.
#[derive(Debug, Default)]
struct Messages {
    bytes: Vec<u8>,
    replies: Vec<Reply>,
    /// Datagrams on the response sockets that are not valid responses, by reason.
    unreadable: wire::RefusalCounts,
}

impl Output for Messages {
    fn control(&mut self, to: SocketAddr, collector: u8, payload: &[u8]) {
        self.bytes.extend_from_slice(payload);
        self.replies.push(Reply {
            end: self.bytes.len(),
            to,
            collector,
        });
    }
}

impl Messages {
    /// Iterates over the replies to reporters of one collector.
    fn to_reporters_of(&self, collector: usize) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        let starts = std::iter::once(0).chain(self.replies.iter().map(|reply| reply.end));
        starts
            .zip(&self.replies)
            .filter(move |(_, reply)| usize::from(reply.collector) == collector)
            .map(|(start, reply)| (reply.to, &self.bytes[start..reply.end]))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.replies.clear();
    }
}
