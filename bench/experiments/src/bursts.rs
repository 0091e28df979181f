//! Microbursts in a data centre: generates packets with the two-state model (hot or cold periods of 25 µs) of Zhang et al.,
//! "High-Resolution Measurement of Data Center Microbursts" (IMC 2017, Table 2), and the occupancy of the queue that they fill.

use crate::figures::keys::mix;

/// A kind of server rack: the probabilities that a period of 25 us is hot, that is, the link is overloaded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Model {
    /// Name in the paper by Zhang et al.
    pub(super) name: &'static str,
    /// Probability of a hot period after a cold one, per mille.
    after_cold: u64,
    /// Probability of a hot period after a hot one, per mille.
    after_hot: u64,
}

/// Web servers, in-memory caches and Hadoop nodes, as measured at Facebook.
pub(super) const MODELS: [Model; 3] = [
    Model {
        name: "web",
        after_cold: 3,
        after_hot: 359,
    },
    Model {
        name: "cache",
        after_cold: 13,
        after_hot: 586,
    },
    Model {
        name: "hadoop",
        after_cold: 42,
        after_hot: 655,
    },
];

impl Model {
    /// Returns whether the next period is hot, given whether the last one was.
    pub(super) fn is_hot(self, after_hot: bool, random: &mut Random) -> bool {
        random.per_mille()
            < if after_hot {
                self.after_hot
            } else {
                self.after_cold
            }
    }

    /// Returns whether a burst continues for another period.
    pub(super) fn stays_hot(self, random: &mut Random) -> bool {
        random.per_mille() < self.after_hot
    }
}

/// Length of a period, ns.
pub(super) const PERIOD: u64 = 25_000;
/// Transmission time of one packet on the egress link, ns: 800 bytes at 10 Gb/s.
const PACKET: u64 = 640;
/// Gap between packets in a hot period, ns: two ingress links at line rate.
const HOT: u64 = 320;
/// Gap between packets in a cold period, ns: a fifth of the egress link's rate.
const COLD: u64 = 3_200;
/// Depth of the queue as transmission time, ns.
const DEPTH: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    /// Arrival time of the packet, ns.
    pub(super) at: u64,
    /// Queue occupancy at arrival, ns.
    pub(super) queue: u64,
}

/// Generates `count` packets of a rack.
pub(super) fn trace(model: Model, count: usize, seed: u64) -> Vec<Packet> {
    let mut random = Random(seed);
    let (mut packets, mut hot, mut begin, mut backlog, mut previous) =
        (Vec::with_capacity(count), false, 0, 0_u64, 0);
    while packets.len() < count {
        hot = model.is_hot(hot, &mut random);
        let gap = if hot { HOT } else { COLD };
        for at in (begin..begin + PERIOD).step_by(gap as usize) {
            backlog = backlog.saturating_sub(at - previous);
            previous = at;
            packets.push(Packet { at, queue: backlog });
            backlog = (backlog + PACKET).min(DEPTH);
        }
        begin += PERIOD;
    }
    packets.truncate(count);
    packets
}

/// Pseudorandom numbers by the SplitMix64 generator.
pub(super) struct Random(pub(super) u64);

impl Random {
    /// Returns a number that is evenly distributed below a thousand.
    pub(super) fn per_mille(&mut self) -> u64 {
        let mixed = mix(self.0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed % 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_period_fills_the_queue_at_the_rate_of_one_link() {
        let always = Model {
            name: "",
            after_cold: 1_000,
            after_hot: 1_000,
        };
        let packets = trace(always, 1_000, 1);
        // Each packet adds 640 ns of backlog in 320 ns.
        assert_eq!(
            packets[999],
            Packet {
                at: 25_000 * (999 / 79) + 320 * (999 % 79),
                queue: packets[999].queue
            }
        );
        assert!(
            (300_000..330_000).contains(&packets[999].queue),
            "{}",
            packets[999].queue
        );
        let never = Model {
            name: "",
            after_cold: 0,
            after_hot: 0,
        };
        assert!(trace(never, 1_000, 1).iter().all(|packet| packet.queue == 0));
    }

    #[test]
    fn hot_periods_are_as_long_as_the_model_says() {
        for model in MODELS {
            let packets = trace(model, 2_000_000, 7);
            let mut hot: Vec<u64> = packets
                .windows(2)
                .filter(|pair| pair[1].at - pair[0].at == HOT)
                .map(|pair| pair[0].at / PERIOD)
                .collect();
            hot.dedup();
            let runs = 1 + hot.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
            let wanted = 1_000.0 / (1_000.0 - model.after_hot as f64);
            let mean = hot.len() as f64 / runs as f64;
            assert!(
                (mean / wanted - 1.0).abs() < 0.1,
                "{}: {mean} {wanted}",
                model.name
            );
        }
    }
}
