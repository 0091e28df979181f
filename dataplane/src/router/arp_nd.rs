//! ARP (RFC 826) and neighbour discovery (RFC 4861) on edge ports: proxy replies, requests for hosts, and learning.
//!
//! The router has no IP address on the link. It replies to a request for any address with the port's MAC address, so hosts may
//! use any gateway address, or none. It does not reply to requests for the requester's own address (gratuitous ARP, duplicate
//! address detection) or for a neighbour that is known on the same link.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::ethernet::{self, ethertype};
use wire::{checksum, ipv6};

use super::icmp::{self, Reason};
use super::packet::{self, ARP, ICMPV6, Ip};
use super::stats::Drop;
use super::{Router, Wires, neighbours};

/// Length of an ARP packet for Ethernet and IPv4.
const ARP_LEN: usize = 28;
/// First bytes of such a packet: hardware type Ethernet, protocol type IPv4, address lengths 6 and 4.
const ARP_HEAD: [u8; 6] = [0, 1, 8, 0, 6, 4];
// ARP operations (RFC 826).
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

// ICMPv6 types of neighbour discovery (RFC 4861, section 4).
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Hop limit of neighbour discovery: any other value means that the message was forwarded by a router.
const UNFORWARDED: u8 = 255;
/// Length of a solicitation or advertisement before its options.
const DISCOVERY_LEN: usize = 24;
/// Length of an option with an Ethernet address: type, length in units of eight bytes, address.
const OPTION_LEN: usize = 8;
// Option types: source and target link-layer address.
const SOURCE_OPTION: u8 = 1;
const TARGET_OPTION: u8 = 2;

/// Returns whether a packet is a neighbour solicitation or advertisement.
pub(super) fn is_discovery(frame: &[u8], ip: &Ip) -> bool {
    ip.proto == ICMPV6
        && ip.dst.is_ipv6()
        && matches!(
            frame.get(ip.at + ip.header),
            Some(&(SOLICITATION | ADVERTISEMENT))
        )
}

impl Router {
    /// Handles an ARP packet from a host, at offset `at` of the frame.
    pub(super) fn arp(&mut self, slot: u32, port: usize, at: usize, out: &mut dyn Wires) {
        let bytes = &self.frames[slot as usize].bytes;
        let Some(arp) = bytes.get(at..at + ARP_LEN).filter(|arp| arp[..6] == ARP_HEAD) else {
            return self.discard(slot, port, Drop::Malformed);
        };
        let mac: [u8; 6] = std::array::from_fn(|i| arp[8 + i]);
        let sender = Ipv4Addr::new(arp[14], arp[15], arp[16], arp[17]);
        let target = Ipv4Addr::new(arp[24], arp[25], arp[26], arp[27]);
        let operation = u16::from_be_bytes([arp[6], arp[7]]);
        if !packet::is_host(mac) {
            return self.discard(slot, port, Drop::Malformed);
        }
        let replies = operation == REQUEST
            && !sender.is_unspecified()
            && sender != target
            && !target.is_multicast()
            && !target.is_broadcast()
            && !self.neighbours.is_other(port as u16, target.into(), mac);
        let reply = replies.then(|| {
            let ours = self.config.ports[port].mac;
            // The reply keeps the VLAN tags of the request.
            let mut reply = bytes[..at].to_vec();
            packet::set_macs(&mut reply, mac, ours);
            reply.extend(arp_packet(REPLY, (ours, target), (mac, sender)));
            reply
        });
        if !sender.is_unspecified() && !sender.is_multicast() && !sender.is_broadcast() {
            self.learn(port, sender.into(), mac, operation != REPLY, out);
        }
        self.consume(slot);
        if let Some(reply) = reply {
            self.originate(&reply, port, None, out);
        }
    }

    /// Handles a neighbour solicitation or advertisement from a host.
    pub(super) fn discovery(&mut self, slot: u32, port: usize, ip: &Ip, out: &mut dyn Wires) {
        let bytes = &self.frames[slot as usize].bytes;
        let (head, message) = bytes[..ip.at + ip.len].split_at(ip.at + ip.header);
        let good = ip.hops == UNFORWARDED
            && message.len() >= DISCOVERY_LEN
            && message[1] == 0
            && checksum::transport(&head[ip.at + 8..], ICMPV6, message) == 0;
        let (IpAddr::V6(src), true) = (ip.src, good) else {
            return self.discard(slot, port, Drop::Malformed);
        };
        let target = Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| message[8 + i]));
        let solicited = message[0] == SOLICITATION;
        let option = option(
            &message[DISCOVERY_LEN..],
            if solicited { SOURCE_OPTION } else { TARGET_OPTION },
        );
        let mac = option
            .or_else(|| packet::source_mac(bytes))
            .filter(|mac| packet::is_host(*mac));
        let Some(mac) = mac else {
            return self.discard(slot, port, Drop::Malformed);
        };
        let replies = solicited
            && !src.is_unspecified()
            && !target.is_multicast()
            && !self.neighbours.is_other(port as u16, target.into(), mac);
        let tags = bytes[..ip.at].to_vec();
        let about = if solicited { src } else { target };
        if !about.is_unspecified() && !about.is_multicast() {
            self.learn(port, about.into(), mac, solicited, out);
        }
        self.consume(slot);
        if replies {
            let advertisement = self.advertisement(tags, port, mac, src, target);
            self.originate(&advertisement, port, None, out);
        }
    }

    fn advertisement(
        &self,
        mut frame: Vec<u8>,
        port: usize,
        mac: [u8; 6],
        requester: Ipv6Addr,
        target: Ipv6Addr,
    ) -> Vec<u8> {
        /// Flags R (router) and S (solicited) of a Neighbor Advertisement (RFC 4861, section 4.4). O (override) is clear: only
        /// the true owner of the address may set it.
        const FLAGS: u8 = 0xc0;
        let ours = self.config.ports[port].mac;
        let ip = frame.len();
        packet::set_macs(&mut frame, mac, ours);
        frame.resize(ip + ipv6::HEADER_LEN + DISCOVERY_LEN + OPTION_LEN, 0);
        discovery_message(
            &mut frame[ip + ipv6::HEADER_LEN..],
            ADVERTISEMENT,
            FLAGS,
            target,
            ours,
        );
        let len = (DISCOVERY_LEN + OPTION_LEN) as u16;
        icmp::emit_6(
            &mut frame,
            ip,
            target.octets(),
            requester.octets(),
            len,
            UNFORWARDED,
        );
        frame
    }

    /// Sends an ARP request or neighbour solicitation for `address` by an edge port.
    pub(super) fn send_request(&mut self, port: usize, address: IpAddr, out: &mut dyn Wires) {
        let mac = self.config.ports[port].mac;
        let frame = match address {
            IpAddr::V4(target) => {
                // The sender address is 0.0.0.0, as in duplicate address detection: hosts reply, but learn no wrong address.
                let mut frame = icmp::ethernet_header([0xff; 6], mac, ARP, 0);
                frame.extend(arp_packet(
                    REQUEST,
                    (mac, Ipv4Addr::UNSPECIFIED),
                    ([0; 6], target),
                ));
                frame
            }
            IpAddr::V6(target) => solicitation(mac, target),
        };
        self.originate(&frame, port, None, out);
    }

    /// Handles the timeout of a request: repeats it, or drops the frames that wait for the reply.
    pub(super) fn retry_resolution(&mut self, port: u16, address: IpAddr, out: &mut dyn Wires) {
        match self.neighbours.no_reply(port, address) {
            None => {}
            Some(Ok(())) => {
                self.schedule(
                    self.now + neighbours::RETRY,
                    super::Event::Resolve { port, address },
                );
                self.send_request(usize::from(port), address, out);
            }
            Some(Err(waiting)) => {
                for slot in waiting {
                    let queued = &self.frames[slot as usize];
                    let from = usize::from(queued.from);
                    if let Some(ip) = packet::ip_of(&queued.bytes) {
                        self.error(slot, from, &ip, Reason::Unreachable, out);
                    }
                    self.drop_and_report(slot, usize::from(port), Drop::Unresolved);
                }
            }
        }
    }

    /// Learns the sender's MAC address from any packet, if a route leads to the sender by that port.
    pub(super) fn learn_source(&mut self, slot: u32, port: usize, ip: &Ip, out: &mut dyn Wires) {
        let Some(mac) = packet::source_mac(&self.frames[slot as usize].bytes) else {
            return;
        };
        let number = port as u16;
        if self.neighbours.is_last(number, ip.src, mac)
            || self.neighbours.is_known(self.now, number, ip.src, mac)
            || !self.routes.is_behind(ip.src, port)
        {
            return;
        }
        self.learn(port, ip.src, mac, true, out);
    }

    fn learn(&mut self, port: usize, address: IpAddr, mac: [u8; 6], unsolicited: bool, out: &mut dyn Wires) {
        let waited = self
            .neighbours
            .learn(self.now, port as u16, address, mac, unsolicited);
        for slot in waited {
            self.forward(slot, port, address, out);
        }
    }
}

fn arp_packet(
    operation: u16,
    sender: ([u8; 6], Ipv4Addr),
    target: ([u8; 6], Ipv4Addr),
) -> impl Iterator<Item = u8> {
    ARP_HEAD
        .into_iter()
        .chain(operation.to_be_bytes())
        .chain(sender.0)
        .chain(sender.1.octets())
        .chain(target.0)
        .chain(target.1.octets())
}

fn solicitation(mac: [u8; 6], target: Ipv6Addr) -> Vec<u8> {
    let [.., a, b, c] = target.octets();
    let group = Ipv6Addr::new(
        0xff02,
        0,
        0,
        0,
        0,
        1,
        0xff00 | u16::from(a),
        u16::from_be_bytes([b, c]),
    );
    let len = DISCOVERY_LEN + OPTION_LEN;
    let mut frame = icmp::ethernet_header(
        [0x33, 0x33, 0xff, a, b, c],
        mac,
        ethertype::IPV6,
        ipv6::HEADER_LEN + len,
    );
    let ip = ethernet::HEADER_LEN;
    discovery_message(&mut frame[ip + ipv6::HEADER_LEN..], SOLICITATION, 0, target, mac);
    icmp::emit_6(
        &mut frame,
        ip,
        link_local(mac).octets(),
        group.octets(),
        len as u16,
        UNFORWARDED,
    );
    frame
}

/// Writes a Neighbor Solicitation or Advertisement without its checksum: type, flags, target, and one option with a link-layer
/// address (RFC 4861, sections 4.3, 4.4 and 4.6.1).
fn discovery_message(message: &mut [u8], kind: u8, flags: u8, target: Ipv6Addr, mac: [u8; 6]) {
    let option = if kind == SOLICITATION {
        SOURCE_OPTION
    } else {
        TARGET_OPTION
    };
    message[0] = kind;
    message[4] = flags;
    message[8..24].copy_from_slice(&target.octets());
    message[24..26].copy_from_slice(&[option, 1]);
    message[26..32].copy_from_slice(&mac);
}

/// Returns the link-local address for a MAC address (RFC 4291, appendix A).
fn link_local([a, b, c, d, e, f]: [u8; 6]) -> Ipv6Addr {
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// Returns the Ethernet address in the option of type `wanted`.
fn option(mut options: &[u8], wanted: u8) -> Option<[u8; 6]> {
    while let [kind, units, ..] = *options {
        let len = usize::from(units) * 8;
        let whole = options.get(..len).filter(|whole| !whole.is_empty())?;
        if kind == wanted {
            return whole.get(2..8)?.try_into().ok();
        }
        options = &options[len..];
    }
    None
}
