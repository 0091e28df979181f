//! The measurement of a packet at a switch (ports, timestamps, queue), and the INT record that the switch writes from it.

use crate::watchlist::Role;

/// Largest valid occupancy: all-ones means "unavailable".
const MAX_OCCUPANCY: u32 = 0xff_fffe;

/// The measurement of one packet at a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// Ingress interface; 0 means unknown.
    pub ingress_if: u16,
    /// Egress interface; 0 means unknown.
    pub egress_if: u16,
    /// Ingress timestamp, ns of the switch's clock.
    pub ingress_ts: u64,
    /// Egress timestamp, ns of the switch's clock.
    pub egress_ts: u64,
    /// Id of the egress queue.
    pub queue_id: u8,
    /// Occupancy of the egress queue, device units, clamped to 24 bits.
    pub queue_occupancy: u32,
    /// Utilization of the egress link, device units.
    pub tx_utilization: u32,
    /// Occupancy of the buffer that all egress queues share, with buffer id 0, device units, clamped to 24 bits; all-ones means
    /// unknown.
    pub buffer_occupancy: u32,
    /// Ingress and egress level-2 (logical) interface; 0 means the level-1 interface.
    pub l2_interfaces: [u32; 2],
    /// MTU of the egress link, bytes.
    pub mtu: u16,
    /// Whether the packet arrived from outside the domain.
    pub from_edge: bool,
    /// Whether the packet leaves the domain.
    pub to_edge: bool,
    /// Whether the ingress port is at the border of the domain, even if its packets are not measured: INT that a packet carries
    /// there is not the domain's own.
    pub from_border: bool,
}

/// The decision whether to send a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet leaves through an egress port.
    Forward,
    /// The packet is dropped: it is for measurement only (D).
    Discard,
}

impl Visit {
    /// Returns whether the packet comes from outside the domain, regardless of the roles of flows.
    #[inline(always)]
    pub(crate) fn is_from_outside(&self) -> bool {
        self.from_edge || self.from_border
    }

    /// Returns the measurement with the domain edges of a switch in `role`.
    pub(crate) fn in_role(&self, role: Role) -> Self {
        let from_edge = matches!(role, Role::Source | Role::SourceAndSink);
        let to_edge = matches!(role, Role::Sink | Role::SourceAndSink);
        Self {
            from_edge,
            to_edge,
            ..*self
        }
    }

    /// Writes the record of switch `node` for the INT 2.x instruction bitmap `bitmap`: items that are not `available`, and the
    /// rest of `out`, are all-ones. `out` must be at least as long as the bitmap requires. Returns the word sum of the record
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
        // All-ones do not change a one's complement sum.
        words.rest.fill(0xff);
        words.sum
    }

    /// Returns the level-2 interfaces, ingress and egress, each if known.
    fn level_2(&self) -> [Option<u32>; 2] {
        let [ingress, egress] = self.l2_interfaces;
        [(ingress, self.ingress_if), (egress, self.egress_if)].map(|(level_2, level_1)| {
            let interface = if level_2 == 0 { u32::from(level_1) } else { level_2 };
            (interface != 0).then_some(interface)
        })
    }

    /// Returns the occupancy of buffer 0, if known.
    fn buffer(&self) -> Option<u32> {
        (self.buffer_occupancy != u32::MAX).then_some(self.buffer_occupancy.min(MAX_OCCUPANCY))
    }

    /// Returns the record of switch `node`, with those items of the instruction bitmap `bits` that this model supports.
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

/// Writer for the words of a record.
struct Words<'a> {
    rest: &'a mut [u8],
    bitmap: u16,
    available: u16,
    sum: u64,
}

impl Words<'_> {
    /// Appends the four-byte item of instruction bit `bit`, if the bitmap requests it.
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

    /// Appends the eight-byte item of instruction bit `bit`, if the bitmap requests it.
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
