//! The switch role: [`dataplane::router`] between real interfaces. One thread does everything; others ask it.

mod change;
pub(crate) mod dta;
mod ports;
mod view;

use std::{
    io::Write,
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::{sync::oneshot, time};

use crate::{config::switch::SwitchSettings, control::Control};
pub(crate) use change::{filters, port, same_ports, watch};
pub(crate) use dta::DtaView;
pub(crate) use ports::Forwarder;
use terminal::CliError;
pub(crate) use view::{FilterView, PortView, SwitchView};

/// Work for the switch's thread.
type Work = Box<dyn FnOnce(&mut Forwarder) + Send>;

/// A switch that was set up: its interfaces are open.
pub(crate) struct Ready {
    forwarder: Forwarder,
    handle: Handle,
    requests: Mail,
}

/// A switch at work.
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
    /// Work is in the channel. Relaxed: the channel orders its contents.
    flag: Arc<AtomicBool>,
    wake: Arc<UnixStream>,
}

/// The switch's end of it.
#[derive(Debug)]
pub(crate) struct Mail {
    work: Receiver<Work>,
    flag: Arc<AtomicBool>,
    wake: UnixStream,
}

impl Ready {
    /// Opens the interfaces of a switch; nothing is forwarded yet.
    ///
    /// # Errors
    /// One cannot be opened; what to do.
    pub(crate) fn open(settings: SwitchSettings) -> Result<Self, CliError> {
        let forwarder = Forwarder::open(settings)?;
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
        let handle = Handle { requests, flag: Arc::clone(&flag), wake: Arc::new(near) };
        Ok(Self { forwarder, handle, requests: Mail { work, flag, wake: far } })
    }

    /// Begins to forward.
    ///
    /// # Errors
    /// There is no thread.
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
    /// What is wrong; nothing or not everything was changed.
    pub(crate) fn reload(&self, settings: SwitchSettings) -> Result<(), String> {
        // The map may have changed; all other DTA settings stay until a restart.
        let mapped = settings.dta.as_ref().filter(|dta| dta.map.is_some());
        let ways =
            mapped.map(|dta| dta.ways()).transpose().map_err(|error| format!("[switch.dta] {error}"))?;
        let (reply, result) = std::sync::mpsc::sync_channel(1);
        self.handle.post(Box::new(move |forwarder| {
            let _ = reply.send(forwarder.apply(settings, ways));
        }));
        result.recv_timeout(PATIENCE).unwrap_or_else(|_| Err("the switch does not answer".to_owned()))
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
    /// Asks the switch. `None`: it is too busy, or has ended.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Forwarder) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let asked = self.post(Box::new(move |forwarder| {
            // The requester may be gone.
            let _ = reply.send(question(forwarder));
        }));
        if asked { time::timeout(PATIENCE, answer).await.ok()?.ok() } else { None }
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
        // A full pipe wakes as well.
        let _ = (&*self.wake).write(&[0]);
    }
}

/// Requests that may wait.
const MAX_REQUESTS: usize = 64;
/// Time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(2);
