//! The way of a frame from a queue over a link: transmission, INT, loss and delay.

use super::{Direction, Drop, Event, Router, Wires};
use crate::switch::{Verdict, Visit};

impl Router {
    /// Queues a frame for a link.
    pub(super) fn enqueue(&mut self, slot: u32, port: usize, direction: Direction, out: &mut dyn Wires) {
        if !self.config.ports[port].up {
            return self.drop_and_report(slot, port, Drop::LinkDown);
        }
        let now = self.now;
        let frame = &mut self.frames[slot as usize];
        let size = frame.bytes.len() as u32;
        frame.buffer_occupancy = self.buffered;
        let link_queue = self.link_queue(port, direction);
        if link_queue.is_unlimited() {
            return self.depart(slot, port, direction, out);
        }
        match link_queue.offer(now, slot, size) {
            Ok(occupancy) if direction == Direction::Out => {
                self.buffered = self.buffered.saturating_add(size);
                self.frames[slot as usize].queue_occupancy = occupancy;
            }
            Ok(_) => {}
            Err(occupancy) if direction == Direction::Out => {
                self.frames[slot as usize].queue_occupancy = occupancy;
                return self.drop_and_report(slot, port, Drop::QueueFull);
            }
            Err(_) => return self.discard(slot, port, Drop::QueueFullIn),
        }
        self.transmit(port, direction, out);
    }

    /// Transmits queued frames while the transmitter is free, and schedules the next transmission.
    pub(super) fn transmit(&mut self, port: usize, direction: Direction, out: &mut dyn Wires) {
        let now = self.now;
        loop {
            let link_queue = self.link_queue(port, direction);
            let before = link_queue.occupancy();
            let Some(slot) = link_queue.dequeue(now) else {
                break;
            };
            let bytes = before - link_queue.occupancy();
            self.unbuffer(direction, bytes);
            self.depart(slot, port, direction, out);
        }
        let link_queue = self.link_queue(port, direction);
        if link_queue.schedule() {
            let at = link_queue.free_at();
            self.schedule(
                at,
                Event::Free {
                    port: port as u16,
                    direction,
                },
            );
        }
    }

    /// Subtracts bytes that left an egress queue from the shared buffer.
    pub(super) fn unbuffer(&mut self, direction: Direction, bytes: u32) {
        if direction == Direction::Out {
            self.buffered = self.buffered.saturating_sub(bytes);
        }
    }

    /// Moves a frame from the queue to the link: applies INT, occupies the transmitter, and applies loss and delay.
    fn depart(&mut self, slot: u32, port: usize, direction: Direction, out: &mut dyn Wires) {
        if direction == Direction::Out && self.apply_int(slot, port) == Verdict::Discard {
            return self.consume(slot);
        }
        let now = self.now;
        let len = self.frames[slot as usize].bytes.len();
        let link_queue = self.link_queue(port, direction);
        let sent = link_queue.occupy(now, len);
        let link = *link_queue.link();
        let epoch = link_queue.epoch();
        if self.random.chance(link.loss) {
            return self.discard(
                slot,
                port,
                if direction == Direction::Out {
                    Drop::LinkLoss
                } else {
                    Drop::LinkLossIn
                },
            );
        }
        let extra = if self.random.chance(link.reorder) {
            link.reorder_delay
        } else {
            0
        };
        let at = sent.saturating_add(link.delay).saturating_add(extra);
        let port = port as u16;
        if at <= now {
            return self.arrive(port, direction, slot, epoch, out);
        }
        self.schedule(
            at,
            Event::Arrive {
                port,
                direction,
                slot,
                epoch,
            },
        );
    }

    /// Passes a frame to the INT switch at its egress port, and returns whether to send it.
    fn apply_int(&mut self, slot: u32, port: usize) -> Verdict {
        let queued = &mut self.frames[slot as usize];
        let Some(from) = self.config.ports.get(usize::from(queued.from)) else {
            return Verdict::Forward;
        };
        let to = &self.config.ports[port];
        let visit = Visit {
            ingress_if: from.number,
            egress_if: to.number,
            ingress_ts: queued.ingress,
            egress_ts: self.now,
            queue_id: to.number as u8,
            queue_occupancy: queued.queue_occupancy,
            tx_utilization: self.port_queues[port].out.utilization(self.now),
            buffer_occupancy: queued.buffer_occupancy,
            l2_interfaces: [from.logical, to.logical],
            mtu: to.mtu,
            from_edge: from.is_source(),
            to_edge: to.is_sink(),
            from_border: from.is_sink(),
        };
        self.switch
            .forward(&mut queued.bytes, &visit, &mut self.outbox)
            .verdict
    }

    /// Handles the arrival of a frame at the end of a link.
    pub(super) fn arrive(
        &mut self,
        port: u16,
        direction: Direction,
        slot: u32,
        epoch: u32,
        out: &mut dyn Wires,
    ) {
        let index = usize::from(port);
        if self.link_queue(index, direction).epoch() != epoch {
            return self.discard(slot, index, Drop::LinkDown);
        }
        match direction {
            Direction::In => {
                // The simulated ingress link delayed the frame, so its arrival is now.
                if !self.port_queues[index].into.is_plain() {
                    self.frames[slot as usize].ingress = self.now;
                }
                self.route(slot, out);
            }
            Direction::Out => {
                let queued = &mut self.frames[slot as usize];
                let stats = &mut self.stats.ports[index];
                stats.sent += 1;
                stats.sent_bytes += queued.bytes.len() as u64;
                out.send(index, &mut queued.bytes);
                self.release(slot);
            }
        }
    }
}
