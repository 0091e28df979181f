//! Interception: the router consumes UDP datagrams to [`Config::intercept`](super::Config::intercept) and passes them to a
//! consumer in this process, as the translator at the last hop does with Direct Telemetry Access. Replies have these
//! destinations as source.
//!
//! Datagrams are not reassembled: a first fragment is dropped and counted; later ones have no port and are forwarded. Frames
//! with VLAN tags are forwarded and counted, because a reply would need the tags.

use std::net::{IpAddr, SocketAddr};

use wire::ethernet::{self, ethertype};
use wire::{FlowKey, checksum, ipv4, ipv6, udp};

use super::packet::{self, Ip};
use super::stats::Drop;
use super::{Router, Visit, Wires};
use crate::packet::{UDP, fill_l4};
use crate::switch::Verdict;

/// Next-header value of an IPv6 fragment header.
const FRAGMENT: u8 = 44;
/// Initial TTL or hop limit of replies.
const HOPS: u8 = 64;

impl Router {
    /// Consumes or drops a packet to an intercepted destination. Returns `false`, with nothing changed, for any other packet.
    pub(super) fn intercept(&mut self, slot: u32, from: usize, ip: &Ip, out: &mut dyn Wires) -> bool {
        if ip.is_later_fragment || !self.config.intercept.iter().any(|address| address.ip() == ip.dst) {
            return false;
        }
        let Some(to) = self.intercepted(&self.frames[slot as usize].bytes, ip) else {
            return false;
        };
        if ip.at != ethernet::HEADER_LEN {
            self.stats.intercept_tagged += 1;
            return false;
        }
        if is_fragment(&self.frames[slot as usize].bytes, ip) {
            self.discard(slot, from, Drop::InterceptFragment);
            return true;
        }
        if self.end_int(slot, from) == Verdict::Discard {
            self.consume(slot);
            return true;
        }
        match datagram(&self.frames[slot as usize].bytes, self.config.intercept[to]) {
            None => self.discard(slot, from, Drop::InterceptMalformed),
            Some((sender, payload)) if out.deliver(to, sender, payload) => {
                self.stats.intercepted += 1;
                self.consume(slot);
            }
            Some(_) => self.discard(slot, from, Drop::InterceptQueueFull),
        }
        true
    }

    /// Returns the index of the intercepted destination to which a packet is sent.
    fn intercepted(&self, frame: &[u8], ip: &Ip) -> Option<usize> {
        let direct = udp_at(frame, ip).and_then(|header| self.position(ip.dst, header.dst_port()));
        // INT may have changed the port, or precede the UDP header.
        direct.or_else(|| {
            let flow = self.switch.flow_of(frame)?;
            let ports = flow.ports()?;
            // In a tunnel, the parsed flow is the inner one, which is not intercepted.
            let is_outer = flow == FlowKey::new(ip.src, ip.dst, Some(ports), UDP);
            if is_outer {
                self.position(ip.dst, ports.1)
            } else {
                None
            }
        })
    }

    fn position(&self, address: IpAddr, port: u16) -> Option<usize> {
        let destination = SocketAddr::new(address, port);
        self.config
            .intercept
            .iter()
            .position(|address| *address == destination)
    }

    /// Reports and strips the INT of a packet that ends here.
    fn end_int(&mut self, slot: u32, from: usize) -> Verdict {
        let queued = &mut self.frames[slot as usize];
        let port = &self.config.ports[from];
        let visit = Visit {
            ingress_if: port.number,
            egress_if: 0,
            ingress_ts: queued.ingress,
            egress_ts: self.now,
            queue_id: 0,
            queue_occupancy: 0,
            tx_utilization: u32::MAX,
            buffer_occupancy: self.buffered,
            l2_interfaces: [port.logical, 0],
            mtu: u16::MAX,
            from_edge: port.is_source(),
            to_edge: true,
            from_border: port.is_sink(),
        };
        self.switch.end_int(&mut queued.bytes, &visit, &mut self.outbox)
    }

    /// Sends a datagram to `to`, the sender of an intercepted one, with destination number `from` of
    /// [`Config::intercept`](super::Config::intercept) as its source. Returns `false`, and counts the reply as refused, if
    /// there is no route, the datagram is too long, or too many frames are queued.
    pub fn reply(
        &mut self,
        now: u64,
        from: usize,
        to: SocketAddr,
        payload: &[u8],
        out: &mut dyn Wires,
    ) -> bool {
        self.now = self.now.max(now);
        let sent = self.send_reply(from, to, payload, out);
        self.stats.replies += u64::from(sent);
        self.stats.replies_refused += u64::from(!sent);
        sent
    }

    fn send_reply(&mut self, from: usize, to: SocketAddr, payload: &[u8], out: &mut dyn Wires) -> bool {
        let Some(from) = self.config.intercept.get(from) else {
            return false;
        };
        let Some(frame) = reply(*from, to, payload) else {
            return false;
        };
        let Some((port, next)) = self.choose_route(&frame, to.ip()) else {
            return false;
        };
        frame.len() - ethernet::HEADER_LEN <= usize::from(self.config.ports[port].mtu)
            && self.originate(&frame, port, Some(next), out)
    }
}

/// Returns the UDP header of an IP packet, or of its first fragment.
fn udp_at<'f>(frame: &'f [u8], ip: &Ip) -> Option<udp::Packet<&'f [u8]>> {
    let rest = frame.get(ip.at + ip.header..ip.at + ip.len)?;
    let rest = match ip.proto {
        UDP => rest,
        FRAGMENT if ip.dst.is_ipv6() && rest.first() == Some(&UDP) => rest.get(8..)?,
        _ => return None,
    };
    udp::Packet::new_checked(rest).ok()
}

fn is_fragment(frame: &[u8], ip: &Ip) -> bool {
    // The More Fragments flag, and the 13 bits of the fragment offset.
    const MORE_OR_OFFSET: u16 = 0x3fff;
    if ip.dst.is_ipv6() {
        return ip.proto == FRAGMENT;
    }
    ipv4::Packet::new_checked(&frame[ip.at..]).is_ok_and(|header| header.fragment() & MORE_OR_OFFSET != 0)
}

/// Returns the sender and the payload of a datagram without INT to `to`, if its length and checksum are correct.
pub(super) fn datagram(frame: &[u8], to: SocketAddr) -> Option<(SocketAddr, &[u8])> {
    let ip = packet::ip_of(frame).filter(|ip| ip.dst == to.ip() && ip.proto == UDP)?;
    let segment = frame.get(ip.at + ip.header..ip.at + ip.len)?;
    let header = udp::Packet::new_checked(segment)
        .ok()
        .filter(|header| header.dst_port() == to.port())?;
    let segment = segment
        .get(..usize::from(header.len()))
        .filter(|part| part.len() >= udp::HEADER_LEN)?;
    // A missing checksum is allowed over IPv4 only (RFC 768; RFC 8200, section 8.1).
    let unchecked = header.checksum() == 0 && ip.dst.is_ipv4();
    let addresses = if ip.dst.is_ipv4() { 12..20 } else { 8..40 };
    if !unchecked
        && (header.checksum() == 0 || checksum::transport(&frame[ip.at..][addresses], UDP, segment) != 0)
    {
        return None;
    }
    Some((
        SocketAddr::new(ip.src, header.src_port()),
        &segment[udp::HEADER_LEN..],
    ))
}

/// Returns a frame with a datagram, without MAC addresses yet. Returns `None` if the address families differ or it is too long.
fn reply(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Option<Vec<u8>> {
    let len = u16::try_from(udp::HEADER_LEN + payload.len()).ok()?;
    let v6 = to.is_ipv6();
    let ip = ethernet::HEADER_LEN;
    let l4 = ip + if v6 { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN };
    let mut frame = vec![0; l4 + usize::from(len)];
    let ethertype = if v6 { ethertype::IPV6 } else { ethertype::IPV4 };
    ethernet::Repr {
        dst: [0; 6],
        src: [0; 6],
        ethertype,
    }
    .emit(&mut frame);
    match (from.ip(), to.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            // With Don't Fragment, the identification may be 0 (RFC 6864, section 4.1).
            const DO_NOT_FRAGMENT: u16 = 0x4000;
            ipv4::Repr {
                src: src.octets(),
                dst: dst.octets(),
                proto: UDP,
                tos: 0,
                total_len: len.checked_add(ipv4::HEADER_LEN as u16)?,
                ident: 0,
                fragment: DO_NOT_FRAGMENT,
                ttl: HOPS,
                options: &[],
            }
            .emit(&mut frame[ip..]);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            ipv6::Repr {
                src: src.octets(),
                dst: dst.octets(),
                next_header: UDP,
                hop_limit: HOPS,
                traffic_class: 0,
                flow_label: 0,
                payload_len: len,
            }
            .emit(&mut frame[ip..]);
        }
        _ => return None,
    }
    udp::Repr {
        src_port: from.port(),
        dst_port: to.port(),
        len,
        checksum: 0,
    }
    .emit(&mut frame[l4..]);
    frame[l4 + udp::HEADER_LEN..].copy_from_slice(payload);
    fill_l4(&mut frame, ip, l4, UDP, usize::from(len));
    Some(frame)
}
