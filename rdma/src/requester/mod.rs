//! The sending end of RoCEv2: operations in, frames out; no RDMA device needed, on this side either.
//!
//! No socket, clock or thread. [`Links`] is a [`Transport`]: the translator hands it writes and additions. Each collector has a
//! link with two queue pairs. What may be lost is *unreliable*: the frame is made at once, and after a loss the
//! collector's end goes on with the next message by itself. What must arrive, and every addition, is *reliable*: it is
//! kept until it is acknowledged, sent again after a loss, and survives a broken connection: on the next one everything
//! that was kept is sent under new numbers.
//!
//! # A driver's loop
//!
//! 1. Frames or datagrams from collectors: [`Links::receive`].
//! 2. A burst of reports: the translator, with the links as its transport.
//! 3. [`Links::flush`], then send [`Links::frames`] and say [`Links::sent`]; again while `flush` made more.
//! 4. [`Links::tick`] at [`Links::deadline`], then as 3.
//! 5. [`Links::poll_event`]: a link broke. [`Links::offer`], ask the collector, [`Links::connect`].
//!
//! # Twice, or not at all
//!
//! Writes may be made twice and nothing is wrong. An addition must not. While a connection lives it is not: the collector answers a
//! repeated request from memory. When the connection dies with additions unanswered, it is not known whether they were
//! made, unless the collector still knows how far it came ([`Connection::executed`]). Then [`UncertainFetchAdds`] says what to do, and
//! [`Stats::uncertain_adds`] or [`GivenUp::Uncertain`] counts them.

mod config;
mod frames;
mod link;
mod outbox;
mod retransmit;
mod stats;

pub use config::{
    Config, ConfigError, ConnectError, Connection, End, Offer, REGIONS, RemoteRegion, UncertainFetchAdds,
};
pub use link::{Cause, State};
pub use stats::{GivenUp, Refused, Response, Stats};

use wire::roce;

use crate::transport::{Blocked, Credit, RemoteAddr, Transport};
use link::Link;
use outbox::Outbox;

/// Something that the program must see to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A connection broke; what was kept waits for the next one.
    Broken {
        /// To which collector.
        collector: u8,
        /// Why.
        cause: Cause,
    },
}

/// The links to all collectors.
///
/// ```
/// use rdma::requester::{Config, Links, State};
/// use rdma::transport::{Blocked, RemoteAddr, Transport as _};
///
/// let mut links = Links::new(Config { collectors: 2, ..Config::default() })?;
/// assert_eq!(links.state(0), State::Down);
/// assert_ne!(links.offer(0).ok_or("collector 0")?.reliable.pair, links.offer(1).ok_or("collector 1")?.reliable.pair);
///
/// // A link that is down accepts nothing: the caller decides whether to wait or to drop.
/// let refused = links.write(RemoteAddr { collector: 0, region: 0 }, 0, &[1; 8], None, false);
/// assert_eq!(refused, Err(Blocked::Broken));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Links {
    config: Config,
    links: Vec<Link>,
    outbox: Outbox,
    now: u64,
    /// Packets for no queue pair of ours.
    strays: u64,
}

impl Links {
    /// Links that are all down. All memory is allocated here.
    ///
    /// # Errors
    /// Settings that cannot be.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let links = (0..config.collectors).map(|collector| Link::new(collector as u8, &config)).collect();
        let outbox = Outbox::new(config.outbox_bytes, config.outbox_frames);
        Ok(Self { config, links, outbox, now: 0, strays: 0 })
    }

    /// New queue pairs of ours for a collector, to be told to it. The connection that is up goes on until
    /// [`connect`](Self::connect).
    pub fn offer(&mut self, collector: u8) -> Option<Offer> {
        self.links.get_mut(usize::from(collector)).map(Link::offer)
    }

    /// The collector accepted the last offer: the link is up, and what was kept is sent (again) on it.
    ///
    /// # Errors
    /// The link is as it was.
    pub fn connect(&mut self, collector: u8, to: &Connection<'_>, now: u64) -> Result<(), ConnectError> {
        self.now = now;
        let link = self.links.get_mut(usize::from(collector)).ok_or(ConnectError::NoCollector)?;
        link.connect(to, &self.config)
    }

    /// Takes a link down. What is kept stays for the next connection.
    pub fn disconnect(&mut self, collector: u8) {
        if let Some(link) = self.links.get_mut(usize::from(collector)) {
            link.disconnect();
        }
    }

    /// How a link stands.
    pub fn state(&self, collector: u8) -> State {
        self.links.get(usize::from(collector)).map_or(State::Down, |link| link.state)
    }

    /// Takes a packet from a collector.
    pub fn receive(&mut self, now: u64, packet: &roce::Packet<'_>) {
        self.now = now;
        let collector = (packet.bth.queue_pair >> 1 & 0xff) as usize;
        match self.links.get_mut(collector) {
            Some(link) => link.receive(now, packet, &self.config),
            None => self.strays += 1,
        }
    }

    /// Makes frames of what is kept, as far as it may be sent now, and tells how many frames wait in all.
    pub fn flush(&mut self, now: u64) -> usize {
        self.now = now;
        for link in &mut self.links {
            link.pump(now, &self.config, &mut self.outbox);
        }
        self.outbox.frames().len()
    }

    /// When [`tick`](Self::tick) has something to do, ns; none: not before something else happens.
    pub fn deadline(&self) -> Option<u64> {
        self.links.iter().map(|link| link.deadline(self.now)).min().filter(|deadline| *deadline != u64::MAX)
    }

    /// Looks at the time: sends again what was not answered, ends pauses, and notices connections that are dead.
    pub fn tick(&mut self, now: u64) {
        for link in &mut self.links {
            link.tick(now, &self.config);
        }
        self.flush(now);
    }

    /// The frames that wait to be sent, in order, and which collector each is for. A UDP socket sends what stands
    /// behind the UDP header ([`Path::headers_len`](roce::Path::headers_len)).
    pub fn frames(&self) -> impl ExactSizeIterator<Item = (u8, &[u8])> + Clone {
        self.outbox.frames()
    }

    /// They were sent, or lost: there is room for new ones.
    pub fn sent(&mut self) {
        self.outbox.clear();
    }

    /// What the program must see to; each thing is told once.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.links.iter_mut().enumerate().find_map(|(collector, link)| {
            let cause = link.event.take()?;
            Some(Event::Broken { collector: collector as u8, cause })
        })
    }

    /// What was counted for a collector.
    pub fn stats(&self, collector: u8) -> Option<&Stats> {
        self.links.get(usize::from(collector)).map(|link| &link.stats)
    }

    /// Packets received for queue pairs that no collector has.
    pub fn strays(&self) -> u64 {
        self.strays
    }
}

impl Transport for Links {
    fn credit(&self, collector: u8, keep: bool) -> Credit {
        let link = self.links.get(usize::from(collector));
        link.map_or(Credit::NONE, |link| {
            let (messages, bytes) = link.credit(keep, &self.outbox, self.now);
            Credit { messages, bytes }
        })
    }

    #[inline]
    fn has_credit(&self, collector: u8, messages: u32, bytes: u64, keep: bool) -> bool {
        let link = self.links.get(usize::from(collector));
        link.is_some_and(|link| link.has_credit((messages, bytes), keep, &self.outbox, self.now))
    }

    fn give_up(&mut self, place: RemoteAddr) {
        if let Some(link) = self.links.get_mut(usize::from(place.collector)) {
            link.give_up(place.region);
        }
    }

    fn is_connected(&self, collector: u8) -> bool {
        self.state(collector) == State::Up
    }

    #[inline]
    fn write(
        &mut self,
        place: RemoteAddr,
        offset: u64,
        data: &[u8],
        immediate: Option<u32>,
        keep: bool,
    ) -> Result<(), Blocked> {
        let link = self.links.get_mut(usize::from(place.collector)).ok_or(Blocked::NoRegion)?;
        let (at, now) = ((place.region, offset), self.now);
        link.write(at, (data, immediate), keep, now, &mut self.outbox).map_err(|reason| link.refuse(reason))
    }

    #[inline]
    fn add(
        &mut self,
        place: RemoteAddr,
        offset: u64,
        delta: u64,
        immediate: Option<u32>,
    ) -> Result<(), Blocked> {
        let link = self.links.get_mut(usize::from(place.collector)).ok_or(Blocked::NoRegion)?;
        link.add((place.region, offset), delta, immediate).map_err(|reason| link.refuse(reason))
    }
}
