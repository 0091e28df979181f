//! Conditions that changes wait for.

use std::fmt;

use crate::instruction::{self, Bits};

/// The condition that a change waits for. `Display` is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The border of a device is not closed.
    Border(String),
    /// A device does not execute instructions that packets would ask for.
    Transit(String, Bits),
    /// Packets with INT may be in flight.
    Drain,
    /// A device, not known or out of reach, may still insert INT.
    Sources(String),
    /// The encoding of INT changes: all sources are removed first.
    Encoding,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Border(device) => write!(f, "waits until {device} removes INT at all its ports to hosts"),
            Self::Transit(device, bits) => {
                write!(f, "waits until {device} executes {}", instruction::names(*bits))
            }
            Self::Drain => f.write_str("waits until no packet with INT can be in flight"),
            Self::Sources(device) => write!(f, "waits until {device} inserts no INT"),
            Self::Encoding => f.write_str("waits until all devices encode INT alike"),
        }
    }
}
