//! Files of Parquet, read by pyarrow and by DuckDB, and compared with JSON of the same records.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use collector::event::Kind;
use export::json;
use export::record::{Record, Stream};
use export::sink::{Batch, parquet};
use serde_json::Value;
use testkit::rng::Rng;

use crate::server::{TempDir, skipped};
use crate::support::*;

/// The readers that are there, each with its Python.
fn readers() -> Vec<(&'static str, PathBuf)> {
    ["pyarrow", "duckdb"]
        .into_iter()
        .filter_map(|reader| Some((reader, python(reader)?)))
        .collect()
}

/// A Python that has this package; without one, the test is skipped aloud.
fn python(package: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let servers = std::env::var_os("HOPWISE_SINK_SERVERS")
        .map_or_else(|| folder.join("../target/sink-servers"), PathBuf::from);
    let own = servers.join("parquet/bin/python");
    let python = if own.exists() {
        own
    } else {
        PathBuf::from("python3")
    };
    let has = Command::new(&python)
        .args(["-c", &format!("import {package}")])
        .output();
    if !has.is_ok_and(|output| output.status.success()) {
        skipped(&format!(
            "test of a sink: Parquet without {package} (scripts/sink-servers)"
        ));
        return None;
    }
    Some(python)
}

/// The rows that a reader finds in these files.
fn rows(python: &Path, reader: &str, files: &[PathBuf]) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/parquet.py");
    let output = Command::new(python)
        .arg("-B")
        .arg(script)
        .arg(reader)
        .args(files)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{reader}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Writes the files of these records, and returns their paths.
fn write(directory: &Path, records: &[Record]) -> Vec<PathBuf> {
    batch(COLLECTOR, records, parquet::files)
        .into_iter()
        .map(|file| {
            let folder = directory.join(file.directory);
            fs::create_dir_all(&folder).unwrap();
            let path = folder.join(file.name);
            assert!(!path.exists(), "{} is there already", path.display());
            fs::write(&path, file.content).unwrap();
            path
        })
        .collect()
}

fn as_json(record: &Record) -> Value {
    let mut line = Vec::new();
    json::write(record, COLLECTOR, &mut line);
    serde_json::from_slice(&line).unwrap()
}

/// Checks that all readers find the values of JSON for the same records, in the order of their times.
fn compare(readers: &[(&str, PathBuf)], records: &[Record]) {
    let directory = TempDir::new();
    let files = write(directory.path(), records);
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_by_key(|record| record.ts());
    let expected: Vec<Value> = sorted.into_iter().map(as_json).collect();
    for (reader, python) in readers {
        let found = rows(python, reader, &files);
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{reader}");
        }
        assert_eq!(found.len(), expected.len(), "{reader}");
    }
}

#[test]
fn readers_of_parquet_find_what_json_says() {
    let readers = readers();
    compare(
        &readers,
        &[
            rule(5, Kind::RuleOn),
            change(2),
            new_flow(1),
            change(9),
            event_without_anything(7),
        ],
    );
    compare(&readers, &[alert(5, Kind::RuleOn), alert(6, Kind::RuleOff)]);
    compare(&readers, &[rollup(3), flow_rollup(), rollup(1)]);
    compare(&readers, &[flow()]);
    compare(&readers, &[dropped(), dropped()]);
    compare(&readers, &[loss()]);
    compare(&readers, &[hop(0), hop(1), hop(2)]);
}

fn event_without_anything(id: u64) -> Record {
    Record::Event(Box::new(event(id, Kind::New)))
}

/// Each encoding: columns with one value, few, many; lists of every length; days.
#[test]
fn readers_of_parquet_find_many_random_records() {
    let readers = readers();
    for (seed, count) in [(1, 1), (2, 7), (3, 64), (4, 3_000), (5, 40_000)] {
        let mut rng = Rng(seed);
        let records: Vec<Record> = (0..count).map(|id| random(&mut rng, id)).collect();
        compare(&readers, &records);
    }
}

fn random(rng: &mut Rng, id: u64) -> Record {
    let mut one = match rng.below(4) {
        0 => new_flow(id),
        1 => rule(id, Kind::RuleOff),
        _ => change(id),
    };
    let Record::Event(event) = &mut one else {
        unreachable!()
    };
    // Three days, and back again.
    event.event.ts = T + id / 50 * 1_000 + rng.below(3) as u64 * 86_400_000_000_000;
    event.event.id = rng.roll();
    let flow = match rng.below(5) {
        0 => wire::FlowKey::of_id(rng.roll() as u32),
        1 => format!("[fd00::{:x}]:5>[fd00::2]:6/17", rng.below(60_000))
            .parse()
            .unwrap(),
        2 => format!("10.0.{}.1>10.0.0.2/1", rng.below(250)).parse().unwrap(),
        _ => format!("10.0.0.{}:1234>10.0.0.2:{}/6", rng.below(250), rng.below(60_000))
            .parse()
            .unwrap(),
    };
    event.event.flow = (rng.below(10) > 0).then_some(flow);
    event.event.value = (rng.below(3) > 0).then(|| rng.roll() >> rng.below(60));
    event.path = (0..rng.below(7))
        .map(|_| {
            if rng.below(9) == 0 {
                u32::MAX
            } else {
                rng.roll() as u32
            }
        })
        .collect();
    one
}

fn files(records: &[Record]) -> BTreeMap<String, Vec<u8>> {
    let files = batch(COLLECTOR, records, parquet::files);
    files
        .into_iter()
        .map(|file| (format!("{}/{}", file.directory, file.name), file.content))
        .collect()
}

fn change_a_day_later(id: u64) -> Record {
    let Record::Event(mut one) = change(id) else {
        unreachable!()
    };
    one.event.ts += 86_400_000_000_000;
    Record::Event(one)
}

#[test]
fn the_same_records_make_the_same_files_and_others_others() {
    let records = [change(1), change_a_day_later(2), change(3)];
    let first = files(&records);
    let names: Vec<&str> = first
        .keys()
        .map(|name| name.rsplit_once('-').unwrap().0)
        .collect();
    assert_eq!(
        names,
        [
            "events/date=2026-11-26/leaf___1__a_b__-20261126T010000Z-2",
            "events/date=2026-11-27/leaf___1__a_b__-20261127T010000Z-1"
        ]
    );
    assert_eq!(files(&records), first);
    for others in [&[change(1), change(4)][..], &[change(1)], &[change(3), change(3)]] {
        assert!(
            files(others).keys().all(|name| !first.contains_key(name)),
            "{others:?}"
        );
    }
    let empty = parquet::files(&Batch {
        stream: Stream::Events,
        records: &[],
        collector: "c",
    });
    assert_eq!(empty, []);
}
