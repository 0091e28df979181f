use std::path::Path;

use super::*;
use crate::schema;
use testkit::records::{Dir, SECOND, START, changes};

/// A writer without its thread, and its accounts.
fn writer(dir: &Dir) -> (Writer, Arc<Shared>) {
    let shared = Arc::new(Shared::default());
    (
        Writer::new(
            Config::new(dir.path()),
            Arc::clone(&shared),
            Numbering::new(START, 0),
            None,
        ),
        shared,
    )
}

fn deliver(writer: &mut Writer, shared: &Shared, batch: Batch) {
    let mut stats = shared.stats();
    stats.submitted += batch.len() as u64;
    stats.queued += batch.len() as u64;
    stats.queue_len += 1;
    drop(stats);
    writer.process(&Work::Batch(&batch));
    let stats = shared.stats();
    assert_eq!(stats.balance().0, stats.balance().1, "{stats:?}");
}

#[test]
fn a_failed_transaction_is_counted_and_the_next_second_is_another_try() {
    let dir = Dir::new("failed");
    let (mut writer, shared) = writer(&dir);
    deliver(&mut writer, &shared, changes(START, 100, 10));
    writer.commit();
    // The file may not grow: SQLite then returns the same error as for a full disk.
    writer.segment.as_ref().unwrap().forbid_growth();
    (1..=3).for_each(|i| deliver(&mut writer, &shared, changes(START + i * SECOND, 5000, 1000)));
    writer.commit();
    let stats = shared.stats().clone();
    assert_eq!((stats.committed, stats.state), (100, State::Full));
    assert_eq!(stats.failed + stats.shed, 15_000);
    assert!(stats.failed >= 5000);
    // Within the second nothing is tried.
    deliver(&mut writer, &shared, changes(START, 10, 1));
    assert_eq!(shared.stats().shed, stats.shed + 10);
    // Afterwards the next batch tests the disk. Names interned in the lost transaction are interned again.
    writer.retry_at = Some(Instant::now());
    deliver(&mut writer, &shared, changes(START, 5000, 1000));
    assert_eq!(shared.stats().state, State::Full);
    writer.commit();
    let stats = shared.stats().clone();
    assert_eq!(
        (stats.committed, stats.state, stats.message),
        (5100, State::Ok, None)
    );
}

#[test]
fn the_log_is_copied_when_it_is_long_and_not_at_every_commit() {
    let dir = Dir::new("log");
    let (mut writer, shared) = writer(&dir);
    let mut seen = Vec::new();
    for i in 0..120 {
        deliver(&mut writer, &shared, changes(START + i * SECOND, 2000, 500));
        writer.commit();
        let log = writer.segment.as_ref().unwrap().log();
        assert!(
            log.uncheckpointed <= IDLE_CHECKPOINT_BYTES && log.size <= IDLE_CHECKPOINT_BYTES + (2 << 20),
            "{log:?}"
        );
        seen.push(log);
    }
    // It grew for many commits, was copied as a whole, and was reset, several times.
    let copied = seen.iter().filter(|log| log.uncheckpointed == 0).count();
    assert!((2..20).contains(&copied), "{copied} of {}", seen.len());
    let anew = seen.windows(2).filter(|pair| pair[1].size < pair[0].size).count();
    assert!(anew >= copied - 1, "{anew} of {copied}");
}

#[test]
fn under_a_flood_a_file_goes_on_in_the_next_at_its_share() {
    let dir = Dir::new("flood");
    let (mut writer, shared) = writer(&dir);
    // Four parts of the minimum size. Neither the commit timer nor housekeeping runs.
    let max_bytes = 4 * MIN_PART_BYTES;
    writer.config.max_bytes = Some(max_bytes);
    for i in 0..40 {
        deliver(&mut writer, &shared, changes(START + i * SECOND, 5000, 100));
    }
    writer.commit();
    writer.segment = None;
    let found = files::list(dir.path()).unwrap();
    let sizes: Vec<u64> = found.iter().map(|file| file.bytes).collect();
    assert!(
        sizes.len() >= 4 && sizes.iter().all(|size| *size < 2 * MIN_PART_BYTES),
        "{sizes:?}"
    );
    assert_eq!(shared.stats().committed, 40 * 5000);
    // So the oldest part goes, and most is kept.
    writer.housekeeping(Instant::now());
    let stats = shared.stats().clone();
    assert!(
        stats.deleted >= 1 && (max_bytes / 2..=max_bytes).contains(&stats.bytes),
        "{stats:?}"
    );
}

#[test]
fn a_transaction_does_not_grow_without_bound() {
    let dir = Dir::new("large");
    let (mut writer, shared) = writer(&dir);
    for _ in 0..MAX_TRANSACTION / 10_000 {
        assert_eq!(shared.stats().committed, 0);
        deliver(&mut writer, &shared, changes(START, 10_000, 10));
    }
    assert_eq!(shared.stats().committed, MAX_TRANSACTION);
}

/// Bulk writing after 2000 events, in files of 5000, at any rate.
const SMALL: Bulk = Bulk {
    rate: 1,
    min_events: 2000,
    max_events: 5000,
    calm_period: Duration::from_secs(3600),
};

fn commit_and_roll(writer: &mut Writer) {
    writer.commit();
    writer.roll_if_due();
}

/// Events that a reader finds: all of them, and those of one flow.
fn found(dir: &Path) -> [i64; 2] {
    let reader = crate::Reader::open(dir).unwrap();
    let flow = testkit::records::flow(7).to_string();
    [
        "SELECT count(*) FROM events",
        "SELECT count(*) FROM events WHERE flow = ?1",
    ]
    .map(|sql| {
        let params = if sql.contains('?') {
            vec![crate::Value::Text(flow.clone())]
        } else {
            Vec::new()
        };
        let table = reader
            .query(
                sql,
                &crate::QueryOptions {
                    params,
                    ..Default::default()
                },
            )
            .unwrap();
        assert_eq!(table.notes, [] as [String; 0]);
        if let crate::Value::Int(count) = table.rows[0][0] {
            count
        } else {
            panic!("{table:?}")
        }
    })
}

fn is_indexed(file: &files::StoreFile) -> bool {
    let conn = rusqlite::Connection::open(&file.path).unwrap();
    let check: String = conn
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    schema::has_event_indexes(&conn).unwrap()
}

/// Whether each file has indexes on events, in order. Each must be sound.
fn indexed(dir: &Path) -> Vec<bool> {
    files::list(dir).unwrap().iter().map(is_indexed).collect()
}

#[test]
fn at_a_high_rate_indexes_are_built_when_a_file_is_complete() {
    let dir = Dir::new("bulk");
    let (mut writer, shared) = writer(&dir);
    writer.bulk = SMALL;
    let mut seen = Vec::new();
    let mut expected = [0, 0];
    let mut deliver = |writer: &mut Writer, second: u64, count: u32| {
        let batch = changes(START + second * SECOND, count, 100);
        let of_flow = batch
            .events()
            .filter(|(event, _)| event.flow == Some(testkit::records::flow(7)));
        expected = [
            expected[0] + i64::from(count),
            expected[1] + of_flow.count() as i64,
        ];
        deliver(writer, &shared, batch);
        expected
    };
    for round in 1..=4 {
        let expected = deliver(&mut writer, round, 2000);
        commit_and_roll(&mut writer);
        // What is committed is found, with indexes or without.
        assert_eq!(found(dir.path()), expected);
        seen.push(writer.segment.as_ref().unwrap().is_indexed());
    }
    // The first file is written with indexes up to 2000 events, the second without up to 5000, and so is the third.
    assert_eq!(seen, [false, false, false, false]);
    // The rate is low again: the third file gets its indexes, and the next is written with them.
    writer.busy_at = None;
    writer.bulk.rate = 1_000_000;
    let expected = deliver(&mut writer, 9, 100);
    commit_and_roll(&mut writer);
    assert!(writer.segment.as_ref().unwrap().is_indexed());
    writer.close();
    writer.indexer.finish();
    assert_eq!(indexed(dir.path()), [true; 4]);
    assert_eq!(found(dir.path()), expected);
    let stats = shared.stats().clone();
    assert_eq!(
        (stats.indexed_later, stats.index_failures, stats.committed),
        (2, 0, 8100)
    );
}

/// A writer whose second file is one without indexes, and ten events in the first.
fn bulk_writer(dir: &Dir) -> (Writer, Arc<Shared>) {
    let (mut writer, shared) = writer(dir);
    writer.bulk = Bulk {
        min_events: 0,
        ..SMALL
    };
    deliver(&mut writer, &shared, changes(START, 10, 10));
    writer.commit();
    (writer, shared)
}

#[test]
fn the_writer_keeps_the_indexes_when_too_many_files_wait_for_theirs() {
    let dir = Dir::new("behind");
    let (mut writer, _shared) = bulk_writer(&dir);
    // Nobody takes these out.
    writer.indexer.pretend_pending(["a", "b"]);
    writer.roll_if_due();
    assert!(writer.segment.as_ref().unwrap().is_indexed());
    writer.indexer.pretend_pending([]);
    writer.roll_if_due();
    assert!(!writer.segment.as_ref().unwrap().is_indexed());
    // A file in work is not written into.
    let path = writer.segment.as_ref().unwrap().path().to_owned();
    writer.indexer.pretend_pending([path.to_str().unwrap()]);
    let id = writer.segment.take().unwrap().id();
    writer.open(id).unwrap();
    assert_eq!(writer.segment.as_ref().unwrap().id(), id.next_part());
}

#[test]
fn a_file_that_a_failure_left_without_indexes_gets_them_when_another_is_opened() {
    let dir = Dir::new("failed-bulk");
    let (mut writer, shared) = bulk_writer(&dir);
    writer.roll_if_due();
    deliver(&mut writer, &shared, changes(START + SECOND, 10, 10));
    writer.commit();
    assert_eq!(indexed(dir.path()), [true, false]);
    writer.fail(&Error::io(dir.path(), std::io::ErrorKind::StorageFull.into()), 0);
    // It is continued, or another day's is begun.
    writer.busy_at = None;
    writer.bulk.rate = u64::MAX;
    writer
        .open(FileId::containing(START + 86_400 * SECOND, crate::Period::Day))
        .unwrap();
    writer.indexer.finish();
    assert_eq!(indexed(dir.path()), [true, true, true]);
}

const CHILD: &str = "HOPWISE_STORE_BULK_CHILD";

/// The child process writes in bulk until it is killed, and prints how much is committed. In a normal run this does nothing.
#[test]
fn child_writes_in_bulk_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD) else {
        return;
    };
    let shared = Arc::new(Shared::default());
    let mut writer = Writer::new(
        Config::new(dir),
        Arc::clone(&shared),
        Numbering::new(START, 0),
        None,
    );
    writer.bulk = Bulk {
        max_events: 20_000,
        ..SMALL
    };
    for round in 0.. {
        deliver(
            &mut writer,
            &shared,
            changes(START + round * SECOND / 1000, 500, 100),
        );
        commit_and_roll(&mut writer);
        let stats = shared.stats();
        println!("committed {} indexed {}", stats.committed, stats.indexed_later);
    }
}

#[test]
fn a_kill_while_indexes_are_built_costs_nothing_and_they_are_built_afterwards() {
    use std::io::BufRead as _;
    let mut total = 0;
    let mut left_out = 0;
    for round in 0..10_u64 {
        let dir = Dir::new("bulk-kill");
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "writer::tests::child_writes_in_bulk_until_it_is_killed",
                "--nocapture",
            ])
            .env(CHILD, dir.path())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let output = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.lines().map_while(Result::ok).filter_map(|line| {
            let (_, numbers) = line.split_once("committed ")?;
            numbers.split_once(" indexed ")?.0.parse::<u64>().ok()
        });
        // About where a file ends, so that some kills meet the building of indexes.
        let wanted = 22_000 + round * 400;
        let reported = lines.find(|committed| *committed >= wanted).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let reported = lines.last().unwrap_or(reported);
        left_out += indexed(dir.path()).iter().filter(|indexed| !**indexed).count();
        // Opening it is enough: the next process does what was left.
        let store = crate::Store::open(Config::new(dir.path())).unwrap();
        assert_eq!(store.finish().set_aside, 0);
        assert!(indexed(dir.path()).iter().all(|indexed| *indexed));
        let [all, of_flow] = found(dir.path());
        assert!(
            all as u64 >= reported && all % 500 == 0 && of_flow == all / 100,
            "{all} of {reported}"
        );
        total += all;
    }
    assert!(left_out > 0 && total > 220_000);
}

/// A reader that holds the file as it is now. It writes nothing, also when it is closed.
fn hold(path: &Path) -> rusqlite::Connection {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let conn = rusqlite::Connection::open_with_flags(path, flags).unwrap();
    conn.execute_batch("BEGIN; SELECT count(*) FROM event_data")
        .unwrap();
    conn
}

/// Whether each file has a log.
fn logs(dir: &Path) -> Vec<bool> {
    files::list(dir)
        .unwrap()
        .iter()
        .map(|file| file.wal_bytes > 0)
        .collect()
}

#[test]
fn logs_that_readers_held_are_copied_and_one_that_is_held_delays_no_other() {
    let dir = Dir::new("logs-stay");
    let (mut writer, shared) = writer(&dir);
    let mut readers = Vec::new();
    for day in 0..4 {
        deliver(
            &mut writer,
            &shared,
            changes(START + 2 * day * 86_400 * SECOND, 100, 10),
        );
        writer.commit();
        readers.push(hold(writer.segment.as_ref().unwrap().path()));
    }
    assert_eq!(logs(dir.path()), [true; 4]);
    // The first one is held for longer; the last one is being written.
    readers.truncate(1);
    for expected in [
        [true, true, true, true],
        [true, false, true, true],
        [true, false, false, true],
    ] {
        writer.housekeeping(Instant::now());
        writer.indexer.finish();
        assert_eq!(logs(dir.path()), expected);
    }
    readers.clear();
    writer.housekeeping(Instant::now());
    writer.indexer.finish();
    assert_eq!(logs(dir.path()), [false, false, false, true]);
}
