//! The switch role: [`dataplane::router`] between real interfaces. One thread owns it; others send it requests.

mod change;
mod checksum_log;
pub(crate) mod dta;
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
    thread::JoinHandle,
    time::Duration,
};

use tokio::{sync::oneshot, time};

use crate::{config::switch::SwitchSettings, control::Control, intercept::SwitchEnd, lock::lock};
pub(crate) use change::{filters, port, same_ports, watch};
pub(crate) use dta::DtaView;
pub(crate) use ports::Forwarder;
use terminal::CliError;
pub(crate) use view::{FilterView, PortView, SwitchView};

/// Work for the switch's thread.
type Work = Box<dyn FnOnce(&mut Forwarder) + Send>;

/// A switch with open interfaces, not yet started.
pub(crate) struct Ready {
    forwarder: Forwarder,
    handle: Handle,
    requests: Requests,
}

/// A running switch.
#[derive(Debug)]
pub(crate) struct Role {
    handle: Handle,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A handle to a switch.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    requests: SyncSender<Work>,
    /// Set when work is in the channel.
    flag: Arc<AtomicBool>,
    wake: Arc<UnixStream>,
    /// Its last view.
    last: Arc<Mutex<Option<SwitchView>>>,
}

/// The switch's end of the request channel.
#[derive(Debug)]
pub(crate) struct Requests {
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
    pub(crate) fn open(settings: SwitchSettings, intercept: Option<SwitchEnd>) -> Result<Self, CliError> {
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
        let handle = Handle { requests, flag: Arc::clone(&flag), wake: Arc::new(near), last: Arc::default() };
        Ok(Self { forwarder, handle, requests: Requests { work, flag, wake: far } })
    }

    /// Starts forwarding.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub(crate) fn start(self, control: &Control) -> Result<Role, CliError> {
        let Self { forwarder, handle, requests } = self;
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let thread = control.spawn("switch", move || ports::run(forwarder, requests, &ends))?;
        Ok(Role { handle, stop, thread: Some(thread) })
    }
}

impl Role {
    /// A handle to it.
    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Applies another file's ports, routes and flows.
    ///
    /// # Errors
    /// The cause, as a message; the change may be incomplete.
    pub(crate) fn reload(&self, settings: SwitchSettings) -> Result<(), String> {
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
        result.recv_timeout(RESPONSE_TIMEOUT).unwrap_or_else(|_| Err("the switch does not answer".to_owned()))
    }

    fn stop(&mut self) {
        // Relaxed: the flag orders no other memory.
        self.stop.store(true, Ordering::Relaxed);
        self.handle.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Handle {
    /// Runs `question` on the switch's thread. `None`: the switch is overloaded or has ended.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Forwarder) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let asked = self.post(Box::new(move |forwarder| {
            // The requester may be gone.
            let _ = reply.send(question(forwarder));
        }));
        if asked { time::timeout(RESPONSE_TIMEOUT, answer).await.ok()?.ok() } else { None }
    }

    /// Its view, or the last one if it does not respond in time.
    pub(crate) async fn last_view(&self) -> Option<SwitchView> {
        if let Ok(Some(view)) = time::timeout(MOMENT, self.ask(|forwarder| forwarder.view())).await {
            *lock(&self.last) = Some(view);
        }
        lock(&self.last).clone()
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

/// Maximum number of queued requests.
const MAX_REQUESTS: usize = 64;
/// Time limit of a response that may be an old one.
const MOMENT: Duration = Duration::from_millis(50);
/// Time limit of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
