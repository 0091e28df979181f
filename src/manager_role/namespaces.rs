//! Connections from other network namespaces. A thread enters a namespace while the process may, drops its capabilities, and connects
//! there: sockets stay in the namespace in which they were made.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{
    capabilities::drop_to_connecting,
    config::{Settings, manager::ManagerSettings},
    control::Control,
};
use terminal::CliError;

/// The namespaces of the devices, by name.
#[derive(Debug, Default)]
pub(crate) struct Namespaces(BTreeMap<String, Namespace>);

/// A namespace: where to ask for connections.
#[derive(Clone, Debug)]
pub(super) struct Namespace {
    requests: SyncSender<Request>,
}

/// An address, the time limit, and who waits for the connection.
type Request = (String, Duration, oneshot::Sender<io::Result<TcpStream>>);

impl Namespaces {
    /// Enters the namespaces of all devices.
    ///
    /// # Errors
    /// There is no such namespace, or the process may not enter it.
    pub(crate) fn open(settings: &Settings, control: &Control) -> Result<Self, CliError> {
        let Some(manager) = settings.manager.as_ref().filter(|manager| manager.namespace.is_some()) else {
            return Ok(Self::default());
        };
        let mut namespaces = BTreeMap::new();
        for device in manager::inventory::of(&settings.inventory).devices() {
            let Some(name) = name(manager, &device.name) else { continue };
            if let Entry::Vacant(entry) = namespaces.entry(name) {
                let namespace = Namespace::open(entry.key(), control)?;
                entry.insert(namespace);
            }
        }
        Ok(Self(namespaces))
    }

    /// That of a device.
    pub(super) fn of(&self, manager: &ManagerSettings, device: &str) -> Option<Namespace> {
        self.0.get(&name(manager, device)?).cloned()
    }
}

/// The name of a device's namespace.
fn name(manager: &ManagerSettings, device: &str) -> Option<String> {
    manager.namespace.as_ref().map(|name| name.replace("{device}", device))
}

impl Namespace {
    fn open(name: &str, control: &Control) -> Result<Self, CliError> {
        let (requests, queue) = sync_channel(MAX_REQUESTS);
        let (entered, result) = sync_channel(1);
        let own = name.to_owned();
        let work = move || {
            let result = nic::netns::enter(&own);
            let inside = result.is_ok();
            drop_to_connecting();
            let _ = entered.send(result);
            if inside {
                serve(&queue);
            }
        };
        control.spawn("manager-netns", work)?;
        match result.recv() {
            Ok(Ok(())) => Ok(Self { requests }),
            Ok(Err(error)) => Err(CliError::new(format!(
                "cannot enter the network namespace {name} of [manager] namespace ({error}); `ip netns list` lists the namespaces; entering one requires root"
            ))),
            Err(_) => Err(CliError::new("the manager does not start; please report it")),
        }
    }

    /// A connection to `address`, from inside.
    pub(super) async fn connect(&self, address: &str, limit: Duration) -> io::Result<tokio::net::TcpStream> {
        let (reply, connected) = oneshot::channel();
        self.requests.try_send((address.to_owned(), limit, reply)).map_err(|error| match error {
            TrySendError::Full(_) => io::Error::other("too many requests wait"),
            TrySendError::Disconnected(_) => io::Error::other("the manager ends"),
        })?;
        let stream = connected.await.map_err(|_| io::Error::other("the manager ends"))??;
        stream.set_nonblocking(true)?;
        tokio::net::TcpStream::from_std(stream)
    }
}

/// Connects until the last device is gone.
fn serve(queue: &Receiver<Request>) {
    while let Ok((address, limit, reply)) = queue.recv() {
        // Nobody waits any more after a timeout.
        if !reply.is_closed() {
            let _ = reply.send(connect(&address, limit));
        }
    }
}

fn connect(address: &str, limit: Duration) -> io::Result<TcpStream> {
    let first: Option<SocketAddr> = address.to_socket_addrs()?.next();
    let first = first.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
    TcpStream::connect_timeout(&first, limit)
}

/// Requests that wait for a namespace: those of all tasks of a device, several times.
const MAX_REQUESTS: usize = 64;
