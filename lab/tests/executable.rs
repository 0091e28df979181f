//! The program `hopwise-lab`, without a lab: its help, its pages, and its error without `hopwise`.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{fs, path::Path, process::Command};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hopwise-lab");

#[test]
fn its_help_names_the_command_that_users_write() {
    let output = Command::new(PROGRAM).args(["up", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(help.contains("Usage: hopwise lab up [OPTIONS] <FILE>"), "{help}");
    let output = Command::new(PROGRAM).output().unwrap();
    let help = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(help.contains("Usage: hopwise lab <COMMAND>"), "{help}");
    assert!(!help.contains("generate"), "{help}");
}

#[test]
fn it_generates_a_man_page_for_each_command_and_completions() {
    let directory = std::env::temp_dir().join(format!("hopwise-lab-pages-{}", std::process::id()));
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
        "man/hopwise-lab.1",
        "man/hopwise-lab-up.1",
        "man/hopwise-lab-fault-cut.1",
        "completions/hopwise-lab.bash",
        "completions/_hopwise-lab",
        "completions/hopwise-lab.fish",
    ] {
        assert!(directory.join(file).is_file(), "{file}");
    }
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_lab_without_the_program_hopwise_is_an_error_with_its_remedy() {
    let directory = std::env::temp_dir().join(format!("hopwise-lab-alone-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let alone = directory.join("hopwise-lab");
    // Another process writes it: a file that a process being started holds open for writing cannot be executed.
    let copied = Command::new("cp").arg(PROGRAM).arg(&alone).status().unwrap();
    assert!(copied.success());
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/lab/three-switches.toml");
    let output = Command::new(&alone)
        .arg("up")
        .arg(example)
        .env("PATH", &directory)
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        message.starts_with("hopwise: a lab needs the program hopwise"),
        "{message}"
    );
    fs::remove_dir_all(directory).unwrap();
}
