//! `hopwise lab`, `hopwise bench` and `hopwise experiment`: programs of their own, which `hopwise` executes.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
};

use crate::support::{TempDir, hopwise, public_copy};

/// A script in place of a program: prints its name, its arguments and a variable, and ends with 7.
fn write_script(file: &Path) {
    let script = "#!/bin/sh\nprintf '%s\\n' \"${0##*/}\" \"$@\" \"$HOPWISE_TEST\"\nexit 7\n";
    fs::write(file, script).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A run of a copy of `hopwise`, with another `PATH`.
fn run(program: &Path, words: &[&str], path: &Path) -> Output {
    Command::new(program)
        .args(words)
        .env("PATH", path)
        .env("NO_COLOR", "1")
        .env("HOPWISE_TEST", "as before")
        .output()
        .unwrap()
}

#[test]
fn a_program_beside_this_one_or_in_path_gets_arguments_and_environment() {
    let directory = TempDir::new();
    let program = public_copy(&directory);
    let elsewhere = directory.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    write_script(&elsewhere.join("hopwise-bench"));
    write_script(&directory.join("hopwise-lab"));
    for (words, said) in [
        (
            &["lab", "exec", "h1", "--", "ping", "-c", "3"][..],
            "hopwise-lab\nexec\nh1\n--\nping\n-c\n3\nas before\n",
        ),
        (&["lab", "--help"], "hopwise-lab\n--help\nas before\n"),
        (&["bench", "--list"], "hopwise-bench\n--list\nas before\n"),
        (
            &["experiment", "sf-delay"],
            "hopwise-bench\nexperiment\nsf-delay\nas before\n",
        ),
    ] {
        let output = run(&program, words, &elsewhere);
        assert_eq!(output.status.code(), Some(7), "{words:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), said);
    }
    // The program beside this one comes first.
    fs::write(elsewhere.join("hopwise-lab"), "").unwrap();
    assert_eq!(run(&program, &["lab"], &elsewhere).status.code(), Some(7));
}

#[test]
fn a_missing_program_is_an_error_that_says_what_to_install() {
    let directory = TempDir::new();
    let program = public_copy(&directory);
    for (command, missing, target) in [
        ("lab", "hopwise-lab", "lab"),
        ("bench", "hopwise-bench", "bench"),
        ("experiment", "hopwise-bench", "bench"),
    ] {
        let output = run(&program, &[command, "--help"], &directory.join("none"));
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            format!(
                "hopwise: the program {missing} is not installed (neither beside this one nor in PATH); \
                 install the package hopwise-lab, or build it with `make {target}`\n"
            )
        );
    }
}

#[test]
fn the_help_lists_them_and_they_have_pages_of_their_own() {
    let help = hopwise(["--help"]).stdout;
    for command in ["  lab ", "  bench ", "  experiment "] {
        assert!(help.contains(command), "{help}");
    }
    let directory = TempDir::new();
    let pages = directory.join("pages");
    let run = hopwise(["generate".as_ref(), pages.as_os_str()]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let pages = pages.join("man");
    assert!(pages.join("hopwise.1").exists() && pages.join("hopwise-run.1").exists());
    assert!(
        !pages.join("hopwise-lab.1").exists()
            && !pages.join("hopwise-bench.1").exists()
            && !pages.join("hopwise-experiment.1").exists()
    );
}
