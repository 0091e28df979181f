//! The program `hopwise-lab`, without a lab: its help, its pages, and its error without `hopwise`.

use testkit::Companion;

const PROGRAM: Companion = Companion(env!("CARGO_BIN_EXE_hopwise-lab"));

#[test]
fn its_help_names_the_command_that_users_write() {
    let help = PROGRAM.run(&["up", "--help"], 0);
    assert!(help.contains("Usage: hopwise lab up [OPTIONS] <FILE>"), "{help}");
    let help = PROGRAM.run(&[], 2);
    assert!(help.contains("Usage: hopwise lab <COMMAND>"), "{help}");
    assert!(!help.contains("generate"), "{help}");
}

#[test]
fn it_generates_a_man_page_for_each_command_and_completions() {
    PROGRAM.check_pages(&[
        "man/hopwise-lab.1",
        "man/hopwise-lab-up.1",
        "man/hopwise-lab-fault-cut.1",
        "completions/hopwise-lab.bash",
        "completions/_hopwise-lab",
        "completions/hopwise-lab.fish",
    ]);
}

#[test]
fn a_lab_without_the_program_hopwise_is_an_error_with_its_remedy() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/lab/three-switches.toml");
    PROGRAM.check_alone(&["up", example], "hopwise: a lab needs the program hopwise");
}
