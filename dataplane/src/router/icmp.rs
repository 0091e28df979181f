//! ICMP and ICMPv6 errors for packets that the router cannot forward (RFC 792, RFC 1191, RFC 4443).

use std::net::IpAddr;

use wire::{checksum, ethernet, ipv4, ipv6};

use super::packet::{self, ICMP, ICMPV6, Ip};
use super::{LOCAL, Router, Wires};

/// Maximum length of an error's IP packet, which every host accepts (RFC 1812, section 4.3.2.3; RFC 4443, section 2.4).
const LONGEST_4: usize = 576;
const LONGEST_6: usize = 1280;
const ICMP_HEADER: usize = 8;

/// The reason why a packet cannot be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    TimeExceeded,
    NoRoute,
    Unreachable,
    TooBig { mtu: u16 },
}

impl Reason {
    /// Returns the type, the code and the four bytes after the checksum.
    fn fields(self, v6: bool) -> (u8, u8, u32) {
        match (self, v6) {
            (Self::TimeExceeded, false) => (11, 0, 0),
            (Self::TimeExceeded, true) => (3, 0, 0),
            (Self::NoRoute, false) => (3, 0, 0),
            (Self::NoRoute, true) => (1, 0, 0),
            (Self::Unreachable, false) => (3, 1, 0),
            (Self::Unreachable, true) => (1, 3, 0),
            (Self::TooBig { mtu }, false) => (3, 4, u32::from(mtu)),
            (Self::TooBig { mtu }, true) => (2, 0, u32::from(mtu)),
        }
    }
}

/// Rate limit of ICMP errors, a token bucket: 1000 per second, bursts of 100.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateLimit {
    /// Tokens, in nanoseconds; an error costs [`Self::EACH`].
    saved: u64,
    at: u64,
}

impl RateLimit {
    /// Cost of an error, ns: one token per millisecond permits 1000 errors per second.
    const EACH: u64 = 1_000_000;
    const MAX_SAVED: u64 = 100 * Self::EACH;

    fn spend(&mut self, now: u64) -> bool {
        self.saved = self
            .saved
            .saturating_add(now.saturating_sub(self.at))
            .min(Self::MAX_SAVED);
        self.at = self.at.max(now);
        let enough = self.saved >= Self::EACH;
        self.saved -= if enough { Self::EACH } else { 0 };
        enough
    }
}

impl Default for RateLimit {
    fn default() -> Self {
        Self {
            saved: Self::MAX_SAVED,
            at: 0,
        }
    }
}

impl Router {
    /// Sends an ICMP error about the packet in `slot` to its sender, if RFC 1812 permits one and the rate limit is not reached.
    pub(super) fn error(&mut self, slot: u32, from: usize, ip: &Ip, reason: Reason, out: &mut dyn Wires) {
        let bytes = &self.frames[slot as usize].bytes;
        if self.frames[slot as usize].from == LOCAL
            || ip.is_later_fragment
            || is_error(bytes, ip)
            || ip.is_not_forwarded()
        {
            return;
        }
        if !self.icmp_limit.spend(self.now) {
            self.stats.errors_suppressed += 1;
            return;
        }
        // The error quotes the packet as its sender sent it: without INT.
        let bare = self.switch.without_int(bytes);
        let quoted = bare.as_deref().unwrap_or(bytes);
        let Some(of) = packet::ip_of(quoted) else { return };
        let frame = match ip.src {
            IpAddr::V4(_) => error_4(quoted, &of, self.config.address.octets(), reason),
            IpAddr::V6(_) => error_6(quoted, &of, self.config.address6.octets(), reason),
        };
        let Some((to, next)) = self
            .choose_route(&self.frames[slot as usize].bytes, ip.src)
            .or(Some((from, ip.src)))
        else {
            return;
        };
        self.originate(&frame, to, Some(next), out);
    }

    /// Sends a frame that the router originates, to the neighbour `next`; `None` means that its MAC addresses are already
    /// written. Returns `false` if too many frames are queued.
    pub(super) fn originate(
        &mut self,
        frame: &[u8],
        to: usize,
        next: Option<IpAddr>,
        out: &mut dyn Wires,
    ) -> bool {
        let Some(slot) = self.enqueue_frame(frame, LOCAL, self.now) else {
            return false;
        };
        self.stats.originated += 1;
        match next {
            Some(next) => self.forward(slot, to, next, out),
            None => self.enqueue(slot, to, super::Direction::Out, out),
        }
        true
    }
}

/// Returns whether a packet is an ICMP error, which must not cause another one (RFC 1122, section 3.2.2).
fn is_error(frame: &[u8], ip: &Ip) -> bool {
    let kind = frame.get(ip.at + ip.header).copied();
    match ip.proto {
        ICMP => !kind.is_some_and(|kind| matches!(kind, 0 | 8 | 13 | 14)),
        ICMPV6 => kind.is_none_or(|kind| kind < 128),
        _ => false,
    }
}

/// Returns a frame for an error, and the number of quoted bytes: the Ethernet header and tags of the received packet (its
/// addresses are written later), space for the headers, and the quoted packet, cut so that the error has at most `longest`
/// bytes.
fn start(frame: &[u8], of: &Ip, longest: usize, header: usize) -> (Vec<u8>, usize) {
    let kept = of.len.min(longest - header - ICMP_HEADER);
    let mut error = frame[..of.at].to_vec();
    error.resize(of.at + header + ICMP_HEADER, 0);
    error.extend_from_slice(&frame[of.at..of.at + kept]);
    (error, kept)
}

/// Writes type, code and the four bytes after the checksum of an ICMP or ICMPv6 error (RFC 792, RFC 4443).
fn write(icmp: &mut [u8], reason: Reason, v6: bool) {
    let (kind, code, rest) = reason.fields(v6);
    icmp[0] = kind;
    icmp[1] = code;
    icmp[4..8].copy_from_slice(&rest.to_be_bytes());
}

fn error_4(frame: &[u8], of: &Ip, src: [u8; 4], reason: Reason) -> Vec<u8> {
    let (mut error, kept) = start(frame, of, LONGEST_4, ipv4::HEADER_LEN);
    let ip = of.at;
    let IpAddr::V4(dst) = of.src else { return error };
    let total_len = (ipv4::HEADER_LEN + ICMP_HEADER + kept) as u16;
    // Precedence 6, internetwork control (RFC 1812, section 4.3.2.5).
    let header = ipv4::Repr {
        src,
        dst: dst.octets(),
        proto: ICMP,
        tos: 0xc0,
        total_len,
        ident: 0,
        fragment: 0,
        ttl: 64,
        options: &[],
    };
    header.emit(&mut error[ip..]);
    let icmp = &mut error[ip + ipv4::HEADER_LEN..];
    write(icmp, reason, false);
    let sum = checksum::of(icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    error
}

fn error_6(frame: &[u8], of: &Ip, src: [u8; 16], reason: Reason) -> Vec<u8> {
    let (mut error, kept) = start(frame, of, LONGEST_6, ipv6::HEADER_LEN);
    let ip = of.at;
    let IpAddr::V6(dst) = of.src else { return error };
    let payload_len = (ICMP_HEADER + kept) as u16;
    write(&mut error[ip + ipv6::HEADER_LEN..], reason, true);
    emit_6(&mut error, ip, src, dst.octets(), payload_len, 64);
    error
}

/// Writes the IPv6 header before an ICMPv6 message, and the checksum of the message.
pub(super) fn emit_6(
    frame: &mut [u8],
    ip: usize,
    src: [u8; 16],
    dst: [u8; 16],
    payload_len: u16,
    hop_limit: u8,
) {
    let header = ipv6::Repr {
        src,
        dst,
        next_header: ICMPV6,
        hop_limit,
        traffic_class: 0,
        flow_label: 0,
        payload_len,
    };
    header.emit(&mut frame[ip..]);
    let (head, icmp) = frame.split_at_mut(ip + ipv6::HEADER_LEN);
    let sum = checksum::transport(&head[ip + 8..], ICMPV6, icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
}

pub(super) fn ethernet_header(dst: [u8; 6], src: [u8; 6], ethertype: u16, len: usize) -> Vec<u8> {
    let mut frame = vec![0; ethernet::HEADER_LEN + len];
    ethernet::Repr { dst, src, ethertype }.emit(&mut frame);
    frame
}
