//! Watches an open interface: detects that it was removed, that its queues changed, or that its XDP program was replaced; and
//! reads the counters of frames that bypass the sources.

use std::os::fd::OwnedFd;

use crate::bpf::{Attachment, Ids, Object};
use crate::error::Error;
use crate::link::{Link, LinkState};
use crate::xdp::{self, BindMode};

/// State of an interface, compared with its state when it was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Nothing has changed since it was opened.
    Good,
    /// The interface was removed, or replaced by another one of the same name.
    Gone,
    /// The number of receive queues changed.
    QueuesChanged {
        /// Number of receive queues when it was opened.
        before: u32,
        /// Number of receive queues now.
        now: u32,
    },
    /// Our program was detached or replaced.
    Replaced {
        /// ID of the other program; 0 if there is none.
        id: u32,
    },
}

/// Counters of frames that the sources do not count.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Frames that the XDP program redirected to a socket; each socket counts its own drops.
    pub redirected: u64,
    /// Frames to our ports that were passed to the stack because they are fragments; the stack's sockets receive them
    /// reassembled.
    pub passed_fragment: u64,
    /// Frames to our ports that were passed to the stack because they are longer than a UMEM frame.
    pub passed_too_long: u64,
    /// Frames that may be to our ports and were passed to the stack because the headers before UDP are unusual: too many tags
    /// or headers, MPLS, or a length that contradicts the frame.
    pub passed_unusual: u64,
    /// Frames to our ports that were passed to the stack because no socket reads their queue.
    pub passed_no_socket: u64,
    /// Frames that the device dropped since it was opened, for any receiver, and that no socket counted.
    pub device_dropped: u64,
}

/// Compares an interface with its state when it was opened. Owns the steering program; dropping it detaches the program.
#[derive(Debug)]
pub struct Watch {
    link: Link,
    queues: u32,
    at_start: LinkState,
    /// Last value of [`Counters::device_dropped`], since a removed interface has no counters.
    device_dropped: u64,
    /// True if the device counts frames that a socket refuses as its own drops, too. A veth does; other drivers do not.
    twice: bool,
    steering: Option<Steering>,
}

/// The steering program and its counters.
#[derive(Debug)]
pub(super) struct Steering {
    object: Object,
    attached: Attachment,
    /// The sockets to which it redirects, for their drop counters.
    sockets: Vec<OwnedFd>,
    bind_mode: BindMode,
}

impl Steering {
    /// The map of counters; its keys have the order of [`Counters`].
    const COUNTERS: &str = "steered";

    pub(super) fn new(
        object: Object,
        attached: Attachment,
        sockets: Vec<OwnedFd>,
        bind_mode: BindMode,
    ) -> Self {
        Self {
            object,
            attached,
            sockets,
            bind_mode,
        }
    }

    fn count(&self) -> Result<Counters, Error> {
        let mut sums = [0; 5];
        for (reason, sum) in (0_u32..).zip(&mut sums) {
            self.object
                .map(Self::COUNTERS)?
                .sum(&reason.to_ne_bytes(), std::slice::from_mut(sum))?;
        }
        let [
            redirected,
            passed_fragment,
            passed_too_long,
            passed_unusual,
            passed_no_socket,
        ] = sums;
        Ok(Counters {
            redirected,
            passed_fragment,
            passed_too_long,
            passed_unusual,
            passed_no_socket,
            device_dropped: 0,
        })
    }

    /// Returns the frames that the sockets refused and counted.
    fn refused(&self) -> u64 {
        let counted = self.sockets.iter().filter_map(xdp::statistics);
        counted
            .map(|counted| counted.rx_dropped + counted.rx_ring_full)
            .sum()
    }
}

impl Watch {
    pub(super) fn of_link(link: Link) -> Result<Self, Error> {
        let at_start = link.state()?.unwrap_or_default();
        Ok(Self {
            queues: link.queues(),
            at_start,
            device_dropped: 0,
            twice: false,
            link,
            steering: None,
        })
    }

    pub(super) fn of_steering(link: Link, steering: Steering) -> Result<Self, Error> {
        let twice = steering.bind_mode == BindMode::Copy && link.driver().as_deref() == Some("veth");
        Ok(Self {
            twice,
            steering: Some(steering),
            ..Self::of_link(link)?
        })
    }

    /// Returns the IDs of the steering program and its maps; empty without one.
    ///
    /// # Errors
    /// The system call failed.
    pub fn ids(&self) -> Result<Ids, Error> {
        self.steering
            .as_ref()
            .map_or_else(|| Ok(Ids::default()), |steering| steering.object.ids())
    }

    /// Returns the current state of the interface.
    ///
    /// # Errors
    /// The system call failed.
    pub fn check(&mut self) -> Result<State, Error> {
        if self.link.state()?.is_none() {
            return Ok(State::Gone);
        }
        let before = self.queues;
        let now = self.link.queues();
        if before != now {
            return Ok(State::QueuesChanged { before, now });
        }
        let replaced = self
            .steering
            .as_ref()
            .map(|steering| steering.attached.replaced())
            .transpose()?;
        Ok(replaced
            .flatten()
            .map_or(State::Good, |id| State::Replaced { id }))
    }

    /// Returns the counters since the interface was opened.
    ///
    /// # Errors
    /// The system call failed.
    pub fn counters(&mut self) -> Result<Counters, Error> {
        if let Some(state) = self.link.state()? {
            let dropped = state.dropped.saturating_sub(self.at_start.dropped);
            self.device_dropped = dropped.saturating_sub(self.counted_twice());
        }
        let device_dropped = self.device_dropped;
        let counted = self
            .steering
            .as_ref()
            .map(Steering::count)
            .transpose()?
            .unwrap_or_default();
        Ok(Counters {
            device_dropped,
            ..counted
        })
    }

    /// Returns the frames that a socket refused and that the device counts, too.
    fn counted_twice(&self) -> u64 {
        self.steering
            .as_ref()
            .filter(|_| self.twice)
            .map_or(0, Steering::refused)
    }
}
