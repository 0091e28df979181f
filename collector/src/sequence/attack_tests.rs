//! Numbers that are forged, late or repeated, and reporters that restart, at times when little else arrives.

use super::*;

struct Silent;
impl Output for Silent {}

const MILLISECOND: Nanos = 1_000_000;
const V10: StreamId = StreamId {
    version: 10,
    hw_id: 1,
    listener: 0,
    node: Some(7),
    source: [0; 16],
};
const V20: StreamId = StreamId { version: 20, ..V10 };
const FIRST: u32 = 1_000_000;

/// Numbers that arrive one after the other, accounted for once a second as in a collector.
struct Arrivals {
    sequencer: Sequencer,
    id: StreamId,
    now: Nanos,
}

impl Arrivals {
    fn new(id: StreamId) -> Self {
        Self {
            sequencer: Sequencer::new(4, 0),
            id,
            now: 1000 * MILLISECOND,
        }
    }

    /// Passes time.
    fn wait(&mut self, milliseconds: u64) -> &mut Self {
        let until = self.now + milliseconds * MILLISECOND;
        let second = 1000 * MILLISECOND;
        while self.now / second < until / second {
            self.now = (self.now / second + 1) * second;
            self.sequencer.account(self.now, &mut Silent);
        }
        self.now = until;
        self
    }

    /// Numbers at once.
    fn observe(&mut self, numbers: impl IntoIterator<Item = u32>) -> &mut Self {
        self.observe_every(0, numbers)
    }

    /// Numbers, each followed by a time without any.
    fn observe_every(&mut self, milliseconds: u64, numbers: impl IntoIterator<Item = u32>) -> &mut Self {
        for number in numbers {
            self.sequencer.observe(
                &self.id,
                number & (u32::MAX >> (32 - self.id.bits())),
                self.now,
                &mut Silent,
            );
            self.wait(milliseconds);
        }
        self
    }

    fn finish(&mut self) -> StreamView {
        self.sequencer.finish(self.now, &mut Silent);
        self.sequencer.streams().next().unwrap()
    }
}

#[test]
fn honest_numbers_confirm_no_losses_before_a_return() {
    for id in [V10, V20] {
        for (forged, pause) in [
            (17, 11_000),
            (20, 11_000),
            (40, 60_000),
            (129, 0),
            (135, 0),
            (200, 0),
        ] {
            let mut arrivals = Arrivals::new(id);
            arrivals.observe_every(10, FIRST..FIRST + 1000).wait(pause);
            // Once, and again when the sequence has just returned.
            arrivals
                .observe(5..5 + forged)
                .observe_every(10, FIRST + 1000..FIRST + 1600);
            arrivals.wait(pause).observe(500_005..500_005 + forged);
            let view = arrivals.observe_every(10, FIRST + 1600..FIRST + 9000).finish();
            assert!(
                view.lost <= 128 * 2 * u64::from(forged),
                "{forged} {pause}: {view:?}"
            );
        }
    }
}

#[test]
fn forged_sequences_one_after_the_other_hide_no_longer_one() {
    for id in [V10, V20] {
        let mut arrivals = Arrivals::new(id);
        arrivals.observe_every(10, FIRST..FIRST + 1000);
        for forged in 1..=20 {
            arrivals
                .wait(11_000)
                .observe((0..40).map(|n| forged * 100_000 + n));
        }
        let view = arrivals
            .wait(11_000)
            .observe_every(10, FIRST + 1000..FIRST + 9000)
            .finish();
        assert!(view.lost <= 128 * 20 * 40, "{view:?}");
    }
}

#[test]
fn an_outage_after_a_restart_is_confirmed_although_the_stream_was_elsewhere() {
    let mut arrivals = Arrivals::new(V10);
    arrivals.observe_every(10, FIRST..FIRST + 1000).wait(11_000);
    arrivals.observe_every(10, 0..5000).wait(60_000);
    let view = arrivals.observe_every(10, 1_005_000..1_015_000).finish();
    assert_eq!((view.lost, view.unconfirmed, view.restarts), (1_000_000, 0, 1));
}

#[test]
fn an_outage_after_a_restart_is_confirmed_where_it_ends_behind_the_numbers_before_the_restart() {
    for id in [V10, V20] {
        for pause in [0, 3000, 60_000] {
            for before in [5000_u32, 20_000, 60_000] {
                for since in [100, 1000, 3000] {
                    for next in [before - 100, before + 1, before + 1000, before + 60_000] {
                        if pause == 0 && next.abs_diff(before) < WINDOW {
                            // Soon after a restart, those since then were late.
                            continue;
                        }
                        let mut arrivals = Arrivals::new(id);
                        arrivals.observe_every(1, 0..before).wait(pause);
                        arrivals.observe_every(1, 0..since).wait(1000);
                        let view = arrivals.observe_every(1, next..next + 20_000).finish();
                        let case = format!("{pause} {before} {since} {next}: {view:?}");
                        let absent = u64::from(next - since);
                        assert_eq!(
                            (view.lost + view.unconfirmed, view.restarts),
                            (absent, 1),
                            "{case}"
                        );
                        // What is missing in either case, or has enough datagrams since the restart.
                        let least = u64::from((next - before.min(next)).max(128 * since));
                        assert!(view.lost + 128 >= absent.min(least), "{case}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_jump_returns_only_to_a_clearly_longer_sequence() {
    // Two bits are one magnitude: 256 to 1023, 1024 to 4095.
    for (before, since, returns) in [
        (1000, 1000, false),
        (1000, 300, false),
        (1000, 200, true),
        (4000, 1000, true),
        (4000, 1100, false),
    ] {
        let mut arrivals = Arrivals::new(V10);
        arrivals.observe_every(1, FIRST..FIRST + before).wait(11_000);
        arrivals.observe_every(1, 0..since).wait(60_000);
        let next = FIRST + before + 3000;
        let view = arrivals.observe_every(1, next..next + 20_000).finish();
        assert_eq!(view.unconfirmed > 0, returns, "{before} {since}: {view:?}");
    }
}

#[test]
fn a_number_that_arrives_after_it_was_counted_as_lost_no_longer_is() {
    // One forged number before each silence of a reporter that loses nothing.
    for (pause, restarts) in [(3000, 0), (9000, 0), (11_000, 0), (60_000, 0)] {
        for id in [V10, V20] {
            let mut arrivals = Arrivals::new(id);
            let mut next = FIRST;
            for _ in 0..10 {
                arrivals.observe_every(100, next..next + 300);
                arrivals.observe([next + 426]).wait(pause);
                next += 300;
            }
            // The forged numbers are counted as received, and the last of them has not returned.
            let view = arrivals.observe_every(100, next..next + 300).finish();
            assert_eq!(
                (view.lost, view.unconfirmed, view.restarts),
                (0, 0, restarts),
                "{pause} {view:?}"
            );
            assert_eq!((view.recovered, view.duplicated), (10 * 126, 10), "{pause}");
        }
    }
}

#[test]
fn each_of_a_slow_reporter_is_recovered() {
    for gap in [3000, 12_000] {
        let mut arrivals = Arrivals::new(V10);
        arrivals
            .observe_every(gap, FIRST..FIRST + 20)
            .observe([FIRST + 60])
            .wait(gap);
        let view = arrivals.observe_every(gap, FIRST + 20..FIRST + 100).finish();
        let found = (view.lost, view.recovered, view.duplicated, view.restarts);
        assert_eq!(found, (0, 40, 1, 0), "{gap}");
    }
}

#[test]
fn reported_losses_add_up_although_some_were_recovered() {
    struct Reported(u64, u64);
    impl Output for Reported {
        fn loss(&mut self, loss: &crate::event::Loss) {
            self.0 += loss.lost;
            self.1 += loss.reordered;
        }
    }
    let mut sequencer = Sequencer::new(4, 0);
    let mut reported = Reported(0, 0);
    let mut now = 0;
    // Ten are late, again and again, and then ten are lost.
    for round in 0..5 {
        let first = 100 * round;
        let (early, late) = (
            [first..first + 20, first + 30..first + 31],
            first + 20..first + 30,
        );
        early.into_iter().flatten().for_each(|number| {
            sequencer.observe(&V10, number, now, &mut reported);
        });
        now += SETTLE;
        sequencer.account(now, &mut reported);
        if round < 4 {
            late.for_each(|number| sequencer.observe(&V10, number, now, &mut reported));
            (first + 31..first + 100).for_each(|number| sequencer.observe(&V10, number, now, &mut reported));
        }
    }
    sequencer.finish(now, &mut reported);
    let view = sequencer.streams().next().unwrap();
    assert_eq!((view.lost, view.recovered, view.reordered), (10, 40, 40));
    assert_eq!((reported.0, reported.1), (10, 40));
}

#[test]
fn copies_of_one_number_in_an_outage_do_not_hide_it() {
    for id in [V10, V20] {
        for copied in [FIRST + 1999, FIRST + 1900, FIRST + 900_000, 5] {
            for copies in [63, 64, 65, 66, 1000] {
                let mut arrivals = Arrivals::new(id);
                arrivals.observe_every(10, FIRST..FIRST + 2000).wait(30_000);
                arrivals.observe(std::iter::repeat_n(copied, copies)).wait(30_000);
                let rest = FIRST + 1_002_000..FIRST + 1_012_000;
                let view = arrivals.observe_every(10, rest).finish();
                let found = (view.lost, view.unconfirmed, view.restarts, view.countable);
                assert_eq!(found, (1_000_000, 0, 0, true), "{copied} {copies}");
                let not_first = u64::from(copied != FIRST + 1999 && copied != FIRST + 1900);
                assert_eq!(view.duplicated, copies as u64 - not_first, "{copied} {copies}");
            }
        }
    }
}

#[test]
fn a_reporter_that_restarts_near_the_end_of_the_sequence_space_loses_nothing() {
    for id in [V10, V20] {
        for (back, first) in [
            (200, 0),
            (1000, 1),
            (10_000, 0),
            (60_000, 2),
            (70_000, 0),
            (200_000, 0),
        ] {
            for pause in [3000, 15_000] {
                let start = (2000_u32 + back).wrapping_neg();
                let mut arrivals = Arrivals::new(id);
                let all = (0..2000).map(|n| start.wrapping_add(n));
                arrivals.observe_every(10, all).wait(pause);
                let view = arrivals.observe_every(10, first..4000).finish();
                let found = (view.lost, view.unconfirmed, view.restarts);
                assert_eq!(found, (0, 0, 1), "{back} {first} {pause}");
            }
        }
        // An outage goes on behind the first numbers.
        let mut arrivals = Arrivals::new(id);
        arrivals
            .observe((0..2000).map(|n| 3000_u32.wrapping_neg() + n))
            .wait(3000);
        let view = arrivals.observe_every(10, 20..4000).finish();
        assert_eq!((view.lost, view.restarts), (1020, 0));
    }
}

#[test]
fn each_restart_of_a_loop_counts_whatever_its_length() {
    for id in [V10, V20] {
        for length in [2, 5, 17, 50, 120, 126, 127, 128, 129, 130, 131, 200, 256, 257] {
            for pause in [11_000, 60_000] {
                let mut arrivals = Arrivals::new(id);
                for _ in 0..20 {
                    arrivals.observe_every(5, 0..length).wait(pause);
                }
                let view = arrivals.finish();
                let found = (view.lost, view.reordered, view.duplicated, view.restarts);
                assert_eq!(found, (0, 0, 0, 19), "{length} {pause}");
            }
        }
    }
}

#[test]
fn a_restart_soon_after_an_outage_is_seen_although_the_numbers_before_it_are_near() {
    let mut arrivals = Arrivals::new(V10);
    arrivals.observe_every(5, (0..71).map(|n| 60_u32.wrapping_neg().wrapping_add(n)));
    arrivals.observe_every(5, 220..254).wait(1000);
    let view = arrivals.observe_every(5, 1..700).finish();
    assert_eq!((view.lost, view.duplicated, view.restarts), (209, 0, 1));
}

#[test]
fn a_lost_number_is_recovered_once_and_while_it_is_in_the_window() {
    for (more, expected) in [(100, (0, 2)), (126, (0, 2)), (127, (1, 1))] {
        // One by one, and as a run of a filter.
        for is_run in [false, true] {
            let mut arrivals = Arrivals::new(V10);
            arrivals.observe([1, 2, 5]).wait(3000).observe([3, 3]);
            if is_run {
                let run = Run {
                    last: 5 + more,
                    count: more.into(),
                    same: false,
                };
                arrivals
                    .sequencer
                    .receive_run(&V10, run, arrivals.now, &mut Silent);
            } else {
                arrivals.observe(6..6 + more);
            }
            let view = arrivals.observe([4, 6 + more, 7 + more]).finish();
            assert_eq!((view.lost, view.recovered), expected, "{more} {is_run}");
            assert_eq!((view.duplicated, view.reordered), (1, 2), "{more} {is_run}");
        }
    }
}

#[test]
fn a_recovered_number_supports_others_as_any_does() {
    let mut arrivals = Arrivals::new(V10);
    arrivals.observe([10, 11]).wait(3000);
    arrivals.observe([FIRST, FIRST + 1, FIRST + 11]).wait(3000);
    let before = arrivals.sequencer.streams().next().unwrap();
    let view = arrivals.observe([FIRST + 5]).finish();
    assert_eq!((view.recovered, view.lost), (1, before.lost + 128), "{view:?}");
    assert_eq!(view.lost + view.unconfirmed, u64::from(FIRST) - 12 + 8);
}

#[test]
fn a_stray_after_a_pause_hides_no_restart() {
    let mut arrivals = Arrivals::new(V10);
    arrivals.observe(0..100).wait(11_000);
    let view = arrivals.observe([500_000]).observe(0..100).finish();
    let found = (view.lost, view.reordered, view.duplicated, view.restarts);
    assert_eq!(found, (0, 1, 0, 1));
}

#[test]
fn one_forged_number_does_not_make_a_constant_one_countable() {
    for id in [V10, V20] {
        for forged in [1, 100, 5000, FIRST] {
            let mut arrivals = Arrivals::new(id);
            for _ in 0..5 {
                arrivals.observe([0; 100]).observe([forged]);
            }
            // As a run of a filter.
            let run = Run {
                last: 0,
                count: 100,
                same: true,
            };
            let now = arrivals.now;
            arrivals.sequencer.receive_run(&id, run, now, &mut Silent);
            let view = arrivals.observe([forged]).finish();
            assert!(!view.countable, "{forged}: {view:?}");
        }
        // A reporter that begins to count is.
        let mut arrivals = Arrivals::new(id);
        let view = arrivals
            .observe([0; 100])
            .observe([1, 2, 4])
            .observe(5..300)
            .finish();
        let found = (view.countable, view.lost, view.duplicated, view.restarts);
        assert_eq!(found, (true, 1, 0, 0));
    }
}

/// Lost and unconfirmed, and restarts.
fn shown(arrivals: &Arrivals) -> (u64, u64) {
    let view = arrivals.sequencer.streams().next().unwrap();
    (view.lost + view.unconfirmed, view.restarts)
}

#[test]
fn late_numbers_at_the_end_of_a_burst_are_late_whatever_silence_follows() {
    for id in [V10, V20] {
        for pause in (1..=12).chain([60]) {
            // A batch that fills its gap.
            for (late, others) in [(300, 700), (300, 20_000), (150, 60_000), (1000, 1000)] {
                let mut arrivals = Arrivals::new(id);
                let [gap, rest, end] = [6000, 6000 + late, 6000 + late + others];
                arrivals.observe((1000..gap).chain(rest..end)).observe(gap..rest);
                arrivals.wait(pause * 1000);
                let (lost, restarts) = shown(&arrivals);
                assert!(lost <= u64::from(late), "{pause} {late} {others}: {lost}");
                assert_eq!(restarts, 0, "{pause} {late} {others}");
                arrivals.observe_every(1, end..end + 2000);
                assert_eq!(shown(&arrivals), (0, 0), "{pause} {late} {others}");
            }
            // Single ones, which lie anywhere in the burst. At its end, some of the last window may count twice.
            for one_in in [50, 100, 200] {
                let mut random = crate::hash::Jitter::new(pause);
                let mut arrivals = Arrivals::new(id);
                let [mut all_late, mut most] = [0; 2];
                for burst in 0..4 {
                    let first = 1000 + burst * 20_000;
                    let (late, others): (Vec<u32>, Vec<u32>) =
                        (first..first + 20_000).partition(|_| random.around(1 << 20) % one_in == 0);
                    all_late += late.len() as u64;
                    most += late.len() as u64 + u64::from(WINDOW);
                    arrivals.observe(others).wait(5);
                    arrivals.observe(late).wait(pause * 1000);
                    let (lost, restarts) = shown(&arrivals);
                    assert!(lost <= most, "{pause} {one_in}: {lost} of {all_late}");
                    assert_eq!(restarts, 0, "{pause} {one_in}");
                }
                let view = arrivals.finish();
                let lost = view.lost + view.unconfirmed;
                assert!(lost <= most, "{pause} {one_in}: {lost} of {all_late}");
                assert_eq!(view.restarts, 0, "{pause} {one_in}");
            }
        }
    }
}

#[test]
fn a_restart_that_reaches_the_old_number_hides_no_loss() {
    for id in [V10, V20] {
        // A counter that is set back, and a restart whose first numbers are lost.
        for (first, end) in [(6000, 9000), (20, 12_000)] {
            for silence in [0, 3000, 12_000] {
                let mut arrivals = Arrivals::new(id);
                arrivals.observe(1000..9000).wait(500);
                arrivals
                    .observe((first..end).filter(|n| n % 5 != 0))
                    .wait(silence);
                let not_sent = u64::from(end - first) / 5;
                // Until another number arrives, the first and the last of them may be not lost.
                arrivals.observe_every(1, end..20_000);
                let found = shown(&arrivals);
                assert_eq!(found, (not_sent - 1, 1), "{first} {silence}");
            }
        }
    }
}

#[test]
fn a_number_that_is_constant_within_the_window_is_not_countable() {
    for id in [V10, V20] {
        for (before, constant) in [(vec![5, 6], 0), ((1..100).collect(), 0), ((1..100).collect(), 50)] {
            let mut arrivals = Arrivals::new(id);
            arrivals
                .observe([0; 300])
                .observe(before)
                .observe([constant; 300]);
            // As a run of a filter.
            let run = Run {
                last: constant,
                count: 100,
                same: true,
            };
            let now = arrivals.now;
            arrivals.sequencer.receive_run(&id, run, now, &mut Silent);
            arrivals.observe([constant]);
            let view = arrivals.sequencer.streams().next().unwrap();
            assert!(!view.countable, "{constant}: {view:?}");
            // It counts again when the number advances.
            let view = arrivals.observe(100..300).finish();
            assert_eq!((view.countable, view.restarts), (true, 0), "{constant}: {view:?}");
        }
    }
}

#[test]
fn one_forged_number_before_a_pause_invents_no_losses_although_others_are_lost() {
    for id in [V10, V20] {
        for pause in [3000, 11_000, 60_000] {
            for forged in [2, 20, 60, 100, 127, 128] {
                for one_in in [2, 3, 5, 10] {
                    let mut arrivals = Arrivals::new(id);
                    arrivals
                        .observe_every(10, FIRST..FIRST + 300)
                        .observe([FIRST + 299 + forged])
                        .wait(pause);
                    let sent = (FIRST + 300..FIRST + 900).filter(|n| n % one_in != 0);
                    let not_sent = 600 - sent.clone().count() as u64;
                    let view = arrivals.observe_every(10, sent).finish();
                    let lost = view.lost + view.unconfirmed;
                    // The forged number may be one of those, and so may the last one.
                    assert!(
                        (not_sent - 2..=not_sent).contains(&lost) && view.restarts == 0,
                        "{pause} {forged} {one_in}: {not_sent} {view:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn late_numbers_where_reporters_begin_are_no_restart_if_the_sequence_goes_on() {
    for id in [V10, V20] {
        for first in [0_u32, 5, 15, 16] {
            for late in [20, 100, 300] {
                for pause in [500, 3000, 11_000, 60_000] {
                    let mut arrivals = Arrivals::new(id);
                    let [gap, rest, end] = [first, first + late, first + late + 700];
                    arrivals
                        .observe((0..2000).map(|n| gap.wrapping_sub(2000).wrapping_add(n)))
                        .observe(rest..end)
                        .observe(gap..rest)
                        .wait(pause);
                    let view = arrivals.observe_every(1, end..end + 2000).finish();
                    let lost = view.lost + view.unconfirmed;
                    assert!(
                        lost <= u64::from(late) && view.restarts == 0,
                        "{first} {late} {pause}: {view:?}"
                    );
                }
            }
            // A restart does not reach the old number.
            let mut arrivals = Arrivals::new(id);
            arrivals
                .observe(1000..2000)
                .observe(2100..9000)
                .observe(first..first + 50)
                .wait(30_000);
            let view = arrivals.observe_every(1, first + 50..3000).finish();
            assert_eq!((view.lost + view.unconfirmed, view.restarts), (100, 1), "{first}");
        }
    }
}

#[test]
fn forged_pairs_ahead_hide_no_losses() {
    for id in [V10, V20] {
        for ahead in [129, 150, 200, 400] {
            let mut arrivals = Arrivals::new(id);
            let mut not_sent = 0;
            for number in FIRST..FIRST + 50_000 {
                match number % 100 {
                    0 => {
                        arrivals.observe([number, number + ahead, number + ahead + 1]);
                    }
                    5 | 50 | 75 => not_sent += 1,
                    _ => {
                        arrivals.observe([number]);
                    }
                }
            }
            let view = arrivals.finish();
            let lost = view.lost + view.unconfirmed;
            assert!(lost >= not_sent - 10, "{ahead}: {not_sent} {view:?}");
        }
    }
}

#[test]
fn an_old_stray_does_not_belong_to_a_restarted_sequence() {
    for id in [V10, V20] {
        for (stray, first) in [(6_u32, 40_u32), (6, 100), (50_u32.wrapping_neg(), 0)] {
            for between in [200, 100_000] {
                let mut arrivals = Arrivals::new(id);
                arrivals
                    .observe(FIRST..FIRST + 1000)
                    .observe([stray])
                    .observe(FIRST + 1000..FIRST + 1000 + between)
                    .observe(first..first + 3000);
                let view = arrivals.finish();
                let found = (view.lost + view.unconfirmed, view.reordered, view.restarts);
                assert_eq!(found, (0, 1, 1), "{stray} {first} {between}");
            }
        }
    }
}

#[test]
fn numbers_that_are_out_of_order_after_an_outage_are_not_lost() {
    let orders: [Vec<u32>; 5] = [
        vec![3, 0, 1, 2],
        vec![3, 2, 1, 0],
        vec![3, 1, 0, 2],
        [100].into_iter().chain(0..100).collect(),
        [127].into_iter().chain((0..127).rev()).collect(),
    ];
    for id in [V10, V20] {
        for pause in [0, 1000, 3000, 11_000, 60_000] {
            for outage in [200, 1000, 100_000] {
                for order in &orders {
                    let mut arrivals = Arrivals::new(id);
                    let first = FIRST + 1000 + outage;
                    let end = first + order.len() as u32;
                    // One of the numbers before the outage is missing, and one after it.
                    arrivals
                        .observe((FIRST..FIRST + 1000).filter(|n| *n != FIRST + 900))
                        .wait(pause)
                        .observe(order.iter().map(|n| first + n))
                        .observe(end + 1..end + 4000);
                    let view = arrivals.finish();
                    let found = (view.lost + view.unconfirmed, view.duplicated, view.restarts);
                    assert_eq!(
                        found,
                        (u64::from(outage) + 2, 0, 0),
                        "{pause} {order:?}: {view:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_number_that_is_lost_in_an_outage_is_recovered_once() {
    let mut arrivals = Arrivals::new(V10);
    arrivals
        .observe(FIRST..FIRST + 1000)
        .wait(11_000)
        .observe([2050, 2051, 2040, 2045, 2040, 2030, 2049, 2045].map(|n| FIRST + n));
    let view = arrivals.observe(FIRST + 2052..FIRST + 4000).finish();
    // Four of 1000..=2049 have arrived.
    assert_eq!(view.lost + view.unconfirmed, 1046);
    assert_eq!((view.recovered, view.duplicated, view.reordered), (4, 2, 4));
}

#[test]
fn a_few_late_numbers_before_a_pause_are_no_restart() {
    for id in [V10, V20] {
        for pause in [500, 3000, 11_000, 30_000] {
            for last in [vec![4800], vec![4800, 4801], vec![4800, 4810], vec![3000]] {
                let mut arrivals = Arrivals::new(id);
                arrivals
                    .observe(FIRST..FIRST + 5000)
                    .observe([2400, 2401, 2402].map(|n| FIRST + n))
                    .observe(last.iter().map(|n| FIRST + n))
                    .wait(pause);
                let view = arrivals.observe_every(1, FIRST + 5600..FIRST + 8000).finish();
                let found = (view.lost + view.unconfirmed, view.restarts);
                assert_eq!(found, (600, 0), "{pause} {last:?}: {view:?}");
            }
        }
    }
}

#[test]
fn losses_before_a_restart_do_not_make_another_one_a_late_batch() {
    for id in [V10, V20] {
        for first in [0, 20, 1000] {
            let mut arrivals = Arrivals::new(id);
            // Of a life of the reporter that ended a minute ago.
            arrivals
                .observe((0..30_000).chain(90_000..93_000))
                .wait(60_000)
                .observe(0..50_000)
                .wait(500);
            let rest = (first..60_000).filter(|n| n % 5 != 0 || *n == 0);
            let not_sent = u64::from(60_000 - first) / 5 - 1;
            let view = arrivals.observe(rest).finish();
            let found = (view.lost + view.unconfirmed, view.restarts);
            assert_eq!(found, (60_000 + not_sent, 2), "{first}: {view:?}");
        }
    }
}

#[test]
fn a_restart_without_its_first_numbers_that_reaches_the_old_one_counts_as_a_late_batch() {
    for id in [V10, V20] {
        // The number after a burst of losses, and the numbers that count as lost, and as received twice.
        for (next, lost, duplicated) in [(8900, 0, 100), (9000, 0, 0), (9128, 128, 0), (70_000, 61_000, 0)] {
            let mut arrivals = Arrivals::new(id);
            arrivals.observe(1000..9000).wait(500).observe(20..520);
            let view = arrivals.observe_every(1, next..next + 3000).finish();
            let found = (view.lost + view.unconfirmed, view.duplicated, view.restarts);
            assert_eq!(found, (lost, duplicated, 0), "{next}: {view:?}");
            assert_eq!(view.reordered, 500, "{next}: {view:?}");
        }
        // It is a restart if one of its first numbers arrived, if it reaches a lower number, or after a silence.
        for (first, next, pause) in [(5, 8900, 500), (20, 8800, 500), (20, 8900, 3000)] {
            let mut arrivals = Arrivals::new(id);
            arrivals.observe(1000..9000).wait(pause).observe(first..520);
            let view = arrivals.observe_every(1, next..next + 3000).finish();
            let found = (view.lost + view.unconfirmed, view.restarts);
            assert_eq!(found, (u64::from(next) - 520, 1), "{first} {next}: {view:?}");
        }
    }
}

#[test]
fn an_outage_counts_modulo_the_sequence_space_and_one_of_more_than_half_of_it_is_a_restart() {
    const HALF: u32 = 1 << 21;
    let cases = [
        (V20, HALF - 2, u64::from(HALF) - 2, 0),
        (V20, HALF - 1, 0, 1),
        (V20, 2 * HALF - 200_000, 0, 1),
        (V20, 2 * HALF + 500, 500, 0),
        (V10, HALF - 1, u64::from(HALF) - 1, 0),
        (V10, 2 * HALF + 500, 2 * u64::from(HALF) + 500, 0),
    ];
    for (id, outage, lost, restarts) in cases {
        let mut arrivals = Arrivals::new(id);
        arrivals.observe(FIRST..FIRST + 2000).wait(3000);
        let first = FIRST + 2000 + outage;
        let view = arrivals.observe_every(1, first..first + 2000).finish();
        let found = (view.lost + view.unconfirmed, view.restarts);
        assert_eq!(found, (lost, restarts), "{outage}: {view:?}");
    }
}
