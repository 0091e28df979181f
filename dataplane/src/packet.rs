//! Parses and edits data packets in an INT switch: header offsets, the INT that a packet carries, and edits that keep lengths
//! and checksums correct.

pub(crate) mod direct;
pub(crate) mod rewrite;

use std::ops::Range;

use wire::ethernet::{self, ethertype};
use wire::int::header::{self, Md2, Md10};
use wire::int::shim::{self, Shim1, Shim2};
use wire::int::{self, Flags, Layout, Mode, Sf};
use wire::packet::{self, Encapsulation, Mark, Original};
use wire::{FlowKey, Profile, Refusal, checksum, ipv4, ipv6, tcp, udp};

/// IP protocol number of TCP.
pub(crate) const TCP: u8 = 6;
/// IP protocol number of UDP.
pub(crate) const UDP: u8 = 17;
/// IPv6 next header: hop-by-hop options.
pub(crate) const HOP_BY_HOP: u8 = ipv6::HOP_BY_HOP;
/// Length of type and length of an IPv6 option.
pub(crate) const OPTION_HEAD: usize = 2;
/// Maximum number of VLAN tags that are skipped.
const MAX_TAGS: usize = 4;
/// Padding by length: nothing, Pad1, or PadN (RFC 8200, section 4.2).
const PADDING: [[u8; 8]; 8] = {
    let mut padding = [[0; 8]; 8];
    let mut len = 2;
    while len < 8 {
        padding[len][0] = 1;
        padding[len][1] = len as u8 - 2;
        len += 1;
    }
    padding
};
/// Maximum length of an inserted block: the first two bytes of a new hop-by-hop header, and the longest option with its
/// padding.
const MAX_INSERTED_OPTIONS: usize = 2 + 2 + 255 + 7;
/// Offset of the checksum in a TCP header.
pub(crate) const TCP_CHECKSUM: usize = 16;
/// Offset of the IPv6 next-header field.
const NEXT_HEADER: usize = 6;

/// The fields of a packet that a switch reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParsedPacket {
    /// Flow of the packet, as it was before INT was inserted.
    pub(crate) flow: Option<FlowKey>,
    /// Headers after which INT can be inserted; `None` for fragments and other protocols.
    pub(crate) headers: Option<Headers>,
    /// INT that this switch supports.
    pub(crate) carried: Option<CarriedInt>,
    /// Whether the packet carries INT that this switch does not support.
    pub(crate) unsupported: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum Parsed {
    /// A common frame, read on the fast path; see [`direct`].
    Direct(direct::Common),
    Full(Result<ParsedPacket, Refusal>),
}

/// INT that a packet carries, by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CarriedInt {
    pub(crate) headers: Headers,
    pub(crate) version: int::Version,
    pub(crate) mode: Mode,
    pub(crate) mark: Mark,
    pub(crate) original: Original,
    pub(crate) flags: Flags,
    pub(crate) hop_ml: u8,
    pub(crate) remaining: u8,
    pub(crate) bitmap: u16,
    /// DS ID or packet ID, DS Instruction, and DS Flags (2.x).
    domain: [u16; 3],
    /// Replication request and reserved bits (1.0).
    replication: u8,
    /// Whether the header has version 0 in place of 1, as ONOS writes INT 1.0.
    version_zero: bool,
    pub(crate) layout: Layout,
    /// Bytes at the end of the stack that are no record: words that only the source adds.
    source_only: usize,
    /// Length of metadata header and stack, in words.
    pub(crate) int_words: u8,
    pub(crate) sf: Option<Sf>,
    /// Offset of the shim; in an IPv6 option, it follows type and length.
    pub(crate) shim: usize,
    pub(crate) end: usize,
}

impl ParsedPacket {
    /// Parses a packet, starting with its Ethernet header.
    ///
    /// # Errors
    /// Fails as [`packet::contents`] does: INT or IP headers contradict themselves.
    pub(crate) fn parse(frame: &[u8], profile: &Profile) -> Result<Self, Refusal> {
        let contents = packet::contents(frame, profile)?;
        let mut parsed = Self {
            flow: contents.flow,
            headers: None,
            carried: None,
            unsupported: contents.destination,
        };
        let (Some(int), Some(location)) = (contents.int, contents.location) else {
            parsed.headers = Headers::parse(frame);
            return Ok(parsed);
        };
        let proto = match location.encapsulation {
            Encapsulation::Udp => UDP,
            Encapsulation::Tcp => TCP,
            _ => HOP_BY_HOP,
        };
        let option = location.encapsulation == Encapsulation::HopByHop;
        let is_supported = (proto != HOP_BY_HOP || option)
            && location.mark != Mark::Probe
            && matches!(
                (int.version, int.mode),
                (int::Version::V2, _) | (int::Version::V10, Mode::Md)
            );
        if !is_supported {
            parsed.unsupported = true;
            return Ok(parsed);
        }
        let headers = Headers::at(frame, location.ip, location.l4, proto);
        let Some(headers) = headers.filter(|headers| location.end <= headers.ip + headers.ip_len(frame))
        else {
            parsed.unsupported = true;
            return Ok(parsed);
        };
        let head = &frame[location.header..location.stack];
        parsed.headers = Some(headers);
        parsed.carried = Some(CarriedInt {
            headers,
            version: int.version,
            mode: int.mode,
            mark: location.mark,
            original: location.original,
            flags: int.flags,
            hop_ml: int.hop_ml,
            remaining: int.remaining,
            bitmap: int.bitmap,
            domain: [
                int.sf.map_or(int.ds_id, |sf| sf.packet_id),
                int.ds_instruction,
                int.ds_flags,
            ],
            replication: header::replication(head),
            version_zero: int.version == int::Version::V10 && head[0] >> 4 == 0,
            layout: int.stack.layout,
            source_only: int.source_only.len(),
            int_words: ((location.end - location.header) / 4) as u8, // The shim's length field has 8 bits.
            sf: int.sf,
            shim: if option {
                location.start + OPTION_HEAD
            } else {
                location.start
            },
            end: location.end,
        });
        Ok(parsed)
    }
}

impl CarriedInt {
    /// Returns the INT records in `frame`.
    pub(crate) fn records<'a>(&self, frame: &'a [u8]) -> int::Stack<'a> {
        let bytes = frame
            .get(self.stack()..self.end - self.source_only)
            .unwrap_or_default();
        // INT-MX has no records.
        let count = bytes.len().checked_div(self.layout.len()).unwrap_or(0);
        int::Stack {
            bytes,
            layout: self.layout,
            count: count as u8,
        }
    }

    /// Returns INT with a malformed stack, which [`ParsedPacket::parse`] refuses, as far as a sink needs it to remove INT.
    pub(crate) fn malformed(frame: &[u8], profile: &Profile) -> Option<Self> {
        let location = packet::malformed_stack(frame, profile)?;
        let option = location.encapsulation == Encapsulation::HopByHop;
        let proto = match location.encapsulation {
            Encapsulation::Udp => UDP,
            Encapsulation::Tcp => TCP,
            Encapsulation::HopByHop => HOP_BY_HOP,
            _ => return None,
        };
        let shim = if option {
            location.start + OPTION_HEAD
        } else {
            location.start
        };
        let head = frame
            .get(shim..location.end)?
            .first_chunk::<{ shim::LEN + header::LEN_2 }>()?;
        let headers = Headers::at(frame, location.ip, location.l4, proto)
            .filter(|headers| location.end <= headers.ip + headers.ip_len(frame))?;
        (location.mark != Mark::Probe).then_some(Self {
            headers,
            version: int::Version::V2,
            mode: Mode::Md,
            mark: location.mark,
            original: location.original,
            flags: Flags(head[shim::LEN] >> 3 & 1), // Flag D.
            hop_ml: 0,
            remaining: 0,
            bitmap: 0,
            domain: [0; 3],
            replication: 0,
            version_zero: false,
            layout: Layout::EMPTY,
            source_only: 0,
            int_words: head[1],
            sf: None,
            shim,
            end: location.end,
        })
    }

    /// Returns the number of words that a node adds. In INT 1.0, Hop ML may count items instead: see [`Layout::words_10`].
    pub(crate) fn record_words(&self) -> u8 {
        if self.version == int::Version::V10 {
            self.layout.words()
        } else {
            self.hop_ml
        }
    }

    /// Returns whether the length fields leave room for `added_len` bytes of INT.
    pub(crate) fn has_space(&self, added_len: usize) -> bool {
        if self.headers.has_option() {
            // The hop-by-hop header is limited to 256 units of 8 bytes.
            return self.end - self.shim + added_len <= 0xff
                && self.headers.l4_len + added_len + 8 <= 256 * 8;
        }
        let shim = if self.version == int::Version::V10 {
            shim::LEN / 4
        } else {
            0
        };
        usize::from(self.int_words) + shim + added_len / 4 <= 0xff
    }

    /// Returns the offset of the metadata header.
    pub(crate) fn header(&self) -> usize {
        self.shim + shim::LEN
    }

    /// Returns the offset of the first record.
    pub(crate) fn stack(&self) -> usize {
        self.header()
            + if self.version == int::Version::V10 {
                header::LEN_1
            } else {
                header::LEN_2
            }
    }

    /// Returns the offset of the length field within the shim.
    pub(crate) fn length_field(&self) -> usize {
        if self.version == int::Version::V10 { 2 } else { 1 }
    }

    /// Writes shim and metadata header and returns their length.
    pub(crate) fn emit(&self, out: &mut [u8]) -> usize {
        let (shim, head) = out.split_at_mut(shim::LEN);
        let Self {
            flags,
            hop_ml,
            remaining,
            bitmap,
            ..
        } = *self;
        if self.version == int::Version::V10 {
            let length = self.int_words + (shim::LEN / 4) as u8;
            Shim1 {
                kind: 1,
                length,
                last: self.original.dscp.unwrap_or(0) << 2,
            }
            .emit(shim);
            let replication = self.replication;
            Md10 {
                flags,
                replication,
                hop_ml,
                remaining,
                bitmap,
                reserved: self.domain[0],
                version_zero: self.version_zero,
            }
            .emit(head);
            return shim::LEN + header::LEN_1;
        }
        let next = match (self.original.port, self.original.proto) {
            _ if self.headers.has_option() => shim::Next::Nothing,
            (Some(port), _) => shim::Next::Port(port),
            (None, Some(proto)) => shim::Next::Protocol(proto),
            (None, None) => shim::Next::Dscp(self.original.dscp.unwrap_or(0)),
        };
        let kind = match (self.mode, self.sf) {
            (Mode::Mx, _) => Shim2::MX,
            (Mode::Md, None) => Shim2::MD,
            (Mode::Md, Some(_)) => Shim2::SF,
        };
        let sf = self.sf.map(|sf| (sf.urgent, sf.state));
        Shim2 {
            kind,
            length: self.int_words,
            next,
        }
        .emit(shim);
        let [ds_id, ds_instruction, ds_flags] = self.domain;
        Md2 {
            flags,
            hop_ml,
            remaining,
            bitmap,
            ds_id,
            ds_instruction,
            ds_flags,
            sf,
        }
        .emit(head);
        shim::LEN + header::LEN_2
    }
}

/// Offsets of the headers after which INT can be inserted: Ethernet, VLAN tags, IPv4 or IPv6, then UDP or TCP. They were
/// checked on creation, and nothing here makes a packet shorter than its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headers {
    pub(crate) ip: usize,
    pub(crate) v6: bool,
    pub(crate) l4: usize,
    pub(crate) proto: u8,
    pub(crate) dscp: u8,
    /// Length of the UDP header, of the fixed part of the TCP header, or of the hop-by-hop header.
    l4_len: usize,
}

impl Headers {
    /// Returns the headers of a packet without INT.
    pub(crate) fn parse(frame: &[u8]) -> Option<Self> {
        let (ip, l4, proto) = Self::locate(frame)?;
        Self::at(frame, ip, l4, proto)
    }

    /// Parses the fixed parts even if the TCP options are truncated, which removing INT may cause.
    pub(crate) fn fixed_parts(frame: &[u8]) -> Option<Self> {
        let (ip, l4, proto) = Self::locate(frame)?;
        Self::fixed_at(frame, ip, l4, proto)
    }

    /// Returns the offsets of the IP header and of its payload, and the payload's protocol; `None` for a fragment.
    fn locate(frame: &[u8]) -> Option<(usize, usize, u8)> {
        let (ethertype, ip) = network(frame)?;
        let rest = frame.get(ip..)?;
        let (len, proto) = match ethertype {
            ethertype::IPV4 => {
                const FRAGMENT: u16 = 0x3fff; // The More Fragments bit, or a fragment offset.
                let header = ipv4::Packet::new_checked(rest).ok()?;
                if header.fragment() & FRAGMENT != 0 {
                    return None;
                }
                (header.header_len(), header.proto())
            }
            ethertype::IPV6 => (
                ipv6::HEADER_LEN,
                ipv6::Packet::new_checked(rest).ok()?.next_header(),
            ),
            _ => return None,
        };
        Some((ip, ip + len, proto))
    }

    /// Returns the headers at these offsets if they are complete, of known protocols, and the IPv4 checksum is correct. With a
    /// wrong checksum, a switch would not forward the packet, and updating the checksum would hide the corruption.
    fn at(frame: &[u8], ip: usize, l4: usize, proto: u8) -> Option<Self> {
        let headers = Self::fixed_at(frame, ip, l4, proto)?;
        if proto == TCP {
            tcp::Packet::new_checked(frame.get(l4..ip + headers.ip_len(frame))?).ok()?;
        }
        Some(headers)
    }

    fn fixed_at(frame: &[u8], ip: usize, l4: usize, proto: u8) -> Option<Self> {
        let v6 = frame.get(ip)? >> 4 == 6;
        let (class, len) = if v6 {
            let header = ipv6::Packet::new_checked(&frame[ip..]).ok()?;
            (
                header.traffic_class(),
                usize::from(header.payload_len()) + ipv6::HEADER_LEN,
            )
        } else {
            let header = ipv4::Packet::new_checked(&frame[ip..])
                .ok()
                .filter(ipv4::Packet::verify_checksum)?;
            (header.tos(), usize::from(header.total_len()))
        };
        // Padding follows the end of the IP packet: a header that reaches into it is malformed.
        let rest = frame.get(l4..ip + len)?;
        match proto {
            HOP_BY_HOP if v6 => ipv6::OptionsHeader::new_checked(rest).map(|_| ()).ok()?,
            UDP => udp::Packet::new_checked(rest).map(|_| ()).ok()?,
            TCP => {}
            _ => return None,
        }
        let l4_len = match proto {
            UDP => udp::HEADER_LEN,
            TCP => tcp::HEADER_LEN,
            _ => 8 + usize::from(*rest.get(1)?) * 8,
        };
        (l4_len <= rest.len()).then_some(Self {
            ip,
            v6,
            l4,
            proto,
            dscp: class >> 2,
            l4_len,
        })
    }

    /// Parses the headers again after the INT in the frame has grown or shrunk.
    pub(crate) fn reread(&self, frame: &[u8]) -> Self {
        Self::at(frame, self.ip, self.l4, self.proto).unwrap_or(*self)
    }

    /// Returns whether INT is, or would be, in an option of the hop-by-hop header at `l4`.
    pub(crate) fn has_option(&self) -> bool {
        self.proto == HOP_BY_HOP
    }

    /// Returns the offset of the shim: after UDP or the fixed part of TCP, or, for an option, the end of the hop-by-hop header.
    pub(crate) fn body(&self) -> usize {
        self.l4 + self.l4_len
    }

    /// Returns the length of the IP packet, including its header.
    pub(crate) fn ip_len(&self, frame: &[u8]) -> usize {
        let rest = &frame[self.ip..];
        let len = if self.v6 {
            ipv6::Packet::new_checked(rest).map(|header| usize::from(header.payload_len()) + ipv6::HEADER_LEN)
        } else {
            ipv4::Packet::new_checked(rest).map(|header| usize::from(header.total_len()))
        };
        len.unwrap_or(0)
    }

    pub(crate) fn dst_port(&self, frame: &[u8]) -> u16 {
        let rest = &frame[self.l4..];
        let port = if self.proto == UDP {
            udp::Packet::new_checked(rest).map(|header| header.dst_port())
        } else {
            tcp::Packet::new_checked(rest).map(|header| header.dst_port())
        };
        port.unwrap_or(0)
    }

    /// Sets the UDP destination port.
    pub(crate) fn set_dst_port(&self, frame: &mut [u8], port: u16) {
        let old_port = self.dst_port(frame);
        if let Ok(mut header) = udp::Packet::new_checked(&mut frame[self.l4..]) {
            header.set_dst_port(port);
        }
        self.update_l4(frame, &[(old_port, port)]);
    }

    /// Sets the DSCP and keeps the ECN bits.
    pub(crate) fn set_dscp(&self, frame: &mut [u8], dscp: u8) {
        const ECN: u8 = 0x03;
        let rest = &mut frame[self.ip..];
        if self.v6 {
            if let Ok(mut header) = ipv6::Packet::new_checked(rest) {
                header.set_traffic_class(dscp << 2 | header.traffic_class() & ECN);
            }
        } else if let Ok(mut header) = ipv4::Packet::new_checked(rest) {
            header.set_tos(dscp << 2 | header.tos() & ECN);
            header.fill_checksum();
        }
    }

    /// Replaces the bytes of `range`, which lies after the L4 header, and updates lengths and checksums.
    pub(crate) fn splice(&self, frame: &mut Vec<u8>, range: Range<usize>, with: &[u8]) {
        if self.has_option() {
            return self.splice_option(frame, range, with);
        }
        let old_sum = sum(&frame[range.clone()]);
        let new_sum = sum(with);
        let old_ip_len = self.ip_len(frame);
        let new_ip_len = old_ip_len - range.len() + with.len();
        replace(frame, range, with);
        self.set_ip_len(frame, new_ip_len);
        // The pseudo-header contains the L4 length, which changes by the same amount as the IP length. UDP's own length field
        // counts it again.
        let old_len = old_ip_len as u16;
        let new_len = new_ip_len as u16;
        if self.proto == UDP
            && let Ok(mut header) = udp::Packet::new_checked(&mut frame[self.l4..])
        {
            header.set_len(header.len().wrapping_add(new_len).wrapping_sub(old_len));
            self.update_l4(
                frame,
                &[(old_sum, new_sum), (old_len, new_len), (old_len, new_len)],
            );
        } else {
            self.update_l4(frame, &[(old_sum, new_sum), (old_len, new_len)]);
        }
    }

    /// Replaces bytes in the data of the INT option, and updates the option's length, the padding after it, and the lengths of
    /// the headers around it. No checksum covers them: a pseudo-header has the length of the upper layer only.
    fn splice_option(&self, frame: &mut Vec<u8>, range: Range<usize>, with: &[u8]) {
        let old_ip_len = self.ip_len(frame);
        let Some(option) = options(frame, self.l4, self.body()).find(|option| option.contains(&range.start))
        else {
            return;
        };
        let data = option.len() - OPTION_HEAD - range.len() + with.len();
        let padding = padding(frame, option.end, self.body());
        // The header stays a multiple of eight bytes, so the bytes after it keep their alignment.
        let pad_len = (padding + option.len() - OPTION_HEAD).wrapping_sub(data) & 7;
        let end = option.start + OPTION_HEAD + data;
        replace(
            frame,
            option.end..option.end + padding,
            &PADDING[pad_len][..pad_len],
        );
        replace(frame, range, with);
        frame[option.start + 1] = data as u8;
        let growth = (end + pad_len).wrapping_sub(option.end + padding);
        frame[self.l4 + 1] = (self.l4_len.wrapping_add(growth) / 8).wrapping_sub(1) as u8;
        self.set_ip_len(frame, old_ip_len.wrapping_add(growth));
    }

    /// Inserts an INT option with `data` into the hop-by-hop header of an IPv6 packet, before all other options, or into a new
    /// hop-by-hop header.
    pub(crate) fn insert_option(&self, frame: &mut Vec<u8>, data: &[u8]) {
        let old_ip_len = self.ip_len(frame);
        let start = ipv6::HEADER_LEN + self.ip;
        let has_header = self.has_option();
        let new_header_len = if has_header { 0 } else { OPTION_HEAD };
        let len = (new_header_len + OPTION_HEAD + data.len()).next_multiple_of(8);
        let pad_len = len - new_header_len - OPTION_HEAD - data.len();
        let mut block = [0; MAX_INSERTED_OPTIONS];
        block[0] = frame[self.ip + NEXT_HEADER];
        block[1] = (len / 8).wrapping_sub(1) as u8;
        let body = &mut block[new_header_len..len];
        body[0] = int::sf::OPTION;
        body[1] = data.len() as u8;
        body[OPTION_HEAD..OPTION_HEAD + data.len()].copy_from_slice(data);
        body[OPTION_HEAD + data.len()..].copy_from_slice(&PADDING[pad_len][..pad_len]);
        if has_header {
            replace(frame, start + OPTION_HEAD..start + OPTION_HEAD, &block[..len]);
            frame[start + 1] = frame[start + 1].wrapping_add((len / 8) as u8);
        } else {
            replace(frame, start..start, &block[..len]);
            frame[self.ip + NEXT_HEADER] = HOP_BY_HOP;
        }
        self.set_ip_len(frame, old_ip_len + len);
    }

    /// Returns the number of bytes by which [`Self::insert_option`] extends a packet. Returns `None` if the header would be too
    /// long, or if a sink could not restore it because it is malformed or begins with padding.
    pub(crate) fn option_len(&self, frame: &[u8], data: usize) -> Option<usize> {
        if self.has_option() && !self.options_can_be_restored(frame) {
            return None;
        }
        let new_header_len = if self.has_option() { 0 } else { OPTION_HEAD };
        let len = (new_header_len + OPTION_HEAD + data).next_multiple_of(8);
        let header_len = if self.has_option() { self.l4_len + len } else { len };
        (data <= 0xff && header_len <= 256 * 8).then_some(len)
    }

    fn options_can_be_restored(&self, frame: &[u8]) -> bool {
        let has_leading_padding = frame.get(self.l4 + OPTION_HEAD).is_none_or(|kind| *kind < 2);
        !has_leading_padding && self.options_are_whole(frame)
    }

    /// Returns whether the options fill their header exactly.
    fn options_are_whole(&self, frame: &[u8]) -> bool {
        options(frame, self.l4, self.body())
            .last()
            .is_some_and(|option| option.end == self.body())
    }

    /// Removes the option at offset `option`, and the whole hop-by-hop header if only padding remains.
    pub(crate) fn remove_option(&self, frame: &mut Vec<u8>, option: usize) {
        let old_ip_len = self.ip_len(frame);
        let Some(range_of_option) =
            options(frame, self.l4, self.body()).find(|range_of_option| range_of_option.start == option)
        else {
            return;
        };
        let padding = padding(frame, range_of_option.end, self.body());
        // A malformed header does not consist of padding only.
        let has_other_options = !self.options_are_whole(frame)
            || options(frame, self.l4, self.body())
                .any(|other| other.start != option && frame[other.start] > 1);
        let removed_len = if has_other_options {
            let pad_len = (padding + range_of_option.len()) & 7;
            replace(
                frame,
                range_of_option.start..range_of_option.end + padding,
                &PADDING[pad_len][..pad_len],
            );
            let removed_len = range_of_option.len() + padding - pad_len;
            frame[self.l4 + 1] = frame[self.l4 + 1].wrapping_sub((removed_len / 8) as u8);
            removed_len
        } else {
            frame[self.ip + NEXT_HEADER] = frame[self.l4];
            replace(frame, self.l4..self.body(), &[]);
            self.l4_len
        };
        self.set_ip_len(frame, old_ip_len - removed_len);
    }

    /// Returns whether the checksums have their old value after INT was inserted and stripped. An updated IPv4 or TCP checksum
    /// is never all-ones, the other form of zero, and that of UDP is never 0. `wrapped` means that INT is inserted before L4.
    pub(crate) fn checksums_can_be_restored(&self, frame: &[u8], wrapped: bool) -> bool {
        let ip = ipv4::Packet::new_checked(&frame[self.ip..]).map(|header| header.checksum());
        let l4 = tcp::Packet::new_checked(&frame[self.l4..]).map(|header| header.checksum());
        let is_tcp = self.proto == TCP && !wrapped;
        (self.v6 || ip != Ok(0xffff)) && !(is_tcp && l4 == Ok(0xffff))
    }

    /// Inserts `len` bytes at `at`, an even offset after the L4 header: `fill` writes them, and `change` modifies the bytes
    /// from `from` up to `at`. Updates lengths and checksums.
    #[inline]
    pub(crate) fn grow(
        &self,
        frame: &mut Vec<u8>,
        from: usize,
        at: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        change: impl FnOnce(&mut [u8]),
    ) {
        let old_frame_len = frame.len();
        frame.resize(old_frame_len + len, 0);
        frame.copy_within(at..old_frame_len, at + len);
        let old_sum = sum(&frame[from..at]);
        fill(&mut frame[at..at + len]);
        change(&mut frame[from..at]);
        let new_sum = sum(&frame[from..at + len]);
        let (old_len, new_len) = self.lengthen(frame, len);
        if self.proto == UDP
            && let Ok(mut header) = udp::Packet::new_checked(&mut frame[self.l4..])
        {
            header.set_len(header.len().wrapping_add(len as u16));
            self.update_l4(
                frame,
                &[(old_sum, new_sum), (old_len, new_len), (old_len, new_len)],
            );
        } else {
            self.update_l4(frame, &[(old_sum, new_sum), (old_len, new_len)]);
        }
    }

    /// Increases the length of the IP packet and updates the IPv4 checksum. Returns the length field before and after.
    #[inline]
    fn lengthen(&self, frame: &mut [u8], by: usize) -> (u16, u16) {
        let rest = &mut frame[self.ip..];
        if self.v6 {
            if let Ok(mut header) = ipv6::Packet::new_checked(rest) {
                let old_len = header.payload_len();
                header.set_payload_len(old_len.wrapping_add(by as u16));
                return (old_len, old_len.wrapping_add(by as u16));
            }
        } else if let Ok(mut header) = ipv4::Packet::new_checked(rest) {
            let old_len = header.total_len();
            let new_len = old_len.wrapping_add(by as u16);
            header.set_total_len(new_len);
            header.set_checksum(checksum::update(header.checksum(), old_len, new_len));
            return (old_len, new_len);
        }
        (0, 0)
    }

    /// Changes the bytes of `range` in place, and updates the L4 checksum. `range` lies after the L4 header, at an even offset
    /// from it.
    pub(crate) fn change<T>(
        &self,
        frame: &mut [u8],
        range: Range<usize>,
        change: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        if self.has_option() {
            return change(&mut frame[range]);
        }
        let old_sum = sum(&frame[range.clone()]);
        let result = change(&mut frame[range.clone()]);
        let new_sum = sum(&frame[range]);
        self.update_l4(frame, &[(old_sum, new_sum)]);
        result
    }

    /// Inserts a UDP header with destination port `port`, followed by `body`, between the IP header and L4 (NPT 2).
    pub(crate) fn insert_udp(&self, frame: &mut Vec<u8>, port: u16, body: &[u8]) {
        let len = self.ip_len(frame) + udp::HEADER_LEN + body.len();
        let entropy = sum(&frame[self.l4..self.l4 + 4]) & 0x3fff; // Entropy from the original ports.
        let udp_len = (self.ip + len - self.l4) as u16;
        let header = udp::Repr {
            src_port: 0xc000 | entropy,
            dst_port: port,
            len: udp_len,
            checksum: 0,
        };
        replace(frame, self.l4..self.l4, body);
        replace(frame, self.l4..self.l4, &[0; udp::HEADER_LEN]);
        header.emit(&mut frame[self.l4..]);
        self.set_proto(frame, UDP);
        self.set_ip_len(frame, len);
        fill_l4(frame, self.ip, self.l4, UDP, usize::from(udp_len));
    }

    /// Removes the inserted UDP header and all bytes up to `end`, and restores the packet's protocol.
    pub(crate) fn remove_udp(&self, frame: &mut Vec<u8>, end: usize, proto: u8) {
        let len = self.ip_len(frame) - (end - self.l4);
        replace(frame, self.l4..end, &[]);
        self.set_proto(frame, proto);
        self.set_ip_len(frame, len);
    }

    fn set_ip_len(&self, frame: &mut [u8], len: usize) {
        let rest = &mut frame[self.ip..];
        if self.v6 {
            if let Ok(mut header) = ipv6::Packet::new_checked(rest) {
                header.set_payload_len((len - ipv6::HEADER_LEN) as u16);
            }
        } else if let Ok(mut header) = ipv4::Packet::new_checked(rest) {
            header.set_total_len(len as u16);
            header.fill_checksum();
        }
    }

    /// Sets the protocol. The caller changes the length too, which updates the IPv4 checksum.
    fn set_proto(&self, frame: &mut [u8], proto: u8) {
        let rest = &mut frame[self.ip..];
        if self.v6 {
            if let Ok(mut header) = ipv6::Packet::new_checked(rest) {
                header.set_next_header(proto);
            }
        } else if let Ok(mut header) = ipv4::Packet::new_checked(rest) {
            header.set_proto(proto);
        }
    }

    /// Updates the L4 checksum after covered sums changed from the first to the second of each pair; a wrong checksum stays
    /// wrong. A UDP checksum of 0 (none) stays 0, and a result of 0 is written as 0xffff. No other result is 0xffff, so
    /// removing the inserted bytes restores the checksum.
    /// removing the inserted bytes restores the checksum.
    #[inline]
    fn update_l4(&self, frame: &mut [u8], changes: &[(u16, u16)]) {
        let rest = &mut frame[self.l4..];
        if self.proto == TCP {
            // Works without complete options too, which removing INT may truncate.
            if let Some(checksum) = tcp_checksum(rest) {
                *checksum = updated(u16::from_be_bytes(*checksum), changes).to_be_bytes();
            }
        } else if let Ok(mut header) = udp::Packet::new_checked(rest)
            && header.checksum() != 0
        {
            let sum = updated(header.checksum(), changes);
            header.set_checksum(if sum == 0 { 0xffff } else { sum });
        }
    }
}

/// Returns the EtherType after VLAN tags, and the offset of its payload, which may be the end of the frame.
pub(crate) fn network(frame: &[u8]) -> Option<(u16, usize)> {
    let mut ethertype = ethernet::Packet::new_checked(frame).ok()?.ethertype();
    let mut at = ethernet::HEADER_LEN;
    for _ in 0..MAX_TAGS {
        if !ethertype::is_tag(ethertype) {
            break;
        }
        ethertype = ethernet::Tag::parse(frame.get(at..)?).ok()?.ethertype;
        at += ethernet::TAG_LEN;
    }
    Some((ethertype, at))
}

/// Returns the options of the hop-by-hop header at `header`, which ends at `end`, as ranges of the frame; Pad1 has one byte.
/// Stops before the first option that extends beyond the end.
fn options(frame: &[u8], header: usize, end: usize) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = header + OPTION_HEAD;
    std::iter::from_fn(move || {
        let kind = *frame.get(at).filter(|_| at < end)?;
        let len = if kind == 0 {
            1
        } else {
            OPTION_HEAD + usize::from(*frame.get(at + 1)?)
        };
        let option = at..at + len;
        at = option.end;
        (option.end <= end).then_some(option)
    })
}

/// Returns the length of the padding at `at`; 0 if there is none.
fn padding(frame: &[u8], at: usize, end: usize) -> usize {
    match frame.get(at..end) {
        Some([0, rest @ ..]) => 1 + rest.iter().take_while(|byte| **byte == 0).count(),
        Some([1, len, rest @ ..]) if usize::from(*len) <= rest.len() => OPTION_HEAD + usize::from(*len),
        _ => 0,
    }
}

/// Returns the checksum field of a TCP header.
pub(crate) fn tcp_checksum(header: &mut [u8]) -> Option<&mut [u8; 2]> {
    header
        .get_mut(..tcp::HEADER_LEN)?
        .get_mut(TCP_CHECKSUM..)?
        .first_chunk_mut()
}

/// Returns `checksum` updated for covered sums that changed from the first to the second of each pair.
#[inline]
fn updated(checksum: u16, changes: &[(u16, u16)]) -> u16 {
    changes
        .iter()
        .fold(checksum, |sum, &(old, new)| checksum::update(sum, old, new))
}

/// Returns the one's complement sum of `bytes`, which begin at an even offset of the range that a checksum covers.
fn sum(bytes: &[u8]) -> u16 {
    !checksum::of(bytes)
}

/// Computes and writes the L4 checksum of a segment of `len` bytes, header included.
pub(crate) fn fill_l4(frame: &mut [u8], ip: usize, l4: usize, proto: u8, len: usize) {
    let (head, rest) = frame.split_at_mut(l4);
    let addresses = if head[ip] >> 4 == 6 {
        &head[ip + 8..ip + 40]
    } else {
        &head[ip + 12..ip + 20]
    };
    let segment = &mut rest[..len];
    if proto == UDP {
        if let Ok(mut header) = udp::Packet::new_checked(segment) {
            header.fill_checksum(addresses);
        }
    } else if let Ok(mut header) = tcp::Packet::new_checked(segment) {
        header.fill_checksum(addresses);
    }
}

fn replace(frame: &mut Vec<u8>, range: Range<usize>, with: &[u8]) {
    let old_frame_len = frame.len();
    let new_frame_len = old_frame_len - range.len() + with.len();
    if new_frame_len > old_frame_len {
        frame.resize(new_frame_len, 0);
    }
    frame.copy_within(range.end..old_frame_len, range.start + with.len());
    frame[range.start..range.start + with.len()].copy_from_slice(with);
    frame.truncate(new_frame_len);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_source_are_no_records() {
        let frame = testkit::vectors::bytes("int21_mx_src");
        let parsed = ParsedPacket::parse(&frame, &Profile::default()).unwrap();
        let carried = parsed.carried.unwrap();
        assert_eq!((carried.mode, carried.source_only), (Mode::Mx, 8));
        let stack = carried.records(&frame);
        assert_eq!((stack.count, stack.bytes.len()), (0, 0));
    }
}
