//! Roles of P4 devices outside the INT domain: aggregators of postcards, and translators of DTA. No packet with INT passes
//! through such a device, and intents do not apply to it. Its entries follow from its settings alone; together they represent
//! the rule [`manager::device::Rule::Forwarding`].
//!
//! The entries use the names of the project's own programs. `crate::program` binds them to P4Info like a pipeline map's templates.

mod aggregator;
mod stores;
#[cfg(test)]
mod tests;
mod translator;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use settings::{choice, section};

pub use self::aggregator::AggregatorSettings;
pub use self::stores::{Offer, StoreSettings};
pub use self::translator::{CollectorLink, CollectorSettings, TranslatorSettings};

/// Maximum number of timer frames per second that the manager sends. Higher rates need a packet generator.
pub const MAX_FRAMES: u64 = 5_000;
/// EtherType of timer frames: Local Experimental EtherType 1 of IEEE 802.
const TIMER_ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Upper bound (exclusive) of port numbers; BMv2 ports have 9 bits.
const MAX_PORTS: u32 = 511;

choice! {
    /// The kind of a role: a word of a map, of the inventory, and of the table of settings.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum RoleKind("\"aggregator\" or \"translator\"") {
        /// Receives postcards and sends aggregates.
        Aggregator = "aggregator",
        /// Receives DTA reports and sends RoCEv2.
        Translator = "translator",
    }
}

/// The role of a device, with the entries of its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Kind of the role.
    pub kind: RoleKind,
    /// Timer frames that the manager sends, each once per period; empty if a packet generator sends them, or nobody does.
    pub frames: Vec<Vec<u8>>,
    /// Period of the timer frames.
    pub period: Duration,
    entries: Vec<RoleEntry>,
}

/// An entry of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleEntry {
    /// Step in which the entry is written. Removals go in reverse order.
    pub(crate) step: u8,
    pub(crate) form: Form,
}

/// The content of a role's entry, with names in place of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Table {
        table: &'static str,
        default: bool,
        key: Numbers,
        action: &'static str,
        params: Numbers,
    },
    Clone {
        session: u32,
        port: u32,
    },
    Group {
        group: u32,
        /// Copies, each with port and instance.
        replicas: Vec<(u32, u32)>,
    },
}

/// Values of fields or parameters, each with its name.
pub(crate) type Numbers = Vec<(&'static str, u128)>;

impl RoleEntry {
    fn entry(table: &'static str, key: Numbers, action: &'static str, params: Numbers) -> Self {
        Self {
            step: 1,
            form: Form::Table {
                table,
                default: false,
                key,
                action,
                params,
            },
        }
    }

    fn default(table: &'static str, action: &'static str, params: Numbers) -> Self {
        Self {
            step: 1,
            form: Form::Table {
                table,
                default: true,
                key: Vec::new(),
                action,
                params,
            },
        }
    }

    fn clone_session(session: u32, port: u32) -> Self {
        Self {
            step: 0,
            form: Form::Clone { session, port },
        }
    }

    /// Builds a multicast group. Each copy has a port and an instance.
    fn group(group: u32, replicas: Vec<(u32, u32)>) -> Self {
        Self {
            step: 0,
            form: Form::Group { group, replicas },
        }
    }

    /// Moves the entry to the last step, because it lets packets in.
    fn last(self) -> Self {
        Self { step: 2, ..self }
    }
}

impl Role {
    pub(crate) fn entries(&self) -> &[RoleEntry] {
        &self.entries
    }

    /// Returns the numbers of table entries, multicast groups and clone sessions.
    pub fn size(&self) -> [usize; 3] {
        let mut size = [0; 3];
        for entry in &self.entries {
            let index = match entry.form {
                Form::Table { .. } => 0,
                Form::Group { .. } => 1,
                Form::Clone { .. } => 2,
            };
            size[index] += 1;
        }
        size
    }

    /// Completes the role by the entries that all roles have: forwarding of other packets, and ports of timer frames.
    fn new(
        kind: RoleKind,
        mut entries: Vec<RoleEntry>,
        frames: Vec<Vec<u8>>,
        ports: &[CrossConnectSettings],
        timer: &TimerSettings,
    ) -> Result<Self, String> {
        for connect in ports {
            let from = port(connect.from, "from")?;
            let to = port(connect.to, "to")?;
            let key = vec![("ingress_port", from.into())];
            entries.push(RoleEntry::entry(
                "other",
                key,
                "forward",
                vec![("port", to.into())],
            ));
        }
        let period = timer.every.unwrap_or_default();
        let frames = if timer.every.is_some() { frames } else { Vec::new() };
        timer.check(frames.len() as u64)?;
        for one in &timer.ports {
            let key = vec![("ingress_port", port(*one, "timer_frames.ports")?.into())];
            entries.push(RoleEntry::entry("timer_port", key, "accept_timer", Vec::new()));
        }
        Ok(Self {
            kind,
            frames,
            period,
            entries,
        })
    }
}

section! {
    /// Forwarding of packets that a device with a role does not process: those that arrive at one port leave by another. Others are
    /// dropped.
    pub struct CrossConnectSettings("[[manager.p4runtime.NAME.*.cross_connect]]") {
        /// The port of arrival.
        pub(crate) from: u32 = 0,
        /// The port by which they leave.
        pub(crate) to: u32 = 0,
    }
}

section! {
    /// Timer frames, by which a program without a timer of its own learns that time passes (EtherType 0x88b5, one for each register, list, path
    /// or epoch).
    pub struct TimerSettings("[manager.p4runtime.NAME.*.timer_frames]") {
        /// The ports at which they arrive: that of a packet generator, or the switch's CPU port. None: nothing is sent on a
        /// timeout.
        pub(crate) ports: Vec<u32> = Vec::new(),
        /// The manager sends them itself, each once in this time, by P4Runtime's packet-out: at most 5,000 per second. The switch
        /// must have a CPU port (bmv2: `--cpu-port`), which is one of `ports`. Not set: a packet generator sends them.
        pub(crate) every: Option<Duration> = None,
    }
}

impl TimerSettings {
    fn check(&self, frames: u64) -> Result<(), String> {
        let Some(every) = self.every else { return Ok(()) };
        if self.ports.is_empty() {
            return Err(
                "timer_frames.ports: the switch's CPU port is missing; add ports = [64] or the like"
                    .to_owned(),
            );
        }
        let ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
        if !(10..=3_600_000).contains(&ms) {
            return Err("timer_frames.every: write \"10ms\" to \"1h\"".to_owned());
        }
        let least = (frames * 1000).div_ceil(MAX_FRAMES);
        if ms < least {
            return Err(format!(
                "timer_frames.every: {frames} frames in that time are more than {MAX_FRAMES} per second; write at least \"{least}ms\", or use a packet generator"
            ));
        }
        Ok(())
    }
}

/// Builds a timer frame with this content, padded to the minimum Ethernet length (60 bytes without FCS).
fn frame(content: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend_from_slice(&TIMER_ETHERTYPE);
    frame.extend_from_slice(content);
    frame.resize(60, 0);
    frame
}

/// Checks that a port number is valid in the program.
fn port(number: u32, key: &str) -> Result<u32, String> {
    if (1..MAX_PORTS).contains(&number) {
        Ok(number)
    } else {
        Err(format!("{key}: a port has a number from 1 to 510"))
    }
}

/// Checks that an address is given, and is IPv4.
fn ipv4(address: Option<IpAddr>, key: &str) -> Result<Ipv4Addr, String> {
    match address {
        Some(IpAddr::V4(address)) => Ok(address),
        Some(IpAddr::V6(_)) => Err(format!(
            "{key}: the program knows IPv4 only; write an IPv4 address"
        )),
        None => Err(format!("{key}: write an address such as \"192.0.2.1\"")),
    }
}

/// Converts a duration into microseconds, which the program counts in 48 bits.
fn micros(time: Duration, key: &str) -> Result<u128, String> {
    let micros = time.as_micros();
    if (1..1 << 40).contains(&micros) {
        Ok(micros)
    } else {
        Err(format!("{key}: write \"1us\" to \"12d\""))
    }
}

/// Parses a MAC address into a 48-bit number.
///
/// # Errors
/// A sentence if `text` is not a MAC address.
pub fn mac(text: &str) -> Result<u64, String> {
    let bytes: Option<Vec<u8>> = text
        .split(':')
        .map(|part| {
            (part.len() == 2)
                .then(|| u8::from_str_radix(part, 16).ok())
                .flatten()
        })
        .collect();
    match bytes.filter(|bytes| bytes.len() == 6) {
        Some(bytes) => Ok(bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte))),
        None => Err(format!(
            "`{text}` is not a MAC address; write it as \"02:00:00:00:00:01\""
        )),
    }
}
