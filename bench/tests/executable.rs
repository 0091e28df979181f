//! The program `hopwise-bench`, without a measurement: its help, its pages, and its error without `hopwise`.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{fs, process::Command};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hopwise-bench");

#[test]
fn its_help_names_the_commands_that_users_write() {
    for (words, usage) in [
        (&["--help"][..], "Usage: hopwise bench [OPTIONS]"),
        (&["experiment", "--help"], "Usage: hopwise experiment [OPTIONS]"),
    ] {
        let output = Command::new(PROGRAM).args(words).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(help.contains(usage) && help.contains("Examples:\n"), "{help}");
    }
}

#[test]
fn it_generates_man_pages_and_completions() {
    let directory = std::env::temp_dir().join(format!("hopwise-bench-pages-{}", std::process::id()));
    let output = Command::new(PROGRAM)
        .arg("generate")
        .arg(&directory)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for file in [
        "man/hopwise-bench.1",
        "man/hopwise-experiment.1",
        "completions/hopwise-bench.bash",
        "completions/_hopwise-bench",
        "completions/hopwise-bench.fish",
    ] {
        assert!(directory.join(file).is_file(), "{file}");
    }
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_case_that_starts_hopwise_says_when_it_is_missing() {
    let directory = std::env::temp_dir().join(format!("hopwise-bench-alone-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let alone = directory.join("hopwise-bench");
    // Another process writes it: a file that a process being started holds open for writing cannot be executed.
    let copied = Command::new("cp").arg(PROGRAM).arg(&alone).status().unwrap();
    assert!(copied.success());
    let output = Command::new(&alone)
        .args(["live-change-0", "--runs", "1", "--seconds", "0.01"])
        .env("PATH", &directory)
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        message.starts_with("hopwise: needs the program `hopwise`"),
        "{message}"
    );
    fs::remove_dir_all(directory).unwrap();
}
