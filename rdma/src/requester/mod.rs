//! A RoCEv2 requester in software: turns RDMA writes and fetch-and-adds into frames, without an RDMA device.
//!
//! [`Links`] implements [`Transport`], the interface through which the DTA translator issues operations. Each collector has
//! a link with two queue pairs. Operations that may be lost are *unreliable* (UC): the frame is built at once, and after a
//! loss the responder continues with the next message. Operations that must arrive, and all fetch-and-adds, are *reliable*
//! (RC): they stay in the retransmit buffer until they are acknowledged. They survive a broken connection; the next one
//! sends them again under new PSNs. There is no socket, clock or thread here.
//!
//! # A driver's loop
//!
//! 1. Frames or datagrams from collectors arrive: [`Links::receive`].
//! 2. The translator processes a burst of reports, with the links as its transport.
//! 3. [`Links::flush`], send [`Links::frames`], [`Links::sent`]; repeat while `flush` returns frames.
//! 4. [`Links::tick`] at [`Links::deadline`], then step 3.
//! 5. [`Links::poll_event`] reports a broken link: [`Links::offer`], exchange with the collector, [`Links::connect`].
//!
//! # Exactly once, at least once, at most once
//!
//! Executing a write twice does no harm; executing a fetch-and-add twice does. Within a connection each fetch-and-add is
//! executed exactly once, because the responder answers a retransmitted request from its saved results. When a connection
//! breaks, the outcome of unacknowledged fetch-and-adds is unknown unless the collector still knows the PSN that it
//! expected ([`Connection::executed`]). If it does not, [`UncertainFetchAdds`] decides, and [`Stats::uncertain_fetch_adds`]
//! or [`GivenUp::Uncertain`] counts them.

mod config;
mod frames;
mod link;
mod outbox;
mod retransmit;
mod stats;

pub use config::{Config, Connection, End, Offer, REGIONS, RemoteRegion, UncertainFetchAdds};
pub use link::{Cause, State};
pub use stats::{GivenUp, Refused, Response, Stats};

use wire::roce;

use crate::transport::{Blocked, Credit, RemoteAddr, Transport};
use frames::Payload;
use link::CollectorLink;
use outbox::Outbox;
use retransmit::Destination;

/// An event that the program must handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A connection broke; unacknowledged operations wait for the next one.
    Broken {
        /// Number of the collector.
        collector: u8,
        /// The reason why the connection broke.
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
/// assert_ne!(links.offer(0).ok_or("collector 0")?.reliable.queue_pair, links.offer(1).ok_or("collector 1")?.reliable.queue_pair);
///
/// // A link that is down accepts nothing: the caller decides whether to wait or to drop.
/// let refused = links.write(RemoteAddr { collector: 0, region: 0 }, 0, &[1; 8], None, false);
/// assert_eq!(refused, Err(Blocked::Broken));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Links {
    config: Config,
    links: Vec<CollectorLink>,
    outbox: Outbox,
    now: u64,
    /// Packets for unknown queue pairs.
    strays: u64,
}

impl Links {
    /// Creates a link per collector, all down, and allocates all memory.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn new(config: Config) -> Result<Self, String> {
        config.check()?;
        let links = (0..config.collectors)
            .map(|collector| CollectorLink::new(collector as u8, &config))
            .collect();
        let outbox = Outbox::new(config.outbox_bytes, config.outbox_frames);
        Ok(Self {
            config,
            links,
            outbox,
            now: 0,
            strays: 0,
        })
    }

    /// Creates local queue pairs to offer to a collector, or returns `None` if there is no such collector. The current
    /// connection continues until [`connect`](Self::connect).
    pub fn offer(&mut self, collector: u8) -> Option<Offer> {
        self.links
            .get_mut(usize::from(collector))
            .map(CollectorLink::offer)
    }

    /// Brings a link up after the collector accepted the last offer. Unacknowledged operations are sent on the new
    /// connection.
    ///
    /// # Errors
    /// A description of the problem; the link is unchanged.
    pub fn connect(&mut self, collector: u8, to: &Connection<'_>, now: u64) -> Result<(), String> {
        self.now = now;
        let link = self
            .links
            .get_mut(usize::from(collector))
            .ok_or("there is no collector of this number")?;
        link.connect(to, &self.config)
    }

    /// Takes a link down. Unacknowledged operations stay buffered for the next connection.
    pub fn disconnect(&mut self, collector: u8) {
        if let Some(link) = self.links.get_mut(usize::from(collector)) {
            link.disconnect();
        }
    }

    /// Returns the state of a link.
    pub fn state(&self, collector: u8) -> State {
        self.links
            .get(usize::from(collector))
            .map_or(State::Down, |link| link.state)
    }

    /// Processes a packet from a collector.
    pub fn receive(&mut self, now: u64, packet: &roce::Packet<'_>) {
        self.now = now;
        // `CollectorLink::offer` puts the collector's number into these bits.
        let collector = (packet.bth.queue_pair >> 1 & 0xff) as usize;
        match self.links.get_mut(collector) {
            Some(link) => link.receive(now, packet, &self.config),
            None => self.strays += 1,
        }
    }

    /// Builds frames of reliable operations, limited by windows and pauses. Returns the number of frames waiting to be
    /// sent.
    pub fn flush(&mut self, now: u64) -> usize {
        self.now = now;
        for link in &mut self.links {
            link.send_due(now, &self.config, &mut self.outbox);
        }
        self.outbox.frames().len()
    }

    /// Returns when [`tick`](Self::tick) next has work, ns, or `None` if nothing is scheduled.
    pub fn deadline(&self) -> Option<u64> {
        self.links
            .iter()
            .map(|link| link.deadline(self.now))
            .min()
            .filter(|deadline| *deadline != u64::MAX)
    }

    /// Runs the timers: retransmits unacknowledged operations, ends pauses and detects dead connections.
    pub fn tick(&mut self, now: u64) {
        for link in &mut self.links {
            link.tick(now, &self.config);
        }
        self.flush(now);
    }

    /// Returns the frames waiting to be sent, in order, each with its collector. For a UDP socket, skip
    /// [`Path::headers_len`](roce::Path::headers_len) bytes of headers.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = (u8, &[u8])> + Clone {
        self.outbox.frames()
    }

    /// Empties the outbox. Call it after the frames were sent or dropped.
    pub fn sent(&mut self) {
        self.outbox.clear();
    }

    /// Returns the next event that the program must handle. Each event is returned once.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.links.iter_mut().enumerate().find_map(|(collector, link)| {
            let cause = link.event.take()?;
            Some(Event::Broken {
                collector: collector as u8,
                cause,
            })
        })
    }

    /// Returns the counters of a collector's link.
    pub fn stats(&self, collector: u8) -> Option<&Stats> {
        self.links.get(usize::from(collector)).map(|link| &link.stats)
    }

    /// Returns how many packets arrived for queue pairs outside the range of all collectors.
    pub fn strays(&self) -> u64 {
        self.strays
    }
}

impl Transport for Links {
    fn credit(&self, collector: u8, reliable: bool) -> Credit {
        let link = self.links.get(usize::from(collector));
        link.map_or(Credit::NONE, |link| link.credit(reliable, &self.outbox, self.now))
    }

    #[inline]
    fn has_credit(&self, collector: u8, messages: u32, bytes: u64, reliable: bool) -> bool {
        let link = self.links.get(usize::from(collector));
        link.is_some_and(|link| link.has_credit(Credit { messages, bytes }, reliable, &self.outbox, self.now))
    }

    fn give_up(&mut self, region: RemoteAddr) {
        if let Some(link) = self.links.get_mut(usize::from(region.collector)) {
            link.mark_outdated(region.region);
        }
    }

    fn is_connected(&self, collector: u8) -> bool {
        self.state(collector) == State::Up
    }

    #[inline]
    fn write(
        &mut self,
        to: RemoteAddr,
        offset: u64,
        data: &[u8],
        immediate: Option<u32>,
        reliable: bool,
    ) -> Result<(), Blocked> {
        let link = self
            .links
            .get_mut(usize::from(to.collector))
            .ok_or(Blocked::NoRegion)?;
        let destination = Destination {
            region: to.region,
            offset,
        };
        link.write(
            destination,
            Payload { data, immediate },
            reliable,
            self.now,
            &mut self.outbox,
        )
        .map_err(|reason| link.refuse(reason))
    }

    #[inline]
    fn add(
        &mut self,
        to: RemoteAddr,
        offset: u64,
        delta: u64,
        immediate: Option<u32>,
    ) -> Result<(), Blocked> {
        let link = self
            .links
            .get_mut(usize::from(to.collector))
            .ok_or(Blocked::NoRegion)?;
        link.add(
            Destination {
                region: to.region,
                offset,
            },
            delta,
            immediate,
        )
        .map_err(|reason| link.refuse(reason))
    }
}
