//! Finds INT in a packet during the [walk](super): recognizes the mark, parses shim, header and stack, and recovers the
//! packet's fields from before INT was inserted.

use core::mem;

use super::tunnel::is_gtp_data;
use super::{Ip, Purpose, TCP, UDP, Walk};
use crate::bytes::{try_u64, u16_at};
use crate::flow::FlowKey;
use crate::geneve::{CLASS_INT_1, CLASS_INT_2};
use crate::int::header::{self, Carrier, Tail};
use crate::int::layout::Layouts;
use crate::int::shim::{self, Detected, Kind, Next, Shim1, Shim2, ShimContext};
use crate::int::{Int, Mode, Version};
use crate::ioam::{self, Ioam};
use crate::packet as walk;
use crate::profile::{Dialect, Profile, TcpShim};
use crate::refusal::Refusal;

/// The encapsulation that carries INT.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Encapsulation {
    /// A shim inside or after the TCP header.
    Tcp,
    /// A shim after the UDP header.
    Udp,
    /// A shim after the VXLAN-GPE header.
    Gpe,
    /// A Geneve option, without a shim.
    Geneve,
    /// A shim after the GRE header, over IPv4 or IPv6.
    Gre,
    /// An option of the IPv6 hop-by-hop header.
    HopByHop,
}

/// The mark by which INT was recognized.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mark {
    /// The UDP destination port.
    Port,
    /// The DSCP of the IP header.
    Dscp,
    /// The 8-byte probe marker after the L4 header.
    Probe,
    /// The tunnel's next-protocol code, protocol type or option class.
    Tunnel,
    /// The type of an IPv6 option.
    Option,
}

/// The packet's original fields, as far as shim or tail store them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Original {
    /// Destination port of the L4 header.
    pub port: Option<u16>,
    /// IP protocol. With NPT 2 the UDP header was inserted too.
    pub proto: Option<u8>,
    /// DSCP, six bits (in 0.5 the tail's whole byte).
    pub dscp: Option<u8>,
    /// G bit: the source inserted the tunnel header.
    pub tunnel_inserted: bool,
}

/// The location of INT in a packet, as byte offsets from the packet's start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// The header that carries INT.
    pub encapsulation: Encapsulation,
    /// The mark by which INT was recognised.
    pub mark: Mark,
    /// Offset of the IP header of that packet.
    pub ip: usize,
    /// Offset of the TCP, UDP or GRE header; for [`Encapsulation::HopByHop`], of the hop-by-hop header.
    pub l4: usize,
    /// Offset of the first byte inserted by the source: probe marker, shim, or option header (Geneve, IPv6).
    pub start: usize,
    /// Offset of the INT metadata header.
    pub header: usize,
    /// Offset of the first record on the stack.
    pub stack: usize,
    /// Offset after INT, including the tail.
    pub end: usize,
    /// Original fields of the packet.
    pub original: Original,
}

/// The parsed contents of a packet: flow, tunnel, INT and IOAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contents<'a> {
    /// Innermost flow, as far as the bytes contain it, with its original port and protocol.
    pub flow: Option<FlowKey>,
    /// Flow of the outermost tunnel.
    pub tunnel: Option<FlowKey>,
    /// Cause for which the contents of a tunnel could not be parsed, so that the flow is that of the packet around it.
    pub tunnel_refused: Option<Refusal>,
    /// TTL or hop limit of the outermost IP header.
    pub hop_limit: Option<u8>,
    /// INT of the packet, if it has any.
    pub int: Option<Int<'a>>,
    /// Location of INT in the packet.
    pub location: Option<Location>,
    /// IOAM option of the packet; of several, the one that gives the path.
    pub ioam: Option<Ioam<'a>>,
    /// All IOAM options, if there are several.
    pub ioam_options: Option<ioam::OptionList<'a>>,
    /// Another trace with nodes is in a header of the same kind, so a host may have written either.
    pub several_traces: bool,
    /// In a report's packet, an inconsistent IOAM option was left out.
    pub ioam_left_out: bool,
    /// The packet is truncated inside an options header with IOAM.
    pub ioam_cut: bool,
    /// A hop-by-hop header has a trace with node IDs.
    pub is_traced_by_hop: bool,
    /// INT for the destination was skipped.
    pub destination: bool,
}

impl Contents<'_> {
    /// Returns whether IOAM tells that data of nodes on the path is missing.
    pub fn is_incomplete(&self) -> bool {
        matches!(self.ioam, Some(Ioam::Trace(trace)) if trace.is_incomplete())
    }

    /// Returns whether the IOAM trace is the path (ruling g): there is no INT, or INT without a record, which names no node.
    pub fn is_traced(&self) -> bool {
        match (self.int, self.ioam) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(int), Some(ioam)) => int.sf.is_none() && int.stack.is_empty() && ioam.hop_count() > 0,
        }
    }

    pub(crate) const EMPTY: Self = Self {
        flow: None,
        tunnel: None,
        tunnel_refused: None,
        hop_limit: None,
        int: None,
        location: None,
        ioam: None,
        ioam_options: None,
        several_traces: false,
        ioam_left_out: false,
        ioam_cut: false,
        is_traced_by_hop: false,
        destination: false,
    };
}

/// Parses a complete data packet, starting at its Ethernet header.
///
/// # Errors
/// [`Refusal`] for truncated or inconsistent INT, and for IP or UDP headers that contradict the packet's length. A packet
/// without INT is not an error.
pub fn contents<'a>(frame: &'a [u8], profile: &Profile) -> Result<Contents<'a>, Refusal> {
    let mut layouts = Layouts::new();
    let mut walk = Walk::new(profile, &mut layouts, Purpose::Frame, true);
    walk.ethernet(frame, 0).map_err(|refusal| walk.cause(refusal))?;
    walk.out.tunnel = walk.out.tunnel.or(walk.outer);
    Ok(walk.out)
}

/// Returns the location of INT in a frame whose stack is malformed although its header is valid: records are truncated, or
/// there are more than SF-INT allows. Returns `None` for any other frame.
pub fn malformed_stack(frame: &[u8], profile: &Profile) -> Option<Location> {
    let mut layouts = Layouts::new();
    let mut walk = Walk::new(profile, &mut layouts, Purpose::Frame, true);
    match walk.ethernet(frame, 0) {
        Err(Refusal::BadSfStack | Refusal::PartialHop) => walk.out.location,
        _ => None,
    }
}

/// INT 2.x as announced by its encapsulation.
#[derive(Clone, Copy)]
enum Int2Kind {
    Plain(Mode),
    Sf,
}

/// A TCP or UDP header and its position.
#[derive(Clone, Copy)]
struct L4 {
    ip: Ip,
    offset: usize,
    encapsulation: Encapsulation,
}

/// Bytes after TCP or UDP that no mark announces as INT.
#[derive(Clone, Copy)]
pub(crate) struct Unmarked<'a> {
    bytes: &'a [u8],
    /// Position of the shim, in case they are INT.
    position: ShimPosition,
}

/// INT found in an IPv6 option, kept while INT behind that header is parsed.
#[derive(Clone, Copy)]
struct OptionInt<'a> {
    int: Option<Int<'a>>,
    location: Option<Location>,
    destination: bool,
}

/// The position of a shim after L4, and how it was recognized.
#[derive(Clone, Copy)]
struct ShimPosition {
    encapsulation: Encapsulation,
    mark: Mark,
    ip: Ip,
    l4: usize,
    start: usize,
    shim: usize,
}

impl<'a> Walk<'a, '_> {
    /// Parses UDP, starting at its header.
    #[inline]
    pub(crate) fn udp(&mut self, bytes: &'a [u8], offset: usize, ip: Ip) -> Result<(), Refusal> {
        let ports = walk::ports(bytes, offset);
        let mut body = offset + 8;
        let Some((src_port, mut dst_port)) = ports.filter(|_| bytes.len() >= body) else {
            self.out.flow = Some(walk::flow(bytes, ip, ports, UDP));
            return Ok(());
        };
        if self.purpose == Purpose::Frame {
            check_udp_length(bytes, offset, ip)?;
        }
        let mut proto = UDP;
        let l4 = L4 {
            ip,
            offset,
            encapsulation: Encapsulation::Udp,
        };
        let unmarked = self.unmarked(bytes, l4, body);
        let position = self.find_mark(bytes, l4, body, dst_port);
        let shim = match position {
            Some(position) if self.find_int => Some((position.mark, self.l4_shim(bytes, position)?)),
            Some(position) if self.int_left_out && position.mark == Mark::Port => self
                .skipped_shim(bytes, position)
                .map(|shim| (position.mark, shim)),
            Some(position) => self
                .shim_after_option(bytes, position)
                .map(|shim| (position.mark, shim)),
            None => None,
        };
        if let Some((mark, (end, original))) = shim {
            // NPT 2 stores a protocol and no port; the protocol may again be UDP.
            let original_proto = original
                .proto
                .filter(|proto| *proto != UDP || original.port.is_none());
            if let (Mark::Port, Some(original)) = (mark, original_proto) {
                // The source inserted this UDP header; the original L4 header follows INT.
                self.find_int = false;
                self.int_left_out = false;
                return self.transport(bytes, end, ip, original);
            }
            (dst_port, body) = (original.port.unwrap_or(dst_port), end);
            proto = original.proto.unwrap_or(proto);
        }
        let flow = walk::flow(bytes, ip, Some((src_port, dst_port)), proto);
        match dst_port {
            port if self.is_not_tunnel(port, bytes.get(body..).unwrap_or(&[])) => self.out.flow = Some(flow),
            walk::VXLAN_PORT => return self.vxlan(bytes, body, flow),
            // The switch recognizes VXLAN only at its own port, in P4 and in Rust.
            walk::LINUX_PORT if self.purpose != Purpose::Frame => return self.vxlan(bytes, body, flow),
            walk::GPE_PORT => return self.gpe(bytes, body, ip, flow),
            walk::GENEVE_PORT => return self.geneve(bytes, body, ip, flow),
            port if self.follows_all() && self.profile.is_vxlan_port(port) => {
                return self.vxlan(bytes, body, flow);
            }
            walk::GTP_PORT if self.is_gtp(bytes, body) => {
                self.enter(flow);
                return self.gtp(bytes, body);
            }
            _ => self.out.flow = Some(flow),
        }
        self.unmarked = unmarked;
        let is_port = proto == UDP && self.profile.telemetry_ports.contains(dst_port);
        if is_port && self.purpose == Purpose::Report {
            self.nested = bytes.get(body..);
        }
        Ok(())
    }

    /// Parses TCP, starting at its header.
    pub(crate) fn tcp(&mut self, bytes: &'a [u8], offset: usize, ip: Ip) -> Result<(), Refusal> {
        const FIXED: usize = 20;
        let ports = walk::ports(bytes, offset);
        self.out.flow = Some(walk::flow(bytes, ip, ports, TCP));
        let Some((src_port, dst_port)) = ports.filter(|_| bytes.len() >= offset + FIXED) else {
            return Ok(());
        };
        let body = match self.profile.tcp_shim {
            TcpShim::AfterFixed => offset + FIXED,
            TcpShim::AfterOptions => offset + usize::from(bytes[offset + 12] >> 4).max(5) * 4,
        };
        let l4 = L4 {
            ip,
            offset,
            encapsulation: Encapsulation::Tcp,
        };
        let original = match self.find_mark(bytes, l4, body, dst_port) {
            Some(position) if self.find_int => self.l4_shim(bytes, position)?.1,
            Some(position) => match self.shim_after_option(bytes, position) {
                Some((_, original)) => original,
                None => return Ok(()),
            },
            None => {
                self.unmarked = self.unmarked(bytes, l4, body);
                return Ok(());
            }
        };
        let dst_port = original.port.unwrap_or(dst_port);
        self.out.flow = Some(walk::flow(
            bytes,
            ip,
            Some((src_port, dst_port)),
            original.proto.unwrap_or(TCP),
        ));
        Ok(())
    }

    /// Returns the position of a marked shim at `body`, if there is one. A packet that ends at `body` was truncated before
    /// INT.
    #[inline]
    fn find_mark(&self, bytes: &[u8], l4: L4, body: usize, dst_port: u16) -> Option<ShimPosition> {
        if bytes.len() <= body {
            return None;
        }
        let L4 {
            ip,
            offset,
            encapsulation,
        } = l4;
        let is_udp = encapsulation == Encapsulation::Udp;
        let probe = self.profile.probe_marker;
        let by_port = is_udp && dst_port == self.profile.int_udp_port && dst_port != 0;
        let mark = if probe.is_some() && try_u64(bytes, body) == probe {
            Mark::Probe
        } else if by_port && self.is_shim_of_port(bytes[body]) {
            Mark::Port
        } else if self.profile.marks(ip.dscp) && !(is_udp && self.is_tunnel(dst_port, &bytes[body..])) {
            // A tunnel may copy the inner DSCP to its outer header. The tunnel's header must not be taken for a shim.
            Mark::Dscp
        } else if by_port {
            Mark::Port
        } else {
            return None;
        };
        Some(ShimPosition {
            encapsulation,
            mark,
            ip,
            l4: offset,
            start: body,
            shim: if mark == Mark::Probe { body + 8 } else { body },
        })
    }

    /// Returns whether the bytes after UDP are the header of the tunnel that the port announces. In reports, this includes
    /// headers whose first byte no INT shim has.
    #[inline]
    fn is_tunnel(&self, dst_port: u16, body: &[u8]) -> bool {
        is_tunnel(dst_port, body)
            || self.follows_all() && self.is_other_tunnel(dst_port, body)
            || self.follows_all()
                && matches!(dst_port, walk::GPE_PORT | walk::GENEVE_PORT | walk::LINUX_PORT)
                && matches!(body, [0 | 4..=15, ..])
                && !is_not_tunnel(dst_port, body)
    }

    /// Returns whether the bytes after UDP are GTP-U, or VXLAN at a port of the profile.
    #[inline]
    fn is_other_tunnel(&self, dst_port: u16, body: &[u8]) -> bool {
        match body.first() {
            Some(flags) if self.profile.is_vxlan_port(dst_port) => flags & 0x08 != 0,
            _ => dst_port == walk::GTP_PORT && is_gtp_data(body),
        }
    }

    /// Returns whether the bytes after UDP cannot be the header of the tunnel that the port announces.
    #[inline]
    fn is_not_tunnel(&self, dst_port: u16, body: &[u8]) -> bool {
        let is_configured = self.follows_all() && self.profile.is_vxlan_port(dst_port);
        is_not_tunnel(if is_configured { walk::VXLAN_PORT } else { dst_port }, body)
    }

    /// Returns whether the bytes at `body`, after UDP to the port of GTP-U, are its user data.
    #[inline]
    fn is_gtp(&self, bytes: &[u8], body: usize) -> bool {
        self.follows_all() && is_gtp_data(bytes.get(body..).unwrap_or(&[]))
    }

    /// Returns whether a shim with this first byte belongs to the port mark rather than the DSCP mark (ruling m): by its
    /// next-protocol type, or because host-int marks INT 0.5 by the port.
    #[inline]
    fn is_shim_of_port(&self, first: u8) -> bool {
        match first >> 4 {
            0 => self.profile.dialect == Dialect::HostInt,
            _ => first >> 2 & 3 != 0,
        }
    }

    /// Returns the bytes at `body` in case they are INT that no mark announces.
    #[inline]
    fn unmarked(&self, bytes: &'a [u8], l4: L4, body: usize) -> Option<Unmarked<'a>> {
        let L4 {
            ip,
            offset,
            encapsulation,
        } = l4;
        // A next-protocol type of 0 goes with the DSCP mark, others with the port mark.
        let npt = bytes
            .get(body)
            .filter(|_| self.find_int && self.purpose == Purpose::Report)?
            >> 2
            & 3;
        let by_port = npt != 0 && bytes[body] >> 4 != 0;
        let mark = if by_port { Mark::Port } else { Mark::Dscp };
        Some(Unmarked {
            bytes,
            position: ShimPosition {
                encapsulation,
                mark,
                ip,
                l4: offset,
                start: body,
                shim: body,
            },
        })
    }

    /// Returns whether unmarked INT with records follows TCP or UDP. Called when the walk found nothing else.
    #[cold]
    pub(crate) fn has_unmarked_int(&mut self) -> bool {
        let Some(Unmarked { bytes, position }) = self.unmarked.filter(|_| self.find_int) else {
            return false;
        };
        self.try_l4_shim(bytes, position).is_ok() && self.out.int.is_some_and(|int| !int.stack.is_empty())
    }

    /// Parses an L4 shim and its INT. Returns the end of INT and the packet's original fields.
    #[inline]
    fn l4_shim(&mut self, bytes: &'a [u8], position: ShimPosition) -> Result<(usize, Original), Refusal> {
        match self.try_l4_shim(bytes, position) {
            Err(_) if self.purpose == Purpose::Flow => Ok((bytes.len(), Original::default())),
            result => result,
        }
    }

    /// Parses marked INT with records in a packet whose IPv6 option has INT too. Marked INT wins, because any host can
    /// write the option. Returns the end of INT and the original fields.
    #[inline]
    fn shim_after_option(&mut self, bytes: &'a [u8], position: ShimPosition) -> Option<(usize, Original)> {
        if self.int_option_at == Some(position.ip.at) {
            self.read_shim_after_option(bytes, position)
        } else {
            None
        }
    }

    #[cold]
    #[inline(never)]
    fn read_shim_after_option(
        &mut self,
        bytes: &'a [u8],
        position: ShimPosition,
    ) -> Option<(usize, Original)> {
        let option = self.take_option_int();
        // Only a valid stack proves that it is INT, so parse it fully.
        let purpose = mem::replace(&mut self.purpose, Purpose::Report);
        let result = self.try_l4_shim(bytes, position);
        self.purpose = purpose;
        self.replaces_option_int(option, result.is_ok())
            .then_some(result.ok()?)
    }

    /// Returns whether the IPv6 header of a tunnel has an option with INT. Any host can write that option, so INT with
    /// records in the tunnel's header wins: see [`Walk::read_tunnel_int`].
    #[inline]
    pub(crate) fn has_int_option(&self, ip: Ip) -> bool {
        self.int_option_at == Some(ip.at) && self.purpose == Purpose::Report
    }

    /// Parses INT in a tunnel's header with `read`, and keeps it instead of the option's INT if it has records.
    #[cold]
    #[inline(never)]
    pub(crate) fn read_tunnel_int<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Refusal>) {
        let option = self.take_option_int();
        self.find_int = true;
        let result = read(self);
        self.find_int = false;
        self.replaces_option_int(option, result.is_ok());
    }

    /// Removes the INT of an IPv6 option from the contents, so that INT behind that header can be parsed.
    fn take_option_int(&mut self) -> OptionInt<'a> {
        let Contents {
            int,
            location,
            destination,
            ..
        } = self.out;
        self.out.int = None;
        OptionInt {
            int,
            location,
            destination,
        }
    }

    /// Returns whether INT after the option was parsed and has records. Otherwise restores the option's INT. The first
    /// winner is the outermost; hosts wrote what follows it.
    fn replaces_option_int(&mut self, option: OptionInt<'a>, is_read: bool) -> bool {
        let has_records = is_read && self.out.int.is_some_and(|int| !int.stack.is_empty());
        if has_records {
            self.option_refused = Some(Refusal::BadOption);
            self.int_option_at = None;
        } else {
            self.out.int = option.int;
            self.out.location = option.location;
            self.out.destination = option.destination;
        }
        has_records
    }

    /// Returns the end of INT that is left out, and the packet's original fields, as its shim announces them.
    #[cold]
    fn skipped_shim(&mut self, bytes: &[u8], position: ShimPosition) -> Option<(usize, Original)> {
        let context = ShimContext {
            hostint: false,
            sf: true,
        };
        let is_destination = match detect(bytes, position.shim, context).ok()? {
            Detected::Int(Version::V2, _) | Detected::Sf => false,
            Detected::Destination(Version::V2) => true,
            _ => return None,
        };
        let shim_header = Shim2::parse(Kind::L4, &bytes[position.shim..]).ok()?;
        let original = original_fields(position.mark, shim_header.next).ok()?;
        self.int_left_out = is_destination;
        Some((
            position.shim + shim::LEN + usize::from(shim_header.length) * 4,
            original,
        ))
    }

    fn try_l4_shim(&mut self, bytes: &'a [u8], position: ShimPosition) -> Result<(usize, Original), Refusal> {
        let shim = position.shim;
        let hostint = self.profile.dialect == Dialect::HostInt;
        let detected = detect(bytes, shim, ShimContext { hostint, sf: true });
        match detected.map_err(|refusal| refine_bad_version(refusal, bytes.get(shim..).unwrap_or(&[])))? {
            Detected::Int(Version::V2, mode) => self.shim_2(bytes, position, Int2Kind::Plain(mode)),
            Detected::Sf => self.shim_2(bytes, position, Int2Kind::Sf),
            Detected::Int(_, _) if position.mark == Mark::Port && !hostint => Err(Refusal::BadShim),
            Detected::Int(version, _) => self.shim_1(bytes, position, version, false),
            Detected::Private => self.shim_1(bytes, position, Version::V05, true),
            Detected::Destination(version) => {
                self.out.destination = true;
                if version == Version::V2 {
                    let shim_header = Shim2::parse(Kind::L4, &bytes[shim..])?;
                    return Ok((
                        shim + 4 + usize::from(shim_header.length) * 4,
                        original_fields(position.mark, shim_header.next)?,
                    ));
                }
                let shim_header = Shim1::parse(&bytes[shim..])?;
                Ok((
                    shim + usize::from(shim_header.length).max(1) * 4,
                    Original::default(),
                ))
            }
        }
    }

    #[inline]
    fn shim_2(
        &mut self,
        bytes: &'a [u8],
        position: ShimPosition,
        kind: Int2Kind,
    ) -> Result<(usize, Original), Refusal> {
        let shim_header = Shim2::parse(Kind::L4, &bytes[position.shim..])?;
        let original = original_fields(position.mark, shim_header.next)?;
        let header = position.shim + shim::LEN;
        let end = header + usize::from(shim_header.length) * 4;
        let result = self.int_2(bytes, header, end, kind);
        // The position of INT is known even if its stack is malformed: see `malformed_stack`.
        self.set_location(position, header, header + header::LEN_2, end, original);
        result.map(|()| (end, original))
    }

    /// Parses an INT option in an IPv6 hop-by-hop header. `option` and `extension` are the offsets of option and header.
    /// The option's data, which may be truncated, ends at `end`, inside the header.
    pub(crate) fn int_option(
        &mut self,
        bytes: &'a [u8],
        ip: Ip,
        extension: usize,
        option: usize,
        end: usize,
    ) -> Result<(), Refusal> {
        let shim = option + 2;
        let header = shim + shim::LEN;
        let data = bytes.get(shim..end).ok_or(Refusal::IntTruncated)?;
        let Ok(shim_header) = Shim2::parse(Kind::Option, data) else {
            return Err(Refusal::BadOption);
        };
        if end != header + usize::from(shim_header.length) * 4 {
            return Err(Refusal::BadOption);
        }
        let kind = match shim_header.kind {
            Shim2::MD => Int2Kind::Plain(Mode::Md),
            Shim2::MX => Int2Kind::Plain(Mode::Mx),
            Shim2::SF => Int2Kind::Sf,
            Shim2::DESTINATION => {
                self.out.destination = true;
                return Ok(());
            }
            _ => return Err(Refusal::BadShim),
        };
        if data[0] & 0x0c != 0 {
            return Err(Refusal::BadNextProtocolType);
        }
        if end < header + header::LEN_2 {
            return Err(Refusal::BadIntLength);
        }
        if bytes[header] >> 4 != 2 {
            return Err(Refusal::BadIntVersion);
        }
        let result = self.read_int_2(bytes, header, end, kind);
        let encapsulation = Encapsulation::HopByHop;
        let mark = Mark::Option;
        let position = ShimPosition {
            encapsulation,
            mark,
            ip,
            l4: extension,
            start: option,
            shim,
        };
        self.set_location(position, header, header + header::LEN_2, end, Original::default());
        result
    }

    /// Parses INT 1.0 or 0.5 after an L4 shim; `private` means host-int's private type.
    fn shim_1(
        &mut self,
        bytes: &'a [u8],
        position: ShimPosition,
        version: Version,
        private: bool,
    ) -> Result<(usize, Original), Refusal> {
        let shim_header = Shim1::parse(&bytes[position.shim..])?;
        let header = position.shim + shim::LEN;
        let mut length = usize::from(shim_header.length);
        if length == 0 && version == Version::V05 && self.profile.dialect == Dialect::IntCollectorGen {
            // INTCollector's generator leaves the length 0; it follows from the header's counts.
            length = header::length_05(&bytes[header..]);
        }
        if length < 3 {
            return Err(Refusal::BadIntLength);
        }
        let end = position.shim + length * 4;
        let mut original = Original::default();
        let mut end = end;
        if version == Version::V10 {
            self.int_10(bytes, header, end)?;
            original.dscp = Some(shim_header.last >> 2);
        } else {
            let hostint = self.profile.dialect == Dialect::HostInt;
            let tail = if private || hostint {
                Tail::Private
            } else {
                Tail::Whole
            };
            (end, original) = self.int_05(bytes, header, end, tail, private)?;
        }
        self.set_location(position, header, header + header::LEN_1, end, original);
        Ok((end, original))
    }

    /// Parses INT 0.5 after L4, with its tail.
    fn int_05(
        &mut self,
        bytes: &'a [u8],
        header: usize,
        end: usize,
        tail: Tail,
        private: bool,
    ) -> Result<(usize, Original), Refusal> {
        // host-int's lengths do not tell where INT ends; only the stack does.
        if self.purpose == Purpose::Flow && !matches!(tail, Tail::Private) {
            // The tail has the original port. Without INT's own counts it is at the end of the length.
            let tail = bytes.get(end - 4..end).ok_or(Refusal::IntTruncated)?;
            return Ok((end, tail_fields(shim::Tail::parse(tail)?)));
        }
        let in_report = matches!(self.purpose, Purpose::Report | Purpose::Flow);
        // In reports, host-int has removed the tail although the length may still include it.
        let int_bytes = match tail {
            Tail::Private if in_report => &bytes[header..end.min(bytes.len()).max(header)],
            _ => bytes.get(header..end).ok_or(Refusal::IntTruncated)?,
        };
        let hostint = matches!(tail, Tail::Private);
        let (mut int, rest) = match header::read_05(int_bytes, tail, self.layouts) {
            Err(Refusal::BadIntLength) if end > bytes.len() => return Err(Refusal::IntTruncated),
            result => result?,
        };
        let (seq, tail) = match private {
            true => (rest.first_chunk::<4>(), rest.get(4..).unwrap_or(&[])),
            false => (None, rest),
        };
        int.seq = seq.map(|word| u32::from_be_bytes(*word));
        let stack_end = header + header::LEN_1 + int.stack.bytes.len() + seq.map_or(0, |_| 4);
        self.out.int = Some(int);
        // In host-int's reports, the bytes after the stack belong to the packet.
        let removed = in_report && hostint;
        match shim::Tail::parse(tail) {
            Ok(tail) if !removed => Ok((stack_end + shim::TAIL_LEN, tail_fields(tail))),
            _ => Ok((stack_end, Original::default())),
        }
    }

    fn int_2(&mut self, bytes: &'a [u8], header: usize, end: usize, kind: Int2Kind) -> Result<(), Refusal> {
        if self.purpose == Purpose::Flow {
            return Ok(());
        }
        self.read_int_2(bytes, header, end, kind)
    }

    /// Parses like [`Walk::int_2`], even if only the flow is needed.
    #[inline]
    fn read_int_2(
        &mut self,
        bytes: &'a [u8],
        header: usize,
        end: usize,
        kind: Int2Kind,
    ) -> Result<(), Refusal> {
        if end < header + header::LEN_2 {
            return Err(Refusal::BadIntLength);
        }
        let bytes = bytes.get(header..end).ok_or(Refusal::IntTruncated)?;
        let (mode, sf_records) = match kind {
            Int2Kind::Plain(mode) => (mode, 0),
            // In a report, the stack may also contain the sink's own record.
            Int2Kind::Sf => (Mode::Md, if self.purpose == Purpose::Frame { 1 } else { 2 }),
        };
        let carrier = Carrier {
            profile: self.profile,
            mode,
            sf_records,
        };
        header::read_2(&mut self.out.int, bytes, carrier, self.layouts)
    }

    fn int_10(&mut self, bytes: &'a [u8], header: usize, end: usize) -> Result<(), Refusal> {
        if self.purpose == Purpose::Flow {
            return Ok(());
        }
        let bytes = bytes.get(header..end).ok_or(Refusal::IntTruncated)?;
        let carrier = Carrier {
            profile: self.profile,
            mode: Mode::Md,
            sf_records: 0,
        };
        header::read_10(&mut self.out.int, bytes, carrier, self.layouts)
    }

    #[inline]
    fn set_location(
        &mut self,
        position: ShimPosition,
        header: usize,
        stack: usize,
        end: usize,
        original: Original,
    ) {
        let ShimPosition {
            encapsulation,
            mark,
            ip,
            l4,
            start,
            ..
        } = position;
        self.find_int = false;
        self.out.location = Some(Location {
            encapsulation,
            mark,
            ip: ip.at,
            l4,
            start,
            header,
            stack,
            end,
            original,
        });
    }

    /// Parses the shim after GRE. Returns the end of INT and the original EtherType.
    pub(crate) fn gre_shim(
        &mut self,
        bytes: &'a [u8],
        ip: Ip,
        gre: usize,
        shim: usize,
    ) -> Result<Option<(usize, u16)>, Refusal> {
        if bytes.len() <= shim {
            return Ok(None);
        }
        let detected = detect(
            bytes,
            shim,
            ShimContext {
                hostint: false,
                sf: false,
            },
        )?;
        let shim_header = Shim2::parse(Kind::Gre, &bytes[shim..])?;
        let Next::Gre { ethertype, inserted } = shim_header.next else {
            return Err(Refusal::BadShim);
        };
        let header = shim + shim::LEN;
        let end = header + usize::from(shim_header.length) * 4;
        match detected {
            _ if !self.find_int => return Ok(Some((end, ethertype))),
            Detected::Int(Version::V2, mode) => self.int_2(bytes, header, end, Int2Kind::Plain(mode))?,
            Detected::Destination(Version::V2) => {
                self.out.destination = true;
                return Ok(Some((end, ethertype)));
            }
            _ => return Err(Refusal::BadIntVersion),
        }
        let encapsulation = Encapsulation::Gre;
        let mark = Mark::Tunnel;
        let position = ShimPosition {
            encapsulation,
            mark,
            ip,
            l4: gre,
            start: shim,
            shim,
        };
        let original = Original {
            tunnel_inserted: inserted,
            ..Original::default()
        };
        self.set_location(position, header, header + header::LEN_2, end, original);
        Ok(Some((end, ethertype)))
    }

    /// Parses the shim after VXLAN-GPE, whose next protocol is `code`. Returns the end of INT and the original next
    /// protocol.
    pub(crate) fn gpe_shim(
        &mut self,
        bytes: &'a [u8],
        ip: Ip,
        shim: usize,
        code: u8,
    ) -> Result<Option<(usize, u8)>, Refusal> {
        /// Next protocols of VXLAN-GPE in the INT specifications 0.5 and 1.0.
        const INT_05: u8 = 0x05;
        const INT_10: u8 = 0x08;
        if bytes.len() <= shim {
            return Ok(None);
        }
        let header = shim + shim::LEN;
        let detected = detect(
            bytes,
            shim,
            ShimContext {
                hostint: false,
                sf: false,
            },
        )?;
        let version = match code {
            INT_05 => Version::V05,
            INT_10 => Version::V10,
            _ => Version::V2,
        };
        let (end, next, inserted) = if version == Version::V2 {
            let shim_header = Shim2::parse(Kind::Gpe, &bytes[shim..])?;
            let Next::Gpe { protocol, inserted } = shim_header.next else {
                return Err(Refusal::BadShim);
            };
            (header + usize::from(shim_header.length) * 4, protocol, inserted)
        } else {
            let shim_header = Shim1::parse(&bytes[shim..])?;
            (
                shim + usize::from(shim_header.length.max(1)) * 4,
                shim_header.last,
                false,
            )
        };
        let stack = match detected {
            // A second INT header is skipped, like INT that is not looked for.
            _ if !self.find_int => return Ok(Some((end, next))),
            Detected::Destination(_) => {
                self.out.destination = true;
                return Ok(Some((end, next)));
            }
            Detected::Int(detected, _) if detected != version => return Err(Refusal::BadIntVersion),
            Detected::Int(Version::V2, mode) => {
                self.int_2(bytes, header, end, Int2Kind::Plain(mode))?;
                header + header::LEN_2
            }
            Detected::Int(version, _) => {
                self.read_without_shim(bytes, header, end, version)?;
                header + header::LEN_1
            }
            Detected::Private | Detected::Sf => return Err(Refusal::BadShim),
        };
        let encapsulation = Encapsulation::Gpe;
        let mark = Mark::Tunnel;
        let position = ShimPosition {
            encapsulation,
            mark,
            ip,
            // UDP header and VXLAN-GPE header.
            l4: shim - 16,
            start: shim,
            shim,
        };
        let original = Original {
            tunnel_inserted: inserted,
            ..Original::default()
        };
        self.set_location(position, header, stack, end, original);
        Ok(Some((end, next)))
    }

    /// Parses INT 1.0 or 0.5 without an L4 tail: after VXLAN-GPE or in Geneve.
    fn read_without_shim(
        &mut self,
        bytes: &'a [u8],
        header: usize,
        end: usize,
        version: Version,
    ) -> Result<(), Refusal> {
        if end < header + header::LEN_1 {
            return Err(Refusal::BadIntLength);
        }
        if version == Version::V10 {
            return self.int_10(bytes, header, end);
        }
        let bytes = bytes.get(header..end).ok_or(Refusal::IntTruncated)?;
        self.out.int = Some(header::read_05(bytes, Tail::None, self.layouts)?.0);
        Ok(())
    }

    /// Parses a Geneve option, from its header to `end`.
    pub(crate) fn geneve_option(
        &mut self,
        bytes: &'a [u8],
        ip: Ip,
        l4: usize,
        option: usize,
        end: usize,
    ) -> Result<(), Refusal> {
        let class = u16_at(bytes, option);
        let kind = bytes[option + 2];
        let header = option + 4;
        if !matches!(class, CLASS_INT_1 | CLASS_INT_2) {
            return Ok(());
        }
        if kind == Shim2::DESTINATION {
            self.out.destination = true;
            return Ok(());
        }
        if self.purpose == Purpose::Flow {
            // Stop looking for INT inside the tunnel.
            self.find_int = false;
            return Ok(());
        }
        if end < header + header::LEN_1 {
            return Err(Refusal::BadIntLength);
        }
        let head = bytes.get(header..).unwrap_or(&[]);
        let Some(first) = head.first() else {
            return Err(Refusal::IntTruncated);
        };
        let stack = match (kind, first >> 4, class) {
            (Shim2::MD, 2, _) => self
                .int_2(bytes, header, end, Int2Kind::Plain(Mode::Md))
                .map(|()| header::LEN_2)?,
            (Shim2::MX, 2, _) => self
                .int_2(bytes, header, end, Int2Kind::Plain(Mode::Mx))
                .map(|()| header::LEN_2)?,
            (Shim2::MD, version @ (0 | 1), CLASS_INT_1) => {
                let is_10 = version == 1 || header::is_10_under_version_0(head);
                let version = if is_10 { Version::V10 } else { Version::V05 };
                self.read_without_shim(bytes, header, end, version)
                    .map(|()| header::LEN_1)?
            }
            (Shim2::MD | Shim2::MX, _, _) => return Err(Refusal::BadIntVersion),
            _ => return Err(Refusal::BadShim),
        };
        let encapsulation = Encapsulation::Geneve;
        let mark = Mark::Tunnel;
        let position = ShimPosition {
            encapsulation,
            mark,
            ip,
            l4,
            start: option,
            shim: option,
        };
        self.set_location(position, header, header + stack, end, Original::default());
        Ok(())
    }
}

/// Detects INT at `offset`, by the table of section 1.2.
#[inline]
fn detect(bytes: &[u8], offset: usize, context: ShimContext) -> Result<Detected, Refusal> {
    let Some([first, ..]) = bytes.get(offset..) else {
        return Err(Refusal::IntTruncated);
    };
    if matches!(first, 0x02 | 0x20..=0x2f) {
        return shim::detect(*first, 0, context, false);
    }
    let header = bytes.get(offset + shim::LEN..).unwrap_or(&[]);
    let Some(version) = header.first().map(|byte| byte >> 4) else {
        // Bytes that cannot be a shim are not reported as a truncated shim.
        return shim::detect(*first, 2, context, false)
            .or_else(|_| shim::detect(*first, 0, context, false))
            .and(Err(Refusal::IntTruncated));
    };
    let is_10_under_version_0 = *first == 0x01 && version == 0 && header::is_10_under_version_0(header);
    shim::detect(*first, version, context, is_10_under_version_0)
}

/// Turns a bad version into a bad shim if reserved bits and length tell that the bytes are ordinary traffic that happens to
/// begin like a shim.
#[cold]
fn refine_bad_version(refusal: Refusal, shim: &[u8]) -> Refusal {
    const MIN_SHIM_WORDS: u8 = 3;
    let (Refusal::BadIntVersion, [first, second, third, fourth, ..]) = (refusal, shim) else {
        return refusal;
    };
    let dscp = fourth & 0x03 == 0;
    let is_shim = match first {
        0x01 => *second == 0 && *third >= MIN_SHIM_WORDS && dscp,
        _ => first & 0x03 == 0 && *second >= MIN_SHIM_WORDS && (first & 0x0c != 0 || *third == 0 && dscp),
    };
    if is_shim {
        Refusal::BadIntVersion
    } else {
        Refusal::BadShim
    }
}

/// Checks that the next-protocol type fits the mark (ruling m), and returns the original fields.
#[inline]
fn original_fields(mark: Mark, next: Next) -> Result<Original, Refusal> {
    let none = Original::default();
    match (mark, next) {
        (Mark::Port, Next::Port(port)) => Ok(Original {
            port: Some(port),
            ..none
        }),
        (Mark::Port, Next::Protocol(proto)) => Ok(Original {
            proto: Some(proto),
            ..none
        }),
        (Mark::Dscp | Mark::Probe, Next::Dscp(dscp)) => Ok(Original {
            dscp: Some(dscp),
            ..none
        }),
        _ => Err(Refusal::BadNextProtocolType),
    }
}

fn tail_fields(tail: shim::Tail) -> Original {
    let shim::Tail { proto, port, dscp } = tail;
    Original {
        port: (port != 0).then_some(port),
        proto: (proto != 0).then_some(proto),
        dscp: Some(dscp),
        tunnel_inserted: false,
    }
}

/// Returns whether the bytes after UDP look like the header of the tunnel that the port announces.
fn is_tunnel(dst_port: u16, body: &[u8]) -> bool {
    match (dst_port, body) {
        (walk::VXLAN_PORT | walk::GPE_PORT, [flags, ..]) => flags & 0x08 != 0,
        (walk::GENEVE_PORT, [first, second, high, low, rest @ ..]) => {
            let protocol = u16::from_be_bytes([*high, *low]);
            // Reserved bits must be 0, and IP must have the version of the EtherType: a shim of eight words without a DSCP
            // could pass for the EtherType of IPv4.
            let reserved = second & 0x3f | rest.get(3).unwrap_or(&0);
            let inner = rest
                .get(4 + usize::from(first & 0x3f) * 4)
                .map(|first| first >> 4);
            let has_matching_version = match protocol {
                walk::ETHERNET => true,
                walk::IPV4 => inner.is_none_or(|version| version == 4),
                walk::IPV6 => inner.is_none_or(|version| version == 6),
                _ => false,
            };
            first >> 6 == 0 && reserved == 0 && has_matching_version
        }
        _ => false,
    }
}

/// Returns whether the bytes after UDP cannot be the header of the tunnel that the port announces.
#[inline]
fn is_not_tunnel(dst_port: u16, body: &[u8]) -> bool {
    let Some(first) = body.first() else { return false };
    match dst_port {
        // VXLAN requires a VNI; VXLAN-GPE may have a next protocol instead.
        walk::VXLAN_PORT => first & 0x08 == 0,
        walk::GPE_PORT => first & 0x0c == 0,
        walk::GENEVE_PORT => first >> 6 != 0,
        // Other protocols use this port too, so require all reserved bits to be 0.
        walk::LINUX_PORT => {
            let reserved = body.iter().skip(1).take(3).chain(body.get(7));
            *first != 0x08 || reserved.copied().any(|octet| octet != 0)
        }
        _ => false,
    }
}

/// Checks the UDP length of a complete packet (ruling n).
fn check_udp_length(bytes: &[u8], offset: usize, ip: Ip) -> Result<(), Refusal> {
    let udp_len = usize::from(u16_at(bytes, offset + 4));
    let header = if ip.v6 { 40 } else { 0 };
    let total = match ip.v6 {
        true => usize::from(u16_at(bytes, ip.at + 4)) + header,
        false => usize::from(u16_at(bytes, ip.at + 2)),
    };
    let fits = udp_len >= 8 && offset + udp_len <= ip.at + total;
    // Segmentation offload leaves an IP length of 0, which is ignored.
    if fits || total == header {
        Ok(())
    } else {
        Err(Refusal::BadUdpLength)
    }
}
