//! Headers between an outer packet and the packet in it, as far as INT has no place in them: ERSPAN, GTP-U, PPPoE and the
//! Ethernet frames of MPLS pseudowires. The [walk](super) skips them; where it cannot, it notes why.

use super::{Purpose, Walk, is_pseudowire};
use crate::bytes::{try_u16, u16_at, u32_at};
use crate::checksum;
use crate::ethernet::ethertype::{self, IPV4, IPV6};
use crate::refusal::Refusal;

/// UDP destination port of GTP-U.
pub(crate) const GTP_PORT: u16 = 2152;
/// GRE protocol type of ERSPAN I and II.
pub(crate) const ERSPAN: u16 = 0x88be;
/// GRE protocol type of ERSPAN III.
pub(crate) const ERSPAN_3: u16 = 0x22eb;
/// Maximum number of GTP-U extension headers.
const MAX_GTP_EXTENSIONS: usize = 8;

/// The packet behind MPLS labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Labelled {
    /// IP, announced by this EtherType.
    Ip(u16),
    /// An Ethernet frame at this offset, behind a control word or not.
    Frame(usize),
    /// The packet cannot be read.
    Unread(Refusal),
}

/// Returns whether the bytes after UDP are a GTP-U header of user data: version 1, protocol type GTP, message T-PDU.
#[inline]
pub(crate) fn is_gtp_data(body: &[u8]) -> bool {
    matches!(body, [first, 0xff, ..] if first >> 4 == 3)
}

/// Returns the length of the header of a GTP-U message with its extension headers.
///
/// # Errors
/// [`Refusal::TunnelTruncated`] if the bytes end in it; [`Refusal::GtpExtension`] if an extension header has the length 0 or
/// exceeds the message.
fn gtp_header_len(message: &[u8]) -> Result<usize, Refusal> {
    const HEADER: usize = 8;
    /// E, S and PN: the optional fields are present.
    const OPTIONAL: u8 = 0x07;
    const EXTENSION: u8 = 0x04;
    let header = message.get(..HEADER).ok_or(Refusal::TunnelTruncated)?;
    if header[0] & OPTIONAL == 0 {
        return Ok(HEADER);
    }
    let end = HEADER + usize::from(u16_at(header, 2));
    let mut at = HEADER + 4;
    if at > end {
        return Err(Refusal::GtpExtension);
    }
    let mut next = *message.get(at - 1).ok_or(Refusal::TunnelTruncated)?;
    if header[0] & EXTENSION == 0 {
        return Ok(at);
    }
    for _ in 0..MAX_GTP_EXTENSIONS {
        if next == 0 {
            return Ok(at);
        }
        if at >= end {
            return Err(Refusal::GtpExtension);
        }
        let len = usize::from(*message.get(at).ok_or(Refusal::TunnelTruncated)?) * 4;
        at += len;
        if len == 0 || at > end {
            return Err(Refusal::GtpExtension);
        }
        next = *message.get(at - 1).ok_or(Refusal::TunnelTruncated)?;
    }
    if next == 0 {
        Ok(at)
    } else {
        Err(Refusal::GtpExtension)
    }
}

/// Returns the EtherType of the IP packet that begins with this byte, or `None` if it is none.
fn ip_ethertype(first: u8) -> Option<u16> {
    match first >> 4 {
        4 => Some(IPV4),
        6 => Some(IPV6),
        _ => None,
    }
}

/// Returns whether the bytes read as an Ethernet frame: the EtherType is known, and IP has its version. `None`: they end
/// before that is known.
fn reads_as_frame(bytes: &[u8]) -> Option<bool> {
    let ethertype = try_u16(bytes, 12)?;
    let version = bytes.get(14).map(|first| first >> 4);
    Some(match ethertype {
        IPV4 => version.is_none_or(|version| version == 4),
        IPV6 => version.is_none_or(|version| version == 6),
        other => ethertype::is_known(other),
    })
}

/// Finds the packet behind the bottom label of an MPLS stack.
///
/// A control word begins with four zero bits, as many MAC addresses do. So both readings are tried, and the one whose
/// EtherType is known counts if the other's is not.
pub(crate) fn behind_labels(bytes: &[u8], label: u32) -> Labelled {
    const IPV4_EXPLICIT_NULL: u32 = 0;
    const IPV6_EXPLICIT_NULL: u32 = 2;
    const CONTROL_WORD: usize = 4;
    let unclear = Labelled::Unread(Refusal::EomplsUnclear);
    let truncated = Labelled::Unread(Refusal::TunnelTruncated);
    let Some(first) = bytes.first() else {
        return truncated;
    };
    let ip = ip_ethertype(*first);
    match (label, ip) {
        (IPV4_EXPLICIT_NULL, Some(IPV4)) | (IPV6_EXPLICIT_NULL, Some(IPV6)) => {
            return ip.map_or(unclear, Labelled::Ip);
        }
        (IPV4_EXPLICIT_NULL | IPV6_EXPLICIT_NULL, _) => return Labelled::Unread(Refusal::TunnelNotIp),
        _ => {}
    }
    if let Some(ethertype) = ip {
        return match is_pseudowire(bytes) {
            false => Labelled::Ip(ethertype),
            // The bytes are certainly not IP only if an IPv4 header with a correct checksum is in the frame.
            true if has_proven_ipv4(bytes) => Labelled::Frame(0),
            true => unclear,
        };
    }
    let plain = reads_as_frame(bytes);
    if first >> 4 != 0 {
        // A word that begins with 0x1000 also announces the control channel of a pseudowire (RFC 4385).
        let may_be_channel = bytes.starts_with(&[0x10, 0]);
        return match plain {
            Some(true) if !may_be_channel => Labelled::Frame(0),
            Some(_) => unclear,
            None => truncated,
        };
    }
    let behind_control_word = bytes.get(CONTROL_WORD..).and_then(reads_as_frame);
    match (plain, behind_control_word) {
        (Some(false), Some(true)) => Labelled::Frame(CONTROL_WORD),
        (Some(true), Some(false)) => Labelled::Frame(0),
        (Some(true), Some(true)) | (Some(false), Some(false)) => unclear,
        _ => truncated,
    }
}

/// Returns whether an Ethernet frame, perhaps with a tag, carries a whole IPv4 header with a correct checksum.
fn has_proven_ipv4(frame: &[u8]) -> bool {
    let is_tagged = try_u16(frame, 12).is_some_and(ethertype::is_tag);
    let at = if is_tagged { 18 } else { 14 };
    let inner = frame.get(at..).unwrap_or(&[]);
    let is_whole = inner.first().is_some_and(|first| (0x45..=0x4f).contains(first));
    try_u16(frame, at - 2) == Some(IPV4) && is_whole && checksum::holds(inner)
}

impl<'a> Walk<'a, '_> {
    /// Returns whether tunnels are followed that a switch takes for ordinary packets.
    #[inline]
    pub(crate) fn follows_all(&self) -> bool {
        self.purpose != Purpose::Frame
    }

    /// Notes why the contents of a tunnel cannot be read.
    #[cold]
    pub(crate) fn leave_unread(&mut self, refusal: Refusal) -> Result<(), Refusal> {
        self.unread = Some(refusal);
        Ok(())
    }

    /// Counts another tunnel without an IP header of its own, and returns whether it may be entered.
    pub(crate) fn enter_link(&mut self) -> bool {
        self.tunnels += 1;
        self.tunnels <= super::MAX_TUNNELS
    }

    /// Parses ERSPAN, whose header is at `at`, after GRE with this protocol type.
    pub(crate) fn erspan(
        &mut self,
        bytes: &'a [u8],
        at: usize,
        protocol: u16,
        has_sequence: bool,
    ) -> Result<(), Refusal> {
        const HEADER_2: usize = 8;
        const HEADER_3: usize = 12;
        const PLATFORM: usize = 8;
        if protocol == ERSPAN && !has_sequence {
            // Type I has no header of its own.
            return self.ethernet(bytes, at);
        }
        let Some(first) = bytes.get(at) else {
            return self.leave_unread(Refusal::TunnelTruncated);
        };
        match (protocol, has_sequence, first >> 4) {
            (ERSPAN, true, 1) => self.ethernet(bytes, at + HEADER_2),
            (ERSPAN_3, true, 2) => {
                let Some(header) = bytes.get(at..at + HEADER_3) else {
                    return self.leave_unread(Refusal::TunnelTruncated);
                };
                let word = u32_at(header, 8);
                let body = at + HEADER_3 + if word & 1 != 0 { PLATFORM } else { 0 };
                match word >> 10 & 0x1f {
                    0 => self.ethernet(bytes, body),
                    2 => self.any_ip(bytes, body),
                    _ => self.leave_unread(Refusal::TunnelNotIp),
                }
            }
            _ => self.leave_unread(Refusal::ErspanVersion),
        }
    }

    /// Parses the user data of GTP-U, starting at its header.
    pub(crate) fn gtp(&mut self, bytes: &'a [u8], at: usize) -> Result<(), Refusal> {
        match gtp_header_len(bytes.get(at..).unwrap_or(&[])) {
            Ok(len) => self.any_ip(bytes, at + len),
            Err(refusal) => self.leave_unread(refusal),
        }
    }

    /// Parses the data of a PPPoE session, starting at its header. It is a tunnel without an outer IP packet.
    pub(crate) fn pppoe(&mut self, bytes: &'a [u8], at: usize) -> Result<(), Refusal> {
        const HEADER: usize = 6;
        const VERSION_AND_TYPE: u8 = 0x11;
        const IPV4_PROTOCOL: u16 = 0x0021;
        const IPV6_PROTOCOL: u16 = 0x0057;
        if !self.enter_link() {
            return self.leave_unread(Refusal::TunnelDepth);
        }
        let Some(header) = bytes.get(at..at + HEADER) else {
            return self.leave_unread(Refusal::TunnelTruncated);
        };
        let len = usize::from(u16_at(header, 4));
        if header[0] != VERSION_AND_TYPE || header[1] != 0 {
            return self.leave_unread(Refusal::BadPppoe);
        }
        let body = at + HEADER;
        // Padding of the frame follows the length.
        let bytes = bytes.get(..body + len).unwrap_or(bytes);
        let (protocol, protocol_len) = match bytes.get(body..) {
            // Compressed to one byte, the protocol is odd.
            Some([first, ..]) if first & 1 != 0 => (u16::from(*first), 1),
            Some([high, low, ..]) => (u16::from_be_bytes([*high, *low]), 2),
            _ if len < 2 => return self.leave_unread(Refusal::BadPppoe),
            _ => return self.leave_unread(Refusal::TunnelTruncated),
        };
        let ethertype = match protocol {
            IPV4_PROTOCOL => IPV4,
            IPV6_PROTOCOL => IPV6,
            _ => return self.leave_unread(Refusal::TunnelNotIp),
        };
        self.ethertype(bytes, body + protocol_len, ethertype)
    }

    /// Parses the packet behind the bottom label of an MPLS stack. A pseudowire is a tunnel without an outer IP packet.
    pub(crate) fn labelled(&mut self, bytes: &'a [u8], at: usize, label: u32) -> Result<(), Refusal> {
        match behind_labels(bytes.get(at..).unwrap_or(&[]), label) {
            Labelled::Ip(IPV4) => self.ipv4(bytes, at),
            Labelled::Ip(_) => self.ipv6(bytes, at),
            Labelled::Frame(_) if !self.enter_link() => self.leave_unread(Refusal::TunnelDepth),
            Labelled::Frame(offset) => self.ethernet(bytes, at + offset),
            Labelled::Unread(refusal) => self.leave_unread(refusal),
        }
    }

    /// Parses the IP packet at `at`, of the version in its first byte.
    fn any_ip(&mut self, bytes: &'a [u8], at: usize) -> Result<(), Refusal> {
        match bytes.get(at).map(|first| ip_ethertype(*first)) {
            Some(Some(IPV4)) => self.ipv4(bytes, at),
            Some(Some(_)) => self.ipv6(bytes, at),
            Some(None) => self.leave_unread(Refusal::TunnelNotIp),
            None => self.leave_unread(Refusal::TunnelTruncated),
        }
    }
}
