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
    made: u64,
    /// Start of its transmission on the current link, ns.
    left: u64,
    hops: Vec<HopTruth>,
}

/// Place, time and reason of a packet's loss.
struct End {
    node: usize,
    at: u64,
    reason: DropReason,
    reported: bool,
}

impl Fabric {
    /// Creates the next packet of a flow, and passes it to the host's NIC.
    pub(super) fn inject(&mut self, flow: u32, sink: &mut (impl FabricSink + ?Sized)) {
        let slot = self.idle.pop().unwrap_or_else(|| {
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
        packet.made = self.now;
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
        let left = self.packets[slot as usize].left;
        if let Some(&cut) = cuts
            .get(cuts.partition_point(|&cut| cut < left))
            .filter(|&&cut| cut <= received)
        {
            let sender = self.ports[port as usize ^ 1].node;
            let end = End {
                node: sender,
                at: cut,
                reason: DropReason::LostOnLink,
                reported: false,
            };
            return self.lose(slot, end, sink);
        }
        if self.stations[node].switch.is_none() {
            return self.deliver(slot, port, sink);
        }
        let one = &self.topology.nodes[node];
        if self.config.routed {
            routed::decrement_hop_limit(&mut self.packets[slot as usize].bytes);
        }
        self.packets[slot as usize].hops.push(HopTruth {
            node: one.id,
            ingress_if: self.ports[port as usize].number,
            egress_if: 0,
            queue_occupancy: 0,
            tx_utilization: 0,
            ingress: received,
            egress: self.now,
            clock_offset: one.clock_offset,
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
            .find(|&&(at, to, _)| (at, to) == (node, flow.to));
        diverted
            .map(|&(_, _, port)| port)
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
                Some(Ok(found)) => found,
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
                self.finish(slot, sink);
                continue;
            }
            let now = self.now;
            let peer = self.ports[port as usize ^ 1].node;
            let pipeline = self.pipeline_of(peer);
            let packet = &mut self.packets[slot as usize];
            packet.left = now;
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
                let end = End {
                    node: from,
                    at: sent,
                    reason: DropReason::LostOnLink,
                    reported: false,
                };
                return self.lose(slot, end, sink);
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
        let (from_edge, from_border) = self.entrance(slot, self.ports[port as usize].node);
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
        visit.from_edge = from_edge;
        visit.from_border = from_border;
        let step = switch.forward(&mut packet.bytes, &visit, &mut self.outbox);
        if let Some(hop) = packet.hops.last_mut() {
            hop.recorded = step.recorded;
            // A sink creates a record for a packet only if it is also the source.
            let made = step.recorded && (visit.from_edge || !visit.to_edge);
            if let Some(sf) = step.sf.filter(|sf| made && !sf.urgent) {
                self.records
                    .insert((packet.flow, sf.packet_id, hop.node), packet.number, *hop);
            }
        }
        let node = out.node;
        self.send_reports(slot, node, None, sink);
        step.verdict
    }

    /// Returns (true if the port by which the packet entered this node is a source, true if it is a sink).
    fn entrance(&self, slot: u32, node: usize) -> (bool, bool) {
        let hop = self.packets[slot as usize].hops.last();
        let number = hop.map_or(0, |hop| usize::from(hop.ingress_if));
        let port = number
            .checked_sub(1)
            .and_then(|index| self.stations[node].ports.get(index));
        let port = port.map(|port| &self.ports[*port as usize]);
        (
            port.is_some_and(|port| port.source),
            port.is_some_and(|port| port.sink),
        )
    }

    /// Drops a packet at a switch (which reports it if it watches the flow) or at a host.
    pub(super) fn drop_here(
        &mut self,
        slot: u32,
        node: usize,
        reason: DropReason,
        sink: &mut (impl FabricSink + ?Sized),
    ) {
        let (from_edge, from_border) = self.entrance(slot, node);
        let packet = &mut self.packets[slot as usize];
        let mut reported = false;
        if let (Some(switch), Some(hop)) = (self.stations[node].switch.as_deref_mut(), packet.hops.last_mut())
        {
            hop.egress = self.now;
            let mut visit = visit(hop, self.config.mtu);
            visit.from_edge = from_edge;
            visit.from_border = from_border;
            reported = switch.dropped(&packet.bytes, &visit, reason.code(), &mut self.outbox);
            self.send_reports(slot, node, Some(reason), sink);
        }
        self.lose(
            slot,
            End {
                node,
                at: self.now,
                reason,
                reported,
            },
            sink,
        );
    }

    /// Ends a packet that was lost or dropped.
    fn lose(&mut self, slot: u32, end: End, sink: &mut (impl FabricSink + ?Sized)) {
        let End {
            node,
            at,
            reason,
            reported,
        } = end;
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
        self.idle.push(slot);
    }

    /// Delivers a packet to its host.
    fn deliver(&mut self, slot: u32, port: u32, sink: &mut (impl FabricSink + ?Sized)) {
        if self.config.frames == Frames::Delivered {
            let port = &self.ports[port as usize];
            let id = self.topology.nodes[port.node].id;
            sink.frame(self.now, id, port.number, &self.packets[slot as usize].bytes);
        }
        self.finish(slot, sink);
    }

    fn finish(&mut self, slot: u32, sink: &mut (impl FabricSink + ?Sized)) {
        let packet = &self.packets[slot as usize];
        let flow = &mut self.flows[packet.flow as usize];
        flow.totals.delivered += 1;
        let nodes = packet.hops.iter().map(|hop| hop.node);
        if !flow.path.iter().copied().eq(nodes.clone()) {
            let new: Vec<u32> = nodes.collect();
            let old = std::mem::replace(&mut flow.path, new);
            if !old.is_empty() {
                sink.ground_truth(&GroundTruth::PathChange {
                    at: self.now,
                    flow: flow.totals.flow,
                    old: &old,
                    new: &flow.path,
                });
            }
        }
        sink.ground_truth(&GroundTruth::Delivered(trace(packet, flow.totals.flow, self.now)));
        self.idle.push(slot);
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
        self.changed(link, false, sink);
    }

    /// Restores a link; routes use it after the convergence delay.
    pub(super) fn restore(&mut self, link: usize, sink: &mut (impl FabricSink + ?Sized)) {
        if self.ports[link * 2].up {
            return;
        }
        self.ports[link * 2].up = true;
        self.ports[link * 2 + 1].up = true;
        self.changed(link, true, sink);
    }

    fn changed(&mut self, link: usize, up: bool, sink: &mut (impl FabricSink + ?Sized)) {
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
    pub(super) fn packet_truth(&self, slot: u32) -> (u64, wire::FlowKey, &[HopTruth]) {
        let packet = &self.packets[slot as usize];
        (
            packet.number,
            self.flows[packet.flow as usize].totals.flow,
            &packet.hops,
        )
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
        sent: packet.made,
        ended,
        hops: &packet.hops,
    }
}
