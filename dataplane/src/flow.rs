//! Hosts and traffic of the simulated fabric: addresses, flow specifications, departure patterns, and template frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::ethernet::{self, ethertype};
use wire::{FlowKey, ipv4, ipv6, tcp, udp};

use crate::packet::{UDP, fill_l4};

/// MAC and IP addresses of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// IPv4 address of the host.
    pub v4: Ipv4Addr,
    /// IPv6 address of the host.
    pub v6: Ipv6Addr,
}

impl Address {
    /// Returns the default addresses: 10.s.s.h, 2001:db8::s:h, and a locally administered MAC address with the same numbers.
    pub(crate) fn numbered(switch: usize, host: u32) -> Self {
        let [.., s1, s0] = (switch as u32).to_be_bytes();
        let [.., h1, h0] = host.to_be_bytes();
        Self {
            mac: [2, 0, s1, s0, h1, h0],
            v4: Ipv4Addr::new(10, s1 | h1 << 4, s0, h0),
            v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, switch as u16, host as u16),
        }
    }
}

/// A flow of identical packets between two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSpec {
    /// Node id of the sending host.
    pub from: u32,
    /// Node id of the receiving host.
    pub to: u32,
    /// IP version of the packets.
    pub family: Family,
    /// Transport protocol of the packets.
    pub transport: Transport,
    /// UDP or TCP source port.
    pub src_port: u16,
    /// UDP or TCP destination port.
    pub dst_port: u16,
    /// DSCP of the packets, 0 to 63. It must not be the INT mark where that is used.
    pub dscp: u8,
    /// Payload bytes after the UDP or TCP header.
    pub payload: u16,
    /// Departure times of the packets.
    pub pattern: Pattern,
    /// Earliest departure, true time, ns; a flow whose start has passed begins now.
    pub start: u64,
    /// True time from which no packet departs, ns.
    pub stop: u64,
}

impl FlowSpec {
    /// Returns a UDP flow over IPv4 that begins at once and never stops: 10 packets/s with 100 bytes of payload.
    pub fn new(from: u32, to: u32, src_port: u16, dst_port: u16) -> Self {
        Self {
            from,
            to,
            family: Family::V4,
            transport: Transport::Udp,
            src_port,
            dst_port,
            dscp: 0,
            payload: 100,
            pattern: Pattern::constant(10),
            start: 0,
            stop: u64::MAX,
        }
    }
}

/// Version of the Internet Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Internet Protocol version 4.
    V4,
    /// Internet Protocol version 6.
    V6,
}

/// Transport protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP, with a checksum.
    Udp,
    /// TCP headers only, without congestion control or retransmission.
    Tcp,
}

impl Transport {
    /// Returns the IP protocol number.
    pub fn number(self) -> u8 {
        match self {
            Self::Udp => 17,
            Self::Tcp => 6,
        }
    }
}

/// Departure times of the packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// No packets, except bursts that an action starts.
    Idle,
    /// One packet every `gap` ns.
    Constant {
        /// Time between packets, ns.
        gap: u64,
    },
    /// Independent departures, as a Poisson process.
    Poisson {
        /// Mean time between packets, ns.
        mean: u64,
    },
    /// Bursts: one packet every `gap` ns for `on` ns, then a pause of `off` ns.
    OnOff {
        /// Time between packets in a burst, ns.
        gap: u64,
        /// Length of a burst, ns (the mean, if `random`).
        on: u64,
        /// Pause between bursts, ns (the mean, if `random`).
        off: u64,
        /// Whether burst and pause lengths are exponentially distributed.
        random: bool,
    },
}

impl Pattern {
    /// Returns evenly spaced departures, `rate` packets/s; [`Pattern::Idle`] for 0.
    pub fn constant(rate: u64) -> Self {
        1_000_000_000u64
            .checked_div(rate)
            .map_or(Self::Idle, |gap| Self::Constant { gap: gap.max(1) })
    }

    /// Returns random departures, `rate` packets/s on average; [`Pattern::Idle`] for 0.
    pub fn poisson(rate: u64) -> Self {
        1_000_000_000u64
            .checked_div(rate)
            .map_or(Self::Idle, |mean| Self::Poisson { mean: mean.max(1) })
    }
}

/// Returns a frame of a flow between hosts `from` and `to`, and the flow's key. The payload bytes count up from 0.
pub fn template(spec: &FlowSpec, from: &Address, to: &Address) -> (Vec<u8>, FlowKey) {
    let is_v6 = spec.family == Family::V6;
    let proto = spec.transport.number();
    let ip = ethernet::HEADER_LEN;
    let l4 = ip + if is_v6 { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN };
    let l4_header = if proto == UDP {
        udp::HEADER_LEN
    } else {
        tcp::HEADER_LEN
    };
    let length = l4_header as u16 + spec.payload;
    let mut frame = vec![0; l4 + usize::from(length)];
    let ethertype = if is_v6 { ethertype::IPV6 } else { ethertype::IPV4 };
    ethernet::Repr {
        dst: to.mac,
        src: from.mac,
        ethertype,
    }
    .emit(&mut frame);
    if is_v6 {
        ipv6::Repr {
            src: from.v6.octets(),
            dst: to.v6.octets(),
            next_header: proto,
            hop_limit: 64,
            traffic_class: spec.dscp << 2,
            flow_label: 0,
            payload_len: length,
        }
        .emit(&mut frame[ip..]);
    } else {
        const DO_NOT_FRAGMENT: u16 = 0x4000;
        ipv4::Repr {
            src: from.v4.octets(),
            dst: to.v4.octets(),
            proto,
            tos: spec.dscp << 2,
            total_len: length + ipv4::HEADER_LEN as u16,
            ident: 0,
            fragment: DO_NOT_FRAGMENT,
            ttl: 64,
            options: &[],
        }
        .emit(&mut frame[ip..]);
    }
    let src_port = spec.src_port;
    let dst_port = spec.dst_port;
    if proto == UDP {
        udp::Repr {
            src_port,
            dst_port,
            len: length,
            checksum: 0,
        }
        .emit(&mut frame[l4..]);
    } else {
        const ACK: u16 = 0x10;
        tcp::Repr {
            src_port,
            dst_port,
            seq: 1,
            ack: 1,
            flags: ACK,
            window: 0x2000,
            checksum: 0,
            urgent: 0,
            options: &[],
        }
        .emit(&mut frame[l4..]);
    }
    for (at, byte) in frame[l4 + l4_header..].iter_mut().enumerate() {
        *byte = at as u8;
    }
    fill_l4(&mut frame, ip, l4, proto, usize::from(length));
    let (src, dst): (IpAddr, IpAddr) = if is_v6 {
        (from.v6.into(), to.v6.into())
    } else {
        (from.v4.into(), to.v4.into())
    };
    (frame, FlowKey::new(src, dst, Some((src_port, dst_port)), proto))
}
