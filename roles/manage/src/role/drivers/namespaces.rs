//! Connections from other network namespaces. A thread enters a namespace while the process has the privileges, drops its own,
//! and creates sockets there. A socket stays in the namespace in which it was created, so the requester connects it, and a
//! device that does not answer delays no other.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
};

use tokio::{
    net::{TcpSocket, TcpStream},
    sync::oneshot,
};

use crate::settings::ManagerSettings;
use manager::inventory::InventorySettings;
use nic::capabilities::{CapSet, drop_thread_to};
use runtime::control::Control;
use terminal::CliError;

/// Capacity of a namespace's request queue: several times the tasks of a device.
const MAX_REQUESTS: usize = 64;

/// The namespaces of all devices, by name.
#[derive(Debug, Default)]
pub struct Namespaces(BTreeMap<String, Namespace>);

/// A handle to the thread inside a namespace, which creates sockets.
#[derive(Clone, Debug)]
pub(in crate::role) struct Namespace {
    requests: SyncSender<Request>,
}

/// An address, and the recipient of a socket for it with the resolved address.
type Request = (String, oneshot::Sender<io::Result<(TcpSocket, SocketAddr)>>);

impl Namespaces {
    /// Enters the namespaces of all devices.
    ///
    /// # Errors
    /// There is no such namespace, or the process may not enter it.
    pub fn open(
        manager: Option<&ManagerSettings>,
        inventory: &InventorySettings,
        control: &Control,
    ) -> Result<Self, CliError> {
        let Some(manager) = manager.filter(|manager| manager.namespace.is_some()) else {
            return Ok(Self::default());
        };
        let mut namespaces = BTreeMap::new();
        for device in manager::inventory::from_settings(inventory).devices() {
            let Some(name) = name(manager, &device.name) else {
                continue;
            };
            if let Entry::Vacant(entry) = namespaces.entry(name) {
                let namespace = Namespace::open(entry.key(), control)?;
                entry.insert(namespace);
            }
        }
        Ok(Self(namespaces))
    }

    /// Returns the namespace of a device.
    pub(super) fn get(&self, manager: &ManagerSettings, device: &str) -> Option<Namespace> {
        self.0.get(&name(manager, device)?).cloned()
    }
}

/// Returns the name of a device's namespace, with `{device}` substituted.
fn name(manager: &ManagerSettings, device: &str) -> Option<String> {
    manager
        .namespace
        .as_ref()
        .map(|name| name.replace("{device}", device))
}

impl Namespace {
    fn open(name: &str, control: &Control) -> Result<Self, CliError> {
        let (requests, queue) = sync_channel(MAX_REQUESTS);
        let (entered, result) = sync_channel(1);
        let own = name.to_owned();
        control.spawn("manager-netns", move || {
            let result = nic::netns::enter(&own);
            let inside = result.is_ok();
            // The thread needs no capabilities to create sockets.
            let _ = drop_thread_to(CapSet::of(&[]));
            let _ = entered.send(result);
            if inside {
                serve(&queue);
            }
        })?;
        match result.recv() {
            Ok(Ok(())) => Ok(Self { requests }),
            Ok(Err(error)) => Err(CliError::new(format!(
                "cannot enter the network namespace {name} of [manager] namespace ({error}); `ip netns list` lists the namespaces; entering one requires root"
            ))),
            Err(_) => Err(CliError::new("the manager does not start; please report it")),
        }
    }

    /// Connects to `address` from inside the namespace. The caller must limit the time.
    pub(super) async fn connect(&self, address: &str) -> io::Result<TcpStream> {
        let (reply, connected) = oneshot::channel();
        self.requests
            .try_send((address.to_owned(), reply))
            .map_err(|error| match error {
                TrySendError::Full(_) => io::Error::other("too many requests are pending"),
                TrySendError::Disconnected(_) => io::Error::other("the manager ends"),
            })?;
        let (socket, address) = connected
            .await
            .map_err(|_| io::Error::other("the manager ends"))??;
        socket.connect(address).await
    }
}

/// Creates sockets until the last device is gone.
fn serve(queue: &Receiver<Request>) {
    while let Ok((address, reply)) = queue.recv() {
        // Skip requesters that have timed out.
        if !reply.is_closed() {
            let _ = reply.send(socket(&address));
        }
    }
}

/// Creates an unconnected socket for an address. Blocks only if a name must be resolved.
fn socket(address: &str) -> io::Result<(TcpSocket, SocketAddr)> {
    let first: Option<SocketAddr> = address.to_socket_addrs()?.next();
    let first = first.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
    let socket = if first.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    };
    Ok((socket?, first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_does_not_answer_delays_no_other() {
        let (requests, queue) = sync_channel(MAX_REQUESTS);
        let namespace = Namespace { requests };
        let serving = std::thread::spawn(move || serve(&queue));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            // Its backlog is full: it answers no further connection.
            let silent = TcpSocket::new_v4().unwrap();
            silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let silent = silent.listen(0).unwrap();
            let at = silent.local_addr().unwrap();
            let mut held = vec![TcpStream::connect(at).await.unwrap()];
            let second = std::time::Duration::from_secs(1);
            while let Ok(Ok(more)) = tokio::time::timeout(second, TcpStream::connect(at)).await {
                held.push(more);
                assert!(held.len() < 64, "the system has no backlog of 0");
            }
            let (name, other) = (at.to_string(), namespace.clone());
            let waiting = tokio::spawn(async move { other.connect(&name).await.map(drop) });
            tokio::task::yield_now().await;
            let good = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            namespace
                .connect(&good.local_addr().unwrap().to_string())
                .await
                .unwrap();
            assert!(!waiting.is_finished());
            waiting.abort();
            assert!(waiting.await.unwrap_err().is_cancelled());
        });
        drop(namespace);
        serving.join().unwrap();
    }
}
