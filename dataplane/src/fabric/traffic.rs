//! Who sends what to whom, and when.

use wire::FlowKey;

use super::random::Random;

/// One flow of equal packets between two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSpec {
    /// Sending host's id.
    pub from: u32,
    /// Receiving host's id.
    pub to: u32,
    /// IPv4 or IPv6.
    pub family: Family,
    /// UDP or TCP.
    pub transport: Transport,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// DSCP of the packets, 0 to 63. Must not be the INT mark where that is used.
    pub dscp: u8,
    /// Bytes after the UDP or TCP header.
    pub payload: u16,
    /// When packets leave.
    pub pattern: Pattern,
    /// First moment at which one may, true time, ns. Relative to now where that has passed.
    pub start: u64,
    /// None leaves at or after this, true time, ns.
    pub stop: u64,
}

impl FlowSpec {
    /// A UDP flow over IPv4 that begins at once and never stops: 10 packets/s of 100 bytes.
    pub fn new(from: u32, to: u32, src_port: u16, dst_port: u16) -> Self {
        Self {
            from,
            to,
            family: Family::V4,
            transport: Transport::Udp,
            src_port,
            dst_port,
            dscp: 0,
            payload: 100,
            pattern: Pattern::constant(10),
            start: 0,
            stop: u64::MAX,
        }
    }
}

/// IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// L4 protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP; only its form: there is no congestion control and no retransmission.
    Tcp,
}

impl Transport {
    /// IP protocol number.
    pub fn number(self) -> u8 {
        match self {
            Self::Udp => 17,
            Self::Tcp => 6,
        }
    }
}

/// When packets leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Never by itself; bursts are ordered by action.
    Idle,
    /// One every `gap` ns.
    Constant {
        /// From packet to packet, ns.
        gap: u64,
    },
    /// Independent arrivals.
    Poisson {
        /// Mean distance, ns.
        mean: u64,
    },
    /// Bursts: one packet every `gap` ns for `on` ns, then nothing for `off` ns.
    OnOff {
        /// From packet to packet inside a burst, ns.
        gap: u64,
        /// Length of a burst, ns (the mean, when `random`).
        on: u64,
        /// Pause between bursts, ns (the mean, when `random`).
        off: u64,
        /// Burst and pause lengths are exponentially distributed.
        random: bool,
    },
}

impl Pattern {
    /// Evenly, `rate` packets/s; [`Pattern::Idle`] for 0.
    pub fn constant(rate: u64) -> Self {
        1_000_000_000u64.checked_div(rate).map_or(Self::Idle, |gap| Self::Constant { gap: gap.max(1) })
    }

    /// Independently, `rate` packets/s on average; [`Pattern::Idle`] for 0.
    pub fn poisson(rate: u64) -> Self {
        1_000_000_000u64.checked_div(rate).map_or(Self::Idle, |mean| Self::Poisson { mean: mean.max(1) })
    }
}

/// Gives the times at which a flow's packets leave.
#[derive(Clone, Debug)]
pub(crate) struct Clockwork {
    pattern: Pattern,
    stop: u64,
    /// When the burst under way ends (on-off only).
    burst_ends: u64,
}

impl Clockwork {
    pub(crate) fn new(spec: &FlowSpec) -> Self {
        Self { pattern: spec.pattern, stop: spec.stop, burst_ends: 0 }
    }

    /// Lets no packet leave any more.
    pub(crate) fn stop(&mut self) {
        self.stop = 0;
    }

    /// The flow may still send at `now`.
    pub(crate) fn runs(&self, now: u64) -> bool {
        now < self.stop
    }

    /// The first packet's time, not before `start`.
    pub(crate) fn first(&mut self, start: u64, random: &mut Random) -> Option<u64> {
        let at = match self.pattern {
            Pattern::Idle => return None,
            Pattern::Constant { .. } => start,
            Pattern::Poisson { mean } => start.saturating_add(random.exponential(mean)),
            Pattern::OnOff { on, random: varies, .. } => {
                self.burst_ends = start.saturating_add(length(on, varies, random));
                start
            }
        };
        (at < self.stop).then_some(at)
    }

    /// The next packet's time after one that left at `now`.
    pub(crate) fn next(&mut self, now: u64, random: &mut Random) -> Option<u64> {
        let at = match self.pattern {
            Pattern::Idle => return None,
            Pattern::Constant { gap } => now.saturating_add(gap.max(1)),
            Pattern::Poisson { mean } => now.saturating_add(random.exponential(mean)),
            Pattern::OnOff { gap, on, off, random: varies } => {
                let at = now.saturating_add(gap.max(1));
                if at < self.burst_ends {
                    at
                } else {
                    let begins = self.burst_ends.saturating_add(length(off, varies, random)).max(now + 1);
                    self.burst_ends = begins.saturating_add(length(on, varies, random));
                    begins
                }
            }
        };
        (at < self.stop).then_some(at)
    }
}

fn length(mean: u64, varies: bool, random: &mut Random) -> u64 {
    if varies { random.exponential(mean) } else { mean.max(1) }
}

/// What became of a flow's packets so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowTotals {
    /// Its 5-tuple.
    pub flow: FlowKey,
    /// Packets its host made.
    pub sent: u64,
    /// Packets that arrived.
    pub delivered: u64,
    /// Packets that were lost. The rest is under way.
    pub dropped: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(pattern: Pattern, stop: u64) -> Vec<u64> {
        let mut random = Random::new(1);
        let mut clockwork = Clockwork::new(&FlowSpec { pattern, stop, ..FlowSpec::new(1, 2, 3, 4) });
        let first = clockwork.first(100, &mut random);
        std::iter::successors(first, |&at| clockwork.next(at, &mut random)).take(1_000_000).collect()
    }

    #[test]
    fn constant_and_on_off_traffic_leave_on_the_beat() {
        assert_eq!(times(Pattern::Idle, 1000), []);
        assert_eq!(times(Pattern::Constant { gap: 300 }, 1000), [100, 400, 700]);
        let bursts = Pattern::OnOff { gap: 10, on: 30, off: 100, random: false };
        assert_eq!(times(bursts, 400), [100, 110, 120, 230, 240, 250, 360, 370, 380]);
    }

    #[test]
    fn random_traffic_has_its_rate() {
        let second = 1_000_000_000;
        let poisson = times(Pattern::poisson(10_000), second).len();
        assert!((9_700..10_300).contains(&poisson), "{poisson}");
        let bursts = Pattern::OnOff { gap: 10_000, on: 1_000_000, off: 3_000_000, random: true };
        let packets = times(bursts, second).len();
        assert!((20_000..30_000).contains(&packets), "a quarter of 100,000, not {packets}");
    }
}
