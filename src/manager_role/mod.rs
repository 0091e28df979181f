//! The manager role: [`manager::Manager`] on a thread of its own, with a driver for each device.

mod core;
mod count;
mod drivers;
mod firing;
mod hopwise;
mod journal;
mod learn;
mod namespaces;
mod progress;
pub(crate) mod view;

use std::{sync::Arc, thread::JoinHandle, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time,
};

pub(crate) use self::{
    core::{Core, Error, Wanted},
    count::expect,
    namespaces::Namespaces,
};
use crate::{
    config::{Settings, manager::ManagerSettings},
    control::Control,
    monitor::Monitor,
};
use manager::{
    device::{Answer, Command, NodeId},
    driver::Message,
};
use terminal::CliError;

/// Work for the manager's thread.
type Work = Box<dyn FnOnce(&mut Core, u64) + Send>;

/// What the manager's thread receives.
enum Event {
    /// From a driver.
    Driver(Message),
    /// From the API or the main thread.
    Work(Work),
    /// The end.
    Stop,
}

/// Devices inside this process, as those of the demo: they get commands, and answer each.
pub(crate) type Local = std::sync::mpsc::Sender<ToDevice>;

/// What a device inside this process gets.
pub(crate) enum ToDevice {
    /// A command, and who takes the answer.
    Command(Command, Reply),
    /// Who takes what the device with this node id reports by itself.
    Follow(NodeId, Box<dyn Fn(Message) + Send>),
}
/// Takes the answer to a command.
pub(crate) type Reply = Box<dyn FnOnce(Answer) + Send>;

/// A running manager.
#[derive(Debug)]
pub(crate) struct Role {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

/// A handle to a manager.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    events: mpsc::Sender<Event>,
}

impl Role {
    /// Starts the manager. `monitor`: of the collector of this process, whose reports verify intents. `reach`: devices in this process,
    /// and the namespaces of the others.
    ///
    /// # Errors
    /// The state cannot be read; the message says what to do.
    pub(crate) fn start(
        all: Arc<Settings>,
        settings: ManagerSettings,
        monitor: Arc<Monitor>,
        reach: (Option<Local>, Namespaces),
        control: &Control,
    ) -> Result<Self, CliError> {
        let (events, queue) = mpsc::channel(MAX_EVENTS);
        let (ready, started) = std::sync::mpsc::sync_channel(1);
        let handle = Handle { events };
        let own = handle.clone();
        let (main, (local, namespaces)) = (control.clone(), reach);
        let work = move || {
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
                let reach = (local, &namespaces);
                match Core::new((&all, &settings), reach, &main, nic::time::now(), teller(&own)) {
                    Ok(core) => {
                        let _ = ready.send(Ok(()));
                        run(core, queue, own, monitor).await;
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                    }
                }
            });
        };
        let thread = control.spawn("manager", work)?;
        let role = Self { handle, thread: Some(thread) };
        let failed = || Err(CliError::new("the manager does not start; please report it"));
        started.recv_timeout(START).unwrap_or_else(|_| failed())?;
        Ok(role)
    }

    /// A handle to it.
    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Takes over the intents of another version of the file.
    pub(crate) fn reload(&self, settings: &Arc<Settings>) {
        let settings = Arc::clone(settings);
        let work = move |core: &mut Core, now| core.set_file(&settings, now);
        if self.handle.events.blocking_send(Event::Work(Box::new(work))).is_err() {
            tracing::warn!("the manager has ended; the intents of the file are not changed");
        }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.handle.events.blocking_send(Event::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Handle {
    /// Runs `question` on the manager's thread. `None`: it is overloaded or has ended.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Core, u64) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let work: Work = Box::new(move |core, now| {
            // The requester may be gone.
            let _ = reply.send(question(core, now));
        });
        self.events.try_send(Event::Work(work)).ok()?;
        time::timeout(RESPONSE_TIMEOUT, answer).await.ok()?.ok()
    }
}

/// Passes on what drivers say.
fn teller(handle: &Handle) -> impl Fn(Message) + Clone + Send + Sync + 'static {
    let events = handle.events.clone();
    move |message| {
        // One that does not fit is lost like an answer of the network: the core asks again.
        let _ = events.try_send(Event::Driver(message));
    }
}

async fn run(mut core: Core, mut queue: mpsc::Receiver<Event>, own: Handle, monitor: Arc<Monitor>) {
    let counting = tokio::spawn(count(own.clone(), Arc::clone(&monitor)));
    let firing = tokio::spawn(firing::follow(own, Arc::clone(&monitor)));
    loop {
        let now = nic::time::now();
        let next = core.poll(now).map_or(LONGEST_REST, |next| Duration::from_nanos(next.saturating_sub(now)));
        let next = core.publish(monitor.hub(), now).map_or(next, |publish| next.min(publish));
        let Ok(event) = time::timeout(next.min(LONGEST_REST), queue.recv()).await else { continue };
        let mut event = event;
        // Everything that has arrived is taken before the next step.
        while let Some(taken) = event {
            let now = nic::time::now();
            match taken {
                Event::Driver(message) => core.receive(message, now),
                Event::Work(work) => work(&mut core, now),
                Event::Stop => {
                    counting.abort();
                    firing.abort();
                    return;
                }
            }
            event = queue.try_recv().ok();
        }
    }
}

/// Counts once a second what the collector knows of the flows of intents.
async fn count(own: Handle, monitor: Arc<Monitor>) {
    let mut learning = learn::Learning::default();
    loop {
        time::sleep(COUNT_INTERVAL).await;
        if let Some(links) = learning.learn(&monitor, nic::time::now()).await {
            own.ask(move |core, now| core.learn(links, now)).await;
        }
        let arrived = count::arrivals(&monitor);
        own.ask(move |core, now| core.compare(&arrived, now)).await;
        let watched = own.ask(|core, _| core.watched()).await.unwrap_or_default();
        if watched.is_empty() {
            continue;
        }
        let counted = count::count(&monitor, &watched).await;
        own.ask(|core, now| core.observe(counted, now)).await;
    }
}

/// Messages to the manager that may wait: answers and events of all devices, and requests.
const MAX_EVENTS: usize = 16_384;
/// Time limit of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of the start.
const START: Duration = Duration::from_secs(30);
/// Longest sleep.
const LONGEST_REST: Duration = Duration::from_secs(1);
/// Time between two counts.
const COUNT_INTERVAL: Duration = Duration::from_millis(500);
