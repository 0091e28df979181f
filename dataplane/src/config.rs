//! The INT configuration of a switch (mark, report format, congestion thresholds, SF-INT), and its validation.

use std::fmt;

use wire::Profile;

use crate::l4_checksum::L4Checksum;
use crate::report::Format;
use crate::sf::{self, Form};
use crate::watchlist::{Mode, Watchlist};

/// The INT configuration of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The mark of packets with INT; the same in the whole INT domain.
    pub mark: Mark,
    /// Treatment of the L4 checksum of packets with INT; the same in the whole INT domain.
    pub l4_checksum: L4Checksum,
    /// Instruction bits that this switch supports (positions as in the instruction bitmap); it writes all ones for the others.
    /// Bit 15 (checksum complement) is not included: its value depends on `l4_checksum`, all ones if the checksum is updated
    /// and the complement if not.
    pub available: u16,
    /// Format of the reports: version, grouping, subsystems.
    pub format: Format,
    /// Occupancies at which the switch reports a queue.
    pub congestion: Option<Congestion>,
    /// SF-INT: registers, form of reports, and urgent packets.
    pub sf: sf::Config,
}

impl Default for Config {
    /// Uses DSCP 0x17, Report 2.0, and neither level-2 interfaces nor buffer occupancy.
    fn default() -> Self {
        Self {
            mark: Mark::default(),
            l4_checksum: L4Checksum::default(),
            available: 0xfd00,
            format: Format::default(),
            congestion: None,
            sf: sf::Config::default(),
        }
    }
}

/// The mark by which packets with INT are recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// DSCP of packets with INT, 1 to 63.
    pub dscp: u8,
    /// If set, INT 2.1 marks packets by this UDP destination port instead; TCP packets then get an additional UDP header.
    pub port: Option<u16>,
    /// Inserts INT-MD and INT-MX 2.1 over IPv6 as a hop-by-hop option, which needs no mark. SF-INT over IPv6 always does.
    pub hop_by_hop: bool,
}

impl Default for Mark {
    fn default() -> Self {
        Self {
            dscp: Profile::DSCP,
            port: None,
            hop_by_hop: false,
        }
    }
}

/// Occupancies that start and end the congestion of a queue, with hysteresis: a packet finds at least `rise`, and a later one
/// at most `fall`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// Occupancy at which the queue becomes congested, queue units.
    pub rise: u32,
    /// Occupancy at which the congestion ends; less than `rise`.
    pub fall: u32,
    /// Maximum number of passing packets that are reported per congestion, each with the occupancy and the packet's headers.
    pub quota: u32,
}

/// The reason why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The DSCP is 0, which marks everything, or does not fit into six bits.
    BadDscp(u8),
    /// UDP port 0 cannot be a mark.
    BadPort,
    /// INT-MX, postcards and compact SF-INT reports need Report 2.0.
    NeedsReport20,
    /// An instruction bitmap has no defined bit, so it measures nothing.
    EmptyBitmap,
    /// The value of `fall` is not below `rise`.
    BadCongestion,
    /// SF-INT needs the node id and at least one hop, and cannot have a checksum complement.
    BadSfWatch,
    /// Postcards and INT-MX have no record in the packet, so they cannot have a checksum complement.
    ComplementWithoutStack,
    /// The number of registers must be a power of two up to 2^20, and the interval of urgent packets at least 1.
    BadRegisters,
    /// Only Report 2.0 can group reports (1 to 64); subsystems are 1 to 64.
    BadFormat,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadDscp(dscp) => write!(f, "the DSCP that marks INT must be 1 to 63, not {dscp}"),
            Self::BadPort => f.write_str("the UDP port that marks INT must not be 0"),
            Self::NeedsReport20 => {
                f.write_str("INT-MX, postcards and compact SF-INT reports need Report 2.0")
            }
            Self::BadSfWatch => f.write_str(
                "SF-INT needs at least one hop and instruction bit 0 (the node id), and cannot have bit 15",
            ),
            Self::ComplementWithoutStack => f.write_str(
                "postcards and INT-MX cannot have bit 15 (the checksum complement): packets carry no records",
            ),
            Self::BadRegisters => f.write_str(
                "SF-INT registers must be a power of two up to 1048576, and packets between urgent ones at least 1",
            ),
            Self::EmptyBitmap => f.write_str("a watch needs at least one instruction bit"),
            Self::BadCongestion => f.write_str("queue reports: `fall` must be less than `rise`"),
            Self::BadFormat => {
                f.write_str("groups are 1 to 64 reports (1 for Report 1.0), subsystems 1 to 64")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Checks that the configuration contradicts neither itself nor the watchlist.
    pub(crate) fn check(&self, watchlist: &Watchlist) -> Result<(), ConfigError> {
        let Config {
            mark,
            format,
            congestion,
            ..
        } = self;
        if !(1..64).contains(&mark.dscp) {
            return Err(ConfigError::BadDscp(mark.dscp));
        }
        if mark.port == Some(0) {
            return Err(ConfigError::BadPort);
        }
        if congestion.is_some_and(|limits| limits.fall >= limits.rise) {
            return Err(ConfigError::BadCongestion);
        }
        if !format.is_valid() {
            return Err(ConfigError::BadFormat);
        }
        let registers = self.sf.registers;
        if !registers.is_power_of_two() || registers > sf::MAX_REGISTERS || self.sf.urgent.every == Some(0) {
            return Err(ConfigError::BadRegisters);
        }
        if !format.is_20() && self.sf.form == Form::Compact {
            return Err(ConfigError::NeedsReport20);
        }
        for watch in watchlist.entries() {
            if watch.mode == Mode::Sf && (watch.bitmap & 0x8001 != 0x8000 || watch.hops == 0) {
                return Err(ConfigError::BadSfWatch);
            }
            if matches!(watch.mode, Mode::Mx21 | Mode::Postcard) && watch.bitmap & 1 != 0 {
                return Err(ConfigError::ComplementWithoutStack);
            }
            if watch.bitmap == 0 {
                return Err(ConfigError::EmptyBitmap);
            }
            if !format.is_20() && matches!(watch.mode, Mode::Mx21 | Mode::Postcard) {
                return Err(ConfigError::NeedsReport20);
            }
        }
        Ok(())
    }
}
