//! Checking files, and saving what can be read of damaged ones.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use std::os::unix::fs::FileExt as _;

use collector::event::Stream;
use store::{Config, FileState, Follower, QueryOptions, Reader, Store, StreamPosition, Value, check};
use testkit::records::{Dir, SECOND, START, changes};

const FILE: &str = "hopwise-2026-11-21.db";
const ASIDE: &str = "hopwise-2026-11-21.db.corrupt-1";

fn filled(name: &str) -> Dir {
    let dir = Dir::new(name);
    let store = Store::open(Config::new(dir.path())).unwrap();
    store.submit(changes(START, 20_000, 100));
    store.close();
    dir
}

fn states(dir: &Dir, salvage: bool) -> Vec<(String, FileState)> {
    check(dir.path(), salvage)
        .unwrap()
        .into_iter()
        .map(|file| (file.file, file.state))
        .collect()
}

fn damage(dir: &Dir, at: u64, len: usize) {
    let file = std::fs::File::options()
        .write(true)
        .open(dir.path().join(FILE))
        .unwrap();
    file.write_all_at(&vec![0x5a; len], at).unwrap();
}

fn count(dir: &Dir, sql: &str) -> i64 {
    let table = Reader::open(dir.path())
        .unwrap()
        .query(sql, &QueryOptions::default())
        .unwrap();
    let Value::Int(count) = table.rows[0][0] else {
        panic!("{table:?}")
    };
    count
}

#[test]
fn a_good_store_is_good_also_while_it_is_written() {
    let dir = filled("check-good");
    assert_eq!(states(&dir, false), [(FILE.to_owned(), FileState::Good)]);
    let store = Store::open(Config::new(dir.path())).unwrap();
    store.submit(changes(START + SECOND, 100, 1));
    store.flush();
    let checked = check(dir.path(), true).unwrap();
    assert_eq!(checked.len(), 1);
    let records = checked[0].records.unwrap();
    assert_eq!(
        (checked[0].state, records.events, records.flows),
        (FileState::Good, 20_100, 100)
    );
    assert_eq!(store.close().committed, 100);
}

#[test]
fn what_can_be_read_of_a_damaged_file_is_in_answers_again() {
    let dir = filled("salvage");
    let size = std::fs::metadata(dir.path().join(FILE)).unwrap().len();
    // Three pages in the middle of the file, and its beginning.
    damage(&dir, size / 8192 / 2 * 8192, 3 * 8192);
    assert_eq!(states(&dir, false), [(FILE.to_owned(), FileState::Damaged)]);
    damage(&dir, 0, 100);
    assert_eq!(states(&dir, false), [(FILE.to_owned(), FileState::Damaged)]);
    let store = Store::open(Config::new(dir.path())).unwrap();
    assert_eq!(store.stats().set_aside, 1);
    store.submit(changes(START, 10, 1));
    store.flush();
    // While it is written, what was set aside is salvaged.
    let checked = check(dir.path(), true).unwrap();
    assert_eq!(
        checked
            .iter()
            .map(|file| (&*file.file, file.state))
            .collect::<Vec<_>>(),
        [(FILE, FileState::Good), (ASIDE, FileState::Damaged)]
    );
    let salvaged = checked[1].salvaged.clone().unwrap();
    assert_eq!(salvaged.file.as_deref(), Some("hopwise-2026-11-21.2.db"));
    let events = salvaged.records.events;
    assert!(events > 15_000 && events <= 20_000, "{events}");
    assert_eq!(count(&dir, "SELECT count(*) FROM events"), events as i64 + 10);
    assert!(
        count(
            &dir,
            "SELECT count(*) FROM events WHERE flow IS NOT NULL AND kind = 'change'"
        ) > 15_000
    );
    assert_eq!(store.close().lost(), 0);
    let after = [
        (FILE.to_owned(), FileState::Good),
        ("hopwise-2026-11-21.db.salvaged-1".to_owned(), FileState::Salvaged),
        ("hopwise-2026-11-21.2.db".to_owned(), FileState::Good),
    ];
    assert_eq!(states(&dir, true), after, "once is enough");
    // Nobody goes on writing into it, and an export gets its records.
    let store = Store::open(Config::new(dir.path())).unwrap();
    store.submit(changes(START, 10, 1));
    assert_eq!(store.close().lost(), 0);
    assert_eq!(count(&dir, "SELECT count(*) FROM events"), events as i64 + 20);
    let chunk = Follower::new(dir.path())
        .read(
            Stream::Events,
            StreamPosition::default(),
            None,
            usize::MAX,
            usize::MAX,
        )
        .unwrap();
    assert_eq!(chunk.records.len() as u64, events + 20);
}

#[test]
fn damage_of_a_store_that_nobody_writes_is_set_aside_and_salvaged_at_once() {
    let dir = filled("salvage-alone");
    let size = std::fs::metadata(dir.path().join(FILE)).unwrap().len();
    damage(&dir, size / 8192 / 3 * 8192, 8192);
    let checked = check(dir.path(), true).unwrap();
    let salvaged = checked[0].salvaged.clone().unwrap();
    assert_eq!(salvaged.file.as_deref(), Some(FILE));
    assert_eq!(salvaged.renamed, "hopwise-2026-11-21.db.salvaged-1");
    assert_eq!(
        count(&dir, "SELECT count(*) FROM events"),
        salvaged.records.events as i64
    );
    // Of a file without anything readable nothing is made.
    let path = dir.path().join(FILE);
    std::fs::write(&path, vec![0x5a; 100_000]).unwrap();
    let checked = check(dir.path(), true).unwrap();
    assert_eq!(
        checked[0].salvaged.as_ref().map(|salvaged| salvaged.file.clone()),
        Some(None)
    );
    let mut names = dir.names();
    // Reading a file makes an empty log.
    names.retain(|name| !name.ends_with("-wal"));
    assert_eq!(
        names,
        [
            "hopwise-2026-11-21.db.salvaged-1",
            "hopwise-2026-11-21.db.salvaged-2"
        ]
    );
}

#[test]
fn two_commands_do_not_salvage_at_the_same_time() {
    let dir = filled("salvage-twice");
    damage(&dir, 0, 100);
    let lock = std::fs::File::open(dir.path()).unwrap();
    lock.try_lock().unwrap();
    let error = check(dir.path(), true).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("another `hopwise store check --salvage` is running in "),
        "{error}"
    );
    assert_eq!(states(&dir, false), [(FILE.to_owned(), FileState::Damaged)]);
    drop(lock);
    assert!(check(dir.path(), true).unwrap()[0].salvaged.is_some());
}

#[test]
fn only_a_process_that_writes_is_said_to_write() {
    let dir = filled("salvage-locked");
    let lock = dir.path().join("hopwise.lock");
    std::fs::remove_file(&lock).unwrap();
    damage(&dir, 0, 100);
    std::fs::create_dir(&lock).unwrap();
    let message = check(dir.path(), true).unwrap()[0].message.clone().unwrap();
    assert!(
        message.contains("it cannot be salvaged: ") && message.contains("not a regular file"),
        "{message}"
    );
    std::fs::remove_dir(&lock).unwrap();
    let file = std::fs::File::create(&lock).unwrap();
    file.try_lock().unwrap();
    let message = check(dir.path(), true).unwrap()[0].message.clone().unwrap();
    assert!(
        message.ends_with("a process is writing here: stop it to salvage this file"),
        "{message}"
    );
}
