//! `kill -9`, a torn log, a full disk: a real child process and a real file system.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ffi};
use store::{Config, Error, Period, QueryOptions, Reader, State, Store, Value};
use testkit::records::{Dir, SECOND, START, changes};

const FILE: &str = "hopwise-2026-11-21.db";
const CHILD: &str = "HOPWISE_STORE_TEST_CHILD";
/// Records of one batch; each batch is a transaction in these tests.
const BATCH: u32 = 500;

/// Number of events in the file, after SQLite's integrity check.
fn sound(path: &Path) -> u64 {
    let conn = Connection::open(path).unwrap();
    let check: String = conn
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    let (rows, recorded): (i64, i64) = conn
        .query_row(
            "SELECT (SELECT count(*) FROM event_data), (SELECT value FROM meta WHERE name = 'events')",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!(
        rows, recorded,
        "the file's own counter is part of each transaction"
    );
    rows as u64
}

/// The child process: writes until it is killed, and prints the number of committed records. Does nothing in a normal run.
#[test]
fn child_writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD) else {
        return;
    };
    let config = Config {
        commit_every: Duration::from_millis(2),
        ..Config::new(dir)
    };
    let store = Store::open(config).unwrap();
    for round in 0.. {
        store.submit(changes(START + round * SECOND / 1000, BATCH, 5000));
        println!("committed {}", store.stats().committed);
        std::io::stdout().flush().unwrap();
    }
}

fn start_child(dir: &Dir) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_writes_until_it_is_killed", "--nocapture"])
        .env(CHILD, dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

fn committed(line: &str) -> Option<u64> {
    line.rsplit_once("committed ")
        .and_then(|(_, number)| number.parse().ok())
}

#[test]
fn a_kill_costs_nothing_that_was_committed_and_the_restart_goes_on() {
    let dir = Dir::new("kill");
    let mut before = 0;
    for round in 0..8_u64 {
        let (mut child, output) = start_child(&dir);
        let mut lines = output
            .lines()
            .map_while(Result::ok)
            .filter_map(|line| committed(&line));
        // At a different time in each round: in the first transactions, and late enough for checkpoints.
        let wanted = [1, 2_000, 30_000][round as usize % 3] * (round + 1);
        let mut reported = lines.find(|committed| *committed >= wanted).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        // Its output before it was killed.
        reported = lines.last().unwrap_or(reported);
        let rows = sound(&dir.path().join(FILE));
        let expected = before + reported;
        assert!(
            rows >= expected,
            "round {round}: {rows} rows, {before} before, {reported} committed since"
        );
        assert_eq!(
            rows % u64::from(BATCH),
            0,
            "a batch is in the file as a whole or not at all"
        );
        before = rows;
    }
    // In this process the store opens the file, and continues.
    let store = Store::open(Config::new(dir.path())).unwrap();
    store.submit(changes(START, BATCH, 10));
    let stats = store.close();
    assert_eq!((stats.committed, stats.set_aside), (u64::from(BATCH), 0));
    assert_eq!(sound(&dir.path().join(FILE)), before + u64::from(BATCH));
}

#[test]
fn a_log_torn_at_any_place_leaves_whole_transactions() {
    let dir = Dir::new("torn");
    let store = Store::open(Config {
        ..Config::new(dir.path())
    })
    .unwrap();
    for round in 0..6 {
        store.submit(changes(START + round * SECOND, BATCH, 100));
        store.flush();
    }
    let file = std::fs::read(dir.path().join(FILE)).unwrap();
    let log = std::fs::read(dir.path().join(format!("{FILE}-wal"))).unwrap();
    let mut counts = Vec::new();
    for part in 0..=24 {
        let copy = Dir::new("torn-copy");
        let path = copy.path().join(FILE);
        std::fs::write(&path, &file).unwrap();
        // Truncated at an odd offset, followed by garbage, as after a power failure.
        let mut torn = log[..log.len() * part / 24].to_vec();
        torn.extend([0xa5; 100]);
        std::fs::write(copy.path().join(format!("{FILE}-wal")), torn).unwrap();
        let store = Store::open(Config::new(copy.path())).unwrap();
        store.submit(changes(START, BATCH, 10));
        let stats = store.close();
        assert_eq!((stats.committed, stats.set_aside), (u64::from(BATCH), 0));
        let rows = sound(&path);
        assert_eq!(rows % u64::from(BATCH), 0);
        counts.push(rows / u64::from(BATCH) - 1);
    }
    assert_eq!((counts[0], counts[24]), (0, 6));
    assert!(counts.is_sorted(), "{counts:?}");
}

/// A small file system in memory at `dir`; `false`, reported as skipped, where we may not mount one.
fn mount_small(dir: &Path, size: &str) -> bool {
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
        .arg(dir)
        .output();
    let done = mounted.as_ref().is_ok_and(|output| output.status.success());
    if !done {
        // Directly to standard error: the test runner captures macro output of passing tests.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED full disk: mounting a tmpfs needs root ({mounted:?})"
        );
    }
    done
}

struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// Writes until the store is in this state.
fn write_until(store: &Store, state: State, deadline: Duration) -> store::Stats {
    let start = Instant::now();
    loop {
        // Submitting never fails and never hangs: the batch is accepted and accounted for.
        store.submit(changes(START, BATCH, 1000));
        store.flush();
        let stats = store.stats();
        assert_eq!(stats.balance().0, stats.balance().1, "{stats:?}");
        if stats.state == state {
            break stats;
        }
        assert!(start.elapsed() < deadline, "{stats:?}");
    }
}

#[test]
fn a_full_disk_stops_storing_not_collecting_until_there_is_space() {
    let dir = Dir::new("full");
    if !mount_small(dir.path(), "6m") {
        return;
    }
    let _mounted = Mounted(dir.path());
    let ballast = dir.path().join("ballast");
    std::fs::write(&ballast, vec![1; 3 << 20]).unwrap();
    let config = Config {
        commit_every: Duration::ZERO,
        ..Config::new(dir.path())
    };
    let store = Store::open(config.clone()).unwrap();
    let full = write_until(&store, State::Full, Duration::from_secs(30));
    let message = full.message.unwrap();
    assert!(
        message.ends_with("the disk is full; free some space, and storing resumes"),
        "{message}"
    );
    assert!(full.failed > 0 && full.committed > 0, "{:?}", full.failed);
    // Still full: more is shed, counted, and the file stays as it is.
    store.submit(changes(START, BATCH, 1000));
    store.flush();
    let still = store.stats();
    assert_eq!((still.state, still.committed), (State::Full, full.committed));
    assert_eq!(
        still.shed + still.failed,
        full.shed + full.failed + u64::from(BATCH)
    );
    // A restart while the disk is full: it waits for space as well.
    let filler = dir.path().join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while file.write_all(&[1; 512]).is_ok() {}
    let before = store.close().committed;
    let store = Store::open(config).unwrap();
    store.submit(changes(START, BATCH, 1000));
    store.flush();
    let restarted = store.stats();
    assert_eq!(
        (restarted.committed, restarted.shed + restarted.failed),
        (0, u64::from(BATCH)),
        "{restarted:?}"
    );
    assert_eq!(restarted.state, State::Full, "{restarted:?}");
    std::fs::remove_file(&filler).unwrap();
    std::fs::remove_file(&ballast).unwrap();
    let recovered = write_until(&store, State::Ok, Duration::from_secs(30));
    assert!(recovered.message.is_none() && recovered.committed > 0);
    let stats = store.close();
    assert_eq!((stats.set_aside, stats.queued), (0, 0));
    assert_eq!(sound(&dir.path().join(FILE)), before + stats.committed);
}

#[test]
fn files_where_nothing_may_be_written_can_be_read() {
    let dir = Dir::new("readonly");
    if !mount_small(dir.path(), "8m") {
        return;
    }
    let _mounted = Mounted(dir.path());
    let store = Store::open(Config::new(dir.path())).unwrap();
    store.submit(changes(START, BATCH, 10));
    store.close();
    // Busy while a copy of a descriptor of the store is open.
    let remounted = testkit::descriptors::open_again(|| {
        let mut mount = Command::new("mount");
        let output = mount.args(["-o", "remount,ro"]).arg(dir.path()).output().unwrap();
        if output.status.success() {
            Ok(())
        } else {
            Err(output)
        }
    });
    assert_eq!(remounted, Ok(()));
    let reader = Reader::open(dir.path()).unwrap();
    let table = reader
        .query("SELECT count(*) FROM events", &QueryOptions::default())
        .unwrap();
    assert_eq!(
        (table.rows, table.notes),
        (vec![vec![Value::Int(i64::from(BATCH))]], vec![])
    );
    // A database that was open for writing before fails with an I/O error, and only the file system shows the cause.
    let file = dir.path().join(FILE);
    let broken = || rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_WRITE), None);
    assert_eq!(
        Error::sqlite(&file, broken()).to_string(),
        format!(
            "{}: Read-only file system; remount it read-write (`dmesg` shows why, if it was writable before), or choose another directory",
            file.display()
        )
    );
    // Elsewhere it is an I/O error.
    let elsewhere = std::env::current_exe().unwrap();
    assert!(matches!(Error::sqlite(&elsewhere, broken()), Error::Sqlite(..)));
    // Opening a store there fails at once.
    let error = Store::open(Config::new(dir.path())).unwrap_err();
    assert!(
        error.to_string().ends_with(
            "Read-only file system; remount it read-write (`dmesg` shows why, if it was writable before), or choose another directory"
        ),
        "{error}"
    );
}

fn set_mode(dir: impl AsRef<Path>, mode: u32) {
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Set in the process that loses the right to write into its directory.
const UNPRIVILEGED: &str = "HOPWISE_STORE_TEST_UNPRIVILEGED";

fn write_batch(store: &Store, ts: u64, count: u32) -> store::Stats {
    store.submit(changes(ts, count, 10));
    store.flush();
    let stats = store.stats();
    assert_eq!(stats.balance().0, stats.balance().1, "{stats:?}");
    stats
}

/// Does something only as a child of the next test.
#[test]
fn child_loses_the_right_to_write_into_its_directory() {
    let Some(dir) = std::env::var_os(UNPRIVILEGED).map(PathBuf::from) else {
        return;
    };
    let store = Store::open(Config {
        period: Period::Hour,
        ..Config::new(&dir)
    })
    .unwrap();
    assert_eq!(write_batch(&store, START, 100).committed, 100);
    set_mode(&dir, 0o555);
    // Files that are open are written as before.
    assert_eq!(write_batch(&store, START + SECOND, 50).committed, 150);
    let stats = write_batch(&store, START + 3600 * SECOND, 20);
    assert_eq!(
        (stats.committed, stats.failed, stats.state),
        (150, 20, State::Failing)
    );
    let message = stats.message.unwrap_or_default();
    assert!(
        message.contains("T15.db: Permission denied; check that"),
        "{message}"
    );
    set_mode(&dir, 0o755);
    let start = Instant::now();
    let mut stats = store.stats();
    while stats.state != State::Ok && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
        stats = write_batch(&store, START + 3600 * SECOND, 10);
    }
    assert_eq!(
        (stats.state, stats.message, stats.failed, stats.removed),
        (State::Ok, None, 20, 0)
    );
    assert_eq!(stats.committed + stats.shed + stats.failed, stats.submitted);
    println!("recovered");
}

#[test]
fn a_directory_that_loses_its_write_permission_is_counted_and_recovers_by_itself() {
    let dir = Dir::new("permission");
    // In a user namespace of its own, root has no right beyond those of the files' owner.
    let child = Command::new("unshare")
        .arg("--user")
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "crash::child_loses_the_right_to_write_into_its_directory",
            "--nocapture",
        ])
        .env(UNPRIVILEGED, dir.path())
        .output();
    match child {
        Ok(child) if String::from_utf8_lossy(&child.stderr).contains("unshare failed") => {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED write permission: no user namespaces here"
            );
        }
        Err(error) => {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED write permission: cannot run unshare ({error})"
            );
        }
        Ok(child) => {
            let output = String::from_utf8_lossy(&child.stdout);
            assert!(
                child.status.success() && output.contains("recovered"),
                "{child:?}"
            );
        }
    }
}
