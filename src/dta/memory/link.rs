//! Translators' links: which queue pairs are whose.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use collector::rdma::{PairConfig, PairError, Responder};
use wire::roce::{PMTUS, Path, Psn, Transport};

use super::{Memory, RECEIVES};
use crate::dta::exchange::{End, Hello, Shape, StoreOffer, VERSION, Welcome, server::Host};

/// A translator's link, known by who it is and its number there.
pub(super) type Name = (String, u8);

/// A link's queue pairs here.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) from: SocketAddr,
    pub(super) unreliable: u32,
    pub(super) reliable: u32,
    /// Is its connection to the exchange there?
    pub(super) up: bool,
    pub(super) since: Instant,
    /// How often it came.
    pub(super) connections: u64,
}

/// All of them.
pub(super) type Links = BTreeMap<Name, Link>;

/// Over a UDP socket nobody sees the link layer's addresses; the port of the other end stands there instead, because it need not
/// be RoCEv2's own when both ends are on one machine.
fn path(from: SocketAddr, to: SocketAddr) -> Path {
    let [high, low] = to.port().to_be_bytes();
    Path { destination_mac: [0, 0, 0, 0, high, low], ..Path::new(from.ip(), to.ip(), from.port()) }
}

/// The other end of such a path.
pub(super) fn address_of(path: &Path) -> SocketAddr {
    let [.., high, low] = path.destination_mac;
    SocketAddr::new(path.destination, u16::from_be_bytes([high, low]))
}

impl Host for Memory {
    fn welcome(&self, hello: &Hello, _local: IpAddr) -> Result<Welcome, String> {
        if hello.address.is_ipv4() != self.listen.is_ipv4() {
            return Err(format!(
                "this memory is at {}: come from an address of the same family",
                self.listen
            ));
        }
        let mtu = usable_mtu(hello.mtu)?;
        let name = (hello.instance.clone(), hello.link);
        let peer = SocketAddr::new(hello.address, hello.port);
        let mut links = self.links();
        let mut responder = self.responder();
        let before = links.remove(&name);
        let executed = before.as_ref().and_then(|link| responder.expected(link.reliable)).map(Psn::value);
        if let Some(link) = &before {
            responder.disconnect(link.unreliable);
            responder.disconnect(link.reliable);
        }
        let mut connect = |transport, end: &End| {
            let pair = PairConfig {
                transport,
                path: path(self.listen, peer),
                peer: end.queue_pair,
                psn: Psn::new(end.psn),
                mtu: mtu.into(),
                receives: RECEIVES,
            };
            connect(&mut responder, &mut links, &pair)
        };
        let unreliable = connect(Transport::Uc, &hello.unreliable)?;
        let reliable = connect(Transport::Rc, &hello.reliable).inspect_err(|_| {
            // Half a link helps nobody.
            tracing::warn!("no queue pair left for the translator at {peer}");
        })?;
        drop(responder);
        let connections = before.map_or(0, |link| link.connections) + 1;
        let link = Link { from: peer, unreliable, reliable, up: true, since: Instant::now(), connections };
        links.insert(name, link);
        drop(links);
        tracing::info!("the translator at {peer} is connected: {} store(s)", self.offered.len());
        Ok(Welcome {
            version: VERSION,
            instance: self.instance.clone(),
            address: self.listen.ip(),
            port: self.listen.port(),
            mac: None,
            mtu,
            unreliable: Some(unreliable),
            reliable: Some(reliable),
            atomics: collector::rdma::Config::default().atomic_depth,
            executed,
            stores: self.offers(),
        })
    }

    fn gone(&self, hello: &Hello) {
        if let Some(link) = self.links().get_mut(&(hello.instance.clone(), hello.link)) {
            // Its queue pairs stay: what is under way arrives, and how far it came is known when it comes again.
            (link.up, link.since) = (false, Instant::now());
        }
    }
}

impl Memory {
    fn offers(&self) -> Vec<StoreOffer> {
        let offer = |(region, offered): (usize, &super::Offered)| {
            let store = &offered.shelved.store;
            // A translator that begins anew goes on behind what is there.
            let next = store.lists().map(|lists| {
                let after = |newest: Option<u32>| newest.map_or(1, wire::dta::layout::BlockTrailer::next);
                lists
                    .heads()
                    .map(|(_, newest)| if lists.ring().tagged { after(newest).into() } else { 0 })
                    .collect()
            });
            StoreOffer {
                name: offered.shelved.name().to_owned(),
                region: region as u16,
                id: store.header().id,
                address: format!("{:x}", offered.registered.address),
                length: offered.registered.len,
                key: offered.registered.key,
                shape: Shape::of(
                    &store.geometry(),
                    next.unwrap_or_default(),
                    offered.swapped,
                    offered.reporters,
                ),
            }
        };
        self.offered.iter().enumerate().map(offer).collect()
    }
}

/// Makes a queue pair; when there is no place, that of the link which is gone for longest is given away.
fn connect(responder: &mut Responder, links: &mut Links, pair: &PairConfig) -> Result<u32, String> {
    loop {
        match responder.connect(pair) {
            Err(PairError::Full) => {
                let gone = links.iter().filter(|(_, link)| !link.up).min_by_key(|(_, link)| link.since);
                let Some(name) = gone.map(|(name, _)| name.clone()) else {
                    return Err("all queue pairs are in use; raise [collector.memory] queue_pairs".to_owned());
                };
                if let Some(link) = links.remove(&name) {
                    responder.disconnect(link.unreliable);
                    responder.disconnect(link.reliable);
                }
            }
            outcome => return outcome.map_err(|error| error.to_string()),
        }
    }
}

fn usable_mtu(asked: u16) -> Result<u16, String> {
    let fitting = PMTUS.into_iter().rfind(|mtu| *mtu <= asked);
    fitting.ok_or_else(|| format!("a path MTU of {asked} is none; RoCEv2 has 256 to 4096"))
}
