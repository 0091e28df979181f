//! Sequence tracking of essential DTA reports: classifies each sequence number of a reporter as due, duplicate or after a
//! gap, and decides when a NACK is due (`docs/reference/wire-formats.md`, section 5.8).
//!
//! A reporter keeps its last 256 reports and retransmits from the number that a NACK names (go-back-N). A restarted
//! reporter starts at another number. Numbers ahead look like a gap, and NACKs resolve it. Numbers behind look like
//! duplicates: a run of eight consecutive ones that nothing else explains means a restart.

use super::config::Config;

/// Essential reports that a reporter buffers for retransmission. A number further back is not a duplicate.
const WINDOW: u16 = 256;
/// Length of a run of consecutive earlier numbers that indicates a restart.
const RESTART_RUN: u8 = 8;
/// If no new number and no NACK came for this time, ns, then consecutive numbers within the window are not duplicates
/// either: networks duplicate packets sooner than that, and without a NACK a reporter retransmits only its last report.
const CALM_PERIOD: u64 = 250_000_000;
/// Accepted reports per ACK.
const ACK_EVERY: u8 = 64;

/// Width of a sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Width {
    /// Sequence numbers of DTA v1 (16 bits).
    Sixteen,
    /// Sequence numbers of the published DTA code (8 bits).
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

/// Sequence state of one reporter's essential reports to one collector.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tracker {
    /// The address that the reporter's ID is bound to.
    pub(super) address: u128,
    /// Arrival time of its last essential report that was not taken for a duplicate of an earlier one, ns.
    pub(super) last_seen: u64,
    /// Time at which its last columns without a sequence number were merged, ns.
    pub(super) merged_at: u64,
    /// The reporter is in the settings, so it never expires.
    pub(super) pinned: bool,
    /// True if `last_in_order` is valid.
    has_last: bool,
    /// Last sequence number received in order.
    last_in_order: u16,
    /// NACKs sent for the gap after `last_in_order`.
    nacks: u8,
    nacked_at: u64,
    /// A due report was refused since the last NACK, so later reports are missing because of that.
    refused: bool,
    /// The run of consecutive earlier numbers: its length, first number and next number.
    run: u8,
    run_first: u16,
    run_next: u16,
    /// Arrival time of the newest report in the run, ns.
    run_at: u64,
    /// Only a restart explains the run, see [`CALM_PERIOD`].
    run_is_calm: bool,
    /// Reports accepted since the last ACK, modulo [`ACK_EVERY`].
    accepted: u8,
}

/// Classification of a sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The expected number, or one after a gap that was given up.
    Due {
        /// Numbers before it that were given up as lost.
        lost: u16,
        /// The reporter has restarted.
        restart: bool,
    },
    /// The number was received before.
    Duplicate,
    /// Earlier numbers are missing.
    Gap {
        /// A NACK is due.
        send_nack: bool,
        /// The reporter has restarted.
        restart: bool,
    },
}

impl Tracker {
    /// Creates the state of a reporter at this address, first seen at `last_seen` (ns).
    pub(super) fn new(address: u128, last_seen: u64, pinned: bool) -> Self {
        Self {
            address,
            last_seen,
            pinned,
            ..Self::default()
        }
    }

    /// Returns when the reporter was last active, with or without sequence numbers, ns.
    pub(super) fn last_active(&self) -> u64 {
        self.last_seen.max(self.merged_at)
    }

    /// Returns the last number received in order, or the one before `sequence` if there is none yet.
    pub(super) fn last(&self, sequence: u16, width: Width) -> u16 {
        if self.has_last {
            self.last_in_order
        } else {
            sequence.wrapping_sub(1) & width.mask()
        }
    }

    /// Returns whether this number is due, without changing the state.
    pub(super) fn is_next(&self, sequence: u16, width: Width) -> bool {
        !self.has_last || sequence.wrapping_sub(self.last_in_order) & width.mask() == 1
    }

    /// Classifies a number. A due number must be confirmed by [`Tracker::accept`]; lost numbers are given up at once.
    #[inline]
    pub(super) fn classify(&mut self, sequence: u16, width: Width, now: u64, config: &Config) -> Verdict {
        let mask = width.mask();
        let ahead = sequence.wrapping_sub(self.last_in_order) & mask;
        if ahead == 1 || !self.has_last {
            self.last_seen = now;
            return Verdict::Due {
                lost: 0,
                restart: false,
            };
        }
        if ahead == 0 || ahead > mask / 2 {
            return self.classify_at_or_before(sequence, ahead, width, now, config);
        }
        self.last_seen = now;
        self.run = 0;
        self.classify_after_gap(sequence, ahead, width, now, config)
    }

    /// Classifies a number at or before the last one: a duplicate, or a report from a reporter that restarted with smaller
    /// numbers.
    fn classify_at_or_before(
        &mut self,
        sequence: u16,
        ahead: u16,
        width: Width,
        now: u64,
        config: &Config,
    ) -> Verdict {
        // Without a NACK a reporter retransmits only its last report. After a long silence, an earlier number is no
        // duplicate either: the state here may be outdated.
        let is_silent = now.saturating_sub(self.last_seen) >= config.idle;
        if ahead == 0 && !is_silent {
            self.last_seen = now;
            return Verdict::Duplicate;
        }
        if !self.is_restart(sequence, ahead, width, now, config) && !is_silent {
            return Verdict::Duplicate;
        }
        // The reporter still buffers the reports of the run, which were dropped as duplicates. A NACK requests them.
        let first = if self.run > 0 { self.run_first } else { sequence };
        self.last_in_order = first.wrapping_sub(1) & width.mask();
        self.last_seen = now;
        self.run = 0;
        self.refused = false;
        if first == sequence {
            self.nacks = 0;
            return Verdict::Due {
                lost: 0,
                restart: true,
            };
        }
        self.nacks = 1;
        self.nacked_at = now;
        Verdict::Gap {
            send_nack: true,
            restart: true,
        }
    }

    /// Returns whether this number completes a run that only a restart explains: before the window, or within it after a
    /// calm period. A repeated number, such as a retransmission of the last report, continues the run.
    fn is_restart(&mut self, sequence: u16, ahead: u16, width: Width, now: u64, config: &Config) -> bool {
        if width == Width::Eight {
            return false;
        }
        let is_far = ahead.wrapping_neg() >= WINDOW;
        let is_unsolicited = self.nacked_at == 0 || now.saturating_sub(self.nacked_at) >= config.idle;
        let is_calm = is_unsolicited && now.saturating_sub(self.last_seen) >= CALM_PERIOD;
        // A number within the window continues the run only if it is as unexplained as the run's other numbers.
        let continues_run =
            self.run_next.wrapping_sub(sequence) <= 1 && (is_far || is_calm == self.run_is_calm);
        // Stragglers from before a silence do not belong to the run after it.
        let is_old = now.saturating_sub(self.run_at) >= config.idle;
        if self.run == 0 || is_old || sequence.wrapping_sub(self.run_first) >= WINDOW {
            self.run = 0;
            self.run_first = sequence;
        }
        self.run_is_calm = is_calm;
        self.run_at = now;
        self.run = if self.run > 0 && continues_run {
            self.run.saturating_add(1)
        } else {
            1
        };
        self.run_next = sequence.wrapping_add(1);
        self.run >= RESTART_RUN && (is_far || is_calm)
    }

    /// Classifies a number after a gap.
    fn classify_after_gap(
        &mut self,
        sequence: u16,
        ahead: u16,
        width: Width,
        now: u64,
        config: &Config,
    ) -> Verdict {
        // Each NACK waits four times as long as the previous one. The first may have been lost, while later ones may only
        // be early.
        let wait = config
            .nack_interval
            .saturating_mul(1 << (2 * u32::from(self.nacks.clamp(1, 4) - 1)));
        if self.nacks > 0 && now.saturating_sub(self.nacked_at) < wait {
            return Verdict::Gap {
                send_nack: false,
                restart: false,
            };
        }
        if self.nacks >= config.nack_limit && !self.refused {
            self.last_in_order = sequence.wrapping_sub(1) & width.mask();
            self.nacks = 0;
            return Verdict::Due {
                lost: ahead - 1,
                restart: false,
            };
        }
        self.nacks = self.nacks.saturating_add(1);
        self.nacked_at = now;
        self.refused = false;
        Verdict::Gap {
            send_nack: true,
            restart: false,
        }
    }

    /// Records that congestion prevents accepting a due report, which the reporter sends again. Returns whether a NACK is
    /// due.
    pub(super) fn refuse(&mut self, sequence: u16, width: Width, now: u64, config: &Config) -> bool {
        if !self.has_last {
            self.has_last = true;
            self.last_in_order = sequence.wrapping_sub(1) & width.mask();
        }
        // Reports behind it will arrive first, which is not a loss.
        self.nacks = 1;
        self.refused = true;
        self.try_nack(now, config)
    }

    /// Returns whether a NACK for another cause is due, and if so starts the interval until the next one.
    pub(super) fn try_nack(&mut self, now: u64, config: &Config) -> bool {
        let due = self.nacked_at == 0 || now.saturating_sub(self.nacked_at) >= config.nack_interval;
        if due {
            self.nacked_at = now.max(1);
        }
        due
    }

    /// Accepts a due number. Returns whether an ACK is due.
    #[inline]
    pub(super) fn accept(&mut self, sequence: u16) -> bool {
        self.has_last = true;
        self.last_in_order = sequence;
        self.nacks = 0;
        self.refused = false;
        self.run = 0;
        self.accepted = (self.accepted + 1) % ACK_EVERY;
        self.accepted == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const DUE: Verdict = Verdict::Due {
        lost: 0,
        restart: false,
    };
    const GAP: Verdict = Verdict::Gap {
        send_nack: true,
        restart: false,
    };
    const SILENT: Verdict = Verdict::Gap {
        send_nack: false,
        restart: false,
    };

    #[test]
    fn a_straggler_before_a_long_silence_does_not_delay_a_restart() {
        let (config, mut tracker) = (Config::default(), after(5_000, Width::Sixteen));
        assert_eq!(
            tracker.classify(4_800, Width::Sixteen, 2, &config),
            Verdict::Duplicate
        );
        let verdict = tracker.classify(4_900, Width::Sixteen, 20_000_000 * US, &config);
        assert_eq!(
            verdict,
            Verdict::Due {
                lost: 0,
                restart: true
            }
        );
    }

    fn after(last_in_order: u16, width: Width) -> Tracker {
        let mut tracker = Tracker::default();
        assert_eq!(tracker.classify(last_in_order, width, 0, &Config::default()), DUE);
        tracker.accept(last_in_order);
        tracker
    }

    #[test]
    fn every_distance_of_both_widths() {
        let config = Config::default();
        for (width, step) in [(Width::Sixteen, 257), (Width::Eight, 1)] {
            for last_in_order in (0..=width.mask()).step_by(step) {
                for sequence in (0..=width.mask()).step_by(step) {
                    let d = sequence.wrapping_sub(last_in_order) & width.mask();
                    let expected = match d {
                        1 => DUE,
                        0 => Verdict::Duplicate,
                        d if d > width.mask() / 2 => Verdict::Duplicate,
                        _ => GAP,
                    };
                    assert_eq!(
                        after(last_in_order, width).classify(sequence, width, 9, &config),
                        expected,
                        "{last_in_order} {sequence}"
                    );
                }
            }
            // After the largest number the next is 0.
            assert_eq!(after(width.mask(), width).classify(0, width, 9, &config), DUE);
        }
    }

    #[test]
    fn a_gap_gets_nacks_after_one_and_four_milliseconds_again_and_given_up_after_sixteen() {
        let config = Config::default();
        let mut tracker = after(10, Width::Sixteen);
        let mut at = |now, sequence| tracker.classify(sequence, Width::Sixteen, now, &config);
        assert_eq!(
            [at(100 * US, 13), at(101 * US, 14), at(1_099 * US, 15)],
            [GAP, SILENT, SILENT]
        );
        assert_eq!([at(1_100 * US, 13), at(5_099 * US, 14)], [GAP, SILENT]);
        assert_eq!([at(5_100 * US, 13), at(21_099 * US, 14)], [GAP, SILENT]);
        // Three NACKs did not fill the gap: 11 and 12 are lost.
        assert_eq!(
            at(21_100 * US, 13),
            Verdict::Due {
                lost: 2,
                restart: false
            }
        );
        assert!(!tracker.accept(13));
        assert_eq!(tracker.classify(14, Width::Sixteen, 21_101 * US, &config), DUE);
        // Another gap gets a NACK at once.
        tracker.accept(14);
        assert_eq!(tracker.classify(16, Width::Sixteen, 21_102 * US, &config), GAP);
    }

    #[test]
    fn reports_after_a_refused_number_are_never_given_up() {
        let config = Config::default();
        let mut tracker = after(10, Width::Sixteen);
        let mut nacks = 0;
        for now in (0..1_000_000).map(|step| step * 100 * US) {
            assert_eq!(tracker.classify(11, Width::Sixteen, now, &config), DUE);
            nacks += u32::from(tracker.refuse(11, Width::Sixteen, now, &config));
            for sequence in [12, 13, 300] {
                assert_eq!(tracker.classify(sequence, Width::Sixteen, now, &config), SILENT);
            }
        }
        assert_eq!(nacks, 100_000);
        // If the refused report never arrives, it is given up like any other missing one.
        let mut at = |now| tracker.classify(12, Width::Sixteen, 200_000_000 * US + now, &config);
        assert_eq!(
            [at(0), at(4_000 * US), at(20_000 * US)],
            [
                GAP,
                GAP,
                Verdict::Due {
                    lost: 1,
                    restart: false
                }
            ]
        );
    }

    #[test]
    fn the_very_first_number_is_due_again_when_it_was_refused() {
        let (config, mut tracker) = (Config::default(), Tracker::default());
        assert_eq!(tracker.classify(0, Width::Eight, 9, &config), DUE);
        assert!(tracker.refuse(0, Width::Eight, 9, &config));
        assert_eq!(tracker.last(0, Width::Eight), 255);
        assert_eq!(tracker.classify(1, Width::Eight, 9, &config), SILENT);
        assert_eq!(tracker.classify(0, Width::Eight, 9, &config), DUE);
    }

    const ANEW: Verdict = Verdict::Gap {
        send_nack: true,
        restart: true,
    };

    #[test]
    fn a_restart_is_detected_by_consecutive_numbers_and_all_are_requested() {
        let config = Config::default();
        let classify =
            |tracker: &mut Tracker, sequence| tracker.classify(sequence, Width::Sixteen, 1, &config);
        let mut tracker = after(5_000, Width::Sixteen);
        for sequence in 0..7 {
            assert_eq!(classify(&mut tracker, sequence), Verdict::Duplicate);
        }
        assert_eq!(classify(&mut tracker, 7), ANEW);
        assert_eq!(
            (tracker.last(7, Width::Sixteen), classify(&mut tracker, 0)),
            (0xffff, DUE)
        );
        // Repetitions within the window are not a restart: the reporter retransmits its ring.
        let mut tracker = after(5_000, Width::Sixteen);
        for sequence in 4_745..=5_000 {
            assert_eq!(classify(&mut tracker, sequence), Verdict::Duplicate);
        }
        // Numbers that are not consecutive are not a restart either.
        for sequence in (0..3_000).step_by(2) {
            assert_eq!(classify(&mut tracker, sequence), Verdict::Duplicate);
        }
        // If a number in the run was lost, the run counts again after it, but the NACK requests all from the first one.
        for sequence in [100, 101, 103, 104, 105, 106, 107, 108, 109] {
            assert_eq!(classify(&mut tracker, sequence), Verdict::Duplicate);
        }
        assert_eq!(
            (classify(&mut tracker, 110), tracker.last(110, Width::Sixteen)),
            (ANEW, 99)
        );
    }

    #[test]
    fn a_restart_within_the_window_is_detected_when_its_numbers_have_no_other_explanation() {
        let config = Config::default();
        let from = |tracker: &mut Tracker, first: u16, now: u64| -> Vec<Verdict> {
            let numbers = first..first + 8;
            numbers
                .map(|sequence| tracker.classify(sequence, Width::Sixteen, now, &config))
                .collect()
        };
        let [calm, soon] = [250_000 * US, 249_999 * US];
        // A reporter that had reached 5,000 sends 4,900 to 4,907 again.
        let mut tracker = after(5_000, Width::Sixteen);
        assert_eq!(from(&mut tracker, 4_900, soon), [Verdict::Duplicate; 8]);
        let mut tracker = after(5_000, Width::Sixteen);
        assert_eq!(from(&mut tracker, 4_900, calm)[6..], [Verdict::Duplicate, ANEW]);
        assert_eq!(tracker.last(4_907, Width::Sixteen), 4_899);
        // After a recent NACK they may be retransmissions.
        let mut tracker = after(4_999, Width::Sixteen);
        tracker.try_nack(1, &config);
        tracker.accept(5_000);
        assert_eq!(from(&mut tracker, 4_900, calm), [Verdict::Duplicate; 8]);
        // Long after the NACK they cannot be, and the new NACK also requests the numbers before them.
        assert_eq!(from(&mut tracker, 4_908, 10_000_000 * US)[0], ANEW);
        assert_eq!(tracker.last(4_908, Width::Sixteen), 4_899);
        // The network may have duplicated the first eight, so the count restarts after them; the NACK still requests them.
        let mut tracker = after(5_000, Width::Sixteen);
        from(&mut tracker, 4_900, soon);
        assert_eq!(
            from(&mut tracker, 4_907, calm),
            [[Verdict::Duplicate; 7].to_vec(), vec![ANEW]].concat()
        );
        assert_eq!(tracker.last(4_914, Width::Sixteen), 4_899);
        // The run counter does not overflow for more repetitions than a window has numbers.
        let mut tracker = after(5_000, Width::Sixteen);
        let verdicts = (0..300).map(|_| tracker.classify(4_900, Width::Sixteen, soon, &config));
        assert!(verdicts.into_iter().all(|verdict| verdict == Verdict::Duplicate));
    }

    #[test]
    fn a_reporters_last_number_sent_again_does_not_break_its_row() {
        let config = Config::default();
        let mut tracker = after(5_000, Width::Sixteen);
        for sequence in [7, 7, 7, 8, 8, 8, 8] {
            assert_eq!(
                tracker.classify(sequence, Width::Sixteen, 1, &config),
                Verdict::Duplicate
            );
        }
        assert_eq!(tracker.classify(9, Width::Sixteen, 1, &config), ANEW);
        assert_eq!(tracker.last(9, Width::Sixteen), 6);
        // The reporter repeats a single report.
        let mut tracker = after(5_000, Width::Sixteen);
        let verdicts = [(); 8].map(|()| tracker.classify(7, Width::Sixteen, 1, &config));
        assert_eq!(
            verdicts[6..],
            [
                Verdict::Duplicate,
                Verdict::Due {
                    lost: 0,
                    restart: true
                }
            ]
        );
    }

    #[test]
    fn reports_behind_the_window_do_not_refresh_the_reporter() {
        let config = Config::default();
        let mut tracker = after(5_000, Width::Sixteen);
        let due = Verdict::Due {
            lost: 0,
            restart: true,
        };
        for second in 0..10 {
            let sequence = 3_000 - 2 * second as u16;
            let verdict = tracker.classify(sequence, Width::Sixteen, second * 1_000_000 * US, &config);
            assert_eq!(verdict, Verdict::Duplicate);
        }
        assert_eq!(
            tracker.classify(2_000, Width::Sixteen, 10_000_000 * US, &config),
            due
        );
    }

    #[test]
    fn a_restart_that_is_refused_is_due_again_and_again() {
        let config = Config::default();
        let mut tracker = after(5_000, Width::Sixteen);
        (0..8).for_each(|_| _ = tracker.classify(7, Width::Sixteen, 1, &config));
        for now in 0..1_000 {
            tracker.refuse(7, Width::Sixteen, now, &config);
            assert_eq!(tracker.classify(7, Width::Sixteen, now, &config), DUE);
        }
    }

    #[test]
    fn each_sixty_fourth_is_acknowledged() {
        let mut tracker = Tracker::default();
        let acks: Vec<u16> = (0..200).filter(|sequence| tracker.accept(*sequence)).collect();
        assert_eq!(acks, [63, 127, 191]);
    }
}
