//! The sizes of programs in the README are those of the programs.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Included by all programs, and written by a script.
const NOT_COUNTED: [&str; 2] = ["headers.p4", "crc.p4"];

/// What is only part of the program that is the switch of `int` with another form of reports.
const REPORTER: &str = "DTA_REPORTER";

/// The lines of a source that are part of a program.
fn active(text: &str, is_reporter: bool) -> Vec<&str> {
    // Of each condition: whether it is this one, and whether its lines are part of the program.
    let (mut lines, mut conditions) = (Vec::new(), Vec::<(bool, bool)>::new());
    for line in text.lines() {
        if let Some(name) = line
            .strip_prefix("#ifdef ")
            .or_else(|| line.strip_prefix("#ifndef "))
        {
            conditions.push((name == REPORTER, name != REPORTER || is_reporter));
        } else if line == "#else"
            && let Some((true, is_active)) = conditions.last_mut()
        {
            *is_active = !*is_active;
            continue;
        }
        let is_ours = line.starts_with('#') && conditions.last().is_some_and(|(is_ours, _)| *is_ours);
        if !is_ours || line.starts_with("#include") || line.starts_with("#define") {
            lines.extend(Some(line).filter(|_| conditions.iter().all(|(_, is_active)| *is_active)));
        }
        if line == "#endif" {
            conditions.pop();
        }
    }
    lines
}

/// Lines that are neither empty nor comments, of a source and of what it includes.
fn lines(path: &Path, is_reporter: bool, found: &mut BTreeSet<PathBuf>) -> usize {
    if NOT_COUNTED.iter().any(|name| path.ends_with(name)) || !found.insert(path.to_path_buf()) {
        return 0;
    }
    let text = std::fs::read_to_string(path).unwrap();
    let active = active(&text, is_reporter);
    let is_code = |line: &&&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    let included = active.iter().filter_map(|line| line.strip_prefix("#include \""));
    let place = |name: &str| {
        path.parent()
            .unwrap()
            .join(name.trim_end_matches('"'))
            .canonicalize()
            .unwrap()
    };
    let more: usize = included.map(|name| lines(&place(name), is_reporter, found)).sum();
    active.iter().filter(is_code).count() + more
}

/// The row of a program: lines, tables, registers and their bits, counters.
fn row(folder: &Path, name: &str) -> String {
    let read = |ending: &str| std::fs::read_to_string(folder.join(format!("{name}.{ending}"))).unwrap();
    let program: Value = serde_json::from_str(&read("json")).unwrap();
    let registers = program["register_arrays"].as_array().unwrap();
    let bits: u64 = registers
        .iter()
        .map(|one| one["size"].as_u64().unwrap() * one["bitwidth"].as_u64().unwrap())
        .sum();
    let tables = read("p4info.txtpb")
        .lines()
        .filter(|line| *line == "tables {")
        .count();
    let counters = program["counter_arrays"].as_array().unwrap().len();
    let path = folder.join(format!("{name}.p4")).canonicalize().unwrap();
    let lines = lines(&path, name == "dta_reporter", &mut BTreeSet::new());
    format!(
        "| `{name}` | {lines} | {tables} | {} | {bits} | {counters} |",
        registers.len()
    )
}

#[test]
fn the_readme_has_the_sizes_of_the_programs() {
    let root = std::env::current_dir().unwrap().join("../../p4");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    for name in ["int", "sf", "aggregator", "dta_reporter", "dta_translator"] {
        let row = row(&root.join("v1model"), name);
        assert!(
            readme.lines().any(|line| line.starts_with(&row)),
            "p4/README.md lacks {row}"
        );
    }
}
