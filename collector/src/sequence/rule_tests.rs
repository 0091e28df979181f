//! Single numbers that do not move a stream, and nodes behind one address.

use super::*;

pub(super) struct Silent;
impl Output for Silent {}

pub(super) const SECOND: Nanos = 1_000_000_000;
const FIRST: u32 = 1_000_000;
pub(super) const V10: StreamId = StreamId {
    version: 10,
    hw_id: 1,
    listener: 0,
    node: Some(7),
    source: [0; 16],
};

/// The stream of a report 0.5 that names this node.
pub(super) fn v05(node: Option<u32>) -> StreamId {
    StreamId {
        version: V05,
        node,
        source: [9; 16],
        ..V10
    }
}

/// Lost and unconfirmed, reordered, duplicated, restarts, countable.
type Counted = (u64, u64, u64, u64, bool);

/// Numbers that arrive in one second, and that second.
type Batch = (u64, Vec<u32>);

fn counted(id: &StreamId, batches: &[Batch]) -> Counted {
    let mut sequencer = Sequencer::new(4, 0);
    for (second, numbers) in batches {
        for number in numbers {
            sequencer.observe(id, *number, second * SECOND, &mut Silent);
        }
    }
    sequencer.finish(u64::MAX, &mut Silent);
    let v = sequencer.streams().next().unwrap();
    (
        v.lost + v.unconfirmed,
        v.reordered,
        v.duplicated,
        v.restarts,
        v.countable,
    )
}

fn joined(parts: &[std::ops::Range<u32>]) -> Vec<u32> {
    parts.iter().cloned().flatten().collect()
}

#[test]
fn one_number_does_not_move_a_stream() {
    const M: u32 = 1_000_000;
    let late_pair = joined(&[0..100, 102..400, 100..102, 400..600]);
    let cases: [(&str, Vec<Batch>, Counted); 9] = [
        (
            "late",
            vec![(0, joined(&[0..1001, 1201..1301, 1001..1002, 1301..1400]))],
            (199, 1, 0, 0, true),
        ),
        (
            "a loss after a restart",
            vec![(0, joined(&[0..500, 0..381, 521..700]))],
            (140, 0, 0, 1, true),
        ),
        (
            "a stray after a pause",
            vec![
                (0, (M..M + 100).collect()),
                (11, joined(&[5..6, M + 100..M + 200])),
            ],
            (0, 1, 0, 0, true),
        ),
        (
            "late after a step of the clock",
            vec![
                (0, joined(&[0..99, 100..101])),
                (11, joined(&[99..100, 101..300])),
            ],
            (0, 1, 0, 0, true),
        ),
        (
            "a near jump",
            vec![(0, joined(&[0..500, 9000..9001, 500..900]))],
            (0, 1, 0, 0, true),
        ),
        ("two very late ones", vec![(0, late_pair)], (2, 2, 0, 0, true)),
        (
            "one report in 20 s",
            (0..100_u32)
                .map(|n| (20 * u64::from(n), vec![if n < 50 { n } else { n + 500 }]))
                .collect(),
            (500, 0, 0, 0, true),
        ),
        (
            "mostly lost",
            vec![(0, (0..100).map(|n| 200 * n).chain([19_801]).collect())],
            (99 * 199, 0, 0, 0, true),
        ),
        (
            "the first one is forged",
            vec![(0, joined(&[3000 * M..3000 * M + 1, 1000..2000]))],
            (0, 1, 0, 0, true),
        ),
    ];
    for (name, batches, expected) in cases {
        assert_eq!(counted(&v05(None), &batches), expected, "{name}");
        assert_eq!(counted(&V10, &batches), expected, "{name}");
    }
}

#[test]
fn a_second_path_that_is_late_loses_at_most_what_comes_late() {
    for (delay, share) in [(130, 100), (130, 10), (1000, 10), (130, 3)] {
        // The last ones are in time: late reports alone look like a restart.
        let mut numbers: Vec<(u32, u32)> = (0..20_000)
            .map(|n| {
                (
                    if n % share < 2 && n < 20_000 - 2 * delay {
                        n + delay
                    } else {
                        n
                    },
                    n,
                )
            })
            .collect();
        numbers.sort_unstable();
        let late = numbers.iter().filter(|(at, n)| at != n).count() as u64;
        let numbers = numbers.into_iter().map(|(_, n)| n).collect();
        let (lost, _, duplicated, restarts, _) = counted(&V10, &[(0, numbers)]);
        assert!(lost <= late, "{delay} {share}: {lost} of {late}");
        assert_eq!((duplicated, restarts), (0, 0), "{delay} {share}");
    }
}

#[test]
fn flowlets_of_a_second_path_lose_at_most_what_comes_late() {
    for delay in [50, 130, 160, 200, 250, 300] {
        for size in [1, 5, 20, 50, 100, 300] {
            for one_in in [2, 4, 10] {
                let mut random = crate::hash::Jitter::new(u64::from(delay * 1000 + size));
                let mut numbers: Vec<(u32, u32)> = Vec::new();
                let mut first = 0;
                while first < 40_000 {
                    let end = first + 1 + random.around(size * 2) % (2 * size);
                    let is_late = random.around(1 << 20) % one_in == 0 && first < 38_000;
                    numbers.extend((first..end).map(|n| (if is_late { n + delay } else { n }, n)));
                    first = end;
                }
                numbers.sort_unstable();
                let late = numbers.iter().filter(|(at, n)| at != n).count() as u64;
                let numbers = numbers.into_iter().map(|(_, n)| FIRST + n).collect();
                let (lost, _, duplicated, restarts, _) = counted(&V10, &[(0, numbers)]);
                assert!(lost <= late, "{delay} {size} {one_in}: {lost} of {late}");
                assert_eq!((duplicated, restarts), (0, 0), "{delay} {size} {one_in}");
            }
        }
    }
}

/// Cycles of a second path that delivers the first `size` numbers of each in order and at once, after `others` that follow them; then
/// `between` in order.
fn late_batches(first: u32, cycles: u32, (size, others, between): (u32, u32, u32)) -> Vec<u32> {
    let cycle = |number: u32| {
        let start = first + number * (size + others + between);
        let rest = start + size + others;
        joined(&[start + size..rest, start..start + size, rest..rest + between])
    };
    (0..cycles).flat_map(cycle).collect()
}

#[test]
fn late_batches_of_a_second_path_are_no_restarts_and_no_losses_if_they_fill_a_gap() {
    for id in [V10, StreamId { version: 20, ..V10 }] {
        for size in [1, 5, 17, 100, 128, 129, 150, 300, 2000, 5000] {
            for others in [100, 128, 129, 300, 1000, 6000, 20_000] {
                for (first, cycles, between) in [
                    (1000, 20, 0),
                    (1, 1, 500),
                    (1_000_000, 20, 700),
                    (4_190_000, 1, 9000),
                ] {
                    let shape = (size, others, between);
                    let mut numbers: Vec<u32> = (first - first.min(1000)..first).collect();
                    numbers.extend(late_batches(first, cycles, shape));
                    let last = *numbers.iter().max().unwrap();
                    numbers.extend(last + 1..last + 50);
                    let mask = u32::MAX >> (32 - id.bits());
                    numbers.iter_mut().for_each(|number| *number &= mask);
                    let (lost, _, duplicated, restarts, _) = counted(&id, &[(0, numbers)]);
                    let late = u64::from(size * cycles);
                    assert_eq!((duplicated, restarts), (0, 0), "{first} {shape:?}: lost {lost}");
                    let most = if size > 129 && others > 128 { 0 } else { late };
                    assert!(lost <= most, "{first} {shape:?}: {lost} of {late}");
                }
            }
        }
    }
}

#[test]
fn a_second_path_with_copies_in_batches_loses_nothing() {
    for lag in [50, 130, 300, 2000, 20_000] {
        for size in [1, 20, 130, 200, 1000] {
            let mut numbers: Vec<u32> = (FIRST - 30_000..FIRST).collect();
            let mut next = FIRST;
            for _ in 0..20_000 / size {
                numbers.extend(joined(&[next..next + size, next - lag..next - lag + size]));
                next += size;
            }
            numbers.extend(next..next + 100);
            let (lost, _, _, restarts, _) = counted(&V10, &[(0, numbers)]);
            assert_eq!((lost, restarts), (0, 0), "{lag} {size}");
        }
    }
}

/// A report 0.5: its second, node and number.
type Sent = (u64, Option<u32>, u32);

fn views(sent: &[Sent]) -> Vec<StreamView> {
    let mut sequencer = Sequencer::new(8, 0);
    for (second, node, number) in sent {
        sequencer.observe(&v05(*node), *number, second * SECOND, &mut Silent);
        sequencer.account(second * SECOND, &mut Silent);
    }
    sequencer.streams().collect()
}

#[test]
fn two_nodes_in_step_are_not_countable() {
    for apart in [0, 60] {
        let step: Vec<Sent> = (1..40)
            .flat_map(|n| [(0, None, n + apart), (0, None, n)])
            .collect();
        let seen = views(&step);
        assert_eq!((seen[0].mixed, seen[0].countable, seen[0].lost), (true, false, 0));
    }
    // One node, whose reports are duplicated here and there.
    let seldom: Vec<Sent> = (1..400)
        .flat_map(|n| vec![(0, None, n); if n % 7 == 0 { 2 } else { 1 }])
        .collect();
    let seen = views(&seldom);
    assert_eq!((seen[0].mixed, seen[0].duplicated), (false, 57));
}

/// One report a second of a node that names itself in every second one.
fn half_named(node: u32, numbers: std::ops::Range<u32>) -> impl Iterator<Item = Sent> {
    numbers.map(move |n| (n.into(), (n % 2 == 0).then_some(node), n))
}

#[test]
fn a_stream_is_countable_again_a_minute_after_the_last_evidence() {
    let mut sent: Vec<Sent> = (1..40)
        .flat_map(|n| [(n.into(), None, n), (n.into(), None, 5000 + n)])
        .collect();
    sent.extend((40..99).map(|n| (u64::from(n), None, n)));
    assert!(views(&sent)[0].mixed);
    sent.extend((99..110).map(|n| (u64::from(n), None, n)));
    sent.extend([(110, None, 115), (113, None, 116)]);
    let seen = views(&sent);
    assert_eq!(
        (seen[0].mixed, seen[0].countable, seen[0].lost, seen[0].missing),
        (false, true, 0, 5)
    );
}

#[test]
fn a_forged_node_does_not_end_counting() {
    for forged in [1, 4] {
        let mut sent: Vec<Sent> = half_named(11, 1..40).collect();
        sent.extend((0..forged).map(|n| (40, Some(12), 77 * n)));
        sent.extend(half_named(11, 40..42));
        let seen: Vec<_> = views(&sent).iter().map(|view| view.mixed).collect();
        assert_eq!(seen, [forged == 4; 2]);
        sent.extend(half_named(11, 42..170));
        assert_eq!((views(&sent)[0].mixed, views(&sent)[0].id.node), (false, None));
    }
}

#[test]
fn a_node_that_gets_its_id_later_is_countable_in_the_end() {
    let mut sent: Vec<Sent> = half_named(0, 0..10).collect();
    sent.extend(half_named(11, 10..200));
    sent.extend([(200, None, 205), (203, None, 206)]);
    let seen = views(&sent);
    assert_eq!((seen[0].mixed, seen[0].lost, seen[0].missing), (false, 0, 5));
    assert_eq!(seen[0].id.node, Some(11));
}

#[test]
fn the_number_of_a_refused_datagram_counts_only_where_it_is_expected() {
    for id in [V10, StreamId { version: 20, ..V10 }, v05(None)] {
        let mut sequencer = Sequencer::new(8, 0);
        sequencer.observe_refused(&id, 7, 0, &mut Silent);
        assert_eq!(sequencer.streams().count(), 0);
        sequencer.observe(&id, 1, 0, &mut Silent);
        sequencer.observe(&id, 2, 0, &mut Silent);
        for number in [3, 6, 5, 5, 6, 200, 3_000_000, 0] {
            sequencer.observe_refused(&id, number, 0, &mut Silent);
        }
        sequencer.observe_refused(&id, 4, 2 * PAUSE, &mut Silent);
        sequencer.observe(&id, 7, 2 * PAUSE, &mut Silent);
        sequencer.finish(3 * PAUSE, &mut Silent);
        let v = sequencer.streams().next().unwrap();
        assert_eq!(
            (v.datagrams, v.lost, v.reordered, v.duplicated, v.restarts),
            (6, 1, 1, 0, 0),
            "{id:?}"
        );
    }
}
