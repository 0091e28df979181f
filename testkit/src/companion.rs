//! Tests of a program beside `hopwise`: its help, its pages, and its error without `hopwise`.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A program beside `hopwise`, by its path.
#[derive(Clone, Copy, Debug)]
pub struct Companion(pub &'static str);

impl Companion {
    /// Requires the program to exit with `status`, and returns what it wrote to the standard output (0) or error.
    pub fn run(self, words: &[&str], status: i32) -> String {
        text(Command::new(self.0).args(words), status)
    }

    /// Requires `generate` to write man pages and completions, of which `files` are some.
    pub fn check_pages(self, files: &[&str]) {
        let directory = self.directory("pages");
        text(Command::new(self.0).arg("generate").arg(&directory), 0);
        for file in files {
            assert!(directory.join(file).is_file(), "{file}");
        }
        fs::remove_dir_all(directory).unwrap();
    }

    /// Requires the program to refuse these words by `message` where `hopwise` is not installed.
    pub fn check_alone(self, words: &[impl AsRef<OsStr>], message: &str) {
        let directory = self.directory("alone");
        fs::create_dir_all(&directory).unwrap();
        let alone = directory.join(Path::new(self.0).file_name().unwrap());
        // Another process writes it: a file that a process being started holds open for writing cannot be executed.
        let copied = Command::new("cp").arg(self.0).arg(&alone).status().unwrap();
        assert!(copied.success());
        let error = text(Command::new(&alone).args(words).env("PATH", &directory), 2);
        assert!(error.starts_with(message), "{error}");
        fs::remove_dir_all(directory).unwrap();
    }

    fn directory(self, purpose: &str) -> PathBuf {
        let name = Path::new(self.0).file_name().unwrap().to_string_lossy();
        std::env::temp_dir().join(format!("{name}-{purpose}-{}", std::process::id()))
    }
}

fn text(command: &mut Command, status: i32) -> String {
    let Output {
        status: code,
        stdout,
        stderr,
    } = command.output().unwrap();
    let error = String::from_utf8(stderr).unwrap();
    assert_eq!(code.code(), Some(status), "{error}");
    if status == 0 {
        String::from_utf8(stdout).unwrap()
    } else {
        error
    }
}
