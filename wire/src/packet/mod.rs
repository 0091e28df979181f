//! The packet walk: a single pass from a packet's first byte to its innermost flow, tunnel, INT and IOAM, without
//! allocation.
//!
//! A truncated packet, as in reports, is parsed as far as its bytes go. Only truncated or inconsistent INT is refused.
//! Comments here and below mention *rulings*: decisions where the specifications leave a choice, listed in
//! `docs/reference/wire-formats.md`, section 9.

mod int;
mod tunnel;

use crate::bytes::{try_u16, u16_at, u24_at};
use crate::checksum;
use crate::flow::FlowKey;
use crate::int::layout::Layouts;
use crate::int::sf;
use crate::int::shim::Shim2;
use crate::ioam::{self, Ioam, OptionList};
use crate::ipv6::{DESTINATION_OPTIONS, Extension, Extensions, HOP_BY_HOP};
use crate::profile::Profile;
use crate::refusal::Refusal;
use tunnel::{ERSPAN, ERSPAN_3};

pub use int::{Contents, Encapsulation, Location, Mark, Original, contents, malformed_stack};

pub(crate) use crate::ethernet::ethertype::{
    ETHERNET, IPV4, IPV6, MPLS, MPLS_MULTICAST, PPPOE_SESSION, VLAN, is_tag,
};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const GRE: u8 = 47;
pub(crate) const IP_IN_IP: u8 = 4;
pub(crate) const IPV6_IN_IP: u8 = 41;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;
/// Maximum number of consecutive tags and labels.
const MAX_TAGS: usize = 8;
/// Maximum number of nested tunnels.
const MAX_TUNNELS: u8 = 4;

pub(crate) use crate::geneve::PORT as GENEVE_PORT;
pub(crate) use crate::vxlan::{GPE_PORT, LINUX_PORT, PORT as VXLAN_PORT};
pub(crate) use tunnel::GTP_PORT;

/// The purpose of a walk, which determines how much is parsed and what is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A packet in a report.
    Report,
    /// Only the flow, at the lowest cost; INT is not validated.
    Flow,
    /// A complete data packet.
    Frame,
}

/// An IP header of the packet.
#[derive(Clone, Copy)]
pub(crate) struct Ip {
    pub(crate) at: usize,
    pub(crate) v6: bool,
    pub(crate) dscp: u8,
}

/// The state of a walk; `out` has its results.
pub(crate) struct Walk<'a, 'p> {
    pub(crate) profile: &'p Profile,
    pub(crate) layouts: &'p mut Layouts,
    pub(crate) purpose: Purpose,
    /// Still looking for INT and IOAM.
    pub(crate) find_int: bool,
    /// INT was refused and is not parsed again. IOAM is, and a shim after UDP still tells the original port or protocol.
    pub(crate) int_left_out: bool,
    /// Cause for which an IPv6 option with INT was left out ([`Purpose::Report`]).
    pub(crate) option_refused: Option<Refusal>,
    pub(crate) tunnels: u8,
    /// Offset of the outermost IP header.
    pub(crate) first_ip: Option<usize>,
    /// Offset of the innermost IP header.
    pub(crate) last_ip: usize,
    /// Flow of the innermost packet that carries a tunnel. It is the result if no IP packet can be parsed in the tunnel.
    outer: Option<FlowKey>,
    /// Cause for which the contents of the innermost tunnel were not parsed.
    unread: Option<Refusal>,
    /// Offset of the IPv6 header with the INT option, except in [`Purpose::Frame`].
    int_option_at: Option<usize>,
    /// An IP header's length ends the packet before the bytes do.
    is_shorter: bool,
    /// Offset of the IPv6 header with IOAM options.
    ioam_at: Option<usize>,
    /// The best trace so far has nodes and is in a hop-by-hop header.
    ioam_by_hop: bool,
    /// Bytes after TCP or UDP that no mark announces as INT ([`Purpose::Report`]).
    unmarked: Option<int::Unmarked<'a>>,
    /// Payload of a UDP datagram to a telemetry port, possibly a nested report ([`Purpose::Report`]).
    pub(crate) nested: Option<&'a [u8]>,
    pub(crate) out: Contents<'a>,
}

impl<'a, 'p> Walk<'a, 'p> {
    #[inline]
    pub(crate) fn new(
        profile: &'p Profile,
        layouts: &'p mut Layouts,
        purpose: Purpose,
        find_int: bool,
    ) -> Self {
        Self {
            profile,
            layouts,
            purpose,
            find_int,
            int_left_out: false,
            option_refused: None,
            tunnels: 0,
            first_ip: None,
            last_ip: 0,
            outer: None,
            unread: None,
            int_option_at: None,
            is_shorter: false,
            ioam_at: None,
            ioam_by_hop: false,
            unmarked: None,
            nested: None,
            out: Contents::EMPTY,
        }
    }

    /// Parses an Ethernet frame at `at`.
    #[inline]
    pub(crate) fn ethernet(&mut self, bytes: &'a [u8], at: usize) -> Result<(), Refusal> {
        match try_u16(bytes, at + 12) {
            Some(IPV4) => self.ipv4(bytes, at + 14),
            Some(ethertype) => self.ethertype(bytes, at + 14, ethertype),
            None => Ok(()),
        }
    }

    /// Parses the headers that an EtherType announces, starting at `at`.
    pub(crate) fn ethertype(
        &mut self,
        bytes: &'a [u8],
        mut at: usize,
        mut ethertype: u16,
    ) -> Result<(), Refusal> {
        for left in (0..MAX_TAGS).rev() {
            match ethertype {
                IPV4 => return self.ipv4(bytes, at),
                IPV6 => return self.ipv6(bytes, at),
                ETHERNET => {
                    // Counts as a tunnel, which bounds Ethernet in Ethernet in Ethernet.
                    return if self.enter_link() {
                        self.ethernet(bytes, at)
                    } else {
                        self.leave_unread(Refusal::TunnelDepth)
                    };
                }
                PPPOE_SESSION if self.follows_all() => return self.pppoe(bytes, at),
                tag if is_tag(tag) => {
                    let Some(next) = try_u16(bytes, at + 2) else {
                        return Ok(());
                    };
                    (at, ethertype) = (at + 4, next);
                }
                MPLS | MPLS_MULTICAST => {
                    let Some(label) = bytes.get(at..at + 4) else {
                        return Ok(());
                    };
                    at += 4;
                    let is_bottom = label[2] & 1 != 0;
                    if is_bottom && self.follows_all() {
                        return match left {
                            0 => self.leave_unread(Refusal::TunnelDepth),
                            _ => self.labelled(bytes, at, u24_at(label, 0) >> 4),
                        };
                    }
                    match bytes.get(at) {
                        _ if !is_bottom => {}
                        _ if is_pseudowire(bytes.get(at..).unwrap_or(&[])) => return Ok(()),
                        Some(first) if first >> 4 == 4 => ethertype = IPV4,
                        Some(first) if first >> 4 == 6 => ethertype = IPV6,
                        _ => return Ok(()),
                    }
                }
                _ if self.tunnels > 0 => return self.leave_unread(Refusal::TunnelNotIp),
                _ => return Ok(()),
            }
        }
        self.leave_unread(Refusal::TunnelDepth)
    }

    #[inline]
    pub(crate) fn ipv4(&mut self, bytes: &'a [u8], at: usize) -> Result<(), Refusal> {
        let Some(header) = bytes.get(at..).and_then(|rest| rest.first_chunk::<20>()) else {
            return Ok(());
        };
        let header_len = usize::from(header[0] & 0x0f) * 4;
        if header[0] >> 4 != 4 || header_len < 20 {
            return self.bad_ip();
        }
        let total = usize::from(u16_at(header, 2));
        let bytes = self.trim(bytes, at, header_len, total)?;
        self.record_ip(at, header[8]);
        let proto = header[9];
        let ip = Ip {
            at,
            v6: false,
            dscp: header[1] >> 2,
        };
        if u16_at(header, 6) & 0x1fff != 0 {
            self.out.flow = Some(flow(bytes, ip, None, proto));
            return Ok(());
        }
        self.transport(bytes, at + header_len, ip, proto)
    }

    /// Records the IP header at `at`, which has this hop limit.
    #[inline]
    fn record_ip(&mut self, at: usize, hop_limit: u8) {
        self.last_ip = at;
        if self.first_ip.is_none() {
            self.first_ip = Some(at);
            self.out.hop_limit = Some(hop_limit);
        }
    }

    pub(crate) fn ipv6(&mut self, bytes: &'a [u8], at: usize) -> Result<(), Refusal> {
        let Some(header) = bytes.get(at..).and_then(|rest| rest.first_chunk::<40>()) else {
            return Ok(());
        };
        if header[0] >> 4 != 6 {
            return self.bad_ip();
        }
        let payload = usize::from(u16_at(header, 4));
        self.record_ip(at, header[7]);
        let bytes = match payload {
            0 => bytes,
            _ => self.trim(bytes, at, 40, 40 + payload)?,
        };
        let ip = Ip {
            at,
            v6: true,
            dscp: (header[0] << 4 | header[1] >> 4) >> 2,
        };
        self.extensions(bytes, at + 40, ip, header[6])
    }

    /// Parses IPv6 extension headers starting at `at`.
    fn extensions(&mut self, bytes: &'a [u8], at: usize, ip: Ip, first: u8) -> Result<(), Refusal> {
        let extensions = Extensions::new(bytes, at, first);
        let mut headers = extensions;
        for header in headers.by_ref() {
            let may_find = self.find_int || self.int_left_out;
            if !matches!(header.kind, HOP_BY_HOP | DESTINATION_OPTIONS) || !may_find {
                continue;
            }
            // Nodes on the path process this header only directly behind the IPv6 header (RFC 8200, 4.1). Elsewhere, a host
            // wrote what is in it, as in destination options.
            let is_by_hop = header.kind == HOP_BY_HOP && header.at == extensions.at;
            if is_by_hop && self.find_int && self.option_refused.is_none() {
                match self.int_options(bytes, ip, header.at, header.len) {
                    Err(refusal) if self.purpose == Purpose::Frame => return Err(refusal),
                    // Marked INT may still follow after UDP or TCP.
                    Err(refusal) => {
                        self.find_int = true;
                        self.option_refused = Some(self.cause(refusal));
                    }
                    Ok(()) if self.purpose != Purpose::Frame && !self.find_int => {
                        self.int_option_at = Some(ip.at);
                    }
                    Ok(()) => {}
                }
            }
            self.options(bytes, ip, header, is_by_hop, extensions)?;
        }
        if headers.is_at_transport() {
            return self.transport(bytes, headers.at, ip, headers.next);
        }
        // Cut inside an extension header, the packet does not tell its protocol, without which there is no flow.
        if !headers.is_at_extension() {
            self.out.flow = Some(flow(bytes, ip, None, headers.next));
        }
        Ok(())
    }

    /// Looks for INT in the options of a hop-by-hop header at `at` with `len` bytes, possibly truncated.
    fn int_options(&mut self, bytes: &'a [u8], ip: Ip, at: usize, len: usize) -> Result<(), Refusal> {
        let mut option = at + 2;
        let end = at + len;
        while let Some(kind) = bytes.get(option).filter(|_| option < end) {
            let is_wanted = *kind == sf::OPTION && self.find_int;
            if *kind == sf::OPTION && !is_wanted && self.is_second_int(bytes.get(option + 2)) {
                self.out.int = None;
                self.out.location = None;
                return Err(Refusal::BadOption);
            }
            let next = match (kind, bytes.get(option + 1).filter(|_| option + 1 < end)) {
                (0, _) => option + 1,
                (_, Some(len)) => option + 2 + usize::from(*len),
                (_, None) if is_wanted && option + 1 < end => return Err(Refusal::IntTruncated),
                (_, None) if is_wanted => return Err(Refusal::BadOption),
                (_, None) => break,
            };
            if is_wanted {
                if next > end {
                    return Err(Refusal::BadOption);
                }
                // Handled even if only the flow is needed, so that INT after it is not looked for.
                self.int_option(bytes, ip, at, option, next)?;
            }
            option = next;
        }
        Ok(())
    }

    /// Returns whether another option carries INT too, unless for the destination: a host may have written either. `shim`
    /// is the first byte of its shim.
    fn is_second_int(&self, shim: Option<&u8>) -> bool {
        self.purpose != Purpose::Frame && shim.is_none_or(|first| first >> 4 != Shim2::DESTINATION)
    }

    /// Parses IOAM in a hop-by-hop or destination options header, one of the packet's `extensions`.
    fn options(
        &mut self,
        bytes: &'a [u8],
        ip: Ip,
        header: Extension,
        is_by_hop: bool,
        extensions: Extensions<'a>,
    ) -> Result<(), Refusal> {
        let end = header.at + header.len;
        let is_cut = end > bytes.len();
        let mut rest = bytes.get(header.at + 2..end.min(bytes.len())).unwrap_or(&[]);
        while let [kind, tail @ ..] = rest {
            if *kind == 0 {
                rest = tail;
                continue;
            }
            let is_ioam = matches!(*kind, ioam::OPTION_MUTABLE | ioam::OPTION_IMMUTABLE);
            // With IPv6 in IPv6, only the outermost header with IOAM counts.
            let is_outermost = self.ioam_at.is_none_or(|ioam_at| ioam_at == ip.at);
            if is_cut && is_ioam && is_outermost {
                // The missing rest of the header may have another trace.
                self.out.ioam_cut = true;
                break;
            }
            let [len, tail @ ..] = tail else { break };
            let Some((data, tail)) = tail.split_at_checked(usize::from(*len)) else {
                break;
            };
            if !is_cut && is_ioam && is_outermost && self.purpose != Purpose::Flow {
                match Ioam::parse(data) {
                    Ok(Some(option)) => {
                        self.ioam_at = Some(ip.at);
                        self.out.is_traced_by_hop |= is_by_hop && option.rank().0;
                        let headers = Extensions::new(&bytes[extensions.at..], 0, extensions.next);
                        self.add_ioam(option, is_by_hop, OptionList::new(headers));
                    }
                    Ok(None) => {}
                    // A host may have written it, so it must not hide INT or another option.
                    Err(_) if self.purpose == Purpose::Report => self.out.ioam_left_out = true,
                    Err(refusal) => return Err(refusal),
                }
            }
            rest = tail;
        }
        Ok(())
    }

    /// Adds an IOAM option. Among traces with nodes, one in a hop-by-hop header gives the path, because transit nodes do
    /// not process destination options. Otherwise the one with the most nodes does; of equals, the first.
    fn add_ioam(&mut self, option: Ioam<'a>, is_by_hop: bool, options: OptionList<'a>) {
        let has_nodes = option.hop_count() > 0;
        let is_path = is_by_hop && has_nodes;
        if let Some(best) = self.out.ioam {
            self.out.ioam_options = Some(options);
            if is_path == self.ioam_by_hop {
                self.out.several_traces |= has_nodes && best.hop_count() > 0;
            } else if is_path {
                self.out.several_traces = false;
            }
            if (is_path, option.rank()) <= (self.ioam_by_hop, best.rank()) {
                return;
            }
        }
        self.out.ioam = Some(option);
        self.ioam_by_hop = is_path;
    }

    /// Cuts the bytes at the end of the packet; the rest is padding.
    #[inline]
    fn trim(&mut self, bytes: &'a [u8], at: usize, header: usize, total: usize) -> Result<&'a [u8], Refusal> {
        if total < header {
            // Segmentation offload leaves 0 here, and a packet in a report may have a length from inside the switch
            // pipeline.
            return if self.purpose == Purpose::Frame && total != 0 {
                Err(Refusal::BadIpHeader)
            } else {
                Ok(bytes)
            };
        }
        match bytes.get(..at + total) {
            Some(packet) => {
                self.is_shorter |= packet.len() < bytes.len();
                Ok(packet)
            }
            None => Ok(bytes),
        }
    }

    /// Adjusts a refusal: INT cut off by an IP header's length was not truncated.
    pub(crate) fn cause(&self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::IntTruncated if self.is_shorter => Refusal::BadIpHeader,
            refusal => refusal,
        }
    }

    fn bad_ip(&mut self) -> Result<(), Refusal> {
        if self.purpose == Purpose::Frame {
            Err(Refusal::BadIpHeader)
        } else if self.tunnels > 0 {
            self.leave_unread(Refusal::TunnelNotIp)
        } else {
            Ok(())
        }
    }

    /// Parses the headers after an IP header, starting at `at`.
    #[inline]
    pub(crate) fn transport(&mut self, bytes: &'a [u8], at: usize, ip: Ip, proto: u8) -> Result<(), Refusal> {
        match proto {
            UDP => self.udp(bytes, at, ip),
            TCP => self.tcp(bytes, at, ip),
            GRE => self.gre(bytes, at, ip),
            IP_IN_IP => {
                self.enter(flow(bytes, ip, None, proto));
                self.inside(bytes, at, IPV4)
            }
            IPV6_IN_IP => {
                self.enter(flow(bytes, ip, None, proto));
                self.inside(bytes, at, IPV6)
            }
            _ => {
                // SCTP, DCCP and UDP-Lite have their ports at the same offsets as UDP.
                let ports = matches!(proto, DCCP | SCTP | UDP_LITE)
                    .then(|| ports(bytes, at))
                    .flatten();
                self.out.flow = Some(flow(bytes, ip, ports, proto));
                Ok(())
            }
        }
    }

    /// Enters a tunnel that the packet `outer` carries. The outermost one is reported as the tunnel (ruling w) once an IP
    /// packet is parsed inside.
    pub(crate) fn enter(&mut self, outer: FlowKey) {
        self.tunnels += 1;
        self.out.tunnel = self.out.tunnel.or(self.outer);
        self.outer = Some(outer);
        self.out.flow = None;
        self.unread = None;
    }

    /// Completes the walk. The innermost IP packet that was parsed gives the flow, even if it carries a tunnel with other
    /// contents (ruling w).
    pub(crate) fn finish(&mut self) {
        if self.out.flow.is_some() {
            self.out.tunnel = self.out.tunnel.or(self.outer);
            return;
        }
        self.out.flow = self.outer;
        let is_cut = (self.tunnels > 0).then_some(Refusal::TunnelTruncated);
        self.out.tunnel_refused = self.unread.or(is_cut);
    }

    /// Parses the contents of a tunnel, unless tunnels are nested too deep.
    pub(crate) fn inside(&mut self, bytes: &'a [u8], at: usize, ethertype: u16) -> Result<(), Refusal> {
        match ethertype {
            _ if self.tunnels > MAX_TUNNELS => self.leave_unread(Refusal::TunnelDepth),
            // The tunnel that carries the frame has been counted.
            ETHERNET if self.follows_all() => self.ethernet(bytes, at),
            _ => self.ethertype(bytes, at, ethertype),
        }
    }

    /// Parses VXLAN, starting at its header.
    pub(crate) fn vxlan(&mut self, bytes: &'a [u8], at: usize, outer: FlowKey) -> Result<(), Refusal> {
        self.enter(outer);
        self.inside(bytes, at + 8, ETHERNET)
    }

    /// Parses VXLAN-GPE, starting at its header, and INT in it.
    pub(crate) fn gpe(&mut self, bytes: &'a [u8], at: usize, ip: Ip, outer: FlowKey) -> Result<(), Refusal> {
        self.enter(outer);
        let Some(header) = bytes.get(at..at + 8) else {
            return Ok(());
        };
        // Without the P bit, this is plain VXLAN.
        let mut next = if header[0] & 0x04 != 0 { header[3] } else { 3 };
        let mut at = at + 8;
        if self.has_int_option(ip) {
            self.read_tunnel_int(|walk| walk.gpe_shims(bytes, ip, at, next));
        }
        match self.gpe_shims(bytes, ip, at, next) {
            Ok(Some(after)) => (at, next) = after,
            Ok(None) => return Ok(()),
            // INT that is not looked for is not validated.
            Err(refusal) if !self.find_int => return self.leave_unread(refusal),
            Err(refusal) => return Err(refusal),
        }
        match next {
            1 => self.inside(bytes, at, IPV4),
            2 => self.inside(bytes, at, IPV6),
            3 => self.inside(bytes, at, ETHERNET),
            _ => self.leave_unread(Refusal::TunnelNotIp),
        }
    }

    /// Parses all INT after a VXLAN-GPE header. Returns its end and the next protocol.
    fn gpe_shims(
        &mut self,
        bytes: &'a [u8],
        ip: Ip,
        mut at: usize,
        mut next: u8,
    ) -> Result<Option<(usize, u8)>, Refusal> {
        use crate::vxlan::next::{INT_05, INT_10, INT_20, INT_21};
        for _ in 0..MAX_TAGS {
            if !matches!(next, INT_05 | INT_10 | INT_20 | INT_21) {
                break;
            }
            match self.gpe_shim(bytes, ip, at, next)? {
                Some(after) => (at, next) = after,
                None => return Ok(None),
            }
        }
        Ok(Some((at, next)))
    }

    /// Parses Geneve, starting at its header, and INT in its options.
    pub(crate) fn geneve(
        &mut self,
        bytes: &'a [u8],
        at: usize,
        ip: Ip,
        outer: FlowKey,
    ) -> Result<(), Refusal> {
        self.enter(outer);
        let Some(header) = bytes.get(at..at + 8) else {
            return Ok(());
        };
        let options = usize::from(header[0] & 0x3f) * 4;
        let end = at + 8 + options;
        if self.has_int_option(ip) {
            self.read_tunnel_int(|walk| walk.geneve_options(bytes, ip, at, end));
        }
        self.geneve_options(bytes, ip, at, end)?;
        self.inside(bytes, end, u16_at(header, 2))
    }

    /// Looks for INT in the options of the Geneve header at `at`, which end at `end`.
    fn geneve_options(&mut self, bytes: &'a [u8], ip: Ip, at: usize, end: usize) -> Result<(), Refusal> {
        let mut option = at + 8;
        while option < end && self.find_int {
            let Some(head) = bytes.get(option..option + 4) else {
                break;
            };
            let next = option + 4 + usize::from(head[3] & 0x1f) * 4;
            if next > end {
                if self.purpose != Purpose::Flow {
                    return Err(Refusal::BadGeneve);
                }
                // As in a report, whose INT is then left out.
                self.find_int = false;
                self.int_left_out = true;
                break;
            }
            self.geneve_option(bytes, ip, at - 8, option, next)?;
            option = next;
        }
        Ok(())
    }

    /// Parses GRE, starting at its header, and INT if the protocol type announces it.
    fn gre(&mut self, bytes: &'a [u8], at: usize, ip: Ip) -> Result<(), Refusal> {
        const ROUTING: u8 = 0x40;
        const SEQUENCE: u8 = 0x10;
        self.enter(flow(bytes, ip, None, GRE));
        let Some(header) = bytes.get(at..at + 4) else {
            return Ok(());
        };
        let flags = header[0];
        let version = header[1] & 7;
        let protocol = u16_at(header, 2);
        let is_int = protocol == self.profile.gre_protocol;
        if version != 0 || flags & ROUTING != 0 {
            return if is_int && self.find_int && self.purpose != Purpose::Flow {
                Err(Refusal::BadGre)
            } else {
                self.leave_unread(Refusal::BadGre)
            };
        }
        // Checksum, key and sequence number are present if their bits are set, 4 bytes each.
        let body = at + 4 + (flags & 0xb0).count_ones() as usize * 4;
        if !is_int {
            return match protocol {
                ERSPAN | ERSPAN_3 if self.follows_all() && self.tunnels <= MAX_TUNNELS => {
                    self.erspan(bytes, body, protocol, flags & SEQUENCE != 0)
                }
                _ => self.inside(bytes, body, protocol),
            };
        }
        if self.has_int_option(ip) {
            self.read_tunnel_int(|walk| walk.gre_shim(bytes, ip, at, body));
        }
        match self.gre_shim(bytes, ip, at, body) {
            Ok(Some((end, ethertype))) => self.inside(bytes, end, ethertype),
            Ok(None) => Ok(()),
            Err(refusal) if !self.find_int => self.leave_unread(refusal),
            Err(refusal) => Err(refusal),
        }
    }
}

/// Returns whether the bytes after MPLS labels are an Ethernet frame (a pseudowire without control word) whose first octet
/// looks like an IP version. That is the case if the EtherType of IP, possibly after a tag, precedes a matching IP version.
/// But the bytes are IP if they start with an IPv4 header with a correct checksum, or with an IPv6 header of the packet's
/// length. Truncated bytes that look like IPv6 are a frame only if the inner IPv4 header has a correct checksum.
fn is_pseudowire(bytes: &[u8]) -> bool {
    let tag = if try_u16(bytes, 12).is_some_and(is_tag) {
        4
    } else {
        0
    };
    let inner = bytes.get(14 + tag..).unwrap_or(&[]);
    let is_v4 = match (try_u16(bytes, 12 + tag), inner.first().map(|first| first >> 4)) {
        (Some(IPV4), Some(4)) => true,
        (Some(IPV6), Some(6)) => false,
        _ => return false,
    };
    if bytes[0] >> 4 == 4 {
        return !checksum::holds(bytes);
    }
    !has_length_of_v6(bytes) && (!is_v4 || inner.len() < 20 || checksum::holds(inner))
}

/// Returns whether `bytes` have the length of their IPv6 header, with padding to a whole word.
fn has_length_of_v6(bytes: &[u8]) -> bool {
    let total = 40 + usize::from(try_u16(bytes, 4).unwrap_or(0));
    bytes.first().is_some_and(|first| first >> 4 == 6) && (total..total + 4).contains(&bytes.len())
}

/// Returns the 5-tuple of a packet with a complete IP header.
#[inline]
pub(crate) fn flow(bytes: &[u8], ip: Ip, ports: Option<(u16, u16)>, proto: u8) -> FlowKey {
    use crate::bytes::array_at;
    if ip.v6 {
        FlowKey::v6(
            array_at(bytes, ip.at + 8),
            array_at(bytes, ip.at + 24),
            ports,
            proto,
        )
    } else {
        FlowKey::v4(
            array_at(bytes, ip.at + 12),
            array_at(bytes, ip.at + 16),
            ports,
            proto,
        )
    }
}

/// Returns the two ports at `at`, or `None` if they are cut off.
#[inline]
pub(crate) fn ports(bytes: &[u8], at: usize) -> Option<(u16, u16)> {
    Some((try_u16(bytes, at)?, try_u16(bytes, at + 2)?))
}
