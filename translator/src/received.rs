//! A DTA report in processing, with its sender and collector, and the key under which its reporter's sequence is tracked.

use core::net::SocketAddr;

use wire::dta::{Priority, Report};

use crate::tracker::Width;

/// The sender and the addressed collector of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Source address and port.
    pub sender: SocketAddr,
    /// Collector to which it was sent, an index of [`Config::collectors`](crate::Config::collectors).
    pub collector: u8,
}

/// A reporter ID and the address that uses it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    /// Key of the reporter's sequence state, see [`tracker_key`].
    pub(crate) key: u64,
    pub(crate) sender: SocketAddr,
}
/// A report during processing. `artifact` tells that it uses the layout of the published DTA code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    pub(crate) now: u64,
    pub(crate) origin: Origin,
    pub(crate) report: &'a Report<'a>,
    pub(crate) payload: &'a [u8],
    pub(crate) artifact: bool,
}

impl Received<'_> {
    /// Returns whether congestion must divert rather than drop it.
    #[inline(always)]
    pub(crate) fn is_important(&self) -> bool {
        self.report.base.essential || self.report.base.priority == Priority::High
    }

    /// Returns the reporter's key and the sender that uses it.
    pub(crate) fn identity(&self) -> Identity {
        let Origin { sender, collector } = self.origin;
        Identity {
            key: tracker_key(collector, self.report.base.reporter, self.artifact),
            sender,
        }
    }

    pub(crate) fn width(&self) -> Width {
        if self.artifact {
            Width::Eight
        } else {
            Width::Sixteen
        }
    }
}

/// Returns the key of a reporter's sequence to one collector. Reporters with the artifact's layout are identified by
/// address.
#[inline(always)]
pub(super) fn tracker_key(collector: u8, reporter: u32, artifact: bool) -> u64 {
    u64::from(artifact) << 40 | u64::from(collector) << 32 | u64::from(reporter)
}
