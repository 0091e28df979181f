//! The stages of a packet in the fabric: sent by a host, offered to a queue, transmitted, received, and delivered or dropped.

use super::ground_truth::{DropReason, GroundTruth, HopTruth, PacketTrace};
use super::{EventKind, Fabric, FabricSink, Frames, QueueUnit, routed};
use crate::switch::{Verdict, Visit};

/// Maximum number of switches on a path; a packet that exceeds it is in a loop.
const MAX_HOPS: usize = 64;

/// A packet in flight. Slots are reused, so there are no allocations in the steady state.
#[derive(Debug, Default)]
pub(super) struct Packet {
    bytes: Vec<u8>,
    number: u64,
    flow: u32,
    created: u64,
    /// Start of its transmission on the current link, ns.
    transmission_start: u64,
    hops: Vec<HopTruth>,
}

/// Place, time and reason of a packet's loss.
struct Loss {
    node: usize,
    at: u64,
    reason: DropReason,
    reported: bool,
}

/// A packet in the fabric, and the hops that it has passed.
pub(super) struct PacketTruth<'a> {
    pub(super) number: u64,
    pub(super) flow: wire::FlowKey,
    pub(super) hops: &'a [HopTruth],
}

/// INT roles of a port at the edge of the domain.
#[derive(Clone, Copy)]
struct PortRoles {
    source: bool,
    sink: bool,
}

impl Fabric {
    /// Creates the next packet of a flow, and passes it to the host's NIC.
    pub(super) fn inject(&mut self, flow: u32, sink: &mut (impl FabricSink + ?Sized)) {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.packets.push(Packet::default());
            self.packets.len() as u32 - 1
        });
        let state = &mut self.flows[flow as usize];
        state.totals.sent += 1;
        let packet = &mut self.packets[slot as usize];
        packet.bytes.clear();
        packet.bytes.extend_from_slice(&state.frame);
        packet.hops.clear();
        packet.number = self.packets_made;
        packet.flow = flow;
        packet.created = self.now;
        if self.config.routed {
            routed::write_number(&mut packet.bytes, self.packets_made);
        }
        self.packets_made += 1;
        let port = self.stations[state.from].ports[0]; // Topology ensures that a host has exactly one
        self.enqueue(slot, port, sink);
    }

    /// Processes the arrival of a packet at `port`, unless the link was cut while the packet was on it.
    pub(super) fn arrive(&mut self, slot: u32, port: u32, sink: &mut (impl FabricSink + ?Sized)) {
        let node = self.ports[port as usize].node;
        let pipeline = self.pipeline_of(node);
        let received = self.now - pipeline;
        let cuts = &self.cuts[port as usize / 2];
        let transmission_start = self.packets[slot as usize].transmission_start;
        if let Some(&cut) = cuts
            .get(cuts.partition_point(|&cut| cut < transmission_start))
            .filter(|&&cut| cut <= received)
        {
            let sender = self.ports[port as usize ^ 1].node;
            let loss = Loss {
                node: sender,
                at: cut,
                reason: DropReason::LostOnLink,
                reported: false,
            };
            return self.record_loss(slot, loss, sink);
        }
        if self.stations[node].switch.is_none() {
            return self.deliver(slot, port, sink);
        }
        let topology_node = &self.topology.nodes[node];
        if self.config.routed {
            routed::decrement_hop_limit(&mut self.packets[slot as usize].bytes);
        }
        self.packets[slot as usize].hops.push(HopTruth {
            node: topology_node.id,
            ingress_if: self.ports[port as usize].number,
            egress_if: 0,
            queue_occupancy: 0,
            tx_utilization: 0,
            ingress: received,
            egress: self.now,
            clock_offset: topology_node.clock_offset,
            recorded: false,
        });
        if self.packets[slot as usize].hops.len() > MAX_HOPS {
            return self.drop_here(slot, node, DropReason::TooManyHops, sink);
        }
        match self.next_port(node, self.packets[slot as usize].flow) {
            Some(port) => self.enqueue(slot, port, sink),
            None => self.drop_here(slot, node, DropReason::NoRoute, sink),
        }
    }

    fn next_port(&self, node: usize, flow: u32) -> Option<u32> {
        let flow = &self.flows[flow as usize];
        let diverted = self
            .diversions
            .iter()
            .find(|diversion| (diversion.node, diversion.host) == (node, flow.to));
        diverted
            .map(|diversion| diversion.port)
            .or_else(|| self.routes.next(node, flow.to, flow.hash))
    }

    /// Offers a packet to the queue of `port`, and starts the transmitter if it is idle.
    fn enqueue(&mut self, slot: u32, port: u32, sink: &mut (impl FabricSink + ?Sized)) {
        let packet = &mut self.packets[slot as usize];
        let out = &mut self.ports[port as usize];
        let size = match self.config.unit {
            QueueUnit::Bytes => packet.bytes.len() as u32,
            QueueUnit::Packets => 1,
        };
        let offered = if out.up { Some(out.offer(slot, size)) } else { None };
        if let Some(hop) = packet.hops.last_mut() {
            hop.egress_if = out.number;
            hop.queue_occupancy = match offered {
                Some(Ok(occupancy)) => occupancy,
                Some(Err(full)) => full.occupancy,
                None => 0,
            };
        }
        match offered {
            Some(Ok(_)) if out.busy => {}
            Some(Ok(_)) => self.transmit(port, sink),
            Some(Err(_)) => self.drop_here(slot, self.ports[port as usize].node, DropReason::QueueFull, sink),
            None => self.drop_here(slot, self.ports[port as usize].node, DropReason::LinkDown, sink),
        }
    }

    /// Starts the transmission of the first queued packet of an idle port.
    pub(super) fn transmit(&mut self, port: u32, sink: &mut (impl FabricSink + ?Sized)) {
        while let Some(slot) = self.ports[port as usize].dequeue() {
            if self.pass_egress(slot, port, sink) == Verdict::Discard {
                self.record_delivery(slot, sink);
                continue;
            }
            let now = self.now;
            let peer = self.ports[port as usize ^ 1].node;
            let pipeline = self.pipeline_of(peer);
            let packet = &mut self.packets[slot as usize];
            packet.transmission_start = now;
            let out = &mut self.ports[port as usize];
            out.busy = true;
            out.meter.count(now, packet.bytes.len());
            let sent = now.saturating_add(out.duration(packet.bytes.len()));
            let epoch = out.epoch;
            let delay = out.wire.delay;
            let loss = out.loss;
            if self.config.frames == Frames::Sent {
                sink.frame(now, self.topology.nodes[out.node].id, out.number, &packet.bytes);
            }
            let from = out.node;
            self.push_event(sent, EventKind::Sent { port, epoch });
            let links = self.config.links;
            if self.fortune.chance(links.loss.max(loss)) {
                let loss = Loss {
                    node: from,
                    at: sent,
                    reason: DropReason::LostOnLink,
                    reported: false,
                };
                return self.record_loss(slot, loss, sink);
            }
            let extra = if self.fortune.chance(links.reordering) {
                links.extra
            } else {
                0
            };
            self.push_event(
                sent.saturating_add(delay)
                    .saturating_add(extra)
                    .saturating_add(pipeline),
                EventKind::Arrive {
                    packet: slot,
                    port: port ^ 1,
                },
            );
            return;
        }
    }

    /// Performs INT processing at egress: the switch adds its record, or the sink removes INT.
    fn pass_egress(&mut self, slot: u32, port: u32, sink: &mut (impl FabricSink + ?Sized)) -> Verdict {
        let ingress = self.ingress_roles(slot, self.ports[port as usize].node);
        let out = &mut self.ports[port as usize];
        let Some(switch) = self.stations[out.node].switch.as_deref_mut() else {
            return Verdict::Forward;
        };
        let packet = &mut self.packets[slot as usize];
        let Some(hop) = packet.hops.last_mut() else {
            return Verdict::Forward;
        };
        hop.egress = self.now;
        hop.tx_utilization = out.meter.read(self.now);
        let mut visit = visit(hop, self.config.mtu);
        visit.to_edge = out.sink;
        visit.from_edge = ingress.source;
        visit.from_border = ingress.sink;
        let step = switch.forward(&mut packet.bytes, &visit, &mut self.outbox);
        if let Some(hop) = packet.hops.last_mut() {
            hop.recorded = step.recorded;
            // A sink creates a record for a packet only if it is also the source.
            let has_new_record = step.recorded && (visit.from_edge || !visit.to_edge);
            if let Some(sf) = step.sf.filter(|sf| has_new_record && !sf.urgent) {
                self.records
                    .insert((packet.flow, sf.packet_id, hop.node), packet.number, *hop);
            }
        }
        let node = out.node;
        self.send_reports(slot, node, None, sink);
        step.verdict
    }

    /// Returns the INT roles of the port by which the packet entered this node.
    fn ingress_roles(&self, slot: u32, node: usize) -> PortRoles {
        let hop = self.packets[slot as usize].hops.last();
        let number = hop.map_or(0, |hop| usize::from(hop.ingress_if));
        let port = number
            .checked_sub(1)
            .and_then(|index| self.stations[node].ports.get(index));
        let port = port.map(|port| &self.ports[*port as usize]);
        PortRoles {
            source: port.is_some_and(|port| port.source),
            sink: port.is_some_and(|port| port.sink),
        }
    }

    /// Drops a packet at a switch (which reports it if it watches the flow) or at a host.
    pub(super) fn drop_here(
        &mut self,
        slot: u32,
        node: usize,
        reason: DropReason,
        sink: &mut (impl FabricSink + ?Sized),
    ) {
        let ingress = self.ingress_roles(slot, node);
        let packet = &mut self.packets[slot as usize];
        let mut reported = false;
        if let (Some(switch), Some(hop)) = (self.stations[node].switch.as_deref_mut(), packet.hops.last_mut())
        {
            hop.egress = self.now;
            let mut visit = visit(hop, self.config.mtu);
            visit.from_edge = ingress.source;
            visit.from_border = ingress.sink;
            reported = switch.dropped(&packet.bytes, &visit, reason.code(), &mut self.outbox);
            self.send_reports(slot, node, Some(reason), sink);
        }
        self.record_loss(
            slot,
            Loss {
                node,
                at: self.now,
                reason,
                reported,
            },
            sink,
        );
    }

    /// Ends a packet that was lost or dropped.
    fn record_loss(&mut self, slot: u32, loss: Loss, sink: &mut (impl FabricSink + ?Sized)) {
        let Loss {
            node,
            at,
            reason,
            reported,
        } = loss;
        let packet = &self.packets[slot as usize];
        let flow = &mut self.flows[packet.flow as usize];
        flow.totals.dropped += 1;
        let trace = trace(packet, flow.totals.flow, at);
        let node = self.topology.nodes[node].id;
        sink.ground_truth(&GroundTruth::Dropped {
            trace,
            node,
            reason,
            reported,
        });
        self.free_slots.push(slot);
    }

    /// Delivers a packet to its host.
    fn deliver(&mut self, slot: u32, port: u32, sink: &mut (impl FabricSink + ?Sized)) {
        if self.config.frames == Frames::Delivered {
            let port = &self.ports[port as usize];
            let id = self.topology.nodes[port.node].id;
            sink.frame(self.now, id, port.number, &self.packets[slot as usize].bytes);
        }
        self.record_delivery(slot, sink);
    }

    fn record_delivery(&mut self, slot: u32, sink: &mut (impl FabricSink + ?Sized)) {
        let packet = &self.packets[slot as usize];
        let flow = &mut self.flows[packet.flow as usize];
        flow.totals.delivered += 1;
        let nodes = packet.hops.iter().map(|hop| hop.node);
        if !flow.path.iter().copied().eq(nodes.clone()) {
            let new_path: Vec<u32> = nodes.collect();
            let old_path = std::mem::replace(&mut flow.path, new_path);
            if !old_path.is_empty() {
                sink.ground_truth(&GroundTruth::PathChange {
                    at: self.now,
                    flow: flow.totals.flow,
                    old: &old_path,
                    new: &flow.path,
                });
            }
        }
        sink.ground_truth(&GroundTruth::Delivered(trace(packet, flow.totals.flow, self.now)));
        self.free_slots.push(slot);
    }

    /// Cuts a link in both directions. Packets on it are lost, which takes effect at the time of their arrival.
    pub(super) fn cut(&mut self, link: usize, sink: &mut (impl FabricSink + ?Sized)) {
        if !self.ports[link * 2].up {
            return;
        }
        self.cuts[link].push(self.now);
        for port in [link * 2, link * 2 + 1] {
            let out = &mut self.ports[port];
            out.up = false;
            out.busy = false;
            out.epoch += 1;
            while let Some(slot) = self.ports[port].dequeue() {
                self.drop_here(slot, self.ports[port].node, DropReason::LinkDown, sink);
            }
        }
        self.report_link_change(link, false, sink);
    }

    /// Restores a link; routes use it after the convergence delay.
    pub(super) fn restore(&mut self, link: usize, sink: &mut (impl FabricSink + ?Sized)) {
        if self.ports[link * 2].up {
            return;
        }
        self.ports[link * 2].up = true;
        self.ports[link * 2 + 1].up = true;
        self.report_link_change(link, true, sink);
    }

    fn report_link_change(&mut self, link: usize, up: bool, sink: &mut (impl FabricSink + ?Sized)) {
        let [a, b] = [0, 1].map(|side| self.topology.nodes[self.ports[link * 2 + side].node].id);
        sink.ground_truth(&GroundTruth::Link {
            at: self.now,
            a,
            b,
            up,
        });
        self.push_event(
            self.now.saturating_add(self.config.convergence),
            EventKind::Converge,
        );
    }

    fn pipeline_of(&self, node: usize) -> u64 {
        if self.stations[node].switch.is_some() {
            self.config.pipeline
        } else {
            0
        }
    }

    pub(super) fn flow_of(&self, slot: u32) -> u32 {
        self.packets[slot as usize].flow
    }

    /// Returns the number of a packet, its flow, and the hops that it has passed.
    pub(super) fn packet_truth(&self, slot: u32) -> PacketTruth<'_> {
        let packet = &self.packets[slot as usize];
        PacketTruth {
            number: packet.number,
            flow: self.flows[packet.flow as usize].totals.flow,
            hops: &packet.hops,
        }
    }
}

/// Returns the switch's measurement of a leaving packet, by the switch's own clock.
fn visit(hop: &HopTruth, mtu: u16) -> Visit {
    Visit {
        ingress_if: hop.ingress_if,
        egress_if: hop.egress_if,
        ingress_ts: hop.ingress_ts(),
        egress_ts: hop.egress_ts(),
        queue_id: hop.egress_if as u8,
        queue_occupancy: hop.queue_occupancy,
        tx_utilization: hop.tx_utilization,
        buffer_occupancy: u32::MAX,
        l2_interfaces: [0; 2],
        mtu,
        from_edge: false,
        to_edge: false,
        from_border: false,
    }
}

fn trace(packet: &Packet, flow: wire::FlowKey, ended: u64) -> PacketTrace<'_> {
    PacketTrace {
        packet: packet.number,
        flow,
        sent: packet.created,
        ended,
        hops: &packet.hops,
    }
}
