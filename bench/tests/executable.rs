//! The program `hopwise-bench`, without a measurement: its help, its pages, and its error without `hopwise`.

use testkit::Companion;

const PROGRAM: Companion = Companion(env!("CARGO_BIN_EXE_hopwise-bench"));

#[test]
fn its_help_names_the_commands_that_users_write() {
    for (words, usage) in [
        (&["--help"][..], "Usage: hopwise bench [OPTIONS]"),
        (&["experiment", "--help"], "Usage: hopwise experiment [OPTIONS]"),
    ] {
        let help = PROGRAM.run(words, 0);
        assert!(help.contains(usage) && help.contains("Examples:\n"), "{help}");
    }
}

#[test]
fn it_generates_man_pages_and_completions() {
    PROGRAM.check_pages(&[
        "man/hopwise-bench.1",
        "man/hopwise-experiment.1",
        "completions/hopwise-bench.bash",
        "completions/_hopwise-bench",
        "completions/hopwise-bench.fish",
    ]);
}

#[test]
fn a_case_that_starts_hopwise_says_when_it_is_missing() {
    let words = ["live-change-0", "--runs", "1", "--seconds", "0.01"];
    PROGRAM.check_alone(&words, "hopwise: needs the program `hopwise`");
}
