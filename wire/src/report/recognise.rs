//! Whether bytes that begin like a report are one. A version nibble of 0, 1 or 2 also begins the datagrams of many other protocols, so
//! a report has to contain something that can be recognised: wire-formats section 2.5.

use super::{FirstHeader, InnerPacket};
use crate::bytes::{try_u16, try_u32, u16_at};
use crate::ethernet;
use crate::ethernet::ethertype::{
    ETHERNET, IPV4, IPV6, MPLS, MPLS_MULTICAST, QINQ, QINQ_OLD, QINQ_OTHER, VLAN,
};
use crate::refusal::Refusal;

/// The flow formats whose datagrams begin with bits of a report 0.5 without flags: a version in their first 16 or 32 bits.
#[cold]
pub(super) fn flow_format(payload: &[u8]) -> Option<Refusal> {
    const NETFLOW_5: usize = 24;
    const NETFLOW_5_RECORD: usize = 48;
    const NETFLOW_9: usize = 20;
    let version = try_u16(payload, 0)?;
    let count = usize::from(try_u16(payload, 2)?);
    match (version, count) {
        (0, 5) if is_sflow(payload) == Some(true) => Some(Refusal::Sflow),
        (5, 1..) if payload.len() == NETFLOW_5 + NETFLOW_5_RECORD * count => Some(Refusal::NetflowV5),
        (9, 1..) => {
            let room = payload.len().checked_sub(NETFLOW_9)?;
            let first = usize::from(try_u16(payload, NETFLOW_9 + 2)?);
            (count <= room / 4 && (4..=room).contains(&first)).then_some(Refusal::NetflowV9)
        }
        // The length of the message.
        (10, length) if length == payload.len() => Some(Refusal::Ipfix),
        _ => None,
    }
}

/// Whether a datagram that begins with the version of sFlow is one: the type of the agent's address, and samples that fit in.
fn is_sflow(payload: &[u8]) -> Option<bool> {
    /// Type and length of a sample.
    const SAMPLE: usize = 8;
    let header = match try_u32(payload, 4)? {
        // The agent has an IPv4 address.
        1 => 28,
        2 => 40,
        _ => return None,
    };
    let samples = try_u32(payload, header - 4)? as usize;
    let rest = payload.len() - header;
    if samples == 0 {
        return Some(rest == 0);
    }
    let first = try_u32(payload, header + 4)? as usize;
    Some(samples <= rest / SAMPLE && first <= rest - SAMPLE)
}

/// The properties of a report 0.5 or 1.0 without a flow.
pub(super) struct Single<'a> {
    pub(super) payload: &'a [u8],
    pub(super) packet: InnerPacket<'a>,
    /// D, Q or F is set.
    pub(super) flagged: bool,
    /// The reporter added metadata of its own.
    pub(super) measured: bool,
    /// All reserved bits of the headers are 0.
    pub(super) reserved_clear: bool,
}

impl Single<'_> {
    /// Accepts a report.
    ///
    /// # Errors
    /// [`Refusal::NotAReport`] if nothing in it shows that it is one.
    #[cold]
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let is_report = match self.packet.first {
            FirstHeader::Ethernet if is_known(&self.packet) => true,
            _ => {
                self.reserved_clear
                    && self.is_plausible()
                    && !is_dns(self.payload)
                    && !is_radius(self.payload)
            }
        };
        if self.flagged && is_report {
            Ok(())
        } else {
            Err(Refusal::NotAReport)
        }
    }

    fn is_plausible(&self) -> bool {
        is_cut(&self.packet) || is_llc(&self.packet) || self.measured && is_packet(&self.packet)
    }
}

/// The properties of an individual report 2.0 without a flow.
pub(super) struct Grouped<'a> {
    pub(super) inner_type: u8,
    pub(super) packet: InnerPacket<'a>,
    /// Its inner contents are whole, and not empty.
    pub(super) has_contents: bool,
    /// D, Q, F or I is set.
    pub(super) flagged: bool,
    /// The bits behind the flags are 0.
    pub(super) reserved_clear: bool,
    /// The reporter added metadata of its own.
    pub(super) measured: bool,
    /// It has main contents that say something: words of metadata or of a domain, or flags.
    pub(super) has_main: bool,
}

impl Grouped<'_> {
    /// Accepts a report.
    ///
    /// # Errors
    /// [`Refusal::NotAReport`] if nothing in it shows that it is one.
    #[cold]
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let is_report = match (self.inner_type, self.packet.first) {
            (0, _) => self.has_main,
            (_, FirstHeader::Nothing) => {
                self.has_main || self.has_contents && self.flagged && self.reserved_clear
            }
            (_, FirstHeader::Ethernet) => {
                self.measured || self.flagged && (is_known(&self.packet) || is_llc(&self.packet))
            }
            _ => (self.measured || self.flagged) && is_known(&self.packet),
        };
        if is_report {
            Ok(())
        } else {
            Err(Refusal::NotAReport)
        }
    }
}

/// Whether the packet begins with a header that can be recognised, although no IP header of it could be read.
fn is_known(packet: &InnerPacket<'_>) -> bool {
    let version = packet.packet.first().map(|first| first >> 4);
    match packet.first {
        FirstHeader::Ethernet => try_u16(packet.packet, 12).is_some_and(is_ethertype),
        FirstHeader::Ipv4 => version == Some(4),
        FirstHeader::Ipv6 => version == Some(6),
        FirstHeader::Nothing => false,
    }
}

/// Whether the packet ends inside its first header.
fn is_cut(packet: &InnerPacket<'_>) -> bool {
    let len = match packet.first {
        FirstHeader::Ethernet => ethernet::HEADER_LEN,
        FirstHeader::Ipv4 => 20,
        FirstHeader::Ipv6 => 40,
        FirstHeader::Nothing => 0,
    };
    let is_header = packet.first == FirstHeader::Ethernet || packet.packet.is_empty() || is_known(packet);
    packet.packet.len() < len && is_header
}

/// Whether the packet may be one: addresses of a frame, or the version of IP.
fn is_packet(packet: &InnerPacket<'_>) -> bool {
    match packet.first {
        // A source is no group.
        FirstHeader::Ethernet => packet
            .packet
            .get(6..ethernet::HEADER_LEN - 2)
            .is_some_and(|source| source[0] & 1 == 0 && source.iter().any(|byte| *byte != 0)),
        _ => is_known(packet),
    }
}

/// Whether a frame has a length of IEEE 802.3 instead of an EtherType, and SNAP, a BPDU or IS-IS behind it.
fn is_llc(packet: &InnerPacket<'_>) -> bool {
    const MAX_LENGTH: u16 = 1500;
    const ACCESS_POINTS: [u16; 3] = [0xaaaa, 0x4242, 0xfefe];
    let frame = packet.packet;
    packet.first == FirstHeader::Ethernet
        && try_u16(frame, 12).is_some_and(|length| length <= MAX_LENGTH)
        && try_u16(frame, ethernet::HEADER_LEN).is_some_and(|points| ACCESS_POINTS.contains(&points))
}

/// EtherTypes in use in networks that have telemetry.
fn is_ethertype(ethertype: u16) -> bool {
    const ARP: u16 = 0x0806;
    const RARP: u16 = 0x8035;
    const AVTP: u16 = 0x22f0;
    const TRILL: u16 = 0x22f3;
    const PPPOE: [u16; 2] = [0x8863, 0x8864];
    const SLOW_PROTOCOLS: u16 = 0x8809;
    const EAPOL: u16 = 0x888e;
    const EXPERIMENTS: [u16; 2] = [0x88b5, 0x88b6];
    const TIPC: u16 = 0x88ca;
    const LLDP: u16 = 0x88cc;
    const MACSEC: u16 = 0x88e5;
    const PBB: u16 = 0x88e7;
    const MVRP: u16 = 0x88f5;
    const MMRP: u16 = 0x88f6;
    const PTP: u16 = 0x88f7;
    const PRP: u16 = 0x88fb;
    const CFM: u16 = 0x8902;
    const FCOE: u16 = 0x8906;
    const FIP: u16 = 0x8914;
    const ROCE: u16 = 0x8915;
    const HSR: u16 = 0x892f;
    const NSH: u16 = 0x894f;
    matches!(
        ethertype,
        IPV4 | IPV6
            | VLAN
            | QINQ
            | QINQ_OLD
            | QINQ_OTHER
            | MPLS
            | MPLS_MULTICAST
            | ETHERNET
            | ARP
            | RARP
            | AVTP
            | TRILL
            | SLOW_PROTOCOLS
            | EAPOL
    ) || matches!(
        ethertype,
        TIPC | LLDP | MACSEC | PBB | MVRP | MMRP | PTP | PRP | CFM | FCOE | FIP | ROCE | HSR | NSH
    ) || PPPOE.contains(&ethertype)
        || EXPERIMENTS.contains(&ethertype)
}

/// Whether this is a message of RADIUS: its length is that of the datagram, and its attributes end there.
fn is_radius(payload: &[u8]) -> bool {
    const HEADER: usize = 20;
    if try_u16(payload, 2).map(usize::from) != Some(payload.len()) {
        return false;
    }
    let Some(mut attributes) = payload.get(HEADER..) else {
        return false;
    };
    while let [_, len @ 2..=255, ..] = attributes {
        let Some(rest) = attributes.get(usize::from(*len)..) else {
            return false;
        };
        attributes = rest;
    }
    attributes.is_empty()
}

/// Whether this is a DNS message with one question, not for the root. Its first 16 bits are arbitrary, and others look like reserved
/// bits and sequence numbers.
fn is_dns(payload: &[u8]) -> bool {
    const HEADER: usize = 12;
    const MAX_NAME: usize = 255;
    const CLASSES: [u16; 5] = [1, 3, 4, 254, 255];
    if try_u16(payload, 4) != Some(1) || payload.get(HEADER) == Some(&0) {
        return false;
    }
    let mut at = HEADER;
    while at < HEADER + MAX_NAME {
        match payload.get(at) {
            // The question's type and class follow the name. The top bit of the class belongs to mDNS.
            Some(0) => {
                return payload
                    .get(at + 3..at + 5)
                    .is_some_and(|class| CLASSES.contains(&(u16_at(class, 0) & 0x7fff)));
            }
            Some(label) if *label < 64 => at += 1 + usize::from(*label),
            _ => return false,
        }
    }
    false
}
