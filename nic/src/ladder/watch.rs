//! Whether an interface is still as it was opened.

use crate::error::Error;
use crate::link::{Link, LinkState};

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
    /// Sent to a socket by the XDP program; each socket knows what became of them.
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
    /// Frames that the device dropped since it was opened, whoever they were for, and that no socket has counted.
    pub device_dropped: u64,
}

/// Knows how an interface was when it was opened.
#[derive(Debug)]
pub struct Watch {
    link: Link,
    queues: Option<u32>,
    at_start: LinkState,
}

impl Watch {
    pub(super) fn of_link(link: Link) -> Result<Self, Error> {
        let at_start = link.state()?.unwrap_or_default();
        Ok(Self { queues: link.queues(), at_start, link })
    }

    /// How the interface is now.
    ///
    /// # Errors
    /// The system refused to say.
    pub fn check(&mut self) -> Result<State, Error> {
        if self.link.state()?.is_none() {
            return Ok(State::Gone);
        }
        Ok(match (self.queues, self.link.queues()) {
            (Some(before), Some(now)) if before != now => State::QueuesChanged { before, now },
            _ => State::Good,
        })
    }

    /// What happened since it was opened.
    ///
    /// # Errors
    /// The system refused to say.
    pub fn counters(&mut self) -> Result<Counters, Error> {
        let state = self.link.state()?.unwrap_or(self.at_start);
        let device_dropped = state.dropped.saturating_sub(self.at_start.dropped);
        Ok(Counters { device_dropped, ..Counters::default() })
    }
}
