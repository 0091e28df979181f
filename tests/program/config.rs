//! The configuration from the command line: check, dump, and the files for packagers.

use std::fs;

use crate::support::{TempDir, hopwise};

#[test]
fn a_good_file_is_summed_up_in_a_line() {
    let directory = TempDir::new();
    let file = directory.join("h.toml");
    let store = directory.join("not/there/yet");
    let text =
        "collector.allow = [{ from = [\"10.0.0.0/8\"] }]\n[[rules]]\nname = \"a\"\nwhen = \"hops > 3\"\n";
    fs::write(
        &file,
        format!("collector.workers = 2\nstore.dir = {store:?}\n{text}"),
    )
    .unwrap();
    let run = hopwise(["check".as_ref(), "-c".as_ref(), file.as_os_str()]);
    let expected = format!(
        "ok: reports on udp://*:32766 udp://*:32767, 2 worker(s), 1 rule(s), store in {}, API on http://127.0.0.1:8080\n",
        store.display()
    );
    assert_eq!(
        (run.code, run.stdout, run.stderr.as_str()),
        (Some(0), expected, "")
    );
    assert!(!directory.join("not").exists(), "nothing is left behind");
}

#[test]
fn check_says_which_rules_the_kernel_has_no_room_for() {
    let directory = TempDir::new();
    let file = directory.join("h.toml");
    let many: Vec<String> = (0..64).map(|n| format!("queue_occupancy != {n}")).collect();
    let rule = |name: &str, when: &str| format!("[[rules]]\nname = {name:?}\nwhen = {when:?}\n");
    let text = rule("short", "hops > 3") + &rule("long", &many.join(" and "));
    let input = "listen = [\"xdp://lo\"]\nxdp.mode = \"kernel\"\n[store]\nenabled = false\n";
    fs::write(&file, format!("[collector]\n{input}{text}")).unwrap();
    let run = hopwise(["check".as_ref(), "-c".as_ref(), file.as_os_str()]);
    let expected = "\
ok: reports on xdp://lo, 1 worker(s), 2 rule(s), no store, API on http://127.0.0.1:8080
UDP checksums on xdp://lo: only the NIC verifies them, as AF_XDP delivers what it accepts
rules in the kernel: 1 of 2
rule `long` runs in user space: it needs 64 clauses in conjunctive normal form, and of the table's 64 the rules before it leave 63
so each report whose queue_occupancy differs from the previous report of its flow is passed to user space
";
    assert_eq!(
        (run.code, run.stdout.as_str(), run.stderr.as_str()),
        (Some(0), expected, "")
    );
}

#[test]
fn a_bad_file_is_refused_with_every_problem_and_code_2() {
    let directory = TempDir::new();
    let file = directory.join("h.toml");
    fs::write(&file, "[colector]\n[store]\nperiod = \"week\"\n").unwrap();
    let run = hopwise(["check".as_ref(), "-c".as_ref(), file.as_os_str()]);
    let name = file.display();
    let expected = format!(
        "hopwise: {name}:1:2: there is no key `colector` in the file; did you mean `collector`?\n  |\n1 | [colector]\n  |  ^^^^^^^^\n\
         {name}:3:10: found the text \"week\"; write \"hour\" or \"day\"\n  |\n3 | period = \"week\"\n  |          ^^^^^^\n"
    );
    assert_eq!(
        (run.code, run.stdout.as_str(), run.stderr.as_str()),
        (Some(2), "", expected.as_str())
    );
}

#[test]
fn a_file_where_the_store_should_be_is_found_before_the_start() {
    let directory = TempDir::new();
    let (file, blocked) = (directory.join("h.toml"), directory.join("data"));
    fs::write(&blocked, "").unwrap();
    fs::write(&file, format!("store.dir = {:?}\n", blocked.join("store"))).unwrap();
    let run = hopwise(["check".as_ref(), "-c".as_ref(), file.as_os_str()]);
    let expected = format!(
        "hopwise: {}: not a directory; move it away, or set another directory\n",
        blocked.display()
    );
    assert_eq!((run.code, run.stderr.as_str()), (Some(2), expected.as_str()));
}

#[test]
fn a_store_that_cannot_be_made_is_refused_as_at_the_start() {
    let directory = TempDir::new();
    let file = directory.join("h.toml");
    // Not even root can create a directory there. Advice at the start depends on the machine's counters, so it is not logged.
    let text = "log.level = \"error\"\nstore.dir = \"/proc/hopwise/store\"\napi.listen = \"127.0.0.1:0\"\n";
    fs::write(&file, text).unwrap();
    let expected = "hopwise: /proc/hopwise/store: No such file or directory; check that it exists and that this user may \
                    write there\n";
    for command in ["check", "run"] {
        let run = hopwise([command.as_ref(), "-c".as_ref(), file.as_os_str()]);
        assert_eq!(
            (run.code, run.stdout.as_str(), run.stderr.as_str()),
            (Some(2), "", expected),
            "{command}"
        );
    }
}

#[test]
fn the_dump_is_a_configuration_again() {
    let directory = TempDir::new();
    let dump = hopwise(["check", "--dump"]);
    let file = directory.join("h.toml");
    fs::write(&file, &dump.stdout).unwrap();
    let again = hopwise([
        "check".as_ref(),
        "--dump".as_ref(),
        "-c".as_ref(),
        file.as_os_str(),
    ]);
    assert_eq!((again.code, again.stdout), (Some(0), dump.stdout));
}

#[test]
fn a_packager_gets_man_pages_completions_and_the_reference() {
    let directory = TempDir::new();
    let out = directory.join("made");
    assert_eq!(hopwise(["generate".as_ref(), out.as_os_str()]).code, Some(0));
    let manual = fs::read_to_string(out.join("man/hopwise-run.1")).unwrap();
    assert!(
        manual.contains("\\-\\-config") && manual.contains("SYNOPSIS"),
        "{manual}"
    );
    for completion in ["hopwise.bash", "_hopwise", "hopwise.fish"] {
        assert!(
            fs::read_to_string(out.join("completions").join(completion))
                .unwrap()
                .contains("replay"),
            "{completion}"
        );
    }
    let reference = include_str!("../../docs/reference/config.md");
    assert_eq!(fs::read_to_string(out.join("config.md")).unwrap(), reference);
}
