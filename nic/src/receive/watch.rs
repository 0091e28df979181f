//! Whether an interface is still as it was opened.

use std::os::fd::OwnedFd;

use crate::bpf::{Attachment, Ids, Object};
use crate::error::Error;
use crate::link::{Link, LinkState};
use crate::xdp::{self, BindMode};

/// What an interface is like, compared with when it was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// As it was.
    Good,
    /// There is no such interface any more; or there is another one of the same name.
    Gone,
    /// It has another number of receive queues.
    QueuesChanged {
        /// When it was opened.
        before: u32,
        /// Now.
        now: u32,
    },
    /// Our program is not there any more, and this one is.
    Replaced {
        /// The kernel's number of the other program; 0 if there is none.
        id: u32,
    },
}

/// What happened to frames outside the sources.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Sent to a socket by the XDP program; each socket counts its own drops.
    pub taken: u64,
    /// To our ports, and left to the stack because they are fragments. The companion gets them, put together.
    pub passed_fragment: u64,
    /// To our ports, and left to the stack because they are longer than a frame of the socket's memory.
    pub passed_too_long: u64,
    /// Perhaps to our ports, and left to the stack because what is before UDP is unusual: too many tags or headers, MPLS, a
    /// length that contradicts the frame.
    pub passed_unusual: u64,
    /// To our ports, and left to the stack because no socket reads their queue.
    pub passed_no_socket: u64,
    /// Frames that the device dropped since it was opened, for any receiver, and that no socket has counted.
    pub device_dropped: u64,
}

/// Knows how an interface was when it was opened. Holds the steering program: dropped, it is detached.
#[derive(Debug)]
pub struct Watch {
    link: Link,
    queues: u32,
    at_start: LinkState,
    /// What [`Counters::device_dropped`] was when it could be read last: an interface that is gone has no counters.
    device_dropped: u64,
    /// The device counts what a socket refuses as dropped by itself, too: a veth does, other drivers do not.
    twice: bool,
    steering: Option<Steering>,
}

/// The program, and what it counts.
#[derive(Debug)]
pub(super) struct Steering {
    object: Object,
    attached: Attachment,
    /// The sockets it sends to, to ask them what they dropped.
    sockets: Vec<OwnedFd>,
    bind_mode: BindMode,
}

impl Steering {
    /// The map of counters; the order of its keys is that of [`Counters`].
    const COUNTERS: &str = "steered";

    pub(super) fn new(
        object: Object,
        attached: Attachment,
        sockets: Vec<OwnedFd>,
        bind_mode: BindMode,
    ) -> Self {
        Self { object, attached, sockets, bind_mode }
    }

    fn count(&self) -> Result<Counters, Error> {
        let mut sums = [0; 5];
        for (reason, sum) in (0_u32..).zip(&mut sums) {
            self.object.map(Self::COUNTERS)?.sum(&reason.to_ne_bytes(), std::slice::from_mut(sum))?;
        }
        let [taken, passed_fragment, passed_too_long, passed_unusual, passed_no_socket] = sums;
        Ok(Counters {
            taken,
            passed_fragment,
            passed_too_long,
            passed_unusual,
            passed_no_socket,
            device_dropped: 0,
        })
    }

    /// Frames that the sockets refused and counted.
    fn refused(&self) -> u64 {
        let counted = self.sockets.iter().filter_map(xdp::statistics);
        counted.map(|counted| counted.rx_dropped + counted.rx_ring_full).sum()
    }
}

impl Watch {
    pub(super) fn of_link(link: Link) -> Result<Self, Error> {
        let at_start = link.state()?.unwrap_or_default();
        Ok(Self { queues: link.queues(), at_start, device_dropped: 0, twice: false, link, steering: None })
    }

    pub(super) fn of_steering(link: Link, steering: Steering) -> Result<Self, Error> {
        let twice = steering.bind_mode == BindMode::Copy && link.driver().as_deref() == Some("veth");
        Ok(Self { twice, steering: Some(steering), ..Self::of_link(link)? })
    }

    /// The steering program and its maps, where there are any.
    ///
    /// # Errors
    /// The system refused to say.
    pub fn ids(&self) -> Result<Ids, Error> {
        self.steering.as_ref().map_or_else(|| Ok(Ids::default()), |steering| steering.object.ids())
    }

    /// How the interface is now.
    ///
    /// # Errors
    /// The system refused to say.
    pub fn check(&mut self) -> Result<State, Error> {
        if self.link.state()?.is_none() {
            return Ok(State::Gone);
        }
        let (before, now) = (self.queues, self.link.queues());
        if before != now {
            return Ok(State::QueuesChanged { before, now });
        }
        let replaced = self.steering.as_ref().map(|steering| steering.attached.replaced()).transpose()?;
        Ok(replaced.flatten().map_or(State::Good, |id| State::Replaced { id }))
    }

    /// What happened since it was opened.
    ///
    /// # Errors
    /// The system refused to say.
    pub fn counters(&mut self) -> Result<Counters, Error> {
        if let Some(state) = self.link.state()? {
            let dropped = state.dropped.saturating_sub(self.at_start.dropped);
            self.device_dropped = dropped.saturating_sub(self.counted_twice());
        }
        let device_dropped = self.device_dropped;
        let counted = self.steering.as_ref().map(Steering::count).transpose()?.unwrap_or_default();
        Ok(Counters { device_dropped, ..counted })
    }

    /// Frames that a socket refused and that the device has among its own.
    fn counted_twice(&self) -> u64 {
        self.steering.as_ref().filter(|_| self.twice).map_or(0, Steering::refused)
    }
}
