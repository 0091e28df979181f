//! A data packet as an INT switch handles it: where its headers are, what INT it carries, and how to change its length without
//! breaking lengths and checksums.

use std::net::IpAddr;
use std::ops::Range;

use wire::int::header::{self, Md2, Md10};
use wire::int::shim::{self, Shim1, Shim2};
use wire::int::{self, Encapsulation, Flags, Layout, Mark, Mode, Original};
use wire::{FlowKey, Profile, Refusal};

use crate::checksum;
use crate::fabric::{Address, Family, FlowSpec};

/// IP protocol number of TCP.
pub(crate) const TCP: u8 = 6;
/// IP protocol number of UDP.
pub(crate) const UDP: u8 = 17;

/// What a switch sees in a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// The flow, as it was before INT.
    pub(crate) flow: Option<FlowKey>,
    /// Headers that INT can be put behind; `None` for fragments and other protocols.
    pub(crate) headers: Option<Headers>,
    /// INT that this switch can handle.
    pub(crate) carried: Option<Carried>,
    /// It carries INT of a kind that this switch leaves alone.
    pub(crate) foreign: bool,
}

/// A packet's INT, as values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    pub(crate) headers: Headers,
    pub(crate) version: int::Version,
    pub(crate) mode: Mode,
    pub(crate) mark: Mark,
    pub(crate) original: Original,
    pub(crate) flags: Flags,
    pub(crate) hop_ml: u8,
    pub(crate) remaining: u8,
    pub(crate) bitmap: u16,
    /// DS ID, DS Instruction, DS Flags (2.x).
    domain: [u16; 3],
    /// Replication request and reserved bits (1.0).
    replication: u8,
    pub(crate) layout: Layout,
    /// Words of header and stack.
    pub(crate) int_words: u8,
    /// Where the shim begins.
    pub(crate) shim: usize,
    /// Where INT ends.
    pub(crate) end: usize,
}

impl Seen {
    /// Looks at a packet from its Ethernet header on.
    ///
    /// # Errors
    /// What [`int::packet`] refuses: INT or IP headers that contradict themselves.
    pub(crate) fn of(frame: &[u8], profile: &Profile) -> Result<Self, Refusal> {
        let contents = int::packet(frame, profile)?;
        let mut seen =
            Self { flow: contents.flow, headers: None, carried: None, foreign: contents.destination };
        let (Some(int), Some(place)) = (contents.int, contents.place) else {
            seen.headers = Headers::find(frame);
            return Ok(seen);
        };
        let proto = match place.encapsulation {
            Encapsulation::Udp => UDP,
            Encapsulation::Tcp => TCP,
            _ => 0,
        };
        let ours = proto != 0
            && place.mark != Mark::Probe
            && matches!((int.version, int.mode), (int::Version::V2, _) | (int::Version::V10, Mode::Md));
        if !ours {
            seen.foreign = true;
            return Ok(seen);
        }
        let headers = Headers::at(frame, place.ip, place.l4, proto);
        let head = &frame[place.header..place.stack];
        seen.headers = Some(headers);
        seen.carried = Some(Carried {
            headers,
            version: int.version,
            mode: int.mode,
            mark: place.mark,
            original: place.original,
            flags: int.flags,
            hop_ml: int.hop_ml,
            remaining: int.remaining,
            bitmap: int.bitmap,
            domain: [int.ds_id, int.ds_instruction, int.ds_flags],
            replication: header::replication(head),
            layout: int.stack.layout,
            int_words: ((place.end - place.header) / 4) as u8, // the shim's 8-bit length says so
            shim: place.start,
            end: place.end,
        });
        Ok(seen)
    }
}

impl Carried {
    /// The shim's length field can count `more` further bytes.
    pub(crate) fn holds(&self, more: usize) -> bool {
        let shim = if self.version == int::Version::V10 { shim::LEN / 4 } else { 0 };
        usize::from(self.int_words) + shim + more / 4 <= 0xff
    }

    /// Writes shim and metadata header and tells their length.
    pub(crate) fn emit(&self, out: &mut [u8]) -> usize {
        let (shim, head) = out.split_at_mut(shim::LEN);
        let Self { flags, hop_ml, remaining, bitmap, .. } = *self;
        if self.version == int::Version::V10 {
            let length = self.int_words + (shim::LEN / 4) as u8;
            Shim1 { kind: 1, length, last: self.original.dscp.unwrap_or(0) << 2 }.emit(shim);
            let replication = self.replication;
            Md10 {
                flags,
                replication,
                hop_ml,
                remaining,
                bitmap,
                reserved: self.domain[0],
                version_zero: false,
            }
            .emit(head);
            return shim::LEN + header::LEN_1;
        }
        let next = match (self.original.port, self.original.proto) {
            (Some(port), _) => shim::Next::Port(port),
            (None, Some(proto)) => shim::Next::Protocol(proto),
            (None, None) => shim::Next::Dscp(self.original.dscp.unwrap_or(0)),
        };
        let kind = if self.mode == Mode::Mx { Shim2::MX } else { Shim2::MD };
        Shim2 { kind, length: self.int_words, next }.emit(shim);
        let [ds_id, ds_instruction, ds_flags] = self.domain;
        Md2 { flags, hop_ml, remaining, bitmap, ds_id, ds_instruction, ds_flags }.emit(head);
        shim::LEN + header::LEN_2
    }
}

/// Where the headers are that INT can be put behind: IPv4 or IPv6 over Ethernet, VLAN tags stepped over, then UDP or TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headers {
    pub(crate) ip: usize,
    pub(crate) v6: bool,
    pub(crate) l4: usize,
    pub(crate) proto: u8,
    /// DSCP, six bits.
    pub(crate) dscp: u8,
}

/// Offsets of the fields that INT changes.
mod field {
    pub(super) const V4_LEN: usize = 2;
    pub(super) const V4_PROTO: usize = 9;
    pub(super) const V4_CHECKSUM: usize = 10;
    pub(super) const V6_LEN: usize = 4;
    pub(super) const V6_NEXT: usize = 6;
    pub(super) const UDP_DPORT: usize = 2;
    pub(super) const UDP_LEN: usize = 4;
    pub(super) const UDP_CHECKSUM: usize = 6;
    pub(super) const TCP_CHECKSUM: usize = 16;
}

fn get(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

fn put(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

impl Headers {
    /// Bytes of a UDP header.
    pub(crate) const UDP_LEN: usize = 8;
    const TCP_LEN: usize = 20;

    fn find(frame: &[u8]) -> Option<Self> {
        let mut at = 12;
        loop {
            match u16::from_be_bytes(*frame.get(at..)?.first_chunk()?) {
                0x8100 | 0x88a8 => at += 4,
                0x0800 => break,
                0x86dd => break,
                _ => return None,
            }
        }
        let ip = at + 2;
        let first = *frame.get(ip)?;
        let (l4, proto) = if first >> 4 == 6 {
            (ip + 40, *frame.get(ip + field::V6_NEXT)?)
        } else {
            if get(frame.get(ip..ip + 20)?, 6) & 0x3fff != 0 {
                return None;
            }
            (ip + usize::from(first & 15) * 4, frame[ip + field::V4_PROTO])
        };
        let len = match proto {
            UDP => Self::UDP_LEN,
            TCP => Self::TCP_LEN,
            _ => return None,
        };
        (frame.len() >= l4 + len).then(|| Self::at(frame, ip, l4, proto))
    }

    fn at(frame: &[u8], ip: usize, l4: usize, proto: u8) -> Self {
        let v6 = frame[ip] >> 4 == 6;
        let dscp = if v6 { (get(frame, ip) >> 6 & 0x3f) as u8 } else { frame[ip + 1] >> 2 };
        Self { ip, v6, l4, proto, dscp }
    }

    /// Where the shim goes: behind UDP, or the fixed part of TCP.
    pub(crate) fn body(&self) -> usize {
        self.l4 + if self.proto == UDP { Self::UDP_LEN } else { Self::TCP_LEN }
    }

    /// Length of the IP packet, header included.
    pub(crate) fn ip_len(&self, frame: &[u8]) -> usize {
        if self.v6 {
            usize::from(get(frame, self.ip + field::V6_LEN)) + 40
        } else {
            usize::from(get(frame, self.ip + field::V4_LEN))
        }
    }

    /// Destination port.
    pub(crate) fn dport(&self, frame: &[u8]) -> u16 {
        get(frame, self.l4 + field::UDP_DPORT)
    }

    /// Sets the destination port.
    pub(crate) fn set_dport(&self, frame: &mut [u8], port: u16) {
        let old = self.dport(frame);
        put(frame, self.l4 + field::UDP_DPORT, port);
        self.adjust_l4(frame, old, port);
    }

    /// Sets the DSCP and leaves the ECN bits.
    pub(crate) fn set_dscp(&self, frame: &mut [u8], dscp: u8) {
        let old = get(frame, self.ip);
        let new = if self.v6 {
            old & !(0x3f << 6) | u16::from(dscp) << 6
        } else {
            old & !(0x3f << 2) | u16::from(dscp) << 2
        };
        self.set_ip(frame, 0, new);
    }

    /// Replaces the bytes of `range`, which lies behind the L4 header, and mends lengths and checksums.
    pub(crate) fn splice(&self, frame: &mut Vec<u8>, range: Range<usize>, with: &[u8]) {
        let old = checksum::sum(&frame[range.clone()]);
        let before = frame.len();
        replace(frame, range, with);
        let (l4_old, l4_new) = self.resize(frame, before);
        self.adjust_l4(frame, checksum::add(old, l4_old), checksum::add(checksum::sum(with), l4_new));
    }

    /// Puts a UDP header to `port` and `body` between the IP header and L4 (NPT 2).
    pub(crate) fn wrap(&self, frame: &mut Vec<u8>, port: u16, body: &[u8]) {
        let ip_end = self.ip + self.ip_len(frame);
        let udp_len = (ip_end - self.l4 + Self::UDP_LEN + body.len()) as u16;
        let sport = 0xc000 | (checksum::sum(&frame[self.l4..self.l4 + 4]) & 0x3fff); // entropy of the original ports
        let mut head = [0; Self::UDP_LEN];
        put(&mut head, 0, sport);
        put(&mut head, field::UDP_DPORT, port);
        put(&mut head, field::UDP_LEN, udp_len);
        let pseudo = self.pseudo_sum(frame, UDP, udp_len);
        let sum =
            [&head, body, &frame[self.l4..ip_end]].into_iter().map(checksum::sum).fold(pseudo, checksum::add);
        put(&mut head, field::UDP_CHECKSUM, if sum == 0xffff { 0xffff } else { !sum });
        let before = frame.len();
        replace(frame, self.l4..self.l4, body);
        replace(frame, self.l4..self.l4, &head);
        self.resize(frame, before);
        self.set_proto(frame, UDP);
    }

    /// Removes everything from the (inserted) UDP header up to `end` and gives the packet its protocol back.
    pub(crate) fn unwrap(&self, frame: &mut Vec<u8>, end: usize, proto: u8) {
        let before = frame.len();
        replace(frame, self.l4..end, &[]);
        self.resize_ip(frame, before);
        self.set_proto(frame, proto);
    }

    /// Mends IP and UDP lengths after the frame's length has changed, and tells the sums of what the L4 checksum covers of
    /// them, before and after.
    fn resize(&self, frame: &mut [u8], before: usize) -> (u16, u16) {
        let (old, new) = self.resize_ip(frame, before);
        if self.proto != UDP {
            return (old, new); // in the pseudo header alone; the L4 length differs by as much as the IP length
        }
        let at = self.l4 + field::UDP_LEN;
        let length = get(frame, at);
        let resized = length.wrapping_add(new.wrapping_sub(old));
        put(frame, at, resized);
        (checksum::add(length, length), checksum::add(resized, resized))
    }

    fn resize_ip(&self, frame: &mut [u8], before: usize) -> (u16, u16) {
        let at = if self.v6 { field::V6_LEN } else { field::V4_LEN };
        let old = get(frame, self.ip + at);
        let new = (usize::from(old) + frame.len()).wrapping_sub(before) as u16;
        self.set_ip(frame, at, new);
        (old, new)
    }

    fn set_proto(&self, frame: &mut [u8], proto: u8) {
        let (at, shift) = if self.v6 { (field::V6_NEXT, 8) } else { (field::V4_PROTO - 1, 0) };
        let word = get(frame, self.ip + at) & !(0xff << shift) | u16::from(proto) << shift;
        self.set_ip(frame, at, word);
    }

    /// Sets a word of the IP header and mends its checksum.
    fn set_ip(&self, frame: &mut [u8], at: usize, word: u16) {
        let old = get(frame, self.ip + at);
        put(frame, self.ip + at, word);
        if !self.v6 {
            let at = self.ip + field::V4_CHECKSUM;
            let mended = checksum::adjust(get(frame, at), old, word);
            put(frame, at, mended);
        }
    }

    /// Sum of the pseudo header.
    fn pseudo_sum(&self, frame: &[u8], proto: u8, l4_len: u16) -> u16 {
        let addresses = if self.v6 { self.ip + 8..self.ip + 40 } else { self.ip + 12..self.ip + 20 };
        checksum::add(checksum::sum(&frame[addresses]), checksum::add(u16::from(proto), l4_len))
    }

    /// Writes the L4 checksum of a packet that has none yet.
    fn fill_l4(&self, frame: &mut [u8]) {
        let pseudo = self.pseudo_sum(frame, self.proto, (frame.len() - self.l4) as u16);
        let sum = checksum::add(pseudo, checksum::sum(&frame[self.l4..]));
        let at = self.l4 + if self.proto == UDP { field::UDP_CHECKSUM } else { field::TCP_CHECKSUM };
        put(frame, at, if sum == 0xffff && self.proto == UDP { 0xffff } else { !sum });
    }

    /// Mends the L4 checksum. A UDP checksum of 0 (none) stays 0, and one that comes out as 0 is written as 0xffff. Nothing
    /// else comes out as 0xffff, so that taking out what was put in gives the same checksum back.
    fn adjust_l4(&self, frame: &mut [u8], old: u16, new: u16) {
        let at = self.l4 + if self.proto == UDP { field::UDP_CHECKSUM } else { field::TCP_CHECKSUM };
        let checksum = get(frame, at);
        if self.proto == UDP && checksum == 0 {
            return;
        }
        let mended = match (checksum::adjust(checksum, old, new), self.proto) {
            (0, UDP) => 0xffff,
            (mended, _) => mended,
        };
        put(frame, at, mended);
    }
}

fn replace(frame: &mut Vec<u8>, range: Range<usize>, with: &[u8]) {
    let before = frame.len();
    let after = before - range.len() + with.len();
    if after > before {
        frame.resize(after, 0);
    }
    frame.copy_within(range.end..before, range.start + with.len());
    frame[range.start..range.start + with.len()].copy_from_slice(with);
    frame.truncate(after);
}

/// A frame of a flow, and the flow's key. Addresses are those of the hosts, the payload counts up.
pub(crate) fn template(spec: &FlowSpec, from: &Address, to: &Address) -> (Vec<u8>, FlowKey) {
    let (src, dst): (IpAddr, IpAddr) = match spec.family {
        Family::V4 => (from.v4.into(), to.v4.into()),
        Family::V6 => (from.v6.into(), to.v6.into()),
    };
    let proto = spec.transport.number();
    let l4_len = if proto == UDP { Headers::UDP_LEN } else { Headers::TCP_LEN };
    let length = l4_len as u16 + spec.payload;
    let mut frame = Vec::new();
    frame.extend_from_slice(&to.mac);
    frame.extend_from_slice(&from.mac);
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            frame.extend_from_slice(&[8, 0, 0x45, spec.dscp << 2]);
            frame.extend_from_slice(&(length + 20).to_be_bytes());
            frame.extend_from_slice(&[0, 0, 0x40, 0, 64, proto, 0, 0]);
            frame.extend_from_slice(&src.octets());
            frame.extend_from_slice(&dst.octets());
            let sum = checksum::sum(&frame[14..34]);
            put(&mut frame, 14 + field::V4_CHECKSUM, !sum);
        }
        _ => {
            frame.extend_from_slice(&[0x86, 0xdd, 0x60 | spec.dscp >> 2, spec.dscp << 6, 0, 0]);
            frame.extend_from_slice(&length.to_be_bytes());
            frame.extend_from_slice(&[proto, 64]);
            frame.extend_from_slice(&from.v6.octets());
            frame.extend_from_slice(&to.v6.octets());
        }
    }
    let l4 = frame.len();
    frame.extend_from_slice(&spec.sport.to_be_bytes());
    frame.extend_from_slice(&spec.dport.to_be_bytes());
    if proto == UDP {
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(&[0, 0]);
    } else {
        frame.extend_from_slice(&[0, 0, 3, 0xe8, 0, 0, 7, 0xd0, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
    }
    frame.extend((0..spec.payload).map(|byte| byte as u8));
    let headers = Headers::at(&frame, 14, l4, proto);
    headers.fill_l4(&mut frame);
    (frame, FlowKey::new(src, dst, Some((spec.sport, spec.dport)), proto))
}
