//! Exports of the whole program to files of Parquet.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use serde_json::Value;

use super::export::{Scripted, exported, own, reports_from};
use crate::support::{
    TempDir, hopwise,
    server::{Server, TIMEOUT},
    skipped,
};

fn config(lake: &Path, more: &str) -> String {
    format!(
        "[exports.lake]\nkind = \"parquet\"\nurl = \"file://{}\"\nstreams = [\"events\"]\nlinger = \"0s\"\n{more}",
        lake.display()
    )
}

/// The files of a directory and of those in it.
pub(super) fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path))
        } else {
            found.push(path)
        }
    }
    found.sort_unstable();
    found
}

/// The rows of these files, as pyarrow reads them; `None` where there is no pyarrow.
pub(super) fn rows(files: &[PathBuf]) -> Option<Vec<Value>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let servers = std::env::var_os("HOPWISE_SINK_SERVERS")
        .map_or_else(|| root.join("target/sink-servers"), PathBuf::from);
    let python = Some(servers.join("parquet/bin/python")).filter(|own| own.exists());
    let python = python.unwrap_or_else(|| PathBuf::from("python3"));
    let has = Command::new(&python).args(["-c", "import pyarrow"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        skipped("exports to Parquet: needs pyarrow (scripts/sink-servers)");
        return None;
    }
    let script = root.join("export/tests/servers/parquet.py");
    let output = Command::new(python)
        .arg("-B")
        .arg(script)
        .arg("pyarrow")
        .args(files)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    Some(
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    )
}

pub(super) fn settled(server: &Server) {
    exported(server, "settled", |view| {
        view["waiting"] == 0 && view["held"] == 0 && view["last_success"].is_u64()
    });
}

pub(super) fn ids(server: &Server) -> Vec<String> {
    own(server, "SELECT id FROM events ORDER BY id")
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn files_of_parquet_have_what_a_webhook_gets() {
    let (directory, hook) = (TempDir::new(), Scripted::start(&[]));
    let lake = directory.join("lake");
    let server = Server::start(&format!(
        "{}[exports.hook]\nkind = \"webhook\"\nurl = \"http://{}/in\"\nlines = true\nlinger = \"0s\"\n",
        config(&lake, ""),
        hook.address
    ));
    server.send(reports_from(0));
    server.settled(150);
    let drained = hopwise([
        "export",
        "drain",
        "--wait",
        "60",
        "--api",
        &format!("http://{}", server.api),
    ]);
    assert_eq!(drained.code, Some(0), "{drained:?}");
    let mut got: Vec<Value> = Vec::new();
    while let Ok((request, _)) = hook.got.try_recv() {
        let text = String::from_utf8(request.body).unwrap();
        got.extend(
            text.lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap()),
        );
    }
    let by_id = |one: &Value| one["id"].as_str().unwrap().to_owned();
    got.sort_by_key(by_id);
    assert_eq!(got.iter().map(by_id).collect::<Vec<_>>(), ids(&server));
    let Some(mut rows) = rows(&files(&lake)) else {
        return;
    };
    rows.sort_by_key(by_id);
    let different = rows.iter().zip(&got).find(|(here, there)| here != there);
    assert_eq!((different, rows.len()), (None, got.len()));
}

#[test]
fn files_of_parquet_are_whole_and_have_each_record_once_after_kills() {
    let directory = TempDir::new();
    let lake = directory.join("lake");
    let config = config(&lake, "batch = 7\n");
    let mut server = Server::start(&config);
    for round in 0..4 {
        server.send(reports_from(round * 150));
        // Killed in the middle of it.
        let (start, before) = (Instant::now(), files(&lake).len());
        while files(&lake).len() < before + 2 {
            assert!(start.elapsed() < TIMEOUT, "no files in {}", lake.display());
            crate::support::pause();
        }
        server.signal("-KILL");
        let (_, kept) = server.stop();
        let whole = files(&lake)
            .into_iter()
            .rfind(|file| file.extension().is_some_and(|end| end == "parquet"));
        let whole = whole.unwrap();
        let name = whole.file_name().unwrap().to_str().unwrap();
        for left in [".hopwise-left".to_owned(), format!(".{name}.9-9.begun")] {
            fs::write(whole.with_file_name(left), "half a file").unwrap();
        }
        server = Server::start_in(kept, &config);
    }
    settled(&server);
    let found = files(&lake);
    let name = |file: &PathBuf| file.file_name().unwrap().to_str().unwrap().to_owned();
    let (whole, other): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|file| name(file).ends_with(".parquet"));
    // What is not its own stays; what it began and did not end is gone.
    assert_eq!(other.iter().map(name).collect::<Vec<_>>(), [".hopwise-left"]);
    let said: usize = whole
        .iter()
        .map(|file| name(file).rsplit('-').nth(1).unwrap().parse::<usize>().unwrap())
        .sum();
    let expected = ids(&server);
    assert_eq!(said, expected.len());
    let Some(rows) = rows(&whole) else { return };
    let mut found: Vec<String> = rows
        .iter()
        .map(|row| row["id"].as_str().unwrap().to_owned())
        .collect();
    found.sort_unstable();
    assert_eq!(found, expected);
}

/// A small file system of its own, unmounted afterwards.
struct Small(PathBuf);

impl Small {
    fn mount(path: PathBuf) -> Option<Self> {
        fs::create_dir_all(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&path);
        if !mount.output().is_ok_and(|output| output.status.success()) {
            skipped("exports to Parquet on a full disk: needs the right to mount (root)");
            return None;
        }
        Some(Self(path))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn a_full_disk_is_said_once_and_tried_again_until_there_is_space() {
    let directory = TempDir::new();
    let Some(lake) = Small::mount(directory.join("lake")) else {
        return;
    };
    let filler = lake.0.join("filler");
    fs::write(&filler, [0; 60 << 10]).unwrap();
    let server = Server::start(&config(&lake.0, ""));
    server.send(reports_from(0));
    let view = exported(&server, "failing", |view| view["failed"].as_u64() >= Some(3));
    let error = view["last_error"].as_str().unwrap();
    assert!(
        error.starts_with("a request failed: ") && error.contains("No space left on device"),
        "{error}"
    );
    let line = server.log_line("No space left on device");
    assert!(line.contains("lake"), "{line}");
    assert_eq!(view["delivered"], 0);
    assert!(
        files(&lake.0).iter().all(|file| *file == filler),
        "{:?}",
        files(&lake.0)
    );
    fs::remove_file(&filler).unwrap();
    server.settled(150);
    settled(&server);
    // The next line about it says that it is over.
    let line = server.log_line("export=\"lake\"");
    assert!(!line.contains("No space left"), "{line}");
    let expected = ids(&server);
    let Some(rows) = rows(&files(&lake.0)) else { return };
    assert_eq!(rows.len(), expected.len());
}
