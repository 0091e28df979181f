//! Runs p4testgen on a program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// After which it is ended; the tests that it has made until then are used.
const LIMIT: Duration = Duration::from_secs(180);

/// What p4testgen made of a program.
pub(crate) struct Made {
    pub(crate) tests: Vec<PathBuf>,
    /// What it says of the statements that its tests execute: `0.25 (10/40)`.
    pub(crate) coverage: String,
}

/// The sources in `folder`, without what p4testgen does not know: `truncate`, and ranges in STF, of which it makes exact fields.
fn copy(root: &Path, folder: &Path) {
    for name in ["shared", "control", "v1model"] {
        std::fs::create_dir_all(folder.join(name)).unwrap();
        for file in std::fs::read_dir(root.join(name)).unwrap() {
            let file = file.unwrap().path();
            if file.extension().is_some_and(|kind| kind == "p4") {
                let mut text = std::fs::read_to_string(&file)
                    .unwrap()
                    .replace(": range @name", ": exact @name");
                while let Some(at) = text.find("truncate(") {
                    let end = at + text[at..].find(");").unwrap() + 2;
                    text.replace_range(at..end, "");
                }
                std::fs::write(folder.join(name).join(file.file_name().unwrap()), text).unwrap();
            }
        }
    }
}

/// Makes at most `tests` tests; with `sending`, only of paths that send a packet.
pub(crate) fn generate(folder: &Path, name: &str, tests: u32, sending: bool) -> Made {
    let root = std::env::current_dir().unwrap().join("../../p4");
    copy(&root, folder);
    let (out, said) = (folder.join("tests"), folder.join("said"));
    let file = std::fs::File::create(&said).unwrap();
    let mut command = Command::new("p4testgen");
    command.args([
        "--target",
        "bmv2",
        "--arch",
        "v1model",
        "--std",
        "p4-16",
        "--test-backend",
        "STF",
    ]);
    command.args([
        "--path-selection",
        "RANDOM_BACKTRACK",
        "--track-coverage",
        "STATEMENTS",
        "--Wdisable",
    ]);
    command.args(["--seed", "1", "--max-tests", &tests.to_string()]);
    if sending {
        command.arg("--output-packet-only");
    }
    command
        .arg("--out-dir")
        .arg(&out)
        .arg(folder.join("v1model").join(format!("{name}.p4")));
    let (stdout, stderr) = (file.try_clone().unwrap(), file);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if begun.elapsed() > LIMIT => {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let said = std::fs::read_to_string(said).unwrap();
    assert!(
        status.is_none_or(|status| status.success()),
        "p4testgen of {name}: {said}"
    );
    let coverage = said
        .lines()
        .rev()
        .find_map(|line| line.split_once("Nodes covered: "));
    let coverage = coverage
        .map_or("", |(_, rest)| rest.trim_end_matches('=').trim())
        .to_owned();
    let files = std::fs::read_dir(out)
        .into_iter()
        .flatten()
        .map(|file| file.unwrap().path());
    let mut tests: Vec<PathBuf> = files
        .filter(|file| file.extension().is_some_and(|kind| kind == "stf"))
        .collect();
    tests.sort();
    Made { tests, coverage }
}
