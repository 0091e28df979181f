//! The switch role: runs [`dataplane::router`] between real interfaces, as an INT node. One thread owns the router; the API
//! and other threads send it closures to execute.

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
use ports::ActivationError;
pub use ports::Forwarder;
use runtime::{
    control::{Control, StoppableThread},
    intercept::SwitchEnd,
    lock::lock,
};
use terminal::CliError;
pub use view::{FilterView, PortView, SwitchView};

/// Longest wait for a new version of the rules.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// Maximum number of queued requests.
const MAX_REQUESTS: usize = 64;
/// Time limit of a request that can fall back to the last view.
const MOMENT: Duration = Duration::from_millis(50);
/// Time limit of other requests.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of waiting requests of managers.
const MAX_MANAGERS: usize = 16;
/// Maximum number of waiting requests of readers.
const MAX_READERS: usize = 8;

/// The kind of client that requests rules. Each kind has a separate limit on waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A client with read access only.
    Reader,
    /// A manager, or another client that may change rules.
    Manager,
}

/// Work for the switch's thread to execute.
type Work = Box<dyn FnOnce(&mut Forwarder) + Send>;

/// A switch with open interfaces, before its thread starts.
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

/// A handle for requests to a switch.
#[derive(Clone, Debug)]
pub struct Handle {
    requests: SyncSender<Work>,
    /// Set when work is in the channel; together with a byte in the pipe it wakes the thread.
    flag: Arc<AtomicBool>,
    wake: Arc<UnixStream>,
    /// The last view that the thread returned, as a fallback.
    last: Arc<Mutex<Option<SwitchView>>>,
    /// Held from the check of a proposal until its rules are active, so that proposals are processed one at a time.
    proposal_lock: Arc<tokio::sync::Mutex<()>>,
    waiting: Waiting,
}

/// Permits for requests that wait for a new version of the rules. Readers cannot use up the managers' permits.
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
    /// Returns a permit, or `None` if all are in use.
    fn acquire(&self, requester: Requester) -> Option<OwnedSemaphorePermit> {
        let room = match requester {
            Requester::Reader => &self.readers,
            Requester::Manager => &self.managers,
        };
        Arc::clone(room).try_acquire_owned().ok()
    }
}

/// The thread's end of the request channel.
#[derive(Debug)]
pub struct Requests {
    work: Receiver<Work>,
    flag: Arc<AtomicBool>,
    wake: UnixStream,
}

impl Ready {
    /// Opens a switch's interfaces; forwarding starts later. `intercept` connects to the translator of intercepted reports.
    ///
    /// # Errors
    /// An interface cannot be opened; the message suggests a fix.
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
            proposal_lock: Arc::default(),
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

    /// Starts the switch's thread, which forwards frames.
    ///
    /// # Errors
    /// The system cannot start a thread.
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
    /// Returns a handle to the switch.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Applies the ports, routes and flows of a reloaded configuration.
    ///
    /// # Errors
    /// The cause, as a message; the change may be incomplete.
    pub fn reload(&self, settings: SwitchSettings) -> Result<(), String> {
        // Reload the collector map; other DTA settings apply at the next start.
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
    /// Runs `question` on the switch's thread. Returns `None` if the switch is overloaded or has ended.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Forwarder) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let is_posted = self.post(Box::new(move |forwarder| {
            // The requester may be gone.
            let _ = reply.send(question(forwarder));
        }));
        if is_posted {
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

    /// Returns the rules. With `known`, waits a while for a version other than that; with `seen`, also for another number of
    /// neighbour changes. If too many requests are waiting, answers at once.
    ///
    /// # Errors
    /// The switch is overloaded or not managed.
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

    /// Checks, saves and then activates a manager's proposal, which then survives a restart if there is a state file.
    ///
    /// # Errors
    /// The reason; the rules are unchanged.
    pub async fn propose(&self, proposal: Proposal) -> Result<RulesView, RulesError> {
        let _lock = self.proposal_lock.lock().await;
        let prepared = self.ask(move |forwarder| forwarder.prepare(proposal)).await;
        let prepared = save(prepared.ok_or(RulesError::Silent)??).await?;
        let applied = self.ask(move |forwarder| {
            forwarder.activate(prepared)?;
            forwarder.rules_view().ok_or_else(ActivationError::not_managed)
        });
        match applied.await.ok_or(RulesError::Silent)? {
            Ok(view) => Ok(view),
            // Activation failed after saving, so save the active rules again.
            Err(ActivationError { refused, active }) => {
                if let Some(active) = active {
                    save(active).await?;
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
        // If the pipe is full, the thread wakes up anyway.
        let _ = (&*self.wake).write(&[0]);
    }
}

/// The reason rules cannot be read or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RulesError {
    /// The switch is overloaded or has ended.
    Silent,
    /// The rules cannot be saved; the reason and a suggested fix.
    NotSaved(String),
    /// The switch refuses the proposal.
    Refused(Refused),
}

impl From<Refused> for RulesError {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// Saves rules on a blocking thread, without delaying other requests.
async fn save(prepared: managed::Prepared) -> Result<managed::Prepared, RulesError> {
    let saved = tokio::task::spawn_blocking(move || prepared.save().map(|()| prepared)).await;
    saved
        .map_err(|_| RulesError::Silent)?
        .map_err(RulesError::NotSaved)
}

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
