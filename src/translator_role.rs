//! The DTA translator's role: reports from UDP sockets, RoCEv2 out of others and answers back, and a link to every collector's
//! exchange. One thread does all of it; each link's TCP connection has one of its own.

mod links;
mod transport;
mod verbs;
pub(crate) mod view;

use std::{
    net::SocketAddr,
    os::fd::AsFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::channel,
    },
    thread::JoinHandle,
    time::Duration,
};

use nic::{
    frames::PollFds,
    udp::{Answered, Burst, JUMBO_SLOT_SIZE, Options, Receiver},
};
use translator::{Out, Translator};
use wire::roce::{Ends, Packet};

use crate::{
    config::translator::{TranslatorSettings, TransportMode},
    control::Control,
    exchange::secret::SecretFile,
};
use links::{Parts, Peers};
use terminal::CliError;
use transport::RdmaTransport;
use view::TranslatorView;

/// Datagrams taken from a socket at once.
const BURST: usize = 128;
/// Longest sleep: how soon news of links, and a stop, are noticed.
const SLEEP: Duration = Duration::from_millis(20);
/// Time between two publications, ns.
const PUBLISH: u64 = 50_000_000;
/// Time for what is held to go out at the end, ns.
const LAST: u64 = 1_000_000_000;

/// A translator that was set up: its sockets are open.
pub(crate) struct Ready {
    settings: TranslatorSettings,
    reports: Vec<Reports>,
    translator: Translator,
    /// None: a device, which is still to be opened.
    links: Option<RdmaTransport>,
    secrets: Secrets,
}

/// Of each collector, if it has one.
type Secrets = Vec<Option<Arc<SecretFile>>>;

/// A translator at work.
#[derive(Debug)]
pub(crate) struct Role {
    shared: Handle,
    addresses: Vec<SocketAddr>,
    secrets: Secrets,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What it counted, for others.
pub(crate) type Handle = Arc<Mutex<TranslatorView>>;

/// The last that was published. A thread that died left a whole value.
pub(crate) fn view(handle: &Handle) -> TranslatorView {
    handle.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The socket of a collector's reports.
struct Reports {
    receiver: Receiver,
    /// Datagrams that were longer than a slot.
    cut: u64,
    /// Messages to reporters.
    said: Answered,
}

impl Ready {
    /// Opens the sockets of reports and allocates tables.
    ///
    /// # Errors
    /// A port in use, settings that cannot be used.
    pub(crate) fn open(settings: &TranslatorSettings) -> Result<Self, CliError> {
        let wrong = |error: &dyn std::fmt::Display| CliError::new(format!("[translator]: {error}"));
        let recv_buffer = usize::try_from(settings.receive_buffer.0).unwrap_or(usize::MAX);
        let options = Options { recv_buffer, ..Options::default() };
        let secrets =
            settings.collectors.iter().map(|collector| SecretFile::open(settings.secret_file(collector)));
        let secrets = secrets.collect::<Result<_, _>>()?;
        let mut reports = Vec::new();
        for address in settings.listens() {
            let receiver = Receiver::bind(address, &options).map_err(|error| wrong(&error))?;
            if let Some(warning) = receiver.warning() {
                tracing::warn!("{warning}");
            }
            reports.push(Reports { receiver, cut: 0, said: Answered::default() });
        }
        let translator = Translator::new(settings.config()).map_err(|error| wrong(&error))?;
        // A device comes last: see `open_device`.
        let links =
            (settings.mode != TransportMode::Verbs).then(|| RdmaTransport::open(settings)).transpose()?;
        Ok(Self { settings: settings.clone(), reports, translator, links, secrets })
    }

    /// Opens the device, if there is to be one. The system lets it be used only by threads with the very credentials of the one that opened
    /// it, while the sockets of reports take privileges that are given up before.
    ///
    /// # Errors
    /// There is no such device, or it cannot be opened.
    pub(crate) fn open_device(&mut self) -> Result<(), CliError> {
        if self.links.is_none() {
            self.links = Some(RdmaTransport::open(&self.settings)?);
        }
        Ok(())
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// The system has no thread for us.
    pub(crate) fn start(self, control: &Control) -> Result<Role, CliError> {
        let Self { settings, reports, translator, links, secrets } = self;
        let links = links.map_or_else(|| RdmaTransport::open(&settings), Ok)?;
        let addresses: Vec<_> = reports.iter().map(|reports| reports.receiver.local_addr()).collect();
        let (news, told) = channel();
        let peers = Peers::start(&settings, &secrets, (news, told), control)?;
        let mut worker = Worker {
            settings,
            reports,
            translator,
            links,
            peers,
            said: Said::default(),
            published: 0,
            offset: nic::time::now().saturating_sub(nic::time::monotonic()),
        };
        let shared = Arc::new(Mutex::new(worker.view()));
        let stop = Arc::new(AtomicBool::new(false));
        let (published, stopped, failed) = (Arc::clone(&shared), Arc::clone(&stop), control.clone());
        let work = move || {
            if let Err(error) = worker.work(&stopped, &published) {
                failed.failed(format!("the translator cannot go on: {error}"));
            }
        };
        Ok(Role { shared, addresses, secrets, stop, thread: Some(control.spawn("translator", work)?) })
    }
}

impl Role {
    /// Where what it counted is.
    pub(crate) fn handle(&self) -> Handle {
        Arc::clone(&self.shared)
    }

    /// The secrets that it shares with collectors.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Arc<SecretFile>> {
        self.secrets.iter().flatten()
    }

    /// Where reports for each collector come to.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Drop for Role {
    /// Writes what is held, as far as the collectors take it.
    fn drop(&mut self) {
        // Relaxed: the flag carries nothing but itself; joining the thread orders everything else.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so already.
            let _ = thread.join();
        }
        let view = view(&self.shared);
        let unacknowledged: u64 = view.collectors.iter().map(|collector| collector.unacknowledged).sum();
        if view.waiting + view.entries.buffered + view.postcards.buffered + unacknowledged > 0 {
            tracing::warn!(
                "lost at the stop: {} reports that waited, {} buffered entries, {} buffered postcards, \
                 and {unacknowledged} operations that were not acknowledged",
                view.waiting,
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

/// The thread's own.
struct Worker {
    settings: TranslatorSettings,
    /// By collector.
    reports: Vec<Reports>,
    translator: Translator,
    links: RdmaTransport,
    peers: Peers,
    said: Said,
    published: u64,
    /// From the clock that never goes back to the wall's, as it was at the start: entries of triggers carry the time.
    offset: u64,
}

impl Worker {
    fn now(&self) -> u64 {
        nic::time::monotonic() + self.offset
    }

    fn work(&mut self, stop: &AtomicBool, shared: &Mutex<TranslatorView>) -> Result<(), nic::Error> {
        let (mut burst, mut poll_fds) = (Burst::new(BURST, JUMBO_SLOT_SIZE), PollFds::default());
        let mut outcome = Ok(());
        while !stop.load(Ordering::Relaxed) {
            if let Err(error) = self.turn(&mut burst, &mut poll_fds) {
                outcome = Err(error);
                break;
            }
            self.publish_when_due(shared);
        }
        let end = self.now() + LAST;
        while self.now() < end {
            let now = self.now();
            let finished = self.translator.finish(now, &mut self.links);
            self.links.tick(now);
            self.send(now);
            if self.answers(&mut burst).is_err() || finished && self.peers.nothing_held(&self.links) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        *shared.lock().unwrap_or_else(PoisonError::into_inner) = self.view();
        outcome
    }

    /// Waits for something, and does it.
    fn turn(&mut self, burst: &mut Burst, poll_fds: &mut PollFds) -> Result<(), nic::Error> {
        let wait = self.patience();
        let descriptors = self.reports.iter().map(|reports| reports.receiver.as_fd());
        nic::frames::wait(descriptors.chain(self.peers.descriptors()), poll_fds, wait)?;
        let now = self.now();
        let (settings, translator, links) = (&self.settings, &mut self.translator, &mut self.links);
        self.peers.hear_news(&mut Parts { now, settings, translator, links });
        for collector in 0..self.reports.len() {
            self.take(collector, burst)?;
        }
        self.answers(burst)?;
        let now = self.now();
        self.translator.tick(now, &mut self.links);
        self.links.tick(now);
        self.send(now);
        self.peers.mend(&mut self.links);
        self.say();
        Ok(())
    }

    /// How long to wait for datagrams: not beyond the time when something is due.
    fn patience(&self) -> Duration {
        let due = [self.translator.deadline(), self.links.deadline()].into_iter().flatten().min();
        let left = due.map_or(u64::MAX, |due| due.saturating_sub(self.now()));
        Duration::from_nanos(left).min(SLEEP)
    }

    /// Takes the reports that are there for one collector.
    fn take(&mut self, collector: usize, burst: &mut Burst) -> Result<(), nic::Error> {
        let now = self.now();
        let Some(reports) = self.reports.get_mut(collector) else { return Ok(()) };
        if reports.receiver.recv(burst, 0)? == 0 {
            return Ok(());
        }
        reports.cut += burst.iter().filter(|packet| packet.truncated).count() as u64;
        let payloads = burst.iter().map(|packet| (packet.source, packet.data));
        self.translator.take_burst(now, collector as u8, payloads, &mut self.links, &mut self.said);
        self.send(now);
        Ok(())
    }

    /// Takes what collectors answer.
    fn answers(&mut self, burst: &mut Burst) -> Result<(), nic::Error> {
        let now = self.now();
        for socket in self.peers.sockets() {
            if socket.recv(burst, 0)? == 0 {
                continue;
            }
            let destination = socket.local_addr().ip();
            for packet in burst.iter() {
                let ends =
                    Ends { source: packet.source.ip(), destination, source_port: packet.source.port() };
                match (Packet::parse_udp(packet.data, ends), self.links.frames()) {
                    (Ok(answer), Some(links)) => links.receive(now, &answer),
                    (Ok(_), None) => {}
                    (Err(refusal), _) => self.said.unreadable[refusal.index()] += 1,
                }
            }
        }
        self.send(now);
        Ok(())
    }

    /// Sends all frames that can be made now.
    fn send(&mut self, now: u64) {
        let Some(links) = self.links.frames() else { return };
        while links.flush(now) > 0 {
            self.peers.send(links.frames());
            links.sent();
        }
    }

    /// Sends messages to reporters, from the address that their reports came to.
    fn say(&mut self) {
        let port = self.settings.control_port;
        for (collector, reports) in self.reports.iter_mut().enumerate() {
            let own = self.said.messages(collector).map(|(to, payload)| {
                let to = if port == 0 { to } else { SocketAddr::new(to.ip(), port) };
                (to, payload)
            });
            let said = reports.receiver.answer(own);
            reports.said.sent += said.sent;
            reports.said.failed += said.failed + said.no_buffers;
        }
        self.said.clear();
    }

    fn publish_when_due(&mut self, shared: &Mutex<TranslatorView>) {
        let now = self.now();
        if now.saturating_sub(self.published) >= PUBLISH {
            self.published = now;
            let view = self.view();
            *shared.lock().unwrap_or_else(PoisonError::into_inner) = view;
        }
    }
}

/// Messages to reporters that wait to be sent.
struct Said {
    bytes: Vec<u8>,
    ends: Vec<(usize, SocketAddr, u8)>,
    /// Answers that could not be read.
    unreadable: [u64; wire::Refusal::COUNT],
}

impl Default for Said {
    fn default() -> Self {
        Self { bytes: Vec::new(), ends: Vec::new(), unreadable: [0; wire::Refusal::COUNT] }
    }
}

impl Out for Said {
    fn control(&mut self, to: SocketAddr, collector: u8, payload: &[u8]) {
        self.bytes.extend_from_slice(payload);
        self.ends.push((self.bytes.len(), to, collector));
    }
}

impl Said {
    fn messages(&self, collector: usize) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, ..)| *end));
        let all = starts.zip(&self.ends);
        let own = all.filter(move |(_, (.., of))| usize::from(*of) == collector);
        own.map(|(start, (end, to, _))| (*to, &self.bytes[start..*end]))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}
