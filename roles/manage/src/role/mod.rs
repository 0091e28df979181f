//! The manager role: [`manager::Manager`] on a thread of its own, with a driver for each device.

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

/// An event of the manager's thread.
enum Event {
    /// A message of a driver.
    Driver(Message),
    /// A request of the API or of the main thread.
    Work(Work<Core>),
    /// The thread must end.
    Stop,
}

/// The queues of the manager's thread: requests do not displace messages of drivers.
struct Arriving {
    messages: mpsc::Receiver<Message>,
    work: mpsc::Receiver<Work<Core>>,
    stop: oneshot::Receiver<()>,
}

impl Arriving {
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

/// Devices inside this process, as those of the demo: they get commands, and answer each.
pub type Local = std::sync::mpsc::Sender<ToDevice>;

/// A message to a device inside this process.
pub enum ToDevice {
    /// A command, and who takes the answer.
    Command(Command, Reply),
    /// Who takes what the device with this node id reports by itself.
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

/// Takes the answer to a command.
pub type Reply = Box<dyn FnOnce(Answer) + Send>;

/// A running manager, which stops when it is dropped.
#[derive(Debug)]
pub struct Role {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A handle to a manager.
#[derive(Clone, Debug)]
pub struct Handle {
    requests: Requests<Core>,
}

impl Role {
    /// Starts the manager. `monitor`: of the collector of this process, whose reports verify intents. `local`: devices in this
    /// process. `namespaces`: those of the others.
    ///
    /// # Errors
    /// The state cannot be read; the message says what to do.
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
                            // It ends with the runtime.
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

    /// Takes over the inventory and the intents of another version of the file.
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
    /// Asks something on the manager's thread. `None`: it is overloaded or has ended.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Core, Now) -> T + Send + 'static,
    ) -> Option<T> {
        self.requests.ask(question).await
    }

    /// Changes something on the manager's thread. `None`: it is overloaded or has ended, and nothing changes.
    pub async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Core, Now) -> T + Send + 'static,
    ) -> Option<T> {
        self.requests.change(change).await
    }
}

/// Passes messages of drivers on to the manager's thread.
fn message_sender(messages: mpsc::Sender<Message>) -> impl Fn(Message) + Clone + Send + Sync + 'static {
    move |message| {
        // One that does not fit is lost like an answer of the network: the core asks again.
        let _ = messages.try_send(message);
    }
}

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
        // More that has arrived is taken before the next step, so much that the steps do not wait for long.
        for message in (0..MESSAGES_PER_TURN).map_while(|_| arriving.messages.try_recv().ok()) {
            core.receive(message, Now::read());
        }
        for work in (0..WORK_PER_TURN).map_while(|_| arriving.work.try_recv().ok()) {
            work(&mut core, Now::read());
        }
        // The drivers run on this thread, too.
        tokio::task::yield_now().await;
    }
    counting.abort();
    firing.abort();
}

/// Counts twice a second the reports of the flows of intents.
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
        // An address that this host has lost is no other host's: its reports are those that do not arrive.
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

/// Those of `addresses` that this host has now: where a socket can be bound.
fn local(addresses: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
    addresses
        .iter()
        .copied()
        .filter(|address| UdpSocket::bind((*address, 0)).is_ok())
        .collect()
}

/// Messages of drivers that may wait: answers and events of all devices.
const MAX_MESSAGES: usize = 16_384;
/// Messages of drivers between two steps.
const MESSAGES_PER_TURN: usize = 256;
/// Requests between two steps.
const WORK_PER_TURN: usize = 8;
/// Time limit of the start.
const START: Duration = Duration::from_secs(30);
/// Longest sleep between two steps: the system's clock may be set meanwhile, and an intent end by it.
const LONGEST_REST: Duration = Duration::from_secs(1);
/// Time between two counts.
const COUNT_INTERVAL: Duration = Duration::from_millis(500);
