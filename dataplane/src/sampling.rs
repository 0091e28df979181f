//! Packet sampling: selects one of N packets of a watchlist entry.
//!
//! **At a source** (INT-MD, INT-MX, SF-INT), each entry counts down to its next sampled packet. The number of skipped packets
//! is drawn anew each time, uniformly from 0 to 2·(N − 1), so its mean is N − 1: unlike sampling every N-th packet, this does
//! not always hit the same packets of periodic traffic. The numbers are pseudo-random, a hash of the number of packets measured
//! before, so the same packets always lead to the same reports. The first packet of a new entry is measured.
//!
//! **For postcards**, all nodes must select the same packets, although nothing in a packet marks them. Each node computes the
//! same hash of fields that no router changes (`hash`): hash-based selection as in RFC 5475, section 6.2.

use crate::packet::Headers;

/// Sampling counters of a watchlist entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets that matched the entry.
    pub matched: u64,
    /// Packets that were selected for measurement.
    pub measured: u64,
    /// Packets to skip before the next measured one.
    skip: u32,
}

impl Counted {
    /// Continues these counters with a sampling rate of one in `sample`.
    pub(crate) fn continuing(self, sample: u32) -> Self {
        let most = u64::from(sample.saturating_sub(1)) * 2;
        Self {
            skip: u64::from(self.skip).min(most) as u32,
            ..self
        }
    }

    /// Counts a packet at a source, and returns whether it is measured.
    #[inline]
    pub(crate) fn count(&mut self, sample: u32) -> bool {
        self.matched += 1;
        if sample > 1 {
            if self.skip > 0 {
                self.skip -= 1;
                return false;
            }
            self.skip = skip(self.measured as u32, sample);
        }
        self.measured += 1;
        true
    }

    /// Counts a packet at a node that sends postcards, and returns whether it sends one for this packet. `hash` is that of the
    /// packet.
    #[inline]
    pub(crate) fn select(&mut self, sample: u32, hash: impl FnOnce() -> u32) -> bool {
        self.matched += 1;
        let is_measured = sample <= 1 || hash().is_multiple_of(sample);
        self.measured += u64::from(is_measured);
        is_measured
    }
}

/// Returns the number of packets to skip after measured packet number `measured`.
fn skip(measured: u32, sample: u32) -> u32 {
    let numbers = u64::from(sample) * 2 - 1;
    (u64::from(crc_32(&measured.to_be_bytes())) % numbers) as u32
}

/// Returns the sampling hash of a packet: a CRC-32 over 36 bytes, which are the IP length field and identification (0 over
/// IPv6), then the first 32 bytes of L4 header and payload, padded with zeros.
pub(crate) fn hash(frame: &[u8], headers: &Headers) -> u32 {
    let mut bytes = [0; 36];
    let (fields, l4) = bytes.split_at_mut(4);
    let ip = frame.get(headers.ip..).unwrap_or_default();
    let at = if headers.v6 { 4..6 } else { 2..6 };
    if let Some(present) = ip.get(at) {
        fields[..present.len()].copy_from_slice(present);
    }
    let end = (headers.ip + headers.ip_len(frame)).min(frame.len());
    let present = frame.get(headers.l4..end).unwrap_or_default();
    let len = present.len().min(l4.len());
    l4[..len].copy_from_slice(&present[..len]);
    crc_32(&bytes)
}

fn crc_32(bytes: &[u8]) -> u32 {
    !wire::crc::crc_32_update(u32::MAX, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_measures_one_of_n_of_periodic_traffic_too() {
        for sample in [2, 3, 10, 64, 1000] {
            for period in [1, 2, 3, 10] {
                let (mut counted, mut by_flow) = (Counted::default(), vec![0u32; period]);
                let packets = 20_000 * sample;
                for packet in 0..packets {
                    by_flow[packet as usize % period] += u32::from(counted.count(sample));
                }
                let measured: u32 = by_flow.iter().sum();
                assert_eq!(
                    (counted.matched, counted.measured),
                    (packets.into(), measured.into())
                );
                assert!(
                    (19_600..20_400).contains(&measured),
                    "1 in {sample}: {measured} of {packets}"
                );
                let fair = measured / period as u32;
                let is_fair = |flow: &u32| (fair * 9 / 10..fair * 11 / 10 + 2).contains(flow);
                assert!(
                    by_flow.iter().all(is_fair),
                    "1 in {sample}, {period} flows in turn: {by_flow:?}"
                );
            }
        }
    }

    #[test]
    fn the_first_packets_are_these() {
        let mut counted = Counted::default();
        let measured: Vec<u32> = (0..60).filter(|_| counted.count(10)).collect();
        assert_eq!(
            measured,
            [0, 4, 20, 26, 28, 45, 47],
            "computed by zlib's crc32 in another language"
        );
        let mut all = Counted::default();
        assert!((0..100).all(|_| all.count(1)) && (0..100).all(|_| all.count(0)));
        assert_eq!(
            all,
            Counted {
                matched: 200,
                measured: 200,
                skip: 0
            }
        );
    }

    #[test]
    fn an_entry_with_a_finer_share_does_not_wait_for_the_old_one() {
        let mut counted = Counted {
            skip: 1999,
            ..Counted::default()
        }
        .continuing(2);
        assert_eq!([(); 3].map(|()| counted.count(2)), [false, false, true]);
        assert_eq!(
            Counted {
                skip: 7,
                ..Counted::default()
            }
            .continuing(0)
            .skip,
            0
        );
    }
}
