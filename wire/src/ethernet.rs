//! Ethernet II headers, and the VLAN and QinQ tags of IEEE 802.1Q.

use crate::bytes::{array_at, put_u16, u16_at};
use crate::refusal::Refusal;

/// Length of the Ethernet header, bytes.
pub const HEADER_LEN: usize = 14;
/// Length of a VLAN tag after the EtherType that announces it, bytes: control information and the next EtherType.
pub const TAG_LEN: usize = 4;

/// EtherTypes that this crate knows.
pub mod ethertype {
    /// EtherType of IPv4 packets.
    pub const IPV4: u16 = 0x0800;
    /// EtherType of IPv6 packets.
    pub const IPV6: u16 = 0x86dd;
    /// EtherType of a VLAN tag.
    pub const VLAN: u16 = 0x8100;
    /// EtherType of a QinQ service tag (802.1ad).
    pub const QINQ: u16 = 0x88a8;
    /// EtherType of QinQ service tags before 802.1ad.
    pub const QINQ_OLD: u16 = 0x9100;
    /// Another EtherType of QinQ service tags before 802.1ad.
    pub const QINQ_OTHER: u16 = 0x9200;
    /// EtherType of MPLS packets.
    pub const MPLS: u16 = 0x8847;
    /// EtherType of MPLS packets with an upstream-assigned label.
    pub const MPLS_MULTICAST: u16 = 0x8848;
    /// EtherType of Ethernet frames in a tunnel (transparent Ethernet bridging).
    pub const ETHERNET: u16 = 0x6558;
    /// EtherType of PPPoE session data. That of PPPoE discovery is one less.
    pub const PPPOE_SESSION: u16 = 0x8864;
    /// EtherTypes of all VLAN tags.
    pub const TAGS: [u16; 4] = [VLAN, QINQ, QINQ_OLD, QINQ_OTHER];

    /// Returns whether this EtherType announces a VLAN tag.
    #[inline]
    pub const fn is_tag(ethertype: u16) -> bool {
        matches!(ethertype, VLAN | QINQ | QINQ_OLD | QINQ_OTHER)
    }

    /// Returns whether an EtherType is in use in networks with telemetry.
    pub(crate) fn is_known(ethertype: u16) -> bool {
        const ARP: u16 = 0x0806;
        const RARP: u16 = 0x8035;
        const SRP: u16 = 0x22ea;
        const AVTP: u16 = 0x22f0;
        const TRILL: u16 = 0x22f3;
        const PPPOE_DISCOVERY: u16 = 0x8863;
        const SLOW_PROTOCOLS: u16 = 0x8809;
        const EAPOL: u16 = 0x888e;
        const PROFINET: u16 = 0x8892;
        const ETHERCAT: u16 = 0x88a4;
        // Two EtherTypes for local experiments, and one for vendors.
        const EXPERIMENTS: [u16; 3] = [0x88b5, 0x88b6, 0x88b7];
        // IEC 61850: GOOSE, management, sampled values.
        const SUBSTATION: [u16; 3] = [0x88b8, 0x88b9, 0x88ba];
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
        const LOOPBACK: u16 = 0x9000;
        is_tag(ethertype)
            || matches!(
                ethertype,
                IPV4 | IPV6
                    | MPLS
                    | MPLS_MULTICAST
                    | ETHERNET
                    | ARP
                    | RARP
                    | SRP
                    | AVTP
                    | TRILL
                    | SLOW_PROTOCOLS
                    | EAPOL
            )
            || matches!(
                ethertype,
                PROFINET | ETHERCAT | TIPC | LLDP | MACSEC | PBB | MVRP | MMRP | PTP | PRP | CFM | FCOE | FIP
            )
            || matches!(ethertype, ROCE | HSR | NSH | LOOPBACK)
            || matches!(ethertype, PPPOE_DISCOVERY | PPPOE_SESSION)
            || EXPERIMENTS.contains(&ethertype)
            || SUBSTATION.contains(&ethertype)
    }
}

mod field {
    use core::ops::Range;
    pub(super) const DST: usize = 0;
    pub(super) const SRC: usize = 6;
    pub(super) const ETHERTYPE: usize = 12;
    pub(super) const DST_BYTES: Range<usize> = 0..6;
    pub(super) const SRC_BYTES: Range<usize> = 6..12;
    // Offsets in a tag.
    pub(super) const CONTROL: usize = 0;
    pub(super) const INNER: usize = 2;
}

/// A view of an Ethernet frame.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    /// Creates a view of `buffer`.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] if the header is incomplete.
    pub fn new_checked(buffer: T) -> Result<Self, Refusal> {
        if buffer.as_ref().len() < HEADER_LEN {
            Err(Refusal::Truncated)
        } else {
            Ok(Self(buffer))
        }
    }

    /// Returns the destination MAC address.
    pub fn dst(&self) -> [u8; 6] {
        array_at(self.0.as_ref(), field::DST)
    }

    /// Returns the source MAC address.
    pub fn src(&self) -> [u8; 6] {
        array_at(self.0.as_ref(), field::SRC)
    }

    /// Returns the frame's EtherType.
    pub fn ethertype(&self) -> u16 {
        u16_at(self.0.as_ref(), field::ETHERTYPE)
    }
}

impl<'a> Packet<&'a [u8]> {
    /// Returns the bytes after the header.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[HEADER_LEN..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets the frame's EtherType.
    pub fn set_ethertype(&mut self, ethertype: u16) {
        put_u16(self.0.as_mut(), field::ETHERTYPE, ethertype);
    }
}

/// The fields of an Ethernet header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repr {
    /// Destination MAC address of the frame.
    pub dst: [u8; 6],
    /// Source MAC address of the frame.
    pub src: [u8; 6],
    /// EtherType of the payload.
    pub ethertype: u16,
}

impl Repr {
    /// Reads the fields of a frame's header.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Self {
            dst: packet.dst(),
            src: packet.src(),
            ethertype: packet.ethertype(),
        }
    }

    /// Returns the length of the header, bytes.
    pub const fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header.
    ///
    /// # Panics
    /// If `out` is shorter than [`HEADER_LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        out[field::DST_BYTES].copy_from_slice(&self.dst);
        out[field::SRC_BYTES].copy_from_slice(&self.src);
        put_u16(out, field::ETHERTYPE, self.ethertype);
    }
}

/// The fields of a VLAN tag, after the EtherType that announces it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tag {
    /// Priority code point (PCP), three bits.
    pub priority: u8,
    /// Drop eligible indicator (DEI).
    pub drop_eligible: bool,
    /// VLAN ID, twelve bits.
    pub vlan: u16,
    /// EtherType of the data after the tag.
    pub ethertype: u16,
}

impl Tag {
    /// Reads a tag.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] if the tag is incomplete.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let tag = bytes.get(..TAG_LEN).ok_or(Refusal::Truncated)?;
        let control = u16_at(tag, field::CONTROL);
        Ok(Self {
            priority: (control >> 13) as u8,
            drop_eligible: control & 0x1000 != 0,
            vlan: control & 0x0fff,
            ethertype: u16_at(tag, field::INNER),
        })
    }

    /// Writes the tag.
    ///
    /// # Panics
    /// If `out` is shorter than [`TAG_LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let control =
            u16::from(self.priority) << 13 | u16::from(self.drop_eligible) << 12 | self.vlan & 0x0fff;
        put_u16(out, field::CONTROL, control);
        put_u16(out, field::INNER, self.ethertype);
    }
}
