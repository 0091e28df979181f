use collector::event::Basis;

use super::*;

fn rules() -> RuleNames {
    RuleNames::from([])
}

fn event(kind: Kind, id: u64) -> Event {
    Event {
        ts: 1,
        id,
        kind,
        metric: None,
        flow: None,
        node: None,
        interface: None,
        queue: None,
        value: None,
        previous: None,
        threshold: None,
        rule: None,
        reason: None,
        basis: Basis::Measured,
    }
}

fn row(id: u64) -> FlowRow {
    FlowRow {
        flow: wire::FlowKey::of_id(id as u32),
        flow_latency: None,
        basis: Basis::Measured,
        first_seen: 0,
        last_seen: 0,
        reports: id,
    }
}

/// Bytes of an event without a path.
fn event_bytes() -> usize {
    Record::Event(1, &event(Kind::Change, 0), &[]).bytes()
}

/// All records in the queue: ids of events, and reports of flow rows.
fn drain(backlog: &mut Backlog) -> (Vec<u64>, Vec<u64>) {
    let (mut events, mut rows) = (Vec::new(), Vec::new());
    while let Some(records) = backlog.pop() {
        let RecordBatch::Results(batch, _) = records else {
            continue;
        };
        assert_eq!(batch.refused(), 0);
        events.extend(batch.events().map(|(event, _)| event.id));
        rows.extend(batch.flows().map(|(row, _)| row.reports));
    }
    assert_eq!(
        (
            backlog.bytes(),
            backlog.changes.by_sender.len(),
            backlog.routine.by_sender.len()
        ),
        (0, 0, 0)
    );
    (events, rows)
}

#[test]
fn a_sender_that_floods_takes_nothing_from_another() {
    let (limit, rules) = (1 << 20, rules());
    let mut backlog = Backlog::new(limit);
    let (mut offered, mut honest, mut found) = (0, 0, Vec::new());
    // The reader stalls for 20 rounds, takes all, and stalls again. A round: 1,000 events of the flood, 5 of the other.
    for round in 0..60_u64 {
        for index in 0..1_000 {
            backlog.offer(
                Record::Event(7, &event(Kind::Change, 1 << 32 | index), &[1, 2, 3]),
                &rules,
            );
            assert!(backlog.bytes() <= limit);
        }
        for _ in 0..5 {
            backlog.offer(Record::Event(8, &event(Kind::Change, honest), &[]), &rules);
            honest += 1;
        }
        offered += 1_005;
        if round % 20 == 19 {
            let (events, _) = drain(&mut backlog);
            found.extend(events);
        }
    }
    let of_honest: Vec<u64> = found.iter().copied().filter(|id| *id < 1 << 32).collect();
    assert_eq!(of_honest, (0..honest).collect::<Vec<_>>(), "all, and in order");
    let shed = backlog.shed();
    assert!(
        shed.share > 40_000 && shed.full == 0 && shed.displaced == 0,
        "{shed:?}"
    );
    assert_eq!(offered, found.len() as u64 + shed.sum());
}

#[test]
fn the_bound_in_bytes_holds_exactly() {
    let (bytes, rules) = (event_bytes(), rules());
    // Room for eight events, of which every sender may have two.
    let mut backlog = Backlog::new(bytes * 8);
    for sender in 1..=10 {
        backlog.offer(
            Record::Event(sender, &event(Kind::New, u64::from(sender)), &[]),
            &rules,
        );
    }
    assert_eq!(
        (backlog.bytes(), backlog.shed()),
        (
            bytes * 8,
            Shed {
                full: 2,
                ..Shed::default()
            }
        )
    );
    assert_eq!(drain(&mut backlog).0, (1..=8).collect::<Vec<_>>());
    // One byte less has room for seven.
    let mut backlog = Backlog::new(bytes * 8 - 1);
    for sender in 1..=8 {
        backlog.offer(Record::Event(sender, &event(Kind::New, 0), &[]), &rules);
    }
    assert_eq!((backlog.bytes(), backlog.shed().full), (bytes * 7, 1));
    // A path counts.
    assert_eq!(
        Record::Event(1, &event(Kind::New, 0), &[1, 2, 3]).bytes(),
        bytes + 12
    );
}

#[test]
fn changes_displace_routine_records() {
    let rules = rules();
    let mut backlog = Backlog::new(1 << 20);
    let mut rows = 0;
    while backlog.shed().full == 0 {
        backlog.offer(Record::Flow(&row(rows), &[]), &rules);
        rows += 1;
    }
    let latest = event(Kind::Latest, u64::MAX);
    backlog.offer(Record::Event(9, &latest, &[]), &rules);
    for id in 0..2_000 {
        backlog.offer(Record::Event(9, &event(Kind::PathChange, id), &[]), &rules);
        assert!(backlog.bytes() <= 1 << 20);
    }
    let shed = backlog.shed();
    assert_eq!((shed.full, shed.share), (2, 0), "one row, and one latest value");
    let (events, kept) = drain(&mut backlog);
    assert_eq!(events, (0..2_000).collect::<Vec<_>>());
    assert_eq!(kept.len() as u64 + shed.displaced + 1, rows);
    assert!(
        kept.into_iter().eq(0..rows - 1 - shed.displaced),
        "the newest made room"
    );
}

#[test]
fn every_kind_of_record_comes_out_as_it_went_in() {
    let rules = RuleNames::from(["slow".to_owned()]);
    let mut batch = Batch::with_capacity(64);
    batch.sender(3);
    batch.event(&event(Kind::New, 5), &[1, 2]);
    let drop = Drop {
        ts: 1,
        id: 2,
        flow: None,
        tunnel: None,
        node: Some(3),
        ingress_if: None,
        egress_if: None,
        queue: None,
        reason: Some(4),
    };
    batch.drop_report(&drop);
    let loss = Loss {
        ts: 1,
        node: None,
        source: [7; 16],
        hw_id: 0,
        lost: 1,
        reordered: 0,
        duplicated: 0,
    };
    batch.loss(&loss);
    batch.flow(&row(9), &[4]);
    let mut backlog = Backlog::new(1 << 20);
    records(&batch).for_each(|record| backlog.offer(record, &rules));
    assert_eq!(backlog.changes.by_sender.len(), 2);
    let Some(RecordBatch::Results(out, names)) = backlog.pop() else {
        panic!("nothing")
    };
    assert!(Arc::ptr_eq(&names, &rules));
    assert_eq!(
        out.events_by_sender().collect::<Vec<_>>(),
        [(3, &event(Kind::New, 5), &[1, 2][..])]
    );
    assert_eq!(out.drops_by_sender().collect::<Vec<_>>(), [(3, &drop)]);
    assert_eq!(out.losses(), [loss]);
    let Some(RecordBatch::Results(out, _)) = backlog.pop() else {
        panic!("nothing")
    };
    assert_eq!(out.flows().collect::<Vec<_>>(), [(&row(9), &[4][..])]);
    assert!(backlog.pop().is_none());
}
