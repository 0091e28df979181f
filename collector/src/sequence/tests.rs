//! Loss accounting against known sequences and a model.

use super::*;
use crate::event::{Loss, SequenceEvent, SequenceEventKind};

const V10: StreamId = StreamId {
    version: 10,
    hw_id: 1,
    listener: 0,
    node: Some(7),
    source: [0; 16],
};
const V20: StreamId = StreamId { version: 20, ..V10 };

#[derive(Default)]
struct Notes(Vec<SequenceEventKind>, Vec<Loss>);

impl Output for Notes {
    fn sequence(&mut self, note: &SequenceEvent) {
        self.0.push(note.kind);
    }
    fn loss(&mut self, loss: &Loss) {
        self.1.push(*loss);
    }
}

/// Lost, unconfirmed, reordered, duplicated, restarts, missing, countable.
type Counted = (u64, u64, u64, u64, u64, u32, bool);

fn run(id: StreamId, numbers: impl IntoIterator<Item = u32>) -> (Counted, Vec<SequenceEventKind>) {
    observe(id, numbers, false)
}

/// Numbers at once; `ends`: and the end of the input.
fn observe(
    id: StreamId,
    numbers: impl IntoIterator<Item = u32>,
    ends: bool,
) -> (Counted, Vec<SequenceEventKind>) {
    let mut sequencer = Sequencer::new(4, 0);
    let mut notes = Notes::default();
    for (at, number) in numbers.into_iter().enumerate() {
        sequencer.observe(&id, number, at as Nanos, &mut notes);
    }
    if ends {
        sequencer.finish(SETTLE, &mut notes);
    }
    let v = sequencer.streams().next().unwrap();
    (
        (
            v.lost,
            v.unconfirmed,
            v.reordered,
            v.duplicated,
            v.restarts,
            v.missing,
            v.countable,
        ),
        notes.0,
    )
}

#[test]
fn the_table_of_the_module() {
    const M22: u32 = (1 << 22) - 1;
    let cases: [(&str, StreamId, Vec<u32>, Counted); 12] = [
        ("in order", V10, (5..300).collect(), (0, 0, 0, 0, 0, 0, true)),
        (
            "a gap is missing, not lost",
            V10,
            vec![1, 2, 5],
            (0, 0, 0, 0, 0, 2, true),
        ),
        (
            "lost when it falls out",
            V10,
            [1, 2].into_iter().chain(5..=2 + 128 + 2).collect(),
            (2, 0, 0, 0, 0, 0, true),
        ),
        (
            "one falls out",
            V10,
            [1, 2].into_iter().chain(5..=3 + 128).collect(),
            (1, 0, 0, 0, 0, 1, true),
        ),
        (
            "late, filled",
            V10,
            vec![1, 2, 5, 4, 3, 6],
            (0, 0, 2, 0, 0, 0, true),
        ),
        ("twice", V10, vec![1, 2, 2, 3], (0, 0, 0, 1, 0, 0, true)),
        ("late and twice", V10, vec![1, 4, 2, 2], (0, 0, 1, 1, 0, 1, true)),
        (
            "wrap of 32 bits",
            V10,
            vec![u32::MAX - 1, u32::MAX, 0, 1],
            (0, 0, 0, 0, 0, 0, true),
        ),
        (
            "gap over the wrap",
            V10,
            vec![u32::MAX - 1, 1, u32::MAX],
            (0, 0, 1, 0, 0, 1, true),
        ),
        (
            "wrap of 22 bits",
            V20,
            vec![M22 - 1, M22, 0, 1],
            (0, 0, 0, 0, 0, 0, true),
        ),
        (
            "late over the wrap of 22 bits",
            V20,
            vec![M22 - 1, 1, 0, M22],
            (0, 0, 2, 0, 0, 0, true),
        ),
        (
            "a jump wider than the window",
            V10,
            [1, 2].into_iter().chain(1002..1200).collect(),
            (999, 0, 0, 0, 0, 0, true),
        ),
    ];
    for (name, id, numbers, expected) in cases {
        assert_eq!(run(id, numbers).0, expected, "{name}");
    }
}

#[test]
fn numbers_that_do_not_continue_a_sequence() {
    let cases: [(&str, StreamId, Vec<u32>, Counted); 11] = [
        ("before the first", V10, vec![10, 11, 9], (0, 0, 1, 0, 0, 0, true)),
        (
            "restart",
            V10,
            (5000..5010).chain(0..200).collect(),
            (0, 0, 0, 0, 1, 0, true),
        ),
        (
            "restart, a gap open",
            V10,
            [5000, 5002, 5003].into_iter().chain(0..200).collect(),
            (1, 0, 0, 0, 1, 0, true),
        ),
        (
            "restart from the upper half, 22 bits",
            V20,
            [3_000_000, 3_000_001].into_iter().chain(0..200).collect(),
            (0, 0, 0, 0, 1, 0, true),
        ),
        (
            "restart in reverse",
            V10,
            (5000..5010).chain([1, 0]).chain(2..200).collect(),
            (0, 0, 1, 0, 1, 0, true),
        ),
        (
            "restart, the first one twice",
            V10,
            (5000..5010).chain([0]).chain(0..200).collect(),
            (0, 0, 0, 1, 1, 0, true),
        ),
        (
            "a few strays are no restart",
            V10,
            (5000..5010).chain(0..16).chain(5010..5200).collect(),
            (0, 0, 16, 0, 0, 0, true),
        ),
        (
            "a stray is no restart",
            V10,
            vec![5000, 5001, 4000, 5002, 5003],
            (0, 0, 1, 0, 0, 0, true),
        ),
        ("always 0", V10, vec![0; 1000], (0, 0, 0, 0, 0, 0, false)),
        (
            "stood still, then counts",
            V10,
            [0; 100].into_iter().chain(500..510).collect(),
            (0, 0, 0, 0, 0, 0, true),
        ),
        (
            "counts, then stands still",
            V10,
            (1..10).chain([9; 100]).collect(),
            (0, 0, 0, 64, 0, 0, false),
        ),
    ];
    for (name, id, numbers, expected) in cases {
        assert_eq!(observe(id, numbers, true).0, expected, "{name}");
    }
}

#[test]
fn a_number_far_ahead_is_believed_when_the_next_follows_it() {
    const FORGED: u32 = 2_000_000_000;
    const OUTAGE: u32 = 100_000;
    let cases: [(&str, StreamId, Vec<u32>, Counted); 4] = [
        (
            "one number far ahead is not believed",
            V10,
            vec![10, 11, FORGED, 12, 13],
            (0, 0, 1, 0, 0, 0, true),
        ),
        (
            "nor many without order",
            V10,
            vec![10, 11, FORGED, 12, 3 * OUTAGE, 13, FORGED],
            (0, 0, 2, 0, 0, 0, true),
        ),
        (
            "a long outage is, when the next one follows",
            V10,
            [10, 11].into_iter().chain(OUTAGE..OUTAGE + 200).collect(),
            (201 * 128, u64::from(OUTAGE) - 12 - 201 * 128, 0, 0, 0, 0, true),
        ),
        (
            "over the wrap too",
            V10,
            [u32::MAX - 5, u32::MAX - 4]
                .into_iter()
                .chain(OUTAGE..OUTAGE + 200)
                .collect(),
            (201 * 128, u64::from(OUTAGE) + 4 - 201 * 128, 0, 0, 0, 0, true),
        ),
    ];
    for (name, id, numbers, expected) in cases {
        assert_eq!(run(id, numbers).0, expected, "{name}");
    }
}

#[test]
fn each_gap_is_explained() {
    let numbers = [1, 2, 5, 4, 7].into_iter().chain(8..=3 + 128);
    assert_eq!(
        run(V10, numbers).1,
        [
            SequenceEventKind::Gap { first: 3, count: 2 },
            SequenceEventKind::Late(4),
            SequenceEventKind::Gap { first: 6, count: 1 },
            SequenceEventKind::Lost { first: 3, count: 1 },
        ]
    );
    assert_eq!(
        observe(V10, [10, 11].into_iter().chain(400..540).chain(11..160), true).1,
        [
            SequenceEventKind::Lost {
                first: 12,
                count: 388
            },
            SequenceEventKind::Gap {
                first: 12,
                count: 388
            },
            SequenceEventKind::Restart(11),
        ]
    );
}

#[test]
fn sequence_counters_balance_under_any_arrival_order() {
    for id in [V10, V20] {
        let mut jitter = crate::hash::Jitter::new(3);
        let mut sequencer = Sequencer::new(4, 0);
        let (mut notes, mut number) = (Notes::default(), 4_194_000_u32);
        let first = number;
        let mut highest = number;
        let modulo = |n: u32| if id.version == 20 { n & 0x3f_ffff } else { n };
        sequencer.observe(&id, modulo(first), 0, &mut notes);
        for at in 1..100_000 {
            number = match jitter.around(20) {
                1..=4 => highest.wrapping_add(jitter.around(50)),
                5..=8 => highest - jitter.around(60).min(highest - first),
                _ => highest + 1,
            };
            highest = highest.max(number);
            sequencer.observe(&id, modulo(number), at, &mut notes);
        }
        let v = sequencer.streams().next().unwrap();
        let span = u64::from(highest - first) + 1;
        assert_eq!(
            span,
            v.datagrams - v.duplicated + v.lost + v.unconfirmed + u64::from(v.missing),
            "{v:?}"
        );
        let lost: u64 = notes
            .0
            .iter()
            .map(|n| {
                if let SequenceEventKind::Lost { count, .. } = n {
                    u64::from(*count)
                } else {
                    0
                }
            })
            .sum();
        assert_eq!((v.lost + v.unconfirmed, v.restarts), (lost, 0));
    }
}

#[test]
fn silence_settles_what_is_missing_once() {
    let mut sequencer = Sequencer::new(4, 0);
    let mut notes = Notes::default();
    for (at, number) in [1, 2, 5].into_iter().enumerate() {
        sequencer.observe(&V10, number, at as Nanos, &mut notes);
    }
    sequencer.account(SETTLE, &mut notes);
    assert_eq!(notes.1, []);
    for second in 1..4 {
        sequencer.account(2 + second * SETTLE, &mut notes);
    }
    sequencer.observe(&V10, 4, 5 * SETTLE, &mut notes);
    sequencer.finish(5 * SETTLE, &mut notes);
    let loss = |ts, lost, reordered| Loss {
        ts,
        node: Some(7),
        source: [0; 16],
        hw_id: 1,
        lost,
        reordered,
        duplicated: 0,
    };
    assert_eq!(notes.1, [loss(2 + SETTLE, 2, 0), loss(5 * SETTLE, 0, 1)]);
}

#[test]
fn an_accounting_visits_only_streams_whose_counts_may_change() {
    const STREAMS: u32 = 10_000;
    let mut sequencer = Sequencer::new(1 << 14, 0);
    let mut notes = Notes::default();
    let id = |node: u32| StreamId {
        node: Some(node),
        ..V10
    };
    for second in 1..10_u32 {
        let now = Nanos::from(second) * SETTLE / 2;
        for node in 0..STREAMS {
            // One loses a report.
            let number = if node == 5 && second > 3 {
                second + 1
            } else {
                second
            };
            sequencer.observe(&id(node), number, now, &mut notes);
        }
        sequencer.account(now, &mut notes);
        let open = sequencer
            .streams
            .iter()
            .filter(|stream| !stream.is_accounted(now));
        let expected = if second > 3 { vec![Some(5)] } else { vec![] };
        assert_eq!(
            open.map(|stream| stream.id.node).collect::<Vec<_>>(),
            expected,
            "{second}"
        );
    }
    let now = 6 * SETTLE;
    sequencer.account(now, &mut notes);
    assert!(sequencer.streams.iter().all(|stream| stream.is_accounted(now)));
    assert_eq!(notes.1.iter().map(|loss| loss.lost).sum::<u64>(), 1);
    // A held number is a stray at the end.
    sequencer.observe(&id(7), 9000, now, &mut notes);
    sequencer.account(now, &mut notes);
    sequencer.finish(now, &mut notes);
    assert_eq!(notes.1.iter().map(|loss| loss.reordered).sum::<u64>(), 1);
    // A clock that was set back.
    sequencer.account(0, &mut notes);
    assert!(sequencer.streams.iter().all(|stream| stream.last_seen == 0));
}

/// Numbers that arrive in one second, and that second.
type Batch = (u64, Vec<u32>);

/// The first numbers of a reporter.
fn first_ten() -> Batch {
    (0, (0..10).collect())
}

/// One number again and again.
fn every_20_s(number: u32) -> impl Iterator<Item = Batch> {
    (1..100).map(move |n| (20 * n, vec![number]))
}

#[test]
fn after_a_pause_a_number_that_is_not_ahead_is_of_a_restarted_reporter() {
    const HOUR: u64 = 3600;
    // Lost, reordered, duplicated, restarts, countable.
    type Expected = (u64, u64, u64, u64, bool);
    let cases: [(&str, StreamId, Vec<Batch>, Expected); 13] = [
        (
            "the same numbers",
            V10,
            vec![first_ten(), (HOUR, (0..10).collect())],
            (0, 0, 0, 1, true),
        ),
        (
            "without the first",
            V10,
            vec![first_ten(), (HOUR, (3..10).collect())],
            (0, 0, 0, 1, true),
        ),
        (
            "from the highest on",
            V10,
            vec![first_ten(), (HOUR, (9..20).collect())],
            (0, 0, 1, 0, true),
        ),
        (
            "in reverse",
            V10,
            vec![first_ten(), (HOUR, vec![1, 0, 2, 3])],
            (0, 1, 0, 1, true),
        ),
        (
            "a loss is not hidden",
            V10,
            vec![first_ten(), (HOUR, vec![0, 1, 5, 6])],
            (3, 0, 0, 1, true),
        ),
        (
            "a gap before",
            V10,
            vec![(0, vec![0, 1, 4]), (HOUR, vec![0, 1])],
            (2, 0, 0, 1, true),
        ),
        (
            "it goes on",
            V10,
            vec![first_ten(), (HOUR, (10..20).collect())],
            (0, 0, 0, 0, true),
        ),
        (
            "no pause",
            V10,
            vec![first_ten(), (9, (0..10).collect())],
            (0, 0, 10, 0, true),
        ),
        (
            "the clock was set back",
            V10,
            vec![(HOUR, vec![0, 1]), (0, vec![1, 2])],
            (0, 0, 1, 0, true),
        ),
        (
            "one report each time",
            V10,
            every_20_s(0).take(3).chain([(HOUR, vec![0, 1])]).collect(),
            (0, 0, 0, 3, true),
        ),
        (
            "one far back, 22 bits",
            V20,
            vec![(0, vec![3_000_000, 3_000_001]), (HOUR, vec![0, 1])],
            (0, 0, 0, 1, true),
        ),
        ("always 0", V10, every_20_s(0).collect(), (0, 0, 0, 0, false)),
        (
            "advances, then stands still",
            V10,
            [first_ten()].into_iter().chain(every_20_s(9)).collect(),
            (0, 0, 64, 0, false),
        ),
    ];
    for (name, id, batches, expected) in cases {
        let mut sequencer = Sequencer::new(4, 0);
        for (second, numbers) in batches {
            for number in numbers {
                sequencer.observe(&id, number, second * 1_000_000_000, &mut Notes::default());
            }
        }
        sequencer.finish(u64::MAX, &mut Notes::default());
        let v = sequencer.streams().next().unwrap();
        assert_eq!(
            (v.lost, v.reordered, v.duplicated, v.restarts, v.countable),
            expected,
            "{name}"
        );
    }
}

/// The numbers of two nodes that send by turns.
fn in_turns(first: Option<u32>, second: Option<u32>) -> Vec<(Option<u32>, u32)> {
    (0..20)
        .flat_map(|n| [(first, 11_001 + n), (second, 12_001 + n)])
        .collect()
}

/// The stream of a report 0.5 that names this node.
fn v05(node: Option<u32>) -> StreamId {
    StreamId {
        version: V05,
        node,
        source: [9; 16],
        ..V10
    }
}

#[test]
fn nodes_behind_one_address_are_counted_apart_or_not_at_all() {
    let a = Some(11);
    let b = Some(12);
    let bursts: Vec<_> = (0..40)
        .map(|n| (None, n / 8 * 4 + n % 4 + if n / 4 % 2 == 0 { 5000 } else { 0 }))
        .collect();
    // Node, datagrams, lost if countable, mixed.
    type Seen = (Option<u32>, u64, Option<u64>, bool);
    type Sent = (Option<u32>, u32);
    let cases: [(&str, Vec<Sent>, Vec<Seen>); 7] = [
        (
            "two nodes",
            in_turns(a, b),
            vec![(a, 20, Some(0), false), (b, 20, Some(0), false)],
        ),
        (
            "one of them loses",
            vec![(a, 1), (b, 1), (b, 2), (a, 4), (b, 3)],
            vec![(a, 2, Some(2), false), (b, 3, Some(0), false)],
        ),
        (
            "a node that does not always say its id",
            vec![(None, 1), (a, 2), (None, 3), (None, 4), (a, 6)],
            vec![(None, 5, Some(1), false)],
        ),
        (
            "two nodes, and a report of either",
            [in_turns(a, b), vec![(None, 7)]].concat(),
            vec![(a, 21, None, true), (b, 20, None, true)],
        ),
        (
            "a report of anyone, and two nodes",
            [vec![(None, 7)], in_turns(a, b)].concat(),
            vec![(None, 21, None, true), (b, 20, None, true)],
        ),
        (
            "two that never say",
            in_turns(None, None),
            vec![(None, 40, None, true)],
        ),
        (
            "two that never say, in bursts",
            bursts,
            vec![(None, 40, None, true)],
        ),
    ];
    for (name, numbers, expected) in cases {
        let mut sequencer = Sequencer::new(8, 0);
        let mut notes = Notes::default();
        for (node, number) in numbers {
            sequencer.observe(&v05(node), number, 0, &mut notes);
        }
        sequencer.finish(1, &mut notes);
        let seen: Vec<Seen> = sequencer
            .streams()
            .map(|v| (v.id.node, v.datagrams, v.countable.then_some(v.lost), v.mixed))
            .collect();
        assert_eq!(seen, expected, "{name}");
        let lost: u64 = expected.iter().filter_map(|(_, _, lost, _)| *lost).sum();
        assert_eq!(notes.1.iter().map(|loss| loss.lost).sum::<u64>(), lost, "{name}");
    }
}

/// Datagrams of each stream, and whether its losses are countable.
fn datagrams(sequencer: &Sequencer) -> Vec<(u64, bool)> {
    sequencer.streams().map(|v| (v.datagrams, v.countable)).collect()
}

#[test]
fn runs_of_a_filter_that_does_not_distinguish_nodes_are_not_countable() {
    let mut sequencer = Sequencer::new(8, 0);
    let mut notes = Notes::default();
    sequencer.observe(&v05(Some(11)), 1, 0, &mut notes);
    sequencer.receive_run(
        &v05(None),
        Run {
            last: 9,
            count: 8,
            same: false,
        },
        0,
        &mut notes,
    );
    assert_eq!(datagrams(&sequencer), [(9, true)]);
    sequencer.observe(&v05(Some(12)), 1000, 0, &mut notes);
    sequencer.receive_run(
        &v05(None),
        Run {
            last: 1500,
            count: 500,
            same: false,
        },
        0,
        &mut notes,
    );
    sequencer.finish(1, &mut notes);
    assert_eq!(
        (datagrams(&sequencer), notes.1),
        (vec![(509, false), (1, false)], vec![])
    );
}

#[test]
fn streams_are_apart_by_what_identifies_them() {
    let mut sequencer = Sequencer::new(64, 9);
    let v05 = |last: u8| StreamId {
        version: 5,
        node: None,
        source: [last; 16],
        ..V10
    };
    let ids = [
        V10,
        V20,
        StreamId { hw_id: 2, ..V10 },
        StreamId { listener: 1, ..V10 },
        v05(1),
        v05(2),
        V10,
        v05(1),
    ];
    for (at, id) in ids.iter().enumerate() {
        sequencer.observe(id, at as u32 * 1000, 0, &mut Notes::default());
    }
    sequencer.observe(
        &StreamId {
            source: [9; 16],
            ..V10
        },
        6001,
        0,
        &mut Notes::default(),
    );
    let seen: Vec<_> = sequencer.streams().map(|v| (v.id, v.datagrams)).collect();
    assert_eq!(
        seen,
        [
            (V10, 3),
            (V20, 1),
            (ids[2], 1),
            (ids[3], 1),
            (v05(1), 2),
            (v05(2), 1)
        ]
    );
}

#[test]
fn losses_of_evicted_streams_stay_counted() {
    let mut sequencer = Sequencer::new(4, 9);
    for node in 0..1000 {
        for n in [1, 2, 5] {
            let id = StreamId {
                node: Some(node),
                ..V10
            };
            sequencer.observe(&id, n, u64::from(node) * 100 * SETTLE, &mut Notes::default());
        }
    }
    let events = sequencer.finish(1, &mut Notes::default());
    let table = sequencer.table();
    assert_eq!(events, table.used + table.evicted);
    let mut losses: Losses = sequencer.streams().map(|view| view.losses()).sum();
    losses += sequencer.evicted_losses();
    assert!(table.evicted > 0);
    let streams = table.used + table.evicted;
    assert_eq!(
        losses,
        Losses {
            lost: 2 * streams,
            unconfirmed: 0,
            datagrams: 3 * streams
        }
    );
}

#[test]
fn a_single_stream_is_not_evicted_either() {
    let mut sequencer = Sequencer::new(4, 9);
    for n in 0..100 {
        sequencer.observe(&V10, n, 0, &mut Notes::default());
    }
    for n in 0..100 {
        sequencer.observe(
            &StreamId {
                node: Some(n + 100),
                ..V10
            },
            n,
            0,
            &mut Notes::default(),
        );
    }
    assert_eq!(sequencer.streams().filter(|v| v.id == V10).count(), 1);
}

#[test]
fn a_flood_of_streams_stays_bounded_and_evicts_no_active_stream() {
    let mut sequencer = Sequencer::new(32, 9);
    let busy = StreamId {
        node: Some(u32::MAX),
        ..V10
    };
    for n in 0..100_000 {
        sequencer.observe(&StreamId { node: Some(n), ..V10 }, n, 0, &mut Notes::default());
        sequencer.observe(&busy, n, 0, &mut Notes::default());
    }
    let view = sequencer.streams().find(|v| v.id == busy).unwrap();
    assert_eq!((view.datagrams, view.lost), (100_000, 0));
    let table = sequencer.table();
    assert!(
        table.used <= 32 && table.used + table.evicted + table.refused == 100_001,
        "{table:?}"
    );
}

/// A stream with the numbers that it received.
struct Observed {
    sequencer: Sequencer,
    notes: Notes,
}

impl Observed {
    fn new() -> Self {
        Self {
            sequencer: Sequencer::new(4, 0),
            notes: Notes::default(),
        }
    }

    /// Numbers of 32 bits, as those of `id`.
    fn observe(&mut self, id: &StreamId, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            self.sequencer
                .observe(id, number & (u32::MAX >> (32 - id.bits())), 1, &mut self.notes);
        }
    }

    /// Lost, unconfirmed.
    fn losses(&self) -> (u64, u64) {
        let view = self.sequencer.streams().next().unwrap();
        (view.lost, view.unconfirmed)
    }

    /// Numbers that did not arrive, confirmed or not.
    fn absent(&self) -> u64 {
        self.notes.0.iter().fold(0, |absent, note| match *note {
            SequenceEventKind::Lost { count, .. } => absent + u64::from(count),
            SequenceEventKind::Recovered { count, .. } => absent - u64::from(count),
            _ => absent,
        })
    }
}

#[test]
fn forged_numbers_prove_few_losses() {
    const FORGED: u64 = 20_000;
    for (id, run) in [(V10, 1), (V20, 1), (V10, 20), (V20, 20)] {
        for honest in [0, 1, 100] {
            let mut seen = Observed::new();
            let mut random = crate::hash::Jitter::new(9);
            let mut next = 1000;
            for _ in 0..FORGED / u64::from(run) {
                let forged = random.around(u32::MAX / 2);
                seen.observe(&id, (0..run).map(|more| forged.wrapping_add(more)));
                seen.observe(&id, next..next + honest);
                next += honest;
            }
            let (lost, unconfirmed) = seen.losses();
            let view = seen.sequencer.streams().next().unwrap();
            let case = format!("{id:?} {run} {honest}: {view:?}");
            assert!(
                lost < 128 * FORGED + MAX_PRIOR_LOSSES.cast_unsigned() * FORGED * u64::from(honest > 1),
                "{case}"
            );
            assert!(lost <= 128 * view.datagrams, "{case}");
            assert_eq!(lost + unconfirmed, seen.absent(), "{case}");
        }
    }
}

#[test]
fn an_outage_is_confirmed_by_what_follows() {
    const OUTAGE: u32 = 1_000_000;
    for id in [V10, V20] {
        let mut seen = Observed::new();
        seen.observe(&id, 0..5000);
        seen.observe(&id, 5000 + OUTAGE..5000 + OUTAGE + 200);
        let believed = MAX_PRIOR_LOSSES.cast_unsigned() + 200 * 128;
        assert_eq!(seen.losses(), (believed, u64::from(OUTAGE) - believed));
        seen.sequencer.account(1, &mut seen.notes);
        seen.observe(&id, 5200 + OUTAGE..5000 + OUTAGE + 7796);
        assert_eq!(seen.losses(), (1_000_000 - 64, 64));
        seen.observe(&id, [5000 + OUTAGE + 7796]);
        assert_eq!(seen.losses(), (1_000_000, 0));
        // Each accounting reports those that were confirmed since the one before.
        seen.sequencer.account(1, &mut seen.notes);
        let reported: Vec<_> = seen.notes.1.iter().map(|loss| loss.lost).collect();
        assert_eq!(reported, [believed, 1_000_000 - believed]);
        let losses = seen.sequencer.streams().map(|view| view.losses()).sum();
        assert_eq!(
            Losses {
                lost: 1_000_000,
                unconfirmed: 0,
                datagrams: 12_797
            },
            losses
        );
    }
}

#[test]
fn traffic_does_not_confirm_the_jumps_that_were_forged_into_it() {
    const FIRST: u32 = 100_000;
    // The traffic continues with a restart, or with a jump ahead: near, or modulo the sequence space.
    let cases: [(&[u32], u64); 4] = [
        (&[1 << 30], 0),
        (&[1 << 30, 1 << 31, 3 << 30], 3 << 30),
        (&[60_000_u32.wrapping_neg()], 0),
        (&[3 << 30], 0),
    ];
    for (jumps, absent) in cases {
        let mut seen = Observed::new();
        seen.observe(&V10, FIRST..FIRST + 5000);
        for jump in jumps {
            seen.observe(&V10, (5000..5020).map(|more| (FIRST + more).wrapping_add(*jump)));
        }
        seen.observe(&V10, FIRST + 5000..FIRST + 100_000);
        let (lost, unconfirmed) = seen.losses();
        let forged = 20 * jumps.len() as u64;
        assert!(
            lost <= MAX_PRIOR_LOSSES.cast_unsigned() + 128 * forged,
            "{jumps:?}: {lost}"
        );
        assert!(
            lost + unconfirmed + 10 + u64::from(WINDOW) > absent,
            "{jumps:?}: {lost} {unconfirmed}"
        );
    }
}

#[test]
fn lost_and_unconfirmed_are_what_never_came_for_any_numbers() {
    let mut random = crate::hash::Jitter::new(5);
    for round in 0..300_u32 {
        let id = if round % 2 == 0 { V10 } else { V20 };
        let (mut seen, mut next, mut before) = (Observed::new(), random.around(u32::MAX / 2), 0);
        for _ in 0..200 {
            let step = random.around(12);
            match step {
                0..=6 => next = next.wrapping_add(random.around(20)).wrapping_sub(10),
                7..=12 => next = next.wrapping_add(random.around(400)),
                13..=15 => next = next.wrapping_add(random.around(200_000)),
                16 => next = random.around(u32::MAX / 2),
                _ => {}
            }
            let many = random.around(100);
            seen.observe(&id, (0..many).map(|more| next.wrapping_add(more)));
            next = next.wrapping_add(many);
            if step == 17 {
                seen.sequencer.finish(1, &mut seen.notes);
            }
            let (lost, unconfirmed) = seen.losses();
            let view = seen.sequencer.streams().next().unwrap();
            let undecided = seen.sequencer.streams[0].missing_since_restart();
            assert_eq!(lost + unconfirmed + undecided, seen.absent(), "{round}: {view:?}");
            assert!(lost <= 128 * view.datagrams, "{round}: {view:?}");
            assert!(lost + view.recovered >= before, "{round}: {before} {view:?}");
            before = lost + view.recovered;
        }
        // The reported losses are the confirmed ones.
        seen.sequencer.finish(1, &mut seen.notes);
        assert_eq!(
            seen.notes.1.iter().map(|loss| loss.lost).sum::<u64>(),
            seen.losses().0
        );
    }
}

/// The ids of the loss events of a collector that receives numbers `later` than another, with the time of the second in which it is.
fn loss_ids(later: Nanos) -> Vec<u64> {
    #[derive(Default)]
    struct Ids(Vec<u64>);
    impl Output for Ids {
        fn event(&mut self, event: &crate::event::Event, _: &[u32]) {
            self.0.push(event.id);
        }
    }
    let (mut sequencer, mut ids) = (Sequencer::new(4, later), Ids::default());
    let mut number = 0;
    for second in 1..20_u32 {
        for _ in 0..200 {
            // Some losses, and an outage that is confirmed little by little.
            number += match number {
                1000 => 100_000,
                _ if number % 50 == 0 => 3,
                _ => 1,
            };
            sequencer.observe(&V10, number, u64::from(second) * SETTLE / 2 + later, &mut ids);
        }
        sequencer.account(u64::from(second) * SETTLE / 2 + 2 * later, &mut ids);
    }
    ids.0
}

#[test]
fn two_collectors_that_receive_the_same_reports_give_a_loss_the_same_id() {
    let ids = loss_ids(0);
    assert_eq!(ids, loss_ids(300_000));
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!((ids.len(), distinct.len()), (19, 19));
}
