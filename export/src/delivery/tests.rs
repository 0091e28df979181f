use super::*;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct One(u64);

impl Keyed for One {
    fn key(&self) -> u64 {
        self.0
    }
}

const SECOND: Nanos = 1_000_000_000;
const AT_ONCE: Settings = Settings {
    records: 8,
    bytes: 1000,
    linger: 0,
    poll: SECOND,
    timeout: 10 * SECOND,
    lanes: 1,
    announce: false,
};

fn at(row: u64) -> Position {
    Position { file: 1, row }
}

fn page(rows: std::ops::Range<u64>, is_last: bool) -> Page<One> {
    let records: Vec<One> = rows.clone().map(One).collect();
    Page {
        bytes: records.len(),
        records,
        end: at(rows.end),
        expired: 0,
        left_out: 0,
        is_last,
    }
}

fn from(row: u64) -> Cursor {
    Cursor {
        settled: at(row),
        batch_end: None,
    }
}

/// A delivery that has read these rows.
fn begun(settings: Settings, rows: std::ops::Range<u64>) -> Delivery<One> {
    let mut delivery = Delivery::new(settings, from(rows.start), 1);
    let read = Action::Read {
        from: at(rows.start),
        until: None,
        records: 8,
        bytes: 1000,
    };
    assert_eq!(delivery.poll(0), Some(read));
    delivery.page(page(rows, true), 0);
    delivery
}

/// The records of the next request.
fn sent(delivery: &mut Delivery<One>, now: Nanos) -> Option<(RequestId, Vec<usize>)> {
    match delivery.poll(now) {
        Some(Action::Send { request, records }) => Some((request, records)),
        None => None,
        other => panic!("{other:?}"),
    }
}

fn refused() -> Outcome {
    Outcome::Refused {
        reason: "no such field `x`\nat line 1".to_owned(),
    }
}

#[test]
fn a_batch_is_read_sent_and_settled() {
    let mut delivery = begun(AT_ONCE, 0..3);
    assert_eq!(sent(&mut delivery, 0), Some((1, vec![0, 1, 2])));
    assert_eq!(delivery.poll(0), None);
    delivery.answer(1, Outcome::DONE, 5);
    assert_eq!(delivery.poll(5), Some(Action::Save(from(3))));
    assert_eq!((delivery.poll(5), delivery.cursor()), (None, from(0)));
    delivery.saved(Ok(()), 6);
    assert_eq!(delivery.cursor(), from(3));
    assert!(matches!(delivery.poll(6), Some(Action::Read { .. })));
    delivery.page(page(3..3, true), 7);
    assert_eq!((delivery.poll(7), delivery.wake_at()), (None, Some(7 + SECOND)));
    delivery.wake(8);
    assert!(matches!(delivery.poll(8), Some(Action::Read { .. })));
    let expected = Ledger {
        read: 3,
        delivered: 3,
        requests: 1,
        settled: 1,
        ..Ledger::default()
    };
    assert_eq!((delivery.ledger(), delivery.last_success()), (expected, Some(5)));
    assert_eq!(delivery.notices(), []);
}

#[test]
fn the_end_of_a_batch_is_saved_before_it_is_sent() {
    let settings = Settings {
        announce: true,
        ..AT_ONCE
    };
    let mut delivery = begun(settings, 4..7);
    let announced = Cursor {
        settled: at(4),
        batch_end: Some(at(7)),
    };
    assert_eq!(delivery.poll(0), Some(Action::Save(announced)));
    assert_eq!(delivery.poll(0), None);
    delivery.saved(Err("no space left on device".to_owned()), 1);
    assert_eq!(delivery.poll(1), None);
    assert!(
        delivery
            .last_error()
            .unwrap()
            .ends_with("nothing more is sent: no space left on device")
    );
    let later = delivery.wake_at().unwrap();
    assert_eq!(delivery.poll(later), Some(Action::Save(announced)));
    delivery.saved(Ok(()), later);
    assert_eq!(sent(&mut delivery, later), Some((1, vec![0, 1, 2])));

    // After a crash: the same batch, though there are more records now, and no further save.
    let mut delivery = Delivery::new(settings, announced, 2);
    let read = Action::Read {
        from: at(4),
        until: Some(at(7)),
        records: 8,
        bytes: 1000,
    };
    assert_eq!(delivery.poll(9), Some(read));
    delivery.page(page(4..7, false), 9);
    assert_eq!(sent(&mut delivery, 9), Some((1, vec![0, 1, 2])));
}

fn batch_cursor(settled: u64, end: u64) -> Cursor {
    Cursor {
        settled: at(settled),
        batch_end: Some(at(end)),
    }
}

#[test]
fn the_end_of_a_full_batch_is_saved_with_the_one_before() {
    let settings = Settings {
        announce: true,
        linger: SECOND,
        ..AT_ONCE
    };
    let mut delivery = Delivery::new(settings, from(0), 1);
    assert!(matches!(delivery.poll(0), Some(Action::Read { .. })));
    delivery.page(page(0..8, false), 0);
    assert_eq!(delivery.poll(0), Some(Action::Save(batch_cursor(0, 8))));
    delivery.saved(Ok(()), 0);
    assert_eq!(sent(&mut delivery, 0), Some((1, (0..8).collect())));
    assert!(matches!(delivery.poll(0), Some(Action::Read { .. })));
    delivery.page(page(8..16, false), 0);
    delivery.answer(1, Outcome::DONE, 1);
    assert_eq!(delivery.poll(1), Some(Action::Save(batch_cursor(8, 16))));
    assert_eq!(delivery.cursor(), batch_cursor(0, 8));
    delivery.saved(Ok(()), 1);
    assert_eq!(delivery.cursor(), batch_cursor(8, 16));
    assert_eq!(sent(&mut delivery, 1), Some((2, (0..8).collect())));
    // One that may become longer is not announced yet.
    assert!(matches!(delivery.poll(1), Some(Action::Read { .. })));
    delivery.page(page(16..18, true), 1);
    delivery.answer(2, Outcome::DONE, 2);
    assert_eq!(delivery.poll(2), Some(Action::Save(from(16))));
}

#[test]
fn a_batch_fills_for_a_while() {
    let mut delivery = begun(
        Settings {
            linger: 5 * SECOND,
            ..AT_ONCE
        },
        0..3,
    );
    assert_eq!((delivery.poll(0), delivery.wake_at()), (None, Some(5 * SECOND)));
    assert_eq!(delivery.ledger(), Ledger::default());
    assert!(matches!(delivery.poll(5 * SECOND), Some(Action::Read { .. })));
    delivery.page(page(0..5, true), 5 * SECOND);
    assert_eq!(sent(&mut delivery, 5 * SECOND), Some((1, vec![0, 1, 2, 3, 4])));

    let mut full = begun(
        Settings {
            linger: 5 * SECOND,
            ..AT_ONCE
        },
        0..0,
    );
    assert!(matches!(full.poll(SECOND), Some(Action::Read { .. })));
    full.page(page(0..8, false), SECOND);
    assert_eq!(sent(&mut full, SECOND).map(|(_, records)| records.len()), Some(8));
}

#[test]
fn a_refused_record_is_found_by_halving_and_the_rest_goes_on() {
    let mut delivery = begun(AT_ONCE, 0..5);
    let mut requests = Vec::new();
    let mut rejected = Vec::new();
    loop {
        match delivery.poll(1) {
            Some(Action::Send { request, records }) => {
                let outcome = if records.contains(&3) {
                    refused()
                } else {
                    Outcome::DONE
                };
                requests.push(records);
                delivery.answer(request, outcome, 1);
            }
            Some(Action::Reject { record, reason }) => {
                rejected.push((record, reason));
                delivery.rejection_written(Ok(()), 1);
            }
            Some(Action::Save(cursor)) => break assert_eq!(cursor, from(5)),
            other => panic!("{other:?}"),
        }
    }
    let expected: [&[usize]; 5] = [&[0, 1, 2, 3, 4], &[0, 1], &[2, 3, 4], &[2], &[3, 4]];
    assert_eq!(requests[..5], expected);
    assert_eq!(requests[5..], [[3], [4]]);
    assert_eq!(rejected, [(3, "no such field `x` at line 1".to_owned())]);
    let ledger = delivery.ledger();
    assert_eq!(
        (ledger.read, ledger.delivered, ledger.rejected, ledger.held),
        (5, 4, 1, 0)
    );
    assert_eq!(
        delivery.notices(),
        [Notice::Rejected("no such field `x` at line 1".to_owned())]
    );
}

#[test]
fn answers_by_record_are_understood() {
    let mut delivery = begun(AT_ONCE, 0..6);
    let (request, _) = sent(&mut delivery, 0).unwrap();
    let outcome = Outcome::Settled {
        rejected: vec![(4, "mapping".to_owned())],
        retry: vec![3, 1],
        reason: "full".to_owned(),
        retry_after: Some(2 * SECOND),
    };
    delivery.answer(request, outcome, 0);
    assert_eq!(
        delivery.poll(0),
        Some(Action::Reject {
            record: 4,
            reason: "mapping".to_owned()
        })
    );
    delivery.rejection_written(Err("disk full".to_owned()), 0);
    assert_eq!(
        delivery.last_error(),
        Some("a request failed in part: the server will accept 2 records later: full")
    );
    assert_eq!((delivery.poll(0), delivery.wake_at()), (None, Some(2 * SECOND)));
    let (request, records) = sent(&mut delivery, 2 * SECOND).unwrap();
    assert_eq!(records, [1, 3]);
    delivery.answer(request, Outcome::DONE, 3 * SECOND);
    let expected = Ledger {
        read: 6,
        delivered: 5,
        rejected: 1,
        unwritten: 1,
        repeated: 2,
        requests: 2,
        settled: 2,
        ..Ledger::default()
    };
    assert_eq!(delivery.ledger(), expected);
}

#[test]
fn an_answer_about_other_records_is_none() {
    for (rejected, again) in [
        (vec![3], vec![]),
        (vec![], vec![usize::MAX]),
        (vec![1], vec![1]),
        (vec![], vec![2, 2]),
    ] {
        let mut delivery = begun(AT_ONCE, 0..3);
        let (request, _) = sent(&mut delivery, 0).unwrap();
        let rejected = rejected.into_iter().map(|index| (index, String::new())).collect();
        delivery.answer(
            request,
            Outcome::Settled {
                rejected,
                retry: again,
                reason: String::new(),
                retry_after: None,
            },
            0,
        );
        let ledger = delivery.ledger();
        assert_eq!((ledger.failed, ledger.held, ledger.rejected), (1, 3, 0));
        let later = delivery.wake_at().unwrap();
        assert_eq!(
            sent(&mut delivery, later).map(|(_, records)| records),
            Some(vec![0, 1, 2])
        );
    }
}

#[test]
fn a_request_without_an_answer_is_repeated_and_its_late_answer_is_not_used() {
    let mut delivery = begun(AT_ONCE, 0..2);
    assert_eq!(sent(&mut delivery, 0), Some((1, vec![0, 1])));
    assert_eq!(delivery.wake_at(), Some(10 * SECOND));
    assert_eq!(delivery.poll(10 * SECOND), None);
    let later = delivery.wake_at().unwrap();
    delivery.answer(1, Outcome::DONE, later);
    assert_eq!(sent(&mut delivery, later), Some((2, vec![0, 1])));
    delivery.answer(2, Outcome::DONE, later);
    delivery.answer(2, Outcome::DONE, later);
    let expected = Ledger {
        read: 2,
        delivered: 2,
        repeated: 2,
        requests: 2,
        settled: 1,
        timed_out: 1,
        late: 2,
        ..Ledger::default()
    };
    assert_eq!(delivery.ledger(), expected);
    let recovered = Notice::Recovered {
        after: later - 10 * SECOND,
    };
    let failing = Notice::Failing {
        reason: "no answer in time: the server did not answer".to_owned(),
    };
    assert_eq!(delivery.notices(), [failing, recovered]);
}

#[test]
fn a_failure_is_noted_once_and_again_with_another_reason_or_after_a_minute() {
    let mut delivery = begun(AT_ONCE, 0..2);
    let mut now = 0;
    let mut fail = |reason: &str, lasts: Nanos| {
        let until = now + lasts;
        while now < until {
            let (request, _) = sent(&mut delivery, now).unwrap();
            delivery.answer(request, Outcome::from_status(503, reason, None), now);
            now = delivery.wake_at().unwrap();
        }
        delivery.notices().len()
    };
    assert_eq!(fail("overloaded", 30 * SECOND), 1);
    assert_eq!(fail("maintenance", 1), 1);
    assert!((4..=10).contains(&fail("maintenance", 600 * SECOND)));
}

#[test]
fn wrong_credentials_are_not_tried_often() {
    let mut delivery = begun(AT_ONCE, 0..2);
    let (request, _) = sent(&mut delivery, 0).unwrap();
    delivery.answer(request, Outcome::from_status(401, "bad password", None), 0);
    assert!(delivery.wake_at().unwrap() >= 30 * SECOND);
    assert_eq!(
        delivery.last_error(),
        Some("the server refused the credentials: bad password")
    );
}

#[test]
fn a_server_that_refuses_everything_is_given_time() {
    let mut delivery = Delivery::new(AT_ONCE, from(0), 1);
    let mut now = 0;
    let mut next = 0;
    let mut at_rejected = Vec::new();
    while at_rejected.len() < 40 {
        match delivery.poll(now) {
            Some(Action::Read { .. }) => {
                delivery.page(page(next..next + 8, false), now);
                next += 8;
            }
            Some(Action::Send { request, .. }) => delivery.answer(request, refused(), now),
            Some(Action::Reject { .. }) => {
                at_rejected.push(now);
                delivery.rejection_written(Ok(()), now);
            }
            Some(Action::Save(_)) => delivery.saved(Ok(()), now),
            None => now = delivery.wake_at().unwrap(),
        }
    }
    assert_eq!(at_rejected[31], 0);
    assert!(at_rejected[39] >= 7 * 30 * SECOND);
    assert!(
        delivery
            .last_error()
            .unwrap()
            .starts_with("the server rejects every record: ")
    );
}

#[test]
fn keys_have_lanes_and_the_next_page_is_read_meanwhile() {
    let mut delivery = Delivery::new(Settings { lanes: 2, ..AT_ONCE }, from(0), 1);
    assert!(matches!(delivery.poll(0), Some(Action::Read { .. })));
    delivery.page(page(0..5, false), 0);
    assert_eq!(sent(&mut delivery, 0), Some((1, vec![0, 2, 4])));
    assert_eq!(sent(&mut delivery, 0), Some((2, vec![1, 3])));
    let ahead = Action::Read {
        from: at(5),
        until: None,
        records: 8,
        bytes: 1000,
    };
    assert_eq!(delivery.poll(0), Some(ahead));
    delivery.page(page(5..13, false), 0);
    assert_eq!((delivery.poll(0), delivery.ledger().held), (None, 13));
    delivery.answer(2, Outcome::DONE, 1);
    assert_eq!(delivery.poll(1), None);
    delivery.answer(1, Outcome::DONE, 2);
    assert_eq!(delivery.poll(2), Some(Action::Save(from(5))));
    delivery.saved(Ok(()), 2);
    assert_eq!(sent(&mut delivery, 2), Some((3, vec![1, 3, 5, 7])));
}

#[test]
fn deleted_records_are_counted_and_passed() {
    let mut delivery = begun(AT_ONCE, 0..0);
    assert!(matches!(delivery.poll(SECOND), Some(Action::Read { .. })));
    delivery.page(
        Page {
            records: Vec::new(),
            end: at(9),
            expired: 9,
            left_out: 0,
            bytes: 0,
            is_last: true,
        },
        SECOND,
    );
    assert_eq!(delivery.poll(SECOND), Some(Action::Save(from(9))));
    delivery.saved(Ok(()), SECOND);
    assert_eq!(
        delivery.ledger(),
        Ledger {
            expired: 9,
            ..Ledger::default()
        }
    );
    assert_eq!(delivery.notices(), [Notice::Expired(9)]);
}

fn stopped_in_flight() -> Delivery<One> {
    let mut delivery = begun(AT_ONCE, 0..2);
    sent(&mut delivery, 0).unwrap();
    delivery.stop(1, 10);
    delivery
}

#[test]
fn a_stop_completes_the_batch_in_flight_and_does_not_wait_for_ever() {
    let mut completes = stopped_in_flight();
    completes.answer(1, Outcome::DONE, 2);
    assert_eq!(completes.poll(2), Some(Action::Save(from(2))));
    completes.saved(Ok(()), 3);
    assert_eq!(
        (completes.poll(3), completes.is_stopped(), completes.ledger().held),
        (None, true, 0)
    );

    let mut waits = stopped_in_flight();
    assert_eq!(
        (waits.poll(10), waits.is_stopped(), waits.wake_at()),
        (None, false, Some(11))
    );
    assert_eq!(
        (waits.poll(11), waits.is_stopped(), waits.wake_at()),
        (None, true, None)
    );
    assert_eq!((waits.cursor(), waits.ledger().held), (from(0), 2));

    let mut idle = begun(AT_ONCE, 0..0);
    idle.stop(0, SECOND);
    assert_eq!((idle.poll(0), idle.is_stopped()), (None, true));
}

#[test]
fn words_of_servers_are_one_line_of_bounded_length() {
    assert_eq!(notice::one_line(" a\r\n\x1b[31mb "), "a   [31mb");
    let cut = notice::one_line(&"é".repeat(10_000));
    assert_eq!((cut.chars().count(), cut.ends_with(" …")), (502, true));
}
