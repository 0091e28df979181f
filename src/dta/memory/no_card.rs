//! Without the feature `verbs` there is no card, and none can be asked for: the configuration refuses it.

use std::{net::IpAddr, sync::Arc, sync::atomic::AtomicBool};

use collector::rdma::{PairConfig, PairError, PairState, Registered};
use memory::Region;

use super::{Memory, Wake};
use crate::{config::memory::NO_CARDS, error::CliError};

/// Nothing of the kind.
#[derive(Debug)]
pub(super) enum Cards {}

impl Cards {
    pub(super) fn open(_: IpAddr, _: usize) -> Result<Self, CliError> {
        Err(CliError::new(NO_CARDS))
    }

    pub(super) fn mtu(&self) -> u16 {
        match *self {}
    }

    pub(super) fn register(&self, _: &Arc<Region>, _: u64) -> Result<Registered, nic::Error> {
        match *self {}
    }

    pub(super) fn connect(&self, _: &PairConfig) -> Result<u32, Result<PairError, nic::Error>> {
        match *self {}
    }

    pub(super) fn disconnect(&self, _: u32) -> bool {
        match *self {}
    }

    pub(super) fn state(&self, _: u32) -> Option<PairState> {
        match *self {}
    }

    pub(super) fn tell(&self, _: &Memory, _: &Wake, _: &AtomicBool) {
        match *self {}
    }
}
