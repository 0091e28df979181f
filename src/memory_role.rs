//! The collector memory's role: regions in files, a responder that fills them with what comes by RoCEv2, and the exchange by which
//! translators learn of them. One thread receives; others follow lists and take snapshots. With `mode = "xdp"` the regions lie in
//! the kernel, and a responder there fills them: [`kernel`].

pub(crate) mod events;
mod kernel;
mod link;
pub(crate) mod regions;
pub(crate) mod snapshots;
mod verbs;
pub(crate) mod view;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

use nic::udp::{Answered, Burst, JUMBO_SLOT_SIZE, Options, Receiver};
use rdma::responder::{Completion, Out, Responder, Stats};
use wire::roce::{Ends, Packet, Path};

use crate::exchange;
use crate::{
    config::memory::{MemoryMode, MemorySettings},
    control::Control,
    pipeline::{Outlet, RuleNames},
};
use dta::{
    persist::{self, KernelLock},
    source::DtaSource,
};
use verbs::Verbs;

use kernel::Kernel;
use link::Links;
use regions::Offered;
use terminal::CliError;

/// Datagrams taken at once.
const BURST: usize = 256;
/// Longest sleep, ms: how soon a stop is noticed.
const SLEEP: u32 = 50;
/// Immediates that a queue pair may send before we have seen them.
const RECEIVES: u32 = 4096;

/// What others may ask and tell.
pub(crate) type Handle = Arc<Memory>;

/// The memory and all that belongs to it, shared by its threads, the API and the exchange.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) settings: MemorySettings,
    /// Drawn at the start.
    instance: String,
    /// Where RoCEv2 comes to.
    listen: SocketAddr,
    exchange: SocketAddr,
    /// Who is let in there.
    access: Arc<exchange::server::AccessControl>,
    pub(crate) source: DtaSource,
    offered: Vec<Offered>,
    responder: Mutex<Responder>,
    links: Mutex<Links>,
    counts: Counts,
    pub(crate) told: events::Told,
    pub(crate) snapshots: snapshots::Book,
    kernel: Option<Kernel>,
    verbs: Option<Verbs>,
    /// Where regions of the kernel are kept from a stop to the next start, and the word that they are not there now.
    kept: Option<KernelLock>,
    /// Some of it could not be written to its file at the end.
    lost: AtomicBool,
}

/// To the follower of lists: an immediate came.
type Wake = SyncSender<Completion>;

/// What the receiving thread counts.
#[derive(Debug, Default)]
struct Counts {
    datagrams: AtomicU64,
    kernel_drops: AtomicU64,
    answers: AtomicU64,
    answers_lost: AtomicU64,
}

/// A memory that was set up: its socket is open, its regions are there.
pub(crate) struct Ready {
    /// None where a device receives.
    receiver: Option<Receiver>,
    listening: exchange::server::Listening,
    memory: Handle,
    stop: Arc<AtomicBool>,
    keeper: Option<Keeper>,
}

/// The thread that takes the interface again, stopped when dropped.
#[derive(Debug)]
struct Keeper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Relaxed: the flag carries nothing but itself.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A memory at work.
#[derive(Debug)]
pub(crate) struct Role {
    memory: Handle,
    server: Option<exchange::server::Server>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    keeper: Option<Keeper>,
}

impl Ready {
    /// Opens sockets, makes or opens regions.
    ///
    /// # Errors
    /// A port in use, a region that is another, no room.
    pub(crate) fn open(settings: &MemorySettings) -> Result<Self, CliError> {
        let receiver = (settings.mode != MemoryMode::Verbs).then(|| receiver(settings)).transpose()?;
        let secret = exchange::secret::SecretFile::open(settings.secret_file.as_deref())?;
        let listening = exchange::server::Listening::open(settings.exchange)?;
        if let Some(danger) = settings.unguarded() {
            tracing::warn!("{danger}");
        }
        let config = rdma::responder::Config {
            queue_pairs: settings.queue_pairs,
            seed: seed(),
            ..rdma::responder::Config::default()
        };
        let mut responder =
            Responder::new(config).map_err(|error| CliError::new(format!("[collector.memory]: {error}")))?;
        let regions::Opened { source, offered, kernel, verbs, kept } =
            regions::open(settings, &mut responder)?;
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
            told: events::Told::default(),
            snapshots: snapshots::Book::default(),
            kernel,
            verbs,
            kept,
            lost: AtomicBool::new(false),
        };
        Ok(Self { receiver, listening, memory: Arc::new(memory), stop: Arc::default(), keeper: None })
    }

    /// Where translators ask.
    pub(crate) fn exchange(&self) -> SocketAddr {
        self.memory.exchange
    }

    /// Does it use an interface, which may go and come back?
    pub(crate) fn opens_again(&self) -> bool {
        self.memory.kernel.is_some()
    }

    /// Starts the thread that takes the interface again, which needs capabilities that others can do without.
    ///
    /// # Errors
    /// The system has no thread for us.
    pub(crate) fn keep(&mut self, control: &Control) -> Result<(), CliError> {
        if self.opens_again() {
            // It has a flag of its own: it ends before the others do.
            let (memory, stop) = (Arc::clone(&self.memory), Arc::new(AtomicBool::new(false)));
            let stopped = Arc::clone(&stop);
            let work = move || memory.kernel.iter().for_each(|kernel| kernel.keep(&stopped));
            let thread = Some(control.spawn("memory-interface", work)?);
            self.keeper = Some(Keeper { stop, thread });
        }
        Ok(())
    }

    /// Starts the threads. Events go to `outlet`, if there is one.
    ///
    /// # Errors
    /// The system has no thread for us.
    pub(crate) fn start(
        self,
        control: &Control,
        outlet: Option<(Outlet, RuleNames)>,
    ) -> Result<Role, CliError> {
        let Self { receiver, listening, memory, stop, keeper } = self;
        let mut role = Role {
            memory: Arc::clone(&memory),
            server: None,
            stop: Arc::clone(&stop),
            threads: Vec::new(),
            keeper,
        };
        let (wake, woken) = sync_channel(1024);
        if let Some((outlet, rules)) = outlet {
            let (memory, stop) = (Arc::clone(&memory), Arc::clone(&stop));
            // Before anybody can write: what comes while threads start is told, too.
            let lists = events::lists(&memory);
            let work = move || events::follow(lists, &memory, &outlet, &rules, &woken, &stop);
            role.threads.push(control.spawn("lists", work)?);
        }
        if memory.settings.snapshots.every.is_some() {
            let (memory, stop) = (Arc::clone(&memory), Arc::clone(&stop));
            role.threads.push(control.spawn("snapshots", move || snapshots::by_schedule(&memory, &stop))?);
        }
        let failed = |control: &Control, outcome: Result<(), nic::Error>| {
            if let Err(error) = outcome {
                control.failed(format!("the collector's memory cannot go on: {error}"));
            }
        };
        if memory.kernel.is_some() {
            let (memory, wake, stop) = (Arc::clone(&memory), wake.clone(), Arc::clone(&stop));
            let told = control.clone();
            let work = move || {
                let Some(kernel) = &memory.kernel else { return };
                failed(&told, kernel.tell(&memory, &wake, &stop));
            };
            role.threads.push(control.spawn("memory-kernel", work)?);
        }
        let (own, told) = (Arc::clone(&memory), control.clone());
        let work: Box<dyn FnOnce() + Send> = match receiver {
            Some(receiver) => {
                let mut worker = Worker { memory: own, receiver, wake };
                Box::new(move || failed(&told, worker.work(&stop)))
            }
            None => Box::new(move || own.verbs.iter().for_each(|verbs| verbs.tell(&own, &wake, &stop))),
        };
        role.threads.push(control.spawn("responder", work)?);
        let access = Arc::clone(&memory.access);
        role.server = Some(listening.start(memory, access, control)?);
        Ok(role)
    }
}

impl Role {
    /// Where others can ask.
    pub(crate) fn handle(&self) -> Handle {
        Arc::clone(&self.memory)
    }

    /// The secret of the exchange, if there is one.
    pub(crate) fn secret(&self) -> Option<&Arc<exchange::secret::SecretFile>> {
        self.memory.access.secret()
    }

    /// Where RoCEv2 comes to, and where translators ask.
    pub(crate) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.memory.listen, self.memory.exchange)
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        drop(self.server.take());
        // Nobody puts the program in the kernel back on its interface, and it is taken off: what it wrote is all that followers will see.
        drop(self.keeper.take());
        self.memory.detach();
        // Relaxed: the flag carries nothing but itself; joining the threads orders everything else.
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // One that panicked has said so already.
            let _ = thread.join();
        }
        self.memory.save();
        let stats = self.memory.stats();
        tracing::info!(packets = stats.packets, bytes = stats.bytes, "the collector's memory is closed");
    }
}

impl Memory {
    /// The responder. A panic elsewhere left it as it was between two packets.
    fn responder(&self) -> MutexGuard<'_, Responder> {
        self.responder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What both responders counted.
    fn stats(&self) -> Stats {
        let mut stats = *self.responder().stats();
        if let Some(kernel) = &self.kernel {
            stats += &kernel.look().counted.stats;
        }
        stats
    }

    /// Tells the follower of lists of an immediate.
    fn tell(&self, completion: Completion, wake: &Wake) {
        // Without a follower, or with one that is busy: it will see the entry all the same.
        if wake.try_send(completion).is_err() {
            self.told.immediate_shed();
        }
    }

    /// After this the kernel writes nothing any more.
    fn detach(&self) {
        if let Some(kernel) = &self.kernel {
            kernel.close(self.links().values().flat_map(link::Link::pairs));
        }
    }

    /// Could something not be written to its file at the end? The log says what.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// The end: regions that end with the process are written to their files.
    fn save(&self) {
        if self.kept.is_none() {
            return;
        }
        for store in self.source.stores() {
            let file = regions::file(&self.settings.directory, store.name());
            if let Err(error) = persist::save(&store.store, &file) {
                self.lost.store(true, Ordering::Relaxed);
                tracing::error!(
                    "the store `{}` is lost: {} cannot be written: {error}; it is as it was at the stop before: make room there, or write \
                     another [collector.memory] directory, before the next start",
                    store.name(),
                    file.display()
                );
            }
        }
    }
}

/// The receiving thread's own.
struct Worker {
    memory: Handle,
    receiver: Receiver,
    wake: Wake,
}

impl Worker {
    fn work(&mut self, stop: &AtomicBool) -> Result<(), nic::Error> {
        let mut burst = Burst::new(BURST, JUMBO_SLOT_SIZE);
        let mut answers = Answers::default();
        let destination = self.memory.listen.ip();
        while !stop.load(Ordering::Relaxed) {
            if self.receiver.recv(&mut burst, SLEEP)? == 0 {
                continue;
            }
            let packets = burst.iter().map(|packet| {
                let ends =
                    Ends { source: packet.source.ip(), destination, source_port: packet.source.port() };
                Packet::parse_udp(packet.data, ends)
            });
            {
                let mut responder = self.memory.responder();
                responder.take_parsed(packets, &mut answers);
                for pair in answers.received.drain(..) {
                    responder.replenish(pair, 1);
                }
                for completion in answers.completions.drain(..) {
                    self.memory.tell(completion, &self.wake);
                }
            }
            let answered = answers.send(&mut self.receiver);
            let counts = &self.memory.counts;
            // Relaxed: counts that travel alone.
            counts.datagrams.fetch_add(burst.len() as u64, Ordering::Relaxed);
            counts.answers.fetch_add(answered.sent, Ordering::Relaxed);
            counts.answers_lost.fetch_add(answered.failed + answered.no_buffers, Ordering::Relaxed);
            counts.kernel_drops.store(self.receiver.kernel_drops(), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Answers of a burst, one behind the other.
#[derive(Default)]
struct Answers {
    bytes: Vec<u8>,
    ends: Vec<(usize, SocketAddr)>,
    completions: Vec<Completion>,
    /// Queue pairs that lost a receive: to an immediate, or to a message that nobody here waits for.
    received: Vec<u32>,
}

impl Out for Answers {
    fn answer(&mut self, path: &Path, frame: &[u8]) {
        let Some(payload) = frame.get(path.headers_len()..) else { return };
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

impl Answers {
    fn send(&mut self, receiver: &mut Receiver) -> Answered {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        let answers = starts.zip(&self.ends).map(|(start, (end, to))| (*to, &self.bytes[start..*end]));
        let answered = receiver.answer(answers);
        self.bytes.clear();
        self.ends.clear();
        answered
    }
}

/// The socket that RoCEv2 comes to.
fn receiver(settings: &MemorySettings) -> Result<Receiver, CliError> {
    let told = |error: nic::Error| CliError::new(format!("[collector.memory]: {error}"));
    let recv_buffer = usize::try_from(settings.receive_buffer.0).unwrap_or(usize::MAX);
    let receiver =
        Receiver::bind(settings.listen, &Options { recv_buffer, ..Options::default() }).map_err(told)?;
    receiver.never_fragment().and_then(|()| receiver.take_without_checksum()).map_err(told)?;
    if let Some(warning) = receiver.warning() {
        tracing::warn!("{warning}");
    }
    Ok(receiver)
}

/// A number that nobody knows.
fn seed() -> u64 {
    u64::from_str_radix(&exchange::instance(), 16).unwrap_or_else(|_| nic::time::now())
}
