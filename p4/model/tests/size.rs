//! The sizes of programs in the README are those of the programs.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Included by all programs, and written by a script.
const NOT_COUNTED: [&str; 2] = ["headers.p4", "crc.p4"];

/// A source and what it includes.
fn sources(path: &Path, found: &mut BTreeSet<PathBuf>) {
    if NOT_COUNTED.iter().any(|name| path.ends_with(name)) || !found.insert(path.to_path_buf()) {
        return;
    }
    let text = std::fs::read_to_string(path).unwrap();
    for name in text.lines().filter_map(|line| line.strip_prefix("#include \"")) {
        let included = path.parent().unwrap().join(name.trim_end_matches('"'));
        sources(&included.canonicalize().unwrap(), found);
    }
}

/// Lines that are neither empty nor comments.
fn lines(path: &Path) -> usize {
    let mut found = BTreeSet::new();
    sources(&path.canonicalize().unwrap(), &mut found);
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    found.iter().map(|path| std::fs::read_to_string(path).unwrap().lines().filter(is_code).count()).sum()
}

/// The row of a program: lines, tables, registers and their bits, counters.
fn row(folder: &Path, name: &str) -> String {
    let read = |ending: &str| std::fs::read_to_string(folder.join(format!("{name}.{ending}"))).unwrap();
    let program: Value = serde_json::from_str(&read("json")).unwrap();
    let registers = program["register_arrays"].as_array().unwrap();
    let bits: u64 =
        registers.iter().map(|one| one["size"].as_u64().unwrap() * one["bitwidth"].as_u64().unwrap()).sum();
    let tables = read("p4info.txtpb").lines().filter(|line| *line == "tables {").count();
    let counters = program["counter_arrays"].as_array().unwrap().len();
    let lines = lines(&folder.join(format!("{name}.p4")));
    format!("| `{name}` | {lines} | {tables} | {} | {bits} | {counters} |", registers.len())
}

#[test]
fn the_readme_has_the_sizes_of_the_programs() {
    let root = std::env::current_dir().unwrap().join("..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    for name in ["int", "sf", "aggregator", "dta_translator"] {
        let row = row(&root.join("v1model"), name);
        assert!(readme.lines().any(|line| line.starts_with(&row)), "p4/README.md lacks {row}");
    }
}
