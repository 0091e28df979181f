//! Conditions that a change waits for, with their texts for the operator.

use std::fmt;

use crate::instruction::{self, Bits};

/// The condition that a change waits for. `Display` explains it to the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The border of this device is not closed.
    Border(String),
    /// This device does not execute instructions that packets would request.
    Transit(String, Bits),
    /// Packets with INT may be in flight.
    Drain,
    /// This device may still insert INT, or its rules are unknown.
    Sources(String),
    /// The encoding of INT is changing; all sources are removed first.
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
