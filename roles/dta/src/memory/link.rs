//! Links of translators: answers a `hello` by creating an unreliable (UC) and a reliable (RC) queue pair on the active
//! responder (user space, kernel, or RDMA device), and by offering the stores.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::MutexGuard,
    time::Instant,
};

use rdma::responder::{QueuePairConfig, QueuePairState, Responder};
use wire::roce::{PMTUS, PORT, Path, Psn, Transport};

use super::kernel::{self, Kernel};
use super::verbs::{ConnectError, Verbs};
use super::{Memory, RECEIVES};
use crate::exchange::{Accept, End, Hello, Shape, StoreOffer, VERSION, server::Host};

/// Maximum number of outstanding atomics on a device's queue pair ([`nic::verbs::ATOMICS`]).
const DEVICE_ATOMICS: u32 = nic::verbs::ATOMICS as u32;

/// Identity of a link: the translator's instance and the link's index.
pub(super) type Name = (String, u8);

/// A translator's link and its queue pairs.
#[derive(Clone, Debug)]
pub(super) struct TranslatorLink {
    pub(super) from: SocketAddr,
    pub(super) unreliable: u32,
    pub(super) reliable: u32,
    /// The link's exchange connection is open.
    pub(super) up: bool,
    /// When `up` last changed.
    pub(super) since: Instant,
    /// Number of exchange connections that the link has had.
    pub(super) connections: u64,
    /// Number of its current exchange connection, in the order of all connections.
    connection: u64,
}

impl TranslatorLink {
    /// Returns the unreliable and the reliable queue pair number.
    pub(super) fn pairs(&self) -> [u32; 2] {
        [self.unreliable, self.reliable]
    }
}

/// The links of all translators.
pub(super) type Links = BTreeMap<Name, TranslatorLink>;

/// Builds the path to a peer. A UDP socket does not expose link-layer addresses, so the MAC address carries the peer's UDP
/// port, which may differ from RoCEv2's 4791 if both ends are on one machine. [`address_of`] decodes it.
fn path(from: SocketAddr, to: SocketAddr) -> Path {
    let [high, low] = to.port().to_be_bytes();
    Path {
        destination_mac: [0, 0, 0, 0, high, low],
        ..Path::new(from.ip(), to.ip(), from.port())
    }
}

fn pair_config(transport: Transport, end: &End, path: Path, mtu: u16) -> QueuePairConfig {
    QueuePairConfig {
        transport,
        path,
        peer: end.queue_pair,
        psn: Psn::new(end.psn),
        mtu: mtu.into(),
        receives: RECEIVES,
    }
}

/// Returns the peer of a path that [`path`] built.
pub(super) fn address_of(path: &Path) -> SocketAddr {
    let [.., high, low] = path.destination_mac;
    SocketAddr::new(path.destination, u16::from_be_bytes([high, low]))
}

impl Host for Memory {
    fn accept(&self, hello: &Hello, connection: u64, _local: IpAddr) -> Result<Accept, String> {
        if hello.address.is_ipv4() != self.listen.is_ipv4() {
            return Err(format!(
                "this memory is at {}: come from an address of the same family",
                self.listen
            ));
        }
        let mtu = self.check(hello)?;
        let name = (hello.instance.clone(), hello.link);
        let peer = SocketAddr::new(hello.address, hello.port);
        let mut links = self.links();
        // A translator may give up on a connection before its hello is processed, and connect again. Ignore the late hello.
        if links.get(&name).is_some_and(|link| link.connection > connection) {
            return Err("a later connection replaced this one".to_owned());
        }
        let mut pairs = self.pairs();
        let before = links.remove(&name);
        let executed = before
            .as_ref()
            .and_then(|link| pairs.expected(link.reliable))
            .map(Psn::value);
        if let Some(link) = &before {
            pairs.disconnect(link.pairs());
        }
        let path = path(self.listen, peer);
        let unreliable = pair_config(Transport::Uc, &hello.unreliable, path, mtu);
        let unreliable = pairs.connect(&mut links, &unreliable, peer.port())?;
        let reliable = pair_config(Transport::Rc, &hello.reliable, path, mtu);
        let reliable = match pairs.connect(&mut links, &reliable, peer.port()) {
            Ok(reliable) => reliable,
            Err(error) => {
                // A link needs both queue pairs, so free the first one.
                pairs.disconnect([unreliable]);
                return Err(error);
            }
        };
        drop(pairs);
        let connections = before.map_or(0, |link| link.connections) + 1;
        let link = TranslatorLink {
            from: peer,
            unreliable,
            reliable,
            up: true,
            since: Instant::now(),
            connections,
            connection,
        };
        links.insert(name, link);
        drop(links);
        tracing::info!(
            "the translator at {peer} is connected: {} store(s)",
            self.offered.len()
        );
        Ok(Accept {
            version: VERSION,
            instance: self.instance.clone(),
            address: self.listen.ip(),
            port: self.listen.port(),
            mtu,
            unreliable: Some(unreliable),
            reliable: Some(reliable),
            atomics: if self.verbs.is_some() {
                DEVICE_ATOMICS
            } else {
                rdma::responder::Config::default().atomic_depth
            },
            executed,
            stores: self.offers(),
        })
    }

    fn disconnected(&self, hello: &Hello, accept: &Accept) {
        // If the link has reconnected before its old connection ended, it has new queue pairs and stays up.
        let name = (hello.instance.clone(), hello.link);
        if let Some(link) = self
            .links()
            .get_mut(&name)
            .filter(|link| accept.reliable == Some(link.reliable))
        {
            // Keep the queue pairs: packets in flight are executed, and after a reconnect the link resumes at the right PSN.
            (link.up, link.since) = (false, Instant::now());
        }
    }
}

impl Memory {
    /// Returns the path MTU for a translator, or the reason it cannot be served.
    fn check(&self, hello: &Hello) -> Result<u16, String> {
        let mut mtu = usable_mtu(hello.mtu)?;
        if self.kernel.is_some() {
            if hello.address == self.listen.ip() {
                return Err(format!(
                    "what this machine sends to itself comes by no interface: with [collector.memory] mode = \"xdp\" the translator must \
                     be another machine than {}",
                    self.listen.ip()
                ));
            }
            mtu = mtu.min(kernel::MAX_PAYLOAD);
        }
        if let Some(verbs) = &self.verbs {
            if hello.port != PORT {
                return Err(
                    "RDMA devices answer to UDP port 4791 only: set [translator] source_port = 4791"
                        .to_owned(),
                );
            }
            mtu = mtu.min(verbs.mtu());
            verbs.warn_of_long_slots(self.offered.iter().map(|offered| &*offered.store), mtu);
        }
        Ok(mtu)
    }

    /// Returns the queue pairs of all links.
    pub(super) fn pairs(&self) -> Pairs<'_> {
        Pairs {
            responder: self.responder(),
            kernel: self.kernel.as_ref(),
            verbs: self.verbs.as_ref(),
        }
    }

    /// Describes the stores for a translator, with the next position of each list.
    fn offers(&self) -> Vec<StoreOffer> {
        let offers = self.offered.iter().enumerate().map(|(region, offered)| {
            let store = &offered.store.store;
            // A restarted translator continues after the existing entries of each list.
            let next = store.lists().map(|lists| {
                lists
                    .heads()
                    .map(|(_, newest)| {
                        if lists.ring().tagged {
                            newest.map_or(1, wire::dta::layout::BlockTrailer::next).into()
                        } else {
                            0
                        }
                    })
                    .collect()
            });
            StoreOffer {
                name: offered.store.name().to_owned(),
                region: region as u16,
                id: store.header().id,
                address: format!("{:x}", offered.registered.address),
                length: offered.registered.len,
                key: offered.registered.rkey,
                shape: Shape::from_geometry(
                    &store.geometry(),
                    next.unwrap_or_default(),
                    offered.swapped,
                    offered.reporters,
                ),
            }
        });
        offers.collect()
    }
}

/// Access to the queue pairs of the active responder.
pub(super) struct Pairs<'m> {
    pub(super) responder: MutexGuard<'m, Responder>,
    kernel: Option<&'m Kernel>,
    verbs: Option<&'m Verbs>,
}

impl Pairs<'_> {
    /// Creates a queue pair for a peer with this UDP port. At the limit, evicts the link that has been disconnected longest.
    fn connect(&mut self, links: &mut Links, pair: &QueuePairConfig, port: u16) -> Result<u32, String> {
        let number = loop {
            match self.create_queue_pair(pair) {
                Err(ConnectError::Full) => {
                    let longest_down = links
                        .iter()
                        .filter(|(_, link)| !link.up)
                        .min_by_key(|(_, link)| link.since);
                    let Some(name) = longest_down.map(|(name, _)| name.clone()) else {
                        return Err(
                            "all queue pairs are in use; raise [collector.memory] queue_pairs".to_owned()
                        );
                    };
                    if let Some(link) = links.remove(&name) {
                        self.disconnect(link.pairs());
                    }
                }
                Err(ConnectError::Refused(error)) => return Err(error),
                Ok(number) => break number,
            }
        };
        if let Some(kernel) = self.kernel {
            if let Err(error) = kernel.connect(number, pair, port) {
                self.responder.disconnect(number);
                return Err(format!("the kernel refused its queue pair: {error}"));
            }
            self.responder.offload(number);
        }
        Ok(number)
    }

    fn create_queue_pair(&mut self, pair: &QueuePairConfig) -> Result<u32, ConnectError> {
        match self.verbs {
            Some(verbs) => verbs.connect(pair),
            None => Ok(self.responder.connect(pair)?),
        }
    }

    fn disconnect(&mut self, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            self.verbs.map(|verbs| verbs.disconnect(number));
            self.kernel.map(|kernel| kernel.disconnect(number));
            self.responder.disconnect(number);
        }
    }

    fn expected(&self, number: u32) -> Option<Psn> {
        match (self.kernel, self.verbs) {
            (Some(kernel), _) => kernel.expected(number),
            // An RDMA device does not report the expected PSN.
            (None, Some(_)) => None,
            (None, None) => self.responder.expected(number),
        }
    }

    pub(super) fn state(&self, number: u32) -> Option<QueuePairState> {
        match (self.kernel, self.verbs) {
            (Some(kernel), _) => kernel.state(number),
            (None, Some(verbs)) => verbs.state(number),
            (None, None) => self.responder.state(number),
        }
    }
}

/// Returns the largest path MTU of RoCEv2 that is at most `max_mtu`.
fn usable_mtu(max_mtu: u16) -> Result<u16, String> {
    let fitting = PMTUS.into_iter().rfind(|mtu| *mtu <= max_mtu);
    fitting.ok_or_else(|| format!("{max_mtu} is not a path MTU of RoCEv2, which has 256 to 4096"))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::Ready;
    use super::*;
    use dta::settings::{Count, MemorySettings, RegionSettings};

    fn hello(queue_pair: u32) -> Hello {
        let end = |number| End {
            queue_pair: queue_pair + number,
            psn: 7,
        };
        Hello {
            version: VERSION,
            instance: "a1".to_owned(),
            link: 0,
            address: Ipv4Addr::LOCALHOST.into(),
            port: 5000,
            mtu: 1024,
            unreliable: end(0),
            reliable: end(1),
        }
    }

    #[test]
    fn a_late_hello_of_an_earlier_connection_leaves_the_link_as_it_is() {
        let directory = std::env::temp_dir().join(format!("hopwise-late-hello-{}", std::process::id()));
        let store = RegionSettings {
            name: "a".to_owned(),
            id: Some(1),
            slots: Some(Count(64)),
            data: Some(4),
            ..RegionSettings::default()
        };
        let settings = MemorySettings {
            listen: "127.0.0.1:0".parse().unwrap(),
            exchange: "127.0.0.1:0".parse().unwrap(),
            directory: directory.clone(),
            stores: vec![store],
            ..MemorySettings::default()
        };
        let ready = Ready::open(&settings).unwrap();
        let (memory, local) = (&*ready.memory, Ipv4Addr::LOCALHOST.into());
        let name = ("a1".to_owned(), 0);
        let first = memory.accept(&hello(2), 0, local).unwrap();
        let second = memory.accept(&hello(4), 2, local).unwrap();
        let late = memory.accept(&hello(8), 1, local).unwrap_err();
        assert_eq!(late, "a later connection replaced this one");
        memory.disconnected(&hello(2), &first);
        let link = memory.links().get(&name).cloned().unwrap();
        assert_eq!(
            (link.up, Some(link.reliable), link.connections),
            (true, second.reliable, 2)
        );
        assert_eq!(memory.pairs().state(link.reliable), Some(QueuePairState::Ready));
        memory.disconnected(&hello(4), &second);
        assert!(!memory.links()[&name].up);
        drop(ready);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
