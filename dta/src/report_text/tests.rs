use super::*;

const FLOW: [u8; 13] = [10, 0, 0, 1, 10, 0, 0, 2, 0x04, 0xd2, 0, 80, 6];

#[test]
fn keys_are_read_as_people_write_them() {
    let read = |text: &str| key(text).map(|bytes| bytes.0);
    let flow = FLOW.to_vec();
    for text in [
        "10.0.0.1:1234>10.0.0.2:80/6",
        "10.0.0.1:1234 > 10.0.0.2:80 tcp",
        "0x0a0000010a00000204d2005006",
    ] {
        assert_eq!(read(text).as_ref(), Ok(&flow), "{text}");
    }
    assert_eq!(read("10.0.0.1"), Ok(vec![10, 0, 0, 1]));
    assert_eq!(read("258"), Ok(vec![0, 0, 1, 2]));
    assert_eq!(
        read("[2001:db8::1]:1>[2001:db8::2]:2/17").map(|key| key.len()),
        Ok(37)
    );
    for text in [
        "",
        "0x",
        "0x123",
        "flow-id:7",
        "10.0.0.1:1>10.0.0.2/6",
        &"0x00".repeat(65),
    ] {
        assert!(read(text).is_err(), "{text}");
    }
    assert_eq!(hex("00:01 0a"), Ok(Bytes(vec![0, 1, 10])));
    assert!(hex("0g").is_err() && hex("+1").is_err() && hex("012").is_err());
}

#[test]
fn a_line_gives_the_report_that_it_says() {
    let read = |line: &str| {
        let report = ReportLine::parse(line.as_bytes()).unwrap_or_else(|error| panic!("{line}: {error:?}"));
        (report.priority, report.essential, report.immediate, report)
    };
    let flow = "10.0.0.1:1234>10.0.0.2:80/6";
    let (priority, essential, immediate, report) =
        read(&format!("key-write store=1 key={flow} data=0000000b\n"));
    assert_eq!((priority, essential, immediate), (Priority::Medium, false, false));
    let expected = Operation::KeyWrite {
        copies: 2,
        store: 1,
        key: &FLOW,
        data: &[0, 0, 0, 11],
    };
    assert_eq!(report.operation(), expected);

    let (priority, essential, immediate, report) =
        read("append  essential entry=a0a1 priority=high list=3 immediate entry=b0b1");
    assert_eq!((priority, essential, immediate), (Priority::High, true, true));
    let expected = Operation::Append {
        list: 3,
        entry_len: 2,
        entries: &[0xa0, 0xa1, 0xb0, 0xb1],
    };
    assert_eq!(report.operation(), expected);

    let (priority, .., report) = read("key-increment store=2 key=10.0.0.1 by=5 copies=1 priority=low");
    let expected = Operation::KeyIncrement {
        copies: 1,
        store: 2,
        delta: 5,
        key: &[10, 0, 0, 1],
    };
    assert_eq!((priority, report.operation()), (Priority::Low, expected));

    let (.., report) = read("postcard store=3 key=7 hop=2 path-len=3 value=12");
    let expected = Operation::Postcard {
        hop: 2,
        path_len: 3,
        store: 3,
        value: 12,
        key: &[0, 0, 0, 7],
    };
    assert_eq!(report.operation(), expected);
}

#[test]
fn a_line_that_is_no_report_is_refused_with_its_reason() {
    let long = format!("key-write store=1 key=1 data={}", "00".repeat(MAX_LINE / 2));
    for (line, reason) in [
        (long.as_str(), LineError::TooLong),
        ("", LineError::NotOneLine),
        (" \n", LineError::NotOneLine),
        (
            "key-increment store=1 key=1\nkey-increment store=1 key=1",
            LineError::NotOneLine,
        ),
        ("sketch sketch=1", LineError::UnknownOperation),
        ("key-increment store=1 key=1 list=3", LineError::UnknownWord),
        ("key-increment store=1 key=1 reliable", LineError::UnknownWord),
        ("key-increment store=1 key=1 essential=no", LineError::UnknownWord),
        ("key-increment store=1 store=2 key=1", LineError::RepeatedWord),
        (
            "key-increment store=1 key=1 essential essential",
            LineError::RepeatedWord,
        ),
        ("key-increment store=1", LineError::MissingWord),
        ("append list=3", LineError::MissingWord),
        ("append entry=00", LineError::MissingWord),
        ("key-increment store=65536 key=1", LineError::BadValue),
        ("key-increment store=1 key=x", LineError::BadValue),
        ("key-write store=1 key=1 data=0", LineError::BadValue),
        ("append list=3 entry=00 entry=0001", LineError::BadValue),
        ("key-increment store=1 key=1 priority=urgent", LineError::BadValue),
        ("key-increment store=1 key=1 copies=5", LineError::OutOfBounds),
        ("postcard store=1 key=1 hop=0 value=1", LineError::OutOfBounds),
    ] {
        assert_eq!(ReportLine::parse(line.as_bytes()), Err(reason), "{line}");
    }
    assert_eq!(
        ReportLine::parse(b"append list=3 entry=\xff"),
        Err(LineError::NotText)
    );
    let mut names = LineError::ALL.map(LineError::name).to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), LineError::ALL.len());
}

/// Whatever is read is within the limits of DTA, and fits into an essential report.
fn body(bytes: &[u8]) {
    let Ok(report) = ReportLine::parse(bytes) else {
        return;
    };
    assert_eq!(report.operation().check(), Ok(()));
    assert!(report.operation().len() <= 1200, "{}", report.operation().len());
}

#[test]
fn no_text_gives_an_invalid_report() {
    let examples = [
        "key-write store=1 key=10.0.0.1:1234>10.0.0.2:80/6 data=0000000b copies=4",
        "append list=3 entry=a0a1a2a3 entry=b0b1b2b3 essential priority=high",
        "key-increment store=2 key=10.0.0.1 by=5 immediate",
        "postcard store=3 key=u64:7 hop=2 path-len=3 value=12 priority=low\n",
    ];
    testkit::texts::fuzz(body, 0x7e47, &examples.map(str::to_owned));
}
