//! SQL over the files: permissions, limits, query plans, and many files as one.
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use std::time::{Duration, Instant};

use collector::{Batch, Event, Kind, Output as _};
use store::{
    Config, EventFilter, Period, QueryErrorKind, QueryOptions, Reader, RollupFilter, Store, Table, Value,
};
use testkit::records::{Dir, SECOND, START, bare, changes, flow, flow_row, rollup};

const HOUR: u64 = 3600 * SECOND;

/// A store with `batches` in it.
fn keep(name: &str, period: Period, batches: Vec<Batch>) -> (Dir, Reader) {
    let dir = Dir::new(name);
    let store = Store::open(Config {
        period,
        ..Config::new(dir.path())
    })
    .unwrap();
    batches.into_iter().for_each(|batch| drop(store.submit(batch)));
    store.close();
    let reader = Reader::open(dir.path()).unwrap();
    (dir, reader)
}

fn ask(reader: &Reader, sql: &str) -> Table {
    reader
        .query(sql, &QueryOptions::default())
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn int(value: &Value) -> i64 {
    if let Value::Int(int) = value {
        *int
    } else {
        panic!("{value:?} is no number")
    }
}

fn ints(table: &Table) -> Vec<Vec<i64>> {
    table
        .rows
        .iter()
        .map(|row| row.iter().map(int).collect())
        .collect()
}

#[test]
fn only_reading_is_allowed() {
    let (dir, reader) = keep("evil", Period::Day, vec![changes(START, 10, 2)]);
    // A reader leaves an empty log beside the file, from its first query on.
    ask(&reader, "SELECT count(*) FROM events");
    let before = dir.names();
    let other = dir.path().join("other.db");
    let evil = [
        "INSERT INTO event_data (ts) VALUES (1)",
        "DELETE FROM f0.event_data",
        "UPDATE f0.meta SET value = 0",
        "REPLACE INTO f0.meta VALUES ('seq', 0)",
        "DROP TABLE f0.event_data",
        "DROP VIEW events",
        "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t (a)",
        "CREATE TEMP VIEW events AS SELECT 1",
        "CREATE TEMP TRIGGER t INSTEAD OF INSERT ON events BEGIN SELECT 1; END",
        "CREATE INDEX f0.i ON event_data (value)",
        "CREATE VIRTUAL TABLE t USING dbstat",
        "ALTER TABLE f0.event_data RENAME TO gone",
        &format!("ATTACH '{}' AS other", other.display()),
        "ATTACH '/etc/passwd' AS p",
        "DETACH f0",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA f0.user_version = 10",
        "PRAGMA table_info(events)",
        "SELECT * FROM pragma_table_info('events')",
        "SELECT * FROM pragma_database_list",
        "SELECT * FROM dbstat",
        "SELECT * FROM sqlite_dbpage",
        "SELECT count(*) FROM dbstat",
        "SELECT count(*) FROM Pragma_Database_List",
        "SELECT load_extension('/tmp/x.so')",
        "SELECT randomblob(10)",
        "SELECT zeroblob(1000000000)",
        "SELECT sqlite_compileoption_get(1)",
        "SELECT fts3_tokenizer('simple')",
        "VACUUM",
        &format!("VACUUM INTO '{}'", other.display()),
        "REINDEX",
        "ANALYZE",
        "BEGIN",
        "BEGIN EXCLUSIVE",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT s",
        "WITH x AS (SELECT 1) DELETE FROM f0.meta",
        "EXPLAIN DELETE FROM f0.meta",
    ];
    for sql in evil {
        let error = reader.query(sql, &QueryOptions::default()).expect_err(sql);
        let kind = error.kind;
        assert!(
            matches!(kind, QueryErrorKind::Refused | QueryErrorKind::Syntax),
            "{sql}: {error:?}"
        );
        assert!(
            !error.message.contains('\n') && !error.message.is_empty(),
            "{sql}: {error}"
        );
        if !matches!(sql.split(' ').next(), Some("SELECT" | "ALTER" | "DROP")) {
            assert_eq!(kind, QueryErrorKind::Refused, "{sql}: {error}");
        }
    }
    let two = reader
        .query("SELECT 1; DELETE FROM f0.meta", &QueryOptions::default())
        .unwrap_err();
    assert_eq!(two.kind, QueryErrorKind::Refused);
    assert_eq!(dir.names(), before);
    assert_eq!(ints(&ask(&reader, "SELECT count(*) FROM events")), [[10]]);
}

#[test]
fn computations_are_allowed() {
    let (_dir, reader) = keep("good", Period::Day, vec![changes(START, 100, 2)]);
    for sql in [
        "SELECT kind, count(*), avg(value), median(value), sqrt(max(value)) FROM events GROUP BY kind",
        "SELECT percentile(value, 99), group_concat(DISTINCT node) FROM events WHERE flow LIKE '10.0.%'",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10) SELECT sum(i) FROM n",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10) SELECT count(*) FROM n",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT 1 FROM n LIMIT 10) SELECT 'x' FROM n, events",
        "WITH x AS (SELECT ts FROM events) SELECT count(*) FROM x",
        "SELECT ts, lag(value) OVER (PARTITION BY flow ORDER BY ts) FROM events",
        "SELECT strftime('%H:%M', ts / 1000000000, 'unixepoch'), typeof(flow), hex(kind), path -> '$' FROM events",
        "SELECT DISTINCT e.flow, r.count FROM events e LEFT JOIN rollups r ON r.node = e.node ORDER BY 1",
        "EXPLAIN QUERY PLAN SELECT * FROM events",
        "SELECT name FROM sqlite_temp_schema;  -- the views",
        "SELECT value FROM json_each('[1, 2]')",
        "VALUES (1), (2)",
    ] {
        assert!(!ask(&reader, sql).rows.is_empty(), "{sql}");
    }
}

fn query_error(reader: &Reader, sql: &str) -> (String, Option<usize>) {
    let error = reader.query(sql, &QueryOptions::default()).unwrap_err();
    (error.message, error.offset)
}

#[test]
fn a_wrong_query_gets_one_sentence_with_its_place() {
    let (_dir, reader) = keep("wrong", Period::Day, vec![]);
    assert_eq!(
        query_error(&reader, "SELECT * FORM events"),
        ("near \"FORM\": syntax error, at character 10".to_owned(), Some(9))
    );
    assert_eq!(
        query_error(&reader, "SELECT * FROM event"),
        (
            "no such table: event; the tables are events, rollups, flows, drops, losses, reports, recordings"
                .to_owned(),
            None
        )
    );
    assert_eq!(
        query_error(&reader, "SELECT latency FROM events"),
        (
            "no such column: latency, at character 8; SELECT * … LIMIT 1 shows the columns".to_owned(),
            Some(7)
        )
    );
    assert_eq!(
        query_error(&reader, " -- nothing"),
        ("not a query; write a SELECT".to_owned(), None)
    );
    assert_eq!(
        query_error(&reader, "SELECT ?1"),
        (
            "the query has 1 parameters, 0 values were given; give as many".to_owned(),
            None
        )
    );
}

#[test]
fn values_are_bound_to_parameters() {
    let (_dir, reader) = keep("params", Period::Day, vec![]);
    let params = vec![
        Value::Null,
        Value::Int(-1),
        Value::Real(0.5),
        Value::Text("it's".to_owned()),
        Value::Blob(vec![0, 255]),
    ];
    let options = QueryOptions {
        params: params.clone(),
        ..QueryOptions::default()
    };
    assert_eq!(
        reader.query("SELECT ?1, ?2, ?3, ?4, ?5", &options).unwrap().rows,
        [params]
    );
}

#[test]
fn rows_bytes_values_and_time_are_bounded() {
    let (_dir, reader) = keep("bounds", Period::Day, vec![changes(START, 1000, 2)]);
    let with = |sql: &str, options: QueryOptions| reader.query(sql, &options);
    let ten = with(
        "SELECT ts FROM events",
        QueryOptions {
            max_rows: 10,
            ..QueryOptions::default()
        },
    )
    .unwrap();
    assert_eq!((ten.rows.len(), ten.truncated), (10, true));
    let all = with(
        "SELECT ts FROM events",
        QueryOptions {
            max_rows: 1000,
            ..QueryOptions::default()
        },
    )
    .unwrap();
    assert_eq!((all.rows.len(), all.truncated), (1000, false));
    let small = QueryOptions {
        max_bytes: 10_000,
        ..QueryOptions::default()
    };
    let cut = with("SELECT * FROM events", small).unwrap();
    assert!(
        cut.truncated && cut.rows.len() > 5 && cut.rows.len() < 50,
        "{}",
        cut.rows.len()
    );

    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
    let timeout = Duration::from_millis(50);
    let start = Instant::now();
    for endless in [endless, &endless.replace("max(i)", "count(*)")] {
        let error = with(
            endless,
            QueryOptions {
                timeout,
                ..QueryOptions::default()
            },
        )
        .unwrap_err();
        let expected = "the query took longer than 0.05 s; narrow it with a time range (ts > …), end a recursion with LIMIT, or \
                    allow more time";
        assert_eq!(
            (error.kind, error.message.as_str()),
            (QueryErrorKind::Timeout, expected)
        );
    }
    assert!(start.elapsed() < Duration::from_secs(5));
    // A query that returns rows continuously ends at the limit of rows.
    let rows = QueryOptions {
        max_rows: 10,
        ..QueryOptions::default()
    };
    let first = with(&endless.replace("max(i)", "i"), rows).unwrap();
    assert_eq!((first.rows.len(), first.truncated), (10, true));
    // The connection is as good as before.
    assert_eq!(ints(&ask(&reader, "SELECT count(*) FROM events")), [[1000]]);

    let large = with("SELECT printf('%.*c', 100000000, 'x')", QueryOptions::default());
    assert!(large.map_or_else(
        |error| error.kind == QueryErrorKind::TooLarge,
        |table| table.rows[0][0] == Value::Null
    ));
    let long = format!("SELECT '{}'", "x".repeat(300 << 10));
    assert_eq!(
        with(&long, QueryOptions::default()).unwrap_err().kind,
        QueryErrorKind::TooLarge
    );
    let deep = format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000));
    assert!(with(&deep, QueryOptions::default()).is_err());
}

fn detail(row: &[Value]) -> String {
    if let Value::Text(text) = &row[3] {
        text.clone()
    } else {
        String::new()
    }
}

/// SQLite's query plan, one line per step, without the look-ups of names, which all plans have.
fn plan(reader: &Reader, sql: &str) -> Vec<String> {
    let table = ask(reader, &format!("EXPLAIN QUERY PLAN {sql}"));
    let mut lines: Vec<String> = table.rows.iter().map(|row| detail(row)).collect();
    lines.retain(|line| !line.contains("LEFT-JOIN") && !line.contains("BLOOM"));
    lines
}

/// The plan of a query, which has this line for each table.
fn plan_with(reader: &Reader, sql: &str, needed: &str) -> Vec<String> {
    let lines = plan(reader, sql);
    // Once for the file and once for the empty member of the union.
    assert_eq!(
        lines.iter().filter(|line| line.contains(needed)).count(),
        2,
        "{sql}: {lines:#?}"
    );
    lines
}

#[test]
fn the_questions_people_ask_use_the_indexes() {
    let (_dir, reader) = keep("plan", Period::Day, vec![changes(START, 10, 2)]);
    let flow = "'10.0.0.1:5000>172.16.0.1:80/17'";
    plan_with(
        &reader,
        &format!("SELECT * FROM events WHERE flow = {flow} AND ts > 5"),
        "event_flow (ANY(chunk) AND flow=? AND ts>?)",
    );
    plan_with(
        &reader,
        &format!("SELECT avg(value) FROM events WHERE flow = {flow}"),
        "event_flow (ANY(chunk) AND flow=?)",
    );
    plan_with(
        &reader,
        &format!("SELECT * FROM drops WHERE flow = {flow} AND ts > 5"),
        "drop_flow (ANY(chunk) AND flow=? AND ts>?)",
    );
    plan_with(
        &reader,
        "SELECT * FROM rollups WHERE metric = 'queue_occupancy' AND node = 5 AND interval = 1 AND ts > 5",
        "rollup_node (ANY(chunk) AND node=? AND metric=? AND interval=? AND ts>?)",
    );
    plan_with(
        &reader,
        "SELECT * FROM rollups WHERE metric = 'queue_occupancy' AND ts > 5",
        "e USING PRIMARY KEY (ts>?)",
    );
    for (sql, index) in [
        ("SELECT * FROM events", "SCAN e"),
        ("SELECT * FROM events ORDER BY ts DESC LIMIT 200", "SCAN e"),
        (
            "SELECT * FROM events WHERE ts < 5 ORDER BY ts DESC LIMIT 200",
            "e USING PRIMARY KEY (ts<?)",
        ),
        (
            "SELECT * FROM events WHERE kind = 'drop' ORDER BY ts DESC LIMIT 200",
            "event_kind (kind=?)",
        ),
        (
            "SELECT * FROM events WHERE kind = 'drop' AND ts < 9 ORDER BY ts DESC LIMIT 200",
            "event_kind (kind=? AND ts<?)",
        ),
        (
            "SELECT * FROM events WHERE node = 5 ORDER BY ts DESC LIMIT 200",
            "event_node (node=?)",
        ),
        (
            "SELECT * FROM events WHERE node = 5 AND kind = 'drop' ORDER BY ts DESC LIMIT 200",
            "event_node (node=?)",
        ),
    ] {
        // In the order of the index: merged, never sorted.
        let lines = plan_with(&reader, sql, index);
        for detour in ["TEMP B-TREE", "SCAN e USING INDEX"] {
            assert!(
                !lines.iter().any(|line| line.contains(detour)),
                "{sql}: {lines:#?}"
            );
        }
    }
    // Columns that a query does not use are not joined.
    let names = ask(
        &reader,
        "EXPLAIN QUERY PLAN SELECT count(*), sum(value) FROM events",
    );
    let text = format!("{:?}", names.rows);
    assert!(!text.contains("SEARCH"), "{text}");
}

fn hour_batch(hour: u64) -> Batch {
    let mut batch = changes(START + hour * HOUR, 10, 1);
    batch.rollup(&rollup(START + hour * HOUR, 7));
    batch.flow(&flow_row(flow(0), START + hour * HOUR + hour), &[hour as u32]);
    batch
}

#[test]
fn a_query_over_many_files_equals_one_over_a_single_file() {
    let (dir, reader) = keep("many", Period::Hour, (0..14).map(hour_batch).collect());
    let names = dir.names();
    assert_eq!((names.len(), names[0].as_str()), (14, "hopwise-2026-11-21T14.db"));
    assert_eq!(names[10], "hopwise-2026-11-22T00.db");
    assert_eq!(
        ints(&ask(&reader, "SELECT count(*), min(ts), max(ts) FROM events")),
        [[140, START as i64, (START + 13 * HOUR + 9000) as i64]]
    );
    let text = format!(
        "SELECT count(*), count(DISTINCT ts) FROM events WHERE flow = '{}'",
        flow(0)
    );
    assert_eq!(ints(&ask(&reader, &text)), [[140, 140]]);
    // In order across the files.
    let events = reader
        .events(&EventFilter {
            limit: 75,
            ..EventFilter::default()
        })
        .unwrap();
    let times: Vec<u64> = events.iter().map(|row| row.event.ts).collect();
    let expected = (0..14)
        .rev()
        .flat_map(|hour| (0..10).rev().map(move |i| START + hour * HOUR + i * 1000));
    assert_eq!(times, expected.clone().take(75).collect::<Vec<_>>());
    // Likewise for rows from an index by chunk, which are searched in the last minutes, then hours, then everywhere.
    for limit in [1, 10, 11, 75, 140, 141] {
        let filter = EventFilter {
            flow: Some(flow(0)),
            limit,
            ..EventFilter::default()
        };
        let times: Vec<u64> = reader
            .events(&filter)
            .unwrap()
            .iter()
            .map(|row| row.event.ts)
            .collect();
        assert_eq!(times, expected.clone().take(limit).collect::<Vec<_>>(), "{limit}");
    }
    let before = Some(START + 9 * HOUR);
    let filter = EventFilter {
        flow: Some(flow(0)),
        before,
        limit: 12,
        ..EventFilter::default()
    };
    let times: Vec<u64> = reader
        .events(&filter)
        .unwrap()
        .iter()
        .map(|row| row.event.ts)
        .collect();
    assert_eq!(times, expected.clone().skip(50).take(12).collect::<Vec<_>>());
    // A flow's latest state is that of its last file.
    let flows = reader.flows(None, 10).unwrap();
    assert_eq!(
        (flows.len(), flows[0].row.last_seen, &flows[0].path),
        (1, START + 13 * HOUR + 13, &vec![13])
    );
    // The range chooses files.
    let options = QueryOptions {
        from: Some(START + 3 * HOUR),
        to: Some(START + 5 * HOUR),
        ..QueryOptions::default()
    };
    assert_eq!(
        ints(&reader.query("SELECT count(*) FROM events", &options).unwrap()),
        [[30]]
    );
    assert_eq!(reader.totals().unwrap().events, 140);
    // The rows of a deleted file are gone at once.
    std::fs::remove_file(dir.path().join(&names[13])).unwrap();
    assert_eq!(ints(&ask(&reader, "SELECT count(*) FROM events")), [[130]]);
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let deleted = open
        .filter_map(|fd| std::fs::read_link(fd.path()).ok())
        .filter(|path| path.starts_with(dir.path()) && path.to_string_lossy().ends_with("(deleted)"));
    assert_eq!(
        deleted.collect::<Vec<_>>(),
        Vec::<std::path::PathBuf>::new(),
        "its space would not be free"
    );
    // A damaged file is left out, with a note.
    std::fs::write(dir.path().join(&names[0]), vec![7; 9000]).unwrap();
    let table = ask(&reader, "SELECT count(*) FROM events");
    assert_eq!((ints(&table), table.notes.len()), (vec![vec![120]], 1));
    assert!(table.notes[0].contains(&names[0]), "{:?}", table.notes);
}

#[test]
fn more_files_than_can_be_joined_are_left_out_aloud() {
    let batches = (0..130).map(|hour| changes(START + hour * HOUR, 1, 1)).collect();
    let (_dir, reader) = keep("too-many", Period::Hour, batches);
    let table = ask(&reader, "SELECT count(*), max(ts) FROM events");
    let joined = ints(&table)[0][0];
    assert!((10..130).contains(&joined), "{joined}");
    assert_eq!(ints(&table)[0][1], (START + 129 * HOUR) as i64);
    let note = format!(
        "left out the {} oldest files: at most {joined} are joined in one query; narrow the time range",
        130 - joined
    );
    assert_eq!(table.notes, [note]);
}

#[test]
fn typed_questions_read_more_files_than_can_be_joined() {
    let (_dir, reader) = keep("groups", Period::Hour, (0..130).map(hour_batch).collect());
    let all = |limit| EventFilter {
        limit,
        ..EventFilter::default()
    };
    let expected: Vec<u64> = (0..130)
        .rev()
        .flat_map(|hour| (0..10).rev().map(move |i| START + hour * HOUR + i * 1000))
        .collect();
    let times = |filter: &EventFilter| -> Vec<u64> {
        let rows = reader.events(filter).unwrap();
        rows.iter().map(|row| row.event.ts).collect()
    };
    assert_eq!(times(&all(2_000)), expected);
    assert_eq!(times(&all(1_295)), expected[..1_295]);
    assert_eq!(times(&all(3)), expected[..3]);
    let (found, stopped) = reader.events_where(&all(2_000), |_| true).unwrap();
    assert_eq!((found.len(), stopped), (1_300, None));
    let rollups = reader.rollups(&RollupFilter::default()).unwrap();
    assert_eq!(
        rollups.iter().map(|row| row.ts).collect::<Vec<_>>(),
        (0..130).map(|hour| START + hour * HOUR).collect::<Vec<_>>()
    );
    // The same flow is in all files.
    let flows = reader.flows(None, 10).unwrap();
    assert_eq!(
        (flows.len(), flows[0].row.last_seen),
        (1, START + 129 * HOUR + 129)
    );
    assert_eq!(reader.notes(), Vec::<String>::new());
    // Nothing is missing without a note.
    reader
        .recordings(0, u64::MAX / 4, collector::Location::default(), 10)
        .unwrap();
    assert!(
        reader
            .notes()
            .iter()
            .any(|note| note.starts_with("left out the ")),
        "{:?}",
        reader.notes()
    );
}

#[test]
fn committed_rows_are_visible_during_writes() {
    let dir = Dir::new("live");
    let store = Store::open(Config::new(dir.path())).unwrap();
    let reader = Reader::open(dir.path()).unwrap();
    for round in 1..=20 {
        let mut batch = changes(START + round * SECOND, 500, 50);
        batch.event(
            &Event {
                kind: Kind::Drop,
                ..bare(START + round * SECOND)
            },
            &[],
        );
        store.submit(batch);
        store.flush();
        // An open transaction does not disturb queries.
        store.submit(changes(START + round * SECOND, 1, 1));
        let count = ints(&ask(&reader, "SELECT count(*) FROM events WHERE kind = 'drop'"));
        assert_eq!(count, [[round as i64]]);
        let options = QueryOptions {
            from: Some(START + round * SECOND),
            ..QueryOptions::default()
        };
        let late = reader
            .query("SELECT count(*) > 500 FROM events", &options)
            .unwrap();
        assert_eq!(ints(&late), [[1]]);
    }
    let stats = store.close();
    assert_eq!(
        (stats.committed, stats.balance().0),
        (20 * 502, stats.balance().1)
    );
}

#[test]
fn rows_can_be_queried_within_two_seconds() {
    let dir = Dir::new("soon");
    let store = Store::open(Config::new(dir.path())).unwrap();
    let reader = Reader::open(dir.path()).unwrap();
    store.submit(changes(START, 10, 1));
    let arrived = Instant::now();
    while ints(&ask(&reader, "SELECT count(*) FROM events")) != [[10]] {
        assert!(arrived.elapsed() < Duration::from_secs(2));
        std::thread::yield_now();
    }
}

#[test]
fn readers_are_shared_by_threads() {
    let (_dir, reader) = keep("threads", Period::Day, vec![changes(START, 2000, 10)]);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(ints(&ask(&reader, "SELECT count(*) FROM events")), [[2000]]);
                }
            });
        }
    });
    reader.tidy();
    assert_eq!(
        reader
            .events(&EventFilter {
                flow: Some(flow(3)),
                limit: 1,
                ..EventFilter::default()
            })
            .unwrap()
            .len(),
        1
    );
}
