//! Sequences of essential reports: what came, what is missing, what came twice. Wire-formats 5.8.

use super::config::Config;

/// How many of its essential reports a reporter keeps: what is further behind than these is no repetition.
const WINDOW: u16 = 256;
/// So many numbers in a row from behind the window are a reporter that began anew.
const RESTART_RUN: u8 = 8;
/// One ACK for so many accepted reports.
const ACK_EVERY: u8 = 64;

/// How many bits a sequence has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Width {
    /// DTA v1.
    Sixteen,
    /// The artifact.
    Eight,
}

impl Width {
    const fn mask(self) -> u16 {
        match self {
            Self::Sixteen => 0xffff,
            Self::Eight => 0xff,
        }
    }
}

/// What is known of one reporter's essential reports to one collector.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tracker {
    /// The only address that may use this reporter's ID.
    pub(super) address: u128,
    /// When its last report came, accepted or not.
    pub(super) seen: u64,
    /// It stands in the settings and stays.
    pub(super) pinned: bool,
    /// Has it a last number?
    begun: bool,
    /// The last number in order.
    last: u16,
    /// NACKs for the gap behind it.
    nacks: u8,
    nacked_at: u64,
    /// Numbers in a row from far behind, and the one that would be next.
    run: u8,
    run_next: u16,
    /// Accepted since the last ACK.
    accepted: u8,
}

/// What a sequence number says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It is due: so many before it were given up.
    Due {
        /// Numbers given up.
        lost: u16,
        /// The reporter began anew.
        restart: bool,
    },
    /// It was here before.
    Duplicate,
    /// Some before it are missing; tell the reporter, or not again so soon.
    Gap {
        /// Send a NACK.
        nack: bool,
    },
}

const RESTART: Verdict = Verdict::Due { lost: 0, restart: true };

impl Tracker {
    /// Of a reporter at this address, of which nothing has come before `seen`.
    pub(super) fn of(address: u128, seen: u64, pinned: bool) -> Self {
        Self { address, seen, pinned, ..Self::default() }
    }

    /// The last number in order; before there is one, that before `sequence`.
    pub(super) fn last(&self, sequence: u16, width: Width) -> u16 {
        if self.begun { self.last } else { sequence.wrapping_sub(1) & width.mask() }
    }

    /// Looks at a number. What is due is accepted only by [`Tracker::accept`].
    #[inline]
    pub(super) fn judge(&mut self, sequence: u16, width: Width, now: u64, config: &Config) -> Verdict {
        if !self.begun {
            return Verdict::Due { lost: 0, restart: false };
        }
        let mask = width.mask();
        let ahead = sequence.wrapping_sub(self.last) & mask;
        if ahead == 1 {
            return Verdict::Due { lost: 0, restart: false };
        }
        if ahead == 0 || ahead > mask / 2 {
            // After a long silence it is no repetition either.
            let silent = now.saturating_sub(self.seen) >= config.idle;
            return if silent { RESTART } else { self.behind(sequence, ahead, width) };
        }
        self.run = 0;
        self.ahead(ahead, now, config)
    }

    fn behind(&mut self, sequence: u16, ahead: u16, width: Width) -> Verdict {
        let behind = ahead.wrapping_neg() & width.mask();
        if width == Width::Eight || behind < WINDOW {
            return Verdict::Duplicate;
        }
        self.run = if self.run > 0 && sequence == self.run_next { self.run + 1 } else { 1 };
        self.run_next = sequence.wrapping_add(1);
        if self.run < RESTART_RUN { Verdict::Duplicate } else { RESTART }
    }

    fn ahead(&mut self, ahead: u16, now: u64, config: &Config) -> Verdict {
        if self.nacks > 0 && now.saturating_sub(self.nacked_at) < config.nack_interval {
            return Verdict::Gap { nack: false };
        }
        if self.nacks >= config.nack_limit {
            return Verdict::Due { lost: ahead - 1, restart: false };
        }
        self.nacks += 1;
        self.nacked_at = now;
        Verdict::Gap { nack: true }
    }

    /// A NACK of another cause: is it time for one?
    pub(super) fn may_nack(&mut self, now: u64, config: &Config) -> bool {
        let due = self.nacked_at == 0 || now.saturating_sub(self.nacked_at) >= config.nack_interval;
        if due {
            self.nacked_at = now.max(1);
        }
        due
    }

    /// Accepts a number that is due. True if an ACK is due too.
    #[inline]
    pub(super) fn accept(&mut self, sequence: u16) -> bool {
        self.begun = true;
        self.last = sequence;
        self.nacks = 0;
        self.run = 0;
        self.accepted = (self.accepted + 1) % ACK_EVERY;
        self.accepted == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const DUE: Verdict = Verdict::Due { lost: 0, restart: false };

    fn after(last: u16, width: Width) -> Tracker {
        let mut tracker = Tracker::default();
        assert_eq!(tracker.judge(last, width, 0, &Config::default()), DUE);
        tracker.accept(last);
        tracker
    }

    #[test]
    fn every_distance_of_both_widths() {
        let config = Config::default();
        for (width, step) in [(Width::Sixteen, 257), (Width::Eight, 1)] {
            for last in (0..=width.mask()).step_by(step) {
                for sequence in (0..=width.mask()).step_by(step) {
                    let d = sequence.wrapping_sub(last) & width.mask();
                    let expected = match d {
                        1 => DUE,
                        0 => Verdict::Duplicate,
                        d if d > width.mask() / 2 => Verdict::Duplicate,
                        _ => Verdict::Gap { nack: true },
                    };
                    assert_eq!(
                        after(last, width).judge(sequence, width, 9, &config),
                        expected,
                        "{last} {sequence}"
                    );
                }
            }
            // What is next goes round.
            assert_eq!(after(width.mask(), width).judge(0, width, 9, &config), DUE);
        }
    }

    #[test]
    fn a_gap_is_told_once_then_each_millisecond_and_given_up_after_three() {
        let config = Config::default();
        let mut tracker = after(10, Width::Sixteen);
        let mut at = |now, sequence| tracker.judge(sequence, Width::Sixteen, now, &config);
        let (told, silent) = (Verdict::Gap { nack: true }, Verdict::Gap { nack: false });
        assert_eq!([at(100 * US, 13), at(101 * US, 14), at(1_099 * US, 15)], [told, silent, silent]);
        assert_eq!([at(1_100 * US, 13), at(1_101 * US, 14)], [told, silent]);
        assert_eq!([at(2_100 * US, 13), at(3_099 * US, 14)], [told, silent]);
        // Three NACKs, and a millisecond after the third it is still ahead: 11 and 12 will not come.
        assert_eq!(at(3_100 * US, 13), Verdict::Due { lost: 2, restart: false });
        assert!(!tracker.accept(13));
        assert_eq!(tracker.judge(14, Width::Sixteen, 3_101 * US, &config), DUE);
        // Another gap is told at once.
        tracker.accept(14);
        assert_eq!(tracker.judge(16, Width::Sixteen, 3_102 * US, &config), told);
    }

    #[test]
    fn a_reporter_that_began_anew_is_seen_by_its_numbers_in_a_row() {
        let config = Config::default();
        let mut tracker = after(5_000, Width::Sixteen);
        for sequence in 0..7 {
            assert_eq!(tracker.judge(sequence, Width::Sixteen, 1, &config), Verdict::Duplicate);
        }
        assert_eq!(tracker.judge(7, Width::Sixteen, 1, &config), Verdict::Due { lost: 0, restart: true });
        // Repetitions within the window never are: a ring sent again.
        let mut tracker = after(5_000, Width::Sixteen);
        for sequence in 4_745..=5_000 {
            assert_eq!(tracker.judge(sequence, Width::Sixteen, 1, &config), Verdict::Duplicate);
        }
        // Nor are numbers that are not in a row.
        for sequence in (0..3_000).step_by(2) {
            assert_eq!(tracker.judge(sequence, Width::Sixteen, 1, &config), Verdict::Duplicate);
        }
    }

    #[test]
    fn each_sixty_fourth_is_acknowledged() {
        let mut tracker = Tracker::default();
        let acks: Vec<u16> = (0..200).filter(|sequence| tracker.accept(*sequence)).collect();
        assert_eq!(acks, [63, 127, 191]);
    }
}
