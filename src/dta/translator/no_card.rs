//! Without the feature `verbs` there is no card, and none can be asked for: the configuration refuses it.

use std::net::IpAddr;

use translator::dta::{Blocked, Place, Room, Way};
use translator::rdma::{Connection, Event, Offer, State, Stats};

/// Nothing of the kind.
#[derive(Debug)]
pub(super) enum Cards {}

impl Cards {
    pub(super) fn open(_: IpAddr, _: usize, _: u32) -> Result<Self, &'static str> {
        Err(crate::config::memory::NO_CARDS)
    }

    pub(super) fn mtu(&self) -> u16 {
        match *self {}
    }

    pub(super) fn offer(&mut self, _: u8) -> Result<Offer, String> {
        match *self {}
    }

    pub(super) fn connect(&mut self, _: u8, _: &Connection<'_>) -> Result<(), String> {
        match *self {}
    }

    pub(super) fn disconnect(&mut self, _: u8) {
        match *self {}
    }

    pub(super) fn state(&self, _: u8) -> State {
        match *self {}
    }

    pub(super) fn stats(&self, _: u8) -> Option<&Stats> {
        match *self {}
    }

    pub(super) fn tick(&mut self, _: u64) {
        match *self {}
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        match *self {}
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        match *self {}
    }
}

impl Way for Cards {
    fn room(&self, _: u8, _: bool) -> Room {
        match *self {}
    }

    fn write(&mut self, _: Place, _: u64, _: &[u8], _: Option<u32>, _: bool) -> Result<(), Blocked> {
        match *self {}
    }

    fn add(&mut self, _: Place, _: u64, _: u64, _: Option<u32>) -> Result<(), Blocked> {
        match *self {}
    }
}
