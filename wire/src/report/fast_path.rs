//! Fast path for the common packet in a report: Ethernet, IPv4 without options, UDP or TCP, then INT 1.0 or 2.x, parsed
//! without a [walk](crate::packet).
//!
//! The result equals the walk's, or is `None` for unusual, truncated and malformed packets; a fuzz target compares the two.

use super::{FirstHeader, InnerPacket, Places, Report};
use crate::bytes::{try_u16, u16_at, u32_at};
use crate::flow::FlowKey;
use crate::geneve;
use crate::int::layout::Layouts;
use crate::int::{Int, Mode, header, shim};
use crate::packet::{GTP_PORT, IPV4, TCP, UDP};
use crate::profile::{Profile, TcpShim};
use crate::vxlan;

/// Length of the shortest packet accepted here: up to a UDP header, a shim and an INT 1.0 header.
const MIN_LEN: usize = field::L4 + 8 + shim::LEN + header::LEN_1;

mod field {
    // Offsets from the Ethernet header.
    pub(super) const ETHERTYPE: usize = 12;
    pub(super) const IP: usize = 14;
    // Offsets from the IPv4 header.
    pub(super) const VERSION_IHL: usize = 0;
    pub(super) const TOS: usize = 1;
    pub(super) const TOTAL_LEN: usize = 2;
    pub(super) const FRAGMENT: usize = 6;
    pub(super) const TTL: usize = 8;
    pub(super) const PROTO: usize = 9;
    pub(super) const SRC: usize = 12;
    pub(super) const DST: usize = 16;
    pub(super) const L4: usize = 20;
    pub(super) const SRC_PORT: usize = 20;
    pub(super) const DST_PORT: usize = 22;
}

/// Parses the packet in a report. Returns `false`, with nothing written, if the fast path does not apply.
#[inline(always)]
pub(crate) fn read_inner<'a>(
    report: &mut Report<'a>,
    inner: InnerPacket<'a>,
    profile: &Profile,
    layouts: &mut Layouts,
) -> bool {
    let Some(packet) = CommonPacket::new(inner, profile) else {
        return false;
    };
    let Some((dst_port, end)) = packet.int(&mut report.int, profile, layouts) else {
        return false;
    };
    report.flow = Some(packet.flow(dst_port));
    report.hop_limit = Some(packet.head[field::TTL]);
    let ip = if inner.first == FirstHeader::Ethernet {
        field::IP
    } else {
        0
    };
    report.places = Places::plain(inner.packet, ip, ip + end);
    true
}

/// Parses only the flow, or returns `None` if the fast path does not apply.
#[inline(always)]
pub(crate) fn flow(inner: InnerPacket<'_>, profile: &Profile) -> Option<FlowKey> {
    let packet = CommonPacket::new(inner, profile)?;
    if packet.bytes[packet.shim] == 0x01 {
        return packet.is_dscp_10(profile).then(|| packet.flow(packet.dst_port));
    }
    Some(packet.flow(packet.int_2(profile)?.dst_port))
}

/// INT 2.x in a common packet, by offsets from the IPv4 header.
struct Int2Extent {
    /// Offset of the INT metadata header.
    header: usize,
    /// Offset after INT.
    end: usize,
    /// The packet's original destination port.
    dst_port: u16,
}

/// A packet with the common headers.
struct CommonPacket<'a> {
    /// Bytes from the IPv4 header to the packet's end.
    bytes: &'a [u8],
    /// The same bytes up to the shortest packet's end; reads at constant offsets need no bounds checks.
    head: &'a [u8; MIN_LEN],
    /// Offset of the shim from the IPv4 header.
    shim: usize,
    dst_port: u16,
    dscp: u8,
    proto: u8,
}

impl<'a> CommonPacket<'a> {
    #[inline(always)]
    fn new(inner: InnerPacket<'a>, profile: &Profile) -> Option<Self> {
        let packet = match inner.first {
            FirstHeader::Ethernet if try_u16(inner.packet, field::ETHERTYPE) == Some(IPV4) => {
                inner.packet.get(field::IP..)?
            }
            FirstHeader::Ipv4 => inner.packet,
            _ => return None,
        };
        let head = packet.first_chunk::<MIN_LEN>().filter(|_| inner.find_int)?;
        let total = usize::from(u16_at(head, field::TOTAL_LEN));
        let proto = head[field::PROTO];
        let l4_len = match proto {
            UDP => 8,
            TCP if profile.tcp_shim == TcpShim::AfterFixed => 20,
            _ => return None,
        };
        let is_common = head[field::VERSION_IHL] == 0x45
            && u16_at(head, field::FRAGMENT) & 0x1fff == 0
            && profile.probe_marker.is_none()
            && total >= MIN_LEN;
        let bytes = packet.get(..total).unwrap_or(packet);
        let shim = field::L4 + l4_len;
        let dst_port = u16_at(head, field::DST_PORT);
        let dscp = head[field::TOS] >> 2;
        let is_plain_port = proto == TCP || is_plain(dst_port, profile);
        let has_int_header = bytes.len() >= shim + shim::LEN + header::LEN_1;
        (is_common && is_plain_port && has_int_header).then_some(Self {
            bytes,
            head,
            shim,
            dst_port,
            dscp,
            proto,
        })
    }

    #[inline(always)]
    fn flow(&self, dst_port: u16) -> FlowKey {
        let [src, dst] = [u32_at(self.head, field::SRC), u32_at(self.head, field::DST)];
        FlowKey::v4_words(
            src,
            dst,
            Some((u16_at(self.head, field::SRC_PORT), dst_port)),
            self.proto,
        )
    }

    /// Returns whether this is INT 1.0 marked by its DSCP, given that the shim's first byte is 1.
    #[inline(always)]
    fn is_dscp_10(&self, profile: &Profile) -> bool {
        let header = &self.bytes[self.shim + shim::LEN..];
        let version = header[0] >> 4;
        let is_10 = version == 1 || version == 0 && header::is_10_under_version_0(header);
        is_10 && profile.marks(self.dscp)
    }

    /// Returns the extent of INT 2.x, or `None` if there is none in the common form.
    #[inline(always)]
    fn int_2(&self, profile: &Profile) -> Option<Int2Extent> {
        let bytes = self.bytes;
        let shim = self.shim;
        let header = shim + shim::LEN;
        if bytes[shim] >> 4 != 1 || bytes[header] >> 4 != 2 {
            return None;
        }
        let end = header + usize::from(bytes[shim + 1]) * 4;
        let by_port = self.proto == UDP && self.dst_port == profile.int_udp_port && self.dst_port != 0;
        match bytes[shim] >> 2 & 3 {
            1 if by_port => Some(u16_at(bytes, shim + 2)).filter(|port| is_plain(*port, profile)),
            0 if profile.marks(self.dscp) => Some(self.dst_port),
            _ => None,
        }
        .map(|dst_port| Int2Extent {
            header,
            end,
            dst_port,
        })
    }

    /// Parses INT into `out`. Returns the packet's original destination port, and the offset behind INT from the IPv4 header.
    #[inline(always)]
    fn int(
        &self,
        out: &mut Option<Int<'a>>,
        profile: &Profile,
        layouts: &mut Layouts,
    ) -> Option<(u16, usize)> {
        let carrier = header::Carrier {
            profile,
            mode: Mode::Md,
            sf_records: 0,
        };
        if self.bytes[self.shim] == 0x01 {
            if !self.is_dscp_10(profile) {
                return None;
            }
            let end = self.shim + usize::from(self.bytes[self.shim + 2]) * 4;
            let bytes = self.bytes.get(self.shim + shim::LEN..end)?;
            return header::read_10(out, bytes, carrier, layouts)
                .ok()
                .map(|()| (self.dst_port, end));
        }
        let Int2Extent {
            header,
            end,
            dst_port,
        } = self.int_2(profile)?;
        let bytes = self.bytes.get(header..end)?;
        header::read_2(out, bytes, carrier, layouts)
            .ok()
            .map(|()| (dst_port, end))
    }
}

/// Returns whether the port is neither a tunnel's nor a telemetry port.
#[inline(always)]
pub(crate) fn is_plain(dst_port: u16, profile: &Profile) -> bool {
    !matches!(
        dst_port,
        vxlan::PORT | vxlan::GPE_PORT | vxlan::LINUX_PORT | geneve::PORT | GTP_PORT
    ) && !profile.is_vxlan_port(dst_port)
        && !profile.telemetry_ports.contains(dst_port)
}
