//! Parses packets of the test vectors and writes them again: every header is parsed and emitted, every INT record is decoded to
//! a hop and encoded. The result must equal the original. Buffers are filled with 0xA5 first, so that unwritten bytes show up.

use crate::vectors::Kind;
use crate::{dta, lldp};
use wire::aggregate::{HEADER_LEN, LONG_POSTCARD_LEN, POSTCARD_LEN, SUMMARY_LEN};
use wire::ethernet::ethertype;
use wire::int::shim::{self, Next, Shim1, Shim2};
use wire::int::{Layout, header, sf};
use wire::ipv6::{DESTINATION_OPTIONS, HOP_BY_HOP, Opt, OptionsHeader};
use wire::profile::TcpShim;
use wire::report::v20::{Group, GroupBuilder, Inner, MainRepr, Repr, Tlv, Tlvs};
use wire::report::{v05, v10};
use wire::{Dialect, Flags, Ioam, Profile, Version};
use wire::{ethernet, geneve, gre, ipv4, ipv6, mpls, tcp, udp, vxlan};

/// Parses `bytes` and returns the bytes that the writers emit for them. Panics if they are malformed.
pub fn rewrite(kind: Kind, bytes: &[u8], profile: &Profile) -> Vec<u8> {
    let data = Rewriter {
        profile,
        telemetry: false,
    };
    match kind {
        Kind::Frame => Rewriter {
            profile,
            telemetry: true,
        }
        .ethernet(bytes),
        Kind::Payload => payload(bytes, profile),
        Kind::Packet => data.ethernet(bytes),
        // Any port that is neither INT nor a tunnel.
        Kind::Shim => data.l4_shim(bytes, 9).0,
        Kind::Aggregate => aggregate(bytes),
        // 42 bytes of Ethernet, IPv4 and UDP headers, then the aggregate.
        Kind::AggregateFrame => [&bytes[..42], &aggregate(&bytes[42..])].concat(),
        Kind::Dta => dta::report_again(bytes),
        Kind::DtaControl => dta::control_again(bytes),
        Kind::Roce => dta::roce_again(bytes),
        Kind::Lldp => lldp::again(bytes),
    }
}

/// A buffer whose bytes no writer emits by chance.
fn dirty(len: usize) -> Vec<u8> {
    vec![0xa5; len]
}

/// Returns `len` bytes that `emit` writes, then `rest`.
fn then(len: usize, emit: impl FnOnce(&mut [u8]), rest: &[u8]) -> Vec<u8> {
    let mut out = dirty(len);
    emit(&mut out);
    out.extend_from_slice(rest);
    out
}

/// Writes the payload of an aggregate again from its parts.
fn aggregate(bytes: &[u8]) -> Vec<u8> {
    let aggregate = wire::Aggregate::parse(bytes).expect("good");
    let mut out = dirty(HEADER_LEN);
    aggregate.header().emit(&mut out);
    for (postcard, packet) in aggregate.postcards_with_packets() {
        let len = if packet.is_some() {
            LONG_POSTCARD_LEN
        } else {
            POSTCARD_LEN
        };
        out.extend(then(
            len,
            |record| {
                postcard.emit(record);
                packet.iter().for_each(|packet| packet.emit(record));
            },
            &[],
        ));
    }
    aggregate
        .summaries()
        .for_each(|sum| out.extend(then(SUMMARY_LEN, |record| sum.emit(record), &[])));
    out
}

/// Writes the payload of a telemetry datagram again from its parts.
pub fn payload(bytes: &[u8], profile: &Profile) -> Vec<u8> {
    let inside = Rewriter {
        profile,
        telemetry: false,
    };
    let peek = wire::peek(bytes, profile).expect("a good datagram");
    match peek.version {
        Version::V05 => {
            let (repr, inner) = v05::Repr::parse(bytes, profile).expect("good");
            let inner = match repr.kind {
                v05::Kind::Gap { .. } | v05::Kind::Node { .. } => inside.ethertype(inner, ethertype::IPV4),
                _ => inside.ethernet(inner),
            };
            then(
                repr.header_len(),
                |out| assert_eq!(repr.emit(profile.dialect, out), out.len()),
                &inner,
            )
        }
        Version::V10 => {
            let (repr, inner) = v10::Repr::parse(bytes, profile).expect("good");
            let inner = match repr.next {
                v10::NextProtocol::Ethernet => inside.ethernet(inner),
                v10::NextProtocol::Ipv4 => inside.ethertype(inner, ethertype::IPV4),
                _ => inside.ethertype(inner, ethertype::IPV6),
            };
            then(
                repr.header_len(),
                |out| assert_eq!(repr.emit(profile.dialect, out), out.len()),
                &inner,
            )
        }
        Version::V20 => group(bytes, &inside),
    }
}

/// Writes a group of reports 2.0 again: the low nibble of a report's first byte is its inner type, the high nibble its type.
fn group(bytes: &[u8], inside: &Rewriter<'_>) -> Vec<u8> {
    let (group, mut rest) = Group::split(bytes).expect("good");
    let mut out = dirty(bytes.len());
    let mut builder = GroupBuilder::new(&mut out, group).expect("it fits");
    while !rest.is_empty() {
        let (report, behind) = wire::report::v20::split(rest).expect("good");
        rest = behind;
        let (main, inner) = match report[0] >> 4 {
            0 => (None, &report[4..]),
            _ => MainRepr::parse(report)
                .map(|(main, inner)| (Some(main), inner))
                .expect("good"),
        };
        let values: Vec<Vec<u8>> = Tlvs::new(inner).map(|tlv| tlv_value(inside, &tlv)).collect();
        let tlvs: Vec<Tlv<'_>> = Tlvs::new(inner)
            .zip(&values)
            .map(|(tlv, value)| Tlv { value, ..tlv })
            .collect();
        let packet = match report[0] & 0x0f {
            3 => inside.ethernet(inner),
            4 => inside.ethertype(inner, ethertype::IPV4),
            _ => inside.ethertype(inner, ethertype::IPV6),
        };
        // A compact SF-INT report has INT without a packet as its inner contents.
        let compact = report[3] & 0x20 != 0 && main.is_some_and(|main| main.ds_id == sf::REPORT_DOMAIN);
        let int = if compact && report[0] & 0x0f == 2 {
            inside.int_2(inner, Shim2::SF)
        } else {
            Vec::new()
        };
        let inner = match report[0] & 0x0f {
            0 => Inner::None,
            1 => Inner::Tlvs(&tlvs),
            2 if compact => Inner::Domain(&int),
            2 => Inner::Domain(inner),
            3 => Inner::Ethernet(&packet),
            4 => Inner::Ipv4(&packet),
            _ => Inner::Ipv6(&packet),
        };
        let [d, q, f, i] = [0x80, 0x40, 0x20, 0x10].map(|bit| report[3] & bit != 0);
        let flags = Flags::default()
            .with(Flags::DROP, d)
            .with(Flags::QUEUE, q)
            .with(Flags::FLOW, f)
            .with(Flags::INTERMEDIATE, i);
        assert!(
            builder.push(&Repr {
                flags,
                main,
                inner,
                ignored_md_length: report[2]
            }),
            "it fits"
        );
    }
    builder.finish().to_vec()
}

fn tlv_value(inside: &Rewriter<'_>, tlv: &Tlv<'_>) -> Vec<u8> {
    match tlv.kind {
        1 => inside.ethernet(tlv.value),
        2 => inside.ethertype(tlv.value, ethertype::IPV4),
        3 => inside.ethertype(tlv.value, ethertype::IPV6),
        _ => tlv.value.to_vec(),
    }
}

/// Rewrites a packet header by header. Each method takes the bytes from its header on, and returns them rewritten.
struct Rewriter<'p> {
    profile: &'p Profile,
    /// The UDP payload is a telemetry datagram.
    telemetry: bool,
}

impl Rewriter<'_> {
    fn ethernet(&self, bytes: &[u8]) -> Vec<u8> {
        let Ok(packet) = ethernet::Packet::new_checked(bytes) else {
            return bytes.to_vec();
        };
        let repr = ethernet::Repr::parse(&packet);
        then(
            14,
            |out| repr.emit(out),
            &self.ethertype(packet.payload(), repr.ethertype),
        )
    }

    fn ethertype(&self, bytes: &[u8], kind: u16) -> Vec<u8> {
        match kind {
            ethertype::IPV4 => self.ipv4(bytes),
            ethertype::IPV6 => self.ipv6(bytes),
            ethertype::ETHERNET => self.ethernet(bytes),
            tag if ethertype::is_tag(tag) => {
                let tag = ethernet::Tag::parse(bytes).expect("whole");
                then(
                    4,
                    |out| tag.emit(out),
                    &self.ethertype(&bytes[4..], tag.ethertype),
                )
            }
            ethertype::MPLS => {
                let label = mpls::Repr::parse(bytes).expect("whole");
                let next = if label.bottom {
                    ethertype::IPV4
                } else {
                    ethertype::MPLS
                };
                then(4, |out| label.emit(out), &self.ethertype(&bytes[4..], next))
            }
            _ => bytes.to_vec(),
        }
    }

    fn ipv4(&self, bytes: &[u8]) -> Vec<u8> {
        let Ok(packet) = ipv4::Packet::new_checked(bytes) else {
            return bytes.to_vec();
        };
        let repr = ipv4::Repr::parse(&packet);
        let payload = packet.payload();
        let mut rest = self.transport(payload, repr.proto, repr.tos >> 2);
        rest.extend_from_slice(&bytes[packet.header_len() + payload.len()..]);
        then(repr.header_len(), |out| repr.emit(out), &rest)
    }

    fn ipv6(&self, bytes: &[u8]) -> Vec<u8> {
        let Ok(packet) = ipv6::Packet::new_checked(bytes) else {
            return bytes.to_vec();
        };
        let repr = ipv6::Repr::parse(&packet);
        let payload = packet.payload();
        let mut rest = self.after_ipv6(payload, repr.next_header, repr.traffic_class >> 2);
        rest.extend_from_slice(&bytes[40 + payload.len()..]);
        then(40, |out| repr.emit(out), &rest)
    }

    fn after_ipv6(&self, bytes: &[u8], next: u8, dscp: u8) -> Vec<u8> {
        let header = match next {
            HOP_BY_HOP | DESTINATION_OPTIONS => OptionsHeader::new_checked(bytes),
            _ => return self.transport(bytes, next, dscp),
        };
        let Ok(header) = header else { return bytes.to_vec() };
        let options: Vec<(u8, Vec<u8>)> = header
            .options()
            .map(|option| match option.kind {
                wire::ioam::OPTION_MUTABLE | wire::ioam::OPTION_IMMUTABLE => (option.kind, ioam(option.data)),
                sf::OPTION => {
                    let shim = Shim2::parse(shim::Kind::Option, option.data).expect("whole");
                    let int = self.int_2(&option.data[4..], shim.kind);
                    (option.kind, then(4, |out| shim.emit(out), &int))
                }
                kind => (kind, option.data.to_vec()),
            })
            .collect();
        let options: Vec<Opt<'_>> = options
            .iter()
            .map(|(kind, data)| Opt { kind: *kind, data })
            .collect();
        let rest = self.after_ipv6(&bytes[header.header_len()..], header.next_header(), dscp);
        let mut out = dirty(header.header_len());
        assert_eq!(
            ipv6::emit_options(header.next_header(), &options, &mut out),
            out.len()
        );
        out.extend_from_slice(&rest);
        out
    }

    fn transport(&self, bytes: &[u8], proto: u8, dscp: u8) -> Vec<u8> {
        match proto {
            17 => self.udp(bytes, dscp),
            6 => self.tcp(bytes, dscp),
            47 => self.gre(bytes),
            _ => bytes.to_vec(),
        }
    }

    fn udp(&self, bytes: &[u8], dscp: u8) -> Vec<u8> {
        let Ok(packet) = udp::Packet::new_checked(bytes) else {
            return bytes.to_vec();
        };
        let repr = udp::Repr::parse(&packet);
        let body = &bytes[8..];
        let rest = if self.telemetry {
            let payload_len = packet.payload().len();
            let mut out = payload(packet.payload(), self.profile);
            out.extend_from_slice(&body[payload_len..]);
            out
        } else {
            self.marked(body, dscp, repr.dst_port)
                .unwrap_or_else(|| self.after_udp(body, repr.dst_port))
        };
        then(8, |out| repr.emit(out), &rest)
    }

    /// Rewrites a UDP body that begins with INT; `None` if nothing marks it as INT.
    fn marked(&self, body: &[u8], dscp: u8, dst_port: u16) -> Option<Vec<u8>> {
        if body.is_empty() || matches!(dst_port, vxlan::PORT | vxlan::GPE_PORT | geneve::PORT) {
            return None;
        }
        if let Some(marker) = self
            .profile
            .probe_marker
            .filter(|marker| body.starts_with(&marker.to_be_bytes()))
        {
            return Some(then(
                8,
                |out| out.copy_from_slice(&marker.to_be_bytes()),
                &self.int_then(&body[8..], dst_port),
            ));
        }
        let marked = dst_port == self.profile.int_udp_port || self.profile.marks(dscp);
        marked.then(|| self.int_then(body, dst_port))
    }

    /// Rewrites an L4 shim, INT and the rest of the packet.
    fn int_then(&self, body: &[u8], dst_port: u16) -> Vec<u8> {
        let (mut out, next) = self.l4_shim(body, dst_port);
        let rest = &body[out.len()..];
        out.extend(match next {
            Following::Udp(port) => self.after_udp(rest, port),
            Following::Ip(proto) => self.transport(rest, proto, 0),
        });
        out
    }

    fn after_udp(&self, bytes: &[u8], dst_port: u16) -> Vec<u8> {
        match dst_port {
            vxlan::PORT | vxlan::GPE_PORT => self.vxlan(bytes),
            geneve::PORT => self.geneve(bytes),
            _ => bytes.to_vec(),
        }
    }

    fn tcp(&self, bytes: &[u8], dscp: u8) -> Vec<u8> {
        let before_options = self.profile.tcp_shim == TcpShim::AfterFixed && self.profile.marks(dscp);
        if before_options && bytes.len() > 20 {
            // The shim precedes the TCP options, so the fixed header is parsed as if it had none.
            let mut fixed = bytes[..20].to_vec();
            let offset = fixed[12];
            fixed[12] = 5 << 4;
            let repr = tcp::Repr::parse(&tcp::Packet::new_checked(&fixed[..]).expect("20 bytes"));
            let mut out = then(20, |out| repr.emit(out), &self.l4_shim(&bytes[20..], 0).0);
            out[12] = offset;
            out.extend_from_slice(&bytes[out.len()..]);
            return out;
        }
        let Ok(packet) = tcp::Packet::new_checked(bytes) else {
            return bytes.to_vec();
        };
        let repr = tcp::Repr::parse(&packet);
        let mut rest = Vec::new();
        if self.profile.marks(dscp) {
            rest = self.l4_shim(packet.payload(), 0).0;
        }
        rest.extend_from_slice(&packet.payload()[rest.len()..]);
        then(repr.header_len(), |out| repr.emit(out), &rest)
    }

    fn gre(&self, bytes: &[u8]) -> Vec<u8> {
        let repr = gre::Repr::parse(bytes).expect("good");
        let body = &bytes[repr.header_len()..];
        let rest = if repr.protocol == self.profile.gre_protocol {
            let shim = Shim2::parse(shim::Kind::Gre, body).expect("whole");
            let Next::Gre { ethertype, .. } = shim.next else {
                panic!("a shim of GRE")
            };
            let end = 4 + usize::from(shim.length) * 4;
            let mut out = then(4, |out| shim.emit(out), &self.int_2(&body[4..end], shim.kind));
            out.extend(self.ethertype(&body[end..], ethertype));
            out
        } else {
            self.ethertype(body, repr.protocol)
        };
        then(repr.header_len(), |out| repr.emit(out), &rest)
    }

    fn vxlan(&self, bytes: &[u8]) -> Vec<u8> {
        let Ok(repr) = vxlan::Repr::parse(bytes) else {
            return bytes.to_vec();
        };
        let body = &bytes[8..];
        let (int, next) = match repr.next {
            Some(vxlan::next::INT_05 | vxlan::next::INT_10) => {
                let shim = Shim1::parse(body).expect("whole");
                let end = usize::from(shim.length) * 4;
                let old = repr.next == Some(vxlan::next::INT_05);
                let int = if old {
                    self.int_05(&body[4..end], 0)
                } else {
                    self.int_10(&body[4..end])
                };
                (then(4, |out| shim.emit(out), &int), shim.last)
            }
            Some(vxlan::next::INT_20 | vxlan::next::INT_21) => {
                let shim = Shim2::parse(shim::Kind::Gpe, body).expect("whole");
                let Next::Gpe { protocol, .. } = shim.next else {
                    panic!("a shim of VXLAN-GPE")
                };
                let end = 4 + usize::from(shim.length) * 4;
                (
                    then(4, |out| shim.emit(out), &self.int_2(&body[4..end], shim.kind)),
                    protocol,
                )
            }
            next => (Vec::new(), next.unwrap_or(3)),
        };
        let inner = match next {
            1 => self.ethertype(&body[int.len()..], ethertype::IPV4),
            2 => self.ethertype(&body[int.len()..], ethertype::IPV6),
            _ => self.ethernet(&body[int.len()..]),
        };
        then(8, |out| repr.emit(out), &[int, inner].concat())
    }

    fn geneve(&self, bytes: &[u8]) -> Vec<u8> {
        let repr = geneve::Repr::parse(bytes).expect("good");
        let mut out = then(8, |out| repr.emit(out), &[]);
        while out.len() < repr.header_len() {
            let at = out.len();
            let option = geneve::OptionRepr::parse(&bytes[at..repr.header_len()]).expect("good");
            let data = &bytes[at + 4..at + 4 + usize::from(option.len) * 4];
            let is_int = matches!(option.class, geneve::CLASS_INT_1 | geneve::CLASS_INT_2);
            let data = match data.first().map(|first| first >> 4) {
                Some(2) if is_int => self.int_2(data, option.kind),
                Some(1) if is_int => self.int_10(data),
                Some(0) if is_int => self.int_05(data, 0),
                _ => data.to_vec(),
            };
            out.extend(then(4, |out| option.emit(out), &data));
        }
        out.extend(self.ethertype(&bytes[repr.header_len()..], repr.protocol));
        out
    }

    /// Rewrites a shim after UDP or TCP with its INT. Returns the bytes, and how the packet continues.
    fn l4_shim(&self, bytes: &[u8], dst_port: u16) -> (Vec<u8>, Following) {
        if bytes[0] >> 4 != 0 {
            let shim = Shim2::parse(shim::Kind::L4, bytes).expect("whole");
            let end = 4 + usize::from(shim.length) * 4;
            // NPT 1 restores the UDP port, NPT 2 an IP protocol; otherwise the destination port of the packet applies.
            let behind = match shim.next {
                Next::Port(port) => Following::Udp(port),
                Next::Protocol(proto) => Following::Ip(proto),
                _ => Following::Udp(dst_port),
            };
            return (
                then(4, |out| shim.emit(out), &self.int_2(&bytes[4..end], shim.kind)),
                behind,
            );
        }
        let shim = Shim1::parse(bytes).expect("whole");
        let body = &bytes[4..usize::from(shim.length).max(1) * 4];
        // Some senders of 1.0 write the version 0. In 0.5, byte 1 holds the number of instructions.
        let is_10 = body[0] >> 4 == 1
            || u32::from(body[1] & 0x1f) != u32::from(body[4]).count_ones() + u32::from(body[5]).count_ones();
        let int = if is_10 {
            self.int_10(body)
        } else {
            self.int_05(body, 4)
        };
        (then(4, |out| shim.emit(out), &int), Following::Udp(dst_port))
    }

    fn int_2(&self, bytes: &[u8], kind: u8) -> Vec<u8> {
        if kind == Shim2::MX {
            let mx = header::Mx2::parse(bytes).expect("whole");
            return then(12, |out| mx.emit(out), &bytes[12..]);
        }
        let md = header::Md2::parse(bytes).expect("whole");
        let domain = md.ds_id != 0 && md.ds_instruction != 0;
        let layout = Layout::int_2(md.bitmap, md.hop_ml, domain).expect("good");
        let known = self.profile.domains[0].filter(|known| known.id == md.ds_id);
        let source_only = known.map_or(0, |known| usize::from(known.source_only_words) * 4);
        let stack = bytes.len() - 12 - source_only;
        let mut out = then(12, |out| md.emit(out), &records(&layout, &bytes[12..12 + stack]));
        out.extend_from_slice(&bytes[out.len()..]);
        out
    }

    fn int_10(&self, bytes: &[u8]) -> Vec<u8> {
        let md = header::Md10::parse(bytes).expect("whole");
        let dialect = self.profile.dialect;
        let words = Layout::words_10(md.bitmap, md.hop_ml, (bytes.len() - 8) / 4, dialect);
        let layout = Layout::int_10(md.bitmap, words, dialect).expect("good");
        then(8, |out| md.emit(out), &records(&layout, &bytes[8..]))
    }

    /// Rewrites INT 0.5. After the stack come a tail header of `tail` bytes, or the private bytes that host-int writes there.
    fn int_05(&self, bytes: &[u8], tail: usize) -> Vec<u8> {
        let md = header::Md05::parse(bytes).expect("whole");
        let layout = Layout::int_05(md.bitmap);
        let stack = 8 + layout.len() * usize::from(md.total_hops);
        let mut out = then(8, |out| md.emit(out), &records(&layout, &bytes[8..stack]));
        let private = self.profile.dialect == Dialect::HostInt;
        if tail > 0 && !private {
            let tail = shim::Tail::parse(&bytes[stack..]).expect("whole");
            out.extend(then(4, |out| tail.emit(out), &[]));
        } else {
            out.extend_from_slice(&bytes[stack..]);
        }
        out
    }
}

/// The content after INT: a UDP body for this port, or the payload of an IP protocol.
enum Following {
    Udp(u16),
    Ip(u8),
}

fn records(layout: &Layout, stack: &[u8]) -> Vec<u8> {
    let mut out = dirty(stack.len());
    if !layout.is_empty() {
        for (from, to) in stack
            .chunks_exact(layout.len())
            .zip(out.chunks_exact_mut(layout.len()))
        {
            layout.write(&layout.hop(from), to);
        }
    }
    out
}

fn ioam(data: &[u8]) -> Vec<u8> {
    let mut out = dirty(256);
    let len = match Ioam::parse(data).expect("good") {
        Some(Ioam::Trace(trace)) => trace.emit(&mut out),
        Some(Ioam::Export(export)) => export.emit(&mut out),
        None => return data.to_vec(),
    };
    out.truncate(len);
    out
}
