//! The switch role: [`dataplane::router`] between real interfaces. One thread owns it; others send it requests.

mod change;
mod checksum_log;
mod dta;
mod lldp;
mod managed;
mod ports;
mod view;

use std::{
    io::Write,
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time,
};

use crate::settings::SwitchSettings;
use ::view::switch::RulesView;
pub use change::{filters, port, same_ports, watch};
pub use dta::{Dta, DtaView, MappingView, SketchView, TableView};
pub use managed::{Managed, Prepared, Proposal, Refused, matched};
pub use ports::Forwarder;
use runtime::{
    control::{Control, StoppableThread},
    intercept::SwitchEnd,
    lock::lock,
};
use terminal::CliError;
pub use view::{FilterView, PortView, SwitchView};

/// Who asks for rules: their requests wait in places of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// Somebody who may only read.
    Reader,
    /// A manager, or somebody else who may change rules.
    Manager,
}

/// Work for the switch's thread.
type Work = Box<dyn FnOnce(&mut Forwarder) + Send>;

/// A switch with open interfaces, not yet started.
#[derive(Debug)]
pub struct Ready {
    forwarder: Forwarder,
    handle: Handle,
    requests: Requests,
}

/// A running switch with its thread.
#[derive(Debug)]
pub struct Role {
    handle: Handle,
    thread: StoppableThread,
}

/// A handle to a switch.
#[derive(Clone, Debug)]
pub struct Handle {
    requests: SyncSender<Work>,
    /// Set when work is in the channel.
    flag: Arc<AtomicBool>,
    wake: Arc<UnixStream>,
    /// The last view that the thread returned.
    last: Arc<Mutex<Option<SwitchView>>>,
    /// Held while rules are saved and put in force.
    turn: Arc<tokio::sync::Mutex<()>>,
    waiting: Waiting,
}

/// Places for requests that wait for another version of the rules: who may only read does not take those of a manager.
#[derive(Clone, Debug)]
struct Waiting {
    readers: Arc<Semaphore>,
    managers: Arc<Semaphore>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            readers: Arc::new(Semaphore::new(MAX_READERS)),
            managers: Arc::new(Semaphore::new(MAX_MANAGERS)),
        }
    }
}

impl Waiting {
    /// A place, while it is held; `None`: all are taken.
    fn acquire(&self, requester: Requester) -> Option<OwnedSemaphorePermit> {
        let room = match requester {
            Requester::Reader => &self.readers,
            Requester::Manager => &self.managers,
        };
        Arc::clone(room).try_acquire_owned().ok()
    }
}

/// The switch's end of the request channel.
#[derive(Debug)]
pub struct Requests {
    work: Receiver<Work>,
    flag: Arc<AtomicBool>,
    wake: UnixStream,
}

impl Ready {
    /// Opens the interfaces of a switch; forwarding starts later. `intercept`: the connection to a translator that reports are
    /// intercepted for.
    ///
    /// # Errors
    /// An interface cannot be opened; the message says what to do.
    pub fn open(settings: SwitchSettings, intercept: Option<SwitchEnd>) -> Result<Self, CliError> {
        let forwarder = Forwarder::open(settings, intercept)?;
        let (requests, work) = sync_channel(MAX_REQUESTS);
        let flag = Arc::new(AtomicBool::new(false));
        let ends = UnixStream::pair().and_then(|(near, far)| {
            near.set_nonblocking(true)?;
            far.set_nonblocking(true)?;
            Ok((near, far))
        });
        let (near, far) = ends.map_err(|error| {
            CliError::io("cannot start the switch", error, "raise the limit on open files")
        })?;
        let handle = Handle {
            requests,
            flag: Arc::clone(&flag),
            wake: Arc::new(near),
            last: Arc::default(),
            turn: Arc::default(),
            waiting: Waiting::default(),
        };
        Ok(Self {
            forwarder,
            handle,
            requests: Requests {
                work,
                flag,
                wake: far,
            },
        })
    }

    /// Starts forwarding.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn start(self, control: &Control) -> Result<Role, CliError> {
        let Self {
            forwarder,
            handle,
            requests,
        } = self;
        let thread = control.spawn_stoppable("switch", move |stop| ports::run(forwarder, requests, &stop))?;
        Ok(Role { handle, thread })
    }
}

impl Role {
    /// A handle to it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Applies another file's ports, routes and flows.
    ///
    /// # Errors
    /// The cause, as a message; the change may be incomplete.
    pub fn reload(&self, settings: SwitchSettings) -> Result<(), String> {
        // The map may have changed; all other DTA settings stay until a restart.
        let mapped = settings.dta.as_ref().filter(|dta| dta.map.is_some());
        let destinations = mapped
            .map(|dta| dta.destinations())
            .transpose()
            .map_err(|error| format!("[switch.dta] {error}"))?;
        let (reply, result) = std::sync::mpsc::sync_channel(1);
        self.handle.post(Box::new(move |forwarder| {
            let _ = reply.send(forwarder.apply(settings, destinations));
        }));
        result
            .recv_timeout(RESPONSE_TIMEOUT)
            .unwrap_or_else(|_| Err("the switch does not answer".to_owned()))
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.thread.request_stop();
        self.handle.wake();
        self.thread.stop();
    }
}

impl Handle {
    /// Runs `question` on the switch's thread. `None`: the switch is overloaded or has ended.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Forwarder) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let asked = self.post(Box::new(move |forwarder| {
            // The requester may be gone.
            let _ = reply.send(question(forwarder));
        }));
        if asked {
            time::timeout(RESPONSE_TIMEOUT, answer).await.ok()?.ok()
        } else {
            None
        }
    }

    /// Returns the current view, or the last one if the switch does not respond in time.
    pub async fn last_view(&self) -> Option<SwitchView> {
        if let Ok(Some(view)) = time::timeout(MOMENT, self.ask(|forwarder| forwarder.view())).await {
            *lock(&self.last) = Some(view);
        }
        lock(&self.last).clone()
    }

    /// Returns the rules. `known`: waits for another version than this one, for a while; `seen`: or for another number of changes of
    /// neighbours than this one. When too many wait already, it answers at once.
    ///
    /// # Errors
    /// The switch is overloaded, or has no manager.
    pub async fn rules(
        &self,
        known: Option<&str>,
        seen: Option<u64>,
        requester: Requester,
    ) -> Result<RulesView, RulesError> {
        let (view, mut versions) = self
            .ask(|forwarder| Some((forwarder.rules_view()?, forwarder.managed()?.versions())))
            .await
            .ok_or(RulesError::Silent)?
            .ok_or(Refused::NotManaged)?;
        let Some(known) = known else { return Ok(view) };
        let Some(_permit) = self.waiting.acquire(requester) else {
            return Ok(view);
        };
        let other = async {
            let changed = versions.wait_for(|version| {
                version.etag != known || seen.is_some_and(|seen| seen != version.neighbours)
            });
            changed.await.is_ok()
        };
        match time::timeout(LONGEST_WAIT, other).await {
            // The switch has ended.
            Ok(false) => Err(RulesError::Silent),
            Ok(true) => {
                let now = self
                    .ask(|forwarder| forwarder.rules_view())
                    .await
                    .ok_or(RulesError::Silent)?;
                Ok(now.ok_or(Refused::NotManaged)?)
            }
            Err(_) => Ok(view),
        }
    }

    /// Executes what a manager asks for: on return it is in force, and survives a restart if the switch has a state file.
    ///
    /// # Errors
    /// The reason; the rules are as before.
    pub async fn propose(&self, proposal: Proposal) -> Result<RulesView, RulesError> {
        let _turn = self.turn.lock().await;
        let prepared = self.ask(move |forwarder| forwarder.prepare(proposal)).await;
        let prepared = save(prepared.ok_or(RulesError::Silent)??).await?;
        let applied = self.ask(move |forwarder| {
            forwarder.put_in_force(prepared)?;
            forwarder.rules_view().ok_or((Refused::NotManaged, None))
        });
        match applied.await.ok_or(RulesError::Silent)? {
            Ok(view) => Ok(view),
            Err((refused, current)) => {
                if let Some(current) = current {
                    save(current).await?;
                }
                Err(refused.into())
            }
        }
    }

    fn post(&self, work: Work) -> bool {
        match self.requests.try_send(work) {
            Ok(()) => {
                self.flag.store(true, Ordering::Release);
                self.wake();
                true
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    fn wake(&self) {
        // A full pipe wakes the thread, too.
        let _ = (&*self.wake).write(&[0]);
    }
}

/// The reason that rules cannot be read or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RulesError {
    /// The switch is overloaded or has ended.
    Silent,
    /// The rules cannot be saved, with the reason and what to do.
    NotSaved(String),
    /// The switch refuses the proposal.
    Refused(Refused),
}

impl From<Refused> for RulesError {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// Saves rules without delaying other requests.
async fn save(prepared: managed::Prepared) -> Result<managed::Prepared, RulesError> {
    let saved = tokio::task::spawn_blocking(move || prepared.save().map(|()| prepared)).await;
    saved
        .map_err(|_| RulesError::Silent)?
        .map_err(RulesError::NotSaved)
}

/// Longest wait for another version of the rules.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// Maximum number of queued requests.
const MAX_REQUESTS: usize = 64;
/// Time limit of a response that may be an old one.
const MOMENT: Duration = Duration::from_millis(50);
/// Time limit of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Requests of managers that wait for another version of the rules.
const MAX_MANAGERS: usize = 16;
/// Requests of those who may only read that wait for another version of the rules.
const MAX_READERS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_that_wait_leave_the_places_of_managers_and_connections() {
        let waiting = Waiting::default();
        let readers: Vec<_> = (0..512)
            .map_while(|_| waiting.acquire(Requester::Reader))
            .collect();
        assert_eq!(readers.len(), MAX_READERS);
        let managers: Vec<_> = (0..512)
            .map_while(|_| waiting.acquire(Requester::Manager))
            .collect();
        assert_eq!(managers.len(), MAX_MANAGERS);
        drop(readers);
        assert!(
            waiting.acquire(Requester::Reader).is_some() && waiting.acquire(Requester::Manager).is_none()
        );
    }
}
