//! The collector memory role: stores in memory-mapped regions that translators write by RDMA (RoCEv2), a responder that
//! executes their requests, and the exchange that sets up queue pairs. `mode` selects the responder: a UDP socket (`socket`),
//! an XDP program with the regions in kernel memory (`xdp`), or an RDMA device (`verbs`). One thread receives; others follow
//! lists, take snapshots and clear counters.

mod events;
mod kernel;
mod link;
mod regions;
mod snapshots;
mod verbs;
pub mod view;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

use nic::udp::{Burst, JUMBO_SLOT_SIZE, Options, Receiver, SendOutcome};
use rdma::responder::{Completion, Output, Responder, Stats};
use store::{FileChange, FileIdentity};
use wire::roce::{Endpoints, Packet, Path};

use crate::exchange;
use dta::settings::{MemoryMode, MemorySettings};
use dta::{
    persist::{self, KernelLock},
    source::DtaSource,
};
use kernel::Kernel;
use link::Links;
use regions::Offered;
use runtime::control::{Control, StoppableThread};
use terminal::CliError;
use verbs::Verbs;

pub use events::EventSink;
pub use regions::geometry;
pub use snapshots::SnapshotView;

/// Maximum number of datagrams per receive call.
const BURST: usize = 256;
/// Poll interval, ms, which bounds the delay of a stop.
const SLEEP: u32 = 50;
/// Receive queue depth of a queue pair: immediates that may arrive before they are read.
const RECEIVES: u32 = 4096;

/// The memory, shared with the API and the exchange.
pub type Handle = Arc<Memory>;

/// The memory and its state, shared by its threads, the API and the exchange.
#[derive(Debug)]
pub struct Memory {
    /// The settings with which it was opened.
    pub settings: MemorySettings,
    /// Random ID of this memory, drawn at the start.
    instance: String,
    /// The address that receives RoCEv2 packets.
    listen: SocketAddr,
    exchange: SocketAddr,
    /// Access control of the exchange.
    access: Arc<exchange::server::AccessControl>,
    /// The stores, for queries.
    pub source: DtaSource,
    offered: Vec<Offered>,
    responder: Mutex<Responder>,
    links: Mutex<Links>,
    counts: Counts,
    reported: events::EventCounters,
    snapshots: snapshots::SnapshotLog,
    kernel: Option<Kernel>,
    verbs: Option<Verbs>,
    /// Lock of the directory while the regions are in kernel memory; their files are written at the stop.
    kernel_lock: Option<KernelLock>,
    /// Identities of the files from which the regions are mapped (empty with kernel memory).
    files: Vec<FileIdentity>,
    /// A store could not be written to its file at the stop.
    lost: AtomicBool,
}

/// Sends immediates to the thread that follows lists.
type Wake = SyncSender<Completion>;

/// Counters of the receiving thread.
#[derive(Debug, Default)]
struct Counts {
    datagrams: AtomicU64,
    kernel_drops: AtomicU64,
    responses: AtomicU64,
    responses_unsent: AtomicU64,
}

/// A memory with its socket and regions open, before its threads start.
#[derive(Debug)]
pub struct Ready {
    /// The RoCEv2 socket; `None` with an RDMA device.
    receiver: Option<Receiver>,
    listening: exchange::server::Listening,
    memory: Handle,
    stop: Arc<AtomicBool>,
    /// The thread that reattaches the program to the interface.
    reattacher: Option<StoppableThread>,
}

/// The handle of the running memory role.
#[derive(Debug)]
pub struct Role {
    memory: Handle,
    /// The server of the exchange.
    server: Option<StoppableThread>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// The thread that reattaches the program to the interface.
    reattacher: Option<StoppableThread>,
}

impl Ready {
    /// Opens the sockets, and creates or opens the regions.
    ///
    /// # Errors
    /// A port is in use, a region has a different geometry, or there is no space.
    pub fn open(settings: &MemorySettings) -> Result<Self, CliError> {
        let receiver = (settings.mode != MemoryMode::Verbs)
            .then(|| {
                receiver(settings).map_err(|error| CliError::new(format!("[collector.memory]: {error}")))
            })
            .transpose()?;
        let secret = exchange::secret::SecretFile::open(settings.secret_file.as_deref())?;
        let listening = exchange::server::Listening::open(settings.exchange)?;
        if let Some(danger) = settings.missing_secret_warning() {
            tracing::warn!("{danger}");
        }
        let config = rdma::responder::Config {
            queue_pairs: settings.queue_pairs,
            seed: seed(),
            ..rdma::responder::Config::default()
        };
        let mut responder =
            Responder::new(config).map_err(|error| CliError::new(format!("[collector.memory]: {error}")))?;
        let regions::Opened {
            source,
            offered,
            kernel,
            verbs,
            kernel_lock,
        } = regions::open(settings, &mut responder)?;
        let in_files = kernel_lock.is_none();
        let names = source
            .stores()
            .iter()
            .filter(|_| in_files)
            .map(|store| store.name());
        let files = names.filter_map(|name| FileIdentity::read(&regions::file(&settings.directory, name)));
        let files = files.collect();
        let memory = Memory {
            settings: settings.clone(),
            instance: exchange::instance(),
            listen: receiver.as_ref().map_or(settings.listen, Receiver::local_addr),
            exchange: listening.address().unwrap_or(settings.exchange),
            access: exchange::server::AccessControl::new(secret),
            source,
            offered,
            responder: Mutex::new(responder),
            links: Mutex::default(),
            counts: Counts::default(),
            reported: events::EventCounters::default(),
            snapshots: snapshots::SnapshotLog::default(),
            kernel,
            verbs,
            kernel_lock,
            files,
            lost: AtomicBool::new(false),
        };
        Ok(Self {
            receiver,
            listening,
            memory: Arc::new(memory),
            stop: Arc::default(),
            reattacher: None,
        })
    }

    /// Returns the address of the exchange.
    pub fn exchange(&self) -> SocketAddr {
        self.memory.exchange
    }

    /// Returns whether the memory uses an interface, which may disappear and return.
    pub fn opens_again(&self) -> bool {
        self.memory.kernel.is_some()
    }

    /// Starts the thread that reattaches the program, which needs capabilities that the other threads do not.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start_reattacher(&mut self, control: &Control) -> Result<(), CliError> {
        if self.opens_again() {
            // It has a separate stop flag, because it must end before the other threads.
            let memory = Arc::clone(&self.memory);
            self.reattacher = Some(control.spawn_stoppable("memory-interface", move |stop| {
                memory.kernel.iter().for_each(|kernel| kernel.reattach(&stop));
            })?);
        }
        Ok(())
    }

    /// Starts the threads. Events are sent to `sink`, if there is one.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(self, control: &Control, sink: Option<Box<dyn EventSink>>) -> Result<Role, CliError> {
        let Self {
            receiver,
            listening,
            memory,
            stop,
            reattacher,
        } = self;
        let mut role = Role {
            memory: Arc::clone(&memory),
            server: None,
            stop: Arc::clone(&stop),
            threads: Vec::new(),
            reattacher,
        };
        let (wake, woken) = sync_channel(1024);
        if let Some(sink) = sink {
            let memory = Arc::clone(&memory);
            let stop = Arc::clone(&stop);
            // Position the followers before writes are possible, so that entries written during the start are reported.
            let lists = events::lists(&memory);
            role.threads.push(control.spawn("lists", move || {
                events::follow(lists, &memory, &*sink, &woken, &stop);
            })?);
        }
        if memory.settings.snapshots.every.is_some() {
            let memory = Arc::clone(&memory);
            let stop = Arc::clone(&stop);
            role.threads
                .push(control.spawn("snapshots", move || snapshots::run_schedule(&memory, &stop))?);
        }
        if memory
            .settings
            .stores
            .iter()
            .any(|store| store.clear_every.is_some())
        {
            let memory = Arc::clone(&memory);
            let stop = Arc::clone(&stop);
            role.threads
                .push(control.spawn("clearing", move || snapshots::run_clearing(&memory, &stop))?);
        }
        if memory.kernel.is_some() {
            let memory = Arc::clone(&memory);
            let wake = wake.clone();
            let stop = Arc::clone(&stop);
            let failing = control.clone();
            role.threads.push(control.spawn("memory-kernel", move || {
                let Some(kernel) = &memory.kernel else { return };
                report_failure(&failing, kernel.forward_completions(&memory, &wake, &stop));
            })?);
        }
        let own = Arc::clone(&memory);
        let spawner = control.clone();
        let work: Box<dyn FnOnce() + Send> = match receiver {
            Some(receiver) => {
                let mut worker = Worker {
                    memory: own,
                    receiver,
                    wake,
                };
                Box::new(move || report_failure(&spawner, worker.work(&stop)))
            }
            None => Box::new(move || {
                own.verbs
                    .iter()
                    .for_each(|verbs| verbs.forward_completions(&own, &wake, &stop))
            }),
        };
        role.threads.push(control.spawn("responder", work)?);
        let access = Arc::clone(&memory.access);
        role.server = Some(listening.start(memory, access, control)?);
        Ok(role)
    }
}

impl Role {
    /// Returns the shared state, for the API.
    pub fn handle(&self) -> Handle {
        Arc::clone(&self.memory)
    }

    /// Returns the secret of the exchange, if there is one.
    pub fn secret(&self) -> Option<&Arc<exchange::secret::SecretFile>> {
        self.memory.access.secret()
    }

    /// Returns the address for RoCEv2 packets and the address of the exchange.
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.memory.listen, self.memory.exchange)
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        drop(self.server.take());
        // Detach the kernel program first: nothing is written after that, so the followers see all entries.
        drop(self.reattacher.take());
        self.memory.detach();
        // Relaxed: the flag publishes no other data; joining the threads orders everything else.
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic has been logged already.
            let _ = thread.join();
        }
        self.memory.save();
        let stats = self.memory.stats();
        tracing::info!(
            packets = stats.packets,
            bytes = stats.bytes,
            "the collector's memory is closed"
        );
    }
}

impl Memory {
    /// Locks the responder. A panic elsewhere cannot leave it inconsistent.
    fn responder(&self) -> MutexGuard<'_, Responder> {
        self.responder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counters of the responders in user space and in the kernel.
    fn stats(&self) -> Stats {
        let mut stats = *self.responder().stats();
        if let Some(kernel) = &self.kernel {
            stats += &kernel.status().counted.stats;
        }
        stats
    }

    /// Notifies the thread that follows lists of an immediate.
    fn notify(&self, completion: Completion, wake: &Wake) {
        // Without a follower, or if its queue is full, polling finds the entry.
        if wake.try_send(completion).is_err() {
            self.reported.immediate_shed();
        }
    }

    /// Detaches the kernel program, which writes nothing after this.
    fn detach(&self) {
        if let Some(kernel) = &self.kernel {
            kernel.close(self.links().values().flat_map(link::TranslatorLink::pairs));
        }
    }

    /// Returns whether a store could not be written to its file at the stop. The log names it.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Writes the regions that have no current file: those in kernel memory, and those whose file an external program removed.
    /// Leaves a file that was replaced by another one untouched.
    fn save(&self) {
        for store in self.source.stores() {
            let file = regions::file(&self.settings.directory, store.name());
            let opened = self.files.iter().find(|opened| opened.path() == file);
            match opened.and_then(FileIdentity::change) {
                Some(FileChange::Replaced) => {
                    self.lost.store(true, Ordering::Relaxed);
                    tracing::error!(
                        file = %file.display(),
                        store = store.name(),
                        "the file of a store was replaced by something else while hopwise ran: it stays, and what the store had is lost"
                    );
                    continue;
                }
                Some(FileChange::Removed) => tracing::warn!(
                    file = %file.display(),
                    "the file of a store was removed by something else while hopwise ran, and is written again"
                ),
                None if self.kernel_lock.is_none() => continue,
                None => {}
            }
            let directory = file.parent().map_or(Ok(()), std::fs::create_dir_all);
            if let Err(error) = directory.and_then(|()| persist::save(&store.store, &file)) {
                self.lost.store(true, Ordering::Relaxed);
                tracing::error!(
                    "the store `{}` is lost: {} cannot be written: {error}; the file has the contents of the last clean stop: {}, or set \
                     another [collector.memory] directory, before the next start",
                    store.name(),
                    file.display(),
                    ::settings::remedy(&error).unwrap_or("check that this user may write there")
                );
            }
        }
    }
}

/// State of the receiving thread.
struct Worker {
    memory: Handle,
    receiver: Receiver,
    wake: Wake,
}

impl Worker {
    /// Receives RoCEv2 packets, executes them, and sends the responses, until the stop.
    fn work(&mut self, stop: &AtomicBool) -> Result<(), nic::Error> {
        let mut burst = Burst::new(BURST, JUMBO_SLOT_SIZE);
        let mut responses = Responses::default();
        let destination = self.memory.listen.ip();
        while !stop.load(Ordering::Relaxed) {
            if self.receiver.recv(&mut burst, SLEEP)? == 0 {
                continue;
            }
            let packets = burst.iter().map(|packet| {
                let ends = Endpoints {
                    source: packet.source.ip(),
                    destination,
                    source_port: packet.source.port(),
                };
                Packet::parse_udp(packet.data, ends)
            });
            {
                let mut responder = self.memory.responder();
                responder.process_parsed(packets, &mut responses);
                for pair in responses.received.drain(..) {
                    responder.replenish(pair, 1);
                }
                for completion in responses.completions.drain(..) {
                    self.memory.notify(completion, &self.wake);
                }
            }
            let outcome = responses.send(&mut self.receiver);
            let counts = &self.memory.counts;
            // Relaxed: independent counters.
            counts.datagrams.fetch_add(burst.len() as u64, Ordering::Relaxed);
            counts.responses.fetch_add(outcome.sent, Ordering::Relaxed);
            counts
                .responses_unsent
                .fetch_add(outcome.failed + outcome.no_buffers, Ordering::Relaxed);
            counts
                .kernel_drops
                .store(self.receiver.drops().buffer_full, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Results of a burst: responses, concatenated, and completions.
#[derive(Default)]
struct Responses {
    bytes: Vec<u8>,
    /// End offset of each response, and its destination.
    ends: Vec<(usize, SocketAddr)>,
    completions: Vec<Completion>,
    /// Queue pairs that consumed a receive, for an immediate or an unexpected message.
    received: Vec<u32>,
}

impl Output for Responses {
    fn respond(&mut self, path: &Path, frame: &[u8]) {
        let Some(payload) = frame.get(path.headers_len()..) else {
            return;
        };
        self.bytes.extend_from_slice(payload);
        self.ends.push((self.bytes.len(), link::address_of(path)));
    }

    fn complete(&mut self, completion: &Completion) {
        self.completions.push(*completion);
        self.received.push(completion.queue_pair);
    }

    fn sent(&mut self, pair: u32, _: &[u8]) {
        self.received.push(pair);
    }
}

impl Responses {
    fn send(&mut self, receiver: &mut Receiver) -> SendOutcome {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        let datagrams = starts
            .zip(&self.ends)
            .map(|(start, (end, to))| (*to, &self.bytes[start..*end]));
        let outcome = receiver.send(datagrams);
        self.bytes.clear();
        self.ends.clear();
        outcome
    }
}

/// Stops the process if a thread of the memory failed.
fn report_failure(control: &Control, outcome: Result<(), nic::Error>) {
    if let Err(error) = outcome {
        control.failed(format!("the collector's memory failed: {error}"));
    }
}

/// Opens the socket that receives RoCEv2.
fn receiver(settings: &MemorySettings) -> Result<Receiver, nic::Error> {
    let recv_buffer = usize::try_from(settings.receive_buffer.0).unwrap_or(usize::MAX);
    let options = Options {
        recv_buffer,
        ..Options::default()
    };
    let receiver = Receiver::bind(settings.listen, &options)?;
    receiver.never_fragment()?;
    if let Some(warning) = receiver.warning() {
        tracing::warn!("{warning}");
    }
    Ok(receiver)
}

/// Returns a random seed that peers cannot predict.
fn seed() -> u64 {
    u64::from_str_radix(&exchange::instance(), 16).unwrap_or_else(|_| nic::time::now())
}
