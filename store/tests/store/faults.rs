//! Files that are damaged, moved, held by readers, or on a disk that is full or read-only: each record is stored or counted as lost, and
//! each problem stays named as long as it lasts.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use rusqlite::{Connection, OpenFlags};
use store::{Config, FileState, ProblemKind, State, Store, check};
use testkit::records::{Dir, SECOND, START, changes};

use crate::keeping::{balanced, count, keep, problems};

const DAY: u64 = 86_400 * SECOND;
const FILE: &str = "hopwise-2026-11-21.db";
const ASIDE: &str = "hopwise-2026-11-21.db.corrupt-1";
const NOBODY: u32 = 65_534;

/// Has the store look at its files, and waits for it.
fn housekeeping(store: &Store) {
    store.set_retention(None, None);
    store.flush();
}

fn overwrite(path: &Path, at: u64, len: usize) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(&vec![0x5a; len], at).unwrap();
}

fn events_in(path: &Path) -> i64 {
    let conn = Connection::open(path).unwrap();
    conn.query_row("SELECT count(*) FROM event_data", [], |row| row.get(0))
        .unwrap()
}

/// A reader that holds the file as it is now. It writes nothing, also when it is closed.
fn hold(path: &Path) -> Connection {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    conn.execute_batch("BEGIN; SELECT count(*) FROM event_data")
        .unwrap();
    conn
}

fn run(command: &str, args: &[&str]) {
    let output = Command::new(command).args(args).output().unwrap();
    assert!(output.status.success(), "{command} {args:?}: {output:?}");
}

/// Runs the test of this name again in a process that `wrapper` starts. Returns whether this is that process; without root the test is skipped.
fn is_wrapped(test: &str, wrapper: &[&str], dir: Option<&Path>) -> bool {
    const WRAPPED: &str = "HOPWISE_STORE_WRAPPED";
    if std::env::var_os(WRAPPED).is_some() {
        return true;
    }
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: it needs root");
        return false;
    }
    let output = Command::new(wrapper[0])
        .args(&wrapper[1..])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("faults::{test}"), "--nocapture"])
        .env(WRAPPED, dir.unwrap_or(Path::new("")))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    false
}

#[test]
fn an_old_file_that_is_damaged_behind_its_first_page_stays_named() {
    let dir = Dir::new("old-inside");
    let store = Store::open(Config::new(dir.path())).unwrap();
    keep(&store, changes(START, 100, 10));
    keep(&store, changes(START + 2 * DAY, 10, 1));
    store.close();
    let path = dir.path().join(FILE);
    let conn = Connection::open(&path).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'run_data'";
    let page: u64 = conn
        .query_row(sql, [], |row| row.get::<_, i64>(0))
        .unwrap()
        .unsigned_abs();
    drop(conn);
    overwrite(&path, (page - 1) * 8192, 8192);
    let store = Store::open(Config::new(dir.path())).unwrap();
    for _ in 0..2 {
        let stats = store.stats();
        assert_eq!(problems(&stats), [(FILE, ProblemKind::Damaged, 0)]);
        let message = &stats.problems.list()[0].message;
        assert!(
            message.contains("malformed") && message.contains("hopwise store check"),
            "{message}"
        );
        housekeeping(&store);
    }
    fs::remove_file(&path).unwrap();
    housekeeping(&store);
    assert_eq!(store.stats().problems.count(ProblemKind::Damaged), 0);
}

#[test]
fn records_of_a_file_that_is_set_aside_are_counted_as_lost() {
    let dir = Dir::new("aside-lost");
    let store = Store::open(Config::new(dir.path())).unwrap();
    keep(&store, changes(START, 100, 10));
    keep(&store, changes(START + 2 * DAY, 50, 5));
    overwrite(&dir.path().join(FILE), 0, 100);
    keep(&store, changes(START, 10, 1));
    let stats = store.close();
    balanced(&stats);
    assert_eq!((stats.committed, stats.failed, stats.set_aside), (160, 0, 1));
    assert_eq!((stats.removed, stats.stored(), stats.lost()), (100, 60, 100));
    assert_eq!(problems(&stats), [(ASIDE, ProblemKind::Damaged, 100)]);
}

#[test]
fn a_file_that_is_moved_away_has_all_that_was_committed() {
    let dir = Dir::new("moved-away");
    let store = Store::open(Config::new(dir.path())).unwrap();
    keep(&store, changes(START, 100, 10));
    let elsewhere = dir.path().join("elsewhere.db");
    fs::rename(dir.path().join(FILE), &elsewhere).unwrap();
    keep(&store, changes(START + SECOND, 50, 5));
    let stats = store.close();
    assert_eq!((events_in(&elsewhere), count(&dir)), (100, 50));
    assert_eq!((stats.committed, stats.removed), (150, 100));
}

const LOG: &str = "hopwise-2026-11-21.db-wal";

/// A store whose log was removed with 150 records in it, and a reader that keeps the log from being copied into the file.
fn with_removed_log(dir: &Dir) -> (Store, Connection) {
    let store = Store::open(Config::new(dir.path())).unwrap();
    keep(&store, changes(START, 100, 10));
    let reader = hold(&dir.path().join(FILE));
    keep(&store, changes(START + SECOND, 50, 5));
    fs::remove_file(dir.path().join(LOG)).unwrap();
    (store, reader)
}

#[test]
fn a_removed_log_that_a_reader_holds_is_copied_when_the_reader_is_done() {
    let dir = Dir::new("log-held");
    let (store, reader) = with_removed_log(&dir);
    keep(&store, changes(START + 2 * SECOND, 10, 1));
    let stats = store.stats();
    assert_eq!(
        (stats.committed, stats.failed, problems(&stats)),
        (160, 0, vec![]),
        "it is not over yet"
    );
    drop(reader);
    housekeeping(&store);
    let stats = store.stats();
    assert_eq!(problems(&stats), [(LOG, ProblemKind::Removed, 0)]);
    assert!(
        stats.problems.list()[0].message.contains("nothing was lost"),
        "{stats:?}"
    );
    assert_eq!(count(&dir), 160);
    keep(&store, changes(START + 3 * SECOND, 5, 1));
    assert_eq!((store.close().lost(), count(&dir)), (0, 165));
}

#[test]
fn records_of_a_removed_log_that_cannot_be_copied_are_counted_as_lost() {
    let dir = Dir::new("log-lost");
    let (store, reader) = with_removed_log(&dir);
    let stats = store.close();
    drop(reader);
    balanced(&stats);
    assert_eq!((stats.committed, stats.removed, stats.lost()), (150, 150, 150));
    assert_eq!(problems(&stats), [(LOG, ProblemKind::Removed, 150)]);
    let message = &stats.problems.list()[0].message;
    assert!(message.contains("up to 150 records"), "{message}");
}

#[test]
fn the_first_64_problems_are_listed_and_the_others_counted() {
    let dir = Dir::new("many");
    for year in 0..70 {
        fs::create_dir(dir.path().join(format!("hopwise-{}-01-01.db", 1980 + year % 40))).ok();
        fs::create_dir(dir.path().join(format!("hopwise-{}-02-01.db", 1980 + year % 40))).ok();
    }
    let store = Store::open(Config::new(dir.path())).unwrap();
    let first = store.stats().problems;
    assert_eq!((first.list().len(), first.more()), (64, 16));
    assert_eq!(first.count(ProblemKind::Unreadable), 80);
    for _ in 0..3 {
        housekeeping(&store);
        assert_eq!(store.stats().problems, first, "none is named anew");
    }
    for year in 0..9 {
        fs::remove_dir(dir.path().join(format!("hopwise-{}-01-01.db", 1980 + year))).unwrap();
    }
    housekeeping(&store);
    let after = store.stats().problems;
    assert_eq!(
        (after.list().len(), after.more(), after.list()[63].number),
        (64, 7, 73)
    );
    // What happens is listed beside what lasts.
    keep(&store, changes(START, 10, 1));
    fs::remove_file(dir.path().join(FILE)).unwrap();
    housekeeping(&store);
    let after = store.stats().problems;
    assert_eq!(
        (
            after.list().len(),
            after.more(),
            after.count(ProblemKind::Removed)
        ),
        (65, 7, 1)
    );
}

#[test]
fn files_that_were_set_aside_expire_as_others() {
    let old = SystemTime::now() - Duration::from_secs(3600);
    let dir = Dir::new("aside-expires");
    let aside = dir.path().join(ASIDE);
    for max_age in [true, false] {
        fs::write(&aside, vec![0x5a; 5 << 20]).unwrap();
        fs::File::options()
            .write(true)
            .open(&aside)
            .unwrap()
            .set_modified(old)
            .unwrap();
        let config = Config::new(dir.path());
        let config = match max_age {
            true => Config {
                max_age: Some(Duration::from_secs(1800)),
                ..config
            },
            false => Config {
                max_bytes: Some(4 << 20),
                ..config
            },
        };
        let stats = Store::open(config).unwrap().close();
        assert_eq!(
            (stats.deleted, aside.exists(), problems(&stats)),
            (1, false, vec![]),
            "{max_age}"
        );
    }
}

/// A store of another user with a damaged file, as a package installs it.
fn damaged_of_nobody(dir: &Dir) -> PathBuf {
    let store = Store::open(Config::new(dir.path())).unwrap();
    keep(&store, changes(START, 20_000, 100));
    store.close();
    let path = dir.path().join(FILE);
    overwrite(&path, fs::metadata(&path).unwrap().len() / 8192 / 2 * 8192, 8192);
    fs::remove_file(dir.path().join("hopwise.lock")).unwrap();
    path
}

#[test]
fn what_root_salvages_belongs_to_the_owner_of_the_store() {
    let test = "what_root_salvages_belongs_to_the_owner_of_the_store";
    if let Some(dir) = std::env::var_os("HOPWISE_STORE_WRAPPED") {
        // As the service: it finds the records, and starts.
        let reader = store::Reader::open(&dir).unwrap();
        let table = reader
            .query("SELECT count(*) FROM events", &store::QueryOptions::default())
            .unwrap();
        assert!(
            matches!(table.rows[0][0], store::Value::Int(15_000..)),
            "{table:?}"
        );
        let store = Store::open(Config::new(&dir)).unwrap();
        keep(&store, changes(START, 10, 1));
        assert_eq!(store.close().lost(), 0);
        return;
    }
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: it needs root");
        return;
    }
    let dir = Dir::new("owner");
    let path = damaged_of_nobody(&dir);
    for path in [dir.path(), &path] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let checked = check(dir.path(), true).unwrap();
    assert!(checked[0].salvaged.is_some(), "{checked:?}");
    for entry in fs::read_dir(dir.path()).unwrap() {
        let (path, meta) = entry
            .map(|entry| (entry.path(), entry.metadata().unwrap()))
            .unwrap();
        assert_eq!((meta.uid(), meta.gid()), (NOBODY, NOBODY), "{}", path.display());
    }
    let wrapper = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    assert!(!is_wrapped(test, &wrapper, Some(dir.path())));
}

/// Mounts a file system in memory in this process's mount namespace.
fn mount(dir: &Path, size: &str) {
    run(
        "mount",
        &[
            "-t",
            "tmpfs",
            "-o",
            &format!("size={size}"),
            "tmpfs",
            dir.to_str().unwrap(),
        ],
    );
}

fn free(dir: &Path) -> u64 {
    let found = nix::sys::statvfs::statvfs(dir).unwrap();
    found.blocks_available() * found.fragment_size()
}

#[test]
fn nothing_is_salvaged_into_a_file_that_is_not_whole() {
    if !is_wrapped(
        "nothing_is_salvaged_into_a_file_that_is_not_whole",
        &["unshare", "-m"],
        None,
    ) {
        return;
    }
    let dir = Dir::new("salvage-full");
    mount(dir.path(), "100m");
    let path = damaged_of_nobody(&dir);
    let copy = fs::read(&path).unwrap();
    let expected = check(dir.path(), true).unwrap()[0].salvaged.clone().unwrap();
    let size = fs::metadata(&path).unwrap().len();
    for name in dir.names() {
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    fs::write(&path, copy).unwrap();
    // The log of the new file fits, the file beside it does not.
    let filler = dir.path().join("filler");
    fs::write(&filler, vec![0; (free(dir.path()) - size * 3 / 2) as usize]).unwrap();
    let checked = check(dir.path(), true).unwrap();
    assert_eq!(
        (checked[0].state, &checked[0].salvaged),
        (FileState::Damaged, &None),
        "{checked:?}"
    );
    let message = checked[0].message.as_ref().unwrap();
    assert!(
        message.contains("cannot be salvaged") && message.contains("full"),
        "{message}"
    );
    let mut names = dir.names();
    // Reading a file makes an empty log.
    names.retain(|name| !name.ends_with("-wal"));
    assert_eq!(names, ["filler", ASIDE], "nothing else stays");
    fs::remove_file(&filler).unwrap();
    let checked = check(dir.path(), true).unwrap();
    assert_eq!(checked[0].salvaged.as_ref().unwrap().records, expected.records);
    assert_eq!(events_in(&path), expected.records.events as i64);
    run("umount", &["-l", dir.path().to_str().unwrap()]);
}

#[test]
fn a_read_only_disk_is_named_and_storing_goes_on_when_it_can_be_written_again() {
    let test = "a_read_only_disk_is_named_and_storing_goes_on_when_it_can_be_written_again";
    if !is_wrapped(test, &["unshare", "-m"], None) {
        return;
    }
    let dir = Dir::new("read-only");
    let disk = dir.path().join("disk");
    let folder = dir.path().join("store");
    let [from, to] = [&disk, &folder].map(|path| path.to_str().unwrap());
    fs::create_dir(&disk).unwrap();
    fs::create_dir(&folder).unwrap();
    mount(&disk, "50m");
    run("mount", &["--bind", from, to]);
    let store = Store::open(Config::new(&folder)).unwrap();
    keep(&store, changes(START, 100, 10));
    // A mount with files that are open for writing cannot be made read-only: another one takes its place.
    run("umount", &["-l", to]);
    run("mount", &["--bind", from, to]);
    run("mount", &["-o", "remount,bind,ro", to]);
    keep(&store, changes(START + 2 * DAY, 50, 5));
    let stats = store.stats();
    balanced(&stats);
    assert_eq!(
        (stats.committed, stats.failed, stats.state),
        (100, 50, State::Failing)
    );
    let message = stats.message.unwrap();
    assert!(message.contains("Read-only file system"), "{message}");
    run("mount", &["-o", "remount,bind,rw", to]);
    let begun = Instant::now();
    while store.stats().state != State::Ok {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", store.stats());
        keep(&store, changes(START + 2 * DAY, 10, 1));
    }
    let stats = store.close();
    balanced(&stats);
    assert_eq!(stats.stored() + stats.lost(), stats.submitted);
    assert_eq!(
        (stats.removed, stats.moved_files, problems(&stats)),
        (0, 0, vec![])
    );
    let reader = store::Reader::open(&folder).unwrap();
    let table = reader
        .query("SELECT count(*) FROM events", &store::QueryOptions::default())
        .unwrap();
    assert_eq!(table.rows, [[store::Value::Int(stats.stored() as i64)]]);
    run("umount", &["-l", to]);
    run("umount", &["-l", from]);
}
