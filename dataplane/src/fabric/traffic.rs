//! Generates the departure times of a flow's packets: constant, Poisson, on-off, or none.

use wire::FlowKey;

use super::random::Random;
use crate::flow::{FlowSpec, Pattern};

/// Computes the departure times of a flow's packets.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pattern: Pattern,
    stop: u64,
    /// Time at which the current burst ends, ns (on-off pattern only).
    burst_ends: u64,
}

impl Schedule {
    pub(crate) fn new(spec: &FlowSpec) -> Self {
        Self {
            pattern: spec.pattern,
            stop: spec.stop,
            burst_ends: 0,
        }
    }

    pub(crate) fn stop(&mut self) {
        self.stop = 0;
    }

    /// Returns whether the flow may still send at `now`.
    pub(crate) fn runs(&self, now: u64) -> bool {
        now < self.stop
    }

    /// Returns the time of the first packet, not before `start`; `None` if the flow does not send.
    pub(crate) fn first(&mut self, start: u64, random: &mut Random) -> Option<u64> {
        let at = match self.pattern {
            Pattern::Idle => return None,
            Pattern::Constant { .. } => start,
            Pattern::Poisson { mean } => start.saturating_add(random.exponential(mean)),
            Pattern::OnOff {
                on, random: varies, ..
            } => {
                self.burst_ends = start.saturating_add(length(on, varies, random));
                start
            }
        };
        (at < self.stop).then_some(at)
    }

    /// Returns the time of the packet after one that left at `now`; `None` if the flow has ended.
    pub(crate) fn next(&mut self, now: u64, random: &mut Random) -> Option<u64> {
        let at = match self.pattern {
            Pattern::Idle => return None,
            Pattern::Constant { gap } => now.saturating_add(gap.max(1)),
            Pattern::Poisson { mean } => now.saturating_add(random.exponential(mean)),
            Pattern::OnOff {
                gap,
                on,
                off,
                random: varies,
            } => {
                let at = now.saturating_add(gap.max(1));
                if at < self.burst_ends {
                    at
                } else {
                    let begins = self
                        .burst_ends
                        .saturating_add(length(off, varies, random))
                        .max(now + 1);
                    self.burst_ends = begins.saturating_add(length(on, varies, random));
                    begins
                }
            }
        };
        (at < self.stop).then_some(at)
    }
}

fn length(mean: u64, varies: bool, random: &mut Random) -> u64 {
    if varies {
        random.exponential(mean)
    } else {
        mean.max(1)
    }
}

/// Outcomes of a flow's packets so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowTotals {
    /// The 5-tuple of the flow.
    pub flow: FlowKey,
    /// Packets that its host sent.
    pub sent: u64,
    /// Packets that arrived at their host.
    pub delivered: u64,
    /// Packets that were lost. All remaining ones are in flight.
    pub dropped: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(pattern: Pattern, stop: u64) -> Vec<u64> {
        let mut random = Random::new(1);
        let mut schedule = Schedule::new(&FlowSpec {
            pattern,
            stop,
            ..FlowSpec::new(1, 2, 3, 4)
        });
        let first = schedule.first(100, &mut random);
        std::iter::successors(first, |&at| schedule.next(at, &mut random))
            .take(1_000_000)
            .collect()
    }

    #[test]
    fn constant_and_on_off_traffic_leave_on_the_beat() {
        assert_eq!(times(Pattern::Idle, 1000), Vec::<u64>::new());
        assert_eq!(times(Pattern::Constant { gap: 300 }, 1000), [100, 400, 700]);
        let bursts = Pattern::OnOff {
            gap: 10,
            on: 30,
            off: 100,
            random: false,
        };
        assert_eq!(times(bursts, 400), [100, 110, 120, 230, 240, 250, 360, 370, 380]);
    }

    #[test]
    fn random_traffic_has_its_rate() {
        let second = 1_000_000_000;
        let poisson = times(Pattern::poisson(10_000), second).len();
        assert!((9_700..10_300).contains(&poisson), "{poisson}");
        let bursts = Pattern::OnOff {
            gap: 10_000,
            on: 1_000_000,
            off: 3_000_000,
            random: true,
        };
        let packets = times(bursts, second).len();
        assert!(
            (20_000..30_000).contains(&packets),
            "a quarter of 100,000, not {packets}"
        );
    }
}
