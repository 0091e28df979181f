//! Files: rolling over, retention, damage, versions, and accounts that balance through all of it.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use std::time::Duration;

use collector::Batch;
use collector::event::Stream;
use store::{
    Config, Error, Follower, Period, ProblemKind, QueryOptions, Reader, State, Stats, Store, StreamPosition,
    Value,
};
use testkit::records::{Dir, SECOND, START, changes};

const HOUR: u64 = 3600 * SECOND;
const FILE: &str = "hopwise-2026-11-21.db";

pub(crate) fn count(dir: &Dir) -> i64 {
    let reader = Reader::open(dir.path()).unwrap();
    let table = reader
        .query("SELECT count(*) FROM events", &QueryOptions::default())
        .unwrap();
    let [row] = &table.rows[..] else {
        panic!("{table:?}")
    };
    if let Value::Int(count) = row[0] {
        count
    } else {
        panic!("{row:?}")
    }
}

pub(crate) fn balanced(stats: &Stats) {
    assert_eq!(stats.balance().0, stats.balance().1, "{stats:?}");
}

/// The wall clock, in ns since 1970.
fn now() -> u64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}

/// The problems of files, without their numbers, times and messages.
pub(crate) fn problems(stats: &Stats) -> Vec<(&str, ProblemKind, u64)> {
    let list = stats.problems.list().iter();
    list.map(|problem| (&*problem.file, problem.kind, problem.records))
        .collect()
}

/// Submits and waits until it is committed.
pub(crate) fn keep(store: &Store, batch: Batch) {
    store.submit(batch);
    store.flush();
}

#[test]
fn a_new_period_begins_a_new_file_and_late_records_join_it() {
    let dir = Dir::new("roll");
    let store = Store::open(Config {
        period: Period::Hour,
        ..Config::new(dir.path())
    })
    .unwrap();
    let mut expected = Vec::new();
    for hour in 0..3 {
        keep(&store, changes(START + hour * HOUR, 5, 1));
        expected.push(format!("hopwise-2026-11-21T{}.db", 14 + hour));
        let names: Vec<String> = dir
            .names()
            .into_iter()
            .filter(|name| name.ends_with(".db"))
            .collect();
        assert_eq!(names, expected);
        // Files of past periods are closed, with their logs merged.
        assert_eq!(
            dir.names().iter().filter(|name| name.ends_with("-wal")).count(),
            1
        );
    }
    // From the hour before: into the current file. Much older, as when a capture is replayed: into its own.
    keep(&store, changes(START + HOUR, 7, 1));
    keep(&store, changes(START, 11, 1));
    balanced(&store.close());
    assert_eq!(dir.names(), expected);
    assert_eq!(
        expected
            .iter()
            .map(|name| {
                let conn = rusqlite::Connection::open(dir.path().join(name)).unwrap();
                conn.query_row("SELECT count(*) FROM events", [], |row| row.get::<_, i64>(0))
                    .unwrap()
            })
            .collect::<Vec<_>>(),
        [5 + 11, 5, 5 + 7]
    );
    let reader = Reader::open(dir.path()).unwrap();
    let options = QueryOptions {
        from: Some(START + HOUR),
        to: Some(START + HOUR + 1_000_000),
        ..Default::default()
    };
    let sql = format!(
        "SELECT count(*) FROM events WHERE ts BETWEEN {} AND {}",
        START + HOUR,
        START + HOUR + 1_000_000
    );
    assert_eq!(reader.query(&sql, &options).unwrap().rows, [[Value::Int(12)]]);
    assert_eq!(count(&dir), 33);
}

#[test]
fn a_restart_continues_the_file() {
    let dir = Dir::new("restart");
    for round in 0..3 {
        let store = Store::open(Config::new(dir.path())).unwrap();
        keep(&store, changes(START + round * SECOND, 100, 10));
        balanced(&store.close());
    }
    assert_eq!((dir.names(), count(&dir)), (vec![FILE.to_owned()], 300));
    // Flows kept their numbers.
    let reader = Reader::open(dir.path()).unwrap();
    let table = reader.query(
        "SELECT count(*), count(DISTINCT flow) FROM flow_key",
        &QueryOptions::default(),
    );
    let table = table.unwrap_or_else(|error| panic!("{error}"));
    let distinct = reader
        .query(
            "SELECT count(DISTINCT flow) FROM events",
            &QueryOptions::default(),
        )
        .unwrap();
    assert_eq!(table.rows.len(), 1);
    assert_eq!(distinct.rows, [[Value::Int(10)]]);
}

#[test]
fn only_one_writer_at_a_time() {
    let dir = Dir::new("lock");
    let store = Store::open(Config::new(dir.path())).unwrap();
    let error = Store::open(Config::new(dir.path())).unwrap_err();
    assert!(matches!(error, Error::Locked(_)), "{error}");
    assert!(
        error.to_string().contains("another hopwise is writing"),
        "{error}"
    );
    store.close();
    Store::open(Config::new(dir.path())).unwrap();
}

#[test]
fn a_probe_leaves_nothing_and_finds_obstacles() {
    let dir = Dir::new("probe");
    Store::probe(&dir.path().join("a/b")).unwrap();
    assert_eq!(dir.names(), [] as [&str; 0]);
    let store = Store::open(Config::new(dir.path())).unwrap();
    keep(&store, changes(START, 1, 1));
    let before = dir.names();
    Store::probe(dir.path()).unwrap();
    assert_eq!(dir.names(), before);
    store.close();
    // No file can be opened for writing where a directory has its name.
    let lock = dir.path().join("hopwise.lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    let error = Store::probe(dir.path()).unwrap_err();
    assert!(matches!(&error, Error::Io(path, _) if *path == lock), "{error}");
    let error = Store::probe(&dir.path().join(FILE).join("store")).unwrap_err();
    let expected = format!("{FILE}: not a directory; move it away");
    assert!(error.to_string().contains(&expected), "{error}");
}

#[test]
fn the_oldest_files_are_deleted_when_there_is_too_much() {
    let dir = Dir::new("size");
    let config = Config {
        period: Period::Hour,
        ..Config::new(dir.path())
    };
    let store = Store::open(config.clone()).unwrap();
    for hour in 0..6 {
        keep(&store, changes(START + hour * HOUR, 2000, 10));
    }
    store.close();
    let all = dir.names();
    assert_eq!(all.len(), 6);
    // Room for half of it. The newest is what the store continues with.
    let total: u64 = all
        .iter()
        .map(|name| std::fs::metadata(dir.path().join(name)).unwrap().len())
        .sum();
    let store = Store::open(Config {
        max_bytes: Some(total / 2),
        ..config.clone()
    })
    .unwrap();
    let stats = store.stats();
    assert_eq!((stats.deleted, stats.files), (3, 3));
    assert!(stats.bytes <= total / 2);
    store.close();
    assert_eq!(dir.names(), all[3..]);
    assert_eq!(count(&dir), 6000);
    // Never the newest, however little is allowed.
    let store = Store::open(Config {
        max_bytes: Some(1),
        ..config
    })
    .unwrap();
    keep(&store, changes(START + 5 * HOUR, 10, 1));
    assert_eq!(store.close().files, 1);
    assert_eq!(dir.names(), all[5..]);
    assert_eq!(count(&dir), 2010);
}

#[test]
fn old_files_are_deleted() {
    let dir = Dir::new("age");
    let config = Config {
        period: Period::Hour,
        ..Config::new(dir.path())
    };
    let store = Store::open(config.clone()).unwrap();
    for hour in 0..3 {
        keep(&store, changes(START + hour * HOUR, 10, 1));
    }
    store.close();
    let names = dir.names();
    let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    for name in [&names[0], &names[2]] {
        let file = std::fs::File::options()
            .write(true)
            .open(dir.path().join(name))
            .unwrap();
        file.set_modified(hour_ago).unwrap();
    }
    let store = Store::open(Config {
        max_age: Some(Duration::from_secs(1800)),
        ..config
    })
    .unwrap();
    assert_eq!(store.close().deleted, 1);
    assert_eq!(dir.names(), names[1..]);
}

fn notes(reader: &Reader, from: u64) -> Vec<String> {
    let options = QueryOptions {
        from: Some(from),
        ..QueryOptions::default()
    };
    reader.query("SELECT 1 FROM events", &options).unwrap().notes
}

#[test]
fn a_damaged_file_is_set_aside_and_storing_goes_on() {
    let dir = Dir::new("damage");
    std::fs::write(dir.path().join(FILE), vec![0x5a; 20_000]).unwrap();
    let store = Store::open(Config::new(dir.path())).unwrap();
    keep(&store, changes(START, 10, 1));
    let stats = store.close();
    balanced(&stats);
    assert_eq!(
        (stats.set_aside, stats.committed, stats.state),
        (1, 10, State::Closed)
    );
    let aside = "hopwise-2026-11-21.db.corrupt-1";
    assert_eq!(problems(&stats), [(aside, ProblemKind::Damaged, 0)]);
    assert!(
        stats.problems.list()[0]
            .message
            .contains("file is not a database"),
        "{:?}",
        stats.problems
    );
    assert_eq!(dir.names(), [FILE, "hopwise-2026-11-21.db.corrupt-1"]);
    assert_eq!(
        std::fs::read(dir.path().join("hopwise-2026-11-21.db.corrupt-1")).unwrap(),
        vec![0x5a; 20_000]
    );
    assert_eq!(count(&dir), 10);
    // Answers about that time say so, others do not; and so does the next process.
    let reader = Reader::open(dir.path()).unwrap();
    let [note] = &notes(&reader, START)[..] else {
        panic!("{:?}", notes(&reader, START))
    };
    assert!(
        note.contains("hopwise-2026-11-21.db.corrupt-1 is damaged"),
        "{note}"
    );
    assert_eq!(notes(&reader, START + 48 * HOUR), [] as [String; 0]);
    let stats = Store::open(Config::new(dir.path())).unwrap().close();
    assert_eq!(
        (stats.set_aside, problems(&stats)),
        (0, vec![(aside, ProblemKind::Damaged, 0)])
    );
    std::fs::remove_file(dir.path().join(aside)).unwrap();
    let stats = Store::open(Config::new(dir.path())).unwrap().close();
    assert_eq!((problems(&stats), notes(&reader, START)), (vec![], vec![]));
}

#[test]
fn a_store_that_is_removed_while_it_is_written_is_counted_as_lost_and_begun_again() {
    for what in ["directory", "files", "replaced"] {
        let dir = Dir::new("removed");
        let folder = dir.path().join("store");
        let store = Store::open(Config::new(&folder)).unwrap();
        keep(&store, changes(START, 100, 10));
        let path = folder.join(FILE);
        match what {
            "directory" => std::fs::remove_dir_all(&folder).unwrap(),
            "files" => std::fs::remove_file(&path).unwrap(),
            _ => {
                // A copy of before, restored while it runs.
                let copy = Dir::new("copy");
                let other = Store::open(Config::new(copy.path())).unwrap();
                keep(&other, changes(START, 7, 7));
                other.close();
                std::fs::copy(copy.path().join(FILE), folder.join("copy")).unwrap();
                std::fs::rename(folder.join("copy"), &path).unwrap();
            }
        }
        keep(&store, changes(START + SECOND, 50, 5));
        let kind = if what == "replaced" {
            ProblemKind::Replaced
        } else {
            ProblemKind::Removed
        };
        let stats = store.stats();
        balanced(&stats);
        assert_eq!(
            (stats.committed, stats.failed, stats.removed),
            (150, 0, 100),
            "{what}"
        );
        assert_eq!(
            (stats.stored(), stats.lost(), stats.moved_files),
            (50, 100, 1),
            "{what}"
        );
        assert_eq!(problems(&stats), [(FILE, kind, 100)], "{what}");
        // Nothing is stored where another store could be.
        let second = Store::open(Config::new(&folder)).unwrap_err();
        assert!(matches!(second, Error::Locked(_)), "{what}: {second}");
        let stats = store.close();
        assert_eq!((stats.stored(), stats.lost()), (50, 100), "{what}");
        let reader = Reader::open(&folder).unwrap();
        let table = reader
            .query("SELECT count(*) FROM events", &QueryOptions::default())
            .unwrap();
        let restored = if what == "replaced" { 7 } else { 0 };
        assert_eq!(table.rows, [[Value::Int(50 + restored)]], "{what}");
        let conn = rusqlite::Connection::open(&path).unwrap();
        let check: String = conn
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(check, "ok", "{what}");
    }
}

#[test]
fn a_transaction_that_ends_in_a_removed_file_is_not_counted_as_stored() {
    let dir = Dir::new("in-between");
    let store = Store::open(Config {
        commit_every: Duration::from_secs(3600),
        ..Config::new(dir.path())
    })
    .unwrap();
    keep(&store, changes(START, 100, 10));
    store.submit(changes(START + SECOND, 30, 3));
    while store.stats().written < 130 {
        std::thread::yield_now();
    }
    std::fs::remove_file(dir.path().join(FILE)).unwrap();
    store.flush();
    let stats = store.stats();
    balanced(&stats);
    assert_eq!(
        (stats.committed, stats.failed, stats.removed, stats.state),
        (100, 30, 100, State::Failing)
    );
    let message = stats.message.unwrap();
    assert!(
        message.contains("hopwise-2026-11-21.db was removed while it was open"),
        "{message}"
    );
    // The next one is stored at once, and an export knows what it did not get.
    keep(&store, changes(START + 2 * SECOND, 5, 1));
    let stats = store.stats();
    assert_eq!((stats.committed, stats.failed, stats.state), (105, 30, State::Ok));
    let mut follower = Follower::new(dir.path());
    let all = follower
        .read(Stream::Events, StreamPosition::default(), None, 1000, 1 << 20)
        .unwrap();
    assert_eq!(all.records.len(), 5);
    let base = all.end.base;
    let missed = follower
        .read(
            Stream::Events,
            StreamPosition { base, row: 40 },
            None,
            1000,
            1 << 20,
        )
        .unwrap();
    assert_eq!(
        (missed.records.len(), missed.expired, missed.restarted),
        (5, 90, false)
    );
    assert_eq!(store.close().lost(), 130);
}

#[test]
fn a_log_that_is_removed_is_copied_first_and_nothing_is_lost() {
    let dir = Dir::new("log-removed");
    let store = Store::open(Config::new(dir.path())).unwrap();
    keep(&store, changes(START, 100, 10));
    let log = "hopwise-2026-11-21.db-wal";
    std::fs::remove_file(dir.path().join(log)).unwrap();
    keep(&store, changes(START + SECOND, 50, 5));
    let stats = store.stats();
    assert_eq!((stats.committed, stats.removed, stats.failed), (150, 0, 0));
    assert_eq!(problems(&stats), [(log, ProblemKind::Removed, 0)]);
    assert_eq!(count(&dir), 150, "also for a reader while it is written");
    assert_eq!((store.close().lost(), count(&dir)), (0, 150));
}

#[test]
fn old_files_that_cannot_be_opened_are_named_and_do_not_keep_the_store_from_opening() {
    let dir = Dir::new("obstacles");
    let store = Store::open(Config::new(dir.path())).unwrap();
    keep(&store, changes(START, 10, 1));
    store.close();
    std::fs::create_dir(dir.path().join("hopwise-2026-11-25.db")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("hopwise-2026-11-24.db")).unwrap();
    let fifo = dir.path().join("hopwise-2026-11-23.db");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    std::fs::write(dir.path().join("hopwise-2026-11-20.db"), vec![0x5a; 20_000]).unwrap();
    let store = Store::open(Config::new(dir.path())).unwrap();
    keep(&store, changes(START, 10, 1));
    let stats = store.close();
    assert_eq!((stats.committed, stats.failed), (10, 0));
    let mut found = problems(&stats);
    found.sort();
    assert_eq!(
        found,
        [
            ("hopwise-2026-11-20.db", ProblemKind::Damaged, 0),
            ("hopwise-2026-11-23.db", ProblemKind::Unreadable, 0),
            ("hopwise-2026-11-24.db", ProblemKind::Unreadable, 0),
            ("hopwise-2026-11-25.db", ProblemKind::Unreadable, 0),
        ]
    );
    let reader = Reader::open(dir.path()).unwrap();
    let table = reader
        .query("SELECT count(*) FROM events", &QueryOptions::default())
        .unwrap();
    assert_eq!((table.rows, table.notes.len()), (vec![vec![Value::Int(20)]], 4));
}

#[test]
fn a_number_that_cannot_be_counted_on_from_is_damage() {
    for damage in [
        "INSERT INTO flow_key VALUES (9223372036854775807, 'x', 'x', '', NULL, NULL, 0)",
        "INSERT INTO path_text VALUES (9223372036854775807, 'x')",
        "REPLACE INTO meta VALUES ('seq', 9223372036854775807)",
        "REPLACE INTO meta VALUES ('events', -5)",
    ] {
        let dir = Dir::new("overflow");
        let store = Store::open(Config::new(dir.path())).unwrap();
        keep(&store, changes(START, 10, 1));
        store.close();
        let conn = rusqlite::Connection::open(dir.path().join(FILE)).unwrap();
        conn.execute_batch(damage).unwrap();
        conn.close().unwrap();
        let store = Store::open(Config::new(dir.path())).unwrap();
        keep(&store, changes(START, 10, 5));
        let stats = store.close();
        assert_eq!(
            (stats.committed, stats.set_aside, stats.lost()),
            (10, 1, 0),
            "{damage}"
        );
        let message = &stats.problems.list()[0].message;
        assert!(message.contains("the file is damaged: "), "{message}");
    }
}

#[test]
fn a_file_that_is_damaged_inside_is_set_aside_when_it_shows() {
    let dir = Dir::new("inside");
    let store = Store::open(Config::new(dir.path())).unwrap();
    keep(&store, changes(START, 20_000, 100));
    store.close();
    let path = dir.path().join(FILE);
    let mut bytes = std::fs::read(&path).unwrap();
    // Everything after the schema.
    let schema = bytes.len() / 8;
    bytes[schema..].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let store = Store::open(Config {
        commit_every: Duration::ZERO,
        ..Config::new(dir.path())
    });
    let mut stats = store.as_ref().map(Store::stats).unwrap_or_default();
    if let Ok(store) = &store {
        // The damage may be found at the first batch, which is then lost and counted.
        keep(store, changes(START, 20_000, 100));
        stats = store.stats();
        balanced(&stats);
    }
    drop(store);
    assert_eq!(stats.set_aside, 1, "{stats:?}");
    assert_eq!(stats.committed + stats.failed, 20_000, "{stats:?}");
    assert!(
        dir.names()
            .contains(&"hopwise-2026-11-21.db.corrupt-1".to_owned()),
        "{:?}",
        dir.names()
    );
}

#[test]
fn files_of_newer_versions_or_other_programs_are_left_alone() {
    let dir = Dir::new("newer");
    let store = Store::open(Config::new(dir.path())).unwrap();
    keep(&store, changes(START, 10, 1));
    store.close();
    let path = dir.path().join(FILE);
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.pragma_update(None, "user_version", 10).unwrap();
    conn.close().unwrap();
    let before = std::fs::read(&path).unwrap();
    // It is a file of the past: storing goes on beside it, also for its period.
    let store = Store::open(Config::new(dir.path())).unwrap();
    keep(&store, changes(START, 5, 1));
    let stats = store.close();
    assert_eq!((stats.committed, stats.failed, stats.moved_files), (5, 0, 0));
    let [problem] = stats.problems.list() else {
        panic!("{:?}", stats.problems)
    };
    assert_eq!((&*problem.file, problem.kind), (FILE, ProblemKind::Unreadable));
    assert!(
        problem.message.contains("has schema 10, this hopwise knows 9"),
        "{problem:?}"
    );
    std::fs::remove_file(dir.path().join("hopwise-2026-11-21.2.db")).unwrap();
    let reader = Reader::open(dir.path()).unwrap();
    let table = reader
        .query("SELECT * FROM events", &QueryOptions::default())
        .unwrap();
    assert!(
        table.rows.is_empty() && table.notes[0].contains("has schema 10, this hopwise knows 9"),
        "{table:?}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), before);

    std::fs::remove_file(&path).unwrap();
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch("CREATE TABLE letters (text)").unwrap();
    conn.close().unwrap();
    let before = std::fs::read(&path).unwrap();
    let stats = Store::open(Config::new(dir.path())).unwrap().close();
    let [problem] = stats.problems.list() else {
        panic!("{:?}", stats.problems)
    };
    assert!(problem.message.contains("not of hopwise"), "{problem:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    // The file of the current period decides: nothing is written beside it.
    let dir = Dir::new("newer-today");
    let store = Store::open(Config::new(dir.path())).unwrap();
    keep(&store, changes(now(), 1, 1));
    store.close();
    let today = dir.path().join(&dir.names()[0]);
    let conn = rusqlite::Connection::open(&today).unwrap();
    conn.pragma_update(None, "user_version", 10).unwrap();
    conn.close().unwrap();
    let error = Store::open(Config::new(dir.path())).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Newer {
                found: 10,
                known: 9,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn submit_waits_while_the_queue_is_full() {
    let dir = Dir::new("block");
    let config = Config {
        queue_batches: 1,
        ..Config::new(dir.path())
    };
    let store = Store::open(config).unwrap();
    for _ in 0..50 {
        store.submit(changes(START, 1000, 1000));
        balanced(&store.stats());
    }
    let stats = store.close();
    assert_eq!(
        (stats.submitted, stats.committed, stats.shed),
        (50_000, 50_000, 0)
    );
}

#[test]
fn a_file_that_grows_past_its_share_is_continued_in_parts() {
    let dir = Dir::new("parts");
    let config = Config {
        max_bytes: Some(32 << 20),
        ..Config::new(dir.path())
    };
    // A share of 4 MB: less than these 60,000 events.
    let store = Store::open(config.clone()).unwrap();
    (0..6).for_each(|i| keep(&store, changes(START + i * SECOND, 10_000, 10)));
    store.close();
    // Sizes are checked when the store is opened, and every few seconds.
    let store = Store::open(config.clone()).unwrap();
    keep(&store, changes(START, 10, 1));
    let stats = store.close();
    assert_eq!(dir.names(), ["hopwise-2026-11-21.2.db", FILE]);
    assert_eq!((stats.files, count(&dir)), (2, 60_010));
}
