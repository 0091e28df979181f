//! Sums of groups whose truth is known.

use filter::View;
use wire::FlowKey;

use super::*;
use crate::spans::{SeriesKey, SpanSum};
use crate::traffic::{EventGroup, Tally};

const START: u64 = 1_795_269_600 * SECOND;

fn query(measure: Measure, by: &[Dimension], top: usize) -> TrafficQuery {
    TrafficQuery {
        span: (START, START + 10 * MINUTE),
        now: START + 3_600 * SECOND,
        columns: 100,
        measure,
        by: by.to_vec(),
        prefixes: Prefixes { v4: 24, v6: 64 },
        top,
        condition: None,
        labels: Arc::default(),
    }
}

fn flow(number: u32) -> FlowKey {
    let [_, b, c, d] = number.to_be_bytes();
    FlowKey::v4([10, b, c, d], [10, 200, 0, 1], Some((5_000, 443)), 6)
}

fn sum(count: u64, latency: u64) -> SpanSum {
    SpanSum {
        count,
        min: latency,
        max: latency,
        sum: count * latency,
        first: 0,
        last: 0,
    }
}

/// Fills a minute of each flow with as many reports as its number says.
fn fill(grouping: &mut Grouping, flows: impl Iterator<Item = u32>) {
    grouping.reset();
    for number in flows {
        let flow_number = grouping.flow(&flow(number), &[1, 2, 1 + number % 3]);
        let column = number as usize % 10;
        grouping.seen(column);
        grouping.add(flow_number, column, &sum(number.into(), 100));
    }
}

fn counts(values: &[Option<Sums>]) -> Vec<Option<u64>> {
    values.iter().map(|sums| sums.map(|sums| sums.count)).collect()
}

fn asked(query: TrafficQuery, flows: std::ops::Range<u32>) -> Traffic {
    let columns = Columns::new(query.span.0, query.span.1, MINUTE);
    let mut grouping = Grouping::new(Arc::new(query), columns, HashMap::new());
    loop {
        fill(&mut grouping, flows.clone());
        if !grouping.begin_second_pass() {
            return grouping.answer(Counted::default());
        }
    }
}

fn count_at(values: &[Option<Sums>], column: usize) -> u64 {
    values[column].map_or(0, |sums| sums.count)
}

#[test]
fn what_is_in_is_in_the_greatest_groups_or_in_the_others() {
    for top in [1, 3, 50] {
        let traffic = asked(query(Measure::Reports, &[Dimension::Src], top), 1..21);
        assert_eq!(traffic.groups.len(), top.min(20));
        assert_eq!(traffic.other_groups, 20 - top.min(20) as u64);
        let first = &traffic.groups[0];
        assert_eq!(first.parts, [Part::Address("10.0.0.20".parse().unwrap())]);
        let mut expected = vec![Some(0); 10];
        expected[0] = Some(20);
        assert_eq!(counts(&first.sums), expected);
        for column in 0..10 {
            let parts: u64 = traffic
                .groups
                .iter()
                .map(|group| count_at(&group.sums, column))
                .sum();
            assert_eq!(
                parts + count_at(&traffic.others, column),
                count_at(&traffic.total, column)
            );
        }
        assert_eq!(Sums::total(&traffic.total).count, (1..21).sum::<u64>());
    }
}

#[test]
fn more_groups_than_there_is_room_for_are_read_once_more_and_are_exact() {
    // With forty columns there is room for some 100,000 groups.
    let flows = 1..120_001;
    let query = query(Measure::Reports, &[Dimension::Flow], 5);
    let traffic = asked(
        TrafficQuery {
            span: (START, START + 40 * MINUTE),
            ..query
        },
        flows.clone(),
    );
    let greatest: Vec<u64> = traffic
        .groups
        .iter()
        .map(|group| Sums::total(&group.sums).count)
        .collect();
    assert_eq!(greatest, [120_000, 119_999, 119_998, 119_997, 119_996]);
    let all: u64 = flows.map(u64::from).sum();
    let others = Sums::total(&traffic.others).count;
    assert_eq!(
        (traffic.other_groups, others),
        (119_995, all - greatest.iter().sum::<u64>())
    );
    assert_eq!(Sums::total(&traffic.total).count, all);
    assert!(!traffic.truncated);
}

#[test]
fn beyond_the_most_groups_the_answer_says_so_and_loses_nothing() {
    let traffic = asked(query(Measure::Reports, &[Dimension::Flow], 2), 1..200_101);
    let parts: u64 = traffic
        .groups
        .iter()
        .map(|group| Sums::total(&group.sums).count)
        .sum();
    assert_eq!(
        parts + Sums::total(&traffic.others).count,
        (1..200_101).sum::<u64>()
    );
    assert!(traffic.truncated);
}

#[test]
fn a_report_is_in_every_node_and_link_of_its_path_and_once_in_the_total() {
    let node = asked(query(Measure::Reports, &[Dimension::Node], 10), 1..4);
    let found: Vec<_> = node
        .groups
        .iter()
        .map(|group| (group.parts[0].to_string(), Sums::total(&group.sums).count))
        .collect();
    // Paths 1>2>2, 1>2>3, 1>2>1 with 1, 2 and 3 reports.
    assert_eq!(found, [("1".into(), 6), ("2".into(), 6), ("3".into(), 2)]);
    assert_eq!(Sums::total(&node.total).count, 6);
    let both = query(Measure::Reports, &[Dimension::Link, Dimension::Port], 10);
    assert!(both.overlaps());
    let both = asked(both, 1..4);
    let found: Vec<_> = both
        .groups
        .iter()
        .map(|group| {
            (
                group
                    .parts
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(" "),
                Sums::total(&group.sums).count,
            )
        })
        .collect();
    let expected = [("1>2 443", 6), ("2>1 443", 3), ("2>3 443", 2), ("2>2 443", 1)];
    assert_eq!(found, expected.map(|(name, count)| (name.to_owned(), count)));
}

#[test]
fn nothing_is_known_of_a_minute_that_may_still_be_written_and_gaps_are_no_zeros() {
    let mut query = query(Measure::Reports, &[Dimension::Proto], 3);
    // The fifth minute has ended, but not long ago.
    query.now = START + 5 * MINUTE + MAX_REPORT_DELAY - 1;
    let traffic = asked(query, 1..8);
    let expected = vec![
        None,
        Some(1),
        Some(2),
        Some(3),
        None,
        None,
        None,
        None,
        None,
        None,
    ];
    assert_eq!(
        counts(&traffic.total),
        expected,
        "nothing was stored in the first minute"
    );
    assert_eq!(traffic.groups[0].parts, [Part::Proto(6)]);
    let cut = Counted {
        from: Some(START + 2 * MINUTE),
        truncated: false,
    };
    let columns = Columns::new(START, START + 10 * MINUTE, MINUTE);
    let query = super::tests::query(Measure::Reports, &[Dimension::Src], 3);
    let mut grouping = Grouping::new(Arc::new(query), columns, HashMap::new());
    fill(&mut grouping, 1..5);
    let traffic = grouping.answer(cut);
    assert_eq!(
        counts(&traffic.total)[..5],
        [None, None, Some(2), Some(3), Some(4)]
    );
    assert_eq!(traffic.groups.len(), 3, "what was not counted is no group");
}

/// A query about the rows that a filter selects.
fn filtered(measure: Measure, by: &[Dimension], text: &str) -> TrafficQuery {
    let view = if measure.source() == Source::Flows {
        View::Flows
    } else {
        View::Events
    };
    let condition = Filter::parse(text, view, &filter::no_names).unwrap();
    TrafficQuery {
        condition: Some(Arc::new(condition)),
        ..query(measure, by, 10)
    }
}

fn event_group(kind: collector::Kind, node: u32) -> EventGroup {
    EventGroup {
        kind: Some(kind),
        node: Some(node),
        queue: Some(1),
        ..EventGroup::default()
    }
}

#[test]
fn a_filter_selects_flows_events_and_queues() {
    let traffic = asked(
        filtered(
            Measure::Reports,
            &[Dimension::Src],
            "src == 10.0.0.2 or path ~ 2>3",
        ),
        1..9,
    );
    let found: Vec<String> = traffic
        .groups
        .iter()
        .map(|group| group.parts[0].to_string())
        .collect();
    assert_eq!(found, ["10.0.0.8", "10.0.0.5", "10.0.0.2"]);
    assert_eq!(Sums::total(&traffic.total).count, 15);

    let query = filtered(Measure::Events, &[Dimension::Queue], "kind == drop and node == 7");
    let columns = Columns::new(query.span.0, query.span.1, MINUTE);
    let mut grouping = Grouping::new(Arc::new(query), columns, HashMap::new());
    for (kind, node, count) in [
        (collector::Kind::Drop, 7, 5),
        (collector::Kind::Change, 7, 9),
        (collector::Kind::Drop, 8, 9),
    ] {
        let number = grouping.event(&event_group(kind, node));
        grouping.add(
            number,
            0,
            &SpanSum {
                min: u64::MAX,
                max: 0,
                ..sum(count, 0)
            },
        );
    }
    grouping.seen(0);
    let traffic = grouping.answer(Counted::default());
    assert_eq!(
        traffic
            .groups
            .iter()
            .map(|group| group.parts[0].to_string())
            .collect::<Vec<_>>(),
        ["7.1"]
    );
    assert_eq!(Sums::total(&traffic.total).count, 5);
}

#[test]
fn what_values_do_not_have_is_named() {
    let occupancy = Measure::Of(Metric::QueueOccupancy);
    assert_eq!(
        filtered(occupancy, &[Dimension::Queue, Dimension::Node], "node == 1").lacks(),
        [""; 0]
    );
    assert_eq!(
        filtered(occupancy, &[Dimension::Src], "src == 10.0.0.1").lacks(),
        ["src"]
    );
    assert_eq!(
        filtered(Measure::Reports, &[Dimension::Queue], "hop_latency > 1us").lacks(),
        ["queue", "hop_latency"]
    );
    assert_eq!(
        filtered(Measure::Events, &[Dimension::Link], "").lacks(),
        ["link"]
    );
}

#[test]
fn a_group_has_a_filter_that_selects_it_alone() {
    let labels: BTreeMap<u32, Vec<String>> = [
        (1, vec!["leaf".to_owned()]),
        (2, vec!["spine".to_owned()]),
        (3, vec!["leaf".to_owned()]),
    ]
    .into();
    let context = dimension::PartContext {
        prefixes: Prefixes { v4: 24, v6: 64 },
        labels: &labels,
    };
    let flows = [
        (flow(1), vec![1, 2, 3]),
        (
            FlowKey::v4([10, 9, 9, 9], [10, 200, 0, 2], Some((80, 6_000)), 17),
            vec![1, 2],
        ),
        (FlowKey::v6([1; 16], [2; 16], None, 58), vec![4, 5]),
        (FlowKey::of_id(7), vec![]),
    ];
    let of_flows = Dimension::ALL
        .into_iter()
        .filter(|dimension| Measure::Reports.has_dimension(*dimension));
    for dimension in of_flows {
        for (flow, path) in &flows {
            for part in dimension.flow_parts(flow, path, context) {
                let Some(text) = dimension.filter(&part, &labels) else {
                    assert_eq!(part, Part::Unknown, "{dimension:?}");
                    continue;
                };
                let filter = Filter::parse(&text, View::Flows, &filter::no_names)
                    .unwrap_or_else(|fault| panic!("{text}: {fault}"));
                for (other, path) in &flows {
                    let facts = filter::Facts {
                        flow: Some(other),
                        path,
                        ..filter::Facts::default()
                    };
                    let is_in = dimension.flow_parts(other, path, context).contains(&part);
                    // Either port of a flow may be the one that a filter asks for.
                    if dimension != Dimension::Port {
                        assert_eq!(filter.matches(&facts), is_in, "{text} and {other}");
                    }
                }
            }
        }
    }
    let event = EventGroup {
        kind: Some(collector::Kind::Drop),
        metric: Some(Metric::HopLatency),
        node: Some(3),
        queue: Some(2),
        interface: Some(9),
        rule: Some("too slow".to_owned()),
        reason: Some(71),
        ..EventGroup::default()
    };
    let expected = [
        (Dimension::Node, "node == 3"),
        (Dimension::Queue, "node == 3 and interface == 9 and queue == 2"),
        (Dimension::Interface, "node == 3 and interface == 9"),
        (Dimension::Kind, "kind == drop"),
        (Dimension::Metric, "metric == hop_latency"),
        (Dimension::Rule, "rule == \"too slow\""),
        (Dimension::Reason, "reason == 71"),
        (Dimension::Label, "node in (1, 3)"),
    ];
    for (dimension, expected) in expected {
        let part = dimension.event_parts(&event, context).remove(0);
        let text = dimension.filter(&part, &labels).unwrap();
        assert_eq!(text, expected);
        let filter = Filter::parse(&text, View::Events, &filter::no_names).unwrap();
        assert!(filter.matches(&crate::facts::from_group(&event)), "{text}");
    }
    // Queue ids may be unique within a port only.
    for (interface, text) in [(None, "3.2"), (Some(7), "3/7.2")] {
        let key = SeriesKey {
            metric: Metric::QueueOccupancy as u8,
            node: 3,
            interface,
            queue: Some(2),
        };
        let parts = Dimension::Queue.series_parts(&key, context);
        assert_eq!(parts, [Part::Queue(3, interface, Some(2))]);
        assert_eq!(parts[0].to_string(), text);
    }
}

fn prefix_text(v4: u8, v6: u8, flow: &FlowKey) -> String {
    let labels = BTreeMap::new();
    let context = dimension::PartContext {
        prefixes: Prefixes { v4, v6 },
        labels: &labels,
    };
    Dimension::SrcPrefix
        .flow_parts(flow, &[], context)
        .remove(0)
        .to_string()
}

#[test]
fn prefixes_are_as_long_as_wanted() {
    let v4 = FlowKey::v4([10, 1, 255, 3], [0; 4], None, 6);
    let v6 = FlowKey::v6(
        [0x20, 1, 0xd, 0xb8, 0xff, 0xff, 0xff, 0xff, 9, 9, 9, 9, 9, 9, 9, 9],
        [0; 16],
        None,
        6,
    );
    assert_eq!(
        [0, 8, 23, 24, 32].map(|length| prefix_text(length, 64, &v4)),
        [
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.1.254.0/23",
            "10.1.255.0/24",
            "10.1.255.3/32"
        ]
    );
    assert_eq!(
        [0, 32, 64].map(|length| prefix_text(24, length, &v6)),
        ["::/0", "2001:db8::/32", "2001:db8:ffff:ffff::/64"]
    );
}

fn column_seconds(seconds: u64, columns: u64) -> u64 {
    let span = (START, START + seconds * SECOND);
    TrafficQuery {
        span,
        columns,
        ..query(Measure::Events, &[Dimension::Node], 1)
    }
    .column()
        / SECOND
}

fn node_column_seconds(seconds: u64) -> u64 {
    let span = (START, START + seconds * SECOND);
    let query = query(Measure::Of(Metric::HopLatency), &[Dimension::Node], 1);
    TrafficQuery {
        span,
        columns: 180,
        ..query
    }
    .column()
        / SECOND
}

#[test]
fn the_column_is_as_long_as_the_range_needs() {
    assert_eq!(
        [
            column_seconds(60, 180),
            column_seconds(300, 180),
            column_seconds(900, 180)
        ],
        [1, 2, 10]
    );
    assert_eq!(
        [
            column_seconds(3_600, 180),
            column_seconds(86_400, 180),
            column_seconds(7 * 86_400, 180)
        ],
        [30, 600, 3_600]
    );
    assert_eq!(
        [column_seconds(60, 1), column_seconds(400 * 86_400, 10)],
        [60, 45 * 86_400]
    );
    assert_eq!(
        [
            node_column_seconds(900),
            node_column_seconds(1_800),
            node_column_seconds(1_801),
            node_column_seconds(86_400)
        ],
        [10, 15, 60, 600]
    );
}
