//! The translator's links to collectors: handles the events of each collector's exchange, connects queue pairs, and owns the
//! UDP sockets that carry RoCEv2.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    sync::mpsc::{Receiver, channel},
};

use nic::udp::{self, Options, SendOutcome};
use rdma::requester::{Connection, Event, RemoteRegion, State};
use translator::{CollectorConfig, StoreEntry, Translator};
use wire::dta::layout::Geometry;
use wire::roce::{PORT, Path, Psn};

use super::transport::RdmaTransport;

use super::settings::TranslatorSettings;
use crate::exchange::{
    Accept, End, Hello, Shape, StoreOffer, VERSION,
    client::{Commands, ExchangeLink, LinkEvent, Target},
};
use runtime::control::Control;
use terminal::CliError;

/// A collector, as the translator sees it.
pub(super) struct Peer {
    pub(super) exchange: SocketAddr,
    pub(super) link: ExchangeLink,
    /// Commands to the link's current exchange connection.
    commands: Option<Commands>,
    /// The collector must prove that it knows the shared secret.
    pub(super) secured: bool,
    /// Index of the socket that sends to it.
    socket: Option<usize>,
    /// Destination of its RoCEv2 packets.
    pub(super) target: Option<SocketAddr>,
    /// Random ID of its memory, which changes when it restarts.
    pub(super) instance: Option<String>,
    /// Number of restarts of its memory.
    pub(super) restarts: u64,
    pub(super) stores: Vec<StoreOffer>,
    /// The reason it is not connected.
    pub(super) lost: Option<String>,
    pub(super) sent: SendOutcome,
}

impl Peer {
    /// Makes the link reconnect.
    fn reconnect(&self, reason: &str) {
        if let Some(commands) = &self.commands {
            commands.reconnect(reason);
        }
    }
}

/// The parts of the translator's thread that handle an event of a link.
pub(super) struct Context<'p> {
    pub(super) now: u64,
    pub(super) settings: &'p TranslatorSettings,
    pub(super) translator: &'p mut Translator,
    pub(super) links: &'p mut RdmaTransport,
}

/// The links to all collectors.
pub(super) struct Peers {
    pub(super) list: Vec<Peer>,
    events: Receiver<LinkEvent>,
    sockets: Vec<udp::Receiver>,
    instance: String,
}

impl Peers {
    /// Starts an exchange link to each collector.
    pub(super) fn start(
        settings: &TranslatorSettings,
        secrets: &super::Secrets,
        control: &Control,
    ) -> Result<Self, CliError> {
        let (sender, events) = channel();
        let mut list = Vec::new();
        for (number, collector) in settings.collectors.iter().enumerate() {
            let Some(exchange) = collector.exchange else {
                continue;
            };
            let secret = secrets.get(number).cloned().flatten();
            let secured = secret.is_some();
            list.push(Peer {
                exchange,
                link: ExchangeLink::start(
                    Target {
                        collector: number as u8,
                        exchange,
                        secret,
                    },
                    sender.clone(),
                    control,
                )?,
                commands: None,
                secured,
                socket: None,
                target: None,
                instance: None,
                restarts: 0,
                stores: Vec::new(),
                lost: Some("not yet reached".to_owned()),
                sent: SendOutcome::default(),
            });
        }
        Ok(Self {
            list,
            events,
            sockets: Vec::new(),
            instance: crate::exchange::instance(),
        })
    }

    /// Returns the descriptors to poll for responses.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    /// Iterates over the sockets that receive responses.
    pub(super) fn sockets(&mut self) -> impl Iterator<Item = &mut udp::Receiver> {
        self.sockets.iter_mut()
    }

    /// Sends frames, each with its collector's index.
    pub(super) fn send<'f>(&mut self, frames: impl Iterator<Item = (u8, &'f [u8])>) {
        // Send runs of frames to the same collector at once; most bursts have a single run.
        let mut frames = frames.peekable();
        while let Some((collector, _)) = frames.peek() {
            let collector = *collector;
            let Some(peer) = self.list.get_mut(usize::from(collector)) else {
                return;
            };
            let collector_frames = std::iter::from_fn(|| frames.next_if(|(index, _)| *index == collector));
            let (Some(target), Some(socket)) = (
                peer.target,
                peer.socket.and_then(|socket| self.sockets.get_mut(socket)),
            ) else {
                peer.sent.failed += collector_frames.count() as u64;
                continue;
            };
            let skipped = Path::new(target.ip(), target.ip(), 0).headers_len();
            // Skip the Ethernet, IP and UDP headers, which the socket adds.
            let sent =
                socket.send(collector_frames.filter_map(|(_, frame)| Some((target, frame.get(skipped..)?))));
            peer.sent.sent += sent.sent;
            peer.sent.failed += sent.failed;
            peer.sent.no_buffers += sent.no_buffers;
            peer.sent.errno = sent.errno.or(peer.sent.errno);
        }
    }

    /// Returns whether all connected collectors have acknowledged all reliable operations.
    pub(super) fn all_acknowledged(&self, links: &RdmaTransport) -> bool {
        (0..self.list.len()).all(|number| {
            let number = number as u8;
            let unacknowledged = links.stats(number).map_or(0, |stats| stats.unacknowledged);
            unacknowledged == 0 || links.state(number) != State::Up
        })
    }

    /// Reconnects the links whose queue pairs broke.
    pub(super) fn reconnect_broken(&mut self, links: &mut RdmaTransport) {
        while let Some(Event::Broken { collector, cause }) = links.poll_event() {
            if let Some(peer) = self.list.get_mut(usize::from(collector)) {
                peer.reconnect(&format!("the reliable queue pair broke ({})", cause.name()));
            }
        }
    }

    /// Handles the events of the links' threads.
    pub(super) fn handle_events(&mut self, context: &mut Context<'_>) {
        while let Ok(event) = self.events.try_recv() {
            let (number, outcome) = match event {
                LinkEvent::Reached(number, local, commands) => {
                    if let Some(peer) = self.list.get_mut(usize::from(number)) {
                        peer.commands = Some(commands);
                    }
                    (number, self.send_hello(number, local, context))
                }
                LinkEvent::Accepted(number, accept) => (number, self.connect(number, &accept, context)),
                LinkEvent::Lost(number, reason) => {
                    context.links.disconnect(number);
                    if let Some(peer) = self.list.get_mut(usize::from(number)) {
                        peer.lost = Some(reason);
                    }
                    continue;
                }
            };
            if let (Err(reason), Some(peer)) = (outcome, self.list.get_mut(usize::from(number))) {
                peer.reconnect(&reason);
            }
        }
    }

    /// Offers queue pairs to a collector whose exchange is connected.
    fn send_hello(&mut self, number: u8, local: IpAddr, context: &mut Context<'_>) -> Result<(), String> {
        let Context { settings, links, .. } = context;
        let address = self.source(number, local, settings)?;
        let offer = links.offer(number)?;
        let instance = self.instance.clone();
        let commands = self
            .list
            .get(usize::from(number))
            .and_then(|peer| peer.commands.as_ref());
        let Some(commands) = commands else {
            return Ok(());
        };
        commands.hello(Hello {
            version: VERSION,
            instance,
            link: number,
            address: address.ip(),
            port: address.port(),
            mtu: settings.pmtu.min(links.mtu()),
            unreliable: offered_end(offer.unreliable),
            reliable: offered_end(offer.reliable),
        });
        Ok(())
    }

    /// Returns the source address of RoCEv2 packets, either a socket's or the RDMA device's.
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
        self.sockets
            .get(socket)
            .map(udp::Receiver::local_addr)
            .ok_or_else(|| "no socket".to_owned())
    }

    /// Returns the index of the socket bound to this address. It is never a wildcard, because the ICRC covers it.
    fn socket(&mut self, address: IpAddr, settings: &TranslatorSettings) -> Result<usize, String> {
        if let Some(index) = self
            .sockets
            .iter()
            .position(|socket| socket.local_addr().ip() == address)
        {
            return Ok(index);
        }
        let recv_buffer = usize::try_from(settings.receive_buffer.0).unwrap_or(usize::MAX);
        let options = Options {
            recv_buffer,
            batch_wait: std::time::Duration::ZERO,
            ..Options::default()
        };
        let socket = udp::Receiver::bind(SocketAddr::new(address, settings.source_port), &options);
        let socket = socket.and_then(|socket| socket.never_fragment().map(|()| socket));
        self.sockets.push(socket.map_err(|error| error.to_string())?);
        Ok(self.sockets.len() - 1)
    }

    /// Connects the queue pairs of a collector that accepted the hello.
    fn connect(&mut self, number: u8, accept: &Accept, context: &mut Context<'_>) -> Result<(), String> {
        let Context {
            now,
            settings,
            translator,
            links,
        } = context;
        let Some(peer) = self.list.get_mut(usize::from(number)) else {
            return Ok(());
        };
        let socket = peer
            .socket
            .and_then(|socket| self.sockets.get(socket))
            .map(udp::Receiver::local_addr);
        let verbs = RdmaTransport::verbs(settings).map(|address| SocketAddr::new(address, PORT));
        let source = verbs.or(socket).ok_or("no socket")?;
        let target = SocketAddr::new(accept.address, accept.port);
        let memory = memory(&accept.stores, number, settings)?;
        let regions: Vec<_> = accept.stores.iter().filter_map(region).collect();
        translator
            .attach(number, memory)
            .map_err(|error| format!("its stores cannot be used: {error}"))?;
        // A different instance means that the memory restarted.
        let other = peer
            .instance
            .as_ref()
            .is_some_and(|before| *before != accept.instance);
        if other {
            translator.rewrite_sketches(number, *links);
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
            let Shape::Append { next, .. } = &store.shape else {
                continue;
            };
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
                "[[translator.triggers]] {}: its entry is not as long as the entries of its list at collector {number}, or there is no \
                 such list; the trigger has no effect there",
                trigger + 1
            );
        }
        tracing::info!(
            "collector {number} ({}) is connected: {} store(s)",
            peer.exchange,
            peer.stores.len()
        );
        Ok(())
    }
}

/// Returns whether a store is new to the translator. For a known store the translator's sequence numbers may be ahead of those
/// in the offer, because batches may be in flight.
fn is_new(before: &[StoreOffer], store: &StoreOffer) -> bool {
    !before
        .iter()
        .any(|other| other.id == store.id && other.geometry() == store.geometry())
}

/// Builds the translator's configuration for a collector's memory.
fn memory(
    stores: &[StoreOffer],
    number: u8,
    settings: &TranslatorSettings,
) -> Result<CollectorConfig, String> {
    for (index, store) in stores.iter().enumerate() {
        if stores[..index].iter().any(|other| other.region == store.region) {
            return Err(format!("two of its stores have the region {}", store.region));
        }
    }
    let stores = stores.iter().map(store_entry).collect::<Result<_, String>>()?;
    let rate = settings
        .collectors
        .get(usize::from(number))
        .map(|collector| collector.limit());
    Ok(CollectorConfig {
        stores,
        rate: rate.unwrap_or_default(),
    })
}

fn store_entry(store: &StoreOffer) -> Result<StoreEntry, String> {
    let geometry = store
        .geometry()
        .ok_or_else(|| format!("its store `{}` has an invalid layout", store.name))?;
    // In a shorter region, some writes of a report would succeed and others fail.
    if store.length < geometry.body_len() || store.va().is_none_or(|address| address % 8 != 0) {
        return Err(format!(
            "its store `{}` is shorter than its layout, or not aligned",
            store.name
        ));
    }
    let id = match geometry {
        Geometry::Append { .. } => 0,
        _ => {
            u16::try_from(store.id).map_err(|_| format!("its store `{}` has no ID of 16 bits", store.name))?
        }
    };
    let mut entry = StoreEntry::new(store.region, id, geometry);
    match store.shape {
        Shape::Sketch { reporters, .. } => entry.reporters = reporters,
        Shape::Append { swapped, .. } => entry.swapped = swapped,
        _ => {}
    }
    Ok(entry)
}

fn offered_end(end: rdma::requester::End) -> End {
    End {
        queue_pair: end.queue_pair,
        psn: end.psn.value(),
    }
}

fn region(store: &StoreOffer) -> Option<RemoteRegion> {
    Some(RemoteRegion {
        region: store.region,
        address: store.va()?,
        len: store.length,
        rkey: store.key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(region: u16, length: u64, address: &str) -> StoreOffer {
        let geometry = Geometry::KeyIncrement {
            slots: 16,
            family: wire::dta::hash::Family::V1,
        };
        StoreOffer {
            name: "counts".to_owned(),
            region,
            id: 1 + u32::from(region),
            address: address.to_owned(),
            length,
            key: 7,
            shape: Shape::from_geometry(&geometry, Vec::new(), false, 1),
        }
    }

    #[test]
    fn an_offer_that_contradicts_itself_is_refused() {
        let settings = TranslatorSettings::default();
        let read = |stores: &[StoreOffer]| memory(stores, 0, &settings).map(|config| config.stores.len());
        assert_eq!(read(&[offer(0, 128, "1000"), offer(1, 200, "2000")]), Ok(2));
        for wrong in [
            offer(0, 127, "1000"),
            offer(0, 0, "1000"),
            offer(0, 128, "1004"),
            offer(0, 128, "none"),
        ] {
            let refused = read(&[wrong]).unwrap_err();
            assert!(refused.contains("`counts`"), "{refused}");
        }
        let twice = read(&[offer(3, 128, "1000"), offer(3, 128, "2000")]).unwrap_err();
        assert_eq!(twice, "two of its stores have the region 3");
    }
}
