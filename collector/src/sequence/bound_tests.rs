//! Each rule at its bounds: the last case on either side.

use super::rule_tests::{SECOND, Silent, V10, v05};
use super::*;

/// Numbers that arrive at one time.
type Batch = (Nanos, Vec<u32>);

/// Lost and unconfirmed, missing, reordered, duplicated, restarts, countable.
type Counted = (u64, u32, u64, u64, u64, bool);

fn counted(batches: &[Batch], ends: bool) -> Counted {
    let mut sequencer = Sequencer::new(4, 0);
    for (now, numbers) in batches {
        for number in numbers {
            sequencer.observe(&V10, *number, SECOND + now, &mut Silent);
        }
    }
    if ends {
        sequencer.finish(u64::MAX, &mut Silent);
    }
    let v = sequencer.streams().next().unwrap();
    (
        v.lost + v.unconfirmed,
        v.missing,
        v.reordered,
        v.duplicated,
        v.restarts,
        v.countable,
    )
}

fn joined(parts: &[std::ops::Range<u32>]) -> Vec<u32> {
    parts.iter().cloned().flatten().collect()
}

/// Numbers at once.
fn at_once(parts: &[std::ops::Range<u32>]) -> Vec<Batch> {
    vec![(0, joined(parts))]
}

/// A thousand numbers up to `last`, and as many from `first` on.
fn over_the_wrap(last: u32, first: u32) -> Vec<Batch> {
    let before = (0..1000).map(|n| last.wrapping_sub(999 - n));
    vec![(0, before.chain(first..first + 1000).collect())]
}

/// A number again and again, after others.
fn repeated(others: std::ops::Range<u32>, number: u32, times: usize) -> Vec<Batch> {
    vec![(0, others.chain(std::iter::repeat_n(number, times)).collect())]
}

/// Ten numbers, and the same ones later.
fn twice(later: Nanos) -> Vec<Batch> {
    vec![(0, (0..10).collect()), (later, (0..10).collect())]
}

/// A sequence, and numbers before it of which each other one is missing.
fn apart(count: u32) -> Vec<Batch> {
    vec![(0, (5000..5100).chain((0..count).map(|n| 2 * n)).collect())]
}

/// A constant number that then counts.
fn stalled(times: usize) -> Vec<Batch> {
    vec![(0, std::iter::repeat_n(7, times).chain(8..20).collect())]
}

/// Two gaps, one after the other.
fn gaps(last: u32) -> Vec<Batch> {
    vec![(0, vec![1000, 1001, 66_537, last])]
}

/// A sequence, lower numbers at `now`, and those that follow them.
fn late_batch(now: Nanos, late: std::ops::Range<u32>, next: u32) -> Vec<Batch> {
    vec![
        (0, (1000..9000).collect()),
        (now, late.collect()),
        (now, (next..12_000).collect()),
    ]
}

/// A sequence that began with 300, numbers from 0 on, and the sequence again.
fn from_zero(end: u32) -> Vec<Batch> {
    at_once(&[300..1000, 0..end, 1050..3000])
}

/// Compares all cases, and lists those that differ.
fn check(cases: Vec<(&str, Vec<Batch>, Counted)>, ends: bool) {
    let found = cases.into_iter().filter_map(|(name, batches, expected)| {
        let found = counted(&batches, ends);
        (found != expected).then_some((name, expected, found))
    });
    assert_eq!(found.collect::<Vec<_>>(), []);
}

#[test]
fn bounds_of_the_window() {
    check(
        vec![
            ("128 ahead", at_once(&[0..100, 227..228]), (0, 127, 0, 0, 0, true)),
            ("129 ahead", at_once(&[0..100, 228..229]), (0, 0, 0, 0, 0, true)),
            (
                "128 datagrams after a jump",
                at_once(&[0..1000, 5000..5130]),
                (0, 4000, 0, 0, 0, true),
            ),
            (
                "129 datagrams after a jump",
                at_once(&[0..1000, 5000..5131]),
                (4000, 0, 0, 0, 0, true),
            ),
            (
                "a late number 64 times",
                repeated(0..100, 50, 64),
                (0, 0, 0, 64, 0, true),
            ),
            (
                "a late number 65 times",
                repeated(0..100, 50, 65),
                (0, 0, 0, 65, 0, false),
            ),
            (
                "the highest number 63 times more",
                repeated(0..10, 9, 63),
                (0, 0, 0, 63, 0, true),
            ),
            (
                "the highest number 64 times more",
                repeated(0..10, 9, 64),
                (0, 0, 0, 64, 0, false),
            ),
            (
                "another number 65 times after the first",
                repeated(5..6, 900, 65),
                (0, 0, 0, 63, 0, false),
            ),
            (
                "a number near the held one just before a silence",
                vec![(0, joined(&[0..1000, 5000..5001])), (SETTLE - 1, vec![5005])],
                (0, 4004, 0, 0, 0, true),
            ),
            (
                "a number near the held one after a silence",
                vec![(0, joined(&[0..1000, 5000..5001])), (SETTLE, vec![5005])],
                (0, 4000, 0, 0, 0, true),
            ),
            (
                "a jump just before a pause has passed",
                vec![(0, (0..1000).collect()), (PAUSE - 1, vec![5000, 5001])],
                (0, 4000, 0, 0, 0, true),
            ),
            (
                "a jump after a pause",
                vec![(0, (0..1000).collect()), (PAUSE, vec![5000, 5001])],
                (4000, 0, 0, 0, 0, true),
            ),
        ],
        false,
    );
}

#[test]
fn bounds_of_restarts_and_outages() {
    let far = (100_u32).wrapping_sub(1 << 16);
    check(
        vec![
            (
                "just before a pause has passed",
                twice(PAUSE - 1),
                (0, 0, 0, 10, 0, true),
            ),
            ("after a pause", twice(PAUSE), (0, 0, 0, 0, 1, true)),
            ("16 numbers back", apart(16), (0, 0, 16, 0, 0, true)),
            ("17 numbers back", apart(17), (16, 0, 0, 0, 1, true)),
            (
                "three in order",
                at_once(&[5000..5100, 0..4]),
                (0, 0, 4, 0, 0, true),
            ),
            (
                "four in order",
                at_once(&[5000..5100, 0..5]),
                (0, 0, 0, 0, 1, true),
            ),
            (
                "an outage after the first number",
                at_once(&[1000..1001, 66_536..67_000]),
                (65_535, 0, 0, 0, 0, true),
            ),
            (
                "the first number is a stray",
                at_once(&[1000..1001, 66_537..67_000]),
                (0, 0, 1, 0, 0, true),
            ),
            (
                "an outage that is not far",
                over_the_wrap(far, 100),
                (65_535, 0, 0, 0, 0, true),
            ),
            (
                "a far restart",
                over_the_wrap(far - 1, 100),
                (0, 0, 0, 0, 1, true),
            ),
            (
                "a far outage to 128",
                over_the_wrap(200_000_u32.wrapping_neg(), 128),
                (200_127, 0, 0, 0, 0, true),
            ),
            (
                "a far restart at 127",
                over_the_wrap(200_000_u32.wrapping_neg(), 127),
                (0, 0, 0, 0, 1, true),
            ),
            (
                "an outage to 16",
                over_the_wrap(1000_u32.wrapping_neg(), 16),
                (1015, 0, 0, 0, 0, true),
            ),
            (
                "a restart at 15",
                over_the_wrap(1000_u32.wrapping_neg(), 15),
                (0, 0, 0, 0, 1, true),
            ),
            ("two plausible gaps", gaps(132_073), (65_535, 0, 1, 0, 0, true)),
            (
                "a gap that is not plausible",
                gaps(132_074),
                (0, 0, 2, 0, 0, true),
            ),
            (
                "constant 64 times, then counts",
                stalled(64),
                (0, 0, 0, 63, 0, true),
            ),
            (
                "constant 65 times, then counts",
                stalled(65),
                (0, 0, 0, 0, 0, true),
            ),
            (
                "a stray 128 datagrams before its sequence",
                at_once(&[0..1000, 5001..5002, 1000..1127, 5002..6000]),
                (3874, 0, 1, 0, 0, true),
            ),
            (
                "a stray 129 datagrams before another sequence",
                at_once(&[0..1000, 5001..5002, 1000..1128, 5002..6000]),
                (3874, 0, 1, 0, 0, true),
            ),
        ],
        true,
    );
}

#[test]
fn bounds_of_late_batches() {
    check(
        vec![
            (
                "from 16 on",
                late_batch(0, 16..516, 8900),
                (0, 0, 500, 100, 0, true),
            ),
            (
                "from 15 on",
                late_batch(0, 15..515, 8900),
                (8385, 0, 0, 0, 1, true),
            ),
            (
                "just before a silence",
                late_batch(SETTLE - 1, 20..520, 8900),
                (0, 0, 500, 100, 0, true),
            ),
            (
                "after a silence",
                late_batch(SETTLE, 20..520, 8900),
                (8380, 0, 0, 0, 1, true),
            ),
            (
                "goes on 16 ahead",
                late_batch(0, 5..520, 9015),
                (15, 0, 515, 0, 0, true),
            ),
            (
                "goes on 17 ahead",
                late_batch(0, 5..520, 9016),
                (8496, 0, 0, 0, 1, true),
            ),
            (
                "16 more than are missing",
                at_once(&[1000..9000, 20..38]),
                (0, 0, 18, 0, 0, true),
            ),
            (
                "17 more than are missing",
                at_once(&[1000..9000, 20..39]),
                (0, 0, 0, 0, 1, true),
            ),
            (
                "ends 16 before the first",
                from_zero(285),
                (50, 0, 285, 0, 0, true),
            ),
            (
                "ends 17 before the first",
                from_zero(284),
                (766, 0, 0, 0, 1, true),
            ),
        ],
        true,
    );
}

#[test]
fn a_sequence_that_reaches_the_end_of_the_one_before_in_steps_of_four_is_of_a_restarted_reporter() {
    for (step, restarts) in [(4, 1), (5, 0)] {
        let late = (6000..12_000).filter(|number| number % step == 0);
        let numbers = (1000..9000).chain(late).chain(12_000..14_000).collect();
        assert_eq!(counted(&[(0, numbers)], true).4, restarts, "{step}");
    }
}

#[test]
fn a_late_path_may_reach_more_than_16_numbers_of_another_within_a_pause() {
    for (count, until, lost) in [(17, PAUSE - 1, 0), (16, PAUSE - 1, 16), (17, PAUSE, 17)] {
        let mut batches: Vec<Batch> = vec![(0, joined(&[0..1000, 3000..3000 + count]))];
        batches.extend((0..10_u32).map(|second| {
            let first = 1000 + 100 * second;
            (Nanos::from(second) * SECOND, (first..first + 100).collect())
        }));
        batches.push((until, joined(&[2000..3000, 3000 + count..5000])));
        assert_eq!(counted(&batches, true).0, lost, "{count} {until}");
    }
}

#[test]
fn a_restart_is_undecided_for_as_long_as_a_pause() {
    let mut sequencer = Sequencer::new(4, 0);
    for number in joined(&[1000..9000, 20..520]) {
        sequencer.observe(&V10, number, SECOND, &mut Silent);
    }
    for (now, restarts) in [(SECOND + PAUSE - 1, 0), (SECOND + PAUSE, 1)] {
        sequencer.account(now, &mut Silent);
        assert_eq!(sequencer.streams().next().unwrap().restarts, restarts);
    }
}

#[test]
fn an_address_is_mixed_for_a_minute() {
    let mut sequencer = Sequencer::new(4, 0);
    for number in 0..40 {
        sequencer.observe(&v05(None), number, SECOND, &mut Silent);
        sequencer.observe(&v05(None), 5000 + number, SECOND, &mut Silent);
    }
    for (now, number, mixed) in [(SECOND + MIXED - 1, 5040, true), (SECOND + MIXED, 5041, false)] {
        sequencer.observe(&v05(None), number, now, &mut Silent);
        assert_eq!(sequencer.streams().next().unwrap().mixed, mixed);
    }
    // Five turns: the first number of each sequence is none.
    let mut sequencer = Sequencer::new(4, 0);
    let are_mixed = (0..6).flat_map(|number| [number, 5000 + number]).map(|number| {
        sequencer.observe(&v05(None), number, SECOND, &mut Silent);
        sequencer.streams().next().unwrap().mixed
    });
    assert_eq!(
        are_mixed.collect::<Vec<_>>(),
        [vec![false; 11], vec![true]].concat()
    );
    // Reports of another node in a row, each within a minute of the one before.
    for (apart, mixed) in [(MIXED - 1, true), (MIXED, false)] {
        let mut sequencer = Sequencer::new(4, 0);
        let mut now = SECOND;
        sequencer.observe(&v05(Some(11)), 0, now, &mut Silent);
        for number in 1..=OTHERS {
            now += apart;
            sequencer.observe(&v05(None), number, now, &mut Silent);
            sequencer.observe(&v05(Some(12)), number, now, &mut Silent);
        }
        assert_eq!(sequencer.streams().next().unwrap().mixed, mixed, "{apart}");
    }
}

/// A report 0.5: its second, node and number.
type Sent = (u64, Option<u32>, u32);

/// The time before a step of the clock, s.
const LATER: u64 = 10_000;

/// Reports that name no node.
fn unnamed(numbers: std::ops::Range<u32>) -> impl Iterator<Item = Sent> {
    numbers.map(|n| (u64::from(n), None, n))
}

/// Reports of two nodes by turns, before the step.
fn turns(count: u32) -> impl Iterator<Item = Sent> {
    (0..count).flat_map(|n| [(LATER, None, n), (LATER, None, 5000 + n)])
}

#[test]
fn evidence_of_several_nodes_ends_also_if_the_clock_was_set_back() {
    const LATER: u64 = 10_000;
    let cases: [(&str, Vec<Sent>); 3] = [
        (
            "a report without node",
            std::iter::once((LATER, None, 1))
                .chain((1..200).flat_map(|n| [(u64::from(n), Some(11), n + 1), (u64::from(n), Some(12), n)]))
                .collect(),
        ),
        ("turns of two nodes", turns(20).chain(unnamed(20..100)).collect()),
        (
            "turns, one of them later",
            turns(5).chain([(0, None, 5), (20, None, 5005)]).collect(),
        ),
    ];
    for (name, sent) in cases {
        let mut sequencer = Sequencer::new(8, 0);
        for (second, node, number) in sent {
            sequencer.observe(&v05(node), number, second * SECOND, &mut Silent);
            sequencer.account(second * SECOND, &mut Silent);
        }
        assert!(sequencer.streams().all(|view| !view.mixed), "{name}");
    }
}

#[test]
fn two_sequences_end_also_if_the_clock_was_set_back() {
    // A restart, and numbers ahead of a late path, which goes on for longer than it may be late.
    for (before, after, expected) in [
        ([1000..9000, 20..520], 520..3017, (0, 1)),
        ([0..1000, 3000..3017], 1000..3000, (17, 0)),
    ] {
        let mut sequencer = Sequencer::new(4, 0);
        for number in joined(&before) {
            sequencer.observe(&V10, number, LATER * SECOND, &mut Silent);
        }
        // The late path then goes on where the numbers ahead of it ended.
        for (at, number) in (0..).zip(joined(&[after, 3017..3300])) {
            let now = SECOND + at * SECOND / 100;
            sequencer.observe(&V10, number, now, &mut Silent);
            if at % 100 == 0 {
                sequencer.account(now, &mut Silent);
            }
        }
        let view = sequencer.streams().next().unwrap();
        assert_eq!(
            (view.lost + view.unconfirmed, view.restarts),
            expected,
            "{before:?}"
        );
    }
}

#[test]
fn a_late_batch_at_the_end_loses_what_is_not_in_it() {
    for size in [200, 300, 1000] {
        for others in [130, 300, 6000] {
            // Each of so many of the batch is lost, and so many numbers follow it.
            for one_in in [0, 7, 50] {
                for next in 0..4 {
                    let first = 1000 + size;
                    let end = first + others;
                    let late = (1000..first).filter(|n| one_in == 0 || n % one_in != 5);
                    let lost = u64::from(size) - late.clone().count() as u64;
                    let numbers = (500..1000).chain(first..end).chain(late).chain(end..end + next);
                    let found = counted(&[(0, numbers.collect())], true);
                    assert_eq!((found.0, found.4), (lost, 0), "{size} {others} {one_in} {next}");
                }
            }
        }
    }
}
