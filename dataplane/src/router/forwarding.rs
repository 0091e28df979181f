//! Forwarding: finds the port and the next hop of a received frame, and its MAC addresses.

use std::net::IpAddr;

use super::packet::{self, Ip};
use super::{Direction, Drop, Event, Lookup, Router, Wires, arp_nd, icmp, neighbours};
use crate::fabric::random::mix;

impl Router {
    /// Selects how to process a received frame: ARP, neighbour discovery, forwarding, or a drop.
    pub(super) fn route(&mut self, slot: u32, out: &mut dyn Wires) {
        let from = usize::from(self.frames[slot as usize].from);
        let edge = self.config.ports[from].edge;
        let port = &self.config.ports[from];
        let kind = match packet::classify(&self.frames[slot as usize].bytes, edge.then_some(&port.mac)) {
            Ok(kind) => kind,
            Err(reason) => return self.discard(slot, from, reason),
        };
        match kind {
            packet::FrameKind::Arp(at) if edge => self.arp(slot, from, at, out),
            packet::FrameKind::Arp(_) => self.discard(slot, from, Drop::NotIp),
            packet::FrameKind::Ip(ip) => {
                if edge {
                    if arp_nd::is_discovery(&self.frames[slot as usize].bytes, &ip) {
                        return self.discovery(slot, from, &ip, out);
                    }
                    self.learn_source(slot, from, &ip, out);
                }
                self.route_ip(slot, from, &ip, out);
            }
        }
    }

    fn route_ip(&mut self, slot: u32, from: usize, ip: &Ip, out: &mut dyn Wires) {
        if ip.is_not_forwarded() {
            return self.discard(slot, from, Drop::LinkScope);
        }
        let bytes = &mut self.frames[slot as usize].bytes;
        bytes.truncate(ip.at + ip.len);
        if self.intercept(slot, from, ip, out) {
            return;
        }
        if ip.hops <= 1 {
            self.error(slot, from, ip, icmp::Reason::TimeExceeded, out);
            return self.drop_and_report(slot, from, Drop::HopLimit);
        }
        let Some((to, next_hop)) = self.choose_route(&self.frames[slot as usize].bytes, ip.dst) else {
            self.error(slot, from, ip, icmp::Reason::NoRoute, out);
            return self.drop_and_report(slot, from, Drop::NoRoute);
        };
        if ip.len > usize::from(self.config.ports[to].mtu)
            && let Some(mtu) = self.too_big(slot, to)
        {
            self.error(slot, from, ip, icmp::Reason::TooBig { mtu }, out);
            return self.drop_and_report(slot, to, Drop::TooBig);
        }
        packet::decrement_hop_limit(&mut self.frames[slot as usize].bytes, ip);
        self.forward(slot, to, next_hop, out);
    }

    /// Returns the port index and the next hop's address for a frame to `dst`.
    pub(super) fn choose_route(&self, frame: &[u8], dst: IpAddr) -> Option<(usize, IpAddr)> {
        let choices = self.routes.find(dst)?;
        let choice = if let [choice] = choices {
            choice
        } else {
            // INT may have changed the packet's ports, so the hash is over the flow before INT.
            let flow = self.switch.flow_of(frame);
            let hash = flow.map_or(0, |flow| flow.hash(u64::from(self.config.node)));
            let up = choices
                .iter()
                .filter(|choice| self.config.ports[usize::from(choice.port)].up);
            let best = up.max_by_key(|choice| (mix(hash, u64::from(choice.port)), choice.port));
            best.or(choices.first())?
        };
        Some((usize::from(choice.port), choice.via.unwrap_or(dst)))
    }

    /// Returns the MTU to report if a packet is too long for port `to`; `None` if it fits without its INT. INT counts at other
    /// than edge ports, and reduces the reported MTU there.
    fn too_big(&self, slot: u32, to: usize) -> Option<u16> {
        let port = &self.config.ports[to];
        let bytes = &self.frames[slot as usize].bytes;
        let Some(without_int) = self.switch.without_int(bytes) else {
            return Some(port.mtu);
        };
        let int = bytes.len().saturating_sub(without_int.len());
        if !port.edge {
            return Some(port.mtu.saturating_sub(int as u16));
        }
        let ip = packet::ip_of(&without_int)?;
        (ip.len > usize::from(port.mtu)).then_some(port.mtu)
    }

    /// Writes the MAC addresses and queues the frame at port `to`. Requests the next hop's MAC address if it is unknown.
    pub(super) fn forward(&mut self, slot: u32, to: usize, next_hop: IpAddr, out: &mut dyn Wires) {
        let mac = self.config.ports[to].mac;
        if !self.config.ports[to].edge {
            packet::set_macs(&mut self.frames[slot as usize].bytes, packet::PEER, mac);
            return self.enqueue(slot, to, Direction::Out, out);
        }
        match self.neighbours.find(self.now, to as u16, next_hop) {
            Lookup::Known { mac: dst, probe } => {
                packet::set_macs(&mut self.frames[slot as usize].bytes, dst, mac);
                self.enqueue(slot, to, Direction::Out, out);
                if probe {
                    self.send_request(to, next_hop, out);
                }
            }
            Lookup::Unknown => match self.neighbours.wait(to as u16, next_hop, slot) {
                neighbours::WaitOutcome::SendRequest => {
                    self.schedule(
                        self.now + neighbours::RETRY,
                        Event::Resolve {
                            port: to as u16,
                            address: next_hop,
                        },
                    );
                    self.send_request(to, next_hop, out);
                }
                neighbours::WaitOutcome::Queued => {}
                neighbours::WaitOutcome::Full => self.drop_and_report(slot, to, Drop::Unresolved),
            },
        }
    }
}
