//! The manager role: runs [`manager::Manager`] on a dedicated thread with a single-threaded runtime, which also runs the
//! devices' drivers. Requests of the API, messages of drivers and counts of the collector reach the thread through bounded
//! queues.

mod clock;
mod core;
mod count;
mod drivers;
mod firing;
mod journal;
mod learn;
mod peer;
mod progress;
mod requests;
pub mod view;

use std::{
    collections::BTreeSet,
    fmt,
    future::{Future, poll_fn},
    net::{IpAddr, UdpSocket},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    thread::JoinHandle,
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time,
};

use self::requests::{Requests, Work};
pub use self::{
    clock::Now,
    core::{Core, Error, PutIntent},
    count::expect,
    drivers::Namespaces,
};
use crate::program::Configuration;
use manager::{
    device::{Answer, Command, NodeId},
    driver::Message,
};
use runtime::control::Control;
use runtime::monitor::CollectorMonitor;
use terminal::CliError;

/// Capacity of the queue of driver messages: answers and events of all devices.
const MAX_MESSAGES: usize = 16_384;
/// Maximum number of driver messages processed between two steps.
const MESSAGES_PER_TURN: usize = 256;
/// Maximum number of requests processed between two steps.
const WORK_PER_TURN: usize = 8;
/// Time limit for starting.
const START: Duration = Duration::from_secs(30);
/// Longest sleep between two steps: the system's clock may be set meanwhile, and an intent end by it.
const LONGEST_REST: Duration = Duration::from_secs(1);
/// Interval between two counts of reports.
const COUNT_INTERVAL: Duration = Duration::from_millis(500);

/// An event of the manager's thread.
enum Event {
    /// A message from a driver.
    Driver(Message),
    /// A request from the API or the main thread.
    Work(Work<Core>),
    /// The thread must end.
    Stop,
}

/// The input queues of the manager's thread. Requests have their own, so that they cannot displace messages of drivers.
struct Arriving {
    messages: mpsc::Receiver<Message>,
    work: mpsc::Receiver<Work<Core>>,
    stop: oneshot::Receiver<()>,
}

impl Arriving {
    /// Returns the next event: a stop before messages of drivers, and these before requests.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if Pin::new(&mut self.stop).poll(cx).is_ready() {
            return Poll::Ready(Event::Stop);
        }
        if let Poll::Ready(Some(message)) = self.messages.poll_recv(cx) {
            return Poll::Ready(Event::Driver(message));
        }
        self.work
            .poll_recv(cx)
            .map(|work| work.map_or(Event::Stop, Event::Work))
    }
}

/// The sender of commands to simulated devices inside this process, as in the demo.
pub type Local = std::sync::mpsc::Sender<ToDevice>;

/// A message to a simulated device inside this process.
pub enum ToDevice {
    /// A command, and the callback for its answer.
    Command(Command, Reply),
    /// Subscribes to the unsolicited messages of the device with this node ID.
    Follow(NodeId, Box<dyn Fn(Message) + Send>),
}

impl fmt::Debug for ToDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(command, _) => f.debug_tuple("Command").field(command).finish_non_exhaustive(),
            Self::Follow(node, _) => f.debug_tuple("Follow").field(node).finish_non_exhaustive(),
        }
    }
}

/// A callback for the answer to a command.
pub type Reply = Box<dyn FnOnce(Answer) + Send>;

/// A running manager. Dropping it stops its thread.
#[derive(Debug)]
pub struct Role {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A handle for requests to a manager.
#[derive(Clone, Debug)]
pub struct Handle {
    requests: Requests<Core>,
}

impl Role {
    /// Starts the manager. `monitor` gives access to the collector in this process, whose reports verify intents. `local` has
    /// the simulated devices, if any; `namespaces` has the network namespaces of real ones.
    ///
    /// # Errors
    /// The journal is unusable; the message suggests a fix.
    pub fn start(
        configuration: Arc<Configuration>,
        monitor: Arc<impl CollectorMonitor>,
        local: Option<Local>,
        namespaces: Namespaces,
        control: &Control,
    ) -> Result<Self, CliError> {
        let (messages, said) = mpsc::channel(MAX_MESSAGES);
        let (requests, work) = Requests::new();
        let (stop, stopped) = oneshot::channel();
        let arriving = Arriving {
            messages: said,
            work,
            stop: stopped,
        };
        let (ready, started) = std::sync::mpsc::sync_channel(1);
        let handle = Handle { requests };
        let own = handle.clone();
        let main = control.clone();
        let thread = control.spawn("manager", move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => {
                    let error =
                        CliError::io("cannot start the manager", error, "raise the limit on open files");
                    let _ = ready.send(Err(error));
                    return;
                }
            };
            runtime.block_on(async move {
                let send = message_sender(messages);
                match Core::new(&configuration, local, namespaces, &main, Now::read(), send) {
                    Ok(core) => {
                        let _ = ready.send(Ok(()));
                        if let Some(peer) = peer::address(&configuration.manager) {
                            // The task ends with the runtime.
                            tokio::spawn(peer::follow(own.clone(), peer));
                        }
                        run(core, arriving, own, monitor).await;
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                    }
                }
            });
        })?;
        let role = Self {
            handle,
            stop: Some(stop),
            thread: Some(thread),
        };
        match started.recv_timeout(START) {
            Ok(started) => started.map(|()| role),
            Err(_) => Err(CliError::new("the manager does not start; please report it")),
        }
    }

    /// Returns a handle for requests to the manager.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Adopts the inventory and the intents of a reloaded configuration.
    pub fn reload(&self, configuration: Arc<Configuration>) {
        let posted = self.handle.requests.post(Box::new(move |core: &mut Core, now| {
            core.reload(&configuration, now)
        }));
        if !posted {
            tracing::warn!("the manager has stopped; inventory and intents of the file are not changed");
        }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Fails only if the thread has already ended.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Handle {
    /// Runs a read-only request on the manager's thread. Returns `None` if the thread is overloaded or has ended.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Core, Now) -> T + Send + 'static,
    ) -> Option<T> {
        self.requests.ask(question).await
    }

    /// Runs a change on the manager's thread. Returns `None` if the thread is overloaded or has ended; then nothing changes.
    pub async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Core, Now) -> T + Send + 'static,
    ) -> Option<T> {
        self.requests.change(change).await
    }
}

/// Returns a callback that passes messages of drivers to the manager's thread.
fn message_sender(messages: mpsc::Sender<Message>) -> impl Fn(Message) + Clone + Send + Sync + 'static {
    move |message| {
        // Messages that do not fit are lost, like answers lost in the network: the core repeats its request.
        let _ = messages.try_send(message);
    }
}

/// Runs the manager's loop until the stop.
async fn run(mut core: Core, mut arriving: Arriving, own: Handle, monitor: Arc<impl CollectorMonitor>) {
    let counting = tokio::spawn(count(own.clone(), Arc::clone(&monitor), core.collectors()));
    let firing = tokio::spawn(firing::follow(own, Arc::clone(&monitor)));
    loop {
        let now = Now::read();
        let next = core.poll(now).map_or(LONGEST_REST, |next| {
            Duration::from_nanos(next.saturating_sub(now.steady))
        });
        let next = core
            .publish(&*monitor, now)
            .map_or(next, |publish| next.min(publish));
        let arrived = poll_fn(|cx| arriving.poll_next(cx));
        let Ok(first) = time::timeout(next.min(LONGEST_REST), arrived).await else {
            continue;
        };
        match first {
            Event::Driver(message) => core.receive(message, Now::read()),
            Event::Work(work) => work(&mut core, Now::read()),
            Event::Stop => break,
        }
        // Process what else has arrived before the next step, within limits so that steps are not delayed for long.
        for message in (0..MESSAGES_PER_TURN).map_while(|_| arriving.messages.try_recv().ok()) {
            core.receive(message, Now::read());
        }
        for work in (0..WORK_PER_TURN).map_while(|_| arriving.work.try_recv().ok()) {
            work(&mut core, Now::read());
        }
        // Let the drivers run, which share this thread.
        tokio::task::yield_now().await;
    }
    counting.abort();
    firing.abort();
}

/// Counts the reports of intents' flows twice a second, and learns links from their paths.
async fn count(own: Handle, monitor: Arc<impl CollectorMonitor>, collectors: BTreeSet<IpAddr>) {
    let mut learning = learn::Learning::default();
    let mut known = BTreeSet::new();
    let mut counting = count::Counting::default();
    loop {
        time::sleep(COUNT_INTERVAL).await;
        if let Some(links) = learning.learn(&*monitor, Now::read()).await {
            own.requests.own(move |core, now| core.learn(links, now)).await;
        }
        let arrived = count::arrivals(&*monitor);
        // Keep addresses that this host has lost: no other host has them, and reports sent to them do not arrive.
        known.extend(local(&collectors));
        let local = known.clone();
        own.requests
            .own(move |core, now| core.compare(&arrived, local, now))
            .await;
        let watched = own
            .requests
            .own(|core, _| core.watched())
            .await
            .unwrap_or_default();
        if watched.is_empty() {
            continue;
        }
        let counted = count::count(&mut counting, &*monitor, &watched).await;
        let totals = count::totals(&*monitor, &watched);
        own.requests
            .own(|core, now| core.observe(counted, totals, now))
            .await;
    }
}

/// Returns the addresses that this host has now, found by binding a socket to each.
fn local(addresses: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
    addresses
        .iter()
        .copied()
        .filter(|address| UdpSocket::bind((*address, 0)).is_ok())
        .collect()
}
