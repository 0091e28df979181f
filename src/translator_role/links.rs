//! The links to collectors: what their exchange said, and the sockets that RoCEv2 leaves by.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    sync::mpsc::{Receiver as Inbox, Sender},
};

use nic::udp::{Answered, Options, Receiver};
use rdma::requester::{Connection, Event, RemoteRegion, State};
use translator::{CollectorConfig, StoreEntry, Translator};
use wire::dta::layout::Geometry;
use wire::roce::{PORT, Path, Psn};

use super::transport::RdmaTransport;

use crate::{
    config::translator::TranslatorSettings,
    control::Control,
    exchange::{
        Accept, End, Hello, Shape, StoreOffer, VERSION,
        client::{Link, LinkEvent},
    },
};
use terminal::CliError;

/// A collector, as far as it is known.
pub(super) struct Peer {
    pub(super) exchange: SocketAddr,
    pub(super) link: Link,
    /// Is there a secret that it must prove?
    pub(super) secured: bool,
    /// Which socket its RoCEv2 leaves by.
    socket: Option<usize>,
    /// Where it goes.
    pub(super) target: Option<SocketAddr>,
    /// Its memory's mark.
    pub(super) instance: Option<String>,
    /// How often its memory was another.
    pub(super) restarts: u64,
    pub(super) stores: Vec<StoreOffer>,
    /// Why it is not connected.
    pub(super) lost: Option<String>,
    pub(super) sent: Answered,
}

/// What news are for.
pub(super) struct Parts<'p> {
    pub(super) now: u64,
    pub(super) settings: &'p TranslatorSettings,
    pub(super) translator: &'p mut Translator,
    pub(super) links: &'p mut RdmaTransport,
}

/// All of them.
pub(super) struct Peers {
    pub(super) list: Vec<Peer>,
    news: Inbox<LinkEvent>,
    sockets: Vec<Receiver>,
    instance: String,
}

impl Peers {
    /// Begins to connect to all.
    pub(super) fn start(
        settings: &TranslatorSettings,
        secrets: &super::Secrets,
        (news, inbox): (Sender<LinkEvent>, Inbox<LinkEvent>),
        control: &Control,
    ) -> Result<Self, CliError> {
        let mut list = Vec::new();
        for (number, collector) in settings.collectors.iter().enumerate() {
            let Some(exchange) = collector.exchange else { continue };
            let secret = secrets.get(number).cloned().flatten();
            let secured = secret.is_some();
            list.push(Peer {
                exchange,
                link: Link::start(number as u8, (exchange, secret), news.clone(), control)?,
                secured,
                socket: None,
                target: None,
                instance: None,
                restarts: 0,
                stores: Vec::new(),
                lost: Some("not yet reached".to_owned()),
                sent: Answered::default(),
            });
        }
        Ok(Self { list, news: inbox, sockets: Vec::new(), instance: crate::exchange::instance() })
    }

    /// What to wait for.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    /// The sockets that answers come to.
    pub(super) fn sockets(&mut self) -> impl Iterator<Item = &mut Receiver> {
        self.sockets.iter_mut()
    }

    /// Sends frames, each to its collector.
    pub(super) fn send<'f>(&mut self, frames: impl Iterator<Item = (u8, &'f [u8])>) {
        // In order, in runs of one collector: most bursts are one.
        let mut frames = frames.peekable();
        while let Some((collector, _)) = frames.peek() {
            let collector = *collector;
            let Some(peer) = self.list.get_mut(usize::from(collector)) else { return };
            let own = std::iter::from_fn(|| frames.next_if(|(of, _)| *of == collector));
            let (Some(target), Some(socket)) =
                (peer.target, peer.socket.and_then(|at| self.sockets.get_mut(at)))
            else {
                peer.sent.failed += own.count() as u64;
                continue;
            };
            let skipped = Path::new(target.ip(), target.ip(), 0).headers_len();
            let sent = socket.answer(own.filter_map(|(_, frame)| Some((target, frame.get(skipped..)?))));
            peer.sent.sent += sent.sent;
            peer.sent.failed += sent.failed;
            peer.sent.no_buffers += sent.no_buffers;
            peer.sent.errno = sent.errno.or(peer.sent.errno);
        }
    }

    /// Is everything acknowledged that had to be?
    pub(super) fn nothing_held(&self, links: &RdmaTransport) -> bool {
        let held = |number: usize| links.stats(number as u8).map_or(0, |stats| stats.unacknowledged);
        let up = |number: usize| links.state(number as u8) == State::Up;
        (0..self.list.len()).all(|number| held(number) == 0 || !up(number))
    }

    /// Sees to links that broke: a new connection.
    pub(super) fn mend(&mut self, links: &mut RdmaTransport) {
        while let Some(Event::Broken { collector, cause }) = links.poll_event() {
            if let Some(peer) = self.list.get_mut(usize::from(collector)) {
                peer.link.reconnect(&format!("the reliable queue pair broke ({})", cause.name()));
            }
        }
    }

    /// Hears what the links' threads tell.
    pub(super) fn hear_news(&mut self, parts: &mut Parts<'_>) {
        while let Ok(news) = self.news.try_recv() {
            let (number, outcome) = match news {
                LinkEvent::Reached(number, local) => (number, self.greet(number, local, parts)),
                LinkEvent::Accepted(number, accept) => (number, self.connect(number, &accept, parts)),
                LinkEvent::Lost(number, reason) => {
                    parts.links.disconnect(number);
                    if let Some(peer) = self.list.get_mut(usize::from(number)) {
                        peer.lost = Some(reason);
                    }
                    continue;
                }
            };
            if let (Err(reason), Some(peer)) = (outcome, self.list.get_mut(usize::from(number))) {
                peer.link.reconnect(&reason);
            }
        }
    }

    /// Offers queue pairs to a collector that was reached.
    fn greet(&mut self, number: u8, local: IpAddr, parts: &mut Parts<'_>) -> Result<(), String> {
        let Parts { settings, links, .. } = parts;
        let address = self.source(number, local, settings)?;
        let offer = links.offer(number)?;
        let instance = self.instance.clone();
        let Some(peer) = self.list.get_mut(usize::from(number)) else { return Ok(()) };
        let end = |end: rdma::requester::End| End { queue_pair: end.queue_pair, psn: end.psn.value() };
        peer.link.hello(Hello {
            version: VERSION,
            instance,
            link: number,
            address: address.ip(),
            port: address.port(),
            mtu: settings.pmtu.min(links.mtu()),
            unreliable: end(offer.unreliable),
            reliable: end(offer.reliable),
        });
        Ok(())
    }

    /// Where RoCEv2 comes from: a socket, or a device.
    fn source(
        &mut self,
        number: u8,
        local: IpAddr,
        settings: &TranslatorSettings,
    ) -> Result<SocketAddr, String> {
        if let Some(address) = RdmaTransport::verbs(settings) {
            return Ok(SocketAddr::new(address, PORT));
        }
        let socket = self.socket(settings.source.unwrap_or(local), settings)?;
        if let Some(peer) = self.list.get_mut(usize::from(number)) {
            peer.socket = Some(socket);
        }
        self.sockets.get(socket).map(Receiver::local_addr).ok_or_else(|| "no socket".to_owned())
    }

    /// The socket of this address, which RoCEv2's checksum covers.
    fn socket(&mut self, address: IpAddr, settings: &TranslatorSettings) -> Result<usize, String> {
        if let Some(index) = self.sockets.iter().position(|socket| socket.local_addr().ip() == address) {
            return Ok(index);
        }
        let recv_buffer = usize::try_from(settings.receive_buffer.0).unwrap_or(usize::MAX);
        let options = Options { recv_buffer, batch_wait: std::time::Duration::ZERO, ..Options::default() };
        let socket = Receiver::bind(SocketAddr::new(address, settings.source_port), &options);
        let whole = |socket: &Receiver| socket.never_fragment().and_then(|()| socket.take_without_checksum());
        let socket = socket.and_then(|socket| whole(&socket).map(|()| socket));
        self.sockets.push(socket.map_err(|error| error.to_string())?);
        Ok(self.sockets.len() - 1)
    }

    /// Connects to a collector that answered.
    fn connect(&mut self, number: u8, accept: &Accept, parts: &mut Parts<'_>) -> Result<(), String> {
        let Parts { now, settings, translator, links } = parts;
        let Some(peer) = self.list.get_mut(usize::from(number)) else { return Ok(()) };
        let socket = peer.socket.and_then(|at| self.sockets.get(at)).map(Receiver::local_addr);
        let verbs = RdmaTransport::verbs(settings).map(|address| SocketAddr::new(address, PORT));
        let source = verbs.or(socket).ok_or("no socket")?;
        let target = SocketAddr::new(accept.address, accept.port);
        let memory = memory(&accept.stores, number, settings)?;
        let regions: Vec<_> = accept.stores.iter().filter_map(region).collect();
        translator.attach(number, memory).map_err(|error| format!("its stores cannot be used: {error}"))?;
        let other = peer.instance.as_ref().is_some_and(|before| *before != accept.instance);
        if other {
            translator.renew(number, *links);
        }
        let connection = Connection {
            path: Path::new(source.ip(), target.ip(), source.port()),
            mtu: accept.mtu.into(),
            unreliable: accept.unreliable,
            reliable: accept.reliable,
            atomic_depth: accept.atomics,
            regions: &regions,
            executed: accept.executed.map(Psn::new),
        };
        links.connect(number, &connection, *now)?;
        for store in accept.stores.iter().filter(|store| is_new(&peer.stores, store)) {
            let Shape::Append { next, .. } = &store.shape else { continue };
            for (list, next) in (store.id..).zip(next) {
                translator.set_next(number, list, *next);
            }
        }
        peer.restarts += u64::from(other);
        peer.instance = Some(accept.instance.clone());
        peer.target = Some(target);
        peer.stores.clone_from(&accept.stores);
        peer.lost = None;
        if let Some(trigger) = translator.unfit_trigger(number) {
            tracing::warn!(
                "[[translator.triggers]] {}: what it makes is not as long as the entries of its list at collector {number}, or there is no \
                 such list; it makes nothing there",
                trigger + 1
            );
        }
        tracing::info!("collector {number} ({}) is connected: {} store(s)", peer.exchange, peer.stores.len());
        Ok(())
    }
}

/// Was this store not there before? Of one that was, the translator knows better than the memory where its lists go on: some of
/// their batches may still be on the way.
fn is_new(before: &[StoreOffer], store: &StoreOffer) -> bool {
    !before.iter().any(|other| other.id == store.id && other.geometry() == store.geometry())
}

/// What the translator must know of a collector's memory.
fn memory(
    stores: &[StoreOffer],
    number: u8,
    settings: &TranslatorSettings,
) -> Result<CollectorConfig, String> {
    let entry = |store: &StoreOffer| {
        let geometry = store.geometry().ok_or_else(|| format!("its store `{}` cannot be", store.name))?;
        let id = match geometry {
            Geometry::Append { .. } => 0,
            _ => u16::try_from(store.id)
                .map_err(|_| format!("its store `{}` has no ID of 16 bits", store.name))?,
        };
        let mut entry = StoreEntry::new(store.region, id, geometry);
        match store.shape {
            Shape::Sketch { reporters, .. } => entry.reporters = reporters,
            Shape::Append { swapped, .. } => entry.swapped = swapped,
            _ => {}
        }
        Ok(entry)
    };
    let stores = stores.iter().map(entry).collect::<Result<_, String>>()?;
    let rate = settings.collectors.get(usize::from(number)).map(|collector| collector.limit());
    Ok(CollectorConfig { stores, rate: rate.unwrap_or_default() })
}

fn region(store: &StoreOffer) -> Option<RemoteRegion> {
    Some(RemoteRegion { region: store.region, address: store.va()?, len: store.length, rkey: store.key })
}
