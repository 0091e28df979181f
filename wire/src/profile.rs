//! The profile of a report source: its dialect of INT and Telemetry Report, and the marks of INT in its network.

crate::named! {
    /// A dialect: how an implementation deviates from the specifications (`docs/reference/wire-formats.md`, section 8.1).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    #[repr(u8)]
    pub enum Dialect, name {
        /// Formats as the specifications define them.
        #[default]
        Strict => "strict",
        /// GÉANT int-platforms: INT 1.0 with 8-byte timestamps and 2 + 2 byte level-2 interfaces.
        Geant => "geant",
        /// Intel host-int: INT 0.5 with a private shim type, Report 0.5 with two private kinds.
        HostInt => "hostint",
        /// INTCollector's generator: Report 1.0 with a wrong length nibble, Report 0.5 with version nibble 1, INT 1.0 with
        /// version nibble 0 and one word for both level-2 interfaces, INT 0.5 without a length. Every packet carries INT,
        /// with DSCP 0.
        IntCollectorGen => "intcollector-gen",
        /// ONOS: Report 1.0 with the flags before the reserved bits.
        Onos => "onos",
        /// The p4-int family of P4 programs: Report 2.0 with lengths of 0, one report up to the end of the datagram.
        P4Int => "p4int",
    }
}

impl Dialect {
    /// Returns whether a Report 2.0 with lengths of 0 may extend to the end of the datagram. The strict dialect accepts it
    /// too, because such a datagram has no other meaning.
    pub(crate) const fn reads_length_zero(self) -> bool {
        matches!(self, Self::Strict | Self::P4Int)
    }
}

/// The position of the INT shim in TCP, one for a whole domain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TcpShim {
    /// After the fixed 20 bytes, before the options.
    #[default]
    AfterFixed,
    /// After the options, before the payload.
    AfterOptions,
}

/// A set of UDP ports for reports, at most [`TelemetryPorts::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TelemetryPorts {
    ports: [u16; Self::MAX],
    len: u8,
}

impl TelemetryPorts {
    /// Maximum number of ports in the set.
    pub const MAX: usize = 8;
    /// The empty set of ports.
    pub const NONE: Self = Self {
        ports: [0; Self::MAX],
        len: 0,
    };

    /// Creates a set, or returns `None` if there are more than [`Self::MAX`] ports.
    pub fn new(list: &[u16]) -> Option<Self> {
        let mut ports = [list.first().copied().unwrap_or(0); Self::MAX];
        ports.get_mut(..list.len())?.copy_from_slice(list);
        Some(Self {
            ports,
            len: list.len() as u8,
        })
    }

    /// Returns the ports of the set.
    #[inline]
    pub fn as_slice(&self) -> &[u16] {
        &self.ports[..usize::from(self.len)]
    }

    /// Returns whether `port` is in the set.
    #[inline]
    pub fn contains(&self, port: u16) -> bool {
        // Unused elements repeat the first port, so that all are compared without a branch on the length.
        self.ports
            .iter()
            .fold(false, |found, place| found | (*place == port))
            && self.len > 0
    }
}

impl Default for TelemetryPorts {
    /// Returns port 32766, the default for reports.
    fn default() -> Self {
        Self {
            ports: [32766; TelemetryPorts::MAX],
            len: 1,
        }
    }
}

/// A domain with domain-specific INT data: the number of words that only the source adds, at the end of the stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Domain {
    /// Domain Specific ID of the INT header.
    pub id: u16,
    /// Words at the end of the stack that only the source adds.
    pub source_only_words: u8,
}

/// The formats and marks of a source: everything needed to parse its bytes. Units and names are not included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Profile {
    /// Dialect of the source.
    pub dialect: Dialect,
    /// DSCP that marks INT: a packet carries INT if `DSCP & dscp_mask == dscp`. A mask of 0 disables this mark.
    pub dscp: u8,
    /// Mask of the compared DSCP bits, see [`Profile::dscp`].
    pub dscp_mask: u8,
    /// A second DSCP that marks INT, compared without a mask.
    pub dscp_other: Option<u8>,
    /// UDP destination port that marks INT; 0 disables this mark.
    pub int_udp_port: u16,
    /// The 8-byte probe marker after the L4 header.
    pub probe_marker: Option<u64>,
    /// GRE protocol type of INT.
    pub gre_protocol: u16,
    /// Position of the shim in TCP.
    pub tcp_shim: TcpShim,
    /// Ports of reports. A report about a packet to one of them is a report about a report.
    pub telemetry_ports: TelemetryPorts,
    /// UDP destination ports of VXLAN in reported packets, besides those that are always recognized; 0: none.
    pub vxlan_ports: [u16; Self::MAX_VXLAN_PORTS],
    /// Domains with a known number of source-only words.
    pub domains: [Option<Domain>; 2],
    /// In the drop header of Report 0.5, egress interface 0 with queue 0 means that neither is known.
    pub drop_zero_unknown: bool,
}

impl Profile {
    /// Maximum number of further ports of VXLAN.
    pub const MAX_VXLAN_PORTS: usize = 4;
    /// Default UDP port that marks INT.
    pub const INT_UDP_PORT: u16 = 33122;
    /// Default GRE protocol type of INT: IEEE local experimental EtherType 1.
    pub const GRE_PROTOCOL: u16 = 0x88b6;
    /// Default DSCP that marks INT.
    pub const DSCP: u8 = 0x17;

    /// Returns the default profile of a dialect.
    pub const fn new(dialect: Dialect) -> Self {
        let (dscp, dscp_mask, dscp_other) = match dialect {
            Dialect::HostInt => (0x01, 0x01, None),
            Dialect::Geant => (0x20, 0x3f, Some(Self::DSCP)),
            Dialect::IntCollectorGen => (0, 0x3f, Some(Self::DSCP)),
            _ => (Self::DSCP, 0x3f, None),
        };
        Self {
            dialect,
            dscp,
            dscp_mask,
            dscp_other,
            int_udp_port: Self::INT_UDP_PORT,
            probe_marker: None,
            gre_protocol: Self::GRE_PROTOCOL,
            tcp_shim: TcpShim::AfterFixed,
            telemetry_ports: TelemetryPorts {
                ports: [32766; TelemetryPorts::MAX],
                len: 1,
            },
            vxlan_ports: [0; Self::MAX_VXLAN_PORTS],
            domains: [None; 2],
            drop_zero_unknown: false,
        }
    }

    /// Returns whether this DSCP (six bits) marks INT.
    #[inline]
    pub fn marks(&self, dscp: u8) -> bool {
        (self.dscp_mask != 0 && dscp & self.dscp_mask == self.dscp) || self.dscp_other == Some(dscp)
    }

    /// Returns whether this is a further port of VXLAN.
    #[inline]
    pub fn is_vxlan_port(&self, port: u16) -> bool {
        port != 0 && self.vxlan_ports.contains(&port)
    }

    /// Returns the number of words that only the source adds to a domain's stack.
    #[inline]
    pub(crate) fn source_only_words(&self, domain: u16) -> u8 {
        self.domains
            .iter()
            .flatten()
            .find(|known| known.id == domain)
            .map_or(0, |known| known.source_only_words)
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::new(Dialect::Strict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialect_is_found_by_its_name() {
        for dialect in Dialect::ALL {
            assert_eq!(Dialect::from_name(dialect.name()), Some(dialect));
        }
        assert_eq!(Dialect::from_name("klingon"), None);
    }

    #[test]
    fn a_mask_of_zero_marks_nothing() {
        let off = Profile {
            dscp: 0,
            dscp_mask: 0,
            ..Profile::default()
        };
        assert!((0..64).all(|dscp| !off.marks(dscp)));
        let hostint = Profile::new(Dialect::HostInt);
        assert!((0..64).all(|dscp| hostint.marks(dscp) == (dscp & 1 == 1)));
    }

    #[test]
    fn more_ports_than_fit_are_refused() {
        assert_eq!(TelemetryPorts::new(&[1; 9]), None);
        assert!(TelemetryPorts::new(&[1, 2]).is_some_and(|ports| ports.contains(2) && !ports.contains(0)));
    }
}
