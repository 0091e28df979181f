//! Checks of the programs that are installed beside `hopwise`: help, generated pages, and the error without `hopwise`.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A companion program of `hopwise`, by the path of its executable.
#[derive(Clone, Copy, Debug)]
pub struct Companion(pub &'static str);

impl Companion {
    /// Runs the program and requires it to exit with `status`. Returns its standard output (status 0) or its standard error.
    pub fn run(self, words: &[&str], status: i32) -> String {
        text(Command::new(self.0).args(words), status)
    }

    /// Requires `generate` to write man pages and completions, among them `files`.
    pub fn check_pages(self, files: &[&str]) {
        let directory = self.directory("pages");
        text(Command::new(self.0).arg("generate").arg(&directory), 0);
        for file in files {
            assert!(directory.join(file).is_file(), "{file}");
        }
        fs::remove_dir_all(directory).unwrap();
    }

    /// Requires the program to fail with `message` on these arguments if `hopwise` is not installed.
    pub fn check_alone(self, words: &[impl AsRef<OsStr>], message: &str) {
        let directory = self.directory("alone");
        fs::create_dir_all(&directory).unwrap();
        let alone = directory.join(Path::new(self.0).file_name().unwrap());
        // `cp` writes it: a child forked by another test could inherit our open descriptor, and `exec` fail with ETXTBSY.
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
