//! A received report and its origin.

use core::net::SocketAddr;

use wire::dta::{Priority, Report};

use crate::tracker::Width;

/// Sender and collector of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Source address and port.
    pub sender: SocketAddr,
    /// The collector to which it was sent: an index of [`Config::collectors`](crate::Config::collectors).
    pub collector: u8,
}

/// A reporter ID and the sender that uses it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    /// Key of the reporter's sequence, see [`tracker_key`].
    pub(crate) key: u64,
    pub(crate) sender: SocketAddr,
}
/// A report in processing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    pub(crate) now: u64,
    pub(crate) origin: Origin,
    pub(crate) report: &'a Report<'a>,
    pub(crate) payload: &'a [u8],
    pub(crate) artifact: bool,
}

impl Received<'_> {
    /// True if congestion must not drop it.
    #[inline(always)]
    pub(crate) fn is_important(&self) -> bool {
        self.report.base.essential || self.report.base.priority == Priority::High
    }

    /// Returns the reporter's ID and the sender that uses it.
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

/// Key of a reporter's sequence to one collector. The artifact's reporters are identified by their addresses.
#[inline(always)]
pub(super) fn tracker_key(collector: u8, reporter: u32, artifact: bool) -> u64 {
    u64::from(artifact) << 40 | u64::from(collector) << 32 | u64::from(reporter)
}
