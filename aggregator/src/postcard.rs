//! Extracts a postcard, one node's metadata about one packet, from a telemetry report, with a fast path for the usual
//! INT-XD layout (`docs/reference/wire-formats.md`, sections 4.1 and 4.2).

use wire::aggregate::{self, PacketFields};
use wire::report::{PacketDigest, v20};
use wire::{Annotations, Flags, Hop, Report};

use super::config::V20_POSTCARD_LEN;
use super::stats::RefusalReason;

/// First word: report type 1, no inner packet, 8 words of which 6 are metadata, not dropped.
const FIRST: u64 = 0x1008_0600 << 32;
/// Second word: queue and both timestamps, domain "PC".
const BITS: u64 = 0x1c00_5043;
/// Mask for both words. Report flags other than D (dropped) are ignored.
const EXACT_MASK: u64 = 0xffff_ff80_ffff_ffff;

/// One node's data about a packet. All-ones means missing, as on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Postcard {
    /// Node ID; all-ones: unknown.
    pub(super) node: u32,
    /// Flow ID; all-ones: no flow.
    pub(super) flow: u32,
    /// Ingress timestamp; all-ones: missing. It is later than the egress timestamp only if a device said so: two timestamps of
    /// 32 bits are [unwrapped](unwrapped).
    pub(super) ingress: u64,
    /// Egress timestamp; all-ones: missing.
    pub(super) egress: u64,
    /// Queue ID (8 bits) and occupancy (24 bits); all-ones: missing, or one of both is.
    pub(super) queue: u32,
    /// Hop latency of a report without timestamps; all-ones: missing.
    pub(super) latency: u32,
    /// Fields of the packet, for path verification.
    pub(super) packet: PacketFields,
}

/// Returns the low 32 bits of a timestamp. All-ones would mean a missing value, so it becomes one less.
#[inline(always)]
fn low(stamp: u64) -> u32 {
    if stamp == u64::MAX {
        u32::MAX
    } else {
        (stamp as u32).min(u32::MAX - 1)
    }
}

/// Returns two 32-bit timestamps, which are times modulo 2^32, as 64-bit ones with the same difference: below 2^31 the egress is
/// later, or else the ingress.
fn unwrapped(ingress: u64, egress: u64) -> (u64, u64) {
    let first = u64::from(ingress as u32);
    let second = u64::from(egress as u32);
    let later = (second as u32).wrapping_sub(first as u32);
    if is_latency(later.into()) {
        (first, first + u64::from(later))
    } else {
        (second + u64::from(later.wrapping_neg()), second)
    }
}

/// Returns whether the difference of two timestamps can be a latency, and has the same value in 32 bits.
#[inline(always)]
const fn is_latency(later: u64) -> bool {
    later >> 31 == 0
}

/// Joins the ID and the occupancy of a queue. An occupancy that names no queue, as in IOAM, or needs more than 24 bits is
/// missing.
fn join_queue(hop: &Hop) -> u32 {
    match (hop.queue_id, hop.queue_occupancy) {
        (Some(queue), Some(length)) if length >> 24 == 0 => u32::from(queue) << 24 | length,
        _ => u32::MAX,
    }
}

impl Postcard {
    /// A postcard without any value.
    pub(super) const NOTHING: Self = Self {
        node: u32::MAX,
        flow: u32::MAX,
        ingress: u64::MAX,
        egress: u64::MAX,
        queue: u32::MAX,
        latency: u32::MAX,
        packet: PacketFields {
            ingress_if: None,
            egress_if: None,
            hop_limit: None,
            entered: false,
            left: false,
            digest: 0,
        },
    };

    /// Extracts the postcard of a report, or returns why the report is not a postcard.
    pub(super) fn from_report(report: &Report<'_>) -> Result<Self, RefusalReason> {
        if report.flags.contains(Flags::DROP) {
            return Err(RefusalReason::DropReport);
        }
        if report.int.is_some_and(|int| int.sf.is_some()) {
            return Err(RefusalReason::Stateful);
        }
        match report.hop_count() {
            0 => return Err(RefusalReason::NoMetadata),
            1 => {}
            _ => return Err(RefusalReason::SeveralNodes),
        }
        let hop = report.hop(0);
        let flow = report.flow_id.or_else(|| report.flow.map(|flow| flow.flow_id()));
        // A replica takes another way than its flow.
        let flow = flow.filter(|_| !report.annotations.contains(Annotations::REPLICA));
        let mut ingress = hop.ingress_ts;
        let mut egress = hop.egress_ts;
        // Derives the missing timestamp from the latency and the other timestamp.
        if let Some(latency) = hop.hop_latency.map(u64::from) {
            egress = egress.or_else(|| ingress.map(|stamp| stamp.wrapping_add(latency)));
            ingress = ingress.or_else(|| egress.map(|stamp| stamp.wrapping_sub(latency)));
        }
        if let (Some(first), Some(second), false) = (ingress, egress, hop.wide_ts) {
            let (first, second) = unwrapped(first, second);
            (ingress, egress) = (Some(first), Some(second));
        }
        Ok(Self {
            node: hop.node_id.or(report.node_id).unwrap_or(u32::MAX),
            flow: flow.unwrap_or(u32::MAX),
            ingress: ingress.unwrap_or(u64::MAX),
            egress: egress.unwrap_or(u64::MAX),
            queue: join_queue(&hop),
            latency: hop.hop_latency.unwrap_or(u32::MAX),
            packet: packet_fields(report, &hop),
        })
    }

    /// Returns egress minus ingress if this can be a latency, or the reported latency if a timestamp is missing.
    #[inline(always)]
    pub(super) fn hop_latency(&self) -> Option<u32> {
        if self.ingress == u64::MAX || self.egress == u64::MAX {
            return (self.latency != u32::MAX).then_some(self.latency);
        }
        is_latency(self.egress.wrapping_sub(self.ingress))
            .then(|| low(self.egress).wrapping_sub(low(self.ingress)))
    }

    /// Returns the low 32 bits of the ingress timestamp. It is missing if, modulo 2^32, it would give a latency that the whole
    /// timestamps do not have.
    #[inline(always)]
    fn low_ingress(&self) -> u32 {
        let ingress = low(self.ingress);
        let wraps = !is_latency(self.egress.wrapping_sub(self.ingress))
            && is_latency(low(self.egress).wrapping_sub(ingress).into());
        if wraps && self.egress != u64::MAX {
            u32::MAX
        } else {
            ingress
        }
    }

    #[inline(always)]
    pub(super) fn queue_length(&self) -> Option<u32> {
        (self.queue != u32::MAX).then_some(self.queue & 0x00ff_ffff)
    }

    /// Converts the postcard to the record of an aggregate.
    #[inline(always)]
    pub(super) fn to_wire(self) -> aggregate::Postcard {
        aggregate::Postcard {
            node: self.node,
            flow_id: self.flow,
            ingress_ts: self.low_ingress(),
            egress_ts: low(self.egress),
            queue_id: (self.queue >> 24) as u8,
            queue_length: self.queue & 0x00ff_ffff,
        }
    }

    /// Writes the postcard as an individual report of Telemetry Report 2.0, like [`v20::Repr::postcard`] but with constant
    /// offsets.
    #[inline(always)]
    pub(super) fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<V20_POSTCARD_LEN>() else {
            return;
        };
        out[0..8].copy_from_slice(&0x1008_0620_1c00_5043_u64.to_be_bytes());
        out[8..12].copy_from_slice(&0x8000_0000_u32.to_be_bytes());
        out[12..16].copy_from_slice(&self.queue.to_be_bytes());
        out[16..24].copy_from_slice(&self.ingress.to_be_bytes());
        out[24..32].copy_from_slice(&self.egress.to_be_bytes());
        out[32..36].copy_from_slice(&self.flow.to_be_bytes());
    }
}

fn packet_fields(report: &Report<'_>, hop: &Hop) -> PacketFields {
    let PacketDigest { hop_limit, digest } = PacketDigest::of(report);
    let (entered, left) = report.edges();
    PacketFields {
        ingress_if: hop.ingress_if,
        egress_if: hop.egress_if,
        hop_limit,
        entered,
        left,
        digest,
    }
}

/// A Report 2.0 datagram that contains only postcards of the usual layout.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExactGroup<'a> {
    pub(super) node: u32,
    pub(super) hw_id: u8,
    pub(super) seq: u32,
    postcards: &'a [[u8; V20_POSTCARD_LEN]],
}

impl<'a> ExactGroup<'a> {
    /// Parses a datagram at constant offsets. Returns `None` if it has another layout, so that the decoder must read it.
    #[inline(always)]
    pub(super) fn parse(payload: &'a [u8]) -> Option<Self> {
        let (group, rest) = payload.split_first_chunk::<{ v20::GROUP_LEN }>()?;
        let (postcards, behind) = rest.as_chunks::<V20_POSTCARD_LEN>();
        if group[0] >> 4 != 2 || !behind.is_empty() || postcards.is_empty() {
            return None;
        }
        if !postcards.iter().all(is_exact) {
            return None;
        }
        let word = u32_at(group, 0);
        Some(Self {
            node: u32_at(group, 4),
            hw_id: (word >> 22 & 0x3f) as u8,
            seq: word & 0x003f_ffff,
            postcards,
        })
    }

    #[inline(always)]
    pub(super) fn postcards(&self) -> impl ExactSizeIterator<Item = Postcard> + use<'a> {
        let node = self.node;
        self.postcards.iter().map(move |bytes| Postcard {
            node,
            flow: u32_at(bytes, 32),
            ingress: u64_at(bytes, 16),
            egress: u64_at(bytes, 24),
            queue: u32_at(bytes, 12),
            ..Postcard::NOTHING
        })
    }
}

#[inline(always)]
fn is_exact(bytes: &[u8; V20_POSTCARD_LEN]) -> bool {
    u64_at(bytes, 0) & EXACT_MASK == FIRST | BITS && u32_at(bytes, 8) == 0x8000_0000
}

#[inline(always)]
fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline(always)]
fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Decoder, Profile};

    /// Returns a random datagram, most often a valid report of postcards in the exact layout.
    fn datagram(seed: &mut u64) -> Vec<u8> {
        let mut rng = || {
            *seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (*seed >> 33) as u32
        };
        let mut out = vec![0x20, rng() as u8, rng() as u8, rng() as u8, 0, 0, 0, rng() as u8];
        for _ in 0..=rng() % 4 {
            let ones = |random: u32| {
                if random.is_multiple_of(5) {
                    u32::MAX
                } else {
                    random
                }
            };
            let words = [
                0x1008_0600 | rng() & 0x7f,
                0x1c00_5043,
                0x8000_0000,
                rng(),
                rng(),
                rng(),
                rng(),
            ];
            out.extend(
                words
                    .map(ones_of(rng() % 8))
                    .iter()
                    .flat_map(|word| word.to_be_bytes()),
            );
            out.extend(
                [ones(rng()), ones(rng())]
                    .iter()
                    .flat_map(|word| word.to_be_bytes()),
            );
        }
        if rng().is_multiple_of(3) {
            let at = rng() as usize % out.len();
            out[at] ^= 1 << (rng() % 8);
        }
        if rng().is_multiple_of(9) {
            out[4..8].fill(0xff);
        }
        out
    }

    /// Returns a function that sometimes replaces the metadata words with all ones, the mark of a missing value.
    fn ones_of(which: u32) -> impl Fn(u32) -> u32 {
        move |word| {
            if which == 3 && word >> 16 != 0x1008 && word != 0x1c00_5043 && word != 0x8000_0000 {
                u32::MAX
            } else {
                word
            }
        }
    }

    #[test]
    fn exact_postcards_decode_as_the_decoder_does() {
        let (mut seed, mut exact, mut other) = (1, 0, 0);
        let mut decoder = Decoder::new(Profile::default());
        for _ in 0..50_000 {
            let bytes = datagram(&mut seed);
            let Some(found) = ExactGroup::parse(&bytes) else {
                other += 1;
                continue;
            };
            exact += 1;
            let mut reports = decoder.reports(&bytes);
            for postcard in found.postcards() {
                let report = reports.next().expect("as many").expect("good");
                let node = report.node_id.unwrap_or(u32::MAX);
                assert_eq!(
                    (found.node, found.hw_id, found.seq),
                    (node, report.hw_id, report.seq)
                );
                assert_eq!(Ok(postcard), Postcard::from_report(&report), "{bytes:02x?}");
            }
            assert!(reports.next().is_none());
        }
        assert!(exact > 30_000 && other > 1000, "{exact} exact, {other} other");
    }

    #[test]
    fn an_emitted_postcard_is_that_of_the_writer() {
        let own = wire::Hop {
            queue_id: Some(1),
            queue_occupancy: Some(0x2a),
            ingress_ts: Some(0x17a3_b2c1_d0e0_f000),
            egress_ts: None,
            ..wire::Hop::default()
        };
        let flow = 0xf10a_u32;
        let mut expected = [0xa5; V20_POSTCARD_LEN];
        v20::Repr::postcard(own, &flow.to_be_bytes()).emit(&mut expected);
        let postcard = Postcard {
            node: 21,
            flow,
            ingress: 0x17a3_b2c1_d0e0_f000,
            egress: u64::MAX,
            queue: 0x0100_002a,
            ..Postcard::NOTHING
        };
        let mut out = [0x5a; V20_POSTCARD_LEN];
        postcard.emit(&mut out);
        assert_eq!(out, expected);
    }

    #[test]
    fn no_latency_appears_by_wrapping() {
        // The egress after an ingress at `start`, and the latency of a record and of a summary. A record with a latency of 2^31 or
        // more is implausible to every reader.
        let start = 1_700_000_000_123_456_789_u64;
        let implausible = 3_000_000_000;
        for (later, recorded, summed) in [
            (0, Some(0), Some(0)),
            (700, Some(700), Some(700)),
            ((1 << 31) - 1, Some(i32::MAX as u32), Some(i32::MAX as u32)),
            (3_000_000_000, Some(implausible), None),
            (5_000_000_000, None, None),
            (86_400_000_000_000, Some(2_437_873_664), None),
            (-50, Some(u32::MAX - 49), None),
            (-3_500_000_000, None, None),
        ] {
            let postcard = Postcard {
                ingress: start,
                egress: start.wrapping_add_signed(later),
                ..Postcard::NOTHING
            };
            let record = postcard.to_wire();
            assert_eq!(record.hop_latency(), recorded, "{later}");
            assert_eq!(postcard.hop_latency(), summed, "{later}");
            assert_eq!(record.egress_ts(), Some(low(postcard.egress)), "{later}");
        }
    }

    #[test]
    fn timestamps_of_32_bits_are_times_modulo_2_to_the_32nd() {
        for (ingress, egress, expected) in [
            (10, 25, (10, 25)),
            (0xffff_ff00, 0x100, (0xffff_ff00, 0x1_0000_0100)),
            (25, 10, (25, 10)),
            (0x10, 0xffff_fff0, (0x1_0000_0010, 0xffff_fff0)),
        ] {
            assert_eq!(unwrapped(ingress, egress), expected, "{ingress:x} {egress:x}");
            let (ingress, egress) = expected;
            let postcard = Postcard {
                ingress,
                egress,
                ..Postcard::NOTHING
            };
            let modulo = (egress as u32).wrapping_sub(ingress as u32);
            assert_eq!(postcard.to_wire().hop_latency(), Some(modulo));
            assert_eq!(
                postcard.hop_latency(),
                Some(modulo).filter(|later| later >> 31 == 0)
            );
        }
    }

    #[test]
    fn an_occupancy_without_a_queue_is_no_queue_s() {
        let hop = |queue_id, length| Hop {
            queue_id,
            queue_occupancy: Some(length),
            ..Hop::default()
        };
        assert_eq!(join_queue(&hop(Some(3), 16)), 0x0300_0010);
        for hop in [hop(None, 16), hop(None, 0x0500_0010), hop(Some(3), 0x0500_0010)] {
            assert_eq!(join_queue(&hop), u32::MAX, "{hop:?}");
        }
    }

    #[test]
    fn a_stamp_that_is_there_stays_there() {
        let postcard = Postcard {
            node: 1,
            flow: 2,
            ingress: 0x0000_0001_ffff_ffff,
            egress: 0x0000_0002_0000_0004,
            ..Postcard::NOTHING
        };
        assert_eq!(postcard.to_wire().ingress_ts(), Some(0xffff_fffe));
        assert_eq!(
            postcard.hop_latency(),
            postcard.to_wire().hop_latency(),
            "a summary says what its postcards would"
        );
        assert_eq!((postcard.hop_latency(), postcard.queue_length()), (Some(6), None));
    }
}
