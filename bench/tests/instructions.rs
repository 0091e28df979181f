//! Instructions per report on the fast path, counted by callgrind and compared with `instructions.txt`.
//!
//! Unlike a time, a count does not depend on the machine or its load: it shows a cost of a few percent in the run that adds it.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hopwise-bench");
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");
/// The profile whose counts are in the file.
const PROFILE: &str = "gate";
/// Difference from the file that fails the test, as a share.
const TOLERANCE: f64 = 0.03;
const UPDATE: &str = "UPDATE_REFERENCE=1 cargo test --profile gate --locked --workspace --test instructions";

/// Makes the C library use its functions for any x86-64 processor: it chooses `memcpy` and others by the processor's features. Names
/// that a version of the library does not know have no effect.
const BASELINE: &str = "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX2_Usable,-AVX512F,-AVX512VL,-AVX512BW,-ERMS,-FSRM,-SSSE3,-SSE4_1,-SSE4_2,\
                        -BMI1,-BMI2,-MOVBE,-LZCNT,-RTM,-AVX_Fast_Unaligned_Load,-Fast_Unaligned_Copy,-Fast_Copy_Backward";

const HEAD: &str = "\
# Instructions per report on the fast path, counted by callgrind; docs/reference/performance.md says how to read them.
# A test compares them with the program, and fails if one differs by more than 3 %. To write them again:
#   UPDATE_REFERENCE=1 cargo test --profile gate --locked --workspace --test instructions
# Profile gate, which optimizes less than release; x86-64; functions of the C library for any x86-64 processor.
";

/// Instructions per report, by the name of the case.
type Counts = BTreeMap<String, f64>;

#[test]
fn the_fast_path_takes_as_many_instructions_as_written_down() {
    let compiler = compiler();
    let written = fs::read_to_string(FILE).unwrap_or_default();
    let is_update = env::var_os("UPDATE_REFERENCE").is_some();
    if let Some(reason) = reason_to_skip(&written, &compiler, is_update) {
        let name = "the_fast_path_takes_as_many_instructions_as_written_down";
        // Not by a macro that the harness captures, so that it is seen.
        let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {reason}");
        return;
    }
    let counts = count();
    if is_update {
        fs::write(FILE, render(&counts, &compiler)).unwrap();
        return;
    }
    let differences = differences(&counts, &parse(&written));
    assert!(
        differences.is_empty(),
        "instructions per report differ from bench/instructions.txt by more than 3 %:\n{differences}\
         If the change is not meant, find it with callgrind_annotate in the profiles of the revisions before and after.\n\
         Otherwise write the file again, and say why in the commit: {UPDATE}"
    );
}

/// Returns why the counts cannot be compared here.
fn reason_to_skip(written: &str, compiler: &str, is_update: bool) -> Option<String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Some("the counts are of x86-64 and Linux".to_owned());
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Some("valgrind is not installed (scripts/setup tools)".to_owned());
    }
    let directory = Path::new(PROGRAM).parent().and_then(Path::file_name);
    if directory.is_none_or(|name| name != PROFILE) {
        return Some(format!("the counts are of profile {PROFILE}"));
    }
    let of_file = written.lines().find_map(|line| line.strip_prefix("# Compiler: "));
    (!is_update && of_file != Some(compiler)).then(|| {
        let of_file = of_file.unwrap_or("an unknown compiler");
        format!("the counts are of {of_file}, not of {compiler}; write them again at the commit before yours: {UPDATE}")
    })
}

/// Returns the name and version of the compiler that built the program, from the section `.comment` of its file.
fn compiler() -> String {
    const MARK: &[u8] = b"rustc version ";
    let program = fs::read(PROGRAM).unwrap();
    let starts = program.windows(MARK.len()).enumerate();
    let mut comments = starts.filter(|(_, window)| *window == MARK).map(|(at, _)| {
        let rest = &program[at..];
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        String::from_utf8_lossy(&rest[..end]).into_owned()
    });
    // Other text of the program could contain the mark, too.
    comments
        .rfind(|comment| comment.ends_with(')') && comment.len() < 80)
        .unwrap_or_else(|| "an unknown compiler".to_owned())
}

/// Counts the instructions of every case.
fn count() -> Counts {
    let directory = Directory::new();
    let profile = directory.0.join("profile");
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--vgdb=no",
            "--compress-strings=no",
            "--compress-pos=no",
        ])
        // Writes a profile at each call, about what has ended before it. Callgrind 3.19 writes none with `--dump-after`, nor with
        // `--toggle-collect` for the same function.
        .arg("--dump-before=*counted_pass*")
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .args([PROGRAM, "instructions"])
        .env("GLIBC_TUNABLES", BASELINE)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let cases = String::from_utf8(output.stdout).unwrap();
    let last = cases.lines().count().saturating_sub(1);
    let counts: Counts = cases
        .lines()
        .enumerate()
        .map(|(number, line)| {
            let (name, reports) = line.split_once(' ').unwrap();
            // The profile with the last case is written when the program ends, in a file without a number.
            let file = if number == last {
                profile.clone()
            } else {
                profile.with_extension((number + 2).to_string())
            };
            let cost = inclusive(&fs::read_to_string(&file).unwrap_or_default());
            let cost =
                cost.unwrap_or_else(|| panic!("{name}: no counted call in {}: {errors}", file.display()));
            (name.to_owned(), cost / reports.parse::<f64>().unwrap())
        })
        .collect();
    assert!(!counts.is_empty(), "no case was counted: {errors}");
    counts
}

/// Returns the instructions of the call of the counted function in a callgrind profile, with those of the functions that it calls.
fn inclusive(profile: &str) -> Option<f64> {
    let is_call = |line: &&str| line.starts_with("cfn=") && line.contains("counted_pass");
    let mut lines = profile.lines().skip_while(|line| !is_call(line)).skip(1);
    lines.next()?.strip_prefix("calls=")?;
    // The position of the call, and its cost.
    lines.next()?.split_once(' ')?.1.parse().ok()
}

fn render(counts: &Counts, compiler: &str) -> String {
    let mut text = format!("{HEAD}# Compiler: {compiler}\n");
    for (name, count) in counts {
        writeln!(text, "{name} {count:.1}").unwrap();
    }
    text
}

fn parse(text: &str) -> Counts {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, count) = line.split_once(' ').unwrap_or_else(|| panic!("`{line}`"));
            (name.to_owned(), count.parse().unwrap())
        })
        .collect()
}

/// Describes the counts that differ by more than the tolerance, one per line.
fn differences(counts: &Counts, written: &Counts) -> String {
    let mut text = String::new();
    for (name, count) in counts {
        let Some(reference) = written.get(name) else {
            writeln!(text, "  {name}: {count:.1}, not in the file").unwrap();
            continue;
        };
        let change = count / reference - 1.0;
        if change.abs() > TOLERANCE {
            let percent = 100.0 * change;
            writeln!(
                text,
                "  {name}: {count:.1} instead of {reference:.1} ({percent:+.1} %)"
            )
            .unwrap();
        }
    }
    for name in written.keys().filter(|name| !counts.contains_key(*name)) {
        writeln!(text, "  {name}: in the file, but not counted").unwrap();
    }
    text
}

/// A temporary directory, removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = env::temp_dir().join(format!("hopwise-instructions-{}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Failure is harmless, because the directory is among the temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn counts_that_differ_by_more_than_three_percent_are_named() {
    let counts = parse("same 100.0\nhigher 103.2\nlower 96.0\nnew 5.0\n");
    let written = parse("# a comment\nsame 102.9\nhigher 100.0\nlower 100.0\ngone 7.0\n");
    assert_eq!(
        differences(&counts, &written),
        "  higher: 103.2 instead of 100.0 (+3.2 %)\n  lower: 96.0 instead of 100.0 (-4.0 %)\n  new: 5.0, not in the file\n  \
         gone: in the file, but not counted\n"
    );
}

#[test]
fn a_file_is_read_as_it_is_written() {
    let counts = parse("a 1.5\nb 1000.0\n");
    let text = render(&counts, "rustc version 1.0.0 (x)");
    assert_eq!(parse(&text), counts);
    assert!(reason_to_skip(&text, "rustc version 1.0.1 (y)", false).is_some());
}

#[test]
fn the_cost_of_the_counted_call_is_read_from_a_profile() {
    let profile = "fn=bench::counted_pass\n0 3\ncfn=bench::burst\ncalls=46 0\n0 900\n\nfn=bench::count\n0 5\n\
                   cfn=bench::counted_pass\ncalls=1 0\n0 1234567\n0 3\n\ntotals: 9999999\n";
    assert_eq!(inclusive(profile), Some(1_234_567.0));
    assert_eq!(inclusive("fn=bench::counted_pass\n0 3\n"), None);
}
