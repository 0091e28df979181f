//! Dispatches RDMA operations to one of two transports: the software requester ([`Links`]), whose frames a UDP socket sends,
//! or an RDMA device ([`Verbs`]).

use std::net::IpAddr;

use rdma::requester::{Config, Connection, Event, Links, Offer, State, Stats};
use rdma::transport::{Blocked, Credit, RemoteAddr, Transport};

use super::settings::{TranslatorSettings, TransportMode};
use super::verbs::Verbs;
use terminal::CliError;

/// The transport of RDMA operations to all collectors.
#[derive(Debug)]
pub(super) enum RdmaTransport {
    Frames(Box<Links>),
    Verbs(Box<Verbs>),
}

impl RdmaTransport {
    /// Opens the configured transport.
    ///
    /// # Errors
    /// There is no such device, or the settings are unusable.
    pub(super) fn open(settings: &TranslatorSettings) -> Result<Self, CliError> {
        // The instance is 64 random bits in hexadecimal.
        let seed = u64::from_str_radix(&crate::exchange::instance(), 16).unwrap_or_default();
        let collectors = settings.collectors.len();
        if let Some(address) = Self::verbs(settings) {
            let verbs = Verbs::open(address, collectors, seed as u32).map_err(super::error)?;
            return Ok(Self::Verbs(Box::new(verbs)));
        }
        let links = Links::new(Config {
            collectors,
            seed,
            ..Config::default()
        });
        Ok(Self::Frames(Box::new(links.map_err(super::error)?)))
    }

    /// Returns the address of the RDMA device to use, if one is configured.
    pub(super) fn verbs(settings: &TranslatorSettings) -> Option<IpAddr> {
        settings.source.filter(|_| settings.mode == TransportMode::Verbs)
    }

    /// Returns the software requester, or `None` with a device.
    pub(super) fn frames(&mut self) -> Option<&mut Links> {
        match self {
            Self::Frames(links) => Some(links),
            Self::Verbs(_) => None,
        }
    }

    pub(super) fn offer(&mut self, collector: u8) -> Result<Offer, String> {
        match self {
            Self::Frames(links) => links
                .offer(collector)
                .ok_or_else(|| "no such collector".to_owned()),
            Self::Verbs(verbs) => verbs.offer(collector),
        }
    }

    pub(super) fn connect(&mut self, collector: u8, to: &Connection<'_>, now: u64) -> Result<(), String> {
        match self {
            Self::Frames(links) => links.connect(collector, to, now),
            Self::Verbs(verbs) => verbs.connect(collector, to),
        }
    }

    /// Returns the largest supported path MTU, bytes.
    pub(super) fn mtu(&self) -> u16 {
        match self {
            Self::Frames(_) => 4096,
            Self::Verbs(verbs) => verbs.mtu(),
        }
    }

    pub(super) fn disconnect(&mut self, collector: u8) {
        match self {
            Self::Frames(links) => links.disconnect(collector),
            Self::Verbs(verbs) => verbs.disconnect(collector),
        }
    }

    pub(super) fn state(&self, collector: u8) -> State {
        match self {
            Self::Frames(links) => links.state(collector),
            Self::Verbs(verbs) => verbs.state(collector),
        }
    }

    pub(super) fn stats(&self, collector: u8) -> Option<&Stats> {
        match self {
            Self::Frames(links) => links.stats(collector),
            Self::Verbs(verbs) => verbs.stats(collector),
        }
    }

    pub(super) fn tick(&mut self, now: u64) {
        match self {
            Self::Frames(links) => links.tick(now),
            Self::Verbs(verbs) => verbs.tick(now),
        }
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        match self {
            Self::Frames(links) => links.deadline(),
            Self::Verbs(verbs) => verbs.deadline(),
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        match self {
            Self::Frames(links) => links.poll_event(),
            Self::Verbs(verbs) => verbs.poll_event(),
        }
    }
}

impl Transport for RdmaTransport {
    #[inline]
    fn credit(&self, collector: u8, reliable: bool) -> Credit {
        match self {
            Self::Frames(links) => links.credit(collector, reliable),
            Self::Verbs(verbs) => verbs.credit(collector, reliable),
        }
    }

    #[inline]
    fn has_credit(&self, collector: u8, messages: u32, bytes: u64, reliable: bool) -> bool {
        match self {
            Self::Frames(links) => links.has_credit(collector, messages, bytes, reliable),
            Self::Verbs(verbs) => verbs.has_credit(collector, messages, bytes, reliable),
        }
    }

    fn give_up(&mut self, place: RemoteAddr) {
        match self {
            Self::Frames(links) => links.give_up(place),
            Self::Verbs(verbs) => verbs.give_up(place),
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
        reliable: bool,
    ) -> Result<(), Blocked> {
        match self {
            Self::Frames(links) => links.write(place, offset, data, immediate, reliable),
            Self::Verbs(verbs) => verbs.write(place, offset, data, immediate, reliable),
        }
    }

    #[inline]
    fn add(
        &mut self,
        place: RemoteAddr,
        offset: u64,
        delta: u64,
        immediate: Option<u32>,
    ) -> Result<(), Blocked> {
        match self {
            Self::Frames(links) => links.add(place, offset, delta, immediate),
            Self::Verbs(verbs) => verbs.add(place, offset, delta, immediate),
        }
    }
}
