//! The measurement of a packet at a switch (ports, times, queue), and the record that the switch writes from it.

use crate::watchlist::Role;

/// The measurement of one packet at a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// Ingress interface; 0 is unknown.
    pub ingress_if: u16,
    /// Egress interface; 0 is unknown.
    pub egress_if: u16,
    /// Ingress timestamp, ns of the switch's clock.
    pub ingress_ts: u64,
    /// Egress timestamp, ns of the switch's clock.
    pub egress_ts: u64,
    /// Id of the egress queue.
    pub queue_id: u8,
    /// Occupancy of that queue, device units; clamped to 24 bits.
    pub queue_occupancy: u32,
    /// Utilization of the egress link, device units.
    pub tx_utilization: u32,
    /// Occupancy of the switch's buffer, which all egress queues share, device units; clamped likewise. Its ID is 0. All-ones:
    /// unknown.
    pub buffer_occupancy: u32,
    /// Level-2 (logical) interfaces, ingress and egress; 0: those of level 1.
    pub l2_interfaces: [u32; 2],
    /// MTU of the egress link, bytes.
    pub mtu: u16,
    /// Whether the packet arrived from outside the domain.
    pub from_edge: bool,
    /// Whether the packet leaves the domain.
    pub to_edge: bool,
    /// The ingress port is at the border of the domain, also if packets from there are not measured: INT that the packet carries is not the
    /// domain's.
    pub from_border: bool,
}

/// Whether to send the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet leaves through an egress port.
    Forward,
    /// Drop it: it is for measurement only (D).
    Discard,
}

/// The largest occupancy: all-ones means "unavailable".
const MAX_OCCUPANCY: u32 = 0xff_fffe;

impl Visit {
    /// Returns whether the packet comes from outside the domain, regardless of the roles of flows.
    #[inline(always)]
    pub(crate) fn is_from_outside(&self) -> bool {
        self.from_edge || self.from_border
    }

    /// Returns the measurement with the edges of a switch of that role.
    pub(crate) fn in_role(&self, role: Role) -> Self {
        let from_edge = matches!(role, Role::Source | Role::SourceAndSink);
        let to_edge = matches!(role, Role::Sink | Role::SourceAndSink);
        Self {
            from_edge,
            to_edge,
            ..*self
        }
    }

    /// Writes the record of switch `node` for the instruction bitmap `bitmap` of INT 2.x: items that are not `available`, and
    /// the rest of `out`, are all-ones. `out` is at least as long as the bitmap requires. Returns the sum of its words
    /// (see [`wire::checksum::update_by_sum`]).
    #[inline(always)]
    pub(crate) fn write_record(&self, node: u32, bitmap: u16, available: u16, out: &mut [u8]) -> u64 {
        let [ingress_if, egress_if] = [self.ingress_if, self.egress_if].map(|interface| {
            if interface == 0 {
                0xffff
            } else {
                u32::from(interface)
            }
        });
        let [l2_ingress, l2_egress] = self
            .level_2()
            .map(|interface| u64::from(interface.unwrap_or(u32::MAX)));
        let latency = self.egress_ts.wrapping_sub(self.ingress_ts) as u32;
        let queue = u32::from(self.queue_id) << 24 | self.queue_occupancy.min(MAX_OCCUPANCY);
        let mut words = Words {
            rest: out,
            bitmap,
            available: available | 0x8000,
            sum: 0,
        };
        words.word(0, node);
        words.word(1, ingress_if << 16 | egress_if);
        words.word(2, latency);
        words.word(3, queue);
        words.wide(4, self.ingress_ts);
        words.wide(5, self.egress_ts);
        words.wide(6, l2_ingress << 32 | l2_egress);
        words.word(7, self.tx_utilization);
        words.word(8, self.buffer().unwrap_or(u32::MAX));
        // All-ones do not change the sum.
        words.rest.fill(0xff);
        words.sum
    }

    /// Returns the level-2 interfaces, as far as they are known.
    fn level_2(&self) -> [Option<u32>; 2] {
        let [ingress, egress] = self.l2_interfaces;
        [(ingress, self.ingress_if), (egress, self.egress_if)].map(|(level_2, level_1)| {
            let interface = if level_2 == 0 { u32::from(level_1) } else { level_2 };
            (interface != 0).then_some(interface)
        })
    }

    /// Occupancy of buffer 0, if it is known.
    fn buffer(&self) -> Option<u32> {
        (self.buffer_occupancy != u32::MAX).then_some(self.buffer_occupancy.min(MAX_OCCUPANCY))
    }

    /// Returns the record of switch `node`, with the items of the instruction bitmap `bits` that a switch can have.
    pub(crate) fn hop(&self, node: u32, bits: u16) -> wire::Hop {
        let has: [bool; 9] = std::array::from_fn(|bit| bits & (0x8000 >> bit) != 0);
        let [ingress_if, egress_if] = [self.ingress_if, self.egress_if]
            .map(|interface| (interface != 0 && has[1]).then_some(interface));
        let buffer = self.buffer().filter(|_| has[8]);
        let occupancy = self.queue_occupancy.min(MAX_OCCUPANCY);
        let latency = self.egress_ts.wrapping_sub(self.ingress_ts) as u32;
        let [l2_ingress, l2_egress] = self.level_2();
        wire::Hop {
            node_id: Some(node),
            ingress_if,
            egress_if,
            hop_latency: has[2].then_some(latency),
            queue_id: has[3].then_some(self.queue_id),
            queue_occupancy: has[3].then_some(occupancy),
            ingress_ts: has[4].then_some(self.ingress_ts),
            egress_ts: has[5].then_some(self.egress_ts),
            l2_ingress_if: l2_ingress.filter(|_| has[6]),
            l2_egress_if: l2_egress.filter(|_| has[6]),
            tx_utilization: has[7].then_some(self.tx_utilization),
            buffer_id: buffer.map(|_| 0),
            buffer_occupancy: buffer,
            ..wire::Hop::default()
        }
    }
}

/// A record that is being written.
struct Words<'a> {
    rest: &'a mut [u8],
    bitmap: u16,
    available: u16,
    sum: u64,
}

impl Words<'_> {
    /// Writes the item of an instruction bit: four bytes.
    #[inline(always)]
    fn word(&mut self, bit: u32, word: u32) {
        let word = if self.available & 0x8000 >> bit != 0 {
            word
        } else {
            u32::MAX
        };
        if self.bitmap & 0x8000 >> bit != 0 && self.put(word.to_be_bytes()) {
            self.sum = self.sum.wrapping_add(u64::from(word));
        }
    }

    /// Appends a value of eight bytes if the bit is set.
    #[inline(always)]
    fn wide(&mut self, bit: u32, word: u64) {
        let word = if self.available & 0x8000 >> bit != 0 {
            word
        } else {
            u64::MAX
        };
        if self.bitmap & 0x8000 >> bit != 0 && self.put(word.to_be_bytes()) {
            self.sum = self.sum.wrapping_add((word >> 32) + (word & 0xffff_ffff));
        }
    }

    #[inline(always)]
    fn put<const LEN: usize>(&mut self, bytes: [u8; LEN]) -> bool {
        match std::mem::take(&mut self.rest).split_first_chunk_mut::<LEN>() {
            Some((slot, rest)) => {
                *slot = bytes;
                self.rest = rest;
                true
            }
            None => false,
        }
    }
}
